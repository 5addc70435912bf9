"""Quadratic energies: exact draws have the closed-form law of their domain."""

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.samplers.chain import COUNT
from tests.support.exact_runs import prepare, run
from tests.support.gibbs_cases import example
from tests.support.statistics import (
    assert_law,
    assert_same_law,
    cdf_from_log_density,
    rejected,
)
from tests.support.tiers import one_in

D, L = dps.domains, dps.losses
INF = np.inf

LINEAR = {
    "space": D.WholeSpace(),
    "ball": D.Ball(0.7, center=[0.5, 0.0, -0.5, 0.2, 0.0]),
    "box": D.Box(-0.5, [0.1, 0.2, 0.3, 0.4, 0.5]),
    "cube": D.Ball(0.4, p=INF),
    "Frobenius ball": D.SchattenBall(0.8, p=2.0, shape=(5, 1)),
}


@one_in(6)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_losses_give_a_restricted_gaussian(name):
    case = example(L.Linear(), LINEAR[name], dim=5, k=5.0, mu=0.5)
    draws, stats, counts = run(prepare(case.target), 2, 20_000)
    assert counts[COUNT.values] == 0
    assert counts[COUNT.accepted] == counts[COUNT.proposals]
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


@pytest.mark.parametrize("dim", [2, 4, 30])
@pytest.mark.parametrize("k", [1e-200, 1e-3, 2.0, 50.0, 1e4, 1e10])
def test_without_weight_a_ball_gives_an_exponential_law(dim, k):
    center, axis = np.linspace(-1.0, 1.0, dim), np.full(dim, dim**-0.5)
    domain, row = D.Ball(2.0, center=center), {"row_bound": 1.0}
    problem = dps.Problem(axis[None], [-1.0], loss=L.Linear(), domain=domain, **row)
    target = dps.Gibbs(problem, k=k, mu=0.0)
    draws, stats, counts = run(prepare(target), 2, 4_000)
    assert counts[COUNT.accepted] == counts[COUNT.proposals]
    assert stats[-1, 0] == pytest.approx(target.energy(draws[-1]), rel=1e-9, abs=1e-9)
    sign = np.sign(target.energy(center + axis) - target.energy(center))
    along = sign * (draws - center) @ axis
    depths, power = along + 2.0, 0.5 * (dim - 1.0)
    grid = np.linspace(0.0, min(4.0, 40.0 * (dim + 1.0) / k), 200_001)[1:-1]
    cdf = cdf_from_log_density(lambda x: power * np.log(x * (4.0 - x)) - k * x, grid)
    assert_law(depths, cdf)
    with rejected():
        assert_law(0.7 * depths, cdf)
    across = draws - center - np.outer(sign * along, axis)
    squares = (across**2).sum(axis=1)
    shares = (squares / (depths * (4.0 - depths))) ** power
    assert_law(shares, lambda x: np.clip(x, 0.0, 1.0))


def test_a_matrix_of_one_entry_is_drawn_from_its_interval():
    domain, row = D.SchattenBall(2.0, p=2.0, shape=(1, 1)), {"row_bound": 1.0}
    problem = dps.Problem([[1.0]], [-1.0], loss=L.Linear(), domain=domain, **row)
    target = dps.Gibbs(problem, k=0.7, mu=0.0)
    draws = run(prepare(target), 2, 4_000)[0][:, 0]
    slope = target.energy(np.ones(1)) - target.energy(np.zeros(1))
    assert_law(draws, lambda x: np.expm1(-slope * (x + 2.0)) / np.expm1(-4.0 * slope))
