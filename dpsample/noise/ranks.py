r"""Rank mechanism: exact draws of a grid point near a quantile, in whole numbers.

Let c(m) count the records up to the grid point m, and let t = q n be the wanted rank. A
point is drawn with probability proportional to

.. math:: \exp(-\rho\, |c(m) - t|), \qquad m = first, \dots, last,

the exponential mechanism on ranks (Smith 2011). Its *rate* rho and q n are rational.

**Sensitivity.** A replaced record moves c by 0 or by one common sign, at most 1, so the
score |c - t| moves by at most 1 either way. If a record is set to zero, its term
1[y <= m] - q is left out, and the score moves by at most max(q, 1 - q) either way. So
log ratios between neighbors stay in an interval of length 2 rho or 2 rho max(q, 1 - q)
that contains 0. The mechanism has this bounded range, and is private with epsilon equal
to it.

**Exact draws.** Points are proposed by *level*. With x = rho (|c(m) - t| - least score)
a point has level min(floor(x), 67) and the weight w, a whole number that is at least
2^96 e^-x. Points of one level are at most two intervals of the grid, which are found by
binary search, because c is monotone. So a proposal is one random integer. It is
accepted with probability 2^96 e^-x / w, which is at least 1/e except at the last level.
The probability is irrational. It is compared with the bits of a uniform number one word
after another, on an interval that is proved to contain it, until the comparison is
decided. Nothing is rounded, and no error probability is left.
"""

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.noise.elementary import integer_below

# Bits of a weight. The weight of the last level is 1, because 2^96 e^-67 < 1.
WEIGHT_BITS = 96
MAX_LEVEL = 67


@cache
def weights() -> list[int]:
    """Return whole numbers of at least 2^96 e^-k, one for each level k.

    Examples
    --------
    >>> weights()[0] == 2**96, weights()[-1]
    (True, 1)
    """
    # A lower bound of e, off by less than 2/41!.
    e_below = sum(Fraction(1, math.factorial(k)) for k in range(41))
    return [math.ceil(2**WEIGHT_BITS / e_below**k) for k in range(MAX_LEVEL + 1)]


class RankInterval(NamedTuple):
    """Grid points from ``first`` up to but without ``end``, of one level."""

    first: int
    end: int
    weight: int


class Ranks:
    """Ranks of a grid of points among sorted records.

    Parameters
    ----------
    positions : array of int, shape (n,)
        Grid points of the records, in any order and maybe outside of the ends. Record i
        is counted at all points from its own on.
    first, last : int
        Ends of the grid, first <= last.
    level : Fraction
        Level q of the quantile, 0 < q < 1.
    rate : Fraction
        Rate > 0 at which log probabilities fall with the distance of ranks.

    Examples
    --------
    >>> ranks = Ranks(np.array([2, 2, 7]), 0, 9, level=Fraction(1, 2), rate=Fraction(1))
    >>> ranks.excess(1), ranks.excess(2), ranks.excess(8)
    (Fraction(1, 1), Fraction(0, 1), Fraction(1, 1))
    """

    def __init__(
        self,
        positions: NDArray[np.int64],
        first: int,
        last: int,
        *,
        level: Fraction,
        rate: Fraction,
    ) -> None:
        self.positions = np.sort(positions)
        self.first, self.last, self.rate = first, last, rate
        self.target = level * len(positions)
        # The nearest ranks that points of the grid have, from below and from above.
        split = self._start(math.floor(self.target) + 1)
        nearest = [m for m in (split - 1, split) if first <= m <= last]
        self.least = min(abs(self.count(m) - self.target) for m in nearest)

    def count(self, point: int) -> int:
        """Return the number of records up to a point."""
        return int(np.searchsorted(self.positions, point, side="right"))

    def excess(self, point: int) -> Fraction:
        """Return x of a point, whose probability is e^-x times the largest one."""
        return self.rate * (abs(self.count(point) - self.target) - self.least)

    def _start(self, rank: int) -> int:
        """Return the first point with at least ``rank`` records, or the grid's end."""
        if rank <= 0:
            return self.first
        if rank > len(self.positions):
            return self.last + 1
        return min(max(int(self.positions[rank - 1]), self.first), self.last + 1)

    def _ends_of_level(self, k: int) -> tuple[int, int]:
        """Return where the points below the target, of level k or more, end.

        And the first point above the target of level k or more.
        """
        # The distance of ranks at which x = k: rho (|c - t| - least) = k.
        reach = self.least + k / self.rate
        below = math.floor(self.target - reach)
        # A point at the target's rank itself belongs to those below.
        above = max(math.ceil(self.target + reach), math.floor(self.target) + 1)
        return self._start(below + 1), self._start(above)

    @cached_property
    def intervals(self) -> list[RankInterval]:
        """Points of each level, as one or two intervals that are not empty.

        Together they are the whole grid.
        """
        parts = []
        below, above = self._ends_of_level(0)
        for k in range(MAX_LEVEL):
            next_below, next_above = self._ends_of_level(k + 1)
            parts.append(RankInterval(next_below, below, weights()[k]))
            parts.append(RankInterval(above, next_above, weights()[k]))
            below, above = next_below, next_above
            if below == self.first and above > self.last:
                break
        parts.append(RankInterval(self.first, below, weights()[MAX_LEVEL]))
        parts.append(RankInterval(above, self.last + 1, weights()[MAX_LEVEL]))
        return [part for part in parts if part.first < part.end]

    def draw(self, rng: np.random.Generator) -> int:
        """Draw one point of the mechanism, exactly."""
        parts = self.intervals
        # Cumulative weights of the intervals, of which each point has its interval's
        # weight.
        totals = [*accumulate(p.weight * (p.end - p.first) for p in parts)]
        while True:
            remainder = integer_below(rng, totals[-1])
            i = bisect_right(totals, remainder)
            part = parts[i]
            remainder -= totals[i - 1] if i > 0 else 0
            # The point is chosen by whole weights.
            point = part.first + remainder // part.weight
            if _is_accepted(rng, self.excess(point), part.weight):
                return point


