"""Selections by the exponential mechanism: exact decisions, laws, sensitivities."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from dpsample.core.jit import kernel
from dpsample.core.streams import streams
from dpsample.noise import selection
from dpsample.noise.noise import MAX_QUERY_STEPS
from dpsample.noise.selection import (
    pure_signed_choice,
    selection_grid,
    signed_choice,
)
from tests.support.scripted_words import Script, exponential, scripted
from tests.support.statistics import assert_frequency, rejected, spend
from tests.support.tiers import one_in, slow, slow_but


@kernel
def one(rng, values, per_unit, cell):
    return signed_choice(rng, values, per_unit, cell)


@kernel
def many(rng, values, per_unit, cell, found):
    for i in range(len(found)):
        j, sign = signed_choice(rng, values.copy(), per_unit, cell)
        found[i] = 2 * j + (sign > 0.0)


@kernel
def one_purely(rng, values, per_unit, cell):
    return pure_signed_choice(rng, values, per_unit, cell)


@kernel
def many_purely(rng, values, per_unit, cell, found):
    for i in range(len(found)):
        j, sign = pure_signed_choice(rng, values.copy(), per_unit, cell)
        found[i] = 2 * j + (sign > 0.0)


@kernel
def coins(rng, x, found):
    for i in range(len(found)):
        found[i] = selection._exponential_coin(rng, x)


def in_cells(values, per_unit):
    """Whole numbers that the choice sees; NaN counts as 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.nan_to_num(np.asarray(values) * per_unit, nan=0.0)
    return [int(m) for m in np.rint(np.clip(scaled, -MAX_QUERY_STEPS, MAX_QUERY_STEPS))]


# Decisions.


def weight(r):
    with mpmath.workdps(60):
        return int(mpmath.ceil(2**30 * mpmath.exp(-r)))


def chance(r):
    """128 bits of the chance of a level's coin."""
    with mpmath.workdps(60):
        return int(mpmath.floor(2**158 * mpmath.exp(-r) / weight(r)))


