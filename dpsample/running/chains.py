"""Loop over chains: threads, chunks, rounds, interrupts, time limit and checkpoints.

A *chunk* is a number of draws of every chain that takes about 30 ms. Between chunks the
loop looks for Ctrl-C, draws the live line and writes checkpoints. Each chain has its
own state and stream, so neither the number of threads nor the size of a chunk can
change a draw.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.files import check_output
from dpsample.core.pauses import ChunkSize, Interrupts
from dpsample.running.checkpoint import CheckpointRun, Progress, load, save, snapshot
from dpsample.samplers.chain import (
    NUM_STATS,
    ChainState,
    Prepared,
    Runner,
    own_statistics,
)

CHECKPOINT_SECONDS = 30.0
# Maximum number of coefficients in a chunk of draws that are discarded.
CHUNK_NUMBERS = 2**20


class TimeLimit:
    """Time limit, ``seconds`` from now on, or none."""

    clock = staticmethod(time.monotonic)

    def __init__(self, seconds: float | None = None) -> None:
        self.due = math.inf if seconds is None else self.clock() + seconds

    def is_over(self, grace: float = 0.0) -> bool:
        """Return whether the limit was at least ``grace`` seconds ago."""
        return self.due < math.inf and self.clock() >= self.due + grace

    def halfway(self) -> "TimeLimit":
        """Return a limit at the middle of the time that is left."""
        if self.due == math.inf:
            return self
        return TimeLimit(0.5 * max(self.due - self.clock(), 0.0))


NO_LIMIT = TimeLimit()


@dataclass(frozen=True, kw_only=True, eq=False)
class Chains:
    """Draws of several chains, which an interrupt may have ended."""

    draws: Array  # (chain, draw, dim)
    stats: Array  # (chain, draw, statistic), see `samplers.chain`
    states: Sequence[ChainState]
    is_interrupted: bool
    is_out_of_time: bool = False  # whether the time limit came before the last draw
    num_discarded: int = 0  # draws of the warm-up of every chain
    warmup_draws: Array  # as draws, empty unless the warm-up is kept
    warmup_stats: Array
    warmup_seconds: float  # spent in this call
    draw_seconds: float


def _hold_interrupts(
    interrupts: Interrupts | None,
) -> AbstractContextManager[Interrupts]:
    """Return a context that collects Ctrl-C, or the one that is open already."""
    if interrupts is None:
        return pauses.hold_interrupts()
    return nullcontext(interrupts)


def advance(
    runner: Runner,
    state: ChainState,
    rng: np.random.Generator,
    num_steps: int,
    on_done: Callable[[int], None] | None = None,
) -> None:
    """Make steps without keeping draws. Ctrl-C raises at a pause.

    ``on_done`` is called with the number of steps so far.
    """
    chunk = ChunkSize()
    done, max_size = 0, max(1, CHUNK_NUMBERS // state.position.size)
    while done < num_steps:
        size = min(chunk.size, max_size, num_steps - done)
        draws = np.empty((size, state.position.size))
        stats = np.empty((size, NUM_STATS))
        begin = time.perf_counter()
        runner(state, rng, draws, stats)
        chunk.update(time.perf_counter() - begin)
        done += size
        if on_done is not None:
            on_done(done)
        pauses.notify_listeners()


def run(
    prepared: Prepared,
    starts: Sequence[Array | None],
    streams: list[np.random.Generator],
    *,
    num_draws: int,
    num_warmup: int = 0,
    threads: int | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: str = "",
    extend: Callable[[Array], int] | None = None,
    keeps_warmup: bool = False,
    on_progress: Progress | None = None,
    interrupts: Interrupts | None = None,
    limit: TimeLimit = NO_LIMIT,
) -> Chains:
    """Run chains to ``num_draws`` draws each, after ``num_warmup`` that are discarded.

    Each chain starts at one of ``starts`` (dim,), None for the prepared start, with one
    of ``streams``. The streams of a checkpoint replace them. By default there are as
    many ``threads`` as processors, and a ``chunk`` has draws for about 30 ms.

    The file ``checkpoint`` is written every 30 seconds, on interrupt, at the time
    ``limit`` and at the end. If it exists, the run continues from it, bit for bit. A
    checkpoint with another ``identity``, a hash of the density and its chains, is an
    error. ``extend`` maps the draws kept so far to the number that is needed. It is
    called when there are ``num_draws``, and again when there is the number that it
    returned. With ``keeps_warmup`` the draws that are discarded are returned apart, and
    a checkpoint has them, too. ``on_progress`` is called with (draws done by every
    chain, total, run), warm-up included. ``interrupts`` is the list of a block that
    holds Ctrl-C already.

    Return all draws. After Ctrl-C or the limit they are the draws that every chain has
    finished. Later draws are lost, so states are ahead of the draws unless there is a
    file.
    """
    check.integer(1, maximum=check.MAX_EXACT_INT, num_draws=num_draws)
    check.integer(0, maximum=check.MAX_EXACT_INT, num_warmup=num_warmup)
    if threads is not None:
        check.integer(1, threads=threads)
    if chunk is not None:
        check.integer(1, chunk=chunk)
    if checkpoint is not None:
        check.instance((str, os.PathLike), checkpoint=checkpoint)
    states = [prepared.init(start) for start in starts]
    run = CheckpointRun(
        states,
        list(streams),
        num_warmup,
        num_stats=NUM_STATS + len(own_statistics(prepared)),
        keeps_warmup=keeps_warmup,
    )
    goal = num_warmup + num_draws
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        check_output("checkpoint", path)
    if path is not None and path.exists():
        load(path, identity, run, prepared.init)
        if extend is None and run.done > goal:
            condition = f">= the {run.done} draws (with warm-up) of the checkpoint"
            remedy = "Ask for as many draws, or choose another file."
            check.fail("num_draws", condition, goal, remedy)
    loop = _Loop(prepared.runner(), run, chunk, path, identity, on_progress, limit)
    with (
        pauses.single_threaded_blas(),
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
        _hold_interrupts(interrupts) as interrupted,
    ):
        loop.reach(goal, pool, interrupted)
        # Rounds: the draws so far decide how many are needed.
        while extend is not None and not loop.has_to_end(interrupted):
            drawn = run.draws[:, num_warmup - run.num_dropped : goal - run.num_dropped]
            next_goal = num_warmup + extend(drawn)
            if next_goal <= goal:
                break
            goal = next_goal
            loop.reach(goal, pool, interrupted)
        # Ctrl-C is held here, so that neither the file nor the draws are lost.
        if path is not None:
            save(path, identity, run)
    end = min(goal - run.num_dropped, run.num_kept)
    begin = min(num_warmup - run.num_dropped, end)
    return Chains(
        draws=run.draws[:, begin:end],
        stats=run.stats[:, begin:end],
        warmup_draws=run.draws[:, :begin],
        warmup_stats=run.stats[:, :begin],
        warmup_seconds=loop.warmup_seconds,
        draw_seconds=loop.draw_seconds,
        states=run.states,
        is_interrupted=bool(interrupted),
        is_out_of_time=run.done < goal and not interrupted,
        num_discarded=min(run.done, num_warmup),
    )


class _Loop:
    """Chunks of all chains, one after the other."""

    def __init__(
        self,
        runner: Runner,
        run: CheckpointRun,
        chunk: int | None,
        path: Path | None,
        identity: str,
        on_progress: Progress | None,
        limit: TimeLimit,
    ) -> None:
        self.runner, self.run, self.size = runner, run, ChunkSize(chunk)
        self.path, self.identity, self.limit = path, identity, limit
        self.on_progress, self.saved = on_progress, time.monotonic()
        self.warmup_seconds = self.draw_seconds = 0.0

    def reach(
        self, goal: int, pool: ThreadPoolExecutor, interrupted: list[float]
    ) -> None:
        """Go on until every chain has ``goal`` draws, Ctrl-C or the time limit."""
        run = self.run
        run.reserve(goal)

        def show() -> None:
            if self.on_progress is not None:
                self.on_progress(run.done, goal, run)

        def is_late() -> bool:
            # Time after Ctrl-C or a time limit in which a chunk may end. Then it is
            # given up.
            return self.has_to_end(interrupted, 0.05)

        while run.done < goal and not self.has_to_end(interrupted):
            pauses.notify_listeners()
            stop = min(run.done + self.size.size, goal)
            # Draws of the warm-up are in an array of their own, which must stay small.
            is_warmup = run.done < run.num_warmup
            if is_warmup:
                max_size = max(1, CHUNK_NUMBERS // run.draws.shape[2])
                stop = min(stop, run.done + max_size, run.num_warmup)
            # A chunk that is given up leaves states between draws. A checkpoint needs
            # the states before it.
            undo = None if self.path is None else snapshot(run)
            begin = time.perf_counter()
            _run_chunk(pool, self.runner, run, stop, is_late, show)
            seconds = time.perf_counter() - begin
            if is_warmup:
                self.warmup_seconds += seconds
            else:
                self.draw_seconds += seconds
            if run.done < stop:
                if undo is not None:
                    undo()
                break
            self.size.update(seconds)
            show()
            if self.path is not None and self.is_checkpoint_due():
                save(self.path, self.identity, run)
                self.saved = time.monotonic()

    def has_to_end(self, interrupted: list[float], grace: float = 0.0) -> bool:
        """Return whether Ctrl-C or the limit came at least ``grace`` seconds ago."""
        if interrupted and time.monotonic() >= interrupted[0] + grace:
            return True
        return self.limit.is_over(grace)

    def is_checkpoint_due(self) -> bool:
        """Return whether the last checkpoint is old."""
        return time.monotonic() - self.saved > CHECKPOINT_SECONDS


class _GivenUp(Exception):
    """A chunk that Ctrl-C, the limit or the failure of another chain has ended."""


def _run_chunk(
    pool: ThreadPoolExecutor,
    runner: Runner,
    run: CheckpointRun,
    stop: int,
    is_late: Callable[[], bool],
    show: Callable[[], None],
) -> None:
    """Advance all chains to ``stop``, or none if it ``is_late`` at a pause."""
    has_failed = threading.Event()

    def on_pause() -> None:
        if has_failed.is_set() or is_late():
            raise _GivenUp

    def advance(
        state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
    ) -> None:
        try:
            with pauses.listening(on_pause):
                runner(state, rng, draws, stats)
        # The other chains stop at their next pause.
        except BaseException:
            has_failed.set()
            raise

    chains = zip(run.states, run.streams, *run.arrays_until(stop), strict=True)
    tasks = [pool.submit(advance, *chain) for chain in chains]
    try:
        errors = [_await_error(task, show) for task in tasks]
    except BaseException:
        has_failed.set()
        raise
    for error in errors:
        if error is not None and not isinstance(error, _GivenUp):
            raise error
    # A chunk counts for all chains or for none, so that draws have one length.
    if not any(errors):
        run.done = stop


def _await_error(task: Future[None], show: Callable[[], None]) -> BaseException | None:
    """Return the error of a task, and redraw the live line while it runs."""
    while True:
        try:
            return task.exception(0.2)
        except TimeoutError:
            show()
            pauses.notify_listeners()
