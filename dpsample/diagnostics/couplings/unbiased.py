r"""Unbiased estimates of the target's moments from coupled chains.

With chains X and Y, X ahead by L steps, and any function h,

    H_k = h(X_k) + sum_{j>=1} [h(X_{k+jL}) - h(Y_{k+(j-1)L})],    E H_k = pi(h).

The terms are 0 after the chains have met (arXiv:1708.03625). H_k is averaged over the
``num_draws`` values of k after the burn-in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints, Values
from dpsample.core.streams import Seed, streams
from dpsample.diagnostics.couplings.meeting import (
    ALL_MEET,
    Coupled,
    SamplerLike,
    build,
    check_counts,
    run_all,
)
from dpsample.running.progress import with_line
from dpsample.targets.gibbs import Gibbs

Function = Callable[[Array], ArrayLike]

# Functions that users may name.
NAMED: dict[str, Function] = {
    "theta": lambda draws: draws,
    "theta_squared": lambda draws: draws**2,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class UnbiasedMoments:
    """Means of unbiased replicates, one array per function.

    Attributes
    ----------
    names : tuple of str
        The functions.
    estimates, standard_errors : tuple of array
        Mean over the replicates, and its standard error.
    replicates : tuple of array of shape (replicates, ...)
        The independent unbiased values themselves.
    times : array of int
        Meeting times.
    """

    names: tuple[str, ...]
    estimates: tuple[Array, ...]
    standard_errors: tuple[Array, ...]
    replicates: tuple[Array, ...]
    times: Ints

    def __repr__(self) -> str:
        """Return the estimates with their standard errors."""
        count = len(self.times)
        lines = [f"unbiased moments ({count} replicates): estimate +- standard error"]
        for row in zip(self.names, self.estimates, self.standard_errors, strict=True):
            name, estimates, errors = row
            pairs = zip(np.ravel(estimates), np.ravel(errors), strict=True)
            text = ", ".join(f"{e:.4g} +- {s:.2g}" for e, s in pairs)
            lines.append(f"  {name}: {text}")
        return "\n".join(lines)


def weights(t: Ints, lag: int, first: int, last: int) -> Array:
    """Return the share of k in [first, last] with k + j lag = t for some j >= 1."""
    # k = t - j lag is in [first, last] for j from min_j to max_j.
    max_j = (t - first) // lag
    min_j = np.maximum(1, -((last - t) // lag))
    return np.asarray(np.maximum(0, max_j - min_j + 1) / (last - first + 1))


class _Sum:
    """Running value of the time-averaged H_k of one pair of chains."""

    def __init__(
        self, functions: Sequence[Function], lag: int, first: int, last: int
    ) -> None:
        self.functions, self.lag, self.first, self.last = functions, lag, first, last
        self.values: list[Values] = [np.float64(0.0) for _ in functions]

    def add(self, time: int, draws: Array, others: Array) -> None:
        """Add rows from ``time`` on. Before the lag there are no others."""
        t = time + np.arange(len(draws))
        # The term h(X_k), and then the differences with their signs.
        share = ((self.first <= t) & (t <= self.last)) / (self.last - self.first + 1)
        self._gather(share, draws)
        if len(others):
            weight = weights(t, self.lag, self.first, self.last)
            self._gather(weight, draws)
            self._gather(-weight, others)

    def _gather(self, weight: Array, draws: Array) -> None:
        """Add the weighted sum of each function over some draws."""
        is_used = weight != 0.0
        if not is_used.any():
            return
        for i, function in enumerate(self.functions):
            values = np.asarray(function(draws[is_used]), dtype=np.float64)
            self.values[i] = self.values[i] + np.tensordot(weight[is_used], values, 1)


def _replicate(
    coupled: Coupled, total: _Sum, rng: np.random.Generator
) -> tuple[int, bool, list[Values]]:
    """Return the meeting time, whether chains met, and each function's mean H_k."""
    time, has_met, position = coupled.meet(rng, total.add)
    # After the meeting one chain goes on alone, as long as k has values left.
    if has_met and time < total.last:
        draws = coupled.continue_first(position, rng, total.last - time)
        total.add(time + 1, draws, draws[:0])
    return time, has_met, total.values


