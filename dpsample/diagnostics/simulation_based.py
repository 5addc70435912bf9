"""Simulation-based calibration: rank tests of a whole posterior computation.

The target is the density e^{-k (F + mu r)} on a domain, with the mean loss F of n
records, a regularizer r of weight mu >= 0 and an inverse temperature k > 0.

Let theta be drawn from the prior e^{-k mu r}, and labels from the likelihood e^{-k F}
given theta. Then theta is one more draw from the posterior of these labels, so its rank
among independent posterior draws is uniform (arXiv:1804.06788). The likelihood must be
normalized. This is so for the logistic loss and k = n, the number of records.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.core.check import axes
from dpsample.core.streams import Seed, streams
from dpsample.diagnostics import laws
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.laws import POWER, threshold
from dpsample.losses import Linear
from dpsample.problem.problem import Problem
from dpsample.problem.storage import MemoryStorage
from dpsample.running.progress import with_line
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.choice import draws_exactly
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs, as_rows
from dpsample.targets.gibbs_target import energies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Length of the chain that shows which draws are nearly independent.
PILOT_DRAWS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Ranks of parameters among posterior draws, and tests of their uniformity.

    Attributes
    ----------
    sampler : str
        The sampler among whose draws the parameters were ranked.
    names : tuple of str
        All coordinates, and the energy V.
    ranks : array of shape (num_replicates, num_names)
        Numbers of draws below the parameter, from 0 to ``num_draws``.
    num_draws : int
        Posterior draws per replicate.
    p_values : array of shape (num_names,)
        Chi-square tests of uniformity.
    false_alarm : float
        Probability that a correct computation fails, all names together.
    """

    sampler: str
    names: tuple[str, ...]
    ranks: Ints
    num_draws: int
    p_values: Array
    false_alarm: float

    @property
    def detectable(self) -> float:
        """Relative error of the bins' shares that a test sees with power `POWER`."""
        number = len(bin_edges(len(self.ranks), self.num_draws)) - 1
        level = self.false_alarm / len(self.names)
        return smallest_effect(number, len(self.ranks), level)

    @property
    def findings(self) -> tuple[str, ...]:
        """Names whose ranks are not uniform."""
        level = self.false_alarm / len(self.names)
        tested = zip(self.names, self.p_values, strict=True)
        return tuple(name for name, p in tested if p <= level)

    @property
    def ok(self) -> bool:
        """Whether all ranks look uniform."""
        return not self.findings

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the distribution functions of the ranks minus that of the uniform law.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes: curves leave the gray band, which holds for all names together,
            with probability at most ``false_alarm`` if the computation is right.
        """
        ax = axes(ax, figsize=(6.0, 4.0))
        size, levels = len(self.ranks), np.arange(self.num_draws + 1)
        uniform = (levels + 1.0) / (self.num_draws + 1.0)
        # The distribution function of ``size`` uniform ranks leaves this band with the
        # probability of the level at most (Dvoretzky, Kiefer, Wolfowitz, Massart).
        band = threshold(self.false_alarm / len(self.names), size)
        ax.axhspan(-band, band, facecolor="0.92", edgecolor="0.5", zorder=0)
        for name, ranks in zip(self.names, self.ranks.T, strict=True):
            below = np.searchsorted(np.sort(ranks), levels, "right") / size
            ax.plot(uniform, below - uniform, drawstyle="steps-mid", label=name)
        ax.set_xlabel("rank of the parameter among posterior draws, as a share")
        ax.set_ylabel("distribution function minus uniform")
        ax.set_title(f"{self.sampler}: {size} simulated data sets", fontsize="small")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """Return the p-values, the verdict, and what it is about."""
        size, findings = len(self.ranks), self.findings
        lines = [
            f"ranks of {size} parameters among {self.num_draws} draws of {self.sampler}"
        ]
        for name, p in zip(self.names, self.p_values, strict=True):
            note = "  NOT UNIFORM" if name in findings else ""
            lines.append(f"  {name}: chi-square test, p = {p:.2g}{note}")
        verdict = "no departure seen" if self.ok else "prior, labels and draws disagree"
        return "\n".join(
            [
                *lines,
                f"{verdict}; a correct computation fails with probability about "
                f"{self.false_alarm:g}.",
                f"Could have seen, with probability {POWER:g}: shares of bins of ranks "
                f"off by {100.0 * self.detectable:.0f} percent",
                "(root mean square). It is about data sets from the prior: yours may "
                "be harder.",
                "For study: not a privacy proof.",
            ]
        )


@with_line
def simulation_based_calibration(
    target: Gibbs,
    sampler: Sampler,
    *,
    num_replicates: int = 200,
    num_draws: int = 19,
    spacing: int | None = None,
    false_alarm: float = 1e-3,
    seed: Seed = 0,
    threads: int | None = None,
    progress: bool = True,
) -> Calibration:
    """Check a posterior computation on data sets simulated from its own prior.

    Parameters
    ----------
    target : Gibbs
        Logistic loss with k = n, and mu > 0 or a bounded domain. Its features, domain
        and regularizer are used, and new labels are simulated for each replicate.
    sampler : Sampler
        Draws from each posterior, started and warmed up as by `sample`.
    num_replicates : int
        Simulated data sets.
    num_draws : int
        Number of posterior draws among which each parameter is ranked.
    spacing : int, optional
        Steps from one of these to the next. By default so many that draws are nearly
        independent in a pilot run on the target itself.
    false_alarm : float
        Probability that a correct computation fails, all names together.
    seed : int or SeedSequence, optional
        A seed gives the same ranks for any number of threads.
    threads : int, optional
        Number of threads. By default the number of processors.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    Calibration
        Ranks with their tests, and ``plot``.

    Raises
    ------
    ValueError
        If the likelihood is not normalized, the prior cannot be drawn from, or an
        argument is malformed.

    Notes
    -----
    **Guarantee.** For independent posterior draws each rank is exactly uniform. The
    prior is drawn exactly or within 1e-6 in total variation. The level is approximate,
    because draws of a chain are only nearly independent, and the chi-square
    distribution is a limit.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(40, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=3.0))
    >>> target = dps.Gibbs(problem, k=40.0, mu=0.02)
    >>> report = dps.diagnostics.simulation_based_calibration(
    ...     target, dps.samplers.Exact(), num_replicates=100)
    >>> report.ok, report.ranks.shape
    (True, (100, 3))
    """
    del progress  # `with_line` shows the line
    _check_arguments(target, sampler)
    check.integer(2, num_replicates=num_replicates)
    check.integer(1, num_draws=num_draws)
    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    tuning, pilot, *rngs = streams(seed, num_replicates + 2)
    draw_prior = prior(target, num_replicates, tuning)
    if spacing is None:
        spacing = _spacing(target, sampler, pilot)
    check.integer(1, spacing=spacing)

    def rank(rng: np.random.Generator) -> Ints:
        theta = draw_prior(rng)
        posterior = redraw_labels(target, theta, rng)
        draws = _draw_spaced(sampler, posterior, rng, num_draws, spacing)
        return _ranks(posterior, theta, draws, rng)

    ranks = np.array(run_all(rank, rngs, threads))
    return Calibration(
        sampler=repr(sampler),
        names=(*laws.names(target), "energy"),
        ranks=ranks,
        num_draws=num_draws,
        p_values=np.array([uniformity(column, num_draws) for column in ranks.T]),
        false_alarm=float(false_alarm),
    )


def _check_arguments(target: Gibbs, sampler: Sampler) -> None:
    """Raise unless the likelihood of the target is normalized."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.instance(Sampler, sampler=sampler, remedy="Use dps.samplers.MALA(), say.")
    problem = target.problem
    if problem.loss.name != "logistic":
        remedy = "Other losses are no normalized log-likelihoods of labels."
        check.fail("target", "one with a logistic loss", problem.loss.name, remedy)
    if target.k != problem.num_records:
        condition = f"the number of records, {problem.num_records}"
        remedy = "Only then is e^(-k F) the likelihood of the labels."
        check.fail("k", condition, target.k, remedy)


