"""Mechanisms of bounded range: their curve against brute force, and everywhere it goes.

Pairs of distributions whose log ratios span at most eta are searched at random and by
their extreme points. Each search sees a curve of 0.97 eta as too low.
"""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.privacy import (
    ApproximateEvent,
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    EventCertificate,
    GaussianEvent,
    Ledger,
    NearEvent,
    ParallelEvent,
    PureEvent,
    delta_of,
    epsilon_of,
    group_delta,
    group_event,
    rho_from_bounded_range,
)
from dpsample.privacy.curves.bounded_range import bounded_range_delta, range_from_budget

RELATION = "replace_one"


def divergence(p, q, epsilon):
    """Delta of a pair of finite distributions at epsilon."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def two_point(eta, t):
    """The pair with log ratios t and t - eta."""
    high = -math.expm1(t - eta) / -math.expm1(-eta)
    p = np.array([high, 1.0 - high])
    return p, p * np.exp([-t, eta - t])


def random_pair(eta, rng):
    """A pair on a few points, whose log ratios span eta."""
    p = rng.dirichlet(np.full(rng.integers(2, 6), rng.choice([0.1, 1.0])))
    ratios = eta * rng.random(len(p))
    ratios[rng.integers(len(p))], ratios[-1] = 0.0, eta
    q = p * np.exp(-ratios)
    return p, q / q.sum()


@pytest.mark.parametrize("eta", [0.01, 0.5, 1.0, 4.0, 30.0])
def test_no_pair_is_above_the_curve_and_some_are_on_it(eta):
    rng, seen = np.random.default_rng(1), 0
    for epsilon in eta * np.array([0.0, 0.1, 0.5, 0.9]):
        limit = bounded_range_delta(epsilon, eta)
        pairs = [random_pair(eta, rng) for _ in range(400)]
        pairs += [two_point(eta, t) for t in eta * rng.random(100)]
        for pair in pairs:
            for p, q in (pair, pair[::-1]):
                assert np.ptp(np.log(p / q)) <= eta * (1.0 + 1e-12)
                assert divergence(p, q, epsilon) <= limit * (1.0 + 1e-11) + 1e-15
        worst = two_point(eta, 0.5 * (epsilon + eta))
        assert divergence(*worst, epsilon) >= limit * (1.0 - 1e-10) - 1e-15
        seen += divergence(*worst, epsilon) > bounded_range_delta(epsilon, 0.97 * eta)
    assert seen == 4
    assert bounded_range_delta(0.0, eta) == pytest.approx(math.tanh(0.25 * eta))
    assert bounded_range_delta(eta, eta) == 0.0


def test_the_bound_is_the_curve_of_a_pair_that_may_be_exchanged():
    eta = 2.5
    e = np.linspace(0.0, eta, 200)
    curve = np.array([bounded_range_delta(x, eta) for x in e])
    below = (1.0 - np.exp(0.5 * (-e - eta))) ** 2 / -math.expm1(-eta)
    assert below == pytest.approx(1.0 - np.exp(-e) * (1.0 - curve), rel=1e-12)
    whole = np.concatenate([below[:0:-1], curve])
    slopes = np.diff(whole) / np.diff(np.exp(np.concatenate([-e[:0:-1], e])))
    assert (np.diff(slopes) > 0.0).all() and -1.0 <= slopes[0] and slopes[-1] <= 0.0


@pytest.mark.parametrize("epsilon", [1e-8, 0.1, 1.0, 10.0, 600.0, 2000.0])
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-12, 1e-3, 0.5, 1.0 - 1e-12])
def test_the_largest_range_of_a_budget(epsilon, delta):
    eta = range_from_budget(epsilon, delta)
    assert eta >= epsilon and bounded_range_delta(epsilon, eta) <= delta
    excess = eta - epsilon
    if excess > 1e-4 * epsilon and delta < 0.9:
        assert bounded_range_delta(epsilon, epsilon + 1.0001 * excess) > delta
    if delta == 0.0:
        assert eta == epsilon


def test_ranges_of_the_budgets_of_the_page():
    stated = {(1.0, 1e-6): 1.0016, (1.0, 1e-3): 1.05, (0.1, 1e-3): 1.22}
    for (epsilon, delta), ratio in stated.items():
        actual = range_from_budget(epsilon, delta) / epsilon
        assert actual == pytest.approx(ratio, abs=6e-3)


@pytest.mark.parametrize("eta", [0.1, 0.8, 3.0])
def test_adaptive_compositions_stay_below_the_composed_curve(eta):
    """After each outcome of the first mechanism, the worst second one is chosen."""
    event = ComposedEvent((BoundedRangeEvent(eta),) * 2)
    for epsilon in eta * np.array([0.0, 0.3, 1.0, 1.6]):
        best = 0.0
        for t in np.linspace(0.01, 0.99, 41) * eta:
            p, q = two_point(eta, t)
            loss, total = np.log(p / q), 0.0
            for share, first in zip(p, loss, strict=True):
                rest = epsilon - first
                second = (
                    bounded_range_delta(rest, eta)
                    if rest >= 0.0
                    else 1.0 - math.exp(rest) * (1.0 - bounded_range_delta(-rest, eta))
                )
                total += share * second
            best = max(best, total)
        stated = delta_of(event, epsilon=epsilon, relation=RELATION)
        assert best <= stated
        # One mechanism is not two, which is the planted error.
        if best > 0.0:
            one = delta_of(BoundedRangeEvent(eta), epsilon=epsilon, relation=RELATION)
            assert one < best


def test_divergences_are_those_of_concentrated_privacy():
    rng, eta = np.random.default_rng(2), 1.7
    rho, largest = rho_from_bounded_range(eta), 0.0
    for order in (1.01, 2.0, 8.0):
        for t in eta * np.concatenate([[0.5], rng.random(200)]):
            p, q = two_point(eta, t)
            renyi = math.log((p**order * q ** (1.0 - order)).sum()) / (order - 1.0)
            largest = max(largest, renyi / (order * rho))
    assert 0.9 < largest <= 1.0


def test_ledgers_of_pure_entries_stay_pure():
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=0.0))
    for epsilon in (0.3, 0.3):
        ledger.spend(BoundedRangeEvent(epsilon), "a draw")
    ledger.spend(PureEvent(0.3), "noise")
    assert (ledger.epsilon(), ledger.delta()) == (0.9, 0.0)
    assert ledger.remaining().epsilon == pytest.approx(0.1)
    with pytest.raises(ValueError, match="ledger must be one with room"):
        ledger.spend(BoundedRangeEvent(0.2))
    assert Ledger.from_json(ledger.to_json()).epsilon() == 0.9
    many = Ledger(budget=Budget(epsilon=1.0, delta=1e-6))
    for _ in range(64):  # by adding up, 64 of 1/64
        many.add(BoundedRangeEvent(0.0551))
    assert many.delta() <= 1e-6
    many.add(BoundedRangeEvent(0.1))
    assert many.delta() > 1e-6


def test_groups_near_events_blocks_and_choices():
    event = BoundedRangeEvent(0.5)
    assert group_event(event, 3) == BoundedRangeEvent(1.5)
    # A chain of three neighbors whose ratios add up: half of it would be seen.
    p, q = two_point(1.5, 0.75)
    stated = group_delta(event, epsilon=0.2, size=3, relation=RELATION)
    assert 0.9 * stated < divergence(p, q, 0.2) <= stated
    approximate = NearEvent(event, 1e-9)
    actual = delta_of(approximate, epsilon=0.5, relation=RELATION)
    assert actual == pytest.approx((1.0 + math.exp(0.5)) * 1e-9, rel=1e-6)
    blocks = ParallelEvent((event, BoundedRangeEvent(0.7)))
    assert delta_of(blocks, epsilon=0.1, relation=RELATION) == bounded_range_delta(
        0.1, 0.7
    )
    assert group_event(blocks, 2).events[1] == BoundedRangeEvent(1.4)
    mixed = ComposedEvent((event, GaussianEvent(0.2), BoundedRangeEvent(0.0)))
    gaussian = delta_of(GaussianEvent(0.2), epsilon=0.4, relation=RELATION)
    pure = ComposedEvent((PureEvent(0.5), GaussianEvent(0.2)))
    actual = delta_of(mixed, epsilon=0.4, relation=RELATION)
    assert gaussian < actual < delta_of(pure, epsilon=0.4, relation=RELATION)
    assert epsilon_of(event, delta=0.0, relation=RELATION) == 0.5


def test_certificates_of_the_event_pass_both_checkers():
    for delta, eta in ((0.0, 1.0), (1e-3, range_from_budget(1.0, 1e-3))):
        certificate = EventCertificate.of(
            mechanism="my choice",
            budget=Budget(epsilon=1.0, delta=delta),
            event=BoundedRangeEvent(eta),
        )
        assert dps.verify(certificate) and dps.verify(certificate, checker="ball")
        assert EventCertificate.from_json(certificate.to_json()) == certificate
    with pytest.raises(ValueError, match="event must be such that epsilon <="):
        EventCertificate.of(
            mechanism="my choice",
            budget=Budget(epsilon=1.0, delta=1e-3),
            event=BoundedRangeEvent(1.1),
        )
    assert delta_of(
        ApproximateEvent(epsilon=1.0, delta=0.0), epsilon=1.0, relation=RELATION
    ) == delta_of(BoundedRangeEvent(1.0), epsilon=1.0, relation=RELATION)
