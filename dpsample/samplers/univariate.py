"""Exact draws from one-dimensional log-concave densities on an interval.

`truncated_normal` is the standard normal on [lower, upper]. `draw_factor` draws from
e^{-f} on [lower, upper] with the energy

    f(t) = b |t|^q + c |t|^s + (t - v)^2 / (2 h),    b, c >= 0, q, s >= 1, 0 < h <= inf,

by rejection from the envelope of `samplers.envelope`. NaN in an argument gives NaN.
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel
from dpsample.samplers.envelope import energy, factor_envelope, positive_mode, power

MAX_TRIES = 10_000


@kernel
def _normal_tail(rng, lower, width):
    """Draw a standard normal restricted to [lower, lower + width], lower >= 0."""
    if width * (lower + 0.5 * width) <= 1.2:
        for _ in range(MAX_TRIES):
            step = width * rng.random()
            if rng.standard_exponential() >= step * (lower + 0.5 * step):
                return lower + step
        return np.nan
    if lower < 0.6:
        for _ in range(MAX_TRIES):
            t = abs(rng.standard_normal())
            if lower <= t <= lower + width:
                return t
        return np.nan
    # Tangent of t^2 / 2 at lower: an exponential variable that stops at width.
    mass = -math.expm1(-lower * width)
    for _ in range(MAX_TRIES):
        step = -math.log1p(-mass * rng.random()) / lower
        if step <= width and rng.standard_exponential() >= 0.5 * step * step:
            return lower + step
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
    if lower >= 0.0:
        return min(_normal_tail(rng, lower, upper - lower), upper)
    if upper <= 0.0:
        return max(-_normal_tail(rng, -upper, upper - lower), lower)
    width = upper - lower
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
def factor_mode(b, q, c, s, v, h, lower, upper):
    """Mode of the factor density on [lower, upper], to about 1e-15 relative."""
    mode = math.copysign(positive_mode(b, q, c, s, abs(v), 1.0 / h), v)
    return min(max(mode, lower), upper)


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
            t = mode - left + (left + right) * rng.random()
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


@kernel
def draw_factor(rng, b, q, c, s, v, h, lower, upper):
    """Draw exactly from e^{-f} on [lower, upper]."""
    if not (lower <= upper and h > 0.0 and b >= 0.0 and c >= 0.0):
        return np.nan
    if not (q >= 1.0 and s >= 1.0):
        return np.nan
    sign = -1.0 if v < 0.0 else 1.0
    v, low, high = sign * v, lower, upper
    if sign < 0.0:
        low, high = -upper, -lower
    if b == 0.0 and c == 0.0 and h < np.inf:
        scale = math.sqrt(h)
        t = v + scale * truncated_normal(rng, (low - v) / scale, (high - v) / scale)
        return sign * min(max(t, low), high)
    envelope = factor_envelope(b, q, c, s, v, h, low, high)
    return sign * draw_from_envelope(rng, b, q, c, s, v, h, low, high, envelope)


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
