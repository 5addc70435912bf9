r"""Noisy projected gradient descent: its numbers, its recipe, its risk bound.

:math:`w_{t+1} = P(w_t - \eta (g_t + N(0, \sigma^2 I)))`, the average of w_1..w_T. With
M the domain's radius about w_0, over all records,

.. math:: F(\bar w) - F^* \le \frac{M^2}{2 \eta T}
   + \frac\eta2 \Bigl(1 + \frac1T\Bigr) \Bigl(L^2 + d\sigma^2 + \frac{2 L^2 T}n\Bigr)

in the mean: regret of T - 1 steps from w_1 plus, for the population (last term), the
stability :math:`|w_t - w_t'| \le 2 L \eta t / n` of steps :math:`\eta \le 2 / \beta`.

Where the losses are beta-smooth and :math:`\gamma = 1/\eta - \beta > 0`, also

.. math:: F(\bar w) - F^* \le \frac{M^2}{2 \eta T} + \frac{d\sigma^2}{2\gamma}
   + \frac{L^2 \eta (T + 1)}n.

Proof: the projected step and smoothness give, with the noise :math:`\xi`,
:math:`F(w_{t+1}) - F^* \le \frac1{2\eta}(|w_t - w^*|^2 - |w_{t+1} - w^*|^2) -
\frac\gamma2 |w_{t+1} - w_t|^2 - \langle\xi, w_{t+1} - w^*\rangle`; the product is
split at :math:`w_t`, where its mean is 0. With :math:`\sigma = 2 L \sqrt T/(n t)` each
term depends on :math:`\eta T` alone but for :math:`\gamma`: many short steps of noisier
gradients gain nothing over few long ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.descent_plan import (
    Plan,
    Scheme,
    printed_noise,
    proved_noise,
)
from dpsample.optimizers.descent_scales import (
    RISKS,
    Risk,
    Scales,
    enough_steps,
    printed_batch,
    printed_steps,
)
from dpsample.optimizers.estimators import Estimator
from dpsample.optimizers.optimizer import Calibration, Optimizer
from dpsample.optimizers.perturbations import GaussianNoise, NoNoise
from dpsample.optimizers.phase import EQUAL_WEIGHTS, Loop
from dpsample.optimizers.steps import GradientStep
from dpsample.privacy.budget import Budget


@dataclass(frozen=True, kw_only=True)
class NoisyDescent(Optimizer):
    """Base of noisy gradient descent on a loss and on its Moreau envelope."""

    num_steps: int | None = None
    step_size: float | None = None
    risk: Risk = "population"

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)
        if self.step_size is not None:
            check.positive(step_size=self.step_size)
        check.one_of(RISKS, risk=self.risk)

    def plan(
        self, scales: Scales, budget: Budget | None, calibration: Calibration
    ) -> Plan:
        """Batches, number of steps and noise."""
        is_paper = calibration == "paper" and budget is not None
        scheme = self.batch_scheme(is_paper=is_paper)
        num_steps = self.num_steps
        if num_steps is None and budget is not None and is_paper:
            num_steps = printed_steps(scales, budget)
        is_full = scheme == "full"
        num_steps = num_steps or enough_steps(scales, budget, is_full=is_full)
        size = self.size_of_batch(scales, budget, scheme, num_steps)
        if budget is None:
            return Plan(scheme, size, num_steps, None, False)
        if is_paper:
            noise = printed_noise(scales, budget, scheme, num_steps, size)
        else:
            noise = proved_noise(scales, budget, scheme, num_steps, size)
        return Plan(scheme, size, num_steps, noise, scheme != "with_replacement")

    def batch_scheme(self, *, is_paper: bool) -> Scheme:
        """Return which records a step reads: all."""
        del is_paper  # printed or not
        return "full"

    def size_of_batch(
        self, scales: Scales, budget: Budget | None, scheme: Scheme, num_steps: int
    ) -> int:
        """Return what sums over a batch are divided by."""
        del budget, scheme, num_steps
        return scales.num_records

    def loop(
        self, plan: Plan, num_records: int, step_size: float, estimator: Estimator
    ) -> Loop:
        """Return the loop that averages w_1, ..., w_T."""
        return Loop(
            num_steps=plan.num_steps,
            step=GradientStep(step_size),
            batches=plan.batches(num_records),
            estimator=estimator,
            noise=GaussianNoise(plan.stddev) if plan.stddev else NoNoise(),
            weights=EQUAL_WEIGHTS,
        )

    def risk_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> float:
        """Bound of the mean excess risk; infinity where none is proved.

        Parameters
        ----------
        facts : PublicFacts
            Of the problem.
        budget : Budget or None
            None: no noise.
        calibration : {"exact", "paper"}
            Whose noise and steps.

        Returns
        -------
        float
        """
        found = self.recipe(facts, budget, calibration).inputs.get("risk_bound")
        return math.inf if found is None else float(found)


@dataclass(frozen=True, kw_only=True)
class BatchedDescent(NoisyDescent):
    """Base of noisy gradient descent on all records or on random batches."""

    batches: Scheme | None = None
    batch_size: int | None = None
    schemes: ClassVar[tuple[Scheme, ...]] = ("full", "poisson", "with_replacement")

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.batch_size is not None:
            check.integer(1, batch_size=self.batch_size)
        check.one_of((None, *self.schemes), batches=self.batches)

    def batch_scheme(self, *, is_paper: bool) -> Scheme:
        """Return the scheme that was asked for, or the first; the printed one."""
        return self.batches or ("with_replacement" if is_paper else self.schemes[0])

    def size_of_batch(
        self, scales: Scales, budget: Budget | None, scheme: Scheme, num_steps: int
    ) -> int:
        """Return the size that was asked for, or the printed one."""
        n = scales.num_records
        if scheme == "full":
            if self.batch_size not in (None, n):
                remedy = "Choose batches='poisson' for less."
                check.fail(
                    "batch_size", "None for full batches", self.batch_size, remedy
                )
            return n
        if self.batch_size is not None:
            if self.batch_size > n:
                check.fail("batch_size", f"<= num_records = {n}", self.batch_size)
            return int(self.batch_size)
        if budget is None:
            check.fail("batch_size", "given without a budget", "None")
        return printed_batch(n, num_steps, budget.epsilon)
