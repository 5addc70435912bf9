"""Certified minima on a ball: what is possible without privacy."""

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit


def minimum(problem, l1=0.0):
    """Minimizer of F + l1 |w|_1 on the l2 ball of radius M, and its duality gap.

    L-BFGS-B on positive and negative parts; where the ball is active, with the ridge
    whose minimizer is on the sphere. The dual point of the gap is the gradient g of F:
    F + l1 |.|_1 falls from w by at most <g, w> + l1 |w|_1 + M |soft(g)|, soft the
    thresholding at l1, because F is convex.
    """
    risk, radius = _risk(problem), problem.domain.radius
    start = np.zeros(problem.dim)
    max_ridge = np.linalg.norm(_soft(risk(start)[1], l1)) / radius
    theta = _minimize_with_ridge(risk, l1, 0.0, start)
    if np.linalg.norm(theta) > radius:
        # The smallest ridge is this share of the largest that is tried.
        root = brentq(
            lambda log: (
                np.linalg.norm(_minimize_with_ridge(risk, l1, np.exp(log), start))
                - radius
            ),
            np.log(1e-9 * max_ridge),
            np.log(max_ridge),
            xtol=1e-12,
        )
        theta = _minimize_with_ridge(risk, l1, np.exp(root), start)
        theta *= min(1.0, radius / np.linalg.norm(theta))
    gradient = risk(theta)[1]
    soft = np.linalg.norm(_soft(gradient, l1))
    return theta, float(gradient @ theta + l1 * np.abs(theta).sum() + radius * soft)


def _soft(gradient, l1):
    return np.maximum(np.abs(gradient) - l1, 0.0)


def _minimize_with_ridge(risk, l1, ridge, start):
    """Minimizer of F + l1 |w|_1 + ridge |w|^2 / 2 on the whole space."""
    dim = len(start)

    def value_and_gradient(parts):
        theta = parts[:dim] - parts[dim:]
        value, slope = risk(theta)
        slope = slope + ridge * theta
        value += l1 * parts.sum() + 0.5 * ridge * theta @ theta
        return value, np.concatenate([l1 + slope, l1 - slope])

    parts = minimize(
        value_and_gradient,
        np.zeros(2 * dim),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * dim),
        options={"maxiter": 20_000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-10},
    ).x
    return parts[:dim] - parts[dim:]


def _risk(problem):
    """Risk and gradient; those of squares from their second moments."""
    rows, y = problem.data.dense, problem.data.response
    if problem.loss.name == "squared":
        gram, cross = rows.T @ rows / len(y), rows.T @ y / len(y)
        level = 0.5 * y @ y / len(y)
        return lambda theta: (
            level + (0.5 * gram @ theta - cross) @ theta,
            gram @ theta - cross,
        )

    def logistic(theta):
        margins = y * (rows @ theta)
        slopes = -(rows.T @ (y * expit(-margins))) / len(y)
        return np.logaddexp(0.0, -margins).mean(), slopes

    return logistic
