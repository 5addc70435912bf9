"""The encoding of a table is that of its records one by one, whatever holds them."""

import datetime
import io
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dpsample.tables import Schema, entries, from_frame, read

LONG = 2**53 + 1
DAY, TIME = datetime.date(2020, 5, 6), datetime.datetime(2020, 5, 6, 23, 30)
ZONE = datetime.timezone(datetime.timedelta(hours=-5))
ACCENT = "caf\u00e9"
# Entries of one kind, and the type by which Arrow has them.
KINDS = {
    "integers": ([0, 1, 2, -7, LONG, 2**63 - 1], pa.int64()),
    "unsigned": ([1, LONG, 2**64 - 1], pa.uint64()),
    "single": ([0.5, float(np.float32(0.1)), 1.0, float("nan")], pa.float32()),
    "floats": ([0.1, 1.0, 1e300, -2.5, float("nan")], pa.float64()),
    "booleans": ([True, False], pa.bool_()),
    "decimals": (
        [Decimal("1.10"), Decimal("0.10"), Decimal(LONG)],
        pa.decimal128(38, 2),
    ),
    "texts": (["1", "1.0", " x", "NA", "", "True", str(LONG), ACCENT], pa.string()),
    "bytes": ([b"1", b"x ", b"\xff", ACCENT.encode()], pa.binary()),
    "days": ([DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], pa.date32()),
    "times": ([TIME, datetime.datetime(1990, 1, 1)], pa.timestamp("us")),
    "zoned": ([TIME.replace(tzinfo=ZONE)], pa.timestamp("us", "America/New_York")),
    "words of a dictionary": (
        ["1", "x", ACCENT],
        pa.dictionary(pa.int32(), pa.string()),
    ),
    "codes of a dictionary": ([1, LONG, 0], pa.dictionary(pa.int32(), pa.int64())),
    "nested": ([[1], [], [None]], pa.list_(pa.int64())),
    "nothing": ([None], pa.null()),
}
MIXED = [v for values, _ in KINDS.values() for v in values]
LEVELS = ("1", "x", "True", "1.1", "2020-05-06", "cafe\u0301", "1.0")
# Each declares what any entry becomes, those that are missing too in all but one.
GAPS = {"missing_indicator": ["c"]}
RULES = {
    "levels": {"categorical": {"c": LEVELS}} | GAPS,
    "long": {"categorical": {"c": (*LEVELS, str(LONG))}} | GAPS,
    "codes": {"categorical": {"c": (0, 1, 2)}} | GAPS,
    "truth": {"categorical": {"c": (False, True)}} | GAPS,
    "number": {"numeric": {"c": (0, 2**60)}} | GAPS,
    "log": {"log": {"c": (-10, 10)}, "missing": {"c": 0}},
    "day": {"date": {"c": ("2000-01-01", "2030-01-01")}} | GAPS,
    "constant": {"categorical": {"c": LEVELS}, "missing": {"c": " x"}},
    "complete": {"categorical": {"c": LEVELS}},
}


def of_arrow(values, kind):
    return pa.table({"c": pa.array(values, KINDS[kind][1])})


def parquet_file(values, kind):
    stream = io.BytesIO()
    parquet.write_table(of_arrow(values, kind), stream)
    return read.to_frame(stream.getvalue(), "parquet", None)


def text_file(values, kind, separator=","):
    def quoted(value):
        text = "" if value is None else str(value)
        return '"' + text.replace('"', '""') + '"'

    lines = [f"c{separator}z", *(f"{quoted(v)}{separator}0" for v in values)]
    content = "\n".join(lines).encode()
    frame = read.to_frame(content, "csv" if separator == "," else "tsv", None)
    return frame.drop(columns="z")


def nullable(values, kind):
    types = {
        "integers": "Int64",
        "unsigned": "UInt64",
        "single": "Float32",
        "floats": "Float64",
        "booleans": "boolean",
        "texts": "string",
        "times": "datetime64[us]",
        "words of a dictionary": pd.CategoricalDtype(["1", "x", ACCENT]),
        "codes of a dictionary": pd.CategoricalDtype([1, LONG, 0]),
    }
    return pd.DataFrame({"c": pd.Series(values, dtype=types.get(kind, object))})


