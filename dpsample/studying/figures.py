"""Figures of a study: means with bands, bounds dashed beside them, as PNG and SVG.

Lines differ in marker and in lightness, so they can be told apart in black and white.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpsample.studying.extras import required
from dpsample.studying.study import Study
from dpsample.studying.summaries import Comparison
from dpsample.studying.views import Figure, names

MARKERS = "os^Dv*PX<>"
STYLES = {"upper bound": "--", "lower bound": ":", "expected": "-."}
PANEL_INCHES, DPI = (4.2, 3.4), 150
LIGHTEST = 0.75


def draw(study: Study, lines: Sequence[Comparison], folder: Path) -> list[Path]:
    """Draw every figure that has cells; returns the files."""
    files = []
    for number, figure in enumerate(study.figures, start=1):
        meant = [line for line in lines if _is_meant(figure, line)]
        if meant:
            files += _one(study, figure, meant, folder / f"{study.name}-{number}")
    return files


def _is_meant(figure: Figure, line: Comparison) -> bool:
    params = line.estimate.params
    return (
        line.estimate.metric.name in figure.metrics
        and figure.x in params
        and all(params.get(name) == value for name, value in figure.where.items())
    )


def _one(
    study: Study, figure: Figure, lines: Sequence[Comparison], stem: Path
) -> list[Path]:
    required("matplotlib", "studies")
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    panels = _split(lines, names(figure.panels))
    # Without dates and random names, the same rows give the same files.
    with rc_context({"svg.hashsalt": study.name, "font.size": 9.0}):
        width, height = PANEL_INCHES
        canvas = Canvas((width * len(panels), height + 0.4), layout="constrained")
        axes = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, own) in zip(axes, panels.items(), strict=True):
            _panel(axis, study, figure, own)
            axis.set_title(title)
        axes[0].set_ylabel(figure.y_label or _y_words(study, figure))
        canvas.suptitle(figure.title or study.title)
        files = [stem.with_suffix(f".{kind}") for kind in ("png", "svg")]
        canvas.savefig(files[0], dpi=DPI, metadata={"Software": None})
        canvas.savefig(files[1], metadata={"Date": None})
    return files


def _y_words(study: Study, figure: Figure) -> str:
    return ", ".join(study.metric(name).title for name in figure.metrics)


def _split(
    lines: Sequence[Comparison], by: Sequence[str], *, with_metric: bool = False
) -> dict[str, list[Comparison]]:
    """Group by the words of these parameters."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for line in lines:
        own = line.estimate
        words = [
            f"{name} = {own.params[name]:g}"
            if isinstance(own.params[name], float)
            else f"{name} = {own.params[name]}"
            for name in by
            if name in own.params
        ]
        if with_metric:
            words.insert(0, own.metric.title)
        groups[", ".join(words)].append(line)
    return groups


def _panel(
    axis: Any, study: Study, figure: Figure, lines: Sequence[Comparison]
) -> None:
    groups = _split(lines, names(figure.lines), with_metric=len(figure.metrics) > 1)
    shades = required("matplotlib", "studies").colormaps["viridis"]
    for k, (words, own) in enumerate(groups.items()):
        color = shades(LIGHTEST * k / max(len(groups) - 1, 1))
        marker = MARKERS[k % len(MARKERS)]
        _line(axis, figure, own, {"color": color, "marker": marker}, words)
    if figure.log_log:
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.set_xlabel(figure.x_label or figure.x)
    axis.grid(True, which="major", alpha=0.3)
    axis.legend(fontsize=7)


def _line(
    axis: Any,
    figure: Figure,
    lines: Sequence[Comparison],
    look: dict[str, Any],
    words: str,
) -> None:
    """One line of means with its band, and a line for each of its references."""
    by_word: dict[str, list[Comparison]] = defaultdict(list)
    for line in lines:
        by_word[line.reference].append(line)
    main = next(iter(by_word.values()))
    x, means, low, high = _columns(figure, main)
    axis.plot(x, means, markersize=4, label=words or "measured", **look)
    if figure.log_log:
        low = np.maximum(low, np.min(means[means > 0], initial=1.0) * 1e-3)
    axis.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    for word, own in by_word.items():
        applicable = [line for line in own if line.verdict != "inapplicable"]
        if word and figure.bound and applicable:
            x = np.array([line.estimate.params[figure.x] for line in applicable])
            values = np.array([line.value for line in applicable])
            order = np.argsort(x)
            axis.plot(
                x[order],
                values[order],
                linestyle=STYLES[word],
                markersize=4,
                markerfacecolor="none",
                label=f"{word} {words}".strip(),
                **look,
            )


def _columns(figure: Figure, lines: Sequence[Comparison]) -> tuple[Any, Any, Any, Any]:
    rows = sorted(
        (
            line.estimate.params[figure.x],
            line.estimate.mean,
            *line.estimate.interval,
        )
        for line in lines
    )
    x, means, low, high = (
        np.array(column, dtype=float) for column in zip(*rows, strict=True)
    )
    return x, means, low, high
