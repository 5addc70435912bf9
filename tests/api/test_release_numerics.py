"""Releases lie on the grid; which of them count floating point is not shown."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.api import release_plan
from dpsample.samplers.localized import exact_rejection
from dpsample.samplers.localized.exact_rejection import FLOAT_SHARE
from dpsample.targets.grid import PublicGrid
from tests.support.tiers import one_in

L, D = dps.losses, dps.domains
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def problem(domain, loss=None, signal=0.5, num_records=5_000):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((num_records, 3))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    margin = signal * rows[:, 0] + rng.standard_normal(num_records)
    labels = np.where(margin > 0.0, 1.0, -1.0)
    loss = L.Logistic() if loss is None else loss
    facts = {"row_bound": 1.0, "response_bound": 1.0}
    return dps.Problem(rows, labels, loss=loss, domain=domain, **facts)


CASES = {
    "interior": (D.Ball(2.0), L.Logistic(), {}, "exact"),
    "sphere": (D.Ball(0.05), L.Logistic(), {}, "doubles"),
    "corner": (D.Box(-0.01, 0.01), L.Huber(0.5), {}, "doubles"),
    "box": (D.Box(-2.0, 2.0), L.Huber(0.5), {}, "exact"),
    "whole space": (
        D.WholeSpace(),
        L.Logistic(),
        {"strong_convexity": 0.3},
        "exact",
    ),
    "walk": (D.Ball(2.0), L.Logistic(), {"sampler": dps.Proximal()}, "doubles"),
    "simplex": (D.Simplex(), L.Logistic(), {"p": 1.0}, "doubles"),
}


@one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_releases_lie_on_their_grid(name):
    domain, loss, options, numerics = CASES[name]
    given = problem(domain, loss)
    answer = dps.release(given, BUDGET, **options)
    assert answer.nonprivate_diagnostics["decisions"] == numerics
    grid = PublicGrid.for_target(answer.mechanism.target(given))
    assert domain.contains(answer.theta)
    np.testing.assert_array_equal(grid.round(answer.theta), answer.theta)
    if name != "simplex":
        cells = answer.theta / grid.step
        np.testing.assert_array_equal(cells, np.rint(cells))


def test_the_certificate_does_not_tell_which_way_was_taken():
    """Labels that point one way put the mode on the sphere."""
    domain = D.Ball(0.5)
    answers = [dps.release(problem(domain, signal=s), BUDGET) for s in (0.0, 50.0)]
    ways = {a.nonprivate_diagnostics["decisions"] for a in answers}
    assert ways == {"exact", "doubles"}
    first, second = (a.certificate for a in answers)
    assert first.to_json() == second.to_json()
    assert "LOCAL.FLOATS" in first.theorems and "ARITHMETIC" not in first.assumptions
    assert "DRAW.OTHERWISE" in first.assumptions
    assert "is not disclosed" in str(first)


def test_where_nothing_is_counted_the_certificate_says_so():
    given = problem(D.Ball(2.0))
    answer = dps.release(given, BUDGET, sampler=dps.Proximal())
    assert {"ARITHMETIC", "DRAW.IDEALIZED"} <= set(answer.certificate.assumptions)
    assert "Idealized numerics" in answer.certificate.details()
    assert answer.nonprivate_diagnostics["decisions"] == "doubles"


def test_the_sampler_leaves_its_share_to_floating_point():
    given = problem(D.Ball(2.0))
    answer = dps.release(given, BUDGET)
    plan = given.plan[1]
    assert plan.gamma == (1.0 - FLOAT_SHARE) * answer.certificate.gamma


def test_a_draw_that_is_counted_never_falls_back(monkeypatch):
    monkeypatch.setattr(release_plan, "PATIENCE", 0.0)
    monkeypatch.setattr(release_plan.ReleasePlan, "_draw_by_proximal_sampler", None)
    answer = dps.release(problem(D.Ball(2.0)), BUDGET)
    assert answer.nonprivate_diagnostics["method"] == "rejection"


def test_after_the_public_limit_of_tries_a_draw_falls_back(monkeypatch):
    monkeypatch.setattr(exact_rejection, "MAX_PROPOSALS", 0)
    answer = dps.release(problem(D.Ball(2.0), num_records=300), BUDGET)
    assert answer.nonprivate_diagnostics["method"] == "proximal"


@pytest.mark.parametrize("verb_of", [dps.release, dps.minimize])
def test_no_record_makes_numpy_warn_or_raise(verb_of):
    """Rows of all sizes that doubles have, whatever the caller does about floats."""
    rng = np.random.default_rng(0)
    powers = 10.0 ** rng.integers(-320, 300, size=(500, 1))
    rows = np.clip(rng.standard_normal((500, 3)) * powers, -1e300, 1e300)
    given = dps.Problem(
        rows,
        np.where(rng.random(500) < 0.5, -1.0, 1.0),
        loss=L.SmoothedHinge(0.5),
        domain=D.Ball(1e-3),
        row_bound=1e20,
        clip_rows=True,
    )
    args = (given, BUDGET)
    if verb_of is dps.minimize:
        args = (given, dps.optimizers.NoisyGD(num_steps=3, clip=1e20), BUDGET)
    expected = verb_of(*args, seed=1).theta
    given.plan = None
    with np.errstate(all="raise"):
        assert verb_of(*args, seed=1).theta.tolist() == expected.tolist()


@pytest.mark.parametrize("entry", [0.1, 5e-324])
def test_no_record_raises_where_rows_are_scaled(entry):
    with np.errstate(all="raise"):
        made = dps.Problem(
            [[entry, 1e308], [0.5, 0.5]],
            [1.0, -1.0],
            loss=L.Logistic(),
            domain=D.Ball(1.0),
            row_bound=1.0,
            clip_rows=True,
        )
    assert made.num_records == 2
