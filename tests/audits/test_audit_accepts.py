"""Audits do not refute our calibrated mechanisms, which proves nothing but must hold.

The probability that any of these tests fails by chance is below 1e-6: every audit has
the level of one check, and the planted bugs are refuted with the same draws.
"""

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample import domains, losses, samplers
from dpsample.audits import neighbors
from dpsample.privacy import (
    PerturbedObjective,
    objective_stddev,
    poisson_noise_multiplier,
)
from tests.support.audit_mechanisms import (
    descend_against,
    perturbed_logistic,
    poisson_descent,
)
from tests.support.statistics import spend
from tests.support.tiers import one_in


def quiet():
    """Options of an audit, whose level is spent."""
    return {"alpha": spend(), "progress": False}


def facts_of(loss, domain, dim, *, row_norm=2.0, num_records=30):
    return dps.PublicFacts(
        num_records=num_records,
        dim=dim,
        loss=loss,
        domain=domain,
        row_bound=1.0,
        row_norm=row_norm,
        response_bound=1.0,
    )


def worst(facts, relation, p):
    return neighbors.worst_case(facts, relation, p=p)


BALL, BOX = domains.Ball(1.0), domains.Box(-1.0, 1.0)
EXACT = {
    "linear, ball": (losses.Linear(), BALL, 10, {}, "replace_one"),
    "linear, ball, zero out": (losses.Linear(), BALL, 10, {}, "zero_out"),
    "linear, box": (losses.Linear(), BOX, 5, {}, "replace_one"),
    "linear, ridge": (
        losses.Linear(),
        domains.WholeSpace(),
        4,
        {"strong_convexity": 0.1},
        "replace_one",
    ),
    "hinge": (losses.Hinge(), BALL, 2, {"risk": "empirical"}, "replace_one"),
    "logistic": (losses.Logistic(), BOX, 1, {}, "replace_one"),
    "absolute, zero out": (losses.Absolute(), BALL, 2, {}, "zero_out"),
    "simplex, entropy": (losses.Linear(), domains.Simplex(), 3, {"p": 1.0}, "zero_out"),
    "l1.5 ball": (
        losses.Linear(),
        domains.Ball(1.0, p=1.5),
        2,
        {"p": 1.5},
        "replace_one",
    ),
}


@one_in(4)
@pytest.mark.parametrize("name", EXACT)
def test_exponential_mechanisms_with_exact_draws(name):
    loss, domain, dim, options, relation = EXACT[name]
    facts = facts_of(loss, domain, dim)
    budget = dps.Budget(epsilon=1.0, delta=1e-3, relation=relation)
    mech = dps.calibrate(facts, budget, **options)
    pair = worst(facts, relation, options.get("p", 2.0))
    report = dps.audit(mech, *pair, budget, num_draws=50_000, seed=21, **quiet())
    assert not report.is_refuted, report
    assert report.gdp_claimed == mech.gdp
    # The audit has power: this claim is a third of the bound that was proved.
    if name.startswith("linear"):
        third = dps.audit(
            mech, *pair, budget, num_draws=50_000, seed=21, gdp=mech.gdp / 3, **quiet()
        )
        assert third.is_refuted


