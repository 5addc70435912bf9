r"""The loop of truncated mirror descent: exact and printed recipes share it.

Truncated mirror descent on a bounded set, one pass, for heavy-tailed gradients.

:math:`w_t = \arg\min_{w \in C} \langle \frac1b \sum_{i \in B_t} h_i + \xi_t, w\rangle +
\gamma D_\Phi(w, w_{t-1})`, h the gradients of l_q norm at most B and 0 for the others,
the mean iterate: arXiv:2303.18047, Algorithm 4, with its potential corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dpsample.core import check
from dpsample.numerics.norms import dual
from dpsample.optimizers.algorithms.truncated_risk import (
    TruncatedScales,
    TruncatedSchedule,
    best_schedule,
    scales_of,
)
from dpsample.optimizers.loop.batches import Batches, Slices
from dpsample.optimizers.loop.estimators import TruncatedMean
from dpsample.optimizers.loop.mirror_geometry import (
    GENERALIZED_THEOREM,
    NOISES,
    NoiseName,
)
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
)
from dpsample.optimizers.loop.perturbations import (
    SCHEMES,
    SHUFFLE_THEOREM,
    Perturbation,
    Scheme,
    epoch,
)
from dpsample.optimizers.loop.steps import GradientStep, MirrorStep, Step
from dpsample.optimizers.printed.mirror_descent import printed_truncated
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


class TruncatedRun(NamedTuple):
    """What the loop needs besides the geometry."""

    plan: TruncatedSchedule
    batches: Batches
    noise: Perturbation


def recipe_of(
    scales: TruncatedScales,
    run: TruncatedRun,
    event: Event | None,
    inputs: dict[str, float | int | str],
    theorems: tuple[str, ...],
) -> Recipe:
    """Mirror steps on the l_p ball, or projected gradient steps in l_2."""
    space, size = scales.space, run.plan.step_size
    step: Step = GradientStep(size)
    if not scales.is_euclidean:
        step = MirrorStep(
            size,
            exponent=space.s,
            kappa=space.kappa,
            radius=scales.radius,
            ball_exponent=min(dual(space.q), space.s),
        )
    loop = Loop(
        num_steps=run.plan.num_steps,
        step=step,
        batches=run.batches,
        estimator=TruncatedMean(threshold=run.plan.threshold, row_norm=space.q),
        noise=run.noise,
        weights=EQUAL_WEIGHTS,
    )
    return Recipe(
        phases=(loop,),
        event=event,
        inputs=inputs | {"noise_scale": float(run.noise.numbers().scale)},
        theorems=theorems,
    )


def inputs_of(plan: TruncatedSchedule) -> dict[str, float | int | str]:
    """Public numbers of the certificate."""
    return {
        "scheme": plan.scheme,
        "num_steps": plan.num_steps,
        "threshold": plan.threshold,
        "step_size": plan.step_size,
    }


@dataclass(frozen=True, kw_only=True)
class TruncatedMirrorDescent(Optimizer):
    r"""One pass of mirror steps on batches of truncated gradients with noise.

    On an l_p ball about 0, p < 2, steps are those of :math:`\Phi = \frac\kappa2
    \|w\|_s^2` (`mirror_geometry`); on every other bounded domain,
    l_p balls with p >= 2 among them, of :math:`\Phi = \frac12 \|w\|_2^2`: projected
    gradient steps. T, B and gamma minimize the explicit bound of `risk_bound`.

    A step that leaves the ball takes its exact Bregman projection: the constrained
    minimum of the mirror step.

    With calibration "paper" (``scheme="shuffle"``, p < 2) schedule and noise are those
    of Algorithm 4 and Theorem 10 with constants 1. It is claimed for epsilon <
    :math:`\sqrt{\log(n/\delta)/n}` only; the certificate states what is proved.

    Parameters
    ----------
    scheme : {"disjoint", "shuffle", "poisson", "best"}
        Consecutive batches with one noise each; shuffled batches with noise on every
        record; Poisson samples of one epoch (Gaussian noise only; the risk bound, which
        needs fresh batches, is then a forecast); the better of the first two.
    noise : {"gaussian", "generalized_gaussian"}
        Gaussian noise is smaller in every dual norm that enters the bound.
    p : float, optional
        1 <= p <= 2; None: that of the domain if it is an l_p ball about 0, p < 2, and
        2 otherwise.
    moment : float, optional
        Public bound of :math:`(E\|\nabla f - \nabla F\|_q^2)^{1/2}`, q = p/(p-1); None:
        from the Lipschitz constant.
    smoothness : float, optional
        Public bound of the population risk's smoothness in l_p; None: that of every
        possible record.
    optimal_slope : float
        Public bound of :math:`\|\nabla F\|_q` at the minimizer: 0 in the interior, as
        the paper takes for granted (gradient-E9).
    num_steps, threshold, step_size : optional
        T, B and 1/gamma; None: the bound's minimizers.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the domain is not bounded, or p
        < 2 and it is not an l_p ball about 0.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation.
    Truncation bounds every record's part: privacy depends neither on the moment nor on
    the smoothness.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0, p=1.5), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = TruncatedMirrorDescent(scheme="best").recipe(problem.facts, budget)
    >>> recipe.inputs["scheme"]
    'disjoint'
    """

    scheme: Scheme = "disjoint"
    noise: NoiseName = "gaussian"
    p: float | None = None
    moment: float | None = None
    smoothness: float | None = None
    optimal_slope: float = 0.0
    num_steps: int | None = None
    threshold: float | None = None
    step_size: float | None = None
    name: ClassVar[str] = "truncated_mirror_descent"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.one_of(SCHEMES, scheme=self.scheme)
        check.one_of(NOISES, noise=self.noise)
        if self.scheme == "poisson" and self.noise != "gaussian":
            remedy = "No accountant covers sampled generalized Gaussian noise."
            check.fail("noise", "'gaussian' with Poisson samples", self.noise, remedy)
        if self.p is not None:
            check.at_least(1.0, p=self.p)
            if self.p > 2.0:
                check.fail("p", "<= 2", self.p)
        positive = ("moment", "smoothness", "step_size", "threshold")
        self._check_given(*positive, count="num_steps")
        check.non_negative(optimal_slope=self.optimal_slope)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """One loop over batches and its noise."""
        scales = self._scales(facts)
        if calibration == "paper":
            return self._printed(facts, budget, scales)
        plan, count = self._schedule(scales, budget), facts.num_records
        found = epoch(
            plan.scheme,
            budget,
            record_bound=float(scales.record_bound(plan.threshold)),
            first=0,
            count=count,
            num_steps=plan.num_steps,
        )
        copies = count // plan.num_steps if plan.scheme == "shuffle" else 1
        noise = scales.space.perturbation(found.stddev, copies)
        inputs = inputs_of(plan) | {"noise": self.noise}
        if math.isfinite(plan.risk):
            name = "risk_forecast" if self.scheme == "poisson" else "risk_bound"
            inputs[name] = plan.risk
        theorems = [found.theorem] if found.theorem else []
        if self.noise == "generalized_gaussian":
            theorems.append(GENERALIZED_THEOREM)
        run = TruncatedRun(plan, found.batches, noise)
        return recipe_of(scales, run, found.event, inputs, tuple(theorems))

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Bound of the mean excess population risk, under the declared moments.

        See `truncated_risk`. With Poisson samples a forecast only.
        """
        return self._schedule(self._scales(facts), budget).risk

    def _scales(self, facts: PublicFacts) -> TruncatedScales:
        if self.num_steps is not None and self.num_steps > facts.num_records:
            check.fail("num_steps", f"<= {facts.num_records} records", self.num_steps)
        return scales_of(
            facts,
            self.noise,
            p=self.p,
            moment=self.moment,
            beta=self.smoothness,
            optimal_slope=self.optimal_slope,
        )

    def _schedule(
        self, scales: TruncatedScales, budget: Budget | None
    ) -> TruncatedSchedule:
        return best_schedule(
            scales,
            budget,
            self.scheme,
            num_steps=self.num_steps,
            threshold=self.threshold,
            step_size=self.step_size,
        )

    def _printed(
        self, facts: PublicFacts, budget: Budget | None, scales: TruncatedScales
    ) -> Recipe:
        """Algorithm 4 with the schedule of Theorem 10, and what is true of it."""
        if self.scheme != "shuffle" or scales.is_euclidean:
            remedy = "Algorithm 4 shuffles, on an l_p ball about 0 with p < 2."
            check.fail("calibration", "'exact' here", "'paper'", remedy)
        printed = printed_truncated(
            facts,
            budget,
            p=dual(scales.space.q),
            radius=scales.radius,
            beta=scales.smoothness,
            num_steps=self.num_steps,
        )
        steps, size = printed.num_steps, printed.step_size
        plan = TruncatedSchedule("shuffle", steps, printed.threshold, size, math.inf)
        slices = Slices(size=facts.num_records // steps, is_shuffled=True)
        return recipe_of(
            scales._replace(space=printed.space),
            TruncatedRun(plan, slices, printed.noise),
            printed.event,
            inputs_of(plan),
            (GENERALIZED_THEOREM, SHUFFLE_THEOREM),
        )
