# mypy: allow-untyped-defs
r"""Ellipsoid :math:`(\theta - c)^T A (\theta - c) \le 1`.

With the eigenvalues l_i and eigenvectors q_i of A, it is the unit ball in coordinates
y_i = sqrt(l_i) <q_i, theta - c>. `Body.root` has the rows sqrt(l_i) q_i, which are
orthogonal.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.core.spec import freeze
from dpsample.domains.domain import Body, Domain, as_rows, body_around
from dpsample.domains.exits import FACET, HAS_NORMAL, TIME, find_first_rise
from dpsample.numerics.norms import norm
from dpsample.numerics.vectors import copy_into

# Relative rounding error that chords and projections are moved inside by.
SAFE = 1.0 - 2.0**-50
# Maximum number of Newton steps of a projection, more than doubles need.
MAX_STEPS = 100


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def root_times(body, i, offset):
    """Return the product of a row of the root with a vector."""
    total = 0.0
    for j in range(offset.shape[0]):
        total += body.root[i, j] * offset[j]
    return total


@kernel(counts_references=False)
def squared_gauge(body, theta):
    """Return |root (theta - center)|^2, at most 1 inside."""
    total = 0.0
    for i in range(theta.shape[0]):
        y = 0.0
        for j in range(theta.shape[0]):
            y += body.root[i, j] * (theta[j] - body.center[j])
        total += y * y
    return total


@kernel(counts_references=False)
def squared_gauge_along(body, theta, direction, t):
    """Return `squared_gauge` at theta + t direction, with the same rounding."""
    total = 0.0
    for i in range(theta.shape[0]):
        y = 0.0
        for j in range(theta.shape[0]):
            point = theta[j] + t * direction[j]
            y += body.root[i, j] * (point - body.center[j])
        total += y * y
    return total


@kernel(counts_references=False)
def ellipsoid_contains(body, theta, out):
    """Write 1 inside and 0 outside."""
    out[0] = 1.0 if squared_gauge(body, theta) <= 1.0 else 0.0


@kernel(counts_references=False)
def ellipsoid_chord(body, theta, direction, out):
    """Write the roots of |y + t w|^2 = 1, with w the direction's coordinates."""
    square, cross, excess = 0.0, 0.0, -1.0
    for i in range(theta.shape[0]):
        y, w = 0.0, root_times(body, i, direction)
        for j in range(theta.shape[0]):
            y += body.root[i, j] * (theta[j] - body.center[j])
        square += w * w
        cross += w * y
        excess += y * y
    if not square + abs(cross) + abs(excess) < np.inf:
        return
    if square == 0.0:
        out[0], out[1] = -np.inf, np.inf
        return
    # A point that rounding has put outside has the chord 0.
    excess = min(0.0, excess)
    # The roots of square t^2 + 2 cross t + excess = 0.
    root = math.sqrt(cross * cross - square * excess)
    # The sum of terms of one sign loses no digits. The product of the roots, excess /
    # square, gives the other root.
    total = -(cross + math.copysign(root, cross))
    first = total / square
    second = excess / total if total != 0.0 else 0.0
    out[0] = SAFE * min(first, second, 0.0)
    out[1] = SAFE * max(first, second, 0.0)
    # Rounding of a short chord near the boundary is larger than that of its length.
    for i in range(2):
        shrink = 2.0**-52
        while out[i] != 0.0 and squared_gauge_along(body, theta, direction, out[i]) > 1:
            out[i] *= 1.0 - shrink
            shrink = min(2.0 * shrink, 1.0)


@kernel
def ellipsoid_project(body, theta, out):
    """Write the nearest point, by Newton's method for its multiplier.

    In the eigenvectors the nearest point has the coordinates z_i / (1 + s l_i), and s
    solves sum l_i z_i^2 / (1 + s l_i)^2 = 1. The inverse root of the left side is
    concave and nearly linear in s, so Newton's method rises to the solution.
    """
    dim = theta.shape[0]
    square = squared_gauge(body, theta)
    if not square < np.inf:
        return
    if square <= 1.0:
        copy_into(theta, out)
        return
    lengths, heights = np.empty(dim), np.empty(dim)
    for i in range(dim):
        lengths[i], heights[i] = 0.0, 0.0
        for j in range(dim):
            lengths[i] += body.root[i, j] * body.root[i, j]
            heights[i] += body.root[i, j] * (theta[j] - body.center[j])
    s = 0.0
    for _ in range(MAX_STEPS):
        total, slope = 0.0, 0.0
        for i in range(dim):
            ratio = heights[i] / (1.0 + s * lengths[i])
            total += ratio * ratio
            slope -= 2.0 * ratio * ratio * lengths[i] / (1.0 + s * lengths[i])
        # Newton's step for total^(-1/2) = 1.
        step = 2.0 * total * (math.sqrt(total) - 1.0) / -slope
        s += step
        if not step > 1e-15 * s:
            break
    for j in range(dim):
        out[j] = body.center[j]
    for i in range(dim):
        size = heights[i] / (1.0 + s * lengths[i]) / lengths[i]
        for j in range(dim):
            out[j] += size * body.root[i, j]
    # Rounding may leave the point outside. The pull grows up to 1, at the center.
    pull = 2.0**-52
    while squared_gauge(body, out) > 1.0:
        for j in range(dim):
            out[j] = body.center[j] + (out[j] - body.center[j]) * (1.0 - pull)
        pull = min(2.0 * pull, 1.0)


