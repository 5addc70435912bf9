"""Base class of domains, the parameters of their compiled functions, and all of R^d.

A domain is a closed convex set of parameter vectors. Its compiled functions test
membership, project a point (find the nearest point in l2) and find a chord (the
interval of t for which theta + t direction is in the domain). They take a `Body`, a
tuple of numbers of one type for all domains. Each writes into its last argument, which
the caller has filled with NaN, and an entry that is still NaN reports a failure.

Algorithms that have a closed form on some domains use the properties of `Domain`, such
as `Domain.lp_exponent` or `Domain.facets`, and not the class.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numba import types
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints, Values
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import Piece, f8, i8, matrix, vector
from dpsample.core.sparse import CSR, Directions, Rows, as_csr, is_sparse
from dpsample.core.spec import Spec
from dpsample.core.streams import seed_sequence, streams
from dpsample.numerics.moments import LARGEST, mean_norm_power
from dpsample.numerics.norms import conversion


def as_rows(directions: Directions, dim: int | None = None) -> Rows:
    """Return directions as a CSR matrix or a float array with ``dim`` columns."""
    make = as_csr if is_sparse(directions) else check.vectors
    rows = make("directions", directions)
    if dim is not None and rows.shape[-1] != dim:
        check.fail("directions", f"of shape (..., {dim})", f"shape {rows.shape}")
    return rows


def box_support(rows: Rows, lower: Array, upper: Array) -> Values:
    """Return the largest ``<v, x>`` over a box, perhaps infinite, for every row v."""
    if not isinstance(rows, np.ndarray):
        return _box_support_sparse(rows, lower, upper)
    # A coordinate of direction 0 contributes 0 even if its bounds are infinite.
    with np.errstate(invalid="ignore", over="ignore"):
        best = np.where(rows == 0.0, 0.0, np.maximum(rows * lower, rows * upper))
        largest: Values = best.sum(-1)
    return largest


def _box_support_sparse(rows: CSR, lower: Array, upper: Array) -> Array:
    """Return `box_support` of sparse rows."""
    # Only stored entries contribute, in the order of the sparse matrix.
    best = rows.copy()
    low, high = lower[rows.indices], upper[rows.indices]
    with np.errstate(invalid="ignore"):
        reached = np.maximum(best.data * low, best.data * high)
    best.data = np.where(best.data == 0.0, 0.0, reached)
    return np.asarray(best.sum(axis=1)).reshape(-1)


class Width(NamedTuple):
    """Gaussian width and the standard error of its simulation, 0 if it is exact.

    Attributes
    ----------
    value : float
        Mean over standard normal vectors z of the maximum of <z, x> over the body.
    standard_error : float
        Standard error of the value.

    Examples
    --------
    >>> from dpsample.domains import Box
    >>> width, error = Box(-1.0, 1.0).gaussian_width(3)
    >>> round(width, 6), error
    (2.393654, 0.0)
    """

    value: float
    standard_error: float


class Coordinates(NamedTuple):
    """Free coordinates v of a domain's affine hull, theta = origin + basis v.

    Examples
    --------
    >>> from dpsample.domains import Simplex
    >>> coordinates = Simplex().coordinates(3)
    >>> coordinates.basis.shape, coordinates.is_orthonormal
    ((3, 2), True)
    """

    origin: Array  # (dim,)
    basis: Array  # (dim, rank): independent columns
    inverse: Array  # (rank, dim): left inverse of the basis
    is_orthonormal: bool  # the inverse is the transpose of the basis


def mean_length(dim: int) -> float:
    """Return E ||g||_2 = sqrt(2) Gamma((d+1)/2) / Gamma(d/2) for standard normal g."""
    return math.sqrt(2.0) * mean_norm_power(1.0, q=2.0, r=2.0, dim=dim)


def mean_norm(dim: int, q: float) -> float | None:
    """Return E ||g||_q, or None for huge finite q, for which quadrature is slow."""
    if LARGEST < q < math.inf:
        return None
    return math.sqrt(2.0) * mean_norm_power(1.0, q=q, r=2.0, dim=dim)


def mean_largest(dim: int) -> float:
    """Return E max g_i by the trapezoidal rule.

    The rule converges exponentially for functions that are analytic on the line, such
    as t times the density of the maximum, dim phi(t) Phi(t)^(dim - 1).
    """
    from scipy.special import log_ndtr

    # From -40 to 40, beyond which the density underflows. The density of the largest of
    # many is still hundreds of steps wide.
    step = 0.02
    t = step * np.arange(-2000, 2001)
    log_density = math.log(dim) - 0.5 * t**2 + (dim - 1) * log_ndtr(t)
    with np.errstate(under="ignore"):
        density = np.exp(log_density - 0.5 * math.log(2.0 * math.pi))
    return float(step * (t * density).sum())


def simulate_width(
    support: Callable[[Array], Values], dim: int, *, seed: int, num_draws: int
) -> Width:
    """Return the mean of the support function over random directions.

    The length of g is independent of its direction u, and the support function h is
    homogeneous. So E h(g) = E ||g|| E h(u), and only directions are simulated.
    """
    # Directions that are simulated at once. They are few, as `Polytope.support` solves
    # a program for each.
    block = 200
    check.integer(2, num_draws=num_draws)
    rng = streams(seed, 1)[0]
    values = []
    for begin in range(0, num_draws, block):
        g = rng.standard_normal((min(block, num_draws - begin), dim))
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        values.append(np.asarray(support(g)))
    # One infinite height shows that the domain is unbounded.
    heights = np.concatenate(values)
    if not np.isfinite(heights).all():
        return Width(math.inf, 0.0)
    length = mean_length(dim)
    error = float(heights.std(ddof=1)) / math.sqrt(num_draws)
    return Width(length * float(heights.mean()), length * error)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Body(NamedTuple):
    """Parameters of a domain's compiled functions, one compiled type for all domains.

    Fields that a domain does not use have harmless values, see `body_around`.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> body = Ball(2.0).body(dim=3)
    >>> body.radius, body.center.shape, body.matrix.shape
    (2.0, (3,), (0, 3))
    """

    center: Array  # (d,): a point of the domain
    lower: Array  # (d,): with `upper` an outer box, exact for `Box`
    upper: Array  # (d,)
    matrix: Array  # (m, d): rows of equalities and inequalities
    bounds: Array  # (m,): their right-hand sides
    radius: float  # radius of a ball in the norm with exponent p
    p: float
    num_rows: int  # rows of a matrix, or number of equalities of a polytope
    num_columns: int  # columns of a matrix
    tolerance: float  # tolerance of equalities
    root: Array  # (d, d) of an ellipsoid |root (theta - center)| <= 1, or (0, d)
    # Addresses of C functions and bodies that an intersection or a user's domain calls.
    addresses: Ints  # (any,)


BODY = frame_type(
    (
        *(vector, vector, vector, matrix, vector, f8, f8, i8, i8, f8, matrix),
        types.int64[::1],
    ),
    Body,
)
# (body, theta, out): out[0] is 1 inside, 0 outside
CONTAINS = types.void(BODY, vector, vector)
# (body, theta, out): out is the Euclidean projection
PROJECT = types.void(BODY, vector, vector)
# (body, theta, direction, out): out[:2] are the ends t of the chord
CHORD = types.void(BODY, vector, vector, vector)


def body_around(center: Array, **fields: Any) -> Body:
    """Return a body with some fields, and harmless values in the others."""
    dim = len(center)
    return Body(
        center=center,
        lower=np.full(dim, -np.inf),
        upper=np.full(dim, np.inf),
        matrix=np.zeros((0, dim)),
        bounds=np.zeros(0),
        radius=math.inf,
        p=2.0,
        num_rows=dim,
        num_columns=1,
        tolerance=0.0,
        root=np.zeros((0, dim)),
        addresses=np.zeros(0, dtype=np.int64),
    )._replace(**fields)


def box_facets(body: Body) -> tuple[Array, Array]:
    """Return rows and bounds of the inequalities of the finite bounds of a body."""
    eye = np.eye(len(body.center))
    rows = np.concatenate([eye, -eye])
    bounds = np.concatenate([body.upper, -body.lower])
    is_finite = np.isfinite(bounds)
    return rows[is_finite], bounds[is_finite]


class Domain(Spec):
    """Closed convex set of parameters.

    Attributes
    ----------
    name : str
        Name of the domain's type in `to_dict`.
    contains_piece, project_piece, chord_piece : compiled functions
        Functions with the signatures ``CONTAINS``, ``PROJECT`` and ``CHORD``.
    is_whole_space, is_simplex, is_polytope : bool
        Whether the domain is a `WholeSpace`, a `Simplex` or a `Polytope`, on which some
        algorithms have a closed form.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> Ball(1.0).project([3.0, 4.0]).round(12).tolist()
    [0.6, 0.8]
    >>> Ball(1.0).chord([0.6, 0.0], [0.0, 2.0])
    (-0.4, 0.4)
    """

    contains_piece: ClassVar[Piece]
    # Whether bounds are known that records' losses need, so that `Problem` takes it.
    has_public_bounds: ClassVar[bool] = True
    gauge_needs_origin: ClassVar[bool] = True
    width_draws: ClassVar[int] = 10_000
    is_whole_space: ClassVar[bool] = False
    is_simplex: ClassVar[bool] = False
    is_polytope: ClassVar[bool] = False

    @property
    def project_piece(self) -> Piece:
        """Compiled function of signature ``PROJECT``."""
        raise NotImplementedError

    @property
    def chord_piece(self) -> Piece:
        """Compiled function of signature ``CHORD``."""
        raise NotImplementedError

    @property
    def is_bounded(self) -> bool:
        """Whether the domain has a finite diameter."""
        return True

    def exit_piece(self, dim: int) -> Piece:
        """Return the compiled function of signature `domains.exits.EXIT`.

        It finds where a path of a billiard leaves the domain. One that has facets only,
        whose slacks are followed, finds no exit.
        """
        raise NotImplementedError

    def half_widths(self, dim: int) -> Array:
        """Return half of the width along each axis, shape (dim,)."""
        self.check(dim)
        # The support function of e_j and of -e_j gives the largest and minus the least
        # value.
        eye = np.eye(dim)
        return np.asarray(0.5 * (self.support(eye) + self.support(-eye)))

    @property
    def lp_exponent(self) -> float | None:
        """Exponent p of a ball of the vector norm l_p, None for other domains."""
        return None

    @property
    def schatten_exponent(self) -> float | None:
        """Exponent p of a ball of a Schatten norm, None for other domains."""
        return None

    @property
    def matrix_shape(self) -> tuple[int, int] | None:
        """Rows and columns of points that are matrices, None for vectors."""
        return None

    @property
    def ball_radius(self) -> float:
        """Radius of a ball in its own norm, infinity for other domains."""
        return math.inf

    @property
    def is_euclidean_ball(self) -> bool:
        """Whether the domain is an l2 ball of vectors or a Frobenius ball."""
        return 2.0 in (self.lp_exponent, self.schatten_exponent)

    @property
    def is_box(self) -> bool:
        """Whether the domain is given by finite bounds of each coordinate."""
        return self.lp_exponent == math.inf

    @property
    def is_product(self) -> bool:
        """Whether the domain is all points between the bounds of its body."""
        return self.is_box

    @property
    def has_equalities(self) -> bool:
        """Whether equalities are given, which samplers solve before they draw.

        False for the `Simplex`, which has samplers of its own.
        """
        return False

    @property
    def has_round_coordinates(self) -> bool:
        """Whether `coordinates` are better for sampling than the domain's own."""
        return self.has_equalities

    @property
    def has_exact_test(self) -> bool:
        """Whether `contains_exactly` is known."""
        return False

    def norm_length(self, dim: int) -> int:
        """Length of the vector whose l_p norm is the norm of a point.

        It is the number of singular values for matrices, otherwise ``dim``.
        """
        return dim if self.matrix_shape is None else min(self.matrix_shape)

    def check(self, dim: int) -> None:
        """Raise unless the domain is a set of vectors of length ``dim``."""
        check.integer(1, dim=dim)

    def default_center(self, dim: int) -> Array:
        """Return the point of the domain from which distances are measured."""
        self.check(dim)
        return np.zeros(dim)

    def interior_point(self, dim: int) -> Array:
        """Return a point strictly inside, relative to the affine hull."""
        return self.default_center(dim)

    def affine_dim(self, dim: int) -> int:
        """Return the dimension of the affine hull."""
        self.check(dim)
        return dim

    def hull(self, dim: int) -> tuple[Array, Array]:
        """Return c and orthonormal columns N, with the affine hull all c + N v."""
        self.check(dim)
        return np.zeros(dim), np.eye(dim)

    def hull_normals(self, dim: int) -> tuple[Array, Array]:
        """Return a point of the affine hull and its orthonormal normals, as rows."""
        rank = self.affine_dim(dim)
        if rank == dim:
            return np.zeros(dim), np.empty((0, dim))
        # The left singular vectors beyond the rank are orthogonal to the basis.
        origin, basis = self.hull(dim)
        normals = np.linalg.svd(basis)[0][:, rank:].T
        return np.array(origin), np.ascontiguousarray(normals)

    def in_hull_coordinates(self, dim: int) -> "Domain":
        """Return the domain of v, theta = c + N v with c and N as in `hull`."""
        self.check(dim)
        return self

    def coordinates(self, dim: int) -> Coordinates:
        """Return coordinates for sampling. By default they are those of `hull`."""
        origin, basis = self.hull(dim)
        return Coordinates(origin, basis, basis.T, is_orthonormal=True)

    def in_coordinates(self, dim: int) -> "Domain":
        """Return the domain of v, in the coordinates of `coordinates`."""
        return self.in_hull_coordinates(dim)

    def move_inside(self, points: Array) -> Array:
        """Return points of shape (..., d) that rounding errors put outside, inside."""
        inner_points = np.array(points, dtype=np.float64)
        for point in inner_points.reshape(-1, inner_points.shape[-1]):  # views
            if not self.contains(point):
                point[:] = self.project(point)
        return inner_points

    def facets(self, dim: int) -> tuple[Array, Array]:
        """Return rows a and bounds b of all inequalities <a, theta> <= b.

        Both are empty unless such inequalities, with `hull`, describe the domain.
        """
        self.check(dim)
        return np.zeros((0, dim)), np.zeros(0)

    def slacks(self, points: Array) -> Array:
        """Return concave functions that are >= 0 on the domain, 0 on its boundary.

        They are distances from the facets or from a sphere, up to constant factors.

        Parameters
        ----------
        points : ndarray, shape (num_points, d)
            Points of the domain's affine hull.

        Returns
        -------
        ndarray, shape (num_points, num_facets)
            Without columns for the whole space.
        """
        raise NotImplementedError

    def contains_exactly(self, point: Sequence[Decimal]) -> bool:
        """Return whether a point is inside, with the digits of the decimal context."""
        raise NotImplementedError

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        return body_around(self.default_center(dim))

    def _to_vector(self, name: str, value: ArrayLike) -> Array:
        """Return ``value`` as a vector that fits the domain."""
        flat = check.array(name, value, shape=(None,))
        self.check(len(flat))
        return flat

    def contains(self, theta: ArrayLike) -> bool:
        """Return whether ``theta`` is inside, with a tolerance for equalities only."""
        point = self._to_vector("theta", theta)
        # An entry that is still NaN after the call reports a failure.
        out = np.full(1, np.nan)
        self.contains_piece(self.body(len(point)), point, out)
        return bool(out[0] == 1.0)

    def project(self, theta: ArrayLike) -> Array:
        """Return the nearest point of the domain in l2, which passes `contains`."""
        point = self._to_vector("theta", theta)
        out = np.full(len(point), np.nan)
        self.project_piece(self.body(len(point)), point, out)
        return out.reshape(np.shape(theta))

    def chord(self, theta: ArrayLike, direction: ArrayLike) -> tuple[float, float]:
        """Return the interval of t with ``theta + t direction`` in the domain.

        It contains 0. Both ends are inside in double arithmetic, unless ``theta`` is
        not.
        """
        point = self._to_vector("theta", theta)
        along = self._to_vector("direction", direction)
        out = np.full(2, np.nan)
        self.chord_piece(self.body(len(point)), point, along, out)
        return float(out[0]), float(out[1])

    def support(self, directions: Directions) -> Values:
        """Return the largest ``<v, theta>`` on the domain for each row v.

        Parameters
        ----------
        directions : array_like or scipy.sparse matrix, shape (..., d)
            One direction in every row.

        Returns
        -------
        float or ndarray, shape (...)
            The maxima, infinite where there is none.

        Raises
        ------
        ValueError
            If the domain does not have public bounds, and no support function is known.
        """
        return self._refuse_bound("support function")

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return an upper bound of ``||theta - center||_p`` on the domain."""
        return self._refuse_bound("bound of its norms")

    def _refuse_bound(self, bound: str) -> NoReturn:
        remedy = "Use a domain of dps.domains, such as Polytope, in a problem."
        check.fail("domain", f"one with a known {bound}", self, remedy)

    def diameter(self, p: float, dim: int) -> float:
        """Return an upper bound of the l_p distance of two points of the domain.

        It is exact for balls, boxes and the simplex. For a polytope it is that of its
        bounding box, which is exact for p = inf. It is infinite for unbounded domains.
        """
        return 2.0 * self.max_norm(p, self.default_center(dim), dim)

    def _check_center(self, p: float, center: ArrayLike, dim: int) -> Array:
        """Return the center as an array, after all arguments are checked."""
        self.check(dim)
        check.at_least(1.0, p=p)
        return check.array("center", center, shape=(dim,))

    def max_schatten(
        self, p: float, center: ArrayLike, dim: int, *, shape: tuple[int, int]
    ) -> float:
        """Return an upper bound of the Schatten norm of ``theta - center``.

        The Frobenius norm is a bound for p >= 2. For p < 2 it is multiplied by
        ``min(shape)**(1/p - 1/2)``.
        """
        sides = check.shape("shape", shape, length=2)
        check.at_least(1.0, p=p)
        ratio = conversion(min(sides), 2.0, min(p, 2.0))
        return ratio * self.max_norm(2.0, center, dim)

    def gauge(self, theta: ArrayLike) -> Values:
        """Return the Minkowski functional inf{t > 0: theta in t K} about the origin.

        Parameters
        ----------
        theta : array_like, shape (..., d)
            Points along the last axis.

        Returns
        -------
        float or ndarray, shape (...)
            At most 1 exactly on the domain, homogeneous, subadditive. Infinite for
            points in no multiple of the domain.

        Raises
        ------
        ValueError
            If ``theta`` is not finite or the origin is not in the domain. (For the
            `Simplex` the origin is not required.)
        """
        points = check.vectors("theta", theta)
        dim = points.shape[-1]
        rows = points.reshape(-1, dim)
        self.check(dim)
        if self.gauge_needs_origin and not self.contains(np.zeros(dim)):
            remedy = "Move the domain, or measure from one of its points."
            check.fail("domain", "a set that contains the origin", self, remedy)
        return self._gauge_rows(rows).reshape(points.shape[:-1])[()]

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the gauge of every row, from chords that start at the origin."""
        # If the chord ends at t, the point t row is on the boundary, with gauge 1.
        zero = np.zeros(rows.shape[1])
        ends = np.array([self.chord(zero, row)[1] for row in rows])
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / ends)

    def gaussian_width(
        self, dim: int, *, seed: int = 0, num_draws: int | None = None
    ) -> Width:
        """Return the Gaussian width, the mean of max <g, theta> for standard normal g.

        Parameters
        ----------
        dim : int
            Length of the vectors.
        seed : int, default 0
            Seed of the simulation, if there is no closed form or quadrature.
        num_draws : int, optional
            Number of simulated directions, >= 2.

        Returns
        -------
        Width
            Value and standard error. The error is 0 if nothing is simulated. On
            unbounded domains the result is (inf, 0).

        Raises
        ------
        ValueError
            If ``dim`` does not fit the domain or ``num_draws`` is below 2.
        """
        self.check(dim)
        seed_sequence(seed)
        count = self.width_draws if num_draws is None else num_draws
        check.integer(2, num_draws=count)
        if not self.is_bounded:
            return Width(math.inf, 0.0)
        value = self._exact_width(dim)
        if value is not None:
            return Width(value, 0.0)
        return simulate_width(self.support, dim, seed=seed, num_draws=count)

    def _exact_width(self, dim: int) -> float | None:
        """Return the width in closed form or by quadrature, or None."""
        del dim
        return None
