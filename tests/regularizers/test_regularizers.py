"""Regularizers: strong convexity and its sharpness, ranges, constants, curvature."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex, WholeSpace
from dpsample.losses import Logistic
from dpsample.numerics import norms
from dpsample.regularizers import (
    Entropy,
    SchattenSquared,
    SquaredNorm,
    optimal_exponent,
)
from tests.support.bodies import far_points, random_polytope
from tests.support.regularizer_cases import (
    DIM,
    EVERY,
    EXPONENTS,
    MATRICES,
    SHAPE,
    VECTORS,
    distance,
    random_point,
    regularizer_center,
)
from tests.support.tiers import one_in

every_regularizer = pytest.mark.parametrize("regularizer", EVERY, ids=repr)


def balanced_pair(regularizer):
    """Pair along which the claimed constant is attained up to 1e-4."""
    step = np.where(np.arange(DIM) % 2, 1e-2, -1e-2)
    base = np.ones(DIM)
    if regularizer.name == "entropy":
        base, step = base / DIM, step / DIM
    elif regularizer.p >= 2.0:
        step = np.eye(DIM)[0]
    elif regularizer.name == "schatten_squared":
        signs = np.where(np.arange(4) % 2, 1e-2, -1e-2)
        base, step = np.eye(4, 6).ravel(), (signs[:, None] * np.eye(4, 6)).ravel()
    middle = (
        base
        if regularizer.name == "entropy"
        else base + regularizer_center(regularizer)
    )
    return middle + step, middle - step


def deficit(regularizer, x, y, t):
    """Left minus right side of strong convexity, and the quadratic term."""
    quadratic = 0.5 * t * (1 - t) * distance(regularizer, x - y) ** 2
    chord = t * regularizer.value(x) + (1 - t) * regularizer.value(y)
    return regularizer.value(t * x + (1 - t) * y) - chord, quadratic


@one_in(5)
@every_regularizer
def test_strong_convexity(regularizer):
    rng = np.random.default_rng(41)
    pairs = [balanced_pair(regularizer)]
    for _ in range(60):
        x = random_point(regularizer, rng)
        y = random_point(regularizer, rng)
        pairs += [(x, y), (x, x + 0.01 * (y - x))]
    for x, y in pairs:
        for t in (0.5, rng.uniform()):
            excess, quadratic = deficit(regularizer, x, y, t)
            rounding = 1e-13 * (1.0 + abs(regularizer.value(x)))
            assert excess <= -quadratic + rounding


@pytest.mark.parametrize("regularizer", [*VECTORS, *MATRICES, Entropy()], ids=repr)
def test_constant_smaller_by_two_percent_would_fail(regularizer):
    excess, quadratic = deficit(regularizer, *balanced_pair(regularizer), 0.5)
    assert excess <= -quadratic * (1 - 1e-9)
    assert excess / 1.02 > -quadratic


@pytest.mark.parametrize(
    ("dim", "constant"), [(2, 2.0), (5, 5.0), (10, 9.28), (100, 22.1), (1000, 34.7)]
)
def test_constants_for_l1_are_those_of_the_table(dim, constant):
    params = SquaredNorm(1.0).params(dim, np.zeros(dim))
    assert params.scale == pytest.approx(constant, rel=3e-3)
    assert params.exponent == optimal_exponent(dim)
    assert SquaredNorm(1.0).range_on(Ball(1.0, p=1.0), dim) == 0.5 * params.scale
    if dim >= 3:
        printed = SquaredNorm(1.0, variant="printed").params(dim, np.zeros(dim))
        assert printed.scale == pytest.approx(math.e**2 * math.log(dim))
        assert printed.exponent == 1.0 + 1.0 / math.log(dim)
        assert params.scale < printed.scale


@pytest.mark.parametrize("dim", [1, 2, 7, 8, 10, 1000, 10**6])
def test_exponent_for_l1_is_optimal(dim):
    exponents = np.linspace(1.0, 2.0, 20001)[1:]
    constants = dim ** (2.0 - 2.0 / exponents) / (exponents - 1.0)
    q = optimal_exponent(dim)
    own = dim ** (2.0 - 2.0 / q) / (q - 1.0)
    assert own <= constants.min() * (1 + 1e-12)


DOMAINS = [
    *[Ball(0.7, p=p) for p in EXPONENTS],
    Ball(0.7, p=3.0, center=np.linspace(0, 1, DIM)),
    Box(-1.0, 2.0),
    Simplex(),
    random_polytope(DIM, 5, seed=3),
    *[SchattenBall(0.7, p=p, shape=SHAPE) for p in EXPONENTS],
]


@one_in(5)
@pytest.mark.parametrize(
    "domain", DOMAINS, ids=lambda d: f"{d.name}{getattr(d, 'p', '')}"
)
def test_range_bounds_the_spread_of_values(domain):
    rng = np.random.default_rng(45)
    points = [domain.project(v) for v in far_points(domain, DIM, rng, 15)]
    middle = domain.default_center(DIM)
    regularizers = [r for r in EVERY if r.name != "entropy"]
    if domain.name == "simplex":
        regularizers.append(Entropy())
    for regularizer in regularizers:
        values = [regularizer.value(x, default_center=middle) for x in points]
        own = regularizer_center(regularizer)
        anchor = middle if not own.any() else domain.project(own)
        values.append(regularizer.value(anchor, default_center=middle))
        bound = regularizer.range_on(domain, DIM)
        assert max(values) - min(values) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_range_on_the_own_ball_is_the_table_and_attained(p):
    regularizer = SquaredNorm(p)
    scale, exponent = regularizer.params(DIM, np.zeros(DIM))[1:3]
    table = 0.5 * scale * 0.7**2 * (DIM ** (1.0 - 2.0 / p) if p > 2.0 else 1.0)
    bound = regularizer.range_on(Ball(0.7, p=p), DIM)
    assert bound == pytest.approx(table)
    rays = np.vstack([np.ones(DIM), np.eye(DIM)[0]])
    points = 0.7 * rays / norms.norm(rays, p)[:, None]
    assert max(map(regularizer.value, points)) == pytest.approx(bound)
    if 1.0 < p <= 2.0:
        assert (scale, exponent) == (1.0 / (p - 1.0), p)
    matrices = SchattenSquared(p, shape=SHAPE)
    scale = matrices.params(DIM, np.zeros(DIM)).scale
    table = 0.5 * scale * 0.7**2 * (4 ** (1.0 - 2.0 / p) if p > 2.0 else 1.0)
    bound = matrices.range_on(SchattenBall(0.7, p=p, shape=SHAPE), DIM)
    assert bound == pytest.approx(table)
    rays = np.vstack([np.eye(4, 6).ravel(), np.eye(DIM)[0]])
    points = 0.7 * rays / norms.schatten(rays, p, SHAPE)[:, None]
    assert max(map(matrices.value, points)) == pytest.approx(bound)


def test_range_uses_the_smaller_radius_and_knows_unbounded_sets():
    # l_inf regularizer on an l2 ball: R_2^2 / 2, not dim R_inf^2 / 2.
    assert SquaredNorm(math.inf).range_on(Ball(1.0), DIM) == 0.5
    assert SquaredNorm(2.0).range_on(WholeSpace(), DIM) == math.inf
    assert SchattenSquared(1.0, shape=SHAPE).range_on(WholeSpace(), DIM) == math.inf
    assert Entropy().range_on(Simplex(), DIM) == math.log(DIM)
    vertex, middle = np.eye(DIM)[0], np.full(DIM, 1.0 / DIM)
    spread = Entropy().value(vertex) - Entropy().value(middle)
    assert spread == pytest.approx(math.log(DIM))


@every_regularizer
def test_curvature_bounds_the_hessian(regularizer):
    rng = np.random.default_rng(46)
    low, high = regularizer.curvature_l2(DIM)
    for _ in range(20):
        x = random_point(regularizer, rng)
        if regularizer.name == "entropy":
            x = 0.5 * x + 0.5 / DIM
        direction = rng.normal(size=DIM)
        direction -= direction.mean()
        step = 1e-3 * np.abs(x).min() * direction / np.linalg.norm(direction)
        if regularizer.name == "entropy" or high < math.inf:
            slopes = regularizer.gradient(x + step) - regularizer.gradient(x - step)
            curvature = 0.5 * (slopes @ step) / (step @ step)
            assert low * (1 - 1e-4) <= curvature <= high * (1 + 1e-4)
        y = random_point(regularizer, rng)
        gap = regularizer.gradient(x) - regularizer.gradient(y)
        if np.isfinite(gap).all():
            assert gap @ (x - y) >= low * ((x - y) @ (x - y)) * (1 - 1e-12)


def test_curvature_constants():
    scale, q = SquaredNorm(1.0).params(DIM, np.zeros(DIM))[1:3]
    low = SquaredNorm(1.0).curvature_l2(DIM)[0]
    assert low == pytest.approx(scale * (q - 1.0))
    assert low == pytest.approx(DIM ** (2.0 - 2.0 / q))
    assert SquaredNorm(3.0).curvature_l2(DIM) == (1.0, 1.0)
    assert SquaredNorm(1.5).curvature_l2(1) == (2.0, 2.0)
    assert SquaredNorm(1.5).curvature_l2(2) == pytest.approx((1.0, math.inf))
    assert SchattenSquared(1.5, shape=(1, 5)).curvature_l2(5) == (2.0, 2.0)


def test_a_center_that_a_polytope_leaves_open_is_shown():
    half = Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [3.0, 3.0, 1.0])
    square = Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))
    for domain in (half, square):
        facts = {"loss": Logistic(), "domain": domain, "row_bound": 1.0}
        problem = dps.Problem([[0.6, 0.0]] * 2, [1.0, -1.0], **facts)
        center = f"center={domain.default_center(2).tolist()}"
        assert center in repr(dps.Gibbs(problem, k=1.0, mu=1.0))
        explicit = SquaredNorm(center=[0.5, 0.0])
        assert "center" not in repr(
            dps.Gibbs(problem, k=1.0, mu=1.0, regularizer=explicit)
        )
    mechanism = dps.calibrate(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    assert center in repr(mechanism) and center in mechanism.certificate.details()
    assert mechanism.regularizer.center is None  # files keep their meaning


class TestWeights:
    """Squared norms with a weight for each coordinate."""

    weights = np.array([1.0, 4.0, 2.5])

    def target(self, regularizer, domain=None, loss=None, dim=3):
        rng = np.random.default_rng(7)
        rows = rng.normal(size=(30, dim))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        problem = dps.Problem(
            rows,
            np.where(rng.random(30) < 0.5, 1.0, -1.0),
            loss=Logistic() if loss is None else loss,
            domain=Ball(2.0) if domain is None else domain,
            row_bound=1.0,
            response_bound=1.0,
        )
        return dps.Gibbs(problem, k=8.0, mu=0.5, regularizer=regularizer)

    @pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
    def test_the_norm_is_that_of_scaled_coordinates(self, p):
        center = np.array([0.1, -0.2, 0.0])
        weighted = SquaredNorm(p, center=center, weights=self.weights)
        plain, exponent = SquaredNorm(p), SquaredNorm(p).params(3, center).exponent
        scales, x = self.weights ** (1.0 / exponent), np.array([0.5, -1e-3, 2.0])
        scaled = scales * (x - center)
        assert weighted.value(x) == pytest.approx(plain.value(scaled), rel=1e-13)
        expected = scales * plain.gradient(scaled)
        np.testing.assert_allclose(weighted.gradient(x), expected, rtol=1e-12)

    @pytest.mark.parametrize("size", [1e-300, 1e150])
    def test_powers_stay_finite(self, size):
        gradient = SquaredNorm(1.2, weights=self.weights).gradient(size * np.ones(3))
        assert np.isfinite(gradient).all() and (gradient > 0.0).all()

    @pytest.mark.parametrize("domain", [Ball(2.0), Box(-1.0, 3.0), Simplex()])
    def test_no_value_exceeds_the_range(self, domain):
        regularizer = SquaredNorm(2.0, weights=self.weights)
        rng, middle = np.random.default_rng(3), domain.default_center(3)
        points = [domain.project(10.0 * rng.normal(size=3)) for _ in range(200)]
        values = [regularizer.value(point, middle) for point in points]
        bound = regularizer.range_on(domain, 3)
        assert max(values) <= bound
        # A planted error: the bound without weights.
        assert max(values) > SquaredNorm(2.0).range_on(domain, 3)

    @pytest.mark.parametrize(
        ("weights", "text"),
        [
            ([1.0, 0.5, 2.0], "weights must be >= 1, got 0.5."),
            ([1.0, math.inf, 2.0], "weights must be finite"),
            ([[1.0, 2.0, 2.0]], "weights must be of shape"),
            ([1.0, 2.0], "weights must be of shape"),
        ],
    )
    def test_other_weights_are_refused(self, weights, text):
        with pytest.raises(ValueError, match=text):
            self.target(SquaredNorm(2.0, weights=weights))
        with pytest.raises(ValueError, match=text):
            dps.Density(
                energy=lambda theta: 0.0,
                dim=3,
                domain=Ball(1.0),
                mu=1.0,
                regularizer=SquaredNorm(2.0, weights=weights),
            )

    def test_files_without_weights_are_as_before(self):
        assert "weights" not in SquaredNorm(2.0).to_dict()
        assert "weights" not in repr(SquaredNorm(2.0))
        assert "weights" in repr(SquaredNorm(2.0, weights=self.weights))

    def test_equalities_need_a_quadratic_without_weights(self):
        flat = Polytope(A_eq=np.ones((1, 3)), b_eq=[1.0], lower=-1.0, upper=2.0)
        target = self.target(SquaredNorm(2.0, weights=self.weights), flat)
        with pytest.raises(ValueError, match="weights"):
            dps.sample(target, num_draws=5, progress=False)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "sampler",
        [
            dps.samplers.BilliardHMC(),
            dps.samplers.HitAndRun(),
            dps.samplers.CoordinateHitAndRun(),
            dps.samplers.WhitenedSlice(),
            dps.samplers.MALA(),
            dps.samplers.Proximal(),
            dps.samplers.Exact(),
            "auto",
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("loss", [dps.losses.Linear(), dps.losses.Squared()])
    def test_every_sampler_reads_the_weights(self, sampler, loss):
        """Gaussians with a diagonal that weights change, in the whole space."""
        domain = WholeSpace()
        target = self.target(SquaredNorm(2.0, weights=self.weights), domain, loss)
        try:
            draws = dps.sample(
                target,
                sampler=sampler,
                num_draws=4000,
                num_chains=2,
                progress=False,
                seed=5,
                check=False,
            )
        except ValueError as error:
            assert "support" in str(error) or "sampler" in str(error)
            return
        theta = draws.posterior["theta"].values.reshape(-1, 3)
        hessian = np.array(
            [
                (target.gradient(1e-3 * unit) - target.gradient(-1e-3 * unit)) / 2e-3
                for unit in np.eye(3)
            ]
        )
        covariance = np.linalg.inv(hessian)
        expected = np.diag(covariance)
        # 8000 draws, of which at least 500 count: 6 standard errors of a variance.
        assert theta.var(axis=0) == pytest.approx(expected, rel=6.0 * math.sqrt(0.004))
        # A planted error, no weights, is farther away in the last coordinates.
        without = np.diag(np.linalg.inv(hessian - 4.0 * np.diag(self.weights - 1.0)))
        ratios = without / expected
        assert (np.abs(ratios[1:] - 1.0) > 6.0 * math.sqrt(0.004)).all()
