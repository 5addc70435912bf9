"""What `advise` says: from public facts alone, of any loss, and ready to run."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.advise import default_radius
from dpsample.losses import CalibratedLogistic, CappedLogistic, Huber, Logistic
from dpsample.optimizers import AdaSSP, NoisyGD, ObjectivePerturbation
from tests.support.public_facts import LOGISTIC

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
WIDE = LOGISTIC | {"domain": dps.domains.Ball(10.0)}


def facts(**changes):
    """Public facts of a logistic regression on a large ball."""
    return dps.PublicFacts(**(WIDE | changes))


def clarity(given):
    """Beta n t M/(2 L sqrt d) for replacing a record with slope 1 and norm 1."""
    gdp = dps.privacy.gdp_from_budget(BUDGET.epsilon, BUDGET.delta)
    return 0.25 * given.num_records * gdp * 10.0 / (2.0 * math.sqrt(given.dim))


def test_noise_and_curvature_decide():
    seen = set()
    for n in (100, 1500, 5000, 8000, 9000, 30_000):
        given = facts(num_records=n, dim=20)
        advice, x = dps.advise(given, BUDGET), clarity(given)
        seen.add(is_clear := x >= 1000.0)
        assert advice.loss == (Logistic() if is_clear else CalibratedLogistic())
        boundary_loss = CappedLogistic(0.5) if x < 500.0 else None
        assert advice.choice == NoisyGD(output="scaled", boundary_loss=boundary_loss)
        assert f"{x:.3g}" in advice.reason
    assert len(seen) == 2


def test_few_clear_coefficients_get_a_tilt_that_spends_no_delta():
    # 0.8 (epsilon/t)^2 is 14.1 at (1, 1e-6).
    gdp = dps.privacy.gdp_from_budget(1.0, 1e-6)
    seen = set()
    for dim in (1, 5, 13, 14, 30):
        for n in (50, 300, 2000, 40_000):
            given = facts(num_records=n, dim=dim)
            advice, x = dps.advise(given, BUDGET), clarity(given)
            is_few = dim + 1 < 0.8 / gdp**2
            is_pure = is_few and x >= 400.0
            assert (advice.table[0].method == "pure") == is_pure
            seen.add((is_few, is_pure))
            if is_pure:
                ridge = 2.0 * math.sqrt(dim * (dim + 1)) / (n * 10.0)
                is_clear = 0.25 / ridge >= 1000.0
                assert advice.loss == (Logistic() if is_clear else CalibratedLogistic())
                # The calibrated loss is half as steep, and twice as curved.
                lipschitz, beta = (1.0, 0.25) if is_clear else (0.5, 0.5)
                least = beta / (2.0 * n * math.expm1(0.2))
                wanted = max(0.5 * lipschitz * ridge, least)
                assert advice.choice.tilt == "norm"
                assert advice.choice.ridge == pytest.approx(wanted, rel=1e-12)
                assert "delta = 0" in advice.reason
    assert seen == {(True, True), (True, False), (False, False)}


def test_smooth_real_responses_get_half_the_ridge_that_the_noise_asks_for():
    gdp = dps.privacy.gdp_from_budget(1.0, 1e-6)
    for dim, tilt, num_records in ((5, "norm", 5000), (40, None, 200_000)):
        sizes = {"dim": dim, "num_records": num_records}
        given = facts(loss=Huber(0.5), response_bound=1.0, **sizes)
        choice = dps.advise(given, BUDGET).choice
        size = math.sqrt(dim + 1.0) if tilt else 1.0 / gdp
        wanted = 0.5 * 2.0 * 0.5 * math.sqrt(dim) * size / (num_records * 10.0)
        assert choice.tilt == tilt
        assert choice.ridge == pytest.approx(
            max(wanted, 1.0 / (2.0 * num_records * math.expm1(0.2))), rel=1e-9
        )


def test_a_huber_loss_gets_descent_where_noise_is_large():
    gdp, size = dps.privacy.gdp_from_budget(1.0, 1e-6), math.sqrt(40.0)
    # The curvature is 1 and the slope 0.5, so that x is n t M/root(d).
    for clarity, method in ((1990.0, "tail"), (2010.0, "objective")):
        num_records = round(clarity * size / (gdp * 10.0))
        sizes = {"dim": 40, "num_records": num_records}
        given = facts(loss=Huber(0.5), response_bound=1.0, **sizes)
        assert dps.advise(given, BUDGET).table[0].method == method


@pytest.mark.parametrize("loss", [dps.losses.Hinge(), dps.losses.Quantile(0.9)])
def test_without_delta_a_loss_with_kinks_is_drawn_or_refused_for_its_reason(loss):
    pure = dps.Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(ValueError, match="a loss that is not differentiable"):
        dps.advise(facts(loss=loss, dim=4), pure)
    few = facts(loss=loss, dim=3, response_bound=1.0)
    assert dps.advise(few, pure).choice == "release"


@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0), dps.losses.Squared()])
def test_without_delta_every_smooth_loss_gets_a_pure_tilt(loss):
    pure = dps.Budget(epsilon=1.0, delta=0.0)
    for domain in (dps.domains.Ball(3.0), dps.domains.Box(-1.0, 1.0)):
        given = facts(loss=loss, domain=domain, response_bound=1.0)
        advice = dps.advise(given, pure)
        assert advice.table[0].method == "pure"
        recipe = advice.choice.recipe(replace(given, loss=advice.loss), pure)
        assert recipe.event == dps.privacy.PureEvent(1.0)
    radii = [
        default_radius(facts(dim=5, num_records=n), pure, row_divisor=1e6)
        for n in (1000, 2000)
    ]
    assert radii[1] == pytest.approx(2.0 * radii[0])
    assert radii[0] == pytest.approx(1000 * math.log(2) / (6 * math.sqrt(30)), rel=1e-9)


def test_other_units_of_the_columns_change_nothing():
    known = facts(num_records=1500)
    scaled = replace(known, row_bound=8.0, domain=dps.domains.Ball(1.25))
    one, other = (dps.advise(given, BUDGET) for given in (known, scaled))
    assert one.reason == other.reason and one.choice == other.choice
    ridges = [
        next(row.choice.ridge for row in advice.table if row.method == "objective")
        for advice in (one, other)
    ]
    assert ridges[1] == pytest.approx(64.0 * ridges[0])


@pytest.mark.parametrize("loss", [Huber(1.0), dps.losses.Squared(), dps.losses.Hinge()])
def test_other_losses_are_kept_and_the_first_row_is_the_choice(loss):
    given = facts(loss=loss, response_bound=1.0)
    advice = dps.advise(given, BUDGET)
    wanted = NoisyGD if loss.is_classification else ObjectivePerturbation
    if loss == dps.losses.Squared():
        wanted = AdaSSP
    assert isinstance(advice.choice, wanted)
    assert advice.loss == loss and advice.table[0].choice == advice.choice
    frame = advice.to_frame()
    assert len(frame) == len(advice.table) and set(frame["loss"]) == {loss}
    assert (frame["risk_bound"] > 0.0).all()
    assert advice.reason in repr(advice) and repr(advice).count("\n") > len(frame)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("radius", [1e-3, 1e4])
def test_every_ball_and_budget_leave_epsilon_for_the_noise(radius, epsilon):
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    for loss in (Logistic(), Huber(1.0), dps.losses.Linear()):
        given = facts(
            loss=loss, dim=1, domain=dps.domains.Ball(radius), response_bound=1.0
        )
        assert len(dps.advise(given, budget).table) >= 3


def test_other_domains_get_a_draw():
    for domain in (dps.domains.Box(-1.0, 1.0), dps.domains.Ball(1.0, p=1.0)):
        assert dps.advise(facts(domain=domain), BUDGET).choice == "release"
    squared = facts(
        loss=dps.losses.Squared(), response_bound=1.0, domain=dps.domains.Simplex()
    )
    assert dps.advise(squared, BUDGET).choice == AdaSSP()
    matrices = facts(domain=dps.domains.SchattenBall(1.0, p=1.0, shape=(2, 3)))
    assert dps.advise(matrices, BUDGET).table[0].method == "release"


def test_one_column_of_a_quantile_is_told_of_statistics():
    """Whether it is constant is not a public fact, so that advice cannot choose it."""
    for dim, loss in ((1, dps.losses.Quantile(0.5)), (2, dps.losses.Absolute())):
        advice = dps.advise(facts(dim=dim, loss=loss, response_bound=1.0), BUDGET)
        assert advice.table[0].method == "decaying"
        assert ("dps.stats.quantile" in advice.reason) == (dim == 1)
        assert [row.method for row in advice.table[:3]] == ["decaying", "fixed", "tail"]
        assert advice.table[1].risk_bound < math.inf == advice.table[0].risk_bound


def test_a_problem_is_read_for_its_facts_only():
    rows = np.random.default_rng(1).normal(size=(50, 6)) / 10.0
    made = [
        dps.Problem(
            rows * scale,
            np.ones(50),
            loss=Logistic(),
            domain=WIDE["domain"],
            row_bound=1.0,
        )
        for scale in (1.0, 0.1)
    ]
    one, other = (repr(dps.advise(problem, BUDGET)) for problem in made)
    assert one == other == repr(dps.advise(made[0].facts, BUDGET))


def test_the_advice_runs_within_the_budget():
    given = facts(num_records=5000, dim=20)
    advice = dps.advise(given, BUDGET)
    recipe = advice.choice.recipe(replace(given, loss=advice.loss), BUDGET)
    assert recipe.event.gdp <= dps.privacy.gdp_from_budget(1.0, 1e-6)


def test_noise_in_the_suggested_ball_costs_a_third_of_the_answer_zero():
    hinge = facts(loss=dps.losses.Hinge(), num_records=2000)
    noise = 2.0 / (2000 * dps.privacy.gdp_from_budget(1.0, 1e-6))
    bound = noise * hinge.lipschitz(2.0) * math.sqrt(hinge.dim)
    assert default_radius(hinge, BUDGET) * bound == pytest.approx(1.0 / 3.0)
    huber = facts(loss=dps.losses.Huber(2.0), response_bound=1.0)
    wide = facts(loss=dps.losses.Huber(20.0), response_bound=10.0)
    ratio = default_radius(wide, BUDGET) / default_radius(huber, BUDGET)
    assert ratio == pytest.approx(10.0)  # in units of the response


def test_the_suggested_radius_ends_at_a_hundred_units_of_a_column():
    many = facts(loss=dps.losses.Huber(4.0), response_bound=2.0, num_records=10**9)
    assert default_radius(many, BUDGET, row_divisor=3.0) == 600.0


def test_what_has_no_sensitivity_is_refused():
    huge = facts(loss=dps.losses.Huber(1.0), response_bound=math.inf)
    with pytest.raises(ValueError, match="facts must be of bounded responses"):
        default_radius(huge, BUDGET)
    with pytest.raises(ValueError, match="domain must be bounded"):
        dps.advise(facts(domain=dps.domains.WholeSpace()), BUDGET)
    with pytest.raises(ValueError, match="response_bound must be finite"):
        dps.advise(facts(loss=dps.losses.Squared(), response_bound=math.inf), BUDGET)
