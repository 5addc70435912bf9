# mypy: allow-untyped-defs
"""Coupled random walk: reflected Gaussian proposals, common coin.

Coupled Crank-Nicolson moves: reflected noise about the shrunken points.

Coupled Langevin moves: reflected noise about the two drifted points, common coin.

Coupled independence sampler: one proposal and one coin for both chains.

They meet at the first proposal that both accept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.samplers.chain import PROPOSALS, ChainState, init, new_state
from dpsample.samplers.couplings.pair import (
    Pair,
    compile_pair,
    couple_noise,
    decide,
    weigh_both,
    white_shift,
)
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.metropolis import mala
from dpsample.samplers.metropolis.laplace_independence import (
    IndependencePlan,
    log_proposal,
    propose,
)
from dpsample.samplers.metropolis.preconditioned_crank_nicolson import half_square
from dpsample.samplers.moves import MetropolisPlan, displace, normal_noise, slope, weigh
from dpsample.targets import gibbs


def couple_random_walks(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    normal_noise(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    shift, difference = first.scratch[2][:rank], first.scratch[3]
    white_shift(
        plan.whiten, first.position, second.position, plan.step, difference, shift
    )
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, first.position, noise, plan.step, first.scratch[1])
    displace(plan, second.position, other, plan.step, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, first.energy[0] - energy, threshold)
    if code != OK:
        return code
    return decide(second, other_energy, second.energy[0] - other_energy, threshold)


run_random_walks = compile_pair(couple_random_walks)


def pair_random_walks(prepared: Any) -> Pair:
    """Coupled kernel of a prepared random walk with Gaussian proposals."""
    alone = prepared.plan
    if alone.p != 2.0:
        check.fail(
            "sampler",
            "a random walk with Gaussian proposals",
            f"p = {alone.p:g}",
            "Use RandomWalk(p=2).",
        )
    plan = MetropolisPlan(
        step=alone.step,
        center=prepared.start,
        factor=alone.factor,
        whiten=np.ascontiguousarray(np.linalg.pinv(alone.factor)),
    )
    return Pair(
        target=prepared.target,
        plan=plan,
        run=run_random_walks,
        init_fn=init,
        num_steps=prepared.num_steps,
    )


def couple_crank_nicolson(target, pieces, plan, first, second, rng):
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


run_crank_nicolson = compile_pair(couple_crank_nicolson)


def pair_crank_nicolson(prepared: Any) -> Pair:
    """Coupled kernel of a prepared Crank-Nicolson sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run_crank_nicolson,
        init_fn=init,
        num_steps=prepared.num_steps,
    )


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
    status = gibbs.inside(target, pieces, state.scratch[1], state.work)
    if status == 1.0:
        return slope(target, pieces, state, state.scratch[1], state.scratch[2])
    return np.inf if status == 0.0 else np.nan


@kernel
def judge_langevin(plan, state, energy, threshold):
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
    log_ratio += mala.log_proposal(
        plan, proposal, new_gradient, state.position, white, drift
    )
    log_ratio -= mala.log_proposal(
        plan, state.position, state.memory, proposal, white, drift
    )
    if np.isnan(log_ratio):
        return PIECE_FAILED
    if threshold <= log_ratio:
        state.memory[:] = new_gradient
    return decide(state, energy, log_ratio, threshold)


def couple_langevin(target, pieces, plan, first, second, rng):
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
    code = judge_langevin(plan, first, energy, threshold)
    if code != OK:
        return code
    return judge_langevin(plan, second, other_energy, threshold)


run_langevin = compile_pair(couple_langevin)


def pair_langevin(prepared: Any) -> Pair:
    """Coupled kernel of a prepared Langevin sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run_langevin,
        init_fn=mala.init,
        num_steps=prepared.num_steps,
    )


@kernel
def judge_independence(state, energy, log_weight, threshold):
    """Metropolis test of scratch[1]; the memory is the position's log weight."""
    log_ratio = log_weight - state.memory[0]
    if threshold <= log_ratio:
        state.memory[0] = log_weight
    return decide(state, energy, log_ratio, threshold)


def couple_independence(target, pieces, plan, first, second, rng):
    """One coupled step."""
    proposal, noise = first.scratch[1], first.scratch[0][: plan.factor.shape[1]]
    square = propose(plan, rng, noise, proposal)
    threshold = -rng.standard_exponential()
    energy = weigh(target, pieces, first, proposal)
    log_weight = -energy - log_proposal(plan, square)
    second.scratch[1][:] = proposal
    second.counts[PROPOSALS] += 1
    code = judge_independence(first, energy, log_weight, threshold)
    if code != OK:
        return code
    return judge_independence(second, energy, log_weight, threshold)


run_independence = compile_pair(couple_independence)


def init_independence(
    target: Any, plan: IndependencePlan, position: Array
) -> ChainState:
    """State at a position of the domain, with its log weight."""
    white = plan.whiten @ (position - plan.center)
    log_weight = -target.energy(position) - log_proposal(plan, float(white @ white))
    return new_state(target, position, memory=[log_weight])


def pair_independence(prepared: Any) -> Pair:
    """Coupled kernel of a prepared independence sampler, one proposal per step."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run_independence,
        init_fn=init_independence,
        num_steps=prepared.num_steps,
    )
