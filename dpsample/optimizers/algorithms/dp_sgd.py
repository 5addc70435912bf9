r"""Differentially private stochastic gradient descent.

A step is :math:`w \leftarrow P(w - \eta (\frac1{qn} \sum_{i \in B}
\mathrm{clip}_C(\nabla f_i(w)) + N(0, \varsigma^2 I)))`, where B is a Poisson sample of
rate q and P projects on the domain. This is the algorithm of Abadi et al. (2016) with
projections, and with the sum divided by the expected batch size. With "allocation"
every record chooses one of the 1/q steps of an epoch at random instead, and B has the
records that chose this step.
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

# A rate is taken for 1/t if its relative distance from it is at most this. Decimals
# such as 0.3333333333 are meant as such.
EXACT = 1e-9
# Random allocation stores, at 8 bytes each, the end of every step's batch and the
# position of every record in every epoch.
MAX_STEPS = 10**7
MAX_POSITIONS = 2**28


@dataclass(frozen=True, kw_only=True)
class DPSGD(Optimizer):
    r"""Sampled, clipped, noisy, projected gradient descent, the standard method.

    Parameters
    ----------
    sampling_rate : float
        Probability q in (0, 1] with which a record is in a batch.
    num_steps : int
        Number of steps T.
    sampling : {"poisson", "allocation"}
        Independent samples in every step, or epochs of 1/q steps, in each of which a
        record chooses one step at random. This has a few per cent less noise, but is
        for the relation "zero_out" only and takes 8 bytes for each record and epoch, at
        most 2 GB.
    clip : float, optional
        C. The default is the Lipschitz constant, with which nothing is clipped. A
        larger number counts as this constant.
    step_size : float, optional
        eta. The default is :math:`D / \sqrt{(T + 1) V}`, the minimizer of `risk_bound`,
        which defines V.
    averages : bool
        Whether the output is the mean of :math:`w_1, \ldots, w_T`, for which the bound
        holds, or :math:`w_T`.
    distance : float, optional
        Public bound D of the distance from the start to a minimizer. The default is the
        domain's radius.

    Raises
    ------
    ValueError
        If a number is out of its range, an allocation has no whole epochs, or, in
        `recipe`, a bound is missing or the relation is another one.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation,
    for any loss, by privacy loss distributions of the composed sampled Gaussian steps.
    With sampling "allocation" the relation must be "zero_out". A choice of
    the numbers by means of the same records is not covered.

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
        r"""Return a bound of the mean excess *empirical* risk of the mean iterate.

        It is :math:`\frac{D^2}{2\eta T} + \frac\eta2 (1 + \frac1T) V`, where :math:`V =
        C^2 + C^2 (1 - q)/(qn) + d\varsigma^2` bounds :math:`E|g_t|^2`. It is infinite
        if gradients are clipped, if the output is the last iterate, or if records are
        allocated, because a batch then depends on earlier batches.
        """
        # The proof needs unbiased estimates of the gradient, and the mean iterate.
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
        # A threshold above the Lipschitz constant clips nothing and would need more
        # noise.
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
        """Return V, a bound of E |gradient estimate|^2 given the iterate."""
        # Whether each record is in the sample has the variance q (1 - q). Divided by (q
        # n)^2 and summed over n records of length at most C, this is C^2 (1 - q)/(q n).
        sampling = (1.0 - self.sampling_rate) / (self.sampling_rate * facts.num_records)
        return clip**2 * (1.0 + sampling) + facts.dim * stddev**2

    def _best_step(self, facts: PublicFacts, clip: float, stddev: float) -> float:
        """Return the step size that minimizes the bound."""
        if math.isinf(clip):
            remedy = "It has no default without a Lipschitz constant or a clip."
            check.fail("step_size", "given", "None", remedy)
        distance = start_distance(facts, self.distance)
        square = self._mean_square(facts, clip, stddev)
        # The minimizer of D^2/(2 eta T) + eta/2 (1 + 1/T) V.
        return distance / math.sqrt(square * (self.num_steps + 1))
