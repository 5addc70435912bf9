"""Rows of directions, dense or sparse, and their maxima over a box."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._sparse import as_csr, is_sparse

Vector = NDArray[np.float64]


def as_rows(directions: Any, dim: int | None = None) -> Any:
    """Directions as a CSR matrix or a float array with ``dim`` columns."""
    if is_sparse(directions):
        rows = as_csr("directions", directions)
    else:
        rows = check.vectors("directions", directions)
    if dim is not None and rows.shape[-1] != dim:
        check.fail("directions", f"of shape (..., {dim})", f"shape {rows.shape}")
    return rows


def box_support(rows: Any, lower: Vector, upper: Vector) -> Any:
    """Largest ``<v, x>`` over a box with possibly infinite sides, for every row v."""
    if is_sparse(rows):
        return _box_support_sparse(rows, lower, upper)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(rows == 0.0, 0.0, np.maximum(rows * lower, rows * upper)).sum(
            -1
        )


def _box_support_sparse(rows: Any, lower: Vector, upper: Vector) -> Vector:
    best = rows.copy()
    low, high = lower[rows.indices], upper[rows.indices]
    with np.errstate(invalid="ignore"):
        reached = np.maximum(best.data * low, best.data * high)
    best.data = np.where(best.data == 0.0, 0.0, reached)
    return np.asarray(best.sum(axis=1)).reshape(-1)
