"""Poisson samples: the library's pairs, convolutions, calibration, fixed sizes."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.stats import norm

from dpsample.privacy import (
    Budget,
    PoissonGaussianEvent,
    delta_of,
    epsilon_of,
    fixed_size_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    poisson_noise_multiplier,
)
from dpsample.privacy.accounting import fixed_size, loss_distributions
from tests.support.tiers import one_in, usual

REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def steps(rate, noise, count=1):
    return PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=count
    )


def mixture_delta(epsilon, *, rate, noise, first, second):
    """Exact divergence between two mixtures with modes at 0 and at one point."""
    z = np.linspace(-12.0 * noise - 2.0, 12.0 * noise + 2.0, 400_001)

    def density(shift):
        kept = (1 - rate) * norm.pdf(z, scale=noise)
        return kept + rate * norm.pdf(z, loc=shift, scale=noise)

    excess = np.maximum(density(first) - math.exp(epsilon) * density(second), 0.0)
    return float(np.trapezoid(excess, z))


@one_in(6)
@pytest.mark.parametrize("rate", [0.01, 0.9])
@pytest.mark.parametrize("noise", [0.7, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 2.0])
def test_one_step_is_the_named_pair(rate, noise, epsilon):
    pair = {"rate": rate, "noise": noise}
    replaced = mixture_delta(epsilon, **pair, first=1.0, second=-1.0)
    removed = mixture_delta(epsilon, **pair, first=1.0, second=0.0)
    added = mixture_delta(epsilon, **pair, first=0.0, second=1.0)
    event = steps(rate, noise)
    for relation, exact in (
        ("replace_one", replaced),
        ("zero_out", max(removed, added)),
    ):
        found = delta_of(event, epsilon=epsilon, relation=relation)
        assert exact - 1e-9 <= found <= exact * 1.001 + 1e-8
    assert replaced >= max(removed, added)


def log_likelihood_ratios(points, z):
    """Log densities of unit Gaussians at ``points`` relative to the first one."""
    squares = ((z[:, None, :] - points[None]) ** 2).sum(axis=-1)
    return 0.5 * (squares[:, :1] - squares)


def test_opposite_records_are_the_worst_case():
    """The claim of the module's proof, on a grid of records in the plane."""
    noise, worst = 1.3, {}
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    weight = np.outer(weights, weights).ravel() / (2.0 * math.pi)
    for rate in (0.05, 0.5, 0.95):
        for gamma in (1.0, 1.2, 3.0):
            for u in (0.4, 1.0):
                for v in (0.0, 0.5, 1.0):
                    for angle in np.linspace(0.0, math.pi, 7):
                        points = np.array(
                            [
                                [u, 0.0],
                                [0.0, 0.0],
                                [v * math.cos(angle), v * math.sin(angle)],
                            ]
                        )
                        points = points / noise
                        ratios = np.exp(log_likelihood_ratios(points, grid + points[0]))
                        kept = (1 - rate) * (gamma - 1) * ratios[:, 1]
                        excess = rate - kept - rate * gamma * ratios[:, 2]
                        value = float(weight @ np.maximum(excess, 0.0))
                        key = (rate, gamma)
                        worst.setdefault(key, []).append(((u, v, angle), value))
    for values in worst.values():
        opposite = dict(values)[(1.0, 1.0, math.pi)]
        assert max(value for _, value in values) <= opposite + 2e-3


def test_replacing_is_not_zeroing_at_twice_the_distance():
    event = steps(0.9, 1.5, 3)
    pair = delta_of(event, epsilon=0.0, relation="replace_one")
    twice = delta_of(steps(0.9, 0.75, 3), epsilon=0.0, relation="zero_out")
    assert pair == pytest.approx(0.6919, abs=1e-4)
    assert twice == pytest.approx(0.6876, abs=1e-4)


def test_three_steps_are_the_exact_convolution():
    """Brute force: the composed pair on a product grid."""
    rate, noise = 0.9, 1.5
    z = np.linspace(-9.0, 9.0, 181)
    width = z[1] - z[0]

    def density(shift):
        kept = (1 - rate) * norm.pdf(z, scale=noise)
        return (kept + rate * norm.pdf(z, loc=shift, scale=noise)) * width

    p, q = density(1.0), density(-1.0)
    three = [np.einsum("i,j,k->ijk", x, x, x) for x in (p, q)]
    exact = np.maximum(three[0] - three[1], 0.0).sum()
    found = delta_of(steps(rate, noise, 3), epsilon=0.0, relation="replace_one")
    assert found == pytest.approx(exact, abs=2e-4)


