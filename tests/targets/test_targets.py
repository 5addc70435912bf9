"""Targets: energies, gradients, margin intervals, refusals, failing pieces."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.core.jit import pointer
from dpsample.targets import gibbs, gibbs_target
from tests.support.bodies import random_polytope
from tests.support.tiers import one_in

DIM = 4
SHAPE = (2, 2)
LOSSES = (
    dps.losses.Linear(),
    dps.losses.Logistic(),
    dps.losses.Hinge(),
    dps.losses.SmoothedHinge(0.4),
    dps.losses.Absolute(),
    dps.losses.Quantile(0.3),
    dps.losses.Huber(0.2),
    dps.losses.Squared(),
    dps.losses.PowerFour(),
)
CENTER = [0.1, -0.2, 0.0, 0.3]
CASES = {
    "l2": (dps.domains.Ball(1.0), dps.regularizers.SquaredNorm(2.0)),
    "l2, own center": (
        dps.domains.Ball(1.0),
        dps.regularizers.SquaredNorm(2.0, center=CENTER),
    ),
    "l1.5 on a moved ball": (
        dps.domains.Ball(1.0, p=1.5, center=CENTER),
        dps.regularizers.SquaredNorm(1.5),
    ),
    "l1 on a box": (dps.domains.Box(-0.5, 1.0), dps.regularizers.SquaredNorm(1.0)),
    "entropy": (dps.domains.Simplex(), dps.regularizers.Entropy()),
    "Schatten": (
        dps.domains.SchattenBall(1.0, p=1.0, shape=SHAPE),
        dps.regularizers.SchattenSquared(1.5, shape=SHAPE),
    ),
}


def records(*, seed=1, num_records=30):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_records, DIM))
    rows /= 1.01 * np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rng.choice([-1.0, 1.0], num_records)


def make(domain, *, loss=None, layout=np.array, offset=None, k=7.0, mu=0.3, **options):
    rows, response = records()
    problem = dps.Problem(
        layout(rows),
        response,
        loss=dps.losses.Logistic() if loss is None else loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
        offset=offset,
        offset_bound=0.5,
    )
    return dps.Gibbs(problem, k=k, mu=mu, **options)


def interior(domain, rng):
    """Point well inside, relative to the affine hull."""
    middle = domain.interior_point(DIM)
    return middle + 0.4 * (domain.project(middle + rng.normal(size=DIM)) - middle)


@one_in(5)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_energy_is_the_formula_and_the_gradient_its_derivative(loss, case):
    domain, regularizer = CASES[case]
    target = make(domain, loss=loss, regularizer=regularizer)
    rows, response = records()
    center = domain.default_center(DIM)
    rng = np.random.default_rng(2)
    for _ in range(3):
        theta = interior(domain, rng)
        risk = loss.value(rows @ theta, response).mean()
        expected = 7.0 * (risk + 0.3 * regularizer.value(theta, center))
        assert target.energy(theta) == pytest.approx(expected, rel=1e-12)
        gradient, step = target.gradient(theta), 1e-6
        for j in range(DIM):
            move = step * np.eye(DIM)[j]
            rise = target.energy(theta + move) - target.energy(theta - move)
            assert rise / (2.0 * step) == pytest.approx(gradient[j], abs=3e-7)


def test_a_gradient_without_its_regularizer_would_be_seen():
    """Negative control of the finite differences above."""
    domain, regularizer = CASES["l1 on a box"]
    full, bare = (make(domain, mu=mu, regularizer=regularizer) for mu in (0.3, 0.0))
    theta = interior(domain, np.random.default_rng(2))
    assert np.abs(full.gradient(theta) - bare.gradient(theta)).min() > 1e-3


def test_sparse_and_dense_targets_agree():
    domain = dps.domains.Ball(1.0)
    dense, thin = (make(domain, layout=m) for m in (np.array, sparse.csr_matrix))
    theta = interior(domain, np.random.default_rng(3))
    assert dense.energy(theta) == pytest.approx(thin.energy(theta), rel=1e-14)
    np.testing.assert_allclose(dense.gradient(theta), thin.gradient(theta), rtol=1e-12)


def test_the_density_is_zero_outside():
    target = make(dps.domains.Ball(1.0))
    assert target.log_density(np.full(DIM, 0.6)) == -np.inf
    assert target.log_density(np.full(DIM, 0.4)) == -target.energy(np.full(DIM, 0.4))


def test_the_default_regularizer_is_about_the_domains_center():
    domain = dps.domains.Ball(1.0, center=CENTER)
    target = make(domain)
    risk = target.problem.risk(CENTER)
    assert target.energy(CENTER) == pytest.approx(7.0 * risk, rel=1e-14)


def test_all_targets_have_one_compiled_type():
    from numba import typeof

    made = [make(domain, regularizer=reg) for domain, reg in CASES.values()]
    made.append(make(dps.domains.Ball(1.0), layout=sparse.csr_matrix))
    made.append(make(dps.domains.WholeSpace(), k=1, mu=1))
    assert len({typeof(target.numbers) for target in made}) == 1


BODIES = {
    "ball": dps.domains.Ball(1.5),
    "ball elsewhere": dps.domains.Ball(0.5, center=[1.0, -2.0, 0.0, 3.0]),
    "l1 ball": dps.domains.Ball(1.0, p=1.0, center=CENTER),
    "l3 ball": dps.domains.Ball(1.0, p=3.0, center=CENTER),
    "box": dps.domains.Box([-1.0, 0.0, 2.0, -5.0], [0.0, 3.0, 2.5, -4.0]),
    "simplex": dps.domains.Simplex(),
    "polytope": random_polytope(DIM, 5, seed=3),
    "Schatten": dps.domains.SchattenBall(1.5, p=1.0, shape=SHAPE),
}


def extreme_margins(domain, rows):
    """Largest <a, x> over the domain: far points project close to a maximizer."""
    reached = [row @ domain.project(1e5 * row) for row in rows]
    rng = np.random.default_rng(4)
    inside = [domain.project(v) for v in rng.normal(scale=3.0, size=(200, DIM))]
    return np.maximum(reached, (np.array(inside) @ rows.T).max(axis=0))


@one_in(5)
@pytest.mark.parametrize("layout", [np.array, sparse.csr_matrix])
@pytest.mark.parametrize("body", BODIES)
def test_margin_intervals_are_the_extreme_margins(body, layout):
    domain, (rows, _) = BODIES[body], records()
    offset = np.linspace(-0.5, 0.5, len(rows))
    for given in (None, offset):
        lower, upper = make(domain, layout=layout, offset=given).margin_intervals()
        shift = 0.0 if given is None else given
        highest = extreme_margins(domain, rows) + shift
        lowest = -extreme_margins(domain, -rows) + shift
        assert np.all(highest <= upper) and np.all(lower <= lowest)
        np.testing.assert_allclose(highest, upper, atol=3e-5)
        np.testing.assert_allclose(lowest, lower, atol=3e-5)


def test_intervals_of_a_ball_thought_to_be_at_the_origin_would_fail():
    rows, _ = records()
    wrong = make(dps.domains.Ball(0.5)).margin_intervals()[1]
    assert np.any(extreme_margins(BODIES["ball elsewhere"], rows) > wrong)


def test_an_unbounded_domain_has_unbounded_margins():
    lower, upper = make(dps.domains.WholeSpace()).margin_intervals()
    assert np.all(lower == -np.inf) and np.all(upper == np.inf)


HALF_SPACE = dps.domains.Polytope(np.eye(DIM)[:1], [1.0])


@pytest.mark.parametrize("domain", [dps.domains.WholeSpace(), HALF_SPACE])
def test_an_unbounded_domain_needs_a_regularizer(domain):
    with pytest.raises(ValueError, match=r"^mu must be > 0 on an unbounded domain, "):
        make(domain, mu=0.0)
    assert np.isfinite(make(domain, mu=1e-9).energy(np.zeros(DIM)))


BAD = {
    "k": ({"k": 0.0}, "k must be a finite number > 0, got 0"),
    "mu": ({"mu": -1.0}, "mu must be a finite number >= 0, got -1"),
    "infinite k": ({"k": np.inf}, "k must be a finite number > 0, got inf"),
    "regularizer": ({"regularizer": 2.0}, "regularizer must be a Regularizer, got 2"),
    "regularizer of another size": (
        {"regularizer": dps.regularizers.SquaredNorm(2.0, center=[0.0])},
        "center must be of shape",
    ),
    "matrix regularizer of another size": (
        {"regularizer": dps.regularizers.SchattenSquared(1.5, shape=(3, 2))},
        "shape must be of a matrix with 4 entries",
    ),
    "entropy off the simplex": (
        {"regularizer": dps.regularizers.Entropy()},
        "domain must be a Simplex, .* use SquaredNorm",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    changes, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        make(dps.domains.Ball(1.0), **changes)


def test_a_target_needs_a_problem_and_points_of_its_size():
    with pytest.raises(ValueError, match=r"problem must be a Problem, .* Build a dps"):
        dps.Gibbs("problem", k=1.0, mu=1.0)
    target = make(dps.domains.Ball(1.0))
    for call in (target.energy, target.gradient):
        with pytest.raises(ValueError, match=r"theta must be of shape \(4,\), got"):
            call(np.zeros(3))


@pytest.mark.parametrize("piece", ["contains", "project"])
def test_a_body_that_is_nan_fails_in_every_piece(piece):
    target = make(dps.domains.Ball(1.0))
    body = target.numbers.body._replace(center=np.full(DIM, np.nan))
    numbers, work = target.numbers._replace(body=body), target.new_work()
    if piece == "contains":
        found = gibbs_target.inside(numbers, target.pieces, np.zeros(DIM), work)
        assert found != 1.0
    else:
        out = np.zeros(DIM)
        gibbs_target.project(numbers, target.pieces, np.full(DIM, 2.0), out)
        assert np.isnan(out).all()


@pytest.mark.parametrize(
    "loss",
    [dps.losses.Absolute(), dps.losses.Quantile(level=0.3), dps.losses.Huber()],
    ids=lambda loss: loss.name,
)
@pytest.mark.parametrize("far", [1e16, 1e300, np.finfo(float).max])
def test_how_far_a_response_is_leaves_the_density_alone(loss, far):
    """Beyond all margins the slope is the same; digits of differences must not go."""
    rows = records(num_records=5)[0]
    points = np.random.default_rng(1).uniform(-0.5, 0.5, (6, DIM))
    found = []
    for y in (50.0, far):
        response = np.array([y, -y, 0.1, y, -0.2])
        problem = dps.Problem(
            rows[:5], response, loss=loss, domain=dps.domains.Ball(1.0), row_bound=1.0
        )
        target = dps.Gibbs(problem, k=7.0, mu=0.3)
        energies = np.array([target.energy(point) for point in points])
        found.append(energies - energies[0])
        np.testing.assert_array_equal(problem.data.response, response)
    np.testing.assert_allclose(found[1], found[0], rtol=0.0, atol=1e-10)
    assert np.ptp(found[0]) > 0.1


def test_what_the_kernels_numbers_are_made_from_cannot_be_changed():
    """They would go on with the old temperature, a sampler's proof with the new."""
    target = make(dps.domains.Ball(1.0))
    target.energy(np.zeros(DIM))
    for name in ("k", "mu", "problem", "regularizer"):
        with pytest.raises(FrozenInstanceError):
            setattr(target, name, getattr(target, name))


