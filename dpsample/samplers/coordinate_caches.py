"""What follows the moves of coordinates: slacks, margins and a gradient."""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel
from dpsample.samplers import line, slacks

# Sweeps after which all that follows the moves is computed anew from the position.
RESYNCHRONIZE = 1000.0


@kernel
def caches(plan, state):
    """Return views of the memory: slacks, margins, gradient."""
    first = 1 + plan.num_slacks
    last = first + plan.num_margins
    return state.memory[1:first], state.memory[first:last], state.memory[last:]


@kernel
def synchronize(target, plan, state):
    """Compute the caches anew from the position."""
    state.memory[0] = 0.0
    room_left, margins, slopes = caches(plan, state)
    theta, offset = state.position, state.scratch[0]
    slacks.refresh(plan.room, theta, room_left)
    if plan.num_margins > 0:
        line.margins_at(target.data, theta, margins)
    if plan.num_slopes > 0:
        for j in range(theta.shape[0]):
            offset[j] = theta[j] - plan.center[j]
        np.dot(plan.hessian, offset, slopes)
        for j in range(theta.shape[0]):
            slopes[j] += plan.slope[j]
