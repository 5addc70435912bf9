# mypy: allow-untyped-defs
r"""Whitened slice sampler: slice draws along the columns of a covariance's factor.

    theta + t L_i,    t uniform on {t : V(theta + t L_i) <= V(theta) + Exp(1)},

for i = 1, ..., r in turn (Neal, 2003, doi:10.1214/aos/1056562461). The set of t is the
*slice*, and its bound the *level*. V is convex, so the slice is an interval that holds
0. It is inside any interval whose ends are above the level, or at the end of the
domain's chord. Points are drawn in such an interval. A point above the level becomes an
end of it, which cuts off nothing of the slice. The first point below the level is
uniform on the slice, for every first interval. The Gaussian with factor L gives a short
first interval.

The columns of C = A L are computed once, and the margins follow each move, so that an
evaluation is one pass over two n-vectors. If phi(u, y) has a single non-differentiable
point (*breakpoint*), at u = b, and the same jump h of the derivative for all records,

    phi(u, y) = h/2 |u - b| + (linear in u),

the linear parts add up to one number for each column, and a pass is the sum of
|s_i + t C_i| with s_i = u_i - b_i. The code calls s_i a margin, too.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import Pointer, kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import exits
from dpsample.numerics.r_hat_and_ess import largest_r_hat, with_squares
from dpsample.problem import records
from dpsample.samplers.adaptive import billiard
from dpsample.samplers.adaptive.barrier_fit import MAX_DENSE
from dpsample.samplers.adaptive.billiard import BilliardPlan, find_exit_function
from dpsample.samplers.adaptive.mass_matrix import MassMatrix, dense
from dpsample.samplers.adaptive.warmup import (
    MIN_SETTLED_WINDOW,
    NUM_PILOTS,
    WINDOWS,
    DispersedStarts,
    WarmUp,
    disperse,
    is_settled,
    root_of,
    warm_up,
)
from dpsample.samplers.chain import (
    COUNT,
    NUM_STATS,
    ChainState,
    PreparedChain,
    compile_run,
    new_state,
)
from dpsample.samplers.coordinate.coordinate_moves import has_quadratic_regularizer
from dpsample.samplers.errors import EXHAUSTED, FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.thinning import lag_share, rank_shares
from dpsample.samplers.univariate import line
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs, as_rows

# Maximum of numbers in the cached columns, which take 800 MB then.
MAX_NUMBERS = 10**8
# Maximum number of records that all windows of sweeps read, and the same for a short
# trial. They take about five seconds, and one.
MAX_RECORDS_READ = 1e10
MAX_RECORDS_READ_SHORT = 2e9
# A loss takes as long as this number of absolute values |s_i + t C_i|.
LOSS_COST = 10.0
# Chains agree if their split R-hat is below this limit.
MAX_R_HAT = 1.1


class SweepStage(NamedTuple):
    """Stages of a paused sweep, in the control."""

    synchronizing: int = 1  # margins are computed again
    on_line: int = 2  # a slice is drawn


STAGE = SweepStage()


class SlicePhase(NamedTuple):
    """Phases of a slice draw: where its next point is."""

    left_end: int = 0
    right_end: int = 1
    inside: int = 2


PHASE = SlicePhase()


class WhitenedSliceVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors, as in `line`, which reads the last two."""

    unused: int = 0
    direction: int = 1
    point: int = 2


ROW = WhitenedSliceVectorRow()


class WhitenedSliceMemory(NamedTuple):
    """Positions in a chain's memory."""

    age: int = 0  # sweeps since the margins were computed
    total: int = 1  # sum over the records
    margins: int = 2  # first of the margins, one for each record


