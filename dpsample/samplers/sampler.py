"""What every sampler says of itself, and the pilot run of those that are tuned.

Step size and covariance are frozen before the first draw. A stream of its own keeps the
draws independent of how long the pilot took.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import Kernel
from dpsample.samplers.chain import (
    ACCEPTED,
    NUM_STATS,
    PROPOSALS,
    ChainState,
    MetropolisPlan,
    PreparedChain,
    init,
)
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.reduced import has_equalities, reduce, reduction_obstacle

Exactness = Literal["iid", "invariant", "biased"]
NUM_BLOCKS, BLOCK = 16, 25  # proposals for one search of the step
NUM_ROUNDS = 4  # of the covariance, each twice as long as the one before
MIN_STEP, MAX_STEP = 1e-12, 1e6
# Mass of the Gaussian fit inside the domain from which the fit is good enough.
TRUSTED_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Base of all samplers: frozen options, and what is true of every draw.

    Attributes
    ----------
    exactness : {"iid", "invariant", "biased"}
        Whether draws are independent and exact, have the target as invariant law, or
        have an invariant law off by a stated amount.
    is_reversible : bool
        Whether a draw's kernel satisfies detailed balance.
    """

    exactness: ClassVar[Exactness] = "invariant"
    is_reversible: ClassVar[bool] = True

    def supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether `dpsample.sample` can draw from the target, and the reason if not.

        Polytopes with equalities are drawn from in free coordinates.

        Parameters
        ----------
        target : Gibbs
            The target.

        Returns
        -------
        is_supported : bool
            Whether it can.
        reason : str
            Empty, or why not and what to use instead.
        """
        check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
        if has_equalities(target):
            reason = reduction_obstacle(target)
            if reason:
                return False, reason
            target = reduce(target).target
        return self._supports(target)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Answer for a Gibbs target; most need no more than an energy and a domain."""
        del target
        return True, ""

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> Any:
        """Tune on a stream of its own; everything is fixed before the first draw."""
        raise NotImplementedError

    def require(self, target: Gibbs) -> None:
        """Raise a ValueError unless the target is supported as it is."""
        is_supported, reason = self.supports(target)
        if has_equalities(target):
            remedy = (
                "dps.sample and dps.release draw in free coordinates: "
                "dpsample.targets.reduced.reduce gives the target there."
            )
            check.fail("domain", "without equalities here", "some", remedy)
        if not is_supported:
            check.fail("sampler", "one that supports the target", repr(self), reason)


