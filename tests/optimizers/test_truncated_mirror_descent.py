"""Truncated mirror descent: textbook limit, one pass, noise, refusals, printed form."""

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

import dpsample as dps
from dpsample.domains import Ball, Box
from dpsample.numerics.norms import norm
from dpsample.optimizers import TruncatedMirrorDescent
from dpsample.optimizers.loop.advance import into_lp_ball
from dpsample.optimizers.loop.perturbations import GeneralizedGaussianNoise
from dpsample.optimizers.loop.steps import GradientStep, MirrorStep
from dpsample.privacy import epsilon_of, shuffle_local_noise
from dpsample.privacy.accounting.events import ApproximateEvent, GaussianEvent
from dpsample.running import descent
from tests.support.descents import descend
from tests.support.mirror_cases import (
    conjugate_gradient,
    logistic_gradients,
    potential_gradient,
    random_problem,
)
from tests.support.public_facts import BUDGET, ZERO_OUT
from tests.support.statistics import assert_law, rejected

RNG = np.random.default_rng(0)  # for runs that draw nothing
SMALL = dps.Budget(epsilon=0.05, delta=1e-6)


def batch_means(problem, w, size, t, threshold, q):
    rows = slice(t * size, (t + 1) * size)
    g = logistic_gradients(problem, w)[rows]
    return (g * (norm(g, q) <= threshold)[:, None]).sum(axis=0) / size


def textbook(problem, inputs, radius, space):
    """Truncated mirror descent without noise, in NumPy; space is (q, s, kappa).

    Projections on balls of another exponent than the potential's are compiled: they
    have tests of their own.
    """
    q, s, kappa = space
    p = 1.0 if np.isinf(q) else q / (q - 1.0)
    ball = MirrorStep(1.0, exponent=s, kappa=kappa, radius=radius, ball_exponent=p)
    numbers, logs = ball.numbers(problem.dim), np.zeros(problem.dim)
    gamma, steps = 1.0 / inputs["step_size"], inputs["num_steps"]
    size, w, total = problem.num_records // steps, np.zeros(problem.dim), 0.0
    for t in range(steps):
        g = batch_means(problem, w, size, t, inputs["threshold"], q)
        dual = potential_gradient(w, s, kappa) - g / gamma
        w = conjugate_gradient(dual, s, kappa)
        if s == p:
            w = w * min(1.0, radius / max(norm(w, s), 1e-300))
        elif norm(w, p) > radius:
            assert into_lp_ball(numbers, dual, w, logs)
        total = total + w
    return total / steps


@pytest.mark.slow
@pytest.mark.parametrize(("p", "dim"), [(1.5, 20), (1.5, 5), (1.05, 30), (1.0, 30)])
def test_without_a_budget_it_is_textbook_mirror_descent(p, dim):
    radius, threshold = (0.2, 0.3) if p == 1.5 else (0.005, 0.1)
    problem = random_problem(1, 47, dim, domain=Ball(radius, p=p), row_norm=2.0)
    method = TruncatedMirrorDescent(num_steps=6, threshold=threshold, step_size=3.0)
    recipe = method.recipe(problem.facts, None)
    step = recipe.phases[0].step
    space = (np.inf if p == 1.0 else p / (p - 1.0), step.exponent, step.kappa)
    found = descend(problem, recipe, RNG)
    expected = textbook(problem, recipe.inputs, radius, space)
    assert np.abs(found.theta - expected).max() < 1e-12
    assert 0.5 * radius < norm(found.theta, p) <= radius * (1.0 + 1e-12)
    assert found.num_gradients == 6 * 7
    gradients = norm(logistic_gradients(problem, np.zeros(dim)), space[0])
    assert 0 < (gradients > threshold).sum() < 47  # some are truncated


def test_on_a_euclidean_ball_it_is_projected_sgd():
    problem = random_problem(2, 40, 5, domain=Ball(0.2))
    method = TruncatedMirrorDescent(num_steps=8, threshold=0.4, step_size=1.5)
    recipe = method.recipe(problem.facts, None)
    found = descend(problem, recipe, RNG).theta
    expected = textbook(problem, recipe.inputs, 0.2, (2.0, 2.0, 1.0))
    assert np.abs(found - expected).max() < 1e-13


@pytest.mark.parametrize(
    "domain", [Ball(0.5, p=4.0), Ball(0.5, center=(0.1,) * 4, p=1.5), Box(-0.3, 0.2)]
)
def test_other_domains_take_projected_gradient_steps(domain):
    problem = random_problem(3, 60, 4, domain=domain)
    recipe = TruncatedMirrorDescent().recipe(problem.facts, BUDGET)
    assert isinstance(recipe.phases[0].step, GradientStep)
    theta = descend(problem, recipe, np.random.default_rng(1)).theta
    # A mean of iterates that are all inside.
    assert problem.domain.contains(theta + 1e-9 * (domain.default_center(4) - theta))


