"""Batches, steps and noise of noisy gradient descent, and what they prove."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from dpsample import _check as check
from dpsample.optimizers.batches import Batches, Full, Poisson, WithReplacement
from dpsample.optimizers.calibrated import SHIFTS, Noise, full_batch, poisson
from dpsample.optimizers.descent_scales import Scales, printed_stddev
from dpsample.optimizers.optimizer import Recipe
from dpsample.optimizers.phase import Loop
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import Event, GaussianEvent, PoissonGaussianEvent

Scheme = Literal["full", "poisson", "with_replacement"]
THEOREMS: dict[str, str] = {
    "full": "adaptive Gaussian steps on all records compose by the root of the squares",
    "poisson": "a pair that dominates every step dominates the composition",
}
BOUNDED_GRADIENTS = "the declared Lipschitz constant holds for every possible record"
REPEATED_RECORDS = (
    "nothing is proved for batches drawn with replacement: a record may fill several "
    "places of a batch (BFTT-4)"
)


class Plan(NamedTuple):
    """All public numbers of one run."""

    scheme: Scheme
    batch_size: int
    num_steps: int
    noise: Noise | None  # None: no budget
    is_proved: bool

    @property
    def stddev(self) -> float:
        """Noise of every step."""
        return 0.0 if self.noise is None else self.noise.stddev

    @property
    def event(self) -> Event | None:
        """What the noise proves."""
        return self.noise.event if self.noise and self.is_proved else None

    def batches(self, num_records: int) -> Batches:
        """Return the batch scheme."""
        if self.scheme == "poisson":
            return Poisson(rate=self.batch_size / num_records)
        if self.scheme == "with_replacement":
            return WithReplacement(size=self.batch_size)
        return Full()

    def bound(self, scales: Scales, step_size: float) -> float:
        """Return the smaller bound; infinite where no conditions hold."""
        if not has_bound(self, scales, step_size):
            return math.inf
        regret = 0.5 * scales.radius**2 / (step_size * self.num_steps)
        found = regret + 0.5 * step_size * self.slope(scales)
        slack = 1.0 / step_size - scales.smoothness
        if slack > 0.0:
            stable = step_size * self._stability(scales)
            found = min(found, regret + 0.5 * self._noise(scales) / slack + stable)
        return found

    def slope(self, scales: Scales) -> float:
        """V in the bound M^2/(2 eta T) + eta V/2, for any Lipschitz loss."""
        total = scales.lipschitz**2 + self._noise(scales)
        if scales.is_population:
            total += 2.0 * scales.lipschitz**2 * self.num_steps / scales.num_records
        return (1.0 + 1.0 / self.num_steps) * total

    def smooth_step(self, scales: Scales) -> float:
        """Step size for smooth losses, 0 if they are not, infinite without an error."""
        error = self._noise(scales) + 2.0 * self._stability(scales)
        slack = math.sqrt(error * self.num_steps) / scales.radius
        inverse = scales.smoothness + slack
        return 1.0 / inverse if inverse > 0.0 else math.inf

    def _noise(self, scales: Scales) -> float:
        """Mean square of the error of a step's gradient."""
        total = scales.dim * self.stddev**2
        if self.scheme != "full":  # the variance of a batch mean
            total += scales.lipschitz**2 * _spread(self, scales.num_records)
        return total

    def _stability(self, scales: Scales) -> float:
        """Generalization gap of the mean iterate per unit of the step size."""
        if not scales.is_population:
            return 0.0
        return scales.lipschitz**2 * (self.num_steps + 1) / scales.num_records


def _spread(plan: Plan, num_records: int) -> float:
    """Variance of a batch mean over L^2."""
    missing = plan.batch_size / num_records if plan.scheme == "poisson" else 0.0
    return (1.0 - missing) / plan.batch_size


def has_bound(plan: Plan, scales: Scales, step_size: float) -> bool:
    """Whether the conditions of the risk bound hold.

    Random batches are proved for the empirical risk only: a batch may be rougher than
    the mean of all records.
    """
    if not scales.is_population:
        return True
    is_stable = step_size * scales.smoothness <= 2.0 * (1.0 + 1e-12)
    return is_stable and plan.scheme == "full"


def recipe_of(
    plan: Plan, loop: Loop, inputs: dict[str, float | int | str], bound: float
) -> Recipe:
    """Recipe of one loop with what is proved of it."""
    if plan.noise is not None:
        inputs["noise_stddev"] = plan.stddev
    if math.isfinite(bound):
        inputs["risk_bound"] = bound
    unproved = (REPEATED_RECORDS,) if plan.noise and not plan.is_proved else ()
    return Recipe(
        phases=(loop,),
        event=plan.event,
        inputs={
            "batches": plan.scheme,
            "batch_size": plan.batch_size,
            "num_steps": plan.num_steps,
            **inputs,
        },
        theorems=(THEOREMS[plan.scheme],) if plan.event is not None else (),
        assumptions=(BOUNDED_GRADIENTS, *unproved),
    )


def proved_noise(
    scales: Scales, budget: Budget, scheme: Scheme, num_steps: int, size: int
) -> Noise:
    """Return the smallest noise that is proved, and its event."""
    if scheme == "with_replacement":
        remedy = "Or use NoisyGD, or calibration='paper' for reproduction."
        condition = "'poisson' where privacy is proved"
        check.fail("batches", condition, repr(scheme), remedy)
    if scheme == "full":
        return full_batch(
            budget,
            record_bound=scales.lipschitz,
            num_records=scales.num_records,
            num_steps=num_steps,
        )
    return poisson(
        budget,
        record_bound=scales.lipschitz,
        num_records=scales.num_records,
        sampling_rate=size / scales.num_records,
        num_steps=num_steps,
    )


def printed_noise(
    scales: Scales, budget: Budget, scheme: Scheme, num_steps: int, size: int
) -> Noise:
    """Return the printed noise with the event that is true of it for these batches."""
    stddev = printed_stddev(scales, budget, num_steps)
    multiplier = stddev * size / scales.lipschitz
    if scheme == "poisson":
        rate = size / scales.num_records
        return Noise(
            stddev,
            PoissonGaussianEvent(
                sampling_rate=rate, noise_multiplier=multiplier, num_steps=num_steps
            ),
        )
    gdp = SHIFTS[budget.relation] * math.sqrt(num_steps) / multiplier
    return Noise(stddev, GaussianEvent(gdp * (1.0 + 1e-12)))
