"""Gaussian fit to a target that the boundary of its domain confines.

For a density exp(-lambda s) of the distance s to a facet, lambda s - log s is smallest
at the mean 1 / lambda, and its curvature there is the reciprocal of the variance.
`gaussian_fit` averages the energy over the Gaussian that was fitted so far. This energy
plus a logarithmic barrier of weight one has its minimum near the mean of the target,
and its Hessian is close to the precision, also at the boundary.

Boxes, simplices, polytopes and Euclidean balls have such a barrier. On an l1 ball it
acts on twice as many coordinates. Other balls have no barrier here, and the precision
at their boundary is a formula. In more than `MAX_DENSE` dimensions the mass matrix is a
diagonal plus a matrix of low rank, and a Euclidean ball adds a multiple of I to the
precision (`_ball_pressure`).

The fit changes running times only, and never the distribution of a draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from dpsample.core.arrays import Array
from dpsample.domains import Body, Domain, Ellipsoid, Intersection
from dpsample.samplers.adaptive.mass_matrix import MassMatrix, dense, low_rank
from dpsample.samplers.gaussian_fit import (
    RETREAT_SHARE,
    Damping,
    averaged_derivatives,
    averaged_slopes,
    clipped_inverse,
    fit,
    hull_basis,
    regularizer_hessian,
    rough_mode,
)
from dpsample.targets.density import Density
from dpsample.targets.gibbs import Gibbs, as_rows
from dpsample.targets.gibbs_target import GibbsTarget, form_in_basis, times_basis

# Maximum number of Newton steps. Then the last iterate is used, as any fit is valid.
MAX_STEPS = 200
# Maximum number of dimensions of a dense mass matrix.
MAX_DENSE = 800
# Minimum share of each slack that a Newton step leaves.
MIN_SLACK_SHARE = 0.1
# Share of the way from the mode to an interior point at which Newton's method starts.
INWARD_SHARE = 0.1


class Barrier(NamedTuple):
    """A logarithmic barrier, minus the sum of the logarithms of slacks."""

    # Gradient (dim,) and Hessian (dim, dim) at a point.
    differentiate: Callable[[Array], tuple[Array, Array]]
    # Longest step, at most 1, along a direction from a point. It leaves
    # `MIN_SLACK_SHARE` of each slack.
    find_longest_step: Callable[[Array, Array], float]


class BarrierFit(NamedTuple):
    """Center in the domain's interior, and a mass matrix."""

    center: Array  # (dim,)
    mass: MassMatrix
    # Normal of a sphere along which `_widen_along_normal` raised the variance, so that
    # it must not be learned from draws. None if it did not.
    normal: Array | None = None
    # Whether flights should be rotations about the center, the exact motion in the
    # Gaussian. They are faster if it confines the draws more than the sphere does.
    rotates: bool = False


