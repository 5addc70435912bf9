"""Entry points of kernels, for loops in Python that call them very often."""

from collections.abc import Callable
from typing import Any

from numba import typeof

from dpsample.core.jit import Kernel


def entry(kernel: Kernel[..., Any], *arguments: object) -> Callable[..., Any]:
    """Machine code of a kernel for arguments of these types, called as it is.

    A dispatcher looks at every field of every tuple at every call: a millisecond. The
    caller answers for the types, as arguments of others would be misread.
    """
    if not hasattr(kernel, "overloads"):  # interpreted
        return kernel
    types = tuple(map(typeof, arguments))
    dispatcher: Any = kernel
    dispatcher.compile(types)
    found: Callable[..., Any] = dispatcher.overloads[types].entry_point
    return found


_entries: dict[Kernel[..., Any], Callable[..., Any]] = {}


def call(kernel: Kernel[..., Any], *arguments: object) -> Any:
    """Call the machine code of a kernel whose arguments always have the same types."""
    if kernel not in _entries:
        _entries[kernel] = entry(kernel, *arguments)
    return _entries[kernel](*arguments)
