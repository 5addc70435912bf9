"""Accounting: exact where a formula exists, above brute force everywhere."""

import math
import subprocess
import sys
from fractions import Fraction

import dp_accounting
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
    gaussian_epsilon,
    gdp_from_budget,
    zcdp_delta,
)

RELATIONS = ("replace_one", "zero_out")
POISSON = PoissonGaussianEvent(sampling_rate=0.2, noise_multiplier=3.0, num_steps=20)
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


def delta(event, epsilon, relation="replace_one"):
    return delta_of(event, epsilon=epsilon, relation=relation)


def epsilon(event, delta, relation="replace_one"):
    return epsilon_of(event, delta=delta, relation=relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_gaussian_events_compose_exactly(relation):
    parts = ComposedEvent(
        (GaussianEvent(0.3), ComposedEvent((GaussianEvent(0.4), GaussianEvent(0.0))))
    )
    for e in EPSILONS:
        assert delta(parts, e, relation) == pytest.approx(
            gaussian_delta(e, 0.5), rel=1e-12
        )
    for d in (1e-12, 1e-6, 0.3):
        assert epsilon(parts, d, relation) == pytest.approx(
            gaussian_epsilon(d, 0.5), rel=1e-10
        )


@pytest.mark.parametrize("budget", [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-3)])
def test_round_trip_of_budget_gdp_and_event(budget):
    e, d = budget
    event = GaussianEvent(gdp_from_budget(e, d))
    assert epsilon(event, d) == pytest.approx(e, rel=1e-10)
    assert epsilon(event, d) <= e * (1 + 1e-12)
    assert delta(event, e) <= d


@pytest.mark.parametrize("gdp", [0.1, 0.5, 2.0])
def test_dp_accounting_agrees_on_gaussians_to_its_discretization(gdp):
    count, interval = 50, 1e-3
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=interval)
    noise = math.sqrt(count) / gdp
    accountant.compose(dp_accounting.GaussianDpEvent(noise), count)
    ours = ComposedEvent((GaussianEvent(1.0 / noise),) * count)
    for d in (1e-9, 1e-6, 1e-3):
        assert accountant.get_epsilon(d) == pytest.approx(
            epsilon(ours, d), abs=interval
        )


@pytest.mark.parametrize("e", EPSILONS)
def test_concentrated_events_add_up(e):
    event = ComposedEvent((ConcentratedEvent(0.01), ConcentratedEvent(0.03)))
    assert delta(event, e) == pytest.approx(zcdp_delta(e, 0.04), rel=1e-10)
    with_gaussian = ComposedEvent((event, GaussianEvent(0.2)))
    # Loss distributions know more of a Gaussian than its Renyi divergences.
    least = gaussian_delta(e, math.sqrt(2 * 0.06))
    assert least < delta(with_gaussian, e) <= zcdp_delta(e, 0.06) * (1 + 1e-9)


def test_parallel_events_cost_the_worst_one():
    events = (GaussianEvent(0.3), PureEvent(0.2), POISSON)
    for e in EPSILONS:
        worst = max(delta(event, e) for event in events)
        assert delta(ParallelEvent(events), e) == pytest.approx(worst, rel=1e-12)
    gaussians = ParallelEvent((GaussianEvent(0.3), GaussianEvent(0.2)))
    assert delta(gaussians, 0.5) == delta(GaussianEvent(0.3), 0.5)
    twice = ComposedEvent((gaussians, gaussians))
    assert delta(twice, 0.5) == pytest.approx(
        gaussian_delta(0.5, 0.3 * math.sqrt(2)), rel=1e-12
    )


def test_blocks_chosen_by_content_are_not_parallel():
    """Counts by label: a replaced record leaves one block and enters another."""
    gdp = 0.5
    counts = ParallelEvent((GaussianEvent(gdp), GaussianEvent(gdp)))
    moved = math.hypot(gdp, gdp)
    assert gaussian_delta(1.0, moved) > 5.0 * delta(counts, 1.0)
    composed = ComposedEvent(counts.events)
    assert delta(composed, 1.0) == pytest.approx(gaussian_delta(1.0, moved), rel=1e-12)


def test_total_variation_costs_one_plus_the_exponential():
    gdp, distance = 0.2, 1e-8
    near = NearEvent(GaussianEvent(gdp), distance)
    for e in EPSILONS:
        losses = [e * i / 2000 for i in range(2001)]
        costs = [gaussian_delta(x, gdp) + (1 + math.exp(x)) * distance for x in losses]
        assert delta(near, e) <= costs[-1] * (1 + 1e-11)
        assert delta(near, e) == pytest.approx(min(costs), rel=1e-5)
    assert delta(near, 2.0) < 0.5 * costs[-1]  # at 2.0 a smaller epsilon has less
    e = epsilon(near, 1e-6)
    assert delta(near, e) <= 1e-6
    assert delta(near, e * (1 - 1e-9)) > 1e-6
    assert epsilon(NearEvent(near, 1e-6), 1e-6) == math.inf
    barely = NearEvent(GaussianEvent(0.01), 0.45e-6)
    assert epsilon(barely, 1e-6) < 0.1


