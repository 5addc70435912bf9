"""Rank mechanism: levels, exact decisions, laws, and all small neighbors."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpsample.noise import ranks
from dpsample.noise.ranks import MAX_LEVEL, WEIGHT_BITS, Ranks, exponential_bounds
from dpsample.noise.totals import RankQuantile
from dpsample.privacy import Budget
from tests.support.statistics import rejected, spend
from tests.support.tiers import one_in

HALF = Fraction(1, 2)


def exact_score(positions, point, level):
    """|#{y <= point} - q n|, counted one by one."""
    return abs(sum(y <= point for y in positions) - level * len(positions))


def chances(positions, first, last, level, rate):
    """Law of the mechanism by its formula, 60 digits."""
    with mpmath.workdps(60):
        scores = [exact_score(positions, m, level) for m in range(first, last + 1)]
        weights = [mpmath.exp(-mpmath.mpf(rate * s)) for s in map(_mpf, scores)]
        total = mpmath.fsum(weights)
        return [w / total for w in weights]


def _mpf(value):
    return mpmath.mpf(value.numerator) / value.denominator


# Levels.

columns = st.lists(st.integers(-3, 12), min_size=1, max_size=9)
levels = st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100)
rates = st.sampled_from(
    [Fraction(1, 10**40), Fraction(1, 7), HALF, Fraction(30), 10**30]
)


@pytest.mark.slow
@given(columns, levels, rates, st.integers(0, 4), st.integers(5, 9))
@settings(max_examples=120)
def test_intervals_are_the_grid_and_their_weights_suffice(y, q, rate, first, last):
    table = Ranks(np.array(y), first, last, level=q, rate=Fraction(rate))
    least = min(exact_score(y, m, q) for m in range(first, last + 1))
    points = []
    for part in table.intervals:
        points += range(part.first, part.end)
        for m in range(part.first, part.end):
            x = rate * (exact_score(y, m, q) - least)
            assert table.excess(m) == x >= 0
            k = min(math.floor(x), MAX_LEVEL)
            # Whole numbers that are at least 2^96 e^-x, and only as large as e^-k.
            assert part.weight == ranks.weights()[k]
    assert sorted(points) == list(range(first, last + 1))


def test_weights_are_above_the_powers_of_e_and_next_to_them():
    with mpmath.workdps(80):
        for k, weight in enumerate(ranks.weights()):
            power = 2**WEIGHT_BITS * mpmath.exp(-k)
            assert power <= weight < power + 1
    assert ranks.weights()[MAX_LEVEL] == 1 and ranks.weights()[0] == 2**WEIGHT_BITS


# Decisions.


@given(st.fractions(0, 300, max_denominator=10**12), st.integers(8, 500))
def test_bounds_of_the_exponential_contain_it_and_are_close(x, bits):
    low, high = exponential_bounds(x, bits)
    with mpmath.workdps(400):
        power = mpmath.ldexp(mpmath.exp(-_mpf(x)), bits)
        assert low <= power <= high
    assert high - low <= 2 ** (14 + int(x).bit_length())
    assert exponential_bounds(Fraction(0), bits) == (2**bits, 2**bits)


class Scripted:
    """A generator whose next random bytes are given."""

    def __init__(self, *words):
        self.words = list(words)

    def bytes(self, count):
        return self.words.pop(0).to_bytes(count, "little")


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(5, 2), Fraction(60), 90])
@pytest.mark.parametrize("num_words", [1, 2, 3])
def test_acceptance_compares_as_many_words_as_it_takes(x, num_words):
    """Uniform numbers that agree with the probability in all words but the last."""
    weight = ranks.weights()[min(math.floor(x), MAX_LEVEL)]
    with mpmath.workdps(200):
        chance = 2**WEIGHT_BITS * mpmath.exp(-_mpf(Fraction(x))) / weight
        digits = int(mpmath.floor(mpmath.ldexp(chance, 64 * num_words)))
    words = [(digits >> 64 * (num_words - 1 - i)) % 2**64 for i in range(num_words)]
    for change, is_accepted in ((-1, True), (1, False)):
        last = words[-1] + change
        if 0 <= last < 2**64:
            rng = Scripted(*words[:-1], last)
            assert ranks._is_accepted(rng, Fraction(x), weight) is is_accepted
            assert rng.words == []
    # The same words to the end leave it open, so one more is drawn.
    rng = Scripted(*words, 0)
    assert ranks._is_accepted(rng, Fraction(x), weight) and rng.words == []
    rng = Scripted(*words, 2**64 - 1)
    assert not ranks._is_accepted(rng, Fraction(x), weight) and rng.words == []


def test_what_is_far_from_the_target_is_rejected_at_once():
    rng = Scripted(1)
    assert not ranks._is_accepted(rng, Fraction(10) ** 300, 1) and rng.words == []


# Laws.

COLUMNS = {
    "spread": [0, 3, 3, 5, 9, 11, 14],
    "all equal": [6] * 40,  # the wanted rank is nowhere
    "all below": [-5] * 4,
    "all above": [99] * 4,
    "at the ends": [0] * 3 + [15] * 2,
    "one record": [4],
}


