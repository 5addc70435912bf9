"""Findings of a study: its rows, means compared with theory, and fitted exponents.

A study estimates the exponent of a power law by the slope of the least-squares line
through the points (log x, log mean). The slope is a linear function of the log means,
so its standard error follows from the errors of the means by the delta method. The
interval covers the slope of the true means, whether or not these follow a power law.
The largest distance of a point from the line, `misfit`, shows how far they do not. A
verdict uses a wider interval, which holds for all fits of the study together.

An *exclusion* is a set of cells in which a reference does not apply, with the reason.
It is declared in the study. If that was done only after a run, the report says so.

`results` reads the store of a study. `summary`, `exponents` and `markdown` write
reports.
"""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.experiments.configuration import Bundle, declaration, load
from dpsample.experiments.run import StoredRun, declared_reasons, open_store, store_path
from dpsample.experiments.study import (
    MIN_FIT_POINTS,
    Params,
    Slope,
    Study,
    exponent_of,
    fixed_of,
)
from dpsample.experiments.study import ROUNDING as DEFAULT_TOLERANCE
from dpsample.experiments.summaries import (
    FALSE_ALARM,
    Estimate,
    MeanInterval,
    TheoryComparison,
    comparisons,
    estimates,
    joint_confidence,
    student,
)
from dpsample.experiments.tasks import Row

# File next to the studies. For each study it has a table from the reason of each
# exclusion to the first commit that declares it.
DECLARED = "declared.toml"


class FittedSlope(NamedTuple):
    """One fitted exponent."""

    slope: Slope  # declaration: metric ``y`` against parameter ``x``
    params: Params  # the other parameters, which are fixed
    num_points: int
    value: float  # the slope
    interval: MeanInterval  # holds for this fit alone
    wide: MeanInterval  # holds for all fits of the study together
    misfit: float  # largest distance of a log mean from the line
    expected: float  # exponent of the theorem

    @property
    def verdict(self) -> str:
        """Comparison of the fit with the theorem.

        A fit agrees if the joint interval covers the exponent, or if the slope is
        within the tolerance. It contradicts the theorem only beyond both.
        """
        slack, low, high = self.slope.tolerance, *self.wide
        if math.isinf(low):  # the interval of one replicate has all values
            return "unknown: one replicate"
        # Exact metrics have intervals without a width, so their slopes need an
        # allowance for rounding errors.
        rounding = 1e-6
        if low - rounding <= self.expected <= high + rounding:
            # The interval must be narrower than the exponent itself. Small exponents
            # and 0 are compared with 1/4.
            effect = max(abs(self.expected), 0.25)
            return "uninformative" if high - low > effect else "agrees"
        if abs(self.value - self.expected) <= slack:
            return f"agrees within {slack:g}"
        # An upper bound c x^expected remains above means that fall faster, or grow more
        # slowly, so a smaller slope does not contradict it.
        if self.value < self.expected and not self.slope.is_exact:
            return "smaller than the bound's"
        # The interval alone and the tolerance alone do not reach the exponent, but both
        # together do.
        if low - slack <= self.expected <= high + slack:
            return "touches"
        return "differs" if self.slope.is_exact else "larger than the bound's"

    @property
    def is_refuted(self) -> bool:
        """Whether the report has to explain it."""
        return self.verdict in ("differs", "larger than the bound's")


def fits(study: Study, measured: Sequence[Estimate]) -> list[FittedSlope]:
    """Return all fits that have enough cells with positive means."""
    groups = [
        (slope, params, points)
        for slope in study.slopes
        for params, group in _groups(slope, measured)
        if len(points := [point for point in group if 0.0 < point.mean < math.inf])
        >= MIN_FIT_POINTS
    ]
    levels = (study.confidence, joint_confidence(len(groups)))
    return [
        _fit(slope, params, points, levels, is_paired=slope.x in study.paired)
        for slope, params, points in groups
    ]


