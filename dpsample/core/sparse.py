"""Sparse matrices of the user, whose fields are checked before compiled code runs.

Neither our kernels nor the C++ code of SciPy checks the fields of a matrix, and a bad
index makes them read or write foreign memory. Therefore the fields are copied, because
the caller or another thread may change them later. The copies are checked in NumPy, and
then a new matrix is made of them.
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

# Kernels store column numbers in 32 bits.
MAX_SIDE = 2**32
REMEDY = "Build the matrix anew from its entries, for example with scipy.sparse."


def is_sparse(value: object) -> bool:
    """Return whether a value is a sparse matrix, or has a method to become one."""
    return hasattr(value, "tocsr")


def as_csr(name: str, value: object, *, width: int | None = None) -> CSR:
    """Return a new, checked float64 CSR array of a sparse matrix in any format.

    Its rows are sorted, repeated entries are added, and all values are finite.
    ``width`` is the number of columns. None stands for any number.
    """
    from scipy import sparse

    matrix = _Matrix(name, value if sparse.issparse(value) else _convert(name, value))
    height, columns = matrix.shape
    if width is not None and columns != width:
        check.fail(name, f"of {width} columns", f"shape ({height}, {columns})")
    kind = getattr(matrix.source, "format", None)
    if kind not in READERS:
        listed = ", ".join(READERS)
        check.fail(name, f"a sparse matrix of format {listed}", str(kind), REMEDY)
    try:
        result = READERS[kind](matrix)
    except (AttributeError, TypeError) as error:  # a field is missing or no sequence
        check.fail(name, f"a matrix of format {kind}", repr(error), REMEDY)
    # Norms of rows would be wrong if an entry were stored in parts.
    result.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(result.data))
    if bad.size:
        row = int(np.searchsorted(result.indptr, bad[0], side="right")) - 1
        check.fail(name, "finite", f"a NaN or infinity in record {row}")
    return result


def _convert(name: str, value: object) -> object:
    """Return the matrix that the ``tocsr`` of another library's object returns."""
    from scipy import sparse

    try:
        matrix = value.tocsr()  # type: ignore[attr-defined]
    except Exception as error:
        check.fail(name, "a matrix whose tocsr() works", repr(error), REMEDY)
    if not sparse.issparse(matrix):
        condition = "a matrix whose tocsr() returns one of scipy.sparse"
        check.fail(name, condition, type(matrix).__name__, REMEDY)
    return matrix


class _Matrix:
    """A matrix of SciPy. Its methods return copies of fields, and check them."""

    def __init__(self, name: str, source: Any) -> None:
        self.name, self.source = name, source
        shape = tuple(source.shape)
        if len(shape) != 2:
            check.fail(name, "of shape (any, any)", f"shape {shape}")
        if not all(
            isinstance(side, numbers.Integral) and 0 <= int(side) < MAX_SIDE
            for side in shape
        ):
            check.fail(name, "of less than 2**32 rows and columns", f"shape {shape}")
        self.shape = int(shape[0]), int(shape[1])

    def fail(self, field: str, condition: str, got: str, hint: str = "") -> NoReturn:
        """Raise the error about one field."""
        check.fail(f"{field} of {self.name}", condition, got, hint + REMEDY)

    def numbers(self, field: str, values: object, kinds: str, ndim: int = 1) -> Any:
        """Return a copy of one field. ``kinds`` are the kinds of dtype it may have."""
        is_masked = isinstance(values, np.ma.MaskedArray)
        # `np.array` copies, so that the field cannot change after its check.
        try:
            array = np.array(values)
        except (TypeError, ValueError, OverflowError):
            array = np.empty(0, dtype=object)
        if array.size == 0 and not isinstance(values, np.ndarray):
            array = array.astype(np.int64)  # NumPy takes an empty list for floats
        if is_masked or array.dtype.kind not in kinds or array.ndim != ndim:
            numbers = "integers" if "f" not in kinds else "real numbers"
            got = "a masked array" if is_masked else check.describe(array)
            self.fail(field, f"{ndim}-dimensional, of {numbers}", got)
        return array

    def values(self, values: object, ndim: int = 1) -> Array:
        """Return a copy of the values of the entries."""
        # A long double may become infinite here. `as_csr` raises the error about it.
        with np.errstate(over="ignore"):
            array = self.numbers("data", values, "biuf", ndim)
            return np.asarray(array.astype(np.float64))

    def indices(self, field: str, values: object, limit: int, kind: str) -> Ints:
        """Return a copy of indices, which must be from 0 to ``limit - 1``.

        They are compared before they are cast, because a cast may wrap around.
        """
        array = self.numbers(field, values, "iu")
        bad = np.flatnonzero((array < 0) | (array >= limit))
        if bad.size:
            condition = f"{kind} from 0 to {limit - 1}" if limit else "empty"
            self.fail(field, condition, f"{array[bad[0]]} at entry {bad[0]}")
        return np.asarray(array, dtype=np.int64)

    def check_length(self, field: str, values: Sized, length: int, reason: str) -> None:
        """Raise if a field has another length."""
        if len(values) != length:
            condition = f"of length {length}, {reason}"
            self.fail(field, condition, f"length {len(values)}")

    def starts(self, num_lines: int, num_entries: int) -> Ints:
        """Return a copy of ``indptr``, which must not decrease from 0 to the end."""
        starts = self.numbers("indptr", self.source.indptr, "iu")
        self.check_length(
            "indptr", starts, num_lines + 1, "one more than the lines it has"
        )
        self.indices("indptr", starts, num_entries + 1, "entries")
        ends = int(starts[0]), int(starts[-1])
        if ends != (0, num_entries):
            condition = f"from 0 to the number of entries, {num_entries}"
            got = f"from {ends[0]} to {ends[1]}"
            self.fail("indptr", condition, got, "Call prune(). ")
        falls = np.flatnonzero(starts[1:] < starts[:-1])
        if falls.size:
            self.fail("indptr", "non-decreasing", f"a fall after entry {falls[0]}")
        return np.asarray(starts, dtype=np.int64)

    def compressed_fields(
        self, data: Array, num_lines: int, line_length: int, kind: str
    ) -> tuple[Array, Ints, Ints]:
        """Return data, indices and starts of lines: CSR rows, CSC columns, BSR rows."""
        indices = self.indices("indices", self.source.indices, line_length, kind)
        self.check_length("data", data, len(indices), "the number of indices")
        return data, indices, self.starts(num_lines, len(indices))

    def from_entries(self, data: object, rows: object, columns: object) -> CSR:
        """Return the matrix of single entries."""
        from scipy import sparse

        values = self.values(data)
        first = self.indices("row", rows, self.shape[0], "rows")
        second = self.indices("col", columns, self.shape[1], "columns")
        self.check_length("row", first, len(values), "the number of values")
        self.check_length("col", second, len(values), "the number of values")
        return sparse.coo_array((values, (first, second)), shape=self.shape).tocsr()


