"""Gopi, Lee, Liu, Shen and Tian (2022): the exponential mechanism in general norms.

The mechanism draws from exp(-k (F + mu r)), where F is the mean loss of n records in d
dimensions, G its Lipschitz constant and r a 1-strongly convex regularizer of range
Theta. Codes such as GLLST-E1 are entries of docs/errata.md.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsample.papers import curves
from dpsample.papers.bounds import log_half, log_inverse, register_bound
from dpsample.papers.claim import Case, EpsilonAt
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import gaussian_delta, paper_gdp

# Published ratio of k and mu, and pairs of epsilon and delta at which it is evaluated.
FORMULA = "k/mu = (n epsilon / G)^2 / (2 log(1/(2 delta)))"
REPLACED = ((1.0, 1e-3), (1.0, 1e-5), (1.0, 1e-8), (0.1, 1e-8), (4.0, 1e-5))
ZEROED = ((1.0, 1e-5), (4.0, 1e-5), (8.0, 1e-5), (16.0, 1e-5))


def cases() -> Iterator[Case]:
    """Yield Theorems 3 to 6 under both relations, and the corollaries.

    The theorems charge G / n for a replaced record, which moves the objective by
    2 G / n (GLLST-E1), and use a gdp that Fact 2 does not imply (GLLST-E2).
    """
    settings: tuple[tuple[str, Relation, str, float, Any], ...] = (
        ("Theorems 3 to 6", "replace_one", "2G/n", 2.0, REPLACED),
        ("Theorems 3 and 4", "zero_out", "G/n", 1.0, ZEROED),
    )
    for theorems, relation, difference, moves, budgets in settings:
        for epsilon, delta in budgets:
            yield Case(
                paper="gopi",
                place=theorems,
                formula=FORMULA,
                setting="supremum over d, linear losses",
                accounting=f"exact Gaussian curve, difference {difference}",
                relation=relation,
                epsilon=epsilon,
                delta=delta,
                epsilon_at=curves.gaussian(moves * paper_gdp(epsilon, delta), delta),
            )
    for dim in (1, 2, 5, 10, 50):
        yield _ball_case(dim, 1.0, 1e-5)
    # The corollaries spend half of delta on the error of a sampler. But a sampler may
    # leave out an event of mass delta/2 on one of the two data sets alone.
    yield Case(
        paper="gopi",
        place="Corollaries 2 to 5, proof",
        formula="(epsilon, delta/2) and a total variation of delta/2",
        setting="any",
        accounting="a total variation costs (1 + e^epsilon) times itself (GLLST-E5)",
        relation="replace_one",
        epsilon=1.0,
        delta=1e-6,
        epsilon_at=lambda factor: math.inf,
    )


def _ball_case(dim: int, epsilon: float, delta: float) -> Case:
    """Return Theorem 3 on an l_2 ball, where it holds for d = 1 (GLLST-E1)."""
    return Case(
        paper="gopi",
        place="Theorem 3",
        formula=FORMULA,
        setting=f"l_2 ball, d = {dim}, linear losses",
        accounting="opposite losses, worst center, by quadrature",
        relation="replace_one",
        epsilon=epsilon,
        delta=delta,
        meaning="attack",
        epsilon_at=ball_attack(dim=dim, epsilon=epsilon, delta=delta),
    )


def ball_attack(*, dim: int, epsilon: float, delta: float) -> EpsilonAt:
    """Return epsilon of two opposite linear losses under Theorem 3 on an l_2 ball.

    In units of the standard deviation 1/sqrt(k mu) the ball of radius R has the radius
    sqrt(2 d), because k mu = d/Theta and Theta = R^2/2. A loss of slope +-G moves the
    mean by gdp/2 to either side of a center, which the other records choose. The
    component along the slope has a normal density times the probability that the others
    stay inside the ball.

    >>> for dim in (1, 2):
    ...     attained = ball_attack(dim=dim, epsilon=1.0, delta=1e-5)(1.0)
    ...     print(f"{attained:.2f}")
    0.94
    1.20
    """
    shift = paper_gdp(epsilon, delta)
    # Centers in standard deviations, among which the worst one is taken.
    centers = (0.0, *np.geomspace(0.25, 32.0, 15))

    def epsilon_at(factor: float) -> float:
        radius = math.sqrt(2.0 * dim) / factor
        # Middles of cells. Finer grids change epsilon by less than 0.2%.
        x = radius * (np.arange(0.5, 10_001.0) / 5000.5 - 1.0)
        inside = curves.chi_square_mass(radius**2 - x**2, dim - 1)
        pairs = []
        for center in centers:
            logs = [-0.5 * (x - center - s * shift / factor) ** 2 for s in (-1.0, 1.0)]
            masses = [np.exp(log - log.max()) * inside for log in logs]
            pairs.append((masses[0] / masses[0].sum(), masses[1] / masses[1].sum()))
        return curves.attained_epsilon(pairs, delta)

    return epsilon_at


# Gopi et al. (2022). G is the Lipschitz constant, Theta the range of the regularizer.


@register_bound("gopi", "Theorem 1", "empirical")
@register_bound("gopi", "Theorem 3")
def mechanism_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, Theta: float
) -> float:
    r"""Return the bound of Theorem 3.

    :math:`G \sqrt\Theta \sqrt{8 d \log\frac1{2\delta}}/(n \epsilon)`.

    Mean excess empirical loss of a draw, :math:`k = \sqrt d n \epsilon/(G \sqrt{2
    \Theta \log\frac1{2\delta}})`, :math:`\mu = G \sqrt{2 d
    \log\frac1{2\delta}}/(\sqrt\Theta n \epsilon)`, delta < 1/2.
    """
    return G * math.sqrt(Theta * 8.0 * d * log_half(delta)) / (n * epsilon)


@register_bound("gopi", "Theorem 1", "population")
@register_bound("gopi", "Theorem 4")
def mechanism_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, Theta: float
) -> float:
    r"""Return the bound of Theorem 4.

    :math:`G \sqrt\Theta (\sqrt{8 d \log\frac1{2\delta}}/(n \epsilon) + \sqrt{8/n})`.

    Mean excess population loss of a draw with k and mu of Theorem 4, delta < 1/2.
    """
    privacy = math.sqrt(8.0 * d * log_half(delta)) / (n * epsilon)
    return G * math.sqrt(Theta) * (privacy + math.sqrt(8.0 / n))


@register_bound("gopi", "Theorem 2")
def gaussian_comparison(*, epsilon: float, G: float, mu: float) -> float:
    r"""Return the bound of Theorem 2.

    :math:`\delta(N(0, 1) \| N(G/\sqrt\mu, 1))(\epsilon)`.

    Privacy curve of exp(-F) and exp(-F~), both mu-strongly convex, F - F~ G-Lipschitz.
    """
    return gaussian_delta(epsilon, G / math.sqrt(mu))


@register_bound("gopi", "Theorem 5")
def strongly_convex_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, mu: float
) -> float:
    r"""Return the bound of Theorem 5.

    :math:`2 d G^2 \log\frac1{2\delta}/(n^2 \epsilon^2 \mu)`.

    Mean excess empirical loss of a draw for mu-strongly convex losses, :math:`k = n^2
    \epsilon^2 \mu/(2 G^2 \log\frac1{2\delta})`, delta < 1/2.
    """
    return 2.0 * d * G**2 * log_half(delta) / ((n * epsilon) ** 2 * mu)


@register_bound("gopi", "Theorem 6")
def strongly_convex_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, mu: float
) -> float:
    r"""Return the bound of Theorem 6.

    :math:`\frac{G^2}{n \mu} (1 + 2 d \log\frac1{2\delta}/(n \epsilon^2))`.

    Mean excess population loss of a draw with k of Theorem 5, delta < 1/2.
    """
    return G**2 / (n * mu) * (1.0 + 2.0 * d * log_half(delta) / (n * epsilon**2))


@register_bound("gopi", "Corollary 1")
def distance_of_means(*, G: float, H: float, mu: float) -> float:
    r"""Return the bound of Corollary 1.

    :math:`G H/\mu`.

    Difference of the means of a G-Lipschitz function under two mu-strongly log-concave
    densities whose log-ratio is H-Lipschitz.
    """
    return G * H / mu


def _queries(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, power: float
) -> float:
    """Return n^2 epsilon^2 d^power / log(1/delta) log^2(G D d n epsilon/delta)."""
    logs = math.log(G * D * d * n * epsilon / delta) ** 2 / log_inverse(delta)
    return float((n * epsilon) ** 2 * d**power * logs)


@register_bound("gopi", "Corollary 2", "(7), empirical")
def lp_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 2, empirical.

    :math:`2 G D \sqrt{d \log\frac1{2\delta}}/(n \epsilon \sqrt{p - 1})`.

    Equation (7), mean excess empirical loss of some private algorithm, 1 < p <= 2,
    delta < 1/2, l_p diameter at most D.
    """
    return 2.0 * G * D * math.sqrt(d * log_half(delta) / (p - 1.0)) / (n * epsilon)


