"""Records whose gradients are given vectors, and one estimate of their mean."""

from __future__ import annotations

import numpy as np

import dpsample as dps
from dpsample.optimizers.loop.batches import Batches, Full
from dpsample.optimizers.loop.estimators import Estimator
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.steps import GradientStep, Step
from tests.support.descents import descend


def vectors_problem(
    vectors: np.ndarray, domain: dps.domains.Domain | None = None
) -> dps.Problem:
    """Problem of linear losses <g_i, theta>: gradients g_i everywhere."""
    rows = -np.asarray(vectors, dtype=float)
    return dps.Problem(
        rows,
        np.ones(len(rows)),
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace() if domain is None else domain,
        row_bound=1.0 + float(np.abs(rows).max()),
        row_norm=np.inf,
    )


def one_step(
    vectors: np.ndarray,
    step: Step,
    *,
    estimator: Estimator | None = None,
    batches: Batches | None = None,
    domain: dps.domains.Domain | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Where one step from 0 leads."""
    slots = {} if estimator is None else {"estimator": estimator}
    loop = Loop(num_steps=1, step=step, batches=batches or Full(), **slots)
    start = np.zeros(np.shape(vectors)[1])
    recipe = Recipe(phases=(loop,), event=None, inputs={}, start=start)
    problem = vectors_problem(vectors, domain)
    return descend(problem, recipe, np.random.default_rng(seed)).theta


def estimate(
    vectors: np.ndarray, estimator: Estimator, **options: object
) -> np.ndarray:
    """Estimate of the mean of the vectors."""
    return -one_step(vectors, GradientStep(1.0), estimator=estimator, **options)
