"""Which recipes stay private for losses that are no function of a linear margin.

Clipping the gradients of phi(<a, w>) gives gradients of another convex loss: gradient
steps contract and minimizers move little, which is what output and objective
perturbation rest on. For other losses clipped descent has neither property (erratum
gradient-E15). Noise in every step asks only that one record's vector is bounded.
"""

from __future__ import annotations

import math

from dpsample import _check as check
from dpsample.optimizers.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
    TruncatedMean,
)
from dpsample.optimizers.optimizer import Recipe
from dpsample.optimizers.perturbations import NoNoise
from dpsample.optimizers.phase import Loop, Phase
from dpsample.optimizers.steps import FrankWolfeStep

BOUNDED = (ClippedMean, TruncatedMean, BucketedMedian, CatoniMean)
REMEDY = (
    "Use DPSGD, NoisyGD, NoisySGD or ClippedGD(noise='steps') with a clip, "
    "PrivateProximalSGD or AcceleratedClippedSGD."
)


def check_any_loss(recipe: Recipe, optimizer: object, *, is_private: bool) -> None:
    """Refuse a recipe whose steps, or whose privacy, need a loss of the margin."""
    for phase in recipe.phases:
        reason = _needs_margin(phase, is_private)
        if reason:
            check.fail(
                "optimizer",
                "private for losses that are no function of the margin",
                f"{optimizer!r}, which {reason}",
                REMEDY,
            )


def trusts_loss(recipe: Recipe) -> bool:
    """Whether privacy rests on convexity and bounds that a loss declares."""
    return any(_needs_margin(phase, True) for phase in recipe.phases)


def _needs_margin(phase: Phase, is_private: bool) -> str:
    """Why a phase needs a loss of the margin; empty if it does not."""
    if not isinstance(phase, Loop):
        return "minimizes a convex objective: its minimizer can move far"
    estimator = phase.estimator
    if estimator.smoothing > 0.0:
        return "takes Moreau envelopes of a loss of the margin"
    if isinstance(estimator, TruncatedMean) and estimator.q != 2.0:
        return "truncates gradients in a norm other than the l2 norm"
    if not is_private:
        return ""
    if phase.output_stddev > 0.0:
        return "perturbs its output: clipped descent can move it far"
    if not _is_bounded(estimator):
        return "trusts a Lipschitz constant that no clipping enforces"
    if isinstance(phase.noise, NoNoise):
        step = phase.step
        if not (isinstance(step, FrankWolfeStep) and math.isfinite(step.selection)):
            return "adds no noise to its steps"
    return ""


def _is_bounded(estimator: Estimator) -> bool:
    """Whether one record's part is bounded, whatever its gradient is."""
    return isinstance(estimator, BOUNDED) and math.isfinite(estimator.record_bound(1))
