"""Peers without gradients: emcee, and the walks of hopsy and polytopewalk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import targets
from numpy.typing import NDArray

Array = NDArray[np.float64]
Result = tuple[Array, dict[str, Any]]
NUM_CHAINS = 2
CHUNK = 25  # draws of emcee between two looks at the clock
# Step sizes of hopsy, of which short runs choose the best.
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
NUM_TRIALS = 100
clock = time.process_time


def emcee(case: targets.Case, seconds: float) -> Result:
    """Affine-invariant ensemble with differential evolution; walkers are chains."""
    import emcee
    from scipy.optimize import minimize

    signed = case.rows * case.labels[:, None]

    def log_density(points: Array) -> Array:
        u = points @ signed.T
        if case.loss == "hinge":
            loss = np.maximum(1.0 - u, 0.0)
        else:
            loss = np.maximum(-u, 0.0) + np.log1p(np.exp(-np.abs(u)))
        square = (points**2).sum(1)
        value = -case.k * (loss.mean(1) + 0.5 * case.mu * square)
        return np.where(square <= case.radius**2, value, -np.inf)

    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    walkers = 4 * case.dim
    ensemble = emcee.EnsembleSampler(
        walkers, case.dim, log_density, vectorize=True, moves=moves
    )
    ensemble.random_state = np.random.RandomState(3).get_state()
    begin = clock()
    mode = minimize(lambda theta: -log_density(theta[None])[0], np.zeros(case.dim)).x
    noise = np.random.default_rng(3).standard_normal((walkers, case.dim))
    points = mode + 0.1 * noise
    state = ensemble.run_mcmc(points, case.num_warmup)
    warm, count = clock() - begin, 0
    ensemble.reset()
    begin = clock()
    while count == 0 or clock() - begin < seconds:
        state, count = ensemble.run_mcmc(state, CHUNK), count + CHUNK
    facts = {"cpu": clock() - begin, "warm": warm, "values": count * walkers}
    facts |= {"passes": facts["values"], "first": 0.0}
    return ensemble.get_chain().transpose(1, 0, 2), facts


def growing(
    draw: Callable[[int], Array], seconds: float, max_count: int
) -> tuple[Array, float, float]:
    """Draws of about that many seconds, CPU seconds of them and of all trials."""
    count, warm = 50, 0.0
    while True:
        begin = clock()
        draws = draw(count)
        spent = clock() - begin
        if spent >= 0.5 * seconds or count >= max_count:
            return draws, spent, warm
        warm += spent
        count = int(min(max_count, count * min(50.0, 1.1 * seconds / max(spent, 1e-4))))


def hopsy_model(case: targets.Case) -> Any:
    """Return hopsy's normal law, a density in NumPy, or None for the uniform law."""
    import hopsy

    if case.has_records or case.rows.any():
        return NumpyModel(case)
    if case.mu > 0.0:
        return hopsy.Gaussian(mean=np.zeros(case.dim), covariance=np.eye(case.dim))
    return None


class NumpyModel:
    """Negative log density of a logistic or linear model, as hopsy calls it."""

    def __init__(self, case: targets.Case) -> None:
        self.signed = case.rows * case.labels[:, None]
        self.k, self.mu, self.is_linear = case.k, case.mu, case.loss == "linear"

    def compute_negative_log_likelihood(self, theta: Array) -> float:
        """Return k (F + mu |theta|^2 / 2)."""
        u = self.signed @ theta.ravel()
        risk = u.mean() if self.is_linear else np.logaddexp(0.0, -u).mean()
        return float(self.k * (risk + 0.5 * self.mu * np.sum(theta**2)))


def hopsy(
    case: targets.Case,
    seconds: float,
    *,
    kind: str = "coordinate",
    is_rounded: bool = False,
) -> Result:
    """Walk with hopsy on a polytope, rounded by PolyRound if wanted.

    Warm-up is the rounding, the choice of a step size and the shorter trial runs.
    """
    import hopsy

    begin, model = clock(), hopsy_model(case)
    problem = hopsy.Problem(case.facets, case.limits, *([model] if model else []))
    if is_rounded:
        problem = hopsy.round(problem)
    start = hopsy.compute_chebyshev_center(problem)
    law = "Gaussian" if model else "Uniform"
    proposal, thinning = {
        "coordinate": (f"{law}CoordinateHitAndRunProposal", case.dim),
        "truncated": ("TruncatedGaussianProposal", 1),
        "billiard": ("BilliardWalkProposal", 1),
    }[kind]
    walks = [
        hopsy.MarkovChain(problem, getattr(hopsy, proposal), starting_point=start)
        for _ in range(NUM_CHAINS)
    ]
    rngs = [hopsy.RandomNumberGenerator(11, c) for c in range(NUM_CHAINS)]

    def draw(count: int) -> Array:
        return np.asarray(
            hopsy.sample(walks, rngs, n_samples=count, thinning=thinning, n_procs=1)[1]
        )

    def step_ess(step_size: float) -> float:
        for walk in walks:
            walk.proposal.stepsize = step_size
        return float(np.min(hopsy.ess(draw(NUM_TRIALS))))

    if isinstance(model, NumpyModel):
        step_ess(max(STEP_SIZES, key=step_ess))
    elif model and kind == "coordinate":
        step_ess(2.0)
    ready = clock() - begin
    draws, cpu, warm = growing(draw, seconds, case.max_draws)
    steps = draws.shape[0] * draws.shape[1] * thinning
    return draws, {"cpu": cpu, "warm": ready + warm, "steps": steps, "first": 0.0}


def polytopewalk(case: targets.Case, seconds: float) -> Result:
    """Hit and run of polytopewalk, thinned by the dimension."""
    from polytopewalk import dense

    start, walk = np.zeros(case.dim), dense.HitAndRun()
    seeds = iter(range(1, 1000))

    def draw(count: int) -> Array:
        def chain(seed: int) -> Array:
            return walk.generateCompleteWalk(
                count * case.dim,
                start,
                case.facets,
                case.limits,
                thin=case.dim,
                seed=seed,
            )

        return np.stack([chain(next(seeds)) for _ in range(NUM_CHAINS)])

    draws, cpu, warm = growing(draw, seconds, case.max_draws)
    drop = draws.shape[1] // 10
    share = 1.0 - drop / draws.shape[1]
    draws_kept = draws[:, drop:]
    steps = draws_kept.shape[0] * draws_kept.shape[1] * case.dim
    facts = {"cpu": share * cpu, "warm": warm + (1.0 - share) * cpu, "first": 0.0}
    return draws_kept, facts | {"steps": steps}
