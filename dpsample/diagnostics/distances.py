r"""Kolmogorov, total variation and Wasserstein distances of a sample, with limits.

All rest on bounds for any number of independent points: Massart's constant in the
inequality of Dvoretzky, Kiefer and Wolfowitz, and McDiarmid's inequality.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Ints

# Points per cell of the partition on which total variation is estimated.
POINTS_PER_CELL, MAX_CELLS = 25, 64


class Interval(NamedTuple):
    """Estimate with limits."""

    estimate: float
    lower: float
    upper: float


def kolmogorov(values: Array, cdf: Callable[[Array], Array]) -> float:
    """Largest difference between the sample's distribution function and another."""
    ordered, size = np.sort(values), len(values)
    level, ranks = cdf(ordered), np.arange(size + 1) / size
    return float(max((ranks[1:] - level).max(), (level - ranks[:-1]).max(), 0.0))


def two_sample_kolmogorov(first: Array, second: Array) -> float:
    """Largest difference between the distribution functions of two samples."""
    a, b = np.sort(first), np.sort(second)
    both = np.concatenate((a, b))
    gap = np.searchsorted(a, both, "right") / len(a)
    return float(np.abs(gap - np.searchsorted(b, both, "right") / len(b)).max())


def p_value(distance: float, size: int, other: int | None = None) -> float:
    """Bound of the probability of a distance that large if the laws are equal.

    Against an exact law 2 exp(-2 size distance^2). Between samples each distribution
    function is off by its share of the distance, the shares as the square roots of the
    inverse sizes.
    """
    if other is None:
        return min(1.0, 2.0 * math.exp(-2.0 * size * distance**2))
    scale = 1.0 / math.sqrt(size) + 1.0 / math.sqrt(other)
    return min(1.0, 4.0 * math.exp(-2.0 * (distance / scale) ** 2))


def threshold(level: float, size: int, other: int | None = None) -> float:
    """Distance whose `p_value` is the level."""
    if other is None:
        return math.sqrt(math.log(2.0 / level) / (2.0 * size))
    scale = 1.0 / math.sqrt(size) + 1.0 / math.sqrt(other)
    return scale * math.sqrt(math.log(4.0 / level) / 2.0)


def cells(points: Array, weights: Array, size: int) -> Callable[[Array], Ints]:
    """Partition of the line or plane into cells of about equal probability.

    Returns the function that maps points to numbers of cells; there are as many as a
    sample of the given size can fill.
    """
    number = int(np.clip(size // POINTS_PER_CELL, 2, MAX_CELLS))
    if points.shape[1] == 1:
        cuts = quantiles(points[:, 0], weights, number)
        return lambda x: np.asarray(np.searchsorted(cuts, x[:, 0]))
    side = max(2, math.isqrt(number))
    outer = quantiles(points[:, 0], weights, side)
    column = np.searchsorted(outer, points[:, 0])
    inner = np.array(
        [
            quantiles(points[column == i, 1], weights[column == i], side)
            for i in range(side)
        ]
    )

    def number_of(x: Array) -> Ints:
        i = np.searchsorted(outer, x[:, 0])
        return np.asarray(i * side + (x[:, 1, None] > inner[i]).sum(axis=1))

    return number_of


def quantiles(values: Array, weights: Array, number: int) -> Array:
    """Cuts of weighted values into a number of parts of about equal weight."""
    order = np.argsort(values)
    heights = np.cumsum(weights[order]) / weights.sum()
    at = np.searchsorted(heights, np.arange(1, number) / number)
    return np.asarray(values[order][at])


def total_variation(counts: Array, probabilities: Array, error: float) -> Interval:
    r"""Total variation on a partition, with limits of the given error each.

    The estimate :math:`\frac12 \sum |\hat p_i - q_i|` is within sqrt(log(1 / error) /
    2n) of its mean, which is at least the distance on the partition and exceeds it by
    at most :math:`\frac12 \sum \sqrt{p_i (1 - p_i) / n} \le \frac12 \sqrt{(K - 1)/n}`.
    The lower limit holds for the total variation itself.
    """
    size = float(counts.sum())
    estimate = 0.5 * float(np.abs(counts / size - probabilities).sum())
    swing = math.sqrt(math.log(1.0 / error) / (2.0 * size))
    noise = 0.5 * math.sqrt((len(counts) - 1) / size)
    return Interval(
        estimate=estimate,
        lower=max(0.0, estimate - swing - noise),
        upper=min(1.0, estimate + swing),
    )


def wasserstein(
    values: Array, points: Array, weights: Array, *, width: float, error: float
) -> Interval:
    """Wasserstein-1 distance of one coordinate, with limits of the given error.

    The integral of the difference of distribution functions: a DKW band of half-width b
    moves it by at most b times the width of the domain, if that is finite.
    """
    from scipy.stats import wasserstein_distance

    estimate = float(wasserstein_distance(values, points, v_weights=weights))
    swing = width * threshold(error, len(values))
    return Interval(
        estimate=estimate, lower=max(0.0, estimate - swing), upper=estimate + swing
    )
