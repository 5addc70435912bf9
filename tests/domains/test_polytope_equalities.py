"""Polytopes with equalities: the simplex among them, projections, refusals."""

import pickle

import numpy as np
import pytest

from dpsample.core.spec import from_dict
from dpsample.domains import KINDS, Polytope, Simplex
from dpsample.noise import KNorm

CUBE = np.vstack([np.eye(3), -np.eye(3)])


def simplex(dim):
    return Polytope(-np.eye(dim), np.zeros(dim), np.ones((1, dim)), [1.0])


def slice_of_cube():
    return Polytope(CUBE, np.ones(6), [[2.0, -1.0, 0.5]], [0.3])


@pytest.mark.slow
def test_it_is_the_simplex():
    rng, ours, theirs = np.random.default_rng(0), simplex(5), Simplex()
    assert (ours.affine_dim(5), ours.is_bounded) == (4, True)
    for _ in range(50):
        point, inside = 2.0 * rng.standard_normal(5), rng.dirichlet(np.ones(5))
        np.testing.assert_allclose(
            ours.project(point), theirs.project(point), atol=1e-12
        )
        assert ours.contains(ours.project(point)) and not ours.contains(point)
        along = rng.standard_normal(5)
        assert ours.chord(inside, along) == (0.0, 0.0)
        along -= along.mean()
        np.testing.assert_allclose(
            ours.chord(inside, along), theirs.chord(inside, along), rtol=1e-9
        )
        assert ours.support(point) == pytest.approx(theirs.support(point))
    farthest = theirs.max_norm(2.0, theirs.default_center(5), 5)
    assert farthest <= ours.max_norm(2.0, ours.default_center(5), 5)


def test_projections_obey_the_variational_inequality():
    rng, body = np.random.default_rng(1), slice_of_cube()
    for _ in range(200):
        point, other = 3.0 * rng.standard_normal((2, 3))
        near, any_point = body.project(point), body.project(other)
        assert (point - near) @ (any_point - near) <= 1e-9
        assert np.abs(body.A_eq @ near - body.b_eq).max() < 1e-12
        assert (near @ CUBE.T <= 1.0 + 1e-12).all()


def test_bounds_hold_and_are_met():
    rng, body = np.random.default_rng(2), slice_of_cube()
    points = np.array([body.project(4.0 * x) for x in rng.standard_normal((2000, 3))])
    center = body.default_center(3)
    for p in (1.0, 2.0, np.inf):
        sizes = np.linalg.norm(points - center, ord=p, axis=1)
        assert sizes.max() <= body.max_norm(p, center, 3) * (1 + 1e-12)
    heights = points @ [1.0, 2.0, -1.0]
    assert heights.max() <= body.support([1.0, 2.0, -1.0]) <= heights.max() + 0.1
    origin, basis = body.hull(3)
    assert basis.shape == (3, 2)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(body.A_eq @ origin, body.b_eq)
    np.testing.assert_allclose(body.A_eq @ basis, 0.0, atol=1e-12)


@pytest.mark.parametrize("power", [6, 8, 12])
def test_projections_from_far_away_keep_the_equalities(power):
    rng, body = np.random.default_rng(3), simplex(2)
    for point in 10.0**power * rng.standard_normal((50, 2)):
        near = body.project(point)
        assert body.contains(near)
        exact = Simplex().project(point)
        np.testing.assert_allclose(near, exact, atol=1e-15 * 10.0**power)


def test_nobody_can_write_to_what_a_body_keeps():
    body, square = simplex(2), Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))
    for array in (*body.hull(2), *square.box, body.default_center(2)):
        array[...] = 50.0
    assert body.contains([0.5, 0.5]) and body.support([1.0, 0.0]) <= 1.0 + 1e-12
    assert square.support([1.0, 0.0]) == 1.0 and square.box[1][0] == 1.0


def test_copies_are_equal():
    body = slice_of_cube()
    assert from_dict(KINDS, body.to_dict()) == body
    assert pickle.loads(pickle.dumps(body)) == body
    assert "A_eq" not in Polytope(CUBE, np.ones(6)).to_dict()
    with pytest.raises(ValueError, match="equalities"):
        KNorm(body, scale=1.0).draw(np.random.default_rng(0), (3,))


@pytest.mark.parametrize(
    ("b", "equalities", "words"),
    [
        ([1, 1, 1, -2, 1, 1], None, "Rows 0 and 3.*Correct the inequalities"),
        (np.ones(6), ([[1, 1, 0], [2, 2, 0]], [0, 1]), "No point satisfies all"),
        (np.ones(6), ([[1, 1, 1]], [5.0]), "a set with interior points"),
        (np.ones(6), ([[1, 1, 1]], [3.0]), "got the single point"),
        (np.ones(6), ([[1, 0, 0]], [3.0]), "feasible on the equalities, got row 0"),
        (np.ones(6), (np.eye(3), np.zeros(3)), "got the single point"),
        (np.ones(6), ([[0, 0, 0]], [1.0]), "zeros in row 0"),
        (np.ones(6), ([[1, 0, 0]], None), "given together, got A_eq alone"),
    ],
)
def test_what_leaves_no_room_is_refused(b, equalities, words):
    more = () if equalities is None else equalities
    with pytest.raises(ValueError, match=words):
        Polytope(CUBE, b, *more)


def test_three_inequalities_that_force_a_point_are_refused_as_one():
    with pytest.raises(ValueError, match="got the single point"):
        Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], np.zeros(3))


@pytest.mark.parametrize(
    ("b", "equalities", "equal"),
    [
        ([1, 1, 1, -1, 1, 1], (), [[1.0, 0.0, 0.0]]),
        (np.ones(6), ([[1, 1, 0], [2, 2, 0]], [0, 0]), [[1.0, 1.0, 0.0]]),
        (np.ones(6), ([[0, 0, 0], [1, 1, 0]], [0, 0]), [[1.0, 1.0, 0.0]]),
    ],
)
def test_hidden_dependent_and_empty_equalities_are_solved(b, equalities, equal):
    body = Polytope(CUBE, b, *equalities)
    assert body.affine_dim(3) == 2 and body.A_eq.tolist() == equal
    assert body.contains(body.default_center(3))
    assert Polytope.reduced(CUBE, b, *equalities) == body


def test_bounds_are_rows():
    body = Polytope(A_eq=[[1.0, 1.0, 1.0]], b_eq=[1.0], lower=0.0)
    assert body == simplex(3)
    free = Polytope(lower=[0.0, -np.inf], upper=[1.0, 2.0])
    assert not free.is_bounded and free.contains([0.5, -1e9])
