"""Linear programs over a polytope, each answered by a proved bound.

A solver's optimum carries its tolerance. Its dual solution does not: for every y >= 0,
``<v, x> <= <y, b> + <v - A'y, x>`` on ``A x <= b``; a box bounds the last term.

The tolerance is also absolute. So a program is solved again in units of what the last
solution missed (iterative refinement), until a point is inside in double arithmetic, or
those units are rounding errors. The entries of A and b are taken as exact.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.sparse import Rows
from dpsample.numerics.exact import two_product

# Radius of an inscribed ball, relative to the largest offset, from which one program
# gives the center. A smaller one may be the solver's tolerance.
SMALLEST_RADIUS = 1e-9
# A refinement begins in units of this share of the largest offset, and sees so many of
# its units far. Its solver errs by at most the last number of them.
FIRST_UNIT = 1e-5
REACH = 1e6
SOLVER_ERROR = 1e-6
MAX_ROUNDS = 25
# Relative error of the radius at which a refinement ends.
RADIUS_ERROR = 1e-3
MAX_NEWTON_STEPS = 100
# Distances from facets that are within so many rounding errors of 0 count as 0.
ROUNDINGS = 64.0
FAR = 1e6  # distances of so many rounding errors have enough digits
# Options of `linprog`: the dual simplex method on the program as it is.
PLAIN_SIMPLEX = {"method": "highs-ds", "options": {"presolve": False}}
# Most rational multiply-adds with which a combination of inequalities is verified.
MAX_EXACT_WORK = 200_000
# Ratio of distances from facets at which a body is thin. A program over a thin body is
# solved in coordinates in which the body is round.
THIN = 1e6
# Programs by which a direction is bounded over a thin body.
MAX_DUALS = 6
# Coordinates from which programs are solved in those of a `Chart`, and the size of its
# entries that are rounding errors.
MANY = 50
CHART_ERROR = 1e-11
INDEPENDENT = 1e-10  # least relative size of a chart's sides
# Newton decrement at which a point is central: the barrier is within 0.02 of its best.
CENTRAL = 0.2


class Obstacle(NamedTuple):
    """Inequalities between which no point strictly inside was found."""

    rows: Ints
    missed: float  # by the point that misses the worst of all inequalities least
    resolution: float  # rounding errors of what is missed
    # Sign of a combination of the inequalities that leaves no other width: they
    # contradict one another if it is negative, and are equalities if it is 0.
    sign: int | None  # None if there is no proof

    @property
    def is_contradiction(self) -> bool:
        """Whether no point satisfies the inequalities, by more than rounding errors."""
        return self.sign == -1 and not self.is_rounding

    @property
    def is_open(self) -> bool:
        """Whether nothing is proved: other programs may find a better point."""
        return self.sign is None and not self.is_rounding

    @property
    def is_rounding(self) -> bool:
        """Whether a point satisfies all inequalities up to rounding errors."""
        return self.missed <= ROUNDINGS * self.resolution


class Facets(NamedTuple):
    """Inequalities, the lengths of their rows, and the uncertainty of their bounds."""

    matrix: Array
    bounds: Array
    sizes: Array
    noise: Array

    def distances(self, point: Array) -> tuple[Array, Array]:
        """Distances of a point from the facets, and bounds of their rounding errors.

        The errors are those of a test of membership, which adds products in any order.
        """
        slack = self.bounds - self.matrix @ point
        terms = np.abs(self.matrix) @ np.abs(point)
        counts = np.count_nonzero(self.matrix, axis=1) + 1
        errors = 2.0**-53 * counts * terms + self.noise
        # Exact sums take long. A far facet has enough digits without.
        is_near = np.abs(slack) <= FAR * (errors + 2.0**-53 * np.abs(self.bounds))
        slack[is_near] = _slack(self.matrix[is_near], self.bounds[is_near], point)
        return slack / self.sizes, errors / self.sizes

    def are_passed(self, point: Array) -> bool:
        """Whether a point is inside all facets, whatever the rounding errors."""
        distances, errors = self.distances(point)
        return bool((distances > errors).all())


class Chart(NamedTuple):
    """Coordinates w of many dimensions, in which unit rows may be sparse.

    They are the values of independent rows, z = back w, as fluxes are combinations of
    few others, while the null space of their equalities is dense in an orthonormal
    basis. A solver's time depends on the entries that are not 0. ``back`` is empty if
    w = z. If z solves sparse equalities, w are the coordinates that it solves them
    from, and ``held`` the equalities: held w = 0.
    """

    rows: Rows  # sparse, or the unit rows themselves
    back: Array
    held: "Rows | None" = None

    @classmethod
    def of(cls, unit: Array) -> "Chart":
        """Chart of the most independent rows, if they span a space of many."""
        from scipy import linalg, sparse

        dim = unit.shape[1]
        if not MANY <= dim <= len(unit):
            return cls(unit, np.zeros((0, 0)))
        across, triangle, order = linalg.qr(unit.T, mode="economic", pivoting=True)
        sides = np.abs(np.diag(triangle))
        if sides.min() <= INDEPENDENT * sides.max():
            return cls(unit, np.zeros((0, 0)))
        values = linalg.solve_triangular(triangle[:, :dim], triangle[:, dim:])
        values[np.abs(values) <= CHART_ERROR] = 0.0
        rows = np.zeros(unit.shape)
        rows[order[:dim]], rows[order[dim:]] = np.eye(dim), values.T
        back = linalg.solve_triangular(triangle[:, :dim], across.T)
        return cls(sparse.csr_array(rows), np.ascontiguousarray(back.T))

    def equalities(self, count: int) -> "dict[str, Rows]":
        """Arguments of a program whose ``count`` last variables are not in them."""
        if self.held is None:
            return {}
        num_held = self.held.shape[0]
        wider = _beside(self.held, np.zeros((num_held, count)))
        return {"A_eq": wider, "b_eq": np.zeros(num_held)}

    def moved(self, w: Array) -> Array:
        """Return the move z of a move w."""
        return self.back @ w if self.back.size else np.asarray(w)

    def with_gain(self) -> Rows:
        """Rows with one more column, of the least distance."""
        return _beside(self.rows, np.ones((self.rows.shape[0], 1)))


def _beside(rows: Rows, columns: Array) -> Rows:
    """Append columns to rows, sparse if those are."""
    from scipy import sparse

    if isinstance(rows, np.ndarray):
        return np.hstack([rows, columns])
    wider: Rows = sparse.hstack([rows, sparse.csr_array(columns)], format="csr")
    return wider


def _below(rows: Rows, added: Rows) -> Rows:
    """Append rows to rows, sparse if those are."""
    from scipy import sparse

    if isinstance(rows, np.ndarray) and isinstance(added, np.ndarray):
        return np.vstack([rows, added])
    parts = [sparse.csr_array(rows), sparse.csr_array(added)]
    longer: Rows = sparse.vstack(parts, format="csr")
    return longer


def _solve(cost: Array, **constraints: Any) -> Any:
    """Solve a linear program, whose variables are free unless ``bounds`` are given."""
    from scipy.optimize import linprog

    usual = {"method": "highs", "bounds": (None, None)}
    return linprog(cost, **(usual | constraints))


def find_center(
    matrix: Array,
    bounds: Array,
    noise: Array | None = None,
    chart: Chart | None = None,
) -> Array | Obstacle:
    """Return a point that is strictly inside in double arithmetic, or an `Obstacle`.

    It is the center of a largest ball inside. If that ball is smaller than 1e-9 of the
    largest offset, it is the analytic center of what is near that ball. ``noise`` is
    the uncertainty of the bounds, and ``chart`` one of the unit rows, if one is known.
    """
    sizes = np.linalg.norm(matrix, axis=1)
    noise = np.zeros(len(bounds)) if noise is None else noise
    facets = Facets(matrix, bounds, sizes, noise)
    # No ball in a bounded set is larger than the largest offset. Unbounded sets may
    # hold balls of any size: one of that size will do.
    unit = float(np.abs(bounds / sizes).max()) or 1.0
    chart = Chart.of(matrix / sizes[:, None]) if chart is None else chart
    center, radius = _largest_ball(facets, chart, unit)
    if radius > SMALLEST_RADIUS and facets.are_passed(center):
        return center
    center = _refined(facets, chart, center, unit)
    if facets.are_passed(center):
        return _centered(facets, center, unit)
    return _obstacle(facets, chart, center)


def _largest_ball(facets: Facets, chart: Chart, unit: float) -> tuple[Array, float]:
    """Center of a largest ball, and its radius in units of ``unit``."""
    dim = chart.rows.shape[1]
    rows, cap = chart.with_gain(), np.zeros((1, dim + 1))
    cap[0, dim] = 1.0
    answer = _solve(
        np.append(np.zeros(dim), -1.0),
        A_ub=_below(rows, cap),
        b_ub=np.append(facets.bounds / facets.sizes / unit, 1.0),
        **chart.equalities(1),
    )
    if answer.x is None:
        return np.zeros(facets.matrix.shape[1]), -math.inf
    return unit * chart.moved(answer.x[:dim]), float(answer.x[dim])


def _refined(facets: Facets, chart: Chart, center: Array, unit: float) -> Array:
    """Return the center of a largest ball, from programs in smaller and smaller units.

    A program is about the move and the gain of the least distance, so that 0 solves it.
    """
    step = max(FIRST_UNIT * unit, np.finfo(np.float64).tiny)
    rows, dim = chart.with_gain(), chart.rows.shape[1]
    equalities = chart.equalities(1)
    sizes: Any = abs(rows)
    spans = 2.0 * REACH * np.asarray(sizes.sum(axis=1)).ravel()
    limits = np.full((dim + 1, 2), [-REACH, REACH])
    limits[dim, 0] = 0.0
    distances, errors = facets.distances(center)
    for _ in range(MAX_ROUNDS):
        low = distances.min()
        rest = (distances - low) / step
        is_near = rest <= spans
        cost = np.append(np.zeros(dim), -1.0)
        answer = _solve(
            cost, bounds=limits, A_ub=rows[is_near], b_ub=rest[is_near], **equalities
        )
        if answer.x is None:
            break
        candidate = center + step * chart.moved(answer.x[:dim])
        after, after_errors = facets.distances(candidate)
        has_gained = after.min() > low
        error = max(low + step * answer.x[dim] - after.min(), SOLVER_ERROR * step)
        if has_gained:
            center, distances, errors = candidate, after, after_errors
        if has_gained and np.abs(answer.x).max() >= 0.99 * REACH:
            step = min(10.0 * step, FIRST_UNIT * unit)
        elif error <= max(
            RADIUS_ERROR * abs(distances.min()), errors[distances.argmin()]
        ):
            break
        else:
            step *= min(max(error / step, 1e-4), 0.1)
    return center


def _centered(facets: Facets, center: Array, unit: float) -> Array:
    """Return the analytic center of the body within four units of a point inside.

    Newton's method on distances relative to themselves: a thin body is not special.
    """
    dim = len(center)
    eye, sides = np.eye(dim), np.full(2 * dim, 4.0 * unit)
    rows = np.vstack([facets.matrix / facets.sizes[:, None], eye, -eye])
    distances = np.append(facets.distances(center)[0], sides)
    best, start = center, center
    for _ in range(MAX_NEWTON_STEPS):
        shares = rows / distances[:, None]
        move = -_regressed(shares)
        drift = shares @ move
        decrement = float(np.linalg.norm(drift))
        center = best + _newton_share(drift, decrement) * move
        inside, errors = facets.distances(center)
        walls = np.concatenate(
            [sides[:dim] - (center - start), sides[dim:] + (center - start)]
        )
        if not ((inside > errors).all() and (walls > 0.0).all()):
            break
        best, distances = center, np.append(inside, walls)
        if decrement <= CENTRAL:
            break
    return best


def _regressed(shares: Array) -> Array:
    """Least-squares solution of ``shares z = 1``, of many columns by a QR, twice."""
    ones = np.ones(len(shares))
    if shares.shape[1] < MANY:
        return np.asarray(np.linalg.lstsq(shares, ones, rcond=None)[0])
    from scipy.linalg import cho_solve

    # Rows sorted by size keep the digits of the small ones.
    order = np.argsort(-np.abs(shares).max(axis=1))
    factor = np.linalg.qr(shares[order], mode="r")
    if np.abs(np.diag(factor)).min() == 0.0:
        return np.asarray(np.linalg.lstsq(shares, ones, rcond=None)[0])
    z = np.zeros(shares.shape[1])
    for _ in range(2):
        z = z + cho_solve((factor, False), shares.T @ (ones - shares @ z))
    return np.asarray(z)


def _newton_share(drift: Array, decrement: float) -> float:
    """Share of a Newton step that raises sum(log(distances)) most, of some shares.

    1 / (1 + decrement) always raises it; larger ones end in fewer steps.
    """
    damped = 1.0 / (1.0 + decrement)
    last = min(0.7 / max(float(drift.max()), 1e-300), 1.0 / damped)
    if last <= damped:
        return damped
    shares = np.geomspace(damped, last, 12)
    gains = [float(np.log1p(-t * drift).sum()) for t in shares]
    return float(shares[int(np.argmax(gains))])


def _obstacle(facets: Facets, chart: Chart, center: Array) -> Obstacle:
    """Return the inequalities that leave no interior, from a point that is best."""
    distances, errors = facets.distances(center)
    low = float(distances.min())
    if low < -ROUNDINGS * errors[distances.argmin()]:
        rows, weights = _contradiction(facets, chart, distances)
    else:
        is_close = distances <= ROUNDINGS * errors + max(-low, 0.0)
        rows, weights = _equalities(facets, chart, np.flatnonzero(is_close))
    if not weights.any():
        return Obstacle(rows, max(-low, 5e-324), 0.0, None)
    resolution = float(errors[rows].max())
    return Obstacle(
        rows, max(-low, 0.0), resolution, _sign(facets, center, rows, weights)
    )


def _contradiction(
    facets: Facets, chart: Chart, distances: Array
) -> tuple[Ints, Array]:
    """Few inequalities of which a combination is below 0, and the combination."""
    # min <y, distances> over A'y = 0, sum y = 1, y >= 0: the dual of `_largest_ball`.
    whole, num_held = chart.with_gain(), 0
    if chart.held is not None:
        whole = _below(whole, chart.equalities(1)["A_eq"])
        num_held = chart.held.shape[0]
    cost = np.minimum(distances / abs(distances.min()), REACH)
    answer = _solve(
        np.append(cost, np.zeros(num_held)),
        bounds=[(0.0, np.inf)] * len(cost) + [(-np.inf, np.inf)] * num_held,
        A_eq=whole.T,
        b_eq=np.append(np.zeros(chart.rows.shape[1]), 1.0),
    )
    if answer.x is None:
        rows = np.flatnonzero(distances <= 0.5 * distances.min())
        return rows, np.ones(len(rows))
    rows = np.flatnonzero(answer.x[: len(distances)] > SOLVER_ERROR)
    return rows, answer.x[rows] / facets.sizes[rows]


def _equalities(facets: Facets, chart: Chart, rows: Ints) -> tuple[Ints, Array]:
    """Return all of some facets through a point off which no direction leads inwards.

    In the program max sum u over <a_i, z> + u_i <= 0, 0 <= u_i <= 1, a solution has
    u_i = 0 or 1, and its dual solution is at least 1 where u_i = 0.
    """
    count = len(rows)
    flat = Chart(facets.matrix / facets.sizes[:, None], np.zeros((0, 0)))
    # Where the usual method finds no answer, plain simplex steps may.
    for units, options in ((chart, {}), (flat, {}), (flat, PLAIN_SIMPLEX)):
        dim = units.rows.shape[1]
        answer = _solve(
            np.concatenate([np.zeros(dim), -np.ones(count)]),
            bounds=[(None, None)] * dim + [(0.0, 1.0)] * count,
            A_ub=_beside(units.rows[rows], np.eye(count)),
            b_ub=np.zeros(count),
            **units.equalities(count),
            **options,
        )
        if answer.x is not None:
            break
    else:  # nothing is known of any row: none may be called an equality
        return rows, np.zeros(count)
    weights = np.ones(count)
    is_tight = np.ones(count, dtype=bool)
    if (answer.x[dim:] < 0.5).any():
        is_tight = answer.x[dim:] < 0.5
        weights = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return rows[is_tight], weights[is_tight] / facets.sizes[rows[is_tight]]


def _sign(facets: Facets, center: Array, rows: Ints, weights: Array) -> int | None:
    """Sign of a combination <y, b> of inequalities with A'y = 0 and y > 0.

    Every point has <y, b - A x> = <y, b>. It is computed in rationals. If bounds have
    errors or the rows are many, it is bounded within the largest offset of the center.
    """
    matrix, bounds = facets.matrix[rows], facets.bounds[rows]
    if not facets.noise[rows].any():
        y = _combination(matrix, weights)
        if y is not None:
            terms = (a * Fraction(x) for a, x in zip(y, bounds.tolist(), strict=True))
            total = sum(terms, Fraction(0))
            return (total > 0) - (total < 0)
    distances, errors = facets.distances(center)
    weights = weights * facets.sizes[rows]
    unit = matrix / facets.sizes[rows, None]
    reach = float(np.abs(facets.bounds / facets.sizes).max()) + np.linalg.norm(center)
    rest = float(np.linalg.norm(unit.T @ weights)) * reach
    error = rest + ROUNDINGS * float(weights @ errors[rows])
    return -1 if float(weights @ distances[rows]) < -error else None


def _combination(matrix: Array, weights: Array) -> list[Fraction] | None:
    """Positive y near the weights with A'y = 0 exactly, or None."""
    count, dim = matrix.shape
    if count * count * dim > MAX_EXACT_WORK:
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


