r"""Public numbers of one pass of truncated mirror descent.

Excess risk of one pass of truncated noisy mirror descent on a bounded set.

F is beta-smooth in l_p and :math:`E\|\nabla f - \nabla F\|_q^2 \le \sigma^2`, so that
:math:`\|\nabla F\|_q \le g = g^* + \beta M` on the set, M its diameter.
Gradients above B = g + lambda become 0, with probability :math:`P \le
\sigma^2/\lambda^2`. With D the potential's largest value on the domain and a gradient
error of bias b and mean square E,

    E F(mean iterate) - F* <= gamma D/T + E/(2 (gamma - beta)) + M b,
    b <= sigma sqrt(P) + g P,

which the three-point inequality gives for gamma > beta. E sums sampling, kappa V/(batch
size), and noise; V <= sigma^2 + g^2 P in l_2 (and (sqrt(V) + b)^2 in l_q).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.domains import Ball
from dpsample.numerics.norms import dual
from dpsample.optimizers.loop.mirror_geometry import (
    Geometry,
    NoiseName,
    geometry,
)
from dpsample.optimizers.loop.perturbations import Scheme, forecast
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness


class TruncatedScales(NamedTuple):
    """Public numbers of one problem, in l_p and its dual l_q."""

    num_records: int
    space: Geometry
    radius: float  # largest distance of the domain from the start
    diameter: float  # of the domain
    smoothness: float  # of the population risk
    slope: float  # bound of the population gradient on the domain
    moment: float  # sigma
    lipschitz: float  # of one record's loss; may be infinite
    noise_bound: float  # of one record's gradient in the norm of the noise

    def record_bound(self, threshold: Any) -> Any:
        """Bound of a truncated gradient in the norm of the noise."""
        return np.minimum(threshold * self.space.threshold_ratio, self.noise_bound)

    @property
    def is_euclidean(self) -> bool:
        """Whether squares of independent errors just add."""
        return self.space.q == 2.0


def scales_of(
    facts: PublicFacts,
    noise: NoiseName,
    *,
    p: float | None,
    moment: float | None,
    beta: float | None,
    optimal_slope: float,
) -> TruncatedScales:
    """Numbers of a problem: what is None follows from its domain and its bounds."""
    domain, dim = facts.domain, facts.dim
    if not domain.is_bounded:
        remedy = "Use a Ball, or NoisyMirrorDescent on the whole space."
        check.fail("domain", "bounded", domain, remedy)
    center, own = domain.default_center(dim), 2.0
    if isinstance(domain, Ball) and not center.any():
        own = min(domain.p, 2.0)
    exponent = own if p is None else float(p)
    if exponent < 2.0 and exponent != own:
        remedy = "Mirror steps are taken on l_p balls about 0 only."
        check.fail("domain", f"Ball(radius, p={exponent:g})", domain, remedy)
    if dim == 1:  # where all norms coincide, and errors of estimates just add
        exponent = 2.0
    space = geometry(exponent, dim, noise)
    radius = float(domain.max_norm(exponent, center, dim))
    diameter = 2.0 * radius
    beta = smoothness(facts, exponent) if beta is None else beta
    return TruncatedScales(
        num_records=facts.num_records,
        space=space,
        radius=radius,
        diameter=diameter,
        smoothness=beta,
        slope=optimal_slope + beta * diameter,
        moment=_moment(facts, exponent, moment),
        lipschitz=facts.lipschitz_or_inf(exponent),
        noise_bound=facts.lipschitz_or_inf(dual(space.noise_exponent)),
    )


def _moment(facts: PublicFacts, p: float, moment: float | None) -> float:
    """Return the given moment, or the one that the Lipschitz constant implies.

    E|g - E g|_2^2 <= L^2; in other norms |g - E g| <= 2 L.
    """
    if moment is not None:
        return moment
    bound = facts.lipschitz_or_inf(p)
    if math.isinf(bound):
        remedy = "Pass moment=..., a public bound of the gradients' deviation."
        check.fail("moment", "given without a Lipschitz constant", "None", remedy)
    return bound if dual(p) == 2.0 else 2.0 * bound


class TruncatedSchedule(NamedTuple):
    """Hyper-parameters of a run and the risk that they guarantee."""

    scheme: Scheme
    num_steps: int
    threshold: float
    step_size: float
    risk: float


def truncation(scales: TruncatedScales, threshold: Array) -> tuple[Array, Array]:
    """Bias and variance of one truncated gradient, for every threshold."""
    moment, slope = scales.moment, scales.slope
    slack = np.maximum(threshold - slope, 0.0)
    with np.errstate(divide="ignore"):
        dropped = np.minimum(1.0, (moment / slack) ** 2)
    dropped = np.where(threshold >= scales.lipschitz, 0.0, dropped)
    bias = moment * np.sqrt(dropped) + slope * dropped
    variance = moment**2 + slope**2 * dropped
    if not scales.is_euclidean:
        root = np.sqrt(variance)
        variance = (root + np.minimum(bias, root)) ** 2
    return bias, variance


def risks(
    scales: TruncatedScales,
    threshold: Array,
    *,
    num_steps: int,
    noise: float,
    copies: int,
    step_size: float | None,
) -> tuple[Array, Array]:
    """Risk bound and gamma of every threshold.

    ``noise`` is the standard deviation of Gaussian noise of a batch mean per unit of
    the record bound; ``copies`` as in `Geometry.perturbation`.
    """
    space, beta = scales.space, scales.smoothness
    size = scales.num_records // num_steps
    bias, variance = truncation(scales, threshold)
    sampling = space.kappa * variance / size
    noisy = (noise * scales.record_bound(threshold)) ** 2 * space.mean_square(copies)
    error = sampling + noisy
    if not scales.is_euclidean:
        error = (np.sqrt(sampling) + np.sqrt(noisy)) ** 2
    share = 0.5 * space.kappa * scales.radius**2 / num_steps
    gamma = beta + np.sqrt(0.5 * error / share)
    if step_size is not None:
        gamma = np.full(threshold.shape, 1.0 / step_size)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(error > 0.0, 0.5 * error / (gamma - beta), 0.0)
    total = gamma * share + moved + scales.diameter * bias
    return np.where(gamma >= beta, total, np.inf), gamma


def best_schedule(
    scales: TruncatedScales,
    budget: Budget | None,
    scheme: Scheme,
    *,
    num_steps: int | None,
    threshold: float | None,
    step_size: float | None,
) -> TruncatedSchedule:
    """Minimize `risks` over what is not given; "best": over both one-pass schemes."""
    largest = scales.num_records
    counts = np.unique(np.round(np.geomspace(1.0, largest, 100))).astype(int)
    steps = counts.tolist() if num_steps is None else [num_steps]
    scale = max(scales.moment, 1e-12 * scales.slope, 1e-300)
    thresholds = scales.slope + scale * np.geomspace(0.5, 1e6, 100)
    # A gradient may exceed the Lipschitz constant by rounding errors.
    top = scales.lipschitz * (1.0 + 1e-9)
    thresholds = np.unique(np.minimum(thresholds, top))
    if threshold is not None:
        thresholds = np.array([min(threshold, top)])
    schemes: tuple[Scheme, ...] = (scheme,)
    if scheme == "best":
        schemes = ("disjoint", "shuffle")
    found: list[TruncatedSchedule] = []
    for word in schemes:
        noise = forecast(word, budget, scales.num_records)
        for count in steps:
            copies = scales.num_records // count if word == "shuffle" else 1
            risk, gamma = risks(
                scales,
                thresholds,
                num_steps=count,
                noise=noise(count),
                copies=copies,
                step_size=step_size,
            )
            i = int(np.argmin(risk))
            plan = (float(thresholds[i]), 1.0 / float(gamma[i]), float(risk[i]))
            found.append(TruncatedSchedule(word, count, *plan))
    best = min(found, key=lambda schedule: schedule.risk)
    if num_steps is None and math.isinf(best.risk):
        remedy = "Give num_steps, or shorter steps."
        check.fail("step_size", "< 1/smoothness", f"{step_size!r}", remedy)
    return best
