# mypy: allow-untyped-defs
"""Chords of a domain along coordinates, from slacks that are kept up to date.

The *chord* is the interval of t for which theta + t e_j is in the domain. A change of
one coordinate changes the slacks b - A theta of a polytope by a multiple of a column of
A, and the p-th power of a ball's norm by one term. So a chord costs the nonzeros of one
column, or nothing. The vector ``slacks`` holds the slacks of a polytope, or for a ball
one number, the sum of |theta_j - center_j|^p in units of radius^p. Rounding errors of
moves add up in it, so polytopes and balls are shrunk by `MARGIN`, and draws never leave
the domain itself. Where shrinking would change the distribution, chords come from the
domain instead.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import copy_into
from dpsample.samplers.gaussian_fit import rough_mode
from dpsample.targets.gibbs import Gibbs


class DomainKind(NamedTuple):
    """Kinds of domains."""

    free: int = 0  # the whole space
    box: int = 1
    ball: int = 2
    facets: int = 3  # a polytope
    sparse_facets: int = 4  # a polytope whose normals are sparse
    pairs: int = 5  # a simplex, where a move changes two coordinates
    chord: int = 6  # chords are computed from the position


KIND = DomainKind()
# Relative width by which polytopes and balls are shrunk. It is larger than the sum of
# rounding errors that is usual after 1000 sweeps.
MARGIN = 1e-12
# HUGE stands for the inverse of an entry of A that does not limit the move. Slacks are
# at least TINY, so that the product of both is larger than any chord.
TINY = 1e-200
HUGE = 1e300


class CoordinateBody(NamedTuple):
    """Domain along coordinates. Arrays that its kind does not need are empty."""

    kind: int
    lower: Array  # (dim,), infinite unless the domain is a box
    upper: Array
    center: Array  # (dim,): center of a ball
    radius: float
    p: float
    columns: Array  # (dim, m): columns of the polytope's matrix
    up: Array  # (dim, m): 1 / entry if it is positive, else HUGE
    down: Array  # (dim, m): -1 / entry if it is negative, else HUGE
    starts: Ints  # (dim + 1,): starts of the columns in the two arrays of nonzeros
    rows: Ints
    values: Array
    limits: Array  # (m,): b of the shrunk polytope


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def norm_term(offset, p):
    """Return |offset|^p."""
    if p == 2.0:
        return offset * offset
    return abs(offset) if p == 1.0 else abs(offset) ** p


@kernel(counts_references=False)
def refresh(body, theta, slacks):
    """Compute the slacks, or the p-th power of the norm, from the position."""
    if body.kind == KIND.ball:
        slacks[0] = 0.0
        for j in range(theta.shape[0]):
            slacks[0] += norm_term((theta[j] - body.center[j]) / body.radius, body.p)
    elif body.kind == KIND.facets or body.kind == KIND.sparse_facets:
        copy_into(body.limits, slacks)
        for j in range(theta.shape[0]):
            subtract_column(body, slacks, j, theta[j])
        for i in range(slacks.shape[0]):
            slacks[i] = max(slacks[i], TINY)


@kernel(counts_references=False)
def subtract_column(body, slacks, j, t):
    """Subtract t times column j from the slacks, which may become negative."""
    if body.kind == KIND.facets:
        for i in range(slacks.shape[0]):
            slacks[i] -= t * body.columns[j, i]
    elif body.kind == KIND.sparse_facets:
        for m in range(body.starts[j], body.starts[j + 1]):
            slacks[body.rows[m]] -= t * body.values[m]


@kernel(fastmath={"contract", "nsz"}, counts_references=False)
def move_and_find_chord(slacks, column, t, up, down):
    """Subtract t times a column. Return the chord along the next coordinate.

    ``up`` and ``down`` are rows of the body. A chord end is the smallest product of a
    slack and its inverse entry. Positive floating-point numbers have the same order as
    the integers with the same bits. Their minimum compiles to vector instructions,
    whereas a minimum of floats must treat NaN apart.
    """
    infinity = np.int64(0x7FF0000000000000)  # bits of the infinite number
    high, low = infinity, infinity
    for i in range(slacks.shape[0]):
        slack = slacks[i] - t * column[i]
        slack = TINY if slack < TINY else slack
        slacks[i] = slack
        high = min(high, np.float64(slack * up[i]).view(np.int64))
        low = min(low, np.float64(slack * down[i]).view(np.int64))
    return -np.int64(low).view(np.float64), np.int64(high).view(np.float64)


@kernel(counts_references=False)
def with_infinity(t):
    """Return infinity for a product with HUGE, where no facet limits the move."""
    if abs(t) > 1e50:
        return np.inf if t > 0.0 else -np.inf
    return t


@kernel(counts_references=False)
def ball_reach(total, offset, radius, p):
    """Return the largest distance of a coordinate from the ball's center.

    ``total`` is the p-th power of the norm in radii, ``offset`` the present distance.
    """
    term = 1.0 - total + norm_term(offset / radius, p)
    if not term > 0.0:
        return 0.0
    return radius * (np.sqrt(term) if p == 2.0 else term ** (1.0 / p))


@kernel(counts_references=False)
def find_facet_chord(slacks, rows, values, first, last):
    """Return the chord that the facets ``rows[first:last]`` allow."""
    low, high = -np.inf, np.inf
    for m in range(first, last):
        end = slacks[rows[m]] / values[m]
        if values[m] > 0.0:
            high = min(high, end)
        else:
            low = max(low, end)
    return low, high


@kernel(counts_references=False)
def find_chord(body, theta, slacks, j):
    """Return the chord along coordinate j.

    `facets`, `pairs` and `chord` have functions of their own.
    """
    low, high = body.lower[j] - theta[j], body.upper[j] - theta[j]
    if body.kind == KIND.ball:
        offset = theta[j] - body.center[j]
        reach = ball_reach(slacks[0], offset, body.radius, body.p)
        low, high = -reach - offset, reach - offset
    elif body.kind == KIND.sparse_facets:
        low, high = find_facet_chord(
            slacks, body.rows, body.values, body.starts[j], body.starts[j + 1]
        )
    # Rounding may put both ends on one side of the position, which is always on its
    # chord.
    return min(low, 0.0), max(high, 0.0)


@kernel(counts_references=False)
def ball_change(before, after, radius, p):
    """Return the change of the norm's p-th power, in radii, with one coordinate."""
    return norm_term(after / radius, p) - norm_term(before / radius, p)


