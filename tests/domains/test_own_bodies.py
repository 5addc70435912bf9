"""Bodies of the user, ellipsoids and intersections: geometry, refusals, draws."""

import copy
import importlib.util
import math
import pickle
import sys
from functools import cache

import numpy as np
import pytest
from numba import njit

import dpsample as dps
from dpsample.domains import Ball, Box, Ellipsoid, Intersection, Polytope, custom
from dpsample.domains.exits import FACET, HAS_NORMAL, SCRATCH_PER_DIM, TIME
from tests.support.processes import run_python
from tests.support.tiers import one_in, slow, usual

MATRIX = np.array([[4.0, 1.0], [1.0, 1.0]])


def in_ball(theta):
    return theta @ theta <= 1.0


def flat(theta):
    return 0.0 * theta[0]


def ball_of_user(dim=2, **options):
    return custom(in_ball, dim=dim, interior_point=np.full(dim, 0.1), **options)


def triangle():
    return Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.0, 0.0])


# Bodies and their rules. Those of a user are compiled when a test asks for them.
BODIES = {
    "custom": lambda: (ball_of_user(), lambda x: x @ x <= 1.0),
    "custom, own normal": lambda: (
        ball_of_user(normal=lambda x: x),
        lambda x: x @ x <= 1.0,
    ),
    "ellipsoid": lambda: (
        Ellipsoid(MATRIX, center=[1.0, 2.0]),
        lambda x: (x - [1.0, 2.0]) @ MATRIX @ (x - [1.0, 2.0]) <= 1.0,
    ),
    "two balls": lambda: (
        Intersection(Ball(1.0), Ball(1.0, center=[1.0, 0.0])),
        lambda x: x @ x <= 1.0 and (x - [1.0, 0.0]) @ (x - [1.0, 0.0]) <= 1.0,
    ),
    "nested": lambda: (
        Intersection(Intersection(Ball(1.0), Box(-0.5, 2.0)), triangle()),
        lambda x: x @ x <= 1.0 and x.min() >= 0.0 and x.sum() <= 1.0,
    ),
    "with custom and ellipsoid": lambda: (
        Intersection(ball_of_user(), Ellipsoid(MATRIX, center=[0.5, 0.5]), Box(-2, 2)),
        lambda x: x @ x <= 1.0 and (x - 0.5) @ MATRIX @ (x - 0.5) <= 1.0,
    ),
}


@cache
def body_of(name):
    return BODIES[name]()


def exit_of(domain, theta, velocity, pull, horizon):
    dim = len(theta)
    buffer, normal = np.empty(SCRATCH_PER_DIM * dim), np.empty(dim)
    out = np.full(2, np.nan)
    piece = domain.exit_piece(dim)
    piece(domain.body(dim), theta, velocity, pull, horizon, buffer, normal, out)
    return out, normal


