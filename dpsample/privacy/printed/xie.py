"""Xie et al. (2022, Statistica Sinica preprint SS-2022-0282): heavy-tailed SGD."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dpsample.privacy.budget import Relation
from dpsample.privacy.printed import curves
from dpsample.privacy.printed.claim import Case

NUM_RECORDS, DELTA = 10_000, 1e-4
LOG = math.log(1.0 / DELTA)
EPSILONS = (0.5, 1.0, 3.0)
CLIPPED = "sigma = C sqrt(log(1/delta)) / (m epsilon)"
ROBUST = "sigma = sensitivity * sqrt(log(1/delta)) / epsilon"
# Simulations: T = 5 n^2 / m^2 steps of batches of m records.
SIXTH = ("n = 1e4, m = n/6, T = 180", 1.0 / 6.0, 180)
TENTH = ("n = 1e4, m = n/10, T = 500", 0.1, 500)


def cases() -> Iterator[Case]:
    """Algorithm 1 (clipping), 2 and 4 (medians, soft truncation), 3 (one mean).

    Noise without T (gradient-E25); Algorithm 1 counts a replaced record once, although
    it moves the sum by 2 C (gradient-E31). In a batch of fixed size a record moves the
    sum, or not: the same pair as Poisson sampling under zero_out.
    """
    for setting, rate, num_steps in (SIXTH, TENTH):
        for epsilon in EPSILONS:
            step = {"sampling_rate": rate, "num_steps": num_steps, "delta": DELTA}
            shared = {"paper": "xie", "setting": setting, "epsilon": epsilon}
            yield from _clipped(epsilon, step, shared)
            yield from _robust(epsilon, step, shared)
    for epsilon in EPSILONS:
        yield _gaussian(epsilon, DELTA, num_steps=5)
    for epsilon in (1.0, 5.0):
        yield _gaussian(epsilon, 1e-5, num_steps=1)


def _clipped(
    epsilon: float, step: dict[str, Any], shared: dict[str, Any]
) -> Iterator[Case]:
    """Algorithm 1: the noise is relative to C, the bound of one record."""
    noise = math.sqrt(LOG) / epsilon
    shared = shared | {"place": "Algorithm 1", "formula": CLIPPED, "delta": DELTA}
    relations: tuple[Relation, ...] = ("zero_out", "replace_one")
    for relation in relations:
        yield Case(
            **shared,
            accounting="Poisson sampling",
            relation=relation,
            epsilon_at=curves.poisson(
                noise_multiplier=noise, relation=relation, **step
            ),
        )
    yield Case(
        **shared,
        accounting="fixed size, pair (2C, 0)",
        relation="replace_one",
        meaning="attack",
        epsilon_at=curves.poisson(
            noise_multiplier=0.5 * noise, relation="zero_out", **step
        ),
    )


def _robust(
    epsilon: float, step: dict[str, Any], shared: dict[str, Any]
) -> Iterator[Case]:
    """Algorithms 2 and 4: relative to a replaced record's, two bounds of one."""
    noise = math.sqrt(LOG) / epsilon
    place = {"place": "Algorithms 2 and 4", "formula": ROBUST, "delta": DELTA}
    shared = shared | place | {"relation": "replace_one"}
    yield Case(
        **shared,
        accounting="Poisson sampling",
        epsilon_at=curves.poisson(
            noise_multiplier=2.0 * noise, relation="replace_one", **step
        ),
    )
    yield Case(
        **shared,
        accounting="fixed size, pair (sensitivity, 0)",
        meaning="attack",
        epsilon_at=curves.poisson(noise_multiplier=noise, relation="zero_out", **step),
    )


def _gaussian(epsilon: float, delta: float, *, num_steps: int) -> Case:
    """All records in every step, or the one private mean of Algorithm 3."""
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
