"""Records of a Dask array or DataFrame, which stay on the cluster.

A pass reads all records once. A chunk is a number of rows that depends on the shape of
the data only, and a partition is `GROUP` chunks. A pass is one task for each partition,
and a tree of tasks that combine the results. So no number depends on how many workers
there are, on which of them runs a task, or on whether a worker is lost and replaced.
Without a cluster Dask runs the tasks in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.columns import split_features
from dpsample.problem.records import Data
from dpsample.problem.sources import ArrayTable, chunk_size
from dpsample.problem.storage import (
    ENCODE,
    GROUP,
    OR_FILE,
    Fold,
    RecordRules,
    Result,
    RowsAbove,
    TableStorage,
    fold_in_tree,
)


def _library(name: str) -> Any:
    """Import a library where it is needed. It has no types."""
    return import_module(name)


def is_dask(value: object) -> bool:
    """Return whether a value is a collection of Dask."""
    return type(value).__module__.startswith("dask.")


def split_columns(
    features: Any, response: Any, offset: Any
) -> tuple[Any, list[str] | None, Any, Any]:
    """Return features as a Dask array, their names if known, response and offset.

    Response and offset may be arrays, or names of columns of a DataFrame.
    """
    names = None
    if hasattr(features, "columns"):
        # Names may be numbers. All are replaced by strings.
        columns = [str(column) for column in features.columns]
        features = features.rename(
            columns=dict(zip(features.columns, columns, strict=True))
        )
        names, _ = split_features(columns, response, offset)
        response, offset = (
            features[column] if isinstance(column, str) else column
            for column in (response, offset)
        )
        features = features[names]
    if features.ndim != 2:
        check.fail("features", "of shape (any, any)", f"{features.ndim} axes")
    return _with_known_sizes(features), names, response, offset


def _with_known_sizes(value: Any) -> Any:
    """Return an array of Dask whose chunks have known sizes."""
    if hasattr(value, "to_dask_array"):
        types = list(value.dtypes) if value.ndim == 2 else [value.dtype]
        kinds = {getattr(dtype, "kind", "O") for dtype in types}
        is_nullable = not all(isinstance(dtype, np.dtype) for dtype in types)
        has_bools_and_numbers = "b" in kinds and len(kinds) > 1
        if kinds <= set("biuf") and (is_nullable or has_bools_and_numbers):
            # These columns would become an array of objects.
            value = value.astype("float64")
        # The number of rows of a DataFrame's partition is only known after it is read.
        return value.to_dask_array(lengths=True)
    return value.compute_chunk_sizes() if np.isnan(value.shape).any() else value


class ClusterStorage:
    """Records in partitions on a cluster.

    The methods are those of `dpsample.problem.storage.RecordStorage`.
    """

    is_parallel = True
    is_in_memory = False
    pass_seconds = 0.0  # duration of the last fold, 0 before the first one

    def __init__(
        self, features: Any, response: Any, offset: Any, rules: RecordRules
    ) -> None:
        self.num_records, self.dim = int(features.shape[0]), rules.facts.dim
        self.rules, self.chunk = rules, chunk_size(features.shape[0], self.dim)
        # The boundaries of partitions are boundaries of chunks, too.
        self.rows_per_partition = min(GROUP * self.chunk, self.num_records)
        # The order is that of the arguments of `_store_partition`.
        named = {"features": features, "response": response}
        named |= {} if offset is None else {"offset": offset}
        self.columns = [self._cut(name, value) for name, value in named.items()]

    def _cut(self, name: str, value: Any) -> Any:
        """Return an array of Dask in partitions of `GROUP` chunks."""
        if not is_dask(value):  # response or offset, because the features are Dask's
            array = check.array(name, value, shape=(self.num_records,))
            value = _library("dask.array").from_array(array, self.rows_per_partition)
        value = _with_known_sizes(value)
        width = value.shape[1:2] if name == "features" else ()
        shape = (self.num_records, *width)
        if value.shape != shape:
            check.fail(name, f"of shape {shape}", f"shape {value.shape}")
        if value.dtype.kind not in "biuf":
            check.fail(name, "an array of numbers", f"dtype {value.dtype}", ENCODE)
        return value.rechunk(
            {0: self.rows_per_partition, 1: -1}
            if value.ndim > 1
            else self.rows_per_partition
        )

    @property
    def pass_bytes(self) -> float:
        """See `RecordStorage.pass_bytes`."""
        return float(sum(column.nbytes for column in self.columns))

    @property
    def data(self) -> Data:
        """Raise, because the records are on the cluster."""
        condition = "in memory or in a file here"
        check.fail("records", condition, "records on a cluster", OR_FILE)

    def _tasks(self, *work: object) -> list[Any]:
        """Return one task for each partition.

        ``work`` is the kind of task, "map", "fold" or "check", the fold or None, the
        function of a chunk, and its further arguments (see `_on_partition`).
        """
        parts = zip(*(c.to_delayed().ravel() for c in self.columns), strict=True)
        # All are in one pickle, so that an object that occurs in several arguments is
        # one object on the worker, too.
        shared = _library("cloudpickle").dumps((self.rules, *work))
        run = _library("dask").delayed(_on_partition, pure=False, traverse=False)
        starts = range(0, self.num_records, self.rows_per_partition)
        return [
            run(
                shared,
                start,
                min(self.rows_per_partition, self.num_records - start),
                *part,
            )
            for start, part in zip(starts, parts, strict=True)
        ]

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """See `RecordStorage.map`. All chunks are processed before the first result."""
        tasks = self._tasks("map", None, function, *args)
        for results in _library("dask").compute(*tasks):
            yield from results

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """See `RecordStorage.fold`. The tree consists of tasks."""
        tasks = self._tasks("fold", fold, function, *args)
        begin = time.perf_counter()
        # The tree is built of tasks, so that workers combine the results of subtrees.
        lazy_fold = _library("dask").delayed(fold, pure=False)
        result: Result = fold_in_tree(tasks, lazy_fold).compute()
        self.pass_seconds = time.perf_counter() - begin
        return result

    def check(self) -> Iterator[RowsAbove]:
        """Yield the result of `RecordRules.check` for each chunk."""
        for results in _library("dask").compute(*self._tasks("check", None, None)):
            yield from results

    def windows(
        self, first: int, last: int, multiple: int
    ) -> Iterator[tuple[int, Data]]:
        """See `RecordStorage.windows`. Each part is fetched into this process."""
        size = multiple * max(1, self.rows_per_partition // multiple)
        for start in range(first, last, size):
            stop = min(start + size, last)
            columns = [column[start:stop] for column in self.columns]
            part = _library("dask").compute(*columns)
            partition = _store_partition(self.rules, start, stop - start, *part)
            yield start, partition.read(0, stop - start)


class _Partition(TableStorage):
    """Records of one partition on its worker, computed again for every pass."""

    def _bound(self, rows: Array, response: Array, offset: Array, start: int) -> None:
        """Scale the rows of a chunk to their bounds, and raise if some stay above them.

        Every pass does so, because the source of the collection may have changed.
        """
        above = self.rules.bound(rows, response, offset, self.first + start)
        self.rules.enforce([above])


def _store_partition(
    rules: RecordRules,
    first: int,
    count: int,
    rows: object,
    response: object,
    offset: object = None,
) -> _Partition:
    """Return the storage of ``count`` records from number ``first`` on.

    Raise unless they have the declared shape.
    """
    named = {"features": rows, "response": response, "offset": offset}
    width = (rules.facts.dim - int(rules.facts.intercept),)
    tables = []
    for name, value in named.items():
        if value is not None:
            numbers = check.real_array(name, value)
            shape = (count, *(width if name == "features" else ()))
            if numbers.shape != shape:
                check.fail(name, f"of shape {shape} in every pass", numbers.shape)
            tables.append(ArrayTable(numbers))
    table, responses, *offsets = tables
    partition = _Partition(table, responses, offsets[0] if offsets else None, rules)
    partition.first = first  # for messages
    return partition


def _on_partition(shared: bytes, first: int, count: int, *columns: object) -> Any:
    """Run one task with one thread of BLAS, because more would change the last bits."""
    rules, kind, fold, function, *args = _library("cloudpickle").loads(shared)
    storage = _store_partition(rules, first, count, *columns)
    with pauses.single_threaded_blas():
        if kind == "check":
            return list(storage.check())
        results = storage.map(function, *args)
        return fold_in_tree(results, fold) if kind == "fold" else list(results)