@register_bound("gopi", "Corollary 2", "(9), population")
def lp_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 2, population.

    :math:`2 G D (1/\sqrt{n (p-1)} + \sqrt{d \log\frac1{2\delta}}/(n \epsilon
    \sqrt{p-1}))`.

    Equation (9), mean excess population loss of some private algorithm, 1 < p <= 2.
    """
    rest = 2.0 * G * D / math.sqrt(n * (p - 1.0))
    return rest + lp_empirical_risk(
        n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D, p=p
    )


@register_bound("gopi", "Corollary 2", "(8), queries")
def lp_queries(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    G: float,
    D: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Corollary 2, queries.

    :math:`O(n^2 \epsilon^2 d^{2/p - 1}/\log(1/\delta) \log^2(G D d n
    \epsilon/\delta))`.

    Equation (8), value queries, 1 < p <= 2.
    """
    power = 2.0 / p - 1.0
    return c * _queries(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D, power=power)


@register_bound("gopi", "Corollary 3", "(10), empirical")
def l1_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float
) -> float:
    r"""Return the bound of Corollary 3, empirical.

    :math:`6 G D \sqrt{\log d} \sqrt{d \log\frac1{2\delta}}/(n \epsilon)`.

    Equation (10), mean excess empirical loss of some private algorithm in l_1.
    """
    return 6.0 * G * D * math.sqrt(math.log(d) * d * log_half(delta)) / (n * epsilon)


