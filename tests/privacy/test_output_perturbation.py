"""Sensitivity of regularized minimizers, by brute force on tiny data."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import dpsample as dps
from dpsample import losses, regularizers
from dpsample.privacy.curves.objective_perturbation import (
    minimizer_error,
    minimizer_sensitivity,
)
from dpsample.problem.facts import PublicFacts
from tests.support.tiers import one_in

WHOLE = dps.domains.WholeSpace()
RIDGE = 0.4


def facts(loss, *, num_records=4, dim=2, domain=WHOLE, **options):
    return PublicFacts(
        num_records=num_records,
        dim=dim,
        loss=loss,
        domain=domain,
        **({"row_bound": 1.0, "row_norm": 2.0} | options),
    )


def sensitivity(known, **options):
    return minimizer_sensitivity(known, strong_convexity=RIDGE, **options)


def ridge_minimizer(loss, rows, response):
    """Minimizer of the mean loss plus RIDGE |theta|^2 / 2, records of zeros allowed."""

    def value_and_gradient(theta):
        margins = rows @ theta
        slopes = loss.slope(margins, response)
        mean = loss.value(margins, response).mean()
        return (
            mean + 0.5 * RIDGE * theta @ theta,
            rows.T @ slopes / len(rows) + RIDGE * theta,
        )

    start = np.zeros(rows.shape[1])
    options = {"gtol": 1e-12, "maxiter": 1000}
    return minimize(value_and_gradient, start, jac=True, options=options).x


@one_in(3)
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SmoothedHinge(0.5)])
def test_no_replaced_record_moves_the_minimizer_farther(loss, relation):
    rng, worst = np.random.default_rng(1), 0.0
    bound = sensitivity(facts(loss), relation=relation)
    for _ in range(60):
        rows = rng.normal(size=(4, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        response = rng.choice([-1.0, 1.0], 4)
        theta = ridge_minimizer(loss, rows, response)
        rows[0] = -rows[0] if relation == "replace_one" else 0.0
        moved = ridge_minimizer(loss, rows, response) - theta
        worst = max(worst, np.linalg.norm(moved))
    assert 0.3 * bound < worst <= bound * (1 + 1e-6)


@one_in(2)
@pytest.mark.parametrize("p", [1.2, 1.5, 2.0])
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_no_linear_record_moves_the_minimizer_farther_in_other_norms(p, relation):
    dual = p / (p - 1.0)
    known = facts(losses.Linear(), dim=3, row_norm=dual)
    bound = sensitivity(known, p=p, relation=relation)
    rng, worst = np.random.default_rng(2), 0.0

    def minimizer(mean):
        # m r = c |theta|_p^2 / 2 with c = m / (p - 1): the conjugate's gradient.
        size = np.linalg.norm(mean, dual)
        unit = np.sign(mean) * np.abs(mean / size) ** (dual - 1.0)
        return (p - 1.0) / RIDGE * size * unit

    for _ in range(3000):
        rows = rng.normal(size=(4, 3))
        rows /= np.linalg.norm(rows, dual, axis=1)[:, None]
        theta = minimizer(rows.mean(0))
        rows[0] = -rows[0] if relation == "replace_one" else 0.0
        moved = minimizer(rows.mean(0)) - theta
        worst = max(worst, np.linalg.norm(moved, p))
    assert 0.4 * bound < worst <= bound * (1 + 1e-12)


def test_the_reference_regularizer_is_the_one_of_the_brute_force():
    theta = np.array([0.3, -1.0, 0.2])
    value = regularizers.SquaredNorm(p=1.5).value(theta)
    assert value == pytest.approx(np.linalg.norm(theta, 1.5) ** 2 / (2 * 0.5))


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_linear_losses_attain_the_bound(relation):
    row = np.array([0.6, 0.8])
    # J = -<row, theta> / n + RIDGE |theta|^2 / 2 has its minimum at row / (n RIDGE).
    apart = (2.0 if relation == "replace_one" else 1.0) * row / (4 * RIDGE)
    bound = sensitivity(facts(losses.Linear()), relation=relation)
    assert np.linalg.norm(apart) == pytest.approx(bound, rel=1e-12)
    assert np.linalg.norm(apart) <= bound


def test_gaps_and_gradients_of_a_quadratic_attain_the_distance():
    gap, gradient = 0.02, 0.3
    assert math.sqrt(2 * gap / RIDGE) == pytest.approx(
        minimizer_error(strong_convexity=RIDGE, gap=gap), rel=1e-12
    )
    assert gradient / RIDGE == pytest.approx(
        minimizer_error(strong_convexity=RIDGE, gradient_norm=gradient), rel=1e-12
    )


def test_points_within_a_gap_or_a_gradient_norm_are_close():
    rng, loss = np.random.default_rng(4), losses.Logistic()
    rows, response = rng.normal(size=(4, 2)), np.array([1.0, -1.0, 1.0, 1.0])
    best = ridge_minimizer(loss, rows, response)

    def value(theta):
        mean = loss.value(rows @ theta, response).mean()
        return mean + 0.5 * RIDGE * theta @ theta

    def gradient(theta):
        return rows.T @ loss.slope(rows @ theta, response) / 4 + RIDGE * theta

    for theta in best + rng.normal(size=(200, 2)):
        apart = np.linalg.norm(theta - best)
        gap, slope = value(theta) - value(best), np.linalg.norm(gradient(theta))
        assert apart <= minimizer_error(strong_convexity=RIDGE, gap=gap)
        assert apart <= minimizer_error(strong_convexity=RIDGE, gradient_norm=slope)


def test_both_data_sets_err():
    known = facts(losses.Logistic())
    exact = sensitivity(known)
    assert sensitivity(known, gap=0.1) == pytest.approx(
        exact + 2 * math.sqrt(0.2 / RIDGE)
    )
    assert sensitivity(known, gradient_norm=0.1) == pytest.approx(
        exact + 2 * 0.1 / RIDGE
    )


def test_relations_and_norms_come_from_the_facts():
    known = facts(losses.Logistic(), dim=9, row_norm=math.inf)
    assert sensitivity(known) == pytest.approx(2 * 3 / (4 * RIDGE))
    assert sensitivity(known, p=1.0) == pytest.approx(2 / (4 * RIDGE))
    assert sensitivity(known, relation="zero_out") == pytest.approx(3 / (4 * RIDGE))


def test_a_gradient_norm_certifies_nothing_under_constraints():
    known = facts(losses.Logistic(), domain=dps.domains.Ball(1.0))
    assert sensitivity(known, gap=0.1) > 0
    with pytest.raises(ValueError, match="gradient_norm must be 0 on a constrained"):
        sensitivity(known, gradient_norm=0.1)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1"])
@pytest.mark.parametrize("name", ["gap", "gradient_norm", "strong_convexity"])
def test_bad_numbers_are_refused(name, bad):
    options = {"strong_convexity": 1.0, name: bad}
    with pytest.raises(ValueError, match=f"{name} must be"):
        minimizer_error(**options)
    with pytest.raises(ValueError, match=f"{name} must be"):
        minimizer_sensitivity(facts(losses.Logistic()), **options)


def test_bad_facts_are_refused():
    with pytest.raises(ValueError, match="facts must be a PublicFacts"):
        sensitivity(None)
    with pytest.raises(ValueError, match="relation must be one of"):
        sensitivity(facts(losses.Logistic()), relation="add")
    with pytest.raises(ValueError, match="strong_convexity must be"):
        minimizer_error(strong_convexity=0.0)
    squared = facts(losses.Squared(), response_bound=1.0)
    with pytest.raises(ValueError, match="domain must be bounded"):
        sensitivity(squared)
