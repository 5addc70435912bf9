"""Errata of Gopi et al. (2022)."""

import math

import numpy as np
import pytest

from dpsample.privacy import closed_form_gdp, gaussian_epsilon, paper_gdp
from tests.support.errata import recompute

L = math.log(1.0 / 2e-6)


def test_e1_a_replaced_record_moves_the_mean_by_two_g_over_n():
    slopes = 3.0 * np.array([1.0, -0.4, 0.9, 0.2, -1.0])  # linear losses, G = 3
    neighbor = np.append(-slopes[:1], slopes[1:])
    assert abs(slopes.mean() - neighbor.mean()) == pytest.approx(2.0 * 3.0 / 5)
    recompute(
        "GLLST-E1",
        lambda case: gaussian_epsilon(
            case.delta, 2.0 * paper_gdp(case.epsilon, case.delta)
        ),
    )


def test_e2_the_larger_distance_fails_at_large_epsilon():
    for epsilon, is_private in ((0.1, True), (6.5, True), (6.8, False), (16.0, False)):
        wider = paper_gdp(epsilon, 1e-5)
        assert wider > closed_form_gdp(epsilon, 1e-5)
        assert (gaussian_epsilon(1e-5, wider) <= epsilon) == is_private
    recompute(
        "GLLST-E2",
        lambda case: gaussian_epsilon(case.delta, paper_gdp(case.epsilon, case.delta)),
    )


def test_e3_only_one_reading_of_theorem_3_gives_its_risk():
    d, n, epsilon, G, Theta = 20, 2000, 0.7, 1.3, 0.5
    risk = G * math.sqrt(Theta) * math.sqrt(8.0 * d * L) / (n * epsilon)

    def holds(k, mu):
        follows = math.isclose(mu, 2.0 * G**2 * k * L / (n * epsilon) ** 2)  # (6)
        return follows and math.isclose(mu * Theta + d / k, risk)

    top, low = G * math.sqrt(2.0 * d * L), G * math.sqrt(2.0 * Theta * L)
    size = n * epsilon
    assert holds(math.sqrt(d) * size / low, top / (math.sqrt(Theta) * size))
    assert not holds(math.sqrt(d * size) / low, top / math.sqrt(Theta * size))


def test_e4_the_second_term_fits_the_right_sensitivity():
    n, epsilon, Theta = 500, 0.8, 0.5

    def least(d, H):
        """Minimum over k of H / (n mu) + mu Theta + d / k for G = 1."""
        t = epsilon / math.sqrt(2.0 * L)
        return 2.0 * math.sqrt((H / (n * t)) ** 2 * Theta * (d + n * t**2 / H))

    # With d = 0 the second term is left.
    assert least(0, 1.0) == pytest.approx(math.sqrt(4.0 * Theta / n))
    assert least(0, 2.0) == pytest.approx(math.sqrt(8.0 * Theta / n))
    first = math.sqrt(8.0 * Theta * L * 10**9) / (n * epsilon)
    assert least(10**9, 2.0) == pytest.approx(2.0 * first, rel=1e-3)


def test_e5_a_total_variation_costs_one_plus_e_to_the_epsilon():
    epsilon, delta = 1.0, 0.02
    q = np.array([0.2, 0.8, 0.0])
    p = np.array([math.e * 0.2 + delta / 2, 0.0, 0.0])
    p[1] = 1.0 - p.sum()
    spent = (p - math.e * q).clip(0.0).sum()
    assert spent == pytest.approx(delta / 2)
    p_near = p + np.array([delta / 2, -delta / 2, 0.0])
    q_near = q + np.array([-delta / 2, 0.0, delta / 2])
    for exact, near in ((p, p_near), (q, q_near)):
        assert near.min() >= 0.0 and near.sum() == pytest.approx(1.0)
        assert np.abs(exact - near).sum() / 2.0 == pytest.approx(delta / 2)
    reached = (p_near - math.exp(epsilon) * q_near).clip(0.0).sum()
    assert reached == pytest.approx(delta / 2 + (1.0 + math.e) * delta / 2)
    assert reached > 2.0 * delta


def test_e6_the_exponent_for_two_columns_is_above_two():
    def curvature(q, h=1e-4):
        """Of |x|_q^2 / 2 at (1, 0) in the direction (0, 1)."""
        squares = [0.5 * (1.0 + abs(t) ** q) ** (2.0 / q) for t in (-h, 0.0, h)]
        return (squares[0] - 2.0 * squares[1] + squares[2]) / h**2

    assert 1.0 + 1.0 / math.log(2) > 2.0 >= 1.0 + 1.0 / math.log(3)
    assert curvature(1.0 + 1.0 / math.log(2)) < 0.05 and curvature(1.9) > 1.0
    # Theta = e^2 log(d) D^2 / 2 in Theorem 3, relative to D sqrt(d log(d) log(...)).
    assert math.sqrt(8.0 * math.e**2 / 2.0) == pytest.approx(2.0 * math.e)
    assert 2.0 * math.e < 6.0
    with pytest.raises(ZeroDivisionError):
        1.0 / math.sqrt(1.0 - 1.0)


@pytest.mark.parametrize("p", [2.0, 3.0, math.inf])
def test_e7_above_two_no_power_of_the_dimension_is_lost(p):
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((500, 30)) * rng.random((500, 30)) ** 8
    dual = 1.0 if p == math.inf else p / (p - 1.0)
    lipschitz = np.linalg.norm(gradients, dual, axis=1)
    assert np.all(np.linalg.norm(gradients, axis=1) <= lipschitz * (1.0 + 1e-12))
    x, y = rng.standard_normal((2, 30))
    middle = 0.5 * (x @ x + y @ y) / 2.0 - 0.5 * ((x + y) / 2.0) @ ((x + y) / 2.0)
    assert middle == pytest.approx((x - y) @ (x - y) / 8.0)  # 1-strongly convex


def test_e8_the_slope_on_a_segment_has_the_factor_g():
    a, b, gradient = np.zeros(2), np.array([1.0, 1.0]), np.array([3.0, 3.0])
    along = gradient @ (b - a) / np.linalg.norm(b - a)
    printed = np.linalg.norm(b - a, 1) / np.linalg.norm(b - a)
    assert np.abs(gradient).max() == 3.0  # Lipschitz constant in l_1
    assert along == pytest.approx(3.0 * printed)
