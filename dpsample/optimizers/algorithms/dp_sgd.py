r"""Differentially private stochastic gradient descent.

:math:`w \leftarrow P(w - \eta (\frac1{qn} \sum_{i \in B} \mathrm{clip}_C(\nabla f_i(w))
+ N(0, \varsigma^2 I)))`, B a Poisson sample of rate q: Abadi et al. (2016), projected,
with the sum divided by the expected batch size.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample.core import check
from dpsample.optimizers.loop.batches import Poisson
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
    refuse_paper,
    start_distance,
)
from dpsample.optimizers.loop.perturbations import (
    GaussianNoise,
    NoNoise,
    Perturbation,
    poisson,
)
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class DPSGD(Optimizer):
    r"""Poisson-sampled, clipped, noisy, projected gradient descent: the baseline.

    Parameters
    ----------
    sampling_rate : float
        q in (0, 1].
    num_steps : int
        T.
    clip : float, optional
        C; None, or more than it: the Lipschitz constant, so that nothing is clipped.
    step_size : float, optional
        eta; None: :math:`D / \sqrt{T (C^2 + C^2/(qn) + d \varsigma^2)}`, the minimizer
        of `risk_bound`.
    averages : bool
        Whether the output is the mean of :math:`w_1, \dots, w_T`, for which the bound
        holds, or :math:`w_T`.
    distance : float, optional
        Public bound D of the distance from the start to a minimizer; None: the domain's
        radius.

    Raises
    ------
    ValueError
        If a number is out of its range, or, in `recipe`, a bound is missing.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation,
    for any loss, by privacy loss distributions of the composed Poisson-sampled Gaussian
    steps. Tuning the numbers on the same records is not paid for.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> method = DPSGD(sampling_rate=1.0, num_steps=4)
    >>> recipe = method.recipe(problem.facts, dps.Budget(epsilon=1.0, delta=1e-4))
    >>> print(f"{recipe.inputs['noise_stddev']:.5f}")
    0.02549
    """

    sampling_rate: float
    num_steps: int
    clip: float | None = None
    step_size: float | None = None
    averages: bool = True
    distance: float | None = None
    name: ClassVar[str] = "dp_sgd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.positive(sampling_rate=self.sampling_rate)
        if self.sampling_rate > 1.0:
            check.fail("sampling_rate", "<= 1", self.sampling_rate)
        check.integer(1, num_steps=self.num_steps)
        check.instance(bool, averages=self.averages)
        self._check_given("clip", "step_size", "distance")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """One loop over Poisson samples."""
        refuse_paper(calibration, "No noise is printed for DP-SGD.")
        clip, stddev, event = self._noise(facts, budget)
        size = self.step_size or self._best_step(facts, clip, stddev)
        noise: Perturbation = GaussianNoise(stddev) if event else NoNoise()
        return Recipe(
            phases=(
                Loop(
                    num_steps=self.num_steps,
                    step=GradientStep(size),
                    batches=Poisson(rate=self.sampling_rate),
                    estimator=ClippedMean(threshold=clip),
                    noise=noise,
                    weights=EQUAL_WEIGHTS if self.averages else None,
                ),
            ),
            event=event,
            inputs={"clip": clip, "step_size": size, "noise_stddev": stddev},
            kind="clipped/poisson",
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Bound of the mean excess *empirical* risk of the mean iterate, unclipped.

        :math:`\frac{D^2}{2\eta T} + \frac\eta2 (1 + \frac1T) V`, :math:`V = C^2 +
        C^2/(qn) + d\varsigma^2` a bound of :math:`E|g_t|^2`; infinite if gradients are
        clipped or the output is the last iterate.
        """
        clip, stddev, _ = self._noise(facts, budget)
        if clip < facts.lipschitz_or_inf(2.0) or not self.averages:
            return math.inf
        size = self.step_size or self._best_step(facts, clip, stddev)
        far = start_distance(facts, self.distance)
        square = self._mean_square(facts, clip, stddev)
        steps = self.num_steps
        return far**2 / (2.0 * size * steps) + 0.5 * size * square * (1.0 + 1.0 / steps)

    def _noise(
        self, facts: PublicFacts, budget: Budget | None
    ) -> tuple[float, float, Event | None]:
        """Threshold, noise and event."""
        lipschitz = facts.lipschitz_or_inf(2.0)
        clip = lipschitz if self.clip is None else min(self.clip, lipschitz)
        if budget is None:
            return clip, 0.0, None
        if math.isinf(clip):
            remedy = "Pass clip=..., or bound the domain."
            check.fail("clip", "given without a Lipschitz constant", "None", remedy)
        noise = poisson(
            budget,
            record_bound=clip,
            num_records=facts.num_records,
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
        )
        return clip, noise.stddev, noise.event

    def _mean_square(self, facts: PublicFacts, clip: float, stddev: float) -> float:
        """Bound of E |gradient estimate|^2 given the iterate."""
        sampling = (1.0 - self.sampling_rate) / (self.sampling_rate * facts.num_records)
        return clip**2 * (1.0 + sampling) + facts.dim * stddev**2

    def _best_step(self, facts: PublicFacts, clip: float, stddev: float) -> float:
        """Step size that minimizes the bound."""
        if math.isinf(clip):
            remedy = "It has no default without a Lipschitz constant or a clip."
            check.fail("step_size", "given", "None", remedy)
        far = start_distance(facts, self.distance)
        square = self._mean_square(facts, clip, stddev)
        return far / math.sqrt(square * (self.num_steps + 1))
