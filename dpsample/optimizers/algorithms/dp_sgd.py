r"""Differentially private stochastic gradient descent.

:math:`w \leftarrow P(w - \eta (\frac1{qn} \sum_{i \in B} \mathrm{clip}_C(\nabla f_i(w))
+ N(0, \varsigma^2 I)))`, B a Poisson sample of rate q: Abadi et al. (2016), projected,
with the sum divided by the expected batch size. Or B holds the records that picked
step t among the 1/q of their epoch.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpsample.core import check
from dpsample.optimizers.loop.batches import Allocated, Batches, Poisson
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
    allocation_noise,
    poisson,
)
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts

# A rate is taken for 1/t if its relative distance from it is at most this.
EXACT = 1e-9
# Random allocation stores, at 8 bytes each, the end of every step's batch and the
# position of every record in every epoch.
MAX_STEPS = 10**7
MAX_POSITIONS = 2**28


@dataclass(frozen=True, kw_only=True)
class DPSGD(Optimizer):
    r"""Sampled, clipped, noisy, projected gradient descent: the baseline.

    Parameters
    ----------
    sampling_rate : float
        q in (0, 1].
    num_steps : int
        T.
    sampling : {"poisson", "allocation"}
        Independent samples of every step; or epochs of 1/q steps, in each of which a
        record picks one step at random: a few per cent less noise, under the relation
        "zero_out" only, for 8 bytes a record and epoch, at most 2 GB.
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
        If a number is out of its range, an allocation has no whole epochs, or, in
        `recipe`, a bound is missing or the relation is another one.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation,
    for any loss, by privacy loss distributions of the composed sampled Gaussian steps;
    with sampling "allocation" under "zero_out". Tuning the numbers on the same records
    is not paid for.

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
    sampling: Literal["poisson", "allocation"] = "poisson"
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
        check.one_of(("poisson", "allocation"), sampling=self.sampling)
        if self.sampling == "allocation":
            check.at_least(1.0 / MAX_STEPS, sampling_rate=self.sampling_rate)
            if abs(self._num_batches * self.sampling_rate - 1.0) > EXACT:
                condition = "1/t for the t steps of an epoch"
                check.fail("sampling_rate", condition, self.sampling_rate)
            check.integer(1, maximum=MAX_STEPS, num_steps=self.num_steps)
            if self.num_steps % self._num_batches != 0:
                condition = f"a multiple of {self._num_batches}: whole epochs"
                check.fail("num_steps", condition, self.num_steps)
        check.instance(bool, averages=self.averages)
        self._check_given("clip", "step_size", "distance")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop over samples."""
        refuse_paper(calibration, "No noise is printed for DP-SGD.")
        batches = self._batches(facts)
        clip, stddev, event = self._noise(facts, budget)
        size = self.step_size or self._best_step(facts, clip, stddev)
        noise: Perturbation = GaussianNoise(stddev) if event else NoNoise()
        return Recipe(
            phases=(
                Loop(
                    num_steps=self.num_steps,
                    step=GradientStep(size),
                    batches=batches,
                    estimator=ClippedMean(threshold=clip),
                    noise=noise,
                    weights=EQUAL_WEIGHTS if self.averages else None,
                ),
            ),
            event=event,
            inputs={"clip": clip, "step_size": size, "noise_stddev": stddev},
            kind=f"clipped/{batches.name}",
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Bound of the mean excess *empirical* risk of the mean iterate, unclipped.

        :math:`\frac{D^2}{2\eta T} + \frac\eta2 (1 + \frac1T) V`, :math:`V = C^2 +
        C^2/(qn) + d\varsigma^2` a bound of :math:`E|g_t|^2`; infinite if gradients are
        clipped, the output is the last iterate, or records are allocated: who has been
        read tells who is still to come.
        """
        clip, stddev, _ = self._noise(facts, budget)
        is_sampled = self.sampling == "poisson"
        if clip < facts.lipschitz_or_inf(2.0) or not (self.averages and is_sampled):
            return math.inf
        size = self.step_size or self._best_step(facts, clip, stddev)
        distance = start_distance(facts, self.distance)
        square = self._mean_square(facts, clip, stddev)
        steps = self.num_steps
        return distance**2 / (2.0 * size * steps) + 0.5 * size * square * (
            1.0 + 1.0 / steps
        )

    def _noise(
        self, facts: PublicFacts, budget: Budget | None
    ) -> tuple[float, float, Event | None]:
        """Return the threshold, the noise and the event."""
        lipschitz = facts.lipschitz_or_inf(2.0)
        clip = lipschitz if self.clip is None else min(self.clip, lipschitz)
        if budget is None:
            return clip, 0.0, None
        if math.isinf(clip):
            remedy = "Pass clip=..., or bound the domain."
            check.fail("clip", "given without a Lipschitz constant", "None", remedy)
        sum_facts = {"record_bound": clip, "num_records": facts.num_records}
        if self.sampling == "poisson":
            rate, steps = self.sampling_rate, self.num_steps
            noise = poisson(budget, **sum_facts, sampling_rate=rate, num_steps=steps)
            return clip, noise.stddev, noise.event
        if budget.relation != "zero_out":
            remedy = "For a replaced record only Poisson samples count as such."
            condition = "'zero_out' with sampling='allocation'"
            check.fail("budget.relation", condition, budget.relation, remedy)
        batches, epochs = self._num_batches, self.num_steps // self._num_batches
        noise = allocation_noise(
            budget, **sum_facts, num_batches=batches, num_epochs=epochs
        )
        return clip, noise.stddev, noise.event

    @property
    def _num_batches(self) -> int:
        """Steps of an epoch of allocated records."""
        return round(1.0 / self.sampling_rate)

    def _batches(self, facts: PublicFacts) -> Batches:
        """Return the batch scheme, whose allocation must fit into memory."""
        if self.sampling == "poisson":
            return Poisson(rate=self.sampling_rate)
        batches, epochs = self._num_batches, self.num_steps // self._num_batches
        positions = epochs * facts.num_records
        if positions > MAX_POSITIONS:
            condition = f"for {MAX_POSITIONS} records of all epochs, at most"
            remedy = "Take fewer epochs, or Poisson samples."
            check.fail("num_steps", condition, positions, remedy)
        return Allocated(num_batches=batches, num_epochs=epochs)

    def _mean_square(self, facts: PublicFacts, clip: float, stddev: float) -> float:
        """Bound of E |gradient estimate|^2 given the iterate."""
        sampling = (1.0 - self.sampling_rate) / (self.sampling_rate * facts.num_records)
        return clip**2 * (1.0 + sampling) + facts.dim * stddev**2

    def _best_step(self, facts: PublicFacts, clip: float, stddev: float) -> float:
        """Step size that minimizes the bound."""
        if math.isinf(clip):
            remedy = "It has no default without a Lipschitz constant or a clip."
            check.fail("step_size", "given", "None", remedy)
        distance = start_distance(facts, self.distance)
        square = self._mean_square(facts, clip, stddev)
        return distance / math.sqrt(square * (self.num_steps + 1))
