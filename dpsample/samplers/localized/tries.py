# mypy: allow-untyped-defs
"""Tries of a rejection, compiled: proposals, the excess of each, and a whole draw.

A kernel that may run for long returns `PAUSED` between blocks of records, and its next
call goes on there: when it pauses can change no draw.
"""

from typing import Any, NamedTuple

import numpy as np

from dpsample.core import entries, pauses
from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import Kernel, kernel
from dpsample.core.streams import start
from dpsample.losses.loss import total
from dpsample.numerics.stable import HALF_LOG_2PI, log_ndtr
from dpsample.numerics.triangular import solve_lower, solve_upper
from dpsample.problem.records import products_of
from dpsample.samplers.errors import BOUND_VIOLATED, OK, PIECE_FAILED
from dpsample.targets.grid import go_inside, nearest

# Numbers of a block of margins: records times tries; its records, at least and at most.
BLOCK_NUMBERS, LEAST_RECORDS, MOST_RECORDS = 2**17, 256, 2048
# Rounding of the energies, relative to the sum of their sizes.
ROUNDING = 1e-12
# Tries for the choice of a share.
NUM_TRIALS = 256
# Bound above which a normal's tail is drawn from an exponential.
FAR = 10.0
# Why a draw has no point yet, beside the codes of `samplers.errors`.
OUT_OF_PATIENCE, OUT_OF_WORK, WANTS_PROPOSALS = 50, 51, 52


class Proposal(NamedTuple):
    """Gaussian, on a halfspace if x0 is on a sphere: see `proposals`."""

    root: Array  # (m, m): lower Cholesky factor of the precision
    mean: Array  # (m,)
    is_held: bool
    inward: Array  # (m,): direction along which the halfspace's tail is drawn
    dual: Array  # (m,)
    rate: float
    start: float
    held: float  # cost of each unit of sigma
    is_in_ball: bool
    outward: Array  # (m,): x0 - center
    depth: float  # R^2 - ||x0 - center||^2


class LocalFrame(NamedTuple):
    """Mode and region as kernels see them."""

    point: Array  # (dim,): x0
    basis: Array  # (dim, m)
    margins: Array  # (num_records,) at x0, with the loss and its slope there
    values: Array
    slopes: Array
    sizes: Array  # (num_records + 1,): sums of sizes that do not depend on a try,
    steep: Array  # and of those that grow with it, over the records before each
    weights: Array  # (num_records,), and the slabs
    lower: Array
    upper: Array
    has_slabs: bool
    slack: float
    roots: Array  # (num_ellipsoids, m, m)
    radii: Array  # (num_ellipsoids,)
    is_curved: bool  # whether the regularizer is above its quadratic at x0:
    base: float  # its value, slope and least curvature there
    pull: Array
    bend: float


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
    control: Array  # when to return to Python, see `core.pauses`


# Entries of ``progress``: what is kept in a pause (tries of the block, the first one of
# the group, the next record, tries alive, sizes so far), and counts of the draw.
KEPT, FIRST, RECORD, ALIVE, SIZE, PROPOSALS, ASKED, RECORDS, DRAWN = range(9)


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
        progress=np.zeros(9),
        control=pauses.new_control(),
    )


