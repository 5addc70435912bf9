# mypy: allow-untyped-defs
"""Gradient estimates: kernels that turn the records of a batch into one vector.

Let phi be a loss of the margin s = <a, w> + offset of a record with row a. The record's
*slope* is phi'(s), and its gradient is the slope times a. A batch is read in blocks. In
each the margins become slopes, slopes are limited by the estimator (for instance
clipped), and slopes times rows are summed (`add_margins`). Losses without a margin give
one gradient at a time (`add_records`). At the end sums become the estimate.

**Moreau envelopes.** Some estimators replace a loss f by its envelope min_v f(v) +
lambda/2 |w - v|^2. For a loss of the margin its gradient at w is g a, where g solves g
= phi'(s - c g) with c = |a|^2/lambda: s - c g is the proximal point of phi. The right
side decreases in g, so g lies between 0 and phi'(s). Where the slope is the same at s
and at s - c phi'(s), it is the envelope's. Every other record of a block has a
*bracket*, an interval that contains g. All brackets are narrowed together, because a
loss computes many slopes in one call. The *miss* of a guess g is phi'(s - c g) - g,
which is 0 at the solution.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.optimizers.loop.contributions import (
    add_softly,
    add_to_bucket,
    are_finite,
)
from dpsample.optimizers.loop.pieces import START
from dpsample.problem.records import add_transposed, margins_of


class Outcome(NamedTuple):
    """Codes that a kernel returns, in addition to PAUSED."""

    running: int = 0
    certified: int = 1
    failed: int = 2


OUTCOME = Outcome()
# Stage of the control record while an estimate is paused.
IN_ESTIMATE = 1
# Position, in the control record's ``saved`` numbers, of the cursor of the batch.
CURSOR = 0
AT_END = -1.0  # cursor of a batch that goes on in another window

# Rounds of tangents and secants, after which brackets are halved.
MAX_GUESSES = 12
MAX_ROUNDS = 80


class BracketRow(NamedTuple):
    """Rows of the matrix of brackets, which has one column per open bracket.

    The "high" end of a bracket is the one that began at phi'(s), of any sign.
    """

    record: int = 0  # number of the record in the block
    response: int = 1
    low: int = 2  # ends of the bracket
    high: int = 3
    guess: int = 4
    value_low: int = 5  # loss, slope and miss at each end
    value_high: int = 6
    slope_low: int = 7
    slope_high: int = 8
    miss_low: int = 9
    miss_high: int = 10
    value: int = 11  # margin before a call of the loss, phi after it
    slope: int = 12  # phi' after a call of the loss


ROW = BracketRow()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def own_slopes(data, loss, margins, response, slopes, out):
    """Fill ``slopes``, and margins with losses. Return False if the loss failed."""
    # The loss writes the sum of its values to out[0], unless it raises an exception.
    out[0] = np.nan
    loss.slope(data.loss_params, margins, response, slopes, out)
    return out[0] == out[0]


@kernel
def smooth_slopes(data, loss, records, count, memory):
    """Turn margins into slopes of the envelope, see `SLOPES`.

    Before the rounds ``low`` holds the losses at s and ``high`` the slopes there, and
    ``trial`` and ``slopes`` hold both at s - c phi'(s).
    """
    margins, slopes, trial = memory.margins, memory.slopes, memory.trial
    response, out = memory.response[:count], memory.out
    copy_into(margins[:count], trial[:count])
    if not own_slopes(data, loss, trial[:count], response, slopes[:count], out):
        return False
    copy_into(trial[:count], memory.low[:count])
    copy_into(slopes[:count], memory.high[:count])
    for i in range(count):
        c = records.norms[memory.rows[i]] ** 2 / records.smoothing
        trial[i] = margins[i] - c * slopes[i]
    if not own_slopes(data, loss, trial[:count], response, slopes[:count], out):
        return False
    num_open = 0
    for i in range(count):
        num_open += slopes[i] != memory.high[i]
    if num_open > 0:
        b = open_brackets(count, num_open, memory)
        for round_number in range(MAX_ROUNDS):
            for k in range(num_open):
                i = int(b[ROW.record, k])
                c = records.norms[memory.rows[i]] ** 2 / records.smoothing
                b[ROW.guess, k] = next_guess(b, k, c, round_number)
                b[ROW.value, k] = margins[i] - c * b[ROW.guess, k]
            values, labels = b[ROW.value][:num_open], b[ROW.response][:num_open]
            if not own_slopes(data, loss, values, labels, b[ROW.slope][:num_open], out):
                return False
            num_open = narrow(b, records, num_open, round_number, memory)
            if num_open == 0:
                break
    return True


@kernel
def open_brackets(count, num_open, memory):
    """Return brackets [0, phi'(s)] of the records whose slope differs at both ends."""
    b = np.zeros((len(ROW), num_open))
    k = 0
    for i in range(count):
        top, slope = memory.high[i], memory.slopes[i]
        if slope != top:
            b[ROW.record, k], b[ROW.response, k], b[ROW.high, k] = (
                i,
                memory.response[i],
                top,
            )
            b[ROW.value_low, k], b[ROW.value_high, k] = memory.low[i], memory.trial[i]
            b[ROW.slope_low, k], b[ROW.slope_high, k] = top, slope
            b[ROW.miss_low, k], b[ROW.miss_high, k] = top, slope - top
            k += 1
    return b


@kernel
def uses_tangents(b, k, round_number):
    """Return whether a jump makes this round try the point where two tangents meet."""
    jump = abs(b[ROW.slope_low, k] - b[ROW.slope_high, k])
    top = abs(b[ROW.slope_low, k]) + abs(b[ROW.slope_high, k])
    # The slope jumps if it changes by more than this share between the ends of a
    # bracket.
    return round_number < MAX_GUESSES and round_number % 2 == 0 and (jump > 1e-4 * top)


@kernel
def next_guess(b, k, c, round_number):
    """Return the next g to be evaluated in the k-th bracket.

    This is where the tangents of the loss at both ends meet, which is exact for two
    linear pieces, or the zero of the secant of the misses, or the middle.
    """
    width = b[ROW.high, k] - b[ROW.low, k]
    if uses_tangents(b, k, round_number):
        fall = (
            b[ROW.value_low, k]
            - b[ROW.value_high, k]
            - b[ROW.slope_high, k] * c * width
        )
        return b[ROW.low, k] + fall / (c * (b[ROW.slope_low, k] - b[ROW.slope_high, k]))
    if round_number < MAX_GUESSES:
        return b[ROW.low, k] + width * b[ROW.miss_low, k] / (
            b[ROW.miss_low, k] - b[ROW.miss_high, k]
        )
    return b[ROW.low, k] + 0.5 * width


@kernel
def narrow(b, records, num_open, round_number, memory):
    """Move an end of every bracket to its guess. Return how many are still open."""
    # Relative error at which a solution is accepted, a few roundings.
    rounding = 1e-15
    num_kept = 0
    for k in range(num_open):
        i = int(b[ROW.record, k])
        slope_guess = b[ROW.guess, k]
        miss = b[ROW.slope, k] - slope_guess
        c = records.norms[memory.rows[i]] ** 2 / records.smoothing
        # The margin's rounding error, times the mean phi'' of the bracket, moves phi'.
        curved = abs(b[ROW.slope_low, k] - b[ROW.slope_high, k]) / abs(
            b[ROW.high, k] - b[ROW.low, k]
        )
        tolerance = rounding * (abs(slope_guess) + curved / c * abs(memory.margins[i]))
        is_done = abs(miss) <= tolerance
        if uses_tangents(b, k, round_number):
            fall = b[ROW.slope_low, k] * c * (slope_guess - b[ROW.low, k])
            scale = abs(b[ROW.value_low, k]) + abs(
                b[ROW.slope_low, k] * memory.margins[i]
            )
            if (
                abs(b[ROW.value_low, k] - fall - b[ROW.value, k])
                <= 4.0 * rounding * scale
            ):
                # The guess lies on both tangents, so the loss is linear on either side
                # of their meeting point, and the envelope's slope is between.
                min_slope = min(b[ROW.slope_low, k], b[ROW.slope_high, k])
                slope_guess = min(
                    max(slope_guess, min_slope),
                    max(b[ROW.slope_low, k], b[ROW.slope_high, k]),
                )
                is_done = True
        if not is_done:
            if (miss > 0.0) == (b[ROW.high, k] > b[ROW.low, k]):
                b[ROW.low, k], b[ROW.value_low, k] = slope_guess, b[ROW.value, k]
                b[ROW.slope_low, k], b[ROW.miss_low, k] = b[ROW.slope, k], miss
                # Illinois variant of the secant method: the miss of the end that stays
                # is halved, so that it moves soon.
                b[ROW.miss_high, k] *= 0.5
            else:
                b[ROW.high, k], b[ROW.value_high, k] = slope_guess, b[ROW.value, k]
                b[ROW.slope_high, k], b[ROW.miss_high, k] = b[ROW.slope, k], miss
                b[ROW.miss_low, k] *= 0.5
            is_done = abs(b[ROW.high, k] - b[ROW.low, k]) <= rounding * abs(slope_guess)
        memory.slopes[i] = slope_guess
        if not is_done:
            for row in range(len(ROW)):
                b[row, num_kept] = b[row, k]
            num_kept += 1
    return num_kept


@kernel(fastmath={"reassoc"}, counts_references=False)
def dense_margins(dense, rows, count, theta, margins):
    """Fill margins with <a_i, theta> of the block's dense rows."""
    for i in range(count):
        row = rows[i]
        s = 0.0
        for j in range(dense.shape[1]):
            s += dense[row, j] * theta[j]
        margins[i] = s


@kernel(counts_references=False)
def scattered_margins(data, rows, count, theta, margins):
    """Fill margins with <a_i, theta> + offset_i of any rows."""
    if data.dense.shape[0] > 0:
        dense_margins(data.dense, rows, count, theta, margins)
    else:
        for i in range(count):
            s = 0.0
            for j in range(data.starts[rows[i]], data.starts[rows[i] + 1]):
                s += data.values[j] * theta[data.columns[j]]
            margins[i] = s
    if len(data.offset) > 0:
        for i in range(count):
            margins[i] += data.offset[rows[i]]


@kernel(counts_references=False)
def add_scattered(data, rows, count, slopes, out):
    """Add the sum of slopes[i] a_i of any rows."""
    dense = data.dense
    for i in range(count):
        row, s = rows[i], slopes[i]
        if dense.shape[0] > 0:
            for j in range(dense.shape[1]):
                out[j] += s * dense[row, j]
        else:
            for j in range(data.starts[row], data.starts[row + 1]):
                out[data.columns[j]] += s * data.values[j]


@kernel(counts_references=False)
def is_run(is_in_order, rows, count):
    """Return whether a block is a run of records, long enough for a matrix product.

    Samples are never runs, not even by chance. Otherwise one more record in a sample
    could change the last bits of all other margins, and the slopes of those at
    non-differentiable points. The privacy proof allows one record to change its own
    part only.
    """
    # Records in order from which a matrix product is faster than a loop.
    if is_in_order == 0 or count < 8:
        return False
    return count == rows[count - 1] - rows[0] + 1


@kernel(counts_references=False)
def keep_margins(count, memory):
    """Copy the block's margins, because the loss writes to them."""
    for i in range(count):
        memory.kept_margins[i] = memory.margins[i]


@kernel(counts_references=False)
def slopes_of(data, loss, records, count, memory):
    """Turn margins into slopes of the loss, see `SLOPES`."""
    margins, response = memory.margins[:count], memory.response[:count]
    slopes = memory.slopes[:count]
    return own_slopes(data, loss, margins, response, slopes, memory.out)


@kernel(counts_references=False)
def single_slopes(data, loss, functions, count, memory):
    """Compute a block's slopes one by one, NaN where the loss fails.

    A loss that raises an exception at one record leaves the rest of its block undone,
    and the losses of a block may cancel to NaN. Neither may change another record's
    part. For the same reason the margins of the first pass are used again. A sum in
    another order may differ in the last bit, which may cross a non-differentiable
    point.
    """
    rows, response, slopes = memory.kept_rows, memory.kept_response, memory.kept_slopes
    for i in range(count):
        rows[i], response[i] = memory.rows[i], memory.response[i]
    for i in range(count):
        memory.rows[0], memory.margins[0] = rows[i], memory.kept_margins[i]
        memory.response[0], memory.slopes[0] = response[i], np.nan
        succeeded = functions.slopes(data, loss, functions.records, 1, memory)
        slopes[i] = memory.slopes[0]
        if functions.records.smoothing > 0.0 and not succeeded:
            slopes[i] = np.nan
    for i in range(count):
        memory.rows[i], memory.slopes[i] = rows[i], slopes[i]


@kernel(counts_references=False)
def limited_slopes(data, loss, functions, count, memory):
    """Turn memory.margins into limited slopes. Return False if the loss failed."""
    is_total = functions.records.is_total != 0
    if is_total:
        keep_margins(count, memory)
    if not functions.slopes(data, loss, functions.records, count, memory):
        if not is_total:
            return False
        single_slopes(data, loss, functions, count, memory)
    if not (is_total or are_finite(memory.slopes, count)):
        return False
    functions.limit(functions.records, memory.rows, count, memory.slopes)
    return True


@kernel(counts_references=False)
def add_margins(data, loss, functions, is_in_order, theta, count, memory, rng):
    """Add the gradients of a block's losses of margins, see `ADD_BLOCK`."""
    rows, margins = memory.rows, memory.margins
    run = is_run(is_in_order, rows, count)
    if run:  # one BLAS call
        margins_of(data, theta, rows[0], rows[0] + count, margins[:count])
    else:
        scattered_margins(data, rows, count, theta, margins)
    for i in range(count):
        memory.response[i] = data.response[rows[i]]
    if not limited_slopes(data, loss, functions, count, memory):
        return False
    functions.add(functions.numbers, data, run, count, memory, rng)
    return True


@kernel(counts_references=False)
def add_records(data, loss, functions, is_in_order, theta, count, memory, rng):
    """Add single gradients of the block, see `ADD_BLOCK`.

    Where estimates are total, a gradient that is not finite counts as 0.
    """
    for i in range(count):
        row = memory.rows[i]
        memory.scratch[:] = np.nan
        loss.gradient(data.dense[row], data.response[row], theta, memory.scratch)
        if not are_finite(memory.scratch, len(memory.scratch)):
            if functions.records.is_total == 0:
                return False
            memory.scratch[:] = 0.0
        functions.add(functions.numbers, data, False, 1, memory, rng)
    return True


@kernel(counts_references=False)
def add_block(numbers, data, is_run, count, memory, rng):
    """Add the block's slopes times its rows to its own sum, see `ADD`.

    Sums of sums have smaller rounding errors, see `perturbations.rounding_excess`.
    """
    rows, slopes = memory.rows, memory.slopes
    if is_run:
        stop = rows[0] + count
        scratch, out = memory.scratch, memory.partial
        add_transposed(data, slopes[:count], rows[0], stop, scratch, out)
    else:
        add_scattered(data, rows, count, slopes, memory.partial)


@kernel(counts_references=False)
def fill_gradient(data, memory, i):
    """Fill memory.scratch with the gradient of the block's i-th record."""
    memory.scratch[:] = 0.0
    add_scattered(data, memory.rows[i:], 1, memory.slopes[i:], memory.scratch)


@kernel(counts_references=False)
def add_all_to_buckets(numbers, data, is_run, count, memory, rng):
    """Add each record's gradient to a random bucket, see `ADD`."""
    for i in range(count):
        fill_gradient(data, memory, i)
        add_to_bucket(numbers, data, False, 1, memory, rng)


@kernel(counts_references=False)
def add_all_softly(numbers, data, is_run, count, memory, rng):
    """Add each record's gradient, softly truncated, see `ADD`."""
    for i in range(count):
        fill_gradient(data, memory, i)
        add_softly(numbers, data, False, 1, memory, rng)


@kernel(counts_references=False)
def divide(numbers, divisor, memory):
    """Turn a sum into a mean, see `FINISH`."""
    for j in range(len(memory.gradient)):
        memory.gradient[j] /= divisor


@kernel(counts_references=False)
def central_means(numbers, divisor, memory):
    """Turn bucket sums into means of their central order statistics, see `FINISH`."""
    num_buckets, central = numbers.num_buckets, numbers.num_central
    skipped = (num_buckets - central) // 2
    for j in range(len(memory.gradient)):
        for b in range(num_buckets):  # insertion sort, as there are about a dozen
            value = memory.buckets[b, j]
            position = b
            while position > 0 and memory.sorted[position - 1] > value:
                memory.sorted[position] = memory.sorted[position - 1]
                position -= 1
            memory.sorted[position] = value
        total = 0.0
        for b in range(skipped, skipped + central):
            total += memory.sorted[b]
        # The divisor belongs to the whole batch, of which a bucket holds 1/num_buckets.
        memory.gradient[j] = total / central * num_buckets / divisor
    memory.buckets[:] = 0.0


@kernel(counts_references=False)
def estimate(data, loss, phase, t, theta, memory, rng):
    """Fill memory.gradient with the estimate of step ``t``, and return an `Outcome`.

    A total estimator never fails. A return of PAUSED, between two blocks of the batch,
    leads back to Python, for instance for Ctrl-C. The next call with the same arguments
    continues.
    """
    batches, estimator = phase.batches, phase.estimator
    control, cursor = memory.control[0], START
    if control.stage == IN_ESTIMATE:
        cursor = int(control.saved[CURSOR])
        control.stage = 0
    else:
        memory.gradient[:] = 0.0
    while True:
        count, cursor = batches.batch(batches.numbers, rng, t, cursor, memory.rows)
        if count > 0:
            memory.partial[:] = 0.0
            if not estimator.block(
                data,
                loss,
                estimator.functions,
                batches.is_in_order,
                theta,
                count,
                memory,
                rng,
            ):
                return OUTCOME.failed
            for j in range(len(memory.gradient)):
                memory.gradient[j] += memory.partial[j]
            memory.counts[0] += count
        if count < len(memory.rows):
            if batches.is_partial == 0:
                break
            control.stage, control.saved[CURSOR] = IN_ESTIMATE, AT_END
            return PAUSED
        if is_due(control):
            control.stage, control.saved[CURSOR] = IN_ESTIMATE, cursor
            return PAUSED
    estimator.finish(estimator.functions.numbers, estimator.divisor, memory)
    return OUTCOME.running
