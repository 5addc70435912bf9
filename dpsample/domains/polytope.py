"""Polytopes given by inequalities and equalities, and their compiled pieces.

A body's first ``num_rows`` rows are equalities, orthonormal; the rows of inequalities
are projected onto their null space, so that steps along them keep the equalities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.core.spec import Json, freeze
from dpsample.domains import polytope_bounds as bounds
from dpsample.domains.domain import Body, Domain, as_rows, body_around, box_support
from dpsample.numerics.norms import norm
from dpsample.numerics.vectors import copy_into

EPSILON = 2.0**-52
# Relative sizes below which a violation, and the part of a row outside the span of the
# active rows, are taken for rounding.
NEGLIGIBLE = 1e-13
INDEPENDENT = 1e-10


@kernel(counts_references=False)
def largest_excess(body: Body, theta: Array, direction: Array, t: float) -> float:
    """Return ``max_i <a_i, theta + t direction> - b_i``."""
    worst = -np.inf
    for i in range(body.num_rows, len(body.bounds)):
        total = 0.0
        for j in range(len(theta)):
            total += body.matrix[i, j] * (theta[j] + t * direction[j])
        excess = total - body.bounds[i]
        if excess != excess:
            return np.nan
        worst = max(worst, excess)
    return worst


@kernel(counts_references=False)
def polytope_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if every inequality holds, and every equality up to the tolerance."""
    inside = largest_excess(body, theta, theta, 0.0) <= 0.0
    for i in range(body.num_rows):
        rest = inner(body.matrix[i], theta) - body.bounds[i]
        inside = inside and abs(rest) <= body.tolerance
    out[0] = 1.0 if inside else 0.0


