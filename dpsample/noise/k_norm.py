# mypy: allow-untyped-defs
"""K-norm noise: density proportional to exp(-||z||_K / scale).

||z||_K is the *gauge* of a convex body K that is symmetric about 0 [1]_, the smallest
factor by which K must be scaled to contain z. The gauge of a draw is scale times a
Gamma(d) variable, and its direction is independent and has the distribution of the
direction of a uniform point in K (the cone measure). For balls and boxes directions
come from `cone`. The boundary of a polytope is cut into simplices. One is chosen by the
volume between it and 0, and then a uniform point on it.

References
----------
.. [1] M. Hardt and K. Talwar, On the geometry of differential privacy, STOC 2010.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import kernel
from dpsample.domains import Ball, Box, Domain, Polytope, SchattenBall
from dpsample.noise.cone import (
    ConeTable,
    SchattenPlan,
    cone_table,
    cone_vector,
    fill_schatten,
    scale_to,
)
from dpsample.noise.elementary import Laplace
from dpsample.noise.generalized_gaussian import log_ball_volume
from dpsample.noise.noise import Noise, Size, check_rng, checked_size, parts
from dpsample.noise.schatten import log_schatten_volume, schatten_plan


class NormKind(NamedTuple):
    """Codes of the kinds of a `KNormTable`: the form of the unit ball."""

    coordinates: int = 0
    spectrum: int = 1
    facets: int = 2


KIND = NormKind()
# Polytopes with more dimensions or vertices take too long to triangulate.
MAX_DIM = 6
MAX_VERTICES = 2000
# Relative error of volumes and corners of a triangulation.
_TOLERANCE = 1e-9
_REMEDY = "Use a ball or a box that contains the polytope."


@dataclass(frozen=True, eq=False)
class KNorm(Noise):
    """Vectors with density exp(-||z||_K / scale) / (d! Vol(K) scale^d).

    Parameters
    ----------
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0.
    scale : float
        Scale > 0. The gauge of a draw is scale times a Gamma(d) variable.

    Raises
    ------
    ValueError
        If the domain is of another kind, or scale is not a finite number > 0.

    Examples
    --------
    >>> noise = KNorm(Ball(1.0, p=1.0), scale=2.0)
    >>> noise.draw(np.random.default_rng(0), (10, 3)).shape
    (10, 3)
    >>> float(noise.log_density([1.0, -1.0]).round(9))
    -3.772588722
    """

    name: ClassVar[str] = "k_norm"

    domain: Domain
    scale: float

    def __post_init__(self) -> None:
        """Check the fields once."""
        check.instance((Ball, Box, SchattenBall, Polytope), domain=self.domain)
        super().__post_init__()

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw vectors along the last axis (see `k_norm`)."""
        return k_norm(rng, size=size, domain=self.domain, scale=self.scale)

    def _as_independent(self, dim: int) -> Noise | None:
        """Return Laplace coordinates for the l1 ball."""
        if self.domain.lp_exponent == 1.0:
            return Laplace(self.scale * self.domain.ball_radius)
        return None

    def _min_scale(self, dim: int) -> float:
        sides = _semi_axes(self.domain, dim)
        if len(sides) == 0:  # for a polytope, where it meets the axes
            # Axis j leaves the body at 1 / ||e_j||_K.
            sides = np.atleast_1d(1.0 / self.domain.gauge(np.eye(dim)))
        return self.scale * float(sides.min())

    def _log_density(self, points: Array) -> Values:
        dim = points.shape[-1]
        constant = _log_volume(self.domain, dim) + math.lgamma(dim + 1.0)
        gauge = self.domain.gauge(points) / self.scale
        log: Values = -gauge - constant - dim * math.log(self.scale)
        return log


def k_norm(
    rng: np.random.Generator, *, size: Size, domain: Domain, scale: float = 1.0
) -> Array:
    """Draw vectors with density proportional to exp(-||z||_K / scale).

    Parameters
    ----------
    rng, size
        As in `generalized_gaussian`.
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0. Matrices are flattened row by row.
    scale : float, default 1.0
        Factor > 0 of the noise.

    Returns
    -------
    ndarray
        The draws.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` has no last axis >= 1, scale is not a
        finite number > 0, or the domain is not supported (see `k_norm_table`).

    Notes
    -----
    **Guarantee**: for real arithmetic and ideal random numbers the draws are
    independent and have exactly this distribution. Added to a query whose change
    between neighbors lies in s K, the noise makes the answer (s / scale)-DP.

    Examples
    --------
    >>> diamond = Polytope([[1, 1], [1, -1], [-1, 1], [-1, -1]], [1.0, 1.0, 1.0, 1.0])
    >>> k_norm(np.random.default_rng(0), size=(4, 2), domain=diamond).shape
    (4, 2)
    """
    check_rng(rng)
    shape = checked_size(size, 1)
    check.positive(scale=scale)
    table = k_norm_table(domain, shape[-1])
    out = np.empty(shape)
    # A direction takes 1 / acceptance proposals on average.
    cost = math.ceil(shape[-1] / table.plan.acceptance)
    if table.kind == KIND.coordinates:
        cost = 1
    for rows in parts(out.reshape(-1, shape[-1]), cost=cost):
        fill_k_norm_rows(rng, table, float(scale), rows)
    return out


