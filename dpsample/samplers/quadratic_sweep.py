"""Sweeps of coordinate moves for a quadratic energy: no record is touched.

The loop unpacks all tuples first: handing one to a function costs two atomic operations
per array, more than a whole move.
"""

from __future__ import annotations

from dpsample._jit import kernel
from dpsample._pauses import PAUSED, STEPS, forget, is_due
from dpsample.samplers.chain import ACCEPTANCE, ACCEPTED, ENERGY, PROPOSALS
from dpsample.samplers.coordinate_caches import RESYNCHRONIZE, caches, synchronize
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.piecewise_quadratic import draw_quadratic
from dpsample.samplers.slacks import (
    BALL,
    FACETS,
    PAIRS,
    SPARSE_FACETS,
    TINY,
    ball_change,
    ball_reach,
    facet_span,
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
def energy_of(theta, base, center, slope, ridge, slopes):
    """Quadratic energy from its gradient at the center and at theta."""
    value = 0.0
    for j in range(theta.shape[0]):
        offset = theta[j] - center[j]
        after = slopes[j] if slopes.shape[0] > 0 else slope[j] + ridge * offset
        value += 0.5 * offset * (slope[j] + after)
    return base + value


@kernel
def run(target, pieces, plan, state, rng, num_steps, draws, stats):
    """Fill draws where chords need no piece; called as what `compile_run` returns."""
    center, slope, ridge, hessian = plan.center, plan.slope, plan.ridge, plan.hessian
    room, theta, memory = plan.room, state.position, state.memory
    kind, radius, p, middle = room.kind, room.radius, room.p, room.center
    lower, upper = room.lower, room.upper
    columns, up, down = room.columns, room.up, room.down
    starts, rows, values = room.starts, room.rows, room.values
    slacks, _, slopes = caches(plan, state)
    dim, is_full = theta.shape[0], slopes.shape[0] > 0
    num_moves = num_steps * (dim - 1 if kind == PAIRS else dim)
    control = state.work.control
    for row in range(draws.shape[0]):
        is_over = False
        while control[STEPS] < num_steps:
            if is_over:
                return PAUSED, row
            control[STEPS] += 1.0
            is_over = is_due(control)
            if not 0.0 <= memory[0] < RESYNCHRONIZE:
                synchronize(target, plan, state)
            memory[0] += 1.0
            if kind == PAIRS:
                if not pairs(theta, slopes, center, slope, ridge, hessian, rng):
                    forget(control)
                    return PIECE_FAILED, row
                continue
            last, t = 0, 0.0
            for j in range(dim):
                offset = theta[j] - middle[j]
                if kind == FACETS:
                    low, high = slide(slacks, columns[last], t, up[j], down[j])
                    low, high, last = unlimited(low), unlimited(high), j
                elif kind == SPARSE_FACETS:
                    low, high = facet_span(
                        slacks, rows, values, starts[j], starts[j + 1]
                    )
                elif kind == BALL:
                    reach = ball_reach(slacks[0], offset, radius, p)
                    low, high = min(-reach - offset, 0.0), max(reach - offset, 0.0)
                else:
                    low, high = lower[j] - theta[j], upper[j] - theta[j]
                rate, curvature = slope[j] + ridge * (theta[j] - center[j]), ridge
                if is_full:
                    rate, curvature = slopes[j], hessian[j, j]
                t = draw_quadratic(rng, rate, curvature, low, high)
                if t != t:
                    forget(control)
                    return PIECE_FAILED, row
                theta[j] = min(max(theta[j] + t, lower[j]), upper[j])
                if is_full:
                    follow(slopes, hessian, j, t)
                if kind == SPARSE_FACETS:
                    for m in range(starts[j], starts[j + 1]):
                        slacks[rows[m]] = max(slacks[rows[m]] - t * values[m], TINY)
                elif kind == BALL:
                    slacks[0] += ball_change(offset, theta[j] - middle[j], radius, p)
            if kind == FACETS:
                slide(slacks, columns[last], t, up[last], down[last])
        control[STEPS] = 0.0
        draws[row] = theta
        state.energy[0] = energy_of(theta, plan.base, center, slope, ridge, slopes)
        state.counts[PROPOSALS] += num_moves
        state.counts[ACCEPTED] += num_moves
        stats[row] = 0.0
        stats[row, ENERGY], stats[row, ACCEPTANCE] = state.energy[0], 1.0
        if is_over and row + 1 < draws.shape[0]:
            return PAUSED, row + 1
    return OK, draws.shape[0]
