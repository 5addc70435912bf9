"""Rounds of draws until an effective sample size is reached.

When to stop depends on the draws alone and is asked at numbers of draws that depend on
the draws alone: threads, chunks and checkpoints cannot change it.
"""

import math
import warnings

import numpy as np

from dpsample.core.arrays import Array

# Longest run, in units of the first round.
MAX_GROWTH = 1000
# Next round relative to all draws so far, and more than seems to be needed by:
SHORTEST, LONGEST, RESERVE = 1.2, 3.0, 1.1


def effective_size(draws: Array) -> float:
    """Smallest effective sample size of the coefficients and of their spreads.

    Of draws of shape (chain, draw, dim) after the warm-up: the minimum over
    coefficients of the bulk ESS of theta and of (theta - mean)^2, for all chains
    together; 0 if a coefficient never moved or the chains are too short.
    """
    from arviz_stats.base import array_stats

    if draws.shape[1] < 4 or not np.ptp(draws, axis=(0, 1)).all():
        return 0.0
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    sizes = [
        array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk")
        for values in (draws, squares)
    ]
    smallest = float(np.min(sizes))
    return smallest if smallest > 0.0 else 0.0


class Rounds:
    """Rule that says how many draws per chain are wanted, given those there are.

    ``wanted`` is the effective sample size to reach, ``found`` that of the last round.
    """

    def __init__(self, wanted: float, first: int) -> None:
        # Loaded now, so that Ctrl-C in a run need not wait for it.
        import arviz_stats.base  # noqa: F401

        self.wanted, self.found = wanted, 0.0
        self.longest = MAX_GROWTH * first

    def __call__(self, draws: Array) -> int:
        """Return the number of draws per chain at which to ask again, or to stop."""
        count = int(draws.shape[1])
        self.found = effective_size(draws)
        if self.found >= self.wanted:
            return count
        growth = LONGEST
        if self.found > 0.0:
            growth = min(max(RESERVE * self.wanted / self.found, SHORTEST), LONGEST)
        return min(self.longest, math.ceil(count * growth))

    def report(self, is_interrupted: bool) -> dict[str, float | bool]:
        """Attributes of a result; warns if the longest run was too short."""
        is_reached = self.found >= self.wanted
        if not (is_reached or is_interrupted):
            warnings.warn(
                f"The effective sample size is {self.found:.4g} after {self.longest} "
                f"draws per chain, not {self.wanted:g}: the chains mix too slowly. Use "
                "another sampler, or a larger num_draws, whose "
                f"{MAX_GROWTH}-fold is the limit.",
                RuntimeWarning,
                stacklevel=4,
            )
        return {
            "target_ess": self.wanted,
            "ess_of_last_round": self.found,
            "is_target_ess_reached": is_reached,
        }
