"""Numbered items of the papers that a short computation confirms."""

import itertools
import math

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom, norm

from dpsample.privacy.curves.shuffling import shuffle_delta, shuffle_total_delta


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


def log_concave(rng, x, curvature=0.0):
    """Random density on a grid, its logarithm at least so concave."""
    logs = -0.5 * (curvature + rng.exponential()) * (x - rng.normal()) ** 2
    for slope, kink in rng.normal(size=(3, 2)) * (3.0, 1.0):
        logs -= abs(slope) * np.maximum(x - kink, 0.0) + slope * x
    mass = np.exp(logs - logs.max())
    mass[(x < rng.uniform(-2.0, 0.0)) | (x > rng.uniform(0.0, 2.0))] = 0.0
    return mass / mass.sum()


def test_measures_are_log_concave_as_their_densities_are():
    """Proposition 1 of Gopi et al.: intervals, half of each, on a line."""
    x = np.linspace(-8.0, 8.0, 3201)
    rng = np.random.default_rng(5)

    def worst(mass):
        total, ratios = np.concatenate([[0.0], np.cumsum(mass)]), []
        for _ in range(2000):  # cells i to j - 1; the middle set begins at (i + k)/2
            i, k = 2 * rng.integers(0, 1500, 2)
            a, b = 2 * rng.integers(1, 50, 2)
            middle, width = (i + k) // 2, (a + b) // 2
            ends = total[i + a] - total[i], total[k + b] - total[k]
            held = total[middle + width] - total[middle]
            ratios.append(held / max(math.sqrt(ends[0] * ends[1]), 1e-300))
        return min(ratios)

    bumps = norm.pdf(x, -3.0) + norm.pdf(x, 3.0)
    assert worst(norm.pdf(x) / norm.pdf(x).sum()) >= 1.0 - 1e-9
    assert worst(1.0 / (1.0 + x**2) / np.sum(1.0 / (1.0 + x**2))) < 0.9
    assert worst(bumps / bumps.sum()) < 0.5


def test_no_log_concave_density_beats_the_log_affine_ones():
    """Proposition 2 of Gopi et al., as it is used: the largest mean of a function."""
    x = np.linspace(-2.0, 2.0, 161)
    rng = np.random.default_rng(6)
    goal, held = 1.0 / (1.0 + 4.0 * x**2), x**2 - 0.6  # mean of the second is >= 0
    best = dirac = max(goal[held >= 0.0])
    for i, j in itertools.combinations(range(0, 161, 4), 2):
        slopes = np.linspace(-30.0, 30.0, 241)
        mass = np.exp(np.outer(slopes, x[i : j + 1]) - 2.0 * np.abs(slopes)[:, None])
        mass /= mass.sum(axis=1, keepdims=True)
        fits = mass @ held[i : j + 1] >= 0.0
        best = max(best, (mass @ goal[i : j + 1])[fits].max(initial=-9.0))
    tried = [log_concave(rng, x) for _ in range(4000)]
    means = [mass @ goal for mass in tried if mass @ held >= 0.0]
    assert dirac < max(means) and 0.8 * best < max(means) <= best + 1e-3
    assert len(means) > 300


def test_cuts_end_in_a_segment_that_is_as_good():
    """Lemmas 1 to 3 of Gopi et al.: cut the plane as the proof does, down to lines."""
    rng = np.random.default_rng(7)
    places = np.stack(np.meshgrid(*[np.linspace(-2.0, 2.0, 81)] * 2), axis=-1)
    places = places.reshape(-1, 2)
    x, y = places.T
    angles = np.linspace(0.0, np.pi, 61)
    normals = np.stack([np.cos(angles), np.sin(angles)])
    for curved in (True, False) * 4:  # Lemmas 2 and 3
        mass = np.exp(-0.5 * (x**2 + y**2) - np.logaddexp(0, 4 * rng.normal() * x + y))
        tilt, waves = np.exp(-0.3 * np.abs(x - y)), np.sin(3 * x + rng.normal() * y)

        def value(part, curved=curved, mass=mass, tilt=tilt, waves=waves):
            own = mass[part] / mass[part].sum()
            tilted = own * tilt[part] / (own @ tilt[part])
            if curved:
                return (tilted - math.exp(0.1) * own) @ (waves[part] > 0.2)
            return (own - tilted) @ waves[part]

        part, tries = np.arange(len(places)), itertools.count()
        start = best = value(part)
        while np.linalg.eigvalsh(np.cov(places[part].T))[0] > 0.05**2:
            assert next(tries) < 200
            center = places[rng.choice(part, 8)].mean(axis=0)  # any interior point
            sides = ((places[part] - center) @ normals > 0.0).T
            halves = [part[own] for side in sides for own in (side, ~side) if own.any()]
            if value(max(halves, key=value)) < best - 1e-9:
                continue  # grids have no exact bisection: another point
            part = max(halves, key=value)
            best = value(part)
        assert best > start  # the part is thinner than a cell: a segment


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


