r"""Shuffling: privacy of locally randomized or noisy records in random order.

Every record passes a local randomizer (epsilon_0-DP in the record, adaptive in earlier
outputs) after a uniform random permutation. Feldman, McMillan and Talwar (2021),
Theorem 3.2: the outputs on neighbors are post-processed from (A + D, C - A + 1 - D) and
(A + 1 - D, C - A + D), where C ~ Bin(n - 1, e^-epsilon_0) others hide the record, A ~
Bin(C, 1/2) and D ~ Bernoulli(a), a = e^epsilon_0/(1 + e^epsilon_0).

Given C = c the likelihood ratio increases in A + D, so that with k the smallest integer
above R (c+1)/(1+R), R = (e^epsilon a - (1-a))/(a - e^epsilon (1-a)),

delta_c = (a - e^epsilon (1-a)) P(A = k-1) - (e^epsilon - 1) P(A >= k),

in both directions by symmetry. One more coin flip is post-processing: delta_c decreases
in c, and a block of values of C may be evaluated at its smallest. The binomial
probabilities (`fair_mass` and the tails) keep their digits at any size.

**Theorem.** Let n randomizers, each (e0, d0)-DP for any replacement of its record and
any outputs before it, process records in uniformly random order. If randomizers without
a delta are (epsilon, delta)-DP after shuffling, as above, then these are
(epsilon, delta + (1 + e^epsilon) T)-DP with

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

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.curves.gaussian import bisect, gdp_from_budget

# More than sums over blocks lose, and half of it. Binomial tails are accurate to about
# 1e-12, of many coin flips to a part that grows with the root of their number.
ROUND_UP, HALF_UP, TAIL_ROUNDING = 1.0 + 1e-9, 1.0 + 5e-10, 1e-12
# Of the larger of two terms whose difference is a delta: over twice their errors.
TERM_ROUNDING, TERM_ROOT = 4e-12, 5e-15
# Values of C beyond this many standard deviations share one block on each side.
NUM_DEVIATIONS = 9.5
MAX_BLOCKS = 2048
LARGEST_EPSILON = 600.0
ShuffleMethod = Literal["numerical", "closed_form"]
NOISE_ROUND_UP = 1.0 + 1e-14
MOST_SPENT = 2.0  # of epsilon, by shuffling


@check.unwrap_numpy
def shuffle_closed_form(
    *, local_epsilon: float, delta: float, num_records: int
) -> float:
    """Epsilon after shuffling, by the closed form of the theorem.

    Feldman, McMillan and Talwar (2021), Theorem 3.1: epsilon = log(1 + (e^e0 - 1)/
    (e^e0 + 1) (8 sqrt(e^e0 log(4/delta)/n) + 8 e^e0/n)). `shuffle_epsilon` is smaller.

    Parameters
    ----------
    local_epsilon : float
        e0 of each randomizer, >= 0 and at most log(n / (16 log(2/delta))).
    delta : float
        Probability, > 0 and < 1.
    num_records : int
        n, >= 1.

    Returns
    -------
    float
        epsilon >= 0.

    Raises
    ------
    ValueError
        If an argument is out of its range or the theorem's condition fails.

    Guarantee
    ---------
    The shuffled outputs are (epsilon, delta)-DP under both relations.

    Examples
    --------
    >>> case = {"local_epsilon": 4.0, "num_records": 100_000}
    >>> print(f"{shuffle_closed_form(delta=1e-6, **case):.4f}")
    0.5346
    """
    check.non_negative(local_epsilon=local_epsilon)
    check.open_interval(0.0, 1.0, delta=delta)
    check.integer(1, maximum=check.MAX_EXACT_INT, num_records=num_records)
    limit = closed_form_limit(delta, num_records)
    if local_epsilon > limit:
        check.fail(
            "local_epsilon",
            f"<= log(n / (16 log(2/delta))) = {limit:.4g}",
            local_epsilon,
            "Use shuffle_epsilon, which has no such condition.",
        )
    growth = math.exp(local_epsilon)
    root = math.sqrt(growth * (math.log(4.0) - math.log(delta)) / num_records)
    spread = 8.0 * root + 8.0 * growth / num_records
    return math.log1p(math.tanh(0.5 * local_epsilon) * spread)


def closed_form_limit(delta: float, num_records: int) -> float:
    """Largest e0 that `shuffle_closed_form` covers; it may be negative."""
    return math.log(num_records / (16.0 * (math.log(2.0) - math.log(delta))))


@check.unwrap_numpy
def shuffle_delta(*, epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Delta after shuffling, by summing over the number of records that hide one.

    Feldman, McMillan and Talwar (2021), Theorem 3.2; the sum of this module.

    Parameters
    ----------
    epsilon : float
        Privacy loss after shuffling, >= 0.
    local_epsilon : float
        epsilon_0 of each randomizer, >= 0 and at most 600.
    num_records : int
        n, >= 1.

    Returns
    -------
    float
        delta in [0, 1], rounded up: blocks of the sum are evaluated at their largest
        term, none is left out, and a margin covers rounding.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The shuffled outputs are (epsilon, delta)-DP under both relations, if every
    randomizer is epsilon_0-DP for any replacement of its record.

    Examples
    --------
    >>> delta = shuffle_delta(epsilon=0.17, local_epsilon=4.0, num_records=100_000)
    >>> print(f"{delta:.2e}")
    9.8e-07
    """
    check.non_negative(epsilon=epsilon, local_epsilon=local_epsilon)
    if local_epsilon > LARGEST_EPSILON:
        check.fail("local_epsilon", f"<= {LARGEST_EPSILON:g}", local_epsilon)
    check.integer(1, num_records=num_records)
    if epsilon >= local_epsilon:
        return 0.0
    rate, others = math.exp(-local_epsilon), num_records - 1
    starts = _blocks(others, rate)
    ends = np.append(starts[1:] - 1.0, float(others))
    # The smaller tail on either side of the mean keeps the difference accurate.
    above = upper_tail(ends + 1.0, others, rate)
    right = upper_tail(starts, others, rate)
    below, left = lower_tail(starts, others, rate), lower_tail(ends + 1.0, others, rate)
    masses = np.where(left < 0.5, left - below, right - above)
    masses = np.maximum(masses, 0.0) + TAIL_ROUNDING * np.minimum(left, right)
    deltas = _deltas(starts, float(epsilon), float(local_epsilon))
    # Not 0, where doubles end: that is for epsilon >= epsilon_0 alone.
    found = max(float(masses @ deltas) * ROUND_UP, check.MIN_NORMAL)
    return min(found, 1.0)


