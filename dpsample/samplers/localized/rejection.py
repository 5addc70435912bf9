# mypy: allow-untyped-defs
"""Compiled rejection on a region: proposals, candidates, their excess, and whole draws.

Proposals v, moves from the mode x0, are drawn in *blocks*, from an envelope of the
target (see `region`). A proposal in region and domain is a *candidate* and gets a
*threshold*, a standard exponential variable minus the cost of the proposal (see
`proposals`). Its *excess* D, the energy above the envelope's, is a sum of non-negative
terms, one per record. It is accepted if D is at most the threshold. Candidates are
compared with the records in *groups*. A candidate leaves its group as soon as D is
above its threshold. The others are *active*.

A kernel that may run for long returns `PAUSED` between blocks of records, and its next
call continues there. The time of a pause does not change a draw.
"""

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array, Ints, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import Kernel, kernel, pointer
from dpsample.core.streams import set_state
from dpsample.domains import CONTAINS, Body
from dpsample.losses.loss import total
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import products_of
from dpsample.regularizers import REG_VALUE, RegularizerParams
from dpsample.samplers.errors import (
    BOUND_VIOLATED,
    FUNCTION_FAILED,
    OK,
    raise_unless_ok,
)
from dpsample.samplers.localized import columns
from dpsample.samplers.localized.columns import RecordColumns
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.proposals import propose
from dpsample.samplers.localized.region import Region
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import as_kernel_array
from dpsample.targets.grid import go_inside, nearest

# Number of margins that are computed together: of some records for all active
# candidates. They take 1 MB, and stay in the cache. There are at least MIN_RECORDS
# records, because a product of small matrices is slow.
BLOCK_NUMBERS = 2**17
MIN_RECORDS = 256
# Maximum number of proposals of a block.
MAX_BLOCK = 4096


class DrawCode(NamedTuple):
    """Codes of a draw without a point, in addition to `samplers.errors`."""

    out_of_patience: int = 50  # it has made the maximum number of proposals
    out_of_work: int = 51  # it has read the maximum number of records
    needs_proposals: int = 52  # Python must draw the next block of proposals
    needs_records: int = 53  # Python must supply the records, chunk by chunk


CODE = DrawCode()


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class LocalFrame(NamedTuple):
    """Numbers of mode, region, domain and regularizer for kernels."""

    point: Array  # (dim,): x0
    basis: Array  # (dim, m)
    body: Body
    roots: Array  # (num_ellipsoids, m, m)
    radii: Array  # (num_ellipsoids,)
    has_slabs: bool
    slack: float  # the matrix of the envelope is smaller by this multiple of I
    per_record: float  # k / num_records
    weight: float  # k mu
    regularizer: RegularizerParams
    is_curved: bool  # whether the regularizer is above its quadratic at x0
    base: float  # value of the regularizer at x0
    slope: Array  # (dim,): its gradient there
    min_curvature: float  # its strong convexity

    @classmethod
    def new(cls, target: Gibbs, mode: Mode, region: Region) -> "LocalFrame":
        """Return the frame of a region."""
        min_curvature, max_curvature = target.curvature
        base, slope = target._evaluate_regularizer(mode.point)
        rank, ellipsoids = mode.basis.shape[1], region.ellipsoids
        roots = np.reshape([e.root for e in ellipsoids], (len(ellipsoids), rank, rank))
        return cls(
            point=as_kernel_array(mode.point),
            basis=as_kernel_array(mode.basis),
            body=target.geometry.body,
            roots=as_kernel_array(roots),
            radii=np.array([ellipsoid.radius for ellipsoid in ellipsoids]),
            has_slabs=bool(region.has_slabs),
            slack=float(region.slack),
            per_record=target.k / target.storage.num_records,
            weight=target.k * target.mu,
            regularizer=target.regularizer_params,
            is_curved=bool(min_curvature < max_curvature),
            base=base,
            slope=slope,
            min_curvature=float(min_curvature),
        )


# A block of proposals, its present group, and counts of the draw.
DrawProgress = record_dtype(
    has_proposals=bool,  # proposals wait for the tests of region and domain
    num_proposed=int,  # in this block
    next_proposal=int,  # first one that is not tested
    num_candidates=int,  # in this block
    group_start=int,  # first candidate of the group
    stage=int,  # code in `GroupStage`
    next_record=int,  # first one that the excess does not include yet
    num_active=int,
    size_sum=float,  # sum of the sizes of the excess's terms so far
    proposals=int,  # counts of the draw
    candidates=int,
    records=int,
    rows_done=int,  # draws of `draw_many`
)


