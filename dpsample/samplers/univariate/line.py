# mypy: allow-untyped-defs
r"""The energy along a line, from the margins of the records that the line moves.

    V(t) = k (1/n sum_i phi(u_i + t v_i, y_i) + mu r(theta + t e)),    u = A theta + b,

with v = A e: one pass over u and v per evaluation, whatever the number of coefficients.
Records with v_i = 0 may be left out, which changes V by a constant.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import copy_into
from dpsample.problem import records
from dpsample.regularizers import RegularizerParams
from dpsample.samplers.univariate.adaptive_rejection import compile_draw


class Line(NamedTuple):
    """All that `evaluate` reads: few arrays, because each costs time per call.

    If ``is_quadratic`` the regularizer is constant + slope t + curvature t^2 / 2, which
    are in ``along``, else its pieces are called.
    """

    work: records.Work
    loss_params: Array
    block: int
    weight: float  # k / n
    margins: Array  # (m,)
    rates: Array  # (m,)
    response: Array  # (m,)
    regularizer: RegularizerParams
    strength: float  # k mu
    theta: Array  # (dim,)
    direction: Array  # (dim,)
    point: Array  # (dim,), scratch
    is_quadratic: int
    along: tuple[float, float, float]


@kernel
def line_of(target, state, margins, rates, response, is_quadratic, along):
    """Line through the position along scratch[1], for the records of the margins.

    ``along`` is what the regularizer is if it is quadratic: constant, slope, curvature.
    """
    theta, direction, point = state.position, state.scratch[1], state.scratch[2]
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


@kernel
def rates_of(data, direction, rates):
    """Fill rates with A e, block by block."""
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        records.products_of(data, direction, start, stop, rates[start:stop])


@kernel
def margins_at(data, theta, margins):
    """Fill margins with A theta + b, block by block."""
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        records.margins_of(data, theta, start, stop, margins[start:stop])


@kernel
def regularizer_along(value_piece, gradient_piece, line, t):
    """Return r(theta + t e) and its slope in t, from the pieces."""
    out, gradient = line.work.out, line.work.vector
    for j in range(line.theta.shape[0]):
        line.point[j] = line.theta[j] + t * line.direction[j]
    out[0] = np.nan
    value_piece(line.regularizer, line.point, out)
    value, slope = out[0], 0.0
    gradient[:] = np.nan
    gradient_piece(line.regularizer, line.point, gradient)
    for j in range(line.theta.shape[0]):
        # The entropy's gradient is infinite at 0, where the line may not move at all.
        if line.direction[j] != 0.0:
            slope += line.direction[j] * gradient[j]
    return value, slope


def evaluate(arguments, t):
    """Energy along the line and its slope, for (pieces, line)."""
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
    """Move by t along scratch[1], or less where rounding leads out; return the move."""
    theta, direction, moved = state.position, state.scratch[1], state.scratch[2]
    out, pull = state.work.out, 2.0**-52
    while True:
        for j in range(theta.shape[0]):
            moved[j] = theta[j] + t * direction[j]
        out[0] = np.nan
        pieces.contains(target.body, moved, out)
        if t == 0.0 or out[0] == 1.0:
            break
        t = t * (1.0 - pull) if pull < 1.0 else 0.0
        pull *= 2.0
    copy_into(moved, theta)
    return t


@kernel
def energy_at(target, pieces, margins, theta, work):
    """Energy at theta from its margins; NaN if a piece failed."""
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
        work.out[0] = np.nan
        pieces.regularizer_value(target.regularizer, theta, work.out)
        value += target.mu * work.out[0]
    return target.k * value


@kernel
def quadratic_along(params, theta, direction):
    """Value, slope and curvature at t = 0 of scale/2 ||theta + t e - center||_2^2."""
    value, slope, curvature = 0.0, 0.0, 0.0
    for j in range(theta.shape[0]):
        offset = theta[j] - params.center[j]
        value += offset * offset
        slope += offset * direction[j]
        curvature += direction[j] * direction[j]
    scale = params.scale
    return 0.5 * scale * value, scale * slope, scale * curvature


@kernel
def guess_along(whiten, center, theta, direction, white, moved):
    """Mode and standard deviation on the line of the Gaussian with this inverse factor.

    Both are guesses that move the running time only.
    """
    for j in range(theta.shape[0]):
        moved[j] = theta[j] - center[j]
    np.dot(whiten, moved, white)
    slope = curvature = 0.0
    for i in range(white.shape[0]):
        rate = np.dot(whiten[i], direction)
        slope += rate * white[i]
        curvature += rate * rate
    return -slope / curvature, 1.0 / np.sqrt(curvature)
