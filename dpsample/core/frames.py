"""Named tuples that kernels take by address.

Numba passes a named tuple by value, flattened. An array has seven words. So a state of
28 arrays becomes 200 arguments of every function that takes it, which are taken apart
and put together again at each call. A class that is decorated with `by_address` lays
its fields out in memory once, when a kernel is first called with the tuple. Kernels get
the address, and load a field where they name it. Such a tuple is called a *frame* here.
The *kind* of a field is its Numba type.

Rules for kernels:

- They read fields by name. A tuple that is passed by address is not returned to Python,
  stored, indexed, unpacked or used as a constant.
- The fields of a tuple never change, and loads say so (``invariant.load``). Otherwise
  each store to an array would force the compiler to read them again. Kernels never
  write to that memory, so that no store contradicts it.
- The memory belongs to the tuple, which also holds its arrays. The address is valid as
  long as the caller of the kernel holds the tuple, so no reference is counted. A field
  may be returned to Python, because it is the array itself. A view of a field may not:
  it would have no owner.
- A tuple that a kernel builds is passed by value, as Numba does. Another version of the
  function that takes it is compiled for this.

An array must not be reshaped in place (``array.shape = ...``, ``array.resize``) after
the first call, because kernels would see the old shape.
"""

import ctypes
import hashlib
import struct
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.ccallback import CFunc
from numba.core.datamodel.models import DataModel, PrimitiveModel
from numba.core.errors import NumbaError
from numba.core.imputils import impl_ret_borrowed
from numba.core.pythonapi import _UnboxContext
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

from dpsample.core import check

ADDRESS = "dpsample_address"  # attribute of what kernels take by address
MEMORY = "dpsample_memory"  # attribute that owns the memory at the address
NUMBER_KINDS = "dpsample_number_kinds"  # types of the fields annotated as numbers
DECLARED = "dpsample_declared"  # type of all tuples of a class, if there is one
# Attribute of a C function: its signature, and the type that was made of it.
PIECE_KIND = "dpsample_piece_kind"
# Fields that are annotated as numbers have the annotated type, so that 2 in a field of
# floats is a float.
NUMBERS = {float: types.float64, int: types.int64, bool: types.boolean}
# Codes of the module `struct` for the fields, as Numba's data models lay them out: by
# Numba's type, and by Python's type if the annotation is no number.
NUMBER_CODES = {types.float64: "d", types.int64: "q", types.boolean: "?"}
OTHER_CODES: dict[type, str] = {bool: "?", int: "q", float: "d", type(None): "P"}
OTHER_CODES |= {np.bool_: "?", np.int64: "q", np.float64: "d"}
# Fields of Numba's data models that this layout assumes, see `_check_model`.
ARRAY_MODEL = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
Fields = tuple[Any, ...]  # a named tuple

AnyArray = NDArray[Any]
Kinds = tuple[Any, ...]  # Numba's types of its fields
Frame = TypeVar("Frame", bound=Fields)


class ArrayFlag:
    """Bits of `flags.num` of an array, as NumPy's C headers define them."""

    c_contiguous = 0x1
    f_contiguous = 0x2
    aligned = 0x100
    writeable = 0x400


