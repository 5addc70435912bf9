"""Proximal sampler: exact conditional draws in a metric, with a proved error.

The target has the density e^{-V} on a convex domain, V = k (F + mu r), where F is the
mean loss of the records, r a regularizer of weight mu, and k an inverse temperature.

A *metric* is given by a matrix P such that the energy V is 1-strongly convex on the
domain in the norm ||x||_P. A *step* has a size h and two conditional draws. Each
conditional draw of the chain of `alternation` is exact, and T(gamma) steps give a total
variation of at most gamma. W_0 bounds the root mean squared distance of the start from
the target in the norm of P. The *oracle* of the chain tests proposals on all records,
on a few of them (`thinned`), or on those that `screened` leaves undecided.

A pilot run on a random stream of its own chooses metric and step. Draws are exact for
every step, so the choice affects the running time alone. It depends on the records and
is fixed before the certified run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.problem.storage import MemoryStorage
from dpsample.samplers import chain, errors, gaussian_fit
from dpsample.samplers.chain import (
    ChainState,
    Runner,
    Settings,
    compile_filler,
    flatten_plan,
)
from dpsample.samplers.errors import NoCertificate, SamplingError, raise_unless_ok
from dpsample.samplers.proximal import alternation, metric, screened, thinned
from dpsample.samplers.proximal.alternation import (
    MAX_PROPOSALS,
    ProximalPlan,
    ProximalWork,
    TangentPlan,
)
from dpsample.samplers.proximal.metric import ProximalMetric
from dpsample.samplers.proximal.screened import Screen
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs

# Steps of the chain per trial, in the coarse search of a step size and in the fine one.
NUM_COARSE = 12
NUM_FINE = 40
# Factor between two step sizes of the fine search. The coarse one uses 2 and 4.
FINE_FACTOR = math.sqrt(2.0)
# No smaller step size is tried.
MIN_STEP = 1e-12
# If a larger share of the records is undecided, lists of them take longer than passes
# over all records.
MAX_UNDECIDED = 0.6
# Maximum rounding error of a log acceptance probability.
MAX_ERROR = 1e-3
ORACLES = ("metric", "tangent", "thinned")
# All integers up to this one are floats.
MAX_STEPS = 2**53
# Multiply-adds of a year on one processor.
WORK_PER_YEAR = 3e16


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Expected work with a step size, and observations of a trial run."""

    step: float
    work: float  # multiply-adds of all steps
    acceptance: float  # accepted share of the proposals inside the domain
    step_work: float = 0.0  # multiply-adds of a step
    step_seconds: float = 0.0
    share: float = 1.0  # share of the records that an evaluation reads
    inside: float = 0.0  # proposals inside the domain, as a share of all

    @property
    def is_steady(self) -> bool:
        """Whether so few proposals are rejected that no step may take forever."""
        # The number of proposals of a step has a heavy tail, which a short trial may
        # not show. So a step size is used only if at least this share of the proposals
        # inside the domain is accepted.
        return self.acceptance >= 0.4


def pass_work(target: Gibbs) -> float:
    """Return the multiply-adds of one pass over the records."""
    storage = target.storage
    num_products = float(storage.num_records) * storage.dim
    if isinstance(storage, MemoryStorage):
        num_products = storage.data.dense.size or storage.data.values.size
    # Loss and derivative of a record take about as long as four products.
    return num_products + 4.0 * storage.num_records


# Numbers of an oracle, by which it is recognized. The tangent oracle has none.
Bounds = thinned.Bounds | Screen | None


def _init(target: Gibbs, position: Array, bounds: Bounds) -> ChainState:
    """Return a new chain of one of the three oracles."""
    if isinstance(bounds, thinned.Bounds):
        return thinned.init(target, position)
    if isinstance(bounds, Screen):
        return screened.init(target, position)
    return alternation.init(target, position)