MEMORY = WhitenedSliceMemory()
# A sweep that is paused while it computes the margins.
Synchronization = record_dtype(next_record=int, loss_sum=float)
# A sweep that is paused between two evaluations on a line.
SliceDraw = record_dtype(
    direction=int,
    rise=float,  # level above the present energy
    left=float,  # interval that holds the slice when both ends have been tested
    right=float,
    low=float,  # chord of the domain
    high=float,
    phase=int,
    num_points=int,  # evaluations so far
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class WhitenedSlicePlan(NamedTuple):
    """Directions, the features along them, and properties of the target."""

    directions: Array  # (rank, dim): L^T
    columns: Array  # (rank, num_records): (A L)^T
    center: Array  # (dim,)
    whiten: Array  # (rank, dim)
    breakpoints: Array  # (num_records,): b if losses have one with one jump, or (0,)
    tilt: Array  # (rank,): derivatives of the linear parts of such losses along L_i
    weight: float  # factor of the sum over the records in the energy: k/n, or k/n h/2
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    is_free: int  # the domain is the whole space
    chord: Pointer


@by_address
class SliceWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    ends: Array  # (2,): chord of the domain
    synchronization: RecordArray  # one record of `Synchronization`
    draw: RecordArray  # one record of `SliceDraw`


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def sum_distances(margins, column, t):
    """Return the sum of |s_i + t C_i|.

    The compiler may change the order of the additions. Otherwise it could not
    vectorize the loop.
    """
    result = 0.0
    for i in range(margins.shape[0]):
        result += abs(margins[i] + t * column[i])
    return result


@kernel(counts_references=False, fastmath={"contract"})
def shift(margins, column, t):
    """Add t C_i to the margins."""
    for i in range(margins.shape[0]):
        margins[i] += t * column[i]


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def sum_losses(data, loss_value, margins, column, t, work):
    """Return the sum of phi(u_i + t C_i, y_i), NaN if the loss failed."""
    result = 0.0
    # By blocks of records, which stay in the processor's cache.
    for start in range(0, margins.shape[0], data.block):
        stop = min(start + data.block, margins.shape[0])
        values = work.margins[: stop - start]
        for i in range(stop - start):
            values[i] = margins[start + i] + t * column[start + i]
        work.out[0] = np.nan
        loss_value(data.loss_params, values, data.response[start:stop], work.out)
        result += work.out[0]
    return result


@kernel(counts_references=False)
def evaluate_total(target, pieces, plan, state, i, t):
    """Return the sum of |s_m + t C_m|, or of losses, at theta + t L_i."""
    margins, column = state.memory[MEMORY.margins :], plan.columns[i]
    if plan.breakpoints.shape[0] > 0:
        return sum_distances(margins, column, t)
    loss_value, work = pieces.loss_value, state.work
    return sum_losses(target.data, loss_value, margins, column, t, work)


@kernel(counts_references=False)
def evaluate_regularizer(target, pieces, plan, state, along, t):
    """Return the regularizer at theta + t direction.

    If it is quadratic, ``along`` holds its value and derivatives at t = 0.
    """
    if plan.is_quadratic == 1:
        return along[0] + t * (along[1] + 0.5 * along[2] * t)
    theta, direction = state.position, state.vectors[ROW.direction]
    point = state.vectors[ROW.point]
    for j in range(theta.shape[0]):
        point[j] = theta[j] + t * direction[j]
    return gibbs_target.regularizer(target, pieces, point, state.work)


@kernel(counts_references=False)
def synchronize(target, pieces, plan, state):
    """Compute margins, sum over the records and energy again. It may pause."""
    data, control, work = target.data, state.work.control[0], state.work
    margins = state.memory[MEMORY.margins :]
    paused = state.workspace.synchronization[0]
    start, losses = 0, 0.0
    if control.stage == STAGE.synchronizing:
        start, losses = paused.next_record, paused.loss_sum
        control.stage = 0
    while start < data.num_records:
        stop = min(start + data.block, data.num_records)
        part, values = margins[start:stop], work.margins[: stop - start]
        records.margins_of(data, state.position, start, stop, part)
        for i in range(stop - start):
            values[i] = part[i]
            if plan.breakpoints.shape[0] > 0:
                part[i] -= plan.breakpoints[start + i]
        work.out[0] = np.nan
        pieces.loss_value(data.loss_params, values, data.response[start:stop], work.out)
        losses += work.out[0]
        start = stop
        if start < data.num_records and is_due(control):
            control.stage = STAGE.synchronizing
            paused.next_record, paused.loss_sum = start, losses
            return PAUSED
    penalty = target.mu * gibbs_target.regularizer(target, pieces, state.position, work)
    state.energy[0] = target.k * (losses / data.num_records + penalty)
    # The sum |s_i| of the present point, along any direction at t = 0.
    state.memory[MEMORY.total] = evaluate_total(target, pieces, plan, state, 0, 0.0)
    state.memory[MEMORY.age] = 0.0
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


@kernel(counts_references=False)
def sum_change(plan, state, i, t, total):
    """Return the change of the energy's sum over the records, with linear parts."""
    return plan.weight * (total - state.memory[MEMORY.total]) + plan.tilt[i] * t


@kernel(counts_references=False)
def guess_interval(plan, theta, i, rise):
    """Return an interval that is wider than the slice of the Gaussian, around 0.

    The Gaussian's energy along L_i is (t - mode)^2 / 2, so its slice ends at a distance
    sqrt(mode^2 + 2 rise) from the mode. Intervals that are wider by a factor of 1.1 to
    1.4 needed the fewest evaluations on three data sets, 3.4 for a draw.
    """
    # The Gaussian's mode along L_i. L_i has length 1 in its metric.
    mode = 0.0
    for j in range(theta.shape[0]):
        mode -= plan.whiten[i, j] * (theta[j] - plan.center[j])
    reach = 1.25 * math.sqrt(mode * mode + 2.0 * rise)
    return mode - reach, mode + reach


@kernel(counts_references=False)
def slide(target, pieces, plan, state, i, rng):
    """Make the slice draw along direction i. It may pause after an evaluation."""
    control, ends, theta = state.work.control[0], state.workspace.ends, state.position
    paused, direction = state.workspace.draw[0], state.vectors[ROW.direction]
    for j in range(theta.shape[0]):
        direction[j] = plan.directions[i, j]
    along = (0.0, 0.0, 0.0)
    if plan.is_quadratic == 1:
        along = line.quadratic_along(target.regularizer, theta, direction)
    strength = target.k * target.mu
    penalty = evaluate_regularizer(target, pieces, plan, state, along, 0.0)
    if control.stage == STAGE.on_line:
        rise, left, right = paused.rise, paused.left, paused.right
        low, high = paused.low, paused.high
        phase, num_points = paused.phase, paused.num_points
        control.stage = 0
    else:
        low, high = -np.inf, np.inf
        if plan.is_free == 0:
            gibbs_target.chord(target, plan.chord, theta, direction, ends)
            low, high = ends[0], ends[1]
        # In a corner the chord may be a point, where the move is 0. NaN is a failure.
        if not low < high:
            return OK if low == high else FUNCTION_FAILED
        # The level is V plus a standard exponential number, as for a uniform height
        # under e^-V.
        rise = rng.standard_exponential()
        left, right = guess_interval(plan, theta, i, rise)
        left, right = max(left, low), min(right, high)
        phase, num_points = PHASE.left_end, 0
    while True:
        # An end of the chord needs no test, because nothing of the slice is beyond it.
        if phase == PHASE.left_end and left == low:
            phase = PHASE.right_end
        if phase == PHASE.right_end and right == high:
            phase = PHASE.inside
        if phase == PHASE.inside:
            t = left + (right - left) * rng.random()
        else:
            t = left if phase == PHASE.left_end else right
        total = evaluate_total(target, pieces, plan, state, i, t)
        after = evaluate_regularizer(target, pieces, plan, state, along, t)
        change = sum_change(plan, state, i, t, total) + strength * (after - penalty)
        num_points += 1
        # Only NaN differs from itself.
        if change != change:
            return FUNCTION_FAILED
        if phase == PHASE.inside:
            if change <= rise:
                break
            # The slice holds 0, so a point above the level cuts off its own side.
            if t < 0.0:
                left = t
            else:
                right = t
        # An end above the level is final, and the next phase begins. An end in the
        # slice moves outwards by half of the interval, so that few evaluations suffice
        # even if the Gaussian is much too narrow.
        elif change > rise:
            phase += 1
        elif phase == PHASE.left_end:
            left = max(left - 0.5 * (right - left), low)
        else:
            right = min(right + 0.5 * (right - left), high)
        # A usual draw takes three or four points.
        if num_points == 1000:
            return EXHAUSTED
        if is_due(control):
            control.stage, paused.direction = STAGE.on_line, i
            paused.rise, paused.left, paused.right = rise, left, right
            paused.low, paused.high = low, high
            paused.phase, paused.num_points = phase, num_points
            return PAUSED
    state.counts[COUNT.values] += num_points
    state.counts[COUNT.records] += num_points * target.data.num_records
    if plan.is_free == 1:
        for j in range(theta.shape[0]):
            theta[j] += t * direction[j]
    else:
        move = line.move_inside(target, pieces, state, t)
        # The energy belongs to the point that is kept. A quadratic regularizer is
        # measured from the old position, another one at the new position.
        if move != t:
            t, total = move, evaluate_total(target, pieces, plan, state, i, move)
            offset = move if plan.is_quadratic == 1 else 0.0
            after = evaluate_regularizer(target, pieces, plan, state, along, offset)
            change = sum_change(plan, state, i, t, total)
            change += strength * (after - penalty)
    shift(state.memory[MEMORY.margins :], plan.columns[i], t)
    # Sum and energy follow the move, without another pass.
    state.memory[MEMORY.total] = total
    state.energy[0] += change
    return OK


def step(target, pieces, plan, state, rng):
    """Make one slice draw along each direction, a sweep.

    A pause may come after each evaluation.
    """
    control = state.work.control[0]
    begin = 0
    if control.stage == STAGE.on_line:
        begin = state.workspace.draw[0].direction
    else:
        # Rounding errors of the margins add up. A new state has a negative age.
        if not 0.0 <= state.memory[MEMORY.age] < 100.0:
            code = synchronize(target, pieces, plan, state)
            if code != OK:
                return code
        state.memory[MEMORY.age] += 1.0
        state.counts[COUNT.proposals] += plan.directions.shape[0]
        state.counts[COUNT.accepted] += plan.directions.shape[0]
    for i in range(begin, plan.directions.shape[0]):
        code = slide(target, pieces, plan, state, i, rng)
        if code != OK:
            return code
    return OK


run = compile_run(step)


def init(target: Gibbs, plan: WhitenedSlicePlan, position: Array) -> ChainState:
    """Return a new state at a position. The first sweep fills the memory."""
    del plan
    memory = np.full(MEMORY.margins + target.problem.num_records, -1.0)
    workspace = SliceWork(
        ends=np.empty(2),
        synchronization=np.zeros(1, Synchronization),
        draw=np.zeros(1, SliceDraw),
    )
    return new_state(
        target, position, memory=memory, rows=len(ROW), workspace=workspace
    )


def compute_columns(target: Gibbs, factor: Array) -> Array:
    """Return (A L)^T. Between parts of the records it looks for Ctrl-C."""
    rows = as_rows(target.data)
    num_records, rank = target.problem.num_records, factor.shape[1]
    columns = np.empty((rank, num_records))
    # Parts of about a million numbers, a few milliseconds each.
    count = max(1, 10**6 // max(rank, target.dim))  # records of a part
    for start in range(0, num_records, count):
        part = slice(start, start + count)
        columns[:, part] = factor.T @ rows[part].T
        pauses.notify_listeners()
    return columns


def find_breakpoints(target: Gibbs) -> tuple[Array, Array, float]:
    """Return the breakpoints b, derivatives of the linear parts, and h / 2.

    The arrays are empty unless each loss has one breakpoint, with the same jump h.
    """
    loss, response = target.problem.loss, target.data.response
    breakpoints = loss.kink(response)
    if breakpoints is not None:
        # The derivative is constant on each side. This distance is never rounded away.
        distance = 1.0 + np.abs(breakpoints)
        before = loss.slope(breakpoints - distance, response)
        jump = loss.slope(breakpoints + distance, response) - before
        if jump[0] > 0.0 and (np.abs(jump - jump[0]) <= 1e-12 * jump[0]).all():
            half = 0.5 * float(jump[0])
            return np.array(breakpoints, dtype=np.float64), before + half, half
    return np.empty(0), np.empty(0), 1.0


def make_plan(target: Gibbs, center: Array, mass: MassMatrix) -> WhitenedSlicePlan:
    """Return the plan whose directions are the columns of a mass matrix's factor."""
    domain, rank = target.domain, mass.num_white
    directions = np.ascontiguousarray(mass.spread(np.eye(rank)))
    # Moves on the simplex keep the sum of the coefficients.
    if domain.affine_dim(target.dim) < target.dim:
        directions -= directions.mean(axis=1, keepdims=True)
    columns = compute_columns(target, directions.T)
    breakpoints, slopes, half = find_breakpoints(target)
    weight = target.k / target.problem.num_records
    is_quadratic = has_quadratic_regularizer(target) or target.mu == 0.0
    return WhitenedSlicePlan(
        directions=directions,
        columns=columns,
        center=center,
        whiten=np.ascontiguousarray(mass.whiten_rows(np.eye(target.dim)).T),
        breakpoints=breakpoints,
        tilt=weight * (columns @ slopes) if len(breakpoints) else np.zeros(rank),
        weight=weight * half,
        is_quadratic=int(is_quadratic),
        is_free=int(domain.is_whole_space),
        chord=gibbs_target.chord_of(target),
    )


def can_learn_axes(target: Gibbs) -> bool:
    """Return whether windows of sweeps find the axes.

    They do so without a boundary, in a dense metric.
    """
    return target.domain.is_whole_space and target.dim <= MAX_DENSE


def has_breakpoints(target: Gibbs) -> bool:
    """Return whether all losses are h/2 |u - b| plus a linear part."""
    return bool(len(find_breakpoints(target)[0]))


def move_cost(target: Gibbs) -> float:
    """Return multiply-adds of a move without its evaluations.

    Random numbers and loops take as long as 4000 multiply-adds. A chord that Newton's
    method finds takes as long as 1000 per coefficient.
    """
    exit_function = find_exit_function(target.domain, target.dim)
    is_expensive = exit_function in (exits.convex_exit, exits.l1_exit)
    chord_cost = 1000.0 * target.dim if is_expensive else 0.0
    return 4000.0 + target.problem.num_records + chord_cost


def learn_axes(
    target: Gibbs,
    gaussian: GaussianFit,
    rng: np.random.Generator,
    max_records_read: float = MAX_RECORDS_READ,
) -> WarmUp:
    """Learn the axes by windows of sweeps, from a Gaussian fit.

    The metric is learned as in `warm_up`, but the draws of a window change it more. A
    poor metric only makes sweeps slow, whereas it would make leaps be rejected. After
    the last window it is enough that the chains agree. A window that may read too many
    records is not begun.
    """
    if not has_breakpoints(target):
        max_records_read /= LOSS_COST
    plan = _make_plan_of_factor(target, gaussian.center, gaussian.factor)
    warm = WarmUp(
        plan=plan, shape=plan.mass, shares=np.ones(1), has_settled=False, leaps=0.0
    )
    starts = DispersedStarts(target, plan)
    ends = [starts.draw(rng) for _ in range(NUM_PILOTS)]
    sweep = plan.mass.num_white * move_cost(target)
    num_read = read_per_sweep = 0.0
    for width in WINDOWS:
        max_in_window = NUM_PILOTS * width * max(read_per_sweep, sweep)
        if num_read + max_in_window > max_records_read:
            break
        chain, mass = prepare_chain(target, warm), warm.plan.mass
        fill, stats = chain.runner(), np.empty((width, NUM_STATS))
        paths = np.empty((NUM_PILOTS, width, target.dim))
        for i, path in enumerate(paths):
            state = chain.init(ends[i])
            fill(state, rng, path, stats)
            ends[i] = path[-1]
            num_read += state.counts[COUNT.records] + width * sweep
        # Widths double, so their sum so far is 2 width - the first one.
        read_per_sweep = num_read / (NUM_PILOTS * (2 * width - WINDOWS[0]))
        draws = paths[:, width // 4 :]
        white = mass.whiten_rows(draws - draws.mean(axis=(0, 1)))
        share = lag_share(with_squares(white))
        has_settled = width >= MIN_SETTLED_WINDOW and is_settled(
            white, share, np.inf, None
        )
        if width == WINDOWS[-1]:
            has_settled = largest_r_hat(white) < MAX_R_HAT
        work = read_per_sweep * (1.0 if has_breakpoints(target) else LOSS_COST)
        shares = rank_shares(draws)
        warm = replace(warm, shares=shares, has_settled=has_settled, work=work)
        if has_settled:
            break
        root = root_of(white, math.sqrt(share), None)
        plan = _make_plan_of_factor(target, draws.mean(axis=(0, 1)), mass.factor @ root)
        warm = replace(warm, plan=plan, shape=plan.mass)
    return warm


def _make_plan_of_factor(target: Gibbs, center: Array, factor: Array) -> BilliardPlan:
    """Return the plan with the lower triangular factor of the same covariance.

    The last axes of a triangular factor move few coefficients. So a move along one of
    them changes few records, and the breakpoints of rare features are met one by one.
    """
    mass, force = dense(np.linalg.qr(factor.T)[1].T), np.zeros(target.dim)
    return billiard.new_plan(target, mass, center=center, force=force, step=1.0)


@dataclass(frozen=True, kw_only=True)
class WhitenedSlice(Sampler):
    """Slice draws along the axes of a fitted covariance. A draw is one sweep.

    It is meant for losses that are not differentiable everywhere, where few facets of
    the domain are active. The features are copied once along the axes, as a dense
    array.

    Parameters
    ----------
    num_steps : int
        Sweeps per draw.

    Notes
    -----
    **Guarantee.** Each slice draw leaves the density on its line invariant, so the
    target is exactly invariant for every covariance. A sweep in a fixed order is not
    reversible. The energy must be convex, as it is for all losses and regularizers of
    the package.

    Examples
    --------
    >>> from dpsample.samplers import WhitenedSlice
    >>> WhitenedSlice(num_steps=2).is_reversible
    False
    """

    is_reversible: ClassVar[bool] = False

    num_steps: int = 1

    def __post_init__(self) -> None:
        """Check the options."""
        check.integer(1, num_steps=self.num_steps)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        rank = target.domain.affine_dim(target.dim)
        size = rank * target.problem.num_records
        if size <= MAX_NUMBERS:
            return True, ""
        return False, (
            f"The features along the axes would be {size} numbers, more than "
            f"{MAX_NUMBERS}. Use HitAndRun."
        )

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Learn the axes by sweeps, or at a boundary by leaps of `BilliardHMC`."""
        self.require(target)
        if can_learn_axes(target):
            warm = learn_axes(target, fit(target), rng)
        else:
            warm = warm_up(target, rng)
        return prepare_chain(target, warm, self.num_steps)


def prepare_chain(target: Gibbs, warm: WarmUp, num_steps: int = 1) -> PreparedChain:
    """Return the chain along the axes that a warm-up has learned."""
    return PreparedChain(
        target=target,
        plan=make_plan(target, warm.plan.center, warm.shape),
        run=run,
        init_fn=init,
        start=warm.plan.center,
        num_steps=num_steps,
        num_warmup=100,
        settings=warm.settings,
        start_fn=partial(disperse, target, warm.plan),
    )