def _from_csr(matrix: _Matrix) -> CSR:
    """Return a checked copy of a matrix stored row by row."""
    from scipy import sparse

    data = matrix.values(matrix.source.data)
    fields = matrix.compressed_fields(data, *matrix.shape, "columns")
    return sparse.csr_array(fields, shape=matrix.shape)


def _from_csc(matrix: _Matrix) -> CSR:
    """Return a matrix stored column by column."""
    from scipy import sparse

    data = matrix.values(matrix.source.data)
    fields = matrix.compressed_fields(data, *matrix.shape[::-1], "rows")
    return sparse.csc_array(fields, shape=matrix.shape).tocsr()


def _from_bsr(matrix: _Matrix) -> CSR:
    """Return a matrix stored in dense blocks."""
    from scipy import sparse

    # The data are blocks of one size, (num_blocks, height, width).
    data, shape = matrix.values(matrix.source.data, ndim=3), matrix.shape
    sides = data.shape[1:]
    if 0 in sides or any(n % m for n, m in zip(shape, sides, strict=True)):
        condition = f"made of blocks whose sides divide the shape {shape}"
        matrix.fail("data", condition, f"blocks of shape {sides}")
    blocks = shape[0] // sides[0], shape[1] // sides[1]
    fields = matrix.compressed_fields(data, *blocks, "columns of blocks")
    return sparse.bsr_array(fields, shape=shape).tocsr()


def _from_coo(matrix: _Matrix) -> CSR:
    """Return a matrix stored as entries with their rows and columns."""
    source = matrix.source
    return matrix.from_entries(source.data, source.row, source.col)


def _from_dok(matrix: _Matrix) -> CSR:
    """Return a matrix stored as a dictionary of entries."""
    keys = list(matrix.source.keys())
    if not all(isinstance(key, tuple) and len(key) == 2 for key in keys):
        check.fail(matrix.name, "a dictionary of (row, column)", "other keys", REMEDY)
    rows, columns = [i for i, _ in keys], [j for _, j in keys]
    return matrix.from_entries(list(matrix.source.values()), rows, columns)


def _from_lil(matrix: _Matrix) -> CSR:
    """Return a matrix stored as lists, one pair for each row."""
    # Each row has a list of its columns and a list of their values.
    lists = list(matrix.source.rows), list(matrix.source.data)
    for field, parts in zip(("rows", "data"), lists, strict=True):
        matrix.check_length(field, parts, matrix.shape[0], "one list a row")
        if not all(isinstance(part, list) for part in parts):
            matrix.fail(field, "an array of lists", "other objects")
    lengths = [len(part) for part in lists[0]]
    if lengths != [len(part) for part in lists[1]]:
        matrix.fail("data", "of one value for each index", "lists of other lengths")
    columns, values = ([v for part in parts for v in part] for parts in lists)
    return matrix.from_entries(
        values, np.repeat(np.arange(matrix.shape[0]), lengths), columns
    )


def _from_dia(matrix: _Matrix) -> CSR:
    """Return a matrix stored by diagonals."""
    data, shape = matrix.values(matrix.source.data, ndim=2), matrix.shape
    offsets = matrix.numbers("offsets", matrix.source.offsets, "iu")
    matrix.check_length("data", data, len(offsets), "the number of offsets")
    columns = np.arange(min(data.shape[1], shape[1]))
    if len(set(offsets.tolist())) < len(offsets):
        matrix.fail("offsets", "free of repeats", check.describe(offsets))
    # The empty part gives `concatenate` an array if no diagonal is inside.
    parts = [(data[:0].reshape(-1), columns[:0], columns[:0])]
    for line, offset in zip(data, offsets.tolist(), strict=True):
        # Entry j of a diagonal is in column j. Entries outside the matrix are not used.
        inside = columns[(columns >= offset) & (columns - shape[0] < offset)]
        if inside.size:
            parts.append((line[inside], inside - offset, inside))
    values, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    return matrix.from_entries(values, rows, columns)


READERS = {
    "csr": _from_csr,
    "csc": _from_csc,
    "coo": _from_coo,
    "bsr": _from_bsr,
    "dok": _from_dok,
    "lil": _from_lil,
    "dia": _from_dia,
}
