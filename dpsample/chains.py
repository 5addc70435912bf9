"""The chain loop: threads, chunks by time, interrupt, checkpoint, resume.

A runner (state, rng, draws, energies) fills one row of ``draws`` per draw. Chains own
their state and stream, so neither the number of threads nor the size of a chunk can
change a draw.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.checkpoint import Run, load, save

Array = NDArray[np.float64]
Runner = Callable[[Any, np.random.Generator, Array, Array], None]

CHUNK_SECONDS = 0.03
CHECKPOINT_SECONDS = 30.0
# Entries of a checkpoint.


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread: more are slower here, and change the last bits of a draw."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield


@contextmanager
def _interrupt_flag() -> Iterator[list[int]]:
    """List that Ctrl-C fills instead of raising in the middle of a chunk.

    A second Ctrl-C raises at once. Outside the main thread nothing is changed.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handler(number: int, frame: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chains:
    """Draws of several chains, as far as they came."""

    draws: Array  # (chain, draw, dim)
    energies: Array  # (chain, draw); NaN where the kernel did not need the energy
    states: Sequence[Any]
    is_interrupted: bool


class _ChunkSize:
    """Number of draws per task that takes about `CHUNK_SECONDS`."""

    def __init__(self, fixed: int | None) -> None:
        self.fixed, self.size = fixed, fixed or 1

    def update(self, seconds: float) -> None:
        if self.fixed is None:
            growth = CHUNK_SECONDS / max(seconds, 1e-6)
            self.size = max(1, int(self.size * min(growth, 8.0)))


def advance(
    runner: Runner, state: Any, rng: np.random.Generator, num_steps: int
) -> None:
    """Make steps and keep only the state; Ctrl-C is heard between chunks."""
    chunk = _ChunkSize(None)
    done = 0
    while done < num_steps:
        size = min(chunk.size, num_steps - done)
        begin = time.perf_counter()
        runner(state, rng, np.empty((size, state.position.size)), np.empty(size))
        chunk.update(time.perf_counter() - begin)
        done += size


def run(
    runner: Runner,
    states: Sequence[Any],
    streams: list[np.random.Generator],
    *,
    num_draws: int,
    num_warmup: int = 0,
    threads: int | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: str = "",
    on_progress: Callable[[int, int], None] | None = None,
) -> Chains:
    """Run chains to ``num_draws`` draws each.

    Parameters
    ----------
    runner : callable
        Fills draws and energies, moving the state; releases the GIL.
    states : sequence
        One state per chain; modified.
    streams : list of Generator
        One per chain.
    num_draws, num_warmup : int
        Draws kept, and draws discarded before them.
    threads : int, optional
        Number of threads; by default the number of processors.
    chunk : int, optional
        Draws per task; by default about 30 ms of work.
    checkpoint : path, optional
        File that is written every 30 seconds, on interrupt and at the end. If it exists
        the run continues from it, bit for bit.
    identity : str
        Hash of what is sampled; a checkpoint of something else is refused.
    on_progress : callable, optional
        Called with (draws done by every chain, total).

    Returns
    -------
    Chains
        All draws; after Ctrl-C the part that every chain has finished.
    """
    check.integer(1, num_draws=num_draws)
    check.integer(0, num_warmup=num_warmup)
    if threads is not None:
        check.integer(1, threads=threads)
    if chunk is not None:
        check.integer(1, chunk=chunk)
    if checkpoint is not None:
        check.instance((str, os.PathLike), checkpoint=checkpoint)
    total = num_warmup + num_draws
    dim = states[0].position.size
    draws, energies = (
        np.empty((len(states), total, dim)),
        np.empty((len(states), total)),
    )
    progress = Run(draws, energies, states, streams)
    path = None if checkpoint is None else Path(checkpoint)
    done = 0
    if path is not None and path.exists():
        done = load(path, identity, progress)
    size = _ChunkSize(chunk)
    saved = time.monotonic()
    with (
        single_threaded_blas(),
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
        _interrupt_flag() as interrupted,
    ):
        while done < total and not interrupted:
            stop = min(done + size.size, total)
            begin = time.perf_counter()
            _one_chunk(pool, runner, progress, done, stop)
            size.update(time.perf_counter() - begin)
            done = stop
            if on_progress is not None:
                on_progress(done, total)
            if path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                save(path, identity, done, progress)
                saved = time.monotonic()
    if path is not None:
        save(path, identity, done, progress)
    return Chains(
        draws=draws[:, num_warmup:done],
        energies=energies[:, num_warmup:done],
        states=states,
        is_interrupted=bool(interrupted),
    )


def _one_chunk(
    pool: ThreadPoolExecutor, runner: Runner, run: Run, start: int, stop: int
) -> None:
    """Advance all chains to ``stop``, so that an interrupt leaves none behind."""
    part = slice(start, stop)
    chains = zip(run.states, run.streams, run.draws, run.energies, strict=True)
    tasks = [
        pool.submit(runner, state, rng, draws[part], energies[part])
        for state, rng, draws, energies in chains
    ]
    for task in tasks:
        task.result()
