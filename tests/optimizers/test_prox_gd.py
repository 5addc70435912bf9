"""ProxGD: textbook, envelope, noise, bounds."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.optimizers import NoisyGD, ProxGD
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import BUDGET, into_ball, logistic, rows_and_labels


def kinked(loss, num_records=80, dim=3, *, radius=0.5, seed=1):
    rows, labels = rows_and_labels(num_records, dim, seed)
    return Problem(
        rows, labels, loss=loss, domain=dps.domains.Ball(radius), row_bound=1.0
    )


@pytest.mark.parametrize(
    "loss",
    [dps.losses.Hinge(), dps.losses.Absolute(), dps.losses.Quantile(0.3)],
    ids=lambda loss: loss.name,
)
def test_without_budget_it_is_textbook_descent_on_closed_form_envelopes(loss):
    problem = kinked(loss)
    rows, y = problem.data.dense, problem.data.response
    squares, strength, size = (rows**2).sum(axis=1), 3.0, 0.6
    w, total = np.zeros(3), np.zeros(3)
    for _ in range(20):
        s = rows @ w
        nearest = loss.prox(s, y, squares / strength)
        slopes = strength * (s - nearest) / squares
        w = into_ball(w - size * slopes @ rows / len(y), 0.5)
        total += w
    method = ProxGD(num_steps=20, step_size=size, smoothing=strength)
    theta = minimize(problem, method, None, seed=0).theta
    np.testing.assert_allclose(theta, total / 20, rtol=0.0, atol=1e-13)


def test_a_stiff_envelope_is_the_loss_itself():
    problem = logistic(60, 3)
    numbers = {"num_steps": 8, "step_size": 0.4, "risk": "empirical"}
    smooth = minimize(problem, ProxGD(**numbers, smoothing=1e9), BUDGET, seed=2).theta
    plain = minimize(problem, NoisyGD(**numbers), BUDGET, seed=2).theta
    np.testing.assert_allclose(smooth, plain, rtol=0.0, atol=1e-7)


def test_noise_is_that_of_noisy_gd():
    # The envelope has the Lipschitz constant of the loss, not twice that (BFTT-5).
    facts = kinked(dps.losses.Hinge()).facts
    first = ProxGD(num_steps=30).recipe(facts, BUDGET)
    second = NoisyGD(num_steps=30).recipe(facts, BUDGET)
    assert first.inputs["noise_stddev"] == second.inputs["noise_stddev"]
    assert first.event == second.event


def test_no_neighbor_moves_the_mean_gradient_farther_than_declared():
    n, strength, worst = 5, 2.0, 0.0
    for trial in range(40):
        rows, labels = rows_and_labels(n, 2, seed=trial)
        rows[0] /= np.linalg.norm(rows[0]) * (1.0 + 1e-14)
        other = rows.copy(), labels.copy()
        other[1][0] = -labels[0]
        ends = []
        for features, response in ((rows, labels), other):
            problem = Problem(
                features,
                response,
                loss=dps.losses.Hinge(),
                domain=dps.domains.Ball(100.0),
                row_bound=1.0,
            )
            method = ProxGD(num_steps=1, step_size=1.0, smoothing=strength)
            ends.append(minimize(problem, method, None, seed=0).theta)
        worst = max(worst, float(np.linalg.norm(ends[0] - ends[1])))
    assert 0.9 * 2.0 / n < worst <= 2.0 / n * (1.0 + 1e-12)


def test_paths_of_neighbors_stay_close_for_kinked_losses():
    n, steps = 10, 40
    for trial in range(10):
        rows, labels = rows_and_labels(n, 2, seed=trial)
        other = rows.copy()
        other[0] = -rows[0] / np.linalg.norm(rows[0]) * (1.0 - 1e-14)
        ends = []
        for features in (rows, other):
            problem = Problem(
                features,
                labels,
                loss=dps.losses.Hinge(),
                domain=dps.domains.Ball(1.0),
                row_bound=1.0,
            )
            method = ProxGD(num_steps=steps, step_size=0.8)  # smoothing 2/0.8
            ends.append(minimize(problem, method, BUDGET, seed=trial).theta)
        allowed = 2.0 * 0.8 * 0.5 * (steps + 1) / n
        assert np.linalg.norm(ends[0] - ends[1]) <= allowed * (1.0 + 1e-12)


def test_defaults_minimize_the_bound():
    facts = kinked(dps.losses.Hinge(), 2000, 5).facts
    found = ProxGD().recipe(facts, BUDGET).inputs
    size, strength = found["step_size"], found["smoothing"]
    assert strength == pytest.approx(2.0 / size, rel=1e-12)
    steps, sigma = found["num_steps"], found["noise_stddev"]
    square = 1.0 + 5.0 * sigma**2 + 2.0 * steps / 2000
    bound = 0.125 / (size * steps) + 0.5 * size * (1.0 + 1.0 / steps) * square
    bound += 0.5 / strength
    assert found["risk_bound"] == pytest.approx(bound, rel=1e-12)
    for factor in (0.8, 1.25):
        other = ProxGD(step_size=factor * size).risk_bound(facts, BUDGET)
        assert other > bound
    unstable = ProxGD(step_size=size, smoothing=1.01 * strength)
    assert math.isinf(unstable.risk_bound(facts, BUDGET))
    stiff = ProxGD(step_size=size, smoothing=1e9, risk="empirical")
    assert math.isfinite(stiff.risk_bound(facts, BUDGET))


@pytest.mark.parametrize("epsilon", [1.0, 0.05])  # 1/sqrt(n) rules, or the noise
def test_printed_constants(epsilon):
    facts = kinked(dps.losses.Hinge(), 1000, 3, radius=2.0).facts
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    found = ProxGD().recipe(facts, budget, "paper")
    private = math.sqrt(3 * math.log(1e6)) / (1000 * epsilon)
    rate = max(private, 1.0 / math.sqrt(1000))
    printed = 0.5 * min(math.sqrt(1000) / 4.0, 1.0 / (8.0 * private))
    assert found.inputs["smoothing"] == pytest.approx(printed)
    assert found.inputs["printed_risk_bound"] == pytest.approx(24.0 * 2.0 * rate)
    assert found.event is None
    own = ProxGD(smoothing=printed).recipe(facts, budget, "paper")
    assert "printed_risk_bound" not in own.inputs  # of which nothing is printed


@pytest.mark.parametrize("replicates", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_mean_excess_risk_is_below_the_bound(replicates):
    problem = kinked(dps.losses.Absolute(), 800, 4, radius=1.0)
    method = ProxGD(risk="empirical", num_steps=200)
    program = descent.Program(problem, method.recipe(problem.facts, BUDGET))
    risks = [problem.risk(program.run(rng).theta) for rng in streams(0, replicates)]
    best = minimize(
        problem, NoisyGD(risk="empirical", num_steps=20_000), None, seed=0
    ).theta
    excess = np.mean(risks) - problem.risk(best)
    assert excess < method.risk_bound(problem.facts, BUDGET)


@pytest.mark.parametrize("smoothing", [0.0, -1.0, math.inf, math.nan])
def test_malformed_smoothing_is_refused(smoothing):
    with pytest.raises(ValueError, match="smoothing must be a finite number > 0"):
        ProxGD(smoothing=smoothing)


def test_unbounded_domains_need_step_sizes():
    rows, labels = rows_and_labels(20, 2)
    problem = Problem(
        rows,
        labels,
        loss=dps.losses.Hinge(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
    )
    with pytest.raises(ValueError, match="domain must be bounded"):
        minimize(problem, ProxGD(num_steps=3), BUDGET)
    fit = minimize(problem, ProxGD(num_steps=3, step_size=0.1), BUDGET)
    assert fit.certificate.releasable
