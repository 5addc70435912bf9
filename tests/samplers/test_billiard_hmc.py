"""Billiard HMC: conserved energy, the way back, volume, and exact laws."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.jit import kernel, pointer
from dpsample.core.pauses import PAUSED
from dpsample.domains import exits
from dpsample.samplers.adaptive import billiard, mass_matrix
from dpsample.samplers.chain import COUNT, PreparedChain
from dpsample.samplers.errors import OK
from tests.support import sampler_mutants as mutants
from tests.support.gibbs_cases import example
from tests.support.sampler_grid import (
    DOMAINS,
    LOSSES,
    GridCase,
    exact_starts,
    fast_draws,
    grid_case,
    restart_rule,
)
from tests.support.sampler_margins import asymmetry_margin, law_margin
from tests.support.statistics import IS_FRESH, assert_rejected
from tests.support.tiers import one_in, slow, slow_but, usual

L, D = dps.losses, dps.domains
DIM = 6
FACES = np.random.default_rng(0).normal(size=(15, DIM))
MANY_FACES = np.random.default_rng(1).normal(size=(310, DIM))
BODIES = {
    "whole space": D.WholeSpace(),
    "box": D.Box(-0.4, np.linspace(0.3, 1.0, DIM)),
    "simplex": D.Simplex(),
    "polytope": D.Polytope(FACES, np.linspace(0.3, 1.0, 15)),
    "large polytope": D.Polytope(MANY_FACES, np.linspace(0.6, 2.0, 310)),
    "l_2 ball": D.Ball(0.7, center=np.linspace(-0.2, 0.2, DIM)),
    "l_1 ball": D.Ball(1.2, p=1.0, center=np.linspace(-0.2, 0.2, DIM)),
    "l_1.5 ball": D.Ball(0.9, p=1.5),
    "l_3 ball": D.Ball(0.5, p=3.0),
    "nuclear ball": D.SchattenBall(1.0, p=1.0, shape=(2, 3)),
    "operator ball": D.SchattenBall(0.6, p=np.inf, shape=(2, 3)),
}
FORMS = ("dense", "low rank")
OTHERS = (
    "whole space",
    "polytope",
    "large polytope",
)  # between whose walls nothing turns
TURNING = tuple(name for name in BODIES if name not in OTHERS)
TURNING_CELLS = tuple(name for name in DOMAINS if name not in OTHERS)


@kernel
def travel(target, pieces, plan, state, size, leaps, opening):
    """Leaps of a trajectory between half kicks, from the state's scratch memory."""
    trajectory = state.workspace.trajectory[0]
    trajectory.step, trajectory.has_kicks = size, True
    trajectory.leaps_done = trajectory.num_bounces = 0
    trajectory.initial_kinetic = trajectory.flight_left = 0.0
    trajectory.max_energy = state.energy[0]
    if opening != 0.0:
        billiard.kick(plan, state, opening * size)
    while trajectory.leaps_done < leaps:
        code = billiard.leap(target, pieces, plan, state)
        if code != OK:
            return code
    billiard.kick(plan, state, 0.5 * size)
    return OK


def zero_sum(dim):
    return np.linalg.svd(np.ones((1, dim)))[2][1:].T


def mass_of(domain, form, dim=DIM, size=0.3, ratio=3.0):
    """Some metric of the domain's hull, with widths from size / ratio to ratio size."""
    rng = np.random.default_rng(1)
    if form == "dense":
        rank = domain.affine_dim(dim)
        root = np.linalg.qr(rng.normal(size=(rank, rank)))[0]
        root *= size * np.geomspace(1.0 / ratio, ratio, rank)
        basis = np.eye(dim) if rank == dim else zero_sum(dim)
        return mass_matrix.dense(basis @ root)
    scale, stretch = size * np.linspace(0.7, 1.4, dim), np.array([1.0 / ratio, ratio])
    columns = rng.normal(size=(dim, 2))
    if domain.name == "simplex":  # the direction D 1 is removed
        columns, stretch = np.column_stack((scale, columns)), np.append(0.0, stretch)
    return mass_matrix.low_rank(scale, np.linalg.qr(columns)[0], stretch)


