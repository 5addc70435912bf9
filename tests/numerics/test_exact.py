"""Exact normals and exponentials: decisions by rational numbers, tables, laws."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, expon, norm

from dpsample.core.jit import kernel
from dpsample.core.streams import secret_streams, streams
from dpsample.numerics import exact
from tests.support.scripted_words import Script, exponential, normal, scripted
from tests.support.statistics import assert_law, assert_mean, rejected, spend
from tests.support.tiers import one_in

TABLE = tuple(
    [int(x) for x in part]
    for part in (exact._LIMITS, exact._LOW_LIMITS, exact._ALIASES)
)


@kernel
def fill_normal(rng, high, low):
    for i in range(len(high)):
        high[i], low[i] = exact.exact_normal(rng)


@kernel
def fill_exponential(rng, high, low):
    for i in range(len(high)):
        high[i], low[i] = exact.exact_exponential(rng)


def drawn(fill, rng, number):
    high, low = np.empty(number), np.empty(number)
    fill(rng, high, low)
    return high, low


doubles = st.floats(min_value=-1e150, max_value=1e150).filter(
    lambda x: x == 0.0 or abs(x) > 1e-140
)


@given(doubles, doubles)
def test_sums_and_products_with_their_errors_are_exact(a, b):
    total, rest = exact.two_sum(a, b)
    assert total == a + b
    assert Fraction(total) + Fraction(rest) == Fraction(a) + Fraction(b)
    product, rest = exact.two_product(a, b)
    assert product == a * b
    assert Fraction(product) + Fraction(rest) == Fraction(a) * Fraction(b)


def test_the_table_gives_every_step_its_chance():
    """Chances of the outcomes to 2^-117, against mpmath at 60 digits."""
    limits, low_limits, aliases = TABLE
    size = 2**119
    chances = [Fraction(0)] * len(limits)
    for j, alias in enumerate(aliases):
        own = Fraction(((limits[j] - (j << 55)) << 64) + low_limits[j], size)
        chances[j] += own / 512
        chances[alias] += (1 - own) / 512
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(j * j) / 2048) for j in range(256)]
        weights.append(32 * mpmath.exp(-32) / 8)
        total = mpmath.fsum(weights)
        for chance, weight in zip(chances, weights, strict=False):
            found = mpmath.mpf(chance.numerator) / chance.denominator
            assert abs(found - weight / total) < mpmath.mpf(2) ** -117
    assert not any(chances[257:])


def hostile_words(rng, count=100):
    """Words with ties, extremes and many small numbers, which make runs long."""
    words = rng.integers(0, 2**64, count, dtype=np.uint64, endpoint=False)
    kind = rng.integers(0, 6, count)
    words[kind == 1] >>= np.uint64(6)
    words[kind == 2] = np.uint64(2**64 - 1)
    words[kind == 3] = words[(np.flatnonzero(kind == 3) - 1)]
    words[kind == 4] &= np.uint64(2**40 - 1)
    return words


def check_decisions(call, reference, words):
    rng, used = scripted(words)
    high, low = call(rng)
    script = Script(words)
    try:
        expected = reference(script)
    except IndexError:  # it needs more words than there are
        return False
    assert Fraction(high) + Fraction(low) == expected
    assert used() == script.used
    return True


@kernel
def one_normal(rng):
    return exact.exact_normal(rng)


@kernel
def one_exponential(rng):
    return exact.exact_exponential(rng)


@one_in(2)
@pytest.mark.parametrize("make", [hostile_words, "random"])
def test_decisions_are_those_of_rational_numbers(make):
    rng, count = np.random.default_rng(31), 0
    for _ in range(1500):
        if make == "random":
            words = rng.integers(0, 2**64, 60, dtype=np.uint64, endpoint=False)
        else:
            words = make(rng)
        count += check_decisions(one_exponential, exponential, words)
        count += check_decisions(one_normal, lambda w: normal(w, *TABLE), words)
    assert count > 2800


def test_ties_with_a_threshold_are_broken_by_the_next_word():
    rng = np.random.default_rng(32)
    limits, low_limits, _ = TABLE
    for j in range(0, 512, 5):
        for word in (low_limits[j], max(low_limits[j], 1) - 1, 2**64 - 1, 0):
            words = rng.integers(0, 2**64, 60, dtype=np.uint64, endpoint=False)
            words[:2] = limits[j], word
            assert check_decisions(one_normal, lambda w: normal(w, *TABLE), words)


def test_uniforms_close_to_the_chance_are_compared_exactly():
    """The first uniform of the run lies within 2^-90 of t, above and below."""
    rng = np.random.default_rng(33)
    limits = TABLE[0]
    count = 0
    for _ in range(400):
        words = rng.integers(0, 2**64, 60, dtype=np.uint64, endpoint=False)
        words[0] = rng.choice(limits[:256]) - 1  # column and step agree
        first, second = int(words[1]), int(words[2])
        j, u = int(words[0]) >> 55, Fraction(first << 33 | second >> 31, 2**97)
        t = u * (2 * j + u) / 2048
        near = int(t * 2**97) + int(rng.choice([-(2**6), 2**6]))
        if near < 0:
            continue
        digits = near >> 53  # 44 bits, of which 30 sit in the second word
        second = second & ~(2**31 - 2) | (digits >> 14) << 1
        # The second word has changed below its 33 leading bits only: u has not.
        words[2] = second
        words[3] = ((near >> 33) & (2**34 - 1)) << 30
        words[4] = (near & (2**33 - 1)) << 31
        count += check_decisions(one_normal, lambda w: normal(w, *TABLE), words)
    assert count > 300


def test_the_tail_beyond_eight_is_drawn_exactly():
    """Its chance is 2^-49: the alias table is told to choose it."""
    rng = np.random.default_rng(34)
    pick = 256 << 55
    assert pick < TABLE[0][256]
    for _ in range(200):
        words = rng.integers(0, 2**64, 90, dtype=np.uint64, endpoint=False)
        words[0] = pick
        assert check_decisions(one_normal, lambda w: normal(w, *TABLE), words)
        script = Script(words)
        assert abs(normal(script, *TABLE)) > 8


def test_digits_are_where_they_are_said_to_be():
    high, low = drawn(fill_exponential, streams(35, 1)[0], 20_000)
    assert (high * 2.0**44 == np.floor(high * 2.0**44)).all() and (high >= 0).all()
    assert (low >= 0).all() and (low < 2.0**-44).all()
    high, low = drawn(fill_normal, streams(36, 1)[0], 20_000)
    assert (high * 2.0**49 == np.floor(high * 2.0**49)).all()
    assert (np.abs(low) < 2.0**-47).all() and (high * low >= 0.0).all()
    assert len(np.unique(low)) == 20_000


def check_laws(rng, number):
    """Laws, independence of successive numbers, and uniformity of the low digits."""
    for fill, law in ((fill_exponential, expon), (fill_normal, norm)):
        high, low = drawn(fill, rng, number)
        assert_law(high, law.cdf)
        square = law.moment(2)
        spread = law.moment(4) - square**2
        assert_mean(high**2, square, spread, detects=30.0 / np.sqrt(number))
        product = (high[::2] - law.mean()) * (high[1::2] - law.mean())
        assert_mean(product, 0.0, 1.0, detects=30.0 / np.sqrt(number))
        unit = 2.0**-44 if law is expon else 2.0**-49
        assert_law(np.abs(low) / unit, lambda x: np.clip(x, 0.0, 1.0))
        with rejected():
            assert_law(high * (1.0 + 40.0 / np.sqrt(number)), law.cdf)


def test_laws_of_seeded_and_of_secret_numbers():
    check_laws(streams(37, 1)[0], 40_000)
    check_laws(secret_streams(1)[0], 40_000)


def assert_cells(high, law, edges):
    """Pearson's statistic of many cells; each expects at least 100."""
    counts = np.histogram(high, edges)[0]
    expected = len(high) * np.diff(law.cdf(edges))
    assert expected.min() > 100.0
    statistic = float(((counts - expected) ** 2 / expected).sum())
    limit = chi2.isf(spend(is_exact=False), len(counts) - 1)
    assert statistic <= limit, f"cell statistic {statistic:.1f}, bound {limit:.1f}"


@pytest.mark.slow
def test_ten_million_numbers_fall_into_cells_as_they_should():
    """Cells as wide as a quarter of a step of the proposal see its shape."""
    rng = streams(38, 1)[0]
    high = drawn(fill_normal, rng, 10**7)[0]
    edges = np.concatenate(([-np.inf], np.arange(-400, 401) / 128.0, [np.inf]))
    assert_cells(high, norm, edges)
    with rejected():  # steps without rejection
        steps = np.arange(256) / 32.0
        weights = np.exp(-0.5 * steps**2)
        picked = np.random.default_rng(1).choice(256, 10**7, p=weights / weights.sum())
        flat = (picked + np.random.default_rng(2).random(10**7)) / 32.0
        assert_cells(flat * np.where(high < 0, -1.0, 1.0), norm, edges)
    high = drawn(fill_exponential, rng, 10**7)[0]
    edges = np.concatenate((np.arange(0, 650) / 100.0, [np.inf]))
    assert_cells(high, expon, edges)
    with rejected():
        assert_cells(1.004 * high, expon, edges)
