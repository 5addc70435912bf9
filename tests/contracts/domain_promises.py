"""What a domain declares, compared with the points that it says are in it."""

from __future__ import annotations

import json
import math
from decimal import Context, Decimal, localcontext
from functools import cache, wraps

import numpy as np
import pytest
from scipy.stats import norm as normal

import dpsample as dps
from dpsample import domains
from dpsample.domains.exits import FACET, HAS_NORMAL, OPEN, SCRATCH_PER_DIM, TIME
from dpsample.numerics import norms
from tests.contracts.pieces import dims
from tests.support.statistics import spend

EXPONENTS = (1.0, 1.4, 2.0, 3.0, math.inf)
FAR = 1e6  # nothing that is bounded here has points so far out
HALVINGS = 60
SLACK = 1e-9


def cases(domain):
    """The domain with each dimension that is tried."""
    return [(domain, dim) for dim in dims(domain)]


def directions(domain, dim, seed=1, count=12):
    """Directions along the affine hull: axes, the diagonal, and random ones."""
    basis = domain.hull(dim)[1]
    width = basis.shape[1]
    free = [np.eye(width), np.ones((1, width))]
    free.append(np.random.default_rng(seed).normal(size=(count, width)))
    rows = np.concatenate([*free, -free[0], -free[1]]) @ basis.T
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def surface(domain, dim):
    """Points as far out as `contains` allows, on rays from an interior point."""
    middle, points = domain.interior_point(dim), []
    for direction in directions(domain, dim):
        near, far = 0.0, FAR
        for _ in range(HALVINGS):
            t = 0.5 * (near + far)
            near, far = (
                (t, far) if domain.contains(middle + t * direction) else (near, t)
            )
        points.append(middle + near * direction)
    return np.array(points)


@cache
def inside(domain, dim):
    """Points of the surface, and some between them."""
    points = surface(domain, dim)
    rng = np.random.default_rng(2)
    first, second = (points[rng.integers(len(points), size=30)] for _ in range(2))
    share = rng.random((30, 1))
    return np.concatenate([points, share * first + (1.0 - share) * second])


def size_of(domain, dim):
    """Length scale of what is seen of the domain."""
    return np.linalg.norm(np.ptp(surface(domain, dim), axis=0))


def contains(domain, dim):
    """Convex, closed to NaN, and as large as `is_bounded` says."""
    slack = 1e-10 * (1.0 + size_of(domain, dim))
    middle = domain.interior_point(dim)
    for point in inside(domain, dim):
        pulled = point + min(1.0, slack) * (middle - point)  # rounding on the surface
        assert domain.contains(pulled)
    bad = np.array(middle)
    bad[0] = np.nan
    out = np.full(1, np.nan)
    domain.contains_piece(domain.body(dim), bad, out)
    assert out[0] == 0.0
    ends = [domain.contains(middle + FAR * d) for d in directions(domain, dim)]
    assert any(ends) != domain.is_bounded
    with pytest.raises(ValueError, match="theta must be"):
        domain.contains(bad)


def project(domain, dim):
    """The nearest point: in the domain, and beyond it there is none.

    That of an intersection is near, and not always the nearest.
    """
    points, rng = inside(domain, dim), np.random.default_rng(3)
    scale = 1.0 + np.abs(points).max() if domain.is_bounded else 1.0
    away = rng.normal(size=(20, dim)) * rng.choice([0.3, 2.0, 50.0], (20, 1)) * scale
    for point in domain.interior_point(dim) + away:
        image = domain.project(point)
        assert domain.contains(image)
        if isinstance(domain, domains.Intersection):
            continue
        residual = point - image
        slack = SLACK * (1.0 + np.abs(points).max()) * np.linalg.norm(residual)
        assert ((points - image) @ residual <= slack + 1e-12).all()
    for point in points[-10:]:
        moved = np.abs(domain.project(point) - point).max()
        assert moved <= 1e-9 * (1.0 + np.abs(point).max())


