"""Shuffling: an upper bound of the exact divergence, close to it, and its numbers."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from dpsample.privacy import (
    Budget,
    shuffle_closed_form,
    shuffle_delta,
    shuffle_epsilon,
    shuffle_local_noise,
    shuffle_total_delta,
)
from dpsample.privacy.curves import shuffling
from tests.support.tiers import one_in, usual


def clone_divergence(epsilon, local, n):
    """Exact divergences of the pair of Theorem 3.2, by enumeration."""
    rate, a = math.exp(-local), 1.0 / (1.0 + math.exp(-local))
    p, q = {}, {}
    for c in range(n):
        weight = math.comb(n - 1, c) * rate**c * (1 - rate) ** (n - 1 - c)
        for heads in range(c + 1):
            mass = weight * math.comb(c, heads) / 2.0**c
            for coin, chance in ((1, a), (0, 1 - a)):
                for law, bit in ((p, coin), (q, 1 - coin)):
                    key = (c, heads + bit)
                    law[key] = law.get(key, 0.0) + mass * chance
    keys = sorted(p)
    first = np.array([p[key] for key in keys])
    second = np.array([q[key] for key in keys])

    def excess(x, y):
        return float(np.maximum(x - math.exp(epsilon) * y, 0.0).sum())

    return excess(first, second), excess(second, first)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("local", [0.1, 1.0, 4.0])
def test_numerical_bound_is_the_exact_divergence_of_the_pair(n, local):
    for epsilon in (0.0, 0.01, 0.3 * local, 0.8 * local, 0.999 * local):
        there, back = clone_divergence(epsilon, local, n)
        assert there == pytest.approx(back, abs=1e-14)
        found = shuffle_delta(epsilon=epsilon, local_epsilon=local, num_records=n)
        assert there - 1e-15 <= found <= there * (1 + 1e-8) + 1e-15


def shuffled_laws(kernel, first, others):
    """Law of the multiset of outputs of local randomizers."""
    law = {}
    rows = [kernel[first], *(kernel[x] for x in others)]
    for outcome in itertools.product(range(kernel.shape[1]), repeat=len(rows)):
        mass = math.prod(row[y] for row, y in zip(rows, outcome, strict=True))
        key = tuple(sorted(outcome))
        law[key] = law.get(key, 0.0) + mass
    return law


def shuffled_divergence(kernel, epsilon, num_records):
    """Largest divergence over the other records, both directions."""
    worst = 0.0
    inputs = range(kernel.shape[0])
    for others in itertools.combinations_with_replacement(inputs, num_records - 1):
        p, q = (shuffled_laws(kernel, x, others) for x in (0, 1))
        for x, y in ((p, q), (q, p)):
            terms = (x[key] - math.exp(epsilon) * y[key] for key in p)
            worst = max(worst, sum(max(term, 0.0) for term in terms))
    return worst


def response_kernel(local, num_inputs):
    """Randomized response with as many answers as inputs."""
    kernel = np.ones((num_inputs, num_inputs))
    kernel[np.diag_indices(num_inputs)] = math.exp(local)
    return kernel / kernel.sum(axis=1, keepdims=True)


@one_in(4)
@pytest.mark.parametrize("num_inputs", [2, 3])
@pytest.mark.parametrize("num_records", [2, 4, 5])
@pytest.mark.parametrize("local", [0.5, 2.0])
def test_bound_holds_for_shuffled_randomized_response(num_inputs, num_records, local):
    kernel = response_kernel(local, num_inputs)
    for epsilon in (0.0, 0.2, 0.5 * local, 0.9 * local):
        exact = shuffled_divergence(kernel, epsilon, num_records)
        bound = shuffle_delta(
            epsilon=epsilon, local_epsilon=local, num_records=num_records
        )
        assert exact <= bound + 1e-14


@one_in(2)
@pytest.mark.parametrize("num_records", [2, 3, 5])
@pytest.mark.parametrize("leak", [1e-3, 0.05])
def test_the_delta_term_holds_for_leaking_responses(num_records, leak):
    local = 1.0
    kept = (1 - leak) * response_kernel(local, 2)
    kernel = np.hstack([kept, leak * np.eye(2)])
    for epsilon in (0.0, 0.3, 0.7):
        exact = shuffled_divergence(kernel, epsilon, num_records)
        ideal = shuffle_delta(
            epsilon=epsilon, local_epsilon=local, num_records=num_records
        )
        total = shuffle_total_delta(
            ideal,
            epsilon=epsilon,
            local_epsilon=local,
            local_delta=leak,
            num_records=num_records,
        )
        assert exact <= total
    assert shuffled_divergence(kernel, 0.7, 5) > 0.0


# closed form and numerical epsilon at delta = 1e-6; None where the form is not valid.
PAIRS = [
    (10_000, 0.5, 0.0939, 0.0204),
    (10_000, 1.0, 0.214, 0.0530),
    (10_000, 2.0, 0.501, 0.155),
    (10_000, 4.0, None, 0.601),
    (100_000, 1.0, 0.0726, 0.0153),
    (100_000, 4.0, 0.5346, 0.1698),
]


@usual("10000-0.5")
@pytest.mark.parametrize(("n", "local", "closed", "numerical"), PAIRS)
def test_known_numbers(n, local, closed, numerical):
    args = {"local_epsilon": local, "delta": 1e-6, "num_records": n}
    found = shuffle_epsilon(**args)
    assert found == pytest.approx(numerical, rel=4e-3)
    assert shuffle_delta(epsilon=found, local_epsilon=local, num_records=n) <= 1e-6
    if closed is None:
        with pytest.raises(ValueError, match="Use shuffle_epsilon"):
            shuffle_closed_form(**args)
    else:
        assert shuffle_closed_form(**args) == pytest.approx(closed, rel=1e-3)
        assert found < shuffle_closed_form(**args)


def test_bound_is_monotone_and_bounded_by_its_ends():
    at = {"local_epsilon": 2.0, "num_records": 500}
    deltas = [shuffle_delta(epsilon=e, **at) for e in np.linspace(0.0, 2.0, 41)]
    assert all(a >= b for a, b in itertools.pairwise(deltas))
    assert deltas[-1] == 0.0
    for name, values in (
        ("local_epsilon", (0.5, 1.0, 2.0, 3.0)),
        ("num_records", (4000, 400, 40, 4)),
    ):
        grows = [shuffle_delta(epsilon=0.3, **at | {name: x}) for x in values]
        assert all(a <= b for a, b in itertools.pairwise(grows))
    assert shuffle_epsilon(delta=1e-6, local_epsilon=0.0, num_records=9) == 0.0
    assert shuffle_epsilon(delta=1e-300, local_epsilon=1.0, num_records=9) <= 1.0


def test_no_count_is_left_out():
    """Far below delta = 1e-20 the records that nobody hides are what counts."""
    for others, rate in ((0, 0.5), (9, 1.0), (10**6, 0.3), (10**9, 1e-9)):
        assert shuffling._blocks(others, rate)[0] == 0.0


@pytest.mark.slow
def test_blocks_of_huge_counts_stay_above_and_close():
    """With one block per value and with few blocks, 1e8 records."""
    args = {"epsilon": 0.0004, "local_epsilon": 1.0, "num_records": 10**8}
    coarse = shuffle_delta(**args)
    fine_blocks, shuffling.MAX_BLOCKS = shuffling.MAX_BLOCKS, 60_000
    try:
        fine = shuffle_delta(**args)
    finally:
        shuffling.MAX_BLOCKS = fine_blocks
    assert fine < coarse < 1.05 * fine
    assert 0.0 < fine < 1e-3


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("epsilon", [36.0, 36.9, 37.0, 60.0, 180.0, 599.0])
def test_large_losses_of_one_record_do_not_vanish(n, epsilon):
    """Nobody hides it at such a loss: delta is that of randomized response."""
    for local in (epsilon + 0.1, epsilon + 1.0, 600.0):
        exact = -math.expm1(epsilon - local) / (1.0 + math.exp(-local))
        found = shuffle_delta(epsilon=epsilon, local_epsilon=local, num_records=n)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-8)
    assert shuffle_epsilon(delta=1e-6, local_epsilon=600.0, num_records=n) > 599.0


def delta_of_count(c, epsilon, local, digits=50):
    """delta_c as a sum of positive terms, at many digits."""
    with mpmath.workdps(digits):
        epsilon, local = mpmath.mpf(epsilon), mpmath.mpf(local)
        near = -mpmath.expm1(epsilon - local)
        far = mpmath.expm1(epsilon) - mpmath.expm1(-local)
        k = int(mpmath.floor(far * (c + 1) / (near + far))) + 1
        log_mass = mpmath.loggamma(c + 1) - mpmath.loggamma(k) - c * mpmath.log(2)
        mass, total = mpmath.exp(log_mass - mpmath.loggamma(c - k + 2)), mpmath.mpf(0)
        for heads in range(k, c + 2):  # mass is that of heads - 1
            term = mass / heads * ((near + far) * heads - far * (c + 1))
            total += term
            if heads > k + 5 and term < total * mpmath.mpf(10) ** -20:
                break
            mass *= mpmath.mpf(c - heads + 1) / heads
        return total / (1 + mpmath.exp(-local))


@pytest.mark.parametrize("local", [1e-300, 1e-17, 1e-16, 1e-15, 1e-12])
def test_tiny_losses_keep_their_digits(local):
    """All records but those with probability n local are among the coin flips."""
    for n, share in itertools.product((2, 3, 40, 10**4), (0.0, 1e-3, 0.3)):
        exact = delta_of_count(n - 1, share * local, local, digits=350)
        delta = shuffle_delta(epsilon=share * local, local_epsilon=local, num_records=n)
        assert delta >= exact * (1 - mpmath.mpf(10) ** -12)
        if exact > 1e-307 and n < 100:
            assert delta <= exact * (1 + 1e-8)


def test_tiny_budgets_get_the_noise_that_they_need():
    budget = Budget(epsilon=1e-17, delta=1e-20)
    noise = shuffle_local_noise(budget, num_records=1000)
    spent = delta_of_count(999, budget.epsilon, noise.local_epsilon)
    assert spent <= 0.5 * budget.delta * (1 + 1e-12)


@pytest.mark.parametrize(
    ("count", "deviations"), [(10**3, 5), (10**5, 35), (10**6, 35), (10**8, 20)]
)
def test_differences_of_tails_are_rounded_up(count, deviations):
    """The tail begins about so many standard deviations beyond the mean."""
    local = 1e-6
    epsilon = deviations * local / math.sqrt(count)
    found = shuffling._deltas(np.array([float(count)]), epsilon, local)[0]
    exact = delta_of_count(count, epsilon, local)
    assert exact <= found * shuffling.ROUND_UP
    assert found <= exact * (1 + 1e-6)


@pytest.mark.parametrize(
    ("count", "epsilon", "local"),
    [
        (893, 6.07655465704185e-09, 6.090179596032171e-09),
        (926, 0.3118686716798454, 0.31255400357925334),
        (788, 3.4318235962894874e-08, 3.4405448768770173e-08),
    ],
)
def test_nearly_all_coins_on_one_side_keep_their_digits(count, epsilon, local):
    """The smallest k at which the difference is positive: little of it is left."""
    found = shuffling._deltas(np.array([float(count)]), epsilon, local)[0]
    exact = delta_of_count(count, epsilon, local, digits=80)
    assert exact <= found * shuffling.ROUND_UP <= exact * (1 + 1e-7)
    for heads in (count - 1, count - 2, count - 7, count - 20, 7 * count // 8):
        mass = shuffling.fair_mass(np.array([float(heads)]), np.array([float(count)]))
        with mpmath.workdps(80):
            exact = mpmath.binomial(count, heads) / mpmath.mpf(2) ** count
            assert abs(mass[0] / exact - 1) < 1e-12


def test_no_delta_is_rounded_to_that_of_a_pure_mechanism():
    total = shuffle_total_delta(
        0.0, epsilon=1.0, local_epsilon=600.0, local_delta=1e-300, num_records=9
    )
    assert total > 0.0
    assert shuffle_delta(epsilon=9e-18, local_epsilon=1e-17, num_records=10**6) > 0.0


BAD = (-1.0, math.nan, math.inf, None, "1")


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("name", ["local_epsilon", "num_records", "epsilon", "delta"])
def test_bad_input_is_refused(bad, name):
    good = {"local_epsilon": 1.0, "num_records": 100, "epsilon": 0.5, "delta": 1e-6}
    given = good | {name: bad}
    local, n = given["local_epsilon"], given["num_records"]
    sizes = {"local_epsilon": local, "num_records": n}
    total = sizes | {"epsilon": given["epsilon"], "local_delta": 1e-9}
    calls = []
    if name != "epsilon":
        calls += [lambda: shuffle_closed_form(delta=given["delta"], **sizes)]
        calls += [lambda: shuffle_epsilon(delta=given["delta"], **sizes)]
    if name != "delta":
        calls += [lambda: shuffle_delta(epsilon=given["epsilon"], **sizes)]
    calls += [lambda: shuffle_total_delta(given["delta"], **total)]
    for call in calls:
        with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
            call()
