r"""A start of descent that a noisy mean label determines.

Where one of two labels is rare, most of a descent's way leads to the intercept whose
predicted probability is the rate of the label. The mean label :math:`\bar y`, which
lies in [-1, 1], tells that intercept nearly for free. With Gaussian noise of standard
deviation s it is

.. math:: m = \bar y + s Z, \qquad
   b = \log\frac{1 + m'}{1 - m'}, \qquad m' = m \Bigl(1 - \frac{s^2}{m^2}\Bigr)_+,

where m' is also kept within 1 - s of 0. If :math:`|m| > 0.7`, descent starts at the
intercept b and slopes of 0, with steps of a quarter of their size. Otherwise it starts
at 0.

*Privacy.* If a record is replaced, the mean of n labels changes by at most 2/n, and if
it is set to zero, by 1/n, because its label is left out as well. So the query has
Gaussian-DP parameter 2/(n s) or 1/(n s), and composes with the noisy gradients by the
root of the squares. All else is computed from m. Labels are -1 and 1, so that the sum
of up to 2^52 of them is exact. Quotients are off by up to 2^-54, so that those of
neighbors are farther apart by up to 2^-53, a share n 2^-53 of 1/n. The noise is larger
by the factor 1 + max(1e-11, n 2^-53), and so covers it.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.losses import BUILT_IN
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers.loop.optimizer import (
    LEAST_NOISE,
    Loop,
    Phase,
    Query,
    Recipe,
)
from dpsample.optimizers.loop.perturbations import GaussianNoise, gdp_of
from dpsample.optimizers.loop.steps import ScaledStep
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.records import Data


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanLabel(Query):
    """Noisy mean label, and the intercept that follows from it.

    Parameters
    ----------
    stddev : float
        s. 0 means no noise.
    rare_mean : float
        A label is rare if the noisy mean label is farther than this from 0. Nearly all
        of the way of a descent then leads to the intercept.
    """

    stddev: float
    rare_mean: float = 0.7
    reads_in_order: ClassVar[bool] = True

    @property
    def is_noisy(self) -> bool:
        """Whether the mean is perturbed."""
        return self.stddev >= LEAST_NOISE

    def answer(self, problem: Problem, rng: np.random.Generator) -> Array:
        """Draw the noise, and return the start, which is within the domain."""
        start = np.zeros(problem.dim)
        start[-1] = self.intercept(self.noisy_mean(problem, rng))
        return np.asarray(problem.domain.project(start))

    def noisy_mean(self, problem: Problem, rng: np.random.Generator) -> float:
        """Return m."""
        total = sum(problem.storage.map(_sum_of_labels))
        mean = np.array([total / problem.facts.num_records])
        if self.is_noisy:
            add_gaussian(rng, self.stddev, grid_step(self.stddev), mean)
        return float(mean[0])

    def intercept(self, mean: float) -> float:
        """Return the intercept b for a noisy mean label, 0 if no label is rare."""
        if not abs(mean) > self.rare_mean:
            return 0.0
        variance = self.stddev**2
        shrunken = mean * max(1.0 - variance / mean**2, 0.0)
        # The rate of a label below the noise is not known, nor one below 1e-9.
        limit = 1.0 - min(0.5, max(self.stddev, 1e-9))
        shrunken = min(max(shrunken, -limit), limit)
        return math.log1p(shrunken) - math.log1p(-shrunken)


def _sum_of_labels(data: Data) -> float:
    """Return the sum of the labels of some records."""
    return float(data.response.sum())


def with_mean_label(
    facts: PublicFacts, budget: Budget | None, recipe: Recipe, share: float
) -> Recipe:
    """Put the mean label before the loops of a scaled descent.

    Its share of the square of the gdp is what the loops then lack.
    """
    check_has_intercept(facts, share)
    inputs, label_stddev, stddev = dict(recipe.inputs), 0.0, 0.0
    if budget is not None:
        label_stddev = noise_of_label(facts, budget, share)
        # The squares of the gdp of the label and of all steps add up to the budget's,
        # so the steps have the root of 1 - share of it.
        stddev = round_up(float(inputs["noise_stddev"]) / math.sqrt(1.0 - share))
        inputs["noise_stddev"], inputs["label_stddev"] = stddev, label_stddev
    phases: list[Phase] = [MeanLabel(stddev=label_stddev)]
    for phase in recipe.phases:
        assert isinstance(phase, Loop)
        assert isinstance(phase.step, ScaledStep)
        # Slopes are short compared with the intercept of a rare label, from which the
        # descent then starts, and long steps only add noise.
        step = replace(phase.step, stddev=stddev, moved_factor=0.25)
        noise = phase.noise if budget is None else GaussianNoise(stddev)
        phases.append(replace(phase, step=step, noise=noise))
    return replace(recipe, phases=tuple(phases), inputs=inputs)


def noise_of_label(facts: PublicFacts, budget: Budget, share: float) -> float:
    """Return s, if the query may use this share of the square of the budget's gdp."""
    # The rounding errors of two quotients, relative to the least sensitivity.
    rounding = max(1e-11, UNIT_ROUNDOFF * facts.num_records)
    sensitivity = SHIFTS[budget.relation] * (1.0 + rounding) / facts.num_records
    return round_up(sensitivity / (gdp_of(budget) * math.sqrt(share)))


def check_has_intercept(facts: PublicFacts, share: float) -> None:
    """Raise unless the last coefficient is an intercept that labels determine."""
    remedy = "Leave out label_share."
    is_built_in = type(facts.loss) in BUILT_IN.values()
    if not (is_built_in and facts.loss.is_classification):
        condition = "one of the package for labels, with label_share"
        check.fail("loss", condition, facts.loss, remedy)
    if not facts.intercept:
        remedy = "Pass intercept=True to the problem, or leave out label_share."
        check.fail("intercept", "True with label_share", False, remedy)
    if facts.offset_bound > 0.0:
        check.fail("offset_bound", "0 with label_share", facts.offset_bound, remedy)
    if facts.center.any():
        check.fail("domain", "about 0 with label_share", facts.domain, remedy)
    check.open_interval(0.0, 1.0, label_share=share)