def barrier_fit(target: GibbsTarget) -> BarrierFit:
    """Fit a Gaussian to the target and the boundary of its domain.

    Steps are taken in coordinates of the basis (dim, rank) of the domain's affine hull.
    Gradients have shape (rank,) there, and precisions and covariances (rank, rank).
    """
    # The body has the domain's center, radius, bounds and rows in this dimension. It is
    # the same as ``domain.body(target.dim)``.
    domain, body = target.domain, target.numbers.body
    if target.dim > MAX_DENSE:
        return _fit_low_rank(target)
    if domain.lp_exponent == 1.0 and target.dim > 1:
        return _fit_in_l1_ball(target)
    if domain.is_whole_space:
        return _fit_freely(target)
    barrier = _barrier(domain, target.dim)
    is_ball = domain.lp_exponent is not None or domain.schatten_exponent is not None
    if barrier is None:
        return _fit_in_ball(target) if is_ball else _fit_freely(target)
    differentiate, find_longest_step = barrier
    basis = hull_basis(target)
    start, interior = rough_mode(target), domain.interior_point(target.dim)
    # The mode may be on the boundary, where the barrier is infinite.
    point = start + INWARD_SHARE * (interior - start)
    covariance: Array | None = None
    # It shortens steps that are many standard deviations long. It ends the search after
    # a step of 0.03 of them, or when steps that grow have made it cautious.
    damping = Damping(basis.shape[1])
    for _ in range(MAX_STEPS):
        slope, precision = averaged_derivatives(target, basis, point, covariance)
        barrier_slope, barrier_curvature = differentiate(point)
        slope = slope + basis.T @ barrier_slope
        precision = precision + form_in_basis(barrier_curvature, basis)
        covariance = _inverse(precision)
        move = -covariance @ slope
        decrement = float(np.sqrt(max(-float(move @ slope), 0.0)))
        step = min(damping.step(decrement), find_longest_step(point, basis @ move))
        point = point + step * (basis @ move)
        if damping.is_over:
            break
    assert covariance is not None
    normal = None
    if domain.lp_exponent == 2.0:
        covariance, normal = _widen_along_normal(body, point, covariance)
    factor = times_basis(basis, np.linalg.cholesky(covariance))
    return BarrierFit(point, dense(factor), normal)


def _fit_freely(target: GibbsTarget) -> BarrierFit:
    """Return the Gaussian fit, where no barrier is known."""
    gaussian = fit(target)
    return BarrierFit(gaussian.center, dense(gaussian.factor))


def _fit_in_ball(target: GibbsTarget) -> BarrierFit:
    """Combine the Gaussian fit with precisions of the boundary and of the interior.

    The gradient g confines the draws to the boundary. There <g, x> minus its minimum is
    a sum of d terms. One belongs to each of d - 1 motions along the boundary. It is
    lambda |x_j|^p / p at the density exp(-lambda |x_j|^p / p) of
    `_boundary_precision`, which has the gamma distribution of shape 1/p. The last one
    belongs to the distance from the boundary, and is a standard exponential. Means and
    variances of these are 1/p and 1. So <g, x> has the variance ``rise`` =
    (d - 1)/p + 1, and by as much the energy at the mean exceeds that at the mode.

    The uniform distribution has a variance of about s^(1 - 2/p) / (d + 2), in units of
    the squared radius, where s is the dimension or the smaller side of the matrices
    (`Domain.norm_length`).
    """
    gaussian, domain, dim = fit(target), target.domain, target.dim
    body = target.numbers.body
    slope, p = target.gradient(gaussian.center), body.p
    center, mode, rise = gaussian.center, rough_mode(target), (dim - 1.0) / p + 1.0
    inward = domain.interior_point(dim) - mode
    climb = float(slope @ inward)
    # A steep energy is too high at the center of the Gaussian fit, which begins at a
    # thousandth of the way from the mode to the interior point (`RETREAT_SHARE`). Then
    # the center is put where the linearized energy exceeds the mode's by ``rise``.
    if RETREAT_SHARE * climb > rise:
        center = mode + rise / climb * inward
    has_matrices = domain.matrix_shape is not None
    interior_precision = (dim + 2.0) * domain.norm_length(dim) ** (2.0 / p - 1.0)
    pressure = float(0.5 * (domain.support(slope) + domain.support(-slope)))
    pressure = min(pressure, 1e100)  # its square must be finite
    offset = (center - domain.default_center(dim)) / body.radius
    # In units of radius^-2.
    ball_precision = _boundary_precision(body, has_matrices, offset, pressure)
    ball_precision = ball_precision + interior_precision * np.eye(dim)
    precision = _inverse(gaussian.factor @ gaussian.factor.T)
    factor = np.linalg.cholesky(_inverse(precision + ball_precision / body.radius**2))
    along = slope @ factor
    slope_stddev = float(np.linalg.norm(along))  # standard deviation of <g, x>
    # The precision along the gradient is a factor of its own, because a sum would lose
    # the other precisions in comparison: F (I + (1/ratio - 1) a a^T), with the unit
    # vector a along F^T g, divides the standard deviation of <g, x> by the ratio. So
    # the precisions 1 / slope_stddev^2 and 1 / rise of <g, x> are added. At a ratio of
    # 10^6 its square has 12 digits, nearly all that a double has.
    if slope_stddev > 0.0:
        ratio = min(math.hypot(1.0, slope_stddev / math.sqrt(rise)), 1e6)
        along /= slope_stddev
        factor += np.outer((1.0 / ratio - 1.0) * (factor @ along), along)
    return BarrierFit(center, dense(factor))