def is_kept(word, x):
    r = min(x // 1, 21)
    if r > 0:
        first = word()
        high, low = divmod(chance(r), 2**64)
        if first > high or (first == high and word() >= low):
            return False
    return x == r or exponential(word) >= x - r


def reference(word, cells, cell):
    """Proposals by words, kept by exact comparisons of rational numbers."""
    top = max(map(abs, cells))
    signed = [(j, s) for j in range(len(cells)) for s in (1, -1)]
    below = [(top - s * cells[j]) * Fraction(cell) for j, s in signed]
    ends = list(itertools.accumulate(weight(min(x // 1, 21)) for x in below))
    while True:
        place = (word() >> 1) & (2 ** (ends[-1] - 1).bit_length() - 1)
        if place < ends[-1]:
            i = next(i for i, end in enumerate(ends) if place < end)
            if is_kept(word, below[i]):
                return signed[i]


def near_digits(words, cell):
    """A value so far below the best one that the first exponential decides closely."""
    digits = exponential(Script(words[1:]))
    return float(digits // Fraction(cell))


def test_coins_complete_the_weights_to_powers_of_e():
    for r, weight_of, high, low in zip(
        range(22), selection._WEIGHTS, selection._HIGH, selection._LOW, strict=True
    ):
        found = (int(high) << 64) + int(low)
        assert weight_of == weight(r)
        assert found == min(chance(r), 2**128 - 1) and found < 2**128
    assert len(selection._WEIGHTS) == 22 and selection._WEIGHTS[-1] == 1


@one_in(2)
@pytest.mark.parametrize("cell", [slow(2.0**-20), slow(2.0**-45), 2.0**-97, 0.5])
def test_decisions_are_those_of_rational_numbers(cell):
    rng, seen = np.random.default_rng(61), set()
    for trial in range(1500):
        words = [int(w) for w in rng.integers(0, 2**64, 80, dtype=np.uint64)]
        if trial % 3 == 0:  # long runs and equal words
            words[2:5] = [words[1] >> 3, words[1] >> 3, words[1] >> 6]
        count = int(rng.integers(1, 6))
        values = np.round(rng.exponential(1.0 / cell, count))
        if trial % 2:  # a step above, at and below the digits of the variate
            gap = near_digits(words, cell) + float(rng.integers(-1, 2))
            values = np.array([0.0, min(max(gap, 0.0), 2.0**50)])
        cells = in_cells(values, 1.0)
        try:
            expected = reference(script := Script(words), cells, cell)
        except IndexError:  # it needs more words than there are
            continue
        generator, used = scripted(words)
        assert one(generator, values, 1.0, cell) == expected
        assert used() == script.used
        seen.add((len(cells), script.used > 2))
    assert len(seen) > 4


def integer_below(word, count):
    while True:
        number = (word() >> 1) & ((1 << (count - 1).bit_length()) - 1)
        if number < count:
            return number


def is_below(word, x, digits=math.inf):
    """A uniform number is below a rational one; digits to the base 2^32."""
    base, drawn, bits = 2**32, 0, 0
    while bits < digits:
        drawn, bits = drawn * base + (word() >> 32), bits + 32
        if Fraction(drawn + 1, base ** (bits // 32)) <= x:
            return True
        if Fraction(drawn, base ** (bits // 32)) >= x:
            return False
    return False  # a planted bug: later digits are cut off


def exponential_coin(word, x, digits=math.inf):
    whole = x // 1
    for y in [Fraction(1)] * whole + [x - whole]:
        n = 1
        while (y > 0 and is_below(word, y, digits)) and integer_below(word, n) == 0:
            n += 1
        if n % 2 == 0:
            return False
    return True


def pure_reference(word, cells, cell, digits=math.inf):
    top = max(map(abs, cells))
    while True:
        i = integer_below(word, 2 * len(cells))
        j, sign = i // 2, 1 - 2 * (i % 2)
        if exponential_coin(word, (top - sign * cells[j]) * Fraction(cell), digits):
            return j, sign


@pytest.mark.parametrize("cell", [2.0**-97, slow(2.0**-45), 1.0])
def test_pure_decisions_are_those_of_rational_numbers(cell):
    """Words whose digits agree with those of x decide by later ones."""
    rng, others = np.random.default_rng(65), 0
    for trial in range(1500):
        words = [int(w) for w in rng.integers(0, 2**64, 130, dtype=np.uint64)]
        values = np.array([0.0, np.round(rng.exponential(min(0.5 / cell, 2.0**49)))])
        if trial % 2:  # the first digits of the uniform number are those of x
            words[0] = 0  # the candidate far below the other
            x = 2 * int(values[1]) * Fraction(cell)
            words[1 : 1 + trial % 3] = [
                int((x - x // 1) * 2 ** (32 * (i + 1))) % 2**32 << 32
                for i in range(trial % 3)
            ]
            values = np.array([-values[1], 0.0])
        cells = in_cells(values, 1.0)
        try:
            expected = pure_reference(script := Script(words), cells, cell)
        except IndexError:  # it needs more words than there are
            continue
        generator, used = scripted(words)
        assert one_purely(generator, values.copy(), 1.0, cell) == expected
        assert used() == script.used
        cut = Script(words)
        cut_off = pure_reference(cut, cells, cell, digits=32)
        others += (cut_off, cut.used) != (expected, script.used)
    assert others > 10 or cell == 1.0  # one double of 32 bits would decide otherwise


@pytest.mark.parametrize("x", [0.0, 2.0**-97, 0.3, 1.0, 1.7, 4.0])
def test_pure_coins_succeed_with_their_exact_probability(x):
    found = np.empty(200_000, dtype=np.bool_)
    coins(streams(66, 1)[0], x, found)
    assert_frequency(int(found.sum()), len(found), math.exp(-x))
    if x > 1e-3:
        with rejected():
            assert_frequency(int(found.sum()), len(found), math.exp(-1.1 * x))


# Laws.


def chances(values, epsilon, sensitivity):
    """Exact law over (j, sign), up to the doubles of this sum."""
    per_unit, cell = selection_grid(epsilon, sensitivity)
    cells = np.array(in_cells(values, per_unit)) * cell
    powers = np.exp(np.stack((-cells, cells), axis=1).ravel() - np.abs(cells).max())
    return powers / powers.sum()


def assert_choices(found, expected):
    """Pearson's statistic; candidates that expect below 30 are one group."""
    counts, mass = np.bincount(found, minlength=len(expected)), len(found) * expected
    kept = mass >= 30.0
    cells = np.append(mass[kept], mass[~kept].sum())
    hits = np.append(counts[kept], counts[~kept].sum())
    cells, hits = cells[cells >= 30.0], hits[cells >= 30.0]
    statistic = float(((hits - cells) ** 2 / cells).sum())
    limit = chi2.isf(spend(is_exact=False), max(len(cells) - 1, 1))
    assert statistic <= limit, f"choice statistic {statistic:.1f}, bound {limit:.1f}"


VALUES = {
    "mixed": ([0.3, -1.2, 0.0, 2.0, 1.999], 2.0),
    "one value": ([0.4], 1.5),
    "ties": ([1.0, -1.0, 1.0, 0.0], 3.0),
    "all equal": ([0.0] * 7, 1.0),
    "one wins": ([0.0] * 60 + [4.0], 2.0),
    "two of many": ([0.0] * 50 + [40.0, 39.0], 2.0),
    "levels": (list(np.linspace(0.0, 12.0, 40)), 2.0),
    "far ones": ([0.0] * 2000 + [18.0, 17.0], 2.0),
    "not a number": ([math.nan, 0.5, -0.25], 2.0),
}


@pytest.mark.parametrize("name", slow_but(VALUES, set(VALUES) - {"far ones"}))
@pytest.mark.parametrize("number", [10**5, pytest.param(10**7, marks=pytest.mark.slow)])
def test_choices_have_their_exact_chances(name, number):
    values, epsilon = VALUES[name]
    found = np.empty(number, dtype=np.int64)
    many(streams(62, 1)[0], np.array(values), *selection_grid(epsilon, 1.0), found)
    assert_choices(found, chances(values, epsilon, 1.0))
    bugs = [found // 2 * 2]  # a sign that is never drawn
    if np.ptp(chances(values, epsilon, 1.0)) > 0.0:
        with rejected():  # temperature of a sensitivity that is a tenth larger
            assert_choices(found, chances(values, 1.1 * epsilon, 1.0))
    for bug in bugs:
        with rejected():
            assert_choices(bug, chances(values, epsilon, 1.0))


@pytest.mark.parametrize("name", slow_but(VALUES, {"mixed", "levels", "not a number"}))
def test_pure_choices_have_their_exact_chances(name):
    values, epsilon = VALUES[name]
    found = np.empty(10**5, dtype=np.int64)
    many_purely(
        streams(67, 1)[0], np.array(values), *selection_grid(epsilon, 1.0), found
    )
    assert_choices(found, chances(values, epsilon, 1.0))
    if np.ptp(chances(values, epsilon, 1.0)) > 0.0:
        with rejected():  # half of the sensitivity
            assert_choices(found, chances(values, epsilon, 0.5))
        with rejected():  # the sign of scores
            assert_choices(found ^ 1, chances(values, epsilon, 1.0))


def test_a_pure_choice_of_no_epsilon_is_uniform():
    per_unit, cell = selection_grid(1e-30, 1.0)
    found = np.empty(4000, dtype=np.int64)
    many_purely(streams(68, 1)[0], np.array([1e300, 0.0]), per_unit, cell, found)
    assert_choices(found, np.full(4, 0.25))


@pytest.mark.parametrize("extreme", [1.8e308, math.inf, 1e300, -1.8e308, -math.inf])
def test_no_value_is_too_large_and_nan_does_not_win(extreme):
    """The largest value wins, for either sign; NaN is one of the others."""
    grid = selection_grid(1.0, 1.0)
    for values in ([0.0, extreme, 1.0], [math.nan, extreme, -3.0]):
        rng = streams(63, 1)[0]
        wins = {one(rng, np.array(values), *grid) for _ in range(50)}
        assert wins == {(1, math.copysign(1.0, extreme))}
    both = {one(rng, np.array([extreme, -extreme]), *grid) for _ in range(60)}
    sign = math.copysign(1.0, extreme)
    assert both == {(0, sign), (1, -sign)}
    nothing = {one(rng, np.array([math.nan] * 2), *grid) for _ in range(100)}
    assert nothing == {(0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)}


# Sensitivities.

epsilons = st.one_of(
    st.floats(min_value=1e-300, max_value=1e300),
    st.floats(min_value=1e-3, max_value=10.0),
    st.integers(-80, 80).map(lambda k: 2.0**k),
)
sizes = st.floats(min_value=1e-60, max_value=1e60)


@given(epsilons, sizes, st.floats(-3.0, 3.0), st.floats(-1.0, 1.0), st.integers(0, 50))
def test_rounded_scores_move_by_no_more_than_epsilon_pays_for(
    epsilon, sensitivity, base, share, halves
):
    """Neighbors at every distance up to the sensitivity, halves of cells included."""
    per_unit, cell = selection_grid(epsilon, sensitivity)
    most = Fraction(per_unit) * Fraction(sensitivity)
    count = math.ceil(most)
    count += count % 2
    assert 2 * count * Fraction(cell) <= Fraction(epsilon)
    assert cell == 2.0**-97 or count >= 2**24
    if count == 0:
        assert epsilon < 2.0**-95
        return
    # Products that are rounded once, which callers count as an error of the value.
    at = halves + 0.5 if halves % 2 else base * count
    other = at + share * float(most)
    one_end, other_end = (in_cells([x], 1.0)[0] for x in (at, other))
    if abs(Fraction(other) - Fraction(at)) <= count:
        assert abs(one_end - other_end) <= count


def test_odd_numbers_of_cells_would_move_scores_by_one_more():
    assert in_cells([0.5, 1.5], 1.0) == [0, 2]
    assert in_cells([0.5, 2.5, -1.5], 1.0) == [0, 2, -2]


def test_a_choice_of_no_epsilon_is_uniform():
    per_unit, cell = selection_grid(1e-30, 1.0)
    assert per_unit == 0.0 and cell == 2.0**-97
    found = np.empty(4000, dtype=np.int64)
    many(streams(64, 1)[0], np.array([1e300, 0.0]), per_unit, cell, found)
    assert_choices(found, np.full(4, 0.25))
