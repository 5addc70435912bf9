"""Pilot run: step size and covariance, frozen before the first draw.

A stream of its own keeps the draws independent of how long the pilot took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsample.core.arrays import Array
from dpsample.samplers.chain import ACCEPTED, NUM_STATS, PROPOSALS, PreparedChain
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.samplers.moves import MetropolisPlan

NUM_BLOCKS, BLOCK = 16, 25  # proposals for one search of the step
NUM_ROUNDS = 4  # of the covariance, each twice as long as the one before
MIN_STEP, MAX_STEP = 1e-12, 1e6
# Mass of the Gaussian fit inside the domain from which the fit is good enough.
TRUSTED_SHARE = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningRecipe:
    """How a sampler becomes a chain: its kernel, and what the pilot aims at.

    ``plan_fn`` makes the kernel's plan from a Gaussian fit and a step.
    """

    run: Any
    init_fn: Callable[[Any, Any, Array], Any]
    plan_fn: Callable[[GaussianFit, float], Any]
    rate: float
    first_step: float
    longest: float = MAX_STEP
    num_steps: int = 1
    num_warmup: int = 1000

    def build(self, target: Any, found: GaussianFit, step: float) -> PreparedChain:
        """Chain with this fit and step."""
        return PreparedChain(
            target=target,
            plan=self.plan_fn(found, step),
            run=self.run,
            init_fn=self.init_fn,
            start=found.center,
            num_steps=self.num_steps,
            num_warmup=self.num_warmup,
            settings={"step_size": step},
            scatter=found.factor,
        )


def gaussian_plan(found: GaussianFit, step: float) -> MetropolisPlan:
    """Plan of the samplers that need a fit and a step, and nothing else."""
    return MetropolisPlan(
        step=float(step),
        center=found.center,
        factor=found.factor,
        whiten=found.whiten,
    )


def prepare(
    target: Any,
    rng: np.random.Generator,
    recipe: TuningRecipe,
    *,
    step: float | None = None,
) -> PreparedChain:
    """Fit a Gaussian, improve it where the domain cuts it, and search the step size.

    Parameters
    ----------
    target : Gibbs
        The target.
    rng : Generator
        Stream of the pilot run.
    recipe : Recipe
        The sampler.
    step : float, optional
        A step size chosen by the user.

    Returns
    -------
    Prepared
        The chain with its frozen plan.
    """
    found = fit(target)
    chosen = recipe.first_step if step is None else step
    if found.share_inside < TRUSTED_SHARE:
        for turn in range(NUM_ROUNDS):
            if step is None:
                chosen = search_step(target, recipe, found, rng, chosen)
            pilot = recipe.build(target, found, chosen)
            found = _learn(found, pilot, rng, 2**turn)
    if step is None:
        chosen = search_step(target, recipe, found, rng, chosen)
    return recipe.build(target, found, chosen)


def search_step(
    target: Any,
    recipe: TuningRecipe,
    found: GaussianFit,
    rng: np.random.Generator,
    step: float,
) -> float:
    """Robbins-Monro on the logarithm of the step, averaged over its second half."""
    log_step, trail = np.log(step), []
    position = found.center
    for turn in range(NUM_BLOCKS):
        prepared = recipe.build(target, found, float(np.exp(log_step)))
        state = prepared.init(position)
        seen = _acceptance(prepared, state, rng)
        position = state.position
        log_step += 4.0 * (seen - recipe.rate) / np.sqrt(1.0 + turn)
        log_step = float(np.clip(log_step, np.log(MIN_STEP), np.log(recipe.longest)))
        trail.append(log_step)
    return float(np.exp(np.mean(trail[NUM_BLOCKS // 2 :])))


def _acceptance(prepared: PreparedChain, state: Any, rng: np.random.Generator) -> float:
    before = state.counts.copy()
    dim = state.position.size
    count = -(-BLOCK // prepared.num_steps)
    prepared.runner()(state, rng, np.empty((count, dim)), np.empty((count, NUM_STATS)))
    made = state.counts - before
    return float(made[ACCEPTED] / max(made[PROPOSALS], 1))


def _learn(
    found: GaussianFit, pilot: PreparedChain, rng: np.random.Generator, length: int
) -> GaussianFit:
    """Mean and shrunken covariance of a pilot run, in whitened coordinates."""
    dim = found.whiten.shape[0]
    count = length * (100 + 20 * dim)
    draws = np.empty((count, found.center.size))
    pilot.runner()(pilot.init(), rng, draws, np.empty((count, NUM_STATS)))
    kept = draws[count // 4 :]
    white = (kept - found.center) @ found.whiten.T
    covariance = np.atleast_2d(np.cov(white.T))
    weight = len(kept) / (len(kept) + 10.0 * dim)
    guess = np.trace(covariance) / dim
    covariance = weight * covariance + (1.0 - weight) * guess * np.eye(dim)
    if not guess > 0.0:
        return found  # nothing moved: the next round has a shorter step
    return found.rescaled(kept.mean(axis=0), covariance)
