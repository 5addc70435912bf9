r"""Shuffling: privacy of locally randomized or noisy records in random order.

A *local randomizer* maps one record to one output. n records pass local randomizers in
uniformly random order. Each randomizer is epsilon_0-DP in its record and may depend on
the outputs before it. The random order hides which output belongs to which record. In
the theorem and in code epsilon_0 is also e0 and ``local_epsilon``.

**The numerical bound** (Feldman, McMillan and Talwar 2021, Theorem 3.2). Let C ~ Bin(n
- 1, e^-epsilon_0) be the number of other records that hide the changed one, A ~ Bin(C,
1/2) and D ~ Bernoulli(a), a = e^epsilon_0/(1 + e^epsilon_0). On two neighbors, the
outputs have the distributions of one random function of the pairs of counts
(A + D, C - A + 1 - D) and (A + 1 - D, C - A + D), so these pairs are at least as far
apart.

Given C = c, the likelihood ratio of the two pairs increases in the first count. It
exceeds e^epsilon from the count k on, the smallest integer above R (c+1)/(1+R), where
R = (e^epsilon a - (1-a))/(a - e^epsilon (1-a)). Then

delta_c = (a - e^epsilon (1-a)) P(A = k-1) - (e^epsilon - 1) P(A >= k),

in both directions by symmetry, and delta(epsilon) is the mean of delta_C. The pairs for
c + 1 are a function of those for c and of one more coin flip, so delta_c decreases in
c. So a block of values of C may be evaluated at its smallest value. The binomial
probabilities (`fair_mass`, `upper_tail` and `lower_tail`) keep their digits at any
size.

**Theorem (randomizers with a delta).** Let n randomizers, each (e0, d0)-DP for any
replacement of its record and any outputs before it, process records in uniformly random
order. If randomizers without a delta are (epsilon, delta)-DP after shuffling, as above,
then these are (epsilon, delta + (1 + e^epsilon) T)-DP with

.. math:: T = d_0 \Bigl(o + (n - 1) e^{-e_0} (1 + o)\Bigr), \quad o = 1/(1 + e^{e_0}).

*Proof.* Fix the outputs so far. Let f, g be the densities of a randomizer on the two
values of the changed record and E = e^e0.

1. There are P, Q within a factor E of each other and within o d0 of f, g in total
   variation. On A = {f > E g} put E (f + g)/(1 + E) and (f + g)/(1 + E). This moves the
   mass (f - E g)/(1 + E), in all a/(1 + E) with a <= d0. On {g > E' f} exchange the
   roles, with 1 <= E' <= E. The mass moved there falls continuously in E' from TV(f,
   g)/2 to b/(1 + E), b <= d0. If a is the larger, a/(1 + E) <= TV(f, g)/2, so some E'
   moves as much as a/(1 + E), and P and Q have mass one. If b is, exchange f and g.
2. For another record's density h let B = (P + Q)/2. Replace h by B/E plus the multiple
   of (h - B/E)_+ that has mass 1 - 1/E. This is at least B/E and moves m = mass of (B/E
   - h)_+. As (f - E h)_+ has mass <= d0 and so has (g - E h)_+, m <= d0 (1 + o)/E.
3. The proof of Feldman, McMillan and Talwar (2021), Theorem 3.2, uses two properties of
   randomizers. The two of the changed record are within E of each other, and the others
   are at least (P + Q)/(2 E). Both hold now. One record moved o d0 and n - 1 others m
   each, for any outputs before, so T in all on either data set.

Feldman, McMillan and Talwar (3.8) have (1 + e^-e0/2) n d0 for T, which is larger.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.curves.gaussian import bisect, gdp_from_budget

ShuffleMethod = Literal["numerical", "closed_form"]
# This factor exceeds the relative rounding errors of a sum over blocks. Half of the
# margin covers the errors of one term.
ROUND_UP = 1.0 + 1e-9
# Maximum number of terms of a sum. More of them would give a smaller bound.
MAX_BLOCKS = 2048
LARGEST_EPSILON = 600.0  # its exponential is far from overflow
# This factor exceeds the relative rounding errors of a quotient of a few numbers.
NOISE_ROUND_UP = 1.0 + 1e-14


@check.unwrap_numpy
def shuffle_closed_form(
    *, local_epsilon: float, delta: float, num_records: int
) -> float:
    """Return epsilon after shuffling, by the closed form of the theorem.

    Feldman, McMillan and Talwar (2021), Theorem 3.1: epsilon = log(1 + (e^e0 - 1)/
    (e^e0 + 1) (8 sqrt(e^e0 log(4/delta)/n) + 8 e^e0/n)). `shuffle_epsilon` is smaller.

    Parameters
    ----------
    local_epsilon : float
        e0 of each randomizer, >= 0 and at most log(n / (16 log(2/delta))).
    delta : float
        Probability, > 0 and < 1.
    num_records : int
        Number n >= 1 of records.

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
    # The theorem's formula, with (e^e0 - 1)/(e^e0 + 1) = tanh(e0 / 2).
    growth = math.exp(local_epsilon)
    root = math.sqrt(growth * (math.log(4.0) - math.log(delta)) / num_records)
    spread = 8.0 * root + 8.0 * growth / num_records
    return math.log1p(math.tanh(0.5 * local_epsilon) * spread)


