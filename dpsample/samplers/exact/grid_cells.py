# mypy: allow-untyped-defs
"""Rejection from a piecewise tangent envelope, for bodies of dimension up to 3.

With theta = c + L z, the energy is convex in z: on each cell of a partition into boxes
it is at least its tangent at one point, so that

    sum over cells of e^{-V(t) - <g, z - t>} on the cell

is above the density. A cell is drawn by its mass, z in it as independent truncated
exponentials, and kept with probability e^{tangent - V}.

Boxes are split one by one, between the tangent's point and the mean of the exponential
density, always the one that is expected to cause most rejections. What is expected
moves the running time only: any partition and any tangents give an envelope.

Along an axis e^{-tangent} is proportional to e^{-slope x} on an interval, which may be
a half line: its mass, its moments and an exact draw.
"""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import Work
from dpsample.samplers import errors, gaussian_fit
from dpsample.samplers.chain import ACCEPTED, compile_run, displace, evaluate_proposal
from dpsample.samplers.errors import FUNCTION_FAILED, OK, UNCOVERED, raise_unless_ok
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

# Relative widening of the outer box and of all that keeps a cell: it covers rounding.
SLACK = 1e-9
MAX_TRIES = 100_000
# Relative size of rounding errors in an energy and its tangent.
ROUNDING = 1e-10
EPSILON = 2.0**-52  # relative rounding error of one energy
MAX_ERROR = 1e-3  # largest rounding error that an accept test may have
MAX_CELLS = {1: 200, 2: 1500, 3: 4000}
TOLERANCE = {1: 0.01, 2: 0.04, 3: 0.1}  # share of rejections at which splitting ends
CHECK_EVERY = 50
SPLITTING = 1  # stage of a paused build, whose first cells are done
NUM_TRIES, NEXT_CELL = 0, 0  # what a paused draw, or a paused build, saves
# Other axes are tried if more than so many tolerances are expected to be rejected.
ENOUGH = 1.5
MIN_CURVATURE, MAX_CURVATURE = 0.3, 1e4
# Below this product of slope and width the density is taken for constant: the error
# of the mass is relative and of the order of its square.
FLAT = 1e-8
# Smallest outward slope, in units of the fit, of the tangent on an unbounded cell.
OUTWARD = 0.3
MAX_DOUBLINGS = 60
# Share of the way to the center from a projection: no slope is infinite there.
RETREAT = 0.01


def turned(target: Gibbs, shape: GaussianFit) -> GaussianFit:
    """Fit with its first axis along the gradient at the mode.

    At a mode on the boundary this is the normal, along which the density is steep: the
    faces of the cells are then parallel to the boundary.
    """
    slope = target.gradient(gaussian_fit.minimize(target)[0])
    if not np.isfinite(slope).all():
        slope = target.gradient(shape.center)
    slope = shape.factor.T @ slope
    rank = len(slope)
    turn = np.linalg.qr(np.column_stack([slope, np.eye(rank)]))[0]
    return replace(
        shape,
        factor=np.ascontiguousarray(shape.factor @ turn),
        whiten=np.ascontiguousarray(turn.T @ shape.whiten),
    )


def separate(target: Gibbs, shape: GaussianFit) -> GaussianFit:
    """Fit whose axes are those of the parameters, where these are free.

    Faces are then parallel to those of a box, and to the kinks of l_p norms.
    """
    if shape.factor.shape[0] > shape.factor.shape[1]:
        return turned(target, shape)
    deviations = np.sqrt(np.einsum("ij,ij->i", shape.factor, shape.factor))
    return replace(shape, factor=np.diag(deviations), whiten=np.diag(1.0 / deviations))


def first_cells(target: Gibbs, shape: GaussianFit) -> tuple[Array, Array]:
    """Outer box of the domain, possibly infinite, cut at the center on every axis."""
    domain = target.problem.domain
    shift = shape.whiten @ shape.center
    upper = domain.support(shape.whiten) - shift
    lower = -domain.support(-shape.whiten) - shift
    slack = SLACK * (1.0 + np.abs(shift))
    lower, upper = lower * (1.0 + SLACK) - slack, upper * (1.0 + SLACK) + slack
    sides = [((a, 0.0), (0.0, b)) for a, b in zip(lower, upper, strict=True)]
    boxes = np.array(list(itertools.product(*sides)))
    return boxes[:, :, 0], boxes[:, :, 1]


