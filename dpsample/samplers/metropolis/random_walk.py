# mypy: allow-untyped-defs
r"""Random-walk Metropolis with Gaussian or generalized Gaussian proposals.

    x' = x + s L z,    z with density proportional to exp(-||z||_p^2 / 2),

accepted with probability min(1, e^{V(x) - V(x')}); L L^T is a covariance fitted to the
target. A proposal outside the domain is a rejected step.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.samplers.chain import compile_run, fill_with_normals, walk
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets.gibbs import Gibbs


@by_address
class RandomWalkPlan(NamedTuple):
    """Step, norm of the noise, and factor of the fitted covariance."""

    step: float
    p: float
    factor: Array


@kernel(counts_references=False)
def fill_noise(p, rng, noise):
    """Density proportional to exp(-||z||_p^2 / 2): radius chi_m, cone direction."""
    if p == 2.0:
        fill_with_normals(rng, noise)
        return
    square, size, largest = 0.0, 0.0, 0.0
    for j in range(noise.shape[0]):
        radial = rng.standard_normal()
        square += radial * radial
        if p == np.inf:
            noise[j] = 2.0 * rng.random() - 1.0
            largest = max(largest, abs(noise[j]))
        else:
            power = rng.standard_gamma(1.0 / p)
            size += power
            noise[j] = power ** (1.0 / p)
            if rng.random() < 0.5:
                noise[j] = -noise[j]
    if p != np.inf:
        largest = size ** (1.0 / p)
    elif noise.shape[0] > 0:
        # The cone measure of the cube is uniform on its surface: one face at random.
        face = min(int(rng.random() * noise.shape[0]), noise.shape[0] - 1)
        noise[face] = math.copysign(1.0, noise[face])
        largest = 1.0
    scale = math.sqrt(square) / largest
    for j in range(noise.shape[0]):
        noise[j] *= scale


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test."""
    noise = state.scratch[0][: plan.factor.shape[1]]
    fill_noise(plan.p, rng, noise)
    return walk(target, pieces, plan, state, rng, noise)


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class RandomWalk(TunedSampler):
    """Random-walk Metropolis.

    Parameters
    ----------
    p : float
        Norm of the proposal's density exp(-||z||_p^2 / 2), in [1, inf]: 2 is Gaussian.
    step_size : float, optional
        Scale s of the proposals in units of the fitted covariance; by default a pilot
        run finds the one with acceptance 0.234 (0.44 in one dimension).
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The proposal is symmetric, so the target is exactly invariant and the
    kernel reversible, whatever the covariance and the step.

    Examples
    --------
    >>> from dpsample.samplers import RandomWalk
    >>> RandomWalk(p=1.5).exactness
    'invariant'
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check.at_least(1.0, p=self.p)

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        dim = target.problem.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run,
            plan_fn=lambda gaussian, step: RandomWalkPlan(
                step, float(self.p), gaussian.factor
            ),
            rate=0.44 if dim == 1 else 0.234,
            first_step=2.38 / math.sqrt(dim),
        )