@kernel(counts_references=False)
def apply_move(body, theta, slacks, j, t):
    """Move coordinate j by t, or less if rounding leads out of a box. Return the move.

    Slacks are updated, except for `facets`.
    """
    before, start = theta[j] - body.center[j], theta[j]
    end = theta[j] + t
    theta[j] = min(max(end, body.lower[j]), body.upper[j])
    # A clipped move is shorter.
    if theta[j] != end:
        t = theta[j] - start
    if body.kind == KIND.ball:
        after = theta[j] - body.center[j]
        slacks[0] += ball_change(before, after, body.radius, body.p)
    elif body.kind == KIND.sparse_facets:
        for m in range(body.starts[j], body.starts[j + 1]):
            i = body.rows[m]
            slacks[i] = max(slacks[i] - t * body.values[m], TINY)
    return t


def _may_shrink(target: Gibbs, shares: list[tuple[Array, float]]) -> bool:
    """Return whether shrinking changes the distribution by at most 1e-4.

    The shrunk domain holds the images of all points under a contraction by a share s
    towards a point c. By convexity they have at least (1 - s)^d exp(-s (V(c) - min V))
    of the mass. ``shares`` has pairs of c and s, of which one must be good enough.
    """
    lowest = target.energy(rough_mode(target))
    losses = [s * (target.dim + target.energy(c) - lowest) for c, s in shares]
    return any(loss <= 1e-4 for loss in losses)


def make_body(target: Gibbs, center: Array, stddevs: Array) -> CoordinateBody:
    """Return the domain of a target along coordinates.

    Center and standard deviations only set a scale.
    """
    domain, dim = target.domain, target.dim
    no_matrix, no_indices = np.empty((0, 0)), np.empty(0, dtype=np.int64)
    body = CoordinateBody(
        kind=KIND.chord,
        lower=np.full(dim, -np.inf),
        upper=np.full(dim, np.inf),
        center=np.zeros(dim),
        radius=1.0,
        p=2.0,
        columns=no_matrix,
        up=no_matrix,
        down=no_matrix,
        starts=no_indices,
        rows=no_indices,
        values=np.empty(0),
        limits=np.empty(0),
    )
    numbers = domain.body(dim)
    if domain.is_whole_space:
        return body._replace(kind=KIND.free)
    if domain.is_simplex:
        return body._replace(kind=KIND.pairs)
    if domain.is_box and domain.lp_exponent is None:
        return body._replace(kind=KIND.box, lower=numbers.lower, upper=numbers.upper)
    if domain.is_polytope:
        return _with_facets(body, target, center, stddevs)
    if domain.lp_exponent is not None or domain.is_euclidean_ball:
        middle = numbers.center
        # If the ball is far from the origin, rounding errors of the coordinates, 2^-50
        # of their size, are larger than the margin.
        is_remote = 2.0**-50 * np.abs(middle).max() > MARGIN * numbers.radius
        if is_remote or not _may_shrink(target, [(middle, MARGIN)]):
            return body
        radius = numbers.radius * (1.0 - MARGIN)
        if np.isinf(numbers.p):
            return body._replace(
                kind=KIND.box, lower=middle - radius, upper=middle + radius
            )
        return body._replace(kind=KIND.ball, center=middle, radius=radius, p=numbers.p)
    return body


def _with_facets(
    body: CoordinateBody, target: Gibbs, center: Array, stddevs: Array
) -> CoordinateBody:
    domain = target.domain
    numbers = domain.body(target.dim)
    rows, limits = numbers.matrix, numbers.bounds
    # The errors of A theta grow with the largest coordinate. On an unbounded domain
    # that is one within 100 standard deviations of the center.
    reach = np.abs(center) + 100.0 * stddevs
    if domain.is_bounded:
        eye = np.eye(len(center))
        reach = np.maximum(np.abs(domain.support(eye)), np.abs(domain.support(-eye)))
    shifts = MARGIN * (np.abs(limits) + np.abs(rows) @ reach)
    shares = []
    for point in (domain.interior_point(target.dim), center):
        slack = limits - rows @ point
        if (slack > 0.0).all():
            shares.append((point, float((shifts / slack).max())))
    if not _may_shrink(target, shares):
        return body
    limits = limits - shifts
    columns = np.ascontiguousarray(rows.T)
    # With few nonzeros, lists of them are faster than whole columns.
    if np.mean(rows != 0.0) <= 0.3:
        coordinate, facet = np.nonzero(columns)
        return body._replace(
            kind=KIND.sparse_facets,
            starts=np.searchsorted(coordinate, np.arange(len(center) + 1)).astype(
                np.int64
            ),
            rows=facet.astype(np.int64),
            values=columns[coordinate, facet],
            limits=limits,
        )
    with np.errstate(divide="ignore"):
        up = np.where(columns > 0.0, 1.0 / columns, HUGE)
        down = np.where(columns < 0.0, -1.0 / columns, HUGE)
    return body._replace(
        kind=KIND.facets, columns=columns, up=up, down=down, limits=limits
    )
