"""Accelerated epochs on growing blocks of records."""

import math

import numpy as np
import pytest

from dpsample.api.minimize import minimize
from dpsample.optimizers import IteratedAcceleratedClippedSGD
from dpsample.optimizers.loop.clipping import HeavyTailedScales
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.optimizers.loop.perturbations import SCHEMES
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import ParallelEvent
from tests.support.clipped_cases import BUDGET, logistic
from tests.support.descents import descend
from tests.support.tiers import one_in


@one_in(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_iterated_runs_use_disjoint_blocks_and_halved_distances(scheme):
    method = IteratedAcceleratedClippedSGD(scheme=scheme, num_steps=4)
    recipe = method.recipe(logistic(1000, 2).facts, BUDGET)
    spans = [(loop.batches.first, loop.batches.last) for loop in recipe.phases]
    assert spans == [(0, 100), (100, 300), (300, 701)]
    assert isinstance(recipe.event, ParallelEvent) and len(recipe.event.events) == 3
    spent = epsilon_of(recipe.event, delta=1e-6, relation="replace_one")
    assert spent == pytest.approx(1.0, rel=1e-5)
    fit = minimize(logistic(1000, 2), method, BUDGET)
    assert fit.certificate.releasable
    if scheme != "poisson":
        assert fit.num_gradients == sum(4 * (size // 4) for size in (100, 200, 401))


def test_iterated_runs_chain_accelerated_ones():
    problem = logistic(1000, 2)
    method = IteratedAcceleratedClippedSGD(scheme="disjoint", num_steps=4)
    recipe = method.recipe(problem.facts, None)
    theta = np.zeros(2)
    for phase in recipe.phases:
        part = Recipe(phases=(phase,), event=None, inputs={}, start=theta)
        theta = descend(problem, part, np.random.default_rng(0)).theta
    end = descend(problem, recipe, np.random.default_rng(0)).theta
    np.testing.assert_allclose(end, theta, rtol=1e-13)


@pytest.mark.slow
def test_growth_bound_of_iterated_runs_needs_fresh_batches():
    facts = logistic(1000, 2).facts
    method = IteratedAcceleratedClippedSGD(scheme="disjoint")
    small = method.risk_bound(facts, None, exponent=2.0, constant=0.05)
    large = method.risk_bound(facts, BUDGET, exponent=2.0, constant=0.05)
    assert 0.0 < small < large < math.inf
    with pytest.raises(ValueError, match="scheme"):
        IteratedAcceleratedClippedSGD().risk_bound(
            facts, BUDGET, exponent=2.0, constant=0.05
        )


def test_the_bias_of_any_order_is_at_most_the_moment():
    scales = HeavyTailedScales(
        dim=2, gdp=1.0, shift=2.0, lipschitz=10.0, moment=5.0, order=600.0,
        distance=1.0, diameter=2.0, clip=None,
    )  # fmt: skip
    assert scales.bias(0.1) == 5.0  # (moment / clip)^599 is no number
    third = scales._replace(order=3.0).bias(8.0)
    assert third == pytest.approx(5.0 * (5.0 / 8.0) ** 2 / 2.0)
