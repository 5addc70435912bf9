"""Records of a8a, a9a, w7a or a stand-in, and certified minima on the unit ball."""

import math
from functools import cache

import numpy as np
from scipy import sparse

import dpsample as dps

# Attributes, and public bound of the rows' norm: a8a and a9a have 14 ones at most.
SHAPES = {
    "a8a": (123, math.sqrt(14.0)),
    "a9a": (123, math.sqrt(14.0)),
    "w7a": (300, math.sqrt(300.0)),
    "stand-in": (123, math.sqrt(14.0)),
}
SIZES = {"a8a": 22_696, "a9a": 32_561, "w7a": 24_692, "stand-in": 4_000}


def records(name, split):
    """Features as published, labels -1 and 1; the stand-in is drawn."""
    if name == "stand-in":
        return stand_in(split)
    data = dps.datasets.load(name, split=split)
    scale = math.sqrt({"w7a": 300.0}.get(name, 14.0))
    return data.features * scale, data.response


def stand_in(split):
    """Rows with 14 ones among 123, a few of them common, and noisy labels."""
    rng = np.random.default_rng(["train", "test"].index(split))
    number, dim = SIZES["stand-in"], SHAPES["stand-in"][0]
    # The largest of log weights plus Gumbel noise: draws without replacement.
    weights = -0.05 * np.arange(dim) + rng.gumbel(size=(number, dim))
    features = (weights >= np.sort(weights)[:, [-14]]).astype(float)
    theta = np.random.default_rng(2).normal(size=dim)
    margins = features @ theta - 1.0
    return features, np.where(rng.logistic(size=number) < margins, 1.0, -1.0)


@cache
def load(name, split):
    """Read the records of a set once."""
    return records(name, split)


@cache
def minimum(name, split, loss):
    """Minimum of a risk over the unit ball, its gap, and the ball's multiplier there.

    Newton's method for F + nu |w|^2/2, Hebden's for the nu at which |w| = 1. The gap is
    at most <gradient, w> + |gradient| and is checked.
    """
    features, response = load(name, split)
    features = sparse.csr_array(features)
    theta, ridge = np.zeros(features.shape[1]), 1e-6
    for _ in range(30):
        for _ in range(100):
            _, gradient, curvature = derivatives(loss, features, response, theta)
            curvature = curvature + ridge * np.eye(len(theta))
            step = np.linalg.solve(curvature, gradient + ridge * theta)
            # A quartic's Newton steps are short near its minimum: no damping there.
            theta = theta - step / (1.0 + np.linalg.norm(features @ step, np.inf) / 8.0)
            if np.linalg.norm(step) < 1e-9:
                break
        size = np.linalg.norm(theta)
        rate = theta @ np.linalg.solve(curvature, theta)
        change = max(1e-6, ridge + (size - 1.0) * size**2 / rate) - ridge
        if abs(change) <= 1e-8 * ridge:
            break
        ridge += change
    theta /= max(1.0, size)
    risk, gradient, _ = derivatives(loss, features, response, theta)
    gap = gradient @ theta + np.linalg.norm(gradient)
    if gap > 1e-5:
        raise ArithmeticError(f"The minimum of {name} is known to {gap:.1g} only.")
    return float(risk), float(gap), ridge


def derivatives(loss, features, response, theta):
    """Risk, its gradient and its Hessian."""
    margins = features @ theta
    if loss == "l4":
        errors = margins - response
        values, slopes, bends = errors**4, 4.0 * errors**3, 12.0 * errors**2
    else:
        wrong = 1.0 / (1.0 + np.exp(response * margins))
        values, slopes = np.logaddexp(0.0, -response * margins), -response * wrong
        bends = wrong * (1.0 - wrong)
    weighted = features.multiply((bends / len(response))[:, None])
    hessian = (features.T @ sparse.csr_array(weighted)).toarray()
    return values.mean(), features.T @ slopes / len(response), hessian
