"""Metrics: what cells measure, what theory says of it, and what a report shows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from dpsample.core import check

Params = Mapping[str, Any]
# A number, a function of the cell, or the name of another metric of the same cell.
Reference = float | str | Callable[[Params], float]
Kind = Literal["mean", "rate", "exact"]
ROUNDING = 1e-9


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
    baseline : float, str or callable, optional
        Value of the best answer that reads no record, such as theta = 0. An upper bound
        that is no smaller is vacuous.
    tolerance : float
        Relative allowance for rounding when numbers are compared; the report shows it.
    """

    name: str
    _: KW_ONLY
    label: str = ""
    kind: Kind = "mean"
    bound: Reference | None = None
    lower: Reference | None = None
    expected: Reference | None = None
    printed: Reference | None = None
    baseline: Reference | None = None
    tolerance: float = ROUNDING

    def __post_init__(self) -> None:
        """Validate the text fields and the numbers."""
        check.instance(str, name=self.name, label=self.label)
        check.non_negative(tolerance=self.tolerance)
        check.one_of(("mean", "rate", "exact"), kind=self.kind)
        for name in ("bound", "lower", "expected", "printed", "baseline"):
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
        """What theory and print say, by the names that the report uses."""
        every = {
            "upper bound": self.bound,
            "lower bound": self.lower,
            "expected": self.expected,
            "printed bound": self.printed,
        }
        return {word: value for word, value in every.items() if value is not None}

    @property
    def stated(self) -> dict[str, Reference]:
        """The references, and the baseline if there is one."""
        own = {} if self.baseline is None else {"baseline": self.baseline}
        return self.references | own


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
        Metrics that are not compared with a reference there; by default all.
    """

    when: Callable[[Params], bool]
    reason: str
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate what does not depend on the cells."""
        if not callable(self.when):
            check.fail("when", "a function of the parameters", check.shown(self.when))
        check.instance(str, reason=self.reason)
        check.members(str, metrics=self.metrics)

    def concerns(self, metric: str, params: Params) -> bool:
        """Whether the metric's references are marked in this cell."""
        check.instance(str, metric=metric)
        check.instance(Mapping, params=params)
        return (not self.metrics or metric in self.metrics) and bool(self.when(params))


def names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Means against one parameter, with bounds, and bands from the replicates.

    Attributes
    ----------
    x : str
        Parameter on the horizontal axis.
    y : str or tuple of str
        Metric, or metrics, on the vertical axis.
    lines, panels : str or tuple of str
        Parameters with one line, and one panel, for each value. Every other parameter
        has one value, in the grid or in ``where``.
    where : mapping
        Values of parameters: only these cells are drawn.
    bound : bool
        Draw bounds and expected values too.
    log_log : bool
        Logarithmic axes.
    title, x_label, y_label : str
        Words; by default those of the study and of the metric.
    """

    x: str
    y: str | tuple[str, ...]
    lines: str | tuple[str, ...] = ()
    panels: str | tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    bound: bool = True
    log_log: bool = True
    title: str = ""
    x_label: str = ""
    y_label: str = ""

    def __post_init__(self) -> None:
        """Validate the text fields; `Study` knows the names."""
        texts = {"x": self.x, "title": self.title}
        check.instance(str, **texts, x_label=self.x_label, y_label=self.y_label)
        check.instance(bool, bound=self.bound, log_log=self.log_log)
        check.instance(Mapping, where=self.where)
        for name in ("y", "lines", "panels"):
            value = getattr(self, name)
            check.members(str, **{name: (value,) if isinstance(value, str) else value})

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that are drawn."""
        return names(self.y)


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Exponent of a power law: slope of log mean against log parameter.

    Attributes
    ----------
    x, y : str
        Parameter and metric. There is one fit for each choice of the others.
    expected : float or callable
        The theorem's exponent, or a function of the parameters that are fixed.
    theorem : str
        Where it is proved.
    is_exact : bool
        The theorem gives the rate itself, not only an upper bound of it.
    where : mapping
        Values of parameters: only these cells are fitted.
    tolerance : float
        How far lower-order terms may move the exponent; the report says so where they
        do. A fit agrees if it is so close, however narrow its interval.
    note : str
        Explains a difference, printed beside the fit.
    """

    x: str
    y: str
    expected: float | Callable[[Params], float]
    theorem: str
    is_exact: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        """Validate the text fields and the number; `Study` knows the names."""
        check.instance(str, x=self.x, y=self.y, theorem=self.theorem, note=self.note)
        check.instance(bool, is_exact=self.is_exact)
        check.instance(Mapping, where=self.where)
        check.non_negative(tolerance=self.tolerance)
        if not callable(self.expected):
            check.open_interval(-math.inf, math.inf, expected=self.expected)
