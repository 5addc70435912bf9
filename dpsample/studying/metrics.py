"""What cells measure, and what theory says about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from dpsample import _check as check

Params = Mapping[str, Any]
# A number, a function of the cell, or the name of another metric of the same cell.
Reference = float | str | Callable[[Params], float]
Kind = Literal["mean", "rate", "exact"]


@dataclass(frozen=True)
class Metric:
    """One number that a cell measures, and what theory says about it.

    Attributes
    ----------
    name : str
        Key in what the cell returns.
    label : str
        Words for axes and tables; by default the name.
    kind : {"mean", "rate", "exact"}
        "mean": replicates scatter, their mean has a Student interval. "rate": values 0
        and 1, with the exact binomial interval. "exact": a computed number, the same in
        every replicate.
    bound, lower, expected : float, str or callable, optional
        Upper bound, lower bound and exact value that theory proves for the mean: a
        number, a function of the cell's parameters, or the name of another metric.
    printed : float, str or callable, optional
        Upper bound that a paper states and nothing proves: a mean above it refutes the
        print, not the theory. Infinity where nothing is printed.
    tolerance : float
        Relative error of the numbers compared, that is none of the theorem's.
    """

    name: str
    _: KW_ONLY
    label: str = ""
    kind: Kind = "mean"
    bound: Reference | None = None
    lower: Reference | None = None
    expected: Reference | None = None
    printed: Reference | None = None
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        """Check the words once."""
        check.instance(str, name=self.name, label=self.label)
        check.non_negative(tolerance=self.tolerance)
        check.one_of(("mean", "rate", "exact"), kind=self.kind)
        for name in ("bound", "lower", "expected", "printed"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str) or callable(value)):
                remedy = "Or name a metric, or pass a function of the parameters."
                check.at_least(-math.inf, **{name: value}, remedy=remedy)

    @property
    def title(self) -> str:
        """Words for axes and tables."""
        return self.label or self.name

    @property
    def references(self) -> dict[str, Reference]:
        """What theory and print say, by the words of the report."""
        every = {
            "upper bound": self.bound,
            "lower bound": self.lower,
            "expected": self.expected,
            "printed bound": self.printed,
        }
        return {word: value for word, value in every.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Inapplicable:
    """Cells whose bound proves nothing there, decided before the run.

    Attributes
    ----------
    when : callable
        Whether a condition of the theorem fails, from the cell's parameters.
    reason : str
        The condition, in words.
    metrics : tuple of str
        Metrics whose references are meant; by default all.
    """

    when: Callable[[Params], bool]
    reason: str
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what is no function of the cells."""
        if not callable(self.when):
            check.fail("when", "a function of the parameters", check.shown(self.when))
        check.instance(str, reason=self.reason)
        check.members(str, metrics=self.metrics)

    def concerns(self, metric: str, params: Params) -> bool:
        """Whether the metric's references are marked in this cell."""
        check.instance(str, metric=metric)
        check.instance(Mapping, params=params)
        return (not self.metrics or metric in self.metrics) and bool(self.when(params))
