"""Additive mechanisms: certificates and refusals."""

import json
import math

import numpy as np
import pytest

from dpsample import verify
from dpsample.domains import Ball, Box, Simplex, WholeSpace
from dpsample.noise import (
    Noise,
    gaussian_mechanism,
    generalized_gaussian_mechanism,
    k_norm_mechanism,
    laplace_mechanism,
    schatten_gaussian_mechanism,
)
from dpsample.noise.mechanism import norm_of
from dpsample.privacy import Budget, gaussian_epsilon
from dpsample.privacy.accounting.events import GaussianEvent, PureEvent
from dpsample.privacy.certificates.event_certificate import EventCertificate
from tests.support.additive_mechanisms import BUDGET, DIAMOND, MECHANISMS, SHAPE

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@every_mechanism
def test_certificates_prove_the_budget_and_survive_json(name):
    mech, _ = MECHANISMS[name]
    certificate = mech.certificate
    assert certificate.releasable == (name in ("gaussian", "least noisy", "laplace"))
    assert certificate.budget == mech.budget == BUDGET
    assert certificate.epsilon_proved <= BUDGET.epsilon * (1.0 + 1e-9)
    assert EventCertificate.from_json(certificate.to_json()) == certificate
    assert verify(certificate).statement == certificate.statement
    if mech.gdp is None:
        assert isinstance(certificate.event, PureEvent)
        assert certificate.event.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-14)
    else:
        assert certificate.event == GaussianEvent(mech.gdp)
        spent = gaussian_epsilon(BUDGET.delta, mech.gdp)
        assert spent == pytest.approx(BUDGET.epsilon, rel=1e-10)
    inputs = dict(certificate.inputs)
    assert inputs["sensitivity"] == mech.sensitivity
    assert "noise added to a query" in certificate.statement


def test_the_body_is_described_in_full():
    inputs = dict(MECHANISMS["polytope"][0].certificate.inputs)
    assert json.loads(inputs["K"]) == DIAMOND.to_dict()


def test_printed_noise_states_its_true_epsilon_and_is_not_releasable():
    budget = Budget(epsilon=8.0, delta=1e-3)
    mech = gaussian_mechanism(budget, sensitivity=1.0, calibration="paper")
    wanted = math.sqrt(2.0 * math.log(1.25e3)) / 8.0
    assert mech.noise.stddev == pytest.approx(wanted, rel=1e-14)
    assert mech.certificate.epsilon_proved > 8.0
    assert not mech.release([1.0]).releasable
    assert "not a proof" in mech.certificate.statement
    case = {"dim": 1000, "sensitivity": 2.0, "calibration": "paper"}
    mech = generalized_gaussian_mechanism(BUDGET, **case, p=1.5)
    wanted = math.sqrt(2.0 * 2.0 * math.log(1e5)) * 2.0 / 0.9
    assert mech.noise.sigma == pytest.approx(wanted, rel=1e-14)
    assert mech.noise.r == pytest.approx(3.0)
    assert mech.certificate.epsilon_proved < 0.9
    mech = generalized_gaussian_mechanism(BUDGET, **case, p=1.0)
    assert mech.noise.r == pytest.approx(2.0 * math.log(1000.0) + 1.0)
    assert mech.certificate.epsilon_proved > 1.05
    assert not mech.release(np.zeros(1000)).releasable


def test_the_default_exponent_is_the_least_noisy_one():
    case = {"sensitivity": 1.0, "p": 1.0}
    assert generalized_gaussian_mechanism(BUDGET, dim=50, **case).noise.r == 2.0
    assert generalized_gaussian_mechanism(BUDGET, dim=10**5, **case).noise.r > 4.0


# Refusals.


@every_mechanism
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_losses_at_points_that_are_not_finite_are_refused(name, bad):
    mech, dim = MECHANISMS[name]
    value = np.zeros(dim)
    value[-1] = bad
    with pytest.raises(ValueError, match="value must be finite"):
        mech.privacy_loss(np.zeros(dim), value, np.zeros(dim))
    with pytest.raises(ValueError, match="neighbor must be finite"):
        mech.privacy_loss(np.zeros(dim), np.zeros(dim), value)
    with pytest.raises(ValueError, match="outputs must be finite"):
        mech.privacy_loss(value, np.zeros(dim), np.zeros(dim))


@every_mechanism
def test_values_of_a_wrong_shape_are_refused(name):
    mech, dim = MECHANISMS[name]
    for value in (np.zeros((2, dim)), np.zeros(0)):
        with pytest.raises(ValueError, match="value must be of shape"):
            mech.release(value)
    if mech.dim is not None:
        assert mech.dim == dim
        with pytest.raises(ValueError, match=rf"value must be of shape \({dim},\)"):
            mech.release(np.zeros(dim + 1))
    with pytest.raises(ValueError, match="neighbor must be of shape"):
        mech.privacy_loss(np.zeros(dim), np.zeros(dim), np.zeros(dim + 1))
    for outputs in (np.zeros(dim + 1), 0.0, np.zeros((dim, 3 * dim))):
        with pytest.raises(ValueError, match="outputs must be of shape"):
            mech.privacy_loss(outputs, np.zeros(dim), np.zeros(dim))
    with pytest.raises(ValueError, match="value must be an array of numbers"):
        mech.release(["a"] * dim)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_bad_seeds_are_named(seed):
    with pytest.raises(ValueError, match="seed must be an integer >= 0"):
        MECHANISMS["gaussian"][0].release([1.0], seed=seed)


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.nan, math.inf, None])
def test_bad_sensitivities_are_named(sensitivity):
    case = {"sensitivity": sensitivity}
    makers = (
        lambda: gaussian_mechanism(BUDGET, **case),
        lambda: laplace_mechanism(BUDGET, **case),
        lambda: generalized_gaussian_mechanism(BUDGET, dim=3, p=1.5, **case),
        lambda: schatten_gaussian_mechanism(BUDGET, shape=SHAPE, p=1.0, r=3.0, **case),
        lambda: k_norm_mechanism(BUDGET, domain=Box(-1.0, 1.0), dim=2, **case),
    )
    for make in makers:
        with pytest.raises(ValueError, match="sensitivity must be from 1e-60"):
            make()


def test_noise_without_a_guarantee_is_refused():
    case = {"dim": 3, "sensitivity": 1.0, "p": 1.5}
    for r in (1.0, 1.99, math.inf, math.nan):
        with pytest.raises(ValueError, match="r must be"):
            generalized_gaussian_mechanism(BUDGET, **case, r=r)
    with pytest.raises(ValueError, match="shape must be small enough"):
        schatten_gaussian_mechanism(BUDGET, shape=(12, 12), sensitivity=1.0, p=1.0, r=3)
    for domain in (
        Ball(1.0, center=[0.1, 0.0]),
        Box(-1.0, 2.0),
        Simplex(),
        WholeSpace(),
    ):
        with pytest.raises(ValueError, match="domain must be"):
            k_norm_mechanism(BUDGET, domain=domain, dim=2, sensitivity=1.0)
    with pytest.raises(ValueError, match="domain must be a Domain"):
        k_norm_mechanism(BUDGET, domain="ball", dim=2, sensitivity=1.0)
    with pytest.raises(ValueError, match="noise must be one of dpsample.noise"):
        norm_of(Noise())
    with pytest.raises(ValueError, match="budget must be a Budget"):
        laplace_mechanism(1.0, sensitivity=1.0)
