"""Samplers with planted bugs, as a caller would pass them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.samplers import MALA, BallWalk, Sampler
from dpsample.samplers.chain import (
    accept_or_reject,
    displace,
    evaluate_gradient,
    evaluate_proposal,
    fill_with_normals,
)
from tests.support import sampler_mutants as mutants


@dataclass(frozen=True, kw_only=True)
class Planted(Sampler):
    """A sampler with another step, or for another target."""

    inner: Any
    step: Any = None
    k: float = 1.0
    mu: float = 1.0

    def prepare(self, target, rng):
        wrong = dps.Gibbs(
            target.problem,
            k=self.k * target.k,
            mu=self.mu * target.mu,
            regularizer=target.regularizer,
        )
        prepared = self.inner.prepare(wrong, rng)
        if self.step is None:
            return prepared
        return replace(prepared, run=mutants.run_of(self.step))


def unadjusted(target, pieces, plan, state, rng):
    """Langevin step that is never refused inside the domain."""
    gradient, rank = state.memory, plan.factor.shape[1]
    noise, proposal = state.vectors[0][:rank], state.vectors[1]
    fill_with_normals(rng, noise)
    scale = math.sqrt(2.0 * plan.step)
    np.dot(gradient, plan.factor, state.vectors[2][:rank])
    for i in range(rank):
        noise[i] -= plan.step / scale * state.vectors[2][i]
    displace(plan, state.position, noise, scale, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    log_ratio = 0.0 if energy < np.inf else -np.inf
    code = accept_or_reject(state, proposal, energy, log_ratio, rng)
    evaluate_gradient(target, pieces, state, state.position, gradient)
    return code


SPEEDY = Planted(inner=BallWalk(step_size=4.0), step=mutants.speedy)
UNADJUSTED = Planted(inner=MALA(step_size=1.6), step=unadjusted)
