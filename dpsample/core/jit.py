"""Compiled code: the decorator of kernels, pointers to C functions, entry points.

A kernel is a function that Numba compiles. A C function, or pointer, is compiled from a
kernel for one signature. Kernels take it as an argument, so that they are compiled once
and not again for each loss or domain. The entry point of a kernel is its machine code.

Numba *unboxes* arguments of Python to compiled values, and *boxes* results. Some of its
functions for this are replaced here, because they are slow, or because Ctrl-C in the
middle of them would end the process.
"""

import builtins
import dis
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numba
import numba.core.boxing  # it registers those that are replaced below
from llvmlite import ir
from numba import cfunc, typeof, types
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.pythonapi import _BoxContext, _boxers, _UnboxContext, _unboxers
from numba.core.typing.templates import Signature
from numba.experimental.function_type import FunctionModel
from numba.extending import NativeValue, register_model, typeof_impl, unbox

from dpsample.core import check
from dpsample.core.cache import CACHE_DIRECTORY, package_cache
from dpsample.core.compiling import KernelCompiler
from dpsample.core.frames import ADDRESS, PIECE_KIND
from dpsample.core.linking import (
    CheckedDispatcher,
    KernelDispatcher,
    reject_frame,
    without_collector,
)

f8 = types.float64
i8 = types.int64
vector = types.float64[::1]
matrix = types.Array(types.float64, 2, "C")
# The type that numba.typeof returns for any Generator. None is made at import.
generator = types.npytypes.NumPyRandomGeneratorType("NumPyRandomGeneratorType")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Returned = TypeVar("Returned", covariant=True)


class Kernel(Protocol[Parameters, Returned]):
    """Compiled function, called as the Python function it comes from.

    Numba knows the types of arguments. So a file of kernels leaves them out, and its
    first line tells mypy. Number and names of the arguments are checked.
    """

    @property
    def py_func(self) -> Callable[Parameters, Returned]:
        """The Python function; under NUMBA_DISABLE_JIT the kernel itself."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run the compiled function."""


# Compiled function that writes into its last argument.
Piece = Callable[..., None]
# A C function; under NUMBA_DISABLE_JIT the Python function.
Pointer = CFunc | Callable[..., Any]


class PieceType(types.FunctionType):  # type: ignore[misc]
    """Type of our pointers, whose address is an attribute.

    For its own type Numba imports a module, unpickles a signature and calls two Python
    functions for each pointer at each call of a kernel. That takes 1.7 us, and a target
    has eight pointers.
    """


register_model(PieceType)(FunctionModel)


def _unbox_piece(
    kind: PieceType, pointer_object: object, context: _UnboxContext
) -> NativeValue:
    """Read the address of a pointer from its attribute."""
    structure = cgutils.create_struct_proxy(kind)(context.context, context.builder)
    address = context.pyapi.object_getattr_string(pointer_object, ADDRESS)
    structure.c_addr = context.pyapi.long_as_voidptr(address)
    context.pyapi.decref(address)
    return NativeValue(structure._getvalue())


unbox(PieceType)(_unbox_piece)


def _unbox_bits(kind: object, bits: object, context: _UnboxContext) -> NativeValue:
    """Read NumPy's ``bitgen_t``: state and C functions of its address.

    Numba reads it with `ctypes`, whose functions are written in Python. Ctrl-C in one
    of them would end the process by a segmentation fault.
    """
    builder, api = context.builder, context.pyapi
    structure = cgutils.create_struct_proxy(kind)(context.context, builder)
    name = context.context.insert_const_string(builder.module, "BitGenerator")
    signature = ir.FunctionType(api.voidptr, [api.pyobj, api.cstring])
    pointer_of = api._get_function(signature, "PyCapsule_GetPointer")
    capsule = api.object_getattr_string(bits, "capsule")
    address = builder.call(pointer_of, [capsule, name])
    api.decref(capsule)
    number = context.context.get_value_type(types.uintp)
    words = builder.bitcast(address, number.as_pointer())
    structure.parent, structure.state_address = bits, builder.load(words)
    names = ("state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double")
    for i, field in enumerate(names):
        word = builder.gep(words, [ir.Constant(ir.IntType(32), i)])
        setattr(structure, field, builder.load(word))
    return NativeValue(structure._getvalue())


_unboxers.functions[types.NumPyRandomBitGeneratorType] = _unbox_bits


