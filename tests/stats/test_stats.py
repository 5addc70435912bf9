"""`dps.stats`: values, laws, hostile columns, ledgers, files, forgeries."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsample as dps
from dpsample import stats
from dpsample.noise import totals
from dpsample.privacy import Budget, Ledger, LedgerFile
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.statistics import assert_frequency, rejected
from tests.support.tiers import one_in

PURE = Budget(epsilon=1.0, delta=0.0)
LARGE = Budget(epsilon=400.0, delta=0.0)  # hardly any noise
BOUNDS = (0.0, 10.0)
HOSTILE = [3.0, math.nan, math.inf, -math.inf, 1e300, 10**400, -5, None, Decimal("2.5")]


def all_kinds(budget, **more):
    """One statistic of every kind of the same five records."""
    values, groups = [1.0, 2.0, 3.0, 4.0, 9.0], ["a", "b", "a", "b", "c"]
    return {
        "count": stats.count([True, False, True, True, False], budget, **more),
        "levels": stats.histogram(groups, budget, levels=["a", "b"], **more),
        "edges": stats.histogram(values, budget, edges=[0.0, 3.0, 9.0], **more),
        "sum": stats.sum(values, BOUNDS, budget, **more),
        "mean": stats.mean(values, BOUNDS, budget, **more),
        "quantile": stats.quantile(values, 0.5, BOUNDS, budget, **more),
        "group_means": stats.group_means(
            values, groups, BOUNDS, budget, levels=["a", "b"], **more
        ),
    }


def test_with_little_noise_statistics_are_those_of_the_records():
    made = all_kinds(LARGE)
    assert made["count"].value == 3
    assert made["levels"].value == {"a": 2, "b": 2}
    assert made["edges"].value == {"[0.0, 3.0)": 2, "[3.0, 9.0]": 3}
    assert made["sum"].value == pytest.approx(19.0, abs=1.0)
    assert made["mean"].value == pytest.approx(3.8, abs=0.25)
    assert 2.0 <= made["quantile"].value < 4.0
    assert made["group_means"].value == pytest.approx({"a": 2.0, "b": 3.0}, abs=0.9)
    assert made["group_means"].counts == {"a": 2, "b": 2}
    assert made["mean"].counts is None


def test_hostile_numbers_are_moved_into_the_bounds():
    inside = [3.0, 0.0, 10.0, 0.0, 10.0, 10.0, 0.0, 0.0, 2.5]
    made = stats.sum(HOSTILE, BOUNDS, LARGE)
    assert made.value == pytest.approx(math.fsum(inside), abs=1.0)
    assert stats.mean(HOSTILE, BOUNDS, LARGE).value == pytest.approx(
        np.mean(inside), abs=0.1
    )
    for column in (HOSTILE, [math.nan] * 9, [math.inf] * 9, [-math.inf] * 9):
        point = stats.quantile(column, 0.5, BOUNDS, PURE).value
        assert 0.0 <= point <= 10.0
    groups = ["a", None, math.nan, 3, (), [], {}, object(), "b"]
    made = stats.group_means(HOSTILE, groups, BOUNDS, LARGE, levels=["a", "b"])
    assert made.counts == {"a": 1, "b": 1}
    assert stats.histogram(groups, LARGE, levels=["a"]).value == {"a": 1}
    edges = stats.histogram(HOSTILE, LARGE, edges=[0.0, 3.0, 5.0])
    assert edges.value == {"[0.0, 3.0)": 1, "[3.0, 5.0]": 1}


def test_floating_point_modes_of_the_caller_change_nothing():
    tiny = np.array([5e-324, 1.0, np.nan, np.inf])
    with np.errstate(all="raise"):
        for bounds in (BOUNDS, (-1e280, 1e280), (0.0, 1e-270)):
            stats.sum(tiny, bounds, PURE)
            stats.mean(tiny, bounds, PURE)
            stats.quantile(tiny, 0.5, bounds, PURE)


@pytest.mark.parametrize(
    "make",
    [np.array, tuple, pd.Series, pl.Series, lambda x: pd.Series(x, dtype="Float64")],
)
def test_columns_of_every_container_are_read_alike(make):
    values = [1.0, 2.0, 3.0, 4.0, 9.0]
    for kind in ("sum", "mean"):
        function = getattr(stats, kind)
        same = function(values, BOUNDS, PURE, seed=3)
        assert function(make(values), BOUNDS, PURE, seed=3).totals == same.totals
    made = stats.histogram(make(values), LARGE, levels=[1, 9])
    assert made.value == {"1": 1, "9": 1}


@pytest.mark.parametrize("others", [[None], [1.5], [2**60], ["x"], [True], []])
def test_an_entry_never_changes_the_cell_of_another(others):
    """Whatever else is in the column, two records have the level 7."""
    made = stats.histogram([7, *others, 7], LARGE, levels=[7, 8])
    assert made.value == {"7": 2, "8": 0}
    made = stats.histogram(["7", *others, 7], LARGE, levels=["7", "8"])
    assert made.value["7"] == 2


@pytest.mark.parametrize("make", [np.array, pd.Series])
def test_a_type_that_cannot_hold_a_level_is_rejected(make):
    """One missing record would turn the others into floats, which skip integers."""
    levels = [str(2**53 + 1), str(2**53)]
    column = make([2**53 + 1, 2**53])
    made = stats.histogram(column, LARGE, levels=levels)
    assert made.value == {levels[0]: 1, levels[1]: 1}
    with pytest.raises(ValueError, match="must be of integers or text"):
        stats.histogram(column.astype(float), LARGE, levels=levels)


# Laws through the public functions.


def test_a_count_has_its_law():
    seeds = range(600)
    found = [stats.count([True, False], PURE, seed=seed).value for seed in seeds]
    for z in (-1, 0, 1):
        chance = math.tanh(0.5) * math.exp(-abs(z))
        assert_frequency(found.count(1 + z), len(found), chance)
    with rejected():  # the noise of sensitivity 2
        assert_frequency(found.count(1), len(found), math.tanh(0.25))


def test_a_quantile_has_its_law():
    """Gaps between records: 0 to 1 and 1 to 4 have other ranks than 4 to 10."""
    column = [1.0, 4.0, 4.0]
    found = [
        stats.quantile(column, 0.5, BOUNDS, PURE, seed=seed).value
        for seed in range(800)
    ]
    gaps = {(0.0, 1.0): 1.5, (1.0, 4.0): 0.5, (4.0, 10.0): 1.5}
    masses = {gap: (gap[1] - gap[0]) * math.exp(-0.5 * s) for gap, s in gaps.items()}
    total = math.fsum(masses.values())
    for (low, high), mass in masses.items():
        hits = sum(low <= x < high for x in found)
        assert_frequency(hits, len(found), mass / total)
    with rejected():  # a rank that is one record too low: scores 1/2, 1/2 and 5/2
        masses = [math.exp(-0.25), 3.0 * math.exp(-0.25), 6.0 * math.exp(-1.25)]
        hits = sum(x >= 4.0 for x in found)
        assert_frequency(hits, len(found), masses[2] / math.fsum(masses))


def test_a_median_of_many_records_is_within_a_few_ranks():
    values = np.sort(np.random.default_rng(5).lognormal(0.0, 2.0, 10_000))
    errors = []
    for _ in range(20):
        point = stats.quantile(values, 0.5, (0.0, 1e6), PURE).value
        errors.append(abs(np.searchsorted(values, point) / 10_000 - 0.5))
    assert np.mean(errors) <= 1e-3


# Certificates, ledgers and files.


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_every_statistic_is_pure_releasable_and_proved(relation):
    budget = Budget(epsilon=0.3, delta=0.0, relation=relation)
    for made in all_kinds(budget).values():
        certificate = made.certificate
        assert made.releasable and certificate.epsilon_proved == 0.3
        assert "is 0.3-differentially private (pure) when" in certificate.statement
        assert "2^-80" not in str(certificate) + certificate.details()
        assert made.verify() and not made.verify(checker="ball").unchecked
        assert prove(made.to_json())
    for made in all_kinds(budget, seed=1).values():
        assert not made.releasable and made.verify()


def test_budgets_with_a_delta_are_pure_as_well():
    for made in all_kinds(Budget(epsilon=1.0, delta=1e-6)).values():
        assert made.verify() and made.verify(checker="ball")
        assert made.certificate.event.to_dict()["name"] in ("pure", "bounded_range")


def test_ledgers_add_up_and_refuse_before_the_noise(tmp_path):
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=0.0))
    third = Budget(epsilon=Fraction(1, 3), delta=0.0)
    stats.mean([1.0, 2.0], BOUNDS, third, ledger=ledger)
    stats.quantile([1.0, 2.0], 0.5, BOUNDS, third, ledger=ledger)
    stats.group_means([1.0], ["a"], BOUNDS, third, levels=["a"], ledger=ledger)
    assert ledger.epsilon() <= 1.0 and ledger.warnings == ()
    with pytest.raises(ValueError, match="ledger must be one with room"):
        stats.count([True], third, ledger=ledger)
    assert len(ledger.entries) == 3
    file = LedgerFile(tmp_path / "spent.json", budget=PURE)
    stats.count([True], PURE, ledger=file)
    with pytest.raises(ValueError, match="ledger must be one with room"):
        stats.sum([1.0], BOUNDS, PURE, ledger=file)
    assert len(file.read().entries) == 1


@one_in(7)
@pytest.mark.parametrize("name", list(all_kinds(PURE, seed=2)))
def test_files_come_back_and_bind_their_parts(name, tmp_path):
    made = all_kinds(PURE)[name]
    made.save(tmp_path / "s.json")
    again = dps.Statistic.load(tmp_path / "s.json")
    assert again.value == made.value and again.digest == made.digest
    assert again.verify() and "<html" in again.to_html()
    assert str(made.value)[:6] in repr(made) and "<table" in made._repr_html_()
    content = json.loads(made.to_json())
    for field, value in forgeries(content):
        text = json.dumps(content | {field: value}, indent=1)
        (tmp_path / "f.json").write_text(text)
        with pytest.raises(ValueError, match="must be"):
            dps.Statistic.load(tmp_path / "f.json").verify()
        with pytest.raises(NotProved):
            prove(text)


def forgeries(content):
    totals_, names, value = content["totals"], content["names"], content["value"]
    yield "totals", [totals_[0] + 1, *totals_[1:]]
    yield "totals", [float(totals_[0]), *totals_[1:]]
    yield "totals", [*totals_, 0]
    yield "totals", []
    yield "names", [*names, "another"]
    yield "names", [*names[:-1], "another"]
    yield "digest", "0" * 64
    yield "format", "dpsample-statistic-2"
    if isinstance(value, dict):
        first = next(iter(value))
        yield "value", value | {first: value[first] + 1}
        yield "value", dict(reversed(value.items()))
        yield "names", names[::-1]
    else:
        yield "value", value + 1
        yield "value", True
        yield "value", None
    other = json.loads(all_kinds(Budget(epsilon=2.0, delta=0.0))["count"].to_json())
    yield "certificate", other["certificate"]


def test_a_point_of_another_column_is_no_quantile():
    made = stats.quantile([1.0], 0.5, BOUNDS, PURE)
    with pytest.raises(ValueError, match=r"totals\[0\] must be from"):
        dps.Statistic(totals=(2**60,), certificate=made.certificate)
    fit = dps.noise.geometric_mechanism(PURE, sensitivity=1).certificate
    with pytest.raises(ValueError, match="certificate must be that of a statistic"):
        dps.Statistic(totals=(1,), certificate=fit)


# Refusals.

CASES = {
    "a mask of numbers": (lambda: stats.count([0, 1], PURE), "mask must be booleans"),
    "no record": (lambda: stats.count([], PURE), "mask must be booleans"),
    "a table": (lambda: stats.mean([[1.0]], BOUNDS, PURE), "values must be of shape"),
    "text": (lambda: stats.mean(["a"], BOUNDS, PURE), "values must be an array"),
    "no values": (lambda: stats.sum([], BOUNDS, PURE), "values must be of shape"),
    "one bound": (lambda: stats.sum([1.0], (1.0,), PURE), "bounds must be a pair"),
    "equal": (lambda: stats.sum([1.0], (1.0, 1.0), PURE), "upper must be at least"),
    "infinite": (lambda: stats.sum([1.0], (0, math.inf), PURE), "upper must be <="),
    "a level of 1": (
        lambda: stats.quantile([1.0], 1.0, BOUNDS, PURE),
        "level must be > 0 and < 1",
    ),
    "both": (
        lambda: stats.histogram([1], PURE, levels=[1], edges=[0, 1]),
        "levels or edges must be given, exactly one of them",
    ),
    "none": (lambda: stats.histogram([1], PURE), "levels or edges must be given"),
    "edges": (
        lambda: stats.histogram([1], PURE, edges=[1, 1]),
        "edges must be at least two increasing",
    ),
    "levels": (
        lambda: stats.histogram([1], PURE, levels=["a", "a"]),
        "must be free of repeated",
    ),
    "lengths": (
        lambda: stats.group_means([1.0], ["a", "b"], BOUNDS, PURE, levels=["a"]),
        "groups must be of length 1",
    ),
    "a word": (lambda: stats.histogram("abc", PURE, levels=["a"]), "values must be"),
    "no budget": (lambda: stats.count([True], 1.0), "budget must be"),
    "a tiny budget": (
        lambda: stats.count([True], Budget(epsilon=1e-60, delta=0.0)),
        "budget.epsilon must be >=",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_refused_with_a_reason(name):
    call, words = CASES[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_the_file_stays_short():
    with open(stats.__file__, encoding="utf-8") as file:
        assert len(file.readlines()) <= 250
    assert len(totals.MECHANISMS) == 6
