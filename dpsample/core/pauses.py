"""Pauses and threads: kernels that run for long return to Python, and go on later.

A kernel counts units of work, such as steps or proposals, and asks `is_due` after each
of them. If a pause is due, the kernel writes the numbers that it needs to its `Control`
and returns `PAUSED`. The next call goes on with the same random numbers in the same
order. A timer, or a test, decides when a pause comes. It cannot change a draw.

A call of a kernel therefore lasts some hundredths of a second. Between calls Python
raises the KeyboardInterrupt of Ctrl-C and shows progress. The second half of this
module is about threads: Ctrl-C must not leave their locks closed, and an exception in
one thread ends the others at their next pause.
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

# Code that a paused kernel returns. The codes of `samplers.errors` are smaller.
PAUSED = 100
# Seconds after Ctrl-C in which another one counts as the same: the key is held down.
REPEAT_SECONDS = 0.5
# Seconds that the tasks of `ChunkSize` aim at.
CHUNK_SECONDS = 0.03

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


# Kernels that allocate nothing need no counts of references to arrays.
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
    """Thread that asks every call that has lasted for a tick to stop.

    It sleeps on `alarm` while there are no calls.
    """

    def __init__(self) -> None:
        self.controls: dict[int, RecordArray] = {}  # one for each present call
        self.numbers = itertools.count()
        # A queue wakes the thread up. An event of `threading` has a lock in Python
        # code, which Ctrl-C could leave closed: both threads would wait for ever.
        self.is_asleep, self.alarm = False, SimpleQueue[None]()
        self.starting = threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread at the first call."""
        with delay_interrupts(), self.starting:
            if self.thread is None:
                thread = threading.Thread(
                    target=self.run, name="dpsample pauses", daemon=True
                )
                # If the thread cannot be started, the next call tries again.
                thread.start()
                self.thread = thread

    def run(self) -> None:
        """Stop calls that were there at the last tick already."""
        last_controls: dict[int, RecordArray] = {}
        while True:
            if not self.controls:
                self.is_asleep = True
                # A call may have begun since the first look, before it could see that
                # the timer is asleep.
                if not self.controls:
                    self.alarm.get()
                self.is_asleep = False
            # Seconds between two looks of the timer. A call lasts one to two of them,
            # and until the end of its present unit of work.
            time.sleep(0.022)
            controls = self.controls.copy()
            for number in controls.keys() & last_controls.keys():
                controls[number]["must_stop"] = True
            last_controls = controls


_timer = _Timer()
_local = threading.local()


