"""Factorized Metropolis: algebra, bounds, Poisson process, law, resume, refusals."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.samplers import FactorizedMetropolis, SamplingError, alias_table
from dpsample.samplers import factorized_events as events
from dpsample.samplers import factorized_metropolis as module
from dpsample.samplers.chain import ACCEPTED, NUM_STATS, PROPOSALS, RECORDS
from tests.gibbs_cases import Case, example
from tests.replicates import law_margin
from tests.statistics import assert_mean, rejected

L, D = dps.losses, dps.domains
OFFSET = [0.5, -1.0, 2.0, 0.0, 1.0, -0.3]


def strong(loss, domain, *, num_records=12, k=8.0, mu=0.1, **rest):
    """Long rows and a small k, so that remainders decide."""
    case = example(loss, domain, num_records=num_records, k=k, mu=mu, **rest)
    rows = 4.0 * case.rows * (np.random.default_rng(2).random(case.rows.shape) < 0.8)
    return Case(loss, domain, rows, case.response, k, mu, case.p, case.offset)


CASES = {
    "plane": strong(L.Logistic(), D.WholeSpace()),
    "ball off center, offset": strong(
        L.Logistic(), D.Ball(1.2, center=[0.5, -0.4]), num_records=6, offset=OFFSET
    ),
    "p = 1.5, box": strong(L.Logistic(), D.Box(-1.5, 1.0), p=1.5),
    "fourth power, ball": example(L.PowerFour(), D.Ball(1.0), k=5.0),
}
COUNT = 3000


@cache
def target_of(name, is_sparse):
    case = CASES[name]
    if not is_sparse:
        return case.target
    problem = dps.Problem(
        sparse.csr_array(case.rows),
        case.response,
        loss=case.loss,
        domain=case.domain,
        row_bound=20.0,
        response_bound=5.0,
        offset=case.offset,
        offset_bound=0.0 if case.offset is None else 20.0,
    )
    regularizer = dps.regularizers.SquaredNorm(case.p)
    return dps.Gibbs(problem, k=case.k, mu=case.mu, regularizer=regularizer)


@cache
def prepared(name, is_sparse=False, step=None):
    sampler = FactorizedMetropolis(step_size=step)
    return sampler.prepare(target_of(name, is_sparse), np.random.default_rng(7))


def moved(chain, start, rng):
    """State at start and all that a step knows of a proposal in the domain."""
    state, plan = chain.init(start), chain.plan
    rank, dim = plan.factor.shape[1], len(start)
    there, noise = np.empty(rank), np.empty(rank)
    moves, proposal = state.scratch[3 : events.NUM_ROWS], None
    while proposal is None or not chain.target.problem.domain.contains(proposal):
        module.propose(plan, rng, state.memory[:rank], noise, there, moves[1, :dim])
        proposal = plan.anchor + moves[1, :dim]
    moves[0, :dim] = state.position - plan.anchor
    return state, moves, there, proposal


def penalties(chain, start, end):
    """Every record's (rho(x') - rho(x))^+, from the kernel."""
    target, plan = chain.target, chain.plan
    data, out = target.problem.data, np.empty(2)
    rows = CASES_ROWS[id(target)]
    result = []
    for i, row in enumerate(rows):
        penalty, code = events.excess(
            target.pieces.loss_record,
            data.loss_params,
            data.response[i],
            plan.records[i],
            (plan.weight, plan.cubic),
            float(row @ (start - plan.anchor)),
            float(row @ (end - plan.anchor)),
            out,
        )
        assert code == 0
        result.append(penalty)
    return np.array(result)


CASES_ROWS = {
    id(target_of(name, kind)): CASES[name].rows
    for name in CASES
    for kind in (False, True)
}


def log_acceptance(chain, start, end):
    """Log of the product of all factors, domain aside."""
    rank = chain.plan.factor.shape[1]
    rest = chain.init(end).memory[rank] - chain.init(start).memory[rank]
    return -penalties(chain, start, end).sum() - max(rest, 0.0)


def log_gaussian(plan, x):
    """Log density of the Gaussian that proposals are reversible for."""
    gap = plan.whiten @ (x - plan.anchor) - plan.shift
    return -0.5 * gap @ gap


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


@pytest.mark.parametrize("step", [1.0, 0.2])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_bounds_of_records_hold_and_add_up_to_the_rates(name, is_sparse, step):
    chain = prepared(name, is_sparse, step)
    plan, rng = chain.plan, np.random.default_rng(3)
    rows, dim = CASES[name].rows, 2
    for start in CASES[name].exact(rng, 20):
        state, moves, there, end = moved(chain, start, rng)
        total = events.fill_rates(plan, state.memory[:dim], there, moves)
        channel_of = np.full(len(rows), -1)
        for channel in range(dim + 2):
            part = plan.table[plan.starts[channel] : plan.starts[channel + 1]]
            channel_of[part["own"]] = channel
        is_norm = channel_of >= dim
        levels = np.where(is_norm, moves[2, channel_of], np.abs(rows) @ moves[2, :dim])
        bounds = plan.coefficients * levels
        assert bounds[channel_of >= 0].sum() == pytest.approx(total)
        found = penalties(chain, start, end)
        assert (found <= bounds * (1.0 + 1e-9) + 1e-12).all()
        here, after = rows @ (start - plan.anchor), rows @ (end - plan.anchor)
        own = [
            plan.cubic * events.cube(abs(a), abs(b), abs(b - a))
            for a, b in zip(here, after, strict=True)
        ]
        assert (np.array(own) <= bounds * (1.0 + 1e-9)).all()


def test_sparse_records_use_coordinates():
    assert prepared("plane", True, 1.0).plan.first == 0
    assert prepared("plane", False, 1.0).plan.first == 2


def survival(chain, start, rng, count, kernel):
    """Outcomes of the coin for one proposal, and the true probability."""
    state, moves, there, end = moved(chain, start, rng)
    rank = len(there)
    events.fill_rates(chain.plan, state.memory[:rank], there, moves)
    target = chain.target
    codes = np.array(
        [
            kernel(target.numbers, target.pieces, chain.plan, state, moves, rng)
            for _ in range(count)
        ]
    )
    assert set(codes) <= {0, events.FIRED}
    return codes == 0, np.exp(-penalties(chain, start, end).sum()), state


def drastic(chain, seed):
    """Start from which a proposal is accepted with a probability near one half."""
    for trial in range(2000):
        rng = np.random.default_rng([seed, trial])
        start = chain.plan.anchor + 2.5 * chain.plan.factor @ rng.standard_normal(2)
        if not chain.target.problem.domain.contains(start):
            continue
        _, _, _, end = moved(chain, start, np.random.default_rng(trial))
        if abs(penalties(chain, start, end).sum() - 0.6) < 0.4:
            return start, np.random.default_rng(trial)
    raise AssertionError("no such start")


@pytest.mark.parametrize("kernel", [events.thin, events.check_all])
@pytest.mark.parametrize("step", [1.0, 0.4])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_process_fires_with_the_right_probability(is_sparse, step, kernel):
    chain = prepared("plane", is_sparse, step)
    start, rng = drastic(chain, 5)
    survived, chance, _ = survival(chain, start, rng, 5000, kernel)
    variance = chance * (1.0 - chance)
    assert_mean(survived, chance, variance, detects=0.2)


@pytest.mark.parametrize("mistake", ["rates halved", "bounds doubled", "no curvature"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_planted_bugs_of_the_process_are_seen(is_sparse, mistake):
    chain = prepared("plane", is_sparse, 1.0)
    start, rng = drastic(chain, 5)
    plan = chain.plan
    change = {
        "rates halved": {"channel_weights": 0.5 * plan.channel_weights},
        "bounds doubled": {"coefficients": 2.0 * plan.coefficients},
        "no curvature": {
            "records": plan.records * [1.0, 1.0, 1.0, 0.8],
            "cubic": 10.0 * plan.cubic,
        },
    }[mistake]
    _, chance, _ = survival(chain, start, np.random.default_rng(0), 1, events.thin)
    start, rng = drastic(chain, 5)
    _, _, _, end = moved(chain, start, rng)
    chance = np.exp(-penalties(chain, start, end).sum())
    start, rng = drastic(chain, 5)
    wrong = replaced(chain, plan._replace(**change))
    survived, _, _ = survival(wrong, start, rng, 5000, events.thin)
    with rejected():
        assert_mean(survived, chance, chance * (1.0 - chance), detects=0.2)


def replaced(chain, plan):
    """The same chain with another plan."""
    from dataclasses import replace

    return replace(chain, plan=plan)


def one_step(chain, starts, rng):
    """One draw from each start."""
    advance, ends = chain.runner(), np.empty_like(starts)
    for start, end in zip(starts, ends, strict=True):
        advance(chain.init(start), rng, end[None], np.empty((1, NUM_STATS)))
    return ends


@pytest.mark.parametrize(("is_sparse", "step"), [(False, None), (True, 0.5)])
@pytest.mark.parametrize("name", CASES)
def test_one_step_keeps_the_target(name, is_sparse, step):
    case, chain = CASES[name], prepared(name, is_sparse, step)
    rng = np.random.default_rng(11)
    assert law_margin(case, one_step(chain, case.exact(rng, COUNT), rng)) <= 1.0


@pytest.mark.parametrize("name", ["plane"])
def test_a_chain_without_its_remainders_is_seen(name):
    case, chain = CASES[name], prepared(name, False, 1.0)
    plan = chain.plan
    bare = plan._replace(channel_weights=0.0 * plan.channel_weights, slope=np.empty(0))
    rng = np.random.default_rng(12)
    ends = one_step(replaced(chain, bare), case.exact(rng, COUNT), rng)
    assert law_margin(case, ends) > 1.0


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
    assert 0 < counts[RECORDS] < 2000
    assert counts[RECORDS] == stats[:, 4].sum()
    assert counts[PROPOSALS] == 2000
    assert counts[ACCEPTED] > 1900
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
    assert state.counts[RECORDS] == 0
    assert state.counts[ACCEPTED] == 50


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
    assert state.counts[RECORDS] <= 3 * 12


def test_alias_tables_have_the_law_of_their_weights():
    rng = np.random.default_rng(4)
    weights = rng.exponential(size=30) ** 3
    weights[[3, 17]] = 0.0
    starts = np.array([0, 1, 1, 12, 30])
    labels = rng.permutation(1000)[:30]
    table = np.zeros(30, dtype=alias_table.COLUMN)
    alias_table.fill_all(weights, labels, starts, table)
    for first, last in zip(starts, starts[1:], strict=False):
        part, law = table[first:last], dict.fromkeys(labels[first:last], 0.0)
        for column in part:
            law[column["own"]] += column["share"] / len(part)
            law[column["other"]] += (1.0 - column["share"]) / len(part)
        exact = weights[first:last] / weights[first:last].sum()
        np.testing.assert_allclose(list(law.values()), exact, atol=1e-15)
    seen = [alias_table.draw(table[12:], rng) for _ in range(2000)]
    assert set(seen) <= set(labels[12:]) - {labels[17]}


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
