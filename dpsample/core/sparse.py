"""Sparse matrices from outside: each field checked before compiled code reads it.

Neither our kernels nor the C++ of SciPy look at the fields of a matrix again: one bad
index there reads or writes foreign memory. So the fields are copied (the caller, or
another thread, may change them later), the copies are checked in NumPy alone, and only
then is a matrix made of them.
"""

from __future__ import annotations

import numbers
from collections.abc import Sized
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CSR: TypeAlias = "csr_array[np.float64, tuple[int, int]]"
Rows: TypeAlias = "Array | CSR"
Directions: TypeAlias = "ArrayLike | CSR"

MAX_SIDE = 2**32  # kernels keep column numbers in 32 bits
REMEDY = "Build the matrix anew from its entries, for example with scipy.sparse."


def is_sparse(value: object) -> bool:
    """Whether a value is, or converts itself to, a sparse matrix."""
    return hasattr(value, "tocsr")


def as_csr(name: str, value: object, *, width: int | None = None) -> CSR:
    """Fresh float64 CSR array of a sparse matrix in any format, checked in full.

    Rows are sorted, repeated entries are summed, all values are finite. ``width`` is
    the number of columns; None stands for any.
    """
    from scipy import sparse

    given = _Matrix(name, value if sparse.issparse(value) else _converted(name, value))
    height, columns = given.shape
    if width is not None and columns != width:
        check.fail(name, f"of {width} columns", f"shape ({height}, {columns})")
    kind = getattr(given.matrix, "format", None)
    if kind not in READERS:
        listed = ", ".join(READERS)
        check.fail(name, f"a sparse matrix of format {listed}", str(kind), REMEDY)
    try:
        result = READERS[kind](given)
    except (AttributeError, TypeError) as error:  # a field is missing or no sequence
        check.fail(name, f"a matrix of format {kind}", repr(error), REMEDY)
    result.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(result.data))
    if bad.size:
        row = int(np.searchsorted(result.indptr, bad[0], side="right")) - 1
        check.fail(name, "finite", f"a NaN or infinity in record {row}")
    return result


def _converted(name: str, value: object) -> object:
    """Matrix of an object of another library, which has a ``tocsr`` of its own."""
    from scipy import sparse

    try:
        matrix = value.tocsr()  # type: ignore[attr-defined]
    except Exception as error:
        check.fail(name, "a matrix whose tocsr() works", repr(error), REMEDY)
    if not sparse.issparse(matrix):
        wanted = "a matrix whose tocsr() returns one of scipy.sparse"
        check.fail(name, wanted, type(matrix).__name__, REMEDY)
    return matrix


class _Matrix:
    """A matrix of SciPy, whose fields are copied and then checked."""

    def __init__(self, name: str, matrix: Any) -> None:
        self.name, self.matrix = name, matrix
        shape = tuple(matrix.shape)
        if len(shape) != 2:
            check.fail(name, "of shape (any, any)", f"shape {shape}")
        if not all(
            isinstance(side, numbers.Integral) and 0 <= int(side) < MAX_SIDE
            for side in shape
        ):
            check.fail(name, "of less than 2**32 rows and columns", f"shape {shape}")
        self.shape = int(shape[0]), int(shape[1])

    def fail(self, field: str, condition: str, got: str, more: str = "") -> NoReturn:
        """Raise the error about one field."""
        check.fail(f"{field} of {self.name}", condition, got, more + REMEDY)

    def numbers(self, field: str, given: object, kinds: str, ndim: int = 1) -> Any:
        """Fresh array of one field; ``kinds`` are the kinds of dtype it may have."""
        masked = isinstance(given, np.ma.MaskedArray)
        try:
            array = np.array(given)
        except (TypeError, ValueError, OverflowError):
            array = np.empty(0, dtype=object)
        if array.size == 0 and not isinstance(given, np.ndarray):
            array = array.astype(np.int64)  # an empty list says nothing of its type
        if masked or array.dtype.kind not in kinds or array.ndim != ndim:
            wanted = "integers" if "f" not in kinds else "real numbers"
            got = "a masked array" if masked else check.describe(array)
            self.fail(field, f"{ndim}-dimensional, of {wanted}", got)
        return array

    def values(self, given: object, ndim: int = 1) -> Array:
        """Fresh values of the entries."""
        with np.errstate(over="ignore"):  # long doubles: an infinity is refused later
            array = self.numbers("data", given, "biuf", ndim)
            return np.asarray(array.astype(np.float64))

    def indices(self, field: str, given: object, limit: int, what: str) -> Ints:
        """Fresh indices from 0 to ``limit - 1``, compared before any cast can wrap."""
        array = self.numbers(field, given, "iu")
        bad = np.flatnonzero((array < 0) | (array >= limit))
        if bad.size:
            wanted = f"{what} from 0 to {limit - 1}" if limit else "empty"
            self.fail(field, wanted, f"{array[bad[0]]} at entry {bad[0]}")
        return np.asarray(array, dtype=np.int64)

    def length(self, field: str, given: Sized, wanted: int, reason: str) -> None:
        """Refuse a field of another length."""
        if len(given) != wanted:
            condition = f"of length {wanted}, {reason}"
            self.fail(field, condition, f"length {len(given)}")

    def starts(self, num_lines: int, num_entries: int) -> Ints:
        """Fresh ``indptr``: from 0 to the number of entries, never falling."""
        starts = self.numbers("indptr", self.matrix.indptr, "iu")
        self.length("indptr", starts, num_lines + 1, "one more than the lines it has")
        self.indices("indptr", starts, num_entries + 1, "entries")
        ends = int(starts[0]), int(starts[-1])
        if ends != (0, num_entries):
            wanted = f"from 0 to the number of entries, {num_entries}"
            self.fail(
                "indptr", wanted, f"from {ends[0]} to {ends[1]}", "Call prune(). "
            )
        falls = np.flatnonzero(starts[1:] < starts[:-1])
        if falls.size:
            self.fail("indptr", "non-decreasing", f"a fall after entry {falls[0]}")
        return np.asarray(starts, dtype=np.int64)

    def compressed(
        self, data: Array, lines: int, across: int, what: str
    ) -> tuple[Array, Ints, Ints]:
        """Check the indices of CSR, CSC or BSR: ``lines`` of numbers below another."""
        indices = self.indices("indices", self.matrix.indices, across, what)
        self.length("data", data, len(indices), "the number of indices")
        return data, indices, self.starts(lines, len(indices))

    def entries(self, data: object, rows: object, columns: object) -> CSR:
        """Matrix of single entries."""
        from scipy import sparse

        values = self.values(data)
        first = self.indices("row", rows, self.shape[0], "rows")
        second = self.indices("col", columns, self.shape[1], "columns")
        self.length("row", first, len(values), "the number of values")
        self.length("col", second, len(values), "the number of values")
        return sparse.coo_array((values, (first, second)), shape=self.shape).tocsr()


