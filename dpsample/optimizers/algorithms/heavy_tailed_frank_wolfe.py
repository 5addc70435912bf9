r"""Private Frank-Wolfe on an l1 ball about 0, for heavy-tailed data.

The algorithms are by Hu, Ni, Xiao and Wang (2022), "High dimensional differentially
private stochastic optimization with heavy-tailed data", with which Xie et al. (2022),
section 6, compare theirs. Step t = 1, ..., T moves w to :math:`(1 - \eta_t) w + \eta_t
v` with :math:`\eta_t = 2/(t+2)`. The vertex :math:`v = \pm R e_j` of the l1 ball is
drawn by the exponential mechanism.

The records of HTDP-FW are divided into T folds. Step t reads fold t only, and estimates
the gradient by the soft truncation of Catoni and Giulini. HTP-LASSO reads all records
in every step, with every entry of the features and of the response clipped to
:math:`\pm K` once.

Letters: n records, d parameters, folds of m records, R the radius of the ball, and
:math:`c_\psi = 2 \sqrt2/3` the largest value of the soft truncation. A *score* of a
vertex v is :math:`-\langle v, g\rangle`, for an estimate g of the gradient.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.domains import Domain
from dpsample.losses import Squared
from dpsample.noise.selection import BELOW
from dpsample.optimizers.loop.batches import Slices
from dpsample.optimizers.loop.contributions import PSI_BOUND
from dpsample.optimizers.loop.estimators import CatoniMean, Mean
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Loop,
    Optimizer,
    Recipe,
    refuse_paper,
)
from dpsample.optimizers.loop.perturbations import rounding_excess
from dpsample.optimizers.loop.steps import FrankWolfeStep, step_numbers
from dpsample.privacy import rho_from_bounded_range, rho_from_budget
from dpsample.privacy.accounting.events import ConcentratedEvent, PureEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.problem.facts import PublicFacts, smoothness_or_inf


@dataclass(frozen=True, kw_only=True)
class HeavyTailedFrankWolfe(Optimizer):
    r"""Private Frank-Wolfe for heavy-tailed data on an l1 ball about 0 (HTDP-FW).

    Parameters
    ----------
    moment_bound : float
        :math:`\tau`, public bound of :math:`E (\partial_j f)^2` for every coordinate j.
        Only the default scale depends on it.
    failure_probability : float
        :math:`\zeta`, > 0 and < 1.
    num_steps : int, optional
        T, at most the number of records. The default is :math:`\lfloor(n \epsilon /
        \log(2 d/\zeta))^{1/3}\rfloor`, at least 1.
    scale : float, optional
        s of the soft truncation, whose precision is :math:`\nu = 1`. The default is
        :math:`\sqrt{\tau m / (\frac12 + L + \frac{2 \sqrt2}{3} c L/\epsilon)}`, with L
        = log(2 d T/zeta), folds of m records, and c = 2 ("replace_one") or 1
        ("zero_out"). It minimizes the deviation of an estimate plus the error of a
        selection. With calibration "paper" it is :math:`\sqrt{n \epsilon \tau/(T L)}`.
    smoothness : float, optional
        Public bound of the entries of :math:`E \varphi'' a a^\top`, for ``risk_bound``
        only. The default follows from the bounds of a record, if the loss is smooth.

    Raises
    ------
    ValueError
        If a number is out of its range, or the domain is not an l1 ball about 0.

    Notes
    -----
    Without a budget the defaults are those of epsilon = 1, and the vertex is the best
    one. The schedule of Hu et al. is a reconstruction from their rates.

    **Guarantee.** (epsilon, 0)-DP under the budget's relation, for any records. If the
    budget has delta = 0, vertices are drawn without any error probability. If records
    are independent draws of one distribution and the public bounds hold, ``risk_bound``
    of the recipe bounds the mean excess of their risk.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.regression(2000, 3, seed=5, degrees=3.0)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Huber(),
    ...                       domain=dps.domains.Ball(1.0, p=1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> fit = dps.minimize(problem, dps.optimizers.HeavyTailedFrankWolfe(), budget)
    >>> fit.certificate.event, fit.num_gradients
    (PureEvent(epsilon=1.0), 1995)
    """

    moment_bound: float = 1.0
    failure_probability: float = 0.1
    num_steps: int | None = None
    scale: float | None = None
    smoothness: float | None = None
    name: ClassVar[str] = "heavy_tailed_frank_wolfe"
    can_be_pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.positive(moment_bound=self.moment_bound)
        check.open_interval(0.0, 1.0, failure_probability=self.failure_probability)
        self._check_given("scale", "smoothness", count="num_steps")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the phases and the event for a problem with these facts."""
        radius = l1_radius(facts.domain, facts.dim)
        epsilon = 1.0 if budget is None else budget.epsilon
        num_steps = self._num_steps(facts, epsilon)
        fold = facts.num_records // num_steps
        shift = 2.0 if budget is None else SHIFTS[budget.relation]
        scale = self.scale
        if scale is None:
            scale = self._scale(
                facts, epsilon, num_steps, None if calibration == "paper" else shift
            )
        # Largest change of a coordinate when one record of the fold changes.
        sensitivity = shift * PSI_BOUND * scale / fold
        sensitivity *= 1.0 + rounding_excess(
            num_records=fold, dim=facts.dim, is_soft=True
        )
        step = FrankWolfeStep(
            vertex_sizes(num_steps),
            radius,
            epsilon=math.inf if budget is None else epsilon,
            sensitivity=sensitivity,
            is_pure=_is_pure(budget),
        )
        loop = Loop(
            num_steps=num_steps,
            step=step,
            batches=Slices(size=fold),
            estimator=CatoniMean(scale=scale),
        )
        inputs: dict[str, float | int | str] = {
            "num_steps": num_steps,
            "fold_size": fold,
            "scale": scale,
            "score_sensitivity": sensitivity * radius,
            "inverse_temperature": step.selection,
        }
        bound = self._risk_bound(facts, num_steps, scale, step)
        if math.isfinite(bound):
            inputs["risk_bound"] = bound
        kind = "frank_wolfe/pure" if _is_pure(budget) else "frank_wolfe"
        return Recipe(
            phases=(loop,),
            event=None if budget is None else PureEvent(epsilon),
            inputs=inputs,
            kind=kind,
            start=np.zeros(facts.dim),
        )

    def _num_steps(self, facts: PublicFacts, epsilon: float) -> int:
        """Return the number of steps passed by the user, or by the paper's formula."""
        if self.num_steps is None:
            log = math.log(2.0 * facts.dim / self.failure_probability)
            steps = int((facts.num_records * epsilon / log) ** (1.0 / 3.0))
            return min(max(1, steps), facts.num_records)
        if self.num_steps > facts.num_records:
            condition = f"<= num_records = {facts.num_records}"
            check.fail("num_steps", condition, self.num_steps)
        return int(self.num_steps)

    def _scale(
        self, facts: PublicFacts, epsilon: float, num_steps: int, shift: float | None
    ) -> float:
        """Return the scale for a shift of neighbors, or for None the published one."""
        fold = facts.num_records // num_steps
        log = math.log(2.0 * facts.dim * num_steps / self.failure_probability)
        if shift is None:
            size = facts.num_records * epsilon / num_steps
            return math.sqrt(self.moment_bound * size / log)
        # The scale balances the bias tau/s, which falls with it, and the range of the
        # truncation, with which sampling error and privacy noise grow.
        slope = 0.5 + log + shift * PSI_BOUND * log / epsilon
        return math.sqrt(self.moment_bound * fold / slope)

    def _risk_bound(
        self, facts: PublicFacts, num_steps: int, scale: float, step: FrankWolfeStep
    ) -> float:
        r"""Return a bound of the mean excess, infinite without a smoothness.

        The soft truncation of coordinates with :math:`E g^2 \le \tau` has bias at most
        :math:`\tau/s`, variance at most :math:`2 \tau` and range :math:`2 s c`, c = 2
        sqrt(2)/3. Bernstein's inequality bounds the mean of the largest of d errors by
        :math:`\sqrt{4 \tau L/m} + 2 s c L/(3 m)`, L = log(2 d).
        """
        radius, tau = l1_radius(facts.domain, facts.dim), self.moment_bound
        smooth = self.smoothness
        if smooth is None:
            smooth = smoothness_or_inf(facts, 1.0)
        fold, log = facts.num_records // num_steps, math.log(2.0 * facts.dim)
        # Bias, deviation and range of the largest of d errors, as in the docstring.
        largest = tau / scale + math.sqrt(4.0 * tau * log / fold)
        largest += 2.0 * PSI_BOUND * scale * log / (3.0 * fold)
        return vertex_bound(
            num_steps,
            # F(0) - F(w) <= |<grad F(0), w>|
            first=radius * math.sqrt(tau),
            # |v - w|_1 <= 2 R, and ``smooth`` bounds entries of the Hessian, so D = 4
            # R^2 smooth.
            curvature=4.0 * radius**2 * smooth,
            # An error of the gradient counts for the chosen vertex and for the best
            # one.
            error=2.0 * radius * largest + step.error(2 * facts.dim),
        )


def l1_radius(domain: Domain, dim: int) -> float:
    """Return the radius of an l1 ball about 0. Other domains are rejected."""
    if domain.lp_exponent == 1.0:
        if not domain.default_center(dim).any():
            return domain.ball_radius
    remedy = "Use Ball(radius, p=1.0): the steps go to its vertices."
    check.fail("domain", "an l1 ball about 0", domain, remedy)


def _is_pure(budget: Budget | None) -> bool:
    """Return whether there is a budget with delta = 0."""
    return budget is not None and budget.is_pure


def vertex_sizes(num_steps: int) -> np.ndarray:
    """Return the step sizes 2/(t + 2) for t = 1, ..., T."""
    return np.asarray(2.0 / (step_numbers(num_steps) + 2.0))


def vertex_bound(
    num_steps: int, *, first: float, curvature: float, error: float
) -> float:
    r"""Return a bound of the mean excess after Frank-Wolfe steps of sizes 2/(t + 2).

    With h_1 = ``first`` at w_1, :math:`F(w + \eta (v - w)) \le F(w) + \eta \langle
    \nabla F(w), v - w\rangle + \eta^2 D/2`, D = ``curvature``, and a vertex that is
    worse than the best one by ``error`` in mean, :math:`h_{t+1} \le (1 - \eta_t) h_t +
    \eta_t e + \eta_t^2 D/2`, hence :math:`h_{T+1} \le \frac{2 h_1 + 2 D T}{(T + 1)(T +
    2)} + e`.
    """
    steps = (num_steps + 1.0) * (num_steps + 2.0)
    return (2.0 * first + 2.0 * curvature * num_steps) / steps + error


@dataclass(frozen=True, kw_only=True)
class HeavyTailedLasso(Optimizer):
    r"""Private Frank-Wolfe for least squares on an l1 ball about 0 (HTP-LASSO).

    Parameters
    ----------
    num_steps : int, optional
        T. Default: :math:`\lceil (n \epsilon)^{2/5} \rceil`, or :math:`\lceil (n
        \epsilon)^{1/3} \rceil` if delta is 0.
    entry_bound : float, optional
        K. Default: :math:`(n \epsilon)^{1/4}/T^{1/8}`, or :math:`(n \epsilon/T)^{1/4}`
        if delta is 0.

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
    step has :math:`\epsilon_0 = \sqrt{8 \rho/T}`, 4 to 5 times the published
    :math:`\epsilon/(2 \sqrt{2 T \log(1/\delta)})` of calibration "paper".

    If delta is 0, each step has :math:`\epsilon_0 = \epsilon/T`. The defaults then
    balance the same three errors, which are :math:`1/K^2` by clipping, :math:`1/T` of
    the steps, and :math:`K^2 T/(n \epsilon)` by selections.

    **Guarantee.** (epsilon, delta)-DP under the budget's relation, for any records. If
    delta is 0, vertices are drawn without any error probability. ``risk_bound`` of the
    recipe bounds the mean excess of the empirical risk of the clipped records.

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
    can_be_pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._check_given("entry_bound", count="num_steps")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the phases and the event for a problem with these facts."""
        if not isinstance(facts.loss, Squared):
            remedy = "HeavyTailedFrankWolfe takes any loss."
            check.fail("loss", "Squared", facts.loss, remedy)
        radius = l1_radius(facts.domain, facts.dim)
        # n epsilon, which sets T and K.
        size = facts.num_records * (1.0 if budget is None else budget.epsilon)
        is_pure = _is_pure(budget)
        num_steps = self.num_steps or math.ceil(size ** (1.0 / 3.0 if is_pure else 0.4))
        # The noise of T selections grows as T, or as the root of T if delta > 0.
        growth = 0.25 if is_pure else 0.125
        bound = self.entry_bound or size**0.25 / num_steps**growth
        # |<a, w> + offset - y| for entries within the bound and |w|_1 <= R
        slope = bound * (1.0 + radius) + facts.offset_bound
        step = FrankWolfeStep(vertex_sizes(num_steps), radius)
        event: PureEvent | ConcentratedEvent | None = None
        if budget is not None:
            # One record changes a coordinate of the mean gradient by at most this.
            sensitivity = SHIFTS[budget.relation] * bound * slope / facts.num_records
            excess = rounding_excess(num_records=facts.num_records, dim=facts.dim)
            choice = _choice_epsilon(budget, num_steps, calibration)
            step = replace(
                step,
                epsilon=choice,
                sensitivity=sensitivity * (1.0 + excess),
                is_pure=is_pure,
            )
            event = _choices_event(budget, num_steps, choice)
        loop = Loop(
            num_steps=num_steps,
            step=step,
            # Rounding errors of a margin take no slope above its bound.
            estimator=Mean(lipschitz=slope * bound * math.sqrt(facts.dim), slope=slope),
        )
        # <a, v - w>^2 for vertices and points of the ball, at most 2 R apart in l1.
        curvature = (2.0 * radius * bound) ** 2
        return Recipe(
            phases=(loop,),
            event=event,
            inputs={
                "num_steps": num_steps,
                "entry_bound": bound,
                "score_sensitivity": step.sensitivity * radius,
                "inverse_temperature": step.selection,
                "risk_bound": vertex_bound(
                    num_steps,
                    # At w = 0 the loss is at most (K + |offset|)^2 / 2.
                    first=0.5 * (bound + facts.offset_bound) ** 2,
                    curvature=curvature,
                    error=step.error(2 * facts.dim),
                ),
            },
            kind="lasso/pure" if is_pure else "lasso",
            start=np.zeros(facts.dim),
            entry_bound=bound,
        )


def _choice_epsilon(budget: Budget, num_steps: int, calibration: Calibration) -> float:
    """Return epsilon of one selection of a vertex."""
    if budget.is_pure:
        refuse_paper(calibration, "The published formula takes log(1/delta).")
        return budget.epsilon / num_steps * BELOW
    if calibration == "paper":
        # As published, by advanced composition of T selections.
        spread = 2.0 * num_steps * math.log(1.0 / budget.delta)
        return budget.epsilon / (2.0 * math.sqrt(spread))
    rho = rho_from_budget(budget.epsilon, budget.delta)
    # T selections of bounded range epsilon_0 have rho = T epsilon_0^2 / 8 together. The
    # factor keeps the product below the budget after rounding.
    return math.sqrt(8.0 * rho / num_steps) * BELOW


def _choices_event(
    budget: Budget, num_steps: int, choice: float
) -> PureEvent | ConcentratedEvent:
    """Return the event of all selections, each with epsilon ``choice``."""
    if budget.is_pure:  # epsilons add up, and `choice` is rounded down
        return PureEvent(budget.epsilon)
    return ConcentratedEvent(num_steps * rho_from_bounded_range(choice))
