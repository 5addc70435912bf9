r"""Published bounds of five papers as functions of the papers' symbols.

A function returns the published value, whether it is right or not. The verdict of the
registry is added by `dpsample.papers.bound`. A docstring has the formula and the
conditions of the statement. ``c`` is the constant that a paper hides in O(.). Where it
writes :math:`\tilde O`, logarithms are hidden in it, too. No paper says that c is 1,
which is the default here only because there has to be one.
"""

import math
from collections.abc import Callable

from dpsample.core import check
from dpsample.privacy.curves.gaussian import gaussian_delta

# Paper, item, and the part of the item that is bounded, "" if it has one only.
Key = tuple[str, str, str]
FUNCTIONS: dict[Key, Callable[..., float]] = {}


def _published(
    paper: str, item: str, part: str = ""
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register the bound of a numbered item."""

    def register(function: Callable[..., float]) -> Callable[..., float]:
        FUNCTIONS[paper, item, part] = function
        return function

    return register


def _log(delta: float) -> float:
    """Return log(1/delta)."""
    return math.log(1.0 / delta)


def _half_log(delta: float) -> float:
    """Return log(1/(2 delta)), which the statement needs to be positive."""
    remedy = "The bound has log(1/(2 delta))."
    check.open_interval(0.0, 0.5, delta=delta, remedy=remedy)
    return math.log(0.5 / delta)


# Bassily et al. (2019). L is the Lipschitz constant, M the diameter, lam the ridge.


def _largest_rate(n: int, d: int, epsilon: float, delta: float) -> float:
    """Return max{sqrt(d log(1/delta))/(epsilon n), 1/sqrt(n)}."""
    return max(math.sqrt(d * _log(delta)) / (epsilon * n), 1.0 / math.sqrt(n))


@_published("bassily", "Theorem 3.2")
def noisy_sgd_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float
) -> float:
    r"""Return the bound of Theorem 3.2.

    :math:`10 M L \max\{\sqrt{d \log(1/\delta)}/(\epsilon n), 1/\sqrt n\}`.

    Mean excess population loss of Algorithm 1 for beta-smooth losses, :math:`\beta \le
    \frac LM \min\{\sqrt n/4, \epsilon n/(8 \sqrt{d \log(1/\delta)})\}`, epsilon <= 1,
    delta <= 1/n^2, :math:`T = \min\{n/8, \epsilon^2 n^2/(32 d \log(1/\delta))\}`,
    :math:`\eta = M/(L \sqrt T)`.
    """
    return 10.0 * M * L * _largest_rate(n, d, epsilon, delta)


@_published("bassily", "Lemma 3.3")
def noisy_sgd_empirical_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    L: float,
    M: float,
    T: int,
    eta: float,
) -> float:
    r"""Return the bound of Lemma 3.3.

    :math:`\frac{M^2}{2 \eta T} + \frac{\eta L^2}{2} (\frac{16 T d \log(1/\delta)}{n^2
    \epsilon^2} + 1)`.

    Mean excess empirical loss of Algorithm 1, for every eta > 0.
    """
    noise = 16.0 * T * d * _log(delta) / (n * epsilon) ** 2
    return M**2 / (2.0 * eta * T) + 0.5 * eta * L**2 * (noise + 1.0)


@_published("bassily", "Lemma 3.4")
def noisy_sgd_stability(*, n: int, L: float, T: int, eta: float) -> float:
    r"""Return the bound of Lemma 3.4.

    :math:`2 L^2 T \eta/n`.

    Uniform stability of Algorithm 1 for eta <= 1/beta.
    """
    return 2.0 * L**2 * T * eta / n


@_published("bassily", "Lemma 4.3")
def envelope_distance(*, L: float, beta: float) -> float:
    r"""Return the bound of Lemma 4.3.

    :math:`L^2/(2 \beta)`, the largest distance of a loss from its envelope.

    Part 2 of the lemma, for convex L-Lipschitz losses and the beta-Moreau envelope.
    """
    return L**2 / (2.0 * beta)


@_published("bassily", "Theorem 4.4")
def smoothed_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float
) -> float:
    r"""Return the bound of Theorem 4.4.

    :math:`24 M L \max\{\sqrt{d \log(1/\delta)}/(\epsilon n), 1/\sqrt n\}`.

    Mean excess population loss of Algorithm 1 on Moreau envelopes, with T and eta of
    Theorem 3.2 and the largest beta that it admits.
    """
    return 24.0 * M * L * _largest_rate(n, d, epsilon, delta)


@_published("bassily", "Fact 4.6")
def proximal_steps(*, M: float, xi: float) -> float:
    r"""Return the bound of Fact 4.6.

    :math:`\lceil 8 M^2/\xi^2 \rceil` gradients for a xi-approximate proximal map.

    For beta >= L/M.
    """
    return float(math.ceil(8.0 * M**2 / xi**2))


@_published("bassily", "Theorem 5.3")
def objective_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float
) -> float:
    r"""Return the bound of Theorem 5.3.

    :math:`2 M L \sqrt{2/n + 4 d \log(1/\delta)/(\epsilon n)^2}`.

    Mean excess population loss of Algorithm 2, Hessians of rank 1, :math:`\lambda =
    \frac{2 L}{M} \sqrt{2/n + 4 d \log(1/\delta)/(\epsilon n)^2}`.
    """
    return 2.0 * M * L * math.sqrt(2.0 / n + 4.0 * d * _log(delta) / (epsilon * n) ** 2)


@_published("bassily", "Lemma 5.4")
def objective_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float, lam: float
) -> float:
    r"""Return the bound of Lemma 5.4.

    :math:`16 L^2 d \log(1/\delta)/(n^2 \epsilon^2 \lambda) + \lambda M^2`.

    Mean excess empirical loss of Algorithm 2, Hessians of rank 1.
    """
    return 16.0 * L**2 * d * _log(delta) / ((n * epsilon) ** 2 * lam) + lam * M**2


@_published("bassily", "Lemma 5.5")
def ridge_stability(*, n: int, rho: float, lam: float) -> float:
    r"""Return the bound of Lemma 5.5.

    :math:`2 \rho^2/(\lambda n)`.

    Uniform stability of the minimizer of a convex rho-Lipschitz loss plus lambda |w|^2.
    """
    return 2.0 * rho**2 / (lam * n)


@_published("bassily", "Theorem 5.7")
def approximate_objective_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    L: float,
    M: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 5.7.

    :math:`O(M L \max\{1/\sqrt n, \sqrt{d \log(1/\delta)}/(\epsilon n)\})`.

    Mean excess population loss of Algorithm 3 with lambda of Theorem 5.3, :math:`\alpha
    = M^2 \lambda/n^2`.
    """
    return c * M * L * _largest_rate(n, d, epsilon, delta)


@_published("bassily", "Theorem 5.8")
def svrg_gap(*, t: int, gap: float) -> float:
    r"""Return the bound of Theorem 5.8.

    :math:`0.9^t (F(y^{(1)}) - F(w^*))`, where ``gap`` is that of the start.

    Mean gap after t epochs of 20 beta/lambda steps of size 1/(10 beta).
    """
    return float(0.9**t * gap)


@_published("bassily", "Appendix C")
def lower_bound(*, n: int, d: int, L: float, M: float, c: float = 1.0) -> float:
    r"""Return the bound of Appendix C.

    :math:`\Omega(M L \max\{1/\sqrt n, \sqrt d/n\})`.

    Excess population loss of every private algorithm on some distribution.
    """
    return c * M * L * max(1.0 / math.sqrt(n), math.sqrt(d) / n)


# Gopi et al. (2022). G is the Lipschitz constant, Theta the range of the regularizer.


@_published("gopi", "Theorem 1", "empirical")
@_published("gopi", "Theorem 3")
def mechanism_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, Theta: float
) -> float:
    r"""Return the bound of Theorem 3.

    :math:`G \sqrt\Theta \sqrt{8 d \log\frac1{2\delta}}/(n \epsilon)`.

    Mean excess empirical loss of a draw, :math:`k = \sqrt d n \epsilon/(G \sqrt{2
    \Theta \log\frac1{2\delta}})`, :math:`\mu = G \sqrt{2 d
    \log\frac1{2\delta}}/(\sqrt\Theta n \epsilon)`, delta < 1/2.
    """
    return G * math.sqrt(Theta * 8.0 * d * _half_log(delta)) / (n * epsilon)


