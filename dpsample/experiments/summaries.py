"""Means of a study with their intervals, and their comparison with theory.

Each metric of a cell has a mean over replicates, and may have references: an upper
bound, a lower bound or an expected value by theory, or an upper bound that a paper
states without a proof ("printed bound"). A reference may itself be another metric of
the same cell, which is then called measured.

A mean is below its bound if its whole interval is. It contradicts the bound if a wider
interval does, which holds for all comparisons of the study together. Their joint
probability is 99% if means are normal, so that none of hundreds of true theorems looks
false. Otherwise the mean touches the bound: the bound is attained, or there are too few
replicates. Three verdicts say that a comparison shows nothing: "no bound" (it is
infinite), "vacuous" (the baseline, an answer that reads no record, meets it as well)
and "uninformative" (the interval is wider than the bound itself).
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.experiments.study import Cell, Metric, Params, Reference, Study, key_of
from dpsample.experiments.tasks import Row

Bounded = Literal["below", "above", "agrees", "differs", "touches"]
# Verdicts of comparisons that show nothing.
Idle = Literal["inapplicable", "no bound", "vacuous", "uninformative"]
# The last two say that a printed bound holds, or that a mean is above it.
Verdict = Bounded | Idle | Literal["as printed", "beyond print"]
# Probability that any true statement of a study is called false, if means are normal.
FALSE_ALARM = 0.01
# Verdicts that contradict theory. A published bound is not theory.
REFUTED = {"upper bound": "above", "lower bound": "below", "expected": "differs"}
# Verdicts if a reference holds.
HOLDS: dict[str, Verdict] = {
    "upper bound": "below",
    "lower bound": "above",
    "expected": "agrees",
    "printed bound": "as printed",
}
# Verdicts if a bound does not hold.
BROKEN: dict[str, Verdict] = {
    "upper bound": "above",
    "lower bound": "below",
    "printed bound": "beyond print",
}


class MeanInterval(NamedTuple):
    """Ends of a confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """Mean of one metric in one cell, with its interval."""

    params: Mapping[str, Any]
    key: str  # key of the cell, see `key_of`
    metric: Metric
    values: Array  # (replicates,)
    interval: MeanInterval
    confidence: float  # probability with which the interval holds
    replicates: tuple[int, ...]  # the number of the replicate of each value

    @property
    def mean(self) -> float:
        """Mean of the replicates."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean, which is NaN for one replicate.

        It is 0 for an exact number, and for an infinite mean, whose interval is only
        itself.
        """
        if self.metric.kind == "exact" or not math.isfinite(self.mean):
            return 0.0
        if len(self.values) == 1:
            return math.nan
        return float(self.values.std(ddof=1)) / math.sqrt(len(self.values))


@dataclass(frozen=True, kw_only=True)
class TheoryComparison:
    """A mean and a reference with which it is compared, if there is any."""

    estimate: Estimate
    reference: str = ""  # kind of the reference, such as "upper bound"
    value: float = math.nan  # value of the reference
    baseline: float = math.nan  # value of the best answer that reads no record
    verdict: Verdict | Literal[""] = ""
    reason: str = ""  # why the reference does not apply, empty if it does

    @property
    def is_refuted(self) -> bool:
        """Whether the measurement contradicts the theory."""
        return REFUTED.get(self.reference) == self.verdict


def interval(metric: Metric, values: Array, confidence: float) -> MeanInterval:
    """Return the interval of a mean, by the kind of its metric."""
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean, number = float(values.mean()), len(values)
    if math.isnan(mean):
        check.fail(metric.name, "without infinities of both signs", "both")
    if not math.isfinite(mean):
        return MeanInterval(mean, mean)
    if metric.kind == "exact":
        # An exact number is the same in all replicates up to rounding errors.
        spread = float(np.ptp(values))
        if spread > metric.tolerance * float(np.abs(values).max()):
            check.fail(metric.name, "the same in all replicates", f"spread {spread:g}")
        return MeanInterval(mean, mean)
    tail = 0.5 * (1.0 - confidence)
    if metric.kind == "rate":
        return _binomial(metric, values, tail)
    if number == 1:
        return MeanInterval(-math.inf, math.inf)
    error = float(values.std(ddof=1)) / math.sqrt(number)
    return student(mean, error, number - 1, confidence)


