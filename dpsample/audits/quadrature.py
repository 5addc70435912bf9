r"""Exact privacy curves of exponential mechanisms with one or two free coefficients.

For densities p ~ e^{-V}, q ~ e^{-V'} on one body,

.. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p),

by quadrature on rays from the mean of p: theta = mean + rho L u, with L L^T its
covariance, u = +-1 or a point of the unit circle, and rho up to the boundary or to
where both densities have fallen by `LOG_RANGE`. In the plane the angles are equally
spaced (spectrally accurate for smooth densities), the radius is by Gauss-Legendre
panels, and the volume element is rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.audits.energies import fill_energies
from dpsample.samplers.gaussian_fit import fit
from dpsample.targets import Gibbs

Array = NDArray[np.float64]

LOG_RANGE = 80.0
NODES = 8  # per panel
ANGLES_PER_PANEL = 16
# Panels are cheap on a line, where one kink of max(0, .) sets the error.
LINE_FACTOR = 50
COARSE_PANELS, COARSE_ANGLES = 6, 48
NUM_HALVINGS = 40
FARTHEST = 2.0**40  # standard deviations


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCurve:
    """Privacy curve of two densities by quadrature, each of shape (num_epsilons,).

    Attributes
    ----------
    epsilons : array
        Privacy losses.
    forward : array
        Smallest delta with Q(S) <= e^epsilon P(S) + delta for all S, Q being the law of
        the neighbor.
    backward : array
        The same with P and Q exchanged.
    error : array
        Estimate of the absolute error: the change when all steps are halved.

    Examples
    --------
    >>> a, b = np.array([0.1]), np.array([0.2])
    >>> ExactCurve(epsilons=a, forward=a, backward=b, error=a).delta
    array([0.2])
    """

    epsilons: Array
    forward: Array
    backward: Array
    error: Array

    @property
    def delta(self) -> Array:
        """Larger of both directions."""
        return np.maximum(self.forward, self.backward)


class _Rays(NamedTuple):
    """Origin, one direction per row, length of each and its share of the angle."""

    origin: Array  # (dim,)
    directions: Array  # (num_rays, dim)
    lengths: Array  # (num_rays,)
    weight: float
    power: int  # of rho in the volume element


def exact_curve(
    target: Gibbs, neighbor_target: Gibbs, epsilons: Any, *, num_panels: int = 24
) -> ExactCurve:
    r"""Privacy curve of two targets on a body of dimension 1 or 2, by quadrature.

    .. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p)

    Parameters
    ----------
    target, neighbor_target : Gibbs
        The two densities, on the same domain.
    epsilons : array of shape (num_epsilons,)
        Privacy losses, >= 0.
    num_panels : int
        Gauss-Legendre panels of 8 nodes per ray in the plane, where there are 16 times
        as many rays; 50 times as many panels on a line. The error falls with the
        square of it, or faster.

    Returns
    -------
    ExactCurve
        Both directions, and an estimate of the error.

    Raises
    ------
    ValueError
        If the dimension is larger, the domains differ, or an epsilon is negative.

    Guarantee
    ---------
    None but convergence: ``error`` compares two grids, it is no bound.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=50, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-3)
    >>> mech = dps.calibrate(facts, budget)
    >>> pair = [mech.target(data) for data in dps.audits.neighbors.worst_case(facts)]
    >>> bool(dps.audits.exact_curve(*pair, [1.0]).delta[0] < 1e-3)
    True
    """
    check.instance(Gibbs, target=target, neighbor_target=neighbor_target)
    domain, dim = target.problem.domain, target.dim
    if neighbor_target.dim != dim or neighbor_target.problem.domain != domain:
        check.fail("neighbor_target", "on the domain of target", neighbor_target)
    rank = domain.affine_dim(dim)
    if rank not in (1, 2):
        check.fail("target", "of dimension 1 or 2", f"dimension {rank}")
    levels = check.array("epsilons", np.atleast_1d(epsilons), shape=(None,))
    if levels.size == 0 or levels.min() < 0.0:
        check.fail("epsilons", "non-empty and >= 0", levels)
    check.integer(2, num_panels=num_panels)
    pair = target, neighbor_target
    origin, factor = _mean_and_factor(pair)
    coarse, fine = (
        _both_directions(pair, origin, factor, levels, panels=panels)
        for panels in (num_panels // 2, num_panels)
    )
    error = np.abs(fine - coarse).max(axis=0)
    return ExactCurve(epsilons=levels, forward=fine[0], backward=fine[1], error=error)


def _both_directions(
    pair: tuple[Gibbs, Gibbs],
    origin: Array,
    factor: Array,
    epsilons: Array,
    *,
    panels: int,
) -> Array:
    """Delta of both directions, shape (2, num_epsilons)."""
    rays = _rays(pair, origin, factor, num_angles=ANGLES_PER_PANEL * panels)
    is_line = factor.shape[1] == 1
    points, weights = _grid(rays, panels * (LINE_FACTOR if is_line else 1))
    p, q = (_probabilities(_energies(t, points), weights) for t in pair)
    return np.array(
        [
            [np.maximum(a - np.exp(e) * b, 0.0).sum() for e in epsilons]
            for a, b in ((q, p), (p, q))
        ]
    )


def _probabilities(energies: Array, weights: Array) -> Array:
    mass = np.exp(energies.min() - energies) * weights
    return np.asarray(mass / mass.sum())


def _mean_and_factor(pair: tuple[Gibbs, Gibbs]) -> tuple[Array, Array]:
    """Mean and factor of the covariance, by two coarse passes from a Gaussian fit.

    The mean of a log-concave density is deep inside its body, which the mode is not:
    rays from there have lengths that vary slowly with the angle.
    """
    found = fit(pair[0])
    origin, factor = found.center, found.factor
    for _ in range(2):
        rays = _rays(pair, origin, factor, num_angles=COARSE_ANGLES)
        points, weights = _grid(rays, COARSE_PANELS)
        mass = _probabilities(_energies(pair[0], points), weights)
        origin = mass @ points
        spread = (points - origin) * np.sqrt(mass)[:, None]
        # In the coordinates of the old factor, so that a flat body stays flat.
        inner = np.linalg.pinv(factor) @ spread.T
        factor = factor @ np.linalg.cholesky(inner @ inner.T)
    return origin, factor


def _rays(
    pair: tuple[Gibbs, Gibbs], origin: Array, factor: Array, *, num_angles: int
) -> _Rays:
    if factor.shape[1] == 1:
        units, weight, power = np.array([[1.0], [-1.0]]), 1.0, 0
    else:
        angles = 2.0 * np.pi * (np.arange(num_angles) + 0.5) / num_angles
        units = np.column_stack([np.cos(angles), np.sin(angles)])
        weight, power = 2.0 * np.pi / num_angles, 1
    directions = units @ factor.T
    domain = pair[0].problem.domain
    chords = np.array([domain.chord(origin, v)[1] for v in directions])
    lengths = _cut(pair, origin, directions, np.minimum(chords, FARTHEST))
    return _Rays(origin, directions, lengths, weight, power)


def _cut(
    pair: tuple[Gibbs, Gibbs], origin: Array, directions: Array, ends: Array
) -> Array:
    """Lengths beyond which both densities are negligible, by bisection.

    The energies are convex along a ray and grow at its end, if that is not the
    boundary, so that the points within `LOG_RANGE` of the origin's energy or below are
    an interval from the origin.
    """
    levels = [t.energy(origin) + LOG_RANGE for t in pair]

    def is_kept(lengths: Array) -> NDArray[np.bool_]:
        points = origin + lengths[:, None] * directions
        found = [_energies(t, points) for t in pair]
        return np.logical_or(*(v <= top for v, top in zip(found, levels, strict=True)))

    low, high = np.zeros(len(ends)), ends.copy()
    for _ in range(NUM_HALVINGS):
        # A geometric middle crosses the many powers of two of an endless ray.
        middle = np.where(low > 0.0, np.sqrt(low * high), np.minimum(high, 1.0) / 2.0)
        kept = is_kept(middle)
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return high


def _grid(rays: _Rays, num_panels: int) -> tuple[Array, Array]:
    """Points on all rays and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    edges = np.arange(num_panels)[:, None]
    places = ((edges + 0.5 * (nodes + 1.0)) / num_panels).reshape(-1)
    shares = np.tile(0.5 * weights / num_panels, num_panels)
    rho = rays.lengths[:, None] * places
    points = rays.origin + rho[..., None] * rays.directions[:, None, :]
    mass = rays.weight * rays.lengths[:, None] * shares * rho**rays.power
    return points.reshape(-1, rays.origin.size), mass.reshape(-1)


def _energies(target: Gibbs, points: Array) -> Array:
    out = np.empty(len(points))
    numbers, pieces = target.numbers, target.pieces
    fill_energies(numbers, pieces, np.ascontiguousarray(points), target.new_work(), out)
    return out