def _groups(
    slope: Slope, measured: Sequence[Estimate]
) -> list[tuple[Params, list[Estimate]]]:
    """Return groups of estimates that differ only in the parameter of the slope."""
    groups: dict[str, tuple[Params, list[Estimate]]] = {}
    for estimate in measured:
        params = fixed_of(slope, estimate.params)
        if estimate.metric.name == slope.y and params is not None:
            key = repr(sorted(params.items()))
            groups.setdefault(key, (params, []))[1].append(estimate)
    return list(groups.values())


def _fit(
    slope: Slope,
    params: Params,
    points: list[Estimate],
    levels: tuple[float, float],
    *,
    is_paired: bool,
) -> FittedSlope:
    """Fit a line to the log means.

    ``levels`` are the confidences of the fit alone and of all fits together.
    """
    # The slope is a weighted sum of the log means, with weights that sum to 0.
    x = np.log([float(point.params[slope.x]) for point in points])
    means = np.array([point.mean for point in points])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    value = float(weights @ np.log(means))
    line = np.log(means).mean() + value * (x - x.mean())
    interval = _paired_interval if is_paired else _interval
    return FittedSlope(
        slope=slope,
        params=params,
        num_points=len(points),
        value=value,
        interval=interval(points, weights, value, levels[0]),
        wide=interval(points, weights, value, levels[1]),
        misfit=float(np.abs(np.log(means) - line).max()),
        expected=exponent_of(slope, params),
    )


def _interval(
    points: Sequence[Estimate], weights: Array, value: float, confidence: float
) -> MeanInterval:
    """Return Student's interval, with Welch and Satterthwaite's degrees of freedom."""
    # By the delta method the error of a log mean is the relative error of the mean.
    errors = np.array([point.standard_error / point.mean for point in points])
    parts = (weights * errors) ** 2
    total = float(parts.sum())
    if total == 0.0:
        return MeanInterval(value, value)
    # Each variance has the degrees of freedom of its own replicates.
    degrees = np.array([max(len(point.values) - 1, 1) for point in points])
    freedom = total**2 / float(np.sum(parts**2 / degrees))
    return student(value, math.sqrt(total), freedom, confidence)


def _paired_interval(
    points: Sequence[Estimate], weights: Array, value: float, confidence: float
) -> MeanInterval:
    """Return Student's interval if replicates of all points share their seeds.

    Each replicate then has a slope of its own, up to the linearization. If the points
    have different replicates, their errors are added up, which is the worst case.
    """
    number = min(len(point.values) for point in points)
    are_shared = len({point.replicates for point in points}) == 1
    if are_shared and number > 1:
        # The sum of these over the points is the slope of each replicate, up to a
        # constant.
        shares = [w * p.values / p.mean for w, p in zip(weights, points, strict=True)]
        error = float(np.sum(shares, axis=0).std(ddof=1)) / math.sqrt(number)
    else:
        errors = [point.standard_error / point.mean for point in points]
        error = float(np.abs(weights) @ errors)
    # The error is NaN for one replicate, and `student` returns the whole line.
    return student(value, error, max(number - 1, 1), confidence)


