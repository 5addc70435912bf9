"""Localized clipped methods: schedule, solver, sensitivity, law, risk."""

import inspect
import math
import re

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import ClippedGD, LocalizedClippedGD
from dpsample.optimizers.algorithms.localized_clipped_gd import minimizations, plan_of
from dpsample.optimizers.loop.clipping import Block, HeavyTailedScales
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.privacy import epsilon_of, gdp_from_budget
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    logistic,
    rows_and_labels,
    squared,
)
from tests.support.descents import descend
from tests.support.statistics import assert_law, assert_mean, rejected


def test_phases_read_halving_blocks_that_do_not_overlap():
    recipe = LocalizedClippedGD().recipe(logistic(1001, 2).facts, BUDGET)
    sizes = [phase.last - phase.first for phase in recipe.phases]
    assert sizes == [1001 >> i for i in range(1, 10)]
    starts = [phase.first for phase in recipe.phases]
    assert starts == [sum(sizes[:i]) for i in range(9)] and sum(sizes) <= 1001
    ridges = np.array([phase.ridge for phase in recipe.phases]) * sizes
    np.testing.assert_allclose(ridges[1:] / ridges[:-1], 4.0)


def test_a_phase_ignores_the_records_of_the_others():
    problem = logistic(64, 2)
    recipe = LocalizedClippedGD().recipe(problem.facts, None)
    first = Recipe(phases=recipe.phases[:1], event=None, inputs={})
    rows, labels = problem.data.dense.copy(), problem.data.response.copy()
    labels[32:] *= -1.0
    other = Problem(
        rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(2.0),
        row_bound=1.0,
    )
    ends = [descend(p, first, np.random.default_rng(0)).theta for p in (problem, other)]
    assert (ends[0] == ends[1]).all()


def test_without_noise_phases_are_ridge_regressions():
    problem = squared(64, 3, domain=dps.domains.WholeSpace())
    method = LocalizedClippedGD(moment=1.0, distance=1.0, accuracy=1e-7)
    recipe = method.recipe(problem.facts, None)
    w = np.zeros(3)
    for phase in recipe.phases:
        rows = problem.data.dense[phase.first : phase.last]
        y = problem.data.response[phase.first : phase.last]
        n = len(y)
        hessian = rows.T @ rows / n + phase.ridge * np.eye(3)
        w = np.linalg.solve(hessian, rows.T @ y / n + phase.ridge * w)
    end = descend(problem, recipe, np.random.default_rng(0)).theta
    np.testing.assert_allclose(end, w, rtol=0.0, atol=1e-7)


def test_large_phases_take_random_records_and_end_at_the_same_point():
    problem = squared(40_000, 2, domain=dps.domains.WholeSpace())
    method = LocalizedClippedGD(moment=1.0, distance=0.5, accuracy=1e-4)
    recipe = method.recipe(problem.facts, None)
    first = recipe.phases[0]
    assert first.solver == "svrg" and recipe.phases[-1].solver == "accelerated"
    rows, y = problem.data.dense[: first.last], problem.data.response[: first.last]
    hessian = rows.T @ rows / len(y) + first.ridge * np.eye(2)
    best = np.linalg.solve(hessian, rows.T @ y / len(y))
    part = Recipe(phases=(first,), event=None, inputs={})
    end = descend(problem, part, np.random.default_rng(0)).theta
    reach = math.sqrt(2.0 * first.gap / first.ridge)
    assert 0.0 < np.linalg.norm(end - best) <= reach


def test_descent_and_the_certified_solver_agree():
    problem = logistic(64, 3)
    plan = plan_of(
        LocalizedClippedGD(clip=0.3, accuracy=1e-8).scales(problem.facts, None),
        Block(0, 128, 2.0),
        accuracy=1e-8,
    )
    phase = minimizations(problem.facts, plan)[0]
    solved = descend(
        problem,
        Recipe(phases=(phase,), event=None, inputs={}),
        np.random.default_rng(0),
    ).theta
    method = ClippedGD(num_steps=3000, clip=0.3, ridge=phase.ridge)
    walked = minimize(problem, method, None, seed=0).theta
    np.testing.assert_allclose(solved, walked, atol=1e-7)


