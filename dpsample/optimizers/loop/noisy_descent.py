r"""Noisy projected gradient descent: its public numbers, plan, recipe and risk bound.

T steps :math:`w_{t+1} = P(w_t - \eta (g_t + N(0, \sigma^2 I)))` start at w_0, where g_t
is the mean gradient of a batch, eta the step size and P the projection to the domain.
The output :math:`\bar w` is the average of w_1..w_T. There are n records and d
parameters. F is the risk, with minimizer w* and minimum F*. M is the largest distance
of the domain from w_0. The losses have Lipschitz constant L and smoothness beta. If
each step reads all records, the mean excess risk is

.. math:: F(\bar w) - F^* \le \frac{M^2}{2 \eta T}
   + \frac\eta2 \Bigl(1 + \frac1T\Bigr) \Bigl(L^2 + d\sigma^2 + \frac{2 L^2 T}n\Bigr).

This is the regret of T - 1 steps from w_1. The last term is there for the population
risk only, and comes from the stability :math:`|w_t - w_t'| \le 2 L \eta t / n` of steps
:math:`\eta \le 2 / \beta`, where w_t' is the iterate for neighboring records.

Where the losses are beta-smooth and :math:`\gamma = 1/\eta - \beta > 0`, also

.. math:: F(\bar w) - F^* \le \frac{M^2}{2 \eta T} + \frac{d\sigma^2}{2\gamma}
   + \frac{L^2 \eta (T + 1)}n.

Proof: the projected step and smoothness give, with the noise :math:`\xi`,
:math:`F(w_{t+1}) - F^* \le \frac1{2\eta}(|w_t - w^*|^2 - |w_{t+1} - w^*|^2) -
\frac\gamma2 |w_{t+1} - w_t|^2 - \langle\xi, w_{t+1} - w^*\rangle`. The product is split
at :math:`w_t`, where its mean is 0. With :math:`\sigma = 2 L \sqrt T/(n \cdot
\mathrm{gdp})`, gdp the budget's parameter in Gaussian differential privacy, each term
depends on :math:`\eta T` alone, up to :math:`\gamma`. So many short steps with noisier
gradients gain nothing over few long ones.

"Published" constants are from Bassily et al. (2019).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.batches import Batches, Full, Poisson, WithReplacement
from dpsample.optimizers.loop.estimators import ClippedMean, Estimator
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
)
from dpsample.optimizers.loop.perturbations import (
    CalibratedNoise,
    GaussianNoise,
    NoNoise,
    full_batch,
    gdp_of,
    poisson,
)
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import (
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
)
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.certificates.terms import Risk
from dpsample.problem.facts import PublicFacts

RISKS = ("population", "empirical")


class DescentScales(NamedTuple):
    """Public numbers of a problem, which determine step sizes and bounds."""

    radius: float  # M
    lipschitz: float  # L
    smoothness: float  # beta, infinite for a loss that is not differentiable everywhere
    dim: int  # d
    num_records: int  # n
    is_population: bool  # whether the population risk is bounded, or the empirical one


def scales_of(
    facts: PublicFacts, *, lipschitz: float, smoothness: float, risk: Risk
) -> DescentScales:
    """Return the numbers of a problem."""
    return DescentScales(
        radius=facts.radius,
        lipschitz=float(lipschitz),
        smoothness=smoothness,
        dim=facts.dim,
        num_records=facts.num_records,
        is_population=risk == "population",
    )


def enough_steps(scales: DescentScales, budget: Budget | None, *, is_full: bool) -> int:
    """Return a number of steps after which the bound is near its limit.

    More steps never worsen the bound. Smooth losses need fewer if every step reads all
    records (``is_full``).
    """
    # Numbers T at which a term of the bound that grows with T (2 L^2 T/n, or d sigma^2
    # with the budget's noise) is as large as L^2, which does not.
    limits = [0.5 * scales.num_records] if scales.is_population else []
    if budget is not None:
        gdp = gdp_of(budget)
        ratio = scales.num_records * gdp / SHIFTS[budget.relation]
        limits.append(ratio**2 / scales.dim)
    if not limits:
        remedy = "Without noise the empirical risk keeps falling."
        check.fail("num_steps", "given without a budget", "None", remedy)
    enough = min(limits)
    # Smooth losses allow steps of 1/beta, with which fewer steps are enough.
    if is_full and 0.0 < scales.lipschitz < math.inf and scales.radius < math.inf:
        rate = scales.lipschitz * math.sqrt(sum(1.0 / limit for limit in limits))
        # At this T the term beta M^2/(2 T) of the smooth bound, with steps 1/beta, is a
        # twentieth of the bound's limit, which is M times the rate.
        enough = min(enough, 10.0 * scales.smoothness * scales.radius / rate)
    # Fewer steps than this are never chosen by default.
    return max(10, math.ceil(enough))


def printed_steps(scales: DescentScales, budget: Budget) -> int:
    """Return the number of steps in Theorem 3.2 of Bassily et al. (2019)."""
    n, log_term = scales.num_records, math.log(1.0 / budget.delta)
    private = (budget.epsilon * n) ** 2 / (32.0 * scales.dim * log_term)
    return max(1, math.floor(min(n / 8.0, private)))


def printed_batch(num_records: int, num_steps: int, epsilon: float) -> int:
    """Return the published batch size n sqrt(epsilon / 4T), from 1 to n."""
    size = math.ceil(num_records * math.sqrt(epsilon / (4.0 * num_steps)))
    return min(max(size, 1), num_records)


def private_rate(scales: DescentScales, budget: Budget) -> float:
    """Return the private term of the bounds, sqrt(d log(1/delta))/(epsilon n)."""
    root = math.sqrt(scales.dim * math.log(1.0 / budget.delta))
    return root / budget.epsilon / scales.num_records


def printed_rate(scales: DescentScales, budget: Budget) -> float:
    """Return max(`private_rate`, 1/sqrt(n)), the rate of the published bounds."""
    return max(private_rate(scales, budget), 1.0 / math.sqrt(scales.num_records))


def printed_smoothness(scales: DescentScales, budget: Budget) -> float:
    """Return the largest beta for which Theorem 3.2 of Bassily et al. (2019) holds.

    Theorem 4.4 smooths a loss to the same beta.
    """
    noise = 8.0 * private_rate(scales, budget)
    rate = max(4.0 / math.sqrt(scales.num_records), noise)
    return scales.lipschitz / scales.radius / rate


def best_step(scales: DescentScales, num_steps: int, slope: float) -> float:
    """Return the eta that minimizes M^2/(2 eta T) + eta slope/2."""
    if not math.isfinite(scales.radius):
        remedy = "The step is made of its radius: pass step_size for any other."
        check.fail("domain", "bounded", "an unbounded one", remedy)
    return scales.radius / math.sqrt(num_steps * slope)


def noise_ridge(scales: DescentScales, budget: Budget) -> float:
    r"""Return the ridge :math:`m_0 = s \sqrt d/M`, which minimizes m M^2 + d s^2/m.

    :math:`s = \Delta L/(n t)` is the noise of a mean gradient, where Delta is 2 or 1 by
    the relation and t the budget's gdp.
    """
    if not math.isfinite(scales.radius):
        remedy = "The ridge is made of its radius: pass step_size for any other."
        check.fail("domain", "bounded", "an unbounded one", remedy)
    shift = SHIFTS[budget.relation] * scales.lipschitz
    noise = shift / (scales.num_records * gdp_of(budget))
    return noise * math.sqrt(scales.dim) / scales.radius


def pure_noise_ridge(scales: DescentScales, budget: Budget) -> float:
    r"""Return `noise_ridge` of a tilt of density proportional to exp(-|b|/s).

    The root mean square of its coordinates is sqrt(d + 1) s, and to first order s =
    Delta L/epsilon. So sqrt(d + 1)/epsilon replaces 1/t.
    """
    if not math.isfinite(scales.radius):
        remedy = "The ridge is made of its radius: pass ridge."
        check.fail("domain", "bounded", "an unbounded one", remedy)
    shift = SHIFTS[budget.relation] * scales.lipschitz
    noise = shift * math.sqrt(scales.dim + 1.0)
    noise /= scales.num_records * budget.epsilon
    return noise * math.sqrt(scales.dim) / scales.radius


def public_ridge(scales: DescentScales, budget: Budget) -> float:
    r"""Return the ridge m of private smooth fits, or 1/(eta T) of descent.

    .. math:: m = \sqrt{2 m_0 \max(m_0, \beta/400)}, \quad m_0 \text{ of `noise_ridge`}.

    This is a rule, not a theorem. Both constants were chosen on four data sets, which
    ``studies/which_method.py`` names.
    """
    noise_only = noise_ridge(scales, budget)
    # If beta/m_0 is above this, a ridge larger than the bound's adds hardly any bias.
    return math.sqrt(2.0 * noise_only * max(noise_only, scales.smoothness / 400.0))


Scheme = Literal["full", "poisson", "with_replacement"]


class DescentPlan(NamedTuple):
    """All public numbers of one run."""

    scheme: Scheme
    batch_size: int  # mean size, by which sums are divided
    num_steps: int  # T
    noise: CalibratedNoise | None  # None without a budget
    is_proved: bool  # whether the privacy of this noise is proved

    @property
    def stddev(self) -> float:
        """Standard deviation sigma of the noise of every step."""
        return 0.0 if self.noise is None else self.noise.stddev

    @property
    def event(self) -> Event | None:
        """Proved privacy of all steps, None if there is no proof."""
        return self.noise.event if self.noise and self.is_proved else None

    def batches(self, num_records: int) -> Batches:
        """Return the batch scheme."""
        if self.scheme == "poisson":
            return Poisson(rate=self.batch_size / num_records)
        if self.scheme == "with_replacement":
            return WithReplacement(size=self.batch_size)
        return Full()

    def bound(self, scales: DescentScales, step_size: float) -> float:
        """Return the smaller of the module's two bounds, infinite if neither holds.

        For random batches only the empirical risk has a bound, because a batch may be
        less smooth than the mean of all records.
        """
        # The stability of steps needs eta <= 2 / beta, up to rounding.
        is_stable = step_size * scales.smoothness <= 2.0 * (1.0 + 1e-12)
        if scales.is_population and not (is_stable and self.scheme == "full"):
            return math.inf
        regret = 0.5 * scales.radius**2 / (step_size * self.num_steps)
        bound = regret + 0.5 * step_size * self.slope(scales)
        slack = 1.0 / step_size - scales.smoothness  # gamma
        if slack > 0.0:
            stable = step_size * self._stability(scales)
            bound = min(bound, regret + 0.5 * self._noise(scales) / slack + stable)
        return bound

    def slope(self, scales: DescentScales) -> float:
        """Return V in the bound M^2/(2 eta T) + eta V/2, for any Lipschitz loss."""
        total = scales.lipschitz**2 + self._noise(scales)
        # Both terms have the factor 1 + 1/T of the module.
        if scales.is_population:
            total += 2.0 * scales.lipschitz**2 * self.num_steps / scales.num_records
        return (1.0 + 1.0 / self.num_steps) * total

    def smooth_step(self, scales: DescentScales) -> float:
        """Return the step size that minimizes the bound for smooth losses.

        It is 0 if they are not smooth, and infinite if there is neither error nor
        curvature.
        """
        # With 1/eta = beta + gamma the bound is at most a constant plus M^2 gamma/(2 T)
        # + error/(2 gamma), which is smallest at this gamma.
        error = self._noise(scales) + 2.0 * self._stability(scales)
        slack = math.sqrt(error * self.num_steps) / scales.radius
        inverse = scales.smoothness + slack
        return 1.0 / inverse if inverse > 0.0 else math.inf

    def _noise(self, scales: DescentScales) -> float:
        """Return the mean square of the error of a step's gradient."""
        total = scales.dim * self.stddev**2
        if self.scheme != "full":
            # The variance of a batch mean. Poisson samples at rate q have the factor
            # 1 - q, samples with replacement have not.
            rate = 0.0
            if self.scheme == "poisson":
                rate = self.batch_size / scales.num_records
            total += scales.lipschitz**2 * ((1.0 - rate) / self.batch_size)
        return total

    def _stability(self, scales: DescentScales) -> float:
        """Return the generalization gap of the mean iterate over the step size."""
        if not scales.is_population:
            return 0.0
        return scales.lipschitz**2 * (self.num_steps + 1) / scales.num_records


