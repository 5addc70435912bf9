"""Planted bugs in kernels: steps that are easy to write and wrong.

They are compiled without a cache, which would not see an edit of this file.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from dpsample.samplers.adaptive import billiard
from dpsample.samplers.chain import (
    accept_or_reject,
    decide_with_gradient,
    displace,
    evaluate_gradient,
    evaluate_proposal,
    fill_statistics,
    fill_with_normals,
)
from dpsample.samplers.errors import OK
from dpsample.samplers.metropolis import ball_walk, mala, tilted_gibbs
from dpsample.targets import gibbs_target


def run_of(step):
    """Loop as `chain.compile_run` makes it, compiled in this process only."""
    move = njit(error_model="numpy")(step)

    @njit(error_model="numpy")
    def run(target, pieces, plan, state, rng, num_steps, draws, stats):
        before = np.empty_like(state.counts)
        for t in range(draws.shape[0]):
            before[:] = state.counts
            for _ in range(num_steps):
                code = move(target, pieces, plan, state, rng)
                if code != OK:
                    return code, t
            draws[t] = state.position
            fill_statistics(state, before, stats[t])
        return OK, draws.shape[0]

    return run


def clamped(target, pieces, plan, state, rng):
    """Random walk that pulls proposals back to the boundary."""
    noise, proposal = state.vectors[0][: plan.factor.shape[1]], state.vectors[1]
    fill_with_normals(rng, noise)
    displace(plan, state.position, noise, plan.step, state.vectors[2])
    gibbs_target.project(target, pieces, state.vectors[2], proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    return accept_or_reject(state, proposal, energy, state.energy[0] - energy, rng)


def speedy(target, pieces, plan, state, rng):
    """Ball walk that counts proposals inside the domain only."""
    noise, proposal = state.vectors[0][: plan.factor.shape[1]], state.vectors[1]
    while True:
        ball_walk.uniform_in_ball(rng, noise)
        displace(plan, state.position, noise, plan.step, proposal)
        energy = evaluate_proposal(target, pieces, state, proposal)
        if energy < np.inf:
            return accept_or_reject(
                state, proposal, energy, state.energy[0] - energy, rng
            )


def without_reverse(target, pieces, plan, state, rng):
    """MALA whose ratio has no proposal densities."""
    gradient, rank = state.memory, plan.factor.shape[1]
    noise, proposal = state.vectors[0][:rank], state.vectors[1]
    fill_with_normals(rng, noise)
    scale = math.sqrt(2.0 * plan.step)
    np.dot(gradient, plan.factor, state.vectors[2][:rank])
    for i in range(rank):
        noise[i] -= plan.step / scale * state.vectors[2][i]
    displace(plan, state.position, noise, scale, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    code = accept_or_reject(state, proposal, energy, state.energy[0] - energy, rng)
    evaluate_gradient(target, pieces, state, state.position, gradient)
    return code


_mala_step = njit(error_model="numpy")(mala.step)


def stale_gradient(target, pieces, plan, state, rng):
    """MALA that keeps the gradient of its start."""
    state.vectors[5][:] = state.memory
    code = _mala_step(target, pieces, plan, state, rng)
    state.memory[:] = state.vectors[5]
    return code


def tangent_at_x(target, pieces, plan, state, rng):
    """Tilted Gibbs whose tangent point is the position instead of y."""
    dim, rank = plan.factor.shape
    noise, proposal = state.vectors[0][:rank], state.vectors[1]
    y, w, s = state.vectors[2], state.vectors[3], state.vectors[4]
    white, mean = state.vectors[5][:rank], state.vectors[6]
    fill_with_normals(rng, noise)
    displace(plan, state.position, noise, math.sqrt(plan.step), y)
    w[:] = state.position
    evaluate_gradient(target, pieces, state, w, s)
    weight = plan.step / (1.0 + plan.step)
    np.dot(s, plan.factor, white)
    np.dot(plan.factor, white, mean)
    for j in range(dim):
        mean[j] = (1.0 - weight) * y[j] + weight * (w[j] - mean[j])
    fill_with_normals(rng, noise)
    displace(plan, mean, noise, math.sqrt(weight), proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    here = tilted_gibbs.surrogate(plan, state.position, w, s, mean, white)
    there = tilted_gibbs.surrogate(plan, proposal, w, s, mean, white)
    log_ratio = state.energy[0] - here - (energy - there)
    return accept_or_reject(state, proposal, energy, log_ratio, rng)


def in_fixed_order(target, pieces, plan, state, rng):
    """Many tries along each coordinate in turn: invariant, not reversible."""
    proposal, code = state.vectors[1], OK
    for j in range(state.position.shape[0]):
        scale = math.sqrt(np.dot(plan.factor[j], plan.factor[j]))
        for _ in range(10):
            proposal[:] = state.position
            proposal[j] += scale * rng.standard_normal()
            energy = evaluate_proposal(target, pieces, state, proposal)
            code = accept_or_reject(
                state, proposal, energy, state.energy[0] - energy, rng
            )
    return code


@register_jitable
def reaches_its_end(target, pieces, plan, state, rng):
    """Launch a trajectory and leap to its end, unless it is refused on the way."""
    billiard.start_trajectory(target, pieces, plan, state, rng)
    trajectory = state.workspace.trajectory[0]
    while trajectory.leaps_done < trajectory.num_leaps:
        if billiard.leap(target, pieces, plan, state) != OK:
            billiard.end_transition(plan, state, 0.0)
            return False
    return True


def without_last_kick(target, pieces, plan, state, rng):
    """Billiard HMC whose velocity lacks the last half kick."""
    if not reaches_its_end(target, pieces, plan, state, rng):
        return OK
    state.workspace.trajectory[0].step = 0.0
    code, probability = billiard.end_trajectory(target, pieces, plan, state, rng)
    billiard.end_transition(plan, state, probability)
    return code


def with_first_kinetic(target, pieces, plan, state, rng):
    """Billiard HMC whose test compares potential energies only."""
    if not reaches_its_end(target, pieces, plan, state, rng):
        return OK
    log_ratio = state.energy[0] - state.workspace.trajectory[0].energy
    billiard.end_transition(plan, state, 0.0)
    return decide_with_gradient(
        state,
        state.vectors[0],
        state.workspace.trajectory[0].energy,
        state.vectors[2],
        log_ratio,
        -rng.standard_exponential(),
    )


def refused_from_below(target, pieces, plan, state, rng):
    """Billiard HMC that refuses hills above the start, whatever the end."""
    billiard.start_trajectory(target, pieces, plan, state, rng)
    trajectory = state.workspace.trajectory[0]
    while trajectory.leaps_done < trajectory.num_leaps:
        is_lost = billiard.leap(target, pieces, plan, state) != OK
        if is_lost or trajectory.max_energy > state.energy[0] + plan.max_rise:
            billiard.end_transition(plan, state, 0.0)
            return OK
    trajectory.max_energy = -np.inf
    code, probability = billiard.end_trajectory(target, pieces, plan, state, rng)
    billiard.end_transition(plan, state, probability)
    return code
