"""Support functions and largest norms of the domains, and what the domains refuse."""

import contextlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from dpsample.domains import (
    Ball,
    Box,
    Domain,
    Polytope,
    SchattenBall,
    Simplex,
    WholeSpace,
    from_dict,
)
from dpsample.numerics import norms
from tests.support.bodies import (
    bounded,
    far_points,
    inside_points,
    label,
    random_polytope,
)
from tests.support.tiers import one_in

every_body = pytest.mark.parametrize("pair", bounded(), ids=label)


def vertices(polytope):
    """All vertices, by solving every square subsystem."""
    rows, limits = polytope.A, polytope.b
    found = []
    for index in map(list, itertools.combinations(range(len(rows)), rows.shape[1])):
        if abs(np.linalg.det(rows[index])) > 1e-9:
            vertex = np.linalg.solve(rows[index], limits[index])
            if (rows @ vertex <= limits + 1e-9).all():
                found.append(vertex)
    return np.array(found)


@one_in(5)
@every_body
def test_support_bounds_every_point_and_is_nearly_attained(pair):
    domain, dim = pair
    rng = np.random.default_rng(31)
    directions = rng.normal(size=(8, dim))
    support = domain.support(directions)
    points = inside_points(domain, dim, rng, 50)
    assert (points @ directions.T <= support * (1 + 1e-12) + 1e-12).all()
    for direction, value in zip(directions, support, strict=True):
        # The projection of a far point tends to a maximizer: the gap is O(1/distance).
        maximizer = domain.project(1e6 * direction)
        assert maximizer @ direction == pytest.approx(value, abs=1e-4)
        assert maximizer @ direction <= value + 1e-12 * (1 + abs(value))


@one_in(3)
@every_body
def test_support_keeps_shapes_and_takes_sparse_rows(pair):
    domain, dim = pair
    rng = np.random.default_rng(32)
    dense = rng.normal(size=(6, dim)) * (rng.uniform(size=(6, dim)) < 0.5)
    values = domain.support(dense)
    assert values.shape == (6,)
    assert np.shape(domain.support(dense[0])) == ()
    stacked = domain.support(dense.reshape(2, 3, dim))
    np.testing.assert_allclose(stacked.ravel(), values, rtol=1e-13)
    rows = sparse.csr_array(dense)
    np.testing.assert_allclose(domain.support(rows), values, rtol=1e-12, atol=1e-14)
    assert (rows.toarray() == dense).all()


@pytest.mark.parametrize(("dim", "num_rows"), [(2, 3), (3, 6)])
def test_polytope_support_is_the_largest_vertex(dim, num_rows):
    polytope = random_polytope(dim, num_rows, seed=7)
    corners = vertices(polytope)
    directions = np.random.default_rng(33).normal(size=(30, dim))
    exact = (corners @ directions.T).max(axis=0)
    values = polytope.support(directions)
    np.testing.assert_allclose(values, exact, rtol=1e-12)
    assert (values >= exact * (1 - 1e-14)).all()
    many = polytope.support(np.tile(directions, (10, 1)))
    assert (many >= np.tile(exact, 10) * (1 - 1e-14)).all()
    axes = np.repeat(np.eye(dim), 201, axis=0)
    np.testing.assert_allclose(polytope.support(axes)[::201], corners.max(axis=0))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_polytopes_of_any_size_have_centers_and_supports(scale):
    cube = Polytope(np.vstack([np.eye(3), -5.0 * np.eye(3)]), scale * np.ones(6))
    assert cube.contains(cube.interior_point(3))
    assert cube.support(1e-7 * np.eye(3)) == pytest.approx(np.full(3, 1e-7 * scale))
    expected = scale * math.sqrt(3.0)
    assert cube.max_norm(2.0, np.zeros(3), 3) == pytest.approx(expected)
    cone = Polytope(-np.eye(2), np.zeros(2))
    assert cone.contains(cone.interior_point(2))


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_polytope_support_takes_directions_whose_squares_are_no_numbers(size):
    polytope = random_polytope(3, 9, seed=8)
    v = np.array([0.3, -0.7, 0.2])
    assert polytope.support(size * v) == pytest.approx(size * polytope.support(v))


@pytest.mark.slow
def test_bounds_of_thin_polytopes_far_away_are_not_below_their_vertices():
    """Slacks of 1e-8 beside terms of 1 have lost half of their digits."""
    rng, count = np.random.default_rng(0), 0
    while count < 20:
        angles = rng.uniform(0.0, 2.0 * np.pi, 4)
        rows = np.column_stack([np.cos(angles), np.sin(angles)])
        limits = rows @ rng.normal(size=2) + 10.0 ** rng.uniform(-8.5, -7.0, 4)
        with contextlib.suppress(ValueError):  # without points, or without bounds
            body = Polytope(rows, limits)
            center = [Fraction(x) for x in body.default_center(2).tolist()]
            if not body.is_bounded:
                continue
            reach = float(body.max_norm(np.inf, body.default_center(2), 2))
            corners = exact_vertices(body)
            far = max(
                abs(x - c) for v in corners for x, c in zip(v, center, strict=True)
            )
            assert far <= Fraction(reach) * (1 + Fraction(1, 10**14))
            count += 1


