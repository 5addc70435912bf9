"""TunaMH: detailed balance over its random counts, and invariance from iid starts."""

import math

import numpy as np
import pytest
from scipy.stats import poisson

import dpsample as dps
from dpsample.core.jit import entry
from dpsample.samplers.chain import COUNT, NUM_STATS
from dpsample.samplers.errors import BOUND_VIOLATED, OK
from dpsample.samplers.subsampled.tuna_mh import (
    TunaMH,
    TunaPlan,
    change_bound,
    count_probability,
    log_weight,
    poisson_rate,
    record_change,
)
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected
from tests.support.tiers import usual

L, D = dps.losses, dps.domains


def log_accepted(plan, size, changes, log_prior, wrong=None):
    """Log of the mean acceptance of one proposal, over all counts of two records.

    The number of times that record i counts is Poisson with mean r_i.
    """
    weight = wrong or log_weight.py_func
    laws, weights = [], []
    for change in changes:
        mean = poisson_rate.py_func(plan, size) * count_probability.py_func(
            plan, size, change
        )
        mean /= len(changes)
        laws.append(
            poisson.pmf(np.arange(int(mean + 12.0 * math.sqrt(mean) + 40)), mean)
        )
        weights.append(weight(plan, size, change))
    totals = np.zeros(1)
    mass = np.ones(1)
    for law, step in zip(laws, weights, strict=True):
        totals = np.add.outer(totals, step * np.arange(len(law))).ravel()
        mass = np.multiply.outer(mass, law).ravel()
    return math.log(mass @ np.exp(np.minimum(0.0, totals + log_prior)))


def plan_with(chi):
    return TunaPlan(1.0, chi, 2.0, 2.0, np.eye(1))


CHANGES = [(1.4, -0.3), (-1.9, 0.2), (0.0, 1.999), (2.0, -2.0)]


def imbalance(chi, changes, log_prior, wrong=None):
    """log pi(x) a(x, x') - log pi(x') a(x', x), for n = 2 records and size 2."""
    plan, size = plan_with(chi), 2.0
    back = [-change for change in changes]
    forth = log_accepted(plan, size, changes, log_prior, wrong)
    return (
        forth
        - log_accepted(plan, size, back, -log_prior, wrong)
        - (log_prior - np.mean(changes))
    )


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("chi", [0.05, 0.5, 5.0])
def test_mean_acceptance_is_in_detailed_balance(chi, changes):
    if abs(changes[0]) == 2.0:  # atanh is infinite only if chi is zero
        assert math.isfinite(log_weight(plan_with(chi), 2.0, 2.0))
    for log_prior in (-0.7, 0.0, 1.3):
        assert abs(imbalance(chi, changes, log_prior)) < 1e-10


