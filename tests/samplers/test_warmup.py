"""Warm-up of the adaptive samplers: barrier fit, dispersed starts, what is learned."""

import importlib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

import dpsample as dps
from dpsample.numerics.r_hat_and_ess import plain_sizes
from dpsample.samplers.adaptive import billiard, warmup
from dpsample.samplers.adaptive.barrier_fit import barrier_fit
from dpsample.samplers.adaptive.mass_matrix import dense
from dpsample.samplers.adaptive.warmup import disperse, warm_up
from tests.support.tiers import one_in, usual

D, L = dps.domains, dps.losses


def linear(slopes, domain, *, k=1.0, mu=0.0):
    """Target exp(-k <slopes, theta> - k mu |theta|^2 / 2) on a domain."""
    rows = np.array([slopes], dtype=np.float64)
    bound = float(np.linalg.norm(rows))
    # The loss is -y <a, theta>.
    problem = dps.Problem(rows, [-1.0], loss=L.Linear(), domain=domain, row_bound=bound)
    return dps.Gibbs(problem, k=k, mu=mu)


def logistic(domain, *, dim=6, num_records=400, k=400.0, mu=0.01, scales=1.0):
    data = dps.datasets.logistic(num_records, dim, seed=2)
    rows = data.features * scales
    problem = dps.Problem(
        rows,
        data.response,
        loss=L.Logistic(),
        domain=domain,
        row_bound=float(np.linalg.norm(rows, axis=1).max()),
    )
    return dps.Gibbs(problem, k=k, mu=mu)


def covariance(mass):
    return mass.spread(mass.spread(np.eye(mass.num_white)).T)


def test_the_fit_has_the_moments_of_exponential_densities():
    """A face with pressure p has slacks of mean 1/p and variance 1/p^2."""
    pressures = np.array([50.0, 200.0, 1000.0])
    fit = barrier_fit(linear(pressures, D.Box(0.0, 1.0)))
    np.testing.assert_allclose(fit.center, 1.0 / pressures, rtol=0.03)
    found = fit.mass.covariance
    np.testing.assert_allclose(np.diag(found), 1.0 / pressures**2, rtol=0.06)
    same = barrier_fit(
        linear(
            pressures,
            D.Polytope(np.vstack([-np.eye(3), np.eye(3)]), [0, 0, 0, 1, 1, 1]),
        )
    )
    np.testing.assert_allclose(same.mass.covariance, found, rtol=1e-6, atol=1e-12)


def test_the_fit_of_a_gaussian_is_the_gaussian():
    target = linear([1.0, 2.0], D.WholeSpace(), k=10.0, mu=1.0)
    fit = barrier_fit(target)
    np.testing.assert_allclose(fit.center, [-1.0, -2.0], rtol=1e-6)
    np.testing.assert_allclose(fit.mass.covariance, np.eye(2) / 10.0, rtol=1e-6)


def test_the_fit_knows_the_corner_of_an_l1_ball():
    """Mass at one vertex: other coordinates have Laplace laws with two slopes."""
    target = linear([-100.0, -40.0, 20.0], D.Ball(1.0, p=1.0))
    fit = barrier_fit(target)
    # Near (1, 0, 0) the slope is 100 per unit of norm: coordinate j then has
    # densities exp(-(100 + s) x) to the right and exp(-(100 - s) |x|) to the left.
    for j, slope in ((1, -40.0), (2, 20.0)):
        right, left = 1.0 / (100.0 + slope), 1.0 / (100.0 - slope)
        mean = right - left
        variance = right**2 + left**2
        assert fit.center[j] == pytest.approx(mean, rel=0.05)
        assert fit.mass.covariance[j, j] == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_the_fit_knows_the_wall_of_an_l_p_ball(p):
    """It holds the mass at (-1, 0)."""
    pressure, x = 200.0, np.linspace(-1.0, 1.0, 20_001)
    weights = np.exp(pressure * ((1.0 - np.abs(x) ** p) ** (1.0 / p) - 1.0))
    exact = np.average(x**2, weights=weights)
    found = barrier_fit(linear([pressure, 0.0], D.Ball(1.0, p=p))).mass.covariance
    assert found[1, 1] == pytest.approx(exact, rel=0.2)
    wall = (1.0 - np.abs(x) ** p) ** (1.0 / p)
    above = (
        np.average(wall**2, weights=weights) - np.average(wall, weights=weights) ** 2
    )
    assert found[0, 0] == pytest.approx(above + 1.0 / pressure**2, rel=0.2)


