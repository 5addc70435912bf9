"""Risk bounds of truncated mirror descent: formulas, moments, measured risk."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.domains import Ball
from dpsample.numerics.norms import norm
from dpsample.optimizers import TruncatedMirrorDescent
from dpsample.optimizers.algorithms.truncated_mirror_descent import (
    TruncatedScales,
    risks,
    truncation,
)
from dpsample.optimizers.loop.perturbations import forecast
from dpsample.optimizers.loop.steps import geometry
from dpsample.privacy import gdp_from_budget
from tests.support.descents import descend
from tests.support.mirror_cases import AxisLogistic, random_problem
from tests.support.public_facts import BUDGET

OPTIMUM = np.array([0.9, -0.6, 0.4, 0.0])


def scales(p, dim, **changes):
    fields = {
        "num_records": 4000,
        "space": geometry(p, dim, "gaussian"),
        "radius": 0.7,
        "diameter": 1.4,
        "smoothness": 0.25,
        "slope": 0.35,
        "moment": 0.5,
        "lipschitz": math.inf,
        "noise_bound": math.inf,
    }
    return TruncatedScales(**(fields | changes))


@pytest.mark.parametrize(("p", "dim"), [(1.5, 20), (2.0, 5)])
def test_the_bound_is_that_of_the_specification_or_below(p, dim):
    known = scales(p, dim)
    slack, steps, gamma, stddev = 3.0, 40, 2.0, 0.02
    threshold = np.array([known.slope + slack])
    found, _ = risks(
        known,
        threshold,
        num_steps=steps,
        noise=stddev,
        copies=1,
        step_size=1.0 / gamma,
    )
    kappa, size = known.space.kappa, 4000 // steps
    bias = 0.25 / slack + known.slope * 0.25 / slack**2
    variance = 4.0 * 0.25 * (1.0 + (known.slope / slack) ** 2)
    bound = float(known.record_bound(threshold[0]))
    noise = (stddev * bound) ** 2 * known.space.mean_square()
    spec = gamma * kappa * 1.4**2 / (2.0 * steps) + 1.4 * bias
    spec += (noise + kappa * variance / size) / (gamma - 0.25)
    assert found[0] <= spec * (1.0 + 1e-12)
    root = math.sqrt(0.25 * (1.0 + (known.slope / slack) ** 2))
    sampling = kappa / size * (root**2 if p == 2.0 else (root + bias) ** 2)
    error = sampling + noise
    if p < 2.0:
        error = (math.sqrt(sampling) + math.sqrt(noise)) ** 2
    ours = gamma * kappa * 0.7**2 / (2.0 * steps) + 1.4 * bias
    ours += error / (2.0 * (gamma - 0.25))
    assert found[0] == pytest.approx(ours, rel=1e-12)


def test_the_step_that_is_chosen_minimizes_the_bound():
    known = scales(1.5, 20)
    threshold = np.array([2.0])
    options = {"num_steps": 25, "noise": 0.02, "copies": 1}
    least, gamma = risks(known, threshold, step_size=None, **options)
    for factor in (0.6, 0.95, 1.05, 2.0):
        other, _ = risks(
            known, threshold, step_size=1.0 / (factor * gamma[0]), **options
        )
        assert other[0] > least[0]
    too_long, _ = risks(known, threshold, step_size=5.0, **options)
    assert math.isinf(too_long[0])


def test_truncation_bounds_hold_for_heavy_tails_and_are_not_idle():
    # Student's t with 2.5 degrees of freedom in 3 coordinates, about a known mean.
    rng = np.random.default_rng(1)
    mean = np.array([0.3, 0.0, -0.1])
    noise = rng.standard_t(2.5, (200_000, 3)) / math.sqrt(3.0 * 5.0)
    moment = 1.0  # E|noise|^2 = 3 * 5/15
    known = scales(2.0, 3, moment=moment, slope=float(np.linalg.norm(mean)))
    gradients = mean + noise
    for threshold in (0.8, 1.5, 4.0, 20.0):
        kept = gradients * (np.linalg.norm(gradients, axis=1) <= threshold)[:, None]
        bias = np.linalg.norm(kept.mean(axis=0) - mean)
        variance = ((kept - kept.mean(axis=0)) ** 2).sum(axis=1).mean()
        limits = truncation(known, np.array([threshold]))
        error = 6.0 * math.sqrt(variance / len(kept))
        assert bias - error <= limits[0][0]
        assert variance * 0.97 <= limits[1][0]
    tight, _ = truncation(known, np.array([1e9]))
    assert tight[0] < 1e-8


def test_no_bias_is_charged_at_the_lipschitz_constant():
    bias, variance = truncation(
        scales(2.0, 3, lipschitz=2.0), np.array([1.9, 2.0, 3.0])
    )
    assert bias[0] > 0.0
    assert bias[1] == bias[2] == 0.0
    assert variance[1] == 0.25
    facts = random_problem(2, 400, 5, domain=Ball(1.0)).facts
    inputs = TruncatedMirrorDescent().recipe(facts, BUDGET).inputs
    assert inputs["threshold"] <= facts.lipschitz(2.0) * (1.0 + 1e-9)


def test_default_numbers_minimize_the_bound():
    facts = random_problem(3, 5000, 20, domain=Ball(1.0, p=1.5)).facts
    best = TruncatedMirrorDescent(moment=0.2).risk_bound(facts, BUDGET)
    for changes in (
        {"num_steps": 2},
        {"num_steps": 900},
        {"threshold": 0.2},
        {"threshold": 0.7},
        {"step_size": 0.05},
    ):
        method = TruncatedMirrorDescent(moment=0.2, **changes)
        assert method.risk_bound(facts, BUDGET) >= best * (1.0 - 1e-12)
    assert TruncatedMirrorDescent(moment=0.2).risk_bound(facts, None) < best
    wider = TruncatedMirrorDescent(moment=0.2, optimal_slope=0.3)
    assert wider.risk_bound(facts, BUDGET) >= best


def test_forecasts_of_one_pass_schemes_are_the_noise_that_is_added():
    gdp = gdp_from_budget(BUDGET.epsilon, BUDGET.delta)
    assert forecast("disjoint", BUDGET, 4000)(40) == pytest.approx(
        2.0 / (gdp * 100), rel=1e-12
    )
    facts = random_problem(4, 4000, 20, domain=Ball(1.0, p=1.5)).facts
    for scheme in ("disjoint", "shuffle"):
        method = TruncatedMirrorDescent(scheme=scheme, num_steps=40)
        known = method._scales(facts)
        recipe = method.recipe(facts, BUDGET)
        bound = float(known.record_bound(recipe.inputs["threshold"]))
        expected = forecast(scheme, BUDGET, 4000)(40) * bound
        assert recipe.inputs["noise_scale"] == pytest.approx(expected, rel=1e-9)


def measured(num_runs, num_records, *, p, seed=5, **options):
    case = AxisLogistic(OPTIMUM)
    domain = Ball(float(norm(OPTIMUM, p)), p=p)
    # Rows are single coordinates: F is 1/4 max_j P(j) = 1/16-smooth in every l_p.
    method = TruncatedMirrorDescent(smoothness=1.0 / 16.0, **options)
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(num_runs):
        problem = case.problem(rng, num_records, domain)
        recipe = method.recipe(problem.facts, BUDGET)
        found.append(case.excess(descend(problem, recipe, rng).theta))
    zero = case.excess(np.zeros(4))
    return np.mean(found), method.risk_bound(problem.facts, BUDGET), zero


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_measured_excess_risk_is_below_the_bound(p):
    mean, bound, zero = measured(5, 20_000, p=p)
    assert 0.0 < mean < bound
    assert mean < zero


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.2, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("scheme", ["disjoint", "shuffle"])
def test_mean_excess_risk_of_40_runs_is_below_the_bound(p, scheme):
    for num_records in (1000, 20_000):
        mean, bound, _ = measured(40, num_records, p=p, scheme=scheme)
        assert mean < bound


def test_a_moment_is_needed_without_a_lipschitz_constant():
    def gradient(row, response, theta, out):
        out[:] = theta - row

    loss = dps.losses.record_gradient(gradient, smoothness=1.0)
    rows = np.random.default_rng(6).standard_t(3.0, (60, 2))
    problem = dps.Problem(
        rows, np.zeros(60), loss=loss, domain=Ball(1.0), row_bound=1e9
    )
    with pytest.raises(ValueError, match="moment must be given"):
        TruncatedMirrorDescent().recipe(problem.facts, BUDGET)
    method = TruncatedMirrorDescent(moment=2.0, num_steps=4)
    fit = dps.minimize(problem, method, BUDGET, seed=1)
    assert fit.certificate.epsilon_proved == pytest.approx(1.0, rel=1e-9)
    quiet = TruncatedMirrorDescent(
        num_steps=1, moment=2.0, threshold=1.5, step_size=0.5
    )
    theta = dps.minimize(problem, quiet, seed=1).theta
    kept = rows * (np.linalg.norm(rows, axis=1) <= 1.5)[:, None]
    assert np.allclose(theta, 0.5 * kept.mean(axis=0), rtol=1e-13)
