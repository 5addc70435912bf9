r"""Noisy gradient descent: Bassily, Feldman, Talwar and Thakurta (2019), Algorithm 1.

Steps are :math:`w_{t+1} = P(w_t - \eta (g_t + N(0, \sigma^2 I)))`, where g_t is a mean
gradient and P projects on the domain. The output is the average of w_1..w_T. `NoisyGD`
takes the gradients of all records, and `NoisySGD` of random batches. The paper draws
batches with replacement, but the proofs here are about Poisson samples. Plan and risk
bound are in `loop.noisy_descent`.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from dpsample.core import check
from dpsample.core.renamed import accept_former_names
from dpsample.losses import BUILT_IN, Custom, Loss
from dpsample.optimizers.loop.decaying import (
    decay,
    decaying_step_of,
    enough_decaying_steps,
    last_iterate_bound,
)
from dpsample.optimizers.loop.estimators import ClippedMean, Estimator, Mean
from dpsample.optimizers.loop.last_iterate import check_smooth, last_iterate_recipe
from dpsample.optimizers.loop.mean_label import with_mean_label
from dpsample.optimizers.loop.noisy_descent import (
    BatchedDescent,
    DescentPlan,
    DescentScales,
    NoisyDescent,
    Scheme,
    best_step,
    printed_rate,
    printed_smoothness,
    public_ridge,
    recipe_of,
    scales_of,
)
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Loop,
    Recipe,
    refuse_paper,
)
from dpsample.optimizers.loop.scaled import STAGE
from dpsample.optimizers.loop.steps import GradientStep, ScaledStep, Step
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness_or_inf

Output = Literal["average", "tail", "scaled", "decaying", "last"]
OUTPUTS = ("average", "tail", "scaled", "decaying", "last")
# Options that not every output uses. They are None for the others.
OUTPUTS_OF_OPTION = {
    "tail_share": ("tail",),
    "ridge": ("last",),
    "boundary_loss": ("scaled",),
    "label_share": ("scaled", "decaying"),
    "choice_share": ("decaying",),
}
# A scaled descent needs a step in its first stage and one in its last stage.
MIN_SCALED_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class ProjectedDescent(NoisyDescent):
    """Base of noisy gradient descent with a clip, whichever records a step reads."""

    clip: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._check_given("clip")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop of noisy gradient steps."""
        scales, estimator = self._scales_and_estimator(facts, budget)
        is_clipped = isinstance(estimator, ClippedMean)
        plan = self.plan(scales, budget, calibration)
        size = self._step_size(scales, plan, budget, calibration)
        loop = self.loop(plan, facts.num_records, size, estimator)
        bound = math.inf if is_clipped else plan.bound(scales, size)
        inputs: dict[str, float | int | str] = {
            "lipschitz": scales.lipschitz,
            "step_size": size,
        }
        is_stated = self._is_printed(scales, budget, plan.scheme) and not is_clipped
        if calibration == "paper" and budget is not None and is_stated:
            unit = scales.radius * scales.lipschitz
            # The paper's beta is half of the usual one (BFTT-1).
            if 0.5 * scales.smoothness <= printed_smoothness(scales, budget):
                stated = 10.0 * unit * printed_rate(scales, budget)
                inputs["printed_risk_bound"] = stated
        return recipe_of(plan, loop, inputs, bound)

    def _scales_and_estimator(
        self, facts: PublicFacts, budget: Budget | None
    ) -> tuple[DescentScales, Estimator]:
        """Return the public numbers, and the estimator of the mean gradient.

        Nothing is clipped if the threshold is not below the Lipschitz constant.
        """
        clip, lipschitz = self.clip or math.inf, facts.lipschitz_or_inf(2.0)
        is_clipped = clip < lipschitz
        if is_clipped:
            lipschitz = clip
        elif budget is not None or self.step_size is None:
            lipschitz = facts.lipschitz(2.0)  # raises if there is no constant
        scales = scales_of(
            facts,
            lipschitz=lipschitz,
            smoothness=smoothness_or_inf(facts),
            risk=self.risk,
        )
        if is_clipped:
            return scales, ClippedMean(threshold=scales.lipschitz)
        return scales, Mean(lipschitz=scales.lipschitz)

    def _step_size(
        self,
        scales: DescentScales,
        plan: DescentPlan,
        budget: Budget | None,
        calibration: Calibration,
    ) -> float:
        """Return eta: given, published, or the minimizer of the bound."""
        del budget  # only the override for the tail reads it
        if self.step_size is not None:
            return float(self.step_size)
        if calibration == "paper" and plan.noise is not None:
            return best_step(scales, plan.num_steps, scales.lipschitz**2)
        # The bound for Lipschitz losses has this minimizer. On fresh records it needs a
        # step of at most 2/beta. The bound for smooth losses has another minimizer, and
        # the better one is chosen.
        size = best_step(scales, plan.num_steps, plan.slope(scales))
        if scales.is_population and 0.0 < scales.smoothness < math.inf:
            size = min(size, 2.0 / scales.smoothness)
        smooth = plan.smooth_step(scales)
        if not 0.0 < smooth < math.inf:
            return size
        return min(size, smooth, key=lambda eta: plan.bound(scales, eta))


