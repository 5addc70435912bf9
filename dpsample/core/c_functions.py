"""C functions of other libraries, which functions of a user may call when compiled.

Numba calls a `ctypes` function directly by its address, without the interpreter's lock,
if the types of its arguments are declared. Arrays are passed as addresses:
``theta.ctypes.data``.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel


def c_function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Return a C function of a loaded library, with declared types.

    The library's own object for it stays as it is, because it may have other types.

    Parameters
    ----------
    library : ctypes.CDLL
        The shared library.
    name : str
        Name of the function in it.
    result, *arguments
        Types of `ctypes`.

    Examples
    --------
    >>> import ctypes
    >>> from dpsample.core.c_functions import c_function
    >>> library = ctypes.CDLL(None)
    >>> c_function(library, "abs", ctypes.c_int, ctypes.c_int)(-3)
    3
    """
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    prototype = ctypes.CFUNCTYPE(result, *arguments)
    return prototype(address)  # type: ignore[arg-type]


def one_thread_at_a_time(
    name: str, functions: Sequence[Callable[[Array], Any]], remedy: str
) -> list[Callable[[Array], Any]]:
    """Return functions of a point that hold a common mutex while they are evaluated.

    They may not raise, because the mutex would stay locked. On a system without POSIX
    threads this is a ValueError about the parameter ``name``, with a remedy.
    """
    system = ctypes.CDLL(None) if os.name == "posix" else None
    if system is None:
        condition = "one that several threads may evaluate, on this system"
        check.fail(name, condition, "one that a single thread may evaluate", remedy)
    # The memory belongs to the functions, whose code contains its address.
    # A mutex of any system has at most this number of words of 8 bytes.
    memory = np.zeros(16)
    address = memory.ctypes.data
    system.pthread_mutex_init(ctypes.c_void_p(address), None)
    lock, unlock = (
        c_function(system, function, ctypes.c_int, ctypes.c_void_p)
        for function in ("pthread_mutex_lock", "pthread_mutex_unlock")
    )

    def lock_calls(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
        compiled = kernel(function, cached=False)

        def call(theta: Array) -> Any:
            lock(address)
            result = compiled(theta)
            unlock(address)
            return result

        vars(call)["mutex"] = memory
        return call

    return [lock_calls(function) for function in functions]
