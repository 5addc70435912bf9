"""The pilot run: acceptance near its aim, frozen before the first draw."""

from __future__ import annotations

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import chain, gaussian_fit
from dpsample.samplers import sampler as tune
from dpsample.samplers.metropolis import random_walk
from tests.support.sampler_grid import SAMPLERS, grid_case, prepared_cell, supported
from tests.support.tiers import one_in

AIMS = {
    "RandomWalk": 0.234,
    "BallWalk": 0.3,
    "MALA": 0.57,
    "TiltedGibbs": 0.7,
}
CELLS = [
    (name, domain, loss)
    for name in AIMS
    for domain, loss in (
        ("whole space", "logistic"),
        ("ball", "hinge"),
        ("simplex", "absolute"),
        ("schatten ball", "logistic"),
    )
]


def run(prepared, count, seed=5):
    state = prepared.init()
    draws = np.empty((count, state.position.size))
    prepared.runner()(
        state, np.random.default_rng(seed), draws, np.empty((count, chain.NUM_STATS))
    )
    return draws, state


def acceptance(prepared, count=20_000):
    counts = run(prepared, count)[1].counts
    return counts[chain.COUNT.accepted] / counts[chain.COUNT.proposals]


@one_in(5)
@pytest.mark.parametrize(("name", "domain", "loss"), CELLS)
def test_acceptance_is_near_the_aim(name, domain, loss):
    """400 proposals fix the step: 0.12 is more than four of their deviations."""
    assert abs(acceptance(prepared_cell(name, domain, loss)) - AIMS[name]) < 0.12


def test_acceptance_that_cannot_reach_the_aim_ends_at_the_longest_step():
    prepared = prepared_cell("PreconditionedCrankNicolson", "whole space", "logistic")
    assert prepared.plan.step == pytest.approx(1.0)
    assert acceptance(prepared) > 0.6


@one_in(4)
@pytest.mark.parametrize("name", AIMS)
def test_the_pilot_is_deterministic_and_leaves_the_stream_of_draws_alone(name):
    target = grid_case("ball", "hinge").target
    plans = [
        SAMPLERS[name].prepare(target, np.random.default_rng(seed)).plan
        for seed in (1, 1, 2)
    ]
    assert plans[0].step == plans[1].step != plans[2].step
    np.testing.assert_array_equal(plans[0].factor, plans[1].factor)


def test_a_step_of_the_user_is_kept():
    target = grid_case("ball", "hinge").target
    sampler = dps.samplers.RandomWalk(step_size=0.7)
    prepared = sampler.prepare(target, np.random.default_rng(1))
    assert prepared.plan.step == 0.7
    assert prepared.settings == {"step_size": 0.7}


def test_where_the_domain_cuts_the_target_the_covariance_is_learned():
    """On a box that is long and thin the energy's own curvature is of no use."""
    case = grid_case("box", "logistic")
    thin = dps.domains.Box([-1.0, -0.02], [1.0, 0.02])
    problem = dps.Problem(
        case.rows, case.response, loss=case.loss, domain=thin, row_bound=10.0
    )
    target = dps.Gibbs(problem, k=1.0, mu=0.1)
    learned = SAMPLERS["RandomWalk"].prepare(target, np.random.default_rng(1)).plan
    spread = np.sqrt(np.diag(learned.factor @ learned.factor.T))
    assert 15.0 < spread[0] / spread[1] < 150.0
    assert 0.25 < spread[0] / (1.0 / np.sqrt(3.0)) < 2.0


def test_nothing_is_learned_from_a_chain_that_never_moves():
    target = grid_case("ball", "hinge").target
    found = gaussian_fit.fit(target)
    recipe = tune.TuningRecipe(
        run=random_walk.run,
        plan_fn=lambda f, step: random_walk.RandomWalkPlan(step, 2.0, f.factor),
        rate=0.234,
        first_step=1.0,
    )
    stuck = recipe.build(target, found, 1e9)
    again = tune.learn_covariance(found, stuck, np.random.default_rng(1), 1)
    assert again is found
    step = tune.search_step(target, recipe, found, np.random.default_rng(1), 100.0)
    assert step < 10.0


def test_the_plan_does_not_change_while_drawing():
    for name in AIMS:
        assert supported(name, "ball", "hinge")[0]
        prepared = prepared_cell(name, "ball", "hinge")
        before = [np.copy(part) for part in chain.flatten_plan(prepared.plan)]
        first, _ = run(prepared, 50)
        run(prepared, 500, seed=6)
        for old, new in zip(before, chain.flatten_plan(prepared.plan), strict=True):
            np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(run(prepared, 50)[0], first)
