# mypy: allow-untyped-defs
"""The loop that every gradient-based algorithm shares, compiled once.

Step t: batch -> estimate -> perturb -> advance -> average, by the C functions of
`pieces`. `Arguments` are what the kernels read of a problem and a recipe, the same for
every run.

Records on disk are read in *windows* of consecutive records. A step over all records
pauses at the end of a window and continues in the next one. Its blocks are the same as
for records in memory, so its sums have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array, RecordArray
from dpsample.core.jit import kernel, pointer
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import PROJECT
from dpsample.losses import Loss
from dpsample.losses.record_gradient import loop_pointers
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.batches import Full
from dpsample.optimizers.loop.contributions import FAR, slope_limits
from dpsample.optimizers.loop.estimate import (
    AT_END,
    CURSOR,
    IN_ESTIMATE,
    OUTCOME,
    estimate,
)
from dpsample.optimizers.loop.estimators import Estimator, LimitedMean, RecordLimits
from dpsample.optimizers.loop.optimizer import Loop, Minimization, Phase, Recipe
from dpsample.optimizers.loop.pieces import (
    BLOCK,
    CompiledGradient,
    CompiledPhase,
    FeasibleSet,
    LossFunctions,
    Memory,
)
from dpsample.optimizers.loop.scaled import HELD_BACK, SUM
from dpsample.problem.problem import Problem
from dpsample.problem.records import Data
from dpsample.problem.storage import MemoryStorage, RecordStorage
from dpsample.targets.gibbs import as_rows

# Batches of all records draw nothing.
NO_DRAWS = np.random.default_rng(0)


@kernel
def descend(data, loss, feasible, phase, memory, rng, start, stop):
    """Take steps ``start``, ..., ``stop - 1`` of a phase, or fewer if a pause is due.

    Returns the step that comes next, perhaps one that has begun, or -1 if a loss
    failed. References are counted here, not in each step.
    """
    return take_steps(data, loss, feasible, phase, memory, rng, start, stop)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def take_steps(data, loss, feasible, phase, memory, rng, start, stop):
    """Take steps as `descend`; return the step that comes next, or -1."""
    noise, step, average = phase.noise, phase.step, phase.average
    num_steps = phase.num_steps
    for t in range(start, stop):
        point = memory.middle if phase.reads_middle else memory.theta
        outcome = estimate(data, loss, phase, t, point, memory, rng)
        # The memory holds the position in the estimate, from which step t goes on.
        if outcome == PAUSED:
            return t
        if outcome == OUTCOME.failed:
            return -1
        noise.perturb(noise.numbers, rng, memory.scratch, memory.gradient)
        step.advance(feasible, step.numbers, t, num_steps, memory, rng)
        average.average(feasible, average.numbers, t, num_steps, memory)
        if is_due(memory.control[0]):
            return t + 1
    return stop


class _SharedArguments:
    """Arguments that all recipes share for one problem, computed once."""

    def __init__(self, problem: Problem) -> None:
        self.storage, self.facts = problem.storage, problem.facts
        self.body = problem.domain.body(problem.dim)
        self.project = pointer(problem.domain.project_piece, PROJECT)
        self.loss = LossFunctions(*loop_pointers(problem.loss))
        self.norms: dict[float, Array] = {}  # norms of the rows, by exponent


_shared_by_problem: WeakKeyDictionary[Problem, _SharedArguments] = WeakKeyDictionary()


def _shared_arguments(problem: Problem) -> _SharedArguments:
    """Return the arguments of a problem, from the cache if its records are the same."""
    shared = _shared_by_problem.get(problem)
    if (
        shared is None
        or shared.storage is not problem.storage
        or shared.facts is not problem.facts
    ):
        shared = _shared_by_problem[problem] = _SharedArguments(problem)
    return shared


class Arguments:
    """Records, domain and C functions of a run, which threads share and never change.

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
        self.storage, self.entry_bound = problem.storage, recipe.entry_bound
        self.is_in_memory = isinstance(
            self.storage, MemoryStorage
        ) or not reads_all_in_order(recipe)
        self.loss_params: Array | None = None  # the problem's own
        if self.is_in_memory:
            self.data = _clip_entries(problem.data, recipe.entry_bound)
        # In a private run no record may end the run: estimates are *total*, which means
        # that a failing loss counts as 0, and points stay within `FAR`.
        shared, self.is_total = _shared_arguments(problem), recipe.is_noisy
        reach = FAR if self.is_total else math.inf
        self.feasible, self.loss = (
            FeasibleSet(shared.body, shared.project, reach),
            shared.loss,
        )
        self._has_margins = problem.loss.has_margin
        estimators = [phase.estimator for phase in recipe.phases]
        exponents = {e.q for e in estimators if e.needs_norms}
        # Norms of clipped rows are this recipe's own. Others are shared by all recipes.
        self._norms = shared.norms if math.isinf(recipe.entry_bound) else {}
        for q in exponents - self._norms.keys():
            parts = self.storage.map(_row_norms, q, recipe.entry_bound)
            self._norms[q] = np.concatenate(list(parts))
        self._limits: dict[tuple[float, float], Array] = {}
        # What the runs of a phase share, so that it is laid out for kernels once.
        self._phases: dict[Loop, partial[CompiledPhase]] = {}
        self._gradients: dict[Minimization, CompiledGradient] = {}
        self._slope_bound = problem.facts.slope_bound
        others = (getattr(phase, "boundary_loss", None) for phase in recipe.phases)
        loss: Loss | None = next(filter(None, others), None)
        self._at_boundary = None if loss is None else self._with_loss(loss)
        self.num_buckets = max((e.num_sums for e in estimators), default=1)

    def _with_loss(self, loss: Loss) -> Arguments:
        """Return the same arguments for another loss of the margins."""
        arguments = copy(self)
        arguments.loss_params = loss.params
        arguments.loss = self.loss._replace(slope=loss.slope_pointer)
        if self.is_in_memory:
            arguments.data = self.data._replace(loss_params=loss.params)
        return arguments

    def now(self, memory: Memory) -> Arguments:
        """Return the arguments of a stage of a scaled descent (see `scaled`).

        They have the ``boundary_loss`` if there is one and the domain has held the
        descent back.
        """
        # Largest factor by which the scaled iterate would have left the domain.
        is_held = memory.scale[SUM.outside] >= HELD_BACK
        return self._at_boundary if is_held and self._at_boundary else self

    def phase(self, loop: Loop, rng: np.random.Generator) -> CompiledPhase:
        """Return one loop as its kernel reads it."""
        num_records = self.storage.num_records
        if loop not in self._phases:
            limits = self._records(loop.estimator)
            self._phases[loop] = loop.compile(num_records, limits, dim=self.dim)
        return self._phases[loop](batches=loop.batches.compile(num_records, rng))

    def gradient(self, phase: Minimization) -> CompiledGradient:
        """Return the records and the estimator of a phase as kernels read them."""
        if phase not in self._gradients:
            num_records = self.storage.num_records
            batches = Full(first=phase.first, last=phase.last)
            self._gradients[phase] = CompiledGradient(
                batches=batches.compile(num_records, NO_DRAWS),
                estimator=phase.estimator.compile(
                    self._records(phase.estimator), batches.mean_size(num_records)
                ),
            )
        return self._gradients[phase]

    def windows(self, pieces: CompiledPhase | CompiledGradient) -> Windows | None:
        """Return the windows of records that are not in memory, None if they are."""
        if self.is_in_memory:
            return None
        clip = partial(_clip_entries, bound=self.entry_bound, params=self.loss_params)
        return Windows(self.storage, pieces, clip)

    def _records(self, estimator: Estimator) -> RecordLimits:
        """Return the bounds of the records for an estimator."""
        return RecordLimits(
            norms=self._norms.get(estimator.q, np.empty(0)),
            limits=self._limits_of(estimator),
            slope_bound=self._slope_bound,
            is_total=self.is_total,
            has_margins=self._has_margins,
        )

    def _limits_of(self, estimator: Estimator) -> Array:
        """Return the largest slope of every record, or an empty array without limits.

        It is computed once for all phases of one threshold.
        """
        if not isinstance(estimator, LimitedMean):
            return np.empty(0)
        key = (estimator.q, float(estimator.threshold))
        if key not in self._limits:
            norms = self._norms[estimator.q]
            self._limits[key] = slope_limits(norms, key[1], self.storage.dim)
        return self._limits[key]


