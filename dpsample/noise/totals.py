r"""Noisy totals: counts, sums on a grid, means and quantiles, in whole numbers.

A mechanism turns every record into whole numbers, adds them up exactly, and releases
the *totals* with discrete Laplace noise, or draws a grid point by ranks. The answer is
a public function of the released totals. So no rounding error has to be bounded, and
the sensitivity is a whole number that is attained.

**Grid.** A number x within public bounds [l, u] becomes the multiple of the *step* next
to it, ties to even. The step is a power of two, about 2^-40 of u - l, and not below the
last bits of the bounds. Then x/step is exact, and rounding it to a whole number is
monotone. So the number of steps of a record is from a to b, whatever the record
holds, where a and b are the numbers of steps of l and u. NaN counts as 0, and is moved
into the bounds as every other number.

**Sensitivity** between neighbors, in the l1 norm, with c = floor((a + b)/2).

==================  ================  ============================
totals              a record replaced  a record set to zero
==================  ================  ============================
one count           1                 1
counts of cells     2                 1
sum                 b - a             max(abs(a), abs(b))
sum about c         b - a             max(b - c, c - a)
sums of groups      2 max(b - c, c - a)  max(b - c, c - a)
==================  ================  ============================

A record that is set to zero adds nothing to any total, and the number of records is
public and stays as it is. A mean is c plus a sum about c over the number of records. A
replaced record may leave one group and enter another, and adds at most max(b - c, c -
a) to each. Totals in two blocks, the sums and the counts of groups, have half of
epsilon each, and their log ratios add up.

**Privacy.** Noise z has probability proportional to exp(-abs(z)/scale), and scale is a
double at least sensitivity/epsilon. So log ratios are at most sensitivity/scale <=
epsilon (Ghosh, Roughgarden and Sundararajan 2012). The noise is drawn without rounding
(`elementary.discrete_laplace_integer`), and `ranks` draws quantiles likewise.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.noise.elementary import discrete_laplace_integer
from dpsample.noise.noise import MAX_SCALE, MIN_SCALE
from dpsample.noise.ranks import Ranks
from dpsample.privacy.accounting.events import BoundedRangeEvent, Event, PureEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.curves.additive import round_up

Totals = tuple[int, ...]
Numbers = NDArray[np.int64]
Exact = Sequence[int] | Numbers


class TotalsBlock(NamedTuple):
    """Totals with noise of one scale.

    Attributes
    ----------
    name : str
        Beginning of the names of its inputs in a certificate.
    length : int
        Number of totals.
    sensitivity : int
        Bound of their change between neighbors in the l1 norm.
    share : float
        Part of epsilon, a power of two.
    """

    name: str
    length: int
    sensitivity: int
    share: float

    def scale(self, budget: Budget) -> float:
        """Return the scale of the noise, rounded up."""
        # Rounded up, so that sensitivity / scale is at most this share of epsilon.
        scale = round_up(self.sensitivity / (self.share * budget.epsilon))
        limit = 2.0**100  # files can hold the totals, which stay below 2^130
        if scale > limit:
            min_epsilon = self.sensitivity / (self.share * limit)
            check.fail("budget.epsilon", f">= {min_epsilon:.3g}", budget.epsilon)
        return scale


@dataclass(frozen=True, kw_only=True)
class TotalsMechanism:
    """Base of mechanisms that release totals of whole numbers."""

    kind: ClassVar[str]

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return the blocks of totals under a neighboring relation."""
        raise NotImplementedError

    def values(self, totals: Totals, num_records: int) -> tuple[int | float, ...]:
        """Return the answer that follows from released totals."""
        raise NotImplementedError

    @property
    def num_totals(self) -> int:
        """Number of totals."""
        # The lengths are the same under both relations.
        return sum(block.length for block in self.blocks("zero_out"))

    def event(self, budget: Budget) -> Event:
        """Return the event of a release."""
        return PureEvent(budget.epsilon)

    def inputs(self, budget: Budget) -> dict[str, int | float]:
        """Return the numbers that the noise was computed from, for the certificate."""
        listed: dict[str, int | float] = {}
        for block in self.blocks(budget.relation):
            listed[f"{block.name}sensitivity"] = block.sensitivity
            listed[f"{block.name}scale"] = block.scale(budget)
        return listed

    def certificate(
        self, num_records: int, budget: Budget, *, seeded: bool = False
    ) -> EventCertificate:
        """Return the certificate of a release."""
        return EventCertificate.of(
            kind=self.kind,
            mechanism=MechanismSpec.of(self),
            budget=budget,
            event=self.event(budget),
            inputs={"num_records": num_records, **self.inputs(budget)},
            seeded=seeded,
        )

    def release(
        self, rng: np.random.Generator, totals: Exact, budget: Budget
    ) -> Totals:
        """Return the totals plus noise."""
        noisy, position = [], 0
        for block in self.blocks(budget.relation):
            scale = Fraction(block.scale(budget))
            for total in totals[position : position + block.length]:
                noisy.append(int(total) + discrete_laplace_integer(rng, scale))
            position += block.length
        return tuple(noisy)

    def check_totals(self, totals: Sequence[int]) -> None:
        """Raise unless a release can have these totals."""
        if len(totals) != self.num_totals:
            check.fail("totals", f"{self.num_totals} integers", f"{len(totals)}")
        for index, total in enumerate(totals):
            if type(total) is not int:
                got = check.describe(total)
                check.fail(f"totals[{index}]", "an integer", got)


