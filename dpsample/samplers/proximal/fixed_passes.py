# mypy: allow-untyped-defs
"""Fixed passes: kernel of the constant-time draw that `constant_time` plans and proves.

Letters and parts of the proof refer to `constant_time`. A *step* of the chain from
x draws y, moves the tangent point w by J gradient steps, and makes proposals until one
is accepted, which is the next x. There are T steps.

Every *pass* adds up losses and their gradients at one point, and uses the same number
of random words. The point is w or a proposal. Then all possible next points are
computed, and the bits of *masks* select one of them. A mask is an integer, -1 (all bits
are 1) if its condition is true and 0 if it is false. Branches have public conditions
alone: the kind of loss, and sizes. So the time of a pass does not depend on the values
of the records, as far as arithmetic takes a constant time.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array, Ints, RecordArray, record_dtype
from dpsample.core.jit import kernel
from dpsample.losses import Huber, Logistic, SmoothedHinge
from dpsample.losses.loss import total
from dpsample.numerics.stable import softplus_sigmoid
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.problem.problem import Problem
from dpsample.problem.records import writable
from dpsample.samplers.proximal.constant_time import EDGE, ConstantTime, PublicSizes

# Maximum number of records in a block.
BLOCK = 256
# Multiply-adds of one compiled call, which takes a few milliseconds.
CHUNK = 2_000_000


class FixedPassesVectorRow(NamedTuple):
    """Rows of the vectors of a draw."""

    point: int = 0  # point of the present pass
    tangent: int = 1  # w
    slope: int = 2  # gradient at w
    mean: int = 3  # v
    first: int = 4  # gradient at the center
    gradient: int = 5  # result of the present pass
    noise: int = 6
    answer: int = 7  # last accepted proposal
    axis: int = 8  # unit vector from the center to m


ROW = FixedPassesVectorRow()
# Numbers of the present pass and of the tangent at w.
Sums = record_dtype(
    loss=float,  # sum over the records so far
    tangent_energy=float,  # k F(w)
    lost=float,  # log acceptance that the proposal itself loses, see `_propose`
)
Counts = record_dtype(
    row=int,  # first record that the sums do not include yet
    num_left=int,  # passes of this step whose point is w, 0 if it is a proposal
    num_accepted=int,  # steps of the chain that are completed, -1 before the first pass
    num_proposals=int,
    num_passes=int,
    num_records=int,
    num_words=int,  # random words
)


class Numbers(NamedTuple):
    """Public numbers of a draw.

    Losses other than the logistic are integrals of a clipped linear function of the
    margin, which ``lower`` to ``labels`` describe.
    """

    is_logistic: bool
    lower: float  # bounds of the clipped residual
    upper: float
    scale: float  # factor of the integral
    labels: bool  # responses are labels, otherwise they are subtracted
    weight: float  # k / n
    precision: float  # a
    step: float  # h
    noise: float  # standard deviation of y - x
    descent: float  # length of w's gradient steps after the first
    first: float  # length of the first one
    radius: float
    num_steps: int  # T
    num_gradients: int  # J
    center: Array


class DrawState(NamedTuple):
    """State of a draw."""

    vectors: Array  # (len(ROW), dim)
    sums: RecordArray  # one record of `Sums`
    counts: RecordArray  # one record of `Counts`
    masks: Ints  # (0, -1): the masks of false and of true
    margins: Array  # (block,)
    slopes: Array  # (block,): derivatives of the losses


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def select(mask, a, b):
    """Return a if the mask is -1 and b if it is 0, by their bits.

    Masks are loaded from an array by their condition. If the compiler knew that a mask
    is a condition, it would compile a branch.
    """
    first, second = np.float64(a).view(np.int64), np.float64(b).view(np.int64)
    return np.int64((first & mask) | (second & ~mask)).view(np.float64)


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _fill_margins(rows, start, stop, theta, out):
    """Fill out with the products of rows and theta."""
    for i in range(start, stop):
        s = 0.0
        for j in range(theta.shape[0]):
            s += rows[i, j] * theta[j]
        out[i - start] = s


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _add_rows(rows, start, stop, slopes, out):
    """Add slopes times rows to out."""
    for i in range(start, stop):
        s = slopes[i - start]
        for j in range(out.shape[0]):
            out[j] += s * rows[i, j]


@kernel(counts_references=False)
def _fill_losses(plan, response, start, stop, margins, slopes):
    """Replace margins by losses, and fill slopes, without branches on the records."""
    if plan.is_logistic:
        for i in range(stop - start):
            y = response[start + i]
            value, share = softplus_sigmoid(-y * margins[i])
            margins[i], slopes[i] = value, -y * share
    else:
        # The integral of z, which is t = 1 - y u or the residual t = u - y, clipped at
        # both ends. The comparisons compile to minimum and maximum instructions.
        for i in range(stop - start):
            y = response[start + i]
            sign = -y if plan.labels else 1.0
            t = (1.0 if plan.labels else -y) + sign * margins[i]
            z = plan.lower if t < plan.lower else t
            z = plan.upper if z > plan.upper else z
            margins[i] = plan.scale * z * (t - 0.5 * z)
            slopes[i] = plan.scale * sign * z


@kernel(counts_references=False)
def _pass_over(plan, rows, response, offset, state, stop):
    """Add losses and gradients of the next records at the point to the sums."""
    counts = state.counts[0]
    start = counts.row
    margins, slopes = state.margins[: stop - start], state.slopes[: stop - start]
    _fill_margins(rows, start, stop, state.vectors[ROW.point], margins)
    if offset.shape[0] > 0:
        for i in range(stop - start):
            margins[i] += offset[start + i]
    _fill_losses(plan, response, start, stop, margins, slopes)
    state.sums[0].loss += total(margins)
    _add_rows(rows, start, stop, slopes, state.vectors[ROW.gradient])
    counts.num_records += stop - start
    counts.row = stop


@kernel(counts_references=False)
def _fill_normals(rng, out, counts):
    """Fill with normals, two random words for a pair (Box and Muller 1958).

    A method with rejection would use a number of words that depends on them.
    """
    dim = out.shape[0]
    for j in range(0, dim, 2):
        size = np.sqrt(-2.0 * np.log1p(-rng.random()))
        angle = 2.0 * np.pi * rng.random()
        out[j] = size * np.cos(angle)
        if j + 1 < dim:
            out[j + 1] = size * np.sin(angle)
        counts[0].num_words += 2


@kernel(counts_references=False)
def _distance(point, center):
    """Return the Euclidean distance of two points."""
    square = 0.0
    for j in range(center.shape[0]):
        square += (point[j] - center[j]) ** 2
    return np.sqrt(square)


@kernel(counts_references=False)
def _projection_factor(plan, masks, point):
    """Return the factor of point - center in the projection on the ball."""
    size = _distance(point, plan.center)
    return select(masks[np.int64(size > plan.radius)], plan.radius / size, 1.0)


@kernel(counts_references=False)
def _propose(plan, masks, vectors, spare, out):
    """Fill out with a proposal, by parts 3 and 4 of the proof.

    Part 3 is a Gaussian about m. Part 4 is used if m is near the boundary or outside.
    It draws the depth below the tangent plane at the axis' end, and the position across
    the axis. Return minus the log of the acceptance probability that part 4 has in
    addition. ``spare`` is a standard exponential variable. Both parts are computed, and
    a mask selects one.
    """
    center, noise, axis = plan.center, vectors[ROW.noise], vectors[ROW.axis]
    dim, unit = center.shape[0], 1.0 / np.sqrt(plan.precision)
    for j in range(dim):
        out[j] = vectors[ROW.mean, j] - vectors[ROW.slope, j] / plan.precision
    size = _distance(out, center)
    # At the center the axis is 0 and not NaN.
    inverse = 1.0 / select(masks[np.int64(size > 1e-300)], size, 1.0)
    along = 0.0
    for j in range(dim):
        axis[j] = (out[j] - center[j]) * inverse
        along += axis[j] * noise[j]
    across = 0.0
    for j in range(dim):
        noise[j] -= along * axis[j]
        across += noise[j] * noise[j]
    # D, l, the depth u and the sagitta of the sphere, in units of 1 / sqrt(a).
    beyond = (size - plan.radius) / unit
    rate = 0.5 * (beyond + np.sqrt(beyond * beyond + 4.0))
    depth, bend = spare / rate, 0.5 * across / (size / unit)
    is_edge = masks[np.int64(beyond > -EDGE)]
    lost = 0.5 * (depth - 1.0 / rate) ** 2 + bend * (depth + 0.5 * bend)
    height = select(is_edge, plan.radius - unit * (depth + bend), size + unit * along)
    width = select(is_edge, unit * np.sqrt(plan.radius / size), unit)
    # At the center the axis is 0, and no component of the noise was removed.
    for j in range(dim):
        out[j] = center[j] + height * axis[j] + width * noise[j]
    return select(is_edge, lost, 0.0)


@kernel(counts_references=False)
def _advance(plan, state, rng):
    """End a pass: test a proposal or move w, and select the next point.

    In turn it draws all random numbers, computes masks that say which kind of pass it
    was, keeps the numbers that are new, and computes both the next w and a proposal.
    """
    vectors, sums, counts = state.vectors, state.sums[0], state.counts[0]
    point, gradient, noise = (
        vectors[ROW.point],
        vectors[ROW.gradient],
        vectors[ROW.noise],
    )
    masks, center, dim = state.masks, plan.center, plan.center.shape[0]
    energy = plan.weight * sums.loss
    _fill_normals(rng, noise, state.counts)
    # Exponential variables by inversion, with one random word each.
    threshold, spare = -np.log1p(-rng.random()), -np.log1p(-rng.random())
    counts.num_words += 2
    gap = energy - sums.tangent_energy + sums.lost
    for j in range(dim):
        gradient[j] *= plan.weight
        gap -= vectors[ROW.slope, j] * (point[j] - vectors[ROW.tangent, j])
    # The point was w if passes were left. With one left it was the final w, whose
    # gradient and energy are kept. Otherwise it was a proposal.
    left, is_open = counts.num_left, np.int64(counts.num_accepted < plan.num_steps)
    is_proposal = is_open & np.int64(left == 0)
    is_inside = np.int64(_distance(point, center) <= plan.radius)
    is_accepted = is_proposal & is_inside & np.int64(gap <= threshold)
    accepted, last = masks[is_accepted], masks[np.int64(left == 1)]
    first, moves = masks[np.int64(counts.num_accepted < 0)], masks[np.int64(left >= 2)]
    moves |= accepted
    counts.num_proposals += is_proposal
    sums.tangent_energy = select(last, energy, sums.tangent_energy)
    for j in range(dim):
        vectors[ROW.first, j] = select(first, gradient[j], vectors[ROW.first, j])
        vectors[ROW.answer, j] = select(accepted, point[j], vectors[ROW.answer, j])
        vectors[ROW.tangent, j] = select(last, point[j], vectors[ROW.tangent, j])
        vectors[ROW.slope, j] = select(last, gradient[j], vectors[ROW.slope, j])
        y = point[j] + plan.noise * noise[j]
        mean = (plan.step * center[j] + y) / (1.0 + plan.step)
        vectors[ROW.mean, j] = select(accepted, mean, vectors[ROW.mean, j])
    # The next w. After an accepted proposal a new step begins, and w starts at the
    # center, where the gradient is known.
    length = select(accepted, plan.first, plan.descent)
    for j in range(dim):
        w = select(accepted, center[j], point[j])
        slope = select(accepted, vectors[ROW.first, j], gradient[j])
        slope += plan.precision * (w - vectors[ROW.mean, j])
        gradient[j] = w - length * slope
    factor = _projection_factor(plan, masks, gradient)
    sums.lost = _propose(plan, masks, vectors, spare, point)
    for j in range(dim):
        next_w = center[j] + factor * (gradient[j] - center[j])
        point[j] = select(moves, next_w, point[j])
        gradient[j] = 0.0
    sums.loss = 0.0
    counts.num_accepted += is_accepted
    num_left = left - np.int64(left > 0)
    counts.num_left = (accepted & plan.num_gradients) | (~accepted & num_left)
    counts.row = 0
    counts.num_passes += 1


@kernel(counts_references=False)
def advance(plan, rows, response, offset, state, rng, num_blocks):
    """Make the next ``num_blocks`` blocks of passes."""
    num_records = rows.shape[0]
    for _ in range(num_blocks):
        start = state.counts[0].row
        stop = min(start + state.margins.shape[0], num_records)
        _pass_over(plan, rows, response, offset, state, stop)
        if stop == num_records:
            _advance(plan, state, rng)


def draw(
    problem: Problem,
    terms: MechanismTerms,
    plan: ConstantTime,
    rng: np.random.Generator,
) -> tuple[Array | None, DrawState]:
    """Make all passes of a plan, and return theta or None, and the state."""
    sizes, facts = PublicSizes.from_terms(terms), problem.facts
    numbers = _numbers(plan, sizes, terms)
    data = writable(problem.data)
    # As for every target, responses that are far from all possible margins are moved
    # towards them, where that changes losses by a constant. Losses stay small then, and
    # keep their digits.
    response = facts.loss.near_response(data.response, facts.margin_bound)
    response = np.ascontiguousarray(response, dtype=np.float64)
    state = _state(numbers, data.num_records)
    per_pass = -(-data.num_records // len(state.margins))
    chunk = max(1, CHUNK // (len(state.margins) * (data.dim + 16)))
    left = plan.work * per_pass
    while left > 0:
        advance(
            numbers, data.dense, response, data.offset, state, rng, min(chunk, left)
        )
        left -= chunk
        pauses.notify_listeners()
    is_done = state.counts["num_accepted"][0] == plan.num_steps
    return (state.vectors[ROW.answer].copy() if is_done else None), state


def _numbers(plan: ConstantTime, sizes: PublicSizes, terms: MechanismTerms) -> Numbers:
    """Return the numbers of a plan, of parts 1 and 2 of the proof."""
    loss, h = terms.facts.loss, plan.step_size
    a = sizes.ridge * (1.0 + h) / h
    s = sizes.trace / a
    descent = 2.0 / (a * (2.0 + s))
    by_radius = s / (s + 2.0) * math.sqrt(a) * sizes.radius
    is_near = by_radius <= 2.0 * sizes.slope / math.sqrt(a)
    width = loss.width if isinstance(loss, Huber | SmoothedHinge) else math.inf
    is_hinge = isinstance(loss, SmoothedHinge)
    return Numbers(
        is_logistic=isinstance(loss, Logistic),
        lower=0.0 if is_hinge else -width,
        upper=width,
        scale=1.0 / width if is_hinge else 1.0,
        labels=is_hinge,
        weight=terms.k / terms.facts.num_records,
        precision=a,
        step=h,
        noise=math.sqrt(h / sizes.ridge),
        descent=descent,
        first=descent if is_near else 1.0 / a,
        radius=sizes.radius,
        num_steps=plan.num_steps,
        num_gradients=plan.num_gradients,
        center=np.array(terms.facts.center),
    )


def _state(plan: Numbers, num_records: int) -> DrawState:
    """Return the state before the pass at the center.

    This pass is treated as a proposal that is always accepted, so its gap is -inf and
    the number of accepted proposals begins at -1.
    """
    block = max(1, min(BLOCK, num_records, CHUNK // len(plan.center)))
    state = DrawState(
        np.zeros((len(ROW), len(plan.center))),
        np.zeros(1, Sums),
        np.zeros(1, Counts),
        np.array([0, -1]),
        np.empty(block),
        np.empty(block),
    )
    state.vectors[ROW.point] = plan.center
    state.sums["tangent_energy"] = math.inf
    state.counts["num_accepted"] = -1
    return state
