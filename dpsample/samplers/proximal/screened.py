# mypy: allow-untyped-defs
r"""Screening by distance: exact energies of kinked losses from a few of the records.

A loss with one kink is linear in the margin on both sides of it. Keep a center c and a
radius R: at all z with |z - c| <= R the margin of record i is within |a_i| R of
u_i = <a_i, c> + offset_i, by Cauchy and Schwarz. If the kink is farther from u_i than
that, the record is *decided*: its loss is phi_i(u_i) + phi_i'(u_i) <a_i, z - c> on the
whole ball. So with s the sum of the decided losses at c and g that of their gradients

    n F(z) = s + <g, z - c> + sum of phi_i(z) over the records that are not decided.

The same holds for the undecided records in a smaller ball about another center, and so
on: a level l takes s, g and the list of undecided records from level l - 1, moved to
its own center, and decides more of them. A point in the balls 1, ..., l needs the list
of level l alone, and level 0 is the list of all records, so every point has its exact
energy. No sum is updated: a level whose ball w leaves is made anew at w, with the
levels inside; the last one always is, which yields energy and gradient at w on the way.

Which ball is where changes no energy, so the draw is that of the tangent oracle, with
the same random bits, the same number of steps and the same proof. Tests of distance and
margin are widened by more than the rounding of what they compare.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.losses.loss import total
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import Data, add_transposed, margins_of
from dpsample.samplers.chain import GRADIENTS, RECORDS, VALUES, ChainState, compile_run
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import ProximalPlan
from dpsample.samplers.record_terms import row_norms
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs, as_rows

# Radii of the levels, in units of the reach of a proposal: the last holds nearly all
# proposals about w, and from one to the next w needs about four times as many steps.
RADII = (4.8, 2.4, 1.2)
NUM_LEVELS = len(RADII)
# Standard deviations by which few proposals are farther than usual from the mean.
TAIL = 1.0
# Relative widening: it covers the rounding of margins, norms and distances.
SLACK = 1e-9
# Arrays of the data that a list of records has for itself.
OF_RECORDS = ("dense", "values", "columns", "starts", "response", "offset")
# Below this many records a pass is too short for the pilot to look for less.
MIN_RECORDS = 256


class Screen(NamedTuple):
    """Radii of the balls, and what decides a record: fixed before the chain starts."""

    radii: Array  # (NUM_LEVELS + 1,), infinite at level 0
    reach: float  # of a proposal from w
    kinks: Array  # (num_records,): margins
    norms: Array  # (num_records,): Euclidean, of the rows


@by_address
class ScreenedWork(NamedTuple):
    """As the proximal sampler's, and what every level knows; level 0 is all records."""

    normal: Array  # (dim + 2,)
    lists: tuple[Data, ...]  # the undecided records of levels 1, 2, ...
    kinks: Array  # (NUM_LEVELS, num_records): theirs
    norms: Array
    sizes: Ints  # (NUM_LEVELS + 1,): how many are undecided; -1 if it is not known
    centers: Array  # (NUM_LEVELS + 1, dim)
    sums: Array  # (NUM_LEVELS + 1,): s
    slopes: Array  # (NUM_LEVELS + 1, dim): g
    margins: Array  # (block,)
    rest: Array  # (block,): slopes of undecided records
    picked: Ints  # (block,): which they are


def screen(target: Gibbs, plan: ProximalPlan) -> Screen | None:
    """Balls for a step of the chain; None if there is nothing to screen."""
    data = target.data
    kinks = target.problem.loss.kink(data.response)
    if kinks is None or data.num_records < MIN_RECORDS:
        return None
    deviation = plan.spread * float(np.abs(plan.factor).max())
    reach = deviation * (float(np.sqrt(target.dim)) + TAIL)
    radii = np.array([np.inf, *RADII]) * reach
    return Screen(radii, reach, np.array(kinks), row_norms(target))


def share_near(target: Gibbs, screen: Screen, center: Array) -> float:
    """Share of the records that the smallest ball about a center leaves undecided."""
    margins, data = np.asarray(as_rows(target.data) @ center), target.data
    if data.offset.size:
        margins = margins + data.offset
    sure = screen.norms * screen.radii[-1]
    return float(np.mean(np.abs(margins - screen.kinks) <= sure))