@cache
def setting(name, form="dense", k=60.0, turns=False):
    """Target and plan on a body, with a force that is nearly the slope, or a pivot."""
    case = example(L.Logistic(), BODIES[name], dim=DIM, num_records=12, k=k, mu=0.2)
    start = case.domain.interior_point(DIM)
    plan = billiard.new_plan(
        case.target,
        mass_of(case.domain, form),
        center=start,
        force=1.3 * case.target.gradient(start),
        step=0.3,
        pivot=pivot_of(case.domain, start) if turns else None,
    )
    return case.target, plan._replace(max_rise=np.inf)


def pivot_of(domain, start):
    """Point near the start, outside the domain in some coordinates."""
    away = 0.8 * (-1.0) ** np.arange(start.size) * np.linspace(0.1, 1.0, start.size)
    return start + away - (away.mean() if domain.name == "simplex" else 0.0)


def launched(target, plan, seed):
    """State near the center with a random velocity."""
    rng = np.random.default_rng(seed)
    start = target.domain.interior_point(DIM)
    state = billiard.init(target, plan, start)
    state.vectors[0] = start
    white = rng.standard_normal(plan.mass.whiten_rows(start).size)
    state.vectors[1] = plan.mass.spread(white)
    state.vectors[2] = state.memory
    return state


def energy_of_flight(plan, state):
    """Kinetic energy and that of the force, and their size."""
    white = plan.mass.whiten_rows(state.vectors[1])
    parts = 0.5 * white @ white, plan.force @ state.vectors[0]
    if plan.is_harmonic:
        offset = plan.mass.whiten_rows(state.vectors[0] - plan.pull)
        return parts[0] + 0.5 * offset @ offset, parts[0] + 0.5 * offset @ offset
    return sum(parts), abs(parts[0]) + abs(plan.force) @ abs(state.vectors[0])


def fly(target, plan, state, duration):
    """Flight under the plan's force; the number of bounces."""
    state.workspace.trajectory["flight_left"] = duration
    pieces = billiard.step_functions(target, plan)
    assert billiard.fly_once(target.numbers, pieces, plan, state) == (OK, 0)
    return int(state.workspace.trajectory["num_bounces"][0])


def drift_of_energy(target, plan, seed, duration=12.0):
    """Relative change of the energy in a flight, bounces, and whether it is inside."""
    state = launched(target, plan, seed)
    before, size = energy_of_flight(plan, state)
    bounces = fly(target, plan, state, duration)
    after, _ = energy_of_flight(plan, state)
    is_inside = target.domain.contains(state.vectors[0])
    return abs(after - before) / size, bounces, is_inside


@one_in(7)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in BODIES if name != "whole space"])
def test_flights_conserve_energy_through_many_bounces(name, form):
    target, plan = setting(name, form)
    for seed in range(10):
        drift, bounces, is_inside = drift_of_energy(target, plan, seed)
        assert is_inside and bounces >= 5, bounces
        assert drift < 1e-10


def test_flights_among_many_facets_end_where_others_do(monkeypatch):
    """The point is moved once, at the end, and not at every bounce."""
    target, plan = setting("large polytope")
    ends, bounces = [], []
    for limit in (billiard.MANY_FACETS, 10_000):
        monkeypatch.setattr(billiard, "MANY_FACETS", limit)
        states = [launched(target, plan, seed) for seed in range(10)]
        bounces.append([fly(target, plan, state, 3.0) for state in states])
        ends.append([state.vectors[:2].copy() for state in states])
    assert bounces[0] == bounces[1] and min(bounces[0]) >= 5
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TURNING)
def test_rotations_conserve_energy_through_many_bounces(name, form):
    target, plan = setting(name, form, turns=True)
    assert plan.has_kicks == 0
    bounces = 0
    for seed in range(10):
        drift, count, is_inside = drift_of_energy(target, plan, seed, np.tan(1.4))
        assert is_inside and drift < 1e-10
        bounces += count
    assert bounces >= 20
    bug = plan._replace(pull=plan.pull + 0.01, pull_in_axes=plan.pull_in_axes + 0.01)
    kept = energy_of_flight(plan, state := launched(target, plan, 1))[0]
    fly(target, bug, state, np.tan(1.4))
    assert abs(energy_of_flight(plan, state)[0] / kept - 1.0) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TURNING)
