"""Tasks and backends: how the replicates of a study are computed.

A task is a block of replicates of one cell. A `Backend` runs tasks in this process, in
threads, in processes or on a Dask cluster, with the same results.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from multiprocessing import active_children
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from dpsample.core import check, pauses
from dpsample.experiments.configuration import (
    Bundle,
    Configuration,
    StudyData,
    check_environment,
    import_extra,
    load,
)
from dpsample.experiments.study import Params, Study, key_of, seeds_of

Kind = Literal["threads", "processes"]
# Number of tasks that are sent ahead for each worker, so that none is ever idle.
TASKS_AHEAD = 2
LOST = (
    "workers or their scheduler ended ({}), perhaps because memory ran out. Finished"
    " rows are stored: go on with --resume, and with fewer jobs if it happens again"
)


class CellError(RuntimeError):
    """A cell raised an error, which is a bug of the study."""


class Setting(NamedTuple):
    """Data that all tasks of a run share."""

    bundle: Bundle
    environment: Configuration
    digests: dict[str, str]


class Task(NamedTuple):
    """A block of replicates of one cell."""

    params: Params
    replicates: tuple[int, ...]


class Row(NamedTuple):
    """Result of one replicate. The time of a block is divided evenly."""

    key: str
    replicate: int
    seconds: float
    values: dict[str, float]


Keep = Callable[[list[Row]], None]


def run(setting: Setting, task: Task) -> list[Row]:
    """Compute the rows of a task; an error names its cell."""
    check_environment(setting.environment)
    study = load(setting.bundle)
    _limit_worker()
    seeds = seeds_of(
        study.name, task.params, task.replicates, root=study.seed, paired=study.paired
    )
    data: tuple[StudyData, ...] = ()
    if study.data:
        data = (StudyData(setting.bundle, study, setting.digests),)
    begin = time.perf_counter()
    try:
        values = _measure(study, task.params, seeds, data)
    except Exception as error:
        first, last = task.replicates[0], task.replicates[-1]
        raise CellError(
            f"Study {study.name} failed in cell {key_of(task.params)}, replicates"
            f" {first} to {last}: {type(error).__name__}: {error}"
        ) from error
    seconds = (time.perf_counter() - begin) / len(seeds)
    key = key_of(task.params)
    return [
        Row(key, replicate, seconds, row_values)
        for replicate, row_values in zip(task.replicates, values, strict=True)
    ]


def one_blas_thread() -> threadpool_limits:
    """Limit BLAS to one thread during a block, because threads change last digits."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call

    return threadpool_limits(1, "blas")


# In a worker the limit stays for good. In the main process the block of a run ends it.
_limit_worker = cache(one_blas_thread)


def _measure(
    study: Study,
    params: Params,
    seeds: list[np.random.SeedSequence],
    data: tuple[StudyData, ...],
) -> list[dict[str, float]]:
    """Return the values of each replicate. A cell gets a copy of the parameters."""
    if study.cell is not None:
        rows = [study.cell(dict(params), seed, *data) for seed in seeds]
        return [_numbers(study, row) for row in rows]
    assert study.batch is not None
    columns = study.batch(dict(params), seeds, *data)
    check.instance(Mapping, batch=columns)
    for name, column in columns.items():
        if np.shape(column) != (len(seeds),):
            shape = f"shape {np.shape(column)}"
            check.fail(f"metric {name}", f"of shape ({len(seeds)},)", shape)
    return [
        _numbers(study, {name: column[i] for name, column in columns.items()})
        for i in range(len(seeds))
    ]


