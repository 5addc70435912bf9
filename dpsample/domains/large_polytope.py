"""Geometry of a polytope in many coordinates, with hidden equalities removed.

`Polytope` delegates to `LargePolytope` from `polytope.LARGE` coordinates on. The
answers are in the user's coordinates x. Inside there are three others:

- z, in which some equalities are solved by substitution (`polytope_reduction`),
- v, which are round (`polytope_chart`). Samplers draw v.
- w, with x = c + N w and orthonormal columns N, for distances.

Only z is found when the polytope is built. The others are computed when they are used.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Bools, Ints, Values
from dpsample.core.sparse import CSR, Rows
from dpsample.domains import polytope_reduction as reduction
from dpsample.domains.domain import Body, Coordinates, body_around
from dpsample.domains.linear_programs import (
    SIZE,
    TOLERANCE,
    LinearProgram,
    Ranges,
    System,
    find_ranges,
)
from dpsample.domains.polytope_chart import Chart, ChartError, find_chart

# Tolerance of equalities, relative to the sizes of the terms of a row.
EQUAL = 1e-9


class Names(NamedTuple):
    """Names of rows and coordinates in messages, None for numbers."""

    rows: tuple[str, ...] | None = None
    equalities: tuple[str, ...] | None = None
    coordinates: tuple[str, ...] | None = None


class Sources(NamedTuple):
    """Rows of ``A`` from which rows and bounds of a system come."""

    rows: Ints  # (m,)
    lower: Ints  # (n,): -1 if the bound was given as one
    upper: Ints  # (n,)


def list_names(
    noun: str, names: tuple[str, ...] | None, numbers: Ints, of: str = ""
) -> str:
    """Return a text such as "rows 1 and 5 of A", with at most 20 names."""
    texts = [repr(names[i]) if names is not None else str(i) for i in numbers.tolist()]
    if len(texts) > 20:
        texts = [*texts[:20], f"{len(texts) - 20} more"]
    plural = "" if len(numbers) == 1 else "s"
    *first, last = texts
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{noun}{plural} {listed}{of}"


class LargePolytope:
    """A polytope of sparse rows, as `System` in the user's units."""

    def __init__(self, system: System, names: Names, sources: Sources) -> None:
        # Membership is decided in the user's units, in which bounds are exact. Programs
        # and charts work in scaled rows and units of the polytope's size.
        self.user_system, self.names, self.sources = system, names, sources
        self._check_zero_equalities()
        equal, level = reduction.scale_rows(system.equal, system.level)
        rows, limits = reduction.scale_rows(system.rows, system.limits)
        scaled = System(equal, level, rows, limits, system.lower, system.upper)
        self.unit = reduction.choose_unit(scaled)
        self.system = reduction.in_units(scaled, self.unit)
        try:
            self.reduction = reduction.reduce_system(self.system)
        except reduction.NoPointError:
            self._raise_empty()
        if self.reduction.system.dim == 0:
            got = "the single point " + self._describe_point(self.reduction.shift)
            check.fail("A theta <= b", "a set of dimension >= 1", got)

    @property
    def dim(self) -> int:
        """Number of the user's coordinates."""
        return self.user_system.dim

    def _check_zero_equalities(self) -> None:
        """Raise for an equality 0 = 1. Equalities 0 = 0 say nothing."""
        counts = np.diff(self.user_system.equal.indptr)
        wrong = np.flatnonzero((counts == 0) & (self.user_system.level != 0.0))
        if len(wrong):
            row = list_names("row", self.names.equalities, wrong[:1])
            level = self.user_system.level[wrong[0]]
            got = f"zeros in {row}, which are never {level:.3g}"
            remedy = "No point satisfies all equalities."
            check.fail("A_eq theta = b_eq", "consistent", got, remedy)

    def _describe_point(self, point: Array) -> str:
        values = (self.unit * point).tolist()
        rest = f", and {len(values) - 6} more" if len(values) > 6 else ""
        return f"[{', '.join(f'{value:.6g}' for value in values[:6])}{rest}]"

    def _raise_empty(self) -> NoReturn:
        """Raise for constraints that contradict one another, with their names."""
        conflict, names = reduction.find_conflict(self.system), self.names
        if conflict is None:
            got = "a set that linear programs cannot tell from an empty one"
            remedy = (
                "The constraints are contradictory up to rounding errors, or of sizes "
                "that are too different. Correct or scale them."
            )
            check.fail("A theta <= b", "a set with points", got, remedy)
        sources = self.sources
        row_parts = [sources.rows[conflict.rows]]
        bounds = []
        for columns, rows in (
            (conflict.lower, sources.lower),
            (conflict.upper, sources.upper),
        ):
            is_row = rows[columns] >= 0
            row_parts.append(rows[columns[is_row]])
            bounds.append(columns[~is_row])
        row_numbers = np.unique(np.concatenate(row_parts))
        parts = [
            list_names(noun, nouns, numbers, of)
            for noun, nouns, numbers, of in (
                (
                    "row",
                    names.rows,
                    row_numbers,
                    " of A",
                ),
                ("row", names.equalities, conflict.equalities, " of A_eq"),
                ("lower bound", names.coordinates, bounds[0], ""),
                ("upper bound", names.coordinates, bounds[1], ""),
            )
            if len(numbers)
        ]
        *first, last = parts
        listed = f"{', '.join(first)} and {last}" if first else last
        listed = listed[0].upper() + listed[1:]
        got = "constraints that no point satisfies"
        remedy = f"{listed} contradict one another. Correct one of them."
        check.fail("A theta <= b", "a set with points", got, remedy)

    @cached_property
    def is_bounded(self) -> bool:
        """Whether the set has a finite diameter."""
        return reduction.is_bounded(self.reduction.system)

    @cached_property
    def chart(self) -> Chart:
        """Round coordinates."""
        try:
            return find_chart(self.reduction, is_bounded=self.is_bounded)
        except ChartError:
            got = "a set in which double precision finds no point strictly inside"
            remedy = "Scale the coordinates, or leave out those of negligible ranges."
            check.fail("A theta <= b", "a set with interior points", got, remedy)

    @property
    def rank(self) -> int:
        """Dimension of the affine hull."""
        return int(self.chart.rows.shape[1])

    @cached_property
    def is_full(self) -> bool:
        """Whether the set has interior points, without any equality."""
        return self.rank == self.dim

    @cached_property
    def center(self) -> Array:
        """Analytic center."""
        return np.asarray(self.move_inside(self.to_given(self.chart.origin)[None])[0])

    def to_given(self, z: Array) -> Array:
        """Return the user's coordinates of points z, along the last axis."""
        reduced = self.reduction
        # x is unit (spread z + shift).
        points = z @ reduced.spread.T + reduced.shift
        return np.asarray(self.unit * points)

    @cached_property
    def coordinates(self) -> Coordinates:
        """Origin and basis of v, and a left inverse of the basis."""
        chart, spread = self.chart, self.reduction.spread
        # Each z is one of the x, up to its unit. The x with the largest entry is taken,
        # because it loses the fewest digits.
        by_column = abs(spread).tocsc()
        columns = np.array(
            [
                by_column.indices[begin + int(np.argmax(by_column.data[begin:end]))]
                for begin, end in zip(
                    by_column.indptr[:-1], by_column.indptr[1:], strict=True
                )
            ]
        )
        # A row has one entry. One of its maximum and its minimum is the entry, and the
        # other one 0.
        entries = spread[columns].max(axis=1).toarray().ravel()
        entries = entries + spread[columns].min(axis=1).toarray().ravel()
        inverse = np.zeros((self.rank, self.dim))
        inverse[:, columns] = chart.shares / (entries * self.unit)
        return Coordinates(
            origin=self.to_given(chart.origin),
            basis=self.unit * np.asarray(spread @ chart.basis),
            inverse=inverse,
            is_orthonormal=False,
        )

    @cached_property
    def hull(self) -> tuple[Array, Array, Array]:
        """Shortest point c of the affine hull, N, and R with basis = N R."""
        if self.is_full:
            eye = np.eye(self.dim)
            return np.zeros(self.dim), eye, self.coordinates.basis
        origin, basis = self.coordinates[:2]
        # basis = N R.
        normal, triangle = np.linalg.qr(basis)
        # The part of the origin that is orthogonal to all directions of the hull.
        return origin - normal @ (normal.T @ origin), normal, triangle

    @cached_property
    def normals(self) -> tuple[Array, Array]:
        """Orthonormal normals of the affine hull, as rows, and their levels."""
        from scipy import linalg

        basis = self.hull[1]
        # The last columns of a full Q are orthogonal to the columns of the basis.
        whole = linalg.qr(basis)[0]
        across: Array = np.ascontiguousarray(whole[:, self.rank :].T)
        return across, across @ self.coordinates.origin

    @cached_property
    def free_rows(self) -> tuple[Array, Array]:
        """Unit rows and bounds of the inequalities in w."""
        shortest, basis, root = self.hull
        # w = R v + start, so that rows v <= 1 becomes rows R^-1 w <= 1 + rows R^-1
        # start.
        rows = np.linalg.solve(root.T, self.chart.rows.T).T
        start = basis.T @ (self.coordinates.origin - shortest)
        sizes = np.linalg.norm(rows, axis=1)
        return rows / sizes[:, None], (1.0 + rows @ start) / sizes

    @cached_property
    def facets(self) -> tuple[Array, Array]:
        """Rows and bounds of the inequalities, along the affine hull."""
        rows, limits = self.free_rows
        # N'c = 0, so the bounds are those in w.
        return np.ascontiguousarray(rows @ self.hull[1].T), limits

    @cached_property
    def body(self) -> Body:
        """Numbers of the compiled functions."""
        facets, limits = self.facets
        across, level = self.normals
        bounds = {}
        if self.is_product:
            system = self.user_system
            bounds = {"lower": system.lower, "upper": system.upper}
        return body_around(
            self.center,
            matrix=np.vstack([across, facets]),
            bounds=np.append(level, limits),
            num_rows=len(across),
            tolerance=EQUAL * (1.0 + float(np.abs(self.center).max())),
            **bounds,
        )

    @property
    def is_product(self) -> bool:
        """Whether all constraints are finite bounds of single coordinates."""
        system = self.user_system
        is_finite = np.isfinite([system.lower, system.upper]).all()
        return bool(is_finite and system.rows.nnz == 0 and system.equal.nnz == 0)

    @cached_property
    def _ranges(self) -> tuple[Array, Array]:
        """Least and largest z, perhaps infinite."""
        if self.reduction.ranges is not None:
            return self.reduction.ranges
        system = self.reduction.system
        wants = np.ones((2, system.dim), dtype=bool)
        ranges = find_ranges(LinearProgram(system), system, wants)
        if ranges is None:
            ranges = Ranges(system.lower, system.upper, self.reduction.point, 0)
        return ranges.lower, ranges.upper

    @cached_property
    def _program_error(self) -> float:
        """Bound of the error of an optimum, in units.

        By weak duality a dual solution that is feasible up to `TOLERANCE` bounds the
        optimum up to the tolerance times the sum of the ranges.
        """
        low, high = self._ranges
        width = np.clip(high - low, 0.0, 1e3 * SIZE)
        return 2.0 * TOLERANCE * (1.0 + float(width.sum()))

    @cached_property
    def box(self) -> tuple[Array, Array]:
        """Bounds of all coordinates, rounded outwards by the error of the programs."""
        # Interval arithmetic of x = spread z + shift.
        low, high = self._ranges
        reduced = self.reduction
        # Least and largest values of x by the signs of the entries.
        positive, negative = reduced.spread.copy(), reduced.spread.copy()
        positive.data = np.maximum(positive.data, 0.0)
        negative.data = np.minimum(negative.data, 0.0)
        for part in (positive, negative):
            part.eliminate_zeros()  # `_times` takes them as 0 times infinity
        error = self._program_error
        with np.errstate(invalid="ignore"):
            low, high = low - error, high + error
            below = _times(positive, low) + _times(negative, high) + reduced.shift
            above = _times(positive, high) + _times(negative, low) + reduced.shift
        lower, upper = self.unit * below - 1e-300, self.unit * above + 1e-300
        return (
            np.maximum(np.nextafter(lower, -np.inf), self.user_system.lower),
            np.minimum(np.nextafter(upper, np.inf), self.user_system.upper),
        )

    @cached_property
    def _program(self) -> LinearProgram:
        return LinearProgram(self.reduction.system)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the model of the solver."""
        return {k: v for k, v in vars(self).items() if k != "_program"}

    def support(self, rows: Array) -> Values:
        """Return the largest <v, x> for each row v, perhaps infinite."""
        reduced, best = self.reduction, np.empty(len(rows))
        along = np.asarray(rows @ reduced.spread)
        for i, cost in enumerate(along):
            columns = np.flatnonzero(cost)
            # The cost is scaled to entries up to 1, to which tolerances refer.
            size = float(np.abs(cost).max(initial=0.0))
            value = float(rows[i] @ reduced.shift)
            if size > 0.0:
                answer = self._program.minimize(columns, -cost[columns] / size)
                top = math.inf
                if answer.is_optimal:
                    top = float(cost @ answer.x) + size * self._program_error
                value += top
            best[i] = self.unit * value
        return best

    def chord(self, point: Array, direction: Array) -> tuple[float, float]:
        """Return the interval of t for which ``point + t direction`` is inside.

        A direction off the affine hull has the interval (0, 0).
        """
        origin, _, inverse, _ = self.coordinates
        along = inverse @ direction
        off = np.abs(direction - self.coordinates.basis @ along).max()
        if off > 1e-9 * np.abs(direction).max():
            return 0.0, 0.0
        rates = self.chart.rows @ along
        slacks = 1.0 - self.chart.rows @ (inverse @ (point - origin))
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = slacks / rates
        last = float(ends[rates > 0.0].min(initial=math.inf))
        first = float(ends[rates < 0.0].max(initial=-math.inf))
        return (
            self._pull_inside(point, direction, min(first, 0.0)),
            self._pull_inside(point, direction, max(last, 0.0)),
        )

    def _pull_inside(self, point: Array, direction: Array, t: float) -> float:
        """Return a t towards 0 whose point is inside."""
        # The first pull is a rounding error. Each one is twice as long as the last.
        pull, inside = 2.0**-52, t
        while (
            np.isfinite(inside)
            and not self.is_inside((point + inside * direction)[None]).any()
        ):
            if pull >= 1.0:
                return 0.0
            inside, pull = t * (1.0 - pull), 2.0 * pull
        return inside

    def is_inside(self, points: Array) -> Bools:
        """Return which points satisfy the constraints, those of facets exactly.

        Equalities, hidden ones too, hold up to rounding errors: 1e-9 of the terms.
        """
        system = self.user_system
        size = np.abs(points) + np.abs(self.center)
        fixed, tight = self._hidden
        slack = EQUAL * (size + self.unit)
        low = np.where(fixed, system.lower - slack, system.lower)
        high = np.where(fixed, system.upper + slack, system.upper)
        is_inside = ((points >= low) & (points <= high)).all(axis=1)
        excess = points @ system.rows.T - system.limits
        error = EQUAL * (size @ abs(system.rows).T)
        is_inside &= (excess <= np.where(tight, error, 0.0)).all(axis=1)
        missed = np.abs(points @ system.equal.T - system.level)
        error = EQUAL * (size @ abs(system.equal).T + self._smallest_terms)
        is_inside &= (missed <= error).all(axis=1)
        # Equalities that follow from inequalities fix coordinates as well.
        if len(self._fixed):
            values, widths = self._fixed_values
            off = np.abs(points[:, self._fixed] - values)
            is_inside &= (off <= widths).all(axis=1)
        return np.asarray(is_inside & np.isfinite(points).all(axis=1))

    @cached_property
    def _smallest_terms(self) -> Array:
        """Size of the terms of equalities at coordinates of the size of 1e-6."""
        terms: Array = np.asarray(abs(self.user_system.equal).sum(axis=1)).ravel()
        return np.asarray(1e-6 * self.unit * terms)

    @cached_property
    def _fixed(self) -> Ints:
        """Coordinates that are constant."""
        return np.flatnonzero(np.diff(self.reduction.spread.indptr) == 0)

    @cached_property
    def _fixed_values(self) -> tuple[Array, Array]:
        values = self.unit * self.reduction.shift[self._fixed]
        return values, 2e-7 * self.unit + EQUAL * np.abs(values)

    @cached_property
    def _hidden(self) -> tuple[Bools, Bools]:
        """Coordinates, and rows of inequalities, that are constant on the set."""
        fixed = np.zeros(self.dim, dtype=bool)
        fixed[self._fixed] = True
        # A row is constant if the basis of the affine hull is orthogonal to it.
        # Sizes are sums of entries, to which rounding errors of a product are relative.
        sizes: Array = np.asarray(abs(self.system.rows).sum(axis=1)).ravel()
        basis = self.coordinates.basis / self.unit
        along = np.abs(np.asarray(self.system.rows @ basis))
        return fixed, along.max(axis=1, initial=0.0) <= 1e-9 * sizes

    def move_inside(self, points: Array) -> Array:
        """Return points that rounding errors have put outside, moved inside."""
        system = self.user_system
        inner_points = np.clip(points, system.lower, system.upper)
        if system.rows.shape[0] == 0:
            return inner_points
        tight = self._hidden[1]
        rows, limits = system.rows[np.flatnonzero(~tight)], system.limits[~tight]
        # Towards the analytic center, by a share that doubles until all points are
        # inside.
        pull, center = 2.0**-52, self.to_given(self.chart.origin)
        for _ in range(50):
            is_out = (np.asarray(inner_points @ rows.T) > limits).any(axis=1)
            if not is_out.any():
                break
            inner_points[is_out] = center + (1.0 - pull) * (
                inner_points[is_out] - center
            )
            inner_points = np.clip(inner_points, system.lower, system.upper)
            pull *= 2.0
        return inner_points


def _times(matrix: CSR, vector: Array) -> Array:
    """Return the product, in which 0 times infinity is 0."""
    product = matrix.copy()
    product.data = product.data * vector[product.indices]
    return np.asarray(product.sum(axis=1)).ravel()


def dense_rows(rows: Rows) -> Array:
    """Return rows as an array."""
    return rows if isinstance(rows, np.ndarray) else rows.toarray()
