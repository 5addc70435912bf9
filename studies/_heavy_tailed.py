"""Simulations of Xie et al. (2022): designs, methods, closed forms of their risks."""

import math
from functools import cache
from types import MappingProxyType

import numpy as np

import dpsample as dps

SIGNAL = math.sqrt(10.0)  # norm of the coefficients
RADIUS = 10.0  # of the l2 ball of the proximal methods
PRIVATE = {
    "DP-SPGD": {"estimator": "clip"},
    "DP-SPGD(K)": {"estimator": "bucketed_median"},
    "DP-SPGD(K) midmean": {
        "estimator": "bucketed_median",
        "num_buckets": 24,
        "num_central": 12,
    },
    "DP-SPGD(H)": {"estimator": "catoni"},
}
# Second moment of a gradient's coordinate that sets the threshold of each method: the
# best power of 4 in the study heavy_tailed_tuning at p = 50, epsilon = 1, by excess
# risk (midmean, logistic: its neighbor).
MOMENTS = MappingProxyType(
    {
        "lasso": dict(zip(PRIVATE, (16.0, 1.0, 1.0, 4.0), strict=True)),
        "logistic": dict(zip(PRIVATE, (0.25, 0.0625, 0.25, 0.25), strict=True)),
    }
)


def seeds_of(seed):
    """Integers that seed the records and the run."""
    return [int(word) for word in seed.generate_state(2, np.uint64)]


def records(model, num_records, dim, seed, scale="sqrt_n"):
    """Draw a data set; columns have norm sqrt(n), or as in the paper "unit"."""
    make = dps.datasets.heavy_tailed_regression
    if model == "logistic":
        make = dps.datasets.heavy_tailed_logistic
    return make(num_records, dim, seed=seed, scale=scale)


def problem(model, data, domain):
    """Squared loss or logistic loss on a domain."""
    is_logistic = model == "logistic"
    return dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic() if is_logistic else dps.losses.Squared(),
        domain=domain,
        row_bound=data.row_bound,
        row_norm=data.row_norm,
        response_bound=None if is_logistic else math.inf,
    )


def penalty(model, num_records, dim):
    """Weight of the l1 norm, and the smoothness of the risk, from the design alone."""
    largest = (1.0 + math.sqrt(dim / num_records)) ** 2  # eigenvalue, about
    return {
        "l1": math.sqrt(2.0 * math.log(dim) / num_records),
        "smoothness": largest * (0.25 if model == "logistic" else 1.0),
    }


def robust(method, dim, moment, **options):
    """Return one of the private proximal methods at a declared moment."""
    settings = PRIVATE[method]
    if settings["estimator"] == "clip":
        options.setdefault("threshold", math.sqrt(dim * moment))
    return dps.optimizers.PrivateProximalSGD(moment_bound=moment, **settings, **options)


def softplus_mean(scale):
    """E log(1 + exp(scale Z)), Z standard normal: the sum converges geometrically."""
    z = np.linspace(-9.0, 9.0, 4001)
    weights = np.exp(-0.5 * z**2)
    return float(np.logaddexp(0.0, scale * z) @ weights / weights.sum())


@cache
def label_slope():
    """E y Z for the label of a record whose margin at the truth is |theta*| Z."""
    z = np.linspace(-9.0, 9.0, 2_000_001)
    below = np.maximum(1.0 - 2.0 * SIGNAL * z, 0.0)
    weights = np.exp(-0.5 * z**2)
    return float((z / (1.0 + np.sqrt(below))) @ weights / weights.sum())


@cache
def logistic_minimum():
    """Norm of the minimizer of the logistic risk, a multiple of the truth; the risk."""
    from scipy.optimize import minimize_scalar

    minimum = minimize_scalar(
        lambda r: softplus_mean(r) - r * label_slope(),
        bounds=(0.0, 20.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(minimum.x), float(minimum.fun)


def excess(model, theta, truth):
    """Excess population risk without the penalty.

    Features are standard normal, so it depends on theta through |theta - truth| (square
    loss), or |theta| and the product with the truth (logistic loss).
    """
    if model == "lasso":
        return 0.5 * float(np.sum((theta - truth) ** 2))
    along = float(theta @ truth) / SIGNAL
    risk = softplus_mean(float(np.linalg.norm(theta))) - along * label_slope()
    return risk - logistic_minimum()[1]
