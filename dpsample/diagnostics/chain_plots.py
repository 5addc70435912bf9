"""Plots of chains, drawn by arviz-plots: ranks, traces, autocorrelation, sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.diagnostics.batches import correlation_times
from dpsample.diagnostics.chain_checks import MIN_ESS
from dpsample.diagnostics.summaries import ChainDraws, chosen, mixing, read

if TYPE_CHECKING:
    from arviz_base.labels import BaseLabeller
    from arviz_plots import PlotCollection
    from xarray import DataTree

# More panels are not read; the coefficients that mix worst are shown.
MAX_PANELS = 12
NUM_COLUMNS = 3
PANEL = (3.4, 2.3)  # inches
LEGEND_ROOM = 0.6  # inches
DASHED = {"linestyle": "--"}
# Ranks of fewer draws in a chain would show little.
MIN_RANKED = 50


def plot_rank(
    draws: DataTree, coefficients: Sequence[str] | None = None
) -> PlotCollection:
    """Draw how evenly each chain's ranks are spread among those of all chains.

    Curves are differences between the distribution of a chain's ranks and the uniform
    one (arXiv:2103.10522). Draws are thinned by their correlation time; then the curve
    of a chain that agrees stays inside the gray band with probability 0.99.

    Parameters
    ----------
    draws : DataTree
        What `sample` returned.
    coefficients : sequence of str, optional
        Names; by default all, or the 12 of smallest effective size.

    Returns
    -------
    arviz_plots.PlotCollection
        One panel per coefficient; ``.savefig(path)`` writes it.

    Raises
    ------
    ImportError
        If arviz-plots is not installed, with the line that installs it.
    ValueError
        If the draws are not those of `sample`, or a name is not a coefficient.
    """
    return _plotted("plot_rank", draws, coefficients, chains_of="ecdf_lines")


def plot_trace(
    draws: DataTree, coefficients: Sequence[str] | None = None
) -> PlotCollection:
    """Draw each coefficient along each chain.

    Parameters
    ----------
    draws, coefficients
        As in `plot_rank`.

    Returns
    -------
    arviz_plots.PlotCollection
        One panel per coefficient.

    Raises
    ------
    ImportError, ValueError
        As from `plot_rank`.
    """
    return _plotted("plot_trace", draws, coefficients, chains_of="trace")


def plot_autocorrelation(
    draws: DataTree, coefficients: Sequence[str] | None = None, *, max_lag: int = 100
) -> PlotCollection:
    """Draw the autocorrelation of each coefficient along each chain.

    Parameters
    ----------
    draws, coefficients
        As in `plot_rank`.
    max_lag : int
        Longest lag in draws.

    Returns
    -------
    arviz_plots.PlotCollection
        One panel per coefficient.

    Raises
    ------
    ImportError, ValueError
        As from `plot_rank`.
    """
    check.integer(1, max_lag=max_lag)
    return _plotted(
        "plot_autocorr", draws, coefficients, chains_of="lines", max_lag=max_lag
    )


def plot_ess_evolution(
    draws: DataTree, coefficients: Sequence[str] | None = None
) -> PlotCollection:
    """Draw bulk and tail effective sizes of growing parts of the chains.

    They grow in proportion to the draws if chains mix; a curve that bends says that
    longer chains found what shorter ones had missed.

    Parameters
    ----------
    draws, coefficients
        As in `plot_rank`.

    Returns
    -------
    arviz_plots.PlotCollection
        One panel per coefficient.

    Raises
    ------
    ImportError, ValueError
        As from `plot_rank`.
    """
    return _plotted("plot_ess_evolution", draws, coefficients)


def _plotted(
    name: str,
    draws: DataTree,
    coefficients: Sequence[str] | None,
    *,
    chains_of: str = "",
    **options: Any,
) -> PlotCollection:
    """Call arviz-plots with panels that fit, chains told apart without color."""
    chains = read(draws)
    shown = _chosen(chains, coefficients)
    if name == "plot_rank":
        draws = _thinned(draws, chains.theta)
    if name == "plot_ess_evolution":
        options["min_ess"] = MIN_ESS
        options["visuals"] = {"ess_tail": {"marker": "^"}, "ess_tail_line": DASHED}
    try:
        import arviz_plots
    except ImportError as error:
        raise ImportError(
            "plots of chains need arviz-plots: pip install 'dpsample[plots]'"
        ) from error
    columns = min(NUM_COLUMNS, len(shown))
    size = (PANEL[0] * columns, PANEL[1] * -(-len(shown) // columns) + LEGEND_ROOM)
    if chains_of:
        options["aes"] = {"color": ["chain"], "linestyle": ["chain"]}
        options["aes_by_visuals"] = {chains_of: ["color", "linestyle"]}
    plot = getattr(arviz_plots, name)(
        draws,
        var_names="theta",
        coords={"coefficient": shown},
        labeller=_labeller(),
        backend="matplotlib",
        col_wrap=columns,
        figure_kwargs={"figsize": size, "layout": "constrained"},
        **options,
    )
    if chains_of and len(chains.theta) > 1:
        plot.add_legend("chain")
    if name == "plot_ess_evolution":
        _explain(plot, columns)
    return plot


def _explain(plot: PlotCollection, columns: int) -> None:
    """Say which line is which: arviz-plots has no legend for them."""
    from matplotlib.lines import Line2D

    figure = plot.viz["figure"].item()
    lines = [
        Line2D([], [], color="C0", marker="o", label="bulk"),
        Line2D([], [], color="C1", marker="^", ls="--", label="tail"),
        Line2D([], [], color="0.3", ls="-.", label=f"{MIN_ESS:g}, the least useful"),
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=min(columns, 3))


def _labeller() -> BaseLabeller:
    """Panels are named as coefficients are in plots of draws."""
    from arviz_base.labels import BaseLabeller

    class Labeller(BaseLabeller):
        def make_label_vert(
            self, var_name: str | None, sel: Mapping[str, object], isel: object
        ) -> str:
            del isel
            return f"{var_name}[{sel['coefficient']}]"

    return Labeller()


def _thinned(draws: DataTree, theta: Array) -> DataTree:
    """Every s-th draw, s their correlation time: ranks are then nearly independent."""
    time = float(np.max(correlation_times(theta)))
    longest = theta.shape[1] // MIN_RANKED
    stride = max(1, min(math.ceil(time), longest) if math.isfinite(time) else 1)
    return draws.isel(draw=slice(None, None, stride), missing_dims="ignore")


def _chosen(chains: ChainDraws, coefficients: Sequence[str] | None) -> list[str]:
    """Names to show, in the order of the coefficients."""
    if coefficients is not None:
        return chosen(coefficients, chains.names)
    if len(chains.names) <= MAX_PANELS:
        return list(chains.names)
    sizes = mixing(chains.theta)["ess_bulk"]
    worst = np.argsort(np.nan_to_num(sizes))[:MAX_PANELS]
    return [chains.names[i] for i in sorted(worst)]
