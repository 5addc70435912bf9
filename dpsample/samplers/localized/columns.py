# mypy: allow-untyped-defs
"""Columns of a chunk of records: margins, curvatures, and bounds of margin moves.

A *column* has one number per record. A *chunk* is the part of the records that is in
memory at a time. All columns follow from a few vectors and matrices. So no pass needs
the columns of another one, and a file of any length takes the memory of a chunk. If all
records are one chunk in memory, its columns are kept.

The *margin* of a record i is <a_i, x> plus its offset, and x0 is the mode. On a bounded
set around x0 each margin differs from its value at x0 by at most a *half-width*. On the
domain it moves from the mode by a number between two *ends*, lower <= 0 and upper >= 0.
On the intersection of both the ends are closer.
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
from dpsample.targets.gibbs import MARGIN_SLACK, Gibbs, as_rows, margin_intervals
from dpsample.targets.gibbs_target import DomainGeometry, as_kernel_array

# Half-widths and radii are larger by this factor than computed, for rounding errors.
WIDENING = 1.0 + 1e-9
# Number of records whose norms are computed together, so that products stay in the
# cache.
BLOCK = 8192


class MarginWidths(NamedTuple):
    """Half-widths ||a_i back|| factor of the moves of margins."""

    back: Array  # (dim, m)
    factor: float


class Weights(NamedTuple):
    """One weight for each record: phi'' near the mode, or a curvature on a region.

    A quadratic with this weight times ``scale`` touches the loss from below at the
    mode. "secant" and "bregman" are the largest weights for which differences of slopes
    or of values have the bound of the quadratic, see `Loss.secant_curvature`.
    """

    order: str  # "none", "mode", "secant" or "bregman"
    half_widths: tuple[MarginWidths, ...] = ()  # half-widths on the region
    scale: float = 1.0


class ColumnSetting(NamedTuple):
    """Numbers of target and mode that columns depend on, in addition to the records."""

    loss: Loss
    domain: Domain
    geometry: DomainGeometry
    point: Array  # (dim,): x0
    before: Array | None  # (dim,): point of the mode's curvatures


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ChunkColumns(NamedTuple):
    """Columns of some records, as arguments of compiled rejection."""

    data: Data
    margins: Array  # (num_records,): at x0
    values: Array  # (num_records,): losses at x0
    slopes: Array  # (num_records,): their derivatives
    weights: Array  # (num_records,): of the envelope
    lower: Array  # (num_records,): ends of the slabs, or empty
    upper: Array


NO_RECORDS = ChunkColumns(
    make_data(np.empty((0, 1)), np.empty(0), None, np.empty(0)), *[np.empty(0)] * 6
)


class RecordColumns:
    """Columns of some records, computed when they are first needed."""

    def __init__(self, part: Data, setting: ColumnSetting) -> None:
        self.part, self.setting, self.rows = part, setting, as_rows(part)
        self._sizes: dict[int, tuple[Array, Array]] = {}
        self._ends: dict[object, Any] = {}
        self._curvatures: dict[object, Any] = {}

    @property
    def response(self) -> Array:
        """Responses."""
        return self.part.response

    def margins_at(self, point: Array) -> Array:
        """Return the margins at a point."""
        offset = self.part.offset if self.part.offset.size else 0.0
        return np.asarray(self.rows @ point + offset)

    @cached_property
    def margins(self) -> Array:
        """Margins at the mode."""
        return self.margins_at(self.setting.point)

    @cached_property
    def _values_and_slopes(self) -> tuple[Array, Array]:
        """Losses at the mode, and their derivatives."""
        return self.setting.loss._evaluate_flat(self.margins, self.response)

    @property
    def values(self) -> Array:
        """Losses at the mode."""
        return self._values_and_slopes[0]

    @property
    def slopes(self) -> Array:
        """Derivatives of the losses at the mode."""
        return self._values_and_slopes[1]

    @cached_property
    def mode_weights(self) -> Array:
        """Second derivatives of the losses at the mode, or close to it."""
        if self.setting.before is None:
            return np.zeros(self.part.num_records)
        margins = self.margins_at(self.setting.before)
        return self.setting.loss.curvature(margins, margins, self.response)[1]

    def sizes(self, back: Array) -> Array:
        """Return ||a_i back||, rounded up."""
        # Arrays cannot be hashed, so their ids are keys. Each array is kept together
        # with its result, so that no other array gets its id.
        if id(back) not in self._sizes:
            sizes = np.empty(self.part.num_records)
            for start in range(0, len(sizes), BLOCK):
                block = as_kernel_array(self.rows[start : start + BLOCK] @ back)
                jit.call(fill_lengths, block, sizes[start : start + BLOCK])
            self._sizes[id(back)] = back, sizes
        return self._sizes[id(back)][1]

    def evaluate(self, widths: MarginWidths) -> Array:
        """Return the half-widths of the records."""
        return self.sizes(widths.back) * widths.factor

    def ends(self, half_widths: tuple[MarginWidths, ...]) -> tuple[Array, Array]:
        """Return the ends of margin moves on the domain and within half-widths."""
        key = tuple((id(widths.back), widths.factor) for widths in half_widths)
        if key not in self._ends:
            if half_widths:
                lower, upper = self.ends(half_widths[:-1])
                widths = self.evaluate(half_widths[-1])
                ends = np.maximum(lower, -widths), np.minimum(upper, widths)
            else:
                ends = self._ends_on_domain()
            self._ends[key] = half_widths, ends
        lower, upper = self._ends[key][1]
        return lower, upper

    def _ends_on_domain(self) -> tuple[Array, Array]:
        """Return the ends of margin moves on the domain."""
        body, rows = self.setting.geometry.body, self.rows
        # In a ball the ends follow from one product with the rows. `margin_intervals`
        # would take several.
        if self.setting.geometry.is_round:
            along = rows @ (self.setting.point - body.center)
            lower, upper = along, _lengths(rows)
            jit.call(fill_ends, self.margins, body.radius, lower, upper)
            return lower, upper
        lower, upper = margin_intervals(self.setting.domain, self.part)
        lower, upper = lower - self.margins, upper - self.margins
        return np.minimum(lower, 0.0), np.maximum(upper, 0.0)

    def curvature(self, order: str, half_widths: tuple[MarginWidths, ...]) -> Array:
        """Return the secant or Bregman curvature, for moves within half-widths."""
        key = order, tuple((id(widths.back), widths.factor) for widths in half_widths)
        if key not in self._curvatures:
            lower, upper = self.ends(half_widths)
            ends = self.margins + lower, self.margins + upper
            bound = getattr(self.setting.loss, f"{order}_curvature")
            curvature = np.asarray(bound(self.margins, *ends, self.response))
            self._curvatures[key] = half_widths, curvature
        return np.asarray(self._curvatures[key][1])

    def forget_curvatures(self) -> None:
        """Free the curvatures and ends that are kept."""
        self._curvatures.clear()
        on_domain = self._ends.get(())
        self._ends.clear()
        if on_domain is not None:
            self._ends[()] = on_domain

    def weights(self, weights: Weights) -> Array:
        """Return the weights of the records."""
        if weights.order == "none":
            return np.zeros(self.part.num_records)
        if weights.order == "mode":
            return weights.scale * self.mode_weights
        return weights.scale * self.curvature(weights.order, weights.half_widths)

    def select(self, weights: Weights, slabs: tuple[MarginWidths, ...]) -> ChunkColumns:
        """Return the columns of compiled rejection, with these weights and slabs."""
        ends = self.ends(slabs) if slabs else (np.empty(0), np.empty(0))
        columns = self.margins, self.values, self.slopes, self.weights(weights), *ends
        return ChunkColumns(writable(self.part), *map(as_kernel_array, columns))


# Columns of records that are one chunk, by their mode.
_cache: WeakKeyDictionary[Mode, RecordColumns] = WeakKeyDictionary()


def single_chunk(target: Gibbs, mode: Mode) -> RecordColumns | None:
    """Return the kept columns if all records are one chunk in memory, or None."""
    storage = target.storage
    if not (
        isinstance(storage, MemoryStorage) and storage.chunk == storage.num_records
    ):
        return None
    columns = _cache.get(mode)
    if columns is None or columns.part is not storage.data:
        columns = _cache[mode] = RecordColumns(storage.data, _setting(target, mode))
    return columns


def forget_curvatures(target: Gibbs, mode: Mode) -> None:
    """Free the kept curvatures and ends, each of which has a number per record."""
    part = single_chunk(target, mode)
    if part is not None:
        part.forget_curvatures()


def _setting(target: Gibbs, mode: Mode) -> ColumnSetting:
    """Return the setting of columns."""
    problem = target.problem
    return ColumnSetting(
        problem.loss, problem.domain, target.geometry, mode.point, mode.before
    )


def _on_columns(
    part: Data, setting: ColumnSetting, function: Callable[..., Result], *args: object
) -> Result:
    """Return ``function`` of the columns of one chunk."""
    return function(RecordColumns(part, setting), *args)


def map_columns(
    target: Gibbs, mode: Mode, function: Callable[..., Result], *args: object
) -> Generator[Result]:
    """Yield ``function(columns, *args)`` for each chunk, in their order."""
    columns = single_chunk(target, mode)
    if columns is not None:
        yield function(columns, *args)
    else:
        yield from target.storage.map(
            _on_columns, _setting(target, mode), function, *args
        )


def fold_columns(
    target: Gibbs,
    mode: Mode,
    fold: Fold,
    function: Callable[..., Result],
    *args: object,
) -> Result:
    """Return the combined results of ``function(columns, *args)`` of all chunks."""
    columns = single_chunk(target, mode)
    if columns is not None:
        return function(columns, *args)
    setting = _setting(target, mode)
    result: Result = target.storage.fold(fold, _on_columns, setting, function, *args)
    return result


def _lengths(rows: Any) -> Array:
    """Return the norms of dense or sparse rows, rounded up, or inf above 1e154."""
    if isinstance(rows, np.ndarray):
        lengths = np.empty(len(rows))
        jit.call(fill_lengths, as_kernel_array(rows), lengths)
        return lengths
    with np.errstate(over="ignore"):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64)
    return np.sqrt(squares.reshape(-1)) * WIDENING


@kernel
def fill_lengths(rows, out):
    """Fill out with Euclidean norms, rounded up."""
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[i, j] * rows[i, j]
        out[i] = np.sqrt(square) * WIDENING


@kernel
def fill_ends(margins, radius, lower, upper):
    """Replace <a_i, x0 - center> and ||a_i|| by the ends of margin moves in a ball."""
    for i in range(margins.shape[0]):
        # Squares of entries below 1e-154 may underflow, so the norm is raised by more.
        along, reach = lower[i], radius * (upper[i] + 1e-150)
        slack = MARGIN_SLACK * (1.0 + abs(margins[i]))
        low, high = -reach - along - slack, reach - along + slack
        lower[i] = 0.0 if low > 0.0 else low
        upper[i] = 0.0 if high < 0.0 else high


@kernel
def largest_share(weights, curvature):
    """Return the largest theta <= 1 with theta weights <= curvature."""
    theta = 1.0
    for i in range(weights.shape[0]):
        if weights[i] > 0.0 and not curvature[i] >= theta * weights[i]:
            theta = curvature[i] / weights[i] if curvature[i] > 0.0 else 0.0
    return theta
