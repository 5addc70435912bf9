r"""Iterated localized runs on growing blocks of records.

Xu et al. (arXiv 2026), Algorithm 5: for growth :math:`F(w) - F(w^*) \ge \lambda |w -
w^*|^\theta` with any theta above a known bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsample.facts import PublicFacts
from dpsample.optimizers.growing_blocks import Gap, GrowingBlocks
from dpsample.optimizers.heavy_tailed import Scales
from dpsample.optimizers.localization import Plan, minimizations, plan_of
from dpsample.optimizers.localized_clipped_gd import Localized
from dpsample.optimizers.optimizer import Calibration, Recipe
from dpsample.optimizers.phase import Phase
from dpsample.optimizers.printed_localization import printed_phases
from dpsample.privacy.budget import Budget


@dataclass(frozen=True, kw_only=True)
class IteratedLocalizedClippedGD(GrowingBlocks, Localized):
    r"""`LocalizedClippedGD` on growing blocks, the distance halved from run to run.

    Run t reads its own :math:`n_t = \lfloor 2^{t-1} n/(\log_2 n)^A \rfloor` records,
    :math:`A = \log_{\bar\theta} 2`, starts at the last run's output and takes the step
    size for the distance :math:`R_0/2^{t-1}`, over the whole domain: Xu et al. (arXiv
    2026), Algorithm 5. ``distance`` is R_0.

    Parameters
    ----------
    least_exponent
        See `GrowingBlocks`.
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
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(1000, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = IteratedLocalizedClippedGD().recipe(problem.facts, budget)
    >>> len(recipe.phases), recipe.phases[0].last
    (21, 50)
    """

    name: ClassVar[str] = "iterated_localized_clipped_gd"

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
                for first, count, distance in self.blocks(facts, scales)
            )
            return self.paper_recipe(facts, scales, budget, runs)
        plans = self._plans(facts, scales)
        phases: list[Phase] = []
        for plan in plans:
            phases.extend(minimizations(facts, plan))
        return self.exact_recipe(tuple(phases), plans, budget)

    def run_bounds(
        self, facts: PublicFacts, scales: Scales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """See `GrowingBlocks.run_bounds`; the scales know the budget."""
        del budget
        return [(plan.gap, plan.clip) for plan in self._plans(facts, scales)]

    def _plans(self, facts: PublicFacts, scales: Scales) -> tuple[Plan, ...]:
        return tuple(
            plan_of(
                scales,
                first=first,
                count=count,
                distance=distance,
                accuracy=self.accuracy,
            )
            for first, count, distance in self.blocks(facts, scales)
        )
