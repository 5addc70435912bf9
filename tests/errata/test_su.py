"""Errata of Su, Zhao and Wang (2023)."""

import math

import numpy as np
import pytest
from scipy.special import gamma, ndtr

from dpsample.numerics.norms import printed_kappa, regularity
from dpsample.papers import curves, su
from dpsample.papers.curves import huber_attack
from dpsample.privacy import gaussian_epsilon, gdp_from_budget
from tests.support.errata import recompute
from tests.support.mirror_divergences import divergence_ratios


def test_e1_the_printed_potential_is_not_strongly_convex():
    kappa = 1.0 / (1.8 - 1.0)
    printed, conjugate = kappa / (kappa - 1.0), 1.0 + 1.0 / kappa
    assert divergence_ratios(1.8, 12, printed, kappa).min() < 0.1
    assert divergence_ratios(1.8, 12, conjugate, kappa).min() > 1.0 - 1e-6


def test_e2_the_weights_belong_to_twice_the_coefficient():
    beta, alpha = 1.7, 0.4
    weight = (2.0 * beta + alpha) / (2.0 * beta)
    for coefficient, telescopes in ((beta, False), (2.0 * beta, True)):
        # Of D(u, w_t) in the sum of weight^t (c D_t - (c + alpha) D_(t + 1)).
        left = weight * coefficient - (coefficient + alpha)
        assert (abs(left) < 1e-12) == telescopes
        assert left < 1e-12  # so that what is left may be dropped


@pytest.mark.parametrize("noise", [0.3, 5.0])
def test_e2_noise_costs_its_square_over_the_convexity_of_a_step(noise):
    """F = beta w^2 / 2 - w and Phi = w^2 / 2 on the line, noise of either sign."""
    beta, alpha, start = 1.7, 0.4, 0.8

    def both(w):
        return 0.5 * beta * w**2 - w + 0.5 * alpha * w**2

    ends = [
        (beta * start - (beta * start - 1.0 + sign * noise)) / (beta + alpha)
        for sign in (-1.0, 1.0)
    ]
    for u in (-1.0, 1.0 / (beta + alpha), 2.0):
        gap = np.mean([both(w) for w in ends]) - both(u)
        left = 0.5 * beta * (u - start) ** 2
        left -= 0.5 * (beta + alpha) * np.mean([(u - w) ** 2 for w in ends])
        assert gap <= noise**2 / (beta + alpha) + left + 1e-12


@pytest.mark.parametrize(
    ("r", "integral", "surface"), [(4.0, 7.41630, 7.01770), (1.5, 5.47571, 5.93936)]
)
def test_e3_the_constant_is_that_of_the_cone_measure(r, integral, surface):
    angle = np.linspace(0.0, 0.5 * np.pi, 200_001)
    around = np.stack([np.cos(angle), np.sin(angle)])
    sphere = around / (around**r).sum(axis=0) ** (1.0 / r)
    # exp(-|z|^2/2) over a ray is 1 / |direction|^2; the cone's share is half of it.
    density = np.trapezoid((sphere**2).sum(axis=0), angle)
    volume = np.trapezoid(0.5 * (sphere**2).sum(axis=0), angle)
    length = np.hypot(*np.diff(sphere)).sum()
    assert 4.0 * density == pytest.approx(integral, abs=1e-5)
    assert 4.0 * 2.0 * volume == pytest.approx(integral, abs=1e-5)
    assert 4.0 * length == pytest.approx(surface, abs=1e-4)


def test_e4_no_exponent_reaches_the_printed_kappa():
    for dim in (50, 1000, 10**8):
        assert regularity(1.0, dim=dim).kappa > 2.0 * math.log(dim)
    lost = regularity(1.0, dim=1000).kappa / printed_kappa(dim=1000, p=1.0)

    def reached(case):
        log = math.log(1.0 / case.delta)
        lemma = case.epsilon * math.sqrt(lost / (2.0 * log))
        descent = case.epsilon / (4.0 * math.sqrt(log)) * math.sqrt(math.e)
        gdp = lemma if "Lemma" in case.setting else descent
        return gaussian_epsilon(case.delta, gdp)

    recompute("gradient-E4", reached)


