"""Reference instances whose minimal risk is known, for `optimizer_risk.py`.

An instance is a function of the number of records and a generator that returns a
problem and the excess risk of a point on it. "population" risks are exact sums or
integrals. "empirical" ones are those of the drawn records, in closed form or against a
minimum that accelerated proximal gradients find to about 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import dpsample as dps

Array = NDArray[np.float64]
BELOW = 1.0 - 1e-14  # rows of norm 1 are computed a little longer
# Largest derivative of the Huber loss, and weight of the l1 penalty.
SLOPE = 1.0
PENALTY = 0.02
# Threshold of the gradients.
CLIP = 5.0
# Public bound of the curvature of the risk.
CURVATURE = 1.3
ENTRY = 3.0  # entries of the lasso's records are clipped there
# Degrees of freedom of Student errors. Their variance is then 3, too.
DEGREES = 3.0


class Instance(NamedTuple):
    """A problem and the excess risk of a point."""

    problem: dps.Problem
    excess: Callable[[Array], float]


Make = Callable[[int, np.random.Generator], Instance]


def axis(loss: dps.losses.Loss, slopes: Array, best: Array, domain: Any) -> Make:
    """Rows are single coordinates: the population risk is a finite sum.

    Labels of coordinate j are 1 with the probability expit(slopes[j]); ``best`` is the
    minimizer on the domain.
    """
    dim, up = len(slopes), expit(slopes)

    def risk(theta: Array) -> float:
        above = loss.value(theta, np.ones(dim))
        below = loss.value(theta, -np.ones(dim))
        return float((up * above + (1.0 - up) * below).mean())

    def make(num_records: int, rng: np.random.Generator) -> Instance:
        j = rng.integers(dim, size=num_records)
        rows = np.zeros((num_records, dim))
        rows[np.arange(num_records), j] = 1.0
        labels = np.where(rng.random(num_records) < up[j], 1.0, -1.0)
        norm = 1.0 if isinstance(domain, dps.domains.WholeSpace) else 2.0
        if isinstance(domain, dps.domains.Ball):
            norm = min(domain.p, 2.0)
        problem = dps.Problem(
            rows,
            labels,
            loss=loss,
            domain=domain,
            row_bound=1.0,
            row_norm=norm,
            response_bound=1.0,
        )
        return Instance(problem, lambda theta: risk(theta) - risk(best))

    return make


def corners(num_records: int, dim: int, rng: np.random.Generator) -> Array:
    """Rows of norm 1 with entries +-1/sqrt(d) and mean of norm 1/2."""
    signs = np.where(rng.random((num_records, dim)) < 0.75, 1.0, -1.0)
    return signs / math.sqrt(dim) * BELOW


def linear_sample(num_records: int, rng: np.random.Generator) -> Instance:
    """Linear losses on the unit ball: the empirical risk's minimum is -|mean|."""
    rows = corners(num_records, 10, rng)
    mean = rows.mean(axis=0)
    minimum = -float(np.linalg.norm(mean))
    return Instance(_linear(rows), lambda theta: float(-theta @ mean) - minimum)


def mean_estimation(num_records: int, rng: np.random.Generator) -> Instance:
    """-<x, w> + |w|^2/2 on the unit ball, minimal at the mean."""
    mean = np.full(10, 0.5 / math.sqrt(10.0)) * BELOW
    problem = _linear(corners(num_records, 10, rng))
    return Instance(problem, lambda theta: 0.5 * float(((theta - mean) ** 2).sum()))


def _linear(rows: Array) -> dps.Problem:
    return dps.Problem(
        rows,
        np.ones(len(rows)),
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )


def growth(exponent: float) -> Make:
    """Noiseless regression on the unit ball of R^4 with |theta - truth|^exponent."""
    loss = dps.losses.Squared() if exponent == 2.0 else dps.losses.PowerFour()
    scale = 0.5 if exponent == 2.0 else 1.0  # Squared is half of the square

    def make(num_records: int, rng: np.random.Generator) -> Instance:
        sample = dps.datasets.growth_regression(
            num_records, 4, seed=int(rng.integers(2**31)), exponent=exponent, signal=0.7
        )
        problem = dps.Problem(
            sample.dataset.features,
            sample.dataset.response,
            loss=loss,
            domain=dps.domains.Ball(1.0),
            row_bound=sample.dataset.row_bound,
            response_bound=sample.dataset.response_bound,
        )
        return Instance(problem, lambda theta: scale * sample.excess_risk(theta))

    return make