@pytest.mark.parametrize("domain", [dps.domains.Ball(0.3), dps.domains.WholeSpace()])
def test_no_neighbor_moves_a_phase_farther_than_declared(domain):
    n, clip, worst = 4, 0.4, 0.0
    for trial in range(30):
        rows, labels = rows_and_labels(n + 1, 2, seed=trial)
        ends = []
        for keep in (np.arange(n), np.r_[np.arange(n - 1), n]):
            problem = Problem(
                rows[keep],
                labels[keep],
                loss=dps.losses.Logistic(),
                domain=domain,
                row_bound=1.0,
            )
            scales = LocalizedClippedGD(clip=clip, distance=1.0).scales(
                problem.facts, BUDGET
            )
            plan = plan_of(scales, Block(0, 2 * n, 40.0), accuracy=1e-4)
            phase = minimizations(problem.facts, plan)[0]
            bound = phase.output_stddev * gdp_from_budget(1.0, 1e-6)
            quiet = Recipe(
                phases=(type(phase)(**(vars(phase) | {"output_stddev": 0.0})),),
                event=None,
                inputs={},
            )
            ends.append(descend(problem, quiet, np.random.default_rng(0)).theta)
        worst = max(worst, float(np.linalg.norm(ends[0] - ends[1]) / bound))
    assert 0.05 < worst <= 1.0


@pytest.mark.parametrize(("budget", "shift"), [(BUDGET, 2.0), (ZERO_OUT, 1.0)])
def test_noise_of_every_phase_spends_the_budget(budget, shift):
    method = LocalizedClippedGD(accuracy=1e-3)
    recipe = method.recipe(logistic(5000, 4).facts, budget)
    clip, gdp = recipe.inputs["clip"], recipe.event.gdp
    for phase in recipe.phases:
        size = phase.last - phase.first
        exact = shift * clip / (size * phase.ridge)
        solver = 2.0 * math.sqrt(2.0 * phase.gap / phase.ridge)
        declared = phase.output_stddev * gdp
        assert exact + solver == pytest.approx(declared, rel=1e-9)
    spent = epsilon_of(recipe.event, delta=budget.delta, relation=budget.relation)
    assert spent == pytest.approx(budget.epsilon, rel=1e-9)


