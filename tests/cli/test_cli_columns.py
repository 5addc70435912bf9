"""Columns at the command line: by name, all checks before the draw, rules told."""

import json

import numpy as np
import pytest

import dpsample as dps
from dpsample import cli
from dpsample.cli import release

BOUNDS = """
ignore = ["id"]

[numeric]
a = [-1, 1]
b = [0, 10]

[categorical]
c = ["u", "v"]
ill = ["no", "yes"]
"""
BUDGET = ("--epsilon", "2", "--delta", "1e-5", "--radius", "2", "--seed", "1")


def table(header="a,b,c,ill", num_rows=80):
    """Records whose columns stand in the order of the header."""
    rng = np.random.default_rng(5)
    lines = [header]
    for i, (a, b) in enumerate(rng.uniform(size=(num_rows, 2))):
        record = {"id": i, "a": 2 * a - 1, "b": 10 * b, "c": "uv"[int(b > 0.5)]}
        record["d"] = 0.1
        record["ill"] = "yes" if a + 0.3 * b > 0.6 else "no"
        lines.append(",".join(str(record[name]) for name in header.split(",")))
    return "\n".join(lines)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    (tmp_path / "train.csv").write_text(table())
    return tmp_path


@pytest.fixture
def no_draw(monkeypatch):
    """Whatever is wrong has to be found before this is called."""

    def too_late(*_, **__):
        raise AssertionError("a draw was made")

    monkeypatch.setattr(release.dps, "release", too_late, raising=False)


def run(folder, *more):
    options = ("--target", "ill", "--positive-label", "yes")
    bounds = ("--bounds", str(folder / "bounds.toml"))
    return cli.main(
        ["release", str(folder / "train.csv"), *BUDGET, *options, *bounds, *more]
    )


def evaluation(text):
    """Cells of the table of the second file."""
    lines = [line.split("\u2502") for line in text.splitlines() if "test.csv" in line]
    return [[cell.strip() for cell in line[2:]] for line in lines]


def test_evaluate_matches_columns_by_name(files, capsys):  # U1
    shown = []
    for header in ("a,b,c,ill", "ill,c,b,a", "b,id,ill,a,c"):
        (files / "test.csv").write_text(table(header))
        assert run(files, "--evaluate", str(files / "test.csv")) == 0
        shown.append(evaluation(capsys.readouterr().out))
    assert len(shown[0]) == 2 and shown[0] == shown[1] == shown[2]


BAD_TESTS = {
    "missing": ("a,c,ill", "column 'b' must be in the table"),
    "undeclared": ("a,b,c,d,ill", "column 'd' must be declared in the bounds"),
    "no response": ("a,b,c", "target must be one of the columns"),
    "twice": ("a,b,c,a,ill", "two named 'a'"),
}


@pytest.mark.parametrize("case", BAD_TESTS)
def test_a_bad_evaluation_file_is_found_before_the_draw(files, capsys, no_draw, case):
    # U4
    header, message = BAD_TESTS[case]
    (files / "test.csv").write_text(table(header))
    assert run(files, "--evaluate", str(files / "test.csv")) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert "--evaluate" in err and "test.csv" in err


def test_evaluation_labels_and_rows_are_checked_before_the_draw(
    files, capsys, no_draw
):  # U4
    (files / "n.csv").write_text("x,y\n0.5,1\n0.1,-1\n")
    arguments = ["release", str(files / "n.csv"), *BUDGET, "--target", "y"]
    arguments += ["--row-bound", "1", "--evaluate", str(files / "m.csv")]
    for text, message in {
        "x,y\n0.5,0\n": "response must be -1 or 1, got 0",
        "x,y\n5,1\n": "row_bound = 1",
        "y\n1\n": "none named 'x'",
        "z,y\n1,1\n": "none named 'x'",
        "x,z,y\n1,1,1\n": "also 'z'",
        "x,y\n": "a table with records",
        "x,y\n,1\n": "column 'x' must be complete",
        "": "a CSV table",
    }.items():
        (files / "m.csv").write_text(text)
        assert cli.main(arguments) == 2, text
        err = capsys.readouterr().err
        assert message in err and err.count("\n") == 1


