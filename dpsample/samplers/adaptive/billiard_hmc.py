"""The public sampler of `billiard`: Hamiltonian draws with exact reflections."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.renamed import accept_former_names
from dpsample.samplers.adaptive import billiard
from dpsample.samplers.adaptive.billiard import LENGTH, MAX_LEAPS
from dpsample.samplers.adaptive.warmup import WarmUp, disperse, warm_up
from dpsample.samplers.chain import PreparedChain
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs_target import GibbsTarget


@accept_former_names(max_leaps="max_leapfrog_steps", length="trajectory_length")
@dataclass(frozen=True, kw_only=True)
class BilliardHMC(Sampler):
    """Hamiltonian Monte Carlo with exact reflections, in a learned metric.

    Where the energy is nearly quadratic in a box, a simplex or a ball of any norm,
    trajectories are rotations with reflections, which need no gradient except in a few.

    Parameters
    ----------
    num_steps : int, optional
        Trajectories per draw. By default the warm-up chooses.
    trajectory_length : float
        Mean length of a trajectory in units of the metric.
    max_leapfrog_steps : int
        Maximum number of leapfrog steps of a trajectory, each with one gradient.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for any
    metric, force, step and choice of subgradient. The energy need not be convex.

    Examples
    --------
    >>> from dpsample.samplers import BilliardHMC
    >>> BilliardHMC(trajectory_length=2.0).is_reversible
    True
    """

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    num_steps: int | None = None
    trajectory_length: float = LENGTH
    max_leapfrog_steps: int = MAX_LEAPS

    def __post_init__(self) -> None:
        """Check the options."""
        if self.num_steps is not None:
            check.integer(1, num_steps=self.num_steps)
        check.positive(trajectory_length=self.trajectory_length)
        check.integer(1, max_leapfrog_steps=self.max_leapfrog_steps)

    def prepare(self, target: GibbsTarget, rng: np.random.Generator) -> PreparedChain:
        """Learn metric, force and step. All is fixed before the first draw."""
        self.require(target)
        warm = warm_up(
            target,
            rng,
            length=self.trajectory_length,
            max_leaps=self.max_leapfrog_steps,
        )
        return prepare_chain(target, warm, self.num_steps)


def prepare_chain(
    target: GibbsTarget, warm: WarmUp, num_steps: int | None = None
) -> PreparedChain:
    """Return the chain of a warm-up, which also chooses the transitions per draw."""
    # The warm-up chooses how many trajectories a draw needs, unless the user has.
    steps = warm.num_steps if num_steps is None else num_steps
    return PreparedChain(
        target=target,
        plan=warm.plan,
        run=billiard.run,
        init_fn=billiard.init,
        functions_fn=billiard.step_functions,
        start=warm.plan.center,
        num_steps=steps,
        num_warmup=warm.num_discarded(steps),
        settings={"step_size": warm.plan.step, **warm.settings},
        start_fn=partial(disperse, target, warm.plan),
        own_statistics=billiard.OWN_STATISTICS,
    )
