"""Distances of samples and their limits, against laws that are known."""

import numpy as np
import pytest
from scipy.stats import binom, norm, wasserstein_distance

from dpsample.diagnostics import laws
from tests.support.statistics import spend

RUNS, LEVEL = 2000, 0.1


def alarms(draw, p_of, seed):
    """How often a p-value is at most the level."""
    rng = np.random.default_rng(seed)
    return sum(p_of(draw(rng)) <= LEVEL for _ in range(RUNS))


def uniform(values):
    return np.clip(values, 0.0, 1.0)


def one_sample_p(values):
    return laws.p_value(laws.kolmogorov(values, uniform), len(values))


def two_sample_p(values):
    a, b = values[:30], values[30:]
    return laws.p_value(laws.two_sample_kolmogorov(a, b), len(a), len(b))


@pytest.mark.parametrize("p_of", [one_sample_p, two_sample_p])
def test_alarms_are_as_rare_as_the_level_says(p_of):
    allowed = binom.isf(spend(), RUNS, LEVEL)
    assert alarms(lambda rng: rng.random(80), p_of, 71) <= allowed
    # Planted bug: every point counts twice, as autocorrelated draws do.
    assert alarms(lambda rng: np.tile(rng.random(40), 2), one_sample_p, 72) > allowed


def test_thresholds_are_where_the_p_value_is_the_level():
    for sizes in ((50,), (50, 500)):
        limit = laws.threshold(0.01, *sizes)
        assert laws.p_value(limit, *sizes) == pytest.approx(0.01)
    assert laws.p_value(0.0, 10) == 1.0


def test_kolmogorov_distances_are_those_of_the_definition():
    values = np.array([0.1, 0.4, 0.8])
    grid = np.linspace(0.0, 1.0, 100_001)
    empirical = np.searchsorted(values, grid, "right") / 3
    expected = np.abs(empirical - grid).max()
    assert laws.kolmogorov(values, uniform) == pytest.approx(expected, abs=1e-4)
    later = laws.two_sample_kolmogorov(values, values + 0.35)
    assert later == pytest.approx(2.0 / 3.0)
    assert laws.two_sample_kolmogorov(values, values) == 0.0


@pytest.mark.parametrize("dim", [1, 2])
def test_cells_have_about_equal_probability(dim):
    rng = np.random.default_rng(73)
    points, weights = rng.normal(size=(50_000, dim)), np.full(50_000, 1.0 / 50_000)
    shares = np.bincount(laws.cells(points, weights, 1000)(points)) / 50_000
    assert len(shares) == {1: 40, 2: 36}[dim]
    np.testing.assert_allclose(shares, 1.0 / len(shares), rtol=0.01)


def variation_fails(interval_of, *, shift, seed):
    """How often limits miss the total variation of N(shift, 1) and N(0, 1)."""
    rng = np.random.default_rng(seed)
    edges = norm.ppf(np.arange(1, 20) / 20)
    bins = np.concatenate(([-np.inf], edges, [np.inf]))
    q, p = np.full(20, 0.05), np.diff(norm.cdf(bins - shift))
    whole, binned = 2.0 * norm.cdf(0.5 * shift) - 1.0, 0.5 * np.abs(p - q).sum()
    failed = 0
    for _ in range(500):
        counts = rng.multinomial(400, p).astype(float)
        found = interval_of(counts, q)
        failed += found.lower > whole or found.upper < binned
    return failed


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_limits_of_total_variation_hold(shift):
    def honest(counts, q):
        return laws.total_variation(counts, q, 0.05)

    def without_noise(counts, q):
        found = honest(counts, q)
        return found._replace(lower=found.estimate, upper=found.estimate)

    allowed = binom.isf(spend(), 500, 0.1)
    assert variation_fails(honest, shift=shift, seed=74) <= allowed
    assert variation_fails(without_noise, shift=shift, seed=74) > allowed


def test_limits_of_the_wasserstein_distance_hold():
    rng = np.random.default_rng(75)
    points = (np.arange(2000) + 0.5) / 2000
    weights = np.full(2000, 1.0 / 2000)
    exact = wasserstein_distance(points**2, points)
    for _ in range(20):
        found = laws.wasserstein(
            rng.random(300) ** 2, points, weights, width=1.0, error=1e-9
        )
        assert found.lower <= exact <= found.upper
        assert found.estimate == pytest.approx(exact, abs=0.1)
