"""Loss distributions: above brute force, close to it, and in one unit."""

import itertools
import math

import numpy as np
import pytest
from mpmath import exp, fsum, log, mpf, ncdf, sqrt, workdps
from scipy import fft
from scipy.stats import norm

from dpsample.privacy import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
    delta_of,
    epsilon_of,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsample.privacy.accounting import convolution, loss_distributions
from dpsample.privacy.accounting.convolution import LossDistribution
from tests.support.tiers import one_in, usual

POISSON = PoissonGaussianEvent(sampling_rate=0.2, noise_multiplier=3.0, num_steps=20)


def delta(event, epsilon, relation="replace_one"):
    return delta_of(event, epsilon=epsilon, relation=relation)


def epsilon(event, delta, relation="replace_one"):
    return epsilon_of(event, delta=delta, relation=relation)


def product_delta(pairs, e):
    """Exact divergence of a product of discrete pairs, by enumeration."""
    first, second = np.ones(1), np.ones(1)
    for p, q in pairs:
        first = np.outer(first, p).ravel()
        second = np.outer(second, q).ravel()
    return float(np.maximum(first - math.exp(e) * second, 0.0).sum())


def response(local, fails=0.0):
    """Randomized response that reveals its input with probability ``fails``."""
    p = 1.0 / (1.0 + math.exp(-local))
    kept = (1 - fails) * np.array([p, 1 - p])
    return np.append(kept, [fails, 0]), np.append(kept[::-1], [0, fails])


def normal_pair(gdp, num_cells=400):
    """Two Gaussians cut into cells: post-processing, hence a lower bound."""
    edges = np.append(np.linspace(-8.0, 8.0 + gdp, num_cells), np.inf)
    edges = np.insert(edges, 0, -np.inf)
    return np.diff(norm.cdf(edges - gdp)), np.diff(norm.cdf(edges))