def exact_vertices(body):
    """Vertices of a polytope in the plane, as fractions."""
    rows = [[Fraction(x) for x in row] for row in body.A.tolist()]
    sides = [(*row, Fraction(b)) for row, b in zip(rows, body.b.tolist(), strict=True)]
    for (a, b, s), (c, d, t) in itertools.combinations(sides, 2):
        if a * d != b * c:
            x, y = (
                (s * d - b * t) / (a * d - b * c),
                (a * t - c * s) / (a * d - b * c),
            )
            if all(p * x + q * y <= r for p, q, r in sides):
                yield x, y


def test_rows_of_any_size_bound_a_polytope():
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1e-16], [0.0, -1e-16]])
    body = Polytope(rows, np.abs(rows).max(axis=1))
    assert body.is_bounded and body.max_norm(2.0, np.zeros(2), 2) == pytest.approx(
        2**0.5
    )
    for size in (1e-170, 1e155):
        with pytest.raises(ValueError, match="Multiply the row and its bound"):
            Polytope(size * rows[[0, 1, 0]], np.ones(3))
        with pytest.raises(ValueError, match="every row of A_eq must be of size"):
            Polytope(rows, np.ones(4), [[size, size]], [0.0])
    with pytest.raises(ValueError, match="every side of A theta <= b must be within"):
        Polytope(rows, 1e201 * np.ones(4))
    small = 1e-55 * np.array([[1.0, 1.0 + 1e-8, 0.0], [-1.0, -1.0, -0.1], [0, 0, 1.0]])
    Polytope(small, 1e-55 * np.ones(3), [[1.0, 1.0, 0.0]], [0.3])


def test_polytope_support_agrees_with_a_solver():
    polytope = random_polytope(9, 30, seed=8)
    for v in np.random.default_rng(34).normal(size=(10, 9)):
        answer = linprog(-v, A_ub=polytope.A, b_ub=polytope.b, bounds=(None, None))
        assert polytope.support(v) == pytest.approx(-answer.fun, rel=1e-9)


@one_in(5)
@every_body
@pytest.mark.parametrize("p", [1.0, 1.4, 2.0, 5.0, math.inf])
def test_largest_norm_bounds_every_point(pair, p):
    domain, dim = pair
    rng = np.random.default_rng(35)
    for center in (domain.default_center(dim), rng.normal(size=dim)):
        points = np.array([domain.project(v) for v in far_points(domain, dim, rng, 20)])
        bound = domain.max_norm(p, center, dim)
        assert norms.norm(points - center, p).max() <= bound * (1 + 1e-13)
        shape = getattr(domain, "shape", (dim, 1))
        bound = domain.max_schatten(p, center, dim, shape=shape)
        sizes = norms.schatten(points - center, p, shape)
        assert sizes.max() <= bound * (1 + 1e-13)


@pytest.mark.parametrize("p", [1.0, 1.4, 2.0, 5.0, math.inf])
def test_largest_norm_is_exact_where_stated(p):
    center = np.random.default_rng(36).normal(size=4)
    corners = np.array(list(itertools.product([-1.0, 2.0], repeat=4)))
    exact = norms.norm(corners - center, p).max()
    assert Box(-1.0, 2.0).max_norm(p, center, 4) == pytest.approx(exact)
    exact = norms.norm(np.eye(4) - center, p).max()
    assert Simplex().max_norm(p, center, 4) == pytest.approx(exact)
    for q in (1.0, 1.4, 3.0, math.inf):
        rays = np.vstack([np.ones(4), np.eye(4)[0]])
        points = center + rays / norms.norm(rays, q)[:, None]
        exact = norms.norm(points - center, p).max()
        ball = Ball(1.0, p=q, center=center)
        assert ball.max_norm(p, center, 4) == pytest.approx(exact)
        extremes = np.array([[1.0, 0, 0, 0, 0, 0], [1.0, 0, 0, 0, 1.0, 0]])
        extremes /= norms.schatten(extremes, q, (2, 3))[:, None]
        ball = SchattenBall(1.0, p=q, shape=(2, 3))
        exact = norms.schatten(extremes, p, (2, 3)).max()
        assert ball.max_schatten(p, np.zeros(6), 6) == pytest.approx(exact)
        if p >= 2.0:
            exact = norms.norm(extremes, p).max()
            assert ball.max_norm(p, np.zeros(6), 6) == pytest.approx(exact)


