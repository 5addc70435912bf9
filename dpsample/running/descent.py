"""Driver of gradient-based algorithms: it runs the phases of a recipe.

The *recipe* of an optimizer has the phases of its run with their noise, for the public
facts of one problem. A run with noise is *total*: a loss that fails counts as 0, and
points stay below `FAR` in size, so that no record can end the run.

A `Program` is a recipe on the records of one problem. It is built once. Each run has
its own memory and stream, so that threads can run it at the same time. A phase is a
`Loop` of gradient steps, a `Minimization` to a certified accuracy, or a `Query` with a
noisy answer. Compiled loops return after each *chunk* of steps, of about 30 ms, so that
Python can look for Ctrl-C and show progress.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.pauses import ChunkSize
from dpsample.noise.noise import add_gaussian, add_laplace, grid_step
from dpsample.optimizers.loop.contributions import FAR
from dpsample.optimizers.loop.estimate import OUTCOME
from dpsample.optimizers.loop.iterate_errors import (
    counted_scale,
    counted_stddev,
    solver_precision,
)
from dpsample.optimizers.loop.loop import Arguments, descend
from dpsample.optimizers.loop.optimizer import (
    Descent,
    Loop,
    Minimization,
    Query,
    Recipe,
)
from dpsample.optimizers.loop.pieces import (
    CompiledGradient,
    Memory,
    clear_memory,
    new_memory,
)
from dpsample.optimizers.loop.solve import (
    METHOD,
    TiltedObjective,
    enough_steps,
    fill_norm_tilt,
    fill_tilt,
    solve,
)
from dpsample.optimizers.loop.steps import AcceleratedStep
from dpsample.problem.problem import Problem

Pulse = Callable[[int], None]
MAX_SOLVER_STEPS = 1_000_000
MAX_EPOCHS = 10_000  # epochs of SVRG, each of at least a hundred steps
# An epoch multiplies the error by 0.834 on average. This is twice the number of epochs
# that a factor of e needs.
EPOCHS_PER_LOG = 11.0
# Maximum size of the bucket sums of memory that is kept for the next run.
MAX_SPARE_SIZE = 10_000
LOSS_FAILED = (
    "The loss raised, or it or its gradient was NaN or infinite, at a point of the run."
)
DIVERGED = "The iterates overflowed. Take shorter steps, or bound the domain."


class DescentError(RuntimeError):
    """A loss failed, or a solver could not certify its target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DescentRun:
    """Result of a run, and its number of gradients."""

    theta: Array
    num_gradients: int
    trace: tuple[tuple[int, Array], ...]  # (gradients so far, point)


@dataclass(kw_only=True, eq=False)
class _State:
    """Memory, stream and counts of one run."""

    memory: Memory
    rng: np.random.Generator
    on_chunk: Pulse
    num_points: int
    done: int = 0
    trace: list[tuple[int, Array]] = field(default_factory=list)

    def advance(self, num_steps: int) -> None:
        """Count steps and call the observer, which may raise."""
        self.done += num_steps
        self.on_chunk(self.done)


