"""Named tuples that kernels take by address.

Numba passes a named tuple by value, flattened. An array is seven words, so that a state
of 28 arrays is 200 arguments of every function that gets it, taken apart and put
together again at each call. A class that is decorated with `by_address` lays its fields
out in memory once, when a kernel first asks for its address; kernels get the address
and load a field where they name it.

The fields of a tuple never change, and loads say so (``invariant.load``), or each store
to an array would force them to be read again. The memory belongs to the tuple, which
holds its arrays, too: the address is valid as long as whoever called the kernel holds
the tuple. Kernels read fields by name. They can neither return such a tuple nor store,
index or unpack it, and one that they build themselves is passed by value, as Numba
does, which makes another version of what takes it.
"""

import hashlib
import struct
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.ccallback import CFunc
from numba.core.datamodel.models import PrimitiveModel
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)

from dpsample.core.arrays import Array

ADDRESS = "dpsample_address"  # attribute of what kernels take by address
# How `struct` packs what a field may be; an array has two words per dimension.
CODES: dict[type, str] = {bool: "?", int: "q", float: "d", type(None): "P"}
CODES |= {np.bool_: "?", np.int64: "q", np.float64: "d"}
ARRAY_CODES = tuple("PPqqP" + "qq" * ndim for ndim in range(4))
# Fields that are annotated as numbers have one type, as 2 for a float has.
NUMBERS = {float: types.float64, int: types.int64, bool: types.boolean}
NUMBER_CODES = {types.float64: "d", types.int64: "q", types.boolean: "?"}
Tuple = TypeVar("Tuple", bound=tuple[Any, ...])


class FrameType(types.Type):  # type: ignore[misc]
    """Type of a named tuple by address: its class and the types of its fields."""

    def __init__(self, kinds: tuple[Any, ...], instance_class: type) -> None:
        self.kinds = tuple(kinds)
        self.instance_class = instance_class
        # Numba compares types of C functions by name. The digest keeps names short:
        # they are parts of many others.
        words = ", ".join(str(kind) for kind in self.kinds)
        digest = hashlib.blake2b(words.encode(), digest_size=8).hexdigest()
        super().__init__(name=f"Frame({instance_class.__qualname__}, {digest})")

    @property
    def key(self) -> object:
        """What types are compared by."""
        return self.instance_class, self.kinds

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        """Name in the symbols of compiled functions."""
        return self.instance_class.__name__, ()

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is FrameType and self.key == other.key)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the hash: that of a class is another one in each process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}


def by_address(cls: type[Tuple]) -> type[Tuple]:
    """Decorate a named tuple that kernels are to take by address."""
    names = {name: getattr(cls, name) for name in ("__module__", "__doc__")}
    # An address is nothing to be pickled or copied.
    body = {ADDRESS: _Address(), "__reduce__": _reduced, **names}
    body["dpsample_numbers"] = tuple(map(NUMBERS.get, cls.__annotations__.values()))
    made = type(cls.__name__, (cls,), body)
    made.__qualname__ = cls.__qualname__
    typeof_impl.register(made)(_typeof)
    return made


class _Address:
    """Attribute that is computed once, and is then found in the object itself."""

    def __get__(self, found: Any, owner: type) -> object:
        if found is None:
            return self
        address, memory = _laid_out(found)
        vars(found).update({ADDRESS: address, "dpsample_memory": memory})
        return address


def _reduced(found: Any) -> tuple[object, ...]:
    return type(found), tuple(found)


def _typeof(found: Any, context: Any) -> FrameType | None:
    kinds = tuple(
        number or typeof_impl(field, context)
        for number, field in zip(found.dpsample_numbers, found, strict=True)
    )
    return None if None in kinds else frame_type(kinds, type(found))


# Once per class and types: a digest takes ten microseconds.
frame_type = cache(FrameType)


def _laid_out(found: tuple[Any, ...]) -> tuple[int, Array]:
    """Lay the fields out in memory; return its address and its owner."""
    code, words = _words(found)
    packer = _packer(code)
    memory = np.empty(-(-packer.size // 8), np.int64)
    packer.pack_into(memory, 0, *words)
    return memory.__array_interface__["data"][0], memory


_packer = cache(struct.Struct)


def _words(found: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Return the fields as `struct` packs them, in the order of Numba's data models.

    It aligns each word as the compiler does, and "0q" the start and end of a tuple.
    """
    code, words = list[str](), list[Any]()
    numbers = getattr(found, "dpsample_numbers", (None,) * len(found))
    for number, field in zip(numbers, found, strict=True):
        if number is not None:
            code.append(NUMBER_CODES[number])
            words.append(field)
        elif isinstance(field, np.ndarray):
            # No reference is counted: the tuple holds the array.
            code.append(ARRAY_CODES[field.ndim])
            data = field.__array_interface__["data"][0]
            words += (0, id(field), field.size, field.itemsize, data)
            words += field.shape + field.strides
        elif isinstance(field, CFunc):
            code.append("PPP")  # the others are for calls that may raise
            words += (field.address, 0, 0)
        elif hasattr(field, ADDRESS):
            code.append("P")
            words.append(getattr(field, ADDRESS))
        elif isinstance(field, tuple):
            inner, rest = _words(field)
            edge = "" if set(inner) <= {"?"} else "0q"
            code += (edge, inner, edge)
            words += rest
        else:
            code.append(CODES[type(field)])
            words.append(0 if field is None else field)
    return "".join(code), words


@register_model(FrameType)
class _FrameModel(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: FrameType) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@infer_getattr
class _FrameFields(AttributeTemplate):  # type: ignore[misc]
    key = FrameType

    def generic_resolve(self, kind: FrameType, name: str) -> object:
        fields = kind.instance_class._fields  # type: ignore[attr-defined]
        return kind.kinds[fields.index(name)] if name in fields else None


@lower_getattr_generic(FrameType)
def _load_field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    i = kind.instance_class._fields.index(name)
    layout = ir.LiteralStructType([context.get_data_type(k) for k in kind.kinds])
    start = builder.bitcast(value, layout.as_pointer())
    place = cgutils.gep_inbounds(builder, start, 0, i)
    nothing, load = builder.module.add_metadata([]), builder.load

    def load_constant(*args: Any, **kwargs: Any) -> Any:
        made = load(*args, **kwargs)
        made.set_metadata("invariant.load", nothing)
        return made

    builder.load = load_constant
    try:
        model = context.data_model_manager[kind.kinds[i]]
        field = model.load_from_data_pointer(builder, place)
    finally:
        del builder.load
    return impl_ret_borrowed(context, builder, kind.kinds[i], field)


@unbox(FrameType)
def _unbox_frame(kind: FrameType, found: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(found, ADDRESS)
    failed = cgutils.alloca_once_value(c.builder, cgutils.true_bit)
    place = cgutils.alloca_once_value(c.builder, c.pyapi.get_null_object())
    with c.builder.if_then(cgutils.is_not_null(c.builder, number)):
        c.builder.store(c.pyapi.long_as_voidptr(number), place)
        c.pyapi.decref(number)
        c.builder.store(cgutils.false_bit, failed)
    return NativeValue(c.builder.load(place), is_error=c.builder.load(failed))