@check.unwrap_numpy
def shuffle_epsilon(*, delta: float, local_epsilon: float, num_records: int) -> float:
    """Epsilon after shuffling, by the numerical bound.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    local_epsilon, num_records
        As in `shuffle_delta`.

    Returns
    -------
    float
        epsilon in [0, epsilon_0], rounded up.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    ``shuffle_delta`` at the returned epsilon is <= delta.

    Examples
    --------
    >>> case = {"local_epsilon": 4.0, "num_records": 100_000}
    >>> print(f"{shuffle_epsilon(delta=1e-6, **case):.4f}")
    0.1698
    """
    check.open_interval(0.0, 1.0, delta=delta)

    def is_safe(epsilon: float) -> bool:
        delta_there = shuffle_delta(
            epsilon=epsilon, local_epsilon=local_epsilon, num_records=num_records
        )
        return delta_there <= delta

    if is_safe(0.0):
        return 0.0
    return bisect(is_safe, safe=float(local_epsilon), unsafe=0.0, width=1e-11)


def _blocks(others: int, rate: float) -> Array:
    """Smallest values of the blocks: single values, or equal blocks, around the mean.

    The first block begins at 0 and the last one ends at ``others``.
    """
    spread = NUM_DEVIATIONS * (math.sqrt(others * rate * (1.0 - rate)) + 3.0)
    low = max(math.floor(others * rate - spread), 0)
    high = min(math.ceil(others * rate + spread), others)
    width = max(math.ceil((high - low + 1) / MAX_BLOCKS), 1)
    inner = np.arange(low, high + 1, width, dtype=np.float64)
    return np.unique(np.append(inner, 0.0))


def _deltas(counts: Array, epsilon: float, local_epsilon: float) -> Array:
    """delta_c of every count, with the module's formula."""
    # a - e^epsilon (1-a) and e^epsilon a - (1-a), times 1 + e^-epsilon_0.
    near = -math.expm1(epsilon - local_epsilon)
    far = math.expm1(epsilon) - math.expm1(-local_epsilon)
    scale = 1.0 + math.exp(-local_epsilon)
    # k - 1, which is at most c: from epsilon = 37 on the ratio is rounded to c + 1.
    before = np.minimum(np.floor(far * (counts + 1.0) / (near + far)), counts)
    most = near / scale * fair_mass(before, counts)
    tail = upper_tail(before + 1.0, counts, 0.5)
    result: Array = np.maximum(most - math.expm1(epsilon) * tail, 0.0)
    lost = (TERM_ROUNDING + TERM_ROOT * np.sqrt(counts)) * most
    return np.maximum(result, (result + lost) / HALF_UP)