class Program:
    """A recipe on the records of a problem, ready for any number of runs.

    The phases are checked against the problem's public facts.
    """

    def __init__(self, problem: Problem, recipe: Recipe) -> None:
        self.problem, self.recipe = problem, recipe
        self.arguments = Arguments(problem, recipe)
        # One run adapts the sizes for the next. The results do not depend on them.
        self.chunks = [ChunkSize() for _ in recipe.phases]
        # Memory of runs that have ended, one for each thread at most. To lay it out for
        # kernels takes as long as several steps. Large ones would stay as long as the
        # program does, and are made anew.
        self._spare: list[Memory] = []
        size = problem.dim * self.arguments.num_buckets
        self._keeps_memory = size <= MAX_SPARE_SIZE

    @property
    def num_steps(self) -> int:
        """Number of steps of all loops. A minimization counts as one."""
        return sum(
            phase.num_steps if isinstance(phase, Loop) else 1
            for phase in self.recipe.phases
        )

    def run(
        self,
        rng: np.random.Generator,
        *,
        num_points: int = 0,
        on_chunk: Pulse = lambda done: None,
    ) -> DescentRun:
        """Run all phases with ``rng`` as the source of batches and noise.

        ``num_points`` of each loop are kept in the trace, which is not private, unlike
        the output. ``on_chunk`` is called with the number of steps done, every 20 to 50
        ms, and its errors end the run. A `DescentError` is raised if the output has
        overflowed, and without noise also if the loss fails or a solver gives up. With
        noise the values of a record never end a run.
        """
        problem, recipe = self.problem, self.recipe
        memory = self._take_memory()
        state = _State(memory=memory, rng=rng, on_chunk=on_chunk, num_points=num_points)
        start = problem.facts.center if recipe.start is None else recipe.start
        theta = released = start.copy()
        for phase, chunk in zip(recipe.phases, self.chunks, strict=True):
            memory.theta[:] = theta
            if not phase.keeps_ball:
                memory.ball_center[:] = theta
            if isinstance(phase, Loop):
                theta = self._loop(phase, state, chunk)
            elif isinstance(phase, Query):
                theta = phase.answer_at(problem, state.rng, theta, memory.anchor)
                memory.counts[0] += problem.num_records
                state.advance(1)
            else:
                theta = self._minimization(phase, state, chunk)
            if not isinstance(phase, Query):
                theta = self._with_output_noise(phase, theta, released, state)
            if max(phase.output_stddev, phase.output_scale) > 0.0:
                released = theta
            if num_points and not (isinstance(phase, Loop) and not phase.output_stddev):
                state.trace.append((int(memory.counts[0]), theta.copy()))
        # The output is private, so this error may depend on it. Points of total runs
        # are kept below `FAR`, 1e300, so a larger one has overflowed.
        if not (np.abs(theta) < FAR).all():
            raise DescentError(DIVERGED)
        run = DescentRun(
            theta=theta, num_gradients=int(memory.counts[0]), trace=tuple(state.trace)
        )
        if self._keeps_memory:
            clear_memory(memory)
            self._spare.append(memory)
        return run

    def _take_memory(self) -> Memory:
        """Return the memory of an earlier run, filled with zeros, or a new one."""
        try:
            return self._spare.pop()
        except IndexError:
            return new_memory(self.problem.dim, self.arguments.num_buckets)

    def _with_output_noise(
        self, phase: Descent, theta: Array, released: Array, state: _State
    ) -> Array:
        """Add the phase's noise to its move from a point that is public or released.

        The generator of noise covers numbers up to 2^41 standard deviations. These are
        small in late phases, and a move is smaller than a point.
        """
        if not (self.arguments.is_total or np.isfinite(theta).all()):
            raise DescentError(DIVERGED)
        noisy, anchor = theta - released, state.memory.anchor
        if isinstance(phase, Minimization) and phase.output_scale > 0.0:
            scale = counted_scale(self.problem.facts, phase, anchor, released)
            add_laplace(state.rng, scale, grid_step(scale), noisy)
        elif phase.output_stddev > 0.0:
            stddev = counted_stddev(self.problem.facts, phase, anchor, released)
            add_gaussian(state.rng, stddev, grid_step(stddev), noisy)
        else:
            return theta
        point = self.problem.domain.project(released + noisy)
        has_point = np.isfinite(point).all()
        return point if has_point else self.problem.facts.center.copy()

    def _loop(self, phase: Loop, state: _State, chunk: ChunkSize) -> Array:
        """Run a gradient loop from memory.theta."""
        memory = state.memory
        memory.aggregate[:] = memory.middle[:] = memory.theta
        if not phase.keeps_anchor:
            memory.anchor[:] = memory.theta
        memory.average[:] = 0.0
        arguments = self.arguments.now(memory)
        pieces = arguments.phase(phase, state.rng)
        # The trace has points at equal distances.
        stops = np.linspace(0, phase.num_steps, state.num_points + 2).astype(int)[1:]
        fixed = arguments.loss, arguments.feasible
        # Windows are chunks of records that are read one after the other. They are
        # empty if all records are in memory.
        windows = arguments.windows(pieces)
        start = 0
        # A loop with fewer steps has fewer points.
        for stop in np.unique(stops[stops > 0]):
            while start < stop:
                end = int(min(start + (1 if windows else chunk.size), stop))
                begin = time.perf_counter()
                run_arguments = memory, state.rng, start, end
                # Records that are not in memory come in windows, one step at a time.
                if windows:
                    reached = windows.call(
                        memory.control, descend, fixed, *run_arguments
                    )
                else:
                    problem_arguments = arguments.data, *fixed, pieces
                    reached = pauses.call(
                        memory.control, descend, *problem_arguments, *run_arguments
                    )
                if reached < 0:
                    raise DescentError(LOSS_FAILED)
                # A chunk that a pause or the end has shortened shows no time.
                if reached - start == chunk.size:
                    chunk.update(time.perf_counter() - begin)
                state.advance(reached - start)
                start = reached
            if state.num_points:
                point = _output(phase, memory, start)
                state.trace.append((int(memory.counts[0]), point))
        return _output(phase, memory, phase.num_steps)

    def _minimization(
        self, phase: Minimization, state: _State, chunk: ChunkSize
    ) -> Array:
        """Minimize a strongly convex objective to a certified accuracy."""
        memory, dim = state.memory, self.problem.dim
        memory.anchor[:] = memory.theta
        gradient = self.arguments.gradient(phase)
        count = gradient.batches.last - gradient.batches.first
        tilt, precision = np.zeros(dim), solver_precision(self.problem.facts, phase)
        if phase.tilt_stddev > 0.0:
            fill_tilt(state.rng, phase.tilt_stddev / count, tilt)
        elif phase.tilt_scale > 0.0:
            longest = phase.max_tilt / count
            fill_norm_tilt(state.rng, phase.tilt_scale / count, longest, tilt)
        objective = TiltedObjective(
            tilt=tilt,
            center=memory.theta.copy() if phase.is_anchored else np.zeros(dim),
            ridge=float(phase.ridge),
            smoothness=precision.smoothness,
            gap=precision.gap,
            local_radius=float(phase.local_radius),
        )
        is_total = self.arguments.is_total
        if phase.solver == "svrg":
            limit = MAX_EPOCHS
            if is_total:
                root = math.sqrt(objective.ridge / objective.smoothness)
                epochs = EPOCHS_PER_LOG * root
                epochs *= self._enough_steps(phase, objective, memory)
                limit = min(limit, math.ceil(epochs))
            # With noise a solver that gives up is followed by one with a proof.
            by_epochs = objective._replace(method=METHOD.svrg)
            if self._solve(by_epochs, limit, gradient, state, chunk):
                return memory.theta.copy()
        if phase.solver != "svrg" or is_total:
            limit = MAX_SOLVER_STEPS
            if is_total:
                limit = self._enough_steps(phase, objective, memory)
            if self._solve(objective, limit, gradient, state, chunk):
                return memory.theta.copy()
        if not is_total:
            raise DescentError(
                "The solver could not certify its accuracy: the gap is below what "
                "floating point resolves, or the declared smoothness does not hold. "
                "Ask for a larger gap or ridge."
            )
        if precision.num_steps:
            contraction = objective._replace(method=METHOD.contraction)
            self._solve(contraction, precision.num_steps, gradient, state, chunk)
        state.advance(1)  # the number of steps is the proof
        return memory.theta.copy()

    def _solve(
        self,
        objective: TiltedObjective,
        limit: int,
        gradient: CompiledGradient,
        state: _State,
        chunk: ChunkSize,
    ) -> bool:
        """Take up to ``limit`` steps. Return whether the gap is certified."""
        fixed = self.arguments.loss, self.arguments.feasible
        windows = self.arguments.windows(gradient)
        control, step, begin = state.memory.control, 0, time.perf_counter()
        while step < limit:
            end = min(step + (1 if windows else chunk.size), limit)
            run_arguments = objective, state.memory, state.rng, step, end
            if windows:
                outcome = windows.call(control, solve, fixed, *run_arguments)
            else:
                problem_arguments = self.arguments.data, *fixed, gradient
                outcome = pauses.call(
                    control, solve, *problem_arguments, *run_arguments
                )
            state.advance(0)
            if outcome == pauses.PAUSED:
                continue
            # The time includes pauses. Without them chunks would grow.
            if outcome == OUTCOME.running:
                chunk.update(time.perf_counter() - begin)
            step, begin = end, time.perf_counter()
            if outcome == OUTCOME.failed:
                raise DescentError(LOSS_FAILED)
            if outcome == OUTCOME.certified:
                state.advance(1)
                return True
        return False

    def _enough_steps(
        self, phase: Minimization, objective: TiltedObjective, memory: Memory
    ) -> int:
        """Return a number of steps that proves the gap, or else the maximum."""
        bound = phase.estimator.record_bound(self.problem.dim)
        if math.isinf(bound):
            return MAX_SOLVER_STEPS
        # A start outside the local ball is projected, which moves it at most to the
        # center.
        has_ball = math.isfinite(phase.local_radius)
        ball_center = memory.ball_center if has_ball else None
        return enough_steps(objective, bound, memory.theta, ball_center)


def _output(phase: Loop, memory: Memory, num_steps: int) -> Array:
    """Return the output of a loop after some steps."""
    if phase.weights is not None:
        return np.asarray(memory.average / phase.weight_of(num_steps))
    if isinstance(phase.step, AcceleratedStep):
        return memory.aggregate.copy()
    return memory.theta.copy()
