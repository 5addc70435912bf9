"""The grammar of every error about input.

``<name> must be <condition>, got <value>.`` and, where there is one, a remedy. Values
are checked once, at the public door; kernels trust them.
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Below it a float is subnormal and has lost digits: a product there is no longer
# accurate to its last place, so no proof may rest on it.
MIN_NORMAL = float(np.finfo(np.float64).tiny)
MAX_FLOAT = float(np.finfo(np.float64).max)
# Names of the types that say so; pandas need not be installed.
MISSING = ("MaskedConstant", "NAType", "NaTType")
# What float() may take and NumPy's arrays of numbers do not.
NO_NUMBERS = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)
Args = ParamSpec("Args")
Result = TypeVar("Result")
# Of loops and arrays: what is longer would not return, and indices fit 32 bits.
MAX_LENGTH = 2**31 - 1
# Of seeds; Python refuses to print integers of thousands of digits.
MAX_SEED = 2**256 - 1
# Of declared bounds: products and powers of a few of them stay normal numbers.
MIN_SCALE = 1e-60
# Of counts that only enter formulas: floats hold every integer up to here.
MAX_EXACT_INT = 2**53


def describe(value: object) -> str:
    """Value as it appears in an error: short, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, float | np.floating):
        number, text = float(value), f"{float(value):.12g}"
        # With all digits if they are needed: "at most 0.3, got 0.3" helps nobody.
        return text if float(text) == number else repr(number)
    if isinstance(value, int) and value.bit_length() > 256:
        # Python refuses to print the longest ones.
        digits = int(value.bit_length() * math.log10(2.0))
        return f"an integer near {'-' * (value < 0)}10**{digits}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Python refuses to print the longest integers
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def fail(name: str, condition: str, got: object, remedy: str = "") -> NoReturn:
    """Raise the error; ``remedy`` is a sentence that says what to do."""
    given = got if isinstance(got, str) and got else describe(got)
    raise ValueError(f"{name} must be {condition}, got {given}. {remedy}".rstrip())


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a Python or NumPy real number that a float can hold."""
    kinds = int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    try:
        rounded = float(value)
    except OverflowError:
        return False
    return not math.isinf(rounded) or bool(rounded == value)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def user_stack_level() -> int:
    """Level of the stack at which our code was called, for a warning of who calls us.

    A text is told once for each line that it is told of: no line of ours is to be it,
    nor one of the libraries between.
    """
    frame: FrameType | None = sys._getframe(1)
    level = last = 1
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        is_wrapper = name == "contextlib" and level == last + 1  # of a decorated door
        last = level if is_wrapper or name.startswith("dpsample.") else last
        frame, level = frame.f_back, level + 1
    return last + 1


def escape_controls(text: str) -> str:
    """Return a text with escapes for control characters, which a terminal obeys."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def unwrap_numpy(door: Callable[Args, Result]) -> Callable[Args, Result]:
    """Give a door Python's numbers for NumPy's, whose arithmetic rounds or wraps more.

    A float32 times a float is a float32, and an int64 wraps around. What underflows is
    0 inside, as NumPy's default has it, whatever the caller's ``np.seterr`` says.
    """
    inner = np.errstate(under="ignore")(door)

    @functools.wraps(door)
    def call(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        given: Any = [_plain(value) for value in args]
        named: Any = {name: _plain(value) for name, value in kwargs.items()}
        return inner(*given, **named)

    return call


def _plain(value: object) -> object:
    kind = type(value)
    if kind is float or kind is int:  # as nearly all are: doors are called often
        return value
    if isinstance(value, np.floating):
        return float(value)  # the item of a long double is one
    if kind is Fraction and isinstance(value, Fraction):
        return _nearest(value)
    return value.item() if isinstance(value, np.integer) else value


def _nearest(value: Fraction) -> float | Fraction:
    """Float next to a fraction, or the fraction if it is beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return value


def unwrap_numpy_fields(spec: Any) -> None:
    """Store Python's numbers for NumPy's in a frozen dataclass."""
    for field in dataclasses.fields(spec):
        object.__setattr__(spec, field.name, _plain(getattr(spec, field.name)))


def _numbers(
    values: dict[str, object],
    condition: str,
    holds: Callable[[float], bool],
    remedy: str,
) -> None:
    """Each value is a number for which ``holds``, compared as Python's number.

    A limit that becomes a float32 is another limit.
    """
    for name, value in values.items():
        given = _plain(value)
        if not (_is_number(given) and holds(given)):
            fail(name, condition, describe(given), remedy)


def positive(*, remedy: str = "", **values: object) -> None:
    """Each value is a finite number > 0."""
    _numbers(values, "a finite number > 0", lambda v: 0.0 < v < np.inf, remedy)


def scale(*, remedy: str = "", **values: object) -> None:
    """Each value is a number of a size with which no formula leaves floating point."""
    condition = f"from {MIN_SCALE:g} to {1.0 / MIN_SCALE:g}"
    _numbers(values, condition, lambda v: MIN_SCALE <= v <= 1.0 / MIN_SCALE, remedy)


def non_negative(*, remedy: str = "", **values: object) -> None:
    """Each value is a finite number >= 0."""
    _numbers(values, "a finite number >= 0", lambda v: 0.0 <= v < np.inf, remedy)


def normal(*, remedy: str = "", **values: object) -> None:
    """Each value is a finite number with all its digits: > 0 and not subnormal."""
    condition = f"finite and >= {MIN_NORMAL:.4g}"
    _numbers(values, condition, lambda v: MIN_NORMAL <= v < np.inf, remedy)


def open_interval(
    low: float, high: float, *, remedy: str = "", **values: object
) -> None:
    """Each value is a number strictly between ``low`` and ``high``."""
    condition = f"> {describe(low)} and < {describe(high)}"
    _numbers(values, condition, lambda v: low < v < high, remedy)


def at_least(low: float, *, remedy: str = "", **values: object) -> None:
    """Each value is a number >= ``low``; infinity is allowed."""
    _numbers(values, f">= {low:g}", lambda v: v >= low, remedy)


def half_open(low: float, high: float, *, remedy: str = "", **values: object) -> None:
    """Each value is a number >= ``low`` and < ``high``."""
    _numbers(values, f">= {low:g} and < {high:g}", lambda v: low <= v < high, remedy)


def greater_than(low: float, *, remedy: str = "", **values: object) -> None:
    """Each value is a number > ``low``; infinity is allowed."""
    _numbers(values, f"> {low:g}", lambda v: v > low, remedy)


def integer(
    low: int, *, maximum: int | None = MAX_LENGTH, remedy: str = "", **values: object
) -> None:
    """Each value is an integer from ``low`` to ``most``; None stands for no limit.

    The limit is that of loops and arrays unless the call says otherwise.
    """
    for name, value in values.items():
        if not (_is_whole(value) and value >= low):
            given = repr(value) if isinstance(value, float) else describe(value)
            fail(name, f"an integer >= {low}", given, remedy)
        if maximum is not None and value > maximum:
            fail(name, f"an integer <= {maximum}", describe(value), remedy)


def array_sides(**values: Any) -> None:
    """Each value is an integer >= 1; an array of these sides can be made."""
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
    """Each value is one of ``choices``."""
    for name, value in values.items():
        if not any(
            value is c or (type(value) is type(c) and value == c) for c in choices
        ):
            listed = ", ".join(repr(choice) for choice in choices)
            fail(name, f"one of {listed}", describe(value), remedy)


def members(kind: type, **values: object) -> None:
    """Each value is a tuple or list of instances of ``kind``."""
    for name, value in values.items():
        each = value if isinstance(value, tuple | list) else (None,)
        if not all(isinstance(one, kind) for one in each):
            fail(name, f"a tuple of {kind.__name__}", describe(value))


def instance(
    kind: type | tuple[type, ...], *, remedy: str = "", **values: object
) -> None:
    """Each value is an instance of ``kind``."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            listed = " or ".join(k.__name__ for k in kinds)
            fail(name, f"a {listed}", describe(value), remedy)


def real_array(name: str, value: object, remedy: str = "") -> NDArray[Any]:
    """Array of real numbers of any type, perhaps the caller's own memory.

    Nothing is unmasked, parsed or cut off. An array of objects serves if each is a real
    number, as pandas' own types give.
    """
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(np.ma.is_masked(part) for part in parts):
        drop = "Fill the masked entries, or drop their records."
        fail(name, "free of masked entries", "a masked array", drop)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):  # rows of unequal lengths
        fail(name, "an array of numbers", describe(value), remedy)
    kind = given.dtype.kind
    if kind == "c":
        fail(name, "real", describe(given), "Take its real part, if that is meant.")
    if kind == "O" and all(isinstance(v, numbers.Real) for v in given.flat):
        kind = "f"
    if kind not in "biuf":
        fail(
            name,
            "an array of numbers",
            describe(given if given.ndim else value),
            remedy,
        )
    return given


