"""Output of commands: plain text without markup, and files for draws.

A *draw* is the result of a command that drew random numbers: an answer with its
certificate, which has spent privacy budget, or draws for study, which took long. If
something fails after a draw, the draw is kept in a file, and a message names it. The
width of a terminal never cuts a result.
"""

import errno
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpsample.core import check, files

NOT_PRIVATE = "NOT PRIVATE: computed from the records, for you alone"
Save = Callable[[Path], None]
Side = Literal["left", "right"]
# Interval at which a command reports that it runs, if stderr is not a terminal, where a
# progress line would show it.
MINUTE_SECONDS = 60.0


class _Console(Console):
    """A console that raises its errors. Rich would end the process after some."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called while the error is handled


def console(width: int | None = None) -> Console:
    """Return a console that prints brackets, colons and numbers as they are.

    Its width is always given, because Rich believes ``COLUMNS=0``.
    """
    size = shutil.get_terminal_size()
    return _Console(
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=True,
        width=width or size.columns,
        height=size.lines,
    )


@contextmanager
def any_text() -> Iterator[None]:
    """Print characters that the terminal's encoding lacks as escapes."""
    with ExitStack() as undo:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # not if a caller has replaced it
                undo.callback(stream.reconfigure, errors=stream.errors)
                stream.reconfigure(errors="backslashreplace")
        yield


