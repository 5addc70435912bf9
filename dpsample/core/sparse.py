"""Sparse matrices from outside: each field checked before compiled code reads it.

Neither our kernels nor the C++ of SciPy look at the fields of a matrix again: one bad
index there reads or writes foreign memory. So the fields are copied (the caller, or
another thread, may change them later), the copies are checked in NumPy alone, and only
then is a matrix made of them.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check

Index = NDArray[np.int64]
MAX_SIDE = 2**32  # kernels keep column numbers in 32 bits
REMEDY = "Build the matrix anew from its entries, for example with scipy.sparse."


def is_sparse(value: Any) -> bool:
    """Whether a value is, or converts itself to, a sparse matrix."""
    return hasattr(value, "tocsr")


def as_csr(name: str, value: Any, *, width: int | None = None) -> Any:
    """Fresh float64 CSR array of a sparse matrix in any format, checked in full.

    Rows are sorted, repeated entries are summed, all values are finite. ``width`` is
    the number of columns; None stands for any.
    """
    from scipy import sparse

    if not sparse.issparse(value):
        value = _converted(name, value)
    height, found = _shape(name, value)
    if width is not None and found != width:
        check.fail(name, f"of {width} columns", f"shape ({height}, {found})")
    kind = getattr(value, "format", None)
    if kind not in READERS:
        listed = ", ".join(READERS)
        check.fail(name, f"a sparse matrix of format {listed}", str(kind), REMEDY)
    try:
        result = READERS[kind](name, value, (height, found))
    except (AttributeError, TypeError) as error:  # a field is missing or no sequence
        check.fail(name, f"a matrix of format {kind}", repr(error), REMEDY)
    result.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(result.data))
    if bad.size:
        row = int(np.searchsorted(result.indptr, bad[0], side="right")) - 1
        check.fail(name, "finite", f"a NaN or infinity in record {row}")
    return result


def _converted(name: str, value: Any) -> Any:
    """Matrix of an object of another library, which has a ``tocsr`` of its own."""
    from scipy import sparse

    try:
        matrix = value.tocsr()
    except Exception as error:
        check.fail(name, "a matrix whose tocsr() works", repr(error), REMEDY)
    if not sparse.issparse(matrix):
        wanted = "a matrix whose tocsr() returns one of scipy.sparse"
        check.fail(name, wanted, type(matrix).__name__, REMEDY)
    return matrix


def _shape(name: str, value: Any) -> tuple[int, int]:
    shape = tuple(value.shape)
    if len(shape) != 2:
        check.fail(name, "of shape (any, any)", f"shape {shape}")
    if not all(
        isinstance(side, numbers.Integral) and 0 <= int(side) < MAX_SIDE
        for side in shape
    ):
        check.fail(name, "of less than 2**32 rows and columns", f"shape {shape}")
    return int(shape[0]), int(shape[1])


def _numbers(name: str, field: str, given: Any, kinds: str, ndim: int = 1) -> Any:
    """Fresh array of one field; ``kinds`` are the kinds of dtype that it may have."""
    masked = isinstance(given, np.ma.MaskedArray)
    try:
        array = np.array(given)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0, dtype=object)
    if array.size == 0 and not isinstance(given, np.ndarray):
        array = array.astype(np.int64)  # an empty list says nothing of its type
    if masked or array.dtype.kind not in kinds or array.ndim != ndim:
        wanted = "integers" if "f" not in kinds else "real numbers"
        got = "a masked array" if masked else check.shown(array)
        check.fail(
            f"{field} of {name}", f"{ndim}-dimensional, of {wanted}", got, REMEDY
        )
    return array


def _values(name: str, field: str, given: Any, ndim: int = 1) -> Any:
    with np.errstate(over="ignore"):  # long doubles: an infinity is refused later
        return _numbers(name, field, given, "biuf", ndim).astype(np.float64)


def _indices(name: str, field: str, given: Any, limit: int, what: str) -> Index:
    """Fresh indices from 0 to ``limit - 1``, compared before any cast can wrap."""
    array = _numbers(name, field, given, "iu")
    bad = np.flatnonzero((array < 0) | (array >= limit))
    if bad.size:
        wanted = f"{what} from 0 to {limit - 1}" if limit else "empty"
        got = f"{array[bad[0]]} at entry {bad[0]}"
        check.fail(f"{field} of {name}", wanted, got, REMEDY)
    return np.asarray(array, dtype=np.int64)


def _length(name: str, field: str, array: Any, wanted: int, reason: str) -> None:
    if len(array) != wanted:
        condition = f"of length {wanted}, {reason}"
        check.fail(f"{field} of {name}", condition, f"length {len(array)}", REMEDY)


def _starts(name: str, given: Any, num_lines: int, num_entries: int) -> Index:
    """Fresh ``indptr``: from 0 to the number of entries, never falling."""
    starts = _numbers(name, "indptr", given, "iu")
    _length(name, "indptr", starts, num_lines + 1, "one more than the lines it has")
    _indices(name, "indptr", starts, num_entries + 1, "entries")
    ends = int(starts[0]), int(starts[-1])
    if ends != (0, num_entries):
        wanted = f"from 0 to the number of entries, {num_entries}"
        got = f"from {ends[0]} to {ends[1]}"
        check.fail(f"indptr of {name}", wanted, got, f"Call prune(). {REMEDY}")
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    if falls.size:
        got = f"a fall after entry {falls[0]}"
        check.fail(f"indptr of {name}", "non-decreasing", got, REMEDY)
    return np.asarray(starts, dtype=np.int64)


def _compressed(name: str, value: Any, sides: tuple[int, int]) -> Any:
    """Check the fields of CSR (lines are rows) or CSC (lines are columns)."""
    lines, across = sides
    data = _values(name, "data", value.data)
    what = "columns" if value.format == "csr" else "rows"
    indices = _indices(name, "indices", value.indices, across, what)
    _length(name, "data", data, len(indices), "the number of indices")
    return data, indices, _starts(name, value.indptr, lines, len(indices))


def _from_csr(name: str, value: Any, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    return sparse.csr_array(_compressed(name, value, shape), shape=shape)


def _from_csc(name: str, value: Any, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    fields = _compressed(name, value, (shape[1], shape[0]))
    return sparse.csc_array(fields, shape=shape).tocsr()


def _from_bsr(name: str, value: Any, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    data = _values(name, "data", value.data, ndim=3)
    sides = data.shape[1:]
    if 0 in sides or any(n % m for n, m in zip(shape, sides, strict=True)):
        wanted = f"made of blocks whose sides divide the shape {shape}"
        check.fail(f"data of {name}", wanted, f"blocks of shape {sides}", REMEDY)
    lines, across = shape[0] // sides[0], shape[1] // sides[1]
    indices = _indices(name, "indices", value.indices, across, "columns of blocks")
    _length(name, "data", data, len(indices), "the number of indices")
    starts = _starts(name, value.indptr, lines, len(indices))
    return sparse.bsr_array((data, indices, starts), shape=shape).tocsr()


def _from_entries(
    name: str, data: Any, rows: Any, columns: Any, shape: tuple[int, int]
) -> Any:
    from scipy import sparse

    values = _values(name, "data", data)
    first = _indices(name, "row", rows, shape[0], "rows")
    second = _indices(name, "col", columns, shape[1], "columns")
    _length(name, "row", first, len(values), "the number of values")
    _length(name, "col", second, len(values), "the number of values")
    return sparse.coo_array((values, (first, second)), shape=shape).tocsr()


def _from_coo(name: str, value: Any, shape: tuple[int, int]) -> Any:
    return _from_entries(name, value.data, value.row, value.col, shape)


def _from_dok(name: str, value: Any, shape: tuple[int, int]) -> Any:
    places = list(value.keys())
    if not all(isinstance(place, tuple) and len(place) == 2 for place in places):
        check.fail(name, "a dictionary of (row, column)", "other keys", REMEDY)
    rows, columns = [i for i, _ in places], [j for _, j in places]
    return _from_entries(name, list(value.values()), rows, columns, shape)


def _from_lil(name: str, value: Any, shape: tuple[int, int]) -> Any:
    lists = list(value.rows), list(value.data)
    for field, parts in zip(("rows", "data"), lists, strict=True):
        _length(name, field, parts, shape[0], "one list a row")
        if not all(isinstance(part, list) for part in parts):
            check.fail(
                f"{field} of {name}", "an array of lists", "other objects", REMEDY
            )
    lengths = [len(part) for part in lists[0]]
    if lengths != [len(part) for part in lists[1]]:
        got = "lists of other lengths"
        check.fail(f"data of {name}", "of one value for each index", got, REMEDY)
    columns, values = ([v for part in parts for v in part] for parts in lists)
    return _from_entries(
        name, values, np.repeat(np.arange(shape[0]), lengths), columns, shape
    )


def _from_dia(name: str, value: Any, shape: tuple[int, int]) -> Any:
    data = _values(name, "data", value.data, ndim=2)
    offsets = _numbers(name, "offsets", value.offsets, "iu")
    _length(name, "data", data, len(offsets), "the number of offsets")
    columns = np.arange(min(data.shape[1], shape[1]))
    if len(set(offsets.tolist())) < len(offsets):
        check.fail(
            f"offsets of {name}", "free of repeats", check.shown(offsets), REMEDY
        )
    parts: list[tuple[Any, Any, Any]] = [
        (data[:0].reshape(-1), columns[:0], columns[:0])
    ]
    for line, offset in zip(data, offsets.tolist(), strict=True):
        # Entry j of a diagonal is in column j; what falls off the matrix is unused.
        inside = columns[(columns >= offset) & (columns - shape[0] < offset)]
        if inside.size:
            parts.append((line[inside], inside - offset, inside))
    values, rows, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _from_entries(name, values, rows, places, shape)


READERS = {
    "csr": _from_csr,
    "csc": _from_csc,
    "coo": _from_coo,
    "bsr": _from_bsr,
    "dok": _from_dok,
    "lil": _from_lil,
    "dia": _from_dia,
}
