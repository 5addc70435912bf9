r"""Objective perturbation: its risk, and ridge, noise and accuracy that make it small.

The output is a minimizer of

.. math:: J(w) = F(w) + \langle G, w\rangle / n + \frac m2 |w - c|^2, \quad
    m = 2 \lambda + \Delta,

on the domain. F is the mean of n losses that are L-Lipschitz and beta-smooth, and c the
center of the domain. The *tilt* G has independent normal coordinates of standard
deviation sigma. The ridge lambda is added for privacy, and Delta/2 |w - c|^2 is a part
of the risk. Its excess has three terms:

- *Bias.* At most lambda M^2, where M is the radius of the domain.
- *Tilt.* Strong convexity at both minimizers gives :math:`|G|^2 / (2 m n^2)`, and the
  largest values of the tilt over the domain give :math:`\sigma W / n`, where W is the
  Gaussian width.
- *Stability*, for the population risk only: :math:`2 L^2 / (m n)`, because neighbors
  share the tilt.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.domains import Domain
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.optimizer import Minimization
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON
from dpsample.privacy.accounting.events import ApproximateEvent, Event
from dpsample.privacy.budget import Budget, Relation
from dpsample.privacy.calibration.objective_calibration import (
    approximate_noise,
    objective_stddev,
)
from dpsample.privacy.certificates.terms import Risk
from dpsample.privacy.curves.gaussian import gaussian_epsilon, gdp_from_budget
from dpsample.privacy.curves.objective_perturbation import (
    PerturbedObjective,
    minimizer_error,
)
from dpsample.problem.facts import PublicFacts, smoothness

# Number of ridges among which the search for the best one begins.
GRID = 20


class TiltScales(NamedTuple):
    """Public numbers of a tilted objective, except its ridge and its noise."""

    radius: float  # M, about the center
    lipschitz: float  # L
    smoothness: float  # beta of one record's loss
    dim: int
    num_records: int  # n
    width: float  # W
    is_population: bool  # whether the population risk is bounded, or the empirical one
    strong_convexity: float  # Delta

    def convexity(self, ridge: float) -> float:
        """Return m of the objective with ``ridge`` lambda."""
        return 2.0 * ridge + self.strong_convexity

    def risk(self, ridge: float, stddev: float) -> float:
        """Return a bound of the exact minimizer's mean excess risk."""
        bias = ridge * self.radius**2 if ridge else 0.0
        return bias + self.spread(ridge, stddev)

    def spread(self, ridge: float, stddev: float) -> float:
        """Return the terms of the bound that fall with the ridge: tilt, stability."""
        # The smaller of both bounds of the tilt in the module's docstring.
        m, n = self.convexity(ridge), self.num_records
        noise = min(
            self.dim * stddev**2 / (2.0 * m * n**2),
            stddev * self.width / n if stddev else 0.0,
        )
        stability = 2.0 * self.lipschitz**2 / (m * n) if self.is_population else 0.0
        return noise + stability

    def release_cost(self, error: float, output_stddev: float) -> float:
        """Return a bound of the risk that an inexact and noisy output adds.

        The output is P(w + H), where w is within ``error`` of the minimizer, H is noise
        of ``output_stddev``, and P projects to the domain. There |P(w + H) - w|^2 is at
        most <H, P(w + H) - w>, whose mean is at most the noise times W.
        """
        # Without a bounded domain only the length of the noise is known.
        distance = math.sqrt(self.dim) * output_stddev
        if math.isfinite(self.width):
            distance = min(distance, math.sqrt(output_stddev * self.width))
        return self.lipschitz * (error + distance)


def tilt_scales(
    facts: PublicFacts, *, risk: Risk, strong_convexity: float = 0.0
) -> TiltScales:
    """Return the numbers of a problem with a smooth loss of a linear margin."""
    return TiltScales(
        radius=facts.radius,
        lipschitz=facts.lipschitz(2.0),
        smoothness=smoothness(facts),
        dim=facts.dim,
        num_records=facts.num_records,
        width=_width(facts.domain, facts.dim),
        is_population=risk == "population",
        strong_convexity=strong_convexity,
    )


@lru_cache(maxsize=32)  # a polytope's takes thousands of linear programs
def _width(domain: Domain, dim: int) -> float:
    """Return the Gaussian width of a domain, rounded up if it is simulated."""
    width = domain.gaussian_width(dim)
    # A simulated width is rounded up by this many standard errors.
    return float(width.value + 6.0 * width.standard_error)


