# mypy: allow-untyped-defs
r"""Preconditioned Crank-Nicolson: proposals that keep a fitted Gaussian invariant.

    x' = c + sqrt(1 - b^2) (x - c) + b L z,    z ~ N(0, I),

accepted with probability min(1, e^{phi(x) - phi(x')}), where phi = V - ||x - c||^2 / 2
in the norm of the fit's precision (L L^T)^{-1}. So phi is the energy that the Gaussian
fit N(c, L L^T) leaves out. The share b of new noise is the step of the plan. If it is
1, proposals are independent of x.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.vectors import multiply
from dpsample.samplers.chain import (
    accept_or_reject,
    compile_run,
    displace,
    evaluate_proposal,
    fill_with_normals,
)
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets.gibbs_target import GibbsTarget


class PreconditionedCrankNicolsonVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    noise: int = 0  # z
    proposal: int = 1  # x'
    origin: int = 2  # x - c, and then the proposal's mean
    white: int = 3  # L^{-1} (x - c)


ROW = PreconditionedCrankNicolsonVectorRow()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def half_square(plan, theta, difference, white):
    """Return half the squared distance of theta from the center, in the fit's norm.

    ``difference`` and ``white`` are filled with theta - c and its whitened coordinates.
    """
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - plan.center[j]
    multiply(plan.whiten, difference, white)
    return 0.5 * np.dot(white, white)


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test.

    ``pieces`` are the C functions of the target. A proposal outside of the domain has
    infinite energy, so it is rejected.
    """
    rank = plan.factor.shape[1]  # dimension of the domain's affine hull
    noise, proposal = state.vectors[ROW.noise][:rank], state.vectors[ROW.proposal]
    origin, white = state.vectors[ROW.origin], state.vectors[ROW.white][:rank]
    fill_with_normals(rng, noise)
    # (1 - b^2) + b^2 = 1, so the proposal of a draw from the fit is one, too.
    shrink_factor = math.sqrt(1.0 - plan.step * plan.step)
    # The first call leaves x - c in the origin, which becomes the proposal's mean.
    log_ratio = state.energy[0] - half_square(plan, state.position, origin, white)
    for j in range(origin.shape[0]):
        origin[j] = plan.center[j] + shrink_factor * origin[j]
    displace(plan, origin, noise, plan.step, proposal)  # origin + b L z
    energy = evaluate_proposal(target, pieces, state, proposal)
    # The Gaussian's part of the energies cancels with the proposal's densities.
    log_ratio -= energy - half_square(plan, proposal, origin, white)
    return accept_or_reject(state, proposal, energy, log_ratio, rng)


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class PreconditionedCrankNicolson(TunedSampler):
    """Preconditioned Crank-Nicolson around a Gaussian fit.

    Parameters
    ----------
    step_size : float, optional
        Share b of new noise, in (0, 1]. By default a pilot run finds the one with
        acceptance rate 0.6, or takes 1 if that is accepted more often.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The proposal is reversible for the fitted Gaussian, so the target is
    exactly invariant and the kernel reversible, whatever the fit. On the simplex the
    moves stay in its affine hull.

    Examples
    --------
    >>> from dpsample.samplers import PreconditionedCrankNicolson
    >>> PreconditionedCrankNicolson(step_size=0.5).exactness
    'invariant'
    """

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    longest_step: ClassVar[float] = 1.0

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the share of new noise, which is at most 1."""
        return TuningRecipe(
            run=run, rate=0.6, first_step=0.5, longest=self.longest_step
        )
