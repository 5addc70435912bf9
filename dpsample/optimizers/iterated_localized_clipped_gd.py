r"""Iterated localized runs on growing blocks of records.

Xu et al. (arXiv 2026), Algorithm 5: for growth :math:`F(w) - F(w^*) \ge \lambda |w -
w^*|^\theta` with any theta above a known bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.growth_bounds import growth_bound
from dpsample.optimizers.heavy_tailed import Scales
from dpsample.optimizers.localization import Plan, minimizations, plan_of
from dpsample.optimizers.localized_clipped_gd import Localized
from dpsample.optimizers.optimizer import Calibration, Recipe
from dpsample.optimizers.phase import Phase
from dpsample.optimizers.printed_localization import printed_phases
from dpsample.privacy.budget import Budget


def block_sizes(num_records: int, least_exponent: float) -> tuple[int, ...]:
    r"""Sizes :math:`\lfloor 2^{i-1} n/(\log_2 n)^A \rfloor` of the blocks.

    :math:`A = \log_{\bar\theta} 2`, :math:`l = \lfloor A \log_2 \log_2 n \rfloor`
    blocks, at least one; their sum is at most n.
    """
    check.number(
        "least_exponent",
        least_exponent,
        "finite and > 1",
        1.0 < least_exponent < math.inf,
        "",
    )
    check.integer(3, num_records=num_records)
    a = 1.0 / math.log2(least_exponent)
    log_n = math.log2(num_records)
    count = max(1, math.floor(a * math.log2(log_n)))
    if log_n**a > num_records:
        remedy = "The first of the growing blocks would be empty."
        check.fail(
            "least_exponent", "larger for so few records", least_exponent, remedy
        )
    return tuple(math.floor(2.0**i * num_records / log_n**a) for i in range(count))


@dataclass(frozen=True, kw_only=True)
class IteratedLocalizedClippedGD(Localized):
    r"""`LocalizedClippedGD` on growing blocks, the distance halved from run to run.

    Run t reads its own :math:`n_t = \lfloor 2^{t-1} n/(\log_2 n)^A \rfloor` records,
    :math:`A = \log_{\bar\theta} 2`, starts at the last run's output and takes the step
    size for the distance :math:`R_0/2^{t-1}`, over the whole domain: Xu et al. (arXiv
    2026), Algorithm 5. ``distance`` is R_0.

    Parameters
    ----------
    least_exponent : float
        theta-bar > 1, a lower bound of the growth exponent.
    moment, order, clip, distance
        See `HeavyTailed`.
    accuracy, max_steps, failure
        See `Localized`.

    Raises
    ------
    ValueError
        As for `LocalizedClippedGD`, or if the first block is empty.

    Guarantee
    ---------
    As for `LocalizedClippedGD`: the blocks are disjoint, and every one may spend the
    whole budget.

    Examples
    --------
    >>> block_sizes(10_000, 2.0)
    (752, 1505, 3010)
    """

    least_exponent: float = 2.0
    name: ClassVar[str] = "iterated_localized_clipped_gd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.open_interval(1.0, math.inf, least_exponent=self.least_exponent)

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Phases of all runs; see `Optimizer.recipe`."""
        scales = self.scales(facts, budget)
        if calibration == "paper":
            runs = tuple(
                printed_phases(
                    scales,
                    budget,
                    first=first,
                    count=count,
                    distance=distance,
                    failure=self.failure,
                )
                for first, count, distance in self._blocks(scales, facts)
            )
            return self.paper_recipe(facts, scales, budget, runs)
        plans = self._plans(facts, scales)
        phases: list[Phase] = []
        for plan in plans:
            phases.extend(minimizations(facts, plan))
        return self.exact_recipe(tuple(phases), plans, budget)

    def risk_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        *,
        exponent: float,
        constant: float,
    ) -> float:
        r"""Bound of the mean excess population risk under growth, for "exact".

        Each run's bound with the distance that growth proves of the last run's output;
        see `growth_bound`.

        Parameters
        ----------
        facts, budget
            As for `recipe`.
        exponent, constant : float
            theta > 1 and lambda > 0 of :math:`F(w) - F^* \ge \lambda |w -
            w^*|^\theta`.

        Returns
        -------
        float
        """
        scales = self.scales(facts, budget)
        plans = self._plans(facts, scales)
        return growth_bound(
            tuple(plan.gap for plan in plans),
            tuple(scales.bias(plan.clip) for plan in plans),
            distance=scales.distance,
            diameter=scales.diameter,
            exponent=exponent,
            constant=constant,
        )

    def _blocks(
        self, scales: Scales, facts: PublicFacts
    ) -> tuple[tuple[int, int, float], ...]:
        """First record, size and distance of every run."""
        sizes = block_sizes(facts.num_records, self.least_exponent)
        return tuple(
            (sum(sizes[:i]), size, scales.distance * 0.5**i)
            for i, size in enumerate(sizes)
        )

    def _plans(self, facts: PublicFacts, scales: Scales) -> tuple[Plan, ...]:
        return tuple(
            plan_of(
                scales,
                first=first,
                count=count,
                distance=distance,
                accuracy=self.accuracy,
            )
            for first, count, distance in self._blocks(scales, facts)
        )
