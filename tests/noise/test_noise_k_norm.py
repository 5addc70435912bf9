"""K-norm noise: gauges, directions, constants, and the bodies it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma

from dpsample.core.streams import streams
from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex, WholeSpace
from dpsample.noise import KNorm, k_norm, k_norm_table
from dpsample.noise.k_norm import fill_k_norm_rows
from tests.support.noise_mutants import directions
from tests.support.statistics import assert_law, assert_mean, assert_same_law, rejected
from tests.support.tiers import one_in

NUM_DRAWS = 50_000


def symmetric(rows, limits):
    rows = np.asarray(rows, float)
    return Polytope(np.vstack([rows, -rows]), np.tile(limits, 2))


SIGNS = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]])
OCTAHEDRON = symmetric(SIGNS, np.ones(4))
HEXAGON = symmetric([[1.0, 0.2], [0.3, 1.0], [1.0, -1.0]], [1.0, 0.7, 0.9])
BODIES = {
    "ball": (Ball(2.0, p=1.5), 3),
    "diamond": (Ball(0.5, p=1.0), 4),
    "cube": (Ball(1.5, p=math.inf), 3),
    "euclid": (Ball(1.0), 5),
    "box": (Box([-1.0, -3.0], [1.0, 3.0]), 2),
    "nuclear": (SchattenBall(2.0, p=1.0, shape=(2, 2)), 4),
    "operator": (SchattenBall(0.5, p=math.inf, shape=(3, 2)), 6),
    "octahedron": (OCTAHEDRON, 3),
    "hexagon": (HEXAGON, 2),
    "interval": (Polytope([[2.0], [-4.0], [1.0]], [1.0, 2.0, 9.0]), 1),
    "one number": (Ball(2.0, p=3.0), 1),
}


def gauge(domain, z):
    """Smallest factor of the body that holds z, without the package."""
    if isinstance(domain, Polytope):
        return (z @ (domain.A / domain.b[:, None]).T).max(axis=1)
    if isinstance(domain, Box):
        return np.abs(z / domain.upper).max(axis=1)
    size = np.abs(z)
    if isinstance(domain, SchattenBall):
        size = np.linalg.svd(z.reshape(-1, *domain.shape), compute_uv=False)
    if math.isinf(domain.p):
        return size.max(axis=1) / domain.radius
    return (size**domain.p).sum(axis=1) ** (1.0 / domain.p) / domain.radius


def draws(domain, dim, seed, scale=1.0, num_draws=NUM_DRAWS):
    rng = streams(seed, 1)[0]
    return k_norm(rng, size=(num_draws, dim), domain=domain, scale=scale)


@one_in(9)
@pytest.mark.parametrize("name", BODIES)
def test_gauge_is_a_gamma_variable(name):
    domain, dim = BODIES[name]
    z = draws(domain, dim, 481, scale=0.7)
    assert_law(gauge(domain, z) / 0.7, gamma(dim).cdf)
    assert_mean((z[:, 0] > 0.0).astype(float), 0.5, 0.25, detects=0.06)


def test_other_radii_are_rejected():
    domain, dim = BODIES["ball"]
    size = gauge(domain, draws(domain, dim, 482))
    for wrong in (gamma(dim + 1), gamma(dim, scale=0.9)):
        with rejected():
            assert_law(size, wrong.cdf)


@pytest.mark.parametrize(
    ("p", "name"), [(1.5, "ball"), (1.0, "diamond"), (2.0, "euclid")]
)
def test_directions_of_balls_follow_the_cone_measure(p, name):
    domain, dim = BODIES[name]
    z = draws(domain, dim, 483)
    ratio = np.abs(z).max(axis=1) / gauge(domain, z) / domain.radius
    u = directions(np.random.default_rng(484), p, NUM_DRAWS, dim)
    assert_same_law(ratio, np.abs(u).max(axis=1))


def test_polytopes_and_balls_of_one_shape_agree():
    cube = symmetric(np.eye(3), np.full(3, 1.5))
    pairs = ((OCTAHEDRON, Ball(1.0, p=1.0)), (cube, Box(-1.5, 1.5)))
    for polytope, ball in pairs:
        z, y = draws(polytope, 3, 485), draws(ball, 3, 486)
        for statistic in (lambda v: v[:, 0], lambda v: np.abs(v).min(axis=1), np.prod):
            first = statistic(z) if statistic is not np.prod else z.prod(axis=1)
            second = statistic(y) if statistic is not np.prod else y.prod(axis=1)
            assert_same_law(first, second)
        points = z[:50]
        first = KNorm(polytope, 0.3).log_density(points)
        np.testing.assert_allclose(first, KNorm(ball, 0.3).log_density(points))
    with rejected():
        assert_same_law(draws(cube, 3, 485)[:, 0], draws(OCTAHEDRON, 3, 486)[:, 0])


def angle_cdf(domain):
    """Law of the angle: density gauge(u)^-2 up to a constant."""
    nodes = np.linspace(-np.pi, np.pi, 40_001)
    unit = np.stack((np.cos(nodes), np.sin(nodes)), axis=1)
    density = gauge(domain, unit) ** -2.0
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(nodes)
    total = np.concatenate(([0.0], np.cumsum(steps)))
    return (lambda x: np.interp(x, nodes, total / total[-1])), total[-1]


@pytest.mark.parametrize("name", ["hexagon", "box"])
def test_angle_in_the_plane_agrees_with_quadrature(name):
    domain, _ = BODIES[name]
    z = draws(domain, 2, 487)
    cdf, _ = angle_cdf(domain)
    assert_law(np.arctan2(z[:, 1], z[:, 0]), cdf)
    is_large = gauge(domain, z) > 2.0
    assert_law(np.arctan2(z[is_large, 1], z[is_large, 0]), cdf)


def test_facets_chosen_equally_often_are_rejected():
    table = k_norm_table(HEXAGON, 2)
    planted = table._replace(shares=np.arange(1.0, 1.0 + len(table.shares)))
    rng, z = streams(488, 1)[0], np.empty((NUM_DRAWS, 2))
    fill_k_norm_rows(rng, planted, 1.0, z)
    with rejected():
        assert_law(np.arctan2(z[:, 1], z[:, 0]), angle_cdf(HEXAGON)[0])


@pytest.mark.parametrize("name", ["hexagon", "box"])
def test_density_in_the_plane_integrates_to_one(name):
    domain, _ = BODIES[name]
    noise = KNorm(domain, 0.4)
    _, area_twice = angle_cdf(domain)
    # int exp(-g / s) over the plane is s^2 int_0^inf r e^-r dr = s^2 times 2 Vol.
    log_integral = math.log(0.4**2 * area_twice)
    assert noise.log_density([0.0, 0.0]) == pytest.approx(-log_integral, abs=1e-7)
    z = draws(domain, 2, 489, num_draws=200)
    expected = -gauge(domain, z) / 0.4 - log_integral
    np.testing.assert_allclose(noise.log_density(z), expected, atol=1e-7)


def test_density_of_other_bodies_at_zero():
    volumes = {
        "diamond": 0.5**4 * 16.0 / 24.0, "cube": 27.0, "octahedron": 8.0 / 6.0,
        "euclid": 8.0 * math.pi**2 / 15.0, "interval": 1.0, "one number": 4.0,
    }  # fmt: skip
    for name, volume in volumes.items():
        domain, dim = BODIES[name]
        constant = math.factorial(dim) * volume * 0.3**dim
        at_0 = KNorm(domain, 0.3).log_density(np.zeros(dim))
        assert at_0 == pytest.approx(-math.log(constant), abs=1e-12)


def test_triangulation_of_a_polytope_covers_it_once():
    rng = np.random.default_rng(490)
    polytope = symmetric(rng.standard_normal((12, 4)), np.ones(12))
    table = k_norm_table(polytope, 4)
    directions = rng.standard_normal((300, 4))
    weights = np.einsum("sji,nj->nsi", np.linalg.inv(table.simplices), directions)
    assert ((weights > 0.0).all(axis=2).sum(axis=1) == 1).all()
    corners = table.simplices.reshape(-1, 4)
    np.testing.assert_allclose(gauge(polytope, corners), 1.0, rtol=1e-9)
    assert_law(gauge(polytope, draws(polytope, 4, 491)), gamma(4).cdf)


def test_bodies_that_are_not_symmetric_or_too_large_are_refused():
    triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [1.0, 1.0, 1.0])
    shifted = Polytope(
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [3, -1, 1, 1]
    )
    strip = Polytope([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0])
    wide = symmetric(np.eye(7), np.ones(7))
    many = symmetric(np.random.default_rng(492).standard_normal((60, 6)), np.ones(60))
    bad = [
        (Ball(1.0, center=[0.1, 0.0]), 2, "symmetric about 0, got center"),
        (Box(-1.0, 2.0), 2, "symmetric about 0"),
        (triangle, 2, "symmetric about 0, got a set that -z leaves"),
        (shifted, 2, "symmetric about 0"),
        (strip, 2, "domain must be bounded"),
        (symmetric([[1.0, 0.3], [0.2, 1.0]], [1e-4, 1e4]), 2, "polytope is too thin"),
        (symmetric(np.eye(3) + 0.1, np.full(3, 1e-100)), 3, "Qhull precision error"),
        (wide, 7, "dimension must be <= 6, got 7. Use a ball or a box"),
        (many, 6, "number of vertices must be <= 2000"),
        (SchattenBall(1.0, p=1.0, shape=(9, 9)), 81, "shape must be small enough"),
        (Simplex(), 3, "domain must be a Ball or Box"),
        (WholeSpace(), 3, "domain must be a Ball or Box"),
        (None, 3, "domain must be a Ball or Box"),
        (SchattenBall(1.0, p=1.0, shape=(2, 2)), 3, "shape must be"),
        (HEXAGON, 3, "A must be of shape"),
    ]
    for domain, dim, message in bad:
        with pytest.raises(ValueError, match=message):
            k_norm(streams(0, 1)[0], size=dim, domain=domain)
    for domain, dim, _ in bad[:9]:
        with pytest.raises(ValueError):
            KNorm(domain, 1.0).log_density(np.zeros(dim))


def test_a_hull_that_is_wrong_is_refused():
    """Of 120 such bodies, 1e-12 thin, Qhull cut through five and did not say so."""
    thin = np.random.default_rng(89).standard_normal((7, 4)) / np.logspace(0, -12, 4)
    with pytest.raises(ValueError, match="inside by 0.002 .*too thin"):
        k_norm_table(symmetric(thin, np.ones(7)), 4)


def test_a_center_that_rounding_hides_is_refused():
    with pytest.raises(ValueError, match="symmetric about 0, got center"):
        k_norm_table(Ball(1.0, p=1.0, center=[1e-20, 0.0]), 2)
