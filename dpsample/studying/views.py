"""What a report shows of a study: figures and fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpsample import _check as check
from dpsample.studying.metrics import Params


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
        """Check the words; `Study` knows the names."""
        words = {"x": self.x, "title": self.title}
        check.instance(str, **words, x_label=self.x_label, y_label=self.y_label)
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
        How far lower-order terms may move the exponent beyond the interval; the report
        says so where they do.
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
        """Check the words and the number; `Study` knows the names."""
        check.instance(str, x=self.x, y=self.y, theorem=self.theorem, note=self.note)
        check.instance(bool, is_exact=self.is_exact)
        check.instance(Mapping, where=self.where)
        check.non_negative(tolerance=self.tolerance)
        if not callable(self.expected):
            check.open_interval(-math.inf, math.inf, expected=self.expected)