def closed_form_limit(delta: float, num_records: int) -> float:
    """Return the largest e0 that `shuffle_closed_form` covers. It may be negative."""
    return math.log(num_records / (16.0 * (math.log(2.0) - math.log(delta))))


@check.unwrap_numpy
def shuffle_delta(*, epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Return delta after shuffling, summed over the number of records that hide one.

    Feldman, McMillan and Talwar (2021), Theorem 3.2, as the module describes.

    Parameters
    ----------
    epsilon : float
        Privacy loss after shuffling, >= 0.
    local_epsilon : float
        epsilon_0 of each randomizer, >= 0 and at most 600.
    num_records : int
        Number n >= 1 of records.

    Returns
    -------
    float
        delta in [0, 1], rounded up. Each block of the sum is evaluated at its largest
        term, no term is left out, and a margin covers rounding errors.

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
    hiding_rate, num_others = math.exp(-local_epsilon), num_records - 1
    starts = _blocks(num_others, hiding_rate)
    ends = np.append(starts[1:] - 1.0, float(num_others))
    # P(C < start) and P(C <= end), P(C >= start) and P(C > end) of each block. Left of
    # the mean the lower tails are small, and their difference keeps its digits. Right
    # of the mean the upper tails are.
    before = lower_tail(starts, num_others, hiding_rate)
    up_to_end = lower_tail(ends + 1.0, num_others, hiding_rate)
    from_start = upper_tail(starts, num_others, hiding_rate)
    after = upper_tail(ends + 1.0, num_others, hiding_rate)
    masses = np.where(up_to_end < 0.5, up_to_end - before, from_start - after)
    # This exceeds the rounding errors of the tails that are subtracted.
    tail_errors = 1e-12 * np.minimum(up_to_end, from_start)
    masses = np.maximum(masses, 0.0) + tail_errors
    deltas = _deltas(starts, float(epsilon), float(local_epsilon))
    # Here epsilon < epsilon_0, so delta is not 0 even if the sum underflows.
    delta = max(float(masses @ deltas) * ROUND_UP, check.MIN_NORMAL)
    return min(delta, 1.0)


@check.unwrap_numpy
def shuffle_epsilon(*, delta: float, local_epsilon: float, num_records: int) -> float:
    """Return epsilon after shuffling, by the numerical bound.

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
        shuffled_delta = shuffle_delta(
            epsilon=epsilon, local_epsilon=local_epsilon, num_records=num_records
        )
        return shuffled_delta <= delta

    if is_safe(0.0):
        return 0.0
    return bisect(is_safe, safe=float(local_epsilon), unsafe=0.0, width=1e-11)


def _blocks(num_others: int, hiding_rate: float) -> Array:
    """Return the smallest value of each block of values of C.

    C has the distribution Bin(num_others, hiding_rate). Around the mean blocks have one
    value, or equally many where there are too many values. The first block begins at 0
    and the last one ends at ``num_others``, far out.
    """
    # 9.5 standard deviations, and 9.5 times 3 values where the deviation is small.
    margin = 9.5 * (math.sqrt(num_others * hiding_rate * (1.0 - hiding_rate)) + 3.0)
    low = max(math.floor(num_others * hiding_rate - margin), 0)
    high = min(math.ceil(num_others * hiding_rate + margin), num_others)
    width = max(math.ceil((high - low + 1) / MAX_BLOCKS), 1)
    inner = np.arange(low, high + 1, width, dtype=np.float64)
    return np.unique(np.append(inner, 0.0))


def _deltas(counts: Array, epsilon: float, local_epsilon: float) -> Array:
    """Return delta_c of every count c, by the module's formula, rounded up."""
    # (a - e^epsilon (1-a))/a and (e^epsilon a - (1-a))/a.
    r_denominator = -math.expm1(epsilon - local_epsilon)
    r_numerator = math.expm1(epsilon) - math.expm1(-local_epsilon)
    inverse_a = 1.0 + math.exp(-local_epsilon)
    # R is the second number over the first. The floor of R (c+1)/(1+R) is k - 1 and at
    # most c. The minimum is needed from epsilon = 37 on, where the product is rounded
    # to c + 1.
    last = np.minimum(
        np.floor(r_numerator * (counts + 1.0) / (r_denominator + r_numerator)), counts
    )
    first_term = r_denominator / inverse_a * fair_mass(last, counts)
    tail = upper_tail(last + 1.0, counts, 0.5)
    deltas: Array = np.maximum(first_term - math.expm1(epsilon) * tail, 0.0)
    # More than twice the errors of both terms, relative to the first, which is larger.
    # A part of them grows with the root of the number of coin flips.
    rounding = (4e-12 + 5e-15 * np.sqrt(counts)) * first_term
    # `shuffle_delta` multiplies by ROUND_UP, which covers small errors already.
    return np.maximum(deltas, (deltas + rounding) / (1.0 + 5e-10))


def upper_tail(bound: Array, flips: Array | float, rate: float) -> Array:
    """Return P(Bin(flips, rate) >= bound), bound >= 0."""
    from scipy.special import betainc

    is_inner, a, b = _beta_parameters(bound, flips)
    tail: Array = np.where(is_inner, betainc(a, b, rate), bound <= 0.0)
    return tail


def lower_tail(bound: Array, flips: Array | float, rate: float) -> Array:
    """Return P(Bin(flips, rate) < bound), bound >= 0."""
    from scipy.special import betaincc

    is_inner, a, b = _beta_parameters(bound, flips)
    tail: Array = np.where(is_inner, betaincc(a, b, rate), bound > 0.0)
    return tail


def _beta_parameters(
    bound: Array, flips: Array | float
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Return where a tail is neither 0 nor 1, and its beta parameters there.

    P(Bin(flips, rate) >= bound) is the regularized incomplete beta function of bound
    and flips - bound + 1 at ``rate``.
    """
    complement = flips - bound + 1.0
    is_inner = (bound > 0.0) & (complement > 0.0)
    return is_inner, np.where(is_inner, bound, 1.0), np.where(is_inner, complement, 1.0)


def fair_mass(heads: Array, flips: Array) -> Array:
    """Return P(Bin(flips, 1/2) = heads) by Stirling's formula with its error.

    The saddle-point form of Loader (2000). Logarithms of factorials would lose as many
    digits as ``flips`` has.
    """
    tails = flips - heads
    is_edge = (heads == 0.0) | (tails == 0.0)
    h, t, n = (np.where(is_edge, 1.0, x) for x in (heads, tails, flips))
    # The deviance is h log(2h/n) + t log(2t/n). Near h = t its terms cancel, and the
    # form in the imbalance (h - t)/n is accurate. Near the ends that form loses digits.
    imbalance = np.where(is_edge, 0.0, (h - t) / n)
    square = imbalance * imbalance
    central = 0.5 * n * (np.log1p(-square) + 2.0 * imbalance * np.arctanh(imbalance))
    outer = h * np.log(2.0 * h / n) + t * np.log(2.0 * t / n)
    deviance = np.where(np.abs(imbalance) < 0.75, central, outer)
    error = _stirling_error(n) - _stirling_error(h) - _stirling_error(t)
    inner = np.sqrt(n / (2.0 * math.pi * h * t)) * np.exp(error - deviance)
    return np.where(is_edge, np.exp2(-flips), inner)


def _stirling_error(x: Array) -> Array:
    """Return the logarithm of x! / (sqrt(2 pi x) (x/e)^x), x >= 1."""
    from scipy.special import gammaln

    small = np.minimum(x, 15.0)
    exact = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small
    large = np.maximum(x, 15.0)
    square = large * large
    # The first five terms of Stirling's series, 1/(12 x) - 1/(360 x^3) + ...
    series = 1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    return np.where(x < 15.0, exact - 0.5 * math.log(2.0 * math.pi), series)


class LocalNoise(NamedTuple):
    """Local randomizers that spend a budget after shuffling.

    Attributes
    ----------
    noise_multiplier : float
        Standard deviation of every record's noise over the bound of its vector's norm.
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
    """Return delta after shuffling (local_epsilon, local_delta)-DP randomizers.

    It is delta + (1 + e^epsilon) T, by the theorem that the module proves.

    Parameters
    ----------
    delta : float
        `shuffle_delta` at ``epsilon`` of randomizers without a delta, in [0, 1].
    epsilon : float
        Privacy loss after shuffling, >= 0 and at most 600.
    local_epsilon, local_delta : float
        Privacy of each randomizer, >= 0, and local_delta <= 1.
    num_records : int
        Number n >= 1 of records.

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
    if local_delta > 0.0:  # it may underflow
        extra = max(extra, check.MIN_NORMAL)
    return min((delta + extra) * NOISE_ROUND_UP, 1.0)


@check.unwrap_numpy
def shuffle_local_noise(
    budget: Budget, *, num_records: int, method: ShuffleMethod = "numerical"
) -> LocalNoise:
    """Return the Gaussian noise on every record that spends the budget when shuffled.

    Half of delta goes to shuffling, for which the largest local epsilon is searched.
    The other half is for the randomizers' own delta. A randomizer may see either of any
    two records, so its sensitivity is twice the bound of a vector under both relations.

    Beyond some epsilon between 2 and 4, which depends on n and delta, a larger epsilon
    would need more noise, because the term (1 + e^epsilon) T grows faster than the
    local epsilon helps. So at most epsilon = 2 is spent on shuffling. If noise that is
    private without shuffling is smaller, that is returned.

    Parameters
    ----------
    budget : Budget
        Epsilon and delta after shuffling, under either relation.
    num_records : int
        n, each processed once, in uniformly random order.
    method : {"numerical", "closed_form"}
        `shuffle_delta` or `shuffle_closed_form`. The first needs less noise.

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
    epsilon = min(budget.epsilon, 2.0)
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

    # Local epsilon 0 is safe, because equal outputs reveal nothing.
    safe = upper if is_safe(upper) else 0.0
    safe = bisect(is_safe, safe=safe, unsafe=upper, width=1e-11)
    factor = delta_factor(epsilon, safe, num_records)
    local_delta = min(half / factor / NOISE_ROUND_UP, 0.5)
    shuffled, unshuffled = (
        LocalNoise(2.0 / gdp_from_budget(e, d) * NOISE_ROUND_UP, e, d)
        for e, d in ((safe, local_delta), (budget.epsilon, budget.delta))
    )
    return min(shuffled, unshuffled)  # by the noise multiplier, the first field


def delta_factor(epsilon: float, local_epsilon: float, num_records: int) -> float:
    """Return (1 + e^epsilon) T / d0, the factor of the randomizers' own delta."""
    # o of the module, and the part of the n - 1 other records.
    share = 1.0 / (1.0 + math.exp(min(local_epsilon, LARGEST_EPSILON)))
    others_factor = (num_records - 1) * math.exp(-local_epsilon) * (1.0 + share)
    return (1.0 + math.exp(epsilon)) * (share + others_factor)
