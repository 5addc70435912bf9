"""Checks of input, and the form of every error about it.

A message reads ``<name> must be <condition>, got <value>.``, and a remedy may follow.
Public functions check values once, where they enter. Kernels trust them. Checks take
values as keywords, ``check.positive(step_size=step_size)``, to know their names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import os
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsample.core.arrays import Array
from dpsample.core.renamed import with_present_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Args = ParamSpec("Args")
Result = TypeVar("Result")

# The smallest float with all its digits. Below it floats are subnormal: products are no
# longer accurate to their last digit, so no proof may rest on them.
MIN_NORMAL = float(np.finfo(np.float64).tiny)
MAX_FLOAT = float(np.finfo(np.float64).max)
# Declared bounds are from this number to its inverse, so that products and powers of a
# few of them are normal numbers.
MIN_SCALE = 1e-60
# Maximum length of loops and arrays. Longer ones would not end. Indices fit 32 bits.
MAX_LENGTH = 2**31 - 1
# Floats hold every integer up to this one, the limit of counts that are only computed
# with.
MAX_EXACT_INT = 2**53
# Maximum seed. Python does not print integers of thousands of digits.
MAX_SEED = 2**256 - 1
# Types that `float` may accept although they are not real numbers.
NON_NUMBERS = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)


def describe(value: object) -> str:
    """Return a short text on one line that stands for a value in an error."""
    # Maximum number of characters by which an error describes a value.
    max_characters = 80
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, float | np.floating):
        number, text = float(value), f"{float(value):.12g}"
        # All digits are shown if twelve are not exact, because a message such as
        # "at most 0.3, got 0.3" would not help.
        return text if float(text) == number else repr(number)
    if isinstance(value, int) and value.bit_length() > 256:
        # Python does not print integers of more than 4300 digits.
        digits = int(value.bit_length() * math.log10(2.0))
        return f"an integer near {'-' * (value < 0)}10**{digits}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a value's own repr may raise anything
        text = f"a {type(value).__name__}"
    return text if len(text) <= max_characters else f"{text[: max_characters - 3]}..."


def fail(name: str, condition: str, got: object, remedy: str = "") -> NoReturn:
    """Raise a ValueError. The remedy is a sentence in the imperative.

    ``got`` is a text that describes the value, or the value itself.
    """
    value = got if isinstance(got, str) and got else describe(got)
    raise ValueError(f"{name} must be {condition}, got {value}. {remedy}".rstrip())


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python or NumPy in a float's range."""
    kinds = int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    try:
        rounded = float(value)
    except OverflowError:
        return False
    return not math.isinf(rounded) or bool(rounded == value)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def user_stack_level() -> int:
    """Return the ``stacklevel`` of the line of the user's code that called us.

    Python shows a warning once for each line. If that were a line of this package, also
    one that a library has called back, the warnings of later calls would be lost.
    """
    frame: FrameType | None = sys._getframe(1)
    level = last = 1
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        # A public function that a context manager decorates is called by contextlib.
        is_wrapper = name == "contextlib" and level == last + 1
        last = level if is_wrapper or name.startswith("dpsample.") else last
        frame, level = frame.f_back, level + 1
    return last + 1


def escape_controls(text: str) -> str:
    """Replace control characters, which a terminal would obey, by escape sequences."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def unwrap_numpy(function: Callable[Args, Result]) -> Callable[Args, Result]:
    """Decorate a public function so that it gets Python numbers for NumPy scalars.

    NumPy's own arithmetic would change results: a float32 times a float is a float32,
    and an int64 wraps around. An underflow inside gives 0, as is NumPy's default, even
    if the caller has set ``np.seterr`` otherwise.
    """
    quiet_function = np.errstate(under="ignore")(function)

    @functools.wraps(function)
    def call(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        arguments: Any = [_unwrap(value) for value in args]
        keywords: Any = {name: _unwrap(value) for name, value in kwargs.items()}
        return quiet_function(*arguments, **keywords)

    return call


def _unwrap(value: object) -> object:
    """Return a NumPy scalar or a fraction as a Python number, others as they are."""
    kind = type(value)
    if kind is float or kind is int:  # the most frequent case is tested first
        return value
    if isinstance(value, np.floating):
        return float(value)  # `item` of a long double is a long double again
    if kind is Fraction and isinstance(value, Fraction):
        return _round_fraction(value)
    return value.item() if isinstance(value, np.integer) else value


def _round_fraction(value: Fraction) -> float | Fraction:
    """Return the nearest float, or the fraction if it is beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return value


