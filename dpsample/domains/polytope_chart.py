"""Round coordinates of a large polytope, in which its facets are at distances of 1.

After `polytope_reduction` the points are x = spread z + shift, and z obeys equalities.
They are solved in units of the widths of the coordinates, which range from 1e-6 to
1000 in a metabolic network: z = z0 + widths (N u), where the columns of N are an
orthonormal basis of the null space. The rank is decided here, once.

The analytic center u0 maximizes the sum of the logarithms of the slacks. With the
Hessian H = sum a_i a_i^T / slack_i^2 of this sum there, and L L^T = H^-1, the
coordinates v are those of u = u0 + L v. The body contains the unit ball about v = 0 and
is contained in a ball whose radius is the number m of facets: if <a_i, v> <= 1 are its
inequalities, then sum a_i = 0 and sum a_i a_i^T = 1, so that the sum of (1 - <a_i, v>)
is m, and the sum of squares m + |v|^2 is at most m^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.domains.polytope_reduction import MAX_ZERO_RANGE, Reduction, find_inside

# Rows of the scaled equalities whose remainder is at most this share of the largest one
# depend on the others.
DEPENDENT = 1e-10
# Maximum number of Newton steps to the center.
MAX_STEPS = 300


class ChartError(Exception):
    """No point was found inside in double precision."""


class Chart(NamedTuple):
    """Coordinates v of the points x = origin + basis v, and inequalities rows v <= 1.

    Lengths are in the units of the reduction.
    """

    rows: Array  # (m, rank)
    origin: Array  # (n,), of z
    basis: Array  # (n, rank), of z
    shares: Array  # (rank, n): left inverse of the basis
    num_facets: int  # rows that bound the radius, with those of a cube

    @property
    def radius(self) -> float:
        """Upper bound of |v|, also for a center that is not exact."""
        return 1.1 * self.num_facets


def find_null_space(reduction: Reduction) -> tuple[Array, Array]:
    """Return y0 and N with z = widths (y0 + N u) for all solutions of the equalities.

    y0 is near the reduction's point.
    """
    from scipy import linalg, sparse

    system, widths = reduction.system, reduction.widths
    # In units of the widths, so that all coordinates are of the size 1.
    y = reduction.point / widths
    if len(system.level) == 0:
        return y, np.eye(len(y))
    scaled = sparse.csr_array(system.equal @ sparse.diags_array(widths))
    sizes = np.asarray(abs(scaled).max(axis=1).todense()).ravel()
    # Every row has a largest entry of 1, so that one threshold decides about all.
    matrix = scaled.toarray() / sizes[:, None]
    level = system.level / sizes
    # A pivoted decomposition puts independent rows first.
    factors: Any = linalg.qr(matrix.T, pivoting=True)
    whole, triangle, order = factors
    sides = np.abs(np.diag(triangle))
    rank = int((sides > DEPENDENT * sides[0]).sum())
    first, corner = order[:rank], triangle[:rank, :rank]
    # The first point has the errors of a program. The second correction removes the
    # rounding errors of the first.
    for _ in range(2):
        # y moves along the independent rows by what the equalities miss.
        missed = level[first] - matrix[first] @ y
        y = y + whole[:, :rank] @ linalg.solve_triangular(corner, missed, trans="T")
    return y, np.ascontiguousarray(whole[:, rank:])


def find_facets(reduction: Reduction, y: Array, basis: Array) -> tuple[Array, Array]:
    """Return rows and slacks of the inequalities rows u <= slacks about y."""
    from scipy import sparse

    system, widths = reduction.system, reduction.widths
    low, high = (np.flatnonzero(side) for side in reduction.may_reach)
    scaled = sparse.csr_array(system.rows @ sparse.diags_array(widths))
    across: Array = np.asarray(scaled @ basis)
    rows = np.vstack([basis[high], -basis[low], across])
    slacks = np.concatenate(
        [
            system.upper[high] / widths[high] - y[high],
            y[low] - system.lower[low] / widths[low],
            system.limits - scaled @ y,
        ]
    )
    sizes: Array = np.asarray(np.linalg.norm(rows, axis=1))
    scale = np.append(
        np.ones(len(high) + len(low)), np.asarray(abs(scaled).sum(axis=1)).ravel()
    )
    # A row that does not change along the equalities holds everywhere, up to the error
    # of constants.
    is_used = sizes > 1e-11 * scale
    if (slacks[~is_used] < -100.0 * MAX_ZERO_RANGE * scale[~is_used]).any():
        raise ChartError
    return rows[is_used] / sizes[is_used, None], slacks[is_used] / sizes[is_used]


def find_chart(reduction: Reduction, *, is_bounded: bool) -> Chart:
    """Return round coordinates about the analytic center."""
    y, basis = find_null_space(reduction)
    rows, slacks = find_facets(reduction, y, basis)
    if len(slacks) and slacks.min() <= 0.0:
        # The mean of vertices is near a facet. A point far inside is worth a program.
        inside = find_inside(reduction.system, reduction.widths)
        if inside is None:
            raise ChartError
        y, basis = find_null_space(reduction._replace(point=inside[0]))
        rows, slacks = find_facets(reduction, y, basis)
        if slacks.min() <= 0.0:
            raise ChartError
    num_facets = len(slacks)
    if not is_bounded:
        eye = np.eye(basis.shape[1])
        rows = np.vstack([rows, eye, -eye])
        # A cube of 8 widths about the first point bounds the body.
        slacks = np.append(slacks, np.full(2 * basis.shape[1], 4.0))
    rows, center, factor = find_round_coordinates(rows / slacks[:, None])
    widths = reduction.widths
    return Chart(
        rows=np.ascontiguousarray(rows[:num_facets]),
        origin=widths * (y + basis @ center),
        basis=np.ascontiguousarray(widths[:, None] * (basis @ factor)),
        shares=np.ascontiguousarray(np.linalg.solve(factor, basis.T / widths)),
        # With the rows of the cube, because they bound the radius, too.
        num_facets=len(rows),
    )


def find_round_coordinates(rows: Array) -> tuple[Array, Array, Array]:
    """Return inequalities, center and factor, u = center + factor v, of rows u <= 1.

    Newton's method with an exact search along the line, because damped steps would be
    hundreds in a thin body. The slacks of the result are 1, too.
    """
    from scipy import linalg

    dim = rows.shape[1]
    center, factor = np.zeros(dim), np.eye(dim)
    for count in range(1, MAX_STEPS + 1):
        pauses.notify_listeners()
        # The point is always 0 and the slacks 1.
        slope: Array = rows.sum(axis=0)
        hessian: Array = rows.T @ rows
        scale = 1.0 / np.sqrt(np.diag(hessian))
        hessian = scale[:, None] * hessian * scale
        # A small ridge keeps a nearly singular matrix positive definite. It changes the
        # steps and not the center.
        hessian[np.diag_indices(dim)] += 1e-14 * dim
        triangle = linalg.cholesky(hessian, lower=True)
        move = -scale * linalg.cho_solve((triangle, True), scale * slope)
        decrement = float(np.sqrt(max(-float(slope @ move), 0.0)))
        # Newton's method squares the decrement, so one step more ends at rounding
        # errors.
        is_over = decrement <= 1e-5
        # Steps after which coordinates are made round again, because the Hessian of a
        # thin body is ill-conditioned.
        if is_over or count % 10 == 0:
            root: Array = linalg.solve_triangular(triangle, np.eye(dim), lower=True)
            root = scale[:, None] * root.T
            rows = np.asarray(rows @ root)
            move = np.asarray(np.linalg.solve(root, move))
            factor = factor @ root
        if is_over:
            break
        rates = rows @ move
        step = _search_line(rates)
        center = center + step * (factor @ move)
        # The new slacks 1 - step rates are divided out, so that they are 1 again.
        rows = rows / (1.0 - step * rates)[:, None]
    return rows, center, factor


def _search_line(rates: Array) -> float:
    """Return the t that maximizes the sum of log(1 - t rates), by bisection."""
    # If no rate is positive, the sum grows without end. Then a Newton step is long
    # enough.
    high = min(1.0 / max(float(rates.max()), 1e-300) * (1.0 - 1e-6), 1e6)
    low = 0.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if (rates / (1.0 - middle * rates)).sum() < 0.0:
            low = middle
        else:
            high = middle
    return low
