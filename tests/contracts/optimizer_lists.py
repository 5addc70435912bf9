"""Every public optimizer, in groups that share a property."""

from __future__ import annotations

from dataclasses import replace

import dpsample as dps
from dpsample.optimizers.loop.batches import Full
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from tests.contracts.optimizer_cases import (
    AFFINE,
    DEFAULTS,
    ONE_PASS,
    problem,
)

LINEAR, LOGISTIC = dps.losses.Linear(), dps.losses.Logistic()


LOCALIZED = (
    "LocalizedClippedGD",
    "PrivateStochasticApproximation",
    "IteratedLocalizedClippedGD",
)


def steps_of(recipe: Recipe) -> list[Loop]:
    """Loops with Gaussian noise in their steps, tails together with what is before."""
    loops = [phase for phase in recipe.phases if isinstance(phase, Loop)]
    noisy = [loop for loop in loops if hasattr(loop.noise, "stddev")]
    if "averaged_steps" in recipe.inputs:
        total = sum(loop.num_steps for loop in noisy)
        assert all(loop.batches == Full() for loop in noisy)
        assert len({loop.noise.stddev for loop in noisy}) == 1
        noisy = [replace(noisy[0], num_steps=total)]
    return noisy


STEPWISE = [
    case
    for case in AFFINE
    if case.name != "NoisyMirrorDescent"  # whose estimator is a plain mean
    and getattr(case.optimizer, "output", "") != "last"  # less than for every step
    and steps_of(case.recipe(problem(LINEAR, case.domain)))
    and getattr(case.optimizer, "scheme", "") != "shuffle"
]


ONE_PASS_CASES = [
    case
    for case in DEFAULTS
    if case.name in ("PhasedSGD", "HeavyTailedFrankWolfe", *LOCALIZED)
    or getattr(case.optimizer, "scheme", "") in ONE_PASS
]
