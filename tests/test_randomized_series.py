"""Randomized series: its estimate, its law, its queries, and its stated bias."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import inner_draws
from dpsample.samplers.chain import ACCEPTED, NUM_STATS, RECORDS
from dpsample.samplers.errors import BOUND_VIOLATED, OK
from dpsample.samplers.randomized_series import RandomizedSeries, overshoot
from dpsample.samplers.series_bias import overshoot_bound
from dpsample.samplers.series_estimate import estimate, overshoot_of, series_length
from tests.gibbs_cases import example
from tests.gibbs_targets import CASES
from tests.replicates import law_margin
from tests.statistics import assert_mean, rejected

L, D = dps.losses, dps.domains
E = math.e


def prepared(case, **options):
    sampler = RandomizedSeries(**options)
    return sampler.prepare(case.target, np.random.default_rng(0))


def advance(chain, starts, rng, *, num_steps, numbers=None, plan=None):
    """Last position of one run from each start."""
    state, out = chain.init(starts[0]), np.empty_like(starts)
    draws, stats = np.empty((1, starts.shape[1])), np.empty((1, NUM_STATS))
    target = chain.target
    fixed = (target.numbers if numbers is None else numbers, target.pieces)
    for i, start in enumerate(starts):
        state.position[:] = start
        code, _ = chain.run(
            *fixed,
            chain.plan if plan is None else plan,
            state,
            rng,
            num_steps,
            draws,
            stats,
        )
        assert code == OK, code
        out[i] = draws[0]
    return out, state


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
    pairs = [estimate(*fixed) for _ in range(count)]
    assert all(code == OK for code, _ in pairs)
    return np.array([rho for _, rho in pairs]), int(state.counts[RECORDS])


@pytest.mark.parametrize("anchored", [False, True])
def test_estimate_has_the_likelihood_ratio_as_its_mean(anchored):
    chain, count = prepared(MIXED, anchored=anchored), 4000
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
    assert queries.sum() == state.counts[RECORDS] and state.counts[ACCEPTED] == count
    assert abs(queries.mean() - 10.9) <= 0.3
    assert_mean(queries, 4.0 * E, variance, detects=0.1)
    with rejected():  # one query in five counted twice
        assert_mean(1.2 * queries, 4.0 * E, variance, detects=0.1)
    assert state.counts[inner_draws.INNER] / count == pytest.approx(4.0, abs=0.1)


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
    return state.counts[RECORDS], overshoots * math.log(1.0 / mixing)


def test_queries_of_certified_runs_grow_as_the_square_of_n_t():
    grid, gamma = np.array([2.0, 4.0, 8.0]), 1e-4
    pairs = [measured_queries(nt, gamma) for nt in grid]
    queries, logs = np.array(pairs, dtype=float).T
    raw = np.polyfit(np.log(grid), np.log(queries), 1)[0]
    pure = np.polyfit(np.log(grid), np.log(queries / logs), 1)[0]
    assert abs(pure - 2.0) < 0.1 and 2.0 < raw < 2.6
    constant = queries / (0.25 * grid**2 * logs)
    assert np.all((constant > 0.8 * 261.0) & (constant < 1.2 * 261.0))


SMALL = example(L.Hinge(), D.Box(-1.0, 1.0), dim=1, num_records=3, k=1.5, mu=4.0)


def measured_distance(case, sample, bins=6):
    """Total variation of a histogram from the law; noise about sqrt(bins / size)."""
    points, weights = case.law
    edges = np.linspace(*(side[0] for side in case.frame), bins + 1)
    expected = np.histogram(points[:, 0], edges, weights=weights)[0]
    found = np.histogram(sample[:, 0], edges)[0] / len(sample)
    return 0.5 * np.abs(found - expected).sum()


def test_certified_runs_are_within_their_bias_of_the_law():
    chain, count = prepared(SMALL, error=0.15), 1000
    starts = np.tile(chain.start, (count, 1))
    rng = np.random.default_rng(7)
    ends, _ = advance(chain, starts, rng, num_steps=chain.num_warmup)
    bound = chain.settings["bias_bound"]
    assert 0.0 < bound <= 0.15
    assert measured_distance(SMALL, ends) < bound
    # A tenth of the steps proves nothing, and the histogram sees it.
    early, _ = advance(chain, starts, rng, num_steps=chain.num_warmup // 20)
    assert measured_distance(SMALL, early) > bound


def test_one_call_is_within_the_overshoot_of_the_conditional_law():
    """Exact bias of one call in one dimension: a linear loss under a Gaussian."""
    for variance in (0.1, 0.05, 0.02):
        x = math.sqrt(variance) * np.linspace(-7.0, 7.0, 401)
        g = np.exp(-0.5 * x**2 / variance)
        g /= g.sum()
        change = x[None, :] - x[:, None]  # l(z) - l(x)
        rho, accepted, over = np.ones_like(change), 0.0, 0.0
        for length in range(1, 30):
            rho = rho + change**length
            share = 1.0 / math.factorial(length) - 1.0 / math.factorial(length + 1)
            cut = np.maximum(rho - 2.0, 0.0) + np.maximum(-rho, 0.0)
            over += share * g @ cut @ g
            accepted = accepted + share * np.clip(0.5 * rho, 0.0, 1.0) @ g
        law, exact = g * accepted, g * np.exp(-x)
        distance = 0.5 * np.abs(law / law.sum() - exact / exact.sum()).sum()
        assert 0.0 < distance <= over <= overshoot_bound(2.0 * variance)


# Name: options, whether the regularizer enters through tangents, number of chains.
INNER_KINDS = {
    "hinge on a ball": ({}, 0, 2000),
    "logistic, mode on the sphere": ({"anchored": True}, 0, 2000),
    "absolute on a box": ({}, 0, 3000),
    "hinge, p = 1.2, plane": ({}, 0, 400),
    "hinge, p = 1.5, triangle": ({}, 1, 1000),
}


def practical(name):
    """Chain with L^2 h = 0.02: the bias of 30 steps is below 0.003."""
    options, is_tangent, count = INNER_KINDS[name]
    bound = prepared(CASES[name], **options).plan.lipschitz
    chain = prepared(CASES[name], step_size=0.02 / bound**2, **options)
    assert chain.plan.inner.is_tangent == is_tangent
    return chain, count


@pytest.mark.parametrize("name", INNER_KINDS)
def test_many_steps_from_the_law_keep_it(name):
    case, (chain, count) = CASES[name], practical(name)
    rng = np.random.default_rng(8)
    ends, state = advance(chain, case.exact(rng, count), rng, num_steps=30)
    assert law_margin(case, ends) <= 1.0
    meter = overshoot(state)
    assert meter.num_trials >= 30 * count
    assert meter.mean <= chain.settings["overshoot_bound"]


def without_losses(chain):
    return {"numbers": chain.target.numbers._replace(k=0.0)}


def without_tilt(chain):
    inner = chain.plan.inner._replace(slope=np.zeros(chain.target.dim))
    return {"plan": chain.plan._replace(inner=inner)}


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("absolute on a box", without_losses),
        ("logistic, mode on the sphere", without_tilt),
    ],
)
def test_a_planted_bug_moves_the_law(name, bug):
    case, (chain, count) = CASES[name], practical(name)
    rng = np.random.default_rng(9)
    starts = case.exact(rng, count)
    ends, _ = advance(chain, starts, rng, num_steps=80, **bug(chain))
    assert law_margin(case, ends) > 1.0


REFUSED = {
    "simplex": (L.Hinge(), D.Simplex(), "no interior"),
    "halfspace": (L.Hinge(), D.Polytope([[1.0, 0.0]], [1.0]), "unbounded"),
    "squared on the plane": (L.Squared(), D.WholeSpace(), "slope grows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_exact_inner_draw_is_refused_with_a_reason(name):
    loss, domain, reason = REFUSED[name]
    problem = dps.Problem(
        np.eye(2),
        [1.0, -1.0],
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    target = dps.Gibbs(problem, k=5.0, mu=1.0)
    is_supported, found = RandomizedSeries().supports(target)
    assert not is_supported and reason in found
    with pytest.raises(ValueError, match=reason):
        RandomizedSeries().prepare(target, np.random.default_rng(0))


def test_anchored_losses_need_a_bounded_domain_and_pay_on_a_small_one():
    is_supported, reason = RandomizedSeries(anchored=True).supports(
        CASES["hinge on the plane"].target
    )
    assert not is_supported and "anchored=False" in reason
    case = example(L.Logistic(), D.Ball(0.5), k=20.0)
    plain, anchored = prepared(case), prepared(case, anchored=True)
    assert anchored.plan.lipschitz < 0.5 * plain.plan.lipschitz
    assert anchored.settings["step_size"] > 3.0 * plain.settings["step_size"]


def test_matrix_regularizers_are_drawn_through_tangents():
    domain = D.SchattenBall(1.0, p=1.0, shape=(2, 2))
    regularizer = dps.regularizers.SchattenSquared(1.2, shape=(2, 2))
    rows = np.random.default_rng(1).normal(size=(5, 4)) / 4.0
    problem = dps.Problem(
        rows, [1.0, -1.0, 1.0, 1.0, -1.0], loss=L.Hinge(), domain=domain, row_bound=9.0
    )
    target = dps.Gibbs(problem, k=5.0, mu=0.5, regularizer=regularizer)
    chain = RandomizedSeries(step_size=0.01).prepare(target, np.random.default_rng(0))
    assert chain.plan.inner.is_tangent == 1
    draws, stats = np.empty((300, 4)), np.empty((300, NUM_STATS))
    chain.runner()(chain.init(), np.random.default_rng(1), draws, stats)
    assert all(domain.contains(theta) for theta in draws)
