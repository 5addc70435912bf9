"""Compiled pieces of the ball of a Schatten norm around the zero matrix."""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel
from dpsample.domains._ball_chord import ball_chord
from dpsample.domains._ball_pieces import EPSILON, MAX_STEPS, shrink_to_norm
from dpsample.domains._domain import Body, Vector
from dpsample.norms import distance, thin_svd, write_product


@kernel
def schatten_along(body: Body, theta: Vector, direction: Vector, t: float) -> float:
    """Return the Schatten norm of ``theta + t direction``."""
    if body.p == 2.0:
        return float(distance(theta + t * direction, body.center, 2.0))
    moved = theta + t * direction
    if not np.isfinite(moved).all():
        return np.nan
    values = thin_svd(moved, body.num_rows, body.num_columns)[1]
    return float(distance(values, np.zeros(len(values)), body.p))


@kernel
def schatten_contains(body: Body, theta: Vector, out: Vector) -> None:
    """Write 1 if the Schatten norm is at most the radius."""
    inside = schatten_along(body, theta, body.center, 0.0) <= body.radius
    out[0] = 1.0 if inside else 0.0


@kernel
def schatten_project(body: Body, theta: Vector, out: Vector) -> None:
    """Project the singular values, pull in over rounding errors until inside."""
    if not np.isfinite(theta).all():
        return
    if schatten_along(body, theta, body.center, 0.0) <= body.radius:
        out[:] = theta
        return
    left, values, right = thin_svd(theta, body.num_rows, body.num_columns)
    shrunk = np.empty(len(values))
    shrink_to_norm(values, body.radius, body.p, shrunk)
    write_product(left, shrunk, right, out)
    pull = EPSILON
    while schatten_along(body, out, body.center, 0.0) > body.radius:
        out *= 1.0 - pull
        pull = min(2.0 * pull, 1.0)


@kernel
def excess_and_slope(
    body: Body, theta: Vector, direction: Vector, t: float
) -> tuple[float, float]:
    """Norm minus radius at ``theta + t direction`` and a subgradient in t."""
    columns = body.num_columns
    moved = theta + t * direction
    left, values, right = thin_svd(moved, body.num_rows, columns)
    length = distance(values, np.zeros(len(values)), body.p)
    slope = 0.0
    for k in range(len(values)):
        if np.isinf(body.p):
            weight = 1.0 if k == 0 else 0.0
        else:
            weight = (values[k] / length) ** (body.p - 1.0) if values[k] > 0.0 else 0.0
        if weight > 0.0:
            for i in range(len(theta)):
                vectors = left[i // columns, k] * right[k, i % columns]
                slope += weight * vectors * direction[i]
    return length - body.radius, slope


@kernel
def schatten_end(body: Body, theta: Vector, direction: Vector, sign: float) -> float:
    """Return the end of the chord on one side, inside in floating point.

    The norm is convex in t, so Newton's method from outside never enters; bisection
    takes over the last rounding errors.
    """
    reach = schatten_along(body, theta, direction, 0.0)
    outside = (body.radius + reach) / schatten_along(body, direction, direction, 0.0)
    for _ in range(MAX_STEPS):
        excess, slope = excess_and_slope(body, theta, direction, sign * outside)
        if not (excess > 0.0 and sign * slope > 0.0):
            break
        step = min(excess / (sign * slope), outside)
        outside -= step
        if step <= EPSILON * outside:
            break
    inside = outside
    pull = EPSILON
    while not schatten_along(body, theta, direction, sign * inside) <= body.radius:
        if pull >= 1.0:
            return 0.0
        inside = outside * (1.0 - pull)
        pull *= 2.0
    for _ in range(60):
        if outside - inside <= 1e-13 * outside:
            break
        middle = 0.5 * (inside + outside)
        if schatten_along(body, theta, direction, sign * middle) <= body.radius:
            inside = middle
        else:
            outside = middle
    return float(sign * inside)


@kernel
def schatten_chord(body: Body, theta: Vector, direction: Vector, out: Vector) -> None:
    """Write the ends of the chord."""
    if body.p == 2.0:
        ball_chord(body, theta, direction, out)
    elif not (np.isfinite(theta).all() and np.isfinite(direction).all()):
        return
    elif not (direction != 0.0).any():
        out[0] = -np.inf
        out[1] = np.inf
    else:
        out[0] = schatten_end(body, theta, direction, -1.0)
        out[1] = schatten_end(body, theta, direction, 1.0)
