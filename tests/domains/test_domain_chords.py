"""Chords of the domains: ends on the surface, inside in floating point."""

import math

import numpy as np
import pytest

from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex, WholeSpace
from tests.support.bodies import (
    bounded,
    by_definition,
    direction_in,
    far_points,
    inside_points,
    label,
    random_polytope,
)
from tests.support.tiers import one_in

every_body = pytest.mark.parametrize("pair", bounded(), ids=label)


def chord_errors(domain, theta, direction, ends):
    """Whether both ends are inside, and nothing a little further is."""
    first, last = ends
    reach = 1e-7 * (last - first)
    inside = [domain.contains(theta + t * direction) for t in ends]
    beyond = [
        domain.contains(theta + t * direction) for t in (first - reach, last + reach)
    ]
    return all(inside), any(beyond)


@one_in(5)
@every_body
def test_chord_ends_are_on_the_surface(pair):
    domain, dim = pair
    rng = np.random.default_rng(17)
    middle = domain.interior_point(dim)
    starts = [middle, *(0.5 * (inside_points(domain, dim, rng, 15) + middle))]
    for theta in starts:
        direction = direction_in(domain, dim, rng) * rng.choice([1e-3, 1.0, 1e3])
        ends = domain.chord(theta, direction)
        assert ends[0] < 0.0 < ends[1]
        assert chord_errors(domain, theta, direction, ends) == (True, False)
        longer = (ends[0], ends[1] * (1.0 + 1e-6))
        shorter = (ends[0] * (1.0 - 1e-6), ends[1])
        assert chord_errors(domain, theta, direction, longer) != (True, False)
        assert chord_errors(domain, theta, direction, shorter) != (True, False)


@one_in(5)
@every_body
def test_chords_from_the_surface_stay_inside(pair):
    domain, dim = pair
    rng = np.random.default_rng(18)
    for theta in map(domain.project, far_points(domain, dim, rng, 20)):
        direction = direction_in(domain, dim, rng)
        first, last = domain.chord(theta, direction)
        assert first <= 0.0 <= last
        for share in rng.uniform(size=5):
            t = first + share * (last - first)
            assert by_definition(domain, theta + t * direction, 1e-14)
        assert domain.contains(theta + first * direction)
        assert domain.contains(theta + last * direction)


@pytest.mark.parametrize("scale", [1e-200, 1e-5, 1e200])
def test_chords_scale_with_the_direction(scale):
    theta, direction = np.array([0.1, 0.2, -0.3, 0.0]), np.array([1.0, -2.0, 0.5, 0.5])
    domains = [Ball(1.0, p=p) for p in (1.0, 1.5, 2.0, 4.0, math.inf)]
    domains += [SchattenBall(1.0, p=p, shape=(2, 2)) for p in (1.0, 3.0)]
    domains += [random_polytope(4, 3, seed=1), Box(-1.0, 1.0)]
    for domain in domains:
        wanted = domain.chord(theta, direction)
        scaled = domain.chord(theta, scale * direction)
        np.testing.assert_allclose(np.array(scaled) * scale, wanted, rtol=1e-12)


def test_chords_of_special_directions():
    simplex = Simplex()
    assert simplex.chord([0.5, 0.5, 0.0], [1.0, 0.0, 0.0]) == (0.0, 0.0)
    np.testing.assert_allclose(
        simplex.chord([0.5, 0.3, 0.2], [1.0, -1.0, 0.0]), (-0.5, 0.3), rtol=1e-14
    )
    for domain in (Ball(1.0), Ball(1.0, p=1.0), SchattenBall(1.0, p=1.0, shape=(2, 1))):
        assert domain.chord([0.1, 0.2], [0.0, 0.0]) == (-math.inf, math.inf)
    half = Polytope([[1.0, 0.0]], [1.0])
    assert half.chord([0.0, 3.0], [0.0, 1.0]) == (-math.inf, math.inf)
    assert half.chord([0.0, 3.0], [2.0, 1.0]) == (-math.inf, 0.5)
    assert WholeSpace().chord([1.0], [1.0]) == (-math.inf, math.inf)
