"""Metrics: which are offered, what they claim, their law in more dimensions."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import erfcx
from scipy.stats import expon, gamma, norm

import dpsample as dps
from dpsample.samplers.gaussian_fit import minimize
from dpsample.samplers.proximal import envelope_draws, metric
from dpsample.samplers.proximal.alternation import ROW, Support
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES, TRIANGLE
from tests.support.replicates import replicate
from tests.support.statistics import assert_law, assert_same_law, rejected
from tests.support.tiers import usual

L, D = dps.losses, dps.domains


def options(case, oracle="metric"):
    return metric.candidates(case.target, oracle=oracle)


class Envelope(NamedTuple):
    """What the Gaussian of a halfspace reads of a plan."""

    factor: np.ndarray
    spread: float


@pytest.mark.slow
@pytest.mark.parametrize("far", [1e3, 1e8])
def test_a_mean_far_behind_a_halfspace_leaves_draws_their_law(far):
    """Planted: at 1e8 deviations draws had the spacing of the mean, and few values."""
    factor = np.array([[0.3, 0.15, 0.06], [0.0, 0.21, 0.03], [0.0, 0.0, 0.6]])
    normal, covariance = np.array([0.6, 0.0, 0.8]), factor @ factor.T
    size = np.sqrt(normal @ covariance @ normal)
    mean = np.array([0.1, 0.2, 0.55]) + far / size * (covariance @ normal)
    support = Support.empty(3)
    support.normal[:] = normal
    support.status["offset"], support.status["has_halfspace"] = 0.5, True
    arguments = 0, 0, Envelope(factor, 1.0), mean, support
    scratch, rng = np.empty((len(ROW), 3)), np.random.default_rng(3)
    draws = np.empty((4000, 3))
    for out in draws:
        envelope_draws.draw_in_halfspace(*arguments, scratch, rng, out)
    excess = (0.5 - draws @ normal) * far / size
    assert_law(excess, expon.cdf)
    with rejected():
        assert_law(0.85 * excess, expon.cdf)
    # What does not feel the halfspace is a normal.
    free = np.array([1.0, 2.0, -1.0])
    free -= (free @ covariance @ normal) / size**2 * normal
    scale = np.sqrt(free @ covariance @ free)
    assert_law((draws - [0.1, 0.2, 0.55]) @ free / scale, norm.cdf)


def pressed(domain, center, concentration):
    """Gaussian of this many deviations a unit, on a domain beyond its mean."""
    dim = len(center)
    problem = dps.Problem(
        np.zeros((3, dim)), np.zeros(3), loss=L.Linear(), domain=domain, row_bound=1.0
    )
    regularizer = dps.regularizers.SquaredNorm(center=center)
    return dps.Gibbs(problem, k=concentration**2, mu=1.0, regularizer=regularizer)


def drawn(target, num_draws=3000):
    """Draws of steps so long that each forgets the last one."""
    sampler = dps.Proximal(step_size=1e4)
    sample = dps.sample(
        target, num_draws=num_draws, num_chains=1, seed=1, sampler=sampler,
        check=False, progress=False,
    )  # fmt: skip
    return sample.posterior["theta"].to_numpy()[0]


SIMPLEX = D.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.0, 0.0])
FACES = np.array([[2.0**-0.5, 2.0**-0.5], [0.0, -1.0]])  # unit normals at (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("beyond", [0.1, 0.5, 1000.0])
@pytest.mark.parametrize("concentration", [10.0, 1e4])
def test_draws_in_a_corner_have_their_law(concentration, beyond):
    """Behind a halfspace alone, deep ones took 1e7 tries a step or had no end."""
    out = beyond * np.array([2.0, -1.0]) / 5.0**0.5
    draws = drawn(pressed(SIMPLEX, out + [1.0, 0.0], concentration))
    slacks = concentration * ([2.0**-0.5, 0.0] - draws @ FACES.T)
    precision = np.linalg.inv(FACES @ FACES.T)
    rates = precision @ (concentration * FACES @ out)
    grid = np.linspace(0.0, 30.0 / rates[0], 4001)
    # With the other slack integrated out.
    rest = (rates[1] + precision[0, 1] * grid) / np.sqrt(2.0 * precision[1, 1])
    density = np.exp(-rates[0] * grid - 0.5 * precision[0, 0] * grid**2) * erfcx(rest)
    mass = np.cumsum(density) - 0.5 * density
    assert_law(slacks[:, 0], lambda s: np.interp(s, grid, mass / mass[-1]))
    with rejected():
        assert_law(0.7 * slacks[:, 0], lambda s: np.interp(s, grid, mass / mass[-1]))


@usual("acute")
@pytest.mark.parametrize("tilt", [0.0, 3.0, -0.25], ids=["any", "acute", "obtuse"])
def test_draws_in_a_corner_of_many_faces_have_their_law(tilt):
    """Deep in it slacks are exponential, and what keeps them is normal."""
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((5, 6)) + tilt
    walls = np.vstack([rows, np.eye(6), -np.eye(6)])
    domain = D.Polytope(walls, np.repeat([0.0, 5.0], [5, 12]))
    multipliers = np.arange(1.0, 6.0)
    draws = drawn(pressed(domain, rows.T @ multipliers, 1e4))
    slacks = -1e8 * multipliers * (draws @ rows.T)
    assert_law(slacks.sum(axis=1), gamma(5).cdf)
    assert_law(5.0 * slacks.min(axis=1), expon.cdf)
    assert_law(1e4 * draws @ np.linalg.svd(rows)[2][5], norm.cdf)
    with rejected():
        assert_law(0.9 * slacks.sum(axis=1), gamma(5).cdf)


def test_slacks_below_the_spacing_of_doubles_leave_draws_at_the_corner():
    """All were outside by rounding: there was no end."""
    out = 1000.0 * np.array([2.0, -1.0]) / 5.0**0.5
    draws = drawn(pressed(SIMPLEX, out + [1.0, 0.0], 1e8), 20)
    np.testing.assert_allclose(draws, np.tile([1.0, 0.0], (20, 1)), atol=1e-15)


def test_energies_that_have_lost_the_gap_are_refused():
    """Rounding errors of 1e4 would have decided; nobody was told."""
    problem = dps.Problem(
        [[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], loss=L.Logistic(),
        domain=D.Polytope(*TRIANGLE), row_bound=1.0,
    )  # fmt: skip
    target = dps.Gibbs(problem, k=1e20, mu=1.0)
    with pytest.raises(dps.SamplingError, match="rounding errors would decide"):
        dps.Proximal().prepare(target, np.random.default_rng(0))


OFFERED = [
    (D.WholeSpace(), 2.0, ["full"]),
    (D.Ball(1.0), 2.0, ["full", "isotropic"]),
    (D.Ball(1.0, p=1.0), 2.0, ["full"]),
    (D.Ball(1.0, p=np.inf), 2.0, ["full", "diagonal"]),
    (D.Box(0.0, 1.0), 2.0, ["full", "diagonal"]),
    (D.Polytope(*TRIANGLE), 2.0, ["full"]),
    (D.WholeSpace(), 1.5, ["separable"]),
    (D.Box(0.0, 1.0), 1.5, ["separable"]),
    (D.Ball(1.0, p=1.2, center=[1.0, 2.0]), 1.5, ["separable"]),
    (D.Polytope(*TRIANGLE), 1.5, ["full"]),
    # Its radius is that of singular values: no ball of the vectors' l_p norm.
    (D.SchattenBall(1.0, p=1.0, shape=(2, 1)), 1.5, ["full"]),
]


@pytest.mark.parametrize(("domain", "p", "names"), OFFERED)
def test_which_metrics_are_offered(domain, p, names):
    case = example(L.Logistic(), domain, p=p)
    assert [option.name for option in options(case)] == names


def test_only_a_ball_about_the_regularizers_center_is_kept_in_the_draw():
    problem = example(L.Logistic(), D.Ball(1.0, p=1.5)).target.problem
    for center, name in (([0.0, 0.0], "separable"), ([0.1, 0.0], "full")):
        regularizer = dps.regularizers.SquaredNorm(1.5, center=center)
        target = dps.Gibbs(problem, k=10.0, mu=0.1, regularizer=regularizer)
        (option,) = metric.candidates(target, oracle="metric")
        assert option.name == name


def gram(case, weights):
    rows = case.rows
    scaled = rows.T @ (weights[:, None] * rows) / len(rows)
    return case.k * (scaled + case.mu * np.eye(case.dim))


def test_the_curvature_of_the_records_is_that_of_their_margin_intervals():
    """P and its upper bound from B_i, computed here from center, radius and offset."""
    case = CASES["logistic with offset, ball off center"]
    middle = case.rows @ case.center + case.offset
    reach = case.domain.radius * np.linalg.norm(case.rows, axis=1)
    far = np.abs(middle) + reach
    near = np.maximum(0.0, np.abs(middle) - reach)
    lower = gram(case, 1.0 / (2.0 + 2.0 * np.cosh(far)))
    upper = gram(case, 1.0 / (2.0 + 2.0 * np.cosh(near)))
    full, isotropic = options(case)
    np.testing.assert_allclose(full.precision, lower, rtol=1e-6)
    np.testing.assert_allclose(full.upper, upper, rtol=1e-6)
    # Rounded outwards, and P <= Hessian in the order of matrices.
    for option in (full, isotropic):
        assert np.linalg.eigvalsh(lower - option.precision)[0] > 0.0
        assert np.linalg.eigvalsh(option.upper - upper)[0] > 0.0
    smallest = np.linalg.eigvalsh(lower)[0]
    np.testing.assert_allclose(isotropic.precision, smallest * np.eye(2), rtol=1e-6)


def test_the_diagonal_metric_is_the_largest_multiple_of_the_diagonal():
    full, diagonal = options(example(L.Logistic(), D.Box(-1.0, 1.0), k=60.0, dim=3))
    ratio = np.diag(diagonal.precision) / np.diag(full.precision)
    np.testing.assert_allclose(ratio, ratio[0])
    rest = np.linalg.eigvalsh(full.precision - diagonal.precision)
    assert 0.0 < rest[0] < 1e-6 * rest[-1]


def test_the_tangent_oracle_uses_the_regularizer_alone():
    case = CASES["logistic on a ball"]
    for option in options(case, oracle="tangent"):
        strength = case.k * case.mu * np.eye(2)
        np.testing.assert_allclose(option.precision, strength, rtol=1e-6)


def test_eigenvectors_are_taken_once_and_of_no_diagonal_matrix(monkeypatch):
    """In 3000 dimensions they take 3 s; each step of a pilot run took them anew."""
    taken, eigh = [], np.linalg.eigh

    def count(matrix):
        taken.append(matrix)
        return eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", count)
    for oracle, most in (("metric", 1), ("tangent", 0)):
        option = options(example(L.Squared(), D.WholeSpace(), dim=3), oracle)[0]
        first, second = option.plan(0.1), option.plan(0.2)
        assert first.factor is second.factor and first.step < second.step
        assert len(taken) == most
        taken.clear()
        values, basis = eigh(option.precision)
        inverse = (basis / values) @ basis.T
        np.testing.assert_array_equal(first.inverse, inverse)


def test_the_plan_holds_one_matrix_in_four_forms():
    for case in CASES.values():
        for option in options(case):
            plan, dim = option.plan(0.7), case.dim
            for product in (
                plan.factor.T @ plan.precision @ plan.factor,
                plan.inverse @ plan.precision,
                plan.basis @ np.diag(plan.eigenvalues) @ plan.basis.T @ plan.inverse,
            ):
                np.testing.assert_allclose(product, np.eye(dim), atol=1e-9)


# One step in more dimensions than quadrature can do: two samples of exact draws.


def lp_draws(case, rng, count):
    """Exact draws by rejection from the law of the regularizer alone.

    u = N g / |g|_q with |g_i|^q Gamma(1 / q, 1) and k mu r(u) Gamma(dim / 2, 1).
    """
    scale, q = case.shape
    # The mode of a loss with kinks is found roughly: with a margin, checked below.
    lowest = minimize(case.target, mu=0.0)[1] - 0.5
    kept = []
    while sum(map(len, kept)) < count:
        g = rng.gamma(1.0 / q, size=(200_000, case.dim)) ** (1.0 / q)
        g *= rng.choice([-1.0, 1.0], size=g.shape)
        size = np.sqrt(2.0 * rng.gamma(case.dim / 2.0, size=len(g)) / scale)
        size /= np.sqrt(case.k * case.mu)
        u = g * (size / np.linalg.norm(g, ord=q, axis=1))[:, None]
        points = case.center + u
        points = points[case.inside(points)]
        gap = case.k * case.risk(points) - lowest
        assert gap.min() >= 0.0
        kept.append(points[rng.standard_exponential(len(points)) >= gap])
    return np.concatenate(kept)[:count]


def views(case, points):
    """Functions of the draws in which a wrong law shows."""
    direction = np.linspace(-1.0, 1.5, case.dim)
    offset = points - case.center
    yield from (points[:, 0], points[:, -1], points @ direction)
    yield from (case.energy(points), case.regularizer(points))
    yield np.abs(offset).sum(1)


HIGHER = {
    "l_1 ball, p = 1, dim 8": example(
        L.Hinge(), D.Ball(1.0, p=1.0), dim=8, p=1.0, k=8.0, mu=0.3
    ),
    "l_1.5 ball, p = 1.2, dim 5": example(
        L.Absolute(),
        D.Ball(0.8, p=1.5, center=np.ones(5)),
        dim=5,
        p=1.2,
        k=15.0,
        mu=0.3,
    ),
    "plane, p = 1.5, dim 5": example(
        L.Huber(0.5), D.WholeSpace(), dim=5, p=1.5, k=8.0, mu=0.4
    ),
    "ball, dim 4": example(L.Logistic(), D.Ball(1.0), dim=4, k=15.0, mu=0.3),
    "box, dim 3": example(L.Quantile(0.3), D.Box(-0.6, 0.9), dim=3, k=15.0, mu=0.3),
}
COUNT = 16_000


@cache
def exact_halves(name):
    """Starts and a reference, both exact."""
    return np.split(lp_draws(HIGHER[name], np.random.default_rng(1), 2 * COUNT), 2)


def moved(case, option, starts, seed, change=lambda plan: plan):
    step = min(0.5, option.pilot_steps()[0])
    plan = change(option.plan(step))
    rng = np.random.default_rng(seed)
    args = {"step": step, "plan": plan, "num_steps": 4}
    return replicate(case.target, option, starts, rng, **args)


@usual("box, dim 3")
@pytest.mark.parametrize("name", HIGHER)
def test_steps_leave_exact_draws_exact_in_more_dimensions(name):
    case, (starts, reference) = HIGHER[name], exact_halves(name)
    for option in options(case):
        sample = moved(case, option, starts, 2)
        assert case.inside(sample).all()
        for a, b in zip(views(case, sample), views(case, reference), strict=True):
            assert_same_law(a, b)


@usual("box, dim 3")
@pytest.mark.parametrize("name", HIGHER)
def test_a_planted_bug_is_caught_in_more_dimensions(name):
    case, (starts, reference) = HIGHER[name], exact_halves(name)

    def change(plan):
        return plan._replace(step=3.0 * plan.step, squeeze=0)

    option = options(case)[-1]
    sample = moved(case, option, starts[: COUNT // 4], 4, change)
    with rejected():
        for a, b in zip(views(case, sample), views(case, reference), strict=True):
            assert_same_law(a, b)