def init(target: Gibbs, position: Array) -> ChainState:
    """Fresh state at a position inside the domain.

    The memory is the centers, after a number that says whether there are any: from them
    all else is made anew, to the last bit, when a chain goes on from a checkpoint.
    Lists have room for all records; what is never used of it takes no memory.
    """
    state = alternation.init(target, position)
    data, dim, levels = target.data, position.size, NUM_LEVELS + 1
    block, memory = data.block, np.zeros(1 + levels * dim)
    work = ScreenedWork(
        normal=state.own.normal,
        lists=tuple(_room(data) for _ in range(NUM_LEVELS)),
        kinks=np.empty((NUM_LEVELS, data.num_records)),
        norms=np.empty((NUM_LEVELS, data.num_records)),
        sizes=np.array([data.num_records] + NUM_LEVELS * [-1], dtype=np.int64),
        centers=memory[1:].reshape(levels, dim),
        sums=np.zeros(levels),
        slopes=np.zeros((levels, dim)),
        margins=np.empty(block),
        rest=np.empty(block),
        picked=np.empty(block, dtype=np.int64),
    )
    return state._replace(memory=memory, own=work)


def _room(data: Data) -> Data:
    """Room for as many records; what is not a record's is that of all data."""
    room = data._replace(
        **{name: np.empty_like(getattr(data, name), subok=False) for name in OF_RECORDS}
    )
    room.starts[0] = 0
    return room


@kernel(counts_references=False)
def square_distance(a, b):
    """Return |a - b|^2."""
    result = 0.0
    for j in range(a.shape[0]):
        result += (a[j] - b[j]) * (a[j] - b[j])
    return result


@kernel(counts_references=False)
def moved(own, level, z):
    """Sum of the losses at z that are decided at a level."""
    result = own.sums[level]
    for j in range(z.shape[0]):
        result += own.slopes[level, j] * (z[j] - own.centers[level, j])
    return result


@kernel(counts_references=False)
def pick(kinks, norms, margins, radius, size, slopes, rest, picked):
    """Find the records with a kink near a center of norm size; how many there are.

    ``margins`` are those at the center. The slopes of what is picked go to ``rest``.
    """
    count = 0
    for a in range(margins.shape[0]):
        u, kink, sure = margins[a], kinks[a], norms[a] * radius
        scale = sure + 2.0 * norms[a] * size + abs(u) + abs(kink)
        is_decided = abs(u - kink) > sure + SLACK * scale
        rest[a] = 0.0 if is_decided else slopes[a]
        slopes[a] = slopes[a] if is_decided else 0.0
        picked[count] = a
        count += 0 if is_decided else 1  # no branch: it would often be mispredicted
    return count


@kernel(counts_references=False)
def copy_records(data, start, picked, out, at):
    """Copy the picked records of a block to the records from ``at`` on."""
    dense, to = data.dense, out.dense
    if dense.shape[0] > 0:
        for a in range(picked.shape[0]):
            for j in range(dense.shape[1]):
                to[at + a, j] = dense[start + picked[a], j]
    else:
        end = out.starts[at]
        for a in range(picked.shape[0]):
            i = start + picked[a]
            for j in range(data.starts[i], data.starts[i + 1]):
                out.values[end] = data.values[j]
                out.columns[end] = data.columns[j]
                end += 1
            out.starts[at + a + 1] = end
    copy_entries(data.response, start, picked, out.response, at)
    if data.offset.shape[0] > 0:
        copy_entries(data.offset, start, picked, out.offset, at)


@kernel(counts_references=False)
def copy_entries(values, start, picked, out, at):
    """Copy the picked entries of a block to the entries from ``at`` on."""
    for a in range(picked.shape[0]):
        out[at + a] = values[start + picked[a]]


@kernel(counts_references=False)
def refer(target, pieces, screen, state, level, w, gradient):
    """Make a level anew at w, from the one before; sum and gradient of all losses at w.

    The sum is NaN if a piece failed.
    """
    own, work, size = state.own, state.work, 0
    before, kinks, norms = target.data, screen.kinks, screen.norms
    if level > 1:
        before = own.lists[level - 2]
        kinks, norms = own.kinks[level - 2], own.norms[level - 2]
    after = own.lists[level - 1]
    decided, undecided = moved(own, level - 1, w), 0.0
    norm, radius, slope = np.sqrt(np.dot(w, w)), screen.radii[level], own.slopes[level]
    copy_into(own.slopes[level - 1], slope)
    copy_into(w, own.centers[level])
    gradient[:] = 0.0
    for start in range(0, own.sizes[level - 1], before.block):
        stop = min(start + before.block, own.sizes[level - 1])
        margins, values = own.margins[: stop - start], work.margins[: stop - start]
        slopes, rest = work.slopes[: stop - start], own.rest[: stop - start]
        margins_of(before, w, start, stop, margins)
        copy_into(margins, values)
        work.out[0] = np.nan
        response = before.response[start:stop]
        pieces.loss_slope(before.loss_params, values, response, slopes, work.out)
        near, far = kinks[start:stop], norms[start:stop]
        count = pick(near, far, margins, radius, norm, slopes, rest, own.picked)
        picked = own.picked[:count]
        copy_records(before, start, picked, after, size)
        copy_entries(kinks, start, picked, own.kinks[level - 1], size)
        copy_entries(norms, start, picked, own.norms[level - 1], size)
        size += count
        # No difference of sums: one steep record would take the digits of all others.
        for a in range(count):
            margins[a] = values[picked[a]]
            values[picked[a]] = 0.0
        # Block by block: one by one, equal losses round to the same side n times.
        undecided += total(margins[:count])
        decided += total(values) + 0.0 * work.out[0]  # NaN if the piece failed
        add_transposed(before, slopes, start, stop, work.vector, slope)
        add_transposed(before, rest, start, stop, work.vector, gradient)
    own.sizes[level], own.sums[level] = size, decided
    for j in range(w.shape[0]):
        gradient[j] += slope[j]
    return decided + undecided


