"""Calibration against the printed theorems and the table of norms."""

import math

import numpy as np
import pytest

from dpsample import domains, regularizers
from dpsample.privacy import (
    Budget,
    calibrate,
    gaussian_epsilon,
    paper_gdp,
)
from tests.support.public_facts import BUDGET
from tests.support.public_facts import linear_facts as facts

L = math.log(1 / 2e-6)


def test_printed_theorem_3():
    mech = calibrate(facts(), BUDGET, risk="empirical", calibration="paper")
    scale = math.sqrt(8 * 20 * L) / 2000
    assert mech.k == pytest.approx(math.sqrt(20) * 2000 / math.sqrt(L))
    assert mech.mu == pytest.approx(math.sqrt(2 * 20 * L) / (math.sqrt(0.5) * 2000))
    assert mech.risk_bound == pytest.approx(math.sqrt(0.5) * scale)


def test_printed_theorem_4():
    mech = calibrate(facts(), BUDGET, risk="population", calibration="paper")
    c1, c2 = 2 * 0.5 * L / 2000**2, 2000 / (2 * L)
    assert mech.k == pytest.approx(math.sqrt((20 + c2) / c1))
    assert mech.mu == pytest.approx(2 * mech.k * L / 2000**2)
    # The bound is the true one at the printed constants, still below the printed one.
    gap = 2.0 / (2000 * mech.mu)
    assert mech.risk_bound == pytest.approx(0.5 * mech.mu + 20 / mech.k + gap)
    printed = math.sqrt(0.5) * (math.sqrt(8 * 20 * L) / 2000 + math.sqrt(8 / 2000))
    assert mech.risk_bound <= printed


@pytest.mark.parametrize("risk", ["empirical", "population"])
def test_printed_theorems_5_and_6(risk):
    known = facts(domain=domains.WholeSpace())
    options = {"strong_convexity": 0.3, "calibration": "paper", "risk": risk}
    mech = calibrate(known, BUDGET, **options)
    assert mech.k == pytest.approx(2000**2 * 0.3 / (2 * L))
    gap = 2.0 / (2000 * 0.3) if risk == "population" else 0.0
    assert mech.risk_bound == pytest.approx(2 * 20 * L / (2000**2 * 0.3) + gap)


def test_printed_regularizer_of_corollary_3():
    known = facts(domain=domains.Ball(1.0, p=1.0), row_norm=math.inf)
    options = {"p": 1.0, "risk": "empirical"}
    printed = calibrate(known, BUDGET, calibration="paper", **options)
    q = 1 + 1 / math.log(20)
    assert printed.range_bound == pytest.approx(math.e**2 / (2 * (q - 1)))
    assert printed.regularizer.variant == "printed"
    assert calibrate(known, BUDGET, **options).range_bound < printed.range_bound


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("strong_convexity", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_printed_constants_state_the_epsilon_that_is_true(
    relation, strong_convexity, share
):
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    mech = calibrate(
        facts(),
        budget,
        calibration="paper",
        strong_convexity=strong_convexity,
        sampler_share=share,
    )
    t = paper_gdp(1.0, mech.delta_exact)
    kept = 1 - 1 / 2000 if relation == "zero_out" and strong_convexity else 1.0
    factor = 2.0 if relation == "replace_one" else 1.0
    assert mech.gdp == pytest.approx(factor * t / math.sqrt(kept))
    assert mech.epsilon_proved == gaussian_epsilon(mech.delta_exact, mech.gdp)
    assert (mech.epsilon_proved > 1.0) == (relation == "replace_one")
    spent = (1 + math.exp(mech.epsilon_proved)) * mech.gamma
    assert mech.delta_exact + spent <= 1e-6
    final = mech.certificate.with_sampler(sampler="Exact()")
    assert not mech.certificate.releasable and not final.releasable


@pytest.mark.parametrize(
    ("p", "domain", "row_norm", "name", "range_bound"),
    [
        (1.5, domains.Ball(2.0, p=1.5), 3.0, "squared_norm", 4 / (2 * 0.5)),
        (2.0, domains.Ball(2.0), 2.0, "squared_norm", 4 / 2),
        (2.0, domains.Ball(2.0, center=np.ones(20)), 2.0, "squared_norm", 4 / 2),
        (4.0, domains.Ball(2.0, p=4.0), 4 / 3, "squared_norm", 20**0.5 * 4 / 2),
        (math.inf, domains.Box(-1.0, 3.0), 1.0, "squared_norm", 20 * 4 / 2),
        (1.0, domains.Simplex(), math.inf, "entropy", math.log(20)),
        (2.0, domains.Simplex(), 2.0, "squared_norm", (1 - 1 / 20) / 2),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_norm_table(p, domain, row_norm, name, range_bound):
    known = facts(domain=domain, row_norm=row_norm)
    mech = calibrate(known, BUDGET, p=p, risk="empirical")
    assert mech.regularizer.name == name
    assert mech.range_bound == pytest.approx(range_bound, rel=1e-9)
    assert mech.lipschitz == pytest.approx(1.0)
    dim = 19 if isinstance(domain, domains.Simplex) else 20
    assert mech.k * mech.mu == pytest.approx(dim / mech.range_bound)


@pytest.mark.parametrize(
    ("p", "row_norm", "range_bound"),
    [
        (1.5, 3.0, 1 / (2 * 0.5)),
        (1.0, math.inf, 5.0 / 2),
        (2.0, 2.0, 0.5),
        (4.0, 4 / 3, 5**0.5 / 2),
        (math.inf, 1.0, 5 / 2),
    ],
)
def test_schatten_norms_put_the_rank_in_the_range_and_the_size_under_the_root(
    p, row_norm, range_bound
):
    domain = domains.SchattenBall(1.0, p=p, shape=(8, 5))
    known = facts(dim=40, domain=domain, row_norm=row_norm)
    mech = calibrate(known, BUDGET, p=p, risk="empirical")
    assert isinstance(mech.regularizer, regularizers.SchattenSquared)
    assert mech.regularizer.shape == (8, 5)
    assert mech.range_bound == pytest.approx(range_bound)
    assert mech.k * mech.mu == pytest.approx(40 / mech.range_bound)
    assert mech.risk_bound == pytest.approx(
        4 * math.sqrt(40 * mech.range_bound) / (2000 * mech.gdp)
    )
