r"""Risk of a randomly tilted minimizer, and the ridge that makes it small.

:math:`J(w) = F(w) + \langle G, w\rangle / n + \frac m2 |w - c|^2`, m = 2 lambda +
Delta, G of standard deviation sigma, Delta/2 |w - c|^2 being part of the risk. Strong
convexity at both minimizers gives :math:`|G|^2 / (2 m n^2)` as the cost of the tilt,
and its largest values over the domain give :math:`\sigma W / n`, W the Gaussian width.
Stability costs :math:`2 L^2 / (m n)`: neighbors share the tilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from dpsample import _check as check
from dpsample.domains import Domain
from dpsample.facts import PublicFacts
from dpsample.optimizers.descent_scales import Risk
from dpsample.privacy.smoothness import smoothness

# A simulated width is rounded up by this many standard errors.
WIDTH_ERRORS = 6.0
GRID = 20
# The smallest determinant factor leaves this part of epsilon for the noise.
LEAST_LEFT = 0.05


class TiltScales(NamedTuple):
    """Public numbers of a tilted objective, the ridge and the noise aside."""

    radius: float  # M, about the center
    lipschitz: float  # L
    smoothness: float  # beta of one record's loss
    dim: int
    num_records: int
    width: float
    is_population: bool
    strong_convexity: float  # Delta

    def convexity(self, ridge: float) -> float:
        """Return m of the objective with ``ridge`` lambda."""
        return 2.0 * ridge + self.strong_convexity

    def risk(self, ridge: float, stddev: float) -> float:
        """Bound of the exact minimizer's mean excess risk."""
        bias = ridge * self.radius**2 if ridge else 0.0
        return bias + self.spread(ridge, stddev)

    def spread(self, ridge: float, stddev: float) -> float:
        """Return the noise's part of the bound, and the sample's."""
        m, n = self.convexity(ridge), self.num_records
        noise = min(
            self.dim * stddev**2 / (2.0 * m * n**2),
            stddev * self.width / n if stddev else 0.0,
        )
        stability = 2.0 * self.lipschitz**2 / (m * n) if self.is_population else 0.0
        return noise + stability

    def release_cost(self, error: float, output_stddev: float) -> float:
        """Risk of a point ``error`` off the minimizer, noised and projected.

        |P(w + H) - w|^2 <= <H, P(w + H) - w>, whose mean is at most the noise times W.
        """
        moved = math.sqrt(self.dim) * output_stddev
        if math.isfinite(self.width):
            moved = min(moved, math.sqrt(output_stddev * self.width))
        return self.lipschitz * (error + moved)


def tilt_scales(
    facts: PublicFacts, *, risk: Risk, strong_convexity: float = 0.0
) -> TiltScales:
    """Numbers of a problem with a smooth loss of a linear margin."""
    center = facts.domain.default_center(facts.dim)
    return TiltScales(
        radius=float(facts.domain.max_norm(2.0, center, facts.dim)),
        lipschitz=facts.lipschitz(2.0),
        smoothness=smoothness(facts),
        dim=facts.dim,
        num_records=facts.num_records,
        width=_width(facts.domain, facts.dim),
        is_population=risk == "population",
        strong_convexity=strong_convexity,
    )


@cache  # a polytope's takes thousands of linear programs
def _width(domain: Domain, dim: int) -> float:
    width = domain.gaussian_width(dim)
    return float(width.value + WIDTH_ERRORS * width.standard_error)


def best_ridge(
    scales: TiltScales, stddev_of: Callable[[float], float], *, epsilon: float
) -> float:
    """Return the lambda that minimizes the bound, the noise depending on it.

    Noise falls with lambda because the Jacobian's factor log(1 + beta / (n m)) leaves
    more of epsilon for it; epsilon is infinite without a budget.
    """
    least = 0.0
    if math.isfinite(epsilon):
        factor = math.expm1(epsilon * (1.0 - LEAST_LEFT))
        m = scales.smoothness / (scales.num_records * factor)
        least = max(0.5 * (m - scales.strong_convexity), 0.0)
    if math.isinf(scales.radius):
        if least > 0.0 or scales.strong_convexity == 0.0:
            remedy = "Or pass the ridge."
            check.fail("domain", "bounded", "an unbounded one", remedy)
        return 0.0
    if not scales.is_population and math.isinf(epsilon):
        remedy = "Without noise the empirical risk wants none."
        check.fail("ridge", "given without a budget", "None", remedy)

    def cost(ridge: float) -> float:
        return scales.risk(ridge, stddev_of(ridge))

    candidates = _candidates(scales, stddev_of, least)
    costs = [cost(ridge) for ridge in candidates]
    at = int(np.argmin(costs))
    if candidates[at] == 0.0:
        return 0.0
    low = candidates[max(at - 1, 0)] or candidates[at]
    return _golden(cost, low, candidates[min(at + 1, GRID - 1)])


def _candidates(
    scales: TiltScales, stddev_of: Callable[[float], float], least: float
) -> list[float]:
    """Grid around what would be best if the noise did not depend on lambda."""
    n = scales.num_records
    plain = scales.lipschitz / (scales.radius * math.sqrt(n))
    spread = 0.5 * math.sqrt(scales.dim) / (n * scales.radius)
    private = spread * stddev_of(max(least, plain)) or plain
    low, high = 0.1 * min(plain, private), 4.0 * (plain + private)
    grid = np.geomspace(max(low, least), max(high, 4.0 * least), GRID)
    found = [float(x) for x in grid]
    if least == 0.0 and scales.strong_convexity > 0.0:
        found[0] = 0.0
    return found


def _golden(cost: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search for a minimum on a logarithmic scale, to a percent."""
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
