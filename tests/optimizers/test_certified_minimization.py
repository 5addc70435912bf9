"""Certified solvers: the gap is a bound, and both solvers find the minimizer."""

import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import optimize, sparse

import dpsample as dps
from dpsample.optimizers.loop.estimators import ClippedMean, Mean
from dpsample.optimizers.loop.optimizer import Minimization, Recipe
from dpsample.optimizers.loop.solve import enough_steps, fill_tilt
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import logistic, rows_and_labels, squared
from tests.support.descents import descend
from tests.support.tiers import one_in, usual

BALL = dps.domains.Ball
SOLVERS = ("accelerated", "svrg")
DOMAINS = (
    BALL(2.0),
    BALL(0.3),
    BALL(0.4, p=1.0),
    dps.domains.Box([-0.1, 0.0, -0.4], [0.2, 0.05, 0.3]),
    dps.domains.Simplex(),
    dps.domains.WholeSpace(),
)


def solve(problem, seed=0, **fields):
    """Point of one minimization and its linear term."""
    phase = Minimization(**({"smoothness": 0.25, "ridge": 0.05, "gap": 1e-9} | fields))
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    done = descend(problem, recipe, np.random.default_rng(seed))
    tilt = np.zeros(problem.dim)
    size = fields.get("tilt_stddev", 0.0) / problem.num_records
    fill_tilt(np.random.default_rng(seed), size, tilt)
    return done.theta, tilt


def objective(problem, theta, tilt, *, ridge=0.05, center=0.0):
    return (
        problem.risk(theta) + tilt @ theta + 0.5 * ridge * ((theta - center) ** 2).sum()
    )


def reference(problem, tilt, *, ridge=0.05, center=0.0):
    """Minimizer by projected gradients in NumPy, to rounding errors."""
    theta = problem.domain.default_center(problem.dim)
    rows, y = problem.data.dense, problem.data.response
    for _ in range(4000):
        slopes = problem.loss.slope(rows @ theta, y)
        g = slopes @ rows / len(y) + tilt + ridge * (theta - center)
        theta = problem.domain.project(theta - g / (0.25 + ridge))
    return theta


@one_in(22)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_the_gap_that_was_asked_for_holds_on_every_domain(domain, solver):
    problem = logistic(60, 3, domain=domain)
    for gap in (1e-3, 1e-6, 1e-12):
        theta, tilt = solve(problem, gap=gap, solver=solver, tilt_stddev=8.0)
        best = reference(problem, tilt)
        true = objective(problem, theta, tilt) - objective(problem, best, tilt)
        assert -1e-15 <= true <= gap
        assert domain.contains(theta)
        # What privacy uses: strong convexity turns the gap into a distance.
        assert np.linalg.norm(theta - best) <= np.sqrt(2.0 * gap / 0.05) + 1e-12


def test_a_solver_that_stops_early_would_be_found_out():
    problem = logistic(60, 3, domain=BALL(2.0))
    theta, tilt = solve(problem, gap=1e-1, tilt_stddev=8.0)
    best = reference(problem, tilt)
    assert objective(problem, theta, tilt) - objective(problem, best, tilt) > 1e-12


