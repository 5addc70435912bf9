"""The encoding of a record: by itself, whatever library or type its table has."""

import dataclasses
import datetime
import json
from collections import Counter
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dpsample as dps
from dpsample.numerics import norms
from dpsample.tables import (
    Encoding,
    Schema,
    TextFormat,
    entries,
    from_frame,
    read,
    read_table,
)
from dpsample.tables.encoding import clip_rows

SCHEMA = Schema(
    numeric={"a": (0, 100), "b": (0, 1), "y": (-50, 150)},
    log={"m": (-10, 1000)},
    date={"d": ("2020-01-01", "2021-01-01")},
    categorical={"c": ("x", "y"), "g": (1, 2), "t": ("True", "False")},
    ignore=("id",),
    missing={"b": 0.5, "m": 10, "t": "True"},
    missing_indicator=("a", "d", "c", "g"),
)
ENCODING = Encoding(schema=SCHEMA, target="y", clip=True)
UTC = datetime.UTC
AHEAD = datetime.timezone(datetime.timedelta(hours=5))
RECORDS = {
    "a": [1, None, 300],
    "b": [True, False, True],
    "m": [0.1, 7.0, float("nan")],
    "d": [
        datetime.datetime(2020, 5, 6, 3, tzinfo=AHEAD),
        None,
        datetime.datetime(2020, 1, 1, tzinfo=UTC),
    ],
    "c": ["x", "z", None],
    "g": [1, None, 2],
    "t": [True, False, True],
}
TEXT = {
    "t": [" True", "False", "?"],
    "g": ["1.0", "", " 2"],
    "c": ["x ", "z", "NA"],
    "d": ["2020-05-05", "null", "2020-01-01T09:00:00"],
    "m": ["1e-1", "7", "nan"],
    "b": ["1", "0", "1.0"],
    "a": ["01", "N/A", "3e2"],
}
FRAMES = {
    "polars": lambda: pl.DataFrame(RECORDS),
    "polars types": lambda: pl.DataFrame(RECORDS).with_columns(
        pl.col("c").cast(pl.Categorical),
        pl.col("g").cast(pl.Decimal(10, 2)),
        pl.col("a").cast(pl.Float32),
        pl.col("d").dt.date(),
    ),
    "pandas": lambda: pd.DataFrame(RECORDS),
    "pandas types": lambda: pd.DataFrame(RECORDS).astype(
        {"a": "Int64", "b": "boolean", "c": "category", "d": object, "g": "Float64"}
    ),
    "objects": lambda: pd.DataFrame(RECORDS).astype(object),
    "arrow": lambda: pd.DataFrame(RECORDS).convert_dtypes(dtype_backend="pyarrow"),
    "text": lambda: pd.DataFrame(TEXT),
    "polars text": lambda: pl.DataFrame(TEXT),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_library_and_types_and_order_change_no_number(kind):
    first, second = ENCODING.features(FRAMES["pandas"]()), FRAMES[kind]()
    np.testing.assert_array_equal(ENCODING.features(second), first)
    for i in range(3):  # of one record alone, the types are others
        np.testing.assert_array_equal(ENCODING.features(second[i : i + 1])[0], first[i])
    assert ENCODING.features(second[:0]).shape == (0, first.shape[1])


def test_entries_by_hand():
    rows = ENCODING.features(FRAMES["text"]()) * np.sqrt(7)
    named = dict(zip(ENCODING.feature_names, rows.T, strict=True))
    log = np.log1p([10.0, 1000.0])
    wanted = {
        "a": [-0.98, 0, 1],
        "a=missing": [0, 1, 0],
        "b": [1, -1, 1],
        "m": 2 * (np.log1p([0.1, 7, 10]) + log[0]) / log.sum() - 1,
        "d": [2 * 125 / 366 - 1, 0, -1],
        "d=missing": [0, 1, 0],
        "c=x": [1, 0, 0],
        "c=y": [0, 0, 0],
        "c=missing": [0, 0, 1],
        "g=1": [1, 0, 0],
        "g=2": [0, 0, 1],
        "g=missing": [0, 1, 0],
        "t=True": [1, 0, 1],
        "t=False": [0, 1, 0],
    }
    assert set(named) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(named[name], values, atol=1e-14, err_msg=name)


NUMBERS = st.sampled_from(
    ["1", "1.0", "0.1", "7e-1", "NA", "", "  2", "123456789012345678901", "1e-320"]
    + ["0.30000000000000004", "9007199254740993", "-0.0", ".5", "٣"]
)


@given(st.lists(NUMBERS, min_size=2, max_size=5))
def test_no_type_of_a_column_changes_a_record(texts):
    schema = Schema(numeric={"a": (0, 1)}, missing={"a": 0})
    encoding = Encoding(schema=schema, clip=True)
    every = encoding.features(pd.DataFrame({"a": texts}))
    mixed = [float(t) if t.strip("NA ") else None for t in texts]
    for i, text in enumerate(texts):
        alone = encoding.features(pd.DataFrame({"a": [text]}))
        assert alone.tobytes() == every[i : i + 1].tobytes()
        half = mixed[:i] + [text] + mixed[i + 1 :]
        assert encoding.features(pd.DataFrame({"a": half})).tobytes() == every.tobytes()


def test_a_word_in_a_column_leaves_the_other_records_of_a_file_alone(tmp_path):
    schema = Schema(categorical={"c": ("1", "2")}, numeric={"y": (0, 2)})
    rows = []
    for last in ("2", "x", "1.0", "1e9"):
        (tmp_path / "t.csv").write_text(f"c,y\n1,0.1\n{last},1\n")
        data = read_table(tmp_path / "t.csv", target="y", bounds=schema, clip=True)
        rows.append((data.features[0].tobytes(), data.response[0]))
    assert len(set(rows)) == 1


LEVELS = [
    (("0.1", "2"), ["0.1", 0.1, np.float32(0.1)], [np.float32(0.1000001)]),
    (("1", "2"), ["1", 1, 1.0, np.int8(1), np.float32(1), True], ["1.0", "01", 1.5]),
    (("1", "2"), [Decimal(1), Decimal("1.00")], [Decimal("1.5"), Decimal("1e999")]),
    (("1.0", "2.0"), ["1.0", 1.0, 1, Decimal(1)], ["1", "01"]),
    ((1, 2), ["1", "1.0", " 01", 1, 1.0, True, Decimal(1)], ["one", 1.5, 10**400, 1j]),
    (("TRUE", "no"), ["TRUE", True, np.True_], ["true", 1, [1], object()]),
    (("NA", "b"), ["NA", b"NA"], ["na", b"\xff"]),
]


@pytest.mark.parametrize(("levels", "same", "others"), LEVELS)
def test_levels_that_look_like_numbers(levels, same, others):
    encoding = Encoding(schema=Schema(categorical={"c": levels}), clip=True)
    for entry, hit in [(e, 1.0) for e in same] + [(e, 0.0) for e in others]:
        cell = pd.Series([entry], dtype=object).to_frame("c")
        np.testing.assert_array_equal(encoding.features(cell), [[hit, 0.0]])


@given(
    values=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=3
    ),
    row_norm=st.sampled_from([1.0, 1.5, 2.0, np.inf]),
    symmetric=st.booleans(),
    row_bound=st.sampled_from([None, 0.5]),
)
def test_rows_obey_the_bound_with_gaps(values, row_norm, symmetric, row_bound):
    n = len(values)
    frame = pd.DataFrame({"a": values, "b": values, "m": values}).assign(
        c=["x", None, "q"][: min(3, n)] + ["y"] * (n - 3), g=1, t=True, d=None
    )
    options = {"row_norm": row_norm, "symmetric": symmetric, "row_bound": row_bound}
    encoding = dataclasses.replace(ENCODING, **options)
    norms = np.linalg.norm(encoding.features(frame), ord=row_norm, axis=1)
    assert (norms <= encoding.row_bound * (1 + 1e-12)).all()


