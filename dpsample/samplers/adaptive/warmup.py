"""Warm-up of the adaptive samplers: metric, force, step and thinning, then frozen.

Four pilot chains take turns in one stream, so that nothing depends on threads; every
decision follows from draws and counts, so that nothing depends on the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.numerics.mixing import (
    lag_share,
    rank_shares,
    split_r_hat,
    wanted_thinning,
    with_squares,
)
from dpsample.samplers.adaptive import billiard, exits
from dpsample.samplers.adaptive.barrier_fit import barrier_fit
from dpsample.samplers.adaptive.billiard import LENGTH, MAX_LEAPS, BilliardPlan
from dpsample.samplers.adaptive.mass_matrix import MassMatrix
from dpsample.samplers.chain import (
    ENERGY,
    NUM_STATS,
    ChainState,
    Settings,
    compile_filler,
)
from dpsample.samplers.errors import raise_unless_ok
from dpsample.samplers.gaussian_fit import averaged_derivatives, hull_basis
from dpsample.targets.gibbs import Gibbs, times_basis

NUM_PILOTS, SEGMENT = 4, 10
WINDOWS = (30, 60, 120, 240, 480, 960, 1920)  # transitions of each pilot chain
SETTLED = 60  # shortest window that may be the last
LONG_STEP = 0.5  # in standard deviations: no direction is much shorter than it seems
# Multiply-adds that windows may take, some five seconds; half for the trial.
MAX_WORK = 3e10
WORSE = 0.5  # relative step of a window from whose metric one goes back to the last
AIM = 0.7  # acceptance probability
DISPERSION = 2.0  # time of the flight from the center to a start
# Energy that is too high for a start, in standard deviations of a Gaussian's, and the
# transitions, of few leaps, in which it comes down; those of the plan that are tried.
HIGH, DESCENT, FEW_LEAPS, NUM_TRIES = 7.0, 30, 20, 50
NUM_FLIGHTS = 8  # of those without kicks, which a state in the tails may all refuse
FORGOTTEN = 10.0  # autocorrelation times after which a start is forgotten
NUM_TRIAL = 100  # draws of each chain that settle the thinning
ALIKE = 1.2  # split R-hat of chains from other starts
NUM_PROBES = 10  # transitions of each chain that decide whether a force pays
MAX_THINNING = 20
# Flights without kicks: most standard deviations of their metric between flat and round
# walls, and what the quadratic may leave out, as a standard deviation and at least.
# Leaps that are nearly always accepted stay.
WIDEST, WIDEST_ROUND, ROUGH, LOWEST, ALWAYS = 8.0, 5.0, 1.0, 3.0, 0.97
# Multiply-adds that take as long as a bounce, or a leap on few records, and those of a
# bounce for each coefficient; twice as many on a sphere, and where a norm is searched.
BOUNCE, BOUNCE_EACH, SEARCHED = 1000.0, 50.0, 15.0
LAUNCH = 1e4  # multiply-adds that take as long as a transition on few records


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmUp:
    """What the pilot chains have learned."""

    plan: BilliardPlan
    shape: MassMatrix  # of the draws, where flights turn in another metric
    shares: Array  # effective draws per transition, of theta_i and theta_i^2
    has_settled: bool  # whether the last window passed its test
    leaps: float  # gradients of a transition, on average
    work: float = math.inf  # multiply-adds of a transition

    @property
    def autocorrelation_time(self) -> float:
        """Largest one, in transitions."""
        return float(1.0 / self.shares.min())

    @property
    def num_steps(self) -> int:
        """Transitions for a draw, so that draws of the default length pass."""
        return min(wanted_thinning(self.shares, self.work), MAX_THINNING)

    def num_discarded(self, num_steps: int) -> int:
        """Draws of so many transitions that take a dispersed start to the target."""
        return math.ceil(FORGOTTEN * self.autocorrelation_time / num_steps)

    @property
    def settings(self) -> Settings:
        """What attributes of the draws say of it."""
        return {
            "autocorrelation_time": self.autocorrelation_time,
            "has_settled": int(self.has_settled),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Window:
    """Draws of the pilot chains in one plan, its step at the end, and its cost."""

    plan: BilliardPlan
    shape: MassMatrix
    draws: Array  # (NUM_PILOTS, draws, dim), without the first quarter
    energies: Array  # (NUM_PILOTS, draws)
    mean_slope: Array  # (dim,)
    acceptance: float
    leaps: float  # per transition
    bounces: float


class _Pilots:
    """Pilot chains of a target, in one stream."""

    def __init__(
        self, target: Gibbs, plan: BilliardPlan, rng: np.random.Generator
    ) -> None:
        self.target, self.rng = target, rng
        self.states = [
            billiard.init(target, plan, disperse(target, plan, rng))
            for _ in range(NUM_PILOTS)
        ]

    def run(
        self,
        plan: BilliardPlan,
        width: int,
        *,
        shape: MassMatrix | None = None,
        adapts: bool = True,
    ) -> _Window:
        """Advance all chains by ``width`` transitions.

        While a step is tuned they take turns, a segment each.
        """
        target = self.target
        tuning = billiard.new_tuning(plan.step, rate=AIM)
        tunes = adapts and plan.has_kicks == 1
        tuning[billiard.IS_TUNED] = float(tunes)
        energies = np.empty((NUM_PILOTS, width))
        draws = np.empty((NUM_PILOTS, width, target.dim))
        stats = np.empty((width, NUM_STATS))
        fill = _filler(target, plan)
        skipped = -(-width // (4 * SEGMENT)) * SEGMENT if adapts else 0
        size = SEGMENT if tunes else skipped or width
        for begin in range(0, width, size):
            part = slice(begin, min(begin + size, width))
            for state, path, heights in zip(self.states, draws, energies, strict=True):
                pauses.notify_listeners()
                if begin in (0, skipped):
                    state.own.report[:] = state.own.slopes[:] = 0.0
                state.own.tuning[:] = tuning
                rows = path[part], stats[: part.stop - begin]
                raise_unless_ok(fill(state, self.rng, *rows))
                heights[part] = rows[1][:, ENERGY]
                tuning[:] = state.own.tuning
        kept = NUM_PILOTS * (width - skipped)
        report = np.sum([state.own.report for state in self.states], axis=0)
        slopes = np.sum([state.own.slopes for state in self.states], axis=0)
        step = math.exp(tuning[billiard.MEAN_LOG_STEP]) if tunes else plan.step
        return _Window(
            plan=plan._replace(step=step),
            shape=plan.mass if shape is None else shape,
            draws=draws[:, skipped:],
            energies=energies[:, skipped:],
            mean_slope=slopes / kept,
            acceptance=float(report[billiard.ALL_ACCEPTANCE]) / kept,
            leaps=float(report[billiard.ALL_LEAPS]) / kept,
            bounces=float(report[billiard.ALL_BOUNCES]) / kept,
        )


def _filler(target: Gibbs, plan: BilliardPlan) -> Callable[..., int]:
    """As `chain.compile_filler`, for a plan."""
    pieces = billiard.step_pieces(target, plan)
    return compile_filler(billiard.run, target.numbers, pieces, plan)


def warm_up(
    target: Gibbs,
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
        step=min(0.5 / fit.mass.rank**0.25, length),
        length=length,
        max_leaps=max_leaps,
    )
    shape = fit.mass
    pilots = _Pilots(target, plan, rng)
    work, has_settled = 0.0, False
    best: _Window | None = None
    for turn, width in enumerate(WINDOWS):
        window = pilots.run(plan, width, shape=shape)
        pace = _pace(target, window)
        work += width * pace
        if best is not None and _is_worse(window.plan, best.plan):
            plan, shape, pace = best.plan, best.shape, _pace(target, best)
        else:
            best, plan = window, window.plan
            white = shape.whiten_rows(window.draws - window.draws.mean(axis=(0, 1)))
            share = lag_share(with_squares(white))
            normal = (
                None if fit.normal is None else _unit(shape.whiten_rows(fit.normal))
            )
            has_settled = width >= SETTLED and is_settled(
                white, share, plan.step, normal
            )
        following = WINDOWS[turn + 1 : turn + 2]
        is_over = has_settled or not following
        if is_over or work + following[0] * pace > MAX_WORK:
            if plan.has_kicks:
                learned = _learned(target, best, white, share, normal)
                plan, pace = _turning_if_worth(pilots, plan, plan, learned, best)
            # Rotations may leave the time for windows that kicks would have taken.
            if is_over or plan.has_kicks or work + following[0] * pace > MAX_WORK:
                break
            shape = learned.mass
        elif window is best:
            before, learned = plan, _learned(target, window, white, share, normal)
            shape = learned.mass
            plan = _worth(pilots, learned) if turn == 0 else learned
            plan, _ = _turning_if_worth(pilots, before, plan, learned, window)
    assert best is not None
    # Now of the coefficients, for whose draws the thinning is.
    shares, leaps = rank_shares(best.draws), best.leaps
    share = float(shares.min())
    lag = min(math.ceil(0.5 / share), MAX_THINNING)
    most = int(0.5 * MAX_WORK / pace)
    length = min(NUM_TRIAL * lag, most)
    if length >= NUM_TRIAL:
        # From new starts, as chains will: a step may be too long to come from there.
        skipped = min(math.ceil(FORGOTTEN / share), most)
        anew = _Pilots(target, plan, rng)
        trial = anew.run(plan, skipped + length, adapts=False)
        draws, leaps = trial.draws[:, skipped:], trial.leaps
        shares = rank_shares(draws)
        has_settled = has_settled and split_r_hat(draws) < ALIKE
    return WarmUp(
        plan=plan,
        shape=shape,
        shares=shares,
        has_settled=has_settled,
        leaps=leaps,
        work=LAUNCH + leaps * _leap_cost(target, plan),
    )


def disperse(target: Gibbs, plan: BilliardPlan, rng: np.random.Generator) -> Array:
    """Random start: the end of a free flight from the center that walls reflect.

    A long flight leaves the starts more spread than the target, also near walls, where
    shortened Gaussian steps would not. In many dimensions, or up a steep slope, that
    may be so high that all leaps are refused: it comes down by leaps tuned there, until
    its energy is low or rises, and leaps of the plan are made there.
    """
    velocity = plan.mass.spread(rng.standard_normal(plan.mass.num_white))
    start = billiard.flight(
        target, plan, position=plan.center, velocity=velocity, duration=DISPERSION
    )
    state, half = billiard.init(target, plan, start), 0.5 * plan.mass.rank
    given = target.numbers, target.pieces, plan.center, state.work
    low = target.calls.energy(*given) + half + HIGH * math.sqrt(half)
    state.own.tuning[:] = billiard.new_tuning(plan.step, rate=AIM)
    short = plan._replace(max_leaps=FEW_LEAPS, has_kicks=1)
    fill = _filler(target, short)
    draws, stats = np.empty((1, target.dim)), np.empty((1, NUM_STATS))
    energy, before = float(state.energy[0]), math.inf
    for _ in range(DESCENT):
        may_stay = energy <= low or energy > before
        start = state.position.copy()
        if may_stay and _moves(target, plan, state, rng):
            return start
        raise_unless_ok(fill(state, rng, draws, stats))
        energy, before = float(state.energy[0]), energy
    return state.position.copy()


def _moves(
    target: Gibbs, plan: BilliardPlan, state: ChainState, rng: np.random.Generator
) -> bool:
    """Whether one of so many transitions of the plan leaves a position."""
    fill = _filler(target, plan)
    draws, stats = np.empty((1, target.dim)), np.empty((1, NUM_STATS))
    start, is_tuned = state.position.copy(), state.own.tuning[billiard.IS_TUNED]
    state.own.tuning[billiard.IS_TUNED] = 0.0
    for _ in range(NUM_TRIES if plan.has_kicks else NUM_FLIGHTS):
        raise_unless_ok(fill(state, rng, draws, stats))
        if (draws[0] != start).any():
            return True
    state.own.tuning[billiard.IS_TUNED] = is_tuned
    return False


def _leap_cost(target: Gibbs, plan: BilliardPlan) -> float:
    """Multiply-adds of a gradient and its product with the metric, or of an energy."""
    data = target.data
    passes = 2.0 * (data.dense.size + data.values.size) + 10.0 * data.num_records
    return (passes + float(plan.mass.rank) ** 2) * (1.0 if plan.has_kicks else 0.5)


def _pace(target: Gibbs, window: _Window) -> float:
    """Multiply-adds that take as long as a transition of all pilot chains."""
    bounce, leap = _bounce_cost(target), BOUNCE + _leap_cost(target, window.plan)
    return NUM_PILOTS * (window.leaps * leap + window.bounces * bounce)


def _bounce_cost(target: Gibbs) -> float:
    """Multiply-adds of a bounce between flat walls, or where a norm is searched."""
    is_searched = exits.find_exit_function(target.problem.domain) is exits.convex_exit
    return (BOUNCE + BOUNCE_EACH * target.dim) * (SEARCHED if is_searched else 1.0)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def is_settled(white: Array, share: float, step: float, normal: Array | None) -> bool:
    """Whether the draws look like a standard Gaussian's in the metric they came from.

    Along the whitened ``normal`` of a sphere they need not: see `barrier_fit`. The
    eigenvalues of the covariance of N independent draws of rank r lie within (1 +-
    sqrt(r / N))^2; twice that is granted, and a factor of two beyond. Where draws are
    few the least eigenvalue says nothing, but directions that are shorter than they
    seem would need small steps.
    """
    rank = white.shape[2]
    flat = white.reshape(-1, rank)
    covariance = flat.T @ flat / len(flat)
    if normal is not None:
        covariance = _kept_along(covariance, normal)
    eigenvalues = np.linalg.eigvalsh(covariance)
    if len(flat) < 4 * rank:
        edge = (1.0 + math.sqrt(rank / (share * len(flat)))) ** 2
        is_long_enough = bool(eigenvalues[-1] < 1.6 * edge)
        return is_long_enough and step > LONG_STEP and split_r_hat(white) < 1.2
    edge = min(0.7, math.sqrt(4.0 * rank / len(flat)))
    low, high = 0.5 * (1.0 - edge) ** 2, 1.6 * (1.0 + edge) ** 2
    is_alike = bool(eigenvalues[0] > low and eigenvalues[-1] < high)
    return is_alike and split_r_hat(white) < 1.1


def _kept_along(covariance: Array, normal: Array) -> Array:
    """Covariance with variance 1 along a unit vector, and the same across it."""
    along = np.outer(normal, normal)
    across = np.eye(len(normal)) - along
    return np.asarray(across @ covariance @ across + along)


def root_of(white: Array, share: float, normal: Array | None) -> Array:
    """Root of the covariance that draws of a standard Gaussian's metric suggest.

    It is shrunk towards the metric that they come from, with the weight of rank / 2
    draws against as many as there are effectively. Of too few draws the eigenvalues
    that stand out are believed, less their bias (Baik and Silverstein, 2006, theorem
    1.1): 1 <- ell (1 + g / (ell - 1)) for a true one of ell, g = rank / N.
    """
    rank = white.shape[2]
    flat = white.reshape(-1, rank)
    covariance, known = flat.T @ flat / len(flat), len(flat) * share
    if normal is not None:
        covariance = _kept_along(covariance, normal)
    if len(flat) >= 2 * rank:
        weight, scale = 0.5 * rank, min(1.0, float(np.trace(covariance)) / rank)
        shrunk = (known * covariance + weight * scale * np.eye(rank)) / (known + weight)
        return np.linalg.cholesky(shrunk)
    eigenvalues, vectors = np.linalg.eigh(covariance)
    few = rank / known
    stands_out = eigenvalues > 1.3 * (1.0 + math.sqrt(few)) ** 2
    half = 0.5 * (eigenvalues[stands_out] + 1.0 - few)
    true = half + np.sqrt(half**2 - eigenvalues[stands_out])
    outer = vectors[:, stands_out]
    return np.asarray(np.eye(rank) + (outer * (np.sqrt(true) - 1.0)) @ outer.T)


def _learned(
    target: Gibbs, window: _Window, white: Array, share: float, normal: Array | None
) -> BilliardPlan:
    """Plan with the metric, center and force of a window's draws."""
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
    )


