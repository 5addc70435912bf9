"""Epsilon as a function of the noise, for each way a printed formula is judged."""

from __future__ import annotations

import functools
import math
from typing import Literal

from dpsample.privacy import accounting
from dpsample.privacy.budget import Relation
from dpsample.privacy.events import PoissonGaussianEvent
from dpsample.privacy.gaussian import gaussian_epsilon, gdp_from_budget
from dpsample.privacy.objective_perturbation import PerturbedObjective
from dpsample.privacy.printed.claim import EpsilonAt
from dpsample.privacy.printed.mixtures import (
    MixturePair,
    binomial,
    composed_epsilon,
)
from dpsample.privacy.shuffling import shuffle_delta, shuffle_epsilon

LARGEST_LOCAL, MOST_ROUNDS = 500.0, 200
# How often one record counts in a batch, on either side of the pair.
Pair = Literal["(r, 0)", "(+r, -r)", "(2r, 0)"]


def gaussian(gdp: float, delta: float) -> EpsilonAt:
    """Gaussian differential privacy: exact."""
    return lambda factor: gaussian_epsilon(delta, gdp / factor)


def poisson(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
    relation: Relation,
) -> EpsilonAt:
    """Poisson sampling, noise relative to the bound of one record.

    Attained when all other gradients vanish. That no other pair is worse is proved
    under zero_out, and under replace_one only checked numerically.
    """
    return lambda factor: _poisson_epsilon(
        sampling_rate, noise_multiplier * factor, num_steps, delta, relation
    )


@functools.lru_cache(maxsize=1024)
def _poisson_epsilon(
    rate: float, noise: float, steps: int, delta: float, relation: Relation
) -> float:
    event = PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=steps
    )
    return accounting.epsilon_of(event, delta=delta, relation=relation)


def poisson_renyi(
    *, sampling_rate: float, noise_multiplier: float, num_steps: int, delta: float
) -> EpsilonAt:
    """Poisson sampling under zero_out by dp-accounting's Renyi accountant."""

    def epsilon_at(factor: float) -> float:
        from dp_accounting import (
            GaussianDpEvent,
            PoissonSampledDpEvent,
            SelfComposedDpEvent,
        )
        from dp_accounting.rdp import RdpAccountant

        step = GaussianDpEvent(noise_multiplier * factor)
        event = SelfComposedDpEvent(
            PoissonSampledDpEvent(sampling_rate, step), num_steps
        )
        return float(RdpAccountant().compose(event).get_epsilon(delta))

    return epsilon_at


def repeated(
    pair: Pair,
    *,
    batch: int,
    num_records: int,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
) -> EpsilonAt:
    """Sample with replacement: a record counts r ~ Binomial(batch, 1/n) times."""
    counts, weights = binomial(batch, 1.0 / num_records)
    scales = {"(r, 0)": (1.0, 0.0), "(+r, -r)": (1.0, -1.0), "(2r, 0)": (2.0, 0.0)}
    first, second = scales[pair]

    def epsilon_at(factor: float) -> float:
        mixtures = MixturePair(
            weights=tuple(weights),
            means=tuple(first * counts),
            others=tuple(second * counts),
            stddev=noise_multiplier * factor,
        )
        return composed_epsilon(mixtures, num_steps=num_steps, delta=delta)

    return epsilon_at


def fixed_size(
    *, sampling_rate: float, noise_multiplier: float, num_steps: int, delta: float
) -> EpsilonAt:
    """Sample without replacement: a record that moves the sum by 1, or not.

    The same pair as Poisson sampling under zero_out.
    """
    return poisson(
        sampling_rate=sampling_rate,
        noise_multiplier=noise_multiplier,
        num_steps=num_steps,
        delta=delta,
        relation="zero_out",
    )


def objective(
    *, ratio: float, noise: float, delta: float, relation: Relation
) -> EpsilonAt:
    """Objective perturbation of a linear model, beta / (2 n lambda) = ``ratio``.

    ``noise`` is the standard deviation over the Lipschitz constant.
    """
    tilted = PerturbedObjective(
        lipschitz=1.0, smoothness=ratio, num_records=1, ridge=0.5, relation=relation
    )
    return lambda factor: tilted.epsilon(delta, stddev=noise * factor)


def shuffled(noise: float, *, num_records: int, delta: float) -> EpsilonAt:
    """Gaussian noise on each clipped record, bound 1, in random order.

    Half of delta is for shuffling epsilon_0-DP records, half pays
    (1 + e^epsilon) (1 + e^-epsilon_0 / 2) n delta_0 for their Gaussian curve (Feldman,
    McMillan and Talwar 2021). epsilon occurs on both sides: the smallest solution.
    """

    def epsilon_at(factor: float) -> float:
        gdp, epsilon = 2.0 / (noise * factor), 0.0
        for _ in range(MOST_ROUNDS):
            local = LARGEST_LOCAL
            for _ in range(3):
                spared = _local_delta(epsilon, local, num_records, delta)
                local = gaussian_epsilon(spared, gdp)
            if local > LARGEST_LOCAL:
                break
            found = shuffle_epsilon(
                delta=0.5 * delta, local_epsilon=local, num_records=num_records
            )
            if found <= epsilon * (1.0 + 1e-6):
                return epsilon
            epsilon = found * (1.0 + 1e-7)
        return math.inf

    return epsilon_at


def shuffled_noise(epsilon: float, *, num_records: int, delta: float) -> float:
    """Noise on each record, in units of its bound, for which `shuffled` is epsilon."""
    low, high = 0.0, LARGEST_LOCAL
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        found = shuffle_delta(
            epsilon=epsilon, local_epsilon=middle, num_records=num_records
        )
        low, high = (middle, high) if found <= 0.5 * delta else (low, middle)
    return 2.0 / gdp_from_budget(low, _local_delta(epsilon, low, num_records, delta))


def _local_delta(epsilon: float, local: float, num_records: int, delta: float) -> float:
    """delta_0 of each record that half of delta pays for."""
    cost = (1.0 + math.exp(epsilon)) * (1.0 + 0.5 * math.exp(-local)) * num_records
    return 0.5 * delta / cost
