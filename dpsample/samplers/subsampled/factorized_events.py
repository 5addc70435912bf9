# mypy: allow-untyped-defs
"""Poisson process of record events: the Metropolis factors' product from few records.

Record i fires with probability 1 - min(1, e^{rho_i(x) - rho_i(x')}) =
1 - e^{-(rho_i(x') - rho_i(x))^+}: the probability that a Poisson variable with that
mean is not 0. All of them are thinned from one process at the rate of their bounds, or
tried term by term. A record's |s_i|^3, s_i = <a_i, delta>, is bounded by one of

    ||a_i||_2^3 ||delta||_2^3,    ||a_i||_{H^{-1}}^3 ||delta||_H^3,

    S_i^2 sum_j |a_ij| sd_j |delta_j / sd_j|^3,    S_i = sum_j |a_ij| sd_j,

the last by Jensen's inequality, sharp for sparse rows. Each is a weight of the record
times a cube of the displacement: one channel per norm and per coordinate. A record
takes the bound with the smallest mean under the Gaussian. Alias tables draw a record of
a channel in constant time (Walker, Vose).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.problem.records import Data
from dpsample.samplers.chain import RECORDS
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK
from dpsample.samplers.subsampled.taylor import Expansion
from dpsample.targets.gibbs import Gibbs, as_rows

# Covers the rounding of norms and sums.
SLACK = 1.0 + 1e-9
BLOCK = 4096
FIRED = -1
NUM_ROWS = 7  # of scratch memory before the numbers of a scan
NUM_FOUND = 6
# Relative rounding error of a remainder, which is a difference of losses.
ROUNDING = 1e-13
# One column in one place: a draw waits for memory once.
COLUMN = np.dtype([("share", np.float64), ("own", np.uint32), ("other", np.uint32)])


@kernel
def fill(weights, share, other):
    """Fill the table of one law: column c keeps c with probability share[c].

    The rest of column c belongs to other[c]. Weights need not sum to 1.
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
        poor, rich = small[num_small], large[num_large - 1]
        other[poor] = rich
        share[rich] -= 1.0 - share[poor]
        if share[rich] < 1.0:
            num_large -= 1
            small[num_small] = rich
            num_small += 1
    # What is left differs from 1 by rounding only.
    for t in range(num_small):
        share[small[t]] = 1.0
    for t in range(num_large):
        share[large[t]] = 1.0


@kernel
def fill_all(weights, labels, starts, table):
    """Fill one table for each segment starts[t] : starts[t + 1] of the weights."""
    share = np.ones(weights.shape[0])
    other = np.zeros(weights.shape[0], np.int64)
    for t in range(starts.shape[0] - 1):
        start, stop = starts[t], starts[t + 1]
        fill(weights[start:stop], share[start:stop], other[start:stop])
        for c in range(start, stop):
            table[c]["share"] = share[c]
            table[c]["own"] = labels[c]
            table[c]["other"] = labels[start + other[c]]


