"""Xie et al. (2022, Statistica Sinica preprint SS-2022-0282): heavy-tailed SGD.

In formulas n is the number of records, m that of a batch, T that of steps, C the bound
to which gradients are clipped and sigma the standard deviation of the noise. Codes such
as gradient-E25 are entries of docs/errata.md.
"""

import math
from collections.abc import Iterator

from dpsample.papers import curves
from dpsample.papers.bounds import log_inverse, register_bound
from dpsample.papers.claim import Case
from dpsample.privacy.budget import Relation

# Delta is one over the number of records.
DELTA = 1e-4
LOG = math.log(1.0 / DELTA)
CLIPPED = "sigma = C sqrt(log(1/delta)) / (m epsilon)"
ROBUST = "sigma = sensitivity * sqrt(log(1/delta)) / epsilon"
POISSON = "Poisson sampling"
FIXED = "fixed size, pair "
# Noise is relative to C, the bound of one record (Algorithm 1), or to what a replaced
# record moves, two bounds of one. The last entry is the multiple that is accounted for.
SAMPLED: tuple[tuple[str, str, str, Relation, float], ...] = (
    ("Algorithm 1", CLIPPED, POISSON, "zero_out", 1.0),
    ("Algorithm 1", CLIPPED, POISSON, "replace_one", 1.0),
    ("Algorithm 1", CLIPPED, f"{FIXED}(2C, 0)", "replace_one", 0.5),
    ("Algorithm 4", ROBUST, POISSON, "replace_one", 2.0),
    ("Algorithm 2", ROBUST, f"{POISSON}, pair (sensitivity, 0)", "replace_one", 1.0),
    ("Algorithms 2 and 4", ROBUST, f"{FIXED}(sensitivity, 0)", "replace_one", 1.0),
)


def cases() -> Iterator[Case]:
    """Yield Algorithms 1 (clipping), 2 and 4 (medians, soft truncation), 3 (one mean).

    Noise without T (gradient-E25); Algorithm 1 counts a replaced record once, although
    it moves the sum by 2 C (gradient-E31).
    """
    epsilons = (0.5, 1.0, 3.0)
    # The simulations have T = 5 n^2 / m^2 steps of batches of m records.
    simulations = (
        ("Section 6.1: n = 1e4, m = n/6, T = 180", 1.0 / 6.0, 180),
        ("Section 6.1: n = 1e4, m = n/10, T = 500", 0.1, 500),
        # A constant with which Proposition 1 holds: T = 0.1 n^2/m^2.
        ("n = 1e4, m = n/10, T = 10", 0.1, 10),
    )
    for setting, rate, num_steps in simulations:
        for epsilon in epsilons:
            yield from _subsampled_cases(setting, rate, num_steps, epsilon)
    for epsilon in epsilons:
        yield _full_batch_case(epsilon, DELTA, num_steps=5)
        yield _full_batch_case(epsilon, DELTA, num_steps=1)


def _subsampled_cases(
    setting: str, rate: float, num_steps: int, epsilon: float
) -> Iterator[Case]:
    """Yield accounts of Poisson samples, and attacks on fixed batches and on medians.

    In an attack one record moves the output or does not, which is the pair of Poisson
    sampling under zero_out. Buckets for medians are formed by position. Without the
    record, a median may be the same as with one of its two values, and need not lie
    midway between them.
    """
    for algorithm, formula, accounting, relation, factor in SAMPLED:
        is_attack = accounting != POISSON
        yield Case(
            paper="xie",
            place=algorithm,
            formula=formula,
            setting=setting,
            accounting=accounting,
            relation=relation,
            epsilon=epsilon,
            delta=DELTA,
            meaning="attack" if is_attack else "exact",
            epsilon_at=curves.poisson(
                sampling_rate=rate,
                noise_multiplier=factor * (math.sqrt(LOG) / epsilon),
                num_steps=num_steps,
                delta=DELTA,
                relation="zero_out" if is_attack else relation,
            ),
        )


