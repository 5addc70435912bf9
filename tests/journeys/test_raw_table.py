"""A new user's path: a raw table, its bounds, a release, predictions of new rows."""

import csv
import tomllib

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsample as dps
from dpsample import cli
from tests.support import raw_tables

OPTIONS = (
    *("--target", "returned", "--radius", "8", "--epsilon", "1", "--delta", "1e-6"),
    *("--clip-rows", "--intercept", "--seed", "1"),
)
SIZES = [(2_000, 14), pytest.param((200_000, 40), marks=pytest.mark.slow)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.filterwarnings("ignore:Clipped:RuntimeWarning")
def test_from_a_raw_table_to_predictions_of_reordered_rows(tmp_path, capsys, size):
    num_records, num_columns = size
    train, answer = str(tmp_path / "train.csv"), str(tmp_path / "answer.json")
    raw_tables.write(
        tmp_path / "train.csv", raw_tables.records(num_records, num_columns, 1)
    )
    # Names and types, which the user fills in.
    bounds = str(tmp_path / "bounds.toml")
    assert cli.main(["bounds", train, "--output", bounds]) == 0
    skeleton = tomllib.loads((tmp_path / "bounds.toml").read_text())
    filled = raw_tables.bounds(num_columns)
    assert skeleton["file"] == tomllib.loads(filled)["file"]
    release = ["release", train, "--bounds", bounds, *OPTIONS, "--output", answer]
    assert cli.main(release) == 2
    assert "Fill in public facts" in capsys.readouterr().err
    (tmp_path / "bounds.toml").write_text(filled)
    assert cli.main(release) == 0

    # New rows without a response, their columns in two orders.
    table = raw_tables.records(1_000, num_columns, 2)
    truth = table.pop("returned")
    texts = []
    for names in ([*table], sorted(table)):
        raw_tables.write(tmp_path / "new.csv", {name: table[name] for name in names})
        predict = ["predict", answer, str(tmp_path / "new.csv")]
        predict += ["--output", str(tmp_path / "out.csv"), "--overwrite"]
        assert cli.main(predict) == 0
        texts.append((tmp_path / "out.csv").read_text())
    assert texts[0] == texts[1]
    rows = list(csv.DictReader(texts[0].splitlines()))
    labels = np.array([row["prediction"] for row in rows])
    assert (labels == truth).mean() > 0.7

    # The same in Python, from frames of two libraries and from the table itself.
    saved = dps.Release.load(answer)
    saved.verify()
    frame = pd.DataFrame(table)
    margins = saved.margin(frame)
    np.testing.assert_array_equal(saved.predict(frame[frame.columns[::-1]]), labels)
    np.testing.assert_array_equal(saved.margin(pl.DataFrame(table)), margins)
    data = dps.tables.read_table(train, target="returned", bounds=bounds, clip=True)
    problem = dps.Problem.from_table(
        data,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(radius=8.0),
        intercept=True,
        clip_rows=True,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    again = dps.release(problem, budget, seed=1)
    assert again.encoding == saved.encoding and again.digest == saved.digest
    np.testing.assert_array_equal(again.margin(frame), margins)
    # Of raw rows, what `encoding.features` makes of them is the same by position.
    encoded = saved.encoding.features(frame)
    np.testing.assert_array_equal(saved.margin(encoded), margins)
    with pytest.raises(ValueError, match="got none named 'cost'"):
        saved.predict(frame.drop(columns="cost"))
