"""Ziggurat tables: layers of equal area, wedges and tails; powers by products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammainc, gammaincc

from dpsample.core.streams import streams
from dpsample.noise import cone_table
from dpsample.noise.cone import cone_vector, power, twice_exponent
from tests.support.noise_mutants import unequal_layers, without_tail, without_wedges
from tests.support.statistics import assert_law, assert_mean, rejected
from tests.support.tiers import one_in, usual

EXPONENTS = (1.0, 1.5, 2.5, 3.0, 4.0, 10.0, 37.3, 1e3)


def columns(table):
    """Edges, ratios and heights of the layers."""
    return table.layers[:, 0], table.layers[:-1, 1], table.layers[:, 2]


def density(y, r):
    return np.exp(-(y**r) / r)


@pytest.mark.parametrize("r", [*EXPONENTS, 1e6, 1e12])
def test_layers_have_equal_area_and_touch_the_density(r):
    table = cone_table(r)
    edges, ratios, heights = columns(table)
    x, heights = edges[1:], heights[1:]
    assert (np.diff(heights) > 0.0).all() and (np.diff(x) <= 0.0).all()
    assert heights[-1] == 1.0 and x[-1] == 0.0
    area = edges[0] * heights[0]
    areas = x[:-1] * np.diff(heights)
    np.testing.assert_allclose(areas[:-1], area, rtol=1e-12)
    # The last one closes the stack: the rounding of 255 sums.
    np.testing.assert_allclose(areas[-1], area, rtol=1e-10)
    np.testing.assert_allclose(
        -r * np.log(heights[:-1]), x[:-1] ** r, rtol=1e-14 * r + 1e-12
    )
    np.testing.assert_allclose(ratios, edges[1:] / edges[:-1])


@pytest.mark.parametrize("r", EXPONENTS)
def test_base_layer_holds_its_rectangle_and_the_tail(r):
    table = cone_table(r)
    first = table.layers[1, 0]
    tail = quad(density, first, (60.0 * r) ** (1.0 / r), (r,), epsabs=1e-15)[0]
    area = table.layers[0, 0] * table.layers[1, 2]
    np.testing.assert_allclose(first * density(first, r) + tail, area, rtol=1e-9)
    assert first**r / r == pytest.approx(table.tail, rel=1e-10)


def test_layers_exceed_the_density_by_less_than_three_percent():
    for r in EXPONENTS:
        table = cone_table(r)
        mass = math.gamma(1.0 + 1.0 / r) * r ** (1.0 / r)
        share = mass / (256.0 * table.layers[0, 0] * table.layers[1, 2])
        assert 0.97 < share < 1.0


def coordinates(table, seed, num_draws=2_100_000):
    out = np.empty(num_draws)
    norm = cone_vector(streams(seed, 1)[0], table, out)
    return out, norm


def coordinate_cdf(r):
    def cdf(y):
        power = np.abs(y) ** r / r
        near_0 = np.abs(y) / (r ** (1.0 / r) * math.gamma(1.0 + 1.0 / r))
        inside = np.where(power > 1e-12, gammainc(1.0 / r, power), near_0)
        return 0.5 + 0.5 * np.sign(y) * inside

    return cdf


def assert_power(y, r):
    """|y|^r / r is a Gamma(1/r) variable."""
    assert_mean(np.abs(y) ** r, 1.0, r, detects=0.009)


@one_in(4)
@pytest.mark.parametrize("r", EXPONENTS)
def test_coordinates_follow_the_density(r):
    y, norm = coordinates(cone_table(r), 411)
    assert_law(y[:400_000], coordinate_cdf(r))
    assert_power(y, r)
    np.testing.assert_allclose((np.abs(y) ** r).sum() ** (1.0 / r), norm, rtol=1e-11)


@usual("2.5")
@pytest.mark.parametrize("r", [1.0, 2.5, 10.0])
def test_tails_follow_the_density(r):
    table = cone_table(r)
    first = table.layers[1, 0]
    share = gammaincc(1.0 / r, table.tail)
    variance, detects = share * (1.0 - share), 0.9 * math.sqrt(share)

    def tail_of(planted, seed):
        y = np.abs(coordinates(planted, seed, 4_000_000)[0])
        assert_mean((y > first).astype(float), share, variance, detects=detects)
        return y[y > first]

    tail = tail_of(table, 412)
    assert_law(tail, lambda y: 1.0 - gammaincc(1.0 / r, y**r / r) / share)
    for mistake in (without_tail, unequal_layers):
        with rejected():
            tail_of(mistake(table), 413)


@pytest.mark.slow
@pytest.mark.parametrize("r", [1.0, 1.5])
def test_wedges_follow_the_density(r):
    table = cone_table(r)
    edges, _, heights = columns(table)
    x, heights = edges[1:], heights[1:]
    mass = math.gamma(1.0 + 1.0 / r) * r ** (1.0 / r)
    # Where layers without wedges, as a staircase, have too much mass.
    excess = 256.0 * edges[0] * heights[0] / mass
    start = np.maximum(-r * np.log(heights[1:] / excess), 0.0) ** (1.0 / r)
    start = np.clip(start, x[1:], x[:-1])
    cdf = coordinate_cdf(r)
    share = 2.0 * (cdf(x[:-1]) - cdf(start)).sum()

    def assert_share(planted, seed):
        y = np.abs(coordinates(planted, seed, 4_000_000)[0])
        y = y[y < x[0]]
        cell = np.clip(len(x) - 1 - np.searchsorted(x[::-1], y, "right"), 0, None)
        above = (y > start[cell]).astype(float)
        inside = share / (2.0 * cdf(x[0]) - 1.0)
        assert_mean(above, inside, inside * (1.0 - inside), detects=0.0065)

    assert_share(table, 416)
    with rejected():
        assert_share(without_wedges(table), 414)


def test_coordinates_of_a_wrong_exponent_are_rejected():
    for r in (1.0, 1.5, 4.0, 10.0):
        y = coordinates(cone_table(r + 0.2), 415)[0]
        with rejected():
            assert_power(y, r)


def test_powers_are_products_for_half_integers_only():
    y = np.concatenate(([0.0], np.logspace(-8, 1, 400)))
    for r in (1.0, 1.5, 2.0, 3.0, 6.5, 17.0, 32.0, 2.7, 32.5, 100.0):
        twice = twice_exponent(r)
        assert (twice == 0) == (r in (2.7, 32.5, 100.0))
        values = [power(v, r, twice) for v in y]
        np.testing.assert_allclose(values, y**r, rtol=1e-14)


def test_cached_tables_cannot_be_changed_by_a_caller():
    first = cone_table(3.0)
    first.layers[:] = 0.0
    assert cone_table(3.0).layers[0, 0] > 1.0


def test_exponents_no_double_tells_from_infinity_use_the_cube():
    assert cone_table(1e19).r == np.inf
    assert cone_table(1e17).r == 1e17
