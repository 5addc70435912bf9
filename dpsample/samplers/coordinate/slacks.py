# mypy: allow-untyped-defs
"""Chords of a domain along coordinates, from slacks that are kept up to date.

A coordinate changes the slacks b - A theta of a polytope by a multiple of a column, and
the norm of a ball by one term: a chord costs the nonzeros of one column, or nothing.
Polytopes and balls are shrunk by `MARGIN`, which covers the rounding errors of what is
kept: draws never leave the domain itself. Where this would change the law, chords come
from the domain instead.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import kernel
from dpsample.domains import Polytope
from dpsample.numerics.vectors import copy_into
from dpsample.samplers.gaussian_fit import rough_mode
from dpsample.targets.gibbs import Gibbs

FREE, BOX, BALL, FACETS, SPARSE_FACETS, PAIRS, CHORD = range(7)
MARGIN = 1e-12
# Total variation by which the margin may change the law.
MAX_LOSS = 1e-4
# A slack is kept above this, so that its product with HUGE is no obstacle.
TINY, HUGE = 1e-200, 1e300
INFINITY_BITS = 0x7FF0000000000000
# Share of nonzero entries up to which columns of facets are stored as lists.
SPARSE_SHARE = 0.3
FAR = 100.0  # standard deviations, on an unbounded domain


class Room(NamedTuple):
    """Domain along coordinates; arrays that its kind does not need are empty."""

    kind: int
    lower: Array  # (dim,), infinite unless the domain is a box
    upper: Array
    center: Array  # (dim,), of a ball
    radius: float
    p: float
    columns: Array  # (dim, m), of the polytope's matrix
    up: Array  # (dim, m): 1 / entry if it is positive, else HUGE
    down: Array  # (dim, m): -1 / entry if it is negative, else HUGE
    starts: Ints  # (dim + 1,), of its nonzeros by columns
    rows: Ints
    values: Array
    limits: Array  # (m,)


@kernel(counts_references=False)
def norm_term(offset, p):
    """|offset|^p."""
    if p == 2.0:
        return offset * offset
    return abs(offset) if p == 1.0 else abs(offset) ** p


@kernel(counts_references=False)
def refresh(room, theta, slacks):
    """Compute from theta what `span` reads: slacks, or the p-th power of the norm."""
    if room.kind == BALL:
        slacks[0] = 0.0
        for j in range(theta.shape[0]):
            slacks[0] += norm_term((theta[j] - room.center[j]) / room.radius, room.p)
    elif room.kind == FACETS or room.kind == SPARSE_FACETS:
        copy_into(room.limits, slacks)
        for j in range(theta.shape[0]):
            move(room, slacks, j, theta[j])
        for i in range(slacks.shape[0]):
            slacks[i] = max(slacks[i], TINY)


@kernel(counts_references=False)
def move(room, slacks, j, t):
    """Subtract t times column j from the slacks, unclipped."""
    if room.kind == FACETS:
        for i in range(slacks.shape[0]):
            slacks[i] -= t * room.columns[j, i]
    elif room.kind == SPARSE_FACETS:
        for m in range(room.starts[j], room.starts[j + 1]):
            slacks[room.rows[m]] -= t * room.values[m]


@kernel(fastmath={"contract", "nsz"}, counts_references=False)
def slide(slacks, column, t, up, down):
    """Subtract t times a column; return the chord along the next coordinate.

    Positive numbers are ordered like their bits, and a minimum of integers compiles to
    vector instructions.
    """
    high, low = np.int64(INFINITY_BITS), np.int64(INFINITY_BITS)
    for i in range(slacks.shape[0]):
        slack = slacks[i] - t * column[i]
        slack = TINY if slack < TINY else slack
        slacks[i] = slack
        high = min(high, np.float64(slack * up[i]).view(np.int64))
        low = min(low, np.float64(slack * down[i]).view(np.int64))
    return -np.int64(low).view(np.float64), np.int64(high).view(np.float64)


@kernel(counts_references=False)
def unlimited(t):
    """Infinity in place of the bound that facets parallel to the move leave."""
    if abs(t) > 1e50:
        return np.inf if t > 0.0 else -np.inf
    return t


@kernel(counts_references=False)
def ball_reach(total, offset, radius, p):
    """Largest distance of one coordinate from the ball's center, given the others.

    ``total`` is the p-th power of the norm in radii, ``offset`` the distance now.
    """
    rest = 1.0 - total + norm_term(offset / radius, p)
    if not rest > 0.0:
        return 0.0
    return radius * (np.sqrt(rest) if p == 2.0 else rest ** (1.0 / p))


@kernel(counts_references=False)
def facet_span(slacks, rows, values, first, last):
    """Chord that the facets ``rows[first:last]`` leave."""
    low, high = -np.inf, np.inf
    for m in range(first, last):
        end = slacks[rows[m]] / values[m]
        if values[m] > 0.0:
            high = min(high, end)
        else:
            low = max(low, end)
    return low, high


@kernel(counts_references=False)
def span(room, theta, slacks, j):
    """Chord along coordinate j, for all kinds but FACETS, PAIRS and CHORD."""
    low, high = room.lower[j] - theta[j], room.upper[j] - theta[j]
    if room.kind == BALL:
        offset = theta[j] - room.center[j]
        reach = ball_reach(slacks[0], offset, room.radius, room.p)
        low, high = -reach - offset, reach - offset
    elif room.kind == SPARSE_FACETS:
        low, high = facet_span(
            slacks, room.rows, room.values, room.starts[j], room.starts[j + 1]
        )
    return min(low, 0.0), max(high, 0.0)


@kernel(counts_references=False)
def ball_change(before, after, radius, p):
    """Change of the p-th power of the norm, in radii, with one coordinate."""
    return norm_term(after / radius, p) - norm_term(before / radius, p)


@kernel(counts_references=False)
def settle(room, theta, slacks, j, t):
    """Move coordinate j by t, or less where rounding leads out; return the move.

    The slacks follow, except those of FACETS.
    """
    before, start = theta[j] - room.center[j], theta[j]
    end = theta[j] + t
    theta[j] = min(max(end, room.lower[j]), room.upper[j])
    if theta[j] != end:
        t = theta[j] - start
    if room.kind == BALL:
        after = theta[j] - room.center[j]
        slacks[0] += ball_change(before, after, room.radius, room.p)
    elif room.kind == SPARSE_FACETS:
        for m in range(room.starts[j], room.starts[j + 1]):
            i = room.rows[m]
            slacks[i] = max(slacks[i] - t * room.values[m], TINY)
    return t


def _may_shrink(target: Gibbs, shares: list[tuple[Array, float]]) -> bool:
    """Return whether the law on a shrunk domain is close to that on the domain.

    The shrunk domain holds the images of all points under a contraction by a share s
    towards a point c. By convexity they have at least (1 - s)^d exp(-s (V(c) - min V))
    of the mass. ``shares`` has pairs of c and s, of which one must suffice.
    """
    lowest = target.energy(rough_mode(target))
    losses = [s * (target.dim + target.energy(c) - lowest) for c, s in shares]
    return any(loss <= MAX_LOSS for loss in losses)


def make_room(target: Gibbs, center: Array, stddevs: Array) -> Room:
    """Room of a target's domain; center and standard deviations set a scale only."""
    domain, dim = target.problem.domain, target.dim
    nothing, none = np.empty((0, 0)), np.empty(0, dtype=np.int64)
    room = Room(
        kind=CHORD,
        lower=np.full(dim, -np.inf),
        upper=np.full(dim, np.inf),
        center=np.zeros(dim),
        radius=1.0,
        p=2.0,
        columns=nothing,
        up=nothing,
        down=nothing,
        starts=none,
        rows=none,
        values=np.empty(0),
        limits=np.empty(0),
    )
    if domain.is_whole_space:
        return room._replace(kind=FREE)
    if domain.is_simplex:
        return room._replace(kind=PAIRS)
    if domain.is_box and domain.lp_exponent is None:
        body = domain.body(dim)
        return room._replace(kind=BOX, lower=body.lower, upper=body.upper)
    if domain.is_polytope:
        return _with_facets(room, target, center, stddevs)
    if domain.lp_exponent is not None or domain.is_euclidean_ball:
        middle = domain.default_center(dim)
        is_far = 2.0**-50 * np.abs(middle).max() > MARGIN * domain.ball_radius
        if is_far or not _may_shrink(target, [(middle, MARGIN)]):
            return room
        radius = domain.ball_radius * (1.0 - MARGIN)
        if domain.is_box:
            return room._replace(kind=BOX, lower=middle - radius, upper=middle + radius)
        return room._replace(
            kind=BALL, center=middle, radius=radius, p=domain.lp_exponent or 2.0
        )
    return room