def recipe_of(
    plan: DescentPlan, loop: Loop, inputs: dict[str, float | int | str], bound: float
) -> Recipe:
    """Return the recipe of one loop, with its proved privacy and risk bound."""
    if plan.noise is not None:
        inputs["noise_stddev"] = plan.stddev
    if math.isfinite(bound):
        inputs["risk_bound"] = bound
    rule = "clipped" if isinstance(loop.estimator, ClippedMean) else "steps"
    return Recipe(
        phases=(loop,),
        event=plan.event,
        inputs={
            "batches": plan.scheme,
            "batch_size": plan.batch_size,
            "num_steps": plan.num_steps,
            **inputs,
        },
        kind=f"{rule}/{plan.scheme}",
    )


def proved_noise(
    scales: DescentScales, budget: Budget, scheme: Scheme, num_steps: int, size: int
) -> CalibratedNoise:
    """Return the smallest noise that is proved, and its event."""
    n, bound = scales.num_records, scales.lipschitz
    if scheme == "with_replacement":
        remedy = "Or use NoisyGD, or calibration='paper' for reproduction."
        condition = "'poisson' where privacy is proved"
        check.fail("batches", condition, repr(scheme), remedy)
    if scheme == "full":
        return full_batch(
            budget, record_bound=bound, num_records=n, num_steps=num_steps
        )
    return poisson(
        budget,
        record_bound=bound,
        num_records=n,
        sampling_rate=size / n,
        num_steps=num_steps,
    )


