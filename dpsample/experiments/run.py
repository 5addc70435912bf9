"""Runs of a study, which compute the rows that are missing in its store.

The store is an SQLite file. A row has the results of one replicate of one cell. Rows
are only added, and every run is noted with its configuration.

Transactions are written ahead to a log whose frames have checksums, so a process that
is killed leaves the transactions that were finished. They do not wait for the disk (0.1
ms each instead of 5 ms), so after a power failure the last ones may be missing.
"""

import json
import math
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from dpsample.core import check, files
from dpsample.experiments.configuration import (
    Bundle,
    Configuration,
    configuration,
    differences,
    environment,
    load,
)
from dpsample.experiments.study import (
    MIN_FIT_POINTS,
    Cell,
    Study,
    exponent_of,
    fixed_of,
    key_of,
)
from dpsample.experiments.summaries import evaluate
from dpsample.experiments.tasks import Backend, Row, Setting, Task, one_blas_thread

# Reasons why references do not apply, by cell and metric.
Reasons = dict[str, dict[str, str]]
# Version of the tables below, which SQLite keeps as user_version.
LAYOUT = 1
TABLES = """
create table if not exists runs (
    run integer primary key,
    configuration text not null,
    declared text not null,
    backend text not null,
    started text not null
);
create table if not exists rows (
    cell text not null,
    replicate integer not null,
    run integer not null,
    seconds real not null,
    metrics text not null,
    primary key (cell, replicate)
) without rowid;
"""


