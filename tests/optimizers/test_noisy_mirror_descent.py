"""Noisy regularized mirror descent: textbook limit, noise, law, risk bound."""

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

import dpsample as dps
from dpsample.domains import Ball
from dpsample.numerics.norms import dual, norm
from dpsample.optimizers import NoisyMirrorDescent
from dpsample.optimizers.algorithms.noisy_mirror_descent import (
    MirrorScales,
    excess_risk,
)
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.running import descent
from tests.support.descents import descend
from tests.support.mirror_cases import (
    AxisLogistic,
    conjugate_gradient,
    logistic_gradients,
    potential_gradient,
    random_problem,
)
from tests.support.public_facts import BUDGET, ZERO_OUT
from tests.support.statistics import assert_law, rejected


def textbook(problem, inputs):
    """Mirror descent without noise, in NumPy."""
    s, kappa = inputs["potential_exponent"], inputs["kappa"]
    gamma, alpha = 1.0 / inputs["step_size"], inputs["ridge"]
    w = np.zeros(problem.dim)
    total, weights = np.zeros(problem.dim), 0.0
    for t in range(1, inputs["num_steps"] + 1):
        g = logistic_gradients(problem, w).mean(axis=0)
        dual_point = (gamma * potential_gradient(w, s, kappa) - g) / (gamma + alpha)
        w = conjugate_gradient(dual_point, s, kappa)
        weight = (1.0 + alpha / gamma) ** t
        total, weights = total + weight * w, weights + weight
    return total / weights


@pytest.mark.parametrize(("p", "dim"), [(1.1, 30), (1.5, 20), (2.0, 4), (1.3, 1)])
def test_without_a_budget_it_is_textbook_mirror_descent(p, dim):
    problem = random_problem(1, 50, dim)
    method = NoisyMirrorDescent(p=p, distance=1.0, num_steps=7)
    recipe = method.recipe(problem.facts, None)
    found = descend(problem, recipe, np.random.default_rng(0))
    assert recipe.event is None
    assert found.num_gradients == 7 * 50
    expected = textbook(problem, recipe.inputs)
    assert np.abs(found.theta - expected).max() < 1e-12


def test_many_steps_reach_the_regularized_minimizer():
    problem = random_problem(2, 40, 6)
    method = NoisyMirrorDescent(p=1.5, distance=1.0, num_steps=3000, ridge=0.05)
    recipe = method.recipe(problem.facts, None)
    w = descend(problem, recipe, np.random.default_rng(0)).theta
    s, kappa = recipe.inputs["potential_exponent"], recipe.inputs["kappa"]
    slope = logistic_gradients(problem, w).mean(axis=0)
    slope += 0.05 * potential_gradient(w, s, kappa)
    assert np.abs(slope).max() < 1e-10


def test_p_1_of_one_dimension_and_p_2_agree():
    problem = random_problem(3, 30, 1)
    thetas = []
    for p in (1.1, 1.6, 2.0):
        method = NoisyMirrorDescent(p=p, distance=1.0)
        thetas.append(dps.minimize(problem, method, BUDGET, seed=5).theta[0])
    assert len(set(thetas)) == 1


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("noise", ["gaussian", "generalized_gaussian"])
def test_recorded_noise_gives_back_the_budget(budget, noise):
    problem = random_problem(4, 400, 20, row_norm=3.0)
    method = NoisyMirrorDescent(p=1.5, distance=1.0, noise=noise, num_steps=9)
    fit = dps.minimize(problem, method, budget, seed=1)
    inputs = dict(fit.certificate.inputs)
    shift = 2.0 if budget.relation == "replace_one" else 1.0
    if noise == "gaussian":
        bound, smooth = problem.facts.lipschitz(2.0), 1.0
        assert bound == pytest.approx(20.0 ** (1 / 2 - 1 / 3))
    else:
        bound, smooth = problem.facts.lipschitz(1.5), 2.0
        assert bound == pytest.approx(1.0)
    gdp = shift * bound / 400 * math.sqrt(9 * smooth) / inputs["noise_scale"]
    event = GaussianEvent(gdp)
    found = epsilon_of(event, delta=budget.delta, relation=budget.relation)
    assert found == pytest.approx(budget.epsilon, rel=1e-6)
    assert fit.certificate.epsilon_proved == pytest.approx(budget.epsilon, rel=1e-9)
    assert fit.certificate.event.gdp == pytest.approx(gdp, rel=1e-9)


