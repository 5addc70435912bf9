# mypy: allow-untyped-defs
"""Exact draws from one-dimensional log-concave densities on an interval.

`normal_between` is a normal on [lower, upper]. `draw_from_envelope` draws from e^{-f}
on [lower, upper] with the energy

    f(t) = b |t|^q + c |t|^s + (t - v)^2 / (2 h),    b, c >= 0, q, s >= 1, 0 < h <= inf,

by rejection from a plateau around the mode and two exponential tails along the tangents
of f where it has risen by about 1. Both lie above e^{-f} because f is convex, wherever
they touch it: an inexact mode or width costs tries and never the law. NaN in an
argument gives NaN.
"""

import math

import numpy as np

from dpsample.core.jit import kernel

MAX_STEPS, MAX_TRIES = 60, 10_000
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
    left_side = (left, left_rise, left_slope)
    right_side = (right, right_rise, right_slope)
    return (mode, base) + left_side + right_side + (gap,)


@kernel
def _tail_excess(rng, lower, width):
    """Z - lower for a standard normal Z on [lower, lower + width], lower >= 0."""
    if width * (lower + 0.5 * width) <= 1.2:
        for _ in range(MAX_TRIES):
            step = width * rng.random()
            if rng.standard_exponential() >= step * (lower + 0.5 * step):
                return step
        return np.nan
    if lower < 0.6:
        for _ in range(MAX_TRIES):
            step = abs(rng.standard_normal()) - lower
            if 0.0 <= step <= width:
                return step
        return np.nan
    # Tangent of t^2 / 2 at lower: an exponential variable that stops at width.
    mass = -math.expm1(-lower * width)
    for _ in range(MAX_TRIES):
        step = -math.log1p(-mass * rng.random()) / lower
        if step <= width and rng.standard_exponential() >= 0.5 * step * step:
            return step
    return np.nan


@kernel
def truncated_normal(rng, lower, upper):
    """Draw a standard normal restricted to [lower, upper]; NaN if that is empty.

    Exact rejection with acceptance above 0.38 for every interval.
    """
    if not lower <= upper or lower == np.inf or upper == -np.inf:
        return np.nan
    if lower == upper:
        return lower
    width = upper - lower
    if lower >= 0.0:
        return min(lower + _tail_excess(rng, lower, width), upper)
    if upper <= 0.0:
        return max(upper - _tail_excess(rng, -upper, width), lower)
    for _ in range(MAX_TRIES):
        if width > 2.5:
            t = rng.standard_normal()
            if lower <= t <= upper:
                return t
        else:
            t = lower + width * rng.random()
            if rng.standard_exponential() >= 0.5 * t * t:
                return min(t, upper)
    return np.nan


@kernel
def normal_between(rng, mean, stddev, lower, upper):
    """Draw N(mean, stddev^2) restricted to [lower, upper]; NaN if that is empty.

    With a mean outside it is the distance from the end next to it that is drawn, to
    full relative accuracy, and the answer is rounded once: it sits on that end as often
    as the rounded law does, while mean + stddev t has the spacing of its terms.
    """
    width = (upper - lower) / stddev
    if lower < upper and 0.0 < mean - upper < np.inf:
        t = upper - stddev * _tail_excess(rng, (mean - upper) / stddev, width)
    elif lower < upper and 0.0 < lower - mean < np.inf:
        t = lower + stddev * _tail_excess(rng, (lower - mean) / stddev, width)
    else:
        z = truncated_normal(rng, (lower - mean) / stddev, (upper - mean) / stddev)
        t = mean + stddev * z
    return min(max(t, lower), upper) if t == t else np.nan


@kernel
def draw_from_envelope(rng, b, q, c, s, v, h, lower, upper, envelope):
    """Exact draw by rejection from what `factor_envelope` returned for v >= 0."""
    mode, base, left, left_rise, left_slope = envelope[:5]
    right, right_rise, right_slope, gap = envelope[5:]
    plateau = (left + right) * math.exp(gap)
    left_mass = math.exp(-left_rise) / left_slope if left_slope > 0.0 else 0.0
    right_mass = math.exp(-right_rise) / right_slope if right_slope > 0.0 else 0.0
    total = plateau + left_mass + right_mass
    if not (total > 0.0 and total < np.inf):
        return mode if total == 0.0 else np.nan
    for _ in range(MAX_TRIES):
        u = total * rng.random()
        if u < plateau:
            t = mode + ((left + right) * rng.random() - left)  # rounded once
            bound = base - gap
        elif u < plateau + right_mass:
            step = rng.standard_exponential()
            t = mode + (right + step / right_slope)
            bound = base + right_rise + step
        else:
            step = rng.standard_exponential()
            t = mode - (left + step / left_slope)
            bound = base + left_rise + step
        if lower <= t <= upper:
            value = energy(b, q, c, s, v, 1.0 / h, t)[0]
            if rng.standard_exponential() >= value - bound:
                return t
    return np.nan


_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(6)
_UNIT_NODES = 0.5 + 0.5 * _GAUSS_NODES
_UNIT_WEIGHTS = 0.5 * _GAUSS_WEIGHTS
# In units of the width where f has risen by about 1: [0, 1.5], then [1.5, 7].
_NODES = np.concatenate((1.5 * _UNIT_NODES, 1.5 + 5.5 * _UNIT_NODES))
_WEIGHTS = np.concatenate((1.5 * _UNIT_WEIGHTS, 5.5 * _UNIT_WEIGHTS))


@kernel
def factor_moments(b, q, c, s, v, h, lower, upper, out):
    """Write E|t|^q, E|t|^s, then E|t|^2q, E|t|^(q+s), E|t|^2s of e^{-f} into out.

    A deterministic quadrature with up to 24 nodes, good to about 1 percent: it only
    chooses envelopes.
    """
    sign = -1.0 if v < 0.0 else 1.0
    low, high = (lower, upper) if sign > 0.0 else (-upper, -lower)
    envelope = factor_envelope(b, q, c, s, sign * v, h, low, high)
    mode, base = envelope[0], envelope[1]
    mass = 0.0
    out[:5] = 0.0
    for side in range(2):
        width = envelope[5] if side == 1 else envelope[2]
        slope = envelope[7] if side == 1 else envelope[4]
        nodes, weights = _NODES, _WEIGHTS
        if slope == 0.0:
            nodes, weights = _UNIT_NODES, _UNIT_WEIGHTS
        for k in range(nodes.shape[0]):
            t = mode + (width if side == 1 else -width) * nodes[k]
            if low <= t <= high:
                value = energy(b, q, c, s, sign * v, 1.0 / h, t)[0]
                weight = width * weights[k] * math.exp(base - value)
                first, second = power(abs(t), q), power(abs(t), s)
                mass += weight
                out[0] += weight * first
                out[1] += weight * second
                out[2] += weight * first * first
                out[3] += weight * first * second
                out[4] += weight * second * second
    if mass > 0.0:
        out[:5] /= mass
    else:
        first, second = power(abs(mode), q), power(abs(mode), s)
        out[0], out[1], out[2] = first, second, first * first
        out[3], out[4] = first * second, second * second