class Clock:
    """Estimates of the time left of a run.

    Cells differ a thousandfold in their cost, so each has a mean of its own. Cells
    without a row yet are assumed to cost as much as the mean of all rows.
    """

    def __init__(self, todo: Iterable[Task]) -> None:
        self._waiting: Counter[str] = Counter()
        for task in todo:
            self._waiting[key_of(task.params)] += len(task.replicates)
        # Replicates that wait in cells without rows, and seconds in those with rows.
        self._unknown = sum(self._waiting.values())
        self._known = 0.0
        # Seconds and number of rows that are done, by cell.
        self._costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._begin = time.monotonic()
        self.done, self._spent = 0, 0.0

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows that are done."""
        for row in rows:
            # The first row of a cell takes its replicates out of the unknown ones.
            # Later ones change the mean cost of all that wait.
            cost = self._costs[row.key]
            if cost[1] == 0.0:
                self._unknown -= self._waiting[row.key]
            else:
                self._known -= self._waiting[row.key] * cost[0] / cost[1]
            cost[0] += row.seconds
            cost[1] += 1.0
            self._waiting[row.key] -= 1
            self._known += self._waiting[row.key] * cost[0] / cost[1]
            self._spent += row.seconds
            self.done += 1

    def seconds_left(self, now: float) -> float:
        """Return the seconds left at the present pace; NaN before the first row."""
        if self._spent <= 0.0:
            return math.nan
        # Work is in seconds of the tasks. Several of them may run at a time, so it is
        # converted by the ratio of elapsed and spent seconds.
        work = self._known + self._unknown * self._spent / self.done
        return max(work, 0.0) * (now - self._begin) / self._spent


# Replicates in the store, by the key of their cell.
Done = dict[str, set[int]]


def store_path(study: str, output: Path, *, quick: bool) -> Path:
    """Return the path of the store of a full or a quick run."""
    return folder_of(output, quick=quick) / f"{study}.sqlite"


def folder_of(output: Path, *, quick: bool) -> Path:
    """Return the folder of the files of a full or a quick run."""
    return output / "quick" if quick else output


def run(
    bundle: Bundle,
    output: Path,
    *,
    quick: bool = False,
    backend: Backend | None = None,
    resume: bool = False,
    progress: bool = True,
) -> int:
    """Compute the missing rows of a study, and return their number.

    The store is in the folder ``output``, for a quick run in a folder below it. Without
    a backend tasks run in this process, one after the other. ``progress`` shows the
    rows done and the time left, in a terminal or notebook.

    Raises
    ------
    ValueError
        If there are rows and ``resume`` is false, or they are of another configuration.
    KeyboardInterrupt
        After Ctrl-C. The rows of finished tasks are stored.
    """
    backend = backend or Backend()
    study = load(bundle)
    current = configuration(bundle, study)
    digests = {name: current[f"data {name}"] for name in study.data}
    setting = Setting(bundle, environment(), digests)
    path = store_path(study.name, output, quick=quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_store(path, writing=True) as store:
        done = store.done()
        if done and not resume:
            remedy = "Pass --resume to go on, or delete that file to start again."
            check.fail("store", "empty", f"{path} with rows", remedy)
        reasons = declared_reasons(study, quick=quick)
        for cell in study.cells(quick=quick):  # before any replicate is computed
            evaluate(study.metrics, cell, reasons.get(cell.key, {}))
        _check_slopes(study, quick=quick)
        store.begin(current, reasons, str(backend))
        todo = list(missing(study, done, quick=quick))
        total = sum(len(task.replicates) for task in todo)
        with one_blas_thread(), _display(progress, study.name, todo) as on_rows:

            def keep(rows: list[Row]) -> None:
                store.add(rows)
                on_rows(rows)

            backend.run(setting, todo, keep)
    return total


def _check_slopes(study: Study, *, quick: bool) -> None:
    """Evaluate the expected exponent of every possible fit, to find its errors."""
    for slope in study.slopes:
        fixed_parameters = (
            fixed_of(slope, cell.params) for cell in study.cells(quick=quick)
        )
        points = Counter(
            key_of(fixed) for fixed in fixed_parameters if fixed is not None
        )
        for key, number in points.items():
            if number >= MIN_FIT_POINTS:
                exponent_of(slope, json.loads(key))


def declared_reasons(study: Study, *, quick: bool) -> Reasons:
    """Return reasons why references do not apply, by cell and metric."""
    reasons: Reasons = defaultdict(dict)
    for cell in study.cells(quick=quick):
        for metric in study.metrics:
            for entry in study.inapplicable:
                if entry.concerns(metric.name, cell.params):
                    reasons[cell.key].setdefault(metric.name, entry.reason)
    return dict(reasons)


def missing(study: Study, done: Done, *, quick: bool) -> Iterator[Task]:
    """Yield tasks in rounds with one task of every cell, so that all grow together."""
    cells = study.cells(quick=quick)
    waiting = [list(_blocks(study, cell, done, quick=quick)) for cell in cells]
    for number in range(max(len(blocks) for blocks in waiting)):
        for cell, blocks in zip(cells, waiting, strict=True):
            if number < len(blocks):
                yield Task(cell.params, blocks[number])


def _blocks(
    study: Study, cell: Cell, done: Done, *, quick: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the replicates of a cell that are missing, in blocks for one task each."""
    number = study.replicates_of(cell, quick=quick)
    left = [i for i in range(number) if i not in done.get(cell.key, ())]
    size = study.block or (1 if study.cell is not None else number)
    for first in range(0, len(left), size):
        yield tuple(left[first : first + size])


@contextmanager
def _display(
    is_wanted: bool, name: str, todo: list[Task]
) -> Iterator[Callable[[list[Row]], None]]:
    """Show a live line, and return a function that adds rows to it."""
    total, clock = sum(len(task.replicates) for task in todo), Clock(todo)
    line: AbstractContextManager[Callable[..., None]]
    line = nullcontext(lambda done, left: None)
    # The module `progress` would import every sampler, so it is not imported in vain.
    is_seen = "IPython" in sys.modules or files.is_terminal(sys.stderr)
    if is_wanted and is_seen:
        from dpsample.running import progress as screen

        line = screen.counter(f"study {name}", "replicates", total)
    with line as show:

        def on_rows(rows: list[Row]) -> None:
            clock.add(rows)
            show(clock.done, clock.seconds_left(time.monotonic()))

        yield on_rows


class StoredRun(NamedTuple):
    """A run in the store, with its configuration and the exclusions it declared."""

    number: int
    configuration: Configuration
    declared: Reasons
    backend: str
    started: str


