"""What commands print and keep: plain text without markup, and every draw.

What was drawn is kept, whatever fails afterwards, in a file that is named.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpsample.core import check, files

NOT_PRIVATE = "NOT PRIVATE: computed from the records, for you alone"
Save = Callable[[Path], None]
Side = Literal["left", "right"]


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


def table(
    title: str,
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    sides: Sequence[Side] = ("left",),
) -> Table:
    """Return a table, columns without a side to the right."""
    result = Table(title=title, title_justify="left")
    for j, name in enumerate(head):
        result.add_column(name, justify=sides[j] if j < len(sides) else "right")
    for row in rows:
        result.add_row(*(Text(plain(cell)) for cell in row))
    return result


class KeptError(Exception):
    """Something failed after the draw; the message says where the draw is."""


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled modules make it an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def check_outputs(*others: Path | None, **outputs: Path | None) -> None:
    """Refuse, before the draw, outputs that would fail after it or replace an input."""
    for name, path in outputs.items():
        if path is None:
            continue
        files.check_output(name, path)
        if any(other is not None and _are_one(path, other) for other in others):
            check.fail(name, "another file than the others", str(path))
    if all(path is None for path in outputs.values()):
        if sys.stdout is None or sys.stdout.closed:
            check.fail("stdout", "open", "none", "Name a file with --output.")


def _are_one(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.resolve() == other.resolve()


@contextmanager
def kept(
    save: Save, output: Path | None, suffix: str, text: Callable[[], str] | None = None
) -> Iterator[Path | None]:
    """Save what was drawn, and guard what follows.

    Gives the file in which it is: ``output``, or a private one in the temporary folder
    if that fails, or None: then the block prints it. If what follows fails, whatever
    the reason, it is in a file, or its ``text`` on stderr.

    Raises
    ------
    KeptError
        At the end of the block, if ``output`` or stdout could not be written.
    """
    place, reason = None, ""
    try:
        if output is not None:
            save(output)
            place = output
    except OSError as error:
        reason = f"{output} could not be written ({_message(error)})"
        place = _spare(save, suffix)
    except BaseException:
        tell(_last_resort(_spare(save, suffix), text))
        raise
    try:
        yield place
        flush()
    except BaseException as error:
        where = _last_resort(place or _spare(save, suffix), text)
        if isinstance(error, OSError | ValueError):
            reason = reason or f"the output was cut short ({_message(error)})"
            raise KeptError(f"{reason}. {where}") from error
        tell(where)
        raise
    if reason:
        raise KeptError(f"{reason}. {_where(place, text)}")


def _message(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _where(place: Path | None, text: Callable[[], str] | None) -> str:
    if place is not None:
        return f"What was drawn is in {place}."
    return "What was drawn is lost." if text is None else "What was drawn is printed."


def _last_resort(place: Path | None, text: Callable[[], str] | None) -> str:
    """Say where it is; if no file has it, print it first."""
    if place is None and text is not None:
        with suppress(OSError, ValueError):
            print(text(), file=sys.stderr, flush=True)
    return _where(place, text)


def _spare(save: Save, suffix: str) -> Path | None:
    """Private file that holds what was drawn; None if there is room for none."""
    try:
        descriptor, name = tempfile.mkstemp(suffix=suffix, prefix="dpsample-")
    except OSError:
        return None
    os.close(descriptor)
    place = Path(name)
    try:
        save(place)
    except OSError:
        place.unlink(missing_ok=True)
        return None
    return place
