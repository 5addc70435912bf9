"""Thin, far, tiny and badly scaled polytopes; inequalities that leave no interior."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsample.domains import Polytope, polytope_bounds
from tests.support.tiers import one_in


def rotation(dim):
    return np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]


def rows_of(half, *, is_rotated=False, shift=0.0, scales=None):
    """Inequalities of a box around a point, maybe rotated, and scaled by rows."""
    half = np.asarray(half, dtype=float)
    axes = rotation(len(half)) if is_rotated else np.eye(len(half))
    rows = np.vstack([axes.T, -axes.T])
    limits = np.append(half, half) + rows @ np.full(len(half), shift)
    scales = np.ones(len(rows)) if scales is None else np.asarray(scales)
    return rows * scales[:, None], limits * scales


STRIP = [1.0, 1e-9]
SLICE = np.array([[1.0], [-1.0]]) * np.linspace(0.2, 0.6, 9)
BODIES = {
    "fluxes": ([[1, 0], [-1, 0], [0, 1], [0, -1]], [1e9, 0, 1, 0]),
    "strip": rows_of(STRIP),
    "long strip": rows_of([1e6, 1e-6]),
    "rotated long strip": rows_of([1e6, 1e-6], is_rotated=True),
    "far cube": rows_of([0.5] * 3, shift=1e8),
    "far rotated cube": rows_of([0.5] * 3, shift=1e8, is_rotated=True),
    "scaled cube": rows_of(
        [1.0] * 3,
        shift=1.0,
        is_rotated=True,
        scales=10.0 ** np.array([12, -12, 3, -7, -12, 12]),
    ),
    "scaled strip": rows_of(STRIP, is_rotated=True, scales=[1e12, 1e-12, 1e-12, 1e12]),
    "five sides": rows_of([1, 1e-9, 1e-5, 1e3, 1e-9], is_rotated=True),
    "slice": (
        np.vstack([rows_of([1.0] * 9)[0], SLICE]),
        [1.0] * 18 + [0.3, -0.3 + 1e-9],
    ),
    "needle": ([[1, 1e-9], [-1, 1e-9], [0, -1]], [0, 0, 1]),
    "few doubles wide": ([[1], [-1]], [1e8 + 1e-7, -1e8]),
    **{
        f"rotated strip of {w}": rows_of([1.0, w], is_rotated=True)
        for w in (1e-7, 1e-9, 1e-11, 1e-13)
    },
}


def exact_slacks(body, point):
    point = [Fraction(x) for x in point.tolist()]
    return [
        Fraction(limit) - sum(Fraction(a) * x for a, x in zip(row, point, strict=True))
        for row, limit in zip(body.A.tolist(), body.b.tolist(), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_bodies_with_an_interior_have_a_point_strictly_inside(name):
    body = Polytope(*BODIES[name])
    center = body.default_center(body.A.shape[1])
    assert body.is_bounded and body.contains(center)
    assert min(exact_slacks(body, center)) > 0


@one_in(4)
@pytest.mark.parametrize("name", BODIES)
def test_projections_from_any_distance_are_inside_and_near(name):
    body = Polytope(*BODIES[name])
    rng, center = np.random.default_rng(2), body.default_center(body.A.shape[1])
    size = 1.0 + np.abs(center).max()
    # Where faces meet at an angle of 1e-9, errors of distances are that much larger.
    digits = 1e-13 if name != "needle" else 1e-4
    for power, noise in enumerate(rng.standard_normal((14, len(center)))):
        point = center + 10.0**power * size * noise
        near = body.project(point)
        assert body.contains(near)
        gap = float(np.linalg.norm(point - near))
        for v in rng.standard_normal((5, len(center))):
            other = center + body.chord(center, v)[1] * v
            assert (point - near) @ (other - near) <= digits * gap * (gap + size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "half", [[1.0, 1e-7], STRIP, [1e6, 1e-6], [1.0, 1e-9, 1e-5, 1e3, 1e-9]]
)
def test_supports_of_rotated_thin_boxes_are_those_of_the_box(half):
    rows, limits = rows_of(half, is_rotated=True)
    body, axes = Polytope(rows, limits), rotation(len(half))
    along = np.random.default_rng(1).standard_normal((5, len(half)))
    for v in np.vstack([along, np.eye(len(half)), axes.T]):
        exact = float(np.abs(v @ axes) @ half)
        rounding = 1e-15 * np.abs(v).sum() * max(half)
        value = float(body.support(v))
        assert exact * (1.0 - 1e-14) - rounding <= value
        assert value <= exact * (1.0 + 1e-6) + 10.0 * rounding


def flat(*equal, extra=0):
    """Cube of which some coordinates are fixed, with rows of other sizes."""
    rows, limits = rows_of([1.0] * 4)
    for j in equal:
        rows[4 + j] *= 4.0  # keeps digits
        limits[j], limits[4 + j] = 0.25, -1.0
    return rows, limits - extra


REFUSED = {
    "Rows 1 and 4 of A contradict one another. Correct the inequalities": (
        np.vstack([np.eye(3), -np.eye(3)]),
        [1.0, 0.0, 2.0, 1.0, -1e-12, 3.0],
    ),
    "Rows 0, 1 and 2 of A contradict": (
        [[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]],
        [-1e-10, 0.0, 0.0],
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_leaves_no_interior_is_refused_with_all_rows_that_do(words):
    with pytest.raises(ValueError, match="a set with interior points") as caught:
        Polytope(*REFUSED[words])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [(flat(1), [1, 5]), (flat(0, 2, 3), [0, 2, 3, 4, 6, 7])],
)
def test_pairs_that_force_an_equality_are_all_found(arguments, rows):
    body = Polytope(*arguments)
    rest = np.setdiff1d(np.arange(8), rows)
    assert body.A.tolist() == np.asarray(arguments[0])[rest].tolist()
    assert body.affine_dim(4) == 4 - len(rows) // 2


def test_a_point_up_to_rounding_errors_is_refused():
    with pytest.raises(ValueError, match="got the single point"):
        Polytope([[1.0], [-1.0]], [1e8 + 1.5e-8, -1e8])


@pytest.mark.slow
def test_strips_are_refused_exactly_where_they_are_flat():
    """The sign of a width is that of fractions; widths of few doubles are open."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        row = rng.standard_normal(2)
        place, size = 10.0 ** rng.uniform(-6, 6), 2.0 ** rng.integers(-8, 9)
        gap = rng.choice([0.0, -1.0, 1.0]) * 10.0 ** rng.uniform(-13, 0) * place
        rows = np.vstack([row, -size * row, np.eye(2), -np.eye(2)])
        limits = np.append([place + gap, -size * place], np.full(4, 1e8))
        width = Fraction(limits[0]) + Fraction(limits[1]) / Fraction(size)
        try:
            found = polytope_bounds.find_center(rows, limits)
        except ValueError:
            found = None
        if isinstance(found, np.ndarray):
            assert width > 0
        else:
            assert found.rows.tolist() == [0, 1]
            assert found.sign == (width > 0) - (width < 0)
            assert width <= Fraction(4e-15) * Fraction(place)


