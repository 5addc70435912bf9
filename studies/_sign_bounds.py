r"""Lower bounds of the excess risk, with their constants, for records that are signs.

A record is a sign b in {0, 1} of a coordinate, P(b = 1) = q, and the q of all
coordinates are independent Beta(alpha, beta). Integrating by parts against that prior,

.. math:: (\alpha + \beta) E \langle A, q - \bar q\rangle
   = E \sum_i \langle A, b_i - q\rangle

for every output A: what it knows of q it owes to its records one by one. Fresh
records i that A has not seen have products of mean 0 and mean square V^2 at most, and
privacy lets one that it has seen be larger by so much only:

* (eps, delta): V sinh(eps) + (1 + exp(-eps)) delta R, R the largest product;
* gdp t: V sqrt(exp(t^2) - 1), the chi-square divergence of two Gaussians.

Without privacy, no A does better than the posterior mean. Both hold in the mean over
the prior, so there is a law of records for which they hold.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaln

from dpsample import Budget
from dpsample.privacy import gdp_from_budget

SIZES = np.geomspace(1e-5, 0.5, 400)


def knowledge(budget, *, square, largest, is_gaussian=False):
    """Bound of E <A, b_i - q>, one record's part, for private A."""
    if budget is None:
        return math.inf
    if is_gaussian:
        gdp = gdp_from_budget(budget.epsilon, budget.delta)
        return square * math.sqrt(math.expm1(gdp**2))
    slack = (1.0 + math.exp(-budget.epsilon)) * budget.delta * largest
    return square * math.sinh(budget.epsilon) + slack


def corner_floor(signal, *, n, d, budget: Budget | None, is_gaussian=False):
    """Least mean excess of -<w, x> on the unit ball, x = (2b - 1)/sqrt(d).

    ``signal`` is the standard deviation of 2q - 1, alpha = beta.
    """
    s = np.asarray(signal, dtype=float)
    total = 1.0 / s**2 - 1.0  # alpha + beta
    # E |p| >= (E |p|^2)^(3/2) / (E |p|^4)^(1/2), by Hoelder's inequality
    length = s / np.sqrt(1.0 + (3.0 / (1.0 + 2.0 * s**2) - 1.0) / d)
    learned = s * np.sqrt(n / (n + total))
    largest = 2.0 * math.sqrt(d)
    private = knowledge(budget, square=1.0, largest=largest, is_gaussian=is_gaussian)
    if math.isfinite(private):
        learned = np.minimum(learned, n * private / (math.sqrt(d) * total))
    return np.maximum(length - learned, 0.0)


def axis_floor(signal, *, n, d, budget: Budget | None, center=0.5, is_gaussian=False):
    """Least mean of |q - center| - A (q - center), over d coordinates, |A| <= 1.

    Every record is the sign of one coordinate at random; ``signal`` is the standard
    deviation of q, ``center`` its mean.
    """
    s = np.asarray(signal, dtype=float)
    total = center * (1.0 - center) / s**2 - 1.0
    learned = s * np.sqrt(
        n / (n + d * total)
    )  # Jensen, over the records of a coordinate
    private = knowledge(budget, square=0.5, largest=1.0, is_gaussian=is_gaussian)
    if math.isfinite(private):
        learned = np.minimum(learned, n * private / (d * total))
    return np.maximum(
        mean_deviation(total * center, total - total * center) - learned, 0
    )


def mean_deviation(alpha, beta):
    """E |q - E q| of a Beta law."""
    log = alpha * np.log(alpha) + beta * np.log(beta) - betaln(alpha, beta)
    total = alpha + beta
    return 2.0 * np.exp(log - (total + 1.0) * np.log(total))


def minimax(floor, **problem):
    """Largest lower bound over priors: every algorithm's worst case is above it."""
    scale = 0.5 if floor is axis_floor else 1.0
    return float(np.max(floor(scale * SIZES, **problem)))
