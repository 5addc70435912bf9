"""Su, Zhao and Wang (2023): objective perturbation and mirror descent in l_p."""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
from dpsample.papers.claim import Case, EpsilonAt
from dpsample.papers.curves import objective_cases

EPSILON = 1.0
DELTA = 1e-8
# Algorithm 1 spends half of the budget on each of its two noises.
HALF = 0.5 * EPSILON
HALF_DELTA = 0.5 * DELTA
TILT = "sigma_1^2 = 128 L^2 log(2.5/delta) / epsilon^2"
UNPROVED: dict[str, Any] = {
    "paper": "su",
    "relation": "replace_one",
    "epsilon": EPSILON,
    "delta": DELTA,
    "meaning": "unproved",
}


def cases() -> Iterator[Case]:
    """Yield Algorithms 1 to 4."""
    yield from _objective()
    yield from _mirror_descent()
    yield Case(
        **UNPROVED,
        place="Algorithm 4",
        formula="sigma_1^2 = O(kappa log(n/delta) log(1/delta) / (n epsilon^2))",
        setting="constant not given",
        hidden="sigma_1",
        accounting="shuffled generalized Gaussian noise",
    )


def _objective() -> Iterator[Case]:
    """Yield Algorithm 1, whose two parts have half of the budget each.

    lambda = r beta / (epsilon n), with r = min(d, 2) for linear models.

    With r = 1 in one dimension the first half fails (gradient-E5).
    """
    for rank, delta in ((2, DELTA), (1, 1e-5)):
        shared = {
            "paper": "su",
            "place": "Algorithm 1, first half",
            "formula": TILT,
            "setting": f"half of (1, {delta:g}), linear model, r = {rank}",
            "epsilon": HALF,
            "delta": 0.5 * delta,
        }
        noise = math.sqrt(128.0 * math.log(2.5 / delta)) / EPSILON
        yield from objective_cases(shared, ratio=0.5 * EPSILON / rank, noise=noise)
    # Distance 2 sqrt(alpha / lambda), as lambda |theta|^2 is 2 lambda-convex.
    yield Case(
        paper="su",
        place="Algorithm 1, second half",
        formula="sigma_2^2 = 64 alpha log(2.5/delta) / (lambda epsilon^2)",
        setting="half of (1, 1e-8), distance 2 sqrt(alpha/lambda)",
        accounting="exact Gaussian curve",
        relation="replace_one",
        epsilon=HALF,
        delta=HALF_DELTA,
        epsilon_at=curves.gaussian(
            2.0 * EPSILON / math.sqrt(64.0 * math.log(2.5 / DELTA)), HALF_DELTA
        ),
    )
    yield Case(
        **UNPROVED,
        place="Algorithm 1",
        formula=TILT,
        setting="losses that are not of a linear model (gradient-E5)",
        accounting="none applies",
    )
    yield Case(
        paper="su",
        place="Algorithm 2",
        formula=TILT,
        setting="lambda = beta / (epsilon n) - Delta, d = 1, C = [-10, 10], n = 1000",
        accounting="exact distribution of the minimizer around 0 (gradient-E6)",
        relation="replace_one",
        epsilon=HALF,
        delta=DELTA,
        meaning="attack",
        epsilon_at=strongly_convex(HALF, DELTA),
    )


def strongly_convex(epsilon: float, delta: float) -> EpsilonAt:
    """Return a lower bound of epsilon if Delta is measured in the norm of C.

    In one dimension with L = beta = 1, n = 1000 and C = [-10, 10]: theta solves
    common theta + slope + G = 0, where one record has the slope of a Huber loss, or
    zero. It is below L on [-0.99, 0.99]. The ridge lambda theta^2 has the curvature 2
    lambda, whereas Delta in the norm of C is a curvature of Delta/10^2 only.
    """
    n, radius = 1000, 10.0
    convexity = 0.95 / (epsilon * n)
    ridge, curvature = 1.0 / (epsilon * n) - convexity, convexity / radius**2
    common = n * (2.0 * ridge + curvature)
    stddev = math.sqrt(128.0 * math.log(2.5 / delta)) / epsilon

    def epsilon_at(factor: float) -> float:
        from scipy.special import ndtr

        bent, straight = (
            2.0 * ndtr(0.99 * (common + bend) / (stddev * factor)) - 1.0
            for bend in (1.0 - curvature, 0.0)
        )
        return math.log(max((bent - delta) / straight, 1.0))

    return epsilon_at


def _mirror_descent() -> Iterator[Case]:
    """Yield Algorithm 3: T full batches of sensitivity 2 L / n.

    gdp = epsilon/(4 sqrt(log(1/delta))). If kappa is 2 log d, regularity needs 2 e log
    d instead (gradient-E4).
    """
    delta = 1e-6
    gdp = EPSILON / (4.0 * math.sqrt(math.log(1.0 / delta)))
    for setting, loss in (
        ("kappa = 1/(p - 1)", 1.0),
        ("kappa = 2 log d instead of 2 e log d", math.e),
    ):
        yield Case(
            paper="su",
            place="Algorithm 3, Theorem 6",
            formula="sigma^2 = 64 L^2 kappa T log(1/delta) / (n epsilon)^2",
            setting=setting,
            accounting="generalized Gaussian noise, T full batches",
            relation="replace_one",
            epsilon=EPSILON,
            delta=delta,
            meaning="upper bound",
            epsilon_at=curves.gaussian(gdp * math.sqrt(loss), delta),
        )
