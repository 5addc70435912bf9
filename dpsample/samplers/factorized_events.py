r"""The product of a Metropolis factor per record, by a Poisson process or term by term.

Record i fires with probability 1 - min(1, e^{rho_i(x) - rho_i(x')}) =
1 - e^{-(rho_i(x') - rho_i(x))^+}: the probability that a Poisson variable with that
mean is not 0. All of them are thinned from one process at the rate of their bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.samplers import alias_table
from dpsample.samplers.chain import RECORDS
from dpsample.samplers.errors import BOUND_VIOLATED, OK, PIECE_FAILED

Array = NDArray[np.float64]

FIRED = -1
NUM_ROWS = 7  # of scratch memory before the numbers of a scan
NUM_FOUND = 6
# Relative rounding error of a remainder, which is a difference of losses.
ROUNDING = 1e-13
SLACK = 1.0 + 1e-9


class Plan(NamedTuple):
    """Expansion, bounds and alias tables; see `taylor` and `event_bounds`."""

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
    starts: NDArray[np.int64]
    table: Any  # array of `alias_table.COLUMN`


@kernel
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


@kernel
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


@kernel
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


@kernel
def sparse_sums(values, columns, moves):
    """Return <row, before>, <row, after> and <|row|, cubes>."""
    here, there, cubes = 0.0, 0.0, 0.0
    for t in range(values.shape[0]):
        value, j = values[t], columns[t]
        here += value * moves[0, j]
        there += value * moves[1, j]
        cubes += abs(value) * moves[2, j]
    return here, there, cubes


@kernel
def remainder(loss, params, response, record, s, out):
    """Return rho_i at s_i = s and its rounding error; NaN if the loss failed."""
    first, second = record[2] * s, 0.5 * record[3] * s * s
    out[0] = np.nan
    loss(params, record[0] + s, response, out)
    error = ROUNDING * (abs(out[0]) + abs(record[1]) + abs(first) + second + 1.0)
    return ((out[0] - record[1]) - first) - second, error


@kernel
def excess(loss, params, response, record, scales, here, there, out):
    """Return k / n times (rho_i(x') - rho_i(x))^+, and a code."""
    before, error = remainder(loss, params, response, record, here, out)
    after, other_error = remainder(loss, params, response, record, there, out)
    if np.isnan(before) or np.isnan(after):
        return 0.0, PIECE_FAILED
    weight, cubic = scales
    bound = cubic * cube(abs(here), abs(there), abs(there - here))
    bound += weight * (error + other_error)
    if weight * abs(after - before) > bound * SLACK:
        return 0.0, BOUND_VIOLATED
    return weight * max(after - before, 0.0), OK


@kernel
def scan(features, channels, coefficients, cubic, moves, found, rng):
    """Walk through the points of the channels; the record of one that can fire, or -1.

    ``found`` is channel, rate left there, points so far, mark, s_i, s'_i. The inner
    loop gets arrays: to unpack a target in it costs more than to read a record.
    """
    dense, values, columns, rows = features
    weights, starts, table = channels
    dim, channel, left = moves.shape[1] - 2, int(found[0]), found[1]
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
        i = alias_table.draw(table[first : starts[channel + 1]], rng)
        if dense.shape[0] > 0:
            here, there = dense_sums(dense[i], moves[0], moves[1])
        else:
            row = slice(rows[i], rows[i + 1])
            here, there, cubes = sparse_sums(values[row], columns[row], moves)
        level = cubes if channel < dim else moves[2, channel]
        mark = rng.random() * coefficients[i] * level
        found[2] += 1.0
        # Most points end here: s_i is known, and its own bound much smaller.
        if mark <= cubic * cube(abs(here), abs(there), abs(there - here)):
            found[0], found[1], found[3] = channel, left, mark
            found[4], found[5] = here, there
            return i


@kernel
def thin(target, pieces, plan, state, moves, rng):
    """Walk through the Poisson process until a point fires or it ends."""
    data, found, out = target.data, state.scratch[NUM_ROWS:].reshape(-1), state.work.out
    features = data.dense, data.values, data.columns, data.starts
    channels = plan.channel_weights, plan.starts, plan.table
    found[0], found[1], found[2] = plan.first - 1, 0.0, 0.0
    code = OK
    while code == OK:
        i = scan(features, channels, plan.coefficients, plan.cubic, moves, found, rng)
        if i < 0:
            break
        penalty, code = excess(
            pieces.loss_record,
            data.loss_params,
            data.response[i],
            plan.records[i],
            (plan.weight, plan.cubic),
            found[4],
            found[5],
            out,
        )
        if code == OK and found[3] < penalty:
            code = FIRED
    state.counts[RECORDS] += int(found[2])
    return code


@kernel
def check_all(target, pieces, plan, state, moves, rng):
    """Toss the coin of the product, record by record, until it is decided."""
    data, out, left = target.data, state.work.out, rng.standard_exponential()
    for i in range(data.num_records):
        if data.dense.shape[0] > 0:
            here, there = dense_sums(data.dense[i], moves[0], moves[1])
        else:
            row = slice(data.starts[i], data.starts[i + 1])
            here, there, _ = sparse_sums(data.values[row], data.columns[row], moves)
        state.counts[RECORDS] += 1
        penalty, code = excess(
            pieces.loss_record,
            data.loss_params,
            data.response[i],
            plan.records[i],
            (plan.weight, plan.cubic),
            here,
            there,
            out,
        )
        if code != OK:
            return code
        left -= penalty
        if left < 0.0:
            return FIRED
    return OK
