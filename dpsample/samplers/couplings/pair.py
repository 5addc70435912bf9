# mypy: allow-untyped-defs
"""Two chains moved by one compiled kernel until they meet, and what such kernels share.

Noise is coupled by reflection, which is maximal for two Gaussians. For x = a + s z and
x' = a' + s z', z standard normal and shift = (a - a') / s:

    z' = z + shift                  if -log U >= (||z + shift||^2 - ||z||^2) / 2,
    z' = z - 2 <e, z> e             otherwise,  e = shift / ||shift||.

Both are standard normal; x = x' with probability 2 Phi(-||shift|| / 2), one minus the
total variation of the two laws, which no coupling exceeds (arXiv:1905.09971).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable

from dpsample.core.arrays import Array
from dpsample.core.jit import Kernel, kernel
from dpsample.numerics.vectors import copy_into
from dpsample.samplers import moves
from dpsample.samplers.chain import PROPOSALS, ChainState
from dpsample.samplers.errors import OK, raise_unless_ok
from dpsample.samplers.moves import weigh
from dpsample.targets.gibbs import Gibbs

# Beyond this shift common noise serves kernels that contract: both move alike.
FAR = 3.0


@kernel
def couple_noise(shift, noise, coin, far, other):
    """Fill the other chain's noise; return whether both proposals are one point.

    ``coin`` is standard exponential. If the shift is longer than ``far``, the noise is
    common: that must be decided before the coin is looked at.
    """
    square, along = np.dot(shift, shift), np.dot(shift, noise)
    if square > far * far:
        copy_into(noise, other)
        return False
    if coin >= along + 0.5 * square:
        for i in range(noise.shape[0]):
            other[i] = noise[i] + shift[i]
        return True
    for i in range(noise.shape[0]):
        other[i] = noise[i] - 2.0 * along / square * shift[i]
    return False


@kernel
def white_shift(whiten, a, b, scale, difference, shift):
    """Fill shift with (a - b) / scale in whitened coordinates."""
    for j in range(difference.shape[0]):
        difference[j] = a[j] - b[j]
    np.dot(whiten, difference, shift)
    for i in range(shift.shape[0]):
        shift[i] /= scale


@kernel
def weigh_both(target, pieces, first, second, is_shared):
    """Energies at the proposals in scratch[1]; a shared one is evaluated once."""
    energy = weigh(target, pieces, first, first.scratch[1])
    if is_shared:
        copy_into(first.scratch[1], second.scratch[1])
        second.counts[PROPOSALS] += 1
        return energy, energy
    return energy, weigh(target, pieces, second, second.scratch[1])


@kernel
def decide(state, energy, log_ratio, threshold):
    """Move to the proposal in scratch[1] if the common threshold allows it."""
    return moves.decide(state, state.scratch[1], energy, log_ratio, threshold)


@kernel
def is_same(a, b):
    """Whether two positions are equal in every coordinate, exactly."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return False
    return True


@kernel
def follow(first, second):
    """Copy what the next step depends on from the first chain to the second."""
    copy_into(first.position, second.position)
    copy_into(first.energy, second.energy)
    copy_into(first.memory, second.memory)


def compile_pair(couple: Callable[..., int]) -> Kernel[..., tuple[int, int, bool]]:
    """Loop of a coupled step (target, pieces, plan, first, second, rng).

    The kernel makes ``num_steps`` coupled steps per row, stops at the first row where
    the chains are equal, and returns a code of `errors`, the number of rows filled and
    whether they met. Chains that were equal stay equal: the second is a copy.
    """
    move = register_jitable(couple)

    def run(target, pieces, plan, first, second, rng, num_steps, draws, others):
        for t in range(draws.shape[0]):
            for _ in range(num_steps):
                were_same = is_same(first.position, second.position)
                code = move(target, pieces, plan, first, second, rng)
                if code != OK:
                    return code, t, False
                if were_same:
                    follow(first, second)
            copy_into(first.position, draws[t])
            copy_into(second.position, others[t])
            if is_same(first.position, second.position):
                return OK, t + 1, True
        return OK, draws.shape[0], False

    return kernel(run)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Coupled kernel of a prepared chain."""

    target: Gibbs
    plan: Any  # numbers of the coupled kernel
    run: Kernel[..., tuple[int, int, bool]]  # what `compile_pair` returned
    init_fn: Callable[[Gibbs, Any, Array], ChainState]  # of either chain
    num_steps: int  # of the kernel, per draw

    def init(self, position: Array) -> ChainState:
        """State of one of the two chains."""
        return self.init_fn(self.target, self.plan, position)

    def advance(
        self,
        first: ChainState,
        second: ChainState,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        fixed = self.target.numbers, self.target.pieces, self.plan
        code, count, has_met = self.run(
            *fixed, first, second, rng, self.num_steps, draws, others
        )
        raise_unless_ok(code)
        return int(count), bool(has_met)
