"""Polytopes given by inequalities and equalities, and their compiled functions.

The compiled functions read a `Body`: its first ``num_rows`` rows are the equalities
<a_i, theta> = b_i, made orthonormal, and the others are the inequalities <a_i, theta>
<= b_i, each of which bounds one facet. Rows of inequalities are projected onto the null
space of the equalities, so that steps along them keep the equalities.

Inequalities hold exactly, as double arithmetic computes them. So projections and ends
of chords are moved inside by a few rounding errors. Equalities hold up to a tolerance.

A polytope with equalities is also described in free coordinates v, theta = c + N v,
where c is the shortest point of the equalities and N an orthonormal basis of their null
space. There it has full dimension (`Polytope.free`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import SPACING, Array, Ints, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import CSR, Directions, Rows, as_csr, is_sparse
from dpsample.core.spec import Json, freeze
from dpsample.domains import polytope_bounds as bounds
from dpsample.domains.domain import (
    Body,
    Coordinates,
    Domain,
    as_rows,
    body_around,
    box_support,
)
from dpsample.domains.exits import polytope_exit
from dpsample.domains.large_polytope import (
    LargePolytope,
    Names,
    Sources,
    dense_rows,
)
from dpsample.domains.linear_programs import System
from dpsample.numerics.norms import norm
from dpsample.numerics.vectors import copy_into

# Singular values, and parts of rows outside a span, of this relative size count as 0.
DEPENDENT = 1e-10
# Tolerance of equalities, in units of the center's largest coordinate or of 1.
TOLERANCE = 1e-9
# From this number of equalities on, a QR decomposition finds their null space.
MANY = 50
# From this number of coordinates on, `LargePolytope` has the geometry.
LARGE = 50


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def largest_excess(body: Body, theta: Array, direction: Array, t: float) -> float:
    """Return ``max_i <a_i, theta + t direction> - b_i`` over the inequalities."""
    worst = -np.inf
    for i in range(body.num_rows, len(body.bounds)):
        total = 0.0
        for j in range(len(theta)):
            total += body.matrix[i, j] * (theta[j] + t * direction[j])
        excess = total - body.bounds[i]
        # NaN is the only number that differs from itself.
        if excess != excess:
            return np.nan
        worst = max(worst, excess)
    return worst


# The sums may be taken in any order, so that the loop is vectorized.
@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def sum_quickly(matrix: Array, i: int, theta: Array) -> tuple[float, float]:
    """Return the sum of the products of a row and a point, and of their sizes."""
    total, size = 0.0, 0.0
    for j in range(len(theta)):
        product = matrix[i, j] * theta[j]
        total += product
        size += abs(product)
    return total, size


@kernel(counts_references=False)
def holds(body: Body, i: int, theta: Array) -> bool:
    """Return whether ``<a_i, theta> <= b_i`` for the sum from left to right.

    A vectorized sum takes a tenth of the time. It decides unless the difference is as
    small as the rounding errors of both sums, each at most n 2^-53 times the sum of the
    sizes, nearly.
    """
    total, size = sum_quickly(body.matrix, i, theta)
    # Products below the smallest normal number have errors that are below 1e-300.
    error = 2.0**-50 * len(theta) * size + 1e-300
    if total + error <= body.bounds[i]:
        return True
    return bool(inner(body.matrix[i], theta) <= body.bounds[i])


@kernel(counts_references=False)
def polytope_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if every inequality holds, and every equality up to the tolerance."""
    inside = True
    for i in range(body.num_rows, len(body.bounds)):
        inside = inside and holds(body, i, theta)
    for i in range(body.num_rows):
        rest = inner(body.matrix[i], theta) - body.bounds[i]
        inside = inside and abs(rest) <= body.tolerance
    out[0] = 1.0 if inside else 0.0


