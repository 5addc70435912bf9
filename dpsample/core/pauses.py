"""Pauses and threads: kernels that run for long return to Python, and go on later.

A kernel counts units of work, such as steps or proposals, and asks `is_due` after each
of them. If a pause is due, the kernel writes the numbers that it needs to its `Control`
and returns `PAUSED`. The next call goes on with the same random numbers in the same
order. A timer, or a test, decides when a pause comes. It cannot change a draw.

Tasks are sized to take a few hundredths of a second, which is as long as Ctrl-C and
progress wait.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from dpsample.core.arrays import RecordArray, record_dtype
from dpsample.core.jit import kernel

Result = TypeVar("Result")

PAUSED = 100  # beside the codes of `samplers.errors`
TICK_SECONDS = 0.022  # a call lasts one to two ticks, and the unit that it is in

# State of a computation that may be paused, in an array of one such record.
Control = record_dtype(
    must_stop=bool,  # the timer asks for a pause
    units_left=float,  # units of work until a test wants a pause
    stage=int,  # the part of a step where the kernel was paused, 0 between two steps
    steps_done=int,  # steps of the present draw
    saved=(float, 12),  # numbers that the paused part of a step needs to go on
    counts_before=(int, 8),  # the chain's counts before the present draw
)


def new_control() -> RecordArray:
    """Return the control of one chain, between two steps."""
    control = np.zeros(1, Control)
    control["units_left"] = np.inf
    return control


@kernel(counts_references=False)
def is_due(control: Any) -> bool:
    """Count a unit of work. Return whether it is time to return to Python.

    ``control`` is the record, ``new_control()[0]``.
    """
    control.units_left -= 1.0
    return bool(control.must_stop or control.units_left <= 0.0)


@kernel(counts_references=False)
def abandon_step(control: Any) -> None:
    """Give up the step that was paused, because it failed."""
    control.stage = control.steps_done = 0
    for j in range(control.saved.shape[0]):
        control.saved[j] = 0.0


class _Timer:
    """Thread that sets the stop of every call that has lasted for a tick."""

    def __init__(self) -> None:
        self.calls: dict[int, RecordArray] = {}
        self.numbers = itertools.count()
        # Of queues, for in the locks of an event Ctrl-C can stop both threads for good.
        self.is_asleep, self.alarm = False, SimpleQueue[None]()
        self.starting = threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        with delay_interrupts(), self.starting:
            if self.thread is None:
                thread = threading.Thread(
                    target=self.tick, name="dpsample pauses", daemon=True
                )
                thread.start()  # may fail: then the next call tries again
                self.thread = thread

    def tick(self) -> None:
        old: dict[int, RecordArray] = {}
        while True:
            if not self.calls:
                self.is_asleep = True
                if not self.calls:  # a call may have come in between
                    self.alarm.get()
                self.is_asleep = False
            time.sleep(TICK_SECONDS)
            now = self.calls.copy()
            for number in now.keys() & old.keys():
                now[number]["must_stop"] = True
            old = now


_timer = _Timer()
_local = threading.local()


def _renew() -> None:
    global _timer, _limit_lock  # a fork has no threads but its own
    _timer, _limit_lock = _Timer(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


REPEAT_SECONDS = 0.5  # within which Ctrl-C is the same as the first one


class Interrupts(list[float]):
    """Times at which Ctrl-C came while a block held it back."""

    is_raised = False  # whether the first one raises at once, as a late second does


@contextmanager
def hold_interrupts() -> Iterator[Interrupts]:
    """List that Ctrl-C fills with its time, in place of raising wherever Python is.

    A second Ctrl-C raises, unless it comes at once: a key that is held down must not
    lose what the first one keeps. Outside the main thread nothing is changed, nor where
    Ctrl-C is ignored or has a handler that is not Python's.
    """
    seen = Interrupts()

    def handler(_number: int, _frame: object) -> None:
        seen.append(time.monotonic())
        if seen.is_raised or seen[-1] > seen[0] + REPEAT_SECONDS:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        if before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, handler)
    except ValueError:  # not the main thread, which `threading` need not know
        before = None
    try:
        yield seen
    finally:
        if before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, before)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end of a short block.

    Raised in the middle of `threading` it would leave locks that nobody opens again.
    """
    with hold_interrupts() as interrupts:
        yield
    if interrupts:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):  # not by a signal: asyncio would count another Ctrl-C
            handler(signal.SIGINT, None)
        else:
            signal.raise_signal(signal.SIGINT)


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