CONTAINERS = {
    "pyarrow": of_arrow,
    "parquet": parquet_file,
    "polars": lambda values, kind: pl.from_arrow(of_arrow(values, kind)),
    "pandas of Arrow": lambda values, kind: of_arrow(values, kind).to_pandas(
        types_mapper=pd.ArrowDtype
    ),
    "pandas, nullable": nullable,
    "pandas, objects": lambda values, kind: pd.DataFrame(
        {"c": pd.Series(values, dtype=object)}
    ),
    "csv": text_file,
    "tsv": lambda values, kind: text_file(values, kind, "\t"),
}


def encoded(values, kind, container, rule, clip):
    """Rows of a table, or None if it is refused."""
    frame = CONTAINERS[container](values, kind)
    length = pa.array(np.zeros(len(values)))
    if isinstance(frame, pa.Table):
        frame = frame.append_column("y", length)
    elif isinstance(frame, pl.DataFrame):
        frame = frame.with_columns(y=pl.lit(0.0))
    else:
        frame = frame.assign(y=0.0)
    try:
        data = from_frame(frame, target="y", bounds=Schema(**RULES[rule]), clip=clip)
    except ValueError as error:
        assert " must be " in str(error), error
        return None
    return data.features


def compare(values, *case):
    """Require of a table what its records give one by one."""
    rows, alone = encoded(values, *case), [encoded([v], *case) for v in values]
    kind, _, rule, _ = case
    is_short = kind in ("single", "floats") and rule == "long"
    if rule != "complete" and not is_short:  # what is missing has a rule
        assert encoded([None], *case) is not None, case
    if any(row is None for row in alone):
        assert rows is None, (values, case)
    else:
        assert rows is not None, (values, case)
        assert rows.tobytes() == np.concatenate(alone).tobytes(), (values, case)


@st.composite
def cases(draw):
    kind = draw(st.sampled_from([*KINDS, "mixed"]))
    container = draw(st.sampled_from([*CONTAINERS]))
    if kind == "mixed":
        container = draw(st.sampled_from(["pandas, objects", "csv"]))
    pool = MIXED if kind == "mixed" else KINDS[kind][0]
    entry = st.sampled_from([*pool, None])
    values = draw(st.lists(entry, min_size=2, max_size=4))
    rule = draw(st.sampled_from([*RULES]))
    return values, kind, container, rule, draw(st.booleans())


QUIET = [HealthCheck.too_slow]


@settings(max_examples=50, deadline=None, suppress_health_check=QUIET)
@given(cases())
def test_a_table_is_encoded_as_its_records_are_one_by_one(case):  # P1
    compare(*case)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None, suppress_health_check=QUIET)
@given(cases())
def test_thousands_of_tables_are_encoded_as_their_records_are(case):  # P1
    compare(*case)


def of_numpy(series):
    """Entries by NumPy, as they were read once."""
    return series.to_numpy()


def by_pandas(content):
    return pd.read_parquet(io.BytesIO(content))


def by_types(column, levels, file, codes=entries.codes):
    """Codes that compare numbers as text if any entry is text."""
    is_text = any(isinstance(entry, str) for entry in column.entries)
    texts = [str(entry) for entry in column.entries]
    return codes(entries.Column("c", texts) if is_text else column, levels, file)


