"""The plan that a problem keeps: it saves work and changes nothing."""

import pickle

import numpy as np
import pytest

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def fresh():
    data = dps.datasets.logistic(200, 2, seed=1)
    return dps.Problem(
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