@_published("gopi", "Theorem 1", "population")
@_published("gopi", "Theorem 4")
def mechanism_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, Theta: float
) -> float:
    r"""Return the bound of Theorem 4.

    :math:`G \sqrt\Theta (\sqrt{8 d \log\frac1{2\delta}}/(n \epsilon) + \sqrt{8/n})`.

    Mean excess population loss of a draw with k and mu of Theorem 4, delta < 1/2.
    """
    privacy = math.sqrt(8.0 * d * _half_log(delta)) / (n * epsilon)
    return G * math.sqrt(Theta) * (privacy + math.sqrt(8.0 / n))


@_published("gopi", "Theorem 2")
def gaussian_comparison(*, epsilon: float, G: float, mu: float) -> float:
    r"""Return the bound of Theorem 2.

    :math:`\delta(N(0, 1) \| N(G/\sqrt\mu, 1))(\epsilon)`.

    Privacy curve of exp(-F) and exp(-F~), both mu-strongly convex, F - F~ G-Lipschitz.
    """
    return gaussian_delta(epsilon, G / math.sqrt(mu))


@_published("gopi", "Theorem 5")
def strongly_convex_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, mu: float
) -> float:
    r"""Return the bound of Theorem 5.

    :math:`2 d G^2 \log\frac1{2\delta}/(n^2 \epsilon^2 \mu)`.

    Mean excess empirical loss of a draw for mu-strongly convex losses, :math:`k = n^2
    \epsilon^2 \mu/(2 G^2 \log\frac1{2\delta})`, delta < 1/2.
    """
    return 2.0 * d * G**2 * _half_log(delta) / ((n * epsilon) ** 2 * mu)


