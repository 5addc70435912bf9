"""Stein's identities hold under quadrature, up to the boundary.

Draws are held against them in test_sampler_invariance.py.
"""

import numpy as np
import pytest

from tests.support.sampler_grid import TARGETS, exact_starts, grid_case
from tests.support.stein import bump, gradient, stein_law
from tests.support.tiers import one_in


@one_in(8)
@pytest.mark.parametrize(("domain", "loss"), TARGETS)
def test_the_identities_hold_under_quadrature(domain, loss):
    for mean, variance, _ in stein_law(grid_case(domain, loss)):
        assert abs(mean) < 0.02 * np.sqrt(variance)


@one_in(12)
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
