"""Objective perturbation in one dimension, where every law is known exactly.

theta solves S(theta) + G = 0 with S the increasing sum of slopes plus 2 n lambda theta,
so P(theta <= a) = Phi(S(a) / stddev), also at the ends of an interval. On cells of a
grid the hockey-stick divergence is then exact arithmetic; refining can only raise it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

Slope = Callable[[np.ndarray], np.ndarray]


def ramp(low: float, high: float, center: float, curvature: float) -> Slope:
    """Slope of a two-sided Huber loss: from low to high with the given curvature."""
    return lambda w: np.clip(0.5 * (low + high) + curvature * (w - center), low, high)


def logistic(row: float, label: float) -> Slope:
    """Slope of the logistic loss: bound |row|, curvature row^2 / 4."""
    return lambda w: -label * row * ndtr_logistic(-label * row * w)


def ndtr_logistic(u: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-u)."""
    return 0.5 * (1.0 + np.tanh(0.5 * u))


def squared(row: float, response: float) -> Slope:
    """Slope of the squared loss."""
    return lambda w: row * (row * w - response)


def cell_masses(slopes: list[Slope], grid: np.ndarray, *, tilt: float, stddev: float):
    """Probability of each cell between grid points; tilt = 2 n lambda."""
    total = tilt * grid + sum(slope(grid) for slope in slopes)
    ends = np.concatenate(([-np.inf], total / stddev, [np.inf]))
    low, high = ends[:-1], ends[1:]
    # Differences of small tails, not of numbers near 1.
    return np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def merged(masses: np.ndarray) -> np.ndarray:
    """Masses of pairs of cells."""
    return np.add.reduceat(masses, np.arange(0, len(masses), 2))


def divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Hockey-stick divergence on cells, the larger of both orders."""
    factor = np.exp(epsilon)
    return max(
        np.maximum(a - factor * b, 0.0).sum()
        for a, b in ((first, second), (second, first))
    )


def exact_delta(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Delta plus what refining the grid could still add.

    The error of the cells falls with the square of their width, so the limit lies
    above the fine value by a third of the last change; the whole change is added.
    """
    fine = divergence(first, second, epsilon)
    return 2.0 * fine - divergence(merged(first), merged(second), epsilon)


def renyi(first: np.ndarray, second: np.ndarray, order: float) -> float:
    """Renyi divergence on cells, the larger of both orders; a lower bound."""
    keep = (first > 1e-300) & (second > 1e-300)
    a, b = first[keep], second[keep]
    sums = [(p * (p / q) ** (order - 1.0)).sum() for p, q in ((a, b), (b, a))]
    return float(np.log(max(sums)) / (order - 1.0))


def wide_grid(
    *, tilt: float, stddev: float, slopes: float, points: int = 4001
) -> np.ndarray:
    """Grid that holds all but 1e-18 of the mass when |sum of slopes| <= slopes."""
    reach = (9.0 * stddev + slopes) / tilt
    return np.linspace(-reach, reach, points)
