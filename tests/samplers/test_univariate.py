"""Exact one-dimensional draws: laws by quadrature, envelopes by enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import expon, norm

from dpsample.core.jit import kernel
from dpsample.samplers.univariate import log_concave
from dpsample.samplers.univariate.log_concave import (
    draw_quadratic,
    energy,
    new_envelope,
)
from tests.support.exact_draws import interpreted, truncated_normal_cdf
from tests.support.mutants import factor_log_density
from tests.support.statistics import (
    assert_frequency,
    assert_law,
    cdf_from_log_density,
    rejected,
)
from tests.support.tiers import one_in

INF = np.inf
NUM_DRAWS = 20_000


@kernel
def _truncated_normals(rng, lower, upper, out):
    for i in range(out.shape[0]):
        out[i] = log_concave.truncated_normal(rng, lower, upper)


@kernel
def draw_factor(rng, b, q, c, s, v, h, lower, upper):
    """Draw exactly from e^{-f} on [lower, upper], as callers of the envelope do."""
    if not (lower <= upper and h > 0.0 and b >= 0.0 and c >= 0.0):
        return np.nan
    if not (q >= 1.0 and s >= 1.0):
        return np.nan
    sign = -1.0 if v < 0.0 else 1.0
    v, low, high = sign * v, lower, upper
    if sign < 0.0:
        low, high = -upper, -lower
    if b == 0.0 and c == 0.0 and h < np.inf:
        scale = math.sqrt(h)
        t = v + scale * log_concave.truncated_normal(
            rng, (low - v) / scale, (high - v) / scale
        )
        return sign * min(max(t, low), high)
    envelope = log_concave.new_envelope(b, q, c, s, v, h, low, high)
    return sign * log_concave.draw_from_envelope(
        rng, b, q, c, s, v, h, low, high, envelope
    )


@kernel
def _factors(rng, b, q, c, s, v, h, lower, upper, out):
    for i in range(out.shape[0]):
        out[i] = draw_factor(rng, b, q, c, s, v, h, lower, upper)


def truncated_normals(lower: float, upper: float, seed: int) -> np.ndarray:
    out = np.empty(NUM_DRAWS)
    _truncated_normals(np.random.default_rng(seed), float(lower), float(upper), out)
    return out


def factors(case: tuple, seed: int) -> np.ndarray:
    out = np.empty(NUM_DRAWS)
    _factors(np.random.default_rng(seed), *map(float, case), out)
    return out


INTERVALS = [
    (-INF, INF),
    (0.0, INF),
    (0.3, INF),
    (0.59, 4.0),
    (0.6, 2.0),
    (3.0, INF),
    (-INF, -7.0),
    (30.0, INF),
    (-40.0, -39.9),
    (-1.0, 1.0),
    (-0.1, 3.0),
    (0.0, 2.5),
    (-INF, 2.0),
    (-2.0, -0.2),
]


@pytest.mark.parametrize("interval", INTERVALS)
def test_truncated_normal_has_the_closed_form_law(interval):
    draws = truncated_normals(*interval, seed=101)
    assert draws.min() >= interval[0] and draws.max() <= interval[1]
    cdf = truncated_normal_cdf(*interval)
    assert_law(draws, cdf)
    with rejected():
        scale = np.sqrt(draws.var())
        assert_law(draws + 0.1 * scale, cdf)


@pytest.mark.slow
def test_a_mean_far_beyond_an_end_leaves_factors_their_law():
    """Planted: the rises of f are lost in the square of the distance."""
    far = 1e9
    draws = factors((1.0, 1.5, 0.0, 2.0, 1.0 + far, 1.0, -1.0, 1.0), seed=104)
    assert_law(far * (1.0 - draws), expon.cdf)
    with rejected():
        assert_law(0.9 * far * (1.0 - draws), expon.cdf)


@pytest.mark.parametrize("far", [1e9, 2e10])
def test_a_mode_far_from_the_mean_leaves_factors_their_law(far):
    """Planted: only the parabola's rise was none of differences of large numbers."""
    draws = factors((25.0, 2.0, 0.0, 1.0, far, 1.0, -INF, INF), seed=105)
    assert_law((draws - far / 51.0) * math.sqrt(51.0), norm.cdf)


def test_far_tail_is_exponential_to_first_order_and_second():
    draws = 1e6 * (truncated_normals(1e6, INF, seed=102) - 1e6)
    # Units lose 1e6 * 1e-10 = 1e-4 of resolution, far below the bound.
    assert_law(draws, lambda x: -np.expm1(-x))
    with rejected():
        assert_law(draws, lambda x: -np.expm1(-1.1 * x))


def test_tiny_interval_is_uniform():
    draws = (truncated_normals(5.0, 5.0 + 1e-9, seed=103) - 5.0) / 1e-9
    assert_law(draws, lambda x: np.clip(x, 0.0, 1.0))
    with rejected():
        assert_law(draws**1.1, lambda x: np.clip(x, 0.0, 1.0))


def test_wrong_half_line_is_rejected():
    with rejected():
        assert_law(truncated_normals(0.3, INF, seed=104), norm.cdf)


