"""What `minimize` returns: a parameter vector, its certificate, and its cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._axes import axes
from dpsample.privacy import EventCertificate

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Parameters found by a gradient-based algorithm, and what is proved of them.

    Attributes
    ----------
    theta : array of shape (dim,)
        The output; the intercept, if any, comes last.
    certificate : EventCertificate or None
        The proof's public inputs and numbers; None without a budget.
    feature_names : tuple of str
        Names of the coefficients.
    num_gradients : int or None
        Gradients of single records that were evaluated: work, not an answer. Random
        batches make it random, and a certified solver (`ObjectivePerturbation`, `SVRG`,
        the localized methods) stops when the records let it, so it may depend on what
        the records hold: do not publish it.
    trace : dict of str to array
        ``num_gradients``, and ``risk`` on the evaluation data, along the way; empty
        without them. It is not private. Pickles and copies hold neither the trace nor
        ``num_gradients``.
    """

    theta: Array
    certificate: EventCertificate | None
    feature_names: tuple[str, ...]
    num_gradients: int | None
    trace: dict[str, Array] = field(default_factory=dict, repr=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the risk on the evaluation data against gradient evaluations.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        ValueError
            If the fit has no trace.
        """
        if not self.trace:
            remedy = "Pass evaluation=... to minimize."
            check.fail("trace", "recorded", "an empty trace", remedy)
        ax = axes(ax, figsize=(6.0, 4.0))
        ax.plot(self.trace["num_gradients"], self.trace["risk"], marker="o", ms=3)
        ax.set_xlabel("gradients of single records")
        ax.set_ylabel("risk on the evaluation data (not private)")
        return ax

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: nothing that is not private."""
        return self.__dict__ | {"num_gradients": None, "trace": {}}

    def __repr__(self) -> str:
        """Coefficients and the certificate's statement."""
        shown = np.array2string(self.theta, precision=4, threshold=8, edgeitems=3)
        stated = "no budget, no privacy"
        if self.certificate is not None:
            stated = repr(self.certificate)
        return f"Fit(theta={shown},\n  certificate={stated})"