def is_bounded(matrix: Array, chart: Chart | None = None) -> bool:
    """Whether ``A d <= 0`` forces d = 0: the rows positively span the space."""
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    if np.linalg.matrix_rank(unit) < matrix.shape[1]:
        return False
    chart = Chart.of(unit) if chart is None else chart
    if chart.back.size:
        return _is_spanned(chart.rows, chart.held)
    # A'y = 0 with y >= 1 (Stiemke), in z = y - 1 >= 0. The solver drops entries below
    # 1e-9, so a coordinate's unit is between its smallest and its largest entry.
    entries = np.where(unit == 0.0, np.nan, np.abs(unit))
    small, large = np.nanmin(entries, axis=0), np.nanmax(entries, axis=0)
    if (small < large / THIN).any():
        unit = unit / np.sqrt(small * large)
    return _is_spanned(unit)


def _is_spanned(rows: Rows, equalities: "Rows | None" = None) -> bool:
    """Whether a combination is 0 of all rows, at least once, and equalities."""
    level = -np.asarray(rows.sum(axis=0)).ravel()
    cost, signs = np.ones(rows.shape[0]), [(0.0, np.inf)] * rows.shape[0]
    if equalities is not None:
        num_held = equalities.shape[0]
        rows, signs = _below(rows, equalities), signs + [(-np.inf, np.inf)] * num_held
        cost = np.append(cost, np.zeros(num_held))
    answer = _solve(cost, bounds=signs, A_eq=rows.T, b_eq=level)
    return bool(answer.status == 0)


