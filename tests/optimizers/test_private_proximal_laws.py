"""Private proximal descent: laws of its output and its risk bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import PrivateProximalSGD, ProximalSGD
from dpsample.running.descent import Program
from tests.support.gradient_vectors import vectors_problem
from tests.support.proximal_cases import BUDGET, regression, spec
from tests.support.statistics import assert_law, assert_mean, rejected
from tests.support.tiers import one_in


def test_output_on_linear_losses_has_the_gaussian_law_of_its_noise() -> None:
    """Full batches: mean -g sum c_t and deviation stddev sqrt(sum c_t^2)."""
    vectors = np.random.default_rng(1).uniform(-0.1, 0.1, (20, 2))
    data = vectors_problem(vectors)
    made = spec("clip", l1=0.0, batch_size=20, num_steps=4)
    recipe = made.recipe(data.facts, BUDGET)
    sizes, stddev = made.sizes(data.facts, 4), recipe.phases[0].noise.stddev
    weights = sizes * np.arange(4, 0, -1) / 4.0
    program, rng = Program(data, recipe), np.random.default_rng(2)
    thetas = np.array([program.run(rng).theta for _ in range(2000)])
    centered = thetas + vectors.mean(axis=0) * weights.sum()
    spread = stddev * math.sqrt((weights**2).sum())
    for sample in centered.T:
        assert_law(sample, norm(scale=spread).cdf)
        with rejected():  # noise of zero_out
            assert_law(sample, norm(scale=0.5 * spread).cdf)
    rotated = (centered[:, 0] + centered[:, 1]) / math.sqrt(2.0)
    assert_law(rotated, norm(scale=spread).cdf)


@pytest.mark.slow
def test_poisson_batches_are_unbiased() -> None:
    """Mean and variance of the output on linear losses, clipping included."""
    vectors = np.array([[3.0], [0.5], [1.0], [-0.5]] * 5)
    data = vectors_problem(vectors)
    made = spec("clip", l1=0.0, batch_size=5, num_steps=3, threshold=1.0)
    recipe = made.recipe(data.facts, BUDGET)
    clipped = np.clip(vectors[:, 0], -1.0, 1.0)
    weights = made.sizes(data.facts, 3) * np.arange(3, 0, -1) / 3.0
    sampling = 0.25 * 0.75 * (clipped**2).sum() / 5.0**2
    step = sampling + recipe.phases[0].noise.stddev ** 2
    program, rng = Program(data, recipe), np.random.default_rng(3)
    sample = np.array([program.run(rng).theta[0] for _ in range(6000)])
    mean, variance = -clipped.mean() * weights.sum(), step * (weights**2).sum()
    assert_mean(sample, mean, variance, detects=0.2)
    with rejected():  # no clipping
        assert_mean(
            sample, -vectors.mean() * weights.sum() * 4.0, variance, detects=0.2
        )


@one_in(2)
@pytest.mark.parametrize("estimator", ["clip", "catoni"])
@pytest.mark.parametrize("size", [400, 4000])
def test_measured_excess_is_below_the_bound(estimator: str, size: int) -> None:
    data = regression(4000, dps.domains.Ball(1.0))
    moment = float((np.abs(data.data.dense).max() * 2.0) ** 2)  # |slope| <= 2
    options = {} if estimator == "clip" else {"moment_bound": moment}
    made = PrivateProximalSGD(
        estimator=estimator, l1=0.02, batch_size=size, num_steps=40, **options
    )
    recipe = made.recipe(data.facts, BUDGET)
    exact = ProximalSGD(l1=0.02, batch_size=4000, num_steps=3000)
    best = minimize(data, exact, seed=0).theta

    def value(theta: np.ndarray) -> float:
        return data.risk(theta) + 0.02 * float(np.abs(theta).sum())

    program, rng = Program(data, recipe), np.random.default_rng(4)
    excess = np.mean([value(program.run(rng).theta) - value(best) for _ in range(40)])
    assert 0.0 < excess <= recipe.inputs["risk_bound"]
