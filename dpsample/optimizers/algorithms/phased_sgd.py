r"""Phased stochastic gradient descent: one pass, noise after every phase.

The algorithm is that of Feldman, Koren and Talwar (2020). By it arXiv:2303.18047
(Theorem 8) treats l_p with p >= 2 without constraints. There :math:`\|\theta\|_2 \le
d^{1/2-1/p} \|\theta\|_p`, and Lipschitz constants and smoothness in l_p hold in l_2.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from dpsample.core import check
from dpsample.numerics.norms import conversion
from dpsample.optimizers.loop.batches import Slices
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.iterate_errors import has_error_bound
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
    refuse_paper,
    start_distance,
)
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts, smoothness


class PhasedPlan(NamedTuple):
    """Public numbers of all phases."""

    sizes: tuple[int, ...]  # records of each phase
    steps: tuple[float, ...]  # step size of each phase
    stddevs: tuple[float, ...]  # scale of the noise on each mean iterate
    risk: float  # bound of the mean excess risk


@dataclass(frozen=True, kw_only=True)
class PhasedSGD(Optimizer):
    r"""One pass of gradient steps in phases of half the records and a quarter the step.

    Phase i reads :math:`n_i = \lfloor n/2^i \rfloor` fresh records, one for each step
    of length :math:`\eta_i = \eta/4^i`, and returns the mean of its iterates plus
    :math:`N(0, \sigma_i^2 I)`, :math:`\sigma_i = 2 L \eta_i/t`, t the gdp of the
    budget. eta minimizes the bound of `risk_bound`, about :math:`1.64 \frac{L
    D}{\sqrt n} + 16 \frac{L D \sqrt d}{t n}`, subject to :math:`\eta_1 \le 2/\beta`.

    Parameters
    ----------
    distance : float, optional
        Public bound or guess of the l_p distance from the start to a minimizer. The
        default is the domain's radius. It determines only the step size, and privacy
        does not depend on it.
    p : float
        Exponent >= 2 of the norm of ``distance``.
    step_size : float, optional
        eta_1, at most 2/beta. The default minimizes the bound.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not smooth and
        Lipschitz, if steps are longer than 2/beta, with fewer than 2 records, or with
        calibration "paper": no schedule is published.

    Guarantee
    ---------
    The output is (epsilon, delta)-DP under either relation, if the loss is convex and
    the declared bounds hold for every possible record. Projections on a bounded domain
    change neither this nor the bound.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = PhasedSGD(distance=1.0).recipe(problem.facts, budget)
    >>> [phase.num_steps for phase in recipe.phases]
    [1000, 500, 250, 125, 62, 31, 15, 7, 3, 1]
    """

    distance: float | None = None
    p: float = 2.0
    step_size: float | None = None
    name: ClassVar[str] = "phased_sgd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._check_given("distance", "step_size")
        check.at_least(2.0, p=self.p, remedy="For p < 2 use NoisyMirrorDescent.")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop for every phase."""
        refuse_paper(calibration, "No schedule is printed for phased SGD.")
        plan = self._plan(facts, budget)
        phases, first = [], 0
        for size, step, stddev in zip(
            plan.sizes, plan.steps, plan.stddevs, strict=True
        ):
            phases.append(
                Loop(
                    num_steps=size,
                    step=GradientStep(step),
                    batches=Slices(size=1, first=first, last=first + size),
                    estimator=Mean(lipschitz=facts.lipschitz(2.0)),
                    weights=EQUAL_WEIGHTS,
                    output_stddev=stddev,
                )
            )
            first += size
        event, kind = None, "phased"
        if budget is not None:
            gdp = gdp_of(budget)
            event = GaussianEvent(gdp)
            if has_error_bound(facts, *phases):
                phases = [replace(phase, output_gdp=gdp) for phase in phases]
                kind = "phased/rounded"
        return Recipe(
            phases=tuple(phases),
            event=event,
            inputs={
                "num_phases": len(phases),
                "first_step_size": plan.steps[0],
                "first_noise_stddev": plan.stddevs[0],
                "last_noise_stddev": plan.stddevs[-1],
                "risk_bound": plan.risk,
            },
            kind=kind,
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        r"""Return a bound of the mean excess population risk.

        It holds if a minimizer is within ``distance`` of the start.

        Phase i starts at :math:`w_{i-1}`, of mean square distance :math:`S_{i-1}` (D^2
        or the noise :math:`d \sigma_{i-1}^2`) to the point u that it is compared with.
        Summing :math:`F(v_t) - F(u) \le \langle \nabla f(v_t, x_t), v_t - u\rangle`
        over :math:`v_0, \ldots, v_{n_i}`, of which the mean leaves out the first:

            S/(2 eta_i n_i) + (1 + 1/n_i) eta_i L^2/2 + L sqrt(S)/n_i,

        and the last noise costs :math:`L \sqrt{d} \sigma_k`.
        """
        return self._plan(facts, budget).risk

    def _plan(self, facts: PublicFacts, budget: Budget | None) -> PhasedPlan:
        """Return sizes of phases, and the first step that minimizes the risk bound."""
        n, beta, lipschitz = facts.num_records, smoothness(facts), facts.lipschitz(2.0)
        if n < 2:
            check.fail("num_records", "at least 2 for phases of half of them", n)
        shift = 0.0
        if budget is not None:
            shift = round_up(SHIFTS[budget.relation] * lipschitz / gdp_of(budget))
        sizes = tuple(n >> i for i in range(1, n.bit_length()))  # halves of halves
        # The declared l_p distance as a bound of the l_2 distance.
        declared_distance = self.distance
        if declared_distance is not None:
            declared_distance *= conversion(facts.dim, self.p, 2.0)
        distance = start_distance(facts, declared_distance)

        # The bound of `risk_bound`, where the gap is the root mean square distance from
        # the start of a phase to the end of the last one.
        def risk(first_step: float, gap: float) -> float:
            total = 0.0
            for i, size in enumerate(sizes):
                step = first_step * 0.25**i
                total += 0.5 * gap**2 / (step * size) + lipschitz * gap / size
                total += 0.5 * (1.0 + 1.0 / size) * step * lipschitz**2
                gap = math.sqrt(facts.dim) * shift * step
            return total + lipschitz * gap

        first = self.step_size
        if first is None:
            # The risk as a function of the first step s is a/s + b s + c. With a
            # distance of 0 it is b s, so risk(1, 0) is b. The minimum is at sqrt(a/b),
            # where a = distance^2 / (2 n_1).
            first = distance / math.sqrt(2.0 * sizes[0] * risk(1.0, 0.0))
            first = min(first, 2.0 / beta) if beta > 0.0 else first
        elif first * beta > 2.0:
            remedy = "Longer steps may move two points apart."
            check.fail(
                "step_size", f"<= 2/beta = {check.describe(2.0 / beta)}", first, remedy
            )
        steps = tuple(first * 0.25**i for i in range(len(sizes)))
        stddevs = tuple(round_up(shift * step) if shift else 0.0 for step in steps)
        return PhasedPlan(sizes, steps, stddevs, risk(first, distance))
