"""Storage backends of records: this process's memory, files, a Dask cluster.

Work on records is a pass: a function is called for one chunk of records after the
other, and the results are combined. Only one chunk needs to be in memory. Chunks are
cut by the numbers of records and coefficients alone, and results are combined in one
binary tree. So a sum is the same to the last bit for all backends and any number of
workers. Records of one chunk are in memory and are summed in order.

A path of the tree over m chunks has at most m - 1 additions, and at most 2 log2 m. So
its rounding error is within the bound for a sum in order, which privacy proofs include.

Records are checked against their public bounds by `RecordRules` as they are read, and
scaled down to them if the user allows it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.sparse import CSR, Rows
from dpsample.losses import Custom
from dpsample.numerics import norms
from dpsample.problem.facts import PublicFacts
from dpsample.problem.records import Data, make_data, part_of, writable
from dpsample.problem.sources import (
    ArrayTable,
    FileTable,
    ParquetTable,
    Read,
    Table,
    chunk_size,
    write_to_files,
)
from dpsample.tables.encoding import NORM_TOLERANCE

# Entries above this are above every declared bound, and their norms might overflow.
HUGE = 1e100
# Number of chunks of a task on a cluster. For a power of 2 the sums of a task are whole
# subtrees of the binary tree.
GROUP = 8
IN_MEMORY = (
    "Pass np.array(features) if memory holds them, or use what works by passes: "
    "release of smooth losses, NoisyGD, objective perturbation."
)
OR_FILE = f"Pass a numpy.memmap or a Parquet file. {IN_MEMORY}"
ENCODE = "Encode categories and drop or fill missing values first."
CHANGED = (
    "The file {} has changed since the Problem was built, and its new content was not "
    "checked against the bounds. Build the Problem again."
)
Result = TypeVar("Result")
Fold = Callable[[Any, Any], Any]


class RowsAbove(NamedTuple):
    """Rows whose norm is above the bound, in one or several chunks."""

    first: int  # number of the first such record, -1 if there is none
    norm: float  # the norm of its row
    num_above: int


NONE_ABOVE = RowsAbove(-1, 0.0, 0)


def add_entries(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add two tuples entry by entry."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def fold_in_tree(parts: Iterable[Result], fold: Fold) -> Result:
    """Combine neighbors in a binary tree, whose shape depends on their number alone."""
    # Each result waits, with the number of its parts, for another one of as many parts.
    # The numbers are powers of two in descending order.
    waiting: list[tuple[int, Any]] = []
    for part in parts:
        size, result = 1, part
        while waiting and waiting[-1][0] == size:
            result = fold(waiting.pop()[1], result)
            size *= 2
        waiting.append((size, result))
    result = waiting.pop()[1]
    while waiting:
        result = fold(waiting.pop()[1], result)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordRules:
    """Public bounds of records, and what happens to records above them."""

    facts: PublicFacts
    clip_rows: bool  # whether rows and responses are scaled to their bounds
    response_limit: float | None  # largest |response|, None if there is no bound

    def check(
        self, rows: Rows, response: Array, offset: Array, first: int
    ) -> RowsAbove:
        """Apply `bound`, and compare a user's loss with its declaration at the records.

        ``first`` is the number of the first record.
        """
        above, facts = self.bound(rows, response, offset, first), self.facts
        if isinstance(facts.loss, Custom) and above == NONE_ABOVE:
            facts.loss.check_at_records(
                facts.margin_bounds(
                    row_norms(rows, facts), offset if offset.size else None
                ),
                response,
                margin_bound=facts.margin_bound,
                response_bound=facts.response_bound,
                first=first,
            )
        return above

    def bound(
        self, rows: Rows, response: Array, offset: Array, first: int
    ) -> RowsAbove:
        """Scale records to their bounds in place, and return rows that stay above them.

        Raises for values that no scaling corrects: numbers that are not finite, labels
        other than -1 and 1, and offsets above their bound.
        """
        facts = self.facts
        if isinstance(rows, np.ndarray):
            check.finite("features", rows, first=first, remedy=ENCODE)
        check.finite("response", response, first=first)
        check.finite("offset", offset, first=first)
        sizes, above = self.clip(rows, response)
        if above.size and not self.clip_rows:
            return RowsAbove(first + int(above[0]), float(sizes[above[0]]), above.size)
        facts.loss.check_response(response, self.response_limit, first=first)
        for i in np.flatnonzero(np.abs(offset) > facts.offset_bound)[:1]:
            bound = f"within offset_bound = {check.describe(facts.offset_bound)}"
            bound += " in absolute value"
            remedy = "Declare the public bound of the offsets."
            got = f"{check.describe(offset[i])} in record {first + i}"
            check.fail("offset", bound, got, remedy)
        return NONE_ABOVE

    def clip(self, rows: Rows, response: Array) -> tuple[Array, NDArray[np.intp]]:
        """Scale rows and responses above their bounds in place, if that is allowed.

        Returns the norms of the rows before, and the positions of rows above the bound.
        Both are empty if a quick test shows that no row is above it.
        """
        facts, limit = self.facts, self.response_limit
        if self.clip_rows and limit is not None and not facts.loss.is_classification:
            np.clip(response, -limit, limit, out=response)
        if self._are_within_bound(rows):
            return np.empty(0), np.empty(0, np.intp)
        largest = np.asarray(norms.norm(rows, np.inf))
        is_huge = bool((largest > HUGE).any())
        # The norm of a huge row may overflow, so the row is first scaled to `HUGE`.
        if is_huge and self.clip_rows:
            scale_rows(rows, np.minimum(1.0, HUGE / np.maximum(largest, 1.0)))
        # Without clipping a huge row is an error, which may quote its largest entry.
        has_error = is_huge and not self.clip_rows
        sizes = largest if has_error else row_norms(rows, facts)
        above = np.flatnonzero(sizes > facts.row_bound * (1.0 + NORM_TOLERANCE))
        # Rows within the tolerance are not scaled. Otherwise the result for one record
        # could depend on whether another record of the chunk is scaled.
        if self.clip_rows and above.size:
            factors = np.ones(len(sizes))
            factors[above] = facts.row_bound / sizes[above]
            scale_rows(rows, factors)
        return sizes, above

    def _are_within_bound(self, rows: Rows) -> bool:
        """Return whether sums of squares show that no row is above its bound.

        This test is quick, and it suffices for most chunks. The l_p or Schatten norm of
        a row is at most length^max(1/p - 1/2, 0) times its l2 norm.
        """
        # Up to 4000 terms, rounding errors of a sum of squares are within half of the
        # tolerance of norms.
        if not isinstance(rows, np.ndarray) or rows.shape[1] > 4000:
            return False
        facts = self.facts
        length = facts.domain.norm_length(rows.shape[1])
        factor = length ** max(1.0 / facts.row_norm - 0.5, 0.0)
        limit = (facts.row_bound / factor * (1.0 + 0.5 * NORM_TOLERANCE)) ** 2
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
        return bool((squares <= limit).all())

    def enforce(self, results: Iterable[RowsAbove]) -> None:
        """Raise for rows above their bound, given the results of all chunks."""

        def combine(left: RowsAbove, right: RowsAbove) -> RowsAbove:
            first = right if left.first < 0 else left
            return RowsAbove(first.first, first.norm, left.num_above + right.num_above)

        position, size, count = fold_in_tree(results, combine)
        if count:
            norm, bound = self.facts.row_norm, self.facts.row_bound
            limit = f"row_bound = {check.describe(bound)}"
            condition = f"rows of {norm:g}-norm at most {limit}"
            record = f"record {position} ({count} records are above)"
            got = f"{check.describe(size)} in {record}"
            remedy = "Declare the public bound that holds, or pass clip_rows=True."
            check.fail("features", condition, got, remedy)


def row_norms(features: Rows, facts: PublicFacts) -> Array:
    """Return the norm of each row, in the declared norm."""
    shape = facts.domain.matrix_shape
    if shape is not None and facts.row_norm != 2.0:
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return np.asarray(norms.schatten(dense, facts.row_norm, shape))
    return np.asarray(norms.norm(features, facts.row_norm))


def scale_rows(features: Rows, factors: Array) -> None:
    """Multiply each row by its factor, in place."""
    if not isinstance(features, np.ndarray):
        features.data *= np.repeat(factors, np.diff(features.indptr))
    else:
        features *= factors[:, None]


class RecordStorage(Protocol):
    """Records, wherever they are, and passes over them."""

    num_records: int
    dim: int
    is_parallel: bool  # whether chunks may be processed in another order
    is_in_memory: bool  # whether ``data`` is in memory, so that passes are inexpensive

    @property
    def pass_seconds(self) -> float:
        """Seconds that the last full pass took."""

    @property
    def pass_bytes(self) -> float:
        """Bytes that a pass reads, by sizes and types alone."""

    @property
    def data(self) -> Data:
        """All records as kernels read them, in a mapped file if they are in files.

        A cluster raises a ValueError that says what to do.
        """

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """Yield ``function(part, *args)`` for the chunks in their order.

        A part is valid during its call only. Chunks that are not requested are not
        read.
        """

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """Combine the results of a pass by `fold_in_tree`."""

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """Yield parts of the records from first to last, with their first numbers.

        The sizes of all parts except the last are multiples of ``multiple``. A part is
        valid until the next one.
        """


class _LocalStorage:
    """Records that this process reads, chunk by chunk."""

    is_parallel, is_in_memory, pass_seconds = False, True, 0.0

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """See `RecordStorage.map`."""
        raise NotImplementedError

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """See `RecordStorage.fold`."""
        begin = time.perf_counter()
        result = fold_in_tree(self.map(function, *args), fold)
        self.pass_seconds = time.perf_counter() - begin
        return result


class MemoryStorage(_LocalStorage):
    """Records in memory, in doubles, as kernels see them."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.num_records, self.dim = data.num_records, data.dim
        is_dense = data.dense.shape[0] > 0
        size = chunk_size(self.num_records, self.dim)
        self.chunk = size if is_dense else self.num_records

    @property
    def pass_bytes(self) -> float:
        """See `RecordStorage.pass_bytes`."""
        return float(sum(getattr(array, "nbytes", 0) for array in self.data))

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the records as writable arrays, as joblib maps large ones."""
        self.__dict__.update(state)
        self.data = writable(self.data)

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """Yield one part, see `RecordStorage.windows`."""
        del multiple
        yield first, part_of(self.data, first, last)

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """See `RecordStorage.map`."""
        for start in range(0, self.num_records, self.chunk):
            stop = min(start + self.chunk, self.num_records)
            yield function(part_of(self.data, start, stop), *args)
            pauses.notify_listeners()


class TableStorage(_LocalStorage):
    """Records in tables, which are converted and bounded as they are read.

    Each chunk is converted to doubles, scaled to the bounds if necessary, and completed
    by the column of the intercept.
    """

    def __init__(
        self, features: Table, response: Table, offset: Table | None, rules: RecordRules
    ) -> None:
        self.first = 0  # number of the first record, in messages
        self.tables = (features, response, *(() if offset is None else (offset,)))
        self.rules = rules
        self.num_records, self.dim = features.shape[0], rules.facts.dim
        self.chunk = chunk_size(self.num_records, self.dim)
        self.is_in_memory = isinstance(features, ArrayTable)
        # Files must be the same in every pass as when their bounds were checked.
        self.stamps = [table.stamp() for table in self.tables]

    @property
    def pass_bytes(self) -> float:
        """See `RecordStorage.pass_bytes`."""
        return float(sum(table.num_bytes for table in self.tables))

    @cached_property
    def data(self) -> Data:
        """All records in doubles, in memory or in a mapped file without a name.

        No other process can change that file. Because it is mapped, code that reads few
        records reads few pages.
        """
        if self.is_in_memory:
            return self.read(0, self.num_records)
        parts = self._parts(self._read_part, 0, self.num_records, self.chunk)
        columns = ((part.dense, part.response, part.offset) for _, part in parts)
        rows, response, offset = write_to_files(columns)
        params = self.rules.facts.loss.params
        return make_data(rows, response, offset if offset.size else None, params)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the mapped file, because another process maps its own."""
        left_out = () if self.is_in_memory else ("data",)
        return {k: v for k, v in self.__dict__.items() if k not in left_out}

    def require_same(self) -> None:
        """Raise if a table has changed since the problem was built."""
        for table, stamp in zip(self.tables, self.stamps, strict=True):
            if table.stamp() != stamp:
                raise RuntimeError(CHANGED.format(table.path))

    def read(self, start: int, stop: int) -> Data:
        """Return a range of records in new memory."""
        self.require_same()
        rows = np.empty((stop - start, self.dim))
        return self._read_part([t.reader() for t in self.tables], rows, start, stop)

    def _read_raw(
        self, readers: list[Read], out: Array, start: int, stop: int
    ) -> tuple[Array, Array, Array]:
        """Return rows, responses and offsets in doubles, without bounds.

        The rows are a part of ``out``, which also has the column of the intercept.
        """
        width = self.tables[0].shape[1]
        rows = out[: stop - start, :width]
        rows[...] = readers[0](start, stop).reshape(rows.shape)
        out[: stop - start, width:] = 1.0  # the intercept's column
        columns = [np.array(r(start, stop), np.float64).ravel() for r in readers[1:]]
        return rows, columns[0], columns[1] if len(columns) > 1 else np.empty(0)

    def _read_part(
        self, readers: list[Read], out: Array, start: int, stop: int
    ) -> Data:
        """Return a chunk within its bounds, in the memory of ``out``."""
        rows, response, offset = self._read_raw(readers, out, start, stop)
        self._bound(rows, response, offset, start)
        params = self.rules.facts.loss.params
        return make_data(out[: stop - start], response, offset, params)

    def _bound(self, rows: Array, response: Array, offset: Array, start: int) -> None:
        """Bound records of files again in each pass, as other processes may write.

        A write to a mapped page that is not on disk yet does not change the file's
        stamp, so the stamp alone would not show it.
        """
        paths = [t.path for t in self.tables if not isinstance(t, ArrayTable)]
        if paths:
            try:
                above = self.rules.bound(rows, response, offset, self.first + start)
                self.rules.enforce([above])
            except ValueError:  # the records were within their bounds before
                raise RuntimeError(CHANGED.format(paths[0])) from None
        elif self.rules.clip_rows:
            self.rules.clip(rows, response)

    def _parts(
        self, make: Callable[..., Result], first: int, last: int, size: int
    ) -> Iterator[tuple[int, Result]]:
        """Yield number and part of every chunk, while a thread reads the next one."""
        self.require_same()
        readers = [table.reader() for table in self.tables]
        # One buffer is in use while the other is filled.
        buffers = [np.empty((size, self.dim)) for _ in range(2)]
        starts = range(first, last, size)

        def read(i: int) -> Result:
            stop = min(starts[i] + size, last)
            try:
                return make(readers, buffers[i % 2], starts[i], stop)
            except Exception:
                # A file that was truncated or overwritten gives any error.
                self.require_same()
                raise

        with ThreadPoolExecutor(1) as reader:
            with pauses.delay_interrupts():
                ahead = reader.submit(read, 0)
            for i, start in enumerate(starts):
                with pauses.delay_interrupts():
                    part = ahead.result()
                    if i + 1 < len(starts):
                        ahead = reader.submit(read, i + 1)
                yield start, part
                pauses.notify_listeners()
        self.require_same()

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """See `RecordStorage.map`."""
        for _, part in self._parts(self._read_part, 0, self.num_records, self.chunk):
            yield function(part, *args)

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """See `RecordStorage.windows`."""
        size = multiple * max(1, self.chunk // multiple)
        return self._parts(self._read_part, first, last, size)

    def check(self) -> Iterator[RowsAbove]:
        """Yield the result of `RecordRules.check` for each chunk."""
        for start, raw in self._parts(self._read_raw, 0, self.num_records, self.chunk):
            yield self.rules.check(*raw, self.first + start)


# A string, because `ArrayLike | "CSR"` raises in newer versions of NumPy.
Features: TypeAlias = "ArrayLike | CSR | str | os.PathLike[str]"
Response = ArrayLike | str


def store_here(
    features: Any, response: Any, offset: Any, rules: RecordRules
) -> RecordStorage:
    """Store records in this process, with their bounds enforced.

    ``features`` come from `dpsample.problem.problem.as_records`.
    """
    count = features.shape[0]
    columns = [_as_table("response", response, count)]
    if offset is not None:
        columns.append(_as_table("offset", offset, count))
    # Many rows of float32 stay as they are, and are converted chunk by chunk.
    is_single = isinstance(features, np.ndarray) and features.dtype == np.float32
    if isinstance(features, ArrayTable | FileTable | ParquetTable) or (
        is_single and count > chunk_size(count, rules.facts.dim)
    ):
        if is_single:
            features = ArrayTable(np.array(features, order="C"))
        elif not rules.facts.loss.has_margin:
            check.fail("features", "in memory for a record gradient", "a file")
        offsets = columns[1] if offset is not None else None
        stored = TableStorage(features, columns[0], offsets, rules)
        rules.enforce(stored.check())
        return stored
    y, *rest = (np.array(c.reader()(0, count), np.float64).ravel() for c in columns)
    shift = rest[0] if rest else np.empty(0)
    rows: Any
    if not isinstance(features, np.ndarray):
        rules.enforce([rules.check(features, y, shift, 0)])
        rows = append_ones(features) if rules.facts.intercept else features
    else:
        width = features.shape[1]
        rows = np.empty((count, width + rules.facts.intercept))
        rows[:, width:] = 1.0
        rules.enforce(_copy_and_check(features, rows[:, :width], y, shift, rules))
    params = rules.facts.loss.params
    return MemoryStorage(make_data(rows, y, shift if rest else None, params))


def _copy_and_check(
    features: NDArray[Any], out: Array, y: Array, shift: Array, rules: RecordRules
) -> Iterator[RowsAbove]:
    """Copy records, and yield the result of a check of each chunk of the copy."""
    size = chunk_size(len(features), rules.facts.dim)
    for start in range(0, len(features), size):
        part = slice(start, start + size)
        check.write_floats("features", features[part], out[part])
        yield rules.check(out[part], y[part], shift[part], start)


def _as_table(name: str, value: object, count: int) -> Table:
    """Return a column of numbers as a table."""
    if isinstance(value, ParquetTable):
        return value
    if isinstance(value, np.memmap) and FileTable.can_read(value):
        if value.shape != (count,):
            check.fail(name, f"of shape ({count},)", f"shape {value.shape}")
        return FileTable.from_memmap(value)
    return ArrayTable(check.array(name, value, shape=(count,)))


def append_ones(features: CSR) -> CSR:
    """Append the column of ones for the intercept."""
    from scipy import sparse

    ones = sparse.csr_matrix(np.ones((features.shape[0], 1)))
    rows: CSR = sparse.hstack([features, ones], format="csr")
    return rows