def test_rate_of_theorem_7_comes_late():
    """Theorem 7 of Su, Zhao and Wang in l_2: exact risks of all parabolas."""
    dim, log, L, beta, distance = 10, math.log(1e6), 1.0, 0.25, 3.0

    def worst(n):
        rate = (math.sqrt(dim * log) / n) ** 0.4
        T = int(1.0 / rate)
        alpha = 4.0 * beta / T * math.log2(n / T)
        noise = dim * 64.0 * L**2 * T * log / n**2
        weights = (1.0 + 0.5 * alpha / beta) ** np.arange(1.0 - T, 1.0)
        weights /= weights.sum()
        risks = []
        for curvature in beta * np.geomspace(1e-5, 1.0, 26):
            filtered = [1.0], [1.0, (curvature - beta) / (beta + alpha)]
            pull = curvature * distance / (beta + alpha)
            bias = distance - weights @ lfilter(*filtered, np.full(T, pull))
            acts = lfilter(*filtered, weights[::-1]) / (beta + alpha)
            risks.append(0.5 * curvature * (bias**2 + noise * (acts @ acts)))
        return max(risks), rate * math.log2(n / T)

    sizes = 10.0 ** np.array([4, 5, 6, 8, 10, 12])
    risks, rates = np.transpose([worst(n) for n in sizes])
    slopes = np.diff(np.log10(risks)) / np.diff(np.log10(sizes))
    assert slopes[0] > -0.25 and slopes[-1] < -0.35  # the logarithm makes it late
    assert np.all(risks <= 5.0 * rates) and np.ptp(risks[2:] / rates[2:]) < 0.3


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_a_constant_makes_theorem_9_true(n):
    """Theorem 9 of Su, Zhao and Wang: 100 in the noise, epsilon up to the root."""
    for delta, share in itertools.product((0.3, 1e-3, 1e-6, 1e-12), (1.0, 0.1)):
        log = math.log(n / delta)
        epsilon = share * math.sqrt(log / n)
        noise = 10.0 * math.sqrt(log * math.log(1.0 / delta) / n) / epsilon
        own = {"local_delta": delta / (8 * n)}
        # Lemma 3 for a distance of two bounds, with the factor e that kappa lacks
        root = math.sqrt(2.0 * math.e * math.log(1.0 / own["local_delta"]))
        given = {"epsilon": epsilon, "local_epsilon": 2.0 * root / noise}
        given["num_records"] = n
        spent = shuffle_total_delta(shuffle_delta(**given), **given, **own)
        assert spent <= delta