class KNormTable(NamedTuple):
    """Parameters of K-norm noise, with one compiled type for every domain.

    Attributes
    ----------
    kind : int
        Code of `KIND`: coordinates of balls and boxes, the spectrum of Schatten
        balls, or facets of polytopes.
    cone : ConeTable
        Directions of balls and boxes.
    plan : SchattenPlan
        Directions of Schatten balls.
    sides : ndarray, shape (d,) or (1,)
        Semi-axes of balls and boxes, or the radius of a Schatten ball.
    simplices : ndarray, shape (num_simplices, d, d)
        Corners of the simplices that cover the boundary of a polytope.
    shares : ndarray, shape (num_simplices,)
        Cumulative volumes between the simplices and 0, up to a factor.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> from dpsample.noise import k_norm_table
    >>> k_norm_table(Ball(2.0, p=1.0), dim=3).sides.tolist()
    [2.0, 2.0, 2.0]
    """

    kind: int
    cone: ConeTable
    plan: SchattenPlan
    sides: Array
    simplices: Array
    shares: Array


def k_norm_table(domain: Domain, dim: int) -> KNormTable:
    """Return the parameters with which `fill_k_norm` draws K-norm noise.

    Parameters
    ----------
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0.
    dim : int
        Number of coordinates.

    Returns
    -------
    KNormTable
        Parameters of one compiled type for all domains.

    Raises
    ------
    ValueError
        If the domain is of another kind, not symmetric about 0, of another dimension,
        or so large that no exact method is practical.

    Examples
    --------
    >>> k_norm_table(Box(-2.0, 2.0), 3).sides.tolist()
    [2.0, 2.0, 2.0]
    """
    sides = _semi_axes(domain, dim)
    kind, cone, plan = (
        KIND.coordinates,
        cone_table(math.inf),
        schatten_plan((1, 1), 2.0),
    )
    simplices, shares = np.zeros((0, dim, dim)), np.zeros(0)
    if domain.lp_exponent is not None:
        cone = cone_table(domain.lp_exponent)
    elif domain.matrix_shape is not None and domain.schatten_exponent is not None:
        kind = KIND.spectrum
        plan = schatten_plan(domain.matrix_shape, domain.schatten_exponent)
    elif domain.is_polytope:
        kind, simplices = KIND.facets, _facets(domain, dim)[0].copy()
        # A determinant is d! times the volume between 0 and a simplex of the boundary.
        shares = np.cumsum(np.abs(np.linalg.det(simplices)))
    return KNormTable(kind, cone, plan, sides, simplices, shares)


@kernel
def _fill_from_facets(rng, table, scale, out):
    """Fill ``out`` by exponential weights on the corners of a simplex of the boundary.

    The sum of the weights is a Gamma(d) variable. Over their sum they give a uniform
    point of the simplex, independent of it.
    """
    last = len(table.shares) - 1
    level = table.shares[last] * rng.random()
    # Rounding may move the level to the last share.
    k = min(np.searchsorted(table.shares, level, "right"), last)
    out[:] = 0.0
    for i in range(len(out)):
        weight = scale * rng.standard_exponential()
        for j in range(len(out)):
            out[j] += weight * table.simplices[k, i, j]


@kernel
def fill_k_norm(rng, table, scale, out):
    """Fill ``out`` with one draw of K-norm noise.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    table : KNormTable
        Result of `k_norm_table` for the domain and ``len(out)``.
    scale : float
        Scale. The gauge of the draw is scale times a Gamma(d) variable.
    out : ndarray, shape (d,)
        Output. Matrices are flattened row by row.
    """
    if table.kind == KIND.facets:
        _fill_from_facets(rng, table, scale, out)
        return
    # The gauge of the draw, scale times a Gamma(d) variable.
    radius = scale * rng.standard_gamma(1.0 * len(out))
    if table.kind == KIND.spectrum:
        fill_schatten(rng, table.plan, radius * table.sides[0], out)
        return
    norm = cone_vector(rng, table.cone, out)
    scale_to(norm, radius, out)
    for i in range(len(out)):
        out[i] *= table.sides[i]


@kernel
def fill_k_norm_rows(rng, table, scale, out):
    """Fill every row of ``out`` with one draw."""
    for i in range(out.shape[0]):
        fill_k_norm(rng, table, scale, out[i])


def _semi_axes(domain: Domain, dim: int) -> Array:
    """Check the domain, and return its half widths, its one radius, or nothing."""
    kinds = (Ball, Box, SchattenBall, Polytope)
    check.instance(kinds, domain=domain, remedy="Choose one of them.")
    domain.check(dim)
    if domain.is_polytope:
        if domain.affine_dim(dim) < dim:
            check.fail("domain", "of full dimension", "a polytope with equalities")
        if not domain.is_bounded:
            check.fail("domain", "bounded", domain)
        if not (domain.facets(dim)[1] > 0.0).all():
            check.fail("domain", "symmetric about 0", "a set without 0 inside")
        return np.zeros(0)
    if domain.matrix_shape is not None:
        return np.full(1, domain.ball_radius)
    body = domain.body(dim)
    # The ends of a ball do not show a center that is small against its radius.
    center = domain.default_center(dim)
    if center.any() or not (body.lower == -body.upper).all():
        got = f"center {check.describe(center.tolist())}"
        check.fail("domain", "symmetric about 0", got)
    return np.array(body.upper)


