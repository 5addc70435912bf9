# mypy: allow-untyped-defs
r"""Tilted Gibbs: the proximal sampler with one Metropolis proposal per step.

    y ~ N(x, h C),    x' ~ N(y - h/(1 + h) C s, h/(1 + h) C),    s = grad V(w(y)),

accepted with the ratio of pi(x | y), proportional to exp(-V(x) - ||x - y||^2 / 2h) in
the norm of C^{-1}, to the proposal. The proposal is exact where V is the tangent at w
plus half the squared norm: it makes one gradient and one value do for large steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsample.core.jit import kernel
from dpsample.samplers import tune
from dpsample.samplers.chain import PreparedChain, compile_run, init
from dpsample.samplers.moves import displace, normal_noise, settle, slope, weigh
from dpsample.samplers.sampler import TunedSampler
from dpsample.targets import gibbs

# Share of the way to the center for a point on the boundary, where a regularizer such
# as the entropy may have no slope.
RETREAT = 0.01


@kernel
def surrogate(plan, theta, w, s, difference, white):
    """Tangent at w plus half the squared norm: the part of V that proposals know."""
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - w[j]
    np.dot(plan.whiten, difference, white)
    return np.dot(s, difference) + 0.5 * np.dot(white, white)


def step(target, pieces, plan, state, rng):
    """Draw y, propose x' given y, toss the coin."""
    dim, rank = plan.factor.shape
    noise, proposal = state.scratch[0][:rank], state.scratch[1]
    y, w, s = state.scratch[2], state.scratch[3], state.scratch[4]
    white, mean = state.scratch[5][:rank], state.scratch[6]
    normal_noise(rng, noise)
    displace(plan, state.position, noise, math.sqrt(plan.step), y)
    # w depends on y only, so the proposal is independent of x given y.
    gibbs.project(target, pieces, y, w)
    is_outside = False
    for j in range(dim):
        is_outside = is_outside or w[j] != y[j]
    if is_outside:
        for j in range(dim):
            w[j] += RETREAT * (plan.center[j] - w[j])
    slope(target, pieces, state, w, s)
    weight = plan.step / (1.0 + plan.step)
    np.dot(s, plan.factor, white)
    np.dot(plan.factor, white, mean)
    for j in range(dim):
        mean[j] = (1.0 - weight) * y[j] + weight * (w[j] - mean[j])
    normal_noise(rng, noise)
    displace(plan, mean, noise, math.sqrt(weight), proposal)
    energy = weigh(target, pieces, state, proposal)
    log_ratio = state.energy[0] - surrogate(plan, state.position, w, s, mean, white)
    log_ratio -= energy - surrogate(plan, proposal, w, s, mean, white)
    return settle(state, proposal, energy, log_ratio, rng)


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

    def prepare(self, target: Any, rng: np.random.Generator) -> PreparedChain:
        """Fit the covariance and find the step."""
        self.require(target)
        recipe = tune.TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=tune.gaussian_plan,
            rate=0.7,
            first_step=1.0,
            num_steps=self.num_steps,
        )
        return tune.prepare(target, rng, recipe, step=self.step_size)
