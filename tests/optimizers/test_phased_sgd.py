"""Phased SGD: textbook limit, one pass, sensitivity, law, risk bound."""

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

import dpsample as dps
from dpsample.optimizers import PhasedSGD
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.running import descent
from tests.support.descents import descend
from tests.support.mirror_cases import AxisLogistic, logistic_gradients, random_problem
from tests.support.public_facts import BUDGET, ZERO_OUT
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

RNG = np.random.default_rng(0)  # for runs that draw nothing


def textbook(problem, first_step):
    """Phases of averaged stochastic gradient descent, in NumPy."""
    w, first, n = np.zeros(problem.dim), 0, problem.num_records
    for i in range(1, n.bit_length()):
        size, step = n >> i, first_step * 0.25 ** (i - 1)
        iterates = []
        for record in range(first, first + size):
            w = w - step * logistic_gradients(problem, w)[record]
            iterates.append(w)
        w, first = np.mean(iterates, axis=0), first + size
    return w


def test_without_a_budget_it_is_phases_of_averaged_sgd():
    problem = random_problem(1, 45, 4)
    recipe = PhasedSGD(distance=1.0, step_size=0.7).recipe(problem.facts, None)
    assert recipe.event is None
    found = descend(problem, recipe, RNG)
    assert np.abs(found.theta - textbook(problem, 0.7)).max() < 1e-12
    assert found.num_gradients == 22 + 11 + 5 + 2 + 1


@pytest.mark.parametrize("scale", [1e-50, 1e-9, 1.0])
def test_steps_take_the_units_of_the_records(scale):
    """The best step is not lost in a difference of numbers of other sizes."""
    plan, unit = (
        PhasedSGD(distance=1.0)._plan(
            dps.PublicFacts(
                num_records=60,
                dim=3,
                row_bound=bound,
                row_norm=2.0,
                loss=dps.losses.Linear(),
                domain=dps.domains.WholeSpace(),
            ),
            BUDGET,
        )
        for bound in (scale, 1.0)
    )
    assert plan.steps[0] * scale == pytest.approx(unit.steps[0], rel=1e-12)
    assert plan.risk / scale == pytest.approx(unit.risk, rel=1e-12)


@pytest.mark.parametrize("num_records", [2, 3, 8, 63, 64, 1000])
def test_no_record_is_read_twice(num_records):
    facts = random_problem(2, num_records, 2).facts
    recipe = PhasedSGD(distance=1.0).recipe(facts, BUDGET)
    read = [
        record
        for phase in recipe.phases
        for record in range(phase.batches.first, phase.batches.last)
    ]
    assert len(read) == len(set(read)) <= num_records
    assert max(read) < num_records
    assert [p.num_steps for p in recipe.phases] == [
        p.batches.last - p.batches.first for p in recipe.phases
    ]
    assert recipe.phases[-1].num_steps == 1


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_recorded_noise_of_every_phase_gives_back_the_budget(budget):
    problem = random_problem(3, 100, 3)
    recipe = PhasedSGD(distance=1.0).recipe(problem.facts, budget)
    shift = 2.0 if budget.relation == "replace_one" else 1.0
    for phase in recipe.phases:
        step = float(phase.step.sizes[0])
        event = GaussianEvent(shift * 1.0 * step / phase.output_stddev)
        found = epsilon_of(event, delta=budget.delta, relation=budget.relation)
        assert found == pytest.approx(budget.epsilon, rel=1e-9)
    fit = dps.minimize(problem, PhasedSGD(distance=1.0), budget, seed=1)
    assert fit.certificate.epsilon_proved == pytest.approx(budget.epsilon, rel=1e-9)


def phase_ends(problem, recipe, index):
    """End of one phase without noise, from its start at zero."""
    phase = recipe.phases[index]
    only = Recipe(phases=(phase,), event=None, inputs={})
    return descend(problem, only, RNG).theta


