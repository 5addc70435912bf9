"""Chords of the l_p ball: a quadratic for p = 2, Newton's method otherwise."""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel
from dpsample.domains._ball_pieces import EPSILON, MAX_STEPS
from dpsample.domains._domain import Body, Vector
from dpsample.norms import distance, norm_along


@kernel
def quadratic_ends(
    theta: Vector, direction: Vector, size: float, body: Body, out: Vector
) -> None:
    """Write both roots of ``||theta - center + t direction||_2 = radius``.

    Lengths are measured in radii and directions in ``size``, their norm.
    """
    cross = 0.0
    excess = -1.0
    for i in range(len(theta)):
        offset = (theta[i] - body.center[i]) / body.radius
        cross += (direction[i] / size) * offset
        excess += offset * offset
    root = math.sqrt(max(cross * cross - excess, 0.0))
    # The sum without cancellation gives one root, the product of the roots the other.
    far = -(cross + math.copysign(root, cross))
    near = excess / far if far != 0.0 else 0.0
    unit = body.radius / size
    out[0] = unit * min(far, near)
    out[1] = unit * max(far, near)


@kernel
def slope_along(
    theta: Vector, direction: Vector, t: float, center: Vector, p: float
) -> float:
    """Subgradient in t of ``||theta + t direction - center||_p``."""
    length = norm_along(theta, direction, t, center, p)
    slope = 0.0
    for i in range(len(theta)):
        offset = (theta[i] + t * direction[i]) - center[i]
        size = abs(offset) / length
        if np.isinf(p):
            if size == 1.0:
                return float(math.copysign(1.0, offset) * direction[i])
        elif size > 0.0:
            slope += math.copysign(size ** (p - 1.0), offset) * direction[i]
    return slope


@kernel
def newton_end(
    theta: Vector,
    direction: Vector,
    sign: float,
    center: Vector,
    radius: float,
    p: float,
) -> float:
    """Return t with norm at most just above the radius, from outside.

    The norm is convex in t, so Newton's method from outside never enters.
    """
    reach = norm_along(theta, direction, 0.0, center, p)
    t: float = (
        sign * (radius + reach) / distance(direction, np.zeros(len(direction)), p)
    )
    for _ in range(MAX_STEPS):
        excess = norm_along(theta, direction, t, center, p) - radius
        slope = sign * slope_along(theta, direction, t, center, p)
        if not (excess > 0.0 and slope > 0.0):
            break
        step = min(excess / slope, abs(t))
        t -= sign * step
        if step <= EPSILON * abs(t):
            break
    return t


@kernel
def settle(
    theta: Vector, direction: Vector, t: float, center: Vector, radius: float, p: float
) -> float:
    """Return the nearest t towards 0 whose point passes `ball_contains`."""
    inside = t
    pull = EPSILON
    while not norm_along(theta, direction, inside, center, p) <= radius:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        pull *= 2.0
    outside = t
    for _ in range(60):
        if abs(outside - inside) <= 16.0 * EPSILON * abs(t):
            break
        middle = 0.5 * (inside + outside)
        if norm_along(theta, direction, middle, center, p) <= radius:
            inside = middle
        else:
            outside = middle
    return inside


@kernel
def ball_chord(body: Body, theta: Vector, direction: Vector, out: Vector) -> None:
    """Write the ends of the chord."""
    center, radius, p = body.center, body.radius, body.p
    size = distance(direction, np.zeros(len(direction)), p)
    if not distance(theta, center, p) + size < np.inf:
        return
    if size == 0.0:
        out[0] = -np.inf
        out[1] = np.inf
        return
    if p == 2.0:
        quadratic_ends(theta, direction, size, body, out)
    else:
        out[0] = newton_end(theta, direction, -1.0, center, radius, p)
        out[1] = newton_end(theta, direction, 1.0, center, radius, p)
    out[0] = settle(theta, direction, min(out[0], 0.0), center, radius, p)
    out[1] = settle(theta, direction, max(out[1], 0.0), center, radius, p)