def student(
    value: float, error: float, freedom: float, confidence: float
) -> MeanInterval:
    """Return Student's interval, which has all values if the error is unknown."""
    from scipy.special import stdtrit

    if math.isnan(error):
        return MeanInterval(-math.inf, math.inf)
    # The quantile of a lower tail is negative.
    half = -float(stdtrit(freedom, 0.5 * (1.0 - confidence))) * error
    return MeanInterval(value - half, value + half)


def _binomial(metric: Metric, values: Array, tail: float) -> MeanInterval:
    """Return the exact interval of a rate (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    if not np.isin(values, (0.0, 1.0)).all():
        check.fail(metric.name, "0 or 1, as a rate", "another number")
    hits, number = int(values.sum()), len(values)
    low = betaincinv(hits, number - hits + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, number - hits, 1.0 - tail) if hits < number else 1.0
    return MeanInterval(float(low), float(high))


def estimates(study: Study, rows: Iterable[Row], *, quick: bool) -> list[Estimate]:
    """Return an estimate for each declared cell and metric that has rows."""
    values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    num_replicates = {
        cell.key: study.replicates_of(cell, quick=quick)
        for cell in study.cells(quick=quick)
    }
    for row in rows:
        if row.replicate < num_replicates.get(row.key, 0):
            for name, value in row.values.items():
                values[row.key, name][row.replicate] = value
    return [
        Estimate(
            cell.params,
            cell.key,
            metric,
            sample := np.array(list(by_replicate.values())),
            interval(metric, sample, study.confidence),
            study.confidence,
            tuple(by_replicate),
        )
        for cell in study.cells(quick=quick)
        for metric in study.metrics
        if (by_replicate := values.get((cell.key, metric.name)))
    ]


def evaluate_reference(
    metric: Metric, word: str, reference: Reference, params: Params, *, reason: str
) -> float:
    """Return the value of a reference in a cell.

    ``word`` is the kind of the reference. The value may be NaN only if there is a
    ``reason`` why the reference does not apply.
    """
    value = float(reference(params) if callable(reference) else reference)
    if math.isnan(value) and not reason:
        where = f"{word} of {metric.name} in cell {key_of(params)}"
        check.fail(where, "a number", "nan", "Declare where it is inapplicable.")
    return value


def evaluate(metrics: Sequence[Metric], cell: Cell, reasons: Mapping[str, str]) -> None:
    """Evaluate the references of a cell to find errors, except measured ones.

    ``reasons`` has the reasons why references do not apply, by metric.
    """
    for metric in metrics:
        for word, reference in metric.stated.items():
            if not isinstance(reference, str):  # not the name of another metric
                reason = reasons.get(metric.name, "")
                evaluate_reference(metric, word, reference, cell.params, reason=reason)


def joint_confidence(number: int) -> float:
    """Return the confidence of each of several intervals that hold together.

    Each has an equal share of the error `FALSE_ALARM` (Bonferroni's correction).
    """
    return 1.0 - FALSE_ALARM / max(number, 1)


def comparisons(
    measured: Sequence[Estimate], inapplicable: Mapping[str, Mapping[str, str]]
) -> list[TheoryComparison]:
    """Compare every estimate with each of its references, in the order of estimates.

    An estimate without references has one line without a verdict. ``inapplicable`` has
    the reasons why references do not apply, by cell and metric.
    """
    by_name = {(e.key, e.metric.name): e for e in measured}
    # Only comparisons that can contradict theory share the level. Those that are marked
    # as inapplicable do not, nor do baselines, which `references` leaves out.
    number = sum(
        (e.metric.name not in inapplicable.get(e.key, {})) * len(e.metric.references)
        for e in measured
    )
    confidence = joint_confidence(number)
    lines = []
    for estimate in measured:
        metric, key = estimate.metric, estimate.key
        reason = inapplicable.get(key, {}).get(metric.name, "")
        values: dict[str, float] = {}
        others: dict[str, Estimate | None] = {}
        for word, reference in metric.stated.items():
            stated_value = reference
            if isinstance(reference, str):  # another metric of the cell
                other = others[word] = by_name.get((key, reference))
                stated_value = math.nan if other is None else other.mean
            values[word] = evaluate_reference(
                metric, word, stated_value, estimate.params, reason=reason
            )
        baseline = values.pop("baseline", math.nan)
        # Infinity stands for no statement of the paper about this cell. A proved bound
        # that is infinite remains, because it is a result: "no bound".
        if values.get("printed bound") == math.inf:
            del values["printed bound"]
        if not values:
            lines.append(TheoryComparison(estimate=estimate, baseline=baseline))
        for word, value in values.items():
            verdict: Verdict = "inapplicable"
            if not reason:
                other = others.get(word)
                joint_interval = interval(metric, estimate.values, confidence)
                interval_alone = estimate.interval
                if other is not None and other.metric.kind != "exact":
                    interval_alone = _difference_interval(
                        estimate, other, estimate.confidence
                    )
                    joint_interval = _difference_interval(estimate, other, confidence)
                # Allowance for the rounding of computed numbers. An infinite reference
                # has none, because inf - inf is NaN.
                slack = metric.tolerance * abs(value)
                slack = slack if math.isfinite(value) else 0.0
                verdict = _verdict(interval_alone, joint_interval, word, value, slack)
                verdict = _qualify_verdict(
                    verdict, interval_alone, word, value, baseline
                )
            lines.append(
                TheoryComparison(
                    estimate=estimate,
                    reference=word,
                    value=value,
                    baseline=baseline,
                    verdict=verdict,
                    reason=reason,
                )
            )
    return lines


def _difference_interval(
    estimate: Estimate, other: Estimate, confidence: float
) -> MeanInterval:
    """Return the interval of a mean that is compared with another measured mean.

    If both have the same replicates, it is the interval of the mean difference, moved
    by the other mean. Otherwise both errors are added up. They are also added up for
    rates: all differences of few replicates may be equal by chance, and then Student's
    interval has no width.
    """
    low, high = interval(estimate.metric, estimate.values, confidence)
    if not (math.isfinite(estimate.mean) and math.isfinite(other.mean)):
        return MeanInterval(low, high)
    kinds = {estimate.metric.kind, other.metric.kind}
    if estimate.replicates != other.replicates or "rate" in kinds:
        other_interval = interval(other.metric, other.values, confidence)
        below, above = other.mean - other_interval.low, other_interval.high - other.mean
        return MeanInterval(low - above, high + below)
    # Differences of exact numbers need not be equal in all replicates.
    metric = dataclasses.replace(estimate.metric, kind="mean")
    low, high = interval(metric, estimate.values - other.values, confidence)
    return MeanInterval(low + other.mean, high + other.mean)


def _verdict(
    alone: MeanInterval, joint: MeanInterval, word: str, value: float, slack: float
) -> Verdict:
    """Return the verdict on a reference.

    A bound holds if the interval of this mean ``alone`` does not exceed it. It is
    broken only if the ``joint`` interval, which is wider, is beyond it. The interval of
    a single replicate is the whole line, so it can only touch. ``slack`` allows for
    rounding errors of the value.
    """
    if word == "expected":
        is_inside = joint.low - slack <= value <= joint.high + slack
        if not is_inside:
            return "differs"
        return "agrees" if math.isfinite(alone.low) else "touches"
    if word == "lower bound":  # the same, mirrored
        alone = MeanInterval(-alone.high, -alone.low)
        joint, value = MeanInterval(-joint.high, -joint.low), -value
    if alone.high <= value + slack:
        return HOLDS[word]
    return BROKEN[word] if joint.low > value + slack else "touches"


def _qualify_verdict(
    verdict: Verdict, alone: MeanInterval, word: str, value: float, baseline: float
) -> Verdict:
    """Replace a verdict without a contradiction if the comparison shows nothing."""
    is_above = word in ("upper bound", "printed bound")
    if verdict == BROKEN.get(word) or verdict == "differs":
        return verdict
    if value == (-math.inf if word == "lower bound" else math.inf):
        return "no bound"
    if is_above and value >= baseline:  # false without a baseline, which is NaN
        return "vacuous"
    low, high = alone
    is_open = verdict in ("touches", "agrees")
    # A reference of 0 has no size with which the width could be compared.
    if is_open and value != 0.0 and high - low > abs(value):
        return "uninformative"
    return verdict
