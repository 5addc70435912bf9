"""Exact sums and products of matrices of doubles, which are integers over a power of 2.

A proof about doubles needs no bound of rounding errors if its sums are exact. Products
of integers of some hundred bits take about a microsecond each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsample.core import pauses
from dpsample.core.arrays import Array

MANTISSA_BITS = 53


@dataclass(frozen=True, eq=False)
class DyadicMatrix:
    """Matrix or vector of the numbers ``integers`` / 2^``shift``.

    Examples
    --------
    >>> half = DyadicMatrix.from_doubles(np.array([[0.5, 0.0], [0.25, 2.0]]))
    >>> (half @ half).fractions()[2]
    Fraction(5, 8)
    """

    integers: NDArray[np.object_]
    shift: int

    @classmethod
    def from_doubles(cls, doubles: Array) -> DyadicMatrix:
        """Return the exact numbers of an array of finite doubles."""
        shares, exponents = np.frexp(np.asarray(doubles, dtype=np.float64))
        mantissas = np.ldexp(shares, MANTISSA_BITS).astype(np.int64)
        is_used = mantissas != 0
        lowest = int(exponents[is_used].min()) if is_used.any() else 0
        shifts = np.where(is_used, exponents - lowest, 0)
        pairs = zip(mantissas.ravel().tolist(), shifts.ravel().tolist(), strict=True)
        integers = np.array([m << s for m, s in pairs], dtype=object)
        return cls(integers.reshape(mantissas.shape), MANTISSA_BITS - lowest)

    @property
    def T(self) -> DyadicMatrix:
        """Transpose."""
        return DyadicMatrix(self.integers.T, self.shift)

    def __matmul__(self, other: DyadicMatrix) -> DyadicMatrix:
        """Return the product with a matrix or a vector."""
        shift = self.shift + other.shift
        if self.integers.ndim == 1:
            return DyadicMatrix(np.asarray(self.integers @ other.integers), shift)
        rows = []
        for row in self.integers:
            rows.append(row @ other.integers)
            pauses.notify_listeners()
        return DyadicMatrix(np.array(rows, dtype=object), shift)

    def __add__(self, other: DyadicMatrix) -> DyadicMatrix:
        """Return the sum."""
        shift = max(self.shift, other.shift)
        return DyadicMatrix(self._rescale(shift) + other._rescale(shift), shift)

    def __sub__(self, other: DyadicMatrix) -> DyadicMatrix:
        """Return the difference."""
        shift = max(self.shift, other.shift)
        return DyadicMatrix(self._rescale(shift) - other._rescale(shift), shift)

    def times(self, factor: float) -> DyadicMatrix:
        """Return the product with a double."""
        number = DyadicMatrix.from_doubles(np.array([factor]))
        return DyadicMatrix(
            self.integers * number.integers[0], self.shift + number.shift
        )

    def fractions(self) -> list[Fraction]:
        """Return all numbers, row by row."""
        return [self._fraction(x, self.shift) for x in self.integers.ravel().tolist()]

    def fraction(self) -> Fraction:
        """Return the number of an array of one number."""
        return self._fraction(int(self.integers.item()), self.shift)

    def square_norm(self) -> Fraction:
        """Return the sum of the squares of all numbers."""
        flat = self.integers.ravel().tolist()
        return self._fraction(sum(x * x for x in flat), 2 * self.shift)

    def least_dominance(self) -> Fraction:
        """Return the least a_ii - sum over j != i of |a_ij| of a symmetric matrix.

        By Gershgorin's theorem it is at most the least eigenvalue.
        """
        sizes = np.abs(self.integers).sum(axis=1).tolist()
        diagonal = np.diag(self.integers).tolist()
        rows = (a + abs(a) - size for a, size in zip(diagonal, sizes, strict=True))
        return self._fraction(min(rows), self.shift)

    def _rescale(self, shift: int) -> NDArray[np.object_]:
        return np.asarray(self.integers * (1 << (shift - self.shift)))

    @staticmethod
    def _fraction(integer: int, shift: int) -> Fraction:
        if shift >= 0:
            return Fraction(integer, 1 << shift)
        return Fraction(integer << -shift)