@kernel(counts_references=False)
def polytope_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Intersect the intervals of the inequalities."""
    first, last = -np.inf, np.inf
    # The length of the direction, to which rounding errors of the drifts are relative.
    size = math.sqrt(inner(direction, direction))
    for i in range(body.num_rows):
        drift = inner(body.matrix[i], direction)
        # A smaller drift is a rounding error of a direction along the equality.
        if abs(drift) > 1e-12 * size:
            first, last = 0.0, 0.0
        elif drift != 0.0:
            # A long chord could leave the equality by its rounding errors. Half of the
            # tolerance remains for the errors of the point itself.
            reach = 0.5 * body.tolerance / abs(drift)
            rest = (body.bounds[i] - inner(body.matrix[i], theta)) / drift
            first, last = max(first, rest - reach), min(last, rest + reach)
    for i in range(body.num_rows, len(body.bounds)):
        # The slack b_i - <a_i, theta>, and how fast it shrinks along the direction.
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
    out[0] = pull_end_inside_polytope(body, theta, direction, min(first, 0.0))
    out[1] = pull_end_inside_polytope(body, theta, direction, max(last, 0.0))


@kernel(counts_references=False)
def pull_end_inside_polytope(
    body: Body, theta: Array, direction: Array, t: float
) -> float:
    """Return a t towards 0 whose point satisfies all inequalities."""
    inside = t
    pull = SPACING
    while np.isfinite(inside) and largest_excess(body, theta, direction, inside) > 0.0:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        # The pull doubles, so that some fifty tests reach 0 from any end.
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
def find_most_violated(body: Body, point: Array, sizes: Array) -> int:
    """Return the row whose facet is farthest behind the point, or -1 if all hold.

    ``sizes`` are the lengths of the rows. A row of infinite size is skipped.
    """
    row, worst = -1, 0.0
    for i in range(body.num_rows, len(sizes)):
        excess = -body.bounds[i]
        scale = abs(body.bounds[i])
        for j in range(len(point)):
            term = body.matrix[i, j] * point[j]
            excess += term
            scale += abs(term)
        # Violations are compared as distances, excess over the length of the row.
        is_worst = excess > worst * sizes[i] and sizes[i] < np.inf
        # A violation that is small relative to the terms is a rounding error.
        if is_worst and excess > 1e-13 * scale:
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
    """Split ``a_row = weights * active rows + rest`` and return the orthogonal rest.

    The first ``count`` entries of ``active`` are the active rows. ``basis`` becomes
    their orthonormal basis, and the upper triangle of ``factor`` the coefficients:
    active row k is the sum of factor[m, k] basis[m]. Both are kept from an earlier call
    for the first ``num_known`` rows. The rows are made orthogonal twice (Gram-Schmidt),
    because one pass is not orthogonal to working precision.
    """
    dim = body.matrix.shape[1]
    rest = np.zeros(dim)
    for k in range(num_known, count + 1):
        source = active[k] if k < count else row
        for j in range(dim):
            rest[j] = body.matrix[source, j]
        factor[:k, k] = 0.0
        for _ in range(2):
            # A row's part in the span of the earlier ones becomes its coefficients.
            for m in range(k):
                part = inner(basis[m], rest)
                factor[m, k] += part
                subtract(rest, part, basis[m])
        if k < count:
            factor[k, k] = math.sqrt(inner(rest, rest))
            for j in range(dim):
                basis[k, j] = rest[j] / factor[k, k]
    # Column ``count`` has the coefficients of the new row. Solving the triangular
    # system gives its weights on the active rows themselves.
    # Back substitution.
    for k in range(count - 1, -1, -1):
        weights[k] = factor[k, count]
        for m in range(k + 1, count):
            weights[k] -= factor[k, m] * weights[m]
        weights[k] /= factor[k, k]
    return rest


@kernel(counts_references=False)
def shorten_step(
    active: Ints, multipliers: Array, count: int, weights: Array, step: float
) -> tuple[float, int]:
    """Shorten a step at which a multiplier would become negative.

    Multipliers decrease by their weights for each unit of the step. Returns the step
    and the index of the active row that is dropped, or -1 if none is.
    """
    blocking = -1
    for k in range(count):
        if weights[k] > 0.0 and multipliers[k] < step * weights[k]:
            step = multipliers[k] / weights[k]
            blocking = k
    # An infinite step means that nothing stops it. The caller skips the row then.
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
    """Project by the dual active-set method of Goldfarb and Idnani (1983).

    The projection is theta - sum_k multipliers[k] a_k over the active rows, which hold
    with equality. Rows are added one by one, the farthest violated one first, and
    dropped when their multiplier reaches zero. A row that contradicts the active ones
    does so by rounding errors, because the body has interior points, so it is skipped.

    Returns whether no row was skipped, and the number of active rows. The arrays
    ``active`` and ``multipliers`` must hold all rows, or dim + 1 of them.
    """
    num_rows, dim = body.matrix.shape
    sizes = np.empty(num_rows)
    for i in range(num_rows):
        sizes[i] = math.sqrt(inner(body.matrix[i], body.matrix[i]))
    # dim + 1 rows can be active, while one of them is about to be dropped.
    max_active = len(active)
    weights = np.zeros(max_active)
    basis, factor = np.empty((max_active, dim)), np.empty((max_active, max_active))
    count = num_known = 0
    is_clean = True
    copy_into(theta, out)
    # The rows of equalities are orthonormal, so each is met by one subtraction.
    for i in range(body.num_rows):
        rest_of_row = inner(body.matrix[i], theta) - body.bounds[i]
        subtract(out, rest_of_row, body.matrix[i])
    # A limit that exact arithmetic never reaches.
    for _ in range(100 * (num_rows + 1)):
        row = find_most_violated(body, out, sizes)
        if row < 0:
            return is_clean, count
        # Partial steps drop active rows until a whole step reaches the facet.
        multiplier, blocking = 0.0, 0
        while blocking >= 0:
            rest = split_row(
                body, active, num_known, count, row, basis, factor, weights
            )
            num_known = count
            square = inner(rest, rest)
            step = np.inf
            if square > (DEPENDENT * sizes[row]) ** 2:
                # This step along the rest reaches the facet of the row.
                step = (inner(body.matrix[row], out) - body.bounds[row]) / square
            else:
                # The row is in the span of the active ones. Only multipliers change,
                # until one of those rows is dropped.
                rest[:] = 0.0
            step, blocking = shorten_step(active, multipliers, count, weights, step)
            if not step < np.inf:
                sizes[row] = np.inf  # `find_most_violated` skips the row from now on
                is_clean = False
                break
            subtract(out, step, rest)
            multiplier += step
            # The basis stays valid up to the row that was dropped.
            if blocking >= 0:
                count, num_known = count - 1, blocking
        if sizes[row] < np.inf:
            active[count] = row
            multipliers[count] = multiplier
            count += 1
    return False, count


@kernel
def project_once(body: Body, theta: Array, out: Array) -> bool:
    """Project by `find_active`, and return whether no row was skipped."""
    max_active = min(body.matrix.shape) + 1
    active, multipliers = np.zeros(max_active, dtype=np.int64), np.zeros(max_active)
    return find_active(body, theta, out, active, multipliers)[0]


@kernel
def project_again(body: Body, out: Array) -> None:
    """Repeat a projection that skipped rows, at most three times.

    For a far point the opposite facets of a thin body are the same up to the rounding
    errors of the distance, so one of them seems to contradict the other. The point that
    the first projection reached is near, and its projection is accurate.
    """
    for _ in range(3):
        if project_once(body, out.copy(), out):
            return


@kernel(counts_references=False)
def polytope_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point, moved towards the center by a few rounding errors."""
    if not math.isfinite(inner(theta, theta)):
        return
    if not project_once(body, theta, out):
        project_again(body, out)
    # The equalities of a far point have lost digits. Rows of equalities are
    # orthonormal, so one correction of each suffices.
    for i in range(body.num_rows):
        missed = inner(body.matrix[i], out) - body.bounds[i]
        if abs(missed) > 0.5 * body.tolerance:
            subtract(out, missed, body.matrix[i])
    # Towards the center, by a share that doubles until all inequalities hold.
    pull = SPACING
    while largest_excess(body, out, out, 0.0) > 0.0:
        for j in range(len(out)):
            out[j] = body.center[j] + (1.0 - pull) * (out[j] - body.center[j])
        pull = min(2.0 * pull, 1.0)


