r"""Localized minimization of clipped risks, for heavy-tailed gradients.

Xu et al. (arXiv 2026), Algorithms 3, 4 and 5. Phase i solves :math:`\min \frac1{n_i}
\sum f_C + \frac1{2 \eta_i n_i} |w - w_{i-1}|^2` on :math:`n_i = \lfloor n/2^i \rfloor`
fresh records, where :math:`f_C` is a record's loss with gradients clipped to length C,
:math:`w_{i-1}` the output of the phase before, and :math:`\eta_i = \eta/4^i`. The
solution has a certified accuracy. Then Gaussian noise is added. The minimizers of
neighboring data sets are at most :math:`s C \eta_i` apart, with s = 2 for a replaced
record and 1 for a record that is set to zero. Later phases are closer to the minimizer,
and need less noise.
Algorithms 4 and 5 make several such runs. Each starts at the output of the run before.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.clipping import (
    Block,
    Gap,
    GrowingBlocks,
    HeavyTailed,
    HeavyTailedScales,
    check_growth,
    clipped_smoothness,
)
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Calibration, Minimization, Phase, Recipe
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.optimizers.loop.solve import STEPS_PER_CONDITION
from dpsample.optimizers.printed import (
    PrintedLocalization,
    printed_event,
    printed_loops,
    printed_minimizations,
    printed_phases,
)
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts


class Stage(NamedTuple):
    """One phase of a localized run."""

    first: int  # number of its first record
    size: int  # number of its records
    eta: float  # eta_i
    stddev: float  # noise in each coordinate of its output
    error: float  # distance of the certified point from the minimizer


class LocalizationPlan(NamedTuple):
    """All public numbers of one localized run."""

    scales: HeavyTailedScales
    clip: float
    stages: tuple[Stage, ...]

    @property
    def eta(self) -> float:
        """Number eta of the schedule eta_i = eta/4^i, which begins with i = 1."""
        return 4.0 * self.stages[0].eta

    def gap(self, spread: float) -> float:
        """Bound the mean excess clipped risk, if E |start - minimizer|^2 <= spread.

        The minimizer on a sample generalizes up to 2 eta_i E |clipped gradient|^2,
        because it is stable on average if one record changes.
        """
        # Root of the mean square of the length of a clipped gradient.
        # ``square_distance`` bounds the square of the distance of a phase's start from
        # the comparison point, first the minimizer and then the minimizer of the phase
        # before.
        rms = self.scales.root_mean_square(self.clip)
        total, square_distance = 0.0, spread
        for stage in self.stages:
            regret = 0.5 * square_distance / (stage.eta * stage.size)
            total += regret + 2.0 * rms**2 * stage.eta
            square_distance = self.output_distance(stage) ** 2
        # The last output differs from its phase's minimizer, along which the risk is
        # Lipschitz.
        return total + rms * self.output_distance(self.stages[-1])

    def output_distance(self, stage: Stage) -> float:
        """Bound the mean distance of a stage's output from its minimizer."""
        return math.sqrt(self.scales.dim) * stage.stddev + stage.error


def plan_of(scales: HeavyTailedScales, run: Block, accuracy: float) -> LocalizationPlan:
    """Plan the threshold, the schedule and the noise of a localized run.

    The excess clipped risk is at most about
    4 D^2/(eta n) + eta (2 r^2/3 + 4 d (s C/gdp)^2/n), which eta minimizes. D is the
    distance from the start, r the root mean square of a clipped gradient, and gdp the
    budget's Gaussian-DP parameter.
    """
    first, count = run.first, run.num_records
    if count < 2:
        check.fail("num_records", "at least 2 in every localized run", count)
    clip = scales.threshold(count)
    # Without a threshold the solver's accuracy is relative to the moment.
    bound = clip if math.isfinite(clip) else scales.moment
    rms = scales.root_mean_square(clip)
    # Noise of a phase for each unit of its step size. The minimizer of a phase moves by
    # at most s C eta_i, because its ridge is 1/(eta_i n_i) and a record has 1/n_i.
    per_step = scales.shift * clip / scales.gdp if math.isfinite(scales.gdp) else 0.0
    # The bound is 4 D^2/(eta n) + eta times this number.
    variance = 2.0 * rms**2 / 3.0 + 4.0 * scales.dim * per_step**2 / count
    eta = run.distance * math.sqrt(4.0 / (count * variance))
    stages = []
    # Phase i reads count / 2^i records, so the last phase reads one.
    for i in range(1, count.bit_length()):
        step = eta * 0.25**i
        stddev = round_up(per_step * step * (1.0 + accuracy)) if per_step else 0.0
        # The solutions of both neighbors have an error of half of accuracy times the
        # distance of their minimizers. The factor 1 + accuracy of the noise covers
        # both.
        error = 0.5 * accuracy * scales.shift * bound * step
        stages.append(Stage(first, count >> i, step, stddev, error))
        first += count >> i
    return LocalizationPlan(scales, clip, tuple(stages))


