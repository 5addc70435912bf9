"""Entry points of kernels, for loops in Python that call them very often."""

from collections.abc import Callable
from typing import Any

from numba import typeof
from numba._dispatcher import compute_fingerprint

from dpsample.core.jit import ADDRESS, Kernel

_found: dict[tuple[object, ...], Callable[..., Any]] = {}
_entries: dict[Kernel[..., Any], Callable[..., Any]] = {}


def entry(kernel: Kernel[..., Any], *arguments: object) -> Callable[..., Any]:
    """Machine code of a kernel for arguments of these types, called as it is.

    A dispatcher looks at every field of every tuple at every call: a tenth of a
    millisecond. The caller answers for the types, as arguments of others would be
    misread.
    """
    if not hasattr(kernel, "overloads"):  # interpreted
        return kernel
    key = kernel, *map(_kind, arguments)
    if key not in _found:
        types = tuple(map(typeof, arguments))
        dispatcher: Any = kernel
        dispatcher.compile(types)
        _found[key] = dispatcher.overloads[types].entry_point
    return _found[key]


def _kind(value: Any) -> object:
    """Whatever tells the types of arguments apart, in a microsecond or a few."""
    try:
        return compute_fingerprint(value)
    except NotImplementedError:  # in it is a pointer, or a generator
        if isinstance(value, tuple):
            return type(value), *map(_kind, value)
        return type(value), getattr(value, ADDRESS, None)


def call(kernel: Kernel[..., Any], *arguments: object) -> Any:
    """Call the machine code of a kernel whose arguments always have the same types."""
    if kernel not in _entries:
        _entries[kernel] = entry(kernel, *arguments)
    return _entries[kernel](*arguments)
