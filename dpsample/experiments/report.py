"""Reports of a study: tables, fitted slopes, and figures as PNG and SVG.

A figure shows means against one parameter, with bands of their intervals. Theory has
the color of its line, and a dashed or dotted stroke. Colors follow Okabe and Ito
(2008), which color-blind readers can distinguish. Lines differ in their markers as
well.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core import files as files_module
from dpsample.core.arrays import Array
from dpsample.experiments import findings
from dpsample.experiments.configuration import Bundle, import_extra
from dpsample.experiments.findings import format_value, results, text_of
from dpsample.experiments.run import folder_of
from dpsample.experiments.study import Figure, Study, names
from dpsample.experiments.summaries import TheoryComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# A "line" is a `TheoryComparison`: mean, interval and theory in one cell of the study.
# Cells that differ only in the horizontal parameter are joined to a line of the plot.
Stroke = str | tuple[float, tuple[float, ...]]
Look = dict[str, Any]  # keywords of a line
# Theory of one line: its look, positions and values.
_Theory = tuple[Look, Array, Array]
# Okabe and Ito's colors without yellow, a gray, and two colors of Paul Tol's. Orange
# and sky blue are darker than theirs, so that each color has a contrast of 3 to white.
COLORS = (
    *("#000000", "#BD8200", "#3E98CB", "#009E73", "#0072B2", "#D55E00", "#CC79A7"),
    *("#7F7F7F", "#882255", "#999933"),
)
# There are 11 markers and 10 colors, so that a color that comes again has another
# marker. Its line is dashed as well.
MARKERS = "os^Dv*PX<>p"
STROKES: dict[str, Stroke] = {
    "upper bound": "--",
    "lower bound": ":",
    "expected": "-.",
    "printed bound": (0, (1, 3)),
}
# Width and height of a panel.
PANEL_INCHES = 3.6
MAX_COLUMNS = 4
# Inches of a letter, by which labels are spaced.
LETTER_INCHES = 0.072


def draw(study: Study, lines: Sequence[TheoryComparison], folder: Path) -> list[Path]:
    """Draw every figure that has cells, and return the files."""
    files = []
    for number, figure in enumerate(study.figures, start=1):
        own_lines = [line for line in lines if _is_in_figure(figure, line)]
        if own_lines:
            canvas = _canvas(_Picture.from_lines(study, figure, own_lines))
            files += _save(canvas, study.name, folder / f"{study.name}-{number}")
    return files


def _is_in_figure(figure: Figure, line: TheoryComparison) -> bool:
    """Return whether a figure shows a line."""
    params = line.estimate.params
    return (
        line.estimate.metric.name in figure.metrics
        and figure.x in params
        and all(params.get(name) == value for name, value in figure.where.items())
    )


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """A figure with its data, which has the same look and scale in every panel."""

    study: Study
    figure: Figure
    panels: Mapping[str, Sequence[TheoryComparison]]
    looks: Mapping[str, Look]
    positions: Mapping[object, float]  # values on the horizontal axis
    floor: float  # lowest value on a logarithmic vertical axis

    @classmethod
    def from_lines(
        cls, study: Study, figure: Figure, lines: Sequence[TheoryComparison]
    ) -> _Picture:
        """Choose colors and panels for the lines of a figure."""
        groups = dict.fromkeys(_legend_name(figure, line) for line in lines)
        looks = {
            group: {
                "color": COLORS[k % len(COLORS)],
                "marker": MARKERS[k % len(MARKERS)],
                "markersize": 4,
                "linestyle": "-" if k < len(COLORS) else (0, (8, 2)),
            }
            for k, group in enumerate(groups)
        }
        panels: dict[str, list[TheoryComparison]] = defaultdict(list)
        for line in lines:
            panels[_panel_title(names(figure.panels), line)].append(line)
        levels = [line.estimate.mean for line in lines]
        if figure.bound:
            levels += [line.value for line in lines if _has_theory(line)]
        lowest = min((level for level in levels if level > 0.0), default=1.0)
        return cls(
            study=study,
            figure=figure,
            panels=panels,
            looks=looks,
            positions=_axis_positions(
                [line.estimate.params[figure.x] for line in lines]
            ),
            # On a logarithmic axis a band that reaches 0 ends below the lowest line.
            floor=0.3 * lowest,
        )

    @property
    def has_numbers(self) -> bool:
        """Whether the horizontal axis has numbers, and not names."""
        return all(map(_is_number, self.positions))


def _panel_title(by: Sequence[str], line: TheoryComparison) -> str:
    params = line.estimate.params
    return text_of({name: params[name] for name in by if name in params})


def _legend_name(figure: Figure, line: TheoryComparison) -> str:
    """Return the name of a line in the legend. Texts stand without their parameter."""
    by = names(figure.lines)
    text = _panel_title(by, line)
    if len(by) == 1 and isinstance(line.estimate.params.get(by[0]), str):
        text = str(line.estimate.params[by[0]])
    if len(figure.metrics) == 1:
        return text or "measured"
    title = line.estimate.metric.title
    return f"{title}, {text}" if text else title


def _has_theory(line: TheoryComparison) -> bool:
    """Return whether a line has a finite theoretical value that applies to its cell."""
    is_applicable = line.reference and line.verdict != "inapplicable"
    return bool(is_applicable) and math.isfinite(line.value)


def _axis_positions(values: Sequence[Any]) -> dict[object, float]:
    """Return positions on the axis. Names and infinity are numbered from the left."""
    distinct = list(dict.fromkeys(values))
    is_plain = all(map(_is_number, distinct))
    return {v: float(v if is_plain else k) for k, v in enumerate(distinct)}


def _is_number(value: object) -> bool:
    """Return whether a value is a number on an axis. True and False are names."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) and math.isfinite(value)


