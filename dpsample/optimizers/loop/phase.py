"""What one phase of an algorithm does: a gradient loop, or a certified minimization.

A loop is one choice in each of five slots: batches, estimator, noise, step, average.
Slots hold small frozen specs; `numbers_of` turns them into one NamedTuple, the same
compiled type for every algorithm, so the loop compiles once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.batches import Batches, Full, Poisson, Slices
from dpsample.optimizers.loop.contributions import FAR
from dpsample.optimizers.loop.estimators import (
    ClippedMean,
    Estimator,
    Mean,
    RecordLimits,
)
from dpsample.optimizers.loop.perturbations import NoNoise, Perturbation
from dpsample.optimizers.loop.steps import FrankWolfeStep, Step
from dpsample.problem.records import Data
from dpsample.targets.gibbs import as_rows

# Smaller noise is lost among the numbers below it.
LEAST_NOISE = 1e-300

EQUAL_WEIGHTS = np.ones(1)  # of all iterates


class PhaseNumbers(NamedTuple):
    """One loop as the kernel reads it."""

    batches: Any
    estimator: Any
    noise: Any
    step: Any
    weights: Array  # of the iterates after each step, or one; empty: the last iterate
    num_steps: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Loop:
    """A gradient loop: estimate, perturb, advance, average.

    Parameters
    ----------
    num_steps : int
        Steps of the loop.
    step : Step
        How the iterate moves.
    batches : Batches
        Which records each step reads.
    estimator : Estimator
        How their gradients become one vector.
    noise : Perturbation
        What is added to it.
    weights : ndarray of shape (num_steps,) or (1,), optional
        Weights of w_1, ..., w_T in the output, which they are divided by the sum of;
        one for all is `EQUAL_WEIGHTS`, of which no long list is made; None: the last
        iterate (the aggregate of accelerated steps).
    output_stddev : float
        Gaussian noise of the output; a constrained output is projected afterwards.
    keeps_ball : bool
        Whether the local ball stays where the previous phase had it.
    """

    num_steps: int
    step: Step
    batches: Batches = field(default_factory=Full)
    estimator: Estimator = field(default_factory=Mean)
    noise: Perturbation = field(default_factory=NoNoise)
    weights: Array | None = None
    output_stddev: float = 0.0
    keeps_ball: bool = False

    def numbers(
        self, data: Data, records: RecordLimits, rng: np.random.Generator, *, dim: int
    ) -> PhaseNumbers:
        """Return what the kernel reads."""
        batches = self.batches.numbers(data.num_records, rng)
        weights = np.empty(0) if self.weights is None else self.weights
        reach = FAR if records.is_total else math.inf
        return PhaseNumbers(
            batches=batches,
            estimator=self.estimator.numbers(records, self.divisor(batches)),
            noise=self.noise.numbers(),
            step=self.step.numbers(dim)._replace(reach=reach),
            weights=np.array(weights, dtype=np.float64),
            num_steps=int(self.num_steps),
        )

    def weight_of(self, num_steps: int) -> float:
        """Sum of the weights of the first steps."""
        assert self.weights is not None
        if np.size(self.weights) == 1:
            return float(num_steps * self.weights[0])
        return float(self.weights[:num_steps].sum())

    def check(self) -> None:
        """Check the numbers that no spec has checked."""
        check.integer(1, num_steps=self.num_steps)
        check.non_negative(output_stddev=self.output_stddev)
        if self.weights is not None:
            shape = (1,) if np.size(self.weights) == 1 else (self.num_steps,)
            weights = check.array("weights", self.weights, shape=shape)
            if not (weights >= 0.0).all() or weights[0] == 0.0:
                # The mean of the first steps, which a trace shows, divides by them.
                check.fail("weights", ">= 0, the first of them > 0", weights)
        sizes = np.size(getattr(self.step, "sizes", 1.0))
        if sizes not in (1, self.num_steps):
            check.fail("sizes", f"of length 1 or {self.num_steps}", f"length {sizes}")

    @property
    def is_noisy(self) -> bool:
        """Whether a step, a choice of a vertex or the output is perturbed."""
        if isinstance(self.step, FrankWolfeStep):
            return math.isfinite(self.step.selection)
        is_perturbed = float(self.noise.numbers().scale) >= LEAST_NOISE
        return is_perturbed or self.output_stddev >= LEAST_NOISE

    def check_fits(self, num_records: int) -> None:
        """Fail unless every batch lies within the records."""
        batches = self.batches
        _check_range(batches.first, batches.last, num_records)
        last = num_records if batches.last is None else batches.last
        if isinstance(batches, Slices):
            read = batches.size * self.num_steps
            if read > last - batches.first:
                given = f"<= {last - batches.first} records of the phase"
                check.fail("num_steps * size", given, read)

    def divisor(self, batches: Any) -> float:
        """Public constant by which sums over a batch are divided."""
        if isinstance(self.batches, Poisson):
            return float(batches.rate * (batches.last - batches.first))
        return float(batches.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimization:
    """Certified minimization of a strongly convex objective.

    J(w) = mean loss + <G, w>/n + ridge/2 |w - anchor|^2 over the domain, cut by the
    local ball, G ~ N(0, tilt_stddev^2 I); the anchor is 0 or the start of the phase.

    Parameters
    ----------
    ridge : float
        Strength, > 0.
    smoothness : float
        Public bound of the curvature of one record's (clipped) loss.
    gap : float
        J(w) - min J <= gap holds on every data set, by the certificate of the solver.
    first, last : int
        Records of the phase.
    estimator : Estimator
        `Mean` or `ClippedMean`, which is the gradient of another convex loss.
    tilt_stddev : float
        Noise of the linear term.
    is_anchored : bool
        Whether the ridge is centered at the start of the phase instead of 0.
    local_radius : float
        Radius of the l2 ball about the start.
    output_stddev : float
        Gaussian noise of the output, which is then projected on the domain.
    keeps_ball : bool
        Whether the local ball stays where the previous phase had it.
    solver : {"accelerated", "svrg"}
        Accelerated projected gradients, or projected SVRG.
    """

    ridge: float
    smoothness: float
    gap: float
    first: int = 0
    last: int | None = None
    estimator: Estimator = field(default_factory=Mean)
    tilt_stddev: float = 0.0
    is_anchored: bool = False
    local_radius: float = math.inf
    output_stddev: float = 0.0
    keeps_ball: bool = False
    solver: str = "accelerated"

    def check(self) -> None:
        """Check the numbers."""
        check.one_of(("accelerated", "svrg"), solver=self.solver)
        check.positive(ridge=self.ridge, gap=self.gap)
        check.non_negative(
            smoothness=self.smoothness,
            tilt_stddev=self.tilt_stddev,
            output_stddev=self.output_stddev,
        )
        check.at_least(0.0, local_radius=self.local_radius)
        check.instance((Mean, ClippedMean), estimator=self.estimator)

    @property
    def is_noisy(self) -> bool:
        """Whether the objective or the output is perturbed."""
        return max(self.tilt_stddev, self.output_stddev) >= LEAST_NOISE

    def check_fits(self, num_records: int) -> None:
        """Fail unless the phase's records exist."""
        _check_range(self.first, self.last, num_records)


def _check_range(first: int, last: int | None, num_records: int) -> None:
    """Fail unless 0 <= first < last <= num_records: kernels do not check indices."""
    end = num_records if last is None else last
    check.integer(0, first=first)
    check.integer(first + 1, last=end)
    if end > num_records:
        check.fail("last", f"<= num_records = {num_records}", end)


Phase = Loop | Minimization


def row_norms(data: Data, exponent: float) -> Array:
    """Norms of the rows, once for all phases of a run; infinite where they overflow."""
    with np.errstate(over="ignore"):  # a warning would tell of a record
        return np.ascontiguousarray(norm(as_rows(data), exponent), dtype=np.float64)
