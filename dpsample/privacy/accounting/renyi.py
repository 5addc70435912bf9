r"""Renyi divergences: as (epsilon, delta), and of Gaussian steps on Poisson samples.

D_a(P || Q) is the Renyi divergence of order a > 1. A *curve* bounds it for all pairs of
neighbors, as a function of the order.

**As (epsilon, delta).** If D_a(P || Q) <= curve(a) for an order a = 1 + t > 1, then
(Canonne, Kamath and Steinke 2020, Proposition 7)

delta(epsilon) <= e^{t (curve(a) - epsilon)} (1 - 1/a)^a / t
                = exp(t (curve(a) - epsilon) + h(t)),
h(t) = -t log(1 + 1/t) - log(1 + t).

Every order gives a valid bound, so an inexact search of the best one is harmless.

**One Gaussian step on a Poisson sample**, with a proved error. Write N for the noise
distribution, of standard deviation z, and a(x) = 1 - q + q e^{(x-1/2)/z^2} for the
density of (1-q) N(0) + q N(1) relative to it. The pairs that `poisson` names have

.. math:: (\alpha-1) D_\alpha = \log A, \quad
    A = E_{x \sim N} [a(x)^\alpha b(x)^{1-\alpha}],

with b(x) = a(-x) when a record is replaced, and b = 1 when its loss is set to zero
(Mironov, Talwar and Zhang 2019, arXiv:1908.10530, equation (2). By their Theorem 5 the
reverse order of that pair has a smaller divergence). Divergences of steps add up.

A is computed by the trapezoidal rule with interval h.

*Error.* Let c = theta z^2, with theta < pi/2. In the strip |Im x| <= c the integrand f
is analytic, |a(x + ic)| <= a(x), |b(x + ic)| >= b(x) cos(theta) > 0, and the density of
N grows by at most e^{c^2/(2 z^2)}. The error is at most 2 M / (e^{2 pi c/h} - 1), M a
bound of the integrals of |f(x +- ic)| (Trefethen and Weideman 2014, Theorem 5.1), here
M = e^{c^2/(2 z^2)} cos(theta)^{1-alpha} A.

*Truncation.* Below -1/2 - 13 z, f is at most the density of N, because a <= 1 <= b
there. Above 1/2, a <= e^{(x-1/2)/z^2} and b >= 1 - q, so f is at most
(1-q)^{1-alpha} e^{alpha(alpha-1)/(2 z^2)} times the density of N(alpha).
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.privacy.accounting.events import PoissonGaussianEvent
from dpsample.privacy.curves.gaussian import GOLDEN

Curve = Callable[[float], float]  # order -> bound of the divergence

# The computed logarithms are accurate to about 1e-14. This is added to be safe.
MARGIN = 1e-12


@check.unwrap_numpy
def rdp_delta(epsilon: float, curve: Curve) -> float:
    """Return delta at ``epsilon`` of a mechanism with bounded Renyi divergences.

    Canonne, Kamath and Steinke (2020), Proposition 7.

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    curve : callable
        ``curve(order)`` bounds the Renyi divergence of that order > 1 between
        neighbors. It is infinity where no bound is known.

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
        # The order is rounded, and t must belong to it.
        order, divergence = _evaluate(curve, t)
        t = order - 1.0
        # The difference of two large numbers loses more than the margin.
        rounding = 16.0 * UNIT_ROUNDOFF * t * max(abs(divergence), epsilon)
        exponent = t * (divergence - epsilon) + log_factor(t)
        return exponent + max(rounding - MARGIN, 0.0)

    return delta_up(search_minimum(log_delta) + MARGIN)