def _is_accepted(rng: np.random.Generator, x: Fraction, weight: int) -> bool:
    """Return True with probability 2^96 e^-x / weight, which is at most 1, exactly."""
    uniform, bits = 0, 0  # the first bits of a uniform number in [0, 1]
    while True:
        uniform = (uniform << 64) + integer_below(rng, 1 << 64)
        bits += 64
        # Bounds of e^-x that are far narrower than the interval of the uniform number.
        precision = bits + WEIGHT_BITS + 64
        low, high = exponential_bounds(x, precision)
        # The uniform number and the probability, both times weight 2^precision.
        scale = weight << precision
        if (uniform + 1) * scale <= low << (WEIGHT_BITS + bits):
            return True
        if uniform * scale >= high << (WEIGHT_BITS + bits):
            return False


def exponential_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers low <= 2^bits e^-x <= high, for x >= 0.

    The argument is halved until it is at most 1. The terms of the alternating series
    fall then, so that the last one bounds the remainder. Squares undo the halvings, and
    all operations are rounded outwards.

    Examples
    --------
    >>> low, high = exponential_bounds(Fraction(1), 40)
    >>> low / 2**40 <= math.exp(-1.0) <= high / 2**40, high - low < 100
    (True, True)
    """
    if x >= bits:  # e^-x < 2^-bits
        return 0, 1
    one = 1 << bits
    # x / 2^halvings is at most 1.
    halvings = math.floor(x).bit_length()
    reduced = x * one / 2**halvings
    low_x, high_x = math.floor(reduced), math.ceil(reduced)
    low = high = low_term = high_term = one
    n = 0
    while high_term > 1:
        n += 1
        # x^n / n! from the term before it, rounded down and up.
        low_term = low_term * low_x // (n * one)
        high_term = _ceil_divide(high_term * high_x, n * one)
        if n % 2 == 1:
            low, high = low - high_term, high - low_term
        else:
            low, high = low + low_term, high + high_term
    # The remainder is at most the last term.
    low, high = low - high_term, high + high_term
    for _ in range(halvings):
        low, high = low * low // one, _ceil_divide(high * high, one)
    return low, high


def _ceil_divide(top: int, bottom: int) -> int:
    """Return the quotient, rounded up."""
    return -(-top // bottom)
