"""The proximal step without randomness: its envelope, its ratio, its exact kernel."""

import dataclasses

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.chain import NUM_STATS, STAT
from dpsample.samplers.proximal import alternation, metric, proximal
from dpsample.targets import gibbs_target
from tests.support.gibbs_targets import CASES
from tests.support.replicates import certified, replicate
from tests.support.tiers import one_in, usual
from tests.support.unchecked_losses import unchecked

L, D = dps.losses, dps.domains
STEPS = (0.1, 1.0, 30.0)


class Envelope:
    """What the kernel proposes and accepts from y, in its own numbers."""

    def __init__(self, case, option, plan, y):
        self.case, self.option, self.plan = case, option, plan
        self.numbers, self.work = option.numbers(case.target), case.target.new_work()
        w, gradient, mean = (np.empty(case.dim) for _ in range(3))
        gibbs_target.project(self.numbers, case.target.pieces, y, w)
        args = (self.numbers, case.target.pieces, w, self.work)
        self.u_w = gibbs_target.energy_gradient(*args, gradient)
        alternation.set_envelope_mean(plan, y, w, gradient, mean)
        self.w, self.gradient, self.mean = w, gradient, mean

    def log_density(self, x):
        """Log of proposal density times acceptance ratio, up to a constant."""
        away, plan, scratch = x - self.mean, self.plan, np.empty(self.case.dim)
        u_x = gibbs_target.energy(self.numbers, self.case.target.pieces, x, self.work)
        gap, _ = alternation.gap_and_slack(
            plan, u_x, self.u_w, self.gradient, x - self.w, scratch
        )
        result = -0.5 * away @ plan.precision @ away / plan.spread**2 - gap
        if self.option.keeps_regularizer:
            exponent = self.case.shape[1]
            size = np.linalg.norm(x - self.case.center, ord=exponent)
            result -= 0.5 * plan.kappa * size**2
        return result


def mismatch(case, option, *, step, change=lambda plan: plan, seed=1):
    """Largest change over x of log(envelope x ratio) - log(conditional density)."""
    rng, worst = np.random.default_rng(seed), 0.0
    points = case.exact(rng, 200)
    plan = option.plan(step)
    for k in range(8):
        noise = plan.factor @ rng.normal(size=case.dim)
        y = points[k] + np.sqrt(step) * noise
        envelope = Envelope(case, option, change(plan), y)
        found = np.array([envelope.log_density(x) for x in points])
        square = np.einsum("ij,jk,ik->i", points - y, option.precision, points - y)
        found -= -case.energy(points) - 0.5 * square / step
        worst = max(worst, np.ptp(found))
    return worst


def options(name):
    return metric.candidates(CASES[name].target, oracle="metric")


@usual("hinge, p = 1.5, box-1.0")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", CASES)
def test_envelope_times_ratio_is_the_conditional_density(name, step):
    for option in options(name):
        assert mismatch(CASES[name], option, step=step) < 1e-8, option.name


BUGS = {
    "spread 0.1 % off": lambda p: p._replace(spread=1.001 * p.spread),
    "step 0.1 % off": lambda p: p._replace(step=1.001 * p.step),
    "envelope without its quadratic": lambda p: p._replace(tangent=0.0),
    "precision 0.1 % off": lambda p: p._replace(precision=1.001 * p.precision),
    "inverse 0.1 % off": lambda p: p._replace(inverse=1.001 * p.inverse),
}


@one_in(5)
@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_number_of_the_plan_is_seen(bug):
    name = "logistic with offset, ball off center"
    for option in options(name):
        wrong = mismatch(CASES[name], option, step=1.0, change=BUGS[bug])
        assert wrong > 1e-4, option.name


def test_a_lost_part_of_the_regularizer_is_seen():
    name = "hinge, p = 1.5, box"
    option, case = options(name)[-1], CASES[name]
    assert option.keeps_regularizer

    def change(plan):
        return plan._replace(kappa=0.999 * plan.kappa)

    assert mismatch(case, option, step=1.0, change=change) > 1e-4
    # A Gaussian draw keeps none: without it in the ratio it would be lost.
    name = "hinge on a ball"
    option = dataclasses.replace(options(name)[-1], keeps_regularizer=True)
    assert mismatch(CASES[name], option, step=1.0) > 1e-4


def transition(name, step, change=lambda plan: plan, size=60):
    """Exact transition matrix in one dimension, and the law on its grid."""
    case = CASES[name]
    option = options(name)[0]
    plan = option.plan(step)
    (lower,), (upper,) = case.frame
    x = lower + (upper - lower) * (np.arange(size) + 0.5) / size
    spread = np.sqrt(step / plan.precision[0, 0])
    y = np.linspace(lower - 7.0 * spread, upper + 7.0 * spread, 3 * size)
    forward = np.exp(-0.5 * ((x[:, None] - y) / spread) ** 2)
    backward = []
    for value in y:
        envelope = Envelope(case, option, change(plan), np.array([value]))
        logs = np.array([envelope.log_density(np.array([t])) for t in x])
        weights = np.exp(logs - logs.max())
        backward.append(weights / weights.sum())
    matrix = forward / forward.sum(1, keepdims=True) @ np.array(backward)
    weights = np.exp(case.lowest - case.energy(x[:, None]))
    return matrix, weights / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hinge", "logistic on the box [5, 7]"])
def test_the_exact_kernel_is_in_detailed_balance(name):
    matrix, law = transition(name, 1.0)
    flow = law[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-9)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-9)
    wrong, _ = transition(name, 1.0, BUGS["envelope without its quadratic"])
    assert np.abs(law @ wrong - law).max() > 1e-4


