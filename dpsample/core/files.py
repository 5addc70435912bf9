"""Writing of files, which are tested before the work and replaced as a whole.

Private files, which hold draws or records, are readable by their owner only.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from dpsample.core import check

# Modes of new files. The umask of the process removes bits of the second one.
OWNER_ONLY = 0o600
EVERYBODY = 0o666


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is open and connected to a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def check_output(name: str, path: Path) -> None:
    """Raise, before any work, if a file could not be written after it.

    The test changes nothing. It opens and closes an existing file, and makes and
    deletes another file in the same folder.
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
            # `stat` fails for links in a circle. Python 3.13 resolves them.
            path.stat()
            with path.open("ab"):
                pass
        with _draft(path.resolve()):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError for links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        got, remedy = f"{path} ({reason})", "Choose another file."
        check.fail(name, "a file that can be written", got, remedy)


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, is_private: bool = False
) -> Iterator[Path]:
    """Yield a file to write, which replaces ``path`` at the end of the block.

    A file that ``is_private`` can be read by its owner only, even if the old one could
    be read by others. After an error the old file is unchanged, and there is no other
    one. Readers see the old content or the new one, never a part. Devices and pipes are
    written directly.
    """
    output = Path(path)
    if _is_special(output):
        yield output
        return
    target = output.resolve()  # a link is not replaced, but the file to which it leads
    with _draft(target, OWNER_ONLY if is_private else EVERYBODY) as draft:
        yield draft
        # The new content is on the disk before the old file is replaced.
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(target)


def write(
    path: str | os.PathLike[str], content: bytes, *, is_private: bool = False
) -> None:
    """Write a whole file. After an error the old one is unchanged."""
    with replacing(path, is_private=is_private) as draft:
        draft.write_bytes(content)


def _is_special(path: Path) -> bool:
    """Return whether a path exists and is not a plain file, such as /dev/stdout."""
    return path.exists() and not path.is_file()


def _delete(draft: Path) -> None:
    """Delete a file, unless it is gone because it has replaced another one."""
    with suppress(OSError):
        draft.unlink()


@contextmanager
def _draft(target: Path, mode: int = EVERYBODY) -> Iterator[Path]:
    """Make an empty file next to ``target``, and delete it at the end of the block.

    It has the permissions of the target, as far as ``mode`` allows them.
    """
    draft = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        try:
            os.close(os.open(draft, flags, mode))
        except OSError as error:
            error.filename = str(target)  # the user does not know the draft's name
            raise
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode) & mode)
        yield draft
    finally:
        try:
            _delete(draft)
        finally:
            _delete(draft)  # once more, if Ctrl-C has interrupted the first call
