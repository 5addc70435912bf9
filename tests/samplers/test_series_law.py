"""Randomized series: its law, its stated bias, and what it refuses."""

import dataclasses
import math
import re

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.subsampled.randomized_series import RandomizedSeries, overshoot
from dpsample.samplers.subsampled.series_bias import overshoot_bound
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.replicates import law_margin
from tests.support.series_runs import advance, prepared
from tests.support.statistics import assert_rejected
from tests.support.tiers import by_turns, slow, usual

L, D = dps.losses, dps.domains


SMALL = example(L.Hinge(), D.Box(-1.0, 1.0), dim=1, num_records=3, k=1.5, mu=4.0)


def measured_distance(case, sample, bins=6):
    """Total variation of a histogram from the law; noise about sqrt(bins / size)."""
    points, weights = case.law
    edges = np.linspace(*(side[0] for side in case.frame), bins + 1)
    expected = np.histogram(points[:, 0], edges, weights=weights)[0]
    found = np.histogram(sample[:, 0], edges)[0] / len(sample)
    return 0.5 * np.abs(found - expected).sum()


@pytest.mark.slow
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
        x = math.sqrt(variance) * np.linspace(-7.0, 7.0, 201)
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


@usual("hinge, p = 1.5, triangle")
@pytest.mark.parametrize("name", by_turns(INNER_KINDS))
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
        slow("logistic, mode on the sphere", without_tilt),
    ],
)
def test_a_planted_bug_moves_the_law(name, bug):
    case, (chain, count) = CASES[name], practical(name)
    rng = np.random.default_rng(9)
    starts = case.exact(rng, count)
    ends, _ = advance(chain, starts, rng, num_steps=80, **bug(chain))
    assert_rejected(law_margin(case, ends))


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


def test_a_warm_up_that_takes_for_ever_is_refused_with_its_cost():
    data = dps.datasets.logistic(300, 3, seed=1)
    problem = dps.Problem(
        data.features, data.response, loss=L.Logistic(), domain=D.Ball(1.0), row_bound=1
    )
    costly, cheap = (dps.Gibbs(problem, k=k, mu=1.0 / k) for k in (300.0, 1.0))
    for options in ({}, {"anchored": True}, {"step_size": 1e-9}):
        sampler = RandomizedSeries(**options)
        is_supported, reason = sampler.supports(costly)
        assert not is_supported and "max_steps = 5000000 are allowed" in reason
        with pytest.raises(ValueError, match=r"certified warm-up takes .*e\+.* steps"):
            sampler.prepare(costly, np.random.default_rng(0))
        allowed = int(re.search(r"max_steps=(\d+)\.$", reason)[1])
        chosen = dataclasses.replace(sampler, max_steps=allowed)
        prepared = chosen.prepare(costly, np.random.default_rng(0))
        assert 5_000_000 < prepared.num_warmup <= allowed
    assert RandomizedSeries().supports(cheap) == (True, "")


def test_anchored_losses_need_a_bounded_domain_and_pay_on_a_small_one():
    is_supported, reason = RandomizedSeries(anchored=True).supports(
        CASES["hinge on the plane"].target
    )
    assert not is_supported and "anchored=False" in reason
    case = example(L.Logistic(), D.Ball(0.5), k=20.0)
    plain, anchored = prepared(case), prepared(case, anchored=True)
    assert anchored.plan.lipschitz < 0.5 * plain.plan.lipschitz
    assert anchored.settings["step_size"] > 3.0 * plain.settings["step_size"]


@pytest.mark.slow
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