def test_the_fit_knows_the_vertex_of_a_nuclear_ball():
    """Mass at a matrix of rank 1: the other entries have widths 1/100 and 1/10000."""
    pressure = 1e4
    ball = D.SchattenBall(1.0, p=1.0, shape=(2, 2))
    fit = barrier_fit(linear([pressure, 0.0, 0.0, 0.0], ball))
    found = np.diag(fit.mass.covariance)
    # The norm rises by (y^2 + z^2) / 2 along the wall, and by |w| off both.
    assert (found[1:3] * pressure > 0.4).all() and (found[1:3] * pressure < 1.1).all()
    assert found[3] == pytest.approx(2.0 / pressure**2, rel=0.1)


@pytest.mark.parametrize("pressure", [1e6, 1e9])
@pytest.mark.parametrize(
    ("ball", "mean"),
    [
        (D.Ball(1.0, p=1.5), 11.0 / 1.5 + 1.0),
        (D.Ball(1.0, p=4.0), 11.0 / 4.0 + 1.0),
        (D.SchattenBall(1.0, p=1.0, shape=(3, 4)), 5.0 / 2.0 + 6.0 + 1.0),
        (D.SchattenBall(1.0, p=2.0, shape=(3, 4)), 11.0 / 2.0 + 1.0),
    ],
)
def test_the_center_is_no_higher_than_the_mass(ball, mean, pressure):
    """Mean of <g, x> above its least value, if g has one large entry."""
    slope = np.append(pressure, np.zeros(11))
    rise = float(slope @ barrier_fit(linear(slope, ball)).center) + pressure
    assert 0.5 * mean < rise < 2.0 * mean


@one_in(5)
@pytest.mark.parametrize("pressure", [1e9, 1e14, 1e17, 1e60, 1e160])
@pytest.mark.parametrize(
    ("ball", "dim"),
    [
        (D.Ball(1.0, p=1.0), 1),
        (D.Ball(1.0, p=1.0 + 1e-9), 2),
        (D.Ball(1.0, p=1.5), 12),
        (D.SchattenBall(1.0, p=1.0, shape=(2, 2)), 4),
        (D.SchattenBall(1.0, p=1.0, shape=(1, 4)), 4),
        (D.SchattenBall(1.0, p=1.01, shape=(3, 4)), 12),
    ],
)
@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_the_fit_is_finite_beside_the_steepest_slopes(ball, dim, pressure, is_dense):
    slope = np.linspace(-1.0, 1.3, dim) if is_dense else np.eye(dim)[0]
    fit = barrier_fit(linear(slope, ball, k=pressure))
    assert ball.contains(fit.center) and np.isfinite(covariance(fit.mass)).all()


def test_the_fit_is_no_wider_than_an_l_p_ball():
    """Variances of the uniform law, which the Euclidean ball would make 3 times so."""
    p, dim = 1.5, 40
    logs = special.gammaln([3.0 / p, dim / p + 1.0, 1.0 / p, (dim + 2.0) / p + 1.0])
    exact = np.exp(logs @ [1.0, 1.0, -1.0, -1.0])
    fit = barrier_fit(linear(np.full(dim, 1e-9), D.Ball(1.0, p=p)))
    assert 0.5 < np.diag(fit.mass.covariance).mean() / exact < 1.5


def test_parts_without_a_barrier_bound_the_fit_of_an_intersection():
    """The barrier of the half-plane alone has its minimum at infinity."""
    half = dps.domains.Box([0.0, -np.inf], np.inf)
    domain = dps.domains.Intersection(dps.domains.Ball(1.0, p=1), half)
    fit = barrier_fit(dps.Density(energy=lambda x: 0.0, dim=2, domain=domain))
    assert domain.contains(fit.center)
    assert 0.1 < np.sqrt(np.diag(fit.mass.covariance)).max() < 2.0


