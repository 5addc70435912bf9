# mypy: allow-untyped-defs
r"""Tilted Gibbs: the proximal sampler with one Metropolis proposal per step.

    y ~ N(x, h C),    x' ~ N(y - h/(1 + h) C s, h/(1 + h) C),    s = grad V(w(y)),

accepted with the ratio of pi(x | y), proportional to exp(-V(x) - ||x - y||^2 / 2h) in
the norm of C^{-1}, to the proposal. The proposal is exact where V is the tangent at w
plus half the squared norm: it makes one gradient and one value do for large steps.
"""

import math
from dataclasses import dataclass

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
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

# Share of the way to the center for a point on the boundary, where a regularizer such
# as the entropy may have no slope.
RETREAT = 0.01


@kernel(counts_references=False)
def surrogate(plan, theta, w, s, difference, white):
    """Tangent at w plus half the squared norm: the part of V that proposals know."""
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - w[j]
    multiply(plan.whiten, difference, white)
    return np.dot(s, difference) + 0.5 * np.dot(white, white)


@kernel(counts_references=False)
def tilt(target, pieces, plan, state):
    """From y in scratch[2] fill w, the slope there and the proposal's mean."""
    y, w, s = state.scratch[2], state.scratch[3], state.scratch[4]
    white, mean = state.scratch[5][: plan.factor.shape[1]], state.scratch[6]
    # w depends on y only, so the proposal is independent of x given y.
    gibbs.project(target, pieces, y, w)
    is_outside = False
    for j in range(y.shape[0]):
        is_outside = is_outside or w[j] != y[j]
    if is_outside:
        for j in range(y.shape[0]):
            w[j] += RETREAT * (plan.center[j] - w[j])
    evaluate_gradient(target, pieces, state, w, s)
    weight = plan.step / (1.0 + plan.step)
    multiply_rows(s, plan.factor, white)
    displace(plan, w, white, -1.0, mean)
    for j in range(y.shape[0]):
        mean[j] = (1.0 - weight) * y[j] + weight * mean[j]


@kernel(counts_references=False)
def log_acceptance(plan, state, energy):
    """Log of the acceptance ratio of the proposal in scratch[1], given y."""
    w, s, difference = state.scratch[3], state.scratch[4], state.scratch[6]
    white = state.scratch[5][: plan.factor.shape[1]]
    here, proposal = state.position, state.scratch[1]
    log_ratio = state.energy[0] - surrogate(plan, here, w, s, difference, white)
    return log_ratio - (energy - surrogate(plan, proposal, w, s, difference, white))


def step(target, pieces, plan, state, rng):
    """Draw y, propose x' given y, accept or refuse it."""
    noise, proposal = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    fill_with_normals(rng, noise)
    displace(plan, state.position, noise, math.sqrt(plan.step), state.scratch[2])
    tilt(target, pieces, plan, state)
    fill_with_normals(rng, noise)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    displace(plan, state.scratch[6], noise, scale, proposal)
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
        Step h in units of the fitted covariance; by default a pilot run finds the one
        with acceptance 0.7.
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

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        return TuningRecipe(run=run, rate=0.7, first_step=1.0)
