"""Gaussian privacy curve: against mpmath, the published tables, its own inverses."""

import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsample.privacy import (
    closed_form_gdp,
    gaussian_delta,
    gaussian_epsilon,
    gdp_from_budget,
    paper_gdp,
)
from tests.support.tiers import one_in, slow

EPSILONS = [0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.5, 1.0, 3.0, 10.0, 50.0, 300.0]
GDPS = [1e-12, 1e-7, 1e-4, 3e-3, 0.02, 0.1, 0.3, 0.7, 1.0, 2.0, 5.0, 10.0, 24.0, 100.0]

# Thresholds below which the printed choice is private, as published: (delta, epsilon).
PRINTED_LIMITS = {
    0.4: 1.21,
    0.1: 3.29,
    1e-2: 4.70,
    1e-3: 5.53,
    1e-4: 6.13,
    1e-5: 6.61,
    1e-6: 7.00,
    1e-8: 7.64,
    1e-10: 8.14,
    1e-12: 8.55,
}
DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
# For each epsilon and delta: exact gdp over the printed one; what epsilon the printed
# one really has.
TABLE = {
    0.1: "2.026 .040 1.684 .055 1.513 .063 1.411 .069 1.296 .076 1.233 .081 1.193 .083",
    0.25: "1.714 .130 1.512 .157 1.401 .173 1.330 .184 "
    "1.245 .199 1.197 .208 1.165 .214",
    0.5: "1.529 .301 1.401 .342 1.323 .369 1.272 .387 1.207 .410 1.169 .425 1.143 .436",
    1.0: "1.369 .688 1.296 .747 1.247 .785 1.213 .813 1.167 .849 1.139 .873 1.119 .890",
    2.0: "1.220 1.574 1.190 1.638 1.167 1.685 1.148 1.720 "
    "1.122 1.769 1.104 1.802 1.091 1.826",
    4.0: "1.071 3.672 1.076 3.666 1.076 3.678 1.073 3.695 "
    "1.067 3.728 1.061 3.755 1.055 3.778",
    8.0: "0.918 8.96 0.950 8.53 0.969 8.31 0.981 8.19 "
    "0.995 8.05 1.002 7.985 1.006 7.950",
    16.0: "0.763 23.6 0.812 21.2 0.845 19.9 0.869 19.1 "
    "0.901 18.2 0.922 17.6 0.936 17.3",
}


def exact_delta(epsilon, gdp):
    with mpmath.workdps(400):
        eps, t = mpmath.mpf(epsilon), mpmath.mpf(gdp)
        upper = mpmath.erfc((eps / t - t / 2) / mpmath.sqrt(2)) / 2
        lower = mpmath.erfc((eps / t + t / 2) / mpmath.sqrt(2)) / 2
        return upper - mpmath.exp(eps) * lower


def digits(printed):
    return len(printed.split(".")[1])


@one_in(3)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_delta_has_relative_accuracy_1e_10_down_to_1e_300(epsilon):
    compared = 0
    for gdp in GDPS:
        want = exact_delta(epsilon, gdp)
        if want > mpmath.mpf("1e-304"):
            compared += 1
            assert abs(gaussian_delta(epsilon, gdp) / want - 1) < 1e-11
    assert compared >= 3


def test_the_accuracy_check_sees_the_cancellation_of_the_textbook_formula():
    from scipy.special import ndtr

    z = 0.1 / 0.003 - 0.003 / 2
    textbook = ndtr(-z) - math.exp(0.1) * ndtr(-z - 0.003)
    want = exact_delta(0.1, 0.003)
    assert abs(gaussian_delta(0.1, 0.003) / want - 1) < 1e-11
    assert abs(textbook / want - 1) > 1e-11
    z = 1e-7 / 2
    assert abs((ndtr(z) - ndtr(-z)) / exact_delta(0.0, 1e-7) - 1) > 1e-11


