# mypy: allow-untyped-defs
"""The loop that every gradient-based algorithm shares, compiled once.

Step t: query point -> gradient estimate -> noise -> move -> average. `Arguments` are
what the kernels read of a problem and a recipe, the same for every run.

A step over all records pauses at the end of a window and goes on in the next one. Its
blocks are those of records in memory, and so are the bits of its sums.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import f8, generator, i8, kernel, pointer, vector
from dpsample.core.pauses import PAUSED, STAGE, is_due, new_control
from dpsample.domains import PROJECT
from dpsample.losses import Loss
from dpsample.losses.record_gradient import loop_pointers
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.advance import MOVES, end_stage, no_end, query_point
from dpsample.optimizers.loop.batches import (
    BLOCK,
    FULL,
    POISSON,
    Full,
    first_cursor,
    first_of_sample,
    next_block,
    next_of_all,
    next_of_sample,
)
from dpsample.optimizers.loop.contributions import BUCKETS, CATONI, slope_limits
from dpsample.optimizers.loop.estimate import (
    AT_END,
    CURSOR,
    FAILED,
    IN_ESTIMATE,
    add_block,
    add_records,
    add_whole,
    central_means,
    estimate,
    no_means,
    no_records,
    slopes_of,
    smooth_slopes,
)
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    Estimator,
    LimitedMean,
    RecordLimits,
)
from dpsample.optimizers.loop.optimizer import Loop, Minimization, PhaseNumbers, Recipe
from dpsample.optimizers.loop.perturbations import (
    gaussian_noise,
    generalized_noise,
    no_noise,
)
from dpsample.optimizers.loop.scaled import HELD_BACK, NUM_SUMS, OUTSIDE
from dpsample.optimizers.loop.steps import SCALED
from dpsample.problem.homes import Home, InMemory
from dpsample.problem.problem import Problem
from dpsample.problem.records import Data
from dpsample.targets.gibbs import as_rows


class LoopPieces(NamedTuple):
    """C functions of a problem, one Numba type for all problems."""

    loss_slope: Any
    project: Any
    record_gradient: Any  # of a loss that is no function of the margin
    takes_records: int  # whether it is one


class Inner(NamedTuple):
    """C functions that those of a block call."""

    slopes: Any
    add: Any


class Moves(NamedTuple):
    """C functions of a phase: what it uses is compiled, and nothing else."""

    inner: Inner
    first: Any
    following: Any
    records: Any
    means: Any
    perturb: Any
    advance: Any
    end: Any


class Memory(NamedTuple):
    """State and scratch memory of one run."""

    theta: Array  # (dim,) the iterate
    aggregate: Array  # (dim,) of accelerated steps
    anchor: Array  # (dim,) start of the phase
    ball_center: Array  # (dim,) of the local ball
    average: Array  # (dim,) weighted sum of the iterates
    first_gradient: Array  # (dim,) sum over the first stage of a scaled descent
    first_point: Array  # (dim,) of the points less the anchor, where those were read
    scale: Array  # (6,) its other sums, see `scaled`
    counts: NDArray[np.int64]  # gradients of single records
    gradient: Array  # from here on scratch, (dim,)
    partial: Array  # sum of one block
    query: Array
    middle: Array
    scratch: Array
    low_dim: Array
    high_dim: Array
    rows: NDArray[np.int64]  # (block,)
    margins: Array
    kept_margins: Array
    slopes: Array
    response: Array
    low: Array
    high: Array
    trial: Array
    buckets: Array  # (num_buckets, dim)
    sorted: Array  # (num_buckets,)
    out: Array  # (1,)
    control: Array  # when to return to Python, see `_pauses`


def new_memory(dim: int, num_buckets: int = 1) -> Memory:
    """Memory of one run, zeros; ``dim`` is that of the parameters."""
    sizes: dict[str, Any] = dict.fromkeys(
        ("rows", "margins", "kept_margins", "slopes", "response"), BLOCK
    )
    sizes |= dict.fromkeys(("low", "high", "trial"), BLOCK)
    sizes |= {"counts": 1, "buckets": (num_buckets, dim), "sorted": num_buckets}
    sizes |= {"out": 1, "scale": NUM_SUMS}
    kinds = {"counts": np.int64, "rows": np.int64}
    arrays = {
        name: np.zeros(sizes.get(name, dim), dtype=kinds.get(name, np.float64))
        for name in Memory._fields
    }
    return Memory(**arrays | {"control": new_control()})


@kernel
def descend(data, body, pieces, phase, memory, rng, start, stop):
    """Take steps ``start``, ..., ``stop - 1`` of a phase, or fewer if a pause is due.

    Returns the step that comes next, perhaps one that has begun, or -1 if a loss
    failed. The references that came
    with the arguments are given back here, not in each step.
    """
    return take_steps(data, body, pieces, phase, memory, rng, start, stop)


@kernel(counts_references=False)
def take_steps(data, body, pieces, phase, memory, rng, start, stop):
    """Take steps as `descend`; return the step that comes next, or -1."""
    for t in range(start, stop):
        point = query_point(
            phase.step, t, memory.theta, memory.aggregate, memory.middle
        )
        outcome = estimate(
            data,
            pieces,
            phase.moves,
            phase.batches,
            phase.estimator,
            t,
            point,
            memory,
            rng,
        )
        if outcome == PAUSED:
            return t
        if outcome == FAILED:
            return -1
        phase.moves.perturb(phase.noise, rng, memory.scratch, memory.gradient)
        is_scaled = phase.step.kind == SCALED
        phase.moves.advance(body, pieces, phase.step, t, phase.num_steps, memory, rng)
        if len(phase.weights) > 0:
            weight = phase.weights[t if len(phase.weights) > 1 else 0]
            for j in range(len(memory.theta)):
                memory.average[j] += weight * memory.theta[j]
        if is_scaled and t == phase.num_steps - 1:
            weight = phase.num_steps * phase.weights[0] if len(phase.weights) else 1.0
            phase.moves.end(body, pieces, phase.step, weight, memory)
        if is_due(memory.control):
            return t + 1
    return stop


@functools.cache
def _memory_type():
    return typeof(new_memory(1))


class _Kept:
    """What all recipes read of one problem, computed once."""

    def __init__(self, problem: Problem) -> None:
        self.home, self.facts = problem.home, problem.facts
        self.body = problem.domain.body(problem.dim)
        slope, gradient, takes_records = loop_pointers(problem.loss)
        self.pieces = LoopPieces(
            loss_slope=slope,
            project=pointer(problem.domain.project_piece, PROJECT),
            record_gradient=gradient,
            takes_records=takes_records,
        )
        self.moves: dict[tuple[Any, ...], Moves] = {}
        self.norms: dict[float, Array] = {}  # of the rows, by exponent


_kept: WeakKeyDictionary[Problem, _Kept] = WeakKeyDictionary()


def _kept_of(problem: Problem) -> _Kept:
    kept = _kept.get(problem)
    if kept is None or kept.home is not problem.home or kept.facts is not problem.facts:
        kept = _kept[problem] = _Kept(problem)
    return kept


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
        self.home, self.entry_bound = problem.home, recipe.entry_bound
        self.is_in_memory = isinstance(self.home, InMemory) or not by_passes(recipe)
        self.loss_params: Array | None = None  # the problem's own
        if self.is_in_memory:
            self.data = _clipped(problem.data, recipe.entry_bound)
        kept = _kept_of(problem)
        self.body, self.pieces, self._known = kept.body, kept.pieces, kept.moves
        estimators = [phase.estimator for phase in recipe.phases]
        exponents = {e.q for e in estimators if e.needs_norms}
        self._norms = kept.norms if math.isinf(recipe.entry_bound) else {}
        for q in exponents - self._norms.keys():
            found = self.home.map(_row_norms, q, recipe.entry_bound)
            self._norms[q] = np.concatenate(list(found))
        self._limits: dict[tuple[float, float], Array] = {}
        self._slope_bound = problem.facts.slope_bound
        self.is_total = recipe.is_noisy
        others = (getattr(phase, "wall_loss", None) for phase in recipe.phases)
        loss: Loss | None = next(filter(None, others), None)
        self._at_wall = None if loss is None else self._with_loss(loss)
        buckets = [e.num_buckets for e in estimators if isinstance(e, BucketedMedian)]
        self.num_buckets = max(buckets, default=1)

    def _with_loss(self, loss: Loss) -> Arguments:
        """Return the same for another loss of the margins."""
        found = copy(self)
        found.loss_params = loss.params
        found.pieces = self.pieces._replace(loss_slope=loss.pointers[1])
        if self.is_in_memory:
            found.data = self.data._replace(loss_params=loss.params)
        return found

    def now(self, memory: Memory) -> Arguments:
        """Return those of a stage: with the other loss if the domain holds it back."""
        is_held = memory.scale[OUTSIDE] >= HELD_BACK
        return self._at_wall if is_held and self._at_wall else self

    def numbers(self, loop: Loop, rng: np.random.Generator) -> PhaseNumbers:
        """One loop as the kernel reads it."""
        records = RecordLimits(
            norms=self._norms.get(loop.estimator.q, np.empty(0)),
            limits=self._limits_of(loop.estimator),
            slope_bound=self._slope_bound,
            is_total=self.is_total,
        )
        numbers = loop.numbers(self.home, records, rng, dim=self.dim)
        key = (
            self.is_in_memory,
            numbers.batches.scheme,
            numbers.estimator.kind,
            numbers.estimator.smoothing > 0.0,
            numbers.noise.kind,
            numbers.step.kind,
        )
        if key not in self._known:
            self._known[key] = self._moves(numbers, rng)
        return numbers._replace(moves=self._known[key])

    def _moves(self, numbers: PhaseNumbers, rng: np.random.Generator) -> Moves:
        data = (
            self.data
            if self.is_in_memory
            else next(iter(self.home.windows(0, 1, BLOCK)))[1]
        )
        kinds = {
            "data": typeof(data),
            "body": typeof(self.body),
            "pieces": typeof(self.pieces),
            "batches": typeof(numbers.batches),
            "estimator": typeof(numbers.estimator),
            "noise": typeof(numbers.noise),
            "step": typeof(numbers.step),
            "memory": _memory_type(),
            "rng": generator,
            "v": vector,
            "i": i8,
            "f": f8,
            "rows": types.int64[::1],
        }

        def made(function, words, returned=types.void):
            return pointer(function, returned(*(kinds[word] for word in words.split())))

        estimator, scheme = numbers.estimator, numbers.batches.scheme
        smooth = smooth_slopes if estimator.smoothing > 0.0 else slopes_of
        add = add_whole if estimator.kind in (BUCKETS, CATONI) else add_block
        block = "batches estimator i memory rng"
        inner = Inner(
            slopes=made(smooth, "data pieces estimator i memory", types.boolean),
            add=made(add, "data " + block),
        )
        kinds["inner"] = typeof(inner)
        noises = no_noise, gaussian_noise, generalized_noise
        is_sample = scheme == POISSON
        records = add_records if self.pieces.takes_records else no_records
        means = central_means if estimator.kind == BUCKETS else no_means
        end = end_stage if numbers.step.kind == SCALED else no_end
        return Moves(
            inner=inner,
            first=made(
                first_of_sample if is_sample else first_cursor, "batches rng i", i8
            ),
            following=made(
                next_of_sample
                if is_sample
                else next_of_all
                if scheme == FULL
                else next_block,
                "batches rng i i rows",
                types.UniTuple(i8, 2),
            ),
            records=made(
                records,
                "data pieces inner batches estimator v i memory rng",
                types.boolean,
            ),
            means=made(means, "estimator memory"),
            perturb=made(noises[numbers.noise.kind], "noise rng v v"),
            advance=made(MOVES[numbers.step.kind], "body pieces step i i memory rng"),
            end=made(end, "body pieces step f memory"),
        )

    def windows(self, numbers: PhaseNumbers) -> Windows | None:
        """Windows of records that are not in memory; None if they are."""
        if self.is_in_memory:
            return None
        clip = partial(_clipped, bound=self.entry_bound, params=self.loss_params)
        return Windows(self.home, numbers, clip)

    def _limits_of(self, estimator: Estimator) -> Array:
        """Largest slope of every record, once for all phases of one threshold."""
        if not isinstance(estimator, LimitedMean):
            return np.empty(0)
        key = (estimator.q, float(estimator.threshold))
        if key not in self._limits:
            norms = self._norms[estimator.q]
            self._limits[key] = slope_limits(norms, key[1], self.home.dim)
        return self._limits[key]


def _row_norms(data: Data, exponent: float, entry_bound: float) -> Array:
    """Norms of the rows, clipped; infinite where they overflow."""
    data = _clipped(data, entry_bound)
    with np.errstate(over="ignore"):  # a warning would tell of a record
        return np.ascontiguousarray(norm(as_rows(data), exponent), dtype=np.float64)


def _clipped(data: Data, bound: float, params: Array | None = None) -> Data:
    """Clip every entry to [-bound, bound]; ``params`` are those of another loss."""
    if params is not None:
        data = data._replace(loss_params=params)
    if math.isinf(bound):
        return data
    names = ("dense", "values", "response")
    entries = {name: np.clip(getattr(data, name), -bound, bound) for name in names}
    return data._replace(**entries)


def by_passes(recipe: Recipe) -> bool:
    """Whether each step reads all records of its phase, in order."""
    return all(
        isinstance(phase.batches, Full)
        if isinstance(phase, Loop)
        else isinstance(phase, Minimization) and phase.solver != "svrg"
        for phase in recipe.phases
    )


class Windows:
    """Calls of kernels that read a phase's records, one step at a time."""

    def __init__(
        self, home: Home, numbers: PhaseNumbers, clip: Callable[[Data], Data]
    ) -> None:
        self.home, self.numbers, self.clip = home, numbers, clip
        self.first, self.last = numbers.batches.first, numbers.batches.last
        self.parts = self._parts()
        self.given: tuple[Data, PhaseNumbers] | None = None

    def _parts(self) -> Iterator[tuple[Data, PhaseNumbers]]:
        """Windows of one step: records, and numbers that count from their first."""
        batches, estimator = self.numbers.batches, self.numbers.estimator
        for start, part in self.home.windows(self.first, self.last, BLOCK):
            stop = start + part.num_records
            is_partial = int(stop < self.last)
            local = batches._replace(first=0, last=stop - start, is_partial=is_partial)
            limits = {
                name: np.ascontiguousarray(getattr(estimator, name)[start:stop])
                for name in ("norms", "limits")
            }
            now = self.numbers._replace(
                batches=local, estimator=estimator._replace(**limits)
            )
            yield self.clip(part), now

    def call(
        self, control: Array, kernel: Callable[..., int], fixed: Any, *rest: Any
    ) -> int:
        """Call a kernel for one step, until it ends or a pause is due."""
        while True:
            if self.given is None:
                self.given = next(self.parts)
            data, numbers = self.given
            outcome = pauses.call(control, kernel, data, *fixed, numbers, *rest)
            if control[STAGE] == IN_ESTIMATE and control[CURSOR] != AT_END:
                return outcome
            self.given = None
            if control[STAGE] != IN_ESTIMATE:
                self.parts = self._parts()
                return outcome
            control[CURSOR] = 0.0
            pauses.heard()
