r"""Objective perturbation: minimize a randomly tilted, regularized risk.

The minimizer is :math:`\hat w = \arg\min_{w \in W} F(w) + \frac1n \langle G, w\rangle +
\lambda |w - c|^2`, where W is the domain and c its center. The random vector G, the
*tilt*, is :math:`N(0, \sigma^2 I)`, or it has a density proportional to
:math:`e^{-|G|/s}`, which needs no delta. These are Algorithms 2 and 3 of Bassily,
Feldman, Talwar and Thakurta (2019), and Algorithms 1 and 2 of Su, Zhao and Wang (2023).
Codes such as gradient-E6 are entries of docs/errata.md.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dpsample.core import check
from dpsample.optimizers.loop.iterate_errors import has_error_bound
from dpsample.optimizers.loop.noisy_descent import RISKS
from dpsample.optimizers.loop.norm_tilt import norm_tilt_recipe
from dpsample.optimizers.loop.optimizer import Calibration, Optimizer, Recipe
from dpsample.optimizers.loop.tilted import (
    Tilt,
    TiltScales,
    proved_tilt,
    tilt_event,
    tilt_scales,
)
from dpsample.optimizers.printed import (
    PAPERS,
    Paper,
    bassily,
    printed_tilt,
)
from dpsample.privacy.accounting.events import ApproximateEvent, Event
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.certificates.terms import Risk
from dpsample.privacy.curves.objective_perturbation import minimizer_error
from dpsample.problem.facts import PublicFacts

Solver = Literal["accelerated", "svrg"]
# Part of epsilon and delta for the tilt. The rest is for the noise of the output, which
# hides the distance of the computed point from the minimizer.
TILT_SHARE = 0.99


def recipe_of(
    facts: PublicFacts,
    scales: TiltScales,
    tilt: Tilt,
    event: Event | None,
    *,
    solver: Solver = "accelerated",
    kind: str = "objective",
) -> Recipe:
    """Return the recipe of one tilted minimization."""
    phase = tilt.phase(scales, solver)
    # With a bound of rounding errors the certificate also covers floating point.
    if (
        kind == "objective"
        and tilt.output_stddev > 0.0
        and has_error_bound(facts, phase)
    ):
        # Points on two neighbors are each within ``error`` of their own minimizer.
        error = minimizer_error(strong_convexity=phase.ridge, gap=tilt.gap)
        phase = replace(phase, output_gdp=2.0 * error / tilt.output_stddev)
        kind = "objective/rounded"
    return Recipe(
        phases=(phase,),
        event=event,
        inputs=tilt.inputs(scales),
        kind=kind,
    )


def _spent(budget: Budget | None) -> Event | None:
    """Return the event of the whole budget, to which the two parts add up."""
    if budget is None:
        return None
    return ApproximateEvent(epsilon=budget.epsilon, delta=budget.delta)


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Optimizer):
    r"""Objective perturbation, with all but a hundredth of the budget in the tilt.

    It is for A_ObjP of Bassily et al. (2019), Algorithm 2.

    Algorithm 2 of Bassily et al. (arXiv:1908.09970) is about an exact minimizer. No
    computed point is one. However accurate one is, its distribution may be far from
    that of the minimizer. So Algorithm 3 is used. The solver certifies its accuracy,
    and noise of 1 % of the budget is added to its point. Noise and accuracy are such
    that together they cost 1 % of

    .. math:: E F(\hat w) - F^* \le \lambda M^2 + \frac{1}{\lambda}
       \Bigl(\frac{d\sigma^2}{4n^2} + \frac{L^2}n\Bigr),

    where M is the radius about the center. The middle term is sigma W/n if that is
    less, where W is the domain's Gaussian width. lambda minimizes this bound, in which
    sigma depends on lambda.

    Parameters
    ----------
    ridge : float, optional
        lambda. The default minimizes the bound.
    risk : {"population", "empirical"}
        Which bound lambda minimizes. The empirical one has no term L^2/n.
    tilt : {"gaussian", "norm"}, optional
        Distribution of G. "norm" has the density :math:`\propto e^{-|G|/s}`, and its
        privacy is pure: delta = 0 (`dpsample.privacy.curves.norm_tilt` has the proof).
        In few dimensions it moves the minimizer less than a Gaussian: to first order
        the excess risk is (d + 1) (t/epsilon)^2 times as large, where t is the budget's
        Gaussian-DP parameter. By default G is Gaussian, unless the budget's delta is 0.

    Raises
    ------
    ValueError
        If a number is out of its range. In `recipe`, if the loss is not smooth or has
        no Lipschitz constant, lambda is too small for the budget, or the domain is
        unbounded (without ``ridge``). With a pure budget, if the tilt is Gaussian or
        the calibration is "paper".

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the loss is a convex function of the margin and its declared bounds hold for every
    possible record. With the tilt "norm" it is epsilon-DP, and the certificate says
    delta = 0, whatever delta the budget has. "paper" runs Algorithm 2 with its
    published ridge and noise, of which nothing is proved.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = ObjectivePerturbation().recipe(problem.facts, budget)
    >>> f"{recipe.inputs['risk_bound']:.4f}"
    '0.0458'
    >>> pure = dps.minimize(problem, ObjectivePerturbation(), dps.Budget(
    ...     epsilon=1.0, delta=0.0), seed=1)
    >>> pure.certificate.statement[:25], pure.certificate.event
    ('1-DP (pure) under replace', PureEvent(epsilon=1.0))
    """

    ridge: float | None = None
    risk: Risk = "population"
    tilt: Literal["gaussian", "norm"] | None = None
    name: ClassVar[str] = "objective_perturbation"
    can_be_pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._check_given("ridge")
        check.one_of(RISKS, risk=self.risk)
        if self.tilt is not None:
            check.one_of(("gaussian", "norm"), tilt=self.tilt)

    @property
    def described_fields(self) -> tuple[str, ...]:
        """Names of the options in certificates and in ``repr``.

        Older certificates have no choice of the tilt.
        """
        return ("ridge", "risk") + ("tilt",) * (self.tilt is not None)

    def __repr__(self) -> str:
        """Return the call, without a tilt that was not chosen."""
        names = self.described_fields
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({arguments})"

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one certified minimization."""
        # Public numbers of the problem: radius, Lipschitz constant, smoothness and
        # width.
        scales = tilt_scales(facts, risk=self.risk)
        is_norm = self.tilt == "norm"
        if budget is not None and budget.is_pure:
            # A pure budget needs the tilt "norm", unless the user asked for the other
            # one.
            is_norm = self.tilt != "gaussian"
        if calibration == "paper" or not is_norm:
            noise = "a published" if calibration == "paper" else "a Gaussian"
            check_not_pure(budget, f"{noise} tilt")
        elif budget is not None:
            return norm_tilt_recipe(facts, scales, budget, self.ridge)
        if calibration == "paper" and budget is not None:
            tilt = bassily(scales, budget, is_exact=True)
            # No event is proved for the published algorithm, which needs an exact
            # minimizer.
            return recipe_of(facts, scales, tilt, None, kind="objective/inexact")
        tilt = proved_tilt(scales, budget, ridge=self.ridge, gap=None, share=TILT_SHARE)
        return recipe_of(facts, scales, tilt, _spent(budget))


