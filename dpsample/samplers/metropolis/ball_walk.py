# mypy: allow-untyped-defs
r"""Ball walk with a Metropolis filter.

    x' = x + s L u,    u uniform in the unit ball,

accepted with probability min(1, e^{V(x) - V(x')}). L L^T is a covariance fitted to the
target. A proposal that is rejected or outside the domain is a step that stays. If only
moves were counted as steps, the draws would have another distribution.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.core.jit import kernel
from dpsample.samplers.chain import ROW, compile_run, fill_with_normals, walk
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets.gibbs_target import GibbsTarget


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def uniform_in_ball(rng, out):
    """Fill out with a uniform point of the unit ball in m dimensions.

    The direction is uniform, and the radius is U^{1/m} with U uniform on [0, 1].
    """
    fill_with_normals(rng, out)
    # A vector of normals has a uniform direction. Its length is replaced.
    size = math.sqrt(np.dot(out, out))
    radius = rng.random() ** (1.0 / out.shape[0])
    for j in range(out.shape[0]):
        out[j] *= radius / size


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test."""
    noise = state.vectors[ROW.noise][: plan.factor.shape[1]]
    uniform_in_ball(rng, noise)
    return walk(target, pieces, plan, state, rng, noise)


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class BallWalk(TunedSampler):
    """Ball walk in the coordinates of a fitted covariance.

    Parameters
    ----------
    step_size : float, optional
        Radius s of the ball in those coordinates. By default a pilot run finds the one
        with acceptance rate 0.3, where proposals outside the domain are rejections.
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

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the radius from the length of the random walk's optimal steps."""
        return TuningRecipe(run=run, rate=0.3, first_step=2.4)
