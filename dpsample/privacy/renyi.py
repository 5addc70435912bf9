"""Renyi divergences as (epsilon, delta), by the best order.

If D_a(P || Q) <= curve(a) for an order a = 1 + t > 1, then (Canonne, Kamath and Steinke
2020, Proposition 7)

delta(epsilon) <= e^{t (curve(a) - epsilon)} (1 - 1/a)^a / t
                = exp(t (curve(a) - epsilon) + h(t)),
h(t) = -t log(1 + 1/t) - log(1 + t).

Every order gives a valid bound, so that an inexact search of the best one is harmless.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpsample import _check as check

Curve = Callable[[float], float]

# log(order - 1) is searched here: from orders without use to orders beyond any use.
LOG_LOW, LOG_HIGH, GRID_SIZE = -30.0, 60.0, 180
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
GOLDEN_STEPS = 60
# The computed bounds are accurate to about 1e-14; this is added to be safe.
MARGIN = 1e-12
# Smallest normal double: below it a delta would be rounded, at last to 0, and claim
# that a mechanism is pure.
LEAST_DELTA = 2.2250738585072014e-308


@check.plain
def rdp_delta(epsilon: float, curve: Curve) -> float:
    """Delta at ``epsilon`` of a mechanism with bounded Renyi divergences.

    Canonne, Kamath and Steinke (2020), Proposition 7.

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    curve : callable
        ``curve(order)`` bounds the Renyi divergence of that order > 1 between
        neighbors; infinity where nothing is known.

    Returns
    -------
    float
        delta in [0, 1], rounded up.

    Raises
    ------
    ValueError
        If ``epsilon`` is not a finite number >= 0.

    Guarantee
    ---------
    The mechanism is (epsilon, delta)-DP if the curve is a bound in both directions.

    Examples
    --------
    >>> print(f"{rdp_delta(1.0, lambda order: 0.02 * order):.2e}")
    8.83e-08
    """
    check.non_negative(epsilon=epsilon)
    _check_curve(curve)

    def log_delta(t: float) -> float:
        return t * (curve(1.0 + t) - epsilon) + log_factor(t)

    return delta_up(smallest(log_delta) + MARGIN)


@check.plain
def rdp_epsilon(delta: float, curve: Curve) -> float:
    """Epsilon at ``delta`` of a mechanism with bounded Renyi divergences.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    curve : callable
        As in `rdp_delta`.

    Returns
    -------
    float
        epsilon >= 0, rounded up; infinity if the curve is infinite at every order.

    Raises
    ------
    ValueError
        If ``delta`` is not inside (0, 1).

    Guarantee
    ---------
    The mechanism is (epsilon, delta)-DP if the curve is a bound in both directions.

    Examples
    --------
    >>> print(f"{rdp_epsilon(1e-6, lambda order: 0.02 * order):.4f}")
    0.8999
    """
    check.open_interval(0.0, 1.0, delta=delta)
    _check_curve(curve)
    log_delta = math.log(delta) - 2.0 * MARGIN

    def epsilon(t: float) -> float:
        return curve(1.0 + t) + (log_factor(t) - log_delta) / t

    return max(smallest(epsilon), 0.0) * (1.0 + MARGIN)


def _check_curve(curve: Any) -> None:
    """Refuse what is no function from an order to a number."""
    remedy = "It takes an order > 1 and returns a bound of the divergence."
    if not callable(curve):
        check.fail("curve", "a function", check.shown(curve), remedy)
    try:
        float(curve(2.0))
    except (TypeError, ValueError) as error:
        check.fail("curve", "a function of one number", repr(error), remedy)


def delta_up(log_delta: float) -> float:
    """Return the probability, at most 1, and never less where doubles end."""
    return max(math.exp(min(log_delta, 0.0)), LEAST_DELTA)


def log_factor(t: float) -> float:
    """Return h(t), without the cancellation of (1 - 1/a)^a / (a - 1)."""
    return -t * math.log1p(1.0 / t) - math.log1p(t)


def smallest(bound: Callable[[float], float]) -> float:
    """Return the smallest value that ``bound(order - 1)`` takes in a thorough search.

    A grid finds the valley, whatever the shape; golden sections find its floor.
    """

    def at(log_t: float) -> float:
        value = bound(math.exp(log_t))
        return math.inf if math.isnan(value) else value

    width = (LOG_HIGH - LOG_LOW) / GRID_SIZE
    grid = [LOG_LOW + width * i for i in range(GRID_SIZE + 1)]
    start = min(grid, key=at)
    best = at(start)
    low, high = start - width, start + width
    for _ in range(GOLDEN_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = at(left), at(right)
        best = min(best, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return best
