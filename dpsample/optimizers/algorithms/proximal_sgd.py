r"""Proximal stochastic gradient descent for a penalized risk.

It minimizes F + g, where the penalty is g(b) = l1 |b|_1 + l2/2 |b|_2^2 or a group
lasso. Steps are :math:`b_{t+1} = \text{prox}_{\gamma_t g}(b_t - \gamma_t \hat g_t)` for
t = 0, 1, ..., with an estimate :math:`\hat g_t` of the gradient of F and
:math:`\gamma_t = c/(K_1 \sqrt{t + 1})`. The output is the mean of :math:`b_1, \dots,
b_T`. This is section 3.1 of Xie et al. (2022). (Their :math:`\gamma_t = K_1/\sqrt t` is
infinite at t = 0 and has the wrong unit, entry gradient-E29 of docs/errata.md.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.domains import Domain
from dpsample.optimizers.loop.batches import Batches, Full, WithReplacement
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
)
from dpsample.optimizers.loop.steps import ProximalStep, step_numbers
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness


@dataclass(frozen=True, kw_only=True)
class ProximalSGD(Optimizer):
    r"""Proximal stochastic gradient descent, without privacy.

    The penalty is :math:`g(b) = \lambda_1 \|b\|_1 + \frac{\lambda_2}{2} \|b\|_2^2`, or
    with ``groups`` the group lasso :math:`\lambda_1 \sum_g \sqrt{|g|}\, \|b_g\|_2` in
    place of the first term. It applies to an intercept as well.

    Parameters
    ----------
    l1, l2 : float
        Weights of the penalty, >= 0.
    groups : tuple of int, optional
        Number of the group of each coefficient, 0, ..., dim - 1.
    batch_size : int, optional
        Number m of records of a batch, which are drawn uniformly with replacement. With
        ``num_records`` every step reads each record once. The default is a sixth of the
        records.
    num_steps : int, optional
        The default is :math:`5 n^2/m^2`, as in the simulations of the paper.
    smoothness : float, optional
        :math:`K_1`, the smoothness of the risk. It is the largest eigenvalue of
        :math:`E \varphi'' a a^\top`, from public knowledge. The default is the bound
        for every record, `dpsample.problem.facts.smoothness`, which is often much
        larger.
    step_scale : float
        c in :math:`\gamma_t`, > 0. Theorem 1 of the paper needs at most 1.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Guarantee
    ---------
    There is none. Without noise nothing is private, and a budget is rejected.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [1.0]], [0.5, 0.1], loss=dps.losses.Squared(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0,
    ...                       response_bound=1.0)
    >>> lasso = dps.optimizers.ProximalSGD(l1=0.1, batch_size=2, num_steps=1)
    >>> round(float(dps.minimize(problem, lasso, seed=0).theta[0]), 12)
    0.2
    """

    l1: float = 0.0
    l2: float = 0.0
    groups: tuple[int, ...] = ()
    batch_size: int | None = None
    num_steps: int | None = None
    smoothness: float | None = None
    step_scale: float = 1.0
    name: ClassVar[str] = "proximal_sgd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.non_negative(l1=self.l1, l2=self.l2)
        check.instance((tuple, list), groups=self.groups)
        for group in self.groups:
            check.integer(0, groups=group)
        # Lists are accepted, but a frozen spec holds tuples.
        object.__setattr__(self, "groups", tuple(int(g) for g in self.groups))
        self._check_given(count="batch_size")
        self._check_given("smoothness", count="num_steps")
        check.positive(step_scale=self.step_scale)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the phases for a problem with these facts. A budget is rejected."""
        del calibration  # there is no noise
        if budget is not None:
            remedy = "Use PrivateProximalSGD, which adds noise."
            check.fail("budget", "None for ProximalSGD", budget, remedy)
        size = self.checked_batch_size(facts, facts.num_records // 6)
        # A batch of all records has no sampling error, unlike draws with replacement.
        batches: Batches = WithReplacement(size=size)
        if size == facts.num_records:
            batches = Full()
        num_steps = self.steps_of(facts, size)
        loop = Loop(
            num_steps=num_steps,
            step=self.proximal_step(facts, num_steps),
            batches=batches,
            estimator=Mean(),
            weights=EQUAL_WEIGHTS,
        )
        return Recipe(phases=(loop,), event=None, inputs={})

    def checked_batch_size(self, facts: PublicFacts, default: float) -> int:
        """Return the batch size, or raise if it exceeds the number of records."""
        if self.batch_size is None:
            return int(min(max(round(default), 1), facts.num_records))
        if self.batch_size > facts.num_records:
            condition = f"<= num_records = {facts.num_records}"
            check.fail("batch_size", condition, self.batch_size)
        return int(self.batch_size)

    def steps_of(self, facts: PublicFacts, batch_size: int) -> int:
        """Return the number of steps: 5 n^2/m^2 by default."""
        if self.num_steps is not None:
            return int(self.num_steps)
        return math.ceil(5.0 * (facts.num_records / batch_size) ** 2)

    def curvature(self, facts: PublicFacts) -> float:
        """Return K_1, declared or from the bounds of a record."""
        if self.smoothness is not None:
            return self.smoothness
        record_curvature = smoothness(facts)
        if record_curvature == 0.0:
            remedy = "Pass smoothness=..., which sets the steps."
            check.fail("loss", "one with curvature", facts.loss.name, remedy)
        return record_curvature

    def sizes(self, facts: PublicFacts, num_steps: int) -> Array:
        """Step sizes gamma_0, ..., gamma_{T-1}."""
        # gamma_t = c / (K_1 sqrt(t + 1)), and `step_numbers` begins at 1.
        first = self.step_scale / self.curvature(facts)
        return np.asarray(first / np.sqrt(step_numbers(num_steps)))

    def proximal_step(self, facts: PublicFacts, num_steps: int) -> ProximalStep:
        """Return the steps, for a domain on which their formula is right."""
        check_domain(facts.domain, facts.dim, l1=self.l1, groups=self.groups)
        return ProximalStep(
            self.sizes(facts, num_steps), l1=self.l1, l2=self.l2, groups=self.groups
        )


def check_domain(
    domain: Domain, dim: int, *, l1: float, groups: tuple[int, ...]
) -> None:
    """Reject domains where projecting after shrinking is not the proximal point.

    l2/2 |b|^2 alone only scales the point that is projected, on any convex set. Soft
    thresholds commute with projections on a ball about 0 (radial) and on a box that
    contains 0 (by coordinate).
    """
    if l1 == 0.0 or domain.is_whole_space:
        return
    if domain.lp_exponent is not None:
        # Balls of l_p with p = inf are boxes.
        is_centered = not domain.default_center(dim).any()
        is_separable = domain.is_box and not groups
        if is_centered and (domain.lp_exponent == 2.0 or is_separable):
            return
    elif domain.is_box and not groups and domain.contains(np.zeros(dim)):
        return
    check.fail(
        "domain",
        "the whole space, an l2 ball about 0 or, without groups, a box that contains 0",
        domain,
        "The proximal point has a closed form there.",
    )


def excess_bound(
    sizes: Array, *, smoothness: float, diameter: float, variance: float, bias: float
) -> float:
    r"""Bound the mean excess of F + g at the mean of b_1, ..., b_T, for convex F.

    The estimates of the gradient have mean-square error ``variance`` about their
    conditional means, whose error is at most ``bias``. With :math:`\gamma_t` decreasing
    and at most :math:`1/K_1`,

    .. math:: \frac{\Delta^2}{2 T \gamma_{T-1}} + \frac1T \sum_t \min\Big(\frac{V}{2
        (1/\gamma_t - K_1)},\ \Delta \sqrt V\Big) + \Delta b.

    Proof: with e the error, the proximal step and smoothness give :math:`(F + g)(b_{t +
    1}) - \min \le \frac1{2\gamma_t}(|b_t - b^*|^2 - |b_{t+1} - b^*|^2) - \frac12
    (\frac1{\gamma_t} - K_1) |b_{t+1} - b_t|^2 - \langle e, b_{t+1} - b^*\rangle`; split
    the unbiased part's product at :math:`b_t`, where its mean is 0. (Theorem 1 of Xie
    et al. has the linear form in place of the minimum.)
    """
    # The first step is the longest one.
    if math.isinf(diameter) or sizes[0] * smoothness > 1.0 + 1e-12:
        return math.inf
    slack = np.maximum(1.0 / sizes - smoothness, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        quadratic = np.where(slack > 0.0, 0.5 * variance / slack, math.inf)
    # The smaller of the two bounds of the product of noise and move, step by step.
    noise = np.minimum(quadratic, diameter * math.sqrt(variance)).mean()
    # The differences of squares telescope, with weights 1/(2 gamma_t) that grow.
    descent = 0.5 * diameter**2 / (len(sizes) * sizes[-1])
    return float(descent + noise + diameter * bias)
