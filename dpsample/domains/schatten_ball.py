"""The ball of a Schatten norm around the zero matrix, and its compiled functions.

The Schatten norm of a matrix is the l_p norm of its singular values. Points are
matrices, flattened row by row. A projection applies the projection of `domains.ball` to
the singular values.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import SPACING, Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.domains.ball import MAX_STEPS, euclidean_chord, shrink_to_norm
from dpsample.domains.domain import Body, Domain, as_rows, body_around, mean_length
from dpsample.domains.exits import convex_exit, euclidean_exit
from dpsample.numerics.norms import (
    conversion,
    distance,
    dual,
    norm,
    reset_rotations,
    schatten,
    schatten_normal,
    thin_svd,
    write_product,
)
from dpsample.numerics.vectors import copy_into


@kernel
def new_workspace(body: Body) -> Array:
    """Return memory for `norm_and_slope`."""
    dim = len(body.center)
    # A point (dim numbers), the normal of the norm there (dim), and the workspace of
    # `schatten_normal` (3 dim + 1). That begins with the rotations of the last matrix,
    # which make the next singular value decomposition faster, because Newton's steps
    # are short.
    workspace = np.empty(5 * dim + 1)
    reset_rotations(min(body.num_rows, body.num_columns), workspace[2 * dim :])
    return workspace


@kernel
def norm_and_slope(
    body: Body, theta: Array, direction: Array, t: float, workspace: Array
) -> tuple[float, float]:
    """Return the norm at ``theta + t direction`` and a subgradient in t."""
    dim, slope = len(theta), 0.0
    point, normal = workspace[:dim], workspace[dim : 2 * dim]
    scratch = workspace[2 * dim :]
    for j in range(dim):
        point[j] = theta[j] + t * direction[j]
    rows, columns = body.num_rows, body.num_columns
    # This writes the normal and returns the norm.
    value = schatten_normal(point, rows, columns, body.p, scratch, normal)
    for j in range(dim):
        slope += normal[j] * direction[j]
    return value, slope


@kernel
def schatten_along(body: Body, theta: Array, direction: Array, t: float) -> float:
    """Return the Schatten norm of ``theta + t direction``."""
    # The Frobenius norm needs no singular values. The center is the zero matrix.
    if body.p == 2.0:
        return float(distance(theta + t * direction, body.center, 2.0))
    point = theta + t * direction
    if not np.isfinite(point).all():
        return np.nan
    # The workspace is new, so that the norm of a point does not depend on the rotations
    # of earlier matrices.
    return norm_and_slope(body, theta, direction, t, new_workspace(body))[0]


@kernel
def schatten_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if the Schatten norm is at most the radius, otherwise 0."""
    # At t = 0 the direction has no effect.
    inside = schatten_along(body, theta, body.center, 0.0) <= body.radius
    out[0] = 1.0 if inside else 0.0


@kernel
def schatten_project(body: Body, theta: Array, out: Array) -> None:
    """Project the singular values, and move inside by a few rounding errors.

    ``out`` is left as it is if theta is not finite.
    """
    if not np.isfinite(theta).all():
        return
    if schatten_along(body, theta, body.center, 0.0) <= body.radius:
        copy_into(theta, out)
        return
    # The nearest matrix has the same singular vectors, and the nearest singular values.
    left, values, right = thin_svd(theta, body.num_rows, body.num_columns)
    shrunk = np.empty(len(values))
    shrink_to_norm(values, body.radius, body.p, shrunk)
    write_product(left, shrunk, right, out)
    # Rounding errors of the decomposition may leave the product outside. The loop ends,
    # because the share that is taken off doubles up to 1, and 0 is inside.
    pull = SPACING
    while schatten_along(body, out, body.center, 0.0) > body.radius:
        out *= 1.0 - pull
        pull = min(2.0 * pull, 1.0)


@kernel
def find_schatten_end(body: Body, theta: Array, direction: Array, sign: float) -> float:
    """Return the end of the chord on one side, inside in double arithmetic.

    ``sign`` is -1 or 1. The norm is convex in t, so Newton's method from a point
    outside does not pass the end. Bisection corrects the last rounding errors. The end
    is 0 if no point of this side is found inside.
    """
    # By the triangle inequality the first t is outside.
    theta_norm = schatten_along(body, theta, direction, 0.0)
    direction_norm = schatten_along(body, direction, direction, 0.0)
    outside = (body.radius + theta_norm) / direction_norm
    workspace = new_workspace(body)
    for _ in range(MAX_STEPS):
        value, slope = norm_and_slope(body, theta, direction, sign * outside, workspace)
        excess = value - body.radius
        # The point is inside by rounding, or a number is not finite. The search below
        # decides.
        if not (excess > 0.0 and sign * slope > 0.0):
            break
        step = min(excess / (sign * slope), outside)
        outside -= step
        if step <= SPACING * outside:
            break
    # Steps of doubled length lead inside. The membership test decides, as it rounds
    # differently from `norm_and_slope`.
    inside = outside
    pull = SPACING
    while not schatten_along(body, theta, direction, sign * inside) <= body.radius:
        if pull >= 1.0:
            return 0.0
        inside = outside * (1.0 - pull)
        pull *= 2.0
    # Bisection ends at a relative width of 1e-13. 60 halvings are more than it needs.
    for _ in range(60):
        if outside - inside <= 1e-13 * outside:
            break
        middle = 0.5 * (inside + outside)
        if schatten_along(body, theta, direction, sign * middle) <= body.radius:
            inside = middle
        else:
            outside = middle
    return float(sign * inside)