def test_distances_add_in_sequence_and_count_once_in_parallel():
    near = NearEvent(GaussianEvent(0.2), 1e-8)
    other = NearEvent(PureEvent(0.1), 3e-8)
    ideal = ComposedEvent((GaussianEvent(0.2), PureEvent(0.1)))
    for e in (0.1, 1.0):
        added = delta(ideal, e) + (1 + math.exp(e)) * 4e-8
        assert delta(ideal, e) < delta(ComposedEvent((near, other)), e) <= added
    assert delta(ComposedEvent((near, other)), 0.1) == pytest.approx(
        delta(ideal, 0.1) + (1 + math.exp(0.1)) * 4e-8, rel=1e-6
    )
    blocks = ParallelEvent((near, other))
    # Each block at its own best epsilon: the pure one's distance costs most at 0.1.
    for e in (0.1, 1.0):
        worst = max(delta(block, e) for block in (near, other))
        assert delta(blocks, e) == pytest.approx(worst, rel=1e-12)
    assert delta(other, 1.0) == pytest.approx((1 + math.exp(0.1)) * 3e-8, rel=1e-6)


def test_epsilon_and_delta_are_inverse():
    events = (
        PureEvent(0.5),
        ApproximateEvent(epsilon=0.5, delta=1e-9),
        ConcentratedEvent(0.1),
        POISSON,
        ComposedEvent((POISSON, PureEvent(0.1))),
        NearEvent(POISSON, 1e-9),
    )
    for event in events:
        for d in (1e-7, 1e-4):
            e = epsilon(event, d)
            assert delta(event, e) <= d
            assert delta(event, e * (1 - 1e-6)) > d


def test_extremes():
    assert epsilon(GaussianEvent(0.0), 1e-6) == 0.0
    assert epsilon(PureEvent(0.0), 1e-12) == 0.0
    assert epsilon(PureEvent(1.0), 1e-300) == pytest.approx(1.0)
    assert epsilon(PureEvent(700.0), 1e-6) == math.inf
    assert epsilon(ComposedEvent((PureEvent(1.0),) * 3), 1e-100) == pytest.approx(3.0)
    assert 4.9 < epsilon(POISSON, 1e-16) < 5.0
    assert 8.0 < epsilon(POISSON, 1e-50) < 15.0  # by Renyi bounds: inf without
    assert epsilon(ApproximateEvent(epsilon=1.0, delta=0.1), 0.01) == math.inf
    assert delta(PureEvent(600.0), 600.0) == delta(PureEvent(600.0), 1e300) == 0.0
    near = NearEvent(GaussianEvent(1.0), 1e-280)
    assert 0.0 < delta(near, 600.0) == delta(near, 1e4) < 1e-18
    assert epsilon(GaussianEvent(1.0), 0.9) == 0.0
    near = NearEvent(GaussianEvent(1.0), 0.6)
    assert epsilon(ComposedEvent((near, near)), 0.9) == math.inf


def test_epsilons_of_many_pure_events_lose_no_digits():
    parts = (PureEvent(0.007111770004852191),) * 500  # floats one by one: 1.4e-14 less
    whole = 500 * Fraction(parts[0].epsilon)
    for step in (-50, -20, -10, -5, -3, -2, -1, 0, 1):
        e = float(whole) * (1.0 + 1e-15 * step)
        if Fraction(e) < whole:
            assert delta(ComposedEvent(parts), e) > 0.0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: delta_of(3, epsilon=1.0, relation="zero_out"), "event"),
        (lambda: delta(POISSON, -1.0), "epsilon"),
        (lambda: delta(POISSON, math.nan), "epsilon"),
        (lambda: delta(POISSON, 1.0, "add_remove"), "relation"),
        (lambda: epsilon(None, 0.1), "event"),
        (lambda: epsilon(POISSON, -0.1), "delta"),
        (lambda: epsilon(POISSON, 1.0), "delta"),
        (lambda: epsilon(POISSON, math.nan), "delta"),
        (lambda: epsilon(POISSON, 0.1, "replace"), "relation"),
    ],
)
def test_bad_input_is_refused(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
        call()


@pytest.mark.slow
def test_cheap_cases_do_not_import_dp_accounting():
    code = """
import sys
from dpsample.privacy import *
near = NearEvent(GaussianEvent(0.1), 1e-9)
both = ComposedEvent((near, GaussianEvent(0.2), ConcentratedEvent(0.01)))
one = PoissonGaussianEvent(sampling_rate=1.0, noise_multiplier=4.0, num_steps=4)
for event in (near, both, one, PureEvent(1.0), ParallelEvent((near, PureEvent(0.1)))):
    epsilon_of(event, delta=1e-6, relation="replace_one")
assert not any(name.startswith("dp_accounting") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(0.01),
        ConcentratedEvent(1e-6),
        PoissonGaussianEvent(sampling_rate=0.01, noise_multiplier=10.0, num_steps=1),
        ComposedEvent((GaussianEvent(0.001), PureEvent(0.1))),
    ],
    ids=repr,
)
def test_no_delta_is_rounded_to_that_of_a_pure_mechanism(event):
    # The first delta is 2e-2178; below the normal doubles there is nothing to say.
    for epsilon in (1.0, 30.0, 600.0):
        assert delta_of(event, epsilon=epsilon, relation="replace_one") >= 2.2e-308
    assert delta_of(PureEvent(0.1), epsilon=1.0, relation="replace_one") == 0.0


@pytest.mark.parametrize("first", [GaussianEvent(1e-163), PureEvent(1e-163)])
def test_events_whose_squares_underflow_still_cost(first):
    alone, both = first, ComposedEvent((first, PureEvent(1e-170)))
    for relation in ("zero_out", "replace_one"):
        least = 0.2 * delta_of(alone, epsilon=0.0, relation=relation)
        assert 0.0 < least <= delta_of(both, epsilon=0.0, relation=relation) < 1e-20
