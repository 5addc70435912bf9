r"""The product of a Metropolis factor per record, by a Poisson process or term by term.

Record i fires with probability 1 - min(1, e^{rho_i(x) - rho_i(x')}) =
1 - e^{-(rho_i(x') - rho_i(x))^+}: the probability that a Poisson variable with that
mean is not 0. All of them are thinned from one process at the rate of their bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.samplers import alias_table
from dpsample.samplers.chain import RECORDS
from dpsample.samplers.errors import BOUND_VIOLATED, OK, PIECE_FAILED

Array = NDArray[np.float64]

FIRED = -1
# Relative rounding error of a remainder, which is a difference of losses.
ROUNDING = 1e-13


class Plan(NamedTuple):
    """Expansion, bounds and alias tables; see `taylor` and `event_bounds`."""

    step: float  # share b of fresh noise
    anchor: Array
    shift: Array
    factor: Array
    whiten: Array
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
    entries: NDArray[np.int64]
    share: Array
    other: NDArray[np.int64]


@kernel
def cube(before, after, change):
    """Bound of (|s'|^3 - |s|^3 and) 6 (rho(s') - rho(s)) / M from sizes of s, s'.

    Both |rho(s)| + |rho(s')| and |s' - s| sup |rho'|, |rho'(s)| <= M s^2 / 2.
    """
    largest = max(before, after)
    both = before * before * before + after * after * after
    return min(both, 3.0 * change * largest * largest)


@kernel
def fill_rates(plan, origin, there, moves):
    """Return the total rate and the cubes of both norms; fill moves[2].

    For coordinates the product 3 |s' - s| max(|s|, |s'|)^2 is split by Young's
    inequality, t^3 / q^2 + 2 q m^3 for any q > 0, since cubes are what adds up.
    """
    dim = moves.shape[1]
    h_before, h_after, h_change = 0.0, 0.0, 0.0
    for i in range(origin.shape[0]):
        h_before += origin[i] * origin[i]
        h_after += there[i] * there[i]
        h_change += (there[i] - origin[i]) ** 2
    l_before, l_after, l_change = 0.0, 0.0, 0.0
    for j in range(dim):
        l_before += moves[0, j] * moves[0, j]
        l_after += moves[1, j] * moves[1, j]
        l_change += (moves[1, j] - moves[0, j]) ** 2
    h_cube = cube(np.sqrt(h_before), np.sqrt(h_after), np.sqrt(h_change))
    l_cube = cube(np.sqrt(l_before), np.sqrt(l_after), np.sqrt(l_change))
    total = plan.channel_weights[dim] * h_cube + plan.channel_weights[dim + 1] * l_cube
    if plan.first == 0:
        total += coordinate_rates(plan, moves)
    return total, h_cube, l_cube


@kernel
def coordinate_rates(plan, moves):
    """Fill moves[2] with the coordinates' cubes and return their total rate."""
    apart, joint = 0.0, 0.0
    q = np.sqrt(2.0 - 2.0 * np.sqrt(1.0 - plan.step * plan.step))
    for j in range(moves.shape[1]):
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
    for j in range(moves.shape[1]):
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
def sums(data, i, moves):
    """Return s_i, s'_i and sum_j |a_ij| cube_j (0 for dense features)."""
    if data.dense.shape[0] > 0:
        here, there = dense_sums(data.dense[i], moves[0], moves[1])
        return here, there, 0.0
    here, there, cubes = 0.0, 0.0, 0.0
    for t in range(data.starts[i], data.starts[i + 1]):
        value, j = data.values[t], data.columns[t]
        here += value * moves[0, j]
        there += value * moves[1, j]
        cubes += abs(value) * moves[2, j]
    return here, there, cubes


@kernel
def remainder(target, pieces, plan, i, s, out):
    """Return (k / n) rho_i at s_i = s and its rounding error; NaN if a piece failed."""
    margin, value = plan.records[i, 0], plan.records[i, 1]
    first, second = plan.records[i, 2] * s, 0.5 * plan.records[i, 3] * s * s
    out[0] = np.nan
    data = target.data
    pieces.loss_record(data.loss_params, margin + s, data.response[i], out)
    error = ROUNDING * (abs(out[0]) + abs(value) + abs(first) + second + 1.0)
    return plan.weight * (((out[0] - value) - first) - second), plan.weight * error


@kernel
def excess(target, pieces, plan, i, here, there, out):
    """Return (rho_i(x') - rho_i(x))^+ times k / n, and a code."""
    before, error = remainder(target, pieces, plan, i, here, out)
    after, other_error = remainder(target, pieces, plan, i, there, out)
    if np.isnan(before) or np.isnan(after):
        return 0.0, PIECE_FAILED
    bound = plan.cubic * cube(abs(here), abs(there), abs(there - here))
    if abs(after - before) > bound * (1.0 + 1e-9) + error + other_error:
        return 0.0, BOUND_VIOLATED
    return max(after - before, 0.0), OK


@kernel
def check_all(target, pieces, plan, state, moves, rng):
    """Toss the coin of the product, record by record, until it is decided."""
    left = rng.standard_exponential()
    for i in range(target.data.num_records):
        here, there, _ = sums(target.data, i, moves)
        state.counts[RECORDS] += 1
        penalty, code = excess(target, pieces, plan, i, here, there, state.work.out)
        if code != OK:
            return code
        left -= penalty
        if left < 0.0:
            return FIRED
    return OK


@kernel
def thin(target, pieces, plan, state, moves, rates, rng):
    """Walk through the Poisson process until a point fires or the process ends."""
    total, h_cube, l_cube = rates
    dim = moves.shape[1]
    place, edge, channel = rng.standard_exponential(), 0.0, plan.first - 1
    level = 0.0
    while place < total:
        while place >= edge and channel < dim + 1:
            channel += 1
            if channel < dim:
                level = moves[2, channel]
            else:
                level = h_cube if channel == dim else l_cube
            edge += plan.channel_weights[channel] * level
        if plan.starts[channel] == plan.starts[channel + 1]:
            break  # rounding put the end of the process behind the last channel
        place += rng.standard_exponential()
        entry = alias_table.draw(
            plan.share, plan.other, plan.starts[channel], plan.starts[channel + 1], rng
        )
        i = plan.entries[entry]
        here, there, cubes = sums(target.data, i, moves)
        state.counts[RECORDS] += 1
        bound = plan.coefficients[i] * (cubes if channel < dim else level)
        mark = rng.random() * bound
        # Most points end here: s_i is known now, and its own bound is much smaller.
        if mark > plan.cubic * cube(abs(here), abs(there), abs(there - here)):
            continue
        penalty, code = excess(target, pieces, plan, i, here, there, state.work.out)
        if code != OK:
            return code
        if mark < penalty:
            return FIRED
    return OK