class SolvedEqualities(NamedTuple):
    """Solutions theta = c + N v of equalities."""

    rows: Array  # (l, dim): an orthonormal basis of the equalities' rows
    point: Array  # (dim,): c, the shortest solution
    basis: Array  # (dim, dim - l): N, with orthonormal columns


class FreeRows(NamedTuple):
    """Inequalities <a, v> <= b in free coordinates, m of the rows of ``A``."""

    rows: Array  # (m, dim - l)
    bounds: Array  # (m,)
    noise: Array  # (m,): rounding errors of the bounds
    numbers: Ints  # (m,): positions in ``A``
    factors: Array  # (m,): powers of two by which rows and bounds are multiplied


class _ViolatedRowError(Exception):
    """No point of the equalities satisfies an inequality."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def _check_rows(name: str, rows: Rows) -> None:
    """Raise for rows of zeros, and for rows whose squares overflow or underflow."""
    sizes = _largest_entries(rows)
    zero = np.flatnonzero(sizes == 0.0)
    if len(zero):
        check.fail(f"every row of {name}", "nonzero", f"zeros in row {zero[0]}")
    # Products of squares of these sizes neither overflow nor underflow.
    odd = np.flatnonzero(np.abs(np.log10(sizes)) > 60)
    if len(odd):
        condition = "of size 1e-60 to 1e60"
        remedy = "Multiply the row and its bound by one number."
        got = f"a largest entry of {sizes[odd[0]]:.3g} in row {odd[0]}"
        check.fail(f"every row of {name}", condition, got, remedy)


def _without_zeros(rows: Array, values: Array) -> tuple[Array, Array]:
    """Leave out equalities 0 = 0, as of a substance that no reaction uses."""
    zero = ~rows.any(axis=1)
    wrong = np.flatnonzero(zero & (values != 0.0))
    if len(wrong):
        got = f"zeros in row {wrong[0]}, which are never {values[wrong[0]]:.3g}"
        remedy = "No point satisfies all equalities."
        check.fail("A_eq theta = b_eq", "consistent", got, remedy)
    return rows[~zero], values[~zero]


def _list_rows(names: list[str]) -> str:
    """Return a text such as "Rows 1 and 2 of A and upper bound 3", of at most 40 names.

    Names of bounds say that they are bounds.
    """
    rows = [name for name in names[:40] if " bound " not in name]
    others = [name for name in names[:40] if " bound " in name]
    if len(names) > 40:
        rest = f"{len(names) - 40} more"
        (others or rows).append(rest)
    parts = others
    if rows:
        *first, last = rows
        listed = f"{', '.join(first)} and {last}" if first else last
        parts = [f"{'Rows' if first else 'Row'} {listed} of A", *others]
    *first, last = parts
    text = f"{', '.join(first)} and {last}" if first else last
    return text[0].upper() + text[1:]


def _solve_equalities(unit: Array, level: Array) -> SolvedEqualities:
    """Solve the equalities ``unit theta = level`` with independent unit rows."""
    count = len(unit)
    if count < MANY:
        # The first right singular vectors span the rows, and the others their null
        # space.
        across: Array = np.linalg.svd(unit)[2]
        point: Array = np.asarray(np.linalg.lstsq(unit, level, rcond=None)[0])
        basis: Array = np.ascontiguousarray(across[count:].T)
        return SolvedEqualities(across[:count].copy(), point, basis)
    from scipy.linalg import qr, solve_triangular

    # The rows are independent, so a QR decomposition gives the same spaces, in a tenth
    # of the time of a singular value decomposition.
    factors: Any = qr(unit.T)
    whole, triangle = factors
    along = whole[:, :count]
    # With unit' = Q R, the shortest solution is Q R^-T level.
    point = np.asarray(along @ solve_triangular(triangle[:count], level, trans="T"))
    basis = np.ascontiguousarray(whole[:, count:])
    return SolvedEqualities(along.T.copy(), point, basis)


def _multiply(rows: Array, basis: Array) -> Array:
    """Return rows times a matrix, by a sparse product if the rows are sparse."""
    # A sparse product is faster if at most one entry in fifty is not 0.
    if np.count_nonzero(rows) > 0.02 * rows.size:
        return np.asarray(rows @ basis)
    from scipy.sparse import csr_array

    return np.asarray(csr_array(rows) @ basis)


def _raise_no_interior(obstacle: bounds.Obstacle, names: list[str]) -> NoReturn:
    """Raise for inequalities that leave no interior, with their names."""
    listed, got = _list_rows(names), "inequalities that no point satisfies strictly"
    if obstacle.is_contradiction:
        remedy = f"{listed} contradict one another. Correct the inequalities."
    else:
        got = (
            "inequalities of which the best point that linear programs found violates "
            f"some by {obstacle.missed:.2g}"
        )
        remedy = f"{listed} are suspect. Correct or scale the inequalities."
    check.fail("A theta <= b", "a set with interior points", got, remedy)


def _find_independent(rows: Array, values: Array, error: float) -> Ints:
    """Return rows of equalities that imply all others. Raise for a contradiction.

    ``error`` is the largest difference of inequalities that count as equalities.
    """
    from scipy.linalg import qr, solve_triangular

    if len(rows) == 0:
        return np.arange(0)
    sizes = np.linalg.norm(rows, axis=1)
    unit, level = rows / sizes[:, None], values / sizes
    across, triangle, order = qr(unit.T, mode="economic", pivoting=True)
    # Pivoting takes the most independent rows first. Their number is the rank.
    sides = np.abs(np.diag(triangle))
    rank = int((sides > DEPENDENT * sides[0]).sum())
    first, independent = order[:rank], np.sort(order[:rank]).astype(np.int64)
    # The point that satisfies these rows must satisfy the others, too.
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


class _Constraints(NamedTuple):
    """Checked arguments of a polytope."""

    A: Rows
    b: Array
    A_eq: Rows
    b_eq: Array
    lower: Array
    upper: Array
    names: Names
    passed_names: frozenset[str]  # names of the arguments that are not None

    @classmethod
    def read(cls, body: Polytope) -> _Constraints:
        """Check the fields of a polytope. Arguments that are None have no rows."""
        values = {f.name: getattr(body, f.name) for f in fields(body)}
        passed_names = frozenset(
            name for name, value in values.items() if value is not None
        )
        # A matrix without its right sides is a mistake, and so is the opposite.
        for pair in (("A", "b"), ("A_eq", "b_eq")):
            if len(passed_names & set(pair)) == 1:
                alone = next(name for name in pair if name in passed_names)
                check.fail(" and ".join(pair), "given together", f"{alone} alone")
        matrices = {name: _read_matrix(name, values[name]) for name in ("A", "A_eq")}
        dim = _read_dim(values, matrices)
        for name, matrix in matrices.items():
            if matrix is None:
                matrices[name] = np.zeros((0, dim))
            elif matrix.shape[1] != dim:
                check.fail(name, f"of shape (any, {dim})", f"shape {matrix.shape}")
        A, A_eq = matrices["A"], matrices["A_eq"]
        assert A is not None and A_eq is not None
        vectors = [
            check.array(
                name, values[name] if name in passed_names else (), shape=(rows,)
            )
            for name, rows in (("b", A.shape[0]), ("b_eq", A_eq.shape[0]))
        ]
        lower, upper = (
            _read_bounds(name, values[name], dim) for name in ("lower", "upper")
        )
        names = Names(
            _read_names(values["A"], "index"),
            _read_names(values["A_eq"], "index"),
            next(
                (
                    names
                    for name, part in (
                        ("A", "columns"),
                        ("A_eq", "columns"),
                        ("lower", "index"),
                        ("upper", "index"),
                    )
                    if (names := _read_names(values[name], part)) is not None
                ),
                None,
            ),
        )
        body_of_checks = cls(
            A, vectors[0], A_eq, vectors[1], lower, upper, names, passed_names
        )
        body_of_checks._check()
        return body_of_checks

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.lower)

    def _check(self) -> None:
        """Raise unless there are inequalities, of reasonable sizes."""
        is_bound = np.isfinite(self.lower).any() or np.isfinite(self.upper).any()
        if (
            "A" in self.passed_names
            and self.A.shape[0] * self.dim == 0
            and not is_bound
        ):
            check.fail("A", "of shape (>= 1, >= 1)", f"shape {self.A.shape}")
        if self.dim == 0 or not (self.A.shape[0] or is_bound):
            condition = "one inequality or finite bound at least"
            remedy = "Use WholeSpace for all vectors."
            if "A_eq" in self.passed_names:
                remedy = "Equalities alone leave it unbounded: add lower and upper."
            check.fail("A, lower and upper", condition, "none", remedy)
        _check_rows("A", self.A)
        with np.errstate(over="ignore"):
            distances = np.abs(self.b) / _largest_entries(self.A)
        if len(distances) and distances.max() > 1e200:
            got = f"{distances.max():.3g} in row {int(distances.argmax())}"
            check.fail("every side of A theta <= b", "within 1e200 of 0", got)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            huge_bounds = np.flatnonzero(np.isfinite(bound) & (np.abs(bound) > 1e200))
            if len(huge_bounds):
                got = f"{bound[huge_bounds[0]]:.3g} at index {huge_bounds[0]}"
                check.fail(name, "infinite or within 1e200 of 0", got)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of a large polytope, None where nothing was given."""
        return {
            name: getattr(self, name) if name in self.passed_names else None
            for name in ("A", "b", "A_eq", "b_eq", "lower", "upper")
        }

    def as_system(self) -> tuple[System, Sources]:
        """Return the constraints with sparse rows. Rows of one entry become bounds."""
        from scipy import sparse

        rows, equal = sparse.csr_array(self.A), sparse.csr_array(self.A_eq)
        for matrix in (rows, equal):
            matrix.eliminate_zeros()
        lower, upper = self.lower.copy(), self.upper.copy()
        is_single = np.diff(rows.indptr) == 1
        lower_rows, upper_rows = np.full((2, self.dim), -1)
        # The tightest of several bounds of a coordinate counts, and is named in
        # messages.
        for i in np.flatnonzero(is_single):
            j, value = rows.indices[rows.indptr[i]], rows.data[rows.indptr[i]]
            end = self.b[i] / value
            if value > 0.0 and end < upper[j]:
                upper[j], upper_rows[j] = end, i
            if value < 0.0 and end > lower[j]:
                lower[j], lower_rows[j] = end, i
        others = np.flatnonzero(~is_single)
        system = System(equal, self.b_eq, rows[others], self.b[others], lower, upper)
        return system, Sources(others, lower_rows, upper_rows)

    def with_bounds_as_rows(self) -> tuple[Array, Array, list[str]]:
        """Return dense inequalities, after which come the bounds, and their names."""
        eye, coordinates = np.eye(self.dim), self.names.coordinates
        high, low = (np.isfinite(bound) for bound in (self.upper, self.lower))
        rows = np.vstack([dense_rows(self.A), eye[high], -eye[low]])
        limits = np.concatenate([self.b, self.upper[high], -self.lower[low]])
        names = [_name_of(self.names.rows, i) for i in range(self.A.shape[0])]
        for kind, is_used in (("upper", high), ("lower", low)):
            names += [
                f"{kind} bound {_name_of(coordinates, j)}"
                for j in np.flatnonzero(is_used).tolist()
            ]
        return rows, limits, names


