"""Localized rejection sampler: which targets it supports, and its preparation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.losses import Loss
from dpsample.samplers.localized.prepared import Localization, PreparedLocalized
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.targets.gibbs import Gibbs

# Total-variation error of draws that are not released.
STUDY_GAMMA = 1e-9


def explain_unsupported(loss: Loss) -> str:
    """Return why `Localized` does not support a loss, or "" if it does."""
    if not loss.has_margin:
        return "Localization needs losses of a margin: use Proximal."
    # The second derivative at the margin 0 and the response 1. It is infinite for
    # losses with a kink, whose margins are multiples of each other.
    zero = np.zeros(1)
    if not np.isfinite(loss.curvature(zero, zero, np.ones(1))[1]).all():
        return (
            f"The {loss.name} loss is not smooth, so no quadratic touches the "
            "energy from below: use Proximal or a smoothed loss."
        )
    return ""


@dataclass(frozen=True)
class Localized(Sampler):
    r"""Exact rejection on the region that holds all but gamma of the target.

    The loss needs a bounded second derivative, and the regularizer strong convexity in
    l2. If the mode is inside, any domain is supported. If it is on the boundary, the
    domain must be a ball, a box, a polytope or the simplex. If rejection is impossible
    or costs more, `release` uses `Proximal`, which has a proof of the same gamma.

    Notes
    -----
    **Guarantee.** For all records, draws are independent and follow the target given a
    region that holds all but gamma of it. So the total-variation error of a draw is at
    most gamma (Theorems A to C of `dpsample.samplers.localized.region`).

    Examples
    --------
    >>> from dpsample.samplers import Localized
    >>> Localized().exactness
    'iid'
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether loss, regularizer and weight allow it, and if not, why."""
        reason = explain_unsupported(target.problem.loss)
        if reason:
            return False, reason
        # The smallest curvature of the regularizer, times its weight in the energy.
        if not target.k * target.mu * target.curvature[0] > 0.0:
            return False, "The energy needs mu > 0 and a regularizer convex in l2."
        return True, ""

    def prepare(
        self,
        target: Gibbs,
        rng: np.random.Generator,
        *,
        gamma: float = STUDY_GAMMA,
    ) -> PreparedLocalized:
        """Find mode, region and proposals, and estimate the work of a draw.

        Parameters
        ----------
        target : Gibbs
            The target.
        rng : numpy.random.Generator
            Stream of the pilot run. The draws need another one.
        gamma : float
            Total-variation error of a draw.

        Returns
        -------
        PreparedLocalized
            The sampler, ready to draw.

        Raises
        ------
        ValueError
            If the target is not supported, or no region is small enough for rejection.
        """
        self.require(target)
        localization = Localization.find(target, gamma)
        prepared = None if localization is None else localization.prepare(rng)
        if prepared is None or not prepared.accepts_in_time:
            raise ValueError(
                "sampler must find a region on which rejection is practical, got none "
                "for these records. Use dps.samplers.Proximal or another sampler."
            )
        return prepared
