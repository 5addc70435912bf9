"""Log densities of the targets for peers: in JAX, and with gradient in Numba.

On a ball, a box or a simplex they are those of coordinates z in the whole space:

============= ==================================== ===================================
l2 ball       theta = R z / sqrt(1 + |z|^2)        log J = -(d + 2) log sqrt(1 + |z|^2)
box           theta = R tanh(z / 2)                log J = sum log(1 - tanh(z / 2)^2)
simplex       theta = softmax(B z)                 log J = sum log theta
============= ==================================== ===================================

up to constants, where the columns of B are an orthonormal basis of the zero-sum
vectors: the isometric log-ratio, and the logit of Stan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import targets
from numpy.typing import NDArray
from scipy import linalg, sparse

Array = NDArray[np.float64]
FREE = (targets.WHOLE, targets.BALL, targets.BOX, targets.SIMPLEX)


def has_coordinates(case: targets.Case) -> bool:
    """Return whether the domain has standard coordinates in the whole space."""
    is_round = case.domain != targets.BALL or case.p == 2.0
    return case.domain in FREE and is_round


def free_dim(case: targets.Case) -> int:
    """Return the number of coordinates z."""
    return case.dim - int(case.domain == targets.SIMPLEX)


def zero_sums(dim: int) -> Array:
    """Orthonormal basis of the vectors whose sum is 0, as columns."""
    return linalg.helmert(dim).T.copy()


def to_domain(case: targets.Case, z: Any, xp: Any) -> tuple[Any, Any]:
    """Point and log Jacobian up to a constant, from NumPy or JAX coordinates."""
    if case.domain == targets.BALL:
        root = xp.sqrt(1.0 + (z**2).sum(-1, keepdims=True))
        return case.radius * z / root, -(case.dim + 2.0) * xp.log(root[..., 0])
    if case.domain == targets.BOX:
        # log(1 - tanh(z/2)^2), without the cancellation in the tails.
        volume = 2.0 * np.log(2.0) - xp.abs(z) - 2.0 * xp.log1p(xp.exp(-xp.abs(z)))
        return case.radius * xp.tanh(0.5 * z), volume.sum(-1)
    if case.domain == targets.SIMPLEX:
        logits = z @ zero_sums(case.dim).T
        top = logits.max(-1, keepdims=True)
        logs = logits - top - xp.log(xp.exp(logits - top).sum(-1, keepdims=True))
        return xp.exp(logs), logs.sum(-1)
    return z, 0.0


def jax_log_density(case: targets.Case) -> Callable[[Any], Any]:
    """Log density in JAX, in the coordinates z of `to_domain`."""
    import jax.numpy as jnp

    # A dense product is faster here than gathers, also for sparse rows.
    rows = case.rows.toarray() if sparse.issparse(case.rows) else case.rows
    turned, y = jnp.asarray(rows.T.copy()), jnp.asarray(case.labels)

    def losses(u: Any) -> Any:
        if case.loss == "logistic":
            m = u * y
            return jnp.maximum(-m, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(m)))
        if case.loss == "hinge":
            return jnp.maximum(1.0 - u * y, 0.0)
        r = y - u
        if case.loss == "absolute":
            return jnp.abs(r)
        if case.loss == "quantile":
            return jnp.maximum(case.option * r, (case.option - 1.0) * r)
        if case.loss == "huber":
            inner = jnp.minimum(jnp.abs(r), case.option)
            return inner * (jnp.abs(r) - 0.5 * inner)
        return 0.5 * r**2

    def log_density(z: Any) -> Any:
        theta, volume = to_domain(case, z, jnp)
        risk = losses(theta @ turned).mean()
        return volume - case.k * (risk + 0.5 * case.mu * (theta**2).sum())

    return log_density


def numba_loss(case: targets.Case) -> Any:
    """Loss and slope of a margin in Numba."""
    import math

    import numba

    option = case.option

    @numba.njit(fastmath=True)
    def logistic(u: float, y: float) -> tuple[float, float]:
        m = u * y
        e = math.exp(-abs(m))
        slope = -(e if m >= 0.0 else 1.0) / (1.0 + e)
        return math.log1p(e) + max(-m, 0.0), y * slope

    @numba.njit(fastmath=True)
    def hinge(u: float, y: float) -> tuple[float, float]:
        return max(1.0 - u * y, 0.0), -y if u * y < 1.0 else 0.0

    @numba.njit(fastmath=True)
    def absolute(u: float, y: float) -> tuple[float, float]:
        return abs(u - y), 1.0 if u > y else -1.0

    @numba.njit(fastmath=True)
    def quantile(u: float, y: float) -> tuple[float, float]:
        slope = -option if y > u else 1.0 - option
        return slope * (u - y), slope

    @numba.njit(fastmath=True)
    def huber(u: float, y: float) -> tuple[float, float]:
        slope = min(max(u - y, -option), option)
        return slope * (u - y - 0.5 * slope), slope

    @numba.njit(fastmath=True)
    def squared(u: float, y: float) -> tuple[float, float]:
        return 0.5 * (u - y) ** 2, u - y

    kinds = (logistic, hinge, absolute, quantile, huber, squared)
    return {kind.__name__: kind for kind in kinds}[case.loss]


def numba_maps(case: targets.Case) -> tuple[Any, Any]:
    """`to_domain` in Numba, and its pull-back of a gradient, log Jacobian included."""
    import math

    import numba

    radius, dim = case.radius, case.dim
    basis = zero_sums(dim) if case.domain == targets.SIMPLEX else np.zeros((1, 1))

    @numba.njit(fastmath=True)
    def from_space(z: Any) -> Any:
        return z, 0.0

    @numba.njit(fastmath=True)
    def back_to_space(z: Any, theta: Any, gradient: Any) -> Any:
        return gradient

    @numba.njit(fastmath=True)
    def into_ball(z: Any) -> Any:
        root = math.sqrt(1.0 + (z * z).sum())
        return radius * z / root, -(dim + 2.0) * math.log(root)

    @numba.njit(fastmath=True)
    def back_from_ball(z: Any, theta: Any, gradient: Any) -> Any:
        root = math.sqrt(1.0 + (z * z).sum())
        along = ((gradient * z).sum() * radius / root + dim + 2.0) / root**2
        return radius / root * gradient - along * z

    @numba.njit(fastmath=True)
    def into_box(z: Any) -> Any:
        size = np.abs(z)
        volume = (2.0 * math.log(2.0) - size - 2.0 * np.log1p(np.exp(-size))).sum()
        return radius * np.tanh(0.5 * z), volume

    @numba.njit(fastmath=True)
    def back_from_box(z: Any, theta: Any, gradient: Any) -> Any:
        t = np.tanh(0.5 * z)
        return 0.5 * radius * (1.0 - t * t) * gradient - t

    @numba.njit(fastmath=True)
    def into_simplex(z: Any) -> Any:
        logits = basis @ z
        logits -= logits.max()
        logits -= math.log(np.exp(logits).sum())
        return np.exp(logits), logits.sum()

    @numba.njit(fastmath=True)
    def back_from_simplex(z: Any, theta: Any, gradient: Any) -> Any:
        inner = theta * (gradient - (gradient * theta).sum()) + 1.0 - dim * theta
        return basis.T @ inner

    return {
        targets.WHOLE: (from_space, back_to_space),
        targets.BALL: (into_ball, back_from_ball),
        targets.BOX: (into_box, back_from_box),
        targets.SIMPLEX: (into_simplex, back_from_simplex),
    }[case.domain]


def numba_log_density(case: targets.Case) -> Callable[[Array], tuple[float, Array]]:
    """Log density and gradient in Numba: one fused loop over CSR or dense rows."""
    import numba

    loss, (forward, back) = numba_loss(case), numba_maps(case)
    k, mu, dim, size = case.k, case.mu, case.dim, case.num_records
    is_sparse = sparse.issparse(case.rows)
    rows = sparse.csr_array(case.rows)
    values = rows.data if is_sparse else np.ascontiguousarray(case.rows).ravel()
    columns, starts = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)

    @numba.njit(fastmath=True)
    def risk(
        values: Array, columns: Any, starts: Any, labels: Any, theta: Any, out: Any
    ) -> float:
        total = 0.0
        for i in range(size):
            u = 0.0
            if is_sparse:
                for entry in range(starts[i], starts[i + 1]):
                    u += values[entry] * theta[columns[entry]]
            else:
                for j in range(dim):
                    u += values[i * dim + j] * theta[j]
            value, slope = loss(u, labels[i])
            total += value
            if is_sparse:
                for entry in range(starts[i], starts[i + 1]):
                    out[columns[entry]] += slope * values[entry]
            else:
                for j in range(dim):
                    out[j] += slope * values[i * dim + j]
        return total / size

    @numba.njit(fastmath=True)
    def log_density(values: Any, columns: Any, starts: Any, labels: Any, z: Any) -> Any:
        theta, volume = forward(z)
        out = np.zeros(dim)
        value = risk(values, columns, starts, labels, theta, out)
        value = volume - k * (value + 0.5 * mu * (theta * theta).sum())
        return value, back(z, theta, -k * (out / size + mu * theta))

    return lambda z: log_density(values, columns, starts, case.labels, z)
