"""Linear programs over a polytope, each answered by a proved bound.

A solver's optimum carries its tolerance. Its dual solution does not: for every y >= 0,
``<v, x> <= <y, b> + <v - A'y, x>`` on ``A x <= b``; a box bounds the last term.
"""

import math
from typing import Any

import numpy as np

from dpsample.core.arrays import Array
from dpsample.numerics.exact import two_product

# Of an inscribed ball, relative to the largest offset: less is rounding.
SMALLEST_RADIUS = 1e-9


def _solve(cost: Array, **constraints: Any) -> Any:
    from scipy.optimize import linprog

    return linprog(cost, bounds=(None, None), method="highs", **constraints)


def chebyshev_center(matrix: Array, bounds: Array) -> Array | None:
    """Center of a largest ball inside, or None if no point satisfies all strictly."""
    center, radius = _inscribed(matrix, bounds)
    if center is None or radius <= SMALLEST_RADIUS:
        return None
    return center if (matrix @ center < bounds).all() else None


def inradius(matrix: Array, bounds: Array) -> float:
    """Radius of a largest ball inside, relative to the largest offset.

    It is 0 where inequalities force an equality, negative where no point is inside.
    """
    return _inscribed(matrix, bounds)[1]


def opposite_rows(matrix: Array, bounds: Array) -> tuple[int, int] | None:
    """Two inequalities that are one equality, or None."""
    sizes = np.linalg.norm(matrix, axis=1)
    rows = np.column_stack([matrix, bounds]) / sizes[:, None]
    scale = 1.0 + float(np.abs(rows[:, -1]).max())
    for i in range(len(rows)):
        gaps = np.abs(rows[i + 1 :] + rows[i]).max(axis=1)
        for j in np.flatnonzero(gaps <= SMALLEST_RADIUS * scale):
            return i, i + 1 + int(j)
    return None


def _inscribed(matrix: Array, bounds: Array) -> tuple[Array | None, float]:
    sizes = np.linalg.norm(matrix, axis=1)
    dim = matrix.shape[1]
    # No ball in a bounded set is larger than the largest offset. Unbounded sets may
    # hold balls of any size: one of that size will do.
    unit = np.abs(bounds / sizes).max() or 1.0
    columns = np.column_stack([matrix / sizes[:, None], np.ones(len(sizes))])
    cap = np.zeros((1, dim + 1))
    cap[0, dim] = 1.0
    answer = _solve(
        np.append(np.zeros(dim), -1.0),
        A_ub=np.vstack([columns, cap]),
        b_ub=np.append(bounds / sizes / unit, 1.0),
    )
    if answer.x is None:
        return None, -math.inf
    center = unit * np.array(answer.x[:dim], dtype=np.float64)
    return center, float(answer.x[dim])


def is_bounded(matrix: Array) -> bool:
    """Whether ``A d <= 0`` forces d = 0: the rows positively span the space."""
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    if np.linalg.matrix_rank(unit) < matrix.shape[1]:
        return False
    # A'y = 0 with y >= 1 (Stiemke), in z = y - 1 >= 0.
    count = len(matrix)
    signs: dict[str, Array] = {"A_ub": -np.eye(count), "b_ub": np.zeros(count)}
    answer = _solve(np.ones(count), A_eq=unit.T, b_eq=-unit.sum(axis=0), **signs)
    return bool(answer.status == 0)


def _slack(matrix: Array, bounds: Array, center: Array) -> Array:
    """Compute ``b - A center`` with all its digits: of thin bodies it is small."""
    products, errors = two_product.py_func(matrix, center)
    terms = np.column_stack([bounds, -products, -errors])
    return np.array([math.fsum(row.tolist()) for row in terms])


def _dual(matrix: Array, slack: Array, direction: Array) -> Array | None:
    """Multipliers y >= 0 of max <v, z> over A z <= slack, or None if unbounded.

    The solver's tolerances are absolute: it sees a program in units of the data.
    """
    sizes = np.linalg.norm(matrix, axis=1)
    length = np.linalg.norm(direction)
    if length == 0.0:
        return np.zeros(len(slack))
    rows, limits, unit = matrix / sizes[:, None], slack / sizes, direction / length
    answer = _solve(-unit, A_ub=rows, b_ub=limits / limits.max())
    if answer.status != 0:
        return None
    y: Array = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    active = np.flatnonzero(y)
    if len(active):
        polished = np.linalg.lstsq(rows[active].T, unit, rcond=None)[0]
        if (polished >= 0.0).all():
            y[active] = polished
    return np.asarray(y * length / sizes)


def outer_box(matrix: Array, bounds: Array, center: Array) -> tuple[Array, Array]:
    """Bounds of every coordinate from 2 d linear programs, infinite where none is.

    If y leaves r = v - A'y and all half-widths are at most M, then a half-width is at
    most ``<y, slack> + ||r||_1 M``; the largest of these inequalities bounds M.
    """
    dim = len(center)
    slack = _slack(matrix, bounds, center)
    reach = np.full((2, dim), np.inf)
    leak = np.zeros((2, dim))
    for side, sign in enumerate((-1.0, 1.0)):
        for j in range(dim):
            direction = np.zeros(dim)
            direction[j] = sign
            y = _dual(matrix, slack, direction)
            if y is not None:
                reach[side, j] = y @ slack
                leak[side, j] = np.abs(direction - matrix.T @ y).sum()
    if np.isfinite(reach).all() and leak.max() < 0.5:
        reach = reach + leak * (reach.max() / (1.0 - leak.max()))
    elif leak.any():
        reach = np.where(leak > 0.0, np.inf, reach)
    lower, upper = center - reach[0], center + reach[1]
    is_short = center - lower < reach[0], upper - center < reach[1]
    return (
        np.where(is_short[0], np.nextafter(lower, -np.inf), lower),
        np.where(is_short[1], np.nextafter(upper, np.inf), upper),
    )


def support_value(
    matrix: Array, bounds: Array, center: Array, box: tuple[Array, Array], v: Array
) -> float:
    """Upper bound of <v, x>, exact up to rounding."""
    size = math.ldexp(0.5, math.frexp(np.abs(v).max())[1])  # squares of v / size exist
    v = v / size
    slack = _slack(matrix, bounds, center)
    y = _dual(matrix, slack, v)
    if y is None:
        return math.inf
    rest = v - matrix.T @ y
    width = np.where(rest > 0.0, box[1] - center, center - box[0])
    with np.errstate(invalid="ignore"):
        leak = np.where(rest == 0.0, 0.0, np.abs(rest) * width).sum()
    return size * float(v @ center + y @ slack + leak)
