"""R-hat and effective size: the numbers of ArviZ, ties and odd lengths included."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import norm

from dpsample.numerics import r_hat_and_ess as measures
from dpsample.numerics.r_hat_and_ess import effective_shares, normal_scores
from tests.support.mixing_series import series_of
from tests.support.tiers import one_in

AXES = {"chain_axis": 0, "draw_axis": 1}
SHAPES = [(4, 1000), (3, 333), (2, 7), (2, 4), (1, 1000), (1, 1001), (1, 9)]


def skewed(draws):
    """Columns with ties, with two values, and with a long tail."""
    columns = np.round(draws[:, :, 0]), np.sign(draws[:, :, 1]), np.exp(draws[:, :, 2])
    return np.stack(columns, axis=2)


def expected(draws):
    """Both numbers of ArviZ, for columns and squares."""
    columns = [np.array(column, order="C") for column in np.moveaxis(draws, 2, 0)]
    both = columns + [(column - column.mean()) ** 2 for column in columns]
    values = np.stack(both, axis=2)
    sizes = array_stats.ess(values, method="bulk", **AXES)
    if len(values) == 1:  # its two halves
        half = values.shape[1] // 2
        values = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    with np.errstate(divide="ignore", invalid="ignore"):  # squares of two values
        return array_stats.rhat(values, **AXES), sizes


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.95, 0.999])
@pytest.mark.parametrize("change", [np.copy, skewed], ids=["plain", "skewed"])
def test_verdicts_are_those_of_arviz(shape, correlation, change):
    draws = change(series_of(correlation, 3, *shape))
    if draws.shape[1] < 8:
        draws += 1e-3 * np.random.default_rng(2).normal(size=draws.shape)
    for found, wanted in zip(measures.verdicts(draws), expected(draws), strict=True):
        np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-9)


def test_sizes_of_slow_chains_are_those_of_a_transform(monkeypatch):
    draws = series_of(0.999, 3, draws=2001)
    known = measures.verdicts(draws)
    monkeypatch.setattr(measures, "MAX_PRODUCTS", 0)  # a transform after 16 lags
    for found, wanted in zip(measures.verdicts(draws), known, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_number_that_is_not_finite_leaves_nan():
    draws = series_of(0.0, 3)
    draws[0, 0, 1], draws[0, 0, 2] = np.inf, np.nan
    for found in measures.verdicts(draws):
        assert np.isfinite(found[:, 0]).all()
        assert np.isnan(found[:, 1:]).all()


def test_four_draws_of_one_chain_have_two_lags():
    """Halves of halves have one draw each; sums at lags 0 and 1 are always read."""
    assert measures.unknown_sums(4, 1).size == 2
    draws = np.random.default_rng(3).standard_normal((1, 4, 1))
    assert np.isfinite(measures.verdicts(draws)[1]).all()


@one_in(7, 3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.95, 0.999])
@pytest.mark.parametrize("change", [np.copy, skewed], ids=["plain", "skewed"])
def test_sizes_without_ranks_are_those_of_arviz(shape, correlation, change):
    draws = change(series_of(correlation, 3, *shape))
    means = array_stats.ess(draws, method="mean", **AXES)
    pairs = [(measures.plain_sizes(draws), means)]
    tails = array_stats.ess(draws, method="tail", prob=0.05, **AXES)
    pairs.append((measures.tail_sizes(draws), tails))
    whole = array_stats.ess(draws, method="identity", **AXES)
    pairs.append((measures.plain_sizes(draws, is_split=False), whole))
    if shape[0] > 1:
        with np.errstate(divide="ignore", invalid="ignore"):  # columns of two values
            wanted = array_stats.rhat(draws, method="split", **AXES)
        pairs.append((measures.plain_r_hats(draws), wanted))
    for size, wanted in pairs:
        np.testing.assert_allclose(size, wanted, rtol=1e-9)


def test_scores_are_normal_quantiles_of_mean_ranks():
    column = np.array([[3.0, 1.0, 1.0], [2.0, 5.0, 1.0]])[:, :, None]
    scores = normal_scores(column)[:, :, 0]
    quantiles = norm.ppf((np.arange(1.0, 7.0) - 0.375) / 6.25)
    low = quantiles[1]
    expected = [[quantiles[4], low, low], [quantiles[3], quantiles[5], low]]
    np.testing.assert_allclose(scores, expected)


def test_shares_by_lags_are_those_by_transforms(monkeypatch):
    for correlation in (-0.6, 0.0, 0.9, 0.999):
        series = series_of(correlation, 3, draws=301)
        by_lags = effective_shares(series)
        monkeypatch.setattr(measures, "MAX_PRODUCTS", 0)
        np.testing.assert_allclose(effective_shares(series), by_lags, rtol=1e-9)
        monkeypatch.undo()
