# mypy: allow-untyped-defs
r"""Thinned oracle: the proximal sampler's exact test from a few random records.

As in `alternation`, U is the energy V, or V without a factor that proposals have
exactly, and w is the projection of the noisy point y to the domain. The tangent oracle
accepts a proposal x with probability exp(-(1/n) sum_i g_i), times a factor of the
regularizer alone, where

    g_i = k (f_i(x) - f_i(w) - s_i <a_i, x - w>)    in [0, B],    s_i = phi_i'(u_i),

is the gap of the loss f_i = phi_i(margin) above its tangent at w, at which the margin
is u_i. k is the inverse temperature, the factor of the mean loss in V. Here Poisson(B)
random records are tested, and each passes with probability 1 - g_i / B. If all pass, x
is accepted. A test fails with probability mean(g_i) / B, so all of Poisson(B) tests
pass with probability exp(-mean(g_i)), as above, and the proof is the same. The bound is
B = k min(D ||x - w||, beta / 2 ||x - w||^2), with D the largest change of a record's
gradient on the domain and beta the Lipschitz constant of the gradient.

The number of tests is not drawn first. They are the arrivals of a Poisson process of
rate 1 up to time B, so that most rejected proposals read few records.

The other oracles read all records for a test. In the study `effective_queries` (d = 5,
p = 2, n = 10,000) a draw takes 170,000 evaluations of single records here, and 520,000
with tests on all records, if non-smooth points are at the mode. For logistic losses
both take about 85,000.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.problem import records
from dpsample.samplers import record_terms
from dpsample.samplers.chain import COUNT, ChainState, compile_run
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK, NoCertificate
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import ROW, ConditionalDraw, Support
from dpsample.samplers.record_terms import loss, margin
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs


class TangentRow(NamedTuple):
    """Rows of a state's tangents, which have an entry for each record."""

    margin: int = 0  # u_i
    value: int = 1  # f_i(w)
    slope: int = 2  # s_i


TANGENT = TangentRow()
# Additional row of the scratch memory: the regularizer's gradient at w.
REGULARIZER_GRADIENT = len(alternation.ROW)

# Tests of a proposal, which a pause may interrupt.
RecordTests = record_dtype(
    end=float,  # B
    next_time=float,  # arrival of the next test
)


class Bounds(NamedTuple):
    """Two bounds of a record's gradient, of which one may be infinite."""

    slope_range: float  # k D
    smoothness: float  # k beta


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ThinnedWork(NamedTuple):
    """Memory of `ProximalWork`, with the tangents of all records at w."""

    support: Support
    draw: RecordArray  # one record of `ConditionalDraw`
    tests: RecordArray  # one record of `RecordTests`
    tangents: Array  # (3, num_records): margins, losses and their derivatives


def bounds(target: Gibbs) -> Bounds:
    """Return the bounds of the tests, or raise `NoCertificate` if there are none."""
    slope_range = target.k * record_terms.slope_range(target)
    smoothness = target.k * record_terms.smoothness(target)
    if not min(slope_range, smoothness) < np.inf:
        raise NoCertificate(
            f"Neither slope nor curvature of the {target.problem.loss.name} loss is "
            'bounded on the domain: use a Ball or a Box, or oracle="tangent".'
        )
    return Bounds(slope_range, smoothness)


def init(target: Gibbs, position: Array) -> ChainState:
    """Return a new state at a position inside the domain.

    Energies at accepted points are NaN, because the tests do not need them.
    """
    state = alternation.init(target, position)
    work = ThinnedWork(
        support=Support.empty(position.size),
        draw=np.zeros(1, ConditionalDraw),
        tests=np.zeros(1, RecordTests),
        tangents=np.empty((3, target.problem.num_records)),
    )
    vectors = np.empty((REGULARIZER_GRADIENT + 1, position.size))
    return state._replace(vectors=vectors, workspace=work)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def fill_tangents(target, pieces, w, state, gradient):
    """Fill the tangents of all records at w and the gradient of U. Return a code."""
    data, tangents = target.data, state.workspace.tangents
    gradient[:] = 0.0
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        margins, values = (
            # The loss is evaluated in place: ``values`` has the margins before the
            # call, and the losses after it.
            tangents[TANGENT.margin][start:stop],
            tangents[TANGENT.value][start:stop],
        )
        slopes = tangents[TANGENT.slope][start:stop]
        records.margins_of(data, w, start, stop, margins)
        copy_into(margins, values)
        # A callback that fails leaves NaN.
        state.work.out[0] = np.nan
        pieces.loss_slope(
            data.loss_params, values, data.response[start:stop], slopes, state.work.out
        )
        if np.isnan(state.work.out[0]):
            return FUNCTION_FAILED
        records.add_transposed(data, slopes, start, stop, state.work.vector, gradient)
    regularizer_gradient = state.vectors[REGULARIZER_GRADIENT]
    regularizer_gradient[:] = np.nan
    pieces.regularizer_gradient(target.regularizer, w, regularizer_gradient)
    for j in range(w.shape[0]):
        regularizer_gradient[j] *= target.k * target.mu
        # The slopes are of single losses. U has their mean times k.
        gradient[j] *= target.k / data.num_records
        gradient[j] += regularizer_gradient[j]
        if not np.isfinite(gradient[j]):
            return FUNCTION_FAILED
    state.counts[COUNT.gradients] += 1
    state.counts[COUNT.records] += data.num_records
    return OK