@_published("gopi", "Theorem 6")
def strongly_convex_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, mu: float
) -> float:
    r"""Return the bound of Theorem 6.

    :math:`\frac{G^2}{n \mu} (1 + 2 d \log\frac1{2\delta}/(n \epsilon^2))`.

    Mean excess population loss of a draw with k of Theorem 5, delta < 1/2.
    """
    return G**2 / (n * mu) * (1.0 + 2.0 * d * _half_log(delta) / (n * epsilon**2))


@_published("gopi", "Corollary 1")
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
    logs = math.log(G * D * d * n * epsilon / delta) ** 2 / _log(delta)
    return float((n * epsilon) ** 2 * d**power * logs)


@_published("gopi", "Corollary 2", "(7), empirical")
def lp_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 2, empirical.

    :math:`2 G D \sqrt{d \log\frac1{2\delta}}/(n \epsilon \sqrt{p - 1})`.

    Equation (7), mean excess empirical loss of some private algorithm, 1 < p <= 2,
    delta < 1/2, l_p diameter at most D.
    """
    return 2.0 * G * D * math.sqrt(d * _half_log(delta) / (p - 1.0)) / (n * epsilon)


@_published("gopi", "Corollary 2", "(9), population")
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


@_published("gopi", "Corollary 2", "(8), queries")
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


@_published("gopi", "Corollary 3", "(10), empirical")
def l1_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float
) -> float:
    r"""Return the bound of Corollary 3, empirical.

    :math:`6 G D \sqrt{\log d} \sqrt{d \log\frac1{2\delta}}/(n \epsilon)`.

    Equation (10), mean excess empirical loss of some private algorithm in l_1.
    """
    return 6.0 * G * D * math.sqrt(math.log(d) * d * _half_log(delta)) / (n * epsilon)


@_published("gopi", "Corollary 3", "(12), population")
def l1_population_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float
) -> float:
    r"""Return the bound of Corollary 3, population.

    :math:`6 G D \sqrt{\log d} (1/\sqrt n + \sqrt{d \log\frac1{2\delta}}/(n \epsilon))`.

    Equation (12), mean excess population loss of some private algorithm in l_1.
    """
    rest = 6.0 * G * D * math.sqrt(math.log(d) / n)
    return rest + l1_empirical_risk(n=n, d=d, epsilon=epsilon, delta=delta, G=G, D=D)


@_published("gopi", "Corollary 3", "(11), queries")
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


@_published("gopi", "Corollary 4", "(13), empirical")
def large_p_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, G: float, D: float, p: float
) -> float:
    r"""Return the bound of Corollary 4, empirical.

    :math:`2 G D d^{1 - 1/p} \sqrt{\log\frac1{2\delta}}/(n \epsilon)`.

    Equation (13), mean excess empirical loss of some private algorithm, p >= 2.
    """
    power = d ** (1.0 - 1.0 / p)
    return float(2.0 * G * D * power * math.sqrt(_half_log(delta)) / (n * epsilon))


@_published("gopi", "Corollary 4", "(15), population")
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


@_published("gopi", "Corollary 4", "(14), queries")
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


@_published("gopi", "Corollary 5", "empirical")
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
    root = math.sqrt(d_1 * d_2 * _half_log(delta))
    return _schatten_width(d_2, p) * G * D * root / (n * epsilon)


@_published("gopi", "Corollary 5", "population")
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
    privacy = math.sqrt(d_1 * d_2 * _half_log(delta)) / (n * epsilon)
    return float(_schatten_width(d_2, p) * G * D * (privacy + n**-0.5))


@_published("gopi", "Proposition 4")
def mean_energy(*, d: int, k: float) -> float:
    r"""Return the bound of Proposition 4.

    :math:`d/k`, the mean excess of F under exp(-k F) for convex F.
    """
    return d / k


@_published("gopi", "Proposition 5")
def transport_distance(*, H: float, mu: float) -> float:
    r"""Return the bound of Proposition 5.

    :math:`H/\mu`, the W_2 distance for mu-strongly convex F, F - F~ H-Lipschitz.
    """
    return H / mu


@_published("gopi", "Proposition 8")
def value_queries(
    *, d: int, delta: float, G: float, D: float, mu: float, c: float = 1.0
) -> float:
    r"""Return the bound of Proposition 8.

    :math:`O(\frac{G^2}{\mu} \log^2(G^2 (D^2 + 1/\mu) d/\delta))`.

    Value queries for a draw within total variation delta < 1/2, all in l_2.
    """
    return c * G**2 / mu * math.log(G**2 * (D**2 + 1.0 / mu) * d / delta) ** 2


@_published("gopi", "Proposition 9")
def lp_value_queries(
    *, d: int, delta: float, G: float, D: float, mu: float, p: float, c: float = 1.0
) -> float:
    r"""Return the bound of Proposition 9.

    :math:`O(\frac{G^2 d^{|1 - 2/p|}}{\mu} \log^2(G^2 (D^2 + 1/\mu) d/\delta))`.

    Value queries for a draw within total variation delta < 1/2, all in l_p, p >= 1.
    """
    plain = value_queries(d=d, delta=delta, G=G, D=D, mu=mu, c=c)
    return float(d ** abs(1.0 - 2.0 / p) * plain)


@_published("gopi", "Lemma 5")
def concentration(*, t: float, G: float, mu: float) -> float:
    r"""Return the bound of Lemma 5.

    :math:`\exp(-t^2 \mu/(2 G^2))`, for a G-Lipschitz function to exceed its mean by t.

    For mu-strongly convex F and draws of exp(-F).
    """
    return math.exp(-(t**2) * mu / (2.0 * G**2))


@_published("gopi", "Fact 2")
def gaussian_shift(*, epsilon: float, delta: float) -> float:
    r"""Return the bound of Fact 2.

    :math:`\sqrt{2 \log\frac1{2\delta} + 2 \epsilon} - \sqrt{2 \log\frac1{2\delta}}`.

    Distance of two unit Gaussians that is (epsilon, delta)-private, delta < 1/2.
    """
    log_term = 2.0 * _half_log(delta)
    return math.sqrt(log_term + 2.0 * epsilon) - math.sqrt(log_term)


# Su, Zhao and Wang (2023). G_C is the Gaussian width, width the diameter |C|_2.


@_published("su", "Lemma 2")
def gaussian_variance(*, epsilon: float, delta: float, Delta_2: float) -> float:
    r"""Return the bound of Lemma 2.

    :math:`2 \Delta_2^2 \log(1.25/\delta)/\epsilon^2`, the variance of a coordinate.

    Gaussian mechanism of l_2 sensitivity Delta_2.
    """
    return 2.0 * Delta_2**2 * math.log(1.25 / delta) / epsilon**2


@_published("su", "Lemma 3")
def generalized_gaussian_variance(
    *, epsilon: float, delta: float, kappa: float, s: float
) -> float:
    r"""Return the bound of Lemma 3.

    :math:`2 \kappa \log(1/\delta) s^2/\epsilon^2`, the sigma^2 of the noise.

    Generalized Gaussian mechanism of sensitivity s in a kappa-regular dual norm.
    """
    return 2.0 * kappa * _log(delta) * s**2 / epsilon**2


@_published("su", "Lemma 4")
def noise_moment(*, d: int, m: float, sigma: float) -> float:
    r"""Return the bound of Lemma 4.

    :math:`(2 \sigma^2)^{m/2} \Gamma(\frac{m+d}2)/\Gamma(\frac d2)`.

    Bound of the m-th moment of the smooth norm of generalized Gaussian noise, m >= 1.
    """
    logs = math.lgamma(0.5 * (m + d)) - math.lgamma(0.5 * d)
    return float((2.0 * sigma**2) ** (0.5 * m) * math.exp(logs))


@_published("su", "Theorem 2")
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
    privacy = G_C * math.sqrt(_log(delta)) / (epsilon * n)
    return c * L * (privacy + diameter / math.sqrt(n))


@_published("su", "Theorem 4")
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
    return c * L**2 / Delta * (first + G_C**2 * _log(delta) / (n * epsilon) ** 2)


@_published("su", "Theorem 5")
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
    width = G_C**2 * _log(delta) / (math.log(2.0 * d) ** 4 * (epsilon * n) ** 2)
    return c * max(width, 1.0 / n)


@_published("su", "Theorem 7")
def mirror_descent_risk(
    *, n: int, d: int, epsilon: float, delta: float, kappa: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 7.

    :math:`\tilde O(\kappa^{4/5} (\sqrt{d \log(1/\delta)}/(n \epsilon))^{2/5})`.

    Mean excess population loss of Algorithm 3, 1 < p < 2, convex beta-smooth
    L-Lipschitz losses, alpha and T as stated; beta, L and the norm of the empirical
    minimizer are hidden.
    """
    rate = math.sqrt(d * _log(delta)) / (n * epsilon)
    return float(c * kappa**0.8 * rate**0.4)


