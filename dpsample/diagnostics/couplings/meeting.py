"""Meeting times of coupled chains, and bounds of total variation that follow from them.

Chains X and Y of one kernel and one initial distribution, X ahead by L steps, are moved
jointly. Every replicate of two chains has a stream of its own. With
tau = inf {t : X_t = Y_{t-L}},

    TV(X_t, X_{t+KL}) <= sum_{j<=K} P(tau > t + jL),
    TV(X_t, pi) <= E max(0, ceil((tau - L - t) / L)),

with j from 1 to any K, and the target pi. The second holds if tau has a geometric tail
(arXiv:1905.09971, Theorem 2.5). The number in the expectation is called the *count* of
a pair: the number of j >= 1 with tau > t + jL. A bound is shown with its upper
confidence limit, and with a reminder that it does not prove privacy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check, pauses
from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.pauses import ChunkSize
from dpsample.core.streams import Seed, streams
from dpsample.diagnostics.couplings.coupled_steps import (
    Pair,
    ProximalPair,
    coupled_chain,
)
from dpsample.running.progress import with_line
from dpsample.samplers.chain import NUM_STATS, Prepared, PreparedChain
from dpsample.samplers.proximal.proximal import PreparedProximal
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs

_REMEDY = (
    "Use RandomWalk(p=2), MALA, PreconditionedCrankNicolson, LaplaceIndependence, "
    "TiltedGibbs or Proximal."
)

# A sampler, or the result of its `prepare`.
SamplerLike = Sampler | Prepared
ALL_MEET = "large enough for all pairs to meet"
LABEL = "statistical, for this data set, not a privacy proof"
Result = TypeVar("Result")
# Called with the time of the first row, draws of the chain ahead, and of the other.
OnRows = Callable[[int, Array, Array], None]


def prepare_pair(
    sampler: SamplerLike, target: Gibbs, rng: np.random.Generator
) -> tuple[PreparedChain | PreparedProximal, Pair | ProximalPair, str]:
    """Return the prepared chain, its coupled kernel, and a text for the sampler.

    The text is the ``repr`` of a sampler. A prepared chain has only its sampler's name.
    """
    prepared = sampler
    if isinstance(sampler, Sampler):
        prepared = sampler.prepare(target, rng)
    if not isinstance(prepared, PreparedChain | PreparedProximal):
        condition = "a sampler or what its prepare returned"
        check.fail("sampler", condition, check.describe(sampler), _REMEDY)
    if prepared.target is not target:
        check.fail("sampler", "prepared for the target", "another target")
    coupling = coupled_chain(prepared)
    if coupling is None:
        check.fail("sampler", "one that has a coupling", sampler, _REMEDY)
    name, pair = coupling
    return prepared, pair, repr(sampler) if prepared is not sampler else name


@dataclass(frozen=True, kw_only=True, eq=False)
class Coupled:
    """Two chains of one kernel and one initial distribution, the first ahead."""

    prepared: PreparedChain | PreparedProximal
    pair: Pair | ProximalPair
    sampler: str  # text for the sampler
    lag: int
    max_steps: int
    init: Array | None  # (dim,): start of both chains

    def start(self, rng: np.random.Generator) -> Array:
        """Draw from the initial distribution."""
        if self.init is not None:
            return self.init.copy()
        return np.asarray(self.prepared.draw_start(rng))

    def continue_first(
        self, position: Array, rng: np.random.Generator, count: int
    ) -> Array:
        """Return ``count`` draws (count, dim) of one chain that is at a position."""
        draws = np.empty((count, position.size))
        state = self.prepared.init(position)
        self.prepared.runner()(state, rng, draws, np.empty((count, NUM_STATS)))
        return draws

    def meet(
        self, rng: np.random.Generator, on_rows: OnRows | None = None
    ) -> tuple[int, bool, Array]:
        """Run until the chains meet, or the first one has made ``max_steps`` steps.

        Return the number of steps of the first chain, whether they met, and the
        position (dim,) of the first chain.
        """
        starts = self.start(rng), self.start(rng)
        lead = self.continue_first(starts[0], rng, self.lag)
        first, second = self.pair.init(lead[-1]), self.pair.init(starts[1])
        if on_rows is not None:
            # Rows of the chain ahead are at the times 0 to lag. Before the lag it is
            # alone, so the other one has no rows (``ahead[:0]`` is empty). At the lag
            # the other one starts.
            ahead = np.vstack([starts[0], lead])
            on_rows(0, ahead[:-1], ahead[:0])
            on_rows(self.lag, ahead[-1:], starts[1][None])
        time = self.lag
        has_met = bool(np.array_equal(first.position, second.position))
        # Rows of both chains are collected in blocks of up to 64, for few calls of
        # ``on_rows``. A block is made in parts, so that Ctrl-C takes effect in between.
        draws, others = np.empty((2, 64, len(lead[0])))
        size = ChunkSize()
        while not has_met and time < self.max_steps:
            num_rows, count = min(len(draws), self.max_steps - time), 0
            while count < num_rows and not has_met:
                pauses.notify_listeners()
                part = slice(count, min(count + size.size, num_rows))
                begin = perf_counter()
                num_filled, has_met = self.pair.advance(
                    first, second, rng, draws[part], others[part]
                )
                size.update(perf_counter() - begin)
                count += num_filled
            if on_rows is not None:
                on_rows(time + 1, draws[:count], others[:count])
            time += count
        return time, has_met, first.position


@pauses.single_threaded_blas()
def build(
    sampler: SamplerLike,
    target: Gibbs,
    root: np.random.Generator,
    *,
    lag: int,
    max_steps: int,
    init: ArrayLike | None,
) -> Coupled:
    """Check the arguments that all estimates share, and prepare the chains."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.integer(1, lag=lag)
    check.integer(lag + 1, max_steps=max_steps, remedy="It has to exceed the lag.")
    start = None
    if init is not None:
        start = check.array("init", init, shape=(target.dim,))
        if not target.domain.contains(start):
            check.fail("init", "inside the domain", start, "Use domain.project(init).")
    prepared, pair, text = prepare_pair(sampler, target, root)
    return Coupled(
        prepared=prepared,
        pair=pair,
        sampler=text,
        lag=lag,
        max_steps=max_steps,
        init=start,
    )


