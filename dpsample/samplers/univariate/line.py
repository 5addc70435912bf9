# mypy: allow-untyped-defs
r"""Energies along a line, and exact draws there by adaptive rejection.

    V(t) = k (1/n sum_i phi(u_i + t v_i, y_i) + mu r(theta + t e)),    u = A theta + b,

with the direction e and the *rates* v = A e of the margins. The mean of the losses phi
has the inverse temperature k as its factor, and the regularizer r the weight mu. An
evaluation is one pass over u and v, whatever the number of coefficients. Records with
v_i = 0 may be left out, which changes V by a constant.

Draws from e^{-V} on an interval, for a convex V, are exact. Every tangent of V is a
lower bound, so the largest of a few tangents is one too. This is the *hull*

    L(t) = V(t_i) + V'(t_i) (t - t_i)  on a segment around t_i,    e^{-L} >= e^{-V}.

A proposal from e^{-L}, which is exponential on every segment, is accepted with
probability e^{L - V}. A rejected proposal adds its tangent (Gilks and Wild, 1992). All
choices of tangents and of borders between segments give the same distribution, and
affect the running time alone. The interval may be infinite, and V may be non-smooth. If
V is below one of its tangents, it is not convex, which is an error.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, record_dtype
from dpsample.core.jit import Kernel, kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.problem import records
from dpsample.regularizers import RegularizerParams
from dpsample.samplers.errors import (
    BOUND_VIOLATED,
    DRAW_FAILED,
    EXHAUSTED,
    FUNCTION_FAILED,
    OK,
)
from dpsample.targets import gibbs_target


class HullRow(NamedTuple):
    """Rows of a hull, whose columns are segments from left to right."""

    point: int = 0  # t_i, where the tangent touches V
    value: int = 1  # V(t_i)
    slope: int = 2  # V'(t_i)
    border: int = 3  # left end of the segment
    mass: int = 4  # mass of e^-L on all segments up to this one


HULL = HullRow()
# Maximum number of tangents.
CAPACITY = 64
HULL_SHAPE = (len(HULL), CAPACITY)
# Maximum number of evaluations of a draw.
MAX_TRIES = 10_000
# A draw that is paused between two evaluations, in an array of one such record.
PausedDraw = record_dtype(
    turn=int,  # evaluations so far
    num_tangents=int,
    reach=float,  # distance of the next point outwards
)
# Stage of a paused draw. Samplers may use larger ones for other parts of a step.
ON_LINE = 1


class LineVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors. Row 0 belongs to the sampler."""

    direction: int = 1  # e
    moved_point: int = 2  # a point of the line


ROW = LineVectorRow()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def exceeds(value, slope, distance, other):
    """Return whether a tangent is above V at a distance, beyond rounding errors."""
    rise = slope * distance
    # Relative rounding errors of V. A larger violation shows that V is not convex.
    slack = 1e-10 * (1.0 + abs(value) + abs(rise) + abs(other))
    return value + rise - other > slack


@kernel(counts_references=False)
def insert(hull, count, point, value, slope):
    """Insert a tangent by its point. Return the new count, or -1 if V is not convex."""
    index = count
    while index > 0 and hull[HULL.point, index - 1] >= point:
        index -= 1
    if index < count and hull[HULL.point, index] == point:
        return count
    # The tangents on both sides must be below V at the new point, and the new one below
    # V at theirs.
    for neighbor in range(max(index - 1, 0), min(index + 1, count)):
        distance = point - hull[HULL.point, neighbor]
        if exceeds(
            hull[HULL.value, neighbor], hull[HULL.slope, neighbor], distance, value
        ):
            return -1
        if exceeds(value, slope, -distance, hull[HULL.value, neighbor]):
            return -1
    # Only the first three rows belong to a tangent. `fill_masses` computes the others.
    for m in range(count, index, -1):
        for row in range(3):
            hull[row, m] = hull[row, m - 1]
    hull[HULL.point, index], hull[HULL.value, index], hull[HULL.slope, index] = (
        point,
        value,
        slope,
    )
    return count + 1


