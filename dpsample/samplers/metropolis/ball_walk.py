# mypy: allow-untyped-defs
r"""Ball walk with a Metropolis filter.

    x' = x + s L u,    u uniform in the unit ball,

accepted with probability min(1, e^{V(x) - V(x')}). Every proposal counts as a step,
outside the domain or refused: the walk that counts successes only has another law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsample.core.jit import kernel
from dpsample.samplers import tune
from dpsample.samplers.chain import PreparedChain, compile_run, init
from dpsample.samplers.moves import displace, normal_noise, settle, weigh
from dpsample.samplers.sampler import TunedSampler


@kernel
def uniform_in_ball(rng, out):
    """Uniform direction with radius U^{1/m}."""
    normal_noise(rng, out)
    size = math.sqrt(np.dot(out, out))
    radius = rng.random() ** (1.0 / out.shape[0])
    for j in range(out.shape[0]):
        out[j] *= radius / size


def step(target, pieces, plan, state, rng):
    """One proposal and its coin."""
    noise, proposal = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    uniform_in_ball(rng, noise)
    displace(plan, state.position, noise, plan.step, proposal)
    energy = weigh(target, pieces, state, proposal)
    return settle(state, proposal, energy, state.energy[0] - energy, rng)


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class BallWalk(TunedSampler):
    """Ball walk in the coordinates of a fitted covariance.

    Parameters
    ----------
    step_size : float, optional
        Radius s of the ball in those coordinates; by default a pilot run finds the one
        with acceptance 0.3, boundary included.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The proposal is symmetric, so the target is exactly invariant and the
    kernel reversible, whatever the covariance and the radius.

    Examples
    --------
    >>> from dpsample.samplers import BallWalk
    >>> BallWalk(num_steps=10).is_reversible
    True
    """

    def prepare(self, target: Any, rng: np.random.Generator) -> PreparedChain:
        """Fit the covariance and find the radius."""
        self.require(target)
        recipe = tune.TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=tune.gaussian_plan,
            rate=0.3,
            first_step=2.4,
            num_steps=self.num_steps,
        )
        return tune.prepare(target, rng, recipe, step=self.step_size)