@one_in(2)
@pytest.mark.parametrize("name", BODIES)
class TestGeometry:
    def test_membership(self, name):
        domain, inside = body_of(name)
        points = np.random.default_rng(1).normal(size=(500, 2)) * 0.8 + 0.4
        for point in points:
            assert domain.contains(point) == inside(point)

    def test_chords_end_at_the_boundary(self, name):
        domain, inside = body_of(name)
        rng, center = np.random.default_rng(2), domain.interior_point(2)
        assert inside(center)
        for _ in range(100):
            direction = rng.normal(size=2)
            low, high = domain.chord(center, direction)
            for end in (low, high):
                assert inside(center + (1.0 - 1e-9) * end * direction)
                assert not inside(center + (1.0 + 1e-6) * end * direction)

    @pytest.mark.slow
    def test_projections_are_inside_and_fixed_points_there(self, name):
        domain, _ = body_of(name)
        rng = np.random.default_rng(3)
        for point in rng.normal(size=(100, 2)) * 3.0:
            nearest = domain.project(point)
            assert domain.contains(nearest)
            np.testing.assert_array_equal(domain.project(nearest), nearest)

    @pytest.mark.slow
    def test_first_exit_of_parabolas(self, name):
        domain, inside = body_of(name)
        rng, center = np.random.default_rng(4), domain.interior_point(2)
        for _ in range(40):
            velocity, pull = rng.normal(size=2), 2.0 * rng.normal(size=2)
            horizon, start, known = 3.0, center.copy(), 0.0
            for _ in range(20):  # a search may go on from what is certified
                here = velocity + known * pull
                out, normal = exit_of(domain, start, here, pull, horizon - known)
                if out[TIME] == np.inf or out[FACET] != -2.0:
                    break
                known += out[TIME]
                start = center + known * velocity + 0.5 * known**2 * pull
            times = np.linspace(0.0, horizon, 3001)
            path = center + times[:, None] * velocity
            path = path + 0.5 * times[:, None] ** 2 * pull
            outside = [not inside(point) for point in path]
            first = times[outside.index(True)] if any(outside) else np.inf
            time = known + out[TIME]
            if first == np.inf:
                assert time == np.inf or time > horizon - 2e-3
                continue
            assert first - 1.1e-3 <= time <= first + 1e-9
            if out[FACET] == HAS_NORMAL:
                speed = velocity + time * pull
                assert normal @ speed > 0.0

    def test_copies(self, name):
        domain, inside = body_of(name)
        for other in (copy.deepcopy(domain), pickled(domain)):
            center = domain.interior_point(2)
            assert other.contains(center)
            assert other.chord(center, [1.0, 0.0]) == domain.chord(center, [1.0, 0.0])
        assert inside(center)


def pickled(domain):
    try:
        return pickle.loads(pickle.dumps(domain))
    except (pickle.PicklingError, AttributeError):  # a lambda of this file
        return copy.deepcopy(domain)


def sectors(inside, center):
    """Mean of the uniform law by rays: integrals of r dr and r^2 dr are exact."""
    angles = 2.0 * math.pi * (np.arange(2000) + 0.5) / 2000
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    low, high = np.zeros(len(rays)), np.full(len(rays), 8.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        points = center + middle[:, None] * rays
        is_in = np.array([inside(point) for point in points])
        low, high = np.where(is_in, middle, low), np.where(is_in, high, middle)
    area = (low**2 / 2.0).sum()
    mean = center + (low[:, None] ** 3 / 3.0 * rays).sum(axis=0) / area
    second = (low[:, None] ** 4 / 4.0 * rays**2).sum(axis=0) / area
    return mean, second - ((mean - center) ** 2)


@usual("ChordSlice(num_steps=None)-custom]")
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "sampler", [dps.samplers.BilliardHMC(), dps.samplers.ChordSlice()], ids=repr
)
def test_uniform_draws_have_the_right_moments(name, sampler):
    domain, inside = body_of(name)
    mean, variance = sectors(inside, domain.interior_point(2))
    target = dps.Density(energy=flat, dim=2, domain=domain)
    draws = dps.sample(
        target, sampler=sampler, num_draws=2000, seed=5, progress=False, check=False
    )
    theta = draws.posterior["theta"].values
    assert all(domain.contains(point) for point in theta.reshape(-1, 2)[::50])
    size = np.sqrt(variance / 2000.0)
    assert (np.abs(theta.mean(axis=(0, 1)) - mean) < 8.0 * size).all()
    np.testing.assert_allclose(theta.var(axis=(0, 1)), variance, rtol=0.15)


@pytest.mark.slow
def test_a_force_and_a_turned_normal():
    """A normal that is turned by 20 degrees is refused at construction."""
    cos, sin = math.cos(0.35), math.sin(0.35)
    turn = np.array([[cos, -sin], [sin, cos]])
    with pytest.raises(ValueError, match="normal must be a normal of the boundary"):
        custom(
            lambda theta, data: theta @ theta <= 1.0,
            dim=2,
            interior_point=[0.0, 0.0],
            data=turn,
            normal=lambda theta, data: data @ theta,
        )


