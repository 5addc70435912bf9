"""Columns of the features: the records that one coordinate moves, and their rates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.records import Data
from dpsample.targets import as_rows

Array = NDArray[np.float64]


class Columns(NamedTuple):
    """Features by columns; ``dense`` or ``values`` is empty."""

    dense: Array  # (dim, num_records) or (0, 0)
    starts: NDArray[np.int64]  # (dim + 1,)
    rows: NDArray[np.int64]
    values: Array


class Moved(NamedTuple):
    """Scratch memory for the records that a move changes."""

    rows: NDArray[np.int64]
    rates: Array
    margins: Array
    response: Array


def make_columns(data: Data) -> Columns:
    """Copy of the features by columns."""
    none = np.empty(0, dtype=np.int64)
    if data.dense.shape[0] > 0:
        dense = np.ascontiguousarray(data.dense.T)
        return Columns(dense, none, none, np.empty(0))
    by_columns = as_rows(data).tocsc()
    by_columns.sort_indices()
    return Columns(
        dense=np.empty((0, 0)),
        starts=by_columns.indptr.astype(np.int64),
        rows=by_columns.indices.astype(np.int64),
        values=np.array(by_columns.data),
    )


def no_columns() -> Columns:
    """Columns of a target whose conditionals need no record."""
    none = np.empty(0, dtype=np.int64)
    return Columns(np.empty((0, 0)), none, none, np.empty(0))


def make_moved(columns: Columns) -> Moved:
    """Scratch memory for one chain: room for all records of two columns."""
    size = columns.dense.shape[1]
    if columns.values.size:
        size = 2 * int(np.diff(columns.starts).max())
    rows = np.empty(size, dtype=np.int64)
    return Moved(rows, np.empty(size), np.empty(size), np.empty(size))


@kernel
def gather(columns, i, j, moved):
    """Rows and rates of a_i (j < 0) or a_i - a_j; return their number."""
    first, last = columns.starts[i], columns.starts[i + 1]
    other, stop = 0, 0
    if j >= 0:
        other, stop = columns.starts[j], columns.starts[j + 1]
    size = 0
    while first < last or other < stop:
        if other >= stop or (
            first < last and columns.rows[first] < columns.rows[other]
        ):
            moved.rows[size], moved.rates[size] = (
                columns.rows[first],
                columns.values[first],
            )
            first += 1
        elif first >= last or columns.rows[other] < columns.rows[first]:
            moved.rows[size], moved.rates[size] = (
                columns.rows[other],
                -columns.values[other],
            )
            other += 1
        else:
            moved.rows[size] = columns.rows[first]
            moved.rates[size] = columns.values[first] - columns.values[other]
            first, other = first + 1, other + 1
        size += 1
    return size


@kernel
def select(columns, response, margins, i, j, moved):
    """Margins, rates and responses of the records that the move e_i (- e_j) changes."""
    if columns.dense.shape[0] > 0:
        if j < 0:
            return margins, columns.dense[i], response
        for m in range(margins.shape[0]):
            moved.rates[m] = columns.dense[i, m] - columns.dense[j, m]
        return margins, moved.rates[: margins.shape[0]], response
    size = gather(columns, i, j, moved)
    for m in range(size):
        moved.margins[m] = margins[moved.rows[m]]
        moved.response[m] = response[moved.rows[m]]
    return moved.margins[:size], moved.rates[:size], moved.response[:size]


@kernel
def shift(columns, margins, rates, t, moved):
    """Add t times the rates to the margins, after `select`."""
    if columns.dense.shape[0] > 0:
        for m in range(rates.shape[0]):
            margins[m] += t * rates[m]
    else:
        for m in range(rates.shape[0]):
            margins[moved.rows[m]] += t * rates[m]