@kernel(counts_references=False)
def polytope_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Intersect the intervals of the inequalities."""
    first, last = -np.inf, np.inf
    size = math.sqrt(inner(direction, direction))
    for i in range(body.num_rows):
        drift = inner(body.matrix[i], direction)
        if abs(drift) > ZERO_DRIFT * size:
            first, last = 0.0, 0.0
        elif drift != 0.0:
            reach = 0.5 * body.tolerance / abs(drift)
            rest = (body.bounds[i] - inner(body.matrix[i], theta)) / drift
            first, last = max(first, rest - reach), min(last, rest + reach)
    for i in range(body.num_rows, len(body.bounds)):
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


@kernel(counts_references=False)
def settle_in_polytope(body: Body, theta: Array, direction: Array, t: float) -> float:
    """Move t towards 0 until its point passes `polytope_contains`."""
    inside = t
    pull = EPSILON
    while np.isfinite(inside) and largest_excess(body, theta, direction, inside) > 0.0:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        pull *= 2.0
    return inside


@kernel(counts_references=False)
def inner(x: Array, y: Array) -> float:
    """Return the inner product."""
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@kernel(counts_references=False)
def subtract(out: Array, factor: float, x: Array) -> None:
    """Replace ``out`` by ``out - factor x``."""
    for j in range(len(x)):
        out[j] -= factor * x[j]


@kernel(counts_references=False)
def most_violated(body: Body, point: Array, sizes: Array) -> int:
    """Return the row of finite size whose face is farthest behind the point, or -1."""
    row, worst = -1, 0.0
    for i in range(body.num_rows, len(sizes)):
        excess = -body.bounds[i]
        scale = abs(body.bounds[i])
        for j in range(len(point)):
            term = body.matrix[i, j] * point[j]
            excess += term
            scale += abs(term)
        is_worst = excess > worst * sizes[i] and sizes[i] < np.inf
        if is_worst and excess > NEGLIGIBLE * scale:
            row = i
            worst = excess / sizes[i]
    return row


@kernel
def split_row(
    body: Body,
    active: Ints,
    num_known: int,
    count: int,
    row: int,
    basis: Array,
    factor: Array,
    weights: Array,
) -> Array:
    """Split ``a_row = weights * active rows + rest``; return the orthogonal rest.

    Gram-Schmidt, twice per row for orthogonality to working precision; the triangular
    factor has the active rows as columns. Of the first ``known`` rows basis and factor
    are as an earlier call left them.
    """
    dim = body.matrix.shape[1]
    rest = np.zeros(dim)
    for k in range(num_known, count + 1):
        source = active[k] if k < count else row
        for j in range(dim):
            rest[j] = body.matrix[source, j]
        factor[:k, k] = 0.0
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


@kernel(counts_references=False)
def drop_blocking(
    active: Ints, multipliers: Array, count: int, weights: Array, step: float
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
def find_active(
    body: Body, theta: Array, out: Array, active: Ints, multipliers: Array
) -> tuple[bool, int]:
    """Project by the dual active-set method; False if the point may be improved.

    And the number of faces that hold it; they have room for dim + 1 or all of them.

    Goldfarb and Idnani (1983) with the identity as Hessian: faces are added one by one,
    the farthest violated one first, and dropped when their multiplier reaches zero. A
    face that contradicts the active ones does so by rounding errors, for the body has
    points: it is left out.
    """
    num_rows, dim = body.matrix.shape
    sizes = np.empty(num_rows)
    for i in range(num_rows):
        sizes[i] = math.sqrt(inner(body.matrix[i], body.matrix[i]))
    max_faces = len(active)
    weights = np.zeros(max_faces)
    basis, factor = np.empty((max_faces, dim)), np.empty((max_faces, max_faces))
    count = num_known = 0
    is_clean = True
    copy_into(theta, out)
    for i in range(body.num_rows):
        rest_of_row = inner(body.matrix[i], theta) - body.bounds[i]
        subtract(out, rest_of_row, body.matrix[i])
    for _ in range(100 * (num_rows + 1)):
        row = most_violated(body, out, sizes)
        if row < 0:
            return is_clean, count
        multiplier, blocking = 0.0, 0
        while blocking >= 0:
            rest = split_row(
                body, active, num_known, count, row, basis, factor, weights
            )
            num_known = count
            square = inner(rest, rest)
            step = np.inf
            if square > (INDEPENDENT * sizes[row]) ** 2:
                step = (inner(body.matrix[row], out) - body.bounds[row]) / square
            else:
                rest[:] = 0.0
            step, blocking = drop_blocking(active, multipliers, count, weights, step)
            if not step < np.inf:
                sizes[row] = np.inf  # never violated
                is_clean = False
                break
            subtract(out, step, rest)
            multiplier += step
            if blocking >= 0:
                count, num_known = count - 1, blocking
        if sizes[row] < np.inf:
            active[count] = row
            multipliers[count] = multiplier
            count += 1
    return False, count


@kernel
def active_set(body: Body, theta: Array, out: Array) -> bool:
    """Project as `find_active`."""
    max_faces = min(body.matrix.shape) + 1
    active, multipliers = np.zeros(max_faces, dtype=np.int64), np.zeros(max_faces)
    return find_active(body, theta, out, active, multipliers)[0]


@kernel
def project_again(body: Body, out: Array) -> None:
    """Project what a projection has reached that left faces out, at most three times.

    From a far point the faces of a thin body are one: the active ones are missed by
    rounding errors of the distance, and the opposite ones seem to contradict them. The
    next projection is a short one.
    """
    for _ in range(3):
        if active_set(body, out.copy(), out):
            return


@kernel(counts_references=False)
def polytope_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point, pulled towards the center over rounding errors."""
    if not math.isfinite(inner(theta, theta)):
        return
    if not active_set(body, theta, out):
        project_again(body, out)
    for i in range(body.num_rows):  # of a far point they have lost digits
        missed = inner(body.matrix[i], out) - body.bounds[i]
        if abs(missed) > 0.5 * body.tolerance:
            subtract(out, missed, body.matrix[i])
    pull = EPSILON
    while largest_excess(body, out, out, 0.0) > 0.0:
        for j in range(len(out)):
            out[j] = body.center[j] + (1.0 - pull) * (out[j] - body.center[j])
        pull = min(2.0 * pull, 1.0)


