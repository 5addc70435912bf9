"""Functions and data of the user, compiled to C functions that kernels call.

A user writes plain Python or Numba functions such as ``energy(theta, data)``. Each is
called from a C function that is compiled for it alone, so that no kernel is compiled
again. The C function contains the addresses of the data. The data are therefore copied,
and a copy lives as long as the object that owns the C function.

Compiled functions get the point and the data as read-only arrays, so one that writes to
them does not compile. Before anything is compiled, the Python function is called once.
An exception then has its own text and line, and a write outside an array is an
IndexError and not the end of the process.
"""

import dis
import hashlib
import inspect
import linecache
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from numba import carray, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, is_jitted, overload

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.function_digests import digest_of
from dpsample.core.jit import (
    Pointer,
    compile_c_function,
    kernel,
    reject_print,
    values_of_names,
)
from dpsample.core.spec import lazy_property

# Types of entries that data may have, by the name of NumPy's type.
ENTRY_TYPES = {
    name: getattr(types, name)
    for name in ("float64", "float32", "int64", "int32", "uint64", "uint32", "uint8")
} | {"bool": types.boolean}
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _compile_cast(entry_type: types.Type) -> Callable[[int], Any]:
    """Return an intrinsic that turns an address into a pointer to entries."""

    @intrinsic  # type: ignore[untyped-decorator]
    def cast(context: Any, address: Any) -> Any:
        del context, address

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            # An address in a constant of the machine code, cast to a pointer.
            pointer_type = context.get_value_type(signature.return_type)
            return builder.inttoptr(args[0], pointer_type)

        return types.CPointer(entry_type)(types.int64), generate

    return cast  # type: ignore[no-any-return]


CASTS = {name: _compile_cast(entry) for name, entry in ENTRY_TYPES.items()}


