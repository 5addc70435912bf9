"""Sparse linear programs over one set, solved one after the other from the last basis.

A program minimizes a linear function of x over the points with

    level = E x,   rows x <= limits,   lower <= x <= upper.

`LinearProgram` keeps the model of HiGHS. A later program changes the objective only, so
the last vertex is still feasible, and the primal simplex method begins there. The next
vertex is then a few pivots away instead of hundreds.

All tolerances of the solver are absolute. So callers pass numbers in units in which the
largest bounds are about `SIZE`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array, Ints
from dpsample.core.sparse import CSR

# Size of the largest bounds in the units of a program.
SIZE = 1000.0
# Feasibility and optimality tolerance of the solver, in these units.
TOLERANCE = 1e-9


class System(NamedTuple):
    """The points x with ``equal x = level``, ``rows x <= limits`` and simple bounds."""

    equal: CSR  # (l, n)
    level: Array  # (l,)
    rows: CSR  # (m, n)
    limits: Array  # (m,)
    lower: Array  # (n,), perhaps -infinity
    upper: Array  # (n,), perhaps infinity

    @property
    def dim(self) -> int:
        """Number n of coordinates."""
        return len(self.lower)

    def violations(self, point: Array) -> tuple[Array, Array, Array]:
        """Return how far a point violates equalities, inequalities and bounds."""
        outside = np.maximum(self.lower - point, point - self.upper)
        return (
            np.abs(self.equal @ point - self.level),
            np.maximum(self.rows @ point - self.limits, 0.0),
            np.maximum(outside, 0.0),
        )


class Solution(NamedTuple):
    """Vertex that a program ended at, and its dual solution."""

    is_optimal: bool
    is_unbounded: bool
    x: Array
    row_duals: Array  # equalities first, then inequalities
    reduced_costs: Array


class LinearProgram:
    """Programs over one system."""

    def __init__(self, system: System, cost: Array | None = None) -> None:
        import highspy
        from scipy import sparse

        self._highs = highspy
        num_equal, dim = system.equal.shape
        matrix = sparse.csc_array(sparse.vstack([system.equal, system.rows]))
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = dim, matrix.shape[0]
        model.col_cost_ = np.zeros(dim) if cost is None else cost
        model.col_lower_, model.col_upper_ = system.lower, system.upper
        below = np.full(len(system.limits), -np.inf)
        model.row_lower_ = np.concatenate([system.level, below])
        model.row_upper_ = np.concatenate([system.level, system.limits])
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = matrix.indptr
        model.a_matrix_.index_ = matrix.indices
        model.a_matrix_.value_ = matrix.data
        # The subclass for Python code prints a banner when it is built.
        solver: Any = highspy.Highs.__bases__[0]()
        options = {
            "output_flag": False,
            "threads": 1,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
            "small_matrix_value": 1e-12,
            "presolve": "off",
        }
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.passModel(model)
        self._solver = solver
        self._num_rows = num_equal + len(system.limits)

    def solve(self) -> Solution:
        """Solve for the present objective, from the last basis."""
        pauses.notify_listeners()
        solver, states = self._solver, self._highs.HighsModelStatus
        for attempt in range(3):
            if attempt:
                # The last basis may be singular to working precision. The dual simplex
                # method from the start, and then presolve, may find the solution.
                solver.clearSolver()
                solver.setOptionValue("simplex_strategy", 1)
                solver.setOptionValue("presolve", "on" if attempt == 2 else "off")
            solver.run()
            status = solver.getModelStatus()
            if status in (states.kOptimal, states.kUnbounded, states.kInfeasible):
                break
        solver.setOptionValue("presolve", "off")
        # Primal simplex, because the last vertex is feasible for the next objective.
        solver.setOptionValue("simplex_strategy", 4)
        answer = solver.getSolution()
        return Solution(
            is_optimal=status == states.kOptimal,
            is_unbounded=status == states.kUnbounded,
            x=np.array(answer.col_value),
            row_duals=np.array(answer.row_dual),
            reduced_costs=np.array(answer.col_dual),
        )

    def minimize(self, columns: Ints, costs: Array) -> Solution:
        """Solve for an objective with few entries, and reset them to 0."""
        for column, cost in zip(columns.tolist(), costs.tolist(), strict=True):
            self._solver.changeColCost(column, cost)
        solution = self.solve()
        for column in columns.tolist():
            self._solver.changeColCost(column, 0.0)
        return solution


class Ranges(NamedTuple):
    """Least and largest value of each coordinate, and the mean of the vertices."""

    lower: Array
    upper: Array
    mean: Array
    num_programs: int


def find_ranges(program: LinearProgram, system: System, wants: Array) -> Ranges | None:
    """Return ranges of the coordinates, by two programs each. None if one fails.

    A program is left out if a vertex is already at the bound that limits it. ``wants``
    is (2, n): where it is False the range is only that of the vertices. An unbounded
    program gives an infinite range.
    """
    dim = system.dim
    low, high = np.full(dim, np.inf), np.full(dim, -np.inf)
    mean, num_programs = np.zeros(dim), 0
    with np.errstate(invalid="ignore"):  # no vertex is at an infinite bound
        ends = (
            (1.0, system.lower + 1e-12 * (1.0 + np.abs(system.lower))),
            (-1.0, system.upper - 1e-12 * (1.0 + np.abs(system.upper))),
        )
    is_endless = np.zeros((2, dim), dtype=bool)
    for j in range(dim):
        for side, (sign, end) in enumerate(ends):
            reached = low[j] <= end[j] if side == 0 else high[j] >= end[j]
            if reached or not wants[side, j]:
                continue
            answer = program.minimize(np.array([j]), np.array([sign]))
            if answer.is_unbounded:
                is_endless[side, j] = True
                continue
            if not answer.is_optimal:
                return None
            num_programs += 1
            low, high = np.minimum(low, answer.x), np.maximum(high, answer.x)
            mean += answer.x
    if num_programs == 0:
        answer = program.solve()
        if not answer.is_optimal:
            return None
        low, high = np.minimum(low, answer.x), np.maximum(high, answer.x)
        mean, num_programs = answer.x, 1
    low[is_endless[0]], high[is_endless[1]] = -np.inf, np.inf
    return Ranges(low, high, mean / num_programs, num_programs)
