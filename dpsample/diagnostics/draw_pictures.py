"""Pictures: draws with the outline of their domain, and chains as ArviZ plots them.

The numbers of the pictures are those of `summaries`. Without this file a user would
lose the boundary, the choice of panels and the marks without color.

The boundary of a convex set is found by chords from one inner point, so that no domain
needs a formula here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.check import axes
from dpsample.diagnostics.chain_checks import MIN_ESS
from dpsample.diagnostics.summaries import (
    ChainDraws,
    chosen,
    correlation_times,
    mixing,
    read,
)
from dpsample.domains import Domain
from dpsample.targets.gibbs import Gibbs

if TYPE_CHECKING:
    from arviz_base.labels import BaseLabeller
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes
    from xarray import DataTree


# Half degrees, so that curves have the corners of boxes, diamonds and the simplex.
NUM_ANGLES = 721
# Orthonormal directions in the plane of the simplex of three coefficients. The entries
# of each add up to zero.
HULL = np.array([[1.0, -1.0, 0.0], [-1.0, -1.0, 2.0]]) / np.sqrt([[2.0], [6.0]])
# Chains differ by marker and line, not by color alone. Each color has a contrast of at
# least 3 to white (WCAG), which Matplotlib's second color has not.
COLORS = ("C0", "C3", "C2", "C4")
MARKERS = ("o", "^", "s", "x")
LINES = ("-", "--", ":", "-.")
Look = dict[str, Any]  # keywords of lines
EDGE: Look = {"color": "black", "lw": 1.2}
FAINT: Look = {"color": "0.35", "lw": 0.6}

# Maximum number of panels, those of the coefficients that mix worst.
MAX_PANELS = 12
PANEL = (3.4, 2.3)  # inches


def plot_draws(
    draws: DataTree,
    target: Gibbs | Domain | None = None,
    coefficients: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the draws of 1, 2 or 3 coefficients and the boundary of their domain.

    One coefficient gives a histogram for each chain. Two or three give points, whose
    color and marker show the chain. The simplex of three coefficients is drawn in its
    plane.

    Parameters
    ----------
    draws : DataTree
        Result of `sample`.
    target : Gibbs or Domain, optional
        Domain whose boundary is drawn. A selection of coefficients has no boundary.
    coefficients : sequence of str, optional
        One to three names. By default all.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, which are three-dimensional for three coefficients.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        If the draws are not those of `sample`, or more than 3 coefficients would be
        shown, or they do not fit the domain.
    ImportError
        If matplotlib is not installed, with the line that installs it.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> ax = dps.diagnostics.plot_draws(dps.sample(target, seed=1), target)
    >>> ax.get_xlabel()
    'theta[0]'
    """
    chains = read(draws)
    domain = target.domain if isinstance(target, Gibbs) else target
    if domain is not None:
        check.instance(Domain, target=domain, remedy="Pass a dps.Gibbs or a domain.")
        domain.check(len(chains.names))
    if coefficients is not None:
        names = chosen(coefficients, chains.names)
        theta = chains.theta[:, :, [chains.names.index(name) for name in names]]
        chains, domain = chains._replace(theta=theta, names=tuple(names)), None
    dim = len(chains.names)
    if dim > 3:
        remedy = f'Select some: coefficients=["{chains.names[0]}", ...].'
        check.fail("draws", "of 1, 2 or 3 coefficients", dim, remedy)
    if dim == 1:
        return _line(chains, domain, ax)
    if dim == 3 and domain is not None and domain.affine_dim(3) == 2:
        return _triangle(chains, domain, ax)
    return _plane(chains, domain, ax) if dim == 2 else _space(chains, domain, ax)


def _line(chains: ChainDraws, domain: Domain | None, ax: Axes | None) -> Axes:
    """Draw histograms on common bins, and both ends of the interval."""
    ax = axes(ax, figsize=(6.0, 3.5))
    values = chains.theta[:, :, 0]
    bins = np.histogram_bin_edges(values, bins="rice").tolist()
    for c, row in enumerate(values):
        style: Look = {"histtype": "step", "ls": LINES[c % 4], "lw": 1.3}
        ax.hist(row, bins, density=True, label=f"chain {c}", **style)
    if domain is not None:
        center = domain.interior_point(1)
        ends = reach(domain, center, np.array([[-1.0], [1.0]]))
        view = _view(values.reshape(-1, 1), ends)
        for end in ends[np.isfinite(ends)]:
            ax.axvline(end, label=_visible(ends, view), **EDGE)
        ax.set_xlim(*view[:, 0])
    ax.set_xlabel(f"theta[{chains.names[0]}]")
    ax.set_ylabel("density of draws")
    _legend(ax)
    return ax


