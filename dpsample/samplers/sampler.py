"""Base of all samplers, and the pilot run of samplers with a step size.

The pilot run fits a Gaussian to the target and searches the step size whose acceptance
rate is the one that the sampler aims at. Both are frozen before the first draw. The
pilot has a stream of its own, so that draws do not depend on its length.
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
    COUNT,
    NUM_STATS,
    ChainState,
    MetropolisPlan,
    PreparedChain,
    init,
)
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.targets.gibbs_target import GibbsTarget, require_target
from dpsample.targets.reduced import has_equalities, reduce, reduction_obstacle

Exactness = Literal["iid", "invariant", "biased"]
# Upper limit of the search of a step size.
MAX_STEP = 1e6
# The Gaussian fit is good enough if this share of its mass is inside the domain.
TRUSTED_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Base of all samplers: frozen options, and properties of every draw.

    Attributes
    ----------
    exactness : {"iid", "invariant", "biased"}
        Whether draws are independent and exact, leave the target invariant, or leave a
        distribution invariant that differs from it by a stated amount.
    is_reversible : bool
        Whether a draw's kernel satisfies detailed balance.
    """

    exactness: ClassVar[Exactness] = "invariant"
    is_reversible: ClassVar[bool] = True
    # Whether the sampler reads losses of single records, which a `Density` does not
    # have. It is false if energies and gradients of the whole target are enough.
    reads_records: ClassVar[bool] = True

    def supports(self, target: GibbsTarget) -> tuple[bool, str]:
        """Return whether `dpsample.sample` can draw from the target, and why not.

        Polytopes with equalities are drawn from in free coordinates.

        Parameters
        ----------
        target : Gibbs or Density
            The target.

        Returns
        -------
        is_supported : bool
            Whether it can.
        reason : str
            Empty, or the reason and an alternative.
        """
        require_target(target)
        if self.reads_records and target.num_records == 0:
            reason = "It reads records, and a Density has none: use BilliardHMC."
            return False, reason
        if has_equalities(target):
            reason = reduction_obstacle(target)
            if reason:
                return False, reason
            target = reduce(target).target
        return self._supports(target)

    def _supports(self, target: Any) -> tuple[bool, str]:
        """Return the same for a target without equalities. Most support all."""
        del target
        return True, ""

    def prepare(self, target: Any, rng: np.random.Generator) -> Any:
        """Tune on a stream of its own. Everything is fixed before the first draw."""
        raise NotImplementedError

    def require(self, target: GibbsTarget) -> None:
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
    """Return the plan of samplers that need a fit and a step only."""
    return MetropolisPlan(
        step=float(step),
        center=gaussian.center,
        factor=gaussian.factor,
        whiten=gaussian.whiten,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningRecipe:
    """Functions and numbers that make a sampler a chain.

    ``rate`` is the acceptance rate that its step is tuned to. ``plan_fn`` returns the
    kernel's plan for a Gaussian fit and a step.
    """

    run: Kernel[..., tuple[int, int]]
    rate: float
    first_step: float
    init_fn: Callable[[Any, Any, Array], ChainState] = init
    plan_fn: Callable[[GaussianFit, float], Any] = gaussian_plan
    longest: float = MAX_STEP
    num_steps: int = 1

    def build(
        self, target: GibbsTarget, gaussian: GaussianFit, step: float
    ) -> PreparedChain:
        """Return the chain with a fit and a step."""
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

    longest_step: ClassVar[float] = math.inf  # largest meaningful step size

    step_size: float | None = None  # by default the pilot run finds it
    num_steps: int = 1  # number of steps per draw

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

    def _recipe(self, target: Any) -> TuningRecipe:
        """Return the recipe for a target."""
        raise NotImplementedError

    def prepare(self, target: Any, rng: np.random.Generator) -> PreparedChain:
        """Fit a Gaussian to the target, and find the step by a pilot run."""
        self.require(target)
        recipe = replace(self._recipe(target), num_steps=self.num_steps)
        return prepare(target, rng, recipe, step=self.step_size)


def prepare(
    target: GibbsTarget,
    rng: np.random.Generator,
    recipe: TuningRecipe,
    *,
    step: float | None = None,
) -> PreparedChain:
    """Fit a Gaussian, improve it if the domain cuts it off, and search the step size.

    ``rng`` is the pilot run's own stream. A ``step`` of the user is not changed.
    """
    gaussian = fit(target)
    step_size = recipe.first_step if step is None else step
    # If the domain cuts off more of the fit, four rounds of pilot draws improve it.
    # Each is twice as long as the one before.
    if gaussian.share_inside < TRUSTED_SHARE:
        for i in range(4):
            if step is None:
                step_size = search_step(target, recipe, gaussian, rng, step_size)
            pilot = recipe.build(target, gaussian, step_size)
            gaussian = learn_covariance(gaussian, pilot, rng, 2**i)
    if step is None:
        step_size = search_step(target, recipe, gaussian, rng, step_size)
    return recipe.build(target, gaussian, step_size)


def search_step(
    target: GibbsTarget,
    recipe: TuningRecipe,
    gaussian: GaussianFit,
    rng: np.random.Generator,
    step: float,
) -> float:
    """Return the step size with the recipe's acceptance rate, by stochastic search.

    It is the Robbins-Monro method for the logarithm of the step, in 16 blocks of 25
    proposals. The average of the last 8 logarithms has a smaller variance than the last
    one.
    """
    log_step, log_steps = np.log(step), []
    position = gaussian.center
    for i in range(16):
        pauses.notify_listeners()
        prepared = recipe.build(target, gaussian, float(np.exp(log_step)))
        state = prepared.init(position)
        num_draws = -(-25 // prepared.num_steps)  # rounded up
        rate = measure_acceptance(prepared, state, rng, num_draws)
        position = state.position
        # The gain 4 lets the first block change the step by a factor of up to e^4. It
        # falls slowly enough that any step can still be reached.
        log_step += 4.0 * (rate - recipe.rate) / np.sqrt(1.0 + i)
        log_step = float(np.clip(log_step, np.log(1e-12), np.log(recipe.longest)))
        log_steps.append(log_step)
    return float(np.exp(np.mean(log_steps[8:])))


def measure_acceptance(
    prepared: PreparedChain, state: ChainState, rng: np.random.Generator, count: int
) -> float:
    """Return the share of the proposals of ``count`` draws that are accepted."""
    before = state.counts.copy()
    draws = np.empty((count, state.position.size))
    prepared.runner()(state, rng, draws, np.empty((count, NUM_STATS)))
    counts = state.counts - before
    return float(counts[COUNT.accepted] / max(counts[COUNT.proposals], 1))


def learn_covariance(
    gaussian: GaussianFit, pilot: PreparedChain, rng: np.random.Generator, length: int
) -> GaussianFit:
    """Return the Gaussian with mean and covariance of a pilot run's draws.

    In whitened coordinates the covariance is shrunk towards a multiple of the identity,
    which has the weight of 10 dim draws.
    """
    dim = gaussian.whiten.shape[0]
    count = length * (100 + 20 * dim)
    draws = np.empty((count, gaussian.center.size))
    pilot.runner()(pilot.init(), rng, draws, np.empty((count, NUM_STATS)))
    # The first quarter may depend on the start.
    draws = draws[count // 4 :]
    white = (draws - gaussian.center) @ gaussian.whiten.T
    covariance = np.atleast_2d(np.cov(white.T))
    weight = len(draws) / (len(draws) + 10.0 * dim)
    variance = np.trace(covariance) / dim
    covariance = weight * covariance + (1.0 - weight) * variance * np.eye(dim)
    # If the pilot never moved, the fit stays. The next round has a shorter step.
    if not variance > 0.0:
        return gaussian
    return gaussian.rescale(draws.mean(axis=0), covariance)