def test_rotations_find_the_way_back_and_conserve_volume(name, form):
    target, plan = setting(name, form, turns=True)
    for seed in range(10):
        assert way_back(target, plan, launched(target, plan, seed)) < 1e-9
    assert abs(determinant(target, plan, 0) - 1.0) < 1e-3


def test_times_of_rotations_add_up():
    """One flight, or the same in two parts: tangents of half angles do not add."""
    target, plan = setting("box", turns=True)
    whole, parts = (launched(target, plan, 3) for _ in range(2))
    fly(target, plan, whole, np.tan(1.2))
    for angle in (1.0, 1.4):
        fly(target, plan, parts, np.tan(0.5 * angle))
    np.testing.assert_allclose(whole.vectors[:2], parts.vectors[:2], atol=1e-11)


@kernel
def with_few_pieces(body, theta, velocity, pivot, horizon, room, normal, out):
    """Planted: an exit that refuses a path of too many pieces."""
    exits.rotation_convex_exit(body, theta, velocity, pivot, horizon, room, normal, out)
    if out[1] == exits.OPEN:
        out[0] = np.nan


def along_the_wall(domain, clearance, rng):
    """Point near a round wall, velocity and angle of a rotation that follows it."""
    theta, velocity = np.linalg.qr(rng.normal(size=(DIM, 2)))[0].T
    size = np.array([1.0 - clearance, 1.0 - clearance * rng.uniform(1.0, 3.0)])
    theta, velocity = size[:, None] * domain.radius * np.array([theta, velocity])
    return theta, velocity, rng.uniform(0.5, 3.0)


def rotated(target, plan, start, *, pauses=False):
    """Log of density times acceptance of a rotation, the way back, and its parts."""
    theta, velocity, angle = start
    state, parts = billiard.init(target, plan, theta), 1
    pieces, control = billiard.step_functions(target, plan), state.work.control
    state.vectors[0], state.vectors[1] = theta, velocity
    state.workspace.trajectory["flight_left"] = np.tan(0.5 * angle)
    before = target.energy(theta) + 0.5 * velocity @ velocity
    while True:
        if pauses:
            control["units_left"] = 1.0
        code, _ = billiard.fly_once(target.numbers, pieces, plan, state)
        if code != PAUSED:
            break
        parts += 1
    if code != OK:
        return -np.inf, None, parts
    back = state.vectors[0].copy(), -state.vectors[1], angle
    after = target.energy(back[0]) + 0.5 * back[1] @ back[1]
    return -max(before, after), back, parts


@pytest.mark.slow
def test_rotations_along_a_wall_are_in_detailed_balance():
    """However many pieces they need, and whichever way needs more."""
    domain, rng = D.Ball(0.9, p=2.0 + 1e-9), np.random.default_rng(11)
    case = example(L.Logistic(), domain, dim=DIM, num_records=12, k=60.0, mu=0.2)
    target, center = case.target, np.zeros(DIM)
    mass = mass_matrix.dense(np.eye(DIM))
    plan = billiard.new_plan(
        target, mass, center=center, force=center, step=1.0, pivot=center
    )
    bug = plan._replace(find_exit=pointer(with_few_pieces, exits.EXIT))
    one_way = most = 0
    for clearance in np.geomspace(1e-2, 1e-7, 50):
        start = along_the_wall(domain, clearance, rng)
        flow, back, _ = rotated(target, plan, start)
        flow_back, again, parts = rotated(target, plan, back, pauses=True)
        assert np.isfinite(flow) and flow_back == pytest.approx(flow, abs=1e-10)
        np.testing.assert_allclose(again[0], start[0], atol=1e-12)
        np.testing.assert_allclose(again[1], start[1], atol=1e-12)
        known = [rotated(target, bug, z)[0] > -np.inf for z in (start, back)]
        one_way, most = one_way + (known[0] != known[1]), max(most, parts)
    assert one_way > 0
    assert most > 50  # pauses, with no wall between


