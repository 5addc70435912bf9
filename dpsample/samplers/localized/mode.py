# mypy: allow-untyped-defs
"""Minimizer of the energy on the domain, and how the domain's boundary holds it.

Newton's method; each step minimizes the quadratic model on the domain. The localization
needs no exact minimizer, it counts what is left of the slope as ``residual``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from dpsample.core.arrays import Array
from dpsample.core.entries import call
from dpsample.core.jit import kernel
from dpsample.domains import Ball, Box, Domain, Polytope, Simplex
from dpsample.problem.records import (
    add_transposed,
    curvature_matrix,
    margins_of,
    products_of,
)
from dpsample.regularizers import Entropy
from dpsample.samplers.gaussian_fit import hull_basis, minimize, regularizer_hessian
from dpsample.targets.gibbs import Gibbs

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
    domain but for rounding: q = - ``multiplier`` (x0 - center) on the boundary of a
    ball, q = - ``sides``^T ``multipliers`` where flat sides are active; e is the
    ``residual``.
    """

    point: Array  # (dim,)
    basis: Array  # (dim, m)
    margins: Array  # (num_records,), with the loss and its slope there
    values: Array
    slopes: Array
    weights: Array  # (num_records,): phi'' at the margins, or close by
    gram: Array  # (m, m): k times the mean of weights_i a_i a_i^T, in the basis
    gradient: Array  # (m,): g
    residual: Array  # (m,): e
    multiplier: float
    sides: Array  # (num_sides, m): all flat sides <= depths of the domain, from x0
    depths: Array  # (num_sides,)
    multipliers: Array  # (num_sides,)
    shortfall: float  # <q, w> >= -shortfall on the domain: x0 is off the boundary


def find(
    target: Gibbs, mu: float, start: Array | None = None, *, small: float = SMALL
) -> Mode | None:
    """Minimize k (F + mu r) on the domain; None if that fails, which is no error.

    It ends with the step whose gain in energy is at most ``small`` squared.
    """
    domain, dim = target.problem.domain, target.dim
    sides, bounds = flat_sides(domain, dim)
    # The entropy falls without end at 0: x0 stays off, held by the side nearby.
    least = LEAST if isinstance(target.regularizer, Entropy) and mu > 0.0 else 0.0
    basis = hull_basis(target)
    point = domain.interior_point(dim) if start is None else start
    loss, data, weight = target.problem.loss, target.data, target.k * mu
    descent = _evaluated(target, weight, point)
    for _ in range(MAX_STEPS):
        gradient = descent.gradient @ basis
        margins = descent.margins
        weights = loss.curvature(margins, margins, data.response)[1]
        if not (np.isfinite(weights).all() and np.isfinite(gradient).all()):
            return None
        gram = target.k * (basis.T @ curvature_matrix(data, weights) @ basis)
        point = descent.point
        bend = np.diag(1.0 / point) if least else regularizer_hessian(target, point)
        hessian = gram + weight * (basis.T @ bend @ basis)
        hessian += FLOOR * float(np.trace(hessian)) * np.eye(len(hessian))
        move = _model_step(
            domain, point, basis, gradient, hessian, (sides, bounds - least)
        )
        if move is None or not np.isfinite(move).all():
            return None
        gain = -float(gradient @ move)  # at least half the decrement's square
        # Slopes of the entropy move with the logarithms of coordinates.
        is_last = gain <= (least or small**2)
        numbers, pieces = target.numbers, target.pieces
        scale = call(descend, numbers, pieces, weight, gain, basis @ move, descent)
        if scale == 0.0:
            return None
        if is_last and scale == 1.0:
            break
    else:
        return None
    point = descent.point
    if not domain.contains(point):
        return None
    mode = replace(at(target, mu, point), weights=weights, gram=gram)
    return _held(mode, domain, hessian) if np.isfinite(mode.gradient).all() else None


class Descent(NamedTuple):
    """Where the descent is, and where a step of it leads."""

    point: Array  # (dim,)
    gradient: Array  # (dim,): of the energy
    trial: Array  # (dim,)
    margins: Array  # (num_records,), with the loss and its slope there
    values: Array
    slopes: Array
    there: Array
    values_there: Array
    slopes_there: Array
    out: Array  # (2,)


