"""Ways to run the tasks: here, in threads, in processes, on a Dask cluster."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, Literal

from dpsample import _check as check
from dpsample.studying import tasks
from dpsample.studying.extras import required
from dpsample.studying.tasks import Row, Setting, Task

Kind = Literal["threads", "processes"]
# Tasks that wait beside those that run, so that no worker is ever idle.
AHEAD = "2 * n_jobs"
POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where tasks run. Nothing here can change a number.

    Attributes
    ----------
    jobs : int
        Threads or processes; a cluster uses what it has.
    kind : {"threads", "processes"}
        Kernels release the interpreter lock, so threads are enough unless a cell is
        mostly Python; starting a process takes seconds.
    dask : str, optional
        Address of a Dask scheduler.
    """

    jobs: int = 1
    kind: Kind = "threads"
    dask: str | None = None

    def __post_init__(self) -> None:
        """Check the number and the word."""
        check.integer(1, jobs=self.jobs)
        check.one_of(("threads", "processes"), kind=self.kind)

    def __str__(self) -> str:
        """Words for the store."""
        if self.dask is not None:
            return f"dask {self.dask}"
        return "serial" if self.jobs == 1 else f"{self.jobs} {self.kind}"

    @contextmanager
    def results(
        self, setting: Setting, todo: Iterable[Task]
    ) -> Iterator[Iterator[list[Row]]]:
        """Rows of each task, in whatever order they are done."""
        if self.dask is not None:
            with self._cluster(setting, todo) as found:
                yield found
        elif self.jobs == 1:
            yield (tasks.run(setting, task) for task in todo)
        elif self.kind == "threads":
            yield _fan_out("threading", self.jobs, setting, todo)
        else:
            with closing(_in_processes(self.jobs, setting, iter(todo))) as found:
                yield found

    @contextmanager
    def _cluster(
        self, setting: Setting, todo: Iterable[Task]
    ) -> Iterator[Iterator[list[Row]]]:
        distributed = required("distributed", "distributed")
        joblib = required("joblib", "studies")
        with distributed.Client(self.dask, set_as_default=True):
            with joblib.parallel_config("dask"):
                yield _fan_out(None, None, setting, todo)


def _fan_out(
    backend: str | None,
    jobs: int | None,
    setting: Setting,
    todo: Iterable[Task],
    run: Callable[[Setting, Task], list[Row]] = tasks.run,
) -> Any:
    joblib = required("joblib", "studies")
    parallel = joblib.Parallel(
        n_jobs=jobs,
        backend=backend,
        return_as="generator_unordered",
        pre_dispatch=AHEAD,
        batch_size=1,
    )
    return parallel(joblib.delayed(run)(setting, task) for task in todo)


def _in_processes(
    jobs: int, setting: Setting, waiting: Iterator[Task]
) -> Generator[list[Row]]:
    for task in islice(waiting, 1):  # compiles here what the processes then load
        yield tasks.run(setting, task)
    child = partial(_in_child, os.getpid())
    yield from _fan_out("loky", jobs, setting, waiting, child)


def _in_child(parent: int, setting: Setting, task: Task) -> list[Row]:
    _leave_with(parent)
    return tasks.run(setting, task)


@cache
def _leave_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
