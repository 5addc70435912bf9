"""Verdict on the draws of several chains: have they converged, and what if not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsample.core.arrays import Array
from dpsample.numerics.ranked import verdicts

# From Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021), section 4.
LARGEST_R_HAT, SMALLEST_ESS = 1.01, 400.0
# Independent draws, n in each chain, show an R-hat of up to 1 + CHANCE / n.
CHANCE = 5.0
# Draws of all chains from which one may expect an effective size of 400.
MANY = 1000


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
        moving = np.flatnonzero(is_short or np.ptp(draws, axis=(0, 1)) > 0.0)
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

    def attributes(self) -> dict[str, float | bool]:
        """Return what the attributes of draws say of it."""
        return {"converged": self.has_converged, "r_hat": self.r_hat, "ess": self.ess}

    def warn(self, remedy: str, stacklevel: int) -> None:
        """Say what has not converged.

        A short run is only blamed for what independent draws would not show.
        """
        limit = max(LARGEST_R_HAT, 1.0 + CHANCE / self.length)
        is_small = self.num_draws >= MANY and self.ess < SMALLEST_ESS
        if self.num_draws < 4 or not (self.r_hat > limit or is_small):
            return
        warnings.warn(
            f"The chains have not converged: R-hat {self.r_hat:.3f} (at most "
            f"{LARGEST_R_HAT} wanted), effective sample size {self.ess:.0f} (at "
            f"least {SMALLEST_ESS:.0f}), worst for {self.worst}. {remedy}",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )
