"""Volumes of Schatten balls: known values, a Pfaffian in mpmath, plain Monte Carlo."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import dblquad, quad

from dpsample.noise import SchattenGaussian
from dpsample.noise.schatten import (
    _log_abs_pfaffian,
    log_gaussian_spectrum,
    log_power_spectrum,
    log_schatten_volume,
)
from tests.support.statistics import assert_mean, rejected

INF = math.inf
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 10.0, INF)


def log_l2_ball(dim):
    return 0.5 * dim * math.log(math.pi) - math.lgamma(1.0 + 0.5 * dim)


def test_frobenius_and_vector_balls_have_the_known_volume():
    for shape in ((2, 2), (3, 7), (9, 9), (40, 60)):
        volume = log_schatten_volume(shape, 2.0)
        assert volume == pytest.approx(log_l2_ball(shape[0] * shape[1]), rel=1e-12)
    for r in EXPONENTS:
        for shape in ((1, 5), (5, 1), (1, 1)):
            volume = log_schatten_volume(shape, r)
            assert volume == pytest.approx(log_l2_ball(max(shape)), rel=1e-12)


def test_pfaffian_continues_selbergs_integrals():
    for shape in ((2, 2), (3, 3), (4, 6), (5, 9), (6, 6)):
        m, k = shape
        near = log_power_spectrum(m, k, 2.0 + 1e-9)
        assert near == pytest.approx(log_gaussian_spectrum(m, k), abs=1e-6)
        flat = log_schatten_volume(shape, 1e6)
        assert flat == pytest.approx(log_schatten_volume(shape, INF), abs=1e-4)


def test_pfaffian_squared_is_the_determinant():
    rng = np.random.default_rng(471)
    for size in (2, 4, 8):
        a = rng.standard_normal((size, size))
        a -= a.T
        twice = 2.0 * _log_abs_pfaffian(a)
        assert twice == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-10)
    assert _log_abs_pfaffian(np.zeros((2, 2))) == -INF


@pytest.mark.parametrize("r", [1.0, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("shape", [(2, 5), (3, 3), (5, 5), (4, 12), (8, 8)])
def test_integrals_over_spectra_agree_with_high_precision(shape, r):
    m, k = shape
    with mp.workdps(40):
        a = [mp.mpf(k - m + 1 + 2 * i) / r for i in range(m)]
        size = m + m % 2
        pairs = mp.matrix(size, size)
        for i in range(m):
            for j in range(i + 1, m):
                below = mp.betainc(a[i], a[j], 0, 0.5, regularized=True)
                pairs[i, j], pairs[j, i] = 2 * below - 1, 1 - 2 * below
            if m % 2:
                pairs[i, m], pairs[m, i] = 1, -1
        single = sum(mp.loggamma(v) for v in a) - m * mp.log(r)
        expected = mp.log(mp.factorial(m)) + single + mp.log(mp.det(pairs)) / 2
    assert log_power_spectrum(m, k, r) == pytest.approx(float(expected), abs=1e-7)


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("r", [1.0, 1.5, 3.0, 10.0, INF])
def test_two_singular_values_agree_with_quadrature(r, k):
    def over_direction(x):
        size = 0.0 if math.isinf(r) else math.log1p(x**r) / r
        return x ** (k - 2) * (1.0 - x * x) * math.exp(-2.0 * k * size)

    inside = 2.0 * quad(over_direction, 0.0, 1.0)[0] / (2.0 * k)
    log_c = k * math.log(math.pi) - log_gaussian_spectrum(2, k)
    expected = log_c + math.log(inside)
    assert log_schatten_volume((2, k), r) == pytest.approx(expected, rel=1e-9)


def test_orbit_constant_of_square_matrices_by_hand():
    # Z = U diag(t) V' for 2 x 2: volume element (2 pi)^2 / 4 ... |t_1^2 - t_2^2|.
    mass = dblquad(
        lambda s, t: abs(t * t - s * s) * math.exp(-t * t - s * s),
        0.0, 8.0, 0.0, 8.0, epsabs=1e-9,
    )[0]  # fmt: skip
    assert math.log(mass) == pytest.approx(log_gaussian_spectrum(2, 2), abs=1e-6)
    operator_ball = 2.0 * math.pi**2 / 3.0
    assert math.exp(log_schatten_volume((2, 2), INF)) == pytest.approx(operator_ball)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "r"),
    [((2, 3), 1.0), ((3, 3), 1.0), ((3, 3), 1.5), ((3, 4), 4.0), ((3, 3), INF)],
)
def test_volumes_agree_with_uniform_points(shape, r):
    dim, m = shape[0] * shape[1], min(shape)
    # A Frobenius ball around the Schatten ball.
    radius = 1.0 if r <= 2.0 else m ** (0.5 - (0.0 if math.isinf(r) else 1.0 / r))
    rng = np.random.default_rng(472)
    z = rng.standard_normal((200_000, dim))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    z *= radius * rng.random((200_000, 1)) ** (1.0 / dim)
    t = np.linalg.svd(z.reshape(-1, *shape), compute_uv=False)
    size = t.max(axis=1) if math.isinf(r) else (t**r).sum(axis=1) ** (1.0 / r)
    outer = log_l2_ball(dim) + dim * math.log(radius)
    share = math.exp(log_schatten_volume(shape, r) - outer)
    inside = (size <= 1.0).astype(float)
    assert_mean(inside, share, share * (1.0 - share), detects=0.03)
    with rejected():
        wrong = share * (1.1 if r != 1.0 or m < 3 else 1.3)
        assert_mean(inside, wrong, wrong * (1.0 - wrong), detects=0.03)


@pytest.mark.parametrize("r", EXPONENTS)
def test_density_of_small_matrices_integrates_to_one(r):
    # Over the spectrum, with the volume element of the singular values.
    noise = SchattenGaussian(r, sigma=0.8, shape=(2, 2))
    log_c = 2.0 * math.log(math.pi) - log_gaussian_spectrum(2, 2)
    x, w = np.polynomial.legendre.leggauss(80)
    t, s = 4.5 * (x + 1.0), 0.5 * (x + 1.0)
    big, ratio = np.meshgrid(t, s, indexing="ij")
    small = big * ratio
    z = np.zeros((*big.shape, 4))
    z[..., 0], z[..., 3] = big, small
    values = np.exp(noise.log_density(z) + log_c) * (big**2 - small**2) * big
    mass = 2.0 * np.einsum("i,j,ij->", 4.5 * w, 0.5 * w, values)
    assert mass == pytest.approx(1.0, abs=1e-6)


def test_inaccurate_constants_are_refused():
    for shape, r in (((12, 12), 10.0), ((8, 100), 3.0), ((20, 20), 1.0)):
        assert math.isnan(log_power_spectrum(*shape, r))
        with pytest.raises(ValueError, match="small enough for an accurate volume"):
            SchattenGaussian(r, 1.0, shape).log_density(np.ones(shape[0] * shape[1]))