def in_the_euclidean_metric(plan):
    mass = plan.mass._replace(covariance=0.1 * np.eye(DIM))
    return plan._replace(
        mass=mass, facet_directions=0.1 * FACES, facet_gram=0.1 * FACES @ FACES.T
    )


def with_another_pull(plan):
    return plan._replace(
        pull=0.99 * plan.pull, slack_accelerations=0.99 * plan.slack_accelerations
    )


def with_other_variances(plan):
    return plan._replace(variances=plan.variances[::-1].copy())


def at_the_wrong_face(plan):
    order = np.roll(np.arange(15), 1)
    return plan._replace(
        facet_directions=plan.facet_directions[order].copy(),
        facet_gram=plan.facet_gram[order][:, order].copy(),
    )


def at_the_end_of_another_face(plan):
    return plan._replace(facet_directions=np.roll(plan.facet_directions, 1, axis=0))


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("l_1 ball", in_the_euclidean_metric),
        ("box", in_the_euclidean_metric),
        ("polytope", in_the_euclidean_metric),
        ("polytope", at_the_wrong_face),
        ("large polytope", at_the_end_of_another_face),
        ("large polytope", with_another_pull),
        ("l_2 ball", with_another_pull),
        ("l_2 ball", with_other_variances),
        ("l_3 ball", with_another_pull),
        ("nuclear ball", in_the_euclidean_metric),
        ("operator ball", with_another_pull),
    ],
)
def test_a_wrong_reflection_or_pull_loses_energy(name, bug):
    target, plan = setting(name)
    has_facets = "polytope" in name
    plan = bug(plan if has_facets else plan._replace(facet_gram=np.empty((0, 0))))
    if not has_facets:
        plan = plan._replace(facet_gram=np.empty((0, 0)))
    drift, _, is_inside = drift_of_energy(target, plan, 1, duration=3.0)
    assert drift > 1e-4 or not is_inside


def way_back(target, plan, state, opening=0.5, size=0.25, leaps=8):
    """Largest error of place and velocity after a trajectory there and back."""
    start, velocity = state.vectors[0].copy(), state.vectors[1].copy()
    head = (
        target.numbers,
        billiard.step_functions(target, plan),
        plan,
        state,
        size,
        leaps,
    )
    # The first kick of a leap after none is a half kick, which a bug may add to.
    for _ in range(2):
        assert travel(*head, opening - 0.5) == OK
        state.vectors[1] *= -1.0
    errors = state.vectors[0] - start, state.vectors[1] - velocity
    return max(abs(errors[0]).max(), abs(errors[1]).max() / abs(velocity).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    slow_but(
        [(name, form) for name in BODIES for form in FORMS],
        [("whole space", "dense"), ("simplex", "low rank"), ("polytope", "dense")]
        + [("l_1 ball", "dense"), ("l_2 ball", "dense"), ("nuclear ball", "dense")]
        + [("l_1.5 ball", "dense"), ("operator ball", "low rank")],
    ),
)
def test_trajectories_find_the_way_back(name, form):
    target, plan = setting(name, form)
    for seed in range(10):
        assert way_back(target, plan, launched(target, plan, seed)) < 1e-9


@pytest.mark.parametrize("name", ["whole space", "l_1 ball"])
def test_a_forgotten_half_kick_loses_the_way_back(name):
    target, plan = setting(name)
    assert way_back(target, plan, launched(target, plan, 1), opening=0.0) > 1e-3