@pytest.mark.parametrize("q", [2.0, 3.0, 6.0])
def test_no_neighbor_moves_the_mean_gradient_further_than_declared(q):
    rng = np.random.default_rng(6)
    worst = 0.0
    for seed in range(40):
        problem = random_problem(seed, 5, 4, row_norm=q)
        other = random_problem(seed + 1000, 5, 4, row_norm=q)
        theta = 30.0 * rng.standard_normal(4)
        one = logistic_gradients(problem, theta)
        moved = one[0] - logistic_gradients(other, theta)[0]
        space = NoisyMirrorDescent(p=dual(q), distance=1.0)._geometry(problem.facts)
        limit = 2.0 * space.record_bound(problem.facts) / 5
        worst = max(worst, norm(moved / 5, 2.0) / limit)
    assert 0.3 < worst <= 1.0


def test_scaling_and_permuting_coordinates_carries_over():
    rows = random_problem(7, 60, 8).data
    factor, order = 4.0, np.random.default_rng(8).permutation(8)

    def fit(features, row_bound, distance):
        problem = dps.Problem(
            features,
            rows.response,
            loss=dps.losses.Logistic(),
            domain=dps.domains.WholeSpace(),
            row_bound=row_bound,
        )
        method = NoisyMirrorDescent(p=1.5, distance=distance, num_steps=12)
        recipe = method.recipe(problem.facts, BUDGET)
        theta = descend(problem, recipe, np.random.default_rng(1)).theta
        quiet = method.recipe(problem.facts, None)
        plain = descend(problem, quiet, np.random.default_rng(1)).theta
        return theta, plain, recipe.inputs["risk_bound"]

    theta, plain, risk = fit(rows.dense, 1.0, 1.0)
    scaled, _, same = fit(factor * rows.dense, factor, 1.0 / factor)
    assert same == pytest.approx(risk, rel=1e-12)
    assert np.allclose(factor * scaled, theta, rtol=1e-9)
    _, permuted, _ = fit(rows.dense[:, order], 1.0, 1.0)
    assert np.allclose(permuted, plain[order], rtol=1e-10)


def test_on_linear_losses_with_p_2_the_output_is_gaussian():
    problem = random_problem(9, 30, 3, loss=dps.losses.Linear())
    method = NoisyMirrorDescent(
        p=2.0, distance=1.0, num_steps=6, ridge=0.5, step_size=0.4
    )
    recipe = method.recipe(problem.facts, BUDGET)
    gamma, alpha, steps = 2.5, 0.5, 6
    data = problem.data
    g = -(data.response[:, None] * data.dense).mean(axis=0)
    rho = gamma / (gamma + alpha)
    weights = (1.0 + alpha / gamma) ** np.arange(1, steps + 1)
    weights /= weights.sum()
    # w_(t+1) sums -rho^(t - i) (g + xi_i)/(gamma + alpha) over i <= t.
    reach = np.array(
        [weights[i:] @ rho ** np.arange(steps - i) for i in range(steps)]
    ) / (gamma + alpha)
    mean = -g * reach.sum()
    stddev = recipe.inputs["noise_scale"] * math.sqrt((reach**2).sum())
    program = descent.Program(problem, recipe)
    rng = np.random.default_rng(10)
    draws = np.array([program.run(rng).theta for _ in range(1500)])
    for j in range(3):
        z = (draws[:, j] - mean[j]) / stddev
        assert_law(z, normal.cdf)
        with rejected():
            assert_law(2.0 * z, normal.cdf)


