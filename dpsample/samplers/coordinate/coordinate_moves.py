# mypy: allow-untyped-defs
"""Exact moves along one coordinate, and the plan that they need of a target.

A move is along e_i (then j = -1), or along e_i - e_j on the simplex. It changes the
margins of the records whose features are not zero there, so features are stored by
columns. The derivative of a margin along the move is its *rate*. The energy as a
function of the length t of the move is minus the log of the *conditional density*.

The derivative of a hinge, absolute or quantile loss jumps at one margin. The length t
at which a record gets there is a *breakpoint*. Between breakpoints the energy along the
move is quadratic, so sorted breakpoints give an exact draw.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import Pointer, kernel
from dpsample.losses import Absolute, Hinge, Linear, Quantile, Squared
from dpsample.numerics.heaps import sort_pairs
from dpsample.problem.records import Data, curvature_matrix
from dpsample.regularizers import SchattenSquared
from dpsample.samplers.chain import COUNT
from dpsample.samplers.coordinate.slacks import KIND, CoordinateBody, make_body
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.univariate import line
from dpsample.samplers.univariate.log_concave import (
    draw_piecewise,
    draw_quadratic,
)
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs, as_rows


class DensityKind(NamedTuple):
    """Kinds of conditional densities on a line."""

    quadratic: int = 0  # truncated Gaussian
    non_smooth: int = 1  # Gaussian or exponential between breakpoints
    smooth: int = 2  # any other log-concave density


DENSITY = DensityKind()
# Maximum numbers of records that a move changes, and of breakpoints inside the chord,
# with which sorting the breakpoints is faster than adaptive rejection.
MAX_PIECEWISE_RECORDS = 128
MAX_BREAKPOINTS = 20


class Columns(NamedTuple):
    """Features by columns. Either ``dense`` or the other three are empty."""

    dense: Array  # (dim, num_records) or (0, 0)
    starts: Ints  # (dim + 1,): starts of the columns in rows and values
    rows: Ints  # (num_nonzeros,)
    values: Array  # (num_nonzeros,)


class ChangedRecords(NamedTuple):
    """Scratch memory for the records that a move changes, one entry for each."""

    rows: Ints
    rates: Array
    margins: Array
    response: Array


def make_columns(data: Data, *, is_needed: bool) -> Columns:
    """Copy the features by columns, unless conditional densities need no record."""
    no_indices = np.empty(0, dtype=np.int64)
    columns = Columns(np.empty((0, 0)), no_indices, no_indices, np.empty(0))
    if not is_needed:
        return columns
    if data.dense.shape[0] > 0:
        return columns._replace(dense=np.ascontiguousarray(data.dense.T))
    by_columns = as_rows(data).tocsc()
    by_columns.sort_indices()
    return columns._replace(
        starts=by_columns.indptr.astype(np.int64),
        rows=by_columns.indices.astype(np.int64),
        values=np.array(by_columns.data),
    )


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def merge_columns(columns, i, j, changed):
    """Write rows and rates of a_i, or of a_i - a_j. Return their number."""
    first, last = columns.starts[i], columns.starts[i + 1]
    other, stop = 0, 0
    if j >= 0:
        other, stop = columns.starts[j], columns.starts[j + 1]
    # A merge of two sorted lists. Records in both have the difference of the features.
    size = 0
    while first < last or other < stop:
        if other >= stop or (
            first < last and columns.rows[first] < columns.rows[other]
        ):
            changed.rows[size] = columns.rows[first]
            changed.rates[size] = columns.values[first]
            first += 1
        elif first >= last or columns.rows[other] < columns.rows[first]:
            changed.rows[size] = columns.rows[other]
            changed.rates[size] = -columns.values[other]
            other += 1
        else:
            changed.rows[size] = columns.rows[first]
            changed.rates[size] = columns.values[first] - columns.values[other]
            first, other = first + 1, other + 1
        size += 1
    return size


@kernel(counts_references=False)
def select(columns, response, margins, i, j, changed):
    """Return margins, rates and responses of the records that the move changes."""
    if columns.dense.shape[0] > 0:
        if j < 0:
            return margins, columns.dense[i], response
        for m in range(margins.shape[0]):
            changed.rates[m] = columns.dense[i, m] - columns.dense[j, m]
        return margins, changed.rates[: margins.shape[0]], response
    size = merge_columns(columns, i, j, changed)
    for m in range(size):
        changed.margins[m] = margins[changed.rows[m]]
        changed.response[m] = response[changed.rows[m]]
    return changed.margins[:size], changed.rates[:size], changed.response[:size]


@kernel(counts_references=False)
def shift(columns, margins, rates, t, changed):
    """Add t times the rates to the margins, after `select`."""
    if columns.dense.shape[0] > 0:
        for m in range(rates.shape[0]):
            margins[m] += t * rates[m]
    else:
        for m in range(rates.shape[0]):
            margins[changed.rows[m]] += t * rates[m]


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class CoordinatePlan(NamedTuple):
    """Domain and energy along coordinates, and a Gaussian fit for first guesses."""

    body: CoordinateBody
    columns: Columns
    conditional: int  # kind of the conditional densities
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    num_slacks: int
    num_margins: int
    num_slopes: int
    center: Array  # (dim,)
    precision: Array  # (dim, dim)
    # A quadratic energy at the center. Its Hessian is the matrix, or if that is empty
    # the ridge times the identity.
    base: float  # value
    slope: Array  # (dim,): gradient
    ridge: float
    hessian: Array  # (dim, dim) or (0, 0)
    # Derivative of a loss for u < y, if y > 0 and otherwise, and its jump at u = y.
    left_positive: float
    left_negative: float
    jump: float
    chord: Pointer


# A sweep that is paused between two moves, or while it draws on a line.
PausedSweep = record_dtype(
    turn=int,  # the next move
    last=int,  # coordinate whose move the slacks of a dense polytope lack
    move=float,  # that move
    i=int,  # move of the line
    j=int,
    low=float,  # chord of the line
    high=float,
)


@by_address
class CoordinateWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    changed: ChangedRecords
    hull: Array  # `HULL_SHAPE`: tangents of V, for draws on a line
    paused_draw: RecordArray  # one record of `line.PausedDraw`
    ends: Array  # (2,): chord of the domain
    # (3, MAX_PIECEWISE_RECORDS + 1): positions and jumps of breakpoints, and scratch
    breakpoints: Array
    sweep: RecordArray  # one record of `PausedSweep`


@kernel(counts_references=False)
def along(values, i, j):
    """Return the component of a vector along the move."""
    return values[i] if j < 0 else values[i] - values[j]


@kernel(counts_references=False)
def curvature_along(ridge, hessian, i, j):
    """Return the curvature of a quadratic energy along the move."""
    if hessian.shape[0] == 0:
        return ridge if j < 0 else 2.0 * ridge
    if j < 0:
        return hessian[i, i]
    return hessian[i, i] + hessian[j, j] - 2.0 * hessian[i, j]


@kernel(counts_references=False)
def quadratic_move(plan, theta, slopes, i, j, low, high, rng):
    """Draw along the move for a quadratic energy, and update the gradient."""
    curvature = curvature_along(plan.ridge, plan.hessian, i, j)
    if plan.num_slopes == 0:
        slope = along(plan.slope, i, j)
        slope += plan.ridge * (along(theta, i, j) - along(plan.center, i, j))
        return draw_quadratic(rng, slope, curvature, low, high)
    t = draw_quadratic(rng, along(slopes, i, j), curvature, low, high)
    for m in range(slopes.shape[0]):
        slopes[m] += t * plan.hessian[i, m]
        if j >= 0:
            slopes[m] -= t * plan.hessian[j, m]
    return t


@kernel(counts_references=False)
def regularizer_line(target, theta, i, j):
    """Return derivatives of scale/2 ||theta - center||_2^2 along the move."""
    params = target.regularizer
    offset = along(theta, i, j) - along(params.center, i, j)
    return params.scale * offset, params.scale * (1.0 if j < 0 else 2.0)


@kernel(counts_references=False)
def collect_breakpoints(plan, weight, margins, rates, response, low, high, out):
    """Write the breakpoints inside the chord, and their jumps, to rows of ``out``.

    Return their number, -1 if there are more than `MAX_BREAKPOINTS`, and the derivative
    at the chord's low end. ``weight`` is k / n.
    """
    count, slope = 0, 0.0
    for m in range(margins.shape[0]):
        rate = rates[m]
        if rate != 0.0:
            left = plan.left_positive if response[m] > 0.0 else plan.left_negative
            rise = weight * plan.jump * abs(rate)
            # A falling margin comes from u > y, where the derivative has jumped.
            slope += weight * rate * (left if rate > 0.0 else left + plan.jump)
            breakpoint = (response[m] - margins[m]) / rate
            # A breakpoint before the chord has already raised the derivative.
            if breakpoint <= low:
                slope += rise
            elif breakpoint < high:
                if count == MAX_BREAKPOINTS:
                    return -1, slope
                out[0, count], out[1, count] = breakpoint, rise
                count += 1
    return count, slope


@kernel(counts_references=False)
def guess_along(plan, theta, i, j):
    """Return mode and standard deviation of the fitted Gaussian along the move."""
    slope = 0.0
    for m in range(theta.shape[0]):
        offset = theta[m] - plan.center[m]
        slope += plan.precision[i, m] * offset
        if j >= 0:
            slope -= plan.precision[j, m] * offset
    curvature = curvature_along(1.0, plan.precision, i, j)
    return -slope / curvature, 1.0 / np.sqrt(curvature)


@kernel(counts_references=False)
def general_move(target, pieces, plan, state, margins, i, j, low, high, rng):
    """Draw along the move from the margins. Return a code, t and the rates."""
    theta, direction = state.position, state.vectors[line.ROW.direction]
    y, changed = target.data.response, state.workspace.changed
    margins_here, rates, responses = select(plan.columns, y, margins, i, j, changed)
    slope = curvature = 0.0
    if plan.is_quadratic == 1:
        slope, curvature = regularizer_line(target, theta, i, j)
    else:
        direction[:] = 0.0
        direction[i] = 1.0
        if j >= 0:
            direction[j] = -1.0
    if (
        plan.conditional == DENSITY.non_smooth
        and margins_here.shape[0] <= MAX_PIECEWISE_RECORDS
    ):
        out = state.workspace.breakpoints
        weight = target.k / target.data.num_records
        count, first = collect_breakpoints(
            plan, weight, margins_here, rates, responses, low, high, out
        )
        if count >= 0:
            sort_pairs(out[0], out[1], count)
            weight = target.k * target.mu
            first += weight * slope
            code, t = draw_piecewise(
                rng, first, weight * curvature, low, high, out[0], out[1], count, out[2]
            )
            return code, t, rates
    penalty, is_quadratic = (0.0, slope, curvature), plan.is_quadratic
    path = line.line_of(
        target, state, margins_here, rates, responses, is_quadratic, penalty
    )
    guess, width = guess_along(plan, theta, i, j)
    # The first tangents are 1.3 standard deviations from the guessed mode.
    hull, paused = state.workspace.hull, state.workspace.paused_draw[0]
    control = state.work.control[0]
    code, t, _, evaluations = line.draw_on_line(
        (pieces, path), rng, hull, paused, low, high, guess, 1.3 * width, control
    )
    state.counts[COUNT.gradients] += evaluations
    state.counts[COUNT.records] += evaluations * margins_here.shape[0]
    return code, t, rates


@kernel(counts_references=False)
def find_domain_chord(target, plan, state, i):
    """Return the chord of any domain along coordinate i, and write the direction."""
    direction = state.vectors[line.ROW.direction]
    direction[:] = 0.0
    direction[i] = 1.0
    gibbs_target.chord(
        target, plan.chord, state.position, direction, state.workspace.ends
    )
    return state.workspace.ends[0], state.workspace.ends[1]


def has_quadratic_regularizer(target: Gibbs) -> bool:
    """Return whether the regularizer is a multiple of a squared Euclidean distance."""
    regularizer = target.regularizer
    is_norm = regularizer.is_plain_norm or isinstance(regularizer, SchattenSquared)
    return bool(is_norm and target.numbers.regularizer.exponent == 2.0)


def conditional_kind(target: Gibbs) -> int:
    """Return the kind of the conditional densities."""
    loss = target.problem.loss
    if not (has_quadratic_regularizer(target) or target.mu == 0.0):
        return DENSITY.smooth
    if isinstance(loss, Linear | Squared):
        return DENSITY.quadratic
    return (
        DENSITY.non_smooth
        if isinstance(loss, Hinge | Absolute | Quantile)
        else DENSITY.smooth
    )


def make_plan(target: Gibbs, gaussian: GaussianFit) -> CoordinatePlan:
    """Return the plan of a target with a Gaussian fit."""
    data, loss = target.data, target.problem.loss
    dim, center = target.dim, gaussian.center
    conditional = conditional_kind(target)
    is_quadratic = conditional == DENSITY.quadratic
    stddevs = np.sqrt((gaussian.factor**2).sum(axis=1))
    body = make_body(target, center, stddevs)
    ridge, hessian = 0.0, np.empty((0, 0))
    if is_quadratic and target.mu > 0.0:
        ridge = target.k * target.mu * target.numbers.regularizer.scale
    if isinstance(loss, Squared) and is_quadratic:
        hessian = target.k * curvature_matrix(data, np.ones(data.num_records))
        hessian = np.ascontiguousarray(hessian + ridge * np.eye(dim))
    left = np.zeros(2)
    jump = 0.0
    if conditional == DENSITY.non_smooth:
        # The derivative is constant on each side of u = y, and the same for labels of
        # one sign, so that two labels represent all.
        labels = np.array([1.0, -1.0])
        left = loss.slope(labels - 1.0, labels)
        jump = float((loss.slope(labels + 1.0, labels) - left)[0])
    return CoordinatePlan(
        body=body,
        columns=make_columns(data, is_needed=not is_quadratic),
        conditional=conditional,
        is_quadratic=int(has_quadratic_regularizer(target) or target.mu == 0.0),
        num_slacks=1 if body.kind == KIND.ball else len(body.limits),
        num_margins=0 if is_quadratic else data.num_records,
        num_slopes=len(hessian),
        center=center,
        precision=np.ascontiguousarray(gaussian.whiten.T @ gaussian.whiten),
        base=target.energy(center),
        slope=target.gradient(center) if is_quadratic else np.zeros(dim),
        ridge=float(ridge),
        hessian=hessian,
        left_positive=float(left[0]),
        left_negative=float(left[1]),
        jump=jump,
        chord=gibbs_target.chord_of(target),
    )
