"""Which sampler suits a target: the ladder of ``sampler="auto"``.

From exact draws down to Hamiltonian ones: each rung is taken if trial runs on streams
of their own say that it works. Their answer does not depend on a seed or a clock: a
target has one. The ladder moves running times only, never the law.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.numerics.mixing import (
    rank_shares,
    split_r_hat,
    wanted_thinning,
    with_squares,
)
from dpsample.samplers.adaptive import billiard_hmc, whitened_slice
from dpsample.samplers.adaptive.billiard_hmc import BilliardHMC
from dpsample.samplers.adaptive.warmup import FORGOTTEN, LAUNCH, WarmUp, warm_up
from dpsample.samplers.adaptive.whitened_slice import (
    FEW_PASSED,
    MAX_PASSED,
    WhitenedSlice,
)
from dpsample.samplers.chain import (
    ACCEPTED,
    NUM_RECORDS,
    NUM_STATS,
    PROPOSALS,
    Prepared,
    PreparedChain,
)
from dpsample.samplers.coordinate.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.coordinate.coordinate_moves import QUADRATIC, conditional_of
from dpsample.samplers.coordinate.slacks import CHORD
from dpsample.samplers.errors import EXHAUSTED, ROUGH, TEXTS, SamplingError
from dpsample.samplers.exact.exact import MAX_DIM, Exact
from dpsample.samplers.gaussian_fit import GaussianFit, fit, reaches_tails, rough_mode
from dpsample.samplers.localized.localized import STUDY_GAMMA, Localized
from dpsample.samplers.localized.prepared import Localization
from dpsample.samplers.metropolis.laplace_independence import LaplaceIndependence
from dpsample.samplers.proximal.proximal import pass_work
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.subsampled import taylor
from dpsample.samplers.subsampled.factorized_metropolis import FactorizedMetropolis
from dpsample.targets.gibbs import Gibbs

FLAT_DOMAINS = ("box", "polytope", "simplex")
# Share of a Gaussian fit inside the domain from which it describes the target.
MOSTLY = 0.5
# Records per coefficient from which losses are close to a quadratic, and records from
# which to look at a few pays for finding them: each takes as long as ten or more in a
# pass over all.
MANY, MANY_RECORDS = 20, 10_000
# Least acceptance of independent proposals, those outside the domain included; and that
# from which they need no more work than other independent draws, or slices.
WORTHWHILE, LIKELY = 0.5, 0.7
NUM_PROBES = 100
OUTWARD = 1e-6  # of the way from an interior point: outside from a wall
# Exact draws to try, and the least share of accepted proposals.
NUM_TRIALS, PRACTICAL = 20, 0.05
# Passes over the records that an independent draw may take, and the most dimensions in
# which one is tried: the chance of a rejection sampler falls exponentially with them.
FEW_PASSES, FEW_DIMS = 5.0, 200
# Multiply-adds charged for a coordinate of a proposal: as long as it takes; in a corner
# more, where leaps were faster on other targets. A draw may take so many leaps.
PROPOSAL, CORNER, FEW_LEAPS = 100.0, 2000.0, 6.0
# Trial run: chains, draws of each that are discarded, and that are looked at.
NUM_CHAINS, NUM_DISCARDED, NUM_LOOKED_AT = 4, 100, 300
# Draws in a row at one state: with an acceptance of a half, 20 are one in a million.
MAX_STAY = 20
# Split R-hat and effective draws per draw of trial runs that pass.
MIXED, EFFECTIVE = 1.05, 0.1
PROPOSED = "close to a Gaussian: independent proposals"
UNSETTLED = "metric that has NOT settled: draw more (target_ess)"
SLICES = "kinks or steep walls: slices along learned axes"
# Maximum number of multiply-adds of a sweep whose chords are computed anew.
MAX_CHORD_WORK = 1_000_000
# Sweeps of the trial run of the slice sampler, and effective draws per sweep that may
# be hoped for before it.
NUM_SWEEPS, HOPED = 100, 0.5


class SamplerChoice(NamedTuple):
    """Sampler, in a few words why this one, and the sampler ready to run."""

    sampler: Sampler
    reason: str
    prepared: Prepared


def choose(target: Gibbs) -> SamplerChoice:
    """Sampler that supports a target and passes its trial."""
    rng = np.random.default_rng(0)
    rank = target.problem.domain.affine_dim(target.dim)
    exact = try_exact(target)
    if exact is not None:
        few = f"{rank} free coefficients"
        why = few if rank <= MAX_DIM else "a Gaussian restricted to the domain"
        why = f"{why}: independent exact draws"
        return SamplerChoice(Exact(), why, exact)
    is_flat = target.problem.domain.name in FLAT_DOMAINS
    if is_flat and conditional_of(target) == QUADRATIC:
        why = "a quadratic energy on a flat-sided domain"
        prepared = CoordinateHitAndRun().prepare(target, rng)
        chain = accept_if_mixing(prepared, rng) if has_short_sweeps(prepared) else None
        if chain is not None:
            return SamplerChoice(CoordinateHitAndRun(), why, chain)
    is_smooth = bool(np.isfinite(taylor.third_derivative(target)))
    acceptance = 0.0
    if not is_mode_on_boundary(target):
        acceptance = independence_acceptance(target, fit(target))
    is_gaussian, is_likely = acceptance >= WORTHWHILE, acceptance >= LIKELY
    is_long = target.problem.num_records >= max(MANY * rank, MANY_RECORDS)
    is_close = is_gaussian and is_smooth and is_long
    is_close = is_close and fit(target).share_inside >= MOSTLY
    if is_close and FactorizedMetropolis().supports(target)[0]:
        why = "close to a Gaussian: few records per draw"
        chain = accept_if_mixing(FactorizedMetropolis().tune_proposal(target, rng), rng)
        if chain is not None and reaches_tails(target, fit(target)):
            return SamplerChoice(FactorizedMetropolis(), why, chain)
    chain = try_independent_proposals(target, rng) if is_likely else None
    if chain is not None:
        return SamplerChoice(LaplaceIndependence(), PROPOSED, chain)
    independent = try_localized(target)
    if independent is not None:
        why = "nearly quadratic where the mass is: independent draws"
        return SamplerChoice(Localized(), why, independent)
    can_slice = WhitenedSlice().supports(target)[0]
    # A sum of other losses than distances to kinks takes as long as ten of them.
    has_kinks = can_slice and whitened_slice.has_kinks(target)
    has_tried = has_kinks and whitened_slice.learns(target)
    chain = try_slices(target, rng, MAX_PASSED) if has_tried else None
    if chain is not None:
        return SamplerChoice(WhitenedSlice(), SLICES, chain)
    chain = (
        try_independent_proposals(target, rng)
        if is_gaussian and not is_likely
        else None
    )
    if chain is not None:
        return SamplerChoice(LaplaceIndependence(), PROPOSED, chain)
    warm = warm_up(target, rng)
    chain = None
    if can_slice and not warm.has_settled and not has_tried:
        chain = try_slices(target, rng, FEW_PASSED)
    elif can_slice and not is_smooth:
        chain = try_slices_in_metric(target, warm, rng)
    if chain is not None:
        return SamplerChoice(WhitenedSlice(), SLICES, chain)
    prepared = billiard_hmc.prepare_chain(target, warm)
    how = "learned metric" if warm.has_settled else UNSETTLED
    return SamplerChoice(BilliardHMC(), f"Hamiltonian draws in a {how}", prepared)


def has_short_sweeps(prepared: PreparedChain) -> bool:
    """Return whether a sweep follows its slacks, or computes few for each chord."""
    body = prepared.target.numbers.body
    work = body.matrix.size * len(body.center)
    return prepared.plan.room.kind != CHORD or work <= MAX_CHORD_WORK


def try_independent_proposals(
    target: Gibbs, rng: np.random.Generator
) -> PreparedChain | None:
    """Chain of independent proposals, if its trial passes and they reach the tails."""
    prepared = LaplaceIndependence().tune_proposal(target, rng)
    chain = accept_if_mixing(prepared, rng)
    return chain if chain and reaches_tails(target, prepared.plan) else None


def accept_if_mixing(
    prepared: PreparedChain, rng: np.random.Generator
) -> PreparedChain | None:
    """Chain thinned as wanted, if short ones from dispersed starts agree and move.

    A state that refuses many proposals is one of a tail that they do not reach.
    """
    draws, stats = _trial_draws(prepared, rng, NUM_DISCARDED, NUM_LOOKED_AT)
    both = with_squares(draws)
    shares = rank_shares(draws)
    is_mixed = split_r_hat(both) <= MIXED and shares.min() >= EFFECTIVE
    if not is_mixed or _longest_stay(draws) > MAX_STAY:
        return None
    target = prepared.target
    work = LAUNCH + 2.0 * target.dim * float(np.mean(stats[:, :, NUM_RECORDS]))
    thinning = wanted_thinning(shares, work)
    num_warmup = math.ceil(FORGOTTEN / float(shares.min()) / thinning)
    return replace(
        prepared, num_steps=prepared.num_steps * thinning, num_warmup=num_warmup
    )


def _longest_stay(draws: Array) -> int:
    """Most draws (chain, draw, dim) in a row that are the same."""
    longest = 0
    for moved in (np.diff(draws, axis=1) != 0.0).any(axis=2):
        ends = np.concatenate([[-1], np.flatnonzero(moved), [len(moved)]])
        longest = max(longest, int(np.diff(ends).max()))
    return longest


def try_exact(target: Gibbs) -> PreparedChain | None:
    """Chain of exact draws, if there are any that are not refused for long.

    In few dimensions other failures than that are the target's, and raise.
    """
    if not Exact().supports(target)[0]:
        return None
    rng = np.random.default_rng(0)
    draws, stats = np.empty((NUM_TRIALS, target.dim)), np.empty((NUM_TRIALS, NUM_STATS))
    try:
        prepared = Exact().prepare(target, rng)
        state = prepared.init()
        prepared.runner()(state, rng, draws, stats)
    except SamplingError as error:
        is_steep = str(error) in (TEXTS[EXHAUSTED], TEXTS[ROUGH])
        if is_steep or target.problem.domain.affine_dim(target.dim) > MAX_DIM:
            return None
        raise
    is_practical = state.counts[ACCEPTED] > PRACTICAL * state.counts[PROPOSALS]
    return prepared if is_practical else None


def draws_exactly(target: Gibbs) -> bool:
    """Return whether exact draws exist and a few tries are not refused for long."""
    return try_exact(target) is not None


def try_localized(target: Gibbs) -> Prepared | None:
    """Rejection on the localized region, if it takes little work."""
    if target.dim > FEW_DIMS or not Localized().supports(target)[0]:
        return None
    place = Localization.find(target, STUDY_GAMMA)
    prepared = None if place is None else place.prepare(np.random.default_rng(0))
    if prepared is None or not prepared.is_practical:
        return None
    each = target.dim * (CORNER if prepared.has_corner_proposal else PROPOSAL)
    most = FEW_LEAPS * (LAUNCH + 2.0 * pass_work(target))
    if prepared.acceptances_per_proposal * most < each:
        return None
    return prepared if prepared.expected_passes <= FEW_PASSES else None


def try_slices(
    target: Gibbs, rng: np.random.Generator, most: float
) -> PreparedChain | None:
    """Slice sampler in axes that it learns itself, if they settle."""
    warm = whitened_slice.learn_axes(target, fit(target), rng, most)
    if not warm.has_settled:
        return None
    chain = whitened_slice.prepare_chain(target, warm, warm.num_steps)
    return replace(chain, num_warmup=warm.num_discarded(chain.num_steps))


def try_slices_in_metric(
    target: Gibbs, warm: WarmUp, rng: np.random.Generator
) -> PreparedChain | None:
    """Slice sampler in the billiard's metric, if its draws need fewer operations.

    Operations are counted, not timed: the answer is the same on every machine.
    """
    if not warm.shape.is_dense:
        return None
    most = warm.autocorrelation_time * warm.work
    sweep = warm.shape.rank * whitened_slice.move_cost(target)
    if sweep >= HOPED * most:
        return None
    dear = 1.0 if whitened_slice.has_kinks(target) else whitened_slice.DEARER
    prepared = whitened_slice.prepare_chain(target, warm)
    _, stats = _trial_draws(prepared, rng, 0, 2)
    if sweep + dear * np.mean(stats[:, :, NUM_RECORDS]) >= HOPED * most:
        return None
    draws, stats = _trial_draws(prepared, rng, NUM_SWEEPS // 4, NUM_SWEEPS)
    sweep += dear * float(np.mean(stats[:, :, NUM_RECORDS]))
    shares = rank_shares(draws)
    is_mixed = split_r_hat(draws) < whitened_slice.ALIKE
    if sweep >= shares.min() * most or not is_mixed:
        return None
    return replace(prepared, num_steps=wanted_thinning(shares, sweep))


def _trial_draws(
    prepared: Prepared, rng: np.random.Generator, num_discarded: int, num_draws: int
) -> tuple[Array, Array]:
    """Draws (chain, draw, dim) of chains from dispersed starts, and statistics."""
    fill, draws, stats = prepared.runner(), [], []
    for _ in range(NUM_CHAINS):
        pauses.notify_listeners()
        state = prepared.init(prepared.draw_start(rng))
        path = np.empty((num_discarded + num_draws, prepared.target.dim))
        notes = np.empty((len(path), NUM_STATS))
        fill(state, rng, path, notes)
        draws.append(path[num_discarded:])
        stats.append(notes[num_discarded:])
    return np.array(draws), np.array(stats)


def is_mode_on_boundary(target: Gibbs) -> bool:
    """Whether a wall holds the mode: it cuts off half of any Gaussian about it."""
    mode, domain = rough_mode(target), target.problem.domain
    outward = OUTWARD * (mode - domain.interior_point(target.dim))
    return not target._is_inside(mode + outward)


def independence_acceptance(target: Gibbs, gaussian: GaussianFit) -> float:
    """Rough acceptance of proposals from the Gaussian fit, by a few probes."""
    shape = (NUM_PROBES, gaussian.factor.shape[1])
    noise = np.random.default_rng(0).standard_normal(shape)
    points = gaussian.center + noise @ gaussian.factor.T
    log_weights = np.full(NUM_PROBES, -np.inf)
    given, work = (target.numbers, target.pieces), target.new_work()
    for i, point in enumerate(points):
        if target._is_inside(point):
            energy = target.calls.energy(*given, point, work)
            log_weights[i] = 0.5 * noise[i] @ noise[i] - energy
    inside = log_weights[np.isfinite(log_weights)]
    if inside.size == 0:
        return 0.0
    # From a draw, which is a probe chosen by weight, to a probe.
    gain = np.minimum(inside[None, :] - inside[:, None], 0.0)
    weights = np.exp(inside - inside.max())
    accepted = (weights / weights.sum()) @ np.exp(gain).mean(axis=1)
    return float(accepted * inside.size / NUM_PROBES)