@_published("su", "Theorem 8")
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
    rate = n**-0.5 + math.sqrt(d * _log(delta)) / (epsilon * n)
    return float(c * d ** (1.0 - 2.0 / p) * distance**2 * rate)


@_published("su", "Theorem 10")
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
    rate = (kappa**2 * d * _log(delta)) ** 0.25 / math.sqrt(n * epsilon)
    return float(c * M * rate * _log(failure))


# Xie et al. (2022). p is the number of columns, k the order of the bounded moment.


@_published("xie", "Theorem 1")
def proximal_risk(*, Delta: float, T: int, gamma: float, bias: float) -> float:
    r"""Return the bound of Theorem 1.

    :math:`\frac{\Delta^2}{2 T \gamma_{T-1}} + \frac\Delta T \sum_t Bias_t`.

    Mean excess population risk of Algorithm 1 under (A1) to (A3), steps that do not
    grow and are at most 1/K_1; ``bias`` is the mean over steps.
    """
    return Delta**2 / (2.0 * T * gamma) + Delta * bias


@_published("xie", "Theorem 2")
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
    noise = rho * log_term * math.sqrt(p * _log(delta)) / (n * epsilon)
    noise *= math.sqrt(p) + math.sqrt(_log(zeta))
    rest = math.sqrt(p) * (math.sqrt(log_term / n) + (4.0 / rho) ** (k - 1.0))
    return float(c * (noise + rest))


