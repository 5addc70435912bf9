"""Compiled code: the one decorator, pointers to pieces, entry points of kernels."""

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
from dpsample.core.frames import ADDRESS
from dpsample.core.linking import (
    CheckedDispatcher,
    KernelDispatcher,
    refuse_frame,
    without_collector,
)

COMPILED = ("numba", "numpy", "scipy")  # modules that Numba has its own code for
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
        """The Python function; under NUMBA_DISABLE_JIT the kernel itself."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run the compiled function."""


# Compiled function that writes into its last argument.
Piece = Callable[..., None]
# A C function; under NUMBA_DISABLE_JIT the Python function.
Pointer = CFunc | Callable[..., Any]


class PieceType(types.FunctionType):  # type: ignore[misc]
    """Type of our pointers, whose address is read and not asked for.

    Numba imports a module, unpickles a signature and calls two Python functions for
    each pointer at each call of a kernel: 1.7 us, and a target has eight.
    """


register_model(PieceType)(FunctionModel)


def _unbox_piece(kind: PieceType, found: object, context: _UnboxContext) -> NativeValue:
    made = cgutils.create_struct_proxy(kind)(context.context, context.builder)
    number = context.pyapi.object_getattr_string(found, ADDRESS)
    made.c_addr = context.pyapi.long_as_voidptr(number)
    context.pyapi.decref(number)
    return NativeValue(made._getvalue())


unbox(PieceType)(_unbox_piece)


def _unbox_bits(kind: object, found: object, context: _UnboxContext) -> NativeValue:
    """Read NumPy's ``bitgen_t``: state and C functions of its address.

    Numba asks `ctypes`, whose functions are Python's: Ctrl-C in one of them, wherever
    it came while arguments were read, ends the process by a segmentation fault.
    """
    builder, api = context.builder, context.pyapi
    made = cgutils.create_struct_proxy(kind)(context.context, builder)
    name = context.context.insert_const_string(builder.module, "BitGenerator")
    signature = ir.FunctionType(api.voidptr, [api.pyobj, api.cstring])
    pointer_of = api._get_function(signature, "PyCapsule_GetPointer")
    capsule = api.object_getattr_string(found, "capsule")
    address = builder.call(pointer_of, [capsule, name])
    api.decref(capsule)
    number = context.context.get_value_type(types.uintp)
    places = builder.bitcast(address, number.as_pointer())
    made.parent, made.state_address = found, builder.load(places)
    names = ("state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double")
    for i, field in enumerate(names):
        place = builder.gep(places, [ir.Constant(ir.IntType(32), i)])
        setattr(made, field, builder.load(place))
    return NativeValue(made._getvalue())


_unboxers.functions[types.NumPyRandomBitGeneratorType] = _unbox_bits


def _box_tuple(kind: types.BaseTuple, value: object, context: _BoxContext) -> object:
    """Tuple of a kernel's results, or no object if Ctrl-C came before there is one.

    To find the class of an array or of a named tuple Numba calls Python, where Ctrl-C
    is raised that came while the kernel ran. It would go on, and end the process.
    """
    builder, api = context.builder, context.pyapi
    row = api.tuple_new(kind.count)
    for i, each in enumerate(kind):
        item = builder.extract_value(value, i)
        if isinstance(each, types.Number):
            api.tuple_setitem(row, i, context.box(each, item))
            continue
        is_well = cgutils.is_null(builder, api.err_occurred())
        with builder.if_else(is_well) as (then, otherwise):
            with then:
                api.tuple_setitem(row, i, context.box(each, item))
            with otherwise:
                if context.context.enable_nrt:
                    context.context.nrt.decref(builder, each, item)
    made = cgutils.alloca_once_value(builder, api.get_null_object())
    with builder.if_then(cgutils.is_null(builder, api.err_occurred())):
        if isinstance(kind, types.BaseNamedTuple):
            found = api.unserialize(api.serialize_object(kind.instance_class))
            with cgutils.if_likely(builder, cgutils.is_not_null(builder, found)):
                builder.store(api.call(found, row), made)
            api.decref(found)
        else:
            api.incref(row)
            builder.store(row, made)
    api.decref(row)
    return builder.load(made)


for _each in (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple):
    _boxers.functions[_each] = _box_tuple


# Once per signature: Numba would make the type of a pointer anew at every call.
_piece_type, _function_type = cache(PieceType), cache(types.FunctionType)


def _typeof_pointer(found: CFunc, _: object) -> types.FunctionType:
    kind = _piece_type if ADDRESS in vars(found) else _function_type
    return kind(found._sig)  # type: ignore[attr-defined]


typeof_impl.register(CFunc)(_typeof_pointer)


