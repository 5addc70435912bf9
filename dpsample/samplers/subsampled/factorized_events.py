# mypy: allow-untyped-defs
"""Poisson process of record events: the Metropolis factors' product from few records.

The chain of `factorized_metropolis` moves from x = c + delta to x' = c + delta', with
the anchor c. Record i *fires*, and rejects the move, with probability
1 - min(1, e^{rho_i(x) - rho_i(x')}) = 1 - e^{-(rho_i(x') - rho_i(x))^+}, where rho_i is
its Taylor remainder (see `taylor`), with the weight k / n. This is the probability that
a Poisson variable with the mean (rho_i(x') - rho_i(x))^+ is not 0. All these variables
are thinned from one Poisson process with the rate of their bounds, or drawn one by one.
With s_i = <a_i, delta>, the bound of a record has |s_i|^3, which is at most one of

    ||a_i||_2^3 ||delta||_2^3,    ||a_i||_{H^{-1}}^3 ||delta||_H^3,

    S_i^2 sum_j |a_ij| sd_j |delta_j / sd_j|^3,    S_i = sum_j |a_ij| sd_j.

The last one follows from Jensen's inequality, and is sharp for sparse rows. Each bound
is a weight of the record times a *cube*, the third power of a size of delta. There is a
*channel* of the process for each norm and for each coordinate. A record uses the bound
with the smallest mean under the Gaussian. Alias tables draw a record of a channel in
constant time (Walker, Vose).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array, Ints, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.problem.records import Data
from dpsample.samplers.chain import COUNT
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK
from dpsample.samplers.subsampled.taylor import TERM, Expansion
from dpsample.targets.gibbs import Gibbs, as_rows

# Bounds are raised by more than the rounding errors of norms and sums.
SLACK = 1.0 + 1e-9
# Number of records whose norms are computed together.
BLOCK = 4096
# Code of a rejected move, in addition to the codes of `errors`.
FIRED = -1
# Column of an alias table. Its fields are next to each other, so that a draw waits for
# memory once.
COLUMN = np.dtype([("share", np.float64), ("own", np.uint32), ("other", np.uint32)])


class MoveRow(NamedTuple):
    """Rows of the description of a move."""

    before: int = 0  # delta
    after: int = 1  # delta'
    cubes: int = 2  # cubes of all channels
    young_cubes: int = 3  # second bound of the coordinates' channels


MOVE = MoveRow()
# Point of the process at which a scan stopped.
Point = record_dtype(
    channel=int,
    rate_left=float,  # rest of the channel's rate, after the point
    num_points=int,  # so far
    mark=float,  # uniform number times the rate at the point, which decides if it fires
    before=float,  # s_i at x
    after=float,  # s_i at x'
)


@kernel
def fill_alias_table(weights, share, other):
    """Fill an alias table: column c yields c with probability share[c], or other[c].

    The weights of the columns need not sum to 1.
    """
    size = weights.shape[0]
    total = weights.sum()
    if not total > 0.0:
        return
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    num_small, num_large = 0, 0
    for c in range(size):
        share[c], other[c] = weights[c] * size / total, c
        if share[c] < 1.0:
            small[num_small] = c
            num_small += 1
        else:
            large[num_large] = c
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        lower, upper = small[num_small], large[num_large - 1]
        other[lower] = upper
        share[upper] -= 1.0 - share[lower]
        if share[upper] < 1.0:
            num_large -= 1
            small[num_small] = upper
            num_small += 1
    # The remaining shares differ from 1 by rounding errors.
    for t in range(num_small):
        share[small[t]] = 1.0
    for t in range(num_large):
        share[large[t]] = 1.0


@kernel
def fill_alias_tables(weights, labels, starts, table):
    """Fill one table for each segment starts[t] : starts[t + 1] of the weights."""
    share = np.ones(weights.shape[0])
    other = np.zeros(weights.shape[0], np.int64)
    for t in range(starts.shape[0] - 1):
        start, stop = starts[t], starts[t + 1]
        fill_alias_table(weights[start:stop], share[start:stop], other[start:stop])
        for c in range(start, stop):
            table[c]["share"] = share[c]
            table[c]["own"] = labels[c]
            table[c]["other"] = labels[start + other[c]]


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def draw_label(table, rng):
    """Draw a label from an alias table."""
    size = table.shape[0]
    position = rng.random() * size
    c = min(int(position), size - 1)
    # The fraction serves as a second uniform number. It has enough digits if the size
    # is far below 2^53.
    column = table[c]
    is_own = position - c < column["share"]
    return np.int64(column["own"] if is_own else column["other"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """Channels 0 .. dim - 1 of coordinates, dim of the norm of H, dim + 1 of l2."""

    spread: Array  # (dim,): standard deviations sd_j of the Gaussian
    coefficients: Array  # (num_records,): weight of each record's bound, with the scale
    weights: Array  # (dim + 2,): sum of coefficients (times |a_ij|) over the entries
    starts: Ints  # (dim + 3,): first entry of each channel
    table: NDArray[np.void]  # (num_entries,): alias table of each channel
    expected: float  # mean of the total rate for two independent draws of the Gaussian


def build_channels(target: Gibbs, expansion: Expansion, scale: float) -> Channels:
    """Choose the bound of each record, and fill the alias table of each channel.

    ``scale`` is the factor k M / (6 n) of all bounds. If it is 0 there are no entries.
    """
    dim, is_sparse = target.dim, target.data.dense.shape[0] == 0
    rows: Any = as_rows(target.data) if is_sparse else None
    spread = np.sqrt(np.einsum("ij,ij->i", expansion.factor, expansion.factor))
    displaced = expansion.probes @ expansion.factor.T
    # A bound of |rho_i| is a size of record i times one of delta, cubed. Its mean over
    # the probes is its cost, and each record takes the bound with the smallest cost.
    pair = expansion.probes, displaced
    cubes = np.array([np.mean(np.linalg.norm(x, axis=1) ** 3) for x in pair])
    sizes = np.concatenate(
        list(target.storage.map(_sizes_of, expansion.factor, spread))
    )
    shares = spread * np.mean(np.abs(displaced / spread) ** 3, axis=0)
    costs = sizes**3
    costs[:, :2] *= cubes
    if is_sparse:
        costs[:, 2] = sizes[:, 2] ** 2 * (abs(rows) @ shares)
    kind = np.argmin(costs[:, : 3 if is_sparse else 2], axis=1)
    powers = np.where(kind == 2, 2.0, 3.0)
    coefficients = scale * SLACK * sizes[np.arange(len(kind)), kind] ** powers
    starts, entries, weights = _segments(rows, kind, coefficients, dim)
    table = np.zeros(len(entries), dtype=COLUMN)
    fill_alias_tables(weights, entries, starts, table)
    channel_weights = [weights[a:b].sum() for a, b in pairwise(starts)]
    return Channels(
        spread=spread,
        coefficients=coefficients,
        weights=np.array(channel_weights),
        starts=starts,
        table=table,
        expected=float(2.0 * scale * costs[np.arange(len(kind)), kind].sum()),
    )


def _sizes_of(part: Data, factor: Array, spread: Array) -> Array:
    """Return `_sizes` of the records of a part, block by block."""
    rows, is_sparse = as_rows(part), part.dense.shape[0] == 0
    blocks = [rows[start : start + BLOCK] for start in range(0, rows.shape[0], BLOCK)]
    return np.concatenate([_sizes(b, factor, spread, is_sparse) for b in blocks])


def _sizes(part: Any, factor: Array, spread: Array, is_sparse: bool) -> Array:
    """Return the norm in H^{-1}, the l2 norm, and the weighted l1 norm of each row."""
    white = part @ factor
    squares = part.multiply(part).sum(axis=1) if is_sparse else (part * part).sum(1)
    flat: Array = abs(part) @ spread
    square = np.einsum("ij,ij->i", white, white)
    norms: Array = np.sqrt(
        np.stack([square, np.asarray(squares).ravel(), flat * flat], 1)
    )
    return norms


def _segments(
    rows: Any, kind: Ints, coefficients: Array, dim: int
) -> tuple[Ints, Ints, Array]:
    """Return starts, records and weights of all channels."""
    counts, records, weights = [np.zeros(dim, dtype=np.int64)], [], []
    if np.any(kind == 2):
        from scipy import sparse

        scaled = sparse.diags(np.where(kind == 2, coefficients, 0.0)) @ abs(rows)
        columns = scaled.tocsc()
        columns.eliminate_zeros()
        counts[0] = np.diff(columns.indptr).astype(np.int64)
        records.append(columns.indices.astype(np.int64))
        weights.append(columns.data)
    for norm in (0, 1):
        bounded = np.flatnonzero((kind == norm) & (coefficients > 0.0))
        counts.append(np.array([len(bounded)], dtype=np.int64))
        records.append(bounded)
        weights.append(coefficients[bounded])
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return starts, np.concatenate(records), np.concatenate(weights)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class FactorizedPlan(NamedTuple):
    """Fields of `Expansion` and `Channels`, with the same names, and numbers."""

    step: float  # share b of new noise
    anchor: Array
    shift: Array
    factor: Array
    whiten: Array
    is_triangular: bool  # whether the factor is an upper triangle
    slope: Array
    hessian: Array
    records: Array
    weight: float  # k / n
    cubic: float  # k M / (6 n)
    first: int  # first channel that has entries
    spread: Array
    coefficients: Array
    channel_weights: Array
    starts: Ints
    table: Any  # array of `COLUMN`


@kernel(counts_references=False)
def cube(before, after, change):
    """Return a bound of 6 (rho(s') - rho(s)) / M from sizes of s, s' and s' - s.

    One bound is |s|^3 + |s'|^3, because |rho(s)| <= M |s|^3 / 6. The other is
    3 |s' - s| max(|s|, |s'|)^2, because |rho'(s)| <= M s^2 / 2.
    """
    largest = max(before, after)
    power_sum = before * before * before + after * after * after
    return min(power_sum, 3.0 * change * largest * largest)


@kernel(fastmath={"reassoc", "contract"})
def norm_cube(before, after):
    """Return `cube` of the Euclidean norms of two vectors."""
    first, second, change = 0.0, 0.0, 0.0
    for j in range(before.shape[0]):
        first += before[j] * before[j]
        second += after[j] * after[j]
        change += (after[j] - before[j]) * (after[j] - before[j])
    return cube(np.sqrt(first), np.sqrt(second), np.sqrt(change))


@kernel(counts_references=False)
def fill_rates(plan, origin, proposal, moves):
    """Fill in the cubes of all channels, and return the total rate.

    ``origin`` and ``proposal`` are delta and delta' in coordinates in which the
    Gaussian is standard.
    """
    dim = plan.spread.shape[0]
    total = fill_coordinate_rates(plan, moves) if plan.first == 0 else 0.0
    moves[MOVE.cubes, dim] = norm_cube(origin, proposal)
    moves[MOVE.cubes, dim + 1] = norm_cube(
        moves[MOVE.before, :dim], moves[MOVE.after, :dim]
    )
    for norm in range(dim, dim + 2):
        total += plan.channel_weights[norm] * moves[MOVE.cubes, norm]
    return total


@kernel(counts_references=False)
def fill_coordinate_rates(plan, moves):
    """Fill in the cubes of the coordinates, and return their total rate.

    Only cubes add up over coordinates. So 3 |s' - s| max(|s|, |s'|)^2 is replaced by a
    bound, |s' - s|^3 / q^2 + 2 q max(|s|, |s'|)^3, which is Young's inequality. Any
    q > 0 is valid. The one used is the root mean square of s' - s, in standard
    deviations.
    """
    power_rate, young_rate = 0.0, 0.0
    q = np.sqrt(2.0 - 2.0 * np.sqrt(1.0 - plan.step * plan.step))
    for j in range(plan.spread.shape[0]):
        sd = plan.spread[j]
        before, after = abs(moves[MOVE.before, j]) / sd, abs(moves[MOVE.after, j]) / sd
        change = abs(moves[MOVE.after, j] - moves[MOVE.before, j]) / sd
        largest = max(before, after)
        moves[MOVE.cubes, j] = sd * (before * before * before + after * after * after)
        young = change * change * change / (q * q) + 2.0 * q * largest**3
        moves[MOVE.young_cubes, j] = sd * young
        power_rate += plan.channel_weights[j] * moves[MOVE.cubes, j]
        young_rate += plan.channel_weights[j] * moves[MOVE.young_cubes, j]
    if power_rate <= young_rate:
        return power_rate
    for j in range(plan.spread.shape[0]):
        moves[MOVE.cubes, j] = moves[MOVE.young_cubes, j]
    return young_rate


@kernel(fastmath={"reassoc", "contract"})
def dense_sums(row, before, after):
    """Return <row, before> and <row, after>."""
    first, second = 0.0, 0.0
    for j in range(row.shape[0]):
        first += row[j] * before[j]
        second += row[j] * after[j]
    return first, second


@kernel(counts_references=False)
def sparse_sums(values, columns, moves):
    """Return the products of a row with delta and delta', and of |row| with cubes."""
    before, after, cubes = 0.0, 0.0, 0.0
    for t in range(values.shape[0]):
        value, j = values[t], columns[t]
        before += value * moves[MOVE.before, j]
        after += value * moves[MOVE.after, j]
        cubes += abs(value) * moves[MOVE.cubes, j]
    return before, after, cubes


