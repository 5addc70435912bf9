"""Pieces of the domains: membership, projection, parameters, round trips."""

import json
import math

import numba
import numpy as np
import pytest

from dpsample.core.jit import kernel, pointer
from dpsample.domains import (
    BODY,
    CHORD,
    CONTAINS,
    PROJECT,
    Ball,
    Polytope,
    SchattenBall,
    Simplex,
    WholeSpace,
    ball,
    from_dict,
)
from dpsample.domains.polytope import split_row
from dpsample.numerics.norms import distance
from tests.support.bodies import (
    bounded,
    by_definition,
    direction_in,
    far_points,
    inside_points,
    label,
)
from tests.support.tiers import one_in

every_body = pytest.mark.parametrize("pair", bounded(), ids=label)


def worst_gap(domain, points, images):
    """Largest of max over z in X of <x - Px, z - Px>, relative to ||x - Px||."""
    gaps = []
    for point, image in zip(points, images, strict=True):
        residual = point - image
        gap = domain.support(residual) - residual @ image
        gaps.append(gap / max(np.linalg.norm(residual), 1e-12))
    return max(gaps)


@one_in(5)
@every_body
def test_contains_is_the_definition(pair):
    domain, dim = pair
    rng = np.random.default_rng(11)
    points = [*inside_points(domain, dim, rng, 20), *far_points(domain, dim, rng, 40)]
    for theta in points:
        if domain.contains(theta):
            assert by_definition(domain, theta, 1e-13)
        else:
            assert not by_definition(domain, theta, -1e-13)


@one_in(5)
@every_body
def test_projection_is_the_nearest_point(pair):
    domain, dim = pair
    points = far_points(domain, dim, np.random.default_rng(12), 40)
    images = np.array([domain.project(point) for point in points])
    assert all(domain.contains(image) for image in images)
    assert worst_gap(domain, points, images) <= 1e-12
    again = np.array([domain.project(image) for image in images])
    np.testing.assert_allclose(again, images, rtol=0, atol=1e-15)


@one_in(3)
@every_body
def test_points_inside_do_not_move(pair):
    domain, dim = pair
    for theta in inside_points(domain, dim, np.random.default_rng(13), 20):
        np.testing.assert_allclose(domain.project(theta), theta, rtol=0, atol=1e-15)


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, math.inf])
def test_planted_radial_projection_is_seen(p):
    domain = Ball(1.0, p=p)
    points = far_points(domain, 5, np.random.default_rng(14), 20)
    radial = [v / max(np.linalg.norm(v, ord=p), 1.0) for v in points]
    assert worst_gap(domain, points, radial) > 1e-3


def test_projections_of_equal_sets_agree():
    rng = np.random.default_rng(15)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    cross = Polytope(signs, np.ones(16))
    cube = Polytope(np.vstack([np.eye(4), -np.eye(4)]), np.ones(8))
    for point in rng.normal(size=(40, 4)) * 3.0:
        for polytope, p in ((cross, 1.0), (cube, math.inf)):
            wanted = Ball(1.0, p=p).project(point)
            np.testing.assert_allclose(polytope.project(point), wanted, atol=1e-13)
        square = SchattenBall(1.0, p=2.0, shape=(2, 2)).project(point)
        np.testing.assert_allclose(square, Ball(1.0).project(point), atol=1e-15)


@pytest.mark.parametrize("p", [1.0, 1.0 + 1e-9, 1.001, 1.5, 40.0, 1e4, math.inf])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_projection_survives_extreme_sizes(p, scale):
    domain = Ball(scale, p=p)
    rng = np.random.default_rng(16)
    for size in (1.0 + 1e-9, 10.0, 1e6):
        point = scale * size * rng.normal(size=30)
        image = domain.project(point)
        assert domain.contains(image)
        residual = (point - image) / np.linalg.norm(point - image)
        gap = domain.support(residual) - residual @ image
        assert gap <= 1e-9 * scale


def test_projection_onto_the_simplex_is_exact_far_away():
    point = 1e12 + np.array([0.5, 0.25, -3.0, 0.75])
    image = Simplex().project(point)
    np.testing.assert_allclose(image, [1 / 3, 1 / 12, 0.0, 7 / 12], atol=1e-15)


@one_in(3, 1)
@every_body
def test_center_is_strictly_inside(pair):
    domain, dim = pair
    rng = np.random.default_rng(19)
    middle = domain.interior_point(dim)
    for _ in range(50):
        step = direction_in(domain, dim, rng)
        assert domain.contains(middle + 1e-4 * step / np.linalg.norm(step))


