"""Gaussian fit to a target on a domain whose walls hold it, by a logarithmic barrier.

For a density exp(-lambda s) of the distance s to a wall, lambda s - log s is least at
the mean 1 / lambda, and its curvature there is the reciprocal of the variance. So the
averaged energy of `gaussian_fit` plus a barrier of weight one has its minimum near the
mean of the target, and its Hessian is close to the precision, walls included. The fit
moves running times only, never the law of a draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from dpsample.core.arrays import Array
from dpsample.domains import Ball, Box, Domain, Polytope, SchattenBall, Simplex
from dpsample.samplers.adaptive.mass_matrix import MassMatrix, dense, low_rank
from dpsample.samplers.gaussian_fit import (
    RETREAT,
    Damping,
    averaged_derivatives,
    averaged_slopes,
    clipped_inverse,
    fit,
    hull_basis,
    regularizer_hessian,
    rough_mode,
)
from dpsample.targets.gibbs import Gibbs, as_rows, form_in_basis, times_basis

MAX_STEPS = 200
NUM_WIDTHS = 3  # turns in which windows and a wide metric are made to agree
KEPT = 0.1  # share of each slack that a Newton step leaves at least
ACTIVE = 3.0  # standard deviations from a sphere within which it holds the mass
OFF_WALL = 0.1  # share of the way from the mode to an interior point, at the start
THINNEST = 1e6  # times a metric is thinner along a slope: its square has 12 digits
STEEPEST = 1e100  # pressure on a round wall, whose square is a number

MAX_DENSE = 800  # dimensions of a dense metric
LEAST = 1e-6  # eigenvalue that a wide metric is given, against rounding errors
NUM_OUTER = 40  # directions of a wide metric beside its diagonal

# Gradient and Hessian of a barrier at a point, and the longest step that keeps off
# the walls along a direction.
Barrier = tuple[Callable[[Array], tuple[Array, Array]], Callable[[Array, Array], float]]


class BarrierFit(NamedTuple):
    """Center in the domain's interior, and a mass matrix."""

    center: Array  # (dim,)
    mass: MassMatrix
    normal: Array | None = None  # of a sphere, whose variance must not be learned


def barrier_fit(target: Gibbs) -> BarrierFit:
    """Fit a Gaussian to the target and the walls of its domain."""
    domain = target.problem.domain
    if target.dim > MAX_DENSE:
        return _wide_fit(target)
    if isinstance(domain, Ball) and domain.p == 1.0 and target.dim > 1:
        return _lifted_fit(target)
    if domain.name == "whole_space":
        gaussian = fit(target)
        return BarrierFit(gaussian.center, dense(gaussian.factor))
    barrier = _barrier(domain, target.dim)
    if barrier is None:
        return _held_fit(target)
    derivatives, longest = barrier
    basis = hull_basis(target)
    start, interior = rough_mode(target), domain.interior_point(target.dim)
    point = start + OFF_WALL * (interior - start)
    covariance: Array | None = None
    damping = Damping(basis.shape[1])
    for _ in range(MAX_STEPS):
        slope, precision = averaged_derivatives(target, basis, point, covariance)
        wall_slope, wall_curvature = derivatives(point)
        slope = slope + basis.T @ wall_slope
        precision = precision + form_in_basis(wall_curvature, basis)
        covariance = _inverse(precision)
        move = -covariance @ slope
        decrement = float(np.sqrt(max(-float(move @ slope), 0.0)))
        step = min(damping.step(decrement), longest(point, basis @ move))
        point = point + step * (basis @ move)
        if damping.is_over:
            break
    assert covariance is not None
    normal = None
    if isinstance(domain, Ball) and domain.p == 2.0:
        covariance, normal = _rounded(domain, point, covariance)
    factor = times_basis(basis, np.linalg.cholesky(covariance))
    return BarrierFit(point, dense(factor), normal)


