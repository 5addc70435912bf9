# mypy: allow-untyped-defs
"""Coordinate hit-and-run: exact draws of one coordinate after the other.

    theta_j given the others has density proportional to exp(-V) on a chord:

truncated normal, exponential or uniform where V is quadratic along every line (no
record is touched), by kinks or adaptive rejection otherwise. Margins, slacks and
gradients follow each move, so it costs the nonzeros of one column. On the simplex a
move changes two coordinates, chosen at random, and keeps their sum.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, abandon_step, is_due
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.samplers import chain
from dpsample.samplers.chain import ChainState, PreparedChain, compile_run, new_state
from dpsample.samplers.coordinate import coordinate_moves, slacks
from dpsample.samplers.coordinate.coordinate_moves import (
    MAX_KINKED_RECORDS,
    QUADRATIC,
    CoordinatePlan,
    CoordinateWork,
    make_plan,
)
from dpsample.samplers.errors import DRAW_FAILED, FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import fit
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.univariate import line
from dpsample.samplers.univariate.line import HULL_SHAPE, NUM_KEPT, ON_LINE, TURN
from dpsample.samplers.univariate.log_concave import draw_quadratic
from dpsample.targets.gibbs import Gibbs

# Sweeps after which all that follows the moves is computed anew from the position.
RESYNCHRONIZE = 1000.0
# What a paused sweep keeps, beside a paused draw on a line: the turn, the last facets'
# coordinate and the move there, and the coordinates and the chord of the line.
SWEEP = TURN + NUM_KEPT
BETWEEN = ON_LINE + 1  # stage of a sweep that is paused between two moves


@kernel(counts_references=False)
def caches(plan, state):
    """Return views of the memory: slacks, margins, gradient."""
    first = 1 + plan.num_slacks
    last = first + plan.num_margins
    return state.memory[1:first], state.memory[first:last], state.memory[last:]


@kernel(counts_references=False)
def synchronize(target, plan, state):
    """Compute the caches anew from the position."""
    state.memory[0] = 0.0
    room_left, margins, slopes = caches(plan, state)
    theta, offset = state.position, state.scratch[0]
    slacks.refresh(plan.room, theta, room_left)
    if plan.num_margins > 0:
        line.margins_at(target.data, theta, margins)
    if plan.num_slopes > 0:
        for j in range(theta.shape[0]):
            offset[j] = theta[j] - plan.center[j]
        multiply(plan.hessian, offset, slopes)
        for j in range(theta.shape[0]):
            slopes[j] += plan.slope[j]


@kernel(counts_references=False)
def two_coordinates(dim, rng):
    """Two different coordinates, each pair with the same probability."""
    i = int(rng.random() * dim)
    j = int(rng.random() * (dim - 1))
    return i, (j + 1 if j >= i else j)


@kernel(counts_references=False)
def follow(slopes, hessian, i, t):
    """Add t times row i of the Hessian to the gradient."""
    for m in range(slopes.shape[0]):
        slopes[m] += t * hessian[i, m]


@kernel(counts_references=False)
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


@kernel(counts_references=False)
def energy_of(theta, base, center, slope, ridge, slopes):
    """Quadratic energy from its gradient at the center and at theta."""
    value = 0.0
    for j in range(theta.shape[0]):
        offset = theta[j] - center[j]
        after = slopes[j] if slopes.shape[0] > 0 else slope[j] + ridge * offset
        value += 0.5 * offset * (slope[j] + after)
    return base + value


@kernel
def run_quadratic(target, pieces, plan, state, rng, num_steps, draws, stats):
    """Fill draws where chords need no piece; called as what `compile_run` returns."""
    return sweep_quadratic(target, plan, state, rng, num_steps, draws, stats)


@kernel(counts_references=False)
def sweep_quadratic(target, plan, state, rng, num_steps, draws, stats):
    """Do its work; counting the references of three views would be a fifth of a move.

    All tuples are unpacked first.
    """
    gaps, _, slopes = caches(plan, state)
    center, slope, ridge, hessian = plan.center, plan.slope, plan.ridge, plan.hessian
    room, theta, memory = plan.room, state.position, state.memory
    kind, radius, p, middle = room.kind, room.radius, room.p, room.center
    lower, upper = room.lower, room.upper
    columns, up, down = room.columns, room.up, room.down
    starts, rows, values = room.starts, room.rows, room.values
    dim, is_full = theta.shape[0], slopes.shape[0] > 0
    num_moves = num_steps * (dim - 1 if kind == slacks.PAIRS else dim)
    control = state.work.control[0]
    for row in range(draws.shape[0]):
        is_over = False
        while control.steps_done < num_steps:
            if is_over:
                return PAUSED, row
            control.steps_done += 1
            is_over = is_due(control)
            if not 0.0 <= memory[0] < RESYNCHRONIZE:
                synchronize(target, plan, state)
            memory[0] += 1.0
            if kind == slacks.PAIRS:
                if not pairs(theta, slopes, center, slope, ridge, hessian, rng):
                    abandon_step(control)
                    return DRAW_FAILED, row
                continue
            last, t = 0, 0.0
            for j in range(dim):
                offset = theta[j] - middle[j]
                if kind == slacks.FACETS:
                    low, high = slacks.slide(gaps, columns[last], t, up[j], down[j])
                    low, high, last = slacks.unlimited(low), slacks.unlimited(high), j
                elif kind == slacks.SPARSE_FACETS:
                    low, high = slacks.facet_span(
                        gaps, rows, values, starts[j], starts[j + 1]
                    )
                elif kind == slacks.BALL:
                    reach = slacks.ball_reach(gaps[0], offset, radius, p)
                    low, high = min(-reach - offset, 0.0), max(reach - offset, 0.0)
                else:
                    low, high = lower[j] - theta[j], upper[j] - theta[j]
                rate, curvature = slope[j] + ridge * (theta[j] - center[j]), ridge
                if is_full:
                    rate, curvature = slopes[j], hessian[j, j]
                t = draw_quadratic(rng, rate, curvature, low, high)
                if t != t:
                    abandon_step(control)
                    return DRAW_FAILED, row
                theta[j] = min(max(theta[j] + t, lower[j]), upper[j])
                if is_full:
                    follow(slopes, hessian, j, t)
                if kind == slacks.SPARSE_FACETS:
                    for m in range(starts[j], starts[j + 1]):
                        gaps[rows[m]] = max(gaps[rows[m]] - t * values[m], slacks.TINY)
                elif kind == slacks.BALL:
                    after = theta[j] - middle[j]
                    gaps[0] += slacks.ball_change(offset, after, radius, p)
            if kind == slacks.FACETS:
                slacks.slide(gaps, columns[last], t, up[last], down[last])
        control.steps_done = 0
        copy_into(theta, draws[row])
        state.energy[0] = energy_of(theta, plan.base, center, slope, ridge, slopes)
        state.counts[chain.PROPOSALS] += num_moves
        state.counts[chain.ACCEPTED] += num_moves
        stats[row] = 0.0
        stats[row, chain.ENERGY], stats[row, chain.ACCEPTANCE] = state.energy[0], 1.0
        if is_over and row + 1 < draws.shape[0]:
            return PAUSED, row + 1
    return OK, draws.shape[0]


@kernel(counts_references=False)
def keep(control, turn, last, t, i, j, low, high):
    """Keep where a sweep is paused."""
    control.saved[SWEEP], control.saved[SWEEP + 1], control.saved[SWEEP + 2] = (
        turn,
        last,
        t,
    )
    control.saved[SWEEP + 3], control.saved[SWEEP + 4] = i, j
    control.saved[SWEEP + 5], control.saved[SWEEP + 6] = low, high


def step(target, pieces, plan, state, rng):
    """One sweep over the coordinates, or as many random pairs but one."""
    control = state.work.control[0]
    stage = control.stage
    if stage == 0 and not 0.0 <= state.memory[0] < RESYNCHRONIZE:
        synchronize(target, plan, state)
    room, theta = plan.room, state.position
    room_left, margins, slopes = caches(plan, state)
    dim, rates = theta.shape[0], margins
    num_moves = dim - 1 if room.kind == slacks.PAIRS else dim
    i, j, last, t, begin, low, high = 0, -1, 0, 0.0, 0, 0.0, 0.0
    if stage == 0:
        state.memory[0] += 1.0
        state.counts[chain.PROPOSALS] += num_moves
        state.counts[chain.ACCEPTED] += num_moves
    else:
        begin, last = int(control.saved[SWEEP]), int(control.saved[SWEEP + 1])
        t = control.saved[SWEEP + 2]
    for turn in range(begin, num_moves):
        if turn > begin and is_due(control):
            keep(control, turn, last, t, i, j, low, high)
            control.stage = BETWEEN
            return PAUSED
        is_left = stage == ON_LINE and turn == begin
        i = turn
        if is_left:
            i, j = int(control.saved[SWEEP + 3]), int(control.saved[SWEEP + 4])
            low, high = control.saved[SWEEP + 5], control.saved[SWEEP + 6]
        elif room.kind == slacks.PAIRS:
            i, j = two_coordinates(dim, rng)
            low, high = -theta[i], theta[j]
        elif room.kind == slacks.FACETS:
            low, high = slacks.slide(
                room_left, room.columns[last], t, room.up[i], room.down[i]
            )
            low, high = slacks.unlimited(low), slacks.unlimited(high)
            last = i
        elif room.kind == slacks.CHORD:
            low, high = coordinate_moves.chord_along(target, plan, state, i)
        else:
            low, high = slacks.span(room, theta, room_left, i)
        t = 0.0
        if not low < high:
            if low == high:
                continue
            return FUNCTION_FAILED
        if plan.conditional == QUADRATIC:
            t = coordinate_moves.quadratic_move(
                plan, theta, slopes, i, j, low, high, rng
            )
            if t != t:
                return DRAW_FAILED
        else:
            control.stage = ON_LINE if is_left else 0
            code, t, rates = coordinate_moves.general_move(
                target, pieces, plan, state, margins, i, j, low, high, rng
            )
            if code == PAUSED:
                keep(control, turn, last, 0.0, i, j, low, high)
            if code != OK:
                return code
        applied = t
        if room.kind == slacks.PAIRS:
            theta[i], theta[j] = theta[i] + t, theta[j] - t
        elif room.kind == slacks.CHORD:
            applied = line.move_inside(target, pieces, state, t)
        else:
            applied = slacks.settle(room, theta, room_left, i, t)
        if plan.conditional != QUADRATIC:
            coordinate_moves.shift(
                plan.columns, margins, rates, applied, state.own.moved
            )
        elif applied != t:
            follow(slopes, plan.hessian, i, applied - t)
    control.stage = 0
    if room.kind == slacks.FACETS:
        slacks.move(room, room_left, last, t)
    if plan.conditional == QUADRATIC:
        state.energy[0] = energy_of(
            theta, plan.base, plan.center, plan.slope, plan.ridge, slopes
        )
    else:
        state.counts[chain.VALUES] += 1
        state.counts[chain.RECORDS] += target.data.num_records
        state.energy[0] = line.energy_at(target, pieces, margins, theta, state.work)
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


run = compile_run(step)


def init(target: Gibbs, plan: CoordinatePlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain."""
    columns = plan.columns
    count = columns.dense.shape[1]
    if columns.values.size:  # room for all records of two columns
        count = 2 * int(np.diff(columns.starts).max())
    own = CoordinateWork(
        moved=coordinate_moves.Moved(
            np.empty(count, dtype=np.int64), *np.empty((3, count))
        ),
        hull=np.empty(HULL_SHAPE),
        ends=np.empty(2),
        kinks=np.empty((3, MAX_KINKED_RECORDS + 1)),
    )
    size = 1 + plan.num_slacks + plan.num_margins + plan.num_slopes
    memory = np.full(size, -1.0)  # an age below 0: the first sweep fills the caches
    return new_state(target, position, memory=memory, rows=3, own=own)


