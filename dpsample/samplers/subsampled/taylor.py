r"""Second-order expansion of the energy at an anchor, record by record.

    V(c + delta) = V(c) + g . delta + delta^T H delta / 2 + (k / n) sum_i rho_i + rho_r,

    rho_i = phi(u_i + s_i) - phi(u_i) - phi'(u_i) s_i - phi''(u_i) s_i^2 / 2,

with s_i = <a_i, delta> and |rho_i| <= M |s_i|^3 / 6; rho_r is the regularizer's own.
The first three terms are the Gaussian N(c - H^{-1} g, H^{-1}), for any anchor c.
"""

from dataclasses import dataclass

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.problem.records import Data
from dpsample.problem.sources import write_to_files
from dpsample.samplers import gaussian_fit
from dpsample.samplers.localized import mode
from dpsample.samplers.record_terms import sum_over_records
from dpsample.targets.gibbs import (
    Gibbs,
    as_rows,
    form_in_basis,
    margin_intervals,
    times_basis,
)

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
    problem = target.problem
    sizes = target.storage.fold(np.maximum, _extremes, problem.domain)
    return float(problem.loss.third_derivative_bound(*map(float, sizes)))


def _extremes(part: Data, domain: Domain) -> Array:
    """Largest margin on the domain and largest response, in absolute value."""
    lower, upper = margin_intervals(domain, part)
    reach = np.maximum(np.abs(lower), np.abs(upper)).max(initial=0.0)
    return np.array([reach, np.abs(part.response).max()])


def has_curvature(target: Gibbs) -> bool:
    """Whether the loss knows its second derivative at a point."""
    return bool(target.storage.fold(min, _is_bent, target.problem.loss))


def _is_bent(part: Data, loss: Loss) -> bool:
    lower, upper = _curvatures(part, loss, np.zeros(part.num_records))
    return bool(np.array_equal(lower, upper))


def expand(target: Gibbs) -> Expansion | None:
    """Expansion at the mode, or at a point of the domain near it.

    The loss must have a second derivative. None where the Hessian is singular, so that
    there is no Gaussian.
    """
    basis = target.geometry.basis
    found = mode.find(target, target.mu)  # by few passes
    anchor = gaussian_fit.fit(target).center if found is None else found.point
    for _ in range(MAX_ITERATIONS):
        gradient, hessian = _derivatives(target, anchor)
        eigenvalues = np.linalg.eigvalsh(hessian)
        if not eigenvalues[0] > SINGULAR * eigenvalues[-1]:
            return None
        move = np.linalg.solve(hessian, gradient)
        following = anchor - basis @ move
        if not target._is_inside(following) or move @ gradient < 1e-20:
            break
        anchor = following
    gradient, hessian = _derivatives(target, anchor)
    root = np.linalg.cholesky(hessian)
    # Rounding leaves the inverse of a triangle not quite triangular.
    factor = np.ascontiguousarray(times_basis(basis, np.triu(np.linalg.inv(root).T)))
    probes = np.random.default_rng(0).standard_normal((NUM_PROBES, len(root)))
    probes -= np.linalg.solve(root, gradient)
    inside = [target._is_inside(anchor + factor @ probe) for probe in probes]
    slope, curved = _regularizer(target, anchor)
    return Expansion(
        anchor=anchor,
        shift=-np.linalg.solve(root, gradient),
        factor=factor,
        whiten=np.ascontiguousarray(times_basis(basis, root).T),
        records=_records(target, anchor),
        slope=slope,
        hessian=curved,
        share_inside=float(np.mean(inside)),
        probes=probes,
    )


def _curvatures(part: Data, loss: Loss, margins: Array) -> tuple[Array, Array]:
    lower, upper = loss.curvature(margins, margins, part.response)
    return np.asarray(lower), np.asarray(upper)


def _records(target: Gibbs, anchor: Array) -> Array:
    """Terms of all records, in memory or, as they are, in a mapped file."""
    parts = target.storage.map(_terms, target.problem.loss, anchor)
    if target.storage.is_in_memory:
        return np.concatenate(list(parts))
    return write_to_files([part] for part in parts)[0]


def _terms(part: Data, loss: Loss, anchor: Array) -> Array:
    margins = as_rows(part) @ anchor + (part.offset if part.offset.size else 0.0)
    values, slopes = loss._evaluate(margins, part.response)
    curvatures = _curvatures(part, loss, margins)[0]
    return np.ascontiguousarray(np.stack([margins, values, slopes, curvatures], 1))


def _derivatives(target: Gibbs, theta: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of the energy in the basis of the domain's hull."""
    basis = target.geometry.basis
    here = sum_over_records(target, theta)
    bend = target.mu * gaussian_fit.regularizer_hessian(target, theta)
    inner = mode.in_basis(target, here.gram, basis)
    inner += target.k * form_in_basis(bend, basis)
    slope = mode.energy_at(target, target.mu, theta, here)[1]
    return slope, 0.5 * (inner + inner.T)


def _regularizer(target: Gibbs, anchor: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of r at the anchor; empty if r equals its expansion."""
    lower, upper = target.regularizer.curvature_l2(target.dim)
    if lower == upper or target.mu == 0.0:
        return np.empty(0), np.empty((0, 0))
    center = target.numbers.regularizer.center
    hessian = gaussian_fit.regularizer_hessian(target, anchor)
    return target.regularizer.gradient(anchor, center), np.ascontiguousarray(hessian)