class Cells(NamedTuple):
    """Boxes in z, the tangent on each, and their cumulative share of the mass."""

    center: Array  # (dim,)
    factor: Array  # (dim, m)
    lower: Array  # (cells, m)
    upper: Array  # (cells, m)
    touch: Array  # (cells, m): the tangent's point in z, not always in the cell
    slopes: Array  # (cells, m)
    base: Array  # (cells,): the energy at the tangent's point
    cumulative: Array  # (cells,): the last one is 1


@kernel(counts_references=False)
def tangent(plan, j, z):
    """Tangent of cell j at z, and the size of its terms."""
    value, size = plan.base[j], abs(plan.base[j])
    for i in range(z.shape[0]):
        term = plan.slopes[j, i] * (z[i] - plan.touch[j, i])
        value += term
        size += abs(term)
    return value, size


@kernel(counts_references=False)
def propose(plan, rng, z):
    """Fill z with one draw of the envelope; return its cell."""
    j = np.searchsorted(plan.cumulative, rng.random(), side="right")
    for i in range(z.shape[0]):
        low, high = plan.lower[j, i], plan.upper[j, i]
        z[i] = draw_along(rng, plan.slopes[j, i], low, high)
    return j


def step(target, pieces, plan, state, rng):
    """One independent draw; a pause comes between two tries."""
    z, proposal = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    control = state.work.control[0]
    if control.stage == 0:
        control.saved[NUM_TRIES] = 0.0
    control.stage = 0
    while control.saved[NUM_TRIES] < MAX_TRIES:
        control.saved[NUM_TRIES] += 1.0
        cell = propose(plan, rng, z)
        displace(plan, plan.center, z, 1.0, proposal)
        energy = evaluate_proposal(target, pieces, state, proposal)
        bound, size = tangent(plan, cell, z)
        if np.isnan(energy):
            return FUNCTION_FAILED
        if energy < bound - ROUNDING * (1.0 + size + abs(energy)):
            return errors.BOUND_VIOLATED
        if rng.standard_exponential() >= energy - bound:
            copy_into(proposal, state.position)
            state.energy[0] = energy
            state.counts[ACCEPTED] += 1
            return OK
        if is_due(control):
            control.stage = 1
            return PAUSED
    return errors.EXHAUSTED


run = compile_run(step)


@kernel(counts_references=False)
def share_outside(target, pieces, frame, pile, j, z):
    """Share of the cell's proposals outside the domain, from 2^m points."""
    rank, count = z.shape[0], 0
    for corner in range(2**rank):
        for i in range(rank):
            low, high = pile.lower[j, i], pile.upper[j, i]
            mean, variance = moments(pile.slopes[j, i], low, high)
            sign = 1.0 if (corner >> i) % 2 == 1 else -1.0
            z[i] = min(max(mean + sign * math.sqrt(variance), low), high)
        place(frame, z, frame.theta)
        if gibbs.inside(target, pieces, frame.theta, frame.work) != 1.0:
            count += 1
    return count / 2.0**rank


@kernel(counts_references=False)
def is_apart(target, pieces, frame, low, high, z):
    """Whether a halfspace that holds the domain is seen to miss the cell.

    It is that of the projection of a point of the cell, its middle where it has one.
    """
    for i in range(z.shape[0]):
        z[i] = 0.5 * low[i] + 0.5 * high[i]
        if not abs(z[i]) < np.inf:
            z[i] = low[i] + 1.0 if low[i] > -np.inf else high[i] - 1.0
    place(frame, z, frame.theta)
    gibbs.project(target, pieces, frame.theta, frame.other)
    room = 0.0
    for k in range(frame.theta.shape[0]):
        frame.other[k] = frame.theta[k] - frame.other[k]
        room += frame.other[k] * frame.other[k]
    reach = SLACK * math.sqrt(room)
    for i in range(z.shape[0]):
        along = 0.0
        for k in range(frame.theta.shape[0]):
            along += frame.other[k] * frame.factor[k, i]
        if along != 0.0:
            nearest = z[i] - low[i] if along > 0.0 else high[i] - z[i]
            reach += abs(along) * nearest
    return room > reach * (1.0 + SLACK)


