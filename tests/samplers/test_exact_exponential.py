"""One-dimensional exponentials on intervals: mass, moments and draws."""

import numpy as np
import pytest
from scipy.integrate import quad

from dpsample.samplers.exact import grid_cells
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

INF = np.inf
# Slope and interval.
DENSITIES = [
    (2.0, -1.0, 3.0),
    (-2.0, -1.0, 3.0),
    (1e-13, 5.0, 6.0),
    (-1e-7, 5.0, 6.0),
    (0.0, -2.0, 1.0),
    (400.0, 0.0, 0.5),
    (0.7, 2.0, INF),
    (-0.7, -INF, 2.0),
]


@one_in(2)
@pytest.mark.parametrize(("slope", "low", "high"), DENSITIES)
def test_exponential_densities(slope, low, high):
    def density(x):
        return np.exp(-slope * x)

    mass = quad(density, low, high, epsabs=0.0)[0]
    log_mass = grid_cells.log_mass(slope, low, high)
    assert log_mass == pytest.approx(np.log(mass), rel=1e-7, abs=1e-7)
    mean, variance = grid_cells.moments(slope, low, high)
    first = quad(lambda x: x * density(x), low, high)[0] / mass
    second = quad(lambda x: (x - first) ** 2 * density(x), low, high)[0] / mass
    assert mean == pytest.approx(first, rel=2e-3)
    assert variance == pytest.approx(second, rel=2e-3)
    rng = np.random.default_rng(2)
    drawn = np.array(
        [grid_cells.draw_along(rng, slope, low, high) for _ in range(4000)]
    )
    assert (drawn >= low).all()
    assert (drawn <= high).all()

    def cdf(x, slope=slope):
        log_part = [grid_cells.log_mass(slope, low, max(v, low)) for v in x]
        return np.exp(np.array(log_part) - grid_cells.log_mass(slope, low, high))

    if low == -INF:
        low, high, slope, drawn = -high, INF, -slope, -drawn
    assert_law(drawn, lambda x: cdf(x, slope))
    with rejected():
        assert_law(drawn, lambda x: cdf(x, 1.5 * slope + np.copysign(0.7, slope)))


@pytest.mark.parametrize("edge", [(0.5, -INF, 1.0), (-0.5, 1.0, INF), (0.0, 0.0, INF)])
def test_a_density_without_mass_bound_is_seen(edge):
    assert grid_cells.log_mass(*edge) == INF
