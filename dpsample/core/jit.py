"""The one decorator for compiled code, and pointers to compiled pieces."""

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numba
from numba import cfunc, njit, types
from numba.core.ccallback import CFunc
from numba.core.typing.templates import Signature

from dpsample.core.cache import CACHE_DIRECTORY, package_cache

f8 = types.float64
i8 = types.int64
vector = types.float64[::1]
matrix = types.Array(types.float64, 2, "C")
# What numba.typeof gives for any Generator, without building one at import.
generator = types.npytypes.NumPyRandomGeneratorType("NumPyRandomGeneratorType")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Returned = TypeVar("Returned", covariant=True)


class Kernel(Protocol[Parameters, Returned]):
    """Compiled function, called as the Python function it comes from.

    Types of arguments are Numba's matter: a file of kernels leaves them out and says
    so in its first line. Number and names of the arguments stay checked.
    """

    @property
    def py_func(self) -> Callable[Parameters, Returned]:
        """The Python function; absent under NUMBA_DISABLE_JIT."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run the compiled function."""


# Compiled function that writes into its last argument.
Piece = Callable[..., None]
# A C function; under NUMBA_DISABLE_JIT the Python function.
Pointer = CFunc | Callable[..., Any]

_pointers: dict[tuple[int, object], Pointer] = {}
_kept_alive: list[object] = []


@overload
def kernel(
    function: Callable[Parameters, Result], *, cached: bool = True
) -> Kernel[Parameters, Result]: ...
@overload
def kernel(
    *, cached: bool = True, counts_references: bool = True, **options: Any
) -> Callable[[Callable[Parameters, Result]], Kernel[Parameters, Result]]: ...
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
        return partial(
            kernel, cached=cached, counts_references=counts_references, **options
        )
    options["_nrt"] = counts_references
    cached = cached and bool(CACHE_DIRECTORY)
    with package_cache():
        return njit(cache=cached, nogil=True, error_model="numpy", **options)(function)


def pointer(
    function: Callable[..., object], signature: Signature, *, cached: bool = True
) -> Pointer:
    """C function of a `kernel` (or of a user's njit function), built at first use.

    A kernel that takes pointers compiles once for all pieces. An exception inside a
    C function is swallowed, so a piece reports through an out-array that its caller
    has filled with NaN. Under NUMBA_DISABLE_JIT the function itself is returned.
    """
    if numba.config.DISABLE_JIT:
        return function
    key = (id(function), signature)
    if key not in _pointers:
        cached = cached and bool(CACHE_DIRECTORY)
        python_function = getattr(function, "py_func", function)
        with package_cache():
            _pointers[key] = cfunc(
                signature, cache=cached, nopython=True, error_model="numpy"
            )(python_function)
        _kept_alive.append(function)  # an id is unique only while its object lives
    return _pointers[key]
