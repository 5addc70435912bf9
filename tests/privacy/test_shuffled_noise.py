"""Local noise before shuffling: known settings, and within the budget."""

import itertools
import math

import numpy as np
import pytest

from dpsample.privacy import (
    Budget,
    gaussian_delta,
    gdp_from_budget,
    shuffle_delta,
    shuffle_local_noise,
    shuffle_total_delta,
)
from tests.support.tiers import one_in, usual

# n, epsilon, number of batches, closed and numerical noise of a batch mean over C.
BATCHES = [
    (10_000, 0.2, 10, 0.332, 0.129),
    (10_000, 0.2, 100, 1.051, 0.409),
    (10_000, 1.0, 10, 0.0928, 0.0660),
    (100_000, 1.0, 100, 0.0672, 0.0534),
    (100_000, 0.2, 1000, 0.5805, 0.2805),
]


@one_in(6)
@pytest.mark.parametrize(("n", "epsilon", "batches", "closed", "numerical"), BATCHES)
def test_local_noise_of_known_settings(n, epsilon, batches, closed, numerical):
    budget = Budget(epsilon=epsilon, delta=n**-1.1)
    for method, stated in (("closed_form", closed), ("numerical", numerical)):
        noise = shuffle_local_noise(budget, num_records=n, method=method)
        mean = noise.noise_multiplier / math.sqrt(n / batches)
        assert mean == pytest.approx(stated, rel=0.01)


# epsilon, our numerical noise, noise of a disjoint batch's sum, crossover
# states 17.4, 7.34, 4.20 with local epsilons .77, 1.89, 3.41, which it cuts off where
# the closed form ends: valid, and more than is needed.
LOCAL = [
    (0.05, 17.105, 0.776, 178.2, 108, 17.4),
    (0.2, 6.716, 1.986, 47.35, 49, 7.34),
    (1.0, 3.036, 4.391, 10.20, 11, 4.20),
]


@one_in(3)
@pytest.mark.parametrize(
    ("epsilon", "noise", "local", "disjoint", "crossover", "stated"), LOCAL
)
def test_local_noise_and_where_disjoint_batches_win(
    epsilon, noise, local, disjoint, crossover, stated
):
    budget = Budget(epsilon=epsilon, delta=1e-8)
    found = shuffle_local_noise(budget, num_records=10_000)
    assert found.noise_multiplier == pytest.approx(noise, abs=0.006)
    assert found.local_epsilon == pytest.approx(local, abs=1e-3)
    assert found.noise_multiplier <= stated
    parallel = 2.0 / gdp_from_budget(epsilon, 1e-8)
    assert parallel == pytest.approx(disjoint, rel=1e-3)
    assert math.floor((parallel / found.noise_multiplier) ** 2) == crossover


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def shuffled(laws):
    """Law of the outputs of three records in uniformly random order, as a tensor."""
    orders = itertools.permutations(laws)
    return sum(np.einsum("i,j,k->ijk", *order) for order in orders) / 6.0


def test_the_delta_of_randomizers_costs_no_more_than_stated():
    # Random laws on four outputs; two other records of laws of their own.
    rng, exceeded, largest = np.random.default_rng(3), 0, 0.0
    for _ in range(1500):
        laws = rng.dirichlet(np.full(4, rng.choice([0.1, 0.5, 3.0])), size=4)
        local, epsilon = rng.uniform(0.0, 2.0), rng.uniform(0.0, 1.5)
        local_delta = max(
            hockey_stick(p, q, local) for p, q in itertools.permutations(laws, 2)
        )
        exact = hockey_stick(*(shuffled([p, *laws[2:]]) for p in laws[:2]), epsilon)
        ideal = shuffle_delta(epsilon=epsilon, local_epsilon=local, num_records=3)
        total = shuffle_total_delta(
            ideal,
            epsilon=epsilon,
            local_epsilon=local,
            local_delta=local_delta,
            num_records=3,
        )
        assert exact <= total * (1.0 + 1e-12)
        exceeded += exact > ideal
        largest = max(largest, exact / max(total, 1e-300))
    assert exceeded > 100  # the term is needed
    assert largest > 0.8


@usual("30]")
@pytest.mark.parametrize("n", [1, 30, 1000, 10**6])
def test_more_epsilon_never_needs_more_noise(n):
    noises = [
        shuffle_local_noise(Budget(epsilon=e, delta=d), num_records=n)[0]
        for d in (1e-9, 1e-5)
        for e in (0.02, 0.3, 1.0, 1.6, 1.9, 2.1, 3.0, 4.0, 9.0, 20.0)
    ]
    for half in (noises[:10], noises[10:]):
        assert (np.diff(half) <= 0.0).all()


@pytest.mark.parametrize("method", ["numerical", "closed_form"])
def test_calibrated_local_noise_meets_the_budget(method):
    budget = Budget(epsilon=0.3, delta=1e-6, relation="zero_out")
    noise = shuffle_local_noise(budget, num_records=5000, method=method)
    curve = gaussian_delta(noise.local_epsilon, 2.0 / noise.noise_multiplier)
    assert curve <= noise.local_delta
    ideal = shuffle_delta(
        epsilon=0.3, local_epsilon=noise.local_epsilon, num_records=5000
    )
    total = shuffle_total_delta(
        ideal,
        epsilon=0.3,
        local_epsilon=noise.local_epsilon,
        local_delta=noise.local_delta,
        num_records=5000,
    )
    assert total <= 1e-6
    if method == "numerical":
        assert ideal == pytest.approx(5e-7, rel=1e-6)
    replaced = shuffle_local_noise(
        Budget(epsilon=0.3, delta=1e-6), num_records=5000, method=method
    )
    assert replaced == noise


def test_closed_form_needs_enough_records():
    with pytest.raises(ValueError, match="num_records must be > 16 log"):
        shuffle_local_noise(
            Budget(epsilon=1.0, delta=1e-6), num_records=100, method="closed_form"
        )


def test_other_bad_input_is_refused():
    total = {"epsilon": 0.1, "local_epsilon": 1.0, "num_records": 5}
    for call, name in (
        (lambda: shuffle_total_delta(0.1, local_delta=1.1, **total), "local_delta"),
        (lambda: shuffle_total_delta(1.1, local_delta=0.1, **total), "delta"),
        (
            lambda: shuffle_delta(epsilon=0.1, local_epsilon=601.0, num_records=2),
            "local_epsilon",
        ),
        (lambda: shuffle_local_noise(1.0, num_records=10), "budget"),
        (
            lambda: shuffle_local_noise(
                Budget(epsilon=1.0, delta=0.1), num_records=10, method="best"
            ),
            "method",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
            call()
