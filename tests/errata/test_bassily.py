"""Errata of Bassily et al. (2019)."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpsample.papers import bassily, curves
from dpsample.papers.curves import huber_attack
from dpsample.privacy import gaussian_epsilon
from tests.support.errata import recompute

LOG = math.log(1e8)


def objective_attack(case, *, ratio, factor=10.0, epsilon=1.0):
    """Epsilon of a Huber loss when sigma^2 = ``factor`` L^2 log(1e8) / epsilon^2."""
    relation = "zero_out" if "zero" in case.setting else "replace_one"
    noise = math.sqrt(factor * LOG) / epsilon
    return huber_attack(ratio=ratio, noise=noise, delta=case.delta, relation=relation)(
        1.0
    )


def test_1_the_definition_of_smoothness_lacks_one_half():
    v, w = np.random.default_rng(1).standard_normal((2, 100))
    gap = v**2 - w**2 - 2.0 * w * (v - w)
    np.testing.assert_allclose(gap, 1.0 * (v - w) ** 2)  # beta = 1 as printed
    np.testing.assert_allclose(gap, 2.0 / 2.0 * (v - w) ** 2)  # beta = 2 as usual
    for step, contracts in ((1.0, True), (1.01, False)):
        assert (abs(1.0 - 2.0 * step) <= 1.0) == contracts
    recompute("BFTT-1", lambda case: objective_attack(case, ratio=1.0))


def test_2_from_an_arbitrary_start_lemma_3_3_fails():
    L, M, T = 2.0, 1.5, 400
    eta = M / (L * T)

    def excess(start):
        """Of the mean iterate for the loss -L w on [-M, M], without noise."""
        iterates = np.minimum(start + eta * L * np.arange(1, T + 1), M)
        return L * (M - iterates.mean())

    printed = M**2 / (2.0 * eta * T) + eta * L**2 / 2.0
    assert excess(-M) > 2.5 * printed
    assert excess(-M) < (2.0 * M) ** 2 / (2.0 * eta * T) + eta * L**2 / 2.0
    assert excess(0.0) < printed
    # One step from next to the minimizer of L |w| ends eta L behind it.
    eta, near = 0.1, 1e-3
    one_step = L * abs(near - eta * L)
    assert one_step > 1.9 * (near**2 / (2.0 * eta) + eta * L**2 / 2.0)


def test_3_stability_and_noise_have_a_factor_two_to_spare():
    L, n, T, eta = 1.0, 50, 40, 0.1
    slopes = np.full(n, L)
    neighbor = np.append(-slopes[:1], slopes[1:])
    steps = np.arange(1, T + 1)
    apart = np.abs(-eta * slopes.mean() * steps + eta * neighbor.mean() * steps)
    np.testing.assert_allclose(apart, 2.0 * L * eta * steps / n)
    assert L * apart.mean() == pytest.approx(L**2 * eta * (T + 1) / n)
    assert L * apart.mean() < 0.52 * 2.0 * L**2 * T * eta / n
    # E |w - eta (g + G)|^2 - |w|^2 = -2 eta w g + eta^2 (g^2 + sigma^2 d), over 2 eta.
    w, g, variance, d = 0.7, 0.3, 4.0, 1
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    moved = (w - eta * (g + math.sqrt(variance) * points)) ** 2
    growth = (weights @ moved / weights.sum() - w**2) / (2.0 * eta)
    assert growth + w * g == pytest.approx(eta * (g**2 + variance * d) / 2.0)


def test_4_few_steps_with_replacement_are_not_private():
    def attained(case):
        num_steps = int(case.setting.split("T = ")[1].split(",")[0])
        batch = round(10_000 * math.sqrt(1.0 / (4.0 * num_steps)))
        assert f"m = {batch}" in case.setting
        stddev = math.sqrt(8.0 * num_steps * LOG) / 10_000
        return curves.with_replacement(
            "(2r, 0)",
            batch=batch,
            num_records=bassily.NUM_RECORDS,
            noise_multiplier=stddev * batch,
            num_steps=num_steps,
            delta=case.delta,
        )(1.0)

    recompute("BFTT-4", attained)


def test_5_the_envelope_has_the_lipschitz_constant_of_the_loss():
    u = np.linspace(-40.0, 40.0, 4001)
    for strength in (0.1, 1.0, 30.0):
        c = 1.0 / strength
        proxes = (
            np.where(u >= 1.0, u, np.minimum(u + c, 1.0)),  # hinge, L = 1
            np.sign(u) * np.maximum(np.abs(u) - c, 0.0),  # absolute, L = 1
            np.where(u > 0.3 * c, u - 0.3 * c, np.minimum(u + 0.7 * c, 0.0)),  # L = .7
        )
        for prox, lipschitz in zip(proxes, (1.0, 1.0, 0.7), strict=True):
            slope = strength * np.abs(u - prox).max()
            assert slope == pytest.approx(lipschitz)
    smoothing = 4.0  # 2 M L max(1/sqrt(n), 2 ...) is at most 4 M L max(...)
    assert (20.0 + smoothing, 10.0 + smoothing) == (24.0, 14.0)


def test_6_a_gap_gives_a_distance_with_a_factor_two():
    M, tau = 1.0, 50
    gap = 8.0 * M**2 / tau
    distance = math.sqrt(2.0 * gap)  # of half a square, which is 1-strongly convex
    assert 0.5 * distance**2 == pytest.approx(gap)
    assert distance == pytest.approx(math.sqrt(16.0 * M**2 / tau))
    assert distance > 1.4 * math.sqrt(8.0 * M**2 / tau)


@pytest.mark.parametrize("minimizer", [-0.9, 0.0, 0.3])
def test_6_half_of_the_steps_of_fact_4_6_are_enough(minimizer):
    """Of M |v - a| + |v - w|^2 / 2 on [-M, M], the subgradient at a being the worst."""
    M = 1.0
    for w in (-1.0, 0.2, 1.0):
        prox = minimizer + np.sign(w - minimizer) * max(abs(w - minimizer) - M, 0.0)
        for worst in (-1.0, 1.0):
            v, bound = -np.sign(prox + 1e-9) * M, math.inf
            for t in range(1, 400):
                slope = M * (np.sign(v - minimizer) or worst)
                step = v - (slope + v - w) / t
                v, last = np.clip(step, -M, M), abs(v - prox)
                # The recursion, and what it sums up to.
                assert abs(v - prox) ** 2 <= (1 - 1 / t) ** 2 * last**2 + (
                    2.0 * M / t
                ) ** 2 * (1.0 + 1e-12)
                bound = 4.0 * M**2 / t
                assert abs(v - prox) ** 2 <= bound * (1.0 + 1e-12)


def test_7_objective_perturbation_fails_under_replace_one():
    recompute("BFTT-7", lambda case: objective_attack(case, ratio=0.5))
    n, d, epsilon, L, M = 1000, 5, 0.5, 1.0, 2.0
    inner = 2.0 / n + 4.0 * d * LOG / (epsilon * n) ** 2
    ridge = 2.0 * L / M * math.sqrt(inner)
    # The display before the theorem's conclusion, at the theorem's lambda.
    proved = 8.0 / ridge * (2.0 * L**2 * d * LOG / (epsilon * n) ** 2 + L**2 / n)
    proved += ridge * M**2
    assert proved == pytest.approx(2.0 * (2.0 * M * L * math.sqrt(inner)))


def test_8_the_note_lost_epsilon_squared():
    n, d, epsilon, L, M = 1000, 5, 0.5, 1.0, 2.0
    ridge = 2.0 * L / M * math.sqrt(2.0 / n + 4.0 * d * LOG / (epsilon * n) ** 2)
    allowed = epsilon * n * ridge
    common = 2.0 * epsilon * L / M
    assert allowed == pytest.approx(
        common * math.sqrt(2.0 * n + 4.0 * d * LOG / epsilon**2)
    )
    assert common * math.sqrt(2.0 * n + 4.0 * d * LOG) < allowed


def test_9_the_determinant_is_relative_to_two_n_lambda():
    n, ridge, beta = 40, 0.3, 2.0
    row = np.array([0.6, 0.8])
    others = 2.0 * n * ridge * np.eye(2)  # Hessian of n times the ridge, linear losses
    with_one = others + beta * np.outer(row, row)
    changed = np.linalg.det(with_one) / np.linalg.det(others)
    assert changed == pytest.approx(1.0 + beta / (2.0 * n * ridge))
    assert changed < 0.2 * (1.0 + beta / ridge)


def test_10_the_first_half_of_algorithm_3_spends_more_than_half():
    recompute("BFTT-10", lambda case: objective_attack(case, ratio=0.5, factor=20.0))
    second = 2.0 / math.sqrt(40.0 * LOG)  # distance 2 sqrt(alpha / lambda)
    assert gaussian_epsilon(5e-9, second) < 0.5


def test_11_epochs_that_restart_at_the_first_point_do_not_converge():
    """F(w) = w^2 / 2, one record: the corrected gradient is F' at the iterate."""

    def epochs(is_printed, num_epochs=30, first=1.0):
        anchor = first
        for _ in range(num_epochs):
            w = first if is_printed else anchor
            total = 0.0
            for _ in range(20):
                total += w
                w -= 0.1 * w
            anchor = total / 20.0
        return anchor

    assert 0.5 * epochs(True) ** 2 > 0.9**30 * 0.5
    assert 0.5 * epochs(False) ** 2 < 0.9**30 * 0.5


def test_12_the_lower_bound_needs_epsilon():
    n, d = 10_000, 500
    ratios = {True: [], False: []}
    for epsilon in (1.0, 0.1):
        upper = max(math.sqrt(d) / (epsilon * n), 1.0 / math.sqrt(n))
        for has_epsilon, values in ratios.items():
            scale = epsilon if has_epsilon else 1.0
            values.append(upper / max(math.sqrt(d) / (scale * n), 1.0 / math.sqrt(n)))
    assert ratios[True] == [1.0, 1.0]
    assert ratios[False][1] > 2.0
    for delta in (0.1, 1e-3, 1e-8):
        assert binom.sf(4.0 * math.log(2.0 / delta), n, 1.0 / n) <= delta / 2.0