def test_chords_of_many_sides_are_found_in_several_calls(monkeypatch):
    """Ctrl-C is heard in between: 1000 points and 10 000 sides took seconds."""
    rng = np.random.default_rng(0)
    sides = rng.normal(size=(100, 3))
    domain = dps.domains.Polytope(sides, np.full(100, 2.0))
    data = dps.datasets.logistic(20, 3, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=domain,
        row_bound=1.0,
    )
    target = dps.Gibbs(problem, k=1.0, mu=1.0)
    points, along = rng.normal(size=(2, 50, 3)) * 0.1
    whole, calls, fill = (
        gibbs_target.chords(target, points, along),
        [],
        gibbs_target.fill_chords,
    )

    def counted(*given):
        calls.append(None)
        fill(*given)

    monkeypatch.setattr(gibbs_target, "fill_chords", counted)
    monkeypatch.setattr(gibbs_target, "CALL_NUMBERS", 10_000)
    np.testing.assert_array_equal(gibbs_target.chords(target, points, along), whole)
    assert len(calls) == 5


def test_energies_are_compiled_for_the_layout_of_the_records():
    """Few dense records have a copy in tiles; neither kind compiles the other."""
    dense, thin = (
        make(dps.domains.Ball(1.0), layout=m) for m in (np.array, sparse.csr_matrix)
    )
    assert dense.numbers.data.tile > 0 and thin.numbers.data.tile == 0
    kinds = {gibbs.OF_TILES: dense, gibbs.OF_ROWS: thin}
    for (energy, gradient), target in kinds.items():
        assert target.pieces.energy is pointer(energy, gibbs_target.ENERGY)
        assert target.pieces.energy_gradient is pointer(
            gradient, gibbs_target.ENERGY_GRADIENT
        )