def minimizations(
    facts: PublicFacts, plan: LocalizationPlan, local_radius: float = math.inf
) -> tuple[Minimization, ...]:
    """Return the phases of a plan, in a ball about the start of the first phase."""
    curvature = clipped_smoothness(facts, plan.clip)
    phases = []
    for index, stage in enumerate(plan.stages):
        ridge = 1.0 / (stage.eta * stage.size)
        # Epochs of random records are faster if they are much shorter than a pass.
        epoch = STEPS_PER_CONDITION * (1.0 + curvature / ridge)
        phases.append(
            Minimization(
                ridge=ridge,
                smoothness=curvature,
                # A point of this gap is at most the error away from the minimizer.
                gap=0.5 * ridge * stage.error**2,
                first=stage.first,
                last=stage.first + stage.size,
                estimator=ClippedMean(threshold=plan.clip),
                is_anchored=True,
                local_radius=local_radius,
                output_stddev=stage.stddev,
                keeps_ball=index > 0,
                solver="svrg" if 4.0 * epoch <= stage.size else "accelerated",
            )
        )
    return tuple(phases)


@dataclass(frozen=True, kw_only=True)
class LocalizedRuns(HeavyTailed):
    """Base of the methods whose inner loop is localized minimization.

    Parameters
    ----------
    accuracy : float
        Part of the sensitivity that the error of the certified solver may add.
    max_steps : int, optional
        With calibration "paper", truncate every phase to this many gradient steps. By
        default phases are not truncated. It is not used otherwise.
    failure : float
        Failure probability beta of the published step size. It is not used otherwise.
    """

    accuracy: float = 1e-4
    max_steps: int | None = None
    failure: float = 0.05

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.open_interval(0.0, 1.0, accuracy=self.accuracy, failure=self.failure)
        if self.max_steps is not None:
            check.integer(1, max_steps=self.max_steps)

    def _runs(self, facts: PublicFacts, scales: HeavyTailedScales) -> tuple[Block, ...]:
        """Return the localized runs, here one on all records."""
        return (Block(0, facts.num_records, scales.distance),)

    def _plans(
        self, facts: PublicFacts, scales: HeavyTailedScales
    ) -> tuple[LocalizationPlan, ...]:
        """Return the plans of all runs."""
        runs = self._runs(facts, scales)
        return tuple(plan_of(scales, run, self.accuracy) for run in runs)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the phases of all runs, with certified or published solutions."""
        scales = self.scales(facts, budget)
        if calibration == "paper":
            return self._printed_recipe(facts, scales, budget)
        plans, phases = self._plans(facts, scales), list[Phase]()
        for run, plan in zip(self._runs(facts, scales), plans, strict=True):
            phases.extend(minimizations(facts, plan, run.local_radius))
        return Recipe(
            phases=tuple(phases),
            event=None if budget is None else GaussianEvent(gdp_of(budget)),
            inputs={
                "num_phases": len(phases),
                "clip": plans[0].clip,
                "eta": plans[0].eta,
                "first_noise_stddev": plans[0].stages[0].stddev,
                "last_noise_stddev": plans[-1].stages[-1].stddev,
            },
            kind="localized",
        )

    def _printed_recipe(
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> Recipe:
        """Return a recipe of published phases, with their true privacy event."""
        phases, printed = list[Phase](), list[PrintedLocalization]()
        for run in self._runs(facts, scales):
            schedule = printed_phases(
                scales,
                budget,
                first=run.first,
                count=run.num_records,
                distance=run.distance,
                failure=self.failure,
            )
            printed.extend(schedule)
            if self.max_steps is None:
                phases.extend(
                    printed_minimizations(
                        facts, scales, schedule, self.accuracy, run.local_radius
                    )
                )
            else:
                phases.extend(printed_loops(schedule, self.max_steps, run.local_radius))
        event = None
        if budget is not None:
            event = printed_event(
                facts,
                scales,
                tuple(printed),
                max_steps=self.max_steps,
                accuracy=self.accuracy,
            )
        inputs: dict[str, float | int | str] = {
            "num_phases": len(phases),
            "printed_steps_of_first_phase": printed[0].num_steps,
            "first_noise_stddev": printed[0].stddev,
            "last_noise_stddev": printed[-1].stddev,
        }
        if self.max_steps is not None:
            inputs["max_steps"] = self.max_steps
        return Recipe(
            phases=tuple(phases),
            event=event,
            inputs=inputs,
            kind="localized/" + ("printed" if self.max_steps is None else "truncated"),
        )


@dataclass(frozen=True, kw_only=True)
class LocalizedClippedGD(LocalizedRuns):
    r"""Localized minimization of the clipped risk, with noise after every phase.

    It is LNC-GM of Xu et al. (arXiv 2026), Algorithm 3.

    Phase i reads :math:`n_i = \lfloor n/2^i \rfloor` fresh records, minimizes their
    clipped risk plus :math:`\frac1{2 \eta_i n_i} |w - w_{i-1}|^2` over the domain to a
    certified gap, :math:`\eta_i = \eta/4^i`, and adds :math:`N(0, \sigma_i^2 I)`,
    :math:`\sigma_i = 2 C \eta_i/\mu` (1 + accuracy): Xu et al. (arXiv 2026), Algorithm
    3, with one threshold C for all phases, :math:`\lambda_i = 1/(\eta_i n_i)` and exact
    solutions. C and eta minimize `risk_bound`.

    With calibration "paper" the schedule and the noise are the published ones, and
    ``order`` is the paper's 2k. The first phase is said to take about
    :math:`n_1^{2p} \log n` passes of gradient descent, :math:`10^8` for :math:`n =
    10^4`, which end near the minimizer of the phase. A certified solver finds the same
    point: its error is at most that of the published number of steps, or ``accuracy``
    times the distance that one record may move it. With ``max_steps`` it is LNC-GM
    truncated, whose phases are that many steps of gradient descent. Outputs of phases
    are projected on the domain, as the next phase needs. The certificate states the
    epsilon that the published noise proves.

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
    accuracy : float
        Part of the sensitivity that the error of the certified solver may add.
    max_steps : int, optional
        With calibration "paper", truncate every phase to this many gradient steps. By
        default phases are not truncated. It is not used otherwise.
    failure : float
        Failure probability beta of the published step size. It is not used otherwise.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth or a
        bound is missing, or with calibration "paper" if a published step is longer than
        1/smoothness, for which it is not stated.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the loss is a convex function of a linear margin and the declared bounds hold for
    every possible record. The moment only sets hyperparameters, so privacy does not
    depend on it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = LocalizedClippedGD().recipe(problem.facts, budget)
    >>> len(recipe.phases), [phase.last for phase in recipe.phases[:3]]
    (10, [1000, 1500, 1750])
    """

    name: ClassVar[str] = "localized_clipped_gd"

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Bound the mean excess population risk of calibration "exact".

        It is about :math:`D (\frac{3.3 r_2}{\sqrt n} + \frac{2k}{k-1} r_k (\frac{8
        \sqrt d}{\mu n})^{(k-1)/k})`, evaluated for the actual phases. Its terms are
        stability on average, noise, and the clipping bias times the domain's diameter.
        On an unbounded domain the diameter is twice the distance. The bound assumes
        then that iterates stay within it, unless nothing is clipped.
        """
        scales = self.scales(facts, budget)
        # One run on all records.
        (plan,) = self._plans(facts, scales)
        bias = scales.bias(plan.clip) * scales.diameter
        return plan.gap(scales.distance**2) + bias


