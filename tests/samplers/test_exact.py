"""Exact draws have the target's law, are independent, and rest on a true envelope."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import Exact, SamplingError
from dpsample.samplers.chain import COUNT
from dpsample.samplers.exact import exact, grid_cells
from tests.support.exact_runs import prepare, run, three_dimensions
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.replicates import law_margin
from tests.support.statistics import (
    assert_mean,
    assert_rejected,
    assert_same_law,
    rejected,
)
from tests.support.tiers import one_in, usual

D, L, R = dps.domains, dps.losses, dps.regularizers

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


@usual("linear on a box", "hinge on a triangle", "absolute on the line")
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_draws_have_the_law(name):
    case = CASES[name]
    prepared = prepare(case.target)
    draws, stats, counts = run(prepared, 2, 8000)
    assert case.inside(draws).all()
    np.testing.assert_allclose(stats[:, 0], case.energy(draws), rtol=1e-9, atol=1e-9)
    assert law_margin(case, draws) <= 1.0
    assert counts[COUNT.accepted] == 8000
    assert counts[COUNT.accepted] >= 0.9 * counts[COUNT.proposals]
    assert counts[COUNT.values] <= counts[COUNT.proposals]
    assert prepared.num_warmup == 0


def test_wrong_masses_and_missing_rejections_are_caught(monkeypatch):
    case = CASES["hinge on the plane"]
    prepared = prepare(case.target)
    shares = np.sqrt(np.diff(prepared.plan.cumulative, prepend=0.0))
    wrong = np.cumsum(shares) / shares.sum()
    draws, _, _ = run(prepared, 2, 8000, prepared.plan._replace(cumulative=wrong))
    assert_rejected(law_margin(case, draws))
    monkeypatch.setitem(grid_cells.MAX_CELLS, 2, 4)
    few = prepare(case.target).plan
    assert len(few.base) == 4
    assert law_margin(case, run(prepared, 2, 8000, few)[0]) <= 1.0
    assert_rejected(law_margin(case, envelope_draws(few, 2, 8000)))


def envelope_draws(plan, seed, count):
    """Proposals, all kept: the coin is missing."""
    rng, z = np.random.default_rng(seed), np.empty(plan.factor.shape[1])
    out = np.empty((count, len(plan.center)))
    for i in range(count):
        grid_cells.propose(plan, rng, z)
        out[i] = plan.center + plan.factor @ z
    return out


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
    return np.array([target.domain.project(x) for x in points])


@one_in(15)
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
        bound, size = grid_cells.tangent(plan, int(np.argmax(holds)), z)
        assert bound <= target.energy(x) + 1e-10 * (1.0 + size)
    assert plan.cumulative[-1] == 1.0
    assert (np.diff(plan.cumulative) >= 0.0).all()


@one_in(15)
@pytest.mark.parametrize("name", BODIES)
def test_half_of_the_proposals_are_accepted_in_three_dimensions(name):
    target = BODIES[name]
    draws, _, counts = run(prepare(target), 5, 2000)
    assert all(map(target.domain.contains, draws))
    assert counts[COUNT.accepted] >= 0.5 * counts[COUNT.proposals]


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
        center = target.domain.default_center(target.dim)
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
    with pytest.raises(SamplingError, match="ratio was above 1"):
        run(prepared, 1, 1000, raised)


def test_other_targets_are_refused_with_a_remedy():
    logistic = example(L.Logistic(), D.Ball(1.0), dim=4).target
    with pytest.raises(ValueError, match="use dps.samplers.Proximal"):
        prepare(logistic)
    for domain in (D.Simplex(), D.Ball(1.0, p=1.0)):
        assert not Exact().supports(three_dimensions(domain, L.Linear(), dim=5))[0]
    p_norm = R.SquaredNorm(1.5)
    case = three_dimensions(D.WholeSpace(), L.Linear(), dim=5, regularizer=p_norm)
    assert not Exact().supports(case)[0]
    assert exact.quadratic(case) is None
    with pytest.raises(ValueError, match="single point"):
        three_dimensions(D.Simplex(), dim=1)