def _plane(chains: ChainDraws, domain: Domain | None, ax: Axes | None) -> Axes:
    """Draw points and the closed curve around them."""
    ax = axes(ax, figsize=(6.2, 5.0))
    _scatter(ax, chains.theta)
    if domain is not None:
        curve = plane_curve(domain, 2)
        view = _view(chains.theta.reshape(-1, 2), curve)
        ax.plot(*curve.T, label=_visible(curve, view), **EDGE)
        ax.set(xlim=view[:, 0], ylim=view[:, 1])
    ax.set_xlabel(f"theta[{chains.names[0]}]")
    ax.set_ylabel(f"theta[{chains.names[1]}]")
    ax.set_aspect("equal", adjustable="box")
    _legend(ax)
    return ax


def _triangle(chains: ChainDraws, domain: Domain, ax: Axes | None) -> Axes:
    """Draw the simplex in its own plane, each corner with its coefficient."""
    ax = axes(ax, figsize=(6.2, 5.0))
    _scatter(ax, chains.theta @ HULL.T)
    ax.plot(*(plane_curve(domain, 3) @ HULL.T).T, label="boundary", **EDGE)
    for name, corner in zip(chains.names, HULL.T, strict=True):
        ax.annotate(
            f"theta[{name}] = 1",
            1.06 * corner,
            ha="center",
            va="bottom" if corner[1] > 0.0 else "top",
        )
    ax.margins(0.15)
    ax.set_aspect("equal")
    ax.axis("off")
    _legend(ax)
    return ax


def _space(chains: ChainDraws, domain: Domain | None, ax: Axes | None) -> Axes:
    """Draw points and a net of curves on the surface around them."""
    from matplotlib.ticker import MaxNLocator

    if ax is None:
        ax = axes(None, figsize=(6.5, 5.5))
        figure = ax.figure
        ax.remove()
        ax = figure.add_subplot(projection="3d")
    _scatter(ax, chains.theta)
    if domain is not None:
        curves = space_curves(domain)
        every = np.concatenate(curves)
        view = _view(chains.theta.reshape(-1, 3), every)
        for curve in curves:
            # Matplotlib does not clip in three dimensions. NaN interrupts a line.
            is_hidden = ((curve < view[0]) | (curve > view[1])).any(axis=1)
            seen = np.where(is_hidden, np.nan, curve.T)
            ax.plot(*seen, label=_visible(every, view), **FAINT)
        ax.set(xlim=view[:, 0], ylim=view[:, 1], zlim=view[:, 2])
        ax.set_box_aspect(view[1] - view[0])
    for letter, name in zip("xyz", chains.names, strict=True):
        getattr(ax, f"set_{letter}label")(f"theta[{name}]")
        getattr(ax, f"{letter}axis").set_major_locator(MaxNLocator(4))
    _legend(ax)
    return ax


