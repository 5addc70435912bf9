"""Calibration: published numbers, printed theorems, optimality, norms, bad input."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import gamma as gamma_law

from dpsample import domains, losses
from dpsample.privacy import (
    Budget,
    calibrate,
    closed_form_gdp,
    gaussian_delta,
    gdp_from_budget,
)
from dpsample.privacy.certificates.registry import registry
from dpsample.privacy.certificates.terms import energy_quantile
from dpsample.problem.problem import Problem
from tests.support.public_facts import BUDGET, ZERO_OUT
from tests.support.public_facts import linear_facts as facts


@pytest.mark.parametrize(
    ("dim", "risk", "k", "mu", "k_mu", "bound"),
    [
        (20, "empirical", 1497.0, 0.02672, 40.0, 0.0267),
        (20, "population", 2918.8, 0.0521, 152.06, 0.0521),
        (100, "empirical", None, None, 200.0, 0.0597),
        (100, "population", None, None, None, 0.0746),
    ],
)
def test_published_regression_numbers(dim, risk, k, mu, k_mu, bound):
    mech = calibrate(facts(dim=dim), BUDGET, risk=risk)
    assert round(mech.risk_bound, 4) == bound
    assert k is None or round(mech.k, 1) == k
    assert mu is None or round(mech.mu, len(str(mu)) - 2) == mu
    assert k_mu is None or round(mech.k * mech.mu, 2) == k_mu


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 4.0, math.inf])
@pytest.mark.parametrize("calibration", ["exact", "closed_form"])
def test_k_mu_is_dim_over_range_whatever_the_data_and_the_budget(p, calibration):
    options = {"p": p, "calibration": calibration}
    mech = calibrate(facts(), BUDGET, risk="empirical", **options)
    assert mech.k * mech.mu == pytest.approx(20 / mech.range_bound, rel=1e-13)
    assert mech.risk_bound == pytest.approx(
        2 * 2 * mech.lipschitz * math.sqrt(mech.range_bound * 20) / (2000 * mech.gdp)
    )
    mech = calibrate(facts(), BUDGET, risk="population", **options)
    gap = 0.5 * 2000 * mech.gdp**2
    assert mech.k * mech.mu == pytest.approx((20 + gap) / mech.range_bound, rel=1e-11)


@pytest.mark.parametrize("risk", ["empirical", "population"])
@pytest.mark.parametrize("confidence", [None, 0.95, 0.999])
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT], ids=lambda b: b.relation)
def test_k_minimizes_the_bound_among_the_private_choices(risk, confidence, budget):
    mech = calibrate(facts(), budget, risk=risk, confidence=confidence)
    lipschitz, swap = 1.0, 2.0
    ratio = (mech.diff_lipschitz / (2000 * gdp_from_budget(1.0, 1e-6))) ** 2

    def bound(log_k):
        k = math.exp(log_k)
        mu = ratio * k
        value = mu * 0.5
        gap = lipschitz * swap / (2000 * mu) if risk == "population" else 0.0
        if confidence is None:
            return value + 20 / k + gap
        tail = math.log(1 / (1 - confidence))
        lemma = lipschitz * math.sqrt(2 * tail / (k * mu))
        if risk == "population":
            return value + 20 / k + gap + lemma
        return value + min(energy_quantile(20, 1 - confidence), 20 + k * lemma) / k

    best = minimize_scalar(bound, bounds=(0, 20), method="bounded")
    assert mech.risk_bound == pytest.approx(best.fun, rel=1e-9)
    assert mech.risk_bound == pytest.approx(bound(math.log(mech.k)), rel=1e-12)
    assert mech.mu / mech.k == pytest.approx(ratio, rel=1e-12)


def test_stability_of_the_population_risk_is_about_replaced_records():
    # Under zero_out the papers' G_Delta = G would halve the generalization gap.
    mech = calibrate(facts(), ZERO_OUT)
    gap = 1.0 * 2.0 / (2000 * mech.mu)
    assert mech.risk_bound == pytest.approx(0.5 * mech.mu + 20 / mech.k + gap)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("risk", ["empirical", "population"])
def test_strong_convexity_takes_the_largest_private_k(relation, risk):
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    known = facts(domain=domains.WholeSpace())
    mech = calibrate(known, budget, risk=risk, strong_convexity=0.3)
    t = gdp_from_budget(1.0, 1e-6)
    if relation == "replace_one":
        k = 0.3 * (2000 * t / 2.0) ** 2
    else:
        k = 0.3 * (1 - 1 / 2000) * (2000 * t / 1.0) ** 2
    gap = 1.0 * 2.0 / (2000 * 0.3) if risk == "population" else 0.0
    assert (mech.k, mech.mu) == (pytest.approx(k, rel=1e-11), 0.3)
    assert mech.risk_bound == pytest.approx(20 / k + gap, rel=1e-11)
    assert math.isinf(mech.range_bound)


def test_strong_convexity_with_confidence_bounds_the_energy_and_the_gap():
    known = facts(domain=domains.WholeSpace())
    options = {"strong_convexity": 0.3, "confidence": 0.9}
    mech = calibrate(known, BUDGET, risk="empirical", **options)
    quantile = energy_quantile(20, 1 - 0.9)
    assert mech.risk_bound == pytest.approx(quantile / mech.k)
    mech = calibrate(known, BUDGET, risk="population", **options)
    want = energy_quantile(20, (1 - 0.9) / 2) / mech.k + 2.0 / (2000 * 0.3)
    want += 2.0 * math.sqrt(2 * math.log(2 / (1 - 0.9)) / (mech.k * 0.3))
    assert mech.risk_bound == pytest.approx(want)


@pytest.mark.parametrize("dim", [1, 5, 100, 10_000])
@pytest.mark.parametrize("beta", [0.5, 0.05, 1e-9])
def test_energy_quantile_is_the_chernoff_bound_of_a_gamma_variable(dim, beta):
    q = energy_quantile(dim, beta)
    assert q - dim - dim * math.log(q / dim) == pytest.approx(-math.log(beta), rel=1e-8)
    assert q > dim and gamma_law.sf(q, dim) <= beta


@pytest.mark.parametrize("calibration", ["exact", "closed_form"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_sampler_and_exact_draw_share_delta(calibration, share, epsilon):
    budget = Budget(epsilon=epsilon, delta=1e-7)
    mech = calibrate(facts(), budget, calibration=calibration, sampler_share=share)
    assert mech.delta_exact == pytest.approx((1 - share) * 1e-7, rel=1e-14)
    assert mech.gamma == pytest.approx(share * 1e-7 / (1 + math.exp(epsilon)))
    assert mech.delta_exact + (1 + math.exp(epsilon)) * mech.gamma <= 1e-7
    invert = {"exact": gdp_from_budget, "closed_form": closed_form_gdp}[calibration]
    assert mech.gdp == invert(epsilon, mech.delta_exact)
    assert gaussian_delta(epsilon, mech.gdp) <= mech.delta_exact


def test_a_gamma_that_forgets_e_to_the_epsilon_would_overspend():
    mech = calibrate(facts(), BUDGET, sampler_share=0.5)
    union_bound = 0.5 * BUDGET.delta
    assert mech.delta_exact + (1 + math.e) * union_bound > BUDGET.delta


@given(
    epsilon=st.floats(0.01, 20),
    log_delta=st.floats(-60, -2),
    num_records=st.integers(2, 10**7),
    risk=st.sampled_from(["empirical", "population"]),
)
def test_more_budget_or_more_records_never_hurt(epsilon, log_delta, num_records, risk):
    delta = math.exp(log_delta)

    def bound(e, d, n):
        budget = Budget(epsilon=e, delta=d)
        return calibrate(facts(num_records=n), budget, risk=risk).risk_bound

    value = bound(epsilon, delta, num_records)
    for better in (
        bound(1.5 * epsilon, delta, num_records),
        bound(epsilon, min(2 * delta, 0.9), num_records),
        bound(epsilon, delta, 2 * num_records),
    ):
        assert better <= value


def test_exact_calibration_beats_the_closed_form():
    bounds = [
        calibrate(facts(), BUDGET, risk="empirical", calibration=c).risk_bound
        for c in ("exact", "closed_form")
    ]
    ratio = gdp_from_budget(1.0, 1e-6) / closed_form_gdp(1.0, 1e-6)
    assert bounds[1] / bounds[0] == pytest.approx(ratio)


def test_the_records_are_never_read():
    rng = np.random.default_rng(20_260_101)
    rows = rng.uniform(-0.5, 0.5, (30, 2))
    response = np.where(rows[:, 0] > 0, 1.0, -1.0)
    options = {"loss": losses.Logistic(), "domain": domains.Ball(1.0), "row_bound": 1.0}
    problem = Problem(rows, response, **options)
    other = Problem(-rows / 3, response, **options)
    mech = calibrate(problem, BUDGET)
    assert mech == calibrate(other, BUDGET) == calibrate(problem.facts, BUDGET)
    target = mech.target(problem)
    assert (target.k, target.mu) == (mech.k, mech.mu)
    assert target.regularizer == mech.regularizer
    assert repr(mech).startswith("ExponentialMechanism(k=")
    with pytest.raises(ValueError, match="problem must be the one that was calibrated"):
        mech.target(Problem(rows[:29], response[:29], **options))
    with pytest.raises(ValueError, match="problem must be a Problem, got 3"):
        mech.target(3)


@pytest.mark.parametrize(
    ("risk", "strong_convexity", "number"),
    [
        ("empirical", 0.0, 3),
        ("population", 0.0, 4),
        ("empirical", 0.1, 5),
        ("population", 0.1, 6),
    ],
)
def test_the_theorem_that_is_used_is_named(risk, strong_convexity, number):
    mech = calibrate(facts(), BUDGET, risk=risk, strong_convexity=strong_convexity)
    assert f"CHOICE.{number}" in mech.theorems and "COMPARISON" in mech.theorems
    words = registry().words(mech.theorems)
    assert any(f"Theorem {number} of arXiv" in sentence for sentence in words)
