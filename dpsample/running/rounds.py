"""Number of draws for an effective sample size, from a run that is discarded.

A rule that stops a run by its own draws favors runs that seem to mix well. So a trial
run, with starts and streams of its own, goes on in rounds until it knows its
autocorrelation; it fixes the number of draws of the run that is returned. Threads,
chunks and checkpoints cannot change it.
"""

import math
import warnings

import numpy as np

from dpsample.core.arrays import Array
from dpsample.numerics.ranked import verdicts

# Longest run, in units of the first round.
MAX_GROWTH = 1000
# Next round relative to all draws so far, and more than seems to be needed by:
SHORTEST, LONGEST, RESERVE = 1.2, 3.0, 1.25
SHORTEST_RUN = 4  # draws per chain, or nothing can be said of them
# Effective size from which a trial run tells its autocorrelation within some 10 %.
ENOUGH = 400.0


def effective_size(draws: Array) -> float:
    """Smallest effective sample size of the coefficients and of their spreads.

    Of draws of shape (chain, draw, dim) after the warm-up: the minimum over
    coefficients of the bulk ESS of theta and of (theta - mean)^2, for all chains
    together; 0 if a coefficient never moved or the chains are too short.
    """
    if draws.shape[1] < 4 or not np.ptp(draws, axis=(0, 1)).all():
        return 0.0
    smallest = float(np.min(verdicts(draws)[1]))
    return smallest if smallest > 0.0 else 0.0


class TrialRun:
    """Rule that says how many draws per chain a trial run needs, given those there are.

    ``wanted`` is the effective sample size of the run that will be returned.
    """

    def __init__(self, wanted: float, first: int) -> None:
        self.wanted, self.found, self.count = wanted, 0.0, first
        self.longest = MAX_GROWTH * first

    def __call__(self, draws: Array) -> int:
        """Return the number of draws per chain at which to ask again, or to stop."""
        self.count = int(draws.shape[1])
        self.found = effective_size(draws)
        enough = min(self.wanted, ENOUGH)
        if self.found >= enough:
            return self.count
        growth = LONGEST
        if self.found > 0.0:
            growth = min(max(RESERVE * enough / self.found, SHORTEST), LONGEST)
        return min(self.longest, math.ceil(self.count * growth))

    @property
    def length(self) -> int:
        """Draws per chain of the run that is returned, at most the longest."""
        if self.found == 0.0:
            return self.longest
        needed = RESERVE * self.wanted / self.found * self.count
        return int(min(self.longest, max(SHORTEST_RUN, math.ceil(needed))))

    def report(self, draws: Array, is_interrupted: bool) -> dict[str, float | bool]:
        """Attributes of a result; warns if the draws are too few."""
        size = effective_size(draws)
        if not (size >= self.wanted or is_interrupted):
            is_longest = draws.shape[1] == self.longest
            warnings.warn(
                f"The effective sample size is {size:.4g} after {draws.shape[1]} draws "
                f"per chain, not {self.wanted:g}: "
                + (
                    "the chains mix too slowly. Use another sampler, or a larger "
                    f"num_draws, whose {MAX_GROWTH}-fold is the limit."
                    if is_longest
                    else "the trial run mixed better. Use a larger num_draws, of which "
                    "the trial run is made, or check the chains for rare modes."
                ),
                RuntimeWarning,
                stacklevel=5,
            )
        return {
            "target_ess": self.wanted,
            "ess_reached": size,
            "is_target_ess_reached": size >= self.wanted,
        }
