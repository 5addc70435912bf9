"""The compilation cache: its private directory, and the repair of damaged files.

Numba discards a cached function only if the file that defines it has changed, so an
edit of a callee would have no effect. Every kernel is therefore cached in a directory
named after a hash of all sources that can hold kernels and of the versions of Numba,
llvmlite and NumPy.

The files are pickles and machine code. A user who can write them could run code in our
process. Therefore the directory must belong to this user, no other user may enter it,
and no other user may be able to replace it. Only then are files unpickled.
"""

import atexit
import glob
import hashlib
import os
import pickle
import re
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import llvmlite
import numba
import numpy as np
from numba.core import caching, ccallback, dispatcher
from numba.core.codegen import Codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

PACKAGE = Path(__file__).parents[1]
# Folders without kernels. Their sources are not part of the hash, so that edits of them
# recompile nothing. A kernel in one of them would be stale after an edit. Tests search
# them for kernels.
WITHOUT_KERNELS = (
    "answers",
    "api",
    "audits",
    "cli",
    "estimators",
    "experiments",
    "inference",
    "optimizers/algorithms",
    "papers",
    "running",
    "verification",
)
# Modules of Numba that make a `FunctionCache` of jitted functions and of C functions.
CACHING_MODULES: tuple[Any, ...] = (dispatcher, ccallback)

# Functions that are called before a kernel is compiled because it is not in the cache.
# The progress line adds one that shows this.
on_miss: list[Callable[[], None]] = []
_warned: set[str] = set()


def fingerprint(package: Path = PACKAGE) -> str:
    """Return a hash of sources that can hold kernels and of the compiler's versions."""
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        path = source.relative_to(package)
        folders = map(Path.as_posix, path.parents)
        if not any(folder in WITHOUT_KERNELS for folder in folders):
            digest.update(str(path).encode())
            digest.update(source.read_bytes())
    for version in (numba.__version__, llvmlite.__version__, np.__version__):
        digest.update(version.encode())
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    """Return the user's NUMBA_CACHE_DIR or a folder in the platform's cache."""
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR)
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "dpsample"


def _remove_stale(root: Path, current: Path) -> None:
    """Delete caches of other versions that have not been used for two weeks.

    Newer ones may belong to another environment that is in use.
    """
    # A cache of another version is deleted if no process has opened it for so long.
    limit = time.time() - 14.0 * 86400.0
    for sibling in root.glob("dpsample-*"):
        if not re.fullmatch("dpsample-[0-9a-f]{16}", sibling.name):
            continue  # a folder of the user's
        with suppress(OSError):  # another process may be removing it
            is_old = sibling.stat().st_mtime < limit
            if sibling != current and sibling.is_dir() and is_old:
                shutil.rmtree(sibling, ignore_errors=True)


def _remove_own(folder: str, process: int) -> None:
    """Delete a folder at the end of the process that made it, not of its forks."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _make(path: Path) -> None:
    """Make a directory and its parents, each for us alone whatever the umask."""
    if not path.exists():
        _make(path.parent)
        with suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=0o700)


def _is_private_group(gid: int) -> bool:
    """Return whether a group has one member, as many systems give to each user."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _reject_swappable(path: Path) -> None:
    """Raise if another user can rename a directory that leads to the path.

    The owners of the file system's root and of our sources can run code in our process
    anyway. In a sticky directory, such as /tmp, only owners can rename their files.
    """
    trusted = {0, os.geteuid(), os.stat("/").st_uid, PACKAGE.stat().st_uid}
    # From the root down, so that every folder is reached through trusted ones.
    for folder in reversed((path, *path.parents)):
        state = folder.stat()
        others = state.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
        # With umask 002, directories are writable for the user's own group.
        if others == stat.S_IWGRP and _is_private_group(state.st_gid):
            others = 0
        if state.st_uid not in trusted:
            raise PermissionError(f"{folder} belongs to another user")
        if others and not state.st_mode & stat.S_ISVTX:
            raise PermissionError(f"others can write to {folder}")


