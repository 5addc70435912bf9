"""A user's own loss: declared facts, its own values, refusals at the probe points."""

import copy
import importlib
import json
import math
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

from dpsample import losses


def pseudo_huber(**changes):
    arguments = {
        "value": lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
        "slope": lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        "slope_bound": 1.0,
    } | changes
    return losses.custom(arguments.pop("value"), arguments.pop("slope"), **arguments)


def test_a_custom_loss_has_the_declared_facts_and_its_own_values():
    loss = pseudo_huber(upper_curvature=1.0, third_derivative_bound=0.9, name="mine")
    u, y = np.random.default_rng(1).uniform(-3.0, 3.0, (2, 100))
    np.testing.assert_allclose(loss.value(u, y), np.hypot(1.0, u - y), rtol=1e-15)
    assert loss.slope_bound(5.0, 2.0) == 1.0
    assert loss.third_derivative_bound(5.0, 2.0) == 0.9
    low, high = loss.curvature(u, u + 1.0, y)
    assert np.all(low == 0.0) and np.all(high == 1.0) and low.shape == u.shape
    assert np.all(np.abs(loss.prox(u, y, 0.5) - u) <= 0.5)
    read = losses.from_dict(json.loads(json.dumps(loss.to_dict())))
    assert read == loss and read.label == "mine"


def test_a_custom_loss_read_from_a_file_has_no_values():
    read = losses.from_dict(pseudo_huber(name="mine").to_dict())
    with pytest.raises(ValueError, match=r"with its functions, got mine\.$"):
        read.value(0.0, 0.0)


def test_a_custom_loss_takes_compiled_functions():
    value = numba.njit(lambda u, y: 0.5 * abs(u - y))
    slope = numba.njit(lambda u, y: 0.5 * np.sign(u - y))
    loss = losses.custom(value, slope, slope_bound=0.5)
    assert loss.value(3.0, 1.0) == 1.0 and loss.slope(3.0, 1.0) == 0.5


def test_a_copy_of_a_loss_is_compared_with_its_declarations_again(monkeypatch):
    """In another process its functions read what a global holds by then."""
    module = importlib.import_module("dpsample.losses.custom")
    compared, compare = [], module.compare

    def counted(loss, *bounds):
        compared.append(loss)
        return compare(loss, *bounds)

    monkeypatch.setattr(module, "compare", counted)
    loss = pseudo_huber()
    for _ in range(2):
        loss.check_declarations(1.0, 1.0)
    assert len(compared) == 1
    ways = [copy.copy, copy.deepcopy]
    if not numba.config.DISABLE_JIT:  # plain closures do not travel
        ways.append(lambda loss: pickle.loads(pickle.dumps(loss)))
    for way in ways:
        again = way(loss)
        again.check_declarations(1.0, 1.0)
        assert compared[-1] is again
        assert (again.value(3.0, 1.0), again.slope(3.0, 1.0)) == (
            loss.value(3.0, 1.0),
            loss.slope(3.0, 1.0),
        )


def raising(u, y):
    if u > 5.0:
        raise RuntimeError("no value here")
    return abs(u)


BAD_CUSTOM = {
    "slope that raises": ({"slope": lambda u, y: "one"}, "scalar functions of"),
    "one argument": ({"value": lambda u: u}, "scalar functions of"),
    "an array": ({"value": lambda u, y: np.ones(2)}, "scalar functions of"),
    "not a function": ({"value": 3.0}, "value must be a Python or Numba function"),
    "a builtin": ({"slope": math.fabs}, "Wrap it"),
    "a print": ({"value": lambda u, y: (print(u), abs(u))[1]}, "free of print"),
    "zero slope bound": ({"slope_bound": 0.0}, "slope_bound must be > 0, got 0"),
    "NaN slope bound": ({"slope_bound": math.nan}, "slope_bound must be > 0, got nan"),
    "negative curvature": ({"lower_curvature": -1.0}, "lower_curvature must be"),
    "curvatures in the wrong order": (
        {"lower_curvature": 1.0, "upper_curvature": 0.5},
        "upper_curvature must be >= 1, got 0.5",
    ),
    "negative third derivative": (
        {"third_derivative_bound": -1.0},
        "third_derivative_bound must be >= 0",
    ),
    "labels in words": ({"labels": "yes"}, "labels must be a bool, got 'yes'"),
}


@pytest.mark.parametrize("case", BAD_CUSTOM)
def test_a_custom_loss_that_makes_no_sense_is_refused(case):
    changes, words = BAD_CUSTOM[case]
    with pytest.raises(ValueError, match=words) as caught:
        pseudo_huber(**changes)
    assert " must be " in str(caught.value) and ", got " in str(caught.value)


MINE = """
from dataclasses import dataclass
from dpsample.losses import Loss

@dataclass(frozen=True)
class Mine(Loss):
    @staticmethod
    def _scalar(params, u, y):
        return {0} * u * u, {1} * u
"""


@pytest.mark.slow
def test_the_cache_on_disk_serves_no_stale_loss_of_the_user(tmp_path):
    call = "import mine; print(mine.Mine().value([1.0], [0.0])[0])"
    for factor in (1.0, 5.0):
        (tmp_path / "mine.py").write_text(MINE.format(factor, 2.0 * factor))
        run = [sys.executable, "-B", "-c", call]
        told = subprocess.check_output(run, cwd=tmp_path, text=True)
        assert told.strip() == str(factor)
