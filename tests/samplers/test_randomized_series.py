"""Randomized series: its estimate and its queries."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.jit import entry
from dpsample.samplers.chain import COUNT, NUM_STATS
from dpsample.samplers.errors import BOUND_VIOLATED, OK
from dpsample.samplers.subsampled import randomized_series
from dpsample.samplers.subsampled.randomized_series import (
    RandomizedSeries,
    estimate_ratio,
    overshoot_of,
    series_length,
)
from tests.support.gibbs_cases import example
from tests.support.series_runs import prepared
from tests.support.statistics import assert_mean, rejected

L, D = dps.losses, dps.domains
E = math.e


def test_length_exceeds_i_with_probability_one_over_its_factorial():
    for i in range(1, 12):
        edge = 1.0 / math.factorial(i)
        assert series_length(edge * (1.0 - 1e-9)) == i
        assert series_length(edge * (1.0 + 1e-9)) == i - 1 or i == 1
    assert series_length(1.0 - 1e-16) == 1 and series_length(0.0) > 100


def test_overshoot_is_what_the_cut_removes():
    found = [overshoot_of(rho) for rho in (-0.5, 0.0, 1.3, 2.0, 2.75)]
    assert found == [0.5, 0.0, 0.0, 0.0, 0.75]


MIXED = example(L.Hinge(), D.Box(-2.0, 2.0), num_records=5, k=3.0, mu=0.5, seed=4)
X, Z = np.array([0.3, -0.5]), np.array([-0.4, 0.6])


def changes(chain, x, z):
    """l_j(z) - l_j(x) of all records, less the anchor's tangents."""
    case = MIXED
    before, after = case.rows @ x, case.rows @ z
    loss = np.maximum(0.0, 1.0 - case.response * after)
    loss -= np.maximum(0.0, 1.0 - case.response * before)
    if chain.plan.slopes.size:
        loss -= chain.plan.slopes * (after - before)
    return case.k * loss


def moments(change):
    """Mean and second moment of rho: factors are independent and equally likely."""
    first, second = change.mean(), (change**2).mean()
    square = 0.0
    for a in range(25):
        for b in range(25):
            product = second**a if a == b else first ** (a + b)
            square += product / math.factorial(max(a, b))
    return math.exp(first), square


def estimates(chain, count, rng):
    state = chain.init()
    fixed = (chain.target.numbers, chain.target.pieces, chain.plan, state, X, Z, rng)
    compiled = entry(estimate_ratio, *fixed)
    pairs = [compiled(*fixed) for _ in range(count)]
    assert all(code == OK for code, _ in pairs)
    return np.array([rho for _, rho in pairs]), int(state.counts[COUNT.records])


@pytest.mark.slow
@pytest.mark.parametrize("anchored", [False, True])
def test_estimate_has_the_likelihood_ratio_as_its_mean(anchored):
    chain, count = prepared(MIXED, anchored=anchored), 4200
    found, queries = estimates(chain, count, np.random.default_rng(5))
    change = changes(chain, X, Z)
    mean, square = moments(change)
    assert_mean(found, mean, square - mean**2, detects=0.2)
    # One record for all factors of a product has another mean.
    same = sum((change**a).mean() / math.factorial(a) for a in range(25))
    assert abs(same - mean) > 0.3 * math.sqrt(square - mean**2)
    with rejected():
        assert_mean(found - mean + same, mean, square - mean**2, detects=0.2)
    # a (a + 1) / 2 factors of two queries each; E a (a + 1) = 2 e.
    assert abs(queries / count - 2.0 * E) < 6.0 * 5.2 / math.sqrt(count)


def test_a_record_that_changes_by_more_than_its_bound_stops_the_run():
    chain = prepared(MIXED)
    plan = chain.plan._replace(lipschitz=0.05 * chain.plan.lipschitz)
    state, draws = chain.init(), np.empty((50, 2))
    code, _ = chain.run(
        chain.target.numbers,
        chain.target.pieces,
        plan,
        state,
        np.random.default_rng(0),
        1,
        draws,
        np.empty((50, NUM_STATS)),
    )
    assert code == BOUND_VIOLATED


def test_queries_per_step_are_four_e():
    chain, count = prepared(MIXED, error=1e-6), 20_000
    tail = np.array([1.0, *(1.0 / math.factorial(i) for i in range(1, 25))])
    mass = tail - np.append(tail[1:], 0.0)
    a = np.arange(25)
    trial = mass @ (a * (a + 1.0))
    variance = 2.0 * (mass @ (a * (a + 1.0)) ** 2 - trial**2) + 2.0 * trial**2
    assert trial == pytest.approx(2.0 * E)
    draws, stats = np.empty((count, 2)), np.empty((count, NUM_STATS))
    state = chain.init()
    chain.runner()(state, np.random.default_rng(6), draws, stats)
    queries = stats[:, -1]
    assert (
        queries.sum() == state.counts[COUNT.records]
        and state.counts[COUNT.accepted] == count
    )
    assert abs(queries.mean() - 10.9) <= 0.3
    assert_mean(queries, 4.0 * E, variance, detects=0.1)
    with rejected():  # one query in five counted twice
        assert_mean(1.2 * queries, 4.0 * E, variance, detects=0.1)
    assert state.counts[randomized_series.INNER] / count == pytest.approx(4.0, abs=0.1)


def law_case(nt):
    """Linear losses of norm-1 records with (k G)^2 / m = (n t / 2)^2."""
    k = 10.0
    rows, response = np.array([[1.0], [1.0]]), np.array([1.0, -1.0])
    problem = dps.Problem(
        rows, response, loss=L.Linear(), domain=D.WholeSpace(), row_bound=1.0
    )
    return dps.Gibbs(problem, k=k, mu=k / (0.5 * nt) ** 2)


def measured_queries(nt, gamma):
    """Queries of one whole certified run, and its product of logarithms."""
    target = law_case(nt)
    chain = RandomizedSeries(error=gamma).prepare(target, np.random.default_rng(0))
    steps = chain.settings["num_certified_steps"]
    state = chain.init()
    draws, stats = np.empty((1, 1)), np.empty((1, NUM_STATS))
    fixed = (target.numbers, target.pieces, chain.plan, state)
    code, _ = chain.run(*fixed, np.random.default_rng(1), steps, draws, stats)
    assert code == OK and chain.settings["bias_bound"] <= gamma
    overshoots = math.log(1.0 / chain.settings["overshoot_bound"])
    mixing = 2.0 * math.sqrt(chain.plan.inner.step * target.k * target.mu) * gamma / 2.0
    return state.counts[COUNT.records], overshoots * math.log(1.0 / mixing)


def test_queries_of_certified_runs_grow_as_the_square_of_n_t():
    grid, gamma = np.array([2.0, 4.0, 8.0]), 1e-4
    pairs = [measured_queries(nt, gamma) for nt in grid]
    queries, logs = np.array(pairs, dtype=float).T
    raw = np.polyfit(np.log(grid), np.log(queries), 1)[0]
    pure = np.polyfit(np.log(grid), np.log(queries / logs), 1)[0]
    assert abs(pure - 2.0) < 0.1 and 2.0 < raw < 2.6
    constant = queries / (0.25 * grid**2 * logs)
    assert np.all((constant > 0.8 * 261.0) & (constant < 1.2 * 261.0))