def test_a_tiny_threshold_never_moves_and_one_batch_is_one_step():
    problem = random_problem(4, 30, 20, domain=Ball(0.3, p=1.5))
    still = TruncatedMirrorDescent(num_steps=5, threshold=1e-9, step_size=1.0)
    assert not descend(problem, still.recipe(problem.facts, None), RNG).theta.any()
    one = TruncatedMirrorDescent(num_steps=1, threshold=9.0, step_size=0.05)
    recipe = one.recipe(problem.facts, None)
    g = logistic_gradients(problem, np.zeros(20)).mean(axis=0)
    step = recipe.phases[0].step
    expected = conjugate_gradient(-0.05 * g, step.exponent, step.kappa)
    assert norm(expected, step.exponent) < 0.3
    found = descend(problem, recipe, RNG).theta
    assert np.abs(found - expected).max() < 1e-14


@pytest.mark.parametrize("scheme", ["disjoint", "shuffle"])
def test_one_pass_reads_no_record_twice(scheme):
    problem = random_problem(5, 50, 3, domain=Ball(0.5), loss=dps.losses.Linear())
    method = TruncatedMirrorDescent(scheme=scheme, num_steps=7, step_size=1e-4)
    recipe = method.recipe(problem.facts, None)
    found = descend(problem, recipe, np.random.default_rng(2))
    assert found.num_gradients == 7 * 7 <= 50
    # One step on linear losses adds up the records of a batch: 49 different ones.
    batches = recipe.phases[0].batches
    numbers = batches.numbers(50, np.random.default_rng(2))
    order = numbers.order if numbers.order.size else np.arange(50)
    assert len(set(order[:49].tolist())) == 49
    assert (scheme == "shuffle") == (numbers.order.size == 50)


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("noise", ["gaussian", "generalized_gaussian"])
def test_noise_of_disjoint_batches_gives_back_the_budget(budget, noise):
    problem = random_problem(6, 700, 20, domain=Ball(1.0, p=1.5), row_norm=3.0)
    method = TruncatedMirrorDescent(noise=noise, threshold=0.25, num_steps=7)
    fit = dps.minimize(problem, method, budget, seed=1)
    scale = dict(fit.certificate.inputs)["noise_scale"]
    shift = 2.0 if budget.relation == "replace_one" else 1.0
    bound, smooth = 0.25 * 20.0 ** (1 / 2 - 1 / 3), 1.0
    if noise == "generalized_gaussian":
        bound, smooth = 0.25, 2.0  # r = q = 3
    event = GaussianEvent(math.sqrt(smooth) * shift * bound / 100 / scale)
    found = epsilon_of(event, delta=budget.delta, relation=budget.relation)
    assert found == pytest.approx(budget.epsilon, rel=1e-6)
    assert fit.certificate.epsilon_proved == pytest.approx(budget.epsilon, rel=1e-9)


def test_noise_of_shuffled_records_is_that_of_the_local_randomizers():
    facts = random_problem(7, 600, 20, domain=Ball(1.0, p=1.5), row_norm=3.0).facts
    local = shuffle_local_noise(SMALL, num_records=600).noise_multiplier
    options = {"scheme": "shuffle", "threshold": 0.25, "num_steps": 60}
    gaussian = TruncatedMirrorDescent(**options).recipe(facts, SMALL)
    bound = 0.25 * 20.0 ** (1 / 2 - 1 / 3)
    expected = local * bound / math.sqrt(10)
    assert gaussian.inputs["noise_scale"] == pytest.approx(expected, rel=1e-12)
    method = TruncatedMirrorDescent(**options, noise="generalized_gaussian")
    (loop,) = method.recipe(facts, SMALL).phases
    assert isinstance(loop.noise, GeneralizedGaussianNoise)
    assert loop.noise.copies == 10
    assert loop.noise.sigma == pytest.approx(math.sqrt(2.0) * local * 0.25, rel=1e-12)
    assert gaussian.event == ApproximateEvent(epsilon=0.05, delta=1e-6)


def test_on_linear_losses_the_output_is_gaussian():
    problem = random_problem(16, 42, 2, domain=Ball(1e6), loss=dps.losses.Linear())
    method = TruncatedMirrorDescent(num_steps=6, threshold=0.7, step_size=0.5)
    recipe = method.recipe(problem.facts, BUDGET)
    g = -problem.data.response[:, None] * problem.data.dense
    g *= (np.linalg.norm(g, axis=1) <= 0.7)[:, None]
    batches = g.reshape(6, 7, 2).mean(axis=1)
    reach = 0.5 * np.arange(6, 0, -1.0) / 6.0  # of batch t in the mean of w_1, ..., w_6
    mean = -reach @ batches
    stddev = recipe.inputs["noise_scale"] * math.sqrt((reach**2).sum())
    program = descent.Program(problem, recipe)
    rng = np.random.default_rng(17)
    draws = np.array([program.run(rng).theta for _ in range(1500)])
    for j in range(2):
        z = (draws[:, j] - mean[j]) / stddev
        assert_law(z, normal.cdf)
        with rejected():  # noise of half the size
            assert_law(2.0 * z, normal.cdf)


