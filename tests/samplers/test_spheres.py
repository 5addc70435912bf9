"""Gaussians concentrated at spheres: 50-digit quadrature, the proved acceptance."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

import dpsample as dps
from dpsample.core.jit import kernel, pointer
from dpsample.running import chains
from dpsample.samplers.proximal import ball_gaussian, envelope_draws
from tests.support.exact_draws import ball_draws
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

DIGITS = 50
PIECES = 60
REACH = 45  # drop in log density beyond which there is no mass
NODES, WEIGHTS = (
    [mp.mpf(float(x)) for x in row] for row in np.polynomial.legendre.leggauss(10)
)


def edge(drop, room):
    """Distance from the mode at which the log density has dropped by `REACH`."""
    if room == 0 or drop(room * (1 - mp.mpf(10) ** -30)) < REACH:
        return room
    low, high = mp.log(room) - 100, mp.log(room)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if drop(mp.exp(middle)) < REACH else (low, middle)
    return mp.exp(high)


def law_on(log_density, room):
    """Distribution function of a unimodal density on (0, room)."""
    low, high = mp.log(room) - 80, mp.log(room)  # a mode nearer to 0 is one at 0
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        is_right = log_density(mp.exp(left)) < log_density(mp.exp(right))
        low, high = (left, high) if is_right else (low, right)
    mode = mp.exp(low)
    top = log_density(mode)
    left = edge(lambda w: top - log_density(mode - w), mode)
    right = edge(lambda w: top - log_density(mode + w), room - mode)
    cuts = {mode - left + (left + right) * k / PIECES for k in range(PIECES + 1)}
    for k in range(1, 20):
        share = mp.mpf(10) ** (-mp.mpf(k) / 4)
        cuts |= {mode - left * share, mode + right * share}
    cuts = sorted(cuts)
    masses = [mp.mpf(0)]
    inner = [min(max(c, room * mp.mpf(10) ** -45), room) for c in cuts]
    for a, b in pairwise(inner):
        half = (b - a) / 2
        values = (mp.exp(log_density(a + half * (1 + x)) - top) for x in NODES)
        piece = sum(w * v for w, v in zip(WEIGHTS, values, strict=True)) * half
        masses.append(masses[-1] + piece)
    nudged = (min(c, room * (1 - mp.mpf(10) ** -45)) for c in inner)
    density = [float(mp.exp(log_density(c) - top) / masses[-1]) for c in nudged]
    places, first = np.unique([float(c) for c in inner], return_index=True)
    known = np.array([float(m / masses[-1]) for m in masses])[first]
    spline = CubicHermiteSpline(places, known, np.array(density)[first])
    return lambda x: np.clip(spline(np.clip(x, places[0], places[-1])), 0.0, 1.0)


def depth_law(dim, radius, distance):
    """Distribution function of R - ||x||, for a unit normal about a distance."""

    def log_density(depth):
        r = radius - depth
        if distance == 0:
            return (dim - 1) * mp.log(r) - r * r / 2
        bessel = mp.besseli(mp.mpf(dim) / 2 - 1, distance * r)
        return (
            mp.mpf(dim) / 2 * mp.log(r)
            - (r - distance) ** 2 / 2
            + (mp.log(bessel) - distance * r)
        )

    return law_on(log_density, mp.mpf(radius))


def angle_law(dim, radius, distance):
    """Distribution function of the distance from the axis, for a draw on the sphere."""

    def log_density(across):
        half = mp.sqrt((radius - across) * (radius + across))
        fall = distance * across * across / (radius + half)
        return (dim - 2) * mp.log(across) - mp.log(half) - fall

    return law_on(log_density, mp.mpf(radius))


def check_cell(dim, radius, place, num_draws, seed):
    """Draws about one mean follow the law of their depth, or of their angle."""
    distance = MEANS[place](radius)
    axis = np.random.default_rng([seed, 1]).standard_normal(dim)
    mean = distance * axis / np.linalg.norm(axis)
    draws = ball_draws(seed, mean, 1.0, np.zeros(dim), radius, num_draws)
    with mp.workdps(DIGITS):
        given = mp.sqrt(sum(mp.mpf(float(x)) ** 2 for x in mean))
        is_sphere = given - radius > 1e-4 / np.spacing(radius)
        law = (angle_law if is_sphere else depth_law)(dim, mp.mpf(radius), given)
    if is_sphere:  # what the law has of depth is below the spacing of floats
        along = np.outer(draws @ mean, mean) / float(given) ** 2
        found = np.linalg.norm(draws - along, axis=1)
    else:
        found = radius - np.linalg.norm(draws, axis=1)
    assert_law(found, law)
    with rejected():
        assert_law(found + 0.3 * found.std(), law)


MEANS = {
    "the center": lambda radius: 0.0,
    "half a radius": lambda radius: 0.5 * radius,
    "one deviation inside": lambda radius: max(radius - 1.0, 0.9 * radius),
    "the sphere": lambda radius: radius,
    "one deviation outside": lambda radius: radius + 1.0,
    "thirty deviations outside": lambda radius: radius + 30.0,
    "half a radius outside": lambda radius: 1.5 * radius,
    "far outside": lambda radius: 100.0 * radius,
}
DIMS = (2, 3, 5, 10, 20, 50)
RADII = (1.0, 10.0, 1e2, 1e3, 1e4, 1e6, 1e8, 1e12)


@one_in(4)
@pytest.mark.parametrize(
    ("dim", "radius", "place"),
    [
        (2, 1e4, "the sphere"),
        (5, 1e6, "one deviation outside"),
        (50, 1e12, "the sphere"),
        (20, 1e8, "far outside"),
    ],
)
def test_draws_at_a_sphere_follow_the_law_at_fifty_digits(dim, radius, place):
    check_cell(dim, radius, place, 10_000, 401)


@pytest.mark.slow
@pytest.mark.parametrize("place", MEANS)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("dim", DIMS)
def test_no_draw_at_a_sphere_fails_or_is_biased(dim, radius, place):
    check_cell(dim, radius, place, 100_000, 402)


def ball_cases(num_cases):
    """(n, (R, A, R - A)) over all that matters, also where the mode is at a cliff."""
    rng = np.random.default_rng(403)
    for _ in range(num_cases):
        dim = int(rng.choice([2, 3, 4, 10, 50, 1000, 10**6]))
        radius = float(
            rng.choice([10 ** rng.uniform(-8, 16), dim**0.5 * rng.uniform(0.3, 3.0)])
        )
        depth = rng.choice([-1.0, 1.0]) * 10 ** rng.uniform(-12, 1) * min(1.0, radius)
        scales = (0.0, 10 ** rng.uniform(-12, 0), 1.0, 10 ** rng.uniform(0, 12))
        distance = float(rng.choice([*(s * radius for s in scales), radius - depth]))
        is_near = distance not in [s * radius for s in scales]
        depth = depth if is_near else radius - distance
        yield dim - 2.0, ball_gaussian.UnitBall(radius, distance, depth)


@pytest.mark.slow
def test_envelopes_of_balls_have_the_proved_acceptance():
    worst = np.inf
    for order, ball in ball_cases(300):
        mode, top, first, second = ball_gaussian._mode(order, ball)
        signs = (1.0, -1.0) if order > 0.0 else (1.0,)
        for sign in signs:
            width, drop, slope = ball_gaussian._side(
                order, ball, mode, top, second, sign
            )
            assert 0.4 <= drop <= 2.0 and slope * width >= drop * (1.0 - 1e-9)
            height = math.exp(max(sign * first * width, 0.0))
            share = -math.expm1(-drop) / drop
            worst = min(worst, share / (height + math.exp(-drop) / (slope * width)))
    assert worst > 0.28


def exact_log_density(order, ball, across):
    """Log density of the distance from the axis at 120 digits, by erfc."""
    radius, across = mp.mpf(ball[0]), mp.mpf(across)
    distance = radius - mp.mpf(ball[2])
    half = mp.sqrt((radius - across) * (radius + across))
    ends = ((distance + sign * half) / mp.sqrt(2) for sign in (-1, 1))
    mass = mp.fsub(*map(mp.erfc, ends))
    lead = order * mp.log(across) if order > 0.0 else 0
    return lead - across * across / 2 + mp.log(mass)


@pytest.mark.slow
def test_drops_of_the_log_density_do_not_cancel():
    worst, counter = 0.0, 0.0
    for order, ball in ball_cases(25):
        mode, top, _, second = ball_gaussian._mode(order, ball)
        width = ball_gaussian._side(order, ball, mode, top, second, 1.0)[0]
        across = mode + width
        chord = ball_gaussian._new_chord(ball, across)
        found = ball_gaussian._drop(order, ball, mode, top, across, chord)
        with mp.workdps(120):
            at_mode = exact_log_density(order, ball, max(mode, 1e-200))
            exact = float(at_mode - exact_log_density(order, ball, across))
        worst = max(worst, abs(found - exact) / (order + 1.0))
        counter = max(counter, abs(found - exact * (1.0 + 1e-10)) / (order + 1.0))
    assert worst < 1e-13 < counter


@pytest.mark.slow
def test_the_depth_of_a_mean_has_more_digits_than_its_norm():
    rng = np.random.default_rng(404)
    worst = lost = 0.0
    for radius in 10.0 ** rng.uniform(4, 14, 50):
        center = 10.0 * rng.standard_normal(7)
        axis = rng.standard_normal(7)
        mean = center + radius * axis / np.linalg.norm(axis)
        length = ball_gaussian._length(mean, center)
        found = ball_gaussian._depth(mean, 1.0, center, radius, length)
        with mp.workdps(DIGITS):
            pairs = zip(mean, center, strict=True)
            square = sum((mp.mpf(float(m)) - mp.mpf(float(c))) ** 2 for m, c in pairs)
            exact = float(mp.mpf(radius) - mp.sqrt(square))
        worst = max(worst, abs(found - exact) / radius)
        lost = max(lost, abs(radius - length - exact) / radius)
    assert worst < 1e-24 and lost > 1e-17


def concentrated(stddev, radius=1.0, middle=0.0):
    """No records' pull, and a regularizer centered on the sphere."""
    center = np.array([middle, 0.0])
    domain = dps.domains.Ball(radius, center=center)
    problem = dps.Problem(
        np.zeros((3, 2)),
        np.zeros(3),
        loss=dps.losses.Linear(),
        domain=domain,
        row_bound=1.0,
    )
    regularizer = dps.regularizers.SquaredNorm(center=center + [radius, 0.0])
    return dps.Gibbs(problem, k=stddev**-2.0, mu=1.0, regularizer=regularizer)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [dps.samplers.Exact(), dps.Proximal(), "auto"])
def test_a_mean_on_the_sphere_is_drawn_by_every_exact_sampler(sampler):
    options = {"num_draws": 200, "num_chains": 1, "progress": False, "check": False}
    for stddev, radius, middle in ((3e-5, 1.0, 0.0), (1e-8, 1.0, 0.0), (1.0, 1e4, 1e3)):
        target = concentrated(stddev, radius, middle)
        draws = dps.sample(target, sampler=sampler, seed=1, **options)
        theta = draws.posterior["theta"].to_numpy()[0]
        assert np.isfinite(theta).all()
        assert all(target.domain.contains(point) for point in theta)


@kernel(counts_references=False)
def no_draw(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Fail, as an exact draw does."""
    out[:] = np.nan


def test_a_draw_that_fails_is_not_blamed_on_the_pieces():
    prepared = dps.Proximal().prepare(concentrated(0.1), np.random.default_rng(1))
    broken = dataclasses.replace(
        prepared.metric, draw=pointer(no_draw, envelope_draws.DRAW)
    )
    spoiled = dataclasses.replace(prepared, metric=broken)
    with pytest.raises(dps.SamplingError, match="sampler's own draw"):
        chains.advance(spoiled.runner(), spoiled.init(), np.random.default_rng(1), 2)
