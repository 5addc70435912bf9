# mypy: allow-untyped-defs
r"""Whitened slice sampler: slice draws along the columns of a covariance's factor.

    theta + t L_i,    t uniform on {t : V(theta + t L_i) <= V(theta) + Exp(1)},

for i = 1, ..., r in turn (Neal, 2003, doi:10.1214/aos/1056562461). V is convex, so the
slice is an interval that holds 0. An interval with both ends above the level, or at the
end of the domain's chord, holds the slice; a point drawn in it and found above the
level cuts off nothing of the slice. The first point below is uniform on the slice,
whatever the interval was: a guess from the Gaussian with factor L makes it short.

The columns of C = A L are computed once, and the margins follow each move, so that an
evaluation is one pass over two n-vectors. Where phi(u, y) has a single kink, at u = b,
and the same jump h of the slope for all records,

    phi(u, y) = h/2 |u - b| + (linear in u),

the linear parts add up to one number for each column, and a pass is sum |s_i + t C_i|.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Pointer, kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.mixing import (
    lag_share,
    rank_shares,
    split_r_hat,
    with_squares,
)
from dpsample.problem import records
from dpsample.samplers.adaptive import billiard, exits
from dpsample.samplers.adaptive.barrier_fit import MAX_DENSE
from dpsample.samplers.adaptive.billiard import BilliardPlan
from dpsample.samplers.adaptive.mass_matrix import MassMatrix, dense
from dpsample.samplers.adaptive.warmup import (
    NUM_PILOTS,
    SETTLED,
    WINDOWS,
    WarmUp,
    disperse,
    is_settled,
    root_of,
    warm_up,
)
from dpsample.samplers.chain import (
    ACCEPTED,
    NUM_STATS,
    PROPOSALS,
    RECORDS,
    VALUES,
    ChainState,
    PreparedChain,
    compile_run,
    new_state,
)
from dpsample.samplers.coordinate.coordinate_moves import has_quadratic_regularizer
from dpsample.samplers.errors import EXHAUSTED, FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.univariate import line
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs, as_rows

# Sweeps after which the margins are computed anew: their rounding errors add up.
RESYNCHRONIZE = 100.0
# Width of the first interval, relative to the slice of the Gaussian: 1.1 to 1.4 is best
# on three data sets, 3.4 evaluations instead of 5 with random intervals of 2.5.
WIDEN = 1.25
MAX_TRIES = 1000
MAX_NUMBERS = 10**8  # of the cached columns: 800 MB
PART_NUMBERS = 10**6  # of the columns that are computed between two pauses
# Records that windows of sweeps may pass, some five seconds or one, and how much longer
# a loss takes than a distance to its kink.
MAX_PASSED, FEW_PASSED, DEARER = 1e10, 2e9, 10.0
# Multiply-adds that take as long as the random numbers and loops of a move.
MOVE = 4000.0
CHORD = 1000.0  # multiply-adds per coefficient, of a chord that Newton's method finds
ALIKE = 1.1  # split R-hat of chains that agree

# Stages of a paused sweep, and what it keeps: record and sum of losses so far, or
# coordinate, level above the energy, interval, chord, end to be tested, and tries.
SYNCHRONIZING, ON_LINE = 1, 2
TURN, SUM = 0, 1
RISE, LEFT, RIGHT, LOW, HIGH, PHASE, TRIES = range(1, 8)
LEFT_END, RIGHT_END, INSIDE = range(3)

AGE, TOTAL, MARGINS = range(3)  # of a chain's memory


@by_address
class WhitenedSlicePlan(NamedTuple):
    """Directions, the features along them, and what is special about the target."""

    directions: Array  # (rank, dim): L^T
    columns: Array  # (rank, num_records): (A L)^T
    center: Array  # (dim,)
    whiten: Array  # (rank, dim)
    kinks: Array  # (num_records,) if all losses have one kink with one jump, or (0,)
    tilt: Array  # (rank,): slopes of the linear parts of such losses along L_i
    weight: float  # of the sum over the records
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    is_free: int  # the domain is the whole space
    chord: Pointer


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def distance(margins, column, t):
    """Sum of |s_i + t C_i| in any order, so that the loop is vectorized."""
    result = 0.0
    for i in range(margins.shape[0]):
        result += abs(margins[i] + t * column[i])
    return result


@kernel(counts_references=False, fastmath={"contract"})
def shift(margins, column, t):
    """Add t C_i to the margins."""
    for i in range(margins.shape[0]):
        margins[i] += t * column[i]


@kernel(counts_references=False)
def sum_of_losses(data, loss_value, margins, column, t, work):
    """Sum of phi(u_i + t C_i, y_i); NaN if the piece failed."""
    result = 0.0
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
def total_at(target, pieces, plan, state, i, t):
    """Sum over the records at theta + t L_i: of distances to kinks, or of losses."""
    margins, column = state.memory[MARGINS:], plan.columns[i]
    if plan.kinks.shape[0] > 0:
        return distance(margins, column, t)
    loss_value, work = pieces.loss_value, state.work
    return sum_of_losses(target.data, loss_value, margins, column, t, work)


@kernel(counts_references=False)
def regularizer_at(target, pieces, plan, state, along, t):
    """Regularizer at theta + t scratch[1], with ``along`` what it is if quadratic."""
    if plan.is_quadratic == 1:
        return along[0] + t * (along[1] + 0.5 * along[2] * t)
    theta, direction, point = state.position, state.scratch[1], state.scratch[2]
    for j in range(theta.shape[0]):
        point[j] = theta[j] + t * direction[j]
    return gibbs.regularizer(target, pieces, point, state.work)


@kernel(counts_references=False)
def synchronize(target, pieces, plan, state):
    """Compute margins, sum over the records and energy anew; may pause."""
    data, control, work = target.data, state.work.control[0], state.work
    margins = state.memory[MARGINS:]
    start, losses = 0, 0.0
    if control.stage == SYNCHRONIZING:
        start, losses = int(control.saved[TURN]), control.saved[SUM]
        control.stage = 0
    while start < data.num_records:
        stop = min(start + data.block, data.num_records)
        part, values = margins[start:stop], work.margins[: stop - start]
        records.margins_of(data, state.position, start, stop, part)
        for i in range(stop - start):
            values[i] = part[i]
            if plan.kinks.shape[0] > 0:
                part[i] -= plan.kinks[start + i]
        work.out[0] = np.nan
        pieces.loss_value(data.loss_params, values, data.response[start:stop], work.out)
        losses += work.out[0]
        start = stop
        if start < data.num_records and is_due(control):
            control.stage, control.saved[TURN], control.saved[SUM] = (
                SYNCHRONIZING,
                start,
                losses,
            )
            return PAUSED
    penalty = target.mu * gibbs.regularizer(target, pieces, state.position, work)
    state.energy[0] = target.k * (losses / data.num_records + penalty)
    state.memory[TOTAL] = total_at(target, pieces, plan, state, 0, 0.0)
    state.memory[AGE] = 0.0
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


@kernel(counts_references=False)
def first_interval(plan, theta, i, rise):
    """Interval around the slice that the Gaussian would have; it holds 0."""
    guess = 0.0
    for j in range(theta.shape[0]):
        guess -= plan.whiten[i, j] * (theta[j] - plan.center[j])
    reach = WIDEN * math.sqrt(guess * guess + 2.0 * rise)
    return guess - reach, guess + reach


@kernel(counts_references=False)
def slide(target, pieces, plan, state, i, rng):
    """Slice draw along direction i; may pause after an evaluation."""
    control, ends, theta = state.work.control[0], state.own[0], state.position
    direction = state.scratch[1]
    for j in range(theta.shape[0]):
        direction[j] = plan.directions[i, j]
    along = (0.0, 0.0, 0.0)
    if plan.is_quadratic == 1:
        along = line.quadratic_along(target.regularizer, theta, direction)
    strength = target.k * target.mu
    penalty = regularizer_at(target, pieces, plan, state, along, 0.0)
    if control.stage == ON_LINE:
        rise, left, right = (
            control.saved[RISE],
            control.saved[LEFT],
            control.saved[RIGHT],
        )
        low, high = control.saved[LOW], control.saved[HIGH]
        phase, tries = int(control.saved[PHASE]), int(control.saved[TRIES])
        control.stage = 0
    else:
        low, high = -np.inf, np.inf
        if plan.is_free == 0:
            gibbs.chord(target, plan.chord, theta, direction, ends)
            low, high = ends[0], ends[1]
        if not low < high:
            return OK if low == high else FUNCTION_FAILED
        rise = rng.standard_exponential()
        left, right = first_interval(plan, theta, i, rise)
        left, right = max(left, low), min(right, high)
        phase, tries = LEFT_END, 0
    while True:
        if phase == LEFT_END and left == low:
            phase = RIGHT_END
        if phase == RIGHT_END and right == high:
            phase = INSIDE
        if phase == INSIDE:
            t = left + (right - left) * rng.random()
        else:
            t = left if phase == LEFT_END else right
        total = total_at(target, pieces, plan, state, i, t)
        after = regularizer_at(target, pieces, plan, state, along, t)
        change = plan.weight * (total - state.memory[TOTAL]) + plan.tilt[i] * t
        change += strength * (after - penalty)
        tries += 1
        if change != change:
            return FUNCTION_FAILED
        if phase == INSIDE:
            if change <= rise:
                break
            if t < 0.0:
                left = t
            else:
                right = t
        elif change > rise:
            phase += 1
        elif phase == LEFT_END:
            left = max(left - 0.5 * (right - left), low)
        else:
            right = min(right + 0.5 * (right - left), high)
        if tries == MAX_TRIES:
            return EXHAUSTED
        if is_due(control):
            control.stage, control.saved[TURN] = ON_LINE, i
            control.saved[RISE], control.saved[LEFT], control.saved[RIGHT] = (
                rise,
                left,
                right,
            )
            control.saved[LOW], control.saved[HIGH] = low, high
            control.saved[PHASE], control.saved[TRIES] = phase, tries
            return PAUSED
    state.counts[VALUES] += tries
    state.counts[RECORDS] += tries * target.data.num_records
    if plan.is_free == 1:
        for j in range(theta.shape[0]):
            theta[j] += t * direction[j]
    else:
        moved = line.move_inside(target, pieces, state, t)
        if moved != t:  # the energy is that of the point that is kept
            t, total = moved, total_at(target, pieces, plan, state, i, moved)
            offset = moved if plan.is_quadratic == 1 else 0.0  # theta has moved
            after = regularizer_at(target, pieces, plan, state, along, offset)
            change = plan.weight * (total - state.memory[TOTAL]) + plan.tilt[i] * t
            change += strength * (after - penalty)
    shift(state.memory[MARGINS:], plan.columns[i], t)
    state.memory[TOTAL] = total
    state.energy[0] += change
    return OK


def step(target, pieces, plan, state, rng):
    """One slice draw along each direction; a pause may come after each evaluation."""
    control = state.work.control[0]
    begin = 0
    if control.stage == ON_LINE:
        begin = int(control.saved[TURN])
    else:
        if not 0.0 <= state.memory[AGE] < RESYNCHRONIZE:
            code = synchronize(target, pieces, plan, state)
            if code != OK:
                return code
        state.memory[AGE] += 1.0
        state.counts[PROPOSALS] += plan.directions.shape[0]
        state.counts[ACCEPTED] += plan.directions.shape[0]
    for i in range(begin, plan.directions.shape[0]):
        code = slide(target, pieces, plan, state, i, rng)
        if code != OK:
            return code
    return OK


run = compile_run(step)


def init(target: Gibbs, plan: WhitenedSlicePlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain; the first sweep fills the memory."""
    del plan
    memory = np.full(MARGINS + target.problem.num_records, -1.0)
    return new_state(target, position, memory=memory, rows=3, own=(np.empty(2),))


