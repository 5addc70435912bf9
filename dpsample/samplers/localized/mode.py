# mypy: allow-untyped-defs
"""Minimizer of the energy on the domain, and how the domain's boundary holds it.

Newton's method; each step minimizes the quadratic model on the domain. The localization
needs no exact minimizer, it counts what is left of the slope as ``residual``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array
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
from dpsample.targets.gibbs import DomainGeometry, Gibbs, form_in_basis, rows_in_basis

MAX_STEPS, MAX_HALVINGS = 40, 40
# Newton decrement from which one more step leaves next to nothing.
SMALL = 0.03
# Gain in energy of ten projected gradients at which they end.
SLOWLY = 1e-8
# Depth, relative to sizes, at which an inequality counts as active.
ACTIVE = 1e-9
DEPTH_ROUNDING = 1e-15
# Least eigenvalue that a model's Hessian is given, relative to its trace.
FLOOR = 1e-12
# Least coordinate where the regularizer has no slope at 0: its side counts as active.
LEAST = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class Mode:
    r"""Point x0 = ``point`` of the domain, and the slope g of the energy there.

    Vectors w = x - x0 are written ``basis`` v, with orthonormal columns that span the
    domain's affine hull. :math:`g = q + e`, where <q, w> >= 0 for all points of the
    domain up to rounding: q = - ``multiplier`` (x0 - center) on the boundary of a
    ball, q = - ``sides``^T ``multipliers`` where flat sides are active; e is the
    ``residual``.
    """

    point: Array  # (dim,)
    basis: Array  # (dim, m)
    here: RecordSums  # sums over the records there, but the Gram matrix: at ``before``
    before: Array | None  # (dim,): where weights phi'' were taken, close by; else none
    gram: Array  # (m, m): k times the mean of weights a_i a_i^T, in the basis
    gradient: Array  # (m,): g
    residual: Array  # (m,): e
    multiplier: float
    sides: Array  # (num_sides, m): all flat sides <= depths of the domain, from x0
    depths: Array  # (num_sides,)
    multipliers: Array  # (num_sides,)
    shortfall: float  # <q, w> >= -shortfall on the domain: x0 is off the boundary


def find(
    target: Gibbs, mu: float, near: Mode | None = None, *, small: float = SMALL
) -> Mode | None:
    """Minimize k (F + mu r) on the domain; None if that fails, which is no error.

    It starts from a mode nearby, if there is one, and its curvatures, and ends with the
    step whose gain in energy is at most ``small`` squared.
    """
    geometry, basis, weight = target.geometry, target.geometry.basis, target.k * mu
    # The entropy falls without end at 0: x0 stays off, held by the side nearby.
    least = LEAST if isinstance(target.regularizer, Entropy) and mu > 0.0 else 0.0
    within = geometry._replace(bounds=geometry.bounds - least)
    interior = target.problem.domain.interior_point(target.dim)
    point = interior if near is None else near.point
    is_known = near is not None and near.before is not None
    here = (
        near.here if near is not None and is_known else sum_over_records(target, point)
    )
    height, gradient = energy_at(target, mu, point, here)
    for _ in range(MAX_STEPS):
        if here.num_nonfinite or not np.isfinite(gradient).all():
            return None
        before, sums = point, here.gram
        gram = in_basis(target, sums, basis)
        bend = np.diag(1.0 / point) if least else regularizer_hessian(target, point)
        hessian = gram + weight * form_in_basis(bend, basis)
        hessian += FLOOR * float(hessian.trace()) * np.eye(len(hessian))
        move = _model_step(within, point, gradient, hessian)
        if move is None or not np.isfinite(move).all():
            return None
        gain = -float(gradient @ move)  # at least half the decrement's square
        # Slopes of the entropy move with the logarithms of coordinates.
        is_last = gain <= (least or small**2)
        scale, lowest = 1.0, height
        for _ in range(MAX_HALVINGS):
            trial = point + scale * (basis @ move)
            wants_gram = not (is_last and scale == 1.0)
            there = sum_over_records(target, trial, wants_gram=wants_gram)
            height, gradient = energy_at(target, mu, trial, there)
            # What rounding makes of the difference is far less than the last gain.
            enough = height - lowest <= -0.1 * scale * gain
            if enough or abs(scale * gain) <= 1e-12 * (1.0 + abs(lowest)):
                break
            scale *= 0.5
        else:
            return None
        point, here = _settled(target, trial), there
        if point is not trial:
            here = sum_over_records(target, point, wants_gram=wants_gram)
            height, gradient = energy_at(target, mu, point, here)
        if not wants_gram:
            break
    else:
        return None
    if not (np.isfinite(gradient).all() and target._is_inside(point)):
        return None
    mode = _made(target, point, here._replace(gram=sums), gradient)
    return _held(replace(mode, before=before, gram=gram), geometry, hessian)


def find_slowly(target: Gibbs) -> Mode | None:
    """As `find`, by projected gradients: Newton may fail where r bends sharply."""
    point, _ = minimize(target, tolerance=SLOWLY)
    here = sum_over_records(target, point)
    mode = _made(target, point, here, energy_at(target, target.mu, point, here)[1])
    if here.num_nonfinite or not np.isfinite(mode.gradient).all():
        return None
    gram = in_basis(target, here.gram, mode.basis)
    ridge = target.k * target.mu * target.curvature[0]
    found = replace(mode, before=point, gram=gram)
    return _held(found, target.geometry, gram + ridge * np.eye(len(gram)))


def at(target: Gibbs, mu: float, point: Array) -> Mode:
    """Any point of the domain as x0, with all of its slope as residual."""
    here = sum_over_records(target, point, wants_gram=False)
    return _made(target, point, here, energy_at(target, mu, point, here)[1])


def _made(target: Gibbs, point: Array, here: RecordSums, gradient: Array) -> Mode:
    """Mode at a point of a pass."""
    geometry = target.geometry
    depths = np.maximum(geometry.bounds - geometry.sides @ point, 0.0)
    return Mode(
        point=point,
        basis=geometry.basis,
        here=here,
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
    target: Gibbs, mu: float, point: Array, here: RecordSums
) -> tuple[float, Array]:
    """Energy k (F + mu r) at a point of a pass, and its slope in the basis."""
    per_record = target.k / target.storage.num_records
    height, slope = per_record * here.value, per_record * here.slope
    if mu > 0.0:
        value, pull = target._evaluate_regularizer(point)
        height, slope = height + target.k * mu * value, slope + target.k * mu * pull
    return height, np.asarray(slope @ target.geometry.basis)


def in_basis(target: Gibbs, gram: Array, basis: Array) -> Array:
    """Return k times the mean of a sum of matrices, in the basis."""
    return target.k * form_in_basis(gram / target.storage.num_records, basis)


def _settled(target: Gibbs, point: Array) -> Array:
    """Undo rounding errors that put a point outside the domain."""
    if target._is_inside(point):
        return point
    near = target.problem.domain.project(point)
    is_close = np.abs(near - point).max() <= 1e-10 * (1.0 + np.abs(point).max())
    return near if is_close else point


def _model_step(
    geometry: DomainGeometry, point: Array, gradient: Array, hessian: Array
) -> Array | None:
    """Minimizer v of <g, v> + v^T H v / 2 with x + basis v in the domain.

    On domains that are neither flat-sided nor round, and where the model's minimizer
    would leave them, there is none.
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
        return _step_in_polytope(sides, depths, free, gradient, root)
    return free


