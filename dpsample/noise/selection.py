# mypy: allow-untyped-defs
r"""Selection: exact draws of the exponential mechanism, over scores on a public grid.

One of 2 d candidates, the two signs of d values v_j, is drawn with probability
proportional to exp(h s m_j), s = -1 or 1. Here h, a public power of two, is the size of
a *cell*, and m_j is v_j as a whole number of cells.

**Rounding has no effect on privacy.** Let values as they are computed differ by at most
D between neighbors, and let a D <= k, k even and 2 k h <= epsilon. Then m = rint(a v),
cut off at +-2^51, moves by at most k cells. The reason is that rint is monotone and
rint(x + k) = rint(x) + k for even k, and the cut moves no two numbers apart. So no log
weight moves by more than k h, and the logarithm of their sum does not either. The draw
is epsilon-private, and its log ratios stay inside an interval of length epsilon
(McSherry and Talwar 2007, Theorem 6, and Cesar and Rogers 2021). k is from 2^24 to
2^25. Rounding it to an even number takes at most 2 of it, so epsilon loses a part below
2^-23. The product a v is rounded once, which the caller includes in the errors of v.
NaN counts as 0.

**Exact draws.** With x = (max m - s m_j) h, a candidate is proposed with a probability
proportional to the whole number w_r = ceil(2^30 e^-r), where r = min(floor(x), 21) is
its *level*. It is accepted with probability 2^30 e^-x/w_r <= 1. For that, a coin of
probability 2^30 e^-r/w_r, whose 128 bits are listed, must succeed, and an exponential
variate E must be at least x - r. Accepted candidates have the distribution of the
mechanism (von Neumann 1951), and on average fewer than 4 + 2^-28 d candidates are
proposed. All other numbers are exact. They are whole numbers below 2^53 times a power
of two. x - r is a multiple of 2^-97, where the digits of E are cut off, so that E >= x
- r if and only if this holds for its digits. (From x = 2^53 on, x - r is rounded. E is
so large with a probability below e^-1000.) The digits' own distribution has a small
error. On average three comparisons are made, each wrong with probability below 2^-122
(`numerics.exact`). So the draw is exact except with probability `TOTAL_VARIATION`, for
d < 2^32.

**No error at all.** With delta = 0 nothing can pay for that probability. Then
`pure_signed_choice` proposes all candidates alike, and accepts one with probability
e^-x. It decides by uniform integers and by comparisons of uniform numbers with x, which
is a double below 2^53 if h is at most 1. Digits of a uniform number are drawn until
they differ from those of x, so that no comparison is rounded or cut off, and no
irrational number is stored. Accepted candidates have the distribution of the mechanism
exactly. At most 2 d candidates are proposed on average.
"""

import math
from fractions import Fraction

import numpy as np

from dpsample.core.jit import kernel
from dpsample.noise.noise import MAX_QUERY_STEPS
from dpsample.numerics.exact import exact_exponential, random_word

# This factor lowers a product by more than the rounding errors of a few operations, so
# that a D <= k holds for the a that is returned.
BELOW = 1.0 - 16.0 * 2.0**-53
MAX_LEVEL = 21  # the first one with 2^30 e^-r < 1


def selection_grid(epsilon: float, sensitivity: float) -> tuple[float, float]:
    """Return the cells per unit of the values, and the size of a cell, a and h.

    Parameters
    ----------
    epsilon : float
        Privacy of one selection, finite and > 0.
    sensitivity : float
        Bound > 0 of the change of a value by one record, rounding errors included.

    Returns
    -------
    tuple of float
        a and h. Their product, the inverse temperature, is epsilon / (2 sensitivity)
        except for a part below 2^-22. It is 0 where epsilon is below the digits of an
        exponential variate. Then all candidates have the same probability.

    Examples
    --------
    >>> per_unit, cell = selection_grid(1.0, 0.5)
    >>> cell == 2.0**-25, round(per_unit * cell, 9)
    (True, 1.0)
    """
    # epsilon is from 2^25 to 2^26 cells, so k is from 2^24 to 2^25. Digits of an
    # exponential variate end at 2^-97.
    exponent = math.frexp(epsilon)[1] - 26
    cell = max(math.ldexp(1.0, exponent), 2.0**-97)
    # The largest even k with 2 k h <= epsilon.
    k = 2.0 * math.floor(0.25 * epsilon / cell)
    return k / sensitivity * BELOW, cell