@dataclass(frozen=True, kw_only=True)
class Results:
    """All results of a study, compared with its theory."""

    study: Study
    quick: bool
    rows: Sequence[Row]
    runs: Sequence[StoredRun]
    lines: Sequence[TheoryComparison]  # one or more for each metric of each cell
    fits: Sequence[FittedSlope]
    changed: Sequence[str]  # parts of the configuration that differ from the runs'
    declared_in: Mapping[str, str]  # first commit of the reason of each exclusion

    @property
    def counts(self) -> Counter[str]:
        """Number of comparisons with each verdict."""
        return Counter(line.verdict for line in self.lines if line.verdict)

    @property
    def num_rows(self) -> int:
        """Number of declared replicates that are in the store."""
        return sum(row.replicate < self._wanted.get(row.key, 0) for row in self.rows)

    @property
    def num_others(self) -> int:
        """Number of replicates in the store whose cells are not declared here."""
        return sum(row.key not in self._wanted for row in self.rows)

    @property
    def num_wanted(self) -> int:
        """Number of replicates of a complete run."""
        return sum(self._wanted.values())

    @cached_property
    def _wanted(self) -> dict[str, int]:
        """Declared number of replicates, by cell."""
        cells = self.study.cells(quick=self.quick)
        number = partial(self.study.replicates_of, quick=self.quick)
        return {cell.key: number(cell) for cell in cells}

    def mean(self, metric: str, **params: object) -> float:
        """Return the mean of the declared cell with these parameters.

        It is NaN without replicates. A parameter may be left out if all cells with the
        other ones have the same mean.
        """
        check.one_of([declared.name for declared in self.study.metrics], metric=metric)
        cells = [
            cell.key
            for cell in self.study.cells(quick=self.quick)
            if params.items() <= cell.params.items()
        ]
        if not cells:
            check.fail("cell of an answer", "declared", text_of(params))
        # A set, because an estimate has one line for each of its references.
        means = {
            line.estimate.mean
            for line in self.lines
            if line.estimate.metric.name == metric and line.estimate.key in cells
        }
        if len(means) > 1:
            check.fail("cell of an answer", "one", f"{len(means)} at {text_of(params)}")
        return means.pop() if means else math.nan

    @property
    def refuted(self) -> list[TheoryComparison]:
        """Measurements that contradict the theory."""
        return [line for line in self.lines if line.is_refuted]


def results(bundle: Bundle, output: Path, *, quick: bool = False) -> Results:
    """Read the rows of a study and compare them with its theory."""
    study = load(bundle)
    with open_store(store_path(study.name, output, quick=quick)) as store:
        rows, runs, sources = store.rows(), store.runs(), store.sources()
    measured, current = estimates(study, rows, quick=quick), declaration(bundle, study)
    return Results(
        study=study,
        quick=quick,
        rows=rows,
        runs=runs,
        lines=comparisons(measured, _reasons(study, runs, sources, quick=quick)),
        fits=fits(study, measured),
        changed=[
            name
            for name, text in current.items()
            if any(run.configuration.get(name) != text for run in runs)
        ],
        declared_in=_declared_in(bundle),
    )


def _declared_in(bundle: Bundle) -> dict[str, str]:
    """Read the commits of the study's exclusions from the file next to it."""
    study_file = bundle.sources[-1]  # after the files that it imports
    path = Path(study_file.path).with_name(DECLARED)
    if not path.is_file():
        return {}
    try:
        commits: Any = tomllib.loads(path.read_text("utf-8")).get(bundle.study, {})
    except ValueError as error:
        check.fail("exclusions", f"readable in {path}", f"{error}")
    texts = commits.values() if isinstance(commits, dict) else (None,)
    if not all(isinstance(text, str) for text in texts):
        check.fail("exclusions", f"a table of texts in {path}", repr(commits))
    return dict(commits)


def _reasons(
    study: Study,
    runs: Sequence[StoredRun],
    sources: Mapping[str, set[int]],
    *,
    quick: bool,
) -> dict[str, dict[str, str]]:
    """Return reasons by cell and metric, marked if a run did not declare them.

    ``sources`` has the numbers of the runs that computed rows, by cell.
    """
    reasons_by_cell = declared_reasons(study, quick=quick)
    for key, reasons in reasons_by_cell.items():
        sources_of_cell = [run for run in runs if run.number in sources.get(key, ())]
        for metric, reason in reasons.items():
            if any(
                run.declared.get(key, {}).get(metric) != reason
                for run in sources_of_cell
            ):
                reasons[metric] = f"{reason} (DECLARED AFTER THE RUN)"
    return reasons_by_cell


HEAD = (
    *("metric", "replicates", "mean", "low", "high", "baseline", "reference", "value"),
    *("tolerance", "verdict", "reason"),
)
SLOPE_HEAD = (
    *("metric", "against", "where", "points", "slope", "low", "high", "expected"),
    *("tolerance", "verdict", "misfit", "theorem", "note"),
)
TableRow = list[object]


