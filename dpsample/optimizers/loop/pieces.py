"""Signatures of the compiled parts of an optimizer, and the memory of a run.

Step t of an optimizer's loop is

    batch -> estimate -> perturb -> advance -> average:

read the records of a *batch* in *blocks* of at most `BLOCK`, sum their gradients and
divide by a constant (the *estimate*), add noise, move the iterate, and add it to a
weighted sum. Each part is a C function of a signature below, so that the loop compiles
once for all algorithms. For the loss of a *margin* (the product of a record's row and
the parameters, plus an offset) a record's gradient is its *slope*, the derivative of
the loss at the margin, times its row.

A *piece* is a kernel that becomes such a C function. An algorithm chooses pieces, and
may define its own in its own file: a kernel of that signature, and a named tuple,
decorated with `by_address`, of the numbers that only this kernel reads. To the loop all
such tuples are `AnyNumbers`, an address that it passes on. `compile_piece` makes the C
function. Only those that a run uses are ever compiled.

A piece returns only what its signature states, and raises nothing, because an exception
in a C function would be lost.
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
from dpsample.optimizers.loop.scaled import SUM
from dpsample.problem.records import DATA

# Records of a block. Its sum is completed before it is added to the sums of the blocks
# before it, which keeps rounding errors small.
BLOCK = 1024
# Cursor (position in a batch) before anything of the batch has been read.
START = -2

# Numbers that only one piece reads: a named tuple that is passed by its address.
Numbers = tuple[Any, ...]
Frame = TypeVar("Frame", bound=Numbers)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class AnyNumbers(NamedTuple):
    """Numbers of any piece, of which the loop knows only the address."""


ANY_NUMBERS = frame_type((), AnyNumbers)


@by_address
class Memory(NamedTuple):
    """State and workspace of one run."""

    theta: Array  # (dim,) iterate
    aggregate: Array  # (dim,) averaged point of accelerated steps
    anchor: Array  # (dim,) start of the phase
    ball_center: Array  # (dim,) center of the local ball
    average: Array  # (dim,) weighted sum of the iterates
    # The next three are sums of a scaled or a decaying descent, see `scaled`.
    first_gradient: Array  # (dim,) noisy gradients of the first stage
    first_point: Array  # (dim,) points less the anchor, where these were read
    scale: Array  # (8,) the others
    counts: Ints  # (1,) number of gradients of single records
    middle: Array  # (dim,) next query point of a step that has one
    # All that follows is workspace, except for the buckets and the control record.
    gradient: Array  # (dim,) estimate
    partial: Array  # (dim,) sum of one block
    query: Array  # (dim,), and the next three
    scratch: Array
    low_dim: Array
    high_dim: Array
    rows: Ints  # (block,) numbers of the records, and so on up to `trial`
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
    buckets: Array  # (num_buckets, dim) sums, zeros between two estimates
    sorted: Array  # (num_buckets,) one coordinate of the bucket sums, sorted
    out: Array  # (1,) sum of the losses of a block, NaN if a loss failed
    control: RecordArray  # (1,) when to return to Python, see `core.pauses`


def new_memory(dim: int, num_buckets: int = 1) -> Memory:
    """Return the memory of one run, filled with zeros, for ``dim`` parameters."""
    of_block = ("rows", "margins", "slopes", "response", "low", "high", "trial")
    sizes: dict[str, Any] = dict.fromkeys(of_block, BLOCK)
    sizes |= {name: BLOCK for name in Memory._fields if name.startswith("kept_")}
    sizes |= {"counts": 1, "buckets": (num_buckets, dim), "sorted": num_buckets}
    sizes |= {"out": 1, "scale": len(SUM)}
    kinds = dict.fromkeys(("counts", "rows", "kept_rows"), np.int64)
    arrays = {
        name: np.zeros(sizes.get(name, dim), dtype=kinds.get(name, np.float64))
        for name in Memory._fields
    }
    return Memory(**arrays | {"control": new_control()})


def clear_memory(memory: Memory) -> None:
    """Fill the memory of a run as `new_memory` does, for another run."""
    for array in memory[:-1]:
        array.fill(0)
    memory.control[:] = new_control()


@by_address
class LossFunctions(NamedTuple):
    """C functions of a loss. One of the two is a stand-in that is never called."""

    slope: Any  # derivative of a loss of the margin
    gradient: Any  # gradient of any other loss, at one record


@by_address
class FeasibleSet(NamedTuple):
    """Domain to which iterates are projected."""

    body: Body  # numbers of the domain
    project: Any  # C function of the projection
    reach: float  # largest size of a coordinate, to which larger ones are moved


@by_address
class RecordNumbers(NamedTuple):
    """Bounds of each record, by which its slope is limited."""

    norms: Array  # (num_records,) norms of the rows, or empty if nothing reads them
    limits: Array  # (num_records,) largest slopes, or empty if nothing is clipped
    slope_bound: float  # largest size of a slope, finite
    smoothing: float  # 0, or the strength lambda of a Moreau envelope
    is_total: int  # 1 if a failing loss has gradient 0 instead of ending the run


# Numba types of the arguments, the same for all problems.
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
# memory.slopes. Return False if the loss failed.
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
    """C functions that sum the gradients of a block, and their numbers."""

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
# block(data, loss, functions, is_in_order, theta, count, memory, rng): add the
# gradients at theta of the records in memory.rows. Return False if the loss failed.
ADD_BLOCK = types.boolean(
    DATA, LOSS, BLOCK_FUNCTIONS, i8, vector, i8, MEMORY, generator
)


@by_address
class CompiledEstimator(NamedTuple):
    """An estimator as the loop calls it."""

    block: Any  # C function of signature `ADD_BLOCK`
    functions: BlockFunctions
    finish: Any
    divisor: float  # constant by which the sum is divided

    def with_records(self, start: int, stop: int) -> "CompiledEstimator":
        """Return the estimator for the records from ``start`` to ``stop`` only."""
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
    is_in_order: int  # 1 if batches are consecutive records, in every run
    is_partial: int  # 1 if more records of the batch follow in another window


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
    """Batches and estimator, which are enough for a certified minimization."""

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
    reads_middle: int  # 1 if gradients are taken at memory.middle, not at memory.theta


ESTIMATOR = declare_kinds(
    CompiledEstimator, PieceType(ADD_BLOCK), BLOCK_FUNCTIONS, PieceType(FINISH), f8
)
BATCHES = declare_kinds(CompiledBatches, PieceType(BATCH), ANY_NUMBERS, i8, i8, i8, i8)
NOISE = declare_kinds(CompiledNoise, PieceType(PERTURB), ANY_NUMBERS)
STEP = declare_kinds(CompiledStep, PieceType(ADVANCE), ANY_NUMBERS)
AVERAGES = declare_kinds(CompiledAverage, PieceType(AVERAGE), ANY_NUMBERS)
GRADIENTS = declare_kinds(CompiledGradient, BATCHES, ESTIMATOR)
PHASE = declare_kinds(CompiledPhase, BATCHES, ESTIMATOR, NOISE, STEP, AVERAGES, i8, i8)

# C functions by kernel and class of its numbers. The class determines the Numba type,
# because the arrays of numbers are always contiguous copies.
_compiled: dict[tuple[object, type], Pointer] = {}


def compile_piece(
    kernel: Callable[..., object], signature: Signature, numbers: Numbers
) -> Pointer:
    """Return the C function of a kernel, compiled for the type of its numbers.

    The numbers stand in the place of `AnyNumbers` in the signature.
    """
    if numba.config.DISABLE_JIT:
        return kernel
    key = kernel, type(numbers)
    if key not in _compiled:
        kinds = (
            typeof(numbers) if kind == ANY_NUMBERS else kind for kind in signature.args
        )
        # The cache on disk cannot see changes in functions that a user's kernel calls.
        # So it is used for the package's own kernels only.
        is_ours = kernel.__module__.split(".")[0] == "dpsample"
        compiled = pointer(kernel, signature.return_type(*kinds), cached=is_ours)
        retyped = copy(compiled)
        # The loop calls it with the address, whose type is `AnyNumbers`.
        vars(retyped)["_sig"] = signature
        _compiled[key] = retyped
    return _compiled[key]