def columns_of(target: Gibbs, factor: Array) -> Array:
    """Return (A L)^T, by parts of the records."""
    rows = as_rows(target.data)
    num_records, rank = target.problem.num_records, factor.shape[1]
    columns = np.empty((rank, num_records))
    count = max(1, PART_NUMBERS // max(rank, target.dim))
    for start in range(0, num_records, count):
        part = slice(start, start + count)
        columns[:, part] = factor.T @ rows[part].T
        pauses.notify_listeners()
    return columns


def kinks_of(target: Gibbs) -> tuple[Array, Array, float]:
    """Margins at the kinks, slopes of the linear parts, and h / 2 of all records.

    The arrays are empty if losses have other kinks or none, or different jumps.
    """
    loss, response = target.problem.loss, target.data.response
    kinks = loss.kink(response)
    if kinks is not None:
        apart = 1.0 + np.abs(kinks)
        before = loss.slope(kinks - apart, response)
        jump = loss.slope(kinks + apart, response) - before
        if jump[0] > 0.0 and (np.abs(jump - jump[0]) <= 1e-12 * jump[0]).all():
            half = 0.5 * float(jump[0])
            return np.array(kinks, dtype=np.float64), before + half, half
    return np.empty(0), np.empty(0), 1.0


def make_plan(target: Gibbs, center: Array, mass: MassMatrix) -> WhitenedSlicePlan:
    """Plan with the columns of a mass matrix's factor as directions."""
    domain, rank = target.problem.domain, mass.num_white
    directions = np.ascontiguousarray(mass.spread(np.eye(rank)))
    if domain.affine_dim(target.dim) < target.dim:  # stay on the simplex
        directions -= directions.mean(axis=1, keepdims=True)
    columns = columns_of(target, directions.T)
    kinks, slopes, half = kinks_of(target)
    weight = target.k / target.problem.num_records
    is_quadratic = has_quadratic_regularizer(target) or target.mu == 0.0
    return WhitenedSlicePlan(
        directions=directions,
        columns=columns,
        center=center,
        whiten=np.ascontiguousarray(mass.whiten_rows(np.eye(target.dim)).T),
        kinks=kinks,
        tilt=weight * (columns @ slopes) if len(kinks) else np.zeros(rank),
        weight=weight * half,
        is_quadratic=int(is_quadratic),
        is_free=int(domain.name == "whole_space"),
        chord=gibbs.chord_of(target),
    )


def learns(target: Gibbs) -> bool:
    """Whether windows of sweeps find the axes: without walls, a dense metric."""
    return target.problem.domain.name == "whole_space" and target.dim <= MAX_DENSE


def has_kinks(target: Gibbs) -> bool:
    """Whether a sum over the records is one of distances to kinks."""
    return bool(len(kinks_of(target)[0]))


def move_cost(target: Gibbs) -> float:
    """Multiply-adds of a move beside its evaluations, with a chord if it is dear."""
    piece = exits.find_exit_function(target.problem.domain)
    is_dear = piece in (exits.convex_exit, exits.l1_exit)
    return MOVE + target.problem.num_records + (CHORD * target.dim if is_dear else 0.0)


def learn_axes(
    target: Gibbs,
    gaussian: GaussianFit,
    rng: np.random.Generator,
    most: float = MAX_PASSED,
) -> WarmUp:
    """Axes that windows of sweeps learn, from a Gaussian fit.

    They follow as in `warm_up`, but trust the draws more: a poor metric makes sweeps
    slow, where it would refuse leaps. In the end it is enough that the chains agree.
    A window that may take more than ``most`` is not begun.
    """
    if not has_kinks(target):
        most /= DEARER
    plan = _plan_of(target, gaussian.center, gaussian.factor)
    warm = WarmUp(
        plan=plan, shape=plan.mass, shares=np.ones(1), has_settled=False, leaps=0.0
    )
    ends = [disperse(target, plan, rng) for _ in range(NUM_PILOTS)]
    sweep = plan.mass.num_white * move_cost(target)
    passed = pace = 0.0
    for width in WINDOWS:
        if passed + NUM_PILOTS * width * max(pace, sweep) > most:
            break
        chain, mass = prepare_chain(target, warm), warm.plan.mass
        fill, stats = chain.runner(), np.empty((width, NUM_STATS))
        paths = np.empty((NUM_PILOTS, width, target.dim))
        for i, path in enumerate(paths):
            state = chain.init(ends[i])
            fill(state, rng, path, stats)
            ends[i] = path[-1]
            passed += state.counts[RECORDS] + width * sweep
        pace = passed / (NUM_PILOTS * (2 * width - WINDOWS[0]))
        draws = paths[:, width // 4 :]
        white = mass.whiten_rows(draws - draws.mean(axis=(0, 1)))
        share = lag_share(with_squares(white))
        has_settled = width >= SETTLED and is_settled(white, share, np.inf, None)
        if width == WINDOWS[-1]:
            has_settled = split_r_hat(white) < ALIKE
        work = pace if has_kinks(target) else DEARER * pace
        shares = rank_shares(draws)
        warm = replace(warm, shares=shares, has_settled=has_settled, work=work)
        if has_settled:
            break
        root = root_of(white, math.sqrt(share), None)
        plan = _plan_of(target, draws.mean(axis=(0, 1)), mass.factor @ root)
        warm = replace(warm, plan=plan, shape=plan.mass)
    return warm


def _plan_of(target: Gibbs, center: Array, factor: Array) -> BilliardPlan:
    """Plan with the lower triangular factor of the same covariance.

    Its last axes move few coefficients: they meet the kinks of rare features singly.
    """
    mass, force = dense(np.linalg.qr(factor.T)[1].T), np.zeros(target.dim)
    return billiard.new_plan(target, mass, center=center, force=force, step=1.0)


@dataclass(frozen=True, kw_only=True)
class WhitenedSlice(Sampler):
    """Slice draws along the axes of a fitted covariance; a draw is one sweep.

    It is meant for losses with kinks where few walls are active. The features are
    copied once along the axes, as a dense array.

    Parameters
    ----------
    num_steps : int
        Sweeps per draw.

    Notes
    -----
    **Guarantee.** Each slice draw leaves the density on its line invariant, so the
    target is exactly invariant for every covariance; a sweep in a fixed order is not
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
        rank = target.problem.domain.affine_dim(target.dim)
        size = rank * target.problem.num_records
        if size <= MAX_NUMBERS:
            return True, ""
        return False, (
            f"The features along the axes would be {size} numbers, more than "
            f"{MAX_NUMBERS}. Use HitAndRun."
        )

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Learn the axes by sweeps, or between walls by leaps of `BilliardHMC`."""
        self.require(target)
        by_sweeps = learns(target)
        warm = (
            learn_axes(target, fit(target), rng) if by_sweeps else warm_up(target, rng)
        )
        return prepare_chain(target, warm, self.num_steps)


def prepare_chain(target: Gibbs, warm: WarmUp, num_steps: int = 1) -> PreparedChain:
    """Chain along the axes that a warm-up has learned."""
    return PreparedChain(
        target=target,
        plan=make_plan(target, warm.plan.center, warm.shape),
        run=run,
        init_fn=init,
        start=warm.plan.center,
        num_steps=num_steps,
        num_warmup=100,
        settings=warm.settings,
        disperse=partial(disperse, target, warm.plan),
    )
