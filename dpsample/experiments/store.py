"""Rows of a study in one SQLite file: each complete or absent, whatever happens.

Rows are only added. A transaction is written ahead to a log whose frames carry
checksums, so after a kill the file holds the transactions that were finished. They
survive the process without waiting for the disk: 0.1 ms each, where waiting costs 5 ms
and one Parquet part 10 ms. After a power failure the last ones may be missing.
"""

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dpsample.core import check
from dpsample.experiments.configuration import Configuration, differences
from dpsample.experiments.tasks import Row

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


class StoredRun(NamedTuple):
    """What is known of a run: its configuration and what it declared beforehand."""

    configuration: Configuration
    declared: Reasons
    backend: str
    started: str


class Store:
    """The file of one study, open."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._run: int | None = None

    def begin(
        self, configuration: Configuration, declared: Reasons, backend: str
    ) -> None:
        """Note a run; refuse one of another configuration than the rows'."""
        if not self.done():
            self._connection.execute("delete from runs")
        runs = self.runs()
        for name in differences(runs[0].configuration, configuration) if runs else ():
            was, now = (c.get(name) for c in (runs[0].configuration, configuration))
            check.fail(
                f"{name} of the run",
                f"{was!r}, as for the rows in {self.path}",
                repr(now),
                "Delete that file to start afresh, or choose another --output.",
            )
        started = time.strftime("%Y-%m-%d %H:%M:%S %z")
        text = (json.dumps(configuration), json.dumps(declared), backend, started)
        with self._connection:
            self._start()
            cursor = self._connection.execute(
                "insert into runs (configuration, declared, backend, started)"
                " values (?, ?, ?, ?)",
                text,
            )
        self._run = cursor.lastrowid

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, all or none; a row that is there already is the same."""
        with self._connection:
            self._start()
            self._connection.executemany(
                "insert or ignore into rows values (?, ?, ?, ?, ?)",
                [
                    (r.key, r.replicate, self._run, r.seconds, json.dumps(r.values))
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
            "select configuration, declared, backend, started from runs order by run"
        )
        return [StoredRun(json.loads(c), json.loads(d), *rest) for c, d, *rest in runs]

    def _start(self) -> None:
        """Start a transaction, without what Ctrl-C left of one between two lines."""
        if self._connection.in_transaction:
            self._connection.rollback()
        self._connection.execute("begin immediate")


@contextmanager
def opened(path: Path, *, writing: bool = False) -> Iterator[Store]:
    """Open the file; only a run makes one that is not there."""
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