@kernel(counts_references=False)
def remainder(loss, params, response, record, s, out):
    """Return rho_i at s_i = s and its rounding error, NaN if the loss failed.

    ``record`` is the record's row of the expansion.
    """
    first, second = record[TERM.slope] * s, 0.5 * record[TERM.curvature] * s * s
    out[0] = np.nan
    loss(params, record[TERM.margin] + s, response, out)
    # Relative rounding error of a remainder, which is a difference of losses.
    error = 1e-13 * (abs(out[0]) + abs(record[TERM.loss]) + abs(first) + second + 1.0)
    return ((out[0] - record[TERM.loss]) - first) - second, error


@kernel(counts_references=False)
def rejection_rate(loss, params, response, record, scales, before, after, out):
    """Return k / n times (rho_i(x') - rho_i(x))^+, and a code.

    ``before`` and ``after`` are s_i at x and x'.
    """
    first, error = remainder(loss, params, response, record, before, out)
    second, other_error = remainder(loss, params, response, record, after, out)
    if np.isnan(first) or np.isnan(second):
        return 0.0, FUNCTION_FAILED
    weight, cubic = scales
    bound = cubic * cube(abs(before), abs(after), abs(after - before))
    bound += weight * (error + other_error)
    if weight * abs(second - first) > bound * SLACK:
        return 0.0, BOUND_VIOLATED
    return weight * max(second - first, 0.0), OK


