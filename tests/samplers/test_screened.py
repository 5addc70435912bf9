"""Screening by distance: the energies and draws of all records, from a few of them."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.core.jit import kernel
from dpsample.losses import loss as losses_module
from dpsample.samplers.chain import COUNT, NUM_STATS, STAT
from dpsample.samplers.proximal import metric, screened
from tests.support.allowances import assert_same_bits, chain_of
from tests.support.gibbs_cases import example
from tests.support.replicates import law_margin
from tests.support.statistics import rejected
from tests.support.tiers import usual

L, D = dps.losses, dps.domains
LOSSES = [L.Hinge(), L.Absolute(), L.Quantile(level=0.3)]
NAMES = [loss.name for loss in LOSSES]
PROXIMAL = dps.samplers.Proximal(step_size=0.02)


@kernel(cached=False)
def energy(*arguments):
    """Called from a kernel as in a chain: Python may not call what passes on lists."""
    return screened.energy(*arguments)


@kernel(cached=False)
def energy_gradient(*arguments):
    """As `energy`."""
    return screened.energy_gradient(*arguments)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_losses_are_linear_on_both_sides_of_their_kink(loss):
    rng = np.random.default_rng(1)
    y = np.sign(rng.standard_normal(200))
    kink = loss.kink(y)
    for side in (-1.0, 1.0):
        a, b = kink + side * rng.exponential(size=(2, 200))
        rise = loss.value(b, y) - loss.value(a, y)
        assert np.allclose(rise, loss.slope(a, y) * (b - a), rtol=0.0, atol=1e-12)
    assert (loss.slope(kink + 0.1, y) - loss.slope(kink - 0.1, y) > 0.5).all()


def test_only_losses_with_one_kink_and_enough_records_are_screened():
    kinked = {name for name, kind in losses_module.registry.items() if has_kink(kind)}
    assert kinked == set(NAMES)
    few = example(L.Hinge(), D.Ball(1.0), num_records=screened.MIN_RECORDS - 1).target
    smooth = example(L.Logistic(), D.Ball(1.0), num_records=400).target
    for target in (few, smooth):
        prepared = PROXIMAL.prepare(target, np.random.default_rng(0))
        assert prepared.bounds is None and prepared.trial.share == 1.0


def has_kink(kind):
    return kind.kink is not L.Logistic.kink


def targets(loss):
    """Dense, with an offset, and sparse with empty rows."""
    dense = example(loss, D.Ball(1.0), dim=3, num_records=400, k=500.0)
    yield dense.target
    offset = np.random.default_rng(2).uniform(-1.0, 1.0, 400)
    yield dataclasses.replace(dense, offset=offset).target
    rows = sparse.random_array((400, 3), density=0.4, rng=np.random.default_rng(3))
    problem = dps.Problem(
        rows.tocsr(),
        dense.response,
        loss=loss,
        domain=D.Ball(1.0),
        row_bound=10.0,
        response_bound=5.0,
    )
    yield dps.Gibbs(problem, k=500.0, mu=0.1)


class Balls:
    """Levels of one target, for points that the test chooses."""

    def __init__(self, target, **changes):
        self.target = target
        option = metric.candidates(target, oracle="metric")[0]
        self.screen = screened.new_screen(target, option.plan(0.2))._replace(**changes)
        self.state = screened.init(target, np.zeros(target.dim))
        self.fixed = (target.numbers, target.pieces, self.screen, self.state)

    def errors(self, rng, count):
        """Errors of energies and gradients, relative to their size; levels used."""
        target, found, levels = self.target, [], []
        w, gradient = np.zeros(target.dim), np.empty(target.dim)
        for _ in range(count):
            way = rng.standard_normal((2, target.dim)) / np.sqrt(target.dim)
            lengths = self.screen.reach * 10.0 ** rng.uniform(-1.0, 1.5, 2)
            w = target.domain.project(w + lengths[0] * way[0])
            value = energy_gradient(*self.fixed, w, gradient)
            slope = target.gradient(w)
            z = w + lengths[1] * way[1]
            before = self.state.counts[COUNT.records]
            at_z = energy(*self.fixed, z)
            levels.append(int(self.state.counts[COUNT.records] - before))
            for here, there in ((value, target.energy(w)), (at_z, target.energy(z))):
                found.append(abs(here - there) / (1.0 + abs(there)))
            found.append(np.abs(gradient - slope).max() / target.k)
        return np.array(found), levels


@usual("quantile")
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_energies_and_gradients_are_those_of_all_records(loss):
    for target in targets(loss):
        errors, levels = Balls(target).errors(np.random.default_rng(4), 120)
        assert errors.max() <= 1e-12
        assert max(levels) == 400 and min(levels) < 100 and len(set(levels)) > 20


@usual("0.8-quantile")
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("share", [0.0, 0.8])
def test_records_that_are_decided_too_early_are_noticed(loss, share):
    target = next(targets(loss))
    norms = share * np.linalg.norm(target.data.dense, axis=1)
    errors, _ = Balls(target, norms=norms).errors(np.random.default_rng(4), 300)
    assert errors.max() > 1e-9


def screened_chain(target, sampler=PROXIMAL):
    """Prepared chain that is screened, whether that pays or not."""
    prepared = sampler.prepare(target, np.random.default_rng(0))
    screen = screened.new_screen(target, prepared.metric.plan(prepared.trial.step))
    return dataclasses.replace(prepared, bounds=screen)


def run(prepared, seed, count, state=None):
    state = prepared.init() if state is None else state
    draws, stats = np.empty((count, prepared.target.dim)), np.empty((count, NUM_STATS))
    prepared.runner()(state, np.random.default_rng(seed), draws, stats)
    return draws, stats, state


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_the_draws_are_those_of_the_plain_chain(loss):
    for target in targets(loss):
        chain = screened_chain(target)
        plain = dataclasses.replace(chain, bounds=None)
        draws, stats, state = run(chain, 5, 400)
        expected, full, at_end = run(plain, 5, 400)
        assert np.allclose(draws, expected, rtol=0.0, atol=1e-9)
        assert np.allclose(
            stats[:, : STAT.num_values], full[:, : STAT.num_values], rtol=1e-9
        )
        assert np.array_equal(
            state.counts[: COUNT.records], at_end.counts[: COUNT.records]
        )
        assert state.counts[COUNT.records] < 0.6 * at_end.counts[COUNT.records]


def test_a_chain_goes_on_from_what_a_checkpoint_keeps():
    prepared = screened_chain(next(targets(L.Hinge())))
    _, _, state = run(prepared, 6, 30)
    fresh = prepared.init()
    for name in ("position", "energy", "memory", "counts"):
        getattr(fresh, name)[:] = getattr(state, name)
    ends = [run_on(prepared, each, 7) for each in (state, fresh)]
    assert_same_bits(ends[0], ends[1])


def run_on(prepared, state, seed):
    draws, stats, _ = run(prepared, seed, 30, state)
    return draws, stats, state.memory, state.counts


def test_pauses_change_no_bit(monkeypatch):
    prepared = screened_chain(next(targets(L.Absolute())))
    whole, _ = chain_of(prepared, monkeypatch, np.inf, 12)
    for units in (1, 7):
        cut, pauses = chain_of(prepared, monkeypatch, units, 12)
        assert_same_bits(cut, whole)
        assert pauses > 0


MANY = {"num_records": 300, "k": 300.0}
LAWS = {
    "hinge on an interval": example(L.Hinge(), D.Ball(1.0), dim=1, **MANY),
    "absolute on a square": example(L.Absolute(), D.Box(0.3, 0.9), **MANY),
    "quantile on a box": example(L.Quantile(level=0.3), D.Box(0.0, 1.0), dim=1, **MANY),
}


# Short enough that no start in the tail takes millions of tries.
STEPS = dict(zip(LAWS, (0.06, 0.04, 0.06), strict=True))


def after_steps(prepared, starts, num_steps):
    """Last of some steps from each start, and the share of records in a pass."""
    state, rng, ends = prepared.init(), np.random.default_rng(8), np.empty_like(starts)
    shape = num_steps, starts.shape[1]
    draws, stats = np.empty(shape), np.empty((num_steps, NUM_STATS))
    runner = prepared.runner()
    for i, start in enumerate(starts):
        state.position[:] = start
        runner(state, rng, draws, stats)
        ends[i] = draws[-1]
    counts = prepared.counts(state)
    passes = counts["values"] + counts["gradients"]
    return ends, counts["records"] / passes / prepared.target.data.num_records


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_steps_from_the_law_keep_it(name):
    case = LAWS[name]
    starts = case.exact(np.random.default_rng(9), 4000)
    prepared = screened_chain(case.target, dps.samplers.Proximal(step_size=STEPS[name]))
    ends, share = after_steps(prepared, starts, 8)
    assert law_margin(case, ends) <= 1.0 and share < 0.7
    early = prepared.bounds._replace(norms=np.zeros(300))
    early = dataclasses.replace(prepared, bounds=early)
    with rejected():  # linear wherever a ball reaches: every proposal is accepted
        margin = law_margin(case, after_steps(early, starts[:1500], 8)[0])
        assert margin <= 1.0, f"law statistic {margin:.2f}"


def test_a_release_evaluates_fewer_records():
    data = dps.datasets.logistic(4000, 5, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=L.Hinge(),
        domain=D.Ball(radius=3.0),
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    answer = dps.release(problem, budget, seed=1, sampler=dps.Proximal())
    counts = answer.nonprivate_diagnostics["counts"]
    assert counts["records"] < 0.25 * 4000 * (counts["values"] + counts["gradients"])


@pytest.mark.slow
def test_lists_of_several_blocks_of_sparse_records():
    features = sparse.random_array((5000, 3), density=0.4, rng=np.random.default_rng(6))
    problem = dps.Problem(
        features.tocsr(),
        np.sign(np.random.default_rng(7).standard_normal(5000)),
        loss=L.Hinge(),
        domain=D.Ball(1.0),
        row_bound=10.0,
    )
    target = dps.Gibbs(problem, k=500.0, mu=0.1)
    assert target.data.block < 2500
    errors, levels = Balls(target).errors(np.random.default_rng(4), 100)
    assert errors.max() <= 1e-12 and min(levels) < target.data.block < max(levels)


def test_one_steep_record_does_not_hide_the_losses_of_the_others():
    features, offset = np.zeros((300, 2)), np.full(300, -0.99)
    features[0, 0], features[1:, 1] = 1e9, 1e-3
    offset[0] = -1.0 + 1e-6  # of loss 1e-6 at 0, and 1e7 at w
    problem = dps.Problem(
        features,
        -np.ones(300),
        loss=L.Hinge(),
        domain=D.Box(0.0, 1.0),
        row_bound=1e9,
        offset=offset,
        offset_bound=1.0,
    )
    balls = Balls(dps.Gibbs(problem, k=300.0, mu=1.0))
    w, z = np.array([0.01, 0.0]), np.zeros(2)
    energy_gradient(*balls.fixed, w, np.empty(2))
    assert energy(*balls.fixed, z) == pytest.approx(balls.target.energy(z), rel=1e-12)


def test_equal_losses_of_many_records_add_up():
    """One by one, their rounding errors had one sign: 4e-12 of the sum."""
    rows, y = np.full((200_000, 1), 0.3), np.full(200_000, 0.8)
    y[::100] = 0.05
    problem = dps.Problem(
        rows,
        y,
        loss=L.Absolute(),
        domain=D.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )
    balls = Balls(dps.Gibbs(problem, k=2e5, mu=0.1))
    errors, _ = balls.errors(np.random.default_rng(4), 20)
    assert errors.max() <= 1e-13
