"""Public numbers of one pass of truncated mirror descent."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsample import _check as check
from dpsample.domains import Ball
from dpsample.facts import PublicFacts
from dpsample.norms import dual
from dpsample.optimizers.mirror_geometry import (
    Geometry,
    NoiseName,
    geometry,
    gradient_bound,
)
from dpsample.privacy.smoothness import smoothness


class Scales(NamedTuple):
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
) -> Scales:
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
    return Scales(
        num_records=facts.num_records,
        space=space,
        radius=radius,
        diameter=diameter,
        smoothness=beta,
        slope=optimal_slope + beta * diameter,
        moment=_moment(facts, exponent, moment),
        lipschitz=gradient_bound(facts, exponent),
        noise_bound=gradient_bound(facts, dual(space.noise_exponent)),
    )


def _moment(facts: PublicFacts, p: float, moment: float | None) -> float:
    """Return the given moment, or the one that the Lipschitz constant implies.

    E|g - E g|_2^2 <= L^2; in other norms |g - E g| <= 2 L.
    """
    if moment is not None:
        return moment
    bound = gradient_bound(facts, p)
    if math.isinf(bound):
        remedy = "Pass moment=..., a public bound of the gradients' deviation."
        check.fail("moment", "given without a Lipschitz constant", "None", remedy)
    return bound if dual(p) == 2.0 else 2.0 * bound
