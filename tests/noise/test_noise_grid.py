"""Answers on public grids: exact rounding, supports that tell no queries apart."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, laplace, norm

from dpsample import Budget, verify
from dpsample.core.streams import streams
from dpsample.domains import Ball
from dpsample.noise import (
    Gaussian,
    GeneralizedGaussian,
    KNorm,
    Laplace,
    SchattenGaussian,
    gaussian_mechanism,
    k_norm_mechanism,
)
from dpsample.noise import noise as grid
from tests.support.additive_mechanisms import BUDGET, MECHANISMS, SHAPE
from tests.support.scripted_words import scripted
from tests.support.statistics import rejected, spend
from tests.support.tiers import one_in, slow_but

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
EXACT = {"gaussian", "least noisy", "laplace"}


def nearest(query, ratio, high, low):
    """Cell of query + ratio (high + low), in steps: exact, ties up."""
    cells = Fraction(query) + Fraction(ratio) * (Fraction(high) + Fraction(low))
    return math.floor(cells + Fraction(1, 2)), cells


# The sum, rounded.

digits = st.integers(-(2**60), 2**60).map(lambda k: (k >> 8) * 2.0**-49)
ratios = st.floats(min_value=2.0**10, max_value=2.0**11, exclude_max=True)
queries = st.one_of(
    st.integers(-(2**40), 2**40).map(lambda k: 0.5 * k),
    st.floats(min_value=-(2.0**50), max_value=2.0**50),
    st.floats(min_value=-2.0, max_value=2.0),
    st.sampled_from([0.5, -0.5, math.nextafter(0.5, 0.0), 2.0**50 + 0.5, 1e-300]),
)


@settings(max_examples=600)
@given(queries, ratios, digits, st.integers(-(2**53), 2**53))
def test_the_nearest_multiple_is_that_of_exact_arithmetic(query, ratio, high, low):
    low *= 2.0**-102
    expected, cells = nearest(query, ratio, high, low)
    got = grid.nearest_multiple(query, ratio, 1.0, high, low)
    border = abs(cells - math.floor(cells) - Fraction(1, 2))
    assert got == expected or border < Fraction(1, 2**83)
    assert grid.nearest_multiple(query * 0.25, ratio, 0.25, high, low) == 0.25 * got


def test_sums_close_to_a_border_are_rounded_exactly():
    """Distances from a border down to 2^-80 of a step, above and below it."""
    rng = np.random.default_rng(51)
    for _ in range(3000):
        ratio = float(rng.uniform(2.0**10, 2.0**11))
        high = float(np.floor(rng.normal() * 2.0**49)) * 2.0**-49
        product = Fraction(ratio) * Fraction(high)
        query = float(Fraction(1, 2) + math.floor(product) - product)
        rest = Fraction(1, 2) + math.floor(product) - product - Fraction(query)
        gap = int(rng.choice([-1, 1])) * Fraction(1, 2 ** int(rng.integers(55, 80)))
        low = float((rest + gap) / Fraction(ratio))
        expected, cells = nearest(query, ratio, high, low)
        border = abs(cells - math.floor(cells) - Fraction(1, 2))
        if border > Fraction(1, 2**83):
            assert grid.nearest_multiple(query, ratio, 1.0, high, low) == expected
    tie = grid.nearest_multiple(0.5, 1024.0, 1.0, 2.0, 0.0)
    assert tie == 2049.0
    assert grid.nearest_multiple(-0.5, 1024.0, 1.0, 2.0, 0.0) == 2048.0
    assert grid.nearest_multiple(-0.5, 1024.0, 1.0, 2.0, -(2.0**-80)) == 2047.0


@pytest.mark.parametrize("scale", [1.0, 1.999, 2.0, 3e-270, 7e270, 0.1])
def test_the_step_is_the_largest_power_of_two_below_a_thousandth(scale):
    step = grid.grid_step(scale)
    assert math.frexp(step)[0] == 0.5
    assert step <= scale / 1024.0 < 2.0 * step


def test_scales_beyond_doubles_are_refused_before_any_query_is_seen():
    for scale in (1e-290, 1e290, math.nan):
        with pytest.raises(ValueError, match="the scale of the noise must be from"):
            grid.grid_step(scale)


# The laws of the cells.


def assert_cells(cells, chance):
    """Pearson's statistic of whole numbers in groups that expect at least 30.

    ``chance`` is the distribution function of the sum before it is rounded.
    """
    number = len(cells)
    edges = np.arange(cells.min() - 1, cells.max() + 2)
    mass = number * np.diff(np.concatenate(([0.0], chance(edges[:-1] + 0.5), [1.0])))
    counts = np.bincount((cells - edges[0]).astype(int), minlength=len(edges))
    group = np.minimum(np.cumsum(mass) // 30.0, (number - 30.0) // 30.0).astype(int)
    expected, found = np.bincount(group, mass), np.bincount(group, counts)
    kept = expected > 0.0
    statistic = float(((found - expected)[kept] ** 2 / expected[kept]).sum())
    limit = chi2.isf(spend(is_exact=False), int(kept.sum()) - 1)
    assert statistic <= limit, f"cell statistic {statistic:.1f}, bound {limit:.1f}"


LAWS = {"gaussian": (grid.add_gaussian, norm), "laplace": (grid.add_laplace, laplace)}


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize(
    ("number", "fineness", "shift"),
    [
        (100_000, 2.0, 0.1),
        (100_000, 1500.0, 200.0),
        pytest.param(10**7, 2.0, 0.02, marks=pytest.mark.slow),
        pytest.param(10**7, 1024.0, 15.0, marks=pytest.mark.slow),
    ],
)
def test_cells_have_their_exact_chances(kind, number, fineness, shift):
    """Steps of half a scale show how borders are cut; fine ones show every cell."""
    add, law = LAWS[kind]
    scale, step, query = 3.0 * fineness / 4.0, 0.75, 0.3137
    values = np.full(number, query)
    add(streams(53, 1)[0], scale, step, values)
    cells = values / step
    assert (cells == np.round(cells)).all()

    def chance(x):
        return law.cdf((step * x - query) / scale)

    assert_cells(cells, chance)
    with rejected():
        assert_cells(cells, lambda x: chance(x + shift))
    with rejected():
        assert_cells(cells + (cells % 4 == 1), chance)  # low bits that are wrong


# Digits on demand.


def pure_sums(values, scale, seed):
    return Laplace(scale)._noisy_purely(streams(seed, 1)[0], np.asarray(values))


@pytest.mark.parametrize("query", [0.3137, -5e4, 1e-320])
def test_pure_sums_have_the_exact_chances_of_their_cells(query):
    scale = 1.9
    step = grid.grid_step(scale)
    cells = pure_sums(np.full(50_000, query), scale, 54) / step
    assert (cells == np.round(cells)).all()

    def chance(x, scale=scale):
        return laplace.cdf((step * x - query) / scale)

    assert_cells(cells, chance)
    with rejected():  # half of the sensitivity
        assert_cells(cells, lambda x: chance(x, scale / 2.0))
    if abs(query) > 0.1:
        with rejected():  # the query with the other sign
            assert_cells(-cells, chance)


def test_pure_sums_are_those_of_cut_off_digits_but_for_their_error():
    values = np.random.default_rng(3).normal(size=5000) * 100.0
    rounded = values.copy()
    grid.add_laplace(streams(55, 1)[0], 3.0, grid.grid_step(3.0), rounded)
    assert np.array_equal(pure_sums(values, 3.0, 55), rounded)


def test_digits_after_the_last_double_decide_at_a_border():
    """E is just above half a step, and minus E below the border, where ties go up."""
    step = grid.grid_step(1.0)
    border = (2**9 + 0.5) * step
    # The digits of E, the end of its run, the sign, and more digits of E.
    words = [int(border * 2**64), 0, 2**64 - 1, 1, 5]
    generator, _ = scripted(words)
    assert Laplace(1.0)._noisy_purely(generator, np.array([0.0])) == -(2**9 + 1) * step
    doubles = np.array([0.0])
    generator, _ = scripted(words)
    grid.add_laplace(generator, 1.0, step, doubles)
    assert doubles == -(2**9) * step


def test_a_rounded_sum_holds_for_every_query():
    values = [math.inf, -math.inf, math.nan, 1.8e308, 5e-324, -0.0]
    sums = pure_sums(values, 1e-3, 56)
    assert np.isfinite(sums).all() and not np.signbit(sums[sums == 0.0]).any()
    ends = grid.MAX_QUERY_STEPS * grid.grid_step(1e-3)
    assert sums[0] > 0.99 * ends and sums[1] < -0.99 * ends


# Every mechanism.


def fine_bits(values, step):
    """Whether any value is no multiple of the step."""
    return bool((values != step * np.round(values / step)).any())


@one_in(3)
@pytest.mark.parametrize("name", slow_but(MECHANISMS, set(MECHANISMS) - {"polytope"}))
def test_no_bit_of_an_answer_tells_query_0_from_another(name):
    mech, dim = MECHANISMS[name]
    step = mech.step
    assert math.frexp(step)[0] == 0.5  # a power of two
    for query in (0.0, 0.2, 1.0, 1e-9, -math.pi):
        value = np.full(dim, query)
        answers = np.array([mech.release(value, seed=k).value for k in range(60)])
        assert not fine_bits(answers, step)
        assert not np.signbit(answers[answers == 0.0]).any()
        # What was released once: the sum in doubles shows its query.
        sums = [value + mech.noise.draw(streams(k, 1)[0], dim) for k in range(60)]
        assert fine_bits(np.array(sums), step)


def test_sums_in_doubles_near_zero_had_bits_that_answers_do_not_have():
    """Mironov (2012): below 2^-10, multiples of 2^-53 or not, by the query."""
    mech = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=0.2367)
    assert abs(mech.noise.stddev - 1.0) < 1e-3
    shares = []
    for query in (0.0, 1.0):
        noise = mech.noise.draw(streams(54, 1)[0], 10**6)
        small = (query + noise)[np.abs(query + noise) < 2.0**-10]
        shares.append(np.mean(small * 2.0**53 != np.round(small * 2.0**53)))
        answers = mech.release(np.full(10**6, query), seed=55).value
        near = answers[np.abs(answers) < 2.0**-8]
        steps = np.arange(-3, 4) if mech.step == 2.0**-10 else np.arange(-7, 8)
        assert set(near / mech.step) == set(steps.tolist())
    assert shares[0] > 0.99 and shares[1] == 0.0


@every_mechanism
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308, -1.7e308])
def test_no_value_of_a_query_raises_or_leaves_the_grid(name, bad):
    mech, dim = MECHANISMS[name]
    value = np.zeros(dim)
    value[-1] = bad
    answer = mech.release(value, seed=3).value
    most = (2.0**51 + 2.0**20) * mech.step
    assert (np.abs(answer) <= most).all() and not fine_bits(answer, mech.step)
    if math.isnan(bad):
        value[-1] = 0.0
        np.testing.assert_array_equal(answer, mech.release(value, seed=3).value)
    else:
        value[-1] = math.copysign(2.0**51 * mech.step, bad)
        np.testing.assert_array_equal(answer, mech.release(value, seed=3).value)
        assert abs(answer[-1]) > 2.0**50 * mech.step


@every_mechanism
def test_certificates_say_which_numerics_are_proved(name):
    mech, dim = MECHANISMS[name]
    certificate = mech.certificate
    assert dict(certificate.inputs)["grid"] == mech.step
    assert verify(certificate).statement == certificate.statement
    is_exact = mech.noise._as_independent(dim) is not None
    assert is_exact == (name in EXACT)
    assert ("NOISE.IDEALIZED" in certificate.assumptions) == (not is_exact)
    assert certificate.releasable == mech.release(np.zeros(dim)).releasable == is_exact
    shown = certificate.details()
    assert ("Idealized numerics" in shown) == (not is_exact)


def test_which_noise_has_independent_coordinates():
    assert GeneralizedGaussian(2.0, 3.0)._as_independent(5) == Gaussian(3.0)
    assert GeneralizedGaussian(7.0, 3.0)._as_independent(1) == Gaussian(3.0)
    assert GeneralizedGaussian(7.0, 3.0)._as_independent(2) is None
    assert SchattenGaussian(2.0, 3.0, SHAPE)._as_independent(6) == Gaussian(3.0)
    assert SchattenGaussian(5.0, 3.0, (1, 4))._as_independent(4) == Gaussian(3.0)
    assert SchattenGaussian(5.0, 3.0, SHAPE)._as_independent(6) is None
    assert KNorm(Ball(2.0, p=1.0), 3.0)._as_independent(4) == Laplace(6.0)
    assert KNorm(Ball(2.0, p=1.5), 3.0)._as_independent(4) is None


@pytest.mark.parametrize(
    ("noise", "dim"),
    [
        (GeneralizedGaussian(2.0, 3.0), 3),
        (GeneralizedGaussian(5.0, 3.0), 1),
        (SchattenGaussian(5.0, 3.0, (3, 1)), 3),
        (KNorm(Ball(2.0, p=1.0), 3.0), 3),
    ],
)
def test_coordinates_have_the_law_of_their_noise(noise, dim):
    plain = noise._as_independent(dim)
    z = np.random.default_rng(56).normal(size=(20, dim)) * 4.0
    np.testing.assert_allclose(plain.log_density(z), noise.log_density(z), rtol=1e-12)
    values = np.arange(float(dim))
    ours, theirs = (law._noisy(streams(57, 1)[0], values) for law in (noise, plain))
    np.testing.assert_array_equal(ours, theirs)


def test_laplace_noise_by_another_name_is_releasable():
    mech = k_norm_mechanism(BUDGET, domain=Ball(2.0, p=1.0), dim=3, sensitivity=0.25)
    assert mech.certificate.releasable and mech.release([0.0, 1.0, 2.0]).releasable


def test_many_coordinates_are_drawn_as_one_by_one():
    """Calls of some milliseconds each: where they are cut changes nothing."""
    number = 60_000
    out = Gaussian(2.0)._noisy(streams(58, 1)[0], np.zeros(number))
    rng, single = streams(58, 1)[0], np.zeros(number)
    grid.add_gaussian(rng, 2.0, Gaussian(2.0)._step(1), single)
    np.testing.assert_array_equal(out, single)


HUGE = [10**400, -(10**309), Fraction(10**400), np.longdouble("1e4000")]


@pytest.mark.parametrize("huge", HUGE, ids=["integer", "negative", "ratio", "long"])
@pytest.mark.filterwarnings("error")
def test_numbers_beyond_all_doubles_are_queries_like_others(huge):
    made = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=1.0)
    largest = math.copysign(math.inf, float(np.sign(np.array([huge]))[0]))
    for value in (huge, [huge]):
        noisy = made.release(value, seed=1).value
        expected = made.release(np.full(np.shape(value), largest), seed=1).value
        np.testing.assert_array_equal(noisy, expected)


class NAType:
    """As the missing value of pandas."""


class NullScalar:
    """As the missing value of Arrow."""

    def as_py(self):
        return None


MISSING = [None, np.ma.masked, NAType(), NullScalar()]


@pytest.mark.parametrize(
    "nothing", [math.nan, Decimal("NaN"), Decimal("sNaN"), *MISSING]
)
@pytest.mark.filterwarnings("error")
def test_what_is_missing_is_answered_as_nan_alone_and_beside_others(nothing):
    made = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=1.0)
    alone = made.release(nothing, seed=1).value
    assert alone == made.release(math.nan, seed=1).value
    for beside, finite in ((10**400, math.inf), (1, 1.0)):
        noisy = made.release([nothing, beside], seed=1).value
        expected = made.release([math.nan, finite], seed=1).value
        np.testing.assert_array_equal(noisy, expected)
    for odd in ("1.5", np.timedelta64("NaT", "ns"), np.datetime64(0, "ns")):
        with pytest.raises(ValueError, match="an array of numbers"):
            made.release([10**400, odd])