def _boundary_precision(
    body: Body, has_matrices: bool, offset: Array, pressure: float
) -> Array:
    """Return the precision of exp(-<g, x>) on the boundary of a ball at an offset.

    Lengths are in units of the radius. The pressure lambda is half the range of
    <g, x>.

    - Coordinates x_j of vectors. The norm is about 1 + |x_j|^p / p near 0, which gives
      x_j the density exp(-lambda |x_j|^p / p), of variance (p / lambda)^(2/p)
      Gamma(3/p) / Gamma(1/p). Elsewhere the precision is lambda (p - 1) |x_j|^(p - 2).
    - Entries of matrices for p < 2, in the singular vectors of the offset. The
      precision is lambda (s_i^(p - 1) + s_j^(p - 1)) / (s_i + s_j) for singular values
      s. Near 0 the density is exp(-lambda |X|^p / p), of variance l^(2/p - 1)
      lambda^(-2/p) for a longer side l.
    - Entries of matrices for p >= 2. lambda is a rough value for all of them.

    The curvature of |x|^p at 0 is infinite for p < 2 and 0 for p > 2. So the precision
    near 0 is an upper limit in the first case and a lower limit in the second. No
    precision of a vector is above lambda^2, that of an exponential of rate lambda.
    """
    p, dim = body.p, len(offset)
    if not has_matrices:
        # Powers of the size must be finite.
        size = np.clip(np.abs(offset), 1e-100, 1.0)
        elsewhere = np.minimum(pressure * ((p - 1.0) * size ** (p - 2.0)), pressure**2)
        ratio = np.exp(special.gammaln(1.0 / p) - special.gammaln(3.0 / p))
        near_zero = (pressure / p) ** (2.0 / p) * ratio
        return np.diag(
            np.minimum(near_zero, elsewhere)
            if p < 2.0
            else np.maximum(near_zero, elsewhere)
        )
    if p >= 2.0:
        return pressure * np.eye(dim)
    shape = body.num_rows, body.num_columns
    left, singular, right = np.linalg.svd(offset.reshape(shape))
    # Singular values of each row and column in the singular vectors, padded by zeros.
    row_values, column_values = (
        np.clip(np.pad(singular, (0, side - len(singular))), 1e-100, 1.0)
        for side in shape
    )
    powers = np.add.outer(row_values ** (p - 1.0), column_values ** (p - 1.0))
    elsewhere = pressure * (powers / np.add.outer(row_values, column_values))
    near_zero = max(shape) ** (1.0 - 2.0 / p) * pressure ** (2.0 / p)
    # Matrices are flattened row by row, so the Kronecker product holds their axes.
    axes = np.kron(left, right.T)
    return np.asarray((axes * np.minimum(near_zero, elsewhere).ravel()) @ axes.T)


def _barrier(domain: Domain, dim: int) -> Barrier | None:
    """Return the barrier of facets or of a round domain, or None without one."""
    if isinstance(domain, Intersection):
        return _common_barrier([_barrier(part, dim) for part in domain.parts])
    if isinstance(domain, Ellipsoid):
        return _ellipsoid_barrier(domain.body(dim))
    body = domain.body(dim)
    if domain.is_polytope:
        return _facet_barrier(body.matrix, body.bounds)
    # A box with infinite sides is no `is_box`. Its infinite slacks add nothing.
    if domain.is_box or (domain.is_product and not domain.is_bounded):
        return _box_barrier(body.lower, body.upper)
    if domain.is_simplex:
        return _box_barrier(body.lower, np.full(dim, np.inf))
    if domain.lp_exponent == 1.0 and dim == 1:
        return _box_barrier(body.center - body.radius, body.center + body.radius)
    is_round = domain.lp_exponent == 2.0
    return _ball_barrier(body.center, body.radius) if is_round else None


