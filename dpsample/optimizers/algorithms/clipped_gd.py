r"""Clipped, regularized gradient descent over all records.

Steps are :math:`w_{t+1} = P(w_t - \eta (\frac1n \sum \mathrm{clip}_C(\nabla f_i(w_t)) +
\lambda (w_t - w_0)))`, and the output is the last iterate. P is the projection onto the
domain, clip_C shortens a vector to the length C, f_i is the loss of record i of n, and
w_0 is the start. This is Algorithm 2 of Xu et al. (arXiv 2026), to which noise is added
here. gradient-E15 is an entry of docs/errata.md.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dpsample.core import check
from dpsample.optimizers.loop.clipping import clipped_smoothness, descent_sensitivity
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.iterate_errors import has_error_bound
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Loop,
    Optimizer,
    Recipe,
    refuse_paper,
)
from dpsample.optimizers.loop.perturbations import (
    GaussianNoise,
    NoNoise,
    Perturbation,
    full_batch,
    gdp_of,
)
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import Event, GaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts

Placement = Literal["output", "steps"]


@dataclass(frozen=True, kw_only=True)
class ClippedGD(Optimizer):
    r"""Clipped gradient descent on all records, with a ridge about the start.

    One record moves the last iterate by at most :math:`\frac{2 \eta C}n \sum_{t<T}
    \rho^t`, where :math:`\rho = \max(|1 - \eta\lambda|, |1 - \eta(\lambda + \alpha)|)`
    and :math:`\alpha` is the smoothness of one record's clipped loss. (The factor 2 is
    1 if records are zeroed out.) Gaussian noise on the output is calibrated to this
    distance. It needs losses of a linear margin <x_i, theta>, for which clipped
    gradients are gradients of a convex loss. For others a step with clipped gradients
    is no contraction (gradient-E15). Noise in every step needs neither linear margins
    nor smoothness.

    Parameters
    ----------
    num_steps : int
        Number of steps T, at least 1.
    clip : float
        C. If it is above the Lipschitz constant, that is used instead.
    step_size : float, optional
        Length eta of a step. The default is 1/(lambda + alpha).
    ridge : float
        Weight lambda >= 0 of the ridge.
    noise : {"output", "steps"}
        Noise on the last iterate, or in every gradient.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth (except
        with ``step_size`` and ``noise="steps"``) or, with noise on the output, if
        num_steps steps above 2/(lambda + alpha) make the sensitivity overflow.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the declared bounds hold for every possible record. ``noise="output"`` is proved for
    losses of a linear margin only.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> method = ClippedGD(num_steps=20, clip=0.5)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> method.recipe(problem.facts, budget).event == method.recipe(
    ...     problem.facts, dps.Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
    ... ).event
    True
    """

    num_steps: int
    clip: float
    step_size: float | None = None
    ridge: float = 0.0
    noise: Placement = "output"
    name: ClassVar[str] = "clipped_gd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.integer(1, num_steps=self.num_steps)
        check.greater_than(0.0, clip=self.clip)
        check.non_negative(ridge=self.ridge)
        self._check_given("step_size")
        check.one_of(("output", "steps"), noise=self.noise)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return one loop over all records and its noise (none without a budget)."""
        refuse_paper(calibration, "No noise is printed for clipped gradient descent.")
        # No gradient is longer than the Lipschitz constant in the l2 norm.
        clip = min(self.clip, facts.lipschitz_or_inf(2.0))
        size = self._step_size(facts, clip)
        noise: Perturbation = NoNoise()
        output, event = 0.0, None
        if budget is not None and self.noise == "steps":
            check.positive(clip=clip, remedy="Clip, or bound the domain.")
            calibrated = full_batch(
                budget,
                record_bound=clip,
                num_records=facts.num_records,
                num_steps=self.num_steps,
            )
            noise, event = GaussianNoise(calibrated.stddev), calibrated.event
        elif budget is not None:
            output, event = self._calibrate_output(facts, budget, clip, size)
        inputs: dict[str, float | int | str] = {"clip": clip, "step_size": size}
        # The deviation of the one noise of the run, on the output or in every step.
        if event is not None:
            inputs["noise_stddev"] = output or calibrated.stddev
        loop = Loop(
            num_steps=self.num_steps,
            step=GradientStep(size, ridge=self.ridge),
            estimator=ClippedMean(threshold=clip),
            noise=noise,
            output_stddev=output,
        )
        # The kind of the certificate says on which proof it rests. If the rounding
        # errors of the loop have a bound, they are part of the guarantee. From the
        # budget's gdp the loop then computes how much larger the noise must be.
        kind = "clipped/full" if self.noise == "steps" else "clipped/output"
        if output > 0.0 and has_error_bound(facts, loop):
            assert budget is not None
            loop = replace(loop, output_gdp=gdp_of(budget))
            kind = "clipped/output/rounded"
        return Recipe(phases=(loop,), event=event, inputs=inputs, kind=kind)

    def _step_size(self, facts: PublicFacts, clip: float) -> float:
        """Return the step size passed by the user, or 1/(lambda + alpha)."""
        if self.step_size is not None:
            return self.step_size
        curvature = self.ridge + clipped_smoothness(facts, clip)
        if curvature == 0.0:
            remedy = "A linear loss without a ridge has no step of its own."
            check.fail("step_size", "given", "None", remedy)
        return 1.0 / curvature

    def _calibrate_output(
        self, facts: PublicFacts, budget: Budget, clip: float, size: float
    ) -> tuple[float, Event]:
        """Return the standard deviation of the last iterate's noise, and its event."""
        check.positive(clip=clip, remedy="Clip, or bound the domain.")
        smoothness = clipped_smoothness(facts, clip)
        # A replaced record moves the sum of gradients by up to 2 C, a zeroed one by C.
        sensitivity = SHIFTS[budget.relation] * descent_sensitivity(
            record_bound=clip,
            num_records=facts.num_records,
            step_size=size,
            smoothness=smoothness,
            ridge=self.ridge,
            num_steps=self.num_steps,
        )
        if not math.isfinite(sensitivity):
            curvature = smoothness + self.ridge
            limit = 2.0 / curvature if curvature > 0.0 else math.inf
            remedy = (
                f"Above 2 / (smoothness + ridge) = {limit:g} every step multiplies the "
                "sensitivity: take shorter or fewer steps."
            )
            check.fail(
                "step_size", "small enough for a finite sensitivity", size, remedy
            )
        gdp = gdp_of(budget)
        return round_up(sensitivity / gdp), GaussianEvent(gdp)