def test_the_bound_is_that_of_the_specification():
    scales = MirrorScales(
        num_records=1000,
        lipschitz=1.0,
        smoothness=0.25,
        potential=2.0,
        distance=1.0,
        variance=1e-3,
    )
    steps, alpha, gamma = 40.0, 0.2, 0.5
    omega = 1.0 + alpha / gamma
    noise = steps * 1e-3 / (2.0 * (gamma - 0.25))
    potential = 2.0 + 2.0 / (1000 * alpha**2)
    inner = potential * steps * (omega - 1.0) / (omega * (omega**steps - 1.0))
    expected = noise + alpha * 2.0 + alpha * potential / (omega**steps - 1.0)
    expected += 2.0 / (1000 * alpha) + 2.0 * math.sqrt(2.0 * (inner + noise / alpha))
    found = excess_risk(np.array(steps), np.array(alpha), np.array(gamma), scales)
    assert float(found) == pytest.approx(expected, rel=1e-12)
    too_long = excess_risk(np.array(steps), np.array(alpha), np.array(0.2), scales)
    assert np.isinf(too_long)


def test_default_numbers_minimize_the_bound():
    facts = random_problem(11, 5000, 10).facts
    method = NoisyMirrorDescent(p=1.5, distance=1.0)
    best = method.risk_bound(facts, BUDGET)
    assert best == method.recipe(facts, BUDGET).inputs["risk_bound"]
    for steps in (1, 3, 300):
        fixed = NoisyMirrorDescent(p=1.5, distance=1.0, num_steps=steps)
        assert fixed.risk_bound(facts, BUDGET) >= best / 1.05 * (1.0 - 1e-12)
    assert method.risk_bound(facts, None) < best


def measured(noise, num_runs, num_records, p=1.5):
    case = AxisLogistic([0.8, -0.5, 0.3, 0.0])
    distance = float(norm(case.optimum, p))
    method = NoisyMirrorDescent(p=p, distance=distance, noise=noise)
    rng = np.random.default_rng(12)
    found = []
    for _ in range(num_runs):
        problem = case.problem(rng, num_records)
        recipe = method.recipe(problem.facts, BUDGET)
        found.append(case.excess(descend(problem, recipe, rng).theta))
    zero = case.excess(np.zeros(4))
    return np.mean(found), recipe.inputs["risk_bound"], zero


def test_measured_excess_risk_is_below_the_bound():
    mean, bound, zero = measured("gaussian", 5, 20_000)
    assert 0.0 < mean < bound
    assert mean < zero  # it learned something


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "generalized_gaussian"])
def test_mean_excess_risk_of_40_runs_is_below_the_bound(noise):
    for num_records in (2_000, 20_000, 100_000):
        mean, bound, _ = measured(noise, 40, num_records)
        assert mean < bound


def test_default_noise_is_gaussian():
    facts = random_problem(14, 200, 5).facts
    recipe = NoisyMirrorDescent(p=1.5, distance=1.0).recipe(facts, BUDGET)
    assert isinstance(recipe.phases[0].noise, GaussianNoise)


def test_bad_numbers_are_refused_in_words():
    good = {"p": 1.5, "distance": 1.0}
    for change in (
        {"p": 1.0},
        {"p": 2.5},
        {"p": math.nan},
        {"distance": 0.0},
        {"distance": math.inf},
        {"num_steps": 0},
        {"num_steps": 2.5},
        {"ridge": -1.0},
        {"step_size": 0.0},
        {"noise": "laplace"},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(change))} must be"):
            NoisyMirrorDescent(**(good | change))


def test_problems_it_cannot_serve_are_refused_in_words():
    method = NoisyMirrorDescent(p=1.5, distance=1.0)
    ball = random_problem(1, 20, 3, domain=Ball(1.0, p=1.5)).facts
    with pytest.raises(ValueError, match="use TruncatedMirrorDescent"):
        method.recipe(ball, BUDGET)
    kinked = random_problem(1, 20, 3, loss=dps.losses.Hinge()).facts
    with pytest.raises(ValueError, match="of bounded curvature"):
        method.recipe(kinked, BUDGET)
    squared = random_problem(1, 20, 3, loss=dps.losses.Squared()).facts
    with pytest.raises(ValueError, match="whose slope grows"):
        method.recipe(squared, BUDGET)
    smooth = random_problem(1, 20, 3).facts
    with pytest.raises(ValueError, match="budget must be given"):
        method.recipe(smooth, None, "paper")
    long = NoisyMirrorDescent(p=1.5, distance=1.0, step_size=100.0)
    with pytest.raises(ValueError, match="step_size must be < 1/beta"):
        long.recipe(smooth, BUDGET)
