"""``dpsample predict`` and ``dpsample bounds``: records by name, errors on a line."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

import dpsample as dps
from dpsample import cli
from dpsample.cli.release import rows_of
from tests.support import raw_tables

BUDGET = ("--epsilon", "2", "--delta", "1e-5", "--radius", "2", "--seed", "1")
NUMBERS = "x,y\n0.5,0.4\n0.1,-0.2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Answers of a classification, a regression and a LIBSVM file."""
    place = tmp_path_factory.mktemp("predict")
    raw_tables.write(place / "train.csv", raw_tables.records(300, 12, 1))
    (place / "b.toml").write_text(raw_tables.bounds(12))
    release(place, "train.csv", "a.json", "--target", "returned", "--clip-rows",
            "--intercept", "--bounds", str(place / "b.toml"))  # fmt: skip
    (place / "r.csv").write_text(NUMBERS)
    (place / "r.toml").write_text("[numeric]\nx = [0, 1]\ny = [-100, 300]\n")
    release(place, "r.csv", "r.json", "--target", "y", "--loss", "huber:0.5",
            "--bounds", str(place / "r.toml"))  # fmt: skip
    (place / "d.libsvm").write_text("1 1:1 3:2\n-1 2:1\n")
    release(place, "d.libsvm", "d.json", "--num-features", "3", "--scale", "0.5",
            "--row-bound", "1", "--clip-rows")  # fmt: skip
    return place


def release(place, file, output, *more):
    saved = ("--output", str(place / output))
    assert cli.main(["release", str(place / file), *BUDGET, *more, *saved]) == 0


def predict(place, answer, file, *more):
    return cli.main(["predict", str(place / answer), str(place / file), *more])


def lines(text):
    return list(csv.DictReader(io.StringIO(text)))


def new(place, columns=None, num_records=400):
    """New records without a target, in an order of their own."""
    table = raw_tables.records(num_records, 12, 2)
    del table["returned"]
    order = [*table][::-1] if columns is None else columns
    shuffled = {name: table[name] for name in order}
    raw_tables.write(place / "new.csv", shuffled, bom=False)
    return table


def test_predictions_are_those_of_python_in_any_order(folder, capsys):
    table = new(folder)
    assert predict(folder, "a.json", "new.csv") == 0
    out, err = capsys.readouterr()
    rows = lines(out)
    assert err.startswith("dpsample: Clipped: ") and err.count("\n") == 1
    frame = pd.DataFrame(table)
    answer = dps.Release.load(folder / "a.json")
    with pytest.warns(RuntimeWarning):
        labels, margins = answer.predict(frame), answer.margin(frame)
    assert [row["prediction"] for row in rows] == labels.tolist()
    assert {"no", "yes"} == set(labels)
    wanted = 1 / (1 + np.exp(-margins))
    np.testing.assert_allclose([float(r["probability"]) for r in rows], wanted)
    new(folder, [*table])
    assert predict(folder, "a.json", "new.csv", "--output", str(folder / "o.csv")) == 0
    assert "400 predictions saved" in capsys.readouterr().out
    assert (folder / "o.csv").read_text() == out
    assert str(folder) not in out


def test_responses_come_in_raw_units_and_the_target_may_be_there(folder, capsys):
    assert predict(folder, "r.json", "r.csv") == 0
    answer = dps.Release.load(folder / "r.json")
    margins = answer.theta[0] * (2 * np.array([0.5, 0.1]) - 1)
    rows = lines(capsys.readouterr().out)
    predictions = [float(row["prediction"]) for row in rows]
    np.testing.assert_allclose(predictions, 100 + 200 * margins)
    assert list(rows[0]) == ["prediction"]


def test_a_libsvm_answer_predicts_a_libsvm_file(folder, capsys):
    assert predict(folder, "d.json", "d.libsvm") == 0
    out, err = capsys.readouterr()
    theta = dps.Release.load(folder / "d.json").theta
    rows = np.array([[0.5, 0, 1.0], [0, 0.5, 0]])
    rows[0] /= np.linalg.norm(rows[0])
    found = [float(row["probability"]) for row in lines(out)]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-rows @ theta)))
    assert "Clipped: 1 rows above 1." in err


