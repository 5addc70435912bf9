"""Renyi bounds of Poisson-sampled Gaussian steps: above the truth, and close to it."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsample import verify
from dpsample.privacy import (
    Budget,
    ComposedEvent,
    EventCertificate,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    delta_of,
    epsilon_of,
    gaussian_delta,
    poisson_noise_multiplier,
)
from dpsample.privacy.accounting.accounting import SAMPLED_THEOREM
from dpsample.privacy.accounting.loss_distributions import composed_delta
from dpsample.privacy.accounting.renyi import log_moment, sampled_delta
from tests.support.tiers import one_in

RELATIONS = ("replace_one", "zero_out")


def steps(rate, noise, count):
    return PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=count
    )


def exact(order, rate, noise, relation, *, reverse=False):
    """The moment's logarithm by adaptive quadrature in 30 digits."""
    with mpmath.workdps(30):
        q, z, alpha = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.mpf(order)

        def density(x):
            return 1 - q + q * mpmath.exp((x - mpmath.mpf(1) / 2) / z**2)

        def integrand(x):
            first = density(x)
            second = density(-x) if relation == "replace_one" else mpmath.mpf(1)
            if reverse:
                first, second = second, first
            return mpmath.npdf(x, 0, z) * first**alpha * second ** (1 - alpha)

        far = max(5 * z, alpha)
        middle = [k * far / 4 for k in range(-4, 9)]
        ends = [-far - 40 * z, -far - 10 * z, 2 * far + 10 * z, 2 * far + 60 * z]
        return float(mpmath.log(mpmath.quad(integrand, sorted(middle + ends))))


@one_in(2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("order", "rate", "noise"),
    [
        (2.0, 0.001, 0.8),
        (5.5, 0.001, 0.8),
        (12.0, 0.001, 0.8),
        (1.004, 0.01, 1.0),
        (3.3, 0.1, 1.0),
        (20.0, 0.5, 3.0),
        (10.0, 1e-5, 1.5),
        (1.1, 0.9, 0.7),
        (4.0, 1.0 - 1e-13, 2.0),
        (100.0, 0.01, 10.0),
        (6.0, 0.02, 0.4),
    ],
)
def test_moments_are_above_quadrature_and_close_to_it(order, rate, noise, relation):
    # P9
    want = exact(order, rate, noise, relation)
    found = log_moment(order, rate, noise, relation)
    assert want <= found <= want * (1.0 + 1e-8) + 1e-15


@pytest.mark.parametrize("order", [2, 3, 8, 40])
def test_moments_of_whole_orders_are_the_binomial_sum(order):  # P9
    for rate, noise in ((0.001, 0.8), (0.2, 3.0), (0.7, 5.0)):
        with mpmath.workdps(40):
            q, z = mpmath.mpf(rate), mpmath.mpf(noise)
            total = sum(
                mpmath.binomial(order, k)
                * (1 - q) ** (order - k)
                * q**k
                * mpmath.exp((k * k - k) / (2 * z**2))
                for k in range(order + 1)
            )
            want = float(mpmath.log(total))
        found = log_moment(float(order), rate, noise, "zero_out")
        assert want <= found <= want * (1.0 + 1e-9)


@pytest.mark.slow
def test_the_reverse_of_a_zeroed_pair_has_a_smaller_divergence():
    for order, rate, noise in ((2.0, 0.1, 1.0), (7.5, 0.01, 0.8), (3.0, 0.6, 2.0)):
        back = exact(order, rate, noise, "zero_out", reverse=True)
        assert back < log_moment(order, rate, noise, "zero_out")


def test_sampling_almost_surely_is_a_gaussian():
    for relation, shift in (("replace_one", 2.0), ("zero_out", 1.0)):
        for order, noise in ((1.5, 0.9), (30.0, 6.0), (500.0, 40.0)):
            want = order * (order - 1.0) * shift**2 / (2.0 * noise**2)
            found = log_moment(order, 1.0 - 1e-13, noise, relation)
            assert found == pytest.approx(want, rel=1e-9)


