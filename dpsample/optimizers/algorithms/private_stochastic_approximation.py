r"""Private stochastic approximation: localized runs in balls that halve.

Xu et al. (arXiv 2026), Algorithm 4: adaptive to growth :math:`F(w) - F(w^*) \ge \lambda
|w - w^*|^\theta`, theta >= 2, that nobody has to know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample.core import check
from dpsample.optimizers.algorithms.localized_clipped_gd import Localized
from dpsample.optimizers.loop.clipping import HeavyTailedScales
from dpsample.optimizers.loop.growing_blocks import check_growth
from dpsample.optimizers.loop.localization import (
    LocalizationPlan,
    minimizations,
    plan_of,
)
from dpsample.optimizers.loop.optimizer import Calibration, Phase, Recipe
from dpsample.optimizers.printed.localization import printed_phases
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


def num_runs(num_records: int) -> int:
    """Localized runs m = floor(log2(2n/log2 n)/2) - 1, at least 1."""
    check.integer(2, num_records=num_records)
    inside = 2.0 * num_records / math.log2(num_records)
    return max(1, math.floor(0.5 * math.log2(inside)) - 1)


@dataclass(frozen=True, kw_only=True)
class PrivateStochasticApproximation(Localized):
    r"""`LocalizedClippedGD` on m blocks of records, in balls of radius R, R/2, R/4, ...

    Run l reads its own :math:`\lfloor n/m \rfloor` records, starts at the last run's
    output and stays in the ball of radius :math:`R_0/2^{l-1}` about it, :math:`m =
    \max(1, \lfloor \frac12 \log_2 \frac{2n}{\log_2 n} \rfloor - 1)`: Xu et al. (arXiv
    2026), Algorithm 4. ``distance`` is R_0.

    Parameters
    ----------
    moment, order, clip, distance
        See `HeavyTailed`.
    accuracy, max_steps, failure
        See `Localized`.

    Raises
    ------
    ValueError
        As for `LocalizedClippedGD`.

    Guarantee
    ---------
    As for `LocalizedClippedGD`: the blocks are disjoint, and every one may spend the
    whole budget.

    Examples
    --------
    >>> [num_runs(n) for n in (10**3, 10**4, 10**5, 10**6)]
    [2, 4, 5, 7]
    """

    name: ClassVar[str] = "private_stochastic_approximation"

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Phases of all runs; see `Optimizer.recipe`."""
        scales = self.scales(facts, budget)
        radii = _radii(scales, facts.num_records)
        if calibration == "paper":
            count = facts.num_records // len(radii)
            runs = tuple(
                printed_phases(
                    scales,
                    budget,
                    first=index * count,
                    count=count,
                    distance=radius,
                    failure=self.failure,
                )
                for index, radius in enumerate(radii)
            )
            return self.paper_recipe(facts, scales, budget, runs, radii)
        plans = self._plans(scales, radii, facts.num_records)
        phases: list[Phase] = []
        for plan, radius in zip(plans, radii, strict=True):
            phases.extend(minimizations(facts, plan, local_radius=radius))
        return self.exact_recipe(tuple(phases), plans, budget)

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Bound of the mean excess population risk, without any growth.

        The sum of the runs' bounds: against the point of a run's ball that lies towards
        the minimizer, which is no worse than where the run starts.
        """
        scales = self.scales(facts, budget)
        radii = _radii(scales, facts.num_records)
        plans = self._plans(scales, radii, facts.num_records)
        return sum(
            plan.gap(radius**2) + 2.0 * radius * scales.bias(plan.clip)
            for plan, radius in zip(plans, radii, strict=True)
        )

    def printed_growth_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        *,
        exponent: float,
        constant: float,
    ) -> float:
        r"""Return the printed bound under growth, with the rate a of our inner runs.

        :math:`4 (2 a)^{\theta/(\theta-1)} \lambda^{-1/(\theta-1)}` if :math:`\lambda
        \ge 2 R_0^{1-\theta} a`, else infinite. The theorem states it with high
        probability for the printed inner loop; for ours, whose rate a bounds a mean, it
        is a reference and not a proof.

        Parameters
        ----------
        facts, budget
            As for `recipe`.
        exponent, constant : float
            theta, from 1.01 to 1000, and lambda, from 1e-60 to 1e60, of the growth.

        Returns
        -------
        float
        """
        check_growth(exponent, constant)
        scales = self.scales(facts, budget)
        radii = _radii(scales, facts.num_records)
        plan = self._plans(scales, radii, facts.num_records)[0]
        rate = plan.gap(radii[0] ** 2) / radii[0] + 2.0 * scales.bias(plan.clip)
        if constant < 2.0 * radii[0] ** (1.0 - exponent) * rate:
            return math.inf
        power = 1.0 / (exponent - 1.0)
        return float(4.0 * (2.0 * rate) ** (exponent * power) * constant**-power)

    def _plans(
        self, scales: HeavyTailedScales, radii: tuple[float, ...], num_records: int
    ) -> tuple[LocalizationPlan, ...]:
        count = num_records // len(radii)
        return tuple(
            plan_of(
                scales,
                first=index * count,
                count=count,
                distance=radius,
                accuracy=self.accuracy,
            )
            for index, radius in enumerate(radii)
        )


def _radii(scales: HeavyTailedScales, num_records: int) -> tuple[float, ...]:
    """Radii R_0, R_0/2, ... of the runs' balls."""
    return tuple(scales.distance * 0.5**i for i in range(num_runs(num_records)))