def _reals(name: str, value: object) -> Array:
    """Fresh float64 array of real numbers."""
    given = real_array(name, value)
    copy = np.empty(given.shape)
    write_floats(name, given, copy)
    return copy


def write_floats(name: str, given: NDArray[Any], out: Array) -> None:
    """Write real numbers of any type to float64 memory."""
    try:
        with np.errstate(over="ignore"):  # an infinity is refused later
            out[...] = given
    except OverflowError:
        fail(name, "an array of finite numbers", describe(given))


def path(name: str, value: Any, *, exists: bool = False) -> Path:
    """Return ``value`` as a path, of an existing file if the call says so."""
    try:
        given = os.fspath(value)
    except TypeError:
        given = b""
    if not (isinstance(given, str) and given and "\0" not in given):
        fail(name, "a path", describe(value))
    if exists and not os.path.isfile(given):
        fail(name, "an existing file", given)
    return Path(given)


def build(name: str, kind: Callable[..., Result], fields: object) -> Result:
    """Call ``kind`` with the fields of a description; refuse missing and odd ones."""
    if not isinstance(fields, dict):
        fail(name, "a dict", describe(fields))
    try:
        inspect.signature(kind).bind(**fields)
    except TypeError as error:
        fail(name, f"a description of {kind.__name__}", str(error))
    return kind(**fields)


