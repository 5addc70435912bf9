"""Linear programs over a polytope A x <= b, each with a proved bound.

The programs find a point strictly inside, decide whether the polytope is bounded, and
bound linear functions <v, x> on it. The entries of A and b are taken as exact.

The optimum of a solver has an error up to the solver's tolerance. A bound from its dual
solution is valid whatever the error. For every y >= 0,

    <v, x> <= <y, b> + <v - A'y, x>   on A x <= b,

and a box that contains the polytope bounds the last term.

The tolerance is absolute. So the program of a point inside is solved again in smaller
units, as small as the error of the last solution (iterative refinement). It ends when
a point is inside in double arithmetic, or when the units are rounding errors. If no
point is inside, an `Obstacle` has the numbers of the inequalities that are responsible.

*Thin*: a body is thin if the distances of a point from its facets have very different
sizes. *Chart*: a choice of coordinates for a program, in which its rows may be sparse.
*Unit row*: a row a_i / |a_i|, with which b_i / |a_i| - <a_i, x> / |a_i| is the distance
of x from facet i. A' is the transpose of A.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.sparse import Rows
from dpsample.numerics.exact import two_product

# A program of the refinement looks for a move of at most this many units.
REACH = 1e6
# Error of a solver in units of its program.
SOLVER_ERROR = 1e-6
# A distance from a facet counts as 0 if it is at most this many rounding errors.
ROUNDINGS = 64.0
# Ratio of distances from facets at which a body is thin. A program over a thin body is
# solved in coordinates in which the body is round.
THIN = 1e6
# Number of coordinates from which programs are solved in those of a `FactoredChart`.
MANY = 50


class Obstacle(NamedTuple):
    """Inequalities between which no point strictly inside was found."""

    rows: Ints
    # Distance by which the best point that was found violates the worst inequality.
    missed: float
    resolution: float  # rounding error of this distance
    # Sign of <y, b> for a combination y > 0 of the rows with A'y = 0, None if no such
    # combination was proved. The inequalities contradict one another if the sign is
    # negative, and are equalities if it is 0.
    sign: int | None

    @property
    def is_contradiction(self) -> bool:
        """Whether no point satisfies the inequalities, by more than rounding errors."""
        return self.sign == -1 and not self.is_rounding

    @property
    def is_open(self) -> bool:
        """Whether nothing is proved, so that other programs may find a better point."""
        return self.sign is None and not self.is_rounding

    @property
    def is_rounding(self) -> bool:
        """Whether a point satisfies all inequalities up to rounding errors."""
        return self.missed <= ROUNDINGS * self.resolution


class Facets(NamedTuple):
    """Inequalities, the lengths of their rows and the uncertainty of their bounds."""

    matrix: Array
    bounds: Array
    sizes: Array
    noise: Array

    def distances(self, point: Array) -> tuple[Array, Array]:
        """Return distances of a point from the facets, and bounds of rounding errors.

        The bounds hold for a test of membership, which adds products in any order.
        """
        slack = self.bounds - self.matrix @ point
        terms = np.abs(self.matrix) @ np.abs(point)
        counts = np.count_nonzero(self.matrix, axis=1) + 1
        errors = 2.0**-53 * counts * terms + self.noise
        # Exact sums are slow, and far distances have enough digits without them.
        is_near = np.abs(slack) <= 1e6 * (errors + 2.0**-53 * np.abs(self.bounds))
        slack[is_near] = _compute_slack(
            self.matrix[is_near], self.bounds[is_near], point
        )
        return slack / self.sizes, errors / self.sizes

    def are_passed(self, point: Array) -> bool:
        """Return whether a point is inside all facets, whatever the rounding errors."""
        distances, errors = self.distances(point)
        return bool((distances > errors).all())


class FactoredChart(NamedTuple):
    """Coordinates w for linear programs, in which unit rows may be sparse.

    The time of a solver depends on the number of entries that are not 0. In an
    orthonormal basis of a null space all entries are. The values of independent rows
    are better coordinates, because other rows are combinations of few of them, as are
    the fluxes of a network.

    A move z of the polytope's coordinates is ``back w``, and z = w if ``back`` is
    empty. With ``zero_rows``, w are coordinates that must satisfy zero_rows w = 0.
    """

    rows: Rows  # unit rows as functions of w
    back: Array
    zero_rows: "Rows | None" = None

    @classmethod
    def find(cls, unit: Array) -> "FactoredChart":
        """Return the chart of the most independent of many rows, otherwise w = z."""
        from scipy import linalg, sparse

        dim = unit.shape[1]
        if not MANY <= dim <= len(unit):
            return cls(unit, np.zeros((0, 0)))
        across, triangle, order = linalg.qr(unit.T, mode="economic", pivoting=True)
        # The first ``dim`` pivots are the most independent rows. Their values are w.
        sides = np.abs(np.diag(triangle))
        if sides.min() <= 1e-10 * sides.max():  # the rows do not span the space
            return cls(unit, np.zeros((0, 0)))
        # Every other row is a combination of these, with the columns of ``values``.
        values = linalg.solve_triangular(triangle[:, :dim], triangle[:, dim:])
        values[np.abs(values) <= 1e-11] = 0.0  # rounding errors
        rows = np.zeros(unit.shape)
        rows[order[:dim]], rows[order[dim:]] = np.eye(dim), values.T
        back = linalg.solve_triangular(triangle[:, :dim], across.T)
        return cls(sparse.csr_array(rows), np.ascontiguousarray(back.T))

    def equalities(self, num_others: int) -> "dict[str, Rows]":
        """Return the equalities of a program in w and ``num_others`` variables more."""
        if self.zero_rows is None:
            return {}
        num_rows = self.zero_rows.shape[0]
        wider = _append_columns(self.zero_rows, np.zeros((num_rows, num_others)))
        return {"A_eq": wider, "b_eq": np.zeros(num_rows)}

    def to_move(self, w: Array) -> Array:
        """Return the move z of a move w."""
        return self.back @ w if self.back.size else np.asarray(w)

    def with_gain(self) -> Rows:
        """Return rows with one more column, for the gain of the least distance."""
        return _append_columns(self.rows, np.ones((self.rows.shape[0], 1)))


def _append_columns(rows: Rows, columns: Array) -> Rows:
    """Append columns, as a sparse matrix if the rows are one."""
    from scipy import sparse

    if isinstance(rows, np.ndarray):
        return np.hstack([rows, columns])
    wider: Rows = sparse.hstack([rows, sparse.csr_array(columns)], format="csr")
    return wider


def _append_rows(rows: Rows, added: Rows) -> Rows:
    """Append rows, as a sparse matrix unless both are dense."""
    from scipy import sparse

    if isinstance(rows, np.ndarray) and isinstance(added, np.ndarray):
        return np.vstack([rows, added])
    parts = [sparse.csr_array(rows), sparse.csr_array(added)]
    longer: Rows = sparse.vstack(parts, format="csr")
    return longer


def _solve(cost: Array, **constraints: Any) -> Any:
    """Solve a linear program. Variables are free unless ``bounds`` are given."""
    from scipy.optimize import linprog

    usual = {"method": "highs", "bounds": (None, None)}
    return linprog(cost, **(usual | constraints))


def find_center(
    matrix: Array,
    bounds: Array,
    noise: Array | None = None,
    chart: FactoredChart | None = None,
) -> Array | Obstacle:
    """Return a point that is strictly inside in double arithmetic, or an `Obstacle`.

    It is the center of a largest ball inside. If the radius is smaller than 1e-9 of the
    largest offset, it is the analytic center of the part near that ball. ``noise`` is
    the uncertainty of the bounds, and ``chart`` a chart of the unit rows.
    """
    sizes = np.linalg.norm(matrix, axis=1)
    noise = np.zeros(len(bounds)) if noise is None else noise
    facets = Facets(matrix, bounds, sizes, noise)
    # No ball in a bounded set is larger than the largest offset. An unbounded set may
    # contain balls of any size, and one of that size suffices.
    unit = float(np.abs(bounds / sizes).max()) or 1.0
    chart = FactoredChart.find(matrix / sizes[:, None]) if chart is None else chart
    center, radius = _find_largest_ball(facets, chart, unit)
    # A smaller radius may be the solver's tolerance.
    if radius > 1e-9 and facets.are_passed(center):
        return center
    center = _refine_center(facets, chart, center, unit)
    if facets.are_passed(center):
        return _find_analytic_center(facets, center, unit)
    return _find_obstacle(facets, chart, center)


def _find_largest_ball(
    facets: Facets, chart: FactoredChart, unit: float
) -> tuple[Array, float]:
    """Return the center of a largest ball, and its radius in units of ``unit``.

    The program maximizes r over rows w + r <= distances and r <= 1.
    """
    dim = chart.rows.shape[1]
    rows, cap = chart.with_gain(), np.zeros((1, dim + 1))
    cap[0, dim] = 1.0
    answer = _solve(
        np.append(np.zeros(dim), -1.0),
        A_ub=_append_rows(rows, cap),
        b_ub=np.append(facets.bounds / facets.sizes / unit, 1.0),
        # The radius is at most 1 unit, so that the program of an unbounded set is
        # bounded.
        **chart.equalities(1),
    )
    if answer.x is None:
        return np.zeros(facets.matrix.shape[1]), -math.inf
    return unit * chart.to_move(answer.x[:dim]), float(answer.x[dim])


def _refine_center(
    facets: Facets, chart: FactoredChart, center: Array, unit: float
) -> Array:
    """Return the center of a largest ball, by programs in smaller and smaller units.

    A program finds a move w and the gain of the least distance from a facet. Both are 0
    if the center is already the best.
    """
    # The refinement begins with this unit, relative to the largest offset |b_i| /
    # |a_i|.
    first_unit = 1e-5
    step = max(first_unit * unit, np.finfo(np.float64).tiny)
    rows, dim = chart.with_gain(), chart.rows.shape[1]
    equalities = chart.equalities(1)
    # Facets that no move of this program can reach are left out.
    sizes: Any = abs(rows)
    # A move of at most REACH in each coordinate changes a row by at most REACH times
    # the sum of its entries. The factor 2 allows for rounding.
    spans = 2.0 * REACH * np.asarray(sizes.sum(axis=1)).ravel()
    limits = np.full((dim + 1, 2), [-REACH, REACH])
    # No move gains 0, so the gain is at least 0.
    limits[dim, 0] = 0.0
    distances, errors = facets.distances(center)
    for _ in range(25):
        low = distances.min()
        # Distances above the least one, in units of this program.
        rest = (distances - low) / step
        is_near = rest <= spans
        cost = np.append(np.zeros(dim), -1.0)
        answer = _solve(
            cost, bounds=limits, A_ub=rows[is_near], b_ub=rest[is_near], **equalities
        )
        if answer.x is None:
            break
        candidate = center + step * chart.to_move(answer.x[:dim])
        after, after_errors = facets.distances(candidate)
        has_gained = after.min() > low
        # The least distance that the program promised, less the true one.
        error = max(low + step * answer.x[dim] - after.min(), SOLVER_ERROR * step)
        if has_gained:
            center, distances, errors = candidate, after, after_errors
        if has_gained and np.abs(answer.x).max() >= 0.99 * REACH:
            # The move ended at the limit of the program, so the unit is too small.
            step = min(10.0 * step, first_unit * unit)
        elif error <= max(1e-3 * abs(distances.min()), errors[distances.argmin()]):
            break
        else:
            # The next unit is about the error of this solution.
            step *= min(max(error / step, 1e-4), 0.1)
    return center


def _find_analytic_center(facets: Facets, center: Array, unit: float) -> Array:
    """Return the analytic center of the body near a point inside.

    It maximizes the sum of log distances from the facets, and from the sides of a cube
    about the point, because the body may be unbounded. Newton's method is invariant to
    scale, so a thin body is not special.
    """
    dim = len(center)
    eye, sides = np.eye(dim), np.full(2 * dim, 4.0 * unit)
    rows = np.vstack([facets.matrix / facets.sizes[:, None], eye, -eye])
    distances = np.append(facets.distances(center)[0], sides)
    best, start = center, center
    for _ in range(100):
        shares = rows / distances[:, None]
        # The Newton step is H^-1 g, with g = -sum a_i / d_i and H = sum a_i a_i' /
        # d_i^2. So it is minus the least-squares solution of shares z = 1.
        move = -_solve_least_squares(shares)
        drift = shares @ move
        decrement = float(np.linalg.norm(drift))
        center = best + _choose_newton_share(drift, decrement) * move
        inside, errors = facets.distances(center)
        in_cube = np.concatenate(
            [sides[:dim] - (center - start), sides[dim:] + (center - start)]
        )
        # In exact arithmetic the step stays inside. So rounding errors end the search.
        if not ((inside > errors).all() and (in_cube > 0.0).all()):
            break
        best, distances = center, np.append(inside, in_cube)
        # With this Newton decrement the sum is within 0.02 of its maximum.
        if decrement <= 0.2:
            break
    return best


def _solve_least_squares(shares: Array) -> Array:
    """Return the least-squares solution of ``shares z = 1``.

    For many columns a QR decomposition gives the triangular factor of the normal
    equations. They are solved twice, because the second solution corrects the first.
    """
    ones = np.ones(len(shares))
    if shares.shape[1] < MANY:
        return np.asarray(np.linalg.lstsq(shares, ones, rcond=None)[0])
    from scipy.linalg import cho_solve

    # A QR decomposition of rows in descending order keeps the digits of small rows.
    order = np.argsort(-np.abs(shares).max(axis=1))
    factor = np.linalg.qr(shares[order], mode="r")
    if np.abs(np.diag(factor)).min() == 0.0:
        return np.asarray(np.linalg.lstsq(shares, ones, rcond=None)[0])
    z = np.zeros(shares.shape[1])
    for _ in range(2):
        z = z + cho_solve((factor, False), shares.T @ (ones - shares @ z))
    return np.asarray(z)


def _choose_newton_share(drift: Array, decrement: float) -> float:
    """Return the best share of a Newton step for sum(log(distances)).

    A share of 1 / (1 + decrement) always raises the sum. Up to twelve larger shares are
    compared, because they lead to fewer steps. The largest leaves three tenths of the
    distance that shrinks most.
    """
    damped = 1.0 / (1.0 + decrement)
    last = min(0.7 / max(float(drift.max()), 1e-300), 1.0 / damped)
    if last <= damped:
        return damped
    shares = np.geomspace(damped, last, 12)
    gains = [float(np.log1p(-t * drift).sum()) for t in shares]
    return float(shares[int(np.argmax(gains))])


def _find_obstacle(facets: Facets, chart: FactoredChart, center: Array) -> Obstacle:
    """Return the inequalities that leave no interior, given the best point."""
    distances, errors = facets.distances(center)
    low = float(distances.min())
    if low < -ROUNDINGS * errors[distances.argmin()]:
        rows, weights = _find_contradiction(facets, chart, distances)
    else:
        # Facets at the distance of the best point, up to rounding.
        is_close = distances <= ROUNDINGS * errors + max(-low, 0.0)
        rows, weights = _find_equalities(facets, chart, np.flatnonzero(is_close))
    if not weights.any():
        return Obstacle(rows, max(-low, 5e-324), 0.0, None)
    resolution = float(errors[rows].max())
    return Obstacle(
        rows, max(-low, 0.0), resolution, _prove_sign(facets, center, rows, weights)
    )


def _find_contradiction(
    facets: Facets, chart: FactoredChart, distances: Array
) -> tuple[Ints, Array]:
    """Return few inequalities that contradict one another, and a combination y of them.

    The program is the dual of `_find_largest_ball`, min <y, distances> over A'y = 0,
    sum y = 1 and y >= 0. The minimum is negative.
    """
    whole, num_equalities = chart.with_gain(), 0
    if chart.zero_rows is not None:
        whole = _append_rows(whole, chart.equalities(1)["A_eq"])
        num_equalities = chart.zero_rows.shape[0]
    # Distances in units of the worst violation. Rows that are farther away than REACH
    # count as so far, because a solver needs numbers of similar sizes.
    cost = np.minimum(distances / abs(distances.min()), REACH)
    answer = _solve(
        np.append(cost, np.zeros(num_equalities)),
        bounds=[(0.0, np.inf)] * len(cost) + [(-np.inf, np.inf)] * num_equalities,
        A_eq=whole.T,
        b_eq=np.append(np.zeros(chart.rows.shape[1]), 1.0),
    )
    if answer.x is None:
        # Without a solution, the rows that the best point violates most are named.
        rows = np.flatnonzero(distances <= 0.5 * distances.min())
        return rows, np.ones(len(rows))
    rows = np.flatnonzero(answer.x[: len(distances)] > SOLVER_ERROR)
    return rows, answer.x[rows] / facets.sizes[rows]


def _find_equalities(
    facets: Facets, chart: FactoredChart, rows: Ints
) -> tuple[Ints, Array]:
    """Return the facets through a point that no direction z leaves inwards.

    ``rows`` are the facets through the point. In the program max sum u over
    <a_i, z> + u_i <= 0 and 0 <= u_i <= 1, a solution has u_i = 0 or 1. Facets with
    u_i = 0 are the result, and there the dual solution is at least 1.
    """
    count = len(rows)
    flat = FactoredChart(facets.matrix / facets.sizes[:, None], np.zeros((0, 0)))
    # If the usual method fails, the dual simplex method may find the solution.
    dual_simplex = {"method": "highs-ds", "options": {"presolve": False}}
    for units, options in ((chart, {}), (flat, {}), (flat, dual_simplex)):
        dim = units.rows.shape[1]
        answer = _solve(
            np.concatenate([np.zeros(dim), -np.ones(count)]),
            bounds=[(None, None)] * dim + [(0.0, 1.0)] * count,
            A_ub=_append_columns(units.rows[rows], np.eye(count)),
            b_ub=np.zeros(count),
            **units.equalities(count),
            **options,
        )
        if answer.x is not None:
            break
    else:  # no method has an answer, so no row may be called an equality
        return rows, np.zeros(count)
    weights = np.ones(count)
    is_tight = np.ones(count, dtype=bool)
    if (answer.x[dim:] < 0.5).any():
        is_tight = answer.x[dim:] < 0.5
        weights = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return rows[is_tight], weights[is_tight] / facets.sizes[rows[is_tight]]


def _prove_sign(
    facets: Facets, center: Array, rows: Ints, weights: Array
) -> int | None:
    """Return the sign of <y, b> for a combination y > 0 with A'y = 0, None if unproved.

    Every point has <y, b - A x> = <y, b>, which is computed in rationals. If the bounds
    have errors or the rows are many, <y, b> is bounded on all points that are as near
    as the largest offset.
    """
    matrix, bounds = facets.matrix[rows], facets.bounds[rows]
    if not facets.noise[rows].any():
        y = _find_combination(matrix, weights)
        if y is not None:
            terms = (a * Fraction(x) for a, x in zip(y, bounds.tolist(), strict=True))
            total = sum(terms, Fraction(0))
            return (total > 0) - (total < 0)
    # For all points x with |x - center| <= reach, <y, b> differs from <y, b - A center>
    # by <A'y, x - center>, at most |A'y| reach.
    distances, errors = facets.distances(center)
    weights = weights * facets.sizes[rows]
    unit = matrix / facets.sizes[rows, None]
    reach = float(np.abs(facets.bounds / facets.sizes).max()) + np.linalg.norm(center)
    rest = float(np.linalg.norm(unit.T @ weights)) * reach
    error = rest + ROUNDINGS * float(weights @ errors[rows])
    return -1 if float(weights @ distances[rows]) < -error else None


def _find_combination(matrix: Array, weights: Array) -> list[Fraction] | None:
    """Return positive y near the weights with A'y = 0 exactly, or None.

    Gauss-Jordan elimination in rationals expresses some entries by the others, which
    keep their weights. The largest weights are expressed, so that they stay positive.
    """
    count, dim = matrix.shape
    if count * count * dim > 200_000:  # too many rational multiplications
        return None
    rows = [[Fraction(x) for x in column] for column in matrix.T.tolist()]
    pivots: list[int] = []
    for column in np.argsort(-weights, kind="stable").tolist():
        rank = len(pivots)
        candidates = [i for i in range(rank, dim) if rows[i][column] != 0]
        if not candidates:
            continue
        rows[rank], rows[candidates[0]] = rows[candidates[0]], rows[rank]
        top = rows[rank]
        top[:] = [x / top[column] for x in top]
        for i in range(dim):
            factor = rows[i][column]
            if i != rank and factor != 0:
                rows[i][:] = [x - factor * t for x, t in zip(rows[i], top, strict=True)]
        pivots.append(column)
    y = [Fraction(w) for w in weights.tolist()]
    free = [j for j in range(count) if j not in pivots]
    for row, column in zip(rows, pivots, strict=False):
        y[column] = -sum((row[j] * y[j] for j in free), Fraction(0))
    return y if all(a > 0 for a in y) else None


def is_bounded(matrix: Array, chart: FactoredChart | None = None) -> bool:
    """Return whether only d = 0 satisfies A d <= 0.

    Then the rows positively span the space: every vector is a combination of rows with
    coefficients >= 0.
    """
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    if np.linalg.matrix_rank(unit) < matrix.shape[1]:
        return False
    chart = FactoredChart.find(unit) if chart is None else chart
    if chart.back.size:
        return _is_positively_spanned(chart.rows, chart.zero_rows)
    # By Stiemke's lemma this holds if A'y = 0 for some y >= 1. The program is about
    # y - 1 >= 0. The solver ignores entries below 1e-9, so the unit of a coordinate is
    # the geometric mean of its smallest and its largest entry.
    entries = np.where(unit == 0.0, np.nan, np.abs(unit))
    small, large = np.nanmin(entries, axis=0), np.nanmax(entries, axis=0)
    if (small < large / THIN).any():
        unit = unit / np.sqrt(small * large)
    return _is_positively_spanned(unit)


def _is_positively_spanned(rows: Rows, equalities: "Rows | None" = None) -> bool:
    """Return whether A'y + E'x = 0 for some y >= 1 and any x, with E the equalities."""
    level = -np.asarray(rows.sum(axis=0)).ravel()
    cost, signs = np.ones(rows.shape[0]), [(0.0, np.inf)] * rows.shape[0]
    if equalities is not None:
        num_equalities = equalities.shape[0]
        rows, signs = (
            _append_rows(rows, equalities),
            signs + [(-np.inf, np.inf)] * num_equalities,
        )
        cost = np.append(cost, np.zeros(num_equalities))
    answer = _solve(cost, bounds=signs, A_eq=rows.T, b_eq=level)
    return bool(answer.status == 0)


def _compute_slack(matrix: Array, bounds: Array, center: Array) -> Array:
    """Compute ``b - A center`` with all digits, because it is small in thin bodies."""
    # Products as pairs, rounded value and rounding error, so that only the sum is
    # rounded.
    products, errors = two_product.py_func(matrix, center)
    terms = np.column_stack([bounds, -products, -errors])
    return np.array([math.fsum(row.tolist()) for row in terms])


class RoundFrame(NamedTuple):
    """Polytope relative to a point inside, and coordinates in which it is round.

    The body is ``rows z <= limits`` with unit rows, so the limits are distances of the
    point from the facets. In the coordinates ``factor z`` the rows are nearly
    orthonormal after division by the limits. The factor is empty if the limits have
    similar sizes, or if the rows do not span the space.
    """

    rows: Array
    limits: Array
    sizes: Array
    slack: Array
    factor: Array

    @classmethod
    def build(cls, matrix: Array, bounds: Array, center: Array) -> "RoundFrame":
        """Return the frame of a body with a point inside."""
        sizes = np.linalg.norm(matrix, axis=1)
        slack = _compute_slack(matrix, bounds, center)
        rows, limits = matrix / sizes[:, None], slack / sizes
        factor: Array = np.zeros((0, 0))
        if limits.max() > THIN * limits.min() and len(rows) >= len(center):
            # R'R is the sum of a_i a_i' / limit_i^2, so that rows in the coordinates R
            # z are nearly orthonormal after division by the limits.
            whole = np.asarray(np.linalg.qr(rows / limits[:, None], mode="r"))
            sides = np.abs(np.diag(whole))
            factor = whole if sides.min() > 0.0 else factor
        return cls(rows, limits, sizes, slack, factor)


def _find_multipliers(frame: RoundFrame, direction: Array) -> Array | None:
    """Return multipliers y >= 0 of max <v, z> over A z <= slack, None if unbounded.

    A solver's tolerances are absolute. In a thin body it first finds the rows that
    bound the long sides. The rest v - A'y is again a direction, for the next program.
    """
    length = np.linalg.norm(direction)
    total, rest = np.zeros(len(frame.slack)), direction
    for _ in range(6 if frame.factor.size else 1):
        # A program leaves a rest of about the solver's tolerance.
        size = np.linalg.norm(rest)
        if size <= 2.0**-50 * length:
            break
        y = _find_unit_multipliers(frame, rest / size)
        if y is None:
            return None if not total.any() else total / frame.sizes
        total = total + size * y
        rest = direction - frame.rows.T @ total
    return np.asarray(total / frame.sizes)


def _find_unit_multipliers(frame: RoundFrame, unit: Array) -> Array | None:
    """Return multipliers of the unit rows for a unit vector, None if unbounded."""
    rows = frame.rows
    if frame.factor.size:
        y = _solve_round_dual(frame, unit)
    else:
        y = _solve_dual(rows, frame.limits / frame.limits.max(), unit)
    if y is None:
        return None
    # Least squares on the active rows remove the solver's error.
    active = np.flatnonzero(y)
    if len(active):
        polished = np.linalg.lstsq(rows[active].T, unit, rcond=None)[0]
        if (polished >= 0.0).all():
            y[active] = polished
    return y


def _solve_dual(rows: Array, limits: Array, direction: Array) -> Array | None:
    """Return the dual solution of max <v, z> over rows z <= limits, or None."""
    answer = _solve(-direction, A_ub=rows, b_ub=limits)
    if answer.status != 0:
        return None
    y: Array = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return y


def _solve_round_dual(frame: RoundFrame, direction: Array) -> Array | None:
    """Return the dual solution, found in coordinates in which the body is round."""
    from scipy.linalg import solve_triangular

    columns = np.column_stack([(frame.rows / frame.limits[:, None]).T, direction])
    # Rows in the coordinates u = factor z are a_i factor^-1.
    round_rows = solve_triangular(frame.factor, columns, trans="T").T
    length = float(np.linalg.norm(round_rows[-1]))
    y = _solve_dual(round_rows[:-1], np.ones(len(frame.rows)), round_rows[-1] / length)
    return None if y is None else y * length / frame.limits


def outer_box(matrix: Array, bounds: Array, center: Array) -> tuple[Array, Array]:
    """Return bounds of all coordinates from 2 d linear programs, perhaps infinite.

    For multipliers y of a direction v, let r = v - A'y. If all half-widths are at most
    M, this one is at most ``<y, slack> + ||r||_1 M``. The largest of these inequalities
    bounds M.
    """
    dim = len(center)
    frame = RoundFrame.build(matrix, bounds, center)
    reach = np.full((2, dim), np.inf)
    leak = np.zeros((2, dim))
    for side, sign in enumerate((-1.0, 1.0)):
        for j in range(dim):
            direction = np.zeros(dim)
            direction[j] = sign
            y = _find_multipliers(frame, direction)
            if y is not None:
                reach[side, j] = y @ frame.slack
                leak[side, j] = np.abs(direction - matrix.T @ y).sum()
    if np.isfinite(reach).all() and leak.max() < 0.5:
        # All half-widths are at most M = max reach / (1 - max leak).
        reach = reach + leak * (reach.max() / (1.0 - leak.max()))
    elif leak.any():
        reach = np.where(leak > 0.0, np.inf, reach)
    lower, upper = center - reach[0], center + reach[1]
    # The difference may have been rounded to a shorter half-width. Then the end moves
    # outwards by one double.
    is_short = center - lower < reach[0], upper - center < reach[1]
    return (
        np.where(is_short[0], np.nextafter(lower, -np.inf), lower),
        np.where(is_short[1], np.nextafter(upper, np.inf), upper),
    )


def support_value(
    matrix: Array, bounds: Array, center: Array, box: tuple[Array, Array], v: Array
) -> float:
    """Return an upper bound of <v, x>, exact up to rounding errors."""
    # Division by a power of two is exact, and squares of v / size do not overflow.
    size = math.ldexp(0.5, math.frexp(np.abs(v).max())[1])
    v = v / size
    frame = RoundFrame.build(matrix, bounds, center)
    y = _find_multipliers(frame, v)
    if y is None:
        return math.inf
    rest = v - matrix.T @ y
    width = np.where(rest > 0.0, box[1] - center, center - box[0])
    with np.errstate(invalid="ignore"):
        leak = np.where(rest == 0.0, 0.0, np.abs(rest) * width).sum()
    return size * float(v @ center + y @ frame.slack + leak)