@one_in(2)
@pytest.mark.parametrize("loss", [dps.losses.Logistic(), dps.losses.Huber(0.1)])
@pytest.mark.parametrize("domain", [dps.domains.WholeSpace(), dps.domains.Ball(0.3)])
def test_no_neighbor_moves_a_phase_further_than_declared(loss, domain):
    worst = 0.0
    lipschitz = 0.1 if loss.name == "huber" else 1.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((8, 2))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        y = rng.choice([-1.0, 1.0], 8)
        ends = []
        for flip in (1.0, -1.0):
            changed, response = rows.copy(), y.copy()
            changed[0] *= flip
            problem = dps.Problem(
                changed,
                response,
                loss=loss,
                domain=domain,
                row_bound=1.0,
                response_bound=1.0,
            )
            method = PhasedSGD(distance=1.0, step_size=1.5)
            recipe = method.recipe(problem.facts, None)
            ends.append(phase_ends(problem, recipe, 0))
        moved = np.linalg.norm(ends[0] - ends[1])
        worst = max(worst, moved / (2.0 * lipschitz * 1.5))
    assert worst <= 1.0 + 1e-12


def test_the_declared_sensitivity_is_attained_by_linear_losses():
    ends = []
    for sign in (1.0, -1.0):
        rows = np.tile([[1.0, 0.0]], (8, 1))
        rows[0] *= sign
        problem = dps.Problem(
            rows,
            np.ones(8),
            loss=dps.losses.Linear(),
            domain=dps.domains.WholeSpace(),
            row_bound=1.0,
        )
        recipe = PhasedSGD(distance=1.0, step_size=0.2).recipe(problem.facts, None)
        ends.append(phase_ends(problem, recipe, 0))
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(2.0 * 0.2, rel=1e-12)


def test_longer_steps_than_2_over_beta_would_break_the_sensitivity():
    # Huber's curvature is 1: steps of 2.5 expand what came before them.
    ends = []
    for y in (1.0, -1.0):
        w, response = 0.0, np.array([y, 0.0, 0.0, 0.0])
        for target in response:
            w = w - 2.5 * np.clip(w - target, -100.0, 100.0)
        ends.append(w)
    assert abs(ends[0] - ends[1]) > 2.5 * 2.0  # 2 eta times the gradients' change
    facts = random_problem(1, 20, 2, loss=dps.losses.Huber(1.0)).facts
    assert PhasedSGD(distance=1.0, step_size=2.0).recipe(facts, BUDGET)
    with pytest.raises(ValueError, match=r"step_size must be <= 2/beta = 2, got 2.5"):
        PhasedSGD(distance=1.0, step_size=2.5).recipe(facts, BUDGET)


def test_on_linear_losses_the_output_is_gaussian():
    problem = random_problem(4, 21, 3, loss=dps.losses.Linear())
    recipe = PhasedSGD(distance=1.0, step_size=0.3).recipe(problem.facts, BUDGET)
    gradients = -problem.data.response[:, None] * problem.data.dense
    mean, variance = np.zeros(3), 0.0
    for phase in recipe.phases:
        size, step = phase.num_steps, float(phase.step.sizes[0])
        used = gradients[phase.batches.first : phase.batches.last]
        mean = mean - step * (np.arange(size, 0, -1.0) / size) @ used
        variance += phase.output_stddev**2
    program = descent.Program(problem, recipe)
    rng = np.random.default_rng(5)
    draws = np.array([program.run(rng).theta for _ in range(600)])
    last = recipe.phases[0].output_stddev
    for j in range(3):
        z = (draws[:, j] - mean[j]) / math.sqrt(variance)
        assert_law(z, normal.cdf)
        with rejected():  # noise of half the size
            assert_law(2.0 * z, normal.cdf)
    assert math.sqrt(variance) == pytest.approx(last, rel=0.1)