def test_a_skipped_column_is_missed_and_an_unknown_one_is_refused():
    frame = FRAMES["pandas"]()
    for method in (ENCODING.features, ENCODING.new_features):
        with pytest.raises(ValueError, match="complete, got none named 'c', 'g'"):
            method(frame.drop(columns=["c", "g"]))
        with pytest.raises(ValueError, match="'__class__' must be declared in the bou"):
            method(frame.assign(__class__=1))
        with pytest.raises(ValueError, match="two named 'a'"):
            method(pd.concat([frame, frame[["a"]]], axis=1))


def test_columns_of_any_name_are_encoded():
    names = ("__class__", "", "a\nb", "shape", "=1+1")
    encoding = Encoding(schema=Schema(numeric=dict.fromkeys(names, (0, 1))))
    frame = pd.DataFrame([[0.5] * 5], columns=names[::-1])
    np.testing.assert_array_equal(encoding.features(frame), np.zeros((1, 5)))
    assert Encoding.from_dict(json.loads(json.dumps(encoding.to_dict()))) == encoding


ODD = {
    "inf": (float("inf"), "numeric, got inf in record 1"),
    "huge": ("1e999", "numeric, got '1e999'"),
    "object": (object(), "numeric, got <object"),
    "list": ([1.0], r"numeric, got \[1.0\]"),
    "complex": (1j, "numeric, got 1j"),
    "word": ("old", "numeric, got 'old' in record 1"),
    "huge integer": (10**5000, "numeric, got "),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_number_is_refused_even_when_clipped(case):
    entry, message = ODD[case]
    frame = pd.DataFrame({"a": pd.Series([1.0, entry], dtype=object)})
    encoding = Encoding(schema=Schema(numeric={"a": (0, 1)}), clip=True)
    for method in (encoding.features, encoding.new_features):
        with pytest.raises(ValueError, match=f"'a' must be {message}"):
            method(frame)


def test_only_new_records_are_told_what_was_clipped(recwarn):
    frame = FRAMES["pandas"]()
    rows = ENCODING.features(frame)
    assert not recwarn
    with pytest.warns(RuntimeWarning, match="1 of 'a' outside .0, 100., 1 of 'c' at"):
        np.testing.assert_array_equal(ENCODING.new_features(frame), rows)
    strict = dataclasses.replace(ENCODING, clip=False)
    with pytest.raises(ValueError, match="'a' must be within its public bounds"):
        strict.features(frame)
    with pytest.warns(RuntimeWarning):
        np.testing.assert_array_equal(strict.new_features(frame), rows)


def test_dates_may_be_written_otherwise_and_out_of_range():
    schema = Schema(
        date={"d": ("2020-01-01", "2020-12-31")},
        file={"date_format": "%d.%m.%Y"},
    )
    encoding = Encoding(schema=schema, clip=True)
    rows = encoding.features(pd.DataFrame({"d": ["31.12.2020", "1.1.1999"]}))
    np.testing.assert_array_equal(rows, [[1.0], [-1.0]])
    for bad in ("2020-01-01", 17, "31.02.2020"):
        with pytest.raises(ValueError, match="'d' must be of dates, got"):
            encoding.features(pd.DataFrame({"d": [bad]}))
    with pytest.raises(ValueError, match="of dates"):
        first = datetime.datetime(1, 1, 1, tzinfo=AHEAD)
        encoding.features(pd.DataFrame({"d": [first]}, dtype=object))
    far = pd.DataFrame({"d": np.array(["12000-01-01"], dtype="datetime64[s]")})
    with pytest.raises(ValueError, match="of dates"):
        encoding.features(far)


@pytest.mark.parametrize("section", ["numeric", "log"])
def test_numeric_responses_come_back_in_their_units(section):
    schema = Schema(**{section: {"a": (0, 1), "y": (-5, 900)}})
    encoding = Encoding(schema=schema, target="y")
    y = np.array([-5.0, 0.0, 1e-3, 17.0, 900.0])
    made = encoding.response(pd.DataFrame({"y": y}))
    assert abs(made).max() == 1.0
    np.testing.assert_allclose(
        encoding.raw_response(made, is_label=False), y, atol=1e-12, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("declared", "entry", "message"),
    [
        (
            {"categorical": {"y": ("no", "yes")}},
            "maybe",
            r"public levels, got 'maybe' .*"
            r"List every possible label in \[categorical\], spelled as",
        ),
        (
            {"categorical": {"y": ("no", "yes")}},
            None,
            r"missing value .* Drop such r\S+ f",
        ),
        (
            {"numeric": {"y": (0, 1)}},
            np.nan,
            r"missing value .* Drop such records first",
        ),
        ({}, np.nan, r"missing value .* Drop such records first"),
    ],
)
def test_remedies_for_a_response_are_those_it_has(declared, entry, message):
    numeric = {"a": (0, 1)} | declared.pop("numeric", {})
    schema = dps.tables.Schema(numeric=numeric, **declared)
    encoding = dps.tables.Encoding(schema=schema, columns=("a",), target="y", clip=True)
    with pytest.raises(ValueError, match=f"^column 'y' must be .*{message}"):
        encoding.response(pd.DataFrame({"y": [entry]}))


def test_labels_come_back_where_both_are_public():
    frame = pd.DataFrame({"a": [0, 1], "y": ["no", "yes"]})
    numeric = {"a": (0, 1)}
    both = Schema(numeric=numeric, categorical={"y": ("no", "yes")})
    three = Schema(numeric=numeric, categorical={"y": ("no", "yes", "may")})
    for schema, positive, signs, labels in (
        (both, None, [-1, 1], ["no", "yes"]),
        (both, "no", [1, -1], ["no", "yes"]),
        (three, "no", [1, -1], [1.0, -1.0]),
    ):
        data = from_frame(frame, target="y", bounds=schema, positive_label=positive)
        np.testing.assert_array_equal(data.response, signs)
        back = data.encoding.raw_response(data.response, is_label=True)
        np.testing.assert_array_equal(back, labels)


def test_a_problem_has_the_encoding_of_its_rows():
    frame = pd.DataFrame({"a": [0.0, 0.5, 1.0], "b": [1, 0, 1], "y": [0, 1, 1]})
    ranges, levels = {"a": (0, 1), "b": (0, 1)}, {"y": (0, 1)}
    schema = Schema(numeric=ranges, categorical=levels)
    data = from_frame(frame, target="y", bounds=schema, positive_label="1")
    spec = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(1.0)}
    options = spec | {"row_bound": 0.5, "encoding": data.encoding, "clip_rows": True}
    problem = dps.Problem(data.features, data.response, **options)
    fit = dps.minimize(problem, dps.optimizers.NoisyGD(), None, seed=1)
    with pytest.warns(RuntimeWarning, match="3 rows above 0.5"):  # as in training
        margins, labels = fit.margin(frame), fit.predict(frame.drop(columns="y"))
    np.testing.assert_array_equal(margins, fit.margin(problem.data.dense))
    np.testing.assert_array_equal(labels, np.where(margins >= 0, 1, 0))
    for wrong, message in (
        ({"feature_names": ["b", "a"]}, "feature_names must be those of the encoding"),
        ({"row_norm": 1.0}, "row_norm must be 2, as in the encoding, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            dps.Problem(data.features, data.response, **options | wrong)
    with pytest.raises(ValueError, match="feature_names must be those of the encoding"):
        dps.Problem(frame[["b", "a"]] / 2, data.response, **options)
    assert dps.Problem.from_table(data, **spec).encoding == data.encoding


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_shortening_a_row_scales_no_other(make):
    """Not even those that are above the bound by rounding, as in a Problem."""
    frame = pd.DataFrame({"a": [0.0, 1.0], "b": [1.0, 0.0], "y": [0, 1]})
    ranges, levels = {"a": (0, 1), "b": (0, 1)}, {"y": (0, 1)}
    schema = Schema(numeric=ranges, categorical=levels)
    data = from_frame(frame, target="y", bounds=schema, positive_label="1")
    encoding = dataclasses.replace(data.encoding, row_bound=1.0)
    rows = np.array([[1.0 + 5e-13, 0.0], [0.0, 5.0]])
    norm = partial(norms.norm, p=2.0)
    short = clip_rows(make(rows), encoding.row_bound, norm, Counter())
    short = short if isinstance(short, np.ndarray) else short.toarray()
    np.testing.assert_array_equal(short, [rows[0], [0.0, 1.0]])


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, np.inf])
@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
@pytest.mark.parametrize("bound", [1.0, 1e250])
def test_rows_whose_norm_overflows_keep_their_direction(make, p, bound):
    """They became rows of zeros, which predict the intercept."""
    rows = np.array([[1.5e308, 1.5e308, -1.5e308], [3.0, 0.0, 4.0]])
    short = clip_rows(make(rows), bound, partial(norms.norm, p=p), Counter())
    short = short if isinstance(short, np.ndarray) else short.toarray()
    norm = norms.norm(np.array([1.0, 1.0, -1.0]), p)
    np.testing.assert_allclose(short[0], bound / norm * np.sign(rows[0]), rtol=1e-14)
    expected = rows[1] if bound > 10.0 else rows[1] / norms.norm(rows[1], p)
    np.testing.assert_allclose(short[1], expected, rtol=1e-15)


