"""Warm-up of the adaptive samplers: it learns metric, force, step and thinning.

Four *pilot chains* of `billiard` run in *windows* of more and more transitions. After
each window the metric (a `MassMatrix`, the covariance of the draws), the center and the
fixed force of the flights are learned from its draws. The draws in coordinates in which
the metric is I are *white*, or whitened. The warm-up has *settled* when
the draws of a window look like a standard Gaussian's in the metric that they came from.
Then a *trial* from new starts measures the autocorrelation time, which decides how many
transitions make a draw. All is frozen before the first draw that is kept.

The pilot chains take turns in one stream, so that nothing depends on threads. Every
decision follows from draws and counts of multiply-adds, so that nothing depends on the
clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.domains import exits
from dpsample.numerics.r_hat_and_ess import largest_r_hat, with_squares
from dpsample.samplers.adaptive import billiard
from dpsample.samplers.adaptive.barrier_fit import BarrierFit, barrier_fit
from dpsample.samplers.adaptive.billiard import LENGTH, MAX_LEAPS, BilliardPlan
from dpsample.samplers.adaptive.mass_matrix import MassMatrix
from dpsample.samplers.chain import (
    NUM_STATS,
    STAT,
    ChainState,
    Settings,
    compile_filler,
)
from dpsample.samplers.errors import raise_unless_ok
from dpsample.samplers.gaussian_fit import averaged_derivatives, hull_basis
from dpsample.samplers.modes import draw_start_at
from dpsample.samplers.thinning import lag_share, rank_shares, wanted_thinning
from dpsample.targets.gibbs_target import GibbsTarget, times_basis

# Number of pilot chains. Several show whether they agree.
NUM_PILOTS = 4
# Transitions of each pilot chain in the windows, and of the shortest window that may be
# the last. A window is twice as long as the one before, so that all before it take as
# long as the last one.
WINDOWS = (30, 60, 120, 240, 480, 960, 1920)
MIN_SETTLED_WINDOW = 60
# Maximum number of multiply-adds of all windows, some five seconds. The trial may use
# half of it.
MAX_WORK = 3e10
# A window is discarded if its step size is less than this share of the best one's.
MIN_STEP_RATIO = 0.5
# Mean acceptance probability to which the step is tuned.
TARGET_RATE = 0.7
# A start is accepted if its energy is at most the mean of a Gaussian's, plus this
# number of standard deviations.
HIGH = 7.0
# Number of autocorrelation times after which a start is forgotten.
FORGOTTEN = 10.0
# Number of transitions of each chain that compare two plans.
NUM_PROBES = 10
# Maximum number of transitions that make a draw.
MAX_THINNING = 20
# Multiply-adds that take as long as a reflection, or as a leap on few records.
BOUNCE_WORK = 1000.0
# Multiply-adds that take as long as a transition on few records.
TRANSITION_WORK = 1e4


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmUp:
    """Plan that the pilot chains have learned, and how fast it mixes."""

    plan: BilliardPlan
    shape: MassMatrix  # metric of the draws, which rotations do not use
    shares: Array  # effective draws per transition, of theta_i and theta_i^2
    has_settled: bool  # whether the last window passed its test
    leaps: float  # gradients of a transition, on average
    work: float = math.inf  # multiply-adds of a transition

    @property
    def autocorrelation_time(self) -> float:
        """Largest autocorrelation time, in transitions."""
        return float(1.0 / self.shares.min())

    @property
    def num_steps(self) -> int:
        """Number of transitions that make a draw, at most `MAX_THINNING`."""
        return min(wanted_thinning(self.shares, self.work), MAX_THINNING)

    def num_discarded(self, num_steps: int) -> int:
        """Return the number of draws after which a dispersed start is forgotten."""
        return math.ceil(FORGOTTEN * self.autocorrelation_time / num_steps)

    @property
    def settings(self) -> Settings:
        """Numbers for the attributes of the draws."""
        return {
            "autocorrelation_time": self.autocorrelation_time,
            "has_settled": int(self.has_settled),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Window:
    """Draws of the pilot chains with one plan, its tuned step, and mean counts."""

    plan: BilliardPlan
    shape: MassMatrix
    draws: Array  # (NUM_PILOTS, draws, dim), without the first quarter
    energies: Array  # (NUM_PILOTS, draws)
    mean_slope: Array  # (dim,)
    acceptance: float
    leaps: float  # per transition
    bounces: float  # per transition


class _Pilots:
    """Pilot chains of a target, in one stream."""

    def __init__(
        self, target: GibbsTarget, plan: BilliardPlan, rng: np.random.Generator
    ) -> None:
        self.target, self.rng = target, rng
        # The chains share one tuning: each goes on with the step of the one before.
        self.tuning = billiard.new_tuning(plan.step, target_rate=TARGET_RATE)
        self.states = []
        starts = DispersedStarts(target, plan)
        for i in range(NUM_PILOTS):
            start = draw_start_at(target, i, rng)
            if start is None:
                start = starts.draw(rng)
            state = billiard.init(target, plan, start)
            workspace = state.workspace._replace(tuning=self.tuning)
            self.states.append(state._replace(workspace=workspace))

    def run(
        self,
        plan: BilliardPlan,
        width: int,
        *,
        shape: MassMatrix | None = None,
        adapts: bool = True,
    ) -> _Window:
        """Advance all chains by ``width`` transitions.

        While a step is tuned they take turns of 10 transitions each, so that the tuning
        sees all chains. The first quarter of a window is discarded, because the plan is
        new. A run that does not adapt discards nothing.
        """
        target, tuning, segment = self.target, self.tuning, 10
        tuning[:] = billiard.new_tuning(plan.step, target_rate=TARGET_RATE)
        tunes = adapts and plan.has_kicks == 1
        tuning["is_on"] = tunes
        energies = np.empty((NUM_PILOTS, width))
        draws = np.empty((NUM_PILOTS, width, target.dim))
        stats = np.empty((width, NUM_STATS))
        fill = _compile_filler(target, plan)
        # A quarter of the window, rounded up to whole segments.
        num_skipped = -(-width // (4 * segment)) * segment if adapts else 0
        size = segment if tunes else num_skipped or width
        for begin in range(0, width, size):
            part = slice(begin, min(begin + size, width))
            for state, path, heights in zip(self.states, draws, energies, strict=True):
                pauses.notify_listeners()
                # The totals count the transitions after the first quarter.
                if begin in (0, num_skipped):
                    state.workspace.totals[:] = state.workspace.gradient_sum[:] = 0.0
                rows = path[part], stats[: part.stop - begin]
                raise_unless_ok(fill(state, self.rng, *rows), target)
                heights[part] = rows[1][:, STAT.energy]
        num_kept = NUM_PILOTS * (width - num_skipped)
        totals = np.concatenate([state.workspace.totals for state in self.states])
        slopes = np.sum([state.workspace.gradient_sum for state in self.states], axis=0)
        step = math.exp(tuning["mean_log_step"][0]) if tunes else plan.step
        return _Window(
            plan=plan._replace(step=step),
            shape=plan.mass if shape is None else shape,
            draws=draws[:, num_skipped:],
            energies=energies[:, num_skipped:],
            mean_slope=slopes / num_kept,
            acceptance=float(totals["acceptance"].sum()) / num_kept,
            leaps=float(totals["leaps"].sum()) / num_kept,
            bounces=float(totals["bounces"].sum()) / num_kept,
        )


def _compile_filler(target: GibbsTarget, plan: BilliardPlan) -> Callable[..., int]:
    """Return the function of `chain.compile_filler` for a plan."""
    functions = billiard.step_functions(target, plan)
    return compile_filler(billiard.run, target.numbers, functions, plan)


class _Learned(NamedTuple):
    """Result of the windows."""

    plan: BilliardPlan
    shape: MassMatrix
    best: _Window
    has_settled: bool
    step_work: float  # multiply-adds of a transition of all pilot chains


def warm_up(
    target: GibbsTarget,
    rng: np.random.Generator,
    *,
    length: float = LENGTH,
    max_leaps: int = MAX_LEAPS,
) -> WarmUp:
    """Learn the plan of `billiard` for a target, on the pilot run's own stream."""
    fit = barrier_fit(target)
    plan = billiard.new_plan(
        target,
        mass=fit.mass,
        center=fit.center,
        force=target.gradient(fit.center),
        # The best leapfrog step falls as the dimension to the power -1/4. Half of it is
        # a cautious start of the tuning.
        step=min(0.5 / fit.mass.rank**0.25, length),
        length=length,
        max_leaps=max_leaps,
        rotates=fit.rotates,
    )
    learned = _run_windows(_Pilots(target, plan, rng), plan, fit)
    plan, has_settled = learned.plan, learned.has_settled
    # A *share* is the number of effective draws per draw, the reciprocal of the
    # autocorrelation time. The windows judged whitened draws. The thinning is for the
    # coefficients, which users will read.
    shares, leaps = rank_shares(learned.best.draws), learned.best.leaps
    share = float(shares.min())
    lag = min(math.ceil(0.5 / share), MAX_THINNING)
    max_length = int(0.5 * MAX_WORK / max(learned.step_work, 1.0))
    num_trial_draws = 100
    num_transitions = min(num_trial_draws * lag, max_length)
    if num_transitions >= num_trial_draws:
        # The trial has new starts, as the chains will have. The pilot chains have left
        # theirs with shorter steps. The final step may be too long for that.
        num_skipped = min(math.ceil(FORGOTTEN / share), max_length)
        chains = _Pilots(target, plan, rng)
        trial = chains.run(plan, num_skipped + num_transitions, adapts=False)
        draws, leaps = trial.draws[:, num_skipped:], trial.leaps
        shares = rank_shares(draws)
        has_settled = has_settled and largest_r_hat(draws) < 1.2
    return WarmUp(
        plan=plan,
        shape=learned.shape,
        shares=shares,
        has_settled=has_settled,
        leaps=leaps,
        work=TRANSITION_WORK + leaps * _leap_work(target, plan),
    )


