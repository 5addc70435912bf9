"""The loop of truncated mirror descent: exact and printed recipes share it."""

from __future__ import annotations

from typing import NamedTuple

from dpsample.norms import dual
from dpsample.optimizers.batches import Batches
from dpsample.optimizers.estimators import TruncatedMean
from dpsample.optimizers.optimizer import Recipe
from dpsample.optimizers.perturbations import Perturbation
from dpsample.optimizers.phase import EQUAL_WEIGHTS, Loop
from dpsample.optimizers.steps import GradientStep, MirrorStep, Step
from dpsample.optimizers.truncated_risk import Schedule
from dpsample.optimizers.truncated_scales import Scales
from dpsample.privacy.events import Event


class Run(NamedTuple):
    """What the loop needs besides the geometry."""

    plan: Schedule
    batches: Batches
    noise: Perturbation


def recipe_of(
    scales: Scales,
    run: Run,
    event: Event | None,
    inputs: dict[str, float | int | str],
    theorems: tuple[str, ...],
) -> Recipe:
    """Mirror steps on the l_p ball, or projected gradient steps in l_2."""
    space, size = scales.space, run.plan.step_size
    step: Step = GradientStep(size)
    if not scales.is_euclidean:
        step = MirrorStep(
            size,
            exponent=space.s,
            kappa=space.kappa,
            radius=scales.radius,
            ball_exponent=min(dual(space.q), space.s),
        )
    loop = Loop(
        num_steps=run.plan.num_steps,
        step=step,
        batches=run.batches,
        estimator=TruncatedMean(threshold=run.plan.threshold, row_norm=space.q),
        noise=run.noise,
        weights=EQUAL_WEIGHTS,
    )
    return Recipe(
        phases=(loop,),
        event=event,
        inputs=inputs | {"noise_scale": float(run.noise.numbers().scale)},
        theorems=theorems,
    )


def inputs_of(plan: Schedule) -> dict[str, float | int | str]:
    """Public numbers of the certificate."""
    return {
        "scheme": plan.scheme,
        "num_steps": plan.num_steps,
        "threshold": plan.threshold,
        "step_size": plan.step_size,
    }
