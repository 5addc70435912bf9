"""Bounds of noisy gradient descent: which steps they choose, and that they hold."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers import NoisyGD
from dpsample.optimizers.loop.noisy_descent import DescentPlan, DescentScales
from dpsample.optimizers.loop.perturbations import CalibratedNoise
from dpsample.privacy import gdp_from_budget
from dpsample.privacy.accounting.events import GaussianEvent
from tests.support.clipped_cases import BUDGET
from tests.support.tiers import one_in


def facts_of(loss, num_records=2000, dim=20):
    return dps.PublicFacts(
        num_records=num_records,
        dim=dim,
        loss=loss,
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
    )


def check_step(facts, num_steps, bound):
    """Defaults have this bound, other steps a larger one, more steps a smaller one."""
    found = NoisyGD().recipe(facts, BUDGET).inputs
    assert found["num_steps"] == num_steps
    assert 0.95 * bound < found["risk_bound"] <= bound * (1.0 + 1e-12)
    for factor in (0.8, 1.25):
        method = NoisyGD(step_size=factor * found["step_size"])
        assert method.risk_bound(facts, BUDGET) > found["risk_bound"]
    more = NoisyGD(num_steps=4 * num_steps).risk_bound(facts, BUDGET)
    assert 0.9 * bound < more < bound


def limits(facts):
    """2/n and 4 d/(n t)^2."""
    gdp = gdp_from_budget(1.0, 1e-6)
    return 2.0 / facts.num_records, 4.0 * facts.dim / (facts.num_records * gdp) ** 2


def test_smooth_losses_need_few_steps():
    for loss, beta in ((dps.losses.Logistic(), 0.25), (dps.losses.Linear(), 0.0)):
        facts = facts_of(loss)
        fresh, private = limits(facts)
        steps = max(10, math.ceil(10.0 * beta / math.sqrt(fresh + private)))
        bound = 0.5 * beta / steps
        bound += math.sqrt((1.0 + 1.0 / steps) * fresh + private)
        check_step(facts, steps, bound)
        assert bound < 1.1 * math.sqrt(fresh + private)


def test_rough_losses_need_half_as_many_steps_as_records():
    facts = facts_of(dps.losses.SmoothedHinge(0.02))  # 50-smooth
    fresh, private = limits(facts)
    rate = 1.0 / 1000 + fresh + private
    found = NoisyGD().recipe(facts, BUDGET).inputs
    assert found["num_steps"] == 1000 < 1.0 / private
    assert found["risk_bound"] <= math.sqrt((1.0 + 1e-3) * rate) * (1.0 + 1e-12)


def mean_excess(beta, start, *, size, stddev, num_steps):
    """Exact mean of F at the mean iterate for F = beta w^2/2 in one dimension."""
    keep = 1.0 - size * beta
    powers = keep ** np.arange(1, num_steps + 1)
    mean = start * powers.mean()
    # The noise of step s is in w_{s+1}, ..., w_T with weights 1, keep, ...
    reach = np.cumsum(keep ** np.arange(num_steps)) * size * stddev / num_steps
    return 0.5 * beta * (mean**2 + (reach**2).sum())


@one_in(3)
@pytest.mark.parametrize("share", [1e-6, 0.2, 0.9])
@pytest.mark.parametrize("num_steps", [1, 4, 50])
def test_the_smooth_bound_holds_for_quadratics_and_is_not_idle(share, num_steps):
    """Share of the slack that the curvature has in 1/eta."""
    ratios = []
    for beta in np.geomspace(1e-3, 10.0, 30):
        for stddev in np.geomspace(1e-3, 10.0, 30):
            size = share / beta
            exact = mean_excess(
                beta, 1.0, size=size, stddev=stddev, num_steps=num_steps
            )
            scales = DescentScales(1.0, 0.0, beta, 1, 100, is_population=False)
            noise = CalibratedNoise(stddev, GaussianEvent(1.0))
            plan = DescentPlan("full", 100, num_steps, noise, is_proved=True)
            bound = 0.5 / (size * num_steps)
            bound += 0.5 * stddev**2 / (1.0 / size - beta)
            assert plan.bound(scales, size) <= bound * (1.0 + 1e-12)
            ratios.append(exact / bound)
    assert max(ratios) <= 1.0
    if share == 0.2:
        assert max(ratios) > 0.05
