r"""Fields for Stein's identity (Schwinger-Dyson): they vanish on the boundary.

.. math:: E[\operatorname{div} \varphi - \langle \varphi, \nabla V \rangle] = 0.

Along a direction v let the chord through x end at t_- <= 0 <= t_+; b = -t_- t_+ is 0 on
the boundary and changes by t_- + t_+ along v. That serves every domain, with no formula
for its shape: integrate along lines.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpsample.energies import chords, slopes
from dpsample.samplers.gaussian_fit import fit
from dpsample.targets import Gibbs

Array = NDArray[np.float64]

MAX_DIRECTIONS = 10


def stein_values(target: Gibbs, points: Array) -> Iterator[tuple[str, Array]]:
    """Names and values of div phi - <phi, grad V>."""
    found, gradient = fit(target), slopes(target, points)
    white = (points - found.center) @ found.whiten.T
    factor, name = found.factor, "axis {} of the fit"
    if factor.shape[1] > MAX_DIRECTIONS:
        # A few mixtures of all axes see more than a few axes.
        noise = np.random.default_rng(0).standard_normal(factor.shape[1:] * 2)
        basis = np.linalg.qr(noise)[0][:, :MAX_DIRECTIONS]
        white, factor, name = white @ basis, factor @ basis, "mixture {} of axes"
    for i, direction in enumerate(factor.T):
        room, change = _bump(chords(target, points, direction))
        along, place = gradient @ direction, white[:, i]
        label = name.format(i)
        yield f"constant, {label}", change - room * along
        yield f"linear, {label}", place * (change - room * along) + room
    yield "radial", _radial(target, points, gradient)


def _bump(ends: Array) -> tuple[Array, Array]:
    """Return a function that is 0 at the chord's finite ends, and its slope there."""
    low, high = ends.T
    below, above = np.isfinite(low), np.isfinite(high)
    left, right = np.where(below, -low, 1.0), np.where(above, high, 1.0)
    return left * right, above * -left + below * right


def _radial(target: Gibbs, points: Array, gradient: Array) -> Array:
    """Field (1 - rho)(x - c), rho the gauge about an interior point c: 1 outside."""
    domain, dim = target.problem.domain, target.dim
    center = domain.interior_point(dim)
    away = points - center
    reach = chords(target, np.broadcast_to(center, points.shape), away)[:, 1]
    # Very near to the center, rounding turns a direction out of the simplex's plane.
    gauge = 1.0 / np.where(reach > 0.0, reach, np.inf)
    rank = domain.affine_dim(dim)
    # <x - c, grad rho> = rho: the gauge is homogeneous of degree 1.
    return np.asarray(
        rank * (1.0 - gauge) - gauge - (1.0 - gauge) * (away * gradient).sum(axis=1)
    )
