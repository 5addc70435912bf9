"""The table of measured risks: quick mode, all optimizers, planted bounds."""

import dataclasses
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def table():
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location(
        "optimizer_risk", FOLDER / "optimizer_risk.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    for name in (spec.name, "risk_cases", "risk_instances"):
        del sys.modules[name]
    sys.path[:] = before


@pytest.fixture
def at(table):
    return sys.modules["risk_instances"]


def test_every_public_optimizer_is_in_the_table(table):
    shown = {type(case.method).__name__ for case in table.cases()}
    assert shown == set(dps.optimizers.__all__)


def test_quick_mode_finds_every_risk_below_its_bound(table, capsys):
    assert table.main(["--quick", "--replicates", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == table.HEADER
    assert lines[-1].startswith("6 rows, 0 refuted")


def test_a_planted_bound_is_refuted(table, capsys):
    case = table.cases()[1]
    low = dataclasses.replace(case, bound=lambda facts, budget: 1e-3)
    assert table.main(["--quick", "--replicates", "5"], [low]) == 1
    assert "REFUTED" in capsys.readouterr().out


def test_a_risk_that_grows_is_refuted(table, at):
    point = np.zeros(10)

    def make(num_records, rng):
        found = at.linear_sample(num_records, rng)
        return found._replace(excess=lambda theta: num_records + 0.0 * (theta @ point))

    case = table.cases()[1]
    grown = dataclasses.replace(
        case, make=make, bound=lambda facts, budget: math.inf, budgets=(None,)
    )
    rows = list(table.measure(grown, 100, 3))
    assert [row.is_refuted for row in rows] == [False, True]


def test_excess_risks_are_zero_at_the_minimizers_and_positive_elsewhere(at):
    rng, cases = np.random.default_rng(1), sys.modules["risk_cases"]
    best = np.full(10, 0.5 / math.sqrt(10.0)) * at.BELOW
    assert abs(at.mean_estimation(50, rng).excess(best)) < 1e-15
    for make, dim in (
        (at.clipped_lasso, 20),
        (at.huber_lasso(at.CLIP), 20),
        (at.linear_sample, 10),
        (cases.hinge, 4),
        (cases.linear, 10),
        (cases.logistic, 10),
    ):
        problem, excess = make(200, rng)
        for _ in range(50):
            point = problem.domain.project(rng.standard_normal(dim))
            assert excess(point) > 0.0
