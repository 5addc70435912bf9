"""Objective perturbation: its ridge, its risk bound, and printed constants."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.optimizers import ApproximateObjectivePerturbation, ObjectivePerturbation
from dpsample.optimizers.loop.tilted import tilt_scales
from dpsample.privacy import (
    PerturbedObjective,
    gaussian_epsilon,
    objective_stddev,
)
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import BUDGET, linear, logistic, rows_and_labels
from tests.support.tiers import one_in


def inputs(problem, method, budget=BUDGET, calibration="exact"):
    return method.recipe(problem.facts, budget, calibration).inputs


@one_in(2)
@pytest.mark.parametrize("risk", ["population", "empirical"])
@pytest.mark.parametrize("dim", [1, 20])
def test_ridge_minimizes_the_bound_although_the_noise_depends_on_it(risk, dim):
    problem = logistic(400, dim, domain=dps.domains.Ball(1.0))
    scales = tilt_scales(problem.facts, risk=risk)
    first = dps.Budget(epsilon=0.99, delta=0.99e-6)

    def bound(ridge):
        objective = PerturbedObjective(
            lipschitz=1.0, smoothness=0.25, num_records=400, ridge=ridge
        )
        return scales.risk(ridge, objective_stddev(objective, first))

    ridge = inputs(problem, ObjectivePerturbation(risk=risk))["ridge"]
    others = [bound(ridge * factor) for factor in (0.3, 0.7, 0.9, 1.1, 1.5, 4.0)]
    assert bound(ridge) <= min(others) * (1.0 + 1e-4)


def test_bound_is_the_sharp_one_at_its_best_ridge():
    problem = linear(2000, 20)
    found = inputs(problem, ObjectivePerturbation())
    rate = 20 * found["tilt_stddev"] ** 2 / 4 / 2000**2 + 1.0 / 2000
    assert found["ridge"] == pytest.approx(math.sqrt(rate), rel=0.02)
    assert found["risk_bound"] == pytest.approx(2.0 * math.sqrt(rate), rel=0.011)


def test_gaussian_width_takes_over_on_small_bodies():
    # An l1 ball in high dimension: sigma W / n is far below what d costs.
    rows, labels = rows_and_labels(50, 1000)
    bounds = []
    for p in (1.0, 2.0):
        problem = Problem(
            rows,
            labels,
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(1.0, p=p),
            row_bound=1.0,
        )
        bounds.append(inputs(problem, ObjectivePerturbation())["risk_bound"])
    assert bounds[0] < 0.5 * bounds[1]


@pytest.mark.parametrize("replicates", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_mean_excess_risk_is_below_the_bound(replicates):
    problem = linear(1000, 10)
    method = ObjectivePerturbation(risk="empirical")
    recipe = method.recipe(problem.facts, BUDGET)
    program = descent.Program(problem, recipe)
    thetas = np.array([program.run(rng).theta for rng in streams(2, replicates)])
    rows, y = problem.data.dense, problem.data.response
    mean = (y[:, None] * rows).mean(axis=0)
    excess = np.linalg.norm(mean) - (thetas @ mean).mean()
    assert 0.0 < excess < recipe.inputs["risk_bound"]


def test_projection_of_noise_costs_no_more_than_the_width():
    rng = np.random.default_rng(0)
    domain = dps.domains.Ball(1.0, p=1.0)
    width = domain.gaussian_width(200).value
    point = np.zeros(200)
    point[3] = 0.7
    moved = [
        np.linalg.norm(domain.project(point + 0.02 * rng.standard_normal(200)) - point)
        for _ in range(100)
    ]
    assert np.mean(moved) < math.sqrt(0.02 * width) < math.sqrt(200) * 0.02 * 2.5


def test_printed_constants_of_bassily_and_what_is_true_of_them():
    problem = logistic(1000, 3, domain=dps.domains.Ball(2.0))
    log_term = math.log(1e6)
    rate = 2.0 / 1000 + 12.0 * log_term / 1e6
    ridge = math.sqrt(rate)  # 2 L/M = 1
    method = ApproximateObjectivePerturbation()
    found = inputs(problem, method, calibration="paper")
    assert found["ridge"] == pytest.approx(ridge)
    assert found["tilt_stddev"] == pytest.approx(math.sqrt(20.0 * log_term))
    assert found["gap"] == pytest.approx(4e-6 * ridge)
    assert found["output_stddev"] == pytest.approx(math.sqrt(40.0 * 4e-6 * log_term))
    fit = minimize(problem, method, BUDGET, calibration="paper")
    objective = PerturbedObjective(
        lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=ridge
    )
    parts = objective.epsilon(5e-7, stddev=found["tilt_stddev"])
    parts += gaussian_epsilon(5e-7, 2.0 * 2e-3 / found["output_stddev"])
    assert fit.certificate.epsilon_proved == pytest.approx(parts, rel=1e-9)
    assert not fit.certificate.releasable


def test_printed_exact_minimizer_proves_nothing():
    problem = logistic(1000, 3)
    fit = minimize(problem, ObjectivePerturbation(), BUDGET, calibration="paper")
    assert math.isinf(fit.certificate.epsilon_proved)
    found = dict(fit.certificate.inputs)
    assert found["output_stddev"] == 0.0
    assert found["tilt_stddev"] == pytest.approx(math.sqrt(10.0 * math.log(1e6)))
    assert "SOLVER.INEXACT" in fit.certificate.assumptions


@pytest.mark.parametrize("strong_convexity", [0.0, 0.2])
def test_printed_constants_of_su_and_what_is_true_of_them(strong_convexity):
    problem = logistic(1000, 3, domain=dps.domains.Ball(2.0))
    method = ApproximateObjectivePerturbation(
        printed="su", strong_convexity=strong_convexity
    )
    found = inputs(problem, method, calibration="paper")
    assert found["tilt_stddev"] == pytest.approx(math.sqrt(128 * math.log(2.5e6)))
    width = problem.domain.gaussian_width(3).value
    if strong_convexity == 0.0:
        assert found["ridge"] == pytest.approx(1.0 / (4.0 * math.sqrt(1000)))
        gap = 4.0 / 1000**1.5 * min(1.0, 16.0 / width**2 / math.log(1e6))
        scale = found["ridge"]
    else:
        modulus = 0.2 * 4.0
        assert found["ridge"] == 0.0
        gap = 16.0 / modulus / 1e6
        gap *= min(1.0, (16.0 / 1000 / modulus) ** 2 / width**2 / math.log(1e6))
        scale = modulus / 16.0
    assert found["gap"] == pytest.approx(gap)
    output = math.sqrt(64.0 * gap * math.log(2.5e6) / scale)
    assert found["output_stddev"] == pytest.approx(output)
    fit = minimize(problem, method, BUDGET, calibration="paper")
    assert 0.1 < fit.certificate.epsilon_proved < 1.0  # for linear models it holds
