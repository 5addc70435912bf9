# mypy: allow-untyped-defs
r"""Selection: exact draws of the exponential mechanism, over scores on a public grid.

One of 2 d candidates, the two signs of d values v_j, is drawn with probability
proportional to exp(h s m_j), s = -1 or 1, where h, a public power of two, is the size
of a cell and m_j the number of cells of v_j, a whole number.

**Rounding costs nothing.** Let neighbors' values, as they are computed, be apart by at
most D, and let a D <= k, k even and 2 k h <= epsilon. Then m = rint(a v), cut off at
+-2^51, moves by at most k cells: rint is monotone and rint(x + k) = rint(x) + k for
even k, and the cut moves no two numbers apart. So no log weight moves by more than k h,
nor does that of their sum: the draw is epsilon-private, and its log ratios stay inside
an interval of length epsilon (McSherry and Talwar 2007, Theorem 6; Cesar and Rogers
2021). k is from 2^24 to 2^25, of which rounding to an even number takes at most 2:
epsilon loses a part below 2^-23. The product a v is rounded once, which the caller
counts among the errors of v. NaN counts as 0.

**Exact draws.** With x = (max m - s m_j) h, a candidate is proposed with a probability
proportional to the whole number w_r = ceil(2^30 e^-r), r = min(floor(x), 21), and kept
with probability 2^30 e^-x/w_r <= 1: a coin of probability 2^30 e^-r/w_r, whose 128 bits
are listed, and an exponential variate E that is at least x - r. What is kept has the
law of the mechanism (von Neumann 1951), and fewer than 4 + 2^-28 d candidates are
proposed in the mean. All other numbers are exact: whole numbers below 2^53 times a
power of two, and x - r is a multiple of 2^-97, where the digits of E are cut off, so
that E >= x - r if and only if this holds for its digits. (From x = 2^53 on, x - r is
rounded; such an E has a probability below e^-1000.) With what the digits' own law is
off, three comparisons in the mean that are each wrong with probability below 2^-122
(`numerics.exact`), the law is exact except with probability `TOTAL_VARIATION`, for d <
2^32.
"""

import math
from fractions import Fraction

import numpy as np

from dpsample.core.jit import kernel
from dpsample.noise.law import REACH
from dpsample.numerics.exact import exact_exponential, random_word

TOTAL_VARIATION = 2.0**-80
# More than the rounding errors of the few products of a number of cells per unit.
BELOW = 1.0 - 16.0 * 2.0**-53
_FINENESS = 26
_LEAST_CELL = 2.0**-97  # digits of an exponential
_FARTHEST = 21  # level: 2^30 e^-21 < 1


def selection_grid(epsilon: float, sensitivity: float) -> tuple[float, float]:
    """Cells in a unit of the values, and the size of a cell; see the module's proof.

    Parameters
    ----------
    epsilon : float
        Of one selection, finite and > 0.
    sensitivity : float
        Bound > 0 of what one record moves a value, rounding errors included.

    Returns
    -------
    tuple of float
        a and h. Their product, the inverse temperature, is epsilon / (2 sensitivity)
        except for a part below 2^-22. It is 0 where epsilon is below the digits of an
        exponential: then all are chosen alike.

    Examples
    --------
    >>> per_unit, cell = selection_grid(1.0, 0.5)
    >>> cell == 2.0**-25, round(per_unit * cell, 9)
    (True, 1.0)
    """
    exponent = math.frexp(epsilon)[1] - _FINENESS
    cell = max(math.ldexp(1.0, exponent), _LEAST_CELL)
    cells = 2.0 * math.floor(0.25 * epsilon / cell)
    return cells / sensitivity * BELOW, cell


def _proposals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights w_r, and the chances of their coins: 64 bits and the next 64."""
    weights, chances = [], []
    series = [math.factorial(249) // math.factorial(k) for k in range(250)]
    for r in range(_FARTHEST + 1):
        # The rest of the series of e^r is below 2^-500 of it.
        power = Fraction(sum(c * r**k for k, c in enumerate(series)), series[0])
        weights.append(math.ceil(2**30 / power))
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
    """Level r of a candidate that is x below the best one."""
    return int(min(x, _FARTHEST))


@kernel
def _is_kept(rng, x):
    """Whether a candidate that is x below the best one is kept, once proposed."""
    r = _level(x)
    if r > 0:
        first = random_word(rng)
        if first > _HIGH[r] or (first == _HIGH[r] and random_word(rng) >= _LOW[r]):
            return False
    if x == r:
        return True
    high, low = exact_exponential(rng)
    return low >= (x - r) - high  # exact where they are close


@kernel
def signed_choice(rng, values, per_unit, cell):
    """Choose a value and a sign; return its index and the sign.

    ``values`` are replaced by their numbers of cells.
    """
    top = 0.0
    for j in range(len(values)):
        cells = values[j] * per_unit
        cells = cells if cells == cells else 0.0
        values[j] = np.rint(min(max(cells, -REACH), REACH))
        top = max(top, abs(values[j]))
    total, mask = 0, 0
    for j in range(len(values)):
        total += _WEIGHTS[_level((top - values[j]) * cell)]
        total += _WEIGHTS[_level((top + values[j]) * cell)]
    while mask < total - 1:
        mask = 2 * mask + 1
    while True:
        place = int(random_word(rng) >> np.uint64(1)) & mask
        if place >= total:
            continue
        j, sign = -1, -1.0
        while place >= 0:
            sign = -sign
            j += sign > 0.0
            x = (top - sign * values[j]) * cell
            place -= _WEIGHTS[_level(x)]
        if _is_kept(rng, x):
            return j, sign
