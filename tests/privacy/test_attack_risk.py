"""Attack risk: closed forms, all tests of small mechanisms, simulated attacks."""

import decimal
import math
from fractions import Fraction
from itertools import chain, combinations, product

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.privacy import (
    ApproximateEvent,
    AttackRisk,
    ComposedEvent,
    GaussianEvent,
    NearEvent,
    PureEvent,
    calibrate,
    gdp_from_budget,
)
from dpsample.privacy.accounting.attack_risk import EPSILON_GRID, percent
from tests.support.public_facts import BUDGET, final, logistic_facts
from tests.support.statistics import assert_frequency, rejected

RATES = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9, 1.0])


def risk_of(event, relation="zero_out"):
    return AttackRisk(event=event, relation=relation)


@pytest.mark.parametrize("gdp", [1e-3, 0.2, 1.0, 5.0])
def test_gaussian_events_have_the_roc_of_two_normals(gdp):
    risk = risk_of(GaussianEvent(gdp))
    exact = norm.cdf(norm.ppf(RATES) + gdp)
    bound = risk.true_positive_rate(RATES)
    assert (bound >= exact * (1.0 - 1e-12)).all()
    assert bound == pytest.approx(exact, rel=1e-5, abs=1e-9)
    assert risk.advantage == pytest.approx(2.0 * norm.cdf(0.5 * gdp) - 1.0, rel=1e-9)
    for prior in (0.01, 0.3, 0.5, 0.9):
        tau = math.log((1.0 - prior) / prior)
        wrong = (1.0 - prior) * norm.sf(tau / gdp + 0.5 * gdp)
        wrong += prior * norm.cdf(tau / gdp - 0.5 * gdp)
        assert risk.bayes_risk(prior) == pytest.approx(wrong, rel=1e-6)


def test_risks_below_the_digits_of_one_are_not_lost():
    """Of a mechanism that fails with probability 1e-17, and else tells nothing."""
    risk = risk_of(ApproximateEvent(epsilon=0.0, delta=1e-17))
    for rate in (0.0, 1e-20, 1e-3):
        assert risk.true_positive_rate(rate) >= rate + 1e-17 * (1.0 - rate)


@pytest.mark.parametrize(
    ("epsilon", "at_1", "at_01", "advantage", "wrong"),
    [
        (0.3, 0.0122, 0.00129, 0.0307, 0.4847),
        (1.0, 0.0183, 0.00216, 0.0942, 0.4529),
        (3.0, 0.0466, 0.00729, 0.2540, 0.3730),
    ],
)
def test_gaussian_releases_at_delta_one_in_a_million(
    epsilon, at_1, at_01, advantage, wrong
):
    risk = risk_of(GaussianEvent(gdp_from_budget(epsilon, 1e-6)))
    assert risk.true_positive_rate(0.01) == pytest.approx(at_1, abs=6e-5)
    assert risk.true_positive_rate(0.001) == pytest.approx(at_01, abs=6e-6)
    assert risk.advantage == pytest.approx(advantage, abs=6e-5)
    assert risk.bayes_risk() == pytest.approx(wrong, abs=6e-5)


@pytest.mark.parametrize(
    ("epsilon", "at_1", "advantage"),
    [(0.3, 0.0135, 0.149), (1.0, 0.0272, 0.462), (3.0, 0.2009, 0.905)],
)
def test_one_pair_alone_says_less(epsilon, at_1, advantage):
    risk = risk_of(ApproximateEvent(epsilon=epsilon, delta=1e-6))
    assert risk.true_positive_rate(0.01) == pytest.approx(at_1, abs=6e-5)
    assert risk.advantage == pytest.approx(advantage, abs=6e-4)


def all_tests(first, second):
    """False and true positives of every test that looks at one outcome."""
    places = range(len(first))
    sets = chain.from_iterable(combinations(places, r) for r in range(len(first) + 1))
    for chosen in map(list, sets):
        yield second[chosen].sum(), first[chosen].sum()


