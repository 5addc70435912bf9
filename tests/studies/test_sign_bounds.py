"""Lower bounds of the studies of stochastic convex optimization."""

import math

import numpy as np
import pytest
from scipy.special import betaln, binom, gammaln, ndtr
from scipy.stats import beta as beta_law

import dpsample as dps
from dpsample.privacy import gaussian_epsilon
from studies import gaussian_width
from studies._sign_bounds import (
    axis_floor,
    corner_floor,
    knowledge,
    mean_deviation,
    minimax,
)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
Q, DQ = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


@pytest.mark.parametrize(("alpha", "beta"), [(3.0, 3.0), (2.5, 6.0)])
def test_what_an_output_knows_it_owes_to_its_records(alpha, beta):
    n, prior = 5, beta_law.pdf(Q, alpha, beta) * DQ
    output = np.random.default_rng(1).uniform(-1.0, 1.0, n + 1)  # of the count
    k = np.arange(n + 1)[:, None]
    mass = binom(n, k) * Q**k * (1.0 - Q) ** (n - k)
    center = alpha / (alpha + beta)
    left = (alpha + beta) * ((output @ mass) * (Q - center)) @ prior
    right = (output @ (mass * (k - n * Q))) @ prior
    assert left == pytest.approx(right, rel=1e-9)
    assert abs(left) > 0.01


@pytest.mark.parametrize("center", [0.5, 0.25])
@pytest.mark.parametrize("n", [10, 1000])
def test_the_posterior_mean_is_near_the_floor_and_not_below(center, n):
    for signal in (0.15 / math.sqrt(n), 0.3 / math.sqrt(n)):
        total = center * (1.0 - center) / signal**2 - 1.0
        alpha, beta = total * center, total * (1.0 - center)
        k = np.arange(n + 1)
        choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        log = choose + betaln(alpha + k, beta + n - k) - betaln(alpha, beta)
        known = np.exp(log) @ np.abs((alpha + k) / (total + n) - center)
        least = mean_deviation(alpha, beta) - known
        floor = axis_floor(signal, n=n, d=1, budget=None, center=center)
        assert 0.5 * least <= floor <= least


def test_a_sign_that_is_the_mean_of_nothing_errs_by_its_signal():
    d, signal = 10_000, 0.01
    floor = corner_floor(signal, n=1, d=d, budget=None)
    assert floor == pytest.approx(signal, rel=0.02) and floor < signal


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_private_sign_knows_no_more_than_its_bound(epsilon):
    budget = dps.Budget(epsilon=epsilon, delta=1e-12)
    most = knowledge(budget, square=0.5, largest=1.0)
    answered = 2.0 * math.tanh(0.5 * epsilon) * Q * (1.0 - Q)  # randomized response
    assert answered.max() <= most
    assert answered.max() > 0.03 * most


@pytest.mark.parametrize("stddev", [0.8, 2.0, 10.0])
def test_a_sign_in_gaussian_noise_knows_no_more_than_its_bound(stddev):
    epsilon = gaussian_epsilon(1e-6, 2.0 / stddev)
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    most = knowledge(budget, square=0.5, largest=1.0, is_gaussian=True)
    noisy = 2.0 * (2.0 * ndtr(1.0 / stddev) - 1.0) * Q * (1.0 - Q)
    assert noisy.max() <= most
    if stddev == 10.0:
        assert noisy.max() > 0.35 * most


@pytest.mark.parametrize(("alpha", "beta"), [(3.0, 3.0), (2.5, 6.0), (50.0, 20.0)])
def test_the_mean_deviation_is_that_of_the_law(alpha, beta):
    center = alpha / (alpha + beta)
    whole = np.abs(Q - center) * beta_law.pdf(Q, alpha, beta) @ DQ
    assert mean_deviation(alpha, beta) == pytest.approx(whole, rel=1e-3)


def test_minimax_bounds_have_the_proved_constants():
    budget = dps.Budget(epsilon=0.1, delta=1e-12)
    free = minimax(corner_floor, n=10**6, d=1000, budget=None)
    assert 0.295 < free * 1e3 < 0.301
    private = minimax(corner_floor, n=10**5, d=10**6, budget=budget)
    assert 0.24 < private * 1e5 / 1e3 * math.sinh(0.1) <= 0.25
    assert minimax(corner_floor, n=10**6, d=4, budget=budget) == minimax(
        corner_floor, n=10**6, d=4, budget=None
    )


@pytest.mark.parametrize(("n", "d"), [(10_000, 10), (100_000, 300)])
def test_noisy_means_are_above_the_floor_of_mean_estimation(n, d):
    """Exact risk of c (mean of the rows + noise), the best c, at every law."""
    budget = gaussian_width.BUDGET
    gdp = dps.privacy.gdp_from_budget(budget.epsilon, budget.delta)
    signal = gaussian_width.SIGNALS**2 / d
    error = (1.0 - signal) / n + d * (2.0 / (n * gdp)) ** 2
    risk = 0.5 * signal * error / (signal + error)
    for is_gaussian in (False, True):
        floors = gaussian_width.floors(n, d, is_gaussian=is_gaussian)
        assert np.all(floors <= risk)
    assert floors.max() > 0.02 * risk[floors.argmax()]
