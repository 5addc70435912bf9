"""Stein's identity E[div phi - <phi, grad V>] = 0 for phi that vanish on the boundary.

NumPy formulas only: a bump b with its gradient for each domain, times constant fields
and the field that points away from the center.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import expit

from tests.support.sampler_margins import bernstein, moment
from tests.support.statistics import spend

SLOPES = {
    "logistic": lambda u, y: -y * expit(-y * u),
    "hinge": lambda u, y: np.where(y * u < 1.0, -y, 0.0),
    "absolute": lambda u, y: np.sign(u - y),
}


def gradient(case, points):
    """Gradient of V = k (F + mu r) with the Euclidean regularizer."""
    total = np.zeros_like(points)
    for row, y in zip(case.rows, case.response, strict=True):
        total += SLOPES[case.loss.name](points @ row, y)[:, None] * row
    return case.k * (total / len(case.rows) + case.mu * (points - case.center))


def products_without(factors):
    """Product of all factors but one, for each one."""
    keep = [np.delete(factors, j, axis=-1).prod(-1) for j in range(factors.shape[-1])]
    return np.stack(keep, axis=-1)


def bump(case, points):
    """Lipschitz function that is 0 on the boundary, and its gradient."""
    domain = case.domain
    if domain.name == "ball":
        u, p = points - case.center, domain.p
        value = domain.radius**p - (np.abs(u) ** p).sum(-1)
        return value, -p * np.abs(u) ** (p - 1.0) * np.sign(u)
    if domain.name == "schatten_ball":
        # The squared nuclear norm of a 2 x 2 matrix is |X|_F^2 + 2 |det X|.
        a, b, c, d = points.T
        determinant = a * d - b * c
        cofactors = np.stack((d, -c, -b, a), axis=-1)
        size = (points**2).sum(-1) + 2.0 * np.abs(determinant)
        slope = points + np.sign(determinant)[:, None] * cofactors
        return domain.radius**2 - size, -2.0 * slope
    if domain.name == "whole_space":
        spread = 1.0 + (points**2).sum(-1)
        return spread**-2.0, -4.0 * points * spread[:, None] ** -3.0
    if domain.name == "simplex":
        return points.prod(-1), products_without(points)
    if domain.name == "box":
        rows = np.vstack((np.eye(case.dim), -np.eye(case.dim)))
        bounds = np.concatenate((domain.upper, -domain.lower))
    else:
        rows, bounds = domain.A, domain.b
    room = bounds - points @ rows.T
    return room.prod(-1), -products_without(room) @ rows


def stein_values(case, points):
    """Values of div phi - <phi, grad V> for each test function phi."""
    value, slope = bump(case, points)
    energy_slope = gradient(case, points)
    constants = np.eye(case.dim)
    if case.domain.name == "simplex":
        constants -= 1.0 / case.dim
    fields = [(np.broadcast_to(v, points.shape), 0.0) for v in constants]
    fields.append((points - case.center, float(case.domain.affine_dim(case.dim))))
    return [
        (slope * v).sum(-1) + value * divergence - value * (v * energy_slope).sum(-1)
        for v, divergence in fields
    ]


@cache
def stein_law(case):
    """Mean, variance and reach of each value under the law of the case."""
    points, weights = case.law
    return [moment(values, weights) for values in stein_values(case, points)]


def stein_margin(case, sample):
    """Largest mean of Stein's functions, in units of Bernstein's bound."""
    laws, size = stein_law(case), len(sample)
    log_term = np.log(2.0 * len(laws) / spend())
    return max(
        bernstein(values.mean(), variance, reach, size, log_term)
        for values, (_, variance, reach) in zip(
            stein_values(case, sample), laws, strict=True
        )
    )
