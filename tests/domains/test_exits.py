"""Exit times and normals against stepping along the path in exact arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import dpsample as dps
from dpsample.domains import exits
from dpsample.samplers.adaptive.billiard import find_exit_function

D = dps.domains
MIX = np.array([[1.0, 0.4, -0.3], [0.0, 1.0, 0.8], [-0.5, 0.2, 1.0]])
FACES = np.vstack((MIX, -MIX, [[1.0, 1.0, 1.0]]))
# Domains of three coordinates, and of matrices with four.
DOMAINS = {
    "box": D.Box([-1.0, -0.2, -3.0], [0.5, 0.3, 2.0]),
    "l_inf ball": D.Ball(0.7, p=np.inf, center=[0.3, -0.1, 0.0]),
    "simplex": D.Simplex(),
    "polytope": D.Polytope(FACES, np.full(7, 0.9)),
    "l_2 ball": D.Ball(0.8, center=[0.4, 0.0, -0.2]),
    "l_1 ball": D.Ball(0.9, p=1.0, center=[0.4, 0.0, -0.2]),
    "l_1.5 ball": D.Ball(0.9, p=1.5, center=[0.4, 0.0, -0.2]),
    "l_3 ball": D.Ball(0.9, p=3.0),
    "nuclear ball": D.SchattenBall(1.1, p=1.0, shape=(2, 2)),
    "operator ball": D.SchattenBall(1.1, p=np.inf, shape=(2, 2)),
    "Frobenius ball": D.SchattenBall(1.1, p=2.0, shape=(2, 2)),
}
STEPS = 2000  # of a path; between two of them it may be outside for a moment


def excess(domain, points):
    """How far outside, at most 0 inside, of points (..., dim)."""
    points = np.asarray(points)
    if domain.name == "box":
        return np.maximum(domain.lower - points, points - domain.upper).max(-1)
    if domain.name == "simplex":
        return -points.min(-1)
    if domain.name == "polytope":
        return (points @ domain.A.T - domain.b).max(-1)
    away = abs(points - domain.default_center(points.shape[-1]))
    p = domain.p
    if domain.name == "schatten_ball" and p != 2.0:
        # Sum and difference of the singular values, for either sign of the determinant.
        a, b, c, d = np.moveaxis(points, -1, 0)
        one = ((a + d) ** 2 + (b - c) ** 2) ** 0.5
        other = ((a - d) ** 2 + (b + c) ** 2) ** 0.5
        if p == 1.0:
            return np.maximum(one, other) - domain.radius
        return (one + other) / 2 - domain.radius
    if np.isinf(p):
        return away.max(-1) - domain.radius
    return (away**p).sum(-1) ** (1.0 / p) - domain.radius


def meet(domain, theta, velocity, pull, horizon):
    """Exit time and outward normal by the compiled piece."""
    dim = len(theta)
    out, normal = np.full(2, np.nan), np.full(dim, np.nan)
    body = domain.body(dim)
    if domain.name == "polytope":
        slacks = body.bounds - body.matrix @ theta
        rates, bends = -body.matrix @ velocity, -body.matrix @ pull
        time, face = exits.find_nearest_facet(slacks, rates, bends, horizon)
        return time, body.matrix[face]
    room = np.empty(exits.SCRATCH_PER_DIM * dim)
    piece = find_exit_function(domain, dim)
    piece(body, theta, velocity, pull, horizon, room, normal, out)
    if out[1] == exits.OPEN:  # the rest is another search's
        there = theta + out[0] * (velocity + 0.5 * out[0] * pull)
        rest = velocity + out[0] * pull, pull, horizon - out[0]
        time, normal = meet(domain, there, *rest)
        return out[0] + time, normal
    if out[1] >= 0.0 and out[0] < np.inf:
        axis = int(out[1])
        here = theta[axis] + out[0] * (velocity[axis] + 0.5 * out[0] * pull[axis])
        is_upper = here > domain.default_center(dim)[axis]
        normal[:] = 0.0
        normal[axis] = 1.0 if is_upper and domain.name != "simplex" else -1.0
    return out[0], normal


def starts(domain, kind, rng):
    """Point of the domain, velocity, acceleration and horizon of one case."""
    dim = 4 if domain.name == "schatten_ball" else 3
    center = domain.default_center(dim)
    velocity, pull, ray = rng.normal(size=(3, dim)) * [[1.0], [2.0], [1.0]]
    if domain.name == "simplex":
        velocity, pull = velocity - velocity.mean(), pull - pull.mean()
        ray -= ray.mean()
    reach = domain.chord(center, ray)[1]
    share = 1.0 if kind in ("wall", "tangent") else rng.random()
    theta = center + share * reach * ray
    if kind == "corner":
        theta = corner(domain, rng)
    if kind == "tangent":  # or inwards at a small angle
        away = meet(domain, center, ray, 0.0 * ray, 2.0 * reach)[1].copy()
        away -= away.mean() if domain.name == "simplex" else 0.0
        away /= np.linalg.norm(away)
        velocity -= (velocity @ away + 10.0 ** rng.uniform(-18.0, -1.0)) * away
    if kind == "strong":
        pull *= 1e3
    if kind == "still":
        velocity[:] = 0.0
    if kind == "straight":
        pull[:] = 0.0
    scale = {"tiny": 1e-9, "huge": 1e9}.get(kind, 1.0)
    horizon = 4.0 * rng.random() / scale
    return theta, scale * velocity, scale**2 * pull, horizon


def corner(domain, rng):
    """Point in which several faces or kinks meet."""
    if domain.name == "box":
        return np.where(rng.random(3) < 0.5, domain.upper, domain.lower)
    if domain.name == "simplex":
        return np.eye(3)[rng.integers(3)]
    if domain.name == "polytope":
        top = np.linalg.solve(MIX, [0.9, 0.9, -0.9]) * (1.0 - 1e-15)
        assert domain.contains(top)
        return top
    if domain.name == "schatten_ball":
        # Near a singular value 0, or two that are equal: there no normal is unique.
        shape = np.array([0.999, 0.0, 0.0, 0.001 if domain.p == 1.0 else 0.998])
        size = np.linalg.norm(shape[[0, 3]], ord=domain.p)
        return (1.0 - 1e-15) * domain.radius * shape / size
    center = domain.default_center(3)
    return center + domain.radius * rng.choice([-1.0, 1.0]) * np.eye(3)[rng.integers(3)]


def exact_excess(domain, theta, velocity, pull, time):
    """Excess at one time in 50 digits."""
    with mpmath.workdps(50):
        exact = np.vectorize(mpmath.mpf, otypes=[object])
        t = mpmath.mpf(float(time))
        point = exact(theta) + t * (exact(velocity) + t * exact(pull) / 2)
        return float(excess(domain, point))


def fault(domain, theta, velocity, pull, horizon, time, normal):
    """What is wrong with an exit, or an empty string."""
    end = min(time, horizon)
    grid = np.linspace(0.0, end, STEPS)[:-1, None]
    # Roots are squeezed together near both ends: look there, too.
    near = end * np.geomspace(1e-12, 0.5, 200)[:, None]
    grid = np.vstack((grid, near, end - near))
    path = theta + grid * (velocity + 0.5 * grid * pull)
    size = np.abs(theta).max() + end * np.abs(velocity).max()
    size += end**2 * np.abs(pull).max()
    if excess(domain, path).max() > 4e-14 * max(size, 1.0):
        return f"outside by {excess(domain, path).max():.1e} before {end:.3g}"
    if not time < horizon:
        return "" if time == np.inf else "an exit after the horizon"
    at_exit = exact_excess(domain, theta, velocity, pull, time)
    if abs(at_exit) > 4e-14 * max(size, 1.0):
        return f"off the wall by {at_exit:.1e}"
    speed = velocity + time * pull
    toward = normal @ speed / np.linalg.norm(normal)
    if not toward >= -1e-6 * np.linalg.norm(speed):
        return f"moves inwards, {toward:.1e}"
    # The normal supports the domain in the point.
    point = theta + time * (velocity + 0.5 * time * pull)
    gap = domain.support(normal) - normal @ point
    if domain.name == "simplex":
        gap = normal @ (np.eye(3) - point).T
        gap = gap.max()
    return "" if abs(gap) <= 1e-11 * np.abs(normal).sum() else f"normal off, {gap:.1e}"


KINDS = ("inside", "wall", "corner", "tangent", "strong", "still", "straight")
SCALES = ("tiny", "huge")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS + SCALES)
@pytest.mark.parametrize("name", DOMAINS)
def test_a_path_leaves_where_stepping_says(name, kind):
    domain, rng = DOMAINS[name], np.random.default_rng([5, *map(ord, kind)])
    for _ in range(40):
        case = starts(domain, kind, rng)
        assert fault(domain, *case, *meet(domain, *case)) == "", case


def straightened(domain, theta, velocity, pull, horizon):
    return meet(domain, theta, velocity, 0.0 * pull, horizon)


def at_the_last_wall(domain, theta, velocity, pull, horizon):
    """The last face or kink that a path meets, instead of the first."""
    later = [meet(domain, theta, velocity, pull, horizon)]
    while later[-1][0] < horizon and len(later) < 3:
        t = later[-1][0] * (1.0 + 1e-9) + 1e-9
        there = theta + t * (velocity + 0.5 * t * pull)
        time, normal = meet(domain, there, velocity + t * pull, pull, horizon)
        later.append((t + time, normal))
    return later[-1]


def late(domain, *case):
    time, normal = meet(domain, *case)
    return time * (1.0 + 1e-10), normal


def with_the_normal_of_the_start(domain, theta, *case):
    time, _ = meet(domain, theta, *case)
    return time, theta - domain.default_center(len(theta))


@pytest.mark.parametrize("bug", [straightened, at_the_last_wall, late])
@pytest.mark.parametrize("name", [name for name in DOMAINS if name != "l_inf ball"])
def test_a_wrong_time_is_noticed(name, bug):
    domain, rng = DOMAINS[name], np.random.default_rng(6)
    cases = [starts(domain, "inside", rng) for _ in range(40)]
    assert any(fault(domain, *case, *bug(domain, *case)) for case in cases)


@pytest.mark.parametrize("name", ["l_2 ball", "l_1 ball", "l_1.5 ball", "nuclear ball"])
def test_a_wrong_normal_is_noticed(name):
    domain, rng = DOMAINS[name], np.random.default_rng(7)
    cases = [starts(domain, "inside", rng) for _ in range(20)]
    bug = with_the_normal_of_the_start
    assert any("normal" in fault(domain, *case, *bug(domain, *case)) for case in cases)


def exact_root(coefficients, *, is_rising, last=np.inf):
    """First root of a polynomial, lowest power first, with a sign change; 60 digits."""
    with mpmath.workdps(60):
        powers = [mpmath.mpf(float(c)) for c in np.trim_zeros(coefficients, "b")]
        degree = len(powers) - 1
        companion = mpmath.zeros(degree, degree)
        for k in range(degree):
            companion[k, degree - 1] = -powers[k] / powers[-1]
            if k > 0:
                companion[k, k - 1] = 1
        found = mpmath.eig(companion, left=False, right=False)
        reals = [x.real for x in found if abs(mpmath.im(x)) < mpmath.mpf(10) ** -40]
        slopes = [k * c for k, c in enumerate(powers)][1:]
        for x in sorted(reals):
            slope = sum(c * x**k for k, c in enumerate(slopes))
            if 0 <= x <= last and slope != 0 and (slope > 0) == is_rising:
                return float(x)
    return np.inf


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_falls_are_the_roots_of_quadratics(scale):
    rng = np.random.default_rng(8)
    for turn in range(100):
        height, rate, bend = rng.random() * scale, rng.normal(), rng.normal() / scale
        if turn % 5 == 0:
            bend *= 1e-9  # nearly straight
        time = exits.time_to_zero(height, rate, bend)
        exact = exact_root([height, rate, 0.5 * bend], is_rising=False)
        # A path that just touches the wall may go either way.
        touch = abs(rate**2 - 2.0 * bend * height) < 1e-6 * rate**2
        assert touch or np.isclose(time, exact, rtol=1e-13, atol=0.0), (
            height,
            rate,
            bend,
        )


@pytest.mark.parametrize(
    ("height", "rate", "bend", "time"),
    [
        (0.0, -1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0, np.inf),
        (0.0, 1.0, -2.0, 1.0),
        (0.0, 0.0, 0.0, np.inf),
        (0.0, 0.0, 1.0, np.inf),
        (0.0, 0.0, -1.0, 0.0),
        (-1e-17, 1.0, -2.0, 1.0),
        (1.0, 0.0, 0.0, np.inf),
        (1.0, 0.0, -2.0, 1.0),
        (1.0, -1.0, 1.0, np.inf),
        (1.0, 1.0, 1.0, np.inf),
    ],
)
def test_what_just_left_the_wall_does_not_fall_at_once(height, rate, bend, time):
    assert exits.time_to_zero(height, rate, bend) == time


@pytest.mark.slow
def test_rises_are_the_first_roots_of_quartics():
    rng = np.random.default_rng(9)
    for turn in range(60):
        inner = np.poly1d(rng.uniform(-0.3, 1.3, size=1 + turn % 4), r=True).c[::-1]
        c = np.zeros(5)
        c[: len(inner)] = inner * rng.choice([-1.0, 1.0])
        c[0] = -abs(c[0])
        exact = exact_root(c, is_rising=True, last=1.0)
        time = exits.find_first_rise(*c)
        assert np.isclose(time, exact, rtol=0.0, atol=1e-11), c


@pytest.mark.parametrize("away", [-1e-12, -1e-16, 0.0, 1e-16, 1e-12])
def test_a_path_outwards_from_the_wall_of_an_l1_ball_leaves_at_once(away):
    domain, side = DOMAINS["l_1 ball"], np.array([0.3, -0.5, 0.1])
    theta = domain.default_center(3) + (1.0 + away) * side
    time, normal = meet(domain, theta, np.sign(side), 0.0 * side, 2.0)
    assert 0.0 <= time <= 1e-11
    np.testing.assert_array_equal(normal, np.sign(side))


def test_a_touch_of_an_l1_ball_hides_no_later_exit():
    """The face of the first signs is just touched, after signs that change and back."""
    domain = D.Ball(1.0, p=1.0)
    theta = np.array([-0.7124758929591701, -0.031232794113850354, 0.1764156336075187])
    velocity = np.array([0.18254558749121882, 0.2783517220915193, 0.7010093332685637])
    pull = np.array([1.4745120632458204, -1.2101651728978797, -0.09655009612974176])
    assert meet(domain, theta, velocity, pull, 1.7144438318993966)[0] < 1.7
    domain = D.Ball(0.9, p=1.0)
    theta = np.array([-0.0016192683769636063, -0.09702981250573367, 0.6071838139506016])
    velocity = np.array(
        [0.06984638851692723, -0.38501224114809657, 0.22227131492025026]
    )
    pivot = np.array([-0.2975451507315075, 0.19170967990714913, -0.046708010779467214])
    assert turning_exit(domain, theta, velocity, pivot, 3.397405398104311) < 3.3


TURNING = tuple(name for name in DOMAINS if name != "polytope")


def turning_exit(domain, theta, velocity, pivot, horizon):
    """Tangent of half the angle at the exit by the compiled piece."""
    dim = len(theta)
    out, normal = np.full(2, np.nan), np.full(dim, np.nan)
    piece = exits.rotation_exit(find_exit_function(domain, dim))
    room = np.empty(exits.SCRATCH_PER_DIM * dim)
    piece(domain.body(dim), theta, velocity, pivot, horizon, room, normal, out)
    assert out[1] != exits.OPEN
    return out[0]


def turning_fault(domain, theta, velocity, pivot, horizon, found):
    """What is wrong with the exit of a rotation, or an empty string."""
    last = 2.0 * np.arctan(min(found, horizon))
    angles = last * np.linspace(0.0, 1.0, STEPS)[:-1, None]
    path = pivot + (theta - pivot) * np.cos(angles) + velocity * np.sin(angles)
    size = max(1.0, abs(theta).max() + abs(pivot).max() + abs(velocity).max())
    if excess(domain, path).max() > 1e-13 * size:
        return "outside before the exit"
    if not found < horizon:
        return "" if found == np.inf else "an exit after the horizon"
    for angle, is_on in ((last, True), (last + 1e-6, False)):
        point = pivot + (theta - pivot) * np.cos(angle) + velocity * np.sin(angle)
        out = excess(domain, point)
        if is_on and abs(out) > 1e-12 * size:
            return "off the wall"
        if not is_on and out < -1e-9 * size:
            return "inside after the exit"
    return ""


def turning_case(domain, kind, rng):
    theta, velocity, pivot, _ = starts(domain, kind, rng)
    center = domain.default_center(len(theta))
    return theta, velocity, center + 0.5 * pivot, np.tan(0.5 * 3.0 * rng.random())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inside", "wall", "corner", "still"])
@pytest.mark.parametrize("name", TURNING)
def test_a_rotation_leaves_where_stepping_says(name, kind):
    domain, rng = DOMAINS[name], np.random.default_rng([9, *map(ord, kind)])
    count = 0
    for _ in range(60):
        case = turning_case(domain, kind, rng)
        found = turning_exit(domain, *case)
        assert turning_fault(domain, *case, found) == "", case
        count += found < case[-1]
    assert count > 10


@pytest.mark.parametrize("name", TURNING)
def test_a_wrong_exit_of_a_rotation_is_noticed(name):
    domain, rng = DOMAINS[name], np.random.default_rng(10)
    cases = [turning_case(domain, "inside", rng) for _ in range(40)]

    def late(theta, velocity, pivot, horizon):
        return 1.00001 * turning_exit(domain, theta, velocity, pivot, horizon)

    def of_the_parabola(theta, velocity, pivot, horizon):
        return meet(domain, theta, velocity, pivot - theta, horizon)[0]

    for bug in (late, of_the_parabola):
        assert any(turning_fault(domain, *case, bug(*case)) for case in cases)
