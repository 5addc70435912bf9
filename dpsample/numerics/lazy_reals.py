"""Random real numbers whose digits are drawn when a decision needs them.

A `LazyReal` is known up to an interval of length 2^-bits. All further binary digits are
fair, and independent of everything that is known, because the algorithms below look at
finitely many digits of uniform numbers only. So a number that is refined until a
comparison is decided has *exactly* its distribution, with no error of a last digit.
That a comparison never ends has probability 0. Expected costs are a few words.

**Exponential** (von Neumann [1]_). Uniforms U_1 > U_2 > ... > U_n with U_n <= U_{n+1}
have an odd length n with probability e^-u given U_1 = u. Then U_1 is the fraction of an
exponential number. Otherwise 1 is added to its whole part, and a new run begins.

**Normal** (von Neumann [1]_). With independent exponentials X and Y, X has the density
of |z| for a normal z if 2 Y >= (X - 1)^2, which has probability sqrt(pi/(2 e)) = 0.76.

References
----------
.. [1] J. von Neumann, Various techniques used in connection with random digits, 1951.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

# Number of bits by which a number is refined, and of words drawn at a time.
WORD_BITS = 64
BLOCK_WORDS = 256


class BitStream:
    """Words of 64 fair bits of a generator, drawn in blocks."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._words: list[int] = []

    def __call__(self) -> int:
        """Return the next word."""
        if not self._words:
            block = self._rng.integers(0, 2**WORD_BITS, BLOCK_WORDS, dtype=np.uint64)
            self._words = block.tolist()
        return self._words.pop()


class LazyReal:
    """Real number sign (digits + u) / 2^bits with a fraction u that is not drawn yet.

    Examples
    --------
    >>> number = LazyReal(3, 1, lambda: 0)  # between 3/2 and 2
    >>> number.refine()
    >>> number.bits, number.midpoint < 1.5001
    (65, True)
    """

    __slots__ = ("_word", "bits", "digits", "sign")

    def __init__(self, digits: int, bits: int, word: Callable[[], int]) -> None:
        self.digits, self.bits, self.sign, self._word = digits, bits, 1, word

    def refine(self) -> None:
        """Draw the next 64 digits."""
        self.digits = self.digits << WORD_BITS | self._word()
        self.bits += WORD_BITS

    @property
    def midpoint(self) -> Fraction:
        """Middle of the interval, at most 2^-(bits + 1) from the number."""
        return Fraction(self.sign * (2 * self.digits + 1), 1 << (self.bits + 1))

    def __float__(self) -> float:
        """Return a double, at most 2^-bits + 2^-53 of its size from the number."""
        # The quotient of two integers is rounded once.
        return self.sign * (self.digits / (1 << self.bits))


def is_less(left: LazyReal, right: LazyReal) -> bool:
    """Return whether one positive number is below another, to the digit that decides.

    The digits that both have are compared. While they agree, the number that has fewer
    is refined.
    """
    while True:
        excess = left.bits - right.bits
        first = left.digits >> max(excess, 0)
        second = right.digits >> max(-excess, 0)
        if first != second:
            return first < second
        (left if excess <= 0 else right).refine()


def _level(left: LazyReal, right: LazyReal) -> None:
    """Refine one of two numbers until both have the same number of bits."""
    while left.bits < right.bits:
        left.refine()
    while right.bits < left.bits:
        right.refine()


def uniform(word: Callable[[], int]) -> LazyReal:
    """Draw a number between 0 and 1."""
    return LazyReal(word(), WORD_BITS, word)


def exponential(word: Callable[[], int]) -> LazyReal:
    """Draw a standard exponential number.

    Examples
    --------
    >>> word = BitStream(np.random.default_rng(1))
    >>> 0.0 < float(exponential(word)) < 20.0
    True
    """
    whole = 0
    while True:
        first = uniform(word)
        if _run_is_odd(first, word):
            # The whole part goes before the fraction's digits.
            first.digits += whole << first.bits
            return first
        whole += 1


def _run_is_odd(first: LazyReal, word: Callable[[], int]) -> bool:
    """Return whether the decreasing run of uniforms that begins here is odd."""
    length, last = 1, first
    while True:
        other = uniform(word)
        # Numbers are compared by their digits, so both need as many bits.
        _level(other, last)
        if not is_less(other, last):
            return length % 2 == 1
        length, last = length + 1, other


def normal(word: Callable[[], int]) -> LazyReal:
    """Draw a standard normal number.

    Examples
    --------
    >>> word = BitStream(np.random.default_rng(1))
    >>> abs(float(normal(word))) < 10.0
    True
    """
    while True:
        size, clock = exponential(word), exponential(word)
        if _is_normal(size, clock):
            size.sign = 1 - 2 * (word() & 1)
            return size


def _is_normal(size: LazyReal, clock: LazyReal) -> bool:
    """Return whether 2 Y >= (X - 1)^2 for the clock Y and the size X."""
    while True:
        _level(size, clock)
        # All numbers are in units of 2^-bits, and squares in units of 2^-2 bits.
        # X - 1, and the squares of both ends of its interval. A square is least at 0 if
        # the interval contains it.
        low = size.digits - (1 << size.bits)
        ends = low * low, (low + 1) * (low + 1)
        smallest = 0 if low in (0, -1) else min(ends)
        # 2 Y is between 2^(bits + 1) times the clock's digits and times one more.
        if clock.digits << (size.bits + 1) >= max(ends):
            return True
        if (clock.digits + 1) << (size.bits + 1) <= smallest:
            return False
        size.refine()
        clock.refine()