@pytest.mark.slow
def test_truncated_normal_of_a_point_and_of_nothing():
    rng = np.random.default_rng(0)
    assert log_concave.truncated_normal(rng, 2.0, 2.0) == 2.0
    empty = [(1.0, 0.0), (np.nan, 1.0), (0.0, np.nan), (INF, INF), (-INF, -INF)]
    for lower, upper in empty:
        assert np.isnan(log_concave.truncated_normal(rng, lower, upper))


# (b, q, c, s, v, h, lower, upper) and the mistake that the law must expose.
CASES = [
    ((0.0, 1.5, 0.0, 1.0, 1.0, 1.0, -INF, INF), "sign of v"),
    ((0.0, 1.5, 0.0, 1.0, 3.0, 0.5, -INF, 1.0), "h for 2h"),
    ((2.0, 1.5, 0.0, 1.0, 1.0, 1.0, -INF, INF), "no factor b"),
    ((2.0, 1.05, 0.0, 1.0, -1.0, 1.0, -INF, INF), "sign of v"),
    ((2.0, 1.0, 0.0, 1.0, 1.5, 1.0, -INF, INF), "no factor b"),
    ((2.0, 1.0, 0.0, 1.0, 4.0, 1.0, -INF, INF), "h for 2h"),
    ((1.0, 1.3, 3.0, 1.0, 2.0, 1.0, -INF, INF), "no factor c"),
    ((1.0, 2.0, 0.5, 3.0, 2.0, 1.0, -INF, INF), "no factor c"),
    ((1e4, 1.2, 0.0, 1.0, 0.5, 1.0, -INF, INF), "q - 1"),
    ((1.0, 1.2, 0.0, 1.0, 1.0, INF, -INF, INF), "q - 1"),
    ((5.0, 1.5, 2.0, 1.0, 100.0, 1.0, -INF, INF), "h for 2h"),
    ((2.0, 1.2, 0.0, 1.0, 1.0, 1.0, 0.5, INF), "sign of v"),
    ((2.0, 1.2, 1.0, 4.0, 1.0, 1.0, -0.3, 0.2), "sign of v"),
    ((2.0, 1.2, 1.0, 1.0, -3.0, 0.3, 2.0, INF), "sign of v"),
    ((2.0, 1.2, 1.0, 1.0, -3.0, 1.0, -INF, -3.0), "sign of v"),
    ((0.0, 1.2, 1.0, 1.0, -3.0, 1.0, 50.0, 60.0), "sign of v"),
    ((1.0, 1.5, 0.0, 1.0, 1e-8, 1e4, -INF, INF), "no factor b"),
]


def grid_of(draws: np.ndarray, lower: float, upper: float) -> np.ndarray:
    spread = np.ptp(draws)
    low, high = draws.min() - 0.5 * spread, draws.max() + 0.5 * spread
    return np.linspace(max(low, lower), min(high, upper), 100_001)


@one_in(3)
@pytest.mark.parametrize(("case", "mistake"), CASES)
def test_factor_has_the_law_of_the_quadrature(case, mistake):
    draws = factors(case, seed=201)
    lower, upper = case[6:]
    assert draws.min() >= lower and draws.max() <= upper
    grid = grid_of(draws, lower, upper)
    factor = case[:6]
    assert_law(
        draws, cdf_from_log_density(lambda t: factor_log_density(t, *factor), grid)
    )
    with rejected():
        wrong = cdf_from_log_density(
            lambda t: factor_log_density(t, *factor, mistake=mistake), grid
        )
        assert_law(draws, wrong)


def reflected(case: tuple) -> tuple:
    b, q, c, s, v, h, lower, upper = case
    return case if v >= 0.0 else (b, q, c, s, -v, h, -upper, -lower)


@pytest.mark.parametrize("case", [case for case, _ in CASES])
def test_envelope_is_above_the_density_everywhere(case):
    b, q, c, s, v, h, lower, upper = map(float, reflected(case))
    envelope = new_envelope(b, q, c, s, v, h, lower, upper)
    mode, base, left, left_rise, left_slope = envelope[:5]
    right, right_rise, right_slope, gap = envelope[5:]
    span = 6.0 * (left + right)
    points = np.linspace(max(mode - span, lower), min(mode + span, upper), 2001)
    for t in points:
        bound = base - gap
        if t > mode + right:
            assert right_slope > 0.0
            bound = base + right_rise + right_slope * (t - mode - right)
        if t < mode - left:
            assert left_slope > 0.0
            bound = base + left_rise + left_slope * (mode - left - t)
        value = energy(b, q, c, s, v, 1.0 / h, t, mode)[0]
        assert value - bound >= -1e-11 * (1.0 + abs(base))
    # A drop of about 1 is what keeps the acceptance near one half.
    for rise, slope in ((left_rise, left_slope), (right_rise, right_slope)):
        assert rise <= 1.6
        assert slope == 0.0 or rise >= 0.5


