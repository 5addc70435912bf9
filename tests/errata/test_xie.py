"""Errata of Xie et al. (2022)."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import fisk, t

from dpsample.papers import curves
from dpsample.privacy import gaussian_epsilon
from tests.support.errata import recompute


def test_e25_the_noise_forgets_the_number_of_steps():
    def full(case, num_steps=5):
        gdp = case.epsilon * math.sqrt(num_steps / math.log(1.0 / case.delta))
        return gaussian_epsilon(case.delta, gdp)

    recompute("gradient-E25", full)


@pytest.mark.parametrize("rate", [0.1, pytest.param(0.01, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("relation", "constant", "largest"),
    [("replace_one", 0.1, 0.64), ("zero_out", 0.25, 0.55)],
)
def test_e25_a_small_constant_makes_proposition_1_true(
    relation, constant, largest, rate
):
    """T = c n^2/m^2 for m = n/10 and n/100; c = 5 is the one of Section 6.1."""
    for c, epsilon in itertools.product((constant, 5.0), (0.1, 0.5, 1.0)):
        true = curves.poisson(
            sampling_rate=rate,
            noise_multiplier=math.sqrt(math.log(1e4)) / epsilon,
            num_steps=round(c / rate**2),
            delta=1e-4,
            relation=relation,
        )(1.0)
        assert true <= largest * epsilon if c < 1.0 else true > 1.9 * epsilon


def test_e25_one_step_on_all_records_has_no_constant():
    """T = n^2/m^2 with m = n: delta decides, however small epsilon."""
    log = 30.0 * math.log(10.0)
    for epsilon in (1.0, 1e-2, 1e-4):
        for moved, least in ((1.0, 1.2), (2.0, 2.4)):  # a record is left out, replaced
            gdp = moved * epsilon / math.sqrt(log)
            assert gaussian_epsilon(1e-30, gdp) > least * epsilon


def test_e26_one_mean_misses_a_factor_two():
    recompute(
        "gradient-E26",
        lambda case: gaussian_epsilon(
            case.delta, case.epsilon / math.sqrt(math.log(1.0 / case.delta))
        ),
    )


def medians(values, buckets, length):
    """Median of the means of buckets by position."""
    parts = np.array_split(np.clip(values, -length / 2.0, length / 2.0), buckets)
    return np.median([part.mean() for part in parts])


def test_e27_a_record_less_shifts_all_buckets():
    length, n, q = 2.0, 9, 3
    by_position = by_label = 0.0
    for signs in itertools.product([-1.0, 1.0], repeat=n):
        values = np.array(signs)
        sums = values.reshape(q, -1).sum(axis=1)
        labeled = np.median(sums) - np.median(sums - np.eye(q)[0] * values[0])
        by_label = max(by_label, abs(labeled) * q / n)
        shifted = medians(values, q, length) - medians(values[1:], q, length)
        by_position = max(by_position, abs(shifted))
    assert by_position == pytest.approx(length * q / n)
    assert by_label == pytest.approx(0.5 * length * q / n)
    # In fixed buckets a replaced record moves the median by no more, and by as much.
    rng = np.random.default_rng(3)
    for buckets, share in ((3, 1.0), (2, 0.5)):
        moved = 0.0
        for _ in range(2000):
            data = rng.choice([-1.0, 1.0], 6)
            place, other = rng.integers(6), data.copy()
            other[place] *= -1.0
            change = medians(data, buckets, length) - medians(other, buckets, length)
            moved = max(moved, abs(change))
        assert moved == pytest.approx(share * length * buckets / 6)


def test_e28_the_number_of_buckets_is_not_whole():
    for p in (20, 40, 60, 80, 100, 150):
        buckets = 3.0 * math.log(2.0 * p / 0.1)
        assert abs(buckets - round(buckets)) > 1e-3
    mean, length = 5.0, 4.0  # below 4 |mu|
    assert medians(np.full(12, mean), 3, length) == length / 2.0


def test_e29_the_step_has_the_inverse_unit():
    smoothness = 2.0
    with pytest.raises(ZeroDivisionError):
        smoothness / math.sqrt(0)
    assert smoothness / math.sqrt(1) == 4.0 * (1.0 / smoothness)
    for step, stays in ((smoothness, False), (1.0 / smoothness, True)):
        w = 1.0
        for _ in range(1, 4):
            w -= step * smoothness * w  # of a parabola
        assert (abs(w) <= 1.0) == stays


def test_e30_noise_averages_out_over_steps():
    """F = w^2 / 2 from its minimizer, noise of variance 1, steps 1 / sqrt(T)."""
    ratios = []
    for T in (100, 400, 1600):
        step = 1.0 / math.sqrt(T)
        # The average is a sum over noises; noise s acts on the iterates after it.
        acts = step * np.cumsum((1.0 - step) ** np.arange(T)) / T
        risk = 0.5 * (acts**2).sum()
        bound = 2.0 / 2.0 * math.sqrt(2.0 / math.pi)  # Delta E |noise|, Delta = 1
        ratios.append(risk / bound)
    assert ratios[0] < 0.01
    assert ratios[2] < 0.3 * ratios[1] < 0.09 * ratios[0]


def test_e31_a_replaced_record_moves_the_sum_by_two_bounds():
    C = 1.5
    at_bound = np.array([[C, 0.0], [-C, 0.0]])
    assert np.linalg.norm(at_bound[0] - at_bound[1]) == 2.0 * C

    def sampled(case):
        relation = "replace_one" if "replace" in case.setting else "zero_out"
        return curves.poisson(
            sampling_rate=0.1,
            noise_multiplier=math.sqrt(math.log(1.0 / case.delta)) / case.epsilon,
            num_steps=500,
            delta=case.delta,
            relation=relation,
        )(1.0)

    recompute("gradient-E31", sampled, rel=5e-3)


def test_e32_unit_columns_leave_no_signal():
    n = 10_000
    X = np.random.default_rng(1).standard_normal((n, 10))
    X /= np.linalg.norm(X, axis=0)
    signal = math.sqrt(np.mean((X @ np.resize([1.0, -1.0], 10)) ** 2))
    assert signal == pytest.approx(math.sqrt(10.0 / n), rel=0.1)
    assert signal < 0.05 * t(2).ppf(0.75)


def test_e33_the_errors_have_no_variance_and_no_mean():
    def truncated(law, power, end):
        value, _ = quad(
            lambda u: math.exp(u * (power + 1)) * law.pdf(math.exp(u)), 0.0, end
        )
        return value

    for law, power in ((t(2), 2), (fisk(0.5), 1)):
        moments = [truncated(law, power, end) for end in (10.0, 20.0, 40.0)]
        assert moments[1] > 1.5 * moments[0] and moments[2] > 1.5 * moments[1]
