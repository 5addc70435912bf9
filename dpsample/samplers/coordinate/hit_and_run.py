# mypy: allow-untyped-defs
r"""Hit-and-run: a random direction, then an exact draw on the whole chord.

    e = L xi,    xi ~ N(0, I),    t with density proportional to exp(-V(theta + t e))

on the chord of the domain through theta; L L^T is a covariance fitted to the target.
The margins are cached, so that every evaluation on the chord is one pass over n-vectors
and a step costs one product of the features with e.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Pointer, kernel
from dpsample.numerics.vectors import multiply
from dpsample.samplers import chain, sampler
from dpsample.samplers.chain import (
    ChainState,
    PreparedChain,
    compile_run,
    fill_with_normals,
    new_state,
)
from dpsample.samplers.coordinate.coordinate_moves import has_quadratic_regularizer
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.univariate import line
from dpsample.samplers.univariate.line import HULL_SHAPE
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

# Steps after which the margins are computed anew: their rounding errors add up.
RESYNCHRONIZE = 1000.0
WIDTH = 1.3  # of the first tangents from the guessed mode, in standard deviations


@by_address
class HitAndRunPlan(NamedTuple):
    """Gaussian fit, and what is special about the target."""

    center: Array
    factor: Array
    whiten: Array
    is_zero_sum: int  # directions must stay on the simplex
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    chord: Pointer


@by_address
class LineWork(NamedTuple):
    """What a chain needs on its line; its ``memory`` is an age, and the margins."""

    rates: Array  # (num_records,)
    hull: Array
    ends: Array  # (2,)


@kernel(counts_references=False)
def choose_direction(plan, state, rng):
    """Fill scratch[1] with L xi."""
    noise, direction = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    fill_with_normals(rng, noise)
    multiply(plan.factor, noise, direction)
    if plan.is_zero_sum == 1:
        direction -= np.sum(direction) / direction.shape[0]


@kernel(counts_references=False)
def synchronize(target, state):
    """Compute the margins anew when they are old."""
    if not 0.0 <= state.memory[0] < RESYNCHRONIZE:
        line.margins_at(target.data, state.position, state.memory[1:])
        state.memory[0] = 0.0
    state.memory[0] += 1.0


def step(target, pieces, plan, state, rng):
    """Draw a direction and the point on its chord; a pause comes on the chord."""
    control = state.work.control[0]
    is_new = control.stage == 0
    if is_new:
        synchronize(target, state)
        choose_direction(plan, state, rng)
        line.rates_of(target.data, state.scratch[1], state.own.rates)
    theta, direction, margins = state.position, state.scratch[1], state.memory[1:]
    penalty = (0.0, 0.0, 0.0)
    if plan.is_quadratic == 1:
        penalty = line.quadratic_along(target.regularizer, theta, direction)
    rates, y, is_quadratic = state.own.rates, target.data.response, plan.is_quadratic
    path = line.line_of(target, state, margins, rates, y, is_quadratic, penalty)
    gibbs.chord(target, plan.chord, theta, direction, state.own.ends)
    low, high = state.own.ends
    if not low <= high:
        return FUNCTION_FAILED
    if is_new:
        state.counts[chain.PROPOSALS] += 1
        state.counts[chain.ACCEPTED] += 1
    if low == high:
        return OK
    white, moved = state.scratch[3][: plan.whiten.shape[0]], state.scratch[4]
    center = plan.center
    guess, width = line.guess_along(plan.whiten, center, theta, direction, white, moved)
    hull, width = state.own.hull, WIDTH * width
    code, t, value, evaluations = line.draw_on_line(
        (pieces, path), rng, hull, low, high, guess, width, control
    )
    state.counts[chain.GRADIENTS] += evaluations
    state.counts[chain.RECORDS] += evaluations * target.data.num_records
    if code != OK:
        return code
    applied = line.move_inside(target, pieces, state, t)
    for i in range(margins.shape[0]):
        margins[i] += applied * rates[i]
    state.energy[0] = value
    if applied != t:
        state.energy[0] = line.energy_at(target, pieces, margins, theta, state.work)
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


run = compile_run(step)


def make_plan(target: Gibbs, gaussian: GaussianFit) -> HitAndRunPlan:
    """Plan of a target with a Gaussian fit."""
    is_zero_sum = target.problem.domain.affine_dim(target.dim) < target.dim
    return HitAndRunPlan(
        center=gaussian.center,
        factor=gaussian.factor,
        whiten=gaussian.whiten,
        is_zero_sum=int(is_zero_sum),
        is_quadratic=int(has_quadratic_regularizer(target)),
        chord=gibbs.chord_of(target),
    )


def init(target: Gibbs, plan: HitAndRunPlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain."""
    del plan  # the margins are filled by the first step
    num_records = target.problem.num_records
    own = LineWork(np.empty(num_records), np.empty(HULL_SHAPE), np.empty(2))
    memory = np.full(1 + num_records, -1.0)
    return new_state(target, position, memory=memory, rows=5, own=own)


@dataclass(frozen=True, kw_only=True)
class HitAndRun(Sampler):
    """Random directions and exact draws on their chords.

    Parameters
    ----------
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** Given the direction, the draw is exact for the density on the chord,
    so the target is exactly invariant and the kernel reversible, for every covariance.
    An energy that is not convex is refused when it shows, never clipped.

    Examples
    --------
    >>> from dpsample.samplers import HitAndRun
    >>> HitAndRun(num_steps=10).is_reversible
    True
    """

    num_steps: int = 1

    def __post_init__(self) -> None:
        """Check the options."""
        check.integer(1, num_steps=self.num_steps)

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit the covariance, by a pilot run where the domain cuts the target."""
        self.require(target)
        recipe = sampler.TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=lambda gaussian, _: make_plan(target, gaussian),  # without a step
            rate=1.0,
            first_step=1.0,
            num_steps=self.num_steps,
        )
        return replace(sampler.prepare(target, rng, recipe, step=1.0), settings={})
