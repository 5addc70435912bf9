"""What the kernels read of a problem and a recipe: the same for every run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import pointer
from dpsample.domains import PROJECT
from dpsample.losses.record_gradient import loop_pointers
from dpsample.optimizers.clipped_losses import slope_bound_or_inf
from dpsample.optimizers.contributions import slope_limits
from dpsample.optimizers.estimators import BucketedMedian, Estimator, RecordLimits
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
        self._limits: dict[tuple[float, float], Array] = {}
        self._slope_bound = slope_bound_or_inf(problem.facts)
        self.is_total = recipe.is_noisy
        buckets = [e.num_buckets for e in estimators if isinstance(e, BucketedMedian)]
        self.num_buckets = max(buckets, default=1)

    def numbers(self, loop: Loop, rng: np.random.Generator) -> Numbers:
        """One loop as the kernel reads it."""
        records = RecordLimits(
            norms=self._norms.get(loop.estimator.q, np.empty(0)),
            limits=self._limits_of(loop.estimator),
            slope_bound=self._slope_bound,
            is_total=self.is_total,
        )
        return loop.numbers(self.data, records, rng, dim=self.dim)

    def _limits_of(self, estimator: Estimator) -> Array:
        """Largest slope of every record, once for all phases of one threshold."""
        if not estimator.needs_limits:
            return np.empty(0)
        key = (estimator.q, estimator.slope_threshold)
        if key not in self._limits:
            norms = self._norms[estimator.q]
            self._limits[key] = slope_limits(norms, key[1], self.data.dim)
        return self._limits[key]


def _clipped(data: Data, entry_bound: float) -> Data:
    """Clip every entry to [-entry_bound, entry_bound]."""
    if math.isinf(entry_bound):
        return data
    names = ("dense", "values", "response")
    entries = {
        name: np.clip(getattr(data, name), -entry_bound, entry_bound) for name in names
    }
    return data._replace(**entries)
