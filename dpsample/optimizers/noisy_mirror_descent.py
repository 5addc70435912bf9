r"""Noisy regularized mirror descent in l_p, 1 < p < 2, without constraints.

:math:`w_{t+1} = \arg\min_w \langle \nabla F_n(w_t) + \xi_t, w\rangle + \gamma D_\Phi(w,
w_t) + \alpha \Phi(w)`, averaged with weights :math:`(1 + \alpha/\gamma)^t`:
arXiv:2303.18047, Algorithm 3, with its potential and its step corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.domains import WholeSpace
from dpsample.facts import PublicFacts
from dpsample.optimizers.calibrated import full_batch
from dpsample.optimizers.estimators import Mean
from dpsample.optimizers.mirror_geometry import (
    GENERALIZED_THEOREM,
    NOISES,
    Geometry,
    NoiseName,
    geometry,
)
from dpsample.optimizers.mirror_risk import Scales, Schedule, best_schedule
from dpsample.optimizers.optimizer import Calibration, Optimizer, Recipe
from dpsample.optimizers.perturbations import NoNoise, Perturbation
from dpsample.optimizers.phase import EQUAL_WEIGHTS, Loop
from dpsample.optimizers.printed_mirror_descent import printed_noisy
from dpsample.optimizers.steps import MirrorStep, listed
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import Event
from dpsample.privacy.smoothness import smoothness

COMPOSITION = (
    "adaptive Gaussian steps on all records compose by the root of the squares"
)


@dataclass(frozen=True, kw_only=True)
class NoisyMirrorDescent(Optimizer):
    r"""Mirror descent on all records, with noise and a ridge of the potential.

    :math:`\Phi = \frac\kappa2 \|w\|_s^2` (`dpsample.optimizers.mirror_geometry`). Each
    of T steps adds noise; one record moves the mean gradient by at most 2 L/n in the
    dual norm, and steps compose by Gaussian privacy: sigma = 2 L sqrt(kappa T)/(n t)
    for generalized Gaussian noise, t the gdp of the budget. Gaussian noise of the same
    guarantee is smaller in every dual norm that enters the risk, and is the default.

    T, alpha and gamma minimize the explicit bound of `risk_bound`, which improves the
    rate :math:`\kappa^{4/5} (\sqrt d/(n\epsilon))^{2/5}` of Theorem 7 to
    :math:`\kappa^{3/4} (\sqrt d/(n\epsilon))^{1/2}`, up to logarithms.

    With calibration "paper", T, alpha, gamma = beta and the generalized Gaussian noise
    are those of Algorithm 3 and Theorem 7 (constant 1 in T), the potential is the
    corrected one (gradient-E1); ``ridge``, ``step_size`` and ``noise`` are not used.

    Parameters
    ----------
    p : float
        Exponent of the norm, > 1 and <= 2.
    distance : float
        Public bound or guess of the l_p norm of a minimizer. It sets hyper-parameters
        only: privacy does not depend on it.
    num_steps : int, optional
        T.
    ridge : float, optional
        alpha.
    step_size : float, optional
        1/gamma.
    noise : {"gaussian", "generalized_gaussian"}
        What is added to the gradients.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the domain is not the whole
        space or the loss is not smooth.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the declared bounds hold for every possible record.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0)
    >>> method = NoisyMirrorDescent(p=1.5, distance=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = method.recipe(problem.facts, budget)
    >>> recipe.inputs["num_steps"], recipe.event.gdp < 0.24
    (29, True)
    """

    p: float
    distance: float
    num_steps: int | None = None
    ridge: float | None = None
    step_size: float | None = None
    noise: NoiseName = "gaussian"
    name: ClassVar[str] = "noisy_mirror_descent"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.above(1.0, p=self.p)
        if self.p > 2.0:
            check.fail("p", "<= 2", self.p, "For p > 2 use PhasedSGD.")
        check.positive(distance=self.distance)
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)
        if self.ridge is not None:
            check.non_negative(ridge=self.ridge)
        if self.step_size is not None:
            check.positive(step_size=self.step_size)
        check.one_of(NOISES, noise=self.noise)

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """One loop over all records and its noise; see `Optimizer.recipe`."""
        space = self._geometry(facts)
        if calibration == "paper":
            return self._printed(facts, budget)
        schedule = self._schedule(facts, budget, space)
        noise: Perturbation = NoNoise()
        event: Event | None = None
        inputs = _inputs(space, schedule)
        if budget is not None:
            found = full_batch(
                budget,
                record_bound=space.record_bound(facts),
                num_records=facts.num_records,
                num_steps=schedule.num_steps,
            )
            noise, event = space.perturbation(found.stddev), found.event
            inputs["noise"] = self.noise
            inputs["noise_scale"] = float(noise.numbers().scale)
        weight = schedule.ridge * schedule.step_size
        theorem = () if self.noise == "gaussian" else (GENERALIZED_THEOREM,)
        return Recipe(
            phases=(_loop(facts, space, schedule, noise, weight),),
            event=event,
            inputs=inputs,
            theorems=(*theorem, COMPOSITION),
            start=np.zeros(facts.dim),
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Bound of the mean excess population risk if |minimizer|_p <= distance.

        Infinite if the given steps are longer than 1/beta or the ridge is 0. See
        `dpsample.optimizers.mirror_risk`.
        """
        return self._schedule(facts, budget, self._geometry(facts)).risk

    def _geometry(self, facts: PublicFacts) -> Geometry:
        if not isinstance(facts.domain, WholeSpace):
            remedy = "On a ball use TruncatedMirrorDescent."
            check.fail("domain", "WholeSpace()", facts.domain, remedy)
        return geometry(self.p, facts.dim, self.noise)

    def _printed(self, facts: PublicFacts, budget: Budget | None) -> Recipe:
        """Algorithm 3 with the schedule of Theorem 7, and what is true of it."""
        plan = printed_noisy(facts, budget, p=self.p, num_steps=self.num_steps)
        schedule = Schedule(plan.num_steps, plan.ridge, plan.step_size, math.inf)
        weight = 0.5 * plan.ridge * plan.step_size
        return Recipe(
            phases=(_loop(facts, plan.space, schedule, plan.noise, weight),),
            event=plan.event,
            inputs=_inputs(plan.space, schedule) | {"noise_scale": plan.noise.sigma},
            theorems=(GENERALIZED_THEOREM, COMPOSITION),
            start=np.zeros(facts.dim),
        )

    def _schedule(
        self, facts: PublicFacts, budget: Budget | None, space: Geometry
    ) -> Schedule:
        stddev, lipschitz = 0.0, facts.lipschitz(self.p)  # which says what is unbounded
        if budget is not None:
            bound = space.record_bound(facts)
            stddev = full_batch(
                budget, record_bound=bound, num_records=facts.num_records
            ).stddev
        scales = Scales(
            num_records=facts.num_records,
            lipschitz=lipschitz,
            smoothness=smoothness(facts, self.p),
            potential=0.5 * space.kappa * self.distance**2,
            distance=self.distance,
            variance=stddev**2 * space.mean_square(),
        )
        return best_schedule(
            scales,
            num_steps=self.num_steps,
            ridge=self.ridge,
            step_size=self.step_size,
        )


def _loop(
    facts: PublicFacts,
    space: Geometry,
    schedule: Schedule,
    noise: Perturbation,
    weight: float,
) -> Loop:
    """Mirror steps, averaged with weights (1 + weight)^t up to a constant."""
    step = MirrorStep(
        schedule.step_size,
        exponent=space.s,
        kappa=space.kappa,
        alpha=schedule.ridge,
    )
    return Loop(
        num_steps=schedule.num_steps,
        step=step,
        estimator=Mean(lipschitz=facts.lipschitz(2.0)),
        noise=noise,
        weights=_weights(schedule.num_steps, weight),
    )


def _weights(num_steps: int, weight: float) -> NDArray[np.float64]:
    if weight == 0.0:
        return EQUAL_WEIGHTS
    back = (listed(num_steps) - num_steps) * math.log1p(weight)
    return np.exp(np.maximum(back, -600.0))


def _inputs(space: Geometry, schedule: Schedule) -> dict[str, float | int | str]:
    """Public numbers of the certificate."""
    inputs: dict[str, float | int | str] = {
        "num_steps": schedule.num_steps,
        "ridge": schedule.ridge,
        "step_size": schedule.step_size,
        "potential_exponent": space.s,
        "kappa": space.kappa,
    }
    if math.isfinite(schedule.risk):
        inputs["risk_bound"] = schedule.risk
    return inputs
