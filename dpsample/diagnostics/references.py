"""Comparison of draws with the exact distribution of their target.

Each *view*, a coordinate or the energy, has one test. It compares the distribution
functions of the draws and of a reference (`laws`) by their largest difference, the
Kolmogorov distance. All tests share one probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.diagnostics import laws
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.laws import POWER, Interval
from dpsample.running.progress import with_line
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import energies

if TYPE_CHECKING:
    from xarray import DataTree

# Probability that one limit of a total variation or Wasserstein distance is wrong.
LIMIT_ERROR = 0.025

Tests = dict[str, tuple[float, float]]  # distance and p-value of each view


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Tests of a sample against the exact distribution.

    There is one for each coordinate and one for the energy.

    Attributes
    ----------
    subject, reference : str
        Descriptions of the sample and of the reference.
    size : int
        Number of points.
    views : tuple of str
        Names of what was tested: all coordinates, and the energy V.
    distances, p_values : array of shape (num_views,)
        Kolmogorov distances, and bounds of the probability of such a distance if the
        distributions are equal.
    threshold : float
        Distance from which a view is rejected.
    false_alarm : float
        Bound of the probability that exact draws fail, all views together.
    detectable : float
        Kolmogorov distance of distributions that is seen with probability at least
        `POWER`.
    total_variation : Interval or None
        Total variation on a partition of the domain, in dimension 1 and 2.
    wasserstein : dict of str to Interval
        Wasserstein-1 distance of each coordinate, in dimension 1 and 2.
    """

    subject: str
    reference: str
    size: int
    views: tuple[str, ...]
    distances: Array
    p_values: Array
    threshold: float
    false_alarm: float
    detectable: float
    total_variation: Interval | None
    wasserstein: dict[str, Interval]

    @property
    def ok(self) -> bool:
        """Whether no view differs."""
        return not self.findings

    @property
    def findings(self) -> tuple[str, ...]:
        """Views that differ."""
        level = self.false_alarm / len(self.views)
        differ = zip(self.views, self.p_values, strict=True)
        return tuple(name for name, p in differ if p <= level)

    def __repr__(self) -> str:
        """Return the distances, the verdict, and what could have been seen."""
        lines = [f"{self.subject}", f"against {self.reference}"]
        rows = zip(self.views, self.distances, self.p_values, strict=True)
        for name, distance, p in rows:
            note = "  DIFFERS" if name in self.findings else ""
            lines.append(f"  {name}: Kolmogorov distance {distance:.3g}, p <= {p:.2g}")
            lines[-1] += note
        if self.total_variation is not None:
            estimate, lower, upper = self.total_variation
            lines.append(
                f"  total variation >= {lower:.3g}; {estimate:.3g} on a partition, "
                f"noise included, <= {upper:.3g} there"
            )
        for name, (estimate, _, upper) in self.wasserstein.items():
            lines.append(f"  {name}: Wasserstein {estimate:.3g} <= {upper:.3g}")
        verdict = "no difference seen" if self.ok else "NOT the target's law"
        return "\n".join(
            [
                *lines,
                f"{verdict}; a correct sampler is refused with probability "
                f"<= {self.false_alarm:g}.",
                f"Could have seen, with probability {POWER:g}: Kolmogorov distance "
                f"{self.detectable:.2g} in a view, such as",
                f"a shift by {shift(self.detectable):.2g} standard deviations. Smaller "
                "errors, and differences in no view, stay",
                "unseen. For study: not a privacy proof.",
            ]
        )


def shift(distance: float) -> float:
    """Return the shift of a normal distribution, in sds, that has this distance."""
    from scipy.stats import norm

    return float(2.0 * norm.ppf(0.5 + 0.5 * min(distance, 1.0)))


