"""Labels, levels and formats are public facts: no record decides what they are."""

import bz2
import io
import lzma
import os
import re
import sys
import threading
import unicodedata

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import dpsample as dps
from dpsample.cli import main
from dpsample.tables import Encoding, Schema, entries, from_frame, read, read_table

RANGES = {"a": (0, 1)}
BOUNDS = Schema(numeric=RANGES, categorical={"y": ("no", "yes")})


def table_of(labels):
    return pd.DataFrame({"a": np.linspace(0, 1, len(labels)), "y": labels})


def refusal(labels, **options):
    with pytest.raises(ValueError, match=" must be ") as told:
        from_frame(table_of(labels), target="y", **options)
    return str(told.value)


@pytest.mark.parametrize("bounds", [None, Schema(numeric=RANGES)])
def test_an_undeclared_positive_label_is_refused_whatever_the_records_are(bounds):  # P2
    given = {"positive_label": "yes", "bounds": bounds}
    told = {refusal(labels, **given) for labels in (["no", "yes"], ["no"], [1, None])}
    assert told == {
        "positive_label must be a declared level of the response 'y', got 'yes'. "
        "Declare all its labels in the bounds, below [categorical]: y = "
        '["another label", "yes"].'
    }


def test_a_label_is_refused_before_the_file_is_read(tmp_path):  # P2
    (tmp_path / "t.csv").write_bytes(b"\xff no table")
    for label, bounds in (("yes", Schema(numeric=RANGES)), ("Yes", BOUNDS)):
        with pytest.raises(
            ValueError, match="declared level|'Yes' among its public lev"
        ):
            read_table(
                tmp_path / "t.csv", target="y", positive_label=label, bounds=bounds
            )


@pytest.mark.parametrize("labels", [("yes", "no"), ("no", "no"), ("yes", "yes")])
def test_the_command_ends_alike_whichever_labels_occur(tmp_path, capsys, labels):  # P2
    (tmp_path / "t.csv").write_text(f"a,y\n0.1,{labels[0]}\n0.2,{labels[1]}\n")
    (tmp_path / "b.toml").write_text("[numeric]\na = [0, 1]\n")
    options = ("--target", "y", "--positive-label", "yes", "--radius", "1")
    budget = ("--epsilon", "1", "--delta", "1e-6", "--bounds", str(tmp_path / "b.toml"))
    assert main(["release", str(tmp_path / "t.csv"), *options, *budget]) == 2
    assert 'y = ["another label", "yes"]' in capsys.readouterr().err


def test_a_label_at_no_level_is_an_error_with_a_positive_label_too():  # F2
    for label in ("Yes", "1", 1, "maybe", True):
        for positive in (None, "yes", " yes "):
            told = refusal(
                ["no", label], bounds=BOUNDS, positive_label=positive, clip=True
            )
            assert "'y' must be one of its public levels" in told
            assert "in record 1. List every possible label in [categorical]" in told
            assert "positive" not in told
    three = Schema(numeric=RANGES, categorical={"y": ("no", "yes", "may")})
    data = from_frame(
        table_of(["no", "yes", "may"]), target="y", bounds=three, positive_label="may"
    )
    assert data.response.tolist() == [-1, -1, 1]


def test_libsvm_labels_are_declared(tmp_path):  # P2
    path, given = tmp_path / "two", {"num_features": 1, "positive_label": "2"}
    for text in ("1 1:1\n2 1:1\n", "1 1:1\n1 1:1\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r'label = \["another label", "2"\]'):
            read_table(path, **given)
        data = read_table(path, bounds=Schema(categorical={"label": (1, 2)}), **given)
        assert data.response[0] == -1
        assert data.row_bound is None
        back = data.encoding.raw_response(np.array([1.0, -1.0]), is_label=True)
        assert back.tolist() == [2, 1]
    path.write_text("1 1:1\n3 1:1\n")
    with pytest.raises(ValueError, match=r"public levels, got 3 in record 1"):
        read_table(path, bounds=Schema(categorical={"label": (1, 2)}), **given)


def test_bounds_may_declare_the_response_alone():
    frame, bounds = table_of([1, 2]), Schema(categorical={"y": (1, 2)})
    data = from_frame(frame, target="y", bounds=bounds, row_bound=1.0)
    assert data.features.tolist() == [[0.0], [1.0]]
    assert data.response.tolist() == [-1, 1]
    assert "every other column is a feature, as it is" in data.rules
    assert Encoding.from_dict(data.encoding.to_dict()) == data.encoding
    assert from_frame(frame, target="y", bounds=bounds).row_bound is None


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_bytes_are_the_text_that_they_hold(tmp_path, make):  # F3
    schema = Schema(
        categorical={"c": ("north", "caf\u00e9")},
        numeric={"n": (0, 10)},
        missing={"n": 0},
    )
    table = {
        "c": [b" north", "cafe\u0301".encode(), b"\xff\xfe"],
        "n": [b"2.5", b"NA", b"10"],
    }
    frame = make(table)
    rows = Encoding(schema=schema, clip=True).features(frame) * 2**0.5
    wanted = [[-0.5, 1, 0], [-1, 0, 1], [1, 0, 0]]
    np.testing.assert_allclose(rows, wanted, atol=1e-15)
    with pytest.raises(ValueError, match="'c' must be one of its public levels"):
        Encoding(schema=schema).features(frame)


FORMS = ["caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9"), " caf\u00e9\u00a0"]


