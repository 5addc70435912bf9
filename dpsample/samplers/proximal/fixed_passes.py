# mypy: allow-untyped-defs
"""Fixed passes: kernel of the constant-time draw that `constant_time` plans and proves.

Every pass adds up losses and slopes at one point, draws the same number of words, and
computes all that may come next; what does is picked by the bits of masks. Conditions of
branches are public: the loss, sizes and counts of loops.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import kernel
from dpsample.losses import Huber, Logistic, SmoothedHinge
from dpsample.losses.loss import total
from dpsample.numerics.stable import softplus_sigmoid
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.problem.problem import Problem
from dpsample.problem.records import writable
from dpsample.samplers.proximal.constant_time import EDGE, ConstantTime, PublicSizes

BLOCK = 256  # records
CHUNK = 2_000_000  # multiply-adds of one compiled call: a few milliseconds

# Rows of `vectors`, and places in `numbers` and in `counts`.
POINT, TANGENT, SLOPE, MEAN, FIRST, GRADIENT, NOISE, ANSWER, AXIS, NUM_VECTORS = range(
    10
)
SUM, AT_TANGENT, PAID, NUM_NUMBERS = range(4)
ROW, LEFT, ACCEPTED, TRIES, PASSES, RECORDS, WORDS, NUM_COUNTS = range(8)


class Numbers(NamedTuple):
    """Public numbers of a draw; ``lower`` to ``labels`` are of the loss."""

    is_logistic: bool
    lower: float
    upper: float
    scale: float
    labels: bool
    weight: float  # k / n
    precision: float  # a
    step: float  # h
    noise: float  # deviation of y
    descent: float  # steps of w, and the first one of them
    first: float
    radius: float
    num_steps: int
    num_gradients: int
    center: Array


class DrawState(NamedTuple):
    """All that a draw remembers."""

    vectors: Array
    numbers: Array
    counts: Ints
    masks: Ints  # of conditions that are false, and true
    margins: Array
    slopes: Array


@kernel(counts_references=False)
def pick(mask, a, b):
    """Return a where the mask is -1 and b where it is 0, by their bits.

    Masks are loaded: of one that it knew to be a condition, a compiler makes branches.
    """
    first, second = np.float64(a).view(np.int64), np.float64(b).view(np.int64)
    return np.int64((first & mask) | (second & ~mask)).view(np.float64)


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _margins(rows, start, stop, theta, out):
    for i in range(start, stop):
        s = 0.0
        for j in range(theta.shape[0]):
            s += rows[i, j] * theta[j]
        out[i - start] = s


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _add_rows(rows, start, stop, slopes, out):
    for i in range(start, stop):
        s = slopes[i - start]
        for j in range(out.shape[0]):
            out[j] += s * rows[i, j]


@kernel(counts_references=False)
def _losses(plan, response, start, stop, margins, slopes):
    """Turn margins into losses, and fill slopes; without branches on the records."""
    if plan.is_logistic:
        for i in range(stop - start):
            y = response[start + i]
            value, share = softplus_sigmoid(-y * margins[i])
            margins[i], slopes[i] = value, -y * share
    else:
        # The integral of t cut off at both ends: t = 1 - y u, or the residual u - y.
        for i in range(stop - start):
            y = response[start + i]
            turn = -y if plan.labels else 1.0
            t = (1.0 if plan.labels else -y) + turn * margins[i]
            z = plan.lower if t < plan.lower else t
            z = plan.upper if z > plan.upper else z
            margins[i] = plan.scale * z * (t - 0.5 * z)
            slopes[i] = plan.scale * turn * z


@kernel(counts_references=False)
def _pass_over(plan, rows, response, offset, state, stop):
    """Add the losses and slopes at the point of the next records to the sums."""
    start = state.counts[ROW]
    margins, slopes = state.margins[: stop - start], state.slopes[: stop - start]
    _margins(rows, start, stop, state.vectors[POINT], margins)
    if offset.shape[0] > 0:
        for i in range(stop - start):
            margins[i] += offset[start + i]
    _losses(plan, response, start, stop, margins, slopes)
    state.numbers[SUM] += total(margins)
    _add_rows(rows, start, stop, slopes, state.vectors[GRADIENT])
    state.counts[RECORDS] += stop - start
    state.counts[ROW] = stop


@kernel(counts_references=False)
def _normals(rng, out, counts):
    """Fill with normals, two words a pair (Box and Muller 1958)."""
    dim = out.shape[0]
    for j in range(0, dim, 2):
        size = np.sqrt(-2.0 * np.log1p(-rng.random()))
        angle = 2.0 * np.pi * rng.random()
        out[j] = size * np.cos(angle)
        if j + 1 < dim:
            out[j + 1] = size * np.sin(angle)
        counts[WORDS] += 2


@kernel(counts_references=False)
def _distance(point, center):
    square = 0.0
    for j in range(center.shape[0]):
        square += (point[j] - center[j]) ** 2
    return np.sqrt(square)


@kernel(counts_references=False)
def _shrink(plan, masks, point):
    """Factor of point - center in the projection on the ball."""
    size = _distance(point, plan.center)
    return pick(masks[np.int64(size > plan.radius)], plan.radius / size, 1.0)


@kernel(counts_references=False)
def _propose(plan, masks, vectors, spare, out):
    """Draw a try into out, parts 3 and 4 of the proof; return what it has to pay."""
    center, noise, axis = plan.center, vectors[NOISE], vectors[AXIS]
    dim, unit = center.shape[0], 1.0 / np.sqrt(plan.precision)
    for j in range(dim):
        out[j] = vectors[MEAN, j] - vectors[SLOPE, j] / plan.precision
    size = _distance(out, center)
    inverse = 1.0 / pick(masks[np.int64(size > 1e-300)], size, 1.0)
    along = 0.0
    for j in range(dim):
        axis[j] = (out[j] - center[j]) * inverse
        along += axis[j] * noise[j]
    across = 0.0
    for j in range(dim):
        noise[j] -= along * axis[j]
        across += noise[j] * noise[j]
    beyond = (size - plan.radius) / unit
    rate = 0.5 * (beyond + np.sqrt(beyond * beyond + 4.0))
    depth, bend = spare / rate, 0.5 * across / (size / unit)
    is_edge = masks[np.int64(beyond > -EDGE)]
    paid = 0.5 * (depth - 1.0 / rate) ** 2 + bend * (depth + 0.5 * bend)
    height = pick(is_edge, plan.radius - unit * (depth + bend), size + unit * along)
    width = pick(is_edge, unit * np.sqrt(plan.radius / size), unit)
    # At the center the axis is 0: the noise is whole, and its height is 0.
    for j in range(dim):
        out[j] = center[j] + height * axis[j] + width * noise[j]
    return pick(is_edge, paid, 0.0)


@kernel(counts_references=False)
def _advance(plan, state, rng):
    """Use what a pass has found: judge a try, or move w; then choose the next point."""
    vectors, numbers, counts = state.vectors, state.numbers, state.counts
    point, gradient, noise = vectors[POINT], vectors[GRADIENT], vectors[NOISE]
    masks, center, dim = state.masks, plan.center, plan.center.shape[0]
    energy = plan.weight * numbers[SUM]
    _normals(rng, noise, counts)
    threshold, spare = -np.log1p(-rng.random()), -np.log1p(-rng.random())
    counts[WORDS] += 2
    gap = energy - numbers[AT_TANGENT] + numbers[PAID]
    for j in range(dim):
        gradient[j] *= plan.weight
        gap -= vectors[SLOPE, j] * (point[j] - vectors[TANGENT, j])
    # `left` passes are steps of w, the last one its tangent; then come tries.
    left, is_open = counts[LEFT], np.int64(counts[ACCEPTED] < plan.num_steps)
    is_try = is_open & np.int64(left == 0)
    is_inside = np.int64(_distance(point, center) <= plan.radius)
    is_accepted = is_try & is_inside & np.int64(gap <= threshold)
    accepted, last = masks[is_accepted], masks[np.int64(left == 1)]
    first, moves = masks[np.int64(counts[ACCEPTED] < 0)], masks[np.int64(left >= 2)]
    moves |= accepted
    counts[TRIES] += is_try
    numbers[AT_TANGENT] = pick(last, energy, numbers[AT_TANGENT])
    for j in range(dim):
        vectors[FIRST, j] = pick(first, gradient[j], vectors[FIRST, j])
        vectors[ANSWER, j] = pick(accepted, point[j], vectors[ANSWER, j])
        vectors[TANGENT, j] = pick(last, point[j], vectors[TANGENT, j])
        vectors[SLOPE, j] = pick(last, gradient[j], vectors[SLOPE, j])
        y = point[j] + plan.noise * noise[j]
        mean = (plan.step * center[j] + y) / (1.0 + plan.step)
        vectors[MEAN, j] = pick(accepted, mean, vectors[MEAN, j])
    # The next point of w, from the center in a new step.
    length = pick(accepted, plan.first, plan.descent)
    for j in range(dim):
        here = pick(accepted, center[j], point[j])
        slope = pick(accepted, vectors[FIRST, j], gradient[j])
        slope += plan.precision * (here - vectors[MEAN, j])
        gradient[j] = here - length * slope
    shrink = _shrink(plan, masks, gradient)
    numbers[PAID] = _propose(plan, masks, vectors, spare, point)
    for j in range(dim):
        moved = center[j] + shrink * (gradient[j] - center[j])
        point[j] = pick(moves, moved, point[j])
        gradient[j] = 0.0
    numbers[SUM] = 0.0
    counts[ACCEPTED] += is_accepted
    rest = left - np.int64(left > 0)
    counts[LEFT] = (accepted & plan.num_gradients) | (~accepted & rest)
    counts[ROW] = 0
    counts[PASSES] += 1


@kernel(counts_references=False)
def advance(plan, rows, response, offset, state, rng, num_blocks):
    """Make the next ``num_blocks`` blocks of passes."""
    num_records = rows.shape[0]
    for _ in range(num_blocks):
        start = state.counts[ROW]
        stop = min(start + state.margins.shape[0], num_records)
        _pass_over(plan, rows, response, offset, state, stop)
        if stop == num_records:
            _advance(plan, state, rng)


def draw(
    problem: Problem,
    terms: MechanismTerms,
    chosen: ConstantTime,
    rng: np.random.Generator,
) -> tuple[Array | None, DrawState]:
    """Make all passes of a plan; theta or None, and the state with its counts."""
    sizes, facts = PublicSizes.of(terms), problem.facts
    numbers = _numbers(chosen, sizes, terms)
    data = writable(problem.data)
    # Far responses near, as for every target: by arithmetic without branches.
    near = facts.loss.near_response(data.response, facts.margin_bound)
    response = np.ascontiguousarray(near, dtype=np.float64)
    state = _state(numbers, data.num_records)
    per_pass = -(-data.num_records // len(state.margins))
    chunk = max(1, CHUNK // (len(state.margins) * (data.dim + 16)))
    left = chosen.work * per_pass
    while left > 0:
        advance(
            numbers, data.dense, response, data.offset, state, rng, min(chunk, left)
        )
        left -= chunk
        pauses.notify_listeners()
    is_done = state.counts[ACCEPTED] == chosen.num_steps
    return (state.vectors[ANSWER].copy() if is_done else None), state


def _numbers(
    chosen: ConstantTime, sizes: PublicSizes, terms: MechanismTerms
) -> Numbers:
    loss, h = terms.facts.loss, chosen.step_size
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
        num_steps=chosen.num_steps,
        num_gradients=chosen.num_gradients,
        center=np.array(terms.facts.center),
    )


def _state(plan: Numbers, num_records: int) -> DrawState:
    """State before the pass at the center, which counts as an accepted try."""
    block = max(1, min(BLOCK, num_records, CHUNK // len(plan.center)))
    state = DrawState(
        np.zeros((NUM_VECTORS, len(plan.center))),
        np.zeros(NUM_NUMBERS),
        np.zeros(NUM_COUNTS, dtype=np.int64),
        np.array([0, -1]),
        np.empty(block),
        np.empty(block),
    )
    state.vectors[POINT] = plan.center
    state.numbers[AT_TANGENT] = math.inf
    state.counts[ACCEPTED] = -1
    return state