def _from_csr(given: _Matrix) -> CSR:
    from scipy import sparse

    data = given.values(given.matrix.data)
    fields = given.compressed(data, *given.shape, "columns")
    return sparse.csr_array(fields, shape=given.shape)


def _from_csc(given: _Matrix) -> CSR:
    from scipy import sparse

    data = given.values(given.matrix.data)
    fields = given.compressed(data, *given.shape[::-1], "rows")
    return sparse.csc_array(fields, shape=given.shape).tocsr()


def _from_bsr(given: _Matrix) -> CSR:
    from scipy import sparse

    data, shape = given.values(given.matrix.data, ndim=3), given.shape
    sides = data.shape[1:]
    if 0 in sides or any(n % m for n, m in zip(shape, sides, strict=True)):
        wanted = f"made of blocks whose sides divide the shape {shape}"
        given.fail("data", wanted, f"blocks of shape {sides}")
    blocks = shape[0] // sides[0], shape[1] // sides[1]
    fields = given.compressed(data, *blocks, "columns of blocks")
    return sparse.bsr_array(fields, shape=shape).tocsr()


def _from_coo(given: _Matrix) -> CSR:
    matrix = given.matrix
    return given.entries(matrix.data, matrix.row, matrix.col)


def _from_dok(given: _Matrix) -> CSR:
    places = list(given.matrix.keys())
    if not all(isinstance(place, tuple) and len(place) == 2 for place in places):
        check.fail(given.name, "a dictionary of (row, column)", "other keys", REMEDY)
    rows, columns = [i for i, _ in places], [j for _, j in places]
    return given.entries(list(given.matrix.values()), rows, columns)


def _from_lil(given: _Matrix) -> CSR:
    lists = list(given.matrix.rows), list(given.matrix.data)
    for field, parts in zip(("rows", "data"), lists, strict=True):
        given.length(field, parts, given.shape[0], "one list a row")
        if not all(isinstance(part, list) for part in parts):
            given.fail(field, "an array of lists", "other objects")
    lengths = [len(part) for part in lists[0]]
    if lengths != [len(part) for part in lists[1]]:
        given.fail("data", "of one value for each index", "lists of other lengths")
    columns, values = ([v for part in parts for v in part] for parts in lists)
    return given.entries(values, np.repeat(np.arange(given.shape[0]), lengths), columns)


def _from_dia(given: _Matrix) -> CSR:
    data, shape = given.values(given.matrix.data, ndim=2), given.shape
    offsets = given.numbers("offsets", given.matrix.offsets, "iu")
    given.length("data", data, len(offsets), "the number of offsets")
    columns = np.arange(min(data.shape[1], shape[1]))
    if len(set(offsets.tolist())) < len(offsets):
        given.fail("offsets", "free of repeats", check.describe(offsets))
    parts = [(data[:0].reshape(-1), columns[:0], columns[:0])]
    for line, offset in zip(data, offsets.tolist(), strict=True):
        # Entry j of a diagonal is in column j; what falls off the matrix is unused.
        inside = columns[(columns >= offset) & (columns - shape[0] < offset)]
        if inside.size:
            parts.append((line[inside], inside - offset, inside))
    values, rows, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return given.entries(values, rows, places)


READERS = {
    "csr": _from_csr,
    "csc": _from_csc,
    "coo": _from_coo,
    "bsr": _from_bsr,
    "dok": _from_dok,
    "lil": _from_lil,
    "dia": _from_dia,
}