# Relative size of singular values, and of rows, that count as 0.
DEPENDENT = 1e-10
# How far equalities may be missed, in units of the center's largest coordinate or 1.
TOLERANCE = 1e-9
# Drift of a direction off the equalities, relative to its length, that is rounding.
ZERO_DRIFT = 1e-12
# Sizes of rows, as powers of ten: squares and products of squares exist.
LARGEST_POWER = 60
FARTHEST_POWER = 200  # of sides
# Equalities whose null space is found by a QR, the share of entries up to which rows
# are multiplied as sparse ones, and how many a message lists.
MANY = 50
SPARSE = 0.02
# Share of entries up to which linear programs keep the given coordinates.
FAR_SPARSER = 0.1
MAX_LISTED = 40
# One linear program per direction is affordable up to here.
MAX_PROGRAMS = 200


def _check_rows(name: str, rows: Array) -> None:
    """Refuse rows of zeros, and those whose squares are no numbers."""
    sizes = np.abs(rows).max(axis=1)
    zero = np.flatnonzero(sizes == 0.0)
    if len(zero):
        check.fail(f"every row of {name}", "nonzero", f"zeros in row {zero[0]}")
    odd = np.flatnonzero(np.abs(np.log10(sizes)) > LARGEST_POWER)
    if len(odd):
        condition = f"of size 1e-{LARGEST_POWER} to 1e{LARGEST_POWER}"
        remedy = "Multiply the row and its bound by one number."
        got = f"a largest entry of {sizes[odd[0]]:.3g} in row {odd[0]}"
        check.fail(f"every row of {name}", condition, got, remedy)


def _without_zeros(rows: Array, values: Array) -> tuple[Array, Array]:
    """Equalities 0 = 0 left out: networks hold substances that no reaction uses."""
    zero = ~rows.any(axis=1)
    wrong = np.flatnonzero(zero & (values != 0.0))
    if len(wrong):
        got = f"zeros in row {wrong[0]}, which are never {values[wrong[0]]:.3g}"
        remedy = "No point satisfies all equalities."
        check.fail("A_eq theta = b_eq", "consistent", got, remedy)
    return rows[~zero], values[~zero]


def _listed(rows: Ints) -> str:
    """Numbers of rows in words, of which a line of text holds some."""
    if len(rows) > MAX_LISTED:
        first = ", ".join(str(i) for i in rows[:MAX_LISTED])
        return f"Rows {first} and {len(rows) - MAX_LISTED} more"
    *first_rows, last = [str(i) for i in rows]
    if not first_rows:
        return f"Row {last}"
    return f"Rows {', '.join(first_rows)} and {last}"


def _null_space(unit: Array, level: Array) -> tuple[Array, Array, Array]:
    """Orthonormal rows of equalities, their shortest point, and their null space."""
    count = len(unit)
    if count < MANY:
        across: Array = np.linalg.svd(unit)[2]
        point: Array = np.asarray(np.linalg.lstsq(unit, level, rcond=None)[0])
        return across[:count].copy(), point, np.ascontiguousarray(across[count:].T)
    from scipy.linalg import qr, solve_triangular

    # Of independent rows a QR gives the same spaces in a tenth of the time.
    factors: Any = qr(unit.T)
    whole, triangle = factors
    along, basis = whole[:, :count], whole[:, count:]
    point = np.asarray(along @ solve_triangular(triangle[:count], level, trans="T"))
    return along.T.copy(), point, np.ascontiguousarray(basis)


def _product(rows: Array, basis: Array) -> Array:
    """Product of rows, mostly of zeros or not, and a matrix."""
    if np.count_nonzero(rows) > SPARSE * rows.size:
        return np.asarray(rows @ basis)
    from scipy.sparse import csr_array

    return np.asarray(csr_array(rows) @ basis)