@dataclass(frozen=True, kw_only=True)
class ApproximateObjectivePerturbation(Optimizer):
    r"""Objective perturbation with a solver of chosen accuracy, and a common convexity.

    It is A_ObjP-App of Bassily et al. (2019), Algorithm 3, and A_App-ObjP of Su, Zhao
    and Wang (2023), Algorithms 1 and 2.

    For the tilted risk J the solver certifies :math:`J(w) - \min J \le a` on every data
    set. So, given the exact minimizer, its points on two neighbors are at most :math:`2
    \sqrt{2a/m}` apart. Gaussian noise on the output of scale :math:`\sigma_2` hides
    that, and the result is projected on the domain. With ``strong_convexity`` Delta the
    risk is :math:`F(w) + \frac\Delta2 |w - c|^2`, and

    .. math:: m = 2\lambda + \Delta, \qquad
       \mathrm{risk} - \min \le \lambda M^2 + \min\Bigl\{\frac{d\sigma^2}{2 m n^2},
       \frac{\sigma W}n\Bigr\} + \frac{2 L^2}{m n} + L \Bigl(\sqrt{2a/m} +
       \min\bigl\{\sqrt d \sigma_2, \sqrt{\sigma_2 W}\bigr\}\Bigr)

    on average, where W is the domain's Gaussian width. Private mean estimation is the
    `Linear` loss with Delta = 1. Only a convexity that all records share counts,
    because that of a single record is lost when it is removed (gradient-E6).

    Parameters
    ----------
    strong_convexity : float
        Delta >= 0, in the l_2 norm.
    ridge : float, optional
        lambda >= 0, in addition to it. The default minimizes the bound.
    gap : float, optional
        a > 0. With the default, gap and noise cost 1 % of the bound.
    share : float
        Part of epsilon and delta for the tilt.
    solver : {"accelerated", "svrg"}
        Accelerated projected gradients, or projected SVRG.
    risk : {"population", "empirical"}
        Which bound lambda minimizes.
    printed : {"bassily", "su"}
        Paper with whose constants calibration "paper" computes.

    Raises
    ------
    ValueError
        As for `ObjectivePerturbation`.

    Guarantee
    ---------
    As for `ObjectivePerturbation`. "paper" takes ridge, gap and noise as published and
    states the epsilon that is proved for them, with half of delta for either part.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> method = ApproximateObjectivePerturbation(strong_convexity=0.1)
    >>> recipe = method.recipe(problem.facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> recipe.inputs["ridge"], f"{recipe.inputs['risk_bound']:.4f}"
    (0.0, '0.0104')
    """

    strong_convexity: float = 0.0
    ridge: float | None = None
    gap: float | None = None
    share: float = TILT_SHARE
    solver: Solver = "accelerated"
    risk: Risk = "population"
    printed: Paper = "bassily"
    name: ClassVar[str] = "approximate_objective_perturbation"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.non_negative(strong_convexity=self.strong_convexity)
        if self.ridge is not None:
            check.non_negative(ridge=self.ridge)
            if self.ridge + self.strong_convexity == 0.0:
                check.fail("ridge", "> 0 without strong_convexity", self.ridge)
        self._check_given("gap")
        check.open_interval(0.0, 1.0, share=self.share)
        check.one_of(("accelerated", "svrg"), solver=self.solver)
        check.one_of(RISKS, risk=self.risk)
        check.one_of(PAPERS, printed=self.printed)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one certified minimization."""
        scales = tilt_scales(
            facts, risk=self.risk, strong_convexity=self.strong_convexity
        )
        if calibration == "paper" and budget is not None:
            # The published noise may prove less than the budget. The event is proved.
            tilt = printed_tilt(scales, budget, facts.domain, self.printed)
            event: Event | None = tilt_event(scales, tilt, budget)
        else:
            tilt = proved_tilt(
                scales, budget, ridge=self.ridge, gap=self.gap, share=self.share
            )
            event = _spent(budget)
        return recipe_of(facts, scales, tilt, event, solver=self.solver)
