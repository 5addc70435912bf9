"""Attacks on objective perturbation in one dimension, by exact arithmetic.

With 2 n lambda = L = 1 the perturbed minimizer solves S(theta) + G = 0, S(theta) =
theta + slope(theta), so P(theta <= a) = Phi(S(a) / stddev). A two-sided Huber loss of
curvature ``ratio`` around a center bends the law by 1 + ratio there, a linear one does
not: far out, Jacobian and shift add up. Cells of a grid give a lower bound of delta.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsample.core.arrays import Array
from dpsample.privacy.budget import Relation
from dpsample.privacy.printed import curves
from dpsample.privacy.printed.claim import Case, EpsilonAt

# Centers of the Huber loss, in standard deviations of the minimizer.
CENTERS = np.linspace(0.5, 6.0, 56)
COARSE, FINE = 1001, 1001
LARGEST_EPSILON = 64.0


def judged(shared: dict[str, Any], *, ratio: float, noise: float) -> Iterator[Case]:
    """Proved bound and attack of one printed noise, under both relations.

    ``ratio`` and ``noise`` as in `huber_attack`; ``shared`` holds the other fields.
    """
    relations: tuple[Relation, ...] = ("zero_out", "replace_one")
    for relation in relations:
        law: dict[str, Any] = {
            "ratio": ratio,
            "noise": noise,
            "delta": shared["delta"],
            "relation": relation,
        }
        yield Case(
            **shared,
            accounting="linear model, exact minimizer",
            relation=relation,
            meaning="upper bound",
            epsilon_at=curves.objective(**law),
        )
        rival = "a linear loss" if relation == "replace_one" else "none"
        yield Case(
            **shared,
            accounting=f"d = 1, Huber loss against {rival}",
            relation=relation,
            meaning="attack",
            epsilon_at=huber_attack(**law),
        )


def huber_attack(
    *, ratio: float, noise: float, delta: float, relation: Relation
) -> EpsilonAt:
    """Epsilon of the worst Huber loss against a linear one, or against none.

    ``ratio`` is beta / (2 n lambda), > 0, and ``noise`` the standard deviation of G
    over the Lipschitz constant. The Huber loss is replaced by a linear one, or set to
    zero. Epsilon at ``delta`` is attained, hence a lower bound.

    Examples
    --------
    >>> epsilon_at = huber_attack(
    ...     ratio=0.5, noise=13.572, delta=1e-8, relation="replace_one"
    ... )
    >>> epsilon_at(1.0) > 1.0
    True
    """
    other = 1.0 if relation == "replace_one" else 0.0

    def epsilon_at(factor: float) -> float:
        stddev = noise * factor
        pairs = [_masses(c * stddev, ratio, other, stddev) for c in CENTERS]
        low, high = 0.0, LARGEST_EPSILON
        while high - low > 1e-5 * high:
            middle = 0.5 * (low + high)
            is_told = divergence(pairs, middle) > delta
            low, high = (middle, high) if is_told else (low, middle)
        return low

    return epsilon_at


def divergence(pairs: list[tuple[Array, Array]], epsilon: float) -> float:
    """Largest hockey-stick divergence of the pairs, in both orders."""
    factor = np.exp(epsilon)
    return max(
        float(np.maximum(p - factor * q, 0.0).sum())
        for a, b in pairs
        for p, q in ((a, b), (b, a))
    )


def _masses(
    center: float, ratio: float, other: float, stddev: float
) -> tuple[Array, Array]:
    """Probabilities of the cells under the Huber loss and under the other slope."""
    from scipy.special import ndtr

    reach = 9.0 * stddev + 1.0
    bend = np.linspace(center - 1.0 / ratio, center + 1.0 / ratio, FINE)
    grid = np.union1d(np.linspace(-reach, reach, COARSE), bend)
    both = []
    for slope in (np.clip(ratio * (grid - center), -1.0, 1.0), other):
        ends = np.concatenate(([-np.inf], (grid + slope) / stddev, [np.inf]))
        low, high = ends[:-1], ends[1:]
        # Differences of small tails, not of numbers near 1.
        upper = ndtr(-low) - ndtr(-high)
        both.append(np.where(low > 0.0, upper, ndtr(high) - ndtr(low)))
    return both[0], both[1]
