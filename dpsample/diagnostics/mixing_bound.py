"""Bounds of total variation over time, in words and as a plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample._axes import axes
from dpsample.samplers.couplings import MeetingTimes, TotalVariationCurve

Array = NDArray[np.float64]

WORDS = "statistical, for this data set, not a privacy proof"


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingBound:
    """Bounds of total variation over time: from couplings, and proved.

    Attributes
    ----------
    sampler : str
        Whose chain was coupled.
    times : MeetingTimes
        When the pairs met.
    curve : TotalVariationCurve
        Estimates and upper limits at each number of steps.
    proved : array of shape (num_steps,) or None
        Proved bounds of the proximal sampler at the same numbers of steps; None where
        no metric is valid.
    proved_for : str
        Whose bounds they are: `release` relies on such a curve and on no other.
    """

    sampler: str
    times: MeetingTimes
    curve: TotalVariationCurve
    proved: Array | None
    proved_for: str

    @property
    def steps(self) -> NDArray[np.int64]:
        """Numbers of steps t, each being one draw of the sampler."""
        return self.curve.steps

    @property
    def estimate(self) -> Array:
        """Mean bound at each t."""
        return self.curve.estimate

    @property
    def upper(self) -> Array:
        """Upper confidence limit at each t."""
        return self.curve.upper

    def plot(self, ax: Any = None) -> Any:
        """Draw estimates, limits and the proved curve over the steps.

        The scale ends where that many replicates see nothing; the proved curve goes on.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        ax = axes(ax, figsize=(6.0, 4.0))
        curve = self.curve
        limit = f"upper limit ({curve.confidence:g})"
        ax.plot(curve.steps, np.minimum(curve.estimate, 1.0), "C0-", label="couplings")
        ax.plot(curve.steps, curve.upper, "C0--", label=limit)
        extrapolated = curve.steps[curve.is_extrapolated]
        if extrapolated.size:
            ax.axvspan(
                extrapolated[0],
                curve.steps[-1],
                color="0.92",
                zorder=0,
                label="extrapolated",
            )
        if self.proved is not None:
            proof = f"proved, {self.proved_for}"
            ax.plot(curve.steps, self.proved, "C1-", label=proof)
        ax.set_yscale("log")
        # The proof goes on far below what couplings can see.
        ax.set_ylim(0.1 / curve.replicates, 1.5)
        ax.set_xlabel("steps")
        ax.set_ylabel("total variation to the target")
        ax.set_title(f"{self.sampler}: {WORDS}", fontsize="small")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """One line per number of steps, and what the numbers mean."""
        curve, count = self.curve, self.curve.replicates
        lines = [
            f"total variation of {self.sampler} to its target",
            f"({count} pairs of chains, lag {self.times.lag}{self._owner()})",
            f"{'steps':>8}  {'estimate':>9}  {f'upper {curve.confidence:g}':>10}"
            + ("" if self.proved is None else "  proved"),
        ]
        for i, step in enumerate(curve.steps):
            line = f"{step:>8}  {curve.estimate[i]:>9.3g}  {curve.upper[i]:>10.3g}"
            if self.proved is not None:
                line += f"  {self.proved[i]:.3g}"
            if curve.is_extrapolated[i]:
                line += "  (estimate extrapolated)"
            lines.append(line)
        return "\n".join(
            [
                *lines,
                f"Estimates and limits: {WORDS}.",
                "They show how fast pairs of chains forget their start; they cannot "
                "show a part of",
                "the target that no chain has reached, nor distances far below "
                f"3 / {count}.",
            ]
        )

    def _owner(self) -> str:
        """Words for the proved curve, if there is one."""
        return "" if self.proved is None else f"; proved: {self.proved_for}"