def test_limits_of_the_curve():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1.0, 1e200) == 1.0
    assert gaussian_delta(0.0, 1.0) == pytest.approx(math.erf(math.sqrt(1 / 8)))


@pytest.mark.parametrize("count", [4, slow(60)])
def test_no_delta_is_below_the_true_one(count):
    distances = (5.704891561235743e-12, 8.2e-8, 6e-4, 0.002, 0.02, 0.7, 2.2, 5.0, 71.2)
    for gdp in distances:
        for z in np.linspace(2.0, 37.4, count).tolist():
            epsilon = (z + gdp / 2) * gdp
            assert mpmath.mpf(gaussian_delta(epsilon, gdp)) >= exact_delta(epsilon, gdp)
    # Below the normal numbers 0 would tell that a mechanism is pure.
    assert exact_delta(1.0, 0.0263) < gaussian_delta(1.0, 0.0263) < 1e-307
    assert 0.0 < gaussian_delta(1.0, 1e-320) < 1e-307


@pytest.mark.parametrize(
    ("epsilon", "delta", "want"),
    [
        (1.0, 1e-6, 0.23670),
        (0.1, 1e-5, 0.03252),
        (2.0, 1e-6, 0.44833),
        (1.0, 1e-2, 0.53252),
    ],
)
def test_gdp_of_known_budgets(epsilon, delta, want):
    assert round(gdp_from_budget(epsilon, delta), 5) == want


@given(
    log_epsilon=st.floats(-12, math.log(50.0)),
    log_delta=st.floats(-300 * math.log(10), math.log(0.9)),
)
def test_inverses_are_on_the_safe_side_and_tight(log_epsilon, log_delta):
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    gdp = gdp_from_budget(epsilon, delta)
    assert gaussian_delta(epsilon, gdp) <= delta
    assert gaussian_delta(epsilon, gdp) == pytest.approx(delta, rel=1e-10)
    back = gaussian_epsilon(delta, gdp)
    assert gaussian_delta(back, gdp) <= delta
    assert back == pytest.approx(epsilon, rel=1e-10)
    assert exact_delta(epsilon, gdp) <= mpmath.mpf(delta)


@given(epsilon=st.floats(0, 50), gdp=st.floats(1e-3, 20), factor=st.floats(1.001, 3))
def test_delta_increases_with_gdp_and_decreases_with_epsilon(epsilon, gdp, factor):
    delta = gaussian_delta(epsilon, gdp)
    assert gaussian_delta(epsilon, gdp * factor) >= delta
    assert gaussian_delta(epsilon + 0.01 * factor, gdp) <= delta


def test_inverses_are_monotone():
    epsilons = np.geomspace(1e-3, 50, 40)
    gdps = [gdp_from_budget(epsilon, 1e-6) for epsilon in epsilons]
    assert np.all(np.diff(gdps) > 0)
    deltas = np.geomspace(1e-300, 0.99, 40)
    assert np.all(np.diff([gdp_from_budget(1.0, delta) for delta in deltas]) > 0)
    assert np.all(np.diff([gaussian_epsilon(delta, 1.0) for delta in deltas]) <= 0)


def test_epsilon_is_zero_when_delta_pays_for_all():
    assert gaussian_epsilon(0.5, 1.0) == 0.0
    assert gaussian_epsilon(1e-6, 0.0) == 0.0


@pytest.mark.parametrize("delta", [0.49, 1e-2, 1e-6, 1e-300])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
def test_fact_2_is_always_valid_and_never_better(epsilon, delta):
    gdp = closed_form_gdp(epsilon, delta)
    assert gaussian_delta(epsilon, gdp) <= delta
    assert gdp <= gdp_from_budget(epsilon, delta)
    assert gdp <= paper_gdp(epsilon, delta)