@pytest.mark.slow
def test_law_of_the_output_on_linear_losses():
    rng = np.random.default_rng(2)
    rows, y = rng.uniform(-1.0, 1.0, (40, 1)), rng.uniform(-1.0, 1.0, 40)
    problem = Problem(
        rows,
        y,
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    recipe = LocalizedClippedGD(distance=1.0, clip=1.0).recipe(problem.facts, BUDGET)
    mean = variance = 0.0
    for phase in recipe.phases:
        part = slice(phase.first, phase.last)
        mean += (rows[part, 0] * y[part]).mean() / phase.ridge
        variance += phase.output_stddev**2
    program = descent.Program(problem, recipe)
    ends = np.array(
        [program.run(np.random.default_rng(seed)).theta[0] for seed in range(3000)]
    )
    stddev = math.sqrt(variance)
    assert_law(ends, lambda x: norm.cdf(x, mean, stddev))
    with rejected():  # only the last phase is noisy
        last = recipe.phases[-1].output_stddev
        assert_law(ends, lambda x: norm.cdf(x, mean, last))
    assert_mean(ends, mean, variance, detects=0.25)


def excess_risks(method, budget, *, num_records, replicates, dim=4):
    """Excess risks on fresh noiseless regressions, whose risk is known."""
    found = []
    for seed in range(replicates):
        made = dps.datasets.growth_regression(
            num_records, dim, seed=seed, exponent=2.0, signal=0.7
        )
        problem = Problem(
            made.dataset.features,
            made.dataset.response,
            loss=dps.losses.Squared(),
            domain=dps.domains.Ball(1.0),
            row_bound=made.dataset.row_bound,
            response_bound=made.dataset.response_bound,
        )
        fit = minimize(problem, method, budget, seed=seed)
        found.append(0.5 * made.excess_risk(fit.theta))
    return np.array(found), problem.facts


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_measured_risk_is_below_the_bound(budget):
    method = LocalizedClippedGD()
    risks, facts = excess_risks(method, budget, num_records=2000, replicates=8)
    bound = method.risk_bound(facts, budget)
    assert risks.mean() <= bound < 50.0 * risks.max()


@pytest.mark.slow
@pytest.mark.parametrize("num_records", [1000, 10_000, 100_000])
def test_measured_risk_is_below_the_bound_at_many_sizes(num_records):
    method = LocalizedClippedGD()
    risks, facts = excess_risks(method, BUDGET, num_records=num_records, replicates=40)
    error = risks.std() / math.sqrt(len(risks))
    assert risks.mean() + 5.0 * error <= method.risk_bound(facts, BUDGET)


def test_default_step_and_threshold_minimize_the_bound():
    facts = logistic(20_000, 5).facts
    best = LocalizedClippedGD(moment=0.05, order=4.0)
    bound = best.risk_bound(facts, BUDGET)
    clip = best.recipe(facts, BUDGET).inputs["clip"]
    assert 0.05 < clip < 1.0
    for factor in (0.5, 2.0):
        other = LocalizedClippedGD(moment=0.05, order=4.0, clip=factor * clip)
        assert other.risk_bound(facts, BUDGET) > 0.99 * bound


def test_bound_scales_as_stated():
    facts = logistic(100_000, 5).facts
    n, d, gdp = 100_000, 5, gdp_from_budget(1.0, 1e-6)
    rate = 3.27 / math.sqrt(n) + 16.0 * math.sqrt(d) / (gdp * n)
    assert LocalizedClippedGD().risk_bound(facts, BUDGET) <= 1.05 * 2.0 * rate


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_the_documented_rate_is_that_of_the_bound(order):
    """The docstring's exponents and constants, where clipping binds."""
    n, dim, gdp, k = 2**40, 10_000, 1e-5, order
    scales = HeavyTailedScales(dim, gdp, 2.0, math.inf, 1.0, k, 1.0, 2.0, None)
    plan = plan_of(scales, Block(0, n, 1.0), 1e-6)
    bound = plan.gap(1.0) + 2.0 * scales.bias(plan.clip)
    doc = inspect.getdoc(LocalizedClippedGD.risk_bound).replace("\n", " ")
    factor, constant = re.search(r"frac\{(\d?)k\}\{k-1\}.*?frac\{(\d+) ", doc).groups()
    rate = int(factor or 1) * k / (k - 1.0)
    rate *= (int(constant) * math.sqrt(dim) / (gdp * n)) ** ((k - 1.0) / k)
    rms = scales.root_mean_square(plan.clip)
    assert 0.9 < bound / (3.3 * rms / math.sqrt(n) + rate) < 1.01


def test_printed_schedule_is_the_printed_one():
    problem = logistic(4096, 3)
    facts, k, order = problem.facts, 2.0, 4.0
    recipe = LocalizedClippedGD(order=order, max_steps=50).recipe(
        facts, BUDGET, "paper"
    )
    n, d, eps, radius, lip = 4096, 3, 1.0, 2.0, 1.0
    inverse = eps / math.sqrt(d * math.log(1e6) * math.log(n))
    privacy = (inverse * n) ** (-(k - 1.0) / k)
    p = max(1.0, 2.0 * math.log(lip / (n**-0.5 + privacy)) / math.log(n))
    eta = (radius / n ** (p / 2.0)) * min(
        1.0 / lip,
        1.0 / (n ** ((p + 1.0) / 2.0) * privacy),
        1.0 / (n ** ((p - 1.0) / 2.0) * math.sqrt(math.log(n) * math.log(20.0))),
    )
    assert recipe.inputs["printed_steps_of_first_phase"] >= 2048.0**2
    for i, phase in enumerate(recipe.phases, 1):
        size = 4096 >> i
        eta_i = eta / 4.0**i
        ridge = 1.0 / (eta_i * size ** (2.0 * p if i == 1 else p))
        clip = (inverse * size) ** (1.0 / k)
        stddev = 8.0 * clip * math.sqrt(math.log(1e6)) / (size * ridge * eps)
        assert phase.step.ridge == pytest.approx(ridge, rel=1e-12)
        assert phase.output_stddev == pytest.approx(stddev, rel=1e-12)
        assert phase.estimator.threshold == pytest.approx(clip, rel=1e-12)
        assert phase.num_steps <= 50
        assert phase.batches.last - phase.batches.first == size


def test_printed_noise_is_private_for_linear_margins_and_conservative():
    recipe = LocalizedClippedGD(order=4.0).recipe(
        logistic(4096, 3).facts, BUDGET, "paper"
    )
    spent = epsilon_of(recipe.event, delta=1e-6, relation="replace_one")
    assert 0.2 < spent < 0.3
    method = LocalizedClippedGD(order=4.0, max_steps=20)
    fit = minimize(logistic(256, 3), method, BUDGET, calibration="paper")
    assert not fit.certificate.releasable


def test_solved_phases_end_where_all_published_steps_do():
    """Truncated at more steps than are published, the phases are not truncated."""
    problem = logistic(64, 3)
    solved, descended, cut = (
        minimize(
            problem,
            LocalizedClippedGD(order=4.0, max_steps=max_steps),
            BUDGET,
            calibration="paper",
            seed=3,
        )
        for max_steps in (None, 10**9, 3)
    )
    kinds = [fit.certificate.kind for fit in (solved, descended, cut)]
    assert kinds == ["localized/printed", *["localized/truncated"] * 2]
    # n^-2 of the start's distance is what the published number of steps leaves.
    error = np.abs(solved.theta - descended.theta).max()
    assert error <= 2.0 / 64**2 * np.abs(solved.theta).max()
    proved = [fit.certificate.epsilon_proved for fit in (solved, descended, cut)]
    assert proved[0] == pytest.approx(proved[1], rel=1e-2) and proved[2] <= proved[1]
    assert not solved.certificate.releasable


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"moment": 0.0}, "moment"),
        ({"order": 1.0}, "order"),
        ({"clip": 0.0}, "clip"),
        ({"distance": math.inf}, "distance"),
        ({"accuracy": 0.0}, "accuracy"),
        ({"max_steps": 0}, "max_steps"),
        ({"failure": 1.0}, "failure"),
    ],
)
def test_bad_numbers_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        LocalizedClippedGD(**fields)


def test_missing_public_bounds_are_named():
    whole = logistic(100, 2, domain=dps.domains.WholeSpace()).facts
    with pytest.raises(ValueError, match="distance"):
        LocalizedClippedGD().recipe(whole, BUDGET)
    unbounded = squared(100, 2, domain=dps.domains.WholeSpace()).facts
    with pytest.raises(ValueError, match="moment"):
        LocalizedClippedGD(distance=1.0).recipe(unbounded, BUDGET)
    with pytest.raises(ValueError, match="order"):
        LocalizedClippedGD().recipe(logistic(100, 2).facts, BUDGET, "paper")
    with pytest.raises(ValueError, match="at least 2"):
        LocalizedClippedGD().recipe(logistic(1, 2).facts, BUDGET)