def raises_outside(theta):
    if theta @ theta > 1.0:
        raise ValueError("outside")
    return True


@pytest.mark.slow
@pytest.mark.parametrize("size", [1.0, 1e200, 1e-200])
def test_normals_of_any_length(size):
    body = custom(
        lambda theta, size: theta @ theta <= 1.0,
        dim=2,
        interior_point=[0.0, 0.0],
        data=size,
        normal=lambda theta, size: size * theta,
    )
    out, normal = exit_of(body, np.zeros(2), np.array([1.0, 0.5]), np.zeros(2), 2.0)
    assert out[0] == pytest.approx(1.0 / np.sqrt(1.25))
    assert normal[1] / normal[0] == pytest.approx(0.5)


@pytest.mark.slow
def test_a_half_plane():
    """Most rays do not end."""
    half = custom(
        lambda x: x[0] >= -1.0, dim=2, interior_point=[0.0, 0.0], is_bounded=False
    )
    target = dps.Density(energy=lambda x: 0.5 * x @ x, dim=2, domain=half)
    draws = dps.sample(target, seed=1, progress=False)
    theta = draws.posterior["theta"].values
    # The mean of a normal variable above -1 is phi(1) / Phi(1).
    assert theta[..., 0].mean() == pytest.approx(0.2876, abs=0.08)
    assert (theta[..., 1] ** 2).mean() == pytest.approx(1.0, rel=0.15)


class TestRefusals:
    @one_in(3)
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"contains": lambda x: x @ x - 1.0}, "returns a bool"),
            ({"contains": lambda x: 1}, "returns a bool"),
            ({"contains": lambda x: x[2] < 1.0}, "IndexError"),
            ({"interior_point": [2.0, 0.0]}, "interior_point must be inside"),
            ({"interior_point": [1.0 - 1e-9, 0.0]}, "well inside"),
            ({"contains": lambda x: x[0] == 0.0}, "a bounded set"),
            (
                {"contains": lambda x: x[0] == 0.0 and abs(x[1]) < 1.0},
                "well inside",
            ),
            ({"contains": lambda x: x[0] < 1.0}, "a bounded set"),
            ({"contains": lambda x: 0.25 <= x @ x <= 1.0, "interior_point": [0.7, 0.0]},
             "convex"),
            ({"contains": lambda x: x.min() < 0.5 and np.abs(x).max() < 1.0}, "convex"),
            ({"contains": lambda x: abs(x[0]) <= 1.0}, "a bounded set"),
            ({"contains": raises_outside}, "raises ValueError: outside .line"),
            ({"normal": lambda x: 0.0 * x}, "normal must be finite and not 0"),
            ({"normal": lambda x: x[:1].copy()}, r"normal .* returns shape \(2,\)"),
            (
                {
                    "contains": lambda x: (x - 1e8) @ (x - 1e8) <= 1e-6,
                    "interior_point": [1e8, 1e8],
                },
                "digits enough",
            ),
        ],
    )  # fmt: skip
    def test_custom(self, options, message):
        given = {"contains": in_ball, "dim": 2, "interior_point": [0.0, 0.0]} | options
        contains = given.pop("contains")
        with pytest.raises(ValueError, match=message):
            custom(contains, **given)

    def test_ellipsoids(self):
        for matrix in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.1], [0.0, 1.0]], [[0.0]]):
            with pytest.raises(ValueError, match="precision must be"):
                Ellipsoid(matrix)

    def test_intersections(self):
        with pytest.raises(ValueError, match="two or more"):
            Intersection(Ball(1.0))
        apart = Intersection(Ball(1.0), Ball(1.0, center=[3.0, 0.0]))
        with pytest.raises(ValueError, match="common inner point"):
            apart.body(2)
        with pytest.raises(ValueError, match="sets with an interior"):
            Intersection(Ball(1.0), dps.domains.Simplex()).body(2)

    def test_slivers_are_found(self):
        sliver = Intersection(Ball(1.0), Ball(1.0, center=[2.0 - 1e-7, 0.0]))
        center = sliver.interior_point(2)
        assert sliver.contains(center)

    def test_problems_refuse(self):
        for domain, _ in map(body_of, BODIES):
            with pytest.raises(ValueError, match="bounds are proved"):
                dps.Problem(
                    np.eye(2) / 2.0,
                    [1.0, -1.0],
                    loss=dps.losses.Logistic(),
                    domain=domain,
                    row_bound=1.0,
                )


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0.0, 5e-324), (0.0, 1e-200), (0.0, 1e200), (-1.7e308, 1.7e308)],
)
def test_boxes_whose_squares_are_no_numbers(lower, upper):
    with pytest.raises(ValueError, match="of lengths from 1e-150 to 1e150, got .* 1"):
        Box([0.0, lower], [1.0, upper])