@pytest.mark.parametrize("num_parts", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_test_of_randomized_responses_beats_the_bound(num_parts):
    epsilon = 0.7
    kept = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    outcomes = list(product([0, 1], repeat=num_parts))
    first = np.array([kept ** o.count(1) * (1 - kept) ** o.count(0) for o in outcomes])
    second = first[::-1]
    risk = risk_of(ComposedEvent((PureEvent(epsilon),) * num_parts))
    best: dict[float, float] = {}  # of all tests with one rate of false positives
    for false_positive, true_positive in all_tests(first, second):
        rate = round(min(false_positive, 1.0), 12)
        best[rate] = max(true_positive, best.get(rate, 0.0))
    for rate, true_positive in best.items():
        assert true_positive <= risk.true_positive_rate(rate) + 1e-9
    if num_parts == 1:  # a pure event is attained
        assert risk.true_positive_rate(1.0 - kept) == pytest.approx(kept, rel=1e-9)
    prior, weight = 0.3, 0.7
    least = min(weight * fp + prior * (1.0 - tp) for fp, tp in best.items())
    assert risk.bayes_risk(prior) <= least + 1e-9
    assert risk.advantage >= max(tp - fp for fp, tp in best.items()) - 1e-9


def test_a_sampler_near_the_mechanism_moves_both_rates():
    gdp, eta = 0.5, 1e-3
    risk = risk_of(NearEvent(GaussianEvent(gdp), eta))
    # The worst: eta of the mass is moved to where the test is wrong, on both sides.
    for rate in (0.01, 0.1, 0.5):
        worst = norm.cdf(norm.ppf(rate + eta) + gdp) + eta
        assert risk.true_positive_rate(rate) == pytest.approx(worst, rel=1e-4)


def test_attacks_on_a_mechanism_succeed_as_often_as_the_bound_says():
    mechanism = dps.noise.gaussian_mechanism(BUDGET, sensitivity=1.0)
    stddev = mechanism.noise.stddev
    count = 400_000
    rng = np.random.default_rng(5)
    threshold = stddev * norm.isf(0.1)
    hits = int((1.0 + stddev * rng.standard_normal(count) > threshold).sum())
    bound = float(mechanism.certificate.attack_risk.true_positive_rate(0.1))
    assert_frequency(hits, count, bound)
    half = int((1.0 + 0.5 * stddev * rng.standard_normal(count) > threshold).sum())
    with rejected():  # half of the noise
        assert_frequency(half, count, bound)


def test_bounds_are_monotone_and_blind_without_information():
    blind = risk_of(GaussianEvent(0.0))
    assert blind.true_positive_rate(RATES) == pytest.approx(RATES, abs=1e-12)
    assert blind.advantage == 0.0 and blind.bayes_risk(0.2) == pytest.approx(0.2)
    risk = risk_of(GaussianEvent(0.8))
    fine = risk.true_positive_rate(np.linspace(0.0, 1.0, 50))
    assert (np.diff(fine) >= 0.0).all() and fine[-1] == 1.0
    assert risk.reconstruction(0.1) == risk.true_positive_rate(0.1)
    value = risk.predictive_value(0.01, prior=0.5)
    assert value == pytest.approx(fine_share(risk, 0.01), rel=1e-12)
    # Products of both are below the least double.
    assert risk_of(PureEvent(0.1)).predictive_value(1e-200, prior=1e-200) > 1.1e-200


@pytest.mark.parametrize("prior", [5e-324, 1e-310, 0.1, 1.0 - 2.0**-53])
@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-3, 1.0 - 2.0**-53])
def test_right_answers_are_bounded_where_doubles_end(rate, prior):
    risk = risk_of(GaussianEvent(1.0))
    most = Fraction(float(risk.true_positive_rate(rate)))
    odds = Fraction(rate) / most * (1 - Fraction(prior)) / Fraction(prior)
    value = risk.predictive_value(rate, prior)
    assert math.nextafter(value, 0.0) < 1 / (1 + odds) <= value


@pytest.mark.parametrize("rate", [5e-324, 1e-310, 0.1, 0.3, 0.7, 1.0 - 2.0**-53])
@pytest.mark.parametrize("k", [1, 12, 27, 36])
def test_true_positives_are_rounded_up(rate, k):
    """A pure event is attained; at 5e-324 the nearest double is a third too small."""
    risk, epsilon = (
        risk_of(PureEvent(float(EPSILON_GRID[k]))),
        decimal.Decimal(float(EPSILON_GRID[k])),
    )
    with decimal.localcontext() as context:
        context.prec = 60
        given, growth = decimal.Decimal(rate), epsilon.exp()
        exact = min(growth * given, 1 - (1 - given) / growth)
        most = float(risk.true_positive_rate(rate))
        assert exact <= decimal.Decimal(most)
        assert most <= float(exact) * (1.0 + 1e-9) + 5e-324
        for prior in (5e-324, 0.1, 0.5):
            right = decimal.Decimal(prior) * exact
            share = right / (right + (1 - decimal.Decimal(prior)) * given)
            assert share <= decimal.Decimal(risk.predictive_value(rate, prior))


def fine_share(risk, rate):
    hit = float(risk.true_positive_rate(rate))
    return hit / (hit + rate)


@pytest.mark.parametrize("digits", [100, 483, 591, 991])
@pytest.mark.parametrize("exponent", [-3, -6, -9, -12])
def test_shares_are_rounded_to_the_safe_side(digits, exponent):
    share = float(f"{digits}e{exponent}")
    for near in (math.nextafter(share, 0.0), share, math.nextafter(share, 1.0)):
        least, most = (Fraction(percent(near, up=up)) / 100 for up in (False, True))
        if near == share:
            assert least == most == Fraction(f"{digits}e{exponent}")
        else:
            assert least < Fraction(near) < most
            assert most - least <= Fraction(f"1e{exponent}")


def test_printed_shares_do_not_depend_on_the_callers_decimals():
    with decimal.localcontext() as context:
        context.prec = 1
        assert percent(0.991, up=False) == "99.1"
        assert percent(0.0121, up=True) == "1.21"


def test_certificates_print_what_attackers_can_do():
    for certificate in (final(), calibrate(logistic_facts(), BUDGET).certificate):
        assert str(certificate.attack_risk).splitlines()[0] in certificate.details()
    unproved = dps.privacy.EventCertificate.of(
        mechanism="m", budget=BUDGET, event=None, calibration="paper"
    )
    assert "attacks" not in str(unproved)
    with pytest.raises(ValueError, match="event must be proved"):
        _ = unproved.attack_risk


def test_the_picture_has_the_bound_and_the_blind_guess():
    pytest.importorskip("matplotlib").use("Agg")
    ax = risk_of(GaussianEvent(0.5)).plot()
    labels = [line.get_label() for line in ax.get_lines()]
    assert labels == ["any attack, at most", "guessing"]
    assert ax.get_xscale() == ax.get_yscale() == "log"
