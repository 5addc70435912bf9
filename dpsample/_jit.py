"""The one decorator for compiled code, and pointers to compiled pieces.

Numba invalidates a cached function only when the file that defines it changes, so an
edit in a callee would be served stale. Every kernel is therefore cached in a directory
named after a hash of all sources of the package and of the Numba and NumPy versions.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import cfunc, njit, types

PACKAGE = Path(__file__).parent
# Plain Python above every kernel: to edit them leaves compiled code as it is.
WITHOUT_KERNELS = ("audits", "cli", "diagnostics", "studying")
STALE_AFTER_DAYS = 14.0

f8 = types.float64
i8 = types.int64
vector = types.float64[::1]
matrix = types.Array(types.float64, 2, "C")
# What numba.typeof gives for any Generator, without building one at import.
generator = types.npytypes.NumPyRandomGeneratorType("NumPyRandomGeneratorType")

_pointers: dict[tuple[int, Any], Any] = {}
# Pieces compile at first use, in whichever thread that is; the setting is global.
_setting = threading.RLock()
_kept_alive: list[Any] = []


def fingerprint(package: Path = PACKAGE) -> str:
    """Hash of the sources that can hold kernels and of the compiler's versions."""
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        place = source.relative_to(package)
        if place.parts[0] not in WITHOUT_KERNELS:
            digest.update(str(place).encode())
            digest.update(source.read_bytes())
    for version in (numba.__version__, llvmlite.__version__, np.__version__):
        digest.update(version.encode())
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    """Return the user's NUMBA_CACHE_DIR if there is one, else the platform's cache."""
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
    """Delete caches of other versions that nobody has used for two weeks.

    Younger siblings may belong to another environment that is in use.
    """
    limit = time.time() - STALE_AFTER_DAYS * 86400.0
    for sibling in root.glob("dpsample-*"):
        with suppress(OSError):  # another process may be removing it
            is_old = sibling.stat().st_mtime < limit
            if sibling != current and sibling.is_dir() and is_old:
                shutil.rmtree(sibling, ignore_errors=True)


def _open_cache() -> str:
    try:
        root = _cache_root()
        path = root / f"dpsample-{fingerprint()}"
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        os.utime(path)
        _remove_stale(root, path)
        return str(path)
    except (OSError, RuntimeError) as error:
        path = Path(tempfile.mkdtemp(prefix="dpsample-"))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        warnings.warn(
            f"The compilation cache is not writable ({error}); every process will "
            "compile anew. Set NUMBA_CACHE_DIR to a folder you can write to.",
            RuntimeWarning,
            stacklevel=3,
        )
        return str(path)


CACHE_DIRECTORY = _open_cache()


@contextmanager
def _package_cache() -> Iterator[None]:
    """Point Numba at our cache for one decoration only: users keep their own."""
    with _setting:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = CACHE_DIRECTORY
        try:
            yield
        finally:
            numba.config.CACHE_DIR = before


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    cached: bool = True,
    counts_references: bool = True,
    **options: Any,
) -> Any:
    """Compile on first call, cached on disk, without the GIL, IEEE division.

    ``counts_references=False`` is for functions that allocate nothing and return no
    array but an argument: Numba then leaves out the atomic counts of every view and
    tuple, which cost the gradient loop 1.3 us a step. They are called by kernels only,
    which keep the memory alive; a call from Python would leak a reference to every
    Generator. (The flag is always set, since a callee would inherit its caller's.)

    ``options`` go to `numba.njit`. ``fastmath`` must never license the compiler to
    drop NaN tests: NaN is the failure code of every kernel. ``cached=False`` is for
    functions of the user, whose changes our fingerprint does not see.
    """
    if function is None:
        return lambda f: kernel(
            f, cached=cached, counts_references=counts_references, **options
        )
    options["_nrt"] = counts_references
    with _package_cache():
        return njit(cache=cached, nogil=True, error_model="numpy", **options)(function)


def pointer(function: Any, signature: Any, *, cached: bool = True) -> Any:
    """C function of a `kernel` (or of a user's njit function), built at first use.

    A kernel that takes pointers compiles once for all pieces. An exception inside a
    C function is swallowed, so a piece reports through an out-array that its caller
    has filled with NaN. Under NUMBA_DISABLE_JIT the function itself is returned.
    """
    if numba.config.DISABLE_JIT:
        return function
    key = (id(function), signature)
    if key not in _pointers:
        python_function = getattr(function, "py_func", function)
        with _package_cache():
            _pointers[key] = cfunc(
                signature, cache=cached, nopython=True, error_model="numpy"
            )(python_function)
        _kept_alive.append(function)  # an id is unique only while its object lives
    return _pointers[key]
