"""Ways to run the tasks: here, in threads, in processes, on a Dask cluster."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Literal

from dpsample.core import check
from dpsample.experiments import tasks
from dpsample.experiments.loading import required
from dpsample.experiments.tasks import Row, Setting, Task

Kind = Literal["threads", "processes"]
Keep = Callable[[list[Row]], None]
# Tasks that are sent for each worker, so that none is ever idle.
AHEAD = 2
POLL_SECONDS, PARENT_POLL_SECONDS = 0.2, 1.0


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where tasks run. Nothing here can change a number.

    Kernels release the interpreter lock, so threads are enough unless a cell is mostly
    Python; starting a process takes seconds.
    """

    jobs: int = 1  # threads or processes; a cluster uses what it has
    kind: Kind = "threads"
    dask: str | None = None  # address of a Dask scheduler

    def __post_init__(self) -> None:
        """Check the number and the word."""
        check.integer(1, jobs=self.jobs)
        check.one_of(("threads", "processes"), kind=self.kind)

    def __str__(self) -> str:
        """Words for the store."""
        if self.dask is not None:
            return f"dask {self.dask}"
        return "serial" if self.jobs == 1 else f"{self.jobs} {self.kind}"

    def run(self, setting: Setting, todo: Iterable[Task], keep: Keep) -> None:
        """Run all tasks; ``keep`` gets the rows of each when it is done.

        After an error or Ctrl-C it still gets those of the tasks that are finished.
        """
        waiting = iter(todo)
        if self.dask is not None:
            with self._cluster() as (executor, ahead):
                _drive(executor, ahead, partial(tasks.run, setting), waiting, keep)
        elif self.jobs == 1:
            for task in waiting:
                keep(tasks.run(setting, task))
        elif self.kind == "threads":
            # Threads cannot be stopped: what they are at is waited for, and kept.
            with ThreadPoolExecutor(self.jobs) as threads:
                call = partial(tasks.run, setting)
                _drive(threads, self._ahead, call, waiting, keep, waits=True)
        else:
            for task in islice(waiting, 1):  # compiles here what processes then load
                keep(tasks.run(setting, task))
            with self._processes() as processes:
                call = partial(_in_child, os.getpid(), setting)
                _drive(processes, self._ahead, call, waiting, keep)

    def _ahead(self) -> int:
        return AHEAD * self.jobs

    @contextmanager
    def _processes(self) -> Iterator[Executor]:
        loky = required("joblib.externals.loky", "studies")
        executor = loky.ProcessPoolExecutor(self.jobs)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True, kill_workers=True)

    @contextmanager
    def _cluster(self) -> Iterator[tuple[Executor, Callable[[], int]]]:
        distributed = required("distributed", "distributed")
        with distributed.Client(self.dask, set_as_default=False) as client:
            # Workers come and go.
            yield (
                client.get_executor(),
                lambda: AHEAD * max(1, sum(client.ncores().values())),
            )


def _drive(
    executor: Executor,
    ahead: Callable[[], int],
    call: Callable[[Task], list[Row]],
    waiting: Iterator[Task],
    keep: Keep,
    *,
    waits: bool = False,
) -> None:
    pending: set[Future[list[Row]]] = set()
    try:
        while True:
            for task in islice(waiting, max(ahead() - len(pending), 0)):
                pending.add(executor.submit(call, task))
            if not pending:
                return
            # A wait without end is deaf to a signal that another thread received.
            done, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            for future in done:
                keep(future.result())
                pending.remove(future)
    except BaseException:
        running = [future for future in pending if not future.cancel()]
        if waits:
            wait(running)
        for future in running:
            if future.done() and future.exception() is None:
                keep(future.result())
        raise


def _in_child(parent: int, setting: Setting, task: Task) -> list[Row]:
    _leave_with(parent)
    return tasks.run(setting, task)


@cache
def _leave_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
