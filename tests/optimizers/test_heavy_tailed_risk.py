"""Excess risk of the private Frank-Wolfe methods against explicit bounds."""

from __future__ import annotations

import math

import numpy as np

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import HeavyTailedFrankWolfe, HeavyTailedLasso
from dpsample.optimizers.algorithms.heavy_tailed_frank_wolfe import vertex_bound
from dpsample.running.descent import Program
from tests.support.vertex_cases import BUDGET, frank_wolfe, problem


def test_excess_bound_solves_its_recursion() -> None:
    for num_steps in (1, 2, 10, 300):
        value = 3.0
        for t in range(1, num_steps + 1):
            size = 2.0 / (t + 2.0)
            value = (1.0 - size) * value + size * 0.1 + 0.5 * size**2 * 7.0
        bound = vertex_bound(num_steps, first=3.0, curvature=7.0, error=0.1)
        assert 0.5 * bound <= value <= bound


def test_measured_excess_of_the_lasso_is_below_the_bound() -> None:
    data = problem(4000, radius=1.0)
    spec = HeavyTailedLasso(num_steps=30, entry_bound=2.0)
    recipe = spec.recipe(data.facts, BUDGET)
    rows, y = np.clip(data.data.dense, -2.0, 2.0), np.clip(data.data.response, -2, 2)

    def value(theta: np.ndarray) -> float:
        return float(0.5 * np.mean((rows @ theta - y) ** 2))

    best = value(frank_wolfe([rows] * 2000, [y] * 2000, 1.0))
    program, rng = Program(data, recipe), np.random.default_rng(8)
    excess = np.mean([value(program.run(rng).theta) for _ in range(40)]) - best
    assert 0.0 < excess <= recipe.inputs["risk_bound"]


def test_measured_population_excess_is_below_the_bound() -> None:
    """Standard normal features: the risk is |theta - truth|^2/2 plus a constant."""
    truth = np.array([0.5, -0.5, 0.0])
    spec = HeavyTailedFrankWolfe(moment_bound=20.0, smoothness=1.0)
    excess = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((3000, 3))
        data = dps.Problem(
            rows,
            rows @ truth + rng.standard_t(3.0, 3000),
            loss=dps.losses.Squared(),
            domain=dps.domains.Ball(1.0, p=1.0),
            row_bound=100.0,
            response_bound=math.inf,
        )
        theta = minimize(data, spec, BUDGET, seed=seed).theta
        excess.append(0.5 * float(((theta - truth) ** 2).sum()))
    bound = spec.recipe(data.facts, BUDGET).inputs["risk_bound"]
    assert 0.0 < np.mean(excess) <= bound


def test_risk_bounds_need_a_smooth_loss() -> None:
    facts = problem(loss=dps.losses.Absolute()).facts
    assert "risk_bound" not in HeavyTailedFrankWolfe().recipe(facts, BUDGET).inputs
    smooth = HeavyTailedFrankWolfe(smoothness=1.0).recipe(facts, BUDGET)
    assert "risk_bound" in smooth.inputs
