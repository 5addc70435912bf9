"""Noisy GD and SGD: textbook, law, stability, noise, printed constants, risk."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.noise.noise import grid_step
from dpsample.optimizers import NoisyGD, NoisySGD, ProxGD
from dpsample.privacy import epsilon_of, gaussian_epsilon, gdp_from_budget
from dpsample.privacy.accounting.events import GaussianEvent, PoissonGaussianEvent
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    clipped,
    into_ball,
    linear,
    logistic,
    logistic_gradients,
    rows_and_labels,
    squared,
)
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in


def recipe(problem, method, budget=BUDGET, calibration="exact"):
    return method.recipe(problem.facts, budget, calibration)


def averages(problem, method, budget, num_runs, seed=0):
    """Outputs of many runs, shape (num_runs, dim)."""
    program = descent.Program(problem, recipe(problem, method, budget))
    return np.array([program.run(rng).theta for rng in streams(seed, num_runs)])


@pytest.mark.parametrize("clip", [None, 0.2])
def test_without_budget_it_is_textbook_averaged_descent(clip):
    problem = logistic(80, 3, domain=dps.domains.Ball(0.3))
    rows, labels = problem.data.dense, problem.data.response
    w, total = np.zeros(3), np.zeros(3)
    for _ in range(30):
        g = logistic_gradients(rows, labels, w)
        g = (g if clip is None else clipped(g, clip)).mean(axis=0)
        w = into_ball(w - 0.7 * g, 0.3)
        total += w
    method = NoisyGD(num_steps=30, step_size=0.7, clip=clip)
    theta = minimize(problem, method, None, seed=0).theta
    np.testing.assert_allclose(theta, total / 30, rtol=0.0, atol=1e-14)


def test_average_of_a_linear_loss_has_its_gaussian_law():
    problem = linear(100, 2, domain=dps.domains.Ball(1e6))
    method = NoisyGD(num_steps=6, step_size=0.5)
    found = averages(problem, method, BUDGET, 2000)
    sigma = recipe(problem, method).inputs["noise_stddev"]
    rows, y = problem.data.dense, problem.data.response
    drift = 0.5 * (y[:, None] * rows).mean(axis=0)
    weights = np.arange(6, 0, -1) / 6.0  # of the noise of each step in the average
    mean = drift * weights.sum()
    sd = 0.5 * sigma * math.sqrt((weights**2).sum())
    for j in range(2):
        assert_law(found[:, j], norm(mean[j], sd).cdf)
    with rejected():  # the average of w_0, ..., w_{T-1}, which the paper bounds
        late = np.arange(5, -1, -1) / 6.0
        sd_late = 0.5 * sigma * math.sqrt((late**2).sum())
        assert_law(found[:, 0], norm(drift[0] * late.sum(), sd_late).cdf)
    correlation = np.corrcoef(found.T)[0, 1]
    assert abs(correlation) < 6.0 / math.sqrt(2000)


@one_in(2)
@pytest.mark.parametrize("loss", ["logistic", "linear"])
def test_neighbors_with_the_same_noise_stay_close(loss):
    n, steps, size = 12, 15, 1.5
    for trial in range(20):
        rows, labels = rows_and_labels(n, 2, seed=trial)
        other = rows.copy()
        other[0] = -rows[0] / np.linalg.norm(rows[0]) * (1.0 - 1e-14)
        chosen = dps.losses.Logistic() if loss == "logistic" else dps.losses.Linear()
        for num_steps in (1, steps):
            method = NoisyGD(num_steps=num_steps, step_size=size)
            ends = []
            for features in (rows, other):
                problem = Problem(
                    features,
                    labels,
                    loss=chosen,
                    domain=dps.domains.Ball(2.0),
                    row_bound=1.0,
                )
                ends.append(minimize(problem, method, BUDGET, seed=trial).theta)
            # |w_t - w_t'| <= 2 L eta t / n, so the averages are (T + 1)/2 steps apart.
            allowed = 2.0 * size * 0.5 * (num_steps + 1) / n
            # Each step's noise ends on a grid, in two coordinates.
            stddev = recipe(problem, method).inputs["noise_stddev"]
            allowed += math.sqrt(2.0) * size * grid_step(stddev) * 0.5 * (num_steps + 1)
            assert np.linalg.norm(ends[0] - ends[1]) <= allowed * (1.0 + 1e-12)


def test_stability_bound_is_attained():
    rows = np.ones((4, 1))
    ends = []
    for first in (1.0, -1.0):
        y = np.array([first, 1.0, -1.0, 1.0])
        problem = Problem(
            rows,
            y,
            loss=dps.losses.Linear(),
            domain=dps.domains.Ball(100.0),
            row_bound=1.0,
        )
        method = NoisyGD(num_steps=7, step_size=0.5)
        ends.append(minimize(problem, method, BUDGET, seed=1).theta[0])
    assert ends[0] - ends[1] == pytest.approx(2.0 * 0.5 * 4.0 / 4.0, rel=1e-12)


@pytest.mark.parametrize(("budget", "shift"), [(BUDGET, 2.0), (ZERO_OUT, 1.0)])
def test_full_batch_noise_is_the_exact_gaussian_one(budget, shift):
    problem = logistic(200, 3)
    found = recipe(problem, NoisyGD(num_steps=50), budget)
    gdp = gdp_from_budget(1.0, 1e-6)
    sigma = found.inputs["noise_stddev"]
    assert sigma == pytest.approx(shift * math.sqrt(50) / (200 * gdp), rel=1e-12)
    assert found.event == GaussianEvent(gdp)
    fit = minimize(problem, NoisyGD(num_steps=50), budget)
    assert fit.certificate.releasable and fit.num_gradients == 50 * 200
    again = gaussian_epsilon(1e-6, shift * math.sqrt(50) / (200 * sigma))
    assert again == pytest.approx(1.0, rel=1e-9)


def test_poisson_noise_is_what_the_accountant_proves():
    problem = logistic(400, 3)
    method = NoisySGD(num_steps=20, batches="poisson", batch_size=40)
    found = recipe(problem, method)
    sigma = found.inputs["noise_stddev"]
    event = PoissonGaussianEvent(
        sampling_rate=0.1, noise_multiplier=sigma * 40, num_steps=20
    )
    spent = epsilon_of(event, delta=1e-6, relation="replace_one")
    assert 0.99 <= spent <= 1.0 + 1e-9
    fit = minimize(problem, method, BUDGET)
    assert fit.certificate.releasable and fit.num_gradients < 20 * 80


def test_printed_constants_and_what_is_true_of_them():
    problem = logistic(1000, 3, domain=dps.domains.Ball(1.0))
    log_term = math.log(1e6)
    found = recipe(problem, NoisySGD(), calibration="paper")
    num_steps = min(1000 // 8, int(1000**2 / (32 * 3 * log_term)))
    assert found.inputs["num_steps"] == num_steps
    assert found.inputs["batch_size"] == math.ceil(1000 * math.sqrt(0.25 / num_steps))
    sigma = math.sqrt(8.0 * num_steps * log_term) / 1000
    assert found.inputs["noise_stddev"] == pytest.approx(sigma)
    assert found.inputs["step_size"] == pytest.approx(1.0 / math.sqrt(num_steps))
    rate = max(math.sqrt(3 * log_term) / 1000, 1.0 / math.sqrt(1000))
    assert found.inputs["printed_risk_bound"] == pytest.approx(10.0 * rate)
    assert found.event is None and found.kind == "steps/with_replacement"
    full = recipe(problem, NoisyGD(), calibration="paper")
    gdp = 2.0 * math.sqrt(num_steps) / (1000 * sigma)
    assert full.event.gdp == pytest.approx(gdp)
    fit = minimize(problem, NoisyGD(), BUDGET, calibration="paper")
    assert not fit.certificate.releasable and fit.certificate.epsilon_proved < 1.0


def test_no_printed_bound_where_its_conditions_fail():
    """Theorem 3.2 asks for beta up to epsilon n / (8 sqrt(d log(1/delta))) L/M."""
    problem = logistic(1000, 3, domain=dps.domains.Ball(1.0))
    limit = 1000.0 / (8.0 * math.sqrt(3 * math.log(1e6)))
    for epsilon, is_stated in ((0.126 / limit, True), (0.124 / limit, False)):
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        found = NoisyGD().recipe(problem.facts, budget, "paper")  # beta = 1/4, usually
        assert ("printed_risk_bound" in found.inputs) == is_stated
    for own in (
        NoisyGD(num_steps=7),
        NoisyGD(step_size=0.1),
        NoisySGD(batches="poisson"),
        NoisySGD(batches="poisson", batch_size=1),
    ):
        found = own.recipe(problem.facts, BUDGET, "paper")
        assert "printed_risk_bound" not in found.inputs
    # Algorithm 1 takes epsilon up to 1 and delta up to 1/n^2.
    for epsilon, delta, is_stated in (
        (1.0, 1e-6, True),
        (1.01, 1e-6, False),
        (1.0, 1.01e-6, False),
    ):
        budget = dps.Budget(epsilon=epsilon, delta=delta)
        for method in (NoisyGD(), NoisySGD(), NoisySGD(batch_size=9), ProxGD()):
            found = method.recipe(problem.facts, budget, "paper")
            assert ("printed_risk_bound" in found.inputs) == is_stated


def test_batches_with_replacement_are_not_offered_as_proved():
    problem = logistic(100, 2)
    method = NoisySGD(num_steps=3, batches="with_replacement", batch_size=10)
    with pytest.raises(ValueError, match="batches must be 'poisson' where"):
        minimize(problem, method, BUDGET)
    assert minimize(problem, method, None, seed=0).num_gradients == 30
    fit = minimize(problem, method, BUDGET, calibration="paper")
    assert math.isinf(fit.certificate.epsilon_proved)


def test_bounds_are_stated_only_where_they_are_proved():
    facts = logistic(100, 2).facts
    long = NoisyGD(num_steps=20, step_size=9.0)  # 2/beta is 8
    assert math.isinf(long.risk_bound(facts, BUDGET))
    empirical = NoisyGD(num_steps=20, step_size=9.0, risk="empirical")
    assert math.isfinite(empirical.risk_bound(facts, BUDGET))
    assert math.isinf(NoisyGD(clip=0.1).risk_bound(facts, BUDGET))
    poisson = NoisySGD(num_steps=5, batches="poisson", batch_size=20)
    assert math.isinf(poisson.risk_bound(facts, BUDGET))
    kinked = Problem(
        [[1.0]],
        [1.0],
        loss=dps.losses.Hinge(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    ).facts
    assert math.isinf(NoisyGD().risk_bound(kinked, BUDGET))
    assert math.isfinite(NoisyGD(risk="empirical").risk_bound(kinked, BUDGET))


def excess(problem, theta):
    """Excess empirical risk of a linear loss on a ball, exactly."""
    rows, y = problem.data.dense, problem.data.response
    mean = (y[:, None] * rows).mean(axis=0)
    return problem.domain.radius * np.linalg.norm(mean) - theta @ mean


@pytest.mark.parametrize("replicates", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_mean_excess_risk_is_below_the_bound(replicates):
    problem = linear(1000, 10, domain=dps.domains.Ball(1.0))
    method = NoisyGD(risk="empirical", num_steps=400)
    found = averages(problem, method, BUDGET, replicates)
    bound = method.risk_bound(problem.facts, BUDGET)
    mean = np.mean([excess(problem, theta) for theta in found])
    assert 0.0 < mean < bound


def test_scaling_rows_scales_the_run():
    rows, labels = rows_and_labels(60, 3)
    thetas = []
    for scale, steps in ((1.0, 4.0), (0.5, 16.0)):
        # Margins a w agree if rows halve and parameters double.
        problem = Problem(
            scale * rows,
            labels,
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(1.0 / scale),
            row_bound=scale,
        )
        method = NoisyGD(num_steps=9, step_size=0.1 * steps)
        thetas.append(minimize(problem, method, BUDGET, seed=4).theta * scale)
    np.testing.assert_allclose(thetas[1], thetas[0], rtol=0.0, atol=1e-13)


def test_permuting_columns_permutes_the_result():
    rows, labels = rows_and_labels(60, 4)
    order = np.array([2, 0, 3, 1])
    ends = []
    for features in (rows, rows[:, order]):
        problem = Problem(
            features,
            labels,
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(0.3, p=1.0),
            row_bound=1.0,
        )
        ends.append(minimize(problem, NoisyGD(num_steps=12), None, seed=0).theta)
    np.testing.assert_allclose(ends[1], ends[0][order], rtol=0.0, atol=1e-14)


def test_losses_without_a_lipschitz_constant_need_a_clip():
    problem = squared(50, 2, domain=dps.domains.WholeSpace())
    method = NoisyGD(num_steps=5, step_size=0.1)
    with pytest.raises(ValueError, match="domain must be bounded"):
        minimize(problem, method, BUDGET)
    assert np.isfinite(minimize(problem, method, None, seed=0).theta).all()
    fit = minimize(problem, NoisyGD(num_steps=5, step_size=0.1, clip=0.5), BUDGET)
    assert fit.certificate.releasable
    assert dict(fit.certificate.inputs)["lipschitz"] == 0.5


def test_recipes_refuse_what_they_cannot_serve():
    problem = logistic(50, 2, domain=dps.domains.WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded"):
        minimize(problem, NoisyGD(num_steps=3), BUDGET)
    bounded = logistic(50, 2)
    with pytest.raises(ValueError, match="num_steps must be given without a budget"):
        minimize(bounded, NoisyGD(risk="empirical"), None)
    with pytest.raises(ValueError, match="batch_size must be <= num_records"):
        minimize(bounded, NoisySGD(batches="poisson", batch_size=51), BUDGET)
    with pytest.raises(ValueError, match="batch_size must be None for full batches"):
        minimize(bounded, ProxGD(batch_size=5), BUDGET)
    with pytest.raises(ValueError, match="batch_size must be given without a budget"):
        minimize(bounded, NoisySGD(num_steps=2, batches="poisson"), None)