@intrinsic  # type: ignore[untyped-decorator]
def _as_read_only(context: Any, array: Any) -> Any:
    """Return the same array, with a type that functions cannot write to."""
    del context

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return impl_ret_borrowed(context, builder, signature.return_type, args[0])

    return array.copy(readonly=True)(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def _as_boolean(context: Any, value: Any) -> Any:
    """Return a boolean, and refuse other types, as numbers are true if not 0."""
    del context
    if not isinstance(value, types.Boolean):
        raise TypingError(f"it returns {value} and not a bool, as x < 1 does")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, builder, signature
        return args[0]

    return types.boolean(types.boolean), generate


class RecordedErrors:
    """What functions of the user raise in C functions, while any recorder is active.

    Python would print each. The last one is kept, for the message of a later error.
    """

    # Errors so far, and how many callers record.

    def __init__(self) -> None:
        self.lock, self.depth, self.last = threading.Lock(), 0, ""
        # By file and line, as runs in other threads record here, too.
        self.by_line = dict[tuple[str, int], str]()
        self.usual: Callable[[Any], object] = sys.unraisablehook

    def __enter__(self) -> None:
        """Begin to record."""
        # Threads and nested calls share the hook, so the first one sets it and the last
        # one restores it.
        with self.lock:
            if self.depth == 0:
                self.last, self.usual = "", sys.unraisablehook
                self.by_line.clear()
                sys.unraisablehook = self._record
            self.depth += 1

    def __exit__(self, *error: object) -> None:
        """Restore what Python does, after the last recorder."""
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and sys.unraisablehook == self._record:
                sys.unraisablehook = self.usual

    def while_called(
        self, function: Callable[Parameters, Result]
    ) -> Callable[Parameters, Result]:
        """Decorate a function, during which errors are recorded."""

        @wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
            with self:
                return function(*args, **options)

        return call

    def raised_by(self, function: Callable[..., object]) -> str:
        """Return a recorded error of a line of a function, or ""."""
        # Compiled functions raise from code objects of their own, with the same lines.
        code = function.__code__
        keys = [(code.co_filename, line) for _, _, line in code.co_lines()]
        return next((self.by_line[key] for key in keys if key in self.by_line), "")

    def _record(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Keep an error of a C function of Numba, and pass others on."""
        if "CPUContext" not in str(unraisable.object):
            # Errors of anything else than Numba's C functions are not ours.
            self.usual(unraisable)
            return
        error, trace, where = unraisable.exc_value, unraisable.exc_traceback, ""
        file, line = "", 0
        # The last frame of the traceback is where the user's code raised.
        while trace is not None:
            file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            source = linecache.getline(file, line).strip()
            if source:
                where = f" (line {line}: {source})"
            trace = trace.tb_next
        self.last = f"{type(error).__name__}: {error}{where}"
        self.by_line[file, line] = self.last


recorded_errors = RecordedErrors()


def read_only_view(array: Array) -> Array:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


@overload(read_only_view)  # type: ignore[untyped-decorator]
def _compile_read_only_view(array: Array) -> Callable[[Array], Array]:
    """Return `read_only_view` for Numba, which compares annotations, too."""
    del array

    def make_view(array: Array) -> Array:
        view: Array = _as_read_only(array)
        return view

    return make_view


class UserData:
    """Copies of the arrays and numbers that a user's functions read.

    Parameters
    ----------
    data : array, number, tuple or NamedTuple of them, or None
        None if the functions read no data.

    Attributes
    ----------
    value : object
        The data as functions get them, with read-only arrays.

    Raises
    ------
    ValueError
        If data are of another type, or not of real numbers.
    """

    def __init__(self, data: object) -> None:
        self.value = None if data is None else self._copy(data)

    @classmethod
    def _copy(cls, data: object) -> Any:
        """Return a copy of data: one item, or a tuple of them of the same class."""
        if isinstance(data, tuple):
            # Each part is copied by itself, so that a tuple keeps its class.
            parts = [cls._copy_item(item) for item in data]
            is_named = hasattr(data, "_fields")
            return type(data)(*parts) if is_named else tuple(parts)
        return cls._copy_item(data)

    @staticmethod
    def _copy_item(item: object) -> Any:
        """Return a number, or a read-only copy of an array of a supported type."""
        if isinstance(item, dict):
            remedy = "Use a NamedTuple, whose fields have names."
            check.fail(
                "data", "an array, a number or a tuple of them", "a dict", remedy
            )
        if isinstance(item, bool | int | float | np.number | np.bool_):
            return item
        if not isinstance(item, np.ndarray):
            remedy = "Use np.array(...), or a tuple of arrays."
            got = check.describe(item)
            check.fail("data", "an array, a number or a tuple of them", got, remedy)
        if item.dtype.name not in ENTRY_TYPES:
            condition = f"of entries {', '.join(ENTRY_TYPES)}"
            check.fail("data", condition, f"{item.dtype}", "Use .astype(np.float64).")
        if isinstance(item, np.ma.MaskedArray):
            remedy = "Use .filled(...), or pass the mask as another array."
            check.fail("data", "arrays without a mask", "a masked array", remedy)
        # Compiled code reads entries in the processor's own order of bytes.
        copy = np.array(item, dtype=item.dtype.newbyteorder("="), order="C")
        return read_only_view(copy)

    @property
    def is_given(self) -> bool:
        """Whether functions take a second argument with the data."""
        return self.value is not None

    @property
    def items(self) -> tuple[Any, ...]:
        """The arrays and numbers, one for data that are no tuple."""
        if not self.is_given:
            return ()
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def size(self) -> int:
        """Quantity of numbers."""
        return sum(int(np.size(item)) for item in self.items)

    def digest(self) -> str:
        """Return a text that is the same for the same data, in any process."""
        digest = hashlib.blake2b(digest_size=16)
        # Functions read the fields by their names.
        for name in getattr(self.value, "_fields", ()):
            digest.update(f"{name} ".encode())
        for item in self.items:
            array = np.asarray(item)
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _lines(self) -> tuple[list[str], dict[str, object]]:
        """Return lines that set ``data``, and the values of their names."""
        # The machine code has the addresses of arrays, which this object keeps alive.
        if not self.is_given:
            return [], {}
        if numba.config.DISABLE_JIT:
            return ["data = given_data"], {"given_data": self.value}
        lines, names = [], dict[str, object](carray=carray, fix=_as_read_only)
        for i, item in enumerate(self.items):
            if isinstance(item, np.ndarray) and item.ndim:
                # The cast to a pointer of the array's type, and the shape as text.
                cast, shape = (
                    f"as_{item.dtype.name}",
                    f"({', '.join(map(str, item.shape))},)",
                )
                names[cast] = CASTS[item.dtype.name]
                address = item.ctypes.data
                lines.append(f"item{i} = fix(carray({cast}({address}), {shape}))")
            else:
                names[f"item{i}"] = np.asarray(item)[()]
        parts = "".join(f"item{i}, " for i in range(len(self.items)))
        if not isinstance(self.value, tuple):
            return [*lines, "data = item0"], names
        if hasattr(self.value, "_fields"):
            names["kind"] = type(self.value)
        return [*lines, f"data = {'kind' if 'kind' in names else ''}({parts})"], names


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A user's function, and how it is called.

    ``arguments`` are the names of further ones, such as ``out``. ``identity`` is a text
    that says what a function computes whose code says nothing, because it calls C code
    at an address. It takes the place of the code in `digest`. ``is_composed`` says that
    it calls another function of the user, which has been tried.
    """

    name: str  # parameter that the user gave, for messages
    function: Callable[..., Any]
    data: UserData
    arguments: tuple[str, ...] = ()
    identity: str = ""
    is_composed: bool = False

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is compiled."""
        return {field.name: vars(self)[field.name] for field in fields(self)}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the fields of a copy."""
        vars(self).update(state)

    def __deepcopy__(self, memo: object) -> "UserFunction":
        """Return the same function, as a new one could have other globals."""
        return self

    @lazy_property
    def compiled(self) -> Callable[..., Any]:
        """The function for Numba, with globals as they are when it is first compiled.

        All C functions share it. Compiled again, it could have other globals.
        """
        self.digest()  # the digest is that of the same globals
        if is_jitted(self.function):
            return self.function
        compiled: Callable[..., Any] = kernel(self.function, cached=False)
        return compiled

    @lazy_property
    def with_checked_indices(self) -> Callable[..., Any]:
        """The function for Numba, in which an index outside of an array is an error."""
        checked: Callable[..., Any] = kernel(cached=False, boundscheck=True)(
            self.python
        )
        return checked

    @property
    def python(self) -> Callable[..., Any]:
        """The function without Numba."""
        function: Callable[..., Any] = getattr(self.function, "py_func", self.function)
        return function

    @property
    def has_indices(self) -> bool:
        """Whether the function reads or writes entries of arrays."""
        steps = dis.get_instructions(self.python)
        return any(step.opname.endswith("_SUBSCR") for step in steps)

    def call_python(self, point: Array, *arguments: Array) -> Any:
        """Call the function uncompiled, at a read-only point.

        A ValueError has the text and the line of what the function raises.
        """
        data = (self.data.value,) if self.data.is_given else ()
        try:
            # Uncompiled functions warn where compiled ones return NaN.
            with np.errstate(all="ignore"):
                return self.python(read_only_view(point), *data, *arguments)
        except Exception as error:
            where = _line_of(error, self.python)
            reason = f"{type(error).__name__}: {error}{where}"
        condition = f"a function that can be called at {check.describe(point.tolist())}"
        check.fail(self.name, condition, reason)

    def digest(self) -> str:
        """Return a text that changes with the code and with globals that it reads.

        It is that of the globals with which the function was first compiled.
        """
        return self._digest

    @lazy_property
    def _digest(self) -> str:
        return self.identity or digest_of(self.python)


def compile_user_function(
    functions: dict[str, UserFunction],
    signature: Signature,
    parameters: str,
    body: Sequence[str],
    *,
    failure: Array | None = None,
    checks_indices: bool = False,
    **names: object,
) -> Pointer:
    """Compile a C function that calls functions of the user, all with the same data.

    Parameters
    ----------
    functions : dict
        Functions by the names that they have in ``body``. An error of the compiler is
        attributed to the last one.
    signature : Signature
        Signature of the C function.
    parameters : str
        Names of its parameters. ``theta`` is the point at which functions are called.
    body : sequence of str
        Lines of Python. In them ``name()`` calls a function at the point with its data
        and further arguments.
    failure : array, optional
        Array that the body writes to, as ``failed``. The caller keeps it.
    checks_indices : bool
        Whether an index outside of an array is an exception, which is slower.
    **names
        Other values that the body reads.
    """
    *_, last = functions.values()
    lines, values = last.data._lines()
    is_interpreted = numba.config.DISABLE_JIT
    space: dict[str, Any] = {
        "fix": read_only_view if is_interpreted else _as_read_only,
        "truth": bool if is_interpreted else _as_boolean,
        "np": np,
    }
    if failure is not None:
        lines = [*lines, *_array_lines("failed", failure)]
        values |= {"carray": carray, "as_float64": CASTS["float64"], "given": failure}
    # In the body, name() becomes name(fix(theta), data, further arguments).
    source = _join(parameters, [*lines, *body])
    for name, function in functions.items():
        data = ["data"] if function.data.is_given else []
        arguments = ", ".join(["fix(theta)", *data, *function.arguments])
        source = source.replace(f"{name}()", f"{name}({arguments})")
        space[name] = function.compiled
        if checks_indices:
            space[name] = function.with_checked_indices
    space |= values | names
    try:
        return _compile_source(source, space, signature)
    except Exception as error:  # Numba raises its own, and AssertionError and others
        reason = _reason(error)
    # The error is raised here, so that no traceback of the compiler precedes it.
    remedy = (
        "It may use numbers, arrays, NumPy and functions under @numba.njit, and "
        "returns a number on every path."
    )
    check.fail(last.name, "a function that Numba compiles", reason, remedy)


def compile_lines(
    signature: Signature, parameters: str, body: Sequence[str], **names: object
) -> Pointer:
    """Compile a C function of lines of our own that read the values of names."""
    return _compile_source(_join(parameters, body), names, signature)


def _join(parameters: str, lines: Sequence[str]) -> str:
    """Return the source of a function with these parameters and lines."""
    return "\n    ".join([f"def c_function({parameters}):", *lines])


def _compile_source(
    source: str, space: dict[str, Any], signature: Signature
) -> Pointer:
    """Compile a function from its source. It is not cached, as it has addresses."""
    exec(source, space)
    return compile_c_function(space["c_function"], signature, cached=False)


def _array_lines(name: str, array: Array) -> list[str]:
    """Return a line that sets a name to an array, by its address."""
    if numba.config.DISABLE_JIT:
        return [f"{name} = given"]
    return [f"{name} = carray(as_float64({array.ctypes.data}), ({array.size},))"]


def array_reader(array: Array) -> Callable[[], Array]:
    """Return a compiled function that returns a contiguous array of floats.

    The machine code contains the address. As a global constant a large array would take
    minutes to compile. The caller keeps the array alive.
    """
    if numba.config.DISABLE_JIT:
        return lambda: array
    sides = "".join(f"{side}, " for side in array.shape)
    line = f"return fix(carray(as_float64({array.ctypes.data}), ({sides})))"
    space: dict[str, Any] = {"carray": carray, "fix": _as_read_only}
    space["as_float64"] = CASTS["float64"]
    exec(f"def read():\n    {line}", space)
    return kernel(space["read"], cached=False)


def check_function(
    name: str, function: object, counts: Sequence[int], form: str
) -> Callable[..., Any]:
    """Return the user's function, if it is a plain or compiled one of some arguments.

    Parameters
    ----------
    name : str
        Name of the parameter that it was given for.
    function : object
        What the user gave.
    counts : sequence of int
        Possible numbers of arguments.
    form : str
        How it should be called, for the message.
    """
    python = getattr(function, "py_func", function)
    if not inspect.isfunction(python):
        remedy = (
            "Pass a plain function, and what a callable object holds as data=..., an "
            "array, a number, a tuple or a NamedTuple of them."
        )
        check.fail(name, f"a function {form}", check.describe(function), remedy)
    code = python.__code__
    takes_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if takes_more or code.co_kwonlyargcount:
        remedy = "Use plain parameters, without *, ** and those by keyword alone."
        check.fail(name, f"a function {form}", "one with other parameters", remedy)
    if code.co_argcount not in counts:
        check.fail(name, f"a function {form}", f"one of {code.co_argcount} arguments")
    if is_jitted(function):
        _check_options(name, function)
    reject_print(name, function)
    _reject_arrays(name, function, set())
    return function  # type: ignore[return-value]


def _check_options(name: str, function: Any) -> None:
    """Fail if Numba's options of a function do not fit the C function around it."""
    options = function.targetoptions
    if not function._can_compile:
        remedy = "Use @njit without a signature."
        check.fail(name, "compiled for read-only arrays", "a fixed signature", remedy)
    for option in ("parallel", "forceobj"):
        # Threads of Numba inside of threads of chains end the process.
        if options.get(option):
            got, remedy = f"{option}=True", f"Leave out {option}=True."
            check.fail(name, "compiled by @njit for one thread", got, remedy)


def _reject_arrays(name: str, function: object, seen: set[int]) -> None:
    """Fail if a function or a helper reads a global array that is not copied."""
    python = getattr(function, "py_func", function)
    if id(python) in seen or not inspect.isfunction(python):
        return
    seen.add(id(python))
    if str(python.__module__).split(".")[0] in ("numba", "numpy", "scipy"):
        return
    for value in values_of_names(python):
        # Numba does not copy global arrays of more bytes, but reads them where they
        # are or were.
        is_large = isinstance(value, np.ndarray) and value.nbytes > 10**6
        if isinstance(value, np.ndarray) and (is_jitted(function) or is_large):
            remedy = "Pass the array as data=..."
            condition = "free of global arrays, whose changes compiled code may not see"
            got = "a compiled function that reads one"
            got = "one of more than a megabyte" if is_large else got
            check.fail(name, condition, got, remedy)
        if is_jitted(value):
            _reject_arrays(name, value, seen)


def _line_of(error: Exception, function: Callable[..., object]) -> str:
    """Return the deepest line of the user's function in a traceback."""
    trace, text = error.__traceback__, ""
    code = getattr(function, "__code__", None)
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is code:
            source = linecache.getline(frame.f_code.co_filename, trace.tb_lineno)
            text = f" (line {trace.tb_lineno}: {source.strip()})"
        trace = trace.tb_next
    return text


# Lines of Numba's messages that say what is wrong, before lines that say where.
TELLING = re.compile(
    r"Cannot modify|it returns|NameError|Unknown attribute|no field|Untyped global name"
)


def _reason(error: Exception) -> str:
    """Return one line of Numba's message, with the user's line if it names one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if TELLING.search(line)]
    where = re.compile(r"(Failed in|During|File |- |\[|<|>|Enable|There are)")
    reason = (telling or [x for x in lines if not where.match(x)] or [repr(error)])[0]
    reason = reason.removeprefix(
        "Rejected as the implementation raised a specific error:"
    )
    places = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    for file, number in reversed(places):
        source = linecache.getline(file, int(number)).strip()
        if source:
            return f"{reason} (line {number}: {source})"
    return reason
