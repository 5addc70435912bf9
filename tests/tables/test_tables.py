"""Files to bounded features: encodings, refusals, and that levels never leak."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsample.tables import Encoding, Schema, entries, from_frame, read_table

BOUNDS = """
ignore = ["id"]

[numeric]
age = [0, 100]

[log]
income = [0, 1000]

[categorical]
color = ["red", "green", "?"]
ill = ["no", "yes"]
"""
TABLE = """id,age,income,color,ill
1,0,0,red,no
2,100,1000,green,yes
3,50, 9 ,?,no
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def bounds(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text(BOUNDS)
    return path


def read(path, bounds, **options):
    options = {"target": "ill", "positive_label": "yes"} | options
    return read_table(path, bounds=bounds, **options)


def test_columns_are_encoded_by_public_facts(table, bounds):
    data = read(table, bounds)
    assert data.feature_names == (
        "age",
        "income",
        "color=red",
        "color=green",
        "color=?",
    )
    log = 2 * np.log1p(9) / np.log1p(1000) - 1
    rows = [[-1, -1, 1, 0, 0], [1, 1, 0, 1, 0], [0, log, 0, 0, 1]]
    np.testing.assert_allclose(data.features * np.sqrt(3), rows, atol=1e-14)
    np.testing.assert_array_equal(data.response, [-1, 1, -1])
    assert (data.row_bound, data.row_norm, data.response_bound) == (1.0, 2.0, 1.0)


def test_unit_interval_and_row_norm(table, bounds):
    data = read(table, bounds, symmetric=False, row_norm=1.0)
    assert data.row_norm == 1.0
    np.testing.assert_allclose(data.features[1] * 3, [1, 1, 0, 1, 0], atol=1e-14)


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, lzma.compress])
def test_compressed_files_read_the_same(tmp_path, bounds, compress):
    suffix = {"bz2": ".bz2", "gzip": ".gz", "lzma": ".xz"}[compress.__module__]
    path = tmp_path / f"table.csv{suffix}"
    path.write_bytes(compress(TABLE.encode()))
    assert read(path, bounds).num_records == 3


def test_json_bounds_parquet_and_tsv_equal_toml_and_csv(tmp_path, table, bounds):
    json_bounds = tmp_path / "bounds.json"
    content = {
        "ignore": ["id"],
        "numeric": {"age": [0, 100]},
        "log": {"income": [0, 1000]},
        "categorical": {"color": ["red", "green", "?"], "ill": ["no", "yes"]},
    }
    json_bounds.write_text(json.dumps(content))
    frame = pd.read_csv(table, skipinitialspace=True)
    frame.to_parquet(tmp_path / "table.parquet")
    frame.to_csv(tmp_path / "table.tsv", sep="\t", index=False)
    wanted = read(table, bounds)
    for name in ("table.parquet", "table.tsv"):
        data = read(tmp_path / name, json_bounds)
        np.testing.assert_array_equal(data.features, wanted.features)
        np.testing.assert_array_equal(data.response, wanted.response)


def test_a_file_without_header_takes_the_declared_names(tmp_path):
    path = tmp_path / "plain.data"
    path.write_text("10, 1\n20, 0\n")
    levels = {"y": (0, 1)}
    schema = Schema(columns=("age", "y"), numeric={"age": (0, 40)}, categorical=levels)
    data = read_table(path, target="y", positive_label="1", bounds=schema)
    np.testing.assert_allclose(data.features[:, 0], [-0.5, 0.0])
    np.testing.assert_array_equal(data.response, [1, -1])