def _box_barrier(lower: Array, upper: Array) -> Barrier:
    """Return the barrier -sum log(x - lower) - sum log(upper - x)."""

    def differentiate(point: Array) -> tuple[Array, Array]:
        # In a box that is only a few floating-point numbers wide, rounding may put the
        # point on a bound, where the barrier is infinite.
        spacing = np.spacing(np.abs(point))
        below = 1.0 / np.maximum(point - lower, spacing)
        above = 1.0 / np.maximum(upper - point, spacing)
        return above - below, np.diag(below**2 + above**2)

    def find_longest_step(point: Array, move: Array) -> float:
        slack = np.where(move > 0.0, upper - point, point - lower)
        return _limit_step(slack, np.abs(move))

    return Barrier(differentiate, find_longest_step)


def _facet_barrier(normals: Array, bounds: Array) -> Barrier:
    """Return the barrier -sum log(bounds - normals x)."""

    def differentiate(point: Array) -> tuple[Array, Array]:
        inverse = 1.0 / (bounds - normals @ point)
        scaled = normals * inverse[:, None]
        return scaled.sum(axis=0), scaled.T @ scaled

    def find_longest_step(point: Array, move: Array) -> float:
        slack = bounds - normals @ point
        return _limit_step(slack, np.maximum(normals @ move, 0.0))

    return Barrier(differentiate, find_longest_step)


def _common_barrier(barriers: list[Barrier | None]) -> Barrier | None:
    """Return the sum of the barriers of all parts, or None if one has none.

    The minimum of the other barriers may be outside of that part, or at infinity.
    """
    known_barriers = [barrier for barrier in barriers if barrier is not None]
    if len(known_barriers) < len(barriers):
        return None

    def differentiate(point: Array) -> tuple[Array, Array]:
        slope, bend = known_barriers[0].differentiate(point)
        for barrier in known_barriers[1:]:
            next_slope, next_bend = barrier.differentiate(point)
            slope, bend = slope + next_slope, bend + next_bend
        return slope, bend

    def find_longest_step(point: Array, move: Array) -> float:
        return min(barrier.find_longest_step(point, move) for barrier in known_barriers)

    return Barrier(differentiate, find_longest_step)


def _ellipsoid_barrier(body: Body) -> Barrier:
    """Return the barrier -log(1 - |y|^2) of an ellipsoid, y = root (x - center)."""
    root, center = body.root, body.center
    ball = _ball_barrier(np.zeros(len(center)), 1.0)

    def differentiate(point: Array) -> tuple[Array, Array]:
        slope, bend = ball.differentiate(root @ (point - center))
        return root.T @ slope, root.T @ bend @ root

    def find_longest_step(point: Array, move: Array) -> float:
        return ball.find_longest_step(root @ (point - center), root @ move)

    return Barrier(differentiate, find_longest_step)


def _ball_barrier(center: Array, radius: float) -> Barrier:
    """Return the barrier -log(radius^2 - |x - center|^2)."""

    def differentiate(point: Array) -> tuple[Array, Array]:
        offset = point - center
        slack = (radius**2 - offset @ offset) / 2.0
        eye = np.eye(len(point))
        return offset / slack, eye / slack + np.outer(offset, offset) / slack**2

    def find_longest_step(point: Array, move: Array) -> float:
        offset, step = point - center, 1.0
        slack = radius**2 - offset @ offset
        # The loop ends, because the point itself has all of the slack.
        while radius**2 - np.sum((offset + step * move) ** 2) < MIN_SLACK_SHARE * slack:
            step *= 0.7
        return step

    return Barrier(differentiate, find_longest_step)


