r"""Rejection from a piecewise tangent envelope, for bodies of dimension up to 3.

With theta = c + L z, the energy is convex in z: on each cell of a partition into boxes
it is at least its tangent at one point, so that

    sum over cells of e^{-V(t) - <g, z - t>} on the cell

is above the density. A cell is drawn by its mass, z in it as independent truncated
exponentials, and kept with probability e^{tangent - V}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample._pauses import KEPT, PAUSED, STAGE, is_due
from dpsample.samplers import exact_exponential as exponential
from dpsample.samplers.chain import ACCEPTED, compile_run
from dpsample.samplers.errors import BOUND_VIOLATED, EXHAUSTED, OK, PIECE_FAILED
from dpsample.samplers.moves import displace, weigh

Array = NDArray[np.float64]

MAX_TRIES = 100_000
# Relative size of rounding errors in an energy and its tangent.
ROUNDING = 1e-10


class Cells(NamedTuple):
    """Boxes in z, the tangent on each, and their cumulative share of the mass."""

    center: Array  # (dim,)
    factor: Array  # (dim, m)
    lower: Array  # (cells, m)
    upper: Array  # (cells, m)
    touch: Array  # (cells, m): the tangent's point in z, not always in the cell
    slopes: Array  # (cells, m)
    base: Array  # (cells,): the energy at the tangent's point
    cumulative: Array  # (cells,): the last one is 1


@kernel
def tangent(plan, j, z):
    """Tangent of cell j at z, and the size of its terms."""
    value, size = plan.base[j], abs(plan.base[j])
    for i in range(z.shape[0]):
        term = plan.slopes[j, i] * (z[i] - plan.touch[j, i])
        value += term
        size += abs(term)
    return value, size


@kernel
def propose(plan, rng, z):
    """Fill z with one draw of the envelope; return its cell."""
    j = np.searchsorted(plan.cumulative, rng.random(), side="right")
    for i in range(z.shape[0]):
        low, high = plan.lower[j, i], plan.upper[j, i]
        z[i] = exponential.draw(rng, plan.slopes[j, i], low, high)
    return j


def step(target, pieces, plan, state, rng):
    """One independent draw; a pause comes between two tries."""
    z, proposal = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    control = state.work.control
    if control[STAGE] == 0.0:
        control[KEPT] = 0.0
    control[STAGE] = 0.0
    while control[KEPT] < MAX_TRIES:
        control[KEPT] += 1.0
        cell = propose(plan, rng, z)
        displace(plan, plan.center, z, 1.0, proposal)
        energy = weigh(target, pieces, state, proposal)
        bound, size = tangent(plan, cell, z)
        if np.isnan(energy):
            return PIECE_FAILED
        if energy < bound - ROUNDING * (1.0 + size + abs(energy)):
            return BOUND_VIOLATED
        if rng.standard_exponential() >= energy - bound:
            state.position[:] = proposal
            state.energy[0] = energy
            state.counts[ACCEPTED] += 1
            return OK
        if is_due(control):
            control[STAGE] = 1.0
            return PAUSED
    return EXHAUSTED


run = compile_run(step)