def _evaluated(target: Gibbs, weight: float, start: Array) -> Descent:
    """Descent that begins at a point of the domain."""
    room, point = np.empty((6, target.data.num_records)), np.empty((2, target.dim))
    first = np.array(start, dtype=np.float64)
    descent = Descent(first, *point, *room, np.empty(2))  # type: ignore[call-arg]
    call(begin, target.numbers, target.pieces, weight, descent)
    return descent


@kernel
def evaluate(target, pieces, margins, values, slopes, out):
    """Fill in losses and slopes at margins."""
    data, values[:], out[0] = target.data, margins, np.nan
    pieces.loss_slope(data.loss_params, values, data.response, slopes, out)
    if np.isnan(out[0]):  # a piece that stops halfway
        values[:] = np.nan


@kernel
def penalty(target, pieces, weight, point, out):
    """Return the regularizer's part of the energy."""
    out[0] = 0.0
    if weight > 0.0:
        out[0] = np.nan
        pieces.regularizer_value(target.regularizer, point, out)
    return weight * out[0]


@kernel
def add_up(target, pieces, weight, descent):
    """Fill in the energy's gradient."""
    data, gradient, scratch = target.data, descent.gradient, descent.trial
    gradient[:] = 0.0
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        add_transposed(data, descent.slopes[start:stop], start, stop, scratch, gradient)
    if weight > 0.0:
        scratch[:] = np.nan
        pieces.regularizer_gradient(target.regularizer, descent.point, scratch)
    for j in range(gradient.shape[0]):
        gradient[j] *= target.k / data.num_records
        if weight > 0.0:
            gradient[j] += weight * scratch[j]


@kernel
def begin(target, pieces, weight, descent):
    """Evaluate the energy and its gradient at the first point."""
    data, margins, out = target.data, descent.margins, descent.out
    for start in range(0, data.num_records, data.block):
        stop = min(start + data.block, data.num_records)
        margins_of(data, descent.point, start, stop, margins[start:stop])
    evaluate(target, pieces, margins, descent.values, descent.slopes, out)
    add_up(target, pieces, weight, descent)


@kernel
def descend(target, pieces, weight, gain, direction, descent):
    """Go along a direction until the energy falls; return how far, 0 if it never does.

    What rounding errors put outside of the domain goes back.
    """
    data, out, point, trial = target.data, descent.out, descent.point, descent.trial
    along, start = (
        np.empty(data.num_records),
        penalty(target, pieces, weight, point, descent.out),
    )
    for first in range(0, data.num_records, data.block):
        stop = min(first + data.block, data.num_records)
        products_of(data, direction, first, stop, along[first:stop])
    before, scale = target.k * descent.values.mean() + start, 1.0
    for _ in range(MAX_HALVINGS):
        trial[:] = point + scale * direction
        descent.there[:] = descent.margins + scale * along
        there, slopes = descent.values_there, descent.slopes_there
        evaluate(target, pieces, descent.there, there, slopes, out)
        after = target.k * (there - descent.values).mean()
        after += penalty(target, pieces, weight, trial, out)
        enough = after - start <= -0.1 * scale * gain
        if enough or abs(scale * gain) <= 1e-12 * (1.0 + abs(before)):
            break
        scale *= 0.5
    else:
        return 0.0
    settle(target, pieces, trial, out)
    point[:], descent.margins[:] = trial, descent.there
    descent.values[:], descent.slopes[:] = descent.values_there, descent.slopes_there
    add_up(target, pieces, weight, descent)
    return scale


@kernel
def settle(target, pieces, point, out):
    """Undo rounding errors that put a point outside the domain."""
    out[0] = np.nan
    pieces.contains(target.body, point, out)
    if out[0] == 1.0:
        return
    near, distance, size = np.full(point.shape[0], np.nan), 0.0, 0.0
    pieces.project(target.body, point, near)
    for j in range(point.shape[0]):
        distance = max(distance, abs(near[j] - point[j]))
        size = max(size, abs(point[j]))
    if distance <= 1e-10 * (1.0 + size):
        point[:] = near


def find_slowly(target: Gibbs) -> Mode | None:
    """As `find`, by projected gradients: Newton may fail where r bends sharply."""
    point, _ = minimize(target, tolerance=SLOWLY)
    mode = at(target, target.mu, point)
    loss, margins = target.problem.loss, mode.margins
    weights = loss.curvature(margins, margins, target.data.response)[1]
    if not (np.isfinite(weights).all() and np.isfinite(mode.gradient).all()):
        return None
    basis = mode.basis
    gram = target.k * (basis.T @ curvature_matrix(target.data, weights) @ basis)
    ridge = target.k * target.mu * target.regularizer.curvature_l2(target.dim)[0]
    found = replace(mode, weights=weights, gram=gram)
    return _held(found, target.problem.domain, gram + ridge * np.eye(len(gram)))