@dataclass(frozen=True, kw_only=True)
class IteratedLocalizedClippedGD(GrowingBlocks, LocalizedRuns):
    r"""`LocalizedClippedGD` on growing blocks. Each run halves the distance.

    Run t reads its own :math:`n_t = \lfloor 2^{t-1} n/(\log_2 n)^A \rfloor` records,
    :math:`A = \log_{\bar\theta} 2`, starts at the last run's output and takes the step
    size for the distance :math:`R_0/2^{t-1}`, over the whole domain: Xu et al. (arXiv
    2026), Algorithm 5. ``distance`` is R_0.

    Parameters
    ----------
    least_exponent : float
        Lower bound theta-bar > 1 of the growth exponent.
    moment, order, clip, distance, accuracy, max_steps, failure
        As for `LocalizedClippedGD`.

    Raises
    ------
    ValueError
        As for `LocalizedClippedGD`, or if the first block is empty.

    Guarantee
    ---------
    The guarantee is that of `LocalizedClippedGD`. The blocks are disjoint, so each may
    use the whole budget.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(1000, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = IteratedLocalizedClippedGD().recipe(problem.facts, budget)
    >>> len(recipe.phases), recipe.phases[0].last
    (21, 50)
    """

    name: ClassVar[str] = "iterated_localized_clipped_gd"

    def _runs(self, facts: PublicFacts, scales: HeavyTailedScales) -> tuple[Block, ...]:
        """Return one run for every block."""
        return self.blocks(facts, scales)

    def run_bounds(
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """See `GrowingBlocks.run_bounds`."""
        del budget  # the scales contain its gdp
        return [(plan.gap, plan.clip) for plan in self._plans(facts, scales)]


def num_runs(num_records: int) -> int:
    """Return the number of runs m = floor(log2(2n/log2 n)/2) - 1, at least 1."""
    check.integer(2, num_records=num_records)
    inside = 2.0 * num_records / math.log2(num_records)
    return max(1, math.floor(0.5 * math.log2(inside)) - 1)


@dataclass(frozen=True, kw_only=True)
class PrivateStochasticApproximation(LocalizedRuns):
    r"""`LocalizedClippedGD` on m blocks of records, in balls of radius R, R/2, R/4, ...

    Run l reads its own :math:`\lfloor n/m \rfloor` records, starts at the last run's
    output and stays in the ball of radius :math:`R_0/2^{l-1}` about it, :math:`m =
    \max(1, \lfloor \frac12 \log_2 \frac{2n}{\log_2 n} \rfloor - 1)`: Xu et al. (arXiv
    2026), Algorithm 4. ``distance`` is R_0.

    Parameters
    ----------
    moment, order, clip, distance, accuracy, max_steps, failure
        As for `LocalizedClippedGD`.

    Raises
    ------
    ValueError
        As for `LocalizedClippedGD`.

    Guarantee
    ---------
    The guarantee is that of `LocalizedClippedGD`. The blocks are disjoint, so each may
    use the whole budget.

    Examples
    --------
    >>> [num_runs(n) for n in (10**3, 10**4, 10**5, 10**6)]
    [2, 4, 5, 7]
    """

    name: ClassVar[str] = "private_stochastic_approximation"

    def _runs(self, facts: PublicFacts, scales: HeavyTailedScales) -> tuple[Block, ...]:
        """Return one run for every block, in the ball of its radius."""
        blocks = num_runs(facts.num_records)
        count = facts.num_records // blocks
        radii = [scales.distance * 0.5**i for i in range(blocks)]
        return tuple(Block(i * count, count, r, r) for i, r in enumerate(radii))

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Return a bound of the mean excess population risk, without any growth.

        It is the sum of the runs' bounds. Each compares with the point of the run's
        ball that lies towards the minimizer, which is not worse than the start of the
        run. Noise may carry a run's output out of its ball.
        """
        # Each run pays for its own clipping bias, over the ball and the way of the
        # noise.
        scales = self.scales(facts, budget)
        runs, plans = self._runs(facts, scales), self._plans(facts, scales)
        return sum(
            plan.gap(run.distance**2)
            + scales.bias(plan.clip)
            * (2.0 * run.distance + plan.output_distance(plan.stages[-1]))
            for plan, run in zip(plans, runs, strict=True)
        )

    def printed_growth_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        *,
        exponent: float,
        constant: float,
    ) -> float:
        r"""Return the published bound under growth, with the rate a of our inner runs.

        It is :math:`4 (2 a)^{\theta/(\theta-1)} \lambda^{-1/(\theta-1)}` if
        :math:`\lambda \ge 2 R_0^{1-\theta} a`, and otherwise infinite. The theorem
        states it with high probability for the published inner loop. For ours, whose
        rate a bounds a mean, it is a reference and not a proof.

        Parameters
        ----------
        facts, budget
            As for `recipe`.
        exponent, constant : float
            theta, from 1.01 to 1000, and lambda, from 1e-60 to 1e60, of the growth.

        Returns
        -------
        float
        """
        check_growth(exponent, constant)
        scales = self.scales(facts, budget)
        radius, plan = scales.distance, self._plans(facts, scales)[0]
        # The excess risk of a run is at most this rate a times its radius.
        rate = plan.gap(radius**2) / radius + 2.0 * scales.bias(plan.clip)
        if constant < 2.0 * radius ** (1.0 - exponent) * rate:
            return math.inf
        power = 1.0 / (exponent - 1.0)
        return float(4.0 * (2.0 * rate) ** (exponent * power) * constant**-power)
