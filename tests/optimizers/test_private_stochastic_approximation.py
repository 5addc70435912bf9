"""Localized runs in shrinking balls and on growing blocks."""

import itertools
import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import (
    IteratedLocalizedClippedGD,
    LocalizedClippedGD,
    PrivateStochasticApproximation,
)
from dpsample.optimizers.algorithms.localized_clipped_gd import num_runs
from dpsample.optimizers.loop.clipping import block_sizes, growth_bound
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.privacy import epsilon_of
from dpsample.problem.problem import Problem
from dpsample.running.descent import DescentError
from tests.support.clipped_cases import BUDGET, ZERO_OUT, logistic, rows_and_labels
from tests.support.descents import descend

METHODS = (PrivateStochasticApproximation, IteratedLocalizedClippedGD)


def growing(num_records, dim=3, *, seed=0, exponent=2.0, radius=1.0):
    """Noiseless regression with exact growth, and its problem."""
    made = dps.datasets.growth_regression(
        num_records, dim, seed=seed, exponent=exponent, signal=0.7
    )
    losses = {2.0: dps.losses.Squared(), 4.0: dps.losses.PowerFour()}
    data = made.dataset
    problem = Problem(
        data.features,
        data.response,
        loss=losses[exponent],
        domain=dps.domains.Ball(radius),
        row_bound=data.row_bound,
        response_bound=data.response_bound,
    )
    return made, problem


@pytest.mark.parametrize(
    ("num_records", "runs", "blocks"),
    [
        (10**3, 2, (100, 200, 401)),
        (10**4, 4, (752, 1505, 3010)),
        (10**5, 5, (6020, 12041, 24082, 48164)),
        (10**6, 7, (50171, 100343, 200686, 401373)),
    ],
)
def test_table_of_runs_and_blocks(num_records, runs, blocks):
    assert num_runs(num_records) == runs
    assert block_sizes(num_records, 2.0) == blocks
    inside = 2 * num_records / math.log2(num_records)
    assert num_runs(num_records) == math.floor(0.5 * math.log2(inside)) - 1


