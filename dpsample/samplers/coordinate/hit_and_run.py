# mypy: allow-untyped-defs
r"""Hit-and-run: a random direction, then an exact draw on the whole chord.

    e = L xi,    xi ~ N(0, I),    t with density proportional to exp(-V(theta + t e))

on the chord of the domain through theta. V is the energy, and L L^T is a covariance
fitted to the target. The margins <a_i, theta> of the n records are kept, so that every
evaluation on the chord is one pass over vectors of length n, and a step costs one
product of the features with e.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray
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
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs


class HitAndRunVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors. `line` reads direction and point."""

    noise: int = 0
    direction: int = 1
    point: int = 2
    white: int = 3
    offset: int = 4


ROW = HitAndRunVectorRow()


class HitAndRunMemory(NamedTuple):
    """Positions in a chain's memory."""

    age: int = 0  # steps since the margins were computed
    margins: int = 1  # first of the margins, one for each record


MEMORY = HitAndRunMemory()


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class HitAndRunPlan(NamedTuple):
    """Gaussian fit, and properties of the target. m is the rank of the covariance."""

    center: Array  # (dim,)
    factor: Array  # (dim, m): L
    whiten: Array  # (m, dim)
    is_zero_sum: int  # directions must stay on the simplex
    is_quadratic: int  # the regularizer is half a squared Euclidean distance
    chord: Pointer  # the domain's function for the ends of a chord


@by_address
class LineWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    rates: Array  # (num_records,): derivatives of the margins along the direction
    hull: Array  # `HULL_SHAPE`: tangents of V, for draws on a line
    paused_draw: RecordArray  # one record of `line.PausedDraw`
    ends: Array  # (2,): chord of the domain


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def choose_direction(plan, state, rng):
    # Only as many normals as the covariance has a rank.
    """Write the direction L xi."""
    noise = state.vectors[ROW.noise][: plan.factor.shape[1]]
    direction = state.vectors[ROW.direction]
    fill_with_normals(rng, noise)
    multiply(plan.factor, noise, direction)
    # Rounding errors of the sum would add up, and lead out of the simplex.
    if plan.is_zero_sum == 1:
        direction -= np.sum(direction) / direction.shape[0]


@kernel(counts_references=False)
def synchronize(target, state):
    """Compute the margins after 1000 steps, because their rounding errors add up.

    A new state has a negative age.
    """
    if not 0.0 <= state.memory[MEMORY.age] < 1000.0:
        line.margins_at(target.data, state.position, state.memory[MEMORY.margins :])
        state.memory[MEMORY.age] = 0.0
    state.memory[MEMORY.age] += 1.0


def step(target, pieces, plan, state, rng):
    """Draw a direction and the point on its chord.

    The draw on the chord may pause. ``control.stage`` is 0 for a new step. Otherwise
    the step resumes with the same direction.
    """
    control = state.work.control[0]
    is_new = control.stage == 0
    if is_new:
        synchronize(target, state)
        choose_direction(plan, state, rng)
        line.rates_of(target.data, state.vectors[ROW.direction], state.workspace.rates)
    theta, direction = state.position, state.vectors[ROW.direction]
    margins = state.memory[MEMORY.margins :]
    # Constant, slope and curvature of a quadratic regularizer along the line.
    penalty = (0.0, 0.0, 0.0)
    if plan.is_quadratic == 1:
        penalty = line.quadratic_along(target.regularizer, theta, direction)
    rates, response = state.workspace.rates, target.data.response
    path = line.line_of(
        target, state, margins, rates, response, plan.is_quadratic, penalty
    )
    gibbs_target.chord(target, plan.chord, theta, direction, state.workspace.ends)
    low, high = state.workspace.ends
    if not low <= high:  # NaN if the domain's function failed
        return FUNCTION_FAILED
    if is_new:  # every step is accepted
        state.counts[chain.COUNT.proposals] += 1
        state.counts[chain.COUNT.accepted] += 1
    # In a corner the chord may be a point, and the chain stays.
    if low == high:
        return OK
    white = state.vectors[ROW.white][: plan.whiten.shape[0]]
    offset, center = state.vectors[ROW.offset], plan.center
    guess, width = line.guess_along(
        plan.whiten, center, theta, direction, white, offset
    )
    # The first tangents touch at 1.3 standard deviations from the guessed mode, where
    # two tangents are a good envelope of a Gaussian.
    hull, paused = state.workspace.hull, state.workspace.paused_draw[0]
    code, t, value, evaluations = line.draw_on_line(
        (pieces, path), rng, hull, paused, low, high, guess, 1.3 * width, control
    )
    # An evaluation gives value and slope, and reads all records.
    state.counts[chain.COUNT.gradients] += evaluations
    state.counts[chain.COUNT.records] += evaluations * target.data.num_records
    if code != OK:
        return code
    # The move is a little shorter than t if rounding errors would leave the domain.
    applied = line.move_inside(target, pieces, state, t)
    for i in range(margins.shape[0]):
        margins[i] += applied * rates[i]
    state.energy[0] = value
    # The energy belongs to the point that is kept.
    if applied != t:
        state.energy[0] = line.energy_at(target, pieces, margins, theta, state.work)
    return OK if state.energy[0] == state.energy[0] else FUNCTION_FAILED


run = compile_run(step)


def make_plan(target: Gibbs, gaussian: GaussianFit) -> HitAndRunPlan:
    """Return the plan of a target with a Gaussian fit."""
    is_zero_sum = target.domain.affine_dim(target.dim) < target.dim
    return HitAndRunPlan(
        center=gaussian.center,
        factor=gaussian.factor,
        whiten=gaussian.whiten,
        is_zero_sum=int(is_zero_sum),
        is_quadratic=int(has_quadratic_regularizer(target)),
        chord=gibbs_target.chord_of(target),
    )


def init(target: Gibbs, plan: HitAndRunPlan, position: Array) -> ChainState:
    """Return a new state at a position. The first step fills the margins."""
    del plan
    num_records = target.problem.num_records
    workspace = LineWork(
        rates=np.empty(num_records),
        hull=np.empty(HULL_SHAPE),
        paused_draw=np.zeros(1, line.PausedDraw),
        ends=np.empty(2),
    )
    memory = np.full(MEMORY.margins + num_records, -1.0)
    return new_state(
        target, position, memory=memory, rows=len(ROW), workspace=workspace
    )


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
    An energy that turns out not to be convex is an error, and is never clipped.

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
            # Every step is accepted, and there is no step size to tune.
            rate=1.0,
            first_step=1.0,
            num_steps=self.num_steps,
        )
        return replace(sampler.prepare(target, rng, recipe, step=1.0), settings={})