def test_rounding_may_put_the_fit_on_a_wall():
    """Eight doubles lie between the walls."""
    side = D.Box(1e6, 1e6 + 1e-9)
    fit = barrier_fit(logistic(side, dim=3, num_records=200, k=200.0))
    assert side.contains(fit.center)
    deviations = np.sqrt(np.diag(fit.mass.covariance))
    assert (deviations > 1e-11).all() and (deviations < 1e-9).all()


def test_slopes_that_leave_no_eigenvalue_have_a_fit():
    """Vertices of the l1 ball that 1e9 to 1e13 units of energy press on."""
    side = D.Ball(1.0, p=1.0)
    for k in (1e6, 1e8, 1e10):
        fit = barrier_fit(linear([1e3, 1e2], side, k=k))
        assert side.contains(fit.center) and fit.center[0] == pytest.approx(-1.0)
        assert (np.linalg.eigvalsh(fit.mass.covariance) > 0.0).all()


def test_bounces_and_short_leaps_count_as_work(monkeypatch):
    """One record costs nothing beside them."""
    target = linear([1.0, 1e7, 3.0], D.Box(-1.0, 1.0), k=1e3)
    monkeypatch.setattr(warmup, "MAX_WORK", 1e6)
    made, run = [], warmup._Pilots.run

    def counted(self, plan, width, **options):
        window = run(self, plan, width, **options)
        made.append(width * (window.leaps + window.bounces))
        return window

    monkeypatch.setattr(warmup._Pilots, "run", counted)
    warm_up(target, np.random.default_rng(1))
    assert warmup.NUM_PILOTS * warmup.BOUNCE_WORK * sum(made) < 3.0 * warmup.MAX_WORK


DOMAINS = {
    "whole": D.WholeSpace(),
    "box": D.Box(-0.3, 0.5),
    "ball": D.Ball(0.5),
    "l1": D.Ball(0.5, p=1.0),
    "simplex": D.Simplex(),
    "p3": D.Ball(0.5, p=3.0),
}


@usual("l1")
@pytest.mark.parametrize("name", DOMAINS)
def test_the_warm_up_settles_and_starts_are_inside_and_dispersed(name):
    target = logistic(DOMAINS[name])
    rng, starts = np.random.default_rng(6), []
    for seed in (5, 6, 7):
        warm = warm_up(target, np.random.default_rng(seed))
        assert warm.has_settled
        assert 1.0 <= warm.autocorrelation_time < 40.0
        assert 1 <= warm.num_steps <= 20
        starts += [disperse(target, warm.plan, rng) for _ in range(350)]
    starts = np.array(starts)
    assert all(target.domain.contains(start) for start in starts)
    prepared = dps.samplers.BilliardHMC().prepare(target, np.random.default_rng(5))
    fill, state = prepared.runner(), prepared.init()
    draws, stats = np.empty((3000, target.dim)), np.empty((3000, 5))
    fill(state, rng, draws, stats)
    # Wider than the target, so that R-hat can tell whether chains have met.
    ratio = starts.std(axis=0) / draws[100:].std(axis=0)
    assert np.median(ratio) > 1.1, ratio
    assert ratio.min() > 0.8, ratio


@pytest.mark.slow
def test_starts_in_many_dimensions_come_down_to_where_leaps_are_accepted(monkeypatch):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((400, 200)) / np.sqrt(200.0)
    problem = dps.Problem(
        rows,
        np.sign(rows[:, 0]),
        loss=dps.losses.Logistic(),
        domain=D.WholeSpace(),
        row_bound=2.0,
    )
    target = dps.Gibbs(problem, k=400.0, mu=1e-3)
    plan = warm_up(target, np.random.default_rng(5)).plan

    def height():
        starts = [disperse(target, plan, np.random.default_rng(i)) for i in range(5)]
        rise = [target.energy(start) - target.energy(plan.center) for start in starts]
        return np.max(rise) / (0.5 * target.dim)

    assert height() < 2.0
    monkeypatch.setattr(warmup, "HIGH", np.inf)
    assert height() > 3.0