@kernel(counts_references=False)
def border_between(hull, left):
    """Return the intersection of the tangents ``left`` and ``left + 1``.

    If rounding errors hide it, return the middle.
    """
    first, last = hull[HULL.point, left], hull[HULL.point, left + 1]
    slope_change = hull[HULL.slope, left + 1] - hull[HULL.slope, left]
    # Height of V at the right point above the left tangent. The tangents cross where
    # the right one has fallen by it, relative to the left one.
    gap = hull[HULL.value, left + 1] - hull[HULL.value, left]
    gap -= hull[HULL.slope, left] * (last - first)
    if not (slope_change > 0.0 and gap > 0.0):
        return 0.5 * (first + last)
    return max(first, last - gap / slope_change)


@kernel(counts_references=False)
def lowest_value(hull, i, left, right):
    """Return the lowest value of tangent i on its segment."""
    if hull[HULL.slope, i] == 0.0:
        return hull[HULL.value, i]
    end = left if hull[HULL.slope, i] > 0.0 else right
    return hull[HULL.value, i] + hull[HULL.slope, i] * (end - hull[HULL.point, i])


@kernel(counts_references=False)
def fill_masses(hull, count, low, high):
    """Fill borders and masses up to each segment. Return the total mass.

    Masses are divided by the largest e^-L, so that nothing overflows.
    """
    lowest = np.inf
    for i in range(count):
        hull[HULL.border, i] = low if i == 0 else border_between(hull, i - 1)
    for i in range(count):
        right = hull[HULL.border, i + 1] if i + 1 < count else high
        lowest = min(lowest, lowest_value(hull, i, hull[HULL.border, i], right))
    total = 0.0
    for i in range(count):
        right = hull[HULL.border, i + 1] if i + 1 < count else high
        width = right - hull[HULL.border, i]
        if width > 0.0:
            height = math.exp(
                lowest - lowest_value(hull, i, hull[HULL.border, i], right)
            )
            steep = abs(hull[HULL.slope, i])
            drop = steep * width if steep > 0.0 else 0.0
            # (1 - e^-drop) / steep, also if the segment is flat or infinite.
            share = -math.expm1(-drop) / steep if drop > 1e-12 else width
            total += height * share
        hull[HULL.mass, i] = total
    return total


@kernel(counts_references=False)
def propose(hull, count, high, rng):
    """Draw from e^-L, after `fill_masses`. Return the point and L there."""
    level = rng.random() * hull[HULL.mass, count - 1]
    i = 0
    while i < count - 1 and hull[HULL.mass, i] <= level:
        i += 1
    left = hull[HULL.border, i]
    right = hull[HULL.border, i + 1] if i + 1 < count else high
    slope = hull[HULL.slope, i]
    drop = abs(slope) * (right - left) if slope != 0.0 else 0.0
    if drop > 1e-12:
        step = -math.log1p(rng.random() * math.expm1(-drop)) / abs(slope)
    else:
        step = rng.random() * (right - left)
    t = left + step if slope > 0.0 or drop <= 1e-12 else right - step
    t = min(max(t, left), right)
    return t, hull[HULL.value, i] + slope * (t - hull[HULL.point, i])


@kernel(counts_references=False)
def first_points(low, high, guess, width):
    """Return two points near a guessed mode, inside the interval and off its ends."""
    guess = guess if abs(guess) < np.inf else 0.0
    center = min(max(guess, low), high)
    if not 0.0 < width < np.inf:
        width = 1.0
    if center != guess:
        # If the mode is beyond an end, the slope at the end determines the scale.
        width /= 1.0 + abs(guess - center) / width
    left, right = center - width, center + width
    if left <= low:
        left = low + 0.3 * (center - low) if center > low else min(right, high)
    if right >= high:
        right = high - 0.3 * (high - center) if center < high else left
    if center == low:
        left = low + 0.2 * (right - low)
    if center == high:
        right = high - 0.2 * (high - left)
    return left, right


@kernel(counts_references=False)
def next_point(hull, count, turn, low, high, first, last, reach):
    """Return the point of the next tangent before the first proposal, or NaN.

    Two points come first. Then the tangents next to infinite ends must rise outwards.
    NaN says that the hull has a finite mass.
    """
    if turn < 2:
        return first if turn == 0 else last
    if count == 0:
        return 0.5 * (first + last)
    if low == -np.inf and not hull[HULL.slope, 0] < 0.0:
        return hull[HULL.point, 0] - reach
    if high == np.inf and not hull[HULL.slope, count - 1] > 0.0:
        return hull[HULL.point, count - 1] + reach
    return np.nan