@dataclass(frozen=True, kw_only=True)
class RecordCount(TotalsMechanism):
    """Number of records with a property.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=0.0)
    >>> RecordCount().certificate(100, budget).statement[:40]
    '1-DP (pure) under replace_one: one relea'
    """

    kind = "stats/count"

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return one total, of sensitivity 1."""
        del relation
        return (TotalsBlock("", 1, 1, 1.0),)

    def values(self, totals: Totals, num_records: int) -> tuple[int, ...]:
        """Return the noisy count."""
        del num_records
        return totals


@dataclass(frozen=True, kw_only=True)
class CellCounts(TotalsMechanism):
    """Numbers of records in disjoint cells, of which a record has at most one.

    Examples
    --------
    >>> CellCounts(num_cells=3).inputs(Budget(epsilon=2.0, delta=0.0))["sensitivity"]
    2
    """

    kind = "stats/histogram"
    num_cells: int

    def __post_init__(self) -> None:
        """Check the number."""
        check.integer(1, maximum=check.MAX_LENGTH, num_cells=self.num_cells)

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return all counts: a replaced record leaves one cell and enters another."""
        return (TotalsBlock("", self.num_cells, _changed_cells(relation), 1.0),)

    def values(self, totals: Totals, num_records: int) -> tuple[int, ...]:
        """Return the noisy counts."""
        del num_records
        return totals


@dataclass(frozen=True, kw_only=True)
class GridMechanism(TotalsMechanism):
    """Base of mechanisms on numbers within public bounds, as steps of a grid."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Check the bounds and keep them as floats."""
        for name in ("lower", "upper"):
            check_bound(name, getattr(self, name))
            # The sum with 0.0 turns -0.0 into 0.0, which has another text in JSON.
            object.__setattr__(self, name, float(getattr(self, name)) + 0.0)
        if not self.upper - self.lower >= MIN_SCALE:
            condition = f"at least {MIN_SCALE:g} above lower = {self.lower:g}"
            check.fail("upper", condition, self.upper)

    @property
    def step(self) -> float:
        """Step of the grid, a power of two."""
        size = max(abs(self.lower), abs(self.upper))
        # At most 2^41 steps in the range, and 2^54 between 0 and a bound.
        exponents = (
            math.frexp(self.upper - self.lower)[1] - 41,
            math.frexp(size)[1] - 54,
        )
        return math.ldexp(1.0, max(exponents))

    @property
    def ends(self) -> tuple[int, int]:
        """Steps of the two bounds."""
        return round(self.lower / self.step), round(self.upper / self.step)

    @property
    def center(self) -> int:
        """Steps of the middle, rounded down."""
        return sum(self.ends) // 2

    @property
    def reach(self) -> int:
        """Most steps between a record and the middle."""
        first, last = self.ends
        return max(last - self.center, self.center - first)

    def clip(self, values: Array) -> Array:
        """Return the numbers within the bounds, as steps that are not rounded yet."""
        with np.errstate(all="ignore"):  # a tiny number may underflow
            inside = np.clip(np.nan_to_num(values, nan=0.0), self.lower, self.upper)
            # Exact, because the step is a power of two.
            return np.asarray(inside / self.step)

    def offsets(self, values: Array) -> Numbers:
        """Return the steps of each number from the middle."""
        # Rounding is monotone, on which the sensitivity rests.
        return np.rint(self.clip(values)).astype(np.int64) - self.center

    def inputs(self, budget: Budget) -> dict[str, int | float]:
        """Return the step of the grid, and the sensitivities and scales."""
        return {"grid": self.step} | super().inputs(budget)


