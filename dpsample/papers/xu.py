"""Xu et al. (2026): clipped gradient methods under the Tsybakov noise condition."""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
from dpsample.papers.bounds import log_inverse, register_bound
from dpsample.papers.claim import Case

# One record moves the output of Algorithm 2 by this many 2 C / (n lambda), on the data
# set of `dpsample.papers.clipping_instance`.
INSTANCE_RATIO = 5360.0
NUM_RECORDS = 10_000
DELTA = 1e-8
# Records of a batch, of which there are NUM_RECORDS / BATCH disjoint ones.
BATCH = 100


def cases() -> Iterator[Case]:
    """Yield Algorithms 3 and 6, which Algorithms 4, 5 and 7 run on disjoint data."""
    yield from _localized_cases(1.0, 1e-5)
    # The rows are at the constant 1, and say which constant would be enough.
    stated = "sigma^2 = O(C^2 T log(1/delta) / (n epsilon)^2) on a batch mean"
    proved = "sigma = O(C sqrt(log(1/delta) log(n/delta)) / (epsilon sqrt n))"
    for epsilon in (0.05, 0.2, 1.0):
        noise = math.sqrt(math.log(1.0 / DELTA) / NUM_RECORDS) / epsilon
        yield from _shuffled_cases("Algorithm 6", stated, noise, epsilon)
        noise *= math.sqrt(math.log(NUM_RECORDS / DELTA))
        yield from _shuffled_cases("Theorem 6, proof", proved, noise, epsilon)


def _localized_cases(epsilon: float, delta: float) -> Iterator[Case]:
    """Yield Algorithm 3.

    Its noise is 4 sqrt(log(1/delta)) / epsilon times the sensitivity 2 C / (n lambda).
    """
    gdp = epsilon / (4.0 * math.sqrt(math.log(1.0 / delta)))
    shared: dict[str, Any] = {
        "paper": "xu",
        "place": "Algorithms 2 and 3",
        "formula": "sigma = 8 C sqrt(log(1/delta)) / (n lambda epsilon)",
        "relation": "replace_one",
        "epsilon": epsilon,
        "delta": delta,
    }
    yield Case(
        **shared,
        setting="linear models",
        accounting="exact Gaussian curve, distance 2C/(n lambda)",
        epsilon_at=curves.gaussian(gdp, delta),
    )
    yield Case(
        **shared,
        setting="convex smooth losses, n = 100 001, lambda = 0.01",
        accounting="two records of the clipping instance",
        meaning="attack",
        epsilon_at=curves.gaussian(INSTANCE_RATIO * gdp, delta),
    )


def _shuffled_cases(
    algorithm: str, formula: str, noise: float, epsilon: float
) -> Iterator[Case]:
    """Yield bounds and an attack for a noise of ``noise`` times C on each record."""
    shared: dict[str, Any] = {
        "paper": "xu",
        "place": algorithm,
        "formula": formula,
        "relation": "replace_one",
        "epsilon": epsilon,
        "delta": DELTA,
        "hidden": "sigma, at 1",
    }
    # The smallest noise that proves epsilon. The case states it relative to the
    # published one.
    needed = curves.shuffled_noise(epsilon, num_records=NUM_RECORDS, delta=DELTA)
    yield Case(
        **shared,
        setting=f"n = 1e4, {noise:.3g} C per record",
        accounting="shuffled Gaussian noise",
        meaning="upper bound",
        epsilon_at=curves.shuffle(noise, num_records=NUM_RECORDS, delta=DELTA),
        needed=needed / noise,
    )
    yield Case(
        **shared,
        setting=f"n = 1e4, {noise:.3g} C per record, batches of {BATCH}",
        accounting="disjoint batches, exact Gaussian curve",
        meaning="upper bound",
        # A replaced record moves the sum of its batch by 2 C. The noises of the records
        # add up to sqrt(BATCH) times one of them.
        epsilon_at=curves.gaussian(2.0 / (noise * math.sqrt(BATCH)), DELTA),
    )
    yield Case(
        **shared,
        setting=f"n = 1e4, {noise:.3g} C per record",
        accounting="the sum of all outputs, linear losses",
        meaning="attack",
        # The sum of all outputs moves by 2 C, too, next to sqrt(NUM_RECORDS) times the
        # noise of a record.
        epsilon_at=curves.gaussian(2.0 / (noise * math.sqrt(NUM_RECORDS)), DELTA),
    )


# Xu et al. (2026). r is the moment of the statement: R_2k,n in Theorems 1 to 3, 9 to
# 11, r_k in Theorems 4 to 7. beta is the failure probability, smoothness the beta of
# Theorem 6.


def _moment_rate(
    *, n: int, d: int, epsilon: float, delta: float, k: float, log_n: float = 1.0
) -> float:
    """Return 1/sqrt(n) + (sqrt(d log(1/delta) log_n)/(epsilon n))^((k-1)/k)."""
    privacy = math.sqrt(d * log_inverse(delta) * log_n) / (epsilon * n)
    return float(n**-0.5 + privacy ** ((k - 1.0) / k))


def _grown(rate: float, theta: float, lam: float) -> float:
    """Return rate^(theta/(theta - 1)) / lambda^(1/(theta - 1))."""
    return float(rate ** (theta / (theta - 1.0)) * lam ** (-1.0 / (theta - 1.0)))


