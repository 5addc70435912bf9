# mypy: allow-untyped-defs
"""Tries of a rejection, compiled: proposals, the excess of each, and a whole draw.

A kernel that may run for long returns `PAUSED` between blocks of records, and its next
call goes on there: when it pauses can change no draw.
"""

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array, Ints, RecordArray
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
from dpsample.targets.gibbs import Gibbs, as_kernel_array
from dpsample.targets.grid import go_inside, nearest

# Numbers of a block of margins: records times tries; its records, at least and at most.
BLOCK_NUMBERS, LEAST_RECORDS, MOST_RECORDS = 2**17, 256, 2048
MAX_BLOCK = 4096  # tries of a draw that are proposed together
BLOCK_PRODUCTS = 10**8  # of entries, in a block
# Rounding of the energies, relative to the sum of their sizes.
ROUNDING = 1e-12
# Why a draw has no point yet, beside the codes of `samplers.errors`.
OUT_OF_PATIENCE, OUT_OF_WORK, WANTS_PROPOSALS, WANTS_RECORDS = range(50, 54)


@by_address
class LocalFrame(NamedTuple):
    """Mode, region, domain and regularizer as kernels see them."""

    point: Array  # (dim,): x0
    basis: Array  # (dim, m)
    body: Body
    roots: Array  # (num_ellipsoids, m, m)
    radii: Array  # (num_ellipsoids,)
    has_slabs: bool
    slack: float
    per_record: float  # k / num_records
    weight: float  # k mu
    regularizer: RegularizerParams
    is_curved: bool  # whether the regularizer is above its quadratic at x0:
    base: float  # its value, slope and least curvature there
    pull: Array
    bend: float

    @classmethod
    def of(cls, target: Gibbs, mode: Mode, region: Region) -> "LocalFrame":
        """Frame of a region."""
        least, most = target.curvature
        base, pull = target._evaluate_regularizer(mode.point)
        rank, ellipsoids = mode.basis.shape[1], region.ellipsoids
        roots = np.reshape([e.root for e in ellipsoids], (len(ellipsoids), rank, rank))
        return cls(
            point=as_kernel_array(mode.point),
            basis=as_kernel_array(mode.basis),
            body=target.geometry.body,
            roots=as_kernel_array(roots),
            radii=np.array([each.radius for each in ellipsoids]),
            has_slabs=bool(region.has_slabs),
            slack=float(region.slack),
            per_record=target.k / target.storage.num_records,
            weight=target.k * target.mu,
            regularizer=target.regularizer_params,
            is_curved=bool(least < most),
            base=base,
            pull=pull,
            bend=float(least),
        )


@by_address
class TryRoom(NamedTuple):
    """Room for the tries of a block, and how far the work on them is."""

    vectors: Array  # (size, m)
    budgets: Array  # (size,): what the excess may be
    excess: Array  # (size,)
    moves: Array  # (size, dim)
    alive: Ints  # (size,)
    point: Array  # (dim,)
    out: Array  # (2,)
    progress: Array  # see below
    control: RecordArray  # when to return to Python, see `core.pauses`
    proposed: Array  # (size, m)
    costs: Array  # (size,)


# Entries of ``progress``: what is kept in a pause (whether proposals wait to be looked
# at and how many, the next of them, tries kept of the block, the first one of the group
# and its stage, the next record, tries alive, sizes so far), and counts of the draw.
IS_GIVEN, GIVEN, NEXT, KEPT, FIRST, STAGE, RECORD, ALIVE, SIZE = range(9)
PROPOSALS, ASKED, RECORDS, DRAWN = range(9, 13)
# Stages of a group of tries.
NEW, BEGUN, DONE = range(3)
# Where a call of `draw` ends: as soon as there are proposals and their costs, or the
# candidates among them, or a point.
AT_PROPOSALS, AT_CANDIDATES, AT_POINT = range(3)


