"""Envelope of a one-dimensional log-concave density e^{-f}, without quadrature.

The energy is f(t) = b |t|^q + c |t|^s + (t - v)^2 / (2 h) with b, c >= 0, q, s >= 1.
The envelope is a plateau around the mode and two exponential tails along the tangents
of f where it has risen by about 1. Both lie above e^{-f} because f is convex, wherever
they touch it: an inexact mode or width costs tries and never the law.
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel

MAX_STEPS = 60
ENVELOPE_SIZE = 9
_TINY_MODE = 1e-290


@kernel
def power(x, exponent):
    """x**exponent for x >= 0."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    return x**exponent


@kernel
def energy(b, q, c, s, v, precision, t):
    """Return f(t) and its derivative in the direction away from 0 (at 0: the right)."""
    r = abs(t)
    first = b * power(r, q) if b > 0.0 else 0.0
    second = c * power(r, s) if c > 0.0 else 0.0
    value = first + second + 0.5 * precision * (t - v) * (t - v)
    if r > 0.0:
        outward = (q * first + s * second) / r
    else:
        outward = (b if q == 1.0 else 0.0) + (c if s == 1.0 else 0.0)
    return value, outward + (precision * (t - v) if t >= 0.0 else precision * (v - t))


@kernel
def positive_mode(b, q, c, s, v, precision):
    """Minimizer of f on the line for v >= 0.

    The condition is precision t + b q t^(q-1) + c s t^(s-1) = target. Its logarithm is
    convex and increasing in log t: Newton's method from the right is monotone.
    """
    target = precision * v - (b if q == 1.0 else 0.0) - (c if s == 1.0 else 0.0)
    b = b * q if q > 1.0 else 0.0
    c = c * s if s > 1.0 else 0.0
    if not target > 0.0:
        return 0.0
    t = target / precision
    if b > 0.0:
        t = min(t, (target / b) ** (1.0 / (q - 1.0)))
    if c > 0.0:
        t = min(t, (target / c) ** (1.0 / (s - 1.0)))
    for _ in range(MAX_STEPS):
        # The gap of the energy at 0 is below target * 1e-290.
        if not t > _TINY_MODE:
            return 0.0
        first = b * power(t, q - 1.0) if b > 0.0 else 0.0
        second = c * power(t, s - 1.0) if c > 0.0 else 0.0
        total = precision * t + first + second
        excess = math.log(total / target)
        weighted = precision * t + (q - 1.0) * first + (s - 1.0) * second
        t *= math.exp(-excess * total / weighted)
        if not abs(excess) > 1e-9:
            break
    return t


@kernel
def _side(b, q, c, s, v, precision, mode, base, sign, room):
    """Width, rise of f and slope at that width on one side; slope 0 means no tail.

    Widths are updated as if the rise were a power of the width, with the local
    exponent; ``room`` is the distance to the end of the interval.
    """
    at_mode = energy(b, q, c, s, v, precision, mode)[1]
    inward = mode != 0.0 and (mode > 0.0) != (sign > 0.0)
    start = -at_mode if inward else at_mode
    if mode == 0.0 and sign < 0.0:
        start = at_mode + 2.0 * precision * v
    width = math.sqrt(2.0 / precision) if precision > 0.0 else np.inf
    if start > 0.0:
        width = min(width, 1.0 / start)
    if mode == 0.0 and b > 0.0:
        width = min(width, b ** (-1.0 / q))
    if mode == 0.0 and c > 0.0:
        width = min(width, c ** (-1.0 / s))
    rise, slope = np.nan, np.nan
    for _ in range(MAX_STEPS):
        is_cut = width >= room
        width = min(width, room)
        t = mode + sign * width
        value, slope = energy(b, q, c, s, v, precision, t)
        slope = -slope if (t < 0.0) != (sign < 0.0) else slope
        rise = value - base
        if is_cut and rise <= 1.5:
            return width, rise, 0.0, start
        if 0.5 <= rise <= 1.6 and slope > 0.0:
            break
        if rise > 1e200:
            width *= 0.01
        elif rise > 0.0:
            exponent = max(slope * width / rise, 1.0)
            width *= rise ** (-1.0 / exponent)
        else:
            width *= 4.0
    return width, rise, slope, start


@kernel
def factor_envelope(b, q, c, s, v, h, lower, upper):
    """Envelope for `draw_from_envelope`, for v >= 0 (reflect the interval otherwise).

    Fields: mode, energy at the mode, width, rise and slope on the left and on the
    right, and the height by which the plateau must exceed the density at the mode.
    """
    precision = 1.0 / h
    mode = min(max(positive_mode(b, q, c, s, v, precision), lower), upper)
    base = energy(b, q, c, s, v, precision, mode)[0]
    left, left_rise, left_slope, left_start = _side(
        b, q, c, s, v, precision, mode, base, -1.0, mode - lower
    )
    right, right_rise, right_slope, right_start = _side(
        b, q, c, s, v, precision, mode, base, 1.0, upper - mode
    )
    # f may still fall beyond an inexact mode, by at most its slope times the width.
    gap = 0.0
    if mode != 0.0:
        gap = max(gap, -left_start * left, -right_start * right)
    return (
        mode,
        base,
        left,
        left_rise,
        left_slope,
        right,
        right_rise,
        right_slope,
        gap,
    )