def hidden(dim, rank, seed):
    """A rotated cube in a subspace of which the equalities are pairs or triples."""
    rng = np.random.default_rng(seed)
    axes = np.round(4.0 * rng.standard_normal((dim, dim))) / 4.0
    cube = np.vstack([np.eye(dim), -np.eye(dim)])
    held = axes[:rank]
    pairs = np.vstack([held[0], -4.0 * held[0], held[1:], -held[1:].sum(axis=0)])
    order = rng.permutation(len(cube) + len(pairs))
    rows = np.vstack([cube, pairs])[order]
    limits = np.append(np.full(len(cube), 1.0), np.zeros(len(pairs)))[order]
    return rows, limits, np.flatnonzero(order >= len(cube)), held


@one_in(4)
@pytest.mark.parametrize("seed", range(4))
def test_all_implied_equalities_are_found_and_solved(seed):
    rows, limits, forced, held = hidden(6, 3, seed)
    body = Polytope(rows, limits)
    rest = np.setdiff1d(np.arange(len(rows)), forced)
    assert body.A.tolist() == rows[rest].tolist()
    assert Polytope.reduced(rows, limits) == body
    assert (body.affine_dim(6), len(body.A)) == (3, 12)
    point = body.project(np.random.default_rng(seed).standard_normal(6))
    np.testing.assert_allclose(held @ point, 0.0, atol=1e-12)
    assert body.contains(body.default_center(6))
    again = Polytope(body.A, body.b, body.A_eq, body.b_eq)
    assert again == body


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (rows_of([0.0, 0.0]), "got the single point"),
        (([[1.0], [-1.0]], [-1.0, -1.0]), "Rows 0 and 1 of A contradict"),
        ((*rows_of([1.0] * 3), [[1, 1, 0], [2, 2, 0]], [0.0, 1.0]), "No point satisf"),
    ],
)
def test_what_no_equalities_can_mend_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Polytope.reduced(*given)


def test_dependent_equalities_and_full_bodies_are_reduced_to_themselves():
    rows, limits = rows_of([1.0] * 3)
    body = Polytope.reduced(rows, limits, [[1, 1, 0], [2, 2, 0]], [0.5, 1.0])
    assert body.A_eq.shape == (1, 3) and body.affine_dim(3) == 2
    assert Polytope.reduced(rows, limits) == Polytope(rows, limits)


