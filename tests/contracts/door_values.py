"""Hostile values, and kinds: what each documented condition forbids of them."""

import decimal
import fractions
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import sparse

LIMIT = 2**31 - 1  # of every loop and array
EXACT = 2**53  # integers up to here are exact as floats


def _csr(values=(1.0, 1.0, 1.0), columns=(0, 1, 0), starts=(0, 1, 2, 3)):
    """Sparse matrix of shape (3, 2) whose insides are what is given, checked or not."""
    matrix = sparse.csr_matrix((3, 2))
    matrix.data = np.array(values)
    matrix.indices = np.array(columns, dtype=np.int32)
    matrix.indptr = np.array(starts, dtype=np.int32)
    return matrix


# label: function that makes the value; one value may spoil only its own case.
VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "text": lambda: "nonsense",
    "empty text": lambda: "",
    "wrong case": lambda: "Replace_One",
    "number as text": lambda: "1",
    "bytes": lambda: b"1",
    "empty list": list,
    "list": lambda: [1.0],
    "nested list": lambda: [[1.0], [1.0, 2.0]],
    "list of text": lambda: ["a", "b"],
    "list of none": lambda: [None, None],
    "tuple": lambda: (1, 2, 3, 4, 5, 6, 7),
    "dict": dict,
    "dict of text": lambda: {"name": "nonsense", "kind": 3},
    "set": lambda: {1.0},
    "object": object,
    "class": lambda: int,
    "function": lambda: len,
    "true": lambda: True,
    "numpy true": lambda: np.True_,
    "complex": lambda: 1.0 + 0.0j,
    "numpy complex": lambda: np.complex128(1.0),
    "decimal": lambda: decimal.Decimal("0.5"),
    "fraction": lambda: fractions.Fraction(1, 2),
    "date": lambda: np.datetime64("2020-01-01"),
    "nan": lambda: math.nan,
    "numpy nan": lambda: np.float32(math.nan),
    "inf": lambda: math.inf,
    "minus inf": lambda: -math.inf,
    "minus one": lambda: -1,
    "minus one point": lambda: -1.0,
    "zero": lambda: 0,
    "zero point": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "one": lambda: 1,
    "one point": lambda: 1.0,
    "one and a half": lambda: 1.5,
    "half": lambda: np.float32(0.5),
    "two": lambda: np.int64(2),
    "below one": lambda: math.nextafter(1.0, 0.0),
    "above one": lambda: math.nextafter(1.0, 2.0),
    "2**31": lambda: 2**31,
    "2**53 + 1": lambda: 2**53 + 1,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "10**400": lambda: 10**400,
    "-(10**400)": lambda: -(10**400),
    "10**5000": lambda: 10**5000,
    "huge fraction": lambda: fractions.Fraction(10**400),
    "subnormal": lambda: 5e-324,
    "1e-300": lambda: 1e-300,
    "1e-200": lambda: 1e-200,
    "1e-50": lambda: 1e-50,
    "1e50": lambda: 1e50,
    "1e-9": lambda: 1e-9,
    "1e9": lambda: 1e9,
    "1e200": lambda: 1e200,
    "1e308": lambda: 1e308,
    "scalar array": lambda: np.array(1.0),
    "empty array": lambda: np.empty(0),
    "no columns": lambda: np.empty((3, 0)),
    "no rows": lambda: np.empty((0, 2)),
    "long vector": lambda: np.full(7, 0.1),
    "matrix": lambda: np.full((2, 2), 0.1),
    "extra axis": lambda: np.full((1, 3, 2), 0.1),
    "vector with nan": lambda: np.array([0.1, math.nan]),
    "vector with inf": lambda: np.array([0.1, math.inf]),
    "matrix with nan": lambda: np.array([[0.1, math.nan]] * 3),
    "huge vector": lambda: np.array([1e308, -1e308]),
    "subnormal vector": lambda: np.array([5e-324, 0.0]),
    "huge integers": lambda: [10**400, 1],
    "masked": lambda: np.ma.masked_array([0.1, 0.2], mask=[True, False]),
    "masked matrix": lambda: np.ma.masked_array(
        np.full((3, 2), 0.1), mask=np.eye(3, 2)
    ),
    "complex vector": lambda: np.array([0.1 + 1.0j, 0.2]),
    "complex matrix": lambda: np.full((3, 2), 0.1 + 0.5j),
    "object array": lambda: np.array([0.1, "a"], dtype=object),
    "text array": lambda: np.array(["0.1", "0.2"]),
    "records": lambda: np.zeros(2, dtype=[("a", float), ("b", float)]),
    "sparse": lambda: _csr(),
    "sparse column too far": lambda: _csr(columns=(0, 7, 0)),
    "sparse column negative": lambda: _csr(columns=(0, -1, 0)),
    "sparse starts decrease": lambda: _csr(starts=(0, 3, 1, 3)),
    "sparse starts too far": lambda: _csr(starts=(0, 1, 2, 300)),
    "sparse values short": lambda: _csr(values=(1.0,)),
    "sparse nan": lambda: _csr(values=(1.0, math.nan, 1.0)),
    "sparse complex": lambda: _csr(values=(1.0j, 1.0, 1.0)),
}