@dataclass(frozen=True, kw_only=True)
class CoordinateHitAndRun(Sampler):
    """Exact draws of one coordinate after the other; a draw is one sweep.

    On the simplex a draw is ``dim - 1`` moves along random pairs of coordinates.

    Notes
    -----
    **Guarantee.** Each move is an exact draw given the other coordinates, so the target
    is exactly invariant; a sweep in a fixed order is not reversible. Polytopes and
    balls are shrunk by 1e-12 of their size, so that rounding cannot leave them, where
    this changes the law by at most 1e-4 in total variation. Elsewhere, as at steep
    slopes and in thin bodies, each chord is computed anew, which takes longer. An
    energy that is not convex is refused when it shows, never clipped.

    Examples
    --------
    >>> from dpsample.samplers import CoordinateHitAndRun
    >>> CoordinateHitAndRun().is_reversible
    False
    """

    is_reversible: ClassVar[bool] = False

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit a Gaussian, and copy the features by columns if they are needed."""
        del rng  # nothing is tuned
        self.require(target)
        gaussian = fit(target)
        plan = make_plan(target, gaussian)
        kinds = ("quadratic", "piecewise quadratic", "convex")
        is_flat = plan.conditional == QUADRATIC and plan.room.kind != slacks.CHORD
        return PreparedChain(
            target=target,
            plan=plan,
            run=run_quadratic if is_flat else run,
            init_fn=init,
            start=gaussian.center,
            settings={"conditionals": kinds[plan.conditional]},
            scatter=gaussian.factor,
        )
