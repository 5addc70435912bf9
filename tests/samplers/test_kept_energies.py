"""Energies of samplers whose moves are cut so that they stay inside."""

from __future__ import annotations

import numpy as np
import pytest

from dpsample.samplers import CoordinateHitAndRun, HitAndRun, WhitenedSlice
from dpsample.samplers.adaptive import whitened_slice
from dpsample.samplers.coordinate import (
    coordinate_hit_and_run,
    coordinate_moves,
    hit_and_run,
    slacks,
)
from dpsample.samplers.errors import OK
from dpsample.samplers.univariate import line
from tests.support.line_targets import D, L, R, target

CASES = {
    "logistic": target(L.Logistic(), D.Ball(1.0, p=1.5), 4),
    "other norm": target(
        L.Logistic(), D.Ball(1.0, p=1.5), 4, regularizer=R.SquaredNorm(1.5)
    ),
    "hinge": target(L.Hinge(), D.SchattenBall(1.0, p=1.0, shape=(2, 2)), 4),
    "squared": target(L.Squared(), D.SchattenBall(1.0, p=1.0, shape=(2, 2)), 4),
}


def half_a_move(numbers, pieces, state, t):
    """Move half as far, as if rounding errors were large."""
    state.position[:] += 0.5 * t * state.vectors[1]
    return 0.5 * t


def interpret(module, monkeypatch):
    """Replace the kernels that a module names by their Python functions."""
    for name, value in list(vars(module).items()):
        if hasattr(value, "py_func"):
            monkeypatch.setattr(module, name, value.py_func)


def slide_once(numbers, pieces, plan, state, rng):
    assert whitened_slice.synchronize(numbers, pieces, plan, state) == OK
    return whitened_slice.slide.py_func(numbers, pieces, plan, state, 0, rng)


STEPS = {
    "hit-and-run": (HitAndRun(), hit_and_run.step),
    "coordinates": (CoordinateHitAndRun(), coordinate_hit_and_run.step),
    "slices": (WhitenedSlice(), slide_once),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", STEPS)
def test_the_energy_is_that_of_the_point_that_is_kept(name, case, monkeypatch):
    (sampler, step), given = STEPS[name], CASES[case]
    prepared = sampler.prepare(given, np.random.default_rng(0))
    state = prepared.init(given.problem.domain.interior_point(4))
    monkeypatch.setattr(line, "move_inside", half_a_move)
    # Compiled, it has no result for Python.
    monkeypatch.setattr(line, "line_of", line.line_of.py_func)
    plan = prepared.plan
    if name == "coordinates":
        interpret(coordinate_hit_and_run, monkeypatch)
        interpret(coordinate_moves, monkeypatch)
        plan = plan._replace(body=plan.body._replace(kind=slacks.KIND.chord))
    rng = np.random.default_rng(1)
    for _ in range(3):
        code = step(given.numbers, given.pieces, plan, state, rng)
        assert code == OK
        assert state.energy[0] == pytest.approx(given.energy(state.position), rel=1e-12)
