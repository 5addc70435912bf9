"""The full-batch method and the one that draws batches: what each name says."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.noise.noise import grid_step
from dpsample.optimizers import NoisyGD, NoisySGD
from dpsample.problem.problem import Problem
from tests.support.clipped_cases import BUDGET, logistic, rows_and_labels
from tests.support.statistics import assert_scale, rejected


# U6
def test_noisy_gd_is_what_full_batches_were():
    # Recorded when full batches were a setting of another name; with noise, when it
    # came to grids.
    recorded = {
        "logistic": (
            ["-0x1.d7c6eb18a0496p-4", "-0x1.6b459e281afc2p-2", "0x1.66176836e7ae8p-2"],
            ["0x1.a0f4a5591c89ep-8", "-0x1.462ef502812c5p-5", "-0x1.423d5608a3124p-4"],
        ),
        "squared": (
            ["-0x1.bc00630cf7683p-5", "-0x1.41f2a7cc14401p-2", "0x1.2c55c9c5f2ee3p-2"],
            ["0x1.817acf8bd248dp-8", "-0x1.362a711e27cdfp-5", "-0x1.30eb13f8de72bp-4"],
        ),
        "hinge": (
            ["-0x1.a72c4a9dd4913p-5", "-0x1.2fc54b67bc435p-2", "0x1.c89f758f6e64cp-3"],
            ["0x1.4d625b582499ap-7", "-0x1.fc25033dc953dp-5", "-0x1.f85689839ded1p-4"],
        ),
    }
    rng = np.random.default_rng(11)
    rows = rng.uniform(-0.5, 0.5, (50, 3))
    labels = np.where(rng.random(50) < 0.5, -1.0, 1.0)
    for loss in (dps.losses.Logistic(), dps.losses.Squared(), dps.losses.Hinge()):
        problem = Problem(
            rows,
            labels,
            loss=loss,
            domain=dps.domains.Ball(1.0),
            row_bound=1.0,
            response_bound=1.0,
        )
        for budget, words in zip((BUDGET, None), recorded[loss.name], strict=True):
            theta = minimize(problem, NoisyGD(), budget, seed=5).theta
            expected = [float.fromhex(word) for word in words]
            # To the last bit on one machine; another BLAS sums in another order.
            np.testing.assert_allclose(theta, expected, rtol=1e-12)


# U6
def test_noisy_gd_reads_all_records_and_noisy_sgd_random_ones():
    problem = logistic(200, 3)
    fit = minimize(problem, NoisyGD(), BUDGET, seed=0)
    steps = dict(fit.certificate.inputs)["num_steps"]
    assert fit.num_gradients == steps * 200
    with pytest.raises(TypeError, match="batches"):
        NoisyGD(batches="poisson")
    with pytest.raises(ValueError, match="batches must be one of"):
        NoisySGD(batches="full")
    for budget in (BUDGET, dps.Budget(epsilon=500.0, delta=1e-6)):
        found = NoisySGD(num_steps=20).recipe(problem.facts, budget)
        assert found.inputs["batches"] == "poisson"
        assert 1 <= found.inputs["batch_size"] <= 100
    counts = {
        minimize(problem, NoisySGD(num_steps=20), BUDGET, seed=seed).num_gradients
        for seed in range(4)
    }
    assert len(counts) > 1 and max(counts) < 20 * 100


TAIL = NoisyGD(output="tail")


def descent(problem, size, num_steps):
    """Iterates of projected gradient descent on the ball of radius 1/2, in NumPy."""
    a, y = problem.data.dense, problem.data.response
    w, iterates = np.zeros(a.shape[1]), []
    for _ in range(num_steps):
        w = w - size * (problem.loss.slope(a @ w, y) @ a) / len(y)
        w = w / max(1.0, 2.0 * np.linalg.norm(w))
        iterates.append(w)
    return np.array(iterates)


@pytest.mark.parametrize("share", [None, 0.3, 1.0])
@pytest.mark.parametrize("loss", [dps.losses.Logistic(), dps.losses.CappedLogistic()])
def test_without_noise_the_tail_is_the_mean_of_the_last_iterates(loss, share):
    rows, labels = rows_and_labels(200, 3, 1)
    ball = dps.domains.Ball(0.5)
    problem = Problem(rows, labels, loss=loss, domain=ball, row_bound=1.0)
    method = NoisyGD(output="tail", tail_share=share, num_steps=21, step_size=0.5)
    theta = minimize(problem, method, None, seed=0).theta
    iterates = descent(problem, 0.5, 21)
    count = {None: 11, 0.3: 7, 1.0: 21}[share]
    np.testing.assert_allclose(theta, iterates[-count:].mean(0), rtol=1e-12)
    # Planted bug: one iterate more, or less.
    for other in (iterates[-count + 1 :], iterates[: 22 - count]):
        assert np.abs(theta - other.mean(0)).max() > 1e-6


def test_a_tail_of_all_steps_is_the_average_to_the_last_bit():
    problem, numbers = logistic(200, 3), {"num_steps": 20, "step_size": 0.7}
    tail = minimize(
        problem, NoisyGD(output="tail", tail_share=1.0, **numbers), BUDGET, seed=3
    )
    plain = minimize(problem, NoisyGD(**numbers), BUDGET, seed=3)
    np.testing.assert_array_equal(tail.theta, plain.theta)


def test_every_tail_of_a_seed_is_of_the_same_noisy_iterates():
    """Tails of 1, ..., T tell the iterates, and those the noise, on its grid."""
    space = dps.domains.WholeSpace()
    problem, size, steps = logistic(200, 8, domain=space), 0.7, 50
    means = [np.zeros(8)]
    for count in range(1, steps + 1):
        share = (count - 0.5) / steps
        method = NoisyGD(
            output="tail", tail_share=share, num_steps=steps, step_size=size
        )
        fit = minimize(problem, method, BUDGET, seed=3)
        means.append(count * fit.theta)
    iterates = np.vstack([np.zeros(8), np.diff(means, axis=0)[::-1]])
    stddev = dict(fit.certificate.inputs)["noise_stddev"]
    a, y = problem.data.dense, problem.data.response
    released = -np.diff(iterates, axis=0) / size
    gradients = problem.loss.slope(iterates[:-1] @ a.T, y) @ a / len(y)
    noise = (released - gradients) / stddev
    assert_scale(noise, detects=0.5)
    with rejected():
        assert_scale(0.5 * noise, detects=0.5)
    cells = released / grid_step(stddev)
    assert np.abs(cells - np.round(cells)).max() < 1e-6
    assert np.abs(gradients / grid_step(stddev) % 1.0 - 0.5).min() < 0.4


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_the_tail_has_the_noise_and_the_event_of_so_many_steps(relation):
    facts = logistic(2000, 3).facts
    budget = dps.Budget(epsilon=1.0, delta=1e-6, relation=relation)
    tail, plain = (m.recipe(facts, budget) for m in (TAIL, NoisyGD(num_steps=100)))
    assert tail.event == plain.event and tail.kind == plain.kind == "steps/full"
    assert tail.inputs["noise_stddev"] == plain.inputs["noise_stddev"]
    assert [phase.num_steps for phase in tail.phases] == [50, 50]
    assert all(phase.noise == plain.phases[0].noise for phase in tail.phases)
    assert math.isinf(TAIL.risk_bound(facts, budget))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0])
def test_steps_are_stable_and_as_long_together_as_noise_and_curvature_allow(epsilon):
    facts = replace(logistic(2000, 3).facts, domain=dps.domains.Ball(5.0))
    recipe = TAIL.recipe(facts, dps.Budget(epsilon=epsilon, delta=1e-6))
    noise = 2.0 * math.sqrt(3.0) / (2000.0 * recipe.event.gdp * 5.0)
    ridge = math.sqrt(2.0 * noise * max(noise, 0.25 / 400.0))
    steps = sum(phase.num_steps for phase in recipe.phases)
    size = recipe.inputs["step_size"]
    assert steps == max(100, math.ceil(0.125 / ridge))
    assert size * steps == pytest.approx(1.0 / ridge) and size <= 8.0
    given = replace(TAIL, num_steps=10).recipe(facts, BUDGET).inputs["step_size"]
    assert given == 8.0  # 2/beta


@pytest.mark.parametrize("method", [TAIL, NoisyGD(output="tail", clip=0.3)])
def test_certificates_of_tails_are_proved_by_both_checkers(method):
    fit = minimize(logistic(300, 3), method, BUDGET)
    assert dict(fit.certificate.inputs)["averaged_steps"] == 50
    for checker in ("standard", "ball"):
        dps.verify(fit.certificate, checker=checker)


def test_certificates_without_a_tail_read_as_they_did_before_there_was_one():
    old = "NoisyGD(num_steps=None, step_size=None, risk='population', clip=None)"
    assert repr(NoisyGD()) == old
    for method in (NoisyGD(), TAIL):
        assert eval(repr(method)) == method


def test_tails_refuse_what_has_no_rule():
    facts = logistic(50, 3).facts
    with pytest.raises(ValueError, match="step_size must be given for a non-smooth"):
        TAIL.recipe(replace(facts, loss=dps.losses.Hinge()), BUDGET)
    with pytest.raises(ValueError, match="domain must be bounded"):
        TAIL.recipe(replace(facts, domain=dps.domains.WholeSpace()), BUDGET)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        TAIL.recipe(facts, BUDGET, "paper")
    with pytest.raises(ValueError, match="step_size must be given without a budget"):
        TAIL.recipe(replace(facts, loss=dps.losses.Linear()), None)
    for bad, words in (
        ({"output": "first"}, "output must be one of"),
        ({"output": "tail", "tail_share": 1.5}, "tail_share must be <= 1, got 1.5"),
        ({"output": "tail", "tail_share": 0.0}, "tail_share must be"),
        ({"tail_share": 0.5}, r"None for output='average', got 0\.5\. Pass"),
    ):
        with pytest.raises(ValueError, match=words):
            NoisyGD(**bad)