def chord(domain, dim):
    """Both ends are inside, and just beyond them nothing is."""
    points, along = inside(domain, dim)[-30:], directions(domain, dim)
    for k, point in enumerate(points):
        direction = along[k % len(along)]
        first, last = domain.chord(point, direction)
        assert first <= 0.0 <= last
        for end in (first, last):
            if math.isfinite(end):
                beyond = end + math.copysign(1e-6 * (1.0 + abs(end)), end)
                assert domain.contains(point + end * direction)
                assert not domain.contains(point + beyond * direction)
            else:
                far = point + math.copysign(FAR, end) * direction
                assert domain.contains(far) and not domain.is_bounded


def support(domain, dim):
    """The largest product with a direction: above all points, and reached."""
    points, along = inside(domain, dim), directions(domain, dim)
    declared = domain.support(along)
    reached = (points @ along.T).max(axis=0)
    scale = 1.0 + np.abs(points).max()
    assert (reached <= declared + SLACK * scale).all()
    for value, direction in zip(declared, along, strict=True):
        if math.isfinite(value):
            image = domain.project(domain.interior_point(dim) + FAR * scale * direction)
            assert image @ direction >= value - 1e-4 * scale


def largest(domain, dim, size, center):
    """Largest norm that is seen of ``theta - center``: ascent by support points."""
    points, best = inside(domain, dim), 0.0
    reach = 1e4 * (1.0 + np.abs(points).max())
    for start in points[::3]:
        point = start
        for _ in range(3):
            step = 1e-6 * (1.0 + np.abs(point - center).max())
            moves = np.concatenate([step * np.eye(dim), -step * np.eye(dim)])
            sizes = np.array([size(point + move - center) for move in moves])
            slope = sizes[:dim] - sizes[dim:]
            best = max(best, float(size(point - center)))
            if not slope.any():
                break
            point = domain.project(point + reach * slope / np.linalg.norm(slope))
        best = max(best, float(size(point - center)))
    return best


def centers(domain, dim):
    return domain.default_center(dim), np.random.default_rng(4).normal(size=dim)


def max_norm(domain, dim):
    """No point is farther from a center."""
    for center in centers(domain, dim):
        for p in EXPONENTS:
            declared = domain.max_norm(p, center, dim)
            assert math.isfinite(declared) == domain.is_bounded
            seen = largest(domain, dim, lambda v, p=p: norms.norm(v, p), center)
            assert seen <= declared * (1.0 + SLACK)


def diameter(domain, dim):
    """No two points are farther apart, nor is the domain wider along an axis."""
    points, eye = inside(domain, dim), np.eye(dim)
    for p in EXPONENTS:
        declared = domain.diameter(p, dim)
        assert math.isfinite(declared) == domain.is_bounded
        for point in points[:20]:
            seen = norms.norm(points - point, p).max()
            assert seen <= declared * (1.0 + SLACK) + SLACK
    if domain.is_bounded:
        widths = domain.support(eye) + domain.support(-eye)
        assert np.max(widths) <= domain.diameter(math.inf, dim) * (1.0 + SLACK)


def max_schatten(domain, dim):
    """No point is farther from a center in a Schatten norm."""
    shape = getattr(domain, "shape", (dim, 1))
    for center in centers(domain, dim):
        for p in EXPONENTS:
            declared = domain.max_schatten(p, center, dim, shape=shape)

            def size(v, p=p):
                return norms.schatten(v, p, shape)

            assert largest(domain, dim, size, center) <= declared * (1.0 + SLACK)


def body(domain, dim):
    """The outer box holds every point, and the center is one."""
    made, points = domain.body(dim), inside(domain, dim)
    slack = SLACK * (1.0 + np.abs(points).max())
    assert (made.lower - slack <= points).all()
    assert (points <= made.upper + slack).all()
    assert domain.contains(made.center)


def is_bounded(domain, dim):
    """Bounded means finite norms, supports and width."""
    center, finite = domain.default_center(dim), domain.is_bounded
    assert math.isfinite(domain.max_norm(2.0, center, dim)) == finite
    assert (
        np.isfinite(domain.support(np.vstack([np.eye(dim), -np.eye(dim)]))).all()
        == finite
    )
    assert math.isfinite(domain.gaussian_width(dim, num_draws=2).value) == finite
    assert (np.abs(surface(domain, dim)).max() < 0.4 * FAR) == finite


