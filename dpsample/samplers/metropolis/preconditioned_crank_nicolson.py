# mypy: allow-untyped-defs
r"""Preconditioned Crank-Nicolson: proposals that keep a fitted Gaussian invariant.

    x' = c + sqrt(1 - b^2) (x - c) + b L z,    z ~ N(0, I),

accepted with probability min(1, e^{phi(x) - phi(x')}), where phi = V - ||x - c||^2 / 2
in the norm of the fit's precision. b = 1 proposes independently of x.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

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
from dpsample.targets.gibbs import Gibbs


@kernel(counts_references=False)
def half_square(plan, theta, difference, white):
    """Half the squared distance of theta from the center, in the fit's norm."""
    for j in range(theta.shape[0]):
        difference[j] = theta[j] - plan.center[j]
    multiply(plan.whiten, difference, white)
    return 0.5 * np.dot(white, white)


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test."""
    rank = plan.factor.shape[1]
    noise, proposal = state.scratch[0][:rank], state.scratch[1]
    origin, white = state.scratch[2], state.scratch[3][:rank]
    fill_with_normals(rng, noise)
    kept = math.sqrt(1.0 - plan.step * plan.step)
    log_ratio = state.energy[0] - half_square(plan, state.position, origin, white)
    for j in range(origin.shape[0]):
        origin[j] = plan.center[j] + kept * origin[j]
    displace(plan, origin, noise, plan.step, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    log_ratio -= energy - half_square(plan, proposal, origin, white)
    return accept_or_reject(state, proposal, energy, log_ratio, rng)


run = compile_run(step)


@dataclass(frozen=True, kw_only=True)
class PreconditionedCrankNicolson(TunedSampler):
    """Preconditioned Crank-Nicolson around a Gaussian fit.

    Parameters
    ----------
    step_size : float, optional
        Share b of fresh noise, in (0, 1]; by default a pilot run finds the one with
        acceptance 0.6, or 1 if that is accepted more often.
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

    longest_step: ClassVar[float] = 1.0

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        return TuningRecipe(
            run=run, rate=0.6, first_step=0.5, longest=self.longest_step
        )
