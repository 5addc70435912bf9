r"""A start of descent that a noisy mean label determines, and a choice at its end.

Where one of two labels is rare, most of a descent's way leads to the intercept whose
predicted probability is the rate of the label. The mean label :math:`\bar y`, which
lies in [-1, 1], tells that intercept nearly for free. With Gaussian noise of standard
deviation s it is

.. math:: m = \bar y + s Z, \qquad
   b = \log\frac{1 + m'}{1 - m'}, \qquad m' = m \Bigl(1 - \frac{s^2}{m^2}\Bigr)_+,

where m' is also kept within 1 - s of 0. If :math:`|m| > 0.7`, descent starts at the
intercept b and slopes of 0, with steps of a quarter of their size. Otherwise it starts
at 0.

For the hinge loss the best intercept is the commoner label, so that b is the sign of m,
if :math:`|m| > 0.4`. Its steps are not shorter.

**The choice.** Where no column tells the labels, the start c is the best answer, and
whatever descent adds is noise. After a last iterate w the mean of

.. math:: u_i = \frac{\ell_i(w) - \ell_i(c)}B \text{ between -1 and 1}, \qquad
   B = \frac{L |w - c|}{\sqrt{2 d}},

is told with Gaussian noise of standard deviation s'. The answer is w if it is below
-s', and else c. L is the Lipschitz constant of a record's loss. A row
seldom points along w - c, so that most differences are far below what L allows, and a
smaller B needs less noise. If descent has started at 0, the answer is w.

*Privacy.* If a record is replaced, the mean of n labels changes by at most 2/n, and if
it is set to zero, by 1/n, because its label is left out as well. So the query has
Gaussian-DP parameter 2/(n s) or 1/(n s), and composes with the noisy gradients by the
root of the squares. All else is computed from m. Labels are -1 and 1, so that the sum
of up to 2^52 of them is exact. Quotients are off by up to 2^-54, so that those of
neighbors are farther apart by up to 2^-53, a share n 2^-53 of 1/n. The noise is larger
by the factor 1 + max(1e-11, n 2^-53), and so covers it.

In the choice w and c are released, and so is B. Each u_i is a function of its record, w
and c. It is rounded to a multiple of 2^-20 between -1 and 1, so that sums of up to 2^32
of them are exact, and so is their sensitivity, as that of labels. The bound holds for
any rounding error of a loss, because u_i is limited after it is computed. So the choice
has Gaussian-DP parameter 2/(n s') or 1/(n s'), given w and c, and its square is added,
too.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.losses import BUILT_IN, Hinge, Loss
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
from dpsample.problem.problem import Problem, margins_of
from dpsample.problem.records import Data

# Parts of a unit in which differences of losses are counted.
UNITS = 2**20


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
    is_hinge : bool
        Whether the intercept is that of a hinge loss, the commoner label.
    """

    stddev: float
    rare_mean: float = 0.7
    is_hinge: bool = False
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
        if self.is_hinge:
            return math.copysign(1.0, mean)
        variance = self.stddev**2
        shrunken = mean * max(1.0 - variance / mean**2, 0.0)
        # The rate of a label below the noise is not known, nor one below 1e-9.
        limit = 1.0 - min(0.5, max(self.stddev, 1e-9))
        shrunken = min(max(shrunken, -limit), limit)
        return math.log1p(shrunken) - math.log1p(-shrunken)