@pytest.mark.slow
def test_chains_leave_their_starts_where_columns_have_many_scales(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    cells = dict(importlib.import_module("robust_cells").scikit_cells())
    case = cells["breast_cancer-raw/logistic/l2/cold"](1)
    target = importlib.import_module("ours").gibbs(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dps.sample(target, seed=1, progress=False).attrs["converged"]


def test_no_chain_stays_at_a_start_that_the_plan_cannot_leave(monkeypatch):
    """Whatever the energy, starts are drawn until a leap is made."""
    target = logistic(D.WholeSpace())
    plan = warm_up(target, np.random.default_rng(0)).plan
    asked, answers = [], iter([False] * 9 + [True])

    def moves(starts, state, rng):
        asked.append(state.position.copy())
        return next(answers)

    monkeypatch.setattr(warmup.DispersedStarts, "_can_leave", moves)
    start = disperse(target, plan, np.random.default_rng(1))
    assert len(asked) == 10
    assert (asked[0] != asked[-1]).any()
    np.testing.assert_array_equal(start, asked[-1])


@pytest.mark.slow
def test_a_metric_that_makes_steps_small_is_given_up(monkeypatch):
    """Planted: the first window teaches nonsense."""
    sides = np.vstack([np.eye(6), -np.eye(6)])
    target = logistic(D.Polytope(sides, np.full(12, 0.5)), num_records=100, k=100.0)
    right = warm_up(target, np.random.default_rng(1)).plan.step
    original, calls = warmup._learn_plan, []

    def spoiled(*args):
        plan = original(*args)
        calls.append(plan)
        if len(calls) > 1:
            return plan
        factors = np.geomspace(100.0, 0.01, target.dim)
        return plan._replace(mass=plan.mass.times_root(np.diag(factors)))

    monkeypatch.setattr(warmup, "_learn_plan", spoiled)
    monkeypatch.setattr(warmup, "WINDOWS", (30, 60, 120))
    assert warm_up(target, np.random.default_rng(1)).plan.step > 0.5 * right
    calls.clear()
    monkeypatch.setattr(warmup, "MIN_STEP_RATIO", 0.0)
    assert warm_up(target, np.random.default_rng(1)).plan.step < 0.5 * right


def test_the_plan_is_that_of_the_stream():
    target = logistic(D.Ball(0.5))
    first, again = (warm_up(target, np.random.default_rng(1)) for _ in range(2))
    assert first.plan.step == again.plan.step
    np.testing.assert_array_equal(first.plan.mass.factor, again.plan.mass.factor)
    assert first.num_steps == again.num_steps


def test_badly_scaled_columns_are_learned():
    scales = np.array([1e-3, 1e-2, 1.0, 10.0, 1e2, 1e3])
    target = logistic(D.WholeSpace(), scales=scales, k=400.0, mu=1e-6)
    warm = warm_up(target, np.random.default_rng(0))
    assert warm.has_settled
    assert warm.plan.step > 0.3


def test_a_wrong_metric_is_noticed(monkeypatch):
    """Planted: a fit that is off by factors is learned away, or does not settle."""
    target = logistic(D.WholeSpace())
    right = warm_up(target, np.random.default_rng(0))
    original = warmup.barrier_fit

    def spoiled(target):
        fit = original(target)
        factors = np.array([30.0, 10.0, 3.0, 0.3, 0.1, 0.03])
        return fit._replace(mass=fit.mass.times_root(np.diag(factors)))

    monkeypatch.setattr(warmup, "barrier_fit", spoiled)
    learned = warm_up(target, np.random.default_rng(0))
    assert learned.has_settled
    size = np.log(np.diag(covariance(learned.plan.mass)))
    assert np.abs(size - np.log(np.diag(covariance(right.plan.mass)))).max() < 1.0
    monkeypatch.setattr(warmup, "WINDOWS", (30, 60))
    assert not warm_up(target, np.random.default_rng(0)).has_settled


def test_the_force_is_kept_only_where_it_pays():
    held = warm_up(logistic(D.Ball(0.2), k=4000.0), np.random.default_rng(0))
    assert held.plan.force.any()
    free = warm_up(logistic(D.WholeSpace()), np.random.default_rng(0))
    assert not free.plan.force.any()
    assert free.plan.is_harmonic == 1


def test_pilot_chains_share_one_step_size():
    target = logistic(D.WholeSpace())
    fit = barrier_fit(target)
    plan = billiard.new_plan(
        target, fit.mass, center=fit.center, force=np.zeros(6), step=1e-3
    )
    window = warmup._Pilots(target, plan, np.random.default_rng(0)).run(plan, 60)
    assert window.plan.step > 0.1
    assert 0.4 < window.acceptance <= 1.0


def test_a_metric_of_very_different_scales_loses_no_direction():
    factor = np.diag([1e-9, 1.0, 1e9])
    mass = dense(factor)
    np.testing.assert_allclose(mass.whiten @ factor, np.eye(3), rtol=1e-12)


def test_columns_without_information_have_a_metric_in_many_dimensions():
    rows = np.random.default_rng(0).standard_normal((20, 810))
    rows[:, 0] = 0.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        np.tile([1.0, -1.0], 10),
        loss=L.Logistic(),
        domain=D.Ball(1.0, p=1.0),
        row_bound=1.0,
    )
    mass = barrier_fit(dps.Gibbs(problem, k=20.0, mu=0.0)).mass
    assert np.isfinite(mass.scale).all()
    assert (mass.scale > 0.0).all()
    assert not mass.is_dense


@one_in(4)
@pytest.mark.parametrize(
    "domain", [D.Box(-1.0, 1.0), D.Ball(0.5), D.Ball(0.5, p=1.0), D.Simplex()], ids=repr
)
def test_rotations_need_no_kicks_where_the_energy_is_quadratic(domain):
    # Of as many records a gradient costs so much that no rounding decides.
    target = logistic(domain, num_records=4000)
    warm = warm_up(target, np.random.default_rng(0))
    assert warm.has_settled and warm.plan.has_kicks == 0
    assert domain.contains(warm.plan.center)
    prepared = dps.samplers.BilliardHMC().prepare(target, np.random.default_rng(0))
    draws, stats = np.empty((1000, target.dim)), np.empty((1000, 5))
    state, rng = prepared.init(), np.random.default_rng(1)
    prepared.runner()(state, rng, draws, stats)
    assert stats[:, 1].mean() > 0.8
    # Slopes are for the rare leaps with kicks: else an energy for each trajectory.
    assert 0.0 < state.counts[3] < state.counts[2]


@one_in(3)
@pytest.mark.parametrize(
    "domain",
    [D.Ball(10.0, p=1.3), D.Ball(3.0, p=4.0), D.SchattenBall(4.0, p=1.0, shape=(4, 5))],
    ids=repr,
)
def test_rotations_spare_short_steps_between_curved_walls(domain):
    target = logistic(domain, dim=20, num_records=4000, k=100.0, mu=0.01)
    warm = warm_up(target, np.random.default_rng(0))
    assert warm.has_settled and warm.plan.has_kicks == 0
    assert warm.leaps < 2.0


def test_rotations_get_the_windows_that_kicks_have_no_time_for(monkeypatch):
    """After one window with kicks, of which a second would cost too much."""
    domain = D.SchattenBall(4.0, p=1.0, shape=(4, 5))
    target = logistic(domain, dim=20, num_records=4000, k=100.0, mu=0.01)
    monkeypatch.setattr(warmup, "MAX_WORK", 2e8)
    windows, run = [], warmup._Pilots.run

    def noted(self, plan, width, **options):
        if width in warmup.WINDOWS and options.get("adapts", True):
            windows.append((width, plan.has_kicks))
        return run(self, plan, width, **options)

    monkeypatch.setattr(warmup._Pilots, "run", noted)
    assert warm_up(target, np.random.default_rng(0)).has_settled
    assert windows == [(30, 1), (60, 0)]


def test_kicks_stay_where_the_energy_is_no_quadratic():
    """Planted: energies that the quadratic leaves out, of all draws or of one."""
    target, rng = logistic(D.Box(-1.0, 1.0)), np.random.default_rng(0)
    warm = warm_up(target, rng)
    plan = billiard.new_plan(
        target, warm.shape, center=warm.plan.center, force=np.zeros(6), step=1.0
    )
    window = warmup._Pilots(target, warm.plan, rng).run(warm.plan, 120)
    assert warmup._plan_rotations(target, plan, window) is not None
    rough = window.energies + 1.2 * rng.standard_normal(window.energies.shape)
    low = window.energies.copy()
    low[0, 0] -= 4.0
    for energies in (rough, low):
        planted = replace(window, energies=energies)
        assert warmup._plan_rotations(target, plan, planted) is None


def test_roots_of_variances_that_the_others_drown_in():
    """Draws of a funnel: 1e20 and 1 in oblique axes, which Cholesky takes for < 0."""
    rng = np.random.default_rng(0)
    white = 1e10 * rng.standard_normal((4, 100, 1)) * np.ones(3)
    white[..., 1:] += rng.standard_normal((4, 100, 2))
    root = warmup.root_of(white, 1.0, None)
    flat = white.reshape(-1, 3)
    covariance = flat.T @ flat / len(flat)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-2)
    assert np.linalg.matrix_rank(root, tol=0.0) == 3