@_published("xie", "Corollary 1")
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
    rate = math.sqrt(p * _log(delta) * T) / (n * epsilon)
    return float(c * (T**-0.5 + p**1.5 * _log(zeta) * rate ** ((k - 1.0) / k)))


@_published("xie", "Theorem 3")
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
    return c * math.sqrt(p * tau * math.sqrt(_log(delta)) * logs / (m * epsilon))


@_published("xie", "Corollary 2")
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
    noise = p * _log(delta) ** 0.25 * math.sqrt(_log(zeta)) * T**0.25
    return float(c * (T**-0.5 + noise / math.sqrt(n * epsilon)))


# Xu et al. (2026). r is the moment of the statement: R_2k,n in Theorems 1 to 3, 9 to
# 11, r_k in Theorems 4 to 7. beta is the failure probability, smoothness the beta of
# Theorem 6.


def _moment_rate(
    n: int, d: int, epsilon: float, delta: float, k: float, log_n: float = 1.0
) -> float:
    """Return 1/sqrt(n) + (sqrt(d log(1/delta) log_n)/(epsilon n))^((k-1)/k)."""
    privacy = math.sqrt(d * _log(delta) * log_n) / (epsilon * n)
    return float(n**-0.5 + privacy ** ((k - 1.0) / k))


