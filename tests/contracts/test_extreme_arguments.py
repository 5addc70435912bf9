"""Extreme arguments that a check lets pass: a right result, or an error in words."""

import itertools
import math

import numpy as np
import pytest

import dpsample as dps
from dpsample import optimizers as opt
from dpsample import privacy
from dpsample.privacy import Budget, calibrate
from dpsample.privacy.certificates.terms import energy_quantile
from dpsample.problem.facts import PublicFacts
from tests.support.public_facts import logistic_facts
from tests.support.tiers import one_in

SHARES = (5e-324, 2.3e-308, 1e-300, 1e-17, 1e-16, 0.5, 1.0 - 1e-16, 1.0 - 2.0**-53)
SIZES = (5e-324, 1e-300, 1e-17, 1.0, 600.0, 700.0, 800.0, 1e17, 1e300, 1.7e308)
ONE = Budget(epsilon=1.0, delta=1e-6)
REPLACE = "replace_one"


def facts() -> PublicFacts:
    return logistic_facts(dim=3)


def budget(epsilon, delta=1e-6):
    return Budget(epsilon=epsilon, delta=delta)


def attacks(event):
    risk = privacy.AttackRisk(event=event, relation=REPLACE)
    return risk.bayes_risk(1e-300) + risk.predictive_value(1e-300, 1.0 - 2.0**-53)


def recipe(method, given):
    return len(method.recipe(facts(), given, "exact").phases)


FUNCTIONS = {
    "gaussian_delta": (privacy.gaussian_delta, SIZES, SIZES),
    "gaussian_epsilon": (privacy.gaussian_epsilon, SHARES, SIZES),
    "gdp_from_budget": (privacy.gdp_from_budget, SIZES, SHARES),
    "closed_form_gdp": (privacy.closed_form_gdp, SIZES, SHARES),
    "paper_gdp": (privacy.paper_gdp, SIZES, SHARES),
    "delta_of": (
        lambda gdp, e: privacy.delta_of(
            privacy.GaussianEvent(gdp), epsilon=e, relation=REPLACE
        ),
        SIZES,
        SIZES,
    ),
    "attack risk": (lambda gdp: attacks(privacy.GaussianEvent(gdp)), SIZES),
    "attack risk, range": (lambda e: attacks(privacy.BoundedRangeEvent(e)), SIZES),
    "attack risk, pure": (lambda e: attacks(privacy.PureEvent(e)), SIZES),
    "confidence": (
        lambda c, risk, ridge: (
            calibrate(
                facts(), ONE, confidence=c, risk=risk, strong_convexity=ridge
            ).risk_bound
        ),
        SHARES,
        ("population", "empirical"),
        (0.0, 0.1),
    ),
    "sampler_share": (lambda s: calibrate(facts(), ONE, sampler_share=s).k, SHARES),
    "calibrate": (
        lambda e, d, s: calibrate(facts(), budget(e, d), sampler_share=s).k,
        SIZES,
        (1e-300, 1e-6, 1.0 - 2.0**-53),
        (0.0, 0.1),
    ),
    "gaussian noise": (
        lambda e, d: (
            dps.noise.gaussian_mechanism(
                budget(e, d), sensitivity=1.0
            ).certificate.epsilon_proved
        ),
        SIZES,
        (1e-300, 1e-6),
    ),
    "Laplace noise": (
        lambda e: (
            dps.noise.laplace_mechanism(
                budget(e), sensitivity=1.0
            ).certificate.epsilon_proved
        ),
        SIZES,
    ),
    "NoisyGD": (
        lambda e, d: recipe(opt.NoisyGD(), budget(e, d)),
        (1e-300, 1e17, 1e300),
        (1e-300, 1.0 - 2.0**-53),
    ),
    "ObjectivePerturbation": (
        lambda e: recipe(opt.ObjectivePerturbation(), budget(e)),
        (1e-300, 1e-17, 800.0),
    ),
}


@one_in(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_extreme_argument_gives_a_number_or_an_error_in_the_grammar(name):
    function, *grids = FUNCTIONS[name]
    for case in itertools.product(*grids):
        try:
            result = function(*case)
        except ValueError as error:
            assert " must be " in str(error) and ", got " in str(error), case
            continue
        assert not np.isnan(result), case


@pytest.mark.parametrize("confidence", [1e-17, 1e-300, 5e-324])
def test_a_tiny_confidence_has_the_bound_of_its_own_failure_probability(confidence):
    """At log(1/beta) = c the root is dim + sqrt(2 c dim), to first order."""
    made = calibrate(facts(), ONE, confidence=confidence, risk="empirical")
    least = 3.0 + math.sqrt(6.0 * confidence)
    assert least <= made.risk_bound * made.k / 2.0 <= least * (1.0 + 1e-7)
    dps.verify(made.certificate)
    assert energy_quantile(3, 1.0) >= 3.0


def test_printing_ignores_the_floating_point_traps_of_the_caller():
    with np.errstate(all="raise"):
        certificate = dps.noise.gaussian_mechanism(ONE, sensitivity=1.0).certificate
        assert str(certificate) and certificate.to_html()


def test_a_budget_beyond_exponentials_is_refused_by_its_epsilon():
    for epsilon in (699.0, 700.0, 710.0, 800.0):
        with pytest.raises(ValueError, match="^epsilon must be below 6[0-9]+, where"):
            calibrate(facts(), budget(epsilon), sampler_share=0.1)
    assert calibrate(facts(), budget(685.0), sampler_share=0.1).gamma > 0.0
