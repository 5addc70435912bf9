"""Factorized Metropolis: detailed balance, law, resume, counts, refusals."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import FactorizedMetropolis, SamplingError
from dpsample.samplers.chain import COUNT, NUM_STATS
from tests.support.factorized_cases import (
    CASES,
    log_acceptance,
    log_gaussian,
    prepared,
    replaced,
)
from tests.support.gibbs_cases import example
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected
from tests.support.tiers import one_in, slow

L, D = dps.losses, dps.domains
NUM_DRAWS = 4_500


@one_in(6)
@pytest.mark.parametrize("name", CASES)
def test_detailed_balance_holds_without_randomness(name):
    chain, case = prepared(name), CASES[name]
    points = case.exact(np.random.default_rng(1), 40)
    for x, y in zip(points[::2], points[1::2], strict=True):
        flow = log_acceptance(chain, x, y) - log_acceptance(chain, y, x)
        flow += log_gaussian(chain.plan, y) - log_gaussian(chain.plan, x)
        expected = case.energy(x[None])[0] - case.energy(y[None])[0]
        assert flow == pytest.approx(expected, abs=1e-8)


def test_the_expansion_is_at_the_mode_and_exact_for_the_gaussian():
    chain = prepared("plane")
    plan, target = chain.plan, chain.target
    assert np.abs(target.gradient(plan.anchor)).max() < 1e-8
    assert np.abs(plan.shift).max() < 1e-8
    np.testing.assert_allclose(plan.whiten @ plan.factor, np.eye(2), atol=1e-12)
    precision, width = plan.whiten.T @ plan.whiten, 1e-5
    for j, unit in enumerate(np.eye(2)):
        change = target.gradient(plan.anchor + width * unit)
        change -= target.gradient(plan.anchor - width * unit)
        np.testing.assert_allclose(change / (2 * width), precision[j], rtol=1e-6)


def one_step(chain, starts, rng):
    """One draw from each start."""
    advance, ends = chain.runner(), np.empty_like(starts)
    for start, end in zip(starts, ends, strict=True):
        advance(chain.init(start), rng, end[None], np.empty((1, NUM_STATS)))
    return ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "is_sparse", "step"),
    [
        (slow if (2 * is_sparse + turn) % 4 else pytest.param)(name, is_sparse, step)
        for turn, name in enumerate(CASES)
        for is_sparse, step in ((False, None), (True, 0.5))
    ],
)
def test_one_step_keeps_the_target(name, is_sparse, step):
    case, chain = CASES[name], prepared(name, is_sparse, step)
    rng = np.random.default_rng(11)
    assert law_margin(case, one_step(chain, case.exact(rng, NUM_DRAWS), rng)) <= 1.0


@pytest.mark.parametrize("name", ["plane"])
def test_a_chain_without_its_remainders_is_seen(name):
    case, chain = CASES[name], prepared(name, False, 1.0)
    plan = chain.plan
    bare = plan._replace(channel_weights=0.0 * plan.channel_weights, slope=np.empty(0))
    rng = np.random.default_rng(12)
    ends = one_step(replaced(chain, bare), case.exact(rng, NUM_DRAWS), rng)
    assert_rejected(law_margin(case, ends))


@pytest.mark.parametrize("name", CASES)
def test_resume_is_bit_identical(name):
    chain = prepared(name)
    advance = chain.runner()
    whole, parts = np.empty((70, 2)), np.empty((70, 2))
    stats = [np.empty((70, NUM_STATS)) for _ in range(2)]
    advance(chain.init(), np.random.default_rng(3), whole, stats[0])
    rng, state = np.random.default_rng(3), chain.init()
    for first, last in ((0, 3), (3, 19), (19, 70)):
        rows = slice(first, last)
        advance(state, rng, parts[rows], stats[1][rows])
        restored = chain.init(state.position)
        for field in ("energy", "counts", "memory"):
            getattr(restored, field)[:] = getattr(state, field)
        state = restored
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(*stats)


def large(loss, **rest):
    return example(loss, D.WholeSpace(), num_records=4000, k=2000.0, mu=0.1, **rest)


def test_few_records_are_read_and_all_are_counted():
    chain = FactorizedMetropolis().prepare(
        large(L.Logistic()).target, np.random.default_rng(0)
    )
    state, stats = chain.init(), np.empty((2000, NUM_STATS))
    chain.runner()(state, np.random.default_rng(1), np.empty((2000, 2)), stats)
    counts = state.counts
    assert 0 < counts[COUNT.records] < 2000
    assert counts[COUNT.records] == stats[:, 4].sum()
    assert counts[COUNT.proposals] == 2000
    assert counts[COUNT.accepted] > 1900
    assert np.isnan(stats[:, 0]).all()


def test_a_quadratic_energy_needs_no_record():
    chain = FactorizedMetropolis().prepare(
        large(L.Squared()).target, np.random.default_rng(0)
    )
    state = chain.init()
    chain.runner()(
        state, np.random.default_rng(1), np.empty((50, 2)), np.empty((50, NUM_STATS))
    )
    assert chain.plan.step == 1.0
    assert state.counts[COUNT.records] == 0
    assert state.counts[COUNT.accepted] == 50


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_wrong_bound_is_reported_and_not_clipped(is_sparse):
    chain = prepared("plane", is_sparse, 1.0)
    plan = chain.plan._replace(cubic=0.02 * chain.plan.cubic)
    wrong = replaced(chain, plan._replace(coefficients=plan.coefficients * 0.02))
    with pytest.raises(SamplingError, match="bound"):
        wrong.runner()(
            wrong.init(),
            np.random.default_rng(1),
            np.empty((20_000, 2)),
            np.empty((20_000, NUM_STATS)),
        )


def test_far_starts_cost_one_pass_at_most():
    chain = prepared("plane", False, 1.0)
    state = chain.init(np.array([300.0, -500.0]))
    chain.runner()(
        state, np.random.default_rng(1), np.empty((3, 2)), np.empty((3, NUM_STATS))
    )
    assert state.counts[COUNT.records] <= 3 * 12


def test_refusals_name_a_way_out():
    sampler = FactorizedMetropolis()
    wide = example(
        L.Logistic(), D.WholeSpace(), dim=60, num_records=4000, k=50.0, mu=0.002
    )
    flat = example(L.Linear(), D.Ball(1.0), mu=0.0)
    for case, word in (
        (example(L.Hinge(), D.Ball(1.0)), "LaplaceIndependence"),
        (example(L.PowerFour(), D.WholeSpace(), mu=0.3), "LaplaceIndependence"),
        (wide, "records per draw"),
        (flat, "singular"),
    ):
        is_supported, reason = sampler.supports(case.target)
        assert not is_supported
        assert word in reason
        with pytest.raises(ValueError, match=word):
            sampler.prepare(case.target, np.random.default_rng(0))
