"""Homes of records: this process's memory, files, a Dask cluster.

Work on records is a pass: a function of one chunk after the other. Chunks are cut by
the number of records and of coefficients alone, and what they return is combined in one
binary tree: a number has the same bits whatever the storage and the number of workers.
Records of one chunk are in memory, and summed as ever.

No path of a tree over m chunks has more than m - 1 additions, nor more than 2 log2 m: a
sum so errs by no more than the sum in order may, which is what proofs charge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.sparse import CSR, Rows
from dpsample.domains import SchattenBall
from dpsample.losses import Custom, RecordGradient
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

HUGE = 1e100  # entries above every declared bound, whose norms might overflow
GROUP = 8  # chunks of a task on a cluster, a power of 2: its sums are whole subtrees
IN_MEMORY = (
    "Pass np.array(features) if memory holds them, or use what works by passes: "
    "release of smooth losses, NoisyGD, objective perturbation."
)
OR_FILE = f"Pass a numpy.memmap or a Parquet file. {IN_MEMORY}"
ENCODE = "Encode categories and drop or fill missing values first."
CHANGED = (
    "The file {} has changed since the Problem was built, whose bounds hold of what it "
    "held then. Build the Problem anew."
)
Above = tuple[int, float, int]  # first row above its bound, its norm, how many are
NONE_ABOVE = (-1, 0.0, 0)
Result = TypeVar("Result")
Fold = Callable[[Any, Any], Any]


def add_entries(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the entries."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def fold_in_tree(parts: Iterable[Result], fold: Fold) -> Result:
    """Combine neighbors, in a binary tree that their number alone decides."""
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
    """What is asked of records, and done to them as they are read."""

    facts: PublicFacts
    clip_rows: bool
    response_limit: float | None

    def check(self, rows: Rows, response: Array, offset: Array, first: int) -> Above:
        """Bound records, and compare a user's loss with its declaration at them."""
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

    def bound(self, rows: Rows, response: Array, offset: Array, first: int) -> Above:
        """Refuse what no clipping mends; the first row above its bound, and how many.

        ``first`` is the number of the first record. What may be scaled is, in place.
        """
        facts = self.facts
        if isinstance(rows, np.ndarray):
            check.finite("features", rows, first=first, remedy=ENCODE)
        check.finite("response", response, first=first)
        check.finite("offset", offset, first=first)
        sizes, above = self.clip(rows, response)
        if above.size and not self.clip_rows:
            return first + int(above[0]), float(sizes[above[0]]), above.size
        facts.loss.check_response(response, self.response_limit, first=first)
        for i in np.flatnonzero(np.abs(offset) > facts.offset_bound)[:1]:
            bound = f"within offset_bound = {check.describe(facts.offset_bound)}"
            bound += " in absolute value"
            remedy = "Declare the public bound of the offsets."
            got = f"{check.describe(offset[i])} in record {first + i}"
            check.fail("offset", bound, got, remedy)
        return NONE_ABOVE

    def clip(self, rows: Rows, response: Array) -> tuple[Array, NDArray[np.intp]]:
        """Scale in place what is above its bound, if that is allowed; rows that are.

        Returns the rows' norms before, and which of them are above the bound.
        """
        facts, limit = self.facts, self.response_limit
        if self.clip_rows and limit is not None and not facts.loss.is_classification:
            np.clip(response, -limit, limit, out=response)
        if self._are_short(rows):
            return np.empty(0), np.empty(0, np.intp)
        largest = np.asarray(norms.norm(rows, np.inf))
        is_huge = bool((largest > HUGE).any())
        if is_huge and self.clip_rows:
            scale_rows(rows, np.minimum(1.0, HUGE / np.maximum(largest, 1.0)))
        is_refused = is_huge and not self.clip_rows
        sizes = largest if is_refused else row_norms(rows, facts)
        above = np.flatnonzero(sizes > facts.row_bound * (1.0 + NORM_TOLERANCE))
        if self.clip_rows:
            if above.size:  # no row within the slack: what is next to it shows in none
                factors = np.ones(len(sizes))
                factors[above] = facts.row_bound / sizes[above]
                scale_rows(rows, factors)
        return sizes, above

    def _are_short(self, rows: Rows) -> bool:
        """Whether sums of squares say that no row is long: what all passes ask first.

        The l_p norm, and Schatten's, is at most n^max(1/p - 1/2, 0) times the l2 norm.
        Roundings of up to 4000 terms are within half of the slack.
        """
        if not isinstance(rows, np.ndarray) or rows.shape[1] > 4000:
            return False
        facts, width = self.facts, rows.shape[1]
        if isinstance(facts.domain, SchattenBall):
            width = min(facts.domain.shape)
        factor = width ** max(1.0 / facts.row_norm - 0.5, 0.0)
        limit = (facts.row_bound / factor * (1.0 + 0.5 * NORM_TOLERANCE)) ** 2
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
        return bool((squares <= limit).all())

    def enforce(self, checked: Iterable[Above]) -> None:
        """Refuse rows above their bound, by what `check` said of all chunks."""

        def worst(left: Above, right: Above) -> Above:
            first = right if left[0] < 0 else left
            return first[0], first[1], left[2] + right[2]

        position, size, count = fold_in_tree(checked, worst)
        if count:
            norm, bound = self.facts.row_norm, self.facts.row_bound
            limit = f"row_bound = {check.describe(bound)}"
            condition = f"rows of {norm:g}-norm at most {limit}"
            record = f"record {position} ({count} records are above)"
            got = f"{check.describe(size)} in {record}"
            remedy = "Declare the public bound that holds, or pass clip_rows=True."
            check.fail("features", condition, got, remedy)