def test_equalities_without_bounds_name_what_is_missing():
    with pytest.raises(ValueError, match="one inequality .* add lower and upper"):
        Polytope(A_eq=np.ones((1, 3)), b_eq=[1.0])


class TestInfiniteSides:
    def test_geometry(self):
        half = Box([0.0, -np.inf], [np.inf, 2.0])
        assert not half.is_bounded
        assert half.contains([1e9, -1e9]) and not half.contains([-1e-9, 0.0])
        low, high = half.chord([1.0, 1.0], [1.0, 1.0])
        assert (low, high) == pytest.approx((-1.0, 1.0))
        assert half.contains(half.interior_point(2))
        np.testing.assert_array_equal(half.project([-1.0, 3.0]), [0.0, 2.0])

    @pytest.mark.slow
    def test_exponentials(self):
        target = dps.Density(
            energy=lambda x: x[0] + 2.0 * x[1], dim=2, domain=Box(0.0, np.inf)
        )
        draws = dps.sample(target, num_draws=2000, seed=1, progress=False)
        theta = draws.posterior["theta"].values
        np.testing.assert_allclose(theta.mean(axis=(0, 1)), [1.0, 0.5], rtol=0.1)
        np.testing.assert_allclose(theta.std(axis=(0, 1)), [1.0, 0.5], rtol=0.15)

    @pytest.mark.slow
    def test_refusals(self):
        for lower, upper in ((np.inf, np.inf), (0.0, -np.inf), (np.nan, 1.0), (1, 0)):
            with pytest.raises(ValueError, match="must be"):
                Box(lower, upper)
        with pytest.raises(ValueError, match="rises where the domain is unbounded"):
            dps.Density(energy=lambda x: -x[0], dim=1, domain=Box(0.0, np.inf))
        with pytest.raises(ValueError, match="bounds are proved"):
            dps.Problem(
                [[1.0]],
                [1.0],
                loss=dps.losses.Logistic(),
                domain=Box(0.0, np.inf),
                row_bound=1.0,
            )


def test_the_nearest_point_of_an_ellipsoid():
    domain, rng = Ellipsoid(MATRIX, center=[1.0, 2.0]), np.random.default_rng(6)
    root = np.linalg.cholesky(np.linalg.inv(MATRIX))
    angles = 2.0 * math.pi * np.arange(200_000) / 200_000
    circle = np.stack([np.cos(angles), np.sin(angles)])
    boundary = (root @ circle).T + [1.0, 2.0]
    for point in rng.normal(size=(20, 2)) * 3.0:
        if domain.contains(point):
            continue
        best = np.linalg.norm(boundary - point, axis=1).min()
        distance = np.linalg.norm(domain.project(point) - point)
        assert distance == pytest.approx(best, rel=1e-7)