def _proposals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights w_r, and 64 bits and 64 more of their coins' probabilities."""
    weights, chances = [], []
    # 249!/k!, the terms of e^r = sum r^k/k! over a common denominator.
    series = [math.factorial(249) // math.factorial(k) for k in range(250)]
    for r in range(MAX_LEVEL + 1):
        # The remainder of the series is below 2^-500 of e^r.
        power = Fraction(sum(c * r**k for k, c in enumerate(series)), series[0])
        weights.append(math.ceil(2**30 / power))
        # The coin's probability 2^30 e^-r / w_r as a whole number of 2^-128. At level 0
        # it is 1, for which no coin is thrown.
        chances.append(min(int(2**158 / power / weights[-1]), 2**128 - 1))
    high, low = [c >> 64 for c in chances], [c & (2**64 - 1) for c in chances]
    return (
        np.array(weights, np.int64),
        np.array(high, np.uint64),
        np.array(low, np.uint64),
    )


_WEIGHTS, _HIGH, _LOW = _proposals()


@kernel
def _level(x):
    """Return the level r of a candidate that is x below the best one."""
    return int(min(x, MAX_LEVEL))


@kernel
def _is_accepted(rng, x):
    """Return whether a proposed candidate that is x below the best one is accepted."""
    r = _level(x)
    # The coin of the level. Its second 64 bits decide only if the first ones are equal.
    if r > 0:
        first = random_word(rng)
        if first > _HIGH[r] or (first == _HIGH[r] and random_word(rng) >= _LOW[r]):
            return False
    if x == r:
        return True
    high, low = exact_exponential(rng)
    return low >= (x - r) - high  # the difference is exact where both are close


@kernel
def _to_cells(values, per_unit):
    """Replace values by their whole numbers of cells, and return the largest size."""
    top = 0.0
    for j in range(len(values)):
        cells = values[j] * per_unit
        cells = cells if cells == cells else 0.0  # NaN is not equal to itself
        cells = min(max(cells, -MAX_QUERY_STEPS), MAX_QUERY_STEPS)
        values[j] = np.rint(cells)  # m_j, cut off at 2^51
        top = max(top, abs(values[j]))
    return top


@kernel
def _mask(count):
    """Return the smallest number 2^b - 1 that is at least count - 1."""
    mask = 0
    while mask < count - 1:
        mask = 2 * mask + 1
    return mask


@kernel
def signed_choice(rng, values, per_unit, cell):
    """Choose a value and a sign, and return its index and the sign.

    ``values`` are replaced by their whole numbers of cells.
    """
    top = _to_cells(values, per_unit)
    total = 0
    # The sum of the weights of all 2 d candidates.
    for j in range(len(values)):
        total += _WEIGHTS[_level((top - values[j]) * cell)]
        total += _WEIGHTS[_level((top + values[j]) * cell)]
    mask = _mask(total)
    while True:
        # A uniform number below `total`, by rejection of masked random bits. Candidates
        # take turns, j with sign 1 and then -1, until their weights exceed it.
        remainder = int(random_word(rng) >> np.uint64(1)) & mask
        if remainder >= total:
            continue
        j, sign = -1, -1.0
        while remainder >= 0:
            sign = -sign
            j += sign > 0.0
            x = (top - sign * values[j]) * cell
            remainder -= _WEIGHTS[_level(x)]
        if _is_accepted(rng, x):
            return j, sign


@kernel
def _integer_below(rng, count):
    """Draw from 0 to count - 1, each with the same probability."""
    mask = _mask(count)
    while True:
        number = int(random_word(rng) >> np.uint64(1)) & mask
        if number < count:
            return number


@kernel
def _is_below(rng, x):
    """Return whether a uniform number is below a double x, 0 <= x <= 1.

    Its digits to the base 2^32 are drawn until one of them differs from that of x. All
    products and differences are exact. After the last digit of x, none is below 0.
    """
    while x > 0.0:
        x *= 4294967296.0
        digit = math.floor(x)
        x -= digit
        drawn = np.float64(random_word(rng) >> np.uint64(32))
        if drawn != digit:
            return drawn < digit
    return False


@kernel
def _fraction_coin(rng, x):
    """Return True with probability e^-x, 0 <= x <= 1 (von Neumann).

    The n-th trial succeeds with probability x/n. The first failure is at n with
    probability x^(n-1)/(n-1)! - x^n/n!, so n is odd with probability e^-x.
    """
    n = 1
    while _is_below(rng, x) and _integer_below(rng, n) == 0:
        n += 1
    return n % 2 == 1


@kernel
def _exponential_coin(rng, x):
    """Return True with probability e^-x for a double x >= 0 below 2^53."""
    whole = math.floor(x)
    x -= whole
    while whole > 0:
        if not _fraction_coin(rng, 1.0):
            return False
        whole -= 1
    return _fraction_coin(rng, x)


@kernel
def pure_signed_choice(rng, values, per_unit, cell):
    """Choose as `signed_choice` does, without an error of the random numbers.

    ``values`` are replaced by their whole numbers of cells, and ``cell`` is at most 1.
    """
    top = _to_cells(values, per_unit)
    while True:
        i = _integer_below(rng, 2 * len(values))
        j, sign = i // 2, 1.0 if i % 2 == 0 else -1.0
        if _exponential_coin(rng, (top - sign * values[j]) * cell):
            return j, sign
