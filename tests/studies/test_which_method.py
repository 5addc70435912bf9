"""What pages on methods say of the rows of the study, and the rivals that it has."""

import numpy as np
import pytest

import dpsample as dps
from studies import _method_pages as pages
from studies import _public_records as records
from studies import which_method

rivals = which_method.rivals


@pytest.fixture(scope="module")
def frame():
    return pages.verdict_frame()


@pytest.mark.slow
def test_pages_have_the_tables_of_the_rows(frame):
    text = pages.PAGE.read_text("utf-8")
    assert pages.fill_tables(text, frame) == text
    questions = pages.QUESTIONS.read_text("utf-8")
    by_size = (("by size", pages.by_size),)
    assert pages.fill_tables(questions, frame, by_size) == questions
    num_near, total = int((~frame.lost).sum()), len(frame)
    readme = (pages.ROOT / "README.md").read_text("utf-8")
    for page in (readme, text):
        assert f"{num_near:,} of {total:,}" in " ".join(page.split())


def test_the_advice_knows_no_record():
    table = which_method.table_of("synthetic", "logistic", 3000, "replace_one", 0.1)
    names = {which_method.name_of(row, "logistic") for row in table}
    assert {"labels first", "scaled, calibrated", "pure, calibrated"} < names
    assert which_method.name_of(table[0], "logistic") == "labels first"
    assert records.use_of("casp19") == records.use_of("wage1500") == "develop"
    assert records.use_of("blog10") == records.use_of("randhie500") == "confirm"


def test_rivals_are_exact_without_noise_and_stay_in_the_ball():
    # At an epsilon of 1e9 noise is far below the tolerance.
    data = records.load("synthetic")
    rows, labels = data.rows[:800], data.y[:800]
    for name, loss in records.LOSSES.items():
        problem = dps.Problem(
            rows,
            labels,
            loss=loss,
            domain=dps.domains.Ball(2.0),
            row_bound=1.0,
            response_bound=1.0,
        )
        best = dps.minimizer(problem, progress=False).value
        zero = problem.risk(np.zeros(problem.dim)) - best
        budget = dps.Budget(epsilon=1e9, delta=1e-6)
        task = rivals.Task(problem, budget, rows, labels)
        for method in rivals.RIVALS[name].values():
            (theta,) = method(task, [np.random.default_rng(0)])
            assert np.linalg.norm(theta) <= 2.0 + 1e-12
            # One pass of small batches and parabolas for losses are not exact.
            share = 0.5 if method in (rivals.ftrl, rivals.pass_glm) else 0.15
            assert problem.risk(theta) - best < share * zero


def test_noise_of_rivals_has_the_sensitivity_of_the_relation():
    data = records.load("synthetic")
    problem = records.unit_problem_of("synthetic", records.LOSSES["logistic"], 800)
    spreads = {}
    for relation in ("replace_one", "zero_out"):
        budget = dps.Budget(epsilon=1.0, delta=1e-6, relation=relation)
        task = rivals.Task(problem, budget, data.rows[:800], data.y[:800])
        assert task.sensitivity == (2.0 if relation == "replace_one" else 1.0)
        spreads[relation] = task.sensitivity / task.gdp
    assert spreads["replace_one"] == 2.0 * spreads["zero_out"]