def determinant(target, plan, seed, damping=1.0):
    """Determinant of the map from place and velocity to those after a trajectory."""
    domain = target.domain
    basis = np.eye(DIM) if domain.affine_dim(DIM) == DIM else zero_sum(DIM)
    origin = launched(target, plan, seed)
    start = np.concatenate((origin.vectors[0], origin.vectors[1]))
    state, columns = billiard.init(target, plan, origin.position), []
    head = target.numbers, billiard.step_functions(target, plan), plan, state, 0.25, 5
    directions = np.kron(np.eye(2), basis).T
    for direction in directions:
        ends = []
        for width in (1e-6, -1e-6):
            state.vectors[0], state.vectors[1] = np.split(start + width * direction, 2)
            slopes = target.gradient(state.vectors[0])
            state.vectors[2] = slopes
            assert travel(*head, 0.0) == OK
            ends.append(np.concatenate((state.vectors[0], damping * state.vectors[1])))
        columns.append(directions @ (ends[0] - ends[1]) / 2e-6)
    return abs(np.linalg.det(np.array(columns)))


@one_in(3)
@pytest.mark.parametrize("name", BODIES)
def test_trajectories_conserve_volume(name):
    target, plan = setting(name)
    for seed in range(3):
        assert abs(determinant(target, plan, seed) - 1.0) < 1e-3
    assert abs(determinant(target, plan, 0, damping=0.999) - 1.0) > 3e-3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["l_2 ball", "simplex"])
def test_products_with_the_metric_agree(name, form):
    mass = mass_of(BODIES[name], form)
    root = mass.spread(np.eye(mass.whiten_rows(np.zeros((1, DIM))).shape[1])).T
    covariance, rng = root @ root.T, np.random.default_rng(2)
    scratch, out = np.empty(mass.num_scratch), np.empty(DIM)
    vector = rng.normal(size=DIM)
    mass_matrix.times(mass, vector, scratch, out)
    np.testing.assert_allclose(out, covariance @ vector, rtol=1e-12)
    np.testing.assert_allclose(mass.apply(vector), covariance @ vector, rtol=1e-12)
    for j in range(DIM):
        mass_matrix.column(mass, j, scratch, out)
        np.testing.assert_allclose(out, covariance[j], rtol=1e-12, atol=1e-14)
    drawn = mass_matrix.draw_velocity(mass, rng, scratch, out)
    white = mass.whiten_rows(out)
    np.testing.assert_allclose(mass.spread(white), out, rtol=1e-12)
    np.testing.assert_allclose(drawn, 0.5 * white @ white, rtol=1e-10)
    again = mass_matrix.kinetic(mass, out, scratch)
    np.testing.assert_allclose(again, drawn, rtol=1e-10)
    assert mass.rank == np.linalg.matrix_rank(covariance)


def chain_of(
    case,
    starts,
    *,
    step=1.0,
    form="dense",
    force=True,
    hill=billiard.MAX_RISE,
    turns=False,
):
    """Chain on a case with a plan that no warm-up has polished."""
    target, size = case.target, starts.std(axis=0).mean()
    start = case.domain.interior_point(case.dim)
    plan = billiard.new_plan(
        target,
        mass_of(case.domain, form, case.dim, size=size, ratio=1.7),
        center=start,
        force=force * target.gradient(starts[0]),
        step=step,
        pivot=starts[:50].mean(axis=0) if turns else None,  # not quite the mean
    )._replace(max_rise=hill)
    # With a scatter, as starts that are all alike would pass for an empty memory.
    return PreparedChain(
        target=target,
        plan=plan,
        run=billiard.run,
        init_fn=billiard.init,
        functions_fn=billiard.step_functions,
        start=start,
        scatter=plan.mass.spread(np.eye(plan.mass.num_white)).T,
    )


def margins(case, starts, chain, run=None):
    if chain.plan.has_kicks:
        assert restart_rule(chain, starts) == 1  # the memory is the slope
    draws = fast_draws(chain, starts, np.random.default_rng(3), 3, run=run)
    moved = (draws[:, 0] != starts).any(axis=1).mean()
    assert moved > 0.2 or (IS_FRESH and moved > 0.02)
    assert case.inside(draws[:, -1]).all()
    law = max(law_margin(case, draws[:, turn]) for turn in (0, 2))
    return law, asymmetry_margin(case, starts, draws[:, 0])


