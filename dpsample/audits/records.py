"""The one record in which neighboring problems differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import _columns
from dpsample.losses import Loss
from dpsample.problem import Problem
from dpsample.targets import as_rows

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One record: row (with the intercept's 1, if any), response and offset."""

    row: Array
    response: float
    offset: float

    def loss(self, loss: Loss, points: Array) -> Array:
        """Loss at each row of ``points``, shape (num_points,)."""
        return loss.value(points @ self.row + self.offset, self.response)

    def near(self, problem: Problem) -> Record:
        """Record whose loss differs by a constant; see `Loss.near_response`."""
        response = problem.loss.near_response(
            np.array([self.response]), problem.facts.margin_bound
        )
        return replace(self, response=float(response[0]))

    def is_constant(self, loss: Loss) -> bool:
        """Whether the loss is the same at every point."""
        is_neutral = loss.name == "linear" and self.response == 0.0
        return is_neutral or not self.row.any()


def differing_records(
    problem: Problem, neighbor: Problem, relation: str
) -> tuple[Record, Record]:
    """Find the records of two problems at the place where they differ.

    Parameters
    ----------
    problem, neighbor : Problem
        Problems with the same public facts and columns.
    relation : {"replace_one", "zero_out"}
        How they have to differ.

    Returns
    -------
    tuple of Record
        The record in either problem.

    Raises
    ------
    ValueError
        If they do not differ in exactly one record, or none of the two records has a
        loss that is constant under "zero_out".
    """
    _columns.same("neighbor", neighbor.feature_names, problem.feature_names)
    first, second = problem.data, neighbor.data
    changed = (first.response != second.response) | _changed_rows(problem, neighbor)
    if first.offset.size or second.offset.size:
        changed |= _offsets(problem) != _offsets(neighbor)
    places = np.flatnonzero(changed)
    if places.size != 1:
        check.fail(
            "neighbor",
            "different from problem in exactly one record",
            f"{places.size} records that differ",
            "See dps.audits.neighbors for pairs.",
        )
    pair = _record(problem, int(places[0])), _record(neighbor, int(places[0]))
    if relation == "zero_out" and not any(r.is_constant(problem.loss) for r in pair):
        check.fail(
            "neighbor",
            "problem with one record's loss set to zero",
            "two records that both count",
            "Under zero_out one of the two needs a row of zeros (and no intercept).",
        )
    return pair


def _changed_rows(problem: Problem, neighbor: Problem) -> NDArray[np.bool_]:
    first, second = as_rows(problem.data), as_rows(neighbor.data)
    if hasattr(first, "indptr") or hasattr(second, "indptr"):
        from scipy import sparse

        gap = sparse.csr_matrix(first) - sparse.csr_matrix(second)
        gap.eliminate_zeros()
        return np.asarray(np.diff(gap.indptr) > 0)
    return np.asarray((first != second).any(axis=1))


def _offsets(problem: Problem) -> Array:
    offset = problem.data.offset
    return offset if offset.size else np.zeros(problem.num_records)


def _record(problem: Problem, i: int) -> Record:
    row = as_rows(problem.data)[[i]]
    dense = row.toarray() if hasattr(row, "toarray") else np.array(row)
    return Record(
        row=dense.reshape(-1),
        response=float(problem.data.response[i]),
        offset=float(_offsets(problem)[i]),
    )
