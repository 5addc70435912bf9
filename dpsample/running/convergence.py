"""Verdict on the draws of several chains: have they converged, and how many it takes.

Split R-hat of many short chains says little but that they are short: halves of a few
draws are autocorrelated, whatever the chains have forgotten. Such chains are judged by
nested R-hat (Margossian et al., 2024): chains that share a start, a superchain, are
compared with those of other starts. So `superchains` says which chains `sample` begins
at one point.

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
from dpsample.core.arrays import Array, Ints
from dpsample.numerics.mixing import (
    nested_r_hats,
    normal_scores,
    sizes_of_means,
    with_squares,
)
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
# Draws per chain after a trial run of as much time that was cut, in units of its own:
# more will not be made, unless the trial run's time went by for something else.
CUT_GROWTH = 4
MANY_CHAINS = 128  # chains from which a run has superchains
NUM_SUPERCHAINS = 8
MANY_DRAWS = 100  # draws per chain below which many chains are short
MIN_SUPERCHAINS = 4  # starts that are compared, at least


def superchains(num_chains: int) -> Ints | None:
    """Return the superchain of each chain, or None if there are fewer than 128.

    It depends on the number of chains only: a shorter run is a prefix of a longer one.
    """
    if num_chains < MANY_CHAINS:
        return None
    return np.arange(num_chains) % NUM_SUPERCHAINS


def groups_of(starts: Sequence[Array]) -> Ints | None:
    """Return the superchain of each chain that the caller's starts define, or None.

    There must be `MANY_CHAINS`, four starts or more, and two chains at each.
    """
    if len(starts) < MANY_CHAINS:
        return None
    _, groups, sizes = np.unique(
        np.array(starts), axis=0, return_inverse=True, return_counts=True
    )
    if len(sizes) < MIN_SUPERCHAINS or sizes.min() < 2:
        return None
    return np.asarray(groups.reshape(-1), dtype=np.int64)


def are_many_and_short(num_chains: int, num_draws: int) -> bool:
    """Return whether chains are at least 128, of fewer than 100 draws each."""
    return num_chains >= MANY_CHAINS and num_draws < MANY_DRAWS


def largest_nested(groups: Ints) -> float:
    """Return the largest nested R-hat of superchains that forgot their starts."""
    return math.sqrt(LARGEST_R_HAT**2 + len(np.unique(groups)) / len(groups))


def drift_r_hats(series: Array) -> Array:
    """R-hat of a drift that all chains share, of each column; 1 where it may be chance.

    The means of superchains that go the same way agree, and so nested R-hat is small.
    As for it, sqrt(1 + B / W): B is the variance of the means of all first and of all
    second halves of the chains, W the variance within these.
    """
    half = series.shape[1] // 2
    if half == 0:
        return np.ones(series.shape[2])
    halves = series[:, :half], series[:, -half:]
    changes = halves[1].mean(axis=1) - halves[0].mean(axis=1)
    square = changes.mean(axis=0) ** 2
    error = changes.var(axis=0, ddof=1) / len(changes)
    largest = float(fdtri(1, len(changes) - 1, 1.0 - CHANCE)) * error
    within = np.mean([part.var(axis=(0, 1)) for part in halves], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(square > largest, np.sqrt(1.0 + 0.5 * square / within), 1.0)


def sizes_of_starts(sizes: Array, r_hats: Array, groups: Ints) -> Array:
    """Effective sizes, which are those of the starts where chains remember them.

    The means of K superchains with B / W = R^2 - 1 are worth K (W + B) / B draws.
    """
    excess = np.maximum(r_hats**2 - 1.0, 1e-300)
    with np.errstate(invalid="ignore"):
        starts = len(np.unique(groups)) * np.where(
            np.isfinite(excess), 1.0 + 1.0 / excess, 1.0
        )
        remembers = ~(r_hats <= largest_nested(groups))
    return np.where(remembers, np.fmin(sizes, starts), sizes)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run that decide which remedies make sense for it."""

    is_independent: bool = False  # draws are exact and independent
    is_automatic: bool = True  # the sampler is the choice of "auto"
    has_loss: bool = True  # the energy depends on the records
    is_bounded: bool = False  # the domain is not the whole space
    has_settled: bool = True  # the metric of the warm-up
    reaches_tails: bool = True  # what is known of the sampler's proposals

    def remedy(self, *, forgets_starts: bool = True) -> str:
        """Return what to try if draws are too few, or chains mix too slowly."""
        if self.is_independent:
            return "Draw more (num_draws, or target_ess): the draws are independent."
        steps = ["draw more (num_draws, or target_ess)"]
        if not forgets_starts:
            steps.insert(0, "discard more (num_warmup)")
        if not self.is_automatic:
            steps.append('use sampler="auto"')
        if self.has_loss:
            steps += ["standardize the features", "lower k or raise mu"]
        elif self.is_bounded:
            steps.append("scale coefficients in which the domain is much narrower")
        text = ", ".join(steps)
        unsettled = "" if self.has_settled else "The warm-up's metric has not settled. "
        text = f"{text[0].upper()}{text[1:]}; check=False turns this warning off."
        return unsettled + text

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
        """Return what to try if so many times as many draws are wanted."""
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
    worst: str  # what is worst, in words
    length: int  # of a chain
    num_draws: int  # of all chains together
    group_size: float = math.inf  # chains of a superchain, if R-hat is nested
    noise: float = math.nan  # see `numerics.mixing.nested_r_hats`

    @classmethod
    def of(
        cls, draws: Array, names: Sequence[str], groups: Ints | None = None
    ) -> Convergence:
        """Judge draws of shape (chain, draw, dim); constant coefficients are left out.

        R-hat is rank-normalized and split, the effective size that of the bulk. Many
        short chains are judged by nested R-hat of their superchains ``groups``, and by
        the means of chains.
        """
        size = {"length": draws.shape[1], "num_draws": draws.shape[0] * draws.shape[1]}
        are_many = are_many_and_short(*draws.shape[:2])
        is_nested = groups is not None and are_many
        is_short = draws.shape[1] < SHORTEST_RUN and not are_many
        moving = np.flatnonzero(is_short or np.ptp(draws, axis=(0, 1)) != 0.0)
        if is_short or not moving.size:
            return cls(r_hat=math.nan, ess=0.0, worst="none", **size)
        r_hat, ess, noise = _judge(draws[:, :, moving], groups if is_nested else None)
        if groups is not None and is_nested:
            size["group_size"] = len(groups) / len(np.unique(groups))
        least = int(np.argmin(np.where(np.isfinite(ess), ess, 0.0)))
        most = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
        at = most if r_hat[most] > LARGEST_R_HAT else least
        name = names[moving[at % moving.size]]
        return cls(
            r_hat=float(r_hat[most]),
            ess=float(ess[least]) if np.isfinite(ess[least]) else 0.0,
            worst=f"{'the square of ' * bool(at >= moving.size)}theta[{name}]",
            noise=float(noise[most]),
            **size,
        )

    @property
    def is_nested(self) -> bool:
        """Whether R-hat is nested."""
        return self.group_size < math.inf

    @property
    def largest_r_hat(self) -> float:
        """Largest R-hat of chains that have converged: 1.01, or sqrt(1.01^2 + 1 / M).

        With M chains in a superchain, 1 / M is the square of a nested R-hat, less 1, of
        chains that have forgotten their starts and have not moved since. So the means
        of starts may differ as for other R-hats: by a variance of 0.02.
        """
        return math.sqrt(LARGEST_R_HAT**2 + 1.0 / self.group_size)

    @property
    def has_converged(self) -> bool:
        """Whether R-hat is small enough and the effective size at least 400."""
        return self.r_hat <= self.largest_r_hat and self.ess >= SMALLEST_ESS

    @property
    def largest_by_chance(self) -> float:
        """R-hat of independent draws; infinite if they are too few.

        For superchains it is sqrt(1 + F noise), F of Fisher's law of their means.

        Of m parts of L draws of one normal law it is the root of (L - 1 + F) / L, F of
        Fisher's law with m - 1 and m (L - 1) degrees of freedom. Parts are halves of
        the chains, or quarters of a single one.
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
        """Return what the attributes of draws say of it."""
        return {"converged": self.has_converged, "r_hat": self.r_hat, "ess": self.ess}

    def warn(self, remedy: str) -> None:
        """Say what has not converged.

        A short run is only blamed for what independent draws would not show, such as
        chains that never move, whose R-hat may be NaN.
        """
        limit = max(self.largest_r_hat, self.largest_by_chance)
        is_unlike = limit < math.inf and not self.r_hat <= limit
        is_small = self.num_draws >= MANY and self.ess < SMALLEST_ESS
        if not (is_unlike or is_small):
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
    """Smallest effective sample size of the coefficients and of their spreads.

    Of draws of shape (chain, draw, dim) after the warm-up: the minimum over
    coefficients of the bulk ESS of theta and of (theta - mean)^2, for all chains
    together; 0 if a coefficient never moved or the chains are too short.
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

    R-hats are nested if there are ``groups``; otherwise they have no noise, and are NaN
    for fewer than 4 draws in each of many chains.
    """
    if groups is None and not are_many_and_short(*draws.shape[:2]):
        r_hat, ess = (both.ravel() for both in verdicts(draws))
        return r_hat, ess, np.full(ess.shape, math.nan)
    scores = normal_scores(with_squares(draws))
    if groups is not None:
        r_hat, noise = nested_r_hats(scores, groups)
        drift = drift_r_hats(scores)
        r_hat = np.where(drift > largest_nested(groups), np.fmax(r_hat, drift), r_hat)
        return r_hat, sizes_of_starts(sizes_of_means(scores), r_hat, groups), noise
    unknown = np.full(scores.shape[2], math.nan)
    is_short = draws.shape[1] < SHORTEST_RUN
    r_hat = unknown if is_short else verdicts(draws)[0].ravel()
    return r_hat, sizes_of_means(scores), unknown


class TrialRun:
    """Rule that says how many draws per chain a trial run needs, given those there are.

    ``wanted`` is the effective sample size of the run that will be returned.
    """

    def __init__(self, wanted: float, first: int) -> None:
        self.wanted, self.found, self.count = wanted, 0.0, first
        self.first, self.longest, self.is_cut = first, MAX_GROWTH * first, False

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

    def cut(self, draws: Array) -> None:
        """End the trial run, whose time is over, with the draws that it has."""
        made = draws.shape[1]
        if made:
            self(draws)
        self.is_cut = self.found < min(self.wanted, ENOUGH)
        if self.is_cut:  # a size of few draws tells little: keep memory and time free
            least = self.first if made == 0 or self.found > 0.0 else made
            self.longest = min(self.longest, max(CUT_GROWTH * made, least))

    @property
    def length(self) -> int:
        """Draws per chain of the run that is returned, at most the longest."""
        if self.found == 0.0:
            return self.longest
        needed = RESERVE * self.wanted / self.found * self.count
        return int(min(self.longest, max(SHORTEST_RUN, math.ceil(needed))))

    def report(
        self, draws: Array, facts: RunFacts = USUAL, *, is_told: bool = False
    ) -> dict[str, float | bool]:
        """Attributes of a result; warns if draws are too few, unless that is told."""
        size = effective_size(draws)
        if not (size >= self.wanted or is_told):
            warnings.warn(
                f"The effective sample size is {size:.4g} after {draws.shape[1]} draws "
                f"per chain, not {self.wanted:g}: {self._cause(draws.shape[1], facts)}",
                RuntimeWarning,
                stacklevel=check.user_stack_level(),
            )
        return {"ess_reached": size, "is_target_ess_reached": size >= self.wanted}

    def _cause(self, num_draws: int, facts: RunFacts) -> str:
        """Return why so many draws per chain were too few, and the remedy."""
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
