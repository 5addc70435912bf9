"""What a comparison with an exact law found, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsample.diagnostics.distances import Interval

Array = NDArray[np.float64]

# Probability with which the discrepancy that could be seen is seen.
POWER = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Tests of a sample against the exact law, one per coordinate and of the energy.

    Attributes
    ----------
    subject, reference : str
        What was compared with what.
    size : int
        Number of points.
    views : tuple of str
        What was tested: all coordinates, and the energy V.
    distances, p_values : array of shape (num_views,)
        Kolmogorov distances and bounds of the probability of such a distance if the
        laws are equal.
    threshold : float
        Distance from which a view is refused.
    false_alarm : float
        Bound of the probability that exact draws fail, all views together.
    detectable : float
        Kolmogorov distance of laws that is seen with probability at least `POWER`.
    total_variation : Interval or None
        On a partition of the body; in dimension 1 and 2.
    wasserstein : dict of str to Interval
        Wasserstein-1 distance of each coordinate; in dimension 1 and 2.
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
        """Distances, the verdict, and what could have been seen."""
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
    """Shift of a normal law, in standard deviations, with that distance."""
    from scipy.stats import norm

    return float(2.0 * norm.ppf(0.5 + 0.5 * min(distance, 1.0)))