CELLS = [(domain, loss) for domain in DOMAINS for loss in LOSSES]
USUAL = [("l_1 ball", "logistic"), ("simplex", "absolute")]


@one_in(2)
@pytest.mark.parametrize(("domain", "loss"), slow_but(CELLS, USUAL))
def test_rough_plans_leave_the_law_as_it_is(domain, loss):
    case, starts = grid_case(domain, loss), exact_starts(domain, loss, 6_000)
    for form in FORMS:
        assert max(margins(case, starts, chain_of(case, starts, form=form))) < 1.0, form


@usual("box-hinge", "l_1.5 ball-hinge")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("domain", TURNING_CELLS)
def test_rotations_without_kicks_leave_the_law_as_it_is(domain, loss):
    case, starts = grid_case(domain, loss), exact_starts(domain, loss, 6_000)
    for form in FORMS:
        chain = chain_of(case, starts, form=form, turns=True)
        assert max(margins(case, starts, chain)) < 1.0, form


class EntropicCase(GridCase):
    """A case on the simplex whose regularizer is the entropy."""

    @property
    def target(self):
        made = super().target
        regularizer = dps.regularizers.Entropy()
        return dps.Gibbs(made.problem, k=self.k, mu=self.mu, regularizer=regularizer)

    def regularizer(self, points):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(points > 0.0, points * np.log(points), 0.0).sum(-1)


ANGLES = 2.0 * np.pi * np.arange(310) / 310
POLYGON = D.Polytope(
    np.column_stack((np.cos(ANGLES), np.sin(ANGLES))), np.linspace(0.4, 0.8, 310)
)
EXTRA = {
    "entropy": (EntropicCase, L.Hinge(), D.Simplex(), {"dim": 3, "mu": 2.0}),
    "l_1.2 regularizer": (GridCase, L.Absolute(), D.Box(-0.5, 1.0), {"p": 1.2}),
    "l_1.5 ball": (GridCase, L.Hinge(), D.Ball(1.0, p=1.5), {"p": 1.5}),
    "l_3 ball": (GridCase, L.Huber(0.5), D.Ball(0.7, p=3.0), {"k": 40.0}),
    "sphere": (GridCase, L.Logistic(), D.Ball(0.5), {"k": 100.0}),
    "many facets": (GridCase, L.Logistic(), POLYGON, {"k": 60.0}),
    "corner": (GridCase, L.Linear(), D.Box(-0.5, 0.5), {"k": 30.0}),
}


@cache
def extra_case(name):
    kind, loss, domain, options = EXTRA[name]
    made = example(loss, domain, **options)
    fields = made.loss, made.domain, made.rows, made.response, made.k, made.mu, made.p
    case = kind(*fields)
    return case, case.exact(np.random.default_rng(4), 6_000)


@one_in(2)
@pytest.mark.parametrize("name", slow_but(EXTRA, ["entropy", "sphere", "many facets"]))
def test_other_regularizers_and_walls_leave_the_law_as_it_is(name):
    case, starts = extra_case(name)
    for force in (True, False):
        assert max(margins(case, starts, chain_of(case, starts, force=force))) < 1.0, (
            force
        )


@pytest.mark.slow
def test_low_hills_that_refuse_do_so_both_ways():
    case, starts = grid_case("box", "logistic"), exact_starts("box", "logistic")
    starts = starts[:6_000]
    chain = chain_of(case, starts, step=0.2, force=False, hill=0.1)
    assert max(margins(case, starts, chain)) < 1.0


