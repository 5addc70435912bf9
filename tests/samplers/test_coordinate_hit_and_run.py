"""Coordinate hit-and-run: chords from slacks, conditionals, one-sweep invariance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import expon, norm

import dpsample as dps
from dpsample.samplers import CoordinateHitAndRun
from dpsample.samplers.coordinate import coordinate_moves, slacks
from dpsample.samplers.coordinate.coordinate_hit_and_run import (
    split_memory,
    synchronize,
)
from tests.support.bodies import random_polytope
from tests.support.gibbs_targets import TWO_DIMENSIONS
from tests.support.line_targets import (
    SQUARE,
    TARGETS,
    copied,
    draw,
    one_draw_each,
    target,
)
from tests.support.replicates import law_margin
from tests.support.statistics import assert_law, assert_rejected, rejected
from tests.support.tiers import by_turns, one_in, slow, usual

every_target = pytest.mark.parametrize("name", TARGETS)
L, D = dps.losses, dps.domains
INVARIANT = (
    "logistic, mode on the sphere",
    "hinge on the plane",
    "absolute on a box",
    "squared on the plane",
    "linear on a box",
    "quantile, p = 1, l_1 ball",
    "hinge, p = 1.2, l_1.5 ball off center",
    "hinge on a triangle",
    "logistic on a nuclear-norm ball",
)


def prepared_for(target):
    return CoordinateHitAndRun().prepare(target, np.random.default_rng(0))


@one_in(12)
@every_target
def test_draws_stay_inside_and_report_their_energy(name):
    target = TARGETS[name]
    prepared = prepared_for(target)
    draws, stats = draw(prepared, prepared.init(), np.random.default_rng(2), 1500)
    assert all(target.domain.contains(theta) for theta in draws)
    energies = [target.energy(theta) for theta in draws[::50]]
    np.testing.assert_allclose(stats[::50, 0], energies, rtol=1e-9, atol=1e-9)
    assert len(np.unique(draws[:, 0])) > 700  # on the simplex some pairs miss it


@pytest.mark.slow
@pytest.mark.parametrize("name", by_turns(INVARIANT, turns=4))
def test_one_sweep_from_exact_draws_leaves_the_law(name):
    case = TWO_DIMENSIONS[name]
    rng = np.random.default_rng(3)
    starts = case.exact(rng, 6000)
    draws = one_draw_each(prepared_for(case.target), starts, rng)
    assert law_margin(case, draws) <= 1.0
    assert np.abs(np.corrcoef(starts[:, 0], draws[:, 0])[0, 1]) < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", [slow("squared on the plane"), "hinge on the plane"])
def test_caches_of_another_point_are_detected(name):
    case = TWO_DIMENSIONS[name]
    rng = np.random.default_rng(4)
    starts = case.exact(rng, 6000)
    prepared = prepared_for(case.target)
    draws = one_draw_each(prepared, starts, rng, keep_caches=True)
    assert_rejected(law_margin(case, draws))


@pytest.mark.slow
def test_slacks_of_another_point_are_detected():
    case = TWO_DIMENSIONS["hinge on a triangle"]
    rng = np.random.default_rng(5)
    starts = case.exact(rng, 6000)
    prepared = prepared_for(case.target)
    draws = one_draw_each(prepared, starts, rng, keep_caches=True)
    assert case.inside(draws).mean() < 0.9


POLYTOPES = {
    "dense": random_polytope(4, 30, seed=1),
    "sparse": D.Polytope(SQUARE, np.linspace(0.5, 1.5, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POLYTOPES)
def test_chords_from_slacks_are_those_of_the_polytope(name):
    polytope = POLYTOPES[name]
    problem = target(L.Linear(), polytope, 4)
    room = slacks.make_body(problem, np.zeros(4), np.ones(4))
    assert (
        room.kind
        == {"dense": slacks.KIND.facets, "sparse": slacks.KIND.sparse_facets}[name]
    )
    rng = np.random.default_rng(6)
    theta, room_left = polytope.interior_point(4), np.empty(len(room.limits))
    slacks.refresh(room, theta, room_left)
    last, t = 0, 0.0
    for turn in range(40):
        j = turn % 4
        if name == "dense":
            ends = slacks.move_and_find_chord(
                room_left, room.columns[last], t, room.up[j], room.down[j]
            )
        else:
            ends = slacks.find_chord(room, theta, room_left, j)
        np.testing.assert_allclose(ends, polytope.chord(theta, np.eye(4)[j]), rtol=1e-9)
        last, t = j, rng.uniform(*ends)
        slacks.apply_move(room, theta, room_left, j, t)


@pytest.mark.slow
def test_half_lines_of_unbounded_polytopes():
    room = slacks.make_body(
        target(L.Linear(), D.Polytope([[1.0, 0.2], [1.0, 0.1]], [1.0, 1.0]), 2),
        np.zeros(2),
        np.ones(2),
    )
    room_left = np.empty(2)
    slacks.refresh(room, np.zeros(2), room_left)
    low, high = slacks.move_and_find_chord(
        room_left, room.columns[0], 0.0, room.up[0], room.down[0]
    )
    assert slacks.with_infinity(low) == -np.inf and abs(high - 1.0) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 7.0, np.inf])
def test_chords_of_balls(p):
    ball = D.Ball(0.7, p=p, center=[0.3, -1.0, 2.0])
    room = slacks.make_body(target(L.Linear(), ball, 3), np.zeros(3), np.ones(3))
    theta, total = ball.center + [0.1, -0.2, 0.15], np.empty(1)
    slacks.refresh(room, theta, total)
    for j in range(3):
        ends = slacks.find_chord(room, theta, total, j)
        np.testing.assert_allclose(ends, ball.chord(theta, np.eye(3)[j]), rtol=1e-9)
        slacks.apply_move(room, theta, total, j, 0.3 * ends[1])


@one_in(2)
@pytest.mark.parametrize("domain", [D.Box(-1.0, 1.0), D.Simplex()])
@pytest.mark.parametrize("loss", [L.Logistic(), L.Hinge()])
def test_sparse_features_give_the_draws_of_dense_ones(loss, domain):
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(30, 3)) * (rng.random((30, 3)) < 0.4)
    draws = []
    for features in (rows, sparse.csr_matrix(rows)):
        problem = dps.Problem(
            features, np.ones(30), loss=loss, domain=domain,
            row_bound=9.0,
        )  # fmt: skip
        prepared = prepared_for(dps.Gibbs(problem, k=9.0, mu=0.1))
        draws.append(draw(prepared, prepared.init(), np.random.default_rng(8), 50)[0])
    np.testing.assert_allclose(*draws, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_kinks_and_adaptive_rejection_see_the_same_conditional():
    """Masses of the pieces on a line against the energies of the target."""
    chosen = TARGETS["sparse hinge, simplex"]
    prepared = prepared_for(chosen)
    state, plan = prepared.init(), prepared.plan
    synchronize.py_func(chosen.numbers, plan, state)
    margins, numbers = split_memory(plan, state)[1], chosen.numbers
    here, rates, response = coordinate_moves.select(
        plan.columns, numbers.data.response, margins, 0, 2, state.workspace.changed
    )
    low, high = -state.position[0], state.position[2]
    weight = chosen.k / numbers.data.num_records
    count, slope = coordinate_moves.collect_breakpoints(
        plan, weight, here, rates, response, low, high, state.workspace.breakpoints
    )
    extra, curvature = coordinate_moves.regularizer_line(numbers, state.position, 0, 2)
    strength = chosen.k * chosen.mu
    points = np.linspace(low, high, 41)
    direction = np.array([1.0, 0.0, -1.0, 0.0])
    energies = [chosen.energy(state.position + t * direction) for t in points]
    found = (slope + strength * extra) * points + 0.5 * strength * curvature * points**2
    for kink, rise in state.workspace.breakpoints[:2, :count].T:
        found += rise * np.maximum(points - kink, 0.0)
    np.testing.assert_allclose(np.diff(found), np.diff(energies), rtol=1e-9, atol=1e-11)


def test_gaussian_in_a_polytope_that_is_a_cube_has_its_closed_law():
    square = np.vstack([np.eye(3), -np.eye(3)])
    zero = dps.Problem(
        np.zeros((1, 3)), [1.0], loss=L.Linear(),
        domain=D.Polytope(square, np.ones(6)), row_bound=1.0,
    )  # fmt: skip
    center = dps.regularizers.SquaredNorm(2.0, center=np.full(3, 0.5))
    prepared = prepared_for(dps.Gibbs(zero, k=4.0, mu=1.0, regularizer=center))
    draws = draw(prepared, prepared.init(), np.random.default_rng(9), 20_000)[0]
    low, high = norm.cdf(-3.0), norm.cdf(1.0)

    def cdf(x, scale=2.0):
        return (norm.cdf(scale * (x - 0.5)) - low) / (high - low)

    # Coordinates are independent: every sweep is a fresh draw.
    assert_law(draws[:, 1], cdf)
    with rejected():
        assert_law(draws[:, 1] + 0.1, cdf)


@one_in(3)
@pytest.mark.parametrize(
    "name", ["hinge, l_1.5 ball", "squared, ball", "linear, sparse polytope"]
)
def test_resuming_is_bit_identical(name):
    prepared = prepared_for(TARGETS[name])
    state = prepared.init()
    draw(prepared, state, np.random.default_rng(10), 700)
    other = copied(prepared, state)
    one = draw(prepared, state, np.random.default_rng(11), 600)
    two = draw(prepared, other, np.random.default_rng(11), 600)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1][:, 0], two[1][:, 0])


def test_losses_that_need_no_record_touch_none():
    for name, is_free in [("squared, ball", True), ("logistic, whole space", False)]:
        prepared = prepared_for(TARGETS[name])
        stats = draw(prepared, prepared.init(), np.random.default_rng(12), 20)[1]
        assert ((stats[:, 4] == 0.0) == is_free).all()
        assert (stats[:, 1] == 1.0).all()


def steep(domain, k):
    """A linear energy of slope k / 2, and its gradient in units of k."""
    slope = np.array([0.3, 0.4])
    rows, minus = np.tile(slope, (2, 1)), -np.ones(2)
    problem = dps.Problem(rows, minus, loss=L.Linear(), domain=domain, row_bound=1.0)
    return dps.Gibbs(problem, k=k, mu=0.0), slope


CORNER = np.vstack([np.eye(2), -np.eye(2)])
STEEP = {
    "polytope by columns": D.Polytope(CORNER, np.ones(4)),
    "polytope": D.Polytope(
        np.vstack([CORNER, [[0.3, 0.3], [0.2, 0.3], [0.3, 0.1]]]), np.ones(7)
    ),
    "far polytope": D.Polytope(CORNER, np.array([5.0, 5.0, -3.0, -3.0])),
    "ball": D.Ball(1.0),
    "far ball": D.Ball(1.0, center=[3e4, 3e4]),
}


@usual("columns-1000000000.0]", "far ball-10000000000000.0]")
@pytest.mark.parametrize("k", [1e9, 1e11, 1e13])
@pytest.mark.parametrize("name", STEEP)
def test_steep_energies_keep_the_law_of_the_distance_from_the_wall(name, k):
    """A margin of 1e-12 was three times as wide as the layer that holds the draws."""
    if name == "far ball":
        k = k / 1e5  # distances of points of size 1e4 have fewer digits
    target, slope = steep(STEEP[name], k)
    prepared = prepared_for(target)
    draws, _ = draw(prepared, prepared.init(), np.random.default_rng(6), 4000)
    assert all(target.domain.contains(theta) for theta in draws)
    if "ball" in name:
        draws = draws[::8] - STEEP[name].default_center(2)
        distances = (0.5 * k * (1.0 - np.linalg.norm(draws, axis=1)))[:, None]
    else:
        wall = 3.0 if name == "far polytope" else -1.0
        distances = k * slope * (draws - wall)
    for column in distances.T:
        assert_law(column, expon.cdf)
    with rejected():
        assert_law(distances[:, 0] + 2e-12 * k * slope[0] + 0.5, expon.cdf)
