r"""Accelerated clipped stochastic gradients in one epoch.

Xu et al. (arXiv 2026), Algorithm 6: accelerated stochastic approximation (Ghadimi and
Lan 2012) on clipped, noisy batch means. With errata: alpha_t = 2/(t+1) (gradient-E20).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.acceleration import (
    Acceleration,
    acceleration,
    variance_of,
)
from dpsample.optimizers.batch_schemes import (
    DISJOINT_THEOREM,
    SCHEMES,
    Epoch,
    Scheme,
    epoch,
    forecast,
)
from dpsample.optimizers.batches import Slices
from dpsample.optimizers.clipped_losses import CLIPPED_GRADIENT, clipped_smoothness
from dpsample.optimizers.estimators import ClippedMean
from dpsample.optimizers.heavy_tailed import HeavyTailed, Scales
from dpsample.optimizers.optimizer import Calibration, Recipe
from dpsample.optimizers.perturbations import GaussianNoise, NoNoise
from dpsample.optimizers.phase import Loop
from dpsample.optimizers.steps import AcceleratedStep
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import GaussianEvent

SHUFFLED_BLOCKS = (
    "the printed noise counts on shuffling; proved is what its disjoint batches give"
)


@dataclass(frozen=True, kw_only=True)
class Accelerated(HeavyTailed):
    """Base of the accelerated methods.

    Parameters
    ----------
    scheme : {"poisson", "disjoint", "shuffle", "best"}
        How an epoch is cut into batches; see `epoch`.
    num_steps : int, optional
        T batches of each epoch; None: the minimizer of the bound.
    """

    scheme: Scheme = "poisson"
    num_steps: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.one_of(SCHEMES, scheme=self.scheme)
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)

    def run_of(
        self,
        facts: PublicFacts,
        scales: Scales,
        budget: Budget | None,
        *,
        first: int,
        count: int,
        distance: float,
    ) -> tuple[Acceleration, Epoch, float]:
        """Numbers of one accelerated run, its batches, and eta."""
        run = acceleration(
            facts,
            scales,
            forecast(self.scheme, budget, count),
            distance=distance,
            num_steps=self.num_steps,
        )
        batches = epoch(
            self.scheme,
            budget,
            record_bound=run.clip,
            first=first,
            count=count,
            num_steps=run.num_steps,
        )
        return run, batches, run.eta(self.variance(scales, run, batches))

    def variance(self, scales: Scales, run: Acceleration, batches: Epoch) -> float:
        """Mean square of noise and sampling error of a batch mean."""
        return variance_of(scales, run.clip, batches.stddev, run.batch_size)

    def printed_run(
        self,
        facts: PublicFacts,
        scales: Scales,
        budget: Budget | None,
        *,
        first: int,
        count: int,
        distance: float,
    ) -> tuple[Acceleration, Epoch, float]:
        r"""Return printed threshold, batches and noise, O() read as 1, eta as ours.

        :math:`\varsigma^2 = C^2 T \log(1/\delta)/(n\epsilon)^2` on the mean of each of
        T disjoint shuffled batches, which proves :math:`s C/(b\varsigma)`-GDP.
        """
        root = math.inf  # epsilon n / sqrt(d log(1/delta))
        if budget is not None:
            log = math.log(1.0 / budget.delta)
            root = budget.epsilon * count / math.sqrt(scales.dim * log)
        k = scales.order
        clip = scales.moment * root ** (1.0 / k)
        beta = clipped_smoothness(facts, clip)
        rate = min(root ** ((k - 1.0) / (2.0 * k)), count**0.25)
        steps = math.ceil(math.sqrt(beta * distance / scales.moment) * rate)
        steps = min(max(1, steps), count) if self.num_steps is None else self.num_steps
        run = Acceleration(steps, count // steps, clip, beta, distance)
        slices = Slices(
            size=run.batch_size, first=first, last=first + count, is_shuffled=True
        )
        stddev, event = 0.0, None
        if budget is not None:
            stddev = clip * math.sqrt(steps * log) / (count * budget.epsilon)
            moved = scales.shift * min(clip, scales.lipschitz) / run.batch_size
            event = GaussianEvent(moved / stddev * (1.0 + 1e-12))
        batches = Epoch(slices, stddev, event, DISJOINT_THEOREM)
        return run, batches, run.eta(self.variance(scales, run, batches))

    def loop_of(self, found: tuple[Acceleration, Epoch, float]) -> Loop:
        """Gradient loop of one accelerated run."""
        run, batches, eta = found
        noise = GaussianNoise(batches.stddev) if batches.stddev else NoNoise()
        return Loop(
            num_steps=run.num_steps,
            step=AcceleratedStep(eta),
            batches=batches.batches,
            estimator=ClippedMean(threshold=run.clip),
            noise=noise,
        )


@dataclass(frozen=True, kw_only=True)
class AcceleratedClippedSGD(Accelerated):
    r"""Accelerated clipped SGD on the T batches of one epoch.

    :math:`w^{md} = (1-\alpha_t) w^{ag} + \alpha_t w`, :math:`w \leftarrow P(w - \frac
    t{2\eta} g_t)`, :math:`w^{ag} \leftarrow \alpha_t w + (1-\alpha_t) w^{ag}`,
    :math:`\alpha_t = \frac2{t+1}`, :math:`g_t` the clipped mean of a batch at
    :math:`w^{md}` plus :math:`N(0, \varsigma^2 I)`: Xu et al. (arXiv 2026), Algorithm
    6. T, the threshold C and eta minimize the bound of `risk_bound`.

    The default scheme is Poisson sampling at rate 1/T, whose noise is smallest
    everywhere; the batches then overlap, and `risk_bound` speaks of the empirical risk.
    Its calibration "paper" is the printed noise on shuffled disjoint batches, with the
    epsilon that these prove without shuffling.

    Parameters
    ----------
    moment, order, clip, distance
        See `HeavyTailed`.
    scheme : {"poisson", "disjoint", "shuffle", "best"}
        Batches; "best" is the less noisy of the two one-pass schemes.
    num_steps : int, optional
        T; None: the minimizer of the bound.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth or a
        bound is missing.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation,
    for any loss, if the declared bounds hold for every possible record. The noise is
    in every gradient; linear margins matter for the accuracy only.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> method = AcceleratedClippedSGD(scheme="disjoint", num_steps=4)
    >>> method.recipe(problem.facts, budget).phases[0].batches.size
    500
    """

    name: ClassVar[str] = "accelerated_clipped_sgd"

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """One loop and its noise; see `Optimizer.recipe`."""
        scales = self.scales(facts, budget)
        make = self.printed_run if calibration == "paper" else self.run_of
        found = make(
            facts,
            scales,
            budget,
            first=0,
            count=facts.num_records,
            distance=scales.distance,
        )
        run, batches, eta = found
        return Recipe(
            phases=(self.loop_of(found),),
            event=batches.event,
            inputs={
                "clip": run.clip,
                "num_steps": run.num_steps,
                "eta": eta,
                "batches": batches.batches.name,
                "noise_stddev": batches.stddev,
            },
            theorems=(batches.theorem, CLIPPED_GRADIENT),
            assumptions=(SHUFFLED_BLOCKS,) if calibration == "paper" else (),
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Bound of the mean excess risk of calibration "exact".

        :math:`\frac{2\eta D^2}{T(T+1)} + \Sigma^2 \frac{2T+1}{6\eta}` plus the clipping
        bias times the diameter; of the population risk for one-pass schemes, of the
        empirical risk for Poisson samples.
        """
        scales = self.scales(facts, budget)
        run, batches, eta = self.run_of(
            facts,
            scales,
            budget,
            first=0,
            count=facts.num_records,
            distance=scales.distance,
        )
        variance = self.variance(scales, run, batches)
        gap = run.gap(scales.distance**2, eta=eta, variance=variance)
        return gap + scales.bias(run.clip) * scales.diameter