def _numbers(study: Study, values_of_cell: Mapping[str, float]) -> dict[str, float]:
    """Return the values of declared metrics as floats, in the declared order."""
    check.instance(Mapping, cell=values_of_cell)
    metric_names = [metric.name for metric in study.metrics]
    for name in values_of_cell:
        check.one_of(metric_names, metric=name, remedy="Declare it in metrics.")
    values = {
        name: float(values_of_cell[name])
        for name in metric_names
        if name in values_of_cell
    }
    for name, value in values.items():
        if math.isnan(value):
            remedy = "Leave out what has no meaning in this cell."
            check.fail(f"metric {name}", "a number", "nan", remedy)
    return values


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where tasks run. No option can change a result.

    Kernels release the interpreter lock, so threads are enough unless a cell is mostly
    Python. Starting a process takes seconds.
    """

    jobs: int = 1  # number of threads or processes. A cluster has its own
    kind: Kind = "threads"
    dask: str | None = None  # address of a Dask scheduler

    def __post_init__(self) -> None:
        """Check the number and the word."""
        check.integer(1, jobs=self.jobs)
        check.one_of(("threads", "processes"), kind=self.kind)

    def __str__(self) -> str:
        """Return a description for the store."""
        if self.dask is not None:
            return f"dask {self.dask}"
        return "serial" if self.jobs == 1 else f"{self.jobs} {self.kind}"

    def run(self, setting: Setting, todo: Iterable[Task], keep: Keep) -> None:
        """Run all tasks, and pass the rows of each to ``keep`` when it is done.

        After an error or Ctrl-C this includes the tasks that have finished until then.
        """
        waiting = iter(todo)
        if self.dask is not None:
            with self._cluster() as (executor, ahead):
                _drive(executor, ahead, partial(run, setting), waiting, keep)
        elif self.jobs == 1:
            for task in waiting:
                keep(run(setting, task))
        elif self.kind == "threads":
            # Threads cannot be stopped, so their tasks are waited for and kept.
            with ThreadPoolExecutor(self.jobs) as threads:
                call = partial(run, setting)
                _drive(threads, self._ahead, call, waiting, keep, waits=True)
        else:
            # The first task compiles the functions that the processes then load.
            for task in islice(waiting, 1):
                keep(run(setting, task))
            with self._processes() as processes:
                call = partial(run, setting)
                _drive(processes, self._ahead, call, waiting, keep)

    def _ahead(self) -> int:
        return TASKS_AHEAD * self.jobs

    @contextmanager
    def _processes(self) -> Iterator[Executor]:
        """Open a pool of processes, and end them if the block fails."""
        loky = import_extra("joblib.externals.loky", "studies")
        others = set(active_children())
        # Workers watch their parent from the beginning, so that a worker that waits for
        # work ends with it.
        executor = loky.ProcessPoolExecutor(
            self.jobs, initializer=_leave_with, initargs=(os.getpid(),)
        )
        try:
            yield executor
        except BaseException:
            # The executor does not terminate them while tasks wait or are cancelled.
            for process in set(active_children()) - others:
                process.terminate()
            raise
        finally:
            executor.shutdown(wait=True)

    @contextmanager
    def _cluster(self) -> Iterator[tuple[Executor, Callable[[], int]]]:
        """Open a Dask cluster. Also yield a function of the tasks to send ahead."""
        distributed = import_extra("distributed", "distributed")
        with distributed.Client(self.dask, set_as_default=False) as client:
            try:  # the number of workers may change
                yield (
                    client.get_executor(),
                    lambda: TASKS_AHEAD * max(1, sum(client.ncores().values())),
                )
            except distributed.KilledWorker as error:  # one task ended four workers
                raise OSError(LOST.format("KilledWorker")) from error


def _drive(
    executor: Executor,
    ahead: Callable[[], int],
    call: Callable[[Task], list[Row]],
    waiting: Iterator[Task],
    keep: Keep,
    *,
    waits: bool = False,
) -> None:
    """Run tasks by an executor, with at most ``ahead()`` of them submitted at a time.

    After an error, tasks that have not begun are cancelled. Running ones are waited for
    if ``waits``, and the rows of all that have finished are kept.
    """
    pending: set[Future[list[Row]]] = set()
    done: SimpleQueue[Future[list[Row]]] = SimpleQueue()
    try:
        while True:
            for task in islice(waiting, max(ahead() - len(pending), 0)):
                with pauses.delay_interrupts():
                    future = executor.submit(call, task)
                    pending.add(future)
                    future.add_done_callback(done.put)
            if not pending:
                return
            # A wait without a timeout would not react to a signal that another thread
            # received. In a wait for futures, which uses `threading`, Ctrl-C can become
            # a RuntimeError.
            try:
                future = done.get(timeout=0.2)  # seconds
            except Empty:
                continue
            keep(future.result())
            pending.remove(future)
    except BaseException as error:
        running = [future for future in pending if not future.cancel()]
        if waits:
            wait(running)
        for future in running:
            if future.done() and future.exception() is None:
                keep(future.result())
        # Besides the lines above, a Dask client that lost its scheduler cancels tasks.
        if isinstance(error, CancelledError | BrokenExecutor):
            raise OSError(LOST.format(type(error).__name__)) from error
        raise


def _leave_with(parent: int) -> None:
    """End this process soon after its parent, even if that is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