def test_sampling_everything_is_exactly_gaussian():
    for relation, shift in (("replace_one", 2.0), ("zero_out", 1.0)):
        found = epsilon_of(steps(1.0, 8.0, 9), delta=1e-6, relation=relation)
        exact = gaussian_epsilon(1e-6, shift * 3.0 / 8.0)
        assert found == pytest.approx(exact, rel=1e-10)


def test_two_accountants_of_the_library_mean_different_noise():
    """Noise 4, delta 1e-5: what the dependency does, and what we make of it."""
    event, delta = dp_accounting.GaussianDpEvent(4.0), 1e-5
    pld = dp_accounting.pld.PLDAccountant
    rdp = dp_accounting.rdp.RdpAccountant
    found = {}
    for name, kind in (("pld", pld), ("rdp", rdp)):
        for relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, REPLACE):
            accountant = kind(neighboring_relation=relation)
            found[name, relation] = accountant.compose(event).get_epsilon(delta)
    add = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert found["pld", add] == pytest.approx(0.926, abs=1e-3)
    assert found["pld", REPLACE] == pytest.approx(1.993, abs=1e-3)
    assert found["rdp", add] == pytest.approx(1.013, abs=1e-3)
    assert found["rdp", REPLACE] == found["rdp", add]
    # Ours: noise refers to one record, in both relations and for both ways to sample.
    ours = epsilon_of(steps(1.0, 4.0), delta=delta, relation="replace_one")
    fixed = fixed_size_epsilon(
        delta=delta, num_records=9, batch_size=9, noise_multiplier=4.0, num_steps=1
    )
    assert ours == pytest.approx(found["pld", REPLACE], abs=1e-3)
    assert fixed == pytest.approx(ours, rel=1e-9)
    assert epsilon_of(steps(1.0, 4.0), delta=delta, relation="zero_out") == (
        pytest.approx(found["pld", add], abs=1e-3)
    )


def test_the_library_still_composes_the_pairs_that_we_think():
    """Regression: semantics of the dependency that our bounds rely on."""
    rate, noise = 0.3, 0.7
    kwargs = {"sampling_prob": rate, "value_discretization_interval": 1e-3}
    replaced = from_gaussian_mechanism(noise, neighboring_relation=REPLACE, **kwargs)
    special = from_gaussian_mechanism(noise, neighboring_relation=SPECIAL, **kwargs)
    pair = {"rate": rate, "noise": noise}
    for epsilon in (0.1, 1.0):
        exact = mixture_delta(epsilon, **pair, first=1.0, second=-1.0)
        got = replaced.get_delta_for_epsilon(epsilon)
        assert got == pytest.approx(exact, rel=1e-4)
        exact = mixture_delta(epsilon, **pair, first=1.0, second=0.0)
        got = special.get_delta_for_epsilon(epsilon)
        assert got == pytest.approx(exact, rel=1e-4)


def test_sanity_value_of_many_small_steps():
    event = steps(0.1, 6.07, 500)
    found = epsilon_of(event, delta=1e-4, relation="replace_one")
    assert found == pytest.approx(2.65, abs=0.005)
    limit = gaussian_epsilon(1e-4, 2.0 * 0.1 * math.sqrt(500) / 6.07)
    assert limit == pytest.approx(2.66, abs=0.005)


