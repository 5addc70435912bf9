r"""Accelerated clipped stochastic gradients, for heavy-tailed gradients.

Xu et al. (arXiv 2026), Algorithms 6 and 7, take accelerated stochastic approximation
(Ghadimi and Lan 2012) on clipped, noisy batch means. It has one epoch, or one on each
of the growing blocks of `IteratedLocalizedClippedGD`. Here alpha_t is 2/(t+1), by
erratum gradient-E20.

Each batch has b fresh records. F_C is the risk of losses that are clipped at C, beta
their smoothness, d the dimension, varsigma the deviation of the noise, and r_2^2 bounds
the mean square of a clipped gradient. So a gradient has an error of mean square at most
:math:`\Sigma^2 = d\varsigma^2 + r_2^2/b`. Step t has the size t/(2 eta). If
:math:`\eta \ge 2\beta`, T steps from :math:`|w_0 - w^*| \le D` end at

    E F_C(w^{ag}_T) - F_C(w^*) <= 2 eta D^2/(T(T+1)) + Sigma^2 (2T+1)/(6 eta).

*Proof.* With :math:`\alpha_t = 2/(t+1)` and :math:`\eta_t = 4\eta/(t(t+1))` the
standard recursion adds :math:`\alpha_t^2 \Sigma^2/(2 (\eta_t - \beta \alpha_t^2))` in
step t. As :math:`\eta_t - \beta\alpha_t^2 \ge \eta_t/2`, weights proportional to t(t+1)
sum to the second term. (Its published constant, for noise alone, is about four times as
large.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.optimizers.loop.batches import Slices
from dpsample.optimizers.loop.clipping import (
    Block,
    Gap,
    GrowingBlocks,
    HeavyTailed,
    HeavyTailedScales,
    clipped_smoothness,
)
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Calibration, Loop, Recipe
from dpsample.optimizers.loop.perturbations import (
    SCHEMES,
    Epoch,
    GaussianNoise,
    NoiseForecast,
    NoNoise,
    Scheme,
    epoch,
    forecast,
)
from dpsample.optimizers.loop.steps import AcceleratedStep
from dpsample.privacy.accounting.events import GaussianEvent, ParallelEvent
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


class Acceleration(NamedTuple):
    """Public numbers of one accelerated run."""

    num_steps: int  # T
    batch_size: int  # b
    clip: float  # C
    smoothness: float  # beta
    distance: float  # D
    variance: float  # Sigma^2: mean square of noise and sampling error of a batch mean

    @property
    def eta(self) -> float:
        """Step parameter that minimizes the bound."""
        t = self.num_steps
        # The minimizer of 2 eta D^2/(T(T+1)) + Sigma^2 (2T+1)/(6 eta) over eta.
        root = math.sqrt(self.variance * t * (t + 1) * (2 * t + 1) / 12.0)
        # The proof needs eta >= 2 beta.
        return max(2.0 * self.smoothness, root / self.distance)

    def gap(self, spread: float) -> float:
        """Return the bound of the mean excess clipped risk.

        ``spread`` is a bound of E |w_0 - w*|^2, in the place of D^2.
        """
        t, variance, eta = self.num_steps, self.variance, self.eta
        return 2.0 * eta * spread / (t * (t + 1)) + variance * (2 * t + 1) / (6.0 * eta)


class AcceleratedRun(NamedTuple):
    """One run: its numbers and its batches."""

    plan: Acceleration
    epoch: Epoch

    @property
    def loop(self) -> Loop:
        """Gradient loop of the run."""
        stddev = self.epoch.stddev
        return Loop(
            num_steps=self.plan.num_steps,
            step=AcceleratedStep(self.plan.eta),
            batches=self.epoch.batches,
            estimator=ClippedMean(threshold=self.plan.clip),
            noise=GaussianNoise(stddev) if stddev else NoNoise(),
        )


def variance_of(
    scales: HeavyTailedScales, clip: float, stddev: float, batch_size: int
) -> float:
    """Return the mean square of noise and sampling error of a batch mean."""
    rms = scales.root_mean_square(clip)
    # d coordinates of noise, and the variance of a mean of b clipped gradients.
    return scales.dim * stddev**2 + rms**2 / batch_size


def acceleration(
    facts: PublicFacts,
    scales: HeavyTailedScales,
    noise: NoiseForecast,
    *,
    distance: float,
    num_steps: int | None,
) -> Acceleration:
    """Return the steps and the threshold that minimize bound plus clipping bias."""
    count = noise.num_records
    check_steps(num_steps, count)
    # The best number of steps and threshold are searched on geometric grids, whose
    # ratios change the bound by a few per cent.
    grid = np.unique(np.geomspace(1, count, 60).astype(int))
    steps = [int(t) for t in grid] if num_steps is None else [num_steps]
    thresholds = [
        (clip, clipped_smoothness(facts, clip)) for clip in _thresholds(scales, noise)
    ]
    choices = []
    for t in steps:
        # ``relative`` is the deviation of the noise for a threshold of 1.
        size, relative = count // t, noise(t)
        for clip, beta in thresholds:
            # Without noise the threshold may be infinite, and 0 times it NaN.
            stddev = relative * clip if relative > 0.0 else 0.0
            variance = variance_of(scales, clip, stddev, size)
            run = Acceleration(t, size, clip, beta, distance, variance)
            # Between two points at most 2 D apart, clipped and true risk differ by at
            # most 2 D times the bias.
            bound = run.gap(distance**2) + 2.0 * distance * scales.bias(clip)
            choices.append((bound, run))
    return min(choices, key=lambda choice: choice[0])[1]


def check_steps(num_steps: int | None, count: int) -> None:
    """Reject more steps than records, whose batches would be empty."""
    if num_steps is not None and num_steps > count:
        check.fail("num_steps", f"<= {count} records of the run", num_steps)


def _thresholds(scales: HeavyTailedScales, noise: NoiseForecast) -> list[float]:
    """Return the user's threshold, or candidates up to the Lipschitz constant."""
    if scales.clip is not None:
        return [scales.clip]
    if math.isinf(noise.gdp):
        return [scales.lipschitz]
    # The grid is in units of the moment, from a hundredth of it to a million times it.
    top = min(scales.lipschitz / scales.moment, 1e6)
    # The Lipschitz constant was divided and multiplied again, which may round it up.
    grid = np.geomspace(min(1e-2, top), top, 97)
    return [min(scales.lipschitz, scales.moment * float(c)) for c in grid]


