"""Releases lie on a public grid, by a function of their cell alone."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsample as dps
from dpsample.targets.grid import PublicGrid, hull_inner_radius

L, D = dps.losses, dps.domains
BODIES = [
    D.Ball(1.0),
    D.Ball(0.3, center=[5.0, -2.0, 1.0]),
    D.Ball(1.0, p=1.0),
    D.Ball(1.0, p=3.0),
    D.Box(-0.3, 0.7),
    D.Polytope(np.vstack([np.eye(3), -np.ones((1, 3))]), [0.1, 0.2, 0.3, 1.0]),
    D.SchattenBall(1.0, p=1.0, shape=(3, 1)),
    D.WholeSpace(),
]


def target_of(domain, loss=None, k=1e3, mu=0.01):
    problem = dps.Problem(
        np.eye(3), np.ones(3), loss=loss or L.Logistic(), domain=domain, row_bound=1.0
    )
    return dps.Gibbs(problem, k=k, mu=mu)


@pytest.mark.parametrize("domain", BODIES, ids=repr)
@pytest.mark.parametrize("step", [2.0**-4, 2.0**-12, 2.0**-30])
def test_answers_are_in_the_domain_and_on_the_grid(domain, step):
    rng, grid = np.random.default_rng(1), PublicGrid(domain=domain, dim=3, step=step)
    inner = domain.interior_point(3)
    for _ in range(50):
        point = domain.project(inner + rng.standard_normal(3))
        found = grid.round(point)
        assert domain.contains(found)
        on_grid = (found / step == np.rint(found / step)).all()
        # A domain may hold no point of a coarse grid on the way.
        assert on_grid or step > 0.05
        assert np.linalg.norm(found - point) <= 8.0 * 3.0 * step


@pytest.mark.parametrize("domain", [D.Simplex(), BODIES[0]], ids=repr)
def test_answers_depend_on_the_cell_alone(domain):
    rng = np.random.default_rng(2)
    grid = PublicGrid(domain=domain, dim=3, step=2.0**-20)
    point = np.full(3, 1.0 / 3.0)
    origin, basis = domain.hull(3)
    cell = np.rint(basis.T @ (point - origin) / grid.step)
    answers = {
        grid.round(origin + basis @ (grid.step * (cell + shift))).tobytes()
        for shift in rng.uniform(-0.49, 0.49, (50, basis.shape[1]))
    }
    assert len(answers) == 1 and domain.contains(np.frombuffer(answers.pop()))


@given(st.integers(-(10**12), 10**12), st.sampled_from([-1, 1]))
def test_decimals_are_rounded_by_all_their_digits(cell, sign):
    grid = PublicGrid(domain=D.WholeSpace(), dim=1, step=0.5)
    beyond = Decimal(cell) / 2 + sign * (Decimal("0.25") + Decimal("1e-15"))
    assert grid.round([beyond])[0] == 0.5 * (cell + sign)


@pytest.mark.parametrize("domain", [D.WholeSpace(), D.Ball(1.0), D.Box(-1.0, 0.25)])
def test_no_zero_has_a_sign_whatever_was_rounded(domain):
    """It would tell draws in doubles, which the records choose, from decimals."""
    grid = PublicGrid(domain=domain, dim=2, step=2.0**-20)
    tiny = np.array([-(2.0**-22), 0.25 + 2.0**-22])  # outside of the box, too
    for point in (
        tiny,
        [Decimal(x) for x in tiny.tolist()],
        np.array([2.0**-22, 0.25]),
    ):
        assert grid.round(point).tobytes() == np.array([0.0, 0.25]).tobytes()


def test_the_step_is_a_power_of_two_below_the_public_spread():
    for loss in (L.Logistic(), L.Hinge()):
        for k in (1e-6, 1.0, 1e6):
            for radius in (1e-3, 1.0, 1e3):
                target = target_of(D.Ball(radius), loss, k=k, mu=0.1 / radius**2)
                step = PublicGrid.for_target(target).step
                assert np.frexp(step)[0] == 0.5
                assert step <= 2.0**-10 * min(
                    radius, 1.0 / np.sqrt(k * target.mu), np.sqrt(3.0) / k
                )


def test_the_step_tells_nothing_of_the_records():
    steps = set()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = 0.1 * seed * rng.standard_normal((50, 3)).clip(-1, 1)
        labels = np.where(rng.random(50) < 0.5, 1.0, -1.0)
        facts = {"loss": L.Logistic(), "domain": D.Ball(2.0), "row_bound": 1.0}
        problem = dps.Problem(rows, labels, **facts)
        steps.add(PublicGrid.for_target(dps.Gibbs(problem, k=1e3, mu=0.1)).step)
    assert len(steps) == 1


@pytest.mark.parametrize("domain", BODIES[:-1], ids=repr)
def test_the_room_is_in_the_domain(domain):
    radius, inner = hull_inner_radius(domain, 3), domain.interior_point(3)
    rng = np.random.default_rng(3)
    around = rng.standard_normal((100, 3))
    around *= (radius * (1.0 - 1e-9)) / np.linalg.norm(around, axis=1)[:, None]
    assert radius > 0.0
    assert all(domain.contains(inner + each) for each in around)
