# mypy: allow-untyped-defs
"""Coordinate hit-and-run: exact draws of one coordinate after the other.

    theta_j given the others has density proportional to exp(-V) on a chord.

V is the energy. The *chord* is the part of the line along coordinate j that lies in the
domain. If V is quadratic along every line, the draw is truncated normal, exponential or
uniform, and no record is read. Otherwise points at which the derivative of a loss jumps
are sorted, or the draw is made by adaptive rejection (see `coordinate_moves`).

The *slacks* of a polytope are the distances b - A theta of its facets (see `slacks`).
Slacks, the margins of the records and a quadratic energy's gradient are updated after
each move, so a move costs the nonzeros of one column. On the simplex a move changes two
coordinates, chosen at random, and keeps their sum. A *sweep* is a move along each
coordinate.
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
    DENSITY,
    MAX_PIECEWISE_RECORDS,
    CoordinatePlan,
    CoordinateWork,
    PausedSweep,
    make_plan,
)
from dpsample.samplers.errors import DRAW_FAILED, FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import fit
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.univariate import line
from dpsample.samplers.univariate.line import HULL_SHAPE, ON_LINE
from dpsample.samplers.univariate.log_concave import draw_quadratic
from dpsample.targets.gibbs import Gibbs

# Number of sweeps after which slacks, margins and gradient are computed again from the
# position, because rounding errors of their updates add up.
RESYNCHRONIZE = 1000.0
# Stage of a sweep that is paused between two moves. A sweep that is paused within a
# draw on a line has the stage ON_LINE.
BETWEEN_MOVES = ON_LINE + 1
# Position in a chain's memory of the sweeps since the rest of it was computed. Slacks,
# margins and the gradient follow.
AGE = 0
# Row of the chain's vectors for a difference of points. `line` uses the other two.
OFFSET = 0


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def split_memory(plan, state):
    """Return views of the memory: slacks, margins, gradient."""
    first = 1 + plan.num_slacks
    last = first + plan.num_margins
    return state.memory[1:first], state.memory[first:last], state.memory[last:]


@kernel(counts_references=False)
def synchronize(target, plan, state):
    """Compute slacks, margins and gradient again from the position."""
    state.memory[AGE] = 0.0
    slack, margins, slopes = split_memory(plan, state)
    theta, offset = state.position, state.vectors[OFFSET]
    slacks.refresh(plan.body, theta, slack)
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
    """Draw two different coordinates, each pair with the same probability."""
    i = int(rng.random() * dim)
    # The second one is drawn from the other dim - 1 coordinates, without a loop.
    j = int(rng.random() * (dim - 1))
    return i, (j + 1 if j >= i else j)


@kernel(counts_references=False)
def add_row(slopes, hessian, i, t):
    """Add t times row i of the Hessian to the gradient."""
    for m in range(slopes.shape[0]):
        slopes[m] += t * hessian[i, m]


@kernel(counts_references=False)
def move_pairs(theta, slopes, center, slope, ridge, hessian, rng):
    """Move along random pairs of coordinates. Return whether all draws are numbers."""
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
        # Both coordinates stay at least 0.
        t = draw_quadratic(rng, rate, curvature, -theta[i], theta[j])
        if t != t:
            return False
        theta[i], theta[j] = theta[i] + t, theta[j] - t
        add_row(slopes, hessian, i, t)
        add_row(slopes, hessian, j, -t)
    return True


@kernel(counts_references=False)
def evaluate_energy(theta, base, center, slope, ridge, slopes):
    """Return a quadratic energy from its gradients at the center and at theta.

    It is base + <theta - center, sum of the gradients> / 2.
    """
    value = 0.0
    for j in range(theta.shape[0]):
        offset = theta[j] - center[j]
        after = slopes[j] if slopes.shape[0] > 0 else slope[j] + ridge * offset
        value += 0.5 * offset * (slope[j] + after)
    return base + value


@kernel
def run_quadratic(target, pieces, plan, state, rng, num_steps, draws, stats):
    """Run the sweeps for quadratic energies, with the arguments of `compile_run`."""
    return sweep_quadratic(target, plan, state, rng, num_steps, draws, stats)


@kernel(counts_references=False)
def sweep_quadratic(target, plan, state, rng, num_steps, draws, stats):
    """Fill draws by sweeps of one function, without any call of a C function.

    Energy and chord need no C function here, so the loop over coordinates is one piece
    of machine code. Numba would count references to three views in each move, which
    takes a fifth of its time. So the kernel does not count, and all fields are read
    before the loop.
    """
    slack, _, slopes = split_memory(plan, state)
    center, slope, ridge, hessian = plan.center, plan.slope, plan.ridge, plan.hessian
    body, theta, memory = plan.body, state.position, state.memory
    kind, radius, p, middle = body.kind, body.radius, body.p, body.center
    lower, upper = body.lower, body.upper
    columns, up, down = body.columns, body.up, body.down
    starts, rows, values = body.starts, body.rows, body.values
    dim, is_full = theta.shape[0], slopes.shape[0] > 0
    num_moves = num_steps * (dim - 1 if kind == slacks.KIND.pairs else dim)
    control = state.work.control[0]
    for row in range(draws.shape[0]):
        is_over = False
        while control.steps_done < num_steps:
            if is_over:
                return PAUSED, row
            control.steps_done += 1
            is_over = is_due(control)
            if not 0.0 <= memory[AGE] < RESYNCHRONIZE:
                synchronize(target, plan, state)
            memory[AGE] += 1.0
            if kind == slacks.KIND.pairs:
                if not move_pairs(theta, slopes, center, slope, ridge, hessian, rng):
                    abandon_step(control)
                    return DRAW_FAILED, row
                continue
            # With dense facets, one pass over the slacks makes the last move t and
            # finds the next chord. At the first coordinate there is no last move.
            last, t = 0, 0.0
            for j in range(dim):
                offset = theta[j] - middle[j]
                if kind == slacks.KIND.facets:
                    low, high = slacks.move_and_find_chord(
                        slack, columns[last], t, up[j], down[j]
                    )
                    low, high, last = (
                        slacks.with_infinity(low),
                        slacks.with_infinity(high),
                        j,
                    )
                elif kind == slacks.KIND.sparse_facets:
                    low, high = slacks.find_facet_chord(
                        slack, rows, values, starts[j], starts[j + 1]
                    )
                elif kind == slacks.KIND.ball:
                    reach = slacks.ball_reach(slack[0], offset, radius, p)
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
                    add_row(slopes, hessian, j, t)
                if kind == slacks.KIND.sparse_facets:
                    for m in range(starts[j], starts[j + 1]):
                        slack[rows[m]] = max(
                            slack[rows[m]] - t * values[m], slacks.TINY
                        )
                elif kind == slacks.KIND.ball:
                    after = theta[j] - middle[j]
                    slack[0] += slacks.ball_change(offset, after, radius, p)
            # The last move of the sweep is still missing in the slacks.
            if kind == slacks.KIND.facets:
                slacks.move_and_find_chord(
                    slack, columns[last], t, up[last], down[last]
                )
        control.steps_done = 0
        copy_into(theta, draws[row])
        # The energy is only reported with a draw, so moves do not update it.
        state.energy[0] = evaluate_energy(
            theta, plan.base, center, slope, ridge, slopes
        )
        state.counts[chain.COUNT.proposals] += num_moves
        state.counts[chain.COUNT.accepted] += num_moves
        stats[row] = 0.0
        stats[row, chain.STAT.energy], stats[row, chain.STAT.acceptance_rate] = (
            state.energy[0],
            1.0,
        )
        if is_over and row + 1 < draws.shape[0]:
            return PAUSED, row + 1
    return OK, draws.shape[0]


def step(target, pieces, plan, state, rng):
    """Make one sweep over the coordinates, or dim - 1 moves of random pairs."""
    control = state.work.control[0]
    stage, paused = control.stage, state.workspace.sweep[0]
    if stage == 0 and not 0.0 <= state.memory[AGE] < RESYNCHRONIZE:
        synchronize(target, plan, state)
    body, theta = plan.body, state.position
    slack, margins, slopes = split_memory(plan, state)
    dim, rates = theta.shape[0], margins
    num_moves = dim - 1 if body.kind == slacks.KIND.pairs else dim
    i, j, last, t, begin, low, high = 0, -1, 0, 0.0, 0, 0.0, 0.0
    if stage == 0:
        state.memory[AGE] += 1.0
        state.counts[chain.COUNT.proposals] += num_moves
        state.counts[chain.COUNT.accepted] += num_moves
    else:
        begin, last, t = paused.turn, paused.last, paused.move
    for turn in range(begin, num_moves):
        if turn > begin and is_due(control):
            paused.turn, paused.last, paused.move = turn, last, t
            control.stage = BETWEEN_MOVES
            return PAUSED
        # A draw on a line that was paused goes on with its chord.
        is_on_line = stage == ON_LINE and turn == begin
        i = turn
        if is_on_line:
            i, j, low, high = paused.i, paused.j, paused.low, paused.high
        elif body.kind == slacks.KIND.pairs:
            i, j = two_coordinates(dim, rng)
            low, high = -theta[i], theta[j]
        elif body.kind == slacks.KIND.facets:
            low, high = slacks.move_and_find_chord(
                slack, body.columns[last], t, body.up[i], body.down[i]
            )
            low, high = slacks.with_infinity(low), slacks.with_infinity(high)
            last = i
        elif body.kind == slacks.KIND.chord:
            low, high = coordinate_moves.find_domain_chord(target, plan, state, i)
        else:
            low, high = slacks.find_chord(body, theta, slack, i)
        t = 0.0
        # A chord of length 0 is a corner. NaN is a failure.
        if not low < high:
            if low == high:
                continue
            return FUNCTION_FAILED
        if plan.conditional == DENSITY.quadratic:
            t = coordinate_moves.quadratic_move(
                plan, theta, slopes, i, j, low, high, rng
            )
            if t != t:
                return DRAW_FAILED
        else:
            control.stage = ON_LINE if is_on_line else 0
            code, t, rates = coordinate_moves.general_move(
                target, pieces, plan, state, margins, i, j, low, high, rng
            )
            if code == PAUSED:
                paused.turn, paused.last, paused.move = turn, last, 0.0
                paused.i, paused.j, paused.low, paused.high = i, j, low, high
            if code != OK:
                return code
        # Rounding may make the move shorter. All updates use the shorter move, because
        # margins and slacks must belong to the position.
        applied = t
        if body.kind == slacks.KIND.pairs:
            theta[i], theta[j] = theta[i] + t, theta[j] - t
        elif body.kind == slacks.KIND.chord:
            applied = line.move_inside(target, pieces, state, t)
        else:
            applied = slacks.apply_move(body, theta, slack, i, t)
        if plan.conditional != DENSITY.quadratic:
            coordinate_moves.shift(
                plan.columns, margins, rates, applied, state.workspace.changed
            )
        # `quadratic_move` has added t times the row already.
        elif applied != t:
            add_row(slopes, plan.hessian, i, applied - t)
    control.stage = 0
    # The last move of the sweep is still missing in the slacks of dense facets.
    if body.kind == slacks.KIND.facets:
        slacks.subtract_column(body, slack, last, t)
    if plan.conditional == DENSITY.quadratic:
        state.energy[0] = evaluate_energy(
            theta, plan.base, plan.center, plan.slope, plan.ridge, slopes
        )
    else:
        state.counts[chain.COUNT.values] += 1
        state.counts[chain.COUNT.records] += target.data.num_records
        state.energy[0] = line.energy_at(target, pieces, margins, theta, state.work)
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


run = compile_run(step)


def init(target: Gibbs, plan: CoordinatePlan, position: Array) -> ChainState:
    """Return a new state at a position. The first sweep fills its memory."""
    columns = plan.columns
    count = columns.dense.shape[1]
    # A pair of coordinates changes the records of two columns.
    if columns.values.size:
        count = 2 * int(np.diff(columns.starts).max())
    workspace = CoordinateWork(
        changed=coordinate_moves.ChangedRecords(
            np.empty(count, dtype=np.int64), *np.empty((3, count))
        ),
        hull=np.empty(HULL_SHAPE),
        paused_draw=np.zeros(1, line.PausedDraw),
        ends=np.empty(2),
        breakpoints=np.empty((3, MAX_PIECEWISE_RECORDS + 1)),
        sweep=np.zeros(1, PausedSweep),
    )
    size = 1 + plan.num_slacks + plan.num_margins + plan.num_slopes
    memory = np.full(size, -1.0)  # a negative age marks it as empty
    return new_state(target, position, memory=memory, rows=3, workspace=workspace)


@dataclass(frozen=True, kw_only=True)
class CoordinateHitAndRun(Sampler):
    """Exact draws of one coordinate after the other. A draw is one sweep.

    On the simplex a draw is ``dim - 1`` moves along random pairs of coordinates.

    Notes
    -----
    **Guarantee.** Each move is an exact draw given the other coordinates, so the target
    is exactly invariant. A sweep in a fixed order is not reversible. Polytopes and
    balls are shrunk by 1e-12 of their size, so that rounding cannot leave them, if this
    changes the distribution by at most 1e-4 in total variation. Otherwise, as for steep
    energies and in thin domains, each chord is computed from the position, which takes
    longer. An energy that turns out not to be convex is an error, and is never clipped.

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
        is_flat = (
            plan.conditional == DENSITY.quadratic
            and plan.body.kind != slacks.KIND.chord
        )
        return PreparedChain(
            target=target,
            plan=plan,
            run=run_quadratic if is_flat else run,
            init_fn=init,
            start=gaussian.center,
            settings={"conditionals": kinds[plan.conditional]},
            scatter=gaussian.factor,
        )
