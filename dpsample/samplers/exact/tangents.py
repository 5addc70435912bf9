# mypy: allow-untyped-defs
"""Tangents of the energy on boxes, and the mass of e^{-tangent} on each.

Along an axis e^{-tangent} is proportional to e^{-slope x} on an interval, which may be
a half line: its mass, its moments and an exact draw.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.problem.records import Work
from dpsample.samplers.errors import OK, PIECE_FAILED, UNCOVERED
from dpsample.targets import gibbs

# Below this product of slope and width the density is taken for constant: the error
# of the mass is relative and of the order of its square.
FLAT = 1e-8
# Smallest outward slope, in units of the fit, of the tangent on an unbounded cell.
OUTWARD = 0.3
MAX_DOUBLINGS = 60
# Share of the way to the center from a projection: no slope is infinite there.
RETREAT = 0.01


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


class Frame(NamedTuple):
    """Coordinates and outer box of the cells, with scratch memory."""

    center: Array
    factor: Array
    whiten: Array
    is_bounded: bool
    work: Work
    theta: Array
    gradient: Array
    other: Array


class Pile(NamedTuple):
    """Cells while they are being made; fields of `Cells`, and what to split next."""

    lower: Array
    upper: Array
    touch: Array
    slopes: Array
    base: Array
    log_mass: Array
    curvature: Array
    log_score: Array  # log of the expected mass of rejected proposals


@kernel
def place(frame, z, out):
    """Fill out with c + L z."""
    for k in range(out.shape[0]):
        out[k] = frame.center[k]
        for i in range(z.shape[0]):
            out[k] += frame.factor[k, i] * z[i]


@kernel
def pull_inside(target, pieces, frame, z):
    """Move z to a point of the domain off its boundary, if it is outside."""
    place(frame, z, frame.theta)
    if gibbs.inside(target, pieces, frame.theta, frame.work) == 1.0:
        return
    gibbs.project(target, pieces, frame.theta, frame.other)
    for i in range(z.shape[0]):
        z[i] = 0.0
        for k in range(frame.theta.shape[0]):
            z[i] += frame.whiten[i, k] * (frame.other[k] - frame.center[k])
        z[i] *= 1.0 - RETREAT


@kernel
def touch_at(target, pieces, frame, z, slopes):
    """Energy at z, its gradient into slopes."""
    place(frame, z, frame.theta)
    value = gibbs.energy_gradient(
        target, pieces, frame.theta, frame.work, frame.gradient
    )
    for i in range(z.shape[0]):
        slopes[i] = 0.0
        for k in range(frame.theta.shape[0]):
            slopes[i] += frame.factor[k, i] * frame.gradient[k]
        value = value if abs(slopes[i]) < np.inf else np.nan
    return value


@kernel
def touch_cell(target, pieces, frame, pile, j, tilt):
    """Tangent of cell j near the mean of the density of slope ``tilt``; its mass."""
    low, high = pile.lower[j], pile.upper[j]
    z, slopes = pile.touch[j], pile.slopes[j]
    for i in range(z.shape[0]):
        z[i] = moments(tilt[i], low[i], high[i])[0]
    if frame.is_bounded:
        pull_inside(target, pieces, frame, z)
    reach = 1.0
    for _ in range(MAX_DOUBLINGS):
        pile.base[j] = touch_at(target, pieces, frame, z, slopes)
        if not abs(pile.base[j]) < np.inf:
            return PIECE_FAILED
        is_outward = True
        for i in range(z.shape[0]):
            if low[i] == -np.inf and not slopes[i] < -OUTWARD:
                z[i], is_outward = min(z[i], high[i]) - reach, False
            if high[i] == np.inf and not slopes[i] > OUTWARD:
                z[i], is_outward = max(z[i], low[i]) + reach, False
        if is_outward:
            total = -pile.base[j]
            for i in range(z.shape[0]):
                t = z[i]
                total += log_mass(slopes[i], low[i] - t, high[i] - t)
            pile.log_mass[j] = total
            return OK
        reach *= 2.0
    return UNCOVERED