def _box_tuple(kind: types.BaseTuple, value: object, context: _BoxContext) -> object:
    """Return a tuple of a kernel's results, or no object if Ctrl-C came before.

    To find the class of an array or of a named tuple Numba calls Python. There a Ctrl-C
    is raised that came while the kernel ran. Numba's own function would continue in
    spite of the exception, and end the process.
    """
    builder, api = context.builder, context.pyapi
    plain_tuple = api.tuple_new(kind.count)
    for i, item_kind in enumerate(kind):
        item = builder.extract_value(value, i)
        if isinstance(item_kind, types.Number):
            api.tuple_setitem(plain_tuple, i, context.box(item_kind, item))
            continue
        is_without_error = cgutils.is_null(builder, api.err_occurred())
        with builder.if_else(is_without_error) as (then, otherwise):
            with then:
                api.tuple_setitem(plain_tuple, i, context.box(item_kind, item))
            with otherwise:
                if context.context.enable_nrt:
                    context.context.nrt.decref(builder, item_kind, item)
    result = cgutils.alloca_once_value(builder, api.get_null_object())
    with builder.if_then(cgutils.is_null(builder, api.err_occurred())):
        if isinstance(kind, types.BaseNamedTuple):
            tuple_class = api.unserialize(api.serialize_object(kind.instance_class))
            with cgutils.if_likely(builder, cgutils.is_not_null(builder, tuple_class)):
                builder.store(api.call(tuple_class, plain_tuple), result)
            api.decref(tuple_class)
        else:
            api.incref(plain_tuple)
            builder.store(plain_tuple, result)
    api.decref(plain_tuple)
    return builder.load(result)


for _tuple_kind in (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple):
    _boxers.functions[_tuple_kind] = _box_tuple


# Types are made once per signature. Numba would make them again at every call.
_piece_type, _function_type = cache(PieceType), cache(types.FunctionType)


def _typeof_pointer(c_function: CFunc, _: object) -> types.FunctionType:
    """Return our type for pointers that `pointer` made, and Numba's for others.

    The pointer keeps it, because to hash a signature takes microseconds.
    """
    attributes = vars(c_function)
    signature, kind = attributes.get(PIECE_KIND, (None, None))
    if signature is not c_function._sig:  # type: ignore[attr-defined]
        signature = c_function._sig  # type: ignore[attr-defined]
        make = _piece_type if ADDRESS in attributes else _function_type
        kind = make(signature)
        attributes[PIECE_KIND] = signature, kind
    return kind


typeof_impl.register(CFunc)(_typeof_pointer)


# Pointers by ids of functions. Each entry holds its function, because an id is unique
# only while its object lives.
_pointers: dict[tuple[int, object], tuple[object, Signature, Pointer]] = {}


@overload
def kernel(
    function: Callable[Parameters, Result], *, cached: bool = True
) -> Kernel[Parameters, Result]: ...
@overload
def kernel(
    *, cached: bool = True, counts_references: bool = True, **options: Any
) -> Callable[[Callable[Parameters, Result]], Kernel[Parameters, Result]]: ...
def kernel(
    function: Callable[..., object] | None = None,
    *,
    cached: bool = True,
    counts_references: bool = True,
    **options: Any,
) -> Any:
    """Decorate a function that Numba compiles at its first call.

    Machine code is cached on disk. It runs without Python's lock, and divides as IEEE
    754 says: by zero gives infinity or NaN.

    ``counts_references=False`` is for functions that allocate nothing and return no
    array, except one of their arguments to a caller that does not count either. Numba
    then leaves out the atomic counts of references for every view and tuple, which took
    1.3 us of each step of the gradient loop. Kernels that call them keep the memory
    alive. For a call from Python they are compiled separately, and count, unless they
    have ``fastmath``. (The flag is always set, because a callee would inherit its
    caller's.)

    ``options`` are passed to Numba. ``fastmath`` must never allow the compiler to drop
    tests for NaN, because NaN is the failure code of every kernel. A kernel that has it
    is compiled separately. Otherwise the order of its sums would depend on its caller.
    ``cached=False`` is for functions of the user, whose changes the fingerprint of the
    cache does not show.
    """
    if function is None:
        return partial(
            kernel, cached=cached, counts_references=counts_references, **options
        )
    if numba.config.DISABLE_JIT:
        vars(function)["py_func"] = function
        return function
    options |= {"_nrt": counts_references, "nopython": True, "nogil": True}
    options = {"boundscheck": None} | options | {"error_model": "numpy"}
    options |= {"no_cfunc_wrapper": True}  # a `pointer` is compiled apart
    dispatcher = CheckedDispatcher if "fastmath" in options else KernelDispatcher
    compiled = dispatcher(
        py_func=function, targetoptions=options, pipeline_class=KernelCompiler
    )
    compiled.opens_cache = cached and bool(CACHE_DIRECTORY)
    return compiled


def pointer(
    function: Callable[..., object], signature: Signature, *, cached: bool = True
) -> Pointer:
    """Return the C function of a `kernel`, or of a user's njit function.

    It is compiled at its first use. A kernel that takes pointers is compiled once for
    all of them. An exception inside a C function is lost. So it reports a failure by an
    output array that its caller has filled with NaN. Under NUMBA_DISABLE_JIT the
    function itself is returned.
    """
    if numba.config.DISABLE_JIT:
        return function
    # Signatures are constants of modules, so their ids are tried first. To hash them
    # would take a seventh of a release.
    entry_of_ids = _pointers.get((id(function), id(signature)))
    if entry_of_ids is not None:
        return entry_of_ids[-1]
    key = (id(function), signature)
    if key not in _pointers:
        c_function = compile_c_function(function, signature, cached=cached)
        # Objects whose ids are keys must live as long as their entries.
        _pointers[key] = function, signature, c_function
        _pointers[id(function), id(signature)] = _pointers[key]
    return _pointers[key][-1]


