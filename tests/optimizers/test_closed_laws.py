"""Certified draws against closed forms: Gamma energies, truncated Gaussians."""

import numpy as np
import pytest
from scipy import integrate, special

import dpsample as dps
from tests.support.replicates import certified
from tests.support.statistics import assert_law, rejected

L, D, R = dps.losses, dps.domains, dps.regularizers
COUNT, GAMMA = 4_000, 1e-5


def draws_of(problem, regularizer, *, k, mu, seed=1):
    target = dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)
    rng = np.random.default_rng(seed)
    prepared = dps.Proximal().prepare(target, rng, gamma=GAMMA)
    return certified(prepared, GAMMA, COUNT, rng)


def empty_problem(dim):
    """Records without features: the energy is the regularizer alone."""
    return dps.Problem(
        np.zeros((2, dim)),
        [1.0, -1.0],
        loss=L.Linear(),
        domain=D.WholeSpace(),
        row_bound=1.0,
    )


REGULARIZERS = [
    *(pytest.param(R.SquaredNorm(p), 4, id=f"p={p}") for p in (1.2, 1.5, 2.0, 3.0)),
    pytest.param(R.SquaredNorm(1.0), 4, id="p=1, small dim"),
    pytest.param(R.SquaredNorm(1.0), 12, id="p=1, large dim"),
    pytest.param(R.SquaredNorm(1.0, variant="printed"), 5, id="p=1, printed"),
    pytest.param(R.SchattenSquared(2.0, shape=(3, 2)), 6, id="Schatten 2"),
    pytest.param(R.SchattenSquared(1.5, shape=(2, 2)), 4, id="Schatten 1.5"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("regularizer", "dim"), REGULARIZERS)
def test_energy_of_a_homogeneous_target_is_gamma(regularizer, dim):
    k, mu = 3.0, 0.5
    sample = draws_of(empty_problem(dim), regularizer, k=k, mu=mu)
    energies = np.array([k * mu * regularizer.value(theta) for theta in sample])
    assert_law(energies, lambda v: special.gammainc(dim / 2.0, v))
    with rejected():  # the law of one dimension less
        assert_law(energies, lambda v: special.gammainc((dim - 1) / 2.0, v))


def linear_problem(domain, dim):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(5, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    response = np.array([1.0, 1.0, -1.0, 1.0, -0.5])
    return dps.Problem(rows, response, loss=L.Linear(), domain=domain, row_bound=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 5])
def test_linear_losses_on_a_ball_give_the_truncated_gaussian(dim):
    problem = linear_problem(D.Ball(1.0), dim)
    k, mu = 30.0, 0.1
    sample = draws_of(problem, None, k=k, mu=mu)
    slope = problem.data.response @ problem.data.dense / problem.num_records
    axis, size = slope / np.linalg.norm(slope), np.linalg.norm(slope)

    def density(w):
        # N(slope / mu, I / (k mu)) along the axis, times the mass across it.
        room = 0.5 * k * mu * (1.0 - w * w)
        along = (
            -0.5 * k * mu * (w - size / mu) ** 2 + 0.5 * k * mu * (1 - size / mu) ** 2
        )
        return np.exp(along) * special.gammainc((dim - 1) / 2.0, room)

    def cdf(values):
        grid = np.linspace(-1.0, 1.0, 40_001)
        mass = integrate.cumulative_simpson(density(grid), x=grid, initial=0.0)
        return np.interp(values, grid, mass / mass[-1])

    assert_law(sample @ axis, cdf)
    with rejected():
        assert_law(-(sample @ axis), cdf)


@pytest.mark.parametrize("dim", [2, 5])
def test_linear_losses_on_a_box_give_truncated_normals(dim):
    problem = linear_problem(D.Box(-0.6, 0.9), dim)
    k, mu = 30.0, 0.5
    sample = draws_of(problem, R.SquaredNorm(2.0, center=np.zeros(dim)), k=k, mu=mu)
    means = problem.data.response @ problem.data.dense / problem.num_records / mu
    root = np.sqrt(k * mu)
    for j in range(dim):
        low, high = special.ndtr(root * (np.array([-0.6, 0.9]) - means[j]))

        def cdf(v, j=j, low=low, high=high):
            return (special.ndtr(root * (v - means[j])) - low) / (high - low)

        assert_law(sample[:, j], cdf)
    with rejected():
        assert_law(sample[:, 0] + 0.3, lambda v: np.clip(cdf(v, j=0), 0.0, 1.0))
