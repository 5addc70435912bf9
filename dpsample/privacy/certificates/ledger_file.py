"""Ledger on disk, which several processes share.

A lock file next to the ledger makes processes wait for each other. An entry is written
before any noise is drawn, so a process that is killed later has spent its budget.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from dpsample.core import check, files
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.ledger import Item, Ledger

if sys.platform == "win32":
    import msvcrt

    def _wait_for(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)

else:
    import fcntl

    def _wait_for(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)


class LedgerFile:
    """A `Ledger` on disk, whose entries are written before any noise is drawn.

    Processes and threads wait for each other, so that the same budget is never spent
    twice. A process that is killed after it has spent does not get its budget back. The
    owner of the file is trusted: an older copy in its place would give back what was
    spent since. Other users can neither read nor write a new file or its lock file
    (mode 0600). Existing files keep their modes.

    Parameters
    ----------
    path : str or path
        A JSON file, which is made if there is none. A lock file stays next to it. If it
        is deleted while processes spend, two of them may write at once.
    relation : {"replace_one", "zero_out"}
        Neighboring relation of every entry.
    budget : Budget, optional
        Total budget of all entries, under the same relation.

    Raises
    ------
    ValueError
        If the file is not a ledger, or has another relation or budget.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dpsample as dps
    >>> path = pathlib.Path(tempfile.mkdtemp(), "spent.json")
    >>> total = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> ledger = dps.privacy.LedgerFile(path, budget=total)
    >>> mech = dps.noise.gaussian_mechanism(total, sensitivity=0.1)
    >>> answer = mech.release([3.0], ledger=ledger)
    >>> try:
    ...     mech.release([3.0], ledger=ledger)
    ... except ValueError as error:
    ...     print(str(error)[:45])
    ledger must be one with room for this release
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        relation: str = "replace_one",
        budget: Budget | None = None,
    ) -> None:
        new = Ledger(relation, budget)
        resolved = check.path("path", path).resolve()
        files.check_output("path", resolved)
        self.path, self._terms = str(resolved), (relation, budget)
        with self._locked():
            if not resolved.exists():
                self._write(new)
            self.read()

    def read(self) -> Ledger:
        """Return the ledger as it is now."""
        ledger = read_ledger(Path(self.path))
        relation, budget = self._terms
        if (ledger.relation, ledger.budget) != self._terms:
            condition = f"a ledger under {relation!r} with budget {budget}"
            check.fail("path", condition, f"{ledger.relation!r} with {ledger.budget}")
        return ledger

    def __sklearn_clone__(self) -> Self:
        """Return the same ledger, so that clones of an estimator share it."""
        return self

    def spend(self, item: Item, label: str = "") -> None:
        """Enter one release and return when the entry is on the disk.

        Parameters
        ----------
        item, label
            As for `Ledger.spend`.

        Raises
        ------
        ValueError
            If the total would exceed the budget, or the entry could not be read again.
            Then nothing is entered.
        """
        # An entry that cannot be read again would make the whole file unreadable.
        single = Ledger(self._terms[0])
        single.add(item, label)
        Ledger.from_json(single.to_json())
        with self._locked():
            ledger = self.read()
            ledger.spend(item, label)
            self._write(ledger)

    def _write(self, ledger: Ledger) -> None:
        """Replace the file, and return when it is on the disk."""
        # Labels and releases describe an analysis, so a new file is private. Its owner
        # can open it to others.
        is_new = not Path(self.path).exists()
        files.write(self.path, ledger.to_json().encode(), is_private=is_new)
        with suppress(OSError):  # Windows cannot open folders
            folder = os.open(Path(self.path).parent, os.O_RDONLY)
            # The folder is synchronized so that the new name survives a power failure.
            os.fsync(folder)
            os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock during the block. It also ends with the process."""
        # A separate file, because the ledger itself is replaced at every write.
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
        lock = os.open(self.path + ".lock", flags, files.OWNER_ONLY)
        with os.fdopen(lock, "ab") as file:
            _wait_for(file)
            yield

    def __repr__(self) -> str:
        """Return the path and the ledger in it."""
        return f"LedgerFile({self.path!r})\n{self.read()!r}"


def read_ledger(path: Path, name: str = "path") -> Ledger:
    """Return the ledger of a file. Errors call the file ``name``."""
    try:
        return Ledger.from_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        remedy = str(error) if is_text else "The file is not text."
        check.fail(name, "the file of a ledger", str(path), remedy)


@contextmanager
def remove_if_unused(ledger: LedgerFile | None) -> Iterator[None]:
    """Remove a new ledger if the block fails before its first entry.

    The lock file stays, because other processes may wait for it.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError, ValueError):  # the file may have changed or be gone
            if ledger is not None:
                with ledger._locked():
                    if not ledger.read().entries:
                        Path(ledger.path).unlink()
        raise


def spend(ledger: Ledger | LedgerFile | None, item: Item | None) -> None:
    """Enter the release that a function is about to make, if it was given a ledger."""
    check.instance((Ledger, LedgerFile, type(None)), ledger=ledger)
    if ledger is not None:
        if item is None:
            check.fail("budget", "given where a ledger is", "None")
        ledger.spend(item)