@dataclass(frozen=True, kw_only=True)
class Accelerated(HeavyTailed):
    """Base of the accelerated methods.

    Parameters
    ----------
    scheme : {"poisson", "disjoint", "shuffle", "best"}
        Rule by which an epoch is cut into batches, see `epoch`.
    num_steps : int, optional
        Number T of batches of each epoch. The default minimizes the bound.
    """

    scheme: Scheme = "poisson"
    num_steps: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.one_of(SCHEMES, scheme=self.scheme)
        self._check_given(count="num_steps")

    def _proved_run(
        self,
        facts: PublicFacts,
        scales: HeavyTailedScales,
        budget: Budget | None,
        block: Block,
    ) -> AcceleratedRun:
        """Return the run of the smallest bound, with the noise that is proved."""
        plan = acceleration(
            facts,
            scales,
            forecast(self.scheme, budget, block.num_records),
            distance=block.distance,
            num_steps=self.num_steps,
        )
        batches = epoch(
            self.scheme,
            budget,
            record_bound=plan.clip,
            first=block.first,
            count=block.num_records,
            num_steps=plan.num_steps,
        )
        # The noise of these batches, in the place of its forecast.
        variance = variance_of(scales, plan.clip, batches.stddev, plan.batch_size)
        return AcceleratedRun(plan._replace(variance=variance), batches)

    def _printed_run(
        self,
        facts: PublicFacts,
        scales: HeavyTailedScales,
        budget: Budget | None,
        block: Block,
    ) -> AcceleratedRun:
        r"""Return the published threshold, batches and noise, with 1 for O().

        :math:`\varsigma^2 = C^2 T \log(1/\delta)/(n\epsilon)^2` on the mean of each of
        T disjoint shuffled batches, which proves :math:`s C/(b\varsigma)`-GDP.
        """
        first, count, distance = block[:3]
        check_steps(self.num_steps, count)
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
        size = count // steps
        slices = Slices(size=size, first=first, last=first + count, is_shuffled=True)
        stddev, event = 0.0, None
        if budget is not None:
            stddev = clip * math.sqrt(steps * log) / (count * budget.epsilon)
            # Batches are disjoint, so one record moves the mean of one of them.
            sensitivity = scales.shift * min(clip, scales.lipschitz) / size
            # The factor covers rounding errors of the quotient.
            event = GaussianEvent(sensitivity / stddev * (1.0 + 1e-12))
        variance = variance_of(scales, clip, stddev, size)
        plan = Acceleration(steps, size, clip, beta, distance, variance)
        return AcceleratedRun(plan, Epoch(slices, stddev, event, "paper"))