def best_ridge(
    scales: TiltScales, stddev_of: Callable[[float], float], *, epsilon: float
) -> float:
    """Return the lambda that minimizes the bound, the noise depending on it.

    Noise falls with lambda, because the factor log(1 + beta / (n m)) of the Jacobian
    determinant leaves more of epsilon for it. Without a budget epsilon is infinite.
    """
    min_ridge = 0.0
    if math.isfinite(epsilon):
        # With the smallest ridge the determinant takes 95 % of epsilon, and 5 % remain
        # for the noise.
        factor = math.expm1(min(epsilon, LARGEST_EPSILON) * (1.0 - 0.05))
        # The m with log(1 + beta / (n m)) = 0.95 epsilon.
        m = scales.smoothness / (scales.num_records * factor)
        min_ridge = max(0.5 * (m - scales.strong_convexity), 0.0)
    if math.isinf(scales.radius):
        if min_ridge > 0.0 or scales.strong_convexity == 0.0:
            remedy = "Or pass the ridge."
            check.fail("domain", "bounded", "an unbounded one", remedy)
        return 0.0
    if not scales.is_population and math.isinf(epsilon):
        remedy = "Without noise the empirical risk wants none."
        check.fail("ridge", "given without a budget", "None", remedy)

    def cost(ridge: float) -> float:
        return scales.risk(ridge, stddev_of(ridge))

    candidates = _candidates(scales, stddev_of, min_ridge)
    costs = [cost(ridge) for ridge in candidates]
    at = int(np.argmin(costs))
    if candidates[at] == 0.0:
        return 0.0
    # The search by golden sections is on a logarithmic scale, which has no 0.
    low = candidates[max(at - 1, 0)] or candidates[at]
    return _golden(cost, low, candidates[min(at + 1, GRID - 1)])


def _candidates(
    scales: TiltScales, stddev_of: Callable[[float], float], min_ridge: float
) -> list[float]:
    """Return a grid around the best ridge for noise that does not depend on lambda."""
    # Ridges that balance the bias with stability alone, and with the tilt alone. The
    # best ridge is about the larger one.
    n = scales.num_records
    plain = scales.lipschitz / (scales.radius * math.sqrt(n))
    spread = 0.5 * math.sqrt(scales.dim) / (n * scales.radius)
    private = spread * stddev_of(max(min_ridge, plain)) or plain
    # From a tenth of the smaller balance to four times their sum.
    low, high = 0.1 * min(plain, private), 4.0 * (plain + private)
    grid = np.geomspace(max(low, min_ridge), max(high, 4.0 * min_ridge), GRID)
    ridges = [float(x) for x in grid]
    if min_ridge == 0.0 and scales.strong_convexity > 0.0:
        ridges[0] = 0.0
    return ridges