def compile_c_function(
    function: Callable[..., object], signature: Signature, *, cached: bool
) -> Pointer:
    """Compile a C function that lives as long as the caller keeps it, see `pointer`."""
    if numba.config.DISABLE_JIT:
        return function
    cached = cached and bool(CACHE_DIRECTORY)
    options = {"nopython": True, "error_model": "numpy"}
    options["_nrt"] = getattr(function, "targetoptions", {}).get("_nrt", True)
    python_function = getattr(function, "py_func", function)
    reject_frame(python_function.__name__, signature.return_type)
    with package_cache(), without_collector():
        compile_pointer = cfunc(
            signature, cache=cached, pipeline_class=KernelCompiler, **options
        )
        c_function: CFunc = compile_pointer(python_function)
        vars(c_function)[ADDRESS] = c_function.address
    return c_function


# Attribute of a tuple by address: its key in `_entry_points`.
FRAME_KIND = "dpsample_frame_kind"
# Machine code by kernel and types of its arguments, and by kernel alone.
_entry_points: dict[tuple[object, ...], Callable[..., Any]] = {}
_bound: dict[Kernel[..., Any], Callable[..., Any]] = {}


def entry(kernel: Kernel[..., Result], *arguments: object) -> Callable[..., Result]:
    """Return the machine code of a kernel for arguments of these types.

    A dispatcher finds the type of each field of each tuple at every call, which takes
    0.1 ms. Here the caller is responsible for the types. Arguments of other types would
    be misread.
    """
    if not hasattr(kernel, "overloads"):  # interpreted
        return kernel
    key = kernel, *map(_kind, arguments)
    if key not in _entry_points:
        kinds = tuple(map(typeof, arguments))
        dispatcher: Any = kernel
        dispatcher.compile(kinds)
        _entry_points[key] = dispatcher.overloads[kinds].entry_point
    return _entry_points[key]


def _kind(value: Any) -> object:
    """Return a key that distinguishes types of arguments, in a few microseconds."""
    # A tuple by address keeps its key, because its fields never change.
    if hasattr(type(value), ADDRESS):
        attributes = vars(value)
        if FRAME_KIND not in attributes:
            attributes[FRAME_KIND] = type(value), *map(_kind, value)
        return attributes[FRAME_KIND]
    try:
        return compute_fingerprint(value)
    except NotImplementedError:  # the value contains a pointer or a generator
        if isinstance(value, tuple):
            return type(value), *map(_kind, value)
        return type(value), getattr(value, ADDRESS, None)


def call(kernel: Kernel[..., Result], *arguments: object) -> Result:
    """Call the machine code of a kernel whose arguments always have the same types."""
    if kernel not in _bound:
        _bound[kernel] = entry(kernel, *arguments)
    result: Result = _bound[kernel](*arguments)
    return result


def reject_print(name: str, function: object) -> None:
    """Raise if a function prints, or a function whose name it contains.

    Compiled code runs without the interpreter's lock. To print it would wait for this
    lock for ever.
    """
    # Objects are found by their id, because arrays cannot be compared.
    waiting, seen = [function], dict[int, object]()
    while waiting:
        candidate = waiting.pop()
        python = getattr(candidate, "py_func", candidate)
        if candidate is print:
            remedy = "Call the function itself to look at its values."
            check.fail(name, "free of print", "a function that mentions it", remedy)
        if id(python) in seen:
            continue
        seen[id(python)] = python
        # Numba's ufuncs have their function here.
        waiting.append(getattr(python, "__wrapped__", None))
        if isinstance(python, tuple):
            waiting.extend(python)
        elif inspect.isfunction(python):
            module = str(python.__module__).split(".")[0]  # exec gives None
            # Modules that Numba has its own code for.
            if module not in ("numba", "numpy", "scipy"):
                waiting.extend(values_of_names(python))


def values_of_names(function: FunctionType) -> Iterator[object]:
    """Yield the values of names that a function reads, and attributes of modules."""
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    codes = [function.__code__]
    while codes:
        code, value = codes.pop(), None
        constants = code.co_consts
        codes += [constant for constant in constants if isinstance(constant, CodeType)]
        for step in dis.get_instructions(code):
            if step.opname in ("PUSH_NULL", "CACHE"):
                continue
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                usual = getattr(builtins, step.argval, None)
                value = function.__globals__.get(step.argval, usual)
            elif step.opname == "LOAD_DEREF" and step.argval in cells:
                with suppress(ValueError):  # it has no value yet
                    value = cells[step.argval].cell_contents
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                is_of_module = inspect.ismodule(value)
                value = getattr(value, step.argval, None) if is_of_module else None
            else:
                value = None
            yield value
