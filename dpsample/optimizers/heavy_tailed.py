"""Public numbers that clipped methods for heavy-tailed gradients share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.calibrated import SHIFTS
from dpsample.optimizers.clipped_losses import (
    clipped_root_mean_square,
    clipping_bias,
    lipschitz_or_inf,
)
from dpsample.optimizers.optimizer import Optimizer
from dpsample.privacy import gdp_from_budget
from dpsample.privacy.budget import Budget


class Scales(NamedTuple):
    """Public numbers of one problem and budget."""

    dim: int
    gdp: float  # infinite without a budget
    shift: float  # of a batch sum between neighbors, in units of the record bound
    lipschitz: float
    moment: float
    order: float
    distance: float  # of the start to a minimizer
    diameter: float  # of the domain, or twice the distance if that is infinite
    clip: float | None  # chosen by the user, at most the Lipschitz constant

    def threshold(self, num_records: int) -> float:
        """Clipping threshold r (gdp n/(4 s sqrt(d)))^(1/k), the bound's minimizer."""
        if self.clip is not None:
            return self.clip
        if math.isinf(self.gdp):
            return self.lipschitz
        ratio = self.gdp * num_records / (4.0 * self.shift * math.sqrt(self.dim))
        return min(self.lipschitz, float(self.moment * ratio ** (1.0 / self.order)))

    def bias(self, clip: float) -> float:
        """Bound of the clipping bias of a mean gradient."""
        if clip >= self.lipschitz:
            return 0.0
        return clipping_bias(self.moment, self.order, clip)

    def root_mean_square(self, clip: float) -> float:
        """Bound of the root mean square of a clipped gradient."""
        return clipped_root_mean_square(self.moment, self.order, clip)


@dataclass(frozen=True, kw_only=True)
class HeavyTailed(Optimizer):
    """Base of the methods that clip gradients with a bounded moment.

    Parameters
    ----------
    moment : float, optional
        Public bound of (E sup_w |gradient|^k)^(1/k); None: the Lipschitz constant,
        which has to be finite.
    order : float
        k > 1 of the moment.
    clip : float, optional
        Threshold; None: the minimizer of the risk bound. Thresholds above the Lipschitz
        constant are lowered to it.
    distance : float, optional
        Public bound of the l2 distance from the start to a minimizer; None: the
        domain's radius.
    """

    moment: float | None = None
    order: float = 2.0
    clip: float | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("moment", "distance"):
            value = getattr(self, name)
            if value is not None:
                check.positive(**{name: value})
        if self.clip is not None:
            check.above(0.0, clip=self.clip)
        check.open_interval(1.0, 1e6, order=self.order)

    def scales(self, facts: PublicFacts, budget: Budget | None) -> Scales:
        """Public numbers of a problem and a budget."""
        lipschitz = lipschitz_or_inf(facts)
        moment = lipschitz if self.moment is None else min(self.moment, lipschitz)
        if math.isinf(moment):
            remedy = "Pass moment=..., a public bound of the gradients' k-th moment."
            check.fail("moment", "given without a Lipschitz constant", "None", remedy)
        return Scales(
            dim=facts.dim,
            gdp=_gdp(budget),
            shift=2.0 if budget is None else SHIFTS[budget.relation],
            lipschitz=lipschitz,
            moment=moment,
            order=self.order,
            distance=start_distance(facts, self.distance),
            diameter=diameter(facts, self.distance),
            clip=None if self.clip is None else min(self.clip, lipschitz),
        )


def _gdp(budget: Budget | None) -> float:
    return math.inf if budget is None else gdp_from_budget(budget.epsilon, budget.delta)


def domain_radius(facts: PublicFacts) -> float:
    """Largest l2 distance from the domain's center."""
    center = facts.domain.default_center(facts.dim)
    return float(facts.domain.max_norm(2.0, center, facts.dim))


def start_distance(facts: PublicFacts, distance: float | None) -> float:
    """Bound of the distance from the start to a minimizer."""
    radius = domain_radius(facts)
    if distance is None and math.isinf(radius):
        remedy = "Pass distance=..., a public bound of |start - minimizer|."
        check.fail("domain", "bounded without a distance", facts.domain, remedy)
    return radius if distance is None else min(distance, radius)


def diameter(facts: PublicFacts, distance: float | None) -> float:
    """Diameter of the domain; twice the distance if that is infinite."""
    radius = domain_radius(facts)
    return 2.0 * (start_distance(facts, distance) if math.isinf(radius) else radius)
