"""`dps.fit`: the advised method, its ball, and other models of the same records."""

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.api.advise import advise, default_radius
from dpsample.api.fit import plan_fit
from dpsample.domains import Ball, Box, WholeSpace

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
DATA = dps.datasets.logistic(2000, 3, seed=1)


def problem(**options):
    options = {
        "loss": dps.losses.Logistic(),
        "domain": WholeSpace(),
        "row_bound": 1.0,
    } | options
    features = options.pop("features", DATA.features)
    return dps.Problem(features, DATA.response, **options)


def test_it_is_the_advised_call():
    given = problem(domain=Ball(3.0))
    advice = advise(given, BUDGET)
    direct = dps.minimize(
        given.with_model(advice.loss, given.domain), advice.choice, BUDGET, seed=5
    )
    np.testing.assert_array_equal(dps.fit(given, BUDGET, seed=5).theta, direct.theta)


def test_the_whole_space_becomes_the_default_ball():
    given = problem(intercept=True)
    answer = dps.fit(given, BUDGET, seed=5)
    in_ball = problem(intercept=True, domain=Ball(1.0)).facts
    radius = default_radius(in_ball, BUDGET, row_divisor=3**0.25)
    assert answer.certificate.facts.domain == Ball(radius)
    assert answer.feature_names[-1] == "intercept"
    assert dps.verify(answer.certificate).checks


@pytest.mark.parametrize("method", ["tail", "objective", "release"])
def test_named_methods_fit_the_own_loss(method):
    answer = dps.fit(problem(domain=Ball(2.0)), BUDGET, method=method, seed=5)
    assert answer.certificate.facts.loss == dps.losses.Logistic()


def test_other_domains_are_drawn_from():
    answer = dps.fit(problem(domain=Box(-1.0, 1.0)), BUDGET, seed=5)
    assert type(answer).__name__ == "Release"


def test_plans_need_no_records():
    facts = problem(domain=Ball(3.0)).facts
    assert "2,000 records, 3 coefficients" in repr(plan_fit(facts, BUDGET))


def test_refusals():
    with pytest.raises(ValueError, match="method must be one of"):
        dps.fit(problem(), BUDGET, method="best")
    with pytest.raises(ValueError, match="problem must be"):
        dps.fit(DATA, BUDGET)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_another_model_of_the_same_records(is_sparse):
    features = sparse.csr_array(DATA.features) if is_sparse else DATA.features
    options = {"features": features, "intercept": True}
    options |= {"offset": 0.1 * DATA.response, "offset_bound": 0.1}
    hinge = {"loss": dps.losses.Hinge(), "domain": Ball(2.0)}
    given, direct = problem(**options), problem(**options, **hinge)
    other = given.with_model(**hinge)
    assert other.facts == direct.facts
    theta = np.array([0.3, -0.2, 0.5, 0.1])
    assert other.risk(theta) == direct.risk(theta)
    assert other.feature_names == direct.feature_names