def compile_draw(
    evaluate: Callable[..., tuple[float, float]], *, cached: bool = True
) -> Kernel[..., tuple[int, float, float, int]]:
    """Return a kernel that draws from e^{-V}, with ``evaluate(arguments, t)`` of V, V'.

    The kernel (arguments, rng, hull, paused, low, high, guess, width, control) returns
    a code of `errors`, the draw, V there and the number of evaluations. ``hull`` and
    ``paused``, a record of `PausedDraw`, are its memory. ``guess`` and ``width`` are
    about the mode and 1.3 standard deviations. After a pause it goes on with the next
    evaluation when it is called again with the same arguments.
    """
    energy = kernel(evaluate, cached=cached)

    def draw(arguments, rng, hull, paused, low, high, guess, width, control):
        first, last = first_points(low, high, guess, width)
        begin, count, reach = 0, 0, max(last - first, 1e-300)
        if control.stage == ON_LINE:
            begin, count = paused.turn, paused.num_tangents
            reach = paused.reach
        control.stage = 0
        for turn in range(begin, MAX_TRIES):
            if turn > begin and is_due(control):
                paused.turn, paused.num_tangents, paused.reach = turn, count, reach
                control.stage = ON_LINE
                return PAUSED, np.nan, np.nan, turn - begin
            bound = np.nan
            t = next_point(hull, count, turn, low, high, first, last, reach)
            # The search for rising ends goes out in longer and longer steps.
            if turn >= 2:
                reach *= 3.0
            # Only NaN differs from itself.
            is_proposal = t != t
            if is_proposal:
                if not 0.0 < fill_masses(hull, count, low, high) < np.inf:
                    return DRAW_FAILED, np.nan, np.nan, turn - begin
                t, bound = propose(hull, count, high, rng)
            value, slope = energy(arguments, t)
            # If no point has a finite energy, there is nothing to draw from.
            if np.isnan(value) or (turn > 2 and count == 0):
                return FUNCTION_FAILED, np.nan, np.nan, turn + 1 - begin
            if is_proposal:
                if exceeds(bound, 0.0, 0.0, value):
                    return BOUND_VIOLATED, np.nan, np.nan, turn + 1 - begin
                if rng.standard_exponential() >= value - bound:
                    return OK, t, value, turn + 1 - begin
            # Without more memory the hull stays valid, and proposals are independent.
            if count < CAPACITY and abs(value) < np.inf and abs(slope) < np.inf:
                count = insert(hull, count, t, value, slope)
                if count < 0:
                    return BOUND_VIOLATED, np.nan, np.nan, turn + 1 - begin
        return EXHAUSTED, np.nan, np.nan, MAX_TRIES - begin

    return kernel(draw, cached=cached)


class Line(NamedTuple):
    """Arguments of `evaluate`. They are few, because each array takes time per call.

    If ``is_quadratic``, the regularizer is constant + slope t + curvature t^2 / 2, with
    the coefficients ``along``. Otherwise its compiled functions are called.
    """

    work: records.Work
    loss_params: Array
    block: int
    weight: float  # k / n
    margins: Array  # (m,): u
    rates: Array  # (m,): v
    response: Array  # (m,): y
    regularizer: RegularizerParams
    strength: float  # k mu
    theta: Array  # (dim,)
    direction: Array  # (dim,)
    point: Array  # (dim,), scratch
    is_quadratic: int
    along: tuple[float, float, float]


@kernel(counts_references=False)
def line_of(target, state, margins, rates, response, is_quadratic, along):
    """Return the line through the position, for the records of the margins.

    ``along`` is constant, slope and curvature of a quadratic regularizer.
    """
    theta, direction, point = (
        state.position,
        state.vectors[ROW.direction],
        state.vectors[ROW.moved_point],
    )
    return Line(
        state.work,
        target.data.loss_params,
        target.data.block,
        target.k / target.data.num_records,
        margins,
        rates,
        response,
        target.regularizer,
        target.k * target.mu,
        theta,
        direction,
        point,
        is_quadratic,
        along,
    )


@kernel(counts_references=False)
def rates_of(data, direction, rates):
    """Fill rates with A e, block by block."""
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        records.products_of(data, direction, start, stop, rates[start:stop])


@kernel(counts_references=False)
def margins_at(data, theta, margins):
    """Fill margins with A theta + b, block by block."""
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        records.margins_of(data, theta, start, stop, margins[start:stop])