@pytest.mark.parametrize("epsilon", TABLE)
def test_published_table_of_the_printed_choice(epsilon):
    cells = TABLE[epsilon].split()
    for delta, ratio, real in zip(DELTAS, cells[::2], cells[1::2], strict=True):
        printed = paper_gdp(epsilon, delta)
        found = gdp_from_budget(epsilon, delta) / printed
        assert abs(found - float(ratio)) <= 0.505 * 10 ** -digits(ratio)
        real_epsilon = gaussian_epsilon(delta, printed)
        assert abs(real_epsilon - float(real)) <= 0.505 * 10 ** -digits(real)


@pytest.mark.parametrize("delta", PRINTED_LIMITS)
def test_printed_choice_is_private_only_below_a_threshold(delta):
    limit = PRINTED_LIMITS[delta]
    for epsilon in (0.05, 0.3, 0.7, 0.9):
        below = limit * epsilon
        assert gaussian_delta(below, paper_gdp(below, delta)) <= delta
    assert gaussian_delta(limit - 0.01, paper_gdp(limit - 0.01, delta)) <= delta
    assert gaussian_delta(limit + 0.01, paper_gdp(limit + 0.01, delta)) > delta


def test_printed_choice_exceeds_delta_51_to_85_times_at_epsilon_16():
    excess = [gaussian_delta(16.0, paper_gdp(16.0, d)) / d for d in DELTAS]
    assert 50.5 < min(excess) and max(excess) < 85.5


@pytest.mark.parametrize(
    ("epsilon", "delta", "real"),
    [(1, 1e-3, 1.57), (1, 1e-5, 1.68), (1, 1e-8, 1.77), (4, 1e-5, 8.31)],
)
def test_the_missing_factor_two_costs_this_much_epsilon(epsilon, delta, real):
    found = gaussian_epsilon(delta, 2 * paper_gdp(epsilon, delta))
    assert found == pytest.approx(real, abs=0.0051)


def test_the_smallest_distances_are_answered():
    """The slope of Mills' ratio times gdp is no longer a float."""
    for epsilon in (1e-3, 1e-130):
        assert 0.0 <= gaussian_delta(epsilon, 6e-141) <= 6e-141


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_delta(-1.0, 1.0), "epsilon must be a finite number >= 0"),
        (lambda: gaussian_delta(math.nan, 1.0), "epsilon must be a finite number >= 0"),
        (lambda: gaussian_delta(1.0, math.inf), "gdp must be a finite number >= 0"),
        (lambda: gaussian_delta(1.0, "1"), "gdp must be a finite number >= 0, got '1'"),
        (lambda: gaussian_epsilon(0.0, 1.0), "delta must be > 0 and < 1, got 0."),
        (lambda: gaussian_epsilon(1e-6, -1.0), "gdp must be a finite number >= 0"),
        (lambda: gdp_from_budget(1.0, 1.0), "delta must be > 0 and < 1, got 1."),
        (lambda: gdp_from_budget(math.inf, 0.1), "epsilon must be a finite number"),
        (lambda: gdp_from_budget(0.0, 1e-301), "epsilon and delta must be large"),
        (
            lambda: closed_form_gdp(1.0, 0.5),
            "delta must be > 0 and < 0.5, got 0.5. Use cal",
        ),
        (lambda: paper_gdp(0.0, 0.1), "epsilon must be a finite number > 0, got 0."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.slow
def test_import_does_not_load_scipy():
    code = "import sys, dpsample.privacy; sys.exit('scipy.special' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(481132164.74044853, 1e-190), (1e21, 1e-34)]
)
def test_no_digit_of_a_huge_epsilon_is_lost(epsilon, delta):
    gdp = gdp_from_budget(epsilon, delta)
    with mpmath.workdps(60):
        z = mpmath.mpf(epsilon) / gdp - mpmath.mpf(gdp) / 2
        far = 1 / (z + gdp)  # more than the ratio of Mills there
        true = mpmath.ncdf(-z) - mpmath.npdf(z) * far
        assert delta * (1.0 - 1e-3) <= true <= delta
