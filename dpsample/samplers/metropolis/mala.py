# mypy: allow-untyped-defs
r"""Metropolis-adjusted Langevin algorithm, preconditioned.

    x' = x - tau C grad V(x) + sqrt(2 tau) L z,    C = L L^T,  z ~ N(0, I).

C is a covariance fitted to the target pi, proportional to e^{-V}, and tau the step. The
Metropolis-Hastings test makes pi invariant with any subgradient as grad V. A proposal
outside the domain is rejected.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import multiply
from dpsample.samplers.chain import (
    COUNT,
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
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import GibbsTarget


class MALAVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    noise: int = 0  # z, from which the whitened drift is subtracted
    proposal: int = 1  # x'
    new_gradient: int = 2  # gradient at the proposal
    drift: int = 3  # x' - x
    white: int = 4  # L^{-1} (x' - x)


ROW = MALAVectorRow()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def log_proposal(plan, origin, origin_gradient, theta, white, drift):
    """Return the log density, up to a constant, of a proposal theta from an origin.

    In the coordinates z = L^{-1} x the proposal is N(z - tau L^T grad V, 2 tau I).
    ``plan`` is a `MetropolisPlan`: L is its factor, L^{-1} its whiten and tau its step.
    ``white`` and ``drift`` are scratch memory.
    """
    for j in range(theta.shape[0]):
        drift[j] = theta[j] - origin[j]
    square = 0.0
    multiply(plan.whiten, drift, white)
    for i in range(white.shape[0]):
        along = 0.0
        for j in range(theta.shape[0]):
            along += plan.factor[j, i] * origin_gradient[j]
        square += (white[i] + plan.step * along) ** 2
    return -square / (4.0 * plan.step)


@kernel(counts_references=False)
def log_acceptance(plan, state, proposal, energy, new_gradient, white, drift):
    """Return the log acceptance ratio of a proposal inside the domain."""
    position, gradient = state.position, state.memory
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(plan, proposal, new_gradient, position, white, drift)
    return log_ratio - log_proposal(plan, position, gradient, proposal, white, drift)


@kernel(counts_references=False)
def subtract_gradient(plan, gradient, scale, noise):
    """Subtract scale L^T gradient from the noise, whose coordinates are whitened."""
    for i in range(noise.shape[0]):
        along = 0.0
        for j in range(gradient.shape[0]):
            along += plan.factor[j, i] * gradient[j]
        noise[i] -= scale * along


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test. The state's memory is the gradient.

    ``pieces`` are the C functions of the target.
    """
    rank = plan.factor.shape[1]
    noise, proposal = state.vectors[ROW.noise][:rank], state.vectors[ROW.proposal]
    new_gradient, drift = state.vectors[ROW.new_gradient], state.vectors[ROW.drift]
    white = state.vectors[ROW.white][:rank]
    fill_with_normals(rng, noise)
    scale = math.sqrt(2.0 * plan.step)
    # x - tau C grad V + sqrt(2 tau) L z = x + scale L (z - tau / scale L^T grad V)
    subtract_gradient(plan, state.memory, plan.step / scale, noise)
    displace(plan, state.position, noise, scale, proposal)
    state.counts[COUNT.proposals] += 1
    # The threshold is drawn for each proposal, so that the number of random numbers of
    # a step does not depend on the domain.
    threshold = -rng.standard_exponential()
    # 1 inside, 0 outside, where the chain stays, and NaN if the domain's function
    # failed.
    status = gibbs_target.inside(target, pieces, proposal, state.work)
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


def init(target: GibbsTarget, plan: object, position: Array) -> ChainState:
    """Return a new state at a position of the domain, with its gradient."""
    del plan  # the gradient is the target's
    gradient = target.gradient(position)
    # A regularizer such as the entropy has an infinite gradient on the boundary.
    if not np.isfinite(gradient).all():
        position = retreat_from_boundary(target, position)
        gradient = target.gradient(position)
    return new_state(target, position, memory=gradient, rows=len(ROW))


@dataclass(frozen=True, kw_only=True)
class MALA(TunedSampler):
    """Metropolis-adjusted Langevin algorithm.

    Parameters
    ----------
    step_size : float, optional
        Step tau in units of the fitted covariance. By default a pilot run finds the one
        with acceptance rate 0.57, the optimal rate of MALA in many dimensions.
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

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the step from dim^(-1/3), the optimal order for a Gaussian target."""
        dim = target.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run, init_fn=init, rate=0.57, first_step=dim ** (-1.0 / 3.0)
        )
