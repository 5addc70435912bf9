"""Mirror steps that leave an l_p ball, s > p: optimality, ends, a generic solver."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dpsample.domains import WholeSpace
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.advance import log_root, mirror_step
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.steps import MirrorStep, geometry
from tests.support.descents import feasible_set
from tests.support.mirror_cases import bregman, potential, potential_gradient
from tests.support.tiers import one_in, slow

CASES = [(1.0, 2), (1.0, 30), (1.05, 30), (1.05, 300), (1.1, 3), (1.2, 10), (1.5, 5)]
RADIUS = 0.7


def projection(theta, p):
    """Compiled argmin of kappa/2 |w|_s^2 - <theta, w> over the ball; and s, kappa."""
    space = geometry(p, len(theta), "gaussian")
    assert space.s > p
    memory = new_memory(len(theta))
    memory.gradient[:] = -theta
    step = MirrorStep(
        1.0, exponent=space.s, kappa=space.kappa, radius=RADIUS, ball_exponent=p
    )
    numbers, rng = step.numbers(len(theta)), np.random.default_rng(0)
    feasible = feasible_set(WholeSpace(), len(theta))
    mirror_step(feasible, numbers, 0, 1, memory, rng)
    return memory.theta.copy(), space.s, space.kappa


def duals(p, dim, far):
    """Dual of a point whose l_p norm is ``far`` radii; with a zero and a tie."""
    space = geometry(p, dim, "gaussian")
    w = np.random.default_rng(1).standard_normal(dim)
    w[:2] = (0.3, -0.3)
    if dim > 4:
        w[3] = 0.0
    return potential_gradient(w * far * RADIUS / norm(w, p), space.s, space.kappa)


@one_in(6)
@pytest.mark.parametrize("far", [1.0 + 1e-9, 1.3, 20.0, 1e5])
@pytest.mark.parametrize(("p", "dim"), CASES)
def test_projections_satisfy_the_conditions_of_karush_kuhn_and_tucker(p, dim, far):
    theta = duals(p, dim, far)
    w, s, kappa = projection(theta, p)
    assert norm(w, p) == pytest.approx(RADIUS, rel=1e-12)
    left = theta - potential_gradient(w, s, kappa)
    size = np.abs(theta).max()
    on = w != 0.0
    normal = np.abs(w[on]) ** (p - 1.0) * np.sign(w[on])
    multiplier = (left[on] @ normal) / (normal @ normal)
    assert multiplier > 0.0
    assert np.abs(left[on] - multiplier * normal).max() < 1e-12 * size
    assert (np.abs(left[~on]) <= (multiplier if p == 1.0 else 0.0)).all()
    wrong = theta - potential_gradient(0.99 * w, s, kappa)
    assert np.abs(wrong[on] - multiplier * normal).max() > 1e-9 * size


@pytest.mark.parametrize(("p", "dim"), [(1.0, 6), (1.1, 3), slow(1.2, 10)])
def test_a_generic_solver_finds_no_better_point(p, dim):
    theta = duals(p, dim, 2.0)
    w, s, kappa = projection(theta, p)

    def objective(v):
        return potential(v, s, kappa) - theta @ v

    found = minimize(
        objective,
        0.5 * w + 0.01,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: RADIUS - norm(v, p)},
        options={"ftol": 1e-12, "maxiter": 2000},
    )
    inside = found.x * min(1.0, RADIUS / norm(found.x, p))
    assert objective(w) <= objective(inside) + 1e-10
    assert objective(inside) - objective(w) < 1e-2 * abs(objective(w))
    radial = potential_gradient(theta, s / (s - 1.0), 1.0 / kappa)
    radial *= RADIUS / norm(radial, p)
    assert objective(radial) > objective(w) + 1e-6  # what scaling would miss


def test_points_of_the_ball_stay_and_steps_do_not_leave_it():
    rng = np.random.default_rng(2)
    for p, dim in CASES:
        inside = rng.standard_normal(dim)
        inside *= 0.99 * RADIUS / norm(inside, p)
        space = geometry(p, dim, "gaussian")
        theta = potential_gradient(inside, space.s, space.kappa)
        np.testing.assert_allclose(projection(theta, p)[0], inside, rtol=1e-12)
        w, s, kappa = projection(duals(p, dim, 5.0), p)
        # Pythagoras of Bregman projections, which the risk bound rests on.
        outside = potential_gradient(duals(p, dim, 5.0), s / (s - 1.0), 1.0 / kappa)
        whole = bregman(inside, outside, s, kappa)
        parts = bregman(inside, w, s, kappa) + bregman(w, outside, s, kappa)
        assert whole >= parts * (1.0 - 1e-12)


def test_projections_scale_with_the_ball_to_the_ends_of_the_number_range():
    theta = duals(1.1, 3, 3.0)
    w, _, _ = projection(theta, 1.1)
    huge, _, _ = projection(1e200 * theta, 1.1)
    assert np.isfinite(huge).all() and norm(huge, 1.1) == pytest.approx(RADIUS)
    assert (np.sign(w) == np.sign(theta)).all()
    assert not projection(np.zeros(3), 1.1)[0].any()


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (0.3, 0.0), (0.3, 1e-3), (1.0, 0.5)])
def test_the_root_of_two_powers(a, b):
    for c in (-300.0, -2.0, 1e-9, 0.1, 5.0, 300.0):
        x = log_root(a, b, c)
        if b == 0.0 and c <= 0.0:
            assert x == -np.inf
        else:
            assert np.logaddexp(a * x, b * x) == pytest.approx(c, rel=1e-12, abs=1e-15)


def test_malformed_balls_are_refused():
    for wrong in (0.9, 1.6, np.nan):
        with pytest.raises(ValueError, match="ball_exponent must be"):
            MirrorStep(1.0, exponent=1.5, ball_exponent=wrong)
