"""Gaussian close to the target, and a good starting point.

The start is the result of accelerated projected gradients with restarts. From there
Newton's method minimizes an energy in which every loss is averaged over a window u +- w
around its margin u. The derivative of the average is (phi(u + w) - phi(u - w)) / 2w and
its curvature (phi'(u + w) - phi'(u - w)) / 2w. The mean over two widths w has the first
five moments of the margin under the Gaussian itself. So losses that are smooth, and
losses that are not differentiable everywhere, have the same rule.

The *tails* of a fit are points at `FAR` standard deviations. If the energy rises less
there than the Gaussian's, a sampler with proposals from the Gaussian misses them.

Start and Gaussian change running times only, and never the distribution of a draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.problem.records import curvature_matrix
from dpsample.problem.storage import MemoryStorage
from dpsample.samplers.record_terms import sum_over_records
from dpsample.targets.density import Density
from dpsample.targets.gibbs import Gibbs, as_rows
from dpsample.targets.gibbs_target import (
    GibbsTarget,
    energies,
    form_in_basis,
    rows_in_basis,
    slopes,
    times_basis,
)

# Share of the way from the mode to an interior point by which a start is moved off the
# boundary.
RETREAT_SHARE = 1e-3
# Standard deviations from the center at which tails are examined.
FAR = 5.0
# Minimum rise of the energy there, relative to the Gaussian's. In a tail that rises
# less, a chain is rarely, but then for long. Chains that have not been there agree, and
# their variance is too small.
LEAST_RISE = 2.0 / 3.0
# The search for the direction of the smallest rise begins at the axes and at this
# number of random directions, and makes this number of steps of descent.
NUM_DIRECTIONS = 4
NUM_DESCENT_STEPS = 16

Result = TypeVar("Result")


def cache_result(
    compute: Callable[[GibbsTarget], Result],
) -> Callable[[GibbsTarget], Result]:
    """Cache the result for a target as long as the target lives."""
    results: WeakKeyDictionary[GibbsTarget, Result] = WeakKeyDictionary()

    @wraps(compute)
    def call(target: GibbsTarget) -> Result:
        if target not in results:
            results[target] = compute(target)
        return results[target]

    return call


def minimize(
    target: GibbsTarget,
    *,
    mu: float | None = None,
    tolerance: float = 0.01,
    start: Array | None = None,
    max_steps: int = 1000,
) -> tuple[Array, float]:
    """Return an approximate minimizer of the energy on the domain, and its energy.

    ``mu`` replaces the weight of the regularizer. With 0.0 the empirical risk alone is
    minimized. The search begins at ``start``, by default an interior point. It ends
    when ten iterations decrease the energy by less than ``tolerance``, or after
    ``max_steps``.
    """
    weight = target.mu if mu is None else float(mu)
    # Records in several chunks are summed chunk by chunk, whether they are in memory or
    # in a file, so that both give the same bits.
    energy: _Kernels | _Passes = _Kernels(target, weight)
    if isinstance(target, Gibbs):
        storage = target.storage
        # One chunk of records in memory is summed by the target's own kernels.
        if not (
            isinstance(storage, MemoryStorage) and storage.chunk == storage.num_records
        ):
            energy = _Passes(target, weight)
    begin = target.domain.interior_point(target.dim) if start is None else start
    theta = np.array(begin, dtype=np.float64)
    gradient, trial = np.empty(target.dim), np.empty(target.dim)
    value = energy.value(theta)
    # ``smoothness`` is an estimate of the local Lipschitz constant of the gradient, and
    # its inverse the step.
    ahead, momentum, smoothness = theta.copy(), 1.0, 1.0
    history = [value]
    for _ in range(max_steps):
        pauses.notify_listeners()
        value_ahead = energy.slope(ahead, gradient)
        smoothness *= 0.7  # the step may grow again
        for _ in range(100):
            energy.project(ahead - gradient / smoothness, trial)
            move = trial - ahead
            model = gradient @ move + 0.5 * smoothness * (move @ move)
            new = energy.value(trial)
            # The quadratic model bounds the energy if its curvature is large enough.
            if not new > value_ahead + model + 1e-12 * abs(value_ahead):
                break
            smoothness *= 2.0
        # No decrease, or NaN: restart without momentum, or end.
        if not new < value:
            if momentum == 1.0:
                break
            ahead, momentum = theta.copy(), 1.0
            continue
        # Momentum of Nesterov's method.
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = trial + (momentum - 1.0) / next_momentum * (trial - theta)
        # Momentum may lead out of the domain.
        if not energy.is_inside(ahead):
            energy.project(ahead.copy(), ahead)
        theta, value, momentum = trial.copy(), new, next_momentum
        history.append(value)
        if len(history) > 10 and history[-11] - value < tolerance:
            break
    return theta, float(value)


class _Kernels:
    """Energy by the target's own kernels, for one chunk in memory."""

    def __init__(self, target: GibbsTarget, mu: float) -> None:
        self.calls, self.work = target.calls, target.new_work()
        self.is_inside = target._is_inside
        self.fixed_arguments = target.numbers._replace(mu=mu), target.pieces

    def value(self, theta: Array) -> float:
        return self.calls.energy(*self.fixed_arguments, theta, self.work)

    def slope(self, theta: Array, out: Array) -> float:
        return self.calls.energy_gradient(*self.fixed_arguments, theta, self.work, out)

    def project(self, point: Array, out: Array) -> None:
        self.calls.project(*self.fixed_arguments, point, out)


