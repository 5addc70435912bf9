# mypy: allow-untyped-defs
r"""Metropolis-adjusted Langevin algorithm, preconditioned.

    x' = x - tau C grad V(x) + sqrt(2 tau) L z,    C = L L^T,  z ~ N(0, I).

Any choice of subgradient keeps the target invariant. A proposal outside the domain is
a rejected step.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import multiply
from dpsample.samplers.chain import (
    PROPOSALS,
    ChainState,
    compile_run,
    decide_with_gradient,
    displace,
    evaluate_gradient,
    fill_with_normals,
    new_state,
    retreat_from_boundary,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

NUM_ROWS = 6


@kernel(counts_references=False)
def log_proposal(plan, origin, slope_there, theta, white, drift):
    """Log density, up to a constant, of proposing theta from origin.

    In whitened coordinates the proposal is N(z - tau L^T grad V, 2 tau I).
    """
    for j in range(theta.shape[0]):
        drift[j] = theta[j] - origin[j]
    square = 0.0
    multiply(plan.whiten, drift, white)
    for i in range(white.shape[0]):
        along = 0.0
        for j in range(theta.shape[0]):
            along += plan.factor[j, i] * slope_there[j]
        square += (white[i] + plan.step * along) ** 2
    return -square / (4.0 * plan.step)


@kernel(counts_references=False)
def log_acceptance(plan, state, proposal, energy, new_gradient, white, drift):
    """Log of the acceptance ratio of a proposal inside the domain."""
    here, gradient = state.position, state.memory
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(plan, proposal, new_gradient, here, white, drift)
    return log_ratio - log_proposal(plan, here, gradient, proposal, white, drift)


@kernel(counts_references=False)
def pull(plan, gradient, scale, noise):
    """Subtract scale L^T gradient from the noise."""
    for i in range(noise.shape[0]):
        along = 0.0
        for j in range(gradient.shape[0]):
            along += plan.factor[j, i] * gradient[j]
        noise[i] -= scale * along


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test; the state's memory is the gradient."""
    rank = plan.factor.shape[1]
    noise, proposal = state.scratch[0][:rank], state.scratch[1]
    new_gradient, drift = state.scratch[2], state.scratch[3]
    white = state.scratch[4][:rank]
    fill_with_normals(rng, noise)
    scale = math.sqrt(2.0 * plan.step)
    pull(plan, state.memory, plan.step / scale, noise)
    displace(plan, state.position, noise, scale, proposal)
    state.counts[PROPOSALS] += 1
    threshold = -rng.standard_exponential()
    status = gibbs.inside(target, pieces, proposal, state.work)
    if status != 1.0:
        return OK if status == 0.0 else FUNCTION_FAILED
    energy = evaluate_gradient(target, pieces, state, proposal, new_gradient)
    log_ratio = log_acceptance(
        plan, state, proposal, energy, new_gradient, white, drift
    )
    return decide_with_gradient(
        state, proposal, energy, new_gradient, log_ratio, threshold
    )


run = compile_run(step)


def init(target: Gibbs, plan: object, position: Array) -> ChainState:
    """Fresh state at a position of the domain, with its gradient."""
    del plan  # the gradient is the target's
    gradient = target.gradient(position)
    if not np.isfinite(gradient).all():
        position = retreat_from_boundary(target, position)
        gradient = target.gradient(position)
    return new_state(target, position, memory=gradient, rows=NUM_ROWS)


@dataclass(frozen=True, kw_only=True)
class MALA(TunedSampler):
    """Metropolis-adjusted Langevin algorithm.

    Parameters
    ----------
    step_size : float, optional
        Step tau in units of the fitted covariance; by default a pilot run finds the one
        with acceptance 0.57.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for any
    covariance, step and choice of subgradient.

    Examples
    --------
    >>> from dpsample.samplers import MALA
    >>> MALA(step_size=0.1).step_size
    0.1
    """

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        dim = target.problem.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run, init_fn=init, rate=0.57, first_step=dim ** (-1.0 / 3.0)
        )