def assert_chances(found, expected):
    """Pearson's statistic over all points of the grid."""
    counts, mass = np.bincount(found, minlength=len(expected)), np.array(expected)
    mass = mass * len(found)
    kept = mass >= 20.0
    cells, hits = mass[kept], counts[kept]
    rest, others = mass[~kept].sum(), counts[~kept].sum()
    if rest >= 20.0:
        cells, hits = np.append(cells, rest), np.append(hits, others)
    statistic = float(((hits - cells) ** 2 / cells).sum())
    limit = chi2.isf(spend(is_exact=False), max(len(cells) - 1, 1))
    assert statistic <= limit, f"rank statistic {statistic:.1f}, bound {limit:.1f}"


def law_of(column, level, rate):
    return [float(p) for p in chances(column, 0, 15, level, rate)]


@one_in(3)
@pytest.mark.parametrize("name", COLUMNS)
def test_draws_have_their_law(name):
    column, level, rate = COLUMNS[name], Fraction(1, 3), HALF
    rng = np.random.default_rng(71)
    table = Ranks(np.array(column), 0, 15, level=level, rate=rate)
    found = [table.draw(rng) for _ in range(3000)]
    assert_chances(found, law_of(column, level, rate))
    if name == "spread":
        with rejected():  # ranks that are off by one record
            assert_chances(found, law_of([*column[1:], 99], level, rate))
        with rejected():  # twice the rate
            assert_chances(found, law_of(column, level, 2 * rate))
    if name == "all equal":
        with rejected():  # points up to the records count as above them
            assert_chances(found, law_of([7] * 40, level, rate))


def test_a_million_records_and_a_fine_grid_take_few_proposals():
    rng = np.random.default_rng(72)
    positions = np.sort(rng.integers(0, 2**40, 100_000))
    table = Ranks(positions, 0, 2**40, level=HALF, rate=HALF)
    for _ in range(20):
        assert abs(table.count(table.draw(rng)) - 50_000) < 150
    # All records are at one point, and no other point has a rank near the target.
    table = Ranks(np.full(10**6, 2**39), 0, 2**40, level=HALF, rate=HALF)
    sides = {table.draw(rng) >= 2**39 for _ in range(40)}
    assert sides == {True, False} and table.least == 500_000


# Privacy: closed-form probabilities of all pairs of small data sets, no slack.

CASES = [
    (3, 3, 0.5, "replace_one"),
    (3, 4, 0.75, "replace_one"),
    (4, 3, 1 / 3, "replace_one"),
    (3, 3, 0.05, "zero_out"),
    (3, 4, 0.75, "zero_out"),
    (4, 3, 0.5, "zero_out"),
]


def log_chances(column, size, level, rate):
    """Log law on the records that are not set to zero, whose terms are left out."""
    scores = [abs(sum((y <= m) - level for y in column)) for m in range(size)]
    with mpmath.workdps(40):
        logs = [-mpmath.mpf(_mpf(rate * s)) for s in scores]
        total = mpmath.log(mpmath.fsum(map(mpmath.exp, logs)))
        return [value - total for value in logs]


def largest_ratio(n, size, level, relation, rate):
    """Largest log ratio, and range of log ratios, of all neighbors on a small grid."""
    values = range(-1, size + 1)
    worst = widest = mpmath.mpf(0)
    for rest in itertools.combinations_with_replacement(values, n - 1):
        others = [[*rest, y] for y in values]
        pairs = list(itertools.permutations(others, 2))
        if relation == "zero_out":
            pairs = [(one, list(rest)) for one in others]
            pairs += [(two, one) for one, two in pairs]
        for one, two in pairs:
            ratios = [
                a - b
                for a, b in zip(
                    log_chances(one, size, level, rate),
                    log_chances(two, size, level, rate),
                    strict=True,
                )
            ]
            worst = max(worst, *map(abs, ratios))
            widest = max(widest, max(ratios) - min(ratios))
    return worst, widest


@one_in(2)
@pytest.mark.parametrize(("n", "size", "level", "relation"), CASES)
def test_no_pair_of_neighbors_exceeds_epsilon(n, size, level, relation):
    budget = Budget(epsilon=1.0, delta=0.0, relation=relation)
    made = RankQuantile(level=level, lower=0.0, upper=1.0)
    rate = Fraction(made.rate(budget))
    case = n, size, Fraction(level), relation
    worst, widest = largest_ratio(*case, rate)
    with mpmath.workdps(40):
        allowance = mpmath.mpf(10) ** -35  # of 40 digits, in which ratios are computed
        assert worst <= 1 + allowance and widest <= 1 + allowance
    if n * level >= 1:
        assert widest > 0.6
    # A rate that forgets that scores move both ways is seen.
    bad, _ = largest_ratio(*case, 2 * rate)
    assert bad > 1.0 or widest < 0.75


@given(st.floats(1e-3, 20.0), st.floats(0.001, 0.999), st.sampled_from((1, 2)))
def test_the_rate_is_rounded_to_the_safe_side(epsilon, level, shift):
    relation = "replace_one" if shift == 2 else "zero_out"
    budget = Budget(epsilon=epsilon, delta=0.0, relation=relation)
    made = RankQuantile(level=level, lower=0.0, upper=1.0)
    q = Fraction(made.level)
    change = 1 if shift == 2 else max(q, 1 - q)
    length = 2 * change * Fraction(made.rate(budget))
    assert Fraction(epsilon) * (1 - Fraction(1, 2**50)) <= length <= Fraction(epsilon)
