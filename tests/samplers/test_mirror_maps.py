"""Mirror maps: gradient, inverse, curvature, noise, and the ratio built on them."""

import numpy as np
import pytest

from dpsample.samplers.metropolis import mirror_langevin
from dpsample.samplers.metropolis import mirror_langevin as maps

DIM = 4
BLANK = maps.Map(
    geometry=maps.GEOMETRY.power,
    weight=np.array([0.5, 2.0, 1.0, 3.0]),
    center=np.array([0.3, -1.0, 0.0, 2.0]),
    lower=np.array([-1.0, 0.0, 2.0, -5.0]),
    upper=np.array([1.0, 0.1, 9.0, -4.0]),
    radius=1.5,
    p=1.3,
)
UNIFORM = np.full(DIM, 0.7)
MAPS = {
    "box": BLANK._replace(geometry=maps.GEOMETRY.box),
    "ball": BLANK._replace(geometry=maps.GEOMETRY.ball, weight=UNIFORM),
    "simplex": BLANK._replace(geometry=maps.GEOMETRY.simplex, weight=UNIFORM),
    "power 1.3": BLANK,
    "power 2": BLANK._replace(p=2.0),
}


def potential(mirror, x):
    """The function phi of the table, in NumPy."""
    if mirror.geometry == maps.GEOMETRY.box:
        logs = np.log(x - mirror.lower) + np.log(mirror.upper - x)
        return -mirror.weight @ logs
    if mirror.geometry == maps.GEOMETRY.ball:
        square = ((x - mirror.center) ** 2).sum()
        return -mirror.weight[0] * np.log(mirror.radius**2 - square)
    if mirror.geometry == maps.GEOMETRY.simplex:
        return mirror.weight[0] * (x * np.log(x)).sum()
    u = (x - mirror.center) / mirror.weight
    return ((u * u + 1.0) ** (0.5 * mirror.p)).sum() / (mirror.p * (mirror.p - 1.0))


def inside(mirror, rng):
    """Random point strictly inside."""
    if mirror.geometry == maps.GEOMETRY.box:
        share = 0.05 + 0.9 * rng.random(DIM)
        return mirror.lower + share * (mirror.upper - mirror.lower)
    if mirror.geometry == maps.GEOMETRY.ball:
        z = rng.standard_normal(DIM)
        return mirror.center + 0.95 * rng.random() * mirror.radius * z / np.sqrt(z @ z)
    if mirror.geometry == maps.GEOMETRY.simplex:
        return rng.dirichlet(np.ones(DIM))
    return mirror.center + 3.0 * mirror.weight * rng.standard_normal(DIM)


def directions(mirror):
    """Moves of the coordinates of a map, one in each row."""
    if mirror.geometry == maps.GEOMETRY.simplex:
        return np.hstack([np.eye(DIM - 1), -np.ones((DIM - 1, 1))])
    return np.eye(DIM)


def hessian(mirror, x):
    """Second derivatives along the coordinates, by differences of the gradient."""
    rows = directions(mirror)
    size, step = len(rows), 1e-5 * np.ones(len(rows))
    if mirror.geometry == maps.GEOMETRY.box:
        step = 1e-5 * (mirror.upper - mirror.lower)
    if mirror.geometry == maps.GEOMETRY.simplex:
        step = 1e-4 * x.min() * np.ones(size)
    columns = []
    for move, h in zip(rows, step, strict=True):
        above, below = np.empty(DIM), np.empty(DIM)
        assert maps.map_to_dual(mirror, x + h * move, above)
        assert maps.map_to_dual(mirror, x - h * move, below)
        columns.append((above - below)[:size] / (2.0 * h))
    return np.array(columns)


@pytest.fixture(params=MAPS, name="mirror")
def one_map(request):
    return MAPS[request.param]


