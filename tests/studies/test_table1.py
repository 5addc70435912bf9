"""Lower bounds that the studies of Table 1 draw."""

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from studies._table1 import lower_bound, printed_bound

SIZES = [(1, 0.5), (20, 0.5), (20, 2.0), (400, 0.05), (400, 0.5)]


def private_sign(sums, gdp):
    """Return P(sign of the noisy sum < 0): gdp-GDP, as a record moves it by 2."""
    return ndtr(-np.asarray(sums) * gdp / 2.0)


def test_integration_by_parts_holds_for_any_function_of_the_records():
    half, records = 0.7, 3
    answers = np.array([0.3, -0.9, 0.8, 0.1])  # by the number of signs +1
    nodes, weights = np.polynomial.legendre.leggauss(40)
    left = right = 0.0
    for p, weight in zip(half * nodes, weights / 2.0, strict=True):
        chance = binom.pmf(np.arange(records + 1), records, 0.5 * (1.0 + p))
        sums = 2.0 * np.arange(records + 1) - records
        factor = (half**2 - p**2) / (1.0 - p**2)
        left += weight * np.sum(chance * answers * factor * (sums - records * p))
        right += weight * 2.0 * p * np.sum(chance * answers)
    assert left == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize(("n", "gdp"), SIZES)
def test_no_private_sign_beats_the_population_bound_in_one_dimension(n, gdp):
    means, counts = np.linspace(0.0, 1.0, 400), np.arange(n + 1)
    wrong = private_sign(2.0 * counts - n, gdp)
    chances = binom.pmf(counts, n, 0.5 * (1.0 + means[:, None])) @ wrong
    params = {"risk": "population", "p": 2.0, "n": n}
    value = lower_bound(params, gdp, dim=1, width=1)
    assert 0.0 < value <= np.max(2.0 * means * chances)


@pytest.mark.parametrize(("n", "gdp"), SIZES)
def test_no_private_sign_beats_the_empirical_bound_in_one_dimension(n, gdp):
    sums = np.arange(n + 1)
    worst = np.max(2.0 * sums / n * private_sign(sums, gdp))
    params = {"risk": "empirical", "p": 2.0, "n": n}
    assert lower_bound(params, gdp, dim=1, width=1) <= worst


def test_bounds_scale_as_the_theorems_say():
    params = {"risk": "empirical", "p": 1.5, "n": 10**7}
    one, four = (lower_bound(params, 0.01, dim=d, width=d) for d in (10**4, 4 * 10**4))
    assert four / one == pytest.approx(2.0, rel=0.05)
    given = {"dim": 16, "width": 16, "epsilon": 1.0, "delta": 0.5 * math.exp(-1.0)}
    assert printed_bound(params | {"p": 2.0}, **given) == pytest.approx(16.0 / 10**7)