@pytest.mark.slow
def test_one_step_more_than_a_million_adds_little():
    usual, more = (
        epsilon_of(steps(1e-3, 10.0, n), delta=1e-6, relation="replace_one")
        for n in (10**6, 10**6 + 1)
    )
    assert usual < more < (1.0 + 4e-6) * usual


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [10**6 + 1, 10**7])
def test_millions_of_steps_keep_few_losses_above_the_exact_curve(num_steps):
    """A record that is all but always taken: one Gaussian at distance 1."""
    event = steps(1.0 - 1e-9, math.sqrt(num_steps), num_steps)
    for epsilon in (0.5, 2.0, 4.0):
        exact = gaussian_delta(epsilon, 1.0)
        found = delta_of(event, epsilon=epsilon, relation="zero_out")
        assert exact < found < 1.06 * exact
    interval = loss_distributions._interval((event,), "zero_out")
    for order in loss_distributions._compose((event,), "zero_out", interval):
        sizes = [len(window.masses) for window in order._windows.values()]
        assert sizes and max(sizes) <= 2**23  # 64 MB


def test_probability_lost_by_rounding_counts():
    """A step tells of a record that it takes, and all but e^-1000 are taken."""
    event = steps(1e-3, 0.1, 10**6)
    assert delta_of(event, epsilon=2.0, relation="replace_one") == 1.0


def test_a_thousand_million_steps_need_no_room():
    huge = epsilon_of(steps(1e-3, 10.0, 10**9), delta=1e-6, relation="replace_one")
    limit = gaussian_epsilon(1e-6, 2e-4 * math.sqrt(1e9))
    assert limit < huge < 1.2 * limit


# Algorithms 1 and 2 of arXiv:2303.18047 at n = 1e4, m = n/6, T = 180, delta = 1/n:
# claimed epsilon, true epsilon under zero_out and replace_one, and under replace_one
# for noise relative to the sensitivity of a replacement.
CLAIMS = [
    (0.5, 1.23, 2.65, 1.20),
    (1.0, 2.82, 6.02, 2.65),
    (3.0, 14.2, 24.7, 9.92),
]


@usual("0.5-")
@pytest.mark.parametrize(("claimed", "zeroed", "replaced", "halved"), CLAIMS)
def test_printed_noise_is_far_from_its_label(claimed, zeroed, replaced, halved):
    noise = math.sqrt(math.log(1e4)) / claimed
    event, double = steps(1 / 6, noise, 180), steps(1 / 6, 2.0 * noise, 180)
    found = [
        epsilon_of(event, delta=1e-4, relation="zero_out"),
        epsilon_of(event, delta=1e-4, relation="replace_one"),
        epsilon_of(double, delta=1e-4, relation="replace_one"),
    ]
    for value, stated in zip(found, (zeroed, replaced, halved), strict=True):
        assert value == pytest.approx(stated, rel=0.006)


@usual("1.0-7.12")
@pytest.mark.parametrize(("epsilon", "needed"), [(0.5, 13.2), (1.0, 7.12), (3.0, 2.73)])
def test_calibrated_noise_meets_the_budget_from_below(epsilon, needed):
    budget = Budget(epsilon=epsilon, delta=1e-4)
    noise = poisson_noise_multiplier(budget, sampling_rate=1 / 6, num_steps=180)
    assert 0.5 * noise == pytest.approx(needed, rel=0.005)
    found = epsilon_of(steps(1 / 6, noise, 180), delta=1e-4, relation="replace_one")
    assert epsilon * (1 - 1e-4) <= found <= epsilon * (1 + 1e-9)
    less = steps(1 / 6, noise * 0.999, 180)
    assert delta_of(less, epsilon=epsilon, relation="replace_one") > 1e-4


def test_calibration_at_full_rate_and_under_zero_out():
    budget = Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
    noise = poisson_noise_multiplier(budget, sampling_rate=1.0, num_steps=1)
    assert noise == pytest.approx(4.2247, abs=1e-4)
    noise = poisson_noise_multiplier(budget, sampling_rate=0.2, num_steps=100)
    found = epsilon_of(steps(0.2, noise, 100), delta=1e-6, relation="zero_out")
    assert found == pytest.approx(1.0, rel=1e-4) and found <= 1.0 + 1e-9


def test_fixed_sizes_are_bounded_by_the_whole_and_close_to_loose():
    sizes = {"num_records": 10_000, "batch_size": 141, "num_steps": 1250}
    found = fixed_size_epsilon(delta=1e-8, noise_multiplier=6.05, **sizes)
    poisson = epsilon_of(steps(0.0141, 6.05, 1250), delta=1e-8, relation="replace_one")
    whole = gaussian_epsilon(1e-8, 2.0 * math.sqrt(1250) / 6.05)
    assert poisson == pytest.approx(0.833, abs=0.005)
    assert found == pytest.approx(1.94, abs=0.01)
    assert poisson < found < whole
    more = fixed_size_epsilon(delta=1e-8, noise_multiplier=12.1, **sizes)
    assert more < found


