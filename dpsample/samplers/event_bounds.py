r"""Bounds of every record's remainder, arranged so that records can be drawn by them.

A record's |s_i|^3, s_i = <a_i, delta>, is bounded by one of

    ||a_i||_2^3 ||delta||_2^3,    ||a_i||_{H^{-1}}^3 ||delta||_H^3,

    S_i^2 sum_j |a_ij| sd_j |delta_j / sd_j|^3,    S_i = sum_j |a_ij| sd_j,

the last by Jensen's inequality, sharp for sparse rows. Each is a weight of the record
times a cube of the displacement: one channel per norm and per coordinate. A record
takes the bound with the smallest mean under the Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.samplers import alias_table
from dpsample.samplers.taylor import Expansion
from dpsample.targets import as_rows

Array = NDArray[np.float64]

# Covers the rounding of norms and sums.
SLACK = 1.0 + 1e-9
BLOCK = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """Channels 0 .. dim - 1 are coordinates, dim the norm of H, dim + 1 of l2.

    Attributes
    ----------
    spread : array of shape (dim,)
        Standard deviations sd_j of the Gaussian.
    coefficients : array of shape (num_records,)
        Weight of each record's bound, the scale included.
    weights : array of shape (dim + 2,)
        Sum over a channel's entries of coefficient (times ``|a_ij|``).
    starts, entries : arrays of shape (dim + 3,), (num_entries,)
        Records of each channel.
    share, other : arrays of shape (num_entries,)
        Alias table of each channel.
    expected : float
        Mean of the total rate for two independent draws of the Gaussian.
    """

    spread: Array
    coefficients: Array
    weights: Array
    starts: NDArray[np.int64]
    table: NDArray[np.void]
    expected: float


def channels(target: Any, expansion: Expansion, scale: float) -> Channels:
    """Give each record its bound and each channel its alias table.

    Parameters
    ----------
    target : Gibbs
        The target.
    expansion : Expansion
        Its expansion.
    scale : float
        Factor k M / (6 n) of all bounds.

    Returns
    -------
    Channels
        The arrangement; without entries if the scale is 0.
    """
    rows, dim = as_rows(target.data), target.dim
    is_sparse = hasattr(rows, "indptr")
    spread = np.sqrt(np.einsum("ij,ij->i", expansion.factor, expansion.factor))
    displaced = expansion.probes @ expansion.factor.T
    cubes = np.array([_mean_cube(expansion.probes), _mean_cube(displaced)])
    sizes = np.concatenate(
        [
            _sizes(rows[start : start + BLOCK], expansion.factor, spread, is_sparse)
            for start in range(0, rows.shape[0], BLOCK)
        ]
    )
    shares = spread * np.mean(np.abs(displaced / spread) ** 3, axis=0)
    costs = sizes**3
    costs[:, :2] *= cubes
    if is_sparse:
        costs[:, 2] = sizes[:, 2] ** 2 * (abs(rows) @ shares)
    kind = np.argmin(costs[:, : 3 if is_sparse else 2], axis=1)
    powers = np.where(kind == 2, 2.0, 3.0)
    coefficients = scale * SLACK * sizes[np.arange(len(kind)), kind] ** powers
    starts, entries, weights = _segments(rows, kind, coefficients, dim)
    table = np.zeros(len(entries), dtype=alias_table.COLUMN)
    alias_table.fill_all(weights, entries, starts, table)
    parts = [weights[a:b].sum() for a, b in zip(starts, starts[1:], strict=False)]
    return Channels(
        spread=spread,
        coefficients=coefficients,
        weights=np.array(parts),
        starts=starts,
        table=table,
        expected=float(2.0 * scale * costs[np.arange(len(kind)), kind].sum()),
    )


def _mean_cube(displacements: Array) -> float:
    return float(np.mean(np.linalg.norm(displacements, axis=1) ** 3))


def _sizes(part: Any, factor: Array, spread: Array, is_sparse: bool) -> Array:
    """Norm in H^{-1}, norm in l2, and weighted l1 norm of each row."""
    white = part @ factor
    squares = part.multiply(part).sum(axis=1) if is_sparse else (part * part).sum(1)
    flat: Array = abs(part) @ spread
    square = np.einsum("ij,ij->i", white, white)
    norms: Array = np.sqrt(
        np.stack([square, np.asarray(squares).ravel(), flat * flat], 1)
    )
    return norms


def _segments(
    rows: Any, kind: NDArray[np.int64], coefficients: Array, dim: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return starts, records and weights of all channels."""
    counts, records, weights = [np.zeros(dim, dtype=np.int64)], [], []
    if np.any(kind == 2):
        from scipy import sparse

        scaled = sparse.diags(np.where(kind == 2, coefficients, 0.0)) @ abs(rows)
        columns = scaled.tocsc()
        columns.eliminate_zeros()
        counts[0] = np.diff(columns.indptr).astype(np.int64)
        records.append(columns.indices.astype(np.int64))
        weights.append(columns.data)
    for norm in (0, 1):
        found = np.flatnonzero((kind == norm) & (coefficients > 0.0))
        counts.append(np.array([len(found)], dtype=np.int64))
        records.append(found)
        weights.append(coefficients[found])
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return starts, np.concatenate(records), np.concatenate(weights)
