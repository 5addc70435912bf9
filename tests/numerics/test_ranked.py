"""R-hat and effective size: the numbers of ArviZ, ties and odd lengths included."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from dpsample.numerics import ranked
from tests.numerics.test_mixing import series_of

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


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.95, 0.999])
@pytest.mark.parametrize("change", [np.copy, skewed], ids=["plain", "skewed"])
def test_verdicts_are_those_of_arviz(shape, correlation, change):
    draws = change(series_of(correlation, 3, *shape))
    if draws.shape[1] < 8:
        draws += 1e-3 * np.random.default_rng(2).normal(size=draws.shape)
    for found, wanted in zip(ranked.verdicts(draws), expected(draws), strict=True):
        np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-9)


def test_sizes_of_slow_chains_are_those_of_a_transform(monkeypatch):
    draws = series_of(0.999, 3, draws=2001)
    known = ranked.verdicts(draws)
    monkeypatch.setattr(ranked, "DIRECT", 0)  # sixteen lags, and then a transform
    for found, wanted in zip(ranked.verdicts(draws), known, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_number_that_is_not_finite_leaves_nan():
    draws = series_of(0.0, 3)
    draws[0, 0, 1], draws[0, 0, 2] = np.inf, np.nan
    for found in ranked.verdicts(draws):
        assert np.isfinite(found[:, 0]).all()
        assert np.isnan(found[:, 1:]).all()


def test_four_draws_of_one_chain_have_room_for_two_lags():
    """Halves of halves have one draw each; sums at lags 0 and 1 are always asked."""
    room = ranked.RankRoom.of(4, 1, 1)
    assert room.sums.size == 2 and room.rho.size == 2
    draws = np.random.default_rng(3).standard_normal((1, 4, 1))
    assert np.isfinite(ranked.verdicts(draws)[1]).all()
