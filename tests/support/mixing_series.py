"""Series of numbers with a known autocorrelation."""

import numpy as np


def series_of(correlation, columns, chains=4, draws=500, seed=1):
    """Stationary autoregressive chains."""
    noise = np.random.default_rng(seed).normal(size=(draws, chains, columns))
    found = [noise[0]]
    for step in noise[1:]:
        found.append(correlation * found[-1] + np.sqrt(1.0 - correlation**2) * step)
    return np.array(found).swapaxes(0, 1)
