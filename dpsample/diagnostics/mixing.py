r"""Mixing: bounds of the total variation between a chain and its target after t steps.

A coupling runs two chains of the same sampler with common random numbers, the second
one L steps behind the first. At the meeting time tau both are at the same point, and
stay together (`dpsample.diagnostics.couplings`). Then

.. math:: TV(X_t, \pi) \le E \max(0, \lceil (\tau - L - t) / L \rceil)

by Theorem 2.5 of arXiv:1905.09971. The mean over replicates estimates this
expectation, and has an upper confidence limit. The proximal sampler has a proved curve
as well.

Three functions have the name ``tv_bound``. The one below returns all curves,
`MeetingTimes.tv_bound` the mean over replicates at one t, and `alternation.tv_bound`
the proved bound at one t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.core.check import axes
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.diagnostics.couplings import (
    MeetingTimes,
    TotalVariationCurve,
    meeting_times,
)
from dpsample.diagnostics.couplings.meeting import LABEL, check_counts, prepare_pair
from dpsample.running.progress import with_line
from dpsample.samplers.chain import Prepared
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.proximal import PreparedProximal, Proximal, start_bound
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.reduced import has_equalities

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingBound:
    """Bounds of total variation over time, estimated by couplings and proved.

    Attributes
    ----------
    sampler : str
        The sampler whose chain was coupled.
    times : MeetingTimes
        Meeting times of the pairs.
    curve : TotalVariationCurve
        Estimates and upper limits at each number of steps.
    proved : array of shape (num_steps,) or None
        Proved bounds of the proximal sampler at the same numbers of steps. It is None
        if the sampler does not support the target.
    proved_for : str
        The chain to which the bounds apply. `release` relies on such a curve only.
    """

    sampler: str
    times: MeetingTimes
    curve: TotalVariationCurve
    proved: Array | None
    proved_for: str

    @property
    def steps(self) -> Ints:
        """Numbers of steps t, each being one draw of the sampler."""
        return self.curve.steps

    @property
    def estimate(self) -> Array:
        """Mean bound at each t."""
        return self.curve.estimate

    @property
    def upper(self) -> Array:
        """Upper confidence limit at each t."""
        return self.curve.upper

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw estimates, limits and the proved curve over the steps.

        The scale ends where estimates of so many replicates are 0. The proved curve
        continues.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        ax = axes(ax, figsize=(6.0, 4.0))
        curve = self.curve
        limit = f"upper limit ({curve.confidence:g})"
        ax.plot(curve.steps, np.minimum(curve.estimate, 1.0), "C0-", label="couplings")
        ax.plot(curve.steps, curve.upper, "C0--", label=limit)
        extrapolated = curve.steps[curve.is_extrapolated]
        if extrapolated.size:
            ends = extrapolated[0], curve.steps[-1]
            area = ax.axvspan(*ends, zorder=0, label="extrapolated")
            area.set(facecolor="0.92", edgecolor="0.5")
        if self.proved is not None:
            proof = f"proved, {self.proved_for}"
            ax.plot(curve.steps, self.proved, "C3-", label=proof)
        ax.set_yscale("log")
        # The proof goes on far below what couplings can see.
        ax.set_ylim(0.1 / curve.replicates, 1.5)
        ax.set_xlabel("steps")
        ax.set_ylabel("total variation to the target")
        ax.set_title(f"{self.sampler}: {LABEL}", fontsize="small")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """Return one line per number of steps, and the meaning of the numbers."""
        curve, count = self.curve, self.curve.replicates
        owner = "" if self.proved is None else f"; proved: {self.proved_for}"
        lines = [
            f"total variation of {self.sampler} to its target",
            f"({count} pairs of chains, lag {self.times.lag}{owner})",
            f"{'steps':>8}  {'estimate':>9}  {f'upper {curve.confidence:g}':>10}"
            + ("" if self.proved is None else "  proved"),
        ]
        for i, step in enumerate(curve.steps):
            line = f"{step:>8}  {curve.estimate[i]:>9.3g}  {curve.upper[i]:>10.3g}"
            if self.proved is not None:
                line += f"  {self.proved[i]:.3g}"
            if curve.is_extrapolated[i]:
                line += "  (estimate extrapolated)"
            lines.append(line)
        return "\n".join(
            [
                *lines,
                f"Estimates and limits: {LABEL}.",
                "They show how fast pairs of chains forget their start; they cannot "
                "show a part of",
                "the target that no chain has reached, nor distances far below "
                f"3 / {count}.",
            ]
        )


@with_line
def tv_bound(
    target: Gibbs,
    sampler: Sampler | Prepared,
    *,
    lag: int | None = None,
    replicates: int = 500,
    steps: ArrayLike | None = None,
    confidence: float = 0.95,
    seed: Seed = 0,
    max_steps: int = 10_000,
    init: ArrayLike | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> MixingBound:
    """Bound the total variation of a chain to its target over time, by couplings.

    Parameters
    ----------
    target : Gibbs
        The target.
    sampler : Sampler or Prepared
        One that has a coupling: RandomWalk(p=2), MALA, PreconditionedCrankNicolson,
        LaplaceIndependence, TiltedGibbs or Proximal. Or the result of its ``prepare``.
    lag : int, optional
        Steps by which one chain of a pair is ahead. By default the 0.9-quantile of tau
        - lag in pilot runs on a stream of their own.
    replicates : int
        Independent pairs of chains, at least 2.
    steps : array of int, optional
        Numbers of steps, chosen before the times are seen. By default 13 from 0 on, at
        distances of 3/13 of a lag, rounded down, and at least 1.
    confidence : float
        Level of the upper limits, at each number of steps separately.
    seed : int or SeedSequence, optional
        A seed gives the same curve for any number of threads. None is for new entropy.
    max_steps : int
        Steps after the lag within which every pair has to meet.
    init : array of shape (dim,), optional
        Start of both chains. By default each starts at a random point, as in `sample`.
    threads : int, optional
        Number of threads. By default the number of processors.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    MixingBound
        Estimates with limits, the proved curve of the proximal sampler, and ``plot``.

    Raises
    ------
    ValueError
        If the sampler has no coupling, a pair does not meet, or an argument is
        malformed.

    Notes
    -----
    **Guarantee.** As for `MeetingTimes.tv_curve`, a limit is above the total variation
    between the distributions after t and after ``horizon`` steps with the stated
    probability, whatever the distribution of tau. The horizon is t plus a multiple of
    the lag by which every pair had met, and stands for infinity
    (`TotalVariationCurve`). Statistical, for this data set, not a
    privacy proof.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> bound = dps.diagnostics.tv_bound(target, dps.samplers.MALA(), replicates=200)
    >>> bool((bound.upper >= np.minimum(1.0, bound.estimate)).all())
    True
    """
    del progress  # `with_line` shows the line
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.integer(1, max_steps=max_steps)
    check.open_interval(0.0, 1.0, confidence=confidence)
    if lag is not None:
        check.integer(1, lag=lag)
    check_counts(replicates, threads)
    root = seed_sequence(seed)
    tuning, pilot, main, proof = root.spawn(4)
    # The tuned sampler is the same for all pairs, so that pairs are independent given
    # it.
    prepared = prepare(sampler, target, tuning)
    options: dict[str, Any] = {"init": init, "threads": threads, "progress": False}
    if lag is None:
        lag = pilot_lag(prepared, target, pilot, max_steps=max_steps, **options)
    # 13 points end below 36/13 = 2.8 lags, unless the lag is so short that distances
    # are 1. A tail that falls to 0.1 in a lag falls to 0.002 in 2.8.
    num_steps_shown = 13
    default_steps = np.arange(num_steps_shown) * max(1, lag * 3 // num_steps_shown)
    options |= {"replicates": replicates, "max_steps": lag + max_steps}
    times = meeting_times(prepared, target, lag=lag, seed=main, **options)
    # The steps are fixed before the times are seen, so that each limit holds.
    curve = times.tv_curve(
        default_steps if steps is None else steps, confidence=confidence
    )
    proved, owner = _proved_curve(target, prepared, curve.steps, init, proof)
    return MixingBound(
        sampler=words_for(sampler, times.sampler),
        times=times,
        curve=curve,
        proved=proved,
        proved_for=owner,
    )


def prepare(
    sampler: Sampler | Prepared, target: Gibbs, seed: np.random.SeedSequence
) -> Prepared:
    """Tune a sampler once for all pairs of chains, unless it is tuned already."""
    if not isinstance(sampler, Sampler):
        return sampler
    return prepare_pair(sampler, target, streams(seed, 1)[0])[0]


def words_for(sampler: object, name: str) -> str:
    """Return a text for a sampler or for a tuned one."""
    return repr(sampler) if isinstance(sampler, Sampler) else f"a tuned {name}"


def pilot_lag(
    prepared: Prepared,
    target: Gibbs,
    seed: np.random.SeedSequence,
    *,
    max_steps: int,
    **options: Any,
) -> int:
    """Return a lag of the order of the 0.9-quantile of tau - lag.

    The second of two runs has the lag that the first one suggests. With the lag 1 of
    the first run, pairs are close from the start and meet early.
    """
    lag = 1
    for child in seed.spawn(2):
        times = meeting_times(
            prepared,
            target,
            lag=lag,
            seed=child,
            replicates=100,
            max_steps=lag + max_steps,
            **options,
        )
        times.tv_bound(0)  # raises if a pair did not meet
        lag = max(lag, times.advised_lag)
    return lag


def _proved_curve(
    target: Gibbs,
    prepared: Prepared,
    steps: Ints,
    init: ArrayLike | None,
    seed: np.random.SeedSequence,
) -> tuple[Array | None, str]:
    """Return a proved curve, and the text that says to which chain it applies.

    Another sampler than the proximal one has no proof. Then the curve is that of the
    proximal sampler, for comparison.
    """
    if isinstance(prepared, PreparedProximal):
        bound = prepared.start_bound
        if init is not None:
            bound = start_bound(
                target, prepared.metric, np.asarray(init, dtype=np.float64)
            )
        return _curve(prepared, bound, steps), "this chain"
    if has_equalities(target) or not Proximal().supports(target)[0]:
        return None, "no chain"
    other = Proximal().prepare(target, streams(seed, 1)[0])
    return _curve(other, other.start_bound, steps), repr(Proximal())


def _curve(prepared: PreparedProximal, bound: float, steps: Ints) -> Array:
    """Return the proved bounds of total variation for a bound of the start."""
    step = prepared.trial.step
    # The theorem begins with the first step, and total variation is at most 1.
    values = [
        alternation.tv_bound(int(t), step=step, start_bound=bound) if t > 0 else 1.0
        for t in steps
    ]
    return np.array(values)
