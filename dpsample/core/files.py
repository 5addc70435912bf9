"""Files that are written: tested before the work, whole or not at all.

Private ones, which hold draws or records, are readable by their owner alone.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from dpsample.core import check

OWNER_ONLY = 0o600


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is there, and a person may read it."""
    return stream is not None and not stream.closed and stream.isatty()


def check_output(name: str, path: Path) -> None:
    """Refuse, before any work, a file that could not be written after it.

    That is one in a folder that does not exist or takes no files, or that may not be
    written. Nothing is changed: an existing file is opened and closed, and a file
    beside it is made and deleted.
    """
    try:
        if not path.resolve().parent.is_dir():
            check.fail(name, "a file in an existing folder", str(path))
        if path.is_dir():
            check.fail(name, "a file", f"the folder {path}")
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError("not writable")
            return
        with suppress(FileNotFoundError):
            path.stat()  # fails for links in a circle, which Python 3.13 resolves
            with path.open("ab"):
                pass
        with _draft(path.resolve()):
            pass
    except (OSError, RuntimeError) as error:  # the latter: links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        got, remedy = f"{path} ({reason})", "Choose another file."
        check.fail(name, "a file that can be written", got, remedy)


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, is_private: bool = False
) -> Iterator[Path]:
    """Give a file to write, which takes the place of ``path`` at the end of the block.

    If it ``is_private``, its owner alone may read it, whoever could before. An error
    leaves what was at ``path``, and no other file. Readers see the old content or the
    new one, never a part. Devices and pipes are written directly.
    """
    given = Path(path)
    if _is_special(given):
        yield given
        return
    place = given.resolve()  # a link stays a link
    with _draft(place, OWNER_ONLY if is_private else 0o666) as draft:
        yield draft
        with draft.open("rb+") as file:  # on the disk before the old file goes
            os.fsync(file.fileno())
        draft.replace(place)


def write(
    path: str | os.PathLike[str], content: bytes, *, is_private: bool = False
) -> None:
    """Write a whole file; an error leaves what was there."""
    with replacing(path, is_private=is_private) as draft:
        draft.write_bytes(content)


def _is_special(path: Path) -> bool:
    """Whether there is something that is not a plain file, such as /dev/stdout."""
    return path.exists() and not path.is_file()


def _forget(draft: Path) -> None:
    with suppress(OSError):  # most of all, that it has taken its place
        draft.unlink()


@contextmanager
def _draft(place: Path, mode: int = 0o666) -> Iterator[Path]:
    """Make an empty file beside ``place`` for a block.

    It is as readable as that one, but never more than ``mode`` allows.
    """
    draft = place.with_name(f".{secrets.token_hex(8)}{place.suffix}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        try:
            os.close(os.open(draft, flags, mode))
        except OSError as error:
            error.filename = str(place)  # nobody knows the draft
            raise
        if place.exists():
            draft.chmod(stat.S_IMODE(place.stat().st_mode) & mode)
        yield draft
    finally:
        try:
            _forget(draft)
        finally:
            _forget(draft)  # Ctrl-C may have come before
