# mypy: allow-untyped-defs
r"""Thinned oracle: the proximal sampler's exact test from a few random records.

The tangent oracle accepts a proposal with probability exp(-(1/n) sum_i g_i), where

    g_i = k (f_i(x) - f_i(w) - s_i <a_i, x - w>)    in [0, B],    s_i = phi_i'(w),

times a factor of the regularizer alone. Here Poisson(B) tests of random records, each
passed with probability 1 - g_i / B, must all be passed: the same probability, and the
same proof. B = k min(D ||x - w||, beta / 2 ||x - w||^2), with D the largest change of a
record's gradient on the domain and beta its Lipschitz constant.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, STAGE, is_due
from dpsample.problem import records
from dpsample.samplers import chain, record_terms
from dpsample.samplers.chain import ACCEPTED, GRADIENTS, PROPOSALS, RECORDS
from dpsample.samplers.errors import (
    BOUND_VIOLATED,
    EXHAUSTED,
    OK,
    PIECE_FAILED,
    NoCertificate,
)
from dpsample.samplers.proximal import proximal_kernel
from dpsample.samplers.proximal.proximal_kernel import (
    INSIDE,
    NUM_SCRATCH,
    TRIES,
    TRYING,
    UNFINISHED,
    aim,
    displace,
    propose,
    quadratic,
    set_halfspace,
)
from dpsample.samplers.record_terms import loss, margin
from dpsample.targets import gibbs

ROUNDING = 1e-12
MARGIN, VALUE, SLOPE = range(3)  # rows of a state's tangents
# What a conditional draw keeps that is paused among the tests of a proposal: B, and the
# time of the next test. Its stage is TESTING.
LARGEST, TIME = TRIES + 1, TRIES + 2
TESTING = TRYING + 1.0


class Bounds(NamedTuple):
    """k D and k beta; one of them may be infinite."""

    slope_range: float
    smoothness: float


class ThinnedState(NamedTuple):
    """As the proximal sampler's, and what is known of all records at w."""

    position: Array  # (dim,)
    energy: Array  # (1,): NaN, the energy at an accepted point is not needed
    counts: NDArray[np.int64]
    memory: Array  # empty
    scratch: Array  # (NUM_SCRATCH + 1, dim): the last is the regularizer's slope at w
    normal: Array  # (dim + 2,)
    work: Any
    tangents: Array  # (3, num_records)


def bounds(target: Any) -> Bounds:
    """Bounds of the tests.

    Raises
    ------
    NoCertificate
        If neither slopes nor curvatures of the losses are bounded on the domain.
    """
    slope_range = target.k * record_terms.slope_range(target)
    smoothness = target.k * record_terms.smoothness(target)
    if not min(slope_range, smoothness) < np.inf:
        raise NoCertificate(
            f"Neither slope nor curvature of the {target.problem.loss.name} loss is "
            'bounded on the domain: use a Ball or a Box, or oracle="tangent".'
        )
    return Bounds(slope_range, smoothness)


def init(target: Any, position: Array) -> ThinnedState:
    """Fresh state at a position inside the domain."""
    base = proximal_kernel.init(target, position)
    return ThinnedState(
        position=base.position,
        energy=base.energy,
        counts=base.counts,
        memory=base.memory,
        scratch=np.empty((NUM_SCRATCH + 1, position.size)),
        normal=base.normal,
        work=base.work,
        tangents=np.empty((3, target.problem.num_records)),
    )


@kernel
def expand(target, pieces, w, state, gradient):
    """Fill the tangents of all records at w and the gradient of U; a code."""
    data, tangents = target.data, state.tangents
    gradient[:] = 0.0
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        margins, values = tangents[MARGIN][start:stop], tangents[VALUE][start:stop]
        slopes = tangents[SLOPE][start:stop]
        records.margins_of(data, w, start, stop, margins)
        values[:] = margins
        state.work.out[0] = np.nan
        pieces.loss_slope(
            data.loss_params, values, data.response[start:stop], slopes, state.work.out
        )
        if np.isnan(state.work.out[0]):
            return PIECE_FAILED
        records.add_transposed(data, slopes, start, stop, state.work.vector, gradient)
    from_regularizer = state.scratch[NUM_SCRATCH]
    from_regularizer[:] = np.nan
    pieces.regularizer_gradient(target.regularizer, w, from_regularizer)
    for j in range(w.shape[0]):
        from_regularizer[j] *= target.k * target.mu
        gradient[j] *= target.k / data.num_records
        gradient[j] += from_regularizer[j]
        if not np.isfinite(gradient[j]):
            return PIECE_FAILED
    state.counts[GRADIENTS] += 1
    state.counts[RECORDS] += data.num_records
    return OK


@kernel
def record_gap(target, pieces, state, x, i):
    """g_i at x, and its rounding error."""
    tangents, u = state.tangents, margin(target.data, x, i)
    value = loss(target, pieces, u, i, state.work)
    linear = tangents[SLOPE, i] * (u - tangents[MARGIN, i])
    size = abs(value) + abs(tangents[VALUE, i])
    size += abs(tangents[SLOPE, i]) * (1.0 + abs(u) + abs(tangents[MARGIN, i]))
    slack = ROUNDING * (1.0 + target.k * size)
    return target.k * (value - tangents[VALUE, i] - linear), slack


