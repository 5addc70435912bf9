"""What was drawn is kept, whatever fails afterwards, in a file that is named."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsample.cli import screen
from dpsample.core import check, files

Save = Callable[[Path], None]


class KeptError(Exception):
    """Something failed after the draw; the message says where the draw is."""


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
        screen.tell(_last_resort(_spare(save, suffix), text))
        raise
    try:
        yield place
        screen.flush()
    except BaseException as error:
        where = _last_resort(place or _spare(save, suffix), text)
        if isinstance(error, OSError | ValueError):
            reason = reason or f"the output was cut short ({_message(error)})"
            raise KeptError(f"{reason}. {where}") from error
        screen.tell(where)
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
