"""Clipped gradient descent: textbook, sensitivity, noise, refusals."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import ClippedGD
from dpsample.optimizers.loop.clipping import clipped_smoothness, descent_sensitivity
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    clipped,
    into_ball,
    logistic,
    logistic_gradients,
    rows_and_labels,
    squared,
)
from tests.support.statistics import assert_law, assert_mean, rejected
from tests.support.tiers import one_in


def linear(rows, response, domain=None):
    return Problem(
        rows,
        response,
        loss=dps.losses.Linear(),
        domain=domain or dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )


def end_of(problem, method):
    return minimize(problem, method, None, seed=0).theta


@pytest.mark.parametrize("threshold", [0.2, math.inf])
def test_without_budget_it_is_textbook_projected_descent(threshold):
    problem = logistic(80, 3, domain=dps.domains.Ball(0.7))
    rows, labels = problem.data.dense, problem.data.response
    w, size, ridge = np.zeros(3), 0.9, 0.05
    for _ in range(25):
        g = clipped(logistic_gradients(rows, labels, w), threshold).mean(axis=0)
        w = into_ball(w - size * (g + ridge * w), 0.7)
    method = ClippedGD(num_steps=25, clip=threshold, step_size=size, ridge=ridge)
    np.testing.assert_allclose(end_of(problem, method), w, rtol=0.0, atol=1e-13)


def test_clipped_gradients_belong_to_a_convex_loss():
    rows, labels = rows_and_labels(30, 2)
    rng = np.random.default_rng(3)
    for _ in range(50):
        v, w = rng.standard_normal((2, 2)) * 3.0
        gaps = clipped(logistic_gradients(rows, labels, v), 0.3)
        gaps -= clipped(logistic_gradients(rows, labels, w), 0.3)
        assert (gaps @ (v - w)).min() >= -1e-15


@one_in(3)
@pytest.mark.parametrize("loss", ["logistic", "power_four"])
@pytest.mark.parametrize(("ridge", "size"), [(0.0, 1.0), (0.3, 1.0), (0.1, 2.1)])
def test_no_neighbor_moves_the_last_iterate_farther_than_declared(loss, ridge, size):
    rng, n, clip, steps = np.random.default_rng(4), 4, 0.4, 7
    worst = 0.0
    for trial in range(25):
        rows, labels = rows_and_labels(n + 1, 2, seed=trial)
        rows *= 0.9 / np.linalg.norm(rows, axis=1)[:, None]
        fields = {"row_bound": 1.0, "domain": dps.domains.WholeSpace()}
        chosen = dps.losses.Logistic()
        if loss == "power_four":
            chosen, labels = dps.losses.PowerFour(), labels * rng.random(n + 1) * 2.0
            fields["response_bound"] = 2.0
        both = [
            Problem(rows[keep], labels[keep], loss=chosen, **fields)
            for keep in (np.arange(n), np.r_[np.arange(n - 1), n])
        ]
        alpha = clipped_smoothness(both[0].facts, clip)
        eta = size / (alpha + ridge)
        method = ClippedGD(num_steps=steps, clip=clip, step_size=eta, ridge=ridge)
        moved = np.linalg.norm(end_of(both[0], method) - end_of(both[1], method))
        bound = 2.0 * descent_sensitivity(
            record_bound=clip,
            num_records=n,
            step_size=eta,
            smoothness=alpha,
            ridge=ridge,
            num_steps=steps,
        )
        worst = max(worst, moved / bound)
    assert 0.1 < worst <= 1.0


@pytest.mark.parametrize(
    ("relation", "shift"), [("replace_one", 2.0), ("zero_out", 1.0)]
)
def test_linear_losses_attain_the_declared_sensitivity(relation, shift):
    n, clip, ridge, eta, steps = 5, 0.5, 0.2, 0.7, 9
    rows = np.tile([0.6, 0.8], (n, 1))
    response = np.ones(n)
    other = response.copy()
    other[2] = -1.0 if relation == "replace_one" else 0.0
    method = ClippedGD(num_steps=steps, clip=clip, step_size=eta, ridge=ridge)
    ends = [end_of(linear(rows, y), method) for y in (response, other)]
    budget = dps.Budget(epsilon=1.0, delta=1e-6, relation=relation)
    recipe = method.recipe(linear(rows, response).facts, budget)
    declared = recipe.phases[0].output_stddev * recipe.event.gdp
    moved = np.linalg.norm(ends[0] - ends[1])
    assert moved == pytest.approx(declared, rel=1e-9)
    total = sum((1.0 - eta * ridge) ** t for t in range(steps))
    assert moved == pytest.approx(shift * eta * clip / n * total, rel=1e-9)


def test_certificate_follows_from_the_recorded_noise():
    problem = logistic(300, 3)
    method = ClippedGD(num_steps=40, clip=0.3, ridge=0.1)
    fit = minimize(problem, method, BUDGET)
    inputs = dict(fit.certificate.inputs)
    moved = 2.0 * descent_sensitivity(
        record_bound=0.3,
        num_records=300,
        step_size=inputs["step_size"],
        smoothness=0.25,
        ridge=0.1,
        num_steps=40,
    )
    event = GaussianEvent(moved / inputs["noise_stddev"])
    spent = epsilon_of(event, delta=BUDGET.delta, relation="replace_one")
    assert spent == pytest.approx(BUDGET.epsilon, rel=1e-9)
    assert fit.certificate.releasable and fit.num_gradients == 300 * 40


def test_noise_in_steps_pays_for_every_step():
    facts = logistic(300, 3).facts
    for budget, shift in ((BUDGET, 2.0), (ZERO_OUT, 1.0)):
        recipe = ClippedGD(num_steps=16, clip=0.3, noise="steps").recipe(facts, budget)
        one = shift * 0.3 / 300 / recipe.phases[0].noise.stddev
        assert math.sqrt(16) * one == pytest.approx(recipe.event.gdp, rel=1e-9)
        assert recipe.phases[0].output_stddev == 0.0


@one_in(2)
@pytest.mark.parametrize("place", ["output", "steps"])
def test_law_of_the_output_on_linear_losses(place):
    rng = np.random.default_rng(8)
    rows, response = rng.uniform(-1.0, 1.0, (50, 1)), rng.uniform(-1.0, 1.0, 50)
    problem = linear(rows, response)
    eta, ridge, steps = 0.5, 0.4, 6
    method = ClippedGD(
        num_steps=steps, clip=1.0, step_size=eta, ridge=ridge, noise=place
    )
    recipe = method.recipe(problem.facts, BUDGET)
    decay = 1.0 - eta * ridge
    mean = eta * (rows[:, 0] @ response) / 50 * sum(decay**t for t in range(steps))
    stddev = recipe.phases[0].output_stddev
    if place == "steps":
        powers = sum(decay ** (2 * t) for t in range(steps))
        stddev = recipe.phases[0].noise.stddev * eta * math.sqrt(powers)
    program = descent.Program(problem, recipe)
    ends = np.array(
        [program.run(np.random.default_rng(seed)).theta[0] for seed in range(2000)]
    )
    assert_law(ends, lambda x: norm.cdf(x, mean, stddev))
    with rejected():  # half of the noise
        assert_law(ends, lambda x: norm.cdf(x, mean, 0.5 * stddev))
    assert_mean(ends, mean, stddev**2, detects=0.3)


def test_clipped_quartic_losses_are_smooth_on_any_domain():
    facts = PublicFacts(
        num_records=10,
        dim=2,
        loss=dps.losses.PowerFour(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.5,
        row_norm=2.0,
        response_bound=math.inf,
    )
    clip = 0.7
    bound = clipped_smoothness(facts, clip)
    worst = 0.0
    for size in np.linspace(0.05, 1.5, 30):
        residual = np.linspace(-3.0, 3.0, 20001)
        slope = np.clip(4.0 * residual**3, -clip / size, clip / size)
        worst = max(worst, np.diff(slope).max() / 3e-4 * size**2)
    assert 0.99 * bound <= worst <= bound


def test_scaling_the_records_and_permuting_coordinates_changes_nothing():
    problem = squared(60, 3)
    rows, y = problem.data.dense, problem.data.response
    method = ClippedGD(num_steps=12, clip=0.3, step_size=0.5, ridge=0.1)
    end = end_of(problem, method)
    order, scale = [2, 0, 1], 4.0
    moved = Problem(
        scale * rows[:, order],
        y,
        loss=dps.losses.Squared(),
        domain=dps.domains.Ball(2.0 / scale),
        row_bound=scale,
        response_bound=1.0,
    )
    scaled = ClippedGD(
        num_steps=12, clip=0.3 * scale, step_size=0.5 / scale**2, ridge=0.1 * scale**2
    )
    np.testing.assert_allclose(end_of(moved, scaled) * scale, end[order], atol=1e-14)
    facts, other = problem.facts, moved.facts
    stddev = method.recipe(facts, BUDGET).phases[0].output_stddev
    again = scaled.recipe(other, BUDGET).phases[0].output_stddev
    assert again * scale == pytest.approx(stddev, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"clip": -1.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"ridge": -0.1}, "ridge"),
        ({"step_size": 0.0}, "step_size"),
        ({"noise": "everywhere"}, "noise"),
    ],
)
def test_bad_numbers_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        ClippedGD(**({"num_steps": 3, "clip": 1.0} | fields))


def test_what_is_not_proved_is_refused():
    facts = logistic(20, 2).facts
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        ClippedGD(num_steps=3, clip=1.0).recipe(facts, BUDGET, "paper")
    with pytest.raises(ValueError, match="step_size must be small enough"):
        ClippedGD(num_steps=3000, clip=1.0, step_size=1e3).recipe(facts, BUDGET)
    hinge = PublicFacts(
        num_records=20,
        dim=2,
        loss=dps.losses.Hinge(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
    )
    with pytest.raises(ValueError, match="curvature"):
        ClippedGD(num_steps=3, clip=1.0, step_size=0.1).recipe(hinge, BUDGET)
    stepwise = ClippedGD(num_steps=3, clip=1.0, step_size=0.1, noise="steps")
    assert stepwise.recipe(hinge, BUDGET).event is not None
    rows = np.ones((3, 1)) * 0.5
    with pytest.raises(ValueError, match="step_size must be given"):
        ClippedGD(num_steps=3, clip=1.0).recipe(linear(rows, np.ones(3)).facts, BUDGET)


def test_the_refused_steps_are_those_whose_sensitivity_overflows():
    problem = logistic(300, 3)  # smoothness 1 / 4

    def recipe(step_size, num_steps):
        method = ClippedGD(
            num_steps=num_steps, clip=0.3, step_size=step_size, ridge=0.5
        )
        return method.recipe(problem.facts, BUDGET)

    # Longer than 2 / (smoothness + 2 ridge) = 1.6, and yet a contraction by 0.725.
    assert recipe(2.3, 10_000).phases[0].output_stddev < 1.0
    assert recipe(2.8, 10).phases[0].output_stddev < np.inf  # expands, a few times
    with pytest.raises(ValueError, match="finite sensitivity") as refusal:
        recipe(2.8, 10_000)
    assert "Above 2 / (smoothness + ridge) = 2.66667 every step multiplies" in str(
        refusal.value
    )


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_steps_contract_up_to_two_over_smoothness_and_ridge(ridge):
    smoothness, limit = 1.0, 2.0 / (1.0 + ridge)

    def growth(step_size):
        few, many = (
            descent_sensitivity(
                record_bound=1.0,
                num_records=1,
                step_size=step_size,
                smoothness=smoothness,
                ridge=ridge,
                num_steps=steps,
            )
            for steps in (400, 401)
        )
        return (many - few) / step_size  # rho^400

    within = growth(0.99 * limit)
    assert within < 0.02 if ridge else within == pytest.approx(1.0, rel=1e-9)
    assert growth(1.01 * limit) > 50.0
