"""Exact draws along one coordinate, or along e_i - e_j on the simplex (else j = -1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import targets
from dpsample._jit import kernel
from dpsample.samplers import line
from dpsample.samplers.chain import GRADIENTS, RECORDS
from dpsample.samplers.columns import Columns, Moved, select
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.piecewise_quadratic import (
    draw_piecewise,
    draw_quadratic,
    sort_pairs,
)
from dpsample.samplers.slacks import Room

Array = NDArray[np.float64]

QUADRATIC, KINKED, SMOOTH = range(3)
# Sorting kinks beats adaptive rejection below about this many records on the line, and
# kinks inside the chord.
MAX_KINKED_RECORDS, MAX_KINKS = 128, 20
WIDTH = 1.3  # of the first tangents from the guessed mode, in standard deviations


class Plan(NamedTuple):
    """Domain and energy along coordinates, and a Gaussian fit for first guesses."""

    room: Room
    columns: Columns
    conditional: int
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    num_slacks: int
    num_margins: int
    num_slopes: int
    center: Array  # (dim,)
    precision: Array  # (dim, dim)
    # A quadratic energy: its value, gradient and Hessian at the center; a multiple of
    # the identity has no matrix.
    base: float
    slope: Array
    ridge: float
    hessian: Array
    # Slope of a kinked loss below its kink at u = y, for y > 0 and not, and its jump.
    left_positive: float
    left_negative: float
    jump: float


class State(NamedTuple):
    """As in `chain`; ``memory`` is an age, slacks, margins and a gradient."""

    position: Array
    energy: Array
    counts: NDArray[np.int64]
    memory: Array
    scratch: Array  # (rows, dim)
    work: Any
    moved: Moved
    hull: Array
    ends: Array  # (2,)
    kinks: Array  # (3, MAX_KINKED_RECORDS + 1)


@kernel
def along(values, i, j):
    """Component of a vector along the move."""
    return values[i] if j < 0 else values[i] - values[j]


@kernel
def curvature_along(ridge, hessian, i, j):
    """Curvature of a quadratic energy along the move."""
    if hessian.shape[0] == 0:
        return ridge if j < 0 else 2.0 * ridge
    if j < 0:
        return hessian[i, i]
    return hessian[i, i] + hessian[j, j] - 2.0 * hessian[i, j]


@kernel
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


@kernel
def regularizer_line(target, theta, i, j):
    """Slope and curvature along the move of scale/2 ||theta - center||_2^2."""
    params = target.regularizer
    offset = along(theta, i, j) - along(params.center, i, j)
    return params.scale * offset, params.scale * (1.0 if j < 0 else 2.0)


@kernel
def collect_kinks(plan, weight, margins, rates, response, low, high, out):
    """Kinks inside the chord into ``out``; return their number and the first slope.

    ``weight`` is k / n; the number is -1 if there are more than `MAX_KINKS`.
    """
    count, slope = 0, 0.0
    for m in range(margins.shape[0]):
        rate = rates[m]
        if rate != 0.0:
            left = plan.left_positive if response[m] > 0.0 else plan.left_negative
            rise = weight * plan.jump * abs(rate)
            # Along a falling margin the losses are met from above.
            slope += weight * rate * (left if rate > 0.0 else left + plan.jump)
            kink = (response[m] - margins[m]) / rate
            if kink <= low:
                slope += rise
            elif kink < high:
                if count == MAX_KINKS:
                    return -1, slope
                out[0, count], out[1, count] = kink, rise
                count += 1
    return count, slope


@kernel
def guess_of(plan, theta, i, j):
    """Mode and standard deviation along the move of the fitted Gaussian."""
    slope = 0.0
    for m in range(theta.shape[0]):
        offset = theta[m] - plan.center[m]
        slope += plan.precision[i, m] * offset
        if j >= 0:
            slope -= plan.precision[j, m] * offset
    curvature = curvature_along(1.0, plan.precision, i, j)
    return -slope / curvature, 1.0 / np.sqrt(curvature)


@kernel
def general_move(target, pieces, plan, state, response, margins, i, j, low, high, rng):
    """Draw along the move from the margins; return a code, t and the rates."""
    theta, direction = state.position, state.scratch[1]
    here, rates, responses = select(plan.columns, response, margins, i, j, state.moved)
    slope = curvature = 0.0
    if plan.is_quadratic == 1:
        slope, curvature = regularizer_line(target, theta, i, j)
    else:
        direction[:] = 0.0
        direction[i] = 1.0
        if j >= 0:
            direction[j] = -1.0
    if plan.conditional == KINKED and here.shape[0] <= MAX_KINKED_RECORDS:
        out = state.kinks
        weight = target.k / target.data.num_records
        count, first = collect_kinks(
            plan, weight, here, rates, responses, low, high, out
        )
        if count >= 0:
            sort_pairs(out[0], out[1], count)
            weight = target.k * target.mu
            first += weight * slope
            code, t = draw_piecewise(
                rng, first, weight * curvature, low, high, out[0], out[1], count, out[2]
            )
            return code, t, rates
    path = line.Line(
        state.work,
        target.data.loss_params,
        target.data.block,
        target.k / target.data.num_records,
        here,
        rates,
        responses,
        target.regularizer,
        target.k * target.mu,
        theta,
        direction,
        state.scratch[2],
        plan.is_quadratic,
        0.0,
        slope,
        curvature,
    )
    guess, width = guess_of(plan, theta, i, j)
    code, t, _, evaluations = line.draw_on_line(
        (pieces, path),
        rng,
        state.hull,
        low,
        high,
        guess,
        WIDTH * width,
        state.work.control,
    )
    state.counts[GRADIENTS] += evaluations
    state.counts[RECORDS] += evaluations * here.shape[0]
    return code, t, rates


@kernel
def chord_along(target, pieces, state, i):
    """Chord of any domain along coordinate i, by its piece."""
    direction = state.scratch[1]
    direction[:] = 0.0
    direction[i] = 1.0
    targets.chord(target, pieces, state.position, direction, state.ends)
    return state.ends[0], state.ends[1]


@kernel
def move_inside(target, pieces, state, i, t):
    """Move coordinate i by t, or less where rounding leads out of the domain."""
    theta = state.position
    before, pull = theta[i], 2.0**-52
    while True:
        theta[i] = before + t
        if t == 0.0 or targets.inside(target, pieces, theta, state.work) == 1.0:
            return OK if theta[i] == theta[i] else PIECE_FAILED
        t = t * (1.0 - pull) if pull < 1.0 else 0.0
        pull *= 2.0