MISTAKES = {
    "no factor 1 + 2 chi C M": lambda p, size, d: -2.0 * math.atanh(0.99 * d / size),
    "sign": lambda p, size, d: -log_weight.py_func(p, size, d),
    "atanh for 2 atanh": lambda p, size, d: 0.5 * log_weight.py_func(p, size, d),
    "chi for 2 chi": lambda p, size, d: (
        -2.0 * math.atanh(d / (size * (1.0 + p.chi * size)))
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_weight_breaks_the_balance(mistake):
    found = imbalance(0.5, CHANGES[0], 0.2, MISTAKES[mistake])
    assert abs(found) > 1e-3


@pytest.mark.parametrize(
    ("row_norm", "p"), [(1.0, np.inf), (2.0, 2.0), (4.0, 4.0 / 3.0), (np.inf, 1.0)]
)
def test_changes_are_below_their_bound_in_the_norm_of_the_rows(row_norm, p):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(20, 3))
    rows /= np.linalg.norm(rows, ord=row_norm, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        rng.normal(size=20),
        loss=L.Absolute(),
        domain=D.Ball(5.0),
        row_bound=1.0,
        row_norm=row_norm,
        response_bound=9.0,
    )
    target = dps.Gibbs(problem, k=3.0, mu=1.0)
    bound, exponent = change_bound(target)
    assert exponent == pytest.approx(p)
    work, ratios = target.new_work(), []
    for i in range(20):
        theta = rng.normal(size=3)
        # The direction in which this record's margin changes most.
        along = np.sign(rows[i]) * np.abs(rows[i]) ** (row_norm - 1.0)
        if np.isinf(row_norm):
            along = np.where(np.abs(rows[i]) == 1.0, np.sign(rows[i]), 0.0)
        other = theta + 0.1 * along
        fixed = (target.numbers, target.pieces, work, theta, other, i)
        change, _ = record_change(*fixed)
        ratios.append(abs(change) / (bound * np.linalg.norm(other - theta, ord=p)))
    assert 0.999 < max(ratios) <= 1.0 + 1e-9


def test_a_record_that_changes_by_more_than_its_bound_stops_the_run():
    case = CASES["hinge on a ball"]
    chain = TunaMH(step_size=1.0).prepare(case.target, np.random.default_rng(0))
    plan = chain.plan._replace(bound=0.05 * chain.plan.bound)
    fixed = (case.target.numbers, case.target.pieces, plan, chain.init())
    rest = (np.empty((200, 2)), np.empty((200, NUM_STATS)))
    code, _ = chain.run(*fixed, np.random.default_rng(0), 1, *rest)
    assert code == BOUND_VIOLATED


def steps_from_the_law(case, chain, *, num_steps, count, numbers=None, plan=None):
    rng = np.random.default_rng(2)
    ends, state = case.exact(rng, count), chain.init()
    draws, stats = np.empty((1, case.dim)), np.empty((1, NUM_STATS))
    arguments = (
        case.target.numbers if numbers is None else numbers,
        case.target.pieces,
        chain.plan if plan is None else plan,
        state,
        rng,
        num_steps,
        draws,
        stats,
    )
    run = entry(chain.run, *arguments)
    for i, start in enumerate(ends):
        state.position[:] = start
        code, _ = run(*arguments)
        assert code == OK
        ends[i] = draws[0]
    return ends, state


NAMES = ["hinge on a ball", "logistic, mode on the sphere", "hinge, p = 1.2, plane"]


@usual("hinge on a ball-0.05")
@pytest.mark.parametrize("chi", [0.05, 5.0])
@pytest.mark.parametrize("name", NAMES)
def test_steps_from_the_law_keep_it(name, chi):
    case = CASES[name]
    sampler = TunaMH(chi=chi, step_size=0.7)
    chain = sampler.prepare(case.target, np.random.default_rng(0))
    ends, state = steps_from_the_law(case, chain, num_steps=4, count=1500)
    assert law_margin(case, ends) <= 1.0
    accepted = state.counts[COUNT.accepted] / state.counts[COUNT.proposals]
    assert 0.1 < accepted < 0.95 and state.counts[COUNT.records] > 0


def test_planted_bugs_move_the_law():
    case = CASES["hinge on a ball"]
    chain = TunaMH(chi=0.5, step_size=0.7).prepare(
        case.target, np.random.default_rng(0)
    )
    numbers = case.target.numbers
    # Losses half as strong, and the regularizer left out of the ratio.
    weak = numbers._replace(k=0.5 * numbers.k, mu=2.0 * numbers.mu)
    free = numbers._replace(mu=5.0 * numbers.mu)
    for wrong in (weak, free):
        ends, _ = steps_from_the_law(
            case, chain, num_steps=12, count=2500, numbers=wrong
        )
        assert_rejected(law_margin(case, ends))


def test_simplex_and_statistics():
    case = example(L.Logistic(), D.Simplex(), dim=3, k=30.0)
    target = case.target
    chain = TunaMH().prepare(target, np.random.default_rng(0))
    state, count = chain.init(), 500
    draws, stats = np.empty((count, 3)), np.empty((count, NUM_STATS))
    chain.runner()(state, np.random.default_rng(1), draws, stats)
    assert all(target.domain.contains(theta) for theta in draws)
    assert 0.2 < state.counts[COUNT.accepted] / count < 0.8
    assert stats[:, -1].sum() == state.counts[COUNT.records]
    # Each drawn record is evaluated at both ends.
    assert np.all(stats[:, -1] % 2 == 0)


def test_losses_without_a_lipschitz_constant_are_refused():
    is_supported, reason = TunaMH().supports(CASES["squared on the plane"].target)
    assert not is_supported and "slope grows" in reason