def _row_norms(data: Data, exponent: float, entry_bound: float) -> Array:
    """Return the norms of the rows after their entries are clipped.

    They are infinite where they overflow.
    """
    data = _clip_entries(data, entry_bound)
    with np.errstate(over="ignore"):  # a warning would reveal something about a record
        return np.ascontiguousarray(norm(as_rows(data), exponent), dtype=np.float64)


def _clip_entries(data: Data, bound: float, params: Array | None = None) -> Data:
    """Clip every entry to [-bound, bound].

    ``params`` are the numbers of another loss, which replace the problem's.
    """
    if params is not None:
        data = data._replace(loss_params=params)
    if math.isinf(bound):
        return data
    names = ("dense", "values", "response")
    entries = {name: np.clip(getattr(data, name), -bound, bound) for name in names}
    return data._replace(**entries)


def reads_all_in_order(recipe: Recipe) -> bool:
    """Return whether each step reads all records of its phase, in order."""
    return all(_reads_in_order(phase) for phase in recipe.phases)


def _reads_in_order(phase: Phase) -> bool:
    """Return whether a phase reads all of its records, in order."""
    if isinstance(phase, Loop):
        return isinstance(phase.batches, Full)
    if isinstance(phase, Minimization):
        return phase.solver != "svrg"
    return phase.reads_in_order