def step_in_ball(
    center: Array, radius: float, gradient: Array, hessian: Array
) -> Array:
    """Minimizer of the model with ||center + move|| <= radius."""
    move, y, shifted = np.empty_like(gradient), -gradient, hessian.copy()
    state, control = np.zeros(2), pauses.new_control()  # nu, turns
    given = center, radius, gradient, hessian, shifted, y, move, state, control
    while pauses.call(control, jit.call, turns_in_ball, *given) == pauses.PAUSED:
        pauses.notify_listeners()
    return move


@kernel
def turns_in_ball(center, radius, gradient, hessian, shifted, y, move, state, control):
    """Fill move with the minimizer of the model; return OK or PAUSED.

    y = center + move solves (H + nu I) y = H center - g. The reciprocal of ||y|| is
    concave in nu and nearly linear: Newton's method for it (More and Sorensen, 1983)
    rises from 0 to the nu of the sphere. ``y`` begins as the right side, which is - g
    without the ball.
    """
    dim = move.shape[0]
    pull, z = np.empty(dim), np.empty(dim)
    multiply(hessian, center, pull)
    for j in range(dim):
        pull[j] -= gradient[j]
    while True:
        root = np.linalg.cholesky(shifted)
        solve_lower(root, y)
        solve_upper(root, y)
        if state[1] == 0.0:  # without the ball, and without the rounding of H center
            copy_into(y, move)
            for j in range(dim):
                y[j] += center[j]
        size = np.sqrt(np.dot(y, y))
        if state[1] == MAX_STEPS or not size > radius * (1.0 + 1e-15):
            break
        copy_into(y, z)
        solve_lower(root, z)
        before = state[0]
        state[0] += np.dot(y, y) / np.dot(z, z) * (size - radius) / radius
        if state[0] == before:
            break
        copy_into(pull, y)
        for j in range(dim):
            shifted[j, j] = hessian[j, j] + state[0]
        state[1] += 1.0
        if pauses.is_due(control[0]):
            return pauses.PAUSED
    if state[0] > 0.0:
        for j in range(dim):
            move[j] = y[j] * (radius / size) - center[j]
    return OK


