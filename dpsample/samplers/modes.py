"""Modes of a density that is not convex, which chains start at in turn.

Chains that all start at one mode agree, although they may miss another. So descents
from dispersed points look for local minima of the energy. Two of them are different
modes if the energy between them, on a segment, is higher than at both by more than 3.
A mode whose Gaussian has less than a share of 1e-4 of the heaviest one's mass is left
out, because a chain that stays there counts for a whole one.

Chains at different modes that they do not leave have a large R-hat, of which `sample`
warns. A mode that no descent reaches stays unseen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.samplers.chain import draw_near, reflect_move
from dpsample.samplers.gaussian_fit import (
    GaussianFit,
    averaged_derivatives,
    cache_result,
    clipped_inverse,
    fit,
    hull_basis,
    minimize,
    rough_mode,
)
from dpsample.targets.density import Density
from dpsample.targets.gibbs_target import GibbsTarget, energies, times_basis


class LocalMode(NamedTuple):
    """Local minimum of an energy, and a Gaussian about it."""

    point: Array  # (dim,)
    factor: Array  # (dim, m): the covariance is factor factor^T
    log_mass: float  # logarithm of the Gaussian's mass, up to a constant


@cache_result
def find_modes(target: GibbsTarget) -> list[LocalMode]:
    """Return the modes that were found, the heaviest first. One alone is not listed.

    A target that is convex, as far as it is known, has none in this sense.
    """
    if not isinstance(target, Density) or target.is_convex:
        return []
    minima: list[tuple[float, Array]] = []
    max_steps = 200  # limit of each descent
    for start in _starts(target, max_steps):
        point, height = minimize(target, start=start, max_steps=max_steps)
        if math.isfinite(height) and not _can_fall(target, point, height):
            minima.append((height, point))
    minima.sort(key=lambda minimum: minimum[0])
    modes: list[LocalMode] = []
    for height, point in minima:
        is_new = all(_are_apart(target, mode.point, point) for mode in modes)
        # There may be very many minima. Then the lowest are compared.
        if is_new and len(modes) < 32:
            modes.append(_mode_at(target, point, height))
    modes.sort(key=lambda mode: -mode.log_mass)
    heavy = [m for m in modes if m.log_mass >= modes[0].log_mass + math.log(1e-4)]
    # Eight modes are enough for the usual numbers of chains.
    return heavy[:8] if len(heavy) > 1 else []


def draw_start_at(
    target: GibbsTarget, index: int, rng: np.random.Generator
) -> Array | None:
    """Draw a start near a mode, the next one for each index, or None without modes."""
    modes = find_modes(target)
    if not modes:
        return None
    mode = modes[index % len(modes)]
    return draw_near(target, mode.point, mode.factor, rng)


def cover_modes(target: GibbsTarget, gaussian: GaussianFit) -> GaussianFit:
    """Return a Gaussian about all modes in equal parts, or the given one without.

    Its center is the heaviest mode, because the mean may be between modes, where the
    density is small.
    """
    modes = find_modes(target)
    if not modes:
        return gaussian
    points = np.array([gaussian.whiten @ mode.point for mode in modes])
    offsets = points - points.mean(axis=0)
    covariance = offsets.T @ offsets / len(modes)
    for mode in modes:
        factor = gaussian.whiten @ mode.factor
        covariance = covariance + factor @ factor.T / len(modes)
    return gaussian.rescale(modes[0].point, covariance)


def _starts(target: Density, max_steps: int) -> list[Array]:
    """Return the points from which descents begin."""
    rng, gaussian = np.random.default_rng(0), fit(target)
    starts = [target.domain.interior_point(target.dim), rough_mode(target)]
    per_descent = 2.0 * max_steps * target.gradient_work
    # 3e9 multiply-adds take about a second.
    num_directions = int(np.clip(3e9 / (5.0 * per_descent), 2, 8))
    rank = gaussian.factor.shape[1]
    # Distances from the center, in standard deviations of the Gaussian fit.
    for distance in (1.0, 3.0, 10.0, 30.0, 100.0):
        for _ in range(num_directions):
            noise = rng.standard_normal((rank,)) * (distance / math.sqrt(rank))
            starts.append(reflect_move(target, gaussian.center, gaussian.factor, noise))
    basis, point = hull_basis(target), starts[0]
    # In a bounded domain there are modes far from the center, too.
    for _ in range(4 * num_directions if target.domain.is_bounded else 0):
        direction = basis @ rng.standard_normal(rank)
        low, high = target.domain.chord(point, direction)
        point = point + (low + (high - low) * rng.random()) * direction
        starts.append(point)
    heights = energies(target, np.array(starts))
    return [starts[i] for i in np.flatnonzero(np.isfinite(heights))]


def _can_fall(target: Density, point: Array, height: float) -> bool:
    """Return whether a Newton step lowers the energy, so that a descent was cut short.

    Its end on a slope, as in the mouth of a funnel, is not a mode.
    """
    basis = hull_basis(target)
    slope, precision = averaged_derivatives(target, basis, point, None)
    move = -(basis @ (clipped_inverse(precision) @ slope))
    trials = [point + share * move for share in 0.3 ** np.arange(6.0)]
    trials = [target.domain.project(trial) for trial in trials]
    # Chains do not notice a smaller fall.
    return bool((energies(target, np.array(trials)) < height - 0.3).any())


def _are_apart(target: Density, first: Array, second: Array) -> bool:
    """Return whether the energy rises on the segment between two minima."""
    shares = np.linspace(0.0, 1.0, 33)
    heights = energies(target, first + shares[:, None] * (second - first))
    # Infinity is a wall, and so is NaN.
    between = np.where(np.isnan(heights), np.inf, heights)[1:-1]
    # Chains often cross a lower barrier.
    return bool(between.max() > max(heights[0], heights[-1]) + 3.0)


def _mode_at(target: Density, point: Array, height: float) -> LocalMode:
    """Return the Gaussian at a minimum. Its mass is e^-height times its volume."""
    basis = hull_basis(target)
    precision = averaged_derivatives(target, basis, point, None)[1]
    covariance = clipped_inverse(precision)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 1e-12 * values[-1])
    factor = np.ascontiguousarray(times_basis(basis, vectors * np.sqrt(values)))
    return LocalMode(point, factor, -height + 0.5 * float(np.log(values).sum()))
