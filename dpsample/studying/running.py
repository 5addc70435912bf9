"""Run a study: what is missing in its store is computed and appended."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from dpsample import _check as check
from dpsample.studying.backends import Backend
from dpsample.studying.cells import Cell
from dpsample.studying.clock import Clock
from dpsample.studying.configuration import configuration, environment
from dpsample.studying.loading import Bundle, load
from dpsample.studying.store import opened
from dpsample.studying.study import Study
from dpsample.studying.tasks import Row, Setting, Task, one_blas_thread

Done = dict[str, set[int]]


def store_path(study: str, output: Path, *, quick: bool) -> Path:
    """File of the rows of a full or a quick run."""
    return folder_of(output, quick=quick) / f"{study}.sqlite"


def folder_of(output: Path, *, quick: bool) -> Path:
    """Folder of everything that a full or a quick run leaves."""
    return output / "quick" if quick else output


def run(
    given: Bundle,
    output: Path,
    *,
    quick: bool = False,
    backend: Backend | None = None,
    resume: bool = False,
    progress: bool = True,
) -> int:
    """Compute the missing rows of a study.

    Parameters
    ----------
    given : Bundle
        The study, from `loading.bundle`.
    output : Path
        Folder of the store.
    quick : bool
        Run the quick cells, in a store of their own.
    backend : Backend, optional
        Where tasks run; by default here, one after the other.
    resume : bool
        Go on with the rows of an earlier run.
    progress : bool
        Show what is done and the time left, in a terminal or notebook.

    Returns
    -------
    int
        Number of rows that were computed.

    Raises
    ------
    ValueError
        If there are rows and ``resume`` is false, or they are of another configuration.
    KeyboardInterrupt
        After Ctrl-C; rows of finished tasks are stored.
    """
    backend = backend or Backend()
    study = load(given)
    found = configuration(given, study)
    digests = {name: found[f"data {name}"] for name in study.data}
    setting = Setting(given, environment(), digests)
    path = store_path(study.name, output, quick=quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, writing=True) as store:
        done = store.done()
        if done and not resume:
            remedy = "Pass --resume to go on, or delete that file to start afresh."
            check.fail("store", "empty", f"{path} with rows", remedy)
        store.begin(found, declared(study, quick=quick), str(backend))
        todo = list(missing(study, done, quick=quick))
        total = sum(len(task.replicates) for task in todo)
        with one_blas_thread(), _display(progress, study.name, todo) as on_rows:

            def keep(rows: list[Row]) -> None:
                store.add(rows)
                on_rows(rows)

            backend.run(setting, todo, keep)
    return total


def declared(study: Study, *, quick: bool) -> dict[str, dict[str, str]]:
    """Reasons why references do not apply, for each cell and metric that has one."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for cell in study.cells(quick=quick):
        for metric in study.metrics:
            for entry in study.inapplicable:
                if entry.concerns(metric.name, cell.params):
                    found[cell.key].setdefault(metric.name, entry.reason)
    return dict(found)


def missing(study: Study, done: Done, *, quick: bool) -> Iterator[Task]:
    """Tasks in rounds, one task of every cell in each: all cells grow together."""
    cells = study.cells(quick=quick)
    waiting = [list(_blocks(study, cell, done, quick=quick)) for cell in cells]
    for turn in range(max(len(blocks) for blocks in waiting)):
        for cell, blocks in zip(cells, waiting, strict=True):
            if turn < len(blocks):
                yield Task(cell.params, blocks[turn])


def _blocks(
    study: Study, cell: Cell, done: Done, *, quick: bool
) -> Iterator[tuple[int, ...]]:
    number = study.replicates_of(cell, quick=quick)
    left = [i for i in range(number) if i not in done.get(cell.key, ())]
    size = study.block or (1 if study.cell is not None else number)
    for first in range(0, len(left), size):
        yield tuple(left[first : first + size])


def _counter(
    is_wanted: bool, name: str, total: int
) -> AbstractContextManager[Callable[..., None]]:
    # To ask `progress` costs the import of every sampler.
    if is_wanted and ("IPython" in sys.modules or sys.stderr.isatty()):
        from dpsample import progress as screen

        if screen.is_shown():
            return screen.counter(f"study {name}", "replicates", total)
    return nullcontext(lambda done, left: None)


@contextmanager
def _display(
    is_wanted: bool, name: str, todo: list[Task]
) -> Iterator[Callable[[list[Row]], Any]]:
    total = sum(len(task.replicates) for task in todo)
    with _counter(is_wanted, name, total) as show:
        clock = Clock(todo)

        def on_rows(rows: list[Row]) -> None:
            clock.add(rows)
            show(clock.done, clock.left(time.monotonic()))

        yield on_rows
