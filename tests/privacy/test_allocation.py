"""Random allocation: closed forms, quadrature, adaptive steps, published bounds."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF
from dpsample.privacy import (
    AllocatedGaussianEvent,
    Budget,
    ComposedEvent,
    GaussianEvent,
    allocated_noise_multiplier,
    delta_of,
    epsilon_of,
)
from dpsample.privacy.accounting import allocation
from dpsample.privacy.accounting.allocation import epoch_ratio
from tests.support.statistics import spend
from tests.support.tiers import slow, usual


def epoch(noise, steps, epochs=1):
    return AllocatedGaussianEvent(
        noise_multiplier=noise, num_steps=steps, num_epochs=epochs
    )


def zero_out(event, **at):
    bound = delta_of if "epsilon" in at else epsilon_of
    return bound(event, **at, relation="zero_out")


def two_steps_delta(noise, epsilon, first=1.0, second=np.ones_like):
    """Larger of both orders: exact in the second step, a fine sum over the first.

    ``second`` is the length of the second vector as a function of the first answer.
    """
    answer = np.linspace(-9.0 * noise, 1.0 + 9.0 * noise, 20_001)
    weights = norm.pdf(answer, scale=noise) * (answer[1] - answer[0])
    past = np.exp((first * answer - 0.5 * first**2) / noise**2)
    spread, gamma, deltas = second(answer) / noise, math.exp(epsilon), []
    # E (X - K)_+ and E (K - X)_+ of a log-normal X of mean 1.
    for sign, factor, strike in (
        (1.0, 0.5, 2.0 * gamma - past),
        (-1.0, 0.5 * gamma, 2.0 / gamma - past),
    ):
        edge = np.log(np.maximum(strike, 1e-300)) / spread
        above = norm.cdf(sign * (0.5 * spread - edge))
        gain = sign * (above - strike * norm.cdf(sign * (-0.5 * spread - edge)))
        gain = np.where(strike <= 0.0, max(sign, 0.0) * (1.0 - strike), gain)
        deltas.append(factor * float(weights @ gain))
    return max(deltas)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_two_steps_by_quadrature(noise, epsilon):
    exact = two_steps_delta(noise, epsilon)
    found = zero_out(epoch(noise, 2), epsilon=epsilon)
    assert exact * (1.0 - 1e-9) <= found <= 1.003 * exact + 1e-13


def test_adaptive_lengths_never_exceed_the_pair_and_too_long_ones_do():
    rng = np.random.default_rng(3)
    bounds = {x: zero_out(epoch(1.0, 2), epsilon=x) for x in (0.0, 0.4)}
    for _ in range(40):
        edges, sizes = np.sort(rng.normal(size=5)), rng.uniform(1e-6, 1.0, 6)

        def second(answer, edges=edges, sizes=sizes):
            return sizes[np.searchsorted(edges, answer)]

        for epsilon, bound in bounds.items():
            assert two_steps_delta(1.0, epsilon, rng.uniform(), second) <= bound
    longer = two_steps_delta(1.0, 0.4, 1.0, lambda x: np.where(x > 0.5, 1.2, 1.0))
    assert longer > bounds[0.4]


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 100), (0.4, 7), (3.0, 64)])
def test_moments_of_the_ratio(noise, steps):
    """Mean 1, and a variance that splitting raises by little: both are closed forms."""
    interval = 0.005
    law = epoch_ratio(noise_multiplier=noise, num_steps=steps, interval=interval)
    values = np.exp(interval * (law.first + np.arange(len(law.masses))))
    # Rounding errors are made up for by a bound of theirs, 6 m u t and more.
    most = 1.0 + 2e-8
    assert 1.0 <= law.masses.sum() <= most and 1.0 <= law.masses @ values <= most
    variance = law.masses @ values**2 - 1.0
    exact = math.expm1(noise**-2) / steps
    assert exact * (1.0 - 1e-9) <= variance <= 1.01 * exact
    assert max(law.at_zero, law.lost) < 1e-20


def extended(one, other, interval):
    """Masses of a sum by its definition, in extended precision, of given grids."""
    wide = np.longdouble
    x = one.first + np.arange(len(one.masses))
    y = other.first + np.arange(len(other.masses))
    larger = np.maximum(x[:, None], y)
    gaps = wide(interval) * abs(x[:, None] - y)
    above = np.log1p(np.exp(-gaps)) / wide(interval)
    steps = np.floor(above).astype(int)
    shares = np.expm1(wide(interval) * (above - steps)) / np.expm1(wide(interval))
    masses = one.masses.astype(wide)[:, None] * other.masses
    first = int((larger + steps).min())
    out = np.zeros(int((larger + steps).max()) - first + 2, dtype=wide)
    np.add.at(out, larger + steps - first, masses * (1 - shares))
    np.add.at(out, larger + steps - first + 1, masses * shares)
    return first, out


@usual("30.0")
@pytest.mark.parametrize("noise", [0.2, 1.0, 30.0])
def test_rounding_of_a_sum_is_within_its_bound(noise):
    interval = 0.02 / noise
    one = allocation._split_log_normal(1.0 / noise, 50, interval)
    other = allocation._add_ratios(one, one, interval)
    found = allocation._add_ratios(one, other, interval)
    first, masses = extended(one, other, interval)
    inner = slice(1, -3)  # the ends hold what was cut off
    there = np.pad(masses, (0, len(found.masses)))[found.first - first :]
    # Shares are as exact as values: 16 u of a value are 16 u/h of a cell.
    moved = 16.0 * UNIT_ROUNDOFF / interval * masses.max()
    short = found.short - one.short - other.short
    least = there * (1.0 - short) - moved
    assert (found.masses[inner] >= least[: len(found.masses)][inner]).all()
    assert found.short < 1e-10


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 100), (0.15, 5), (200.0, 33)])
def test_mass_and_mean_are_never_below_one(noise, steps):
    interval = 0.02 / noise
    law = epoch_ratio(noise_multiplier=noise, num_steps=steps, interval=interval)
    values = np.exp(interval * (law.first + np.arange(len(law.masses))))
    mass = math.fsum(law.masses) + law.at_zero
    mean = math.fsum(law.masses * values) + law.lost
    assert 1.0 <= mass <= 1.0 + 1e-7 and 1.0 <= mean <= 1.0 + 1e-7


@usual("2-100-20")
# Certified ends at delta = 1e-6 of the numerics of arXiv:2602.17284.
@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "least", "most"),
    [
        pytest.param(*row, id="-".join(f"{x:g}" for x in row[:3]))
        for row in (
            (1.0, 100, 1, 0.8437, 0.8745),
            (1.0, 100, 10, 1.9245, 2.0055),
            (1.5, 100, 10, 0.9868, 1.0307),
            (2.0, 100, 20, 0.9883, 1.0314),
        )
    ],
)
def test_published_ends_bracket_it(noise, steps, epochs, least, most):
    found = zero_out(epoch(noise, steps, epochs), delta=1e-6)
    assert least <= found <= most


def test_budgets_at_the_ends_of_what_floats_hold_are_answered():
    few = {"num_steps": 1, "num_epochs": 5}
    wide, widest = (
        Budget(epsilon=e, delta=1e-6, relation="zero_out") for e in (600.0, 1e4)
    )
    noise = allocated_noise_multiplier(wide, **few)
    assert noise == pytest.approx(allocated_noise_multiplier(widest, **few), rel=1e-5)
    tiny = Budget(epsilon=1e-300, delta=1e-300, relation="zero_out")
    noise = allocated_noise_multiplier(tiny, **few)
    event = AllocatedGaussianEvent(noise_multiplier=noise, **few)
    assert delta_of(event, epsilon=1e-300, relation="zero_out") <= 1e-300


def test_known_allocation_and_equal_parts():
    whole = GaussianEvent(2.0)
    assert zero_out(epoch(1.0, 1, 4), delta=1e-3) == zero_out(whole, delta=1e-3)
    replaced = epsilon_of(epoch(1.0, 50, 4), delta=1e-3, relation="replace_one")
    assert replaced == epsilon_of(GaussianEvent(4.0), delta=1e-3, relation="zero_out")
    both = ComposedEvent((epoch(2.0, 9), epoch(2.0, 9)))
    assert zero_out(both, epsilon=0.5) == zero_out(epoch(2.0, 9, 2), epsilon=0.5)
    for noise in (0.09, 1e5, 1e300):  # beyond what is followed
        gdp = GaussianEvent(1.0 / noise)
        assert zero_out(epoch(noise, 9), epsilon=1.0) == zero_out(gdp, epsilon=1.0)


def test_it_composes_with_what_has_a_coarser_grid():
    mixed = ComposedEvent((epoch(2e3, 30), GaussianEvent(0.7)))
    found = zero_out(mixed, epsilon=1.0)
    least = zero_out(GaussianEvent(0.7), epsilon=1.0)
    most = zero_out(GaussianEvent(math.hypot(0.7, 1.0 / 2e3)), epsilon=1.0)
    assert least * (1.0 - 1e-9) <= found <= 1.01 * most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "least"),
    [(0.3, 10**7, 10**5, 0.99988), slow(0.1, 2**31 - 1, 20, 0.99997)],
)
def test_rounding_errors_of_many_steps_and_epochs_are_made_up_for(
    noise, steps, epochs, least
):
    """Deltas close to 1, from below: sums that lose a part 1e-15 t of their mass."""
    assert zero_out(epoch(noise, steps, epochs), epsilon=0.0) >= least


@pytest.mark.parametrize(
    "event",
    [
        ComposedEvent((epoch(1.0, 10), GaussianEvent(1e3))),
        ComposedEvent((epoch(1e4, 10), GaussianEvent(3e3))),
        epoch(1e4, 2, 2**31 - 1),
        epoch(3.0, 2**31 - 1, 2**31 - 1),
    ],
    ids=str,
)
def test_extremes_have_a_bound(event):
    assert 0.9 < zero_out(event, epsilon=1.0) <= 1.0


def allocated_sums(noise, steps):
    """Sums of one record's vectors, as an audit calls it."""

    def sums(is_there, rng, num_draws):
        answers = noise * rng.normal(size=(num_draws, steps))
        if is_there:
            picks = rng.integers(steps, size=num_draws)
            answers[np.arange(num_draws), picks] += 1.0
        return answers

    return sums


@pytest.mark.parametrize(("noise", "is_refuted"), [(1.0, False), (0.5, True)])
def test_an_audit_refutes_half_the_noise_and_not_the_noise(noise, is_refuted):
    epsilon = zero_out(epoch(1.0, 4), delta=1e-2)
    report = dps.audit(
        allocated_sums(noise, 4),
        True,
        False,
        dps.Budget(epsilon=epsilon, delta=1e-2, relation="zero_out"),
        log_ratio=lambda x: np.log(np.exp((x - 0.5) / noise**2).mean(axis=1)),
        num_draws=20_000,
        seed=5,
        alpha=spend(),
        progress=False,
    )
    assert report.is_refuted == is_refuted


def test_ctrl_c_is_heard_among_the_sums_of_an_epoch(monkeypatch):
    heard = []
    given = {"noise_multiplier": 2.0, "num_steps": 6, "interval": 4e-3}
    whole = epoch_ratio(**given)
    monkeypatch.setattr(allocation, "CALL_PAIRS", 10**5, raising=False)
    with pauses.listening(lambda: heard.append(None)):
        cut = epoch_ratio(**given)
    assert len(heard) > 100
    np.testing.assert_array_equal(cut.masses, whole.masses)