@kernel(counts_references=False)
def record_gap(target, pieces, state, x, i):
    """Return g_i at x, and its rounding error."""
    tangents, u = state.workspace.tangents, margin(target.data, x, i)
    value = loss(target, pieces, u, i, state.work)
    linear = tangents[TANGENT.slope, i] * (u - tangents[TANGENT.margin, i])
    size = abs(value) + abs(tangents[TANGENT.value, i])
    size += abs(tangents[TANGENT.slope, i]) * (
        1.0 + abs(u) + abs(tangents[TANGENT.margin, i])
    )
    # As in `alternation`, the gap may be negative by rounding only.
    # The energies at x and w have this relative rounding error.
    slack = 1e-12 * (1.0 + target.k * size)
    return target.k * (value - tangents[TANGENT.value, i] - linear), slack


@kernel(counts_references=False)
def regularizer_gap(target, pieces, plan, state, x, w, difference):
    """Return the gap of k mu r above tangent and quadratic, and its rounding error."""
    weight = target.k * target.mu
    at_x = weight * gibbs_target.regularizer(target, pieces, x, state.work)
    at_w = weight * gibbs_target.regularizer(target, pieces, w, state.work)
    gradient, product = state.vectors[REGULARIZER_GRADIENT], state.vectors[ROW.product]
    return alternation.gap_and_slack(plan, at_x, at_w, gradient, difference, product)


@kernel(counts_references=False)
def gap_bound(bounds, distance):
    """Return B, the bound of every g_i at this distance from w."""
    slopes = bounds.slope_range * distance
    return min(slopes, 0.5 * bounds.smoothness * distance * distance)


@kernel(counts_references=False)
def begin_tests(target, pieces, plan, bounds, state, rng):
    """Test the regularizer's gap of the proposal, and then random records.

    Return 1 to accept, 0 to reject, `PAUSED` or minus a failure code.
    """
    w, proposal = state.vectors[ROW.tangent_point], state.vectors[ROW.proposal]
    difference, square = state.vectors[ROW.difference], 0.0
    for j in range(w.shape[0]):
        difference[j] = proposal[j] - w[j]
        square += difference[j] * difference[j]
    gap, slack = regularizer_gap(target, pieces, plan, state, proposal, w, difference)
    if np.isnan(gap):
        return -FUNCTION_FAILED
    if gap < -slack:
        return -BOUND_VIOLATED
    # P(exponential >= gap) = e^{-gap}, the factor of the regularizer.
    if rng.standard_exponential() < gap:
        return 0
    tests = state.workspace.tests[0]
    tests.end = gap_bound(bounds, math.sqrt(square))
    tests.next_time = rng.standard_exponential()
    return run_tests(target, pieces, state, rng)


@kernel(counts_references=False)
def run_tests(target, pieces, state, rng):
    """Test random records at the proposal, until one fails or time B is over.

    Return a result as `begin_tests` does.
    """
    tests, proposal = state.workspace.tests[0], state.vectors[ROW.proposal]
    end = tests.end
    while tests.next_time < end:
        i = records.any_record(rng, 0, target.data.num_records)
        gap, slack = record_gap(target, pieces, state, proposal, i)
        state.counts[COUNT.records] += 1
        # A gap outside of [0, B] contradicts a declared bound, on which the proof
        # rests.
        if not -slack <= gap <= end + slack:
            return -FUNCTION_FAILED if np.isnan(gap) else -BOUND_VIOLATED
        # The record fails with probability g_i / B.
        if end * rng.random() < gap:
            return 0
        tests.next_time += rng.standard_exponential()
        if is_due(state.work.control[0]):
            return PAUSED
    return 1


def evaluate_tangent(target, pieces, plan, state, w, gradient):
    """Fill the tangents at w and the gradient of U. Its value is not needed."""
    code = fill_tangents(target, pieces, w, state, gradient)
    return 0.0 if code == OK else np.nan


def check_proposal(target, pieces, plan, state, rng, is_resumed):
    """Begin the tests of the proposal, or go on with them after a pause."""
    state.energy[0] = np.nan
    if is_resumed:
        return run_tests(target, pieces, state, rng)
    return begin_tests(target, pieces, plan.metric, plan.bounds, state, rng)


draw_given_y = alternation.compile_draw_given_y(evaluate_tangent, check_proposal)


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        alternation.draw_y(plan.metric, state, rng)
    return draw_given_y(target, pieces, plan, state, rng)


run = compile_run(step)