@pytest.mark.parametrize("least_exponent", [1.4, 1.7, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("num_records", [10**4, 12_345, 10**6])
def test_blocks_fit_into_the_records(least_exponent, num_records):
    sizes = block_sizes(num_records, least_exponent)
    assert 0 < sum(sizes) <= num_records and sizes[0] >= 1
    power = math.log(2.0) / math.log(least_exponent)
    first = num_records / math.log2(num_records) ** power
    assert sizes == tuple(math.floor(2**i * first) for i in range(len(sizes)))
    assert len(sizes) == max(1, math.floor(power * math.log2(math.log2(num_records))))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_no_record_belongs_to_two_phases(method, calibration):
    recipe = method(order=4.0).recipe(logistic(3000, 2).facts, BUDGET, calibration)
    blocks = [getattr(phase, "batches", phase) for phase in recipe.phases]
    spans = sorted((block.first, block.last) for block in blocks)
    assert spans[0][0] >= 0 and spans[-1][1] <= 3000
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_radii_halve_and_iterates_stay_in_the_balls():
    rows, _ = rows_and_labels(2000, 3)
    problem = Problem(
        rows,
        np.where(rows[:, 0] > 0.0, 1.0, -1.0),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(5.0),
        row_bound=1.0,
    )
    recipe = PrivateStochasticApproximation(distance=0.02).recipe(problem.facts, None)
    radii = [phase.local_radius for phase in recipe.phases]
    runs = [
        [phase for phase in recipe.phases if phase.local_radius == radius]
        for radius in sorted(set(radii), reverse=True)
    ]
    assert [run[0].local_radius for run in runs] == [0.02 / 2**i for i in range(3)]
    assert [phase.keeps_ball for phase in runs[0]] == [False] + [True] * (
        len(runs[0]) - 1
    )
    start, phases, reached = np.zeros(3), (), 0
    for run in runs:
        phases += tuple(run)
        part = Recipe(phases=phases, event=None, inputs={})
        end = descend(problem, part, np.random.default_rng(0)).theta
        far = np.linalg.norm(end - start)
        assert far <= run[0].local_radius * (1.0 + 1e-9)
        reached += far > 0.99 * run[0].local_radius
        start = end
    assert reached >= 1  # the balls matter here


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_every_run_spends_the_budget_on_its_own_records(method, budget):
    shift = 2.0 if budget is BUDGET else 1.0
    recipe = method(accuracy=1e-3).recipe(logistic(4000, 3).facts, budget)
    for phase in recipe.phases:
        size = phase.last - phase.first
        moved = shift * phase.estimator.threshold / (size * phase.ridge)
        moved += 2.0 * math.sqrt(2.0 * phase.gap / phase.ridge)
        assert moved / phase.output_stddev == pytest.approx(recipe.event.gdp, rel=1e-9)
    spent = epsilon_of(recipe.event, delta=budget.delta, relation=budget.relation)
    assert spent == pytest.approx(budget.epsilon, rel=1e-9)


def test_one_block_is_a_localized_run():
    problem = logistic(300, 2)
    inner = LocalizedClippedGD().recipe(problem.facts, BUDGET)
    assert num_runs(300) == 2 and num_runs(40) == 1
    small = logistic(40, 2)
    one = PrivateStochasticApproximation().recipe(small.facts, None)
    plain = LocalizedClippedGD().recipe(small.facts, None)
    ends = [
        descend(small, recipe, np.random.default_rng(0)).theta
        for recipe in (one, plain)
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)
    assert len(inner.phases) == 8


@pytest.mark.parametrize("exponent", [2.0, 4.0])
def test_measured_risk_of_iterated_runs_is_below_the_growth_bound(exponent):
    method, risks = IteratedLocalizedClippedGD(), []
    for seed in range(6):
        made, problem = growing(4000, seed=seed, exponent=exponent)
        fit = minimize(problem, method, BUDGET, seed=seed)
        risks.append(made.excess_risk(fit.theta))
    scale = 0.5 if exponent == 2.0 else 1.0  # Squared is half of the square
    bound = method.risk_bound(
        problem.facts, BUDGET, exponent=exponent, constant=scale * made.constant
    )
    assert scale * np.mean(risks) <= bound < math.inf


def test_measured_risk_in_balls_is_below_the_bound():
    method, risks = PrivateStochasticApproximation(), []
    for seed in range(6):
        made, problem = growing(4000, seed=seed)
        fit = minimize(problem, method, BUDGET, seed=seed)
        risks.append(0.5 * made.excess_risk(fit.theta))
    assert np.mean(risks) <= method.risk_bound(problem.facts, BUDGET)


def test_the_bound_in_balls_counts_noise_that_leaves_them():
    """The clipping bias acts all the way to the output, which may be outside."""
    facts = growing(10, seed=1)[1].facts
    method = PrivateStochasticApproximation(order=2.0, moment=1e-3, clip=2e-3)
    scales = method.scales(facts, BUDGET)
    (plan,) = method._plans(facts, scales)
    away = 2.0 * scales.distance + math.sqrt(facts.dim) * plan.stages[-1].stddev
    least = plan.gap(scales.distance**2) + scales.bias(plan.clip) * away
    assert method.risk_bound(facts, BUDGET) >= least


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_growth_makes_iterated_runs_better_than_one(method):
    means = []
    for one in (method(), LocalizedClippedGD()):
        risks = []
        for seed in range(40):
            made, problem = growing(100_000, seed=seed)
            fit = minimize(problem, one, BUDGET, seed=seed)
            risks.append(0.5 * made.excess_risk(fit.theta))
        means.append(np.mean(risks))
    assert means[0] < means[1]


def test_growth_bound_iterates_the_definition():
    gaps = (lambda spread: 0.3 * spread, lambda spread: 0.3 * spread)
    plain = growth_bound(
        gaps, (0.0, 0.0), distance=2.0, diameter=9.0, exponent=2.0, constant=0.6
    )
    assert plain == pytest.approx(0.3 * (0.3 * 4.0) / 0.6)
    biased = growth_bound(
        gaps[:1], (0.1,), distance=2.0, diameter=9.0, exponent=4.0, constant=0.6
    )
    assert biased == pytest.approx(1.2 + 0.1 * (biased / 0.6) ** 0.25, rel=1e-12)
    slow = growth_bound(
        gaps, (0.0, 0.0), distance=2.0, diameter=2.0, exponent=1.5, constant=2.0
    )
    assert slow == pytest.approx(0.3 * 1.2 / 2.0 * math.sqrt(2.0))


def test_printed_growth_bound_needs_enough_growth():
    facts = logistic(10**6, 2).facts
    method = PrivateStochasticApproximation()
    strong = method.printed_growth_bound(facts, BUDGET, exponent=2.0, constant=1.0)
    weak = method.printed_growth_bound(facts, BUDGET, exponent=2.0, constant=1e-6)
    assert strong < math.inf and weak == math.inf
    with pytest.raises(ValueError, match="exponent"):
        method.printed_growth_bound(facts, BUDGET, exponent=1.0, constant=1.0)


@pytest.mark.parametrize("method", METHODS)
def test_printed_versions_run_and_state_what_is_proved(method):
    fit = minimize(
        logistic(500, 2),
        method(order=4.0, max_steps=10),
        BUDGET,
        calibration="paper",
    )
    assert not fit.certificate.releasable
    assert 0.0 < fit.certificate.epsilon_proved < 1.0


def test_bad_numbers_are_refused():
    for bad in (1.0, math.inf, math.nan, -2.0):
        with pytest.raises(ValueError, match="least_exponent"):
            IteratedLocalizedClippedGD(least_exponent=bad)
    with pytest.raises(ValueError, match="least_exponent must be larger"):
        block_sizes(100, 1.05)
    with pytest.raises(ValueError, match="num_records"):
        num_runs(1)


def test_an_overflow_is_an_error_inside_a_local_ball_too():
    """Planted: what is not a number was taken for a step back to the ball's center."""
    rows = np.tile([[1e55, 1.0], [1e55, -1.0]], (8, 1))
    problem = dps.Problem(
        rows,
        np.full(16, 1e300),
        loss=dps.losses.Squared(),
        domain=dps.domains.Ball(2.0),
        row_bound=2e55,
        response_bound=math.inf,
    )
    method = dps.optimizers.PrivateStochasticApproximation(distance=1.0, moment=1.0)
    with pytest.raises(DescentError):
        dps.minimize(problem, method, seed=0)