class FrameType(types.Type):
    """Type of a named tuple by address: its class and the types of its fields."""

    def __init__(self, kinds: Kinds, instance_class: type) -> None:
        self.kinds = tuple(kinds)
        self.instance_class = instance_class
        # Numba compares types of C functions by name, and names compiled functions by
        # those of their arguments. The digest keeps names short.
        parts = (instance_class.__module__, *map(str, self.kinds))
        digest = hashlib.blake2b(", ".join(parts).encode(), digest_size=8).hexdigest()
        super().__init__(name=f"Frame({instance_class.__qualname__}, {digest})")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return self.instance_class._fields  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def layouts(self) -> "tuple[_FieldLayout, ...] | None":
        """How each field is laid out, or None if values have a part in it."""
        columns = zip(
            self.kinds, getattr(self.instance_class, NUMBER_KINDS), strict=True
        )
        layouts = [_layout_of(kind, number) for kind, number in columns]
        return None if None in layouts else tuple(filter(None, layouts))

    @cached_property
    def packer(self) -> struct.Struct:
        """Writer of the words of all fields. It needs `layouts`."""
        return _packer("".join(layout.code for layout in self.layouts or ()))

    @property
    def key(self) -> object:
        """The class and the kinds, by which types are compared."""
        return self.instance_class, self.kinds

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        """Return the hash, which takes long for many fields, as it was computed."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Return whether the class and the kinds are the same."""
        return self is other or (type(other) is FrameType and self.key == other.key)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the hash, which differs between processes.

        Layouts are left out as well, so that what is pickled does not depend on whether
        a tuple was laid out.
        """
        left_out = {"_hash", "layouts", "packer"}
        return {
            name: value for name, value in vars(self).items() if name not in left_out
        }


@lru_cache(maxsize=4096)
def frame_type(kinds: Kinds, instance_class: type) -> FrameType:
    """Return the type of such tuples.

    It is made once, because a digest takes ten microseconds.
    """
    return FrameType(kinds, instance_class)


def by_address(cls: type[Frame]) -> type[Frame]:
    """Decorate a named tuple class whose tuples kernels take by address."""
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    body = {name: getattr(cls, name) for name in ("__module__", "__doc__")}
    body |= {"__qualname__": cls.__qualname__, "__reduce__": _reduce}
    body[ADDRESS] = _Address()
    hints = cls.__annotations__
    body[NUMBER_KINDS] = tuple(NUMBERS.get(hints.get(name, object)) for name in names)
    # A subclass, because tuples of the class itself cannot have attributes.
    decorated = type(cls.__name__, (cls,), body)
    typeof_impl.register(decorated)(_typeof)
    return decorated


def declare_kinds(cls: type, *kinds: object) -> FrameType:
    """Declare that the fields of all tuples of a class have these types.

    Return the type of the tuples. Numba then does not determine the type of each field
    at each call, which takes a microsecond per field. The types of the fields are
    checked when they are laid out. A field whose type is a frame without fields may
    hold any frame.
    """
    kind = frame_type(kinds, cls)
    setattr(cls, DECLARED, kind)
    typeof_impl.register(cls)(lambda _fields, _context: kind)
    return kind


class _FieldLayout(NamedTuple):
    """How a field of a declared type is checked and laid out."""

    code: str  # for the module `struct`
    kind: types.Type  # Numba's type
    dtype: np.dtype[Any] | None = None  # an array's type of entries, None for others
    num_axes: int = 0
    flags: int = 0  # that the array must have
    is_frame: bool = False
    is_any: bool = False  # a frame type without fields, which stands for any frame
    is_piece: bool = False


def _layout_of(kind: types.Type, number: types.Hashable | None) -> _FieldLayout | None:
    """Return the layout of a field, None if it depends on the field's value."""
    if number is not None:
        # `struct` rejects what is no such number.
        code = NUMBER_CODES[number]
        return _FieldLayout(code, kind) if kind is number else None
    if isinstance(kind, types.Array):
        flags = ArrayFlag.aligned | (ArrayFlag.writeable if kind.mutable else 0)
        orders = {"C": ArrayFlag.c_contiguous, "F": ArrayFlag.f_contiguous}
        flags |= orders.get(kind.layout, 0)
        dtype = np.dtype(as_dtype(kind.dtype))
        return _FieldLayout(_array_code(kind.ndim), kind, dtype, kind.ndim, flags)
    if isinstance(kind, FrameType):
        return _FieldLayout("P", kind, is_frame=True, is_any=not kind.kinds)
    if isinstance(kind, types.FunctionType):
        return _FieldLayout("PPP", kind, is_piece=True)
    return None


def _array_code(num_axes: int) -> str:
    """Return the code of an array.

    The first word is the address of a reference count. It is 0, because the tuple owns
    the array. Each dimension adds two words, a side of the shape and a stride.
    """
    return "PPqqP" + "qq" * num_axes


def _declared_words(declared: FrameType, fields: Fields) -> list[object]:
    """Return words for `struct` of a tuple, whose fields must have declared types.

    This is `_code_and_words` without what is known from the types.
    """
    words = list[object]()
    layouts = declared.layouts or ()
    for i, (layout, field) in enumerate(zip(layouts, fields, strict=True)):
        dtype = layout.dtype
        if dtype is not None:
            if not (
                isinstance(field, np.ndarray)
                and field.ndim == layout.num_axes
                and (field.dtype is dtype or field.dtype == dtype)
                and field.flags.num & layout.flags == layout.flags
            ):
                _reject_field(declared, fields, i)
            words += (0, id(field), field.size, field.itemsize, _address_of(field))
            words += field.shape
            words += field.strides
        elif layout.is_frame:
            is_declared = getattr(type(field), DECLARED, None) is layout.kind
            if not (is_declared or layout.is_any or typeof(field) == layout.kind):
                _reject_field(declared, fields, i)
            address = getattr(field, ADDRESS, None)
            if address is None:
                _reject_field(declared, fields, i)
            words.append(address)
        elif layout.is_piece:
            if not _has_kind(field, layout.kind):
                _reject_field(declared, fields, i)
            words += (field.address, 0, 0)
        else:
            words.append(field)
    return words


