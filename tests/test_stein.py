"""Draws of every sampler satisfy Stein's identities, up to the boundary."""

import numpy as np
import pytest

from tests import sampler_mutants as mutants
from tests.sampler_grid import (
    TARGETS,
    exact_starts,
    fast_draws,
    grid_case,
    prepared_cell,
    rows_by_tier,
    stationary,
    supported_losses,
)
from tests.stein import bump, gradient, stein_law, stein_margin


@pytest.mark.parametrize(("domain", "loss"), TARGETS)
def test_the_identities_hold_under_quadrature(domain, loss):
    for mean, variance, _ in stein_law(grid_case(domain, loss)):
        assert abs(mean) < 0.02 * np.sqrt(variance)


@pytest.mark.parametrize(("domain", "loss"), TARGETS)
def test_bumps_and_slopes_are_right(domain, loss):
    """Differences in random directions, against the target's own gradient too."""
    case = grid_case(domain, loss)
    points = exact_starts(domain, loss)[:200]
    along = np.random.default_rng(1).normal(size=points.shape) * 1e-6
    along -= along.mean(-1, keepdims=True) if domain == "simplex" else 0.0
    for value, slope in (
        (lambda x: bump(case, x)[0], bump(case, points)[1]),
        (case.energy, gradient(case, points)),
    ):
        change = value(points + along) - value(points - along)
        error = np.abs(0.5 * change - (slope * along).sum(-1))
        # A kink between the two ends spoils a few differences.
        assert np.mean(error < 1e-9 + 1e-5 * np.abs(change)) > 0.97
    assert (bump(case, points)[0] >= 0.0).all()
    own = np.array([case.target.gradient(x) for x in points])
    np.testing.assert_allclose(own, gradient(case, points), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "domain", "losses"), rows_by_tier())
def test_draws_satisfy_steins_identities(name, domain, losses):
    for loss in supported_losses(name, domain, losses):
        _, draws = stationary(name, domain, loss)
        case = grid_case(domain, loss)
        for turn in range(draws.shape[1]):
            assert stein_margin(case, draws[:, turn]) < 1.0, (loss, turn)


# Planted bugs.


@pytest.mark.parametrize(
    ("name", "domain", "loss", "step", "change"),
    [
        ("RandomWalk", "box", "hinge", mutants.clamped, {}),
        ("RandomWalk", "simplex", "logistic", None, {"k": 30.0}),
        ("MALA", "whole space", "logistic", None, {"k": 12.0}),
        ("BallWalk", "ball", "absolute", None, {"mu": 0.0}),
        ("TiltedGibbs", "schatten ball", "hinge", None, {"k": 25.0}),
    ],
)
def test_a_wrong_law_breaks_an_identity(name, domain, loss, step, change):
    case, prepared = grid_case(domain, loss), prepared_cell(name, domain, loss)
    draws = fast_draws(
        prepared,
        exact_starts(domain, loss),
        np.random.default_rng(31),
        60,
        run=None if step is None else mutants.run_of(step),
        numbers=case.target.numbers._replace(**change),
    )
    assert stein_margin(case, draws[:, -1]) > 1.0
