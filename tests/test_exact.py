"""Exact draws have the target's law, are independent, and rest on a true envelope."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import dpsample as dps
from dpsample.samplers import (
    Exact,
    SamplingError,
    exact_cells,
    exact_exponential,
    exact_gaussian,
    exact_grid,
)
from dpsample.samplers.chain import ACCEPTED, NUM_STATS, PROPOSALS, VALUES
from tests.gibbs_cases import example
from tests.gibbs_targets import CASES
from tests.replicates import law_margin
from tests.statistics import assert_law, assert_mean, assert_same_law, rejected

D, L, R = dps.domains, dps.losses, dps.regularizers
INF = np.inf


def prepare(target):
    return Exact().prepare(target, np.random.default_rng(1))


def run(prepared, seed, count, plan=None):
    """Draws, statistics and counts."""
    dim = prepared.start.size
    draws, stats = np.full((count, dim), np.nan), np.empty((count, NUM_STATS))
    prepared = prepared if plan is None else replace(prepared, plan=plan)
    state = prepared.init()
    prepared.runner()(state, np.random.default_rng(seed), draws, stats)
    return draws, stats, state.counts


# Slope and interval.
DENSITIES = [
    (2.0, -1.0, 3.0),
    (-2.0, -1.0, 3.0),
    (1e-13, 5.0, 6.0),
    (-1e-7, 5.0, 6.0),
    (0.0, -2.0, 1.0),
    (400.0, 0.0, 0.5),
    (0.7, 2.0, INF),
    (-0.7, -INF, 2.0),
]


@pytest.mark.parametrize(("slope", "low", "high"), DENSITIES)
def test_exponential_densities(slope, low, high):
    def density(x):
        return np.exp(-slope * x)

    mass = quad(density, low, high, epsabs=0.0)[0]
    log_mass = exact_exponential.log_mass(slope, low, high)
    assert log_mass == pytest.approx(np.log(mass), rel=1e-7, abs=1e-7)
    mean, variance = exact_exponential.moments(slope, low, high)
    first = quad(lambda x: x * density(x), low, high)[0] / mass
    second = quad(lambda x: (x - first) ** 2 * density(x), low, high)[0] / mass
    assert mean == pytest.approx(first, rel=2e-3)
    assert variance == pytest.approx(second, rel=2e-3)
    rng = np.random.default_rng(2)
    drawn = np.array(
        [exact_exponential.draw(rng, slope, low, high) for _ in range(4000)]
    )
    assert (drawn >= low).all()
    assert (drawn <= high).all()

    def cdf(x, slope=slope):
        log_part = [exact_exponential.log_mass(slope, low, max(v, low)) for v in x]
        return np.exp(np.array(log_part) - exact_exponential.log_mass(slope, low, high))

    if low == -INF:
        low, high, slope, drawn = -high, INF, -slope, -drawn
    assert_law(drawn, lambda x: cdf(x, slope))
    with rejected():
        assert_law(drawn, lambda x: cdf(x, 1.5 * slope + np.copysign(0.7, slope)))


@pytest.mark.parametrize("edge", [(0.5, -INF, 1.0), (-0.5, 1.0, INF), (0.0, 0.0, INF)])
def test_a_density_without_mass_bound_is_seen(edge):
    assert exact_exponential.log_mass(*edge) == INF


FAST = (
    "hinge",
    "absolute on the line",
    "logistic with offset, ball off center",
    "hinge on the plane",
    "linear on a box",
    "squared on the plane",
    "quantile, p = 1, l_1 ball",
    "hinge on a triangle",
    "logistic on a nuclear-norm ball",
)
SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in FAST
]


@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_draws_have_the_law(name):
    case = CASES[name]
    prepared = prepare(case.target)
    draws, stats, counts = run(prepared, 2, 8000)
    assert case.inside(draws).all()
    np.testing.assert_allclose(stats[:, 0], case.energy(draws), rtol=1e-9, atol=1e-9)
    assert law_margin(case, draws) <= 1.0
    assert counts[ACCEPTED] == 8000
    assert counts[ACCEPTED] >= 0.9 * counts[PROPOSALS]
    assert counts[VALUES] <= counts[PROPOSALS]
    assert prepared.num_warmup == 0


def test_wrong_masses_and_missing_rejections_are_caught(monkeypatch):
    case = CASES["hinge on the plane"]
    prepared = prepare(case.target)
    shares = np.sqrt(np.diff(prepared.plan.cumulative, prepend=0.0))
    wrong = np.cumsum(shares) / shares.sum()
    draws, _, _ = run(prepared, 2, 8000, prepared.plan._replace(cumulative=wrong))
    assert law_margin(case, draws) > 1.0
    monkeypatch.setitem(exact_grid.MAX_CELLS, 2, 4)
    few = prepare(case.target).plan
    assert len(few.base) == 4
    assert law_margin(case, run(prepared, 2, 8000, few)[0]) <= 1.0
    assert law_margin(case, envelope_draws(few, 2, 8000)) > 1.0


def envelope_draws(plan, seed, count):
    """Proposals, all kept: the coin is missing."""
    rng, z = np.random.default_rng(seed), np.empty(plan.factor.shape[1])
    out = np.empty((count, len(plan.center)))
    for i in range(count):
        exact_cells.propose(plan, rng, z)
        out[i] = plan.center + plan.factor @ z
    return out


def three_dimensions(domain, loss=None, *, dim=3, k=20.0, mu=0.1, regularizer=None):
    """Target with six random records."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6, dim)) / np.sqrt(dim)
    problem = dps.Problem(
        rows,
        np.where(rng.random(6) < 0.5, 1.0, -1.0),
        loss=L.Logistic() if loss is None else loss,
        domain=domain,
        row_bound=10.0,
    )
    return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)


