"""Upper confidence limit of a mean of bounded variables, and a geometric tail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_BISECTIONS = 60


def divergence(q: Array, p: Array) -> Array:
    """Kullback-Leibler divergence of coins with probabilities q and p, 0 < p < 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(q > 0.0, q * np.log(q / p), 0.0)
        tails = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.asarray(heads + tails)


def upper_limit(means: Array, count: int, error: Array) -> Array:
    """Upper limit of the expectation of independent variables in [0, 1].

    The largest p with count KL(mean || p) <= log 1 / error: by Chernoff and Hoeffding's
    inequality it fails with probability at most ``error``, whatever the law.
    """
    budget = -np.log(error) / count
    low, high = np.array(means, dtype=np.float64), np.ones_like(means)
    for _ in range(NUM_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = divergence(means, np.minimum(middle, 1.0 - 1e-16)) <= budget
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return high


def geometric_tail(times: NDArray[np.int64], lag: int, steps: Array) -> Array:
    """Bound E max(0, ceil((tau - lag - t) / lag)) if tau has a geometric tail.

    The tail is fitted to the excesses over the median: it is an extrapolation.
    """
    median = np.median(times)
    excesses = times[times > median] - median
    mean = float(excesses.mean()) if excesses.size else 1.0
    # Ratio and share that a sample of this size cannot tell from zero stay positive.
    ratio = max(1.0 - 1.0 / max(mean, 1.0), 1.0 / times.size)
    share = max(excesses.size, 1) / times.size
    ahead = np.maximum(steps + lag - median, 0.0)
    return np.asarray(share * ratio**ahead / (1.0 - ratio**lag))
