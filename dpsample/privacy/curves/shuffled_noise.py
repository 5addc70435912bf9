"""Shuffled noise: local randomizers with a delta, and Gaussian noise on each record."""

import math
from typing import Any, Literal, NamedTuple

from dpsample.core import check
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.privacy.curves.shuffling import (
    LARGEST_EPSILON,
    closed_form_limit,
    shuffle_closed_form,
    shuffle_delta,
)

ShuffleMethod = Literal["numerical", "closed_form"]
ROUND_UP = 1.0 + 1e-14


class LocalNoise(NamedTuple):
    """Local randomizers that spend a budget after shuffling.

    Attributes
    ----------
    noise_multiplier : float
        Standard deviation of every record's noise over the bound C of its vector.
    local_epsilon, local_delta : float
        Privacy of one randomizer, under any replacement of its record.
    """

    noise_multiplier: float
    local_epsilon: float
    local_delta: float


@check.plain
def shuffle_total_delta(
    delta: float,
    *,
    epsilon: float,
    local_epsilon: float,
    local_delta: float,
    num_records: int,
) -> float:
    """Delta after shuffling randomizers that are (local_epsilon, local_delta)-DP.

    delta + (e^epsilon + 1)(1 + e^-local_epsilon/2) n local_delta: Feldman, McMillan and
    Talwar (2021), Theorem 3.8. The second term is quoted from memory; it was compared
    with the exact divergence of randomized response that leaks its record with
    probability local_delta, and exceeds it, for up to five records.

    Parameters
    ----------
    delta : float
        `shuffle_delta` at ``epsilon`` of randomizers without a delta, in [0, 1].
    epsilon : float
        Privacy loss after shuffling, >= 0.
    local_epsilon, local_delta : float
        Privacy of each randomizer, >= 0, and local_delta <= 1.
    num_records : int
        n, >= 1.

    Returns
    -------
    float
        The total, at most 1.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The shuffled outputs are (epsilon, total)-DP under both relations, as far as the
    quoted term is right.

    Examples
    --------
    >>> total = shuffle_total_delta(
    ...     5e-7, epsilon=0.2, local_epsilon=1.0, local_delta=1e-12, num_records=10_000
    ... )
    >>> print(f"{total:.3e}")
    5.263e-07
    """
    check.non_negative(delta=delta, epsilon=epsilon)
    check.non_negative(local_epsilon=local_epsilon, local_delta=local_delta)
    check.integer(1, num_records=num_records)
    for name, value in (("delta", delta), ("local_delta", local_delta)):
        if value > 1.0:
            check.fail(name, "<= 1", value)
    if epsilon > LARGEST_EPSILON:
        check.fail("epsilon", f"<= {LARGEST_EPSILON:g}", epsilon)
    extra = _factor(epsilon, local_epsilon, num_records) * local_delta
    return min((delta + extra) * ROUND_UP, 1.0)


@check.plain
def shuffle_local_noise(
    budget: Budget, *, num_records: int, method: ShuffleMethod = "numerical"
) -> LocalNoise:
    """Gaussian noise on every record that spends the budget after shuffling.

    Half of delta goes to shuffling, for which the largest local epsilon is searched;
    the other half pays for the randomizers' own delta. A randomizer sees any two
    records, so that its sensitivity is 2 C under both relations.

    Parameters
    ----------
    budget : Budget
        Epsilon and delta after shuffling; either relation.
    num_records : int
        n, each processed once, in uniformly random order.
    method : {"numerical", "closed_form"}
        `shuffle_delta` or `shuffle_closed_form`; the first needs less noise.

    Returns
    -------
    LocalNoise
        ``noise_multiplier``, ``local_epsilon`` and ``local_delta``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or the closed form covers no local epsilon.

    Guarantee
    ---------
    The shuffled noisy vectors are (epsilon, delta)-DP, as far as the term that
    `shuffle_total_delta` quotes is right.

    Examples
    --------
    >>> noise = shuffle_local_noise(Budget(epsilon=0.2, delta=1e-8), num_records=10_000)
    >>> print(f"{noise.noise_multiplier:.2f} {noise.local_epsilon:.2f}")
    6.99 1.99
    """
    check.instance(Budget, budget=budget)
    check.integer(1, num_records=num_records)
    check.one_of(("numerical", "closed_form"), method=method)
    half, upper = 0.5 * budget.delta, LARGEST_EPSILON
    if method == "closed_form":
        upper = closed_form_limit(half, num_records)
        if upper <= 0.0:
            remedy = "Use method='numerical'."
            condition = "> 16 log(4/delta) for the closed form"
            check.fail("num_records", condition, check.shown(num_records), remedy)

    def is_safe(local: float) -> bool:
        shared: dict[str, Any] = {"local_epsilon": local, "num_records": num_records}
        if method == "closed_form":
            return shuffle_closed_form(delta=half, **shared) <= budget.epsilon
        return shuffle_delta(epsilon=budget.epsilon, **shared) <= half

    safe, unsafe = 0.0, upper
    if is_safe(unsafe):
        safe = unsafe
    while unsafe - safe > 1e-11 * unsafe and safe < upper:
        middle = 0.5 * (safe + unsafe)
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    local_delta = half / _factor(budget.epsilon, safe, num_records) / ROUND_UP
    gdp = gdp_from_budget(safe, local_delta)
    return LocalNoise(2.0 / gdp * ROUND_UP, safe, local_delta)


def _factor(epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Return what multiplies the randomizers' own delta."""
    growth = math.exp(epsilon) + 1.0
    return growth * (1.0 + 0.5 * math.exp(-local_epsilon)) * num_records
