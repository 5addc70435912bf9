# mypy: allow-untyped-defs
"""Rejection from a piecewise tangent envelope, for bodies of dimension up to 3.

With theta = c + L z, where c and L are center and factor of a Gaussian fit, the energy
is convex in z. The domain is covered by boxes in z, the *cells*. On each cell the
energy is at least its tangent at one point t, with the gradient g there, so that the
envelope

    sum over cells of e^{-V(t) - <g, z - t>} on the cell

is above the density. A proposal is a cell, drawn by its mass, and z in it, drawn as
independent truncated exponentials. It is accepted with probability e^{tangent - V}.

Cells are split one by one, between the tangent's point and the mean of the exponential
density. The next one is always the cell with the largest expected number of rejections.
These expectations affect the running time alone, because any partition and any tangents
give an envelope. Cells that do not meet the domain are dropped.

Along an axis e^{-tangent} is proportional to e^{-slope x} on an interval, which may be
a half line. The last functions have its mass, its moments and an exact draw.
"""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import Work
from dpsample.samplers import chain, errors, gaussian_fit
from dpsample.samplers.chain import (
    COUNT,
    ChainState,
    compile_run,
    displace,
    evaluate_proposal,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK, UNCOVERED, raise_unless_ok
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs

# The outer box is larger by this share, and a cell is dropped with this margin, so that
# rounding errors remove no point of the domain.
SLACK = 1e-9
# Maximum number of proposals of a draw.
MAX_PROPOSALS = 100_000
# Maximum number of cells, and the expected share of rejections at which splitting ends,
# by dimension. A higher dimension needs more cells for the same share. The share is
# computed only after each CHECK_INTERVAL splits, because it takes a sum over all cells.
MAX_CELLS = {1: 200, 2: 1500, 3: 4000}
TOLERANCE = {1: 0.01, 2: 0.04, 3: 0.1}
CHECK_INTERVAL = 50
# Stage of a paused build whose first cells are done.
SPLITTING = 1
# A draw, and a build of cells, that a pause may interrupt.
GridDraw = record_dtype(num_proposals=int)
Build = record_dtype(next_cell=int)  # first one of the first cells that has no tangent


class GridCellsVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    z: int = 0  # the draw in coordinates of the fit
    proposal: int = 1


ROW = GridCellsVectorRow()
# Smallest outward slope of a tangent on an unbounded cell, in units of the fit. The
# mass of such a cell would be infinite without one.
MIN_OUTWARD_SLOPE = 0.3


def rotate_to_gradient(target: Gibbs, shape: GaussianFit) -> GaussianFit:
    """Return the fit with its first axis along the gradient at the mode.

    At a mode on the boundary this is the normal, along which the density falls fast.
    Then facets of the cells are parallel to the boundary.
    """
    slope = target.gradient(gaussian_fit.minimize(target)[0])
    if not np.isfinite(slope).all():
        slope = target.gradient(shape.center)
    slope = shape.factor.T @ slope
    rank = len(slope)
    rotation = np.linalg.qr(np.column_stack([slope, np.eye(rank)]))[0]
    return replace(
        shape,
        factor=np.ascontiguousarray(shape.factor @ rotation),
        whiten=np.ascontiguousarray(rotation.T @ shape.whiten),
    )


def align_with_parameters(target: Gibbs, shape: GaussianFit) -> GaussianFit:
    """Return a fit with the axes of the parameters, if the domain has interior.

    Then facets of the cells are parallel to the facets of a box, and to the hyperplanes
    on which an l_p norm is not differentiable.
    """
    if shape.factor.shape[0] > shape.factor.shape[1]:
        return rotate_to_gradient(target, shape)
    deviations = np.sqrt(np.einsum("ij,ij->i", shape.factor, shape.factor))
    return replace(shape, factor=np.diag(deviations), whiten=np.diag(1.0 / deviations))


def first_cells(target: Gibbs, shape: GaussianFit) -> tuple[Array, Array]:
    """Return the outer box of the domain, possibly infinite, cut at the center."""
    domain = target.domain
    shift = shape.whiten @ shape.center
    upper = domain.support(shape.whiten) - shift
    lower = -domain.support(-shape.whiten) - shift
    slack = SLACK * (1.0 + np.abs(shift))
    lower, upper = lower * (1.0 + SLACK) - slack, upper * (1.0 + SLACK) + slack
    sides = [((a, 0.0), (0.0, b)) for a, b in zip(lower, upper, strict=True)]
    boxes = np.array(list(itertools.product(*sides)))
    return boxes[:, :, 0], boxes[:, :, 1]


class Cells(NamedTuple):
    """Boxes in z, their tangents, and their cumulative share of the mass."""

    center: Array  # (dim,): c
    factor: Array  # (dim, m): L
    lower: Array  # (cells, m)
    upper: Array  # (cells, m)
    touch: Array  # (cells, m): t, not always in the cell
    slopes: Array  # (cells, m): g
    base: Array  # (cells,): V(t)
    cumulative: Array  # (cells,): the last one is 1


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def tangent(plan, j, z):
    """Return the tangent of cell j at z, and the sum of its absolute terms."""
    value, size = plan.base[j], abs(plan.base[j])
    for i in range(z.shape[0]):
        term = plan.slopes[j, i] * (z[i] - plan.touch[j, i])
        value += term
        size += abs(term)
    return value, size


@kernel(counts_references=False)
def propose(plan, rng, z):
    """Fill z with one draw of the envelope, and return its cell."""
    j = np.searchsorted(plan.cumulative, rng.random(), side="right")
    for i in range(z.shape[0]):
        low, high = plan.lower[j, i], plan.upper[j, i]
        z[i] = draw_along(rng, plan.slopes[j, i], low, high)
    return j


def step(target, pieces, plan, state, rng):
    """Draw independently. A pause comes between two proposals."""
    z, proposal = (
        state.vectors[ROW.z][: plan.factor.shape[1]],
        state.vectors[ROW.proposal],
    )
    control, progress = state.work.control[0], state.workspace.draw[0]
    if control.stage == 0:
        progress.num_proposals = 0
    control.stage = 0
    while progress.num_proposals < MAX_PROPOSALS:
        progress.num_proposals += 1
        cell = propose(plan, rng, z)
        displace(plan, plan.center, z, 1.0, proposal)
        energy = evaluate_proposal(target, pieces, state, proposal)
        bound, size = tangent(plan, cell, z)
        if np.isnan(energy):
            return FUNCTION_FAILED
        # The tangent may be above the energy by relative rounding errors only.
        # Otherwise the energy is not convex, and the draw would not be exact.
        if energy < bound - 1e-10 * (1.0 + size + abs(energy)):
            return errors.BOUND_VIOLATED
        if rng.standard_exponential() >= energy - bound:
            copy_into(proposal, state.position)
            state.energy[0] = energy
            state.counts[COUNT.accepted] += 1
            return OK
        if is_due(control):
            control.stage = 1
            return PAUSED
    return errors.EXHAUSTED


run = compile_run(step)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class GridWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    draw: RecordArray  # one record of `GridDraw`


def init(target: Gibbs, plan: Cells, position: Array) -> ChainState:
    """Return a new state at a position of the domain."""
    work = GridWork(np.zeros(1, GridDraw))
    return chain.init(target, plan, position)._replace(workspace=work)


@kernel(counts_references=False)
def share_outside(target, pieces, frame, pile, j, z):
    """Estimate the share of the cell's proposals outside the domain from 2^m points.

    The points are the combinations of the mean plus or minus one standard deviation on
    each of the m axes.
    """
    rank, count = z.shape[0], 0
    for corner in range(2**rank):
        for i in range(rank):
            low, high = pile.lower[j, i], pile.upper[j, i]
            mean, variance = moments(pile.slopes[j, i], low, high)
            sign = 1.0 if (corner >> i) % 2 == 1 else -1.0
            z[i] = min(max(mean + sign * math.sqrt(variance), low), high)
        to_theta(frame, z, frame.theta)
        if gibbs_target.inside(target, pieces, frame.theta, frame.work) != 1.0:
            count += 1
    return count / 2.0**rank


@kernel(counts_references=False)
def is_apart(target, pieces, frame, low, high, z):
    """Return whether a halfspace that contains the domain does not meet the cell.

    The halfspace is normal to the projection of the cell's middle, or of a point of an
    unbounded cell.
    """
    for i in range(z.shape[0]):
        z[i] = 0.5 * low[i] + 0.5 * high[i]
        if not abs(z[i]) < np.inf:
            z[i] = low[i] + 1.0 if low[i] > -np.inf else high[i] - 1.0
    to_theta(frame, z, frame.theta)
    # ``other`` becomes the normal, whose squared length is <normal, z - projection>.
    gibbs_target.project(target, pieces, frame.theta, frame.other)
    square = 0.0
    for k in range(frame.theta.shape[0]):
        frame.other[k] = frame.theta[k] - frame.other[k]
        square += frame.other[k] * frame.other[k]
    # <normal, z - x> is at most ``reach`` for the points x of the cell. If the distance
    # of z from the halfspace is larger, the cell is apart.
    reach = SLACK * math.sqrt(square)
    for i in range(z.shape[0]):
        along = 0.0
        for k in range(frame.theta.shape[0]):
            along += frame.other[k] * frame.factor[k, i]
        if along != 0.0:
            width = z[i] - low[i] if along > 0.0 else high[i] - z[i]
            reach += abs(along) * width
    return square > reach * (1.0 + SLACK)


@kernel(counts_references=False)
def rate_cell(target, pieces, frame, pile, j, z):
    """Set the score of cell j, the log of the mass that its rejections lose.

    A cell that does not meet the domain gets the mass 0.
    """
    # V minus tangent is about curvature / 2 |z - t|^2. This is its mean over proposals.
    spread = 0.0
    for i in range(z.shape[0]):
        low, high = pile.lower[j, i], pile.upper[j, i]
        mean, variance = moments(pile.slopes[j, i], low, high)
        spread += 0.5 * (variance + (mean - pile.touch[j, i]) ** 2)
    accepted = math.exp(-pile.curvature[j] * spread)
    outside = share_outside(target, pieces, frame, pile, j, z)
    if outside > 0.0 and is_apart(
        target, pieces, frame, pile.lower[j], pile.upper[j], z
    ):
        pile.log_mass[j] = -np.inf
    loss = max(1.0 - accepted * (1.0 - outside), 1e-300)
    pile.log_score[j] = pile.log_mass[j] + math.log(loss)


@kernel
def split(target, pieces, frame, pile, j, new, z, tilt):
    """Split cell j in two, of which ``new`` is the upper one. Return a code.

    The axis is the one with the largest mean square of z - t.
    """
    axis, widest, cut = -1, 0.0, np.nan
    for i in range(z.shape[0]):
        low, high = pile.lower[j, i], pile.upper[j, i]
        z[i], tilt[i] = pile.touch[j, i], pile.slopes[j, i]
        mean, variance = moments(tilt[i], low, high)
        spread = variance + (mean - z[i]) ** 2
        # Much mass far from the tangent's point is an error of the tangent, so the cut
        # is between the point and the mean.
        middle = 0.5 * mean + 0.5 * min(max(z[i], low), high)
        if spread > widest and low < middle < high:
            axis, widest, cut = i, spread, middle
    # A cell whose bounds are neighboring floats is never split.
    if axis < 0:
        pile.log_score[j] = -np.inf
        return OK
    base = pile.base[j]
    pile.lower[new], pile.upper[new] = pile.lower[j], pile.upper[j]
    pile.lower[new, axis], pile.upper[j, axis] = cut, cut
    for cell in (j, new):
        code = set_tangent(target, pieces, frame, pile, cell, tilt)
        if code != OK:
            return code
        gap, square = pile.base[cell] - base, 1e-300
        for i in range(z.shape[0]):
            move = pile.touch[cell, i] - z[i]
            gap -= tilt[i] * move
            square += move * move
        # The gap of the old tangent at the new point estimates the curvature, in units
        # of the fit. Limits keep one bad estimate from deciding the order of the cells.
        curvature = 2.0 * gap / square
        pile.curvature[cell] = min(max(curvature, 0.3), 1e4)
    return OK


@kernel
def split_cells(target, pieces, frame, pile, count, tolerance):
    """Split until the expected loss is small. Return a code, the count and the loss.

    After a pause it goes on when it is called again with the present count of cells.
    """
    rank = frame.factor.shape[1]
    z, tilt = np.empty(rank), np.empty(rank)
    control, build = frame.work.control[0], frame.build[0]
    first = count if control.stage == SPLITTING else build.next_cell
    for j in range(first, count):
        if j > first and is_due(control):
            build.next_cell = j
            return PAUSED, count, np.inf
        for i in range(rank):
            is_low, is_high = pile.lower[j, i] == -np.inf, pile.upper[j, i] == np.inf
            # On a half line the first guess of the slope rises outwards.
            tilt[i] = 0.0
            if is_low:
                tilt[i] = -1.0
            elif is_high:
                tilt[i] = 1.0
        pile.curvature[j] = 1.0
        code = set_tangent(target, pieces, frame, pile, j, tilt)
        if code != OK:
            return code, count, np.inf
        rate_cell(target, pieces, frame, pile, j, z)
    loss, is_over, control.stage = np.inf, False, SPLITTING
    while True:
        if is_over:
            return PAUSED, count, np.inf
        j = int(np.argmax(pile.log_score[:count]))
        is_full = count == pile.base.shape[0] or pile.log_score[j] == -np.inf
        if count % CHECK_INTERVAL == 0 or is_full:
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
    """Return the cells for a domain whose affine hull has dimension 1, 2 or 3."""
    cells, loss = build_in_axes(target, rotate_to_gradient(target, shape))
    # If the first axes lose much more than the tolerance, others are tried, too.
    if loss > 1.5 * TOLERANCE[shape.factor.shape[1]]:
        aligned = align_with_parameters(target, shape)
        other, other_loss = build_in_axes(target, aligned)
        if other_loss < loss:
            cells = other
    raise_unless_ok(errors.UNCOVERED if cells is None else OK)
    result = cast(Cells, cells)
    heaviest = int(np.argmax(np.diff(result.cumulative, prepend=0.0)))
    # Largest rounding error of the energies that an accept test compares.
    is_rough = bool(2.0**-52 * abs(result.base[heaviest]) > 1e-3)
    raise_unless_ok(errors.ROUGH if is_rough else OK)
    return result


def build_in_axes(target: Gibbs, shape: GaussianFit) -> tuple[Cells | None, float]:
    """Return the cells in a fit's axes, and the expected share of rejections.

    There are no cells if a tangent on an unbounded cell does not rise outwards.
    """
    rank = shape.factor.shape[1]
    lower, upper = first_cells(target, shape)
    size = MAX_CELLS[rank]
    pile = Pile(*(np.zeros((size, rank)) for _ in range(4)), *np.zeros((4, size)))
    pile.lower[: len(lower)], pile.upper[: len(upper)] = lower, upper
    frame = Frame(
        center=shape.center,
        factor=shape.factor,
        whiten=shape.whiten,
        is_bounded=bool(target.domain.is_bounded),
        work=target.new_work(),
        build=np.zeros(1, Build),
        theta=np.empty(target.dim),
        gradient=np.empty(target.dim),
        other=np.empty(target.dim),
    )
    numbers, pieces, control = target.numbers, target.pieces, frame.work.control
    code, count, loss = PAUSED, len(lower), math.inf
    while code == PAUSED:
        code, count, loss = pauses.call(
            control, split_cells, numbers, pieces, frame, pile, count, TOLERANCE[rank]
        )
        pauses.notify_listeners()
    if code == errors.UNCOVERED:
        return None, math.inf
    raise_unless_ok(code)
    used = np.flatnonzero(pile.log_mass[:count] > -np.inf)
    with np.errstate(under="ignore"):
        mass = np.exp(pile.log_mass[used] - pile.log_mass[used].max())
    cumulative = np.cumsum(mass) / mass.sum()
    cumulative[-1] = 1.0
    lower, upper, touch, slopes, base = (array[used] for array in pile[:5])
    return Cells(
        shape.center, shape.factor, lower, upper, touch, slopes, base, cumulative
    ), loss


@kernel(counts_references=False)
def log_mass(slope, low, high):
    """Return the log integral of e^{-slope x} over [low, high], possibly infinite."""
    size, width = abs(slope), high - low
    # For a smaller product of slope and width the density is treated as constant. The
    # relative error of the mass is about its square.
    if width < np.inf and size * width < 1e-8:
        return math.log(width) - slope * (0.5 * low + 0.5 * high)
    nearest = slope * low if slope > 0.0 else slope * high
    if not abs(nearest) < np.inf:
        return np.inf
    return math.log(-math.expm1(-size * width) / size) - nearest


@kernel(counts_references=False)
def moments(slope, low, high):
    """Return mean and variance, approximately. They only choose tangents and cuts."""
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
    """Coordinates of the cells, with scratch memory."""

    center: Array  # (dim,): c
    factor: Array  # (dim, m): L
    whiten: Array  # (m, dim): left inverse of L
    is_bounded: bool  # the domain
    work: Work
    build: RecordArray  # one record of `Build`
    theta: Array  # (dim,): scratch
    gradient: Array  # (dim,): scratch
    other: Array  # (dim,): scratch


class Pile(NamedTuple):
    """Cells while they are split, with fields of `Cells` and estimates."""

    lower: Array
    upper: Array
    touch: Array
    slopes: Array
    base: Array
    log_mass: Array
    curvature: Array
    log_score: Array  # log of the expected mass of rejected proposals


@kernel(counts_references=False)
def to_theta(frame, z, out):
    """Fill out with c + L z."""
    for k in range(out.shape[0]):
        out[k] = frame.center[k]
        for i in range(z.shape[0]):
            out[k] += frame.factor[k, i] * z[i]


@kernel(counts_references=False)
def pull_inside(target, pieces, frame, z):
    """Move z to a point of the domain off its boundary, if it is outside."""
    to_theta(frame, z, frame.theta)
    if gibbs_target.inside(target, pieces, frame.theta, frame.work) == 1.0:
        return
    gibbs_target.project(target, pieces, frame.theta, frame.other)
    for i in range(z.shape[0]):
        z[i] = 0.0
        for k in range(frame.theta.shape[0]):
            z[i] += frame.whiten[i, k] * (frame.other[k] - frame.center[k])
        # One percent of the way to the center leads off the boundary, where a gradient
        # may be infinite.
        z[i] *= 1.0 - 0.01


@kernel(counts_references=False)
def energy_gradient(target, pieces, frame, z, slopes):
    """Return the energy at z, and fill slopes with its gradient in z."""
    to_theta(frame, z, frame.theta)
    value = gibbs_target.energy_gradient(
        target, pieces, frame.theta, frame.work, frame.gradient
    )
    for i in range(z.shape[0]):
        slopes[i] = 0.0
        for k in range(frame.theta.shape[0]):
            slopes[i] += frame.factor[k, i] * frame.gradient[k]
        value = value if abs(slopes[i]) < np.inf else np.nan
    return value


@kernel(counts_references=False)
def set_tangent(target, pieces, frame, pile, j, tilt):
    """Set tangent and mass of cell j. Return a code.

    The tangent's point is near the mean of the exponential density of slope ``tilt``.
    On an unbounded cell it moves outwards until the tangent rises outwards.
    """
    low, high = pile.lower[j], pile.upper[j]
    z, slopes = pile.touch[j], pile.slopes[j]
    for i in range(z.shape[0]):
        z[i] = moments(tilt[i], low[i], high[i])[0]
    if frame.is_bounded:
        pull_inside(target, pieces, frame, z)
    reach = 1.0
    # The search for a tangent that rises outwards doubles its distance 60 times at
    # most.
    for _ in range(60):
        pile.base[j] = energy_gradient(target, pieces, frame, z, slopes)
        if not abs(pile.base[j]) < np.inf:
            return FUNCTION_FAILED
        is_outward = True
        for i in range(z.shape[0]):
            if low[i] == -np.inf and not slopes[i] < -MIN_OUTWARD_SLOPE:
                z[i], is_outward = min(z[i], high[i]) - reach, False
            if high[i] == np.inf and not slopes[i] > MIN_OUTWARD_SLOPE:
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