CASES = {
    "pure": ((PureEvent(0.7),), [response(0.7)]),
    "approximate": (
        (ApproximateEvent(epsilon=0.3, delta=0.01),),
        [response(0.3, 0.01)],
    ),
    "five pure": (
        tuple(PureEvent(x) for x in (0.1, 0.2, 0.3, 0.35, 0.1234)),
        [response(x) for x in (0.1, 0.2, 0.3, 0.35, 0.1234)],
    ),
    "equal pure": ((PureEvent(0.25),) * 6, [response(0.25)] * 6),
    "mixed": (
        (PureEvent(0.2), ApproximateEvent(epsilon=0.4, delta=1e-3), PureEvent(0.2)),
        [response(0.2), response(0.4, 1e-3), response(0.2)],
    ),
    "pure and Gaussian": (
        (PureEvent(0.5), GaussianEvent(0.8)),
        [response(0.5), normal_pair(0.8)],
    ),
    "all": (
        (GaussianEvent(0.5), ApproximateEvent(epsilon=0.2, delta=1e-4), PureEvent(0.3)),
        [normal_pair(0.5), response(0.2, 1e-4), response(0.3)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_composition_is_above_and_close_to_enumeration(case):
    events, pairs = CASES[case]
    for e in (0.0, 0.15, 0.6, 1.1):
        exact = product_delta(pairs, e)
        found = delta(ComposedEvent(events), e)
        assert exact - 1e-12 <= found <= exact * 1.003 + 3e-5


def test_order_does_not_matter():
    events = (GaussianEvent(0.5), PureEvent(0.3), POISSON)
    found = [delta(ComposedEvent(o), 1.0) for o in itertools.permutations(events)]
    assert np.ptp(found) <= 1e-9 * found[0]


def test_equal_steps_add_up():
    half = PoissonGaussianEvent(
        sampling_rate=0.2, noise_multiplier=3.0, num_steps=POISSON.num_steps // 2
    )
    assert delta(ComposedEvent((half, half)), 1.0) == delta(POISSON, 1.0)
    one = PoissonGaussianEvent(sampling_rate=0.2, noise_multiplier=3.0, num_steps=1)
    assert delta(one, 1.0) < delta(half, 1.0) < delta(POISSON, 1.0)


def test_sampled_and_unsampled_gaussian_events_share_one_unit():
    """Merging must not double the distance of the event that has no sampling."""
    one = PoissonGaussianEvent(sampling_rate=1.0, noise_multiplier=4.0, num_steps=4)
    almost = PoissonGaussianEvent(
        sampling_rate=1.0 - 1e-9, noise_multiplier=4.0, num_steps=4
    )
    for relation, shift in (("replace_one", 2.0), ("zero_out", 1.0)):
        total = math.hypot(0.7, 2.0 * shift / 4.0)
        for event in (one, almost):
            both = ComposedEvent((event, GaussianEvent(0.7)))
            exact = gaussian_delta(1.0, total)
            assert delta(both, 1.0, relation) == pytest.approx(exact, rel=1e-3)


def test_concentrated_events_compose_with_all_others():
    rho = 0.02
    concentrated = ConcentratedEvent(rho)
    # A Gaussian mechanism is one with this rho: the bound must be above its truth.
    gaussian = GaussianEvent(math.sqrt(2 * rho))
    for others in ((POISSON,), (PureEvent(0.4), POISSON), (PureEvent(0.2),) * 3):
        bound = ComposedEvent((*others, concentrated))
        truth = ComposedEvent((*others, gaussian))
        for e in (0.2, 1.0):
            assert delta(truth, e) <= delta(bound, e) <= 20.0 * delta(truth, e)


def test_parallel_events_inside_a_composition_dominate_each_choice():
    blocks = (GaussianEvent(0.4), PureEvent(0.5), ConcentratedEvent(0.05))
    both = ComposedEvent((ParallelEvent(blocks), PureEvent(0.3)))
    for e in (0.0, 0.3, 0.7):
        found = delta(both, e)
        each = [delta(ComposedEvent((block, PureEvent(0.3))), e) for block in blocks]
        assert max(each) <= found * (1 + 1e-6) + 1e-9
        assert found <= 1.5 * max(each) + 1e-9


def test_total_variation_of_two_near_laws_is_reached_by_an_example():
    """Leaking with probability t in either data set costs (1 + e^eps) t - no less."""
    e, t = 0.5, 0.01
    p, q = (row[:2] for row in response(e))
    first = np.array([(p[0] - 0) * 1.0 + t, p[1] - t])
    second = np.array([q[0] - t, q[1] + t])
    exact = np.maximum(first - math.exp(e) * second, 0.0).sum()
    bound = delta(NearEvent(PureEvent(e), t), e)
    assert exact == pytest.approx((1 + math.exp(e)) * t, rel=1e-9)
    assert bound == pytest.approx(exact, rel=1e-9)


def test_rounding_of_many_convolutions_stays_below_the_margin():
    """Steps of almost no effect beside a Gaussian: the truth is known."""
    gdp = 2.0
    tiny = ApproximateEvent(epsilon=1e-12, delta=0.0)
    composed = ComposedEvent((GaussianEvent(gdp), tiny, PureEvent(1e-6)))
    for d in (1e-24, 1e-16, 1e-12, 1e-9, 1e-5):
        exact = gaussian_epsilon(d, gdp)
        assert exact <= epsilon(composed, d) <= exact * 1.001


@one_in(2)
@pytest.mark.parametrize("num_steps", [10, 1000, 100_000])
@pytest.mark.parametrize("gdp", [0.3, 6.0])
def test_many_steps_stay_above_the_truth(gdp, num_steps):
    """Sampling almost surely is a Gaussian that the library convolves all the same."""
    noise = 2.0 * math.sqrt(num_steps) / gdp
    steps = PoissonGaussianEvent(
        sampling_rate=1.0 - 1e-13, noise_multiplier=noise, num_steps=num_steps
    )
    for d in (1e-24, 1e-16, 1e-10, 1e-6, 1e-3):
        at = gaussian_epsilon(d, gdp)
        convolved = loss_distributions.composed_delta((steps,), at, "replace_one")
        assert d <= convolved <= 1.002 * d + 2e-26
        assert delta(steps, at) == pytest.approx(d, rel=1e-9)  # as if all were taken


BOTH = ("replace_one", "zero_out")
HOSTILE = {
    "little noise, many steps": (
        PoissonGaussianEvent(
            sampling_rate=0.01, noise_multiplier=0.005, num_steps=10**6
        ),
    ),
    "a long pure loss": (PureEvent(1000.0), PureEvent(0.1)),
    "a longer one": (PureEvent(1e5), PureEvent(0.1)),
    "the longest": (PureEvent(1e300), PureEvent(0.1)),
    "a large tilt": (TiltEvent(log_determinant=0.1, distance=1e3), PureEvent(0.1)),
    "a huge tilt": (TiltEvent(log_determinant=1e244, distance=1e19), PureEvent(0.1)),
    "a large shift": (GaussianEvent(1e160), PureEvent(0.1)),
    "two of the largest": (GaussianEvent(1.7e308), GaussianEvent(1.7e308)),
    "concentrated": (ConcentratedEvent(1.7e308), ConcentratedEvent(1.7e308)),
    "a shift of a tilt": (
        TiltEvent(log_determinant=1e308, distance=1e308),
        GaussianEvent(1e308),
    ),
    "epochs": (AllocatedGaussianEvent(noise_multiplier=3e-308, num_steps=9),),
    "all but one in 2^53": (
        PoissonGaussianEvent(
            sampling_rate=1.0 - 2.0**-53, noise_multiplier=0.1, num_steps=2
        ),
    ),
    "nothing left": (ApproximateEvent(epsilon=9.0, delta=1.0 - 2e-16), POISSON),
    "blocks": (
        ParallelEvent((PureEvent(1e4), ApproximateEvent(epsilon=1e3, delta=0.5))),
        PureEvent(0.1),
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", HOSTILE)
def test_losses_beyond_floating_point_are_answered(case):
    for relation in BOTH:
        assert 0.999 < delta(ComposedEvent(HOSTILE[case]), 1.0, relation) <= 1.0


@pytest.mark.filterwarnings("error")
def test_steps_that_cost_next_to_nothing_are_answered():
    small = {"sampling_rate": 1e-16, "noise_multiplier": 1.04, "num_steps": 2}
    quiet = {"sampling_rate": 0.01, "noise_multiplier": 1e160, "num_steps": 2}
    quietest = {"noise_multiplier": 1e308, "num_steps": 1}  # its distance: subnormal
    for relation in BOTH:
        for event in (
            PoissonGaussianEvent(**small),
            PoissonGaussianEvent(**quiet),
            PoissonGaussianEvent(sampling_rate=1.0, **quietest),
            AllocatedGaussianEvent(**quietest),
            ComposedEvent((GaussianEvent(1e-300), PureEvent(0.1))),
        ):
            assert delta(event, 1.0, relation) < 1e-10


def test_equal_steps_beyond_the_largest_number_of_steps_are_answered():
    many = PoissonGaussianEvent(
        sampling_rate=1e-3, noise_multiplier=1e3, num_steps=2**31 - 1
    )
    one = delta(many, 0.1)
    assert one < delta(ComposedEvent((many, many)), 0.1) < 1.0
    epochs = AllocatedGaussianEvent(
        noise_multiplier=1e3, num_steps=10, num_epochs=2**31 - 1
    )
    assert 0.0 < delta(ComposedEvent((epochs, epochs)), 0.1, "zero_out") <= 1.0


def test_steps_of_little_noise_tell_of_no_more_than_they_take():
    for noise, times in itertools.product((1e-300, 0.04), (1, 3)):
        steps = PoissonGaussianEvent(
            sampling_rate=0.2, noise_multiplier=noise, num_steps=times
        )
        for relation in BOTH:
            found = delta(steps, 1.0, relation)
            assert found == pytest.approx(1.0 - 0.8**times, rel=1e-9)
    rare = PoissonGaussianEvent(sampling_rate=1e-15, noise_multiplier=0.05, num_steps=3)
    both = ComposedEvent((rare, PureEvent(0.5)))
    for relation in BOTH:
        assert delta(rare, 0.0, relation) == pytest.approx(3e-15, rel=1e-9)
        assert delta(both, 0.5 + 1e-12, relation) == pytest.approx(3e-15, rel=1e-9)


def curve_of(law, interval, e):
    """Exact delta of a law whose masses are floats."""
    terms = (
        mpf(float(mass)) * (1 - exp(e - (law.first + j) * mpf(interval)))
        for j, mass in enumerate(law.masses)
        if (law.first + j) * interval > e
    )
    return mpf(law.infinite) + fsum(terms)


def mixture_curve(q, shift, other, e):
    """Exact delta of (1-q) N(0) + q N(shift) and (1-q) N(0) + q N(other), or N(0)."""
    q, gamma = mpf(q), exp(mpf(e))
    away = q if other else mpf(0)
    # The loss is e where t = exp(shift x - shift^2/2) is the root of a polynomial.
    rest, last = (1 - q) - gamma * (1 - away), gamma * away * exp(-(mpf(shift) ** 2))
    root = sqrt(rest**2 + 4 * q * last)
    t = (root - rest) / (2 * q) if rest < 0 else 2 * last / (root + rest)
    if t <= 0:  # as e is below all losses
        return 1 - gamma
    high = log(t) / shift + shift / 2
    first = (1 - q) * ncdf(-high) + q * ncdf(shift - high)
    return first - gamma * ((1 - away) * ncdf(-high) + away * ncdf(other - high))


@usual("0.3-1.0-replace_one", "0.5-3000.0-zero_out")
@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize(
    ("rate", "noise"),
    [(0.3, 1.0), (1e-4, 0.4), (0.02, 20.0), (0.9, 0.2), (0.5, 3e3), (0.4, 5e16)],
)
def test_laws_are_above_the_exact_curve(rate, noise, relation):
    part = PoissonGaussianEvent(sampling_rate=rate, noise_multiplier=noise, num_steps=1)
    interval = 50.0 * loss_distributions._interval((part,), relation)
    first, second = loss_distributions._loss_distributions(part, relation, interval)
    shift = 1 / mpf(noise)
    other = -shift if relation == "replace_one" else 0
    with workdps(60):
        for law, sign in ((first, 1), (second, -1)):
            ends = law.first, law.first + len(law.masses) - 1
            for place in np.linspace(ends[0] - 1, ends[1], 30):
                for rounded in {float(place), round(place)}:
                    e = mpf(rounded) * mpf(interval)
                    is_exchanged = sign < 0 and relation == "zero_out"
                    at = -e if is_exchanged else e
                    exact = mixture_curve(rate, shift, other, at)
                    if is_exchanged:
                        exact = 1 - exp(e) * (1 - exact)
                    assert curve_of(law, interval, e) >= exact


@pytest.mark.slow
@pytest.mark.parametrize(
    ("relation", "most"), [("zero_out", 0.0764), ("replace_one", 0.1147)]
)
def test_the_grid_of_rare_steps_is_as_fine_as_that_of_others(relation, most):
    """It ended at losses of steps that take all, and epsilon was twice as large."""
    event = PoissonGaussianEvent(
        sampling_rate=1e-5, noise_multiplier=0.8, num_steps=10**6
    )
    assert epsilon(event, 1e-6, relation) <= most


def random_law(rng, size):
    masses = rng.dirichlet(np.full(size, 0.3)) * 10.0 ** -rng.uniform(0.0, 9.0, size)
    masses[rng.integers(size)] += 1.0 - masses.sum()
    infinite = float(rng.choice([0.0, 1e-12, 1e-3]))
    return LossDistribution(
        int(rng.integers(-9, 9)), masses * (1.0 - infinite), infinite
    )


def exact_powers(laws, times):
    """First place and masses of a composition, and what is infinite, exactly."""
    first, masses, kept, whole = 0, [mpf(1)], mpf(1), mpf(1)
    for law, count in zip(laws, times, strict=True):
        one = [mpf(float(mass)) for mass in law.masses]
        for _ in range(count):
            sums = [mpf(0)] * (len(masses) + len(one) - 1)
            for i, mass in enumerate(masses):
                for j, other in enumerate(one):
                    sums[i + j] += mass * other
            first, masses = first + law.first, sums
        kept *= fsum(one) ** count
        whole *= (fsum(one) + mpf(law.infinite)) ** count
    return first, masses, whole - kept


@one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_convolutions_are_above_and_close_to_exact_ones(seed):
    rng = np.random.default_rng(seed)
    laws = tuple(random_law(rng, int(size)) for size in rng.integers(1, 9, size=2))
    times = [int(count) for count in rng.integers(1, 25, size=2)]
    interval = float(10.0 ** rng.uniform(-3.0, 0.3))
    composition = convolution.Composition(laws, times, interval)
    with workdps(60):
        first, masses, infinite = exact_powers(laws, times)
        end = max(interval * (first + len(masses)), interval)
        for e in (0.0, interval, *np.linspace(0.0, 1.1 * end, 25)):
            exact = curve_of(
                LossDistribution(first, masses, 0), interval, mpf(float(e))
            )
            exact = min(exact + infinite, 1)
            found = composition.delta(float(e))
            assert exact <= found <= exact * (1 + mpf("1e-6")) + mpf("1e-26")


def test_convolutions_that_lose_a_little_are_below_exact_ones():
    law = random_law(np.random.default_rng(3), 8)
    short = law._replace(masses=law.masses * (1.0 - 1e-9))
    with workdps(60):
        first, masses, infinite = exact_powers((law,), [20])
        e = mpf((first + len(masses)) * 0.25)
        exact = curve_of(LossDistribution(first, masses, 0), 0.5, e) + infinite
    found = [
        convolution.Composition((x,), [20], 0.5).delta(float(e)) for x in (law, short)
    ]
    assert found[1] < exact <= found[0]


LONG = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no long doubles")


@LONG
@pytest.mark.parametrize("bits", [4, 9, 15, pytest.param(20, marks=pytest.mark.slow)])
def test_transforms_are_off_by_less_than_is_counted(bits):
    rng = np.random.default_rng(bits)
    size = 2**bits
    for values in (
        rng.normal(size=size),
        (-1.0) ** np.arange(size),
        rng.random(size) ** 40.0,
        np.exp(-np.arange(size) / 7.0),
        (np.arange(size) == size // 3) * 1.0,
    ):
        counted = 8.0 * 2.0**-53 * bits * np.abs(values).sum()
        exact = fft.rfft(values.astype(np.longdouble))
        assert np.abs(np.fft.rfft(values) - exact).max() < 0.2 * counted
        half = exact.astype(complex)
        half[0], half[-1] = half[0].real, half[-1].real
        back = fft.irfft(half.astype(np.clongdouble), size)
        counted = 8.0 * 2.0**-53 * bits * 2.0 * np.abs(half).sum() / size
        assert np.abs(np.fft.irfft(half, size) - back).max() < 0.2 * counted


def exact_power(law, times, size):
    """Masses of a power on a circle, in long doubles."""
    transform = fft.rfft(law.masses.astype(np.longdouble), size)
    power, bits = np.ones_like(transform), times
    while bits:
        power = power * transform if bits & 1 else power
        transform, bits = transform * transform, bits >> 1
    return fft.irfft(power, size)


@pytest.mark.slow
@LONG
@pytest.mark.parametrize(
    ("rate", "noise", "num_steps"),
    [(2.1533e-8, 0.29948, 10**7), (2.214e-8, 0.2926, 10**6 + 1), (0.015, 4.7, 10**5)],
)
def test_many_steps_are_above_and_close_to_long_doubles(rate, noise, num_steps):
    event = PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=num_steps
    )
    interval = loss_distributions._interval((event,), "zero_out")
    law, _ = loss_distributions._loss_distributions(event, "zero_out", interval)
    composition = convolution.Composition((law,), [num_steps], interval)
    size = 2**20
    places = num_steps * law.first + np.arange(size)
    places = (places + size // 2) % size - size // 2  # the law is near 0
    probs = exact_power(law, num_steps, size)
    for e in (0.0, 1.0, 3.0, 8.0):
        above = places * interval > e
        exact = float(-np.expm1(e - interval * places[above]) @ probs[above])
        exact -= num_steps * law.infinite
        found = composition.delta(e)
        assert exact - 1e-14 <= found <= 1.15 * exact + 1e-14


def test_windows_that_another_thread_adds_meanwhile_do_no_harm():
    parts = (PureEvent(0.2), PureEvent(0.3))
    interval = loss_distributions._interval(parts, "zero_out")
    (order,) = loss_distributions._compose.__wrapped__(parts, "zero_out", interval)
    alone = order.delta(0.1)

    class Interrupted:
        def __len__(self):
            order._windows[len(order._windows) - 1000] = window
            return 1

    (window,) = order._windows.values()
    order._windows[-1] = window._replace(masses=Interrupted())
    assert order.delta(0.1) == alone
