"""Minima with proved gaps: closed forms, planted errors, hostile records."""

import warnings

import numpy as np
import pytest
from numba import njit

import dpsample as dps
from dpsample.domains import (
    Ball,
    Box,
    Ellipsoid,
    Intersection,
    Polytope,
    SchattenBall,
    Simplex,
    WholeSpace,
)
from dpsample.minimum import gap as gap_module
from dpsample.minimum.objectives import objective_of, smooth_kink
from dpsample.minimum.search import Search
from tests.support.tiers import one_in

CLOSE = 1e-8


def records(loss, domain, *, n=60, dim=3, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim))
    rows /= np.linalg.norm(rows, axis=1).max()
    y = rows @ rng.normal(size=dim) + 0.3 * rng.normal(size=n)
    y = np.sign(y) if loss.is_classification else scale * y
    bound = None if loss.is_classification else float(np.abs(y).max())
    return dps.Problem(
        rows, y, loss=loss, domain=domain, row_bound=1.0, response_bound=bound
    )


def one_column(y, loss, domain):
    return dps.Problem(
        np.ones((len(y), 1)),
        y,
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=float(np.abs(y).max()),
    )


class TestClosedForms:
    def test_least_squares_on_the_whole_space(self):
        problem = records(dps.losses.Squared(), WholeSpace())
        rows, y = problem.data.dense, problem.data.response
        theta = np.linalg.lstsq(rows, y, rcond=None)[0]
        best = dps.minimizer(problem)
        assert best.theta == pytest.approx(theta, abs=1e-7)
        assert -1e-14 <= best.value - problem.risk(theta) <= best.gap <= CLOSE

    @pytest.mark.parametrize("radius", [0.05, 0.3])
    def test_least_squares_on_an_l1_ball_satisfies_the_optimality_conditions(
        self, radius
    ):
        problem = records(dps.losses.Squared(), Ball(radius, p=1.0), dim=6)
        best = dps.minimizer(problem)
        largest = np.abs(best.dual).max()
        active = np.abs(best.theta) > 1e-9
        assert np.abs(best.theta).sum() == pytest.approx(radius)
        assert best.dual[active] == pytest.approx(
            -largest * np.sign(best.theta[active]), abs=1e-7
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("level", [0.1, 0.5, 0.83])
    @pytest.mark.parametrize("domain", [Box(-1.0, 1.0), WholeSpace()])
    def test_quantiles(self, level, domain):
        y = np.random.default_rng(1).uniform(-0.9, 0.9, 31)
        loss = dps.losses.Quantile(level)
        best = dps.minimizer(one_column(y, loss, domain))
        expected = loss.value(np.quantile(y, level, method="inverted_cdf"), y).mean()
        assert abs(best.value - expected) <= CLOSE
        assert best.gap <= CLOSE

    def test_a_quantile_outside_the_box_is_its_end(self):
        y = np.linspace(0.5, 1.0, 11)
        best = dps.minimizer(one_column(y, dps.losses.Quantile(0.5), Box(-1.0, 0.25)))
        assert best.theta == pytest.approx([0.25], abs=1e-7)

    def test_a_linear_program_on_the_simplex(self):
        rng = np.random.default_rng(2)
        rows = rng.uniform(-0.4, 0.4, (20, 5))
        problem = dps.Problem(
            rows, np.ones(20), loss=dps.losses.Linear(), domain=Simplex(), row_bound=1.0
        )
        best = dps.minimizer(problem)
        costs = -rows.mean(axis=0)
        assert best.value == pytest.approx(costs.min(), abs=CLOSE)
        assert best.theta[np.argmin(costs)] == pytest.approx(1.0, abs=1e-7)

    def test_a_gibbs_target_with_ridge(self):
        problem = records(dps.losses.Squared(), WholeSpace())
        target = dps.Gibbs(problem, k=7.0, mu=0.5)
        rows, y = problem.data.dense, problem.data.response
        system = rows.T @ rows / len(y) + 0.5 * np.eye(3)
        theta = np.linalg.solve(system, rows.T @ y / len(y))
        best = dps.minimizer(target)
        assert best.theta == pytest.approx(theta, abs=1e-7)
        assert best.value == target.energy(best.theta)


LOSSES = [
    dps.losses.Squared(),
    dps.losses.Logistic(),
    dps.losses.Absolute(),
    dps.losses.Hinge(),
]
DOMAINS = [
    Ball(0.4),
    Ball(0.4, p=1.0),
    Ball(0.4, p=1.5),
    Ball(0.4, p=np.inf),
    Box(-0.1, 0.6),
    Simplex(),
    SchattenBall(0.4, p=1.0, shape=(3, 1)),
    Polytope([[1.0, 1.0, 1.0], *(-np.eye(3)).tolist()], [0.7, 0.0, 0.2, 0.2]),
    WholeSpace(),
]


@one_in(4)
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: f"{d.name}{d.lp_exponent}")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_point_is_below_the_proved_minimum(loss, domain):
    problem = records(loss, domain)
    best = dps.minimizer(problem)
    assert best.gap <= CLOSE
    assert domain.contains(best.theta)
    rng = np.random.default_rng(3)
    for size in (1.0, 1e-2, 1e-4):
        for move in size * rng.normal(size=(30, 3)):
            near = problem.risk(domain.project(best.theta + move))
            assert best.excess(near) >= 0.0