def test_a_file_without_header_may_lack_its_response():
    schema = Schema(columns=("y", "a"), numeric={"a": (0, 40)})
    full = read.to_frame(b"1,10\n0,20\n", "csv", schema)
    part = read.to_frame(b"10\n20\n", "csv", schema, optional="y")
    encoding = Encoding(schema=schema, target="y")
    rows = [encoding.features(frame) for frame in (full, part)]
    np.testing.assert_array_equal(rows[0], rows[1])


HOSTILE = {
    "no dict": lambda d: [d],
    "other format": lambda d: d | {"format": "dpsample encoding 0"},
    "more": lambda d: d | {"more": 1},
    "fewer": lambda d: {k: v for k, v in d.items() if k != "clip"},
    "columns": lambda d: d | {"columns": ["a", "a"]},
    "undeclared": lambda d: d | {"columns": ["zz"]},
    "no columns": lambda d: d | {"schema": None, "columns": []},
    "text for a number": lambda d: d | {"scale": "1"},
    "nan": lambda d: d | {"scale": float("nan")},
    "huge": lambda d: d | {"scale": 1e300},
    "norm": lambda d: d | {"row_norm": 0.5},
    "schema": lambda d: d | {"schema": {"numeric": {"a": [0, float("inf")]}}},
    "other words": lambda d: d | {"schema": d["schema"] | {"ignore": []}},
    "flag": lambda d: d | {"clip": 1},
    "date": lambda d: d | {"schema": d["schema"] | {"date": {"d": ["1", "2"]}}},
    "levels": lambda d: d | {"schema": d["schema"] | {"categorical": {"c": [[]]}}},
    "file": lambda d: d | {"schema": d["schema"] | {"file": {"encoding": "zip"}}},
    "deep": lambda d: d | {"schema": {"numeric": {"a": [[[[1]]], 2]}}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_description_is_refused_in_the_grammar(case):
    content = json.loads(json.dumps(ENCODING.to_dict(), allow_nan=False))
    assert Encoding.from_dict(content) == ENCODING
    with pytest.raises(ValueError, match=r" must be .*, got "):
        Encoding.from_dict(HOSTILE[case](content))


BAD = {
    "[numeric]\na = []": "Fill in public facts",
    "[numeric]\na = [nan, 1]": "two finite numbers",
    "[numeric]\na = [-1e300, 1e300]": "two finite numbers",
    "[log]\na = [1e17, 1.00000000000000001e17]": "lower < upper",
    f'[numeric]\n"{"a" * 10**5}" = [1, 0]': "lower < upper",
    f'[date]\nd = ["{"9" * 10**5}", "2"]': "ISO 8601",
    "[date]\nd = [2021-01-01, 2020-01-01]": "lower < upper",
    "[categorical]\nc = [true, 1]": "a list of strings, or of integers",
    "[missing]\na = 1": "about a declared column",
    "[numeric]\na = [0, 1]\n[missing]\na = 2": "in the column's range",
    "[categorical]\nc = [1, 2]\n[missing]\nc = '1'": "one of the column's levels",
    "missing_indicator = ['a']": "declared, and without a constant",
    "[file]\nseparator = ';;'": "one character",
    "[file]\ndecimal = '.'\nthousands = '.'": "another mark than decimal",
    "[file]\nencoding = 'rot13'": "an encoding of text",
    "[file]\nquote = '1'": "a description of TextFormat",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:30])
def test_bounds_that_are_unfilled_or_odd_say_what_to_do(tmp_path, text):
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(ValueError, match=BAD[text]) as refusal:
        Schema.from_file(tmp_path / "b.toml")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("marks", "text", "value"),
    [
        ({}, "1.5", 1.5),
        ({}, "1,5", None),
        ({"decimal": ","}, "1,5", 1.5),
        ({"decimal": ","}, "1.5", None),
        ({"thousands": ","}, "-1,234,567.5", -1234567.5),
        ({"thousands": ","}, "1234,567", None),
        ({"thousands": ","}, "1,23", None),
        ({"thousands": ","}, "1,234.5,6", None),
        ({"decimal": ",", "thousands": "."}, "1.500", 1500.0),
        ({"decimal": ",", "thousands": "."}, "1.5", None),
        ({"thousands": " "}, "12 000", 12000.0),
    ],
)
def test_marks_of_numbers(marks, text, value):
    assert entries.parse_number(text, TextFormat(**marks)) == value


@pytest.mark.parametrize("text", ["1_2", "1,2e3", "1,_12", "1,23", "1_234"])
def test_marks_that_are_not_declared_or_not_between_thousands_are_none(text):
    file = {"thousands": ","}
    for marks in (file, {}):
        schema = Schema(numeric={"a": (0, 1e6)}, file=marks)
        encoding = Encoding(schema=schema, columns=("a",))
        with pytest.raises(ValueError, match="column 'a' must be numeric"):
            encoding.features(pd.DataFrame({"a": ["1", text]}))
    with pytest.raises(ValueError, match="of the form 'label index:value"):
        entries.parse_libsvm(["1 1_0:0.5"], 20)


def test_facts_that_cannot_be_read_in_one_way_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Quote every entry"):
        Schema(categorical={"a": (2**53, 2**53 + 1)})
    with pytest.raises(ValueError, match="must be a format of dates"):
        Schema(file={"date_format": "%Y-%Y"})
    (tmp_path / "b.json").write_text('{"numeric":{"a":[0,100],"a":[0,10]}}')
    with pytest.raises(ValueError, match="a name is repeated"):
        Schema.from_file(tmp_path / "b.json")
