"""An algorithm brings a piece in its own file: nothing else is edited or compiled."""

import importlib.util
import re
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.compiler import CompilerBase

import dpsample as dps
from dpsample.optimizers import ClippedGD
from tests.support.clipped_cases import BUDGET, clipped, logistic, logistic_gradients

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FIELDS = {"num_steps": 4, "clip": 0.3, "step_size": 0.7}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The module of the recipe for a piece of one's own."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    path = tmp_path / "heavy_ball.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("heavy_ball", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "heavy_ball", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compiled(monkeypatch):
    """Names of what is compiled for its own sake, not as a part of another function."""
    names, depth, compile_core = [], 0, CompilerBase._compile_core

    def counted(compiler):
        nonlocal depth
        if depth == 0:
            names.append(compiler.state.func_id.func_qualname)
        depth += 1
        try:
            return compile_core(compiler)
        finally:
            depth -= 1

    monkeypatch.setattr(CompilerBase, "_compile_core", counted)
    return names


def test_a_step_of_its_own_file_is_the_textbook_one(recipe):
    problem = logistic(40, 3, domain=dps.domains.Ball(0.4))
    rows, labels = problem.data.dense, problem.data.response
    w, v = np.zeros(3), np.zeros(3)
    for _ in range(4):
        gradients = logistic_gradients(rows, labels, w)
        v = 0.5 * v - 0.7 * clipped(gradients, 0.3).mean(axis=0)
        w = problem.domain.project(w + v)
    found = dps.minimize(problem, recipe.HeavyBallGD(**FIELDS), None, seed=1)
    np.testing.assert_allclose(found.theta, w, rtol=0.0, atol=1e-14)
    private = dps.minimize(problem, recipe.HeavyBallGD(**FIELDS), BUDGET, seed=1)
    assert private.certificate.epsilon_proved <= BUDGET.epsilon * (1.0 + 1e-9)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_only_the_new_piece_is_compiled(recipe, compiled):
    problem = logistic(40, 3)
    dps.minimize(problem, ClippedGD(noise="steps", **FIELDS), BUDGET, seed=1)
    compiled.clear()
    dps.minimize(problem, recipe.HeavyBallGD(**FIELDS), BUDGET, seed=1)
    assert compiled == ["heavy_ball_step"]
    compiled.clear()
    dps.minimize(problem, recipe.HeavyBallGD(**FIELDS), BUDGET, seed=1)
    assert compiled == []