def test_e5_the_first_half_spends_more_than_half():
    noise = math.sqrt(128.0 * math.log(2.5 / 1e-5))
    attack = huber_attack(ratio=0.5, noise=noise, delta=5e-6, relation="replace_one")
    recompute("gradient-E5", lambda case: attack(1.0))
    proved = curves.objective(
        ratio=0.5, noise=noise, delta=5e-6, relation="replace_one"
    )(1.0)
    second = 2.0 / math.sqrt(64.0 * math.log(2.5 / 1e-5))
    assert proved + gaussian_epsilon(5e-6, second) < 1.0


def test_e6_curvature_in_the_norm_of_c_is_not_curvature_in_l2():
    n, radius, beta, L = 1000, 10.0, 1.0, 1.0
    convexity = 0.0019  # in the norm of C, hence this over radius^2 in l_2

    def attained(case):
        ridge = beta / (case.epsilon * n) - convexity  # r = d = 1
        assert ridge > 0.0
        common = n * (2.0 * ridge + convexity / radius**2)
        stddev = L * math.sqrt(128.0 * math.log(2.5 / case.delta)) / case.epsilon
        # theta solves common theta + slope + G = 0; the slope of one record is a Huber
        # loss's, at most 0.999 L, or zero. Both stay inside C on [-0.99, 0.99].
        end = 0.99
        bend = (beta - convexity / radius**2) * end
        assert bend + convexity / radius <= L and end < radius
        with_bend = 2.0 * ndtr((common * end + bend) / stddev) - 1.0
        without = 2.0 * ndtr(common * end / stddev) - 1.0
        return math.log((with_bend - case.delta) / without)

    recompute("gradient-E6", attained)
    (row,) = [c for c in su.cases() if c.place == "Algorithm 2"]
    assert row.claim().true_epsilon == pytest.approx(attained(row), rel=1e-12)


def test_e7_the_statistical_term_is_free_of_epsilon():
    """Losses |theta - x|^2 / 2: theta = mean - G / n, without a ridge."""
    d, delta, n = 10, 1e-6, 10**6
    for epsilon in (1.0, 0.01):
        variance = 128.0 * math.log(2.5 / delta) / epsilon**2
        risk = 0.5 * (1.0 / n + d * variance / n**2)
        assert risk == pytest.approx(0.5 / n + 0.5 * d * variance / n**2)
    noise_only = 0.5 * d * 128.0 * math.log(2.5 / delta) / (0.01 * n) ** 2
    assert risk - noise_only == pytest.approx(0.5 / n)  # and not 0.5 / (n epsilon)


def test_e7_few_records_refute_the_lower_bound():
    """The l_2 ball of diameter 1 and the answer 0, whose excess is at most 1."""
    n, epsilon, delta = 10, 1.0, 2.0**-10  # below 1/n^3
    bounds = []
    for d in (1e6, 1e9, 1e12):
        assert n <= math.sqrt(d * math.log(1.0 / delta)) / epsilon
        square = d / 4.0 * (1.0 - 1.0 / d)  # at most that of the width
        bound = square * math.log(1.0 / delta) / math.log(2.0 * d) ** 4
        bounds.append(bound / (epsilon * n) ** 2)
    assert bounds[0] < bounds[1] < bounds[2] and bounds[2] > 1e4


def test_e8_both_lemmas_fail_at_large_epsilon():
    def reached(case):
        number = 1.25 if "Lemma 2" in case.setting else 1.0
        gdp = case.epsilon / math.sqrt(2.0 * math.log(number / case.delta))
        return gaussian_epsilon(case.delta, gdp)

    recompute("gradient-E8", reached)
    for epsilon, constant, holds in (
        *((8.3, 1.25, True), (8.5, 1.25, False)),
        *((7.9, 1.0, True), (8.1, 1.0, False)),
    ):
        gdp = epsilon / math.sqrt(2.0 * math.log(constant / 1e-5))
        assert (gaussian_epsilon(1e-5, gdp) <= epsilon) == holds
    # Algorithm 3: 64 kappa log(1/delta) T (L / (n epsilon))^2, moved by 2 L / n a step.
    printed = math.sqrt(64.0 * math.log(1e6))
    assert printed / (2.0 / gdp_from_budget(1.0, 1e-6)) > 3.0
    # Lemma 1: T delta' + delta = 2 delta for delta' = delta / T.
    assert 7 * (1e-6 / 7) + 1e-6 == pytest.approx(2e-6)