@lru_cache(maxsize=32)
def _facets(domain: Domain, dim: int) -> tuple[Array, float]:
    """Return the simplices and the log volume of a polytope."""
    return symmetric_facets(*domain.facets(dim))


def _log_volume(domain: Domain, dim: int) -> float:
    """Return the logarithm of the volume of a body."""
    sides = _semi_axes(domain, dim)
    if domain.is_polytope:
        return _facets(domain, dim)[1]
    if domain.matrix_shape is not None and domain.schatten_exponent is not None:
        volume = log_schatten_volume(domain.matrix_shape, domain.schatten_exponent)
        return volume + dim * math.log(domain.ball_radius)
    p = math.inf if domain.lp_exponent is None else domain.lp_exponent
    return log_ball_volume(dim, p) + float(np.log(sides).sum())


def symmetric_facets(rows: Array, limits: Array) -> tuple[Array, float]:
    """Return simplices that cover the boundary of ``rows z <= limits``.

    The normals ``rows`` have shape (m, d), the right-hand sides ``limits`` shape (m,).
    The simplices have shape (num_simplices, d, d), and their rows are corners. The
    second result is the logarithm of the polytope's volume.

    Raises
    ------
    ValueError
        If the polytope is not symmetric about 0, not bounded, has more than 6
        dimensions or 2000 vertices, or Qhull's triangulation is not accurate.
    """
    from scipy.spatial import QhullError

    try:
        vertices = _vertices(rows, limits)
        simplices, volume = _triangulate(vertices)
    except QhullError as error:
        got = str(error).split("\n")[0]
        check.fail("the triangulation", "exact", got, _REMEDY)
    # In a symmetric polytope -z satisfies every inequality for each vertex z.
    slack = (vertices @ rows.T + limits).min(axis=0) / limits
    if slack.min() < -_TOLERANCE:
        unit_rows = (rows / limits[:, None]).tolist()
        if sorted(unit_rows) == sorted([-x for x in row] for row in unit_rows):
            got = "corners off by their rounding: the polytope is too thin"
            check.fail("the triangulation", "exact", got, _REMEDY)
        got = f"a set that -z leaves through row {int(np.argmin(slack))}"
        check.fail("domain", "symmetric about 0", got)
    # A determinant is d! times the volume of the cone from 0 over the simplex.
    sizes = np.abs(np.linalg.det(simplices))
    # Qhull cuts facets with many corners into simplices that may be flat.
    simplices = simplices[sizes > 1e-14 * sizes.sum()]
    parts = sizes.sum() / math.factorial(rows.shape[1])
    if not abs(parts / volume - 1.0) < _TOLERANCE:
        got = f"simplices of volume {parts:.12g} in a hull of {volume:.12g}"
        check.fail("the triangulation", "exact", got, _REMEDY)
    # If the hull is wrong, both volumes are, and simplices cut through the polytope.
    # Rounding puts them below the surface by less than 1e-7.
    depth = 1.0 - (simplices.mean(axis=1) @ rows.T / limits).max(axis=1).min()
    if not depth < 1e-7:
        got = f"simplices inside by {depth:.1g} of the way: the polytope is too thin"
        check.fail("the triangulation", "exact", got, _REMEDY)
    return simplices, math.log(parts)


def _vertices(rows: Array, limits: Array) -> Array:
    """Return the vertices of a polytope with 0 inside."""
    from scipy.spatial import HalfspaceIntersection

    dim = rows.shape[1]
    if dim > MAX_DIM:
        check.fail("the polytope's dimension", f"<= {MAX_DIM}", dim, _REMEDY)
    # In the form unit_rows z <= 1, 0 is inside. Qhull starts from it.
    unit_rows = rows / limits[:, None]
    if dim == 1:
        # Qhull takes half-spaces as rows (a, b) with <a, z> + b <= 0.
        ends = np.array([1.0 / unit_rows.max(), 1.0 / unit_rows.min()])
        return ends[:, None]
    halfspaces = np.column_stack([unit_rows, -np.ones(len(unit_rows))])
    vertices = np.unique(
        HalfspaceIntersection(halfspaces, np.zeros(dim)).intersections, axis=0
    )
    if len(vertices) > MAX_VERTICES:
        got = f"{len(vertices)}"
        check.fail("the number of vertices", f"<= {MAX_VERTICES}", got, _REMEDY)
    return vertices


def _triangulate(vertices: Array) -> tuple[Array, float]:
    """Return simplices that cover the boundary of the convex hull, and its volume."""
    from scipy.spatial import ConvexHull

    if vertices.shape[1] == 1:
        return vertices[:, :, None], float(np.ptp(vertices))
    hull = ConvexHull(vertices)
    return vertices[hull.simplices], float(hull.volume)