def _filler(
    target: Gibbs,
    option: ProximalMetric,
    plan: ProximalPlan,
    bounds: Bounds,
    max_proposals: int,
) -> Callable[[ChainState, np.random.Generator, Array, Array], int]:
    """Return a function that fills draws with one of the oracles."""
    run = alternation.run
    if isinstance(bounds, thinned.Bounds):
        run = thinned.run
    elif isinstance(bounds, Screen):
        run = screened.run
    tangent = TangentPlan(plan, option.draw, max_proposals, bounds or ())
    return compile_filler(run, option.numbers(target), target.pieces, tangent)


class Pilot:
    """Chain in one metric for trials of step sizes. A trial continues the last one."""

    def __init__(
        self,
        target: Gibbs,
        metric: ProximalMetric,
        start: Array,
        rng: np.random.Generator,
        num_steps_for: Callable[..., int],  # function of a trial's ``step``
        *,
        is_screened: bool = False,
    ) -> None:
        self.target, self.metric, self.rng = target, metric, rng
        self.num_steps_for = num_steps_for
        screen = screened.new_screen(target, metric.plan(1.0)) if is_screened else None
        self.is_screened = screen is not None
        self.state = _init(target, start, screen)
        self.first_step, self.max_step = metric.pilot_steps()
        # Multiply-adds per count. A gradient is two passes, a value is one. Positions
        # are those of a chain's counts, the last of which is `alternation.INSIDE`.
        self.costs = np.zeros(alternation.INSIDE + 1)
        self.costs[chain.COUNT.gradients] = 2.0 * pass_work(target)
        self.costs[chain.COUNT.values] = pass_work(target)
        self.costs[chain.COUNT.proposals] = metric.draw_cost

    def trial(self, step: float, num_steps: int) -> Trial:
        """Run ``num_steps`` steps. Too many proposals of one make the work infinite."""
        counts, plan = self.state.counts, self.metric.plan(step)
        counts[:] = 0
        draws = np.empty((num_steps, self.target.dim))
        stats = np.empty((num_steps, chain.NUM_STATS))
        state, screen = self._choose_oracle(plan)
        begin = time.perf_counter()
        # A step that needs more than 200 proposals is too long, and ends the trial.
        fill = _filler(self.target, self.metric, plan, screen, 200)
        code = fill(state, self.rng, draws, stats)
        seconds = time.perf_counter() - begin
        if code == errors.EXHAUSTED:
            return Trial(
                step=step,
                work=math.inf,
                acceptance=0.0,
                step_work=math.inf,
                step_seconds=math.inf,
            )
        raise_unless_ok(code)
        # ``work``, by which steps are compared, is for passes over all records, so that
        # the choice of the step does not depend on the screening.
        step_work = float(counts @ self.costs) / num_steps
        num_passes = int(counts[chain.COUNT.values] + counts[chain.COUNT.gradients])
        share = 1.0
        if screen is not None:
            num_all = num_passes * self.target.data.num_records
            share = int(counts[chain.COUNT.records]) / num_all
        return Trial(
            step=step,
            work=step_work * self.num_steps_for(step=step),
            acceptance=num_steps / int(counts[alternation.INSIDE]),
            step_work=step_work * min(share, 1.0),
            step_seconds=seconds / num_steps,
            share=share,
            inside=int(counts[alternation.INSIDE]) / int(counts[chain.COUNT.proposals]),
        )

    def _choose_oracle(self, plan: ProximalPlan) -> tuple[ChainState, Screen | None]:
        """Return the state for a trial, and a screen if that may save work."""
        state, screen = self.state, None
        if self.is_screened:
            screen = screened.new_screen(self.target, plan)
            # The balls in which records were screened have other radii at another step.
            # 0 in this entry makes the chain screen again.
            state.memory[0] = 0.0
        if screen is None:
            return state, None
        share = screened.share_undecided(self.target, screen, state.position)
        if share <= MAX_UNDECIDED:
            return state, screen
        return state._replace(
            workspace=ProximalWork(state.workspace.support, state.workspace.draw)
        ), None

    def search(self) -> Trial:
        """Return the trial of least work, by a coarse search and a fine one."""
        best = self._shorten(self.first_step, 4.0, NUM_COARSE)
        for factor in (2.0, 0.5):
            best = self._improve(best, factor, NUM_COARSE)
        best = self._shorten(best.step, FINE_FACTOR, NUM_FINE)
        for factor in (FINE_FACTOR, 1.0 / FINE_FACTOR):
            best = self._improve(best, factor, NUM_FINE)
        return best

    def _shorten(self, step: float, factor: float, num_steps: int) -> Trial:
        """Divide the step by the factor until a trial is steady."""
        trial = self.trial(step, num_steps)
        while not trial.is_steady and step > MIN_STEP:
            step /= factor
            trial = self.trial(step, num_steps)
        return trial

    def _improve(self, best: Trial, factor: float, num_steps: int) -> Trial:
        """Multiply the step by the factor as long as the work decreases."""
        while MIN_STEP < best.step * factor <= self.max_step:
            trial = self.trial(best.step * factor, num_steps)
            if not (trial.is_steady and trial.work < best.work):
                break
            best = trial
        return best