def check_counts(replicates: int, threads: int | None) -> None:
    """Raise a ValueError for malformed numbers, before any work is done."""
    check.integer(2, replicates=replicates)
    if threads is not None:
        check.integer(1, threads=threads)


def run_all(
    task: Callable[[np.random.Generator], Result],
    streams: list[np.random.Generator],
    threads: int | None,
) -> list[Result]:
    """Return the results of a task for every stream, in order."""
    # `laws` calls this function without `check_counts`.
    if threads is not None:
        check.integer(1, threads=threads)
    with pauses.single_threaded_blas():
        return pauses.run_in_threads(task, ((rng,) for rng in streams), threads)


@dataclass(frozen=True, kw_only=True, eq=False)
class TotalVariationCurve:
    """Estimated bounds of total variation after given numbers of steps.

    Attributes
    ----------
    steps : array of int
        Numbers of steps t.
    estimate : array
        Mean bound. Where ``is_extrapolated``, it is from a fitted geometric tail.
    upper : array
        Upper confidence limit, at most 1.
    horizon : array of int
        Number of steps t + KL that stands for infinity. ``upper`` limits the distance
        to the distribution after so many steps.
    is_extrapolated : array of bool
        Whether the bound is too small to be seen in the replicates.
    confidence : float
        Level of the limit at each t.
    replicates : int
        Number of independent pairs of chains.
    """

    steps: Ints
    estimate: Array
    upper: Array
    horizon: Ints
    is_extrapolated: Bools
    confidence: float
    replicates: int

    def __repr__(self) -> str:
        """Return one line per step, with the limit next to the estimate."""
        lines = [
            f"total variation to the target ({LABEL}; {self.replicates} replicates)",
            f"{'steps':>8}  {'estimate':>10}  upper limit ({self.confidence:g})",
        ]
        rows = zip(
            self.steps, self.estimate, self.upper, self.is_extrapolated, strict=True
        )
        for step, estimate, upper, is_extrapolated in rows:
            note = "  extrapolated" if is_extrapolated else ""
            lines.append(f"{step:>8}  {estimate:>10.3g}  {upper:.3g}{note}")
        return "\n".join(lines)