@dataclass(frozen=True, kw_only=True)
class AcceleratedClippedSGD(Accelerated):
    r"""Accelerated clipped SGD on the T batches of one epoch.

    It is PNCA-SGD of Xu et al. (arXiv 2026), Algorithm 6, without shuffling.

    :math:`w^{md} = (1-\alpha_t) w^{ag} + \alpha_t w`, :math:`w \leftarrow P(w - \frac
    t{2\eta} g_t)`, :math:`w^{ag} \leftarrow \alpha_t w + (1-\alpha_t) w^{ag}`,
    :math:`\alpha_t = \frac2{t+1}`, :math:`g_t` the clipped mean of a batch at
    :math:`w^{md}` plus :math:`N(0, \varsigma^2 I)`: Xu et al. (arXiv 2026), Algorithm
    6. T, the threshold C and eta minimize the bound of `risk_bound`.

    The default scheme is Poisson sampling at rate 1/T, whose noise is smallest
    everywhere; the batches then overlap, and `risk_bound` speaks of the empirical risk.
    Its calibration "paper" is the published noise on shuffled disjoint batches, with
    the epsilon that these prove without shuffling.

    Parameters
    ----------
    moment : float, optional
        Public bound of (E sup_w |gradient|^k)^(1/k). The default is the Lipschitz
        constant, which must be finite then.
    order : float
        Order k > 1 of the moment.
    clip : float, optional
        Threshold of the gradients' norm. The default is the minimizer of the risk
        bound.
    distance : float, optional
        Public bound of the l2 distance from the start to a minimizer. The default is
        the domain's radius.
    scheme : {"poisson", "disjoint", "shuffle", "best"}
        Batches; "best" is the less noisy of the two one-pass schemes.
    num_steps : int, optional
        T. The default minimizes the bound.

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

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop, with its noise."""
        scales = self.scales(facts, budget)
        make = self._printed_run if calibration == "paper" else self._proved_run
        block = Block(0, facts.num_records, scales.distance)
        run = make(facts, scales, budget, block)
        return Recipe(
            phases=(run.loop,),
            event=run.epoch.event,
            inputs={
                "clip": run.plan.clip,
                "num_steps": run.plan.num_steps,
                "eta": run.plan.eta,
                "batches": run.epoch.batches.name,
                "noise_stddev": run.epoch.stddev,
            },
            kind=f"accelerated/{run.epoch.scheme}",
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Return a bound of the mean excess risk of calibration "exact".

        :math:`\frac{2\eta D^2}{T(T+1)} + \Sigma^2 \frac{2T+1}{6\eta}` plus the clipping
        bias times the diameter; of the population risk for one-pass schemes, of the
        empirical risk for Poisson samples.
        """
        scales = self.scales(facts, budget)
        block = Block(0, facts.num_records, scales.distance)
        run = self._proved_run(facts, scales, budget, block)
        bias = scales.bias(run.plan.clip) * scales.diameter
        return run.plan.gap(scales.distance**2) + bias


@dataclass(frozen=True, kw_only=True)
class IteratedAcceleratedClippedSGD(GrowingBlocks, Accelerated):
    r"""`AcceleratedClippedSGD` on growing blocks, the distance halved from run to run.

    Run t makes one epoch over its own :math:`n_t = \lfloor 2^{t-1} n/(\log_2 n)^A
    \rfloor` records, :math:`A = \log_{\bar\theta} 2`, from the last run's output, with
    the step for the distance :math:`R_0/2^{t-1}`: Xu et al. (arXiv 2026), Algorithm 7.
    ``distance`` is R_0.

    Parameters
    ----------
    least_exponent : float
        Lower bound theta-bar > 1 of the growth exponent.
    moment, order, clip, distance, scheme, num_steps
        As for `AcceleratedClippedSGD`, the last two of every epoch.

    Raises
    ------
    ValueError
        As for `AcceleratedClippedSGD`, or if the first block is empty.

    Guarantee
    ---------
    As for `AcceleratedClippedSGD`: the blocks are disjoint, and every one may spend the
    whole budget.

    Examples
    --------
    >>> IteratedAcceleratedClippedSGD(scheme="disjoint").least_exponent
    2.0
    """

    name: ClassVar[str] = "iterated_accelerated_clipped_sgd"

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop for every block."""
        scales = self.scales(facts, budget)
        runs = self._runs(facts, scales, budget, calibration)
        events = tuple(r.epoch.event for r in runs if r.epoch.event is not None)
        schemes = {run.epoch.scheme for run in runs}
        return Recipe(
            phases=tuple(run.loop for run in runs),
            event=ParallelEvent(events) if events else None,
            inputs={
                "num_runs": len(runs),
                "first_clip": runs[0].plan.clip,
                "last_clip": runs[-1].plan.clip,
                "first_noise_stddev": runs[0].epoch.stddev,
                "last_noise_stddev": runs[-1].epoch.stddev,
            },
            kind=f"accelerated/{schemes.pop() if len(schemes) == 1 else 'one_pass'}",
        )

    def run_bounds(
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """See `GrowingBlocks.run_bounds`; one-pass schemes only."""
        if self.scheme == "poisson":
            remedy = "The bound needs fresh batches."
            check.fail("scheme", "'disjoint', 'shuffle' or 'best'", "poisson", remedy)
        runs = self._runs(facts, scales, budget, "exact")
        return [(run.plan.gap, run.plan.clip) for run in runs]

    def _runs(
        self,
        facts: PublicFacts,
        scales: HeavyTailedScales,
        budget: Budget | None,
        calibration: Calibration,
    ) -> list[AcceleratedRun]:
        """Return the run of each block."""
        make = self._printed_run if calibration == "paper" else self._proved_run
        blocks = self.blocks(facts, scales)
        return [make(facts, scales, budget, block) for block in blocks]
