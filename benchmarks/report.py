"""Rows of the sampler benchmark: effective sample sizes, table, files and plot."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray

Array = NDArray[np.float64]
OURS = "dpsample"
GRADIENT = "gradient"
WALK = "polytope walk"
ENSEMBLE = "ensemble"
COLORS = {OURS: "#1b6ca8", GRADIENT: "#d1495b", WALK: "#e08e2b", ENSEMBLE: "#7a7a7a"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sampler on one target; rates are per CPU second, work per effective draw.

    ``rate`` is the smaller of the rates of theta (bulk) and of (theta - mean)^2, each
    the minimum over coordinates; ``rate_all`` charges preparation and warm-up as well.
    """

    target: str
    sampler: str
    family: str
    version: str
    rate: float
    rate_theta: float
    rate_square: float
    rate_all: float
    values: float
    gradients: float
    passes: float
    steps: float
    r_hat: float
    num_chains: int
    num_draws: int
    cpu: float
    warm: float
    first: float
    ratio: float = math.nan
    note: str = ""


def effective(draws: Array) -> tuple[float, float, float]:
    """Bulk ESS of theta, ESS of (theta - mean)^2, both at their worst; worst R-hat."""
    bulk, square, r_hat = [], [], []
    for x in np.moveaxis(draws, 2, 0):
        if np.ptp(x) == 0.0:
            return 0.0, 0.0, math.inf  # a coordinate never moved
        bulk.append(array_stats.ess(x, method="bulk"))
        square.append(array_stats.ess((x - x.mean()) ** 2, method="mean"))
        r_hat.append(array_stats.rhat(x))
    return float(min(bulk)), float(min(square)), float(max(r_hat))


def mixing(draws: Array) -> tuple[float, float]:
    """Rank-normalized R-hat and bulk ESS, both at their worst over theta and squares.

    Squares are those of (theta - mean); ESS is 0 if a coordinate never moved.
    """
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    functions = np.concatenate([draws, squares], axis=2)
    if np.any(np.ptp(functions, axis=(0, 1)) == 0.0):
        return math.inf, 0.0
    axes = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
        r_hat = array_stats.rhat(functions, **axes)
        ess = array_stats.ess(functions, method="bulk", **axes)
    return float(np.max(r_hat)), float(np.nan_to_num(np.min(ess)))


def row_of(
    target: str, sampler: str, family: str, draws: Array, facts: dict[str, Any]
) -> Row:
    """Row from the draws and facts of a process."""
    bulk, square, r_hat = effective(draws)
    worst = min(bulk, square)
    work = {
        name: facts[name] / worst if name in facts and worst > 0.0 else math.nan
        for name in ("values", "gradients", "passes", "steps")
    }
    return Row(
        target=target,
        sampler=sampler,
        family=family,
        version=facts["version"],
        rate=worst / facts["cpu"],
        rate_theta=bulk / facts["cpu"],
        rate_square=square / facts["cpu"],
        rate_all=worst / (facts["cpu"] + facts["warm"] + facts.get("prepare", 0.0)),
        r_hat=r_hat,
        num_chains=draws.shape[0],
        num_draws=draws.shape[1],
        cpu=facts["cpu"],
        warm=facts["warm"] + facts.get("prepare", 0.0),
        first=facts["first"],
        note=facts.get("note", ""),
        **work,
    )


def number(value: float) -> str:
    """Three digits, or a dash."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


HEADER = (
    "sampler",
    "ESS/cpu-s",
    "theta",
    "square",
    "+warm-up",
    "ratio",
    "values",
    "gradients",
    "data/n",
    "steps",
    "R-hat",
    "draws",
    "cpu s",
    "warm s",
    "first s",
)


def cells(row: Row) -> tuple[str, ...]:
    """Words of a row below `HEADER`."""
    rates = (row.rate, row.rate_theta, row.rate_square, row.rate_all, row.ratio)
    work = (row.values, row.gradients, row.passes, row.steps)
    return (
        row.sampler,
        *(number(value) for value in (*rates, *work)),
        f"{row.r_hat:.3f}",
        f"{row.num_chains} x {row.num_draws:,}",
        *(f"{value:.2f}" for value in (row.cpu, row.warm, row.first)),
    )


def table(rows: list[Row]) -> str:
    """Aligned table, fastest first."""
    lines = [HEADER, *(cells(row) for row in sorted(rows, key=lambda row: -row.rate))]
    widths = [max(len(line[j]) for line in lines) for j in range(len(HEADER))]
    return "\n".join(
        "  "
        + line[0].ljust(widths[0])
        + "".join(
            "  " + word.rjust(width)
            for word, width in zip(line[1:], widths[1:], strict=True)
        )
        for line in lines
    )


def write(rows: list[Row], missing: list[str], facts: Any, folder: Path) -> None:
    """Write samplers.csv and samplers.json."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [asdict(row) for row in rows]
    with open(folder / "samplers.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(records)
    for record in records:
        for name, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                record[name] = None
    text = json.dumps({"facts": facts, "missing": missing, "rows": records}, indent=1)
    (folder / "samplers.json").write_text(text)


def plot(rows: list[Row], titles: dict[str, str], path: Path) -> None:
    """Dots on a logarithmic axis, one panel per target."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    count = len(titles)
    width = min(3, count)
    height = -(-count // width)
    max_rows = max(sum(row.target == name for row in rows) for name in titles)
    size = (5.6 * width, (0.27 * max_rows + 1.1) * height + 0.9)
    figure, axes = plt.subplots(height, width, figsize=size, squeeze=False)
    for axis, (name, title) in zip(axes.flat, titles.items(), strict=False):
        panel(axis, [row for row in rows if row.target == name], title)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    families = [family for family in COLORS if any(r.family == family for r in rows)]
    handles = [
        plt.Line2D([], [], marker="o", ls="", color=COLORS[f], label=f)
        for f in families
    ]
    figure.tight_layout(rect=(0, 0.9 / size[1], 1, 1))
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(families),
        frameon=False,
        title="effective draws per CPU second,\nminimum over coordinates of "
        "$\\theta$ and $(\\theta-\\mathrm{mean})^2$",
        title_fontsize=9,
        fontsize=9,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def panel(axis: Any, rows: list[Row], title: str) -> None:
    """Draw the dots of one target, fastest on top."""
    ordered = sorted((row for row in rows if row.rate > 0.0), key=lambda row: row.rate)
    places = range(len(ordered))
    rates = [row.rate for row in ordered]
    axis.hlines(places, 1e-9, rates, color="#dddddd", lw=1.0, zorder=1)
    axis.scatter(rates, places, c=[COLORS[r.family] for r in ordered], s=32, zorder=2)
    for height, row in zip(places, ordered, strict=True):
        words = number(row.rate)
        if math.isfinite(row.ratio) and row.family == OURS:
            words += f"  ({number(row.ratio)}x)"
        axis.annotate(
            words,
            (row.rate, height),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(places, [row.sampler for row in ordered], fontsize=8.5)
    axis.set_xscale("log")
    if ordered:
        low = min(rates) / 2.0
        axis.set_xlim(low, max(rates) * (max(rates) / low) ** 0.55)  # room for words
    axis.set_ylim(-0.7, len(ordered) - 0.3)
    axis.set_title(title, fontsize=10, loc="left")
    axis.grid(axis="x", color="#eeeeee", zorder=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