def _full_batch_case(epsilon: float, delta: float, *, num_steps: int) -> Case:
    """Return the case of all records in every step, or of one mean (Algorithm 3)."""
    gdp = epsilon * math.sqrt(num_steps / math.log(1.0 / delta))
    return Case(
        paper="xie",
        place="Algorithm 3" if num_steps == 1 else "Algorithms 2 and 4",
        formula=ROBUST,
        setting="one mean" if num_steps == 1 else f"n = 1e4, m = n, T = {num_steps}",
        accounting="exact Gaussian curve",
        relation="replace_one",
        epsilon=epsilon,
        delta=delta,
        epsilon_at=curves.gaussian(gdp, delta),
    )


# Xie et al. (2022). p is the number of columns, k the order of the bounded moment.


@register_bound("xie", "Theorem 1")
def proximal_risk(*, Delta: float, T: int, gamma: float, bias: float) -> float:
    r"""Return the bound of Theorem 1.

    :math:`\frac{\Delta^2}{2 T \gamma_{T-1}} + \frac\Delta T \sum_t Bias_t`.

    Mean excess population risk of Algorithm 1 under (A1) to (A3), steps that do not
    grow and are at most 1/K_1; ``bias`` is the mean over steps.
    """
    return Delta**2 / (2.0 * T * gamma) + Delta * bias


@register_bound("xie", "Theorem 2")
def robust_mean_error(
    *,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    rho: float,
    zeta: float,
    k: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 2.

    :math:`O(\frac{\varrho \log(p/\zeta) \sqrt{p \log(1/\delta)}}{n \epsilon} (\sqrt p +
    \sqrt{\log(1/\zeta)}) + \sqrt p (\sqrt{\log(p/\zeta)/n} + (4/\varrho)^{k-1}))`.

    Error of Algorithm 3 with probability 1 - zeta, central moments of order k at most 1
    in each coordinate, :math:`\varrho \ge 4 |\mu|_\infty`; ``rho`` is varrho.
    """
    log_term = math.log(p / zeta)
    noise = rho * log_term * math.sqrt(p * log_inverse(delta)) / (n * epsilon)
    noise *= math.sqrt(p) + math.sqrt(log_inverse(zeta))
    rest = math.sqrt(p) * (math.sqrt(log_term / n) + (4.0 / rho) ** (k - 1.0))
    return float(c * (noise + rest))


@register_bound("xie", "Corollary 1")
def median_risk(
    *,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    T: int,
    zeta: float,
    k: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Corollary 1.

    :math:`\tilde O(T^{-1/2} + p^{3/2} \log(1/\zeta) (\sqrt{p \log(1/\delta) T}/(n
    \epsilon))^{(k-1)/k})`.

    Excess population risk of Algorithm 2 with probability 1 - zeta under (A1) to (A5).
    """
    rate = math.sqrt(p * log_inverse(delta) * T) / (n * epsilon)
    return float(c * (T**-0.5 + p**1.5 * log_inverse(zeta) * rate ** ((k - 1.0) / k)))


@register_bound("xie", "Theorem 3")
def soft_truncation_error(
    *,
    m: int,
    p: int,
    epsilon: float,
    delta: float,
    tau: float,
    zeta: float,
    Delta: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 3.

    :math:`O(\sqrt{p \tau \log^{1/2}(1/\delta) (\log(p/\zeta) + p \log(\Delta \sqrt
    m))/(m \epsilon)})`.

    Error of the gradients of Algorithm 4, uniformly, with probability 1 - zeta under
    (A2) to (A4) and (A6), :math:`m = O(n/\sqrt T)`.
    """
    logs = math.log(p / zeta) + p * math.log(Delta * math.sqrt(m))
    return c * math.sqrt(p * tau * math.sqrt(log_inverse(delta)) * logs / (m * epsilon))


@register_bound("xie", "Corollary 2")
def soft_truncation_risk(
    *,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    T: int,
    zeta: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Corollary 2.

    :math:`\tilde O(T^{-1/2} + p \log^{1/4}(1/\delta) \log^{1/2}(1/\zeta)
    T^{1/4}/\sqrt{n \epsilon})`.

    Excess population risk of Algorithm 4 with probability 1 - zeta under (A1) to (A4)
    and (A6).
    """
    noise = p * log_inverse(delta) ** 0.25 * math.sqrt(log_inverse(zeta)) * T**0.25
    return float(c * (T**-0.5 + noise / math.sqrt(n * epsilon)))
