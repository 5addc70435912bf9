"""Bounds of an audit hold together, are close to the truth, and bugs break them."""

import numpy as np
import pytest
from scipy.stats import binom

from dpsample.audits.auditing import claimed_curve
from dpsample.audits.findings import Counts, loss, lower_bounds
from dpsample.audits.scores import Scores
from dpsample.privacy import Budget, gaussian_delta, gaussian_epsilon
from tests.support.statistics import spend

EPSILONS = np.array([0.0, 0.5, 1.0, 2.0])
DELTA = 1e-3


def gaussian_scores(seed, *, gdp=1.0, size=20_000, kind="log ratio", constant=0.0):
    """Log ratios of N(0, 1) and N(gdp, 1) at draws of both, plus a constant."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 2, size)) + np.array([0.0, gdp])[None, :, None]
    ratio = gdp * x - 0.5 * gdp**2 + constant
    first, second = (tuple(half) for half in ratio)
    return Scores(first=first, second=second, kind=kind)


def truth(gdp=1.0):
    return np.array([gaussian_delta(float(e), gdp) for e in EPSILONS])


KINDS = [("log ratio", 0.0), ("ratio up to a constant", 5.0), ("score", -3.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "constant"), KINDS)
def test_bounds_are_below_the_truth_and_near_it(kind, constant):
    scores = gaussian_scores(1, size=800_000, kind=kind, constant=constant)
    found = lower_bounds(scores, EPSILONS, delta=DELTA, alpha=spend())
    assert 0.95 < found.gdp_lower < 1.0
    true = gaussian_epsilon(DELTA, 1.0)
    assert 0.78 * true < found.epsilon_lower < true
    assert np.all(found.delta_lower < truth())
    assert np.all(found.delta_lower > 0.6 * truth())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "constant"), KINDS[:2])
def test_the_curve_of_the_attack_is_estimated(kind, constant):
    scores = gaussian_scores(2, size=500_000, kind=kind, constant=constant)
    found = lower_bounds(scores, EPSILONS, delta=DELTA, alpha=spend())
    assert found.delta_estimate == pytest.approx(truth(), rel=0.05)


def test_a_rare_shift_is_found_in_either_direction():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 100_000))
    rare = x[2:] + 6.0 * (rng.random((2, 100_000)) < 0.02)
    forward = Scores(first=(x[0], rare[0]), second=(x[1], rare[1]), kind="score")
    backward = Scores(first=(-rare[0], -x[0]), second=(-rare[1], -x[1]), kind="score")
    for scores in (forward, backward):
        found = lower_bounds(scores, EPSILONS, delta=DELTA, alpha=spend())
        assert found.epsilon_lower > 1.5
        assert 0.01 < found.delta_lower[-1] < 0.02


def share_wrong(make, repeats=150, alpha=0.3):
    """How often any bound is above the truth of N(0, 1) against N(1, 1)."""
    wrong = 0
    for seed in range(repeats):
        found = lower_bounds(make(seed), EPSILONS, delta=DELTA, alpha=alpha)
        wrong += bool(
            found.gdp_lower > 1.0
            or found.epsilon_lower > gaussian_epsilon(DELTA, 1.0)
            or np.any(found.delta_lower > truth())
        )
    return wrong / repeats


def reused(scores):
    """Planted bug: thresholds are chosen on the draws that give the bounds."""
    return Scores(first=scores.first, second=scores.first, kind=scores.kind)


def test_all_bounds_hold_together_with_their_confidence():
    assert share_wrong(lambda seed: gaussian_scores(seed, size=500)) <= 0.3


def test_a_score_that_is_claimed_to_be_the_log_ratio_but_is_shifted_breaks_them():
    assert share_wrong(lambda s: gaussian_scores(s, size=500, constant=0.3)) > 0.9


def test_equal_laws_have_no_privacy_loss():
    found = lower_bounds(
        gaussian_scores(4, gdp=1e-12, kind="score"), EPSILONS, delta=DELTA, alpha=0.01
    )
    assert found.epsilon_lower == 0.0 == found.gdp_lower
    assert not found.delta_lower.any()


def test_reused_draws_would_find_loss_where_there_is_none():
    def share_found(change):
        found = [
            lower_bounds(
                change(gaussian_scores(seed, gdp=1e-9, size=200, kind="score")),
                EPSILONS,
                delta=1e-9,
                alpha=0.999,
            ).gdp_lower
            for seed in range(100)
        ]
        return np.mean(np.array(found) > 0.0)

    assert share_found(reused) > 3.0 * share_found(lambda scores: scores)


def test_bounds_of_one_probability_only_are_wrong_more_often():
    """Exactly, by enumeration: the same rare event under two equal laws."""
    size, alpha, counts = 2000, 1e-3, np.arange(60)
    law = binom(size, 2.0 / size).pmf(counts)
    both = np.outer(law, law)
    upper, lower = Counts(counts, counts, size).bounds(alpha)
    joint = both[lower[None, :] > upper[:, None]].sum()
    one_sided = both[lower[None, :] > (counts / size)[:, None]].sum()
    assert joint <= 2 * alpha < one_sided / 2


def test_the_loss_is_the_positive_part():
    ratio = np.array([-np.inf, 0.0, 1.0, np.log(2.0) + 1.0, np.inf])
    assert loss(ratio, 1.0) == pytest.approx([0.0, 0.0, 0.0, 0.5, 1.0])


def test_infinite_ratios_are_certain_events():
    scores = Scores(
        first=(np.full(1000, -np.inf), np.full(1000, np.inf)),
        second=(np.full(1000, -np.inf), np.full(1000, np.inf)),
        kind="log ratio",
    )
    found = lower_bounds(scores, EPSILONS, delta=DELTA, alpha=0.01)
    assert np.all(found.delta_lower > 0.8)
    assert found.epsilon_lower > 4.0


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="scores must be numbers, got NaN"):
        Scores(
            first=(np.ones(2), np.ones(2)),
            second=(np.ones(2), [np.nan, 1.0]),
            kind="score",
        )


def test_the_claimed_curve_is_that_of_randomized_response():
    budget = Budget(epsilon=1.0, delta=0.1)
    found = claimed_curve(np.array([0.0, 0.5, 1.0, 2.0]), budget, None)
    heads = np.exp(1.0) / (1.0 + np.exp(1.0))
    # Randomized response with probability 0.9, and the secret itself otherwise.
    below = [0.1 + 0.9 * (heads - np.exp(e) * (1.0 - heads)) for e in (0.0, 0.5)]
    assert found == pytest.approx([*below, 0.1, 0.1])


def test_the_claimed_curve_is_the_smaller_of_both_claims():
    budget = Budget(epsilon=1.0, delta=1e-3)
    found = claimed_curve(EPSILONS, budget, 0.5)
    assert found[2] == 1e-3 < gaussian_delta(1.0, 0.5)
    assert found[0] == pytest.approx(gaussian_delta(0.0, 0.5))
    assert found[3] == pytest.approx(gaussian_delta(2.0, 0.5))