def row_norms(features: Rows, facts: PublicFacts) -> Array:
    """Norm of each row, in the declared norm."""
    if isinstance(facts.domain, SchattenBall) and facts.row_norm != 2.0:
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return np.asarray(norms.schatten(dense, facts.row_norm, facts.domain.shape))
    return np.asarray(norms.norm(features, facts.row_norm))


def scale_rows(features: Rows, factors: Array) -> None:
    """Multiply each row by its factor, in place."""
    if not isinstance(features, np.ndarray):
        features.data *= np.repeat(factors, np.diff(features.indptr))
    else:
        features *= factors[:, None]


class RecordStorage(Protocol):
    """Where records are, and passes over them."""

    num_records: int
    dim: int
    is_parallel: bool  # whether a part may be read before those in front of it
    is_in_memory: bool  # whether ``data`` are where every pass is cheap

    @property
    def pass_seconds(self) -> float:
        """Seconds that the last full pass took."""

    @property
    def pass_bytes(self) -> float:
        """Bytes that a pass reads, by sizes and types alone."""

    @property
    def data(self) -> Data:
        """All records as kernels see them, those of files in a mapped file.

        A cluster raises a ValueError that says what to do.
        """

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """Results of ``function(part, *args)`` of the chunks, in their order.

        A part is valid during its call only. Who stops early saves the rest.
        """

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """Results of a pass, `fold_in_tree`."""

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """Yield records from first to last, in parts of a multiple, but the last.

        With the number of the part's first record; a part is valid until the next.
        """


class _Local:
    """Passes in this process."""

    is_parallel, is_in_memory, pass_seconds = False, True, 0.0

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """As `RecordStorage.map`."""
        raise NotImplementedError

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """As `RecordStorage.fold`."""
        begin = time.perf_counter()
        result = fold_in_tree(self.map(function, *args), fold)
        self.pass_seconds = time.perf_counter() - begin
        return result


