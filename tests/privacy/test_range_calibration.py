"""Calibration by the range: privacy by quadrature of worst neighbors, both checkers."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.domains import Ball, Box, SchattenBall, Simplex, WholeSpace
from dpsample.privacy import Budget, Certificate, Ledger, calibrate, delta_of
from dpsample.privacy.accounting.events import BoundedRangeEvent
from dpsample.problem.facts import PublicFacts
from dpsample.verification.ball_checker import NotProved
from tests.support.tiers import one_in

BUDGET = Budget(epsilon=1.0, delta=1e-6)
RELATIONS = ("replace_one", "zero_out")
REAL = {"linear", "absolute", "quantile", "huber", "squared", "power_four"}
LOSSES = (
    losses.Linear(),
    losses.Logistic(),
    losses.CappedLogistic(0.4),
    losses.CalibratedLogistic(),
    losses.Hinge(),
    losses.SmoothedHinge(0.5),
    losses.Absolute(),
    losses.Quantile(0.75),
    losses.Huber(0.5),
    losses.Squared(),
    losses.PowerFour(),
)


def facts(**changes):
    defaults = {
        "num_records": 1000,
        "dim": 1,
        "loss": losses.Logistic(),
        "domain": Ball(1.5),
        "row_bound": 1.0,
        "row_norm": 2.0,
    }
    return PublicFacts(**(defaults | changes))


def by_range(stated, budget=BUDGET, **options):
    return calibrate(stated, budget, calibration="range", **options)


def log_densities(mechanism, records, others):
    """Log densities on a grid, with and without the change of the first record."""
    stated = mechanism.facts
    body = stated.domain.body(1)
    x = np.linspace(body.lower[0], body.upper[0], 20_001)
    (a, y), (b, z), rest = records, others, stated.num_records - 1
    loss = stated.loss
    common = rest * loss.value(0.3 * x, 1.0)
    center = stated.domain.default_center(1)[0]
    certificate = []
    for row, label in ((a, y), (b, z)):
        changed = loss.value(row * x, label) if label is not None else 0.0
        energy = (common + changed) / stated.num_records
        energy = energy + mechanism.mu * 0.5 * (x - center) ** 2
        value = -mechanism.k * energy
        weight = np.where((x == x[0]) | (x == x[-1]), 0.5, 1.0)
        mass = np.log((weight * np.exp(value - value.max())).sum()) + value.max()
        certificate.append((value - mass, weight))
    return certificate


@one_in(3)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_exact_log_ratios_of_worst_neighbors_stay_in_the_range(loss, relation):
    bound = 2.0 if loss.name in REAL else None
    largest = bound or 1.0
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    for domain in (Ball(1.5), Box([0.5], [2.0])):
        stated = facts(loss=loss, domain=domain, response_bound=bound)
        mechanism = by_range(stated, budget)
        rows, labels = (1.0, -1.0, 0.0, 0.4), (largest, -largest)
        if loss.name in REAL:
            labels += (0.3,)
        records = [(a, y) for a in rows for y in labels]
        others = records if relation == "replace_one" else [(0.0, None)]
        spans, deltas, ratios = [], [], []
        for s in records:
            for t in others:
                (p, weight), (q, _) = log_densities(mechanism, s, t)
                spans.append(np.ptp(p - q))
                ratios.append(np.abs(p - q).max())
                for one, two in ((p, q), (q, p)):
                    excess = np.exp(one) - math.e * np.exp(two)
                    deltas.append(float((weight * np.maximum(excess, 0.0)).sum()))
        # The log ratio's span, epsilon at delta = 0, and delta itself.
        assert max(spans) <= mechanism.range * (1.0 + 1e-11)
        assert max(deltas) <= mechanism.delta_exact
        assert max(ratios) <= mechanism.range * (1.0 + 1e-11)
        if relation == "zero_out" or loss.name in ("logistic", "linear"):
            is_centered = isinstance(domain, Ball)
            assert max(spans) >= (0.99 if is_centered else 0.3) * mechanism.range


def test_a_k_that_is_too_large_is_seen():
    """With twice the k, worst neighbors have an epsilon of almost 2."""
    stated = facts(loss=losses.Logistic(), num_records=10_000)
    mechanism = by_range(stated)
    false = by_range(stated, Budget(epsilon=2.0, delta=1e-6))
    spans = []
    for calibrated in (mechanism, false):
        (p, _), (q, _) = log_densities(calibrated, (1.0, 1.0), (-1.0, 1.0))
        spans.append(np.abs(p - q).max())
    assert spans[0] <= mechanism.range < spans[1]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_certificates_pass_both_checkers_and_their_forgeries_do_not(loss):
    bound = 2.0 if loss.name in REAL else None
    domain = {"logistic": Simplex(), "hinge": Box([0.0, 1.0, -1.0], 2.0)}
    for changes in ({}, {"intercept": True, "row_norm": 1.0}, {"offset_bound": 0.5}):
        stated = facts(
            loss=loss,
            dim=3,
            domain=domain.get(loss.name, Ball(1.5, p=1.0)),
            response_bound=bound,
            **changes,
        )
        for relation in RELATIONS:
            budget = Budget(epsilon=0.7, delta=1e-5, relation=relation)
            mechanism = by_range(stated, budget, sampler_share=0.1)
            certificate = mechanism.certificate.with_sampler(sampler="Proximal()")
            assert (
                certificate.releasable
                and certificate.event.event == BoundedRangeEvent(certificate.range)
            )
            actual = delta_of(certificate.event, epsilon=0.7, relation=relation)
            assert 0.8 * budget.delta < actual <= budget.delta
            assert dps.verify(certificate) and dps.verify(certificate, checker="ball")
            parsed = Certificate.from_json(certificate.to_json())
            assert parsed == certificate and dps.verify(parsed)
    for name, factor in (("k", 1.0 + 1e-8), ("k", 1.2), ("gamma", 1.01)):
        stated_number = getattr(certificate, name)
        false = replace(certificate, **{name: stated_number * factor}, digest="")
        with pytest.raises(ValueError, match=name if name == "gamma" else "k"):
            dps.verify(false)
        with pytest.raises(NotProved, match="is false"):
            dps.verify(false, checker="ball")
    false = replace(certificate, calibration="exact", digest="")
    with pytest.raises(NotProved, match="theorems are not"):
        dps.verify(false, checker="ball")


def test_matrices_and_responses_without_a_bound():
    matrix = SchattenBall(1.0, p=1.0, shape=(2, 3))
    certificate = by_range(facts(dim=6, domain=matrix), p=1.5).certificate
    assert dps.verify(certificate, checker="ball") and dps.verify(certificate)
    free = by_range(facts(loss=losses.Absolute())).certificate
    bounded = by_range(facts(loss=losses.Absolute(), response_bound=1.0)).certificate
    assert free.k < 0.9 * bounded.k
    for certificate in (free, bounded):
        assert dps.verify(certificate) and dps.verify(certificate, checker="ball")


def test_the_choice_is_by_public_facts_and_the_default_stays():
    few, many = facts(dim=2), facts(dim=100)
    auto, exact = (
        [calibrate(x, BUDGET, risk="empirical", calibration=way) for x in (few, many)]
        for way in ("auto", "exact")
    )
    assert [mechanism.calibration for mechanism in auto] == ["range", "exact"]
    assert auto[0] == by_range(few, risk="empirical") and auto[1] == exact[1]
    assert exact[0] == calibrate(few, BUDGET, risk="empirical")
    assert auto[0].k > exact[0].k and auto[0].risk_bound < exact[0].risk_bound
    ridge = calibrate(few, BUDGET, calibration="auto", strong_convexity=0.1)
    assert ridge.calibration == "exact"
    free = facts(loss=losses.Squared(), response_bound=3.0, domain=WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded"):
        calibrate(free, BUDGET, calibration="auto")


def test_what_the_range_does_not_prove_is_refused():
    for options, words in (
        ({"strong_convexity": 0.1}, "strong_convexity must be 0 with"),
        ({"confidence": 0.9}, "confidence must be None with"),
    ):
        with pytest.raises(ValueError, match=words):
            by_range(facts(), **options)
    with pytest.raises(ValueError, match="domain must be bounded"):
        by_range(facts(domain=WholeSpace()))
    with pytest.raises(ValueError, match="response_bound must be finite"):
        by_range(facts(loss=losses.Squared(), response_bound=math.inf))


@pytest.mark.parametrize("risk", ["empirical", "population"])
def test_the_risk_bound_holds_on_average(risk):
    """By quadrature, for records of which all are equal, so both risks are."""
    mechanism = by_range(facts(loss=losses.Hinge()), risk=risk)
    (p, _), _ = log_densities(mechanism, (0.3, 1.0), (0.3, 1.0))
    x = np.linspace(-1.5, 1.5, len(p))
    risks = losses.Hinge().value(0.3 * x, 1.0)
    excess = float((np.exp(p) * risks).sum() / np.exp(p).sum() - risks.min())
    assert 0.0 < excess <= mechanism.risk_bound


def test_releases_are_drawn_certified_and_entered_in_a_ledger():
    data = dps.datasets.logistic(300, 2, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=losses.Logistic(),
        domain=Ball(1.0),
    )
    ledger = Ledger(budget=BUDGET)
    options = {"risk": "empirical", "seed": 1, "progress": False}
    answer = dps.release(problem, BUDGET, calibration="range", ledger=ledger, **options)
    assert answer.certificate.calibration == "range"
    assert dps.verify(answer.certificate)
    assert dps.verify(answer.certificate, checker="ball")
    assert ledger.delta() <= BUDGET.delta
    assert "range = " in answer.certificate.details()
    auto = dps.release(problem, BUDGET, calibration="auto", **options)
    assert np.array_equal(auto.theta, answer.theta)
    assert problem.domain.contains(answer.theta)