def test_a_file_without_names_is_not_predicted_by_an_answer_of_a_table(folder, capsys):
    assert predict(folder, "a.json", "d.libsvm") == 2
    out, err = capsys.readouterr()
    assert not out and "a LIBSVM file, which has no names" in err
    numbered = dps.tables.Schema(numeric={"1": (0, 100), "y": (0, 1)})
    encoding = dps.tables.Encoding(schema=numbered, columns=("1",), target="y")
    with pytest.raises(ValueError, match="file must be a table"):
        rows_of(folder / "d.libsvm", encoding, None)


BAD = {
    "x,z\n1,2\n": "column 'z' must be declared in the bounds",
    "z\n1\n": "drop it from records to predict",
    "y\n1\n": "columns of the table must be complete, got none named 'x'",
    "x,x\n1,2\n": "two named 'x'",
    "x\nold\n": "column 'x' must be numeric, got 'old' in record 0",
    "x\n1\ninf\n": "column 'x' must be numeric, got 'inf' in record 1",
    'x\n""\n': "column 'x' must be complete",
    "": "a CSV table",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_line_and_writes_nothing(folder, capsys, text):
    (folder / "bad.csv").write_text(text)
    output = folder / "none.csv"
    assert predict(folder, "r.json", "bad.csv", "--output", str(output)) == 2
    err = capsys.readouterr().err
    assert BAD[text] in err and err.count("\n") == 1 and not output.exists()


def test_an_answer_with_an_offset_is_refused(folder, capsys):
    rows, y = np.full((4, 1), 0.5), np.array([0.1, 0.2, 0.3, 0.4])
    given = {"loss": dps.losses.Squared(), "domain": dps.domains.Ball(1.0)}
    given |= {"row_bound": 1.0, "response_bound": 1.0, "feature_names": ["x"]}
    problem = dps.Problem(rows, y, offset=y, offset_bound=1.0, **given)
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    fit = dps.minimize(problem, dps.optimizers.AdaSSP(), budget, seed=0)
    fit.save(folder / "off.json")
    (folder / "off.csv").write_text("x\n0.5\n")
    assert predict(folder, "off.json", "off.csv") == 2
    assert "must be of a model without an offset" in capsys.readouterr().err


def test_no_records_are_predicted_by_no_lines(folder, capsys):
    (folder / "none.csv").write_text("y,x\n")
    assert predict(folder, "r.json", "none.csv") == 0
    assert capsys.readouterr().out == "prediction\n"


def test_answers_of_another_format_or_with_another_encoding_are_refused(folder, capsys):
    content = json.loads((folder / "r.json").read_text())
    changes = {
        "format": "dpsample-release-2",
        "encoding": content["encoding"] | {"symmetric": False},
        "feature_names": ["z"],
    }
    for name, value in changes.items():
        (folder / "odd.json").write_text(json.dumps(content | {name: value}))
        assert predict(folder, "odd.json", "r.csv") == 2
        assert capsys.readouterr().err.startswith("dpsample: error: ")
        assert cli.main(["verify", str(folder / "odd.json")]) in (1, 2)
        capsys.readouterr()
    pytest.importorskip("flint")
    for checker in ("standard", "ball"):
        dps.Release.load(folder / "r.json").verify(checker=checker)
    with pytest.raises(ValueError, match="fields|one release"):
        from dpsample.verification.ball_checker import prove

        prove(json.dumps(content | {"encoding": None}))


def test_outputs_are_checked_first_and_no_input_is_replaced(folder, capsys):
    for path in ("r.json", "r.csv", "no/where.csv"):
        assert predict(folder, "r.json", "r.csv", "--output", str(folder / path)) == 2
        assert "output must be" in capsys.readouterr().err
    assert (folder / "r.csv").read_text() == NUMBERS


def test_bounds_are_written_once_and_not_over_filled_ones(folder, capsys):
    arguments = ["bounds", str(folder / "train.csv")]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert cli.main([*arguments, "--output", str(folder / "new.toml")]) == 0
    assert (folder / "new.toml").read_text() == out
    assert cli.main([*arguments, "--output", str(folder / "new.toml")]) == 2
    assert "output must be a new file" in capsys.readouterr().err
    assert cli.main(["bounds", str(folder / "d.libsvm")]) == 2
    assert "a table with named columns" in capsys.readouterr().err
