"""One sweep of coordinate moves for a quadratic energy: no record is touched.

The loop unpacks all tuples first: handing one to a function costs two atomic operations
per array, more than a whole move.
"""

from __future__ import annotations

from dpsample._jit import kernel
from dpsample.samplers.piecewise_quadratic import draw_quadratic
from dpsample.samplers.slacks import (
    BALL,
    FACETS,
    PAIRS,
    SPARSE_FACETS,
    TINY,
    ball_reach,
    facet_span,
    norm_term,
    slide,
    unlimited,
)


@kernel
def two_coordinates(dim, rng):
    """Two different coordinates, each pair with the same probability."""
    i = int(rng.random() * dim)
    j = int(rng.random() * (dim - 1))
    return i, (j + 1 if j >= i else j)


@kernel
def follow(slopes, hessian, i, t):
    """Add t times row i of the Hessian to the gradient."""
    for m in range(slopes.shape[0]):
        slopes[m] += t * hessian[i, m]


@kernel
def pairs(theta, slopes, center, slope, ridge, hessian, rng):
    """Move along random pairs of coordinates of the simplex; False on failure."""
    dim = theta.shape[0]
    for _ in range(dim - 1):
        i, j = two_coordinates(dim, rng)
        if slopes.shape[0] > 0:
            rate = slopes[i] - slopes[j]
            curvature = hessian[i, i] + hessian[j, j] - 2.0 * hessian[i, j]
        else:
            rate = slope[i] + ridge * (theta[i] - center[i])
            rate -= slope[j] + ridge * (theta[j] - center[j])
            curvature = 2.0 * ridge
        t = draw_quadratic(rng, rate, curvature, -theta[i], theta[j])
        if t != t:
            return False
        theta[i], theta[j] = theta[i] + t, theta[j] - t
        follow(slopes, hessian, i, t)
        follow(slopes, hessian, j, -t)
    return True


@kernel
def sweep(plan, theta, slacks, slopes, rng):
    """One sweep on any domain whose chords need no piece; False on failure."""
    center, slope, ridge, hessian = plan.center, plan.slope, plan.ridge, plan.hessian
    room = plan.room
    kind, radius, p, middle = room.kind, room.radius, room.p, room.center
    lower, upper = room.lower, room.upper
    columns, up, down = room.columns, room.up, room.down
    starts, rows, values = room.starts, room.rows, room.values
    if kind == PAIRS:
        return pairs(theta, slopes, center, slope, ridge, hessian, rng)
    last, t = 0, 0.0
    for j in range(theta.shape[0]):
        before = theta[j]
        if kind == FACETS:
            low, high = slide(slacks, columns[last], t, up[j], down[j])
            low, high, last = unlimited(low), unlimited(high), j
        elif kind == SPARSE_FACETS:
            low, high = facet_span(slacks, rows, values, starts[j], starts[j + 1])
        elif kind == BALL:
            offset = before - middle[j]
            reach = ball_reach(slacks[0], offset, radius, p)
            low, high = min(-reach - offset, 0.0), max(reach - offset, 0.0)
        else:
            low, high = lower[j] - before, upper[j] - before
        if slopes.shape[0] > 0:
            rate, curvature = slopes[j], hessian[j, j]
        else:
            rate, curvature = slope[j] + ridge * (before - center[j]), ridge
        t = draw_quadratic(rng, rate, curvature, low, high)
        if t != t:
            return False
        theta[j] = min(max(before + t, lower[j]), upper[j])
        follow(slopes, hessian, j, t)
        if kind == SPARSE_FACETS:
            for m in range(starts[j], starts[j + 1]):
                i = rows[m]
                slacks[i] = max(slacks[i] - t * values[m], TINY)
        elif kind == BALL:
            after = norm_term((theta[j] - middle[j]) / radius, p)
            slacks[0] += after - norm_term((before - middle[j]) / radius, p)
    if kind == FACETS and theta.shape[0] > 0:
        slide(slacks, columns[last], t, up[last], down[last])
    return True
