# mypy: allow-untyped-defs
"""Columns of a chunk of records: margins, curvatures and how far margins may move.

All follow from a few vectors and matrices, so that no pass needs what another one
found for each record: a file of any length takes the memory of a chunk. Where all
records are one chunk, its columns are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dpsample.core import jit
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.problem.records import Data, make_data, writable
from dpsample.problem.storage import Fold, MemoryStorage, Result
from dpsample.samplers.localized.mode import Mode
from dpsample.targets.gibbs import (
    MARGIN_SLACK,
    DomainGeometry,
    Gibbs,
    as_kernel_array,
    as_rows,
    margin_intervals,
)

WIDENED = 1.0 + 1e-9  # outward rounding of half-widths and radii
TINY = 1e-150  # squares of smaller entries are lost
BLOCK = 8192  # records of a block of products


class Half(NamedTuple):
    """Half-widths ||a_i back|| factor of what margins move, at most."""

    back: Array  # (dim, m)
    factor: float


class Weights(NamedTuple):
    """One weight for each record: phi'' near the mode, or a curvature on a region."""

    order: str  # "none", "mode", "secant" or "bregman"
    halves: tuple[Half, ...] = ()
    scale: float = 1.0


class Scene(NamedTuple):
    """What columns are made of beside the records."""

    loss: Loss
    domain: Domain
    geometry: DomainGeometry
    point: Array
    before: Array | None  # where the mode's weights were taken


@by_address
class ChunkColumns(NamedTuple):
    """Some records as the kernels of tries see them."""

    data: Data
    margins: Array  # (num_records,) at x0, with the loss and its slope there
    values: Array
    slopes: Array
    weights: Array  # of the envelope, and the slabs
    lower: Array
    upper: Array


NO_RECORDS = ChunkColumns(
    make_data(np.empty((0, 1)), np.empty(0), None, np.empty(0)), *[np.empty(0)] * 6
)


class RecordColumns:
    """Columns of some records, each made when it is asked for."""

    def __init__(self, part: Data, scene: Scene) -> None:
        self.part, self.scene, self.rows = part, scene, as_rows(part)
        self._sizes: dict[int, tuple[Array, Array]] = {}
        self._ends: dict[object, Any] = {}
        self._curvatures: dict[object, Any] = {}

    @property
    def response(self) -> Array:
        """Responses."""
        return self.part.response

    def margins_at(self, point: Array) -> Array:
        """Margins at a point."""
        offset = self.part.offset if self.part.offset.size else 0.0
        return np.asarray(self.rows @ point + offset)

    @cached_property
    def margins(self) -> Array:
        """Margins at the mode."""
        return self.margins_at(self.scene.point)

    @cached_property
    def _evaluated(self) -> tuple[Array, Array]:
        return self.scene.loss._evaluate_flat(self.margins, self.response)

    @property
    def values(self) -> Array:
        """Losses at the mode."""
        return self._evaluated[0]

    @property
    def slopes(self) -> Array:
        """Slopes of the losses at the mode."""
        return self._evaluated[1]

    @cached_property
    def mode_weights(self) -> Array:
        """Phi'' at the mode, or close by."""
        if self.scene.before is None:
            return np.zeros(self.part.num_records)
        margins = self.margins_at(self.scene.before)
        return self.scene.loss.curvature(margins, margins, self.response)[1]

    def sizes(self, back: Array) -> Array:
        """||a_i back||, rounded up."""
        if id(back) not in self._sizes:
            sizes = np.empty(self.part.num_records)
            for start in range(0, len(sizes), BLOCK):
                block = as_kernel_array(self.rows[start : start + BLOCK] @ back)
                jit.call(fill_lengths, block, sizes[start : start + BLOCK])
            self._sizes[id(back)] = back, sizes
        return self._sizes[id(back)][1]

    def half(self, half: Half) -> Array:
        """Half-widths."""
        return self.sizes(half.back) * half.factor

    def ends(self, halves: tuple[Half, ...]) -> tuple[Array, Array]:
        """How far margins can move on the domain, and within half-widths."""
        key = tuple((id(each.back), each.factor) for each in halves)
        if key not in self._ends:
            if halves:
                (lower, upper), half = self.ends(halves[:-1]), self.half(halves[-1])
                ends = np.maximum(lower, -half), np.minimum(upper, half)
            else:
                ends = self._ends_on_domain()
            self._ends[key] = halves, ends
        lower, upper = self._ends[key][1]
        return lower, upper

    def _ends_on_domain(self) -> tuple[Array, Array]:
        body, rows = self.scene.geometry.body, self.rows
        if self.scene.geometry.is_round:  # one product, not several
            along = rows @ (self.scene.point - body.center)
            lower, upper = along, _lengths(rows)
            jit.call(fill_ends, self.margins, body.radius, lower, upper)
            return lower, upper
        lower, upper = margin_intervals(self.scene.domain, self.part)
        lower, upper = lower - self.margins, upper - self.margins
        return np.minimum(lower, 0.0), np.maximum(upper, 0.0)

    def curvature(self, order: str, halves: tuple[Half, ...]) -> Array:
        """Secant or Bregman curvature where margins move within half-widths."""
        key = order, tuple((id(each.back), each.factor) for each in halves)
        if key not in self._curvatures:
            lower, upper = self.ends(halves)
            ends = self.margins + lower, self.margins + upper
            bound = getattr(self.scene.loss, f"{order}_curvature")
            made = np.asarray(bound(self.margins, *ends, self.response))
            self._curvatures[key] = halves, made
        return np.asarray(self._curvatures[key][1])

    def weights(self, weights: Weights) -> Array:
        """Weights of the records."""
        if weights.order == "none":
            return np.zeros(self.part.num_records)
        if weights.order == "mode":
            return weights.scale * self.mode_weights
        return weights.scale * self.curvature(weights.order, weights.halves)

    def select(self, weights: Weights, slabs: tuple[Half, ...]) -> ChunkColumns:
        """Return the columns that kernels read, with these weights and slabs."""
        ends = self.ends(slabs) if slabs else [np.empty(0)] * 2
        parts = self.margins, self.values, self.slopes, self.weights(weights), *ends
        return ChunkColumns(writable(self.part), *map(as_kernel_array, parts))


_kept: WeakKeyDictionary[Mode, RecordColumns] = WeakKeyDictionary()


def of_one_chunk(target: Gibbs, mode: Mode) -> RecordColumns | None:
    """Kept columns of records in memory that are one chunk."""
    storage = target.storage
    if not (
        isinstance(storage, MemoryStorage) and storage.chunk == storage.num_records
    ):
        return None
    columns = _kept.get(mode)
    if columns is None or columns.part is not storage.data:
        columns = _kept[mode] = RecordColumns(storage.data, _scene(target, mode))
    return columns


def _scene(target: Gibbs, mode: Mode) -> Scene:
    problem = target.problem
    return Scene(problem.loss, problem.domain, target.geometry, mode.point, mode.before)


def _on_columns(
    part: Data, scene: Scene, function: Callable[..., Result], *args: object
) -> Result:
    return function(RecordColumns(part, scene), *args)


def over(
    target: Gibbs, mode: Mode, function: Callable[..., Result], *args: object
) -> Generator[Result]:
    """Results of ``function(columns, *args)`` of the chunks, in their order."""
    columns = of_one_chunk(target, mode)
    if columns is not None:
        yield function(columns, *args)
    else:
        yield from target.storage.map(
            _on_columns, _scene(target, mode), function, *args
        )


def folded(
    target: Gibbs,
    mode: Mode,
    fold: Fold,
    function: Callable[..., Result],
    *args: object,
) -> Result:
    """Results of ``function(columns, *args)`` of the chunks, combined."""
    columns = of_one_chunk(target, mode)
    if columns is not None:
        return function(columns, *args)
    scene = _scene(target, mode)
    result: Result = target.storage.fold(fold, _on_columns, scene, function, *args)
    return result


def _lengths(rows: Any) -> Array:
    """Euclidean norms of dense or sparse rows, rounded up; infinite above 1e154."""
    if isinstance(rows, np.ndarray):
        found = np.empty(len(rows))
        jit.call(fill_lengths, as_kernel_array(rows), found)
        return found
    with np.errstate(over="ignore"):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64)
    return np.sqrt(squares.reshape(-1)) * WIDENED


@kernel
def fill_lengths(rows, out):
    """Fill out with Euclidean norms, rounded up."""
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[i, j] * rows[i, j]
        out[i] = np.sqrt(square) * WIDENED


@kernel
def fill_ends(margins, radius, lower, upper):
    """Turn <a_i, x0 - center> and ||a_i|| into how far margins move in a ball."""
    for i in range(margins.shape[0]):
        along, reach = lower[i], radius * (upper[i] + TINY)
        slack = MARGIN_SLACK * (1.0 + abs(margins[i]))
        low, high = -reach - along - slack, reach - along + slack
        lower[i] = 0.0 if low > 0.0 else low
        upper[i] = 0.0 if high < 0.0 else high


@kernel
def share_of(weights, curvature):
    """Largest theta <= 1 with theta weights <= curvature."""
    least = 1.0
    for i in range(weights.shape[0]):
        if weights[i] > 0.0 and not curvature[i] >= least * weights[i]:
            least = curvature[i] / weights[i] if curvature[i] > 0.0 else 0.0
    return least
