"""Which sampler suits a target: the rules of ``sampler="auto"``.

They look at the dimension, the domain, the loss and a Gaussian fit, not at a stream: a
target has one answer. A rule moves running times only, never the law.
"""

import numpy as np

from dpsample.samplers.chain import ACCEPTED, NUM_STATS, PROPOSALS
from dpsample.samplers.coordinate.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.coordinate.coordinate_moves import QUADRATIC, conditional_of
from dpsample.samplers.coordinate.hit_and_run import HitAndRun
from dpsample.samplers.errors import SamplingError
from dpsample.samplers.exact.exact import MAX_DIM, Exact
from dpsample.samplers.gaussian_fit import GaussianFit, fit
from dpsample.samplers.localized.localized import STUDY_GAMMA, Localized, Place
from dpsample.samplers.metropolis.laplace_independence import LaplaceIndependence
from dpsample.samplers.metropolis.tilted_gibbs import TiltedGibbs
from dpsample.samplers.proximal import metric
from dpsample.samplers.proximal.proximal import Proximal
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.subsampled import taylor
from dpsample.samplers.subsampled.factorized_metropolis import FactorizedMetropolis
from dpsample.targets.gibbs import Gibbs

FLAT_DOMAINS = ("box", "polytope", "simplex")
# Share of a Gaussian fit inside the domain from which it describes the target.
MOSTLY = 0.5
# Records per coefficient from which losses are close to a quadratic.
MANY = 20
# Least acceptance of independent proposals, those outside the domain included.
WORTHWHILE = 0.2
NUM_PROBES = 100
# Exact draws to try, and the least share of accepted proposals.
NUM_TRIALS, PRACTICAL = 20, 0.05
# Passes over the records that an independent draw may take.
FEW_PASSES = 5.0
# Dimension from which lines in random directions mix too slowly.
MODERATE = 30


def choose(target: Gibbs) -> tuple[Sampler, str]:
    """Sampler that supports a target, and in a few words why this one."""
    domain = target.problem.domain
    rank = domain.affine_dim(target.dim)
    if draws_exactly(target):
        few = f"{rank} free coefficients"
        why = few if rank <= MAX_DIM else "a Gaussian restricted to the domain"
        return Exact(), f"{why}: independent exact draws"
    if domain.name in FLAT_DOMAINS and conditional_of(target) == QUADRATIC:
        return CoordinateHitAndRun(), "a quadratic energy on a flat-sided domain"
    gaussian = fit(target)
    is_smooth = bool(np.isfinite(taylor.third_derivative(target)))
    is_gaussian = independence_acceptance(target, gaussian) >= WORTHWHILE
    is_long = target.problem.num_records >= MANY * rank
    is_close = is_smooth and is_long and gaussian.share_inside >= MOSTLY
    if is_gaussian and is_close and FactorizedMetropolis().supports(target)[0]:
        return FactorizedMetropolis(), "close to a Gaussian: few records per draw"
    if localizes(target):
        return Localized(), "nearly quadratic where the mass is: independent draws"
    if is_gaussian:
        return LaplaceIndependence(), "close to a Gaussian: independent proposals"
    # A regularizer that counts and has unbounded curvature, as for p < 2.
    _, upper = target.regularizer.curvature_l2(target.dim)
    is_rough = target.mu > 0.0 and not np.isfinite(upper)
    if (is_rough or gaussian.share_inside < MOSTLY) and has_inner_draws(target):
        why = "regularizer" if is_rough else "boundary near the mode"
        return Proximal(), f"a {why} that makes the target unlike a Gaussian"
    if domain.name in FLAT_DOMAINS:
        return CoordinateHitAndRun(), "a flat-sided domain: exact draws along the axes"
    if rank <= MODERATE and not (is_smooth and gaussian.share_inside >= MOSTLY):
        return HitAndRun(), "kinks or a boundary, few dimensions: exact draws on lines"
    return TiltedGibbs(), "slope and shape of the target in each proposal"


def draws_exactly(target: Gibbs) -> bool:
    """Whether exact draws exist and, tried a few times, are not refused for long."""
    if not Exact().supports(target)[0]:
        return False
    if target.problem.domain.affine_dim(target.dim) > MAX_DIM:
        return True
    rng = np.random.default_rng(0)
    draws, stats = np.empty((NUM_TRIALS, target.dim)), np.empty((NUM_TRIALS, NUM_STATS))
    try:
        prepared = Exact().prepare(target, rng)
        state = prepared.init()
        prepared.runner()(state, rng, draws, stats)
    except SamplingError:
        return False
    return bool(state.counts[ACCEPTED] > PRACTICAL * state.counts[PROPOSALS])


def localizes(target: Gibbs) -> bool:
    """Whether rejection on the localized region takes few passes over the records."""
    if not Localized().supports(target)[0]:
        return False
    place = Place.of(target, STUDY_GAMMA)
    prepared = None if place is None else place.prepare(np.random.default_rng(0))
    if prepared is None or not prepared.is_practical:
        return False
    return prepared.expected_passes <= FEW_PASSES


def has_inner_draws(target: Gibbs) -> bool:
    """Whether the proximal sampler need not wait for a draw to fall into the domain."""
    if not Proximal().supports(target)[0]:
        return False
    names = {option.name for option in metric.candidates(target, oracle="metric")}
    return target.problem.domain.name == "whole_space" or names != {"full"}


def independence_acceptance(target: Gibbs, gaussian: GaussianFit) -> float:
    """Rough acceptance of proposals from the Gaussian fit, by a few probes."""
    shape = (NUM_PROBES, gaussian.factor.shape[1])
    noise = np.random.default_rng(0).standard_normal(shape)
    points = gaussian.center + noise @ gaussian.factor.T
    log_weights = np.full(NUM_PROBES, -np.inf)
    for i, point in enumerate(points):
        if target.problem.domain.contains(point):
            log_weights[i] = 0.5 * noise[i] @ noise[i] - target.energy(point)
    inside = log_weights[np.isfinite(log_weights)]
    if inside.size == 0:
        return 0.0
    # From a draw, which is a probe chosen by weight, to a probe.
    gain = np.minimum(inside[None, :] - inside[:, None], 0.0)
    weights = np.exp(inside - inside.max())
    accepted = (weights / weights.sum()) @ np.exp(gain).mean(axis=1)
    return float(accepted * inside.size / NUM_PROBES)
