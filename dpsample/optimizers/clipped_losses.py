"""What is publicly known of a clipped loss: slopes, curvature, bias, noise.

For a loss phi(<a, w>) of a linear margin, clipping gradients at C is not a heuristic:
the clipped gradient is that of the convex loss whose slope is phi' clipped at C/|a|.
"""

from __future__ import annotations

import math

from dpsample.domains import SchattenBall
from dpsample.facts import PublicFacts
from dpsample.losses import PowerFour
from dpsample.norms import conversion
from dpsample.privacy.smoothness import smoothness

CLIPPED_GRADIENT = (
    "for losses of a linear margin, clipped gradients are the gradients of a convex "
    "loss whose Lipschitz constant is the clipping threshold"
)


def slope_bound_or_inf(facts: PublicFacts) -> float:
    """Public bound of |phi'| on the domain; infinite where there is none."""
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    slope = float(facts.loss.slope_bound(facts.margin_bound, bound))
    return slope if math.isfinite(slope) else math.inf


def lipschitz_or_inf(facts: PublicFacts) -> float:
    """l2 Lipschitz constant of one record's loss; infinite where there is none."""
    slope = slope_bound_or_inf(facts)
    return facts.lipschitz(2.0) if math.isfinite(slope) else math.inf


def row_bound(facts: PublicFacts) -> float:
    """Bound of the l2 norm of a row."""
    size = facts.dim
    if isinstance(facts.domain, SchattenBall):
        size = min(facts.domain.shape)
    return float(facts.full_row_bound * conversion(size, facts.row_norm, 2.0))


def clipped_smoothness(facts: PublicFacts, clip: float) -> float:
    """Bound of the curvature of one record's loss, clipped at ``clip``.

    A quartic loss keeps phi'' = 12 e^2 only where 4 |e|^3 |a| <= C: clipped, its
    curvature is at most 12 (C/4)^(2/3) |a|^(4/3), on any domain.
    """
    if not isinstance(facts.loss, PowerFour) or math.isinf(clip):
        return smoothness(facts)
    clipped = float(12.0 * (0.25 * clip * row_bound(facts) ** 2) ** (2.0 / 3.0))
    if math.isinf(lipschitz_or_inf(facts)):
        return clipped
    return min(clipped, smoothness(facts))


def clipping_bias(moment: float, order: float, clip: float) -> float:
    """Bound of |E clipped - E gradient|, E |gradient|^k <= moment^k: Markov's."""
    if math.isinf(clip):
        return 0.0
    return float(moment * (moment / clip) ** (order - 1.0) / (order - 1.0))


def clipped_root_mean_square(moment: float, order: float, clip: float) -> float:
    """Bound of (E |clipped gradient|^2)^(1/2), E |gradient|^k <= moment^k."""
    if order >= 2.0:
        return min(moment, clip)
    return min(math.sqrt(clip ** (2.0 - order) * moment**order), clip)


def descent_sensitivity(
    *,
    record_bound: float,
    num_records: int,
    step_size: float,
    smoothness: float,
    ridge: float,
    num_steps: int,
) -> float:
    """How far one record moves w_T of full-batch projected gradient descent.

    A step on a convex loss with a ridge is rho-Lipschitz, rho = max(|1 - eta lambda|,
    |1 - eta (lambda + smoothness)|), and a record of bound C shifts it by eta C/n:
    eta C/n (1 + rho + ... + rho^(T-1)), at most C/(n lambda) for eta <= 2/(smoothness +
    2 lambda). (Not so for other losses: gradient-E15.)
    """
    low, high = step_size * ridge, step_size * (ridge + smoothness)
    rho = max(abs(1.0 - low), abs(1.0 - high))
    if rho > 1.0 and num_steps * math.log(rho) > 700.0:
        return math.inf
    away = 1.0 - rho
    total = float(num_steps)
    if abs(away) * num_steps > 1e-12:
        total = -math.expm1(num_steps * math.log(rho)) / away if rho > 0.0 else 1.0
    return step_size * record_bound / num_records * total
