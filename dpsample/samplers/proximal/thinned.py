# mypy: allow-untyped-defs
r"""Thinned oracle: the proximal sampler's exact test from a few random records.

The tangent oracle accepts a proposal with probability exp(-(1/n) sum_i g_i), where

    g_i = k (f_i(x) - f_i(w) - s_i <a_i, x - w>)    in [0, B],    s_i = phi_i'(w),

times a factor of the regularizer alone. Here Poisson(B) tests of random records, each
passed with probability 1 - g_i / B, must all be passed: the same probability, and the
same proof. B = k min(D ||x - w||, beta / 2 ||x - w||^2), with D the largest change of a
record's gradient on the domain and beta its Lipschitz constant.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.problem import records
from dpsample.samplers import record_terms
from dpsample.samplers.chain import GRADIENTS, RECORDS, ChainState, compile_run
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK, NoCertificate
from dpsample.samplers.proximal import alternation
from dpsample.samplers.record_terms import loss, margin
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

ROUNDING = 1e-12
MARGIN, VALUE, SLOPE = range(3)  # rows of a state's tangents
# What a conditional draw keeps that is paused among the tests of a proposal: B, and the
# time of the next test.
LARGEST, TIME = alternation.TRIES + 1, alternation.TRIES + 2


class Bounds(NamedTuple):
    """k D and k beta; one of them may be infinite."""

    slope_range: float
    smoothness: float


@by_address
class ThinnedWork(NamedTuple):
    """As the proximal sampler's, and what is known of all records at w."""

    normal: Array  # (dim + 2,)
    tangents: Array  # (3, num_records)


def bounds(target: Gibbs) -> Bounds:
    """Bounds of the tests; `NoCertificate` if no slope or curvature has one there."""
    slope_range = target.k * record_terms.slope_range(target)
    smoothness = target.k * record_terms.smoothness(target)
    if not min(slope_range, smoothness) < np.inf:
        raise NoCertificate(
            f"Neither slope nor curvature of the {target.problem.loss.name} loss is "
            'bounded on the domain: use a Ball or a Box, or oracle="tangent".'
        )
    return Bounds(slope_range, smoothness)


def init(target: Gibbs, position: Array) -> ChainState:
    """Fresh state at a position inside the domain.

    One more row of scratch memory is the regularizer's slope at w; energies at accepted
    points are not needed and NaN.
    """
    state = alternation.init(target, position)
    return state._replace(
        scratch=np.empty((alternation.NUM_SCRATCH + 1, position.size)),
        own=ThinnedWork(state.own.normal, np.empty((3, target.problem.num_records))),
    )


@kernel(counts_references=False)
def expand(target, pieces, w, state, gradient):
    """Fill the tangents of all records at w and the gradient of U; a code."""
    data, tangents = target.data, state.own.tangents
    gradient[:] = 0.0
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        margins, values = tangents[MARGIN][start:stop], tangents[VALUE][start:stop]
        slopes = tangents[SLOPE][start:stop]
        records.margins_of(data, w, start, stop, margins)
        copy_into(margins, values)
        state.work.out[0] = np.nan
        pieces.loss_slope(
            data.loss_params, values, data.response[start:stop], slopes, state.work.out
        )
        if np.isnan(state.work.out[0]):
            return FUNCTION_FAILED
        records.add_transposed(data, slopes, start, stop, state.work.vector, gradient)
    from_regularizer = state.scratch[alternation.NUM_SCRATCH]
    from_regularizer[:] = np.nan
    pieces.regularizer_gradient(target.regularizer, w, from_regularizer)
    for j in range(w.shape[0]):
        from_regularizer[j] *= target.k * target.mu
        gradient[j] *= target.k / data.num_records
        gradient[j] += from_regularizer[j]
        if not np.isfinite(gradient[j]):
            return FUNCTION_FAILED
    state.counts[GRADIENTS] += 1
    state.counts[RECORDS] += data.num_records
    return OK


