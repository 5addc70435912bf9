"""Reduction of a large polytope to coordinates without hidden equalities.

Equalities with one or two entries fix or substitute coordinates, so that the points are
x = spread z + shift, with at most one entry in each row of ``spread``. A metabolic
network loses half of its coordinates in this way.

Other equalities may be hidden: some inequalities may hold with equality on the whole
set. One linear program asks for a point that is clearly inside all inequalities. If
there is one, nothing is hidden. Otherwise two programs for each coordinate, from the
last vertex each, give its range. A coordinate whose range is a rounding error of the
solver is fixed, and an inequality whose slack is always 0 is an equality.

Numbers are in units in which the largest bounds are about 1000. So the tolerances of
this module are 1e-12 to 1e-9 of the largest bound. A coordinate whose own bounds are
near each other has a smaller unit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.sparse import CSR
from dpsample.domains.linear_programs import (
    SIZE,
    TOLERANCE,
    LinearProgram,
    Ranges,
    System,
    find_ranges,
)

# Largest range that counts as 0. The ranges of fixed coordinates are at most 3e-8 in
# the networks iJO1366 and Salmonella, and the smallest others are 1e-6.
MAX_ZERO_RANGE = 1e-7
# Smallest relative distance from all bounds at which a point is clearly inside.
MIN_INSIDE = 1e-5


class NoPointError(Exception):
    """No point satisfies the system, by more than rounding errors."""


class Presolved(NamedTuple):
    """System in fewer coordinates z, with x = spread z + shift."""

    system: System
    spread: CSR  # (d, n), at most one entry in each row
    shift: Array  # (d,)
    kept_columns: Ints  # (n,): index of the coordinate of x that is z


class Reduction(NamedTuple):
    """System with points inside all inequalities, and x = spread z + shift."""

    system: System
    spread: CSR  # (d, n), at most one entry in each row
    shift: Array  # (d,)
    point: Array  # (n,): inside all inequalities, on the equalities up to the tolerance
    widths: Array  # (n,): about the ranges of the coordinates, > 0
    may_reach: Bools  # (2, n): whether points may be at the lower and upper bounds
    ranges: tuple[Array, Array] | None  # ranges of z, if they were computed
    num_programs: int


def scale_rows(matrix: CSR, bounds: Array) -> tuple[CSR, Array]:
    """Multiply rows by powers of two, which is exact, so that entries are at most 1."""
    from scipy import sparse

    matrix = sparse.csr_array(matrix)
    if matrix.shape[0] == 0:
        return matrix, bounds
    largest = np.asarray(abs(matrix).max(axis=1).todense()).ravel()
    # largest = m 2^e with 1/2 <= m < 1, and the factor is 2^-e.
    factors = np.ldexp(1.0, -np.frexp(np.where(largest > 0.0, largest, 1.0))[1])
    scaled = sparse.csr_array(sparse.diags_array(factors) @ matrix)
    return scaled, bounds * factors


def choose_unit(system: System) -> float:
    """Return the power of two that makes the largest bound about `SIZE`.

    The rows of the system must have entries of size 1.
    """
    numbers = np.abs(
        np.concatenate([system.level, system.limits, system.lower, system.upper])
    )
    largest = numbers[np.isfinite(numbers)].max(initial=0.0)
    if largest == 0.0:
        return 1.0
    # Bounds of 1e290 must not overflow, and subnormal ones not divide by 0.
    exponent = math.frexp(largest)[1] - math.frexp(SIZE)[1]
    return math.ldexp(1.0, min(max(exponent, -900), 900))


def in_units(system: System, unit: float) -> System:
    """Return the system of x / unit."""
    return system._replace(
        level=system.level / unit,
        limits=system.limits / unit,
        lower=system.lower / unit,
        upper=system.upper / unit,
    )


def presolve(system: System, error: float) -> Presolved:
    """Substitute by equalities with one or two entries until there are none.

    ``error`` is the uncertainty of the bounds. Raises `NoPointError` if two of them
    contradict each other by more.
    """
    from scipy import sparse

    dim = system.dim
    spread = sparse.csr_array(sparse.eye_array(dim, format="csr"))
    shift, kept_columns = np.zeros(dim), np.arange(dim)
    while True:
        system = _drop_empty_rows(system, error)
        step = _find_substitutions(system, error)
        if step is None:
            return Presolved(system, spread, shift, kept_columns)
        factors, offsets, keep, lower, upper = step
        shift = shift + spread @ offsets
        spread = sparse.csr_array(spread @ factors)
        kept_columns = kept_columns[keep]
        system = System(
            equal=sparse.csr_array(system.equal @ factors),
            level=system.level - system.equal @ offsets,
            rows=sparse.csr_array(system.rows @ factors),
            limits=system.limits - system.rows @ offsets,
            lower=lower,
            upper=upper,
        )


def _drop_empty_rows(system: System, error: float) -> System:
    """Drop rounding errors of the rows, and rows 0 = 0 and 0 <= b."""
    parts: list[Any] = []
    for matrix, bounds, is_equal in (
        (system.equal, system.level, True),
        (system.rows, system.limits, False),
    ):
        # Entries of a substituted row below this share of its largest one are rounding
        # errors.
        matrix.data[np.abs(matrix.data) <= 1e-13] = 0.0
        matrix.eliminate_zeros()
        is_empty = np.diff(matrix.indptr) == 0
        missed = np.abs(bounds) if is_equal else -bounds
        if (missed[is_empty] > error).any():
            raise NoPointError
        parts += [matrix[~is_empty], bounds[~is_empty]]
    equal, level = scale_rows(parts[0], parts[1])
    rows, limits = scale_rows(parts[2], parts[3])
    return system._replace(equal=equal, level=level, rows=rows, limits=limits)


def _find_substitutions(
    system: System, error: float
) -> tuple[CSR, Array, Ints, Array, Array] | None:
    """Return x = factors z + offsets for some equalities, with bounds of z, or None.

    A coordinate appears in one substitution of a round.
    """
    from scipy import sparse

    equal, dim = system.equal, system.dim
    lower, upper = system.lower.copy(), system.upper.copy()
    counts = np.diff(equal.indptr)
    offsets, ratios, target = np.zeros(dim), np.zeros(dim), np.arange(dim)
    is_gone, is_used = np.zeros(dim, dtype=bool), np.zeros(dim, dtype=bool)
    for i in np.flatnonzero((counts == 1) | (counts == 2)):
        part = slice(equal.indptr[i], equal.indptr[i + 1])
        columns, values = equal.indices[part], equal.data[part]
        if is_used[columns].any():
            continue
        is_used[columns] = True
        # The coordinate of the larger entry is substituted, so ratios are at most 1.
        first = int(np.argmax(np.abs(values)))
        j = columns[first]
        is_gone[j], offsets[j] = True, system.level[i] / values[first]
        if len(columns) == 2:
            target[j] = columns[1 - first]
            ratios[j] = -values[1 - first] / values[first]
    # Coordinates whose bounds are equal, or cross by no more than the error.
    flat = np.flatnonzero((upper - lower <= 0.0) & ~is_used)
    if (lower[flat] - upper[flat] > error * (1.0 + np.abs(lower[flat]))).any():
        raise NoPointError
    is_gone[flat], offsets[flat] = True, 0.5 * (lower[flat] + upper[flat])
    if not is_gone.any():
        return None
    fixed = np.flatnonzero(is_gone & (ratios == 0.0))
    outside = np.maximum(lower[fixed] - offsets[fixed], offsets[fixed] - upper[fixed])
    if (outside > error * (1.0 + np.abs(offsets[fixed]))).any():
        raise NoPointError
    # Bounds of x_j = ratio z_k + offset become bounds of z_k. A negative ratio
    # exchanges the ends.
    tied = np.flatnonzero(ratios != 0.0)
    for j in tied:
        ends = sorted((end - offsets[j]) / ratios[j] for end in (lower[j], upper[j]))
        k = target[j]
        lower[k], upper[k] = max(lower[k], ends[0]), min(upper[k], ends[1])
        if lower[k] - upper[k] > error * (1.0 + abs(lower[k])) / abs(ratios[j]):
            raise NoPointError
    # Each row of the factors has a 1, or the ratio in the column of z_k, or nothing.
    keep = np.flatnonzero(~is_gone)
    column = np.full(dim, -1)
    column[keep] = np.arange(len(keep))
    entries = np.append(np.ones(len(keep)), ratios[tied])
    places = np.append(keep, tied), column[np.append(keep, target[tied])]
    factors = sparse.csr_array((entries, places), shape=(dim, len(keep)))
    return factors, offsets, keep, lower[keep], upper[keep]


def _rescale_columns(solved: Presolved) -> Presolved:
    """Give coordinates whose bounds are less than 1 apart the unit of their width."""
    from scipy import sparse

    width = solved.system.upper - solved.system.lower
    # A power of two, so that products are exact.
    units = np.ldexp(1.0, np.frexp(np.clip(width, 1e-280, 1.0))[1] - 1)
    # Infinite and NaN widths keep their unit.
    units[~(width < 1.0)] = 1.0
    if (units == 1.0).all():
        return solved
    columns, system = sparse.diags_array(units), solved.system
    equal, level = scale_rows(sparse.csr_array(system.equal @ columns), system.level)
    rows, limits = scale_rows(sparse.csr_array(system.rows @ columns), system.limits)
    system = System(
        equal, level, rows, limits, system.lower / units, system.upper / units
    )
    return solved._replace(
        system=system, spread=sparse.csr_array(solved.spread @ columns)
    )


def append_column(matrix: CSR, column: Array) -> CSR:
    """Return a sparse matrix with one more column."""
    from scipy import sparse

    parts: Any = [matrix, sparse.csr_array(column[:, None])]
    return sparse.csr_array(sparse.hstack(parts))


def find_inside(system: System, widths: Array) -> tuple[Array, float] | None:
    """Return a point far inside, and its smallest distance from bounds. None if empty.

    The distances are in units of half the widths and of the lengths of the rows, and at
    most 1. They are negative outside.
    """
    from scipy import sparse

    dim, half = system.dim, 0.5 * widths
    low = np.flatnonzero(np.isfinite(system.lower))
    high = np.flatnonzero(np.isfinite(system.upper))
    eye = sparse.eye_array(dim, format="csr")
    rows = sparse.csr_array(sparse.vstack([system.rows, eye[high], -eye[low]]))
    # One more variable s <= 1 is maximized, with a x + s |a| <= b for each row and
    # An upper bound is a row of the identity, a lower bound minus one.
    # bound, where |a| is a length in units of half the widths.
    squares: Array = np.asarray(system.rows.multiply(system.rows) @ half**2)
    sizes = np.concatenate([np.sqrt(squares), half[high], half[low]])
    limits = np.concatenate([system.limits, system.upper[high], -system.lower[low]])
    num_equal = system.equal.shape[0]
    wider = System(
        equal=append_column(system.equal, np.zeros(num_equal)),
        level=system.level,
        rows=append_column(rows, sizes),
        limits=limits,
        lower=np.full(dim + 1, -np.inf),
        upper=np.append(np.full(dim, np.inf), 1.0),
    )
    cost = np.zeros(dim + 1)
    cost[dim] = -1.0
    answer = LinearProgram(wider, cost).solve()
    if not answer.is_optimal:
        return None
    return answer.x[:dim], float(answer.x[dim])


def _guess_widths(system: System) -> Array:
    """Return the distances between the bounds, or `SIZE` if they are infinite."""
    width = system.upper - system.lower
    return np.where(width < 1e6 * SIZE, width, SIZE)


def reduce_system(system: System) -> Reduction:
    """Find and remove hidden equalities. Raise `NoPointError` if there is no point.

    The system is in units of `choose_unit`.
    """
    solved = _rescale_columns(presolve(system, 1e-12 * SIZE))
    system = solved.system
    if system.dim == 0:
        return _with_guesses(solved, np.zeros(0))
    inside = find_inside(system, _guess_widths(system))
    if inside is None:
        raise NoPointError
    point, distance = inside
    # A point clearly inside shows that nothing is hidden. In between rounding errors
    # decide, so that every range is needed.
    if distance >= MIN_INSIDE:
        return _with_guesses(solved, point)
    if distance < -MIN_INSIDE:
        raise NoPointError
    ranges = _find_all_ranges(system)
    if ranges is None:
        raise NoPointError
    return _remove_hidden(solved, ranges)


def _with_guesses(solved: Presolved, point: Array) -> Reduction:
    """Return the reduction to a system without hidden equalities."""
    system = solved.system
    return Reduction(
        system=system,
        spread=solved.spread,
        shift=solved.shift,
        point=point,
        widths=_guess_widths(system),
        may_reach=np.isfinite([system.lower, system.upper]),
        ranges=None,
        num_programs=1,
    )


def _find_all_ranges(system: System) -> Ranges | None:
    """Return ranges of the coordinates, and after them of the slacks of the rows.

    A slack of a row is a coordinate of its own, rows x + slack = limits. Only its
    maximum is looked for.
    """
    from scipy import sparse

    num_rows, dim = system.rows.shape
    equal = system.equal
    if num_rows:
        blocks: Any = [[system.equal, None], [system.rows, sparse.eye_array(num_rows)]]
        if len(system.level) == 0:
            blocks = blocks[1:]
        equal = sparse.csr_array(sparse.block_array(blocks))
    with_slacks = System(
        equal=equal,
        level=np.append(system.level, system.limits),
        rows=sparse.csr_array((0, dim + num_rows)),
        limits=np.zeros(0),
        lower=np.append(system.lower, np.zeros(num_rows)),
        upper=np.append(system.upper, np.full(num_rows, np.inf)),
    )
    wants = np.ones((2, dim + num_rows), dtype=bool)
    wants[0, dim:] = False
    return find_ranges(LinearProgram(with_slacks), with_slacks, wants)


def _find_strips(system: System) -> Array:
    """Return the distance between each row and its opposite, infinity without one.

    Rows a x <= b and -a x <= c are a strip of width b + c, which may be thin.
    """
    rows, widths = system.rows, np.full(len(system.limits), np.inf)
    numbers: dict[tuple[bytes, bytes], int] = {}
    for i, (begin, end) in enumerate(
        zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    ):
        columns = rows.indices[begin:end].tobytes()
        values = rows.data[begin:end]
        # The sum with 0 turns -0 into 0.
        numbers[columns, (values + 0.0).tobytes()] = i
        opposite = numbers.get((columns, (0.0 - values).tobytes()))
        if opposite is not None:
            width = max(system.limits[i] + system.limits[opposite], 1e-12)
            widths[[i, opposite]] = np.minimum(widths[[i, opposite]], width)
    return widths


def _remove_hidden(solved: Presolved, ranges: Ranges) -> Reduction:
    """Fix coordinates without a range, and make tight inequalities equalities."""
    from scipy import sparse

    system, dim = solved.system, solved.system.dim
    low, high = ranges.lower[:dim], ranges.upper[:dim]
    is_fixed = high - low <= MAX_ZERO_RANGE
    value = 0.5 * (low + high)
    # A coordinate at its bound is exactly there.
    for bound in (system.lower, system.upper):
        is_there = is_fixed & (np.abs(value - bound) <= MAX_ZERO_RANGE)
        value[is_there] = bound[is_there]
    # A value near 0 is 0.
    value[is_fixed & (np.abs(value) <= MAX_ZERO_RANGE)] = 0.0
    # Thin strips are not planes if programs can tell.
    # Slacks count as 0 only far below the width of a strip.
    strips = _find_strips(system)
    max_zero_slack = np.clip(0.1 * strips, 5.0 * TOLERANCE, MAX_ZERO_RANGE)
    is_tight = ranges.upper[dim:] <= max_zero_slack
    second = presolve(
        System(
            equal=sparse.csr_array(
                sparse.vstack([system.equal, system.rows[np.flatnonzero(is_tight)]])
            ),
            level=np.append(system.level, system.limits[is_tight]),
            rows=system.rows[np.flatnonzero(~is_tight)],
            limits=system.limits[~is_tight],
            lower=np.where(is_fixed, value, system.lower),
            upper=np.where(is_fixed, value, system.upper),
        ),
        100.0 * MAX_ZERO_RANGE,
    )
    kept_columns, inner = second.kept_columns, second.system
    low, high = low[kept_columns], high[kept_columns]
    width = high - low
    finite = np.isfinite(width)
    # Points count as being at a bound within a millionth of the range.
    gap = 1e-6 * np.where(finite, width, 0.0) + MAX_ZERO_RANGE
    return Reduction(
        system=inner,
        spread=sparse.csr_array(solved.spread @ second.spread),
        shift=solved.shift + solved.spread @ second.shift,
        point=ranges.mean[kept_columns],
        widths=np.where(finite, width, SIZE),
        may_reach=np.array([low <= inner.lower + gap, high >= inner.upper - gap]),
        ranges=(low, high),
        num_programs=ranges.num_programs + 1,
    )


class Conflict(NamedTuple):
    """Rows and bounds of a system that contradict one another."""

    equalities: Ints
    rows: Ints
    lower: Ints
    upper: Ints
    missed: float  # sum of violations that no point avoids


def find_conflict(system: System) -> Conflict | None:
    """Return constraints that contradict one another, or None if a point is near.

    The program minimizes the sum of violations of equalities and inequalities. A
    constraint matters if its multiplier in the dual solution is not 0.
    """
    from scipy import sparse

    crossed = np.flatnonzero(system.lower > system.upper)
    none = np.arange(0)
    if len(crossed):
        first = crossed[:1]
        missed = float((system.lower - system.upper)[first][0])
        return Conflict(none, none, first, first, missed)
    # Each equality gets a surplus and a deficit, and each inequality an excess, all of
    # which are >= 0. Their sum is minimized.
    num_equal, dim = system.equal.shape
    num_rows = len(system.limits)
    eye = sparse.eye_array(num_equal)
    elastic = System(
        equal=sparse.csr_array(
            sparse.hstack(
                [system.equal, eye, -eye, sparse.csr_array((num_equal, num_rows))]
            )
        ),
        level=system.level,
        rows=sparse.csr_array(
            sparse.hstack(
                [
                    system.rows,
                    sparse.csr_array((num_rows, 2 * num_equal)),
                    -sparse.eye_array(num_rows),
                ]
            )
        ),
        limits=system.limits,
        lower=np.append(system.lower, np.zeros(2 * num_equal + num_rows)),
        upper=np.append(system.upper, np.full(2 * num_equal + num_rows, np.inf)),
    )
    cost = np.append(np.zeros(dim), np.ones(2 * num_equal + num_rows))
    answer = LinearProgram(elastic, cost).solve()
    if not answer.is_optimal:
        return None
    missed = float(cost @ answer.x)
    if missed <= 1e-9 * SIZE:
        return None
    # Multipliers are 0 up to the tolerance of the solver.
    duals, costs = answer.row_duals, answer.reduced_costs[:dim]
    is_used = np.abs(duals) > 1e-7
    return Conflict(
        equalities=np.flatnonzero(is_used[:num_equal]),
        rows=np.flatnonzero(is_used[num_equal:]),
        lower=np.flatnonzero(costs > 1e-7),
        upper=np.flatnonzero(costs < -1e-7),
        missed=missed,
    )


def is_bounded(system: System) -> bool:
    """Return whether only d = 0 keeps all constraints from every point.

    A cone of such directions that is not {0} contains d with <g, d> > 0 or
    <g, d> < 0 for almost all vectors g. One vector g decides.
    """
    if np.isfinite(system.lower).all() and np.isfinite(system.upper).all():
        return True
    dim = system.dim
    cone = system._replace(
        level=np.zeros(len(system.level)),
        limits=np.zeros(len(system.limits)),
        lower=np.where(np.isfinite(system.lower), 0.0, -1.0),
        upper=np.where(np.isfinite(system.upper), 0.0, 1.0),
    )
    # Directions of the cone are cut off at 1, so that each program has an optimum.
    direction = np.random.default_rng(1).standard_normal(dim)
    for sign in (1.0, -1.0):
        answer = LinearProgram(cone, sign * direction).solve()
        if not answer.is_optimal or sign * direction @ answer.x < -1e-6:
            return False
    return True