def _has_kind(field: object, kind: object) -> bool:
    """Return whether a C function has a type, without `typeof` if it has had one."""
    last = getattr(field, PIECE_KIND, None)
    if last is not None and last[0] is getattr(field, "_sig", None) and last[1] is kind:
        return True
    return bool(typeof(field) == kind)


def _reject_field(declared: FrameType, fields: Fields, i: int) -> NoReturn:
    """Raise the error about a field that has not its declared type."""
    name = f"{type(fields).__name__}.{declared.names[i]}"
    _reject(name, fields[i], str(declared.kinds[i]))


def _check_declared(declared: FrameType, fields: Fields) -> None:
    """Raise unless the fields of a tuple have the declared types."""
    numbers = getattr(fields, NUMBER_KINDS)
    columns = zip(declared.kinds, numbers, fields, strict=True)
    for i, (kind, number, field) in enumerate(columns):
        if number is not None and kind is number:
            fits = True  # `struct` rejects what is no such number
        elif isinstance(kind, FrameType) and not kind.kinds:
            fits = hasattr(field, ADDRESS)
        else:
            fits = typeof(field) == kind
        if not fits:
            _reject_field(declared, fields, i)


class _Address:
    """Attribute that is computed once, and is then found in the tuple itself."""

    def __get__(self, fields: Fields | None, owner: type) -> object:
        if fields is None:
            return self
        # `setdefault` keeps the first of several memories that threads make at once.
        # The memory of another thread would be freed while a kernel reads it.
        memory = vars(fields).setdefault(MEMORY, _lay_out(fields))
        return vars(fields).setdefault(ADDRESS, _address_of(memory))


def _reduce(fields: Fields) -> tuple[object, ...]:
    """Pickle and copy only the fields. The address is of one process and one tuple."""
    return type(fields), tuple(fields)


def _typeof(fields: Fields, context: object) -> FrameType:
    """Return the type of a tuple whose class has declared none."""
    kinds = tuple(
        number or typeof_impl(field, context)
        for number, field in zip(getattr(fields, NUMBER_KINDS), fields, strict=True)
    )
    if None in kinds:
        i = kinds.index(None)
        _reject(f"{type(fields).__name__}.{_names_of(fields)[i]}", fields[i])
    return frame_type(kinds, fields.__class__)


def _names_of(fields: Fields) -> Sequence[object]:
    """Return the names of fields, or their positions in a plain tuple."""
    return getattr(fields, "_fields", range(len(fields)))


def _reject(
    name: str,
    field: object,
    condition: str = "an array, a C function, None, a tuple of them or a number of "
    "64 bits",
) -> NoReturn:
    """Raise the error about a field of a wrong type."""
    raise TypeError(f"{name} must be {condition}, got {check.describe(field)}.")


