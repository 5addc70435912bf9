"""``dpsample fit``: an answer, predictions from it, and advice without records."""

import json

import numpy as np
import pytest

import dpsample as dps
from dpsample import cli
from dpsample.answers.answer import load_answer

BOUNDS = """
[numeric]
age = [0, 100]
[categorical]
ward = ["n", "s"]
ill = ["no", "yes"]
"""


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    age, ward = rng.integers(0, 101, 600), rng.choice(["n", "s"], 600)
    is_ill = (age + 20 * (ward == "s") + 30 * rng.normal(size=600)) > 60
    ill = np.where(is_ill, "yes", "no")
    rows = zip(age, ward, ill, strict=True)
    lines = ["age,ward,ill", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "records.csv").write_text("\n".join(lines))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    return tmp_path


def arguments(folder, *more):
    return [
        "fit",
        str(folder / "records.csv"),
        *("--target", "ill", "--bounds", str(folder / "bounds.toml")),
        *("--epsilon", "3", "--delta", "1e-6", *more),
    ]


def test_an_answer_predicts_and_verifies(files, capsys):
    answer, ledger = files / "answer.json", files / "ledger.json"
    more = ["--output", str(answer), "--ledger", str(ledger), "--seed", "1"]
    more += ["--ledger-epsilon", "5", "--ledger-delta", "1e-5"]
    more += ["--evaluate", str(files / "records.csv")]
    assert cli.main(arguments(files, *more)) == 0
    shown = capsys.readouterr().out
    assert "Ledger" in shown and "all 0" in shown
    fitted = load_answer(answer)
    assert fitted.feature_names[-1] == "intercept"
    # The rows of the file are in [-1, 1] for each of two columns, and not divided.
    assert fitted.certificate.facts.row_bound == pytest.approx(2.0**0.5)
    assert cli.main(["predict", str(answer), str(files / "records.csv")]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "prediction,probability" and len(rows) == 600
    assert dps.verify(fitted.certificate).checks


def test_the_advice_needs_no_records(files, capsys):
    (files / "records.csv").unlink()
    more = ["--dry-run", "--num-records", "600"]
    assert cli.main(arguments(files, *more)) == 0
    assert "600 records, 4 coefficients" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--dry-run"], "--num-records"),
        (["--num-records", "5"], "--dry-run"),
        (["--method", "best"], "method must be one of"),
        (["--radius", "-1"], "radius"),
    ],
)
def test_errors_are_one_line(files, capsys, more, message):
    assert cli.main(arguments(files, *more)) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_the_fit_is_the_one_of_python(files):
    answer = files / "answer.json"
    more = ["--output", str(answer), "--seed", "1", "--radius", "4"]
    assert cli.main(arguments(files, *more)) == 0
    theta = json.loads(answer.read_text())["theta"]
    data = dps.tables.read_table(
        files / "records.csv",
        target="ill",
        bounds=files / "bounds.toml",
        clip=True,
        scale=2.0**0.5,
    )
    problem = dps.Problem.from_table(
        data,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(4.0),
        intercept=True,
        clip_rows=True,
    )
    fitted = dps.fit(problem, dps.Budget(epsilon=3.0, delta=1e-6), seed=1)
    np.testing.assert_allclose(theta, fitted.theta, rtol=1e-9)
