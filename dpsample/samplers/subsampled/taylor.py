r"""Second-order expansion of the energy at an anchor, record by record.

    V(c + delta) = V(c) + g . delta + delta^T H delta / 2 + (k / n) sum_i rho_i + rho_r,

    rho_i = phi(u_i + s_i) - phi(u_i) - phi'(u_i) s_i - phi''(u_i) s_i^2 / 2,

with the loss phi, the margin u_i = <a_i, c> of record i, and s_i = <a_i, delta>. Here M
bounds the third derivative of phi, so that |rho_i| <= M |s_i|^3 / 6. rho_r is the
remainder of the regularizer r. The first three terms are the energy of the Gaussian
N(c - H^{-1} g, H^{-1}), for any anchor c.

The domain may have a lower dimension m than the space. Then g and H are in coordinates
of an orthonormal basis B of its affine hull. With the Cholesky factor H = R R^T the
displacements are delta = B R^{-T} v, so that v is standard normal about -R^{-1} g.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.problem.records import Data
from dpsample.problem.sources import write_to_files
from dpsample.samplers import gaussian_fit
from dpsample.samplers.localized import mode
from dpsample.samplers.record_terms import sum_over_records
from dpsample.targets.gibbs import Gibbs, as_rows, margin_intervals
from dpsample.targets.gibbs_target import form_in_basis, times_basis

# Draws of the Gaussian that estimate its share inside the domain.
NUM_PROBES = 400


class TermColumn(NamedTuple):
    """Columns of the derivatives of the records' losses."""

    margin: int = 0
    loss: int = 1  # phi at the margin
    slope: int = 2  # first derivative of phi
    curvature: int = 3  # second derivative of phi


TERM = TermColumn()


@dataclass(frozen=True, kw_only=True, eq=False)
class Expansion:
    """Anchor, Gaussian and the records' derivatives at the anchor.

    Displacements are delta = factor v with v ~ N(shift, I) under the Gaussian.
    """

    anchor: Array  # (dim,): c, in the domain
    shift: Array  # (m,): -R^{-1} g
    factor: Array  # (dim, m): B R^{-T}
    whiten: Array  # (m, dim): (B R)^T, so that v = whiten delta
    records: Array  # (num_records, 4): margin, loss, slope, curvature
    # Derivatives of r at the anchor, empty if r is quadratic and rho_r is 0. The
    # Hessian may be approximate, because rho_r takes up its error.
    regularizer_gradient: Array  # (dim,)
    regularizer_hessian: Array  # (dim, dim)
    share_inside: float  # share of the Gaussian's mass in the domain
    # (NUM_PROBES, m): draws of v, from which the mean bounds of rho_i are estimated
    probes: Array


def third_derivative(target: Gibbs) -> float:
    """Return a bound of the loss's third derivative on all margins of the domain."""
    problem = target.problem
    sizes = target.storage.fold(np.maximum, _extremes, problem.domain)
    return float(problem.loss.third_derivative_bound(*map(float, sizes)))


def _extremes(part: Data, domain: Domain) -> Array:
    """Return the largest absolute values of margins on the domain, and responses."""
    lower, upper = margin_intervals(domain, part)
    max_margin = np.maximum(np.abs(lower), np.abs(upper)).max(initial=0.0)
    return np.array([max_margin, np.abs(part.response).max()])


def has_curvature(target: Gibbs) -> bool:
    """Return whether the loss has the exact second derivative at a point."""
    return bool(target.storage.fold(min, _is_curvature_exact, target.problem.loss))


def _is_curvature_exact(part: Data, loss: Loss) -> bool:
    """Return whether the two bounds of the second derivative are equal at margin 0.

    A loss without a second derivative has bounds that differ at every margin.
    """
    lower, upper = _curvatures(part, loss, np.zeros(part.num_records))
    return bool(np.array_equal(lower, upper))