@register_bound("xu", "Theorem 1")
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
    rate = r * D * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k)
    rest = D * math.sqrt(log_inverse(beta)) / (2.0 ** (p + 1.0) * math.sqrt(n))
    return float(c * (rate + rest))


@register_bound("xu", "Theorem 2")
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
    rate = r * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k)
    rate += math.sqrt(math.log(n) * log_inverse(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@register_bound("xu", "Theorem 3")
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
    rate = r * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k)
    rate += math.sqrt(log_inverse(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@register_bound("xu", "Theorem 4")
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


@register_bound("xu", "Theorem 5")
def statistical_lower_bound(*, n: int, r: float, theta: float, c: float = 1.0) -> float:
    r"""Return the bound of Theorem 5.

    :math:`\Omega((r_k/\sqrt n)^{\theta/(\theta-1)})`.

    Minimax risk over (theta, 1)-TNC risks, theta >= 2, n at least of the order sqrt(d).
    """
    return c * _grown(r / math.sqrt(n), theta, 1.0)


@register_bound("xu", "Theorem 6")
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
    return c * r * D * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k)


@register_bound("xu", "Theorem 7")
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
    return c * _grown(
        r * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k), theta, lam
    )


@register_bound("xu", "Theorem 8")
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


@register_bound("xu", "Theorem 9")
def last_phase_risk(
    *, n: int, r_last: float, r: float, D: float, L_f: float, c: float = 1.0
) -> float:
    r"""Return the bound of Theorem 9.

    :math:`\tilde O(\frac{r_{2k,n_l}}{R_{2k,n}} \frac{D L_f}{\sqrt n})`.

    Risk that the last phase of Algorithm 3 adds.
    """
    return c * r_last / r * D * L_f / math.sqrt(n)


@register_bound("xu", "Theorem 10")
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
    rate = (
        r
        * D
        * _moment_rate(n=n, d=d, epsilon=epsilon, delta=delta, k=k, log_n=math.log(n))
    )
    rest = D * math.sqrt(log_inverse(beta)) / (2.0 ** (p + 1.0) * math.sqrt(n))
    return float(c * (rate + rest))


@register_bound("xu", "Theorem 11")
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
    privacy = math.sqrt(d * log_inverse(delta) * log_n**3) / (epsilon * n)
    rate = r * (math.sqrt(log_n / n) + privacy ** ((k - 1.0) / k))
    rate += math.sqrt(log_n * log_inverse(beta) / n) / 2.0 ** (p + 1.0)
    return c * _grown(rate, theta, lam)


@register_bound("xu", "Lemma 1", "distance")
def growth_distance(*, L_f: float, lam: float, theta: float) -> float:
    r"""Return the bound of Lemma 1, distance.

    :math:`(L_f/\lambda)^{1/(\theta-1)}`.

    Distance of every point from the minimizers of an L_f-Lipschitz (theta, lambda)-TNC
    function.
    """
    return float((L_f / lam) ** (1.0 / (theta - 1.0)))


@register_bound("xu", "Lemma 1", "gap")
def growth_gap(*, L_f: float, lam: float, theta: float) -> float:
    r"""Return the bound of Lemma 1, gap.

    :math:`(L_f^\theta/\lambda)^{1/(\theta-1)}`.

    Gap of every point of an L_f-Lipschitz (theta, lambda)-TNC function.
    """
    return float((L_f**theta / lam) ** (1.0 / (theta - 1.0)))


@register_bound("xu", "Lemma 3")
def minimizer_risk(
    *, n: int, L: float, D: float, lam: float, beta: float, c: float = 1.0
) -> float:
    r"""Return the bound of Lemma 3.

    :math:`\frac{c L^2 \log n \log(1/\beta)}{\lambda n} + \frac{c L D
    \sqrt{\log(1/\beta)}}{\sqrt n}`.

    Excess population risk of the empirical minimizer of lambda-strongly convex
    L-Lipschitz losses with probability 1 - beta, beta <= 1/n.
    """
    log_term = log_inverse(beta)
    first = L**2 * math.log(n) * log_term / (lam * n)
    return c * (first + L * D * math.sqrt(log_term / n))


@register_bound("xu", "Lemma 5")
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


@register_bound("xu", "Lemma 6")
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
    rate = math.sqrt(grown * log_inverse(delta) / n) + grown / n
    return -c * math.expm1(-epsilon_0) * rate


@register_bound("xu", "Lemma 7", "bias")
def clipping_bias(*, k: float, C: float, moment: float) -> float:
    r"""Return the bound of Lemma 7, bias.

    :math:`\frac{r^{(k)}}{(k-1) C^{k-1}}`.

    Bias of a mean of clipped samples, k >= 2; ``moment`` bounds the mean of |z|^k.
    """
    return float(moment / ((k - 1.0) * C ** (k - 1.0)))


@register_bound("xu", "Lemma 7", "variance")
def clipping_variance(*, d: int, s: int, sigma: float, moment: float) -> float:
    r"""Return the bound of Lemma 7, variance.

    :math:`d \sigma^2 + r^{(2)}/s`.

    Mean square deviation of a noisy clipped mean of s samples; ``moment`` bounds the
    mean of |z|^2.
    """
    return d * sigma**2 + moment / s