def _held_fit(target: Gibbs) -> BarrierFit:
    """Gaussian fit, with the precisions of a round wall and of what it encloses.

    <g, x> is a sum of d - 1 terms, see `_round_wall`, of variance 1/p each, and of an
    exponential above the wall; they have the mean of their variance, which is how far
    up the center is. The uniform law has a variance of about s^(1 - 2/p) / (d + 2), in
    units of the radius, with s the dimension or the smaller side of the matrices.
    """
    gaussian, domain, dim = fit(target), target.problem.domain, target.dim
    assert isinstance(domain, Ball | SchattenBall)
    slope, p = target.gradient(gaussian.center), domain.p
    center, mode, rise = gaussian.center, rough_mode(target), (dim - 1.0) / p + 1.0
    inwards = domain.interior_point(dim) - mode
    climb = float(slope @ inwards)
    if RETREAT * climb > rise:  # the fit, off the boundary, is too far up
        center = mode + rise / climb * inwards
    side = min(domain.shape) if isinstance(domain, SchattenBall) else dim
    within = (dim + 2.0) * side ** (2.0 / p - 1.0)
    pressure = float(0.5 * (domain.support(slope) + domain.support(-slope)))
    pressure = min(pressure, STEEPEST)
    offset = (center - domain.default_center(dim)) / domain.radius
    wall = _round_wall(domain, offset, pressure) + within * np.eye(dim)
    precision = _inverse(gaussian.factor @ gaussian.factor.T)
    factor = np.linalg.cholesky(_inverse(precision + wall / domain.radius**2))
    along = slope @ factor
    size = float(np.linalg.norm(along))
    if size > 0.0:  # a precision more, which a sum would lose beside a steep slope
        thinner = min(math.hypot(1.0, size / math.sqrt(rise)), THINNEST)
        along /= size
        factor += np.outer((1.0 / thinner - 1.0) * (factor @ along), along)
    return BarrierFit(center, dense(factor))


def _round_wall(domain: Ball | SchattenBall, offset: Array, pressure: float) -> Array:
    """Precision of exp(-<g, x>) on the wall of a ball at an offset, both of its radius.

    The pressure lambda is half the range of <g, x>. The norm is about 1 + |x_j|^p / p
    near 0, which gives x_j the law exp(-lambda |x_j|^p / p), of variance (p / lambda)^
    (2/p) Gamma(3/p) / Gamma(1/p), and the precision lambda (p - 1) |x_j|^(p - 2)
    elsewhere. Entries of matrices, in the singular vectors of the offset, have the
    precision lambda (s_i^(p - 1) + s_j^(p - 1)) / (s_i + s_j) for singular values s,
    and near 0 the law exp(-lambda |X|^p / p), of variance l^(2/p - 1) lambda^(-2/p)
    for a longer side l. From p = 2 on lambda is a rough value for all of them.
    """
    p, dim = domain.p, len(offset)
    if isinstance(domain, Ball):
        place = np.clip(np.abs(offset), 1e-100, 1.0)
        away = np.minimum(pressure * ((p - 1.0) * place ** (p - 2.0)), pressure**2)
        share = np.exp(special.gammaln(1.0 / p) - special.gammaln(3.0 / p))
        near = (pressure / p) ** (2.0 / p) * share
        return np.diag(np.minimum(near, away) if p < 2.0 else np.maximum(near, away))
    if p >= 2.0:
        return pressure * np.eye(dim)
    left, place, right = np.linalg.svd(offset.reshape(domain.shape))
    rows, columns = (
        np.clip(np.pad(place, (0, side - len(place))), 1e-100, 1.0)
        for side in domain.shape
    )
    steep = np.add.outer(rows ** (p - 1.0), columns ** (p - 1.0))
    away = pressure * (steep / np.add.outer(rows, columns))
    near = max(domain.shape) ** (1.0 - 2.0 / p) * pressure ** (2.0 / p)
    axes = np.kron(left, right.T)
    return np.asarray((axes * np.minimum(near, away).ravel()) @ axes.T)


def _barrier(domain: Domain, dim: int) -> Barrier | None:
    """Barrier of flat sides or of a Euclidean ball; None for other shapes."""
    body = domain.body(dim)
    if isinstance(domain, Polytope):
        return _flat_barrier(body.matrix, body.bounds)
    if isinstance(domain, Box | Simplex):
        lower = np.zeros(dim) if isinstance(domain, Simplex) else body.lower
        upper = np.full(dim, np.inf) if isinstance(domain, Simplex) else body.upper
        return _box_barrier(lower, upper)
    if not isinstance(domain, Ball):
        return None
    if domain.p == np.inf:
        return _box_barrier(body.lower, body.upper)
    if domain.p == 1.0 and dim == 1:
        return _box_barrier(body.center - body.radius, body.center + body.radius)
    return _round_barrier(body.center, body.radius) if domain.p == 2.0 else None


