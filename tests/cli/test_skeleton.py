"""Skeletons of bounds files: names and types only, and an error until filled in."""

import tomllib

import numpy as np
import pandas as pd
import pytest

from dpsample.cli.records import skeleton
from dpsample.tables import Schema, read_table
from tests.support import raw_tables


def made(folder, num_records=60):
    raw_tables.write(folder / "t.csv", raw_tables.records(num_records, 12, 1))
    return (folder / "t.csv").read_bytes()


def test_names_types_and_marks_and_no_value_of_a_record(tmp_path):
    content = made(tmp_path)
    text = skeleton(content, "csv", "t.csv")
    parsed = tomllib.loads(text)
    table = raw_tables.records(60, 12, 1)
    named = [n for k in ("numeric", "date", "categorical") for n in parsed[k]]
    assert sorted(named) == sorted(table)
    assert parsed["file"] == {"separator": ";", "decimal": ",", "thousands": "."}
    assert set(parsed["date"]) == {"admitted"}
    assert set(parsed["categorical"]) == {"c0", "c1", "returned"}
    assert all(parsed[k][n] == [] for k in parsed if k not in ("file", "ignore")
               for n in parsed[k])  # fmt: skip
    # The same line for other records of the same kind: nothing of theirs is in it.
    raw_tables.write(tmp_path / "u.csv", raw_tables.records(90, 12, 2))
    assert skeleton((tmp_path / "u.csv").read_bytes(), "csv", "t.csv") == text


@pytest.mark.parametrize("record", ["63,male,yes", "ann;1,5", "x,2020-02-29"])
def test_a_record_in_the_place_of_names_is_not_printed(record):
    with pytest.raises(ValueError, match="file must be with a line of names") as error:
        skeleton(f"{record}\n{record}\n".encode(), "csv", "t")
    assert not any(entry in str(error.value) for entry in record.split(","))


def test_one_record_does_not_decide_a_type(tmp_path):
    content = made(tmp_path)
    odd = b";".join([b"a word"] * 12) + b"\r\n"
    assert skeleton(content + odd, "csv", "x") == skeleton(content, "csv", "x")


def test_an_unfilled_skeleton_says_what_to_do(tmp_path):
    (tmp_path / "b.toml").write_text(skeleton(made(tmp_path), "csv", "t.csv"))
    with pytest.raises(ValueError, match=r"numeric\..* got \[\]\. Fill in public"):
        read_table(tmp_path / "t.csv", target="returned", bounds=tmp_path / "b.toml")


def test_hostile_names_are_quoted_and_stored_types_are_told(tmp_path):
    names = ["a b", '"', "ü\x7f", "x\ny", "]", "\u2028", "__class__", "n", "t", "w"]
    frame = pd.DataFrame(np.ones((2, 7)), columns=names[:7]).assign(
        n=[1, 2], t=pd.to_datetime("2020-01-01"), w="word"
    )
    frame.to_parquet(tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    text = skeleton(content, "parquet", "\x1b[31m.parquet")
    parsed = tomllib.loads(text)
    assert set(parsed["numeric"]) == {*names[:7], "n"}
    assert set(parsed["date"]) == {"t"} and set(parsed["categorical"]) == {"w"}
    assert "guess" not in text and "\x1b" not in text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("end", ["", "\n"])  # of even and odd length
def test_encodings_are_told_and_read(tmp_path, encoding, end):
    text = "größe und|y\n1|0\n2|1" + end
    (tmp_path / "t.csv").write_text(text, encoding=encoding)
    text = skeleton((tmp_path / "t.csv").read_bytes(), "csv", "t")
    told = tomllib.loads(text)["file"]
    assert told["separator"] == "|"
    filled = {"numeric": {"größe und": [0, 2]}, "ignore": [], "file": told}
    data = read_table(tmp_path / "t.csv", target="y", bounds=Schema.from_dict(filled))
    np.testing.assert_array_equal(data.features, [[0.0], [1.0]])
    other = Schema.from_dict(filled | {"file": told | {"encoding": "ascii"}})
    with pytest.raises(ValueError, match=r"Declare encoding .*dpsample bounds FILE"):
        read_table(tmp_path / "t.csv", target="y", bounds=other)