@kernel
def schatten_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Write the ends of the chord. ``out`` is left as it is if input is not finite."""
    if body.p == 2.0:
        euclidean_chord(body, theta, direction, out)
    elif not (np.isfinite(theta).all() and np.isfinite(direction).all()):
        return
    elif not (direction != 0.0).any():
        out[0] = -np.inf
        out[1] = np.inf
    else:
        out[0] = find_schatten_end(body, theta, direction, -1.0)
        out[1] = find_schatten_end(body, theta, direction, 1.0)


def check_shape(shape: object) -> tuple[int, int]:
    """Return rows and columns of a matrix, or raise unless they are integers >= 1."""
    rows, columns = check.shape("shape", shape, length=2)
    return rows, columns


@dataclass(frozen=True, eq=False)
class SchattenBall(Domain):
    """Matrices whose singular values have l_p norm at most ``radius``.

    Points are matrices flattened row by row. p = 1 is the nuclear-norm ball, p = 2 the
    Frobenius ball, p = inf the ball of the operator norm.

    Parameters
    ----------
    radius : float
        Radius of the ball, > 0.
    p : float
        Exponent in [1, inf].
    shape : tuple of two int
        Rows and columns of a matrix.

    Raises
    ------
    ValueError
        If the radius is not positive, p < 1, or the shape is not a pair.

    Examples
    --------
    >>> ball = SchattenBall(1.0, p=1.0, shape=(2, 2))
    >>> ball.contains([0.5, 0.0, 0.0, 0.5]), ball.contains([1.0, 0.0, 0.0, 0.5])
    (True, False)
    >>> float(ball.support([2.0, 0.0, 0.0, 1.0]))
    2.0
    """

    name: ClassVar[str] = "schatten_ball"
    contains_piece: ClassVar[Piece] = staticmethod(schatten_contains)
    project_piece: ClassVar[Piece] = staticmethod(schatten_project)
    chord_piece: ClassVar[Piece] = staticmethod(schatten_chord)

    radius: float
    _: KW_ONLY
    p: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        check.positive(radius=self.radius)
        check.at_least(1.0, p=self.p)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        object.__setattr__(self, "shape", check_shape(self.shape))

    @property
    def schatten_exponent(self) -> float:
        """Exponent of the norm."""
        return self.p

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of a matrix."""
        return self.shape

    @property
    def ball_radius(self) -> float:
        """Radius in the Schatten norm."""
        return self.radius

    def slacks(self, points: Array) -> Array:
        """Return the radius minus the norm, of shape (num_points, 1)."""
        norms = schatten(points, self.p, self.shape)
        return np.asarray(self.radius - norms)[:, None]

    def check(self, dim: int) -> None:
        """Raise unless the matrices have ``dim`` entries."""
        super().check(dim)
        if self.shape[0] * self.shape[1] != dim:
            check.fail("shape", f"of a matrix with {dim} entries", self.shape)

    def _to_vector(self, name: str, value: ArrayLike) -> Array:
        if np.ndim(value) == 2:
            value = check.array(name, value, shape=self.shape).reshape(-1)
        return super()._to_vector(name, value)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        return body_around(
            self.default_center(dim),
            # No entry exceeds the operator norm, the smallest of the Schatten norms.
            lower=np.full(dim, -self.radius),
            upper=np.full(dim, self.radius),
            radius=self.radius,
            p=self.p,
            num_rows=self.shape[0],
            num_columns=self.shape[1],
        )

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        # A Schatten norm of vectors is the Euclidean norm.
        is_round = self.is_euclidean_ball or self.norm_length(dim) == 1
        return euclidean_exit if is_round else convex_exit

    def support(self, directions: Directions) -> Values:
        """Return the exact maxima, ``radius`` times the dual Schatten norm."""
        rows = as_rows(directions, self.shape[0] * self.shape[1])
        if isinstance(rows, np.ndarray):
            return self.radius * schatten(rows, dual(self.p), self.shape)
        block = 4096  # rows that are made dense at once, to limit the memory
        parts = [
            schatten(rows[k : k + block].toarray(), dual(self.p), self.shape)
            for k in range(0, rows.shape[0], block)
        ]
        return self.radius * np.concatenate(parts or [np.zeros(0)])

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return a bound of the entries' l_p norm of a point minus ``center``.

        By the triangle inequality it is the norm of the center, plus the radius times a
        bound of the ratio of the two norms of a matrix. For p >= 2 that bound is exact,
        because the norm of the entries is at most the Schatten norm of the same
        exponent. For p < 2 the Frobenius norm is an intermediate bound.
        """
        center_vector = self._check_center(p, center, dim)
        via = max(2.0, float(p))
        ratio = conversion(min(self.shape), self.p, via) * conversion(dim, via, p)
        return float(norm(center_vector, p)) + self.radius * ratio

    def max_schatten(
        self,
        p: float,
        center: ArrayLike,
        dim: int,
        *,
        shape: tuple[int, int] | None = None,
    ) -> float:
        """Return a bound in the Schatten norm, exact around 0."""
        center_vector = self._check_center(p, center, dim)
        if shape is not None and check.shape("shape", shape, length=2) != self.shape:
            return super().max_schatten(p, center, dim, shape=shape)
        center_norm = float(schatten(center_vector, p, self.shape))
        return center_norm + self.radius * conversion(min(self.shape), self.p, p)

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the exact gauge, a ratio of norms."""
        return np.asarray(schatten(rows, self.p, self.shape) / self.radius)

    def _exact_width(self, dim: int) -> float | None:
        """Return the Gaussian width E max <g, x>, with a standard normal vector g.

        It is radius E ||g||_2 where the norm is Euclidean: for p = 2, and for matrices
        of one row or column.
        """
        if self.p == 2.0 or min(self.shape) == 1:
            return self.radius * mean_length(dim)
        return None
