"""What the head-to-head study claims of a peer's privacy, and of minima."""

import math

import numpy as np
import pytest
from scipy.special import expit

import dpsample as dps
from dpsample.datasets import logistic
from studies import _private_fits as fits
from studies import _real_records as records
from tests.support.tiers import one_in

FAR, CROWD = 200.0, 1e7


def told(stated, ridge):
    """e' and the added ridge n Delta of the algorithm, told to spend ``stated``."""
    left = stated - 2.0 * math.log1p(0.25 / ridge)
    if left > 0.0:
        return left, 0.0
    return 0.5 * stated, 0.25 / math.expm1(0.25 * stated) - ridge


def log_density(theta, rows, weights, noise, ridge):
    """Of the minimizer, but for a constant; records have weights, labels are 1."""
    margins = rows @ theta
    slope = -(weights * expit(-margins)) @ rows + ridge * theta
    curvature = weights * expit(margins) * expit(-margins)
    jacobian = (rows.T * curvature) @ rows + ridge * np.eye(len(theta))
    return -0.5 * noise * np.linalg.norm(slope) + np.linalg.slogdet(jacobian)[1]


def largest_loss(stated, ridge):
    """Largest privacy loss found on neighbors in the plane."""
    noise, added = told(stated, ridge)
    ridge += added
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(300):
        angle = rng.uniform(-math.pi, math.pi, 3)
        rows = np.column_stack([np.cos(angle), np.sin(angle)])
        crowd = rng.choice([0.0, 1.0, 100.0])
        theta = rng.choice([0.1, 1.0, 10.0]) * rng.normal(size=2)
        own, other = (
            log_density(theta, rows, np.array(w), noise, ridge)
            for w in ((1.0, 0.0, crowd), (0.0, 1.0, crowd))
        )
        worst = max(worst, abs(own - other))
    # A record far on the wrong side turns almost about, and a crowd sets b's direction.
    tilt = 0.05
    rows = np.array(
        [[tilt, math.sqrt(1.0 - tilt**2)], [tilt, -math.sqrt(1.0 - tilt**2)], [0, 1.0]]
    )
    theta = np.array([-FAR, 0.0])
    own, other = (
        log_density(theta, rows, np.array(w), noise, ridge)
        for w in ((1.0, 0.0, CROWD), (0.0, 1.0, CROWD))
    )
    return max(worst, abs(own - other)), noise


@one_in(3)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
def test_the_peer_spends_the_epsilon_of_its_cell_and_no_more(epsilon, ridge):
    stated = fits.epsilon_to_pass(epsilon, ridge)
    noise, added = told(stated, ridge)
    assert noise + math.log1p(0.25 / (ridge + added)) == pytest.approx(epsilon)
    found, noise = largest_loss(stated, ridge)
    assert 0.99 * noise < found <= epsilon


def test_a_peer_told_twice_as_much_is_caught():
    assert largest_loss(2.0 * fits.epsilon_to_pass(1.0, 30.0), 30.0)[0] > 1.5


def test_the_certified_minimum_is_below_random_points():
    data = logistic(500, 5, seed=1, signal=30.0)
    rows, y = data.features, data.response
    problem = records.problem(rows, y)
    best = dps.minimizer(problem)
    assert best.gap <= 1e-8
    points = np.random.default_rng(2).normal(size=(200, 5))
    points *= records.RADIUS / np.linalg.norm(points, axis=1)[:, None]
    near = [records.on_ball(best.theta + 0.01 * point) for point in points]
    assert min(best.excess(problem.risk(point)) for point in (*points, *near)) >= 0.0
    with pytest.raises(ValueError, match="value must be >="):
        best.excess(best.value - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [fits.release, fits.objective, fits.output])
def test_more_epsilon_never_loosens_a_bound(plan):
    bounds = [plan(1000, 11, epsilon).bound for epsilon in (0.1, 0.3, 1.0, 3.0)]
    assert bounds == sorted(bounds, reverse=True)