@kernel(counts_references=False)
def draw(table, rng):
    """Draw a label."""
    size = table.shape[0]
    place = rng.random() * size
    c = min(int(place), size - 1)
    # The fraction is as good as a second uniform number while size is far below 2^53.
    column = table[c]
    return np.int64(column["own"] if place - c < column["share"] else column["other"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """Channels 0 .. dim - 1 are coordinates, dim the norm of H, dim + 1 of l2."""

    spread: Array  # (dim,): standard deviations sd_j of the Gaussian
    coefficients: Array  # (num_records,): weight of each record's bound, with the scale
    weights: Array  # (dim + 2,): sum of coefficients (times |a_ij|) over the entries
    starts: Ints  # (dim + 3,): first entry of each channel
    table: NDArray[np.void]  # (num_entries,): alias table of each channel
    expected: float  # mean of the total rate for two independent draws of the Gaussian


def channels(target: Gibbs, expansion: Expansion, scale: float) -> Channels:
    """Give each record its bound and each channel its alias table.

    ``scale`` is the factor k M / (6 n) of all bounds; with 0 there are no entries.
    """
    dim, is_sparse = target.dim, target.data.dense.shape[0] == 0
    rows: Any = as_rows(target.data) if is_sparse else None
    spread = np.sqrt(np.einsum("ij,ij->i", expansion.factor, expansion.factor))
    displaced = expansion.probes @ expansion.factor.T
    pair = expansion.probes, displaced
    cubes = np.array([np.mean(np.linalg.norm(x, axis=1) ** 3) for x in pair])
    found = target.storage.map(_sizes_of, expansion.factor, spread)
    sizes = np.concatenate(list(found))
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
    fill_all(weights, entries, starts, table)
    parts = [weights[a:b].sum() for a, b in pairwise(starts)]
    return Channels(
        spread=spread,
        coefficients=coefficients,
        weights=np.array(parts),
        starts=starts,
        table=table,
        expected=float(2.0 * scale * costs[np.arange(len(kind)), kind].sum()),
    )


def _sizes_of(part: Data, factor: Array, spread: Array) -> Array:
    """`_sizes` of the records of a part."""
    rows, is_sparse = as_rows(part), part.dense.shape[0] == 0
    blocks = [rows[start : start + BLOCK] for start in range(0, rows.shape[0], BLOCK)]
    return np.concatenate([_sizes(b, factor, spread, is_sparse) for b in blocks])


def _sizes(part: Any, factor: Array, spread: Array, is_sparse: bool) -> Array:
    """Norm in H^{-1}, norm in l2, and weighted l1 norm of each row."""
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


@by_address
class FactorizedPlan(NamedTuple):
    """Expansion, bounds and alias tables; see `taylor` and `channels`."""

    step: float  # share b of fresh noise
    anchor: Array
    shift: Array
    factor: Array
    whiten: Array
    is_triangular: bool  # factor: upper
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
    """Bound of (|s'|^3 - |s|^3 and) 6 (rho(s') - rho(s)) / M from sizes of s, s'.

    Both |rho(s)| + |rho(s')| and |s' - s| sup |rho'|, |rho'(s)| <= M s^2 / 2.
    """
    largest = max(before, after)
    both = before * before * before + after * after * after
    return min(both, 3.0 * change * largest * largest)


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
def fill_rates(plan, origin, there, moves):
    """Return the total rate and fill moves[2] with the cubes of all channels.

    For coordinates the product 3 |s' - s| max(|s|, |s'|)^2 is split by Young's
    inequality, t^3 / q^2 + 2 q m^3 for any q > 0, since cubes are what adds up.
    """
    dim = plan.spread.shape[0]
    total = coordinate_rates(plan, moves) if plan.first == 0 else 0.0
    moves[2, dim] = norm_cube(origin, there)
    moves[2, dim + 1] = norm_cube(moves[0, :dim], moves[1, :dim])
    for norm in range(dim, dim + 2):
        total += plan.channel_weights[norm] * moves[2, norm]
    return total


@kernel(counts_references=False)
def coordinate_rates(plan, moves):
    """Fill moves[2] with the coordinates' cubes and return their total rate."""
    apart, joint = 0.0, 0.0
    q = np.sqrt(2.0 - 2.0 * np.sqrt(1.0 - plan.step * plan.step))
    for j in range(plan.spread.shape[0]):
        sd = plan.spread[j]
        before, after = abs(moves[0, j]) / sd, abs(moves[1, j]) / sd
        change, largest = abs(moves[1, j] - moves[0, j]) / sd, max(before, after)
        moves[2, j] = sd * (before * before * before + after * after * after)
        young = change * change * change / (q * q) + 2.0 * q * largest**3
        moves[3, j] = sd * young
        apart += plan.channel_weights[j] * moves[2, j]
        joint += plan.channel_weights[j] * moves[3, j]
    if apart <= joint:
        return apart
    for j in range(plan.spread.shape[0]):
        moves[2, j] = moves[3, j]
    return joint


@kernel(fastmath={"reassoc", "contract"})
def dense_sums(row, before, after):
    """Return <row, before> and <row, after>."""
    here, there = 0.0, 0.0
    for j in range(row.shape[0]):
        here += row[j] * before[j]
        there += row[j] * after[j]
    return here, there


@kernel(counts_references=False)
def sparse_sums(values, columns, moves):
    """Return <row, before>, <row, after> and <|row|, cubes>."""
    here, there, cubes = 0.0, 0.0, 0.0
    for t in range(values.shape[0]):
        value, j = values[t], columns[t]
        here += value * moves[0, j]
        there += value * moves[1, j]
        cubes += abs(value) * moves[2, j]
    return here, there, cubes


@kernel(counts_references=False)
def remainder(loss, params, response, record, s, out):
    """Return rho_i at s_i = s and its rounding error; NaN if the loss failed."""
    first, second = record[2] * s, 0.5 * record[3] * s * s
    out[0] = np.nan
    loss(params, record[0] + s, response, out)
    error = ROUNDING * (abs(out[0]) + abs(record[1]) + abs(first) + second + 1.0)
    return ((out[0] - record[1]) - first) - second, error


@kernel(counts_references=False)
def excess(loss, params, response, record, scales, here, there, out):
    """Return k / n times (rho_i(x') - rho_i(x))^+, and a code."""
    before, error = remainder(loss, params, response, record, here, out)
    after, other_error = remainder(loss, params, response, record, there, out)
    if np.isnan(before) or np.isnan(after):
        return 0.0, FUNCTION_FAILED
    weight, cubic = scales
    bound = cubic * cube(abs(here), abs(there), abs(there - here))
    bound += weight * (error + other_error)
    if weight * abs(after - before) > bound * SLACK:
        return 0.0, BOUND_VIOLATED
    return weight * max(after - before, 0.0), OK


@kernel(counts_references=False)
def scan(features, channels, coefficients, cubic, moves, walk, rng):
    """Walk through the points of the channels; the record of one that can fire, or -1.

    ``walk`` is channel, rate left there, points so far, mark, s_i, s'_i. The inner
    loop gets arrays: to unpack a target in it costs more than to read a record.
    """
    dense, values, columns, rows = features
    weights, starts, table = channels
    dim, channel, left = moves.shape[1] - 2, int(walk[0]), walk[1]
    cubes = 0.0
    while True:
        left -= rng.standard_exponential()
        while left < 0.0:
            channel += 1
            if channel == dim + 2:
                return -1
            # Points of another channel are independent: a wait of its own.
            left = weights[channel] * moves[2, channel] - rng.standard_exponential()
        first = starts[channel]
        i = draw(table[first : starts[channel + 1]], rng)
        if dense.shape[0] > 0:
            here, there = dense_sums(dense[i], moves[0], moves[1])
        else:
            row = slice(rows[i], rows[i + 1])
            here, there, cubes = sparse_sums(values[row], columns[row], moves)
        level = cubes if channel < dim else moves[2, channel]
        mark = rng.random() * coefficients[i] * level
        walk[2] += 1.0
        # Most points end here: s_i is known, and its own bound much smaller.
        if mark <= cubic * cube(abs(here), abs(there), abs(there - here)):
            walk[0], walk[1], walk[3] = channel, left, mark
            walk[4], walk[5] = here, there
            return i


@kernel(counts_references=False)
def thin(target, pieces, plan, state, moves, rng):
    """Walk through the Poisson process until a point fires or it ends."""
    data, walk, out = target.data, state.scratch[NUM_ROWS:].reshape(-1), state.work.out
    features = data.dense, data.values, data.columns, data.starts
    channels = plan.channel_weights, plan.starts, plan.table
    loss, params = pieces.loss_record, data.loss_params
    scales = plan.weight, plan.cubic
    walk[0], walk[1], walk[2] = plan.first - 1, 0.0, 0.0
    code = OK
    while code == OK:
        i = scan(features, channels, plan.coefficients, plan.cubic, moves, walk, rng)
        if i < 0:
            break
        y, record = data.response[i], plan.records[i]
        penalty, code = excess(loss, params, y, record, scales, walk[4], walk[5], out)
        if code == OK and walk[3] < penalty:
            code = FIRED
    state.counts[RECORDS] += int(walk[2])
    return code


@kernel(counts_references=False)
def check_all(target, pieces, plan, state, moves, rng):
    """Toss the coin of the product, record by record, until it is decided."""
    data, out, left = target.data, state.work.out, rng.standard_exponential()
    loss, params = pieces.loss_record, data.loss_params
    scales = plan.weight, plan.cubic
    for i in range(data.num_records):
        if data.dense.shape[0] > 0:
            here, there = dense_sums(data.dense[i], moves[0], moves[1])
        else:
            row = slice(data.starts[i], data.starts[i + 1])
            here, there, _ = sparse_sums(data.values[row], data.columns[row], moves)
        state.counts[RECORDS] += 1
        y, record = data.response[i], plan.records[i]
        penalty, code = excess(loss, params, y, record, scales, here, there, out)
        if code != OK:
            return code
        left -= penalty
        if left < 0.0:
            return FIRED
    return OK
