"""Bounds of total variation over time, shown with what they do not prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LABEL = "statistical, for this dataset, not a DP proof"


@dataclass(frozen=True, kw_only=True, eq=False)
class TotalVariationCurve:
    """Estimated bounds of total variation after given numbers of steps.

    Attributes
    ----------
    steps : array of int
        Numbers of steps t.
    estimate : array
        Mean bound; where ``is_extrapolated``, from a fitted geometric tail.
    upper : array
        Upper confidence limit, at most 1.
    horizon : array of int
        Number of steps after which the law stands for the target in the limit.
    is_extrapolated : array of bool
        Whether the bound is too small to be seen in so many replicates.
    confidence : float
        Level of the limit at each t.
    replicates : int
        Number of independent pairs of chains.
    """

    steps: NDArray[np.int64]
    estimate: Array
    upper: Array
    horizon: NDArray[np.int64]
    is_extrapolated: NDArray[np.bool_]
    confidence: float
    replicates: int

    def __repr__(self) -> str:
        """One line per step: never an estimate without its limit."""
        lines = [
            f"total variation to the target ({LABEL}; {self.replicates} replicates)",
            f"{'steps':>8}  {'estimate':>10}  upper limit ({self.confidence:g})",
        ]
        rows = zip(
            self.steps, self.estimate, self.upper, self.is_extrapolated, strict=True
        )
        for step, estimate, upper, is_extrapolated in rows:
            note = "  extrapolated" if is_extrapolated else ""
            lines.append(f"{step:>8}  {estimate:>10.3g}  {upper:.3g}{note}")
        return "\n".join(lines)