def at(target: Gibbs, mu: float, point: Array) -> Mode:
    """Any point of the domain as x0, with all of its slope as residual."""
    sides, bounds = flat_sides(target.problem.domain, target.dim)
    basis = hull_basis(target)
    found = _evaluated(target, target.k * mu, point)
    gradient = found.gradient @ basis
    depths = np.maximum(bounds - sides @ point, 0.0)
    return Mode(
        point=point,
        basis=basis,
        margins=found.margins,
        values=found.values,
        slopes=found.slopes,
        weights=np.zeros(len(found.margins)),
        gram=np.zeros((basis.shape[1],) * 2),
        gradient=gradient,
        residual=gradient,
        multiplier=0.0,
        sides=sides @ basis,
        depths=depths,
        multipliers=np.zeros(len(depths)),
        shortfall=0.0,
    )


def flat_sides(domain: Domain, dim: int) -> tuple[Array, Array]:
    """All inequalities <row, x> <= bound of a domain with flat sides; else none."""
    body, eye = domain.body(dim), np.eye(dim)
    if isinstance(domain, Polytope):
        return body.matrix, body.bounds
    if isinstance(domain, Simplex):
        return -eye, np.zeros(dim)
    if isinstance(domain, Box) or (isinstance(domain, Ball) and domain.p == np.inf):
        rows = np.concatenate([eye, -eye])
        bounds = np.concatenate([body.upper, -body.lower])
        is_finite = np.isfinite(bounds)
        return rows[is_finite], bounds[is_finite]
    return np.zeros((0, dim)), np.zeros(0)


def is_round(domain: Domain) -> bool:
    """Whether the domain is a Euclidean ball."""
    return isinstance(domain, Ball) and domain.p == 2.0


def _model_step(
    domain: Domain,
    point: Array,
    basis: Array,
    gradient: Array,
    hessian: Array,
    flat: tuple[Array, Array],
) -> Array | None:
    """Minimizer v of <g, v> + v^T H v / 2 with x + basis v in the domain.

    On domains that are neither flat-sided nor round, and where the model's minimizer
    would leave them, there is none.
    """
    try:
        root = np.asarray(np.linalg.cholesky(hessian), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    free = -linalg.cho_solve((root, True), gradient)
    if is_round(domain):
        body = domain.body(len(point))
        return _step_in_ball(point - body.center, body.radius, free, gradient, hessian)
    sides, bounds = flat
    if len(sides):
        depths = np.maximum(bounds - sides @ point, 0.0)
        return _step_in_polytope(sides @ basis, depths, free, gradient, root)
    return free


def _step_in_ball(
    center: Array, radius: float, free: Array, gradient: Array, hessian: Array
) -> Array:
    """Trust-region problem with ||center + v|| <= radius, in eigenvectors of H."""
    if np.linalg.norm(center + free) <= radius:
        return free
    eigenvalues, vectors = np.linalg.eigh(hessian)
    pull = vectors.T @ (hessian @ center - gradient)
    end = vectors @ (pull / (eigenvalues + secular_root(eigenvalues, pull, radius)))
    return np.asarray(end * min(1.0, radius / float(np.linalg.norm(end))) - center)


@kernel
def secular_root(eigenvalues, pull, radius):
    """Return nu >= 0 with ||pull / (eigenvalues + nu)|| = radius; 0 if there is none.

    Newton's method on the reciprocal of the norm, which is concave in nu: monotone from
    the left (More and Sorensen, 1983).
    """
    nu = 0.0
    for _ in range(100):
        square, cube = 0.0, 0.0
        for j in range(pull.shape[0]):
            ratio = pull[j] / (eigenvalues[j] + nu)
            square += ratio * ratio
            cube += ratio * ratio / (eigenvalues[j] + nu)
        size = np.sqrt(square)
        step = (size / radius - 1.0) * square / cube
        if not step > 1e-15 * nu:
            break
        nu += step
    return nu


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


def _held(mode: Mode, domain: Domain, hessian: Array) -> Mode:
    """Split the slope into what the boundary holds and the residual."""
    from scipy import optimize

    gradient = mode.gradient
    if is_round(domain):
        body = domain.body(len(mode.point))
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