def _refuse(obstacle: bounds.Obstacle, rows: Ints) -> NoReturn:
    """Refuse the inequalities that leave no interior, by their numbers."""
    listed = _listed(rows)
    got = "inequalities that no point satisfies strictly"
    solved = "give it as A_eq theta = b_eq, or call Polytope.reduced."
    if obstacle.is_contradiction:
        remedy = f"{listed} of A contradict one another. Correct the inequalities."
    elif obstacle.sign == 0:
        remedy = f"{listed} of A force an equality: {solved}"
    elif obstacle.is_rounding:
        got = (
            "inequalities that doubles cannot tell from equalities: the rounding error "
            f"of a distance there is {obstacle.resolution:.2g}"
        )
        remedy = f"{listed} of A force an equality, up to rounding errors: {solved}"
    else:
        got = (
            "inequalities of which the best point that linear programs found misses "
            f"some by {obstacle.missed:.2g}"
        )
        remedy = f"{listed} of A are suspect. Correct or scale the inequalities."
    check.fail("A theta <= b", "a set with interior points", got, remedy)


def _independent(rows: Array, values: Array, error: float) -> Ints:
    """Rows of equalities that imply all others; refuse those that contradict them.

    ``error`` is what inequalities that were taken for equalities may differ by.
    """
    from scipy.linalg import qr, solve_triangular

    if len(rows) == 0:
        return np.arange(0)
    sizes = np.linalg.norm(rows, axis=1)
    unit, level = rows / sizes[:, None], values / sizes
    across, triangle, order = qr(unit.T, mode="economic", pivoting=True)
    sides = np.abs(np.diag(triangle))
    rank = int((sides > DEPENDENT * sides[0]).sum())
    first, independent = order[:rank], np.sort(order[:rank])
    heights = solve_triangular(triangle[:rank, :rank], level[first], trans="T")
    point = across[:, :rank] @ heights
    missed = float(np.abs(unit @ point - level).max())
    if missed > max(TOLERANCE * (1.0 + float(np.abs(level).max())), error):
        remedy = "No point satisfies all equalities."
        check.fail("A_eq theta = b_eq", "consistent", f"{missed:.3g}", remedy)
    if len(independent) == rows.shape[1]:
        got = f"the single point {point.tolist()}"
        check.fail("A theta <= b", "a set of dimension >= 1", got)
    return independent