def test_the_gradient_is_that_of_the_potential(mirror):
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, found = inside(mirror, rng), np.empty(DIM)
        assert maps.map_to_dual(mirror, x, found)
        for j, move in enumerate(directions(mirror)):
            h = 1e-6 * (1.0 if mirror.geometry != maps.GEOMETRY.simplex else x.min())
            rise = potential(mirror, x + h * move) - potential(mirror, x - h * move)
            assert rise / (2.0 * h) == pytest.approx(found[j], rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_the_inverse_undoes_the_gradient(mirror):
    rng = np.random.default_rng(2)
    for _ in range(100):
        x, dual, back = inside(mirror, rng), np.empty(DIM), np.empty(DIM)
        maps.map_to_dual(mirror, x, dual)
        maps.map_from_dual(mirror, dual, back)
        np.testing.assert_allclose(back, x, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_curvature_agrees_with_differences_of_the_gradient(mirror):
    rng = np.random.default_rng(3)
    size = len(directions(mirror))
    for _ in range(10):
        x, v = inside(mirror, rng), np.zeros(DIM)
        matrix = hessian(mirror, x)
        v[:size] = rng.standard_normal(size)
        form = v[:size] @ np.linalg.solve(matrix, v[:size])
        assert maps.squared_dual_norm(mirror, x, v) == pytest.approx(form, rel=1e-4)
        log_det = np.linalg.slogdet(matrix)[1]
        if mirror.geometry == maps.GEOMETRY.simplex:
            log_det += np.log(mirror.weight[0])  # the constant that it leaves out
        assert maps.log_det(mirror, x) == pytest.approx(log_det, rel=1e-4, abs=1e-3)


@pytest.mark.slow
def test_the_noise_has_the_hessian_as_covariance(mirror):
    rng = np.random.default_rng(4)
    for _ in range(10):
        x, out = inside(mirror, rng), np.empty(DIM)
        columns = []
        for unit in np.eye(DIM):
            maps.multiply_hessian_root(mirror, x, unit, out)
            columns.append(out.copy())
        matrix = hessian(mirror, x)
        size = len(matrix)
        square = np.array(columns).T @ np.array(columns)
        np.testing.assert_allclose(
            square[:size, :size], matrix, rtol=1e-4, atol=1e-5 * np.abs(matrix).max()
        )
        assert np.abs(square[size:]).max(initial=0.0) == 0.0


@pytest.mark.parametrize("p", [1.1, 1.5, 1.9, 2.0])
def test_the_root_of_the_power_map_holds_at_all_sizes(p):
    for size in 10.0 ** np.arange(-200.0, 20.0, 7.0):
        u = maps.solve_power(size, p)
        logs = np.log(u) + (0.5 * p - 1.0) * np.logaddexp(0.0, 2.0 * np.log(u))
        assert logs == pytest.approx(np.log(size), rel=1e-13, abs=1e-13)


def test_boundary_and_infinite_duals_are_outside():
    scratch = np.empty(2)
    box = BLANK._replace(
        geometry=maps.GEOMETRY.box, lower=np.zeros(2), upper=np.ones(2)
    )
    ball = BLANK._replace(geometry=maps.GEOMETRY.ball, center=np.zeros(2), radius=1.0)
    simplex = BLANK._replace(geometry=maps.GEOMETRY.simplex)
    for mirror, x in ((box, [0.0, 0.5]), (ball, [0.0, 1.0]), (simplex, [1.0, 0.0])):
        assert not maps.map_to_dual(mirror, np.array(x), scratch)
        for y in ([np.inf, 1.0], [np.inf, -np.inf], [np.nan, 0.0]):
            out = np.empty(2)
            maps.map_from_dual(mirror, np.array(y), out)
            assert not maps.map_to_dual(mirror, out, scratch)


def proposal_density(plan, mean, theta, origin):
    """Log density of the proposal in the coordinates, from the formula, in NumPy."""
    size = len(directions(plan.mirror))
    dual = np.empty(DIM)
    maps.map_to_dual(plan.mirror, theta, dual)
    gap = (dual - mean)[:size]
    matrix, there = hessian(plan.mirror, origin), hessian(plan.mirror, theta)
    value = -gap @ np.linalg.solve(matrix, gap) / (4.0 * plan.step)
    return value - 0.5 * np.linalg.slogdet(matrix)[1] + np.linalg.slogdet(there)[1]


@pytest.mark.slow
def test_the_acceptance_ratio_is_that_of_the_formula(mirror):
    rng = np.random.default_rng(5)
    plan, scratch = mirror_langevin.MirrorPlan(0.3, mirror), np.empty((2, DIM))
    for _ in range(10):
        x, y = inside(mirror, rng), inside(mirror, rng)
        if mirror.geometry == maps.GEOMETRY.ball:
            y = mirror.center + 0.5 * (y - mirror.center)
        slopes = rng.standard_normal((2, DIM))
        if mirror.geometry == maps.GEOMETRY.simplex:
            slopes[:, -1] = 0.0
        ratio, expected = 0.0, 0.0
        for origin, theta, slope, sign in ((y, x, slopes[0], 1), (x, y, slopes[1], -1)):
            ratio += sign * mirror_langevin.log_proposal(
                plan, origin, slope, theta, *scratch
            )
            mean = np.empty(DIM)
            maps.map_to_dual(mirror, origin, mean)
            mean -= plan.step * slope
            expected += sign * proposal_density(plan, mean, theta, origin)
        assert ratio == pytest.approx(expected, rel=1e-3, abs=1e-2)
