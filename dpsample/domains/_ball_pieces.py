"""Compiled pieces of the l_p ball ``||theta - center||_p <= radius``."""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel
from dpsample.domains._domain import Body, Vector
from dpsample.norms import distance

EPSILON = 2.0**-52
MAX_STEPS = 200
MAX_EXPONENT = 700.0
TINY = 1e-300


@kernel
def ball_contains(body: Body, theta: Vector, out: Vector) -> None:
    """Write 1 if the distance to the center is at most the radius."""
    inside = distance(theta, body.center, body.p) <= body.radius
    out[0] = 1.0 if inside else 0.0


@kernel
def soft_threshold(size: Vector, radius: float) -> tuple[float, float]:
    """Return the largest entry and s with ``sum(max(size - largest - s, 0)) = radius``.

    Newton's method on a convex piecewise linear function from the left is monotone and
    ends exactly after finitely many steps (Michelot's algorithm); no sorting is needed.
    """
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        largest = max(largest, size[i])
    # Measured from the largest entry, cancellation cannot spoil the sum.
    shift = -radius
    for _ in range(dim + 1):
        total = 0.0
        count = 0
        for i in range(dim):
            if size[i] - largest > shift:
                total += size[i] - largest
                count += 1
        following = (total - radius) / count
        if not following > shift:
            break
        shift = following
    return largest, shift


@kernel
def log_root(size: float, weight: float, power: float) -> float:
    """Return log u for the root u > 0 of ``u + weight u**power = size``.

    In log u the left side is convex and increasing, so Newton's method from the right
    converges monotonically, for every power > 0.
    """
    point = math.log(size)
    if weight == 0.0:
        return point
    point = min(point, (point - math.log(weight)) / power)
    for _ in range(MAX_STEPS):
        first = math.exp(point)
        second = weight * math.exp(power * point)
        slope = first + power * second
        step = (first + second - size) / slope if slope > 0.0 else 0.0
        point -= step
        if not abs(step) > EPSILON * max(1.0, abs(point)):
            break
    return point


@kernel
def shrink_logs(
    size: Vector, weight: float, p: float, logs: Vector
) -> tuple[float, float]:
    """Solve ``u + weight u**(p-1) = size``; return log ||u||_p and its derivative."""
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        logs[i] = log_root(size[i], weight, p - 1.0) if size[i] > 0.0 else -np.inf
        largest = max(largest, logs[i])
    total = 0.0
    slope = 0.0
    for i in range(dim):
        mass = math.exp(p * (logs[i] - largest))
        total += mass
        if mass > 0.0:
            power = min((2.0 - p) * logs[i], MAX_EXPONENT)
            rate = math.exp(power) + weight * (p - 1.0)
            slope -= mass / max(rate, TINY)
    return largest + math.log(total) / p, slope / total


@kernel
def shrink_general(size: Vector, radius: float, p: float, out: Vector) -> None:
    """Project nonnegative ``size``, outside the ball around 0, for 1 < p < inf.

    The projection solves ``u + s u**(p-1) = size`` with ``||u||_p = radius``; in units
    of the radius, s is at most the dual norm of ``size``. Newton's method on the norm
    gives way to bisection unless it halves the error.
    """
    dim = len(size)
    low = 0.0
    high = 0.0
    for i in range(dim):
        size[i] /= radius
        high += size[i]
    weight = 0.0
    before = np.inf
    done = False
    log_norm = np.nan
    for _ in range(MAX_STEPS):
        log_norm, slope = shrink_logs(size, weight, p, out)
        if done or abs(log_norm) <= EPSILON:
            break
        if log_norm > 0.0:
            low = weight
        else:
            high = weight
        following = low
        if slope < 0.0 and abs(log_norm) <= 0.5 * before:
            gain = math.expm1(min(-log_norm, MAX_EXPONENT))
            following = weight + gain / slope
        if not low < following < high:
            following = 0.5 * (low + high)
        before = abs(log_norm)
        done = abs(following - weight) <= EPSILON * following
        weight = following
    for i in range(dim):
        out[i] = radius * math.exp(out[i] - log_norm)
    if not (done or abs(log_norm) <= EPSILON):
        out[:] = np.nan


@kernel
def shrink_to_norm(size: Vector, radius: float, p: float, out: Vector) -> None:
    """Project nonnegative ``size`` onto the ball around 0; ``size`` is overwritten."""
    dim = len(size)
    length = distance(size, np.zeros(dim), p)
    if length <= radius:
        out[:] = size
    elif p == 1.0:
        largest, shift = soft_threshold(size, radius)
        for i in range(dim):
            out[i] = max((size[i] - largest) - shift, 0.0)
    elif p == 2.0:
        for i in range(dim):
            out[i] = size[i] * (radius / length)
    elif np.isinf(p):
        for i in range(dim):
            out[i] = min(size[i], radius)
    elif length > radius:
        shrink_general(size, radius, p, out)


@kernel
def ball_project(body: Body, theta: Vector, out: Vector) -> None:
    """Write the nearest point, pulled in by rounding errors until it is inside."""
    dim = len(theta)
    length = distance(theta, body.center, body.p)
    if length != length:
        return
    if length <= body.radius:
        out[:] = theta
        return
    size = np.empty(dim)
    for i in range(dim):
        size[i] = abs(theta[i] - body.center[i])
    shrink_to_norm(size, body.radius, body.p, out)
    for i in range(dim):
        out[i] = body.center[i] + math.copysign(out[i], theta[i] - body.center[i])
    pull = EPSILON
    while distance(out, body.center, body.p) > body.radius:
        for i in range(dim):
            out[i] = body.center[i] + (out[i] - body.center[i]) * (1.0 - pull)
        pull = min(2.0 * pull, 1.0)
