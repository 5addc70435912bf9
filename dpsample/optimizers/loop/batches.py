# mypy: allow-untyped-defs
"""Batches of records: all, Poisson samples, slices, or draws with replacement.

A kernel enumerates a batch in blocks: each call writes record numbers until ``rows`` is
full or the batch ends. So no batch, however large, needs memory of its own size. The
*cursor* that it takes and returns is the position at which the next call continues.
Records first, ..., last - 1 of the problem belong to the phase that is run.

**Poisson samples.** A sample at rate q contains each record independently with
probability q. The *gap*, the number of records between two of a sample, is at least k
with probability (1 - q)^k. So it is the largest k with V < (1 - q)^k for a uniform V in
[0, 1). V has 128 random bits, of which the first 64 are drawn at once. Their first 12
select an entry of a table, which has the gap if all V of that interval have the same.
Otherwise k is the integer part of log V/log(1 - q). If that is so near to an integer
that rounding errors could matter, the other 64 bits are drawn. Then V is compared with
the power as a pair of doubles, whose relative error is below k 2^-98. So gaps have the
exact distribution, except with probability below 2^-95/q^2.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece, kernel
from dpsample.core.spec import Spec
from dpsample.numerics.exact import random_word, two_product, two_sum
from dpsample.optimizers.loop.pieces import (
    BATCH,
    START,
    CompiledBatches,
    Numbers,
    compile_piece,
)

# Relative error that a computed log V/log(1 - q) may have. It covers the errors of both
# logarithms and half a unit of V, if the first 64 bits of V are at least _FEW_BITS.
_ALLOWANCE = 1e-12
_FEW_BITS = np.uint64(2**44)
# The table of gaps has 2^12 entries, 32 kB.
_GUIDE_BITS = 12


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class RangeNumbers(NamedTuple):
    """Records first, ..., last - 1."""

    first: int
    last: int


@by_address
class PoissonNumbers(NamedTuple):
    """Numbers of a Poisson sample of the records first, ..., last - 1."""

    first: int
    last: int
    gap_scale: float  # -1/log(1 - rate), 0 at rate 1
    skipped: float  # 1 - rate, rounded
    skipped_error: float  # 1 - rate less its rounded value
    guide: Ints  # (2^12,) gap by the first bits of V, -1 where they do not decide


@by_address
class SliceNumbers(NamedTuple):
    """Numbers of slices of the records from the first one on."""

    first: int
    size: int
    num_records: int
    order: Ints  # (num_records,) random order, or empty for the order of the data


@by_address
class AllocationNumbers(NamedTuple):
    """Numbers of records that are allocated to batches at random."""

    first: int
    order: Ints  # (epochs * records,) positions of records, batch by batch
    ends: Ints  # (steps,) end of each step's batch in that order


@by_address
class ReplacementNumbers(NamedTuple):
    """Numbers of a sample with replacement."""

    first: int
    num_records: int
    size: int


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def draw_below(rng, count):
    """Draw uniformly from 0, ..., count - 1.

    Each probability has a relative error of at most count/2^53.
    """
    # The product may be rounded up to count.
    return min(int(rng.random() * count), count - 1)


@kernel(counts_references=False)
def next_of_all(numbers, rng, t, cursor, rows):
    """Enumerate all records, see `BATCH`."""
    count = 0
    if cursor == START:
        cursor = numbers.first
    while count < len(rows) and cursor < numbers.last:
        rows[count] = cursor
        count += 1
        cursor += 1
    return count, cursor


@kernel(counts_references=False)
def next_of_sample(numbers, rng, t, cursor, rows):
    """Enumerate a Poisson sample, see `BATCH`."""
    count = 0
    if cursor == START:
        cursor = numbers.first + _gap(rng, numbers)
    while count < len(rows) and 0 <= cursor < numbers.last:
        rows[count] = cursor
        count += 1
        cursor += 1 + _gap(rng, numbers)
    return count, cursor


@kernel(counts_references=False)
def _gap(rng, numbers):
    """Draw a gap. A word of 64 bits is drawn, and a second one only if it matters."""
    if numbers.gap_scale == 0.0:
        return 0
    first = random_word(rng)
    guided = numbers.guide[np.int64(first >> np.uint64(64 - _GUIDE_BITS))]
    if guided >= 0:
        return guided
    # The middle of the interval of all V that begin with these 63 bits.
    fraction = np.float64(np.int64(first >> np.uint64(1))) + 0.5
    real_gap = -math.log(fraction * 2.0**-63) * numbers.gap_scale
    allowance = _ALLOWANCE * (real_gap + numbers.gap_scale)
    gap = int(real_gap)
    if first < _FEW_BITS or abs(real_gap - gap - 0.5) > 0.5 - allowance:
        return _exact_gap(numbers, first, random_word(rng))
    return gap


@kernel(counts_references=False)
def _exact_gap(numbers, first, second):
    """Return the largest k with V < (1 - rate)^k, for V of these 128 bits."""
    # V as a sum of two doubles: its first 53 bits, and the next 53.
    high = np.float64(first >> np.uint64(11)) * 2.0**-53
    low_bits = (first & np.uint64(0x7FF)) << np.uint64(42)
    low = np.float64(low_bits | (second >> np.uint64(22))) * 2.0**-106
    real_gap = -math.log(max(high + low, 2.0**-106)) * numbers.gap_scale
    # Gaps above this pass the end of every data set, so they need not be exact.
    if real_gap > 2.0**46:
        return int(min(real_gap, 2.0**62))
    # The estimate is off by a few units at most.
    k = int(real_gap)
    while _is_below(numbers, high, low, k + 1):
        k += 1
    while k > 0 and not _is_below(numbers, high, low, k):
        k -= 1
    return k


@kernel(counts_references=False)
def _is_below(numbers, high, low, k):
    """Return whether high + low < (1 - rate)^k."""
    # Repeated squaring of pairs: a value is power + error.
    power, error = 1.0, 0.0
    root, root_error = numbers.skipped, numbers.skipped_error
    while True:
        if k & 1:
            power, error = _product(power, error, root, root_error)
        k >>= 1
        if k == 0:
            return (high - power) + (low - error) < 0.0
        root, root_error = _product(root, root_error, root, root_error)


@kernel(counts_references=False)
def _product(a, a_low, b, b_low):
    """Multiply two pairs of doubles, with a relative error below 2^-100."""
    product, error = two_product(a, b)
    return two_sum(product, error + (a * b_low + a_low * b))


@kernel(counts_references=False)
def next_of_slice(numbers, rng, t, cursor, rows):
    """Enumerate the t-th slice, see `BATCH`."""
    count, end = 0, min((t + 1) * numbers.size, numbers.num_records)
    if cursor == START:
        cursor = t * numbers.size
    while count < len(rows) and cursor < end:
        position = numbers.order[cursor] if len(numbers.order) else cursor
        rows[count] = numbers.first + position
        count += 1
        cursor += 1
    return count, cursor


@kernel(counts_references=False)
def next_allocated(numbers, rng, t, cursor, rows):
    """Enumerate the records that are allocated to step t, see `BATCH`."""
    count = 0
    if cursor == START:
        cursor = numbers.ends[t - 1] if t > 0 else 0
    while count < len(rows) and cursor < numbers.ends[t]:
        rows[count] = numbers.first + numbers.order[cursor]
        count += 1
        cursor += 1
    return count, cursor


@kernel(counts_references=False)
def next_drawn(numbers, rng, t, cursor, rows):
    """Enumerate a sample with replacement, see `BATCH`."""
    count = 0
    if cursor == START:
        cursor = 0
    while count < len(rows) and cursor < numbers.size:
        rows[count] = numbers.first + draw_below(rng, numbers.num_records)
        count += 1
        cursor += 1
    return count, cursor


def _gap_scale(rate: float) -> float:
    """Return the factor of -log V, or 0 at rate 1, where every gap is 0."""
    return 0.0 if rate >= 1.0 else -1.0 / math.log1p(-rate)


@functools.lru_cache(maxsize=64)
def _guide(rate: float) -> Ints:
    """Return the gap of each interval of V, -1 if it may differ between its ends."""
    if rate >= 1.0:
        return np.empty(0, dtype=np.int64)
    edges = np.arange(1, 2**_GUIDE_BITS + 1) / 2**_GUIDE_BITS
    real_gaps = -np.log(edges) * _gap_scale(rate)
    allowance = _ALLOWANCE * (real_gaps + _gap_scale(rate))
    min_gaps = np.floor(real_gaps - allowance)
    max_gaps = np.floor(real_gaps + allowance)
    # The first interval contains V = 0, whose gap has no limit. Its entry stays -1.
    guide = np.full(len(edges), -1, dtype=np.int64)
    is_sure = np.maximum(min_gaps[1:], 0.0) == max_gaps[:-1]
    guide[1:][is_sure] = max_gaps[:-1][is_sure].astype(np.int64)
    return guide


@dataclass(frozen=True, kw_only=True)
class Batches(Spec):
    """Base of all schemes, for the records from ``first`` to ``last`` - 1.

    Attributes
    ----------
    piece : compiled function
        Kernel of signature `BATCH`.
    """

    first: int = 0
    last: int | None = None
    piece: ClassVar[Piece]

    @property
    def is_in_order(self) -> bool:
        """Whether batches are consecutive records in every run, not by chance."""
        return False

    def numbers(self, num_records: int, rng: np.random.Generator) -> Numbers:
        """Return the kernel's numbers. A random order is drawn here, with ``rng``."""
        raise NotImplementedError

    def compile(self, num_records: int, rng: np.random.Generator) -> CompiledBatches:
        """Return the compiled kernel and its numbers."""
        numbers = self.numbers(num_records, rng)
        return CompiledBatches(
            batch=compile_piece(self.piece, BATCH, numbers),
            numbers=numbers,
            first=int(self.first),
            last=self._last(num_records),
            is_in_order=int(self.is_in_order),
            is_partial=0,
        )

    def mean_size(self, num_records: int) -> float:
        """Return the mean size of a batch, by which its sum is divided."""
        return self.largest(num_records)

    def largest(self, num_records: int) -> int:
        """Return the largest number of records that a step can read."""
        return self.available(num_records)

    def available(self, num_records: int) -> int:
        """Return the number of records of the phase."""
        return self._last(num_records) - int(self.first)

    def check_steps(self, num_steps: int, num_records: int) -> None:
        """Fail unless there are batches for ``num_steps`` steps."""

    def _last(self, num_records: int) -> int:
        return int(num_records if self.last is None else self.last)