@kernel(counts_references=False)
def first_left(screen, state, w):
    """Return the first level to make anew: its ball is too small for proposals at w."""
    own, last = state.own, screen.radii.shape[0] - 1
    for level in range(1, last):
        distance = square_distance(w, own.centers[level])
        # A proposal's noise is about perpendicular to the way from the center to w.
        if not distance + screen.reach**2 <= screen.radii[level] ** 2:
            return level
    return last


@kernel(counts_references=False)
def energy_gradient(target, pieces, screen, state, w, gradient):
    """Return V at w and fill its gradient, with the levels made anew as needed."""
    own, num_levels = state.own, screen.radii.shape[0]
    first = 1
    if state.memory[0] == 1.0:
        if own.sizes[1] < 0:  # after a checkpoint
            for level in range(1, num_levels):
                center = own.centers[level]
                refer(target, pieces, screen, state, level, center, gradient)
        first = first_left(screen, state, w)
    state.memory[0] = 1.0
    state.counts[GRADIENTS] += 1
    risk = np.nan
    for level in range(first, num_levels):
        state.counts[RECORDS] += own.sizes[level - 1]
        risk = refer(target, pieces, screen, state, level, w, gradient)
    number, vector = target.data.num_records, state.work.vector
    vector[:] = np.nan
    pieces.regularizer_gradient(target.regularizer, w, vector)
    for j in range(w.shape[0]):
        gradient[j] = target.k * (gradient[j] / number + target.mu * vector[j])
    penalty = gibbs.regularizer(target, pieces, w, state.work)
    return target.k * (risk / number + target.mu * penalty)


@kernel(counts_references=False)
def energy(target, pieces, screen, state, z):
    """Return V at any z, from the list of the last level whose balls all hold z."""
    own, work = state.own, state.work
    level, num_levels = 0, screen.radii.shape[0]
    while level + 1 < num_levels:
        distance = square_distance(z, own.centers[level + 1])
        if not distance <= screen.radii[level + 1] ** 2:
            break
        level += 1
    risk, data = moved(own, level, z), target.data
    if level > 0:
        data = own.lists[level - 1]
    for start in range(0, own.sizes[level], data.block):
        stop = min(start + data.block, own.sizes[level])
        margins, response = work.margins[: stop - start], data.response[start:stop]
        margins_of(data, z, start, stop, margins)
        work.out[0] = np.nan
        pieces.loss_value(data.loss_params, margins, response, work.out)
        risk += work.out[0]
    state.counts[VALUES] += 1
    state.counts[RECORDS] += own.sizes[level]
    penalty = gibbs.regularizer(target, pieces, z, work)
    return target.k * (risk / data.num_records + target.mu * penalty)


def touch(target, pieces, plan, state, w, gradient):
    """V at w, and its gradient, by the levels."""
    return energy_gradient(target, pieces, plan.bounds, state, w, gradient)


def judge(target, pieces, plan, state, rng, is_resumed):
    """As that of the tangent oracle; kinks have no curvature for its squeeze."""
    threshold = rng.standard_exponential()
    state.energy[0] = np.nan
    u_x = energy(target, pieces, plan.bounds, state, state.scratch[5])
    return alternation.weigh(target, pieces, plan.metric, state, threshold, u_x)


conditional = alternation.compile_conditional(touch, judge)


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        alternation.displace_y(plan.metric, state, rng)
    return conditional(target, pieces, plan, state, rng)


run = compile_run(step)