def _slack(matrix: Array, bounds: Array, center: Array) -> Array:
    """Compute ``b - A center`` with all its digits: of thin bodies it is small."""
    products, errors = two_product.py_func(matrix, center)
    terms = np.column_stack([bounds, -products, -errors])
    return np.array([math.fsum(row.tolist()) for row in terms])


class RoundFrame(NamedTuple):
    """Unit rows, distances from the facets, and a factor of what makes a body round.

    The body is ``rows z <= limits`` around its center. In ``w = factor z`` the rows are
    nearly orthonormal after division by the limits. The factor is empty if the limits
    are of like sizes, or the rows do not span the space.
    """

    rows: Array
    limits: Array
    sizes: Array
    slack: Array
    factor: Array

    @classmethod
    def around(cls, matrix: Array, bounds: Array, center: Array) -> "RoundFrame":
        """RoundFrame of a body with a point inside."""
        sizes = np.linalg.norm(matrix, axis=1)
        slack = _slack(matrix, bounds, center)
        rows, limits = matrix / sizes[:, None], slack / sizes
        factor: Array = np.zeros((0, 0))
        if limits.max() > THIN * limits.min() and len(rows) >= len(center):
            whole = np.asarray(np.linalg.qr(rows / limits[:, None], mode="r"))
            sides = np.abs(np.diag(whole))
            factor = whole if sides.min() > 0.0 else factor
        return cls(rows, limits, sizes, slack, factor)