@dataclass(frozen=True, kw_only=True)
class Full(Batches):
    """All records of the phase in every step."""

    name: ClassVar[str] = "full"
    piece: ClassVar[Piece] = staticmethod(next_of_all)

    @property
    def is_in_order(self) -> bool:
        """Whether batches are consecutive records, which is always so."""
        return True

    def numbers(self, num_records: int, rng: np.random.Generator) -> RangeNumbers:
        """Return the range of the records."""
        del rng  # nothing is random
        return RangeNumbers(int(self.first), self._last(num_records))


@dataclass(frozen=True, kw_only=True)
class Poisson(Batches):
    """Each record independently with probability ``rate`` in every step."""

    rate: float
    name: ClassVar[str] = "poisson"
    piece: ClassVar[Piece] = staticmethod(next_of_sample)

    @property
    def is_in_order(self) -> bool:
        """Whether all records are in every batch."""
        return self.rate >= 1.0

    def numbers(self, num_records: int, rng: np.random.Generator) -> PoissonNumbers:
        """Return the distribution of the gaps."""
        del rng  # the kernel draws the sample
        rate = float(self.rate)
        return PoissonNumbers(
            first=int(self.first),
            last=self._last(num_records),
            gap_scale=_gap_scale(rate),
            skipped=1.0 - rate,
            skipped_error=two_sum.py_func(1.0, -rate)[1],
            guide=_guide(rate),
        )

    def mean_size(self, num_records: int) -> float:
        """Return the rate times the number of records."""
        return float(self.rate) * self.available(num_records)


