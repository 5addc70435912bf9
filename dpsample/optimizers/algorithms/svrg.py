r"""Projected SVRG for a regularized risk, released by output perturbation.

The regularized risk :math:`\min_{w \in W} F(w) + \lambda |w - c|^2`, where W is the
domain and c its center, is minimized to a certified accuracy a. SVRG is by Johnson and
Zhang (2013), and its private form is Theorem 5.8 of Bassily, Feldman, Talwar and
Thakurta (2019). The minimizers of neighbors are at most :math:`L/(n\lambda)` apart
(Chaudhuri, Monteleoni and Sarwate 2011).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpsample.core import check
from dpsample.domains import WholeSpace
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.iterate_errors import has_error_bound
from dpsample.optimizers.loop.noisy_descent import RISKS
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Minimization,
    Optimizer,
    Recipe,
    refuse_paper,
)
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.optimizers.loop.tilted import TiltScales, tilt_scales
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.certificates.terms import Risk
from dpsample.privacy.curves.additive import round_up
from dpsample.privacy.curves.objective_perturbation import (
    minimizer_error,
    minimizer_sensitivity,
)
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class SVRG(Optimizer):
    r"""Regularized risk minimization by SVRG, with noise on the result.

    Epochs of 100 (beta + 2 lambda)/(2 lambda) stochastic steps run until the gap is
    certified. Privacy rests on this certificate, because the theorem's bound of the
    *mean* gap is not enough (entry BFTT-10 of docs/errata.md). Without a budget this is
    the plain solver. With one, the output is :math:`P(w + N(0, s^2 I / t^2))`, where P
    projects on the domain, t is the budget's gdp and s the sensitivity
    :math:`\frac{L}{n\lambda} + 2\sqrt{a/\lambda}` of the certified point. The mean
    excess risk is at most

    .. math:: \lambda M^2 + \frac{L^2}{n\lambda} + L \Bigl(\sqrt{a/\lambda} +
       \min\{\sqrt d\, s/t, \sqrt{W s/t}\}\Bigr),

    where M is the domain's radius about c. (In this bound W is its Gaussian width.)
    `ObjectivePerturbation` has less noise.

    Parameters
    ----------
    ridge : float, optional
        lambda > 0. The default balances the first terms of the bound and the noise.
    gap : float, optional
        a > 0. The default is for an error of 0.5 % of the distance by which one record
        can move the minimizer.
    risk : {"population", "empirical"}
        Which bound lambda balances. The empirical one has no term L^2/(n lambda).

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth, the
        loss has no Lipschitz constant, or the domain is unbounded (without ``ridge``).

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the loss is a convex function of the margin and its declared bounds hold for every
    possible record. No noise is published for it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> recipe = SVRG(ridge=0.1).recipe(problem.facts, None)
    >>> recipe.phases[0].solver, f"{recipe.inputs['risk_bound']:.4f}"
    ('svrg', '0.1201')
    """

    ridge: float | None = None
    gap: float | None = None
    risk: Risk = "population"
    name: ClassVar[str] = "svrg"

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._check_given("ridge", "gap")
        check.one_of(RISKS, risk=self.risk)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one certified minimization."""
        if budget is not None:
            refuse_paper(calibration, "No noise is printed for SVRG on its own.")
        scales = tilt_scales(facts, risk=self.risk)
        ridge = self._ridge(scales, budget)
        # lambda |w - c|^2 is 2 lambda-strongly convex. Replacing a record moves the
        # minimizer by at most 2 L/(n m).
        m = 2.0 * ridge
        sensitivity = 2.0 * scales.lipschitz / (facts.num_records * m)
        # Default error of the solver, in units of what one record can move the
        # minimizer.
        gap = self.gap or 0.5 * m * (0.005 * sensitivity) ** 2
        stddev, event = 0.0, None
        if budget is not None:
            sensitivity = minimizer_sensitivity(
                facts, strong_convexity=m, relation=budget.relation, gap=gap
            )
            stddev, event = (
                round_up(sensitivity / gdp_of(budget)),
                GaussianEvent(gdp_of(budget)),
            )
        inputs: dict[str, float | int | str] = {
            "lipschitz": scales.lipschitz,
            "smoothness": scales.smoothness,
            "ridge": ridge,
            "gap": gap,
            "output_stddev": stddev,
        }
        phase = Minimization(
            ridge=m,
            smoothness=scales.smoothness,
            gap=gap,
            estimator=Mean(lipschitz=scales.lipschitz),
            is_anchored=True,
            output_stddev=stddev,
            solver="svrg",
        )
        # The certified point's own distance from the minimizer.
        error = minimizer_error(strong_convexity=m, gap=gap)
        bound = scales.risk(ridge, 0.0) + scales.release_cost(error, stddev)
        if math.isfinite(bound):
            inputs["risk_bound"] = bound
        kind = "svrg"
        if budget is not None and has_error_bound(facts, phase):
            phase = replace(phase, output_gdp=gdp_of(budget))
            kind = "svrg/rounded"
        return Recipe(phases=(phase,), event=event, inputs=inputs, kind=kind)

    def _ridge(self, scales: TiltScales, budget: Budget | None) -> float:
        """Return lambda: given, or the minimizer of lambda M^2 + (...)/lambda."""
        if self.ridge is not None:
            return float(self.ridge)
        # Stability costs L^2/(n lambda), and the noise L times its length, which also
        # falls like 1/lambda. The bias grows like lambda M^2.
        n, total = scales.num_records, 0.0
        if math.isinf(scales.radius):
            check.fail("domain", "bounded", WholeSpace(), "Or pass the ridge.")
        if scales.is_population:
            total += 1.0 / n
        if budget is not None:
            # The noise is about shift L sqrt(d) / (n lambda gdp) long, and costs L
            # times that.
            shift = 0.5 * SHIFTS[budget.relation]
            total += shift * math.sqrt(scales.dim) / (n * gdp_of(budget))
        if total == 0.0:
            remedy = "Without noise the empirical risk wants none."
            check.fail("ridge", "given without a budget", "None", remedy)
        # lambda M^2 + L^2 total / lambda is smallest here.
        return scales.lipschitz / scales.radius * math.sqrt(total)
