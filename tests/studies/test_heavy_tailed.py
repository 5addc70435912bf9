"""Closed forms of the studies of heavy-tailed regression."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

import dpsample as dps
from studies import _heavy_tailed as design
from studies import heavy_tailed_means as means
from studies import heavy_tailed_rates as rates

ENDS = ((-math.inf, -4.0), (-4.0, 4.0), (4.0, math.inf))


def huber(x):
    return 0.5 * x * x if abs(x) <= 1.0 else abs(x) - 0.5


@pytest.mark.parametrize("shift", [0.3, -1.0, 2.5])
def test_the_mean_huber_loss_of_student_errors_has_a_closed_form(shift):
    def change(e):
        return (huber(shift + e) - huber(e)) * student.pdf(e, 2)

    expected = sum(quad(change, *ends, limit=200)[0] for ends in ENDS)
    assert float(rates.huber_increase(np.array(shift))) == pytest.approx(
        expected, rel=1e-6
    )


def test_the_penalized_minimum_is_below_the_risk_of_other_points():
    rng = np.random.default_rng(1)
    truth = np.r_[np.ones(10), np.zeros(3)]
    for _ in range(50):
        theta = truth * rng.uniform(0.7, 1.1) + 0.1 * rng.standard_normal(13)
        size = float(np.abs(theta).sum())
        distance = float(np.linalg.norm(theta - truth))
        risk = rates.penalized_risk(distance, size, rates.PENALTY)
        assert risk > rates.minimum(rates.PENALTY)


@pytest.mark.slow
def test_the_excess_logistic_risk_is_that_of_a_large_sample():
    data = design.records("logistic", 200_000, 10, seed=3)
    problem = design.problem("logistic", data, dps.domains.Ball(10.0))
    best = design.logistic_minimum()[0] / design.SIGNAL * data.theta
    theta = 0.3 * data.theta + 0.05 * np.arange(10)
    measured = problem.risk(theta) - problem.risk(best)
    assert design.excess("logistic", theta, data.theta) == pytest.approx(
        measured,
        abs=0.003,  # more than four standard errors
    )
    assert design.excess("logistic", best, data.theta) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("method", design.PRIVATE)
def test_the_bound_of_a_mean_is_about_the_width_used_and_falls_with_records(method):
    params = {"n": 4000, "p": 20, "epsilon": 0.5, "method": method, "widths": "ours"}
    optimizer = means.optimizer_of(params)
    assert optimizer.threshold == means.widths(params)["threshold"]
    assert 0.0 < means.bound(params) < means.bound(params | {"n": 1000})