def upper_tail(least: Array, flips: Array | float, rate: float) -> Array:
    """P(Bin(flips, rate) >= least), least >= 0."""
    from scipy.special import betainc

    inner, a, b = _beta_parameters(least, flips)
    tail: Array = np.where(inner, betainc(a, b, rate), least <= 0.0)
    return tail


def lower_tail(least: Array, flips: Array | float, rate: float) -> Array:
    """P(Bin(flips, rate) < least), least >= 0."""
    from scipy.special import betaincc

    inner, a, b = _beta_parameters(least, flips)
    tail: Array = np.where(inner, betaincc(a, b, rate), least > 0.0)
    return tail


def _beta_parameters(
    least: Array, flips: Array | float
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Where the tail is neither empty nor everything, and its parameters there."""
    rest = flips - least + 1.0
    inner = (least > 0.0) & (rest > 0.0)
    return inner, np.where(inner, least, 1.0), np.where(inner, rest, 1.0)


def fair_mass(heads: Array, flips: Array) -> Array:
    """P(Bin(flips, 1/2) = heads) by Stirling's formula with its error (Loader 2000).

    Logarithms of factorials would lose as many digits as ``flips`` has.
    """
    tails = flips - heads
    is_edge = (heads == 0.0) | (tails == 0.0)
    h, t, n = (np.where(is_edge, 1.0, x) for x in (heads, tails, flips))
    lean = np.where(is_edge, 0.0, (h - t) / n)
    deviance = 0.5 * n * (np.log1p(-lean * lean) + 2.0 * lean * np.arctanh(lean))
    # The same, without 1 - lean^2, which loses digits near the ends.
    near_end = h * np.log(2.0 * h / n) + t * np.log(2.0 * t / n)
    deviance = np.where(np.abs(lean) < 0.75, deviance, near_end)
    error = _stirling_error(n) - _stirling_error(h) - _stirling_error(t)
    inner = np.sqrt(n / (2.0 * math.pi * h * t)) * np.exp(error - deviance)
    return np.where(is_edge, np.exp2(-flips), inner)


def _stirling_error(x: Array) -> Array:
    """Logarithm of x! over sqrt(2 pi x) (x/e)^x, x >= 1."""
    from scipy.special import gammaln

    small = np.minimum(x, 15.0)
    exact = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small
    large = np.maximum(x, 15.0)
    square = large * large
    series = 1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    return np.where(x < 15.0, exact - 0.5 * math.log(2.0 * math.pi), series)


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


@check.unwrap_numpy
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
    if local_delta > 0.0:  # where doubles end
        extra = max(extra, check.MIN_NORMAL)
    return min((delta + extra) * NOISE_ROUND_UP, 1.0)


@check.unwrap_numpy
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
    check_not_pure(budget, "shuffled Gaussian noise")
    check.integer(1, num_records=num_records)
    check.one_of(("numerical", "closed_form"), method=method)
    half, upper = 0.5 * budget.delta, LARGEST_EPSILON
    epsilon = min(budget.epsilon, MOST_SPENT)
    if method == "closed_form":
        upper = closed_form_limit(half, num_records)
        if upper <= 0.0:
            remedy = "Use method='numerical'."
            condition = "> 16 log(4/delta) for the closed form"
            check.fail("num_records", condition, check.describe(num_records), remedy)

    def is_safe(local: float) -> bool:
        shared: dict[str, Any] = {"local_epsilon": local, "num_records": num_records}
        if method == "closed_form":
            return shuffle_closed_form(delta=half, **shared) <= epsilon
        return shuffle_delta(epsilon=epsilon, **shared) <= half

    safe = upper if is_safe(upper) else 0.0
    safe = bisect(is_safe, safe=safe, unsafe=upper, width=1e-11)
    local_delta = min(
        half / delta_factor(epsilon, safe, num_records) / NOISE_ROUND_UP, 0.5
    )
    shuffled, ordered = (
        LocalNoise(2.0 / gdp_from_budget(e, d) * NOISE_ROUND_UP, e, d)
        for e, d in ((safe, local_delta), (budget.epsilon, budget.delta))
    )
    return min(shuffled, ordered)


def delta_factor(epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Return (1 + e^epsilon) T/d0: what multiplies the randomizers' own delta."""
    own = 1.0 / (1.0 + math.exp(min(local_epsilon, LARGEST_EPSILON)))
    others = (num_records - 1) * math.exp(-local_epsilon) * (1.0 + own)
    return (1.0 + math.exp(epsilon)) * (own + others)