@pytest.mark.parametrize("exponent", [50.0, 300.0])
def test_tails_begin_where_their_slope_is(exponent):
    """Also after all steps of the search, which high powers take."""
    b, v, precision = 0.2, 0.03, 1e-3
    factor = (b, exponent, b, exponent, v)
    envelope = new_envelope(*factor, 1.0 / precision, -1e3, 1e3)
    mode, base = envelope[:2]
    for sign, (width, rise, slope) in ((-1.0, envelope[2:5]), (1.0, envelope[5:8])):
        end = mode + sign * width
        value, steepness = energy(*factor, precision, end, mode)
        assert value - base == pytest.approx(rise)
        assert abs(steepness) == pytest.approx(slope)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case, _ in CASES])
def test_moments_are_good_to_two_percent(case):
    b, q, c, s, v, h, lower, upper = map(float, case)
    out = np.empty(5)
    log_concave.fill_moments(b, q, c, s, v, h, lower, upper, out)
    grid = grid_of(factors(case, seed=202), lower, upper)
    logs = factor_log_density(grid, b, q, c, s, v, h)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    first, second = np.abs(grid) ** q, np.abs(grid) ** s
    products = (first, second, first * first, first * second, second * second)
    exact = [(weights * product).sum() for product in products]
    np.testing.assert_allclose(out, exact, rtol=0.02)


@pytest.mark.slow
def test_nan_and_empty_intervals_give_nan():
    rng = np.random.default_rng(0)
    good = (1.0, 1.5, 1.0, 1.0, 1.0, 1.0, -1.0, 2.0)
    for k in (0, 1, 2, 3, 4, 5, 6, 7):
        bad = good[:k] + (np.nan,) + good[k + 1 :]
        assert np.isnan(draw_factor(rng, *bad)), k
    assert np.isnan(draw_factor(rng, *good[:6], 1.0, 0.0))
    flat = (0.0, 1.5, 0.0, 1.0, 0.0, INF, -INF, INF)
    assert np.isnan(draw_factor(rng, *flat))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case, _ in CASES[:6]])
def test_compiled_equals_interpreted(case):
    arguments = tuple(map(float, case))
    compiled = draw_factor(np.random.default_rng(7), *arguments)
    plain = interpreted(draw_factor)(np.random.default_rng(7), *arguments)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)
    low, high = arguments[6:]
    compiled = log_concave.truncated_normal(np.random.default_rng(8), low, high)
    plain = interpreted(log_concave.truncated_normal)(
        np.random.default_rng(8), low, high
    )
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)


@kernel
def _normals_between(rng, mean, stddev, lower, upper, out):
    for i in range(out.shape[0]):
        out[i] = log_concave.normal_between(rng, mean, stddev, lower, upper)


@kernel
def _rounded_twice(rng, mean, stddev, lower, upper, out):
    """Planted bug: the sum of the mean and a truncated normal, clipped."""
    low, high = (lower - mean) / stddev, (upper - mean) / stddev
    for i in range(out.shape[0]):
        t = mean + stddev * log_concave.truncated_normal(rng, low, high)
        out[i] = min(max(t, lower), upper)


@kernel
def _quadratics(rng, mean, stddev, lower, upper, out):
    bend = 1.0 / stddev**2
    for i in range(out.shape[0]):
        out[i] = draw_quadratic(rng, -mean * bend, bend, lower, upper)


@kernel
def _by_envelope(rng, mean, stddev, lower, upper, out):
    """Nearly the same law by an envelope: a linear term that half of the slope pays."""
    rate, h = (mean - upper) / stddev**2, stddev**2
    v = upper + 2.0 * rate * h
    for i in range(out.shape[0]):
        out[i] = draw_factor(rng, rate, 1.0, 0.0, 1.0, v, h, lower, upper)


def assert_cells(draw, rate: float) -> None:
    """Check doubles next to a bound at 1 against the rounded exponential law.

    The exponent's quadratic part is below 1e-6 of its linear one.
    """
    num_draws, width, stddev = 1_000_000, 2.0**-53, 1e-6
    out = np.empty(num_draws)
    mean = 1.0 + rate * stddev**2
    draw(np.random.default_rng(3), mean, stddev, -1.0, 1.0, out)
    exact_rate = float((Fraction(mean) - 1) / Fraction(stddev) ** 2)
    cells = np.rint((1.0 - out) / width)
    for last in (0, 2, round(1e16 / rate)):
        chance = math.exp(-exact_rate * width * (last + 0.5))
        if chance < 1.0 - 1e-4:
            assert_frequency(int((cells > last).sum()), num_draws, chance)


# An envelope compares energies of size ``rate``: beyond 1e13 their digits are lost.
@one_in(3)
@pytest.mark.parametrize(
    ("draw", "most"),
    [(_normals_between, 1e16), (_quadratics, 1e16), (_by_envelope, 1e13)],
)
def test_a_bound_holds_no_atom_that_rounding_does_not_make(draw, most):
    for rate in (1e11, 1e12, 1e13, 1e15, 1e16):
        if rate <= most:
            assert_cells(draw, rate)


def test_an_atom_of_clipping_is_caught():
    with rejected():
        assert_cells(_rounded_twice, 1e13)
