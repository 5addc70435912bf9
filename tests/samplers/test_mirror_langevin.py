"""Mirror Langevin keeps the target invariant on all kinds of domains."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import MirrorLangevin
from dpsample.samplers.chain import COUNT, NUM_STATS
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import TRIANGLE, TWO_DIMENSIONS
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected, assert_same_law, rejected

D, L, R = dps.domains, dps.losses, dps.regularizers
CASES = {
    "linear on a box": TWO_DIMENSIONS["linear on a box"],
    "absolute on a box": TWO_DIMENSIONS["absolute on a box"],
    "ball off center": TWO_DIMENSIONS["logistic with offset, ball off center"],
    "plane": TWO_DIMENSIONS["hinge, p = 1.2, plane"],
    "l_1.5 ball": TWO_DIMENSIONS["squared, p = 1.5, l_1.5 ball"],
    "triangle": example(L.Logistic(), D.Polytope(*TRIANGLE), k=10.0),
    "nuclear": TWO_DIMENSIONS["logistic on a nuclear-norm ball"],
}
NUM_STARTS, NUM_STEPS = 2000, 15


def walk(prepared, starts, seed):
    """Last positions of runs from all starts; the share of accepted proposals."""
    rng, last = np.random.default_rng(seed), np.empty_like(starts)
    plan = prepared.plan
    draws = np.empty((NUM_STEPS, starts.shape[1]))
    stats = np.empty((NUM_STEPS, NUM_STATS))
    target, counts = prepared.target, 0
    contains = target.domain.contains
    for i, start in enumerate(starts):
        state = prepared.init_fn(target, plan, start)
        code, _ = prepared.run(
            target.numbers, target.pieces, plan, state, rng, 1, draws, stats
        )
        assert code == 0
        assert contains(draws[-1])
        last[i] = draws[-1]
        counts = counts + state.counts
    return last, counts[COUNT.accepted] / counts[COUNT.proposals]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_target_is_invariant(name):
    case = CASES[name]
    prepared = MirrorLangevin().prepare(case.target, np.random.default_rng(1))
    starts = case.exact(np.random.default_rng(2), NUM_STARTS)
    drawn, accepted = walk(prepared, starts, 3)
    assert 0.3 < accepted < 0.9
    assert not (drawn == starts).all(axis=1).mean() > 0.05
    assert law_margin(case, drawn) <= 1.0


def barrier_walk(case, starts, seed, mistake=""):
    """Walk on a box with all weights 1, from all starts at once, in NumPy."""
    low, high, rng = case.domain.lower, case.domain.upper, np.random.default_rng(seed)
    slope = -case.k * (case.response @ case.rows) / len(case.rows)
    tau, x = 0.5, starts.copy()

    def dual(x):
        return 1.0 / (high - x) - 1.0 / (x - low)

    def curvature(x):
        return (x - low) ** -2.0 + (high - x) ** -2.0

    def drift(x):
        return dual(x) - tau * (slope + case.k * case.mu * (x - case.center))

    def log_q(x, y):
        square = (dual(y) - drift(x)) ** 2 / (4.0 * tau * curvature(x))
        value = -square - 0.5 * np.log(curvature(x))
        if mistake != "no determinant":
            value += np.log(curvature(y))
        return value.sum(axis=1)

    for _ in range(NUM_STEPS):
        spread = np.sqrt(2.0 * tau * curvature(x))
        y = drift(x) + spread * rng.standard_normal(x.shape)
        half = 0.5 * (high - low)
        y = case.center + y * half**2 / (1.0 + np.sqrt(1.0 + (y * half) ** 2))
        y = np.clip(y, low + 1e-12, high - 1e-12)
        log_ratio = case.energy(x) - case.energy(y)
        if mistake != "no proposal density":
            log_ratio += log_q(y, x) - log_q(x, y)
        if mistake != "no coin":
            accepted = -rng.standard_exponential(len(x)) <= log_ratio
            y = np.where(accepted[:, None], y, x)
        x = y
    return x


def test_the_check_of_invariance_catches_mistakes():
    case = CASES["linear on a box"]
    starts = case.exact(np.random.default_rng(2), NUM_STARTS)
    assert law_margin(case, barrier_walk(case, starts, 3)) <= 1.0
    for mistake in ("no determinant", "no proposal density", "no coin"):
        assert_rejected(law_margin(case, barrier_walk(case, starts, 3, mistake)))


def simplex_target(regularizer, k=30.0):
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(5, 3))
    problem = dps.Problem(
        rows, np.ones(5), loss=L.Logistic(), domain=D.Simplex(), row_bound=10.0
    )
    return dps.Gibbs(problem, k=k, mu=0.2, regularizer=regularizer)


def simplex_draws(target, seed, count):
    """Independent draws by plain rejection from the uniform law."""
    rng = np.random.default_rng(seed)
    points = rng.dirichlet(np.ones(3), size=60 * count)
    data = target.problem.data
    losses = np.logaddexp(0.0, -points @ data.dense.T).mean(axis=1)
    if isinstance(target.regularizer, R.Entropy):
        penalty = (points * np.log(points)).sum(axis=1)
    else:
        penalty = 0.5 * ((points - 1.0 / 3.0) ** 2).sum(axis=1)
    energy = target.k * (losses + target.mu * penalty)
    assert energy[0] == pytest.approx(target.energy(points[0]))
    kept = points[rng.standard_exponential(len(points)) >= energy - energy.min() + 0.01]
    assert len(kept) >= count
    return kept[:count]


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", [R.Entropy(), R.SquaredNorm()])
def test_the_target_on_the_simplex_is_invariant(regularizer):
    target = simplex_target(regularizer)
    prepared = MirrorLangevin().prepare(target, np.random.default_rng(1))
    starts = simplex_draws(target, 2, NUM_STARTS)
    drawn, accepted = walk(prepared, starts, 3)
    fresh = simplex_draws(target, 4, 5 * NUM_STARTS)
    assert 0.3 < accepted < 0.9
    for direction in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, -1.0]):
        assert_same_law(drawn @ direction, fresh @ direction)
    with rejected():
        assert_same_law(drawn[:, 0], (0.9 * fresh + 0.1 / 3.0)[:, 0] ** 1.2)


def test_many_dimensions_on_a_box_mix():
    case = example(L.Logistic(), D.Box(-1.0, 2.0), dim=20, num_records=50, k=50.0)
    prepared = MirrorLangevin().prepare(case.target, np.random.default_rng(1))
    draws, stats = np.empty((5000, 20)), np.empty((5000, NUM_STATS))
    state = prepared.init()
    prepared.runner()(state, np.random.default_rng(2), draws, stats)
    assert 0.4 < state.counts[COUNT.accepted] / state.counts[COUNT.proposals] < 0.75
    assert (case.inside(draws)).all()
    assert stats[-1, 0] == pytest.approx(case.energy(draws[-1:])[0])


def test_a_start_on_the_boundary_is_moved_inside():
    case = CASES["absolute on a box"]
    prepared = MirrorLangevin().prepare(case.target, np.random.default_rng(1))
    state = prepared.init(np.array([-0.5, 1.0]))
    assert (state.position > -0.5).all()
    assert (state.position < 1.0).all()


def test_domains_without_the_map_are_refused_with_a_remedy():
    target = CASES["triangle"].target
    for geometry in ("barrier", "entropy"):
        with pytest.raises(ValueError, match='use geometry="auto"'):
            MirrorLangevin(geometry=geometry).prepare(target, np.random.default_rng(1))
    simplex = simplex_target(R.Entropy())
    assert not MirrorLangevin(geometry="power").supports(simplex)[0]
    assert MirrorLangevin(geometry="power").supports(CASES["ball off center"].target)[0]
    with pytest.raises(ValueError, match="geometry must be one of"):
        MirrorLangevin(geometry="mirror")
