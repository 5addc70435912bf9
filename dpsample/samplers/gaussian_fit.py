"""Gaussian close to the target, and a good starting point.

The start is the end of accelerated projected gradients with restarts. From there
Newton's method runs for the energy in which every loss is averaged over windows around
its margin: slope (phi(u + w) - phi(u - w)) / 2w and curvature (phi'(u + w) -
phi'(u - w)) / 2w, the mean of two w with the moments of the margin under the Gaussian
itself. One rule serves smooth losses and losses with kinks. Start and Gaussian move
running times only, never the law of a draw.
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
from dpsample.targets.gibbs import (
    Gibbs,
    as_rows,
    energies,
    form_in_basis,
    rows_in_basis,
    slopes,
    times_basis,
)

MAX_ITERATIONS, WINDOW = 1000, 10
MAX_NEWTON_STEPS = 25
SMALL = 0.03  # Newton decrement, in standard deviations, that is good enough
# Factor on steps where the decrement grows, and where no step is worth it any more.
CAUTION, MAX_CAUTION = 1.5, 30.0
NUM_PROBES = 200
LEAST_EIGENVALUE = 1e-12  # relative, of a precision that rounding has made singular
# Half-widths, relative to w, of two windows with a Gaussian's first five moments.
HALVES = np.sqrt(1.0 + np.array([-1.0, 1.0]) * np.sqrt(2.0 / 3.0))
# Share of the way from the mode to an interior point, off the boundary.
RETREAT = 1e-3
FAR = 5.0  # standard deviations at which tails of the fit are looked at
# Least rise of the energy there, relative to the Gaussian's. In a tail that rises less,
# a chain is hardly ever, and then it stays for long: its draws agree, and their
# variance is too small.
LEAST_RISE = 2.0 / 3.0
# The search for the direction of the least rise descends from some of the axes and of
# these random directions.
NUM_DIRECTIONS = 4
NUM_DESCENTS = 8
NUM_DESCENT_STEPS = 16
# Steps are as for a curvature of this multiple of the Gaussian's; after a step that
# fails, of twice as much.
CURVATURE = 1.5
SMALL_GAIN = 0.01  # share of a rise; a direction that may gain less is left
# Nothing is searched if all rises are within this share of the Gaussian's.
NEARLY = 0.05

Found = TypeVar("Found")


def _once(find: Callable[[Gibbs], Found]) -> Callable[[Gibbs], Found]:
    """Keep what is found for a target as long as the target lives."""
    kept: WeakKeyDictionary[Gibbs, Found] = WeakKeyDictionary()

    @wraps(find)
    def call(target: Gibbs) -> Found:
        if target not in kept:
            kept[target] = find(target)
        return kept[target]

    return call


def minimize(
    target: Gibbs, *, mu: float | None = None, tolerance: float = 0.01
) -> tuple[Array, float]:
    """Approximate minimizer of the energy on the domain, and the energy there.

    ``mu`` replaces the weight of the regularizer: with 0.0 the empirical risk alone is
    minimized. It stops when ten iterations gain less than ``tolerance``, in units of
    the energy.
    """
    weight = target.mu if mu is None else float(mu)
    storage = target.storage
    # More than one chunk are passed alike wherever they are: the same bits.
    is_one = isinstance(storage, MemoryStorage) and storage.chunk == storage.num_records
    energy = _Kernels(target, weight) if is_one else _Passes(target, weight)
    theta = np.array(target.problem.domain.interior_point(target.dim), dtype=np.float64)
    gradient, trial = np.empty(target.dim), np.empty(target.dim)
    value = energy.value(theta)
    ahead, momentum, smoothness = theta.copy(), 1.0, 1.0
    history = [value]
    for _ in range(MAX_ITERATIONS):
        pauses.notify_listeners()
        value_ahead = energy.slope(ahead, gradient)
        smoothness *= 0.7
        for _ in range(100):
            energy.project(ahead - gradient / smoothness, trial)
            move = trial - ahead
            model = gradient @ move + 0.5 * smoothness * (move @ move)
            new = energy.value(trial)
            if not new > value_ahead + model + 1e-12 * abs(value_ahead):
                break
            smoothness *= 2.0
        if not new < value:  # also true for NaN
            if momentum == 1.0:
                break
            ahead, momentum = theta.copy(), 1.0
            continue
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = trial + (momentum - 1.0) / after * (trial - theta)
        if not energy.is_inside(ahead):
            energy.project(ahead.copy(), ahead)
        theta, value, momentum = trial.copy(), new, after
        history.append(value)
        if len(history) > WINDOW and history[-1 - WINDOW] - value < tolerance:
            break
    return theta, float(value)


class _Kernels:
    """Energy by the target's own kernels, of one chunk in memory."""

    def __init__(self, target: Gibbs, mu: float) -> None:
        self.calls, self.work = target.calls, target.new_work()
        self.is_inside = target._is_inside
        self.given = target.numbers._replace(mu=mu), target.pieces

    def value(self, theta: Array) -> float:
        return self.calls.energy(*self.given, theta, self.work)

    def slope(self, theta: Array, out: Array) -> float:
        return self.calls.energy_gradient(*self.given, theta, self.work, out)

    def project(self, point: Array, out: Array) -> None:
        self.calls.project(*self.given, point, out)


