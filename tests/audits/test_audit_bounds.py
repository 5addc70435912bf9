"""Confidence bounds, the bridge and the learned score that audits are made of."""

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from dpsample.audits.findings import (
    binomial_lower,
    binomial_upper,
    log_constant,
    mean_lower,
)
from dpsample.audits.scores import learn

ALPHA = 1e-3
GRID = np.linspace(0.002, 0.998, 250)


@pytest.mark.parametrize("alpha", [0.05, 1e-6, 1e-12])
@pytest.mark.parametrize("count", [1, 7, 500, 999])
def test_bounds_are_where_the_binomial_tail_is_alpha(count, alpha):
    lower = float(binomial_lower(count, 1000, alpha))
    upper = float(binomial_upper(count, 1000, alpha))
    assert binom.sf(count - 1, 1000, lower) == pytest.approx(alpha, rel=1e-7)
    assert binom.cdf(count, 1000, upper) == pytest.approx(alpha, rel=1e-7)


def test_bounds_at_the_ends_are_zero_and_one():
    assert binomial_lower(0, 10, 0.01) == 0.0
    assert binomial_upper(10, 10, 0.01) == 1.0
    assert 0.0 < binomial_upper(0, 10, 0.01) < binomial_lower(10, 10, 0.01) < 1.0


def coverage(bound, num_trials=40):
    """Probability that a lower bound is above p, for the worst p of a grid."""
    counts = np.arange(num_trials + 1)
    bounds = bound(counts, num_trials)
    wrong = bounds[None, :] > GRID[:, None]
    return (binom.pmf(counts, num_trials, GRID[:, None]) * wrong).sum(axis=1).max()


def test_lower_bounds_are_wrong_with_probability_alpha_for_every_p():
    assert coverage(lambda k, n: binomial_lower(k, n, ALPHA)) <= ALPHA


def test_upper_bounds_mirror_lower_bounds():
    counts = np.arange(41)
    mirrored = 1.0 - binomial_lower(40 - counts, 40, ALPHA)
    assert binomial_upper(counts, 40, ALPHA) == pytest.approx(mirrored, rel=1e-12)


def test_a_normal_approximation_would_be_wrong_more_often():
    def normal(counts, n):
        share = counts / n
        return share - norm.isf(ALPHA) * np.sqrt(share * (1 - share) / n)

    assert coverage(normal) > 3 * ALPHA


def test_empirical_bernstein_bounds_are_wrong_with_probability_alpha_at_most():
    def bernstein(counts, n):
        rows = np.arange(n) < counts[:, None]
        return np.array([mean_lower(row.astype(float), 0.05) for row in rows])

    assert coverage(bernstein, num_trials=300) <= 0.05


def test_empirical_bernstein_is_close_to_the_mean_of_many_values():
    values = np.random.default_rng(11).beta(1.0, 50.0, size=1_000_000)
    bound = mean_lower(values, 1e-6)
    assert 0.99 * beta(1.0, 50.0).mean() < bound < beta(1.0, 50.0).mean()


def test_the_bridge_finds_the_ratio_of_two_constants():
    rng = np.random.default_rng(12)
    p, q = rng.normal(0.0, 1.0, 100_000), rng.normal(0.7, 2.0, 100_000)

    def ratio(x):
        return -((x - 0.7) ** 2) / 8.0 + x**2 / 2.0

    found = log_constant(ratio(p), ratio(q))
    assert found == pytest.approx(np.log(2.0), abs=0.02)
    assert log_constant(ratio(p) + 500.0, ratio(q) + 500.0) == pytest.approx(
        found + 500.0, abs=1e-9
    )


def test_the_bridge_of_equal_laws_with_a_constant_ratio_is_that_constant():
    assert log_constant(np.full(9, 3.0), np.full(9, 3.0)) == pytest.approx(3.0)


@pytest.mark.parametrize("dim", [1, 3, 250])
def test_a_learned_score_separates_shifted_laws(dim):
    rng = np.random.default_rng(13)
    p, q = rng.standard_normal((2, 1500, dim))
    q[:, 0] += 2.0
    score = learn(p, q)
    assert np.mean(score(q) > np.median(score(p))) > 0.95


def test_a_learned_score_separates_laws_of_other_spread():
    rng = np.random.default_rng(14)
    p, q = rng.standard_normal((2, 4000, 2))
    score = learn(p, 3.0 * q)
    assert np.mean(score(3.0 * q) > np.median(score(p))) > 0.85


def test_a_learned_score_stands_constant_columns_and_outliers():
    rng = np.random.default_rng(15)
    p, q = np.ones((2, 1000, 2))
    p[:, 0], q[:, 0] = rng.standard_cauchy(1000), 5.0 + rng.standard_cauchy(1000)
    score = learn(p, q)
    assert np.isfinite(score(p)).all()
    assert np.mean(score(q) > np.median(score(p))) > 0.9
