"""Additive mechanisms: releases and privacy losses."""

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.noise import AdditiveMechanism, Gaussian, gaussian_mechanism
from dpsample.noise.mechanism import norm_of
from dpsample.numerics.norms import dual, norm, schatten
from dpsample.privacy import gaussian_delta
from tests.support.additive_mechanisms import BUDGET, MECHANISMS, SHAPE
from tests.support.statistics import assert_law, rejected, spend
from tests.support.tiers import one_in

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@every_mechanism
def test_a_seed_repeats_the_noise_and_forbids_the_release(name):
    mech, dim = MECHANISMS[name]
    first = mech.release(np.zeros(dim), seed=5)
    np.testing.assert_array_equal(first.value, mech.release([0.0] * dim, seed=5).value)
    noisy = mech.noise._noisy(streams(5, 1)[0], np.zeros(dim))
    np.testing.assert_array_equal(first.value, noisy)
    # Whole numbers are on the grid of these scales: they move the answer exactly.
    moved = mech.release(np.arange(dim), seed=5).value - np.arange(dim)
    np.testing.assert_array_equal(moved, noisy)
    assert (mech.release(np.zeros(dim), seed=6).value != first.value).all()
    assert not first.releasable
    assert first.certificate.seeded
    assert not first.certificate.releasable


@every_mechanism
def test_without_a_seed_every_release_is_new_and_keeps_the_certificate(name):
    mech, dim = MECHANISMS[name]
    first, second = mech.release(np.zeros(dim)), mech.release(np.zeros(dim))
    assert (first.value != second.value).all()
    assert first.value.shape == (dim,)
    assert first.releasable == mech.certificate.releasable
    assert first.certificate == mech.certificate


@pytest.mark.parametrize("size", [0.1, 1.3])
def test_numbers_of_numpy_are_computed_with_as_numbers_of_python(size):
    budget = dps.Budget(epsilon=0.7, delta=1e-6)
    for make in (dps.noise.gaussian_mechanism, dps.noise.laplace_mechanism):
        one = make(budget, sensitivity=np.float32(size)).certificate
        assert one == make(budget, sensitivity=float(np.float32(size))).certificate
        assert dps.verify(one).checks


def test_the_value_of_the_query_is_not_changed():
    mech, dim = MECHANISMS["cubic"]
    value = np.arange(float(dim))
    mech.release(value, seed=1)
    np.testing.assert_array_equal(value, np.arange(float(dim)))


def test_a_number_gets_a_number():
    for mech in (gaussian_mechanism(BUDGET, sensitivity=1.0), MECHANISMS["laplace"][0]):
        answer = mech.release(3, seed=1)
        assert type(answer.value) is float
        assert answer.value == mech.release([3.0], seed=1).value[0]


@one_in(4)
@pytest.mark.parametrize("name", ["gaussian", "least noisy", "cubic", "high power"])
def test_the_released_noise_has_the_calibrated_size(name):
    """Norms over sigma are chi variables with d degrees of freedom."""
    mech, dim = MECHANISMS[name]
    size, _ = norm_of(mech.noise)
    answers = [mech.release(np.ones(dim), seed=k).value for k in range(1500)]
    masses = size(np.array(answers) - 1.0) ** 2

    def chi_square(x):
        return 1.0 - np.exp(-x / 2.0) * (1.0 + x / 2.0)  # 4 degrees of freedom

    assert_law(masses, chi_square)
    with rejected():
        assert_law(0.5 * masses, chi_square)


# Privacy losses.


@every_mechanism
def test_losses_are_differences_of_log_densities(name):
    mech, dim = MECHANISMS[name]
    rng = np.random.default_rng(1)
    outputs = rng.normal(size=(2, 5, dim)) * 3.0
    value, neighbor = rng.normal(size=(2, dim))
    losses = mech.privacy_loss(outputs, value, neighbor)
    density = mech.noise.log_density
    wanted = density(outputs - value) - density(outputs - neighbor)
    np.testing.assert_allclose(losses, wanted, rtol=1e-10, atol=1e-10)
    assert losses.shape == (2, 5)
    swapped = mech.privacy_loss(outputs, neighbor, value)
    np.testing.assert_allclose(losses, -swapped, rtol=1e-12)
    single = mech.privacy_loss(outputs[1, 2], value, neighbor)
    assert single == losses[1, 2]
    assert not mech.privacy_loss(outputs, value, value).any()