def _dual(frame: RoundFrame, direction: Array) -> Array | None:
    """Multipliers y >= 0 of max <v, z> over A z <= slack, or None if unbounded.

    The solver's tolerances are absolute: it sees a program in units of the data. Of a
    thin body it finds what bounds the long sides first. The rest is a direction, too.
    """
    length = np.linalg.norm(direction)
    total, rest = np.zeros(len(frame.slack)), direction
    for _ in range(MAX_DUALS if frame.factor.size else 1):
        size = np.linalg.norm(rest)
        if size <= 2.0**-50 * length:
            break
        y = _unit_dual(frame, rest / size)
        if y is None:
            return None if not total.any() else total / frame.sizes
        total = total + size * y
        rest = direction - frame.rows.T @ total
    return np.asarray(total / frame.sizes)


def _unit_dual(frame: RoundFrame, unit: Array) -> Array | None:
    """Multipliers of the unit rows for a unit vector."""
    rows = frame.rows
    if frame.factor.size:
        y = _dual_of_round(frame, unit)
    else:
        y = _multipliers(rows, frame.limits / frame.limits.max(), unit)
    if y is None:
        return None
    active = np.flatnonzero(y)
    if len(active):
        polished = np.linalg.lstsq(rows[active].T, unit, rcond=None)[0]
        if (polished >= 0.0).all():
            y[active] = polished
    return y