def unwrap_numpy_fields(spec: Any) -> None:
    """Replace NumPy scalars in the fields of a frozen dataclass by Python numbers."""
    for field in dataclasses.fields(spec):
        object.__setattr__(spec, field.name, _unwrap(getattr(spec, field.name)))


def _check_numbers(
    values: dict[str, object],
    condition: str,
    holds: Callable[[float], bool],
    remedy: str,
) -> None:
    """Raise unless each value is a number for which ``holds`` is true.

    NumPy scalars are converted first. Otherwise NumPy would round a limit to the type
    of a float32 before it compares them.
    """
    for name, value in values.items():
        number = _unwrap(value)
        if not (_is_number(number) and holds(number)):
            fail(name, condition, describe(number), remedy)


def positive(*, remedy: str = "", **values: object) -> None:
    """Raise unless each value is a finite number > 0."""
    _check_numbers(values, "a finite number > 0", lambda v: 0.0 < v < np.inf, remedy)


def scale(*, remedy: str = "", **values: object) -> None:
    """Raise unless each value is from `MIN_SCALE` to its inverse."""
    condition = f"from {MIN_SCALE:g} to {1.0 / MIN_SCALE:g}"
    _check_numbers(
        values, condition, lambda v: MIN_SCALE <= v <= 1.0 / MIN_SCALE, remedy
    )


def non_negative(*, remedy: str = "", **values: object) -> None:
    """Raise unless each value is a finite number >= 0."""
    _check_numbers(values, "a finite number >= 0", lambda v: 0.0 <= v < np.inf, remedy)


def normal(*, remedy: str = "", **values: object) -> None:
    """Raise unless each value is finite, > 0 and not subnormal."""
    condition = f"finite and >= {MIN_NORMAL:.4g}"
    _check_numbers(values, condition, lambda v: MIN_NORMAL <= v < np.inf, remedy)


def open_interval(
    low: float, high: float, *, remedy: str = "", **values: object
) -> None:
    """Raise unless each value is a number strictly between ``low`` and ``high``."""
    condition = f"> {describe(low)} and < {describe(high)}"
    _check_numbers(values, condition, lambda v: low < v < high, remedy)


def at_least(low: float, *, remedy: str = "", **values: object) -> None:
    """Raise unless each value is a number >= ``low``, or infinity."""
    _check_numbers(values, f">= {low:g}", lambda v: v >= low, remedy)


def half_open(low: float, high: float, *, remedy: str = "", **values: object) -> None:
    """Raise unless each value is a number >= ``low`` and < ``high``."""
    _check_numbers(
        values, f">= {low:g} and < {high:g}", lambda v: low <= v < high, remedy
    )


def greater_than(low: float, *, remedy: str = "", **values: object) -> None:
    """Raise unless each value is a number > ``low``, or infinity."""
    _check_numbers(values, f"> {low:g}", lambda v: v > low, remedy)


def integer(
    low: int, *, maximum: int | None = MAX_LENGTH, remedy: str = "", **values: object
) -> None:
    """Raise unless each value is an integer from ``low`` to ``maximum``.

    The default maximum is that of loops and arrays. None stands for no maximum.
    """
    for name, value in values.items():
        if not (_is_integer(value) and value >= low):
            # `describe` writes 2.0 as "2", and "an integer >= 1, got 2" is no help.
            got = repr(value) if isinstance(value, float) else describe(value)
            fail(name, f"an integer >= {low}", got, remedy)
        if maximum is not None and value > maximum:
            fail(name, f"an integer <= {maximum}", describe(value), remedy)


def array_sides(**values: Any) -> None:
    """Raise unless the values are integers >= 1, and the sides of a possible array."""
    integer(1, **values)
    size = math.prod(int(value) for value in values.values())
    if size > MAX_LENGTH:
        names = " times ".join(values)
        fail(names, f"at most {MAX_LENGTH}, the size of an array", size)


