"""Means beside theory: intervals, verdicts, fitted exponents."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpsample.experiments import Inapplicable, Metric, Slope
from dpsample.experiments.findings import FittedSlope, fits
from dpsample.experiments.summaries import (
    FALSE_ALARM,
    MeanInterval,
    comparisons,
    estimates,
    interval,
)
from dpsample.experiments.tasks import Row
from tests.support.statistics import assert_mean, rejected
from tests.support.study_rows import rows, study


def compared(declared, values, reasons=None):
    found = estimates(declared, rows(declared, values), quick=False)
    return comparisons(found, reasons or {})


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(1).normal(size=9)
    found = interval(Metric("x"), values, 0.9)
    exact = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    assert found == pytest.approx((exact.low, exact.high), rel=1e-12)
    assert interval(Metric("x"), values[:1], 0.9) == (-math.inf, math.inf)


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_the_interval_of_a_rate_is_the_exact_binomial(hits):
    values = np.repeat([1.0, 0.0], [hits, 20 - hits])
    found = interval(Metric("x", kind="rate"), values, 0.95)
    exact = stats.binomtest(hits, 20).proportion_ci(0.95, "exact")
    assert found == pytest.approx((exact.low, exact.high), rel=1e-9, abs=1e-12)


def test_a_rate_is_of_zeros_and_ones_and_an_exact_number_is_one():
    with pytest.raises(ValueError, match="^x must be 0 or 1"):
        interval(Metric("x", kind="rate"), np.array([0.0, 0.5]), 0.95)
    with pytest.raises(ValueError, match="^x must be the same in all replicates"):
        interval(Metric("x", kind="exact"), np.array([1.0, 1.0 + 1e-6]), 0.95)
    assert interval(Metric("x", kind="exact"), np.array([3.0, 3.0]), 0.95) == (3, 3)
    endless = np.array([math.inf, math.inf])
    assert interval(Metric("x", kind="exact"), endless, 0.95) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("reference", "level", "verdict", "is_refuted"),
    [
        ("bound", 1.5, "below", False),
        ("bound", 1.0, "touches", False),
        ("bound", 0.5, "above", True),
        ("bound", math.inf, "no bound", False),
        ("lower", -math.inf, "no bound", False),
        ("lower", 0.5, "above", False),
        ("lower", 1.0, "touches", False),
        ("lower", 1.5, "below", True),
        ("expected", 1.0, "agrees", False),
        ("expected", 1.5, "differs", True),
        ("expected", 0.5, "differs", True),
        ("printed", 1.5, "as printed", False),
        ("printed", 1.0, "touches", False),
        ("printed", 0.5, "beyond print", False),
    ],
)
def test_a_verdict_compares_the_interval(reference, level, verdict, is_refuted):
    declared = study(Metric("x", **{reference: lambda p: level * p["n"]}))
    lines = compared(declared, lambda n, rng: n * rng.normal(1.0, 0.5, size=100))
    assert [line.verdict for line in lines] == [verdict] * 3
    assert all(line.is_refuted == is_refuted for line in lines)
    assert [line.value for line in lines] == [level, 2 * level, 4 * level]


@pytest.mark.parametrize(
    ("bound", "verdict"), [(1.9, "below"), (2.0, "vacuous"), (0.5, "above")]
)
def test_a_bound_that_the_baseline_meets_is_vacuous(bound, verdict):
    declared = study(Metric("x", bound=bound, baseline=lambda p: 2.0, lower=0.5))
    upper, lower = compared(declared, lambda n, rng: rng.normal(1.0, 0.1, 100))[:2]
    assert (upper.verdict, upper.baseline) == (verdict, 2.0)
    assert lower.verdict == "above"
    named = study(Metric("x", bound="y", baseline="z"), Metric("y"), Metric("z"))
    values = {"x": 1.0, "y": 9.0, "z": 5.0}
    measured = [Row(named.cells()[0].key, i, 0.0, values) for i in range(3)]
    line = comparisons(estimates(named, measured, quick=False), {})[0]
    assert (line.verdict, line.baseline) == ("vacuous", 5.0)
    with pytest.raises(ValueError, match="metric"):
        study(Metric("x", bound=1.0, baseline="w"))


def test_a_measured_reference_scatters_with_the_mean_or_against_it():
    declared = study(Metric("x", expected="y"), Metric("y"), grid={"n": 1})
    noise, other = np.random.default_rng(3).normal(size=(2, 30))

    def verdict(x, y):
        values = zip(x, y, strict=True)
        cell = declared.cells()[0].key
        found = [Row(cell, i, 0.0, {"x": a, "y": b}) for i, (a, b) in enumerate(values)]
        return comparisons(estimates(declared, found, quick=False), {})[0].verdict

    shift = 3.2 / math.sqrt(30)  # of a mean whose one error is beyond its interval
    noise, other = noise - noise.mean(), other - other.mean()
    assert verdict(noise + shift, other) == "uninformative"  # it was "differs"
    assert verdict(noise + 1e-3, noise + 1e-6 * other) == "differs"
    rate = study(Metric("x", kind="rate", expected="y"), Metric("y"), grid={"n": 1})
    key = rate.cells()[0].key
    ones = [Row(key, i, 0.0, {"x": 1.0, "y": 0.7}) for i in range(5)]
    for few in (ones, [*ones, Row(key, 5, 0.0, {"x": 1.0})]):  # not all are of both
        (line, _) = comparisons(estimates(rate, few, quick=False), {})
        assert not line.is_refuted
    with pytest.raises(ValueError, match="infinities of both signs"):
        verdict(np.resize([math.inf, -math.inf], 30), other)


@pytest.mark.parametrize(
    ("reference", "near"), [("bound", "touches"), ("expected", "agrees")]
)
def test_an_interval_wider_than_its_reference_is_uninformative(reference, near):
    declared = study(Metric("x", **{reference: 1.0}), grid={"n": 1})
    # Half of the interval is about a fifth of the spread of 100 values.
    for spread, verdict in ((2.0, near), (3.0, "uninformative")):
        values = 1.0 + spread * np.resize([1.0, -1.0], 100)
        (line,) = compared(declared, lambda n, rng, own=values: own)
        assert line.verdict == verdict and not line.is_refuted


def test_nothing_is_printed_where_a_printed_bound_is_infinite():
    printed = {1: math.inf, 2: 5.0, 4: math.inf}
    declared = study(Metric("x", bound=9.0, printed=lambda p: printed[p["n"]]))
    lines = compared(declared, lambda n, rng: rng.normal(1.0, 0.5, size=100))
    words = ["upper bound", "upper bound", "printed bound", "upper bound"]
    assert [line.reference for line in lines] == words


@pytest.mark.parametrize("level", [0.9, 1.1])
def test_exact_numbers_are_compared_up_to_their_tolerance(level):
    declared = study(Metric("x", kind="exact", bound=1.0, tolerance=1e-6))
    (line, *_) = compared(declared, lambda n, rng: [level])
    assert line.verdict == ("below" if level < 1.0 else "above")
    (line, *_) = compared(declared, lambda n, rng: [1.0 + 5e-7])
    assert line.verdict == "below"
    (line, *_) = compared(declared, lambda n, rng: [1.0 + 5e-6])
    assert line.verdict == "above"


@pytest.mark.parametrize(("size", "verdict"), [(0.999, "touches"), (1.001, "above")])
def test_all_refutations_together_have_a_level(size, verdict):
    grid, reasons = {"n": tuple(range(50))}, {'{"n": 7}': {"x": "so"}}
    declared = study(Metric("x", bound=0.0, lower=-9.0), grid=grid)
    values = np.random.default_rng(4).normal(size=10)
    values = (values - values.mean()) / (values.std(ddof=1) / math.sqrt(10))
    # Student's t over 10 replicates, two tails, 2 * 49 comparisons.
    values += size * stats.t.isf(0.5 * FALSE_ALARM / 98, 9)
    lines = compared(declared, lambda n, rng: values, reasons)
    upper = [line for line in lines if line.reference == "upper bound"]
    assert {line.verdict for line in upper if not line.reason} == {verdict}
    assert [line.verdict for line in upper if line.reason] == ["inapplicable"]


def test_a_reference_may_be_another_metric():
    declared = study(Metric("x", bound="y"), Metric("y"), grid={"n": 1})
    key = declared.cells()[0].key
    measured = [Row(key, i, 0.0, {"x": 1.0 + i, "y": 9.0}) for i in range(3)]
    first, second = comparisons(estimates(declared, measured, quick=False), {})
    assert (first.value, first.verdict) == (9.0, "below") and second.verdict == ""


def test_a_reference_is_a_number():
    declared = study(Metric("x", bound=lambda p: math.nan))
    with pytest.raises(ValueError, match=r"^upper bound of x in cell .* a number"):
        compared(declared, lambda n, rng: [1.0, 2.0])


def test_a_reference_need_not_exist_where_it_is_inapplicable():
    bound = {1: math.nan, 2: 9.0, 4: 9.0}
    declared = study(Metric("x", bound=lambda p: bound[p["n"]]))
    lines = compared(declared, lambda n, rng: [1.0, 2.0], {'{"n": 1}': {"x": "so"}})
    assert [line.verdict for line in lines] == ["inapplicable", "below", "below"]


def test_an_infinite_mean_is_above_every_finite_bound():
    declared = study(Metric("x", bound=1e300))
    lines = compared(declared, lambda n, rng: [math.inf, 1.0, 2.0])
    assert all(line.is_refuted for line in lines)


def test_only_declared_replicates_count():
    declared = study(Metric("x", bound=9.0), replicates=lambda p: 2)
    lines = compared(declared, lambda n, rng: [1.0, 2.0, 1e9])
    assert [line.estimate.mean for line in lines] == [1.5] * 3


POWER = Slope(x="n", y="x", expected=-0.5, theorem="T")


def fitted(slope, values, **options):
    declared = study(Metric("x"), grid={"n": (10, 100, 1000)}, slopes=(slope,))
    return fits(declared, estimates(declared, rows(declared, values), quick=False))


def test_a_power_law_without_scatter_has_its_exponent():
    (fit,) = fitted(POWER, lambda n, rng: [3.0 * n**-0.5] * 4)
    assert fit.value == pytest.approx(-0.5, rel=1e-12) and fit.num_points == 3
    assert fit.misfit == pytest.approx(0.0, abs=1e-12)


def test_the_interval_of_a_slope_covers_that_of_the_true_means():
    declared = study(Metric("x"), grid={"n": (10, 100, 1000)}, slopes=(POWER,))
    rng, found = np.random.default_rng(5), []
    keys = [(cell.key, cell.params["n"]) for cell in declared.cells()]
    for _ in range(300):
        measured = [
            Row(key, i, 0.0, {"x": value})
            for key, n in keys
            for i, value in enumerate(n**-0.5 * rng.gamma(9.0, 1.0 / 9.0, size=20))
        ]
        found += fits(declared, estimates(declared, measured, quick=False))
    errors = np.array([abs(fit.value + 0.5) for fit in found])
    halves = np.array([0.5 * (fit.interval.high - fit.interval.low) for fit in found])
    assert_mean(errors <= halves, 0.95, 0.95 * 0.05, detects=0.75)
    with rejected():  # half as wide
        assert_mean(errors <= 0.5 * halves, 0.95, 0.95 * 0.05, detects=0.75)


@pytest.mark.parametrize(
    ("power", "is_exact", "verdict", "is_refuted"),
    [
        (-0.5, True, "agrees", False),
        (-0.8, False, "smaller than the bound's", False),
        (-0.2, False, "larger than the bound's", True),
        (-0.8, True, "differs", True),
    ],
)
def test_an_exponent_is_compared_with_the_theorems(
    power, is_exact, verdict, is_refuted
):
    slope = Slope(x="n", y="x", expected=-0.5, theorem="T", is_exact=is_exact)
    (fit,) = fitted(slope, lambda n, rng: n**power * rng.gamma(100, 0.01, 400))
    assert fit.verdict == verdict and fit.is_refuted == is_refuted


def test_a_declared_tolerance_is_said_where_it_is_needed():
    for tolerance, verdict in ((0.1, "agrees within 0.1"), (0.01, "differs")):
        slope = replace(POWER, is_exact=True, tolerance=tolerance)
        (fit,) = fitted(slope, lambda n, rng: n**-0.45 * rng.gamma(1e4, 1e-4, 400))
        assert fit.verdict == verdict


@pytest.mark.parametrize(
    ("value", "half", "tolerance", "verdict"),
    [
        (-2.8, 2.4, 0.0, "uninformative"),
        (-1.26, 0.3, 0.05, "smaller than the bound's"),
        (-0.6, 0.04, 0.05, "agrees within 0.05"),
        (-0.55, 0.08, 0.05, "touches"),
        (-0.55, 0.04, 0.05, "larger than the bound's"),
    ],
)
def test_a_tolerance_is_no_part_of_an_interval(value, half, tolerance, verdict):
    fit = FittedSlope(
        slope=replace(POWER, tolerance=tolerance),
        params={},
        num_points=4,
        value=value,
        interval=MeanInterval(value - half, value + half),
        wide=MeanInterval(value - half, value + half),
        misfit=0.0,
        expected=-0.649,
    )
    assert fit.verdict == verdict


def test_there_is_one_fit_for_each_choice_of_the_other_parameters():
    slope = Slope(
        x="n", y="x", expected=lambda p: p["p"], theorem="T", where={"kind": "a"}
    )
    grid = {"n": (1, 2), "p": (0, 1), "kind": ("a", "b")}
    declared = study(Metric("x"), grid=grid, slopes=(slope,))
    measured = [
        Row(c.key, 0, 0.0, {"x": float(c.params["n"] ** c.params["p"])})
        for c in declared.cells()
    ]
    found = fits(declared, estimates(declared, measured, quick=False))
    assert [(f.params["p"], round(f.value, 9), f.expected) for f in found] == [
        (0, 0.0, 0.0),
        (1, 1.0, 1.0),
    ]
    assert {fit.verdict for fit in found} == {"unknown: one replicate"}


def test_only_positive_numbers_have_a_logarithm():
    grid = {"n": (0, 1, 2, 4, math.inf, "many")}
    declared = study(Metric("x"), grid=grid, slopes=(POWER,))
    measured = rows(declared, lambda n, rng: [1.0 / n if n in (1, 2, 4) else 9.0] * 2)
    (fit,) = fits(declared, estimates(declared, measured, quick=False))
    assert fit.num_points == 3 and fit.value == pytest.approx(-1.0)


def test_means_that_are_not_positive_are_left_out_of_a_fit():
    (fit,) = fitted(POWER, lambda n, rng: [-1.0 if n == 10 else 1.0 / n] * 3)
    assert fit.num_points == 2 and fit.value == pytest.approx(-1.0)
    assert fitted(POWER, lambda n, rng: [-1.0] * 3) == []


def test_inapplicable_may_be_meant_for_some_metrics_only():
    entry = Inapplicable(when=lambda p: p["n"] > 1, reason="n > 1", metrics=("x",))
    assert entry.concerns("x", {"n": 2}) and not entry.concerns("x", {"n": 1})
    assert not entry.concerns("y", {"n": 2})


def test_slopes_of_paired_points_have_the_interval_of_their_replicates():
    """Means that share their noise do not scatter about the line."""
    noise = 1.0 + 0.1 * np.random.default_rng(4).normal(size=20)
    widths = []
    for paired in ((), ("n",)):
        slope = Slope(x="n", y="x", expected=1.0, theorem="T")
        declared = study(Metric("x"), slopes=(slope,), paired=paired)
        measured = rows(declared, lambda n, rng: n * noise)
        (fit,) = fits(declared, estimates(declared, measured, quick=False))
        assert fit.value == pytest.approx(1.0)
        widths.append(fit.interval.high - fit.interval.low)
    assert widths[0] > 0.05 and widths[1] < 1e-12
    # Where only the last point scatters, both know the same.
    measured = rows(declared, lambda n, rng: n * noise if n == 4 else np.full(20, n))
    (fit,) = fits(declared, estimates(declared, measured, quick=False))
    error = noise.std(ddof=1) / noise.mean() / math.sqrt(20) / (2 * math.log(2.0))
    half = stats.t.ppf(0.975, 19) * error
    assert fit.interval.high - fit.value == pytest.approx(half)
