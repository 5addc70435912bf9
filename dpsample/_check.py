"""The grammar of every error about input.

``<name> must be <condition>, got <value>.`` and, where there is one, a remedy. Values
are checked once, at the public door; kernels trust them.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
# Below it a float is subnormal and has lost digits: a product there is no longer
# accurate to its last place, so no proof may rest on it.
SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)


def shown(value: object) -> str:
    """Value as it appears in an error: short, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, float | np.floating):
        return f"{float(value):.12g}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def fail(name: str, condition: str, got: object, remedy: str = "") -> NoReturn:
    """Raise the error; ``remedy`` is a sentence that says what to do."""
    given = got if isinstance(got, str) else shown(got)
    raise ValueError(f"{name} must be {condition}, got {given}. {remedy}".rstrip())


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def number(name: str, value: Any, condition: str, holds: bool, remedy: str) -> None:
    """Fail unless ``value`` is a number for which ``holds`` was computed true."""
    if not (_is_number(value) and holds):
        fail(name, condition, shown(value), remedy)


def positive(*, remedy: str = "", **values: Any) -> None:
    """Each value is a finite number > 0."""
    for name, value in values.items():
        holds = _is_number(value) and 0.0 < value < np.inf
        number(name, value, "a finite number > 0", holds, remedy)


def non_negative(*, remedy: str = "", **values: Any) -> None:
    """Each value is a finite number >= 0."""
    for name, value in values.items():
        holds = _is_number(value) and 0.0 <= value < np.inf
        number(name, value, "a finite number >= 0", holds, remedy)


def normal(*, remedy: str = "", **values: Any) -> None:
    """Each value is a finite number with all its digits: > 0 and not subnormal."""
    for name, value in values.items():
        holds = _is_number(value) and SMALLEST_NORMAL <= value < np.inf
        number(name, value, f"finite and >= {SMALLEST_NORMAL:.4g}", holds, remedy)


def open_interval(low: float, high: float, *, remedy: str = "", **values: Any) -> None:
    """Each value is a number strictly between ``low`` and ``high``."""
    for name, value in values.items():
        holds = _is_number(value) and low < value < high
        number(name, value, f"> {low:g} and < {high:g}", holds, remedy)


def at_least(low: float, *, remedy: str = "", **values: Any) -> None:
    """Each value is a number >= ``low``; infinity is allowed."""
    for name, value in values.items():
        number(name, value, f">= {low:g}", _is_number(value) and value >= low, remedy)


def above(low: float, *, remedy: str = "", **values: Any) -> None:
    """Each value is a number > ``low``; infinity is allowed."""
    for name, value in values.items():
        number(name, value, f"> {low:g}", _is_number(value) and value > low, remedy)


def integer(low: int, *, remedy: str = "", **values: Any) -> None:
    """Each value is an integer >= ``low``."""
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (whole and value >= low):
            fail(name, f"an integer >= {low}", shown(value), remedy)


def one_of(choices: Sequence[Any], *, remedy: str = "", **values: Any) -> None:
    """Each value is one of ``choices``."""
    for name, value in values.items():
        if not any(
            value is c or (type(value) is type(c) and value == c) for c in choices
        ):
            listed = ", ".join(repr(choice) for choice in choices)
            fail(name, f"one of {listed}", shown(value), remedy)


def instance(kind: type | tuple[type, ...], *, remedy: str = "", **values: Any) -> None:
    """Each value is an instance of ``kind``."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            listed = " or ".join(k.__name__ for k in kinds)
            fail(name, f"a {listed}", shown(value), remedy)


def _reals(name: str, value: Any, remedy: str) -> Vector:
    """Fresh float64 array of real numbers: nothing is unmasked, parsed or cut off.

    An array of objects serves if each is a real number, as pandas' own types give.
    """
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(np.ma.is_masked(part) for part in parts):
        drop = "Fill the masked entries, or drop their records."
        fail(name, "free of masked entries", "a masked array", drop)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):  # rows of unequal lengths
        fail(name, "an array of numbers", shown(value), remedy)
    kind = given.dtype.kind
    if kind == "c":
        fail(name, "real", shown(given), "Take its real part, if that is meant.")
    if kind == "O" and all(isinstance(v, numbers.Real) for v in given.flat):
        kind = "f"
    if kind not in "biuf":
        fail(name, "an array of numbers", shown(given if given.ndim else value), remedy)
    try:
        with np.errstate(over="ignore"):  # an infinity is refused later
            return np.array(given, dtype=np.float64, order="C")
    except OverflowError:
        fail(name, "an array of finite numbers", shown(value), remedy)


def array(
    name: str, value: Any, *, shape: tuple[int | None, ...], remedy: str = ""
) -> Vector:
    """Return ``value`` as a fresh finite float64 array in C order.

    ``shape`` holds one entry per axis; None stands for any length. A copy is made
    always: kernels need writable aligned memory that the caller cannot change.
    """
    result = _reals(name, value, remedy)
    wanted = ", ".join("any" if s is None else str(s) for s in shape)
    wanted = f"({wanted},)" if len(shape) == 1 else f"({wanted})"
    fits = result.ndim == len(shape) and all(
        want is None or want == have
        for want, have in zip(shape, result.shape, strict=True)
    )
    if not fits:
        fail(name, f"of shape {wanted}", f"shape {result.shape}", remedy)
    if not np.isfinite(result).all():
        where = np.argwhere(~np.isfinite(result))[0]
        index = ", ".join(str(i) for i in where)
        bad = shown(float(result[tuple(where)]))
        fail(name, "finite", f"{bad} at index [{index}]", remedy)
    return result


def vectors(name: str, value: Any, *, dim: int | None = None) -> Vector:
    """Return ``value`` as a fresh finite float64 array with vectors on its last axis.

    ``dim`` is their length; None stands for any length >= 1.
    """
    result = _reals(name, value, "")
    length = result.shape[-1] if result.ndim else 0
    if length == 0 or dim not in (None, length):
        fail(name, f"of shape (..., {dim or 'd'})", f"shape {result.shape}")
    return array(name, result, shape=(None,) * result.ndim)