class _Passes:
    """Energy by passes over the records, in memory or in a file."""

    def __init__(self, target: Gibbs, mu: float) -> None:
        self.target, self.mu, self.domain = target, mu, target.domain
        self.center = target.regularizer_params.center

    def value(self, theta: Array) -> float:
        return self.slope(theta, np.empty_like(theta))

    def slope(self, theta: Array, out: Array) -> float:
        target, mu, r = self.target, self.mu, self.target.regularizer
        sums = sum_over_records(target, theta, wants_gram=False)
        per_record = target.k / target.storage.num_records
        out[:] = per_record * sums.slope
        if mu == 0.0:
            return per_record * sums.value
        out += target.k * mu * r.gradient(theta, self.center)
        return per_record * sums.value + target.k * mu * r.value(theta, self.center)

    def project(self, point: Array, out: Array) -> None:
        out[:] = self.domain.project(point)

    def is_inside(self, point: Array) -> bool:
        return bool(self.domain.contains(point))


@cache_result
def rough_mode(target: GibbsTarget) -> Array:
    """Return the approximate minimizer of the energy."""
    return minimize(target)[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianFit:
    """Center in the domain, factor of the covariance, and its inverse.

    ``factor`` has shape (dim, m), where m is the dimension of the domain's affine hull.
    The covariance is factor factor^T, and ``whiten`` (m, dim) is the left inverse of
    the factor.
    """

    center: Array
    factor: Array
    whiten: Array
    share_inside: float  # approximate share of the mass inside the domain

    def rescale(self, center: Array, covariance: Array) -> GaussianFit:
        """Return the fit with a center and a covariance in whitened coordinates."""
        # In whitened coordinates the factor is I, so that the new one is factor root.
        root = np.linalg.cholesky(covariance)
        return GaussianFit(
            center=center,
            factor=np.ascontiguousarray(self.factor @ root),
            whiten=np.ascontiguousarray(np.linalg.solve(root, self.whiten)),
            share_inside=self.share_inside,
        )


class Ellipsoidal(Protocol):
    """Center and factor of the covariance, in a fit or a plan."""

    @property
    def center(self) -> Array:
        """Mean, of shape (dim,)."""

    @property
    def factor(self) -> Array:
        """Factor of the covariance, of shape (dim, m)."""


@cache_result
def fit(target: GibbsTarget) -> GaussianFit:
    """Return the Gaussian fit of a target."""
    basis = hull_basis(target)
    interior = target.domain.interior_point(target.dim)
    is_own = isinstance(target, Density)
    share = _retreat_share(target) if is_own else RETREAT_SHARE
    # The fit begins a little off the boundary, where gradients may be infinite.
    start = (1.0 - share) * rough_mode(target) + share * interior
    center, precision = _run_newton(target, basis, start)
    is_inside = target.domain.contains(center)
    height = energies(target, center[None])[0] if is_inside else np.inf
    # The Gaussian of a user's energy may be far from a mode on the boundary.
    is_high = is_own and height > energies(target, start[None])[0] + basis.shape[1]
    if is_high or not np.isfinite(height):
        center, spread = start, _inverse(precision)
        precision = averaged_derivatives(target, basis, center, spread)[1]
    gaussian = _from_precision(target, basis, center, precision)
    domain = target.domain
    if gaussian.share_inside < 0.5 and is_own:
        # Where the boundary cuts off the Gaussian, the energy may be linear. Over the
        # inverse of a slope it rises by 1.
        slope = target.gradient(center)
        slope = np.where(np.isfinite(slope), np.clip(slope, -1e150, 1e150), 0.0)
        precision = precision + form_in_basis(np.diag(slope**2), basis)
        gaussian = _from_precision(target, basis, center, precision)
    if gaussian.share_inside < 0.5 and domain.is_bounded:
        # Add the inverse variances of a ball of the domain's widths.
        widths = domain.half_widths(target.dim)
        # A uniform draw from an ellipsoid with half-widths a has variances a^2 / (dim +
        # 2).
        inverse = (target.dim + 2.0) / np.maximum(widths, 1e-12) ** 2
        extra = form_in_basis(np.diag(inverse), basis)
        gaussian = _from_precision(target, basis, center, precision + extra)
    return gaussian


def _retreat_share(target: GibbsTarget) -> float:
    """Return a share of the way from the mode to the interior point.

    It is at most `RETREAT_SHARE`. There the energy of the user is higher than at the
    mode by at most the dimension, as it is at a typical draw. The interior point may be
    very far away.
    """
    mode, interior = rough_mode(target), target.domain.interior_point(target.dim)
    shares = RETREAT_SHARE * 10.0 ** -np.arange(0.0, 10.0)
    # From a thousandth of the way down to 10^-12 of it.
    points = mode + shares[:, None] * (interior - mode)
    heights = energies(target, np.vstack([mode, points]))
    is_low = heights[1:] <= heights[0] + target.dim
    return float(shares[np.argmax(is_low)]) if is_low.any() else RETREAT_SHARE


def hull_basis(target: GibbsTarget) -> Array:
    """Return orthonormal columns that span the domain's affine hull."""
    return target.domain.hull(target.dim)[1]


def _run_newton(target: GibbsTarget, basis: Array, theta: Array) -> tuple[Array, Array]:
    covariance: Array | None = None
    last_precision: Array | None = None
    damping = Damping(basis.shape[1])
    for _ in range(25):
        pauses.notify_listeners()
        gradient, precision = averaged_derivatives(target, basis, theta, covariance)
        # Windows depend on the covariance, and may alternate with it. The mean of the
        # last two precisions ends that.
        if last_precision is not None and damping.caution > 1.0:
            precision = 0.5 * (precision + last_precision)
        covariance = _inverse(precision)
        move = covariance @ gradient
        # The decrement, the length of the step in standard deviations.
        decrement = float(np.sqrt(max(float(move @ gradient), 0.0)))
        next_theta = theta - damping.step(decrement) * (basis @ move)
        # Outside the simplex the entropy has no gradient.
        if not np.isfinite(next_theta).all():
            break
        theta = next_theta
        # The first windows did not depend on a covariance.
        if damping.is_over and last_precision is not None:
            break
        last_precision = precision
    return theta, precision


def _inverse(precision: Array) -> Array:
    """Return the inverse, or one with a Cholesky factor that is close to it."""
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return clipped_inverse(precision)
    return covariance


def clipped_inverse(precision: Array) -> Array:
    """Return the inverse, if rounding has spoiled the smallest eigenvalues."""
    values, vectors = np.linalg.eigh(precision)
    values = np.maximum(values, 1e-12 * values[-1])
    return np.asarray((vectors / values) @ vectors.T)


class Damping:
    """Lengths of Newton steps in a number of dimensions.

    The Newton decrement is the length of a step in standard deviations. Up to half of
    the root of the dimension it is not damped. If it grows, as it does where the
    gradient jumps, all later steps are shorter by a factor of 1.5. When the factors
    multiply to 1/30 the search is over.
    """

    def __init__(self, rank: int) -> None:
        self.reach, self.caution, self.last = math.sqrt(rank), 1.0, math.inf

    def step(self, decrement: float) -> float:
        """Return the length of the next step, for its decrement."""
        if decrement > self.last:
            self.caution *= 1.5
        self.last = decrement
        return 1.0 / (1.0 + max(decrement / self.reach - 0.5, 0.0)) / self.caution

    @property
    def is_over(self) -> bool:
        """Whether the last decrement was small, or steps are short."""
        return self.last < 0.03 or self.caution > 30.0


def averaged_slopes(target: Gibbs, margins: Array, width: Array) -> tuple[Array, Array]:
    """Return derivatives and curvatures of losses averaged over windows."""
    loss, response = target.problem.loss, target.data.response
    # Two windows with these half-widths have a Gaussian's first five moments.
    halves = np.sqrt(1.0 + np.array([-1.0, 1.0]) * np.sqrt(2.0 / 3.0))
    slopes, curvatures = np.zeros_like(margins), np.zeros_like(margins)
    for half in np.multiply.outer(halves, width):
        above, slope_above = loss._evaluate_flat(margins + half, response)
        below, slope_below = loss._evaluate_flat(margins - half, response)
        slopes += (above - below) / (4.0 * half)
        curvatures += np.maximum(slope_above - slope_below, 0.0) / (4.0 * half)
    return slopes, curvatures


def averaged_derivatives(
    target: GibbsTarget, basis: Array, theta: Array, covariance: Array | None
) -> tuple[Array, Array]:
    """Return gradient and Hessian of the averaged energy, in the basis."""
    if isinstance(target, Density):
        return differenced_derivatives(target, basis, theta, covariance)
    assert isinstance(target, Gibbs)
    data, rows = target.data, as_rows(target.data)
    margins = rows @ theta + (data.offset if data.offset.size else 0.0)
    width = np.ones_like(margins)
    if covariance is not None:
        spread = rows @ times_basis(basis, np.linalg.cholesky(covariance))
        # A uniform variable on +- w has the variance w^2 / 3.
        width = np.sqrt(3.0 * np.einsum("ij,ij->i", spread, spread)) + 1e-6
    slopes, curvatures = averaged_slopes(target, margins, width)
    gradient = rows.T @ slopes / data.num_records
    gradient = gradient + target.mu * target._evaluate_regularizer(theta)[1]
    hessian = curvature_matrix(data, curvatures)
    hessian = hessian + target.mu * regularizer_hessian(target, theta)
    hessian = target.k * form_in_basis(hessian, basis)
    # The floor keeps the Hessian far from singular for all scales, so that
    # the inverse has a Cholesky factor, too.
    scales = np.diag(hessian)
    floor = np.diag(1e-9 * scales + 1e-15 * max(float(scales.max()), 1e-3))
    return target.k * (basis.T @ gradient), hessian + floor


def differenced_derivatives(
    target: Density, basis: Array, theta: Array, covariance: Array | None
) -> tuple[Array, Array]:
    """Return gradient and Hessian by differences over the width of the Gaussian.

    Along each column v of a factor of the covariance, the slopes at theta + v and
    theta - v are averaged, and their difference is the curvature. If that takes too
    long, the Hessian is diagonal, from second differences of energies.
    """
    root: Array
    if covariance is None:
        root = np.diag(target.scales(theta, np.ascontiguousarray(basis.T)))
    else:
        root = np.array(np.linalg.cholesky(covariance))
    moves = np.ascontiguousarray(times_basis(basis, root).T)
    # Shares of the moves to both sides that stay in the domain.
    chords = np.array([target.domain.chord(theta, move) for move in moves])
    ahead = np.clip(0.9 * chords[:, 1:], 1e-12, 1.0)
    behind = np.clip(-0.9 * chords[:, :1], 1e-12, 1.0)
    above, below = theta + ahead * moves, theta - behind * moves
    widths = ahead + behind
    # Maximum number of multiply-adds of a dense Hessian by differences of gradients.
    if len(moves) * target.gradient_work > 1e9:
        center = energies(target, theta[None])[0]
        rises = (energies(target, above) - center) / ahead[:, 0]
        falls = (center - energies(target, below)) / behind[:, 0]
        slope = 0.5 * (rises + falls)
        hessian = np.diag(2.0 * (rises - falls) / widths[:, 0])
    else:
        rising, falling = slopes(target, above), slopes(target, below)
        slope = 0.5 * ((rising + falling) * moves).sum(axis=1)
        hessian = (rising - falling) @ moves.T / widths
        hessian = 0.5 * (hessian + hessian.T)
    # The floor and the absolute values make a precision of any curvatures. At a kink in
    # the center, or between modes, they may have the wrong sign.
    values, vectors = np.linalg.eigh(np.where(np.isfinite(hessian), hessian, 0.0))
    values = np.maximum(np.abs(values), 1e-4)
    inverse: Array = np.asarray(np.linalg.inv(root), dtype=np.float64)
    precision = inverse.T @ ((vectors * values) @ vectors.T) @ inverse
    finite = np.where(np.isfinite(slope), slope, 0.0)
    return np.asarray(inverse.T @ finite), 0.5 * (precision + precision.T)


def regularizer_hessian(target: GibbsTarget, theta: Array) -> Array:
    """Return the Hessian of r, by differences of its gradient unless it is constant."""
    dim, regularizer = target.dim, target.regularizer
    lower, upper = target.curvature
    if lower == upper or target.mu == 0.0:
        return np.asarray(lower * np.eye(dim))
    if regularizer.name == "entropy":
        return np.diag(1.0 / np.maximum(theta, 1e-6))
    center = target.regularizer_params.center
    width = 0.5 / np.sqrt(target.k * target.mu * lower)
    columns = [
        regularizer.gradient(theta + width * unit, center)
        - regularizer.gradient(theta - width * unit, center)
        for unit in np.eye(dim)
    ]
    hessian = np.array(columns) / (2.0 * width)
    return np.asarray(0.5 * (hessian + hessian.T))


def _from_precision(
    target: GibbsTarget, basis: Array, center: Array, precision: Array
) -> GaussianFit:
    eigenvalues, vectors = np.linalg.eigh(precision)
    root = np.sqrt(np.maximum(eigenvalues, 1e-14 * eigenvalues[-1]))
    factor = np.ascontiguousarray(times_basis(basis, vectors / root))
    probes = np.random.default_rng(0).standard_normal((200, len(root)))
    inside = [target._is_inside(point) for point in center + probes @ factor.T]
    return GaussianFit(
        center=center,
        factor=factor,
        whiten=np.ascontiguousarray(rows_in_basis((vectors * root).T, basis.T)),
        share_inside=float(np.mean(inside)),
    )


def reaches_tails(
    target: GibbsTarget,
    gaussian: Ellipsoidal,
    needed: float = LEAST_RISE * 0.5 * FAR**2,
) -> bool:
    """Return whether the energy rises by ``needed`` far out in all directions.

    Trial runs do not show it, because they start from the Gaussian and only reach its
    proposals. The axes are not enough, because a tail may be oblique to them. So the
    search starts at the axes and at random directions, and descends from the eight
    lowest on the sphere of `FAR` standard deviations. The energy is convex, but its
    minimum on a sphere may be missed, so True does not prove it.
    """
    rank = gaussian.factor.shape[1]
    random = np.random.default_rng(0).standard_normal((NUM_DIRECTIONS, rank))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    directions = np.concatenate([np.eye(rank), random])
    directions = np.concatenate([directions, -directions])
    sphere = _Sphere(target, gaussian)
    rises = sphere.rises(directions)  # infinite outside the domain
    if not (rises >= needed).all():
        return False
    finite = rises[np.isfinite(rises)]
    usual = needed / LEAST_RISE
    # If all rises are within 5 % of the Gaussian's, nothing is searched.
    if (np.abs(finite - usual) <= 0.05 * usual).all():
        return True
    lowest = np.argsort(rises)[: min(8, finite.size)]
    return sphere.least_rise(directions[lowest], rises[lowest], needed) >= needed


class _Sphere:
    """Rises of the energy above the center's, on a sphere in a Gaussian's metric."""

    def __init__(self, target: GibbsTarget, gaussian: Ellipsoidal) -> None:
        self.target, self.gaussian = target, gaussian
        self.level = float(energies(target, gaussian.center[None])[0])

    def rises(self, directions: Array) -> Array:
        """Return rises of the energy in directions of length 1, one in each row."""
        return energies(self.target, self._points(directions)) - self.level

    def _points(self, directions: Array) -> Array:
        factor = self.gaussian.factor
        return np.asarray(self.gaussian.center + FAR * directions @ factor.T)

    def slopes(self, directions: Array) -> Array:
        """Return gradients of the rise along the sphere."""
        gradients = FAR * slopes(self.target, self._points(directions))
        gradients = gradients @ self.gaussian.factor
        return np.asarray(
            gradients - (gradients * directions).sum(1)[:, None] * directions
        )

    def least_rise(self, directions: Array, rises: Array, needed: float) -> float:
        """Return the smallest rise on paths of descent, or one below ``needed``.

        A step is the one for a curvature of 1.5 times the Gaussian's, and after a step
        that fails, for twice as much. A path ends if it may gain less than 1 %.
        """
        curvatures, lowest = np.full(len(rises), 1.5 * FAR**2), math.inf
        for _ in range(NUM_DESCENT_STEPS):
            gradients = self.slopes(directions)
            gains = (gradients**2).sum(axis=1) / curvatures
            is_active = gains > 0.01 * rises
            lowest = min(lowest, float(rises.min()))
            if not is_active.any() or lowest < needed:
                break
            directions, rises = directions[is_active], rises[is_active]
            curvatures, gradients = curvatures[is_active], gradients[is_active]
            trials = directions - gradients / curvatures[:, None]
            trials /= np.linalg.norm(trials, axis=1, keepdims=True)
            new = self.rises(trials)
            is_lower = new < rises
            directions = np.where(is_lower[:, None], trials, directions)
            rises = np.where(is_lower, new, rises)
            curvatures = np.where(is_lower, curvatures, 2.0 * curvatures)
        return min(lowest, float(rises.min()))
