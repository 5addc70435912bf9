"""Coupled Langevin moves: reflected noise about the two drifted points, common coin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample import targets
from dpsample._jit import kernel
from dpsample.samplers.chain import PROPOSALS
from dpsample.samplers.couplings.pair import Pair, compile_pair
from dpsample.samplers.couplings.reflection import couple_noise, decide, white_shift
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.mala import init, log_proposal
from dpsample.samplers.moves import displace, normal_noise, slope


@kernel
def pull(plan, gradient, scale, noise):
    """Subtract scale L^T gradient from the noise."""
    for i in range(noise.shape[0]):
        along = 0.0
        for j in range(gradient.shape[0]):
            along += plan.factor[j, i] * gradient[j]
        noise[i] -= scale * along


@kernel
def evaluate(target, pieces, state):
    """Energy at the proposal in scratch[1], its gradient to scratch[2]."""
    status = targets.inside(target, pieces, state.scratch[1], state.work)
    if status == 1.0:
        return slope(target, pieces, state, state.scratch[1], state.scratch[2])
    return np.inf if status == 0.0 else np.nan


@kernel
def judge(plan, state, energy, threshold):
    """Metropolis test of the proposal in scratch[1]."""
    state.counts[PROPOSALS] += 1
    if energy == np.inf:
        return OK
    proposal, new_gradient, drift = (
        state.scratch[1],
        state.scratch[2],
        state.scratch[3],
    )
    white = state.scratch[4][: plan.factor.shape[1]]
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(
        plan, proposal, new_gradient, state.position, white, drift
    )
    log_ratio -= log_proposal(
        plan, state.position, state.memory, proposal, white, drift
    )
    if np.isnan(log_ratio):
        return PIECE_FAILED
    if threshold <= log_ratio:
        state.memory[:] = new_gradient
    return decide(state, energy, log_ratio, threshold)


def couple(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    shift, drift = first.scratch[4][:rank], first.scratch[3]
    normal_noise(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(2.0 * plan.step)
    pace = plan.step / scale
    white_shift(plan.whiten, first.position, second.position, scale, drift, shift)
    for j in range(drift.shape[0]):
        drift[j] = first.memory[j] - second.memory[j]
    pull(plan, drift, pace, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    pull(plan, first.memory, pace, noise)
    displace(plan, first.position, noise, scale, first.scratch[1])
    energy = evaluate(target, pieces, first)
    other_energy = energy
    if is_shared:
        second.scratch[1][:] = first.scratch[1]
        second.scratch[2][:] = first.scratch[2]
    else:
        pull(plan, second.memory, pace, other)
        displace(plan, second.position, other, scale, second.scratch[1])
        other_energy = evaluate(target, pieces, second)
    code = judge(plan, first, energy, threshold)
    if code != OK:
        return code
    return judge(plan, second, other_energy, threshold)


run = compile_pair(couple)


def pair(prepared: Any) -> Pair:
    """Coupled kernel of a prepared Langevin sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
