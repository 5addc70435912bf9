"""Noise of the random walk and of the ball walk, and their variants in the grid."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from dpsample.samplers import RandomWalk
from dpsample.samplers.metropolis import ball_walk, random_walk
from tests.support.sampler_grid import exact_starts, fast_draws, grid_case
from tests.support.sampler_margins import law_margin
from tests.support.statistics import assert_law, assert_mean, rejected

COUNT = 20_000


@njit
def many(p, rng, out):
    for i in range(len(out)):
        random_walk.fill_noise(p, rng, out[i])


@njit
def many_in_ball(rng, out):
    for i in range(len(out)):
        ball_walk.uniform_in_ball(rng, out[i])


def noise(p, dim=3, seed=1):
    out = np.empty((COUNT, dim))
    many(p, np.random.default_rng(seed), out)
    return out


def radius_and_share(z, p):
    """chi-square of the radius, and the law of one coordinate of the direction."""
    size = np.linalg.norm(z, ord=p, axis=1)
    return size**2, np.abs(z[:, 1]) / size


def share_cdf(p, dim):
    """|z_1| / ||z||_p under the cone measure: a power of it has a beta law."""
    if p == np.inf:
        # 1 on a face of its own, else uniform.
        return lambda t: np.where(t < 1.0, (1.0 - 1.0 / dim) * t, 1.0)
    return lambda t: stats.beta(1.0 / p, (dim - 1.0) / p).cdf(t**p)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_noise_has_the_density_of_its_norm(p):
    square, share = radius_and_share(noise(p), p)
    assert_law(square, stats.chi2(3).cdf)
    assert_law(share, share_cdf(p, 3))
    assert_mean(np.sign(noise(p)[:, 0]), 0.0, 1.0, detects=0.1)
    with rejected():
        assert_law(square, stats.chi2(2).cdf)
    with rejected():
        assert_law(share, share_cdf(1.2 * p, 3))


@pytest.mark.slow
def test_noise_of_the_cube_has_the_density_of_its_norm():
    square, share = radius_and_share(noise(np.inf), np.inf)
    assert_law(square, stats.chi2(3).cdf)
    on_face = share >= 1.0 - 1e-12
    assert_mean(on_face.astype(float), 1.0 / 3.0, 2.0 / 9.0, detects=0.1)
    assert_law(share[~on_face], stats.uniform.cdf)
    with rejected():
        assert_law(share[~on_face] ** 2, stats.uniform.cdf)


def test_noise_is_symmetric_in_the_coordinates():
    for p in (1.0, np.inf):
        z = noise(p, seed=2)
        for i in range(3):
            share = np.abs(z[:, i]) / np.linalg.norm(z, ord=p, axis=1)
            assert_mean((share > 0.5) * 1.0, *moments(p), detects=0.1)


def moments(p):
    """Mean and variance of the event that a coordinate is more than half the norm."""
    mean = 1.0 - float(share_cdf(p, 3)(np.array(0.5)))
    return mean, mean * (1.0 - mean)


def test_points_are_uniform_in_the_ball():
    z = np.empty((COUNT, 3))
    many_in_ball(np.random.default_rng(3), z)
    radius = np.linalg.norm(z, axis=1)
    assert_law(radius**3, stats.uniform.cdf)
    assert_law(0.5 + 0.5 * z[:, 2] / radius, stats.uniform.cdf)
    with rejected():
        assert_law(radius**2, stats.uniform.cdf)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.5, np.inf])
@pytest.mark.parametrize("domain", ["ball", "simplex", "l_1 ball"])
def test_every_norm_of_the_noise_keeps_exact_draws_exact(p, domain):
    case, starts = grid_case(domain, "hinge"), exact_starts(domain, "hinge")
    sampler = RandomWalk(p=p, num_steps=2)
    prepared = sampler.prepare(case.target, np.random.default_rng(4))
    draws = fast_draws(prepared, starts, np.random.default_rng(5), 2)
    assert case.inside(draws.reshape(-1, case.dim)).all()
    assert law_margin(case, draws[:, -1]) < 1.0
