r"""Localized clipped gradient methods for heavy-tailed gradients.

Xu et al. (arXiv 2026), Algorithm 3, in a version that can be run: every phase is solved
to a certified accuracy instead of by more than n^2 passes.

Iterated localized runs on growing blocks of records.

Xu et al. (arXiv 2026), Algorithm 5: for growth :math:`F(w) - F(w^*) \ge \lambda |w -
w^*|^\theta` with any theta above a known bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsample.core import check
from dpsample.optimizers.loop.clipping import (
    CLIPPED_GRADIENT,
    HeavyTailed,
    HeavyTailedScales,
)
from dpsample.optimizers.loop.growing_blocks import Gap, GrowingBlocks
from dpsample.optimizers.loop.localization import (
    ASSUMPTIONS,
    THEOREMS,
    LocalizationPlan,
    minimizations,
    plan_of,
)
from dpsample.optimizers.loop.optimizer import Calibration, Phase, Recipe
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.optimizers.printed.localization import (
    CAPPED,
    PrintedLocalization,
    printed_event,
    printed_loops,
    printed_phases,
)
from dpsample.privacy.accounting.events import Event, GaussianEvent
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class Localized(HeavyTailed):
    """Base of the methods whose inner loop is localized minimization.

    Parameters
    ----------
    accuracy : float
        Part of the sensitivity that the certified solver may add.
    max_steps : int
        Gradient steps of a phase with calibration "paper", whose printed number cannot
        be run; not used otherwise.
    failure : float
        Failure probability beta of the printed step size; not used otherwise.
    """

    accuracy: float = 1e-4
    max_steps: int = 1000
    failure: float = 0.05

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.open_interval(0.0, 1.0, accuracy=self.accuracy, failure=self.failure)
        check.integer(1, max_steps=self.max_steps)

    def exact_recipe(
        self,
        phases: tuple[Phase, ...],
        plans: tuple[LocalizationPlan, ...],
        budget: Budget | None,
    ) -> Recipe:
        """Recipe of certified phases on disjoint records."""
        event: Event | None = None
        if budget is not None:
            event = GaussianEvent(gdp_of(budget))
        return Recipe(
            phases=phases,
            event=event,
            inputs={
                "num_phases": len(phases),
                "clip": plans[0].clip,
                "eta": plans[0].eta,
                "first_noise_stddev": plans[0].stages[0].stddev,
                "last_noise_stddev": plans[-1].stages[-1].stddev,
            },
            theorems=(CLIPPED_GRADIENT, *THEOREMS),
            assumptions=ASSUMPTIONS,
        )

    def paper_recipe(
        self,
        facts: PublicFacts,
        scales: HeavyTailedScales,
        budget: Budget | None,
        runs: tuple[tuple[PrintedLocalization, ...], ...],
        radii: tuple[float, ...] | None = None,
    ) -> Recipe:
        """Recipe of printed phases on disjoint records, with what is true of them."""
        loops: list[Phase] = []
        for index, run in enumerate(runs):
            radius = None if radii is None else radii[index]
            loops.extend(printed_loops(run, self.max_steps, radius))
        printed = tuple(phase for run in runs for phase in run)
        event = None
        if budget is not None:
            event = printed_event(facts, scales, printed, self.max_steps)
        return Recipe(
            phases=tuple(loops),
            event=event,
            inputs={
                "num_phases": len(loops),
                "max_steps": self.max_steps,
                "printed_steps_of_first_phase": printed[0].num_steps,
                "first_noise_stddev": printed[0].stddev,
                "last_noise_stddev": printed[-1].stddev,
            },
            theorems=(CLIPPED_GRADIENT, THEOREMS[-1]),
            assumptions=(CAPPED,),
        )


@dataclass(frozen=True, kw_only=True)
class LocalizedClippedGD(Localized):
    r"""Localized minimization of the clipped risk, with noise after every phase.

    Phase i reads :math:`n_i = \lfloor n/2^i \rfloor` fresh records, minimizes their
    clipped risk plus :math:`\frac1{2 \eta_i n_i} |w - w_{i-1}|^2` over the domain to a
    certified gap, :math:`\eta_i = \eta/4^i`, and adds :math:`N(0, \sigma_i^2 I)`,
    :math:`\sigma_i = 2 C \eta_i/\mu` (1 + accuracy): Xu et al. (arXiv 2026), Algorithm
    3, with one threshold C for all phases, :math:`\lambda_i = 1/(\eta_i n_i)` and exact
    solutions. C and eta minimize `risk_bound`.

    With calibration "paper" the printed schedule is run by gradient descent, its steps
    capped at ``max_steps`` per phase; ``order`` is then the paper's 2k. The certificate
    states the epsilon that the printed noise proves.

    Parameters
    ----------
    moment, order, clip, distance
        See `HeavyTailed`.
    accuracy, max_steps, failure
        See `Localized`.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth or a
        bound is missing.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the loss is a convex function of a linear margin and the declared bounds hold for
    every possible record. The moment only sets hyper-parameters: privacy does not
    depend on it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = LocalizedClippedGD().recipe(problem.facts, budget)
    >>> len(recipe.phases), [phase.last for phase in recipe.phases[:3]]
    (10, [1000, 1500, 1750])
    """

    name: ClassVar[str] = "localized_clipped_gd"

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Phases of the certified or of the printed schedule; see `Optimizer`."""
        scales = self.scales(facts, budget)
        if calibration == "paper":
            run = printed_phases(
                scales,
                budget,
                first=0,
                count=facts.num_records,
                distance=scales.distance,
                failure=self.failure,
            )
            return self.paper_recipe(facts, scales, budget, (run,))
        plan = self._plan(facts, budget)
        return self.exact_recipe(minimizations(facts, plan), (plan,), budget)

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Bound of the mean excess population risk of calibration "exact".

        About :math:`D (\frac{3.3 r_2}{\sqrt n} + \frac{k}{k-1} r_k (\frac{16 \sqrt
        d}{\mu n})^{(k-1)/k})`, evaluated on the phases as they are: on-average
        stability, noise, and the clipping bias times the domain's diameter (or twice
        the distance on an unbounded domain, where nothing is clipped or the bound is
        conditional on it).
        """
        plan = self._plan(facts, budget)
        bias = plan.scales.bias(plan.clip) * plan.scales.diameter
        return plan.gap(plan.scales.distance**2) + bias

    def _plan(self, facts: PublicFacts, budget: Budget | None) -> LocalizationPlan:
        scales = self.scales(facts, budget)
        return plan_of(
            scales,
            first=0,
            count=facts.num_records,
            distance=scales.distance,
            accuracy=self.accuracy,
        )


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
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """See `GrowingBlocks.run_bounds`; the scales know the budget."""
        del budget
        return [(plan.gap, plan.clip) for plan in self._plans(facts, scales)]

    def _plans(
        self, facts: PublicFacts, scales: HeavyTailedScales
    ) -> tuple[LocalizationPlan, ...]:
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
