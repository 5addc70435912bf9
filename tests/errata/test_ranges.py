"""Counterexamples and their ranges: each lies where the paper makes its claim."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from dpsample.papers import bassily, curves, gopi, su, xie
from dpsample.papers import verdicts as papers
from dpsample.privacy import gaussian_epsilon


def case_of(module, **fields):
    """Return the only case of a module with these fields."""
    (case,) = [
        case
        for case in module.cases()
        if all(getattr(case, name) == value for name, value in fields.items())
    ]
    return case


def test_theorem_3_of_gopi_holds_on_a_line_and_fails_from_the_plane_on():
    """Range: epsilon > 0, 0 < delta < 1/2, any d. Linear losses, one replaced."""
    for dim, expected in ((1, 0.94), (2, 1.195), (5, 1.48), (10, 1.62), (50, 1.685)):
        attained = gopi.ball_attack(dim=dim, epsilon=1.0, delta=1e-5)(1.0)
        assert attained == pytest.approx(expected, abs=6e-3)
        assert (attained > 1.0) == (dim > 1)


def test_theorem_3_of_gopi_holds_for_few_dimensions_and_small_delta():
    """The energy changes by at most k (2 G/n) D, where D^2 <= 8 Theta."""
    G, n, epsilon, Theta = 1.3, 500, 0.7, 0.5
    for dim, delta in ((1, 1e-8), (2, 1e-15), (3, 1e-22)):
        log = math.log(1.0 / (2.0 * delta))
        k = math.sqrt(dim) * n * epsilon / (G * math.sqrt(2.0 * Theta * log))
        change = k * (2.0 * G / n) * math.sqrt(8.0 * Theta)
        assert change == pytest.approx(4.0 * epsilon * math.sqrt(dim / log))
        assert (change <= epsilon) == (16.0 * dim <= log)
        attained = gopi.ball_attack(dim=dim, epsilon=epsilon, delta=delta)(1.0)
        assert 16.0 * dim <= log and attained <= change


def test_few_large_batches_are_in_the_range_of_algorithm_1():
    """Range: epsilon <= 1, delta <= 1/n^2, T an input, m as published."""
    n, epsilon, delta = bassily.NUM_RECORDS, 1.0, bassily.DELTA
    assert epsilon <= 1.0 and delta <= 1.0 / n**2 * (1.0 + 1e-12)
    steps = (epsilon * n) ** 2 / (32.0 * 170_000 * math.log(1.0 / delta))
    assert round(min(n / 8, steps)) == 1  # Theorem 3.2 at d = 170,000
    for num_steps in (1, 20):
        setting = f"n = 1e4, T = {num_steps}, m = {5000 if num_steps == 1 else 1118}"
        (case,) = [c for c in bassily.cases() if c.setting.startswith(setting)]
        assert case.relation == "replace_one" and case.epsilon_at(1.0) > epsilon


def test_the_tilt_of_bassily_is_attacked_in_its_range():
    """Range: rank 1, epsilon <= 1, delta <= 1/n^2, beta <= epsilon n lambda."""
    case = case_of(
        bassily,
        place="Algorithm 2, Theorem 5.2",
        setting="beta = epsilon n lambda",
        relation="replace_one",
        meaning="attack",
    )
    assert case.epsilon <= 1.0 and case.delta <= 1.0 / 100**2
    assert case.epsilon_at(1.0) > case.epsilon


def test_the_curvature_of_algorithm_2_of_su_is_in_its_range():
    """Range: 0 < epsilon, delta < 1, C symmetric and bounded, Delta > 0."""
    case = case_of(su, place="Algorithm 2")
    assert 0.0 < case.epsilon < 1.0 and 0.0 < case.delta < 1e-3
    n, beta, convexity = 1000, 1.0, 0.95 / (case.epsilon * 1000)
    assert beta / (case.epsilon * n) - convexity > 0.0  # lambda
    assert case.epsilon_at(1.0) > case.epsilon


def test_algorithm_2_of_su_holds_in_the_unit_ball_but_on_a_line():
    """Range: 0 < epsilon, delta < 1, C = [-1, 1] or the unit ball, linear models.

    At lambda = 0 the curvature is Delta = r beta/(epsilon n), so the ratio of beta/n
    and the curvature is epsilon/r, where r = 1 on a line and 2 otherwise.
    """
    for epsilon, delta in itertools.product((0.05, 0.25, 0.99), (1e-3, 1e-8, 1e-12)):
        noise = math.sqrt(128.0 * math.log(2.5 / delta)) / epsilon
        # sqrt(2 alpha/Delta) in the norm of C, twice, over the noise of the output.
        gdp = math.sqrt(2.0) * epsilon / math.sqrt(64.0 * math.log(2.5 / delta))
        proved = math.inf
        for share in (0.5, 0.9, 0.99):
            first = curves.objective(
                ratio=0.5 * epsilon,
                noise=noise,
                delta=share * delta,
                relation="replace_one",
            )
            second = gaussian_epsilon((1.0 - share) * delta, gdp)
            proved = min(proved, first(1.0) + second)
        assert proved <= 0.9 * epsilon
    noise = math.sqrt(128.0 * math.log(2.5 / 1e-8)) / 0.05
    line = curves.huber_attack(
        ratio=0.05, noise=noise, delta=1e-8, relation="replace_one"
    )
    assert line(1.0) == pytest.approx(0.0541, rel=1e-3)
    # The loss bends on an interval that is L/beta long, at most six deviations of the
    # minimizer from 0: all of it is in [-1, 1] for a large beta.
    smoothness, records = 2000.0, 10**9
    assert 8.0 * noise * 0.05 / smoothness < 1.0
    assert smoothness / (0.05 * records) < 1e-4  # Delta, small beside L = 1


def test_one_mean_of_xie_is_in_the_range_of_its_simulations():
    """Range: epsilon = 0.5, 1, 3 and delta = 1/n, n = 10,000."""
    for epsilon, is_private in ((0.5, True), (1.0, False), (3.0, False)):
        case = case_of(xie, place="Algorithm 3", epsilon=epsilon)
        assert case.delta == 1.0 / 10_000
        assert (case.epsilon_at(1.0) <= epsilon) == is_private


def test_the_constants_of_bassily_follow_from_their_lemmas():
    """Theorem 3.2 with 7.8 in place of 10; Lemma 5.4 and Theorem 5.3 with 1.25."""
    for n, d, epsilon in itertools.product((100, 10**6), (1, 10**4), (0.01, 1.0)):
        log = math.log(float(n) ** 2)
        rate = max(math.sqrt(d * log) / (epsilon * n), 1.0 / math.sqrt(n))
        T = min(n / 8.0, (epsilon * n) ** 2 / (32.0 * d * log))
        eta = 1.0 / math.sqrt(T)  # M = L = 1
        noise = 16.0 * T * d * log / (epsilon * n) ** 2
        bound = 1.0 / (2.0 * eta * T) + 0.5 * eta * (noise + 1.0) + 2.0 * eta * T / n
        assert bound <= 7.8 * rate
        root = math.sqrt(2.0 / n + 4.0 * d * log / (epsilon * n) ** 2)
        ridge, variance = 2.0 * root, 10.0 * log / epsilon**2
        risk = d * variance / (8.0 * ridge * n**2) + 0.5 * ridge + 1.0 / (ridge * n)
        assert risk <= 1.25 * root * (1.0 + 1e-12)
    # One step of the proof: F(w) - F(w*) <= |g + 2 lambda w*|^2/(8 lambda) for the
    # minimizer w of F + <g, .> + lambda |.|^2, here for F = slope |w - a| on a line.
    grid = np.linspace(-1.0, 1.0, 20_001)
    for slope, a, tilt, ridge in itertools.product(
        (0.1, 1.0), (-0.7, 0.2), (-0.5, 0.0, 0.8), (0.1, 1.0)
    ):
        F = slope * np.abs(grid - a)
        w = np.argmin(F + tilt * grid + ridge * grid**2)
        assert F[w] <= (tilt + 2.0 * ridge * a) ** 2 / (8.0 * ridge) + 1e-6


def test_truncation_of_theorem_10_of_su_removes_all_gradients_at_every_n():
    """Range: n >= O(M^2 sqrt(d kappa^2 log)/epsilon), epsilon = O(n^-1/2), F convex."""
    M, d, log, ratios = 1.0, 1.0, math.log(1e6), []
    for n in (10**4, 10**6, 10**8):
        epsilon = math.sqrt(math.log(n * 1e6) / n)
        level = math.sqrt(n * epsilon) / (d * log) ** 0.25  # kappa = 1
        assert n >= M**2 * math.sqrt(d * log) / epsilon
        slope, w = 3.0 * level, 0.0  # F(w) = -slope w on [0, M], the same for all x
        for _ in range(10):
            gradient = slope if slope <= level else 0.0  # beta = 0
            w = min(w + gradient, M)
        rate = M * (d * log) ** 0.25 / math.sqrt(n * epsilon)
        ratios.append(slope * (M - w) / rate)
        assert ratios[-1] == pytest.approx(3.0 * n * epsilon / math.sqrt(d * log))
    assert ratios[0] > 50.0 and np.all(np.diff(np.log(ratios)) > 2.0)  # no O(1)


def test_no_method_has_the_risk_of_theorem_8_of_su_near_zero():
    """Range: convex, 1-smooth, Lipschitz losses; p = 2, d = 1. Without privacy.

    The losses are (theta - x)^2/2 near 0, x = 1/2 with probability (1 +- eta)/2, else
    -1/2, so that theta* = +-eta/2 with eta = 1/sqrt(n).
    """
    ratios = []
    for n in (10**2, 10**4, 10**6):
        eta, counts = 1.0 / math.sqrt(n), np.arange(n + 1)
        up, down = (binom.pmf(counts, n, 0.5 * (1.0 + s * eta)) for s in (1, -1))
        total = up + down
        # Mean over both signs of the variance of theta* given the data, halved.
        risk = 0.5 * (0.5 * eta) ** 2 * 2.0 * (up * down / np.maximum(total, 1e-300))
        assert risk.sum() * n == pytest.approx(0.056, abs=1e-3)
        ratios.append(risk.sum() / ((0.5 * eta) ** 2 / math.sqrt(n)))
    np.testing.assert_allclose(ratios, [2.24, 22.5, 225.0], rtol=5e-3)


def to_l1_ball(point):
    """Return the projection on the unit l_1 ball."""
    sizes = np.sort(np.abs(point))[::-1]
    levels = (np.cumsum(sizes) - 1.0) / np.arange(1.0, len(sizes) + 1.0)
    level = levels[np.flatnonzero(sizes > levels)[-1]]
    return np.sign(point) * np.maximum(np.abs(point) - max(level, 0.0), 0.0)


def test_the_accuracy_of_theorem_2_of_su_needs_the_power_of_remark_1():
    """Range: n >= O(sqrt(d log(1/delta))/epsilon). Output noise from the center."""
    epsilon, delta, L, errors = 0.9, 0.1, 1.0, {1.5: [], 2.5: []}
    log = math.log(1.0 / delta)
    sizes = (30, 300, 1500)
    for n, power in itertools.product(sizes, errors):
        d = n**2 // 4
        assert n >= math.sqrt(d * log) / epsilon
        width, diameter = math.sqrt(2.0 * math.log(d)), 2.0
        ridge = L / (math.sqrt(n) * diameter)
        alpha = epsilon**2 * L * diameter**3 / (width**2 * log * n**power)
        alpha = min(alpha, L * diameter / n**1.5)
        stddev = math.sqrt(64.0 * alpha * math.log(2.5 / delta) / ridge) / epsilon
        noise = stddev * np.random.default_rng(n).standard_normal(d)
        errors[power].append(math.sqrt(n) * np.linalg.norm(to_l1_ball(noise)))
    slopes = {
        power: np.polyfit(np.log(sizes), np.log(values), 1)[0]
        for power, values in errors.items()
    }
    # Relative to 1/sqrt(n): n^(1/4) up to logarithms, and bounded.
    assert slopes[1.5] > 0.15
    assert slopes[2.5] < 0.03


def first_phase(n_1, sign, *, num_records, eta=1.0, clip=1.0):
    """Return the output of the first phase of LNC-GM, before noise, and its lambda.

    Range: convex 1-smooth losses, eta <= 1/alpha = 1, p = 1, T of the order
    1/(lambda eta). n_1 - 4 quadratics have four centers, two linear losses cancel, one
    loss is 0, and one is |w - c|^2/2 with c = (0, +-4100).
    """
    step = eta / 4.0
    ridge = 1.0 / (step * n_1**2)
    size, weight = 0.01 / ridge, (n_1 - 4) // 4
    corners = [(12.0 * size * s, 18.0 * size * t) for s in (-1, 1) for t in (-1, 1)]
    x = y = 0.0
    for _ in range(math.ceil(math.log(num_records) / (ridge * step))):
        g = h = 0.0
        for a, b in corners:
            slant = math.copysign(0.45, a * b)
            u = 0.5 * (x - a) - slant * (y - b)
            v = 0.5 * (y - b) - slant * (x - a)
            scale = weight * min(1.0, clip / math.hypot(u, v))
            g, h = g + scale * u, h + scale * v
        u, v = x, y - 100.0 * size * sign
        scale = min(1.0, clip / math.hypot(u, v))
        g, h = g + scale * u, h + scale * v
        x, y = x - step * (g / n_1 + ridge * x), y - step * (h / n_1 + ridge * y)
    return np.array([x, y]), ridge


def test_the_first_phase_of_lnc_gm_follows_one_record():
    """Range: 0 < epsilon <= sqrt(log(1/delta)), 0 < delta < 1.

    Later phases read other records, whose losses are 0 here: they start and end at the
    output of the first one, and add noise that is 500 times smaller.
    """
    epsilon, delta, n, n_1 = 1.0, 1e-5, 256, 128
    assert 0.0 < epsilon <= math.sqrt(math.log(1.0 / delta))
    ends = [first_phase(n_1, sign, num_records=n) for sign in (1.0, -1.0)]
    ridge = ends[0][1]
    distance = np.linalg.norm(ends[0][0] - ends[1][0])
    assert distance / (2.0 / (n_1 * ridge)) == pytest.approx(7.07, abs=0.02)
    root, variance = 8.0 * math.sqrt(math.log(1.0 / delta)) / epsilon, 0.0
    for phase in range(1, 9):
        size, step = n >> phase, 0.25**phase
        lam = 1.0 / (step * size ** (2.0 if phase == 1 else 1.0))
        variance += (root / (size * lam)) ** 2  # clip 1, the largest, in all phases
    assert variance < (1.0 + 1e-3) * (root / (n_1 * ridge)) ** 2
    assert gaussian_epsilon(delta, distance / math.sqrt(variance)) > 2.0


def test_private_fano_needs_half_the_distance():
    """Lemma 5 of Xu et al. with Phi(t) = t^4: answer the mean of 64 points."""
    M, gain = 64, 1e-3
    points = np.eye(M) / math.sqrt(2.0)  # any two have distance 1, so alpha is 1
    loss = np.linalg.norm(points - points.mean(axis=0), axis=1) ** 4
    densities = (1.0 + gain * (M * np.eye(M) - 1.0)) / M  # each row for one record
    divergence = densities[0] @ np.log(densities[0] / densities[1])
    bound = 0.5 * (
        1.0 - (divergence + math.log(2.0)) / math.log(M)
    )  # n = 1, no privacy
    assert loss.mean() < 0.6 * bound  # and no record is read
    assert loss.mean() > 2.0**-4 * 2.0 * bound  # Phi(1/2) in place of alpha/2


def test_every_cause_with_a_counterexample_runs_it_here():
    for cause in papers.causes():
        if cause.verdict in ("false as printed", "needs a stated assumption"):
            assert any(name.startswith("tests/errata/") for name in cause.tests), cause
