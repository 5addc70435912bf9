"""Objective perturbation: closed forms, noise, accuracy."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers import ApproximateObjectivePerturbation, ObjectivePerturbation
from dpsample.optimizers.loop.solve import fill_tilt
from dpsample.optimizers.loop.tilted import tilt_scales
from dpsample.privacy import (
    PerturbedObjective,
    gaussian_epsilon,
    gdp_from_budget,
)
from dpsample.privacy.accounting.events import ApproximateEvent
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    linear,
    logistic,
    rows_and_labels,
)
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

METHODS = (ObjectivePerturbation, ApproximateObjectivePerturbation)


def inputs(problem, method, budget=BUDGET, calibration="exact"):
    return method.recipe(problem.facts, budget, calibration).inputs


def draws(seed, dim):
    """G of a run with this seed, in standard deviations, and the stream of H."""
    rng = streams(seed, 1)[0]
    g = np.empty(dim)
    fill_tilt(rng, 1.0, g)
    return g, rng


def perturbed(rng, point, stddev):
    """Point with the noise of an output."""
    noisy = point.copy()
    add_gaussian(rng, stddev, grid_step(stddev), noisy)
    return noisy


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [None, (0.5, -1.0, 2.0)])
def test_a_linear_loss_gives_its_projection(method, center):
    domain = dps.domains.Ball(1.0, center=center)
    problem = linear(domain=domain)
    found = inputs(problem, method())
    g, rng = draws(7, 3)
    rows, y = problem.data.dense, problem.data.response
    slope = -(y[:, None] * rows).mean(axis=0) + found["tilt_stddev"] * g / 100
    start = domain.default_center(3)
    exact = domain.project(start - slope / (2.0 * found["ridge"]))
    expected = domain.project(perturbed(rng, exact, found["output_stddev"]))
    theta = minimize(problem, method(), BUDGET, seed=7).theta
    np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-12)


def test_minimizer_of_a_linear_loss_has_its_gaussian_law():
    problem = linear(50, 2, domain=dps.domains.Ball(1e6))
    method = ApproximateObjectivePerturbation(ridge=0.3)
    recipe = method.recipe(problem.facts, BUDGET)
    program = descent.Program(problem, recipe)
    thetas = np.array([program.run(rng).theta for rng in streams(1, 2000)])
    rows, y = problem.data.dense, problem.data.response
    mean = (y[:, None] * rows).mean(axis=0) / 0.6
    tilt, output = (recipe.inputs[f"{k}_stddev"] for k in ("tilt", "output"))
    sd = math.hypot(tilt / (50 * 0.6), output)
    for j in range(2):
        assert_law(thetas[:, j], norm(mean[j], sd).cdf)
    with rejected():  # lambda |w|^2 taken for lambda/2 |w|^2
        assert_law(thetas[:, 0], norm(2.0 * mean[0], 2.0 * sd).cdf)


@pytest.mark.slow
def test_logistic_minimizer_has_the_law_of_the_change_of_variables():
    # w solves n F'(w) + 2 n lambda w = -G, which increases in w.
    rows, labels = rows_and_labels(40, 1)
    problem = Problem(
        rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
    )
    method = ApproximateObjectivePerturbation(ridge=0.02, gap=1e-20)
    recipe = method.recipe(problem.facts, BUDGET)
    program = descent.Program(problem, recipe)
    found = np.array([program.run(rng).theta[0] for rng in streams(4, 8000)])

    def cdf(w, ridge=0.02):
        slopes = problem.loss.slope(np.outer(w, rows[:, 0]), labels)
        pull = slopes @ rows[:, 0] + 2.0 * 40 * ridge * w
        return norm.cdf(pull / recipe.inputs["tilt_stddev"])

    assert_law(found, cdf)
    with rejected():  # lambda |w|^2 taken for lambda/2 |w|^2
        assert_law(found, lambda w: cdf(w, 0.01))


def test_mean_estimation_is_the_strongly_convex_linear_loss():
    # |w - x|^2/2 = |w|^2/2 - <x, w> + constant: only the common part is convex.
    rows, _ = rows_and_labels(80, 3)
    problem = Problem(
        rows,
        np.ones(80),
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0, p=1.0),
        row_bound=1.0,
    )
    method = ApproximateObjectivePerturbation(strong_convexity=1.0)
    found = inputs(problem, method)
    g, rng = draws(3, 3)
    assert found["ridge"] == 0.0
    gdp = gdp_from_budget(0.99, 0.5 * 0.99e-6)
    assert found["tilt_stddev"] == pytest.approx(2.0 / gdp, rel=1e-6)
    exact = problem.domain.project(rows.mean(axis=0) - found["tilt_stddev"] * g / 80)
    noisy = perturbed(rng, exact, found["output_stddev"])
    expected = problem.domain.project(noisy)
    theta = minimize(problem, method, BUDGET, seed=3).theta
    np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("solver", ["accelerated", "svrg"])
def test_without_budget_it_is_the_ridge_solution(solver):
    problem = logistic(60, 3, domain=dps.domains.WholeSpace())
    method = ApproximateObjectivePerturbation(ridge=0.05, gap=1e-18, solver=solver)
    fit = minimize(problem, method, None, seed=0)
    rows, y = problem.data.dense, problem.data.response
    slopes = problem.loss.slope(rows @ fit.theta, y)
    assert np.linalg.norm(slopes @ rows / 60 + 0.1 * fit.theta) < 1e-8
    assert fit.certificate is None


@one_in(2)
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("method", METHODS)
def test_noise_is_the_proved_one_for_both_parts(method, budget):
    problem = logistic(500, 3)
    found = inputs(problem, method(), budget)
    objective = PerturbedObjective(
        lipschitz=1.0,
        smoothness=0.25,
        num_records=500,
        ridge=found["ridge"],
        relation=budget.relation,
    )
    spent = objective.epsilon(0.99e-6, stddev=found["tilt_stddev"])
    assert spent == pytest.approx(0.99, rel=1e-9)
    apart = 2.0 * math.sqrt(found["gap"] / found["ridge"])
    rest = gaussian_epsilon(1e-8, apart / found["output_stddev"])
    assert rest == pytest.approx(0.01, rel=1e-6)
    fit = minimize(problem, method(), budget)
    assert fit.certificate.event == ApproximateEvent(epsilon=1.0, delta=1e-6)
    assert fit.certificate.releasable
    assert "SOLVER.GAP" in fit.certificate.assumptions


def test_solver_and_output_noise_cost_a_hundredth_of_the_bound():
    problem = logistic(500, 3)
    scales = tilt_scales(problem.facts, risk="population")
    found = inputs(problem, ObjectivePerturbation())
    exact = scales.risk(found["ridge"], found["tilt_stddev"])
    assert exact < found["risk_bound"] <= 1.01 * exact * (1.0 + 1e-12)


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 30.0])
def test_a_ridge_that_is_too_large_does_not_loosen_the_solver(ridge):
    problem = logistic(500, 3, domain=dps.domains.Ball(1e3))
    scales = tilt_scales(problem.facts, risk="population")
    found = inputs(problem, ObjectivePerturbation(ridge=ridge))
    cost = scales.release_cost(math.sqrt(found["gap"] / ridge), found["output_stddev"])
    spread = scales.spread(ridge, found["tilt_stddev"])
    assert cost <= 0.02 * spread * (1.0 + 1e-9)


def test_small_gaps_approach_exact_objective_perturbation():
    problem = logistic(300, 3, domain=dps.domains.Ball(1.0))
    ends = [
        minimize(
            problem,
            ApproximateObjectivePerturbation(ridge=0.05, gap=gap),
            BUDGET,
            seed=5,
        ).theta
        for gap in (1e-8, 1e-12, 1e-16, 1e-20)
    ]
    distances = [np.linalg.norm(end - ends[-1]) for end in ends[:-1]]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-3


def test_smallest_ridge_leaves_epsilon_for_the_noise():
    problem = logistic(20, 3)
    with pytest.raises(ValueError, match="ridge must be > "):
        minimize(problem, ObjectivePerturbation(ridge=1e-4), BUDGET)
    assert minimize(problem, ObjectivePerturbation(), BUDGET).certificate.releasable


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ridge": -1.0}, "ridge must be a finite number >= 0"),
        ({"ridge": 0.0}, "ridge must be > 0 without strong_convexity"),
        ({"strong_convexity": math.nan}, "strong_convexity must be a finite number"),
        ({"gap": 0.0}, "gap must be a finite number > 0"),
        ({"share": 1.0}, "share must be > 0 and < 1"),
        ({"solver": "newton"}, "solver must be one of"),
        ({"printed": "gopi"}, "printed must be one of"),
        ({"risk": "test"}, "risk must be one of"),
    ],
)
def test_malformed_numbers_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ApproximateObjectivePerturbation(**fields)


def test_recipes_refuse_what_they_cannot_serve():
    with pytest.raises(ValueError, match="ridge must be a finite number > 0"):
        ObjectivePerturbation(ridge=0.0)
    kinked = Problem(
        [[1.0]],
        [1.0],
        loss=dps.losses.Hinge(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    with pytest.raises(ValueError, match="loss must be of bounded curvature"):
        minimize(kinked, ObjectivePerturbation(), BUDGET)
    unbounded = logistic(30, 2, domain=dps.domains.WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded"):
        minimize(unbounded, ObjectivePerturbation(), BUDGET)
    method = ApproximateObjectivePerturbation(strong_convexity=0.5)
    assert minimize(unbounded, method, BUDGET).certificate.releasable
    bounded = logistic(30, 2)
    with pytest.raises(ValueError, match="ridge must be given without a budget"):
        minimize(bounded, ObjectivePerturbation(risk="empirical"), None)
    with pytest.raises(ValueError, match="strong_convexity must be 0"):
        minimize(bounded, method, BUDGET, calibration="paper")
    box = logistic(30, 2, domain=dps.domains.Box(-1.0, 1.0))
    su = ApproximateObjectivePerturbation(strong_convexity=0.5, printed="su")
    with pytest.raises(ValueError, match="domain must be a Ball about 0"):
        minimize(box, su, BUDGET, calibration="paper")
