"""Proximal sampler: exact conditional draws in a metric, with a proved error.

In the metric of P the energy V is 1-strongly convex on the domain, each conditional
draw of the alternating chain is exact, and T(gamma) steps give total variation at most
gamma. A pilot run on a random stream of its own chooses metric and step: the draw is
exact for every step, so the choice moves the running time only. It depends on the
records and is fixed before the certified run.
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
    identify_target,
)
from dpsample.samplers.errors import NoCertificate, SamplingError, raise_unless_ok
from dpsample.samplers.proximal import alternation, metric, screened, thinned
from dpsample.samplers.proximal.alternation import (
    MOST_TRIES,
    ProximalPlan,
    ProximalWork,
    TangentPlan,
)
from dpsample.samplers.proximal.metric import ProximalMetric
from dpsample.samplers.proximal.screened import Screen
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs

MAX_TRIES = 200  # per step, in the pilot only: a step that needs more is hopeless
FIRST_STEPS, LAST_STEPS = 12, 40
MIN_STEP = 1e-12
REFINE = math.sqrt(2.0)
# The tries of a step have a heavy tail, of which a short trial sees too little: step
# sizes that accept fewer of the proposals inside the domain are left alone.
MIN_ACCEPTANCE = 0.4
# Lists of undecided records cost more than passes over all if they leave more than this
# share of the records, in the smallest ball about a point or in all evaluations.
MAX_SHARE = 0.6
# Share of the pilot's first step that is short, and of proposals inside that is small.
SHORT, FEW_INSIDE = 0.01, 0.1
EPSILON, MAX_ERROR = 2.0**-52, 1e-3  # of energies, that of an acceptance
ORACLES = ("metric", "tangent", "thinned")
# Error for which the pilot minimizes the work when no certificate is asked for.
PILOT_GAMMA = 1e-3
# Error after the warm-up of draws for study, at which nothing is released.
WARMUP_GAMMA = 0.01
# Steps that numbers count, and multiply-adds of a year on one processor.
MAX_STEPS, WORK_PER_YEAR = 2**53, 3e16
# Shares of the way to an interior point from which the pilot starts anew, if it finds
# no step whose proposals fall into the domain.
RETREATS = (1e-3, 0.03, 1.0)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a step is expected to cost in all, and what was seen of it."""

    step: float
    work: float
    acceptance: float  # of the proposals inside the domain
    step_work: float = 0.0  # of one step, in multiply-adds
    step_seconds: float = 0.0
    share: float = 1.0  # of the records in an evaluation, see `screened`
    inside: float = 0.0  # share of the proposals that fell inside the domain

    @property
    def is_steady(self) -> bool:
        """Whether few proposals are rejected, so that no step may take forever."""
        return self.acceptance >= MIN_ACCEPTANCE


def pass_work(target: Gibbs) -> float:
    """Multiply-adds of one pass over the records."""
    storage = target.storage
    numbers = float(storage.num_records) * storage.dim
    if isinstance(storage, MemoryStorage):
        numbers = storage.data.dense.size or storage.data.values.size
    return numbers + 4.0 * storage.num_records


Bounds = thinned.Bounds | Screen | None  # what tells an oracle apart


def _init(target: Gibbs, position: Array, bounds: Bounds) -> ChainState:
    """Fresh chain of one of the three oracles."""
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
    max_tries: int,
) -> Callable[[ChainState, np.random.Generator, Array, Array], int]:
    """Chain of one of the three oracles; as `chain.compile_filler`."""
    run = alternation.run
    if isinstance(bounds, thinned.Bounds):
        run = thinned.run
    elif isinstance(bounds, Screen):
        run = screened.run
    tangent = TangentPlan(plan, option.draw, max_tries, bounds or ())
    return compile_filler(run, option.numbers(target), target.pieces, tangent)