@one_in(3, 2)
@pytest.mark.parametrize("pair", [*bounded(), (WholeSpace(), 3)], ids=label)
def test_parameters_have_one_type_and_specs_round_trip(pair):
    domain, dim = pair
    if not numba.config.DISABLE_JIT:
        assert numba.typeof(domain.body(dim)) == BODY
    again = from_dict(json.loads(json.dumps(domain.to_dict(), allow_nan=False)))
    assert again == domain
    assert hash(again) == hash(domain)
    assert domain.is_bounded == (domain.name != "whole_space")
    assert domain.affine_dim(dim) == dim - (domain.name == "simplex")
    assert again != Ball(123.0)


def pieces(domain):
    """Pieces with the number of points they take and the length of their output."""
    return (
        (domain.contains_piece, 1, 1),
        (domain.project_piece, 1, None),
        (domain.chord_piece, 2, 2),
    )


@one_in(27)
@every_body
def test_pieces_compiled_equal_interpreted(pair):
    domain, dim = pair
    rng = np.random.default_rng(20)
    body = domain.body(dim)
    for point in far_points(domain, dim, rng, 5):
        near = domain.project(point)
        for piece, count, length in pieces(domain):
            points = (near, direction_in(domain, dim, rng)) if count == 2 else (point,)
            out = np.full((2, length or dim), np.nan)
            piece(body, *points, out[0])
            getattr(piece, "py_func", piece)(body, *points, out[1])
            np.testing.assert_allclose(out[0], out[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pair", [*bounded()[::3], (WholeSpace(), 3)], ids=label)
def test_nan_is_never_inside_and_never_repaired(pair):
    domain, dim = pair
    body = domain.body(dim)
    middle = domain.interior_point(dim)
    for position in range(dim):
        bad = middle.copy()
        bad[position] = np.nan
        inside, image, ends = (
            np.full(1, np.nan),
            np.full(dim, np.nan),
            np.full(2, np.nan),
        )
        domain.contains_piece(body, bad, inside)
        domain.project_piece(body, bad, image)
        assert inside[0] == 0.0
        assert np.isnan(image).any()
        if domain.is_bounded:
            domain.chord_piece(body, bad, np.ones(dim), ends)
            assert np.isnan(ends).all()


@kernel
def call_pieces(contains, project, chord, body, theta, out):
    """Call three pieces through pointers."""
    project(body, theta, out[:-3])
    contains(body, out[:-3], out[-3:-2])
    chord(body, out[:-3], theta, out[-2:])


@one_in(2)
@pytest.mark.parametrize("domain", [Ball(1.0), SchattenBall(1.0, p=1.0, shape=(2, 2))])
def test_pieces_work_through_pointers(domain):
    theta = np.array([1.0, -2.0, 0.5, 0.0])
    out = np.full(7, np.nan)
    pieces = (
        pointer(domain.contains_piece, CONTAINS),
        pointer(domain.project_piece, PROJECT),
        pointer(domain.chord_piece, CHORD),
    )
    call_pieces(*pieces, domain.body(4), theta, out)
    np.testing.assert_array_equal(out[:4], domain.project(theta))
    assert out[4] == 1.0
    assert tuple(out[5:]) == domain.chord(out[:4].copy(), theta)


def test_faces_that_a_projection_keeps_are_not_made_orthogonal_anew():
    """To the last bit: a projection took d^4 steps, seconds for 300 coordinates."""
    rng = np.random.default_rng(0)
    dim, count = 6, 4
    body = Polytope(rng.normal(size=(12, dim)), np.ones(12)).body(dim)
    active = np.array([3, 7, 1, 9])
    fresh, kept = ([np.full((dim, dim), np.nan) for _ in range(2)] for _ in range(2))
    weights = np.zeros((2, dim))
    whole = split_row(body, active, 0, count, 5, *fresh, weights[0])
    split_row(body, active, 0, 2, 1, *kept, weights[1])
    part = split_row(body, active, 2, count, 5, *kept, weights[1])
    np.testing.assert_array_equal(part, whole)
    np.testing.assert_array_equal(weights[1], weights[0])
    np.testing.assert_array_equal(kept, fresh)


def test_the_euclidean_ball_has_the_bits_of_all_balls():
    rng = np.random.default_rng(8)
    for dim, size in ((1, 1.0), (2, 1e-170), (3, 1e170), (5, 1.0), (40, 1e-320)):
        center = size * rng.standard_normal(dim)
        body = Ball(0.7 * size, center=center).body(dim)
        for factor in (0.0, 0.3, 1.0, 2.0, 1e9):
            point = center + factor * size * rng.standard_normal(dim)
            found, expected = np.full((2, dim), np.nan)
            ball.euclidean_project(body, point, found)
            ball.ball_project(body, point, expected)
            assert found.tobytes() == expected.tobytes()
            length = distance(point, np.zeros(dim), 2.0)
            assert ball.euclidean_length(point) == length
