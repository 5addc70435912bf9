"""Log densities of the targets for peers: in JAX, and with gradient in Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import targets
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


def to_ball(points: Any, radius: float, xp: Any) -> Any:
    """Map R^d to the ball: R z / sqrt(1 + |z|^2)."""
    return radius * points / xp.sqrt(1.0 + (points**2).sum(-1, keepdims=True))


def jax_log_density(case: targets.Case) -> Callable[[Any], Any]:
    """Log density in JAX, in the coordinates z of `to_ball` on a ball."""
    import jax.numpy as jnp

    # A dense product is faster here than gathers, also for sparse rows.
    rows = case.rows.toarray() if sparse.issparse(case.rows) else case.rows
    turned = jnp.asarray((rows * case.labels[:, None]).T.copy())

    def risk(theta: Any) -> Any:
        u = theta @ turned
        if case.loss == "hinge":
            return jnp.maximum(1.0 - u, 0.0).mean()
        return (jnp.maximum(-u, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(u)))).mean()

    def on_space(theta: Any) -> Any:
        return -case.k * (risk(theta) + 0.5 * case.mu * (theta**2).sum())

    def on_ball(z: Any) -> Any:
        volume = (0.5 * case.dim + 1.0) * jnp.log1p((z**2).sum())
        return on_space(to_ball(z, case.radius, jnp)) - volume

    return on_ball if case.domain == targets.BALL else on_space


def numba_log_density(case: targets.Case) -> Callable[[Array], tuple[float, Array]]:
    """Log density and gradient in Numba: one fused loop over CSR or dense rows."""
    import math

    import numba

    is_hinge, k, mu, dim = case.loss == "hinge", case.k, case.mu, case.dim
    has_ball, radius, size = case.domain == targets.BALL, case.radius, case.num_records
    is_sparse = sparse.issparse(case.rows)
    rows = sparse.csr_array(case.rows)
    values = rows.data * np.repeat(case.labels, np.diff(rows.indptr))
    columns, starts = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)

    @numba.njit(fastmath=True)
    def term(u: float) -> tuple[float, float]:
        if is_hinge:
            return max(1.0 - u, 0.0), -1.0 if u < 1.0 else 0.0
        e = math.exp(-abs(u))
        return math.log1p(e) + max(-u, 0.0), -(e if u >= 0.0 else 1.0) / (1.0 + e)

    @numba.njit(fastmath=True)
    def risk(values: Array, columns: Any, starts: Any, theta: Any, out: Any) -> float:
        total = 0.0
        for i in range(size):
            u = 0.0
            if is_sparse:
                for place in range(starts[i], starts[i + 1]):
                    u += values[place] * theta[columns[place]]
            else:
                for j in range(dim):
                    u += values[i * dim + j] * theta[j]
            value, slope = term(u)
            total += value
            if is_sparse:
                for place in range(starts[i], starts[i + 1]):
                    out[columns[place]] += slope * values[place]
            else:
                for j in range(dim):
                    out[j] += slope * values[i * dim + j]
        return total / size

    @numba.njit(fastmath=True)
    def compiled(values: Any, columns: Any, starts: Any, z: Any) -> Any:
        root = math.sqrt(1.0 + (z * z).sum()) if has_ball else 1.0
        theta = radius * z / root if has_ball else z
        out = np.zeros(dim)
        value = risk(values, columns, starts, theta, out)
        value = -k * (value + 0.5 * mu * (theta * theta).sum())
        out = -k * (out / size + mu * theta)
        if has_ball:
            value -= (dim + 2.0) * math.log(root)
            along = (out * z).sum() / root**2
            out = radius / root * (out - along * z) - (dim + 2.0) / root**2 * z
        return value, out

    return lambda z: compiled(values, columns, starts, z)
