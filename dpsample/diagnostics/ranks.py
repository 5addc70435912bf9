"""Ranks of parameters among posterior draws, and whether they are uniform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample._axes import axes
from dpsample.diagnostics.distances import threshold

Array = NDArray[np.float64]

# Expected ranks in a bin of the chi-square test.
PER_BIN = 10
# Probability with which the discrepancy that could be seen is seen.
POWER = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Ranks of parameters among posterior draws, and tests of their uniformity.

    Attributes
    ----------
    sampler : str
        Whose draws were ranked among.
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
    ranks: NDArray[np.int64]
    num_draws: int
    p_values: Array
    false_alarm: float

    @property
    def detectable(self) -> float:
        """Relative error of bins' shares that a test sees with probability `POWER`."""
        number = len(bin_edges(len(self.ranks), self.num_draws)) - 1
        level = self.false_alarm / len(self.names)
        return smallest_effect(number, len(self.ranks), level)

    @property
    def findings(self) -> tuple[str, ...]:
        """Names whose ranks are not uniform."""
        level = self.false_alarm / len(self.names)
        return tuple(
            name
            for name, p in zip(self.names, self.p_values, strict=True)
            if p <= level
        )

    @property
    def ok(self) -> bool:
        """Whether all ranks look uniform."""
        return not self.findings

    def plot(self, ax: Any = None) -> Any:
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
        band = threshold(self.false_alarm / len(self.names), size)
        ax.axhspan(-band, band, color="0.92", zorder=0)
        for name, ranks in zip(self.names, self.ranks.T, strict=True):
            below = np.searchsorted(np.sort(ranks), levels, "right") / size
            ax.plot(uniform, below - uniform, drawstyle="steps-mid", label=name)
        ax.set_xlabel("rank of the parameter among posterior draws, as a share")
        ax.set_ylabel("distribution function minus uniform")
        ax.set_title(f"{self.sampler}: {size} simulated data sets", fontsize="small")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """p-values, the verdict, and what it is about."""
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


def uniformity(ranks: NDArray[np.int64], num_draws: int) -> float:
    """Chi-square p-value of ranks in 0, ..., num_draws.

    As many bins as the expected counts allow, of the same number of ranks if that is
    possible.
    """
    from scipy.stats import chisquare

    edges = bin_edges(len(ranks), num_draws)
    counts = np.histogram(ranks, edges - 0.5)[0]
    expected = len(ranks) * np.diff(edges) / (num_draws + 1)
    return float(chisquare(counts, expected).pvalue)


def bin_edges(size: int, num_draws: int) -> NDArray[np.int64]:
    """First ranks of the bins, and one more than the last rank."""
    number = num_draws + 1
    most = max(2, min(number, size // PER_BIN))
    bins = next((b for b in range(most, 1, -1) if number % b == 0), most)
    return np.linspace(0, number, bins + 1).astype(np.int64)


def smallest_effect(bins: int, size: int, level: float) -> float:
    """Root mean square relative error of shares that is seen with probability POWER."""
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    limit = chi2.isf(level, bins - 1)
    top = 1.0
    while ncx2.sf(limit, bins - 1, size * top**2) < POWER:
        top *= 2.0

    def excess(effect: float) -> float:
        return float(ncx2.sf(limit, bins - 1, size * effect**2)) - POWER

    return float(brentq(excess, 1e-9, top))
