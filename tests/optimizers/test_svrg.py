"""SVRG: the solver, its contraction, and output perturbation of what it finds."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.optimizers import SVRG, ObjectivePerturbation
from dpsample.optimizers.loop.estimate import OUTCOME
from dpsample.optimizers.loop.loop import Arguments
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.pieces import CompiledGradient, new_memory
from dpsample.optimizers.loop.solve import TiltedObjective, epoch
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy import gdp_from_budget
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    logistic,
    rows_and_labels,
    squared,
)
from tests.support.statistics import assert_law, rejected


def test_a_quadratic_is_its_linear_system():
    problem = squared(60, 3, domain=dps.domains.Ball(50.0))
    rows, y = problem.data.dense, problem.data.response
    theta = minimize(problem, SVRG(ridge=0.05, gap=1e-22), None, seed=1).theta
    matrix = rows.T @ rows / 60 + 0.1 * np.eye(3)
    expected = np.linalg.solve(matrix, rows.T @ y / 60)
    np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-9)


def arguments_of(problem):
    loop = Loop(num_steps=1, step=GradientStep(1.0))
    arguments = Arguments(problem, Recipe(phases=(loop,), event=None, inputs={}))
    phase = arguments.phase(loop, np.random.default_rng(0))
    return arguments, CompiledGradient(phase.batches, phase.estimator)


def one_epoch(problem, start, *, ridge, seed):
    """Mean of the points of one compiled epoch."""
    arguments, gradient = arguments_of(problem)
    memory = new_memory(problem.dim)
    memory.theta[:] = memory.middle[:] = start
    rows, y = problem.data.dense, problem.data.response
    slopes = problem.loss.slope(rows @ start, y)
    memory.aggregate[:] = slopes @ rows / len(y) + ridge * start
    objective = TiltedObjective(
        tilt=np.zeros(problem.dim),
        center=np.zeros(problem.dim),
        ridge=ridge,
        smoothness=0.25 + ridge,
        gap=1e-9,
    )
    fixed = arguments.data, arguments.loss, arguments.feasible
    rng = np.random.default_rng(seed)
    assert epoch(*fixed, gradient, objective, memory, rng) == OUTCOME.running
    return memory.theta.copy()


@pytest.mark.slow
def test_an_epoch_is_the_textbook_one():
    problem, ridge = logistic(30, 3, domain=dps.domains.Ball(0.6)), 0.25
    start = np.array([0.3, -0.2, 0.1])
    rows, y, loss = problem.data.dense, problem.data.response, problem.loss
    rng, w, total = np.random.default_rng(9), start.copy(), np.zeros(3)
    full = loss.slope(rows @ start, y) @ rows / 30 + ridge * start
    for _ in range(200):  # 100 (0.25 + ridge) / ridge
        i = rng.integers(0, 30)
        new = loss.slope(rows[i] @ w, y[i]) * rows[i] + ridge * w
        old = loss.slope(rows[i] @ start, y[i]) * rows[i] + ridge * start
        w = problem.domain.project(w - (new - old + full) / (10.0 * 0.5))
        total += w
    found = one_epoch(problem, start, ridge=ridge, seed=9)
    np.testing.assert_allclose(found, total / 200, rtol=0.0, atol=1e-13)


@pytest.mark.slow
def test_an_epoch_shrinks_the_mean_gap_as_the_theorem_says():
    problem, ridge = logistic(40, 3, domain=dps.domains.Ball(0.4)), 0.05
    best = minimize(problem, SVRG(ridge=0.5 * ridge, gap=1e-24), None, seed=0).theta
    start = np.array([-0.3, 0.2, 0.1])

    def gap(theta):
        ridges = 0.5 * ridge * (theta @ theta - best @ best)
        return problem.risk(theta) - problem.risk(best) + ridges

    ends = [gap(one_epoch(problem, start, ridge=ridge, seed=s)) for s in range(20)]
    assert np.mean(ends) <= 0.834 * gap(start)


@pytest.mark.parametrize(("budget", "shift"), [(BUDGET, 2.0), (ZERO_OUT, 1.0)])
def test_noise_is_the_sensitivity_of_the_certified_point(budget, shift):
    problem = logistic(200, 3)
    recipe = SVRG(ridge=0.05, gap=1e-8).recipe(problem.facts, budget)
    moved = shift / (200 * 0.1) + 2.0 * math.sqrt(1e-8 / 0.05)
    gdp = gdp_from_budget(1.0, 1e-6)
    assert recipe.inputs["output_stddev"] == pytest.approx(moved / gdp, rel=1e-9)
    assert recipe.event == GaussianEvent(gdp)
    assert minimize(problem, SVRG(), budget).certificate.releasable


def test_no_neighbor_moves_the_point_farther_than_declared():
    worst, n, ridge, gap = 0.0, 5, 0.1, 1e-10
    for trial in range(25):
        rows, labels = rows_and_labels(n, 2, seed=trial)
        rows[0] *= (1.0 - 1e-14) / np.linalg.norm(rows[0])
        other = labels.copy()
        other[0] = -labels[0]
        ends = []
        for response in (labels, other):
            problem = Problem(
                rows,
                response,
                loss=dps.losses.Linear(),
                domain=dps.domains.WholeSpace(),
                row_bound=1.0,
            )
            method = SVRG(ridge=ridge, gap=gap)
            ends.append(minimize(problem, method, None, seed=0).theta)
        worst = max(worst, float(np.linalg.norm(ends[0] - ends[1])))
    declared = 1.0 / (n * ridge) + 2.0 * math.sqrt(gap / ridge)
    assert 0.99 * declared < worst <= declared


def test_output_has_its_gaussian_law():
    problem = logistic(50, 2, domain=dps.domains.WholeSpace())
    method = SVRG(ridge=0.2, gap=1e-14)
    recipe = method.recipe(problem.facts, BUDGET)
    program = descent.Program(problem, recipe)
    thetas = np.array([program.run(rng).theta for rng in streams(1, 1500)])
    best = minimize(problem, SVRG(ridge=0.2, gap=1e-20), None, seed=0).theta
    sd = recipe.inputs["output_stddev"]
    for j in range(2):
        assert_law(thetas[:, j], norm(best[j], sd).cdf)
    with rejected():  # the ridge taken for its half
        assert_law(thetas[:, 0], norm(best[0], 0.5 * sd).cdf)


def test_defaults_balance_the_bound_and_lose_to_objective_perturbation():
    facts = logistic(2000, 5, domain=dps.domains.Ball(1.0)).facts
    found = SVRG().recipe(facts, BUDGET).inputs
    gdp = gdp_from_budget(1.0, 1e-6)
    expected = math.sqrt(1.0 / 2000 + math.sqrt(5) / (2000 * gdp))
    assert found["ridge"] == pytest.approx(expected)
    better = ObjectivePerturbation().recipe(facts, BUDGET).inputs["risk_bound"]
    assert better < found["risk_bound"]


@pytest.mark.parametrize("replicates", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_mean_excess_risk_is_below_the_bound(replicates):
    problem = logistic(800, 4, domain=dps.domains.Ball(1.0))
    recipe = SVRG(risk="empirical").recipe(problem.facts, BUDGET)
    program = descent.Program(problem, recipe)
    risks = [problem.risk(program.run(rng).theta) for rng in streams(3, replicates)]
    best = minimize(problem, SVRG(ridge=1e-4, gap=1e-8), None, seed=0).theta
    assert np.mean(risks) - problem.risk(best) < recipe.inputs["risk_bound"]


def test_malformed_numbers_and_kinks_are_refused():
    for fields in ({"ridge": 0.0}, {"gap": math.inf}, {"ridge": math.nan}):
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            SVRG(**fields)
    with pytest.raises(ValueError, match="risk must be one of"):
        SVRG(risk="test")
    problem = logistic(20, 2)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        minimize(problem, SVRG(), BUDGET, calibration="paper")
    with pytest.raises(ValueError, match="ridge must be given without a budget"):
        minimize(problem, SVRG(risk="empirical"), None)
    unbounded = logistic(20, 2, domain=dps.domains.WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded"):
        minimize(unbounded, SVRG(), BUDGET)