def table(lines: Sequence[TheoryComparison]) -> list[TableRow]:
    """Return the table of all comparisons: its head, and rows with all digits."""
    names = parameters(lines)
    rows: list[TableRow] = [[*names, *HEAD]]
    for line in lines:
        estimate, reference = line.estimate, line.reference
        rows.append(
            [
                *(estimate.params.get(name, "") for name in names),
                estimate.metric.name,
                len(estimate.values),
                estimate.mean,
                *estimate.interval,
                "" if math.isnan(line.baseline) else line.baseline,
                reference,
                line.value if reference else "",
                # The default is not shown. `markdown` states it above the table.
                estimate.metric.tolerance
                if estimate.metric.tolerance > DEFAULT_TOLERANCE
                else "",
                line.verdict,
                line.reason,
            ]
        )
    return rows


def parameters(lines: Sequence[TheoryComparison]) -> list[str]:
    """Return the names of the parameters, in the order of the declaration."""
    return list(dict.fromkeys(name for line in lines for name in line.estimate.params))


def slope_table(fitted: Sequence[FittedSlope]) -> list[TableRow]:
    """Return the table of fitted exponents: its head, and rows with all digits."""
    rows: list[TableRow] = [list(SLOPE_HEAD)]
    for fit in fitted:
        slope = fit.slope
        rows.append(
            [
                slope.y,
                slope.x,
                text_of(fit.params),
                fit.num_points,
                fit.value,
                *fit.interval,
                fit.expected,
                slope.tolerance or "",
                fit.verdict,
                fit.misfit,
                slope.theorem,
                slope.note,
            ]
        )
    return rows


def text_of(params: Params) -> str:
    """Return parameters as text."""
    return ", ".join(
        f"{name} = {format_value(value)}" for name, value in params.items()
    )