@pytest.mark.slow
def test_bodies_in_many_dimensions():
    """The intersection of a cube and a ball in 20 dimensions, by both samplers."""
    domain = Intersection(Box(-1.0, 1.0), Ball(3.0))
    target = dps.Density(energy=flat, dim=20, domain=domain)
    squares = [
        (
            dps.sample(target, sampler=s, num_draws=1000, seed=1, check=False)
            .posterior["theta"]
            .values
            ** 2
        ).mean()
        for s in (dps.samplers.BilliardHMC(), dps.samplers.ChordSlice())
    ]
    assert squares[0] == pytest.approx(squares[1], rel=0.03)


def half_ball(bound):
    """A ball that is cut by a helper, which reads a bound."""
    helper = njit(lambda theta: theta[0] <= bound)
    return custom(
        lambda theta: theta @ theta <= 1.0 and helper(theta),
        dim=2,
        interior_point=[0.0, 0.0],
    )


@pytest.mark.parametrize(
    "wrap",
    [lambda body: body, slow(lambda body: Intersection(body, Box(-0.9, 0.9)))],
    ids=["alone", "part"],
)
def test_checkpoints_know_the_body(tmp_path, wrap):
    """The same body, made again, goes on. Others, also in an intersection, do not."""
    options = {"sampler": dps.samplers.ChordSlice(), "seed": 1, "progress": False}
    options |= {"check": False, "num_chains": 2}

    def draw(domain, name, num_draws):
        target = dps.Density(energy=flat, dim=2, domain=domain)
        file = tmp_path / name
        return dps.sample(target, checkpoint=file, num_draws=num_draws, **options)

    first, again = half_ball(0.5), half_ball(0.5)
    other = half_ball(np.nextafter(0.5, 1.0))
    draw(wrap(first), "file", 5)
    longer = draw(wrap(again), "file", 10).posterior["theta"].values
    whole = draw(wrap(again), "whole", 10)
    np.testing.assert_array_equal(longer, whole.posterior["theta"].values)
    with pytest.raises(ValueError, match="checkpoint must be"):
        draw(wrap(other), "file", 10)


def test_a_deep_copy_has_the_arrays_of_the_construction():
    sides = np.array([1.0, 2.0])
    body = custom(
        lambda theta: theta[0] ** 2 * sides[0] + theta[1] ** 2 * sides[1] <= 1.0,
        dim=2,
        interior_point=[0.0, 0.0],
    )
    sides[:] = 100.0
    for same in (body, copy.deepcopy(body)):
        assert same.contains([0.9, 0.0]) and not same.contains([0.0, 0.9])


MODULE = """
import pickle
import sys
import numpy as np
import dpsample as dps

def in_ball(theta, radius):
    return theta @ theta <= radius

def energy(theta):
    return theta[0]

def draw(body, file, num_draws):
    target = dps.Density(energy=energy, dim=2, domain=body)
    return dps.sample(target, checkpoint=file, num_draws=num_draws, num_chains=2,
                      seed=1, progress=False, check=False).posterior["theta"].values

def go_on(folder):
    with open(folder + "/body", "rb") as file:
        body = pickle.load(file)
    assert np.array_equal(draw(body, folder + "/chain", 40), draw(body, None, 40))
    print("the same draws")
"""


@pytest.mark.slow
def test_another_process_goes_on(tmp_path, monkeypatch):
    """A pickled body and a checkpoint, in a process with other hashes of texts."""
    (tmp_path / "module_of_user.py").write_text(MODULE)
    spec = importlib.util.spec_from_file_location(
        "module_of_user", tmp_path / "module_of_user.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "module_of_user", module)
    spec.loader.exec_module(module)
    ball = custom(module.in_ball, dim=2, interior_point=[0.0, 0.0], data=1.0)
    body = Intersection(ball, Box(-0.5, 2.0))
    module.draw(body, str(tmp_path / "chain"), 20)
    (tmp_path / "body").write_bytes(pickle.dumps(body))
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import module_of_user; "
    code += f"module_of_user.go_on({str(tmp_path)!r})"
    assert "the same draws" in run_python(code, PYTHONHASHSEED="7")[0]
