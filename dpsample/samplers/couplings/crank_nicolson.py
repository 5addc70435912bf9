"""Coupled Crank-Nicolson moves: reflected noise about the shrunken points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample.samplers.chain import init
from dpsample.samplers.couplings.pair import Pair, compile_pair
from dpsample.samplers.couplings.reflection import (
    couple_noise,
    decide,
    weigh_both,
    white_shift,
)
from dpsample.samplers.errors import OK
from dpsample.samplers.moves import displace, normal_noise
from dpsample.samplers.preconditioned_crank_nicolson import half_square


def couple(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    origin, other_origin = first.scratch[2], second.scratch[2]
    white, shift = first.scratch[3][:rank], second.scratch[3][:rank]
    normal_noise(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    kept = math.sqrt(1.0 - plan.step * plan.step)
    log_ratio = first.energy[0] - half_square(plan, first.position, origin, white)
    other_ratio = second.energy[0]
    other_ratio -= half_square(plan, second.position, other_origin, white)
    for j in range(origin.shape[0]):
        origin[j] = plan.center[j] + kept * origin[j]
        other_origin[j] = plan.center[j] + kept * other_origin[j]
    difference = first.scratch[4]
    white_shift(plan.whiten, origin, other_origin, plan.step, difference, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, origin, noise, plan.step, first.scratch[1])
    displace(plan, other_origin, other, plan.step, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    log_ratio -= energy - half_square(plan, first.scratch[1], origin, white)
    other_ratio -= other_energy - half_square(plan, second.scratch[1], origin, white)
    code = decide(first, energy, log_ratio, threshold)
    if code != OK:
        return code
    return decide(second, other_energy, other_ratio, threshold)


run = compile_pair(couple)


def pair(prepared: Any) -> Pair:
    """Coupled kernel of a prepared Crank-Nicolson sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