def _with_facets(room: Room, target: Gibbs, center: Array, stddevs: Array) -> Room:
    domain = target.problem.domain
    assert isinstance(domain, Polytope)
    rows, limits = np.array(domain.A), np.array(domain.b)
    reach = np.abs(center) + FAR * stddevs
    if domain.is_bounded:
        eye = np.eye(len(center))
        reach = np.maximum(np.abs(domain.support(eye)), np.abs(domain.support(-eye)))
    lost = MARGIN * (np.abs(limits) + np.abs(rows) @ reach)
    shares = []
    for point in (domain.interior_point(target.dim), center):
        slack = limits - rows @ point
        if (slack > 0.0).all():
            shares.append((point, float((lost / slack).max())))
    if not _may_shrink(target, shares):
        return room
    limits = limits - lost
    columns = np.ascontiguousarray(rows.T)
    if np.mean(rows != 0.0) <= SPARSE_SHARE:
        where, facet = np.nonzero(columns)
        return room._replace(
            kind=SPARSE_FACETS,
            starts=np.searchsorted(where, np.arange(len(center) + 1)).astype(np.int64),
            rows=facet.astype(np.int64),
            values=columns[where, facet],
            limits=limits,
        )
    with np.errstate(divide="ignore"):
        up = np.where(columns > 0.0, 1.0 / columns, HUGE)
        down = np.where(columns < 0.0, -1.0 / columns, HUGE)
    return room._replace(kind=FACETS, columns=columns, up=up, down=down, limits=limits)
