r"""Private Frank-Wolfe for the lasso with clipped heavy-tailed records.

Hu, Ni, Xiao and Wang (2022), as the baseline HTP-LASSO of Xie et al. (2022), section 6:
every entry of the features and of the response is clipped to :math:`\pm K` once, and T
Frank-Wolfe steps on all records choose vertices of the l1 ball by the exponential
mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.losses import Squared
from dpsample.optimizers.calibrated import SHIFTS
from dpsample.optimizers.estimators import Mean
from dpsample.optimizers.heavy_tailed_frank_wolfe import (
    BELOW,
    l1_radius,
    vertex_bound,
    vertex_sizes,
)
from dpsample.optimizers.optimizer import Calibration, Optimizer, Recipe
from dpsample.optimizers.phase import Loop
from dpsample.optimizers.steps import FrankWolfeStep
from dpsample.privacy import rho_from_bounded_range, rho_from_budget
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import ConcentratedEvent

THEOREMS = (
    "exponential mechanism at epsilon_0 is epsilon_0^2/8-zCDP (Cesar and Rogers 2021)",
    "zCDP adds up over adaptive steps (Bun and Steinke 2016, Lemma 1.7)",
)


@dataclass(frozen=True, kw_only=True)
class HeavyTailedLasso(Optimizer):
    r"""Private Frank-Wolfe for least squares on an l1 ball about 0 (HTP-LASSO).

    Parameters
    ----------
    num_steps : int, optional
        T. Default: :math:`\lceil (n \epsilon)^{2/5} \rceil`.
    entry_bound : float, optional
        K. Default: :math:`(n \epsilon)^{1/4}/T^{1/8}`.

    Raises
    ------
    ValueError
        If a number is out of its range, the loss is not `Squared`, or the domain is
        not an l1 ball about 0.

    Notes
    -----
    Without a budget the defaults are those of epsilon = 1, and the vertex is the best
    one. A clipped record moves a score :math:`-\langle v, \nabla F\rangle` by at most
    :math:`R (1 + R) K^2/n`, twice that if it is replaced. With rho from the budget each
    step has :math:`\epsilon_0 = \sqrt{8 \rho/T}`, 4 to 5 times the printed
    :math:`\epsilon/(2 \sqrt{2 T \log(1/\delta)})` of calibration "paper".

    **Guarantee.** (epsilon, delta)-DP under the budget's relation, for any records.
    ``risk_bound`` of the recipe bounds the mean excess of the empirical risk of the
    clipped records.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.regression(2000, 3, seed=5, degrees=3.0)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Squared(), response_bound=1.0,
    ...                       domain=dps.domains.Ball(1.0, p=1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> fit = dps.minimize(problem, dps.optimizers.HeavyTailedLasso(), budget)
    >>> fit.certificate.releasable, fit.num_gradients
    (True, 42000)
    """

    num_steps: int | None = None
    entry_bound: float | None = None
    name: ClassVar[str] = "heavy_tailed_lasso"

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)
        if self.entry_bound is not None:
            check.positive(entry_bound=self.entry_bound)

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Phases and event for a problem with these facts."""
        if not isinstance(facts.loss, Squared):
            remedy = "HeavyTailedFrankWolfe takes any loss."
            check.fail("loss", "Squared", facts.loss, remedy)
        radius = l1_radius(facts.domain, facts.dim)
        size = facts.num_records * (1.0 if budget is None else budget.epsilon)
        num_steps = self.num_steps or math.ceil(size**0.4)
        bound = self.entry_bound or size**0.25 / num_steps**0.125
        # |<a, w> + offset - y| for entries within the bound and |w|_1 <= R
        slope = bound * (1.0 + radius) + facts.offset_bound
        selection, event, sensitivity = math.inf, None, 0.0
        if budget is not None:
            sensitivity = SHIFTS[budget.relation] * radius * (bound * slope)
            sensitivity /= facts.num_records
            choice = _choice_epsilon(budget, num_steps, calibration)
            selection = 0.5 * choice / sensitivity * BELOW
            event = ConcentratedEvent(num_steps * rho_from_bounded_range(choice))
        loop = Loop(
            num_steps=num_steps,
            step=FrankWolfeStep(vertex_sizes(num_steps), radius, selection),
            # Rounding errors of a margin take no slope above its bound.
            estimator=Mean(lipschitz=slope * bound * math.sqrt(facts.dim), slope=slope),
        )
        curvature = (2.0 * radius * bound) ** 2
        return Recipe(
            phases=(loop,),
            event=event,
            inputs={
                "num_steps": num_steps,
                "entry_bound": bound,
                "score_sensitivity": sensitivity,
                "inverse_temperature": selection,
                "risk_bound": vertex_bound(
                    num_steps,
                    first=0.5 * (bound + facts.offset_bound) ** 2,
                    curvature=curvature,
                    error=math.log(2.0 * facts.dim) / selection,
                ),
            },
            theorems=THEOREMS,
            start=np.zeros(facts.dim),
            entry_bound=bound,
        )


def _choice_epsilon(budget: Budget, num_steps: int, calibration: Calibration) -> float:
    """Epsilon of one selection."""
    if calibration == "paper":
        spread = 2.0 * num_steps * math.log(1.0 / budget.delta)
        return budget.epsilon / (2.0 * math.sqrt(spread))
    rho = rho_from_budget(budget.epsilon, budget.delta)
    return math.sqrt(8.0 * rho / num_steps) * BELOW
