"""Groups: the exact cost of chains whose every step is the worst case."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from dpsample.privacy import (
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    delta_of,
    epsilon_of,
    gaussian_delta,
    group_delta,
    group_epsilon,
    group_event,
)
from tests.support.tiers import usual

POISSON = PoissonGaussianEvent(sampling_rate=0.1, noise_multiplier=5.0, num_steps=50)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_numbers_scale_as_the_theorems_say(size):
    assert group_event(GaussianEvent(0.25), size) == GaussianEvent(size * 0.25)
    assert group_event(PureEvent(0.25), size) == PureEvent(size * 0.25)
    assert group_event(ConcentratedEvent(0.25), size) == ConcentratedEvent(
        size**2 * 0.25
    )
    near = group_event(NearEvent(GaussianEvent(0.5), 1e-9), size)
    assert near == NearEvent(GaussianEvent(size * 0.5), 1e-9)
    both = ComposedEvent((GaussianEvent(0.5), PureEvent(0.5)))
    assert group_event(both, size) == ComposedEvent(
        (GaussianEvent(size * 0.5), PureEvent(size * 0.5))
    )
    blocks = ParallelEvent((PureEvent(0.5), PureEvent(0.25)))
    assert group_event(blocks, size) == ParallelEvent(
        (PureEvent(size * 0.5), PureEvent(size * 0.25))
    )
    approximate = group_event(ApproximateEvent(epsilon=0.5, delta=1e-6), size)
    ratio = math.expm1(size * 0.5) / math.expm1(0.5)
    assert approximate.epsilon == size * 0.5
    assert approximate.delta == pytest.approx(ratio * 1e-6, rel=1e-12)


def test_a_shift_of_two_sensitivities_is_a_group_of_two():
    for e in (0.1, 1.0):
        found = group_delta(GaussianEvent(0.3), epsilon=e, size=2, relation="zero_out")
        assert found == pytest.approx(gaussian_delta(e, 0.6), rel=1e-11)


def test_zero_epsilon_adds_deltas():
    event = ApproximateEvent(epsilon=0.0, delta=0.01)
    found = group_delta(event, epsilon=0.0, size=5, relation="replace_one")
    assert found == pytest.approx(0.05, rel=1e-12)


def test_the_chain_bound_holds_for_a_chain_of_biased_coins():
    """Laws on a path where each step multiplies by up to e^eps and leaks delta."""
    rng = np.random.default_rng(20250402)
    size, num_outcomes = 3, 5
    for _ in range(200):
        laws = [rng.dirichlet(np.ones(num_outcomes))]
        for _ in range(size):
            tilt = laws[-1] * np.exp(rng.uniform(-0.3, 0.3, num_outcomes))
            laws.append(tilt / tilt.sum())
        e = 0.2

        def divergence(p, q, e):
            return float(np.maximum(p - math.exp(e) * q, 0.0).sum())

        steps = itertools.pairwise(laws)
        worst = max(max(divergence(p, q, e), divergence(q, p, e)) for p, q in steps)
        event = ApproximateEvent(epsilon=e, delta=worst)
        bound = group_delta(event, epsilon=size * e, size=size, relation="zero_out")
        assert divergence(laws[0], laws[-1], size * e) <= bound + 1e-15


@usual("replace_one")
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_events_without_a_formula_use_the_chain(relation):
    mixed = ParallelEvent((POISSON, PureEvent(0.1)))
    for event in (POISSON, mixed, ComposedEvent((POISSON, PureEvent(0.1)))):
        with pytest.raises(ValueError, match="event must be one with a formula"):
            group_event(event, 2)
        single = epsilon_of(event, delta=1e-9, relation=relation)
        found = group_epsilon(event, delta=1e-6, size=2, relation=relation)
        assert 0.0 < found <= 2.0 * single
        back = group_delta(event, epsilon=found, size=2, relation=relation)
        assert back <= 1e-6


def test_two_zeroings_are_a_replacement():
    """The chain bound of two zeroings is above the exact cost of a replacement."""
    for e in (0.3, 1.0, 2.0):
        chain = group_delta(POISSON, epsilon=e, size=2, relation="zero_out")
        exact = delta_of(POISSON, epsilon=e, relation="replace_one")
        assert exact <= chain
    one = group_epsilon(POISSON, delta=1e-5, size=1, relation="zero_out")
    assert one == pytest.approx(
        epsilon_of(POISSON, delta=1e-5, relation="zero_out"), rel=1e-9
    )


def test_rounding_is_upwards_also_where_the_exponent_is_large():
    rng = np.random.default_rng(20261127)
    for top in (0.0, 1e-290, 1e-3, 1.0, 40.0, 300.0, 599.0):
        for size in (1, 2, 3, 1000, 10**9):
            event = ApproximateEvent(
                epsilon=top * rng.uniform(0.5, 1.0) / size,
                delta=rng.uniform(0.1, 1.0) / size * math.exp(-top),
            )
            with mpmath.workdps(80):
                one = mpmath.mpf(event.epsilon)
                terms = mpmath.expm1(size * one) / mpmath.expm1(one) if one else size
                exact = event.delta * terms
                found = group_event(event, size)
                assert exact <= found.delta <= exact * (1.0 + 1e-12)
                part = math.nextafter(event.epsilon, 1e9) * size * (1.0 + 1e-13)
                chain = group_delta(event, epsilon=part, size=size, relation="zero_out")
                assert exact <= chain <= exact * (1.0 + 1e-10)


def test_beyond_600_the_answer_is_that_at_600():
    for event in (GaussianEvent(1.0), PureEvent(900.0), POISSON):
        for size in (1, 2, 10**6):
            top, beyond = (
                group_delta(event, epsilon=e, size=size, relation="zero_out")
                for e in (600.0, 1e308)
            )
            assert top == beyond


def test_large_groups_do_not_overflow():
    event = ApproximateEvent(epsilon=100.0, delta=1e-9)
    assert group_delta(event, epsilon=0.0, size=10**4, relation="zero_out") == 1.0
    with pytest.raises(ValueError, match="event must be one with a formula"):
        group_event(event, 7)
    assert group_epsilon(event, delta=0.1, size=7, relation="zero_out") == math.inf


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, None, True])
def test_bad_sizes_are_refused(bad):
    event = GaussianEvent(0.1)
    for call in (
        lambda: group_event(event, bad),
        lambda: group_delta(event, epsilon=1.0, size=bad, relation="zero_out"),
        lambda: group_epsilon(event, delta=0.1, size=bad, relation="zero_out"),
    ):
        with pytest.raises(ValueError, match="^size must be an integer >= 1, got "):
            call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: group_event(3, 1), "event"),
        (lambda: group_delta(3, epsilon=1.0, size=1, relation="zero_out"), "event"),
        (
            lambda: group_delta(POISSON, epsilon=-1.0, size=1, relation="zero_out"),
            "epsilon",
        ),
        (
            lambda: group_epsilon(POISSON, delta=1.0, size=1, relation="zero_out"),
            "delta",
        ),
        (lambda: group_epsilon(POISSON, delta=0.1, size=1, relation="x"), "relation"),
    ],
)
def test_bad_input_is_refused(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        call()


@pytest.mark.parametrize(("epsilon", "size"), [(100.1, 3), (0.7, 3), (0.1, 13)])
def test_epsilons_of_groups_are_rounded_up(epsilon, size):
    event, at = PureEvent(epsilon), size * epsilon
    with mpmath.workdps(50):
        whole = size * mpmath.mpf(epsilon)
        true = (mpmath.exp(whole) - mpmath.exp(at)) / (1 + mpmath.exp(whole))
        found = group_delta(event, epsilon=at, size=size, relation="zero_out")
        assert found >= true > 0.0


@pytest.mark.parametrize("event", [GaussianEvent(1e307), PureEvent(1e307)])
def test_groups_beyond_floating_point_are_answered(event):
    assert group_delta(event, epsilon=1.0, size=10**5, relation="zero_out") == 1.0