def _run_windows(pilots: _Pilots, plan: BilliardPlan, fit: BarrierFit) -> _Learned:
    """Learn the plan by windows, until they settle or `MAX_WORK` is used."""
    target, shape = pilots.target, fit.mass
    work, has_settled = 0.0, False
    best: _Window | None = None
    for i, width in enumerate(WINDOWS):
        window = pilots.run(plan, width, shape=shape)
        step_work = _step_work(target, window)
        work += width * step_work
        # A metric that was learned from too few draws may be worse than the last one.
        if best is not None and _is_worse(window.plan, best.plan):
            plan, shape = best.plan, best.shape
            step_work = _step_work(target, best)
        else:
            best, plan = window, window.plan
            white = shape.whiten_rows(window.draws - window.draws.mean(axis=(0, 1)))
            share = lag_share(with_squares(white))
            normal = fit.normal
            if normal is not None:
                normal = _to_unit_length(shape.whiten_rows(normal))
            has_settled = width >= MIN_SETTLED_WINDOW and is_settled(
                white, share, plan.step, normal
            )
        next_width = WINDOWS[i + 1 : i + 2]  # empty after the last window
        is_over = has_settled or not next_width
        if is_over or work + next_width[0] * step_work > MAX_WORK:
            if plan.has_kicks:
                learned = _learn_plan(target, best, white, share, normal)
                plan, step_work = _choose_rotations(pilots, plan, plan, learned, best)
            # Rotations may leave the time for windows that kicks would have taken.
            has_no_time = is_over or work + next_width[0] * step_work > MAX_WORK
            if has_no_time or plan.has_kicks:
                break
            shape = learned.mass
        elif window is best:
            before, learned = plan, _learn_plan(target, window, white, share, normal)
            shape = learned.mass
            plan = _choose_force(pilots, learned) if i == 0 else learned
            plan, _ = _choose_rotations(pilots, before, plan, learned, window)
    assert best is not None
    return _Learned(plan, shape, best, has_settled, step_work)


