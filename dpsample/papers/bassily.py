"""Bassily, Feldman, Talwar and Thakurta (2019): noisy SGD, objective perturbation."""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
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
