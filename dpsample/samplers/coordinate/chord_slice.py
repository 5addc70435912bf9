# mypy: allow-untyped-defs
r"""Slice sampling on random chords, which needs nothing but energies and chords.

    e = L xi / |xi|,    xi ~ N(0, I),    t uniform on {t : V(theta + t e) <= level}

on the chord of the domain through theta. The level is V(theta) plus a standard
exponential variable, and L L^T is a covariance learned from pilot draws, so that t has
about the unit of a standard deviation.

The draw on the slice is Neal's (Slice sampling, Annals of Statistics 31, 2003, section
4.2): an interval of random width is placed at random about 0, without stepping out, and
shrinks towards 0 until a uniform point of it is in the slice. The width does not depend
on the state. So an interval is as likely from the old point as from the new one, which
gives detailed balance for every density. Energies need no slope, and may jump.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Pointer
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.samplers import sampler
from dpsample.samplers.chain import (
    COUNT,
    ChainState,
    PreparedChain,
    compile_run,
    fill_with_normals,
    new_state,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.samplers.modes import cover_modes
from dpsample.samplers.sampler import Sampler
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import GibbsTarget

# Rounds of pilot draws, each twice as long as the one before.
NUM_ROUNDS = 5


class ChordSliceVectorRow(NamedTuple):
    """Rows of the scratch vectors."""

    noise: int = 0
    direction: int = 1
    proposal: int = 2


ROW = ChordSliceVectorRow()


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ChordSlicePlan(NamedTuple):
    """Factor of the learned covariance, and the C function of chords."""

    factor: Array  # (dim, m): L
    chord: Pointer


@by_address
class ChordSliceWork(NamedTuple):
    """Scratch memory of this sampler alone."""

    ends: Array  # (2,): ends of the chord


def step(target, pieces, plan, state, rng):
    """Move to a point of the slice on a random chord.

    ``pieces`` are the C functions of the target. ``state.work`` is the memory that they
    need, and ``state.workspace`` is this sampler's own.
    """
    noise = state.vectors[ROW.noise, : plan.factor.shape[1]]
    direction = state.vectors[ROW.direction]
    proposal, ends = state.vectors[ROW.proposal], state.workspace.ends
    fill_with_normals(rng, noise)
    square = 0.0
    for j in range(noise.shape[0]):
        square += noise[j] * noise[j]
    for j in range(noise.shape[0]):
        noise[j] /= math.sqrt(square)
    multiply(plan.factor, noise, direction)
    gibbs_target.chord(target, plan.chord, state.position, direction, ends)
    low, high = ends[0], ends[1]
    if not low <= high:
        return FUNCTION_FAILED
    state.counts[COUNT.proposals] += 1
    level = state.energy[0] + rng.standard_exponential()
    # P(width > w) = (8/w)^2. An interval of at least 8 standard deviations rarely cuts
    # off a part of a Gaussian, and sometimes it is long enough for heavy tails.
    width = 8.0 / math.sqrt(1.0 - rng.random())
    share = rng.random()
    low, high = max(low, -width * share), min(high, width * (1.0 - share))
    # Each round cuts the interval about in half. After 200 it has the length of a
    # rounding error, and the chain stays where it is.
    for _ in range(200):
        t = low + (high - low) * rng.random()
        for j in range(direction.shape[0]):
            proposal[j] = state.position[j] + t * direction[j]
        # Rounding may lead outside of the domain, where no energy is defined. The
        # status is 1 inside, 0 outside, and NaN if the domain's function failed.
        status = gibbs_target.inside(target, pieces, proposal, state.work)
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == 1.0:
            state.counts[COUNT.values] += 1
            state.counts[COUNT.records] += target.data.num_records
            energy = gibbs_target.energy(target, pieces, proposal, state.work)
            if np.isnan(energy):
                return FUNCTION_FAILED
            if energy <= level:
                copy_into(proposal, state.position)
                state.energy[0] = energy
                state.counts[COUNT.accepted] += 1
                return OK
        if t < 0.0:
            low = t
        else:
            high = t
    return OK


run = compile_run(step)


def init(target: GibbsTarget, plan: ChordSlicePlan, position: Array) -> ChainState:
    """Return a new state at a position of the domain."""
    del plan  # the state depends on the target alone
    workspace = ChordSliceWork(np.empty(2))
    return new_state(target, position, rows=len(ROW), workspace=workspace)


@dataclass(frozen=True, kw_only=True)
class ChordSlice(Sampler):
    """Slice sampling on random chords, for energies without a slope.

    Parameters
    ----------
    num_steps : int, optional
        Chords per draw. Default: the dimension of the domain.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for any
    energy, convex or not, smooth or not.

    Where the energy has a slope almost everywhere, `BilliardHMC` is usually faster.

    Examples
    --------
    >>> from dpsample.samplers import ChordSlice
    >>> ChordSlice().is_reversible
    True
    """

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    num_steps: int | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)

    def prepare(self, target: GibbsTarget, rng: np.random.Generator) -> PreparedChain:
        """Learn the covariance from pilot draws. It is fixed before the first draw."""
        self.require(target)
        rank = target.domain.affine_dim(target.dim)
        steps = rank if self.num_steps is None else self.num_steps
        gaussian = cover_modes(target, fit(target))
        for i in range(NUM_ROUNDS):
            # Each round walks with the covariance of the round before. It has 2^i
            # times 100 + 20 dim draws.
            pilot = _build(target, gaussian, steps)
            gaussian = sampler.learn_covariance(gaussian, pilot, rng, 2**i)
        return _build(target, gaussian, steps)


def _build(target: GibbsTarget, gaussian: GaussianFit, num_steps: int) -> PreparedChain:
    """Return the chain whose directions have the covariance of a Gaussian."""
    chord = gibbs_target.chord_of(target)
    return PreparedChain(
        target=target,
        plan=ChordSlicePlan(gaussian.factor, chord),
        run=run,
        init_fn=init,
        start=gaussian.center,
        num_steps=num_steps,
        # The pilot rounds have found the bulk of the density already.
        num_warmup=200,
        scatter=gaussian.factor,  # covariance of the starts of several chains
    )
