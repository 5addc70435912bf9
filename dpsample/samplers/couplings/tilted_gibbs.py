"""Coupled tilted Gibbs: reflected y when close, then reflected proposals, common coin.

Equal y give one proposal for both chains, which meet if both accept it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample import targets
from dpsample._jit import kernel
from dpsample.samplers.chain import init
from dpsample.samplers.couplings.pair import Pair, compile_pair
from dpsample.samplers.couplings.reflection import (
    FAR,
    couple_noise,
    decide,
    weigh_both,
    white_shift,
)
from dpsample.samplers.errors import OK
from dpsample.samplers.moves import displace, normal_noise, slope
from dpsample.samplers.tilted_gibbs import RETREAT, surrogate


@kernel
def tilt(target, pieces, plan, state):
    """From y in scratch[2] fill w, the slope there and the proposal's mean."""
    y, w, s = state.scratch[2], state.scratch[3], state.scratch[4]
    white, mean = state.scratch[5][: plan.factor.shape[1]], state.scratch[6]
    targets.project(target, pieces, y, w)
    is_outside = False
    for j in range(y.shape[0]):
        is_outside = is_outside or w[j] != y[j]
    if is_outside:
        for j in range(y.shape[0]):
            w[j] += RETREAT * (plan.center[j] - w[j])
    slope(target, pieces, state, w, s)
    weight = plan.step / (1.0 + plan.step)
    np.dot(s, plan.factor, white)
    displace(plan, w, white, -1.0, mean)
    for j in range(y.shape[0]):
        mean[j] = (1.0 - weight) * y[j] + weight * mean[j]


@kernel
def judge(plan, state, energy, threshold):
    """Metropolis test of the proposal in scratch[1], given y."""
    w, s, mean = state.scratch[3], state.scratch[4], state.scratch[6]
    white = state.scratch[5][: plan.factor.shape[1]]
    log_ratio = state.energy[0] - surrogate(plan, state.position, w, s, mean, white)
    log_ratio -= energy - surrogate(plan, state.scratch[1], w, s, mean, white)
    return decide(state, energy, log_ratio, threshold)


def couple(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    fresh, shift = first.scratch[7][:rank], second.scratch[7][:rank]
    difference = first.scratch[1]
    normal_noise(rng, noise)
    normal_noise(rng, fresh)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(plan.step)
    white_shift(plan.whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(plan, first.position, noise, scale, first.scratch[2])
    tilt(target, pieces, plan, first)
    if is_shared:
        second.scratch[2:7] = first.scratch[2:7]
    else:
        displace(plan, second.position, other, scale, second.scratch[2])
        tilt(target, pieces, plan, second)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    white_shift(
        plan.whiten, first.scratch[6], second.scratch[6], scale, difference, shift
    )
    is_shared = couple_noise(shift, fresh, rng.standard_exponential(), FAR, other)
    displace(plan, first.scratch[6], fresh, scale, first.scratch[1])
    displace(plan, second.scratch[6], other, scale, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = judge(plan, first, energy, threshold)
    if code != OK:
        return code
    return judge(plan, second, other_energy, threshold)


run = compile_pair(couple)


def pair(prepared: Any) -> Pair:
    """Coupled kernel of a prepared tilted Gibbs sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