class Pilot:
    """Chain in one metric that tries steps; its state carries over between trials."""

    def __init__(
        self,
        target: Gibbs,
        metric: ProximalMetric,
        start: Array,
        rng: np.random.Generator,
        steps_for: Callable[..., int],  # of a trial's ``step``
        *,
        is_screened: bool = False,
    ) -> None:
        self.target, self.metric, self.rng = target, metric, rng
        self.steps_for = steps_for
        screen = screened.screen(target, metric.plan(1.0)) if is_screened else None
        self.is_screened = screen is not None
        self.state = _init(target, start, screen)
        self.first, self.longest = metric.steps()
        # In units of one multiply-add: two passes for a gradient, one for a value.
        self.costs = np.zeros(alternation.NUM_COUNTS)
        self.costs[chain.GRADIENTS] = 2.0 * pass_work(target)
        self.costs[chain.VALUES] = pass_work(target)
        self.costs[chain.PROPOSALS] = metric.draw_cost

    def trial(self, step: float, num_steps: int) -> Trial:
        """Run ``num_steps`` steps; infinite work if one needs too many tries."""
        counts, plan = self.state.counts, self.metric.plan(step)
        counts[:] = 0
        draws = np.empty((num_steps, self.target.dim))
        stats = np.empty((num_steps, chain.NUM_STATS))
        state, screen = self._screened(plan)
        begin = time.perf_counter()
        fill = _filler(self.target, self.metric, plan, screen, MAX_TRIES)
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
        # The step does not depend on the screening: it is chosen for passes over all.
        step_work = float(counts @ self.costs) / num_steps
        passes = int(counts[chain.VALUES] + counts[chain.GRADIENTS])
        share = 1.0
        if screen is not None:
            share = int(counts[chain.RECORDS]) / (passes * self.target.data.num_records)
        return Trial(
            step=step,
            work=step_work * self.steps_for(step=step),
            acceptance=num_steps / int(counts[alternation.INSIDE]),
            step_work=step_work * min(share, 1.0),
            step_seconds=seconds / num_steps,
            share=share,
            inside=int(counts[alternation.INSIDE]) / int(counts[chain.PROPOSALS]),
        )

    def _screened(self, plan: ProximalPlan) -> tuple[ChainState, Screen | None]:
        """State for a trial, and what it screens with where that may pay."""
        state, screen = self.state, None
        if self.is_screened:
            screen = screened.screen(self.target, plan)
            state.memory[0] = 0.0  # the balls of another step are forgotten
        if screen is None:
            return state, None
        if screened.share_near(self.target, screen, state.position) <= MAX_SHARE:
            return state, screen
        return state._replace(own=ProximalWork(state.own.normal)), None

    def search(self) -> Trial:
        """Walk down to a workable step, climb by doubling, refine with more steps."""
        best = self._walk_down(self.first, 4.0, FIRST_STEPS)
        for factor in (2.0, 0.5):
            best = self._climb(best, factor, FIRST_STEPS)
        best = self._walk_down(best.step, REFINE, LAST_STEPS)
        for factor in (REFINE, 1.0 / REFINE):
            best = self._climb(best, factor, LAST_STEPS)
        return best

    def _walk_down(self, step: float, factor: float, num_steps: int) -> Trial:
        trial = self.trial(step, num_steps)
        while not trial.is_steady and step > MIN_STEP:
            step /= factor
            trial = self.trial(step, num_steps)
        return trial

    def _climb(self, best: Trial, factor: float, num_steps: int) -> Trial:
        while MIN_STEP < best.step * factor <= self.longest:
            other = self.trial(best.step * factor, num_steps)
            if not (other.is_steady and other.work < best.work):
                break
            best = other
        return best


