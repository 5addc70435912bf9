"""Tables that are read in parts, from arrays, files of numbers and Parquet files.

A table holds the features, the responses or the offsets of all records. Passes read
files without mapping them, because mapped pages would count as this process's memory.
Random records are read from a mapped copy, of which they need few pages.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array
from dpsample.problem.records import block_size

# Number of features of a chunk, 4 MB in doubles. A chunk is what one call of a pass
# reads, and all backends have the same chunks.
CHUNK_NUMBERS = 2**19


def is_large(rows: NDArray[Any]) -> bool:
    """Return whether rows, or a column, are more than one chunk."""
    dim = rows.shape[1] if rows.ndim > 1 else 1
    return rows.size > 0 and rows.shape[0] > chunk_size(rows.shape[0], dim)


def chunk_size(num_records: int, dim: int) -> int:
    """Return the number of records of a chunk, a multiple of the block if possible."""
    block = block_size(dim)
    return min(num_records, block * max(1, CHUNK_NUMBERS // (dim * block)))


Read = Callable[[int, int], NDArray[Any]]


class Table(Protocol):
    """Rows or a column of numbers, of which any range can be read."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def num_bytes(self) -> int:
        """Bytes to be read."""

    def reader(self) -> Read:
        """Return a function of (start, stop) to these rows, fast in ascending order."""

    def stamp(self) -> object:
        """Return a value that changes if the table does."""


@dataclass(frozen=True, eq=False)
class ArrayTable:
    """Array in memory, to which no other code writes."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """See `Table.shape`."""
        return len(self.array), self.array.shape[1] if self.array.ndim > 1 else 1

    @property
    def num_bytes(self) -> int:
        """See `Table.num_bytes`."""
        return self.array.nbytes

    def reader(self) -> Read:
        """See `Table.reader`."""
        return lambda start, stop: self.array[start:stop]

    def stamp(self) -> None:
        """See `Table.stamp`."""


def file_stamp(path: str) -> tuple[int, ...] | None:
    """Return identity, size and time of change of a file, None if it is gone."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, eq=False)
