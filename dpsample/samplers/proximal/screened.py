# mypy: allow-untyped-defs
r"""Screening by distance: exact energies of non-smooth losses from few records.

A loss such as the hinge loss is linear in the margin on both sides of one point, the
*breakpoint*. Keep a center c and a radius R. At all z with |z - c| <= R the margin of
record i is within |a_i| R of u_i = <a_i, c> + offset_i, by Cauchy and Schwarz. If the
breakpoint is at a larger distance from u_i, the record is *decided*: its loss is
phi_i(u_i) + phi_i'(u_i) <a_i, z - c> on the whole ball. So with s the sum of the losses
of decided records at c, and g the sum of their gradients,

    n F(z) = s + <g, z - c> + sum of phi_i(z) over the records that are not decided.

The same holds for the undecided records in a smaller ball about another center, and so
on. A *level* l takes s, g and the list of undecided records from level l - 1, evaluates
them at its own center, and decides more of the records. A point in the balls 1, ..., l
needs the list of level l alone. Level 0 is the list of all records, so every point has
its exact energy.

No sum is updated. If w, the tangent point of a step, is outside the ball of a level,
this level and those inside are built again about w. The last level always is, which
gives energy and gradient at w without another pass.

The position of the balls changes no energy. So the draw is the same as with the tangent
oracle of `alternation`, with the same random bits and the same proof. Tests of distance
and margin are widened by more than the rounding errors of the numbers compared.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints, RecordArray
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.losses.loss import total
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import Data, add_transposed, margins_of
from dpsample.samplers.chain import COUNT, ChainState, compile_run
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import ROW, ProximalPlan, Support
from dpsample.samplers.record_terms import row_norms
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs, as_rows

# Radii of the levels, in units of the usual distance of a proposal from w. The last
# ball contains nearly all proposals. To leave a ball of twice the radius, w needs about
# four times as many steps.
RADII = (4.8, 2.4, 1.2)
NUM_LEVELS = len(RADII)
# A pass over fewer records is too short to be worth screening.
MIN_RECORDS = 256


class Screen(NamedTuple):
    """Numbers that decide a record, which are fixed before the chain starts."""

    radii: Array  # (NUM_LEVELS + 1,), infinite at level 0
    reach: float  # usual distance of a proposal from w
    breakpoints: Array  # (num_records,): margins
    norms: Array  # (num_records,): Euclidean norms of the rows


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ScreenedWork(NamedTuple):
    """Memory of `ProximalWork`, with the levels. Level 0 has all records."""

    support: Support
    draw: RecordArray  # one record of `ConditionalDraw`
    lists: tuple[Data, ...]  # undecided records of levels 1, 2, ...
    breakpoints: Array  # (NUM_LEVELS, num_records), of the undecided records
    norms: Array  # (NUM_LEVELS, num_records)
    sizes: Ints  # (NUM_LEVELS + 1,): number of undecided records, -1 if not known
    centers: Array  # (NUM_LEVELS + 1, dim)
    sums: Array  # (NUM_LEVELS + 1,): s
    slopes: Array  # (NUM_LEVELS + 1, dim): g
    margins: Array  # (block,): of the records that are split
    undecided_slopes: Array  # (block,): derivatives of undecided losses, others 0
    undecided: Ints  # (block,): indices of undecided records


def new_screen(target: Gibbs, plan: ProximalPlan) -> Screen | None:
    """Return the balls for a step of the chain, or None if there is no screening."""
    data = target.data
    breakpoints = target.problem.loss.kink(data.response)
    if breakpoints is None or data.num_records < MIN_RECORDS:
        return None
    # About the largest deviation of a proposal along an axis.
    deviation = plan.spread * float(np.abs(plan.factor).max())
    # The length of dim standard normals is about sqrt(dim), with a deviation below 1.
    reach = deviation * (float(np.sqrt(target.dim)) + 1.0)
    radii = np.array([np.inf, *RADII]) * reach
    return Screen(radii, reach, np.array(breakpoints), row_norms(target))


def share_undecided(target: Gibbs, screen: Screen, center: Array) -> float:
    """Return the share of records that the smallest ball about a center leaves open."""
    margins, data = np.asarray(as_rows(target.data) @ center), target.data
    if data.offset.size:
        margins = margins + data.offset
    change_bounds = screen.norms * screen.radii[-1]
    return float(np.mean(np.abs(margins - screen.breakpoints) <= change_bounds))


def init(target: Gibbs, position: Array) -> ChainState:
    """Return a new state at a position inside the domain.

    The memory holds the centers, after a number that is 1 if there are any. When a
    chain goes on from a checkpoint, the levels are built again from them, to the last
    bit. Each list has room for all records, but the operating system provides memory
    only for entries that have been written.
    """
    state = alternation.init(target, position)
    data, dim = target.data, position.size
    num_rows, block = NUM_LEVELS + 1, data.block
    memory = np.zeros(1 + num_rows * dim)
    work = ScreenedWork(
        support=state.workspace.support,
        draw=state.workspace.draw,
        lists=tuple(_empty_list(data) for _ in range(NUM_LEVELS)),
        breakpoints=np.empty((NUM_LEVELS, data.num_records)),
        norms=np.empty((NUM_LEVELS, data.num_records)),
        sizes=np.array([data.num_records] + NUM_LEVELS * [-1], dtype=np.int64),
        centers=memory[1:].reshape(num_rows, dim),
        sums=np.zeros(num_rows),
        slopes=np.zeros((num_rows, dim)),
        margins=np.empty(block),
        undecided_slopes=np.empty(block),
        undecided=np.empty(block, dtype=np.int64),
    )
    return state._replace(memory=memory, workspace=work)


def _empty_list(data: Data) -> Data:
    """Return data with memory for as many records, and all other fields the same."""
    names = ("dense", "values", "columns", "starts", "response", "offset")
    arrays = {name: getattr(data, name) for name in names}
    empty_list = data._replace(
        **{name: np.empty_like(array, subok=False) for name, array in arrays.items()}
    )
    # Rows of a sparse matrix begin at the end of the row before. The first begins at 0.
    empty_list.starts[0] = 0
    return empty_list


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def square_distance(a, b):
    """Return |a - b|^2."""
    result = 0.0
    for j in range(a.shape[0]):
        result += (a[j] - b[j]) * (a[j] - b[j])
    return result


@kernel(counts_references=False)
def sum_decided(levels, level, z):
    """Return the sum of the losses at z that are decided at a level."""
    result = levels.sums[level]
    for j in range(z.shape[0]):
        result += levels.slopes[level, j] * (z[j] - levels.centers[level, j])
    return result


@kernel(counts_references=False)
def split_records(
    breakpoints, norms, margins, radius, center_norm, slopes, undecided_slopes, indices
):
    """Find the undecided records of a ball, and return their number.

    ``margins`` are at the ball's center. The slopes of undecided records move to
    ``undecided_slopes``, and are replaced by 0.
    """
    count = 0
    for a in range(margins.shape[0]):
        u, breakpoint, change = margins[a], breakpoints[a], norms[a] * radius
        scale = change + 2.0 * norms[a] * center_norm + abs(u) + abs(breakpoint)
        # The test is widened by 1e-9 of the sizes of its numbers, which is more than
        # the rounding errors of margins, norms and distances.
        is_decided = abs(u - breakpoint) > change + 1e-9 * scale
        undecided_slopes[a] = 0.0 if is_decided else slopes[a]
        slopes[a] = slopes[a] if is_decided else 0.0
        # Each index is written, and the next one overwrites it if the record is
        # decided. A branch would often be mispredicted.
        indices[count] = a
        count += 0 if is_decided else 1
    return count


@kernel(counts_references=False)
def copy_records(data, start, indices, out, at):
    """Copy the records ``start + indices`` to the records of out from ``at`` on."""
    dense, out_dense = data.dense, out.dense
    if dense.shape[0] > 0:
        for a in range(indices.shape[0]):
            for j in range(dense.shape[1]):
                out_dense[at + a, j] = dense[start + indices[a], j]
    else:
        end = out.starts[at]
        for a in range(indices.shape[0]):
            i = start + indices[a]
            for j in range(data.starts[i], data.starts[i + 1]):
                out.values[end] = data.values[j]
                out.columns[end] = data.columns[j]
                end += 1
            out.starts[at + a + 1] = end
    copy_entries(data.response, start, indices, out.response, at)
    if data.offset.shape[0] > 0:
        copy_entries(data.offset, start, indices, out.offset, at)


@kernel(counts_references=False)
def copy_entries(values, start, indices, out, at):
    """Copy the values ``start + indices`` to the entries of out from ``at`` on."""
    for a in range(indices.shape[0]):
        out[at + a] = values[start + indices[a]]


@kernel(counts_references=False)
def build_level(target, pieces, screen, state, level, w, gradient):
    """Build a level about w from the one before.

    Return the sum of all losses at w, and fill its gradient. The sum is NaN if a
    function failed.
    """
    levels, work, size = state.workspace, state.work, 0
    before, breakpoints, norms = target.data, screen.breakpoints, screen.norms
    if level > 1:
        before = levels.lists[level - 2]
        breakpoints, norms = levels.breakpoints[level - 2], levels.norms[level - 2]
    after = levels.lists[level - 1]
    # The losses of records that earlier levels decided are linear, also at w.
    decided, undecided = sum_decided(levels, level - 1, w), 0.0
    norm, radius, slope = (
        np.sqrt(np.dot(w, w)),
        screen.radii[level],
        levels.slopes[level],
    )
    # The sum g of this level begins with that of the level before.
    copy_into(levels.slopes[level - 1], slope)
    copy_into(w, levels.centers[level])
    gradient[:] = 0.0
    for start in range(0, levels.sizes[level - 1], before.block):
        stop = min(start + before.block, levels.sizes[level - 1])
        margins, values = levels.margins[: stop - start], work.margins[: stop - start]
        slopes = work.slopes[: stop - start]
        undecided_slopes = levels.undecided_slopes[: stop - start]
        margins_of(before, w, start, stop, margins)
        copy_into(margins, values)
        work.out[0] = np.nan
        response = before.response[start:stop]
        pieces.loss_slope(before.loss_params, values, response, slopes, work.out)
        count = split_records(
            breakpoints[start:stop],
            norms[start:stop],
            margins,
            radius,
            norm,
            slopes,
            undecided_slopes,
            levels.undecided,
        )
        indices = levels.undecided[:count]
        copy_records(before, start, indices, after, size)
        copy_entries(breakpoints, start, indices, levels.breakpoints[level - 1], size)
        copy_entries(norms, start, indices, levels.norms[level - 1], size)
        size += count
        # The decided losses are not the sum of all minus the undecided ones. If one
        # record had a very large loss, the difference would lose the others' digits.
        for a in range(count):
            margins[a] = values[indices[a]]
            values[indices[a]] = 0.0
        # Sums of blocks are added. If equal losses were added one by one, their
        # rounding errors would have the same sign.
        undecided += total(margins[:count])
        # The output of the loss is NaN if it failed, and its product with 0 as well.
        decided += total(values) + 0.0 * work.out[0]
        add_transposed(before, slopes, start, stop, work.vector, slope)
        add_transposed(before, undecided_slopes, start, stop, work.vector, gradient)
    levels.sizes[level], levels.sums[level] = size, decided
    # The gradient of decided and undecided records together.
    for j in range(w.shape[0]):
        gradient[j] += slope[j]
    return decided + undecided


@kernel(counts_references=False)
def first_level_to_build(screen, state, w):
    """Return the first level whose ball is unlikely to contain a proposal at w."""
    levels, last = state.workspace, screen.radii.shape[0] - 1
    for level in range(1, last):
        distance = square_distance(w, levels.centers[level])
        # In many dimensions x - w is nearly orthogonal to w minus the center, so that
        # the squared lengths add up.
        if not distance + screen.reach**2 <= screen.radii[level] ** 2:
            return level
    return last


@kernel(counts_references=False)
def energy_gradient(target, pieces, screen, state, w, gradient):
    """Return V at w and fill its gradient. Levels are built again if necessary."""
    levels, num_levels = state.workspace, screen.radii.shape[0]
    first = 1
    if state.memory[0] == 1.0:
        # After a checkpoint there are only centers.
        if levels.sizes[1] < 0:
            for level in range(1, num_levels):
                center = levels.centers[level]
                build_level(target, pieces, screen, state, level, center, gradient)
        first = first_level_to_build(screen, state, w)
    state.memory[0] = 1.0
    state.counts[COUNT.gradients] += 1
    risk = np.nan
    for level in range(first, num_levels):
        state.counts[COUNT.records] += levels.sizes[level - 1]
        risk = build_level(target, pieces, screen, state, level, w, gradient)
    number, vector = target.data.num_records, state.work.vector
    vector[:] = np.nan
    pieces.regularizer_gradient(target.regularizer, w, vector)
    for j in range(w.shape[0]):
        gradient[j] = target.k * (gradient[j] / number + target.mu * vector[j])
    penalty = gibbs_target.regularizer(target, pieces, w, state.work)
    return target.k * (risk / number + target.mu * penalty)


@kernel(counts_references=False)
def energy(target, pieces, screen, state, z):
    """Return V at z, from the list of the last level for which z is in all balls."""
    levels, work = state.workspace, state.work
    level, num_levels = 0, screen.radii.shape[0]
    while level + 1 < num_levels:
        distance = square_distance(z, levels.centers[level + 1])
        if not distance <= screen.radii[level + 1] ** 2:
            break
        level += 1
    risk, data = sum_decided(levels, level, z), target.data
    if level > 0:
        data = levels.lists[level - 1]
    for start in range(0, levels.sizes[level], data.block):
        stop = min(start + data.block, levels.sizes[level])
        margins, response = work.margins[: stop - start], data.response[start:stop]
        margins_of(data, z, start, stop, margins)
        work.out[0] = np.nan
        pieces.loss_value(data.loss_params, margins, response, work.out)
        risk += work.out[0]
    state.counts[COUNT.values] += 1
    state.counts[COUNT.records] += levels.sizes[level]
    penalty = gibbs_target.regularizer(target, pieces, z, work)
    return target.k * (risk / data.num_records + target.mu * penalty)


def evaluate_tangent(target, pieces, plan, state, w, gradient):
    """Return V at w and fill its gradient, with the levels."""
    return energy_gradient(target, pieces, plan.bounds, state, w, gradient)


def check_proposal(target, pieces, plan, state, rng, is_resumed):
    """Do as the tangent oracle, without its squeeze, which needs a curvature."""
    # P(gap <= threshold) = e^{-gap}, the acceptance probability.
    threshold = rng.standard_exponential()
    state.energy[0] = np.nan
    u_x = energy(target, pieces, plan.bounds, state, state.vectors[ROW.proposal])
    return alternation.compare_gap(target, pieces, plan.metric, state, threshold, u_x)


draw_given_y = alternation.compile_draw_given_y(evaluate_tangent, check_proposal)


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        alternation.draw_y(plan.metric, state, rng)
    return draw_given_y(target, pieces, plan, state, rng)


run = compile_run(step)