@pytest.mark.slow
def test_tiny_deltas_of_many_steps_have_an_epsilon():  # P9
    event = steps(0.001, 0.8, 100_000)
    for delta in (1e-12, 1e-50):  # by loss distributions, which end at 1e-26; by Renyi
        found = epsilon_of(event, delta=delta, relation="zero_out")
        assert delta_of(event, epsilon=found, relation="zero_out") <= delta
        assert found < {1e-12: 4.9, 1e-50: 25.0}[delta]


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_bound_is_worse_than_loss_distributions_alone(relation):  # P9
    for event in (steps(0.05, 1.2, 30), steps(0.3, 4.0, 8)):
        for epsilon in (0.0, 0.5, 2.0, 8.0):
            found = delta_of(event, epsilon=epsilon, relation=relation)
            alone = composed_delta((event,), epsilon, relation)
            assert found <= alone
            # Nor can the Renyi bound be below the truth by more than the grid's error.
            assert found >= 0.98 * alone - 1e-29


SCENES = st.tuples(
    st.floats(-5.0, -0.05).map(lambda x: 10.0**x),
    st.floats(-0.5, 2.0).map(lambda x: 10.0**x),
    st.integers(1, 10**6),
    st.floats(0.0, 50.0),
    st.sampled_from(RELATIONS),
)


@given(scene=SCENES, more=st.floats(1.01, 3.0))
@settings(max_examples=40, deadline=None)
def test_the_bound_is_monotone(scene, more):  # P9
    rate, noise, count, epsilon, relation = scene

    def delta(epsilon, *part):
        return sampled_delta(epsilon, (steps(*part),), rho=0.0, relation=relation)

    base = delta(epsilon, rate, noise, count)
    tiny = 1.0 + 1e-9
    assert delta(epsilon * more, rate, noise, count) <= base * tiny
    assert delta(epsilon, rate / more, noise, count) <= base * tiny
    assert delta(epsilon, rate, noise * more, count) <= base * tiny
    assert base <= delta(epsilon, rate, noise, 2 * count) * tiny
    if relation == "zero_out":
        half = sampled_delta(
            epsilon, (steps(rate, noise, count),), rho=0.0, relation="replace_one"
        )
        assert base <= half * tiny


def test_the_bound_composes_with_gaussian_and_pure_parts():
    sampled = steps(1.0 - 1e-13, 8.0, 4)
    both = sampled_delta(1.0, (sampled,), rho=0.5 * 0.4**2, relation="zero_out")
    truth = gaussian_delta(1.0, math.hypot(0.4, 2.0 / 8.0))
    assert truth <= both <= 30.0 * truth
    composed = ComposedEvent((sampled, GaussianEvent(0.4)))
    far = epsilon_of(composed, delta=1e-30, relation="zero_out")
    assert math.isfinite(far)
    exactly = gaussian_delta(far, math.hypot(0.4, 2.0 / 8.0))
    assert exactly <= 1e-30


def certificate(event, delta):
    epsilon = epsilon_of(event, delta=delta, relation="replace_one")
    budget = Budget(epsilon=epsilon, delta=delta)
    return EventCertificate.of(mechanism="steps", budget=budget, event=event)


def test_certificates_name_the_theorem_that_gave_their_epsilon():  # P9
    event = steps(0.01, 2.0, 10)
    used = certificate(event, 1e-40)
    assert used.theorems == (SAMPLED_THEOREM,) and not used.releasable
    verify(used)
    silent = dataclasses.replace(used, theorems=(), digest="")
    with pytest.raises(
        ValueError, match=r"certificate\.theorems must be .*RENYI\.POISSON"
    ):
        verify(silent)
    assert certificate(event, 1e-15).theorems == ()
    for wrapped in (
        ComposedEvent((event, GaussianEvent(0.01))),
        ParallelEvent((event, GaussianEvent(0.01))),
        NearEvent(event, 1e-45),
    ):
        assert certificate(wrapped, 1e-40).theorems == (SAMPLED_THEOREM,)


def test_noise_is_found_for_tiny_deltas():  # P9
    budget = Budget(epsilon=1.0, delta=1e-16, relation="zero_out")
    noise = poisson_noise_multiplier(budget, sampling_rate=0.1, num_steps=5)
    event = steps(0.1, noise, 5)
    assert delta_of(event, epsilon=1.0, relation="zero_out") <= 1e-16
    assert 0.5 < noise < np.inf