def interior_point(domain, dim):
    """A small move along the hull stays inside."""
    middle = domain.interior_point(dim)
    for direction in directions(domain, dim):
        assert domain.contains(
            middle
            + 1e-5 * size_of(domain, dim) * direction * (domain.is_bounded or 1.0 / FAR)
        )


def default_center(domain, dim):
    """A point of the domain."""
    assert domain.default_center(dim).shape == (dim,)
    assert domain.contains(domain.default_center(dim))


def hull(domain, dim):
    """A point of the hull and an orthonormal basis, whose span has every point."""
    center, basis = domain.hull(dim)
    assert basis.shape == (dim, domain.affine_dim(dim))
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    offset = inside(domain, dim) - center
    rest = offset - offset @ basis @ basis.T
    assert np.abs(rest).max() <= 1e-8 * (1.0 + np.abs(offset).max())
    if domain.is_bounded:  # and they span no less
        spread = np.linalg.svd(offset - offset.mean(axis=0), compute_uv=False)
        assert (spread > 1e-6 * spread[0]).sum() == domain.affine_dim(dim)


def hull_normals(domain, dim):
    """Orthonormal, as many as the hull has not, and no point is off the hull."""
    origin, normals = domain.hull_normals(dim)
    count = dim - domain.affine_dim(dim)
    assert normals.shape == (count, dim)
    np.testing.assert_allclose(normals @ normals.T, np.eye(count), atol=1e-12)
    offset = inside(domain, dim) - origin
    slack = 1e-8 * (1.0 + np.abs(offset).max())
    assert (np.abs(offset @ normals.T) <= slack).all()
    assert not domain.has_equalities or count > 0


def in_hull_coordinates(domain, dim):
    """Points are inside if their coordinates are, and coordinates fill the hull."""
    origin, basis = domain.hull(dim)
    reduced, middle = domain.in_hull_coordinates(dim), domain.interior_point(dim)
    assert reduced.affine_dim(basis.shape[1]) == basis.shape[1]
    for point in surface(domain, dim):
        for share, is_inside in ((1.0 - 1e-6, True), (1.0 + 1e-6, False)):
            v = basis.T @ (middle + share * (point - middle) - origin)
            if is_inside or domain.is_bounded:
                assert reduced.contains(v) == is_inside


def coordinates(domain, dim):
    """They describe all points, and the domain of coordinates is the same set."""
    made, points = domain.coordinates(dim), inside(domain, dim)
    rank = domain.affine_dim(dim)
    np.testing.assert_allclose(made.inverse @ made.basis, np.eye(rank), atol=1e-8)
    if made.is_orthonormal:
        np.testing.assert_allclose(made.inverse, made.basis.T, atol=1e-12)
    rest = points - made.origin
    back = rest @ made.inverse.T @ made.basis.T
    assert np.abs(back - rest).max() <= 1e-8 * (1.0 + np.abs(rest).max())
    assert domain.has_round_coordinates or not domain.has_equalities
    reduced, middle = domain.in_coordinates(dim), domain.interior_point(dim)
    for point in surface(domain, dim):
        for share, is_inside in ((1.0 - 1e-6, True), (1.0 + 1e-6, False)):
            v = made.inverse @ (middle + share * (point - middle) - made.origin)
            if is_inside or domain.is_bounded:
                assert reduced.contains(v) == is_inside


def move_inside(domain, dim):
    """Points that are hardly outside come inside, and the others stay."""
    middle = domain.interior_point(dim)
    rest = surface(domain, dim) - middle
    within, beyond = middle + (1.0 - 1e-6) * rest, middle + (1.0 + 1e-12) * rest
    np.testing.assert_array_equal(domain.move_inside(within), within)
    moved = domain.move_inside(beyond)
    assert all(map(domain.contains, moved))
    assert np.abs(moved - beyond).max() <= 1e-8 * (1.0 + np.abs(beyond).max())


def half_widths(domain, dim):
    """No two points are farther apart along an axis."""
    declared = domain.half_widths(dim)
    assert declared.shape == (dim,)
    assert np.isfinite(declared).all() == domain.is_bounded
    seen = np.ptp(inside(domain, dim), axis=0)
    assert (seen <= 2.0 * declared * (1.0 + SLACK) + SLACK).all()