def test_scaling_the_rows_scales_the_output_back():
    data = random_problem(6, 50, 3).data
    thetas, risks = [], []
    for factor in (1.0, 8.0):
        problem = dps.Problem(
            factor * data.dense,
            data.response,
            loss=dps.losses.Logistic(),
            domain=dps.domains.WholeSpace(),
            row_bound=factor,
        )
        method = PhasedSGD(distance=1.0 / factor)
        recipe = method.recipe(problem.facts, BUDGET)
        risks.append(recipe.inputs["risk_bound"])
        thetas.append(factor * descend(problem, recipe, np.random.default_rng(7)).theta)
    assert risks[0] == pytest.approx(risks[1], rel=1e-12)
    assert np.allclose(*thetas, rtol=1e-9)


def test_the_default_step_minimizes_the_bound():
    facts = random_problem(8, 5000, 10).facts
    best = PhasedSGD(distance=1.0)
    step = best.recipe(facts, BUDGET).inputs["first_step_size"]
    least = best.risk_bound(facts, BUDGET)
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = PhasedSGD(distance=1.0, step_size=factor * step)
        assert other.risk_bound(facts, BUDGET) > least
    gdp = best.recipe(facts, BUDGET).event.gdp
    closed = 1.64 / math.sqrt(5000) + 16.0 * math.sqrt(10) / (gdp * 5000)
    assert 0.5 * closed < least < closed * 1.1


def test_smooth_losses_cap_the_step():
    steep = random_problem(8, 4, 2, loss=dps.losses.SmoothedHinge(0.01)).facts
    recipe = PhasedSGD(distance=50.0).recipe(steep, None)
    assert recipe.inputs["first_step_size"] == pytest.approx(0.02, rel=1e-12)


def test_distances_of_other_norms_are_converted():
    facts = random_problem(9, 500, 16).facts
    for p, ratio in ((2.0, 1.0), (4.0, 2.0), (math.inf, 4.0)):
        one = PhasedSGD(distance=1.0, p=p).risk_bound(facts, BUDGET)
        assert one == PhasedSGD(distance=ratio).risk_bound(facts, BUDGET)
    ball = random_problem(9, 500, 16, domain=dps.domains.Ball(0.5)).facts
    own = PhasedSGD().risk_bound(ball, BUDGET)
    assert own == PhasedSGD(distance=0.5).risk_bound(ball, BUDGET)


def measured(num_runs, num_records):
    case = AxisLogistic([0.8, -0.5, 0.3, 0.0])
    method = PhasedSGD(distance=float(np.linalg.norm(case.optimum)))
    rng = np.random.default_rng(10)
    found = []
    for _ in range(num_runs):
        problem = case.problem(rng, num_records)
        recipe = method.recipe(problem.facts, BUDGET)
        found.append(case.excess(descend(problem, recipe, rng).theta))
    zero = case.excess(np.zeros(4))
    return np.mean(found), recipe.inputs["risk_bound"], zero


def test_measured_excess_risk_is_below_the_bound():
    mean, bound, zero = measured(5, 20_000)
    assert 0.0 < mean < bound
    assert mean < zero


@pytest.mark.slow
@pytest.mark.parametrize("num_records", [500, 5_000, 50_000])
def test_mean_excess_risk_of_40_runs_is_below_the_bound(num_records):
    mean, bound, _ = measured(40, num_records)
    assert mean < bound


def test_bad_input_is_refused_in_words():
    for change in ({"distance": 0.0}, {"p": 1.5}, {"step_size": -1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(change))} must be"):
            PhasedSGD(**change)
    facts = random_problem(1, 20, 3).facts
    with pytest.raises(ValueError, match="bounded without a distance"):
        PhasedSGD().recipe(facts, BUDGET)
    with pytest.raises(ValueError, match="No schedule is printed"):
        PhasedSGD(distance=1.0).recipe(facts, BUDGET, "paper")
    kinked = random_problem(1, 20, 3, loss=dps.losses.Hinge()).facts
    with pytest.raises(ValueError, match="of bounded curvature"):
        PhasedSGD(distance=1.0).recipe(kinked, BUDGET)
    single = random_problem(1, 1, 3).facts
    with pytest.raises(ValueError, match="num_records must be at least 2"):
        PhasedSGD(distance=1.0).recipe(single, BUDGET)
