"""Exact privacy curves in one dimension, by quadrature."""

import numpy as np
from scipy.special import gammainc, gammaln


def privacy_curve(log_p, log_q, weights, epsilons):
    """Largest of both directions of int (q - e^eps p)_+ for unnormalized log densities.

    The likelihood ratio must depend on the grid's variable only. The grid's error
    must be far below the deltas that are compared.
    """
    p, q = (np.exp(v - v.max()) * weights for v in (log_p, log_q))
    p, q = p / p.sum(), q / q.sum()
    return np.array(
        [
            max(
                np.maximum(q - np.exp(eps) * p, 0.0).sum(),
                np.maximum(p - np.exp(eps) * q, 0.0).sum(),
            )
            for eps in np.atleast_1d(epsilons)
        ]
    )


def grid(lower, upper, size=40_001):
    """Midpoints and their common weight."""
    step = (upper - lower) / size
    return lower + step * (np.arange(size) + 0.5), np.full(size, step)


def log_gammainc(a, x):
    """Log of the regularized lower incomplete gamma function, underflow or not."""
    series = np.ones_like(x)
    term = np.ones_like(x)
    for j in range(1, 2000):
        term = term * x / (a + j)
        series += term
        if np.all(term <= 1e-17 * series):
            break
    with np.errstate(divide="ignore"):
        small = a * np.log(x) - x - gammaln(a + 1.0) + np.log(series)
        return np.where(x > a + 1.0, np.log(gammainc(a, x)), small)


def linear_loss_curve(*, dim, num_records, k, mu, tilt, epsilons):
    """Privacy curve of linear losses <g_i, x>, |g_i| <= 1, on the unit Euclidean ball.

    The density is N(-mean(g)/mu, 1/(k mu)) restricted to the ball. Replacing one g_i
    by -g_i along e_1 moves the mean by 2/(n mu) along e_1, from ``tilt``.
    The ratio depends on x_1 only, whose law is a normal density times the mass of the
    other coordinates within sqrt(1 - x_1^2).
    """
    strength = k * mu
    center, spread = np.clip(tilt, -1.0, 1.0), 60.0 / np.sqrt(strength)
    x, weights = grid(max(-1.0, center - spread), min(1.0, center + spread))
    others = log_gammainc((dim - 1) / 2.0, strength * (1.0 - x**2) / 2.0)
    log_p = -0.5 * strength * (x - tilt) ** 2 + others
    log_q = -0.5 * strength * (x - tilt - 2.0 / (num_records * mu)) ** 2 + others
    return privacy_curve(log_p, log_q, weights, epsilons)
