"""Whether the draws of several chains have converged, and how many draws it takes.

Split R-hat of many short chains mainly shows that they are short, because halves of a
few draws are autocorrelated, even if the chains have forgotten their starts. Such
chains are judged by nested R-hat (Margossian et al., 2024). Chains that share a start,
a *superchain*, are compared with superchains of other starts. `superchains` says which
chains `sample` begins at one point.

A rule that stops a run by its own draws favors runs that seem to mix well. So a *trial
run*, with starts and streams of its own, goes on in rounds until its autocorrelation is
known, and then fixes the number of draws of the run that is returned. Threads, chunks
and checkpoints cannot change this number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtri

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.numerics.r_hat_and_ess import (
    nested_r_hats,
    normal_scores,
    sizes_of_means,
    verdicts,
    with_squares,
)

# Limits of Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021), section 4.
LARGEST_R_HAT = 1.01
SMALLEST_ESS = 400.0
# Probability with which the R-hat of independent draws is larger than allowed.
CHANCE = 5e-7
# Maximum length of a run, in units of the first round of the trial run.
MAX_GROWTH = 1000
# A run has as many times more draws than its trial run suggests.
RESERVE = 1.25
SHORTEST_RUN = 4  # draws per chain, below which a run is not judged
# Effective size with which a trial run estimates its autocorrelation to some 10 %.
ENOUGH = 400.0
# If the time limit has ended the trial run, the run gets this number of times its
# draws at most. In the same time more are not made, unless the trial run was slow for
# another reason.
CUT_GROWTH = 4
MANY_CHAINS = 128  # number of chains from which a run has superchains


def superchains(num_chains: int) -> Ints | None:
    """Return the superchain of each chain, or None if there are fewer than 128.

    It depends on the number of chains only, so a shorter run is a prefix of a longer
    one. There are 8 superchains.
    """
    if num_chains < MANY_CHAINS:
        return None
    return np.arange(num_chains) % 8


def groups_of(starts: Sequence[Array]) -> Ints | None:
    """Return the superchain of each chain that the caller's starts define, or None.

    There must be `MANY_CHAINS`, four starts or more, and two chains at each.
    """
    if len(starts) < MANY_CHAINS:
        return None
    _, groups, sizes = np.unique(
        np.array(starts), axis=0, return_inverse=True, return_counts=True
    )
    # The nested R-hat compares the means of at least four starts.
    if len(sizes) < 4 or sizes.min() < 2:
        return None
    return np.asarray(groups.reshape(-1), dtype=np.int64)


def are_many_and_short(num_chains: int, num_draws: int) -> bool:
    """Return whether chains are at least 128, of fewer than 100 draws each."""
    # Draws per chain, below which many chains are short.
    return num_chains >= MANY_CHAINS and num_draws < 100


def largest_nested(groups: Ints) -> float:
    """Return the largest nested R-hat of superchains that forgot their starts."""
    return math.sqrt(LARGEST_R_HAT**2 + len(np.unique(groups)) / len(groups))


def drift_r_hats(series: Array) -> Array:
    """Return an R-hat of each column for a drift that all chains share.

    The means of superchains that drift in the same way agree, so nested R-hat does not
    show it. This R-hat is sqrt(1 + B / W), where B is the variance of the means of all
    first and of all second halves of the chains, and W the variance within these. It is
    1 if the drift may be chance.
    """
    # One draw of a chain shows no drift.
    half = series.shape[1] // 2
    if half == 0:
        return np.ones(series.shape[2])
    halves = series[:, :half], series[:, -half:]
    changes = halves[1].mean(axis=1) - halves[0].mean(axis=1)
    square = changes.mean(axis=0) ** 2
    error = changes.var(axis=0, ddof=1) / len(changes)  # variance of their mean
    # The squared t statistic of the mean change has an F distribution. Smaller changes
    # may be chance.
    largest = float(fdtri(1, len(changes) - 1, 1.0 - CHANCE)) * error
    within = np.mean([part.var(axis=(0, 1)) for part in halves], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(square > largest, np.sqrt(1.0 + 0.5 * square / within), 1.0)


def sizes_of_starts(sizes: Array, r_hats: Array, groups: Ints) -> Array:
    """Return effective sizes, or sizes of the starts if chains depend on them.

    The means of K superchains with B / W = R^2 - 1 are worth K (W + B) / B draws.
    """
    excess = np.maximum(r_hats**2 - 1.0, 1e-300)  # B / W
    with np.errstate(invalid="ignore"):
        starts = len(np.unique(groups)) * np.where(
            np.isfinite(excess), 1.0 + 1.0 / excess, 1.0
        )
        depends_on_starts = ~(r_hats <= largest_nested(groups))
    return np.where(depends_on_starts, np.fmin(sizes, starts), sizes)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run that decide which remedies make sense for it."""

    is_independent: bool = False  # draws are exact and independent
    is_automatic: bool = True  # the sampler is the choice of "auto"
    has_loss: bool = True  # the energy depends on the records
    is_own: bool = False  # the energy is a function of the user
    num_modes: int = 0  # number of modes that chains start at; 0 for one alone
    is_bounded: bool = False  # the domain is not the whole space
    has_settled: bool = True  # the warm-up found its metric
    reaches_tails: bool = True  # the sampler's proposals do, as far as it is known

    def warn_of_divergences(self, count: int, num_draws: int) -> None:
        """Warn if too many trajectories of a density of the user diverged."""
        # A few may happen anywhere.
        if not self.is_own or count <= 1e-2 * num_draws:
            return
        warnings.warn(
            f"{count} trajectories of {num_draws} draws diverged: somewhere the energy "
            "is much steeper than where the step was tuned, as in the neck of a "
            "funnel. Chains may agree and not reach it. Use other parameters, in "
            "which widths differ less, or ChordSlice(); check=False turns this "
            "warning off.",
            RuntimeWarning,
            stacklevel=check.user_stack_level(),
        )

    def remedy(self, *, forgets_starts: bool = True) -> str:
        """Return a remedy for too few draws, or chains that mix too slowly."""
        if self.is_independent:
            return "Draw more (num_draws, or target_ess): the draws are independent."
        steps = ["draw more (num_draws, or target_ess)"]
        if not forgets_starts:
            steps.insert(0, "discard more (num_warmup)")
        if not self.is_automatic:
            steps.append('use sampler="auto"')
        if self.is_own:
            steps += ["scale coefficients to similar widths", "lower k or raise mu"]
        elif self.has_loss:
            steps += ["standardize the features", "lower k or raise mu"]
        elif self.is_bounded:
            steps.append("scale coefficients in which the domain is much narrower")
        text = ", ".join(steps)
        unsettled = "" if self.has_settled else "The warm-up's metric has not settled. "
        text = f"{text[0].upper()}{text[1:]}; check=False turns this warning off."
        modes = ""
        if self.num_modes > 1:
            modes = f"Chains start at {self.num_modes} modes, and may stay there. "
        return unsettled + modes + text

    def warn_of_tails(self, sampler: str) -> None:
        """Warn if the proposals of a sampler do not reach the tails of the target."""
        if self.reaches_tails:
            return
        warnings.warn(
            f"{sampler} hardly proposes the tails of this target: far out, the energy "
            "rises less than its Gaussian's. The draws may agree with one another and "
            'have too small a variance. Use sampler="auto" or BilliardHMC(); '
            "check=False turns this warning off.",
            RuntimeWarning,
            stacklevel=check.user_stack_level(),
        )

    def more_draws(self, growth: int) -> str:
        """Return a remedy if ``growth`` times as many draws are needed."""
        advice = f"About {growth} times as many draws (target_ess=... finds the number)"
        if self.is_independent:
            return f"{advice}."
        return f"{advice}, or a sampler that moves farther: num_steps=..., or another."