def count_uncovered(problem, best):
    """Return the number of points whose gap is below their excess, near and far."""
    objective, rng, count = objective_of(problem), np.random.default_rng(4), 0
    far = rng.uniform(-0.2, 0.2, (20, 3))
    near = [
        problem.domain.project(best.theta + size * move)
        for size in (1e-1, 1e-2, 1e-3)
        for move in rng.normal(size=(10, 3))
    ]
    for smoothing in (0.0, 1e-3, 1e-1):
        for point in [*far, *near]:
            at = objective.evaluate(point, smoothing)
            gap = gap_module.gap_of(objective, point, at, 0.0)
            count += gap < problem.risk(point) - best.value - CLOSE
    return count


@pytest.mark.parametrize("loss", [dps.losses.Absolute(), dps.losses.Logistic()])
def test_a_gap_of_any_point_covers_its_excess(loss):
    """Not only the best point has a bound."""
    problem = records(loss, Ball(0.4))
    assert count_uncovered(problem, dps.minimizer(problem)) == 0


@pytest.mark.parametrize("name", ["support", "_linear_fall"])
def test_a_gap_that_is_too_small_is_noticed(monkeypatch, name):
    """Planted errors: the support function or the fall loses a tenth."""
    problem = records(dps.losses.Logistic(), Ball(0.4))
    best, right = dps.minimizer(problem), getattr(gap_module, name)
    monkeypatch.setattr(gap_module, name, lambda *given: 0.9 * right(*given))
    assert count_uncovered(problem, best) > 0


def half_squares(theta):
    return 0.5 * np.sum((theta - 5.0) ** 2)


def first_coordinates(theta):
    return theta[0] + 2.0 * theta[1]


HALF_PLANE = Polytope([[1.0, 1.0, 0.0]], [1.0], lower=-np.ones(3), upper=np.ones(3))
ON_BOUNDARY = [
    (half_squares, Ball(1.0), 0.5 * (5.0 * np.sqrt(3.0) - 1.0) ** 2),
    (half_squares, Ellipsoid(np.eye(3)), 0.5 * (5.0 * np.sqrt(3.0) - 1.0) ** 2),
    (half_squares, Box(0.0, 1.0), 24.0),
    (half_squares, Intersection(Ball(1.0), Box(-2.0, 3.0)), 29.339746),
    (half_squares, HALF_PLANE, 0.5 * (2.0 * 4.5**2 + 16.0)),
    (first_coordinates, Box(0.0, 1.0), 0.0),
    (first_coordinates, Simplex(), 0.0),
]


