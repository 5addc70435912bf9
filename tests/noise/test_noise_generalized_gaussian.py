"""Laws of generalized Gaussian noise against closed forms and quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc
from scipy.stats import chi, norm

from dpsample.core.streams import streams
from dpsample.noise import GeneralizedGaussian, generalized_gaussian
from tests.support.noise_mutants import directions, magnitudes
from tests.support.statistics import (
    assert_law,
    assert_mean,
    assert_same_law,
    cdf_from_log_density,
    rejected,
)
from tests.support.tiers import one_in, usual

INF = math.inf
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 10.0, INF)
DIMS = (2, 3, 50)
NUM_DRAWS = 100_000


def draws(r, dim, seed, sigma=1.0, num_draws=NUM_DRAWS):
    rng = streams(seed, 1)[0]
    return generalized_gaussian(rng, size=(num_draws, dim), r=r, sigma=sigma)


def signed_share_cdf(r, dim):
    """Law of z_1 / ||z||_r: a Beta variable with a random sign."""

    def cdf(x):
        size = np.abs(x)
        if np.isinf(r):
            inside = size * (1.0 - 1.0 / dim)
        else:
            inside = betainc(1.0 / r, (dim - 1.0) / r, np.minimum(size**r, 1.0))
        return 0.5 + 0.5 * np.sign(x) * inside

    return cdf


def shares(z, r, where=slice(None)):
    """First coordinates over norms; for r = inf without the atoms at +-1."""
    ratio = (z[:, 0] / magnitudes(z, r))[where]
    return ratio[np.abs(ratio) < 1.0] if np.isinf(r) else ratio


def free_share_cdf(r, dim):
    return (lambda x: 0.5 + 0.5 * x) if np.isinf(r) else signed_share_cdf(r, dim)


@one_in(13)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("r", EXPONENTS)
def test_norm_is_chi_and_direction_follows_the_cone_measure(r, dim):
    z = draws(r, dim, 421, sigma=1.7)
    size = magnitudes(z, r)
    assert_law(size / 1.7, chi(dim).cdf)
    assert_law(shares(z, r), free_share_cdf(r, dim))
    is_large = size > 1.7 * chi(dim).median()
    assert_law(shares(z, r, is_large), free_share_cdf(r, dim))


@pytest.mark.parametrize("dim", DIMS)
def test_largest_coordinate_of_the_cube_is_every_one_equally_often(dim):
    z = draws(INF, dim, 422)
    at_corner = (np.abs(z[:, 0]) == magnitudes(z, INF)).astype(float)
    assert_mean(at_corner, 1.0 / dim, (dim - 1.0) / dim**2, detects=0.1)


@one_in(15)
@pytest.mark.parametrize("dim", [3, 50])
@pytest.mark.parametrize("r", EXPONENTS)
def test_whole_direction_agrees_with_gamma_variables(r, dim):
    z = draws(r, dim, 423)
    reference = directions(np.random.default_rng(424), r, NUM_DRAWS, dim)
    other = 2.0 if r != 2.0 else 1.0
    first = magnitudes(z, other) / magnitudes(z, r)
    assert_same_law(first, magnitudes(reference, other))


@usual("4.0-50")
@pytest.mark.parametrize(
    ("r", "dim", "mistake"),
    [
        (1.5, 3, "r + 0.2"), (4.0, 50, "r + 0.2"), (4.0, 3, "sphere"),
        (INF, 50, "sphere"), (1.5, 3, "surface area"), (4.0, 2, "surface area"),
    ],
)  # fmt: skip
def test_wrong_directions_are_rejected(r, dim, mistake):
    num_draws = 400_000 if dim < 50 else NUM_DRAWS
    z = draws(r, dim, 425, num_draws=num_draws)
    u = directions(np.random.default_rng(433), r, num_draws, dim, mistake)
    with rejected():
        assert_same_law(magnitudes(z, 2.0) / magnitudes(z, r), magnitudes(u, 2.0))


def test_signs_of_one_side_are_rejected():
    u = directions(np.random.default_rng(434), 3.0, NUM_DRAWS, 3, "signs")
    with rejected():
        assert_law(shares(u, 3.0), signed_share_cdf(3.0, 3))


@pytest.mark.parametrize("r", [1.0, 3.0, INF])
def test_wrong_radii_are_rejected(r):
    z = draws(r, 3, 426)
    for factor, dim in ((1.05, 3), (1.0, 2), (1.0, 4)):
        with rejected():
            assert_law(factor * magnitudes(z, r), chi(dim).cdf)
    # A direction that knows the norm.
    order = np.argsort(magnitudes(z, r))
    tied = z[np.argsort(np.abs(z[:, 0]) / magnitudes(z, r))][np.argsort(order)]
    with rejected():
        large = magnitudes(z, r) > chi(3).median()
        assert_law(shares(tied, r, large), free_share_cdf(r, 3))


@pytest.mark.parametrize("r", EXPONENTS)
def test_one_coordinate_is_exactly_normal(r):
    z = draws(r, 1, 427, sigma=0.3)[:, 0]
    assert_law(z / 0.3, norm.cdf)
    expected = 0.3 * streams(427, 1)[0].standard_normal(NUM_DRAWS)
    np.testing.assert_array_equal(z, expected)


@pytest.mark.parametrize("r", [1.0, 1.5, 4.0, INF])
def test_marginal_in_the_plane_agrees_with_quadrature(r):
    noise = GeneralizedGaussian(r, 1.0)
    nodes = np.linspace(-8.0, 8.0, 801)
    plane = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    density = np.exp(noise.log_density(plane)).sum(axis=1) * (nodes[1] - nodes[0])
    cdf = cdf_from_log_density(lambda x: np.log(density), nodes)
    z = draws(r, 2, 428)
    assert_law(z[:, 0], cdf)
    with rejected():
        assert_law(draws(2.0, 2, 428)[:, 0], cdf)


def polar_integral(noise, breaks):
    """Integral of the density over the plane by Gauss-Legendre rules."""
    x, w = np.polynomial.legendre.leggauss(120)
    total = 0.0
    for low, high in itertools.pairwise(breaks):
        angle = low + (high - low) * 0.5 * (x + 1.0)
        radius = 15.0 * (x + 1.0)
        unit = np.stack((np.cos(angle), np.sin(angle)), axis=-1)
        values = np.exp(noise.log_density(radius[:, None, None] * unit[None]))
        inner = (15.0 * w * radius) @ values
        total += 0.5 * (high - low) * (w @ inner)
    return total


@one_in(2)
@pytest.mark.parametrize("r", EXPONENTS)
def test_density_integrates_to_one(r):
    line = GeneralizedGaussian(r, 0.7)
    mass = quad(lambda x: math.exp(line.log_density([x])), -9.0, 9.0, epsabs=1e-13)[0]
    assert mass == pytest.approx(1.0, abs=1e-10)
    breaks = np.concatenate(
        [q * np.pi / 2 + np.array([0, 0.25, 0.5, 1, 1.5]) * np.pi / 4 for q in range(4)]
    )
    breaks = np.unique(np.append(breaks, 2.0 * np.pi))
    mass = polar_integral(GeneralizedGaussian(r, 1.3), breaks)
    assert mass == pytest.approx(1.0, abs=1e-5)


def test_constant_is_that_of_the_cone_measure_not_of_the_surface():
    # The printed "area" is right for the cone measure only (gradient-E3).
    for r, value in ((4.0, 7.41630), (1.5, 5.47571)):
        log_peak = GeneralizedGaussian(r, 1.0).log_density([0.0, 0.0])
        assert math.exp(-log_peak) == pytest.approx(value, abs=6e-6)


def test_density_of_independent_normals():
    z = np.array([[0.3, -2.0, 1.1], [0.0, 0.0, 5.0]])
    expected = norm.logpdf(z, scale=0.6).sum(axis=1)
    np.testing.assert_allclose(GeneralizedGaussian(2.0, 0.6).log_density(z), expected)


@one_in(5, 2)
@pytest.mark.parametrize("dim", [1, *DIMS])
@pytest.mark.parametrize("r", EXPONENTS)
def test_moments_agree_with_quadrature_of_their_laws(r, dim):
    noise = GeneralizedGaussian(r, 1.4)
    x, w = np.polynomial.legendre.leggauss(400)
    size, share = 10.0 * (x + 1.0), 0.5 * (x + 1.0)
    # Beyond x the share has the mass of both tails; on a line it is always 1.
    beyond = 2.0 - 2.0 * signed_share_cdf(r, dim)(share) if dim > 1 else 1.0
    for order in (1.0, 2.0, 3.5, 4.0):
        radial = 10.0 * (w @ (size**order * chi(dim).pdf(size)))
        expected = 1.4**order * radial
        assert noise.norm_moment(order, dim) == pytest.approx(expected, rel=1e-7)
        expected *= 0.5 * (w @ (order * share ** (order - 1.0) * beyond))
        assert noise.coordinate_moment(order, dim) == pytest.approx(expected, rel=1e-5)
    assert noise.norm_moment(0.0, dim) == noise.coordinate_moment(0.0, dim) == 1.0
    square = dim * noise.coordinate_moment(2.0, dim)
    assert noise.mean_square(dim) == pytest.approx(square, rel=1e-14)


def test_moments_of_independent_normals_and_printed_mean_square():
    noise = GeneralizedGaussian(2.0, 1.5)
    assert noise.coordinate_moment(4.0, 7) == pytest.approx(3.0 * 1.5**4)
    assert noise.mean_square(7) == pytest.approx(7 * 1.5**2)
    small = noise.norm_moment(np.float16(2.0), np.int32(2**31 - 1))
    assert small == noise.norm_moment(2.0, 2**31 - 1)
    assert noise.coordinate_moment(100, np.int8(100)) < math.inf
    for r, dim in ((1.5, 5), (4.0, 50), (10.0, 1000)):
        log_ratio = math.lgamma(3 / r) + math.lgamma(dim / r)
        log_ratio -= math.lgamma(1 / r) + math.lgamma((dim + 2) / r)
        printed = dim**2 * 1.5**2 * math.exp(log_ratio)
        assert GeneralizedGaussian(r, 1.5).mean_square(dim) == pytest.approx(printed)


@one_in(2)
@pytest.mark.parametrize("r", [1.0, 1.5, 3.0, 10.0, INF])
def test_mean_square_of_draws(r):
    noise = GeneralizedGaussian(r, 2.0)
    z = draws(r, 50, 429, sigma=2.0)
    variance = noise.coordinate_moment(4.0, 50) - noise.coordinate_moment(2.0, 50) ** 2
    mean = noise.mean_square(50) / 50.0
    assert_mean(z[:, -1] ** 2, mean, variance, detects=0.05)
    with rejected():
        assert_mean(1.1 * z[:, -1] ** 2, mean, variance, detects=0.05)


@pytest.mark.parametrize("r", [100.0, 1e3, 1e6, 1e12, 1e17])
def test_large_exponents_neither_underflow_nor_overflow(r):
    z = np.abs(draws(r, 2, 430, num_draws=50_000))
    assert_law(magnitudes(z, r), chi(2).cdf)
    # The smaller over the larger has density (1 + x^r)^(-2/r) up to a constant.
    nodes = np.linspace(0.0, 1.0, 20_001)
    cdf = cdf_from_log_density(lambda x: -2.0 / r * np.log1p(x**r), nodes)
    assert_law(z.min(axis=1) / z.max(axis=1), cdf)
    assert (np.argmax(z, axis=1) == 1).mean() == pytest.approx(0.5, abs=0.02)


def test_large_dimension_and_extreme_scales():
    for r in (1.0, 3.0, INF):
        for sigma in (1e-290, 1e290):
            z = draws(r, 10_000, 431, sigma=sigma, num_draws=3)
            scaled = magnitudes(z / sigma, r)
            assert (np.abs(scaled - 100.0) < 6.0).all()


def test_draws_do_not_depend_on_the_shape_of_the_batch():
    flat = draws(3.0, 4, 432, num_draws=6)
    rng = streams(432, 1)[0]
    cube = generalized_gaussian(rng, size=(2, 3, 4), r=3.0)
    np.testing.assert_array_equal(cube.reshape(6, 4), flat)
    noise = GeneralizedGaussian(3.0, 1.0)
    np.testing.assert_array_equal(noise.draw(streams(432, 1)[0], (6, 4)), flat)
    np.testing.assert_array_equal(noise.draw(streams(432, 1)[0], 4), flat[0])
    assert noise.draw(rng, (0, 4)).shape == (0, 4)
