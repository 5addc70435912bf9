"""Planted bugs: what a statistical assert must reject.

Each mutant is a law or a draw with one mistake that is easy to make. Draws are NumPy
code of their own, so that a mutant never shares a bug with the package.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc, gammaincinv


def factor_log_density(t, b, q, c, s, v, h, mistake=""):
    """Log density of `draw_factor`, or one with a mistake, up to a constant."""
    if mistake == "sign of v":
        v = -v
    if mistake == "h for 2h":
        h = 0.5 * h
    if mistake == "no factor b":
        b = 0.0
    if mistake == "q - 1":
        q = max(q - 1.0, 0.5)
    if mistake == "no factor c":
        c = 0.0
    return -b * np.abs(t) ** q - c * np.abs(t) ** s - (t - v) ** 2 / (2.0 * h)


def lp_draws_without_acceptance(rng, kappa, q, s0, num_draws, dim, stddev):
    """Draws of the tangent envelope: the acceptance step is missing.

    The envelope e^{-b S - |u|^2 / (2 stddev^2)} is drawn by plain rejection.
    """
    b = kappa / q * s0 ** (2.0 / q - 1.0)
    u = stddev * rng.standard_normal((40 * num_draws, dim))
    total = (np.abs(u) ** q).sum(axis=1)
    kept = u[rng.standard_exponential(len(u)) >= b * total]
    assert len(kept) >= num_draws
    return kept[:num_draws]


def across_radius(rng, dim, room, mistake=""):
    """Half the squared distance from the axis, given its upper limit."""
    a = 0.5 * (dim if mistake == "dim for dim - 1" else dim - 1)
    if mistake == "not truncated":
        return rng.standard_gamma(a, size=len(room))
    return gammaincinv(a, rng.random(len(room)) * gammainc(a, room))


def clipped_gaussian(rng, mean, stddev, radius, num_draws):
    """Gaussian projected onto the ball about 0 instead of restricted to it."""
    x = mean + stddev * rng.standard_normal((num_draws, len(mean)))
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.minimum(1.0, radius / norms)


def vertices_without_nan_scores(rng, scores, num_draws):
    """Exponential mechanism whose NaN scores lose every comparison."""
    noisy = scores + rng.gumbel(size=(num_draws, len(scores)))
    return np.where(np.isnan(noisy), -np.inf, noisy).argmax(axis=1)
