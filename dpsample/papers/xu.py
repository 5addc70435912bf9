"""Xu et al. (2026): clipped gradient methods under the Tsybakov noise condition."""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
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
        epsilon_at=curves.gaussian(2.0 / (noise * math.sqrt(BATCH)), DELTA),
    )
    yield Case(
        **shared,
        setting=f"n = 1e4, {noise:.3g} C per record",
        accounting="the sum of all outputs, linear losses",
        meaning="attack",
        epsilon_at=curves.gaussian(2.0 / (noise * math.sqrt(NUM_RECORDS)), DELTA),
    )
