"""What commands print: plain text and tables, without markup of file contents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpsample import _check as check

NOT_PRIVATE = "NOT PRIVATE: computed from the records, for you alone"


def console() -> Console:
    """Return a console that prints brackets and numbers as they are."""
    return Console(markup=False, highlight=False, soft_wrap=True)


def check_folder(path: Path) -> None:
    """Refuse an output file whose folder does not exist."""
    if not path.resolve().parent.is_dir():
        check.fail("output", "a file in an existing folder", str(path))


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Any:
    """Return a table, its first column to the left and the others to the right."""
    result = Table(title=title, title_justify="left")
    for j, name in enumerate(head):
        result.add_column(name, justify="right" if j else "left")
    for row in rows:
        result.add_row(*(Text(cell) for cell in row))
    return result
