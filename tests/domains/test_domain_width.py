"""Gauges against bisection, Gaussian widths against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex, WholeSpace
from dpsample.domains.domain import mean_largest, simulate_width
from tests.support.bodies import bounded, label
from tests.support.statistics import assert_mean, rejected
from tests.support.tiers import one_in

CORNER = [0.2, -0.1, 0.3]
CUBE = Polytope(np.vstack([np.eye(3), -np.eye(3)]), [1.0, 2.0, 1.0, 1.0, 1.0, 3.0])


def around_zero():
    """Pairs of a domain with the origin inside and a dimension that fits."""
    pairs = [pair for pair in bounded() if pair[0].contains(np.zeros(pair[1]))]
    pairs += [(Ball(0.5, p=p, center=CORNER), 3) for p in (1.5, 2.0, 7.0, math.inf)]
    pairs += [(Ball(0.7, p=1.0, center=CORNER), 3), (CUBE, 3)]
    return pairs


def touching_zero():
    """Domains with the origin on the boundary."""
    return [
        (Box([0.0, -1.0], [5.0, 1.0]), 2),
        (Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0]), 2),
        (Ball(1.0, center=[1.0, 0.0]), 2),
        (Ball(1.0, p=math.inf, center=[1.0, 0.0]), 2),
        (Ball(1.0, p=1.0, center=[1.0, 0.0]), 2),
    ]


def bisected(domain, theta):
    """Least t with theta/t in the domain, to 1e-9."""
    low, high = 1e-9, 1e9
    if not domain.contains(theta / high):
        return math.inf
    while high > low * (1.0 + 1e-9):
        middle = math.sqrt(low * high)
        if domain.contains(theta / middle):
            high = middle
        else:
            low = middle
    return high


every_gauge = pytest.mark.parametrize("pair", around_zero(), ids=label)


@pytest.mark.slow
@every_gauge
def test_the_gauge_is_the_least_multiple_that_contains_a_point(pair):
    domain, dim = pair
    rng = np.random.default_rng(1)
    points = rng.normal(size=(12, dim)) * 10.0 ** rng.uniform(-2, 2, size=(12, 1))
    points[::4] *= np.eye(dim)[0]
    gauges = domain.gauge(points)
    wanted = [bisected(domain, point) for point in points]
    np.testing.assert_allclose(gauges, wanted, rtol=3e-9)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(1.01 * gauges, wanted, rtol=3e-9)


@pytest.mark.parametrize("pair", touching_zero(), ids=label)
def test_the_gauge_about_a_boundary_point_may_be_infinite(pair):
    domain, _ = pair
    points = np.array([[1.0, 0.3], [0.5, -0.2], [0.4, 0.0]])
    wanted = [bisected(domain, point) for point in points]
    np.testing.assert_allclose(domain.gauge(points), wanted, rtol=3e-9)
    outside = [-1.0, 0.1]
    assert domain.gauge(outside) == math.inf
    assert domain.gauge(np.zeros(2)) == 0.0


@one_in(3)
@pytest.mark.parametrize("pair", [*around_zero(), (WholeSpace(), 3)], ids=label)
def test_gauges_are_homogeneous_and_subadditive(pair):
    domain, dim = pair
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 40, dim))
    first, second = domain.gauge(x), domain.gauge(y)
    for factor in (1e-6, 0.3, 7.0, 1e6):
        np.testing.assert_allclose(domain.gauge(factor * x), factor * first, rtol=1e-12)
    assert (domain.gauge(x + y) <= (first + second) * (1.0 + 1e-12)).all()
    assert domain.gauge(np.zeros(dim)) == 0.0
    np.testing.assert_array_equal(
        domain.gauge(x[:6].reshape(2, 3, dim)).ravel(), first[:6]
    )
    assert np.ndim(domain.gauge(x[0])) == 0


numbers = st.floats(-50.0, 50.0, allow_nan=False, allow_subnormal=False)
points = arrays(np.float64, 4, elements=numbers)


@given(points, points, st.floats(1.0, 20.0))
def test_gauges_of_symmetric_bodies_are_norms(x, y, p):
    bodies = (Ball(2.0, p=p), Box(-0.5, 0.5), SchattenBall(3.0, p=p, shape=(2, 2)))
    for domain in bodies:
        total = domain.gauge(x) + domain.gauge(y)
        assert domain.gauge(x + y) <= total * (1.0 + 1e-10) + 1e-300
        assert domain.gauge(-x) == domain.gauge(x)
        assert (domain.gauge(x) == 0.0) == (not x.any())


def test_gauges_of_equal_sets_agree():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 3))
    cube = Polytope(np.vstack([np.eye(3), -np.eye(3)]), np.ones(6))
    wanted = Ball(1.0, p=math.inf).gauge(x)
    for domain in (cube, Box(-1.0, 1.0), Ball(1.0, p=math.inf, center=np.zeros(3))):
        np.testing.assert_allclose(domain.gauge(x), wanted, rtol=1e-14)
    square = SchattenBall(2.0, p=2.0, shape=(1, 3))
    np.testing.assert_allclose(square.gauge(x), Ball(2.0).gauge(x), rtol=1e-14)
    sides = Box([-1.0, -1.0, -3.0], [1.0, 2.0, 1.0])
    np.testing.assert_allclose(CUBE.gauge(x), sides.gauge(x), rtol=1e-14)


def test_the_gauge_of_the_simplex_is_the_sum_on_its_cone():
    simplex = Simplex()
    assert simplex.gauge([0.5, 0.25, 2.0]) == 2.75
    assert simplex.gauge([0.5, -1e-300, 2.0]) == math.inf
    assert simplex.gauge(np.zeros(3)) == 0.0
    assert simplex.gauge([1.0, 0.0]) == 1.0


def test_gauges_far_from_the_origin_are_refused():
    for domain in (
        Ball(1.0, center=[2.0, 0.0]),
        Box(1.0, 2.0),
        Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [2, -1, 1, 1]),
    ):
        with pytest.raises(ValueError, match="domain must be a set that contains the"):
            domain.gauge([1.0, 1.0])


@pytest.mark.parametrize("theta", [[math.nan, 1.0], [math.inf, 1.0], 1.0, [], "ab"])
def test_bad_points_are_named(theta):
    with pytest.raises(ValueError, match="theta must be"):
        Ball(1.0).gauge(theta)
    with pytest.raises(ValueError, match="shape"):
        SchattenBall(1.0, p=1.0, shape=(2, 2)).gauge([1.0, 2.0])


# Gaussian widths.

EXACT = [
    *[(Ball(0.7, p=p), dim) for p in (1.0, 1.2, 2.0, 5.0, math.inf) for dim in (1, 6)],
    (Ball(0.7, p=1.5, center=[3.0, -1.0, 0.5]), 3),
    (Box([-1.0, 2.0, 0.0], [3.0, 2.5, 7.0]), 3),
    (Box(-1.0, 1.0), 20),
    (Simplex(), 2),
    (Simplex(), 30),
    (SchattenBall(2.0, p=2.0, shape=(2, 3)), 6),
    (SchattenBall(2.0, p=1.0, shape=(1, 5)), 5),
]


def sample_of(domain, dim, count=20_000):
    g = np.random.default_rng(4).standard_normal((count, dim))
    return np.asarray(domain.support(g))


@pytest.mark.parametrize("pair", EXACT, ids=label)
def test_exact_widths_are_the_mean_of_the_support(pair):
    domain, dim = pair
    width = domain.gaussian_width(dim)
    sample = sample_of(domain, dim)
    assert width.standard_error == 0.0
    assert_mean(sample, width.value, sample.var(), detects=0.1)
    wrong = width.value + 0.1 * sample.std()
    with rejected():
        assert_mean(sample, wrong, sample.var(), detects=0.1)


@pytest.mark.parametrize(
    ("p", "wanted"),
    [
        (1.0, math.sqrt(math.pi)),
        (math.inf, 2.0 * math.sqrt(math.pi) - math.sqrt(0.5 * math.pi)),
    ],
)
def test_simulated_widths_agree_with_the_closed_forms_of_two_by_two_matrices(p, wanted):
    """Singular values of a 2 x 2 Gaussian matrix are (a + b)/sqrt(2), |a - b|/sqrt(2).

    a and b are independent Rayleigh variables.
    """
    width = SchattenBall(1.0, p=p, shape=(2, 2)).gaussian_width(4, seed=5)
    assert 0.0 < width.standard_error < 0.003
    # A normal limit at 10,000 draws: the suite's bound is 6 standard errors.
    assert abs(width.value - wanted) <= 6.0 * width.standard_error
    assert abs(1.02 * width.value - wanted) > 6.0 * width.standard_error


@pytest.mark.parametrize("order", [0, 1])
def test_simulated_widths_agree_with_exact_ones(order):
    twins = (
        (Polytope(np.vstack([np.eye(2), -np.eye(2)]), [1.0, 3.0, 1.0, 0.5]), 300),
        (SchattenBall(1.5, p=2.0, shape=(3, 3)), 4000),
    )
    wanted = (5.5 / math.sqrt(2.0 * math.pi), 1.5 * Ball(1.0).gaussian_width(9).value)
    domain, num_draws = twins[order]
    dim = 2 if order == 0 else 9
    width = simulate_width(domain.support, dim, seed=6, num_draws=num_draws)
    spread = max(6.0 * width.standard_error, 1e-12)
    assert abs(width.value - wanted[order]) <= spread
    assert abs(1.2 * width.value - wanted[order]) > spread


def test_the_number_of_draws_and_the_seed_matter_only_for_simulation():
    matrix = SchattenBall(1.0, p=1.5, shape=(2, 2))
    first = matrix.gaussian_width(4, seed=7, num_draws=500)
    assert first == matrix.gaussian_width(4, seed=7, num_draws=500)
    assert first != matrix.gaussian_width(4, seed=8, num_draws=500)
    more = matrix.gaussian_width(4, seed=7, num_draws=8000)
    assert more.standard_error == pytest.approx(first.standard_error / 4.0, rel=0.2)
    assert Ball(1.0).gaussian_width(4) == Ball(1.0).gaussian_width(4, seed=7)
    almost = Ball(1.0, p=1.0001).gaussian_width(4, num_draws=4000)
    exact = Ball(1.0, p=1.0).gaussian_width(4).value
    assert abs(almost.value - exact) <= 6.0 * almost.standard_error


def test_widths_grow_as_they_should():
    assert Simplex().gaussian_width(1).value == pytest.approx(0.0, abs=1e-15)
    assert mean_largest(2) == pytest.approx(1.0 / math.sqrt(math.pi), rel=1e-13)
    assert mean_largest(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-13)
    # Extreme values: sqrt(2 log n) is approached from below.
    for dim in (10**3, 10**6, 10**9):
        ratio = mean_largest(dim) / math.sqrt(2.0 * math.log(dim))
        assert 0.85 < ratio < 1.0
    for dim in (1, 3, 100):
        length = Ball(1.0).gaussian_width(dim).value
        assert dim / math.sqrt(dim + 1.0) <= length <= math.sqrt(dim)
        sides = Ball(1.0, p=math.inf).gaussian_width(dim).value
        assert sides == pytest.approx(dim * math.sqrt(2.0 / math.pi), rel=1e-13)


def test_unbounded_domains_are_infinitely_wide():
    assert WholeSpace().gaussian_width(3) == (math.inf, 0.0)
    wedge = Polytope([[1.0, 0.0]], [1.0])
    assert wedge.gaussian_width(2) == (math.inf, 0.0)
    assert simulate_width(wedge.support, 2, seed=9, num_draws=10) == (math.inf, 0.0)


@pytest.mark.parametrize("num_draws", [1, 0, -3, 2.5, True])
def test_bad_numbers_of_draws_are_named(num_draws):
    with pytest.raises(ValueError, match="num_draws must be an integer >= 2"):
        SchattenBall(1.0, p=1.0, shape=(2, 2)).gaussian_width(4, num_draws=num_draws)
    with pytest.raises(ValueError, match="num_draws must be an integer >= 2"):
        Ball(1.0).gaussian_width(4, num_draws=num_draws)


@pytest.mark.parametrize("dim", [0, 2.0, None])
def test_bad_dimensions_are_named(dim):
    with pytest.raises(ValueError, match="dim must be an integer >= 1"):
        Ball(1.0).gaussian_width(dim)
