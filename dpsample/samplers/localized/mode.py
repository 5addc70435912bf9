# mypy: allow-untyped-defs
"""Minimizer of the energy on the domain, with multipliers of the active constraints.

The method is Newton's. Each step minimizes the quadratic model of the energy on the
domain. The localization does not need the exact minimizer. The part of the gradient
that no constraint balances is the ``residual``, and the proofs of `region` include it.
Flat parts of the boundary are *sides*, inequalities <side, v> <= depth for moves v from
the mode. A *multiplier* says how strongly the energy presses the mode against a side,
or against a sphere. It is 0 if the constraint is not active.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array, record_dtype
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import (
    copy_into,
    multiply,
    solve_lower,
    solve_upper,
)
from dpsample.regularizers import Entropy
from dpsample.samplers.errors import OK
from dpsample.samplers.gaussian_fit import minimize, regularizer_hessian
from dpsample.samplers.record_terms import RecordSums, sum_over_records
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import DomainGeometry, form_in_basis, rows_in_basis

# Maximum number of Newton steps. If they do not suffice, there is no mode by this
# method.
MAX_STEPS = 40
# An inequality is active if its relative depth is below the first number. Depths have
# the relative rounding error of the second.
ACTIVE_DEPTH = 1e-9
DEPTH_ERROR = 1e-15
# Search of the multiplier nu of a ball, which a pause may interrupt.
BallSearch = record_dtype(nu=float, num_steps=int)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mode:
    r"""Point x0 = ``point`` of the domain, and the gradient g of the energy there.

    Moves w = x - x0 are written ``basis`` v, with orthonormal columns that span the
    domain's affine hull. :math:`g = q + e`, where <q, w> >= 0 for all points of the
    domain, up to rounding errors. On the boundary of a ball, q = - ``multiplier``
    (x0 - center). If flat sides are active, q = - ``sides``^T ``multipliers``. The rest
    e is the ``residual``.
    """

    point: Array  # (dim,)
    basis: Array  # (dim, m)
    sums: RecordSums  # over the records at x0, but the Gram matrix at ``before``
    before: Array | None  # (dim,): point close to x0 of the curvatures, if they exist
    gram: Array  # (m, m): k times the mean of phi_i'' a_i a_i^T, in the basis
    gradient: Array  # (m,): g
    residual: Array  # (m,): e
    multiplier: float
    sides: Array  # (num_sides, m)
    depths: Array  # (num_sides,)
    multipliers: Array  # (num_sides,)
    # <q, w> >= -shortfall on the domain. It is above 0 if x0 is near the boundary, but
    # rounding errors have put it inside.
    shortfall: float


def find(
    target: Gibbs,
    mu: float,
    neighbor: Mode | None = None,
    *,
    max_decrement: float = 0.03,
) -> Mode | None:
    """Minimize k (F + mu r) on the domain. None is an expected result, not an error.

    The search starts from a neighboring mode and its curvatures, if there is one. It
    ends with the step whose gain in energy is at most ``max_decrement`` squared, since
    the residual is small enough after it.
    """
    geometry, basis, weight = target.geometry, target.geometry.basis, target.k * mu
    # The derivative of the entropy is infinite at 0. So x0 stays off by this distance,
    # and the nearby side is treated as active.
    margin = 0.0
    if isinstance(target.regularizer, Entropy) and mu > 0.0:
        margin = 1e-10
    inner_geometry = geometry._replace(bounds=geometry.bounds - margin)
    point = target.domain.interior_point(target.dim)
    if neighbor is not None:
        point = neighbor.point
    if neighbor is not None and neighbor.before is not None:
        sums = neighbor.sums
    else:
        sums = sum_over_records(target, point)
    height, gradient = energy_at(target, mu, point, sums)
    for _ in range(MAX_STEPS):
        if sums.num_nonfinite or not np.isfinite(gradient).all():
            return None
        before, record_gram = point, sums.gram
        gram = in_basis(target, record_gram, basis)
        if margin:
            regularizer_curvature = np.diag(1.0 / point)
        else:
            regularizer_curvature = regularizer_hessian(target, point)
        hessian = gram + weight * form_in_basis(regularizer_curvature, basis)
        trace = float(hessian.trace())
        # A small multiple of the identity keeps the model's Hessian positive definite.
        hessian += 1e-12 * trace * np.eye(len(hessian))
        move = model_step(inner_geometry, point, gradient, hessian)
        if move is None or not np.isfinite(move).all():
            return None
        # This is the gain of the model to first order, which is at least half of the
        # squared Newton decrement.
        gain = -float(gradient @ move)
        # Derivatives of the entropy change with the logarithms of coordinates, so it
        # needs more steps. Its limit of the gain is the margin, 1e-10.
        is_last = gain <= (margin or max_decrement**2)
        scale, lowest = 1.0, height
        # A step is halved at most 40 times.
        for _ in range(40):
            trial = point + scale * (basis @ move)
            # The last step needs no Gram matrix, which is most of a pass.
            wants_gram = not (is_last and scale == 1.0)
            trial_sums = sum_over_records(target, trial, wants_gram=wants_gram)
            height, gradient = energy_at(target, mu, trial, trial_sums)
            # A gain below the rounding error of the energy cannot be checked.
            is_lower = height - lowest <= -0.1 * scale * gain
            if is_lower or abs(scale * gain) <= 1e-12 * (1.0 + abs(lowest)):
                break
            scale *= 0.5
        else:
            return None
        point, sums = _pull_inside(target, trial), trial_sums
        if point is not trial:
            sums = sum_over_records(target, point, wants_gram=wants_gram)
            height, gradient = energy_at(target, mu, point, sums)
        if not wants_gram:
            break
    else:
        return None
    if not (np.isfinite(gradient).all() and target._is_inside(point)):
        return None
    mode = _new_mode(target, point, sums._replace(gram=record_gram), gradient)
    mode = replace(mode, before=before, gram=gram)
    return _with_multipliers(mode, geometry, hessian)


def find_slowly(target: Gibbs) -> Mode | None:
    """Find the mode by projected gradients.

    Newton's method may fail if the curvature of the regularizer changes fast.
    """
    # Projected gradients end when ten of them lower the energy by less.
    point, _ = minimize(target, tolerance=1e-8)
    sums = sum_over_records(target, point)
    mode = _new_mode(target, point, sums, energy_at(target, target.mu, point, sums)[1])
    if sums.num_nonfinite or not np.isfinite(mode.gradient).all():
        return None
    gram = in_basis(target, sums.gram, mode.basis)
    ridge = target.k * target.mu * target.curvature[0]
    mode = replace(mode, before=point, gram=gram)
    return _with_multipliers(mode, target.geometry, gram + ridge * np.eye(len(gram)))


def take_point(target: Gibbs, mu: float, point: Array) -> Mode:
    """Return any point of the domain as x0, with the whole gradient as residual."""
    sums = sum_over_records(target, point, wants_gram=False)
    return _new_mode(target, point, sums, energy_at(target, mu, point, sums)[1])


def _new_mode(target: Gibbs, point: Array, sums: RecordSums, gradient: Array) -> Mode:
    """Return a mode without multipliers at a point of a pass."""
    geometry = target.geometry
    depths = np.maximum(geometry.bounds - geometry.sides @ point, 0.0)
    return Mode(
        point=point,
        basis=geometry.basis,
        sums=sums,
        before=None,
        gram=np.zeros((geometry.basis.shape[1],) * 2),
        gradient=gradient,
        residual=gradient,
        multiplier=0.0,
        sides=rows_in_basis(geometry.sides, geometry.basis),
        depths=depths,
        multipliers=np.zeros(len(depths)),
        shortfall=0.0,
    )


def energy_at(
    target: Gibbs, mu: float, point: Array, sums: RecordSums
) -> tuple[float, Array]:
    """Return the energy k (F + mu r) at a point of a pass, and its gradient."""
    per_record, weight = target.k / target.storage.num_records, target.k * mu
    height, gradient = per_record * sums.value, per_record * sums.slope
    if mu > 0.0:
        value, slope = target._evaluate_regularizer(point)
        height, gradient = height + weight * value, gradient + weight * slope
    return height, np.asarray(gradient @ target.geometry.basis)


def in_basis(target: Gibbs, gram: Array, basis: Array) -> Array:
    """Return k times the mean of a sum of matrices, in the basis."""
    return target.k * form_in_basis(gram / target.storage.num_records, basis)


def _pull_inside(target: Gibbs, point: Array) -> Array:
    """Return the projection of a point that only rounding errors put outside."""
    if target._is_inside(point):
        return point
    projection = target.domain.project(point)
    distance = np.abs(projection - point).max()
    is_rounding = distance <= 1e-10 * (1.0 + np.abs(point).max())
    return projection if is_rounding else point


def model_step(
    geometry: DomainGeometry, point: Array, gradient: Array, hessian: Array
) -> Array | None:
    """Return the minimizer v of <g, v> + v^T H v / 2 with x + basis v in the domain.

    It may be outside if the domain is neither flat-sided nor round. Return None if H is
    singular.
    """
    try:
        if geometry.is_round:
            center, radius = point - geometry.body.center, geometry.body.radius
            return step_in_ball(center, radius, gradient, hessian)
        root = np.asarray(np.linalg.cholesky(hessian), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    free = -linalg.cho_solve((root, True), gradient)
    if len(geometry.sides):
        depths = np.maximum(geometry.bounds - geometry.sides @ point, 0.0)
        sides = rows_in_basis(geometry.sides, geometry.basis)
        return step_in_polytope(sides, depths, free, gradient, root)
    return free


def step_in_ball(
    center: Array, radius: float, gradient: Array, hessian: Array
) -> Array:
    """Return the minimizer of the model with ||center + move|| <= radius."""
    move, y, shifted = np.empty_like(gradient), -gradient, hessian.copy()
    search, control = np.zeros(1, BallSearch), pauses.new_control()
    arguments = center, radius, gradient, hessian, shifted, y, move, search, control
    while pauses.call(control, jit.call, fill_step, *arguments) == pauses.PAUSED:
        pauses.notify_listeners()
    return move


@kernel
def fill_step(center, radius, gradient, hessian, shifted, y, move, search, control):
    """Fill move with the minimizer of the model, and return OK or PAUSED.

    y = center + move solves (H + nu I) y = H center - g. The reciprocal of ||y|| is
    concave in nu and nearly linear. So Newton's method for it (More and Sorensen, 1983)
    rises from 0 to the nu at which y is on the sphere. ``y`` begins as -g, so that the
    first solution is the move without the ball.
    """
    dim, progress = move.shape[0], search[0]
    right_side, z = np.empty(dim), np.empty(dim)
    multiply(hessian, center, right_side)
    for j in range(dim):
        right_side[j] -= gradient[j]
    while True:
        root = np.linalg.cholesky(shifted)
        solve_lower(root, y)
        solve_upper(root, y)
        # The first move has no rounding errors of the product H center.
        if progress.num_steps == 0:
            copy_into(y, move)
            for j in range(dim):
                y[j] += center[j]
        size = np.sqrt(np.dot(y, y))
        if progress.num_steps == MAX_STEPS or not size > radius * (1.0 + 1e-15):
            break
        copy_into(y, z)
        solve_lower(root, z)
        before = progress.nu
        progress.nu += np.dot(y, y) / np.dot(z, z) * (size - radius) / radius
        if progress.nu == before:
            break
        copy_into(right_side, y)
        for j in range(dim):
            shifted[j, j] = hessian[j, j] + progress.nu
        progress.num_steps += 1
        if pauses.is_due(control[0]):
            return pauses.PAUSED
    if progress.nu > 0.0:
        for j in range(dim):
            move[j] = y[j] * (radius / size) - center[j]
    return OK


def step_in_polytope(
    sides: Array, depths: Array, free: Array, gradient: Array, root: Array
) -> Array | None:
    """Solve the quadratic program by its dual, a non-negative least-squares problem.

    With y = L^T v + L^{-1} g it is the search for the shortest y in a polyhedron (the
    problem LDP of Lawson and Hanson, Solving Least Squares Problems, section 23.4).
    ``root`` is L, of the Hessian L L^T. ``free`` is the minimizer without sides.
    """
    from scipy import optimize

    if (sides @ free <= depths).all():
        return free
    rows = linalg.solve_triangular(root, sides.T, lower=True).T
    shift = linalg.solve_triangular(root, gradient, lower=True)
    limits = depths + rows @ shift
    sizes = np.linalg.norm(rows, axis=1)
    system = -np.vstack([(rows / sizes[:, None]).T, limits / sizes])
    unit = np.zeros(len(system))
    unit[-1] = 1.0
    try:
        dual, _ = optimize.nnls(system, unit)
    except RuntimeError:
        return None
    active = np.flatnonzero(dual > 0.0)
    # The shortest y on the active sides is more accurate than the dual's residual.
    end = np.linalg.lstsq(rows[active], limits[active], rcond=None)[0]
    move = linalg.solve_triangular(root, end - shift, lower=True, trans="T")
    violations = (sides @ move - depths) / np.maximum(
        np.linalg.norm(sides, axis=1), 1e-300
    )
    if violations.max() > 1e-9 * (1.0 + np.abs(move).max()):
        return None
    # The move is shortened by its rounding errors, so that its end is inside.
    lengths = sides @ move
    share = np.min(depths[lengths > 0.0] / lengths[lengths > 0.0], initial=1.0)
    return np.asarray(move * min(1.0, max(share, 1.0 - 1e-9)))


def _with_multipliers(mode: Mode, geometry: DomainGeometry, hessian: Array) -> Mode:
    """Return a copy whose gradient is split into q, of the boundary, and residual."""
    gradient, body = mode.gradient, geometry.body
    if geometry.is_round:
        outward = mode.point - body.center
        if np.linalg.norm(outward) < body.radius * (1.0 - ACTIVE_DEPTH):
            return mode
        square = body.radius**2
        nu = max(0.0, -float(gradient @ outward) / square)
        depth = abs(square - float(outward @ outward)) + DEPTH_ERROR * square
        return replace(
            mode,
            residual=gradient + nu * outward,
            multiplier=nu,
            shortfall=0.5 * nu * depth,
        )
    sizes = np.linalg.norm(mode.sides, axis=1)
    scale = 1.0 + float(np.abs(mode.point).max())
    active = np.flatnonzero(mode.depths <= ACTIVE_DEPTH * scale * sizes)
    if not active.size:
        return mode
    from scipy import optimize

    root = np.linalg.cholesky(hessian)
    # The residual is made shortest in the norm of H^{-1}.
    rows = linalg.solve_triangular(root, mode.sides[active].T, lower=True)
    scaled_gradient = linalg.solve_triangular(root, gradient, lower=True)
    multipliers = np.zeros(len(sizes))
    try:
        multipliers[active] = optimize.nnls(rows, -scaled_gradient)[0]
    except RuntimeError:
        return mode
    residual = gradient + multipliers @ mode.sides
    depths = mode.depths + DEPTH_ERROR * scale * sizes
    return replace(
        mode,
        residual=residual,
        multipliers=multipliers,
        shortfall=float(multipliers @ depths),
    )