class GroupStage(NamedTuple):
    """Stages of a group of candidates."""

    new: int = 0
    begun: int = 1
    done: int = 2


STAGE = GroupStage()


class CallEnd(NamedTuple):
    """Points at which a call of `draw` ends."""

    proposals: int = 0  # it has proposals and their costs
    candidates: int = 1  # it knows the candidates among them
    point: int = 2  # it has a draw


UNTIL = CallEnd()


@by_address
class RejectionWork(NamedTuple):
    """Memory for a block of proposals and its candidates."""

    vectors: Array  # (size, m): v of candidates
    thresholds: Array  # (size,)
    excess: Array  # (size,): D
    moves: Array  # (size, dim): w = basis v
    active: Ints  # (size,): active candidates
    point: Array  # (dim,): scratch
    out: Array  # (2,): outputs of compiled functions
    progress: RecordArray  # one record of `DrawProgress`
    control: RecordArray  # a control of `core.pauses`
    proposed: Array  # (size, m): v of proposals
    costs: Array  # (size,): of proposals


def max_block_size(rank: int) -> int:
    """Return the size of a block whose products with a matrix take about 20 ms."""
    return min(max(10**8 // rank**2, 1), MAX_BLOCK)


def new_work(size: int, rank: int, dim: int) -> RejectionWork:
    """Return memory for blocks of at most ``size`` proposals."""
    return RejectionWork(
        vectors=np.empty((size, rank)),
        thresholds=np.empty(size),
        excess=np.empty(size),
        moves=np.empty((size, dim)),
        active=np.empty(size, dtype=np.int64),
        point=np.empty(dim),
        out=np.empty(2),
        progress=np.zeros(1, DrawProgress),
        control=pauses.new_control(),
        proposed=np.empty((size, rank)),
        costs=np.empty(size),
    )


@kernel
def records_of_block(num_active):
    """Return the number of records that are compared with a group at a time.

    More than 2048 would read records for candidates that fewer records reject.
    """
    return max(MIN_RECORDS, min(2048, BLOCK_NUMBERS // max(num_active, 1)))


@kernel
def is_in_region(frame, v, products):
    """Return whether v is in all ellipsoids. ``products`` is scratch memory."""
    rank = v.shape[0]
    for e in range(frame.radii.shape[0]):
        square = 0.0
        for j in range(rank):
            products[j] = 0.0
        # The loops read the root in the order of its memory.
        for m in range(rank):
            for j in range(m + 1):
                products[j] += v[m] * frame.roots[e, m, j]
        for j in range(rank):
            square += products[j] * products[j]
        if not np.sqrt(square) <= frame.radii[e]:
            return False
    return True


@kernel
def move_to(frame, v, move):
    """Fill move with w = basis v."""
    for j in range(move.shape[0]):
        move[j] = 0.0
        for m in range(v.shape[0]):
            move[j] += frame.basis[j, m] * v[m]


@kernel
def select_candidates(frame, pieces, rng, work):
    """Set the candidates of a block and their thresholds. Return OK or PAUSED.

    Proposals whose cost is above the exponential variable are rejected here, too.
    """
    progress, vectors = work.progress[0], work.proposed
    count = progress.num_proposed
    if progress.next_proposal == 0:
        # All exponentials are drawn first, so that their order does not depend on the
        # tests.
        for i in range(count):
            work.thresholds[i] = rng.standard_exponential() - work.costs[i]
        progress.num_candidates = 0
    begin, selected = progress.next_proposal, progress.num_candidates
    for i in range(begin, count):
        if i > begin and pauses.is_due(work.control[0]):
            progress.next_proposal, progress.num_candidates = i, selected
            return pauses.PAUSED
        # The shortest tests come first. The domain's function may take the longest.
        if not work.thresholds[i] >= 0.0:
            continue
        if not is_in_region(frame, vectors[i], work.point):
            continue
        move_to(frame, vectors[i], work.moves[selected])
        for j in range(work.point.shape[0]):
            work.point[j] = frame.point[j] + work.moves[selected, j]
        work.out[0] = np.nan
        pieces.contains(frame.body, work.point, work.out)
        if work.out[0] == 1.0:
            copy_into(vectors[i], work.vectors[selected])
            work.thresholds[selected] = work.thresholds[i]
            selected += 1
    progress.has_proposals, progress.next_proposal = False, 0
    progress.num_candidates = selected
    progress.group_start, progress.stage = 0, STAGE.new
    return OK


@kernel
def excess_without_records(frame, pieces, v, move, point, out):
    """Return the terms of D of the regularizer and of the slack of the envelope."""
    above = 0.0
    if frame.is_curved:
        out[0], square = np.nan, 0.0
        for j in range(move.shape[0]):
            point[j] = frame.point[j] + move[j]
        pieces.regularizer_value(frame.regularizer, point, out)
        above = out[0] - frame.base
        for j in range(move.shape[0]):
            above -= move[j] * frame.slope[j]
            square += move[j] * move[j]
        # By strong convexity the difference is not negative, except by rounding.
        above = frame.weight * max(above - 0.5 * frame.min_curvature * square, 0.0)
    square = 0.0
    for j in range(v.shape[0]):
        square += v[j] * v[j]
    return above + 0.5 * frame.slack * square


@kernel
def begin_group(frame, pieces, first, stop, work):
    """Set the excess of a group of candidates without the records. Return a code."""
    progress = work.progress[0]
    progress.stage, progress.next_record = STAGE.begun, 0
    progress.num_active, progress.size_sum = 0, 0.0
    for i in range(first, stop):
        v, move = work.vectors[i], work.moves[i]
        work.excess[i] = excess_without_records(
            frame, pieces, v, move, work.point, work.out
        )
        work.active[progress.num_active] = i
        progress.num_active += 1
    return drop_rejected(work)


@kernel
def drop_rejected(work):
    """Drop candidates whose excess is above the threshold. Return a code.

    Their excess becomes infinite.
    """
    count = 0
    for a in range(work.progress[0].num_active):
        i = work.active[a]
        if np.isnan(work.excess[i]):
            return FUNCTION_FAILED
        if work.excess[i] <= work.thresholds[i]:
            work.active[count] = i
            count += 1
        else:
            work.excess[i] = np.inf
    work.progress[0].num_active = count
    return OK


@kernel(fastmath={"reassoc"})
def bound_sizes(values, slopes, weights, margins, max_move):
    """Return a bound of the sum of the sizes of terms, if no margin moves farther."""
    result = 0.0
    for r in range(values.shape[0]):
        reach = 2.0 * max_move + abs(margins[r])
        max_slope = abs(slopes[r]) + weights[r] * max_move
        result += 2.0 * abs(values[r]) + max_slope * reach
    return result


@kernel
def add_records(frame, loss_value, chunk, start, stop, is_checked, work):
    """Add the terms of some records to the excess of active candidates. Return a code.

    A negative excess beyond rounding errors shows that a user's loss does not have its
    declared properties. This is an error if ``is_checked``.
    """
    data, progress, excess = chunk.data, work.progress[0], work.excess
    num_active, size = progress.num_active, stop - start
    # Row a has the moves t of the margins for the a-th active candidate. One product of
    # matrices for all candidates is faster than one for each.
    margin_moves = np.empty((num_active, size))
    if data.dense.shape[0] > 0:
        moves = np.empty((num_active, data.dim))
        for a in range(num_active):
            copy_into(work.moves[work.active[a]], moves[a])
        np.dot(moves, data.dense[start:stop].T, margin_moves)
    else:
        for a in range(num_active):
            move = work.moves[work.active[a]]
            products_of(data, move, start, stop, margin_moves[a])
    terms, values, max_move = np.empty(size), chunk.values[start:stop], 0.0
    margins, slopes = chunk.margins[start:stop], chunk.slopes[start:stop]
    weights, response = chunk.weights[start:stop], data.response[start:stop]
    for a in range(num_active):
        i, t = work.active[a], margin_moves[a]
        for r in range(size):
            terms[r] = margins[r] + t[r]
        for r in range(size):
            max_move = max(max_move, abs(t[r]))
        # The loss replaces the margins by its values.
        work.out[0] = np.nan
        loss_value(data.loss_params, terms, response, work.out)
        # phi(u + t) - phi(u) - phi'(u) t - weight t^2 / 2, with few operations.
        for r in range(size):
            mean_slope = slopes[r] + 0.5 * weights[r] * t[r]
            terms[r] = terms[r] - values[r] - mean_slope * t[r]
        if np.isnan(work.out[0]):
            excess[i] = np.nan
        excess[i] += frame.per_record * total(terms)
        # A candidate beyond a slab is outside of the region, and is rejected.
        if frame.has_slabs:
            for r in range(size):
                if t[r] < chunk.lower[start + r] or t[r] > chunk.upper[start + r]:
                    excess[i] = np.inf
    sizes = bound_sizes(values, slopes, weights, margins, max_move)
    progress.size_sum += frame.per_record * sizes
    # Rounding error of an excess, relative to the sum of its terms' sizes.
    min_excess = -1e-12 * (1.0 + progress.size_sum)
    for a in range(num_active):
        if is_checked and excess[work.active[a]] < min_excess:
            return BOUND_VIOLATED
    return drop_rejected(work)


@kernel
def add_chunk(frame, loss_value, chunk, is_checked, work):
    """Add the terms of a chunk of records to the excess of a group. Return a code."""
    progress, num_records = work.progress[0], chunk.data.num_records
    while progress.num_active > 0 and progress.next_record < num_records:
        start, num_active = progress.next_record, progress.num_active
        end = min(num_records, start + records_of_block(num_active))
        code = add_records(frame, loss_value, chunk, start, end, is_checked, work)
        if code != OK:
            return code
        progress.records += num_active * (end - start)
        progress.next_record = end
        if pauses.is_due(work.control[0]) and end < num_records:
            return pauses.PAUSED
    progress.next_record = 0
    return OK


def call(function: Kernel[..., int], *arguments: Any) -> int:
    """Call a kernel whose last argument is its memory, under the timer."""
    control = arguments[-1].control
    return int(pauses.call(control, jit.call, function, *arguments))


def add_all_records(
    target: Gibbs,
    mode: Mode,
    region: Region,
    frame: LocalFrame,
    work: RejectionWork,
    *,
    is_checked: bool,
) -> None:
    """Add the terms of all records to the excess of a group, chunk by chunk.

    Chunks that are read in parallel all begin with the same sums, so what each of them
    adds is the difference from these.
    """
    progress, first_excess = work.progress, work.excess.copy()
    first_size, first_records = progress["size_sum"][0], progress["records"][0]
    arguments = region, frame, is_checked, work
    with closing(columns.map_columns(target, mode, _add_to_copy, *arguments)) as passes:
        while progress["num_active"][0] > 0:
            sums = next(passes, None)
            if sums is None:
                break
            excess, size_sum, num_records = sums
            if target.storage.is_parallel:
                is_active = np.isfinite(first_excess)
                excess[is_active] += work.excess[is_active] - first_excess[is_active]
                size_sum += progress["size_sum"][0] - first_size
                num_records += progress["records"][0] - first_records
            work.excess[:] = excess
            progress["size_sum"], progress["records"] = size_sum, num_records
            raise_unless_ok(call(drop_rejected, work))
    progress["stage"] = STAGE.done


def _add_to_copy(
    part: RecordColumns,
    region: Region,
    frame: LocalFrame,
    is_checked: bool,
    work: RejectionWork,
) -> tuple[Array, float, int]:
    """Return excess, sum of sizes and count of records after a chunk of records."""
    arrays = {n: getattr(work, n).copy() for n in ("excess", "active", "progress")}
    copy = work._replace(**arrays, out=np.empty(2), control=pauses.new_control())
    arguments = (
        frame,
        part.setting.loss.value_pointer,
        region.select_columns(part),
        is_checked,
        copy,
    )
    while (code := call(add_chunk, *arguments)) == pauses.PAUSED:
        pauses.notify_listeners()
    raise_unless_ok(code)
    progress = copy.progress
    return copy.excess, float(progress["size_sum"][0]), int(progress["records"][0])


@by_address
class RejectionFunctions(NamedTuple):
    """Compiled functions of a target that rejection needs.

    If kernels took all functions of a target, the others would be compiled, too.
    """

    loss_value: Any
    regularizer_value: Any
    contains: Any

    @classmethod
    def of_target(cls, target: Gibbs) -> "RejectionFunctions":
        """Return the functions of a target, compiled or loaded at first use."""
        return cls(
            target.problem.loss.value_pointer,
            pointer(target.regularizer.value_piece, REG_VALUE),
            pointer(target.domain.contains_piece, CONTAINS),
        )


@by_address
class DrawLimits(NamedTuple):
    """Sizes and limits of a draw."""

    size: int  # proposals of a block
    group: int  # candidates of a group
    proposals: float  # limit of proposals
    records: float  # limit of records read
    until: int = UNTIL.point  # code in `CallEnd`
    is_checked: bool = True  # whether a negative excess is an error


@kernel
def draw(frame, pieces, chunk, proposal, limits, rng, theta, work):
    """Fill theta with the first accepted candidate, or end before. Return a code.

    The chunk holds all records, or none if Python supplies them. Called again after a
    pause, or after `CODE` has asked for proposals or records, it continues.
    """
    progress = work.progress[0]
    while True:
        if (
            not progress.has_proposals
            and progress.group_start >= progress.num_candidates
        ):
            if not progress.proposals < limits.proposals:
                return CODE.out_of_patience
            if proposal.root.shape[0] == 0:
                return CODE.needs_proposals
            propose(proposal, rng, work.proposed, work.costs)
            progress.has_proposals, progress.num_proposed = True, limits.size
            progress.proposals += limits.size
        if limits.until == UNTIL.proposals:
            return OK
        if progress.has_proposals:
            if select_candidates(frame, pieces, rng, work) == pauses.PAUSED:
                return pauses.PAUSED
        if limits.until == UNTIL.candidates:
            return OK
        while progress.group_start < progress.num_candidates:
            first = progress.group_start
            stop = min(first + limits.group, progress.num_candidates)
            code = OK
            if progress.stage == STAGE.new:
                code = begin_group(frame, pieces, first, stop, work)
            if code == OK and progress.stage == STAGE.begun and progress.num_active > 0:
                if chunk.data.num_records == 0:
                    return CODE.needs_records
                is_checked = limits.is_checked
                code = add_chunk(frame, pieces.loss_value, chunk, is_checked, work)
            if code != OK:
                return code
            progress.group_start, progress.stage = stop, STAGE.new
            progress.candidates += stop - first
            if progress.records > limits.records:
                return CODE.out_of_work
            for i in range(first, stop):
                if work.excess[i] <= work.thresholds[i]:
                    for j in range(theta.shape[0]):
                        theta[j] = frame.point[j] + work.moves[i, j]
                    return OK
        if pauses.is_due(work.control[0]):
            return pauses.PAUSED


@kernel
def reset(progress):
    """Prepare for the next draw. The number of rows stays."""
    progress.has_proposals = False
    progress.num_proposed = progress.next_proposal = progress.num_candidates = 0
    progress.group_start = progress.stage = progress.next_record = 0
    progress.num_active = progress.proposals = 0
    progress.candidates = progress.records = 0
    progress.size_sum = 0.0


@kernel
def draw_many(arguments, grid, project, memory, words, rng, thetas, work):
    """Fill a row of thetas, on the grid, for the stream of each row of seed words.

    ``arguments`` are the first ones of `draw`. A row whose draw has no point stays as
    it is.
    """
    frame, pieces, chunk, proposal, limits = arguments
    progress = work.progress[0]
    while progress.rows_done < thetas.shape[0]:
        i = progress.rows_done
        if progress.proposals == 0:
            set_state(memory, words[i])
        code = draw(frame, pieces, chunk, proposal, limits, rng, work.point, work)
        if code == pauses.PAUSED:
            return code
        if code == OK:
            go_inside(
                pieces.contains,
                project,
                grid,
                nearest(work.point, grid.step),
                thetas[i],
            )
        reset(progress)
        progress.rows_done += 1
    return OK


@kernel
def fill_inside(frame, pieces, points, inside):
    """Fill inside with whether the domain contains each row."""
    out = np.empty(1)
    for i in range(points.shape[0]):
        out[0] = np.nan
        pieces.contains(frame.body, points[i], out)
        inside[i] = out[0] == 1.0
