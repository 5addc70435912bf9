"""Confidence limits and total-variation curves from given meeting times."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpsample.diagnostics.couplings import MeetingTimes
from dpsample.diagnostics.couplings.meeting import (
    divergence,
    geometric_tail,
    upper_limit,
)
from tests.support.statistics import spend


def meetings(times, *, lag=10, is_censored=None, max_steps=10_000):
    times = np.asarray(times, dtype=np.int64)
    flags = np.zeros(times.size, dtype=bool) if is_censored is None else is_censored
    return MeetingTimes(
        times=times,
        is_censored=np.asarray(flags),
        lag=lag,
        max_steps=max_steps,
        num_steps=1,
        sampler="MALA()",
    )


def count_by_hand(tau, lag, t):
    """Number of j >= 1 with tau > t + j lag."""
    return sum(tau > t + j * lag for j in range(1, 1000))


@pytest.mark.parametrize("lag", [1, 3, 10])
@pytest.mark.parametrize("t", [0, 1, 7, 20])
def test_bound_counts_the_lags_before_the_meeting(lag, t):
    times = lag + np.arange(40)
    expected = np.mean([count_by_hand(tau, lag, t) for tau in times])
    assert meetings(times, lag=lag).tv_bound(t) == expected


def test_limit_solves_its_equation():
    means, error = np.array([0.0, 0.01, 0.5]), np.full(3, 0.05)
    limit = upper_limit(means, 200, error)
    assert (limit > means).all()
    np.testing.assert_allclose(200 * divergence(means, limit), math.log(20.0))
    # Without an event the limit is exact: (1 - p)^count = error.
    assert limit[0] == pytest.approx(1.0 - 0.05 ** (1 / 200))
    assert upper_limit(np.ones(1), 200, error[:1])[0] == 1.0


def failures(limit_fn, *, runs, seed):
    """How often a limit of E min(J, K) at t is below it; tau - lag is geometric."""
    rng = np.random.default_rng(seed)
    ratio, lag, t, count = 0.9, 10, 15, 100
    failed = 0
    for _ in range(runs):
        sample = meetings(lag + rng.geometric(1.0 - ratio, count), lag=lag)
        limit, horizon = limit_fn(sample, t)
        # P(tau > t + j lag) = ratio^(t + (j - 1) lag)
        lags = (horizon - t) // lag
        truth = sum(ratio ** (t + j * lag) for j in range(lags))
        failed += limit < truth
    return failed


def curve_limit(sample, t):
    curve = sample.tv_curve([t], confidence=0.9)
    return curve.upper[0], curve.horizon[0]


def point_estimate(sample, t):
    return sample.tv_bound(t), sample.tv_curve([t]).horizon[0]


@pytest.mark.slow
def test_limit_fails_as_rarely_as_it_says_and_the_estimate_does_not():
    allowed = binom.isf(spend(), 1000, 0.1)
    assert failures(curve_limit, runs=1000, seed=31) <= allowed
    assert failures(point_estimate, runs=1000, seed=32) > allowed


def test_curve_falls_and_is_never_shown_without_its_limit():
    rng = np.random.default_rng(33)
    sample = meetings(10 + rng.geometric(0.1, 500))
    curve = sample.tv_curve(np.arange(0, 200, 5))
    assert (np.diff(curve.estimate) <= 0.0).all()
    assert (curve.upper > curve.estimate)[curve.estimate < 1.0].all()
    assert (curve.upper <= 1.0).all() and (curve.horizon > curve.steps).all()
    np.testing.assert_array_equal(curve.is_extrapolated, curve.estimate < 3 / 500)
    text = repr(curve)
    assert "statistical, for this data set, not a privacy proof" in text
    assert text.count("extrapolated") == curve.is_extrapolated.sum() > 0
    # No limit is far below three over the number of replicates.
    assert curve.upper.min() >= 3.0 / 500


def test_tail_is_the_geometric_one():
    rng = np.random.default_rng(34)
    times = 10 + rng.geometric(0.1, 200_000)
    steps = np.array([60.0, 80.0])
    exact = 0.9**steps / (1.0 - 0.9**10)
    np.testing.assert_allclose(geometric_tail(times, 10, steps), exact, rtol=0.1)
    alike = geometric_tail(np.full(50, 11), 10, steps)
    assert (0.0 < alike).all() and (alike < 0.02).all()


def test_advised_lag_is_a_high_quantile():
    assert meetings(10 + np.arange(1, 101)).advised_lag == 91


def test_pairs_that_did_not_meet_leave_no_bound():
    sample = meetings([12, 100], is_censored=[False, True], max_steps=100)
    with pytest.raises(ValueError, match="1 of 2 pairs.*increase max_steps"):
        sample.tv_curve([0])
    with pytest.raises(ValueError, match="max_steps must be large enough"):
        sample.tv_bound(3)
    assert "1 censored" in repr(sample)


@pytest.mark.parametrize("steps", [[-1], [0.5], [np.nan], [[1, 2]], "many"])
def test_malformed_steps_are_refused(steps):
    with pytest.raises(ValueError, match="steps must be"):
        meetings([12, 13]).tv_curve(steps)


@pytest.mark.parametrize("confidence", [0.0, 1.0, np.nan, "0.9"])
def test_malformed_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence must be"):
        meetings([12, 13]).tv_curve([1], confidence=confidence)