@register_bound("gopi", "Corollary 3", "(12), population")
def l1_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float
) -> float:
    r"""Return the bound of Corollary 3, population.

    :math:`6 G D \sqrt{\log d} (1/\sqrt n + \sqrt{d \log\frac1{2\delta}}/(n \epsilon))`.

    Equation (12), mean excess population loss of some private algorithm in l_1.
    """
    rest = 6.0 * G * D * math.sqrt(math.log(d) / n)
    return rest + l1_empirical_risk(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D)


@register_bound("gopi", "Corollary 3", "(11), queries")
def l1_queries(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    G: float,
    D: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Corollary 3, queries.

    :math:`O(n^2 \epsilon^2 d/\log(1/\delta) \log^2(G D d n \epsilon/\delta))`.

    Equation (11), value queries in l_1.
    """
    return c * _queries(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D, power=1.0)


@register_bound("gopi", "Corollary 4", "(13), empirical")
def large_p_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 4, empirical.

    :math:`2 G D d^{1 - 1/p} \sqrt{\log\frac1{2\delta}}/(n \epsilon)`.

    Equation (13), mean excess empirical loss of some private algorithm, p >= 2.
    """
    power = d ** (1.0 - 1.0 / p)
    return float(2.0 * G * D * power * math.sqrt(log_half(delta)) / (n * epsilon))


@register_bound("gopi", "Corollary 4", "(15), population")
def large_p_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 4, population.

    :math:`2 G D (d^{1/2 - 1/p}/\sqrt n + d^{1 - 1/p} \sqrt{\log\frac1{2\delta}}/(n
    \epsilon))`.

    Equation (15), mean excess population loss of some private algorithm, p >= 2.
    """
    rest = 2.0 * G * D * d ** (0.5 - 1.0 / p) / math.sqrt(n)
    return float(
        rest
        + large_p_empirical_risk(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D, p=p)
    )


@register_bound("gopi", "Corollary 4", "(14), queries")
def large_p_queries(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    G: float,
    D: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Corollary 4, queries.

    :math:`O(n^2 \epsilon^2 d^{1 - 2/p}/\log(1/\delta) \log^2(G D d n
    \epsilon/\delta))`.

    Equation (14), value queries, p >= 2.
    """
    power = 1.0 - 2.0 / p
    return c * _queries(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D, power=power)


def _schatten_width(d_2: int, p: float) -> float:
    """Return the factor of Corollary 5 that depends on p and the smaller side."""
    if p == 1.0:
        return 6.0 * math.sqrt(math.log(d_2))
    return float(2.0 * d_2 ** (0.5 - 1.0 / p) if p > 2.0 else 2.0 / math.sqrt(p - 1.0))


@register_bound("gopi", "Corollary 5", "empirical")
def schatten_empirical_risk(
    *,
    n: int,
    d_1: int,
    d_2: int,
    epsilon: float,
    delta: float,
    G: float,
    D: float,
    p: float,
) -> float:
    r"""Return the bound of Corollary 5, empirical.

    :math:`2 G D \sqrt{d_1 d_2 \log\frac1{2\delta}}/(n \epsilon \sqrt{p-1})`, 1 < p <=
    2.

    For p = 1 :math:`6 \sqrt{\log d_2}` stands for :math:`2/\sqrt{p-1}`, as the text has
    it, and for p >= 2 :math:`2 d_2^{1/2 - 1/p}`. Mean excess empirical loss, d_1 > d_2.
    """
    root = math.sqrt(d_1 * d_2 * log_half(delta))
    return _schatten_width(d_2, p) * G * D * root / (n * epsilon)


@register_bound("gopi", "Corollary 5", "population")
def schatten_population_risk(
    *,
    n: int,
    d_1: int,
    d_2: int,
    epsilon: float,
    delta: float,
    G: float,
    D: float,
    p: float,
) -> float:
    r"""Return the bound of Corollary 5, population.

    The bound of the empirical loss plus :math:`2 G D/\sqrt{n (p-1)}`, 1 < p <= 2.

    The factor of p is replaced as in the bound of the empirical loss. Mean excess
    population loss, d_1 > d_2.
    """
    privacy = math.sqrt(d_1 * d_2 * log_half(delta)) / (n * epsilon)
    return float(_schatten_width(d_2, p) * G * D * (privacy + n**-0.5))


@register_bound("gopi", "Proposition 4")
def mean_energy(*, d: int, k: float) -> float:
    r"""Return the bound of Proposition 4.

    :math:`d/k`, the mean excess of F under exp(-k F) for convex F.
    """
    return d / k


@register_bound("gopi", "Proposition 5")
def transport_distance(*, H: float, mu: float) -> float:
    r"""Return the bound of Proposition 5.

    :math:`H/\mu`, the W_2 distance for mu-strongly convex F, F - F~ H-Lipschitz.
    """
    return H / mu


@register_bound("gopi", "Proposition 8")
def value_queries(
    *, d: int, delta: float, G: float, D: float, mu: float, c: float = 1.0
) -> float:
    r"""Return the bound of Proposition 8.

    :math:`O(\frac{G^2}{\mu} \log^2(G^2 (D^2 + 1/\mu) d/\delta))`.

    Value queries for a draw within total variation delta < 1/2, all in l_2.
    """
    return c * G**2 / mu * math.log(G**2 * (D**2 + 1.0 / mu) * d / delta) ** 2


@register_bound("gopi", "Proposition 9")
def lp_value_queries(
    *, d: int, delta: float, G: float, D: float, mu: float, p: float, c: float = 1.0
) -> float:
    r"""Return the bound of Proposition 9.

    :math:`O(\frac{G^2 d^{|1 - 2/p|}}{\mu} \log^2(G^2 (D^2 + 1/\mu) d/\delta))`.

    Value queries for a draw within total variation delta < 1/2, all in l_p, p >= 1.
    """
    plain = value_queries(d=d, delta=delta, G=G, D=D, mu=mu, c=c)
    return float(d ** abs(1.0 - 2.0 / p) * plain)


@register_bound("gopi", "Lemma 5")
def concentration(*, t: float, G: float, mu: float) -> float:
    r"""Return the bound of Lemma 5.

    :math:`\exp(-t^2 \mu/(2 G^2))`, for a G-Lipschitz function to exceed its mean by t.

    For mu-strongly convex F and draws of exp(-F).
    """
    return math.exp(-(t**2) * mu / (2.0 * G**2))


@register_bound("gopi", "Fact 2")
def gaussian_shift(*, epsilon: float, delta: float) -> float:
    r"""Return the bound of Fact 2.

    :math:`\sqrt{2 \log\frac1{2\delta} + 2 \epsilon} - \sqrt{2 \log\frac1{2\delta}}`.

    Distance of two unit Gaussians that is (epsilon, delta)-private, delta < 1/2.
    """
    log_term = 2.0 * log_half(delta)
    return math.sqrt(log_term + 2.0 * epsilon) - math.sqrt(log_term)