def _renew() -> None:
    """Make a new timer and lock after a fork, which copies no other thread."""
    global _timer, _limit_lock
    _timer, _limit_lock = _Timer(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class Interrupts(list[float]):
    """Times at which Ctrl-C was pressed while `hold_interrupts` held it back."""

    is_raised = False  # whether the next one raises at once, although it is the first


@contextmanager
def hold_interrupts() -> Iterator[Interrupts]:
    """Collect the times of Ctrl-C in a list, instead of raising an exception anywhere.

    A second Ctrl-C raises, except within `REPEAT_SECONDS`. Otherwise a key that is held
    down would lose what the first Ctrl-C saves. Nothing is changed outside the main
    thread, and if Ctrl-C is ignored or its handler is not a Python function.
    """
    times = Interrupts()

    def handler(_number: int, _frame: object) -> None:
        times.append(time.monotonic())
        if times.is_raised or times[-1] > times[0] + REPEAT_SECONDS:
            raise KeyboardInterrupt

    old_handler = signal.getsignal(signal.SIGINT)
    try:
        if old_handler not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, handler)
    except ValueError:
        # This is not the main thread. `threading` does not always know which one is.
        old_handler = None
    try:
        yield times
    finally:
        if old_handler not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, old_handler)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of a short block.

    An exception in the middle of `threading` would leave locks that are never opened.
    """
    with hold_interrupts() as interrupts:
        yield
    if interrupts:
        handler = signal.getsignal(signal.SIGINT)
        # The handler is called without a signal, which asyncio would count as a second
        # Ctrl-C.
        if callable(handler):
            handler(signal.SIGINT, None)
        else:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def listening(on_pause: Callable[[], object]) -> Iterator[None]:
    """Call ``on_pause`` at every pause of this thread. Its exceptions end the call.

    Listeners of enclosing blocks are called first.
    """
    outer_listener = getattr(_local, "on_pause", None)

    def notify_both() -> None:
        if outer_listener is not None:
            outer_listener()
        on_pause()

    _local.on_pause = notify_both
    try:
        yield
    finally:
        _local.on_pause = outer_listener


def notify_listeners() -> None:
    """Call the listeners of this thread. Loops in Python do so in each round."""
    on_pause = getattr(_local, "on_pause", None)
    if on_pause is not None:
        on_pause()


def defer_error(error: BaseException) -> bool:
    """Let the present `call` of this thread stop, and raise an error at its end.

    For callbacks into Python, which may not raise because compiled code called them.
    Return False if there is no call.
    """
    control = getattr(_local, "control", None)
    if control is None:
        return False
    _local.error = error
    control["must_stop"] = True
    return True


def call(
    control: RecordArray, function: Callable[..., Result], *arguments: object
) -> Result:
    """Call a kernel once. The timer asks it to stop by this control."""
    timer = _timer
    if timer.thread is None:
        timer.start()
    number = next(timer.numbers)
    control["must_stop"] = False
    timer.controls[number] = control
    try:
        # The timer looks for calls once more after it has set this flag, so it cannot
        # miss this call. One alarm is enough until it is awake.
        if timer.is_asleep:
            timer.alarm.put(None)
            timer.is_asleep = False
        _local.control, _local.error = control, None
        result = function(*arguments)
    finally:
        _local.control = None
        del timer.controls[number]
    if _local.error is not None:
        raise _local.error
    return result


def fill(control: RecordArray, rows: Callable[[int], tuple[int, int]]) -> int:
    """Call ``rows(first)`` until it returns another code than `PAUSED`, and return it.

    The function fills rows of its own arrays from ``first`` on. It returns a code, and
    the number of rows that it filled.
    """
    first = 0
    while True:
        code, num_rows = call(control, rows, first)
        if code != PAUSED:
            return int(code)
        first += num_rows
        notify_listeners()


class ChunkSize:
    """Number of steps of a task: fixed, or so that the task takes `CHUNK_SECONDS`."""

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed, self.size = fixed, fixed or 1

    def update(self, seconds: float) -> None:
        """Adapt the size to the time that the last task took."""
        if self.fixed is None:
            # A single short measurement may be wrong, so growth is limited.
            growth = CHUNK_SECONDS / max(seconds, 1e-6)
            size = max(1, int(self.size * min(growth, 64.0)))
            # Maximum number of steps of a task. Runs that are shorter than one task
            # would let the size grow without end.
            self.size = min(size, 1_000_000)


class StoppedError(BaseException):
    """Thread that was stopped because another one was interrupted or failed."""


def run_in_threads(
    task: Callable[..., Result],
    arguments: Iterable[tuple[Any, ...]],
    count: int | None,
    on_done: Callable[[list[Result]], object] = lambda results: None,
) -> list[Result]:
    """Return the results of a task for each tuple of arguments, in order.

    There are ``count`` threads, or one for each processor. Ctrl-C and an exception end
    all tasks at their next pause. If there are several exceptions, the first one in the
    order of the tasks is raised. ``on_done`` gets the results so far, repeatedly until
    all are there, in the calling thread.
    """
    # Seconds after which a wait for threads looks for a signal. Python handles signals
    # only when the main thread runs.
    poll_seconds = 0.1
    is_stopped = False
    # Results are passed by a queue, because Ctrl-C in the code that waits for futures
    # could stop all threads for ever.
    done: SimpleQueue[tuple[int, list[Result], BaseException | None]] = SimpleQueue()

    def on_pause() -> None:
        if is_stopped:
            raise StoppedError

    def work(number: int, task_arguments: tuple[object, ...]) -> None:
        nonlocal is_stopped
        try:
            with listening(on_pause):
                notify_listeners()
                outcome: tuple[list[Result], BaseException | None]
                outcome = [task(*task_arguments)], None
        except BaseException as error:
            is_stopped = True
            outcome = [], error
        done.put((number, *outcome))

    results, errors = dict[int, Result](), dict[int, BaseException]()
    with ThreadPoolExecutor(count or os.cpu_count()) as pool:
        try:
            total, next_report = 0, 0.0
            for total, task_arguments in enumerate(arguments, 1):
                with delay_interrupts():
                    pool.submit(work, total, task_arguments)
            while len(results) + len(errors) < total:
                with suppress(Empty):
                    number, result, error = done.get(timeout=poll_seconds)
                    if error is None:
                        results[number] = result[0]
                    else:
                        errors[number] = error
                if len(results) == total or time.monotonic() >= next_report:
                    next_report = time.monotonic() + poll_seconds
                    on_done(list(results.values()))
                notify_listeners()
            with delay_interrupts():  # all threads are idle, so this does not wait
                pool.shutdown()
        except BaseException:
            is_stopped = True
            pool.shutdown(cancel_futures=True)
            raise
    for number in sorted(errors):
        if not isinstance(errors[number], StoppedError):
            raise errors[number]
    return [results[number] for number in sorted(results)]


# The libraries that are limited to one thread, and how many they had, under the key of
# each `single_threaded_blas` block that is under way.
_limit_lock, _limits = threading.Lock(), dict[object, list[tuple[Any, int]]]()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread. More are slower here, and change the last bits.

    If blocks overlap, the first one sets the limit, and the last one removes it.
    """
    block = object()
    try:
        with _limit_lock:
            if _limits:
                _limits[block] = next(iter(_limits.values()))
            else:
                with delay_interrupts():
                    # Another thread may have set a limit of its own.
                    _release_openblas()
                    # `ThreadpoolController.limit` does the same in ten microseconds
                    # more, because it describes all libraries of the process.
                    counts = [(library, library.num_threads) for library in _blas()]
                    _limits[block] = [row for row in counts if row[1] != 1]
                    for library, _ in _limits[block]:
                        library.set_num_threads(1)
        yield
    finally:
        try:
            _end_limit(block)
        finally:
            _end_limit(block)  # once more, if Ctrl-C has interrupted the first call


def _end_limit(block: object) -> None:
    """Forget a block, and restore the number of threads if it is the last one."""
    with _limit_lock:
        if list(_limits) == [block]:
            # The limit may have been set in another thread than this one.
            _release_openblas()
            for library, num_threads in _limits[block]:
                library.set_num_threads(num_threads)
            _release_openblas()
        _limits.pop(block, None)


def _release_openblas() -> None:
    """Let any thread set the limit of OpenBLAS, which accepts it from a single one."""
    import threadpoolctl

    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas() -> list[Any]:
    """Find the BLAS libraries of the process, which takes milliseconds."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().lib_controllers
    return [library for library in libraries if library.user_api == "blas"]
