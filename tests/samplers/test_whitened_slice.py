"""Whitened slice sampler: one-sweep invariance, caches, pauses, planted bugs."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.samplers import HitAndRun, WhitenedSlice
from dpsample.samplers.adaptive import whitened_slice
from dpsample.samplers.adaptive.whitened_slice import MEMORY
from dpsample.samplers.gaussian_fit import fit
from tests.support.allowances import assert_same_bits, chain_of
from tests.support.gibbs_cases import example
from tests.support.line_targets import TARGETS, copied, draw
from tests.support.sampler_grid import exact_starts, fast_draws, grid_case
from tests.support.sampler_margins import law_margin
from tests.support.statistics import assert_rejected, assert_same_law, rejected
from tests.support.tiers import one_in, slow, slow_but

L, D = dps.losses, dps.domains
CELLS = [
    ("whole space", "hinge"),
    ("ball", "absolute"),
    ("box", "hinge"),
    ("simplex", "absolute"),
    ("l_1 ball", "hinge"),
    ("polytope", "logistic"),
]


def prepared_for(target, **options):
    return WhitenedSlice(**options).prepare(target, np.random.default_rng(0))


def margin_of(prepared, domain, loss, *, count=6000, num_draws=1, run=None):
    """Margin of the last of a few draws from exact starts."""
    starts, rng = exact_starts(domain, loss, count), np.random.default_rng(3)
    draws = fast_draws(prepared, starts, rng, num_draws, run=run)
    return law_margin(grid_case(domain, loss), draws[:, -1])


@one_in(12)
@pytest.mark.parametrize("name", TARGETS)
def test_draws_stay_inside_and_report_their_energy(name):
    target = TARGETS[name]
    prepared = prepared_for(target)
    draws, stats = draw(prepared, prepared.init(), np.random.default_rng(2), 1500)
    assert all(target.domain.contains(theta) for theta in draws)
    energies = [target.energy(theta) for theta in draws[::50]]
    np.testing.assert_allclose(stats[::50, 0], energies, rtol=1e-9, atol=1e-9)
    assert len(np.unique(draws[:, 0])) > 1400


@one_in(3)
@pytest.mark.parametrize(("domain", "loss"), CELLS)
def test_a_sweep_from_exact_draws_leaves_the_law(domain, loss):
    prepared = prepared_for(grid_case(domain, loss).target)
    for num_draws in (1, 3):
        assert margin_of(prepared, domain, loss, num_draws=num_draws) <= 1.0


def bent(prepared):
    """Chain in a poor metric: oblique directions, one of them far too short."""
    plan, shear = prepared.plan, np.array([[1.0, 0.7], [0.0, 0.2]])
    directions, columns = shear @ plan.directions, shear @ plan.columns
    poor = plan._replace(directions=directions, columns=columns, tilt=shear @ plan.tilt)
    return dataclasses.replace(prepared, plan=poor)


def test_the_law_needs_no_good_metric():
    prepared = bent(prepared_for(grid_case("ball", "hinge").target))
    assert margin_of(prepared, "ball", "hinge", num_draws=3) <= 1.0


LEVEL, MOVED = (
    "    rise = rng.standard_exponential()\n",
    (
        "    shift(state.memory[MEMORY.margins :], plan.columns[i], t)\n"
        "    # Sum and energy follow the move, without another pass.\n"
        "    state.memory[MEMORY.total] = total\n"
    ),
)
# A domain, whether the metric is poor, and a change of the text.
BUGS = {
    "no level": ("whole space", False, LEVEL, "    rise = 1.0\n"),
    "stale margins": ("whole space", False, MOVED, "    pass\n"),
    "a guess is not tested": (
        "whole space",
        True,
        "phase, num_points = PHASE.left_end, 0",
        "phase, num_points = PHASE.inside, 0",
    ),
    "no regularizer": ("box", False, "strength = target.k * target.mu", "strength = 0"),
    "no linear part": ("whole space", False, "+ plan.tilt[i] * t", ""),
}


def interpreted(old="", new=""):
    """Loop of the sampler in plain Python, with a change of its text."""
    source = inspect.getsource(whitened_slice)
    assert source.count(old) == 1 or not old
    first, last = source.index("@kernel("), source.index("run = compile_run")
    lines = source.replace(old, new)[first : last + len(new) - len(old)].splitlines()
    names = dict(vars(whitened_slice))
    kept = [text for text in lines if not text.startswith("@kernel")]
    exec("\n".join(kept), names)

    def run(target, pieces, plan, state, rng, num_steps, draws, stats):
        del num_steps, stats
        for out in draws:
            code = names["step"](target, pieces, plan, state, rng)
            if code != 0:
                return code, 0
            out[:] = state.position
        return 0, len(draws)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("cell", [("box", "absolute"), ("whole space", "logistic")])
def test_compiled_and_interpreted_sweeps_agree(cell):
    prepared = prepared_for(grid_case(*cell).target)
    starts = exact_starts(*cell, 50)
    pair = [
        fast_draws(prepared, starts, np.random.default_rng(4), 3, run=run)
        for run in (None, interpreted())
    ]
    np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", slow_but(BUGS, ("stale margins",)))
def test_a_planted_bug_is_caught(name):
    domain, is_poor, *change = BUGS[name]
    prepared = prepared_for(grid_case(domain, "hinge").target)
    prepared = bent(prepared) if is_poor else prepared
    run, options = interpreted(*change), {"count": 3000, "num_draws": 2}
    assert_rejected(margin_of(prepared, domain, "hinge", run=run, **options))


@one_in(3)
@pytest.mark.parametrize("name", ["hinge, l_1.5 ball", "quantile, polytope"])
def test_resuming_is_bit_identical(name):
    prepared = prepared_for(TARGETS[name])
    state = prepared.init()
    draw(prepared, state, np.random.default_rng(6), 170)
    assert 0.0 < state.memory[MEMORY.age] < 100.0
    other = copied(prepared, state)
    one = draw(prepared, state, np.random.default_rng(7), 150)
    two = draw(prepared, other, np.random.default_rng(7), 150)
    assert_same_bits((one[0], one[1][:, 0]), (two[0], two[1][:, 0]))


def test_pauses_between_blocks_and_evaluations_change_no_bit(monkeypatch):
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(20_000, 2)) / 3.0
    problem = dps.Problem(
        rows,
        np.sign(rows[:, 0] + 0.3 * rng.normal(size=len(rows))),
        loss=L.Hinge(),
        domain=D.WholeSpace(),
        row_bound=10.0,
    )
    prepared = prepared_for(dps.Gibbs(problem, k=100.0, mu=0.1))
    whole, _ = chain_of(prepared, monkeypatch, np.inf, 110)
    cut, pauses = chain_of(prepared, monkeypatch, 1, 110)
    assert_same_bits(cut, whole)
    assert pauses > 110 * 2 * 2  # after all evaluations but the last of a line


@pytest.mark.parametrize("loss", [L.Hinge(), L.Absolute(), slow(L.Quantile(0.2))])
def test_sums_of_distances_are_sums_of_losses(loss):
    case = example(
        loss, D.Box(-0.5, 1.0), num_records=40, offset=np.linspace(-1, 1, 40)
    )
    prepared = prepared_for(case.target)
    assert len(prepared.plan.breakpoints) == 40
    plain = prepared_for(case.target)
    plan = plain.plan._replace(
        breakpoints=np.empty(0), tilt=np.zeros(2), weight=case.k / 40.0
    )
    plain = dataclasses.replace(plain, plan=plan)
    pair = [
        draw(one, one.init(), np.random.default_rng(9), 250)[0]
        for one in (prepared, plain)
    ]
    np.testing.assert_allclose(*pair, rtol=1e-7, atol=1e-9)


def test_losses_without_one_kink_have_no_distances():
    for loss in (L.Logistic(), L.Huber(0.5)):
        plan = prepared_for(example(loss, D.Ball(1.0)).target).plan
        assert plan.breakpoints.size == 0 and not plan.tilt.any()


def correlated(*, is_sparse=False):
    """Records with correlated columns of very different scales."""
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(300, 5)) @ np.linalg.cholesky(0.9 + 0.1 * np.eye(5)).T
    labels = np.sign(rows @ np.array([1.0, -2.0, 0.5, 1.0, 0.0]) + rng.normal(size=300))
    rows *= 10.0 ** np.linspace(-1.0, 1.0, 5)
    rows[np.abs(rows) < 0.1] = 0.0
    problem = dps.Problem(
        sparse.csr_matrix(rows) if is_sparse else rows,
        labels,
        loss=L.Hinge(),
        domain=D.WholeSpace(),
        row_bound=100.0,
    )
    return dps.Gibbs(problem, k=300.0, mu=0.02)


def test_sparse_features_are_dense_ones():
    dense, thin = prepared_for(correlated()), prepared_for(correlated(is_sparse=True))
    plan = thin.plan
    np.testing.assert_allclose(
        plan.columns, plan.directions @ dense.target.data.dense.T
    )
    pair = [
        draw(one, one.init(dense.start), np.random.default_rng(11), 130)[0]
        for one in (dense, thin)
    ]
    np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-8)


def ends(prepared, seed):
    """Last draws of many independent chains."""
    starts, rng = np.tile(prepared.start, (1500, 1)), np.random.default_rng(seed)
    return fast_draws(prepared, starts, rng, 15)[:, -1]


@pytest.mark.slow
def test_chains_end_with_the_law_of_hit_and_run():
    target = correlated()
    found = ends(prepared_for(target), 12)
    other = HitAndRun(num_steps=10).prepare(target, np.random.default_rng(0))
    expected = ends(other, 13)
    views = np.hstack([np.eye(5), np.ones((5, 1))])
    for a, b in zip((found @ views).T, (expected @ views).T, strict=True):
        assert_same_law(a, b)
    wrong = dps.Gibbs(target.problem, k=target.k / 10.0, mu=target.mu)
    warmer = ends(prepared_for(wrong), 14)
    with rejected():
        assert_same_law(*(np.abs(x[:, 0] - x[:, 0].mean()) for x in (warmer, expected)))


def cone(num_records=20, dim=30):
    """Separable records and a weak prior: soft walls hold a wide cone."""
    rows = np.random.default_rng(16).normal(size=(num_records, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels, domain = np.sign(rows[:, 0]), D.WholeSpace()
    problem = dps.Problem(rows, labels, loss=L.Hinge(), domain=domain, row_bound=1.0)
    return dps.Gibbs(problem, k=30.0 * num_records, mu=1e-6)


def learned(target, factors=1.0, **options):
    found = fit(target)
    wrong = dataclasses.replace(found, factor=found.factor * factors)
    return whitened_slice.learn_axes(target, wrong, np.random.default_rng(0), **options)


def test_sweeps_learn_axes_that_the_fit_does_not_know():
    target = cone()
    warm, again = learned(target), learned(target, np.geomspace(30.0, 0.03, 30))
    assert warm.has_settled and again.has_settled
    assert warm.autocorrelation_time < 20.0 and again.autocorrelation_time < 20.0
    whiten, other = warm.plan.mass.whiten, again.plan.mass.factor
    ratios = np.linalg.svd(whiten @ other, compute_uv=False)
    assert 0.4 < ratios.min() and ratios.max() < 2.5
    assert not np.triu(other, 1).any()
    assert not learned(target, max_records_read=0.0).has_settled


def test_axes_are_those_of_the_stream():
    pair = [learned(cone()).plan.mass.factor for _ in range(2)]
    np.testing.assert_array_equal(*pair)


def test_columns_that_need_too_much_memory_are_refused(monkeypatch):
    target = correlated()
    assert WhitenedSlice().supports(target) == (True, "")
    monkeypatch.setattr(whitened_slice, "MAX_NUMBERS", 1499)
    with pytest.raises(ValueError, match="1500 numbers, more than 1499. Use HitAndRun"):
        prepared_for(target)


def test_num_steps_are_sweeps_of_a_draw():
    target = TARGETS["logistic, whole space"]
    single, double = prepared_for(target), prepared_for(target, num_steps=2)
    double = dataclasses.replace(double, plan=single.plan)
    start = single.start
    one = draw(single, single.init(start), np.random.default_rng(8), 20)[0]
    two = draw(double, double.init(start), np.random.default_rng(8), 10)[0]
    np.testing.assert_array_equal(one[1::2], two)
    with pytest.raises(ValueError, match="num_steps must be an integer >= 1, got 0"):
        WhitenedSlice(num_steps=0)


def test_the_sum_over_the_records_is_that_of_the_margins():
    prepared = prepared_for(correlated())
    state = prepared.init()
    draws, _ = draw(prepared, state, np.random.default_rng(15), 199)
    target = prepared.target
    margins = target.data.dense @ draws[-1] - target.data.response
    np.testing.assert_allclose(state.memory[2:], margins, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        state.memory[MEMORY.total], np.abs(margins).sum(), rtol=1e-11
    )