MUTANTS = {
    "to_numpy": (entries, "entries_of", of_numpy, "integers", "polars", [LONG, None]),
    "Parquet by pandas": (
        read,
        "_arrow_table",
        by_pandas,
        "integers",
        "parquet",
        [LONG, None],
    ),
    "types": (entries, "codes", by_types, "mixed", "pandas, objects", [True, "x", 1.0]),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_comparison_finds_planted_bugs(monkeypatch, name):
    module, attribute, mutant, kind, container, values = MUTANTS[name]
    case = (kind, container, "long", True)
    compare(values, *case)
    monkeypatch.setattr(module, attribute, mutant)
    with pytest.raises(AssertionError):
        compare(values, *case)


IDS = ("12", str(LONG), str(LONG + 1))


@pytest.mark.parametrize("container", [c for c in CONTAINERS if c != "pandas, objects"])
def test_one_missing_entry_leaves_long_integers_as_they_are(container):  # P1
    schema = Schema(categorical={"c": IDS}, missing_indicator=["c"])
    rows = []
    for last in (12, None):
        frame = CONTAINERS[container]([LONG, LONG + 1, last], "integers")
        encoding = read.Encoding(schema=schema)
        rows.append(encoding.features(frame)[:2])
    np.testing.assert_array_equal(rows[0], [[0, 1, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(rows[1], rows[0])


def test_floating_point_that_cannot_hold_its_levels_is_refused_by_type():  # P1
    """Whatever the entries are: pandas makes integers so if one is missing."""
    encoding = read.Encoding(schema=Schema(categorical={"c": IDS}), clip=True)
    for values in ([12.0], [float(LONG)], [np.nan]):
        for kind in (float, "float32", "Float64", "category"):
            frame = pd.DataFrame({"c": pd.Series(values, dtype=float).astype(kind)})
            with pytest.raises(ValueError, match="must be of integers or text.*Int64"):
                encoding.features(frame)
    short = read.Encoding(schema=Schema(categorical={"c": ("12", str(LONG - 2))}))
    assert short.features(pd.DataFrame({"c": [12.0]})).tolist() == [[1.0, 0.0]]


def widened(values, hostile):
    """Indicators of all records but the last, which is hostile, beside those alone."""
    frame = pd.DataFrame({"c": values, "y": range(len(values))})
    other = pd.DataFrame({"c": [*values, hostile], "y": range(len(values) + 1)})
    levels = ["0.1", "1", "2", "2020-05-06", "2020-05-07 04:30:00+00:00"]
    bounds = Schema(categorical={"c": levels}, numeric={"y": (0, 9)})
    alone, beside = (
        from_frame(f, target="y", bounds=bounds, clip=True).features
        for f in (frame, other)
    )
    return alone, beside[:-1]


@pytest.mark.parametrize("hostile", [1j, 2.5, "x", DAY, TIME, 2 + 0j])
@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        [1.0, 2.0],
        [np.float32(0.1)],
        [DAY],
        [datetime.datetime(2020, 5, 6)],
        [TIME.replace(tzinfo=ZONE)],
        [pd.Timestamp("2020-05-06", tz="UTC")],
    ],
)
def test_one_record_that_widens_a_column_leaves_the_levels_of_others(values, hostile):
    alone, beside = widened(values, hostile)  # P1
    assert alone.any(axis=1).all() and alone.tobytes() == beside.tobytes()


def test_a_day_is_its_midnight_when_one_time_makes_all_times():  # P1
    days = pl.DataFrame({"c": [DAY, DAY], "y": [0, 1]})
    times = days.with_columns(pl.Series("c", [DAY, TIME], strict=False))
    bounds = Schema(categorical={"c": [str(DAY), "other"]}, numeric={"y": (0, 1)})
    first, second = (
        from_frame(f, target="y", bounds=bounds, clip=True).features[0]
        for f in (days, times)
    )
    assert first.any() and first.tobytes() == second.tobytes()


def test_a_missing_time_of_pandas_is_missing_among_levels():
    frame = pd.DataFrame({"c": [pd.NaT, DAY], "y": [0, 1]}, dtype=object)
    bounds = Schema(
        categorical={"c": [str(DAY), "other"]},
        numeric={"y": (0, 1)},
        missing={"c": "other"},
    )
    rows = from_frame(frame, target="y", bounds=bounds).features
    assert rows.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_columns_that_are_ignored_may_hold_anything():
    far = pl.Series([10**7, 0]).cast(pl.Int32).cast(pl.Date)
    frame = pl.DataFrame({"far": far, "c": [0, 1], "y": [0.0, 1.0]})
    schema = Schema(numeric={"c": (0, 1)}, ignore=["far"])
    assert from_frame(frame, target="y", bounds=schema).features.tolist() == [[-1], [1]]
    dated = Schema(date={"far": ("2000-01-01", "2030-01-01")}, ignore=["c"])
    with pytest.raises(ValueError, match="'far' must be of dates, got .* in record 0"):
        from_frame(frame, target="y", bounds=dated, clip=True)


def test_descriptions_of_old_levels_still_load():
    schema = Schema(numeric={"a": (0, 1)}, categorical={"c": ("north ", "s")})
    encoding = read.Encoding(schema=schema, positive_label="s", target="y")
    content = json.loads(json.dumps(encoding.to_dict()))
    assert read.Encoding.from_dict(content) == encoding