def test_clipped_descent_ends_where_theorem_8_says():
    """Theorem 8 of Xu et al.: absolute losses, slopes with two moments, clipping."""
    rng = np.random.default_rng(8)
    radius, k, shares = 1.0, 2, []
    for n, ridge, threshold, num_steps in itertools.product(
        (5, 50), (0.1, 1.0, 5.0), (0.3, 1.0, 10.0), (3, 300)
    ):
        slopes = rng.standard_t(2.5, n)
        places = rng.uniform(-1.0, 1.0, n)
        grid = np.linspace(-radius, radius, 20_001)
        risk = sum(abs(s) * abs(grid - a) for s, a in zip(slopes, places, strict=True))
        best = grid[np.argmin(risk / n + 0.5 * ridge * grid**2)]
        w, step = 0.0, 0.5 / ridge
        for _ in range(num_steps):
            clipped = np.minimum(abs(slopes), threshold) * np.sign(w - places)
            w = np.clip(w - step * (clipped.mean() + ridge * w), -radius, radius)
        square = np.mean(slopes**2)
        bias = square / ((k - 1) * threshold ** (k - 1))
        bound = math.exp(-0.5 * ridge * step * num_steps) * best**2
        bound += 8.0 * step * square / ridge + 8.0 * step * ridge * (2 * radius) ** 2
        bound += 20.0 * bias**2 / ridge**2
        shares.append((w - best) ** 2 / bound)
    assert 1e-3 < max(shares) <= 1.0


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_terms_of_the_last_phase_obey_theorem_9(p):
    """Theorem 9 of Xu et al.: Theorem 8 and the noise, last phase, one record."""
    D = 1.0
    for n, d, epsilon, L, k in itertools.product(
        (2**8, 2**20, 2**40), (1, 100), (0.01, 1.0), (1.0, 1e4), (2, 8)
    ):
        noise = math.sqrt(d * math.log(1e6) * math.log(n)) / epsilon
        step = D * n ** (-0.5 * p) * min(1.0 / L, (n / noise) ** (1 - 1 / k))
        step = min(step, D * n ** (-p - 0.5) * (n / noise) ** (1 - 1 / k))
        step, ridge = step / n**2, n**2 / step  # of phase l = log2(n), moments 1
        threshold = noise ** (-1.0 / k)
        diameter, bias = 2.0 * L / ridge, threshold ** (1 - k) / (k - 1)
        steps = 2.0 * math.log(n**4) / (step * ridge)
        square = math.exp(-0.5 * ridge * step * steps) * diameter**2
        square += 8.0 * step * L**2 / ridge + 8.0 * step * ridge * diameter**2
        square += 20.0 * (bias / ridge) ** 2
        added = 8.0 * threshold * math.sqrt(d * math.log(1e6)) / (ridge * epsilon)
        assert L * (math.sqrt(square) + added) <= 16.0 * D * L / math.sqrt(n)


def test_minimizers_of_coins_obey_the_high_probability_bound():
    """Lemma 3 of Xu et al., (w - x)^2 / 2 with x = 0 or 1: c = 1 is enough."""
    for n, heads in itertools.product((10, 100, 1000), (0.03, 0.3, 0.5)):
        counts = np.arange(n + 1)
        excess = 0.5 * (counts / n - heads) ** 2
        for beta in (1.0 / n, 1e-6, 1e-12):
            log = math.log(1.0 / beta)
            bound = math.log(n) * log / n + math.sqrt(log / n)
            assert binom.pmf(counts, n, heads)[excess > bound].sum() <= beta
            tight = 0.5 * log / n  # Hoeffding's is 0.25 log(2 / beta) / n
            assert binom.pmf(counts, n, heads)[excess > tight].sum() <= beta


@pytest.mark.parametrize("theta", [1.5, 2.0, 4.0])
def test_restarts_stay_in_their_balls(theta):
    """Lemma 4 of Xu et al.: phases as bad as Theorem 1 allows, F = growth |w|^theta."""
    radius, risk, phases = 2.0, 0.3, 12
    start = 2.0 * radius ** (1.0 - theta) * risk
    for chosen in (1, 4, 9):
        growth = start * 2.0 ** ((theta - 1.0) * (chosen + 0.5))
        excess = []
        for k in range(1, phases + 1):
            now = 2.0 ** (1 - k) * radius
            if k <= chosen:  # the minimizer is in the ball
                excess.append(now * risk)
                level = start * 2.0 ** ((theta - 1.0) * k)
                assert excess[-1] == pytest.approx(level * (now / 2.0) ** theta)
                distance = (excess[-1] / growth) ** (1.0 / theta)
                assert distance <= 0.5 * now
            else:  # every phase may lose as much again
                excess.append(excess[-1] + now * risk)
        assert excess[-1] - excess[chosen - 1] <= 2.0 ** (1 - chosen) * radius * risk


def test_private_fano_holds_for_noisy_counts():
    """Lemma 5 of Xu et al., Phi 0 or 1: guess the likeliest category."""
    x, bounds = np.linspace(-60.0, 90.0, 30_001), []
    for n, M, share in itertools.product((1, 4, 20), (8, 64), (0.05, 0.2, 0.6)):
        # Category v or, if not, none: counts plus noise, one record moves two of them.
        noise = 2.0
        count = np.arange(n + 1)
        mass = binom.pmf(count, n, share)
        density = norm.pdf((x[:, None] - count) / noise) / noise @ mass
        correct = np.trapezoid(density * norm.cdf(x / noise) ** (M - 1), x)
        square = (n * share) ** 2 + n * share * (1.0 - share)
        bound = 1.0 - (square / noise**2 + math.log(2.0)) / math.log(M)
        bounds.append(0.5 * bound)
        assert 1.0 - correct >= bounds[-1]
    assert max(bounds) > 0.3
