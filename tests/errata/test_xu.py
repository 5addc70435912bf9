"""Errata of Xu et al. (2026)."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpsample.papers import clipping_instance, xu
from dpsample.papers.growth import growth_constant
from dpsample.papers.verdicts import erratum
from dpsample.privacy import gaussian_epsilon
from tests.support.errata import recompute


def stated(case, ratio=1.0):
    """Epsilon of 4 sqrt(log(1/delta)) / epsilon distances of noise."""
    gdp = case.epsilon / (4.0 * math.sqrt(math.log(1.0 / case.delta)))
    return gaussian_epsilon(case.delta, ratio * gdp)


def test_e13_the_printed_subsets_do_not_fit():
    n, base = 10**6, 4.0
    log_log = math.log2(math.log2(n))
    exponent = math.log(2.0) / math.log(base)
    phases = math.floor(exponent * log_log)
    sizes = 2.0 ** np.arange(phases) * n
    assert (sizes // math.log2(n) ** exponent).sum() <= n
    assert (sizes // math.log2(n) ** (exponent**2)).sum() > n
    # A mean has risk 1/(2 n), below a lower bound of the order 1/sqrt(n).
    assert 0.5 / n < 1e-3 / math.sqrt(n)


def test_e14_the_last_step_of_the_proof_is_reversed():
    for delta in (1e-3, 1e-6):
        root = math.sqrt(math.log(1.0 / delta))
        for epsilon in np.linspace(0.01, root, 50):
            assert epsilon**2 < 2.0 * epsilon * root
    recompute("gradient-E14", stated)


def test_e15_one_record_decides_where_clipped_descent_ends():
    ends = [clipping_instance.clipped_descent(neighbor=x) for x in (False, True)]
    moved = np.linalg.norm(ends[0] - ends[1])
    ratio = moved / clipping_instance.printed_sensitivity()
    assert ratio > xu.INSTANCE_RATIO - 1.0
    recompute("gradient-E15", lambda case: stated(case, xu.INSTANCE_RATIO))


def test_e16_growth_is_not_monotone_at_distances_above_one():
    for distance, holds in ((0.5, True), (1.0, True), (2.0, False)):
        assert (distance**2 >= 1.0 * distance**3) == holds
    strong, w = 0.7, 1.3  # strong / 2 w^2 is strong-convex
    assert strong / 2.0 * w**2 < strong * abs(w) ** 2


def test_e17_the_growth_constant_is_below_one():
    x = np.linspace(-60.0, 60.0, 1_200_002)  # without the minimizer 1
    exponents = (2.0, 2.5, 3.0, 4.0, 6.0)
    constants = (0.5, 0.30721, 0.19526, 0.08333, 0.01688)
    for theta, constant in zip(exponents, constants, strict=True):
        quotient = np.abs(x) ** theta / theta - 1.0 / theta - (x - 1.0)
        least = (quotient / np.abs(x - 1.0) ** theta).min()
        assert least == pytest.approx(constant, abs=1e-4)
        assert growth_constant(theta) == pytest.approx(constant, abs=1e-5)


def test_e18_the_printed_radius_breaks_the_moment_bound():
    k, p, moment = 2, 0.01, 1.0

    def reached(slope):
        """E sup |grad|^k, where |w|^(theta - 1) <= slope on the ball."""
        size = p ** (-1.0 / k) * moment / 2.0
        return p * (slope + size) ** k + (1.0 - p) * slope**k

    assert reached(p ** (-1.0 / k) * moment / 2.0) > 25.0 * moment**k
    assert reached(p ** ((k - 1.0) / k) * moment / 2.0) < moment**k
    d, n = 20, 10_000
    tilt = math.sqrt(d / n)
    one = tilt * math.log((1.0 + tilt) / (1.0 - tilt))  # one coordinate of other sign
    assert tilt**2 < one < 2.1 * tilt**2
    assert d * one > d * tilt**2  # the product of d of them, against delta^2
    # |mu - mu'| is sqrt(d) larger with p = sqrt(d) / ..., as the bound has it.
    rate = math.sqrt(d) / n
    assert d / n == pytest.approx(math.sqrt(d) * rate)


def test_e19_the_first_phase_takes_millions_of_passes():
    n, eta = 10_000, 0.3
    first = n // 2
    step = eta / 4.0
    ridge = 1.0 / (step * first**2)
    assert 1.0 / (ridge * step) == pytest.approx(2.5e7)

    def terms(scale):
        lipschitz, moment = 5.0 * scale, 2.0 * scale
        return np.array([1.0 / lipschitz, 1.0 / moment, 1.0 / lipschitz**2])

    np.testing.assert_allclose(terms(2.0) / terms(1.0), [0.5, 0.5, 0.25])


@pytest.mark.slow
def test_e20_the_first_weight_is_not_one():
    assert 2.0 / (1 + 2) != 1.0 == 2.0 / (1 + 1)
    # Noise per record of the proof over that of the algorithm, and what it proves.
    missing = math.sqrt(math.log(10_000 / 1e-8))
    assert missing > 5.0
    rows = [case for case in xu.cases() if case.place == "Theorem 6, proof"]
    proved = rows[0].epsilon_at(1.0)
    assert rows[0].epsilon == 0.05 and proved > 0.05


@pytest.mark.parametrize("constant", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_e20_no_constant_protects_the_answer(constant, share):
    """T = n, one gradient C, others 0; after step 1 eta is so large that w stays."""
    n, C = int(1000 * constant / share**2), 1.0
    log = float(n)  # of 1/delta
    epsilon = share * math.sqrt((math.log(n) + log) / n)
    stddev = C * math.sqrt(constant * n * log) / (n * epsilon)
    # The answer is (w_0 - the first noisy gradient/eta_1). It passes z with
    # probability Q((z - C)/stddev)/n at least, which is 2 delta here; without the
    # gradient C, with Q(z/stddev).
    z = C + stddev * math.sqrt(2.0 * log)
    while norm.logsf((z - C) / stddev) - math.log(n) < math.log(2.0) - log:
        z -= 1e-3 * stddev
    true = -log - norm.logsf(z / stddev)  # log of (2 delta - delta)/Q
    assert true > 5.0 * epsilon


def test_e21_the_square_has_growth_two_not_four():
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    for power, theta in ((2, 2), (4, 4)):
        near, far = (weights @ (scale * points) ** power for scale in (1.0, 2.0))
        assert far / near == pytest.approx(2.0**theta)


def test_e22_the_bound_is_one_of_the_bias():
    """z = 1 or -1, one sample, C = 10: nothing is clipped."""
    k, clip = 2, 10.0
    z = np.array([-1.0, 1.0])
    clipped = z.clip(-clip, clip)
    bound = np.mean(np.abs(z) ** k) / ((k - 1) * clip ** (k - 1))
    assert abs(clipped.mean()) == 0.0
    assert np.abs(clipped - z.mean()).mean() == 1.0 > bound == 0.1
    # The bias obeys it, also where it is not zero: a normal law clipped at 1.
    x = np.linspace(1.0, 12.0, 100_001)
    bias = np.trapezoid((x - 1.0) * norm.pdf(x), x)
    assert bias <= 1.0 / ((k - 1) * 1.0 ** (k - 1))


def test_e23_the_experiments_leave_the_range_of_theorem_6():
    n = 10_000
    assert math.sqrt(math.log(n / n**-1.1) / n) < 0.1 * 0.5
    assert max(22_696, 24_692) < 35_000


def test_e24_the_factor_sixteen_is_ample():
    recompute("gradient-E24", stated)
    for epsilon in (0.1, 1.0, 4.0):
        for delta in (1e-3, 1e-9):
            gdp = epsilon / (4.0 * math.sqrt(math.log(1.0 / delta)))
            assert gaussian_epsilon(delta, gdp) < epsilon / 2.0
    # Definition 3 allows every delta <= 1; near 1 the noise vanishes.
    for delta, is_private in ((0.9, True), (0.99, True), (0.999, False)):
        root = 4.0 * math.sqrt(math.log(1.0 / delta))
        epsilons = np.linspace(0.01, 1.0, 100)
        kept = [gaussian_epsilon(delta, e / root) <= e for e in epsilons]
        assert all(kept) == is_private
    assert "delta up to 0.99" in erratum("gradient-E24").true