def _is_worse(plan: BilliardPlan, best: BilliardPlan) -> bool:
    """Whether leaps of the same kind became much shorter."""
    return plan.has_kicks == best.has_kicks and plan.step < WORSE * best.step


def _turning(target: Gibbs, plan: BilliardPlan, window: _Window) -> BilliardPlan | None:
    """Plan of rotations between walls; None if the energy is not quadratic enough.

    The metric is the averaged Hessian, at least that of so many standard deviations:
    where walls alone hold the draws, faster flights would only bounce.
    """
    can_turn = exits.find_rotation_exit(target.problem.domain) is not None
    shape = plan.mass
    if not can_turn or not shape.is_dense:
        return None
    basis = hull_basis(target)
    within = times_basis(basis.T, shape.factor)
    slope, hessian = averaged_derivatives(target, basis, plan.center, within @ within.T)
    curvatures, axes = np.linalg.eigh(within.T @ hessian @ within)
    # A log-concave law is no wider than its Hessian alone allows: more is noise.
    least = (WIDEST_ROUND if len(plan.axes) else WIDEST) ** -2
    mass = shape.times_root(axes / np.sqrt(np.clip(curvatures, least, 1.0)))
    pivot = plan.center - mass.apply(basis @ slope)
    rest = _rest(window, mass, pivot)
    if not (rest.std() < ROUGH and rest.min() > -LOWEST):
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