@pytest.mark.slow
def test_the_best_scheme_has_the_smaller_bound():
    for budget in (SMALL, BUDGET):
        for noise in ("gaussian", "generalized_gaussian"):
            facts = random_problem(8, 3000, 20, domain=Ball(1.0, p=1.5)).facts
            bounds = {
                word: TruncatedMirrorDescent(scheme=word, noise=noise).risk_bound(
                    facts, budget
                )
                for word in ("disjoint", "shuffle", "best")
            }
            assert bounds["best"] == min(bounds["disjoint"], bounds["shuffle"])


def test_poisson_samples_are_accounted_and_forecast_only():
    problem = random_problem(9, 500, 6, domain=Ball(1.0))
    method = TruncatedMirrorDescent(scheme="poisson", num_steps=5)
    fit = dps.minimize(problem, method, BUDGET, seed=1)
    assert 0.99 < fit.certificate.epsilon_proved <= 1.0 + 1e-9
    inputs = dict(fit.certificate.inputs)
    assert "risk_forecast" in inputs
    assert "risk_bound" not in inputs
    with pytest.raises(ValueError, match="'gaussian' with Poisson samples"):
        TruncatedMirrorDescent(scheme="poisson", noise="generalized_gaussian")


@pytest.mark.parametrize("p", [1.0, 1.05, 1.5, 2.0])
def test_no_gradient_on_the_domain_exceeds_the_record_bound(p):
    problem = random_problem(
        10, 30, 6, domain=Ball(2.0, p=p), loss=dps.losses.Squared(), row_norm=2.0
    )
    rng = np.random.default_rng(11)
    for noise, pick in (("gaussian", 2.0), ("generalized_gaussian", None)):
        method = TruncatedMirrorDescent(noise=noise)
        scales = method._scales(problem.facts)
        space = scales.space
        exponent = space.r if pick is None else pick
        worst = 0.0
        for _ in range(400):
            theta = rng.standard_normal(6) * rng.random(6) ** rng.choice([0, 5])
            theta *= 2.0 / norm(theta, p)
            row = theta / norm(theta, 2.0)
            gradient = (row @ theta + 1.0) * row
            worst = max(worst, norm(gradient, exponent))
        bound = float(scales.record_bound(math.inf))
        assert worst <= bound * (1.0 + 1e-12)
        assert bound <= 3.0 * worst
        step = method.recipe(problem.facts, BUDGET).phases[0].step
        assert isinstance(step, GradientStep if p == 2.0 else MirrorStep)


def test_the_mean_iterate_stays_in_the_domain():
    for p, dim in ((1.5, 20), (1.5, 5), (1.05, 30)):
        problem = random_problem(12, 90, dim, domain=Ball(0.01, p=p))
        recipe = TruncatedMirrorDescent(num_steps=3).recipe(problem.facts, BUDGET)
        theta = descend(problem, recipe, np.random.default_rng(3)).theta
        assert norm(theta, p) <= 0.01 * (1.0 + 1e-12)


def test_permuting_coordinates_permutes_the_output():
    problem = random_problem(13, 80, 20, domain=Ball(0.5, p=1.5))
    order = np.random.default_rng(14).permutation(20)
    other = dps.Problem(
        problem.data.dense[:, order],
        problem.data.response,
        loss=problem.loss,
        domain=problem.domain,
        row_bound=1.0,
    )
    recipe = TruncatedMirrorDescent(num_steps=5).recipe(problem.facts, None)
    one, two = (descend(x, recipe, RNG).theta for x in (problem, other))
    assert np.allclose(one[order], two, rtol=1e-12)


def test_bad_input_is_refused_in_words():
    for change in (
        {"scheme": "epochs"},
        {"noise": "laplace"},
        {"p": 0.5},
        {"p": 3.0},
        {"moment": 0.0},
        {"smoothness": -1.0},
        {"optimal_slope": -1.0},
        {"num_steps": 0},
        {"threshold": 0.0},
        {"step_size": math.nan},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(change))} must be"):
            TruncatedMirrorDescent(**change)
    method = TruncatedMirrorDescent()
    whole = random_problem(1, 20, 3).facts
    with pytest.raises(ValueError, match="NoisyMirrorDescent on the whole space"):
        method.recipe(whole, BUDGET)
    ball = random_problem(1, 20, 3, domain=Ball(1.0)).facts
    with pytest.raises(ValueError, match="l_p balls about 0 only"):
        TruncatedMirrorDescent(p=1.5).recipe(ball, BUDGET)
    with pytest.raises(ValueError, match="num_steps must be <= 20"):
        TruncatedMirrorDescent(num_steps=21).recipe(ball, BUDGET)
    with pytest.raises(ValueError, match="step_size must be < 1/smoothness"):
        TruncatedMirrorDescent(step_size=50.0).recipe(ball, BUDGET)
