"""C functions and named tuples that kernels find by an address in an array.

A body of the user, or an intersection of any number of bodies, is described by an array
of addresses. So it has the same type as any other, and the same compiled kernels.
Whoever puts an address into an array keeps what is there alive.

Without Numba an "address" is the key of a table of Python objects.
"""

from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from dpsample.core.frames import ADDRESS, FrameType
from dpsample.core.jit import PieceType

# Objects by their keys, for interpreted kernels.
_objects: dict[int, object] = {}


def address_of(value: object) -> int:
    """Return the address of a C function, or of a tuple that kernels get by address."""
    if numba.config.DISABLE_JIT:
        _objects[id(value)] = value
        return id(value)
    return int(getattr(value, ADDRESS))


def function_at(signature: Signature) -> Any:
    """Return a function for kernels that returns the C function at an address."""
    kind = PieceType(signature)

    def read(context: Any, builder: Any, address: Any) -> Any:
        function = cgutils.create_struct_proxy(kind)(context, builder)
        word = context.get_value_type(types.voidptr)
        function.c_addr = builder.inttoptr(address, word)
        return function._getvalue()

    return _reader(kind, read)


def frame_at(kind: FrameType) -> Any:
    """Return a function for kernels that returns the tuple at an address."""

    def read(context: Any, builder: Any, address: Any) -> Any:
        return builder.inttoptr(address, context.get_value_type(kind))

    return _reader(kind, read)


def _reader(kind: types.Type, read: Any) -> Any:
    """Return a function of kernels that reads a value of a type at an address."""
    if numba.config.DISABLE_JIT:
        return _objects.__getitem__

    @intrinsic  # type: ignore[untyped-decorator]
    def value_at(context: Any, address: Any) -> Any:
        del context, address

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            del signature
            return read(context, builder, args[0])

        return kind(types.int64), generate

    return value_at
