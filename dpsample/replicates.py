"""What `replicate` returns: parameters of independent runs, and their values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.privacy import Certificate, EventCertificate

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Replicates:
    """What independent runs found. None of it is releasable.

    Attributes
    ----------
    thetas : array of shape (num_replicates, dim)
        One row per run; of `sample`, shape (num_replicates, chain, draw, dim).
    certificate : Certificate, EventCertificate or None
        The one that all runs share; it says that they are seeded. None without a
        budget, and for `sample`.
    values : array of shape (num_replicates, ...) or None
        What ``evaluate`` gave for each theta.
    seed : int
        Entropy of the root from which the runs' seeds were spawned.
    """

    thetas: Array
    certificate: Certificate | EventCertificate | None
    values: Array | None = None
    seed: Any = field(default=None)

    @property
    def mean(self) -> Any:
        """Mean of ``values`` over the runs."""
        return self._values().mean(axis=0)

    @property
    def standard_error(self) -> Any:
        """Standard error of `mean`: NaN for one run."""
        values = self._values()
        if len(values) == 1:
            return np.full(values.shape[1:], math.nan)[()]
        return values.std(axis=0, ddof=1) / math.sqrt(len(values))

    def _values(self) -> Array:
        if self.values is None:
            check.fail("evaluate", "given", "None", "Pass it to dps.replicate.")
        return self.values

    def __repr__(self) -> str:
        """Shape, and the mean of one value per run."""
        text = f"Replicates(thetas of shape {self.thetas.shape}"
        if self.values is not None and self.values.ndim == 1:
            text += f", mean value {self.mean:.6g} +- {self.standard_error:.2g}"
        return text + "; NOT releasable)"
