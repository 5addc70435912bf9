"""DP-SGD: textbook, law under Poisson sampling, accounting, bounds."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import DPSGD
from dpsample.optimizers.loop.batches import Allocated
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    PoissonGaussianEvent,
)
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    BUDGET,
    ZERO_OUT,
    batch,
    clipped,
    into_ball,
    logistic,
    logistic_gradients,
    squared,
)
from tests.support.statistics import assert_frequency, assert_mean, rejected


def test_at_rate_one_without_budget_it_is_projected_descent():
    problem = logistic(60, 3, domain=dps.domains.Ball(0.5))
    rows, labels = problem.data.dense, problem.data.response
    w, iterates = np.zeros(3), []
    for _ in range(15):
        g = clipped(logistic_gradients(rows, labels, w), 0.3).mean(axis=0)
        w = into_ball(w - 0.8 * g, 0.5)
        iterates.append(w)
    fields = {"sampling_rate": 1.0, "num_steps": 15, "clip": 0.3, "step_size": 0.8}
    for averages, expected in ((False, w), (True, np.mean(iterates, axis=0))):
        fit = minimize(problem, DPSGD(averages=averages, **fields), None, seed=0)
        np.testing.assert_allclose(fit.theta, expected, rtol=0.0, atol=1e-14)
        assert fit.certificate is None and fit.num_gradients == 60 * 15


def test_first_two_moments_on_linear_losses():
    rng = np.random.default_rng(5)
    n, q, steps, eta = 20, 0.3, 4, 0.7
    rows, y = rng.uniform(-1.0, 1.0, (n, 1)), rng.uniform(-1.0, 1.0, n)
    problem = Problem(
        rows,
        y,
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    method = DPSGD(sampling_rate=q, num_steps=steps, step_size=eta, averages=False)
    recipe = method.recipe(problem.facts, dps.Budget(epsilon=8.0, delta=1e-3))
    parts = rows[:, 0] * y
    mean = eta * steps * parts.mean()
    sampling = (1.0 - q) / (q * n**2) * (parts @ parts)
    stddev = recipe.phases[0].noise.stddev
    variance = steps * eta**2 * (sampling + stddev**2)
    program = descent.Program(problem, recipe)
    ends = np.array(
        [program.run(np.random.default_rng(seed)).theta[0] for seed in range(1900)]
    )
    assert_mean(ends, mean, variance, detects=0.3)
    spread = (ends - mean) ** 2 / variance
    assert_mean(spread, 1.0, 2.0, detects=0.3)  # nearly Gaussian
    with rejected():  # the noise of a quarter of the batch size
        wrong = steps * eta**2 * (sampling + 0.5 * stddev**2)
        assert_mean((ends - mean) ** 2 / wrong, 1.0, 2.0, detects=0.3)


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_the_recorded_noise_proves_the_budget(budget):
    problem = logistic(400, 2)
    method = DPSGD(sampling_rate=0.1, num_steps=30, clip=0.5)
    fit = minimize(problem, method, budget)
    multiplier = dict(fit.certificate.inputs)["noise_stddev"] * 0.1 * 400 / 0.5
    event = PoissonGaussianEvent(
        sampling_rate=0.1, noise_multiplier=multiplier, num_steps=30
    )
    spent = epsilon_of(event, delta=budget.delta, relation=budget.relation)
    assert spent == pytest.approx(budget.epsilon, rel=1e-5)
    assert spent <= budget.epsilon * (1.0 + 1e-9)
    assert fit.certificate.releasable


ALLOCATED = {"sampling_rate": 0.25, "num_steps": 8, "sampling": "allocation"}


def test_every_record_joins_one_step_of_every_epoch():
    scheme = Allocated(num_batches=4, num_epochs=2, first=3, last=60)
    rng = np.random.default_rng(1)
    steps = [batch(scheme, 70, t, rng) for t in range(8)]
    for epoch in (steps[:4], steps[4:]):
        assert np.sort(np.concatenate(epoch)).tolist() == list(range(3, 60))
    assert steps[:4] != steps[4:]


def test_picks_are_even_and_epochs_independent():
    numbers = Allocated(num_batches=4, num_epochs=2).numbers(
        40_000, np.random.default_rng(8)
    )
    first = numbers.order[numbers.ends[1] : numbers.ends[2]]
    again = numbers.order[numbers.ends[5] : numbers.ends[6]]
    assert_frequency(len(first), 40_000, 0.25)
    both = len(np.intersect1d(first, again))
    assert_frequency(both, 40_000, 1.0 / 16.0)
    with rejected():  # all epochs alike
        assert_frequency(len(first), 40_000, 1.0 / 16.0)


def test_whole_epochs_of_linear_losses_have_no_sampling_error():
    rng = np.random.default_rng(5)
    rows, y = rng.uniform(-1.0, 1.0, (50, 1)), rng.uniform(-1.0, 1.0, 50)
    problem = Problem(
        rows,
        y,
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    fields = {"step_size": 0.7, "averages": False}
    fit = minimize(problem, DPSGD(**ALLOCATED, **fields), None, seed=3)
    expected = 0.7 * 8 * (rows[:, 0] * y).mean()
    assert fit.theta[0] == pytest.approx(expected, rel=1e-12)
    assert fit.num_gradients == 2 * 50
    poisson = DPSGD(**{**ALLOCATED, "sampling": "poisson"}, **fields)
    other = minimize(problem, poisson, None, seed=3)
    assert other.theta[0] != pytest.approx(expected, rel=1e-3)


def test_noise_of_allocated_records_proves_the_budget_and_is_less():
    problem = logistic(400, 2)
    stddevs = {}
    for sampling in ("allocation", "poisson"):
        method = DPSGD(**{**ALLOCATED, "sampling": sampling}, clip=0.5)
        fit = minimize(problem, method, ZERO_OUT)
        stddevs[sampling] = dict(fit.certificate.inputs)["noise_stddev"]
        assert fit.certificate.releasable and fit.verify()
    multiplier = stddevs["allocation"] * 100 / 0.5
    event = AllocatedGaussianEvent(
        noise_multiplier=multiplier, num_steps=4, num_epochs=2
    )
    spent = epsilon_of(event, delta=ZERO_OUT.delta, relation="zero_out")
    assert spent == pytest.approx(ZERO_OUT.epsilon, rel=1e-4)
    assert spent <= ZERO_OUT.epsilon * (1.0 + 1e-9)
    assert 0.5 < stddevs["allocation"] / stddevs["poisson"] < 0.99
    with pytest.raises(ValueError, match=r"budget.relation must be 'zero_out' with"):
        minimize(problem, method := DPSGD(**ALLOCATED, clip=0.5), BUDGET)
    assert method.risk_bound(problem.facts, ZERO_OUT) == math.inf
    many = DPSGD(**{**ALLOCATED, "num_steps": 4 * 10**6})
    with pytest.raises(ValueError, match=r"num_steps must be for 268435456 records"):
        many.recipe(problem.facts, ZERO_OUT)


def test_noise_is_in_units_of_the_clipping_threshold():
    facts = logistic(400, 2).facts
    small, large = (
        DPSGD(sampling_rate=0.1, num_steps=30, clip=clip).recipe(facts, BUDGET)
        for clip in (0.25, 0.5)
    )
    assert large.inputs["noise_stddev"] == pytest.approx(
        2.0 * small.inputs["noise_stddev"], rel=1e-12
    )
    top = DPSGD(sampling_rate=0.1, num_steps=30, clip=7.0).recipe(facts, BUDGET)
    assert top.inputs["clip"] == 1.0  # the Lipschitz constant


def test_mean_excess_empirical_risk_is_below_the_bound():
    problem = logistic(1000, 3)
    method = DPSGD(sampling_rate=0.1, num_steps=50)
    rows, labels = problem.data.dense, problem.data.response
    best = np.zeros(3)
    for _ in range(500):
        g = logistic_gradients(rows, labels, best).mean(axis=0)
        best = into_ball(best - 3.0 * g, 2.0)
    program = descent.Program(problem, method.recipe(problem.facts, BUDGET))
    risks = [
        problem.risk(program.run(np.random.default_rng(seed)).theta)
        for seed in range(20)
    ]
    bound = method.risk_bound(problem.facts, BUDGET)
    assert 0.0 < np.mean(risks) - problem.risk(best) <= bound


def test_default_step_minimizes_the_bound():
    facts = logistic(1000, 3).facts
    method = DPSGD(sampling_rate=0.1, num_steps=50)
    size = method.recipe(facts, BUDGET).inputs["step_size"]
    bound = method.risk_bound(facts, BUDGET)
    for factor in (0.9, 1.1):
        other = DPSGD(sampling_rate=0.1, num_steps=50, step_size=factor * size)
        assert other.risk_bound(facts, BUDGET) > bound
    clipping = DPSGD(sampling_rate=0.1, num_steps=50, clip=0.5)
    assert clipping.risk_bound(facts, BUDGET) == math.inf


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"num_steps": 0}, "num_steps"),
        ({"clip": 0.0}, "clip"),
        ({"step_size": math.nan}, "step_size"),
        ({"averages": 1}, "averages"),
        ({"sampling": "shuffle"}, "sampling"),
        ({"sampling": "allocation", "sampling_rate": 0.3}, "sampling_rate"),
        ({"sampling": "allocation"}, "num_steps must be a multiple of 10"),
        ({"sampling": "allocation", "sampling_rate": 1e-309}, "sampling_rate"),
        ({"sampling": "allocation", "num_steps": 2 * 10**7}, "num_steps"),
    ],
)
def test_bad_numbers_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        DPSGD(**({"sampling_rate": 0.1, "num_steps": 3} | fields))


def test_missing_public_bounds_are_named():
    facts = squared(100, 2, domain=dps.domains.WholeSpace()).facts
    method = DPSGD(sampling_rate=0.1, num_steps=3)
    with pytest.raises(ValueError, match="clip"):
        method.recipe(facts, BUDGET)
    with pytest.raises(ValueError, match="distance"):
        DPSGD(sampling_rate=0.1, num_steps=3, clip=1.0).recipe(facts, BUDGET)
    with pytest.raises(ValueError, match="calibration"):
        method.recipe(facts, BUDGET, "paper")
