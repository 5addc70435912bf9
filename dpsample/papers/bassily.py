"""Bassily, Feldman, Talwar and Thakurta (2019): noisy SGD, objective perturbation.

In formulas n is the number of records, d that of coefficients, m that of a batch, T
that of steps, L the Lipschitz constant of a loss, beta its smoothness, lambda the ridge
and sigma the standard deviation of the noise. Codes such as BFTT-4 are entries of
docs/errata.md.
"""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
from dpsample.papers.bounds import log_inverse, register_bound
from dpsample.papers.claim import Case
from dpsample.papers.curves import objective_cases
from dpsample.privacy.budget import Relation

NUM_RECORDS = 10_000
DELTA = 1e-8
LOG = math.log(1.0 / DELTA)
# Epsilon and number of steps, if few large batches hold a record several times
# (BFTT-4).
FEW_STEPS = ((1.0, 1), (1.0, 20))
PAIRS: tuple[tuple[curves.Pair, Relation], ...] = (
    ("(r, 0)", "zero_out"),
    ("(+r, -r)", "replace_one"),
    ("(2r, 0)", "replace_one"),
)
SGD: dict[str, Any] = {
    "paper": "bassily",
    "place": "Algorithm 1, Theorem 3.1",
    "formula": "sigma^2 = 8 T L^2 log(1/delta) / (n epsilon)^2, "
    "m = n sqrt(epsilon/(4T))",
    "delta": DELTA,
}


def cases() -> Iterator[Case]:
    """Yield Algorithm 1 for each kind of sampling, and Algorithms 2 and 3 by part."""
    # epsilon and T = min(n/8, epsilon^2 n^2 / (32 d log(1/delta))) at d = 50.
    for epsilon, num_steps in ((1.0, 1250), (0.5, 848), (0.1, 33), *FEW_STEPS):
        yield from _noisy_sgd(epsilon, num_steps)
    yield from _objective()
    yield from _approximate_objective()


def _batch(epsilon: float, num_steps: int) -> tuple[int, float]:
    """Return the published batch size and noise multiplier of a batch's sum."""
    # m = n sqrt(epsilon/(4 T)). The published noise is on the mean of the batch.
    batch = max(round(NUM_RECORDS * math.sqrt(epsilon / (4.0 * num_steps))), 1)
    stddev = math.sqrt(8.0 * num_steps * LOG) / (NUM_RECORDS * epsilon)
    return batch, stddev * batch


def _noisy_sgd(epsilon: float, num_steps: int) -> Iterator[Case]:
    """Yield accounts of Poisson samples, and attacks on sampling with replacement.

    The attacks are pairs of data sets in which one record occurs several times in a
    batch. For a few large batches only the strongest pair is computed.
    """
    batch, noise = _batch(epsilon, num_steps)
    is_few = (epsilon, num_steps) in FEW_STEPS
    size = "n = 1e4" if is_few else "n = 1e4, d = 50"
    setting = f"{size}, T = {num_steps}, m = {batch}, z = {noise:.3g}"
    shared = SGD | {"setting": setting, "epsilon": epsilon}
    step: Any = {"noise_multiplier": noise, "num_steps": num_steps, "delta": DELTA}
    rate = batch / NUM_RECORDS
    relations: tuple[Relation, ...] = () if is_few else ("zero_out", "replace_one")
    for relation in relations:
        yield Case(
            **shared,
            accounting="Poisson sampling",
            relation=relation,
            epsilon_at=curves.poisson(sampling_rate=rate, relation=relation, **step),
        )
    for pair, relation in PAIRS[2:] if is_few else PAIRS:
        yield Case(
            **shared,
            accounting=f"with replacement, pair {pair}",
            relation=relation,
            meaning="attack",
            epsilon_at=curves.with_replacement(
                pair, batch=batch, num_records=NUM_RECORDS, **step
            ),
        )
    if not is_few:
        yield Case(
            **shared,
            accounting="Poisson sampling, Renyi",
            relation="zero_out",
            meaning="upper bound",
            epsilon_at=curves.poisson_renyi(sampling_rate=rate, **step),
        )


def _objective() -> Iterator[Case]:
    """Yield Algorithm 2, for beta <= epsilon n lambda or twice that."""
    settings = (
        (0.5, "beta = epsilon n lambda"),
        (1.0, "Hessian <= 2 epsilon n lambda (Definition 2.3)"),
    )
    for ratio, setting in settings:
        shared = {
            "paper": "bassily",
            "place": "Algorithm 2, Theorem 5.2",
            "formula": "sigma^2 = 10 L^2 log(1/delta) / epsilon^2",
            "setting": setting,
            "epsilon": 1.0,
            "delta": DELTA,
        }
        yield from objective_cases(shared, ratio=ratio, noise=math.sqrt(10.0 * LOG))


def _approximate_objective() -> Iterator[Case]:
    """Yield Algorithm 3, with half of the budget for each of its parts (BFTT-10)."""
    half = 0.5 * DELTA
    shared = {
        "paper": "bassily",
        "place": "Algorithm 3, first half",
        "formula": "sigma^2 = 20 L^2 log(1/delta) / epsilon^2",
        "setting": "half of (1, 1e-8), beta = epsilon n lambda",
        "epsilon": 0.5,
        "delta": half,
    }
    yield from objective_cases(shared, ratio=0.5, noise=math.sqrt(20.0 * LOG))
    yield Case(
        paper="bassily",
        place="Algorithm 3, second half",
        formula="sigma^2 = 40 alpha log(1/delta) / (lambda epsilon^2)",
        setting="half of (1, 1e-8), distance 2 sqrt(alpha/lambda)",
        accounting="exact Gaussian curve",
        relation="replace_one",
        epsilon=0.5,
        delta=half,
        epsilon_at=curves.gaussian(2.0 / math.sqrt(40.0 * LOG), half),
    )


