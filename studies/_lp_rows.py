"""Rows on the unit sphere of l_q, q = p/(p-1), whose first entry carries the signal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsample.numerics.norms import dual

BELOW = 1.0 - 1e-14  # norms of rows are computed a little longer


class Rows(NamedTuple):
    """Random signs times ``first`` in coordinate 1 and ``rest`` in each other one.

    Either part is half of the q-th power of the l_q norm: however many coordinates
    there are, a step of length 1 in l_p along e_1 moves every margin by 2^(-1/q), and
    the rest is as strong as it can be.
    """

    first: float
    rest: float
    dim: int

    def draw(self, num_records, rng):
        """Independent rows."""
        signs = np.where(rng.random((num_records, self.dim)) < 0.5, -BELOW, BELOW)
        signs[:, 0] *= self.first
        signs[:, 1:] *= self.rest
        return signs

    @property
    def second_moments(self):
        """Diagonal of E a a', which has no other entries."""
        squares = np.full(self.dim, self.rest**2)
        squares[0] = self.first**2
        return squares * BELOW**2


def rows(p, dim):
    """Rows of l_q norm 1 in dimension >= 2."""
    q = dual(p)
    return Rows(2.0 ** (-1.0 / q), (2.0 * (dim - 1.0)) ** (-1.0 / q), dim)