def divergence(q: Array, p: Array) -> Array:
    """Return the Kullback-Leibler divergence of coins with probabilities q and p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(q > 0.0, q * np.log(q / p), 0.0)
        tails = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.asarray(heads + tails)


def upper_limit(means: Array, count: int, error: Array) -> Array:
    """Return an upper limit of the expectation of independent variables in [0, 1].

    It is the largest p with count KL(mean || p) <= log 1 / error. By the inequality of
    Chernoff and Hoeffding it is too low with probability at most ``error``, whatever
    the distribution. ``means`` and ``error`` have one entry for each limit.
    """
    # The divergence increases in p above the mean, so bisection finds the limit, to
    # more bits than a double has.
    max_divergence = -np.log(error) / count
    low, high = np.array(means, dtype=np.float64), np.ones_like(means)
    for _ in range(60):
        middle = 0.5 * (low + high)
        # At p = 1 the divergence is infinite, or NaN for a mean of 1.
        fits = divergence(means, np.minimum(middle, 1.0 - 1e-16)) <= max_divergence
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return high


def geometric_tail(times: Ints, lag: int, steps: Array) -> Array:
    """Return E max(0, ceil((tau - lag - t) / lag)) for a geometric tail of tau.

    The tail is fitted to the excesses over the median, so this is an extrapolation. It
    is P(tau > median + s) = share ratio^s, where 1 - ratio is 1 over the mean excess.
    """
    median = np.median(times)
    excesses = times[times > median] - median
    mean = float(excesses.mean()) if excesses.size else 1.0
    # Ratio and share stay positive, because a sample of this size cannot show a zero.
    ratio = max(1.0 - 1.0 / max(mean, 1.0), 1.0 / times.size)
    share = max(excesses.size, 1) / times.size
    ahead = np.maximum(steps + lag - median, 0.0)
    # The sum of the probabilities at s = ahead, ahead + lag, ahead + 2 lag, ...
    return np.asarray(share * ratio**ahead / (1.0 - ratio**lag))


@dataclass(frozen=True, kw_only=True, eq=False)
class MeetingTimes:
    """Meeting times of independent pairs of coupled chains.

    Attributes
    ----------
    times : array of int
        Steps of the chain ahead when the pair met, or ``max_steps``.
    is_censored : array of bool
        Whether the pair did not meet.
    lag : int
        Steps by which one chain is ahead.
    max_steps : int
        Cap of the times.
    num_steps : int
        Kernel steps in one step of the chain, that is, per draw. All times above are in
        steps of the chain.
    sampler : str
        The sampler.
    """

    times: Ints
    is_censored: Bools
    lag: int
    max_steps: int
    num_steps: int
    sampler: str

    def tv_bound(self, t: int) -> float:
        """Return the mean bound of the total variation after t steps.

        Parameters
        ----------
        t : int
            Number of steps, at least 0.

        Returns
        -------
        float
            Mean of max(0, ceil((tau - lag - t) / lag)). It is a point estimate, which
            is above 1 if the lag is short. `tv_curve` has confidence limits.
        """
        check.integer(0, t=t)
        return float(self._counts(np.array([t])).mean())

    def tv_curve(
        self, steps: ArrayLike, *, confidence: float = 0.95
    ) -> TotalVariationCurve:
        """Return bounds of total variation with upper confidence limits.

        Parameters
        ----------
        steps : array of int
            Numbers of steps t, chosen before the times were seen.
        confidence : float
            Level of the limit, at each t separately.

        Returns
        -------
        TotalVariationCurve
            Estimates, limits, and where they are extrapolated.

        Raises
        ------
        ValueError
            If a pair did not meet, or an argument is malformed.

        Notes
        -----
        **Guarantee.** With the stated probability the limit is above the total
        variation between the distributions after t and after ``horizon`` steps,
        whatever the distribution of tau. It is the limit of Chernoff and Hoeffding
        for the mean of min(count, K). K is a power of two above every count that was
        seen, so all pairs met a lag before the horizon t + KL. That the distribution
        is the target's there rests on the geometric tail alone. Statistical, for this
        data set, not a privacy proof.
        """
        # A mean of fewer counts than this, over all replicates together, is replaced by
        # that of a fitted tail.
        resolution = 3.0
        check.open_interval(0.0, 1.0, confidence=confidence)
        entries = np.atleast_1d(check.entries("steps", steps))
        numbers = check.array("steps", entries, shape=(None,))
        is_valid = (numbers >= 0.0) & (numbers <= check.MAX_EXACT_INT)
        is_valid &= numbers == np.round(numbers)
        if not is_valid.all():
            condition = f"whole numbers from 0 to {check.MAX_EXACT_INT}"
            check.fail("steps", condition, float(numbers[~is_valid][0]))
        t, count = numbers.astype(np.int64), self.times.size
        counts = self._counts(t)
        estimate = counts.mean(axis=1)
        # The limit is for variables in [0, 1], so counts are divided by K (``lags``).
        # The smallest power of two above all of them leaves every count as it is.
        doublings = np.ceil(np.log2(counts.max(axis=1) + 1.0))
        lags = 2.0**doublings
        # The draws decide which K is used. So each has a share of the error, and the
        # shares 1 / ((i + 1) (i + 2)) of all powers 2^i sum to 1.
        error = (1.0 - confidence) / ((doublings + 1.0) * (doublings + 2.0))
        limit = lags * upper_limit(estimate / lags, count, error)
        is_small = estimate < resolution / count
        tail = geometric_tail(self.times, self.lag, numbers)
        return TotalVariationCurve(
            steps=t,
            estimate=np.where(is_small, np.minimum(tail, resolution / count), estimate),
            upper=np.minimum(1.0, limit),
            horizon=t + lags.astype(np.int64) * self.lag,
            is_extrapolated=is_small,
            confidence=float(confidence),
            replicates=count,
        )

    @property
    def advised_lag(self) -> int:
        """0.9-quantile of tau - lag. With shorter lags the bound is loose."""
        return max(1, int(np.ceil(np.quantile(self.times - self.lag, 0.9))))

    def _counts(self, t: Ints) -> Ints:
        """Return the count of every pair (replicate) after t steps, (t, replicate)."""
        if self.is_censored.any():
            got = f"{self.is_censored.sum()} of {self.times.size} pairs that did not"
            remedy = (
                "Without their times the bound is infinite: increase max_steps, or use "
                "a sampler that mixes faster."
            )
            check.fail("max_steps", ALL_MEET, f"{self.max_steps}, with {got}", remedy)
        # ceil(a / b) = -(-a // b)
        counts = -((self.lag + t[:, None] - self.times) // self.lag)
        return np.asarray(np.maximum(0, counts))

    def __repr__(self) -> str:
        """Return quantiles of the times."""
        low, middle, high = np.quantile(self.times, (0.1, 0.5, 0.9)).astype(int)
        return (
            f"MeetingTimes({self.sampler}, lag={self.lag}, "
            f"{self.times.size} replicates: 10% {low}, 50% {middle}, 90% {high}, "
            f"max {self.times.max()}, {self.is_censored.sum()} censored)"
        )


@with_line
def meeting_times(
    sampler: SamplerLike,
    target: Gibbs,
    *,
    lag: int,
    replicates: int,
    seed: Seed = 0,
    max_steps: int = 10_000,
    init: ArrayLike | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> MeetingTimes:
    """Run coupled chains with a lag until they meet.

    Parameters
    ----------
    sampler : Sampler or Prepared
        RandomWalk(p=2), MALA, PreconditionedCrankNicolson, LaplaceIndependence,
        TiltedGibbs or Proximal, or the result of its ``prepare``.
    target : Gibbs
        The target.
    lag : int
        Steps by which one chain is ahead. See `MeetingTimes.advised_lag`.
    replicates : int
        Independent pairs of chains, at least 2.
    seed : int or SeedSequence, optional
        A seed gives the same times for any number of threads. None is for new entropy.
    max_steps : int
        Cap of the chain ahead, larger than the lag.
    init : array of shape (dim,), optional
        Start of both chains. By default each starts at a random point.
    threads : int, optional
        Number of threads. By default it is the number of processors.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    MeetingTimes
        Times, with bounds of total variation.

    Notes
    -----
    **Guarantee.** Either chain of a pair moves by the sampler's own kernel, and equal
    chains stay equal. The bounds are statistical, for this data set, not a
    privacy proof.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.samplers import MALA
    >>> from dpsample.diagnostics import couplings
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> times = couplings.meeting_times(MALA(), target, lag=10, replicates=100)
    >>> curve = times.tv_curve([20, 40])
    >>> bool((curve.upper > curve.estimate).all())
    True
    """
    del progress  # `with_line` shows the line
    check_counts(replicates, threads)
    pilot, *pair_streams = streams(seed, replicates + 1)
    coupled = build(sampler, target, pilot, lag=lag, max_steps=max_steps, init=init)
    pairs = run_all(lambda rng: coupled.meet(rng)[:2], pair_streams, threads)
    return MeetingTimes(
        times=np.array([time for time, _ in pairs], dtype=np.int64),
        is_censored=np.array([not has_met for _, has_met in pairs]),
        lag=lag,
        max_steps=max_steps,
        num_steps=int(getattr(coupled.prepared, "num_steps", 1)),
        sampler=coupled.sampler,
    )
