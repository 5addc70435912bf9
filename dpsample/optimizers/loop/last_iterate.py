r"""Last iterate of noisy gradient descent: its noise, by `curves.last_iterate`.

If only the last of T noisy iterates is released, it is as private as fewer than T steps
on all records: steps *contract*, so the effect of a record on early steps fades.

With a ridge lambda and losses of curvature at most beta, a step of length eta contracts
by :math:`c = \max(|1 - \eta\lambda|, |1 - \eta(\beta + \lambda)|)`. The reason is that
slopes of a function of the margin, clipped or not, differ between two points x and y by
:math:`h_i \langle a_i, x - y\rangle` with :math:`0 \le h_i |a_i|^2 \le \beta`. So the
step's map has a symmetric secant matrix with eigenvalues in that range, wherever both
points lie. For other losses clipping breaks that. One record moves a step by
:math:`\eta \Delta L/n`, where L bounds its gradient and Delta is 2 or 1 by the
relation.

**Rounding.** The last noise is added to the last point by the exact mechanism of
outputs. The noise of earlier steps lies on a finer grid, so its rounding is an error
like all others of a step (`iterate_errors`). Noisy gradients add 6 u eta |noise| to
these, u = 2^-53. The noise is below 12 standard deviations except with probability
2^-107. Rows may exceed their bound by 1e-12.
"""

import math
from dataclasses import replace

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF
from dpsample.losses import Custom, RecordGradient
from dpsample.optimizers.loop.estimators import Estimator
from dpsample.optimizers.loop.iterate_errors import iterate_error
from dpsample.optimizers.loop.noisy_descent import DescentScales
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise, gdp_of
from dpsample.optimizers.loop.solve import MOST
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.privacy.curves.last_iterate import last_iterate_gdp
from dpsample.problem.facts import PublicFacts

# The grid of the noise is finer by so many bits in the steps before the last.
EXTRA_BITS = 18
# Largest rounding error of a step, relative to the distance that a record moves it.
MAX_ERROR = 1e-3
# Relative change of a step by rows that exceed their bound by rounding is below this.
ROWS = 1e-11


def check_smooth(facts: PublicFacts, scales: DescentScales) -> None:
    """Reject losses whose steps are not known to contract."""
    if isinstance(facts.loss, Custom | RecordGradient):
        remedy = "Its convexity and curvature are declared only. Use output='tail'."
        check.fail("loss", "a built-in one for the last iterate", facts.loss, remedy)
    if math.isinf(scales.smoothness):
        remedy = "Its steps move points apart. Use output='tail'."
        check.fail("loss", "smooth for the last iterate", facts.loss, remedy)


def contraction(scales: DescentScales, size: float, ridge: float) -> float:
    """Return c of the module for steps of this ``size``, rounded up."""
    steepest = scales.smoothness * (1.0 + ROWS) + ridge
    return (
        max(abs(1.0 - size * ridge), abs(1.0 - size * steepest)) + 4.0 * UNIT_ROUNDOFF
    )


def effective_steps(
    c: float, num_steps: int, *, diameter: float, error: float
) -> float:
    """Return T' <= T such that noise for T' steps on all records is enough.

    ``diameter`` is the diameter of the domain, and ``error`` twice the rounding error
    of a step, both in units of the distance by which a record moves a step. T' is the
    better of two bounds. One follows all steps from the common start. The other follows
    only the last few, from points that are a diameter apart.
    """
    steps = np.arange(1.0, num_steps + 1.0)
    powers = c**steps
    with np.errstate(all="ignore"):  # quotients are 0/0 for c = 1, with these limits
        sums = np.where(c == 1.0, steps, (1.0 - powers) / (1.0 - c))
        squares = np.where(c == 1.0, steps, (1.0 - powers**2) / (1.0 - c**2))
        count = int(np.argmin((powers * diameter + sums) ** 2 / squares)) + 1
    energies = [
        _energy(c, length, start, error)
        for length, start in ((num_steps, 0.0), (count, diameter + error))
        if math.isfinite(start)
    ]
    return min(energies)


