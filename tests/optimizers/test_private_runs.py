"""Private runs on records that hold anything: they end, and their noise is there."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample import optimizers as opt
from dpsample.api.minimize import minimize
from dpsample.domains import Ball
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.optimizers.loop.solve import TiltedObjective, enough_steps
from dpsample.running import descent
from tests.support.extreme_records import TINY, others, problem
from tests.support.tiers import one_in

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


# P1
def test_no_record_switches_off_the_choice_of_a_vertex() -> None:
    method = opt.HeavyTailedFrankWolfe(num_steps=1)
    second = []
    for response in (0.0, 1e103):
        rows, y = others(60, (0.5, 0.0), response)
        p = problem(rows, y, domain=Ball(1.0, p=1.0))
        recipe = method.recipe(p.facts, BUDGET)
        program = descent.Program(p, recipe)
        ends = [program.run(np.random.default_rng(s)).theta for s in range(400)]
        second.append(sum(end[1] != 0.0 for end in ends))
    # Pure epsilon = 1: rates differ by at most a factor e, 5 standard errors aside.
    assert second[0] > 150
    assert second[1] >= second[0] / math.e - 5.0 * math.sqrt(second[0] / math.e)


METHODS = (
    opt.DPSGD(sampling_rate=0.5, num_steps=3, clip=0.5, step_size=0.1),
    opt.NoisyGD(num_steps=3, clip=0.5),
    opt.NoisySGD(num_steps=3, batch_size=20, clip=0.5),
    opt.ClippedGD(num_steps=3, clip=0.5),
    opt.ClippedGD(num_steps=3, clip=0.5, noise="steps", step_size=0.1),
    opt.LocalizedClippedGD(clip=0.5, moment=1.0),
    opt.PrivateStochasticApproximation(clip=0.5, moment=1.0),
    opt.IteratedLocalizedClippedGD(clip=0.5, moment=1.0),
    opt.AcceleratedClippedSGD(clip=0.5, moment=1.0),
    opt.IteratedAcceleratedClippedSGD(clip=0.5, moment=1.0),
    opt.TruncatedMirrorDescent(
        num_steps=3, threshold=0.5, step_size=0.1, moment=1.0, smoothness=1.0
    ),
    *(
        opt.PrivateProximalSGD(
            estimator=word, threshold=0.5, num_steps=3, smoothness=1.0, batch_size=20
        )
        for word in ("clip", "bucketed_median", "catoni")
    ),
)


# P2
@one_in(3)
@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("response", [1e103, -1e308, TINY])
def test_no_record_ends_a_private_run(method: Optimizer, response: float) -> None:
    for row in ((0.5, 0.0), (TINY, 1e-310), (0.0, 0.0)):
        rows, y = others(60, row, response)
        fit = minimize(problem(rows, y), method, BUDGET, seed=1)
        assert np.isfinite(fit.theta).all()


# P2
@pytest.mark.parametrize(
    "method",
    [
        opt.ProxGD(num_steps=3),
        opt.SVRG(),
        opt.ObjectivePerturbation(),
        opt.ApproximateObjectivePerturbation(ridge=0.1, solver="svrg"),
        opt.PhasedSGD(),
        opt.NoisyGD(num_steps=3),
    ],
    ids=repr,
)
def test_no_record_ends_a_run_that_trusts_a_lipschitz_constant(
    method: Optimizer,
) -> None:
    for response in (1e308, -1e308, TINY):
        for row in ((0.5, 0.0), (TINY, 1e-310), (0.0, 0.0)):
            rows, y = others(60, row, response)
            p = problem(rows, y, losses.Huber(), response_bound=None)
            assert np.isfinite(minimize(p, method, BUDGET, seed=1).theta).all()


def test_without_noise_a_run_fails_loudly() -> None:
    rows, y = others(60, (0.5, 0.0), 1e103)
    method = opt.NoisyGD(num_steps=3, clip=0.5)
    with pytest.raises(descent.DescentError, match="NaN or infinite"):
        minimize(problem(rows, y), method, None)


# P2
def test_a_private_solver_stops_where_its_steps_are_the_proof() -> None:
    rows, y = others(60, (0.5, 0.0), 0.3)
    for solver in ("accelerated", "svrg"):
        method = opt.ApproximateObjectivePerturbation(
            ridge=0.5, gap=1e-60, solver=solver
        )
        p = problem(rows, y, losses.Huber(), response_bound=None)
        assert np.isfinite(minimize(p, method, BUDGET, seed=1).theta).all()


def test_enough_steps_prove_the_gap_of_a_quadratic() -> None:
    rng = np.random.default_rng(3)
    for condition in (1.0, 30.0, 1e4):
        curvature = np.geomspace(1.0 / condition, 1.0, 6)
        target, w = rng.standard_normal(6), np.zeros(6)
        constants = TiltedObjective(
            tilt=np.zeros(6),
            center=np.zeros(6),
            ridge=1.0 / condition,
            smoothness=1.0,
            gap=1e-8,
        )
        size = float(np.linalg.norm(curvature * target))
        root = math.sqrt(condition)
        momentum, ahead = (root - 1.0) / (root + 1.0), w
        for _ in range(enough_steps(constants, size, w)):
            following = ahead - curvature * (ahead - target)
            ahead = following + momentum * (following - w)
            w = following
        assert 0.5 * (curvature * (w - target) ** 2).sum() <= 1e-8


# P1
def test_a_scale_that_would_switch_off_the_noise_is_refused() -> None:
    rows, y = others(60, (0.5, 0.0), 0.3)
    p = problem(rows, y, domain=Ball(1.0, p=1.0))
    with pytest.raises(ValueError, match="must be"):
        minimize(p, opt.HeavyTailedFrankWolfe(scale=1e-320), BUDGET)
