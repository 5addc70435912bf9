"""Batches of chains, for tests: stretches long enough to be almost independent.

A batch is a stretch of one chain of at least `BATCH_TIMES` correlation times. Means of
batches are treated as independent normal numbers, with Student's and Fisher's laws for
few of them: autocorrelated chains are not flagged for being autocorrelated.
"""

import math

import numpy as np

from dpsample.core.arrays import Array

# Means of such batches correlate by less than 0.1; longer ones would leave chains of
# effective size 100 with too few. Simulated levels are within a factor of 3 of nominal.
BATCH_TIMES = 5.0
# More batches in half a chain than this add no power; fewer are closer to normal.
MAX_BATCHES = 20
MIN_BATCHES = 2


def correlation_times(values: Array) -> Array:
    """Integrated autocorrelation time of each function, averaged over chains.

    From ``values`` (chain, draw, m): draws per effective draw, shape (m,), at least 1
    and infinite where nothing moved. Chains are centered one by one: that their means
    differ is not autocorrelation.
    """
    from arviz_stats.base import array_stats

    chains, draws, _ = values.shape
    centered = values - values.mean(axis=1, keepdims=True)
    times = np.full(values.shape[2], math.inf)
    has_moved = np.ptp(values, axis=1).max(axis=0) > 0.0
    if has_moved.any():
        size = array_stats.ess(
            centered[:, :, has_moved], chain_axis=0, draw_axis=1, method="identity"
        )
        times[has_moved] = np.maximum(chains * draws / np.asarray(size), 1.0)
    # A size that cannot be estimated counts as none.
    return np.where(np.isnan(times), math.inf, times)


def batch_means(values: Array, time: float) -> Array | None:
    """Means of batches in each half of each chain, or None if halves are too short.

    ``values`` has shape (chain, draw) and the correlation time ``time``; the means have
    shape (chain, 2, num_batches). Draws that fill no batch are the first of each half.
    """
    half = values.shape[1] // 2
    if not math.isfinite(time):
        return None
    count = min(half // math.ceil(BATCH_TIMES * time), MAX_BATCHES)
    if count < MIN_BATCHES:
        return None
    length = half // count
    halves = np.stack([values[:, :half], values[:, -half:]], axis=1)
    kept = halves[:, :, half - count * length :]
    means = kept.reshape(len(values), 2, count, length).mean(axis=3)
    return np.asarray(means, dtype=np.float64)


def differ(means: Array) -> float:
    """Level at which halves of chains have different means, by Fisher's F test.

    That is the probability of a larger variance ratio if all halves have one mean;
    ``means`` are those of `batch_means`.
    """
    from scipy.stats import f

    groups = means.reshape(-1, means.shape[2])
    num_groups, count = groups.shape
    within = groups.var(axis=1, ddof=1).mean()
    between = count * groups.mean(axis=1).var(ddof=1)
    if within == 0.0:
        return 0.0 if between > 0.0 else 1.0
    return float(f.sf(between / within, num_groups - 1, num_groups * (count - 1)))


def off_zero(values: Array, time: float) -> tuple[float, float, float] | None:
    """Student's t test that the mean is zero, or None if chains are too short.

    The standard error is the larger of that of batches and that of the correlation
    time, whose failures differ. Skewness is removed by Hall's transformation (Journal
    of the Royal Statistical Society B 54, 1992, pages 221-228): without it 400
    independent Gamma(0.05) numbers fail 80 times as often as 1 in 10 000.

    Of ``values`` (chain, draw) with the correlation time ``time``: the mean in standard
    errors, or its transform if that is nearer to 0, and the probabilities of a larger
    and of a smaller statistic if the mean is zero.
    """
    from scipy.stats import t

    means = batch_means(values, time)
    if means is None:
        return None
    error = max(
        float(means.std(ddof=1)) / math.sqrt(means.size),
        float(values.std()) * math.sqrt(time / values.size),
    )
    if error == 0.0:
        return None
    student = float(values.mean()) / error
    transformed = _without_skewness(student, values, values.size / time)
    statistic = min(student, transformed, key=abs)
    freedom = means.size - 1
    return statistic, float(t.sf(statistic, freedom)), float(t.cdf(statistic, freedom))


def _without_skewness(student: float, values: Array, size: float) -> float:
    """Hall's transform of a Student statistic of so many independent numbers."""
    centered = values - values.mean()
    skewness = float(np.mean(centered**3) / np.mean(centered**2) ** 1.5)
    mean = student / math.sqrt(size)
    moved = mean + skewness * mean**2 / 3.0 + skewness**2 * mean**3 / 27.0
    return math.sqrt(size) * (moved + skewness / (6.0 * size))
