"""The loop that every gradient-based algorithm shares, compiled once.

step t: query point -> gradient estimate -> noise -> move -> average.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample._pauses import is_due, new_control
from dpsample.optimizers.advance import advance, query_point
from dpsample.optimizers.estimate import estimate
from dpsample.optimizers.perturbations import perturb

Array = NDArray[np.float64]
BLOCK = 1024


class LoopPieces(NamedTuple):
    """C functions of a problem, one Numba type for all problems."""

    loss_slope: Any
    project: Any
    record_gradient: Any  # of a loss that is no function of the margin
    takes_records: int  # whether it is one


class Memory(NamedTuple):
    """State and scratch memory of one run."""

    theta: Array  # (dim,) the iterate
    aggregate: Array  # (dim,) of accelerated steps
    anchor: Array  # (dim,) start of the phase
    ball_center: Array  # (dim,) of the local ball
    average: Array  # (dim,) weighted sum of the iterates
    counts: NDArray[np.int64]  # gradients of single records
    gradient: Array  # from here on scratch, (dim,)
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
    sizes |= {"out": 1}
    kinds = {"counts": np.int64, "rows": np.int64}
    arrays = {
        name: np.zeros(sizes.get(name, dim), dtype=kinds.get(name, np.float64))
        for name in Memory._fields
    }
    return Memory(**arrays | {"control": new_control()})


@kernel
def descend(data, body, pieces, phase, memory, rng, start, stop):
    """Take steps ``start``, ..., ``stop - 1`` of a phase, or fewer if a pause is due.

    Returns the step that comes next, or -1 if a loss failed. The references that came
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
        succeeded = estimate(
            data, pieces, phase.batches, phase.estimator, t, point, memory, rng
        )
        if not succeeded:
            return -1
        perturb(phase.noise, rng, memory.scratch, memory.gradient)
        advance(body, pieces, phase.step, t, memory, rng)
        if len(phase.weights) > 0:
            weight = phase.weights[t if len(phase.weights) > 1 else 0]
            for j in range(len(memory.theta)):
                memory.average[j] += weight * memory.theta[j]
        if is_due(memory.control):
            return t + 1
    return stop