def exit_piece(domain, dim):
    """A parabola is inside up to the exit, and right after it outside."""
    piece, made = domain.exit_piece(dim), domain.body(dim)
    along = directions(domain, dim)
    size = size_of(domain, dim) if domain.is_bounded else 1.0
    buffer, normal = np.empty(SCRATCH_PER_DIM * dim), np.empty(dim)
    middle, horizon = np.array(domain.interior_point(dim)), 3.0
    for velocity, pull in zip(size * along, size * np.roll(along, 3, 0), strict=True):
        known, result = 0.0, np.array([np.nan, OPEN])
        while result[FACET] == OPEN:  # the search goes on from what is certified
            start = middle + known * velocity + 0.5 * known**2 * pull
            speed, result = velocity + known * pull, np.full(2, np.nan)
            left = horizon - known
            piece(made, start, speed, pull, left, buffer, normal, result)
            known = min(known + result[TIME], horizon)
        has_exit = result[TIME] < math.inf
        # Facets may be followed by their slacks alone.
        if has_exit or not len(domain.facets(dim)[0]):
            for t in known * np.linspace(0.0, 1.0 - 1e-6, 50):
                assert domain.contains(middle + t * velocity + 0.5 * t**2 * pull)
        if has_exit:
            t = known + 1e-4
            assert not domain.contains(middle + t * velocity + 0.5 * t**2 * pull)
            is_outward = normal @ (velocity + known * pull) > 0.0
            assert result[FACET] != HAS_NORMAL or is_outward


def slacks(domain, dim):
    """Not negative inside, positive at an interior point, and 0 on the surface."""
    gaps = domain.slacks(inside(domain, dim))
    slack = 1e-6 * (1.0 + np.abs(gaps).max(initial=0.0))
    assert (gaps >= -slack).all()
    assert (domain.slacks(domain.interior_point(dim)[None]) > 0.0).all()
    if domain.is_bounded:
        assert (domain.slacks(surface(domain, dim)).min(axis=1) <= slack).all()
    assert gaps.shape[1] > 0 or domain.is_whole_space


def facets(domain, dim):
    """All points satisfy the inequalities, and a surface with facets is on them."""
    rows, bounds = domain.facets(dim)
    assert rows.shape == (len(bounds), dim)
    gaps = bounds - inside(domain, dim) @ rows.T
    slack = 1e-6 * (1.0 + np.abs(gaps).max(initial=0.0))
    assert (gaps >= -slack).all()
    if domain.is_bounded and len(rows):
        on_surface = bounds - surface(domain, dim) @ rows.T
        assert (on_surface.min(axis=1) <= slack).all()
    is_flat = domain.is_box or domain.is_polytope or domain.is_simplex
    assert (len(rows) > 0) == is_flat


def shape(domain, dim):
    """A ball's surface has its radius, and a product has all corners of its box."""
    points = surface(domain, dim) - domain.default_center(dim)
    p, q, radius = domain.lp_exponent, domain.schatten_exponent, domain.ball_radius
    assert (q is None) == (domain.matrix_shape is None)
    assert math.isfinite(radius) == (p is not None or q is not None)
    assert domain.is_euclidean_ball == (2.0 in (p, q))
    if p is not None:
        np.testing.assert_allclose(norms.norm(points, p), radius, rtol=1e-6)
    if q is not None:
        sizes = norms.schatten(points, q, domain.matrix_shape)
        np.testing.assert_allclose(sizes, radius, rtol=1e-6)
    sides = (dim,) if domain.matrix_shape is None else domain.matrix_shape
    assert domain.norm_length(dim) == min(sides) and math.prod(sides) == dim
    assert domain.is_product or not domain.is_box
    if domain.is_product:
        made, rng = domain.body(dim), np.random.default_rng(7)
        share = rng.choice([1e-9, 1.0 - 1e-9], (20, dim))
        for corner in made.lower + share * (made.upper - made.lower):
            assert domain.contains(corner)
    if domain.is_whole_space:
        assert not domain.is_bounded and domain.affine_dim(dim) == dim
    if domain.is_simplex:
        np.testing.assert_allclose(inside(domain, dim).sum(axis=1), 1.0, rtol=1e-8)