@kernel(counts_references=False)
def record_gap(target, pieces, state, x, i):
    """g_i at x, and its rounding error."""
    tangents, u = state.own.tangents, margin(target.data, x, i)
    value = loss(target, pieces, u, i, state.work)
    linear = tangents[SLOPE, i] * (u - tangents[MARGIN, i])
    size = abs(value) + abs(tangents[VALUE, i])
    size += abs(tangents[SLOPE, i]) * (1.0 + abs(u) + abs(tangents[MARGIN, i]))
    slack = ROUNDING * (1.0 + target.k * size)
    return target.k * (value - tangents[VALUE, i] - linear), slack


@kernel(counts_references=False)
def regularizer_gap(target, pieces, plan, state, x, w, difference):
    """Gap of the regularizer above tangent and quadratic, and its rounding error."""
    weight = target.k * target.mu
    at_x = weight * gibbs.regularizer(target, pieces, x, state.work)
    at_w = weight * gibbs.regularizer(target, pieces, w, state.work)
    slope, room = state.scratch[alternation.NUM_SCRATCH], state.scratch[7]
    return alternation.gap_and_slack(plan, at_x, at_w, slope, difference, room)


@kernel(counts_references=False)
def ceiling(bounds, distance):
    """B, the bound of every g_i at this distance from w."""
    slopes = bounds.slope_range * distance
    return min(slopes, 0.5 * bounds.smoothness * distance * distance)


@kernel(counts_references=False)
def accept(target, pieces, plan, bounds, state, rng):
    """Accept or refuse the proposal in scratch[5]: 1, 0, or minus a failure code."""
    w, proposal, difference = state.scratch[2], state.scratch[5], state.scratch[6]
    square = 0.0
    for j in range(w.shape[0]):
        difference[j] = proposal[j] - w[j]
        square += difference[j] * difference[j]
    gap, slack = regularizer_gap(target, pieces, plan, state, proposal, w, difference)
    if np.isnan(gap):
        return -FUNCTION_FAILED
    if gap < -slack:
        return -BOUND_VIOLATED
    if rng.standard_exponential() < gap:
        return 0
    state.work.control[0].saved[LARGEST] = ceiling(bounds, math.sqrt(square))
    # Arrivals of a Poisson process before time B: the first failed test is the last.
    state.work.control[0].saved[TIME] = rng.standard_exponential()
    return test(target, pieces, state, rng)


@kernel(counts_references=False)
def test(target, pieces, state, rng):
    """Test random records at the proposal: as `accept`, or `PAUSED`."""
    control, proposal = state.work.control[0], state.scratch[5]
    largest = control.saved[LARGEST]
    while control.saved[TIME] < largest:
        i = records.any_record(rng, 0, target.data.num_records)
        gap, slack = record_gap(target, pieces, state, proposal, i)
        state.counts[RECORDS] += 1
        if not -slack <= gap <= largest + slack:
            return -FUNCTION_FAILED if np.isnan(gap) else -BOUND_VIOLATED
        if largest * rng.random() < gap:
            return 0
        control.saved[TIME] += rng.standard_exponential()
        if is_due(control):
            return PAUSED
    return 1


def touch(target, pieces, plan, state, w, gradient):
    """Tangents at w, and the gradient of U; its value is not needed."""
    code = expand(target, pieces, w, state, gradient)
    return 0.0 if code == OK else np.nan


def judge(target, pieces, plan, state, rng, is_resumed):
    """As `accept`, or `PAUSED`; a proposal that was paused is tested further."""
    state.energy[0] = np.nan
    if is_resumed:
        return test(target, pieces, state, rng)
    return accept(target, pieces, plan.metric, plan.bounds, state, rng)


conditional = alternation.compile_conditional(touch, judge)


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        alternation.displace_y(plan.metric, state, rng)
    return conditional(target, pieces, plan, state, rng)


run = compile_run(step)
