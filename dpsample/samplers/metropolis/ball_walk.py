# mypy: allow-untyped-defs
r"""Ball walk with a Metropolis filter.

    x' = x + s L u,    u uniform in the unit ball,

accepted with probability min(1, e^{V(x) - V(x')}). Every proposal counts as a step,
outside the domain or refused: the walk that counts successes only has another law.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpsample.core.jit import kernel
from dpsample.samplers.chain import compile_run, fill_with_normals, walk
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets.gibbs import Gibbs


@kernel(counts_references=False)
def uniform_in_ball(rng, out):
    """Uniform direction with radius U^{1/m}."""
    fill_with_normals(rng, out)
    size = math.sqrt(np.dot(out, out))
    radius = rng.random() ** (1.0 / out.shape[0])
    for j in range(out.shape[0]):
        out[j] *= radius / size


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test."""
    noise = state.scratch[0][: plan.factor.shape[1]]
    uniform_in_ball(rng, noise)
    return walk(target, pieces, plan, state, rng, noise)


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

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        return TuningRecipe(run=run, rate=0.3, first_step=2.4)