def _rest(window: _Window, mass: MassMatrix, pivot: Array) -> Array:
    """Return what a quadratic leaves out of a window's energies, less its mean."""
    heights = 0.5 * np.sum(mass.whiten_rows(window.draws - pivot) ** 2, axis=2)
    rest = window.energies - heights
    return np.asarray(rest - rest.mean())


def _worth(pilots: _Pilots, plan: BilliardPlan) -> BilliardPlan:
    """Drop the force unless it raises the acceptance of the same step."""
    if not plan.force.any():
        return plan
    free = billiard.without_force(plan)
    with_force, without = (
        pilots.run(option, NUM_PROBES, adapts=False).acceptance
        for option in (plan, free)
    )
    return free if without > with_force else plan


def _turning_if_worth(
    pilots: _Pilots,
    before: BilliardPlan,
    plan: BilliardPlan,
    learned: BilliardPlan,
    window: _Window,
) -> tuple[BilliardPlan, float]:
    """Rotations without kicks, if they are known and accept more for their work.

    Work is that of all leaps and bounces. Where the window had rotations already, it
    is enough that they, or those before, still suit its draws. Beside them their pace.
    """
    pace = _pace(pilots.target, window)
    if before.has_kicks and window.acceptance > ALWAYS:
        return plan, pace
    turning = _turning(pilots.target, learned, window)
    if turning is None:
        return plan, pace
    if before.has_kicks == 0:  # the one that leaves out less
        spreads = [_rest(window, p.mass, p.pull).std() for p in (before, turning)]
        return before if spreads[0] < spreads[1] else turning, pace
    rates, bounce = [], _bounce_cost(pilots.target)
    bounce *= 2.0 if len(plan.axes) else 1.0
    for option in (plan, turning):
        found = pilots.run(option, NUM_PROBES, adapts=False)
        work = LAUNCH + found.leaps * _leap_cost(pilots.target, option)
        rates.append(found.acceptance / (work + found.bounces * bounce))
    if rates[1] > rates[0]:
        return turning, _pace(pilots.target, found)
    return plan, pace
