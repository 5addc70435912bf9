"""Privacy budgets, which are fixed before the records are used, and exact sums.

A float has two readings: the double itself, and the shortest decimal that rounds to it.
0.1 in a program means one tenth. Budgets add up as exact fractions in both readings,
and the smaller sum counts, because each reading is consistent. So 0.3 + 0.3 + 0.4 fits
into 1, and ten times 0.1 as well. (Numbers that the package computes and then states
are rounded up by more than the difference of the readings.)
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from dpsample.core import check
from dpsample.problem.facts import RELATIONS

Relation = Literal["replace_one", "zero_out"]
RELATION_WORDS = {
    "replace_one": "one record is replaced by any other",
    "zero_out": "one record's loss is set to zero, the number of records fixed",
}
# Maximum distance between sums of two neighbors, in units of the bound of one record's
# vector.
SHIFTS = {"replace_one": 2.0, "zero_out": 1.0}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """(epsilon, delta) under a named relation between neighboring data sets.

    Parameters
    ----------
    epsilon : float or Fraction
        Privacy loss, finite and > 0. Fractions are rounded down.
    delta : float or Fraction
        Probability, >= 0 and < 1. At 0 the budget is pure. Draws of `dpsample.release`
        on bounded domains, `ObjectivePerturbation`, `HeavyTailedFrankWolfe`,
        `HeavyTailedLasso`, discrete and continuous Laplace noise, K-norm noise and the
        best of purely private runs can meet that. Gaussian noise cannot. Neither number
        may be subnormal (below 2.2e-308).
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors. Either one record is replaced by any other, or
        one record's loss is set to zero. The number of records is public in both cases.

    Raises
    ------
    ValueError
        If a number is out of its range or the relation is unknown.

    Examples
    --------
    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06, relation='replace_one')
    >>> Budget(epsilon=1.0, delta=0.0).is_pure
    True
    """

    epsilon: float
    delta: float
    relation: Relation = "replace_one"

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(epsilon=self.epsilon)
        remedy = "A common choice is far below 1 / (number of records)."
        check.half_open(0.0, 1.0, delta=self.delta, remedy=remedy)
        # Products with subnormal numbers would lose their digits.
        check.normal(epsilon=self.epsilon)
        if self.delta != 0.0:
            check.normal(delta=self.delta)
        check.one_of(RELATIONS, relation=self.relation)
        object.__setattr__(self, "epsilon", _round_down(self.epsilon))
        object.__setattr__(self, "delta", _round_down(self.delta))

    @property
    def is_pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0.0


def _round_down(value: float | Fraction) -> float:
    """Return the largest float up to a number."""
    nearest = float(value) + 0.0  # turns -0.0 into 0.0
    is_above = isinstance(value, Fraction) and Fraction(nearest) > value
    return math.nextafter(nearest, 0.0) if is_above else nearest


def check_not_pure(budget: Budget | None, method: str) -> None:
    """Raise for a pure budget if a method has no proof at delta = 0."""
    if budget is not None and budget.is_pure:
        remedy = (
            "Give a delta far below 1 / (number of records), take a smooth loss with "
            "dps.optimizers.ObjectivePerturbation() or dps.release, an l1 ball with "
            "dps.optimizers.HeavyTailedFrankWolfe(), or ask a query with "
            "dps.noise.laplace_mechanism, k_norm_mechanism, geometric_mechanism or "
            "dps.stats, which need none."
        )
        check.fail("budget.delta", f"> 0 for {method}", "0", remedy)


class Sum(NamedTuple):
    """Exact sum of numbers >= 0 in both readings.

    Attributes
    ----------
    decimal, binary : Fraction
        Sum of the shortest decimals, and of the doubles.
    """

    decimal: Fraction
    binary: Fraction

    def is_within(self, limit: float) -> bool:
        """Return whether the sum is at most a number in one of the two readings."""
        return self.decimal <= _decimal(limit) or self.binary <= Fraction(limit)

    def least(self) -> float:
        """Return the smallest float that the sum is within, or infinity."""
        try:
            nearest = float(self.decimal)
        except OverflowError:
            return math.inf
        # Rounding moved the sum by at most half a unit, and the readings differ by
        # less.
        below, above = (math.nextafter(nearest, end) for end in (0.0, math.inf))
        floats = (below, nearest, above, math.nextafter(above, math.inf))
        return next((x for x in floats if x == math.inf or self.is_within(x)), math.inf)

    def room(self, limit: float) -> float:
        """Return the largest float that may be added within ``limit``, or 0."""
        remainder = _decimal(limit) - self.decimal
        if remainder <= 0:
            return 0.0
        nearest = float(remainder)
        is_within = _decimal(nearest) <= remainder
        return nearest if is_within else math.nextafter(nearest, 0.0)


def exact_sum(values: Iterable[float]) -> Sum:
    """Add numbers without rounding.

    Examples
    --------
    >>> tenths = exact_sum([0.1] * 10)
    >>> tenths.is_within(1.0), tenths.binary > 1, tenths.least()
    (True, True, 1.0)
    """
    numbers = list(values)
    zero = Fraction(0)
    return Sum(sum(map(_decimal, numbers), zero), sum(map(Fraction, numbers), zero))


def _decimal(value: float | Fraction) -> Fraction:
    """Return the shortest decimal that rounds to a float, or a fraction itself."""
    return value if isinstance(value, Fraction) else Fraction(repr(float(value)))