def array(name: str, value: object, *, shape: tuple[int | None, ...]) -> Array:
    """Return ``value`` as a fresh finite float64 array in C order.

    ``shape`` holds one entry per axis; None stands for any length. A copy is made
    always: kernels need writable aligned memory that the caller cannot change.
    """
    result = _reals(name, value)
    wanted = ", ".join("any" if s is None else str(s) for s in shape)
    wanted = f"({wanted},)" if len(shape) == 1 else f"({wanted})"
    fits = result.ndim == len(shape) and all(
        want is None or want == have
        for want, have in zip(shape, result.shape, strict=True)
    )
    if not fits:
        fail(name, f"of shape {wanted}", f"shape {result.shape}")
    finite(name, result)
    return result


def finite(name: str, values: Array, *, first: int = 0, remedy: str = "") -> None:
    """All values are finite; ``first`` is the index of the first of them."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        where = np.argwhere(~is_finite)[0]
        bad = describe(float(values[tuple(where)]))
        where[:1] += first  # a number alone has no index
        index = ", ".join(str(i) for i in where)
        fail(name, "finite", f"{bad} at index [{index}]", remedy)


def entries(
    name: str, value: object, *, finite: bool = True, saturated: bool = False
) -> Array:
    """Return ``value`` as a fresh float64 array of any shape, finite by default.

    If ``saturated`` a number beyond all doubles becomes the largest of them, and what
    is missing NaN: no error tells which it was.
    """
    # NumPy warns of what is missing in a list of numbers, but not in one of objects.
    kind = object if saturated and isinstance(value, list | tuple) else None
    try:
        given = np.asarray(value, dtype=kind)
        is_masked = isinstance(value, np.ma.MaskedArray)
        if saturated and value is np.ma.masked:
            given, is_masked = np.array(math.nan), False
        if is_masked or given.dtype.kind not in "biufO":
            raise TypeError
        if saturated and given.dtype.kind == "O":  # one by one: none is another's error
            result = np.reshape(
                [_saturated(entry) for entry in given.flat], given.shape
            )
        else:
            with np.errstate(over="ignore"):
                result = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        fail(name, "an array of numbers", describe(value))
    if finite:
        return array(name, value, shape=(None,) * result.ndim)
    return result


def _saturated(entry: Any) -> float:
    """Return the nearest double; NaN for what NumPy, pandas or Arrow call missing."""
    if hasattr(entry, "as_py"):  # a scalar of Arrow
        entry = entry.as_py()
    if entry is None or type(entry).__name__ in MISSING:
        return math.nan
    if isinstance(entry, NO_NUMBERS):
        raise TypeError
    try:
        return float(entry)
    except OverflowError:
        return MAX_FLOAT if entry > 0 else -MAX_FLOAT
    except ValueError:
        if isinstance(entry, Decimal):  # a signaling NaN
            return math.nan
        raise


def vectors(name: str, value: object, *, dim: int | None = None) -> Array:
    """Return ``value`` as a fresh finite float64 array with vectors on its last axis.

    ``dim`` is their length; None stands for any length >= 1.
    """
    result = _reals(name, value)
    length = result.shape[-1] if result.ndim else 0
    if length == 0 or dim not in (None, length):
        fail(name, f"of shape (..., {dim or 'd'})", f"shape {result.shape}")
    return array(name, result, shape=(None,) * result.ndim)


def axes(given: Axes | None, *, figsize: tuple[float, float]) -> Axes:
    """Return ``given``, or new axes of that size; matplotlib is imported only then.

    An ImportError gives the line that installs it.
    """
    if given is not None:
        if not hasattr(given, "get_xlim"):
            fail("ax", "axes of matplotlib, or None", given)
        return given
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plot needs matplotlib: pip install 'dpsample[plots]'"
        ) from error
    drawn: Axes = plt.subplots(figsize=figsize)[1]
    return drawn
