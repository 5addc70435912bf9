"""Batched independence Metropolis: energies, weights, law, resume, refusals."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse, stats

import dpsample as dps
from dpsample.samplers import LaplaceIndependence
from dpsample.samplers.chain import COUNT, NUM_STATS
from dpsample.samplers.errors import SamplingError
from dpsample.samplers.metropolis import laplace_independence as module
from dpsample.samplers.metropolis.laplace_independence import (
    evaluate_energies,
    make_batch_work,
)
from tests.support.gibbs_cases import example
from tests.support.replicates import law_margin
from tests.support.statistics import assert_law, assert_rejected, rejected
from tests.support.tiers import one_in, usual
from tests.support.unchecked_losses import unchecked

L, D = dps.losses, dps.domains
OFFSET = [0.5, -1.0, 2.0, 0.0, 1.0, -0.3]
CASES = {
    "logistic on the plane": example(L.Logistic(), D.WholeSpace(), k=8.0, mu=0.3),
    "hinge on a ball": example(L.Hinge(), D.Ball(1.0)),
    "offset, ball off center": example(
        L.Logistic(), D.Ball(0.8, center=[0.5, -0.4]), k=40.0, offset=OFFSET
    ),
    "p = 1.5, box": example(L.Hinge(), D.Box(-0.5, 1.0), p=1.5),
}
NUM_DRAWS = 3000


@cache
def prepared(name, **options):
    sampler = LaplaceIndependence(**options)
    return sampler.prepare(CASES[name].target, np.random.default_rng(7))


def one_step(chain, starts, rng):
    """One step from each start, each with a batch of its own."""
    advance, ends = chain.runner(), np.empty_like(starts)
    for start, end in zip(starts, ends, strict=True):
        advance(chain.init(start), rng, end[None], np.empty((1, NUM_STATS)))
    return ends


def sparse_target(offset):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 9)) * (rng.random((300, 9)) < 0.6)
    problem = dps.Problem(
        sparse.csr_array(rows),
        rng.choice([-1.0, 1.0], 300),
        loss=L.Logistic(),
        domain=D.WholeSpace(),
        row_bound=10.0,
        offset=rng.normal(size=300) if offset else None,
        offset_bound=9.0 if offset else 0.0,
    )
    return dps.Gibbs(problem, k=3.0, mu=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("count", [1, 5, 32])
def test_energies_of_a_batch_are_those_of_its_points(count, offset):
    targets = [sparse_target(offset), *(case.target for case in CASES.values())]
    for target in targets:
        points = np.random.default_rng(1).normal(size=(count, target.dim))
        found = np.full(count, np.nan)
        work = make_batch_work(target, 32)
        evaluate_energies(target.numbers, target.pieces, points, work, found, 0)
        expected = [target.energy(point) for point in points]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_block_of_records_may_end_anywhere():
    target = example(L.Hinge(), D.Ball(1.0), num_records=3001, dim=3).target
    points = np.random.default_rng(1).normal(size=(7, 3))
    expected = [target.energy(point) for point in points]
    for size in (7, 7 * 1000, 7 * 3001, 7 * 4000):
        work = make_batch_work(target, 7)._replace(margins=np.empty(size))
        found = np.empty(7)
        evaluate_energies(target.numbers, target.pieces, points, work, found, 0)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@one_in(3)
@pytest.mark.parametrize("tail", [np.inf, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_weights_are_the_density_over_the_proposal(name, tail):
    case, chain = CASES[name], prepared(name, batch=16, tail=tail)
    state, plan = chain.init(), chain.plan
    advance = chain.runner()
    advance(state, np.random.default_rng(2), np.empty((1, 2)), np.empty((1, NUM_STATS)))
    held = int(state.workspace.header["num_inside"][0])
    assert held > 0
    points = state.workspace.proposals[:held]
    covariance = plan.factor @ plan.factor.T
    law = stats.multivariate_normal(plan.center, covariance)
    if tail < np.inf:
        law = stats.multivariate_t(plan.center, covariance, df=tail)
    constant = law.logpdf(plan.center)
    expected = -case.energy(points) - law.logpdf(points) + constant
    assert case.inside(points).all()
    np.testing.assert_allclose(
        state.workspace.log_weights[:held], expected, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        state.workspace.energies[:held], case.energy(points), rtol=1e-9
    )
    # A position is weighed like a proposal.
    other = chain.init(points[0])
    np.testing.assert_allclose(
        other.workspace.header["log_weight"][0], expected[0], rtol=1e-9, atol=1e-9
    )


@usual("hinge on a ball-inf")
@pytest.mark.parametrize("tail", [np.inf, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_one_step_keeps_the_target(name, tail):
    case, chain = CASES[name], prepared(name, batch=4, tail=tail)
    rng = np.random.default_rng(11)
    ends = one_step(chain, case.exact(rng, NUM_DRAWS), rng)
    assert law_margin(case, ends) <= 1.0


@pytest.mark.parametrize("name", ["hinge on a ball"])
def test_a_wrong_weight_is_seen(name):
    case, chain = CASES[name], prepared(name, batch=4)
    rng = np.random.default_rng(12)
    # Weights of positions and of proposals that disagree about the covariance.
    wrong = chain.plan._replace(whiten=0.5 * chain.plan.whiten)
    chain = LaplaceIndependence(batch=4)._build(case.target, wrong)
    assert_rejected(law_margin(case, one_step(chain, case.exact(rng, NUM_DRAWS), rng)))


@pytest.mark.slow
@pytest.mark.parametrize("tail", [np.inf, 3.0])
def test_proposals_have_the_tail_they_say(tail):
    plan = prepared("logistic on the plane", batch=4, tail=tail).plan
    rng, noise, point = np.random.default_rng(5), np.empty(2), np.empty(2)
    squares = np.array([module.propose(plan, rng, noise, point) for _ in range(20_000)])
    white = plan.whiten @ (point - plan.center)
    assert squares[-1] == pytest.approx(white @ white)
    gaussian, student = stats.chi2(2).cdf, lambda s: stats.f(2, 3.0).cdf(s / 2.0)
    right, wrong = (gaussian, student) if tail == np.inf else (student, gaussian)
    assert_law(squares, right)
    with rejected():
        assert_law(squares, wrong)


@one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_resume_is_bit_identical_anywhere_in_a_batch(name):
    chain = prepared(name, batch=16)
    advance = chain.runner()
    whole, parts = np.empty((70, 2)), np.empty((70, 2))
    stats_of = [np.empty((70, NUM_STATS)) for _ in range(2)]
    advance(chain.init(), np.random.default_rng(3), whole, stats_of[0])
    rng, state = np.random.default_rng(3), chain.init()
    for first, last in ((0, 3), (3, 19), (19, 70)):
        rows = slice(first, last)
        advance(state, rng, parts[rows], stats_of[1][rows])
        restored = chain.init(state.position)
        for name_of in ("energy", "counts", "memory"):
            getattr(restored, name_of)[:] = getattr(state, name_of)
        state = restored
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(*stats_of)


def test_counts_are_exact():
    case, chain = CASES["hinge on a ball"], prepared("hinge on a ball", batch=16)
    state, draws = chain.init(), np.empty((500, 2))
    chain.runner()(state, np.random.default_rng(4), draws, np.empty((500, NUM_STATS)))
    counts = state.counts
    moves = np.count_nonzero(np.any(np.diff(draws, axis=0) != 0.0, axis=1))
    assert counts[COUNT.proposals] == 500
    assert abs(int(counts[COUNT.accepted]) - moves) <= 1
    assert counts[COUNT.records] == counts[COUNT.values] * len(case.rows)
    # Proposals outside the domain are not weighed; those ahead already are.
    assert counts[COUNT.values] <= 500 + 16


def test_moves_of_the_simplex_stay_in_its_hull():
    rng = np.random.default_rng(0)
    problem = dps.Problem(
        rng.normal(size=(40, 3)) / 3.0,
        rng.choice([-1.0, 1.0], 40),
        loss=L.Logistic(),
        domain=D.Simplex(),
        row_bound=3.0,
    )
    target = dps.Gibbs(problem, k=10.0, mu=0.1)
    chain = LaplaceIndependence(batch=8).prepare(target, rng)
    draws = np.empty((200, 3))
    chain.runner()(chain.init(), rng, draws, np.empty((200, NUM_STATS)))
    assert np.abs(draws.sum(axis=1) - 1.0).max() < 1e-12
    assert draws.min() >= 0.0
    assert len(np.unique(draws[:, 0])) > 50


def test_a_fit_outside_the_domain_is_refused_with_a_remedy():
    rows, response = -np.ones((1, 10)), [1.0]
    problem = dps.Problem(
        rows,
        response,
        loss=L.Linear(),
        domain=D.Box(0.0, 1.0),
        row_bound=4.0,
        response_bound=1.0,
    )
    target = dps.Gibbs(problem, k=200.0, mu=0.0)
    is_supported, reason = LaplaceIndependence().supports(target)
    assert not is_supported
    assert "HitAndRun" in reason
    with pytest.raises(ValueError, match="HitAndRun"):
        LaplaceIndependence().prepare(target, np.random.default_rng(0))


@pytest.mark.slow
def test_a_loss_that_fails_is_reported():
    loss = unchecked(
        lambda u, y: u * u / 2.0 if abs(u) < 40.0 else np.nan,
        lambda u, y: u,
        slope_bound=40.0,
        upper_curvature=1.0,
    )
    problem = dps.Problem(
        [[1.0]], [1.0], loss=loss, domain=D.WholeSpace(), row_bound=1.0
    )
    target = dps.Gibbs(problem, k=1.0, mu=0.1)
    chain = LaplaceIndependence(batch=8).prepare(target, np.random.default_rng(0))
    scaled = {"factor": 1e3 * chain.plan.factor, "whiten": 1e-3 * chain.plan.whiten}
    plan = chain.plan._replace(**scaled)
    wide = LaplaceIndependence(batch=8)._build(target, plan)
    with pytest.raises(SamplingError, match="NaN"):
        wide.runner()(
            wide.init(), np.random.default_rng(1), np.empty((9, 1)), np.empty((9, 5))
        )
