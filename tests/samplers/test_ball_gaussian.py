"""Gaussians on balls and boxes: quadrature, brute-force rejection, closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from dpsample.numerics.stable import log_gammainc
from dpsample.samplers.proximal import ball_gaussian
from tests.support import mutants
from tests.support.exact_draws import (
    INF,
    ball_draws,
    box_loop,
    interpreted,
    truncated_normal_cdf,
)
from tests.support.statistics import (
    assert_law,
    assert_mean,
    assert_same_law,
    cdf_from_log_density,
    rejected,
)
from tests.support.tiers import one_in, usual


def axis_law(half, radius, distance, sample):
    """Distribution function of z = R - w, by quadrature."""
    spread = np.ptp(sample)
    low = max(sample.min() - 0.5 * spread, 1e-14 * radius)
    high = min(sample.max() + 0.5 * spread, 2.0 * radius * (1.0 - 1e-14))

    def log_density(z):
        room = 0.5 * z * (2.0 * radius - z)
        log_p = [log_gammainc(half, float(x)) for x in room]
        return -0.5 * z * z + (radius - distance) * z + np.array(log_p)

    return cdf_from_log_density(log_density, np.linspace(low, high, 4001))


BALLS = [
    (dim, distance, radius)
    for dim in (2, 3, 20, 400)
    for distance, radius in (
        (0.0, 1.0),
        (1.0, 1.0),
        (0.5, 5.0),
        (30.0, 2.0),
        (1e6, 1.0),
    )
] + [(20, 4.0, 4.0), (400, 20.0, 20.0), (400, 1e3, 30.0), (3, 1e3, 1e3), (2, 1.0, 1e-6)]


@one_in(25)
@pytest.mark.parametrize(("dim", "distance", "radius"), BALLS)
def test_ball_draw_has_the_two_stage_law(dim, distance, radius):
    num_draws, stddev = 10_000 if dim < 100 else 4_000, 0.7
    axis = np.full(dim, dim**-0.5)
    center = np.linspace(-1.0, 1.0, dim)
    mean = center + stddev * distance * axis
    x = ball_draws(301, mean, stddev, center, stddev * radius, num_draws)
    u = (x - center) / stddev
    norms = np.linalg.norm(u, axis=1)
    assert norms.max() <= radius * (1.0 + 1e-13 * (1.0 + 1.0 / radius))
    if distance == 0.0:
        half = 0.5 * dim
        log_p = np.array([log_gammainc(half, 0.5 * r * r) for r in norms])
        law = np.exp(log_p - log_gammainc(half, 0.5 * radius * radius))
        assert_law(law, lambda p: np.clip(p, 0.0, 1.0))
        with rejected():
            assert_law(law**1.3, lambda p: np.clip(p, 0.0, 1.0))
        return
    z = radius - u @ axis
    half = 0.5 * (dim - 1)
    room = 0.5 * z * (2.0 * radius - z)
    across = 0.5 * np.maximum(norms**2 - (u @ axis) ** 2, 1e-300)
    if distance < 1e5:  # beyond, z is lost to rounding in x itself
        law = axis_law(half, radius, distance, z)
        assert_law(z, law)
        with rejected():
            assert_law(z + 0.3 * z.std(), law)
        log_p = np.array([log_gammainc(half, y) for y in across])
        log_p -= [log_gammainc(half, y) for y in room]
        assert_law(np.exp(log_p), lambda p: np.clip(p, 0.0, 1.0))
    across_axis = u - np.outer(u @ axis, axis)
    other = np.zeros(dim)
    other[0], other[1] = 0.5**0.5, -(0.5**0.5)
    cosines = across_axis @ other / np.linalg.norm(across_axis, axis=1)
    assert_mean(cosines, 0.0, 1.0 / (dim - 1), detects=0.25)
    with rejected():
        shift = 0.5 / np.sqrt(dim - 1)
        assert_mean(cosines + shift, 0.0, 1.0 / (dim - 1), detects=0.25)


@pytest.mark.parametrize("mistake", ["dim for dim - 1", "not truncated"])
def test_wrong_law_across_the_axis_is_rejected(mistake):
    rng = np.random.default_rng(302)
    room = 0.3 + rng.random(10_000)
    for dim in (3, 6):
        right = mutants.across_radius(rng, dim, room)
        wrong = mutants.across_radius(rng, dim, room, mistake)

        def law(y, half=0.5 * (dim - 1)):
            log_p = [log_gammainc(half, float(v)) for v in y]
            return np.exp(np.array(log_p) - [log_gammainc(half, w) for w in room])

        assert_law(law(right), lambda p: np.clip(p, 0.0, 1.0))
        with rejected():
            assert_law(law(wrong), lambda p: np.clip(p, 0.0, 2.0))


@usual("3-0.0-1.5", "2-2.0-1.0")
@pytest.mark.parametrize(
    ("dim", "distance", "radius"),
    [(1, 0.5, 1.0), (2, 1.0, 1.0), (2, 2.0, 1.0), (3, 0.0, 1.5), (3, 1.5, 1.5)]
    + [(20, 1.0, 4.0), (20, 3.0, 4.5)],
)
def test_ball_draw_agrees_with_brute_force_rejection(dim, distance, radius):
    rng = np.random.default_rng(303)
    mean = np.zeros(dim)
    mean[0] = distance
    brute = mean + rng.standard_normal((400_000, dim))
    brute = brute[np.linalg.norm(brute, axis=1) <= radius][:8_000]
    assert len(brute) == 8_000
    draws = ball_draws(304, mean, 1.0, np.zeros(dim), radius, 8_000)
    clipped = mutants.clipped_gaussian(rng, mean, 1.0, radius, 8_000)
    statistics = (lambda x: np.linalg.norm(x, axis=1), lambda x: x[:, 0])
    for statistic in statistics:
        assert_same_law(statistic(draws), statistic(brute))
    with rejected():
        assert_same_law(statistics[0](clipped), statistics[0](brute))


def test_ball_draw_in_one_dimension_far_outside():
    draws = ball_draws(305, np.array([9.0]), 1.0, np.array([1.0]), 0.5, 10_000)[:, 0]
    law = truncated_normal_cdf(0.5 - 9.0, 1.5 - 9.0)
    assert_law(draws - 9.0, law)
    with rejected():
        assert_law(draws - 8.95, law)


@pytest.mark.slow
def test_ball_draw_reports_failure_as_nan():
    rng = np.random.default_rng(0)
    out = np.zeros(3)
    for mean, radius in ((np.full(3, np.nan), 1.0), (np.zeros(3), np.nan)):
        outcome = ball_gaussian.gaussian_in_ball(
            rng, mean, 1.0, np.zeros(3), radius, out
        )
        assert np.isnan(outcome) and np.isnan(out).all()


def test_ball_draw_is_finite_in_high_dimension_and_at_extreme_scales():
    for dim, distance, radius in ((2000, 1e9, 1e-3), (2000, 1e-9, 1.0), (1500, 38, 38)):
        mean = np.zeros(dim)
        mean[-1] = distance
        draws = ball_draws(306, mean, 1.0, np.zeros(dim), radius, 20)
        assert np.linalg.norm(draws, axis=1).max() <= radius * (1.0 + 1e-15)


def test_box_draw_is_a_product_of_truncated_normals():
    mean, stddevs = np.array([0.3, -2.0, 5.0]), np.array([1.0, 0.5, 2.0])
    lower, upper = np.array([-1.0, -INF, -1.0]), np.array([0.5, -3.0, INF])
    out = np.empty((10_000, 3))
    rng = np.random.default_rng(307)
    assert box_loop(rng, mean, stddevs, lower, upper, out) == 10_000
    scaled = (out - mean) / stddevs
    ends = zip((lower - mean) / stddevs, (upper - mean) / stddevs, strict=True)
    for j, (low, high) in enumerate(ends):
        law = truncated_normal_cdf(low, high)
        assert_law(scaled[:, j], law)
        with rejected():
            assert_law(
                1.3 * (scaled[:, j] - low if np.isfinite(low) else scaled[:, j]), law
            )
    assert_mean(scaled[:, 0] * (scaled[:, 2]), *_product_moments(scaled), detects=0.2)
    failed = np.empty(3)
    result = ball_gaussian.gaussian_in_box(rng, mean, stddevs, upper, lower, failed)
    assert np.isnan(result) and np.isnan(failed).any()


def _product_moments(scaled):
    """Mean and variance of a product of two independent columns."""
    a, b = scaled[:, 0], scaled[:, 2]
    second = (a * a).mean() * (b * b).mean()
    return a.mean() * b.mean(), second - (a.mean() * b.mean()) ** 2


@pytest.mark.slow
def test_compiled_equals_interpreted():
    v, zero, out, plain = (
        np.array([1.0, -0.4, 0.2]),
        np.zeros(3),
        np.empty(3),
        np.empty(3),
    )
    for radius in (0.5, 10.0):
        arguments = (v, 0.4, zero, radius)
        ball_gaussian.gaussian_in_ball(np.random.default_rng(4), *arguments, out)
        interpreted(ball_gaussian.gaussian_in_ball)(
            np.random.default_rng(4), *arguments, plain
        )
        np.testing.assert_allclose(out, plain, rtol=1e-11)
