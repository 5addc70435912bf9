"""The density proportional to e^{-slope x} on an interval, which may be a half line."""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel

# Below this product of slope and width the density is taken for constant: the error
# of the mass is relative and of the order of its square.
FLAT = 1e-8


@kernel
def log_mass(slope, low, high):
    """Log of the integral of e^{-slope x} over [low, high]; infinite if it diverges."""
    size, width = abs(slope), high - low
    if width < np.inf and size * width < FLAT:
        return math.log(width) - slope * (0.5 * low + 0.5 * high)
    nearest = slope * low if slope > 0.0 else slope * high
    if not abs(nearest) < np.inf:
        return np.inf
    return math.log(-math.expm1(-size * width) / size) - nearest


@kernel
def moments(slope, low, high):
    """Mean and variance, roughly; they only place tangents."""
    size, width = abs(slope), high - low
    if size * width < 0.05:
        mean, variance = width * (0.5 - size * width / 12.0), width * width / 12.0
    elif size * width > 50.0:
        mean, variance = 1.0 / size, 1.0 / (size * size)
    else:
        mean = 1.0 / size - width / math.expm1(size * width)
        half = 0.5 * width / math.sinh(0.5 * size * width)
        variance = 1.0 / (size * size) - half * half
    return (low + mean if slope >= 0.0 else high - mean), variance


@kernel
def draw(rng, slope, low, high):
    """Draw by inverting the distribution function from the end of highest density."""
    size, width = abs(slope), high - low
    u = rng.random()
    if width < np.inf and size * width < 1e-300:
        return min(low + width * u, high)
    step = -math.log1p(u * math.expm1(-size * width)) / size
    return min(low + step, high) if slope > 0.0 else max(high - step, low)