def shape(name: str, value: object, *, length: int) -> tuple[int, ...]:
    """Return ``value`` as a tuple of ``length`` integers >= 1."""
    sides = value if isinstance(value, tuple | list) else ()
    if len(sides) != length:
        fail(name, f"a tuple of {length} integers >= 1", describe(value))
    integer(1, **{f"{name}[{i}]": side for i, side in enumerate(sides)})
    return tuple(int(side) for side in sides)


def one_of(choices: Sequence[object], *, remedy: str = "", **values: object) -> None:
    """Raise unless each value is one of ``choices``, of the same type."""
    for name, value in values.items():
        # True == 1 == 1.0, so the types have to be equal, too.
        if not any(
            value is choice or (type(value) is type(choice) and value == choice)
            for choice in choices
        ):
            listed = ", ".join(repr(choice) for choice in choices)
            fail(name, f"one of {listed}", describe(value), remedy)


def members(kind: type, **values: object) -> None:
    """Raise unless each value is a tuple or list of instances of ``kind``."""
    for name, value in values.items():
        items = value if isinstance(value, tuple | list) else (None,)
        if not all(isinstance(item, kind) for item in items):
            fail(name, f"a tuple of {kind.__name__}", describe(value))


def instance(
    kind: type | tuple[type, ...], *, remedy: str = "", **values: object
) -> None:
    """Raise unless each value is an instance of ``kind``."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            listed = " or ".join(k.__name__ for k in kinds)
            fail(name, f"a {listed}", describe(value), remedy)


def real_array(name: str, value: object, remedy: str = "") -> NDArray[Any]:
    """Return an array of real numbers of any type, perhaps the caller's own memory.

    Masked entries and texts raise an error, instead of being read as numbers. An array
    of objects is accepted if all are real numbers, because pandas' own column types are
    converted to such arrays.
    """
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(np.ma.is_masked(part) for part in parts):
        remedy = "Fill the masked entries, or drop their records."
        fail(name, "free of masked entries", "a masked array", remedy)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # rows of unequal lengths
        fail(name, "an array of numbers", describe(value), remedy)
    kind = array.dtype.kind
    if kind == "c":
        fail(name, "real", describe(array), "Take its real part, if that is meant.")
    if kind == "O" and all(isinstance(entry, numbers.Real) for entry in array.flat):
        kind = "f"
    if kind not in "biuf":
        got = describe(array if array.ndim else value)
        fail(name, "an array of numbers", got, remedy)
    return array


def _float_array(name: str, value: object) -> Array:
    """Return a new float64 array of real numbers."""
    array = real_array(name, value)
    copy = np.empty(array.shape)
    write_floats(name, array, copy)
    return copy


def write_floats(name: str, array: NDArray[Any], out: Array) -> None:
    """Write real numbers of any type to float64 memory."""
    try:
        # Numbers beyond all floats become infinite. `finite` raises an error for them.
        with np.errstate(over="ignore"):
            out[...] = array
    except OverflowError:
        fail(name, "an array of finite numbers", describe(array))


def path(name: str, value: Any, *, exists: bool = False) -> Path:
    """Return ``value`` as a path, which must be that of a file if it ``exists``."""
    try:
        text = os.fspath(value)
    except TypeError:
        text = b""
    if not (isinstance(text, str) and text and "\0" not in text):
        fail(name, "a path", describe(value))
    if exists and not os.path.isfile(text):
        fail(name, "an existing file", text)
    return Path(text)


def build(name: str, kind: Callable[..., Result], fields: object) -> Result:
    """Call ``kind`` with a dict of fields. Raise if some are missing or unknown.

    Descriptions of an earlier version may have former names of fields.
    """
    if not isinstance(fields, dict):
        fail(name, "a dict", describe(fields))
    try:
        fields = with_present_names(kind, fields)
        inspect.signature(kind).bind(**fields)
    except TypeError as error:
        fail(name, f"a description of {kind.__name__}", str(error))
    return kind(**fields)


def array(name: str, value: object, *, shape: tuple[int | None, ...]) -> Array:
    """Return ``value`` as a new finite float64 array in C order.

    ``shape`` has one length for each axis. None stands for any length. The array is
    always a copy, because kernels need writable, aligned memory that the caller does
    not change.
    """
    result = _float_array(name, value)
    fits = result.ndim == len(shape) and all(
        length is None or length == actual
        for length, actual in zip(shape, result.shape, strict=True)
    )
    if not fits:
        lengths = ", ".join(
            "any" if length is None else str(length) for length in shape
        )
        comma = "," if len(shape) == 1 else ""
        fail(name, f"of shape ({lengths}{comma})", f"shape {result.shape}")
    finite(name, result)
    return result


def finite(name: str, values: Array, *, first: int = 0, remedy: str = "") -> None:
    """Raise unless all values are finite. ``first`` is the index of the first one."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        position = np.argwhere(~is_finite)[0]
        value = describe(float(values[tuple(position)]))
        position[:1] += first  # the position in an array of dimension 0 is empty
        index = ", ".join(str(i) for i in position)
        fail(name, "finite", f"{value} at index [{index}]", remedy)