def _read_matrix(name: str, value: object) -> Rows | None:
    """Return a checked matrix, sparse if it is given so, or None."""
    if value is None:
        return None
    if isinstance(value, dict):  # of `to_dict`
        return _matrix_from_json(name, value)
    if is_sparse(value):
        return as_csr(name, value)
    return check.array(name, value, shape=(None, None))


def _matrix_from_json(name: str, value: Json) -> CSR:
    from scipy import sparse

    keys = ("data", "indices", "indptr", "shape")
    if set(value) != set(keys):
        check.fail(name, f"a matrix, or a dictionary with {', '.join(keys)}", "others")
    try:
        parts = [np.asarray(value[key]) for key in keys]
        matrix = sparse.csr_array(tuple(parts[:3]), shape=tuple(parts[3].tolist()))
    except (TypeError, ValueError) as error:
        check.fail(name, "a matrix of format csr", repr(error))
    return as_csr(name, matrix)


def _read_dim(values: dict[str, Any], matrices: dict[str, Rows | None]) -> int:
    """Return the number of coordinates, from the matrices or the bounds."""
    for matrix in matrices.values():
        if matrix is not None:
            return int(matrix.shape[1])
    for name in ("lower", "upper"):
        if values[name] is not None and np.ndim(values[name]) == 1:
            return len(values[name])
    condition = "given, or bounds as arrays"
    check.fail("A or A_eq", condition, "None", "They show the number of coordinates.")