def expand(target: Gibbs) -> Expansion | None:
    """Return the expansion at the mode, or at a point of the domain near it.

    The loss must have a second derivative. Return None if the Hessian is singular, so
    that there is no Gaussian.
    """
    basis = target.geometry.basis
    # The search of `Localized` needs few passes over the records, but may not converge.
    # Newton's method then starts from the center of the Gaussian fit.
    local_mode = mode.find(target, target.mu)
    point = None if local_mode is None else local_mode.point
    anchor = gaussian_fit.fit(target).center if point is None else point
    # Newton's method ends with a negligible step, or before one that leaves the domain.
    for _ in range(20):
        gradient, hessian = _derivatives(target, anchor)
        eigenvalues = np.linalg.eigvalsh(hessian)
        # The Hessian is singular if an eigenvalue is below this share of the largest
        # one.
        if not eigenvalues[0] > 1e-12 * eigenvalues[-1]:
            return None
        # Newton's step, in coordinates of the basis.
        move = np.linalg.solve(hessian, gradient)
        point = anchor - basis @ move
        # <move, gradient> is twice the expected decrease of the energy.
        if not target._is_inside(point) or move @ gradient < 1e-20:
            break
        anchor = point
    gradient, hessian = _derivatives(target, anchor)
    root = np.linalg.cholesky(hessian)  # R
    # The computed inverse of a triangular matrix has rounding errors on the other side
    # of the diagonal. They are set to 0, because the sampler uses the triangle.
    factor = np.ascontiguousarray(times_basis(basis, np.triu(np.linalg.inv(root).T)))
    probes = np.random.default_rng(0).standard_normal((NUM_PROBES, len(root)))
    # v is standard normal about -R^{-1} g.
    probes -= np.linalg.solve(root, gradient)
    inside = [target._is_inside(anchor + factor @ probe) for probe in probes]
    regularizer_gradient, regularizer_hessian = _regularizer(target, anchor)
    return Expansion(
        anchor=anchor,
        shift=-np.linalg.solve(root, gradient),
        factor=factor,
        whiten=np.ascontiguousarray(times_basis(basis, root).T),
        records=_records(target, anchor),
        regularizer_gradient=regularizer_gradient,
        regularizer_hessian=regularizer_hessian,
        share_inside=float(np.mean(inside)),
        probes=probes,
    )


def _curvatures(part: Data, loss: Loss, margins: Array) -> tuple[Array, Array]:
    """Return the bounds of the second derivative at each margin."""
    lower, upper = loss.curvature(margins, margins, part.response)
    return np.asarray(lower), np.asarray(upper)


def _records(target: Gibbs, anchor: Array) -> Array:
    """Return the terms of all records, in a mapped file if the records are in one."""
    parts = target.storage.map(_terms, target.problem.loss, anchor)
    if target.storage.is_in_memory:
        return np.concatenate(list(parts))
    # Each part is a list of columns for files. Here it is one array of four columns.
    return write_to_files([part] for part in parts)[0]


def _terms(part: Data, loss: Loss, anchor: Array) -> Array:
    """Return margin, loss and two derivatives of each record of a part."""
    margins = as_rows(part) @ anchor + (part.offset if part.offset.size else 0.0)
    values, slopes = loss._evaluate(margins, part.response)
    # `has_curvature` has shown that both bounds are equal.
    curvatures = _curvatures(part, loss, margins)[0]
    return np.ascontiguousarray(np.stack([margins, values, slopes, curvatures], 1))


def _derivatives(target: Gibbs, theta: Array) -> tuple[Array, Array]:
    """Return gradient and Hessian of the energy in the basis of the domain's hull."""
    basis = target.geometry.basis
    sums = sum_over_records(target, theta)
    weighted = target.mu * gaussian_fit.regularizer_hessian(target, theta)
    # The first term has the factor k/n of a mean loss already.
    hessian = mode.in_basis(target, sums.gram, basis)
    hessian += target.k * form_in_basis(weighted, basis)
    gradient = mode.energy_at(target, target.mu, theta, sums)[1]
    return gradient, 0.5 * (hessian + hessian.T)


def _regularizer(target: Gibbs, anchor: Array) -> tuple[Array, Array]:
    """Return gradient and Hessian of r at the anchor, empty if r is quadratic."""
    # A regularizer whose curvature has equal bounds is quadratic.
    lower, upper = target.regularizer.curvature_l2(target.dim)
    if lower == upper or target.mu == 0.0:
        return np.empty(0), np.empty((0, 0))
    center = target.numbers.regularizer.center
    hessian = gaussian_fit.regularizer_hessian(target, anchor)
    return target.regularizer.gradient(anchor, center), np.ascontiguousarray(hessian)