def _grown(rate: float, theta: float, lam: float) -> float:
    """Return rate^(theta/(theta - 1)) / lambda^(1/(theta - 1))."""
    return float(rate ** (theta / (theta - 1.0)) * lam ** (-1.0 / (theta - 1.0)))


@_published("xu", "Theorem 1")
def localized_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    D: float,
    beta: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 1.

    :math:`\tilde O(R D (\frac1{\sqrt n} + (\frac{\sqrt{d \log(1/\delta)}}{\epsilon
    n})^{(k-1)/k}) + \frac{D \sqrt{\log(1/\beta)}}{2^{p+1} \sqrt n})`.

    Excess population risk of Algorithm 3 with probability 1 - beta, beta <= 1/n, for
    convex alpha-smooth L_f-Lipschitz losses, eta_i <= 1/alpha, :math:`L_f \le n^{p/2}
    R(n^{-1/2} + ...)`, p >= 1; ``r`` is R.
    """
    rate = r * D * _moment_rate(n, d, epsilon, delta, k)
    rest = D * math.sqrt(_log(beta)) / (2.0 ** (p + 1.0) * math.sqrt(n))
    return float(c * (rate + rest))


@_published("xu", "Theorem 2")
def approximation_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    theta: float,
    lam: float,
    beta: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 2.

    :math:`\tilde O(\lambda^{-1/(\theta-1)} (R (\frac1{\sqrt n} + (\frac{\sqrt{d
    \log(1/\delta)}}{\epsilon n})^{(k-1)/k}) + \frac{\sqrt{\log n
    \log(1/\beta)}}{2^{p+1} \sqrt n})^{\theta/(\theta-1)})`.

    Excess population risk of Algorithm 4 with probability 1 - beta under (theta,
    lambda)-TNC, theta >= 2, and the conditions of Theorem 1.
    """
    rate = r * _moment_rate(n, d, epsilon, delta, k)
    rate += math.sqrt(math.log(n) * _log(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@_published("xu", "Theorem 3")
def iterated_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    theta: float,
    lam: float,
    beta: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 3.

    :math:`\tilde O(\lambda^{-1/(\theta-1)} (R (\frac1{\sqrt n} + (\frac{\sqrt{d
    \log(1/\delta)}}{\epsilon n})^{(k-1)/k}) + \frac{\sqrt{\log(1/\beta)}}{2^{p+1} \sqrt
    n})^{\theta/(\theta-1)})`.

    Excess population risk of Algorithm 5 with probability 1 - beta under (theta,
    lambda)-TNC, theta >= theta_bar > 1, and the conditions of Theorem 1.
    """
    rate = r * _moment_rate(n, d, epsilon, delta, k)
    rate += math.sqrt(_log(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@_published("xu", "Theorem 4")
def private_lower_bound(
    *, n: int, d: int, rho: float, r: float, k: float, theta: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 4.

    :math:`\Omega((r_k (\sqrt d/(\sqrt\rho n))^{(k-1)/k})^{\theta/(\theta-1)})`.

    Minimax risk under rho-zCDP over (theta, 1)-TNC risks, theta and k >= 2, n at least
    of the order sqrt(d/rho).
    """
    rate = r * (math.sqrt(d / rho) / n) ** ((k - 1.0) / k)
    return c * _grown(rate, theta, 1.0)


@_published("xu", "Theorem 5")
def statistical_lower_bound(*, n: int, r: float, theta: float, c: float = 1.0) -> float:
    r"""Return the bound of Theorem 5.

    :math:`\Omega((r_k/\sqrt n)^{\theta/(\theta-1)})`.

    Minimax risk over (theta, 1)-TNC risks, theta >= 2, n at least of the order sqrt(d).
    """
    return c * _grown(r / math.sqrt(n), theta, 1.0)


@_published("xu", "Theorem 6")
def accelerated_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    D: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 6.

    :math:`O(r_k D (\frac1{\sqrt n} + (\frac{\sqrt{d \log(1/\delta)}}{\epsilon
    n})^{(k-1)/k}))`.

    Mean excess population risk of Algorithm 6, :math:`\epsilon =
    O(\sqrt{\log(n/\delta)/n})`, F smooth, T as stated.
    """
    return c * r * D * _moment_rate(n, d, epsilon, delta, k)


@_published("xu", "Theorem 7")
def iterated_accelerated_risk(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    theta: float,
    lam: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 7.

    :math:`\tilde O(\lambda^{-1/(\theta-1)} (r_k (\frac1{\sqrt n} + (\frac{\sqrt{d
    \log(1/\delta)}}{\epsilon n})^{(k-1)/k}))^{\theta/(\theta-1)})`.

    Equation (4), mean excess population risk of Algorithm 7 under (theta, lambda)-TNC,
    :math:`\epsilon = O(\sqrt{\log(n/\delta)/n})`, F smooth.
    """
    return c * _grown(r * _moment_rate(n, d, epsilon, delta, k), theta, lam)


@_published("xu", "Theorem 8")
def clipped_distance(
    *,
    T: int,
    eta: float,
    lam: float,
    distance: float,
    moment: float,
    D: float,
    bias: float,
) -> float:
    r"""Return the bound of Theorem 8.

    :math:`e^{-\lambda \eta T/2} |w_0 - \hat w|^2 + \frac{8 \eta \hat r_n^2}\lambda + 8
    \eta \lambda D^2 + \frac{20 \hat B^2}{\lambda^2}`.

    Square distance of w_T of Algorithm 2 from the minimizer, eta <= 2/lambda;
    ``distance`` is that of the start, ``moment`` is r_n^2, ``bias`` is B.
    """
    start = math.exp(-0.5 * lam * eta * T) * distance**2
    steps = 8.0 * eta * (moment / lam + lam * D**2)
    return start + steps + 20.0 * (bias / lam) ** 2


@_published("xu", "Theorem 9")
def last_phase_risk(
    *, n: int, r_last: float, r: float, D: float, L_f: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 9.

    :math:`\tilde O(\frac{r_{2k,n_l}}{R_{2k,n}} \frac{D L_f}{\sqrt n})`.

    Risk that the last phase of Algorithm 3 adds.
    """
    return c * r_last / r * D * L_f / math.sqrt(n)


@_published("xu", "Theorem 10")
def localized_risk_with_logarithm(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    D: float,
    beta: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 10.

    Theorem 1 with :math:`\log n` under the root of the private term.

    Up to a constant, with probability 1 - beta.
    """
    rate = r * D * _moment_rate(n, d, epsilon, delta, k, math.log(n))
    rest = D * math.sqrt(_log(beta)) / (2.0 ** (p + 1.0) * math.sqrt(n))
    return float(c * (rate + rest))


@_published("xu", "Theorem 11")
def approximation_risk_with_logarithms(
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    r: float,
    k: float,
    theta: float,
    lam: float,
    beta: float,
    p: float,
    c: float = 1.0,
) -> float:
    r"""Return the bound of Theorem 11.

    Theorem 2 with :math:`\sqrt{\log n/n}` and :math:`\log^3 n` in its terms.

    Up to a constant, with probability 1 - beta.
    """
    log_n = math.log(n)
    privacy = math.sqrt(d * _log(delta) * log_n**3) / (epsilon * n)
    rate = r * (math.sqrt(log_n / n) + privacy ** ((k - 1.0) / k))
    rate += math.sqrt(log_n * _log(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@_published("xu", "Lemma 1", "distance")
def growth_distance(*, L_f: float, lam: float, theta: float) -> float:
    r"""Return the bound of Lemma 1, distance.

    :math:`(L_f/\lambda)^{1/(\theta-1)}`.

    Distance of every point from the minimizers of an L_f-Lipschitz (theta, lambda)-TNC
    function.
    """
    return float((L_f / lam) ** (1.0 / (theta - 1.0)))


@_published("xu", "Lemma 1", "gap")
def growth_gap(*, L_f: float, lam: float, theta: float) -> float:
    r"""Return the bound of Lemma 1, gap.

    :math:`(L_f^\theta/\lambda)^{1/(\theta-1)}`.

    Gap of every point of an L_f-Lipschitz (theta, lambda)-TNC function.
    """
    return float((L_f**theta / lam) ** (1.0 / (theta - 1.0)))


@_published("xu", "Lemma 3")
def minimizer_risk(
    *, n: int, L: float, D: float, lam: float, beta: float, c: float = 1.0
) -> float:
    r"""Return the bound of Lemma 3.

    :math:`\frac{c L^2 \log n \log(1/\beta)}{\lambda n} + \frac{c L D
    \sqrt{\log(1/\beta)}}{\sqrt n}`.

    Excess population risk of the empirical minimizer of lambda-strongly convex
    L-Lipschitz losses with probability 1 - beta, beta <= 1/n.
    """
    log_term = _log(beta)
    first = L**2 * math.log(n) * log_term / (lam * n)
    return c * (first + L * D * math.sqrt(log_term / n))


@_published("xu", "Lemma 5")
def private_fano(
    *, n: int, alpha: float, beta: float, gamma: float, rho: float, M: float
) -> float:
    r"""Return the bound of Lemma 5.

    :math:`\frac\alpha2 \max\{1 - \frac{n \beta + \log 2}{\log M}, 1 - \frac{\rho (n^2
    \gamma^2 + n \gamma (1 - \gamma)) + \log 2}{\log M}\}`.

    Mean loss of every rho-zCDP mechanism on one of M distributions whose parameters
    have Phi(distance) >= alpha, divergences <= beta and total variations <= gamma.
    """
    log_m = math.log(M)
    first = 1.0 - (n * beta + math.log(2.0)) / log_m
    private = rho * ((n * gamma) ** 2 + n * gamma * (1.0 - gamma))
    return 0.5 * alpha * max(first, 1.0 - (private + math.log(2.0)) / log_m)


@_published("xu", "Lemma 6")
def shuffled_epsilon(
    *, n: int, epsilon_0: float, delta: float, c: float = 1.0
) -> float:
    r"""Return the bound of Lemma 6.

    :math:`O((1 - e^{-\epsilon_0}) (\sqrt{e^{\epsilon_0} \log(1/\delta)/n} +
    e^{\epsilon_0}/n))`.

    Epsilon of n shuffled (epsilon_0, delta_0)-private outputs, :math:`\epsilon_0 \le
    \log(n/(16 \log(2/\delta)))`.
    """
    grown = math.exp(epsilon_0)
    rate = math.sqrt(grown * _log(delta) / n) + grown / n
    return -c * math.expm1(-epsilon_0) * rate


@_published("xu", "Lemma 7", "bias")
def clipping_bias(*, k: float, C: float, moment: float) -> float:
    r"""Return the bound of Lemma 7, bias.

    :math:`\frac{r^{(k)}}{(k-1) C^{k-1}}`.

    Bias of a mean of clipped samples, k >= 2; ``moment`` bounds the mean of |z|^k.
    """
    return float(moment / ((k - 1.0) * C ** (k - 1.0)))


@_published("xu", "Lemma 7", "variance")
def clipping_variance(*, d: int, s: int, sigma: float, moment: float) -> float:
    r"""Return the bound of Lemma 7, variance.

    :math:`d \sigma^2 + r^{(2)}/s`.

    Mean square deviation of a noisy clipped mean of s samples; ``moment`` bounds the
    mean of |z|^2.
    """
    return d * sigma**2 + moment / s