# Bassily et al. (2019). L is the Lipschitz constant, M the diameter, lam the ridge.


def _largest_rate(n: int, d: int, epsilon: float, delta: float) -> float:
    """Return max{sqrt(d log(1/delta))/(epsilon n), 1/sqrt(n)}."""
    return max(math.sqrt(d * log_inverse(delta)) / (epsilon * n), 1.0 / math.sqrt(n))


@register_bound("bassily", "Theorem 3.2")
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


@register_bound("bassily", "Lemma 3.3")
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
    noise = 16.0 * T * d * log_inverse(delta) / (n * epsilon) ** 2
    return M**2 / (2.0 * eta * T) + 0.5 * eta * L**2 * (noise + 1.0)


@register_bound("bassily", "Lemma 3.4")
def noisy_sgd_stability(*, n: int, L: float, T: int, eta: float) -> float:
    r"""Return the bound of Lemma 3.4.

    :math:`2 L^2 T \eta/n`.

    Uniform stability of Algorithm 1 for eta <= 1/beta.
    """
    return 2.0 * L**2 * T * eta / n


@register_bound("bassily", "Lemma 4.3")
def envelope_distance(*, L: float, beta: float) -> float:
    r"""Return the bound of Lemma 4.3.

    :math:`L^2/(2 \beta)`, the largest distance of a loss from its envelope.

    Part 2 of the lemma, for convex L-Lipschitz losses and the beta-Moreau envelope.
    """
    return L**2 / (2.0 * beta)


@register_bound("bassily", "Theorem 4.4")
def smoothed_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float
) -> float:
    r"""Return the bound of Theorem 4.4.

    :math:`24 M L \max\{\sqrt{d \log(1/\delta)}/(\epsilon n), 1/\sqrt n\}`.

    Mean excess population loss of Algorithm 1 on Moreau envelopes, with T and eta of
    Theorem 3.2 and the largest beta that it admits.
    """
    return 24.0 * M * L * _largest_rate(n, d, epsilon, delta)


@register_bound("bassily", "Fact 4.6")
def proximal_steps(*, M: float, xi: float) -> float:
    r"""Return the bound of Fact 4.6.

    :math:`\lceil 8 M^2/\xi^2 \rceil` gradients for a xi-approximate proximal map.

    For beta >= L/M.
    """
    return float(math.ceil(8.0 * M**2 / xi**2))


@register_bound("bassily", "Theorem 5.3")
def objective_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float
) -> float:
    r"""Return the bound of Theorem 5.3.

    :math:`2 M L \sqrt{2/n + 4 d \log(1/\delta)/(\epsilon n)^2}`.

    Mean excess population loss of Algorithm 2, Hessians of rank 1, :math:`\lambda =
    \frac{2 L}{M} \sqrt{2/n + 4 d \log(1/\delta)/(\epsilon n)^2}`.
    """
    private = 4.0 * d * log_inverse(delta) / (epsilon * n) ** 2
    return 2.0 * M * L * math.sqrt(2.0 / n + private)


@register_bound("bassily", "Lemma 5.4")
def objective_empirical_risk(
    *, n: int, d: int, epsilon: float, delta: float, L: float, M: float, lam: float
) -> float:
    r"""Return the bound of Lemma 5.4.

    :math:`16 L^2 d \log(1/\delta)/(n^2 \epsilon^2 \lambda) + \lambda M^2`.

    Mean excess empirical loss of Algorithm 2, Hessians of rank 1.
    """
    private = 16.0 * L**2 * d * log_inverse(delta) / ((n * epsilon) ** 2 * lam)
    return private + lam * M**2


@register_bound("bassily", "Lemma 5.5")
def ridge_stability(*, n: int, rho: float, lam: float) -> float:
    r"""Return the bound of Lemma 5.5.

    :math:`2 \rho^2/(\lambda n)`.

    Uniform stability of the minimizer of a convex rho-Lipschitz loss plus lambda |w|^2.
    """
    return 2.0 * rho**2 / (lam * n)


@register_bound("bassily", "Theorem 5.7")
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


@register_bound("bassily", "Theorem 5.8")
def svrg_gap(*, t: int, gap: float) -> float:
    r"""Return the bound of Theorem 5.8.

    :math:`0.9^t (F(y^{(1)}) - F(w^*))`, where ``gap`` is that of the start.

    Mean gap after t epochs of 20 beta/lambda steps of size 1/(10 beta).
    """
    return float(0.9**t * gap)


@register_bound("bassily", "Appendix C")
def lower_bound(*, n: int, d: int, L: float, M: float, c: float = 1.0) -> float:
    r"""Return the bound of Appendix C.

    :math:`\Omega(M L \max\{1/\sqrt n, \sqrt d/n\})`.

    Excess population loss of every private algorithm on some distribution.
    """
    return c * M * L * max(1.0 / math.sqrt(n), math.sqrt(d) / n)
