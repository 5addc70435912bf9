"""Digests of functions of the user, the same in every process.

A checkpoint of a chain has them. They change with the code of a function, with the
numbers and arrays that it reads as globals or closes over, and with those of its
helpers, but not with addresses.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from enum import Enum, EnumMeta
from types import CodeType

import numpy as np

from dpsample.core.jit import values_of_names


def digest_of(function: Callable[..., object]) -> str:
    """Return a text that changes with a function, as its globals are now."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(function, {}):
        digest.update(f"{len(part)} ".encode() + part)
    return digest.hexdigest()


def _parts(value: object, seen: dict[int, int]) -> Iterator[bytes]:
    """Yield the code of a function and the values it reads, also of its helpers.

    ``seen`` are the numbers of the functions so far, by their ids.
    """
    # Types whose text says what they are.
    represented = bool | int | float | complex | str | bytes | slice | range
    represented |= np.generic | Enum
    # `numba.vectorize`, `numba.cfunc` and `numba.njit` keep the Python function.
    value = getattr(value, "_dispatcher", value)
    function = getattr(value, "py_func", getattr(value, "_pyfunc", value))
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, tuple):
        yield f"{len(value)} {getattr(value, '_fields', ())}".encode()
        for item in value:
            yield from _parts(item, seen)
    elif inspect.isfunction(function):
        if id(function) in seen:
            # Calls of two helpers in another order are another function.
            yield f"function {seen[id(function)]}".encode()
            return
        seen[id(function)] = len(seen)
        yield from _code_parts(function.__code__)
        if str(function.__module__).split(".")[0] not in ("numba", "numpy", "scipy"):
            for part in values_of_names(function):
                yield from _parts(part, seen)
    elif inspect.ismodule(value) or inspect.isclass(value):
        yield value.__name__.encode()
        if isinstance(value, EnumMeta):
            members: list[object] = list(value)
            for member in members:
                yield from _parts(member, seen)
    elif isinstance(value, represented) or value is None:
        yield f"{value!r} {getattr(value, 'value', '')}".encode()
    # The address of another object changes in every process, so only its type is part
    # of the identity.
    else:
        yield type(value).__qualname__.encode()


def _code_parts(code: CodeType) -> Iterator[bytes]:
    """Yield bytes that change if bytecode, names or constants change."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(constant).encode()