class FileTable:
    """Numbers in a file, row by row, read without mapping it."""

    path: str
    dtype: np.dtype[Any]
    offset: int  # bytes before the first number
    shape: tuple[int, int]

    @staticmethod
    def can_read(mapped: np.memmap[Any, Any]) -> bool:
        """Return whether a mapped array is large and has the layout of its file."""
        is_own = mapped.flags.c_contiguous and mapped.mode != "c"
        is_file = mapped.filename is not None and mapped.dtype.kind in "biuf"
        return is_own and is_file and mapped.ndim in (1, 2) and is_large(mapped)

    @classmethod
    def from_memmap(cls, mapped: np.memmap[Any, Any]) -> FileTable:
        """Return the table of a mapped file, after changes are written to it."""
        if mapped.mode != "r":
            mapped.flush()
        mapping: Any = mapped._mmap  # type: ignore[attr-defined]
        # The array may begin anywhere in the mapped pages, for example after a slice.
        first = np.frombuffer(mapping, np.uint8).ctypes.data
        page = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
        return cls(
            path=str(mapped.filename),
            dtype=mapped.dtype,
            offset=page + mapped.ctypes.data - first,
            shape=(len(mapped), mapped.shape[1] if mapped.ndim > 1 else 1),
        )

    @property
    def num_bytes(self) -> int:
        """See `Table.num_bytes`."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def reader(self) -> Read:
        """See `Table.reader`."""
        width = self.shape[1]
        size = width * self.dtype.itemsize

        def read(start: int, stop: int) -> NDArray[Any]:
            count, offset = (stop - start) * width, self.offset + start * size
            numbers = np.fromfile(self.path, self.dtype, count, offset=offset)
            # Kernels would read beyond the end of a shorter array.
            if len(numbers) < count:
                raise OSError(f"The file {self.path} is shorter than the array.")
            return numbers

        return read

    def stamp(self) -> object:
        """See `Table.stamp`."""
        return file_stamp(self.path)


def write_to_files(parts: Iterable[Sequence[Array]]) -> list[Array]:
    """Write columns that come in parts to files, and return them as mapped arrays.

    The files have no name, and are deleted with the arrays. They are in the directory
    of the environment variable TMPDIR.
    """
    files: list[Any] = []
    shapes: list[list[int]] = []
    with ExitStack() as stack:
        for part in parts:
            if not files:
                files = [stack.enter_context(TemporaryFile()) for _ in part]
                shapes = [[0, *column.shape[1:]] for column in part]
            for file, shape, column in zip(files, shapes, part, strict=True):
                column.tofile(file)
                shape[0] += len(column)
        return [_map_file(*pair) for pair in zip(files, shapes, strict=True)]


def _map_file(file: Any, shape: list[int]) -> Array:
    """Map a file as an array of the type that kernels take."""
    if not math.prod(shape):
        return np.empty(shape)
    file.flush()
    mapped = np.memmap(file, np.float64, "r+", shape=tuple(shape))
    # Without this advice the system would also read the pages around each record.
    if hasattr(mmap, "MADV_RANDOM"):
        mapping: Any = mapped._mmap  # type: ignore[attr-defined]
        mapping.madvise(mmap.MADV_RANDOM)
    return mapped.view(np.ndarray)


@dataclass(frozen=True, eq=False)
class ParquetTable:
    """Columns of a Parquet file."""

    path: str
    names: tuple[str, ...]
    num_records: int

    @property
    def shape(self) -> tuple[int, int]:
        """See `Table.shape`."""
        return self.num_records, len(self.names)

    @property
    def num_bytes(self) -> int:
        """Bytes of the decoded columns."""
        return self.shape[0] * self.shape[1] * 8

    def reader(self) -> Read:
        """See `Table.reader`. Row groups are decoded in batches, each one once.

        A start that does not continue the last range begins again at its row group.
        """
        from pyarrow import parquet

        file = parquet.ParquetFile(self.path, memory_map=False)
        metadata = file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        batches: Iterator[NDArray[Any]] = iter(())
        # Rows from ``position`` on that are decoded, but not returned yet.
        leftover, position = np.empty((0, len(self.names))), -1

        def decode_from(group: int) -> Iterator[NDArray[Any]]:
            groups = list(range(group, len(ends)))
            for batch in file.iter_batches(
                2**14,  # records that are decoded at once
                row_groups=groups,
                columns=list(self.names),
                use_threads=False,
            ):
                columns = {c: batch.column(c) for c in self.names}
                yield np.stack(
                    [
                        np.asarray(c.to_numpy(zero_copy_only=False), dtype=np.float64)
                        for c in columns.values()
                    ],
                    axis=1,
                )

        def read(start: int, stop: int) -> NDArray[Any]:
            nonlocal batches, leftover, position
            if start != position:
                group = int(np.searchsorted(ends, start, side="right"))
                batches = decode_from(group)
                leftover, position = leftover[:0], int(ends[group] - sizes[group])
            parts, count = [leftover], len(leftover)
            while count < stop - position:
                parts.append(next(batches))
                count += len(parts[-1])
            buffered = np.concatenate(parts)
            selected, leftover = (
                buffered[start - position : stop - position],
                buffered[stop - position :],
            )
            position = stop
            return selected

        return read

    def stamp(self) -> object:
        """See `Table.stamp`."""
        return file_stamp(self.path)


def _index_columns(schema: Any) -> set[str]:
    """Return the columns of a frame's index, which are not features.

    Pandas stores the index as columns, for example the numbers of filtered records.
    """
    try:
        index_columns = schema.pandas_metadata["index_columns"]
        return {name for name in index_columns if isinstance(name, str)}
    except (LookupError, TypeError, ValueError, RecursionError):
        return set()  # without metadata, or with malformed JSON


def open_parquet(
    path: str | os.PathLike[str], response: object, offset: object
) -> tuple[Any, list[str], Any, Any]:
    """Return features, their names, response and offset of a Parquet file.

    They are arrays if the features fit into one chunk, otherwise tables.
    """
    try:
        from pyarrow import ArrowInvalid, parquet, types
    except ImportError as error:
        raise check.missing_library("A Parquet file", "pyarrow", "studies") from error
    file = os.path.abspath(check.path("features", path, exists=True))
    if file.endswith((".npy", ".npz")):
        remedy = (
            'Pass np.load(path, mmap_mode="r") of a .npy file, or, of sparse records, '
            "scipy.sparse.load_npz(path)."
        )
        check.fail("features", "the path of a Parquet file", repr(path), remedy)
    try:
        schema, metadata = parquet.read_schema(file), parquet.read_metadata(file)
    except ArrowInvalid as error:
        remedy = "dpsample.tables reads text. " + str(error)
        check.fail("features", "the path of a Parquet file", repr(path), remedy)
    count = metadata.num_rows
    named = {name for name in (response, offset) if isinstance(name, str)}
    # A column of the index is used if the caller names it as response or offset.
    index = _index_columns(schema) - named
    usable = [name for name in schema.names if name not in index]
    names, others = columns_module.split_features(usable, response, offset)
    if not (count and names):
        got = f"shape ({count}, {len(names)})"
        check.fail("features", "non-empty", got)
    for name in (*names, *others):
        kind = schema.field(name).type
        kinds = types.is_integer, types.is_floating, types.is_boolean
        if not any(is_kind(kind) for is_kind in kinds):
            remedy = "Encode categories first: dpsample.tables reads tables with text."
            check.fail(f"column {name!r} of features", "of numbers", str(kind), remedy)

    def table(columns: list[str]) -> Any:
        columns_table = ParquetTable(file, tuple(columns), count)
        # All columns are tables or none, so that all are read in the same chunks.
        rows = np.broadcast_to(0.0, (count, len(names)))
        if is_large(rows):
            return columns_table
        values = columns_table.reader()(0, count)
        return values[:, 0] if columns is not names else values

    columns = [
        table([name]) if isinstance(name, str) else name for name in (response, offset)
    ]
    return table(names), names, columns[0], columns[1]