def _scatter(ax: Axes, points: Array) -> None:
    """Draw the points of each chain, or only some of them if there are many."""
    # More than 4000 points would look like one spot.
    stride = -(-points.shape[0] * points.shape[1] // 4000)
    for c, chain in enumerate(points[:, ::stride]):
        style: Look = {"marker": MARKERS[c % 4], "color": COLORS[c % 4]}
        style |= {"ls": "", "ms": 3.0, "mew": 0.6, "mfc": "none"}
        ax.plot(*chain.T, label=f"chain {c}", **style)


def _view(points: Array, boundary: Array) -> Array:
    """Return the corners of a view of the draws and of a boundary that is near."""
    low, high = points.min(axis=0), points.max(axis=0)
    # A view of a whole boundary that is more than ten times as wide as the draws would
    # show them as one spot. Only its near part is shown then.
    max_distance = 5.0 * np.max(high - low)
    middle = 0.5 * (low + high)
    finite = boundary[np.isfinite(boundary).all(axis=1)]
    # A margin is shown where no boundary is near.
    corners = 1.5 * (np.stack([low, high]) - middle) + middle
    if len(finite):
        edges = np.stack([finite.min(axis=0), finite.max(axis=0)])
        if (np.abs(edges - middle) <= max_distance).all():
            corners = edges + 0.05 * np.ptp(edges, axis=0) * np.array([[-1.0], [1.0]])
    return np.asarray(np.stack([np.fmin(low, corners[0]), np.fmax(high, corners[1])]))


def _visible(boundary: Array, view: Array) -> str:
    """Return the label of the boundary, which says whether it is in the view.

    Matplotlib shows no label that begins with an underscore.
    """
    finite = boundary[np.isfinite(boundary).all(axis=1)]
    if len(finite) == 0:
        return "_"
    is_seen = ((finite >= view[0]) & (finite <= view[1])).all(axis=1).any()
    return "boundary" if is_seen else "boundary (far outside)"


def _legend(ax: Axes) -> None:
    """Name each kind of line once, beside the axes."""
    handles, labels = ax.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    position = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    ax.legend(
        unique.values(), unique.keys(), fontsize="small", markerscale=2, **position
    )


def reach(domain: Domain, center: Array, directions: Array) -> Array:
    """Return boundary points in some directions, NaN where there is no boundary.

    The inner point ``center`` has shape (dim,), the directions, within the affine hull,
    and the result have shape (..., dim).
    """
    rows = directions.reshape(-1, len(center))
    ends = np.array([domain.chord(center, row)[1] for row in rows])
    ends = np.where(np.isfinite(ends), ends, np.nan)
    return np.asarray((center + ends[:, None] * rows).reshape(directions.shape))


def plane_curve(domain: Domain, dim: int) -> Array:
    """Return the boundary of a domain of dimension 2 as a closed curve (point, dim)."""
    angles = np.linspace(0.0, 2.0 * np.pi, NUM_ANGLES)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    plane = np.eye(2) if dim == 2 else HULL
    return reach(domain, domain.interior_point(dim), circle @ plane)


def space_curves(domain: Domain) -> list[Array]:
    """Return curves on the boundary of a domain of dimension 3.

    They are the edges of a box, and meridians and parallels otherwise.
    """
    if domain.name == "box" and domain.is_bounded:
        return _edges(domain.body(3))
    center = domain.interior_point(3)
    turn = np.linspace(0.0, 2.0 * np.pi, NUM_ANGLES)
    curves = []
    # Twelve meridians and seven parallels.
    for longitude in np.linspace(0.0, np.pi, 13)[:-1]:
        plane = [np.cos(longitude), np.sin(longitude)]
        curves.append(np.stack([*np.outer(plane, np.sin(turn)), np.cos(turn)], axis=1))
    for latitude in np.linspace(0.0, np.pi, 9)[1:-1]:
        ring = np.sin(latitude) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        level = np.full((NUM_ANGLES, 1), np.cos(latitude))
        curves.append(np.concatenate([ring, level], axis=1))
    return [reach(domain, center, curve) for curve in curves]


def _edges(body: Any) -> list[Array]:
    """Return the twelve edges of a box, as many points that a view may cut off."""
    sides, along = np.stack([body.lower, body.upper]), np.linspace(0.0, 1.0, NUM_ANGLES)
    edges = []
    for axis in range(3):
        for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
            others = sides[[first, second], [(axis + 1) % 3, (axis + 2) % 3]]
            run = sides[0, axis] + along * (sides[1, axis] - sides[0, axis])
            # The other two coordinates follow the axis in cyclic order.
            edge = np.tile(np.roll([0.0, *others], axis), (NUM_ANGLES, 1))
            edge[:, axis] = run
            edges.append(edge)
    return edges


def plot_rank(
    draws: DataTree, coefficients: Sequence[str] | None = None
) -> PlotCollection:
    """Draw how evenly each chain's ranks are spread among those of all chains.

    Curves are differences between the distribution of a chain's ranks and the uniform
    one (arXiv:2103.10522). Draws are thinned by their correlation time. Then the curve
    of a chain that agrees stays inside the gray band with probability 0.99.

    Parameters
    ----------
    draws : DataTree
        Result of `sample`.
    coefficients : sequence of str, optional
        Names. By default all, or the 12 of smallest effective size.

    Returns
    -------
    arviz_plots.PlotCollection
        One panel per coefficient. ``.savefig(path)`` writes it.

    Raises
    ------
    ImportError
        If arviz-plots is not installed, with the line that installs it.
    ValueError
        If the draws are not those of `sample`, or a name is not a coefficient.
    """
    return _plot_by_arviz("plot_rank", draws, coefficients, chains_of="ecdf_lines")


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
    return _plot_by_arviz("plot_trace", draws, coefficients, chains_of="trace")


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
    return _plot_by_arviz(
        "plot_autocorr", draws, coefficients, chains_of="lines", max_lag=max_lag
    )


def plot_ess_evolution(
    draws: DataTree, coefficients: Sequence[str] | None = None
) -> PlotCollection:
    """Draw bulk and tail effective sizes of growing parts of the chains.

    They grow in proportion to the draws if chains mix. If a curve bends, longer chains
    were in regions where shorter ones had not been.

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
    return _plot_by_arviz("plot_ess_evolution", draws, coefficients)


def _plot_by_arviz(
    name: str,
    draws: DataTree,
    coefficients: Sequence[str] | None,
    *,
    chains_of: str = "",
    **options: object,
) -> PlotCollection:
    """Call arviz-plots, with panels of equal size and line styles for the chains.

    ``chains_of`` is the name of the visual element that has one line for each chain.
    """
    chains = read(draws)
    names = _choose_names(chains, coefficients)
    if name == "plot_rank":
        draws = _thin(draws, chains.theta)
    if name == "plot_ess_evolution":
        options["min_ess"] = MIN_ESS
        options["visuals"] = {
            "ess_tail": {"marker": "^", "color": COLORS[1]},
            "ess_tail_line": {"linestyle": "--", "color": COLORS[1]},
        }
    try:
        import arviz_plots
    except ImportError as error:
        raise check.missing_library(name, "arviz-plots", "plots") from error
    columns = min(3, len(names))
    # The legend needs 0.6 inches.
    size = (PANEL[0] * columns, PANEL[1] * -(-len(names) // columns) + 0.6)
    if chains_of:
        options["aes"] = {"color": ["chain"], "linestyle": ["chain"]}
        options["aes_by_visuals"] = {chains_of: ["color", "linestyle"]}
        options["color"] = COLORS
    plot = getattr(arviz_plots, name)(
        draws,
        var_names="theta",
        coords={"coefficient": names},
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
    """Add a legend of the two effective sizes, which arviz-plots does not have."""
    from matplotlib.lines import Line2D

    figure = plot.viz["figure"].item()
    lines = [
        Line2D([], [], color="C0", marker="o", label="bulk"),
        Line2D([], [], color=COLORS[1], marker="^", ls="--", label="tail"),
        Line2D([], [], color="0.3", ls="-.", label=f"smallest useful, {MIN_ESS:g}"),
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=min(columns, 3))


def _labeller() -> BaseLabeller:
    """Return a labeller that names panels as `plot_draws` names axes."""
    from arviz_base.labels import BaseLabeller

    class Labeller(BaseLabeller):
        def make_label_vert(
            self, var_name: str | None, sel: Mapping[str, object], isel: object
        ) -> str:
            del isel
            return f"{var_name}[{sel['coefficient']}]"

    return Labeller()


def _thin(draws: DataTree, theta: Array) -> DataTree:
    """Keep one draw per correlation time, so that ranks are nearly independent."""
    time = float(np.max(correlation_times(theta)))
    # At least 50 draws of a chain are kept, as ranks of fewer would show little.
    longest = theta.shape[1] // 50
    stride = max(1, min(math.ceil(time), longest) if math.isfinite(time) else 1)
    return draws.isel(draw=slice(None, None, stride), missing_dims="ignore")


def _choose_names(chains: ChainDraws, coefficients: Sequence[str] | None) -> list[str]:
    """Return the names to show, in the order of the coefficients."""
    if coefficients is not None:
        return chosen(coefficients, chains.names)
    if len(chains.names) <= MAX_PANELS:
        return list(chains.names)
    sizes = mixing(chains.theta)["ess_bulk"]
    worst = np.argsort(np.nan_to_num(sizes))[:MAX_PANELS]
    return [chains.names[i] for i in sorted(worst)]