@dataclass(frozen=True, eq=False)
class Polytope(Domain):
    r"""Polytope ``A theta <= b``, ``A_eq theta = b_eq``, with points inside.

    Equalities are solved: theta = c + N v, N an orthonormal basis of the null space of
    A_eq. The rows A N and sides b - A c give the same set in the coordinates v, of full
    dimension (`free`), in which samplers draw.

    Parameters
    ----------
    A : array_like, shape (m, d)
        One nonzero row per inequality.
    b : array_like, shape (m,)
        Right-hand sides.
    A_eq : array_like, shape (l, d), optional
        Independent rows of equalities, l < d. They hold up to 1e-9.
    b_eq : array_like, shape (l,), optional
        Their right-hand sides.

    Raises
    ------
    ValueError
        If shapes disagree, a row is zero or not of size 1e-60 to 1e60, equalities
        depend on one another, or no point on them satisfies all inequalities strictly
        (a linear program decides).

    Notes
    -----
    The search for a point inside takes a linear program, and several of a thin body:
    milliseconds at tens of coordinates, up to minutes at thousands of inequalities in
    hundreds of coordinates. Ctrl-C is heard between programs.

    Examples
    --------
    >>> triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    >>> triangle.is_bounded, triangle.contains([0.2, 0.2])
    (True, True)
    >>> triangle.project([1.0, 1.0]).round(12).tolist()
    [0.5, 0.5]
    >>> shares = Polytope([[-1.0, 0.0], [0.0, -1.0]], [0.0, 0.0], [[1.0, 1.0]], [1.0])
    >>> shares.affine_dim(2), shares.project([2.0, 1.0]).round(12).tolist()
    (1, [1.0, 0.0])
    """

    name: ClassVar[str] = "polytope"
    contains_piece: ClassVar[Piece] = staticmethod(polytope_contains)
    project_piece: ClassVar[Piece] = staticmethod(polytope_project)
    chord_piece: ClassVar[Piece] = staticmethod(polytope_chord)
    width_draws: ClassVar[int] = 1000

    A: Any
    b: Any
    A_eq: Any = None
    b_eq: Any = None

    def __post_init__(self) -> None:
        """Check the inequalities and find an interior point."""
        rows = check.array("A", self.A, shape=(None, None))
        limits = check.array("b", self.b, shape=(len(rows),))
        if rows.size == 0:
            check.fail("A", "of shape (>= 1, >= 1)", f"shape {rows.shape}")
        _check_rows("A", rows)
        with np.errstate(over="ignore"):
            distances = np.abs(limits) / np.abs(rows).max(axis=1)
        if distances.max() > 10.0**FARTHEST_POWER:
            condition = f"within 1e{FARTHEST_POWER} of 0"
            got = f"{distances.max():.3g} in row {int(distances.argmax())}"
            check.fail("every side of A theta <= b", condition, got)
        object.__setattr__(self, "A", freeze(rows))
        object.__setattr__(self, "b", freeze(limits))
        self._check_equalities(rows.shape[1])
        _ = self._chebyshev  # refuses what leaves no point inside

    def _check_equalities(self, dim: int) -> None:
        if self.A_eq is None or self.b_eq is None:
            if self.A_eq is not None or self.b_eq is not None:
                alone = "A_eq" if self.b_eq is None else "b_eq"
                check.fail("A_eq and b_eq", "given together", f"{alone} alone")
            return
        rows = check.array("A_eq", self.A_eq, shape=(None, dim))
        values = check.array("b_eq", self.b_eq, shape=(len(rows),))
        if not 0 < len(rows) < dim:
            condition = f"of shape (l, {dim}) with 0 < l < {dim}"
            remedy = "No direction would be left to draw in." if len(rows) else ""
            check.fail("A_eq", condition, f"shape {rows.shape}", remedy)
        _check_rows("A_eq", rows)
        sizes = np.linalg.norm(rows, axis=1)
        unit, level = rows / sizes[:, None], values / sizes
        singular_values = np.linalg.svd(unit, compute_uv=False)
        if singular_values[-1] <= DEPENDENT * singular_values[0]:
            best = np.linalg.lstsq(unit, level, rcond=DEPENDENT)[0]
            missed = np.abs(unit @ best - level).max()
            scale = 1.0 + float(np.abs(level).max())
            if missed > TOLERANCE * scale:
                remedy = "No point satisfies all equalities."
                check.fail("A_eq theta = b_eq", "consistent", f"{missed:.3g}", remedy)
            rank = int((singular_values > DEPENDENT * singular_values[0]).sum())
            got = f"rank {rank} of {len(rows)} rows"
            remedy = "Leave out the equalities that the others imply."
            check.fail("A_eq", "of independent rows", got, remedy)
        object.__setattr__(self, "A_eq", freeze(rows))
        object.__setattr__(self, "b_eq", freeze(values))

    @classmethod
    def reduced(
        cls,
        A: ArrayLike,
        b: ArrayLike,
        A_eq: ArrayLike | None = None,
        b_eq: ArrayLike | None = None,
    ) -> Polytope:
        """Polytope whose implied equalities are found and solved (facial reduction).

        Inequalities that hold with equality only, up to rounding errors, become rows of
        ``A_eq``, of which those that others imply are left out.

        Parameters
        ----------
        A, b, A_eq, b_eq : array_like
            As of `Polytope`; rows of equalities may depend on one another or be 0 = 0.

        Returns
        -------
        Polytope
            The same set, with points inside on its equalities.

        Raises
        ------
        ValueError
            If the set is empty or a single point, or an argument is not valid.

        Guarantee
        ---------
        Each round finds all inequalities that no point near the best one satisfies
        strictly, by one linear program, and the result passes the checks of `Polytope`.

        Examples
        --------
        >>> square = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
        >>> flat = Polytope.reduced(square, [1.0, 1.0, 2.0, -2.0])
        >>> flat.affine_dim(2), flat.A_eq.tolist(), flat.b_eq.tolist()
        (1, [[0.0, 1.0]], [2.0])
        """
        rows = check.array("A", A, shape=(None, None))
        limits = check.array("b", b, shape=(len(rows),))
        dim, rest = rows.shape[1], np.arange(len(rows))
        equal, level = np.zeros((0, dim)), np.zeros(0)
        if (A_eq is None) != (b_eq is None):
            alone = "A_eq" if b_eq is None else "b_eq"
            check.fail("A_eq and b_eq", "given together", f"{alone} alone")
        if A_eq is not None:
            equal = check.array("A_eq", A_eq, shape=(None, dim))
            level = check.array("b_eq", b_eq, shape=(len(equal),))
            equal, level = _without_zeros(equal, level)
        for name, matrix in (("A", rows), ("A_eq", equal)):
            _check_rows(name, matrix)
        error = 0.0
        while True:
            independent = _independent(equal, level, error)
            body = object.__new__(cls)
            vars(body).update(A=rows[rest], b=limits[rest], A_eq=None, b_eq=None)
            if len(independent):
                vars(body).update(A_eq=equal[independent], b_eq=level[independent])
            center, numbers = body._find_center()
            if not isinstance(center, bounds.Obstacle):
                vars(body)["_center_found"] = center  # not searched for again
                body.__init__(body.A, body.b, body.A_eq, body.b_eq)  # type: ignore[misc]
                return body
            forced = rest[numbers[center.rows]]
            if not center.is_rounding:
                _refuse(center, forced)
            # Both sides of a strip that doubles cannot tell from a plane.
            error = max(error, 2.0 * bounds.ROUNDINGS * center.resolution)
            equal = np.vstack([equal, rows[forced]])
            level = np.append(level, limits[forced])
            rest = np.setdiff1d(rest, forced)

    def to_dict(self) -> Json:
        """Return the fields and the name; no equalities are left out."""
        return {k: v for k, v in super().to_dict().items() if v is not None}

    @cached_property
    def _solved(self) -> tuple[Array, Array, Array]:
        """Orthonormal rows of the equalities, their shortest point c, and N."""
        sizes = np.linalg.norm(self.A_eq, axis=1)
        unit = self.A_eq / sizes[:, None]
        return _null_space(unit, self.b_eq / sizes)

    @property
    def free(self) -> Polytope:
        """The same set in coordinates v, theta = c + N v; itself without equalities."""
        return self if self.A_eq is None else self._free  # no circle through itself

    @cached_property
    def _free(self) -> Polytope:
        rows, limits, *_ = self._free_rows
        free = object.__new__(Polytope)
        vars(free).update(A=freeze(rows), b=freeze(limits), A_eq=None, b_eq=None)
        vars(free)["_chebyshev"] = self._center_found
        return free

    def _find_center(self) -> tuple[Array | bounds.Obstacle, Ints]:
        """Center of the free coordinates or an obstacle, and the rows it numbers."""
        if self.A_eq is None:
            return bounds.find_center(self.A, self.b), np.arange(len(self.b))
        rows, limits, noise, numbers, _ = self._free_rows
        chart = self._given_chart
        center = bounds.find_center(rows, limits, noise, chart)
        if chart is not None and isinstance(center, bounds.Obstacle) and center.is_open:
            # The chart may be ill-conditioned, for equalities of many scales.
            center = bounds.find_center(rows, limits, noise)
        return center, numbers

    @property
    def _given_chart(self) -> bounds.Chart | None:
        """Chart of theta's coordinates, if rows in them are far sparser than in v."""
        rows, _, _, numbers, units = self._free_rows
        count = np.count_nonzero(self.A) + np.count_nonzero(self.A_eq)
        if rows.shape[1] < bounds.MANY or count > FAR_SPARSER * rows.size:
            return None
        from scipy.sparse import csr_array

        factors = (units / np.linalg.norm(rows, axis=1))[:, None]
        sizes = np.linalg.norm(self.A_eq, axis=1)[:, None]
        return bounds.Chart(
            csr_array(self.A[numbers] * factors),
            np.ascontiguousarray(self._solved[2].T),
            csr_array(self.A_eq / sizes),
        )

    @cached_property
    def _center_found(self) -> Array:
        center, numbers = self._find_center()
        if isinstance(center, bounds.Obstacle):
            _refuse(center, numbers[center.rows])
        return center

    @cached_property
    def _free_rows(self) -> tuple[Array, Array, Array, Ints, Array]:
        """Inequalities in v, rounding errors of their bounds, numbers, and factors."""
        _, point, basis = self._solved
        rows, limits = _product(self.A, basis), self.b - self.A @ point
        sizes = np.linalg.norm(self.A, axis=1)
        is_idle = np.linalg.norm(rows, axis=1) <= DEPENDENT * sizes
        used = np.flatnonzero(~is_idle)
        reach = min(1.0, float(np.abs(limits[used] / sizes[used]).max(initial=0.0)))
        scale = TOLERANCE * (reach + np.abs(point).max()) * sizes
        for i in np.flatnonzero(is_idle & (limits < -scale)):
            got = f"row {i} of A, which no point of A_eq theta = b_eq satisfies"
            check.fail("A theta <= b", "feasible on the equalities", got)
        if is_idle.all():
            got = "rows that the equalities imply"
            check.fail("A theta <= b", "an inequality on A_eq theta = b_eq", got)
        terms = np.abs(self.A) @ np.abs(point) + np.abs(self.b)
        # A product with 0 does not round: bounds of single fluxes keep their digits.
        noise = EPSILON * (np.count_nonzero(self.A, axis=1) + 1) * terms
        # Steps of a row's size that keep all digits.
        unit = np.ldexp(1.0, -np.frexp(np.abs(rows[used]).max(axis=1))[1])
        rows = rows[used] * unit[:, None]
        return rows, limits[used] * unit, noise[used] * unit, used, unit

    @cached_property
    def _chebyshev(self) -> Array:
        if self.A_eq is None:
            return self._center_found
        _, point, basis = self._solved
        return np.asarray(point + basis @ self.free.default_center(basis.shape[1]))

    @cached_property
    def _reach(self) -> float:
        """Distance to the farthest facet from the center, or 1 if that is less."""
        free = self.free
        slack = free.b - free.A @ free.default_center(free.A.shape[1])
        return min(1.0, float((slack / np.linalg.norm(free.A, axis=1)).max()))

    @property
    def box(self) -> tuple[Array, Array] | None:
        """Sides, if every row bounds one coordinate and all have two; else None."""
        sides = self._sides
        return None if sides is None else (sides[0].copy(), sides[1].copy())

    @cached_property
    def _sides(self) -> tuple[Array, Array] | None:
        is_used = self.A != 0.0
        if self.A_eq is not None or (is_used.sum(axis=1) != 1).any():
            return None
        columns = is_used.argmax(axis=1)
        values = self.A[np.arange(len(self.A)), columns]
        lower = np.full(self.A.shape[1], -np.inf)
        upper, limits = -lower, self.b / values
        np.minimum.at(upper, columns[values > 0.0], limits[values > 0.0])
        np.maximum.at(lower, columns[values < 0.0], limits[values < 0.0])
        return (lower, upper) if np.isfinite([lower, upper]).all() else None

    @cached_property
    def _box(self) -> tuple[Array, Array]:
        if self.box is not None:
            return self.box
        if self.A_eq is not None:
            _, point, basis = self._solved
            return point - self.free.support(-basis), point + self.free.support(basis)
        return bounds.outer_box(self.A, self.b, self.default_center(self.A.shape[1]))

    @cached_property
    def is_bounded(self) -> bool:
        """Whether the rows positively span the space (a linear program decides)."""
        chart = None if self.A_eq is None else self._given_chart
        return bounds.is_bounded(self.free.A, chart)

    def affine_dim(self, dim: int) -> int:
        """Return ``dim`` less the number of equalities."""
        self.check(dim)
        return dim if self.A_eq is None else dim - len(self.A_eq)

    def hull(self, dim: int) -> tuple[Array, Array]:
        """Return c and N."""
        self.check(dim)
        if self.A_eq is None:
            return super().hull(dim)
        _, point, basis = self._solved
        return point.copy(), basis.copy()

    def check(self, dim: int) -> None:
        """Raise unless the rows have ``dim`` coordinates."""
        super().check(dim)
        if self.A.shape[1] != dim:
            check.fail("A", f"of shape (any, {dim})", f"shape {self.A.shape}")

    def default_center(self, dim: int) -> Array:
        """Center of a largest inscribed ball (of one of them, if there are many)."""
        self.check(dim)
        return np.array(self._chebyshev)

    def body(self, dim: int) -> Body:
        """Return the parameters of the pieces, in fresh arrays."""
        center = self.default_center(dim)
        matrix, limits = np.array(self.A), np.array(self.b)
        if self.A_eq is None:
            lower, upper = self.box or (np.full(dim, -np.inf), np.full(dim, np.inf))
            sides = {"lower": lower.copy(), "upper": upper.copy()}
            return body_around(
                center, matrix=matrix, bounds=limits, num_rows=0, **sides
            )
        across, point, basis = self._solved
        # N^T c = 0, so that the projected rows have the sides of the free polytope.
        return body_around(
            center,
            matrix=np.vstack([across, self.free.A @ basis.T]),
            bounds=np.concatenate([across @ point, self.free.b]),
            num_rows=len(across),
            tolerance=TOLERANCE * (self._reach + float(np.abs(center).max())),
        )

    def support(self, directions: Directions) -> Values:
        """Maxima by linear programs, rounded up through their dual solutions.

        Exact for a box. For more than 200 directions, upper bounds from the bounding
        box, itself found by 2 d linear programs, which also answers along axes.
        """
        rows = as_rows(directions, self.A.shape[1])
        if self.A_eq is not None:
            _, point, basis = self._solved
            along = np.asarray(rows @ basis)
            return np.asarray(np.asarray(rows @ point) + self.free.support(along))[()]
        count = int(np.prod(rows.shape[:-1], dtype=np.int64))
        if count > MAX_PROGRAMS or self.box is not None:
            return box_support(rows, *self._box)
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if (np.count_nonzero(dense, axis=-1) <= 1).all():  # programs solved once
            return box_support(dense, *self._box)
        center = self.default_center(self.A.shape[1])
        values = [
            bounds.support_value(self.A, self.b, center, self._box, v)
            for v in dense.reshape(count, -1)
        ]
        return np.array(values).reshape(dense.shape[:-1])[()]

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Upper bound: the farthest corner of the bounding box."""
        middle = self._middle(p, center, dim)
        lower, upper = self._box
        corner = float(norm(np.maximum(upper - middle, middle - lower), p))
        if self.A_eq is None or p != 2.0:
            return corner
        across, point, basis = self._solved  # Pythagoras, from the hull
        along = self.free.max_norm(2.0, basis.T @ (middle - point), basis.shape[1])
        off = float(np.linalg.norm(across @ (middle - point)))
        return min(corner, math.hypot(along, off))

    def _gauge_rows(self, rows: Array) -> Array:
        """Exact: the largest <a, theta>/b over the inequalities that are violated."""
        if self.A_eq is not None:
            return super()._gauge_rows(rows)
        heights = rows @ self.A.T
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(heights > 0.0, heights / self.b, 0.0)
        return np.asarray(shares.max(axis=1))