def _energy(c: float, count: int, start: float, error: float) -> float:
    """Return the squared gdp of ``count`` steps with unit noise and this start.

    It is the number of steps on all records that are as private.
    """
    shifts = np.full(count, 1.0 + ROWS + c * error)
    shifts[-1] += error
    gdp = last_iterate_gdp(
        contractions=np.full(count, c), shifts=shifts, stddevs=1.0, start_distance=start
    )
    return gdp**2


def last_iterate_recipe(
    facts: PublicFacts,
    scales: DescentScales,
    budget: Budget | None,
    *,
    estimator: Estimator,
    num_steps: int,
    step_size: float,
    ridge: float,
) -> Recipe:
    """Return the recipe of noisy steps, and a last one whose output gets the noise."""
    check.integer(1, num_steps=num_steps, maximum=10**6)
    if not step_size * (scales.smoothness + ridge) <= 2.0:
        longest = 2.0 / (scales.smoothness + ridge)
        check.fail(
            "step_size", f"<= 2/(beta + ridge) = {check.describe(longest)}", step_size
        )
    step = GradientStep(step_size, ridge=ridge)
    last = Loop(num_steps=1, step=step, estimator=estimator, keeps_anchor=num_steps > 1)
    inputs: dict[str, float | int | str] = {
        "num_steps": num_steps,
        "lipschitz": scales.lipschitz,
        "step_size": step_size,
        "ridge": ridge,
    }
    early = replace(last, num_steps=num_steps - 1, keeps_anchor=False)
    event, kind = None, "last/full"
    if budget is not None:
        c = contraction(scales, step_size, ridge)
        unit = SHIFTS[budget.relation] * scales.lipschitz / scales.num_records
        diameter, gdp = 2.0 * scales.radius / (step_size * unit), gdp_of(budget)
        count = effective_steps(c, num_steps, diameter=diameter, error=0.0)
        error = _step_error(facts, last, 2.0 * unit * math.sqrt(count) / gdp)
        share, extra_bits = 2.0 * error / (step_size * unit), 0
        if share <= MAX_ERROR:
            kind, extra_bits = "last/full/rounded", EXTRA_BITS
            count = effective_steps(c, num_steps, diameter=diameter, error=share)
        stddev = round_up(unit * math.sqrt(count) / gdp)
        early = replace(early, noise=GaussianNoise(stddev, extra_bits))
        last = replace(last, output_stddev=round_up(step_size * stddev))
        event = GaussianEvent(gdp)
        inputs |= {"contraction": c, "effective_steps": count, "noise_stddev": stddev}
    phases = (early, last) if num_steps > 1 else (last,)
    return Recipe(phases=phases, event=event, inputs=inputs, kind=kind)


def _step_error(facts: PublicFacts, loop: Loop, stddev: float) -> float:
    """Return a bound of a step's rounding error, for noise up to ``stddev``.

    It is infinite if none is proved, as for entries that are too large for the fine
    grid of the noise.
    """
    is_cut_off = loop.estimator.record_bound(facts.dim) > 2.0**20 * stddev
    if is_cut_off or math.isinf(facts.radius):
        return math.inf
    size = float(np.max(loop.step.sizes))  # type: ignore[attr-defined]
    noise = math.sqrt(facts.dim) * 1.01 * stddev
    grid = 2.0 ** -(11 + EXTRA_BITS) + 6.2 * UNIT_ROUNDOFF * MOST
    # The noise is added to the difference from the released point, here the center.
    # Unless it is 0, rounding that difference adds an error (see `iterate_errors`).
    difference_error = 0.0
    if facts.center.any():
        difference_error = (
            2.0
            * UNIT_ROUNDOFF
            * (2.0 * float(np.linalg.norm(facts.center)) + facts.radius)
        )
    exact_step_error = iterate_error(facts, loop, facts.center)
    return exact_step_error + size * noise * grid + difference_error