def test_bounded_responses_are_scaled_and_two_levels_become_signs(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,y,c\n0,0,n\n1,50,p\n")
    schema = Schema(numeric={"a": (0, 1), "y": (0, 100)}, categorical={"c": ("n", "p")})
    data = read_table(path, target="y", bounds=schema)
    np.testing.assert_allclose(data.response, [-1.0, 0.0])
    assert data.response_bound == 1.0
    np.testing.assert_array_equal(
        read_table(path, target="c", bounds=schema).response, [-1.0, 1.0]
    )


def test_without_bounds_numbers_are_taken_as_they_are(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("a,b,y\n3,4,1.5\n0,1,2\n")
    data = read_table(path, target="y", scale=0.5, row_bound=2.5)
    np.testing.assert_array_equal(data.features, [[1.5, 2.0], [0.0, 0.5]])
    np.testing.assert_array_equal(data.response, [1.5, 2.0])
    assert (data.row_bound, data.response_bound) == (2.5, None)


def test_clipping_moves_numbers_and_zeroes_foreign_levels(tmp_path, bounds):
    path = tmp_path / "wild.csv"
    path.write_text(TABLE.replace("100,1000,green", "1000,-5,mauve"))
    data = read(path, bounds, clip=True)
    np.testing.assert_allclose(data.features[1] * np.sqrt(3), [1, -1, 0, 0, 0])


def test_the_encoding_of_a_record_ignores_all_others(tmp_path, table, bounds):
    alone = tmp_path / "alone.csv"
    alone.write_text("\n".join(TABLE.splitlines()[:3:2]))
    full, one = read(table, bounds), read(alone, bounds)
    assert one.feature_names == full.feature_names
    np.testing.assert_array_equal(one.features[0], full.features[1])


@given(
    values=hnp.arrays(np.float64, (4, 2), elements=st.floats(-1e9, 1e9)),
    symmetric=st.booleans(),
    row_norm=st.sampled_from([1.0, 1.5, 2.0, 3.0, np.inf]),
)
def test_encoded_rows_obey_the_implied_bound(values, symmetric, row_norm):
    frame = pd.DataFrame(values, columns=["a", "b"])
    schema = Schema(numeric={"a": (-1.0, 2.5)}, log={"b": (-3.0, 1e6)})
    options = {"symmetric": symmetric, "row_norm": row_norm}
    rows = Encoding(schema=schema, clip=True, **options).features(frame)
    norms = np.linalg.norm(rows, ord=row_norm, axis=1)
    assert (norms <= 1.0 + 1e-14).all()


REFUSALS = {
    "missing number": (("50, 9", ", 9"), {}, r"'age'.*complete.*record 2\. Drop"),
    "missing level": (("1,0,0,red", "1,0,0,"), {}, r"'color'.*complete.*record 0"),
    "word in numbers": (
        ("50, 9", "old, 9"),
        {},
        r"'age'.*numeric, got 'old'.*record 2",
    ),
    "number too large": (
        ("100,", "101,"),
        {},
        r"\[0, 100\], got 101 in record 1\..*clip",
    ),
    "foreign level": (("green", "blue"), {}, r"'color'.*level.*'blue' in record 1"),
    "undeclared": (("income", "wage"), {}, r"'wage' must be declared.*\[numeric\]"),
    "missing label": (("red,no", "red,"), {}, r"'ill'.*complete.*record 0"),
    "absent label": (("", ""), {"positive_label": "maybe"}, r"'maybe' among its publi"),
    "foreign label": (
        ("red,no", "red,No"),
        {},
        r"'ill'.*'No' in record 0.*every possi",
    ),
    "no target": (
        ("", ""),
        {"target": None},
        r"target.*'id', 'age'.*got None.*--target",
    ),
    "wrong target": (
        ("", ""),
        {"target": "sick", "positive_label": None},
        r"target.*got sick",
    ),
    "no bounds": (
        ("", ""),
        {"bounds": None, "positive_label": None},
        r"'color'.*numeric.*categorical",
    ),
    "bad scale": (("", ""), {"scale": 0.0}, r"scale must be from 1e-60"),
    "bad format": (("", ""), {"format": "xls"}, r"format must be one of 'csv'"),
    "row norm": (("", ""), {"row_norm": 0.5}, r"row_norm must be >= 1"),
    "flag": (("", ""), {"clip": 1}, r"clip must be a bool"),
    "ragged": (("red,no", "red,no,3,4"), {}, r"path must be a CSV table"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_name_record_column_and_remedy(tmp_path, bounds, case):
    (old, new), options, message = REFUSALS[case]
    path = tmp_path / "bad.csv"
    path.write_text(TABLE.replace(old, new, 1) if old else TABLE)
    with pytest.raises(ValueError, match=message):
        read(path, options.get("bounds", bounds), **{
            k: v for k, v in options.items() if k != "bounds"
        })  # fmt: skip


def test_unknown_suffixes_missing_and_broken_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="path must be an existing file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "odd.xyz").write_text("1")
    with pytest.raises(ValueError, match="known suffix, got odd.xyz.*--format"):
        read_table(tmp_path / "odd.xyz")
    (tmp_path / "broken.csv.bz2").write_bytes(b"BZh not really")
    with pytest.raises(ValueError, match="intact file"):
        read_table(tmp_path / "broken.csv.bz2")
    (tmp_path / "empty.csv").write_text("a,y\n")
    with pytest.raises(ValueError, match="a table with records"):
        read_table(tmp_path / "empty.csv", target="y")


BAD_BOUNDS = {
    "[numeric]\nage = [5, 1]": "numeric.age must be of lower < upper",
    "[numeric]\nage = [3, 3]": "belongs into ignore",
    "[numeric]\nage = 7": "numeric.age must be two finite numbers",
    "[numeric]\nage = [0, inf]": "numeric.age must be two finite numbers",
    "numeric = 3": "numeric must be a table of columns",
    "[categorical]\nc = []": "categorical.c must be a non-empty list",
    "[categorical]\nc = [1, '2']": "categorical.c must be a list of strings.*Quote",
    "[categorical]\nc = ['a', 'a']": "categorical.c must be free of repeated",
    "[levels]\nc = ['a']": "section of the bounds must be one of numeric",
    "ignore = ['a']\n[numeric]\na = [0, 1]": "'a' must be declared once",
    "[numeric": "bounds must be valid TOML",
}


@pytest.mark.parametrize("text", BAD_BOUNDS)
def test_malformed_bounds_are_refused(tmp_path, text):
    path = tmp_path / "bounds.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=BAD_BOUNDS[text]):
        Schema.from_file(path)


def test_bounds_must_be_toml_or_json(tmp_path):
    with pytest.raises(ValueError, match=r"a \.toml or \.json file"):
        Schema.from_file("bounds.yaml")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match="bounds must be a table"):
        Schema.from_file(tmp_path / "list.json")


@pytest.mark.parametrize("name", ["small", "small.t", "small.libsvm", "small.t.bz2"])
def test_libsvm_files_keep_the_public_number_of_columns(tmp_path, name):
    text = b"+1 1:1 3:0.5 # remark\n\n-1\n-1 2:2\n"
    content = bz2.compress(text) if name.endswith("bz2") else text
    (tmp_path / name).write_bytes(content)
    data = read_table(tmp_path / name, num_features=5, scale=2.0, row_bound=4.0)
    wanted = [[2, 0, 1, 0, 0], [0] * 5, [0, 4, 0, 0, 0]]
    np.testing.assert_array_equal(data.features.toarray(), wanted)
    np.testing.assert_array_equal(data.response, [1, -1, -1])
    assert data.row_bound == 4.0


def test_libsvm_labels_can_be_named(tmp_path):
    (tmp_path / "digits").write_text("0 1:1\n7 1:1\n")
    bounds = Schema(categorical={"label": (0, 1, 7)})
    given = {"num_features": 1, "bounds": bounds}
    data = read_table(tmp_path / "digits", positive_label="7", **given)
    np.testing.assert_array_equal(data.response, [-1, 1])
    assert data.response_bound == 1.0


def test_what_libsvm_needs_and_what_only_it_needs(tmp_path):
    (tmp_path / "small").write_text("1 1:1\n")
    with pytest.raises(ValueError, match="num_features must be given.*--num-features"):
        read_table(tmp_path / "small")
    both = Schema(numeric={"1": (0, 1)}, categorical={"label": (0, 1)})
    for bounds in (Schema(), both, Schema(ignore=("1",))):
        with pytest.raises(
            ValueError, match="bounds must be about the response 'label'"
        ):
            read_table(tmp_path / "small", num_features=1, bounds=bounds)
    with pytest.raises(ValueError, match="target must be absent for LIBSVM"):
        read_table(tmp_path / "small", num_features=1, target="y")
    (tmp_path / "small.csv").write_text("a,y\n1,1\n")
    with pytest.raises(ValueError, match="must be absent except for LIBSVM"):
        read_table(tmp_path / "small.csv", num_features=1, target="y")


BAD_LINES = {
    "1 4:1": "indices between 1 and num_features = 3, got 4",
    "1 0:1": "indices between 1 and num_features = 3, got 0",
    "1 2:1 1:1": "increasing indices",
    "1 2:1 2:1": "increasing indices",
    "1 qid:3 1:1": "of the form 'label index:value ...', got 1 qid:3 1:1",
    "yes 1:1": "of the form",
    "1 2": "of the form",
    "nan 1:1": "labels must be finite",
    "1 1:inf": "values must be finite",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_malformed_libsvm_lines_are_refused(line):
    with pytest.raises(ValueError, match=BAD_LINES[line]):
        entries.parse_libsvm(["1 1:1", line], num_features=3)
    with pytest.raises(ValueError, match="num_features must be an integer >= 1"):
        entries.parse_libsvm([], num_features=0)


def test_records_do_not_decide_whether_a_label_with_public_levels_is_known():
    """Else nothing is released if the one positive record is replaced."""
    frame = pd.DataFrame({"x": [0.1, 0.2], "y": ["no", "no"]})
    for levels, label in ((("no", "yes"), "yes"), ((0, 1, 2), "2.0")):
        schema = Schema(numeric={"x": (0, 1)}, categorical={"y": levels})
        table = frame.assign(y=levels[0])
        given = {"target": "y", "bounds": schema}
        data = from_frame(table, positive_label=label, **given)
        assert data.response.tolist() == [-1.0, -1.0]
        with pytest.raises(ValueError, match="'may' among its public levels.*spelling"):
            from_frame(table.assign(y="may"), positive_label="may", **given)


def test_libsvm_files_keep_what_tables_keep(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:3 2:4\n-1 1:0.1\n")
    given = {"num_features": 2, "row_bound": 1.0}
    data = read_table(path, clip=True, **given)
    np.testing.assert_allclose(data.features.toarray(), [[0.6, 0.8], [0.1, 0.0]])
    assert data.encoding.clip
    with pytest.raises(ValueError, match=r'label = \["another label", "2"\]'):
        read_table(path, positive_label="2", **given)
    with pytest.raises(ValueError, match="symmetric must be absent for LIBSVM"):
        read_table(path, symmetric=False, **given)
    path.write_text("")
    with pytest.raises(ValueError, match="a table with records"):
        read_table(path, **given)
