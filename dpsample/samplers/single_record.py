"""Loss of one record at a time: what samplers query that never see all records."""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel


@kernel(fastmath={"reassoc"})
def dense_margin(row, theta):
    """Inner product, summed in any order."""
    result = 0.0
    for j in range(row.shape[0]):
        result += row[j] * theta[j]
    return result


@kernel
def margin(data, theta, i):
    """Return <a_i, theta> + offset_i."""
    if data.dense.shape[0] > 0:
        result = dense_margin(data.dense[i], theta)
    else:
        result = 0.0
        for j in range(data.starts[i], data.starts[i + 1]):
            result += data.values[j] * theta[data.columns[j]]
    if data.offset.shape[0] > 0:
        result += data.offset[i]
    return result


@kernel
def loss(target, pieces, u, i, work):
    """Loss of record i at margin u; NaN if the piece failed."""
    work.out[0] = np.nan
    pieces.loss_record(target.data.loss_params, u, target.data.response[i], work.out)
    return work.out[0]