def most_tries(rank: int) -> int:
    """Return the tries of a block, whose products with a matrix take some 20 ms."""
    return min(max(BLOCK_PRODUCTS // rank**2, 1), MAX_BLOCK)


def new_tries(size: int, rank: int, dim: int) -> TryRoom:
    """Room for blocks of at most ``size`` tries."""
    return TryRoom(
        vectors=np.empty((size, rank)),
        budgets=np.empty(size),
        excess=np.empty(size),
        moves=np.empty((size, dim)),
        alive=np.empty(size, dtype=np.int64),
        point=np.empty(dim),
        out=np.empty(2),
        progress=np.zeros(DRAWN + 1),
        control=pauses.new_control(),
        proposed=np.empty((size, rank)),
        costs=np.empty(size),
    )


@kernel
def records_of_block(tries):
    """Return how many records so many tries ask together."""
    return max(LEAST_RECORDS, min(MOST_RECORDS, BLOCK_NUMBERS // max(tries, 1)))


@kernel
def is_in_region(frame, v, along):
    """Whether v is in all ellipsoids; ``along`` is room for its products."""
    rank = v.shape[0]
    for e in range(frame.radii.shape[0]):
        square = 0.0
        for j in range(rank):
            along[j] = 0.0
        for m in range(rank):  # in the order of memory
            for j in range(m + 1):
                along[j] += v[m] * frame.roots[e, m, j]
        for j in range(rank):
            square += along[j] * along[j]
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
def keep(frame, pieces, rng, tries):
    """Keep the proposals that are in region and domain, and count them; a code.

    Their cost is below an exponential, of which the excess may have the rest.
    """
    progress, vectors = tries.progress, tries.proposed
    count = int(progress[GIVEN])
    if progress[NEXT] == 0.0:
        for i in range(count):  # in the order of arrays
            tries.budgets[i] = rng.standard_exponential() - tries.costs[i]
        progress[KEPT] = 0.0
    begin, kept = int(progress[NEXT]), int(progress[KEPT])
    for i in range(begin, count):
        if i > begin and pauses.is_due(tries.control[0]):
            progress[NEXT], progress[KEPT] = i, kept
            return pauses.PAUSED
        if not tries.budgets[i] >= 0.0:
            continue
        if not is_in_region(frame, vectors[i], tries.point):
            continue
        move_to(frame, vectors[i], tries.moves[kept])
        for j in range(tries.point.shape[0]):
            tries.point[j] = frame.point[j] + tries.moves[kept, j]
        tries.out[0] = np.nan
        pieces.contains(frame.body, tries.point, tries.out)
        if tries.out[0] == 1.0:
            copy_into(vectors[i], tries.vectors[kept])
            tries.budgets[kept] = tries.budgets[i]
            kept += 1
    progress[IS_GIVEN], progress[NEXT], progress[KEPT] = 0.0, 0.0, kept
    progress[FIRST], progress[STAGE] = 0.0, NEW
    return OK


@kernel
def start_of(frame, pieces, v, move, point, out):
    """D without its records: of the regularizer, and of what a root was lowered by."""
    above = 0.0
    if frame.is_curved:
        out[0], square = np.nan, 0.0
        for j in range(move.shape[0]):
            point[j] = frame.point[j] + move[j]
        pieces.regularizer_value(frame.regularizer, point, out)
        above = out[0] - frame.base
        for j in range(move.shape[0]):
            above -= move[j] * frame.pull[j]
            square += move[j] * move[j]
        above = frame.weight * max(above - 0.5 * frame.bend * square, 0.0)
    square = 0.0
    for j in range(v.shape[0]):
        square += v[j] * v[j]
    return above + 0.5 * frame.slack * square


@kernel
def begin(frame, pieces, first, stop, tries):
    """Begin the excess of some tries: without the records."""
    progress = tries.progress
    progress[STAGE], progress[RECORD] = BEGUN, 0.0
    progress[ALIVE] = progress[SIZE] = 0.0
    for i in range(first, stop):
        v, move = tries.vectors[i], tries.moves[i]
        tries.excess[i] = start_of(frame, pieces, v, move, tries.point, tries.out)
        tries.alive[int(progress[ALIVE])] = i
        progress[ALIVE] += 1.0
    return count_alive(tries)


@kernel
def count_alive(tries):
    """Drop tries whose excess is above the budget, and make it infinite; a code."""
    count = 0
    for a in range(int(tries.progress[ALIVE])):
        i = tries.alive[a]
        if np.isnan(tries.excess[i]):
            return FUNCTION_FAILED
        if tries.excess[i] <= tries.budgets[i]:
            tries.alive[count] = i
            count += 1
        else:
            tries.excess[i] = np.inf
    tries.progress[ALIVE] = count
    return OK


@kernel(fastmath={"reassoc"})
def size_of(values, slopes, weights, margins, farthest):
    """Sum of the sizes of what is compared, where margins move so far at most."""
    result = 0.0
    for r in range(values.shape[0]):
        reach = 2.0 * farthest + abs(margins[r])
        steepest = abs(slopes[r]) + weights[r] * farthest
        result += 2.0 * abs(values[r]) + steepest * reach
    return result


@kernel
def add_records(frame, loss_value, chunk, start, stop, is_checked, tries):
    """Add some records' terms to the excess of tries that are alive; a code."""
    data, progress, excess = chunk.data, tries.progress, tries.excess
    alive, size = int(progress[ALIVE]), stop - start
    moved = np.empty((alive, size))
    if data.dense.shape[0] > 0:
        moves = np.empty((alive, data.dim))
        for a in range(alive):
            copy_into(tries.moves[tries.alive[a]], moves[a])
        np.dot(moves, data.dense[start:stop].T, moved)
    else:
        for a in range(alive):
            products_of(data, tries.moves[tries.alive[a]], start, stop, moved[a])
    there, values, farthest = np.empty(size), chunk.values[start:stop], 0.0
    margins, slopes = chunk.margins[start:stop], chunk.slopes[start:stop]
    weights, response = chunk.weights[start:stop], data.response[start:stop]
    for a in range(alive):
        i, t = tries.alive[a], moved[a]
        for r in range(size):
            there[r] = margins[r] + t[r]
        for r in range(size):
            farthest = max(farthest, abs(t[r]))
        tries.out[0] = np.nan
        loss_value(data.loss_params, there, response, tries.out)
        for r in range(size):
            bent = slopes[r] + 0.5 * weights[r] * t[r]
            there[r] = there[r] - values[r] - bent * t[r]
        if np.isnan(tries.out[0]):
            excess[i] = np.nan
        excess[i] += frame.per_record * total(there)
        if frame.has_slabs:
            for r in range(size):
                if t[r] < chunk.lower[start + r] or t[r] > chunk.upper[start + r]:
                    excess[i] = np.inf
    sizes = size_of(values, slopes, weights, margins, farthest)
    progress[SIZE] += frame.per_record * sizes
    for a in range(alive):
        if is_checked and excess[tries.alive[a]] < -ROUNDING * (1.0 + progress[SIZE]):
            return BOUND_VIOLATED
    return count_alive(tries)


@kernel
def ask(frame, loss_value, chunk, is_checked, tries):
    """Add a chunk of records to the excess D of tries, infinite above the budget.

    Returns a code. Where D >= 0 ``is_checked`` a user's loss may be found to break its
    word.
    """
    progress, num_records = tries.progress, chunk.data.num_records
    while progress[ALIVE] > 0.0 and progress[RECORD] < num_records:
        start, alive = int(progress[RECORD]), progress[ALIVE]
        end = min(num_records, start + records_of_block(int(alive)))
        code = add_records(frame, loss_value, chunk, start, end, is_checked, tries)
        if code != OK:
            return code
        progress[RECORDS] += alive * (end - start)
        progress[RECORD] = end
        if pauses.is_due(tries.control[0]) and end < num_records:
            return pauses.PAUSED
    progress[RECORD] = 0.0
    return OK


def call(function: Kernel[..., int], *arguments: Any) -> int:
    """Call a kernel whose last argument are its tries, under the timer."""
    control = arguments[-1].control
    return int(pauses.call(control, jit.call, function, *arguments))


def ask_all(
    target: Gibbs,
    mode: Mode,
    region: Region,
    frame: LocalFrame,
    tries: TryRoom,
    *,
    is_checked: bool,
) -> None:
    """Ask all records about the tries that are alive, chunk by chunk.

    Parts that are read side by side begin with the same sums.
    """
    progress, sums = tries.progress, [SIZE, RECORDS]
    before, counted = tries.excess.copy(), progress[sums]
    given = region, frame, is_checked, tries
    with closing(columns.over(target, mode, _asked, *given)) as passes:
        while progress[ALIVE] > 0.0:
            found = next(passes, None)
            if found is None:
                break
            excess, after = found
            if target.storage.is_parallel:
                alive = np.isfinite(before)
                excess[alive] += tries.excess[alive] - before[alive]
                after += progress[sums] - counted
            tries.excess[:], progress[sums] = excess, after
            raise_unless_ok(call(count_alive, tries))
    progress[STAGE] = DONE


def _asked(
    part: RecordColumns,
    region: Region,
    frame: LocalFrame,
    is_checked: bool,
    tries: TryRoom,
) -> tuple[Array, Array]:
    """Excess of tries, and sums of their progress, after a chunk of records."""
    copied = {n: getattr(tries, n).copy() for n in ("excess", "alive", "progress")}
    own = tries._replace(**copied, out=np.empty(2), control=pauses.new_control())
    given = (
        frame,
        part.scene.loss.value_pointer,
        region.select_columns(part),
        is_checked,
        own,
    )
    while (code := call(ask, *given)) == pauses.PAUSED:
        pauses.notify_listeners()
    raise_unless_ok(code)
    return own.excess, own.progress[[SIZE, RECORDS]]


@by_address
class TryPieces(NamedTuple):
    """C functions of a target that tries need: the others would be compiled, too."""

    loss_value: Any
    regularizer_value: Any
    contains: Any

    @classmethod
    def of(cls, target: Gibbs) -> "TryPieces":
        """C functions of a target, compiled or loaded at first use."""
        return cls(
            target.problem.loss.value_pointer,
            pointer(target.regularizer.value_piece, REG_VALUE),
            pointer(target.problem.domain.contains_piece, CONTAINS),
        )


@by_address
class DrawLimits(NamedTuple):
    """How a draw goes about it."""

    size: int  # tries of a block
    group: int  # tries that ask the records together
    proposals: float  # tries after which it gives up
    records: float  # records that it may read
    until: int = AT_POINT  # where it ends
    is_checked: bool = True  # whether a user's loss may be found to break its word


@kernel
def draw(frame, pieces, chunk, proposal, limits, rng, theta, tries):
    """Fill theta with the first accepted try, or end before; return a code.

    The chunk holds all records, or none if they are asked by Python.
    """
    progress = tries.progress
    while True:
        if progress[IS_GIVEN] == 0.0 and progress[FIRST] >= progress[KEPT]:
            if not progress[PROPOSALS] < limits.proposals:
                return OUT_OF_PATIENCE
            if proposal.root.shape[0] == 0:
                return WANTS_PROPOSALS
            propose(proposal, rng, tries.proposed, tries.costs)
            progress[IS_GIVEN], progress[GIVEN] = 1.0, limits.size
            progress[PROPOSALS] += limits.size
        if limits.until == AT_PROPOSALS:
            return OK
        if progress[IS_GIVEN] == 1.0:
            if keep(frame, pieces, rng, tries) == pauses.PAUSED:
                return pauses.PAUSED
        if limits.until == AT_CANDIDATES:
            return OK
        while progress[FIRST] < progress[KEPT]:
            first = int(progress[FIRST])
            stop = min(first + limits.group, int(progress[KEPT]))
            code = OK
            if progress[STAGE] == NEW:
                code = begin(frame, pieces, first, stop, tries)
            if code == OK and progress[STAGE] == BEGUN and progress[ALIVE] > 0.0:
                if chunk.data.num_records == 0:
                    return WANTS_RECORDS
                is_checked = limits.is_checked
                code = ask(frame, pieces.loss_value, chunk, is_checked, tries)
            if code != OK:
                return code
            progress[FIRST], progress[STAGE] = stop, NEW
            progress[ASKED] += stop - first
            if progress[RECORDS] > limits.records:
                return OUT_OF_WORK
            for i in range(first, stop):
                if tries.excess[i] <= tries.budgets[i]:
                    for j in range(theta.shape[0]):
                        theta[j] = frame.point[j] + tries.moves[i, j]
                    return OK
        if pauses.is_due(tries.control[0]):
            return pauses.PAUSED


@kernel
def draw_each(law, grid, project, memory, words, rng, thetas, tries):
    """Fill a row of thetas, on the grid, for the stream of each row of words.

    The law is the first arguments of `draw`. A row whose draw has no point is left:
    what becomes of it is not decided here.
    """
    frame, pieces, chunk, proposal, limits = law
    progress = tries.progress
    while progress[DRAWN] < thetas.shape[0]:
        i = int(progress[DRAWN])
        if progress[PROPOSALS] == 0.0:
            set_state(memory, words[i])
        code = draw(frame, pieces, chunk, proposal, limits, rng, tries.point, tries)
        if code == pauses.PAUSED:
            return code
        if code == OK:
            go_inside(
                pieces.contains,
                project,
                grid,
                nearest(tries.point, grid.step),
                thetas[i],
            )
        progress[:DRAWN] = 0.0
        progress[DRAWN] += 1.0
    return OK


@kernel
def fill_inside(frame, pieces, points, inside):
    """Fill inside with whether the domain contains each row."""
    out = np.empty(1)
    for i in range(points.shape[0]):
        out[0] = np.nan
        pieces.contains(frame.body, points[i], out)
        inside[i] = out[0] == 1.0
