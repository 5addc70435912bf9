"""Printed constants of objective perturbation, for reproduction."""

import math
from typing import Literal

from dpsample.core import check
from dpsample.domains import Ball, Domain
from dpsample.numerics.norms import conversion
from dpsample.optimizers.loop.tilted import Tilt, TiltScales
from dpsample.privacy.budget import Budget

Paper = Literal["bassily", "su"]
PAPERS = ("bassily", "su")


def printed_tilt(
    scales: TiltScales, budget: Budget, domain: Domain, paper: Paper
) -> Tilt:
    """Ridge, noise and accuracy as printed, for bounded domains."""
    if math.isinf(scales.radius):
        check.fail("domain", "bounded for printed constants", domain)
    if paper == "bassily":
        if scales.strong_convexity > 0.0:
            remedy = "Choose printed='su' for the strongly convex version."
            condition = "0 for the constants of Bassily et al."
            check.fail("strong_convexity", condition, scales.strong_convexity, remedy)
        return bassily(scales, budget, is_exact=False)
    if scales.strong_convexity > 0.0:
        return _su_strongly_convex(scales, budget, domain)
    return _su_convex(scales, budget)


def bassily(scales: TiltScales, budget: Budget, *, is_exact: bool) -> Tilt:
    """Bassily et al. (2019), Algorithm 2 (exact minimizer) or Algorithm 3."""
    n, log_term = scales.num_records, math.log(1.0 / budget.delta)
    rate = 2.0 / n + 4.0 * scales.dim * log_term / (budget.epsilon * n) ** 2
    ridge = 2.0 * scales.lipschitz / scales.radius * math.sqrt(rate)
    ridge = max(ridge, scales.smoothness / (budget.epsilon * n))
    gap = (scales.radius / n) ** 2 * ridge
    unit = scales.lipschitz * math.sqrt(log_term) / budget.epsilon
    if is_exact:
        return Tilt(ridge, math.sqrt(10.0) * unit, gap, 0.0)
    output = math.sqrt(40.0 * gap * log_term / ridge) / budget.epsilon
    return Tilt(ridge, math.sqrt(20.0) * unit, gap, output)


def _su_convex(scales: TiltScales, budget: Budget) -> Tilt:
    """Su, Zhao and Wang (2023), Algorithm 1; the diameter is twice the radius."""
    n, diameter, lipschitz = scales.num_records, 2.0 * scales.radius, scales.lipschitz
    rank = min(scales.dim, 2)
    ridge = max(
        lipschitz / (math.sqrt(n) * diameter),
        rank * scales.smoothness / (budget.epsilon * n),
    )
    scaled = (budget.epsilon * diameter / scales.width) ** 2
    part = min(1.0, scaled / math.log(1.0 / budget.delta))
    gap = lipschitz * diameter / n**1.5 * part
    log_term = math.log(2.5 / budget.delta)
    output = math.sqrt(64.0 * gap * log_term / ridge) / budget.epsilon
    return Tilt(ridge, _su_stddev(scales, budget), gap, output)


def _su_strongly_convex(scales: TiltScales, budget: Budget, domain: Domain) -> Tilt:
    """Algorithm 2, Delta measured in the gauge of the domain (gradient-E6)."""
    n, diameter, lipschitz = scales.num_records, 2.0 * scales.radius, scales.lipschitz
    modulus = scales.strong_convexity * _inner_radius(domain, scales.dim) ** 2
    rank = min(scales.dim, 2)
    ridge = max(rank * scales.smoothness / (budget.epsilon * n) - modulus, 0.0)
    unit = (lipschitz * diameter / n) ** 2 / modulus
    scaled = (lipschitz * diameter**2 * budget.epsilon / (n * modulus)) ** 2
    part = scaled / (scales.width**2 * math.log(1.0 / budget.delta))
    gap = unit * min(1.0, part)
    log_term = math.log(2.5 / budget.delta)
    output = diameter * math.sqrt(64.0 * gap * log_term / modulus) / budget.epsilon
    return Tilt(ridge, _su_stddev(scales, budget), gap, output)


def _su_stddev(scales: TiltScales, budget: Budget) -> float:
    log_term = 128.0 * math.log(2.5 / budget.delta)
    return scales.lipschitz * math.sqrt(log_term) / budget.epsilon


def _inner_radius(domain: Domain, dim: int) -> float:
    """Radius of the largest l2 ball about 0 in an l_p ball about 0."""
    if not isinstance(domain, Ball) or domain.default_center(dim).any():
        remedy = "Its gauge gives the printed modulus."
        check.fail("domain", "a Ball about 0 for printed constants", domain, remedy)
    return float(domain.radius / conversion(dim, 2.0, domain.p))
