"""Su, Zhao and Wang (2023): objective perturbation and mirror descent in l_p.

In formulas n is the number of records, d that of coefficients, T that of steps, L the
Lipschitz constant of a loss, beta its smoothness, lambda the ridge, Delta the strong
convexity, kappa the regularity of the norm, sigma the noise and C the domain. Codes
such as gradient-E5 are entries of docs/errata.md.
"""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
from dpsample.papers.bounds import log_inverse, register_bound
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


# Su, Zhao and Wang (2023). G_C is the Gaussian width, width the diameter |C|_2.


@register_bound("su", "Lemma 2")
def gaussian_variance(*, epsilon: float, delta: float, Delta_2: float) -> float:
    r"""Return the bound of Lemma 2.

    :math:`2 \Delta_2^2 \log(1.25/\delta)/\epsilon^2`, the variance of a coordinate.

    Gaussian mechanism of l_2 sensitivity Delta_2.
    """
    return 2.0 * Delta_2**2 * math.log(1.25 / delta) / epsilon**2


@register_bound("su", "Lemma 3")
def generalized_gaussian_variance(
    *, epsilon: float, delta: float, kappa: float, s: float
) -> float:
    r"""Return the bound of Lemma 3.

    :math:`2 \kappa \log(1/\delta) s^2/\epsilon^2`, the sigma^2 of the noise.

    Generalized Gaussian mechanism of sensitivity s in a kappa-regular dual norm.
    """
    return 2.0 * kappa * log_inverse(delta) * s**2 / epsilon**2


@register_bound("su", "Lemma 4")
def noise_moment(*, d: int, m: float, sigma: float) -> float:
    r"""Return the bound of Lemma 4.

    :math:`(2 \sigma^2)^{m/2} \Gamma(\frac{m+d}2)/\Gamma(\frac d2)`.

    Bound of the m-th moment of the smooth norm of generalized Gaussian noise, m >= 1.
    """
    logs = math.lgamma(0.5 * (m + d)) - math.lgamma(0.5 * d)
    return float((2.0 * sigma**2) ** (0.5 * m) * math.exp(logs))


@register_bound("su", "Theorem 2")
def width_risk(
    *,
    n: int,
    epsilon: float,
    delta: float,
    L: float,
    G_C: float,
    diameter: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 2.

    :math:`O(\frac{L G_C \sqrt{\log(1/\delta)}}{\epsilon n} + \frac{L |C|_2}{\sqrt n})`.

    Mean excess population loss of Algorithm 1, :math:`n \ge r^2 \beta^2
    |C|_2^2/(\epsilon L)^2`, :math:`n \ge O(\sqrt{d \log(1/\delta)}/\epsilon)`,
    :math:`\lambda = L/(\sqrt n |C|_2)`, and alpha as stated.
    """
    privacy = G_C * math.sqrt(log_inverse(delta)) / (epsilon * n)
    return c * L * (privacy + diameter / math.sqrt(n))


@register_bound("su", "Theorem 4")
def strongly_convex_width_risk(
    *,
    n: int,
    epsilon: float,
    delta: float,
    L: float,
    G_C: float,
    diameter: float,
    Delta: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 4.

    :math:`O(\frac{L^2 |C|_2^2}{\Delta n \epsilon} + \frac{G_C^2 L^2
    \log(1/\delta)}{\Delta n^2 \epsilon^2})`.

    Mean excess population loss of Algorithm 2 for losses that are Delta-strongly convex
    in the norm of C, n large and alpha small enough as stated.
    """
    first = diameter**2 / (n * epsilon)
    return c * L**2 / Delta * (first + G_C**2 * log_inverse(delta) / (n * epsilon) ** 2)


@register_bound("su", "Theorem 5")
def width_lower_bound(
    *, n: int, d: int, epsilon: float, delta: float, G_C: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 5.

    :math:`\Omega(\max\{\frac{G_C^2 \log(1/\delta)}{(\log 2d)^4 \epsilon^2 n^2}, \frac
    1n\})`.

    Excess loss of every private algorithm on some 1-Lipschitz loss that is
    C_min^2-strongly convex in the norm of C, which is symmetric, in the unit ball, of
    diameter 1.
    """
    width = G_C**2 * log_inverse(delta) / (math.log(2.0 * d) ** 4 * (epsilon * n) ** 2)
    return c * max(width, 1.0 / n)


@register_bound("su", "Theorem 7")
def mirror_descent_risk(
    *, n: int, d: int, epsilon: float, delta: float, kappa: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 7.

    :math:`\tilde O(\kappa^{4/5} (\sqrt{d \log(1/\delta)}/(n \epsilon))^{2/5})`.

    Mean excess population loss of Algorithm 3, 1 < p < 2, convex beta-smooth
    L-Lipschitz losses, alpha and T as stated; beta, L and the norm of the empirical
    minimizer are hidden.
    """
    rate = math.sqrt(d * log_inverse(delta)) / (n * epsilon)
    return float(c * kappa**0.8 * rate**0.4)


@register_bound("su", "Theorem 8")
def phased_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    p: float,
    distance: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 8.

    :math:`O(d^{1 - 2/p} |\theta^*|^2 (\frac1{\sqrt n} + \frac{\sqrt{d
    \log(1/\delta)}}{\epsilon n}))`.

    Mean excess population loss of some private algorithm on the whole space, p >= 2,
    convex smooth Lipschitz losses; ``distance`` is the l_p norm of theta*.
    """
    rate = n**-0.5 + math.sqrt(d * log_inverse(delta)) / (epsilon * n)
    return float(c * d ** (1.0 - 2.0 / p) * distance**2 * rate)


@register_bound("su", "Theorem 10")
def truncated_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    kappa: float,
    M: float,
    failure: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 10.

    :math:`\tilde O(M (\kappa^2 d \log(1/\delta))^{1/4} \log(1/\delta')/\sqrt{n
    \epsilon})`.

    Excess population loss of Algorithm 4 with probability 1 - delta' over the records,
    1 < p < 2, :math:`n \ge O(\max\{\beta^2, 1\} M^2 \sqrt{d \kappa^2
    \log(1/\delta)}/\epsilon)`; ``failure`` is delta'.
    """
    rate = (kappa**2 * d * log_inverse(delta)) ** 0.25 / math.sqrt(n * epsilon)
    return float(c * M * rate * log_inverse(failure))