USUAL = RunFacts()


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Largest R-hat and smallest effective size, over theta and (theta - mean)^2."""

    r_hat: float
    ess: float  # bulk, of all chains together
    worst: str  # the coefficient that is worst, as text
    length: int  # draws per chain
    num_draws: int  # draws of all chains together
    group_size: float = math.inf  # chains of a superchain, if R-hat is nested
    noise: float = math.nan  # noise of a nested R-hat, see `nested_r_hats`

    @classmethod
    def judge(
        cls, draws: Array, names: Sequence[str], groups: Ints | None = None
    ) -> Convergence:
        """Judge draws (chain, draw, dim), without coefficients that are constant.

        R-hat is rank-normalized and split, and the effective size is the bulk's. Many
        short chains are judged by nested R-hat of their superchains ``groups``, and by
        the means of chains.
        """
        size = {"length": draws.shape[1], "num_draws": draws.shape[0] * draws.shape[1]}
        are_many = are_many_and_short(*draws.shape[:2])
        is_nested = groups is not None and are_many
        is_short = draws.shape[1] < SHORTEST_RUN and not are_many
        varying = np.flatnonzero(is_short or np.ptp(draws, axis=(0, 1)) != 0.0)
        if is_short or not varying.size:
            return cls(r_hat=math.nan, ess=0.0, worst="none", **size)
        r_hat, ess, noise = _judge(draws[:, :, varying], groups if is_nested else None)
        if groups is not None and is_nested:
            size["group_size"] = len(groups) / len(np.unique(groups))
        smallest = int(np.argmin(np.where(np.isfinite(ess), ess, 0.0)))
        largest = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
        at = largest if r_hat[largest] > LARGEST_R_HAT else smallest
        # Columns are the coefficients, and then their squares.
        name = names[varying[at % varying.size]]
        return cls(
            r_hat=float(r_hat[largest]),
            ess=float(ess[smallest]) if np.isfinite(ess[smallest]) else 0.0,
            worst=f"{'the square of ' * bool(at >= varying.size)}theta[{name}]",
            noise=float(noise[largest]),
            **size,
        )

    @property
    def is_nested(self) -> bool:
        """Whether R-hat is nested."""
        return self.group_size < math.inf

    @property
    def largest_r_hat(self) -> float:
        """Largest R-hat of chains that have converged.

        It is 1.01, or sqrt(1.01^2 + 1 / M) with M chains in a superchain. Chains that
        have forgotten their starts and have not moved since have the nested R-hat
        sqrt(1 + 1 / M). So the means of starts may differ as for other R-hats, by a
        variance of 0.02.
        """
        return math.sqrt(LARGEST_R_HAT**2 + 1.0 / self.group_size)

    @property
    def has_converged(self) -> bool:
        """Whether R-hat is small enough and the effective size at least 400."""
        return self.r_hat <= self.largest_r_hat and self.ess >= SMALLEST_ESS

    @property
    def largest_by_chance(self) -> float:
        """Largest R-hat of independent draws, infinite if they are too few.

        For m parts of L draws of one normal distribution it is the root of
        (L - 1 + F) / L, where F is a quantile of Fisher's distribution with m - 1 and
        m (L - 1) degrees of freedom. Parts are halves of the chains, or quarters of a
        single chain. For superchains it is sqrt(1 + F noise).
        """
        num_chains = self.num_draws // self.length
        if self.is_nested:
            num_groups = round(num_chains / self.group_size)
            freedom = num_groups - 1, num_chains - num_groups
            noise = self.noise if self.noise > 0.0 else 0.0
            return math.sqrt(1.0 + float(fdtri(*freedom, 1.0 - CHANCE)) * noise)
        parts = 2 * num_chains if num_chains > 1 else 4
        size = self.num_draws // parts
        if size < 2:
            return math.inf
        ratio = float(fdtri(parts - 1, parts * (size - 1), 1.0 - CHANCE))
        return math.sqrt((size - 1.0 + ratio) / size)

    def attributes(self) -> dict[str, float | bool]:
        """Return numbers for the attributes of draws."""
        return {"converged": self.has_converged, "r_hat": self.r_hat, "ess": self.ess}

    def warn(self, remedy: str) -> None:
        """Warn if the chains have not converged.

        For a short run the limit is the R-hat of independent draws. Chains that never
        move are above it, with an R-hat that may be NaN.
        """
        limit = max(self.largest_r_hat, self.largest_by_chance)
        has_large_r_hat = limit < math.inf and not self.r_hat <= limit
        # With 1000 draws an effective size of 400 may be expected.
        is_small = self.num_draws >= 1000 and self.ess < SMALLEST_ESS
        if not (has_large_r_hat or is_small):
            return
        warnings.warn(
            f"The chains have not converged: {'nested ' * self.is_nested}R-hat "
            f"{self.r_hat:.3f} (at most {self.largest_r_hat:.4g} wanted), effective "
            f"sample size {self.ess:.0f} (at least {SMALLEST_ESS:.0f}), worst for "
            f"{self.worst}. {remedy}",
            RuntimeWarning,
            stacklevel=check.user_stack_level(),
        )


def effective_size(draws: Array) -> float:
    """Return the smallest effective sample size of coefficients and their squares.

    It is the minimum over coefficients of the bulk ESS of theta and (theta - mean)^2,
    for all chains together, and draws (chain, draw, dim) after the warm-up. It is 0 if
    a coefficient never moved or the chains are too short.
    """
    are_many = are_many_and_short(*draws.shape[:2])
    is_short = draws.shape[1] < SHORTEST_RUN and not are_many
    if draws.size == 0 or is_short or not np.ptp(draws, axis=(0, 1)).all():
        return 0.0
    if are_many:
        sizes = sizes_of_means(normal_scores(with_squares(draws)))
    else:
        sizes = verdicts(draws)[1]
    smallest = float(np.min(sizes))
    return smallest if smallest > 0.0 else 0.0


def _judge(draws: Array, groups: Ints | None) -> tuple[Array, Array, Array]:
    """Return R-hats, effective sizes and noise of coefficients, then of squares.

    With ``groups`` R-hats are nested. Otherwise they have no noise, and are NaN for
    fewer than 4 draws in each of many chains.
    """
    if groups is None and not are_many_and_short(*draws.shape[:2]):
        r_hat, ess = (values.ravel() for values in verdicts(draws))
        return r_hat, ess, np.full(ess.shape, math.nan)
    scores = normal_scores(with_squares(draws))
    if groups is not None:
        r_hat, noise = nested_r_hats(scores, groups)
        # A drift counts only if it is larger than R-hat may be.
        drift = drift_r_hats(scores)
        r_hat = np.where(drift > largest_nested(groups), np.fmax(r_hat, drift), r_hat)
        return r_hat, sizes_of_starts(sizes_of_means(scores), r_hat, groups), noise
    unknown = np.full(scores.shape[2], math.nan)
    is_short = draws.shape[1] < SHORTEST_RUN
    r_hat = unknown if is_short else verdicts(draws)[0].ravel()
    return r_hat, sizes_of_means(scores), unknown


class TrialRun:
    """Number of draws per chain of a trial run, and of the run that is returned.

    ``target_size`` is the effective sample size of the run that will be returned,
    ``first`` the number of draws of the first round.
    """

    def __init__(self, target_size: float, first: int) -> None:
        self.target_size, self.size, self.count = target_size, 0.0, first
        self.first, self.longest, self.is_cut = first, MAX_GROWTH * first, False

    def __call__(self, draws: Array) -> int:
        """Return the number of draws per chain after the next round.

        If it is not larger than the present number, the trial run is over.
        """
        self.count = int(draws.shape[1])
        self.size = effective_size(draws)
        enough = min(self.target_size, ENOUGH)
        if self.size >= enough:
            return self.count
        # A round makes the run 1.2 to 3 times as long.
        growth = 3.0
        if self.size > 0.0:
            growth = min(max(RESERVE * enough / self.size, 1.2), growth)
        return min(self.longest, math.ceil(self.count * growth))

    def cut(self, draws: Array) -> None:
        """End the trial run at the time limit, with its present draws."""
        num_draws = draws.shape[1]
        if num_draws:
            self(draws)
        self.is_cut = self.size < min(self.target_size, ENOUGH)
        # An effective size of few draws is inaccurate, so the run is limited, too.
        if self.is_cut:
            is_unknown = num_draws == 0 or self.size > 0.0
            shortest = self.first if is_unknown else num_draws
            self.longest = min(self.longest, max(CUT_GROWTH * num_draws, shortest))

    @property
    def length(self) -> int:
        """Draws per chain of the run that is returned, at most the longest."""
        if self.size == 0.0:
            return self.longest
        needed = RESERVE * self.target_size / self.size * self.count
        return int(min(self.longest, max(SHORTEST_RUN, math.ceil(needed))))

    def report(
        self, draws: Array, facts: RunFacts = USUAL, *, has_warned: bool = False
    ) -> dict[str, float | bool]:
        """Return attributes of a result. Warn of few draws, unless ``has_warned``."""
        size = effective_size(draws)
        if not (size >= self.target_size or has_warned):
            warnings.warn(
                f"The effective sample size is {size:.4g} after {draws.shape[1]} draws "
                f"per chain, not {self.target_size:g}: "
                f"{self._cause(draws.shape[1], facts)}",
                RuntimeWarning,
                stacklevel=check.user_stack_level(),
            )
        return {"ess_reached": size, "is_target_ess_reached": size >= self.target_size}

    def _cause(self, num_draws: int, facts: RunFacts) -> str:
        """Return why the draws per chain were too few, and the remedy."""
        larger = "Use a larger num_draws"
        if self.is_cut:
            return f"max_seconds ended the trial run early. {larger} or max_seconds."
        if num_draws == self.longest:
            limit = f"{larger}, whose {MAX_GROWTH}-fold is the limit."
            if facts.is_independent:
                return f"there are too few of these independent draws. {limit}"
            return f"the chains mix too slowly. Use another sampler, or: {limit}"
        trial = f"{larger}, of which the trial run is made"
        if facts.is_independent:
            return f"the trial run was too short to tell. {trial}."
        return f"the trial run mixed better. {trial}, or look for rare modes."