def _golden(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimizer by golden sections on a logarithmic scale, to a percent."""
    # Both inner points cut off the same share, so that one of them serves again.
    share = 0.5 * (math.sqrt(5.0) - 1.0)
    a, b = math.log(low), math.log(high)
    left, right = b - share * (b - a), a + share * (b - a)
    at_left, at_right = cost(math.exp(left)), cost(math.exp(right))
    while b - a > 0.01:
        if at_left <= at_right:
            b, right, at_right = right, left, at_left
            left = b - share * (b - a)
            at_left = cost(math.exp(left))
        else:
            a, left, at_left = left, right, at_right
            right = a + share * (b - a)
            at_right = cost(math.exp(right))
    return math.exp(left if at_left <= at_right else right)


# Part of the risk bound that the solver may cost by default.
SOLVER_PART = 0.01


class Tilt(NamedTuple):
    """Public numbers of one run."""

    ridge: float  # lambda, in addition to the strong convexity of the risk
    stddev: float  # of each coordinate of the tilt
    gap: float  # J(w) - min J that the solver certifies
    output_stddev: float  # of the noise that hides the solver's error

    def inputs(self, scales: TiltScales) -> dict[str, float | int | str]:
        """Return the inputs of the certificate."""
        inputs: dict[str, float | int | str] = {
            "lipschitz": scales.lipschitz,
            "smoothness": scales.smoothness,
            "strong_convexity": scales.strong_convexity,
            "ridge": self.ridge,
            "gap": self.gap,
            "tilt_stddev": self.stddev,
            "output_stddev": self.output_stddev,
        }
        bound = self.risk_bound(scales)
        return inputs | ({"risk_bound": bound} if math.isfinite(bound) else {})

    def risk_bound(self, scales: TiltScales) -> float:
        """Return a bound of the mean excess risk, infinite on an unbounded domain."""
        error = minimizer_error(
            strong_convexity=scales.convexity(self.ridge), gap=self.gap
        )
        return scales.risk(self.ridge, self.stddev) + scales.release_cost(
            error, self.output_stddev
        )

    def phase(self, scales: TiltScales, solver: str) -> Minimization:
        """Return the minimization, whose ridge is about the domain's center."""
        return Minimization(
            ridge=scales.convexity(self.ridge),
            smoothness=scales.smoothness,
            gap=self.gap,
            estimator=Mean(lipschitz=scales.lipschitz),
            tilt_stddev=self.stddev,
            is_anchored=True,
            output_stddev=self.output_stddev,
            solver=solver,
        )


def perturbed_objective(
    scales: TiltScales, ridge: float, relation: Relation
) -> PerturbedObjective:
    """Return the objective of the privacy proof, which has m as twice its ridge."""
    # Rows may exceed their bound by 1e-12, a rounding error that `dpsample.Problem`
    # allows.
    rows = 1.0 + 3e-12
    return PerturbedObjective(
        lipschitz=scales.lipschitz * rows,
        smoothness=scales.smoothness * rows,
        num_records=scales.num_records,
        ridge=0.5 * scales.convexity(ridge),
        relation=relation,
    )


def proved_tilt(
    scales: TiltScales,
    budget: Budget | None,
    *,
    ridge: float | None,
    gap: float | None,
    share: float,
) -> Tilt:
    """Return the ridge, noise and accuracy that minimize the bound within the budget.

    ``share`` is the part of epsilon and delta for the tilt. The rest is for the noise
    of the output, which hides the error of the solver.
    """
    if budget is None:
        if ridge is None:
            ridge = best_ridge(scales, lambda ridge: 0.0, epsilon=math.inf)
        accuracy = gap or default_gap(scales, ridge, 0.0)
        return Tilt(ridge, 0.0, accuracy, 0.0)
    first = Budget(
        epsilon=share * budget.epsilon,
        delta=share * budget.delta,
        relation=budget.relation,
    )

    def stddev_of(ridge: float) -> float:
        objective = perturbed_objective(scales, ridge, budget.relation)
        return objective_stddev(objective, first)

    if ridge is None:
        ridge = best_ridge(scales, stddev_of, epsilon=first.epsilon)
    if gap is None:
        rest = 1.0 - share
        # What the tilt leaves of the budget, as gdp.
        gdp = gdp_from_budget(rest * budget.epsilon, rest * budget.delta)
        gap = default_gap(scales, ridge, stddev_of(ridge), gdp=gdp)
    noise = approximate_noise(
        perturbed_objective(scales, ridge, budget.relation),
        budget,
        gap=gap,
        share=share,
    )
    return Tilt(ridge, noise.stddev, gap, noise.output_stddev)


def default_gap(
    scales: TiltScales, ridge: float, stddev: float, *, gdp: float = math.inf
) -> float:
    """Return the gap whose error and noise cost `SOLVER_PART` of the bound.

    It is not below `resolved_gap`. The error is sqrt(2 gap / m), and its noise has the
    deviation 2 error / gdp in each coordinate. At the best ridge half of the bound is
    bias. With a larger ridge, twice the other half is the measure.
    """
    m = scales.convexity(ridge)
    size = scales.radius if math.isfinite(scales.radius) else scales.lipschitz / m
    cost = scales.risk(ridge, stddev)
    # Twice the terms that fall with the ridge, which at the best ridge are half of the
    # bound.
    spread = 2.0 * scales.spread(ridge, stddev)
    if 0.0 < spread < cost or not math.isfinite(cost):
        cost = spread or scales.lipschitz * size
    per_error = scales.lipschitz * (1.0 + 2.0 * math.sqrt(scales.dim) / gdp)
    target_gap = 0.5 * m * (SOLVER_PART * cost / per_error) ** 2
    return max(target_gap, resolved_gap(scales, m))


def resolved_gap(scales: TiltScales, m: float) -> float:
    """Return the gap that doubles resolve, for an m-strongly convex objective."""
    top = m + scales.smoothness
    size = scales.radius if math.isfinite(scales.radius) else scales.lipschitz / m
    # Relative distances below this are rounding errors of a projected gradient step.
    step = 1e-13 * (size + scales.lipschitz / top)
    # At this distance from the minimizer the gradient is at most top * step, and the
    # gap at most its square over 2 m.
    return 0.5 * top**2 / m * step**2


def tilt_event(scales: TiltScales, tilt: Tilt, budget: Budget) -> Event:
    """Return the event that is proved for any noise.

    Half of delta is for the tilt, and half for the noise of the output.
    """
    # Epsilons at half of delta each add up.
    half = 0.5 * budget.delta
    objective = perturbed_objective(scales, tilt.ridge, budget.relation)
    spent = objective.epsilon(half, stddev=tilt.stddev)
    error = minimizer_error(strong_convexity=scales.convexity(tilt.ridge), gap=tilt.gap)
    spent += gaussian_epsilon(half, 2.0 * error / tilt.output_stddev)
    return ApproximateEvent(epsilon=spent * (1.0 + 1e-12), delta=budget.delta)
