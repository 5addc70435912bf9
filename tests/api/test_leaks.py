"""Many calls of a top-level function: no array is held, no memory is lost."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.warm import BALL, BUDGET, LOGISTIC, make

PROBLEM = make(LOGISTIC, BALL, num_records=1000).problem
TARGET = dps.Gibbs(PROBLEM, k=30.0, mu=1.0)
# With three records a call is mostly Python code.
TINY_TARGET = make(LOGISTIC, BALL)
STATM = Path("/proc/self/statm")
# Bytes by which the heap may grow in all, as its pieces are used again in other orders.
MARGIN = 4e6


def minimize():
    dps.minimize(PROBLEM, dps.optimizers.NoisyGD(clip=1.0, num_steps=2), BUDGET, seed=1)


def release():
    dps.release(PROBLEM, BUDGET, seed=1)


def draw_chain(target, sampler, num_draws):
    dps.sample(
        target,
        sampler=sampler,
        num_draws=num_draws,
        num_warmup=0,
        num_chains=1,
        progress=False,
        check=False,
    )


def sample():
    draw_chain(TARGET, dps.samplers.BilliardHMC(), 2)


def sample_tiny():
    """Draw once with nothing to tune: 4 ms, where a call of `sample` takes 40."""
    draw_chain(TINY_TARGET, dps.samplers.HitAndRun(), 1)


def arrays_below(root):
    """Every array that an object holds, itself or by what it holds."""
    waiting, arrays, seen = [root], [], {}
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen[id(found)] = found
        if isinstance(found, np.ndarray):
            arrays.append(found)
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, tuple | list):
            waiting.extend(found)
        elif type(found).__module__.startswith("dpsample."):
            waiting.append(getattr(found, "__dict__", {}))
    return arrays


def counts():
    """References of each array of the problem and the targets, in the same order."""
    gc.collect()
    arrays = {id(a): a for a in arrays_below((PROBLEM, TARGET, TINY_TARGET))}
    return {number: sys.getrefcount(array) for number, array in arrays.items()}


def resident():
    return int(STATM.read_text().split()[1]) * 4096 if STATM.exists() else 0


def assert_no_leak(call, num_calls, num_first):
    for _ in range(num_first):  # compiled, and what is kept per problem is made
        call()
    before, blocks, memory = counts(), sys.getallocatedblocks(), resident()
    assert len(before) >= 5
    for _ in range(num_calls):
        call()
    assert counts() == before
    # A block for each call would be a leak. Caches of Python's grow by some hundreds.
    assert sys.getallocatedblocks() - blocks < max(num_calls // 2, 500)
    assert resident() - memory < MARGIN


@pytest.mark.parametrize(
    ("call", "num_calls", "num_first"),
    [
        (minimize, 30, 30),
        (release, 30, 30),
        (sample, 5, 5),
        (sample_tiny, 30, 100),
    ],
)
def test_calls_keep_the_counts_of_all_arrays(call, num_calls, num_first):
    assert_no_leak(call, num_calls, num_first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "num_calls"),
    [
        (minimize, 100_000),
        (release, 100_000),
        (sample, 10_000),
        (sample_tiny, 100_000),
    ],
)
def test_many_calls_lose_no_memory(call, num_calls):
    assert_no_leak(call, num_calls, num_calls // 10)


def test_a_leak_would_be_seen():
    """Negative control: a call that keeps an array, and one that keeps its memory."""
    kept = []
    with pytest.raises(AssertionError):
        assert_no_leak(lambda: kept.append(arrays_below(PROBLEM)[0]), 100, 1)
    with pytest.raises(AssertionError):
        assert_no_leak(lambda: kept.append([object() for _ in range(10)]), 1000, 1)