def disperse(
    target: GibbsTarget, plan: BilliardPlan, rng: np.random.Generator
) -> Array:
    """Return one of the `DispersedStarts` of a plan."""
    return DispersedStarts(target, plan).draw(rng)


class DispersedStarts:
    """Random starts, each the end of a flight from the center without force.

    The boundary reflects a flight of 2 units of time, which leaves the starts more
    dispersed than the target, also at a boundary, where shortened Gaussian steps would
    not. In many dimensions, or up a steep gradient, the energy may be so high that all
    leaps are rejected. Then the start comes down in up to 30 transitions of at most 20
    leaps, whose step is tuned there, until its energy is low or rises, and transitions
    of the plan can leave it.
    """

    def __init__(self, target: GibbsTarget, plan: BilliardPlan) -> None:
        self.target, self.plan = target, plan
        self.flights = billiard.FreeFlights(target, plan)
        self.fill = _compile_filler(target, plan)
        short = plan._replace(max_leaps=20, has_kicks=1)
        self.fill_short = _compile_filler(target, short)

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a start."""
        target, plan = self.target, self.plan
        state = self._fly(plan.mass.spread(rng.standard_normal(plan.mass.num_white)))
        half_rank = 0.5 * plan.mass.rank
        arguments = target.numbers, target.pieces, plan.center, state.work
        # The energy of a Gaussian has the mean rank / 2 and the variance rank / 2.
        deviation = math.sqrt(half_rank)
        low = target.calls.energy(*arguments) + half_rank + HIGH * deviation
        tuning = billiard.new_tuning(plan.step, target_rate=TARGET_RATE)
        state.workspace.tuning[:] = tuning
        draws, stats = np.empty((1, target.dim)), np.empty((1, NUM_STATS))
        energy, energy_before = float(state.energy[0]), math.inf
        for _ in range(30):
            may_stay = energy <= low or energy > energy_before
            start = state.position.copy()
            if may_stay and self._can_leave(state, rng):
                return start
            raise_unless_ok(self.fill_short(state, rng, draws, stats), target)
            energy, energy_before = float(state.energy[0]), energy
        return state.position.copy()

    def _fly(self, velocity: Array) -> ChainState:
        """Return a state at the end of a flight, where the energy is finite."""
        # A user's density may be 0 at the end of the flight. Then a shorter one is
        # made.
        for duration in 2.0 * 0.7 ** np.arange(50):
            start = self.flights.end(
                position=self.plan.center, velocity=velocity, duration=duration
            )
            state = billiard.init(self.target, self.plan, start)
            if not (self.target.may_be_infinite and state.energy[0] == math.inf):
                break
        return state

    def _can_leave(self, state: ChainState, rng: np.random.Generator) -> bool:
        """Return whether one of a few transitions of the plan leaves a position.

        There are 50 of a plan with kicks. A plan without kicks has 8, because in the
        tails it may reject all of them, and a start that needs many is too far out.
        """
        draws, stats = np.empty((1, self.target.dim)), np.empty((1, NUM_STATS))
        start, is_tuned = state.position.copy(), state.workspace.tuning["is_on"][0]
        state.workspace.tuning["is_on"] = False
        for _ in range(50 if self.plan.has_kicks else 8):
            raise_unless_ok(self.fill(state, rng, draws, stats), self.target)
            if (draws[0] != start).any():
                return True
        state.workspace.tuning["is_on"] = is_tuned
        return False


def _leap_work(target: GibbsTarget, plan: BilliardPlan) -> float:
    """Return multiply-adds of a gradient and its product with the metric.

    A leap without kicks evaluates an energy, which takes half of it.
    """
    return (target.gradient_work + float(plan.mass.rank) ** 2) * (
        1.0 if plan.has_kicks else 0.5
    )


def _step_work(target: GibbsTarget, window: _Window) -> float:
    """Return multiply-adds that take as long as a transition of all pilot chains."""
    bounce, leap = _bounce_work(target), BOUNCE_WORK + _leap_work(target, window.plan)
    return NUM_PILOTS * (window.leaps * leap + window.bounces * bounce)


def _bounce_work(target: GibbsTarget) -> float:
    """Return multiply-adds that take as long as a reflection.

    Where Newton's method searches the exit of a norm they are 15 times as many.
    """
    num_facets = len(target.numbers.body.matrix)
    if num_facets > billiard.MANY_FACETS:
        return BOUNCE_WORK + num_facets
    exit_function = billiard.find_exit_function(target.domain, target.dim)
    work = BOUNCE_WORK + 50.0 * target.dim
    return work * (15.0 if exit_function is exits.convex_exit else 1.0)


def _to_unit_length(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def is_settled(white: Array, share: float, step: float, normal: Array | None) -> bool:
    """Return whether whitened draws look like draws of a standard Gaussian.

    ``share`` is the number of effective draws per draw. The chains must also agree: an
    R-hat of 1.1 is allowed, and of 1.2 if draws are few. Along the whitened ``normal``
    of a sphere they need not: see `barrier_fit`. The eigenvalues of the covariance of N
    independent draws of rank r lie within (1 +- sqrt(r / N))^2. Twice this distance is
    allowed, and a factor of two in addition. If draws are few, the smallest eigenvalue
    shows nothing, but directions that are shorter than the metric's would need small
    steps.
    """
    rank = white.shape[2]
    flat = white.reshape(-1, rank)
    covariance = flat.T @ flat / len(flat)
    if normal is not None:
        covariance = _with_unit_variance(covariance, normal)
    eigenvalues = np.linalg.eigvalsh(covariance)
    if len(flat) < 4 * rank:
        edge = (1.0 + math.sqrt(rank / (share * len(flat)))) ** 2
        is_long_enough = bool(eigenvalues[-1] < 1.6 * edge)
        return is_long_enough and step > 0.5 and largest_r_hat(white) < 1.2
    edge = min(0.7, math.sqrt(4.0 * rank / len(flat)))
    low, high = 0.5 * (1.0 - edge) ** 2, 1.6 * (1.0 + edge) ** 2
    is_alike = bool(eigenvalues[0] > low and eigenvalues[-1] < high)
    return is_alike and largest_r_hat(white) < 1.1


def _with_unit_variance(covariance: Array, normal: Array) -> Array:
    """Return a covariance with variance 1 along a unit vector, unchanged across it."""
    along = np.outer(normal, normal)
    across = np.eye(len(normal)) - along
    return np.asarray(across @ covariance @ across + along)


def root_of(white: Array, share: float, normal: Array | None) -> Array:
    """Return the root of the covariance that whitened draws suggest.

    It is shrunk towards the identity, the metric of the draws, with the weight of rank
    / 2 draws against the number N of effective draws, ``share`` times the draws. If
    there are fewer than 2 rank draws, only eigenvalues that stand out are used, and
    their bias is removed (Baik and Silverstein, 2006, theorem 1.1). A true eigenvalue
    ell is seen as ell (1 + g / (ell - 1)), where g = rank / N.
    """
    rank = white.shape[2]
    flat = white.reshape(-1, rank)
    covariance, num_effective = flat.T @ flat / len(flat), len(flat) * share
    if normal is not None:
        covariance = _with_unit_variance(covariance, normal)
    if len(flat) >= 2 * rank:
        weight, scale = 0.5 * rank, min(1.0, float(np.trace(covariance)) / rank)
        shrunk = num_effective * covariance + weight * scale * np.eye(rank)
        return _factor(shrunk / (num_effective + weight))
    eigenvalues, vectors = np.linalg.eigh(covariance)
    ratio = rank / num_effective
    stands_out = eigenvalues > 1.3 * (1.0 + math.sqrt(ratio)) ** 2
    half = 0.5 * (eigenvalues[stands_out] + 1.0 - ratio)
    true = half + np.sqrt(half**2 - eigenvalues[stands_out])
    outer = vectors[:, stands_out]
    return np.asarray(np.eye(rank) + (outer * (np.sqrt(true) - 1.0)) @ outer.T)


def _factor(covariance: Array) -> Array:
    """Return a root of a covariance, also where rounding has made it indefinite.

    Draws far out, as in a funnel, have variances that the smallest ones drown in.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        if not values[-1] > 0.0:  # no chain has moved
            return np.eye(len(values))
        return np.asarray(
            vectors * np.sqrt(np.maximum(values, 1e-12 * values[-1])), dtype=np.float64
        )


