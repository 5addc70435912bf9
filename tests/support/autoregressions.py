"""Chains of a known autocorrelation."""

import numpy as np


def autoregression(phi, *, num_chains=2, length=2_000, dim=3, seed=1):
    rng = np.random.default_rng(seed)
    draws = np.empty((num_chains, length, dim))
    x = rng.normal(size=(num_chains, dim)) / np.sqrt(1.0 - phi**2)
    for t in range(length):
        x = phi * x + rng.normal(size=x.shape)
        draws[:, t] = x
    return draws
