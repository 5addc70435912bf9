"""Budgets with delta = 0: who keeps them, who refuses them, and fractions."""

from fractions import Fraction

import numpy as np
import pytest

import dpsample as dps
from dpsample import noise, optimizers, privacy
from dpsample.estimators import PrivateLogisticRegression
from dpsample.privacy import Budget, PureEvent, calibrate
from dpsample.privacy.curves.objective_perturbation import PerturbedObjective
from tests.support.public_facts import logistic_facts
from tests.support.tiers import one_in

PURE = Budget(epsilon=1.0, delta=0.0)
FACTS = logistic_facts()
GD = optimizers.NoisyGD(num_steps=3)
MECHANISMS = {
    "laplace": lambda: noise.laplace_mechanism(PURE, sensitivity=1.0),
    "geometric": lambda: noise.geometric_mechanism(PURE, sensitivity=1),
    "k-norm": lambda: noise.k_norm_mechanism(
        PURE, domain=dps.domains.Ball(2.0, p=1.0), dim=2, sensitivity=1.0
    ),
}


def problem():
    data = dps.datasets.logistic(50, 2, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
    )


def estimate():
    rows, labels = np.eye(2).repeat(20, axis=0), np.tile([-1.0, 1.0], 20)
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=0.0, row_bound=1.0, classes=(-1.0, 1.0)
    )
    return model.fit(rows, labels)


OBJECTIVE = PerturbedObjective(
    lipschitz=1.0, smoothness=0.25, ridge=0.1, num_records=100
)
REFUSALS = {
    "calibrate": lambda: calibrate(FACTS, PURE, calibration="closed_form"),
    "minimize": lambda: dps.minimize(problem(), GD, PURE),
    "paper": lambda: dps.minimize(problem(), GD, PURE, calibration="paper"),
    "intervals": lambda: dps.intervals(problem(), PURE),
    "tune": lambda: dps.tune(problem(), [GD], PURE, score=problem(), cap=0.7),
    "replicate": lambda: dps.replicate(
        dps.minimize, problem(), GD, budget=PURE, num_replicates=2
    ),
    "gaussian": lambda: noise.gaussian_mechanism(PURE, sensitivity=1.0),
    "gaussian, paper": lambda: noise.gaussian_mechanism(
        PURE, sensitivity=1.0, calibration="paper"
    ),
    "generalized": lambda: noise.generalized_gaussian_mechanism(
        PURE, dim=3, sensitivity=1.0, p=1.5
    ),
    "schatten": lambda: noise.schatten_gaussian_mechanism(
        PURE, shape=(2, 2), sensitivity=1.0, p=1.5, r=3.0
    ),
    "poisson": lambda: privacy.poisson_noise_multiplier(
        PURE, sampling_rate=0.1, num_steps=3
    ),
    "allocated": lambda: privacy.allocated_noise_multiplier(PURE, num_steps=3),
    "shuffled": lambda: privacy.shuffle_local_noise(PURE, num_records=100),
    "objective": lambda: privacy.objective_stddev(OBJECTIVE, PURE),
    "approximate": lambda: privacy.approximate_noise(OBJECTIVE, PURE, gap=1e-9),
}


@one_in(3)
@pytest.mark.parametrize("name", MECHANISMS)
def test_purely_private_noise_takes_a_pure_budget(name):  # A5
    certificate = MECHANISMS[name]().certificate
    assert certificate.event == PureEvent(1.0) and certificate.epsilon_proved == 1.0
    assert dps.verify(certificate) and dps.verify(certificate, checker="ball")
    again = privacy.EventCertificate.from_json(certificate.to_json())
    assert again == certificate and again.budget.is_pure
    # Statement and page say that delta is 0, in one word.
    stated = "is 1-differentially private (pure) when one record is replaced"
    assert certificate.statement.startswith("1-DP (pure) under replace_one: ")
    assert stated in certificate.statement and stated in certificate.to_html()
    assert "(pure)" in str(certificate) and "<html" in certificate.to_html()
    assert "2^-80" not in certificate.details()


@pytest.mark.parametrize("name", REFUSALS)
def test_what_has_no_pure_proof_refuses_a_pure_budget_in_words(name):  # A5
    with pytest.raises(
        ValueError, match=r"budget\.delta must be > 0 for .*, got 0\. Give"
    ):
        REFUSALS[name]()


def test_an_estimator_and_a_fit_take_a_pure_budget():
    model = estimate()
    assert model.answer_.certificate.event == PureEvent(1.0)
    answer = dps.fit(problem(), PURE)
    assert answer.certificate.budget.is_pure and answer.certificate.releasable
    assert dps.verify(answer.certificate, checker="ball")


@pytest.mark.parametrize("kind", ["recipe", "risk_bound"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_no_optimizer_divides_by_a_delta_of_zero(kind, calibration):  # A5
    made = [GD, optimizers.DPSGD(sampling_rate=0.1, num_steps=2, step_size=0.1)]
    made += [optimizers.ObjectivePerturbation(tilt="gaussian"), optimizers.AdaSSP()]
    made += [optimizers.ApproximateObjectivePerturbation()]
    for optimizer in made:
        method = getattr(optimizer, kind, optimizer.recipe)
        given = (calibration,) if method == optimizer.recipe else ()
        with pytest.raises(ValueError, match=r"budget\.delta must be > 0 for"):
            method(FACTS, PURE, *given)


def test_fractions_are_numbers():  # F8
    third = Fraction(1, 3)
    budget = Budget(epsilon=third, delta=Fraction(1, 10**6))
    assert (budget.epsilon, budget.delta) == (1 / 3, 1e-6)
    assert Fraction(Budget(epsilon=Fraction(5, 6), delta=0).epsilon) <= Fraction(5, 6)
    mech = noise.laplace_mechanism(budget, sensitivity=third)
    assert dps.verify(mech.certificate)
    assert PureEvent(third).epsilon == 1 / 3
    facts = dps.Problem(
        np.eye(2) / 4,
        [1.0, -1.0],
        row_bound=third,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(Fraction(1, 2)),
    ).facts
    assert (facts.row_bound, facts.domain.radius) == (1 / 3, 0.5)
    assert calibrate(facts, budget).gdp > 0.0
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        Budget(epsilon=Fraction(-1, 3), delta=1e-6)
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        Budget(epsilon=Fraction(10**400), delta=1e-6)


def test_a_pure_budget_may_be_audited():  # A5
    mech = MECHANISMS["laplace"]()
    report = dps.audit(mech, [0.0], [1.0], PURE, num_draws=2000, seed=1, progress=False)
    assert report.budget.delta == 0.0 and report.epsilon_lower <= 1.0