@kernel(counts_references=False)
def rate_cell(target, pieces, frame, pile, j, z):
    """Write the expected loss of cell j; drop it if it does not meet the domain."""
    spread = 0.0
    for i in range(z.shape[0]):
        low, high = pile.lower[j, i], pile.upper[j, i]
        mean, variance = moments(pile.slopes[j, i], low, high)
        spread += 0.5 * (variance + (mean - pile.touch[j, i]) ** 2)
    kept = math.exp(-pile.curvature[j] * spread)
    outside = share_outside(target, pieces, frame, pile, j, z)
    if outside > 0.0 and is_apart(
        target, pieces, frame, pile.lower[j], pile.upper[j], z
    ):
        pile.log_mass[j] = -np.inf
    loss = max(1.0 - kept * (1.0 - outside), 1e-300)
    pile.log_score[j] = pile.log_mass[j] + math.log(loss)


@kernel
def split(target, pieces, frame, pile, j, new, z, tilt):
    """Split cell j in two, of which ``new`` is the upper one."""
    axis, widest, cut = -1, 0.0, np.nan
    for i in range(z.shape[0]):
        low, high = pile.lower[j, i], pile.upper[j, i]
        z[i], tilt[i] = pile.touch[j, i], pile.slopes[j, i]
        mean, variance = moments(tilt[i], low, high)
        spread = variance + (mean - z[i]) ** 2
        # Mass far from the tangent's point is an artifact: cut between the two.
        middle = 0.5 * mean + 0.5 * min(max(z[i], low), high)
        if spread > widest and low < middle < high:
            axis, widest, cut = i, spread, middle
    if axis < 0:
        pile.log_score[j] = -np.inf  # as narrow as numbers allow
        return OK
    base = pile.base[j]
    pile.lower[new], pile.upper[new] = pile.lower[j], pile.upper[j]
    pile.lower[new, axis], pile.upper[j, axis] = cut, cut
    for cell in (j, new):
        code = touch_cell(target, pieces, frame, pile, cell, tilt)
        if code != OK:
            return code
        gap, square = pile.base[cell] - base, 1e-300
        for i in range(z.shape[0]):
            move = pile.touch[cell, i] - z[i]
            gap -= tilt[i] * move
            square += move * move
        seen = 2.0 * gap / square
        pile.curvature[cell] = min(max(seen, MIN_CURVATURE), MAX_CURVATURE)
    return OK


@kernel
def grow(target, pieces, frame, pile, count, tolerance):
    """Split until the expected loss is small; return a code, the cells and the loss.

    Paused, it goes on when it is called again with the cells that there are.
    """
    rank = frame.factor.shape[1]
    z, tilt = np.empty(rank), np.empty(rank)
    control = frame.work.control[0]
    first = count if control.stage == SPLITTING else int(control.saved[NEXT_CELL])
    for j in range(first, count):
        if j > first and is_due(control):
            control.saved[NEXT_CELL] = j
            return PAUSED, count, np.inf
        for i in range(rank):
            is_low, is_high = pile.lower[j, i] == -np.inf, pile.upper[j, i] == np.inf
            tilt[i] = -1.0 if is_low else (1.0 if is_high else 0.0)
        pile.curvature[j] = 1.0
        code = touch_cell(target, pieces, frame, pile, j, tilt)
        if code != OK:
            return code, count, np.inf
        rate_cell(target, pieces, frame, pile, j, z)
    loss, is_over, control.stage = np.inf, False, SPLITTING
    while True:
        if is_over:
            return PAUSED, count, np.inf
        j = int(np.argmax(pile.log_score[:count]))
        is_full = count == pile.base.shape[0] or pile.log_score[j] == -np.inf
        if count % CHECK_EVERY == 0 or is_full:
            top = pile.log_mass[:count].max()
            loss = np.exp(pile.log_score[:count] - top).sum()
            loss /= np.exp(pile.log_mass[:count] - top).sum()
            if is_full or loss <= tolerance:
                return OK, count, loss
        is_over = is_due(control)
        code = split(target, pieces, frame, pile, j, count, z, tilt)
        if code != OK:
            return code, count, np.inf
        if pile.log_score[j] == -np.inf:
            continue
        for cell in (j, count):
            rate_cell(target, pieces, frame, pile, cell, z)
        count += 1


