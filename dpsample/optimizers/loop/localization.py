r"""Localized minimization: phases of fresh records, ever closer to their start.

Phase i solves :math:`\min \frac1{n_i} \sum f_C + \frac1{2 \eta_i n_i} |w - w_{i-1}|^2`
on :math:`n_i = \lfloor n/2^i \rfloor` records, :math:`\eta_i = \eta/4^i`, and adds
Gaussian noise. Minimizers of neighbors are :math:`s C \eta_i` apart, s = 2 for a
replaced record and 1 for one set to zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.clipping import HeavyTailedScales, clipped_smoothness
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Minimization
from dpsample.optimizers.loop.variance_reduced import STEPS_PER_CONDITION
from dpsample.privacy.curves.additive import up
from dpsample.privacy.curves.output_perturbation import (
    CERTIFIED_GAP,
    SENSITIVITY_THEOREM,
)
from dpsample.problem.facts import PublicFacts

THEOREMS = (SENSITIVITY_THEOREM, "disjoint phases: every record is read in one phase")
ASSUMPTIONS = (CERTIFIED_GAP,)


class Stage(NamedTuple):
    """One phase of a localized run."""

    first: int
    size: int
    eta: float
    stddev: float
    error: float  # distance of the certified point from the minimizer


class LocalizationPlan(NamedTuple):
    """All public numbers of one localized run."""

    scales: HeavyTailedScales
    clip: float
    stages: tuple[Stage, ...]

    @property
    def eta(self) -> float:
        """Step eta of the schedule eta_i = eta/4^i."""
        return 4.0 * self.stages[0].eta

    def gap(self, spread: float) -> float:
        """Bound of the mean excess *clipped* risk if E |start - minimizer|^2 <= spread.

        On-average stability of the minimizer costs 2 eta_i E |clipped gradient|^2.
        """
        rms = self.scales.root_mean_square(self.clip)
        total, far = 0.0, spread
        for stage in self.stages:
            total += 0.5 * far / (stage.eta * stage.size) + 2.0 * rms**2 * stage.eta
            off = math.sqrt(self.scales.dim) * stage.stddev + stage.error
            far = off**2
        return total + rms * off


def plan_of(
    scales: HeavyTailedScales,
    *,
    first: int,
    count: int,
    distance: float,
    accuracy: float,
) -> LocalizationPlan:
    """Threshold, step and noise of a localized run on ``count`` records.

    With the scales' noise the clipped excess risk is at most about
    4 D^2/(eta n) + eta (2 r^2/3 + 4 d (s C/gdp)^2/n), which eta minimizes.
    """
    if count < 2:
        check.fail("num_records", "at least 2 in every localized run", count)
    clip = scales.threshold(count)
    bound = clip if math.isfinite(clip) else scales.moment
    rms = scales.root_mean_square(clip)
    per_step = scales.shift * clip / scales.gdp if math.isfinite(scales.gdp) else 0.0
    variance = 2.0 * rms**2 / 3.0 + 4.0 * scales.dim * per_step**2 / count
    eta = distance * math.sqrt(4.0 / (count * variance))
    stages = []
    for i in range(1, count.bit_length()):
        step = eta * 0.25**i
        stddev = up(per_step * step * (1.0 + accuracy)) if per_step else 0.0
        # Both neighbors err by half of accuracy * (distance of their minimizers).
        error = 0.5 * accuracy * scales.shift * bound * step
        stages.append(Stage(first, count >> i, step, stddev, error))
        first += count >> i
    return LocalizationPlan(scales, clip, tuple(stages))


def minimizations(
    facts: PublicFacts,
    plan: LocalizationPlan,
    *,
    local_radius: float = math.inf,
) -> tuple[Minimization, ...]:
    """Phases of a plan; a local ball stays about the start of the first."""
    curvature = clipped_smoothness(facts, plan.clip)
    phases = []
    for index, stage in enumerate(plan.stages):
        ridge = 1.0 / (stage.eta * stage.size)
        # Epochs of random records pay where they are much shorter than a pass.
        epoch = STEPS_PER_CONDITION * (1.0 + curvature / ridge)
        phases.append(
            Minimization(
                ridge=ridge,
                smoothness=curvature,
                gap=0.5 * ridge * stage.error**2,
                first=stage.first,
                last=stage.first + stage.size,
                estimator=ClippedMean(threshold=plan.clip),
                is_anchored=True,
                local_radius=local_radius,
                output_stddev=stage.stddev,
                keeps_ball=index > 0,
                solver="svrg" if 4.0 * epoch <= stage.size else "accelerated",
            )
        )
    return tuple(phases)
