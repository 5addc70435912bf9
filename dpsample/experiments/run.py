"""Runs of a study: what is missing in its store is computed and appended.

Rows are only added. A transaction is written ahead to a log whose frames carry
checksums, so after a kill the file holds the transactions that were finished. They
survive the process without waiting for the disk: 0.1 ms each, where waiting costs 5 ms
and one Parquet part 10 ms. After a power failure the last ones may be missing.
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

Reasons = dict[str, dict[str, str]]  # by cell and metric
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
    """Time left of a run. Cells differ a thousandfold in cost, so each has its mean."""

    def __init__(self, todo: Iterable[Task]) -> None:
        self._waiting: Counter[str] = Counter()
        for task in todo:
            self._waiting[key_of(task.params)] += len(task.replicates)
        self._unknown = sum(self._waiting.values())  # replicates of cells without rows
        self._costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._known = 0.0  # seconds of work that wait in cells with rows
        self._begin = time.monotonic()
        self.done, self._spent = 0, 0.0

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows that are done."""
        for row in rows:
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
        """Seconds left at the pace so far; NaN before the first row."""
        if self._spent <= 0.0:
            return math.nan
        work = self._known + self._unknown * self._spent / self.done
        return max(work, 0.0) * (now - self._begin) / self._spent


Done = dict[str, set[int]]


def store_path(study: str, output: Path, *, quick: bool) -> Path:
    """File of the rows of a full or a quick run."""
    return folder_of(output, quick=quick) / f"{study}.sqlite"


def folder_of(output: Path, *, quick: bool) -> Path:
    """Folder of everything that a full or a quick run leaves."""
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
    """Compute the missing rows of a study. Return how many.

    The store is in the folder ``output``, a quick run's below it. Tasks run here, one
    after the other, unless there is a backend; ``progress`` shows what is done and the
    time left, in a terminal or notebook.

    Raises
    ------
    ValueError
        If there are rows and ``resume`` is false, or they are of another configuration.
    KeyboardInterrupt
        After Ctrl-C. Rows of finished tasks are stored.
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
            remedy = "Pass --resume to go on, or delete that file to start afresh."
            check.fail("store", "empty", f"{path} with rows", remedy)
        reasons = declared_reasons(study, quick=quick)
        for cell in study.cells(quick=quick):  # a typo costs no replicate
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
    """Evaluate the exponent of every fit that there may be."""
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
    """Reasons why references do not apply, for each cell and metric that has one."""
    reasons: Reasons = defaultdict(dict)
    for cell in study.cells(quick=quick):
        for metric in study.metrics:
            for entry in study.inapplicable:
                if entry.concerns(metric.name, cell.params):
                    reasons[cell.key].setdefault(metric.name, entry.reason)
    return dict(reasons)


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


@contextmanager
def _display(
    is_wanted: bool, name: str, todo: list[Task]
) -> Iterator[Callable[[list[Row]], None]]:
    total, clock = sum(len(task.replicates) for task in todo), Clock(todo)
    line: AbstractContextManager[Callable[..., None]]
    line = nullcontext(lambda done, left: None)
    # To ask `progress` costs the import of every sampler.
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
    """What is known of a run: its configuration and what it declared beforehand."""

    number: int
    configuration: Configuration
    declared: Reasons
    backend: str
    started: str


class Store:
    """The file of one study, open."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._run: tuple[int | None, str] = (None, "")  # and its configuration

    def begin(
        self, configuration: Configuration, declared: Reasons, backend: str
    ) -> None:
        """Note a run. Refuse one of another configuration than the rows'."""
        started = time.strftime("%Y-%m-%d %H:%M:%S %z")
        text = (
            json.dumps(configuration),
            json.dumps(declared),
            backend,
            started,
        )
        with self._connection:
            self._start()
            if not self.done():
                self._connection.execute("delete from runs")
            for run in self.runs()[:1]:
                for name in differences(run.configuration, configuration):
                    check.fail(
                        f"{name} of the run",
                        f"{run.configuration.get(name)!r}, as in {self.path}",
                        repr(configuration.get(name)),
                        "Delete that file to start afresh, or choose another --output.",
                    )
            cursor = self._connection.execute(
                "insert into runs (configuration, declared, backend, started)"
                " values (?, ?, ?, ?)",
                text,
            )
        self._run = cursor.lastrowid, text[0]

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, all or none. A row that is there already is the same.

        A run that began elsewhere while there were no rows has taken this one's place.
        """
        number, configuration = self._run
        if not self.path.is_file():  # Linux goes on writing to what nobody can open
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
        """Replicates that there are, by cell."""
        done: dict[str, set[int]] = defaultdict(set)
        pairs = self._connection.execute("select cell, replicate from rows")
        for key, replicate in pairs:
            done[key].add(replicate)
        return done

    def rows(self) -> list[Row]:
        """Every row, by cell and replicate."""
        rows = self._connection.execute(
            "select cell, replicate, seconds, metrics from rows"
            " order by cell, replicate"
        )
        return [Row(key, i, s, json.loads(text)) for key, i, s, text in rows]

    def runs(self) -> list[StoredRun]:
        """Every run, the first one first."""
        runs = self._connection.execute(
            "select run, configuration, declared, backend, started from runs"
            " order by run"
        )
        return [
            StoredRun(n, json.loads(c), json.loads(d), *rest) for n, c, d, *rest in runs
        ]

    def sources(self) -> dict[str, set[int]]:
        """Return the runs that have computed rows, by cell."""
        runs: dict[str, set[int]] = defaultdict(set)
        for key, run in self._connection.execute("select distinct cell, run from rows"):
            runs[key].add(run)
        return runs

    def _start(self) -> None:
        """Start a transaction, without what Ctrl-C left of one between two lines."""
        if self._connection.in_transaction:
            self._connection.rollback()
        self._connection.execute("begin immediate")


@contextmanager
def open_store(path: Path, *, writing: bool = False) -> Iterator[Store]:
    """Open the file. Only a run makes one that is not there."""
    if not writing and not path.is_file():
        remedy = "Run the study first: dpsample study run NAME."
        check.fail("results", "a file of an earlier run", f"no {path}", remedy)
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
        remedy = "Move it away to start afresh."
        check.fail("results", f"readable in {path}", f"{error}", remedy)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    (layout,) = connection.execute("pragma user_version").fetchone()
    if layout == 0:
        connection.executescript(f"{TABLES} pragma user_version = {LAYOUT};")
    elif layout != LAYOUT:
        remedy = "Use the version that wrote it, or move it away."
        check.fail("layout", f"{LAYOUT} in {path}", str(layout), remedy)
