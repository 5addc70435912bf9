r"""Quadrature on rays in bodies of dimension 1 or 2.

theta = mean + rho L u, with L L^T the covariance, u = +-1 or a point of the unit
circle, and rho up to the boundary or to where all densities have fallen by `LOG_RANGE`.
In the plane the angles are equally spaced (spectrally accurate for smooth densities),
the radius is by Gauss-Legendre panels, and the volume element is rho.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array
from dpsample.samplers.gaussian_fit import fit
from dpsample.targets.gibbs import Gibbs, energies

LOG_RANGE = 80.0
NODES = 8  # per panel
ANGLES_PER_PANEL = 16
# Panels are cheap on a line, where one kink sets the error.
LINE_FACTOR = 50
COARSE_PANELS, COARSE_ANGLES = 6, 48
NUM_HALVINGS = 40
FARTHEST = 2.0**40  # standard deviations


class Rays(NamedTuple):
    """Origin, one direction per row, length of each and its share of the angle."""

    origin: Array  # (dim,)
    directions: Array  # (num_rays, dim)
    lengths: Array  # (num_rays,)
    weight: float
    power: int  # of rho in the volume element


def mean_and_factor(targets: Sequence[Gibbs]) -> tuple[Array, Array]:
    """Mean and factor of the covariance of the first target, by two coarse passes.

    The mean of a log-concave density is deep inside its body, which the mode is not:
    rays from there have lengths that vary slowly with the angle.
    """
    gaussian = fit(targets[0])
    origin, factor = gaussian.center, gaussian.factor
    for _ in range(2):
        rays = _rays(targets, origin, factor, num_angles=COARSE_ANGLES)
        points, weights = _grid(rays, COARSE_PANELS)
        mass = _probabilities(energies(targets[0], points), weights)
        origin = mass @ points
        spread = (points - origin) * np.sqrt(mass)[:, None]
        # In the coordinates of the old factor, so that a flat body stays flat.
        inner = np.linalg.pinv(factor) @ spread.T
        factor = factor @ np.linalg.cholesky(inner @ inner.T)
    return origin, factor


def discretize(
    targets: Sequence[Gibbs], origin: Array, factor: Array, *, num_panels: int
) -> tuple[Array, Array]:
    """Points, shape (num_points, dim), and the probability of each per target.

    The targets are densities on one domain whose affine hull has dimension 1 or 2;
    ``origin`` and ``factor`` are those of `mean_and_factor`. In the plane there are
    ``num_panels`` panels per ray, with 16 times as many rays; on a line 50 times as
    many panels. Rows of the probabilities, one per target, sum to 1.
    """
    rays = _rays(targets, origin, factor, num_angles=ANGLES_PER_PANEL * num_panels)
    is_line = factor.shape[1] == 1
    points, weights = _grid(rays, num_panels * (LINE_FACTOR if is_line else 1))
    return points, np.array(
        [_probabilities(energies(t, points), weights) for t in targets]
    )


def _probabilities(values: Array, weights: Array) -> Array:
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
    domain = targets[0].problem.domain
    chords = np.array([domain.chord(origin, v)[1] for v in directions])
    lengths = _cut(targets, origin, directions, np.minimum(chords, FARTHEST))
    return Rays(origin, directions, lengths, weight, power)


def _cut(
    targets: Sequence[Gibbs], origin: Array, directions: Array, ends: Array
) -> Array:
    """Lengths beyond which all densities are negligible, by bisection.

    The energies are convex along a ray and grow at its end, if that is not the
    boundary, so that the points within `LOG_RANGE` of the origin's energy or below are
    an interval from the origin.
    """
    levels = [t.energy(origin) + LOG_RANGE for t in targets]

    def is_kept(lengths: Array) -> NDArray[np.bool_]:
        points = origin + lengths[:, None] * directions
        kept = zip(targets, levels, strict=True)
        near = [energies(t, points) <= top for t, top in kept]
        return np.asarray(np.any(near, axis=0))

    low, high = np.zeros(len(ends)), ends.copy()
    for _ in range(NUM_HALVINGS):
        # A geometric middle crosses the many powers of two of an endless ray.
        middle = np.where(low > 0.0, np.sqrt(low * high), np.minimum(high, 1.0) / 2.0)
        kept = is_kept(middle)
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return high


def _grid(rays: Rays, num_panels: int) -> tuple[Array, Array]:
    """Points on all rays and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    edges = np.arange(num_panels)[:, None]
    places = ((edges + 0.5 * (nodes + 1.0)) / num_panels).reshape(-1)
    shares = np.tile(0.5 * weights / num_panels, num_panels)
    rho = rays.lengths[:, None] * places
    points = rays.origin + rho[..., None] * rays.directions[:, None, :]
    mass = rays.weight * rays.lengths[:, None] * shares * rho**rays.power
    return points.reshape(-1, rays.origin.size), mass.reshape(-1)