def _canvas(picture: _Picture) -> Canvas:
    """Return the picture as a figure of matplotlib with a grid of panels."""
    # It explains how to install the extra if matplotlib is missing.
    import_extra("matplotlib", "studies")

    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    figure, number = picture.figure, len(picture.panels)
    if figure.dots:
        return _dots(picture)
    rows = -(-number // MAX_COLUMNS)
    columns = -(-number // rows)
    with rc_context({"font.size": 9.0}):
        canvas = Canvas(
            (PANEL_INCHES * columns + 0.6, PANEL_INCHES * rows), layout="constrained"
        )
        grid = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axis in grid.flat[number:]:
            axis.set_visible(False)
        for axis, (title, lines) in zip(
            grid.flat, picture.panels.items(), strict=False
        ):
            _panel(axis, picture, lines)
            axis.set_title(fill(title, width=40))
        if figure.log_log and figure.y_limits is None:
            # At the end, because a limit stops the scaling to further data.
            grid.flat[0].set_ylim(bottom=picture.floor)
        default = ", ".join(picture.study.metric(n).title for n in figure.metrics)
        for row in grid:
            row[0].set_ylabel(figure.y_label or default)
        canvas.suptitle(figure.title or picture.study.title)
        _legend(canvas, picture)
    return canvas


def _dots(picture: _Picture) -> Canvas:
    """Return a figure with one row for each value of x, the smallest mean on top."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    figure = picture.figure
    lines = [line for panel_lines in picture.panels.values() for line in panel_lines]
    # A cell with several references is in several lines, with one mean.
    means = {
        (line.estimate.params[figure.x], _legend_name(figure, line)): line.estimate
        for line in lines
    }
    rows = sorted(means.items(), key=lambda row: row[1].mean)
    if figure.log_log:
        rows = [row for row in rows if row[1].mean > 0.0]
    with rc_context({"font.size": 9.0}):
        # Inches of the rows, and of title, axis and legend.
        height = 0.24 * len(rows) + 1.7
        canvas = Canvas((2.0 * PANEL_INCHES, height), layout="constrained")
        axis = canvas.subplots()
        for position, ((_, group), estimate) in enumerate(rows):
            look = picture.looks[group] | {"linestyle": "none"}
            axis.plot(estimate.mean, position, **look)
            if math.isfinite(estimate.interval[0]):
                axis.hlines(position, *estimate.interval, color=look["color"])
        labels = [format_value(value) for (value, _), _ in rows]
        axis.set_yticks(range(len(rows)), labels)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        if figure.level is not None:
            axis.axvline(figure.level, color="0.5", lw=1.0, zorder=0)
        if figure.log_log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        default = ", ".join(picture.study.metric(n).title for n in figure.metrics)
        axis.set_xlabel(figure.y_label or default)
        axis.grid(True, axis="x", which="major", alpha=0.3)
        canvas.suptitle(figure.title or picture.study.title)
        _legend(canvas, picture)
    return canvas


def _panel(axis: Axes, picture: _Picture, lines: Sequence[TheoryComparison]) -> None:
    """Draw one panel: means with their bands, and bounds."""
    figure = picture.figure
    groups: dict[tuple[str, str], list[TheoryComparison]] = defaultdict(list)
    for line in lines:
        groups[_legend_name(figure, line), line.reference].append(line)
    drawn = set()
    theories: dict[str, list[_Theory]] = defaultdict(list)
    for (group, reference), group_lines in groups.items():
        look = picture.looks[group]
        x, means, low, high, theory = _columns(picture, group_lines)
        if group not in drawn:
            drawn.add(group)
            axis.plot(x, means, **look)
            _band(axis, x, low, high, look["color"])
        if figure.bound and reference:
            theories[reference].append((look, x, theory))
    for reference, curves in theories.items():
        _theory(axis, STROKES[reference], curves)
    _scales(axis, picture)
    axis.set_xlabel(figure.x_label or figure.x)
    # Labels are shown also if there is a panel below.
    axis.tick_params(labelbottom=True)
    axis.grid(True, which="major", alpha=0.3)


def _band(axis: Axes, x: Array, low: Array, high: Array, color: str) -> None:
    """Draw intervals as a band along a line, or as a bar at a single point."""
    if len(x) == 1:
        axis.vlines(x, low, high, color=color)
    else:
        axis.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _theory(axis: Axes, stroke: Stroke, curves: Sequence[_Theory]) -> None:
    """Draw theory in the colors of its lines, or once in gray if all curves agree."""
    (_, x, theory), *others = curves
    if others and all(
        np.array_equal(x, other_x) and np.allclose(theory, y, 1e-9, 0.0, equal_nan=True)
        for _, other_x, y in others
    ):
        axis.plot(x, theory, linestyle=stroke, color="0.3")
        return
    for look, other_x, y in curves:
        axis.plot(other_x, y, **look | {"linestyle": stroke, "markerfacecolor": "none"})


def _scales(axis: Axes, picture: _Picture) -> None:
    """Set the scales of the axes, and labels where values are not numbers."""
    if not picture.has_numbers:
        labels = [format_value(value) for value in picture.positions]
        axis.set_xticks(list(picture.positions.values()), labels)
    elif picture.figure.log_log:
        axis.set_xscale("log")
        _label_all(axis, sorted(picture.positions.values()))
    if picture.figure.level is not None:
        axis.axhline(picture.figure.level, color="0.5", lw=1.0, zorder=0)
    if picture.figure.y_limits is not None:
        axis.set_ylim(*picture.figure.y_limits)
    elif picture.figure.log_log:
        axis.set_yscale("log")


def _label_all(axis: Axes, values: Sequence[float]) -> None:
    """Put ticks at the values instead of powers of 10, if there is space for them."""
    if values[0] <= 0.0 or len(values) == 1:
        return
    letters = max(len(_format_tick(value)) for value in values) + 1
    # The outer ticks are 3.1 inches apart.
    share = LETTER_INCHES * letters / 3.1 * math.log(values[-1] / values[0])
    shown_values = [values[0]]
    for value in values[1:]:
        if math.log(value / shown_values[-1]) >= share:
            shown_values.append(value)
    if 2 * len(shown_values) > len(values):
        axis.set_xticks(shown_values, [_format_tick(value) for value in shown_values])
        axis.set_xticks([], minor=True)


def _format_tick(value: float) -> str:
    """Return the label of a tick: three digits of a fraction."""
    return f"{value:.3g}" if value < 1.0 else f"{value:g}"


def _columns(picture: _Picture, lines: Sequence[TheoryComparison]) -> list[Array]:
    """Return positions, means, both ends of the band and theory, from left to right."""
    rows = []
    for line in lines:
        estimate = line.estimate
        low, high = estimate.interval
        is_known = math.isfinite(low)  # not with one replicate
        rows.append(
            (
                picture.positions[estimate.params[picture.figure.x]],
                estimate.mean,
                low if is_known else estimate.mean,
                high if is_known else estimate.mean,
                line.value if _has_theory(line) else math.nan,
            )
        )
    table = np.array(sorted(rows), dtype=float)
    if picture.figure.log_log:
        table[:, 2] = np.maximum(table[:, 2], picture.floor)
        table[table[:, 4] <= 0.0, 4] = math.nan  # a vacuous lower bound
    return list(table.T)


def _legend(canvas: Canvas, picture: _Picture) -> None:
    """Add one legend for all panels, with the lines and then the strokes of theory."""
    from matplotlib.lines import Line2D

    plain = {"linestyle": "none"} if picture.figure.dots else {}
    handles = [
        Line2D([], [], label=group, **look | plain)
        for group, look in picture.looks.items()
    ]
    if picture.figure.bound:
        lines = (
            line for panel_lines in picture.panels.values() for line in panel_lines
        )
        used = {line.reference for line in lines if _has_theory(line)}
        handles += [
            Line2D([], [], color="0.3", linestyle=stroke, label=word)
            for word, stroke in STROKES.items()
            if word in used
        ]
    longest = max(len(str(handle.get_label())) for handle in handles)
    # A legend's marker and the gaps take 0.6 inches.
    fitting = int(canvas.get_figwidth() / (0.6 + LETTER_INCHES * longest))
    columns = min(max(fitting, 1), MAX_COLUMNS)
    canvas.legend(handles=handles, loc="outside lower center", ncols=columns)


def _save(canvas: Canvas, name: str, stem: Path) -> list[Path]:
    """Save a figure without dates and random names, so that files are reproducible."""
    from matplotlib import rc_context

    files = [stem.with_suffix(f".{kind}") for kind in ("png", "svg")]
    with files_module.replacing(files[0]) as draft:
        canvas.savefig(draft, dpi=120, metadata={"Software": None})
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        with files_module.replacing(files[1]) as draft:
            canvas.savefig(draft, metadata={"Date": None})
    return files


@dataclass(frozen=True, kw_only=True)
class Report:
    """Files of a report, and its summary."""

    files: Sequence[Path]
    summary: Sequence[str]
    is_refuted: bool


def write(bundle: Bundle, output: Path, *, quick: bool = False) -> Report:
    """Write NAME.md, NAME.csv, NAME-slopes.csv and the figures as PNG and SVG.

    ``output`` is the folder of the store. Files of a quick run are in a folder below
    it. A ValueError is raised if no row belongs to a declared cell, because an empty
    report would replace a good one.
    """
    outcome = results(bundle, output, quick=quick)
    if not outcome.num_rows:
        got, remedy = "none", "Run the study to the end of its first cell."
        # Rows are stored with data, environment and versions of packages. Those of
        # other conditions do not count.
        if outcome.rows:
            got = "those of others only"
            remedy = "Set what the run had: data, environment variables, packages."
        check.fail("rows", "of declared cells", got, remedy)
    name, folder = outcome.study.name, folder_of(output, quick=quick)
    files = draw(outcome.study, outcome.lines, folder)
    tables = {f"{name}.csv": findings.table(outcome.lines)}
    if outcome.fits:
        tables[f"{name}-slopes.csv"] = findings.slope_table(outcome.fits)
    for file, table in tables.items():
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows(table)
        files_module.write(folder / file, content.getvalue().encode())
        files.append(folder / file)
    page = folder / f"{name}.md"
    pictures = [path.name for path in files if path.suffix == ".png"]
    text = "\n".join(findings.markdown(outcome, pictures))
    files_module.write(page, f"{text}\n".encode())
    _delete_stale(name, folder, files)
    return Report(
        files=[page, *files],
        summary=[*findings.summary(outcome), *findings.exponents(outcome)],
        is_refuted=bool(outcome.refuted),
    )


def _delete_stale(name: str, folder: Path, files: Sequence[Path]) -> None:
    """Delete figures and fits of an earlier report that this one does not have."""
    report_file = re.compile(rf"{re.escape(name)}-(slopes\.csv|[0-9]+\.(png|svg))")
    for path in folder.iterdir():
        if report_file.fullmatch(path.name) and path not in files:
            path.unlink()