def _box_barrier(lower: Array, upper: Array) -> Barrier:
    def derivatives(point: Array) -> tuple[Array, Array]:
        # In a box of a few doubles' width, rounding puts the point on a wall.
        least = np.spacing(np.abs(point))
        below = 1.0 / np.maximum(point - lower, least)
        above = 1.0 / np.maximum(upper - point, least)
        return above - below, np.diag(below**2 + above**2)

    def longest(point: Array, move: Array) -> float:
        slack = np.where(move > 0.0, upper - point, point - lower)
        return _share(slack, np.abs(move))

    return derivatives, longest


def _flat_barrier(sides: Array, bounds: Array) -> Barrier:
    def derivatives(point: Array) -> tuple[Array, Array]:
        inverse = 1.0 / (bounds - sides @ point)
        scaled = sides * inverse[:, None]
        return scaled.sum(axis=0), scaled.T @ scaled

    def longest(point: Array, move: Array) -> float:
        return _share(bounds - sides @ point, np.maximum(sides @ move, 0.0))

    return derivatives, longest


def _round_barrier(center: Array, radius: float) -> Barrier:
    def derivatives(point: Array) -> tuple[Array, Array]:
        offset = point - center
        slack = (radius**2 - offset @ offset) / 2.0
        eye = np.eye(len(point))
        return offset / slack, eye / slack + np.outer(offset, offset) / slack**2

    def longest(point: Array, move: Array) -> float:
        offset, step = point - center, 1.0
        slack = radius**2 - offset @ offset
        while radius**2 - np.sum((offset + step * move) ** 2) < KEPT * slack:
            step *= 0.7
        return step

    return derivatives, longest


