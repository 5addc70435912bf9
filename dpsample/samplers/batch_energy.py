"""Energies of many points in one pass over the records.

The pass costs memory traffic once for all points. Dense features meet the points in one
matrix product per block of records; a sparse record adds its few rows of the transposed
points, so that the innermost loop runs over points and not over columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import targets
from dpsample._jit import kernel
from dpsample._pauses import is_due

Array = NDArray[np.float64]

BLOCK_NUMBERS = 32768  # 256 kB of margins: they stay in a second-level cache


class BatchWork(NamedTuple):
    """Scratch memory of a pass for up to ``same.size`` points."""

    margins: Array  # (BLOCK_NUMBERS or one record for all points,)
    transposed: Array  # (dim, num_points), or empty for dense features
    same: Array  # (num_points,): one response for all points
    work: Any  # of the records' own passes
    control: Array  # that of ``work``


def make_batch_work(target: Any, num_points: int) -> BatchWork:
    """Scratch memory for passes with up to ``num_points`` points."""
    data = target.data
    is_sparse = data.dense.shape[0] == 0
    work = target.new_work()
    return BatchWork(
        margins=np.empty(max(BLOCK_NUMBERS, num_points)),
        transposed=np.empty((data.dim if is_sparse else 0, num_points)),
        same=np.full(num_points, np.nan),
        work=work,
        control=work.control,
    )


@kernel
def add_dense(data, loss_value, points, work, totals, begin):
    """Add the losses of records from ``begin`` to totals; return the next one.

    That is behind the last one, or where a pause comes.
    """
    count = points.shape[0]
    width = max(1, work.margins.shape[0] // count)
    for start in range(begin, data.num_records, width):
        if start > begin and is_due(work.control):
            return start
        stop = min(start + width, data.num_records)
        margins = work.margins[: count * (stop - start)].reshape(count, stop - start)
        np.dot(points, data.dense[start:stop].T, margins)
        for b in range(count):
            row = margins[b]
            if data.offset.shape[0] > 0:
                for i in range(stop - start):
                    row[i] += data.offset[start + i]
            work.work.out[0] = np.nan
            loss_value(data.loss_params, row, data.response[start:stop], work.work.out)
            totals[b] += work.work.out[0]
    return data.num_records


@kernel
def add_row(value, row, out):
    """Add value times row to out."""
    for b in range(out.shape[0]):
        out[b] += value * row[b]


@kernel
def add_four_rows(values, rows, columns, first, out):
    """Add four scaled rows to out in one walk: it is bound by loads and stores."""
    v0, v1, v2, v3 = (
        values[first],
        values[first + 1],
        values[first + 2],
        values[first + 3],
    )
    r0, r1 = rows[columns[first]], rows[columns[first + 1]]
    r2, r3 = rows[columns[first + 2]], rows[columns[first + 3]]
    for b in range(out.shape[0]):
        out[b] += (v0 * r0[b] + v1 * r1[b]) + (v2 * r2[b] + v3 * r3[b])


@kernel
def add_sparse(data, loss_value, points, work, totals, begin):
    """Add the losses of records from ``begin`` to totals; return the next one."""
    count = points.shape[0]
    margins, same = work.margins[:count], work.same[:count]
    rows = work.transposed.reshape(-1)[: data.dim * count].reshape(data.dim, count)
    for j in range(data.dim):
        for b in range(count):
            rows[j, b] = points[b, j]
    for i in range(begin, data.num_records):
        if i > begin and is_due(work.control):
            return i
        margins[:] = data.offset[i] if data.offset.shape[0] > 0 else 0.0
        j, end = data.starts[i], data.starts[i + 1]
        while j + 4 <= end:
            add_four_rows(data.values, rows, data.columns, j, margins)
            j += 4
        while j < end:
            add_row(data.values[j], rows[data.columns[j]], margins)
            j += 1
        if i == 0 or data.response[i] != data.response[i - 1]:
            same[:] = data.response[i]
        work.work.out[0] = np.nan
        loss_value(data.loss_params, margins, same, work.work.out)
        # A piece that stops halfway leaves its sum NaN, and with it the energy.
        for b in range(count):
            totals[b] += margins[b] + 0.0 * work.work.out[0]
    return data.num_records


@kernel
def energies(target, pieces, points, work, out, begin):
    """Fill out with V = k (F + mu r) at each row of points; NaN if a piece failed.

    Returns the record before which a pause comes, and which ``begin`` is then in the
    next call; the number of records if ``out`` is complete.
    """
    data = target.data
    if begin == 0:
        out[:] = 0.0
    if data.dense.shape[0] > 0:
        begin = add_dense(data, pieces.loss_value, points, work, out, begin)
    else:
        begin = add_sparse(data, pieces.loss_value, points, work, out, begin)
    if begin < data.num_records:
        return begin
    for b in range(points.shape[0]):
        penalty = targets.regularizer(target, pieces, points[b], work.work)
        out[b] = target.k * (out[b] / data.num_records + target.mu * penalty)
    return begin
