"""Random reals with digits on demand: laws, ties, and digits that stay fair."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import expon, norm

from dpsample.numerics import lazy_reals
from dpsample.numerics.dyadic_matrices import DyadicMatrix
from dpsample.numerics.lazy_reals import BitStream, LazyReal
from tests.support.statistics import assert_law, rejected


def script(*words):
    rest = list(words)
    return lambda: rest.pop(0)


@pytest.mark.parametrize(
    ("draw", "cdf"),
    [(lazy_reals.exponential, expon.cdf), (lazy_reals.normal, norm.cdf)],
)
def test_numbers_have_their_distribution(draw, cdf):
    word = BitStream(np.random.default_rng(1))
    sample = np.array([float(draw(word)) for _ in range(8_000)])
    assert_law(sample, cdf)
    with rejected():
        assert_law(1.15 * sample, cdf)


def test_later_digits_are_fair_and_stay_within_the_first_interval():
    word, digits = BitStream(np.random.default_rng(2)), []
    for _ in range(4_000):
        number = lazy_reals.normal(word)
        before, bits = abs(number.midpoint), number.bits
        number.refine()
        assert abs(abs(number.midpoint) - before) < Fraction(1, 1 << bits)
        digits.append((number.digits & 2**64 - 1) / 2.0**64)
    assert_law(np.array(digits), lambda u: u)


def test_a_tie_of_words_is_decided_by_the_next():
    for last, expected in ((4, True), (6, False)):
        word = script(last, 5)
        first = LazyReal(7, 64, word)
        assert lazy_reals.is_less(first, LazyReal(7, 64, word)) is expected
        assert first.digits == 7 << 64 | last


def test_a_run_with_ties_continues():
    # The second uniform ties with the first and is below it by its next word. The third
    # is above, so that the run has length 2, which is even.
    word = script(7, 7, 3, 9, 8, 2**64 - 1, 1, 2)
    number = lazy_reals.exponential(word)
    # A run of length 1 follows, for the whole part 1.
    assert number.bits == 64
    assert number.digits == (1 << 64) + 1


def test_normals_at_the_edge_of_acceptance_get_more_digits():
    """X = 2 and Y = 1/2 to 64 bits: (X - 1)^2 = 2 Y, which the next word decides."""
    for later, expected in (((0, 2**64 - 1), True), ((2**64 - 1, 0), False)):
        word = script(*later)
        size, clock = LazyReal(2 << 64, 64, word), LazyReal(1 << 63, 64, word)
        assert lazy_reals._is_normal(size, clock) is expected


def test_sums_and_products_of_doubles_are_exact():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 3, 3)) * np.geomspace(1e-200, 1e150, 3)
    product = (
        DyadicMatrix.from_doubles(a).T @ DyadicMatrix.from_doubles(b)
    ).fractions()
    for i in range(3):
        for j in range(3):
            terms = (Fraction(a[k, i]) * Fraction(b[k, j]) for k in range(3))
            assert product[3 * i + j] == sum(terms)
    twice = DyadicMatrix.from_doubles(a).times(2.0) - DyadicMatrix.from_doubles(a)
    assert (twice - DyadicMatrix.from_doubles(a)).square_norm() == 0
    assert DyadicMatrix.from_doubles(np.zeros(2)).fractions() == [0, 0]


def test_gershgorin_bounds_the_least_eigenvalue():
    matrix = np.array([[2.0, -0.5], [-0.5, 1.0]])
    assert DyadicMatrix.from_doubles(matrix).least_dominance() == Fraction(1, 2)
    assert np.linalg.eigvalsh(matrix)[0] >= 0.5
