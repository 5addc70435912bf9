r"""Quadrature on rays in bodies of dimension 1 or 2.

theta = mean + rho L u, where L L^T is the covariance and u is +-1 or a point of the
unit circle. A ray ends at the boundary, or where all densities have fallen by a factor
of exp(-`LOG_RANGE`). In the plane the angles are equally spaced, which is spectrally
accurate for smooth densities. The radius is divided into panels with Gauss-Legendre
nodes, and the volume element is rho.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array
from dpsample.samplers.gaussian_fit import fit
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import energies

# Difference of log densities beyond which a ray ends. What is left out has a share of
# about e^-80, which is far below rounding errors.
LOG_RANGE = 80.0


class Rays(NamedTuple):
    """Origin, and for each ray direction, length and weight of the angle."""

    origin: Array  # (dim,)
    directions: Array  # (num_rays, dim)
    lengths: Array  # (num_rays,)
    weight: float  # difference of two angles, or 1 on a line
    power: int  # exponent of rho in the volume element


def mean_and_factor(targets: Sequence[Gibbs]) -> tuple[Array, Array]:
    """Return mean and factor of the covariance of the first target.

    They are computed by two coarse quadratures. The mean of a log-concave density is
    far from the boundary of its body, and the mode may be on it. Rays from the mean
    have lengths that vary slowly with the angle.
    """
    gaussian = fit(targets[0])
    origin, factor = gaussian.center, gaussian.factor
    for _ in range(2):
        rays = _rays(targets, origin, factor, num_angles=48)
        points, weights = _grid(rays, 6)
        mass = _probabilities(energies(targets[0], points), weights)
        origin = mass @ points
        # The covariance is spread^T spread.
        spread = (points - origin) * np.sqrt(mass)[:, None]
        # The new factor is the old one times a root, so that a flat body stays flat.
        inner = np.linalg.pinv(factor) @ spread.T
        factor = factor @ np.linalg.cholesky(inner @ inner.T)
    return origin, factor


def discretize(
    targets: Sequence[Gibbs], origin: Array, factor: Array, *, num_panels: int
) -> tuple[Array, Array]:
    """Return points (num_points, dim), and their probabilities for each target.

    The targets are densities on one domain whose affine hull has dimension 1 or 2.
    ``origin`` and ``factor`` are results of `mean_and_factor`. In the plane there are
    ``num_panels`` panels per ray, and 16 times as many rays. A line has 50 times as
    many panels, because there a single point at which the density is not smooth decides
    about the error. Rows of the
    probabilities, one per target, sum to 1.
    """
    rays = _rays(targets, origin, factor, num_angles=16 * num_panels)
    is_line = factor.shape[1] == 1
    points, weights = _grid(rays, num_panels * (50 if is_line else 1))
    return points, np.array(
        [_probabilities(energies(t, points), weights) for t in targets]
    )


def _probabilities(values: Array, weights: Array) -> Array:
    # Relative to the lowest energy, as others may be too large for the exponential.
    mass = np.exp(values.min() - values) * weights
    return np.asarray(mass / mass.sum())


def _rays(
    targets: Sequence[Gibbs], origin: Array, factor: Array, *, num_angles: int
) -> Rays:
    if factor.shape[1] == 1:
        units, weight, power = np.array([[1.0], [-1.0]]), 1.0, 0
    else:
        angles = 2.0 * np.pi * (np.arange(num_angles) + 0.5) / num_angles
        units = np.column_stack([np.cos(angles), np.sin(angles)])
        weight, power = 2.0 * np.pi / num_angles, 1
    directions = units @ factor.T
    domain = targets[0].domain
    chords = np.array([domain.chord(origin, v)[1] for v in directions])
    # Rays of unbounded domains end at 2^40 standard deviations at the latest.
    lengths = _shorten(targets, origin, directions, np.minimum(chords, 2.0**40))
    return Rays(origin, directions, lengths, weight, power)


def _shorten(
    targets: Sequence[Gibbs], origin: Array, directions: Array, ends: Array
) -> Array:
    """Return lengths beyond which all densities are negligible, by bisection.

    The energies are convex along a ray and grow at its end, if that is not the
    boundary. So the points whose energy is at most `LOG_RANGE` above the origin's are
    an interval from the origin.
    """
    levels = [t.energy(origin) + LOG_RANGE for t in targets]

    def is_within(lengths: Array) -> NDArray[np.bool_]:
        points = origin + lengths[:, None] * directions
        pairs = zip(targets, levels, strict=True)
        is_low = [energies(target, points) <= level for target, level in pairs]
        return np.asarray(np.any(is_low, axis=0))

    low, high = np.zeros(len(ends)), ends.copy()
    for _ in range(40):
        # Ends of unbounded rays are many powers of two away. The geometric mean halves
        # the number of powers in each step.
        middle = np.where(low > 0.0, np.sqrt(low * high), np.minimum(high, 1.0) / 2.0)
        is_low = is_within(middle)
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return high


def _grid(rays: Rays, num_panels: int) -> tuple[Array, Array]:
    """Return points on all rays, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.arange(num_panels)[:, None]
    fractions = ((edges + 0.5 * (nodes + 1.0)) / num_panels).reshape(-1)
    shares = np.tile(0.5 * weights / num_panels, num_panels)
    rho = rays.lengths[:, None] * fractions
    points = rays.origin + rho[..., None] * rays.directions[:, None, :]
    mass = rays.weight * rays.lengths[:, None] * shares * rho**rays.power
    return points.reshape(-1, rays.origin.size), mass.reshape(-1)
