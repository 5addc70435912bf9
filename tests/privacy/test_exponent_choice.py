"""Mean powers of norms, and the exponent of the least noisy noise."""

import math

import mpmath
import numpy as np
import pytest

from dpsample.numerics.moments import mean_norm_power
from dpsample.numerics.norms import conversion, dual, norm, regularity
from dpsample.privacy.calibration.exponent_choice import best_exponent, noise_cost
from tests.support.statistics import assert_mean, rejected
from tests.support.tiers import one_in

CASES = [(3, 2.0, 2.0), (50, 1.5, 3.0), (50, 1.0, 8.0), (1000, 1.1, 4.5), (7, 3.0, 2.5)]


def test_norm_moments_agree_with_closed_forms():
    with mpmath.workdps(30):
        for r in (2.0, 2.5, 4.0, 10.0):
            first, second = (
                float(mpmath.gamma((k + 1) / r) / mpmath.gamma(1 / r)) for k in (1, 2)
            )
            for dim in (2, 5, 300):
                got = mean_norm_power(2.0, q=2.0, r=r, dim=dim)
                assert got == pytest.approx(dim * second, rel=1e-12)
                got = mean_norm_power(2.0, q=1.0, r=r, dim=dim)
                wanted = dim * second + dim * (dim - 1) * first**2
                assert got == pytest.approx(wanted, rel=1e-12)
                own = mpmath.gamma((dim + 2) / r) / mpmath.gamma(dim / r)
                got = mean_norm_power(2.0, q=r, r=r, dim=dim)
                assert got == pytest.approx(float(own), rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.0, 2.0])
@pytest.mark.parametrize("r", [2.0, 3.0, 9.0])
@pytest.mark.parametrize("dim", [2, 6, 80])
def test_norm_moments_by_quadrature_are_continuous_in_the_exponent(order, r, dim):
    """The quadrature, next to exponents where the value is known otherwise."""
    for q in (1.0, order, r):
        if q < order / 2.0:
            continue
        known = mean_norm_power(order, q=q, r=r, dim=dim)
        nearby = mean_norm_power(order, q=q * (1.0 + 1e-9), r=r, dim=dim)
        assert nearby == pytest.approx(known, rel=1e-7)
    largest = mean_norm_power(order, q=math.inf, r=r, dim=dim)
    below = mean_norm_power(order, q=4096.0, r=r, dim=dim)
    above = mean_norm_power(order, q=4100.0, r=r, dim=dim)
    assert largest < below < largest * dim ** (order / 4096.0)
    assert below < above == pytest.approx(largest * dim ** (order / 4100.0))


@pytest.mark.parametrize(
    ("order", "q", "r", "dim"),
    [
        (1.0, 3.0, 2.0, 5),
        (1.0, 1.2, 2.0, 20),
        (2.0, 3.0, 4.0, 7),
        (2.0, 1.05, 2.0, 4),
        (2.0, 40.0, 2.5, 30),
        (1.0, math.inf, 2.0, 20),
        (2.0, math.inf, 6.0, 3),
    ],
)
def test_norm_moments_agree_with_simulation(order, q, r, dim):
    rng = np.random.default_rng(2)
    sample = norm(rng.gamma(1.0 / r, size=(20_000, dim)) ** (1.0 / r), q) ** order
    wanted = mean_norm_power(order, q=q, r=r, dim=dim)
    assert_mean(sample, wanted, sample.var(), detects=0.15)
    with rejected():
        assert_mean(sample, wanted * 1.15, sample.var(), detects=0.15)


# Choice of the exponent.


@one_in(5)
@pytest.mark.parametrize("dim", [1, 2, 10, 1000])
@pytest.mark.parametrize("p", [1.0, 1.01, 1.2, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("criterion", ["dual", "euclidean"])
def test_plain_gaussian_noise_is_best_in_moderate_dimension(dim, p, criterion):
    choice = best_exponent(dim, p, criterion=criterion)
    assert choice.gaussian_is_best
    assert choice.cost == choice.gaussian_cost
    if dual(p) > 2.0 and dim > 1:
        assert noise_cost(dim, p, 2.5, criterion=criterion) > choice.cost


def test_the_printed_exponent_costs_up_to_twice_the_noise():
    """Mean square in the dual norm over that of plain Gaussian noise, d = 50."""
    for p, ratio in ((1.9, 1.07), (1.5, 1.48), (1.2, 2.17), (1.05, 2.28)):
        r = regularity(p, dim=50, r="printed").r
        found = noise_cost(50, p, r) / noise_cost(50, p, 2.0)
        assert found == pytest.approx(ratio, abs=5e-3)


def test_another_exponent_wins_in_very_high_dimension():
    for dim in (10**5, 10**6):
        choice = best_exponent(dim, 1.0)
        assert 3.0 < choice.r < 6.0
        assert choice.cost < 0.9 * choice.gaussian_cost
        for r in np.linspace(2.0, 12.0, 41):
            assert choice.cost <= noise_cost(dim, 1.0, float(r)) * (1.0 + 1e-9)


def test_the_bound_prefers_what_the_noise_does_not():
    """Minimizing d sigma^2 picks a large exponent; the noise itself is then larger."""
    choice = best_exponent(50, 1.0, criterion="dual_bound")
    assert choice.r == pytest.approx(6.65, abs=0.01)
    assert choice.cost < 0.4 * choice.gaussian_cost
    assert noise_cost(50, 1.0, choice.r) > 1.8 * noise_cost(50, 1.0, 2.0)
    for dim, p, r in CASES:
        if r <= dual(p):
            bound = noise_cost(dim, p, r, criterion="dual_bound")
            assert noise_cost(dim, p, r) <= bound * (1.0 + 1e-12)


@pytest.mark.parametrize("r", [2.0, 3.0, 6.0])
def test_the_cost_is_the_mean_square_of_the_noise(r):
    dim, p = 6, 1.2
    rng = np.random.default_rng(3)
    y = rng.gamma(1.0 / r, size=(20_000, dim)) ** (1.0 / r)
    sigma = np.sqrt(r - 1.0) * conversion(dim, dual(p), r)
    radius = sigma * np.sqrt(rng.chisquare(dim, size=20_000))
    noise = y * (radius / norm(y, r))[:, None]
    for criterion, q in (("dual", dual(p)), ("euclidean", 2.0)):
        sample = norm(noise, q) ** 2
        wanted = noise_cost(dim, p, r, criterion=criterion)
        assert_mean(sample, wanted, sample.var(), detects=0.15)
        with rejected():
            assert_mean(sample, 1.2 * wanted, sample.var(), detects=0.15)


def test_bad_words_and_exponents_are_named():
    with pytest.raises(ValueError, match="criterion must be one of"):
        best_exponent(5, 1.5, criterion="smallest")
    with pytest.raises(ValueError, match="r must be <= q = 3"):
        noise_cost(5, 1.5, 4.0, criterion="dual_bound")