def promising(curvature):
    """sqrt(1 + (u - y)^2), whose true curvature is above 0.08 on the domain below."""
    loss = unchecked(
        lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        slope_bound=1.0,
        lower_curvature=curvature,
        upper_curvature=1.0,
    )
    rows = np.random.default_rng(1).normal(size=(20, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        np.full(20, 1.0),
        loss=loss,
        domain=D.Ball(1.0),
        row_bound=1.1,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=60.0, mu=0.05)


def drawn(run, state, count, *, seed):
    rows, stats = np.empty((count, state.position.size)), np.empty((count, NUM_STATS))
    run(state, np.random.default_rng(seed), rows, stats)
    return rows, stats


@pytest.mark.slow
def test_a_declared_curvature_that_does_not_hold_raises():
    arguments = {"num_draws": 2_000, "num_chains": 1, "progress": False, "seed": 1}
    arguments |= {"sampler": dps.Proximal(), "check": False}
    drawn = dps.sample(promising(0.05), **arguments)
    assert np.isfinite(drawn.posterior["theta"]).all()
    with pytest.raises(dps.SamplingError, match="acceptance ratio was above 1"):
        dps.sample(promising(0.9), **arguments)


@pytest.mark.slow
def test_a_failed_run_returns_no_position():
    """The kernel stops at the failure; rows that it did not fill stay NaN."""
    target = promising(0.9)
    option = metric.candidates(target, oracle="metric")[0]
    trial = proximal.Trial(step=0.3, work=1.0, acceptance=1.0)
    prepared = proximal.PreparedProximal(
        target=target, metric=option, trial=trial, start=np.zeros(2), start_bound=1.0
    )
    rows, stats = np.full((5_000, 2), np.nan), np.empty((5_000, NUM_STATS))
    with pytest.raises(dps.SamplingError):
        prepared.runner()(prepared.init(), np.random.default_rng(2), rows, stats)
    assert np.isnan(rows[-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_interpreted_step_equals_the_compiled_one(name):
    compiled = alternation.draw_given_y
    interpreted = getattr(compiled, "py_func", compiled)
    case = CASES[name]
    for option in options(name):
        plan = alternation.TangentPlan(option.plan(0.02), option.draw, 10_000)
        args = (option.numbers(case.target), case.target.pieces, plan)
        start = case.exact(np.random.default_rng(1), 1)[0]
        positions = []
        for draw_given_y in (compiled, interpreted):
            state, rng = (
                alternation.init(case.target, start),
                np.random.default_rng(2),
            )
            for _ in range(3):
                alternation.draw_y(plan.metric, state, rng)
                assert draw_given_y(*args, state, rng) == 0
            positions.append(state.position)
        np.testing.assert_allclose(*positions, rtol=1e-12, atol=1e-13)


@one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_energies_belong_to_their_draws(name):
    case = CASES[name]
    prepared = dps.Proximal().prepare(case.target, np.random.default_rng(3))
    state = prepared.init()
    rows, stats = drawn(prepared.runner(), state, 50, seed=4)
    energies = case.energy(rows)
    np.testing.assert_allclose(stats[:, STAT.energy], energies, rtol=1e-10, atol=1e-10)
    assert state.energy[0] == stats[-1, STAT.energy]


@one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_statistics_are_differences_of_the_counts(name):
    case = CASES[name]
    prepared = dps.Proximal().prepare(case.target, np.random.default_rng(3))
    state = prepared.init()
    _, stats = drawn(prepared.runner(), state, 50, seed=4)
    counts = prepared.counts(state)
    assert counts["accepted"] == 50
    assert 50 <= counts["inside"] <= counts["proposals"]
    assert (1.0 / stats[:, STAT.acceptance_rate]).sum() == pytest.approx(
        counts["proposals"]
    )
    for column, word in (
        (STAT.num_values, "values"),
        (STAT.num_gradients, "gradients"),
        (STAT.num_records, "records"),
    ):
        assert stats[:, column].sum() == counts[word]
    passes = counts["values"] + counts["gradients"]
    assert counts["records"] == passes * case.target.problem.num_records


def test_the_squeeze_saves_passes_and_moves_no_draw():
    case = CASES["logistic on a ball"]
    prepared = dps.Proximal().prepare(case.target, np.random.default_rng(3))
    plain, squeezed = prepared.init(), prepared.init()
    rows, _ = drawn(prepared.runner(), plain, 200, seed=4)
    same, stats = drawn(prepared.runner(squeeze=True), squeezed, 200, seed=4)
    np.testing.assert_array_equal(rows, same)
    assert np.isnan(stats[:, STAT.energy]).any()
    assert prepared.counts(squeezed)["values"] < prepared.counts(plain)["values"]


def test_a_given_step_size_is_kept():
    case = CASES["logistic on a ball"]
    sampler = dps.Proximal(step_size=0.37)
    prepared = sampler.prepare(case.target, np.random.default_rng(5))
    assert prepared.trial.step == 0.37
    assert prepared.certified_steps(1e-8) > prepared.num_warmup


@pytest.mark.slow
def test_replicates_are_runs_of_the_chain():
    """The tests' compiled loop makes the moves of `Prepared.runner`."""
    case = CASES["hinge on a ball"]
    prepared = dps.Proximal().prepare(case.target, np.random.default_rng(6))
    found = certified(prepared, 0.01, 1, np.random.default_rng(7))[0]
    count = prepared.num_warmup
    rows, _ = drawn(prepared.runner(squeeze=True), prepared.init(), count, seed=7)
    np.testing.assert_array_equal(found, rows[-1])
    again = replicate(
        case.target,
        prepared.metric,
        prepared.start[None],
        np.random.default_rng(7),
        step=prepared.trial.step,
        num_steps=count,
    )
    np.testing.assert_array_equal(found, again[0])
