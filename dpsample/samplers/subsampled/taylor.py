r"""Second-order expansion of the energy at an anchor, record by record.

    V(c + delta) = V(c) + g . delta + delta^T H delta / 2 + (k / n) sum_i rho_i + rho_r,

    rho_i = phi(u_i + s_i) - phi(u_i) - phi'(u_i) s_i - phi''(u_i) s_i^2 / 2,

with s_i = <a_i, delta> and |rho_i| <= M |s_i|^3 / 6; rho_r is the regularizer's own.
The first three terms are the Gaussian N(c - H^{-1} g, H^{-1}), for any anchor c.
"""

from dataclasses import dataclass

import numpy as np

from dpsample.core.arrays import Array
from dpsample.problem.records import curvature_matrix
from dpsample.samplers import gaussian_fit
from dpsample.targets.gibbs import Gibbs, as_rows

MAX_ITERATIONS = 20
NUM_PROBES = 400
# A smaller share of the largest eigenvalue is no curvature.
SINGULAR = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Expansion:
    """Anchor, Gaussian and the records' derivatives at the anchor.

    Displacements are delta = factor v with v ~ N(shift, I) under the Gaussian.
    """

    anchor: Array  # (dim,), in the domain
    shift: Array  # (m,)
    factor: Array  # (dim, m)
    whiten: Array  # (m, dim)
    records: Array  # (num_records, 4): margin, loss, slope, curvature
    slope: Array  # (dim,): gradient of r; empty if r is quadratic
    hessian: Array  # (dim, dim): what stands for the Hessian of r, or empty
    share_inside: float  # of the Gaussian's mass
    probes: Array  # (NUM_PROBES, m): draws of v


def third_derivative(target: Gibbs) -> float:
    """Bound of the loss's third derivative on all margins of the domain."""
    lower, upper = target.margin_intervals()
    response = target.data.response
    reach = float(np.maximum(np.abs(lower), np.abs(upper)).max(initial=0.0))
    loss = target.problem.loss
    return float(loss.third_derivative_bound(reach, float(np.abs(response).max())))


def has_curvature(target: Gibbs) -> bool:
    """Whether the loss knows its second derivative at a point."""
    lower, upper = _curvatures(target, np.zeros(target.data.num_records))
    return bool(np.array_equal(lower, upper))


def expand(target: Gibbs) -> Expansion | None:
    """Expansion at the mode, or at a point of the domain near it.

    The loss must have a second derivative. None where the Hessian is singular, so that
    there is no Gaussian.
    """
    basis = gaussian_fit.hull_basis(target)
    anchor = gaussian_fit.fit(target).center
    contains = target.problem.domain.contains
    for _ in range(MAX_ITERATIONS):
        gradient, hessian = _derivatives(target, basis, anchor)
        eigenvalues = np.linalg.eigvalsh(hessian)
        if not eigenvalues[0] > SINGULAR * eigenvalues[-1]:
            return None
        move = np.linalg.solve(hessian, gradient)
        following = anchor - basis @ move
        if not contains(following) or move @ gradient < 1e-20:
            break
        anchor = following
    gradient, hessian = _derivatives(target, basis, anchor)
    root = np.linalg.cholesky(hessian)
    # Rounding leaves the inverse of a triangle not quite triangular.
    factor = np.ascontiguousarray(basis @ np.triu(np.linalg.inv(root).T))
    probes = np.random.default_rng(0).standard_normal((NUM_PROBES, len(root)))
    probes -= np.linalg.solve(root, gradient)
    inside = [contains(anchor + factor @ probe) for probe in probes]
    slope, curved = _regularizer(target, anchor)
    return Expansion(
        anchor=anchor,
        shift=-np.linalg.solve(root, gradient),
        factor=factor,
        whiten=np.ascontiguousarray((basis @ root).T),
        records=_records(target, anchor),
        slope=slope,
        hessian=curved,
        share_inside=float(np.mean(inside)),
        probes=probes,
    )


def _curvatures(target: Gibbs, margins: Array) -> tuple[Array, Array]:
    loss, response = target.problem.loss, target.data.response
    lower, upper = loss.curvature(margins, margins, response)
    return np.asarray(lower), np.asarray(upper)


def _records(target: Gibbs, anchor: Array) -> Array:
    data = target.data
    margins = as_rows(data) @ anchor + (data.offset if data.offset.size else 0.0)
    values, slopes = target.problem.loss._evaluate(margins, data.response)
    curvatures = _curvatures(target, margins)[0]
    return np.ascontiguousarray(np.stack([margins, values, slopes, curvatures], 1))


def _derivatives(target: Gibbs, basis: Array, theta: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of the energy in the basis."""
    weights = _records(target, theta)[:, 3]
    hessian = curvature_matrix(target.data, weights)
    hessian = hessian + target.mu * gaussian_fit.regularizer_hessian(target, theta)
    inner = target.k * (basis.T @ hessian @ basis)
    return basis.T @ target.gradient(theta), 0.5 * (inner + inner.T)


def _regularizer(target: Gibbs, anchor: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of r at the anchor; empty if r equals its expansion."""
    lower, upper = target.regularizer.curvature_l2(target.dim)
    if lower == upper or target.mu == 0.0:
        return np.empty(0), np.empty((0, 0))
    center = target.numbers.regularizer.center
    hessian = gaussian_fit.regularizer_hessian(target, anchor)
    return target.regularizer.gradient(anchor, center), np.ascontiguousarray(hessian)