def contains_exactly(domain, dim):
    """As `contains`, off the surface."""
    if not domain.has_exact_test:
        return
    middle = domain.interior_point(dim)
    with localcontext(Context(prec=400)):
        for point in surface(domain, dim):
            for share in (1.0 - 1e-6, 1.0 + 1e-6):
                moved = middle + share * (point - middle)
                exact = domain.contains_exactly([Decimal(x) for x in moved.tolist()])
                assert exact == domain.contains(moved)


def gauge(domain, dim):
    """At most 1 exactly on the domain, and homogeneous."""
    if domain.gauge_needs_origin and not domain.contains(np.zeros(dim)):
        with pytest.raises(ValueError, match="contains the origin"):
            domain.gauge(np.zeros(dim))
        return
    points, rng = inside(domain, dim), np.random.default_rng(5)
    assert (domain.gauge(points) <= 1.0 + 1e-6).all()
    out = points * rng.uniform(1.01, 3.0, (len(points), 1))
    for point, size in zip(out, domain.gauge(out), strict=True):
        assert domain.contains(point) or size > 1.0
    half = domain.gauge(0.5 * points)
    np.testing.assert_allclose(half, 0.5 * domain.gauge(points), rtol=1e-9, atol=1e-12)


def gaussian_width(domain, dim):
    """The mean of the support function, within the error of a simulation."""
    if not domain.is_bounded:
        assert domain.gaussian_width(dim) == (math.inf, 0.0)
        return
    width = domain.gaussian_width(dim, num_draws=200)  # polytopes bound more of them
    assert width.standard_error <= 0.2 * width.value
    # Polytopes solve a linear program for each direction.
    count = 144 if domain.name == "polytope" else 3600
    g = np.random.default_rng(6).normal(size=(count, dim))
    # Half the width of a direction: the place of the domain adds no variance.
    heights = 0.5 * (domain.support(g) + domain.support(-g))
    error = math.hypot(np.std(heights, ddof=1) / math.sqrt(count), width.standard_error)
    z = (width.value - np.mean(heights)) / error
    z_max = normal.isf(spend(is_exact=False) / 2.0)
    assert abs(z) <= z_max, f"width statistic z = {z:.1f}, bound {z_max:.1f}"


def travels(domain, dim):
    """Name and fields are all that a file needs to make the domain again."""
    text = json.dumps(domain.to_dict(), allow_nan=False)
    again = domains.from_dict(json.loads(text))
    assert again.to_dict() == domain.to_dict()
    for point in surface(domain, dim):
        assert np.array_equal(again.project(2.0 * point), domain.project(2.0 * point))


def check(domain, dim):
    """Dimensions that do not fit are refused."""
    domain.check(dim)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="dim must be"):
            domain.check(wrong)


def has_public_bounds(domain, dim):
    """A problem refuses a domain without them."""
    if not domain.has_public_bounds:
        with pytest.raises(ValueError, match="domain must be"):
            dps.Problem(
                np.zeros((1, dim)),
                np.ones(1),
                loss=dps.losses.Logistic(),
                domain=domain,
                row_bound=1.0,
            )


def unless_refused(promise):
    """The promise of a bound, which domains without public bounds may refuse."""

    @wraps(promise)
    def run(domain, dim):
        try:
            promise(domain, dim)
        except ValueError as error:
            if domain.has_public_bounds or " must be " not in str(error):
                raise

    return run


# What each public name of `Domain` promises.
PROMISES = {
    "contains": contains,
    "project": project,
    "chord": chord,
    "support": unless_refused(support),
    "max_norm": unless_refused(max_norm),
    "diameter": unless_refused(diameter),
    "max_schatten": unless_refused(max_schatten),
    "body": body,
    "is_bounded": unless_refused(is_bounded),
    "interior_point": interior_point,
    "default_center": default_center,
    "affine_dim": hull,
    "hull": hull,
    "hull_normals": hull_normals,
    "has_equalities": hull_normals,
    "in_hull_coordinates": in_hull_coordinates,
    "coordinates": coordinates,
    "in_coordinates": coordinates,
    "has_round_coordinates": coordinates,
    "move_inside": move_inside,
    "half_widths": half_widths,
    "exit_piece": exit_piece,
    "has_public_bounds": has_public_bounds,
    "facets": facets,
    "is_polytope": facets,
    "slacks": slacks,
    "lp_exponent": shape,
    "schatten_exponent": shape,
    "matrix_shape": shape,
    "ball_radius": shape,
    "norm_length": shape,
    "is_euclidean_ball": shape,
    "is_box": shape,
    "is_product": shape,
    "is_simplex": shape,
    "is_whole_space": shape,
    "has_exact_test": contains_exactly,
    "contains_exactly": contains_exactly,
    "gauge": unless_refused(gauge),
    "gaussian_width": unless_refused(gaussian_width),
    "to_dict": unless_refused(travels),
    "check": check,
}
# Compiled pieces are called by the methods; flags of how the methods work.
NO_PROMISES = {"contains_piece", "project_piece", "chord_piece"}
NO_PROMISES |= {"gauge_needs_origin", "width_draws", "name"}