@accept_former_names(wall_loss="boundary_loss")
@dataclass(frozen=True, kw_only=True)
class NoisyGD(ProjectedDescent):
    r"""Noisy projected gradient descent on all records.

    This is Algorithm 1 of Bassily et al. (arXiv:1908.09970) with full batches. Its T
    steps have the noise :math:`\sigma = 2 L \sqrt T / (n t)`, where t is the budget's
    gdp, for any epsilon, delta and T. With M the domain's radius about the start,

    .. math:: F(\bar w) - F^* \le M L \sqrt{(1 + \tfrac1T)
       \bigl(\tfrac1T + \tfrac2n + \tfrac{4d}{n^2 t^2}\bigr)}

    on average if the step :math:`\eta = M / \sqrt{(T + 1) (L^2 + d \sigma^2 + 2 L^2
    T / n)}` is at most 2/beta, and for beta-smooth losses

    .. math:: F(\bar w) - F^* \le \frac{\beta M^2}{2 T} + M L \sqrt{
       (1 + \tfrac1T) \tfrac2n + \tfrac{4d}{n^2 t^2}}

    if :math:`\eta^{-1} = \beta + \sqrt{T (d \sigma^2 + 2 L^2 (T + 1)/n)} / M`. The
    empirical risk needs no term with 2/n, and the first bound no smoothness.

    The minimizers of these bounds are short steps. With ``output="tail"`` few long
    steps are taken, and the last half of the iterates is averaged. The noise averages
    out (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992), and the early iterates,
    which depend on the start, are left out (Jain, Kakade, Kidambi, Netrapalli and
    Sidford, JMLR 18, 2018). The total length of the steps is

    .. math:: \eta T = \bigl(2 m_0 \max(m_0, \beta/400)\bigr)^{-1/2}, \qquad
       m_0 = \frac{2 L \sqrt d}{n t M},

    with L instead of 2 L if records are zeroed out. Descent of this length regularizes
    like a ridge of its inverse. T is the larger of 100 and :math:`\eta T \beta/2`, so
    that steps are at most 2/beta and stable. The sum of all noise has length
    :math:`\eta \sigma \sqrt{T d} = \eta T m_0 M`, and does not leave the domain. As
    :math:`\sigma` grows like the root of T, more and shorter steps change little. This
    is a rule, not a theorem, and the risk has no bound. Averages cost no privacy,
    because every step is noisy.

    With ``output="scaled"`` the noisy gradients determine the length of the steps.
    Three times, after a quarter and half of the steps and at the end, the point's
    distance from the start and the length of the steps are multiplied by a factor that
    is estimated from noisy gradients, which costs no privacy
    (`dpsample.optimizers.loop.scaled`). The first steps are those of the tail, and all
    are at most 2/beta. T is the larger of 100 and :math:`\eta T \beta`, and the last
    half of the iterates is averaged. This is a rule, too. If a stage would leave the
    domain by half of its distance or more, later stages use the gradients of
    ``boundary_loss``, if there is one. They must not be longer, so that the noise is
    enough for both.

    With ``output="decaying"`` the last iterate is the answer, of steps that decay to 0
    like :math:`(1 - t/T)^2`. It is for losses that are not differentiable everywhere,
    such as hinge, absolute and quantile losses. The sizes follow the noisy gradients,
    which costs no privacy (`dpsample.optimizers.loop.decaying`). This is a rule without
    a risk bound. With a ``step_size`` steps have the fixed sizes :math:`\eta (1 -
    t/T)^2`, and the empirical risk of the last iterate has a proved bound.

    With ``output="last"`` only the last iterate is released, of steps on a smooth loss
    with a ridge, :math:`F(w) + \frac\lambda2 |w - c|^2`, c the domain's center. By
    shifted interpolation (Bok, Su and Altschuler, arXiv:2403.00278, proved in
    `dpsample.privacy.curves.last_iterate`) the noise of

    .. math:: T' = \frac{1 - q^T}{1 + q^T}\, \frac{1 + q}{1 - q}, \qquad
       q = \max(|1 - \eta\lambda|, |1 - \eta(\beta + \lambda)|)

    steps is enough for T of them. So long runs need no more noise. Nevertheless a tail
    of T' steps is mostly more accurate (docs/optimizers.md).

    Parameters
    ----------
    num_steps : int, optional
        T, for a scaled descent at least 2. By default the tail and the scaled descent
        have the T of the rules above, a decaying one has 1000 to 4000, and the last
        iterate has :math:`3/(\eta\lambda)`, rounded up. The average has min(n/2, n^2
        t^2/(4 d)), rounded up and at least 10.
        For smooth losses it has :math:`10 \beta M / (L \sqrt{2/n + 4d/(n^2 t^2)})` if
        this is less, which grows like the root of n. More steps hardly lower the bound
        and never raise it.
    step_size : float, optional
        eta. By default the average has the step of the smaller bound, the tail and the
        scaled descent have the longest step of the rules above, and the last iterate
        has :math:`1/(\beta + \lambda)`. For a decaying descent it is the first of fixed
        sizes, and by default the sizes follow the gradients.
    risk : {"population", "empirical"}
        Which bound the step minimizes.
    clip : float, optional
        Gradients are scaled down to this length, which then takes the place of L. It is
        for losses without a Lipschitz constant, and their risk has no bound.
    output : {"average", "tail", "scaled", "decaying", "last"}
        Mean of all iterates, mean of the last ones, mean of the last ones of steps that
        are scaled on the way, the last of steps that decay, or the last iterate.
    tail_share : float, optional
        Share of the iterates in the tail, rounded up to whole ones. The default is
        half.
    ridge : float, optional
        lambda >= 0 of the last iterate. The default is the inverse of the tail's total
        length.
    boundary_loss : Loss, optional
        Smooth loss of the package for later stages of a scaled descent that would leave
        the domain. Steps stay at most 2/beta, beta of the problem's loss.
    label_share : float, optional
        Share of the square of the budget's gdp that buys a noisy mean label, with which
        a scaled or decaying descent on a problem with an intercept starts
        (`dpsample.optimizers.loop.mean_label`). It helps where one label is rare.
    choice_share : float, optional
        Share of it that buys a noisy comparison of the last iterate with that start.
        The start is the answer unless descent has made it clearly better.

    Raises
    ------
    ValueError
        If a number is out of its range. In `recipe`, if the loss has no Lipschitz
        constant or the domain is unbounded (without ``step_size``). For the tail and
        the scaled descent also if the loss is not smooth (for the tail without
        ``step_size``) or the calibration is "paper". For the scaled descent also if
        ``boundary_loss`` is the user's own, is not smooth, is steeper than the
        problem's loss or is for other responses, or if there is a ``label_share`` and
        the loss is not for labels, the problem has no intercept or offsets, the domain
        is not about 0, gradients are clipped, or decaying steps have a given size. For
        the last iterate also if the loss
        is not smooth or not built in, if the step is longer than :math:`2/(\beta +
        \lambda)`, or if there are more than a million steps.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the declared bounds hold for every possible record. With "paper" the noise is the
    published one, and the guarantee states the epsilon that is proved for it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = NoisyGD().recipe(problem.facts, budget)
    >>> recipe.phases[0].num_steps, f"{recipe.inputs['risk_bound']:.3f}"
    (78, '0.033')
    >>> recipe = NoisyGD(output="tail").recipe(problem.facts, budget)
    >>> recipe.inputs["averaged_steps"], f"{recipe.inputs['step_size']:.3f}"
    (50, '0.966')
    >>> hinge = problem.with_model(dps.losses.Hinge(), problem.domain)
    >>> recipe = NoisyGD(output="decaying").recipe(hinge.facts, budget)
    >>> recipe.inputs["num_steps"], f"{recipe.inputs['first_distance']:.3f}"
    (2335, '0.100')
    >>> last = NoisyGD(output="last", num_steps=1000).recipe(problem.facts, budget)
    >>> f"{last.inputs['effective_steps']:.1f}"
    '49.3'
    """

    output: Output = "average"
    tail_share: float | None = None
    ridge: float | None = None
    boundary_loss: Loss | None = None
    label_share: float | None = None
    choice_share: float | None = None
    name: ClassVar[str] = "noisy_gd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.one_of(OUTPUTS, output=self.output)
        if self.tail_share is not None:
            check.positive(tail_share=self.tail_share)
            if self.tail_share > 1.0:
                check.fail("tail_share", "<= 1", self.tail_share)
        if self.ridge is not None:
            check.non_negative(ridge=self.ridge)
        if self.boundary_loss is not None:
            check.instance(Loss, boundary_loss=self.boundary_loss)
        if self.label_share is not None:
            check.open_interval(0.0, 1.0, label_share=self.label_share)
        if self.choice_share is not None:
            check.open_interval(0.0, 1.0, choice_share=self.choice_share)
            if self.label_share is None:
                condition = "None without a label_share"
                check.fail("choice_share", condition, self.choice_share)
        for name, outputs in OUTPUTS_OF_OPTION.items():
            value = getattr(self, name)
            if value is not None and self.output not in outputs:
                remedy = f"Pass output={outputs[0]!r}."
                check.fail(name, f"None for output={self.output!r}", value, remedy)

    @property
    def described_fields(self) -> list[str]:
        """Names of the options in certificates and in ``repr``.

        Options of other outputs are left out, so that a new output does not change
        older certificates.
        """
        names = [
            field.name
            for field in fields(self)
            if self.output in OUTPUTS_OF_OPTION.get(field.name, OUTPUTS)
        ]
        if self.output == "average":
            names.remove("output")
        for name in ("boundary_loss", "label_share", "choice_share"):
            if getattr(self, name) is None and name in names:
                names.remove(name)
        return names

    def __repr__(self) -> str:
        """Return the call, without the options of other outputs."""
        names = self.described_fields
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({arguments})"

    def plan(
        self, scales: DescentScales, budget: Budget | None, calibration: Calibration
    ) -> DescentPlan:
        """Return the number of steps, enough for a stable tail, and their noise."""
        if self.output == "decaying" and self.num_steps is None:
            count = enough_decaying_steps(scales, budget)
            return replace(self, num_steps=count).plan(scales, budget, calibration)
        if self.output in ("tail", "scaled") and self.num_steps is None:
            # Default number of steps of the outputs "tail" and "scaled". A plan takes
            # more if its steps would be too long to be stable.
            count, beta = 100, scales.smoothness
            if self.step_size is None and budget is not None and beta < math.inf:
                longest = 2.0 if self.output == "scaled" else 1.0  # times the rule's
                stable = 0.5 * longest * beta / public_ridge(scales, budget)
                count = max(count, math.ceil(stable))
            fixed = replace(self, num_steps=count)
            return fixed.plan(scales, budget, calibration)
        return super().plan(scales, budget, calibration)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return one loop, or two for a tail, the second of which is averaged."""
        if self.output == "average":
            return super()._recipe(facts, budget, calibration)
        refuse_paper(calibration, "No noise is printed for a tail or a last iterate.")
        if self.output == "last":
            return self._last(facts, budget)
        if self.output == "decaying":
            return self._decaying(facts, budget)
        recipe = super()._recipe(facts, budget, calibration)
        (loop,) = recipe.phases
        assert isinstance(loop, Loop)
        if self.output == "scaled":
            recipe = self._scaled_recipe(facts, recipe, loop)
            return self._with_label(facts, budget, recipe)
        # The first loop ends with its last iterate, from which the second one starts.
        count = math.ceil((self.tail_share or 0.5) * loop.num_steps)
        phases = [replace(loop, num_steps=count)]
        if count < loop.num_steps:
            early = loop.num_steps - count
            phases.insert(0, replace(loop, num_steps=early, weights=None))
        inputs = {"averaged_steps": count, **recipe.inputs}
        # The bound is for the mean of all iterates.
        inputs.pop("risk_bound", None)
        return replace(recipe, phases=tuple(phases), inputs=inputs)

    def _scaled_recipe(self, facts: PublicFacts, recipe: Recipe, loop: Loop) -> Recipe:
        """Return the loop in three stages, the last of which is averaged."""
        beta, total = smoothness_or_inf(facts), loop.num_steps
        if math.isinf(beta):
            check.fail("loss", "smooth for output='scaled'", facts.loss)
        if total < MIN_SCALED_STEPS:
            check.fail("num_steps", f">= {MIN_SCALED_STEPS}", total)
        if self.boundary_loss is not None:
            _check_boundary_loss(self.boundary_loss, facts)
        # The scale changes after a quarter and after half of the steps.
        first = max(1, total // 4)
        half = max(first, total // 2)
        size = float(recipe.inputs["step_size"])
        longest = max(2.0 / beta, size) if beta > 0.0 else math.inf
        phases = [
            replace(
                loop,
                num_steps=count,
                step=ScaledStep(
                    size,
                    stage=stage,
                    stddev=float(recipe.inputs.get("noise_stddev", 0.0)),
                    longest=longest,
                ),
                weights=loop.weights if stage == STAGE.last else None,
                keeps_anchor=stage != STAGE.first,
                boundary_loss=self.boundary_loss,
            )
            for stage, count in (
                (STAGE.first, first),
                (STAGE.middle, half - first),
                (STAGE.last, total - half),
            )
            if count
        ]
        inputs = {"averaged_steps": total - half, **recipe.inputs}
        inputs.pop("risk_bound", None)  # it is for the mean of all iterates
        return replace(recipe, phases=tuple(phases), inputs=inputs)

    def _decaying(self, facts: PublicFacts, budget: Budget | None) -> Recipe:
        """Return steps that decay to 0, whose last iterate is the answer."""
        scales, estimator = self._scales_and_estimator(facts, budget)
        plan = self.plan(scales, budget, "exact")
        inputs: dict[str, float | int | str] = {"lipschitz": scales.lipschitz}
        step: Step
        bound = math.inf
        if self.step_size is None:
            step = decaying_step_of(facts, scales, budget, plan.num_steps)
            # A certificate does not hold the functions of the user's own loss, so that
            # nobody could compute these numbers again.
            if not isinstance(facts.loss, Custom):
                inputs["longest_step"] = step.longest
                inputs["first_distance"] = step.first_distance
        else:
            sizes = float(self.step_size) * decay(plan.num_steps)
            step = GradientStep(sizes)
            inputs["step_size"] = float(self.step_size)
            # Clipping biases the gradients, and on fresh records no bound is proved.
            if isinstance(estimator, Mean) and not scales.is_population:
                square = scales.lipschitz**2 + scales.dim * plan.stddev**2
                bound = last_iterate_bound(sizes, square=square, radius=scales.radius)
        loop = self.loop(plan, facts.num_records, 1.0, estimator)
        loop = replace(loop, step=step, weights=None)
        recipe = recipe_of(plan, loop, inputs, bound)
        return self._with_label(facts, budget, recipe)

    def _with_label(
        self, facts: PublicFacts, budget: Budget | None, recipe: Recipe
    ) -> Recipe:
        """Return the recipe with the queries of labels and losses, if there are any."""
        if self.label_share is None:
            return recipe
        names = ("clip", "step_size") if self.output == "decaying" else ("clip",)
        for name in names:
            if getattr(self, name) is not None:
                check.fail(name, "None with label_share", getattr(self, name))
        shares = self.label_share, self.choice_share
        return with_mean_label(facts, budget, recipe, *shares)

    def _last(self, facts: PublicFacts, budget: Budget | None) -> Recipe:
        """Return steps on the loss plus a ridge, whose last iterate is released."""
        scales, estimator = self._scales_and_estimator(facts, budget)
        ridge, size, count = self.ridge, self.step_size, self.num_steps
        check_smooth(facts, scales)
        if ridge is None:
            ridge = 0.0 if budget is None else public_ridge(scales, budget)
        if size is None:
            if scales.smoothness + ridge == 0.0:
                condition = "given for a linear loss without a ridge"
                check.fail("step_size", condition, "None")
            size = 1.0 / (scales.smoothness + ridge)
        if count is None:
            if ridge == 0.0:
                check.fail("num_steps", "given without a ridge", "None")
            # num_steps * step_size * ridge of the last iterate. The weight of the start
            # is then at most e^-3.
            count = math.ceil(3.0 / (size * ridge))
        return last_iterate_recipe(
            facts,
            scales,
            budget,
            estimator=estimator,
            num_steps=count,
            step_size=size,
            ridge=ridge,
        )

    def _step_size(
        self,
        scales: DescentScales,
        plan: DescentPlan,
        budget: Budget | None,
        calibration: Calibration,
    ) -> float:
        """Return eta: given, of the smaller bound, or the longest of the rule."""
        if self.output == "average" or self.step_size is not None:
            return super()._step_size(scales, plan, budget, calibration)
        if math.isinf(scales.smoothness):
            remedy = "The tail's own step is for smooth losses: 2/beta at most."
            check.fail("step_size", "given for a non-smooth loss", "None", remedy)
        limits = [2.0 / scales.smoothness] if scales.smoothness > 0.0 else []
        if budget is not None:
            limits.append(1.0 / (plan.num_steps * public_ridge(scales, budget)))
        if not limits:
            remedy = "Without noise a linear loss has no longest step."
            check.fail("step_size", "given without a budget", "None", remedy)
        return min(limits)


def _check_boundary_loss(other: Loss, facts: PublicFacts) -> None:
    """Reject a loss of which a gradient might be longer, or have no meaning."""
    loss, at_boundary = facts.loss, replace(facts, loss=other)
    # Functions of the user might not be what they declare.
    if type(other) not in BUILT_IN.values():
        check.fail("boundary_loss", "one of the package", other)
    is_alike = other.is_classification == loss.is_classification
    if not loss.has_margin or not is_alike:
        check.fail("boundary_loss", f"of margins and responses as {loss!r}", other)
    if not loss.is_classification and facts.response_bound is None:
        check.fail("response_bound", "declared beside boundary_loss", None)
    # The noise is calibrated to the slopes of the problem's own loss.
    if not at_boundary.slope_bound <= facts.slope_bound:
        check.fail("boundary_loss", f"at most as steep as {loss!r}", other)
    if math.isinf(smoothness_or_inf(at_boundary)):
        check.fail("boundary_loss", "smooth", other)


@dataclass(frozen=True, kw_only=True)
class NoisySGD(BatchedDescent, ProjectedDescent):
    r"""Noisy projected gradient descent on random batches, the average of its iterates.

    It is A_NSGD of Bassily et al. (2019), Algorithm 1, with Poisson samples.

    Each step of `NoisyGD` reads a Poisson sample of the records. Its mean size is m,
    and sums are divided by m, not by the actual size. T steps read m T records instead
    of n T. The noise is larger, and is computed from privacy loss distributions. For
    the bound of the empirical risk the variance of a batch mean, at most :math:`L^2 (1
    - m/n)/m`, is added to that of the noise. For the population risk there is no bound.

    Parameters
    ----------
    num_steps : int, optional
        T. The default is min(n/2, n^2 t^2/(4 d)), rounded up and at least 10, where t
        is the budget's gdp.
    step_size, risk, clip
        As for `NoisyGD`.
    batches : {"poisson", "with_replacement"}, optional
        The default is "poisson", or with calibration "paper" "with_replacement" as
        published, for which nothing is proved.
    batch_size : int, optional
        m. The default is the printed :math:`n \sqrt{\epsilon / 4T}`, at most half of
        the records. Without a budget there is none.

    Raises
    ------
    ValueError
        If a number is out of its range. In `recipe`, as for `NoisyGD`, or if batches
        are drawn with replacement and calibration is "exact".

    Guarantee
    ---------
    As for `NoisyGD`. For batches drawn with replacement nothing is proved. The
    published claim is false for few steps (entry BFTT-4 of docs/errata.md).

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = NoisySGD(num_steps=100).recipe(problem.facts, budget)
    >>> recipe.inputs["batches"], recipe.inputs["batch_size"]
    ('poisson', 100)
    """

    name: ClassVar[str] = "noisy_sgd"
    schemes: ClassVar[tuple[Scheme, ...]] = ("poisson", "with_replacement")

    def size_of_batch(self, scheme: Scheme, n: int, printed: int | None) -> int:
        """Return the given size, or the published one up to n/2."""
        # Larger Poisson samples are hardly better than all records.
        size = super().size_of_batch(scheme, n, printed)
        return size if self.batch_size is not None else min(size, max(1, n // 2))
