"""What a claim says of the privacy curve at every epsilon."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsample.privacy import Budget, delta_of, gaussian_delta
from dpsample.privacy.events import Event

Array = NDArray[np.float64]


def claimed_curve(
    epsilons: Array, budget: Budget, gdp: float | None, event: Event | None = None
) -> Array:
    r"""Upper bound of delta at each epsilon, as the claims imply it.

    (epsilon, delta)-privacy implies (e, delta)-privacy for e above epsilon, and below
    (e, 1 - (1 - delta) (1 + e^e) / (1 + e^epsilon))-privacy (Kairouz, Oh and Viswanath
    2015); gdp-GDP implies the Gaussian curve, an event its own.
    """
    below = 1.0 - (1.0 - budget.delta) * (
        np.exp(np.minimum(epsilons, budget.epsilon) - budget.epsilon)
        + np.exp(-budget.epsilon)
    ) / (1.0 + np.exp(-budget.epsilon))
    claimed = np.where(epsilons >= budget.epsilon, budget.delta, below)
    if gdp is not None:
        claimed = np.minimum(claimed, [gaussian_delta(float(e), gdp) for e in epsilons])
    if event is not None:
        own = [delta_of(event, epsilon=e, relation=budget.relation) for e in epsilons]
        claimed = np.minimum(claimed, own)
    return claimed