def _learn_plan(
    target: GibbsTarget,
    window: _Window,
    white: Array,
    share: float,
    normal: Array | None,
) -> BilliardPlan:
    """Return a plan with the metric, center and force of a window's draws."""
    shape = window.shape
    if shape.is_dense:
        shape = shape.times_root(root_of(white, share, normal))
    return billiard.new_plan(
        target,
        mass=shape,
        center=window.draws.mean(axis=(0, 1)),
        force=window.mean_slope,
        step=window.plan.step,
        length=window.plan.length,
        max_leaps=window.plan.max_leaps,
        rotates=window.plan.rotates,
    )


def _is_worse(plan: BilliardPlan, best: BilliardPlan) -> bool:
    """Return whether steps of the same kind became much shorter."""
    return plan.has_kicks == best.has_kicks and plan.step < MIN_STEP_RATIO * best.step


def _plan_rotations(
    target: GibbsTarget, plan: BilliardPlan, window: _Window
) -> BilliardPlan | None:
    """Return a plan of rotations, or None if the energy is not quadratic enough.

    The metric is the averaged Hessian. Its widths are at most 8 standard deviations of
    the draws, and 5 in round domains, because where only the boundary confines the
    draws faster flights would merely have more reflections.
    """
    rotation_exit = exits.rotation_exit(
        billiard.find_exit_function(target.domain, target.dim)
    )
    shape = plan.mass
    if rotation_exit is None or not shape.is_dense:
        return None
    basis = hull_basis(target)
    within = times_basis(basis.T, shape.factor)
    slope, hessian = averaged_derivatives(target, basis, plan.center, within @ within.T)
    curvatures, axes = np.linalg.eigh(within.T @ hessian @ within)
    # A log-concave distribution is not wider than its Hessian alone allows, so a
    # curvature above 1 is noise of the draws.
    min_curvature = (5.0 if len(plan.axes) else 8.0) ** -2
    scales = np.sqrt(np.clip(curvatures, min_curvature, 1.0))
    mass = shape.times_root(axes / scales)
    pivot = plan.center - mass.apply(basis @ slope)
    residual = _residual_energies(window, mass, pivot)
    # The Metropolis test decides about the residual alone: with a larger standard
    # deviation or a lower minimum it would reject too often.
    if not (residual.std() < 1.0 and residual.min() > -3.0):
        return None
    return billiard.new_plan(
        target,
        mass=mass,
        center=plan.center,
        force=plan.force,
        pivot=pivot,
        step=plan.length,
        length=plan.length,
        max_leaps=plan.max_leaps,
    )