@kernel(counts_references=False)
def find_point(features, channels, coefficients, cubic, moves, point, rng):
    """Return the record of the next point that may fire, or -1 at the end.

    The loop reads arrays that were taken from the target before it. Loading them in
    every iteration would take longer than a record.
    """
    dense, values, columns, rows = features
    weights, starts, table = channels
    dim, channel, left = moves.shape[1] - 2, point[0].channel, point[0].rate_left
    cubes = 0.0
    while True:
        left -= rng.standard_exponential()
        while left < 0.0:
            channel += 1
            if channel == dim + 2:
                return -1
            # Points of channels are independent, so the first one has a waiting time
            # of its own.
            left = weights[channel] * moves[MOVE.cubes, channel]
            left -= rng.standard_exponential()
        first = starts[channel]
        i = draw_label(table[first : starts[channel + 1]], rng)
        if dense.shape[0] > 0:
            before, after = dense_sums(dense[i], moves[MOVE.before], moves[MOVE.after])
        else:
            row = slice(rows[i], rows[i + 1])
            before, after, cubes = sparse_sums(values[row], columns[row], moves)
        level = cubes if channel < dim else moves[MOVE.cubes, channel]
        mark = rng.random() * coefficients[i] * level
        point[0].num_points += 1
        # The bound of s_i itself is much smaller, so most points need no loss.
        if mark <= cubic * cube(abs(before), abs(after), abs(after - before)):
            point[0].channel, point[0].rate_left, point[0].mark = channel, left, mark
            point[0].before, point[0].after = before, after
            return i