def entries(
    name: str, value: object, *, finite: bool = True, saturated: bool = False
) -> Array:
    """Return ``value`` as a new float64 array of any shape, finite by default.

    If ``saturated``, a number beyond all floats becomes the largest float, and a
    missing value becomes NaN. No error says which entries of private records they are.
    """
    # In a list of numbers NumPy warns about missing values, in one of objects it does
    # not.
    dtype = object if saturated and isinstance(value, list | tuple) else None
    try:
        source = np.asarray(value, dtype=dtype)
        is_masked = isinstance(value, np.ma.MaskedArray)
        if saturated and value is np.ma.masked:
            source, is_masked = np.array(math.nan), False
        if is_masked or source.dtype.kind not in "biufO":
            raise TypeError
        if saturated and source.dtype.kind == "O":
            floats = [_saturate(entry) for entry in source.flat]
            result = np.reshape(floats, source.shape)
        else:
            with np.errstate(over="ignore"):
                result = np.array(source, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        fail(name, "an array of numbers", describe(value))
    if finite:
        return array(name, value, shape=(None,) * result.ndim)
    return result


def _saturate(entry: Any) -> float:
    """Return the nearest float, and NaN for a missing value of NumPy, pandas, Arrow."""
    if hasattr(entry, "as_py"):  # a scalar of Arrow
        entry = entry.as_py()
    # Types of values that mean "missing". They are compared by name, because pandas may
    # not be installed.
    if entry is None or type(entry).__name__ in ("MaskedConstant", "NAType", "NaTType"):
        return math.nan
    if isinstance(entry, NON_NUMBERS):
        raise TypeError
    try:
        return float(entry)
    except OverflowError:
        return MAX_FLOAT if entry > 0 else -MAX_FLOAT
    except ValueError:
        if isinstance(
            entry, Decimal
        ):  # a signaling NaN, which `float` does not convert
            return math.nan
        raise


def vectors(name: str, value: object, *, dim: int | None = None) -> Array:
    """Return ``value`` as a new finite float64 array with vectors on its last axis.

    ``dim`` is their length. None stands for any length >= 1.
    """
    result = _float_array(name, value)
    length = result.shape[-1] if result.ndim else 0
    if length == 0 or dim not in (None, length):
        fail(name, f"of shape (..., {dim or 'd'})", f"shape {result.shape}")
    return array(name, result, shape=(None,) * result.ndim)


def missing_library(subject: str, library: str, extra: str) -> ImportError:
    """Return the error that a subject needs a library of an optional extra."""
    return ImportError(f"{subject} needs {library}: pip install 'dpsample[{extra}]'.")


def axes(ax: Axes | None, *, figsize: tuple[float, float]) -> Axes:
    """Return ``ax``, or new axes of that size if it is None.

    If matplotlib is not installed, an ImportError says how to install it.
    """
    if ax is not None:
        if not hasattr(ax, "get_xlim"):
            fail("ax", "axes of matplotlib, or None", ax)
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_library("plot", "matplotlib", "plots") from error
    drawn: Axes = plt.subplots(figsize=figsize)[1]
    return drawn
