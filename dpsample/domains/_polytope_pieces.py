"""Compiled pieces of the polytope ``A theta <= b``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample._jit import kernel
from dpsample.domains._domain import Body, Vector

EPSILON = 2.0**-52
# Relative sizes below which a violation, and the part of a row outside the span of the
# active rows, are taken for rounding.
NEGLIGIBLE = 1e-13
INDEPENDENT = 1e-10


@kernel
def largest_excess(body: Body, theta: Vector, direction: Vector, t: float) -> float:
    """Return ``max_i <a_i, theta + t direction> - b_i``."""
    worst = -np.inf
    for i in range(len(body.bounds)):
        total = 0.0
        for j in range(len(theta)):
            total += body.matrix[i, j] * (theta[j] + t * direction[j])
        excess = total - body.bounds[i]
        if excess != excess:
            return np.nan
        worst = max(worst, excess)
    return worst


@kernel
def polytope_contains(body: Body, theta: Vector, out: Vector) -> None:
    """Write 1 if every inequality holds."""
    inside = largest_excess(body, theta, theta, 0.0) <= 0.0
    out[0] = 1.0 if inside else 0.0


@kernel
def polytope_chord(body: Body, theta: Vector, direction: Vector, out: Vector) -> None:
    """Intersect the intervals of the inequalities."""
    first = -np.inf
    last = np.inf
    for i in range(len(body.bounds)):
        slack = body.bounds[i]
        rate = 0.0
        for j in range(len(theta)):
            slack -= body.matrix[i, j] * theta[j]
            rate += body.matrix[i, j] * direction[j]
        if slack != slack or rate != rate:
            return
        if rate > 0.0:
            last = min(last, slack / rate)
        elif rate < 0.0:
            first = max(first, slack / rate)
    out[0] = settle_in_polytope(body, theta, direction, min(first, 0.0))
    out[1] = settle_in_polytope(body, theta, direction, max(last, 0.0))


@kernel
def settle_in_polytope(body: Body, theta: Vector, direction: Vector, t: float) -> float:
    """Move t towards 0 until its point passes `polytope_contains`."""
    inside = t
    pull = EPSILON
    while np.isfinite(inside) and largest_excess(body, theta, direction, inside) > 0.0:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        pull *= 2.0
    return inside


@kernel
def inner(x: Vector, y: Vector) -> float:
    """Return the inner product."""
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@kernel
def subtract(out: Vector, factor: float, x: Vector) -> None:
    """Replace ``out`` by ``out - factor x``."""
    for j in range(len(x)):
        out[j] -= factor * x[j]


@kernel
def most_violated(body: Body, point: Vector, sizes: Vector) -> int:
    """Return the row whose face is farthest behind the point, or -1."""
    row = -1
    worst = 0.0
    for i in range(len(sizes)):
        excess = -body.bounds[i]
        scale = abs(body.bounds[i])
        for j in range(len(point)):
            term = body.matrix[i, j] * point[j]
            excess += term
            scale += abs(term)
        if excess > worst * sizes[i] and excess > NEGLIGIBLE * scale:
            row = i
            worst = excess / sizes[i]
    return row


@kernel
def split_row(
    body: Body, active: Any, count: int, row: int, basis: Any, weights: Vector
) -> Vector:
    """Split ``a_row = weights * active rows + rest``; return the orthogonal rest.

    Gram-Schmidt, twice per row for orthogonality to working precision; the triangular
    factor has the active rows as columns.
    """
    dim = body.matrix.shape[1]
    factor = np.zeros((count + 1, count + 1))
    rest = np.zeros(dim)
    for k in range(count + 1):
        source = active[k] if k < count else row
        for j in range(dim):
            rest[j] = body.matrix[source, j]
        for _ in range(2):
            for m in range(k):
                part = inner(basis[m], rest)
                factor[m, k] += part
                subtract(rest, part, basis[m])
        if k < count:
            factor[k, k] = math.sqrt(inner(rest, rest))
            for j in range(dim):
                basis[k, j] = rest[j] / factor[k, k]
    for k in range(count - 1, -1, -1):
        weights[k] = factor[k, count]
        for m in range(k + 1, count):
            weights[k] -= factor[k, m] * weights[m]
        weights[k] /= factor[k, k]
    return rest


@kernel
def drop_blocking(
    active: Any, multipliers: Vector, count: int, weights: Vector, step: float
) -> tuple[float, int]:
    """Return the step at which the first multiplier vanishes, and its index or -1."""
    blocking = -1
    for k in range(count):
        if weights[k] > 0.0 and multipliers[k] < step * weights[k]:
            step = multipliers[k] / weights[k]
            blocking = k
    if step < np.inf:
        for k in range(count):
            multipliers[k] -= step * weights[k]
        if blocking >= 0:
            for k in range(blocking, count - 1):
                active[k] = active[k + 1]
                multipliers[k] = multipliers[k + 1]
    return step, blocking


@kernel
def active_set(body: Body, theta: Vector, out: Vector) -> bool:
    """Project by the dual active-set method; False if it did not finish.

    Goldfarb and Idnani (1983) with the identity as Hessian: faces are added one by one,
    the farthest violated one first, and dropped when their multiplier reaches zero.
    """
    num_rows, dim = body.matrix.shape
    sizes = np.empty(num_rows)
    for i in range(num_rows):
        sizes[i] = math.sqrt(inner(body.matrix[i], body.matrix[i]))
    room = min(num_rows, dim) + 1
    active = np.zeros(room, dtype=np.int64)
    multipliers = np.zeros(room)
    weights = np.zeros(room)
    basis = np.zeros((room, dim))
    count = 0
    out[:] = theta
    for _ in range(100 * (num_rows + 1)):
        row = most_violated(body, out, sizes)
        if row < 0:
            return True
        own = 0.0
        blocking = 0
        while blocking >= 0:
            rest = split_row(body, active, count, row, basis, weights)
            square = inner(rest, rest)
            step = np.inf
            if square > (INDEPENDENT * sizes[row]) ** 2:
                step = (inner(body.matrix[row], out) - body.bounds[row]) / square
            else:
                rest[:] = 0.0
            step, blocking = drop_blocking(active, multipliers, count, weights, step)
            if not step < np.inf:
                return False
            subtract(out, step, rest)
            own += step
            if blocking >= 0:
                count -= 1
        active[count] = row
        multipliers[count] = own
        count += 1
    return False


@kernel
def polytope_project(body: Body, theta: Vector, out: Vector) -> None:
    """Write the nearest point, pulled towards the center over rounding errors."""
    if not math.isfinite(inner(theta, theta)):
        return
    if not active_set(body, theta, out):
        out[:] = np.nan
        return
    pull = EPSILON
    while largest_excess(body, out, out, 0.0) > 0.0:
        for j in range(len(out)):
            out[j] = body.center[j] + (1.0 - pull) * (out[j] - body.center[j])
        pull = min(2.0 * pull, 1.0)
