"""Numbered items of the papers that a short computation confirms."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm


def test_stability_bounds_the_generalization_gap():
    """Lemma 2.2 of Bassily et al., Proposition 6 of Gopi et al.: n = 3 coin tosses."""
    n, heads = 3, 0.3

    def answer(data):
        return 0.8 * np.mean(data)

    def loss(w, s):
        return abs(w - s)

    gap = swapped = most = 0.0
    for tosses in itertools.product((0, 1), repeat=n + 1):
        data, s = tosses[:n], tosses[n]
        mass = np.prod([heads if x else 1.0 - heads for x in tosses])
        w, other = answer(data), answer((s, *data[1:]))
        gap += mass * (loss(w, s) - np.mean([loss(w, x) for x in data]))
        swapped += mass * (loss(w, s) - loss(other, s))
        most = max(most, *(abs(loss(w, z) - loss(other, z)) for z in (0, 1)))
    assert gap == pytest.approx(swapped)
    assert 0.3 * most < gap <= most == pytest.approx(0.8 / n)


@pytest.mark.parametrize("ridge", [0.003, 0.03, 0.3])
def test_linear_losses_stay_below_lemmas_5_4_and_5_5(ridge):
    """Losses -s w on [-M, M], |s| <= L, so the minimizer is a clipped normal."""
    L, M, n, epsilon, log = 1.0, 2.0, 300, 0.5, math.log(1e6)
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    tilt = points * math.sqrt(10.0 * log) * L / epsilon
    bound = 16.0 * L**2 * log / (n * epsilon) ** 2 / ridge + ridge * M**2
    for mean in (0.0, 0.03, 0.3, 1.0):
        w = ((mean - tilt / n) / (2.0 * ridge)).clip(-M, M)
        assert mean * M - weights @ (mean * w) <= bound
    moved = (2.0 * L / n) / (2.0 * ridge)
    assert L * moved == pytest.approx(0.5 * 2.0 * L**2 / (ridge * n))


@pytest.mark.parametrize(
    ("change", "is_attained"), [(lambda x: x, True), (np.abs, False), (np.cos, False)]
)
def test_close_densities_have_close_means(change, is_attained):
    """Proposition 5, Fact 1 and Corollary 1 of Gopi et al. on a line."""
    convexity, H, G = 3.0, 0.7, 2.0
    x = np.linspace(-7.0, 7.0, 400_001)
    energy = 0.5 * (convexity + H) * x**2  # cos takes up to H of it away
    laws, means = [], []
    for potential in (energy, energy + H * change(x)):
        mass = np.exp(-potential)
        mass /= mass.sum()
        laws.append(np.interp(np.arange(0.5, 20_000) / 20_000, np.cumsum(mass), x))
        means.append(G * (mass @ x))
    distance = math.sqrt(np.mean((laws[0] - laws[1]) ** 2))
    slack = 1e-3
    assert abs(means[0] - means[1]) <= G * distance + slack
    assert distance <= H / convexity + slack
    assert abs(means[0] - means[1]) <= G * H / convexity + slack
    if is_attained:
        assert distance == pytest.approx(H / (convexity + H), abs=slack)


@pytest.mark.parametrize("p", [1.2, 1.7, 2.0])
def test_convexity_on_a_segment_is_that_of_the_norm(p):
    """Lemma 4 of Gopi et al. for |x|_p^2 / (2 (p - 1)), 1-strongly convex in l_p."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        a, b = rng.standard_normal((2, 5)) * rng.random((2, 5)) ** 4
        scale = (np.linalg.norm(b - a, p) / np.linalg.norm(b - a)) ** 2
        ends = np.sort(rng.random(2))
        points = [a + t * (b - a) for t in (ends[0], ends.mean(), ends[1])]
        low, middle, high = (np.linalg.norm(v, p) ** 2 / (2 * (p - 1)) for v in points)
        apart = np.linalg.norm(points[2] - points[0])
        assert middle <= (low + high) / 2 - scale * apart**2 / 8 + 1e-12


def test_lipschitz_functions_concentrate():
    """Lemma 5 of Gopi et al.: potentials 1-strongly convex, |x| and x."""
    x = np.linspace(-8.0, 8.0, 160_001)
    for extra in (0.0, 1.0):
        mass = np.exp(-0.5 * x**2 - extra * x**4)
        mass /= mass.sum()
        for values in (x, np.abs(x), np.minimum(x, 0.5)):
            for t in (0.1, 0.5, 1.0, 2.0, 4.0):
                tail = mass[values - mass @ values >= t].sum()
                assert tail <= math.exp(-(t**2) / 2.0)
    assert norm.sf(3.0) > 0.1 * math.exp(-4.5)  # not idle


def test_advanced_composition_holds_for_randomized_response():
    """Lemma 1 of Su, Zhao and Wang; delta' = 0."""
    for T, epsilon, delta in ((10, 0.9, 1e-3), (200, 0.5, 1e-6)):
        each = epsilon / (2.0 * math.sqrt(2.0 * T * math.log(2.0 / delta)))
        truths = np.arange(T + 1)
        honest = 1.0 / (1.0 + math.exp(-each))
        p, q = binom.pmf(truths, T, honest), binom.pmf(truths, T, 1.0 - honest)
        assert np.maximum(p - math.exp(epsilon) * q, 0.0).sum() <= delta


@pytest.mark.parametrize("theta", [1.5, 2.0, 4.0])
def test_growth_bounds_the_distance_and_the_gap(theta):
    """Lemma 1 of Xu et al.: attained by F = L |w| as far out as it has the growth."""
    growth, L = 0.6, 1.7
    reach = (L / growth) ** (1.0 / (theta - 1.0))
    w = np.linspace(1e-3, reach, 1000)
    assert np.all(L * w >= growth * w**theta * (1.0 - 1e-12))
    assert L * 1.001 * reach < growth * (1.001 * reach) ** theta  # no farther
    gap = (L**theta / growth) ** (1.0 / (theta - 1.0))
    assert L * w[-1] == pytest.approx(gap)


def test_moments_of_larger_batches_are_smaller():
    """Lemma 2 of Xu et al.: sup over w of the mean of |w - x|^k, three values of x."""
    values, masses, k = np.array([-3.0, 0.0, 2.0]), np.array([0.1, 0.6, 0.3]), 4
    gradients = np.abs(np.linspace(-1.0, 1.0, 41)[:, None] - values) ** k
    moments = []
    for m in (1, 2, 4):
        batches = np.array(list(itertools.product(range(3), repeat=m)))
        largest = gradients[:, batches].mean(axis=2).max(axis=0)
        moments.append(masses[batches].prod(axis=1) @ largest)
    assert moments[0] > moments[1] > moments[2]
    assert moments[2] > (gradients @ masses).max()