def prior(
    target: Gibbs, count: int, rng: np.random.Generator
) -> Callable[[np.random.Generator], Array]:
    """Return a function that draws from the prior e^{-k mu r} on the domain.

    Draws are exact, or have a proved error for ``count`` of them together.
    """
    problem = target.problem
    # A linear loss of a row of zeros is 0, so its target is the prior.
    flat = Problem(
        np.zeros((1, target.dim)),
        [0.0],
        loss=Linear(),
        domain=problem.domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    alone = Gibbs(flat, k=target.k, mu=target.mu, regularizer=target.regularizer)
    # Both are names in `laws.REFERENCES`, exact draws one by one, or long chains of the
    # proximal sampler. ``choose`` raises if there is no proof for the latter.
    name = "exact draws" if draws_exactly(alone) else laws.choose(alone, "proximal")
    # 1e-6 is the total variation of all prior draws together, if they are not exact.
    return laws.drawer(alone, name, 1e-6 / count, rng)


def redraw_labels(target: Gibbs, theta: Array, rng: np.random.Generator) -> Gibbs:
    """Return the target of new labels with P(y) = 1 / (1 + e^(-y u)) at margin u."""
    data = target.problem.data
    margins = as_rows(data) @ theta + (data.offset if data.offset.size else 0.0)
    # P(noise < u) = 1 / (1 + e^-u) for logistic noise.
    noise = rng.logistic(size=len(margins))
    # The copy shares features and facts, and gets a storage with the new labels.
    problem = copy.copy(target.problem)
    labels = np.where(noise < margins, 1.0, -1.0)
    problem.storage = MemoryStorage(data._replace(response=labels))
    return Gibbs(problem, k=target.k, mu=target.mu, regularizer=target.regularizer)


def _draw_spaced(
    sampler: Sampler,
    target: Gibbs,
    rng: np.random.Generator,
    num_draws: int,
    spacing: int,
) -> Array:
    """Return draws after the warm-up, ``spacing`` steps apart."""
    prepared = sampler.prepare(target, rng.spawn(1)[0])
    state, runner = prepared.init(prepared.draw_start(rng)), prepared.runner()
    length = prepared.num_warmup + spacing * num_draws
    draws = np.empty((length, target.dim))
    runner(state, rng, draws, np.empty((length, NUM_STATS)))
    return draws[prepared.num_warmup + spacing - 1 :: spacing]


def _spacing(target: Gibbs, sampler: Sampler, rng: np.random.Generator) -> int:
    """Return the steps that make draws nearly independent, from one long chain."""
    if sampler.exactness == "iid":
        return 1
    draws = _draw_spaced(sampler, target, rng, PILOT_DRAWS, 1)
    # `laws.SPACING`, 2, is the distance of draws that count as independent, in
    # integrated autocorrelation times. This time is the number of draws over their
    # effective size.
    size = laws.smallest_ess(draws[None])
    return max(1, int(np.ceil(laws.SPACING * PILOT_DRAWS / max(size, 1.0))))


def _ranks(target: Gibbs, theta: Array, draws: Array, rng: np.random.Generator) -> Ints:
    """Return the rank of each coordinate and of the energy.

    The parameter's place among draws that are equal to it is random.
    """
    points = np.vstack([theta, draws])
    values = np.column_stack([points, energies(target, points)])
    below = (values[1:] < values[0]).sum(axis=0)
    ties = (values[1:] == values[0]).sum(axis=0)
    return np.asarray(below + rng.integers(0, ties + 1))


def uniformity(ranks: Ints, num_draws: int) -> float:
    """Return the chi-square p-value of ranks in 0, ..., num_draws.

    There are as many bins as the expected counts allow, with the same number of ranks
    each if that is possible.
    """
    from scipy.stats import chisquare

    edges = bin_edges(len(ranks), num_draws)
    counts = np.histogram(ranks, edges - 0.5)[0]
    expected = len(ranks) * np.diff(edges) / (num_draws + 1)
    return float(chisquare(counts, expected).pvalue)


def bin_edges(size: int, num_draws: int) -> Ints:
    """Return the first ranks of the bins, and one more than the last rank."""
    number = num_draws + 1
    # A bin of the chi-square test has ten expected ranks or more. The largest number of
    # bins is used for which all have the same width, if there is one.
    max_bins = max(2, min(number, size // 10))
    bins = next((b for b in range(max_bins, 1, -1) if number % b == 0), max_bins)
    return np.linspace(0, number, bins + 1).astype(np.int64)


def smallest_effect(bins: int, size: int, level: float) -> float:
    """Return the relative error of shares (in quadratic mean) seen with `POWER`.

    With ``size`` ranks and this error the statistic is noncentral chi-square with
    noncentrality size effect^2.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    limit = chi2.isf(level, bins - 1)
    # An effect that is seen surely enough ends the bracket.
    top = 1.0
    while ncx2.sf(limit, bins - 1, size * top**2) < POWER:
        top *= 2.0

    def excess(effect: float) -> float:
        return float(ncx2.sf(limit, bins - 1, size * effect**2)) - POWER

    return float(brentq(excess, 1e-9, top))
