"""Loss distributions: above brute force, close to it, and in one unit."""

import itertools
import math

import numpy as np
import pytest
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
from dpsample.privacy.accounting import loss_distributions
from tests.support.tiers import one_in

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
    for d in (1e-12, 1e-11, 1e-9, 1e-5):
        exact = gaussian_epsilon(d, gdp)
        found = epsilon(composed, d)
        assert exact <= found <= exact * (1.03 if d < 1e-10 else 1.001)


@one_in(2)
@pytest.mark.parametrize("num_steps", [10, 1000, 100_000])
@pytest.mark.parametrize("gdp", [0.3, 6.0])
def test_many_steps_stay_above_the_truth(gdp, num_steps):
    """Sampling almost surely is a Gaussian that the library convolves all the same."""
    noise = 2.0 * math.sqrt(num_steps) / gdp
    steps = PoissonGaussianEvent(
        sampling_rate=1.0 - 1e-13, noise_multiplier=noise, num_steps=num_steps
    )
    for d in (1e-12, 1e-10, 1e-6, 1e-3):
        found = delta(steps, gaussian_epsilon(d, gdp))
        assert d <= found <= 1.001 * d + 1.2e-10


BOTH = ("replace_one", "zero_out")
HOSTILE = {
    "little noise": (
        PoissonGaussianEvent(sampling_rate=0.01, noise_multiplier=1e-5, num_steps=1),
    ),
    "little noise, many steps": (
        PoissonGaussianEvent(
            sampling_rate=0.01, noise_multiplier=0.005, num_steps=10**6
        ),
    ),
    "no noise to speak of": (
        PoissonGaussianEvent(sampling_rate=0.5, noise_multiplier=1e-300, num_steps=3),
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


def test_what_one_order_of_a_pair_lacks_is_not_made_up_by_the_other(monkeypatch):
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    short = DensePLDPmf(1.0, 4, np.array([0.5, 0.499]), 0.0, True)
    over = DensePLDPmf(1.0, 0, np.array([0.6, 0.401]), 0.0, True)
    pair = PrivacyLossDistribution(short, over)
    monkeypatch.setattr(loss_distributions, "_composed", lambda *_: pair)
    found = loss_distributions.composed_delta((POISSON,), 0.0, "zero_out")
    alone = short.get_delta_for_epsilon(0.0)
    assert found == pytest.approx(alone + 0.001, abs=1e-12)
    block = ParallelEvent((ComposedEvent((POISSON,)),))
    curve = loss_distributions._curve(block, np.zeros(1), "zero_out")
    assert curve[0] == pytest.approx(found, rel=1e-15)


def exact_power(pmf, times, law):
    """Probabilities of a power on the losses of ``law``, in long doubles."""
    size = fft.next_fast_len(max(law.size, pmf.size), real=True)
    transform = fft.rfft(np.asarray(pmf._probs, dtype=np.longdouble), size)
    power, bits = np.ones_like(transform), times
    while bits:
        power = power * transform if bits & 1 else power
        transform, bits = transform * transform, bits >> 1
    first = (law._lower_loss - times * pmf._lower_loss) % size
    return np.roll(fft.irfft(power, size), -first)[: law.size]


@pytest.mark.slow
@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no long doubles")
@pytest.mark.parametrize(
    ("rate", "noise", "num_steps"),
    [(2.1533e-8, 0.29948, 10**7), (2.214e-8, 0.2926, 10**6 + 1), (0.015, 4.7, 10**5)],
)
def test_rounding_errors_of_many_steps_are_below_what_is_added(rate, noise, num_steps):
    event = PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=num_steps
    )
    interval = loss_distributions._interval((event,), "zero_out")
    pmf = loss_distributions._single(event, "zero_out", interval)._pmf_remove
    law = loss_distributions._composed((event,), "zero_out", interval)._pmf_remove
    probs = exact_power(pmf, num_steps, law)
    losses = interval * (law._lower_loss + np.arange(law.size))
    added = loss_distributions._rounding((event,))
    for epsilon in (0.0, 1.0, 3.0, 8.0):
        above = losses > epsilon
        exact = -np.expm1(epsilon - losses[above]) @ probs[above]
        found = law.get_delta_for_epsilon(epsilon) - law._infinity_mass
        assert abs(found - float(exact)) < added / 2.0
