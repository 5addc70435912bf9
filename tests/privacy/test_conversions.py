"""Conversions: valid bounds, exact inverses, and the worst cases they come from."""

import math

import mpmath
import numpy as np
import pytest

from dpsample.privacy import (
    compose_gdp,
    gaussian_delta,
    gaussian_epsilon,
    gdp_from_budget,
    rdp_delta,
    rdp_epsilon,
    rho_from_bounded_range,
    rho_from_budget,
    rho_from_gdp,
    rho_from_pure,
    zcdp_delta,
    zcdp_epsilon,
)

BUDGETS = [(e, d) for e in (0.05, 0.5, 1.0, 4.0, 20.0) for d in (1e-12, 1e-6, 1e-3)]
RHOS = (1e-6, 1e-3, 0.02, 0.5, 10.0)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_concentrated_round_trips(epsilon, delta):
    rho = rho_from_budget(epsilon, delta)
    assert zcdp_delta(epsilon, rho) <= delta
    assert zcdp_delta(epsilon, rho) == pytest.approx(delta, rel=1e-10)
    assert zcdp_epsilon(delta, rho) == pytest.approx(epsilon, rel=1e-10)
    assert zcdp_delta(epsilon, rho * (1.0 + 1e-9)) > delta


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_gaussian_round_trips_with_noise(epsilon, delta):
    gdp = gdp_from_budget(epsilon, delta)
    noise = 2.0 / gdp
    assert gaussian_epsilon(delta, 2.0 / noise) == pytest.approx(epsilon, rel=1e-10)
    assert gaussian_delta(epsilon, gdp) == pytest.approx(delta, rel=1e-10)


@pytest.mark.parametrize("rho", RHOS)
def test_the_concentrated_bound_is_above_the_gaussian_curve(rho):
    gdp = math.sqrt(2.0 * rho)
    assert rho_from_gdp(gdp) == pytest.approx(rho, rel=1e-15)
    for delta in (1e-10, 1e-6, 1e-2, 0.3):
        exact, bound = gaussian_epsilon(delta, gdp), zcdp_epsilon(delta, rho)
        assert exact <= bound <= 1.35 * exact + 3.0 * gdp


@pytest.mark.parametrize("rho", RHOS)
def test_no_order_gives_less(rho):
    for epsilon in (0.1, 1.0, 5.0):
        orders = 1.0 + np.geomspace(1e-6, 1e8, 20_001)
        with np.errstate(over="ignore", under="ignore"):
            logs = (orders - 1) * (orders * rho - epsilon)
            logs += orders * np.log1p(-1 / orders) - np.log(orders - 1)
        least = math.exp(min(logs.min(), 0.0))
        found = zcdp_delta(epsilon, rho)
        assert found <= least * (1 + 1e-6) + 1e-300
        assert found >= least * (1 - 1e-3)


def test_renyi_curve_of_randomized_response_bounds_its_exact_delta():
    local = 0.7

    def curve(order):
        p, q = 1 / (1 + math.exp(-local)), 1 / (1 + math.exp(local))
        mean = p**order * q ** (1 - order) + q**order * p ** (1 - order)
        return math.log(mean) / (order - 1)

    def capped(order):
        return local if order > 100 else curve(order)

    for epsilon in (0.1, 0.3, 0.6):
        exact = (math.exp(local) - math.exp(epsilon)) / (1 + math.exp(local))
        assert exact <= rdp_delta(epsilon, capped) < 1.0
    assert rdp_epsilon(1e-12, capped) <= local + 1e-9
    assert rdp_epsilon(0.1, lambda order: math.inf) == math.inf
    assert rdp_delta(1.0, lambda order: math.nan) == 1.0


def response_divergence(epsilon, order):
    """Renyi divergence of binary randomized response."""
    t = order - 1.0
    upper = np.logaddexp((t + 0.5) * epsilon, -(t + 0.5) * epsilon)
    return (upper - np.logaddexp(0.5 * epsilon, -0.5 * epsilon)) / t


@pytest.mark.parametrize("epsilon", [1e-2, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0])
def test_pure_privacy_is_concentrated_and_no_smaller_rho_will_do(epsilon):
    orders = 1.0 + np.geomspace(1e-3, 1e5, 2001)
    ratio = response_divergence(epsilon, orders) / orders
    rho = rho_from_pure(epsilon)
    assert ratio.max() <= rho * (1 + 1e-8)
    assert ratio[0] >= rho * (1 - 2e-3)
    assert rho <= 0.5 * epsilon**2


def bounded_range_divergence(epsilon, low, order):
    """Two outcomes whose log-likelihood ratios are ``low`` and ``low + epsilon``."""
    high = low + epsilon
    q = -math.expm1(low) / (math.exp(high) - math.exp(low))
    logs = np.logaddexp(math.log(q) + order * high, math.log1p(-q) + order * low)
    return logs / (order - 1.0)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 6.0])
def test_bounded_range_is_concentrated(epsilon):
    orders = 1.0 + np.geomspace(1e-4, 1e4, 801)
    rho, worst = rho_from_bounded_range(epsilon), 0.0
    for share in np.linspace(0.001, 0.999, 201):
        found = bounded_range_divergence(epsilon, -share * epsilon, orders) / orders
        assert found.max() <= rho * (1 + 1e-9)
        worst = max(worst, found.max())
    # Nothing much smaller is true of small epsilon.
    assert worst >= rho * (0.99 if epsilon < 1.0 else 0.7)
    assert worst > 0.5 * rho


