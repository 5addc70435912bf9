"""Kernels of the gradient loop against NumPy and brute force."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.noise.noise import MAX_QUERY_STEPS, grid_step
from dpsample.optimizers.loop import advance, loop
from dpsample.optimizers.loop.batches import Full, Poisson, Slices
from dpsample.optimizers.loop.estimators import ClippedMean, Mean
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise, NoNoise
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.steps import AcceleratedStep, GradientStep
from dpsample.problem.problem import Problem
from dpsample.running import descent
from tests.support.clipped_cases import (
    batch,
    clipped,
    into_ball,
    logistic,
    logistic_gradients,
    rows_and_labels,
)
from tests.support.descents import descend, feasible_set
from tests.support.statistics import assert_mean, rejected


def run(problem, seed=0, **fields):
    step = fields.pop("step", GradientStep(0.5))
    recipe = Recipe(phases=(Loop(step=step, **fields),), event=None, inputs={})
    return descend(problem, recipe, np.random.default_rng(seed))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("batches", [Full(), Slices(size=1300, is_shuffled=True)])
def test_clipped_mean_is_the_mean_of_clipped_gradients(layout, batches):
    rows, labels = rows_and_labels(1300, 4)
    rows[np.abs(rows) < 0.1] = 0.0
    offset = np.linspace(-1.0, 1.0, 1300)
    problem = Problem(
        sparse.csr_array(rows) if layout == "sparse" else rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        offset=offset,
        offset_bound=1.0,
    )
    w, size, threshold = np.zeros(4), 0.7, 0.25
    for _ in range(3):
        slopes = -labels / (1.0 + np.exp(labels * (rows @ w + offset)))
        w = w - size * clipped(slopes[:, None] * rows, threshold).mean(axis=0)
        if isinstance(batches, Slices):
            break  # one slice holds all records
    found = run(
        problem,
        num_steps=1 if isinstance(batches, Slices) else 3,
        step=GradientStep(size),
        batches=batches,
        estimator=ClippedMean(threshold=threshold),
    )
    np.testing.assert_allclose(found.theta, w, rtol=0.0, atol=1e-14)


def test_poisson_sums_are_divided_by_the_expected_size():
    problem = logistic(40, 2, domain=dps.domains.WholeSpace())
    rate, size = 0.2, 1.0
    found = run(
        problem,
        seed=3,
        num_steps=1,
        batches=Poisson(rate=rate),
        step=GradientStep(size),
    )
    rng = np.random.default_rng(3)
    chosen = batch(Poisson(rate=rate), 40, 0, rng)
    gradients = logistic_gradients(
        problem.data.dense, problem.data.response, np.zeros(2)
    )[chosen]
    expected = -size * gradients.sum(axis=0) / (rate * 40)
    assert len(chosen) not in (0, 8) and found.num_gradients == len(chosen)
    np.testing.assert_allclose(found.theta, expected, rtol=1e-13)


def test_noise_is_drawn_once_a_step_with_its_stated_law():
    problem = logistic(5, 1, domain=dps.domains.WholeSpace())
    step, stddev, steps = GradientStep(0.25), 2.0, 3
    quiet = run(problem, num_steps=1, step=step, estimator=ClippedMean(threshold=0.0))
    assert quiet.theta[0] == 0.0
    phase = Loop(
        num_steps=steps,
        step=step,
        estimator=ClippedMean(threshold=0.0),
        noise=GaussianNoise(stddev),
    )
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    program = descent.Program(problem, recipe)
    ends = np.array([program.run(rng).theta[0] for rng in streams(0, 1900)])
    variance = steps * (0.25 * stddev) ** 2
    assert_mean(ends, 0.0, variance, detects=0.3)
    assert_mean(ends**2 / variance, 1.0, 2.0, detects=0.3)
    with rejected():  # one draw for all steps
        assert_mean((3.0 * ends / np.sqrt(3.0)) ** 2 / variance, 1.0, 2.0, detects=0.3)


def points_of_both(rng, domain, center, radius):
    """Points of the domain cut by a ball, many of them on its boundary."""
    directions = rng.standard_normal((4000, len(center)))
    directions *= radius / np.linalg.norm(directions, axis=1)[:, None]
    scales = rng.random(4000) ** 0.2
    points = center + np.concatenate((scales[:, None] * directions, directions))
    shrunk = points / np.maximum(1.0, domain.gauge(points) * (1.0 + 1e-12))[:, None]
    near = np.linalg.norm(shrunk - center, axis=1) <= radius
    return shrunk[near]


def into_both(domain, radius, center, point):
    """Project by the kernel of the loop."""
    memory, moved = new_memory(len(point)), point.copy()
    memory.ball_center[:] = center
    advance.into_both(feasible_set(domain, len(point)), radius, memory, moved)
    return moved


@pytest.mark.parametrize(
    "domain",
    [
        dps.domains.Ball(1.0),
        dps.domains.Box(np.full(3, -0.6), np.full(3, 0.8)),
        dps.domains.Ball(1.0, p=1.0),
    ],
    ids=["ball", "box", "l1"],
)
def test_projection_on_domain_and_local_ball_is_the_nearest_point(domain):
    dim, radius, rng = 3, 0.5, np.random.default_rng(7)
    center = domain.project(np.array([0.7, 0.5, -0.2]))
    others = points_of_both(rng, domain, center, radius)
    assert len(others) > 500
    worst_of_cycling = -np.inf
    for _ in range(12):
        point = center + 1.5 * rng.standard_normal(dim)
        moved = into_both(domain, radius, center, point)
        assert domain.contains(moved)
        assert np.linalg.norm(moved - center) <= radius * (1.0 + 1e-10)
        # Nearest means: no other point lies on the far side of the tangent plane.
        assert np.max((others - moved) @ (point - moved)) <= 1e-7
        cycled = domain.project(into_ball(point, radius, center))
        beyond = np.max((others - cycled) @ (point - cycled))
        worst_of_cycling = max(worst_of_cycling, beyond)
    assert worst_of_cycling > 1e-3  # projecting on one and then the other is wrong


@pytest.mark.parametrize("poking", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("length", [1.5, 10.0])
def test_points_near_the_corner_of_two_balls_stay_together(poking, length):
    """Where a ball pokes out of another one, points go to the corner or beside it."""
    radius = 0.5
    a = 1.0 - radius + poking * radius
    x = (1.0 + a * a - radius**2) / (2.0 * a)
    corner, angle = np.array([x, math.sqrt(1.0 - x * x)]), math.acos(x)
    for turn in (-1e-9, 1e-9):
        point = length * np.array([math.cos(angle + turn), math.sin(angle + turn)])
        found = into_both(dps.domains.Ball(1.0), radius, np.array([a, 0.0]), point)
        assert np.linalg.norm(found - corner) <= 2e-9


def test_local_ball_may_stay_where_the_first_phase_had_it():
    problem = Problem(
        np.array([[1.0, 0.0]]),
        np.array([1.0]),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(5.0),
        row_bound=1.0,
    )
    step = GradientStep(50.0, local_radius=0.5)
    phases = tuple(
        Loop(num_steps=3, step=step, keeps_ball=keeps) for keeps in (False, True)
    )
    recipe = Recipe(phases=phases, event=None, inputs={}, start=np.array([0.3, 0.0]))
    end = descend(problem, recipe, np.random.default_rng(0)).theta
    np.testing.assert_allclose(end, [0.8, 0.0], rtol=1e-12)
    moving = Recipe(
        phases=(phases[0],) * 2, event=None, inputs={}, start=np.array([0.3, 0.0])
    )
    far = descend(problem, moving, np.random.default_rng(0)).theta
    np.testing.assert_allclose(far, [1.3, 0.0], rtol=1e-12)


def test_average_weighs_the_iterates_after_each_step():
    problem = logistic(50, 3, domain=dps.domains.Ball(0.4))
    rows, labels = problem.data.dense, problem.data.response
    weights = np.array([1.0, 0.0, 3.0, 2.0])
    w, iterates = np.zeros(3), []
    for _ in weights:
        w = into_ball(w - 2.0 * logistic_gradients(rows, labels, w).mean(axis=0), 0.4)
        iterates.append(w)
    found = run(problem, num_steps=4, step=GradientStep(2.0), weights=weights)
    expected = weights @ np.array(iterates) / weights.sum()
    np.testing.assert_allclose(found.theta, expected, rtol=0.0, atol=1e-14)


def test_accelerated_steps_are_the_textbook_recursion():
    problem = logistic(60, 3, domain=dps.domains.Ball(0.5))
    rows, labels = problem.data.dense, problem.data.response
    eta, num_steps, size = 0.4, 6, 10
    w = ag = np.zeros(3)
    for t in range(1, num_steps + 1):
        alpha = 2.0 / (t + 1.0)
        part = slice((t - 1) * size, t * size)
        md = (1.0 - alpha) * ag + alpha * w
        g = clipped(logistic_gradients(rows[part], labels[part], md), 0.3).mean(axis=0)
        w = into_ball(w - t / (2.0 * eta) * g, 0.5)
        ag = alpha * w + (1.0 - alpha) * ag
    found = run(
        problem,
        num_steps=num_steps,
        step=AcceleratedStep(eta),
        batches=Slices(size=size),
        estimator=ClippedMean(threshold=0.3),
    )
    np.testing.assert_allclose(found.theta, ag, rtol=0.0, atol=1e-14)
    assert found.num_gradients == 60


@pytest.mark.slow
def test_compiled_loop_equals_the_interpreted_one(monkeypatch):
    problem = logistic(30, 2)
    fields = {
        "num_steps": 4,
        "batches": Poisson(rate=0.4),
        "estimator": ClippedMean(threshold=0.3),
        "noise": GaussianNoise(0.1),
    }
    compiled = run(problem, **fields)
    steps = getattr(loop.take_steps, "py_func", loop.take_steps)
    monkeypatch.setattr(descent, "descend", steps)
    interpreted = run(problem, **fields)
    np.testing.assert_allclose(compiled.theta, interpreted.theta, rtol=1e-13)
    assert compiled.num_gradients == interpreted.num_gradients


def test_every_loop_has_the_same_compiled_type():
    problem = logistic(20, 2)
    for step in (GradientStep(0.1), AcceleratedStep(1.0)):
        for batches in (Full(), Poisson(rate=0.5), Slices(size=5, is_shuffled=True)):
            for estimator in (Mean(), ClippedMean(threshold=1.0)):
                run(
                    problem,
                    num_steps=2,
                    step=step,
                    batches=batches,
                    estimator=estimator,
                    weights=np.ones(2) if step is GradientStep else None,
                    noise=NoNoise(),
                )
    if hasattr(loop.descend, "signatures"):
        assert len(loop.descend.signatures) == 1


@pytest.mark.parametrize("batches", [Full(), Slices(size=1), Poisson(rate=0.1)])
def test_a_loop_leaves_the_reference_counts_of_its_arguments_alone(batches):
    problem = logistic(200, 3)
    loops = (Loop(num_steps=200, step=GradientStep(0.1), batches=batches),)
    program = descent.Program(problem, Recipe(phases=loops, event=None, inputs={}))
    rng = np.random.default_rng(0)
    kept = (problem.data.dense, problem.data.response, problem.data.loss_params, rng)
    before = [sys.getrefcount(one) for one in kept]
    for _ in range(5):
        program.run(rng)
    after = [sys.getrefcount(one) for one in kept]
    assert after == before


def test_what_is_kept_of_a_problem_is_of_its_facts_now():
    """Steps on an old domain, or with an old loss, would have noise for another one."""
    problem = logistic(20, 2)
    phases = (Loop(num_steps=1, step=GradientStep(9.0)),)
    recipe = Recipe(phases=phases, event=None, inputs={})
    far = descend(problem, recipe, np.random.default_rng(1)).theta
    problem.facts = replace(problem.facts, domain=dps.domains.Ball(1e-3))
    near = descend(problem, recipe, np.random.default_rng(1)).theta
    assert np.linalg.norm(near) <= 1e-3 * (1.0 + 1e-12) < np.linalg.norm(far)


def test_output_noise_has_reach_from_what_was_released_and_from_nothing_else():
    problem = logistic(20, 1, domain=dps.domains.Ball(1.0))
    stddev = 1e-14  # a reach of 0.02
    loud = Loop(num_steps=1, step=GradientStep(1e-9), output_stddev=stddev)
    silent = Loop(num_steps=1, step=GradientStep(1e-9))
    start = np.array([0.7])

    def end(*phases):
        recipe = Recipe(phases=phases, event=None, inputs={}, start=start)
        return descend(problem, recipe, np.random.default_rng(0)).theta[0]

    for phases in ((loud,), (loud, loud), (silent, loud)):
        assert abs(end(*phases) - 0.7) < 1e-8
    # Where the second phase starts is as private as its end, and too far from 0.7.
    leap, far = (
        replace(silent, step=GradientStep(1.0)),
        MAX_QUERY_STEPS * grid_step(stddev),
    )
    assert abs(end(leap, silent) - 0.7) > 2.0 * far
    assert abs(abs(end(leap, loud) - 0.7) - far) < 10.0 * stddev
