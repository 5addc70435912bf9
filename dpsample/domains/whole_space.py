"""All of R^d."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.domains.domain import Body, Domain, as_rows
from dpsample.domains.exits import no_exit
from dpsample.numerics.norms import norm


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def whole_space_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if every coordinate is finite, otherwise 0."""
    inside = 1.0
    for value in theta:
        if not abs(value) < np.inf:
            inside = 0.0
    out[0] = inside


@kernel(counts_references=False)
def whole_space_project(body: Body, theta: Array, out: Array) -> None:
    """Copy the point."""
    for i in range(len(theta)):
        out[i] = theta[i]


@kernel(counts_references=False)
def whole_space_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Write the whole line."""
    out[0] = -np.inf
    out[1] = np.inf


@dataclass(frozen=True, eq=False)
class WholeSpace(Domain):
    """All vectors.

    Examples
    --------
    >>> WholeSpace().is_bounded
    False
    """

    name: ClassVar[str] = "whole_space"
    is_whole_space: ClassVar[bool] = True
    contains_piece: ClassVar[Piece] = staticmethod(whole_space_contains)
    project_piece: ClassVar[Piece] = staticmethod(whole_space_project)
    chord_piece: ClassVar[Piece] = staticmethod(whole_space_chord)

    @property
    def is_bounded(self) -> bool:
        """False."""
        return False

    @property
    def has_exact_test(self) -> bool:
        """True."""
        return True

    def contains_exactly(self, point: Sequence[Decimal]) -> bool:
        """Return True."""
        del point
        return True

    def slacks(self, points: Array) -> Array:
        """Return no columns, because the space has no boundary."""
        return np.zeros((len(points), 0))

    def exit_piece(self, dim: int) -> Piece:
        """Return a function that finds no exit."""
        self.check(dim)
        return no_exit

    def support(self, directions: Directions) -> Values:
        """Return infinity, except for the direction zero."""
        size = norm(as_rows(directions), math.inf)
        return np.where(size == 0.0, 0.0, np.inf)[()]

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return infinity."""
        self._check_center(p, center, dim)
        return math.inf

    def _gauge_rows(self, rows: Array) -> Array:
        """Return zeros, because every multiple of the space is the space."""
        return np.zeros(len(rows))