@pytest.mark.parametrize("declared", FORMS)
def test_blanks_and_forms_of_unicode_do_not_count(declared):  # F4
    schema = Schema(
        numeric=RANGES,
        categorical={"c": (declared, "b "), "y": ("no", declared)},
        missing={"c": FORMS[0]},
    )
    frame = pd.DataFrame(
        {"a": 0.5, "c": [*FORMS, None, "b"], "y": [*FORMS, "no", "no"]}
    )
    for positive in (None, *FORMS):
        data = from_frame(frame, target="y", bounds=schema, positive_label=positive)
        assert (data.features[:, 1] > 0).tolist() == [True, True, True, True, False]
        assert data.response.tolist() == [1, 1, 1, -1, -1]
    for twice in FORMS:
        with pytest.raises(
            ValueError, match="free of repeated entries.*Remove|form NFC"
        ):
            Schema(categorical={"c": (declared, twice)})


def test_booleans_are_levels(tmp_path):  # F5
    path = tmp_path / "b.toml"
    path.write_text("[categorical]\nsmoker = [false, true]\n")
    schema = Schema.from_file(path)
    encoding = Encoding(schema=schema)
    assert encoding.feature_names == ("smoker=false", "smoker=true")
    yes, no = ["true", "True", " TRUE", "1", "1.0", 1, 1.0, True, b"true"], [False, "0"]
    rows = encoding.features(pd.DataFrame({"smoker": yes + no}))
    assert rows[:, 1].tolist() == [1.0] * len(yes) + [0.0] * len(no)
    with pytest.raises(ValueError, match="'smoker' must be one of its public levels"):
        encoding.features(pd.DataFrame({"smoker": ["yes"]}))
    assert Encoding.from_dict(encoding.to_dict()) == encoding
    frame = table_of([True, False])
    schema = Schema(numeric=RANGES, categorical={"y": (False, True)})
    data = from_frame(frame, target="y", bounds=schema, positive_label="true")
    assert data.response.tolist() == [1, -1]
    assert data.encoding.raw_response(data.response, is_label=True)[0] == np.True_


SEMICOLONS = "a;y\n0,5;1\n0,7;0\n"


@pytest.mark.parametrize("text", [SEMICOLONS, "a;y\n1;1\n", "a\ty\n1\t1\n"])
def test_a_file_of_another_separator_names_it(tmp_path, text):  # F5
    path, separator = tmp_path / "t.csv", "\\t" if "\t" in text else ";"
    path.write_text(text)
    with pytest.raises(ValueError, match="must be") as told:
        read_table(path, target="y", bounds=Schema(numeric={"a": (0, 1), "y": (0, 1)}))
    assert f'declare separator = "{separator}" in the bounds\' [file]' in str(
        told.value
    )
    file = {"separator": "\t" if "\t" in text else ";", "decimal": ","}
    bounds = Schema(numeric={"a": (0, 1), "y": (0, 1)}, file=file)
    assert read_table(path, target="y", bounds=bounds).response[0] == 1.0


def test_a_file_without_header_says_what_to_declare(tmp_path, capsys):  # F5
    path = tmp_path / "adult.data"
    path.write_text("39; Private; <=50K\n50; Private; >50K\n")
    schema = Schema(numeric={"age": (0, 110)}, categorical={"y": ("<=50K", ">50K")})
    given = {"columns": ("age", "work", "y"), "ignore": ("work",)}
    with pytest.raises(ValueError, match='declare separator = ";"'):
        read_table(path, target="y", bounds=dps.tables.Schema(**vars(schema) | given))
    path.write_text("39, Private, <=50K\n50, Private, >50K\n")
    with pytest.raises(ValueError, match=r"no line of names, list them in columns"):
        read_table(path, target="<=50K", bounds=schema)
    declared = Schema(**vars(schema) | given)
    assert read_table(path, target="y", bounds=declared).response.tolist() == [-1, 1]
    assert main(["bounds", str(path)]) == 2
    assert 'columns = ["first", "second"]' in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["7.5,ann,7.5\n1,bob,2\n", "7.5;ann;x\n1;bob;2\n", "7.5,ann,x\n1,bob,2\n"],
)
@pytest.mark.parametrize("bounds", [None, Schema(numeric={"a": (0, 1), "y": (0, 1)})])
def test_errors_about_names_show_no_record(tmp_path, text, bounds):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"columns = \[|separator = ") as told:
        read_table(path, target="y", bounds=bounds, row_bound=1.0)
    assert "7.5" not in str(told.value) and "ann" not in str(told.value)


