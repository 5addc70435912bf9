"""Public numbers that steps of noisy gradient descent are made of."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.batch_noise import SHIFTS
from dpsample.privacy import gdp_from_budget
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness

Risk = Literal["population", "empirical"]
RISKS = ("population", "empirical")
LEAST_STEPS = 10


class DescentScales(NamedTuple):
    """Public numbers that step sizes and bounds are made of."""

    radius: float  # M
    lipschitz: float  # L
    smoothness: float  # beta of what is descended on; infinite at a kink
    dim: int
    num_records: int
    is_population: bool


def scales_of(
    facts: PublicFacts, *, lipschitz: float, smoothness: float, risk: Risk
) -> DescentScales:
    """Numbers of a problem, the radius being that about the starting point."""
    center = facts.domain.default_center(facts.dim)
    return DescentScales(
        radius=float(facts.domain.max_norm(2.0, center, facts.dim)),
        lipschitz=float(lipschitz),
        smoothness=smoothness,
        dim=facts.dim,
        num_records=facts.num_records,
        is_population=risk == "population",
    )


def enough_steps(scales: DescentScales, budget: Budget | None, *, is_full: bool) -> int:
    """Return the steps after which the bound is near its limit: more never hurt it.

    Parameters
    ----------
    scales : Scales
        Public numbers.
    budget : Budget or None
        None: no noise.
    is_full : bool
        Whether every step reads all records: then smooth losses need fewer steps.

    Returns
    -------
    int
    """
    limits = [0.5 * scales.num_records] if scales.is_population else []
    if budget is not None:
        gdp = gdp_from_budget(budget.epsilon, budget.delta)
        ratio = scales.num_records * gdp / SHIFTS[budget.relation]
        limits.append(ratio**2 / scales.dim)
    if not limits:
        remedy = "Without noise the empirical risk keeps falling."
        check.fail("num_steps", "given without a budget", "None", remedy)
    enough = min(limits)
    if is_full and 0.0 < scales.lipschitz < math.inf and scales.radius < math.inf:
        rate = scales.lipschitz * math.sqrt(sum(1.0 / limit for limit in limits))
        # There beta M^2/(2 T) is a twentieth of the bound's limit, M times the rate.
        enough = min(enough, 10.0 * scales.smoothness * scales.radius / rate)
    return max(LEAST_STEPS, math.ceil(enough))


def printed_steps(scales: DescentScales, budget: Budget) -> int:
    """Return the number of steps of Bassily et al. (2019), Theorem 3.2, rounded."""
    n, log_term = scales.num_records, math.log(1.0 / budget.delta)
    private = (budget.epsilon * n) ** 2 / (32.0 * scales.dim * log_term)
    return max(1, math.floor(min(n / 8.0, private)))


def printed_batch(num_records: int, num_steps: int, epsilon: float) -> int:
    """Batch size n sqrt(epsilon / 4T), rounded up, between 1 and n."""
    size = math.ceil(num_records * math.sqrt(epsilon / (4.0 * num_steps)))
    return min(max(size, 1), num_records)


def printed_stddev(scales: DescentScales, budget: Budget, num_steps: int) -> float:
    """Noise of Bassily et al. (2019), Algorithm 1."""
    log_term = 8.0 * num_steps * math.log(1.0 / budget.delta)
    size = scales.num_records * budget.epsilon
    return scales.lipschitz * math.sqrt(log_term) / size


def printed_rate(scales: DescentScales, budget: Budget) -> float:
    """max(sqrt(d log(1/delta))/(epsilon n), 1/sqrt(n)) of the printed bounds."""
    n = scales.num_records
    private = math.sqrt(scales.dim * math.log(1.0 / budget.delta)) / budget.epsilon / n
    return max(private, 1.0 / math.sqrt(n))


def best_step(scales: DescentScales, num_steps: int, slope: float) -> float:
    """Minimizer of M^2/(2 eta T) + eta slope/2."""
    if not math.isfinite(scales.radius):
        remedy = "The step is made of its radius: pass step_size for any other."
        check.fail("domain", "bounded", "an unbounded one", remedy)
    return scales.radius / math.sqrt(num_steps * slope)


def smoothness_or_inf(facts: PublicFacts) -> float:
    """Smoothness of one record's loss; infinite where there is none."""
    try:
        return smoothness(facts)
    except ValueError:  # a kink, or a curvature without end
        return math.inf
