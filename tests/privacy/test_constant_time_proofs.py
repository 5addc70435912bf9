"""Plans of constant-time draws: both checkers prove what the planner finds."""

import json

import numpy as np
import pytest

import dpsample as dps
from dpsample.privacy import Certificate
from dpsample.problem.facts import PublicFacts
from dpsample.samplers.proximal import constant_time as timed
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.former_certificates import as_former
from tests.support.tiers import one_in

L, D = dps.losses, dps.domains


def random_mechanism(rng):
    """Facts and a budget of any size."""
    is_free = rng.random() < 0.3
    radius, dim = 10.0 ** rng.uniform(-2, 2), int(rng.integers(1, 60))
    losses = [L.Logistic(), L.SmoothedHinge(0.3), L.Huber(2.0), L.Squared()]
    loss = losses[rng.integers(3 if is_free else 4)]
    center = rng.normal(size=dim) if rng.random() < 0.3 else None
    facts = PublicFacts(
        num_records=int(10.0 ** rng.uniform(0, 5)),
        dim=dim,
        loss=loss,
        domain=D.WholeSpace() if is_free else D.Ball(radius, center=center),
        row_bound=10.0 ** rng.uniform(-1, 1),
        row_norm=float(rng.choice([1.0, 1.5, 2.0, np.inf])),
        response_bound=1.0,
    )
    budget = dps.Budget(
        epsilon=10.0 ** rng.uniform(-1, 1), delta=10.0 ** rng.uniform(-16, -3)
    )
    ridge = 10.0 ** rng.uniform(-2, 1) if is_free else 0.0
    return dps.calibrate(facts, budget, sampler_share=0.1, strong_convexity=ridge)


@one_in(5)
@pytest.mark.parametrize("seed", range(25))
def test_both_checkers_prove_random_plans(seed):
    mechanism = random_mechanism(np.random.default_rng(seed))
    plan = timed.new_plan(mechanism)
    made = mechanism.certificate.with_sampler(sampler=repr(plan))
    names = [line.name for line in dps.verify(made).checks]
    proved = [name for name, _, _ in prove(made.to_json())]
    assert names[-2:] == proved[-2:]
    fewer = timed.ConstantTime(
        **vars(plan) | {"work": plan.work - max(1, plan.work // 99)}
    )
    other = mechanism.certificate.with_sampler(sampler=repr(fewer))
    with pytest.raises(ValueError, match="nothing released"):
        dps.verify(other)
    with pytest.raises(NotProved):
        prove(other.to_json())
    none = timed.ConstantTime(**vars(plan) | {"work": 1})
    with pytest.raises(ValueError):  # fewer than no tries
        dps.verify(mechanism.certificate.with_sampler(sampler=repr(none)))


def test_acceptance_of_nearly_one_is_not_taken_for_one():
    """Where 1 - p is below the last digit of 1 some tries still fail."""
    sizes = timed.PublicSizes(dim=3, ridge=1.0, trace=1e-20, slope=1e-10, radius=np.inf)
    p = timed.acceptance(sizes, 1.0, 1)
    assert p < 1.0 and timed.log_bottom(p, 5, 5) > np.log(1e-9)


def test_a_sampler_that_is_no_whole_plan_is_refused():
    """A bare name, and options that are given twice."""
    facts = PublicFacts(
        num_records=100,
        dim=2,
        loss=L.Logistic(),
        domain=D.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    mechanism = dps.calibrate(facts, budget, sampler_share=0.1)
    plan = repr(timed.new_plan(mechanism))
    twice = plan.replace("num_steps=", "num_steps=1, num_steps=")
    with pytest.raises(ValueError, match="sampler must be made by ConstantTime"):
        mechanism.certificate.with_sampler(sampler=twice)
    whole = mechanism.certificate.with_sampler(sampler=plan).to_json()
    repeated = json.loads(as_former(whole)) | {"sampler": twice}
    for text in (json.dumps(repeated), whole.replace('"work":', '"work": 9, "work":')):
        with pytest.raises(ValueError, match="made by ConstantTime|repeated keys"):
            Certificate.from_json(text)
        with pytest.raises(NotProved, match="is repeated"):
            prove(text)
    made = mechanism.certificate.with_sampler(sampler="ConstantTime()")
    with pytest.raises(ValueError, match="a required (keyword-only )?argument"):
        dps.verify(made)
    for text in (made.to_json(), as_former(made.to_json())):
        with pytest.raises(NotProved, match="parameters of sampler|malformed"):
            prove(text)
    limited = mechanism.certificate.with_sampler(sampler=plan, max_work=5.0)
    with pytest.raises(ValueError, match="max_work must be None"):
        dps.verify(limited)
    with pytest.raises(NotProved, match="no max_work"):
        prove(limited.to_json())