def test_numbers_may_be_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("2019,2020.5,y\n1,0.5,1\n")
    data = read_table(path, target="y", row_bound=2.0)
    assert data.columns == ("2019", "2020.5")
    kept = Schema(numeric={"2019": (0, 1), "y": (0, 1)}, ignore=("2020.5",))
    assert read_table(path, target="y", bounds=kept).columns == ("2019",)


@pytest.mark.parametrize("start", read.BINARY_FORMATS)
def test_what_is_no_text_is_refused_with_a_remedy(tmp_path, start, capsys):
    path = tmp_path / "t.csv"
    path.write_bytes(start + b"\x00\xff,\n" * 3)
    remedy = re.escape(read.BINARY_FORMATS[start])
    with pytest.raises(ValueError, match=f"a CSV table, got no text: t.csv. {remedy}"):
        read_table(path, target="y", row_bound=1.0)
    assert main(["bounds", str(path)]) == 2
    assert capsys.readouterr().err.endswith(f"{read.BINARY_FORMATS[start]}\n")


PLAIN = b"a,y\n1,0\n0,1\n"
ZSTD = pa.compress(PLAIN, codec="zstd", asbytes=True)
PACKED = {
    "t.csv.xz": lzma.compress(PLAIN),
    "t.csv.lzma": lzma.compress(PLAIN, format=lzma.FORMAT_ALONE),
    "t.csv.bz": bz2.compress(PLAIN),
    "T.CSV.BZ2": bz2.compress(PLAIN),
    "t.csv.zst": ZSTD,
    "two.csv.zst": ZSTD + pa.compress(b"", codec="zstd", asbytes=True),
    "t.CSV": PLAIN,
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_files_are_read_by_all_their_names(tmp_path, name):  # F5
    (tmp_path / name).write_bytes(PACKED[name])
    data = read_table(tmp_path / name, target="y", row_bound=1.0)
    assert data.response.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("cut", [ZSTD[:-3], b"", b"no zstd"])
def test_a_damaged_zstd_file_is_refused(tmp_path, cut):  # F5
    (tmp_path / "t.csv.zst").write_bytes(cut)
    with pytest.raises(ValueError, match="path must be an intact file"):
        read_table(tmp_path / "t.csv.zst", target="y", row_bound=1.0)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("t.xlsx", "Save the sheet as CSV"),
        ("t.ods", "Save"),
        ("t.zip", "Unpack it firs"),
    ],
)
def test_files_that_are_no_tables_say_what_to_do(tmp_path, name, remedy):  # F5
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(ValueError, match=remedy):
        read_table(tmp_path / name, target="y")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names")
def test_pipes_and_stdin_are_read(tmp_path, monkeypatch):  # F5
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=r"format must be given for a pipe.*--format"):
        read_table(pipe, target="y", row_bound=1.0)
    writer = threading.Thread(target=pipe.write_bytes, args=(PLAIN,))
    writer.start()
    data = read_table(pipe, target="y", row_bound=1.0, format="csv")
    writer.join()
    assert data.response.tolist() == [0.0, 1.0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))
    data = read_table("-", target="y", row_bound=1.0, format="csv")
    assert data.response.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="path must be an existing file"):
        read_table(tmp_path, target="y", format="csv")


def test_columns_may_be_numbered():  # F8
    frame = pd.DataFrame([[0.0, 2, 1], [1.0, 4, 0]])
    schema = Schema(
        numeric={0: (0, 1), np.int64(1): (0, 4)}, ignore=[3], missing={0: 1}
    )
    assert schema.numeric.keys() == {"0", "1"} and schema.ignore == ("3",)
    bounds = Schema(numeric={**schema.numeric, 2: (0, 1)})
    for target in (2, np.int64(2), "2"):
        data = from_frame(frame, target=target, bounds=bounds)
        assert data.feature_names == ("0", "1")
        assert data.response.tolist() == [1.0, -1.0]


def test_masked_arrays_are_refused_and_no_table():  # F8
    masked = np.ma.masked_array(np.ones((2, 2)), [[0, 1], [0, 0]])
    with pytest.raises(ValueError, match="frame must be a DataFrame, got .*Masked"):
        from_frame(masked, target="y")
    frame = pd.DataFrame(masked, columns=["a", "y"])
    with pytest.raises(ValueError, match="'y' must be complete, got a missing value"):
        from_frame(frame, target="y", row_bound=1.0)


MISSPELT = Schema(
    numeric=RANGES, categorical={"c": ("nrth", "s"), "y": ("no", "yes")}, ignore=["n"]
)


