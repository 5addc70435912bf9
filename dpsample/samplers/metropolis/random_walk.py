# mypy: allow-untyped-defs
r"""Random-walk Metropolis with Gaussian or generalized Gaussian proposals.

    x' = x + s L z,    z with density proportional to exp(-||z||_p^2 / 2),

accepted with probability min(1, e^{V(x) - V(x')}). L L^T is a covariance fitted to the
target. A proposal outside the domain is rejected.

In m dimensions z is a radius times a point of the unit sphere of the l_p norm. The
radius has a chi distribution with m degrees of freedom, as for p = 2. The point has the
cone measure: a set of points is as probable as the volume of the cone over it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.samplers.chain import ROW, compile_run, fill_with_normals, walk
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets.gibbs_target import GibbsTarget


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class RandomWalkPlan(NamedTuple):
    """Step, norm of the noise, and factor of the fitted covariance."""

    step: float  # s
    p: float
    factor: Array  # (dim, m): L


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def fill_noise(p, rng, noise):
    """Fill the noise with a draw from the density proportional to exp(-||z||_p^2 / 2).

    For finite p the signed powers G^(1/p) of gamma variables of shape 1/p, divided by
    their norm, have the cone measure.
    """
    if p == 2.0:
        fill_with_normals(rng, noise)
        return
    squared_radius, power_sum, norm = 0.0, 0.0, 1.0
    for j in range(noise.shape[0]):
        normal = rng.standard_normal()
        squared_radius += normal * normal
        if p == np.inf:
            noise[j] = 2.0 * rng.random() - 1.0
        else:
            # |z_j|^p has a gamma distribution if z_j has a density exp(-|z|^p).
            power = rng.standard_gamma(1.0 / p)
            power_sum += power
            noise[j] = power ** (1.0 / p)
            if rng.random() < 0.5:
                noise[j] = -noise[j]
    if p != np.inf:
        norm = power_sum ** (1.0 / p)
    elif noise.shape[0] > 0:
        # The cone measure of the cube is uniform on its surface. A uniform point of the
        # cube is moved to a random facet.
        facet = min(int(rng.random() * noise.shape[0]), noise.shape[0] - 1)
        noise[facet] = math.copysign(1.0, noise[facet])
    scale = math.sqrt(squared_radius) / norm
    for j in range(noise.shape[0]):
        noise[j] *= scale


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test."""
    noise = state.vectors[ROW.noise][: plan.factor.shape[1]]
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
        Scale s of the proposals in units of the fitted covariance. By default a pilot
        run finds the one with acceptance rate 0.234 (0.44 in one dimension). This is
        the optimal rate for Gaussian targets.
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

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    p: float = 2.0

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check.at_least(1.0, p=self.p)

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the scale from 2.38 / sqrt(dim), optimal for Gaussian targets."""
        dim = target.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run,
            plan_fn=lambda gaussian, step: RandomWalkPlan(
                step, float(self.p), gaussian.factor
            ),
            rate=0.44 if dim == 1 else 0.234,
            first_step=2.38 / math.sqrt(dim),
        )
