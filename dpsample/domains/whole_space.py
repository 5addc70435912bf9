"""All of R^d: for losses that carry a ridge."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.domains.domain import Body, Domain, as_rows
from dpsample.numerics.norms import norm


@kernel
def whole_space_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if every coordinate is finite."""
    inside = 1.0
    for value in theta:
        if not abs(value) < np.inf:
            inside = 0.0
    out[0] = inside


@kernel
def whole_space_project(body: Body, theta: Array, out: Array) -> None:
    """Copy the point."""
    for i in range(len(theta)):
        out[i] = theta[i]


@kernel
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
    contains_piece: ClassVar[Piece] = staticmethod(whole_space_contains)
    project_piece: ClassVar[Piece] = staticmethod(whole_space_project)
    chord_piece: ClassVar[Piece] = staticmethod(whole_space_chord)

    @property
    def is_bounded(self) -> bool:
        """Never."""
        return False

    def support(self, directions: Directions) -> Values:
        """Infinite, except in the direction zero."""
        size = norm(as_rows(directions), math.inf)
        return np.where(size == 0.0, 0.0, np.inf)[()]

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Infinite."""
        self._middle(p, center, dim)
        return math.inf

    def _gauge_rows(self, rows: Array) -> Array:
        """Zero: every multiple of the space is the space."""
        return np.zeros(len(rows))