CORNER = D.Polytope(
    np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3))]), [1.0] * 6 + [0.5]
)
BODIES = {
    "ball": three_dimensions(D.Ball(0.8, center=[0.5, 0.0, -0.5]), L.Hinge(), k=10.0),
    "box, steep corner": three_dimensions(D.Box(-1.0, 0.5), k=500.0),
    "polytope": three_dimensions(CORNER, L.Hinge(), regularizer=R.SquaredNorm(1.0)),
    "l_1 ball without weight": three_dimensions(D.Ball(1.0, p=1.0), mu=0.0),
    "nuclear norm": three_dimensions(D.SchattenBall(1.0, p=1.0, shape=(3, 1))),
    "simplex": three_dimensions(D.Simplex(), L.Linear(), dim=4, mu=0.0),
    "simplex, entropy": three_dimensions(
        D.Simplex(), dim=4, mu=1.0, regularizer=R.Entropy()
    ),
    "two dimensions, entropy": three_dimensions(
        D.Simplex(), L.Hinge(), mu=0.5, regularizer=R.Entropy()
    ),
    "space": three_dimensions(D.WholeSpace(), L.Absolute()),
    "space, kinks": three_dimensions(
        D.WholeSpace(), L.Hinge(), mu=0.3, regularizer=R.SquaredNorm(1.05)
    ),
    "halfspace": three_dimensions(D.Polytope([[-1.0, 0.3, 0.1]], [0.2]), L.Hinge()),
}


def points_in(target, rng, count):
    """Random points of the domain, wide in the fit's coordinates."""
    found = dps.samplers.gaussian_fit.fit(target)
    wide = rng.standard_normal((count, found.factor.shape[1])) * 4.0
    points = found.center + wide @ found.factor.T
    return np.array([target.problem.domain.project(x) for x in points])


@pytest.mark.parametrize("name", BODIES)
def test_one_cell_holds_a_point_and_its_tangent_is_below_the_energy(name):
    target = BODIES[name]
    plan = prepare(target).plan
    inverse = np.linalg.pinv(plan.factor)
    for x in points_in(target, np.random.default_rng(4), 300):
        z = inverse @ (x - plan.center)
        holds = ((plan.lower <= z) & (z <= plan.upper)).all(axis=1)
        strictly = ((plan.lower < z) & (z < plan.upper)).all(axis=1)
        assert holds.any()
        assert np.count_nonzero(strictly) <= 1
        bound, size = exact_cells.tangent(plan, int(np.argmax(holds)), z)
        assert bound <= target.energy(x) + 1e-10 * (1.0 + size)
    assert plan.cumulative[-1] == 1.0
    assert (np.diff(plan.cumulative) >= 0.0).all()


