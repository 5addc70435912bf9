r"""Shuffled noise: local randomizers with a delta, and Gaussian noise on each record.

**Theorem.** Let n randomizers, each (e0, d0)-DP for any replacement of its record and
any outputs before it, process records in uniformly random order. If randomizers without
a delta are (epsilon, delta)-DP after shuffling, by `dpsample.privacy.curves.shuffling`,
then these are (epsilon, delta + (1 + e^epsilon) T)-DP with

.. math:: T = d_0 \Bigl(o + (n - 1) e^{-e_0} (1 + o)\Bigr), \quad o = 1/(1 + e^{e_0}).

*Proof.* Fix the outputs so far. Let f, g be the densities of a randomizer on the two
values of the changed record and E = e^e0.

1. There are P, Q within a factor E of each other and within o d0 of f, g in total
   variation. On A = {f > E g} put E (f + g)/(1 + E) and (f + g)/(1 + E): this moves
   (f - E g)/(1 + E), in all a/(1 + E) with a <= d0. On {g > E' f} do the same with the
   roles exchanged and 1 <= E' <= E; what it moves falls continuously in E' from TV(f,
   g)/2 to b/(1 + E), b <= d0. If a is the larger, a/(1 + E) <= TV(f, g)/2, so some E'
   moves as much: P and Q have mass one. If b is, exchange f and g.
2. For another record's density h let B = (P + Q)/2 and replace h by B/E plus (h -
   B/E)_+ scaled to mass 1 - 1/E. This is at least B/E and moves m = mass of (B/E -
   h)_+. As (f - E h)_+ has mass <= d0 and so has (g - E h)_+, m <= d0 (1 + o)/E.
3. The proof of Feldman, McMillan and Talwar (2021), Theorem 3.2, uses of randomizers
   that the changed record's are within E of each other and that others are at least
   (P + Q)/(2 E): both hold now. One record moved o d0, n - 1 others m each, for any
   outputs before: T in all on either data set.

The theorem's own term (3.8) has (1 + e^-e0/2) n d0 for T, which is larger.
"""

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
MOST_SPENT = 2.0  # of epsilon, by shuffling


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

    delta + (1 + e^epsilon) T, by the theorem that the module proves.

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
    The shuffled outputs are (epsilon, total)-DP under both relations.

    Examples
    --------
    >>> total = shuffle_total_delta(
    ...     5e-7, epsilon=0.2, local_epsilon=1.0, local_delta=1e-12, num_records=10_000
    ... )
    >>> print(f"{total:.3e}")
    5.104e-07
    """
    check.non_negative(delta=delta, epsilon=epsilon)
    check.non_negative(local_epsilon=local_epsilon, local_delta=local_delta)
    check.integer(1, num_records=num_records)
    for name, value in (("delta", delta), ("local_delta", local_delta)):
        if value > 1.0:
            check.fail(name, "<= 1", value)
    if epsilon > LARGEST_EPSILON:
        check.fail("epsilon", f"<= {LARGEST_EPSILON:g}", epsilon)
    extra = delta_factor(epsilon, local_epsilon, num_records) * local_delta
    return min((delta + extra) * ROUND_UP, 1.0)


@check.plain
def shuffle_local_noise(
    budget: Budget, *, num_records: int, method: ShuffleMethod = "numerical"
) -> LocalNoise:
    """Gaussian noise on every record that spends the budget after shuffling.

    Half of delta goes to shuffling, for which the largest local epsilon is searched;
    the other half pays for the randomizers' own delta. A randomizer sees any two
    records, so that its sensitivity is 2 C under both relations. From epsilon = 2 to 4
    on, by n and delta, the randomizers' delta costs more than epsilon gives: of more
    than 2 only 2 is spent, or the noise serves that needs no order, if it is less.

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
    The shuffled noisy vectors are (epsilon, delta)-DP.

    Examples
    --------
    >>> noise = shuffle_local_noise(Budget(epsilon=0.2, delta=1e-8), num_records=10_000)
    >>> print(f"{noise.noise_multiplier:.2f} {noise.local_epsilon:.2f}")
    6.72 1.99
    """
    check.instance(Budget, budget=budget)
    check.integer(1, num_records=num_records)
    check.one_of(("numerical", "closed_form"), method=method)
    half, upper = 0.5 * budget.delta, LARGEST_EPSILON
    epsilon = min(budget.epsilon, MOST_SPENT)
    if method == "closed_form":
        upper = closed_form_limit(half, num_records)
        if upper <= 0.0:
            remedy = "Use method='numerical'."
            condition = "> 16 log(4/delta) for the closed form"
            check.fail("num_records", condition, check.shown(num_records), remedy)

    def is_safe(local: float) -> bool:
        shared: dict[str, Any] = {"local_epsilon": local, "num_records": num_records}
        if method == "closed_form":
            return shuffle_closed_form(delta=half, **shared) <= epsilon
        return shuffle_delta(epsilon=epsilon, **shared) <= half

    safe, unsafe = 0.0, upper
    if is_safe(unsafe):
        safe = unsafe
    while unsafe - safe > 1e-11 * unsafe and safe < upper:
        middle = 0.5 * (safe + unsafe)
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    local_delta = min(half / delta_factor(epsilon, safe, num_records) / ROUND_UP, 0.5)
    shuffled, ordered = (
        LocalNoise(2.0 / gdp_from_budget(e, d) * ROUND_UP, e, d)
        for e, d in ((safe, local_delta), (budget.epsilon, budget.delta))
    )
    return min(shuffled, ordered)


def delta_factor(epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Return (1 + e^epsilon) T/d0: what multiplies the randomizers' own delta."""
    own = 1.0 / (1.0 + math.exp(min(local_epsilon, LARGEST_EPSILON)))
    others = (num_records - 1) * math.exp(-local_epsilon) * (1.0 + own)
    return (1.0 + math.exp(epsilon)) * (own + others)