def private_directory(root: Path, name: str) -> Path:
    """Return the directory root/name, which no other user can enter or replace.

    It is made if it does not exist. An OSError is raised if this fails, or if another
    user could have changed it.
    """
    _make(root)
    # The checks are about a path without links, which nobody can redirect afterwards.
    root = root.resolve()
    if os.name == "posix":
        _reject_swappable(root)
    path = root / name
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode):  # a link, too
        raise NotADirectoryError(f"{path} is no directory")
    if os.name == "posix":
        # A user who cannot enter the directory cannot open files below it, whatever
        # their modes are.
        if state.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        if stat.S_IMODE(state.st_mode) & 0o077:
            raise PermissionError(f"{path} is open to other users; delete it")
    with tempfile.TemporaryFile(dir=path):  # raises if nothing can be written
        pass
    os.utime(path)  # the time of the last use, for `_remove_stale`
    return path


def _open_cache() -> str:
    """Return the directory of the cache, or "" if there is nowhere to write.

    Numba then finds no place for files, and `_cache_of` returns a cache that keeps
    nothing.
    """
    try:
        path = private_directory(_cache_root(), f"dpsample-{fingerprint()}")
        _remove_stale(path.parent, path)
        return str(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        folder = ""
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="dpsample-")
            atexit.register(_remove_own, folder, os.getpid())
        warnings.warn(
            f"The compilation cache cannot be used ({error}); every process will "
            "compile anew. Set NUMBA_CACHE_DIR to a folder that only you can write to.",
            RuntimeWarning,
            stacklevel=3,
        )
        return folder


CACHE_DIRECTORY = _open_cache()


class _Sealed:
    """Bytes in a pickle with their hash.

    Unpickling compares both before it unpickles the bytes themselves, because a flipped
    bit in machine code could give wrong numbers, or end the process. This detects
    damage. Only the private directory protects from other users.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[object, ...]:
        return _unseal, (_digest(self.content), self.content)


def _digest(content: bytes) -> bytes:
    """Return a hash that detects damage."""
    return hashlib.blake2b(content, digest_size=16).digest()


def _unseal(digest: bytes, content: bytes) -> object:
    """Return the object that was pickled, or raise if the bytes are damaged."""
    if _digest(content) != digest:
        raise ValueError("its hash does not match")
    return pickle.loads(content)


@contextmanager
def _one_writer(folder: str) -> Iterator[None]:
    """Keep other processes from writing indices in a folder, if the system can.

    They wait for one second at most, because a stopped process may hold the lock.
    """
    with ExitStack() as stack:
        # Without a lock entries may be lost, and are compiled again.
        with suppress(ImportError, OSError):
            import fcntl

            file = stack.enter_context(open(os.path.join(folder, "writer"), "wb"))
            for _ in range(100):
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.01)
        yield


class _Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Index and data files of one function, sealed, each entry with its key.

    Numba keeps one index of a function, from keys to names of data files, and one data
    file for each key. Both are written as the bytes that `_dump` returns.
    """

    def _dump(self, obj: object) -> bytes:
        return pickle.dumps(_Sealed(super()._dump(obj)))

    def save(self, key: object, data: object, *rest: object) -> None:
        """Write an entry with its key."""
        # Numba reads the index, adds to it, and writes it. If two processes did so at
        # once, the entry of one of them would be lost.
        with _one_writer(os.path.dirname(self._index_path)):
            super().save(key, (key, data), *rest)

    def load(self, key: object) -> object:
        """Return the entry of a key, or None if there is none."""
        entry = super().load(key)
        if entry is None:
            return None
        saved_key, data = entry
        # Without a lock, two processes may choose one file name for two signatures.
        # Then the file has the code of the other signature.
        return data if saved_key == key else None

    def discard(self) -> None:
        """Delete these files, or folders at their paths."""
        pattern = glob.escape(os.path.splitext(self._index_path)[0])
        for path in (self._index_path, *glob.glob(pattern + ".*.nbc")):
            with suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)


# Numba 0.61 has this class under a private name.
_UserLocator: Any = getattr(caching, "UserProvidedCacheLocator", None)
if _UserLocator is None:
    _UserLocator = caching._UserProvidedCacheLocator