@kernel(counts_references=False)
def decide_by_events(target, pieces, plan, state, moves, rng):
    """Go through the points of the process until a record fires. Return a code."""
    data, point, out = target.data, state.workspace.point, state.work.out
    features = data.dense, data.values, data.columns, data.starts
    channels = plan.channel_weights, plan.starts, plan.table
    loss, params = pieces.loss_record, data.loss_params
    scales = plan.weight, plan.cubic
    # The first channel begins with its first point.
    point[0].channel, point[0].rate_left, point[0].num_points = plan.first - 1, 0.0, 0
    code = OK
    while code == OK:
        i = find_point(
            features, channels, plan.coefficients, plan.cubic, moves, point, rng
        )
        if i < 0:
            break
        y, record = data.response[i], plan.records[i]
        before, after = point[0].before, point[0].after
        rate, code = rejection_rate(loss, params, y, record, scales, before, after, out)
        # The mark is uniform below the rate of the bound.
        if code == OK and point[0].mark < rate:
            code = FIRED
    state.counts[COUNT.records] += point[0].num_points
    return code


@kernel(counts_references=False)
def decide_by_all_records(target, pieces, plan, state, moves, rng):
    """Test record by record, until the product is decided. Return a code.

    The product of e^{-rate} is compared with a uniform number, the sum of the rates
    with its exponential variable.
    """
    data, out, left = target.data, state.work.out, rng.standard_exponential()
    loss, params = pieces.loss_record, data.loss_params
    scales = plan.weight, plan.cubic
    for i in range(data.num_records):
        if data.dense.shape[0] > 0:
            before, after = dense_sums(
                data.dense[i], moves[MOVE.before], moves[MOVE.after]
            )
        else:
            row = slice(data.starts[i], data.starts[i + 1])
            values, columns = data.values[row], data.columns[row]
            before, after, _ = sparse_sums(values, columns, moves)
        state.counts[COUNT.records] += 1
        y, record = data.response[i], plan.records[i]
        rate, code = rejection_rate(loss, params, y, record, scales, before, after, out)
        if code != OK:
            return code
        left -= rate
        if left < 0.0:
            return FIRED
    return OK
