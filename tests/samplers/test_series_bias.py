"""The bias bound of the randomized series, its step rule and its schedule."""

import math

import numpy as np
import pytest

from dpsample.samplers.subsampled import series_bias
from dpsample.samplers.subsampled.series_bias import (
    SeriesNumbers,
    overshoot_bound,
    proxy_for,
)
from tests.support.tiers import one_in


def displayed(v, cut, power, *, scale=2.0):
    """The bound for one K and r, term by term."""
    series = sum(
        (2.0 * math.gamma(0.5 * power * a + 1.0) / math.factorial(a)) ** (1.0 / power)
        * (scale * v) ** (0.5 * a)
        for a in range(1, cut + 1)
    )
    rest = sum(
        2.0
        * math.gamma(0.5 * a + 1.0)
        * (scale * v) ** (0.5 * a)
        / math.factorial(max(a, cut + 1))
        for a in range(1, 80)
    )
    return series**power + rest


@pytest.mark.parametrize("v", [0.2, 0.05, 0.02, 0.015, 0.01])
def test_bound_is_the_smallest_of_the_displayed_formula(v):
    def smallest(**changes):
        pairs = [(cut, power) for cut in range(1, 13) for power in range(2, 21)]
        return min(displayed(v, *pair, **changes) for pair in pairs)

    assert overshoot_bound(v) == pytest.approx(smallest(), rel=1e-12)
    # The same formula with v for 2 v is another number.
    assert overshoot_bound(v) > 1.3 * smallest(scale=1.0)


def test_bound_grows_with_the_proxy_and_vanishes_without_losses():
    values = [overshoot_bound(v) for v in np.geomspace(1e-3, 10.0, 40)]
    assert np.all(np.diff(values) > 0.0) and overshoot_bound(0.0) == 0.0


def exact_overshoot(variance):
    """E[o] for a linear loss of one record under a Gaussian, by quadrature."""
    spread = math.sqrt(2.0 * variance)
    changes = spread * np.linspace(-12.0, 12.0, 200_001)
    weights = np.exp(-0.5 * (changes / spread) ** 2)
    weights /= weights.sum()
    rho, power, total = np.ones_like(changes), np.ones_like(changes), 0.0
    for length in range(1, 40):
        power *= changes
        rho += power
        share = 1.0 / math.factorial(length) - 1.0 / math.factorial(length + 1)
        over = np.maximum(rho - 2.0, 0.0) + np.maximum(-rho, 0.0)
        total += share * (weights @ over)
    return total


@one_in(3)
@pytest.mark.parametrize("variance", [0.2, 0.1, 0.05, 0.02, 0.01, 0.005])
def test_overshoot_of_a_linear_loss_is_below_the_bound(variance):
    # The change of a linear loss has the proxy 2 variance: no slack but the moments'.
    exact = exact_overshoot(variance)
    assert 0.0 < exact < overshoot_bound(2.0 * variance)
    if variance == 0.05:
        assert exact == pytest.approx(0.0064, rel=0.02)


@pytest.mark.slow
def test_explicit_rule_holds_on_its_whole_interval():
    for bias in np.geomspace(series_bias.MIN_BIAS, series_bias.MAX_BIAS, 120):
        rule = 1.0 / (12.0 * math.log(1.0 / bias))
        assert proxy_for(bias) == rule and overshoot_bound(rule) <= bias
    # Beyond it the rule fails, and the bound itself is solved.
    for bias in (0.1, 0.01, 1e-60, 1e-90):
        rule = 1.0 / (12.0 * math.log(1.0 / bias))
        assert overshoot_bound(rule) > bias >= overshoot_bound(proxy_for(bias))


@pytest.mark.parametrize("gamma", [0.5, 1e-3, 1e-9, 1e-15])
@pytest.mark.parametrize("lipschitz", [0.0, 0.5, 30.0])
def test_schedule_proves_what_was_asked(gamma, lipschitz):
    numbers = SeriesNumbers(
        lipschitz=lipschitz, regularity=1.0, convexity=2.0, start_bound=3.0
    )
    found = numbers.schedule(gamma)
    assert found.num_steps * found.overshoot <= 0.5 * gamma
    assert found.bias <= gamma and found.mixing <= 0.5 * gamma
    assert found.bias == found.mixing + found.num_steps * found.overshoot
    assert overshoot_bound(numbers.proxy(found.step)) <= found.overshoot
    if lipschitz > 0.0 and found.step < 50.0:
        inverse = 24.0 * lipschitz**2 * math.log(1.0 / found.overshoot)
        assert found.step == pytest.approx(1.0 / inverse, rel=1e-12)
    # T (1 + h m)^-T pays for the distance to the target as in the exact chain.
    exact = 3.0 / (2.0 * math.sqrt(2.0 * found.step))
    exact *= (1.0 + 2.0 * found.step) ** -(found.num_steps - 1)
    assert found.mixing == pytest.approx(min(1.0, exact), rel=1e-6)


def test_step_of_the_user_is_judged_by_the_bound():
    numbers = SeriesNumbers(
        lipschitz=1.0, regularity=0.0, convexity=1.0, start_bound=2.0
    )
    long, short = (
        numbers.schedule_for_step(1.0, 1e-3),
        numbers.schedule_for_step(0.002, 1e-3),
    )
    assert long.overshoot == overshoot_bound(2.0) and long.bias > 1.0
    assert short.bias < 1e-3 and short.step == 0.002
