"""The environment that a toy study reads, and the rows of its store."""

import sqlite3
from contextlib import closing

import pytest


@pytest.fixture
def environment(monkeypatch):
    """What the toy reads from the environment is gone after the test."""
    monkeypatch.setenv("TOY_RECORDS", "")


def num_rows(path):
    """Rows that another process has stored so far."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as found:
            return found.execute("select count(*) from rows").fetchone()[0]
    except sqlite3.OperationalError:  # no table yet
        return 0
