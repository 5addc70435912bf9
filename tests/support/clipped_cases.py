"""Small problems and budgets for the tests of clipped optimizers."""

import numpy as np

import dpsample as dps
from dpsample.optimizers.loop.pieces import START
from dpsample.problem.problem import Problem

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
ZERO_OUT = dps.Budget(epsilon=1.0, delta=1e-6, relation="zero_out")


def rows_and_labels(num_records, dim, seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    labels = np.where(rng.random(num_records) < 0.5, -1.0, 1.0)
    return rows * (1.0 - 1e-14), labels


def logistic(num_records=200, dim=3, *, domain=None, seed=1):
    rows, labels = rows_and_labels(num_records, dim, seed)
    return Problem(
        rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=domain or dps.domains.Ball(2.0),
        row_bound=1.0,
    )


def linear(num_records=100, dim=3, *, domain=None, seed=1):
    rows, labels = rows_and_labels(num_records, dim, seed)
    return Problem(
        rows,
        labels,
        loss=dps.losses.Linear(),
        domain=domain or dps.domains.Ball(1.0),
        row_bound=1.0,
    )


def squared(num_records=200, dim=3, *, domain=None, seed=1, response_bound=1.0):
    rows, _ = rows_and_labels(num_records, dim, seed)
    rng = np.random.default_rng(seed + 1)
    response = np.clip(rng.standard_normal(num_records), -1.0, 1.0) * response_bound
    return Problem(
        rows,
        response,
        loss=dps.losses.Squared(),
        domain=domain or dps.domains.Ball(2.0),
        row_bound=1.0,
        response_bound=response_bound,
    )


def logistic_gradients(rows, labels, w):
    """Gradients of all records, shape (num_records, dim)."""
    slopes = -labels / (1.0 + np.exp(labels * (rows @ w)))
    return slopes[:, None] * rows


def clipped(gradients, threshold):
    sizes = np.linalg.norm(gradients, axis=1)
    factors = np.minimum(1.0, threshold / np.maximum(sizes, 1e-300))
    return factors[:, None] * gradients


def into_ball(w, radius, center=0.0):
    far = np.linalg.norm(w - center)
    return w if far <= radius else center + (w - center) * radius / far


def batch(batches, num_records, t, rng, block=4):
    """Record numbers of step t, read in blocks."""
    numbers = batches.numbers(num_records, np.random.default_rng(5))
    rows, found = np.zeros(block, dtype=np.int64), []
    cursor = START
    while True:
        count, cursor = batches.piece(numbers, rng, t, cursor, rows)
        if count == 0:
            return found
        found += rows[:count].tolist()