@dataclass(frozen=True, kw_only=True)
class GridSum(GridMechanism):
    """Sum of numbers within public bounds.

    Examples
    --------
    >>> made = GridSum(lower=0.0, upper=1.0)
    >>> made.step == 2.0**-40, made.ends == (0, 2**40)
    (True, True)
    >>> made.sum_up(np.array([0.5, 7.0, math.nan])) == 3 * 2**39
    True
    """

    kind = "stats/sum"

    def sum_up(self, values: Array) -> int:
        """Return the exact sum in steps."""
        return _sum(self.offsets(values)) + self.center * len(values)

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return the sum."""
        first, last = self.ends
        change = max(abs(first), abs(last))
        if relation == "replace_one":
            change = last - first
        return (TotalsBlock("", 1, change, 1.0),)

    def values(self, totals: Totals, num_records: int) -> tuple[float, ...]:
        """Return the sum in units of the numbers."""
        del num_records
        return (float(totals[0] * Fraction(self.step)),)


@dataclass(frozen=True, kw_only=True)
class GridMean(GridMechanism):
    """Mean of numbers within public bounds, from their sum about the middle.

    Examples
    --------
    >>> made = GridMean(lower=0.0, upper=1.0)
    >>> made.values((made.sum_up(np.array([1.0, 0.5])),), 2)
    (0.75,)
    """

    kind = "stats/mean"

    def sum_up(self, values: Array) -> int:
        """Return the exact sum in steps from the middle."""
        return _sum(self.offsets(values))

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return the sum about the middle."""
        first, last = self.ends
        change = last - first if relation == "replace_one" else self.reach
        return (TotalsBlock("", 1, change, 1.0),)

    def values(self, totals: Totals, num_records: int) -> tuple[float, ...]:
        """Return the mean in units of the numbers."""
        mean = self.center + Fraction(totals[0], num_records)
        return (float(mean * Fraction(self.step)),)