def _read_bounds(name: str, value: object, dim: int) -> Array:
    """Return bounds of all coordinates, infinite where there is none."""
    endless = -np.inf if name == "lower" else np.inf
    if value is None:
        return np.full(dim, endless)
    if isinstance(value, list | tuple):  # of `to_dict`
        value = [endless if entry is None else entry for entry in value]
    bound = check.entries(name, value, finite=False)
    if bound.ndim == 0:
        bound = np.full(dim, float(bound))
    if bound.shape != (dim,):
        check.fail(name, f"a number or of shape ({dim},)", f"shape {bound.shape}")
    wrong = np.flatnonzero(np.isnan(bound) | (bound == -endless))
    if len(wrong):
        condition = f"finite or {endless:g}"
        check.fail(name, condition, f"{bound[wrong[0]]:g} at index {wrong[0]}")
    return bound


def _read_names(value: object, part: str) -> tuple[str, ...] | None:
    """Return the names of rows or columns of a table of pandas, or None."""
    labels = getattr(value, part, None)
    if labels is None or callable(labels) or getattr(labels, "dtype", None) is None:
        return None
    # Plain numbers say no more than the position.
    return None if labels.dtype.kind in "iu" else tuple(str(label) for label in labels)


def _name_of(names: tuple[str, ...] | None, number: int) -> str:
    return str(number) if names is None else repr(names[number])


def _largest_entries(rows: Rows) -> Array:
    """Return the largest absolute value of each row."""
    if rows.shape[0] == 0:
        return np.zeros(0)
    if isinstance(rows, np.ndarray):
        return np.asarray(np.abs(rows).max(axis=1))
    return np.asarray(abs(rows).max(axis=1).todense()).ravel()


def _reduce_rows(
    rows: Array, limits: Array, constraints: _Constraints, names: list[str]
) -> dict[str, Any]:
    """Return fields of a polytope whose implied equalities are found.

    Inequalities that hold with equality only, up to rounding errors, become rows of
    ``A_eq``. Rows that others imply are left out.
    """
    rest, cls = np.arange(len(rows)), Polytope
    equal, level = dense_rows(constraints.A_eq), constraints.b_eq
    equal, level = _without_zeros(equal, level)
    _check_rows("A_eq", equal)
    # Each round finds inequalities that hold with equality only, moves them to the
    # equalities, and searches again. ``rest`` are the rows that are left.
    error = 0.0
    while True:
        independent = _find_independent(equal, level, error)
        body = object.__new__(cls)
        fields = {"A": rows[rest], "b": limits[rest], "A_eq": None, "b_eq": None}
        if len(independent):
            fields |= {"A_eq": equal[independent], "b_eq": level[independent]}
        vars(body).update(fields)
        try:
            center, numbers = body._find_center()
        except _ViolatedRowError as violated:
            row = _list_rows([names[rest[violated.row]]])
            row = row[0].lower() + row[1:]
            got = f"{row}, which no point of A_eq theta = b_eq satisfies"
            check.fail("A theta <= b", "feasible on the equalities", got)
        if not isinstance(center, bounds.Obstacle):
            cached = {
                k: vars(body)[k] for k in ("_free_rows", "_solved") if k in vars(body)
            }
            return (
                fields
                | cached
                | {"lower": None, "upper": None, "_checked_center": center}
            )
        # The inequalities that the best point can only satisfy with equality.
        forced = rest[numbers[center.rows]]
        if not center.is_rounding:
            _raise_no_interior(center, [names[i] for i in forced.tolist()])
        # The bounds of a strip that double arithmetic cannot distinguish from a
        # plane may differ by their rounding errors.
        error = max(error, 2.0 * bounds.ROUNDINGS * center.resolution)
        equal = np.vstack([equal, rows[forced]])
        level = np.append(level, limits[forced])
        rest = np.setdiff1d(rest, forced)