@pytest.mark.parametrize("name", BODIES)
def test_half_of_the_proposals_are_accepted_in_three_dimensions(name):
    target = BODIES[name]
    draws, _, counts = run(prepare(target), 5, 2000)
    assert all(map(target.problem.domain.contains, draws))
    assert counts[ACCEPTED] >= 0.5 * counts[PROPOSALS]


def energies(target, points):
    """Energy at every row, in NumPy."""
    data = target.problem.data
    margins = points @ data.dense.T * data.response
    formula = {
        "logistic": lambda u: np.logaddexp(0.0, -u),
        "hinge": lambda u: np.maximum(0.0, 1.0 - u),
        "linear": lambda u: -u,
    }[target.problem.loss.name]
    if isinstance(target.regularizer, R.Entropy):
        penalty = (points * np.log(points)).sum(axis=1)
    else:
        center = target.problem.domain.default_center(target.dim)
        penalty = 0.5 * ((points - center) ** 2).sum(axis=1)
    return target.k * (formula(margins).mean(axis=1) + target.mu * penalty)


def rejection_draws(target, points, rng):
    """Plain rejection from uniform points of the domain."""
    energy = energies(target, points)
    assert energy[0] == pytest.approx(target.energy(points[0]))
    return points[rng.standard_exponential(len(points)) >= energy - energy.min() + 1e-3]


def uniform_points(name, rng, count):
    if name.startswith("simplex"):
        return rng.dirichlet(np.ones(4), size=count)
    z = rng.standard_normal((count, 3))
    radii = rng.random((count, 1)) ** (1.0 / 3.0)
    return BODIES[name].problem.domain.center + 0.8 * radii * (
        z / np.linalg.norm(z, axis=1, keepdims=True)
    )


@pytest.mark.parametrize("name", ["ball", "simplex", "simplex, entropy"])
def test_laws_in_three_dimensions_agree_with_plain_rejection(name):
    target, rng = BODIES[name], np.random.default_rng(6)
    points = uniform_points(name, rng, 100_000)
    expected = rejection_draws(target, points, rng)
    assert len(expected) >= 800
    draws, _, _ = run(prepare(target), 7, 8000)
    for direction in np.vstack([np.eye(target.dim), np.arange(target.dim) - 1.3]):
        assert_same_law(draws @ direction, expected @ direction)
    with rejected():
        assert_same_law(draws[:, 0], points[:, 0])


def test_draws_are_independent():
    case = CASES["hinge on the plane"]
    points, weights = case.law
    mean = weights @ points[:, 0]
    variance = weights @ (points[:, 0] - mean) ** 2

    def products(draws):
        centered = (draws[:, 0] - mean) / np.sqrt(variance)
        return centered[::2] * centered[1::2]

    draws, _, _ = run(prepare(case.target), 8, 40_000)
    assert_mean(products(draws), 0.0, 1.0, detects=0.1)
    walk = dps.samplers.RandomWalk().prepare(case.target, np.random.default_rng(1))
    with rejected():
        assert_mean(products(run(walk, 8, 40_000)[0]), 0.0, 1.0, detects=0.1)


def test_a_tangent_above_the_energy_is_an_error():
    prepared = prepare(CASES["hinge on the plane"].target)
    raised = prepared.plan._replace(base=prepared.plan.base + 1.0)
    with pytest.raises(SamplingError, match="ratio above 1"):
        run(prepared, 1, 1000, raised)