@dataclass(frozen=True, kw_only=True)
class GridGroupMeans(GridMechanism):
    """Means of groups of records, from noisy sums and noisy counts.

    Examples
    --------
    >>> made = GridGroupMeans(lower=0.0, upper=1.0, num_groups=2)
    >>> sums = made.sum_up(np.array([1.0, 0.0, 1.0]), np.array([0, 0, -1]))
    >>> made.values(tuple(sums), 3)
    (0.5, 0.5)
    """

    kind = "stats/group_means"
    num_groups: int

    def __post_init__(self) -> None:
        """Check the bounds and the number of groups."""
        super().__post_init__()
        check.integer(1, maximum=check.MAX_LENGTH, num_groups=self.num_groups)

    def sum_up(self, values: Array, groups: Numbers) -> list[int]:
        """Return the sums of the groups in steps from the middle, and their counts.

        A negative group means none.
        """
        is_known, offsets = groups >= 0, self.offsets(values)
        sums = [0] * self.num_groups
        for part in _parts(len(values)):
            partial, mask = np.zeros(self.num_groups, np.int64), is_known[part]
            # `np.add.at` adds every offset, also if a group occurs several times.
            np.add.at(partial, groups[part][mask], offsets[part][mask])
            sums = [a + b for a, b in zip(sums, partial.tolist(), strict=True)]
        counts = np.bincount(groups[is_known], minlength=self.num_groups)
        return [*sums, *counts.tolist()]

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return the sums and the counts, each with half of epsilon."""
        changes = _changed_cells(relation)
        return (
            TotalsBlock("sum_", self.num_groups, changes * self.reach, 0.5),
            TotalsBlock("count_", self.num_groups, changes, 0.5),
        )

    def values(self, totals: Totals, num_records: int) -> tuple[float, ...]:
        """Return the means, within the grid, and the middle if a count is below 1."""
        del num_records
        first, last = self.ends
        sums, counts = totals[: self.num_groups], totals[self.num_groups :]
        means = [
            Fraction(total, count) if count >= 1 else Fraction(0)
            for total, count in zip(sums, counts, strict=True)
        ]
        inside = (
            min(max(self.center + mean, Fraction(first)), Fraction(last))
            for mean in means
        )
        return tuple(float(mean * Fraction(self.step)) for mean in inside)


@dataclass(frozen=True, kw_only=True)
class RankQuantile(GridMechanism):
    """Quantile of numbers within public bounds, drawn by ranks on the grid.

    Examples
    --------
    >>> made = RankQuantile(lower=0.0, upper=1.0, level=0.5)
    >>> made.inputs(Budget(epsilon=1.0, delta=0.0, relation="zero_out"))["rate"]
    1.0
    """

    kind = "stats/quantile"
    level: float

    def __post_init__(self) -> None:
        """Check the bounds and the level."""
        super().__post_init__()
        check.open_interval(0.0, 1.0, level=self.level)
        object.__setattr__(self, "level", float(self.level))

    def blocks(self, relation: str) -> tuple[TotalsBlock, ...]:
        """Return nothing: the only total is a grid point, without additive noise."""
        del relation
        return ()

    @property
    def num_totals(self) -> int:
        """Number of totals."""
        return 1

    @property
    def points(self) -> tuple[int, int]:
        """Steps of the first and the last grid point within the bounds."""
        return math.ceil(self.lower / self.step), math.floor(self.upper / self.step)

    def rate(self, budget: Budget) -> float:
        """Return the rate of the ranks, rounded down."""
        level, epsilon = Fraction(self.level), Fraction(budget.epsilon)
        # A replaced record moves a score by at most 1, and a record that is set to zero
        # by max(q, 1 - q), see `ranks`.
        change = Fraction(1)
        if budget.relation == "zero_out":
            change = max(level, 1 - level)
        exact = epsilon / (2 * change)
        nearest = float(exact)
        # A larger rate would exceed epsilon.
        return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)

    def event(self, budget: Budget) -> Event:
        """Return the event of a release."""
        return BoundedRangeEvent(budget.epsilon)

    def inputs(self, budget: Budget) -> dict[str, int | float]:
        """Return the step of the grid and the rate."""
        return {"grid": self.step, "rate": self.rate(budget)}

    def positions(self, values: Array) -> Numbers:
        """Return the first grid point that is not below each number."""
        # A record is counted from its own grid point on.
        return np.ceil(self.clip(values)).astype(np.int64)

    def release(
        self, rng: np.random.Generator, totals: Exact, budget: Budget
    ) -> Totals:
        """Draw a grid point by the positions of the records, one for each."""
        first, last = self.points
        positions = np.asarray(totals, np.int64)
        rate = Fraction(self.rate(budget))
        level = Fraction(self.level)
        return (Ranks(positions, first, last, level=level, rate=rate).draw(rng),)

    def values(self, totals: Totals, num_records: int) -> tuple[float, ...]:
        """Return the grid point in units of the numbers."""
        del num_records
        return (float(totals[0] * Fraction(self.step)),)

    def check_totals(self, totals: Sequence[int]) -> None:
        """Raise unless the total is a grid point within the bounds."""
        super().check_totals(totals)
        first, last = self.points
        if not first <= totals[0] <= last:
            check.fail("totals[0]", f"from {first} to {last}", totals[0])


MECHANISMS: tuple[type[TotalsMechanism], ...] = (
    RecordCount,
    CellCounts,
    GridSum,
    GridMean,
    GridGroupMeans,
    RankQuantile,
)


def split_bounds(bounds: object) -> dict[str, float]:
    """Return the two bounds of a pair by name. The mechanisms check their values."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        check.fail("bounds", "a pair (lower, upper)", check.describe(bounds))
    return {"lower": bounds[0], "upper": bounds[1]}


def check_bound(name: str, value: float) -> None:
    """Raise unless a bound is a number of at most 1e280 in size."""
    bound: dict[str, Any] = {name: value}
    check.at_least(-MAX_SCALE, **bound)
    if value > MAX_SCALE:
        check.fail(name, f"<= {MAX_SCALE:g}", value)


def _changed_cells(relation: str) -> int:
    """Return how many cells or groups lose or gain a record between neighbors."""
    return 2 if relation == "replace_one" else 1


def _sum(numbers: Numbers) -> int:
    """Return the exact sum of numbers below 2^42 in size."""
    return sum(int(numbers[part].sum()) for part in _parts(len(numbers)))


def _parts(length: int) -> Iterator[slice]:
    """Yield parts of so few numbers that sums of their steps have 64 bits."""
    num_records = 1 << 20  # each has less than 2^42 steps
    for start in range(0, length, num_records):
        yield slice(start, start + num_records)