def build(target: Gibbs, shape: GaussianFit) -> Cells:
    """Cells for a target on a domain whose affine hull has dimension 1, 2 or 3."""
    cells, loss = envelope(target, turned(target, shape))
    if loss > ENOUGH * TOLERANCE[shape.factor.shape[1]]:
        other, other_loss = envelope(target, separate(target, shape))
        if other_loss < loss:
            cells = other
    raise_unless_ok(errors.UNCOVERED if cells is None else OK)
    result = cast(Cells, cells)
    heaviest = int(np.argmax(np.diff(result.cumulative, prepend=0.0)))
    is_rough = bool(EPSILON * abs(result.base[heaviest]) > MAX_ERROR)
    raise_unless_ok(errors.ROUGH if is_rough else OK)
    return result


def envelope(target: Gibbs, shape: GaussianFit) -> tuple[Cells | None, float]:
    """Cells in these coordinates and the expected share of rejections."""
    rank = shape.factor.shape[1]
    lower, upper = first_cells(target, shape)
    room = MAX_CELLS[rank]
    pile = Pile(*(np.zeros((room, rank)) for _ in range(4)), *np.zeros((4, room)))
    pile.lower[: len(lower)], pile.upper[: len(upper)] = lower, upper
    frame = Frame(
        center=shape.center,
        factor=shape.factor,
        whiten=shape.whiten,
        is_bounded=bool(target.problem.domain.is_bounded),
        work=target.new_work(),
        theta=np.empty(target.dim),
        gradient=np.empty(target.dim),
        other=np.empty(target.dim),
    )
    numbers, pieces, control = target.numbers, target.pieces, frame.work.control
    code, count, loss = PAUSED, len(lower), math.inf
    while code == PAUSED:
        code, count, loss = pauses.call(
            control, grow, numbers, pieces, frame, pile, count, TOLERANCE[rank]
        )
        pauses.notify_listeners()
    if code == errors.UNCOVERED:
        return None, math.inf
    raise_unless_ok(code)
    kept = np.flatnonzero(pile.log_mass[:count] > -np.inf)
    with np.errstate(under="ignore"):
        mass = np.exp(pile.log_mass[kept] - pile.log_mass[kept].max())
    cumulative = np.cumsum(mass) / mass.sum()
    cumulative[-1] = 1.0
    lower, upper, touch, slopes, base = (part[kept] for part in pile[:5])
    where = shape.center, shape.factor, lower, upper
    return Cells(*where, touch, slopes, base, cumulative), loss


@kernel(counts_references=False)
def log_mass(slope, low, high):
    """Log of the integral of e^{-slope x} over [low, high]; infinite if it diverges."""
    size, width = abs(slope), high - low
    if width < np.inf and size * width < FLAT:
        return math.log(width) - slope * (0.5 * low + 0.5 * high)
    nearest = slope * low if slope > 0.0 else slope * high
    if not abs(nearest) < np.inf:
        return np.inf
    return math.log(-math.expm1(-size * width) / size) - nearest