@with_line
def compare(
    draws: Sampler | DataTree | Array,
    target: Gibbs,
    *,
    reference: str = "auto",
    num_replicates: int = 1000,
    num_draws: int | None = None,
    false_alarm: float = 1e-3,
    seed: Seed = 0,
    threads: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Compare draws, or a sampler, with the exact distribution of the target.

    Parameters
    ----------
    draws : Sampler, DataTree or array of shape (num_points, dim)
        A sampler is run in independent chains, of which the last draws are tested. This
        is the only case in which the probability of a false alarm needs no further
        assumption. Draws of `sample` are thinned until they are nearly independent, by
        their effective sizes. An array is taken as independent points.
    target : Gibbs
        The target.
    reference : {"auto", "closed form", "quadrature", "exact draws", "proximal"}
        The exact distribution, by default the first one that is possible. "proximal"
        draws have a proved error, which the p-values include.
    num_replicates, num_draws : int
        Number of independent chains of a sampler, and of draws of each. The default of
        the latter is one more than its usual warm-up.
    false_alarm : float
        Bound of the probability that a correct sampler fails, all views together.
    seed : int or SeedSequence, optional
        Seed of the chains and of the reference.
    threads : int, optional
        Number of threads. By default the number of processors.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    Comparison
        One test for each coordinate and one for the energy, with the discrepancy that
        they could have seen.

    Raises
    ------
    ValueError
        If no reference is possible, or an argument is malformed.

    Notes
    -----
    **Guarantee.** For independent points from the target, `Comparison.ok` is false with
    probability at most ``false_alarm``, for any number of points, because p-values are
    bounds by the inequality of Dvoretzky, Kiefer and Wolfowitz. Against quadrature they
    allow for the change between two grids.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> dps.diagnostics.compare(dps.samplers.Exact(), target).ok
    True
    >>> wrong = dps.Gibbs(problem, k=5.0, mu=0.1)
    >>> draws = dps.sample(wrong, num_draws=500, seed=1)
    >>> dps.diagnostics.compare(draws, target).findings
    ('theta[0]', 'energy')
    """
    del progress  # `with_line` shows the line
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    check.normal(false_alarm=false_alarm)  # it is divided among the views
    check.integer(2, num_replicates=num_replicates)
    if num_draws is not None:
        check.integer(1, num_draws=num_draws)
    if threads is not None:
        check.integer(1, threads=threads)
    chain_seed, others = seed_sequence(seed).spawn(2)
    if isinstance(draws, Sampler):
        run: dict[str, Any] = {"num_draws": num_draws, "seed": chain_seed}
        run["threads"] = threads
        points, subject = laws.replicates(draws, target, num_replicates, **run)
    else:
        points, subject = laws.independent(draws)
    if points.shape[1] != target.dim or len(points) < 2:
        check.fail("draws", f"2 or more of dimension {target.dim}", points.shape)
    name = laws.choose(target, reference)
    rank = target.domain.affine_dim(target.dim)
    grid = laws.grid(target) if rank in (1, 2) else None  # also for distances
    other: int | None = None
    if name in laws.DRAWN:
        # Each tested point has ten reference draws. The error of proximal references
        # may take a thousandth of the false alarms.
        other, error = 10 * len(points), 1e-3 * false_alarm
        tuning, *rest = streams(others, other + 1)
        draw = laws.drawer(target, name, error / other, tuning)
        drawn = np.array(run_all(draw, rest, threads))
        tests = _against_draws(target, points, drawn, error)
    elif grid is not None and name == "quadrature":
        tests = _against_grid(target, points, grid)
    else:
        tests = _against_closed_form(target, points, grid)
    # The false alarms are divided among the views, by the union bound.
    level = false_alarm / len(tests)
    limit = laws.threshold(level, len(points), other)
    return Comparison(
        subject=subject,
        reference=name,
        size=len(points),
        views=tuple(tests),
        distances=np.array([distance for distance, _ in tests.values()]),
        p_values=np.array([p for _, p in tests.values()]),
        threshold=limit,
        false_alarm=float(false_alarm),
        # By the triangle inequality the sample is farther than the limit from the
        # reference, unless it is that far from its own distribution.
        detectable=limit + laws.threshold(1.0 - POWER, len(points), other),
        total_variation=None if grid is None else _variation(points, grid),
        wasserstein={} if grid is None else _transport(target, points, grid),
    )


def _against_closed_form(target: Gibbs, points: Array, grid: laws.Grid | None) -> Tests:
    """Return one-sample tests against a closed form.

    The energy is tested only if its distribution is known, on the whole space or by a
    grid.
    """
    form = laws.closed_form(target)
    assert form is not None
    tests = {}
    for j, name in enumerate(laws.names(target)):
        tests[name] = _one_sample(points[:, j], form.coordinates[j].cdf)
    if form.excess is not None:
        excess = energies(target, points) - form.lowest
        tests["energy"] = _one_sample(excess, form.excess.cdf)
    elif grid is not None:
        tests["energy"] = _against_grid(target, points, grid)["energy"]
    return tests


def _against_grid(target: Gibbs, points: Array, grid: laws.Grid) -> Tests:
    """Return one-sample tests that allow for the change between two grids."""
    tests = {}
    for name, view in laws.views(target).items():
        values = view(points)
        fine, coarse = (
            laws.step_function(view(nodes), weights)
            for nodes, weights in ((grid.points, grid.weights), grid.coarse)
        )
        # The coarse grid is wrong by far more than the fine one, so the difference is
        # an estimate of the error that is too large.
        error = float(np.abs(fine(values) - coarse(values)).max())
        tests[name] = _one_sample(values, fine, error)
    return tests


def _against_draws(target: Gibbs, points: Array, drawn: Array, error: float) -> Tests:
    """Return two-sample tests. The error of the reference is added to the p-values."""
    tests = {}
    for name, view in laws.views(target).items():
        distance = laws.two_sample_kolmogorov(view(points), view(drawn))
        p = laws.p_value(distance, len(points), len(drawn))
        tests[name] = distance, min(1.0, p + error)
    return tests


def _one_sample(
    values: Array, cdf: Callable[[Array], Array], error: float = 0.0
) -> tuple[float, float]:
    """Return distance and p-value, for a distribution function with an ``error``."""
    distance = laws.kolmogorov(values, cdf)
    return distance, laws.p_value(max(0.0, distance - error), len(values))


def _variation(points: Array, grid: laws.Grid) -> Interval:
    """Return the total variation on cells of about equal probability."""
    # In whitened coordinates cells are about as wide in every direction.
    nodes = grid.points @ grid.whiten.T
    cell_of = laws.cells(nodes, grid.weights, len(points))
    of_nodes, of_points = cell_of(nodes), cell_of(points @ grid.whiten.T)
    number = int(max(of_nodes.max(), of_points.max())) + 1
    return laws.total_variation(
        np.bincount(of_points, minlength=number).astype(np.float64),
        np.asarray(np.bincount(of_nodes, grid.weights, number)),
        LIMIT_ERROR,
    )


def _transport(target: Gibbs, points: Array, grid: laws.Grid) -> dict[str, Interval]:
    """Return the Wasserstein distance of each coordinate."""
    # Width of the domain in each coordinate, which bounds how far mass may move.
    widths = np.full(target.dim, np.inf)
    if target.domain.is_bounded:
        eye, support = np.eye(target.dim), target.domain.support
        widths = np.asarray(support(eye) + support(-eye))
    return {
        name: laws.wasserstein(
            points[:, j],
            grid.points[:, j],
            grid.weights,
            width=float(widths[j]),
            error=LIMIT_ERROR,
        )
        for j, name in enumerate(laws.names(target))
    }