def _sum_of_labels(data: Data) -> float:
    """Return the sum of the labels of some records."""
    return float(data.response.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class FinalChoice(Query):
    """Noisy comparison of the last iterate with the start of its descent.

    Parameters
    ----------
    stddev : float
        s'. 0 means no noise.
    lipschitz : float
        L.
    """

    stddev: float
    lipschitz: float
    reads_in_order: ClassVar[bool] = True

    @property
    def is_noisy(self) -> bool:
        """Whether the mean is perturbed."""
        return self.stddev >= LEAST_NOISE

    def answer_at(
        self, problem: Problem, rng: np.random.Generator, theta: Array, start: Array
    ) -> Array:
        """Return the iterate ``theta``, or ``start`` if it seems to be no worse."""
        length = float(np.linalg.norm(theta - start))
        if not start.any() or length == 0.0:
            return theta
        bound = self.lipschitz * length / math.sqrt(2.0 * problem.dim)
        parts = problem.storage.map(sum_of_changes, problem.loss, theta, start, bound)
        mean = np.array([sum(parts) / UNITS / problem.facts.num_records])
        if self.is_noisy:
            add_gaussian(rng, self.stddev, grid_step(self.stddev), mean)
        # A start that is no worse is kept in 84 of 100 fits at least.
        return theta if mean[0] < -self.stddev else start.copy()


@np.errstate(all="ignore")
def sum_of_changes(
    data: Data, loss: Loss, theta: Array, start: Array, bound: float
) -> int:
    """Return the sum of the u_i of some records, in units of 2^-20."""
    values = [
        loss.value(margins_of(data, point), data.response) for point in (theta, start)
    ]
    # A NaN counts as no change.
    shares = np.nan_to_num((values[0] - values[1]) / bound)
    return int(np.rint(np.clip(shares, -1.0, 1.0) * UNITS).astype(np.int64).sum())


def with_mean_label(
    facts: PublicFacts,
    budget: Budget | None,
    recipe: Recipe,
    share: float,
    choice_share: float | None = None,
) -> Recipe:
    """Put the mean label before the loops of a descent, and a choice after them.

    Their shares of the square of the gdp are what the loops then lack.
    """
    check_has_intercept(facts, share, choice_share)
    inputs, label_stddev, stddev = dict(recipe.inputs), 0.0, 0.0
    choice_stddev = 0.0
    if budget is not None:
        label_stddev = noise_of_label(facts, budget, share)
        # The squares of the gdp of the queries and of all steps add up to the budget's,
        # so the steps have the root of the rest of it.
        rest = 1.0 - share - (choice_share or 0.0)
        stddev = round_up(float(inputs["noise_stddev"]) / math.sqrt(rest))
        inputs["noise_stddev"], inputs["label_stddev"] = stddev, label_stddev
        if choice_share is not None:
            choice_stddev = noise_of_label(facts, budget, choice_share)
            inputs["choice_stddev"] = choice_stddev
    label = MeanLabel(stddev=label_stddev)
    if isinstance(facts.loss, Hinge):
        # Descent from a start where the commoner label's losses are 0 is a gain well
        # before a label is rare.
        label = replace(label, is_hinge=True, rare_mean=0.4)
    phases: list[Phase] = [label]
    for phase in recipe.phases:
        assert isinstance(phase, Loop)
        step = phase.step
        if isinstance(step, ScaledStep):
            # Slopes are short compared with the intercept of a rare label, from which
            # the descent then starts, and long steps only add noise.
            step = replace(step, stddev=stddev, moved_factor=0.25)
        noise = phase.noise if budget is None else GaussianNoise(stddev)
        phases.append(replace(phase, step=step, noise=noise))
    if choice_share is not None:
        slope = float(inputs["lipschitz"])
        phases.append(FinalChoice(stddev=choice_stddev, lipschitz=slope))
    return replace(recipe, phases=tuple(phases), inputs=inputs)


def noise_of_label(facts: PublicFacts, budget: Budget, share: float) -> float:
    """Return s, if the query may use this share of the square of the budget's gdp."""
    # The rounding errors of two quotients, relative to the least sensitivity.
    rounding = max(1e-11, UNIT_ROUNDOFF * facts.num_records)
    sensitivity = SHIFTS[budget.relation] * (1.0 + rounding) / facts.num_records
    return round_up(sensitivity / (gdp_of(budget) * math.sqrt(share)))


def check_has_intercept(
    facts: PublicFacts, share: float, choice_share: float | None
) -> None:
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
    if choice_share is not None:
        limit = 1.0 - share
        check.open_interval(0.0, limit, choice_share=choice_share)