def planted(domain, dim, factor):
    """Pairs of a name and a false version of it, shrunk by a factor below 1."""
    kind, far = type(domain), 10.0 * (1.0 + size_of(domain, dim))

    def cut(name):
        return lambda self, *a, **k: factor * getattr(kind, name)(self, *a, **k)

    def towards_middle(self, theta):
        middle = self.interior_point(dim)
        return middle + factor * (kind.project(self, theta) - middle)

    yield "check", lambda self, dim: None
    yield "is_bounded", not domain.is_bounded
    yield "default_center", lambda self, dim: kind.default_center(self, dim) + np.nan
    yield "affine_dim", lambda self, dim: kind.affine_dim(self, dim) + 1
    yield "hull", lambda self, dim: (np.zeros(dim), kind.hull(self, dim)[1][:, 1:])
    yield "project", towards_middle
    other = (
        domains.Ball(9.0)
        if not isinstance(domain, domains.Ball)
        else domains.Box(-9.0, 9.0)
    )
    if domain.has_public_bounds:
        yield "to_dict", lambda self: other.to_dict()
    yield "norm_length", lambda self, dim: dim + 1
    if domain.has_exact_test and domain.is_bounded:
        yield "contains_exactly", lambda self, point: True
    if math.isfinite(domain.ball_radius):
        yield "ball_radius", factor * domain.ball_radius
    if not domain.is_bounded:
        yield "chord", lambda self, *a: (-1.0, 1.0)
        yield "contains", lambda self, theta: bool(np.abs(theta).max() < far)
        return
    yield "contains", lambda self, theta: True
    yield "chord", lambda self, *a: tuple(factor * t for t in kind.chord(self, *a))
    yield "chord", lambda self, *a: tuple(t / factor for t in kind.chord(self, *a))

    def lower_support(self, rows):
        rows = np.asarray(rows)
        width = kind.support(self, rows) + kind.support(self, -rows)
        return kind.support(self, rows) - (1.0 - factor) * width

    def smaller_box(self, dim):
        made = kind.body(self, dim)
        middle = 0.5 * (made.lower + made.upper)
        half = factor * 0.5 * (made.upper - made.lower)
        return made._replace(lower=middle - half, upper=middle + half)

    def nearer_facets(self, dim):
        rows, bounds = kind.facets(self, dim)
        middle = rows @ self.interior_point(dim)
        return rows, middle + factor * (bounds - middle)

    if len(domain.facets(dim)[0]):
        yield "facets", nearer_facets
    yield "slacks", lambda self, points: kind.slacks(self, points) - far
    yield "half_widths", cut("half_widths")
    if domain.has_public_bounds:  # others may refuse these
        yield "support", lower_support
        yield "max_norm", cut("max_norm")
        yield "diameter", cut("diameter")
        yield "max_schatten", cut("max_schatten")
    if np.isfinite(domain.body(dim).lower).all():
        yield "body", smaller_box
    edge = surface(domain, dim)[0]
    yield "interior_point", lambda self, dim: edge
    if not domain.gauge_needs_origin or domain.contains(np.zeros(dim)):
        yield "gauge", cut("gauge")

    def narrower(self, dim, **options):
        width = kind.gaussian_width(self, dim, **options)
        return width._replace(value=factor * width.value)

    if domain.has_public_bounds:
        yield "gaussian_width", narrower