LINEAR = {
    "space": D.WholeSpace(),
    "ball": D.Ball(0.7, center=[0.5, 0.0, -0.5, 0.2, 0.0]),
    "box": D.Box(-0.5, [0.1, 0.2, 0.3, 0.4, 0.5]),
    "cube": D.Ball(0.4, p=INF),
    "Frobenius ball": D.SchattenBall(0.8, p=2.0, shape=(5, 1)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_losses_give_a_restricted_gaussian(name):
    case = example(L.Linear(), LINEAR[name], dim=5, k=5.0, mu=0.5)
    draws, stats, counts = run(prepare(case.target), 2, 20_000)
    assert counts[VALUES] == 0
    assert counts[ACCEPTED] == counts[PROPOSALS]
    np.testing.assert_allclose(stats[:, 0], case.energy(draws), rtol=1e-10, atol=1e-10)
    mean = case.center + (case.response @ case.rows) / len(case.rows) / case.mu
    rng = np.random.default_rng(3)
    plain = mean + rng.standard_normal((400_000, 5)) / np.sqrt(case.k * case.mu)
    expected = plain[case.inside(plain)]
    assert len(expected) >= 1000
    for direction in np.vstack([np.eye(5), np.ones(5)]):
        assert_same_law(draws @ direction, expected @ direction)
    with rejected():
        assert_same_law(draws[:, 0], case.center[0] + 0.5 * draws[:, 0])


def test_the_squared_loss_gives_a_gaussian():
    case = example(L.Squared(), D.WholeSpace(), dim=5, k=7.0, mu=0.2)
    draws, stats, _ = run(prepare(case.target), 2, 20_000)
    np.testing.assert_allclose(stats[:, 0], case.energy(draws), rtol=1e-10)
    count = len(case.rows)
    precision = case.k * (case.rows.T @ case.rows / count + case.mu * np.eye(5))
    mean = np.linalg.solve(precision, case.k * case.rows.T @ case.response / count)
    white = (draws - mean) @ np.linalg.cholesky(precision)
    for direction in np.eye(5):
        assert_law(white @ direction, norm.cdf)
    assert_law((white[:, 0] + white[:, 4]) / np.sqrt(2.0), norm.cdf)
    with rejected():
        assert_law(1.2 * white[:, 0], norm.cdf)


def test_without_weight_a_box_gives_exponentials():
    case = example(L.Linear(), D.Box(-1.0, 2.0), dim=4, k=6.0, mu=0.0)
    draws, stats, _ = run(prepare(case.target), 2, 10_000)
    np.testing.assert_allclose(stats[:, 0], case.energy(draws), rtol=1e-9, atol=1e-9)
    slopes = -case.k * (case.response @ case.rows) / len(case.rows)

    def cdf(x, slope):
        return np.expm1(-slope * (x + 1.0)) / np.expm1(-3.0 * slope)

    for slope, drawn in zip(slopes, draws.T, strict=True):
        assert_law(drawn, lambda x, slope=slope: cdf(x, slope))
    steep = np.argmax(np.abs(slopes))
    with rejected():
        assert_law(draws[:, steep], lambda x: cdf(x, 0.5 * slopes[steep]))


def test_without_weight_and_slope_a_ball_gives_the_uniform_law():
    problem = dps.Problem(
        np.array([[1.0] * 5, [-1.0] * 5]),
        np.ones(2),
        loss=L.Linear(),
        domain=D.Ball(2.0, center=np.ones(5)),
        row_bound=3.0,
    )
    target = dps.Gibbs(problem, k=3.0, mu=0.0)
    draws, stats, _ = run(prepare(target), 2, 10_000)
    assert stats[-1, 0] == pytest.approx(target.energy(draws[-1]))
    radii = np.linalg.norm(draws - 1.0, axis=1) / 2.0
    assert_law(radii, lambda r: r**5)
    with rejected():
        assert_law(radii, lambda r: r**4)


def test_other_targets_are_refused_with_a_remedy():
    logistic = example(L.Logistic(), D.Ball(1.0), dim=4).target
    with pytest.raises(ValueError, match="use dps.samplers.Proximal"):
        prepare(logistic)
    for domain in (D.Simplex(), D.Ball(1.0, p=1.0)):
        assert not Exact().supports(three_dimensions(domain, L.Linear(), dim=5))[0]
    p_norm = R.SquaredNorm(1.5)
    case = three_dimensions(D.WholeSpace(), L.Linear(), dim=5, regularizer=p_norm)
    assert not Exact().supports(case)[0]
    assert exact_gaussian.quadratic(case) is None
    point = three_dimensions(D.Simplex(), dim=1)
    assert "single point" in Exact().supports(point)[1]