@dataclass(frozen=True, kw_only=True)
class Slices(Batches):
    """In step t the t-th slice of ``size`` records. No record is read twice."""

    size: int
    is_shuffled: bool = False
    name: ClassVar[str] = "slices"
    piece: ClassVar[Piece] = staticmethod(next_of_slice)

    @property
    def is_in_order(self) -> bool:
        """Whether slices are in the order of the data."""
        return not self.is_shuffled

    def numbers(self, num_records: int, rng: np.random.Generator) -> SliceNumbers:
        """Return the size of the slices, and a random order if they are shuffled."""
        count = self.available(num_records)
        order = rng.permutation(count) if self.is_shuffled else np.empty(0)
        return SliceNumbers(
            first=int(self.first),
            size=int(self.size),
            num_records=count,
            order=order.astype(np.int64),
        )

    def largest(self, num_records: int) -> int:
        """Return the size of a slice."""
        return int(self.size)

    def check_steps(self, num_steps: int, num_records: int) -> None:
        """Fail unless there is a slice for each step."""
        available, read = self.available(num_records), self.size * num_steps
        if read > available:
            condition = f"<= {available} records of the phase"
            check.fail("num_steps * size", condition, read)


@dataclass(frozen=True, kw_only=True)
class Allocated(Batches):
    """Each record in one of the ``num_batches`` steps of every epoch, at random.

    The allocation takes eight bytes per record and epoch, and eight per step.
    """

    num_batches: int
    num_epochs: int
    name: ClassVar[str] = "allocated"
    piece: ClassVar[Piece] = staticmethod(next_allocated)

    def numbers(self, num_records: int, rng: np.random.Generator) -> AllocationNumbers:
        """Draw the records of every batch."""
        available = self.available(num_records)
        order = np.empty((self.num_epochs, available), dtype=np.int64)
        sizes = np.empty((self.num_epochs, self.num_batches), dtype=np.int64)
        for row, size in zip(order, sizes, strict=True):
            # NumPy's bounded integers are exactly uniform, by rejection. A stable sort
            # lists the records of each batch in their order.
            picks = rng.integers(self.num_batches, size=available)
            row[:] = np.argsort(picks, kind="stable")
            size[:] = np.bincount(picks, minlength=self.num_batches)
        return AllocationNumbers(int(self.first), order.ravel(), np.cumsum(sizes))

    def mean_size(self, num_records: int) -> float:
        """Return the mean number of records in a batch."""
        return 1.0 / self.num_batches * self.available(num_records)

    def check_steps(self, num_steps: int, num_records: int) -> None:
        """Fail unless ``num_steps`` is the number of steps of all epochs."""
        steps = self.num_batches * self.num_epochs
        if num_steps != steps:
            check.fail("num_steps", f"{steps}, those of all epochs", num_steps)


@dataclass(frozen=True, kw_only=True)
class WithReplacement(Batches):
    """``size`` records, each drawn uniformly from all, in every step."""

    size: int
    name: ClassVar[str] = "with_replacement"
    piece: ClassVar[Piece] = staticmethod(next_drawn)

    def numbers(self, num_records: int, rng: np.random.Generator) -> ReplacementNumbers:
        """Return the number of records of the phase and of a batch."""
        del rng  # the kernel draws the records
        count = self.available(num_records)
        return ReplacementNumbers(int(self.first), count, int(self.size))

    def largest(self, num_records: int) -> int:
        """Return the size of a batch."""
        return int(self.size)