@check.unwrap_numpy
def rdp_epsilon(delta: float, curve: Curve) -> float:
    """Return epsilon at ``delta`` of a mechanism with bounded Renyi divergences.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    curve : callable
        As in `rdp_delta`.

    Returns
    -------
    float
        epsilon >= 0, rounded up, or infinity if the curve is infinite at every order.

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
        order, divergence = _evaluate(curve, t)
        t = order - 1.0
        return divergence + (log_factor(t) - log_delta) / t

    return max(search_minimum(epsilon), 0.0) * (1.0 + MARGIN)


def _evaluate(curve: Curve, t: float) -> tuple[float, float]:
    """Return the rounded order 1 + t and its bound, infinity where that overflows."""
    order = 1.0 + t
    try:
        return order, float(curve(order))
    except OverflowError:
        return order, math.inf


def _check_curve(curve: object) -> None:
    """Raise unless ``curve`` is a function from an order to a number."""
    remedy = "It takes an order > 1 and returns a bound of the divergence."
    if not callable(curve):
        check.fail("curve", "a function", check.describe(curve), remedy)
    try:
        _evaluate(curve, 1.0)
    except (TypeError, ValueError) as error:
        check.fail("curve", "a function of one number", repr(error), remedy)


def delta_up(log_delta: float) -> float:
    """Return the probability, at most 1 and at least the smallest normal double.

    A smaller one would be rounded, finally to 0, and would claim pure privacy.
    """
    return max(math.exp(min(log_delta, 0.0)), check.MIN_NORMAL)


def log_factor(t: float) -> float:
    """Return h(t), without the cancellation of (1 - 1/a)^a / (a - 1)."""
    return -t * math.log1p(1.0 / t) - math.log1p(t)


def search_minimum(bound: Callable[[float], float]) -> float:
    """Return the smallest value that ``bound(order - 1)`` takes in a thorough search.

    A grid finds the valley, for functions of any shape. Golden sections find its floor.
    """

    def value_at(log_t: float) -> float:
        value = bound(math.exp(log_t))
        return math.inf if math.isnan(value) else value

    # The grid has log(order - 1) from -30 to 60. Orders beyond either end are useless.
    low, high, num_cells = -30.0, 60.0, 180
    width = (high - low) / num_cells
    grid = [low + width * i for i in range(num_cells + 1)]
    start = min(grid, key=value_at)
    best = value_at(start)
    low, high = start - width, start + width
    for _ in range(60):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = value_at(left), value_at(right)
        best = min(best, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return best


def sampled_delta(
    epsilon: float,
    steps: tuple[PoissonGaussianEvent, ...],
    *,
    rho: float,
    relation: str,
) -> float:
    """Return delta at ``epsilon`` of sampled steps composed with a rho-zCDP mechanism.

    Sampling rates are < 1. ``rho`` bounds the Renyi divergence, over the order, of
    everything else that is composed. The result is in [0, 1] and rounded up.

    The exponent of the bound is convex in the order, because log A is the logarithm of
    a moment. So halving finds the best order of a lattice.
    """
    lowest, num_octaves, per_octave = -8, 20, 32  # orders 1 + 2^(-8 + j/32)

    def log_delta(j: int) -> float:
        t = 2.0 ** (lowest + j / per_octave)
        moments = [
            part.num_steps
            * log_moment(1.0 + t, part.sampling_rate, part.noise_multiplier, relation)
            for part in steps
        ]
        terms = [*moments, t * (1.0 + t) * rho, -t * epsilon, log_factor(t)]
        return math.fsum(terms) + 8.0 * UNIT_ROUNDOFF * math.fsum(map(abs, terms))

    # The bound is nearly convex in the logarithm of t, so that the first rise on the
    # grid ends the valley. Another order would be valid as well.
    low, high = 0, num_octaves * per_octave
    while low < high:
        middle = (low + high) // 2
        if log_delta(middle) <= log_delta(middle + 1):
            high = middle
        else:
            low = middle + 1
    return delta_up(log_delta(low) + MARGIN)


@functools.lru_cache(maxsize=16_384)
@np.errstate(under="ignore")  # terms that are far from the peak become 0
def log_moment(order: float, rate: float, noise: float, relation: str) -> float:
    """Return an upper bound of log A of one step of sampling rate q = ``rate`` < 1.

    ``noise`` is z in units of the bound of one record's vector. A step that always
    takes the record is a bound, too, because A is jointly convex.
    """
    shift = (2.0 if relation == "replace_one" else 1.0) / noise
    revealed = 0.5 * order * (order - 1.0) * shift * shift * (1.0 + 8.0 * UNIT_ROUNDOFF)
    return min(_sampled_moment(order, rate, noise, relation), revealed)


def _sampled_moment(order: float, rate: float, noise: float, relation: str) -> float:
    """Return the bound by the trapezoidal rule, or infinity if it has too many points.

    x is in units of the bound of one record's vector. ``square`` is z^2, ``excess`` is
    alpha - 1.
    """
    square, excess = noise * noise, order - 1.0
    # Errors of truncation and of the trapezoidal rule are below e^-45 = 3e-20.
    exponent = 45.0
    if not 1e-300 < square < 1e300:
        return math.inf
    # A wide strip allows a long interval, but the integrand grows in it. This theta
    # balances both. `log_growth` is log(M / A).
    theta = min(math.pi / 3.0, math.sqrt(2.0 * exponent / (excess + square)))
    log_growth = 0.5 * theta * theta * square - excess * math.log(math.cos(theta))
    interval = 2.0 * math.pi * theta * square / (exponent + log_growth)
    low = -0.5 - 13.0 * noise
    # From here on the bound above 1/2 has less than e^-45 left.
    tail = order * excess - 2.0 * square * excess * math.log1p(-rate)
    high = order + math.sqrt(tail + 2.0 * square * exponent)
    if not (high - low) < 100_000 * interval:
        return math.inf
    # Multiples of the interval have rounding errors relative to x itself.
    first, last = math.floor(low / interval), math.ceil(high / interval)
    x = np.asarray(interval * np.arange(first, last + 1))
    log_a, log_b = _log_density(x, rate, square), np.zeros_like(x)
    if relation == "replace_one":
        log_b = _log_density(-x, rate, square)
    log_weights = -0.5 * x * x / square + math.log(interval / noise)
    log_weights -= 0.5 * math.log(2.0 * math.pi)
    log_ratios = order * log_a - excess * log_b
    log_terms = log_weights + log_ratios
    # Relative errors of each term, by the weight, and by x in the exponent.
    weight_errors = 8.0 * UNIT_ROUNDOFF * (4.0 + np.abs(log_weights))
    density_errors = 8.0 * UNIT_ROUNDOFF * (1.0 + (np.abs(x) + 0.5) / square)
    ratio_errors = density_errors * (order * np.abs(log_a) + excess * np.abs(log_b))
    peak = float(log_terms.max())
    if peak > 600.0:  # near overflow, the sum is taken relative to its largest term
        terms = np.exp(log_terms - peak) * (1.0 + weight_errors + ratio_errors)
        return peak + math.log(float(terms.sum())) + 1e-12
    # Sum A - 1 instead of A, because log A is tiny for small rates. Weights add up to
    # 1.
    weights = np.exp(log_weights)
    is_small = np.abs(log_ratios) < 1.0
    small_ratios = np.where(is_small, log_ratios, 0.0)
    terms = np.where(is_small, weights * np.expm1(small_ratios), 0.0)
    terms += np.where(is_small, 0.0, np.exp(log_terms) - weights)
    errors = np.abs(terms) * weight_errors + np.exp(log_terms) * ratio_errors
    total = float(terms.sum()) + float(errors.sum()) * (1.0 + 1e-9)
    total += 1e-18 * (1.0 + abs(total))  # truncation and the trapezoidal rule
    return math.log1p(max(total, 0.0)) * (1.0 + 1e-15)


def _log_density(x: Array, rate: float, square: float) -> Array:
    """Return log a(x), accurate near 0 and far from it."""
    exponents = (x - 0.5) / square
    # Up to 30 the exponential is added to 1 - q. Above, 1 - q is relative to it.
    is_low = exponents < 30.0
    low = np.where(is_low, exponents, 0.0)
    low_values = np.log1p(rate * np.expm1(low))
    if rate > 0.5:  # 1 + rate expm1(...) cancels for very negative exponents
        sums = np.log((1.0 - rate) + rate * np.exp(low))
        low_values = np.where(np.abs(low) < 0.5, low_values, sums)
    high = np.where(is_low, 30.0, exponents)
    corrections = np.log1p((1.0 - rate) / rate * np.exp(-high))
    return np.where(is_low, low_values, math.log(rate) + high + corrections)