@dataclass(frozen=True)
class Proximal(Sampler):
    """Proximal sampler with an exact tangent oracle.

    Parameters
    ----------
    oracle : {"metric", "tangent", "thinned"}
        "metric" includes in the metric the curvature that the records prove on the
        domain. "tangent" uses the strong convexity of the regularizer alone. "thinned"
        is "tangent" with the same acceptance probability from a few random records.
        With the first two, records of a hinge, absolute or quantile loss are screened
        if that saves work: those whose margin is far from the point where the loss is
        not differentiable are not read. This changes draws only by rounding.
    step_size : float, optional
        Step h in the metric. By default a pilot run chooses it. The conditional draw is
        exact for every step.

    Notes
    -----
    **Guarantee.** The target is exactly invariant under every step, and the kernel is
    reversible. After ``certified_steps(gamma)`` steps from the start the total
    variation is at most gamma. The proof of `release` uses this bound.
    A step of `sample` that makes 10 million proposals raises `SamplingError`.

    Examples
    --------
    >>> from dpsample.samplers import Proximal
    >>> Proximal().exactness, Proximal().is_reversible
    ('invariant', True)
    """

    oracle: str = "metric"
    step_size: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        check.one_of(ORACLES, oracle=self.oracle)
        if self.step_size is not None:
            check.positive(step_size=self.step_size)
            object.__setattr__(self, "step_size", float(self.step_size))

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether the target has a metric, and if not, why."""
        try:
            metric.candidates(target, oracle=self.oracle)
            self._bounds(target)
        except NoCertificate as error:
            return False, str(error)
        return True, ""

    def prepare(
        self, target: Gibbs, rng: np.random.Generator, *, gamma: float = 1e-3
    ) -> PreparedProximal:
        """Choose metric, start and step for the target.

        Parameters
        ----------
        target : Gibbs
            The target.
        rng : numpy.random.Generator
            Stream of the pilot run. The chain needs another one.
        gamma : float
            Total-variation error for which the expected work is minimized.

        Returns
        -------
        PreparedProximal
            A chain ready to run, with its proved number of steps.

        Raises
        ------
        NoCertificate
            If no metric is valid, or every exact draw is impractical.
        SamplingError
            If a loss raises or returns NaN, a declared bound does not hold, or energies
            are so large that rounding errors would decide which draws are accepted.
        """
        setting = ProximalSetting.from_sampler(self, target)
        raise_unless_ok(errors.ROUGH if setting.is_rough else errors.OK)
        prepared = setting.prepare(rng, gamma)
        if not np.isfinite(prepared.trial.work):
            raise NoCertificate(
                f"Exact draws on the {target.domain.name} are impractical: "
                "hardly any proposal falls inside. Use a WholeSpace, Ball or Box."
            )
        return prepared

    def _bounds(self, target: Gibbs) -> thinned.Bounds | None:
        return thinned.bounds(target) if self.oracle == "thinned" else None


@dataclass(frozen=True, kw_only=True, eq=False)
class ProximalSetting:
    """Metrics and start, which sampler and target determine before any random bit."""

    target: Gibbs
    options: tuple[tuple[ProximalMetric, float], ...]  # metrics with their W_0
    start: Array
    step_size: float | None
    bounds: thinned.Bounds | None  # numbers of the thinned oracle
    may_screen: bool

    @property
    def is_rough(self) -> bool:
        """Whether rounding errors would decide on acceptance in every metric."""
        energy = self.target.energy(self.start)
        penalty = self.target.regularizer.value(self.start)
        for option, _ in self.options:
            # U is the energy without the part ``kept_weight`` r that proposals have
            # exactly. A gap is a difference of values of U, which are of this size. If
            # the first gap, an estimate, is small, its rounding error is not important.
            size = abs(energy - option.kept_weight * penalty)
            if not (2.0**-52 * size > MAX_ERROR and option.first_gap > MAX_ERROR):
                return False
        return True

    @classmethod
    def from_sampler(cls, sampler: Proximal, target: Gibbs) -> ProximalSetting:
        """Return metrics and start, or raise errors as `Proximal.prepare` does."""
        options = metric.candidates(target, oracle=sampler.oracle)
        start, energy = gaussian_fit.minimize(target)
        if not (np.isfinite(energy) and np.isfinite(target.gradient(start)).all()):
            raise SamplingError("The energy or its slope is not finite on the domain.")
        return cls(
            target=target,
            options=tuple((o, start_bound(target, o, start)) for o in options),
            start=start,
            step_size=sampler.step_size,
            bounds=sampler._bounds(target),
            may_screen=sampler.oracle != "thinned",
        )

    def prepare(self, rng: np.random.Generator, gamma: float) -> PreparedProximal:
        """Search for steps in all metrics, from other starts if none is accepted.

        If none is accepted from any start, the expected work is infinite. The proof and
        the number of steps are valid nevertheless, only their time is unknown.
        """
        best = self._search_metrics(rng, gamma)
        if best.may_need_corners:
            options = tuple((o.with_corners(), bound) for o, bound in self.options)
            other = replace(self, options=options)._search_metrics(rng, gamma)
            best = min(best, other, key=lambda chain: chain.trial.work)
        # If no step has proposals inside the domain, the pilot run starts again at
        # these shares of the way to an interior point.
        for share in (1e-3, 0.03, 1.0):
            if np.isfinite(best.trial.work):
                break
            best = self._move_start(share)._search_metrics(rng, gamma)
        return best

    def _search_metrics(
        self, rng: np.random.Generator, gamma: float
    ) -> PreparedProximal:
        """Return the chain of least work among all metrics."""
        chains = [self.search_step(*option, rng, gamma) for option in self.options]
        return min(chains, key=lambda chain: chain.trial.work)

    def _move_start(self, share: float) -> ProximalSetting:
        """Return a copy whose start is closer to an interior point, with its W_0."""
        target = self.target
        interior = target.domain.interior_point(target.dim)
        start = (1.0 - share) * self.start + share * interior
        options = tuple((o, start_bound(target, o, start)) for o, _ in self.options)
        return replace(self, start=start, options=options)

    def search_step(
        self,
        option: ProximalMetric,
        bound: float,
        rng: np.random.Generator,
        gamma: float,
    ) -> PreparedProximal:
        """Return the chain in one metric, with the best step of a pilot run."""
        pilot = Pilot(
            self.target,
            option,
            self.start,
            rng,
            partial(alternation.num_steps, gamma, start_bound=bound),
            is_screened=self.may_screen,
        )
        step = self.step_size
        trial = pilot.search() if step is None else pilot.trial(step, NUM_COARSE)
        bounds: Bounds = self.bounds
        if trial.share < MAX_UNDECIDED:
            bounds = screened.new_screen(self.target, option.plan(trial.step))
        return PreparedProximal(
            target=self.target,
            metric=option,
            trial=trial,
            start=self.start,
            start_bound=bound,
            bounds=bounds,
        )


def start_bound(target: Gibbs, option: ProximalMetric, start: Array) -> float:
    """Return W_0: distance to the minimizer plus sqrt(dim), in the metric of P."""
    gradient = target.gradient(start)
    plan = option.plan(1.0)
    distance = alternation.distance_to_minimizer(
        target.domain, start, gradient, plan.inverse, plan.precision
    )
    return float(distance + np.sqrt(option.dim))


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedProximal:
    """A chain ready to run, as `PreparedChain`. All of it may depend on the records."""

    target: Gibbs
    metric: ProximalMetric
    trial: Trial
    start: Array
    start_bound: float  # W_0
    bounds: Bounds = None  # numbers of the thinned or screened oracle

    @property
    def may_need_corners(self) -> bool:
        """Whether a corner may cause proposals outside, or short steps."""
        # Draws in corners take more time. So they are tried only if the step is below
        # 1 % of the pilot's first one, or 90 % of the proposals are outside.
        is_short = self.trial.step < 0.01 * self.metric.pilot_steps()[0]
        is_outside = self.trial.inside < 0.1
        return self.metric.has_corners and (is_short or is_outside)

    @property
    def num_warmup(self) -> int:
        """Number of steps that proves a total variation of at most 0.01.

        `NoCertificate` is raised if they would take years.
        """
        # Error after the warm-up of draws that are not released.
        num_steps = self.certified_steps(0.01)
        work = num_steps * self.trial.step_work
        if num_steps > MAX_STEPS or work > WORK_PER_YEAR:
            raise NoCertificate(
                f"A proof for this target takes {num_steps:.3g} steps, about "
                f"{work / WORK_PER_YEAR:.2g} years. Use a smaller domain, a larger "
                "weight of the regularizer or columns of similar scale, or choose "
                "num_warmup or another sampler."
            )
        return num_steps

    @property
    def settings(self) -> Settings:
        """Step and metric, for attributes of the draws."""
        return {"step_size": self.trial.step, "metric": self.metric.name}

    def certified_steps(self, gamma: float) -> int:
        """Return the number of steps that proves a total variation of at most gamma."""
        return alternation.num_steps(
            gamma, step=self.trial.step, start_bound=self.start_bound
        )

    def counts(self, state: ChainState) -> dict[str, int]:
        """Return a chain's evaluations so far, by name."""
        names = (*chain.COUNT._fields, "inside")
        return dict(zip(names, state.counts.tolist(), strict=True))

    def numbers(self) -> list[object]:
        """Return all arrays and numbers of the chain, for a checkpoint's identity."""
        plan = self.metric.plan(self.trial.step)
        tests = self.bounds or ()
        return [
            *plan,
            *tests,
            self.metric.name,
            *flatten_plan(self.target.numbers),
            *self.target.identity(self.start),
        ]

    def init(self, position: Array | None = None) -> ChainState:
        """Return a new chain at a position of the domain, by default the start."""
        where = self.start if position is None else position
        return _init(self.target, where, self.bounds)

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Return the start, because the proof is for chains from there."""
        del rng
        return self.start.copy()

    def runner(
        self, *, squeeze: bool = False, max_proposals: int = MAX_PROPOSALS
    ) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays.

        With ``squeeze`` some draws need no pass over the records, and their energies
        are NaN. A step with more than ``max_proposals`` proposals raises
        `SamplingError`.
        """
        plan = self.metric.plan(self.trial.step, squeeze=squeeze)
        fill = _filler(self.target, self.metric, plan, self.bounds, max_proposals)
        return lambda *chain: raise_unless_ok(fill(*chain))