@one_in(7)
@pytest.mark.parametrize(("energy", "domain", "minimum"), ON_BOUNDARY)
def test_minima_of_densities_on_the_boundary(energy, domain, minimum):
    """Differences have no room on one side there."""
    target = dps.Density(energy=energy, dim=3, domain=domain)
    best = dps.minimizer(target, tolerance=1e-3)
    assert 0.0 < best.gap <= 1e-3
    assert -1e-6 <= best.value - minimum <= best.gap + 1e-6


@pytest.mark.slow
def test_differences_of_a_density_are_bounds_at_any_point():
    """With a planted error in the excess of the base some points are not covered."""
    target = dps.Density(energy=half_squares, dim=3, domain=Ball(1.0))
    objective, least = objective_of(target), 0.5 * (5.0 * np.sqrt(3.0) - 1.0) ** 2
    rng = np.random.default_rng(5)
    points = rng.normal(size=(40, 3))
    points /= np.maximum(1.0, np.linalg.norm(points, axis=1))[:, None]
    points[::2] *= rng.uniform(0.5, 1.0, (20, 1))
    num_uncovered = 0
    for point in points:
        at = objective.evaluate(target.domain.project(point), 0.0)
        gap = gap_module.gap_of(objective, point, at, 0.0)
        assert gap >= at.value - least
        flat = at._replace(slope=0.5 * at.slope)
        wrong = gap_module.gap_of(objective, point, flat, 0.0)
        num_uncovered += wrong < at.value - least
    assert num_uncovered > 0


@pytest.mark.slow
def test_kinks_say_that_a_gradient_proves_more():
    def kinks(theta):
        return np.sum(np.abs(theta - 0.3))

    def signs(theta):
        return np.sign(theta - 0.3)

    box = Box(-1.0, 1.0)
    with pytest.warns(RuntimeWarning, match="gradient=... may prove a smaller one"):
        best = dps.minimizer(dps.Density(energy=kinks, dim=2, domain=box))
    assert best.value == pytest.approx(0.0, abs=1e-8)
    exact = dps.Density(energy=kinks, gradient=signs, dim=2, domain=box)
    assert dps.minimizer(exact).gap <= CLOSE


@pytest.mark.slow
def test_a_minimum_whose_value_is_large_has_a_gap():
    """Rounding of 1e6 alone is more than the tolerance."""
    target = dps.Density(
        energy=lambda x: 1e6 + half_squares_of(x), gradient=lambda x: x - 3.0, dim=2
    )
    with pytest.warns(RuntimeWarning, match="reached the gap"):
        best = dps.minimizer(target)
    assert 0.0 < best.gap < 1e-3


@njit
def half_squares_of(theta):
    return 0.5 * np.sum((theta - 3.0) ** 2)


@pytest.mark.slow
def test_a_regularizer_on_a_flat_direction():
    target = dps.Density(energy=lambda x: x[0], dim=2, mu=1.0)
    best = dps.minimizer(target)
    assert best.value == pytest.approx(-0.5, abs=1e-8)
    assert best.gap <= CLOSE


def double_well(theta):
    return (theta[0] ** 2 - 4.0) ** 2 + 0.5 * theta[0]


@pytest.mark.slow
def test_nothing_is_proved_of_a_density_that_is_not_convex():
    """Minima near -2 and 2. Tangents at one are above the other."""
    box = Box(-3.0, 3.0)
    target = dps.Density(energy=double_well, dim=1, domain=box, convex=False)
    with pytest.warns(RuntimeWarning, match="a local minimum. The energy is not conv"):
        best = dps.minimizer(target)
    assert best.gap == np.inf
    assert best.assumption == ""
    with pytest.warns(RuntimeWarning, match="is not convex between"):
        target = dps.Density(energy=double_well, dim=1, domain=box)
    with pytest.warns(RuntimeWarning, match="nothing is proved"):
        assert dps.minimizer(target).gap == np.inf