@kernel(counts_references=False)
def moments(slope, low, high):
    """Mean and variance, roughly; they only place tangents."""
    size, width = abs(slope), high - low
    if size * width < 0.05:
        mean, variance = width * (0.5 - size * width / 12.0), width * width / 12.0
    elif size * width > 50.0:
        mean, variance = 1.0 / size, 1.0 / (size * size)
    else:
        mean = 1.0 / size - width / math.expm1(size * width)
        half = 0.5 * width / math.sinh(0.5 * size * width)
        variance = 1.0 / (size * size) - half * half
    return (low + mean if slope >= 0.0 else high - mean), variance


@kernel(counts_references=False)
def draw_along(rng, slope, low, high):
    """Draw by inverting the distribution function from the end of highest density."""
    size, width = abs(slope), high - low
    u = rng.random()
    if width < np.inf and size * width < 1e-300:
        return min(low + width * u, high)
    step = -math.log1p(u * math.expm1(-size * width)) / size
    return min(low + step, high) if slope > 0.0 else max(high - step, low)


class Frame(NamedTuple):
    """Coordinates and outer box of the cells, with scratch memory."""

    center: Array
    factor: Array
    whiten: Array
    is_bounded: bool
    work: Work
    theta: Array
    gradient: Array
    other: Array


class Pile(NamedTuple):
    """Cells while they are being made; fields of `Cells`, and what to split next."""

    lower: Array
    upper: Array
    touch: Array
    slopes: Array
    base: Array
    log_mass: Array
    curvature: Array
    log_score: Array  # log of the expected mass of rejected proposals


@kernel(counts_references=False)
def place(frame, z, out):
    """Fill out with c + L z."""
    for k in range(out.shape[0]):
        out[k] = frame.center[k]
        for i in range(z.shape[0]):
            out[k] += frame.factor[k, i] * z[i]


@kernel(counts_references=False)
def pull_inside(target, pieces, frame, z):
    """Move z to a point of the domain off its boundary, if it is outside."""
    place(frame, z, frame.theta)
    if gibbs.inside(target, pieces, frame.theta, frame.work) == 1.0:
        return
    gibbs.project(target, pieces, frame.theta, frame.other)
    for i in range(z.shape[0]):
        z[i] = 0.0
        for k in range(frame.theta.shape[0]):
            z[i] += frame.whiten[i, k] * (frame.other[k] - frame.center[k])
        z[i] *= 1.0 - RETREAT


@kernel(counts_references=False)
def touch_at(target, pieces, frame, z, slopes):
    """Energy at z, its gradient into slopes."""
    place(frame, z, frame.theta)
    value = gibbs.energy_gradient(
        target, pieces, frame.theta, frame.work, frame.gradient
    )
    for i in range(z.shape[0]):
        slopes[i] = 0.0
        for k in range(frame.theta.shape[0]):
            slopes[i] += frame.factor[k, i] * frame.gradient[k]
        value = value if abs(slopes[i]) < np.inf else np.nan
    return value


@kernel(counts_references=False)
def touch_cell(target, pieces, frame, pile, j, tilt):
    """Tangent of cell j near the mean of the density of slope ``tilt``; its mass."""
    low, high = pile.lower[j], pile.upper[j]
    z, slopes = pile.touch[j], pile.slopes[j]
    for i in range(z.shape[0]):
        z[i] = moments(tilt[i], low[i], high[i])[0]
    if frame.is_bounded:
        pull_inside(target, pieces, frame, z)
    reach = 1.0
    for _ in range(MAX_DOUBLINGS):
        pile.base[j] = touch_at(target, pieces, frame, z, slopes)
        if not abs(pile.base[j]) < np.inf:
            return FUNCTION_FAILED
        is_outward = True
        for i in range(z.shape[0]):
            if low[i] == -np.inf and not slopes[i] < -OUTWARD:
                z[i], is_outward = min(z[i], high[i]) - reach, False
            if high[i] == np.inf and not slopes[i] > OUTWARD:
                z[i], is_outward = max(z[i], low[i]) + reach, False
        if is_outward:
            total = -pile.base[j]
            for i in range(z.shape[0]):
                t = z[i]
                total += log_mass(slopes[i], low[i] - t, high[i] - t)
            pile.log_mass[j] = total
            return OK
        reach *= 2.0
    return UNCOVERED