def _multipliers(rows: Array, limits: Array, direction: Array) -> Array | None:
    """Dual solution of max <v, z> over rows z <= limits, or None if unbounded."""
    answer = _solve(-direction, A_ub=rows, b_ub=limits)
    if answer.status != 0:
        return None
    y: Array = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return y


def _dual_of_round(frame: RoundFrame, direction: Array) -> Array | None:
    """Dual solution in the coordinates in which the body is round."""
    from scipy.linalg import solve_triangular

    columns = np.column_stack([(frame.rows / frame.limits[:, None]).T, direction])
    round_rows = solve_triangular(frame.factor, columns, trans="T").T
    length = float(np.linalg.norm(round_rows[-1]))
    y = _multipliers(round_rows[:-1], np.ones(len(frame.rows)), round_rows[-1] / length)
    return None if y is None else y * length / frame.limits


def outer_box(matrix: Array, bounds: Array, center: Array) -> tuple[Array, Array]:
    """Bounds of every coordinate from 2 d linear programs, infinite where none is.

    If y leaves r = v - A'y and all half-widths are at most M, then a half-width is at
    most ``<y, slack> + ||r||_1 M``; the largest of these inequalities bounds M.
    """
    dim = len(center)
    frame = RoundFrame.around(matrix, bounds, center)
    reach = np.full((2, dim), np.inf)
    leak = np.zeros((2, dim))
    for side, sign in enumerate((-1.0, 1.0)):
        for j in range(dim):
            direction = np.zeros(dim)
            direction[j] = sign
            y = _dual(frame, direction)
            if y is not None:
                reach[side, j] = y @ frame.slack
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
    frame = RoundFrame.around(matrix, bounds, center)
    y = _dual(frame, v)
    if y is None:
        return math.inf
    rest = v - matrix.T @ y
    width = np.where(rest > 0.0, box[1] - center, center - box[0])
    with np.errstate(invalid="ignore"):
        leak = np.where(rest == 0.0, 0.0, np.abs(rest) * width).sum()
    return size * float(v @ center + y @ frame.slack + leak)