class Kind(NamedTuple):
    """What a condition forbids; ``is_long`` marks allowed values that run for long."""

    forbids: Callable[[Any], bool]
    is_long: Callable[[Any], bool] = lambda value: False


def is_real(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def as_float(value):
    try:
        return float(value)
    except OverflowError:
        return math.nan


def number(holds):
    """Numbers that are allowed, as floats; NaN never is."""
    return Kind(lambda v: not (is_real(v) and holds(as_float(v))))


def count(low=1, high=LIMIT):
    """Integers from low to high; only small ones are run."""

    def forbids(value):
        whole = isinstance(value, numbers.Integral) and is_real(value)
        return not (whole and low <= value <= high)

    return Kind(forbids, lambda value: is_real(value) and value > max(64, low))


def optional(kind):
    """The kind, or None."""
    return Kind(lambda v: v is not None and kind.forbids(v), kind.is_long)


def choice(*words):
    return Kind(lambda v: not (isinstance(v, str) and v in words))


def instance(*kinds):
    return Kind(lambda v: not isinstance(v, kinds))


def members(kind):
    """Tuples or lists of instances of the kind, maybe empty."""
    return Kind(
        lambda v: (
            not isinstance(v, tuple | list)
            or not all(isinstance(each, kind) for each in v)
        )
    )


def words(*known):
    """Tuples or lists of distinct strings, of those known if some are named."""

    def forbids(value):
        if members(str).forbids(value) or len(set(value)) < len(value):
            return True
        return bool(known) and not set(value) <= set(known)

    return Kind(forbids)


def column_names():
    """Tuples or lists of distinct names, which may be whole numbers."""

    def forbids(value):
        if not isinstance(value, list | tuple):
            return True
        names = [str(v) if type(v) in (int, np.int64) else v for v in value]
        return words().forbids(names)

    return Kind(forbids)


def either(*kinds):
    return Kind(
        lambda v: all(kind.forbids(v) for kind in kinds),
        lambda v: any(kind.is_long(v) for kind in kinds),
    )


def floats(value):
    """The value as a float array, None if it is no array of real numbers."""
    if sparse.issparse(value) or isinstance(value, np.ma.MaskedArray | str | bytes):
        return None
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":
            array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return array.astype(np.float64) if array.dtype.kind in "fiub" else None


def array(*shape, holds=lambda entries: True):
    """Finite real arrays of the shape; None stands for any length, ... for any axes."""

    def forbids(value):
        entries = floats(value)
        if entries is None or not np.isfinite(entries).all():
            return True
        if shape and shape[0] is ...:
            return entries.ndim < len(shape) - 1 or not holds(entries)
        fits = entries.ndim == len(shape) and all(
            want in (None, have)
            for want, have in zip(shape, entries.shape, strict=True)
        )
        return not (fits and holds(entries))

    return Kind(forbids)


FLAG = instance(bool, np.bool_)
TEXT = instance(str)
POSITIVE = number(lambda x: 0.0 < x < math.inf)
NON_NEGATIVE = number(lambda x: 0.0 <= x < math.inf)
FRACTION = number(lambda x: 0.0 < x < 1.0)
EXPONENT = number(lambda x: x >= 1.0)
OUTER_EXPONENT = number(lambda x: 1.0 < x < math.inf)
INNER_EXPONENT = number(lambda x: x > 1.0)
BOUND = number(lambda x: x > 0.0)  # infinity: there is none
COUNT = count()
DIM = count(1)
SEED = optional(Kind(count(0, 2**256 - 1).forbids))
GENERATOR = instance(np.random.Generator)

numbers_of_any_size = st.floats() | st.floats(width=32).map(np.float32)
integers_of_any_size = (
    st.integers(-5, 64) | st.integers(2**31) | st.integers(max_value=0)
)
RANDOM = st.one_of(
    st.sampled_from(sorted(VALUES)).map(lambda label: VALUES[label]()),
    numbers_of_any_size,
    integers_of_any_size,
    st.lists(numbers_of_any_size, max_size=4),
    st.text(max_size=8),
    st.dictionaries(st.text(max_size=4), st.none() | numbers_of_any_size, max_size=2),
    arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    arrays(np.complex128, array_shapes(max_dims=2, max_side=3)),
)
