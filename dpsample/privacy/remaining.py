"""What one more Gaussian release may spend beside what was released before."""

from __future__ import annotations

from typing import NamedTuple

from dpsample.privacy.accounting import delta_of
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import ComposedEvent, Event, GaussianEvent
from dpsample.privacy.gaussian import gaussian_epsilon, gdp_from_budget

# The search stops at the first, calibration may lose the second.
TOLERANCE, ROUND_DOWN = 1e-6, 1.0 - 1e-9


class Remaining(NamedTuple):
    """What one more release may spend; zeros if the budget is used up.

    Attributes
    ----------
    gdp : float
        Largest further gdp that keeps the whole ledger inside the budget.
    epsilon : float
        Epsilon of that release alone, at the budget's delta.
    """

    gdp: float
    epsilon: float


def largest_release(event: Event, budget: Budget) -> Remaining:
    """Bisect the gdp of the further release; both numbers are rounded down."""

    def is_safe(gdp: float) -> bool:
        both = ComposedEvent((event, GaussianEvent(gdp)))
        found = delta_of(both, epsilon=budget.epsilon, relation=budget.relation)
        return found <= budget.delta

    safe, unsafe = 0.0, gdp_from_budget(budget.epsilon, budget.delta)
    if is_safe(unsafe):
        return Remaining(unsafe, budget.epsilon)
    if not is_safe(safe):
        return Remaining(0.0, 0.0)
    while unsafe - safe > TOLERANCE * unsafe:
        middle = 0.5 * (safe + unsafe)
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    # One gdp has one epsilon at delta: a release calibrated to it has this gdp.
    return Remaining(safe, gaussian_epsilon(budget.delta, safe) * ROUND_DOWN)