def notify_listeners() -> None:
    """Give whoever listens in this thread the word: for loops in Python."""
    on_pause = getattr(_local, "on_pause", None)
    if on_pause is not None:
        on_pause()


def call(
    control: RecordArray, function: Callable[..., Result], *arguments: object
) -> Result:
    """Call a kernel that asks this control, once, under the timer."""
    timer = _timer
    if timer.thread is None:
        timer.start()
    number = next(timer.numbers)
    control["must_stop"] = False
    timer.calls[number] = control
    try:
        if timer.is_asleep:  # it looks for calls once more after it said so
            timer.alarm.put(None)
            timer.is_asleep = False  # one is enough until it wakes
        return function(*arguments)
    finally:
        del timer.calls[number]


def fill(control: RecordArray, rows: Callable[[int], tuple[int, int]]) -> int:
    """Call ``rows(first)``, which returns a code and a number of rows, to the end.

    Returns the code, which is not `PAUSED`.
    """
    done = 0
    while True:
        code, made = call(control, rows, done)
        if code != PAUSED:
            return int(code)
        done += made
        notify_listeners()


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


def run_in_threads(
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
    is_stopped = False
    # Of a queue, for in what waits for futures Ctrl-C can stop all threads for good.
    done: SimpleQueue[tuple[int, list[Result], BaseException | None]] = SimpleQueue()

    def on_pause() -> None:
        if is_stopped:
            raise StoppedError

    def work(number: int, own: tuple[Any, ...]) -> None:
        nonlocal is_stopped
        try:
            with listening(on_pause):
                notify_listeners()
                outcome: tuple[list[Result], BaseException | None] = [task(*own)], None
        except BaseException as error:
            is_stopped = True
            outcome = [], error
        done.put((number, *outcome))

    results, errors = dict[int, Result](), dict[int, BaseException]()
    with ThreadPoolExecutor(count or os.cpu_count()) as pool:
        try:
            total, due = 0, 0.0
            for total, own in enumerate(arguments, 1):
                with delay_interrupts():
                    pool.submit(work, total, own)
            while len(results) + len(errors) < total:
                with suppress(Empty):
                    number, result, error = done.get(timeout=POLL_SECONDS)
                    if error is None:
                        results[number] = result[0]
                    else:
                        errors[number] = error
                if len(results) == total or time.monotonic() >= due:
                    due = time.monotonic() + POLL_SECONDS
                    on_done(list(results.values()))
                notify_listeners()
            with delay_interrupts():  # they are idle
                pool.shutdown()
        except BaseException:
            is_stopped = True
            pool.shutdown(cancel_futures=True)
            raise
    for number in sorted(errors):
        if not isinstance(errors[number], StoppedError):
            raise errors[number]
    return [results[number] for number in sorted(results)]


# The limit of BLAS threads, once for each block that is under way.
_limit_lock, _limits = threading.Lock(), dict[object, Any]()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread: more are slower here, and change the last bits of a draw.

    Of blocks that overlap the first sets the limit, and the last one takes it away.
    """
    block = object()
    try:
        with _limit_lock:
            if _limits:
                _limits[block] = next(iter(_limits.values()))
            else:
                with delay_interrupts():
                    _give_up_control()  # of a thread that has set a limit of its own
                    _limits[block] = _blas().limit(limits=1, user_api="blas")
        yield
    finally:
        try:
            _end_limit(block)
        finally:
            _end_limit(block)  # Ctrl-C may have come before


def _end_limit(block: object) -> None:
    with _limit_lock:
        if list(_limits) == [block]:
            _give_up_control()  # of the thread that came first
            _limits[block].restore_original_limits()
            _give_up_control()  # of this one
        _limits.pop(block, None)


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