class _Passes:
    """The same by passes, wherever the records are."""

    def __init__(self, target: Gibbs, mu: float) -> None:
        self.target, self.mu, self.domain = target, mu, target.problem.domain
        self.center = target.regularizer_params.center

    def value(self, theta: Array) -> float:
        return self.slope(theta, np.empty_like(theta))

    def slope(self, theta: Array, out: Array) -> float:
        target, mu, r = self.target, self.mu, self.target.regularizer
        found = sum_over_records(target, theta, wants_gram=False)
        per_record = target.k / target.storage.num_records
        out[:] = per_record * found.slope
        if mu == 0.0:
            return per_record * found.value
        out += target.k * mu * r.gradient(theta, self.center)
        return per_record * found.value + target.k * mu * r.value(theta, self.center)

    def project(self, point: Array, out: Array) -> None:
        out[:] = self.domain.project(point)

    def is_inside(self, point: Array) -> bool:
        return bool(self.domain.contains(point))


@_once
def rough_mode(target: Gibbs) -> Array:
    """Where `minimize` ends."""
    return minimize(target)[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianFit:
    """Center in the domain, and factor, inverse factor of the covariance.

    ``factor`` has shape (dim, m), m the dimension of the domain's affine hull; the
    covariance is factor factor^T and ``whiten`` its left inverse, shape (m, dim).
    """

    center: Array
    factor: Array
    whiten: Array
    share_inside: float  # of the Gaussian's mass, roughly

    def rescale(self, center: Array, covariance: Array) -> GaussianFit:
        """Fit with another center and a covariance given in whitened coordinates."""
        root = np.linalg.cholesky(covariance)
        return GaussianFit(
            center=center,
            factor=np.ascontiguousarray(self.factor @ root),
            whiten=np.ascontiguousarray(np.linalg.solve(root, self.whiten)),
            share_inside=self.share_inside,
        )


class Ellipsoidal(Protocol):
    """Center and factor of the covariance, of a fit or a plan."""

    @property
    def center(self) -> Array:
        """Mean, of shape (dim,)."""

    @property
    def factor(self) -> Array:
        """Factor of the covariance, of shape (dim, m)."""


@_once
def fit(target: Gibbs) -> GaussianFit:
    """Gaussian fit of a target."""
    basis = hull_basis(target)
    interior = target.problem.domain.interior_point(target.dim)
    start = (1.0 - RETREAT) * rough_mode(target) + RETREAT * interior
    center, precision = _newton(target, basis, start)
    if not target.problem.domain.contains(center):
        center, spread = start, _inverse(precision)
        precision = averaged_derivatives(target, basis, center, spread)[1]
    gaussian = _from_precision(target, basis, center, precision)
    domain = target.problem.domain
    if gaussian.share_inside < 0.5 and domain.is_bounded:
        # Add the inverse variances of a ball of the domain's widths.
        eye = np.eye(target.dim)
        widths = 0.5 * (domain.support(eye) + domain.support(-eye))
        inverse = (target.dim + 2.0) / np.maximum(widths, 1e-12) ** 2
        extra = form_in_basis(np.diag(inverse), basis)
        gaussian = _from_precision(target, basis, center, precision + extra)
    return gaussian


def hull_basis(target: Gibbs) -> Array:
    """Orthonormal columns that span the directions of the domain's affine hull."""
    return target.problem.domain.hull(target.dim)[1]


def _newton(target: Gibbs, basis: Array, theta: Array) -> tuple[Array, Array]:
    covariance: Array | None = None
    before: Array | None = None
    damping = Damping(basis.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        pauses.notify_listeners()
        gradient, precision = averaged_derivatives(target, basis, theta, covariance)
        # Windows and covariance may chase each other; a mean of two settles that.
        if before is not None and damping.caution > 1.0:
            precision = 0.5 * (precision + before)
        covariance = _inverse(precision)
        move = covariance @ gradient
        decrement = float(np.sqrt(max(float(move @ gradient), 0.0)))
        following = theta - damping.step(decrement) * (basis @ move)
        if not np.isfinite(following).all():
            break  # off the simplex the entropy has no slope
        theta = following
        if damping.is_over and before is not None:  # first windows know no covariance
            break
        before = precision
    return theta, precision


def _inverse(precision: Array) -> Array:
    """Inverse that has a Cholesky factor."""
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return clipped_inverse(precision)
    return covariance


def clipped_inverse(precision: Array) -> Array:
    """Inverse of a matrix whose least eigenvalues rounding may have taken."""
    values, vectors = np.linalg.eigh(precision)
    values = np.maximum(values, LEAST_EIGENVALUE * values[-1])
    return np.asarray((vectors / values) @ vectors.T)


class Damping:
    """Lengths of Newton steps in so many directions.

    A decrement of one for each direction asks for no damping. Where it grows, among
    kinks, steps become shorter for good, and when they are very short that is all.
    """

    def __init__(self, rank: int) -> None:
        self.reach, self.caution, self.last = math.sqrt(rank), 1.0, math.inf

    def step(self, decrement: float) -> float:
        """Return the next length, for the decrement there."""
        if decrement > self.last:
            self.caution *= CAUTION
        self.last = decrement
        return 1.0 / (1.0 + max(decrement / self.reach - 0.5, 0.0)) / self.caution

    @property
    def is_over(self) -> bool:
        """Whether the last decrement was small, or steps are."""
        return self.last < SMALL or self.caution > MAX_CAUTION


def averaged_slopes(target: Gibbs, margins: Array, width: Array) -> tuple[Array, Array]:
    """Slopes and curvatures of losses averaged over windows around the margins."""
    loss, response = target.problem.loss, target.data.response
    slopes, curvatures = np.zeros_like(margins), np.zeros_like(margins)
    for half in np.multiply.outer(HALVES, width):
        above, slope_above = loss._evaluate_flat(margins + half, response)
        below, slope_below = loss._evaluate_flat(margins - half, response)
        slopes += (above - below) / (4.0 * half)
        curvatures += np.maximum(slope_above - slope_below, 0.0) / (4.0 * half)
    return slopes, curvatures


def averaged_derivatives(
    target: Gibbs, basis: Array, theta: Array, covariance: Array | None
) -> tuple[Array, Array]:
    """Gradient and Hessian of the averaged energy, in the basis."""
    data, rows = target.data, as_rows(target.data)
    margins = rows @ theta + (data.offset if data.offset.size else 0.0)
    width = np.ones_like(margins)
    if covariance is not None:
        spread = rows @ times_basis(basis, np.linalg.cholesky(covariance))
        width = np.sqrt(3.0 * np.einsum("ij,ij->i", spread, spread)) + 1e-6
    slopes, curvatures = averaged_slopes(target, margins, width)
    gradient = rows.T @ slopes / data.num_records
    gradient = gradient + target.mu * target._evaluate_regularizer(theta)[1]
    hessian = curvature_matrix(data, curvatures)
    hessian = hessian + target.mu * regularizer_hessian(target, theta)
    hessian = target.k * form_in_basis(hessian, basis)
    # Far from singular, whatever the scales are, so that the inverse has a Cholesky
    # factor, too.
    scales = np.diag(hessian)
    floor = np.diag(1e-9 * scales + 1e-15 * max(float(scales.max()), 1e-3))
    return target.k * (basis.T @ gradient), hessian + floor


def regularizer_hessian(target: Gibbs, theta: Array) -> Array:
    """Hessian of r, by differences of its gradient unless it is constant."""
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
    target: Gibbs, basis: Array, center: Array, precision: Array
) -> GaussianFit:
    eigenvalues, vectors = np.linalg.eigh(precision)
    root = np.sqrt(np.maximum(eigenvalues, 1e-14 * eigenvalues[-1]))
    factor = np.ascontiguousarray(times_basis(basis, vectors / root))
    probes = np.random.default_rng(0).standard_normal((NUM_PROBES, len(root)))
    inside = [target._is_inside(point) for point in center + probes @ factor.T]
    return GaussianFit(
        center=center,
        factor=factor,
        whiten=np.ascontiguousarray(rows_in_basis((vectors * root).T, basis.T)),
        share_inside=float(np.mean(inside)),
    )


def reaches_tails(
    target: Gibbs, gaussian: Ellipsoidal, needed: float = LEAST_RISE * 0.5 * FAR**2
) -> bool:
    """Return whether the energy rises by ``needed`` far out in all directions.

    Trials cannot tell: they start from the Gaussian, and see what it proposes. Axes do
    not suffice, because a tail may be oblique to them. So the search starts at the
    axes and at random directions, and descends from the lowest on the sphere of `FAR`
    standard deviations. The energy is convex, but its minimum on a sphere may be
    missed: True is no proof.
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
    if (np.abs(finite - usual) <= NEARLY * usual).all():
        return True
    lowest = np.argsort(rises)[: min(NUM_DESCENTS, finite.size)]
    return sphere.least_rise(directions[lowest], rises[lowest], needed) >= needed


class _Sphere:
    """Energies above that of the center, on a sphere in the metric of a Gaussian."""

    def __init__(self, target: Gibbs, gaussian: Ellipsoidal) -> None:
        self.target, self.gaussian = target, gaussian
        self.level = float(energies(target, gaussian.center[None])[0])

    def rises(self, directions: Array) -> Array:
        """Rises of the energy in directions of length 1, a row each."""
        return energies(self.target, self._points(directions)) - self.level

    def _points(self, directions: Array) -> Array:
        factor = self.gaussian.factor
        return np.asarray(self.gaussian.center + FAR * directions @ factor.T)

    def slopes(self, directions: Array) -> Array:
        """Gradients along the sphere, of the rise as a function of the direction."""
        gradients = FAR * slopes(self.target, self._points(directions))
        gradients = gradients @ self.gaussian.factor
        return np.asarray(
            gradients - (gradients * directions).sum(1)[:, None] * directions
        )

    def least_rise(self, directions: Array, rises: Array, needed: float) -> float:
        """Return the least rise on paths of descent, or one below ``needed``."""
        curvatures, lowest = np.full(len(rises), CURVATURE * FAR**2), math.inf
        for _ in range(NUM_DESCENT_STEPS):
            gradients = self.slopes(directions)
            hoped = (gradients**2).sum(axis=1) / curvatures
            moving = hoped > SMALL_GAIN * rises
            lowest = min(lowest, float(rises.min()))
            if not moving.any() or lowest < needed:
                break
            directions, rises = directions[moving], rises[moving]
            curvatures, gradients = curvatures[moving], gradients[moving]
            proposed = directions - gradients / curvatures[:, None]
            proposed /= np.linalg.norm(proposed, axis=1, keepdims=True)
            new = self.rises(proposed)
            is_lower = new < rises
            directions = np.where(is_lower[:, None], proposed, directions)
            rises = np.where(is_lower, new, rises)
            curvatures = np.where(is_lower, curvatures, 2.0 * curvatures)
        return min(lowest, float(rises.min()))
