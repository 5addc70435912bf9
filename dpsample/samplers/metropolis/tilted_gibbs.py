# mypy: allow-untyped-defs
r"""Tilted Gibbs: the proximal sampler with one Metropolis proposal per step.

    y ~ N(x, h C),    x' ~ N(y - h/(1 + h) C s, h/(1 + h) C),    s = grad V(w(y)),

Here h is the step, C = L L^T a covariance fitted to the target, and w(y) the projection
of y to the domain. The conditional density of x given y is proportional to

    pi(x | y) ~ exp(-V(x) - ||x - y||^2 / (2 h)),    norm of C^{-1},

and x' has a Metropolis test for it. The proposal would be exact if V(x) were the
surrogate <s, x - w> + ||x - w||^2 / 2, the tangent at w plus half the squared norm. So
large steps need only one gradient and one value of V.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.vectors import multiply, multiply_rows
from dpsample.samplers.chain import (
    accept_or_reject,
    compile_run,
    displace,
    evaluate_gradient,
    evaluate_proposal,
    fill_with_normals,
)
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import GibbsTarget


class TiltedGibbsVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    noise: int = 0
    proposal: int = 1
    y: int = 2
    tangent_point: int = 3  # w(y)
    gradient: int = 4  # s
    white: int = 5
    mean: int = 6  # mean of the proposal, and later a difference of points


ROW = TiltedGibbsVectorRow()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def surrogate(plan, theta, w, s, difference, white):
    """Return <s, theta - w> + ||theta - w||^2 / 2. The last arguments are scratch."""
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - w[j]
    multiply(plan.whiten, difference, white)
    return np.dot(s, difference) + 0.5 * np.dot(white, white)


@kernel(counts_references=False)
def set_proposal_mean(target, pieces, plan, state):
    """Fill the scratch rows of w, s and the proposal's mean from the row of y."""
    y, w = state.vectors[ROW.y], state.vectors[ROW.tangent_point]
    s, mean = state.vectors[ROW.gradient], state.vectors[ROW.mean]
    white = state.vectors[ROW.white][: plan.factor.shape[1]]
    # w is a function of y, so that given y the proposal is independent of x. Then its
    # density at x and x' is the same function, and the ratio needs no reverse move.
    gibbs_target.project(target, pieces, y, w)
    is_outside = False
    for j in range(y.shape[0]):
        is_outside = is_outside or w[j] != y[j]
    if is_outside:
        for j in range(y.shape[0]):
            # One percent of the way to the center leads off the boundary, where the
            # gradient of a regularizer such as the entropy may be infinite.
            w[j] += 0.01 * (plan.center[j] - w[j])
    evaluate_gradient(target, pieces, state, w, s)
    # exp(-surrogate(x) - ||x - y||^2 / (2 h)) has the mean (y + h (w - C s)) / (1 + h).
    weight = plan.step / (1.0 + plan.step)
    multiply_rows(s, plan.factor, white)
    displace(plan, w, white, -1.0, mean)
    for j in range(y.shape[0]):
        mean[j] = (1.0 - weight) * y[j] + weight * mean[j]


@kernel(counts_references=False)
def log_acceptance(plan, state, energy):
    """Return the log acceptance ratio, given y, of a proposal of this energy.

    The quadratics of pi(x | y) and of the proposal's density cancel, and leave the
    differences of V and the surrogate.
    """
    w, s = state.vectors[ROW.tangent_point], state.vectors[ROW.gradient]
    difference, white = state.vectors[ROW.mean], state.vectors[ROW.white]
    white = white[: plan.factor.shape[1]]
    position, proposal = state.position, state.vectors[ROW.proposal]
    log_ratio = state.energy[0] - surrogate(plan, position, w, s, difference, white)
    return log_ratio - (energy - surrogate(plan, proposal, w, s, difference, white))


def step(target, pieces, plan, state, rng):
    """Draw y, propose x' given y, and accept or reject it."""
    noise, proposal = state.vectors[ROW.noise], state.vectors[ROW.proposal]
    noise = noise[: plan.factor.shape[1]]
    fill_with_normals(rng, noise)
    displace(plan, state.position, noise, math.sqrt(plan.step), state.vectors[ROW.y])
    set_proposal_mean(target, pieces, plan, state)
    fill_with_normals(rng, noise)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    displace(plan, state.vectors[ROW.mean], noise, scale, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    return accept_or_reject(
        state, proposal, energy, log_acceptance(plan, state, energy), rng
    )


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class TiltedGibbs(TunedSampler):
    """Proximal sampler whose conditional draw is one tilted Metropolis proposal.

    Parameters
    ----------
    step_size : float, optional
        Step h in units of the fitted covariance. By default a pilot run finds the one
        with acceptance rate 0.7.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** Given y the step is a Metropolis kernel for pi(x | y), so the target
    is exactly invariant and the kernel reversible, for any fit, step and subgradient.

    Examples
    --------
    >>> from dpsample.samplers import TiltedGibbs
    >>> TiltedGibbs().is_reversible
    True
    """

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the step."""
        return TuningRecipe(run=run, rate=0.7, first_step=1.0)