def format_value(value: object) -> str:
    """Return a number with four digits, and any other value as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(outcome: Results) -> list[str]:
    """Return the outcome as lines of text."""
    done = f"{outcome.num_rows} of {outcome.num_wanted} replicates"
    lines = [f"{outcome.study.title}: {done}"]
    if outcome.changed:
        names = ", ".join(outcome.changed)
        lines.append(f"WARNING: {names} of the study changed since these were computed")
    lines += _partial(outcome)
    if outcome.num_others:
        lines.append(f"left out: {outcome.num_others} replicates of cells not declared")
    counts = ", ".join(f"{number} {word}" for word, number in outcome.counts.items())
    lines.append(f"means beside theory: {counts or 'no reference'}")
    for line in outcome.refuted:
        estimate = line.estimate
        lines.append(
            f"CONTRADICTION at {text_of(estimate.params)}: {estimate.metric.name} ="
            f" {format_value(estimate.mean)}, {line.verdict}:"
            f" {line.reference} {format_value(line.value)}"
        )
    return lines


def _partial(outcome: Results) -> Iterator[str]:
    """Yield a line for each mean of fewer replicates than its cell has.

    In the other replicates the cell function left out the metric.
    """
    expected_counts = outcome._wanted
    numbers = Counter(
        r.key for r in outcome.rows if r.replicate < expected_counts.get(r.key, 0)
    )
    all_estimates = (line.estimate for line in outcome.lines)
    for estimate in {
        (estimate.key, estimate.metric.name): estimate for estimate in all_estimates
    }.values():
        if len(estimate.values) < numbers[estimate.key]:
            yield (
                f"at {text_of(estimate.params)} {estimate.metric.name} is of"
                f" {len(estimate.values)} replicates only: the others left it out"
            )


def exponents(outcome: Results) -> list[str]:
    """Return the fitted slopes as lines of text."""
    lines = []
    for fit in outcome.fits:
        low, high = fit.interval
        where = f" at {text_of(fit.params)}" if fit.params else ""
        lines.append(
            f"slope of {fit.slope.y} in {fit.slope.x}{where}: {fit.value:.4g}"
            f" ({low:.4g} to {high:.4g}), theory {fit.expected:.4g}: {fit.verdict}"
        )
    return lines


def markdown(outcome: Results, pictures: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the page in Markdown."""
    study = outcome.study
    yield f"# {study.title}"
    yield f"\n{study.question}"
    # The answer was written after a full run, so it is shown for full runs only.
    is_full = not outcome.quick and outcome.num_rows == outcome.num_wanted
    if study.answer and is_full:
        answer = study.answer(outcome.mean) if callable(study.answer) else study.answer
        yield f"\n**What a full run shows.** {answer}"
    yield ""
    yield from (f"- {line}" for line in summary(outcome))
    command = f"dpsample study run {study.name} --report" + " --quick" * outcome.quick
    yield f"\nRegenerated by `{command}`."
    if outcome.runs:
        # All runs in a store have the same configuration.
        configuration = json.dumps(outcome.runs[0].configuration)
        seconds = sum(row.seconds for row in outcome.rows)
        yield f"\nCells took {seconds:.4g} s of work. Configuration: `{configuration}`."
    for picture in pictures:
        yield f"\n![{study.title}]({picture})"
    if outcome.fits:
        yield "\n## Exponents\n"
        yield f"{_together(len(outcome.fits), 'fits')}\n"
        yield from grid(slope_table(outcome.fits))
    if study.inapplicable:
        yield "\n## Exclusions\n"
        yield "Where a bound is not compared, and the first commit that says so."
        yield "The means refer to an exclusion by its number.\n"
        yield from grid(exclusions(outcome))
    yield "\n## Means\n"
    percent = 100.0 * study.confidence
    number = sum(line.verdict not in ("", "inapplicable") for line in outcome.lines)
    yield f"Intervals hold with {percent:g} % each. {_together(number, 'comparisons')}"
    yield "Tolerances are relative, 1e-9 if none is shown. The baseline is the best"
    yield "answer that reads no record. A bound that it meets is vacuous.\n"
    reasons = [entry.reason for entry in study.inapplicable]
    head, *rows = table(outcome.lines)
    yield from grid([head, *(_number_reason(row, reasons) for row in rows)])


def _number_reason(row: TableRow, reasons: Sequence[str]) -> TableRow:
    """Return a row of the means with the number of its exclusion, not the reason.

    The page states each reason once, in the table of exclusions.
    """
    *cells, text = row
    for number, reason in enumerate(reasons, start=1):
        # A mark that the reason was declared after the run stays behind the number.
        if str(text).partition(" (DECLARED")[0] == reason:
            return [*cells, f"exclusion {number}{str(text).removeprefix(reason)}"]
    return row


def exclusions(outcome: Results) -> Iterator[TableRow]:
    """Yield the head and the rows of the table of declared exclusions."""
    yield ["exclusion", "reason", "metrics", "cells", "declared in"]
    cells = outcome.study.cells(quick=outcome.quick)
    for number, entry in enumerate(outcome.study.inapplicable, start=1):
        yield [
            number,
            entry.reason,
            ", ".join(entry.metrics) or "all",
            sum(bool(entry.when(cell.params)) for cell in cells),
            outcome.declared_in.get(entry.reason, "no commit"),
        ]


def _together(number: int, name: str) -> str:
    """Return a sentence on the probability of false alarms in a whole study."""
    level = f"{100.0 * FALSE_ALARM:g} %"
    claim = f"A true one of the {number} {name} is called false with at most {level}"
    return f"{claim}, where means are normal. Skewed values need many replicates."


def grid(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, without its empty columns."""
    head, *body = [[format_value(cell) for cell in row] for row in rows]
    used = [j for j in range(len(head)) if any(row[j] for row in body)]
    for row in (head, ["---"] * len(head), *body):
        cells = (row[j].replace("|", "\\|") for j in used)
        yield f"| {' | '.join(cells)} |"