@dataclass(frozen=True, eq=False)
class Polytope(Domain):
    r"""Polytope ``A theta <= b``, ``A_eq theta = b_eq``, ``lower <= theta <= upper``.

    Inequalities may hold with equality on the whole set. Such hidden equalities are
    found and removed, like those in ``A_eq``: theta = c + N v with fewer coordinates v,
    in which the set has full dimension. Samplers draw v. Arguments, draws and answers
    are in theta.

    Parameters
    ----------
    A : array_like or scipy.sparse matrix, shape (m, d), optional
        One nonzero row per inequality. A DataFrame's names appear in messages.
    b : array_like, shape (m,), optional
        Right-hand sides.
    A_eq : array_like or scipy.sparse matrix, shape (l, d), optional
        Rows of equalities, which may depend on one another. They hold up to 1e-9.
    b_eq : array_like, shape (l,), optional
        Their right-hand sides.
    lower, upper : float or array_like, shape (d,), optional
        Bounds of the coordinates, perhaps infinite. Equal bounds fix a coordinate.

    Raises
    ------
    ValueError
        If shapes disagree, a row of ``A`` is zero or not of size 1e-60 to 1e60, or the
        set is empty or a single point. The message names the rows and bounds that are
        responsible (linear programs find them).

    Notes
    -----
    With fewer than 50 coordinates, matrices are dense, bounds become rows of ``A``, and
    the fields have the result: inequalities that are equalities are in ``A_eq``, and
    rows that others imply are left out. Linear programs decide up to rounding errors.

    Larger polytopes stay sparse, with all fields as given. A coordinate or a slack
    whose range is at most 1e-10 of the largest bound counts as constant. The range of
    each coordinate takes two linear programs, which begin at the last vertex: 2583
    coordinates of a metabolic network take five seconds. If one program finds a point
    that is clearly inside all inequalities, no others are needed. The center is that of
    a largest inscribed ball, and in large polytopes the analytic center.

    Examples
    --------
    >>> triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    >>> triangle.is_bounded, triangle.contains([0.2, 0.2])
    (True, True)
    >>> triangle.project([1.0, 1.0]).round(12).tolist()
    [0.5, 0.5]
    >>> shares = Polytope(A_eq=[[1.0, 1.0]], b_eq=[1.0], lower=0.0)
    >>> shares.affine_dim(2), shares.project([2.0, 1.0]).round(12).tolist()
    (1, [1.0, 0.0])
    """

    name: ClassVar[str] = "polytope"
    contains_piece: ClassVar[Piece] = staticmethod(polytope_contains)
    project_piece: ClassVar[Piece] = staticmethod(polytope_project)
    chord_piece: ClassVar[Piece] = staticmethod(polytope_chord)
    width_draws: ClassVar[int] = 1000
    is_polytope: ClassVar[bool] = True

    A: Any = None
    b: Any = None
    A_eq: Any = None
    b_eq: Any = None
    lower: Any = None
    upper: Any = None

    def __post_init__(self) -> None:
        """Check the constraints and find an interior point."""
        constraints = _Constraints.read(self)
        if constraints.dim >= LARGE:
            self._set(constraints.as_fields())
            system, sources = constraints.as_system()
            vars(self)["_large"] = LargePolytope(system, constraints.names, sources)
            return
        rows, limits, names = constraints.with_bounds_as_rows()
        self._set(_reduce_rows(rows, limits, constraints, names))

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            # Arrays are read-only, because everything cached depends on them.
            array = isinstance(value, np.ndarray)
            object.__setattr__(self, name, freeze(value) if array else value)

    @property
    def _is_large(self) -> bool:
        return "_large" in vars(self)

    @property
    def _geometry(self) -> LargePolytope:
        geometry: LargePolytope = vars(self)["_large"]
        return geometry

    @property
    def _dim(self) -> int:
        return self._geometry.dim if self._is_large else int(self.A.shape[1])

    @classmethod
    def reduced(  # lint: ok
        cls,
        A: Directions,
        b: ArrayLike,
        A_eq: Directions | None = None,
        b_eq: ArrayLike | None = None,
    ) -> Polytope:
        """Build a polytope. Hidden equalities are found by the class itself, too.

        Parameters
        ----------
        A, b, A_eq, b_eq : array_like
            As in `Polytope`.

        Returns
        -------
        Polytope
            The same as ``Polytope(A, b, A_eq, b_eq)``.

        Raises
        ------
        ValueError
            As by the class.

        Guarantee
        ---------
        Each round finds all inequalities that no point near the best one satisfies
        strictly, by one linear program.

        Examples
        --------
        >>> square = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
        >>> flat = Polytope.reduced(square, [1.0, 1.0, 2.0, -2.0])
        >>> flat.affine_dim(2), flat.A_eq.tolist(), flat.b_eq.tolist()
        (1, [[0.0, 1.0]], [2.0])
        """
        return cls(A, b, A_eq, b_eq)

    def to_dict(self) -> Json:
        """Return the name and the fields that are given.

        A sparse matrix is a dictionary of its arrays, and an infinite bound None.
        """
        values = {k: v for k, v in super().to_dict().items() if v is not None}
        for name in ("A", "A_eq"):
            if is_sparse(values.get(name)):
                matrix = values[name]
                values[name] = {
                    "data": matrix.data.tolist(),
                    "indices": matrix.indices.tolist(),
                    "indptr": matrix.indptr.tolist(),
                    "shape": list(matrix.shape),
                }
        for name in ("lower", "upper"):
            if name in values:
                finite = [None if math.isinf(x) else x for x in values[name]]
                values[name] = finite
        return values

    @cached_property
    def _solved(self) -> SolvedEqualities:
        """Solutions of the equalities."""
        sizes = np.linalg.norm(self.A_eq, axis=1)
        unit = self.A_eq / sizes[:, None]
        return _solve_equalities(unit, self.b_eq / sizes)

    @property
    def free(self) -> Polytope:
        """The same set in coordinates v, theta = c + N v."""
        # A cached reference to itself would keep the polytope in memory.
        return self._free if self.has_equalities else self

    @cached_property
    def _free(self) -> Polytope:
        if self._is_large:
            origin, basis, _ = self._geometry.hull
            # The origin of v, projected to w.
            center = basis.T @ (self._geometry.coordinates.origin - origin)
            return _build_checked(*self._geometry.free_rows, center)
        return _build_checked(
            self._free_rows.rows, self._free_rows.bounds, self._checked_center
        )

    @cached_property
    def _round(self) -> Polytope:
        """A large polytope in the coordinates of `coordinates`."""
        chart = self._geometry.chart
        rank = self._geometry.rank
        body = _build_checked(chart.rows, np.ones(len(chart.rows)), np.zeros(rank))
        vars(body)["is_bounded"] = self.is_bounded
        if self.is_bounded:
            reach = np.full(rank, chart.radius)
            # The radius of the chart is a bound of all coordinates.
            vars(body)["_box"] = (freeze(-reach), freeze(reach))
        return body

    def _find_center(self) -> tuple[Array | bounds.Obstacle, Ints]:
        """Return a center in free coordinates, or an obstacle, and numbers of rows.

        The obstacle counts the rows that remain in free coordinates. The numbers are
        their positions in ``A``.
        """
        if self.A_eq is None:
            return bounds.find_center(self.A, self.b), np.arange(len(self.b))
        rows, limits, noise, numbers, _ = self._free_rows
        return bounds.find_center(rows, limits, noise), numbers

    @cached_property
    def _checked_center(self) -> Array:
        """Center in free coordinates, of a copy that has lost it."""
        center, numbers = self._find_center()
        if isinstance(center, bounds.Obstacle):
            rows = numbers[center.rows].tolist()
            _raise_no_interior(center, [str(row) for row in rows])
        return center

    @cached_property
    def _free_rows(self) -> FreeRows:
        """Inequalities in v, without those that are constant on the equalities."""
        _, point, basis = self._solved
        rows, limits = _multiply(self.A, basis), self.b - self.A @ point
        sizes = np.linalg.norm(self.A, axis=1)
        is_idle = np.linalg.norm(rows, axis=1) <= DEPENDENT * sizes
        used = np.flatnonzero(~is_idle)
        # A constant row holds everywhere or nowhere. The tolerance is the same as for
        # equalities, in units of the size of the set.
        reach = min(1.0, float(np.abs(limits[used] / sizes[used]).max(initial=0.0)))
        tolerance = TOLERANCE * (reach + np.abs(point).max()) * sizes
        for i in np.flatnonzero(is_idle & (limits < -tolerance)):
            raise _ViolatedRowError(int(i))
        if is_idle.all():
            got = "rows that the equalities imply"
            check.fail("A theta <= b", "an inequality on A_eq theta = b_eq", got)
        # Sizes of the terms of each row, to which rounding errors are relative.
        terms = np.abs(self.A) @ np.abs(point) + np.abs(self.b)
        # A product with 0 is exact, so a bound of one coordinate keeps its digits.
        noise = SPACING * (np.count_nonzero(self.A, axis=1) + 1) * terms
        # Multiplication by powers of two is exact, and gives rows of size about 1.
        factors = np.ldexp(1.0, -np.frexp(np.abs(rows[used]).max(axis=1))[1])
        return FreeRows(
            rows=rows[used] * factors[:, None],
            bounds=limits[used] * factors,
            noise=noise[used] * factors,
            numbers=used,
            factors=factors,
        )

    @cached_property
    def _chebyshev(self) -> Array:
        if self._is_large:
            return self._geometry.center
        if self.A_eq is None:
            return self._checked_center
        _, point, basis = self._solved
        return np.asarray(point + basis @ self.free.default_center(basis.shape[1]))

    @cached_property
    def _reach(self) -> float:
        """Distance from the center to the farthest facet, at most 1."""
        free = self.free
        slack = free.b - free.A @ free.default_center(free.A.shape[1])
        return min(1.0, float((slack / np.linalg.norm(free.A, axis=1)).max()))

    @property
    def has_equalities(self) -> bool:
        """Whether the affine hull is not the whole space."""
        if self._is_large:
            return not self._geometry.is_full
        return self.A_eq is not None

    @property
    def has_round_coordinates(self) -> bool:
        """Whether samplers draw other coordinates than theta."""
        return self._is_large or self.has_equalities

    def coordinates(self, dim: int) -> Coordinates:
        """Return coordinates in which a large polytope is round."""
        self.check(dim)
        if self._is_large:
            return self._geometry.coordinates
        return super().coordinates(dim)

    def in_coordinates(self, dim: int) -> Polytope:
        """Return the polytope in these coordinates."""
        self.check(dim)
        return self._round if self._is_large else self.free

    def move_inside(self, points: Array) -> Array:
        """Return points that rounding errors have put outside, moved inside."""
        if not self._is_large:
            return super().move_inside(points)
        dim = self._geometry.dim
        return self._geometry.move_inside(points.reshape(-1, dim)).reshape(points.shape)

    def contains(self, theta: ArrayLike) -> bool:
        """Return whether ``theta`` is inside, with a tolerance for equalities only."""
        if not self._is_large:
            return super().contains(theta)
        return bool(self._geometry.is_inside(self._to_vector("theta", theta)[None])[0])

    def project(self, theta: ArrayLike) -> Array:
        """Return the nearest point of the domain in l2, which passes `contains`."""
        if not self._is_large:
            return super().project(theta)
        point = self._to_vector("theta", theta)
        nearest = point
        if not self._geometry.is_inside(point[None])[0]:
            origin, basis, _ = self._geometry.hull
            inner = self.free if self.has_equalities else self._same_set
            nearest = origin + basis @ inner.project(basis.T @ (point - origin))
            nearest = self._geometry.move_inside(nearest[None])[0]
        return nearest.reshape(np.shape(theta))

    @cached_property
    def _same_set(self) -> Polytope:
        """The polytope of full dimension, as one of dense unit rows."""
        return _build_checked(*self._geometry.free_rows, self._geometry.center)

    def chord(self, theta: ArrayLike, direction: ArrayLike) -> tuple[float, float]:
        """Return the interval of t with ``theta + t direction`` in the domain."""
        if not self._is_large:
            return super().chord(theta, direction)
        point = self._to_vector("theta", theta)
        along = self._to_vector("direction", direction)
        return self._geometry.chord(point, along)

    @property
    def is_product(self) -> bool:
        """Whether every row bounds one coordinate, and all have two bounds."""
        return self.box is not None

    @property
    def has_exact_test(self) -> bool:
        """Whether the polytope is given by inequalities alone."""
        return not self._is_large and self.A_eq is None

    def contains_exactly(self, point: Sequence[Decimal]) -> bool:
        """Compare each row with its bound."""
        rows = zip(self.A.tolist(), self.b.tolist(), strict=True)
        return all(
            sum(Decimal(a) * x for a, x in zip(row, point, strict=True))
            <= Decimal(bound)
            for row, bound in rows
        )

    def in_hull_coordinates(self, dim: int) -> Polytope:
        """Return `free`."""
        self.check(dim)
        return self.free

    def facets(self, dim: int) -> tuple[Array, Array]:
        """Return the inequalities, projected onto the null space of the equalities."""
        if self._is_large:
            self.check(dim)
            return self._geometry.facets
        body = self.body(dim)
        return body.matrix[body.num_rows :], body.bounds[body.num_rows :]

    def slacks(self, points: Array) -> Array:
        """Distances from the facets, in units of the rows."""
        rows, bounds = self.facets(points.shape[1])
        return np.asarray(bounds - points @ rows.T)

    @property
    def box(self) -> tuple[Array, Array] | None:
        """Lower and upper bounds if the polytope is a product of intervals, or None."""
        sides = self._sides
        return None if sides is None else (sides[0].copy(), sides[1].copy())

    @cached_property
    def _sides(self) -> tuple[Array, Array] | None:
        if self._is_large:
            system = self._geometry.user_system
            return (system.lower, system.upper) if self._geometry.is_product else None
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
        if self._is_large:
            return self._geometry.box
        if self.A_eq is not None:
            _, point, basis = self._solved
            return point - self.free.support(-basis), point + self.free.support(basis)
        return bounds.outer_box(self.A, self.b, self.default_center(self.A.shape[1]))

    @cached_property
    def is_bounded(self) -> bool:
        """Whether the rows positively span the space (a linear program decides)."""
        if self._is_large:
            return self._geometry.is_bounded
        return bounds.is_bounded(self.free.A)

    def affine_dim(self, dim: int) -> int:
        """Return ``dim`` less the number of independent equalities."""
        self.check(dim)
        if self._is_large:
            return self._geometry.rank
        return dim if self.A_eq is None else dim - len(self.A_eq)

    def hull(self, dim: int) -> tuple[Array, Array]:
        """Return c and N."""
        self.check(dim)
        if not self.has_equalities:
            return super().hull(dim)
        if self._is_large:
            origin, basis, _ = self._geometry.hull
            return origin.copy(), basis.copy()
        _, point, basis = self._solved
        return point.copy(), basis.copy()

    def check(self, dim: int) -> None:
        """Raise unless the rows have ``dim`` coordinates."""
        super().check(dim)
        if self._dim != dim:
            shape = (self._dim,) if self.A is None else self.A.shape
            name = "lower or upper" if self.A is None else "A"
            condition = f"({dim},)" if self.A is None else f"(any, {dim})"
            check.fail(name, f"of shape {condition}", f"shape {shape}")

    def default_center(self, dim: int) -> Array:
        """Center of a largest inscribed ball, and of a large polytope the analytic one.

        There may be several largest balls. The result is the center of one of them.
        """
        self.check(dim)
        return np.array(self._chebyshev)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        if self._is_large:
            self.check(dim)
            body = self._geometry.body
            values = body._asdict().items()
            arrays: Any = {k: v.copy() for k, v in values if isinstance(v, np.ndarray)}
            return body._replace(**arrays)
        center = self.default_center(dim)
        matrix, limits = np.array(self.A), np.array(self.b)
        if self.A_eq is None:
            lower, upper = self.box or (np.full(dim, -np.inf), np.full(dim, np.inf))
            sides = {"lower": lower.copy(), "upper": upper.copy()}
            return body_around(
                center, matrix=matrix, bounds=limits, num_rows=0, **sides
            )
        across, point, basis = self._solved
        # <N a, c + N v> = <a, v> because N^T c = 0. So the projected rows have the
        # bounds of the free polytope.
        return body_around(
            center,
            matrix=np.vstack([across, self.free.A @ basis.T]),
            bounds=np.concatenate([across @ point, self.free.b]),
            num_rows=len(across),
            tolerance=TOLERANCE * (self._reach + float(np.abs(center).max())),
        )

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return polytope_exit

    def support(self, directions: Directions) -> Values:
        """Return maxima of linear programs, rounded up by their dual solutions.

        They are exact for a box. For more than 200 directions they are the upper bounds
        of the bounding box, which 2 d linear programs find. The box also gives the
        maxima along axes.
        """
        rows = as_rows(directions, self._dim)
        if self._is_large:
            return self._support_of_large(rows)
        if self.A_eq is not None:
            _, point, basis = self._solved
            along = np.asarray(rows @ basis)
            return np.asarray(np.asarray(rows @ point) + self.free.support(along))[()]
        count = int(np.prod(rows.shape[:-1], dtype=np.int64))
        if count > 200 or self.box is not None:
            return box_support(rows, *self._box)
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if (np.count_nonzero(dense, axis=-1) <= 1).all():  # along axes
            return box_support(dense, *self._box)
        center = self.default_center(self.A.shape[1])
        values = [
            bounds.support_value(self.A, self.b, center, self._box, v)
            for v in dense.reshape(count, -1)
        ]
        return np.array(values).reshape(dense.shape[:-1])[()]

    def _support_of_large(self, rows: Rows) -> Values:
        shape = rows.shape[:-1]
        count = int(np.prod(shape, dtype=np.int64))
        if count > 200 or self.box is not None:
            return box_support(rows, *self._box)
        dense = dense_rows(rows).reshape(count, -1)
        if (np.count_nonzero(dense, axis=-1) <= 1).all():  # along axes
            return np.asarray(box_support(dense, *self._box)).reshape(shape)[()]
        return np.asarray(self._geometry.support(dense)).reshape(shape)[()]

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return the distance of the farthest corner of the bounding box."""
        middle = self._check_center(p, center, dim)
        lower, upper = self._box
        corner = float(norm(np.maximum(upper - middle, middle - lower), p))
        if self._is_large or self.A_eq is None or p != 2.0:
            return corner
        # The distance is split into parts along the hull and across it (Pythagoras).
        across, point, basis = self._solved
        along = self.free.max_norm(2.0, basis.T @ (middle - point), basis.shape[1])
        off = float(np.linalg.norm(across @ (middle - point)))
        return min(corner, math.hypot(along, off))

    def diameter(self, p: float, dim: int) -> float:
        """Return the diameter of the bounding box."""
        lower, upper = self._box
        return 2.0 * self.max_norm(p, 0.5 * lower + 0.5 * upper, dim)

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the largest <a, theta> / b over rows with <a, theta> > 0."""
        if self._is_large or self.A_eq is not None:
            return super()._gauge_rows(rows)
        heights = rows @ self.A.T
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(heights > 0.0, heights / self.b, 0.0)
        return np.asarray(shares.max(axis=1))


def _build_checked(rows: Array, limits: Array, center: Array) -> Polytope:
    """Return a polytope of dense rows without its checks, around a known center."""
    body = object.__new__(Polytope)
    fields = dict.fromkeys(("A_eq", "b_eq", "lower", "upper"))
    rows, limits = freeze(np.ascontiguousarray(rows)), freeze(np.array(limits))
    vars(body).update(A=rows, b=limits, **fields)
    vars(body)["_chebyshev"] = vars(body)["_checked_center"] = freeze(np.array(center))
    return body