def _lay_out(fields: Fields) -> NDArray[np.int64]:
    """Return memory that holds the fields as kernels read them."""
    declared: FrameType | None = getattr(type(fields), DECLARED, None)
    if declared is not None and declared.layouts is not None:
        packer, words = declared.packer, _declared_words(declared, fields)
    else:
        if declared is not None:
            _check_declared(declared, fields)
        code, words = _code_and_words(fields)
        packer = _packer(code)
    memory = np.empty(-(-packer.size // 8), np.int64)
    try:
        packer.pack_into(memory.data, 0, *words)
    except struct.error as error:
        raise TypeError(
            f"{type(fields).__name__} has a wrong number: {error}."
        ) from None
    return memory


_packer = lru_cache(maxsize=4096)(struct.Struct)


def _slow_address_of(array: AnyArray) -> int:
    """Return the address of an array's first entry, as NumPy gives it."""
    return int(array.ctypes.data)


def _fast_address_of(array: AnyArray) -> int:
    """Return the address of an array's first entry, in a tenth of the time.

    Extension modules read it from the same place, so that NumPy may not move it: the
    first word after those that all objects of Python have.
    """
    return ctypes.c_size_t.from_address(id(array) + object.__basicsize__).value


_probe = np.arange(3.0)[1:]
_address_of = _fast_address_of
if _fast_address_of(_probe) != _slow_address_of(_probe):
    _address_of = _slow_address_of


def _code_and_words(fields: Fields) -> tuple[str, list[object]]:
    """Return format and words for `struct`, in the order of Numba's data models.

    `struct` aligns each word as the compiler does. "0q" aligns the start and the end of
    an inner tuple to eight bytes.
    """
    code, words = list[str](), list[object]()
    numbers = getattr(fields, NUMBER_KINDS, (None,) * len(fields))
    for i, (number, field) in enumerate(zip(numbers, fields, strict=True)):
        if number is not None:
            code.append(NUMBER_CODES[number])
            words.append(field)
        elif isinstance(field, np.ndarray):
            code.append(_array_code(field.ndim))
            words += (0, id(field), field.size, field.itemsize, _address_of(field))
            words += field.shape
            words += field.strides
        elif isinstance(field, CFunc):
            code.append("PPP")
            words += (field.address, 0, 0)  # the others are for calls that may raise
        elif hasattr(field, ADDRESS):
            code.append("P")
            words.append(getattr(field, ADDRESS))
        elif isinstance(field, tuple):
            inner, inner_words = _code_and_words(field)
            edge = "" if set(inner) <= {"?"} else "0q"
            code += (edge, inner, edge)
            words += inner_words
        elif type(field) in OTHER_CODES:
            code.append(OTHER_CODES[type(field)])
            words.append(0 if field is None else field)
        else:
            _reject(f"{type(fields).__name__}.{_names_of(fields)[i]}", field)
    return "".join(code), words


@register_model(FrameType)
class _FrameModel(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: object, kind: FrameType) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@infer_getattr
class _FrameFields(AttributeTemplate):  # type: ignore[misc]
    key = FrameType

    def generic_resolve(self, kind: FrameType, name: str) -> object:
        return kind.kinds[kind.names.index(name)] if name in kind.names else None


@lower_getattr_generic(FrameType)  # type: ignore[untyped-decorator]
def _load_field(
    context: BaseContext,
    builder: ir.IRBuilder,
    kind: FrameType,
    address: ir.Value,
    name: str,
) -> ir.Value:
    """Load a field of a tuple at an address, as a value that never changes."""
    i = kind.names.index(name)
    layout = ir.LiteralStructType([context.get_data_type(k) for k in kind.kinds])
    start = builder.bitcast(address, layout.as_pointer())
    field_pointer = cgutils.gep_inbounds(builder, start, 0, i)
    model = context.data_model_manager[kind.kinds[i]]
    _check_model(kind.kinds[i], model)
    instructions = builder.block.instructions
    num_before = len(instructions)
    field = model.load_from_data_pointer(builder, field_pointer)
    nothing = builder.module.add_metadata([])
    for instruction in instructions[num_before:]:
        if isinstance(instruction, ir.LoadInstr):
            instruction.set_metadata("invariant.load", nothing)
    return impl_ret_borrowed(context, builder, kind.kinds[i], field)


def _check_model(kind: types.Type, model: DataModel) -> None:
    """Raise if another version of Numba lays fields out in another way."""
    expected: tuple[str, ...] | None = None
    if isinstance(kind, types.Array):
        expected = ARRAY_MODEL
    elif isinstance(kind, types.FunctionType):
        expected = ("c_addr", "py_addr", "jit_addr")
    if expected is not None and tuple(model._fields) != expected:
        raise NumbaError(
            f"The fields of {kind} must be {expected}, got {tuple(model._fields)}. "
            "Install another version of Numba."
        )


@unbox(FrameType)  # type: ignore[untyped-decorator]
def _unbox_frame(_kind: FrameType, fields: ir.Value, c: _UnboxContext) -> NativeValue:
    """Read the address of a tuple, and report the exception if it has none."""
    number = c.pyapi.object_getattr_string(fields, ADDRESS)
    is_error = cgutils.alloca_once_value(c.builder, cgutils.true_bit)
    address = cgutils.alloca_once_value(c.builder, c.pyapi.get_null_object())
    with c.builder.if_then(cgutils.is_not_null(c.builder, number)):
        c.builder.store(c.pyapi.long_as_voidptr(number), address)
        c.pyapi.decref(number)
        c.builder.store(cgutils.false_bit, is_error)
    return NativeValue(c.builder.load(address), is_error=c.builder.load(is_error))