def printed_noise(
    scales: DescentScales, budget: Budget, scheme: Scheme, num_steps: int, size: int
) -> CalibratedNoise:
    """Return the noise of Bassily et al. (2019), Algorithm 1, and its true privacy."""
    # sigma = L sqrt(8 T log(1/delta))/(n epsilon), on the mean of a batch.
    log_term = 8.0 * num_steps * math.log(1.0 / budget.delta)
    stddev = scales.lipschitz * math.sqrt(log_term)
    stddev /= scales.num_records * budget.epsilon
    # Noise of the sum of a batch in units of the Lipschitz constant.
    multiplier = stddev * size / scales.lipschitz
    # One record moves each of T sums by the shift times L.
    gdp = SHIFTS[budget.relation] * math.sqrt(num_steps) / multiplier
    event: Event = GaussianEvent(gdp * (1.0 + 1e-12))
    if scheme == "poisson":
        event = PoissonGaussianEvent(
            sampling_rate=size / scales.num_records,
            noise_multiplier=multiplier,
            num_steps=num_steps,
        )
    return CalibratedNoise(stddev, event)


@dataclass(frozen=True, kw_only=True)
class NoisyDescent(Optimizer):
    """Base of noisy gradient descent on a loss and on its Moreau envelope."""

    num_steps: int | None = None
    step_size: float | None = None
    risk: Risk = "population"

    def __post_init__(self) -> None:
        """Check the options."""
        self._check_given("step_size", count="num_steps")
        check.one_of(RISKS, risk=self.risk)

    def plan(
        self, scales: DescentScales, budget: Budget | None, calibration: Calibration
    ) -> DescentPlan:
        """Return batches, number of steps and noise."""
        is_paper = calibration == "paper" and budget is not None
        scheme = self.batch_scheme(is_paper=is_paper)
        # A number of the user comes first, then the paper's, then the default.
        num_steps = self.num_steps
        if num_steps is None and budget is not None and is_paper:
            num_steps = printed_steps(scales, budget)
        is_full = scheme == "full"
        num_steps = num_steps or enough_steps(scales, budget, is_full=is_full)
        n = scales.num_records
        if budget is None:
            size = self.size_of_batch(scheme, n, None)
            return DescentPlan(scheme, size, num_steps, None, False)
        printed = printed_batch(n, num_steps, budget.epsilon)
        size = self.size_of_batch(scheme, n, printed)
        make = printed_noise if is_paper else proved_noise
        noise = make(scales, budget, scheme, num_steps, size)
        return DescentPlan(scheme, size, num_steps, noise, scheme != "with_replacement")

    def _is_printed(
        self, scales: DescentScales, budget: Budget | None, scheme: Scheme
    ) -> bool:
        """Return whether Theorem 3.2 of Bassily et al. (2019) is about this run.

        Its algorithm requires epsilon <= 1 and delta <= 1/n^2, and a mean square of a
        step's gradient below L^2. Batches of one size and of all records have that,
        Poisson batches may not.
        """
        if budget is None or scheme == "poisson" or math.isinf(scales.radius):
            return False
        is_small = budget.delta * scales.num_records**2 <= 1.0 + 1e-12
        is_small = is_small and budget.epsilon <= 1.0
        return is_small and self.num_steps is None and self.step_size is None

    def batch_scheme(self, *, is_paper: bool) -> Scheme:
        """Return the batch scheme, which is all records."""
        del is_paper  # the published scheme is the same
        return "full"

    def size_of_batch(self, scheme: Scheme, n: int, printed: int | None) -> int:
        """Return the size of a batch, by which its sum is divided."""
        del scheme, printed
        return n

    def loop(
        self, plan: DescentPlan, num_records: int, step_size: float, mean: Estimator
    ) -> Loop:
        """Return the loop that averages w_1, ..., w_T."""
        return Loop(
            num_steps=plan.num_steps,
            step=GradientStep(step_size),
            batches=plan.batches(num_records),
            estimator=mean,
            noise=GaussianNoise(plan.stddev) if plan.stddev else NoNoise(),
            weights=EQUAL_WEIGHTS,
        )

    def risk_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> float:
        """Bound the mean excess risk, infinite if no bound is proved.

        Parameters
        ----------
        facts : PublicFacts
            Public facts of the problem.
        budget : Budget or None
            Without a budget there is no noise.
        calibration : {"exact", "paper"}
            Whether noise and steps are the proved or the published ones.

        Returns
        -------
        float
        """
        bound = self.recipe(facts, budget, calibration).inputs.get("risk_bound")
        return math.inf if bound is None else float(bound)


@dataclass(frozen=True, kw_only=True)
class BatchedDescent(NoisyDescent):
    """Base of noisy gradient descent on all records or on random batches."""

    batches: Scheme | None = None
    batch_size: int | None = None
    schemes: ClassVar[tuple[Scheme, ...]] = ("full", "poisson", "with_replacement")

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        self._check_given(count="batch_size")
        check.one_of((None, *self.schemes), batches=self.batches)

    def batch_scheme(self, *, is_paper: bool) -> Scheme:
        """Return the scheme passed by the user, or the default or published one."""
        return self.batches or ("with_replacement" if is_paper else self.schemes[0])

    def size_of_batch(self, scheme: Scheme, n: int, printed: int | None) -> int:
        """Return the batch size passed by the user, or the published one."""
        size = self.batch_size
        if scheme == "full":
            if size not in (None, n):
                remedy = "Choose batches='poisson' for less."
                check.fail("batch_size", "None for full batches", size, remedy)
            return n
        if size is not None:
            if size > n:
                check.fail("batch_size", f"<= num_records = {n}", size)
            return int(size)
        if printed is None:
            check.fail("batch_size", "given without a budget", "None")
        return printed
