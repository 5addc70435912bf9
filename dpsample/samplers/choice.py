"""Choice of a sampler for a target, for ``sampler="auto"``.

The candidates are tried in a fixed order, from independent exact draws to Hamiltonian
ones, and the first that passes its trial is taken. A trial is a short run of a few
chains from dispersed starts: they must agree (split R-hat), move, and have enough
effective draws. Trials have streams of their own and count operations, so the choice
depends on the target only, and not on a seed or a clock. It changes running times, and
never the distribution of the draws.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.numerics.r_hat_and_ess import largest_r_hat, with_squares
from dpsample.samplers.adaptive import billiard_hmc, whitened_slice
from dpsample.samplers.adaptive.billiard_hmc import BilliardHMC
from dpsample.samplers.adaptive.warmup import (
    FORGOTTEN,
    TRANSITION_WORK,
    WarmUp,
    warm_up,
)
from dpsample.samplers.adaptive.whitened_slice import (
    MAX_RECORDS_READ,
    MAX_RECORDS_READ_SHORT,
    WhitenedSlice,
)
from dpsample.samplers.chain import COUNT, NUM_STATS, STAT, Prepared, PreparedChain
from dpsample.samplers.coordinate.chord_slice import ChordSlice
from dpsample.samplers.coordinate.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.coordinate.coordinate_moves import DENSITY, conditional_kind
from dpsample.samplers.coordinate.slacks import KIND
from dpsample.samplers.errors import EXHAUSTED, ROUGH, TEXTS, SamplingError
from dpsample.samplers.exact.exact import MAX_DIM, Exact
from dpsample.samplers.gaussian_fit import GaussianFit, fit, reaches_tails, rough_mode
from dpsample.samplers.localized.localized import STUDY_GAMMA, Localized
from dpsample.samplers.localized.prepared import Localization
from dpsample.samplers.metropolis.laplace_independence import LaplaceIndependence
from dpsample.samplers.modes import draw_start_at
from dpsample.samplers.proximal.proximal import pass_work
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.subsampled import taylor
from dpsample.samplers.subsampled.factorized_metropolis import FactorizedMetropolis
from dpsample.samplers.thinning import rank_shares, wanted_thinning
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import GibbsTarget

# Minimum estimated acceptance rates of independent proposals, of which some may be
# outside the domain. The first one allows a trial. With the second one their trial
# comes before trials of `Localized` and slices.
MIN_ACCEPTANCE = 0.5
HIGH_ACCEPTANCE = 0.7
# Reasons that are reported from more than one place.
PROPOSED = "close to a Gaussian: independent proposals"
SLICES = "a non-smooth loss or a steep boundary: slices along learned axes"


class SamplerChoice(NamedTuple):
    """Sampler, the reason for it as a short text, and the sampler ready to run."""

    sampler: Sampler
    reason: str
    prepared: Prepared


def choose(target: GibbsTarget) -> SamplerChoice:
    """Return the first sampler that supports a target and passes its trial."""
    rng = np.random.default_rng(0)
    if not isinstance(target, Gibbs):
        # The kind of the energy and the domain decide about exact draws, before any
        # trial.
        return _choose_without_records(target, rng)
    exact = try_exact(target)
    if exact is not None:
        rank = target.domain.affine_dim(target.dim)
        density = "a Gaussian restricted to the domain"
        if rank <= MAX_DIM:
            density = f"{rank} free coefficients"
        return SamplerChoice(Exact(), f"{density}: independent exact draws", exact)
    # Conditional distributions of single coordinates are truncated Gaussians then.
    has_facets = target.domain.name in ("box", "polytope", "simplex")
    if has_facets and conditional_kind(target) == DENSITY.quadratic:
        reason = "a quadratic energy on a flat-sided domain"
        prepared = CoordinateHitAndRun().prepare(target, rng)
        chain = accept_if_mixing(prepared, rng) if has_short_sweeps(prepared) else None
        if chain is not None:
            return SamplerChoice(CoordinateHitAndRun(), reason, chain)
    # Proofs for few records need a bounded third derivative.
    is_smooth = bool(np.isfinite(taylor.third_derivative(target)))
    acceptance = 0.0
    if not is_mode_on_boundary(target):
        acceptance = independence_acceptance(target, fit(target))
    if acceptance >= MIN_ACCEPTANCE and is_smooth:
        chain = try_few_records(target, rng)
        if chain is not None:
            reason = "close to a Gaussian: few records per draw"
            return SamplerChoice(FactorizedMetropolis(), reason, chain)
    if acceptance >= HIGH_ACCEPTANCE:
        chain = try_independent_proposals(target, rng)
        if chain is not None:
            return SamplerChoice(LaplaceIndependence(), PROPOSED, chain)
    # Not close to a Gaussian, but perhaps to a quadratic within a region.
    independent = try_localized(target)
    if independent is not None:
        reason = "nearly quadratic where the mass is: independent draws"
        return SamplerChoice(Localized(), reason, independent)
    # A sweep reads all records several times for each axis. Other losses than sums of
    # |s + t C| take ten times as long, and are left to the warm-up.
    is_supported = WhitenedSlice().supports(target)[0]
    learns_axes = (
        is_supported
        and whitened_slice.has_breakpoints(target)
        and whitened_slice.can_learn_axes(target)
    )
    if learns_axes:
        chain = try_slices(target, rng, MAX_RECORDS_READ)
        if chain is not None:
            return SamplerChoice(WhitenedSlice(), SLICES, chain)
    if MIN_ACCEPTANCE <= acceptance < HIGH_ACCEPTANCE:
        chain = try_independent_proposals(target, rng)
        if chain is not None:
            return SamplerChoice(LaplaceIndependence(), PROPOSED, chain)
    return _choose_after_warm_up(target, rng, is_smooth, has_tried_slices=learns_axes)


def _choose_without_records(
    target: GibbsTarget, rng: np.random.Generator
) -> SamplerChoice:
    """Return Hamiltonian draws in a metric that has settled, or slices on chords."""
    warm = warm_up(target, rng)
    if not warm.has_settled:
        chain = accept_if_mixing(ChordSlice().prepare(target, rng), rng)
        if chain is not None:
            reason = "an energy on which Hamiltonian draws do not settle: slices"
            return SamplerChoice(ChordSlice(), reason, chain)
    return _choose_billiard(target, warm)


def _choose_billiard(target: GibbsTarget, warm: WarmUp) -> SamplerChoice:
    """Return Hamiltonian draws in the metric of a warm-up."""
    metric = "learned metric"
    if not warm.has_settled:
        metric = "metric that has NOT settled: draw more (target_ess)"
    prepared = billiard_hmc.prepare_chain(target, warm)
    return SamplerChoice(BilliardHMC(), f"Hamiltonian draws in a {metric}", prepared)


def _choose_after_warm_up(
    target: Gibbs, rng: np.random.Generator, is_smooth: bool, *, has_tried_slices: bool
) -> SamplerChoice:
    """Return Hamiltonian draws in a learned metric, or slices if they are better."""
    warm = warm_up(target, rng)
    can_slice = WhitenedSlice().supports(target)[0]
    chain = None
    if can_slice and not warm.has_settled and not has_tried_slices:
        chain = try_slices(target, rng, MAX_RECORDS_READ_SHORT)
    elif can_slice and not is_smooth:
        chain = try_slices_in_metric(target, warm, rng)
    if chain is not None:
        return SamplerChoice(WhitenedSlice(), SLICES, chain)
    return _choose_billiard(target, warm)


def try_few_records(target: Gibbs, rng: np.random.Generator) -> PreparedChain | None:
    """Return a chain that reads few records per draw, if it passes.

    With 20 records per coefficient the sum of the losses is close to a quadratic. To
    read a single record takes as long as ten or more in a pass over all, so there must
    be 10,000. Half of the Gaussian's mass must be inside the domain.
    """
    rank = target.domain.affine_dim(target.dim)
    has_many_records = target.problem.num_records >= max(20 * rank, 10_000)
    if not has_many_records or fit(target).share_inside < 0.5:
        return None
    if not FactorizedMetropolis().supports(target)[0]:
        return None
    chain = accept_if_mixing(FactorizedMetropolis().tune_proposal(target, rng), rng)
    has_tails = chain is not None and reaches_tails(target, fit(target))
    return chain if has_tails else None


def has_short_sweeps(prepared: PreparedChain) -> bool:
    """Return whether a sweep updates slacks, or takes at most 10^6 multiply-adds."""
    body = prepared.target.numbers.body
    work = body.matrix.size * len(body.center)
    return prepared.plan.body.kind != KIND.chord or work <= 1_000_000


def try_independent_proposals(
    target: Gibbs, rng: np.random.Generator
) -> PreparedChain | None:
    """Return a chain of independent proposals that passes and reaches the tails."""
    prepared = LaplaceIndependence().tune_proposal(target, rng)
    chain = accept_if_mixing(prepared, rng)
    return chain if chain and reaches_tails(target, prepared.plan) else None


def accept_if_mixing(
    prepared: PreparedChain, rng: np.random.Generator
) -> PreparedChain | None:
    """Return the chain, thinned as needed, if short chains agree and move.

    With an acceptance rate of a half, 20 draws in a row at one state have a probability
    of one in a million. Such a state is in a tail that the proposals do not reach.
    """
    draws, stats = _run_trial(prepared, rng, num_discarded=100, num_draws=300)
    shares = rank_shares(draws)
    has_mixed = largest_r_hat(with_squares(draws)) <= 1.05 and shares.min() >= 0.1
    if not has_mixed or _longest_stay(draws) > 20:
        return None
    target = prepared.target
    work = TRANSITION_WORK + 2.0 * target.dim * float(
        np.mean(stats[:, :, STAT.num_records])
    )
    thinning = wanted_thinning(shares, work)
    num_warmup = math.ceil(FORGOTTEN / float(shares.min()) / thinning)
    return replace(
        prepared, num_steps=prepared.num_steps * thinning, num_warmup=num_warmup
    )


def _longest_stay(draws: Array) -> int:
    """Return the maximum number of equal draws (chain, draw, dim) in a row."""
    longest = 0
    for has_moved in (np.diff(draws, axis=1) != 0.0).any(axis=2):
        ends = np.concatenate([[-1], np.flatnonzero(has_moved), [len(has_moved)]])
        longest = max(longest, int(np.diff(ends).max()))
    return longest


def try_exact(target: Gibbs) -> PreparedChain | None:
    """Return a chain of exact draws, if 20 of them need few proposals.

    In few dimensions any other failure is the target's fault, such as a loss that is
    not convex, and is raised.
    """
    if not Exact().supports(target)[0]:
        return None
    rng = np.random.default_rng(0)
    draws, stats = np.empty((20, target.dim)), np.empty((20, NUM_STATS))
    try:
        prepared = Exact().prepare(target, rng)
        state = prepared.init()
        prepared.runner()(state, rng, draws, stats)
    except SamplingError as error:
        is_steep = str(error) in (TEXTS[EXHAUSTED], TEXTS[ROUGH])
        if is_steep or target.domain.affine_dim(target.dim) > MAX_DIM:
            return None
        raise
    is_practical = state.counts[COUNT.accepted] > 0.05 * state.counts[COUNT.proposals]
    return prepared if is_practical else None


def draws_exactly(target: Gibbs) -> bool:
    """Return whether exact draws exist and need few proposals."""
    return try_exact(target) is not None


def try_localized(target: Gibbs) -> Prepared | None:
    """Return rejection sampling in the localized region, if it takes little work.

    It is tried in up to 200 dimensions, because its acceptance rate may fall
    exponentially with them.
    """
    if target.dim > 200 or not Localized().supports(target)[0]:
        return None
    localization = Localization.find(target, STUDY_GAMMA)
    if localization is None:
        return None
    prepared = localization.prepare(np.random.default_rng(0))
    if prepared is None or not prepared.accepts_in_time:
        return None
    # A coordinate of a proposal takes as long as 100 multiply-adds. In a corner it is
    # 2000, because leaps were faster there on other targets. A draw may take as long as
    # six leaps.
    proposal_work = target.dim * (2000.0 if prepared.has_corner_proposal else 100.0)
    max_work = 6.0 * (TRANSITION_WORK + 2.0 * pass_work(target))
    if prepared.acceptances_per_proposal * max_work < proposal_work:
        return None
    return prepared if prepared.expected_passes <= 5.0 else None


def try_slices(
    target: Gibbs, rng: np.random.Generator, max_records_read: float
) -> PreparedChain | None:
    """Return the slice sampler in axes that it learns itself, if they settle."""
    warm = whitened_slice.learn_axes(target, fit(target), rng, max_records_read)
    if not warm.has_settled:
        return None
    chain = whitened_slice.prepare_chain(target, warm, warm.num_steps)
    return replace(chain, num_warmup=warm.num_discarded(chain.num_steps))


def try_slices_in_metric(
    target: Gibbs, warm: WarmUp, rng: np.random.Generator
) -> PreparedChain | None:
    """Return the slice sampler in the billiard's metric, if it needs fewer operations.

    The numbers of operations decide, not times, so the result is the same on every
    machine.
    """
    if not warm.shape.is_dense:
        return None
    billiard_work = warm.autocorrelation_time * warm.work  # for one effective draw
    sweep_work = warm.shape.rank * whitened_slice.move_cost(target)
    # A trial of slices is worth its cost from half an effective draw per sweep on.
    max_sweep_work = 0.5 * billiard_work
    if sweep_work >= max_sweep_work:
        return None
    has_breakpoints = whitened_slice.has_breakpoints(target)
    record_work = 1.0 if has_breakpoints else whitened_slice.LOSS_COST
    prepared = whitened_slice.prepare_chain(target, warm)
    # Two sweeps show how many evaluations a move needs.
    _, stats = _run_trial(prepared, rng, num_discarded=0, num_draws=2)
    num_read = np.mean(stats[:, :, STAT.num_records])
    if sweep_work + record_work * num_read >= max_sweep_work:
        return None
    draws, stats = _run_trial(prepared, rng, num_discarded=25, num_draws=100)
    sweep_work += record_work * float(np.mean(stats[:, :, STAT.num_records]))
    shares = rank_shares(draws)
    has_mixed = largest_r_hat(draws) < whitened_slice.MAX_R_HAT
    if sweep_work >= shares.min() * billiard_work or not has_mixed:
        return None
    return replace(prepared, num_steps=wanted_thinning(shares, sweep_work))


def _run_trial(
    prepared: Prepared, rng: np.random.Generator, *, num_discarded: int, num_draws: int
) -> tuple[Array, Array]:
    """Return draws (chain, draw, dim) from dispersed starts, and statistics."""
    fill, draws, stats = prepared.runner(), [], []
    for i in range(4):  # chains
        pauses.notify_listeners()
        start = draw_start_at(prepared.target, i, rng)
        state = prepared.init(prepared.draw_start(rng) if start is None else start)
        path = np.empty((num_discarded + num_draws, prepared.target.dim))
        path_stats = np.empty((len(path), NUM_STATS))
        fill(state, rng, path, path_stats)
        draws.append(path[num_discarded:])
        stats.append(path_stats[num_discarded:])
    return np.array(draws), np.array(stats)


def is_mode_on_boundary(target: Gibbs) -> bool:
    """Return whether the mode is on the boundary.

    Then the boundary cuts off half of any Gaussian about it. A point that is farther
    from the interior point by a millionth is outside.
    """
    mode, domain = rough_mode(target), target.domain
    outward = 1e-6 * (mode - domain.interior_point(target.dim))
    return not target._is_inside(mode + outward)


def independence_acceptance(target: Gibbs, gaussian: GaussianFit) -> float:
    """Estimate the acceptance rate of proposals from the Gaussian fit, by 100 probes.

    The chain's position is a probe chosen by its weight target / Gaussian.
    """
    num_probes = 100
    shape = (num_probes, gaussian.factor.shape[1])
    noise = np.random.default_rng(0).standard_normal(shape)
    points = gaussian.center + noise @ gaussian.factor.T
    log_weights = np.full(num_probes, -np.inf)
    work = target.new_work()
    for i, point in enumerate(points):
        if target._is_inside(point):
            energy = target.calls.energy(target.numbers, target.pieces, point, work)
            log_weights[i] = 0.5 * noise[i] @ noise[i] - energy
    inside = log_weights[np.isfinite(log_weights)]
    if inside.size == 0:
        return 0.0
    gain = np.minimum(inside[None, :] - inside[:, None], 0.0)
    weights = np.exp(inside - inside.max())
    rate = (weights / weights.sum()) @ np.exp(gain).mean(axis=1)
    return float(rate * inside.size / num_probes)