class Store:
    """The open store of one study."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._run: tuple[int | None, str] = (None, "")  # number and configuration

    def begin(
        self, configuration: Configuration, declared: Reasons, backend: str
    ) -> None:
        """Note a run. Raise a ValueError if the rows have another configuration."""
        # All in one transaction, as another run may begin at the same time.
        started = time.strftime("%Y-%m-%d %H:%M:%S %z")
        text = (
            json.dumps(configuration),
            json.dumps(declared),
            backend,
            started,
        )
        with self._connection:
            self._start()
            # Runs without a row do not bind a later run to their configuration.
            if not self.done():
                self._connection.execute("delete from runs")
            for run in self.runs()[:1]:
                for name in differences(run.configuration, configuration):
                    check.fail(
                        f"{name} of the run",
                        f"{run.configuration.get(name)!r}, as in {self.path}",
                        repr(configuration.get(name)),
                        "Delete that file to start again, or choose another --output.",
                    )
            cursor = self._connection.execute(
                "insert into runs (configuration, declared, backend, started)"
                " values (?, ?, ?, ?)",
                text,
            )
        self._run = cursor.lastrowid, text[0]

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, all or none. Rows that exist already are equal to the new ones.

        If another run began while there were no rows, it has deleted this one, and a
        ValueError is raised.
        """
        number, configuration = self._run
        if not self.path.is_file():  # on Linux, writing to a deleted file does not fail
            gone = f"results cannot be kept in {self.path}: it was moved or deleted"
            raise FileNotFoundError(gone)
        with self._connection:
            self._start()
            if (number, configuration) not in self._connection.execute(
                "select run, configuration from runs"
            ):
                remedy = "Run one at a time, or choose another --output."
                check.fail("rows", "of a run that is known", f"{self.path}", remedy)
            self._connection.executemany(
                "insert or ignore into rows values (?, ?, ?, ?, ?)",
                [
                    (r.key, r.replicate, number, r.seconds, json.dumps(r.values))
                    for r in rows
                ],
            )

    def done(self) -> dict[str, set[int]]:
        """Return the replicates in the store, by cell."""
        done: dict[str, set[int]] = defaultdict(set)
        pairs = self._connection.execute("select cell, replicate from rows")
        for key, replicate in pairs:
            done[key].add(replicate)
        return done

    def rows(self) -> list[Row]:
        """Return all rows, in the order of cells and replicates."""
        rows = self._connection.execute(
            "select cell, replicate, seconds, metrics from rows"
            " order by cell, replicate"
        )
        return [Row(key, i, s, json.loads(text)) for key, i, s, text in rows]

    def runs(self) -> list[StoredRun]:
        """Return all runs, in the order in which they began."""
        runs = self._connection.execute(
            "select run, configuration, declared, backend, started from runs"
            " order by run"
        )
        return [
            StoredRun(n, json.loads(c), json.loads(d), *rest) for n, c, d, *rest in runs
        ]

    def sources(self) -> dict[str, set[int]]:
        """Return the runs that computed rows, by cell."""
        runs: dict[str, set[int]] = defaultdict(set)
        for key, run in self._connection.execute("select distinct cell, run from rows"):
            runs[key].add(run)
        return runs

    def _start(self) -> None:
        """Start a transaction, after the rollback of one that Ctrl-C may have left."""
        if self._connection.in_transaction:
            self._connection.rollback()
        self._connection.execute("begin immediate")


@contextmanager
def open_store(path: Path, *, writing: bool = False) -> Iterator[Store]:
    """Open a store. Only a run (``writing``) makes a new one."""
    if not writing and not path.is_file():
        remedy = "Run the study first: dpsample study run NAME."
        check.fail("results", "a file written by an earlier run", f"no {path}", remedy)
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=60.0)
        try:
            _prepare(path, connection)
            yield Store(path, connection)
        finally:
            connection.close()
    except sqlite3.OperationalError as error:  # a full disk, another writer
        raise OSError(f"results cannot be kept in {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        remedy = "Move it away to start again."
        check.fail("results", f"readable in {path}", f"{error}", remedy)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Set up a connection, and make or check the tables."""
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    (layout,) = connection.execute("pragma user_version").fetchone()
    if layout == 0:
        connection.executescript(f"{TABLES} pragma user_version = {LAYOUT};")
    elif layout != LAYOUT:
        remedy = "Use the version that wrote it, or move it away."
        check.fail("layout", f"{LAYOUT} in {path}", str(layout), remedy)
