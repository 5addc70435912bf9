"""Pieces of the loop: their signatures, their numbers, and the memory of a run.

Step t of a loop is

    batch -> estimate -> perturb -> advance -> average,

where each part is a C function of the signature below, so that the loop compiles once
for all algorithms. An algorithm chooses its pieces, and may bring its own in its own
file: a kernel of that signature, and a named tuple, decorated with `by_address`, of
the numbers that only this kernel reads. To the loop all such tuples are `AnyNumbers`,
an address that it passes on. `compile_piece` makes the C function; only what a run uses
is ever compiled.

A piece returns nothing but what its signature says, and raises nothing: an exception in
a C function would be lost.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba import typeof, types
from numba.core.typing.templates import Signature

from dpsample.core.arrays import Array, Ints, RecordArray
from dpsample.core.frames import by_address, declare_kinds, frame_type
from dpsample.core.jit import (
    PieceType,
    Pointer,
    f8,
    generator,
    i8,
    pointer,
    vector,
)
from dpsample.core.pauses import new_control
from dpsample.domains import PROJECT
from dpsample.domains.domain import BODY, Body
from dpsample.losses.loss import LOSS_SLOPE
from dpsample.losses.record_gradient import RECORD_GRADIENT
from dpsample.optimizers.loop.scaled import NUM_SUMS
from dpsample.problem.records import DATA

BLOCK = 1024  # records that are summed before their sum joins that of the others
START = -2  # cursor of a batch of which nothing has been read

# What a piece alone reads, a named tuple by address.
Numbers = tuple[Any, ...]
Frame = TypeVar("Frame", bound=Numbers)


@by_address
class AnyNumbers(NamedTuple):
    """Numbers of any piece, of which the loop knows the address alone."""


ANY_NUMBERS = frame_type((), AnyNumbers)


@by_address
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
    counts: Ints  # gradients of single records
    middle: Array  # (dim,) next query point of a step that has one
    gradient: Array  # from here on scratch, (dim,)
    partial: Array  # sum of one block
    query: Array
    scratch: Array
    low_dim: Array
    high_dim: Array
    rows: Ints  # (block,)
    margins: Array
    slopes: Array
    response: Array
    kept_rows: Ints  # copy of the block whose losses are read one by one
    kept_margins: Array
    kept_slopes: Array
    kept_response: Array
    low: Array
    high: Array
    trial: Array
    buckets: Array  # (num_buckets, dim), zeros between two estimates
    sorted: Array  # (num_buckets,)
    out: Array  # (1,)
    control: RecordArray  # when to return to Python, see `core.pauses`


def new_memory(dim: int, num_buckets: int = 1) -> Memory:
    """Memory of one run, zeros; ``dim`` is that of the parameters."""
    of_block = ("rows", "margins", "slopes", "response", "low", "high", "trial")
    sizes: dict[str, Any] = dict.fromkeys(of_block, BLOCK)
    sizes |= {name: BLOCK for name in Memory._fields if name.startswith("kept_")}
    sizes |= {"counts": 1, "buckets": (num_buckets, dim), "sorted": num_buckets}
    sizes |= {"out": 1, "scale": NUM_SUMS}
    kinds = dict.fromkeys(("counts", "rows", "kept_rows"), np.int64)
    arrays = {
        name: np.zeros(sizes.get(name, dim), dtype=kinds.get(name, np.float64))
        for name in Memory._fields
    }
    return Memory(**arrays | {"control": new_control()})


@by_address
class LossFunctions(NamedTuple):
    """C functions of a loss; one of the two is a stand-in."""

    slope: Any  # derivative of a loss of the margin
    gradient: Any  # gradient of any other loss, at one record


@by_address
class FeasibleSet(NamedTuple):
    """Points that iterates are projected on."""

    body: Body
    project: Any
    reach: float  # coordinates beyond it are moved to it


@by_address
class RecordNumbers(NamedTuple):
    """Numbers of the records that slopes are limited by."""

    norms: Array  # (num_records,) of the rows; empty if nothing reads them
    limits: Array  # (num_records,) of clipped slopes; empty if nothing is clipped
    slope_bound: float  # largest size of a slope, finite
    smoothing: float  # 0, or the strength lambda of a Moreau envelope
    is_total: int  # whether a loss that fails counts as 0 instead of ending the run


# The types of memory and sets, the same for all problems.
MEMORY = declare_kinds(Memory, *map(typeof, new_memory(1)))
LOSS = declare_kinds(LossFunctions, PieceType(LOSS_SLOPE), PieceType(RECORD_GRADIENT))
FEASIBLE = declare_kinds(FeasibleSet, BODY, PieceType(PROJECT), f8)
RECORDS = declare_kinds(RecordNumbers, vector, vector, f8, f8, i8)
INTS = types.int64[::1]

# batch(numbers, rng, t, cursor, rows): write the next record numbers of step t into
# rows. Return how many, fewer than fit only at the end, and the cursor, which is START
# at first.
BATCH = types.UniTuple(i8, 2)(ANY_NUMBERS, generator, i8, i8, INTS)
# slopes(data, loss, records, count, memory): turn the first memory.margins into
# memory.slopes; return False if the loss failed.
SLOPES = types.boolean(DATA, LOSS, RECORDS, i8, MEMORY)
# limit(records, rows, count, slopes): make slopes finite, and clip or truncate them.
LIMIT = types.void(RECORDS, INTS, i8, vector)
# add(numbers, data, is_run, count, memory, rng): add memory.slopes times the rows of a
# block, consecutive ones or any, or the one gradient in memory.scratch, to
# memory.partial or memory.buckets.
ADD = types.void(ANY_NUMBERS, DATA, types.boolean, i8, MEMORY, generator)
# finish(numbers, divisor, memory): turn the sums into the estimate, memory.gradient.
FINISH = types.void(ANY_NUMBERS, f8, MEMORY)
# perturb(numbers, rng, scratch, gradient): add one draw of the noise to the gradient.
PERTURB = types.void(ANY_NUMBERS, generator, vector, vector)
# advance(feasible, numbers, t, num_steps, memory, rng): move memory.theta.
ADVANCE = types.void(FEASIBLE, ANY_NUMBERS, i8, i8, MEMORY, generator)
# average(feasible, numbers, t, num_steps, memory): add memory.theta to memory.average.
AVERAGE = types.void(FEASIBLE, ANY_NUMBERS, i8, i8, MEMORY)


@by_address
class BlockFunctions(NamedTuple):
    """C functions that the estimate of a block calls, and their numbers."""

    slopes: Any
    limit: Any
    add: Any
    numbers: Any  # numbers of ``add`` and of the estimator's ``finish``
    records: RecordNumbers


BLOCK_FUNCTIONS = declare_kinds(
    BlockFunctions,
    PieceType(SLOPES),
    PieceType(LIMIT),
    PieceType(ADD),
    ANY_NUMBERS,
    RECORDS,
)
# block(data, loss, pieces, is_in_order, theta, count, memory, rng): add the gradients
# at theta of the records in memory.rows; return False if the loss failed.
ADD_BLOCK = types.boolean(
    DATA, LOSS, BLOCK_FUNCTIONS, i8, vector, i8, MEMORY, generator
)


@by_address
class CompiledEstimator(NamedTuple):
    """An estimator as the loop calls it."""

    block: Any
    functions: BlockFunctions
    finish: Any
    divisor: float  # constant by which the sum is divided

    def with_records(self, start: int, stop: int) -> "CompiledEstimator":
        """Return the same for some of the records."""
        records = self.functions.records
        part = records._replace(
            norms=np.ascontiguousarray(records.norms[start:stop]),
            limits=np.ascontiguousarray(records.limits[start:stop]),
        )
        return self._replace(functions=self.functions._replace(records=part))


@by_address
class CompiledBatches(NamedTuple):
    """A batch scheme as the loop calls it."""

    batch: Any
    numbers: Any
    first: int  # records first, ..., last - 1 belong to the phase
    last: int
    is_in_order: int  # whether a batch is consecutive records, never by chance
    is_partial: int  # whether more records of the batch follow in another window


@by_address
class CompiledNoise(NamedTuple):
    """A perturbation as the loop calls it."""

    perturb: Any
    numbers: Any


@by_address
class CompiledStep(NamedTuple):
    """A step as the loop calls it."""

    advance: Any
    numbers: Any


@by_address
class CompiledAverage(NamedTuple):
    """An average as the loop calls it."""

    average: Any
    numbers: Any


@by_address
class CompiledGradient(NamedTuple):
    """What estimates a gradient: all that a certified minimization reads."""

    batches: CompiledBatches
    estimator: CompiledEstimator


@by_address
class CompiledPhase(NamedTuple):
    """One loop as its kernel reads it."""

    batches: CompiledBatches
    estimator: CompiledEstimator
    noise: CompiledNoise
    step: CompiledStep
    average: CompiledAverage
    num_steps: int
    reads_middle: int  # whether gradients are those at memory.middle


ESTIMATOR = declare_kinds(
    CompiledEstimator, PieceType(ADD_BLOCK), BLOCK_FUNCTIONS, PieceType(FINISH), f8
)
BATCHES = declare_kinds(CompiledBatches, PieceType(BATCH), ANY_NUMBERS, i8, i8, i8, i8)
NOISE = declare_kinds(CompiledNoise, PieceType(PERTURB), ANY_NUMBERS)
STEP = declare_kinds(CompiledStep, PieceType(ADVANCE), ANY_NUMBERS)
AVERAGES = declare_kinds(CompiledAverage, PieceType(AVERAGE), ANY_NUMBERS)
GRADIENTS = declare_kinds(CompiledGradient, BATCHES, ESTIMATOR)
PHASE = declare_kinds(CompiledPhase, BATCHES, ESTIMATOR, NOISE, STEP, AVERAGES, i8, i8)

# By kernel and class of its numbers, which have one type: their arrays are copies.
_compiled: dict[tuple[object, type], Pointer] = {}


def compile_piece(
    kernel: Callable[..., object], signature: Signature, numbers: Numbers
) -> Pointer:
    """C function of a kernel, with numbers of its own in the place of `AnyNumbers`."""
    if numba.config.DISABLE_JIT:
        return kernel
    key = kernel, type(numbers)
    if key not in _compiled:
        kinds = (
            typeof(numbers) if kind == ANY_NUMBERS else kind for kind in signature.args
        )
        # The cache on disk does not see all that a user's function calls change.
        is_ours = kernel.__module__.split(".")[0] == "dpsample"
        compiled = pointer(kernel, signature.return_type(*kinds), cached=is_ours)
        retyped = copy(compiled)
        vars(retyped)["_sig"] = signature  # as the loop sees it
        _compiled[key] = retyped
    return _compiled[key]
