"""Verdict on the draws of several chains: have they converged, and how many it takes.

A rule that stops a run by its own draws favors runs that seem to mix well. So a trial
run, with starts and streams of its own, goes on in rounds until it knows its
autocorrelation; it fixes the number of draws of the run that is returned. Threads,
chunks and checkpoints cannot change it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtri

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.numerics.ranked import verdicts

# From Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021), section 4.
LARGEST_R_HAT, SMALLEST_ESS = 1.01, 400.0
# Chance with which independent draws show a larger R-hat than they are blamed for.
CHANCE = 5e-7
# Draws of all chains from which one may expect an effective size of 400.
MANY = 1000
# Longest run, in units of the first round.
MAX_GROWTH = 1000
# Next round relative to all draws so far, and more than seems to be needed by:
SHORTEST, LONGEST, RESERVE = 1.2, 3.0, 1.25
SHORTEST_RUN = 4  # draws per chain, or nothing can be said of them
# Effective size from which a trial run tells its autocorrelation within some 10 %.
ENOUGH = 400.0


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Largest R-hat and smallest effective size, over theta and (theta - mean)^2."""

    r_hat: float
    ess: float  # bulk, of all chains together
    worst: str  # what is worst, in words
    length: int  # of a chain
    num_draws: int  # of all chains together

    @classmethod
    def of(cls, draws: Array, names: Sequence[str]) -> Convergence:
        """Judge draws of shape (chain, draw, dim); constant coefficients are left out.

        R-hat is rank-normalized and split, the effective size that of the bulk.
        """
        size = {"length": draws.shape[1], "num_draws": draws.shape[0] * draws.shape[1]}
        is_short = draws.shape[1] < 4
        moving = np.flatnonzero(is_short or np.ptp(draws, axis=(0, 1)) != 0.0)
        if is_short or not moving.size:
            return cls(r_hat=math.nan, ess=0.0, worst="none", **size)
        r_hat, ess = (both[:, moving].ravel() for both in verdicts(draws))
        least = int(np.argmin(np.where(np.isfinite(ess), ess, 0.0)))
        most = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
        at = most if r_hat[most] > LARGEST_R_HAT else least
        name = names[moving[at % moving.size]]
        return cls(
            r_hat=float(r_hat[most]),
            ess=float(ess[least]) if np.isfinite(ess[least]) else 0.0,
            worst=f"{'the square of ' * bool(at >= moving.size)}theta[{name}]",
            **size,
        )

    @property
    def has_converged(self) -> bool:
        """Whether R-hat is at most 1.01 and the effective size at least 400."""
        return self.r_hat <= LARGEST_R_HAT and self.ess >= SMALLEST_ESS

    @property
    def largest_by_chance(self) -> float:
        """R-hat of independent draws; infinite if they are too few.

        Of m parts of L draws of one normal law it is the root of (L - 1 + F) / L, F of
        Fisher's law with m - 1 and m (L - 1) degrees of freedom. Parts are halves of
        the chains, or quarters of a single one.
        """
        num_chains = self.num_draws // self.length
        parts = 2 * num_chains if num_chains > 1 else 4
        size = self.num_draws // parts
        if size < 2:
            return math.inf
        ratio = float(fdtri(parts - 1, parts * (size - 1), 1.0 - CHANCE))
        return math.sqrt((size - 1.0 + ratio) / size)

    def attributes(self) -> dict[str, float | bool]:
        """Return what the attributes of draws say of it."""
        return {"converged": self.has_converged, "r_hat": self.r_hat, "ess": self.ess}

    def warn(self, remedy: str) -> None:
        """Say what has not converged.

        A short run is only blamed for what independent draws would not show, such as
        chains that never move, whose R-hat may be NaN.
        """
        limit = max(LARGEST_R_HAT, self.largest_by_chance)
        is_unlike = limit < math.inf and not self.r_hat <= limit
        is_small = self.num_draws >= MANY and self.ess < SMALLEST_ESS
        if not (is_unlike or is_small):
            return
        warnings.warn(
            f"The chains have not converged: R-hat {self.r_hat:.3f} (at most "
            f"{LARGEST_R_HAT} wanted), effective sample size {self.ess:.0f} (at "
            f"least {SMALLEST_ESS:.0f}), worst for {self.worst}. {remedy}",
            RuntimeWarning,
            stacklevel=check.user_level(),
        )


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

    def report(self, draws: Array) -> dict[str, float | bool]:
        """Attributes of a result; warns if the draws are too few."""
        size = effective_size(draws)
        if not size >= self.wanted:
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
                stacklevel=check.user_level(),
            )
        return {"ess_reached": size, "is_target_ess_reached": size >= self.wanted}