# With its function: an id is unique only while its object lives.
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
    """Compile on first call, cached on disk, without the GIL, IEEE division.

    ``counts_references=False`` is for functions that allocate nothing and return no
    array except an argument, and that only to those that do not count either. Numba
    then leaves out the atomic counts of every view and tuple, which cost the gradient
    loop 1.3 us a step. Kernels that call them keep the memory alive. For a call from
    Python they are compiled apart, and count, unless they have ``fastmath``. (The flag
    is always set, since a callee would inherit its caller's.)

    ``options`` go to Numba. ``fastmath`` must never license the compiler to drop NaN
    tests: NaN is the failure code of every kernel. A kernel that has it is compiled for
    itself, or the order of its sums would depend on its caller. ``cached=False`` is for
    functions of the user, whose changes our fingerprint does not see.
    """
    if function is None:
        return partial(
            kernel, cached=cached, counts_references=counts_references, **options
        )
    if numba.config.DISABLE_JIT:
        vars(function)["py_func"] = function
        return function
    options |= {"_nrt": counts_references, "nopython": True, "nogil": True}
    options |= {"error_model": "numpy", "boundscheck": None}
    options |= {"no_cfunc_wrapper": True}  # a `pointer` is compiled apart
    dispatcher = CheckedDispatcher if "fastmath" in options else KernelDispatcher
    made = dispatcher(
        py_func=function, targetoptions=options, pipeline_class=KernelCompiler
    )
    made.opens_cache = cached and bool(CACHE_DIRECTORY)
    return made


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
    # Signatures are constants of modules: to hash them takes a seventh of a release.
    kept = _pointers.get((id(function), id(signature)))
    if kept is not None:
        return kept[-1]
    key = (id(function), signature)
    if key not in _pointers:
        cached = cached and bool(CACHE_DIRECTORY)
        options = {"nopython": True, "error_model": "numpy"}
        options["_nrt"] = getattr(function, "targetoptions", {}).get("_nrt", True)
        python_function = getattr(function, "py_func", function)
        refuse_frame(python_function.__name__, signature.return_type)
        with package_cache(), without_collector():
            made = cfunc(
                signature, cache=cached, pipeline_class=KernelCompiler, **options
            )
            found = made(python_function)
            vars(found)[ADDRESS] = found.address
            # What has an id here lives as long as its entry.
            _pointers[key] = function, signature, found
            _pointers[id(function), id(signature)] = _pointers[key]
    return _pointers[key][-1]


_entry_points: dict[tuple[object, ...], Callable[..., Any]] = {}
_bound: dict[Kernel[..., Any], Callable[..., Any]] = {}


def entry(kernel: Kernel[..., Result], *arguments: object) -> Callable[..., Result]:
    """Machine code of a kernel for arguments of these types, called as it is.

    A dispatcher looks at every field of every tuple at every call: a tenth of a
    millisecond. The caller answers for the types, as arguments of others would be
    misread.
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


def _kind(value: object) -> object:
    """Whatever tells the types of arguments apart, in a microsecond or a few."""
    try:
        return compute_fingerprint(value)  # type: ignore[arg-type]
    except NotImplementedError:  # in it is a pointer, or a generator
        if isinstance(value, tuple):
            return type(value), *map(_kind, value)
        return type(value), getattr(value, ADDRESS, None)


def call(kernel: Kernel[..., Result], *arguments: object) -> Result:
    """Call the machine code of a kernel whose arguments always have the same types."""
    if kernel not in _bound:
        _bound[kernel] = entry(kernel, *arguments)
    result: Result = _bound[kernel](*arguments)
    return result


def refuse_print(name: str, function: object) -> None:
    """Refuse a function that prints, itself or by a function that it names.

    Compiled, it would wait forever for the interpreter's lock.
    """
    waiting, seen = [function], dict[int, object]()  # by id: arrays have no equality
    while waiting:
        found = waiting.pop()
        python = getattr(found, "py_func", found)
        if found is print:
            remedy = "Call the function itself to look at its values."
            check.fail(name, "free of print", "a function that mentions it", remedy)
        if id(python) in seen:
            continue
        seen[id(python)] = python
        waiting.append(getattr(python, "__wrapped__", None))  # of Numba's ufuncs
        if isinstance(python, tuple):
            waiting.extend(python)
        elif inspect.isfunction(python):
            module = str(python.__module__).split(".")[0]  # exec gives None
            if module not in COMPILED:
                waiting.extend(_mentioned(python))


def _mentioned(function: FunctionType) -> Iterator[object]:
    """Values of the names that a function's code reads, those of modules included."""
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    codes = [function.__code__]
    while codes:
        code, value = codes.pop(), None
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
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