@one_in(3)
@pytest.mark.parametrize("seed", range(5))
def test_certificate_bounds_the_true_gap_at_any_point(seed):
    # The bound of `solve` itself, at points that are not on any solver's way.
    rng = np.random.default_rng(seed)
    problem = logistic(40, 2, domain=BALL(0.8), seed=seed)
    m, top, tilt = 0.07, 0.32, rng.standard_normal(2)
    best = reference(problem, tilt, ridge=m)
    least = objective(problem, best, tilt, ridge=m)
    rows, y = problem.data.dense, problem.data.response
    for scale in (1e-4, 1e-1, 1.0):
        w = problem.domain.project(best + scale * rng.standard_normal(2))
        g = problem.loss.slope(rows @ w, y) @ rows / len(y) + tilt + m * w
        stepped = problem.domain.project(w - g / top)
        moved = ((w - stepped) ** 2).sum()
        bound = (0.5 / m - 0.5 / top) * top**2 * moved
        assert objective(problem, stepped, tilt, ridge=m) - least <= bound + 1e-15
        v = problem.domain.project(w - g / m)
        dual = g @ (w - v) - 0.5 * m * ((w - v) ** 2).sum()
        assert objective(problem, w, tilt, ridge=m) - least <= dual + 1e-15


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_quadratic_is_its_linear_system(solver):
    problem = squared(50, 3, domain=dps.domains.WholeSpace())
    rows, y = problem.data.dense, problem.data.response
    theta, tilt = solve(
        problem, smoothness=1.0, gap=1e-22, solver=solver, tilt_stddev=3.0
    )
    matrix = rows.T @ rows / 50 + 0.05 * np.eye(3)
    expected = np.linalg.solve(matrix, rows.T @ y / 50 - tilt)
    np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_linear_loss_takes_one_step(solver):
    rows, y = rows_and_labels(30, 3)
    problem = Problem(
        rows, y, loss=dps.losses.Linear(), domain=BALL(0.5), row_bound=1.0
    )
    theta, tilt = solve(
        problem, smoothness=0.0, ridge=0.4, solver=solver, tilt_stddev=2.0
    )
    slope = -(y[:, None] * rows).mean(axis=0) + tilt
    expected = problem.domain.project(-slope / 0.4)
    np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-14)


