"""Pauses and threads: kernels that run for long return to Python, and go on later.

A kernel counts units of work, such as steps or tries, and asks `is_due` after each. If
so it leaves what it needs in its state and returns `PAUSED`; the next call goes on with
the same random numbers in the same order. When a pause comes is up to a timer, or to a
test: it cannot change a draw.

Tasks are sized to take a few hundredths of a second, which is as long as Ctrl-C and
progress wait.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel

Result = TypeVar("Result")

PAUSED = 100  # beside the codes of `samplers.errors`
TICK_SECONDS = 0.022  # a call lasts one to two ticks, and the unit that it is in

# Entries of a control: set by the timer; units until a pause that a test wants; the
# part of a step that was left, 0 between steps; steps of the draw so far. Then numbers
# that the part of a step keeps, and the counts before the draw.
STOP, LEFT, STAGE, STEPS, KEPT = range(5)
BEFORE = 16
NUM_COUNTED = 8


def new_control() -> Array:
    """Control of one chain, between two steps."""
    control = np.zeros(BEFORE + NUM_COUNTED)
    control[LEFT] = np.inf
    return control


@kernel(counts_references=False)
def is_due(control: Array) -> bool:
    """Count a unit of work; whether it is time to return to Python."""
    control[LEFT] -= 1.0
    return bool(control[STOP] != 0.0 or control[LEFT] <= 0.0)


@kernel(counts_references=False)
def forget(control: Array) -> None:
    """Give up the step that was left: it failed."""
    for j in range(STAGE, BEFORE):
        control[j] = 0.0


class _Timer:
    """Thread that sets the stop of every call that has lasted for a tick."""

    def __init__(self) -> None:
        self.calls: dict[int, Array] = {}
        self.numbers = itertools.count()
        self.has_calls, self.starting = threading.Event(), threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        with self.starting:
            if self.thread is None:
                thread = threading.Thread(
                    target=self.tick, name="dpsample pauses", daemon=True
                )
                thread.start()  # may fail: then the next call tries again
                self.thread = thread

    def tick(self) -> None:
        old: dict[int, Array] = {}
        while True:
            if not self.calls:
                self.has_calls.clear()
                if not self.calls:  # a call may have come in between
                    self.has_calls.wait()
            time.sleep(TICK_SECONDS)
            now = self.calls.copy()
            for number in now.keys() & old.keys():
                now[number][STOP] = 1.0
            old = now


_timer = _Timer()
_local = threading.local()


def _renew() -> None:
    global _timer  # noqa: PLW0603 - a fork has no threads but its own
    _timer = _Timer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def listening(on_pause: Callable[[], object]) -> Iterator[None]:
    """Call ``on_pause`` at every pause of this thread; what it raises ends the call.

    Whoever listens already is called first.
    """
    before = getattr(_local, "on_pause", None)

    def both() -> None:
        if before is not None:
            before()
        on_pause()

    _local.on_pause = both
    try:
        yield
    finally:
        _local.on_pause = before


def heard() -> None:
    """Give whoever listens in this thread the word: for loops in Python."""
    on_pause = getattr(_local, "on_pause", None)
    if on_pause is not None:
        on_pause()


def call(control: Array, function: Callable[..., Result], *arguments: object) -> Result:
    """Call a kernel that asks this control, once, under the timer."""
    timer = _timer
    if timer.thread is None:
        timer.start()
    number = next(timer.numbers)
    control[STOP] = 0.0
    timer.calls[number] = control
    if not timer.has_calls.is_set():  # the timer looks again after it cleared it
        timer.has_calls.set()
    try:
        return function(*arguments)
    finally:
        del timer.calls[number]


def fill(control: Array, rows: Callable[[int], tuple[int, int]]) -> int:
    """Call ``rows(first)``, which returns a code and a number of rows, to the end.

    Returns the code, which is not `PAUSED`.
    """
    done = 0
    while True:
        code, made = call(control, rows, done)
        if code != PAUSED:
            return int(code)
        done += made
        heard()


CHUNK_SECONDS = 0.03
LARGEST = 1_000_000  # runs shorter than one task would let the size grow forever


class ChunkSize:
    """Number of steps per task that takes about `CHUNK_SECONDS`, or a fixed one."""

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed, self.size = fixed, fixed or 1

    def update(self, seconds: float) -> None:
        """Adapt to the time that the last task took."""
        if self.fixed is None:
            growth = CHUNK_SECONDS / max(seconds, 1e-6)
            size = max(1, int(self.size * min(growth, 64.0)))
            self.size = min(size, LARGEST)


POLL_SECONDS = 0.1  # a wait without end is deaf to a signal of another thread


class StoppedError(BaseException):
    """Another thread was interrupted or failed; no failure of this one's own."""


def in_threads(
    task: Callable[..., Result],
    arguments: Iterable[tuple[Any, ...]],
    count: int | None,
    on_done: Callable[[list[Result]], object] = lambda results: None,
) -> list[Result]:
    """Results of a task for each tuple of arguments, in order.

    Ctrl-C and a failure end all tasks at their next pause; of several the first in
    order is raised. ``count`` threads, or one for each processor. ``on_done`` gets the
    results so far, again and again until all are there, in the calling thread.
    """
    stop = threading.Event()

    def on_pause() -> None:
        if stop.is_set():
            raise StoppedError

    def work(*own: Any) -> Result:
        try:
            with listening(on_pause):
                heard()
                return task(*own)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(count or os.cpu_count()) as pool:
        try:
            tasks = [pool.submit(work, *own) for own in arguments]
            left: object = tasks
            while left:
                done, left = wait(tasks, POLL_SECONDS)
                on_done([each.result() for each in done if each.exception() is None])
                heard()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    errors = [each.exception() for each in tasks]
    for error in errors:
        if error is not None and not isinstance(error, StoppedError):
            raise error
    return [each.result() for each in tasks]


# The limit of BLAS threads, once for each block that is under way.
_limit_lock, _limits = threading.Lock(), list[Any]()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread: more are slower here, and change the last bits of a draw.

    Of blocks that overlap the first sets the limit, and the last one takes it away.
    """
    with _limit_lock:
        if not _limits:
            _give_up_control()  # of a thread that has set a limit of its own
            _limits.append(_blas().limit(limits=1, user_api="blas"))
        else:
            _limits.append(_limits[0])
    try:
        yield
    finally:
        with _limit_lock:
            limit = _limits.pop()
            if not _limits:
                _give_up_control()  # of the thread that came first
                limit.restore_original_limits()
                _give_up_control()  # of this one


def _give_up_control() -> None:
    """Let any thread set the limits of OpenBLAS, which obeys a single one."""
    import threadpoolctl

    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas() -> Any:
    """Libraries with threads of their own; to find them takes milliseconds."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