def test_gdp_composes_as_a_root_of_squares():
    assert compose_gdp([]) == 0.0
    assert compose_gdp([0.1] * 100) == pytest.approx(1.0, rel=1e-14)
    assert compose_gdp(iter((3.0, 4.0))) == 5.0
    assert compose_gdp([1e200, 1e200]) == pytest.approx(math.sqrt(2) * 1e200)


def proposition_7(order, divergence, epsilon):
    """Logarithm of the bound of delta at one order, at many digits."""
    t = mpmath.mpf(order) - 1
    log = mpmath.log1p(1 / t) * -t - mpmath.log1p(t)
    return t * (mpmath.mpf(divergence) - mpmath.mpf(epsilon)) + log


@pytest.mark.parametrize("rho", [1.0, 1e6, 1e8, 1e12, 1e20, 1e26])
def test_no_digits_of_large_divergences_are_lost(rho):
    for log_delta in (1.0, 20.0, 300.0):
        epsilon = rho + 2.0 * math.sqrt(rho * log_delta)
        with mpmath.workdps(80):
            best = (mpmath.mpf(epsilon) / rho - 1) / 2
            low, high = best / 10, 10 * best
            for _ in range(160):  # the bound is convex in the order
                thirds = (2 * low + high) / 3, (low + 2 * high) / 3
                left, right = (
                    proposition_7(1 + t, rho * (1 + t), epsilon) for t in thirds
                )
                low, high = (low, thirds[1]) if left <= right else (thirds[0], high)
            assert zcdp_delta(epsilon, rho) >= mpmath.exp(left)


def test_orders_are_those_at_which_the_curve_was_asked():
    """Divergences that are infinite at once: 1 + t is a float, t need not be."""
    last = 1.0 + 2.0**-42
    asked = []

    def curve(order):
        asked.append(order)
        return 1e14 if order <= last else math.inf

    for epsilon in (1.1e14, 1.3e14, 2e14):
        found = rdp_delta(epsilon, curve)
        with mpmath.workdps(50):
            orders = {order for order in asked if order <= last}
            least = min(proposition_7(order, 1e14, epsilon) for order in orders)
            assert found >= mpmath.exp(least)


def test_nothing_is_known_where_a_curve_overflows():
    def curve(order):
        p, q = 1 / (1 + math.exp(-0.7)), 1 / (1 + math.exp(0.7))
        mean = p**order * q ** (1 - order) + q**order * p ** (1 - order)
        return math.log(mean) / (order - 1)

    with pytest.raises(OverflowError):
        curve(1e9)
    exact = (math.exp(0.7) - math.exp(0.3)) / (1 + math.exp(0.7))
    assert exact <= rdp_delta(0.3, curve) < 1.0
    assert 0.3 < rdp_epsilon(1e-2, curve) <= 0.7


def test_a_curve_may_overflow_at_any_order():
    """Of order 2 as well, at which curves are tried first."""

    def curve(order):
        return math.log(math.exp(400.0 * order * order)) / (order - 1.0)

    with pytest.raises(OverflowError):
        curve(2.0)
    assert rdp_delta(500.0, curve) <= 1.0
    assert math.isfinite(rdp_epsilon(1e-6, curve))


@pytest.mark.parametrize("epsilon", [1e6, 1e16, 1e300, 1.7e308])
def test_budgets_of_any_size_have_a_rho_that_fits_them(epsilon):
    for delta in (1e-300, 1e-6, 0.5):
        assert zcdp_delta(epsilon, rho_from_budget(epsilon, delta)) <= delta


@pytest.mark.parametrize("epsilon", [1e-300, 1e-30])
def test_a_budget_without_a_rho_is_refused(epsilon):
    with pytest.raises(ValueError, match="^rho of epsilon and delta must be .*Spend a"):
        rho_from_budget(epsilon, 1e-300)


def test_extremes_are_finite_and_ordered():
    assert zcdp_delta(1.0, 0.0) == 0.0 and zcdp_epsilon(1e-6, 0.0) == 0.0
    assert zcdp_delta(0.0, 1e6) == 1.0
    assert 0.0 < zcdp_delta(500.0, 1e-3) <= 1e-300  # 0 would be that of a pure one
    assert zcdp_epsilon(1e-300, 1e-8) < 1.0
    assert 0.9 < zcdp_epsilon(1e-6, 1e6) / 1e6 < 1.01


BAD = (-1.0, math.nan, math.inf, None, "1", np.ones(2))


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_numbers_are_refused(bad):
    calls = [
        lambda: zcdp_delta(bad, 1.0),
        lambda: zcdp_delta(1.0, bad),
        lambda: zcdp_epsilon(bad, 1.0),
        lambda: zcdp_epsilon(0.1, bad),
        lambda: rho_from_budget(bad, 0.1),
        lambda: rho_from_budget(1.0, bad),
        lambda: rho_from_gdp(bad),
        lambda: rho_from_pure(bad),
        lambda: rho_from_bounded_range(bad),
        lambda: compose_gdp([1.0, bad]),
        lambda: rdp_delta(bad, lambda order: order),
        lambda: rdp_epsilon(bad, lambda order: order),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=" must be .*, got "):
            call()
