# mypy: allow-untyped-defs
"""Parts that Metropolis samplers share: noise, energy of a proposal, accept test."""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.samplers.chain import ACCEPTED, GRADIENTS, PROPOSALS, RECORDS, VALUES
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.targets import gibbs


class MetropolisPlan(NamedTuple):
    """Numbers of a sampler whose proposals are shaped by a Gaussian.

    ``factor`` (dim, m) and ``whiten`` (m, dim) are those of `GaussianFit`.
    """

    step: float
    center: Array
    factor: Array
    whiten: Array


@kernel(counts_references=False)
def weigh(target, pieces, state, proposal):
    """Energy of a proposal: infinite outside the domain, NaN if a piece failed."""
    state.counts[PROPOSALS] += 1
    status = gibbs.inside(target, pieces, proposal, state.work)
    if status == 1.0:
        state.counts[VALUES] += 1
        state.counts[RECORDS] += target.data.num_records
        return gibbs.energy(target, pieces, proposal, state.work)
    return np.inf if status == 0.0 else np.nan


@kernel(counts_references=False)
def slope(target, pieces, state, theta, gradient):
    """Energy and its gradient, counted."""
    state.counts[GRADIENTS] += 1
    state.counts[RECORDS] += target.data.num_records
    return gibbs.energy_gradient(target, pieces, theta, state.work, gradient)


@kernel(counts_references=False)
def decide(state, proposal, energy, log_ratio, threshold):
    """Accept test: move to the proposal if the log ratio is above the threshold."""
    if np.isnan(log_ratio):
        return PIECE_FAILED
    if threshold <= log_ratio:
        copy_into(proposal, state.position)
        state.energy[0] = energy
        state.counts[ACCEPTED] += 1
    return OK


@kernel(counts_references=False)
def settle(state, proposal, energy, log_ratio, rng):
    """Move to the proposal with probability min(1, e^log_ratio)."""
    return decide(state, proposal, energy, log_ratio, -rng.standard_exponential())


@kernel(counts_references=False)
def settle_slope(state, proposal, energy, gradient, log_ratio, threshold):
    """As `decide`, for chains whose memory is the gradient."""
    if threshold <= log_ratio:
        copy_into(gradient, state.memory)
    return decide(state, proposal, energy, log_ratio, threshold)


@kernel(counts_references=False)
def displace(plan, origin, noise, scale, out):
    """Fill out with origin + scale factor noise."""
    multiply(plan.factor, noise, out)
    for j in range(out.shape[0]):
        out[j] = origin[j] + scale * out[j]


@kernel(counts_references=False)
def normal_noise(rng, noise):
    """Fill noise with standard normals."""
    for j in range(noise.shape[0]):
        noise[j] = rng.standard_normal()


@kernel(counts_references=False)
def walk(target, pieces, plan, state, rng, noise):
    """Test the proposal at step factor noise from the position, if it is symmetric."""
    proposal = state.scratch[1]
    displace(plan, state.position, noise, plan.step, proposal)
    energy = weigh(target, pieces, state, proposal)
    return settle(state, proposal, energy, state.energy[0] - energy, rng)
