"""Published noise formulas as functions of the budget: attained and proved epsilon.

Both are epsilon at the claimed delta. 0 is attained, and infinity proved, where nothing
better is known. Settings: n = 1e4 records and the numbers of steps that the papers use,
if no other is given.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dpsample.papers import curves
from dpsample.papers.claim import EpsilonAt, needed_factor
from dpsample.papers.curves import huber_attack
from dpsample.papers.su import strongly_convex
from dpsample.papers.xu import INSTANCE_RATIO
from dpsample.privacy.curves.gaussian import paper_gdp

DIM = 50  # in the number of steps of arXiv:1908.09970
REPLACE = "replace_one"


class Claim(NamedTuple):
    """One claim at one setting; both bounds as functions of a factor of the noise."""

    epsilon: float
    delta: float
    num_records: int = 10_000
    num_steps: int = 0  # that of the paper

    @property
    def log(self):
        """log(1/delta)."""
        return math.log(1.0 / self.delta)

    def half(self):
        """Half of the budget, for one of two stages."""
        return self._replace(epsilon=0.5 * self.epsilon, delta=0.5 * self.delta)


class Truth(NamedTuple):
    """Epsilon of the published noise times a factor, bounded on both sides."""

    claim: Claim
    attained: EpsilonAt | None = None
    proved: EpsilonAt | None = None
    needed: Callable[[], float] | None = None  # the factor, where it is faster


def exact(claim, curve):
    """Attained, and no more is possible."""
    return Truth(claim, curve, curve)


def gaussian(claim, gdp):
    """Gaussian noise with all outputs in one direction."""
    return exact(claim, curves.gaussian(gdp, claim.delta))


def theorem_3(claim):
    """k/mu for the sensitivity G/n; a replaced record moves F by 2 G/n (GLLST-E1)."""
    return gaussian(claim, 2.0 * paper_gdp(claim.epsilon, claim.delta))


def theorem_3_zeroed(claim):
    """Count it as printed where it is right, under zero_out: GLLST-E2 is left."""
    return gaussian(claim, paper_gdp(claim.epsilon, claim.delta))


def corollary_2(claim):
    """(epsilon, delta/2) for an exact draw, and a sampler within delta/2 of its law.

    Such a sampler may never show an event of probability delta/2 on one data set, and
    add delta/2 to its larger probability on the other: at delta no epsilon holds.
    """
    return exact(claim, lambda factor: math.inf)


def noisy_sgd(claim, *, is_poisson):
    """sigma^2 = 8 T L^2 log(1/delta)/(n epsilon)^2, m = n sqrt(epsilon/(4T))."""
    n, steps = claim.num_records, claim.num_steps
    if not steps:
        most = (claim.epsilon * n) ** 2 / (32.0 * DIM * claim.log)
        steps = max(1, math.floor(min(n / 8.0, most)))
    batch = min(n, max(1, round(n * math.sqrt(claim.epsilon / (4.0 * steps)))))
    noise = math.sqrt(8.0 * steps * claim.log) / (n * claim.epsilon) * batch
    step = {"noise_multiplier": noise, "num_steps": steps, "delta": claim.delta}
    if is_poisson:
        law = {"sampling_rate": batch / n, "relation": REPLACE}
        return exact(claim, curves.poisson(**law, **step))
    sizes = {"batch": batch, "num_records": n}
    pairs = [
        curves.with_replacement(p, **sizes, **step) for p in ("(2r, 0)", "(+r, -r)")
    ]
    return Truth(claim, lambda factor: max(pair(factor) for pair in pairs))


def perturbed_objective(claim, *, ratio, noise):
    """Objective perturbation of a linear model, beta/(2 n lambda) = ratio."""
    law = {"ratio": ratio, "noise": noise, "delta": claim.delta, "relation": REPLACE}
    return Truth(claim, huber_attack(**law), curves.objective(**law))


def algorithm_2(claim):
    """sigma^2 = 10 L^2 log(1/delta)/epsilon^2, beta = epsilon n lambda."""
    noise = math.sqrt(10.0 * claim.log) / claim.epsilon
    return perturbed_objective(claim, ratio=0.5 * claim.epsilon, noise=noise)


def algorithm_3_first(claim):
    """sigma^2 = 20 L^2 log(1/delta)/epsilon^2 for half of the budget (BFTT-10)."""
    noise = math.sqrt(20.0 * claim.log) / claim.epsilon
    return perturbed_objective(claim.half(), ratio=0.5 * claim.epsilon, noise=noise)


def algorithm_3_second(claim):
    """sigma^2 = 40 alpha log(1/delta)/(lambda epsilon^2), half of the budget."""
    gdp = 2.0 * claim.epsilon / math.sqrt(40.0 * claim.log)
    return gaussian(claim.half(), gdp)


def su_first(claim, *, rank):
    """sigma_1^2 = 128 L^2 log(2.5/delta)/epsilon^2, lambda = rank beta/(epsilon n).

    The second half has so much to spare that both together keep the whole budget.
    """
    noise = math.sqrt(128.0 * math.log(2.5 / claim.delta)) / claim.epsilon
    return perturbed_objective(
        claim.half(), ratio=0.5 * claim.epsilon / rank, noise=noise
    )


def su_second(claim):
    """sigma_2^2 = 64 alpha log(2.5/delta)/(lambda epsilon^2), half of the budget."""
    gdp = 2.0 * claim.epsilon / math.sqrt(64.0 * math.log(2.5 / claim.delta))
    return gaussian(claim.half(), gdp)


def mirror(claim, *, loss):
    """sigma^2 = 64 L^2 kappa T log(1/delta)/(n epsilon)^2, kappa short of ``loss``.

    Attained for p = 2, where the noise is Gaussian.
    """
    gdp = claim.epsilon / (4.0 * math.sqrt(claim.log))
    proved = curves.gaussian(gdp * math.sqrt(loss), claim.delta)
    return Truth(claim, proved if loss == 1.0 else None, proved)


def noise_of_localization(claim, *, ratio=1.0):
    """Noise 8 C sqrt(log(1/delta))/(n lambda epsilon) for a shift of 2C/(n lambda).

    ``ratio``: by how much the clipping instance moves farther than that.
    """
    gdp = ratio * claim.epsilon / (4.0 * math.sqrt(claim.log))
    curve = curves.gaussian(gdp, claim.delta)
    return exact(claim, curve) if ratio == 1.0 else Truth(claim, curve)


def heavy_tailed(claim, *, moved=1.0, is_sum=True):
    """Noise s sqrt(log(1/delta))/epsilon, whatever T; ``moved`` s per record.

    Batches of n/6 and T = 180 in the paper's simulations. What is no sum may move by s
    from its value without the record: an attack.
    """
    noise = (2.0 if is_sum else 1.0) / moved * math.sqrt(claim.log) / claim.epsilon
    step = {"noise_multiplier": noise, "num_steps": claim.num_steps or 180}
    relation = REPLACE if is_sum else "zero_out"
    curve = curves.poisson(
        sampling_rate=1.0 / 6.0, delta=claim.delta, relation=relation, **step
    )
    return exact(claim, curve) if is_sum else Truth(claim, curve)


def one_mean(claim):
    """Release once, with the same noise."""
    return gaussian(claim, claim.epsilon / math.sqrt(claim.log))


def su_strongly_convex(claim):
    """Attack: curvature in the norm of C is not curvature in l_2 (gradient-E6)."""
    return Truth(claim, strongly_convex(claim.epsilon, claim.delta))


def unknown(claim):
    """Nothing is proved of it, and nothing refutes it here."""
    return Truth(claim)


def _with(function, **options):
    return lambda claim: function(claim, **options)


# Paper, formula: law.
FORMULAS = {
    ("Gopi et al. 2022", "Theorems 3 to 6"): theorem_3,
    ("Gopi et al. 2022", "Theorems 3, 4, record zeroed"): theorem_3_zeroed,
    ("Bassily et al. 2019", "Algorithm 1, Poisson"): _with(noisy_sgd, is_poisson=True),
    ("Bassily et al. 2019", "Algorithm 1, with replacement"): _with(
        noisy_sgd, is_poisson=False
    ),
    ("Bassily et al. 2019", "Algorithm 2"): algorithm_2,
    ("Bassily et al. 2019", "Algorithm 3, first half"): algorithm_3_first,
    ("Bassily et al. 2019", "Algorithm 3, second half"): algorithm_3_second,
    ("Su et al. 2023", "Algorithm 1, first half, r = 2"): _with(su_first, rank=2),
    ("Su et al. 2023", "Algorithm 1, first half, r = 1"): _with(su_first, rank=1),
    ("Su et al. 2023", "Algorithm 1, second half"): su_second,
    ("Su et al. 2023", "Algorithm 3, p = 2"): _with(mirror, loss=1.0),
    ("Su et al. 2023", "Algorithm 3, p near 1"): _with(mirror, loss=math.e),
    ("Xu et al. 2026", "Algorithms 2, 3, linear model"): noise_of_localization,
    ("Xie et al. 2022", "Algorithm 1"): _with(heavy_tailed, moved=2.0),
    ("Xie et al. 2022", "Algorithm 2"): _with(heavy_tailed, is_sum=False),
    ("Xie et al. 2022", "Algorithm 4"): heavy_tailed,
    ("Xie et al. 2022", "Algorithm 3"): one_mean,
}
# Beyond the axis, or nothing is known.
OTHERS = {
    ("Gopi et al. 2022", "Corollaries 2 to 5"): corollary_2,
    ("Su et al. 2023", "Algorithm 1, not linear"): unknown,
    ("Su et al. 2023", "Algorithm 2"): su_strongly_convex,
    ("Su et al. 2023", "Algorithm 4"): unknown,
    ("Xu et al. 2026", "Algorithm 6"): unknown,
    ("Xu et al. 2026", "Algorithms 2, 3, not linear"): _with(
        noise_of_localization, ratio=INSTANCE_RATIO
    ),
}
UNPROVED = {
    "Algorithm 1, not linear": "unproved: the noise decides the gradient's direction",
    "Algorithm 4": "unproved: no constant is given",
    "Algorithm 6": "unproved: no constant is given",
}


def judge(paper, formula, claim, *, has_noise):
    """Attained and proved epsilon, and noise needed, in units of what is claimed."""
    truth = (FORMULAS | OTHERS)[paper, formula](claim)
    epsilon = truth.claim.epsilon  # a stage may spend a part
    sizes = {
        "attained": 0.0 if truth.attained is None else truth.attained(1.0) / epsilon,
        "proved": math.inf if truth.proved is None else truth.proved(1.0) / epsilon,
    }
    if has_noise and truth.needed is not None:
        sizes["noise"] = truth.needed()
    elif has_noise and math.isfinite(sizes["proved"]):
        factor = needed_factor(truth.proved, epsilon, start=sizes["proved"] * epsilon)
        if factor is not None:
            sizes["noise"] = factor
    return sizes
