r"""Coordinate hit-and-run: exact draws of one coordinate after the other.

    theta_j given the others has density proportional to exp(-V) on a chord:

truncated normal, exponential or uniform where V is quadratic along every line (no
record is touched), by kinks or adaptive rejection otherwise. Margins, slacks and
gradients follow each move, so it costs the nonzeros of one column. On the simplex a
move changes two coordinates, chosen at random, and keeps their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample._pauses import PAUSED, STAGE, is_due
from dpsample.samplers import columns, coordinate_moves, line, quadratic_sweep, slacks
from dpsample.samplers.adaptive_rejection import HULL_SHAPE, NUM_KEPT, ON_LINE, TURN
from dpsample.samplers.chain import (
    ACCEPTED,
    NUM_COUNTS,
    PROPOSALS,
    RECORDS,
    VALUES,
    Prepared,
    compile_run,
)
from dpsample.samplers.coordinate_caches import RESYNCHRONIZE, caches, synchronize
from dpsample.samplers.coordinate_moves import (
    MAX_KINKED_RECORDS,
    QUADRATIC,
    Plan,
    State,
)
from dpsample.samplers.coordinate_plan import make_plan
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.gaussian_fit import fit
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.samplers.slacks import CHORD, FACETS, PAIRS

Array = NDArray[np.float64]


# What a paused sweep keeps, beside a paused draw on a line: the turn, the last facets'
# coordinate and the move there, and the coordinates and the chord of the line.
SWEEP = TURN + NUM_KEPT
BETWEEN = ON_LINE + 1.0  # stage of a sweep that is paused between two moves


@kernel
def keep(control, turn, last, t, i, j, low, high):
    """Keep where a sweep is paused."""
    control[SWEEP], control[SWEEP + 1], control[SWEEP + 2] = turn, last, t
    control[SWEEP + 3], control[SWEEP + 4] = i, j
    control[SWEEP + 5], control[SWEEP + 6] = low, high


def step(target, pieces, plan, state, rng):
    """One sweep over the coordinates, or as many random pairs but one."""
    control = state.work.control
    stage = control[STAGE]
    if stage == 0.0 and not 0.0 <= state.memory[0] < RESYNCHRONIZE:
        synchronize(target, plan, state)
    room, theta = plan.room, state.position
    room_left, margins, slopes = caches(plan, state)
    dim = theta.shape[0]
    num_moves = dim - 1 if room.kind == PAIRS else dim
    i, j, last, t, begin, low, high = 0, -1, 0, 0.0, 0, 0.0, 0.0
    if stage == 0.0:
        state.memory[0] += 1.0
        state.counts[PROPOSALS] += num_moves
        state.counts[ACCEPTED] += num_moves
    else:
        begin, last = int(control[SWEEP]), int(control[SWEEP + 1])
        t = control[SWEEP + 2]
    for turn in range(begin, num_moves):
        if turn > begin and is_due(control):
            keep(control, turn, last, t, i, j, low, high)
            control[STAGE] = BETWEEN
            return PAUSED
        is_left = stage == ON_LINE and turn == begin
        i = turn
        if is_left:
            i, j = int(control[SWEEP + 3]), int(control[SWEEP + 4])
            low, high = control[SWEEP + 5], control[SWEEP + 6]
        elif room.kind == PAIRS:
            i, j = quadratic_sweep.two_coordinates(dim, rng)
            low, high = -theta[i], theta[j]
        elif room.kind == FACETS:
            low, high = slacks.slide(
                room_left, room.columns[last], t, room.up[i], room.down[i]
            )
            low, high = slacks.unlimited(low), slacks.unlimited(high)
            last = i
        elif room.kind == CHORD:
            low, high = coordinate_moves.chord_along(target, pieces, state, i)
        else:
            low, high = slacks.span(room, theta, room_left, i)
        t = 0.0
        if not low < high:
            if low == high:
                continue
            return PIECE_FAILED
        if plan.conditional == QUADRATIC:
            t = coordinate_moves.quadratic_move(
                plan, theta, slopes, i, j, low, high, rng
            )
            if t != t:
                return PIECE_FAILED
        else:
            control[STAGE] = ON_LINE if is_left else 0.0
            code, t, rates = coordinate_moves.general_move(
                target,
                pieces,
                plan,
                state,
                target.data.response,
                margins,
                i,
                j,
                low,
                high,
                rng,
            )
            if code == PAUSED:
                keep(control, turn, last, 0.0, i, j, low, high)
            if code != OK:
                return code
            columns.shift(plan.columns, margins, rates, t, state.moved)
        if room.kind == PAIRS:
            theta[i], theta[j] = theta[i] + t, theta[j] - t
        elif room.kind == CHORD:
            coordinate_moves.move_inside(target, pieces, state, i, t)
        else:
            slacks.settle(room, theta, room_left, i, t)
    control[STAGE] = 0.0
    if room.kind == FACETS:
        slacks.move(room, room_left, last, t)
    if plan.conditional == QUADRATIC:
        state.energy[0] = quadratic_sweep.energy_of(
            theta, plan.base, plan.center, plan.slope, plan.ridge, slopes
        )
    else:
        state.counts[VALUES] += 1
        state.counts[RECORDS] += target.data.num_records
        state.energy[0] = line.energy_at(target, pieces, margins, theta, state.work)
    return OK if state.energy[0] == state.energy[0] else PIECE_FAILED


run = compile_run(step)


def init(target: Any, plan: Plan, position: Array) -> State:
    """Fresh state at a position of the domain."""
    point = np.array(position, dtype=np.float64)
    size = 1 + plan.num_slacks + plan.num_margins + plan.num_slopes
    return State(
        position=point,
        energy=np.array([target.energy(point)]),
        counts=np.zeros(NUM_COUNTS, dtype=np.int64),
        memory=np.full(size, -1.0),  # an age below 0: the first sweep fills the caches
        scratch=np.empty((3, point.size)),
        work=target.new_work(),
        moved=columns.make_moved(plan.columns),
        hull=np.empty(HULL_SHAPE),
        ends=np.empty(2),
        kinks=np.empty((3, MAX_KINKED_RECORDS + 1)),
    )


@dataclass(frozen=True, kw_only=True)
class CoordinateHitAndRun(Sampler):
    """Exact draws of one coordinate after the other; a draw is one sweep.

    On the simplex a draw is ``dim - 1`` moves along random pairs of coordinates.

    Notes
    -----
    **Guarantee.** Each move is an exact draw given the other coordinates, so the target
    is exactly invariant; a sweep in a fixed order is not reversible. Polytopes and
    balls are shrunk by 1e-12 of their size, so that rounding cannot leave them. An
    energy that is not convex is refused when it shows, never clipped.

    Examples
    --------
    >>> from dpsample.samplers import CoordinateHitAndRun
    >>> CoordinateHitAndRun().is_reversible
    False
    """

    exactness: ClassVar[Exactness] = "invariant"
    is_reversible: ClassVar[bool] = False

    def prepare(self, target: Any, rng: np.random.Generator) -> Prepared:
        """Fit a Gaussian, and copy the features by columns if they are needed."""
        del rng  # nothing is tuned
        self.require(target)
        found = fit(target)
        plan = make_plan(target, found)
        kinds = ("quadratic", "piecewise quadratic", "convex")
        is_flat = plan.conditional == QUADRATIC and plan.room.kind != CHORD
        return Prepared(
            target=target,
            plan=plan,
            run=quadratic_sweep.run if is_flat else run,
            init_fn=init,
            start=found.center,
            settings={"conditionals": kinds[plan.conditional]},
            scatter=found.factor,
        )