def _residual_energies(window: _Window, mass: MassMatrix, pivot: Array) -> Array:
    """Return the part of a window's energies that a quadratic omits, centered."""
    heights = 0.5 * np.sum(mass.whiten_rows(window.draws - pivot) ** 2, axis=2)
    residual = window.energies - heights
    return np.asarray(residual - residual.mean())


def _choose_force(pilots: _Pilots, plan: BilliardPlan) -> BilliardPlan:
    """Drop the force unless it raises the acceptance rate of the same step."""
    if not plan.force.any():
        return plan
    free = billiard.without_force(plan)
    with_force, without = (
        pilots.run(option, NUM_PROBES, adapts=False).acceptance
        for option in (plan, free)
    )
    return free if without > with_force else plan


def _choose_rotations(
    pilots: _Pilots,
    before: BilliardPlan,
    plan: BilliardPlan,
    learned: BilliardPlan,
    window: _Window,
) -> tuple[BilliardPlan, float]:
    """Return rotations without kicks if they accept more for their work, or the plan.

    Work includes all leaps and reflections. If the window had rotations already, the
    plan with the smaller residual is taken. The second value is the work of a
    transition. ``before`` is the plan of the window, ``learned`` has its metric, and
    ``plan`` is the alternative.
    """
    target, step_work = pilots.target, _step_work(pilots.target, window)
    # If leaps are nearly always accepted, rotations can hardly be better.
    if before.has_kicks and window.acceptance > 0.97:
        return plan, step_work
    rotations = _plan_rotations(target, learned, window)
    if rotations is None:
        return plan, step_work
    if before.has_kicks == 0:
        spreads = [
            _residual_energies(window, option.mass, option.pull).std()
            for option in (before, rotations)
        ]
        return before if spreads[0] < spreads[1] else rotations, step_work
    rates, bounce_work = [], _bounce_work(target)
    # On a sphere a reflection is a product with the metric, or a change of axes.
    bounce_work *= 2.0 if len(plan.axes) else 1.0
    for option in (plan, rotations):
        probe = pilots.run(option, NUM_PROBES, adapts=False)
        work = TRANSITION_WORK + probe.leaps * _leap_work(target, option)
        rates.append(probe.acceptance / (work + probe.bounces * bounce_work))
    if rates[1] > rates[0]:
        return rotations, _step_work(target, probe)
    return plan, step_work