def test_a_column_of_the_bounds_that_the_file_lacks_is_an_error(
    files, capsys, no_draw
):  # U4
    more = BOUNDS.replace("b = [0, 10]", "b = [0, 10]\nbmi = [10, 60]")
    (files / "bounds.toml").write_text(more)
    assert run(files) == 2
    assert "column 'bmi' must be in the table, as the" in capsys.readouterr().err


RULES = {
    (): (
        "numeric 'a', 'b': from public ranges to [-1, 1]; a number outside is an error",
        "categorical 'c': one indicator per public level; another level is an error",
        "a row above row_bound = 1 is an error",
    ),
    ("--clip-rows",): (
        "a number outside is moved to the nearer end",
        "another level gives zeros in all of them",
        "a row above row_bound = 1 is scaled down to it",
    ),
    ("--scale", "0.5"): ("features are multiplied by 0.5", "row_bound = 0.5"),
}


@pytest.mark.parametrize("options", RULES)
def test_what_encoding_did_is_said_before_the_draw(files, capsys, monkeypatch, options):
    # U4
    drawn = []

    def draw(*arguments, **settings):
        drawn.append(capsys.readouterr().out)
        return real(*arguments, **settings)

    real = dps.release
    monkeypatch.setattr(release.dps, "release", draw, raising=False)
    assert run(files, *options) == 0
    text = " ".join(drawn[0].split())
    for rule in (*RULES[options], "a missing value is an error", "ignored: 'id'"):
        assert rule in text
    assert "'yes' becomes 1, every other public level -1; another" in text


def test_the_rules_say_the_same_of_other_records(files, capsys):  # U4
    texts, output = [], ("--output", str(files / "o.json"))
    wild = table() + "\n99,-5,w,no"
    for content in (table(), wild):
        (files / "train.csv").write_text(content)
        assert run(files, "--clip-rows", *output, "--overwrite") == 0
        texts.append(capsys.readouterr().out.split("PRIVACY CERTIFICATE")[0])
    assert texts[0] == texts[1]


def test_a_regression_says_what_becomes_of_its_response(files, capsys):
    (files / "r.csv").write_text("x,y\n0.5,0.4\n0.1,-0.2\n")
    arguments = ["release", str(files / "r.csv"), *BUDGET, "--target", "y"]
    more = ["--row-bound", "1", "--loss", "huber:0.5", "--response-bound", "0.5"]
    assert cli.main(arguments + more) == 0
    assert "a response beyond response_bound = 0.5 is an error" in (
        capsys.readouterr().out
    )
    assert cli.main([*arguments, *more, "--clip-rows"]) == 0
    assert "response_bound = 0.5 is moved to it" in capsys.readouterr().out


def test_files_of_one_name_are_both_evaluated(files, capsys):
    (files / "other").mkdir()
    (files / "other" / "train.csv").write_text(table("ill,c,b,a", 30))
    assert run(files, "--evaluate", str(files / "other" / "train.csv")) == 0
    out = capsys.readouterr().out.split("NOT PRIVATE")[1]
    assert out.count("train.csv") == 4


def test_an_answer_of_a_file_predicts_by_its_names(files):  # U1
    import pandas as pd

    assert run(files, "--output", str(files / "o.json")) == 0
    answer = dps.Release.load(files / "o.json")
    assert json.loads((files / "o.json").read_text())["feature_names"] == list(
        answer.feature_names
    )
    rows = pd.DataFrame(np.eye(4), columns=answer.feature_names)
    backwards = rows[list(answer.feature_names)[::-1]]
    np.testing.assert_array_equal(answer.margin(backwards), answer.theta)