def test_what_was_clipped_is_known_to_the_holder_alone():  # Q5
    frame = pd.DataFrame({"a": [0.5, 7, 0.1], "c": ["north", "s", "north"]})
    frame["y"] = ["no", "yes", "no"]
    data = from_frame(frame, target="y", bounds=MISSPELT, clip=True)
    assert data.nonprivate_diagnostics == (
        "clipped, among 3 records: 1 of 'a' outside [0, 1], "
        "2 of 'c' at no public level",
        "no record has the levels 'nrth' of 'c'",
    )
    spec = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(1.0)}
    problem = dps.Problem.from_table(data, **spec)
    assert "nrth" not in repr(data) and "clipped" not in repr(problem.encoding)


def test_the_command_line_tells_it_on_stderr_and_never_in_what_is_saved(
    tmp_path, capsys
):  # Q5
    lines = "\n".join(
        f"{i % 10 / 10},north,{'no' if i % 3 else 'yes'}" for i in range(60)
    )
    (tmp_path / "t.csv").write_text(f"a,c,y\n{lines}\n")
    (tmp_path / "b.toml").write_text(
        '[numeric]\na = [0, 1]\n[categorical]\nc = ["nrth", "s"]\ny = ["no", "yes"]\n'
    )
    answer, bounds = str(tmp_path / "a.json"), str(tmp_path / "b.toml")
    options = ("--target", "y", "--bounds", bounds, "--clip-rows", "--radius", "1")
    budget = ("--epsilon", "1", "--delta", "1e-6", "--output", answer)
    assert main(["release", str(tmp_path / "t.csv"), *options, *budget]) == 0
    out, err = capsys.readouterr()
    assert "60 of 'c' at no public level (NOT PRIVATE" in err
    assert "no record has the levels 'nrth', 's' of 'c' (NOT PRIVATE" in err
    for text in (out, (tmp_path / "a.json").read_text()):
        assert "no public level" not in text and "60 of" not in text


def test_a_parquet_file_keeps_its_index_out(tmp_path):
    frame = table_of(["no", "yes"]).set_index(pd.Index([5, 6], name="id"))
    frame.to_parquet(tmp_path / "t.parquet")
    data = read_table(tmp_path / "t.parquet", target="y", bounds=BOUNDS)
    assert data.columns == ("a",)
    twice = pa.Table.from_arrays([pa.array([1.0])] * 2, names=["a", "a"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="distinct, got two named 'a'"):
        read_table(tmp_path / "t.parquet", target="a")


def test_fast_and_slow_numbers_are_equal():  # P1
    file = dps.tables.TextFormat()
    for each in ([1, 2**53 + 1, -(2**63)], [0.1, 1e300], ["1", " 7e-1 ", "\u0663"]):
        fast = entries.numbers(entries.Column("c", each), file)
        slow = entries.numbers(entries.Column("c", [*each, None]), file)
        array = entries.numbers(entries.Column("c", np.array(each)), file)
        assert fast.tobytes() == slow[:-1].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("levels", "labels", "kept"),
    [
        ((0, 1), (1, True, 1.0, np.int64(1), np.True_, "1"), "1"),
        ((False, True), (1, True, np.True_, "true"), "true"),
        (("a", "b"), (b"b", "b", np.str_("b")), "b"),
        (("1", "2"), (2, 2.0, b"2"), "2"),
    ],
)
def test_a_positive_label_has_any_form_that_a_record_of_its_level_has(
    levels, labels, kept
):
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": levels})
    schema = Schema(numeric={"x": (0, 1)}, categorical={"y": levels})
    for label in labels:
        data = from_frame(frame, target="y", bounds=schema, positive_label=label)
        assert data.response.tolist() == [-1.0, 1.0]
        assert data.encoding.positive_label == kept
        again = Encoding(schema=schema, target="y", positive_label=label)
        assert Encoding.from_dict(again.to_dict()) == again == data.encoding


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"positive_label": 7}, "response 'y' must be 7 among its public levels"),
        ({"positive_label": b"c"}, "must be b'c' among its public levels"),
        ({"positive_label": [1]}, "must be a label, got \\[1\\]. Pass one of the decl"),
        ({"positive_label": 1, "target": "x"}, r'x = \["another label", "1"\]'),
        ({"target": b"y"}, "target must be a str or NoneType, got b'y'. Columns have"),
        ({"target": 1.0}, "Columns have names of text, or whole numbers"),
    ],
)
def test_odd_labels_and_targets_have_a_remedy(given, message):
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": ["a", "b"]})
    schema = Schema(numeric={"x": (0, 1)}, categorical={"y": ("a", "b")})
    with pytest.raises(ValueError, match=message):
        from_frame(frame, **{"target": "y", "bounds": schema} | given)
