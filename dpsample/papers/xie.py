"""Xie et al. (2022, Statistica Sinica preprint SS-2022-0282): heavy-tailed SGD."""

import math
from collections.abc import Iterator

from dpsample.papers import curves
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