def test_smoothed_kinks_are_minorants():
    distance = np.concatenate([[0.0], np.geomspace(1e-12, 1e3, 40)])
    distance = np.concatenate([distance, -distance])
    low, high = np.full(len(distance), -0.3), np.full(len(distance), 0.7)
    loss = np.maximum(low * distance, high * distance)
    for s in (1e-9, 1e-3, 10.0):
        _, slope, curvature, excess = smooth_kink(distance, low, high, s)
        assert ((slope >= low) & (slope <= high)).all()
        assert excess == pytest.approx(loss - slope * distance, abs=1e-12)
        assert (excess <= 2.0 * s).all()
        step = 1e-5 * s
        ends = [
            smooth_kink(distance + sign * step, low, high, s)[:2] for sign in (1, -1)
        ]
        change = (ends[0][1] - ends[1][1]) / (2.0 * step)
        assert change == pytest.approx(curvature, rel=1e-3, abs=1e-6 / s)


class TestHostile:
    def test_separable_records_on_a_ball(self):
        rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.1]])
        problem = dps.Problem(
            rows,
            [1.0, -1.0, 1.0],
            loss=dps.losses.Logistic(),
            domain=Ball(50.0),
            row_bound=1.0,
        )
        best = dps.minimizer(problem)
        assert best.gap <= CLOSE
        assert np.linalg.norm(best.theta) == pytest.approx(50.0)

    def test_separable_records_on_the_whole_space_have_no_gap(self):
        problem = dps.Problem(
            [[1.0], [-1.0]],
            [1.0, -1.0],
            loss=dps.losses.Logistic(),
            domain=WholeSpace(),
            row_bound=1.0,
        )
        with pytest.warns(RuntimeWarning, match="Bound the domain"):
            best = dps.minimizer(problem)
        assert best.gap == np.inf

    @pytest.mark.parametrize("scale", [1e-12, 1e6])
    def test_scales_of_responses(self, scale):
        problem = records(dps.losses.Squared(), Ball(10.0 * scale), scale=scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            best = dps.minimizer(problem)
        assert best.gap <= 1e-8 * max(1.0, best.value)

    def test_one_record(self):
        problem = dps.Problem(
            [[0.6, 0.8]],
            [0.5],
            loss=dps.losses.Absolute(),
            domain=Ball(1.0),
            row_bound=1.0,
            response_bound=1.0,
        )
        best = dps.minimizer(problem)
        assert best.value <= best.gap <= CLOSE

    def test_ties(self):
        y = np.array([0.0, 0.0, 0.5, 0.5])
        best = dps.minimizer(one_column(y, dps.losses.Absolute(), Box(-1.0, 1.0)))
        assert best.value == pytest.approx(0.25, abs=CLOSE)

    def test_a_small_tolerance_is_not_reached_in_silence(self):
        problem = records(dps.losses.Squared(), Ball(1.0))
        with pytest.warns(RuntimeWarning, match="reached the gap .* not 1e-30"):
            best = dps.minimizer(problem, 1e-30)
        assert 0.0 < best.gap < 1e-12


class TestResult:
    def test_it_says_that_it_is_not_private(self):
        best = dps.minimizer(records(dps.losses.Squared(), Ball(1.0)))
        assert "NOT PRIVATE" in repr(best)

    def test_a_value_below_the_minimum_is_an_error(self):
        best = dps.minimizer(records(dps.losses.Squared(), Ball(1.0)))
        assert best.excess(best.value) == 0.0
        with pytest.raises(ValueError, match="the proved minimum"):
            best.excess(best.value - 1e-6)

    @pytest.mark.parametrize(
        ("argument", "options", "words"),
        [
            (3.0, {}, "Use a dps.Gibbs, a dps.Density or a dps.Problem"),
            (None, {"tolerance": 0.0}, "tolerance must be a finite number > 0"),
        ],
    )
    def test_refusals(self, argument, options, words):
        if argument is None:
            argument = records(dps.losses.Squared(), Ball(1.0))
        with pytest.raises(ValueError, match=words):
            dps.minimizer(argument, **options)

    def test_a_search_keeps_its_best_point(self):
        search = Search(objective_of(records(dps.losses.Hinge(), Ball(1.0))), 1e-6)
        assert search.run().gap <= 1e-6