def flush() -> None:
    """Write buffered output now, so that a failure is noticed before the end."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def abandon() -> None:
    """Flush stdout, and give it up if that fails, so that nothing fails at exit."""
    try:
        flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            # Python flushes stdout once more at exit, which would fail again.
            broken = sys.stdout.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, broken)
            os.close(nowhere)


def tell(text: str) -> None:
    """Print one line on stderr, if that is possible."""
    if sys.stderr is None:  # closed by the shell: print would take stdout
        return
    with suppress(OSError, ValueError):
        line = check.escape_controls(" ".join(f"dpsample: {text}".split()))
        print(line, file=sys.stderr, flush=True)


@contextmanager
def heartbeat(command: str) -> Iterator[None]:
    """Report each minute on stderr that a command runs, unless it is a terminal."""
    if files.is_terminal(sys.stderr):
        yield
        return
    # A queue, because Ctrl-C in the locks of an event could stop both threads for good.
    end, begin = SimpleQueue[None](), time.monotonic()

    def beat() -> None:
        while True:
            with suppress(Empty):
                end.get(timeout=MINUTE_SECONDS)
                return
            minutes = (time.monotonic() - begin) / 60.0
            tell(f"{command}: {minutes:.0f} min so far")

    threading.Thread(target=beat, name="dpsample minutes", daemon=True).start()
    try:
        yield
    finally:
        end.put(None)


def print_whole(table: Table) -> None:
    """Print a table that is as wide as the terminal, or as its longest words need."""
    for column in table.columns:
        # Rich measures only the longest word of a column, and would cut the cells of
        # one that it may not wrap.
        if column.no_wrap:
            column.min_width = max((cell_len(str(c)) for c in column.cells), default=0)
    # A console that is wide enough for any table, so that it does not limit the result.
    min_width = console(width=1_000_000).measure(table).minimum
    # Wider than the terminal if need be: a terminal wraps lines, but Rich would cut
    # cells.
    console(max(min_width, shutil.get_terminal_size().columns)).print(table)


def print_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    sides: Sequence[Side] = ("left",),
    *,
    sentences: Sequence[str] = (),
) -> None:
    """Print a table. Columns without a side are aligned to the right.

    Columns of ``sentences`` are wrapped between words, to fit the terminal. All others
    have the width of their longest cell: nothing is cut, however narrow a terminal is.
    """
    texts = [
        list(head),
        *([check.escape_controls(cell) for cell in row] for row in rows),
    ]
    columns = list(zip(*texts, strict=True))
    widths = [max(map(cell_len, cells)) for cells in columns]
    wrapped = [j for j, name in enumerate(head) if name in sentences]
    # Each column has a vertical line and two spaces, and a last line closes the table.
    frame = 3 * len(widths) + 1
    fixed = sum(width for j, width in enumerate(widths) if j not in wrapped)
    # Columns of sentences share the width that the others leave. They are not made
    # narrower than 30 characters, which would be hard to read, or than their longest
    # word.
    for j in wrapped:
        column_width = (shutil.get_terminal_size().columns - frame - fixed) // len(
            wrapped
        )
        longest = max(cell_len(word) for cell in columns[j] for word in cell.split())
        widths[j] = min(widths[j], max(column_width, 30, longest))
    table = Table()
    for j, name in enumerate(head):
        side = sides[j] if j < len(sides) else "right"
        table.add_column(name, justify=side, width=widths[j], no_wrap=j not in wrapped)
    for row in texts[1:]:
        table.add_row(*map(Text, row))
    console().print(title)
    print_whole(table)


class KeptError(Exception):
    """An error after a draw. The message names the file that has the draw."""


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: compiled modules raise ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def check_outputs(
    *inputs: Path | None, overwrite: bool = True, **outputs: Path | None
) -> None:
    """Raise a ValueError, before a draw, for outputs that would fail after it.

    An output must not be the same file as an input. Without ``overwrite`` it must not
    exist.
    """
    for name, path in outputs.items():
        if path is None:
            continue
        files.check_output(name, path)
        # An output that replaces an input would destroy the records.
        if any(other is not None and _are_one(path, other) for other in inputs):
            check.fail(name, "another file than the others", str(path))
        if path.is_file() and not overwrite:
            remedy = "Choose another, or pass --overwrite to replace what is there."
            check.fail(name, "a new file", str(path), remedy)
    # Without an output file the draw is printed, which needs an open stdout.
    if all(path is None for path in outputs.values()):
        if sys.stdout is None or sys.stdout.closed:
            check.fail("stdout", "open", "none", "Name a file with --output.")


def _are_one(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.resolve() == other.resolve()


@contextmanager
def keep_output(
    save: Save,
    output: Path | None,
    suffix: str,
    text: Callable[[], str] | None = None,
    *,
    overwrite: bool = True,
) -> Iterator[Path | None]:
    """Save a draw by ``save``, and keep it if the block fails.

    The value is the file that has the draw: ``output``, or a private file in the
    temporary folder, with this ``suffix``, if that fails. It is None without an
    ``output``, or if neither file could be written. Then the block prints the draw. If
    the block fails for any reason, the draw is in a file, or on stderr as the ``text``
    that a function returns.

    Raises
    ------
    KeptError
        At the end of the block, if ``output`` or stdout could not be written.
    """
    path, reason = None, ""
    try:
        if output is not None:
            if output.is_file() and not overwrite:  # it was made during the draw
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            save(output)
            path = output
    except OSError as error:
        reason = f"{output} could not be written ({_message(error)})"
        path = _save_spare(save, suffix)
    except BaseException:  # a bug or Ctrl-C while the draw is saved
        tell(_last_resort(_save_spare(save, suffix), text))
        raise
    try:
        yield path
        flush()
    except BaseException as error:
        # Without a file the block was to print the draw, perhaps in vain, so it is
        # saved now.
        where = _last_resort(path or _save_spare(save, suffix), text)
        if isinstance(error, OSError | ValueError):
            reason = reason or f"the output was cut short ({_message(error)})"
            raise KeptError(f"{reason}. {where}") from error
        tell(where)
        raise
    if reason:
        raise KeptError(f"{reason}. {_describe_place(path, text)}")


def _message(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _describe_place(path: Path | None, text: Callable[[], str] | None) -> str:
    """Return where a draw is: in a file, or printed before by the caller."""
    if path is not None:
        return f"The draw is in {path}."
    return "The draw is lost." if text is None else "The draw is shown above."


def _last_resort(path: Path | None, text: Callable[[], str] | None) -> str:
    """Return where the draw is. If no file has it, print its text on stderr first."""
    if path is None and text is not None:
        with suppress(OSError, ValueError):
            print(text(), file=sys.stderr, flush=True)
    return _describe_place(path, text)


def _save_spare(save: Save, suffix: str) -> Path | None:
    """Save a draw in a private temporary file; None if that is impossible."""
    try:
        descriptor, name = tempfile.mkstemp(suffix=suffix, prefix="dpsample-")
    except OSError:
        return None
    os.close(descriptor)
    path = Path(name)
    try:
        save(path)
    except OSError:
        path.unlink(missing_ok=True)
        return None
    return path
