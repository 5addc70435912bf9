r"""Noisy gradient descent on Moreau envelopes: Bassily et al. (2019), Section 4.

The envelope :math:`f_\lambda(w) = \min_v f(v) + \frac\lambda2 |w - v|^2` is
lambda-smooth, has the Lipschitz constant L of f and is at most :math:`L^2 / 2\lambda`
below f. (The paper has twice that constant, entry BFTT-5 of docs/errata.md.) For losses
of a linear margin its gradient is found from one scalar equation.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.noisy_descent import (
    BatchedDescent,
    DescentPlan,
    DescentScales,
    best_step,
    printed_rate,
    printed_smoothness,
    recipe_of,
    scales_of,
)
from dpsample.optimizers.loop.optimizer import Calibration, Recipe
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class ProxGD(BatchedDescent):
    r"""Noisy projected gradient descent on the Moreau envelopes of the losses.

    It is A_ProxGD of Bassily et al. (2019).

    It is for non-smooth losses (hinge, absolute, quantile), and is `NoisyGD` with each
    loss replaced by its envelope of strength lambda. Gradients of envelopes are no
    longer than those of the losses, so noise and privacy are those of `NoisyGD`. With M
    the domain's radius about the start, the mean excess risk is at most

    .. math:: \frac{M^2}{2 \eta T} + \frac\eta2 \Bigl(1 + \frac1T\Bigr) \Bigl(L^2 +
       d\sigma^2 + \frac{2 L^2 T}n\Bigr) + \frac{L^2}{2\lambda}

    for :math:`\lambda \le 2/\eta`. The bound of the empirical risk has no term 2 L^2
    T/n, and is for every lambda.

    Parameters
    ----------
    smoothing : float, optional
        lambda. The default is 2/eta, the largest stable one.
    num_steps, risk
        As for `NoisyGD`.
    step_size : float, optional
        eta. The default minimizes the bound.
    batches : {"full", "poisson", "with_replacement"}, optional
        The default is "full", or with calibration "paper" "with_replacement" as
        published, for which nothing is proved.
    batch_size : int, optional
        Size of random batches. The default is the printed :math:`n \sqrt{\epsilon /
        4T}`.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, as for `NoisySGD`.

    Guarantee
    ---------
    As for `NoisySGD`. The proximal point is found by bisection. However inexact it is,
    the slope stays within the loss's bound, which is enough for privacy.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Hinge(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = ProxGD().recipe(problem.facts, budget)
    >>> f"{recipe.inputs['risk_bound']:.3f}"
    '0.051'
    """

    smoothing: float | None = None
    name: ClassVar[str] = "prox_gd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._check_given("smoothing")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop of noisy gradient steps."""
        scales = scales_of(
            facts, lipschitz=facts.lipschitz(2.0), smoothness=math.inf, risk=self.risk
        )
        plan = self.plan(scales, budget, calibration)
        is_paper = calibration == "paper" and budget is not None
        smoothing = self.smoothing
        inputs: dict[str, float | int | str] = {}
        if is_paper and budget is not None and math.isfinite(scales.radius):
            if smoothing is None and self._is_printed(scales, budget, plan.scheme):
                # The printed bound is 24 M L times the rate (Theorem 4.4).
                scaled = 24.0 * scales.radius * scales.lipschitz
                scaled *= printed_rate(scales, budget)
                inputs["printed_risk_bound"] = scaled
            smoothing = smoothing or printed_smoothness(scales, budget)
        size = self._step_size(scales, plan, is_paper=is_paper)
        smoothing = smoothing or 2.0 / size
        scales = scales._replace(smoothness=smoothing)
        bound = plan.bound(scales, size) + 0.5 * scales.lipschitz**2 / smoothing
        inputs |= {
            "lipschitz": scales.lipschitz,
            "step_size": size,
            "smoothing": smoothing,
        }
        estimator = Mean(lipschitz=scales.lipschitz, smoothing=smoothing)
        loop = self.loop(plan, facts.num_records, size, estimator)
        return recipe_of(plan, loop, inputs, bound)

    def _step_size(
        self, scales: DescentScales, plan: DescentPlan, *, is_paper: bool
    ) -> float:
        """Return eta: given, published, or the minimizer of the bound."""
        if self.step_size is not None:
            return float(self.step_size)
        square = scales.lipschitz**2
        if is_paper:
            return best_step(scales, plan.num_steps, square)
        slope = plan.slope(scales)
        if self.smoothing is None:
            # With lambda = 2/eta the envelopes' term L^2/(2 lambda) is eta/2 L^2/2.
            return best_step(scales, plan.num_steps, slope + 0.5 * square)
        size = best_step(scales, plan.num_steps, slope)
        return min(size, 2.0 / self.smoothing) if scales.is_population else size
