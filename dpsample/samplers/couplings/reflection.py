r"""Reflection-maximal coupling of two Gaussians, and parts that coupled kernels share.

For x = a + s z and x' = a' + s z', z standard normal and shift = (a - a') / s:

    z' = z + shift                  if -log U >= (||z + shift||^2 - ||z||^2) / 2,
    z' = z - 2 <e, z> e             otherwise,  e = shift / ||shift||.

Both are standard normal; x = x' with probability 2 Phi(-||shift|| / 2), one minus the
total variation of the two laws, which no coupling exceeds (arXiv:1905.09971).
"""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel
from dpsample.samplers.chain import ACCEPTED, PROPOSALS
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.moves import weigh

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
        other[:] = noise
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
        second.scratch[1][:] = first.scratch[1]
        second.counts[PROPOSALS] += 1
        return energy, energy
    return energy, weigh(target, pieces, second, second.scratch[1])


@kernel
def decide(state, energy, log_ratio, threshold):
    """Move to the proposal in scratch[1] if the common threshold allows it."""
    if np.isnan(log_ratio):
        return PIECE_FAILED
    if threshold <= log_ratio:
        state.position[:] = state.scratch[1]
        state.energy[0] = energy
        state.counts[ACCEPTED] += 1
    return OK