@with_line
def unbiased_moments(
    sampler: SamplerLike,
    target: Gibbs,
    *,
    moments: Sequence[str | Function] = ("theta", "theta_squared"),
    lag: int,
    burn_in: int,
    num_draws: int = 1,
    replicates: int,
    seed: Seed = 0,
    max_steps: int = 10_000,
    init: ArrayLike | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> UnbiasedMoments:
    """Estimate moments of the target without the bias of a finite burn-in.

    Parameters
    ----------
    sampler, target, lag, replicates, seed, max_steps, init, threads, progress
        As in `meeting_times`.
    moments : sequence of {"theta", "theta_squared"} or callable
        Functions. A callable maps draws of shape (count, dim) to an array whose first
        axis is ``count``.
    burn_in : int
        The first k, at least 0. If it is not of the order of a high quantile of the
        meeting times, the variance is large.
    num_draws : int
        Number of k that are averaged.

    Returns
    -------
    UnbiasedMoments
        Estimates with standard errors.

    Raises
    ------
    ValueError
        If a pair does not meet within ``max_steps``, or an argument is malformed.

    Notes
    -----
    **Guarantee.** Each replicate has the target's moment as its expectation, exactly,
    for every burn-in, lag and initial distribution. A standard error needs finite
    variance, that is, light tails of the meeting time.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.samplers import MALA
    >>> from dpsample.diagnostics import couplings
    >>> problem = dps.Problem([[1.0], [0.5]], [0.0, 0.0], loss=dps.losses.Linear(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0,
    ...                       response_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)  # standard normal
    >>> found = couplings.unbiased_moments(MALA(), target, lag=5, burn_in=10,
    ...                                    num_draws=40, replicates=200)
    >>> bool(abs(found.estimates[1][0] - 1.0) < 6.0 * found.standard_errors[1][0])
    True
    """
    del progress  # `with_line` shows the line
    check.integer(0, burn_in=burn_in)
    check.integer(1, num_draws=num_draws)
    if isinstance(moments, str) or not isinstance(moments, Sequence) or not moments:
        check.fail(
            "moments", "a sequence of words and functions", check.describe(moments)
        )
    for moment in moments:
        if not callable(moment):
            check.one_of(tuple(NAMED), moments=moment, remedy="Or give a function.")
    functions = [m if callable(m) else NAMED[m] for m in moments]
    check_counts(replicates, threads)
    pilot, *pair_streams = streams(seed, replicates + 1)
    coupled = build(sampler, target, pilot, lag=lag, max_steps=max_steps, init=init)
    last = burn_in + num_draws - 1

    def task(rng: np.random.Generator) -> tuple[int, bool, list[Values]]:
        return _replicate(coupled, _Sum(functions, lag, burn_in, last), rng)

    pairs = run_all(task, pair_streams, threads)
    num_missed = sum(not has_met for _, has_met, _ in pairs)
    if num_missed:
        got = f"{max_steps}, with {num_missed} of {replicates} pairs that did not"
        remedy = "Increase max_steps, or use a sampler that mixes faster."
        check.fail("max_steps", ALL_MEET, got, remedy)
    values = tuple(
        np.array([moments_of_pair[i] for _, _, moments_of_pair in pairs])
        for i in range(len(functions))
    )
    return UnbiasedMoments(
        names=tuple(
            m if isinstance(m, str) else getattr(m, "__name__", repr(m))
            for m in moments
        ),
        estimates=tuple(v.mean(axis=0) for v in values),
        standard_errors=tuple(
            v.std(axis=0, ddof=1) / np.sqrt(replicates) for v in values
        ),
        replicates=values,
        times=np.array([time for time, _, _ in pairs], dtype=np.int64),
    )
