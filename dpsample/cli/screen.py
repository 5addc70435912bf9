"""What commands print: plain text and tables, without markup of file contents."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from rich.console import Console
from rich.table import Table
from rich.text import Text

NOT_PRIVATE = "NOT PRIVATE: computed from the records, for you alone"


class _Console(Console):
    """A console whose errors are errors: Rich would end the process after some."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called while the error is handled


def console() -> Console:
    """Return a console that prints brackets and numbers as they are."""
    return _Console(markup=False, highlight=False, soft_wrap=True)


@contextmanager
def any_text() -> Iterator[None]:
    """Print what the terminal's encoding lacks as escapes, instead of failing."""
    with ExitStack() as undo:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                undo.callback(stream.reconfigure, errors=stream.errors)
                stream.reconfigure(errors="backslashreplace")
        yield


def flush() -> None:
    """Print what is still in memory, so that a failure is known before the end."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def abandon() -> None:
    """Let nothing more fail on a stdout that is broken, at exit least of all."""
    try:
        flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            broken = sys.stdout.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, broken)
            os.close(nowhere)


def tell(text: str) -> None:
    """Print one line on stderr, if that is possible."""
    with suppress(OSError, ValueError):
        line = plain(" ".join(f"dpsample: {text}".split()))
        print(line, file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """Show control characters as escapes: a file's names must not steer a terminal."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table, its first column to the left and the others to the right."""
    result = Table(title=title, title_justify="left")
    for j, name in enumerate(head):
        result.add_column(name, justify="right" if j else "left")
    for row in rows:
        result.add_row(*(Text(plain(cell)) for cell in row))
    return result
