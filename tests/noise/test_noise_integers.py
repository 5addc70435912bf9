"""Discrete Laplace noise: exact integers, certificates, and a planted bug."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsample import verify
from dpsample.noise import (
    DiscreteLaplace,
    from_dict,
    geometric_mechanism,
    laplace_mechanism,
)
from dpsample.noise.elementary import discrete_laplace_integer, integer_below
from dpsample.privacy import Budget, Ledger, PureEvent
from tests.support.additive_mechanisms import WHOLE
from tests.support.statistics import assert_frequency, rejected

PURE = Budget(epsilon=1.0, delta=0.0)
NUM_DRAWS = 4000


def chance(z, scale):
    """Probability of an integer."""
    return math.tanh(0.5 / scale) * math.exp(-abs(z) / scale)


def test_counts_come_back_as_integers_with_a_pure_certificate():  # A5
    mech = geometric_mechanism(PURE, sensitivity=1)
    answer = mech.release(18202)
    assert type(answer.value) is int and abs(answer.value - 18202) < 100
    assert answer.releasable and answer.certificate.event == PureEvent(1.0)
    bins = mech.release(np.array([3, 0, 10**6]))
    assert bins.value.dtype == np.int64 and bins.value.shape == (3,)
    for checker in ("standard", "ball"):
        statement = verify(answer.certificate, checker=checker).statement
        assert "is 1-differentially private (pure) when" in statement
    assert "whole numbers" in answer.certificate.details()
    assert from_dict(mech.noise.to_dict()) == DiscreteLaplace(mech.noise.scale)


def test_hostile_values_of_a_count_are_legal():
    mech = geometric_mechanism(PURE, sensitivity=1)
    values = [math.nan, math.inf, -math.inf, 1e300, 0.5, -0.5]
    noisy = mech.release(values, seed=1).value
    ends = [0, 2**51, -(2**51), 2**51, 0, -1]
    assert (np.abs(noisy - np.array(ends)) < 200).all()


def test_no_answer_tells_from_which_value_it_was_cut_off():
    mech = geometric_mechanism(PURE, sensitivity=2**51)  # scale 2^51, ends 2^52
    ends = [
        {int(v) for v in np.abs(mech.release([value] * 64, seed=1).value)}
        for value in (0, 2**51, -(2**51))
    ]
    assert all(max(end) == 2**52 for end in ends)  # where the answers of all end
    same = [mech.release([value] * 64, seed=1).value.max() for value in (0, 2**51)]
    assert same == [2**52, 2**52]


def test_the_noise_has_its_law():
    scale, rng = Fraction(3, 2), np.random.default_rng(1)
    draws = [discrete_laplace_integer(rng, scale) for _ in range(NUM_DRAWS)]
    for z in (0, 1, -1, -3):
        assert_frequency(draws.count(z), NUM_DRAWS, chance(z, 1.5))
    both_zeros = [
        abs(z) * rng.choice([-1, 1]) for z in rng.geometric(0.4, NUM_DRAWS) - 1
    ]
    with rejected():  # geometric sizes with signs have zero too often
        assert_frequency(both_zeros.count(0), NUM_DRAWS, chance(0, 1.5))


def test_probabilities_are_normalized_and_private():
    noise = DiscreteLaplace(1.5)
    grid = np.arange(-80.0, 81.0)[:, None]
    logs = noise.log_density(grid)
    assert np.exp(logs).sum() == pytest.approx(1.0, rel=1e-12)
    assert np.abs(np.diff(logs)).max() == pytest.approx(1 / 1.5, rel=1e-12)
    assert noise.log_density([0.5]) == -math.inf
    mech = geometric_mechanism(PURE, sensitivity=2)
    losses = mech.privacy_loss(grid, [0.0], [2.0])
    assert np.abs(losses).max() <= 1.0
    mech = WHOLE["geometric"][0]
    losses = mech.privacy_loss(grid, [0.0], [mech.sensitivity])
    assert np.abs(losses).max() == pytest.approx(mech.budget.epsilon, rel=1e-12)


@pytest.mark.parametrize("bound", [1, 2, 3, 255, 256, 257, 2**70 + 1])
def test_integers_below_a_bound_stay_below_it(bound):
    rng = np.random.default_rng(2)
    drawn = [integer_below(rng, bound) for _ in range(200)]
    assert 0 <= min(drawn) and max(drawn) < bound
    assert max(drawn) >= bound // 2 or bound == 1


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, 2**52, "1"])
def test_a_sensitivity_of_counts_is_an_integer(bad):
    with pytest.raises(ValueError, match="sensitivity must be an integer"):
        geometric_mechanism(PURE, sensitivity=bad)


@pytest.mark.parametrize("make", [laplace_mechanism, geometric_mechanism])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.7, 1e-6, 50.0])
def test_stated_epsilons_are_those_asked_for(make, epsilon):  # A2, A5
    budget = Budget(epsilon=epsilon, delta=0.0)
    certificate = make(budget, sensitivity=1).certificate
    assert certificate.epsilon_proved == certificate.event.epsilon == epsilon
    scale = Fraction(dict(certificate.inputs)["scale"])
    assert 1 / scale <= min(Fraction(epsilon), Fraction(repr(epsilon)))
    ledger = Ledger(budget=budget)
    ledger.spend(certificate)
    assert ledger.remaining() == (0.0, 0.0)