@kernel
def regularizer_gap(target, pieces, plan, state, x, w, difference):
    """Gap of the regularizer above tangent and quadratic, and its rounding error."""
    weight = target.k * target.mu
    linear = np.dot(state.scratch[NUM_SCRATCH], difference)
    square = quadratic(plan.precision, difference, state.scratch[7])
    square *= 0.5 * plan.tangent
    at_x = weight * gibbs.regularizer(target, pieces, x, state.work)
    at_w = weight * gibbs.regularizer(target, pieces, w, state.work)
    slack = ROUNDING * (1.0 + abs(at_x) + abs(at_w) + abs(linear) + square)
    return (at_x - at_w) - linear - square, slack


@kernel
def ceiling(bounds, distance):
    """B, the bound of every g_i at this distance from w."""
    slopes = bounds.slope_range * distance
    return min(slopes, 0.5 * bounds.smoothness * distance * distance)


@kernel
def accept(target, pieces, plan, bounds, state, rng):
    """Accept or refuse the proposal in scratch[5]: 1, 0, or minus a failure code."""
    w, proposal, difference = state.scratch[2], state.scratch[5], state.scratch[6]
    square = 0.0
    for j in range(w.shape[0]):
        difference[j] = proposal[j] - w[j]
        square += difference[j] * difference[j]
    gap, slack = regularizer_gap(target, pieces, plan, state, proposal, w, difference)
    if np.isnan(gap):
        return -PIECE_FAILED
    if gap < -slack:
        return -BOUND_VIOLATED
    if rng.standard_exponential() < gap:
        return 0
    state.work.control[LARGEST] = ceiling(bounds, math.sqrt(square))
    # Arrivals of a Poisson process before time B: the first failed test is the last.
    state.work.control[TIME] = rng.standard_exponential()
    return test(target, pieces, state, rng)


@kernel
def test(target, pieces, state, rng):
    """Test random records at the proposal: as `accept`, or `PAUSED`."""
    control, proposal = state.work.control, state.scratch[5]
    largest = control[LARGEST]
    while control[TIME] < largest:
        i = rng.integers(0, target.data.num_records)
        gap, slack = record_gap(target, pieces, state, proposal, i)
        state.counts[RECORDS] += 1
        if not -slack <= gap <= largest + slack:
            return -PIECE_FAILED if np.isnan(gap) else -BOUND_VIOLATED
        if largest * rng.random() < gap:
            return 0
        control[TIME] += rng.standard_exponential()
        if is_due(control):
            return PAUSED
    return 1


@kernel
def prepare(target, pieces, plan, state):
    """Tangents, mean and halfspace given y in scratch[1]; a code of `errors`."""
    y, w, gradient = state.scratch[1], state.scratch[2], state.scratch[3]
    mean = state.scratch[4]
    gibbs.project(target, pieces, y, w)
    code = expand(target, pieces, w, state, gradient)
    if code != OK:
        return code
    aim(plan, y, w, gradient, mean)
    return set_halfspace(target, pieces, plan, state, mean)


@kernel
def conditional(target, pieces, plan, bounds, draw, state, rng, max_tries):
    """Draw the position given y in scratch[1], exactly; return a code of `errors`.

    Paused, it goes on with its next try or test when it is called again.
    """
    control, mean, proposal = state.work.control, state.scratch[4], state.scratch[5]
    is_over, stage = False, control[STAGE]
    if stage == 0.0:
        code = prepare(target, pieces, plan, state)
        if code != OK:
            return code
        control[TRIES] = 0.0
        is_over = is_due(control)
    control[STAGE] = 0.0
    while control[TRIES] < max_tries or stage == TESTING:
        if is_over:
            control[STAGE] = TRYING
            return PAUSED
        if stage == TESTING:
            verdict = test(target, pieces, state, rng)
        else:
            status = propose(target, pieces, plan, draw, mean, state, rng, proposal)
            is_over = is_due(control)
            if status == UNFINISHED:
                continue
            control[TRIES] += 1.0
            state.counts[PROPOSALS] += 1
            if np.isnan(status):
                return PIECE_FAILED
            if status == 0.0:
                continue
            state.counts[INSIDE] += 1
            verdict = accept(target, pieces, plan, bounds, state, rng)
        stage = TRYING
        if verdict == PAUSED:
            control[STAGE] = TESTING
            return PAUSED
        if verdict < 0:
            return -verdict
        if verdict == 1:
            state.counts[ACCEPTED] += 1
            state.position[:] = proposal
            state.energy[0] = np.nan
            return OK
    return EXHAUSTED


@kernel
def run(target, pieces, plan, bounds, draw, state, rng, max_tries, draws, stats):
    """Make one draw per row of draws; return a code and how many rows were filled."""
    control = state.work.control
    for t in range(draws.shape[0]):
        before = chain.begin(state, control)
        if control[STAGE] == 0.0:
            displace(plan, state, rng)
        code = conditional(target, pieces, plan, bounds, draw, state, rng, max_tries)
        if code != OK:
            return code, t
        draws[t] = state.position
        chain.report(state, before, stats[t])
        if is_due(control) and t + 1 < draws.shape[0]:
            return PAUSED, t + 1
    return OK, draws.shape[0]
