"""Accelerated clipped SGD: textbook, schemes, noise, bounds."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import AcceleratedClippedSGD
from dpsample.optimizers.loop.batches import Full, Slices
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import (
    SCHEMES,
    GaussianNoise,
    epoch,
    forecast,
)
from dpsample.optimizers.loop.steps import AcceleratedStep
from dpsample.privacy import epsilon_of, gdp_from_budget, shuffle_local_noise
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    GaussianEvent,
    PoissonGaussianEvent,
)
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    clipped,
    into_ball,
    logistic,
    logistic_gradients,
    squared,
)
from tests.support.descents import descend
from tests.support.tiers import one_in


def test_without_budget_it_is_textbook_acceleration():
    problem = logistic(120, 3, domain=dps.domains.Ball(0.8))
    method = AcceleratedClippedSGD(scheme="disjoint", num_steps=6, clip=0.3)
    recipe = method.recipe(problem.facts, None)
    rows, labels = problem.data.dense, problem.data.response
    eta = recipe.inputs["eta"]
    w = ag = np.zeros(3)
    for t in range(1, 7):
        alpha, part = 2.0 / (t + 1.0), slice((t - 1) * 20, t * 20)
        md = (1.0 - alpha) * ag + alpha * w
        g = clipped(logistic_gradients(rows[part], labels[part], md), 0.3).mean(axis=0)
        w = into_ball(w - t / (2.0 * eta) * g, 0.8)
        ag = alpha * w + (1.0 - alpha) * ag
    fit = minimize(problem, method, None, seed=0)
    np.testing.assert_allclose(fit.theta, ag, rtol=0.0, atol=1e-14)
    assert fit.num_gradients == 120


def test_one_batch_is_one_projected_step_of_length_one_over_two_eta():
    problem = logistic(50, 2)
    method = AcceleratedClippedSGD(scheme="disjoint", num_steps=1)
    eta = method.recipe(problem.facts, None).inputs["eta"]
    rows, labels = problem.data.dense, problem.data.response
    g = logistic_gradients(rows, labels, np.zeros(2)).mean(axis=0)
    end = minimize(problem, method, None, seed=0).theta
    np.testing.assert_allclose(end, into_ball(-g / (2.0 * eta), 2.0), rtol=1e-13)


def accelerated_end(problem, eta, steps, stddev=0.0, seed=0, batches=None):
    phase = Loop(
        num_steps=steps,
        step=AcceleratedStep(eta),
        batches=batches or Full(),
        estimator=ClippedMean(threshold=math.inf),
        noise=GaussianNoise(stddev),
    )
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    return descend(problem, recipe, np.random.default_rng(seed)).theta


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_quadratics_without_noise_meet_the_accelerated_rate(steps):
    problem = squared(40, 3, domain=dps.domains.WholeSpace())
    rows, y = problem.data.dense, problem.data.response
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    eta = 2.0 * np.linalg.eigvalsh(rows.T @ rows / 40).max()
    end = accelerated_end(problem, eta, steps)
    gap = problem.risk(end) - problem.risk(best)
    assert -1e-15 <= gap <= 2.0 * eta * (best @ best) / (steps * (steps + 1))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3, 12])
def test_noise_costs_at_most_the_stated_term(steps):
    problem = squared(30, 1, domain=dps.domains.WholeSpace())
    rows, y = problem.data.dense[:, 0], problem.data.response
    curvature = (rows @ rows) / 30
    best = (rows @ y) / (rows @ rows)
    eta, stddev = 2.0 * curvature, 0.3
    gaps = np.array(
        [
            0.5
            * curvature
            * (accelerated_end(problem, eta, steps, stddev, seed)[0] - best) ** 2
            for seed in range(400)
        ]
    )
    bound = 2.0 * eta * best**2 / (steps * (steps + 1))
    bound += stddev**2 * (2 * steps + 1) / (6.0 * eta)
    assert gaps.mean() + 5.0 * gaps.std() / 20.0 <= bound


@pytest.mark.parametrize("scheme", ["disjoint", "shuffle", "best"])
def test_one_pass_schemes_read_every_record_at_most_once(scheme):
    method = AcceleratedClippedSGD(scheme=scheme, num_steps=7)
    recipe = method.recipe(logistic(100, 2).facts, BUDGET)
    slices = recipe.phases[0].batches
    assert isinstance(slices, Slices) and slices.size * 7 <= 100
    order = slices.numbers(100, np.random.default_rng(0)).order
    assert len(set(order.tolist())) == len(order)
    assert minimize(logistic(100, 2), method, BUDGET).num_gradients == 98


@one_in(2)
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_recorded_noise_proves_the_budget(scheme, budget):
    method = AcceleratedClippedSGD(scheme=scheme, num_steps=5, clip=0.5)
    recipe = method.recipe(logistic(1000, 3).facts, budget)
    stddev = recipe.inputs["noise_stddev"]
    shift = 2.0 if budget is BUDGET else 1.0
    if scheme == "poisson":
        event = PoissonGaussianEvent(
            sampling_rate=0.2, noise_multiplier=stddev * 200 / 0.5, num_steps=5
        )
    elif scheme == "shuffle":
        local = shuffle_local_noise(budget, num_records=1000).noise_multiplier
        assert stddev == pytest.approx(local * 0.5 / math.sqrt(200), rel=1e-9)
        event = ApproximateEvent(epsilon=1.0, delta=1e-6)
    else:  # few large batches: shuffling does not pay
        event = GaussianEvent(shift * 0.5 / 200 / stddev)
    spent = epsilon_of(event, delta=1e-6, relation=budget.relation)
    assert spent == pytest.approx(1.0, rel=1e-5)
    assert recipe.phases[0].noise.stddev == stddev


def test_best_takes_the_smaller_noise_of_the_one_pass_schemes():
    tight = dps.Budget(epsilon=0.05, delta=1e-8)
    for budget, steps in ((tight, 200), (BUDGET, 5)):
        found = {
            scheme: epoch(
                scheme,
                budget,
                record_bound=1.0,
                first=0,
                count=10_000,
                num_steps=steps,
            ).stddev
            for scheme in ("disjoint", "shuffle", "best")
        }
        assert found["best"] == min(found["disjoint"], found["shuffle"])
    assert found["disjoint"] < found["shuffle"]


def test_poisson_needs_the_least_noise_by_far():
    found = {
        scheme: epoch(
            scheme, BUDGET, record_bound=1.0, first=0, count=10_000, num_steps=100
        ).stddev
        for scheme in ("poisson", "disjoint", "shuffle")
    }
    assert found["poisson"] < 0.25 * min(found["disjoint"], found["shuffle"])


@pytest.mark.slow
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_forecast_is_close_to_the_calibrated_noise(budget):
    for scheme, accuracy in (("poisson", 0.4), ("disjoint", 1e-9), ("best", 1e-9)):
        guess = forecast(scheme, budget, 5000)
        for steps in (1, 10, 50):
            exact = epoch(
                scheme, budget, record_bound=1.0, first=0, count=5000, num_steps=steps
            ).stddev
            assert guess(steps) == pytest.approx(exact, rel=accuracy)


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_measured_risk_is_below_the_bound(budget):
    method, risks = AcceleratedClippedSGD(scheme="disjoint"), []
    for seed in range(8):
        made = dps.datasets.growth_regression(
            2000, 4, seed=seed, exponent=2.0, signal=0.7
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
        risks.append(0.5 * made.excess_risk(fit.theta))
    assert np.mean(risks) <= method.risk_bound(problem.facts, budget)


def test_poisson_bound_holds_for_the_empirical_risk():
    problem = logistic(2000, 3)
    method = AcceleratedClippedSGD()
    best = minimize(
        problem, AcceleratedClippedSGD(scheme="disjoint", num_steps=1), None, seed=0
    ).theta
    for _ in range(300):
        rows, labels = problem.data.dense, problem.data.response
        best = into_ball(
            best - 3.0 * logistic_gradients(rows, labels, best).mean(0), 2.0
        )
    program = descent.Program(problem, method.recipe(problem.facts, BUDGET))
    risks = [
        problem.risk(program.run(np.random.default_rng(seed)).theta)
        for seed in range(20)
    ]
    gap = np.mean(risks) - problem.risk(best)
    assert 0.0 < gap <= method.risk_bound(problem.facts, BUDGET)


def test_defaults_minimize_the_bound():
    facts = logistic(5000, 4).facts
    method = AcceleratedClippedSGD(scheme="disjoint", moment=0.1, order=4.0)
    bound = method.risk_bound(facts, BUDGET)
    inputs = method.recipe(facts, BUDGET).inputs
    for steps in (1, inputs["num_steps"], 4 * inputs["num_steps"]):
        for factor in (0.5, 1.0, 2.0):
            other = AcceleratedClippedSGD(
                scheme="disjoint",
                moment=0.1,
                order=4.0,
                num_steps=steps,
                clip=factor * inputs["clip"],
            )
            assert other.risk_bound(facts, BUDGET) >= bound * (1.0 - 1e-12)


def test_printed_noise_is_the_printed_one():
    facts = logistic(5000, 4).facts
    recipe = AcceleratedClippedSGD(moment=0.2).recipe(facts, BUDGET, "paper")
    root = 5000 / math.sqrt(4 * math.log(1e6))
    clip = 0.2 * root**0.5
    scale = math.sqrt(0.25 * 2.0 / 0.2)
    steps = math.ceil(scale * min(root**0.25, 5000**0.25))
    stddev = clip * math.sqrt(steps * math.log(1e6)) / 5000
    assert recipe.inputs["clip"] == pytest.approx(clip)
    assert recipe.inputs["num_steps"] == steps
    assert recipe.inputs["noise_stddev"] == pytest.approx(stddev)
    moved = 2.0 * min(clip, 1.0) / (5000 // steps)
    assert recipe.event.gdp == pytest.approx(moved / stddev)


def test_noise_of_equal_gdp_is_shared_by_relations_up_to_the_shift():
    facts = logistic(1000, 2).facts
    found = [
        AcceleratedClippedSGD(scheme="disjoint", num_steps=4)
        .recipe(facts, budget)
        .inputs["noise_stddev"]
        for budget in (BUDGET, ZERO_OUT)
    ]
    assert found[0] == pytest.approx(2.0 * found[1], rel=1e-9)
    assert found[1] == pytest.approx(1.0 / 250 / gdp_from_budget(1.0, 1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"scheme": "epoch"}, "scheme"),
        ({"num_steps": 0}, "num_steps"),
        ({"order": 0.5}, "order"),
        ({"moment": -1.0}, "moment"),
    ],
)
def test_bad_numbers_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        AcceleratedClippedSGD(**fields)


@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_more_batches_than_records_are_refused(calibration):
    method, facts = AcceleratedClippedSGD(num_steps=101), logistic(100, 2).facts
    with pytest.raises(ValueError, match="num_steps"):
        method.recipe(facts, BUDGET, calibration)
