# mypy: allow-untyped-defs
"""Which records a step reads: all, a Poisson sample, slices, or repeated draws.

A batch is enumerated in blocks: `next_block` writes record numbers until it returns
none, so that no batch, however large, needs memory of its own size.

**Poisson samples.** Between two records of a sample lie k others or more with
probability (1 - q)^k, so that k is the largest with V < (1 - q)^k for a uniform V.
The first bits of V decide by a table; else logarithms do, except where they come within
their rounding errors of another k, 128 bits of V are compared with the power as a pair
of doubles, whose error is below k 2^-98 of it. So a gap is that of the exact law,
except with probability below 2^-95/q^2.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core.jit import kernel
from dpsample.core.spec import Spec
from dpsample.numerics.exact import two_product, two_sum, word

Indices = NDArray[np.int64]

_UNIT = 2.0**-63
# From these words on, half a unit of them, and the errors of logarithms and of their
# scale, move a place by less than the allowance.
_FEW_BITS = np.uint64(2**44)
_ALLOWANCE = 1e-12
_FARTHEST = 2.0**46
_GUIDE_BITS = 12

FULL, POISSON, SLICES, REPLACEMENT, ALLOCATED = range(5)
BLOCK = 1024  # records that are summed before their sum joins that of the others


class BatchNumbers(NamedTuple):
    """A batch scheme as the kernel reads it."""

    scheme: int
    first: int  # records first, ..., last - 1 belong to the phase
    last: int
    size: int  # records of a slice or of a sample with replacement
    rate: float
    gap_scale: float  # -1/log(1 - rate), 0 at rate 1
    skipped: float  # 1 - rate, and its rounding error
    skipped_error: float
    guide: Indices  # gap by the first bits of a word; -1 where they do not decide
    order: Indices  # positions of slices and allocated records; empty: as they come
    ends: Indices  # ends of allocated batches in that order
    is_partial: int  # whether more records of the batch follow in another window


def _gap_scale(rate: float) -> float:
    return 0.0 if rate >= 1.0 else -1.0 / math.log1p(-rate)


@functools.lru_cache(maxsize=64)
def _guide(rate: float) -> Indices:
    """Gap at both ends of each interval of V, if it is the same for sure."""
    if rate >= 1.0:
        return np.empty(0, dtype=np.int64)
    edges = np.arange(1, 2**_GUIDE_BITS + 1) / 2**_GUIDE_BITS
    places = -np.log(edges) * _gap_scale(rate)
    allowance = _ALLOWANCE * (places + _gap_scale(rate))
    least, most = np.floor(places - allowance), np.floor(places + allowance)
    guide = np.full(len(edges), -1, dtype=np.int64)
    is_sure = np.maximum(least[1:], 0.0) == most[:-1]
    guide[1:][is_sure] = most[:-1][is_sure].astype(np.int64)
    return guide


@dataclass(frozen=True, kw_only=True)
class Batches(Spec):
    """Base of all schemes; ``first`` and ``last`` bound the records of the phase."""

    first: int = 0
    last: int | None = None
    scheme: ClassVar[int]

    def numbers(self, num_records: int, rng: np.random.Generator) -> BatchNumbers:
        """Return what the kernel reads; what has an order draws it here."""
        last = num_records if self.last is None else self.last
        order, ends = self._order(last - self.first, rng)
        return BatchNumbers(
            scheme=self.scheme,
            first=int(self.first),
            last=int(last),
            size=self._size(last - self.first),
            rate=self._rate(),
            gap_scale=_gap_scale(self._rate()),
            skipped=1.0 - self._rate(),
            skipped_error=two_sum.py_func(1.0, -self._rate())[1],
            guide=_guide(self._rate()),
            order=order,
            ends=ends,
            is_partial=0,
        )

    def _size(self, available: int) -> int:
        return available

    def _rate(self) -> float:
        return 1.0

    def _order(
        self, available: int, rng: np.random.Generator
    ) -> tuple[Indices, Indices]:
        del available, rng  # records as they come
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Full(Batches):
    """All records of the phase in every step."""

    name: ClassVar[str] = "full"
    scheme: ClassVar[int] = FULL


@dataclass(frozen=True, kw_only=True)
class Poisson(Batches):
    """Each record independently with probability ``rate`` in every step."""

    rate: float
    name: ClassVar[str] = "poisson"
    scheme: ClassVar[int] = POISSON

    def _rate(self) -> float:
        return float(self.rate)


@dataclass(frozen=True, kw_only=True)
class Slices(Batches):
    """Step t reads the t-th slice of ``size`` records; no record is read twice."""

    size: int
    is_shuffled: bool = False
    name: ClassVar[str] = "slices"
    scheme: ClassVar[int] = SLICES

    def _size(self, available: int) -> int:
        return int(self.size)

    def _order(
        self, available: int, rng: np.random.Generator
    ) -> tuple[Indices, Indices]:
        order, ends = super()._order(available, rng)
        if self.is_shuffled:
            order = rng.permutation(available).astype(np.int64)
        return order, ends


@dataclass(frozen=True, kw_only=True)
class Allocated(Batches):
    """Each record in one of the ``num_batches`` steps of every epoch, at random.

    Eight bytes a record and epoch, and as many a step, keep who is where.
    """

    num_batches: int
    num_epochs: int
    name: ClassVar[str] = "allocated"
    scheme: ClassVar[int] = ALLOCATED

    def _rate(self) -> float:
        return 1.0 / self.num_batches

    def _order(
        self, available: int, rng: np.random.Generator
    ) -> tuple[Indices, Indices]:
        order = np.empty((self.num_epochs, available), dtype=np.int64)
        sizes = np.empty((self.num_epochs, self.num_batches), dtype=np.int64)
        for row, size in zip(order, sizes, strict=True):
            # NumPy's bounded integers are exactly uniform, by rejection.
            picks = rng.integers(self.num_batches, size=available)
            row[:] = np.argsort(picks, kind="stable")
            size[:] = np.bincount(picks, minlength=self.num_batches)
        return order.ravel(), np.cumsum(sizes)


@dataclass(frozen=True, kw_only=True)
class WithReplacement(Batches):
    """``size`` records, each drawn uniformly from all, in every step."""

    size: int
    name: ClassVar[str] = "with_replacement"
    scheme: ClassVar[int] = REPLACEMENT

    def _size(self, available: int) -> int:
        return int(self.size)


@kernel(counts_references=False)
def below(rng, count):
    """Uniform among 0, ..., count - 1, up to a part count/2^53 of each probability."""
    return min(int(rng.random() * count), count - 1)


@kernel(counts_references=False)
def first_cursor(batches, rng, t):
    """Where the enumeration of step ``t`` starts, but of a Poisson sample."""
    if batches.scheme == SLICES:
        return t * batches.size
    if batches.scheme == ALLOCATED:
        return batches.ends[t - 1] if t > 0 else 0
    return batches.first if batches.scheme == FULL else 0


@kernel(counts_references=False)
def first_of_sample(batches, rng, t):
    """Where the enumeration of a Poisson sample starts."""
    return batches.first + _gap(rng, batches)


@kernel(counts_references=False)
def _gap(rng, batches):
    """Failures before the first success of a coin."""
    if batches.gap_scale == 0.0:
        return 0
    first = word(rng)
    guided = batches.guide[np.int64(first >> np.uint64(64 - _GUIDE_BITS))]
    if guided >= 0:
        return guided
    fraction = np.float64(np.int64(first >> np.uint64(1))) + 0.5
    place = -math.log(fraction * _UNIT) * batches.gap_scale
    allowance = _ALLOWANCE * (place + batches.gap_scale)
    gap = int(place)
    if first < _FEW_BITS or abs(place - gap - 0.5) > 0.5 - allowance:
        return _exact_gap(batches, first, word(rng))
    return gap


@kernel(counts_references=False)
def _exact_gap(batches, first, second):
    """Largest k with V < (1 - rate)^k, for V of these 128 bits."""
    high = np.float64(first >> np.uint64(11)) * 2.0**-53
    rest = (first & np.uint64(0x7FF)) << np.uint64(42)
    low = np.float64(rest | (second >> np.uint64(22))) * 2.0**-106
    place = -math.log(max(high + low, 2.0**-106)) * batches.gap_scale
    if place > _FARTHEST:  # beyond all records
        return int(min(place, 2.0**62))
    k = int(place)
    while _is_below(batches, high, low, k + 1):
        k += 1
    while k > 0 and not _is_below(batches, high, low, k):
        k -= 1
    return k


@kernel(counts_references=False)
def _is_below(batches, high, low, k):
    """Whether high + low < (1 - rate)^k."""
    power, error = 1.0, 0.0
    root, root_error = batches.skipped, batches.skipped_error
    while True:
        if k & 1:
            power, error = _product(power, error, root, root_error)
        k >>= 1
        if k == 0:
            return (high - power) + (low - error) < 0.0
        root, root_error = _product(root, root_error, root, root_error)


@kernel(counts_references=False)
def _product(a, a_low, b, b_low):
    """Product of two pairs of doubles, with a relative error below 2^-100."""
    product, error = two_product(a, b)
    return two_sum(product, error + (a * b_low + a_low * b))


@kernel(counts_references=False)
def next_of_sample(batches, rng, t, cursor, rows):
    """As `next_block`, of a Poisson sample."""
    count = 0
    while count < len(rows) and 0 <= cursor < batches.last:
        rows[count] = cursor
        count += 1
        cursor += 1 + _gap(rng, batches)
    return count, cursor


@kernel(counts_references=False)
def next_of_all(batches, rng, t, cursor, rows):
    """As `next_block`, of all records."""
    count = 0
    while count < len(rows) and cursor < batches.last:
        rows[count] = cursor
        count += 1
        cursor += 1
    return count, cursor


@kernel(counts_references=False)
def next_block(batches, rng, t, cursor, rows):
    """Write the next record numbers of step ``t``; return how many, and the cursor."""
    count = 0
    if batches.scheme == FULL:
        while count < len(rows) and cursor < batches.last:
            rows[count] = cursor
            count += 1
            cursor += 1
    elif batches.scheme == SLICES or batches.scheme == ALLOCATED:
        end = min((t + 1) * batches.size, batches.last - batches.first)
        if batches.scheme == ALLOCATED:
            end = batches.ends[t]
        while count < len(rows) and cursor < end:
            place = batches.order[cursor] if len(batches.order) else cursor
            rows[count] = batches.first + place
            count += 1
            cursor += 1
    else:
        while count < len(rows) and cursor < batches.size:
            rows[count] = batches.first + below(rng, batches.last - batches.first)
            count += 1
            cursor += 1
    return count, cursor