def _share(slack: Array, pace: Array) -> float:
    """Longest step, at most 1, that leaves `KEPT` of every slack."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(pace > 0.0, (1.0 - KEPT) * slack / pace, np.inf)
    return float(min(1.0, steps.min(initial=1.0)))


def _inverse(precision: Array) -> Array:
    try:
        factor = linalg.cho_factor(precision)
    except linalg.LinAlgError:
        return clipped_inverse(precision)
    inverse = linalg.cho_solve(factor, np.eye(len(precision)))
    inverse = np.asarray(0.5 * (inverse + inverse.T))
    try:
        np.linalg.cholesky(inverse)
    except linalg.LinAlgError:  # its least eigenvalues are lost beside the largest
        return clipped_inverse(precision)
    return inverse


def _rounded(ball: Ball, point: Array, covariance: Array) -> tuple[Array, Array | None]:
    """Give the normal of an active sphere the variance of a tangent direction.

    Normals tilt over the mass: in a metric that is thin along one of them, the bounce
    at another throws a trajectory far along the sphere. The fixed force of the flow
    takes care of the thin layer instead.
    """
    offset = point - ball.default_center(len(point))
    distance = float(np.linalg.norm(offset))
    if len(point) == 1 or distance == 0.0:
        return covariance, None
    normal = offset / distance
    across = np.eye(len(point)) - np.outer(normal, normal)
    tangent = across @ covariance @ across
    mean = float(np.trace(tangent)) / (len(point) - 1)
    thickness = float(normal @ covariance @ normal)
    is_active = ball.radius - distance < ACTIVE * np.sqrt(thickness)
    if not is_active or thickness >= mean:
        return covariance, None
    return tangent + mean * np.outer(normal, normal), normal


def _lifted_fit(target: Gibbs) -> BarrierFit:
    """Fit on an l1 ball, with x = u - w and a barrier for u, w and the sum's slack.

    The lift makes the fit right for asymmetric exponential coordinates, too. Its Newton
    steps are eliminated down to the dimension of x: with D the inverse Hessian of the
    barrier, J = [1, -1] and P = J D J^T, the step of (u, w) is -D (b + J^T z), where z
    = (1 + H P)^{-1} (g - H J D b), and x has the covariance (H + P^{-1})^{-1}.
    """
    body, dim, eye = target.numbers.body, target.dim, np.eye(target.dim)
    mode = rough_mode(target) - body.center
    spread = 0.05 * body.radius / dim
    lifted = np.concatenate([np.maximum(mode, 0.0), np.maximum(-mode, 0.0)]) + spread
    lifted *= min(1.0, (1.0 - 0.5 * OFF_WALL) * body.radius / lifted.sum())
    covariance: Array | None = None
    damping = Damping(2 * dim)
    for _ in range(MAX_STEPS):
        point, slack = lifted[:dim] - lifted[dim:], body.radius - lifted.sum()
        slope, curvature = averaged_derivatives(
            target, eye, body.center + point, covariance
        )
        squares = lifted**2
        # D = diag(y^2) - y^2 y^2^T / total, by Sherman and Morrison.
        total = slack**2 + squares.sum()
        wall_slope = 1.0 / slack - 1.0 / lifted
        wall_step = squares * wall_slope - squares * (squares @ wall_slope) / total
        skew = squares[:dim] - squares[dim:]
        inner = np.diag(squares[:dim] + squares[dim:]) - np.outer(skew, skew) / total
        drift = wall_step[:dim] - wall_step[dim:]
        pull = np.linalg.solve(eye + curvature @ inner, slope - curvature @ drift)
        both = np.concatenate([pull, -pull])
        move = -wall_step - squares * both + squares * (squares @ both) / total
        gradient = np.concatenate([slope, -slope]) + wall_slope
        decrement = float(np.sqrt(max(-float(move @ gradient), 0.0)))
        slacks, paces = np.append(lifted, slack), np.append(-move, move.sum())
        step = min(damping.step(decrement), _share(slacks, np.maximum(paces, 0.0)))
        lifted = lifted + step * move
        covariance = _inverse(curvature + _inverse(inner))
        if damping.is_over:
            break
    assert covariance is not None
    center = body.center + lifted[:dim] - lifted[dim:]
    return BarrierFit(center, dense(np.linalg.cholesky(covariance)))


def _wide_fit(target: Gibbs) -> BarrierFit:
    """Fit in many dimensions: a diagonal, and the directions that stand out from it.

    With D the diagonal's inverse root and D H D = sum lambda_i q_i q_i^T in its largest
    eigenvalues, the factor is D (I + sum (lambda_i^{-1/2} - 1) q_i q_i^T). On the
    simplex D 1 is removed, so that the columns of the factor sum to zero.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    problem, data = target.problem, target.data
    rows: Any = as_rows(data)  # dense or sparse
    mode, interior = rough_mode(target), problem.domain.interior_point(target.dim)
    center = mode + OFF_WALL * (interior - mode)
    margins = rows @ center + (data.offset if data.offset.size else 0.0)
    squares = rows**2 if data.dense.shape[0] else rows.multiply(rows)
    rest = target.k * target.mu * regularizer_hessian(target, center)
    barrier = _barrier(problem.domain, target.dim)
    floor: Any = 0.0
    if barrier is not None:
        rest = rest + barrier[0](center)[1]
    elif problem.domain.is_bounded:  # the variances of a ball of the domain's widths
        eye = np.eye(target.dim)
        half = 0.5 * (problem.domain.support(eye) + problem.domain.support(-eye))
        floor = (target.dim + 2.0) / np.asarray(half) ** 2
    weight, width = target.k / data.num_records, np.ones(data.num_records)
    for _ in range(NUM_WIDTHS):
        curvatures = weight * averaged_slopes(target, margins, width)[1]
        scale = 1.0 / np.sqrt(squares.T @ curvatures + np.diag(rest) + floor)
        width = np.sqrt(3.0 * (squares @ scale**2)) + 1e-6
    removed = np.zeros((target.dim, 0))
    if problem.domain.affine_dim(target.dim) < target.dim:
        removed = (scale / np.linalg.norm(scale))[:, None]

    def scaled(vector: Array) -> Array:
        vector = vector - removed @ (removed.T @ vector)
        inner = scale * vector
        moved = rows.T @ (curvatures * (rows @ inner)) + rest @ inner + floor * inner
        moved = scale * moved
        return np.asarray(moved - removed @ (removed.T @ moved))

    shape = (target.dim, target.dim)
    hessian = LinearOperator(shape, matvec=scaled, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(target.dim)
    found, outer = eigsh(hessian, k=NUM_OUTER, v0=start, tol=1e-3)
    stretch = np.concatenate(
        [np.zeros(removed.shape[1]), np.maximum(found, LEAST) ** -0.5]
    )
    return BarrierFit(center, low_rank(scale, np.hstack([removed, outer]), stretch))
