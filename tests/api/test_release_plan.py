"""The plan that a problem keeps: it saves work and changes nothing."""

import dataclasses
import gc
import itertools
import pickle
import weakref

import numpy as np
import pytest

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def fresh(kind=dps.Problem):
    data = dps.datasets.logistic(200, 2, seed=1)
    return kind(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


def test_a_used_problem_gives_the_same_release_as_a_fresh_one():
    used = fresh()
    first = dps.release(used, BUDGET, seed=1)
    first.nonprivate_diagnostics["non_private_theta"][:] = 0.0  # a copy
    again, other = (dps.release(p, BUDGET, seed=2) for p in (used, fresh()))
    assert again.mechanism is first.mechanism
    np.testing.assert_array_equal(again.theta, other.theta)
    assert again.certificate == other.certificate
    best = [a.nonprivate_diagnostics["non_private_theta"] for a in (again, other)]
    np.testing.assert_array_equal(*best)


@pytest.mark.parametrize(
    "change",
    [
        {"budget": dps.Budget(epsilon=1.0, delta=1e-6, relation="zero_out")},
        {"p": 1.5},
        {"sampler_share": 0.2},
        {"sampler": dps.Proximal(oracle="tangent")},
        {"seed": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_arguments_have_a_plan_of_their_own(change):
    used = fresh()
    arguments = {"budget": BUDGET, "seed": 1}
    first = dps.release(used, **arguments).certificate
    later = dps.release(used, **arguments | change).certificate
    assert later != first
    expected = dps.release(fresh(), **arguments | change).certificate
    assert later.to_dict() == expected.to_dict()
    assert later.releasable == ("seed" in change)


def test_what_is_refused_is_refused_by_a_used_problem():
    used = fresh()
    dps.release(used, BUDGET, p=1.0, seed=1)
    with pytest.raises(ValueError, match="p must be"):
        dps.release(used, BUDGET, p=True, seed=1)


def test_a_pickled_problem_has_no_plan():
    used = fresh()
    dps.release(used, BUDGET, seed=1)
    assert used.plan is not None and b"ReleasePlan" not in pickle.dumps(used)
    assert pickle.loads(pickle.dumps(used)).plan is None


class Contended(dps.Problem):
    """Another thread replaces the plan between the second look at it and the third."""

    plans = itertools.repeat(None)

    @property
    def plan(self):
        return next(self.plans)

    @plan.setter
    def plan(self, value):
        self.made = value


def test_a_plan_that_another_thread_makes_meanwhile_is_not_taken_for_ours():
    """It may be that of a budget a hundred times larger, or of a run with no seed."""
    contended, other = fresh(Contended), dps.Budget(epsilon=100.0, delta=1e-6)
    made = []
    for budget in (BUDGET, other):
        dps.release(contended, budget, seed=1)
        made.append(contended.made)
    contended.plans = itertools.chain(made[:1] * 2, itertools.repeat(made[1]))
    answer = dps.release(contended, BUDGET, seed=1)
    assert answer.mechanism.budget == answer.certificate.budget == BUDGET


class TeamBudget(dps.Budget):
    def __repr__(self):
        return "the team's budget"


def test_a_plan_is_found_by_numbers_and_not_by_their_text():
    """A subclass with a text of its own got the answer of another budget."""
    used = fresh()
    for epsilon in (10.0, 0.1):
        budget = TeamBudget(epsilon=epsilon, delta=1e-6)
        assert dps.release(used, budget, seed=1).mechanism.budget.epsilon == epsilon


def test_other_public_facts_have_a_plan_of_their_own():
    used = fresh()
    first = dps.release(used, BUDGET, seed=1).mechanism
    used.facts = dataclasses.replace(used.facts, row_bound=5.0)
    assert dps.release(used, BUDGET, seed=1).mechanism.gdp == first.gdp
    assert used.plan[1].mechanism.lipschitz == 5.0 * first.lipschitz


def test_a_plan_does_not_keep_the_records_after_their_last_use():
    """In a loop over problems a circle would hold them until the collector comes."""
    used = fresh()
    dps.release(used, BUDGET, seed=1)
    gc.disable()
    try:
        seen = weakref.ref(used)
        del used
        assert seen() is None
    finally:
        gc.enable()
