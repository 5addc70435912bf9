"""Adaptive rejection: the hull without randomness, laws by quadrature, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from dpsample.core.jit import kernel
from dpsample.core.pauses import new_control
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK
from dpsample.samplers.univariate import line
from tests.support.exact_draws import interpreted
from tests.support.statistics import assert_law, cdf_from_log_density, rejected
from tests.support.tiers import one_in

INF = np.inf
NUM_DRAWS = 20_000


def evaluate(numbers, t):
    """Energy (curvature, center, weight, kink, slope, constant, fourth power)."""
    away, off = t - numbers[1], t - numbers[3]
    value = 0.5 * numbers[0] * away * away + numbers[2] * abs(off)
    value += numbers[4] * t + numbers[5] + numbers[6] * t**4
    side = 1.0 if off > 0.0 else -1.0
    slope = numbers[0] * away + numbers[2] * side + numbers[4]
    return value, slope + 4.0 * numbers[6] * t**3


draw = line.compile_draw(evaluate, cached=False)


@kernel(cached=False)
def many(numbers, rng, low, high, guess, width, control, out):
    hull, paused = np.empty(line.HULL_SHAPE), np.zeros(1, line.PausedDraw)
    total = 0
    for i in range(out.shape[0]):
        code, out[i], value, count = draw(
            numbers, rng, hull, paused[0], low, high, guess, width, control[0]
        )
        if code != OK or value != evaluate_compiled(numbers, out[i])[0]:
            return -1
        total += count
    return total


evaluate_compiled = kernel(evaluate, cached=False)

# Numbers, interval, guess and width of the first tangents.
CASES = {
    "Gaussian": ((1.0, 0.3, 0, 0, 0, 0, 0), (-INF, INF), (0.3, 1.3)),
    "bad guess far away": ((1.0, 0.3, 0, 0, 0, 0, 0), (-INF, INF), (1e3, 0.01)),
    "useless guess": ((1.0, 0.3, 0, 0, 0, 0, 0), (-INF, 2.0), (np.nan, 0.0)),
    "kink": ((1.0, 1.0, 2.0, 0.5, 0, 0, 0), (-INF, INF), (0.0, 1.0)),
    "kink on a chord": ((0.0, 0, 3.0, 0.2, 1.0, 0, 0), (-1.0, 0.7), (0.0, 1.0)),
    "flat": ((0.0, 0, 0, 0, 0, 0, 0), (-1.0, 0.5), (0.0, 3.0)),
    "steep": ((0.0, 0, 0, 0, 1e6, 0, 0), (0.0, 2.0), (0.0, 0.1)),
    "steep, falling": ((0.0, 0, 0, 0, -1e6, 0, 0), (-3.0, 2.0), (0.0, 0.1)),
    "mode below the chord": ((1.0, -9.0, 0, 0, 0, 0, 0), (0.0, INF), (-9.0, 1.3)),
    "mode above the chord": ((4.0, 9.0, 0, 0, 0, 0, 0), (-INF, 2.0), (9.0, 0.6)),
    "huge energy": ((2.0, 0.1, 0.5, 0.0, 0, 1e6, 0), (-4.0, 3.0), (0.0, 1.0)),
    "fourth power": ((0.0, 0, 0, 0, 2.0, 0, 50.0), (-INF, INF), (0.0, 1.0)),
    "narrow peak": ((1e8, 0.25, 0, 0, 0, 0, 0), (-1.0, 1.0), (-0.9, 0.5)),
}


def numbers_of(name):
    numbers, interval, start = CASES[name]
    return np.array(numbers, dtype=float), interval, start


def grid_of(numbers, interval):
    """Fine grid that holds all but e^-40 of the mass."""
    points = np.linspace(max(interval[0], -1e2), min(interval[1], 1e2), 2_000_001)
    for _ in range(2):
        values = energies(numbers, points)
        kept = points[values < values.min() + 45.0]
        step = points[1] - points[0]
        low, high = max(kept[0] - step, interval[0]), min(kept[-1] + step, interval[1])
        points = np.linspace(low, high, 200_001)
    return points


def energies(numbers, t):
    """Energy at every point of an array."""
    away, off = t - numbers[1], np.abs(t - numbers[3])
    value = 0.5 * numbers[0] * away**2 + numbers[2] * off
    return value + numbers[4] * t + numbers[5] + numbers[6] * t**4


@one_in(15)
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_law_of_the_quadrature(name):
    numbers, interval, start = numbers_of(name)
    out = np.empty(NUM_DRAWS)
    made = many(
        numbers, np.random.default_rng(1), *interval, *start, new_control(), out
    )
    assert made > 0
    assert out.min() >= interval[0] and out.max() <= interval[1]
    points = grid_of(numbers, interval)

    def law(mistake):
        # Another temperature, and a tilt that shows where the energy is flat.
        tilt = mistake * (points - points[0]) / (points[-1] - points[0])
        factor = 1.0 - 0.2 * mistake
        return cdf_from_log_density(
            lambda t: factor * (numbers[5] - energies(numbers, t)) + tilt, points
        )

    assert_law(out, law(0.0))
    with rejected():
        assert_law(out, law(2.0))


def test_few_evaluations_from_a_good_guess():
    numbers, interval, start = numbers_of("Gaussian")
    out = np.empty(NUM_DRAWS)
    made = many(
        numbers, np.random.default_rng(2), *interval, *start, new_control(), out
    )
    assert made < 3.6 * NUM_DRAWS


def hull_with(numbers, points):
    hull, count = np.empty(line.HULL_SHAPE), 0
    for t in points:
        count = line.insert(hull, count, t, *evaluate(numbers, t))
    return hull, count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Gaussian", "kink", "fourth power", "huge energy"])
def test_hull_is_below_the_energy_and_has_the_masses_of_its_pieces(name):
    numbers, _, _ = numbers_of(name)
    low, high = -2.0, 3.0
    hull, count = hull_with(numbers, [0.4, -1.5, 2.9, 0.4, 1.1, -0.2])
    assert count == 5  # one point came twice
    total = line.fill_masses(hull, count, low, high)
    assert (np.diff(hull[line.HULL.point, :count]) > 0.0).all()
    borders = np.append(hull[line.HULL.border, :count], high)
    assert borders[0] == low and (np.diff(borders) > 0.0).all()

    def piece(t):
        return int(np.searchsorted(borders, t, "right").clip(1, count)) - 1

    def lower(t):
        i = piece(t)
        return hull[line.HULL.value, i] + hull[line.HULL.slope, i] * (
            t - hull[line.HULL.point, i]
        )

    points = np.linspace(low, high, 1001)
    gaps = [evaluate(numbers, t)[0] - lower(t) for t in points]
    assert min(gaps) >= -1e-9
    bottom = min(lower(t) for t in borders)
    masses = [
        quad(lambda t: np.exp(bottom - lower(t)), a + 1e-12, b - 1e-12)[0]
        for a, b in itertools.pairwise(borders)
    ]
    np.testing.assert_allclose(
        hull[line.HULL.mass, :count], np.cumsum(masses), rtol=1e-6
    )
    assert total == hull[line.HULL.mass, count - 1]


def test_tangents_above_the_energy_are_refused():
    hull, count = hull_with(np.array([1.0, 0, 0, 0, 0, 0, 0]), [-1.0, 1.0])
    assert line.insert(hull, count, 0.0, -2.0, 0.0) == -1  # far below both tangents
    assert line.insert(hull, count, 0.0, 0.0, 3.0) == -1  # its tangent is above at 1
    assert line.insert(hull, count, 0.0, 0.0, 0.0) == 3
    # Rounding errors of a large energy are no violation.
    hull, count = hull_with(np.array([1.0, 0, 0, 0, 0, 1e9, 0]), [-1.0, 1.0])
    assert line.insert(hull, count, 0.0, 1e9 - 0.5 - 1e-5, 0.0) == 3


@pytest.mark.slow
def test_energies_that_are_not_convex_or_not_numbers_are_refused():
    memory = np.empty(line.HULL_SHAPE), np.zeros(1, line.PausedDraw)[0]
    rng, interval = np.random.default_rng(3), (-2.0, 2.0, 0.0, 0.5)
    bumpy = np.array([-2.0, 0.3, 0, 0, 0, 0, 1.0])
    codes = {
        draw(bumpy, rng, *memory, *interval, new_control()[0])[0] for _ in range(20)
    }
    assert BOUND_VIOLATED in codes
    failed = np.array([np.nan, 0, 0, 0, 0, 0, 0])
    assert draw(failed, rng, *memory, *interval, new_control()[0])[0] == FUNCTION_FAILED
    improper = np.zeros(7)
    assert draw(improper, rng, *memory, -INF, 2.0, 0.0, 0.5, new_control()[0])[0] != OK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kink", "steep", "useless guess"])
def test_compiled_equals_interpreted(name):
    numbers, interval, start = numbers_of(name)
    memory = np.empty(line.HULL_SHAPE), np.zeros(1, line.PausedDraw)[0]
    results = [
        f(
            numbers,
            np.random.default_rng(5),
            *memory,
            *interval,
            *start,
            new_control()[0],
        )
        for f in (draw, interpreted(draw))
    ]
    np.testing.assert_allclose(*results, rtol=1e-12)