class Windows:
    """Calls of kernels that read a phase's records window by window.

    ``pieces`` are the phase's batches and estimator. ``clip`` clips the records of a
    window.
    """

    def __init__(
        self,
        storage: RecordStorage,
        pieces: CompiledPhase | CompiledGradient,
        clip: Callable[[Data], Data],
    ) -> None:
        self.storage, self.pieces, self.clip = storage, pieces, clip
        self.parts = self._parts()
        # Window in which a step was interrupted by a pause, None between two windows.
        self.unfinished: tuple[Data, Any] | None = None

    def _parts(self) -> Iterator[tuple[Data, Any]]:
        """Yield the windows of one step.

        Each has its records, and pieces that count records from its first one.
        """
        batches, estimator = self.pieces.batches, self.pieces.estimator
        for start, part in self.storage.windows(batches.first, batches.last, BLOCK):
            stop = start + part.num_records
            # The kernel sees a batch of all records of the window. The flag says that
            # the sum over the batch is not complete, so that it is not divided yet.
            local = Full(last=stop - start).compile(stop - start, NO_DRAWS)
            yield (
                self.clip(part),
                self.pieces._replace(
                    batches=local._replace(is_partial=int(stop < batches.last)),
                    estimator=estimator.with_records(start, stop),
                ),
            )

    def call(
        self, control: RecordArray, kernel: Callable[..., int], fixed: Any, *rest: Any
    ) -> int:
        """Call a kernel for one step, until it ends or a pause is due.

        The kernel returns in the middle of an estimate at a pause, and at the end of a
        window (`AT_END`). In the latter case it is called again with the next window.
        """
        while True:
            if self.unfinished is None:
                self.unfinished = next(self.parts)
            data, pieces = self.unfinished
            outcome = pauses.call(control, kernel, data, *fixed, pieces, *rest)
            is_in_estimate = control["stage"][0] == IN_ESTIMATE
            saved = control["saved"][0]
            if is_in_estimate and saved[CURSOR] != AT_END:
                return outcome
            self.unfinished = None
            if not is_in_estimate:  # the step is done, so the next one begins again
                self.parts = self._parts()
                return outcome
            saved[CURSOR] = 0.0
            pauses.notify_listeners()
