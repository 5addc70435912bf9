"""Totals: sensitivities by all small neighbors, exact sums, laws, public values."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsample as dps
from dpsample.noise import totals
from dpsample.noise.totals import (
    CellCounts,
    GridGroupMeans,
    GridMean,
    GridSum,
    RankQuantile,
    RecordCount,
)
from dpsample.privacy import Budget
from tests.support.statistics import assert_frequency, rejected
from tests.support.tiers import one_in

RELATIONS = ("replace_one", "zero_out")
HOSTILE = [
    *(-math.inf, -1e300, -7.3, -1.0, -0.99999999, -1e-320, -0.0, 1e-9, 0.3),
    *(1.0, 1.9999999999, 2.0, 5.0, 1e300, math.inf, math.nan),
]
BOUNDS = {"lower": -1.0, "upper": 2.0}
# Bounds far from 0 for their distance, of one sign, tiny, and of many digits.
RANGES = [
    (-1.0, 2.0),
    (1e9, 1e9 + 1.0),
    (-0.1, 1e-30),
    (3.0, math.nextafter(3.0, 4.0)),
    (1e-270, 3e-270),
    (-1e280, 1e280),
    (0.1, 0.7),
]


def budget_of(relation, epsilon=1.0):
    return Budget(epsilon=epsilon, delta=0.0, relation=relation)


# What each mechanism computes from records (value, group), without noise.


def as_columns(records):
    values = np.array([value for value, _ in records], dtype=np.float64)
    return values, np.array([group for _, group in records], dtype=np.int64)


def exact_totals(made, records):
    values, groups = as_columns(records)
    if isinstance(made, RecordCount):
        return [int((groups >= 0).sum())]
    if isinstance(made, CellCounts):
        return np.bincount(groups[groups >= 0], minlength=made.num_cells).tolist()
    if isinstance(made, GridGroupMeans):
        return made.sum_up(values, groups)
    return [made.sum_up(values)]


CASES = [
    RecordCount(),
    CellCounts(num_cells=3),
    *(GridSum(lower=a, upper=b) for a, b in RANGES),
    *(GridMean(lower=a, upper=b) for a, b in RANGES),
    *(GridGroupMeans(lower=a, upper=b, num_groups=2) for a, b in RANGES[:4]),
]


def loss_of(made, budget, change):
    """Largest log ratio of the released totals, exactly."""
    loss, position = Fraction(0), 0
    for block in made.blocks(budget.relation):
        part = change[position : position + block.length]
        loss += sum(map(abs, part)) / Fraction(block.scale(budget))
        position += block.length
    return loss


def largest_loss(made, budget):
    """Largest log ratio over all records that a neighbor may exchange."""
    lower, upper = (getattr(made, name, 0.0) for name in ("lower", "upper"))
    ends = [lower, upper, math.nextafter(lower, upper), 0.5 * (lower + upper)]
    records = [(x, g) for x in (*HOSTILE, *ends) for g in (-1, 0, 1)]
    found = {tuple(exact_totals(made, [record])) for record in records}
    nothing = tuple(0 for _ in range(made.num_totals))
    pairs = [(one, nothing) for one in found]
    if budget.relation == "replace_one":
        pairs = list(itertools.combinations(found, 2))
    changes = ([a - b for a, b in zip(*pair, strict=True)] for pair in pairs)
    return max(loss_of(made, budget, change) for change in changes)


@one_in(4)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("made", CASES, ids=repr)
def test_no_record_moves_totals_by_more_than_epsilon_pays_for(made, relation):
    for epsilon in (1.0, 0.1, 1 / 3, 1e-6, 40.0):
        budget = budget_of(relation, epsilon)
        loss = largest_loss(made, budget)
        assert loss <= Fraction(epsilon)  # no allowance: exact numbers
        assert loss >= Fraction(epsilon) * (1 - Fraction(1, 10**12)), "not attained"


@pytest.mark.parametrize("made", CASES[1:], ids=repr)
def test_half_of_the_sensitivity_is_seen(made, monkeypatch):
    budget = budget_of("replace_one")
    blocks = [
        b._replace(sensitivity=b.sensitivity / 2) for b in made.blocks("replace_one")
    ]
    monkeypatch.setattr(type(made), "blocks", lambda self, relation: tuple(blocks))
    assert largest_loss(made, budget) > 1


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.integers(-1, 2)), min_size=1))
def test_totals_are_sums_over_records(records):
    group_made = GridGroupMeans(**BOUNDS, num_groups=3)
    for made in (GridSum(**BOUNDS), GridMean(**BOUNDS), group_made):
        apart = [exact_totals(made, [record]) for record in records]
        assert exact_totals(made, records) == [sum(x) for x in zip(*apart, strict=True)]


@pytest.mark.parametrize(("lower", "upper"), RANGES)
def test_grids_hold_their_bounds_and_steps_are_exact(lower, upper):
    made = GridSum(lower=lower, upper=upper)
    assert math.frexp(made.step)[0] == 0.5  # a power of two
    first, last = made.ends
    assert abs(first * Fraction(made.step) - Fraction(lower)) <= Fraction(made.step) / 2
    assert 0 < last - first <= 2**41 and max(abs(first), abs(last)) <= 2**54
    values = np.array([lower, upper, 0.5 * lower + 0.5 * upper, math.nan, math.inf])
    steps = (made.offsets(values) + made.center).tolist()
    exact = [round(Fraction(x) / Fraction(made.step)) for x in values[:3].tolist()]
    assert steps[:3] == exact and steps[4] == last
    assert steps[3] == min(max(0, first), last)
    # At most a quarter of the digits of a double are lost to the grid.
    assert (
        abs(Fraction(steps[2]) * Fraction(made.step) - Fraction(values[2]))
        <= (Fraction(upper) - Fraction(lower)) / 2**38
        or last - first < 2**38
    )


def test_sums_of_more_records_than_a_part_are_exact(monkeypatch):
    parts = [slice(start, start + 7) for start in range(0, 100, 7)]
    monkeypatch.setattr(totals, "_parts", lambda length: parts)
    values = np.random.default_rng(1).normal(size=100)
    groups = np.random.default_rng(2).integers(-1, 3, 100)
    made = GridGroupMeans(lower=-9.0, upper=9.0, num_groups=3)
    clear = [Fraction(x) / Fraction(made.step) for x in values.tolist()]
    sums = made.sum_up(values, groups)
    for j in range(3):
        steps = [round(x) for x, g in zip(clear, groups, strict=True) if g == j]
        assert sums[j] == sum(steps) - made.center * len(steps)
        assert sums[3 + j] == len(steps)
    whole = GridSum(lower=-9.0, upper=9.0).sum_up(values)
    assert whole == sum(map(round, clear))


# Laws.

SMALL = [0.0, 1.0, 1.0, 0.25]


def test_released_totals_have_their_law():
    """Counts of cells, with the noise of sensitivity 2."""
    made, budget = CellCounts(num_cells=2), budget_of("replace_one", 2.0)
    rng = np.random.default_rng(81)
    found = [made.release(rng, [5, 0], budget) for _ in range(2000)]
    scale = 1.0
    for z in (0, 1, -1, 2):
        chance = math.tanh(0.5 / scale) * math.exp(-abs(z) / scale)
        for j, exact in enumerate((5, 0)):
            hits = sum(total[j] - exact == z for total in found)
            assert_frequency(hits, len(found), chance)
    with rejected():  # the noise of one count
        hits = sum(total[0] == 5 for total in found)
        assert_frequency(hits, len(found), math.tanh(1.0))


def test_the_noise_of_a_sum_has_the_size_of_its_range():
    made, budget = GridSum(lower=0.0, upper=10.0), budget_of("replace_one", 0.5)
    rng = np.random.default_rng(82)
    noise = [
        made.values(made.release(rng, [0], budget), 1)[0] / 20.0 for _ in range(1500)
    ]
    for level in (0.5, 1.0, 2.0):
        hits = sum(abs(z) > level for z in noise)
        assert_frequency(hits, len(noise), math.exp(-level))
        with rejected():
            assert_frequency(hits, len(noise), math.exp(-2.0 * level))


# Values that follow from totals.


def test_values_are_those_of_exact_arithmetic():
    values = np.array(SMALL)
    mean, whole = GridMean(lower=0.0, upper=1.0), GridSum(lower=0.0, upper=1.0)
    assert mean.values((mean.sum_up(values),), 4) == (0.5625,)
    assert whole.values((whole.sum_up(values),), 4) == (2.25,)
    groups = GridGroupMeans(lower=0.0, upper=1.0, num_groups=3)
    sums = groups.sum_up(values, np.array([0, 0, 1, -1]))
    assert groups.values(tuple(sums), 4) == (0.5, 1.0, 0.5)
    # A mean beyond the bounds is moved to them; no group has a count below 1.
    assert groups.values((2**60, -(2**60), 2**60, 1, 1, -3), 4) == (1.0, 0.0, 0.5)
    point = RankQuantile(lower=0.0, upper=1.0, level=0.5)
    assert point.values((2**40,), 4) == (1.0,) and point.points == (0, 2**40)


def test_points_of_quantiles_lie_within_the_bounds():
    for lower, upper in RANGES:
        made = RankQuantile(lower=lower, upper=upper, level=0.5)
        first, last = made.points
        assert (
            lower <= made.values((first,), 1)[0] <= made.values((last,), 1)[0] <= upper
        )
        values = np.array([lower, upper, math.nan, math.inf, -math.inf])
        positions = made.positions(values).tolist()
        for x, m in zip(values[:2].tolist(), positions[:2], strict=True):
            step = Fraction(made.step)
            assert (m - 1) * step < Fraction(x) <= m * step
        assert positions[4] == positions[0] and positions[3] == positions[1]


@pytest.mark.parametrize(
    ("made", "bad"),
    [
        (RecordCount(), ()),
        (RecordCount(), (1, 2)),
        (RecordCount(), (1.0,)),
        (RecordCount(), (True,)),
        (CellCounts(num_cells=2), (1,)),
        (GridGroupMeans(**BOUNDS, num_groups=2), (1, 2, 3)),
        (RankQuantile(**BOUNDS, level=0.5), (2**50,)),
        (RankQuantile(**BOUNDS, level=0.5), (-(2**50),)),
    ],
)
def test_totals_that_no_release_has_are_refused(made, bad):
    with pytest.raises(ValueError, match="totals"):
        made.check_totals(bad)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GridSum(lower=1.0, upper=1.0), "upper must be at least"),
        (lambda: GridSum(lower=2.0, upper=1.0), "upper must be at least"),
        (lambda: GridSum(lower=-math.inf, upper=1.0), "lower must be"),
        (lambda: GridSum(lower=0.0, upper=math.inf), "upper must be"),
        (lambda: GridSum(lower=0.0, upper=math.nan), "upper must be"),
        (lambda: GridSum(lower=0.0, upper=1e-290), "upper must be at least"),
        (lambda: GridSum(lower=False, upper=1.0), "lower must be"),
        (lambda: RankQuantile(**BOUNDS, level=0.0), "level must be"),
        (lambda: RankQuantile(**BOUNDS, level=1.0), "level must be"),
        (lambda: CellCounts(num_cells=0), "num_cells must be"),
        (lambda: GridGroupMeans(**BOUNDS, num_groups=1.0), "num_groups must be"),
        (
            lambda: GridSum(lower=0.0, upper=1.0).certificate(
                9, Budget(epsilon=1e-40, delta=0.0)
            ),
            "budget.epsilon must be",
        ),
    ],
)
def test_what_is_out_of_range_is_refused_in_the_grammar(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("relation", RELATIONS)
def test_certificates_are_pure_and_proved_by_both_checkers(relation):
    made = [*CASES[:2], GridSum(**BOUNDS), GridMean(**BOUNDS)]
    made += [GridGroupMeans(**BOUNDS, num_groups=2), RankQuantile(**BOUNDS, level=0.3)]
    for mechanism in made:
        for epsilon in (0.1, 1.0, 7.3):
            budget = budget_of(relation, epsilon)
            certificate = mechanism.certificate(1000, budget)
            assert certificate.releasable and certificate.epsilon_proved == epsilon
            assert "(pure)" in certificate.statement
            assert (
                dps.verify(certificate)
                and not dps.verify(certificate, checker="ball").unchecked
            )
