"""Loss distributions of Gaussian mixtures against closed forms and dp-accounting."""

import math

import numpy as np
import pytest

from dpsample.papers import bassily, curves
from dpsample.papers.curves import MixturePair, binomial, composed_epsilon
from dpsample.privacy import gaussian_delta, gaussian_epsilon
from dpsample.privacy.accounting.accounting import epsilon_of
from dpsample.privacy.accounting.events import PoissonGaussianEvent
from tests.support.tiers import one_in


def test_one_step_of_bassily_has_the_delta_of_a_sum_over_multiplicities():
    counts, weights = binomial(5000, 1e-4)
    noise = bassily._batch(1.0, 1)[1]
    pair = MixturePair(
        weights=tuple(weights),
        means=tuple(2 * counts),
        others=tuple(0 * counts),
        stddev=noise,
    )
    assert pair.curve(np.array([1.0]))[0] == pytest.approx(3.5e-5, rel=0.02)


@pytest.mark.slow
def test_mixtures_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as library

    counts, weights = binomial(2, 0.1)
    theirs = library.from_mixture_gaussian_mechanism(
        3.0, counts, weights, value_discretization_interval=1e-3
    )
    expected = theirs.self_compose(20).get_epsilon_for_delta(1e-6)
    pair = MixturePair(
        weights=tuple(weights), means=tuple(counts), others=(0.0,) * 3, stddev=3.0
    )
    found = composed_epsilon(pair, num_steps=20, delta=1e-6)
    assert found == pytest.approx(expected, rel=5e-3)


@one_in(2)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_mixtures_agree_with_the_accounting_of_poisson_sampling(relation):
    event = PoissonGaussianEvent(sampling_rate=0.1, noise_multiplier=2.0, num_steps=40)
    expected = epsilon_of(event, delta=1e-6, relation=relation)
    other = -1.0 if relation == "replace_one" else 0.0
    pair = MixturePair(
        weights=(0.9, 0.1), means=(0.0, 1.0), others=(0.0, other), stddev=2.0
    )
    found = composed_epsilon(pair, num_steps=40, delta=1e-6)
    assert found == pytest.approx(expected, rel=1e-2)


def test_mixtures_of_one_normal_are_gaussian_and_rounded_up():
    pair = MixturePair(weights=(1.0,), means=(1.0,), others=(0.0,), stddev=20.0)
    losses = np.linspace(-0.3, 0.3, 13)
    curve = pair.curve(losses)
    for loss, delta in zip(losses, curve, strict=True):
        if loss >= 0:
            assert delta == pytest.approx(gaussian_delta(loss, 0.05), rel=1e-6)
        else:  # delta(-e) = 1 - e^-e (1 - delta(e))
            mirror = -math.expm1(loss) + math.exp(loss) * gaussian_delta(-loss, 0.05)
            assert delta == pytest.approx(mirror, rel=1e-6)
    exact = gaussian_epsilon(1e-6, 0.05 * 10)
    found = composed_epsilon(pair, num_steps=100, delta=1e-6)
    assert exact <= found <= exact * 1.003


def test_poisson_sampling_means_the_same_distance_in_both_relations():
    # One step with all records: distance 1/z under zero_out and 2/z under replace_one.
    for relation, distance in (("zero_out", 1.0), ("replace_one", 2.0)):
        found = curves.poisson(
            sampling_rate=1.0,
            noise_multiplier=4.0,
            num_steps=1,
            delta=1e-4,
            relation=relation,
        )(1.0)
        assert found == pytest.approx(gaussian_epsilon(1e-4, distance / 4.0), rel=2e-3)