@kernel(counts_references=False)
def ellipsoid_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first rise of the quartic |y|^2 to 1 along a parabola."""
    dim = theta.shape[0]
    c0, c1, c2, c3, c4 = -1.0, 0.0, 0.0, 0.0, 0.0
    for i in range(dim):
        y = 0.0
        for j in range(dim):
            y += body.root[i, j] * (theta[j] - body.center[j])
        # Times are in units of the horizon.
        rate = root_times(body, i, velocity) * horizon
        bend = 0.5 * root_times(body, i, pull) * horizon * horizon
        # y(t) = y + rate t + bend t^2, whose square is added up by powers of t.
        c0 += y * y
        c1 += 2.0 * y * rate
        c2 += rate * rate + 2.0 * y * bend
        c3 += 2.0 * rate * bend
        c4 += bend * bend
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    # The sum of all positive terms bounds the path.
    if c0 + abs(c1) + abs(c2) + abs(c3) + c4 <= 0.0:
        return
    time = horizon * find_first_rise(min(c0, 0.0), c1, c2, c3, c4)
    if not time < horizon:
        return
    out[TIME] = time
    for j in range(dim):
        normal[j] = 0.0
    # Half of the gradient of |y|^2 at the exit is root' y.
    for i in range(dim):
        y = 0.0
        for j in range(dim):
            coordinate = theta[j] + time * (velocity[j] + 0.5 * time * pull[j])
            y += body.root[i, j] * (coordinate - body.center[j])
        for j in range(dim):
            normal[j] += y * body.root[i, j]


@dataclass(frozen=True, eq=False)
class Ellipsoid(Domain):
    r"""Ellipsoid :math:`(\theta - c)^T A (\theta - c) \le 1`, for a `Density`.

    Parameters
    ----------
    precision : array_like of shape (dim, dim)
        The symmetric, positive definite matrix A.
    center : array_like of shape (dim,), optional
        The center c. Default: 0.

    Raises
    ------
    ValueError
        If the matrix is not square, symmetric, positive definite and well conditioned
        (within 1e12), or the center has another length.

    Examples
    --------
    >>> from dpsample.domains import Ellipsoid
    >>> domain = Ellipsoid([[4.0, 0.0], [0.0, 1.0]])
    >>> domain.contains([0.4, 0.5]), domain.chord([0.0, 0.0], [1.0, 0.0])[1]
    (True, 0.4999999999999996)
    """

    name: ClassVar[str] = "ellipsoid"
    has_public_bounds: ClassVar[bool] = False
    contains_piece: ClassVar[Piece] = staticmethod(ellipsoid_contains)
    project_piece: ClassVar[Piece] = staticmethod(ellipsoid_project)
    chord_piece: ClassVar[Piece] = staticmethod(ellipsoid_chord)

    precision: Any
    center: Any = None

    def __post_init__(self) -> None:
        """Check the matrix and the center."""
        matrix = check.array("precision", self.precision, shape=(None, None))
        dim = len(matrix)
        matrix = check.array("precision", self.precision, shape=(dim, dim))
        if not np.allclose(matrix, matrix.T, rtol=1e-12, atol=0.0):
            check.fail("precision", "symmetric", "another matrix than its transpose")
        values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
        if not values[0] > 1e-12 * abs(values[-1]):
            got = f"eigenvalues from {values[0]:.3g} to {values[-1]:.3g}"
            condition = "positive definite, with eigenvalues within a factor of 1e12"
            check.fail("precision", condition, got)
        middle = np.zeros(dim) if self.center is None else self.center
        middle = check.array("center", middle, shape=(dim,))
        object.__setattr__(self, "precision", freeze(0.5 * (matrix + matrix.T)))
        object.__setattr__(self, "center", freeze(middle))

    def check(self, dim: int) -> None:
        """Raise unless ``dim`` is the dimension of the matrix."""
        super().check(dim)
        if dim != len(self.precision):
            check.fail("dim", f"{len(self.precision)}, as of the precision", dim)

    def default_center(self, dim: int) -> Array:
        """Return the center."""
        self.check(dim)
        return np.array(self.center)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        center = self.default_center(dim)
        values, vectors = np.linalg.eigh(self.precision)
        root = np.ascontiguousarray((vectors * np.sqrt(values)).T)
        return body_around(center, root=root)

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return ellipsoid_exit

    def slacks(self, points: Array) -> Array:
        """Return one column with 1 - |root (x - center)|^2."""
        y = (points - self.center) @ np.linalg.cholesky(self.precision)
        return np.asarray(1.0 - (y**2).sum(axis=1, keepdims=True))

    def support(self, directions: Directions) -> Values:
        """Return <v, c> + sqrt(v^T A^{-1} v), the exact maximum, for every row v."""
        rows = as_rows(directions, len(self.precision))
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        across = np.linalg.solve(self.precision, dense.T).T
        squares = np.maximum((dense * across).sum(axis=-1), 0.0)
        return np.asarray(dense @ self.center + np.sqrt(squares))[()]

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return an upper bound, from the box about the ellipsoid."""
        middle = self._check_center(p, center, dim)
        eye = np.eye(dim)
        upper, lower = self.support(eye), -np.asarray(self.support(-eye))
        return float(norm(np.maximum(upper - middle, middle - lower), p))
