"""Simulated heavy-tailed regressions: scales, errors, labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import dpsample as dps
from tests.support.statistics import assert_law, assert_mean, rejected


@pytest.mark.parametrize(("scale", "size"), [("sqrt_n", 50.0), ("unit", 1.0)])
def test_designs_have_columns_of_one_norm_and_ten_signals(
    scale: str, size: float
) -> None:
    data = dps.datasets.heavy_tailed_regression(2500, 20, seed=1, scale=scale)
    norms = np.linalg.norm(data.features, axis=0)
    assert norms == pytest.approx(size, rel=1e-12) and (norms <= size).all()
    assert np.abs(data.features).max() <= data.row_bound == size
    assert np.abs(data.theta).tolist() == [1.0] * 10 + [0.0] * 10
    again = dps.datasets.heavy_tailed_regression(2500, 20, seed=1, scale=scale)
    assert (again.response == data.response).all()
    other = dps.datasets.heavy_tailed_regression(2500, 20, seed=2, scale=scale)
    assert (other.response != data.response).any()


def test_errors_of_the_regression_are_student() -> None:
    for degrees in (2.0, 3.0, math.inf):
        data = dps.datasets.heavy_tailed_regression(8000, 10, seed=3, degrees=degrees)
        errors = data.response - data.features @ data.theta
        assert_law(errors, stats.t(degrees).cdf)
        with rejected():
            assert_law(errors, stats.t(1.0).cdf)


def test_labels_follow_the_centered_log_logistic_model() -> None:
    data = dps.datasets.heavy_tailed_logistic(8000, 10, seed=4)
    odds = np.sqrt(np.maximum(1.0 - 2.0 * data.features @ data.theta, 0.0))
    chance = 1.0 / (1.0 + odds)
    label = 0.5 * (data.response + 1.0)
    variance = float((chance * (1.0 - chance)).mean())
    assert_mean(label - chance, 0.0, variance, detects=0.15)
    with rejected():  # errors without centering
        odds = np.sqrt(np.maximum(-2.0 * data.features @ data.theta, 0.0))
        assert_mean(label - 1.0 / (1.0 + odds), 0.0, variance, detects=0.15)


def test_designs_refuse_bad_arguments() -> None:
    for options, message in (
        ({"dim": 9}, "dim must be an integer >= 10"),
        ({"degrees": 0.0}, "degrees must be"),
        ({"scale": "n"}, "scale must be one of"),
        ({"num_records": 0}, "num_records must be"),
    ):
        with pytest.raises(ValueError, match=message):
            dps.datasets.heavy_tailed_regression(seed=1, **options)
    with pytest.raises(ValueError, match="seed must be"):
        dps.datasets.heavy_tailed_logistic(seed=-1)