CHAINS = {
    "hit and run": (losses.Hinge(), BALL, 4, samplers.HitAndRun(), "replace_one"),
    "proximal": (losses.Linear(), BALL, 6, samplers.Proximal(), "replace_one"),
    "tilted Gibbs": (losses.Logistic(), BALL, 4, samplers.TiltedGibbs(), "zero_out"),
    "coordinates": (
        losses.Absolute(),
        BOX,
        4,
        samplers.CoordinateHitAndRun(),
        "replace_one",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_exponential_mechanisms_with_chains(name):
    loss, domain, dim, sampler, relation = CHAINS[name]
    facts = facts_of(loss, domain, dim)
    budget = dps.Budget(epsilon=1.0, delta=1e-3, relation=relation)
    mech = dps.calibrate(facts, budget)
    pair = worst(facts, relation, 2.0)
    report = dps.audit(
        mech, *pair, budget, sampler=sampler, num_draws=20_000, seed=22, **quiet()
    )
    assert not report.is_refuted, report
    assert "is not an exact sampler" in report.notes[0]


@pytest.mark.slow
def test_chains_and_exact_draws_find_the_same_loss():
    facts = facts_of(losses.Linear(), BALL, 6)
    budget = dps.Budget(epsilon=1.0, delta=1e-3)
    mech = dps.calibrate(facts, budget)
    pair = worst(facts, "replace_one", 2.0)
    exact, chain = (
        dps.audit(
            mech, *pair, budget, sampler=sampler, num_draws=10_000, seed=23, **quiet()
        )
        for sampler in (samplers.Exact(), samplers.TiltedGibbs())
    )
    assert not exact.is_refuted and not chain.is_refuted
    assert chain.curve.delta_estimate[0] == pytest.approx(
        exact.curve.delta_estimate[0], rel=0.1
    )


@pytest.mark.slow
def test_poisson_descent_with_calibrated_noise():
    budget = dps.Budget(epsilon=1.0, delta=1e-4)
    steps = {"sampling_rate": 1.0 / 6.0, "num_steps": 180}
    multiplier = poisson_noise_multiplier(budget, **steps)

    def report(share):
        return dps.audit(
            poisson_descent(noise_multiplier=share * multiplier, **steps),
            1.0,
            -1.0,
            budget,
            score=descend_against,
            num_draws=60_000,
            seed=24,
            **quiet(),
        )

    assert not report(1.0).is_refuted
    assert report(0.4).is_refuted


NUM_RECORDS, RIDGE = 20, 0.05
FEATURES = np.where(np.arange(NUM_RECORDS) % 2 == 0, 1.0, -0.5)
FEATURES[-1] = 1.0
LABELS = np.ones(NUM_RECORDS)


def audited_objective(relation, share, num_draws=100_000):
    """Audit of a perturbed objective with a share of the noise that is proved."""
    objective = PerturbedObjective(
        lipschitz=1.0,
        smoothness=0.25,
        num_records=NUM_RECORDS,
        ridge=RIDGE,
        relation=relation,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-3, relation=relation)
    stddev = objective_stddev(objective, budget)
    mechanism, log_ratio = perturbed_logistic(
        FEATURES, LABELS, ridge=2.0 * NUM_RECORDS * RIDGE, stddev=share * stddev
    )
    return dps.audit(
        mechanism,
        1.0,
        -1.0,
        budget,
        log_ratio=log_ratio,
        num_draws=num_draws,
        seed=25,
        **quiet(),
    )


@pytest.mark.slow
def test_objective_perturbation_in_one_dimension():
    assert not audited_objective("replace_one", 1.0).is_refuted
    # A flipped label moves the gradient by L, half of what a replacement may.
    assert audited_objective("replace_one", 0.25, num_draws=20_000).is_refuted


@pytest.mark.slow
def test_draws_of_the_perturbed_objective_have_the_density_of_its_log_ratio():
    mechanism, log_ratio = perturbed_logistic(FEATURES, LABELS, ridge=2.0, stddev=3.0)
    rng = np.random.default_rng(26)
    draws = mechanism(1.0, rng, 100_000)[:, None]
    # E_P[Q/P] = 1, and so for every bounded function.
    weights = np.exp(log_ratio(draws))
    other = mechanism(-1.0, rng, 100_000)
    spread = np.sqrt((weights.var() + 1.0) / 100_000)
    assert abs(weights.mean() - 1.0) < norm.isf(spend() / 2) * spread
    gap = (weights * (draws[:, 0] > 0.5)).mean() - (other > 0.5).mean()
    assert abs(gap) < norm.isf(spend() / 2) * spread