def _limit_step(slack: Array, rate: Array) -> float:
    """Return the longest step, at most 1, that leaves `MIN_SLACK_SHARE` of slacks."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(rate > 0.0, (1.0 - MIN_SLACK_SHARE) * slack / rate, np.inf)
    return float(min(1.0, steps.min(initial=1.0)))


def _inverse(precision: Array) -> Array:
    """Return the inverse, which has a Cholesky factor."""
    try:
        factor = linalg.cho_factor(precision)
    except linalg.LinAlgError:
        return clipped_inverse(precision)
    inverse = linalg.cho_solve(factor, np.eye(len(precision)))
    inverse = np.asarray(0.5 * (inverse + inverse.T))
    try:
        np.linalg.cholesky(inverse)
    # Rounding may have made the smallest eigenvalues negative.
    except linalg.LinAlgError:
        return clipped_inverse(precision)
    return inverse


def _widen_along_normal(
    body: Body, point: Array, covariance: Array
) -> tuple[Array, Array | None]:
    """Give the normal of an active sphere the variance of a tangent direction.

    The normals at the draws differ. In a metric that is thin along one of them, the
    reflection at another normal throws a trajectory far along the sphere. The layer at
    the sphere may be thin nevertheless, because trajectories also follow the constant
    force that the warm-up chooses. Return the covariance and the normal, or None if the
    covariance is unchanged.
    """
    offset = point - body.center
    distance = float(np.linalg.norm(offset))
    if len(point) == 1 or distance == 0.0:
        return covariance, None
    normal = offset / distance
    projection = np.eye(len(point)) - np.outer(normal, normal)
    tangent = projection @ covariance @ projection
    mean_variance = float(np.trace(tangent)) / (len(point) - 1)
    normal_variance = float(normal @ covariance @ normal)
    # A sphere within three standard deviations confines the draws.
    is_active = body.radius - distance < 3.0 * np.sqrt(normal_variance)
    if not is_active or normal_variance >= mean_variance:
        return covariance, None
    return tangent + mean_variance * np.outer(normal, normal), normal


def _fit_in_l1_ball(target: GibbsTarget) -> BarrierFit:
    """Fit on an l1 ball, with x = u - w and a barrier for u, w and the sum's slack.

    A coordinate of x that is exponential on both sides of 0, with different rates, is
    the difference of two exponential coordinates y = (u, w). Newton steps of y are
    reduced to the dimension of x. With

    - b and D, the gradient and the inverse Hessian of the barrier (``barrier_slope``;
      ``barrier_step`` is D b),
    - J = [1, -1], which maps y to x (``drift`` is J D b), and P = J D J^T (``inner``),
    - g and H, the gradient and the Hessian of the energy (``slope``, ``curvature``),

    the step of y solves (D^{-1} + J^T H J) dy = -(b + J^T g). With z = g + H J dy it is
    dy = -D (b + J^T z), and J dy = -J D b - P z. It follows that z =
    (1 + H P)^{-1} (g - H J D b). The covariance of x is (H + P^{-1})^{-1}.
    """
    body, dim, eye = target.numbers.body, target.dim, np.eye(target.dim)
    mode = rough_mode(target) - body.center
    # All lifted coordinates start above 0, by amounts that add up to a tenth of the
    # radius. Their sum starts below it, with a slack of at least a twentieth.
    spread = 0.05 * body.radius / dim
    lifted = np.concatenate([np.maximum(mode, 0.0), np.maximum(-mode, 0.0)]) + spread
    lifted *= min(1.0, (1.0 - 0.5 * INWARD_SHARE) * body.radius / lifted.sum())
    covariance: Array | None = None
    damping = Damping(2 * dim)
    for _ in range(MAX_STEPS):
        point, slack = lifted[:dim] - lifted[dim:], body.radius - lifted.sum()
        slope, curvature = averaged_derivatives(
            target, eye, body.center + point, covariance
        )
        squares = lifted**2
        # With y = ``lifted``, D = diag(y^2) - y^2 (y^2)^T / total by the formula of
        # Sherman and Morrison.
        total = slack**2 + squares.sum()
        barrier_slope = 1.0 / slack - 1.0 / lifted
        barrier_step = squares * barrier_slope
        barrier_step -= squares * (squares @ barrier_slope) / total
        skew = squares[:dim] - squares[dim:]
        inner = np.diag(squares[:dim] + squares[dim:]) - np.outer(skew, skew) / total
        drift = barrier_step[:dim] - barrier_step[dim:]
        z = np.linalg.solve(eye + curvature @ inner, slope - curvature @ drift)
        lifted_z = np.concatenate([z, -z])
        move = -barrier_step - squares * lifted_z
        move += squares * (squares @ lifted_z) / total
        gradient = np.concatenate([slope, -slope]) + barrier_slope
        decrement = float(np.sqrt(max(-float(move @ gradient), 0.0)))
        slacks, rates = np.append(lifted, slack), np.append(-move, move.sum())
        longest = _limit_step(slacks, np.maximum(rates, 0.0))
        step = min(damping.step(decrement), longest)
        lifted = lifted + step * move
        covariance = _inverse(curvature + _inverse(inner))
        if damping.is_over:
            break
    assert covariance is not None
    center = body.center + lifted[:dim] - lifted[dim:]
    return BarrierFit(center, dense(np.linalg.cholesky(covariance)))


def _fit_low_rank(target: GibbsTarget) -> BarrierFit:
    """Fit a diagonal, and the 40 directions of the largest precision relative to it.

    With D the diagonal's inverse root and D H D = sum lambda_i q_i q_i^T in its largest
    eigenvalues, the factor is D (I + sum (lambda_i^{-1/2} - 1) q_i q_i^T). `low_rank`
    gets D, the q_i and the lambda_i^{-1/2}. On the simplex velocities sum to zero. Then
    one more q, ``removed``, is the unit vector along D 1, with 0 in the place of
    lambda^{-1/2}. As 1^T D (I - q q^T) = 0, the columns of the factor sum to zero.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    if isinstance(target, Density):
        return _fit_diagonal(target)
    assert isinstance(target, Gibbs)
    data = target.data
    rows: Any = as_rows(data)  # dense or sparse
    mode, interior = rough_mode(target), target.domain.interior_point(target.dim)
    center = mode + INWARD_SHARE * (interior - mode)
    margins = rows @ center + (data.offset if data.offset.size else 0.0)
    # Records are dense or sparse, and the array of the other storage has no rows.
    squares = rows**2 if data.dense.shape[0] else rows.multiply(rows)
    fixed = target.k * target.mu * regularizer_hessian(target, center)
    is_round = target.domain.is_euclidean_ball
    # Only round domains use the slope. The others have any vector in its place.
    slope = target.gradient(interior) if is_round else center
    barrier = None if is_round else _barrier(target.domain, target.dim)
    floor: Any = 0.0
    if barrier is not None:
        fixed = fixed + barrier.differentiate(center)[1]
    # The floor has the variances of a ball of the domain's widths.
    elif target.domain.is_bounded and not is_round:
        half = target.domain.half_widths(target.dim)
        floor = (target.dim + 2.0) / np.asarray(half) ** 2
    weight, width = target.k / data.num_records, np.ones(data.num_records)
    # The windows over which losses are averaged depend on the metric, and the metric on
    # the curvatures of these averages. The number of rounds is fixed. A uniform
    # variable on +- w has the variance w^2 / 3.
    for _ in range(3):
        curvatures = weight * averaged_slopes(target, margins, width)[1]
        precision = squares.T @ curvatures + np.diag(fixed)
        if is_round:
            floor = _ball_pressure(precision, slope, target.numbers.body.radius)
        scale = 1.0 / np.sqrt(precision + floor)
        width = np.sqrt(3.0 * (squares @ scale**2)) + 1e-6
    # On the simplex velocities have no part along the vector of ones.
    removed = np.zeros((target.dim, 0))
    if target.domain.affine_dim(target.dim) < target.dim:
        removed = (scale / np.linalg.norm(scale))[:, None]

    def multiply_scaled_hessian(vector: Array) -> Array:
        vector = vector - removed @ (removed.T @ vector)
        inner = scale * vector
        product = rows.T @ (curvatures * (rows @ inner)) + fixed @ inner + floor * inner
        product = scale * product
        return np.asarray(product - removed @ (removed.T @ product))

    shape = (target.dim, target.dim)
    hessian = LinearOperator(shape, matvec=multiply_scaled_hessian, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(target.dim)
    eigenvalues, outer = eigsh(hessian, k=40, v0=start, tol=1e-3)
    # Eigenvalues below this limit are rounding errors, and may be negative.
    roots = np.maximum(eigenvalues, 1e-6) ** -0.5
    stretch = np.concatenate([np.zeros(removed.shape[1]), roots])
    mass = low_rank(scale, np.hstack([removed, outer]), stretch)
    # The floor is the precision that the ball adds. If it is below the mean precision
    # of the energy, the Gaussian confines the draws more than the sphere.
    return BarrierFit(center, mass, rotates=is_round and floor < precision.mean())


def _ball_pressure(precision: Array, slope: Array, radius: float) -> float:
    """Return the number nu >= 0 that a ball adds to a diagonal precision.

    In many dimensions a Gaussian of precision D + nu I whose mean square length is
    radius^2 has nearly the distribution of one of precision D in the ball: this is the
    spherical model of Berlin and Kac (1952, Physical Review 86, 821). About the ball's
    center, where the energy has the slope g, the square length has the mean

        sum_j (g_j / (D_j + nu))^2 + 1 / (D_j + nu),

    which decreases in nu. The number is 0 if the ball hardly confines the Gaussian. The
    uniform distribution has nu = dim / radius^2.
    """

    def mean_square(nu: float) -> float:
        variances = 1.0 / np.maximum(precision + nu, 1e-300)
        return float(((slope * variances) ** 2 + variances).sum())

    target = radius * radius
    low = 0.0
    # At this number both sums are at most half of the square of the radius.
    high = 2.0 * len(slope) / target + 2.0 * float(np.linalg.norm(slope)) / radius
    if not (mean_square(low) > target and math.isfinite(high)):
        return low
    for _ in range(60):
        middle = 0.5 * (low + high)
        if mean_square(middle) > target:
            low = middle
        else:
            high = middle
    return high


def _fit_diagonal(target: Density) -> BarrierFit:
    """Fit a diagonal to the energy of a user's function near its mode."""
    mode, interior = rough_mode(target), target.domain.interior_point(target.dim)
    center = mode + INWARD_SHARE * (interior - mode)
    eye = np.eye(target.dim)
    _, precision = averaged_derivatives(target, eye, center, None)
    curvature = np.diag(precision).copy()
    if target.domain.is_euclidean_ball:
        slope, radius = target.gradient(interior), target.numbers.body.radius
        curvature += _ball_pressure(curvature, slope, radius)
    else:
        barrier = _barrier(target.domain, target.dim)
        if barrier is not None:
            curvature += np.diag(barrier.differentiate(center)[1])
    scale = 1.0 / np.sqrt(curvature)
    removed = np.zeros((target.dim, 0))
    # On the simplex velocities have no part along the vector of ones.
    if target.domain.affine_dim(target.dim) < target.dim:
        removed = (scale / np.linalg.norm(scale))[:, None]
    return BarrierFit(center, low_rank(scale, removed, np.zeros(removed.shape[1])))