def gaussian_plan(gaussian: GaussianFit, step: float) -> MetropolisPlan:
    """Plan of the samplers that need a fit and a step, and nothing else."""
    return MetropolisPlan(
        step=float(step),
        center=gaussian.center,
        factor=gaussian.factor,
        whiten=gaussian.whiten,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningRecipe:
    """How a sampler becomes a chain: its kernel, and the acceptance rate to aim at.

    ``plan_fn`` makes the kernel's plan from a Gaussian fit and a step.
    """

    run: Kernel[..., tuple[int, int]]
    rate: float
    first_step: float
    init_fn: Callable[[Gibbs, Any, Array], ChainState] = init
    plan_fn: Callable[[GaussianFit, float], Any] = gaussian_plan
    longest: float = MAX_STEP
    num_steps: int = 1

    def build(self, target: Gibbs, gaussian: GaussianFit, step: float) -> PreparedChain:
        """Chain with this fit and step."""
        return PreparedChain(
            target=target,
            plan=self.plan_fn(gaussian, step),
            run=self.run,
            init_fn=self.init_fn,
            start=gaussian.center,
            num_steps=self.num_steps,
            num_warmup=1000,
            settings={"step_size": step},
            scatter=gaussian.factor,
        )


@dataclass(frozen=True, kw_only=True)
class TunedSampler(Sampler):
    """Base of samplers with one step size, which a pilot run finds by default."""

    longest_step: ClassVar[float] = math.inf  # the largest that has a meaning

    step_size: float | None = None  # the user's, or None
    num_steps: int = 1  # per draw

    def __post_init__(self) -> None:
        """Check the options."""
        check.integer(1, num_steps=self.num_steps)
        if self.step_size is not None:
            check.positive(step_size=self.step_size)
            if self.step_size > self.longest_step:
                check.fail(
                    "step_size",
                    f"<= {check.describe(self.longest_step)}",
                    self.step_size,
                )

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        """How the sampler becomes a chain for a target."""
        raise NotImplementedError

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit a Gaussian to the target, and find the step by a pilot run."""
        self.require(target)
        recipe = replace(self._recipe(target), num_steps=self.num_steps)
        return prepare(target, rng, recipe, step=self.step_size)


def prepare(
    target: Gibbs,
    rng: np.random.Generator,
    recipe: TuningRecipe,
    *,
    step: float | None = None,
) -> PreparedChain:
    """Fit a Gaussian, improve it where the domain cuts it, and search the step size.

    ``rng`` is the pilot run's own stream; ``step`` is the user's step size, if given.
    """
    gaussian = fit(target)
    chosen = recipe.first_step if step is None else step
    if gaussian.share_inside < TRUSTED_SHARE:
        for turn in range(NUM_ROUNDS):
            if step is None:
                chosen = search_step(target, recipe, gaussian, rng, chosen)
            pilot = recipe.build(target, gaussian, chosen)
            gaussian = _learn(gaussian, pilot, rng, 2**turn)
    if step is None:
        chosen = search_step(target, recipe, gaussian, rng, chosen)
    return recipe.build(target, gaussian, chosen)


def search_step(
    target: Gibbs,
    recipe: TuningRecipe,
    gaussian: GaussianFit,
    rng: np.random.Generator,
    step: float,
) -> float:
    """Robbins-Monro on the logarithm of the step, averaged over its second half."""
    log_step, trail = np.log(step), []
    position = gaussian.center
    for turn in range(NUM_BLOCKS):
        pauses.notify_listeners()
        prepared = recipe.build(target, gaussian, float(np.exp(log_step)))
        state = prepared.init(position)
        seen = acceptance(prepared, state, rng, -(-BLOCK // prepared.num_steps))
        position = state.position
        log_step += 4.0 * (seen - recipe.rate) / np.sqrt(1.0 + turn)
        log_step = float(np.clip(log_step, np.log(MIN_STEP), np.log(recipe.longest)))
        trail.append(log_step)
    return float(np.exp(np.mean(trail[NUM_BLOCKS // 2 :])))


def acceptance(
    prepared: PreparedChain, state: ChainState, rng: np.random.Generator, count: int
) -> float:
    """Share of the proposals of ``count`` draws that are accepted."""
    before = state.counts.copy()
    draws = np.empty((count, state.position.size))
    prepared.runner()(state, rng, draws, np.empty((count, NUM_STATS)))
    made = state.counts - before
    return float(made[ACCEPTED] / max(made[PROPOSALS], 1))


def _learn(
    gaussian: GaussianFit, pilot: PreparedChain, rng: np.random.Generator, length: int
) -> GaussianFit:
    """Mean and shrunken covariance of a pilot run, in whitened coordinates."""
    dim = gaussian.whiten.shape[0]
    count = length * (100 + 20 * dim)
    draws = np.empty((count, gaussian.center.size))
    pilot.runner()(pilot.init(), rng, draws, np.empty((count, NUM_STATS)))
    kept = draws[count // 4 :]
    white = (kept - gaussian.center) @ gaussian.whiten.T
    covariance = np.atleast_2d(np.cov(white.T))
    weight = len(kept) / (len(kept) + 10.0 * dim)
    guess = np.trace(covariance) / dim
    covariance = weight * covariance + (1.0 - weight) * guess * np.eye(dim)
    if not guess > 0.0:
        return gaussian  # nothing moved: the next round has a shorter step
    return gaussian.rescale(kept.mean(axis=0), covariance)
