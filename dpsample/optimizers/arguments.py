"""What the kernels read of a problem and a recipe: the same for every run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import pointer
from dpsample.domains import PROJECT
from dpsample.losses.record_gradient import loop_pointers
from dpsample.optimizers.estimators import BucketedMedian
from dpsample.optimizers.loop import LoopPieces
from dpsample.optimizers.optimizer import Recipe
from dpsample.optimizers.phase import Loop, Numbers, row_norms
from dpsample.problem import Problem
from dpsample.records import Data

Array = NDArray[np.float64]


class Arguments:
    """Records, domain and C functions; threads share them, nobody writes to them.

    Parameters
    ----------
    problem : Problem
        The records.
    recipe : Recipe
        The phases; checked against the problem's public facts.
    """

    def __init__(self, problem: Problem, recipe: Recipe) -> None:
        recipe.check(problem.facts)
        self.dim = problem.dim
        self.data = _clipped(problem.data, recipe.entry_bound)
        self.body = problem.domain.body(problem.dim)
        slope, gradient, takes_records = loop_pointers(problem.loss)
        self.pieces = LoopPieces(
            loss_slope=slope,
            project=pointer(problem.domain.project_piece, PROJECT),
            record_gradient=gradient,
            takes_records=takes_records,
        )
        estimators = [phase.estimator for phase in recipe.phases]
        exponents = {e.q for e in estimators if e.needs_norms}
        self._norms = {q: row_norms(self.data, q) for q in exponents}
        buckets = [e.num_buckets for e in estimators if isinstance(e, BucketedMedian)]
        self.num_buckets = max(buckets, default=1)

    def numbers(self, loop: Loop, rng: np.random.Generator) -> Numbers:
        """One loop as the kernel reads it."""
        norms = self._norms.get(loop.estimator.q, np.empty(0))
        return loop.numbers(self.data, norms, rng, dim=self.dim)


def _clipped(data: Data, entry_bound: float) -> Data:
    """Clip every entry to [-entry_bound, entry_bound]."""
    if math.isinf(entry_bound):
        return data
    names = ("dense", "values", "response")
    entries = {
        name: np.clip(getattr(data, name), -entry_bound, entry_bound) for name in names
    }
    return data._replace(**entries)
