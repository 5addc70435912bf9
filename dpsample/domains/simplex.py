"""The probability simplex."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.domains.ball import soft_threshold
from dpsample.domains.box import SAFE
from dpsample.domains.domain import Body, Domain, as_rows, body_around, mean_largest
from dpsample.domains.exits import simplex_exit
from dpsample.domains.polytope import Polytope
from dpsample.numerics.norms import norm


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def simplex_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if no coordinate is negative and the sum is 1 up to the tolerance."""
    inside, total = 1.0, 0.0
    for value in theta:
        total += value
        if not value >= 0.0:
            inside = 0.0
    if not abs(total - 1.0) <= body.tolerance:
        inside = 0.0
    out[0] = inside


@kernel(counts_references=False)
def simplex_project(body: Body, theta: Array, out: Array) -> None:
    """Subtract one number from all coordinates and drop the negative ones."""
    for value in theta:
        if not abs(value) < np.inf:
            return
    # The threshold ``largest`` + ``shift`` at which the positive rests sum to 1. They
    # are two numbers, because the shift may be far smaller.
    largest, shift = soft_threshold(theta, 1.0)
    for i in range(len(theta)):
        out[i] = max((theta[i] - largest) - shift, 0.0)


@kernel(counts_references=False)
def simplex_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Intersect the intervals of the coordinates, for a direction with sum zero.

    A direction with another sum has a chord of length 0.
    """
    first, last, excess = -np.inf, np.inf, -1.0
    drift, size = 0.0, 0.0
    for i in range(len(theta)):
        excess += theta[i]
        drift += direction[i]
        size += abs(direction[i])
        if direction[i] != 0.0:
            # At this t the coordinate is 0.
            end = -SAFE * (theta[i] / direction[i])
            if direction[i] > 0.0:
                first = max(first, end)
            else:
                last = min(last, end)
    if not abs(excess) + size < np.inf:
        return
    # Rounding errors of a direction with sum zero are far smaller than this.
    if abs(drift) > 1e-12 * size:
        first, last = 0.0, 0.0
    elif drift != 0.0:
        # A long chord could leave the hyperplane by the rounding error of the sum. Half
        # of the tolerance remains for the error of the point itself.
        low = (-0.5 * body.tolerance - excess) / drift
        high = (0.5 * body.tolerance - excess) / drift
        first = max(first, min(low, high))
        last = min(last, max(low, high))
    out[0] = min(first, 0.0)
    out[1] = max(last, 0.0)


@dataclass(frozen=True, eq=False)
class Simplex(Domain):
    """Probability vectors: ``theta >= 0``, ``sum(theta) = 1`` up to 1e-9.

    The origin is not in the simplex, but its gauge is defined. inf{t > 0: theta in
    t K} is the sum of the coordinates if none is negative and infinite otherwise, the
    gauge of all ``theta >= 0`` with ``sum(theta) <= 1`` (0 at the origin).

    Examples
    --------
    >>> Simplex().project([0.9, 0.5, -1.0]).round(12).tolist()
    [0.7, 0.3, 0.0]
    >>> Simplex().affine_dim(3)
    2
    """

    name: ClassVar[str] = "simplex"
    contains_piece: ClassVar[Piece] = staticmethod(simplex_contains)
    project_piece: ClassVar[Piece] = staticmethod(simplex_project)
    chord_piece: ClassVar[Piece] = staticmethod(simplex_chord)
    gauge_needs_origin: ClassVar[bool] = False
    is_simplex: ClassVar[bool] = True

    def default_center(self, dim: int) -> Array:
        """Return the uniform distribution."""
        self.check(dim)
        return np.full(dim, 1.0 / dim)

    def affine_dim(self, dim: int) -> int:
        """Return ``dim - 1``."""
        self.check(dim)
        return dim - 1

    def hull(self, dim: int) -> tuple[Array, Array]:
        """Return the center, and a basis of all directions with sum zero."""
        center = self.default_center(dim)
        # The first right singular vector is the direction of ones, and the others are
        # orthogonal to it.
        return center, np.linalg.svd(np.ones((1, dim)))[2][1:].T

    def hull_normals(self, dim: int) -> tuple[Array, Array]:
        """Return the only normal. A basis of the hull would have dim^2 numbers."""
        return self.default_center(dim), np.full((1, dim), dim**-0.5)

    def in_hull_coordinates(self, dim: int) -> Domain:
        """Return the polytope of all v with c + N v >= 0."""
        origin, basis = self.hull(dim)
        return Polytope(-basis, origin)

    def facets(self, dim: int) -> tuple[Array, Array]:
        """Return the inequalities that no coordinate is negative."""
        self.check(dim)
        return -np.eye(dim), np.zeros(dim)

    def slacks(self, points: Array) -> Array:
        """Return the coordinates."""
        return points

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        center = self.default_center(dim)
        sides = {"lower": np.zeros(dim), "upper": np.ones(dim)}
        return body_around(center, **sides, tolerance=1e-9)

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return simplex_exit

    def support(self, directions: Directions) -> Values:
        """Return the largest coordinate of each direction."""
        rows = as_rows(directions)
        if not isinstance(rows, np.ndarray):
            return np.asarray(rows.max(axis=1).todense(), dtype=np.float64).reshape(-1)
        largest: Values = rows.max(axis=-1)
        return largest

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return the exact maximum, which a vertex attains."""
        middle = self._check_center(p, center, dim)
        # |1 - c|^p - |c|^p decreases in c, so the farthest vertex has the smallest c.
        vertex = np.zeros(dim)
        vertex[np.argmin(middle)] = 1.0
        return float(norm(vertex - middle, p))

    def diameter(self, p: float, dim: int) -> float:
        """Return the exact distance of two vertices, 0 for a single point."""
        self._check_center(p, np.zeros(dim), dim)
        # The norm of e_i - e_j.
        return 2.0 ** (1.0 / p) if dim > 1 else 0.0

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the sum, or infinity where a coordinate is negative."""
        return np.where((rows >= 0.0).all(axis=1), rows.sum(axis=1), np.inf)

    def _exact_width(self, dim: int) -> float:
        """Return the mean of the largest of ``dim`` normal variables."""
        return mean_largest(dim)
