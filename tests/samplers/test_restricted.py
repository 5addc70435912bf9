"""`draw_lp` on the line, boxes and balls: closed forms, quadrature, rejection."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erfcx, ndtr
from scipy.stats import gamma

from dpsample.samplers.proximal import lp_tilt
from tests.support import mutants
from tests.support.exact_draws import INF, interpreted, lp_draws, truncated_normal_cdf
from tests.support.statistics import assert_law, assert_mean, assert_same_law, rejected
from tests.support.tiers import one_in

LINE_CASES = [
    {"v": 1.0, "variance": 1.0, "kappa": 3.0, "q": 1.5},
    {"v": -4.0, "variance": 0.3, "kappa": 10.0, "q": 1.1},
    {"v": 2.0, "variance": 1.0, "kappa": 3.0, "q": 1.5, "radius": 0.4, "ball_p": 1.0},
    {"v": 2.0, "variance": 1.0, "kappa": 3.0, "q": 1.2, "lower": 0.5, "upper": 0.9},
]


@pytest.mark.parametrize("case", LINE_CASES)
def test_lp_draw_on_the_line_is_a_truncated_normal(case):
    """In one dimension ||u||_q^2 = u^2, and every ball is an interval."""
    case = dict(case)
    v = case.pop("v")
    draws = lp_draws(308, [v], num_draws=10_000, **case)[0][:, 0]
    precision = 1.0 / case["variance"] + case["kappa"]
    mean, scale = v / case["variance"] / precision, precision**-0.5
    radius = case.get("radius", INF)
    low = (max(case.get("lower", -INF), -radius) - mean) / scale
    high = (min(case.get("upper", INF), radius) - mean) / scale
    law = truncated_normal_cdf(low, high)
    assert_law((draws - mean) / scale, law)
    with rejected():
        assert_law(-(draws - mean) / scale + 0.2, law)


PLANE = [(np.array([1.0, -0.5]), 1.0, 3.0), (np.array([3.0, 0.2]), 0.5, 2.0)]
SETS = [
    {},
    {"lower": -0.5, "upper": 0.4},
    {"radius": 0.8, "ball_p": "q"},
    {"radius": 0.8, "ball_p": 1.0},
    {"radius": 0.8, "ball_p": 3.0},
    {"radius": 0.8, "ball_p": 1.0, "upper": 0.3},
]
CENTER = np.array([0.1, -0.2])
STATISTICS = (
    lambda x: x[0],
    lambda x: x[1],
    lambda x: np.abs(x[0] - CENTER[0]),
    lambda x: x[0] * x[1],
    lambda x: (x[0] - CENTER[0]) ** 2 + (x[1] - CENTER[1]) ** 2,
)


def plane_moments(v, variance, kappa, q, lower=-INF, upper=INF, radius=INF, ball_p=2.0):
    """Mean and variance of STATISTICS by the midpoint rule on 800 x 800 cells."""
    reach = radius if np.isfinite(radius) else 8.0
    axes = []
    for j in range(2):
        low, high = max(lower, CENTER[j] - reach), min(upper, CENTER[j] + reach)
        axes.append(low + (high - low) * (np.arange(800) + 0.5) / 800)
    x = np.meshgrid(*axes, indexing="ij")
    u = [np.abs(x[j] - CENTER[j]) for j in range(2)]
    logs = -0.5 * kappa * (u[0] ** q + u[1] ** q) ** (2.0 / q)
    logs -= ((x[0] - v[0]) ** 2 + (x[1] - v[1]) ** 2) / (2.0 * variance)
    weights = np.exp(logs - logs.max())
    if np.isfinite(radius):
        weights *= u[0] ** ball_p + u[1] ** ball_p <= radius**ball_p
    weights /= weights.sum()
    means = [(weights * f(x)).sum() for f in STATISTICS]
    seconds = [(weights * f(x) ** 2).sum() for f in STATISTICS]
    return [(m, s - m * m) for m, s in zip(means, seconds, strict=True)]


@one_in(24)
@pytest.mark.parametrize("q", [1.2, 1.5])
@pytest.mark.parametrize(("v", "variance", "kappa"), PLANE)
@pytest.mark.parametrize("body", SETS, ids=str)
def test_lp_draw_has_the_moments_of_the_quadrature(v, variance, kappa, q, body):
    body = {key: q if value == "q" else value for key, value in body.items()}
    draws, acceptance = lp_draws(
        309,
        v,
        variance=variance,
        kappa=kappa,
        q=q,
        center=CENTER,
        num_draws=20_000,
        **body,
    )
    assert acceptance > 0.2
    exact = plane_moments(v, variance, kappa, q, **body)
    for statistic, (mean, spread) in zip(STATISTICS, exact, strict=True):
        assert_mean(statistic(draws.T), mean, spread, detects=0.1)
    wrong_sign = plane_moments(-v, variance, kappa, q, **body)
    no_regularizer = plane_moments(v, variance, 0.0, q, **body)
    for wrong in (wrong_sign, no_regularizer):
        with rejected():
            for statistic, (mean, spread) in zip(STATISTICS, wrong, strict=True):
                assert_mean(statistic(draws.T), mean, spread, detects=0.1)


@one_in(4)
@pytest.mark.parametrize("dim", [2, 10, 300])
@pytest.mark.parametrize("q", [1.1, 1.6, 2.0])
def test_squared_norm_without_gaussian_is_gamma(dim, q):
    num_draws = 4_000 if dim < 100 else 1_000
    draws, acceptance = lp_draws(
        310, np.zeros(dim), variance=INF, kappa=5.0, q=q, num_draws=num_draws
    )
    assert acceptance > 0.3
    energies = 2.5 * (np.abs(draws) ** q).sum(axis=1) ** (2.0 / q)
    assert_law(energies, gamma(0.5 * dim).cdf)
    with rejected():
        assert_law(energies, gamma(0.5 * dim * (2.0 / q if q < 1.9 else 1.3)).cdf)


@pytest.mark.slow
def test_envelope_without_the_acceptance_step_is_rejected():
    q, kappa, stddev = 1.2, 5.0, 1.0
    limits = np.full(2, INF)
    s0, c = lp_tilt.choose_product(
        np.zeros(2), 1.0, kappa, q, 2.0, INF, -limits, limits
    )
    assert c == 0.0
    rng = np.random.default_rng(311)
    # A tangent far from the best one is as exact, and shows the missing step better.
    wrong = mutants.lp_draws_without_acceptance(
        rng, kappa, q, 3 * s0, 10_000, 2, stddev
    )
    right = lp_draws(
        312, np.zeros(2), variance=1.0, kappa=kappa, q=q, num_draws=10_000
    )[0]
    s_right, s_wrong = ((np.abs(x) ** q).sum(axis=1) for x in (right, wrong))
    # Brute force: plain rejection from the Gaussian with the whole factor.
    u = rng.standard_normal((200_000, 2))
    s = (np.abs(u) ** q).sum(axis=1)
    exact = s[rng.standard_exponential(len(u)) >= 0.5 * kappa * s ** (2.0 / q)][:10_000]
    assert_same_law(s_right, exact)
    with rejected():
        assert_same_law(s_wrong, exact)


@pytest.mark.slow
def test_compiled_equals_interpreted():
    v, out, plain = np.array([1.0, -0.4, 0.2]), np.empty(3), np.empty(3)
    zero, limit = np.zeros(3), np.full(3, 2.0)
    arguments = (v, 0.4, 2.0, 1.3, zero, -limit, limit, 0.7, 1.0, 1000)
    tries = lp_tilt.draw_lp(np.random.default_rng(3), *arguments, out)
    same = interpreted(lp_tilt.draw_lp)(np.random.default_rng(3), *arguments, plain)
    assert tries == same
    np.testing.assert_allclose(out, plain, rtol=1e-11)


# Mean outside a ball, R / deviation large: draws lie close under its boundary.

FAR_OUT = [
    # ball_p, direction of the mean, its size in radii, R / deviation
    (1.0, (1.0, 0.0, 0.0), 1.5, 1e3),
    (1.0, (1.0, 1.0, 1.0), 1.5, 1e4),
    (1.1, (1.0, -2.0, 3.0), 11.0, 1e2),
    (1.5, (1.0, 0.3, 0.0), 1.5, 1e4),
    (3.0, (1.0, 1.0, 1.0), 1.5, 1e3),
    (3.0, (1.0, 2.0, 3.0), 1e3, 1.0),
]


def levels_given_the_others(draws, v, stddev, ball_p):
    """Levels of each coordinate in its normal law between the ends of its chord."""
    levels = []
    for j in range(draws.shape[1]):
        rest = (np.abs(np.delete(draws, j, axis=1)) ** ball_p).sum(axis=1)
        sign = -1.0 if v[j] < 0.0 else 1.0
        end = np.maximum(1.0 - rest, 0.0) ** (1.0 / ball_p)
        start, width = (abs(v[j]) - end) / stddev, 2.0 * end / stddev
        depth = np.clip((end - sign * draws[:, j]) / stddev, 0.0, width)

        def tail(depth, start=start):
            steep = np.maximum(start, 0.0)
            ratio = erfcx((steep + depth) * 0.5**0.5) / erfcx(steep * 0.5**0.5)
            ratio *= np.exp(-depth * (steep + 0.5 * depth))
            shallow = np.minimum(start, 5.0)
            plain = ndtr(-shallow - depth) / ndtr(-shallow)
            return np.where(start > 5.0, ratio, plain)

        levels.append((tail(depth) - tail(width)) / (1.0 - tail(width)))
    return levels


@one_in(6)
@pytest.mark.parametrize(("ball_p", "direction", "size", "concentration"), FAR_OUT)
def test_draws_under_a_ball_have_their_conditional_laws(
    ball_p, direction, size, concentration
):
    u = np.array(direction)
    v = size * u / (np.abs(u) ** ball_p).sum() ** (1.0 / ball_p)
    stddev = 1.0 / concentration
    draws, acceptance = lp_draws(
        316, v, variance=stddev**2, kappa=0.0, q=2.0, radius=1.0, ball_p=ball_p,
        num_draws=10_000,
    )  # fmt: skip
    assert acceptance > 0.1
    for level in levels_given_the_others(draws, v, stddev, ball_p):
        assert_law(level, lambda u: u)
    with rejected():  # no draw is as deep as one of a mean nearer by a tenth
        for level in levels_given_the_others(draws, 0.9 * v, stddev, ball_p):
            assert_law(level, lambda u: u)


@one_in(6)
@pytest.mark.parametrize("kappa", [0.0, 1.0])
@pytest.mark.parametrize("concentration", [1.0, 1e2, 1e4, 1e8])
@pytest.mark.parametrize("ball_p", [1.0, 1.1, 1.5, 3.0])
def test_tries_do_not_grow_with_concentration_or_the_mean(ball_p, concentration, kappa):
    """With a product they did as the distance: nobody saw the end of 1e8."""
    stddev = 1.0 / concentration
    for direction in ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1.0, -2.0, 3.0)):
        u = np.array(direction)
        u /= (np.abs(u) ** ball_p).sum() ** (1.0 / ball_p)
        for size in (0.5, 1.0 - stddev, 1.0, 1.0 + 3.0 * stddev, 1.5, 11.0):
            draws, acceptance = lp_draws(
                317, size * u, variance=stddev**2, kappa=kappa / stddev**2, q=1.3,
                radius=1.0, ball_p=ball_p, num_draws=50,
            )  # fmt: skip
            assert acceptance > 0.05
            norms = (np.abs(draws) ** ball_p).sum(axis=1)
            assert (norms <= 1.0 + 1e-15 * len(u)).all()