def test_e8_the_noise_of_algorithm_3_vanishes_at_delta_near_one():
    """Theorem 6 is stated for every delta below 1; kappa = 1, the limit p = 2."""
    for delta, lost, holds in (
        (0.99, math.e, True),  # also without the factor e of kappa
        (0.998, 1.0, True),
        (0.999, 1.0, False),
    ):
        for epsilon in (0.25, 0.5, 0.99, 1.0):
            gdp = epsilon * math.sqrt(lost) / (4.0 * math.sqrt(-math.log(delta)))
            if holds:
                assert gaussian_epsilon(delta, gdp) <= epsilon
        assert (gaussian_epsilon(delta, gdp) <= 1.0) == holds
    assert gaussian_epsilon(0.999, gdp) > 5.0


def test_e9_truncation_removes_every_gradient_of_a_linear_loss():
    """F(w) = -3 w on [0, M], so beta = 0 and the minimizer is M."""
    M, smoothness, level, slope, w = 2.0, 0.0, 1.0, 3.0, 0.0
    for _ in range(100):
        kept = slope if slope <= smoothness * M + level else 0.0
        w = min(w + 0.1 * kept, M)
    assert w == 0.0  # excess risk 6, without noise, for every number of steps
    assert slope <= smoothness * M + slope + level  # with |grad F(theta*)| it is kept


def test_e10_a_bound_without_n_contradicts_the_mean():
    d, p = 16, 2.0
    for n in (10**4, 10**8):
        risk = 0.5 * d / n  # of a mean of n records, covariance I
        assert risk < 0.01 * d ** (0.5 - 1.0 / p)
        assert risk < d ** (0.5 - 1.0 / p) / math.sqrt(n) * math.sqrt(d)


def test_e11_disjoint_batches_need_less_noise_than_shuffling():
    n, delta = 10_000, 1e-8
    for epsilon, batch in ((0.05, 120), (0.2, 50), (1.0, 12)):
        shuffled = curves.shuffled_noise(epsilon, num_records=n, delta=delta)
        disjoint = 2.0 / gdp_from_budget(epsilon, delta)
        assert disjoint < math.sqrt(batch) * shuffled  # on the sum of a batch
    # Were the law closed under sums, fourth cumulants of a coordinate would vanish.
    for r, is_closed in ((2.0, True), (4.0, False)):
        d = 3
        radial = {2: d, 4: d * (d + 2)}
        moment = {
            m: radial[m]
            * gamma((m + 1) / r)
            * gamma(d / r)
            / (gamma(1 / r) * gamma((d + m) / r))
            for m in (2, 4)
        }
        assert (abs(moment[4] - 3.0 * moment[2] ** 2) < 1e-9) == is_closed


def test_e12_the_printed_step_size_ignores_units():
    M, beta, minimizer = 0.2, 1000.0, 0.05  # p near 2, kappa = d log(1/delta) = 1
    n_epsilon = max(beta**2, 1.0) * M**2
    level = math.sqrt(n_epsilon)
    T = round(M**2 * n_epsilon**2 / level**2)
    inverse_step = math.sqrt(T)
    assert inverse_step < beta / 2.0
    w, total = 0.0, 0.0
    for _ in range(T):
        gradient = beta * (w - minimizer)
        assert abs(gradient) <= beta * M + level
        w = min(max(w - gradient / inverse_step, -M / 2.0), M / 2.0)
        total += w
    excess = 0.5 * beta * (total / T - minimizer) ** 2
    assert excess > 1000.0 * M / math.sqrt(n_epsilon)  # the rate of Theorem 10
