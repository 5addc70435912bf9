"""Compiled kernels called from loops in Python, without the search for their types."""

from numba import typeof


def entry(kernel, *args):
    """The machine code of a kernel for arguments of these types, called as it is.

    A dispatcher looks at every field of every tuple at every call: a millisecond.
    """
    if not hasattr(kernel, "overloads"):  # interpreted
        return kernel
    types = tuple(map(typeof, args))
    kernel.compile(types)
    return kernel.overloads[types].entry_point
