"""The driver of gradient-based algorithms: phases, trace, interrupt, replicates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import pointer
from dpsample.domains import PROJECT
from dpsample.optimizers.batches import Full
from dpsample.optimizers.estimators import BucketedMedian
from dpsample.optimizers.loop import LoopPieces, Memory, descend, new_memory
from dpsample.optimizers.optimizer import Recipe
from dpsample.optimizers.phase import Loop, Minimization, row_norms
from dpsample.optimizers.solve import Objective, minimize
from dpsample.optimizers.steps import AcceleratedStep, GradientStep
from dpsample.problem import Problem
from dpsample.records import Data

Array = NDArray[np.float64]
MAX_SOLVER_STEPS = 1_000_000


class DescentError(RuntimeError):
    """A loss failed, or a solver could not certify its target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Where a run ended, and what it cost."""

    theta: Array
    num_gradients: int
    trace: tuple[tuple[int, Array], ...]  # (gradients so far, point)


def run(
    problem: Problem,
    recipe: Recipe,
    rng: np.random.Generator,
    *,
    num_points: int = 0,
) -> Run:
    """Run all phases of a recipe.

    Parameters
    ----------
    problem : Problem
        The records.
    recipe : Recipe
        The phases.
    rng : Generator
        Source of batches and noise.
    num_points : int
        Points of each loop that the trace keeps.

    Returns
    -------
    Run
        The private output; its trace is not private.
    """
    work = _Work(problem, recipe)
    trace: list[tuple[int, Array]] = []
    theta = problem.domain.default_center(problem.dim)
    if recipe.start is not None:
        theta = recipe.start.copy()
    for phase in recipe.phases:
        work.memory.theta[:] = theta
        if not phase.keeps_ball:
            work.memory.ball_center[:] = theta
        if isinstance(phase, Loop):
            theta = work.loop(phase, rng, trace, num_points)
        else:
            theta = work.minimization(phase, rng)
        if phase.output_stddev > 0.0:
            theta = theta + phase.output_stddev * rng.standard_normal(problem.dim)
            theta = problem.domain.project(theta)
    return Run(
        theta=theta,
        num_gradients=int(work.memory.counts[0]),
        trace=tuple(trace),
    )


class _Work:
    """Kernel arguments of one run."""

    def __init__(self, problem: Problem, recipe: Recipe) -> None:
        self.problem = problem
        self.data = _clipped(problem.data, recipe.entry_bound)
        self.body = problem.domain.body(problem.dim)
        self.pieces = LoopPieces(
            problem.loss.pointers[1], pointer(problem.domain.project_piece, PROJECT)
        )
        estimators = [phase.estimator for phase in recipe.phases]
        self.norms = {q: row_norms(self.data, q) for q in {e.q for e in estimators}}
        buckets = [e.num_buckets for e in estimators if isinstance(e, BucketedMedian)]
        self.memory: Memory = new_memory(problem.dim, max(buckets, default=1))

    def loop(
        self,
        phase: Loop,
        rng: np.random.Generator,
        trace: list[tuple[int, Array]],
        num_points: int,
    ) -> Array:
        """Run a gradient loop from memory.theta."""
        memory = self.memory
        memory.anchor[:] = memory.aggregate[:] = memory.theta
        memory.average[:] = 0.0
        numbers = phase.numbers(self.data, self.norms[phase.estimator.q], rng)
        stops = np.linspace(0, phase.num_steps, num_points + 2).astype(int)[1:]
        start = 0
        for stop in np.unique(stops):
            if not descend(
                self.data, self.body, self.pieces, numbers, memory, rng, start, stop
            ):
                raise DescentError("The loss failed or returned NaN.")
            start = int(stop)
            if num_points:
                point = _output(phase, memory, start)
                trace.append((int(memory.counts[0]), point))
        return _output(phase, memory, phase.num_steps)

    def minimization(self, phase: Minimization, rng: np.random.Generator) -> Array:
        """Minimize a strongly convex objective to a certified accuracy."""
        memory, dim = self.memory, self.problem.dim
        memory.anchor[:] = memory.theta
        loop = Loop(
            num_steps=1,
            step=GradientStep(1.0, local_radius=phase.local_radius),
            batches=Full(first=phase.first, last=phase.last),
            estimator=phase.estimator,
        ).numbers(self.data, self.norms[phase.estimator.q], rng)
        count = loop.batches.last - loop.batches.first
        center = memory.theta.copy() if phase.is_anchored else np.zeros(dim)
        objective = Objective(
            tilt=phase.tilt_stddev * rng.standard_normal(dim) / count,
            center=center,
            ridge=float(phase.ridge),
            smoothness=float(phase.smoothness + phase.ridge),
            gap=float(phase.gap),
        )
        _, certified = minimize(
            self.data,
            self.body,
            self.pieces,
            loop,
            objective,
            memory,
            rng,
            MAX_SOLVER_STEPS,
        )
        if not certified:
            raise DescentError("The solver could not certify its accuracy.")
        return memory.theta.copy()


def _clipped(data: Data, entry_bound: float) -> Data:
    """Clip every entry to [-entry_bound, entry_bound]."""
    if math.isinf(entry_bound):
        return data
    names = ("dense", "values", "response")
    entries = {
        name: np.clip(getattr(data, name), -entry_bound, entry_bound) for name in names
    }
    return data._replace(**entries)


def _output(phase: Loop, memory: Memory, num_steps: int) -> Array:
    if phase.weights is not None:
        return np.asarray(memory.average / phase.weights[:num_steps].sum())
    if isinstance(phase.step, AcceleratedStep):
        return memory.aggregate.copy()
    return memory.theta.copy()
