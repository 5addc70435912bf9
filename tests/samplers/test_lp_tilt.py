"""Envelopes of `draw_lp`: acceptance, the pure ratio, failures as values."""

from __future__ import annotations

import numpy as np
import pytest

from dpsample.samplers.proximal import lp_tilt
from tests.support.exact_draws import INF, lp_draws

REGIMES = [
    (q, variance, kappa, size)
    for q in (1.05, 1.4, 2.0)
    for variance, kappa in ((1e-4, 1e4), (1e-4, 1.0), (1.0, 1.0), (1e4, 10.0))
    for size in (0.0, 1.0, 30.0)
]


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 10, 200])
def test_acceptance_is_high_in_every_free_regime(dim):
    shares = []
    for q, variance, kappa, size in REGIMES:
        v = size * np.cos(np.arange(dim))
        shares.append(
            lp_draws(313, v, variance=variance, kappa=kappa, q=q, num_draws=60)[1]
        )
    assert min(shares) > 0.2
    assert np.median(shares) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("ball_p", [1.0, 1.4, 3.0])
@pytest.mark.parametrize("dim", [10, 100])
def test_acceptance_on_balls_decays_at_most_like_the_root_of_the_dimension(dim, ball_p):
    for kappa in (1.0, 1e3):
        draws, acceptance = lp_draws(
            314, np.zeros(dim), variance=INF, kappa=kappa, q=1.4, num_draws=50,
            radius=1.0, ball_p=ball_p,
        )  # fmt: skip
        assert ((np.abs(draws) ** ball_p).sum(axis=1) <= 1.0 + 1e-12).all()
        assert acceptance > 0.15 / np.sqrt(dim)


def test_log_acceptance_is_never_positive():
    s = np.concatenate(
        ([0.0, 1e-300], np.logspace(-12, 6, 181), 1.0 + np.logspace(-16, -1))
    )
    for q in (1.0 + 1e-6, 1.05, 1.5, 1.9, 2.0 - 1e-9, 2.0):
        for s0 in (1e-8, 1.0, 1e5):
            for c, bound in ((0.0, INF), (3.0, 2.0)):
                for value in s0 * s:
                    a = min(value, bound)
                    log_ratio = lp_tilt.lp_log_acceptance(
                        7.0, q, s0, c, bound, value, a
                    )
                    assert log_ratio <= 0.0


def test_log_acceptance_is_target_over_envelope():
    kappa, q, s0, c, bound = 3.0, 1.3, 0.8, 1.7, 2.5
    b = lp_tilt.slope_at(kappa, q, s0)
    at_touch = lp_tilt.lp_log_acceptance(kappa, q, s0, c, bound, s0, bound)
    assert at_touch == 0.0
    for s, a in ((0.1, 0.3), (0.8003, 2.0), (2.0, 1.1), (0.9, 2.5)):
        target, envelope = -0.5 * kappa * s ** (2.0 / q), -b * s - c * a
        touch = -0.5 * kappa * s0 ** (2.0 / q) + b * s0 + c * bound
        log_ratio = lp_tilt.lp_log_acceptance(kappa, q, s0, c, bound, s, a)
        np.testing.assert_allclose(log_ratio, target - envelope - touch, atol=1e-14)


@pytest.mark.slow
def test_tangent_point_depends_on_the_arguments_alone():
    v, limits = np.array([1.0, -2.0, 0.3]), np.full(3, INF)
    arguments = (v, 0.5, 2.0, 1.3, 1.0, 0.9, -limits, limits)
    first = lp_tilt.choose_product(*arguments)
    lp_draws(315, v, variance=0.1, kappa=1.0, q=1.3, num_draws=3)
    assert lp_tilt.choose_product(*arguments) == first
    assert first[1] > 0.0


def draw_one(**changes):
    arguments = {
        "v": np.array([1.0, 2.0]), "variance": 1.0, "kappa": 1.0, "q": 1.5,
        "center": np.zeros(2), "lower": np.full(2, -INF), "upper": np.full(2, INF),
        "ball_radius": INF, "ball_p": 2.0, "max_proposals": 100,
    }  # fmt: skip
    arguments.update(changes)
    out = np.zeros(2)
    tries = lp_tilt.draw_lp(np.random.default_rng(0), *arguments.values(), out)
    return tries, out


@pytest.mark.slow
def test_lp_draw_reports_failures():
    assert draw_one()[0] >= 1
    bad_v = np.array([1.0, np.nan])
    bad = [{"v": bad_v}, {"center": bad_v}, {"kappa": np.nan}, {"variance": np.nan}]
    bad += [
        {"q": np.nan},
        {"ball_radius": np.nan},
        {"lower": bad_v},
        {"ball_p": np.nan},
    ]
    bad += [{"lower": np.ones(2), "upper": np.zeros(2)}]
    for changes in bad:
        tries, out = draw_one(**changes)
        assert tries == -2, changes
        assert np.isnan(out).all()
    tries, out = draw_one(max_proposals=0)
    assert tries == -1 and np.isnan(out).all()