def test_losses_of_gaussian_noise_are_normal_with_the_stated_gdp():
    mech, dim = MECHANISMS["gaussian"]
    change = np.zeros(dim)
    change[1] = mech.sensitivity
    outputs = mech.noise.draw(np.random.default_rng(2), (4000, dim)) + change
    losses = mech.privacy_loss(outputs, change, np.zeros(dim))

    def law(x):
        return normal.cdf(x, loc=0.5 * mech.gdp**2, scale=mech.gdp)

    assert_law(losses, law)
    with rejected():
        # Half the noise doubles the gdp.
        weak = AdditiveMechanism(
            **(vars(mech) | {"noise": Gaussian(mech.noise.stddev / 2)})
        )
        outputs = weak.noise.draw(np.random.default_rng(3), (4000, dim)) + change
        assert_law(weak.privacy_loss(outputs, change, np.zeros(dim)), law)


def changes_of(name, rng, count=200):
    """Changes of the query that the declared sensitivity allows, at its limit."""
    mech, dim = MECHANISMS[name]
    moves = np.vstack([rng.normal(size=(count, dim)), np.eye(dim), np.ones((1, dim))])
    if name == "laplace":
        size = norm(moves, 1.0)
    elif name == "schatten":
        size = schatten(moves, math.inf, SHAPE)
    elif name == "high power":
        size = norm(moves, math.inf)
    elif name in ("k-norm", "polytope"):
        size = mech.noise.domain.gauge(moves)
    else:
        size = norm(moves, 2.0 if name == "gaussian" else dual(1.5))
    return mech.sensitivity * moves / size[:, None]


@pytest.mark.parametrize("name", ["laplace", "k-norm", "polytope"])
def test_losses_of_pure_noise_reach_epsilon_and_no_more(name):
    mech, dim = MECHANISMS[name]
    rng = np.random.default_rng(4)
    worst = 0.0
    for change in changes_of(name, rng):
        outputs = np.vstack([rng.normal(size=(20, dim)), 50.0 * change, -50.0 * change])
        losses = mech.privacy_loss(outputs, np.zeros(dim), change)
        worst = max(worst, np.abs(losses).max())
    assert worst <= BUDGET.epsilon * (1.0 + 1e-12)
    assert worst >= BUDGET.epsilon * (1.0 - 1e-9)


def assert_not_above(losses, gdp, epsilon):
    """Mean of (1 - e^(eps - loss))_+, at most 1, against the curve (Hoeffding)."""
    excess = np.maximum(1.0 - np.exp(epsilon - losses), 0.0)
    slack = math.sqrt(math.log(1.0 / spend()) / (2.0 * len(losses)))
    claimed = gaussian_delta(epsilon, gdp)
    mean = excess.mean()
    assert mean <= claimed + slack, f"statistic: {mean:.4f} above {claimed:.4f}"


@one_in(3)
@pytest.mark.parametrize("name", ["cubic", "high power", "schatten"])
def test_generalized_noise_is_as_private_as_stated(name):
    mech, dim = MECHANISMS[name]
    rng = np.random.default_rng(5)
    noise = mech.noise.draw(rng, (20_000, dim))
    for change in changes_of(name, rng, count=3)[::2]:
        for epsilon in (0.0, 0.3):
            losses = mech.privacy_loss(noise, np.zeros(dim), change)
            assert_not_above(losses, mech.gdp, epsilon)
        with rejected():
            losses = mech.privacy_loss(noise, np.zeros(dim), 10.0 * change)
            assert_not_above(losses, mech.gdp, 0.0)