@kernel
def records_of_block(tries):
    """Return how many records so many tries ask together."""
    return max(LEAST_RECORDS, min(MOST_RECORDS, BLOCK_NUMBERS // max(tries, 1)))


@kernel
def log_quantile(y):
    """Return x with log Phi(x) = y < 0, by Halley's method."""
    if y > -0.5:  # by the other tail, for its digits
        return -log_lower_quantile(np.log(-np.expm1(y)))
    return log_lower_quantile(y)


@kernel
def log_lower_quantile(y):
    """Return x with log Phi(x) = y <= -1/2."""
    if not y > -np.inf:
        return y
    x = 1.9 + 1.55 * y + 0.13 * y * y if y > -3.0 else 0.0
    if y <= -3.0:  # Phi(x) is nearly phi(x) / -x
        square = -2.0 * y - np.log(-2.0 * y) - 2.0 * HALF_LOG_2PI
        x = -np.sqrt(max(square, 1.0))
    for _ in range(20):
        value = log_ndtr(x)
        hazard = np.exp(-0.5 * x * x - HALF_LOG_2PI - value)
        gap = value - y
        step = gap / (hazard + 0.5 * gap * (x + hazard))
        x -= step
        if not abs(step) > 1e-5 * (1.0 + abs(x)):  # the next one is of its cube
            break
    return x


@kernel
def tail_excess(low, rng, above):
    """Fill above with Z - low for standard normals Z above low, to full accuracy.

    In the order of arrays: what is refused is drawn again after all others.
    """
    left, last, log_mass = 0, np.nan, 0.0
    again = np.empty(above.shape[0], np.int64)
    for i in range(above.shape[0]):
        if low[i] != last:
            last, log_mass = low[i], log_ndtr(-low[i])
        log_tail = log_mass - rng.standard_exponential()
        if low[i] > FAR:
            again[left] = i
            left += 1
        else:
            above[i] = -log_quantile(log_tail) - low[i]
            above[i] = above[i] if above[i] > 0.0 else 0.0
    while left > 0:  # Exp(low), kept with probability exp(-t^2 / 2)
        for j in range(left):
            above[again[j]] = rng.standard_exponential() / low[again[j]]
        count = 0
        for j in range(left):
            t = above[again[j]]
            if rng.standard_exponential() < 0.5 * t * t:
                again[count] = again[j]
                count += 1
        left = count


@kernel
def propose(proposal, rng, vectors, costs):
    """Fill rows with proposals v, and the cost of each: infinite outside of a ball."""
    size, rank = vectors.shape
    for i in range(size):
        for j in range(rank):
            vectors[i, j] = rng.standard_normal()
    for i in range(size):
        solve_upper(proposal.root, vectors[i])
        for j in range(rank):
            vectors[i, j] += proposal.mean[j]
    costs[:] = 0.0
    if proposal.is_held:
        # tau >= -start with density exp(-rate tau - tau^2 / 2).
        tail_excess(np.full(size, proposal.rate - proposal.start), rng, costs)
        for i in range(size):
            move = costs[i] - proposal.start
            for j in range(rank):
                move -= vectors[i, j] * proposal.dual[j]
            for j in range(rank):
                vectors[i, j] += move * proposal.inward[j]
    if proposal.is_in_ball:
        for i in range(size):
            # Sigma = R^2 - ||z0 + v||^2, from differences of R^2 and ||z0||^2.
            sigma = proposal.depth
            for j in range(rank):
                sigma -= (2.0 * proposal.outward[j] + vectors[i, j]) * vectors[i, j]
            costs[i] = proposal.held * sigma if sigma >= 0.0 else np.inf


@kernel
def on_sphere(free, multiplier, shortfall, share):
    """Return the proposal of x0 on a sphere, of which ``free.mean`` is - e."""
    precision, rank = np.dot(free.root, free.root.T), free.mean.shape[0]
    for j in range(rank):
        precision[j, j] += share * multiplier
    root, mean, inward = np.linalg.cholesky(precision), free.mean.copy(), np.empty(rank)
    solve_lower(root, mean)
    solve_upper(root, mean)
    inward[:] = -multiplier * free.outward
    solve_lower(root, inward)
    solve_upper(root, inward)
    square, along = 0.0, 0.0
    for j in range(rank):
        square -= multiplier * free.outward[j] * inward[j]
    size = np.sqrt(square)  # of the pull
    for j in range(rank):
        inward[j] /= size
        along -= free.mean[j] * inward[j]
    return Proposal(
        root,
        mean,
        True,
        inward,
        np.dot(precision, inward),
        (1.0 - share) * size + along,
        shortfall / size,  # of the halfspace, which holds the ball
        0.5 * share * multiplier,
        True,
        free.outward,
        free.depth,
    )


@kernel
def choose_share(free, multiplier, shortfall, shares, rng, state, control):
    """Find the share whose proposals most often need a look at the records.

    ``state`` holds the next one, the best so far and its count.
    """
    vectors = np.empty((NUM_TRIALS, free.mean.shape[0]))
    costs = np.empty(NUM_TRIALS)
    while state[0] < shares.shape[0]:
        share = shares[int(state[0])]
        propose(on_sphere(free, multiplier, shortfall, share), rng, vectors, costs)
        count = 0.0
        for i in range(NUM_TRIALS):
            if costs[i] <= rng.standard_exponential():
                count += 1.0
        if count > state[2]:
            state[1], state[2] = state[0], count
        state[0] += 1.0
        if pauses.is_due(control):
            break


@kernel
def is_in_region(frame, v):
    """Whether v is in all ellipsoids."""
    for e in range(frame.radii.shape[0]):
        square = 0.0
        for j in range(v.shape[0]):
            along = 0.0
            for m in range(v.shape[0]):
                along += v[m] * frame.roots[e, m, j]
            square += along * along
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
def keep(target, pieces, frame, rng, vectors, costs, size, tries):
    """Keep proposals, of ``size`` tries, in region and domain, and count both.

    Their cost is below an exponential, of which the excess may have the rest.
    """
    kept, progress = 0, tries.progress
    for i in range(vectors.shape[0]):  # in the order of arrays
        tries.budgets[i] = rng.standard_exponential() - costs[i]
    for i in range(vectors.shape[0]):
        if not tries.budgets[i] >= 0.0 or not is_in_region(frame, vectors[i]):
            continue
        move_to(frame, vectors[i], tries.moves[kept])
        for j in range(tries.point.shape[0]):
            tries.point[j] = frame.point[j] + tries.moves[kept, j]
        tries.out[0] = np.nan
        pieces.contains(target.body, tries.point, tries.out)
        if tries.out[0] == 1.0:
            tries.vectors[kept] = vectors[i]
            tries.budgets[kept] = tries.budgets[i]
            kept += 1
    progress[KEPT], progress[FIRST] = kept, 0.0
    progress[PROPOSALS] += size
    return OK


@kernel
def start_of(target, pieces, frame, v, move, point, out):
    """D without its records: of the regularizer, and of what a root was lowered by."""
    above = 0.0
    if frame.is_curved:
        out[0], square = np.nan, 0.0
        for j in range(move.shape[0]):
            point[j] = frame.point[j] + move[j]
        pieces.regularizer_value(target.regularizer, point, out)
        above = out[0] - frame.base
        for j in range(move.shape[0]):
            above -= move[j] * frame.pull[j]
            square += move[j] * move[j]
        above = target.k * target.mu * max(above - 0.5 * frame.bend * square, 0.0)
    square = 0.0
    for j in range(v.shape[0]):
        square += v[j] * v[j]
    return above + 0.5 * frame.slack * square


@kernel
def add_records(target, pieces, frame, tries, start, stop, is_checked):
    """Add some records' terms to the excess of tries that are alive; a code."""
    data, progress, excess = target.data, tries.progress, tries.excess
    alive, size = int(progress[ALIVE]), stop - start
    moved = np.empty((alive, size))
    if data.dense.shape[0] > 0:
        moves = np.empty((alive, data.dim))
        for a in range(alive):
            moves[a] = tries.moves[tries.alive[a]]
        np.dot(moves, data.dense[start:stop].T, moved)
    else:
        for a in range(alive):
            products_of(data, tries.moves[tries.alive[a]], start, stop, moved[a])
    per_record, farthest = target.k / data.num_records, 0.0
    there, values = np.empty(size), frame.values[start:stop]
    margins, slopes = frame.margins[start:stop], frame.slopes[start:stop]
    weights = frame.weights[start:stop]
    for a in range(alive):
        i, t = tries.alive[a], moved[a]
        for r in range(size):
            there[r] = margins[r] + t[r]
        for r in range(size):
            farthest = max(farthest, abs(t[r]))
        tries.out[0] = np.nan
        response = data.response[start:stop]
        pieces.loss_value(data.loss_params, there, response, tries.out)
        for r in range(size):
            bent = slopes[r] + 0.5 * weights[r] * t[r]
            there[r] = there[r] - values[r] - bent * t[r]
        if np.isnan(tries.out[0]):
            excess[i] = np.nan
        excess[i] += per_record * total(there)
        if frame.has_slabs:
            for r in range(size):
                if t[r] < frame.lower[start + r] or t[r] > frame.upper[start + r]:
                    excess[i] = np.inf
    progress[SIZE] += per_record * (frame.sizes[stop] - frame.sizes[start])
    steep = frame.steep[stop] - frame.steep[start]
    progress[SIZE] += per_record * 2.0 * farthest * steep
    least, count = -ROUNDING * (1.0 + progress[SIZE]), 0
    for a in range(alive):
        i = tries.alive[a]
        if np.isnan(excess[i]):
            return PIECE_FAILED
        if is_checked and excess[i] < least:
            return BOUND_VIOLATED
        if excess[i] <= tries.budgets[i]:
            tries.alive[count] = i
            count += 1
        else:
            excess[i] = np.inf
    progress[ALIVE] = count
    return OK


@kernel
def ask(target, pieces, frame, first, stop, is_checked, tries):
    """Fill the excess D of some tries, infinite where it is above the budget.

    Returns a code. Where D >= 0 ``is_checked`` a user's loss may be found to break its
    word.
    """
    progress, num_records = tries.progress, target.data.num_records
    if progress[RECORD] == 0.0:
        progress[ALIVE] = progress[SIZE] = 0.0
        for i in range(first, stop):
            tries.excess[i] = start_of(
                target,
                pieces,
                frame,
                tries.vectors[i],
                tries.moves[i],
                tries.point,
                tries.out,
            )
            if tries.excess[i] <= tries.budgets[i]:
                tries.alive[int(progress[ALIVE])] = i
                progress[ALIVE] += 1.0
            else:
                tries.excess[i] = np.inf
    while progress[ALIVE] > 0.0 and progress[RECORD] < num_records:
        start, alive = int(progress[RECORD]), progress[ALIVE]
        end = min(num_records, start + records_of_block(int(alive)))
        code = add_records(target, pieces, frame, tries, start, end, is_checked)
        if code != OK:
            return code
        progress[RECORDS] += alive * (end - start)
        progress[RECORD] = end
        if pauses.is_due(tries.control) and end < num_records:
            return pauses.PAUSED
    progress[RECORD] = 0.0
    return OK


def call(function: Kernel[..., int], *arguments: Any) -> int:
    """Call a kernel whose last argument are its tries, under the timer."""
    control = arguments[-1].control
    return int(pauses.call(control, entries.call, function, *arguments))


class DrawLimits(NamedTuple):
    """How a draw goes about it."""

    size: int  # tries of a block
    group: int  # tries that ask the records together
    proposals: float  # tries after which it gives up
    records: float  # records that it may read


@kernel
def draw(target, pieces, frame, proposal, limits, rng, theta, tries):
    """Fill theta with the first accepted try; return a code."""
    progress = tries.progress
    while True:
        if progress[FIRST] >= progress[KEPT]:
            if not progress[PROPOSALS] < limits.proposals:
                return OUT_OF_PATIENCE
            if proposal.root.shape[0] == 0:
                return WANTS_PROPOSALS
            vectors = np.empty((limits.size, frame.basis.shape[1]))
            costs = np.empty(limits.size)
            propose(proposal, rng, vectors, costs)
            keep(target, pieces, frame, rng, vectors, costs, limits.size, tries)
        while progress[FIRST] < progress[KEPT]:
            first = int(progress[FIRST])
            stop = min(first + limits.group, int(progress[KEPT]))
            code = ask(target, pieces, frame, first, stop, True, tries)
            if code != OK:
                return code
            progress[FIRST] = stop
            progress[ASKED] += stop - first
            if progress[RECORDS] > limits.records:
                return OUT_OF_WORK
            for i in range(first, stop):
                if tries.excess[i] <= tries.budgets[i]:
                    for j in range(theta.shape[0]):
                        theta[j] = frame.point[j] + tries.moves[i, j]
                    return OK
        if pauses.is_due(tries.control):
            return pauses.PAUSED


@kernel
def draw_each(
    target, pieces, frame, proposal, limits, grid, memory, words, rng, thetas, tries
):
    """Fill a row of thetas, on the grid, for the stream of each row of words.

    A row whose draw has no point is left: what becomes of it is not decided here.
    """
    progress = tries.progress
    while progress[DRAWN] < thetas.shape[0]:
        i = int(progress[DRAWN])
        if progress[PROPOSALS] == 0.0:
            start(memory, words[i])
        code = draw(target, pieces, frame, proposal, limits, rng, tries.point, tries)
        if code == pauses.PAUSED:
            return code
        if code == OK:
            go_inside(
                pieces.contains,
                pieces.project,
                grid,
                nearest(tries.point, grid.step),
                thetas[i],
            )
        progress[:DRAWN] = 0.0
        progress[DRAWN] += 1.0
    return OK