@one_in(2)
@pytest.mark.parametrize("solver", SOLVERS)
def test_ridge_can_be_anchored_at_the_center_of_the_domain(solver):
    center = np.array([0.5, -0.25, 0.125])
    domain = BALL(0.2, center=center)
    problem = logistic(50, 3, domain=domain)
    theta, tilt = solve(problem, is_anchored=True, ridge=0.5, gap=1e-16, solver=solver)
    best = reference(problem, tilt, ridge=0.5, center=center)
    np.testing.assert_allclose(theta, best, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_clipped_gradients_are_those_of_a_convex_objective(solver):
    problem = logistic(50, 3, domain=BALL(3.0))
    rows, y = problem.data.dense, problem.data.response
    sizes = np.linalg.norm(rows, axis=1)

    def gradient(theta):
        slopes = problem.loss.slope(rows @ theta, y)
        slopes = np.clip(slopes, -0.2 / sizes, 0.2 / sizes)
        return slopes @ rows / 50 + 0.05 * theta

    theta, _ = solve(
        problem, estimator=ClippedMean(threshold=0.2), gap=1e-18, solver=solver
    )
    assert np.linalg.norm(gradient(theta)) < 1e-8
    found = optimize.root(gradient, np.zeros(3)).x
    np.testing.assert_allclose(theta, found, rtol=0.0, atol=1e-6)


def test_svrg_on_sparse_records_with_offsets_equals_dense():
    rows, y = rows_and_labels(40, 4)
    rows[np.abs(rows) < 0.3] = 0.0
    offset = np.linspace(-0.5, 0.5, 40)
    points = []
    for features in (rows, sparse.csr_array(rows)):
        problem = Problem(
            features,
            y,
            loss=dps.losses.Logistic(),
            domain=BALL(1.0),
            row_bound=1.0,
            offset=offset,
            offset_bound=0.5,
        )
        for solver in SOLVERS:
            points.append(solve(problem, gap=1e-16, solver=solver)[0])
    for point in points[1:]:
        np.testing.assert_allclose(point, points[0], rtol=0.0, atol=1e-7)


def test_svrg_reads_only_the_records_of_its_phase():
    problem = logistic(40, 3, domain=BALL(2.0))
    rows, y = problem.data.dense, problem.data.response
    part = Problem(
        rows[10:25], y[10:25], loss=problem.loss, domain=problem.domain, row_bound=1.0
    )
    for solver in SOLVERS:
        theta, _ = solve(problem, first=10, last=25, gap=1e-16, solver=solver)
        best, _ = solve(part, gap=1e-16)
        np.testing.assert_allclose(theta, best, rtol=0.0, atol=2e-7)


def test_svrg_counts_two_gradients_a_step_and_one_pass_an_epoch():
    problem = logistic(40, 3, domain=BALL(2.0))
    phase = Minimization(smoothness=0.25, ridge=0.25, gap=1e-10, solver="svrg")
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    done = descend(problem, recipe, np.random.default_rng(0))
    num_epochs, rest = divmod(done.num_gradients - 40, 40 + 2 * 200)
    assert rest == 0 and num_epochs >= 1


def test_a_loss_that_returns_nan_is_an_error():
    problem = logistic(20, 2, domain=dps.domains.WholeSpace())
    problem.data.response[3] = np.nan
    for solver in SOLVERS:
        with pytest.raises(descent.DescentError, match="NaN"):
            solve(problem, solver=solver)


def test_smoothness_that_does_not_hold_is_not_certified(monkeypatch):
    monkeypatch.setattr(descent, "MAX_SOLVER_STEPS", 2000)
    monkeypatch.setattr(descent, "MAX_EPOCHS", 50)
    problem = squared(30, 3, domain=BALL(1e6))
    for solver in SOLVERS:
        with pytest.raises(descent.DescentError):
            solve(problem, smoothness=1e-3, ridge=1e-4, gap=1e-30, solver=solver)


def test_mean_estimators_of_other_kinds_are_refused():
    with pytest.raises(ValueError, match="estimator must be a Mean or ClippedMean"):
        phase = Minimization(ridge=1.0, smoothness=1.0, gap=1.0, estimator=3)
        Recipe(phases=(phase,), event=None, inputs={})
    with pytest.raises(ValueError, match="solver must be one of"):
        phase = Minimization(ridge=1.0, smoothness=1.0, gap=1.0, solver="newton")
        Recipe(phases=(phase,), event=None, inputs={})


def walled(u):
    """Distance beyond the margins of the domain, where nothing is declared."""
    return max(abs(u) - 1.0, 0.0)


@usual("accelerated")
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_gap_holds_for_a_loss_that_is_another_one_outside_the_domain(solver):
    wall = register_jitable(walled)
    loss = dps.losses.custom(
        lambda u, y: 0.05 * (u - 0.9) ** 2 + 1e3 * wall(u) ** 2,
        lambda u, y: 0.1 * (u - 0.9) + 2e3 * np.sign(u) * wall(u),
        slope_bound=5.0,
        upper_curvature=1.0,
    )
    problem = Problem(
        np.ones((10, 1)), np.zeros(10), loss=loss, domain=BALL(1.0), row_bound=1.0
    )
    best = 0.09 / 0.11
    for stddev in (0.0, 1e-9):  # without noise the solver may refuse, but does not
        theta, _ = solve(
            problem,
            smoothness=1.0,
            ridge=0.01,
            estimator=Mean(lipschitz=5.0),
            output_stddev=stddev,
            solver=solver,
        )
        # A gap of 1e-9 is at most sqrt(2e-9 / 0.11) away; the noise is much less.
        assert abs(theta[0] - best) <= 1.4e-4


@pytest.mark.parametrize("domain", DOMAINS[:4], ids=repr)
def test_the_proved_number_of_steps_is_enough_without_a_certificate(
    domain, monkeypatch
):
    def steps_of_a_larger_gap(objective, *rest):
        return enough_steps(objective._replace(gap=1e-7), *rest)

    monkeypatch.setattr(descent, "enough_steps", steps_of_a_larger_gap)
    problem = logistic(60, 3, domain=domain)
    for ridge in (0.3, 0.003):
        fields = {"tilt_stddev": 8.0, "ridge": ridge}
        limited = Mean(lipschitz=1.0)
        theta, tilt = solve(problem, estimator=limited, gap=1e-300, **fields)
        best, _ = solve(problem, gap=1e-15, **fields)
        true = objective(problem, theta, tilt, ridge=ridge)
        assert true - objective(problem, best, tilt, ridge=ridge) <= 1e-7
