"""Piecewise quadratic energies: masses by quadrature, draws by their closed laws."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dpsample.core.jit import kernel
from dpsample.numerics.heaps import sort_pairs
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.univariate import log_concave
from tests.support.exact_draws import interpreted
from tests.support.statistics import assert_law, cdf_from_log_density, rejected
from tests.support.tiers import one_in

INF = np.inf
NUM_DRAWS = 20_000


@kernel
def _quadratics(rng, slope, curvature, low, high, out):
    for i in range(out.shape[0]):
        out[i] = log_concave.draw_quadratic(rng, slope, curvature, low, high)


@kernel
def _piecewise(rng, slope, curvature, low, high, kinks, rises, logs, out):
    for i in range(out.shape[0]):
        code, out[i] = log_concave.draw_piecewise(
            rng, slope, curvature, low, high, kinks, rises, kinks.shape[0], logs
        )
        if code != OK:
            return code
    return OK


def quadratics(case, seed):
    out = np.empty(NUM_DRAWS)
    _quadratics(np.random.default_rng(seed), *map(float, case), out)
    return out


# Slope, curvature and interval: every branch, and the limits between them.
QUADRATICS = [
    (0.0, 0.0, -1.0, 2.0),
    (3.0, 0.0, -1.0, 2.0),
    (-3.0, 0.0, -1.0, 2.0),
    (-1e6, 0.0, -1.0, 2.0),
    (1e-9, 0.0, 0.0, 1.0),
    (0.0, 1e-20, -1.0, 1.0),
    (1.0, 1e-12, 0.0, 1.0),
    (0.5, 1.0, -INF, INF),
    (5.0, 1.0, -1.0, INF),
    (-5.0, 4.0, -INF, 0.5),
    (0.1, 1.0, -0.2, 0.3),
    (0.8, 1.0, -0.4, 0.5),
    (100.0, 1.0, -1.0, 1.0),
    (0.0, 1e8, -1.0, 1.0),
]


def grid_for(draws, low, high):
    spread = np.ptp(draws)
    points = draws.min() - 0.5 * spread, draws.max() + 0.5 * spread
    return np.linspace(max(points[0], low), min(points[1], high), 200_001)


@pytest.mark.parametrize("case", QUADRATICS)
def test_quadratic_draws_have_the_law_of_the_quadrature(case):
    slope, curvature, low, high = case
    draws = quadratics(case, seed=11)
    assert draws.min() >= low and draws.max() <= high
    grid = grid_for(draws, low, high)
    share = (grid - grid[0]) / (grid[-1] - grid[0])

    def law(tilt):
        return cdf_from_log_density(
            lambda t: -slope * t - 0.5 * curvature * t**2 + tilt * share, grid
        )

    assert_law(draws, law(0.0))
    with rejected():
        assert_law(draws, law(1.5))


@pytest.mark.slow
def test_impossible_quadratics_give_nan_and_points_themselves():
    rng = np.random.default_rng(0)
    assert log_concave.draw_quadratic(rng, 1.0, 2.0, 0.25, 0.25) == 0.25
    for bad in [(0.0, 0.0, -INF, 1.0), (np.nan, 1.0, 0.0, 1.0)]:
        assert np.isnan(log_concave.draw_quadratic(rng, *bad))


@one_in(9)
@pytest.mark.parametrize(
    "slope", [0.0, 1e-8, 0.7, 19.0, 300.0, 1e7, -1e-3, -2.0, -40.0]
)
@pytest.mark.parametrize("curvature", [1e-12, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("width", [1e-9, 0.01, 0.8, 6.0, INF])
def test_masses_agree_with_high_precision(slope, curvature, width):
    if slope < 0.0 and curvature < 1e-3 and width == INF:
        return  # a mass of e^(1e12), beyond the oracle as well
    with mpmath.workdps(60):
        g, q = mpmath.mpf(slope), mpmath.mpf(curvature)
        root = mpmath.sqrt(q)
        ends = [g / root, mpmath.inf if width == INF else g / root + root * width]
        tails = [mpmath.erfc(x / mpmath.sqrt(2)) for x in ends]
        exact = mpmath.log(mpmath.sqrt(mpmath.pi / 2) / root * (tails[0] - tails[1]))
        exact = float(exact + g * g / (2 * q))
    found = log_concave.log_mass(slope, curvature, width)
    assert abs(found - exact) <= 1e-8 + 1e-12 * abs(exact)


def test_masses_without_curvature():
    for slope, width in [(0.0, 2.0), (3.0, 2.0), (-3.0, 2.0), (3.0, INF)]:
        exact = width if slope == 0.0 else -np.expm1(-slope * width) / slope
        assert abs(log_concave.log_mass(slope, 0.0, width) - np.log(exact)) < 1e-12


def test_kinks_are_sorted_with_their_rises():
    rng = np.random.default_rng(1)
    for count in (0, 1, 2, 3, 10, 101):
        keys, rises = rng.normal(size=count + 2), rng.normal(size=count + 2)
        order = np.argsort(keys[:count])
        expected = keys[:count][order], rises[:count][order]
        rest = keys[count:].copy()
        sort_pairs(keys, rises, count)
        np.testing.assert_array_equal(keys[:count], expected[0])
        np.testing.assert_array_equal(rises[:count], expected[1])
        np.testing.assert_array_equal(keys[count:], rest)


# First slope, curvature, interval, kinks, rises.
PIECEWISE = {
    "no kink": (0.5, 1.0, (-INF, INF), (), ()),
    "one kink": (-1.0, 0.0, (-1.0, 2.0), (0.4,), (3.0,)),
    "line": (-4.0, 1.0, (-INF, INF), (-1.0, 0.0, 0.2, 3.0), (1.0, 2.0, 0.5, 4.0)),
    "half-line": (-4.0, 0.5, (-1.0, INF), (-0.9, 0.0, 0.2), (1.0, 2.0, 5.0)),
    "other half-line": (-4.0, 0.5, (-INF, 1.0), (-0.9, 0.0, 0.2), (1.0, 2.0, 5.0)),
    "chord": (-1e3, 0.1, (-0.5, 0.5), (-0.2, 0.1, 0.11), (600.0, 500.0, 700.0)),
    "equal kinks": (-2.0, 0.0, (-1.0, 1.0), (0.1, 0.1, 0.1), (1.0, 2.0, 3.0)),
}


def log_density(case, t, mistake=""):
    slope, curvature, _, kinks, rises = case
    value = slope * t + 0.5 * curvature * t**2
    for kink, rise in zip(kinks, rises, strict=True):
        value += rise * np.maximum(t - kink, 0.0) * (mistake != "no kinks")
    return -value * (0.7 if mistake == "temperature" else 1.0)


@pytest.mark.parametrize("name", PIECEWISE)
def test_piecewise_draws_have_the_law_of_the_quadrature(name):
    case = PIECEWISE[name]
    slope, curvature, (low, high), kinks, rises = case
    kinks, rises = np.array(kinks, dtype=float), np.array(rises, dtype=float)
    logs, draws = np.empty(len(kinks) + 1), np.empty(NUM_DRAWS)
    numbers = float(slope), float(curvature), float(low), float(high)
    rng = np.random.default_rng(21)
    assert _piecewise(rng, *numbers, kinks, rises, logs, draws) == OK
    assert draws.min() >= low and draws.max() <= high
    grid = grid_for(draws, low, high)
    assert_law(draws, cdf_from_log_density(lambda t: log_density(case, t), grid))
    with rejected():
        mistake = "no kinks" if name == "one kink" else "temperature"
        wrong = cdf_from_log_density(lambda t: log_density(case, t, mistake), grid)
        assert_law(draws, wrong)
    # The masses of the pieces, without randomness.
    borders = np.concatenate(([max(low, grid[0])], kinks, [min(high, grid[-1])]))
    density = np.exp(log_density(case, grid) - log_density(case, grid).max())
    pieces = np.searchsorted(kinks, grid, "right")
    masses = np.bincount(pieces, weights=density, minlength=len(borders) - 1)
    found = np.exp(logs - logs.max())
    np.testing.assert_allclose(
        found / found.sum(), masses / masses.sum(), atol=2e-4, rtol=2e-3
    )


@pytest.mark.slow
def test_an_improper_energy_fails():
    empty = np.empty(0)
    code, _ = log_concave.draw_piecewise(
        np.random.default_rng(0), 1.0, 0.0, -INF, 1.0, empty, empty, 0, np.empty(1)
    )
    assert code == FUNCTION_FAILED


@pytest.mark.slow
@pytest.mark.parametrize("name", ["line", "chord"])
def test_compiled_equals_interpreted(name):
    slope, curvature, (low, high), kinks, rises = PIECEWISE[name]
    kinks, rises = np.array(kinks), np.array(rises)
    results = [
        f(
            np.random.default_rng(3),
            slope,
            curvature,
            low,
            high,
            kinks,
            rises,
            len(kinks),
            np.empty(len(kinks) + 1),
        )
        for f in (log_concave.draw_piecewise, interpreted(log_concave.draw_piecewise))
    ]
    np.testing.assert_allclose(*results, rtol=1e-10)
