r"""Truncated mirror descent on a bounded set, one pass, for heavy-tailed gradients.

Each of T steps reads a batch B_t of b fresh records, and the output is the mean of

.. math:: w_t = \arg\min_{w \in C} \Bigl\langle \frac1b \sum_{i \in B_t} h_i + \xi_t,
    w\Bigr\rangle + \gamma D_\Phi(w, w_{t-1}).

h_i is the gradient of record i if its l_q norm is at most B, and 0 otherwise. xi_t is
the noise, Phi the potential of `steps`, and D_Phi its Bregman divergence. This is
arXiv:2303.18047, Algorithm 4, with its potential corrected.

The population risk F is beta-smooth in l_p, and :math:`E\|\nabla f - \nabla F\|_q^2 \le
\sigma^2`. So :math:`\|\nabla F\|_q \le g = g^* + \beta M` on the set, where M is its
diameter and g* bounds the gradient at the minimizer. Gradients above B = g + lambda
become 0, with probability :math:`P \le \sigma^2/\lambda^2`. With D the potential's
largest value on the domain and a gradient error of bias beta_0 and mean square E,

    E F(mean iterate) - F* <= gamma D/T + E/(2 (gamma - beta)) + M beta_0, beta_0 <=
    sigma sqrt(P) + g P,

which the three-point inequality gives for gamma > beta. E is the sum of the sampling
error, kappa V/b, and of the noise. The variance V of one truncated gradient is at most
sigma^2 + g^2 P in l_2, and the square of this root plus beta_0 in l_q.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.numerics.norms import dual
from dpsample.optimizers.loop.batches import Batches, Slices
from dpsample.optimizers.loop.estimators import TruncatedMean
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
)
from dpsample.optimizers.loop.perturbations import (
    SCHEMES,
    Perturbation,
    Scheme,
    epoch,
    forecast,
)
from dpsample.optimizers.loop.steps import (
    NOISES,
    Geometry,
    GradientStep,
    MirrorStep,
    NoiseName,
    Step,
    geometry,
)
from dpsample.optimizers.printed import printed_truncated
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness


class TruncatedScales(NamedTuple):
    """Public numbers of one problem, in l_p and its dual l_q."""

    num_records: int
    space: Geometry
    radius: float  # largest distance of the domain from the start
    diameter: float  # M, largest distance of two points of the domain
    smoothness: float  # beta of the population risk
    slope: float  # g, bound of the population gradient on the domain
    moment: float  # sigma
    lipschitz: float  # Lipschitz constant of one record's loss; may be infinite
    noise_bound: float  # bound of one record's gradient in the norm of the noise

    def record_bound(self, threshold: float | Array) -> Array:
        """Return the bound of a truncated gradient in the norm of the noise."""
        ratio = self.space.threshold_ratio
        return np.asarray(np.minimum(threshold * ratio, self.noise_bound))

    @property
    def is_euclidean(self) -> bool:
        """Whether q is 2. Then squares of independent errors add up."""
        return self.space.q == 2.0


class TruncatedSchedule(NamedTuple):
    """Hyper-parameters of a run and the risk that they guarantee."""

    scheme: Scheme
    num_steps: int  # T
    threshold: float  # B
    step_size: float  # 1/gamma
    risk: float  # bound of the mean excess risk, infinite without a proof


def truncation(scales: TruncatedScales, threshold: Array) -> tuple[Array, Array]:
    """Return bias and variance of one truncated gradient, for every threshold."""
    # A gradient g is at most its mean, of norm <= slope, plus its deviation, of mean
    # square <= moment^2. So P(|g| > B) <= (moment/(B - slope))^2 by Chebyshev.
    moment, slope = scales.moment, scales.slope
    slack = np.maximum(threshold - slope, 0.0)
    with np.errstate(divide="ignore"):
        dropped = np.minimum(1.0, (moment / slack) ** 2)
    # No gradient is longer than its Lipschitz constant, so that nothing is dropped.
    dropped = np.where(threshold >= scales.lipschitz, 0.0, dropped)
    # The mean of |g| over dropped records, by Cauchy and Schwarz.
    bias = moment * np.sqrt(dropped) + slope * dropped
    # About the true mean: a dropped record deviates by the slope, another as before.
    variance = moment**2 + slope**2 * dropped
    # About its own mean a Euclidean variance is smaller. In other norms the distance of
    # both means is added.
    if not scales.is_euclidean:
        root = np.sqrt(variance)
        variance = (root + np.minimum(bias, root)) ** 2
    return bias, variance


def risks(
    scales: TruncatedScales,
    threshold: Array,
    *,
    num_steps: int,
    noise: float,
    copies: int,
    step_size: float | None,
) -> tuple[Array, Array]:
    """Return the risk bound and gamma of every threshold.

    ``noise`` is the standard deviation of Gaussian noise of a batch mean per unit of
    the record bound. ``copies`` are those of `Geometry.perturbation`. Without a
    ``step_size``, gamma minimizes the bound.
    """
    space, beta = scales.space, scales.smoothness
    size = scales.num_records // num_steps
    bias, variance = truncation(scales, threshold)
    # The mean square of a mean of m independent vectors is at most kappa/m of theirs.
    sampling = space.kappa * variance / size
    # Noise in proportion to the record bound, whose mean square in l_q is known for
    # deviation 1.
    noisy = (noise * scales.record_bound(threshold)) ** 2 * space.mean_square(copies)
    # Independent errors of mean 0 add their squares in l2, and their roots elsewhere.
    error = sampling + noisy
    if not scales.is_euclidean:
        error = (np.sqrt(sampling) + np.sqrt(noisy)) ** 2
    share = 0.5 * space.kappa * scales.radius**2 / num_steps  # D/T
    # The minimizer of gamma share + error/(2 (gamma - beta)).
    gamma = beta + np.sqrt(0.5 * error / share)
    if step_size is not None:
        gamma = np.full(threshold.shape, 1.0 / step_size)
    with np.errstate(divide="ignore", invalid="ignore"):
        movement = np.where(error > 0.0, 0.5 * error / (gamma - beta), 0.0)
    total = gamma * share + movement + scales.diameter * bias
    # Steps are proved for gamma >= beta only.
    return np.where(gamma >= beta, total, np.inf), gamma


def best_schedule(
    scales: TruncatedScales,
    budget: Budget | None,
    scheme: Scheme,
    *,
    num_steps: int | None,
    threshold: float | None,
    step_size: float | None,
) -> TruncatedSchedule:
    """Return the schedule of the smallest of `risks`.

    It is searched over the options that are None, and with "best" over both one-pass
    schemes.
    """
    # The bound is cheap and has no closed minimizer, so it is evaluated on grids of
    # ratios of a few per cent.
    largest = scales.num_records
    counts = np.unique(np.round(np.geomspace(1.0, largest, 100))).astype(int)
    steps = counts.tolist() if num_steps is None else [num_steps]
    # The grid needs a positive scale, also if the moment is 0.
    scale = max(scales.moment, 1e-12 * scales.slope, 1e-300)
    thresholds = scales.slope + scale * np.geomspace(0.5, 1e6, 100)
    # A gradient may exceed the Lipschitz constant by rounding errors.
    top = scales.lipschitz * (1.0 + 1e-9)
    thresholds = np.unique(np.minimum(thresholds, top))
    if threshold is not None:
        thresholds = np.array([min(threshold, top)])
    schemes: tuple[Scheme, ...] = (scheme,)
    if scheme == "best":
        schemes = ("disjoint", "shuffle")
    schedules: list[TruncatedSchedule] = []
    for word in schemes:
        noise = forecast(word, budget, scales.num_records)
        for count in steps:
            copies = scales.num_records // count if word == "shuffle" else 1
            risk, gamma = risks(
                scales,
                thresholds,
                num_steps=count,
                noise=noise(count),
                copies=copies,
                step_size=step_size,
            )
            i = int(np.argmin(risk))
            plan = (float(thresholds[i]), 1.0 / float(gamma[i]), float(risk[i]))
            schedules.append(TruncatedSchedule(word, count, *plan))
    best = min(schedules, key=lambda schedule: schedule.risk)
    if num_steps is None and math.isinf(best.risk):
        remedy = "Give num_steps, or shorter steps."
        check.fail("step_size", "< 1/smoothness", f"{step_size!r}", remedy)
    return best


def loop_of(
    scales: TruncatedScales,
    plan: TruncatedSchedule,
    batches: Batches,
    noise: Perturbation,
) -> Loop:
    """Return mirror steps on the l_p ball, or projected gradient steps in l_2."""
    space = scales.space
    step: Step = GradientStep(plan.step_size)
    if not scales.is_euclidean:
        step = MirrorStep(
            plan.step_size,
            exponent=space.s,
            kappa=space.kappa,
            radius=scales.radius,
            ball_exponent=min(dual(space.q), space.s),
        )
    return Loop(
        num_steps=plan.num_steps,
        step=step,
        batches=batches,
        estimator=TruncatedMean(threshold=plan.threshold, row_norm=space.q),
        noise=noise,
        weights=EQUAL_WEIGHTS,
    )


def inputs_of(plan: TruncatedSchedule) -> dict[str, float | int | str]:
    """Return the public numbers of the certificate."""
    return {
        "scheme": plan.scheme,
        "num_steps": plan.num_steps,
        "threshold": plan.threshold,
        "step_size": plan.step_size,
    }


@dataclass(frozen=True, kw_only=True)
class TruncatedMirrorDescent(Optimizer):
    r"""One pass of mirror steps on batches of truncated gradients with noise.

    On an l_p ball about 0 with p < 2, steps are those of :math:`\Phi = \frac\kappa2
    \|w\|_s^2` (see `steps`). On every other bounded domain, including l_p balls with p
    >= 2, they are projected gradient steps, those of :math:`\Phi = \frac12 \|w\|_2^2`.
    T, B and gamma minimize the explicit bound of `risk_bound`.

    A step that leaves the ball takes its exact Bregman projection, the constrained
    minimum of the mirror step.

    With calibration "paper" (``scheme="shuffle"``, 1 < p < 2) schedule, noise and
    potential are those of Algorithm 4 and Theorem 10 with constants 1. They are claimed
    for epsilon < :math:`\sqrt{\log(n/\delta)/n}` only. The certificate states the
    epsilon that is proved.

    Parameters
    ----------
    scheme : {"disjoint", "shuffle", "poisson", "best"}
        "disjoint" has consecutive batches with one noise each, and "shuffle" shuffled
        batches with noise on every record. "best" is the better of these two. "poisson"
        has Poisson samples of one epoch, with Gaussian noise only. Its risk bound is a
        forecast, because the proof needs fresh batches.
    noise : {"gaussian", "generalized_gaussian"}
        Gaussian noise is smaller in every dual norm that enters the bound.
    p : float, optional
        Exponent of the norm, from 1 to 2. The default is that of the domain if it is an
        l_p ball about 0 with p < 2, and 2 otherwise.
    moment : float, optional
        Public bound of :math:`(E\|\nabla f - \nabla F\|_q^2)^{1/2}`, q = p/(p-1). By
        default it follows from the Lipschitz constant.
    smoothness : float, optional
        Public bound of the population risk's smoothness in l_p. The default is a bound
        for every possible record.
    optimal_slope : float
        Public bound of :math:`\|\nabla F\|_q` at the minimizer. It is 0 in the
        interior, as the paper assumes (gradient-E9).
    num_steps, threshold, step_size : optional
        T, B and 1/gamma. By default they minimize the bound.

    Raises
    ------
    ValueError
        If a number is out of its range. In `recipe`, if the domain is not bounded, or p
        < 2 and it is not an l_p ball about 0.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation.
    Truncation bounds every record's part, so privacy does not depend on the moment or
    on the smoothness.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(2.0, p=1.5), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = TruncatedMirrorDescent(scheme="best").recipe(problem.facts, budget)
    >>> recipe.inputs["scheme"]
    'disjoint'
    """

    scheme: Scheme = "disjoint"
    noise: NoiseName = "gaussian"
    p: float | None = None
    moment: float | None = None
    smoothness: float | None = None
    optimal_slope: float = 0.0
    num_steps: int | None = None
    threshold: float | None = None
    step_size: float | None = None
    name: ClassVar[str] = "truncated_mirror_descent"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.one_of(SCHEMES, scheme=self.scheme)
        check.one_of(NOISES, noise=self.noise)
        if self.scheme == "poisson" and self.noise != "gaussian":
            remedy = "No accountant covers sampled generalized Gaussian noise."
            check.fail("noise", "'gaussian' with Poisson samples", self.noise, remedy)
        if self.p is not None:
            check.at_least(1.0, p=self.p)
            if self.p > 2.0:
                check.fail("p", "<= 2", self.p)
        positive = ("moment", "smoothness", "step_size", "threshold")
        self._check_given(*positive, count="num_steps")
        check.non_negative(optimal_slope=self.optimal_slope)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop over batches, with its noise."""
        scales = self._scales(facts)
        if calibration == "paper":
            return self._printed_recipe(facts, budget, scales)
        plan, count = self._schedule(scales, budget), facts.num_records
        one_epoch = epoch(
            plan.scheme,
            budget,
            record_bound=float(scales.record_bound(plan.threshold)),
            first=0,
            count=count,
            num_steps=plan.num_steps,
        )
        # The privacy of shuffled records rests on one noise for each of a batch.
        copies = count // plan.num_steps if plan.scheme == "shuffle" else 1
        noise = scales.space.perturbation(one_epoch.stddev, copies)
        loop = loop_of(scales, plan, one_epoch.batches, noise)
        inputs = inputs_of(plan) | {"noise": self.noise}
        if math.isfinite(plan.risk):
            name = "risk_forecast" if self.scheme == "poisson" else "risk_bound"
            inputs[name] = plan.risk
        inputs["noise_scale"] = noise.scale
        kind = f"truncated/{one_epoch.scheme}"
        if self.noise == "generalized_gaussian":
            kind += "/generalized_gaussian"
        return Recipe(
            phases=(loop,),
            event=one_epoch.event,
            inputs=inputs,
            kind=kind,
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Return a bound of the mean excess population risk, for the declared moments.

        With Poisson samples it is a forecast only.
        """
        return self._schedule(self._scales(facts), budget).risk

    def _scales(self, facts: PublicFacts) -> TruncatedScales:
        """Return the numbers of a problem, by default from its domain and bounds."""
        if self.num_steps is not None and self.num_steps > facts.num_records:
            check.fail("num_steps", f"<= {facts.num_records} records", self.num_steps)
        domain, dim = facts.domain, facts.dim
        if not domain.is_bounded:
            remedy = "Use a Ball, or NoisyMirrorDescent on the whole space."
            check.fail("domain", "bounded", domain, remedy)
        center, domain_exponent = domain.default_center(dim), 2.0
        if domain.lp_exponent is not None and not center.any():
            domain_exponent = min(domain.lp_exponent, 2.0)
        exponent = domain_exponent if self.p is None else float(self.p)
        if exponent < 2.0 and exponent != domain_exponent:
            remedy = "Mirror steps are taken on l_p balls about 0 only."
            check.fail("domain", f"Ball(radius, p={exponent:g})", domain, remedy)
        if dim == 1:  # where all norms coincide, and errors of estimates just add
            exponent = 2.0
        space = geometry(exponent, dim, self.noise)
        # The largest distance from the center, in the norm of the steps.
        radius = float(domain.max_norm(exponent, center, dim))
        diameter = 2.0 * radius
        beta = self.smoothness
        if beta is None:
            beta = smoothness(facts, exponent)
        return TruncatedScales(
            num_records=facts.num_records,
            space=space,
            radius=radius,
            diameter=diameter,
            smoothness=beta,
            # The gradient at the minimizer, plus beta times the largest distance from
            # it.
            slope=self.optimal_slope + beta * diameter,
            moment=self._moment(facts, exponent),
            lipschitz=facts.lipschitz_or_inf(exponent),
            noise_bound=facts.lipschitz_or_inf(dual(space.noise_exponent)),
        )

    def _moment(self, facts: PublicFacts, p: float) -> float:
        """Return the given moment, or the one that the Lipschitz constant implies.

        E|g - E g|_2^2 <= L^2; in other norms |g - E g| <= 2 L.
        """
        if self.moment is not None:
            return self.moment
        bound = facts.lipschitz_or_inf(p)
        if math.isinf(bound):
            remedy = "Pass moment=..., a public bound of the gradients' deviation."
            check.fail("moment", "given without a Lipschitz constant", "None", remedy)
        return bound if dual(p) == 2.0 else 2.0 * bound

    def _schedule(
        self, scales: TruncatedScales, budget: Budget | None
    ) -> TruncatedSchedule:
        """Return the best schedule with the options of the user."""
        return best_schedule(
            scales,
            budget,
            self.scheme,
            num_steps=self.num_steps,
            threshold=self.threshold,
            step_size=self.step_size,
        )

    def _printed_recipe(
        self, facts: PublicFacts, budget: Budget | None, scales: TruncatedScales
    ) -> Recipe:
        """Return Algorithm 4 with the schedule of Theorem 10, and its true privacy."""
        if self.scheme != "shuffle" or scales.is_euclidean:
            remedy = "Algorithm 4 shuffles, on an l_p ball about 0 with p < 2."
            check.fail("calibration", "'exact' here", "'paper'", remedy)
        printed = printed_truncated(
            facts,
            budget,
            p=dual(scales.space.q),
            radius=scales.radius,
            beta=scales.smoothness,
            num_steps=self.num_steps,
        )
        steps, size = printed.num_steps, printed.step_size
        plan = TruncatedSchedule("shuffle", steps, printed.threshold, size, math.inf)
        slices = Slices(size=facts.num_records // steps, is_shuffled=True)
        scales = scales._replace(space=printed.space)
        loop = loop_of(scales, plan, slices, printed.noise)
        return Recipe(
            phases=(loop,),
            event=printed.event,
            inputs=inputs_of(plan) | {"noise_scale": float(printed.noise.sigma)},
            kind="truncated/shuffle/generalized_gaussian",
        )
