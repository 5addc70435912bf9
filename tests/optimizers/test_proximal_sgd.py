"""Proximal descent without privacy: the textbook algorithm, optima, equivariance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import ProximalSGD
from dpsample.optimizers.algorithms.proximal_sgd import excess_bound
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.privacy import Budget
from tests.support.descents import descend


def problem(
    num_records: int = 40,
    dim: int = 4,
    *,
    domain: dps.domains.Domain | None = None,
    loss: Any = None,
    scale: float = 1.0,
    order: list[int] | None = None,
) -> dps.Problem:
    """Regression with Student errors and no bound of the response."""
    rng = np.random.default_rng(11)
    rows = rng.standard_normal((num_records, dim))
    y = rows[:, 0] - rows[:, 1] + rng.standard_t(2.0, num_records)
    rows = scale * rows[:, list(range(dim)) if order is None else order]
    return dps.Problem(
        rows,
        y,
        loss=dps.losses.Squared() if loss is None else loss,
        domain=dps.domains.Ball(5.0) if domain is None else domain,
        row_bound=1e3,
        response_bound=math.inf,
    )


def textbook(data: dps.Problem, sizes: np.ndarray, batches: list, l1: float) -> Any:
    """Proximal gradient steps for the lasso on an l2 ball of radius 5."""
    rows, y = data.data.dense, data.data.response
    theta, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for size, batch in zip(sizes, batches, strict=True):
        residual = rows[batch] @ theta - y[batch]
        theta = theta - size * rows[batch].T @ residual / len(batch)
        theta = np.sign(theta) * np.maximum(np.abs(theta) - size * l1, 0.0)
        theta *= min(1.0, 5.0 / np.linalg.norm(theta))
        total += theta
    return total / len(sizes)


def coordinate_descent(rows: np.ndarray, y: np.ndarray, l1: float) -> np.ndarray:
    """Minimize mean squares / 2 + l1 |theta|_1."""
    theta = np.zeros(rows.shape[1])
    for _ in range(500):
        for j in range(len(theta)):
            rest = y - rows @ theta + rows[:, j] * theta[j]
            slope, square = rows[:, j] @ rest / len(y), np.mean(rows[:, j] ** 2)
            theta[j] = np.sign(slope) * max(abs(slope) - l1, 0.0) / square
    return theta


def test_full_batches_are_the_textbook_algorithm() -> None:
    data = problem()
    spec = ProximalSGD(l1=0.2, batch_size=40, num_steps=30, smoothness=3.0)
    sizes = 1.0 / (3.0 * np.sqrt(np.arange(1.0, 31.0)))
    expected = textbook(data, sizes, [np.arange(40)] * 30, 0.2)
    assert minimize(data, spec, seed=0).theta == pytest.approx(expected, abs=1e-12)


def test_batches_are_the_textbook_stochastic_algorithm() -> None:
    data = problem()
    spec = ProximalSGD(l1=0.2, batch_size=7, num_steps=20, smoothness=3.0)
    recipe = spec.recipe(data.facts, None)
    rng = np.random.default_rng(3)
    batches = [[int(40 * rng.random()) for _ in range(7)] for _ in range(20)]
    expected = textbook(data, spec.sizes(data.facts, 20), batches, 0.2)
    found = descend(data, recipe, np.random.default_rng(3))
    assert found.theta == pytest.approx(expected, abs=1e-12)
    assert found.num_gradients == 140


def test_lasso_reaches_the_optimum_of_coordinate_descent() -> None:
    data = problem()
    spec = ProximalSGD(l1=0.3, batch_size=40, num_steps=1, smoothness=3.0)
    step = spec.recipe(data.facts, None).phases[0]
    best = coordinate_descent(data.data.dense, data.data.response, 0.3)
    assert (best == 0.0).any() and (best != 0.0).any()
    start = best  # a proximal step with any size stays at the optimum
    recipe = Recipe(phases=(step,), event=None, inputs={}, start=start)
    moved = descend(data, recipe, np.random.default_rng(0)).theta
    assert moved == pytest.approx(best, abs=1e-12)
    long = ProximalSGD(l1=0.3, batch_size=40, num_steps=20_000, smoothness=3.0)
    found = minimize(data, long, seed=0).theta
    assert found == pytest.approx(best, abs=2e-3)


def test_defaults_are_those_of_the_paper() -> None:
    facts = problem(600).facts
    spec = ProximalSGD(smoothness=2.0)
    loop = spec.recipe(facts, None).phases[0]
    assert loop.batches.size == 100 and loop.num_steps == 180
    assert loop.step.sizes[:2] == pytest.approx([0.5, 0.5 / math.sqrt(2.0)])
    assert loop.weights.tolist() == [1.0]  # the same for all


def test_smoothness_defaults_to_the_bound_of_a_record() -> None:
    facts = problem().facts
    assert ProximalSGD().curvature(facts) == pytest.approx(1e6)
    with pytest.raises(ValueError, match="loss must be of bounded curvature"):
        ProximalSGD().recipe(problem(loss=dps.losses.Absolute()).facts, None)


def test_permuted_coordinates_give_permuted_answers() -> None:
    order = [2, 0, 3, 1]
    spec = ProximalSGD(l1=0.1, num_steps=20, smoothness=3.0)
    plain = minimize(problem(), spec, seed=5).theta
    mixed = minimize(problem(order=order), spec, seed=5).theta
    assert mixed == pytest.approx(plain[order], abs=1e-13)


def test_scaled_features_scale_the_answer() -> None:
    """theta -> theta/2, l1 -> 2 l1, K_1 -> 4 K_1 under features -> 2 features."""
    plain = ProximalSGD(l1=0.1, num_steps=20, smoothness=3.0)
    wide = dps.domains.Ball(2.5)
    scaled = ProximalSGD(l1=0.2, num_steps=20, smoothness=12.0)
    found = minimize(problem(scale=2.0, domain=wide), scaled, seed=5).theta
    assert found == pytest.approx(0.5 * minimize(problem(), plain, seed=5).theta)


def test_in_one_dimension_balls_boxes_and_groups_coincide() -> None:
    domains = dps.domains
    found = [
        minimize(
            problem(dim=2, domain=domain, order=[0]),
            ProximalSGD(l1=0.1, groups=groups, num_steps=9, smoothness=3.0),
            seed=5,
        ).theta
        for domain, groups in (
            (domains.Ball(0.4), ()),
            (domains.Ball(0.4), (0,)),
            (domains.Ball(0.4, p=math.inf), ()),
            (domains.Box(-0.4, 0.4), ()),
        )
    ]
    assert found[0].shape == (1,)
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-14)


def test_budgets_are_refused() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="budget must be None for ProximalSGD"):
        minimize(problem(), ProximalSGD(smoothness=1.0), budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1": -1.0}, "l1 must be"),
        ({"l2": math.nan}, "l2 must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"num_steps": 2.5}, "num_steps must be"),
        ({"smoothness": 0.0}, "smoothness must be"),
        ({"step_scale": math.inf}, "step_scale must be"),
    ],
)
def test_bad_numbers_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProximalSGD(**options)


def test_batches_larger_than_the_data_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be <= num_records = 40"):
        ProximalSGD(batch_size=41, smoothness=1.0).recipe(problem().facts, None)


def test_excess_bound_by_hand() -> None:
    sizes = np.array([0.5, 0.25])
    found = excess_bound(sizes, smoothness=1.0, diameter=2.0, variance=0.08, bias=0.1)
    steps = 0.5 * (0.08 / 2.0 + 0.08 / 6.0)
    assert found == pytest.approx(4.0 / (2.0 * 2 * 0.25) + steps + 0.2)
    unbounded = {"variance": 0.0, "bias": 0.0}
    assert excess_bound(sizes, smoothness=3.0, diameter=1.0, **unbounded) == math.inf
    assert (
        excess_bound(sizes, smoothness=1.0, diameter=math.inf, **unbounded) == math.inf
    )


def test_measured_excess_is_below_the_bound_of_exact_gradients() -> None:
    data = problem()
    rows, y = data.data.dense, data.data.response
    curvature = float(np.linalg.eigvalsh(rows.T @ rows / 40.0).max())
    best = coordinate_descent(rows, y, 0.3)

    def value(theta: np.ndarray) -> float:
        return data.risk(theta) + 0.3 * float(np.abs(theta).sum())

    for num_steps in (1, 5, 50):
        spec = ProximalSGD(
            l1=0.3, batch_size=40, num_steps=num_steps, smoothness=curvature
        )
        bound = excess_bound(
            spec.sizes(data.facts, num_steps),
            smoothness=curvature,
            diameter=10.0,
            variance=0.0,
            bias=0.0,
        )
        excess = value(minimize(data, spec, seed=0).theta) - value(best)
        assert 0.0 <= excess <= bound