class MemoryStorage(_Local):
    """Records in memory, in doubles, as kernels see them."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.num_records, self.dim = data.num_records, data.dim
        is_dense = data.dense.shape[0] > 0
        size = chunk_size(self.num_records, self.dim)
        self.chunk = size if is_dense else self.num_records

    @property
    def pass_bytes(self) -> float:
        """As `RecordStorage.pass_bytes`."""
        return float(sum(getattr(array, "nbytes", 0) for array in self.data))

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take the records over; joblib hands large ones to workers read-only."""
        self.__dict__.update(state)
        self.data = writable(self.data)

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """As `RecordStorage.windows`; it is one part."""
        del multiple
        yield first, part_of(self.data, first, last)

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """As `RecordStorage.map`."""
        for start in range(0, self.num_records, self.chunk):
            stop = min(start + self.chunk, self.num_records)
            yield function(part_of(self.data, start, stop), *args)
            pauses.notify_listeners()


class TableStorage(_Local):
    """Records that are made into doubles, bounded and completed as they are read."""

    def __init__(
        self, features: Table, response: Table, offset: Table | None, rules: RecordRules
    ) -> None:
        self.first = 0  # number of the first record
        self.tables = (features, response, *(() if offset is None else (offset,)))
        self.rules = rules
        self.num_records, self.dim = features.shape[0], rules.facts.dim
        self.chunk = chunk_size(self.num_records, self.dim)
        self.is_in_memory = isinstance(features, ArrayTable)
        self.stamps = [table.stamp() for table in self.tables]

    @property
    def pass_bytes(self) -> float:
        """As `RecordStorage.pass_bytes`."""
        return float(sum(table.num_bytes for table in self.tables))

    @cached_property
    def data(self) -> Data:
        """All records in doubles: in memory, or in a file that nobody else can change.

        That file is mapped, so that who reads few records reads few pages.
        """
        if self.is_in_memory:
            return self.read(0, self.num_records)
        parts = self._parts(self._part, 0, self.num_records, self.chunk)
        columns = ((part.dense, part.response, part.offset) for _, part in parts)
        rows, response, offset = write_to_files(columns)
        params = self.rules.facts.loss.params
        return make_data(rows, response, offset if offset.size else None, params)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the mapped file: another process makes its own."""
        left_out = () if self.is_in_memory else ("data",)
        return {k: v for k, v in self.__dict__.items() if k not in left_out}

    def require_same(self) -> None:
        """Refuse tables that have changed."""
        for table, stamp in zip(self.tables, self.stamps, strict=True):
            if table.stamp() != stamp:
                raise RuntimeError(CHANGED.format(table.path))

    def read(self, start: int, stop: int) -> Data:
        """Return some records, in memory of their own."""
        self.require_same()
        rows = np.empty((stop - start, self.dim))
        return self._part([t.reader() for t in self.tables], rows, start, stop)

    def _raw(
        self, readers: list[Read], out: Array, start: int, stop: int
    ) -> tuple[Array, Array, Array]:
        """Rows, responses and offsets as they are, in doubles."""
        width = self.tables[0].shape[1]
        rows = out[: stop - start, :width]
        rows[...] = readers[0](start, stop).reshape(rows.shape)
        out[: stop - start, width:] = 1.0  # the intercept's column
        columns = [np.array(r(start, stop), np.float64).ravel() for r in readers[1:]]
        return rows, columns[0], columns[1] if len(columns) > 1 else np.empty(0)

    def _part(self, readers: list[Read], out: Array, start: int, stop: int) -> Data:
        rows, response, offset = self._raw(readers, out, start, stop)
        self._bound(rows, response, offset, start)
        params = self.rules.facts.loss.params
        return make_data(out[: stop - start], response, offset, params)

    def _bound(self, rows: Array, response: Array, offset: Array, start: int) -> None:
        """Bound records of files as if `check` had not: others may map them and write.

        A write to a page that waits for the disk leaves no trace in its file's stamp.
        """
        paths = [t.path for t in self.tables if not isinstance(t, ArrayTable)]
        if paths:
            try:
                above = self.rules.bound(rows, response, offset, self.first + start)
                self.rules.enforce([above])
            except ValueError:  # of other records than those that were built from
                raise RuntimeError(CHANGED.format(paths[0])) from None
        elif self.rules.clip_rows:
            self.rules.clip(rows, response)

    def _parts(
        self, make: Callable[..., Result], first: int, last: int, size: int
    ) -> Iterator[tuple[int, Result]]:
        """First record and part of every chunk; the next one is read meanwhile."""
        self.require_same()
        readers = [table.reader() for table in self.tables]
        buffers = [np.empty((size, self.dim)) for _ in range(2)]
        starts = range(first, last, size)

        def read(i: int) -> Result:
            stop = min(starts[i] + size, last)
            try:
                return make(readers, buffers[i % 2], starts[i], stop)
            except Exception:  # of a file that was cut off or written over
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
        """As `RecordStorage.map`."""
        for _, part in self._parts(self._part, 0, self.num_records, self.chunk):
            yield function(part, *args)

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """As `RecordStorage.windows`."""
        size = multiple * max(1, self.chunk // multiple)
        return self._parts(self._part, first, last, size)

    def check(self) -> Iterator[Above]:
        """Say what `RecordRules.check` does, of each chunk."""
        for start, raw in self._parts(self._raw, 0, self.num_records, self.chunk):
            yield self.rules.check(*raw, self.first + start)


# In quotes, as that of CSR: newer NumPys have an `ArrayLike` that joins no string.
Features: TypeAlias = "ArrayLike | CSR | str | os.PathLike[str]"
Response = ArrayLike | str


def store_here(
    features: Any, response: Any, offset: Any, rules: RecordRules
) -> RecordStorage:
    """Store records in this process, with their bounds enforced.

    ``given`` are features that `dpsample.problem.problem.as_records` has looked at.
    """
    count = features.shape[0]
    columns = [_column("response", response, count)]
    if offset is not None:
        columns.append(_column("offset", offset, count))
    is_single = isinstance(features, np.ndarray) and features.dtype == np.float32
    if isinstance(features, ArrayTable | FileTable | ParquetTable) or (
        is_single and count > chunk_size(count, rules.facts.dim)
    ):
        if is_single:
            features = ArrayTable(np.array(features, order="C"))
        elif isinstance(rules.facts.loss, RecordGradient):
            check.fail("features", "in memory for a record gradient", "a file")
        stored = TableStorage(features, columns[0], (*columns, None)[1], rules)
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
        rules.enforce(_written(features, rows[:, :width], y, shift, rules))
    params = rules.facts.loss.params
    return MemoryStorage(make_data(rows, y, shift if rest else None, params))


def _written(
    features: NDArray[Any], out: Array, y: Array, shift: Array, rules: RecordRules
) -> Iterator[Above]:
    """Copy records and check the copy, chunk by chunk."""
    size = chunk_size(len(features), rules.facts.dim)
    for start in range(0, len(features), size):
        part = slice(start, start + size)
        check.write_floats("features", features[part], out[part])
        yield rules.check(out[part], y[part], shift[part], start)


def _column(name: str, value: object, count: int) -> Table:
    """Column of numbers as a table."""
    if isinstance(value, ParquetTable):
        return value
    if isinstance(value, np.memmap) and FileTable.can_read(value):
        if value.shape != (count,):
            check.fail(name, f"of shape ({count},)", f"shape {value.shape}")
        return FileTable.from_memmap(value)
    return ArrayTable(check.array(name, value, shape=(count,)))


def append_ones(features: CSR) -> CSR:
    """Append the intercept's column."""
    from scipy import sparse

    ones = sparse.csr_matrix(np.ones((features.shape[0], 1)))
    rows: CSR = sparse.hstack([features, ones], format="csr")
    return rows
