"""Certified draws, and one step from exact draws, have the law of the quadrature."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog

import dpsample as dps
from dpsample.core.jit import kernel, pointer
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.proximal import alternation, envelope_draws, metric
from dpsample.samplers.proximal.proximal import ProximalSetting
from dpsample.targets import gibbs_target
from tests.support.gibbs_targets import CASES
from tests.support.replicates import certified, law_margin, replicate
from tests.support.statistics import assert_rejected
from tests.support.tiers import by_turns, one_in, slow_but, usual

GAMMA = 1e-4  # far below what the tests can see
COUNT = 8_000
FULL = "logistic on a ball"
BOUNDARY = "logistic, mode on the sphere"
SEPARABLE = "hinge, p = 1.2, plane"
MANY_STEPS = ("fourth power on a ball",)


def prepare(case, seed=1):
    rng = np.random.default_rng(seed)
    return dps.Proximal().prepare(case.target, rng, gamma=GAMMA)


def options(case, seed=2):
    """Every valid metric with the step that its pilot would choose."""
    rng = np.random.default_rng(seed)
    setting = ProximalSetting.from_sampler(dps.Proximal(), case.target)
    for option, bound in setting.options:
        yield option, setting.search_step(option, bound, rng, GAMMA).trial.step


@usual("mode on the sphere", "around 6, mode")
@pytest.mark.parametrize(
    "name",
    slow_but(CASES, {*list(CASES)[::3], FULL, BOUNDARY} - {*MANY_STEPS}),
)
def test_certified_draws_have_the_law_of_the_quadrature(name):
    case, rng = CASES[name], np.random.default_rng(3)
    sample = certified(prepare(case), GAMMA, COUNT // 2, rng)
    assert case.inside(sample).all()
    assert law_margin(case, sample) < 1.0


@usual("logistic on the box [5, 7]", "hinge, p = 1.2, l_1 ball")
@pytest.mark.parametrize("name", by_turns(CASES, 1, turns=3))
def test_one_step_leaves_exact_draws_exact_in_every_metric(name):
    case, rng = CASES[name], np.random.default_rng(4)
    starts = case.exact(rng, COUNT)
    assert law_margin(case, starts) < 1.0
    for option, step in options(case):
        moved = replicate(case.target, option, starts, rng, step=step)
        assert case.inside(moved).all()
        assert not np.any(np.all(moved == starts, axis=1))
        assert law_margin(case, moved) < 1.0, option.name


@usual("tangent")
@pytest.mark.parametrize("oracle", ["metric", "tangent"])
def test_both_oracles_draw_from_the_same_law(oracle):
    case = CASES[FULL]
    rng = np.random.default_rng(5)
    prepared = dps.Proximal(oracle).prepare(case.target, rng, gamma=GAMMA)
    assert law_margin(case, certified(prepared, GAMMA, COUNT, rng)) < 1.0


def test_all_metrics_are_in_use():
    names = {option.name for case in CASES.values() for option, _ in options(case)}
    assert names == {"full", "isotropic", "diagonal", "separable"}


def test_the_halfspace_is_in_use_when_the_mode_is_on_the_boundary():
    case = CASES[BOUNDARY]
    prepared = prepare(case)
    full = next(o for o, _ in options(case) if o.name == "full")
    trial = dataclasses.replace(prepared.trial, step=0.1)
    prepared = dataclasses.replace(prepared, metric=full, trial=trial)
    state, rows = prepared.init(), (np.empty((1, case.dim)), np.empty((1, NUM_STATS)))
    prepared.runner()(state, np.random.default_rng(0), *rows)
    support = state.workspace.support
    assert support.status["has_halfspace"][0]
    assert np.linalg.norm(support.normal) == pytest.approx(1.0)


# Planted bugs: each must be caught by the check that the sampler passes above.


@cache
def long_step(name, option_name):
    """Metric, plan and exact starts of one long step, which is exact itself."""
    case, rng = CASES[name], np.random.default_rng(6)
    option = next(o for o, _ in options(case) if o.name == option_name)
    step = min(1.0, option.pilot_steps()[1])
    plan = option.plan(step, squeeze=False)
    starts = case.exact(rng, 4 * COUNT)
    good = replicate(case.target, option, starts, rng, step=step, plan=plan)
    assert law_margin(case, good) < 1.0
    return option, step, plan, starts


def moved_with(name, change, *, option_name="full", count=4 * COUNT):
    """Margin after one long step of a chain whose plan is changed."""
    case, rng = CASES[name], np.random.default_rng(7)
    option, step, plan, starts = long_step(name, option_name)
    option, plan = change(option, plan)
    bad = replicate(case.target, option, starts[:count], rng, step=step, plan=plan)
    return law_margin(case, bad)


BUGS = {
    "spread 10 % too large": lambda o, p: (o, p._replace(spread=1.1 * p.spread)),
    "spread 10 % too small": lambda o, p: (o, p._replace(spread=0.9 * p.spread)),
    "envelope without its quadratic": lambda o, p: (o, p._replace(tangent=0.0)),
    "noise of another step": lambda o, p: (o, p._replace(step=1.5 * p.step)),
    "gradient in the wrong metric": lambda o, p: (o, p._replace(inverse=2 * p.inverse)),
}


@usual("gradient in the wrong metric")
@pytest.mark.parametrize("bug", by_turns(BUGS))
def test_planted_bug_is_caught(bug):
    # Without its quadratic the envelope is so wide that a draw takes many trials.
    count = COUNT if bug.startswith("envelope") else 4 * COUNT
    assert_rejected(moved_with("squared on the plane", BUGS[bug], count=count))


@pytest.mark.slow
def test_a_lost_part_of_the_kept_regularizer_is_caught():
    def change(option, plan):
        return option, plan._replace(kappa=0.5 * plan.kappa)

    assert_rejected(moved_with(SEPARABLE, change, option_name="separable"))


@kernel
def gaussian_cut(body, regularizer, plan, mean, support, scratch, rng, out):
    """Halfspace moved inwards by a tenth of the radius."""
    support.status[0].offset -= 0.1 * body.radius
    envelope_draws.draw_in_halfspace(
        body, regularizer, plan, mean, support, scratch, rng, out
    )
    support.status[0].offset += 0.1 * body.radius


@pytest.mark.slow
def test_a_halfspace_that_cuts_the_domain_is_caught():
    def change(option, plan):
        cut = pointer(gaussian_cut, envelope_draws.DRAW)
        return dataclasses.replace(option, draw=cut), plan

    assert_rejected(moved_with(BOUNDARY, change))


def test_a_metric_that_promises_too_much_curvature_raises():
    case = CASES[FULL]
    option, step = next(iter(options(case)))
    plan = option.plan(step, squeeze=False)
    wrong = plan._replace(precision=1.5 * plan.precision)
    starts = case.exact(np.random.default_rng(8), 2_000)
    with pytest.raises(dps.SamplingError, match="acceptance ratio was above 1"):
        rng = np.random.default_rng(9)
        replicate(case.target, option, starts, rng, step=step, plan=wrong)


def test_a_margin_bound_around_the_wrong_center_raises(monkeypatch):
    """Margins measured from 0 instead of the ball's center at 6: the spec's trap."""
    case = CASES["logistic on a ball around 6, mode on the boundary"]
    target = dps.Gibbs(case.target.problem, k=case.k, mu=case.mu)
    size = np.abs(case.rows[:, 0]) * 1.0
    monkeypatch.setitem(vars(target), "margin_intervals", lambda: (-size, size))
    with pytest.raises(dps.SamplingError, match="acceptance ratio was above 1"):
        prepared = dps.Proximal().prepare(target, np.random.default_rng(1))
        certified(prepared, GAMMA, 200, np.random.default_rng(2))


@pytest.mark.parametrize("name", [FULL, BOUNDARY, "fourth power on a ball"])
def test_squeeze_changes_no_draw(name):
    case = CASES[name]
    option, step = next(iter(options(case)))
    starts = case.exact(np.random.default_rng(10), 500)
    squeezed, plain = (
        replicate(
            case.target,
            option,
            starts,
            np.random.default_rng(11),
            step=step,
            plan=option.plan(step, squeeze=squeeze),
        )
        for squeeze in (True, False)
    )
    np.testing.assert_array_equal(squeezed, plain)


@one_in(8)
@pytest.mark.parametrize("name", CASES)
def test_the_gap_lies_between_zero_and_its_ceiling(name):
    """No coin: the acceptance ratio itself, on random pairs of the domain."""
    case = CASES[name]
    rng = np.random.default_rng(12)
    points, others = case.exact(rng, 400), case.exact(rng, 400)
    for option, step in options(case):
        plan, numbers = option.plan(step), option.numbers(case.target)
        work, scratch = case.target.new_work(), np.empty(case.dim)
        gradient = np.empty(case.dim)
        for w, x in zip(points, others, strict=True):
            u_w = gibbs_target.energy_gradient(
                numbers, case.target.pieces, w, work, gradient
            )
            u_x = gibbs_target.energy(numbers, case.target.pieces, x, work)
            gap, slack = alternation.gap_and_slack(
                plan, u_x, u_w, gradient, x - w, scratch
            )
            assert gap >= -slack
            if plan.squeeze:
                assert gap <= 0.5 * (x - w) @ plan.gap_curvature @ (x - w) + slack


@pytest.mark.slow
@pytest.mark.parametrize("far", [1.0, 1e6, 1e12])
def test_halfspaces_of_far_means_contain_the_polytope(far):
    rng = np.random.default_rng(10)
    walls = np.vstack([rng.standard_normal((14, 3)), np.eye(3), -np.eye(3)])
    ends = np.repeat([1.0, 3.0], [14, 6])
    problem = dps.Problem(
        [[0.1, 0.2, 0.3]],
        [1.0],
        loss=dps.losses.Logistic(),
        domain=dps.domains.Polytope(walls, ends),
        row_bound=1.0,
    )
    target = dps.Gibbs(problem, k=1.0, mu=1.0)
    (option,) = metric.candidates(target, oracle="metric")[:1]
    plan, state = option.plan(0.1), dps.Proximal().prepare(target, rng).init()
    numbers, support = option.numbers(target), state.workspace.support
    for mean in far * rng.choice([-10.0, 10.0], (20, 3)):
        code = alternation.set_halfspace(numbers, target.pieces, plan, state, mean)
        normal, offset = support.normal, support.status["offset"][0]
        assert code == 0 and support.status["has_halfspace"][0]
        assert normal @ mean > offset
        farthest = linprog(-normal, walls, ends, bounds=(None, None))
        assert -farthest.fun <= offset  # far by 1e12 it was 4e-4 beyond
        assert offset + farthest.fun < 1e-9