class _CacheLocator(_UserLocator):  # type: ignore[misc]
    """Folder of one function's files, below `CACHE_DIRECTORY`.

    Since the import the directory may have been deleted, or replaced by another user's.
    So it is checked again before files are written.
    """

    def ensure_cache_path(self) -> None:
        """Make the folder, or warn and raise if that is impossible."""
        folder = Path(CACHE_DIRECTORY)
        try:
            private_directory(folder.parent, folder.name)
            os.makedirs(self.get_cache_path(), exist_ok=True)
        except OSError as error:
            _warn_once(
                "unusable",
                f"The compilation cache cannot be used ({error}); what it lacks is "
                "compiled anew by every process.",
            )
            raise  # `save_overload` goes on without the cache


class _CacheImplementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    # Numba's other locators use folders such as __pycache__, whose names do not contain
    # the hash of all sources.
    _locator_classes: ClassVar[list[Any]] = [_CacheLocator]


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function. Damaged files are deleted and compiled again."""

    _impl_class = _CacheImplementation

    def __init__(self, py_func: Callable[..., object]) -> None:
        super().__init__(py_func)
        self._cache_file = _Files(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return an entry, or None if there is none that is undamaged."""
        try:
            # Numba's own method first registers all that it can compile, which takes a
            # quarter of a second. To run compiled code only its runtime is needed.
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                loaded: object = self._load_overload(sig, target_context)
        except Exception as error:  # unpickling damaged bytes can raise anything
            self._cache_file.discard()
            _warn_once(
                "damaged",
                "A damaged file of the compilation cache was deleted and its kernel "
                f"is compiled again ({type(error).__name__}: {error}). {self._where()}",
            )
            loaded = None
        if loaded is None:
            for notify in tuple(on_miss):
                notify()
        return loaded

    def save_overload(self, sig: object, data: object) -> None:
        """Write an entry. If that fails, as on a full disk, go on without it."""
        try:
            super().save_overload(sig, data)
        except Exception:
            # Numba reads the index first, which may be damaged.
            self._cache_file.discard()
            try:
                super().save_overload(sig, data)
            except OSError as error:
                # `ensure_cache_path` has already reported a directory that fails.
                if "unusable" not in _warned:
                    _warn_once(
                        "unwritable",
                        f"The compilation cache cannot be written ({error}); what is "
                        f"missing in it is compiled again every time. {self._where()}",
                    )

    def _index_key(self, sig: object, codegen: Codegen) -> tuple[object, ...]:
        """Return the key of an entry: types, processor, bytecode and closure.

        Numba's key has pickles of the closure's values. Pickles of kernels differ
        between processes, because they contain a random identifier, and functions of
        Numba whose bytes depend on whether they were loaded from bytecode. So kernels,
        which have a `cache_name`, are replaced by that name.
        """
        cells = [cell.cell_contents for cell in self._py_func.__closure__ or ()]
        names = tuple(getattr(cell, "cache_name", "") or cell for cell in cells)
        code = self._py_func.__code__.co_code
        return sig, codegen.magic_tuple(), _digest(code), _digest(caching.dumps(names))

    def _where(self) -> str:
        """Return a sentence for warnings."""
        return f"It is in {self._cache_path}."


def _cache_of(py_func: Callable[..., object]) -> object:
    """Return the cache of one function. It keeps nothing if there is no place."""
    try:
        return KernelCache(py_func)
    except RuntimeError:  # the function's source, or the cache's directory, is gone
        return caching.NullCache()


def _warn_once(kind: str, message: str) -> None:
    """Warn of the first problem of a kind in this process."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


@contextmanager
def package_cache() -> Iterator[None]:
    """Make Numba use our cache inside the block. Functions of users keep their own.

    A kernel opens its cache at its first use, in any thread, and possibly while another
    kernel is compiled. The lock is therefore the compiler's own. Two threads that take
    a second lock and the compiler's in different orders could wait for each other.
    """
    with global_compiler_lock:
        config, names = numba.config, ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")
        settings = {name: getattr(config, name, "") for name in names}
        classes = [user.FunctionCache for user in CACHING_MODULES]
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = CACHE_DIRECTORY, ""
        for user in CACHING_MODULES:
            user.FunctionCache = _cache_of
        try:
            yield
        finally:
            vars(config).update(settings)
            for user, old in zip(CACHING_MODULES, classes, strict=True):
                user.FunctionCache = old