class TestBallsInManyDimensions:
    """Gaussians of precision 1 in balls, with a metric of low rank."""

    dim = 60

    def target(self, share, slopes=1e-30):
        """Density in the ball whose squared radius is a share of the dimension."""
        ball = D.Ball(radius=float(np.sqrt(share * self.dim)))
        return linear(np.full(self.dim, slopes), ball, mu=1.0)

    @pytest.fixture(autouse=True)
    def low_rank(self, monkeypatch):
        module = importlib.import_module("dpsample.samplers.adaptive.barrier_fit")
        monkeypatch.setattr(module, "MAX_DENSE", 50)

    @pytest.mark.parametrize(
        ("share", "variance", "rotates"),
        [(1e-4, 1e-4, 0), (0.4, 0.4, 0), (2.0, 1.0, 1)],
    )
    def test_the_metric_has_the_variance_of_the_draws(self, share, variance, rotates):
        fit = barrier_fit(self.target(share))
        found = np.diag(covariance(fit.mass))
        np.testing.assert_allclose(found, variance, rtol=0.05)
        assert fit.rotates == rotates

    def test_a_slope_presses_draws_to_the_sphere(self):
        """With a slope g the variance along the sphere is about radius / |g|."""
        target = self.target(1e-2, slopes=100.0)
        radius = float(np.sqrt(1e-2 * self.dim))
        found = np.diag(covariance(barrier_fit(target).mass))
        expected = radius / (100.0 * np.sqrt(self.dim))
        np.testing.assert_allclose(found, expected, rtol=0.1)

    @pytest.mark.slow
    @pytest.mark.parametrize("share", [0.4, 0.95, 1.2])
    def test_draws_have_the_mean_square_length(self, share):
        draws = dps.sample(
            self.target(share),
            sampler=dps.samplers.BilliardHMC(num_steps=3),
            num_draws=1500,
            seed=11,
            progress=False,
            check=False,
        )
        squares = (draws.posterior["theta"].values ** 2).sum(axis=2)

        def mean_square(limit):
            half = 0.5 * self.dim
            chances = [special.gammainc(half + i, 0.5 * limit) for i in (0, 1)]
            return self.dim * chances[1] / chances[0]

        limit = share * self.dim
        error = squares.std() / np.sqrt(
            plain_sizes(squares[:, :, None], is_split=False).min()
        )
        assert abs(squares.mean() - mean_square(limit)) < 6.0 * error
        # A planted error: a ball that is 5 % smaller.
        assert abs(squares.mean() - mean_square(0.9 * limit)) > 12.0 * error
