r"""Iterated accelerated clipped SGD on growing blocks of records.

Xu et al. (arXiv 2026), Algorithm 7: the blocks of `IteratedLocalizedClippedGD`, each an
epoch of `AcceleratedClippedSGD`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.accelerated_clipped_sgd import (
    SHUFFLED_BLOCKS,
    Accelerated,
)
from dpsample.optimizers.acceleration import Acceleration
from dpsample.optimizers.batch_schemes import Epoch
from dpsample.optimizers.clipped_losses import CLIPPED_GRADIENT
from dpsample.optimizers.growing_blocks import Gap, GrowingBlocks
from dpsample.optimizers.heavy_tailed import Scales
from dpsample.optimizers.optimizer import Calibration, Recipe
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import ParallelEvent


@dataclass(frozen=True, kw_only=True)
class IteratedAcceleratedClippedSGD(GrowingBlocks, Accelerated):
    r"""`AcceleratedClippedSGD` on growing blocks, the distance halved from run to run.

    Run t makes one epoch over its own :math:`n_t = \lfloor 2^{t-1} n/(\log_2 n)^A
    \rfloor` records, :math:`A = \log_{\bar\theta} 2`, from the last run's output, with
    the step for the distance :math:`R_0/2^{t-1}`: Xu et al. (arXiv 2026), Algorithm 7.
    ``distance`` is R_0.

    Parameters
    ----------
    least_exponent
        See `GrowingBlocks`.
    moment, order, clip, distance
        See `HeavyTailed`.
    scheme, num_steps
        Of every epoch; see `AcceleratedClippedSGD`.

    Raises
    ------
    ValueError
        As for `AcceleratedClippedSGD`, or if the first block is empty.

    Guarantee
    ---------
    As for `AcceleratedClippedSGD`: the blocks are disjoint, and every one may spend the
    whole budget.

    Examples
    --------
    >>> IteratedAcceleratedClippedSGD(scheme="disjoint").least_exponent
    2.0
    """

    name: ClassVar[str] = "iterated_accelerated_clipped_sgd"

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """One loop for every block; see `Optimizer.recipe`."""
        scales = self.scales(facts, budget)
        found = self._runs(facts, scales, budget, calibration)
        events = tuple(e.event for _, e, _ in found if e.event is not None)
        return Recipe(
            phases=tuple(self.loop_of(one) for one in found),
            event=ParallelEvent(events) if events else None,
            inputs={
                "num_runs": len(found),
                "first_clip": found[0][0].clip,
                "last_clip": found[-1][0].clip,
                "first_noise_stddev": found[0][1].stddev,
                "last_noise_stddev": found[-1][1].stddev,
            },
            theorems=(
                *dict.fromkeys(batches.theorem for _, batches, _ in found),
                CLIPPED_GRADIENT,
            ),
            assumptions=(SHUFFLED_BLOCKS,) if calibration == "paper" else (),
        )

    def run_bounds(
        self, facts: PublicFacts, scales: Scales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """See `GrowingBlocks.run_bounds`; one-pass schemes only."""
        if self.scheme == "poisson":
            remedy = "The bound needs fresh batches."
            check.fail("scheme", "'disjoint', 'shuffle' or 'best'", "poisson", remedy)
        return [
            (_gap(run, eta, self.variance(scales, run, batches)), run.clip)
            for run, batches, eta in self._runs(facts, scales, budget, "exact")
        ]

    def _runs(
        self,
        facts: PublicFacts,
        scales: Scales,
        budget: Budget | None,
        calibration: Calibration,
    ) -> list[tuple[Acceleration, Epoch, float]]:
        make = self.printed_run if calibration == "paper" else self.run_of
        return [
            make(facts, scales, budget, first=first, count=count, distance=distance)
            for first, count, distance in self.blocks(facts, scales)
        ]


def _gap(run: Acceleration, eta: float, variance: float) -> Gap:
    return lambda spread: run.gap(spread, eta=eta, variance=variance)