def test_tiny_bodies_on_equalities_hold_them_to_their_own_size():
    rows, limits = rows_of([1e-12] * 3)
    body = Polytope(rows, limits, [[1.0, 1.0, 1.0]], [0.0])
    assert body.contains([1e-13, -1e-13, 0.0])
    assert not body.contains([1e-13, 1e-13, 1e-13])
    with pytest.raises(ValueError, match="feasible on the equalities, got row 6"):
        rows, limits = np.vstack([rows, [[1.0, 1.0, 1.0]]]), np.append(limits, -1e-13)
        Polytope(rows, limits, [[1.0, 1.0, 1.0]], [0.0])


def network(size, dead):
    """Fluxes S v = 0 along a chain with exits, and of dead ends with two inflows.

    Unknowns: an inflow, two fluxes per link, an exit per metabolite, 1e-7 wide or 10 to
    1000, and the inflows of dead ends, which are 0.
    """
    columns, lower, upper = [], [], []

    def add(start, end, low, high):
        column = np.zeros(size + dead)
        if start is not None:
            column[start] = -1.0
        if end is not None:
            column[end] = 1.0
        columns.append(column)
        lower.append(low)
        upper.append(high)

    add(None, 0, 0.0, 10.0)
    for i in range(size):
        if i + 1 < size:
            add(i, i + 1, -1000.0, 1000.0)
            add(i, i + 1, 0.0, 1000.0)
        add(i, None, 0.0, 1000.0 if i % 5 else 1e-7)
    for i in range(dead):
        add(i % size, size + i, 0.0, 1000.0)
        add(i % size, size + i, 0.0, 1000.0)
    return np.array(columns).T, np.array(lower), np.array(upper)


def in_free_coordinates(equal, lower, upper):
    """Rows, limits of fluxes whose equalities are solved by an orthonormal basis."""
    basis = np.linalg.svd(equal)[2][len(equal) :].T
    basis = basis @ rotation(basis.shape[1])
    return np.vstack([basis, -basis]), np.append(upper, -lower)


@pytest.mark.slow
def test_networks_in_free_coordinates_have_a_point_inside():
    equal, lower, upper = network(40, dead=0)
    rows, limits = in_free_coordinates(equal, lower, upper)
    body = Polytope(rows, limits)
    center = body.default_center(79)
    assert body.affine_dim(79) == 79 and body.contains(center)
    assert min(exact_slacks(body, center)) > 0


def test_charts_are_sparse_and_the_same_rows():
    rows, _ = in_free_coordinates(*network(40, dead=0))
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    chart = polytope_bounds.FactoredChart.find(unit)
    assert (unit != 0.0).mean() > 0.9 and chart.rows.nnz < 0.3 * unit.size
    w = np.random.default_rng(3).standard_normal(79)
    np.testing.assert_allclose(chart.rows @ w, unit @ chart.to_move(w), atol=1e-10)


def on_equalities(equal, lower, upper):
    """Arguments of a polytope of fluxes that obey their equalities."""
    sides = np.vstack([np.eye(len(upper)), -np.eye(len(upper))])
    return sides, np.append(upper, -lower), equal, np.zeros(len(equal))


def test_networks_without_fluxes_are_refused_as_contradictions():
    equal, lower, upper = network(40, dead=0)
    lower[0] = 9.0
    upper[3::3] = upper[-1] = 0.1  # more flows in than all exits let out
    with pytest.raises(ValueError, match="contradict one another"):
        Polytope(*on_equalities(equal, lower, upper))


def test_far_strips_that_doubles_take_for_planes_are_planes():
    rows = np.vstack([[[1.0, 1.0], [-1.0, -1.0]], np.eye(2), -np.eye(2)])
    limits = np.array([5e-8, 0.0, 1e8 + 1, 1 - 1e8, 1 - 1e8, 1e8 + 1])
    body = Polytope(rows, limits)
    assert body.affine_dim(2) == 1 and body.contains(body.default_center(2))


def test_equalities_of_zeros_alone_are_left_out_on_request():
    rows, limits = rows_of([1.0] * 3)
    equal = [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert Polytope.reduced(rows, limits, equal, [0.5, 0.0]).affine_dim(3) == 2
    with pytest.raises(ValueError, match="got zeros in row 1, which are never 0.1"):
        Polytope.reduced(rows, limits, equal, [0.5, 0.1])
    assert Polytope.reduced(rows, limits, [equal[1]], [0.0]).A_eq is None


@pytest.mark.slow
def test_fluxes_into_dead_ends_are_found_and_solved():
    equal, lower, upper = network(30, dead=25)
    rows, limits = in_free_coordinates(equal, lower, upper)
    count = rows.shape[1]
    sides = np.vstack([np.eye(len(upper)), -np.eye(len(upper))])
    body = Polytope(sides, limits, equal, np.zeros(len(equal)))
    center = body.default_center(len(upper))
    assert (count, body.affine_dim(len(upper)), body.contains(center)) == (84, 59, True)
    np.testing.assert_allclose(center[-50:], 0.0, atol=1e-9)
    assert Polytope(rows, limits).affine_dim(count) == 59