@dataclass(frozen=True)
class Proximal(Sampler):
    """Proximal sampler with an exact tangent oracle.

    Parameters
    ----------
    oracle : {"metric", "tangent", "thinned"}
        "metric" puts the curvature that the records prove on the domain into the
        metric; "tangent" uses the regularizer's strong convexity alone; "thinned" is
        "tangent" with the same acceptance from a few random records. Records of a
        hinge, absolute or quantile loss far from their kinks are screened in the first
        two, where that saves work: it changes no draw except for rounding.
    step_size : float, optional
        Step h in the metric; by default a pilot run chooses it. The conditional draw is
        exact for every step.

    Notes
    -----
    **Guarantee.** The target is exactly invariant under every step, the kernel
    reversible, and after ``certified_steps(gamma)`` steps from the start the total
    variation is at most gamma: `release` rests on it.
    A step of `sample` that takes 10 million tries raises `SamplingError`.

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
        """Whether a metric exists for the target, and the reason if not."""
        try:
            metric.candidates(target, oracle=self.oracle)
            self._bounds(target)
        except NoCertificate as error:
            return False, str(error)
        return True, ""

    def prepare(
        self, target: Gibbs, rng: np.random.Generator, *, gamma: float = PILOT_GAMMA
    ) -> PreparedProximal:
        """Choose metric, start and step for the target.

        Parameters
        ----------
        target : Gibbs
            The target.
        rng : numpy.random.Generator
            Stream of the pilot run; it must not serve the chain as well.
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
            If a loss raises or returns NaN, a declared bound is found not to hold, or
            energies are so large that rounding errors would decide what is accepted.
        """
        setting = ProximalSetting.of(self, target)
        raise_unless_ok(errors.ROUGH if setting.is_rough else errors.OK)
        prepared = setting.prepare(rng, gamma)
        if not np.isfinite(prepared.trial.work):
            raise NoCertificate(
                f"Exact draws on the {target.problem.domain.name} are impractical: "
                "hardly any proposal falls inside. Use a WholeSpace, Ball or Box."
            )
        return prepared

    def _bounds(self, target: Gibbs) -> thinned.Bounds | None:
        return thinned.bounds(target) if self.oracle == "thinned" else None


@dataclass(frozen=True, kw_only=True, eq=False)
class ProximalSetting:
    """What sampler and target fix before any random bit."""

    target: Gibbs
    options: tuple[tuple[ProximalMetric, float], ...]  # each with its W_0
    start: Array
    step_size: float | None
    bounds: thinned.Bounds | None  # of the thinned oracle's tests
    may_screen: bool

    @property
    def is_rough(self) -> bool:
        """Whether rounding errors would decide what is accepted, in every metric."""
        energy = self.target.energy(self.start)
        kept = self.target.regularizer.value(self.start)
        return all(
            EPSILON * abs(energy - option.kept * kept) > MAX_ERROR < option.first_gap
            for option, _ in self.options
        )

    @classmethod
    def of(cls, sampler: Proximal, target: Gibbs) -> ProximalSetting:
        """Metrics and start for a target; raises as `Proximal.prepare`."""
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
        """Try steps in every metric, from other starts if none is accepted.

        The expected work is infinite if none is accepted from any: the proof and the
        number of steps are as good, only their time is not known.
        """
        best = self._best(rng, gamma)
        if best.is_cornered:
            options = tuple((o.cornered(), bound) for o, bound in self.options)
            other = replace(self, options=options)._best(rng, gamma)
            best = min(best, other, key=lambda each: each.trial.work)
        for share in RETREATS:
            if np.isfinite(best.trial.work):
                break
            best = self._retreated(share)._best(rng, gamma)
        return best

    def _best(self, rng: np.random.Generator, gamma: float) -> PreparedProximal:
        chains = [self.tried(*option, rng, gamma) for option in self.options]
        return min(chains, key=lambda each: each.trial.work)

    def _retreated(self, share: float) -> ProximalSetting:
        """Start moved towards an interior point, with W_0 of its own."""
        target = self.target
        interior = target.problem.domain.interior_point(target.dim)
        start = (1.0 - share) * self.start + share * interior
        options = tuple((o, start_bound(target, o, start)) for o, _ in self.options)
        return replace(self, start=start, options=options)

    def tried(
        self,
        option: ProximalMetric,
        bound: float,
        rng: np.random.Generator,
        gamma: float,
    ) -> PreparedProximal:
        """Chain in one metric, with the step that a pilot run finds best."""
        steps_for = partial(alternation.num_steps, gamma, start_bound=bound)
        start, screens = self.start, self.may_screen
        pilot = Pilot(self.target, option, start, rng, steps_for, is_screened=screens)
        step = self.step_size
        trial = pilot.search() if step is None else pilot.trial(step, FIRST_STEPS)
        bounds: Bounds = self.bounds
        if trial.share < MAX_SHARE:
            bounds = screened.screen(self.target, option.plan(trial.step))
        return PreparedProximal(
            target=self.target,
            metric=option,
            trial=trial,
            start=self.start,
            start_bound=bound,
            bounds=bounds,
        )


def start_bound(target: Gibbs, option: ProximalMetric, start: Array) -> float:
    """W_0: distance to the minimizer plus sqrt(dim), in the metric of P."""
    gradient = target.gradient(start)
    plan = option.plan(1.0)
    distance = alternation.distance_to_minimizer(
        target.problem.domain, start, gradient, plan.inverse, plan.precision
    )
    return float(distance + np.sqrt(option.dim))


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedProximal:
    """A chain ready to run, as `PreparedChain`: all may depend on the records."""

    target: Gibbs
    metric: ProximalMetric
    trial: Trial
    start: Array
    start_bound: float
    bounds: Bounds = None  # of an oracle other than the plain one

    @property
    def is_cornered(self) -> bool:
        """Whether a corner may be what keeps proposals outside, or steps short."""
        is_short = self.trial.step < SHORT * self.metric.steps()[0]
        is_outside = self.trial.inside < FEW_INSIDE
        return self.metric.has_corners and (is_short or is_outside)

    @property
    def num_warmup(self) -> int:
        """Steps that prove a total variation of at most 0.01.

        `NoCertificate` if they would take years.
        """
        num_steps = self.certified_steps(WARMUP_GAMMA)
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
        """Step and metric, for attributes."""
        return {"step_size": self.trial.step, "metric": self.metric.name}

    def certified_steps(self, gamma: float) -> int:
        """Return the steps that prove a total variation of at most gamma."""
        return alternation.num_steps(
            gamma, step=self.trial.step, start_bound=self.start_bound
        )

    def counts(self, state: ChainState) -> dict[str, int]:
        """Return a chain's evaluations so far, by name."""
        return dict(zip(alternation.COUNT_NAMES, state.counts.tolist(), strict=True))

    def numbers(self) -> list[object]:
        """All arrays and numbers that define the chain, for a checkpoint's identity."""
        plan = self.metric.plan(self.trial.step)
        tests = self.bounds or ()
        return [
            *plan,
            *tests,
            self.metric.name,
            *identify_target(self.target, self.start),
        ]

    def init(self, position: Array | None = None) -> ChainState:
        """Fresh chain at a position of the domain; the starting point by default."""
        where = self.start if position is None else position
        return _init(self.target, where, self.bounds)

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Return the start: the proved number of steps counts from there."""
        del rng
        return self.start.copy()

    def runner(self, *, squeeze: bool = False, max_tries: int = MOST_TRIES) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays.

        With the squeeze some draws need no pass over the records: their energies are
        NaN. A step that needs more than ``max_tries`` tries raises `SamplingError`.
        """
        plan = self.metric.plan(self.trial.step, squeeze=squeeze)
        fill = _filler(self.target, self.metric, plan, self.bounds, max_tries)
        return lambda *chain: raise_unless_ok(fill(*chain))
