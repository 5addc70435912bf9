"""Fitted exponents beside those of the theorems.

The slope is that of the least-squares line through the points (log x, log mean). It is
a linear function of the log means, so its error is that of the means, by the delta
method: the interval is about this slope of the true means, whether or not they follow a
power law. The largest distance from the line says how far they do not. A verdict needs
the interval that holds for all fits of the study together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsample.studying.study import Study
from dpsample.studying.summaries import Estimate, Interval, joint_confidence
from dpsample.studying.views import Slope

# Two points fit any power law.
FEWEST = 2
ROUNDING = 1e-6


class Fit(NamedTuple):
    """One fitted exponent; ``params`` are those that are fixed."""

    slope: Slope
    params: Mapping[str, Any]
    num_points: int
    value: float
    interval: Interval
    wide: Interval
    misfit: float
    expected: float

    @property
    def verdict(self) -> str:
        """The fit beside the theorem, in words."""
        slack, low, high = self.slope.tolerance, *self.wide
        if math.isinf(low):
            return "unknown: one replicate"
        if low - ROUNDING <= self.expected <= high + ROUNDING:
            return "agrees"
        if low - slack <= self.expected <= high + slack:
            return f"agrees within {slack:g}"
        if self.value < self.expected and not self.slope.is_exact:
            return "smaller than the bound's"
        return "differs" if self.slope.is_exact else "larger than the bound's"

    @property
    def is_refuted(self) -> bool:
        """Whether the report has to explain it."""
        return self.verdict in ("differs", "larger than the bound's")


def fits(study: Study, found: Sequence[Estimate]) -> list[Fit]:
    """All fits that have enough cells with positive means."""
    chosen = [
        (slope, params, points)
        for slope in study.slopes
        for params, group in _groups(slope, found)
        if len(points := [point for point in group if 0.0 < point.mean < math.inf])
        >= FEWEST
    ]
    levels = (study.confidence, joint_confidence(len(chosen)))
    return [_fit(slope, params, points, levels) for slope, params, points in chosen]


def _groups(
    slope: Slope, found: Sequence[Estimate]
) -> list[tuple[dict[str, Any], list[Estimate]]]:
    """Estimates that differ in the slope's parameter only."""
    groups: dict[str, tuple[dict[str, Any], list[Estimate]]] = defaultdict(
        lambda: ({}, [])
    )
    for estimate in found:
        params = dict(estimate.params)
        is_meant = all(params.get(n) == v for n, v in slope.where.items())
        x = params.pop(slope.x, None)
        has_log = isinstance(x, int | float) and 0.0 < x < math.inf
        if estimate.metric.name == slope.y and has_log and is_meant:
            fixed, points = groups[repr(sorted(params.items()))]
            fixed.update(params)
            points.append(estimate)
    return list(groups.values())


def _fit(
    slope: Slope,
    params: dict[str, Any],
    points: list[Estimate],
    levels: tuple[float, float],
) -> Fit:
    x = np.log([float(point.params[slope.x]) for point in points])
    means = np.array([point.mean for point in points])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    value = float(weights @ np.log(means))
    line = np.log(means).mean() + value * (x - x.mean())
    expected = slope.expected
    return Fit(
        slope=slope,
        params=params,
        num_points=len(points),
        value=value,
        interval=_interval(points, weights, value, levels[0]),
        wide=_interval(points, weights, value, levels[1]),
        misfit=float(np.abs(np.log(means) - line).max()),
        expected=float(expected(params) if callable(expected) else expected),
    )


def _interval(
    points: Sequence[Estimate], weights: Any, value: float, confidence: float
) -> Interval:
    """Student's interval with the degrees of freedom of Welch and Satterthwaite."""
    from scipy.special import stdtrit

    errors = np.array([point.standard_error / point.mean for point in points])
    parts = (weights * errors) ** 2
    total = float(parts.sum())
    if total == 0.0:
        return Interval(value, value)
    if math.isnan(total):
        return Interval(-math.inf, math.inf)
    degrees = np.array([max(len(point.values) - 1, 1) for point in points])
    freedom = total**2 / float(np.sum(parts**2 / degrees))
    half = -float(stdtrit(freedom, 0.5 * (1.0 - confidence))) * math.sqrt(total)
    return Interval(value - half, value + half)