@one_in(3)
@pytest.mark.parametrize(
    ("batch", "noise", "num_steps"), [(1, 0.5, 10), (10, 2.0, 1), (50, 8.0, 10_000)]
)
def test_fixed_sizes_have_the_numbers_of_the_library_and_never_less(
    batch, noise, num_steps
):
    step = dp_accounting.GaussianDpEvent(0.5 * noise)
    event = dp_accounting.SampledWithoutReplacementDpEvent(1000, batch, step)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=REPLACE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, num_steps))
    wanted = accountant.get_epsilon(1e-5)
    epsilon = fixed_size_epsilon(
        delta=1e-5,
        num_records=1000,
        batch_size=batch,
        noise_multiplier=noise,
        num_steps=num_steps,
    )
    assert wanted * (1.0 + 1e-9) < epsilon <= wanted * (1.0 + 2e-9)


@one_in(3)
@pytest.mark.parametrize("noise", [0.3, 3.0, 300.0])
def test_central_moments_are_rounded_up(noise):
    """The ratio R is log-normal, and B_l = E (R - 1)^l, here by exact fractions."""
    with mpmath.workdps(1000):
        half = mpmath.mpf(1) / (2 * mpmath.mpf(noise) ** 2)
        for order in (2, 4, 32, 256):
            terms = (
                (-1) ** i * mpmath.binomial(order, i) * mpmath.exp(i * (i - 1) * half)
                for i in range(order + 1)
            )
            exact = mpmath.log(mpmath.fsum(terms))
            found = fixed_size._log_central_moments(noise)[order // 2]
            assert abs(found - exact) <= 1e-12 + 2e-16 * abs(exact)


BAD = (0, -1.0, math.nan, math.inf, None, "1")


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_input_is_refused(bad):
    budget = Budget(epsilon=1.0, delta=1e-6)
    good = {
        "delta": 1e-5,
        "num_records": 10,
        "batch_size": 5,
        "noise_multiplier": 1.0,
        "num_steps": 1,
    }
    calls = [
        lambda: poisson_noise_multiplier(bad, sampling_rate=0.5, num_steps=1),
        lambda: poisson_noise_multiplier(budget, sampling_rate=bad, num_steps=1),
        lambda: poisson_noise_multiplier(budget, sampling_rate=0.5, num_steps=bad),
        *(lambda name=name: fixed_size_epsilon(**good | {name: bad}) for name in good),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=" must be .*, got "):
            call()


def test_what_cannot_be_is_refused_in_words():
    with pytest.raises(ValueError, match="batch_size must be <= num_records, got 11"):
        fixed_size_epsilon(
            delta=0.1, num_records=10, batch_size=11, noise_multiplier=1.0, num_steps=1
        )
    tiny = Budget(epsilon=1e-12, delta=1e-30)
    with pytest.raises(ValueError, match="delta must be large enough"):
        poisson_noise_multiplier(tiny, sampling_rate=0.5, num_steps=10)


def test_a_record_that_is_hardly_ever_taken_needs_little_noise():
    # The search for less noise than that stops above.
    budget = Budget(epsilon=8.0, delta=0.05)
    noise = poisson_noise_multiplier(budget, sampling_rate=1e-3, num_steps=1)
    assert 0.05 < noise <= 0.1


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate"), [(3.0, 1e-305, 0.5), (1e4, 1e-5, 1.0)]
)
def test_calibration_meets_budgets_at_the_ends_of_accounting(epsilon, delta, rate):
    budget = Budget(epsilon=epsilon, delta=delta)
    noise = poisson_noise_multiplier(budget, sampling_rate=rate, num_steps=1)
    most, asked = min(epsilon, 600.0), {"delta": delta, "relation": "replace_one"}
    assert epsilon_of(steps(rate, noise, 1), **asked) <= most
    assert epsilon_of(steps(rate, 0.99 * noise, 1), **asked) > most