def interpolation(num_records: int, rng: np.random.Generator) -> Instance:
    """Draw the records of `growth`, with their own risk: its minimum is 0."""
    problem = growth(2.0)(num_records, rng).problem
    return Instance(problem, lambda theta: float(problem.risk(theta)))


def student(l1: float = 0.0) -> Make:
    """Draw normal rows, Student errors: the risk is |theta - truth|^2/2 + penalty."""
    truth = np.zeros(20)
    truth[:3] = 0.5, -0.3, 0.2
    best = np.sign(truth) * np.maximum(np.abs(truth) - l1, 0.0)

    def risk(theta: Array) -> float:
        return float(0.5 * ((theta - truth) ** 2).sum() + l1 * np.abs(theta).sum())

    def make(num_records: int, rng: np.random.Generator) -> Instance:
        rows = rng.standard_normal((num_records, 20))
        response = rows @ truth + rng.standard_t(DEGREES, num_records)
        ball = dps.domains.Ball(2.0) if l1 else dps.domains.Ball(1.0, p=1.0)
        problem = _heavy(rows, response, dps.losses.Squared(), ball)
        return Instance(problem, lambda theta: risk(theta) - risk(best))

    return make


def clipped_lasso(num_records: int, rng: np.random.Generator) -> Instance:
    """Clip the entries of `student`: the squared risk of these records on its ball."""
    problem = student()(num_records, rng).problem
    rows = np.clip(problem.data.dense, -ENTRY, ENTRY)
    response = np.clip(problem.data.response, -ENTRY, ENTRY)
    gram, mixed = rows.T @ rows / num_records, rows.T @ response / num_records

    def risk(theta: Array) -> float:
        return float(0.5 * theta @ gram @ theta - mixed @ theta)

    ball = dps.domains.Ball(1.0, p=1.0)
    best = minimizer(
        lambda w: gram @ w - mixed,
        lambda w, size: np.asarray(ball.project(w)),
        curvature=float(np.linalg.eigvalsh(gram)[-1]),
        dim=20,
    )
    return Instance(problem, lambda theta: risk(theta) - risk(best))


def huber_lasso(threshold: float) -> Make:
    """Design of Xie et al.: Huber risk of the records, slopes clipped, plus lasso."""

    def make(num_records: int, rng: np.random.Generator) -> Instance:
        data = dps.datasets.heavy_tailed_regression(
            num_records, 20, seed=int(rng.integers(2**31)), degrees=DEGREES
        )
        rows, y = data.features, data.response
        # A gradient clipped to the threshold is that of a Huber loss of less slope.
        slope = np.minimum(SLOPE, threshold / np.linalg.norm(rows, axis=1))

        def risk(theta: Array) -> float:
            residuals = np.abs(rows @ theta - y)
            quadratic_part = np.minimum(residuals, slope)
            values = 0.5 * quadratic_part**2 + slope * (residuals - quadratic_part)
            return float(values.mean() + PENALTY * np.abs(theta).sum())

        best = minimizer(
            lambda w: rows.T @ np.clip(rows @ w - y, -slope, slope) / num_records,
            lambda w, size: np.sign(w) * np.maximum(np.abs(w) - size * PENALTY, 0.0),
            curvature=CURVATURE,
            dim=20,
        )
        loss, ball = dps.losses.Huber(SLOPE), dps.domains.Ball(4.0)
        problem = _heavy(rows, y, loss, ball)
        return Instance(problem, lambda theta: risk(theta) - risk(best))

    return make


def _heavy(rows: Array, response: Array, loss: Any, domain: Any) -> dps.Problem:
    return dps.Problem(
        rows,
        response,
        loss=loss,
        domain=domain,
        row_bound=math.sqrt(len(rows)),
        row_norm=math.inf,
        response_bound=math.inf,
    )


def minimizer(
    gradient: Callable[[Array], Array],
    proximal: Callable[[Array, float], Array],
    *,
    curvature: float,
    dim: int,
) -> Array:
    """Accelerated proximal gradients until they stand still."""
    theta, ahead = np.zeros(dim), np.zeros(dim)
    for t in range(1, 3000):
        last = theta
        theta = proximal(ahead - gradient(ahead) / curvature, 1.0 / curvature)
        ahead = theta + (t - 1.0) / (t + 2.0) * (theta - last)
        if t > 50 and np.linalg.norm(theta - last) < 1e-12:
            break
    return theta