@kernel(counts_references=False)
def regularizer_along(value_piece, gradient_piece, line, t):
    """Return r(theta + t e) and its slope in t, by the compiled functions."""
    out, gradient = line.work.out, line.work.vector
    for j in range(line.theta.shape[0]):
        line.point[j] = line.theta[j] + t * line.direction[j]
    out[0] = np.nan
    value_piece(line.regularizer, line.point, out)
    value, slope = out[0], 0.0
    gradient[:] = np.nan
    gradient_piece(line.regularizer, line.point, gradient)
    for j in range(line.theta.shape[0]):
        # The gradient of the entropy is infinite at 0. The product with a direction of
        # 0 would be NaN.
        if line.direction[j] != 0.0:
            slope += line.direction[j] * gradient[j]
    return value, slope


def evaluate(arguments, t):
    """Return the energy along the line and its slope, for (pieces, line)."""
    pieces, line = arguments
    value, slope, out = 0.0, 0.0, line.work.out
    for start in range(0, line.margins.shape[0], line.block):
        stop = min(start + line.block, line.margins.shape[0])
        margins = line.work.margins[: stop - start]
        slopes = line.work.slopes[: stop - start]
        for i in range(stop - start):
            margins[i] = line.margins[start + i] + t * line.rates[start + i]
        out[0] = np.nan
        pieces.loss_slope(
            line.loss_params, margins, line.response[start:stop], slopes, out
        )
        value += out[0]
        slope += np.dot(slopes, line.rates[start:stop])
    value, slope = line.weight * value, line.weight * slope
    if line.strength > 0.0:
        if line.is_quadratic == 1:
            constant, first, curvature = line.along
            rate = curvature * t
            size = constant + t * (first + 0.5 * rate)
            rate += first
        else:
            size, rate = regularizer_along(
                pieces.regularizer_value, pieces.regularizer_gradient, line, t
            )
        value, slope = value + line.strength * size, slope + line.strength * rate
    return value, slope


draw_on_line = compile_draw(evaluate)


@kernel(counts_references=False)
def move_inside(target, pieces, state, t):
    """Move by t along the direction, and return the move.

    It is a little shorter if rounding errors put the end outside.
    """
    theta, direction = state.position, state.vectors[ROW.direction]
    end, pull = state.vectors[ROW.moved_point], 2.0**-52
    while True:
        for j in range(theta.shape[0]):
            end[j] = theta[j] + t * direction[j]
        if t == 0.0 or gibbs_target.inside(target, pieces, end, state.work) == 1.0:
            break
        t = t * (1.0 - pull) if pull < 1.0 else 0.0
        pull *= 2.0
    copy_into(end, theta)
    return t


@kernel(counts_references=False)
def energy_at(target, pieces, margins, theta, work):
    """Return the energy at theta from its margins, NaN if a function failed."""
    data = target.data
    total = 0.0
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        values = work.margins[: stop - start]
        copy_into(margins[start:stop], values)
        work.out[0] = np.nan
        pieces.loss_value(data.loss_params, values, data.response[start:stop], work.out)
        total += work.out[0]
    value = total / data.num_records
    if target.mu > 0.0:
        value += target.mu * gibbs_target.regularizer(target, pieces, theta, work)
    return target.k * value


@kernel(counts_references=False)
def quadratic_along(params, theta, direction):
    """Return value, slope and curvature of scale/2 ||theta + t e - center||^2 at 0."""
    value, slope, curvature = 0.0, 0.0, 0.0
    for j in range(theta.shape[0]):
        offset = theta[j] - params.center[j]
        value += offset * offset
        slope += offset * direction[j]
        curvature += direction[j] * direction[j]
    scale = params.scale
    return 0.5 * scale * value, scale * slope, scale * curvature


@kernel(counts_references=False)
def guess_along(whiten, center, theta, direction, white, difference):
    """Return mode and standard deviation of a Gaussian fit on the line.

    They affect the running time alone. The last two arguments are scratch memory.
    """
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - center[j]
    multiply(whiten, difference, white)
    slope = curvature = 0.0
    for i in range(white.shape[0]):
        rate = np.dot(whiten[i], direction)
        slope += rate * white[i]
        curvature += rate * rate
    return -slope / curvature, 1.0 / np.sqrt(curvature)
