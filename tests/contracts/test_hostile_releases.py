"""Releases, audits and additive mechanisms on hostile records and queries."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpsample as dps
from dpsample import noise
from dpsample.domains import Ball, Box
from tests.contracts.hostile_cases import World, all_losses
from tests.contracts.hostile_records import MAX, records
from tests.support.statistics import assert_mean
from tests.support.tiers import one_in, slow

BUDGET = dps.Budget(epsilon=5.0, delta=1e-6)
FORM = settings(suppress_health_check=list(HealthCheck), phases=[Phase.generate])
TIERS = [pytest.param(3, id="quick"), slow(60, id="long")]
# Losses of the margin; those whose slopes grow with y need a declared bound.
LOSSES = [
    getattr(dps.losses, name)()
    for name in dps.losses.__all__
    if inspect.isclass(getattr(dps.losses, name))
    and name not in ("Loss", "Custom", "RecordGradient")
]


def world_of(loss: Any, num_records: int = 4) -> World:
    """Facts under which everything is bounded; no bound of y where none is needed."""
    growing = loss.needs_response_bound or loss.name == "linear"
    bound = 1.0 if growing else None
    return World(loss, Ball(1.0), num_records=num_records, response_bound=bound)


@one_in(3)
@pytest.mark.parametrize("examples", TIERS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_record_stops_a_release(loss, examples: int) -> None:
    """Drawn from the exponential mechanism; seeded, as studies do."""
    world = world_of(loss)

    def example(data) -> None:
        theta = dps.release(data.problem(), BUDGET, seed=1).theta
        assert np.isfinite(theta).all()
        assert world.domain.contains(theta)

    settings(FORM, max_examples=examples)(given(records(world))(example))()


@one_in(3)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_rows_and_responses_above_their_bounds_are_clipped_and_released(loss) -> None:
    rows = np.array([[1e300, -1e-300], [MAX, MAX], [5e-324, 0.0], [-0.0, 1e200]])
    response = np.array([MAX, -MAX, 1e154, -0.0])
    if loss.is_classification:
        response = np.where(response > 0.0, 1.0, -1.0)
    problem = dps.Problem(
        rows,
        response,
        loss=loss,
        domain=Box([-1.0, -1.0], [1.0, 2.0]),
        row_bound=1.0,
        response_bound=1.0,
        clip_rows=True,
    )
    sizes = np.linalg.norm(problem.data.dense, axis=1)
    assert (sizes <= 1.0 + 1e-12).all() and sizes[1] > 0.99
    assert np.isfinite(dps.release(problem, BUDGET, seed=1).theta).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["absolute", "quantile", "huber"])
@pytest.mark.parametrize("huge", [5.0, 1e16, 1e154])
def test_a_huge_response_draws_the_law_of_one_beyond_the_margins(name, huge) -> None:
    """The two losses differ by a constant on the domain, so their laws agree."""
    loss = next(loss for loss in LOSSES if loss.name == name)
    rows, response = np.ones((40, 1)), np.full(40, -5.0)
    response[0] = 5.0
    world = {"loss": loss, "domain": Ball(1.0), "row_bound": 1.0}
    near = dps.Problem(rows, response, **world)
    response[0] = huge
    far = dps.Problem(rows, response, **world)
    target, nodes = dps.calibrate(near, BUDGET).target(near), np.linspace(-1, 1, 20001)
    energy = np.array([target.energy(np.array([u])) for u in nodes])
    weights = np.exp(energy.min() - energy)
    weights /= weights.sum()
    mean = float(weights @ nodes)
    variance = float(weights @ (nodes - mean) ** 2)
    draws = [dps.release(far, BUDGET, seed=s) for s in range(240)]
    ends = np.array([draw.theta[0] for draw in draws])
    assert_mean(ends, mean, variance, detects=0.9)


def mechanisms(sensitivity: float) -> dict[str, Any]:
    """Every calibrated law of additive noise, for queries of four numbers."""
    shape = {"dim": 4, "sensitivity": sensitivity}
    arguments: dict[str, dict[str, Any]] = {
        "gaussian_mechanism": {"sensitivity": sensitivity},
        "generalized_gaussian_mechanism": {**shape, "p": 1.2, "r": 4.0},
        "laplace_mechanism": {"sensitivity": sensitivity},
        "geometric_mechanism": {"sensitivity": max(1, round(sensitivity))},
        "k_norm_mechanism": {**shape, "domain": Ball(1.0)},
        "schatten_gaussian_mechanism": {
            "sensitivity": sensitivity,
            "shape": (2, 2),
            "p": 1.2,
            "r": 4.0,
        },
    }
    made = {name for name in noise.__all__ if name.endswith("_mechanism")}
    assert set(arguments) == made
    return {
        name: (lambda name=name, kinds=kinds: getattr(noise, name)(BUDGET, **kinds))
        for name, kinds in arguments.items()
    }


QUERIES = st.lists(
    st.sampled_from([MAX, -MAX, 1e308, -0.0, 0.0, 5e-324, -2e-310, 1.0, 1e154, 1e16]),
    min_size=4,
    max_size=4,
)


@pytest.mark.parametrize("examples", TIERS)
@pytest.mark.parametrize("sensitivity", [1.0, 1e300, 1e-300, MAX])
@pytest.mark.parametrize("name", mechanisms(1.0))
def test_every_finite_query_is_released(name, sensitivity, examples: int) -> None:
    """A sensitivity may be refused, before any query is seen; a query may not."""
    try:
        mechanism = mechanisms(sensitivity)[name]()
    except ValueError:
        assert sensitivity in (MAX, 1e300, 1e-300)
        return

    def example(value: list[float]) -> None:
        for seed in range(4):
            answer = mechanism.release(np.array(value), seed=seed).value
            assert np.isfinite(answer).all(), answer

    settings(FORM, max_examples=4 * examples)(given(QUERIES)(example))()


@one_in(2)
@pytest.mark.parametrize("name", mechanisms(1.0))
def test_audits_take_hostile_queries(name: str) -> None:
    mechanism = mechanisms(1.0)[name]()
    for value in ([1e308, -0.0, 5e-324, 1.0], [-MAX, 0.0, -2e-310, 1e16]):
        neighbor = np.array(value)
        neighbor[3] -= 1.0 if neighbor[3] == 1.0 else 0.0
        report = dps.audit(
            mechanism, value, neighbor, BUDGET, num_draws=400, seed=1, progress=False
        )
        assert not report.is_refuted


@one_in(2)
@pytest.mark.parametrize("name", ["absolute", "huber", "logistic", "linear"])
def test_audits_take_hostile_records(name: str) -> None:
    """Of the exponential mechanism: one record with the largest response there is."""
    loss = next(loss for loss in all_losses() if loss.name == name)
    world = replace(world_of(loss), row_bound=1.0)
    rows = np.array([[0.5, 0.0], [0.0, 0.5], [0.3, 1e-300], [0.0, 0.0]])
    response = np.ones(4)
    other = response.copy()
    other[0] = -world.response_limit
    problems = [world.problem(rows, y) for y in (response, other)]
    mechanism = dps.calibrate(problems[0], BUDGET)
    report = dps.audit(
        mechanism, *problems, BUDGET, num_draws=200, seed=1, progress=False
    )
    assert not report.is_refuted