def _step_in_polytope(
    sides: Array, depths: Array, free: Array, gradient: Array, root: Array
) -> Array | None:
    """Quadratic program by its dual, a non-negative least-squares problem.

    With y = L^T v + L^{-1} g it asks for the shortest y in a polyhedron.
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
    # Least y on the active sides: more accurate than the residual of the dual.
    end = np.linalg.lstsq(rows[active], limits[active], rcond=None)[0]
    move = linalg.solve_triangular(root, end - shift, lower=True, trans="T")
    too_far = (sides @ move - depths) / np.maximum(
        np.linalg.norm(sides, axis=1), 1e-300
    )
    if too_far.max() > 1e-9 * (1.0 + np.abs(move).max()):
        return None
    # Inside in numbers, too: shorten the step by its rounding errors.
    lengths = sides @ move
    share = np.min(depths[lengths > 0.0] / lengths[lengths > 0.0], initial=1.0)
    return np.asarray(move * min(1.0, max(share, 1.0 - 1e-9)))


def _held(mode: Mode, geometry: DomainGeometry, hessian: Array) -> Mode:
    """Split the slope into what the boundary holds and the residual."""
    gradient, body = mode.gradient, geometry.body
    if geometry.is_round:
        outward = mode.point - body.center
        if np.linalg.norm(outward) < body.radius * (1.0 - ACTIVE):
            return mode
        square = body.radius**2
        nu = max(0.0, -float(gradient @ outward) / square)
        depth = abs(square - float(outward @ outward)) + DEPTH_ROUNDING * square
        return replace(
            mode,
            residual=gradient + nu * outward,
            multiplier=nu,
            shortfall=0.5 * nu * depth,
        )
    sizes = np.linalg.norm(mode.sides, axis=1)
    scale = 1.0 + float(np.abs(mode.point).max())
    active = np.flatnonzero(mode.depths <= ACTIVE * scale * sizes)
    if not active.size:
        return mode
    from scipy import optimize

    root = np.linalg.cholesky(hessian)
    rows = linalg.solve_triangular(root, mode.sides[active].T, lower=True)
    pull = linalg.solve_triangular(root, gradient, lower=True)
    multipliers = np.zeros(len(sizes))
    try:
        multipliers[active] = optimize.nnls(rows, -pull)[0]
    except RuntimeError:
        return mode
    residual = gradient + multipliers @ mode.sides
    depths = mode.depths + DEPTH_ROUNDING * scale * sizes
    return replace(
        mode,
        residual=residual,
        multipliers=multipliers,
        shortfall=float(multipliers @ depths),
    )