@pytest.mark.parametrize(
    ("domain", "step", "options"),
    [
        slow("whole space", mutants.without_last_kick, {}),
        slow("l_1 ball", mutants.with_first_kinetic, {}),
        slow("box", mutants.refused_from_below, {"hill": 0.1, "force": False}),
        slow("box", mutants.with_first_kinetic, {"turns": True}),
        slow("ball", mutants.with_first_kinetic, {"turns": True}),
    ],
)
def test_a_wrong_trajectory_breaks_the_law(domain, step, options):
    case, starts = grid_case(domain, "logistic"), exact_starts(domain, "logistic")
    chain = chain_of(case, starts, step=0.7, **options)
    assert max(margins(case, starts, chain)) < 1.0
    assert_rejected(max(margins(case, starts, chain, mutants.run_of(step))))


HULLS = {
    "simplex": D.Simplex(),
    "polytope": D.Polytope(-np.eye(3), np.zeros(3), A_eq=[[1.0, 2.0, 1.0]], b_eq=[1.0]),
}


@pytest.mark.parametrize("name", HULLS)
def test_errors_off_the_hull_do_not_add_up(name):
    """A point that is off by half the tolerance is on the hull after one move."""
    domain = HULLS[name]
    target = example(L.Logistic(), domain, dim=3, k=5.0, mu=0.2).target
    start, basis = domain.interior_point(3), domain.hull(3)[1]
    normal = np.linalg.svd(basis)[0][:, -1]
    plan = billiard.new_plan(
        target,
        mass_matrix.dense(0.1 * basis),
        center=start,
        force=target.gradient(start),
        step=0.3,
    )
    errors = []
    for option in (plan, plan._replace(hull_normals=plan.hull_normals[:0])):
        state = billiard.init(target, option, start + 2e-10 * normal)
        assert domain.contains(state.position)
        rng, rows = np.random.default_rng(9), (np.empty((5, 3)), np.empty((5, 5)))
        pieces = billiard.step_functions(target, option)
        given = target.numbers, pieces, option, state, rng, 1, *rows
        assert billiard.run(*given) == (OK, 5)
        assert state.counts[COUNT.accepted] > 0
        errors.append(abs(normal @ (state.position - start)))
    assert errors[0] < 1e-14
    assert errors[1] > 1e-10  # a plan that knows no normals keeps the error


def test_a_constant_slope_is_always_accepted():
    """The limit in which the splitting is exact: a linear energy and its own force."""
    case = example(L.Linear(), D.Box(-0.5, 1.0), k=50.0, mu=0.0)
    chain = chain_of(case, case.exact(np.random.default_rng(5), 100), step=0.3)
    state = chain.init()
    chain.runner()(
        state, np.random.default_rng(5), np.empty((50, 2)), np.empty((50, 5))
    )
    totals = state.workspace.totals
    assert totals["bounces"][0] > 50.0
    assert totals["acceptance"][0] == pytest.approx(50.0, abs=1e-9)


def test_a_gaussian_in_its_own_metric_is_always_accepted():
    case = example(L.Squared(), D.WholeSpace(), k=50.0, mu=0.1)
    hessian = case.k * (case.rows.T @ case.rows / 6 + case.mu * np.eye(2))
    mode = -np.linalg.solve(hessian, case.target.gradient(np.zeros(2)))
    mass = mass_matrix.dense(np.linalg.cholesky(np.linalg.inv(hessian)))
    plan = billiard.new_plan(
        case.target, mass, center=mode, force=np.zeros(2), step=1.4
    )
    state = billiard.init(case.target, plan, mode)
    pieces = billiard.step_functions(case.target, plan)
    arguments = case.target.numbers, pieces, plan, state
    rows = np.empty((50, 2)), np.empty((50, 5))
    billiard.run(*arguments, np.random.default_rng(6), 1, *rows)
    assert state.workspace.totals["acceptance"][0] == pytest.approx(50.0, abs=1e-9)


