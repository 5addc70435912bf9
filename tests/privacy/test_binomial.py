"""Binomial probabilities against exact arithmetic."""

import math

import mpmath
import numpy as np
import pytest

from dpsample.privacy.curves.shuffling import fair_mass, lower_tail, upper_tail


@pytest.mark.parametrize("flips", [1, 2, 14, 15, 16, 40, 1000, 30_000])
def test_binomial_probabilities_keep_their_digits(flips):
    with mpmath.workdps(40):
        center = flips / 2.0
        for heads in {0, 1, flips, int(center), int(center + 2 * math.sqrt(flips))}:
            if not 0 <= heads <= flips:
                continue
            exact = mpmath.binomial(flips, heads) / mpmath.mpf(2) ** flips
            found = fair_mass(np.array([float(heads)]), np.array([float(flips)]))[0]
            if exact > 1e-290:
                assert abs(found / exact - 1) < 1e-12
        least = int(center + math.sqrt(flips))
        terms = range(least, min(flips, least + 2000) + 1)
        exact = mpmath.fsum(mpmath.binomial(flips, j) for j in terms)
        exact /= mpmath.mpf(2) ** flips
    at = np.array([float(least)])
    assert upper_tail(at, float(flips), 0.5)[0] == pytest.approx(float(exact), 1e-11)
    assert lower_tail(at, float(flips), 0.5)[0] == pytest.approx(
        float(1 - exact), rel=1e-11
    )


def test_tails_at_the_edges():
    least = np.array([0.0, 1.0, 5.0, 6.0])
    assert upper_tail(least, 5.0, 0.5) == pytest.approx([1.0, 31 / 32, 1 / 32, 0.0])
    assert lower_tail(least, 5.0, 0.5) == pytest.approx([0.0, 1 / 32, 31 / 32, 1.0])