def test_unbounded_domains_say_so():
    half = Polytope([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [1.0, 2.0, 3.0])
    assert not half.is_bounded
    np.testing.assert_array_equal(
        half.support([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0], [-2.0, 0.0]]),
        [2.0, math.inf, 2.0, 6.0],
    )
    assert half.max_norm(2.0, np.zeros(2), 2) == math.inf
    assert half.contains(half.interior_point(2))
    slab = Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, 1.0])
    assert not slab.is_bounded
    assert slab.max_norm(2.0, np.zeros(2), 2) == math.inf
    space = WholeSpace()
    assert space.max_norm(1.0, np.zeros(2), 2) == math.inf
    np.testing.assert_array_equal(
        space.support([[0.0, 0.0], [0.0, 1.0]]), [0, math.inf]
    )
    rows = sparse.csr_array([[0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(space.support(rows), [0.0, math.inf])


REFUSED = {
    "radius must be a finite number > 0, got 0.": lambda: Ball(0.0),
    "radius must be a finite number > 0, got nan.": lambda: Ball(math.nan),
    "radius must be a finite number > 0, got inf.": lambda: SchattenBall(
        math.inf, p=1.0, shape=(2, 2)
    ),
    "p must be >= 1, got 0.5.": lambda: Ball(1.0, p=0.5),
    "p must be >= 1, got nan.": lambda: SchattenBall(1.0, p=math.nan, shape=(2, 2)),
    "center must be finite, got nan at index [1].": lambda: Ball(
        1.0, center=[0.0, math.nan]
    ),
    "center must be of shape (3,), got shape (2,).": lambda: Ball(
        1.0, center=[0.0, 0.0]
    ).body(3),
    "upper must be > lower = 1 at index 1, got 1.": lambda: Box([0.0, 1.0], 1.0),
    "upper must be > lower = 2 at index 0, got 1.": lambda: Box(2.0, 1.0),
    "upper must be free of NaN and of -inf, got -inf.": lambda: Box(0.0, -math.inf),
    "lower must be free of NaN and of inf, got nan.": lambda: Box(math.nan, 1.0),
    "upper must be of shape (2,), got shape (3,).": lambda: Box([0.0] * 2, [1.0] * 3),
    "lower must be of shape (3,), got shape (2,).": lambda: Box([0.0] * 2, 1.0).body(3),
    "lower must be of shape (any,), got shape (1, 2).": lambda: Box([[0.0, 0.0]], 1.0),
    "b must be of shape (1,), got shape (2,).": lambda: Polytope([[1.0]], [1.0, 1.0]),
    "A must be of shape (any, any), got shape (1,).": lambda: Polytope([1.0], [1.0]),
    "A must be of shape (>= 1, >= 1), got shape (0, 2).": lambda: Polytope(
        np.zeros((0, 2)), []
    ),
    "A must be finite, got nan at index [0, 1].": lambda: Polytope(
        [[1.0, math.nan]], [1.0]
    ),
    "every row of A must be nonzero, got zeros in row 1.": lambda: Polytope(
        [[1.0], [0.0]], [1.0, 1.0]
    ),
    "A theta <= b must be a set of dimension >= 1, got the single point [1.0].": (
        lambda: Polytope([[1.0], [-1.0]], [1.0, -1.0])
    ),
    "A, lower and upper must be one inequality or finite bound at least, got none. "
    "Equalities alone leave it unbounded: add lower and upper.": lambda: Polytope(
        A_eq=[[1.0, 1.0]], b_eq=[1.0]
    ),
    "A must be of shape (any, 3), got shape (1, 2).": lambda: Polytope(
        [[1.0, 0.0]], [1.0]
    ).body(3),
    "shape must be a tuple of 2 integers >= 1, got 3.": lambda: SchattenBall(
        1.0, p=1.0, shape=3
    ),
    "shape[1] must be an integer >= 1, got 0.": lambda: SchattenBall(
        1.0, p=1.0, shape=(3, 0)
    ),
    "shape must be of a matrix with 5 entries, got (2, 2).": lambda: SchattenBall(
        1.0, p=1.0, shape=(2, 2)
    ).body(5),
    "dim must be an integer >= 1, got 0.": lambda: Simplex().body(0),
    "theta must be finite, got nan at index [0].": lambda: Ball(1.0).contains(
        [math.nan]
    ),
    "theta must be of shape (any,), got shape (1, 2).": lambda: Ball(1.0).contains(
        [[0.0, 1.0]]
    ),
    "directions must be of shape (..., d), got shape ().": lambda: Ball(1.0).support(
        1.0
    ),
    "name must be one of 'whole_space', 'ball', 'box', 'simplex', 'polytope', "
    "'schatten_ball', got 'cone'.": lambda: from_dict({"name": "cone"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_in_one_grammar(message):
    with pytest.raises(ValueError) as caught:
        REFUSED[message]()
    assert str(caught.value) == message


def test_empty_polytopes_are_refused():
    with pytest.raises(ValueError, match="a set with interior points"):
        Polytope([[1.0], [-1.0]], [-1.0, -1.0])


def test_specs_cannot_be_changed():
    ball = Ball(1.0, center=[0.0, 0.0])
    with pytest.raises(AttributeError):
        ball.radius = 2.0
    with pytest.raises(ValueError, match="read-only"):
        ball.center[0] = 1.0
    body = ball.body(2)
    body.center[0] = 1.0
    assert ball.center[0] == 0.0
    assert isinstance(ball, Domain)


def test_matrices_may_keep_their_shape():
    ball = SchattenBall(1.0, p=1.0, shape=(2, 3))
    matrix = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(
        ball.project(matrix), ball.project(matrix.ravel()).reshape(2, 3)
    )