def test_dual_averaging_follows_its_formula():
    tuning, log_steps = billiard.new_tuning(0.5, target_rate=0.7), []
    probabilities = np.random.default_rng(7).random(30)
    for probability in probabilities:
        billiard.update_step(tuning, probability, 1.4)
        log_steps.append(tuning["log_step"][0])
    deficit, mean = 0.0, np.log(0.5)
    for t, probability in enumerate(probabilities, start=1):
        deficit = (1.0 - 1.0 / (t + 10)) * deficit + (0.7 - probability) / (t + 10)
        log_step = min(np.log(1.0) - np.sqrt(t) / 0.05 * deficit, np.log(1.4))
        assert log_steps[t - 1] == pytest.approx(log_step, abs=1e-12)
        mean = t**-0.75 * log_step + (1.0 - t**-0.75) * mean
    assert tuning["mean_log_step"][0] == pytest.approx(mean, abs=1e-12)


def test_many_sparse_columns_move_in_a_low_rank_metric():
    from scipy import sparse

    rng, dim = np.random.default_rng(8), 2000
    rows = sparse.random_array((500, dim), density=0.01, rng=rng, format="csr")
    labels = rng.choice([-1.0, 1.0], size=500)
    problem = dps.Problem(
        rows, labels, loss=L.Hinge(), domain=D.Simplex(), row_bound=20.0
    )
    target = dps.Gibbs(problem, k=1e4, mu=0.1)
    scale = np.full(dim, 1.0 / dim)
    columns = np.column_stack((np.ones(dim), rng.normal(size=(dim, 5))))
    mass = mass_matrix.low_rank(
        scale, np.linalg.qr(columns)[0], [0.0, 0.5, 0.7, 1.5, 2.0, 0.9]
    )
    start = np.full(dim, 1.0 / dim)
    plan = billiard.new_plan(
        target, mass, center=start, force=target.gradient(start), step=0.05
    )
    state = billiard.init(target, plan, start)
    white = plan.mass.whiten_rows(plan.mass.spread(rng.standard_normal(dim)))
    velocity = plan.mass.spread(white)
    flights = billiard.FreeFlights(target, plan)
    end = flights.end(position=start, velocity=velocity, duration=1.0)
    assert problem.domain.contains(end) and not np.array_equal(end, start)
    draws = np.empty((5, dim))
    arguments = (
        target.numbers,
        billiard.step_functions(target, plan),
        plan,
        state,
        rng,
        1,
    )
    assert billiard.run(*arguments, draws, np.empty((5, 5)))[0] in (OK, 100)


@kernel(counts_references=False)
def exit_without_progress(
    body, theta, velocity, pull, horizon, buffer, normal, out
) -> None:
    """Say that the search goes on at once, for ever."""
    out[exits.TIME], out[exits.FACET] = 1e-30 * horizon, exits.OPEN


def exit_at(time):
    @kernel(counts_references=False)
    def leave(body, theta, velocity, pull, horizon, buffer, normal, out) -> None:
        out[exits.TIME], out[exits.FACET] = time, exits.HAS_NORMAL
        for j in range(theta.shape[0]):
            normal[j] = theta[j]

    return leave


def disk_with(exit_function):
    class Liar(D.Ball):
        def exit_piece(self, dim):
            return exit_function

    return dps.Density(energy=lambda x: 0.0, dim=2, domain=Liar(1.0))


class TestExitsThatLie:
    @pytest.mark.slow
    def test_a_flight_without_progress_is_an_error(self):
        with pytest.raises(dps.SamplingError, match="may not be convex"):
            dps.sample(
                disk_with(exit_without_progress),
                sampler=dps.samplers.BilliardHMC(),
                num_draws=10,
                progress=False,
            )

    @usual("nan")
    @pytest.mark.parametrize(
        "time",
        [
            -1.0,
            np.nan,
            np.inf,
            # 20,000 reflections at one point, in each of the warm-up's trajectories.
            slow(0.0),
            slow(5e-324),
        ],
    )
    def test_draws_stay_inside(self, time):
        """Such trajectories are rejected, and the chains do not converge."""
        draws = dps.sample(
            disk_with(exit_at(time)),
            sampler=dps.samplers.BilliardHMC(),
            num_draws=20,
            check=False,
            progress=False,
        )
        theta = draws.posterior["theta"].values
        assert (np.linalg.norm(theta, axis=2) <= 1.0).all()
        assert draws.attrs["num_constraint_violations"] == 0
