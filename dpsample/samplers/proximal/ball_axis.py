# mypy: allow-untyped-defs
"""Law of a Gaussian in a Euclidean ball along the axis from the center to its mean.

Units are the Gaussian's standard deviation, R the radius, A the distance of the mean
from the center, a = (dim - 1) / 2. The coordinate w along the axis is written as
w = R - z, which keeps its distance z from the near pole to full precision. Its density
on [0, 2 R] is log-concave,

    log density = -z^2 / 2 + (R - A) z + log P(a, z (2 R - z) / 2) + constant,

P the regularized incomplete gamma function. Given z, half the squared distance from
the axis is a Gamma(a, 1) variable restricted to [0, z (2 R - z) / 2].
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import log_gamma_factor, log_gammainc

MAX_TRIES = 10_000
MAX_STEPS = 60


@kernel
def _log_density(a, radius, shift, z):
    """Log density at z and its first two derivatives; shift = R - A."""
    room = 0.5 * z * (2.0 * radius - z)
    log_p = log_gammainc(a, room)
    hazard = math.exp(math.log(a / room) + log_gamma_factor(a, room) - log_p)
    w = radius - z
    value = (shift - 0.5 * z) * z + log_p
    first = shift - z + w * hazard
    second = -1.0 - hazard + w * w * hazard * ((a - 1.0) / room - 1.0 - hazard)
    return value, first, second


@kernel
def _mode(a, radius, distance):
    """Approximate mode, by Newton's method inside a bracket.

    The start is the near end of R - A and of the root of w (2 a / (R^2 - w^2)) = A - w
    without the last w, which is the mode when the truncation is strong.
    """
    product = distance * radius
    root = math.sqrt(a * a + product * product)
    z = max(radius - distance, radius * (a + a * a / (root + product)) / (a + root))
    low, high = 0.0, 2.0 * radius
    if not 0.0 < z < high:
        z = radius
    for _ in range(MAX_STEPS):
        _, first, second = _log_density(a, radius, radius - distance, z)
        if first > 0.0:
            low = z
        else:
            high = z
        step = -first / second if second < 0.0 else 0.0
        if not abs(first * step) > 1e-3:
            break
        proposal = z + step
        if not low < proposal < high:
            proposal = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        z = proposal
    return z


@kernel
def _side(a, radius, shift, mode, top, start, sign):
    """Width, drop of the log density and slope there; slope 0 means no tail."""
    room = mode if sign < 0.0 else 2.0 * radius - mode
    width = start
    drop, slope = np.nan, np.nan
    for _ in range(MAX_STEPS):
        if width >= room:
            width = 0.5 * (room + (width / (1.0 + width / room)))
        value, first, _ = _log_density(a, radius, shift, mode + sign * width)
        drop, slope = top - value, -sign * first
        if 0.4 <= drop <= 2.0 and slope > 0.0:
            break
        if drop > 0.0:
            width *= drop ** (-1.0 / max(slope * width / drop, 1.0))
        else:
            width *= 4.0
        if room - width < 1e-9 * room:
            return room, 0.0, 0.0
    return width, drop, slope


@kernel
def draw_axis(rng, a, radius, distance):
    """Draw z = R - w by rejection from a plateau and two tangent tails."""
    shift = radius - distance
    mode = _mode(a, radius, distance)
    top, first, second = _log_density(a, radius, shift, mode)
    start = 1.4 / math.sqrt(-second) if second < 0.0 else 0.5 * radius
    left, left_drop, left_slope = _side(a, radius, shift, mode, top, start, -1.0)
    right, right_drop, right_slope = _side(a, radius, shift, mode, top, start, 1.0)
    # The density may still rise beyond an inexact mode, by its slope times the width.
    gap = max(first * right, -first * left, 0.0)
    plateau = (left + right) * math.exp(gap)
    left_mass = math.exp(-left_drop) / left_slope if left_slope > 0.0 else 0.0
    right_mass = math.exp(-right_drop) / right_slope if right_slope > 0.0 else 0.0
    total = plateau + left_mass + right_mass
    if not (total > 0.0 and total < np.inf):
        return np.nan
    for _ in range(MAX_TRIES):
        u = total * rng.random()
        if u < plateau:
            z = mode - left + (left + right) * rng.random()
            bound = top + gap
        elif u < plateau + left_mass:
            step = rng.standard_exponential()
            z = mode - (left + step / left_slope)
            bound = top - left_drop - step
        else:
            step = rng.standard_exponential()
            z = mode + (right + step / right_slope)
            bound = top - right_drop - step
        if 0.0 < z < 2.0 * radius:
            value = _log_density(a, radius, shift, z)[0]
            if rng.standard_exponential() >= bound - value:
                return z
    return np.nan


@kernel
def truncated_gamma(rng, a, upper):
    """Draw Gamma(a, 1) restricted to [0, upper], for a >= 0.5.

    If upper is below the bulk, log of the variable has an increasing concave log
    density, and the tangent at the end is an envelope; otherwise plain rejection.
    """
    rate = a - upper
    if rate > 0.5 * math.sqrt(a):
        for _ in range(MAX_TRIES):
            u = -rng.standard_exponential() / rate
            # a u - upper (e^u - 1) - rate u = -upper (e^u - 1 - u)
            if rng.standard_exponential() >= upper * (math.expm1(u) - u):
                return upper * math.exp(u)
        return np.nan
    for _ in range(MAX_TRIES):
        x = rng.standard_gamma(a)
        if x <= upper:
            return x
    return np.nan
