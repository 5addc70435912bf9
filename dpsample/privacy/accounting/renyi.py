r"""Renyi divergences: as (epsilon, delta), and of Gaussian steps on Poisson samples.

*As (epsilon, delta).* If D_a(P || Q) <= curve(a) for an order a = 1 + t > 1, then
(Canonne, Kamath and Steinke 2020, Proposition 7)

delta(epsilon) <= e^{t (curve(a) - epsilon)} (1 - 1/a)^a / t
                = exp(t (curve(a) - epsilon) + h(t)),
h(t) = -t log(1 + 1/t) - log(1 + t).

Every order gives a valid bound, so that an inexact search of the best one is harmless.

*Of one Gaussian step on a Poisson sample*, with a proved error. Write N for the noise's
law, of standard deviation z, and a(x) = 1 - q + q e^{(x-1/2)/z^2} for the density of
(1-q) N(0) + q N(1) relative to it. The pairs that `poisson` names have

.. math:: (\alpha-1) D_\alpha = \log A, \quad
    A = E_{x \sim N} [a(x)^\alpha b(x)^{1-\alpha}],

with b(x) = a(-x) when a record is replaced, and b = 1 when its loss is set to zero
(Mironov, Talwar and Zhang 2019, arXiv:1908.10530, equation (2); by their Theorem 5 the
reverse order of that pair has a smaller divergence). Divergences of steps add up.

A is computed by the trapezoidal rule with interval h. *Error.* Let c = theta z^2, with
theta < pi/2. In the strip |Im x| <= c the integrand f is analytic: |a(x + ic)| <= a(x),
|b(x + ic)| >= b(x) cos(theta) > 0, and the density of N grows by at most
e^{c^2/(2 z^2)}. The error is at most 2 M / (e^{2 pi c/h} - 1), M a bound of the
integrals of |f(x +- ic)| (Trefethen and Weideman 2014, Theorem 5.1):
M = e^{c^2/(2 z^2)} cos(theta)^{1-alpha} A. Below -1/2 - 13 z, f is at most the density
of N: there a <= 1 <= b. Above 1/2, a <= e^{(x-1/2)/z^2} and b >= 1 - q, so f is at
most (1-q)^{1-alpha} e^{alpha(alpha-1)/(2 z^2)} times the density of N(alpha).
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.accounting.events import PoissonGaussianEvent

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


@check.unwrap_numpy
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
        order, divergence = _known(curve, t)
        t = order - 1.0
        # Two large numbers lose more than the margin.
        lost = 16.0 * UNIT * t * max(abs(divergence), epsilon)
        exponent = t * (divergence - epsilon) + log_factor(t)
        return exponent + max(lost - MARGIN, 0.0)

    return delta_up(search_minimum(log_delta) + MARGIN)


@check.unwrap_numpy
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
        order, divergence = _known(curve, t)
        t = order - 1.0
        return divergence + (log_factor(t) - log_delta) / t

    return max(search_minimum(epsilon), 0.0) * (1.0 + MARGIN)


def _known(curve: Curve, t: float) -> tuple[float, float]:
    """Order 1 + t as a float, and its bound: infinity where the curve overflows."""
    order = 1.0 + t
    try:
        return order, float(curve(order))
    except OverflowError:
        return order, math.inf


def _check_curve(curve: object) -> None:
    """Refuse what is not a function from an order to a number."""
    remedy = "It takes an order > 1 and returns a bound of the divergence."
    if not callable(curve):
        check.fail("curve", "a function", check.describe(curve), remedy)
    try:
        _known(curve, 1.0)
    except (TypeError, ValueError) as error:
        check.fail("curve", "a function of one number", repr(error), remedy)


def delta_up(log_delta: float) -> float:
    """Return the probability, at most 1, and never less where doubles end."""
    return max(math.exp(min(log_delta, 0.0)), LEAST_DELTA)


def log_factor(t: float) -> float:
    """Return h(t), without the cancellation of (1 - 1/a)^a / (a - 1)."""
    return -t * math.log1p(1.0 / t) - math.log1p(t)


def search_minimum(bound: Callable[[float], float]) -> float:
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


# Errors of truncation and of the trapezoidal rule are below e^-45 = 3e-20.
EXPONENT = 45.0
MAX_POINTS = 100_000
UNIT = 2.0**-53
# Orders tried are 1 + 2^(LOWEST + j/PER_OCTAVE): each gives a valid bound.
LOWEST, NUM_OCTAVES, PER_OCTAVE = -8, 20, 32


def sampled_delta(
    epsilon: float,
    steps: tuple[PoissonGaussianEvent, ...],
    *,
    rho: float,
    relation: str,
) -> float:
    """Delta at ``epsilon`` of sampled steps composed with a rho-zCDP mechanism.

    The exponent is convex in the order (log A is, being the logarithm of a
    moment), so that halving finds the best order of the lattice. Sampling
    rates are < 1; ``rho`` bounds the Renyi divergence over the order of whatever else
    is composed. The result is in [0, 1] and rounded up.
    """

    def log_delta(j: int) -> float:
        t = 2.0 ** (LOWEST + j / PER_OCTAVE)
        moments = [
            part.num_steps
            * log_moment(1.0 + t, part.sampling_rate, part.noise_multiplier, relation)
            for part in steps
        ]
        terms = [*moments, t * (1.0 + t) * rho, -t * epsilon, log_factor(t)]
        return math.fsum(terms) + 8.0 * UNIT * math.fsum(map(abs, terms))

    low, high = 0, NUM_OCTAVES * PER_OCTAVE
    while low < high:
        middle = (low + high) // 2
        if log_delta(middle) <= log_delta(middle + 1):
            high = middle
        else:
            low = middle + 1
    return delta_up(log_delta(low) + MARGIN)


@functools.lru_cache(maxsize=16_384)
@np.errstate(under="ignore")  # terms that are far from the peak are 0
def log_moment(order: float, rate: float, noise: float, relation: str) -> float:
    """Upper bound of log A of one step of sampling rate q = ``rate`` inside (0, 1).

    ``noise`` is z in units of the bound of one record's vector. It is at most that of a
    step that takes the record, because A is jointly convex.
    """
    shift = (2.0 if relation == "replace_one" else 1.0) / noise
    revealed = 0.5 * order * (order - 1.0) * shift * shift * (1.0 + 8.0 * UNIT)
    return min(_sampled_moment(order, rate, noise, relation), revealed)


def _sampled_moment(order: float, rate: float, noise: float, relation: str) -> float:
    """Return the bound by the trapezoidal rule; infinite after too many points."""
    square, excess = noise * noise, order - 1.0
    if not 1e-300 < square < 1e300:
        return math.inf
    theta = min(math.pi / 3.0, math.sqrt(2.0 * EXPONENT / (excess + square)))
    growth = 0.5 * theta * theta * square - excess * math.log(math.cos(theta))
    interval = 2.0 * math.pi * theta * square / (EXPONENT + growth)
    low = -0.5 - 13.0 * noise
    loss = order * excess - 2.0 * square * excess * math.log1p(-rate)
    high = order + math.sqrt(loss + 2.0 * square * EXPONENT)
    if not (high - low) < MAX_POINTS * interval:
        return math.inf
    # Multiples of the interval: their rounding errors are relative to x itself.
    first, last = math.floor(low / interval), math.ceil(high / interval)
    x = np.asarray(interval * np.arange(first, last + 1))
    up, down = _log_density(x, rate, square), np.zeros_like(x)
    if relation == "replace_one":
        down = _log_density(-x, rate, square)
    log_weight = -0.5 * x * x / square + math.log(interval / noise)
    log_weight -= 0.5 * math.log(2.0 * math.pi)
    gain = order * up - excess * down
    tops = log_weight + gain
    # Relative error of each term: of the weight, and of the exponent through x.
    spread = 8.0 * UNIT * (4.0 + np.abs(log_weight))
    slope = 8.0 * UNIT * (1.0 + (np.abs(x) + 0.5) / square)
    tilt = slope * (order * np.abs(up) + excess * np.abs(down))
    peak = float(tops.max())
    if peak > 600.0:
        terms = np.exp(tops - peak) * (1.0 + spread + tilt)
        return peak + math.log(float(terms.sum())) + 1e-12
    weight = np.exp(log_weight)
    near = np.abs(gain) < 1.0
    terms = np.where(near, weight * np.expm1(np.where(near, gain, 0.0)), 0.0)
    terms += np.where(near, 0.0, np.exp(tops) - weight)
    error = np.abs(terms) * spread + np.exp(tops) * tilt
    total = float(terms.sum()) + float(error.sum()) * (1.0 + 1e-9)
    total += 1e-18 * (1.0 + abs(total))
    return math.log1p(max(total, 0.0)) * (1.0 + 1e-15)


def _log_density(x: Array, rate: float, square: float) -> Array:
    """Return log a(x), accurate near 0 and far from it."""
    exponent = (x - 0.5) / square
    small = exponent < 30.0
    inside = np.where(small, exponent, 0.0)
    near = np.log1p(rate * np.expm1(inside))
    if rate > 0.5:  # where 1 + rate expm1(...) would cancel
        sums = np.log((1.0 - rate) + rate * np.exp(inside))
        near = np.where(np.abs(inside) < 0.5, near, sums)
    far = np.where(small, 30.0, exponent)
    rest = np.log1p((1.0 - rate) / rate * np.exp(-far))
    return np.where(small, near, math.log(rate) + far + rest)
