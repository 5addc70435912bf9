"""Formats of files, and single entries: numbers, days and codes, each by itself.

No type that a whole column was given decides what an entry becomes, for that would
depend on other records: the entries "1", 1 and 1.0 are one number, whether or not
another record has "x" in that column.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.sparse import CSR, MAX_SIDE
from dpsample.tables.schema import LARGEST, Levels, TextFormat

Result = TypeVar("Result")

COMPRESSED = (".bz2", ".xz", ".gz")
BLOCK = 2**20  # bytes that are read at once
# Uncompressed bytes of a compressed file: a kilobyte can hold the zeros of gigabytes.
LARGEST_FILE = 2**32
FORMATS = {
    ".csv": "csv",
    ".data": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
CLIP_REMEDY = "Correct the public bounds, or clip (clip=True, --clip-rows)."
DROP_REMEDY = "Drop such records first."
LABEL_REMEDY = (
    "Correct the public levels, or name the positive label, beside which all others "
    "count as -1 (positive_label=..., --positive-label ...)."
)
MISSING_REMEDY = (
    "Drop such records, or declare a public rule: a constant in [missing], or the "
    "column in missing_indicator; one of its levels may mean 'unknown', too."
)
UNKNOWN, ABSENT = -1, -2  # codes of entries that are no level, or missing


def content(path: Path) -> bytes:
    """Whole uncompressed content.

    Raises
    ------
    ValueError
        If there is no such file, or it does not decompress to at most `LARGEST_FILE`
        bytes.
    """
    if not path.is_file():
        check.fail("path", "an existing file", str(path))
    if path.suffix not in COMPRESSED:
        return path.read_bytes()
    found, size = [], 0
    try:
        for piece in _unpacked(path):
            found.append(piece)
            size += len(piece)
            if size > LARGEST_FILE:
                break
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        remedy = "Fetch the file again."
        check.fail("path", "an intact file", f"{path.name}: {error}", remedy)
    if size > LARGEST_FILE:
        remedy = "Unpack it first, if it is what it should be."
        check.fail("path", f"of at most {LARGEST_FILE} bytes", path.name, remedy)
    return b"".join(found)


def _unpacked(path: Path) -> Iterator[bytes]:
    """Pieces of all streams of a file, which may end with zeros.

    Python's own readers of bz2 and xz end in silence where a later stream is damaged.
    """
    if path.suffix == ".gz":
        with gzip.open(path) as packed:
            while piece := packed.read(BLOCK):
                yield piece
        return
    kind = bz2.BZ2Decompressor if path.suffix == ".bz2" else lzma.LZMADecompressor
    with path.open("rb") as file:
        rest, stream = file.read(BLOCK), None
        while rest:
            rest = rest.lstrip(b"\0")
            if not rest:
                rest = file.read(BLOCK)
                continue
            stream = kind()
            while not stream.eof:
                yield stream.decompress(rest, BLOCK)
                rest = b""
                if stream.needs_input and not stream.eof:
                    rest = file.read(BLOCK)
                    if not rest:
                        raise EOFError("its end is missing")
            rest = stream.unused_data or file.read(BLOCK)
        if stream is None:
            raise EOFError("it is empty")


def format_of(path: Path) -> str:
    """Format by the suffix that remains without that of a compression.

    LIBSVM's own files, such as ``a9a`` and ``a9a.t``, have no suffix or ``.t``.
    """
    name = path.with_suffix("") if path.suffix in COMPRESSED else path
    if name.suffix not in FORMATS:
        listed = ", ".join(sorted(set(FORMATS.values())))
        remedy = f"Name the format (format=..., --format ...): one of {listed}."
        check.fail("path", "of a known suffix", path.name, remedy)
    return FORMATS[name.suffix]


def parse(
    lines: Iterable[str], num_features: int, *, source: str = ""
) -> tuple[CSR, Array]:
    """Features and labels of lines ``label index:value ...``, indices from 1.

    The number of columns is public and must be given: a file whose records never use
    the last features would otherwise come out narrower. Text after # is a comment.
    Features have shape (num_records, num_features), labels (num_records,). A malformed
    line is a ValueError that names it, and ``source``.

    Examples
    --------
    >>> features, labels = parse(["+1 1:0.5 3:2", "-1 2:1"], num_features=4)
    >>> features.toarray().tolist(), labels.tolist()
    ([[0.5, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0]], [1.0, -1.0])
    """
    from scipy import sparse

    check.integer(1, num_features=num_features, remedy="It is public: pass it.")
    if num_features >= MAX_SIDE:
        check.fail("num_features", "less than 2**32", str(num_features))
    labels: list[float] = []
    values: list[float] = []
    columns: list[int] = []
    starts = [0]
    place = f" in {source}" if source else ""
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0]
        tokens = text.split()
        if not tokens:
            continue
        try:
            if "_" in text:  # which Python takes for a mark between digits
                raise ValueError
            labels.append(float(tokens[0]))
            for token in tokens[1:]:
                index, _, value = token.partition(":")
                columns.append(int(index) - 1)
                values.append(float(value))
        except ValueError:
            wanted = "of the form 'label index:value ...'"
            check.fail(f"line {number}", wanted, " ".join(tokens[:3])[:80] + place)
        _check_indices(columns[starts[-1] :], num_features, number, place)
        starts.append(len(columns))
    data = (np.array(values), np.array(columns, dtype=np.int64), np.array(starts))
    shape = (len(labels), num_features)
    response = np.array(labels, dtype=np.float64)
    for name, numbers in (("labels", response), ("values", data[0])):
        if not np.isfinite(numbers).all():
            check.fail(
                name, "finite", f"a NaN or an infinity{place}", "Remove such records."
            )
    return sparse.csr_array(data, shape=shape, dtype=np.float64), response


def _check_indices(
    columns: list[int], num_features: int, number: int, place: str
) -> None:
    """Refuse indices that do not increase from 1 to at most ``num_features``."""
    if columns and not (columns[0] >= 0 and columns[-1] < num_features):
        worst = columns[0] if columns[0] < 0 else columns[-1]
        check.fail(
            f"line {number}",
            f"of indices between 1 and num_features = {num_features}",
            f"{worst + 1}{place}",
            "Pass the public number of features.",
        )
    if any(a >= b for a, b in pairwise(columns)):
        check.fail(
            f"line {number}", "of increasing indices", "indices out of order" + place
        )


class Column(NamedTuple):
    """Entries of one column: an array of numbers, or any objects."""

    name: str
    entries: Array | Sequence[Any]

    def refuse(self, bad: Bools, condition: str, remedy: str) -> None:
        """Refuse the first record that is ``bad``, if there is one."""
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            got = "a missing value"
            if condition != "complete":
                got = check.shown(self.entries[first])
            others = f" ({int(bad.sum())} records in all)" if bad.sum() > 1 else ""
            got = f"{got} in record {first}{others}"
            check.fail(f"column {check.shown(self.name)}", condition, got, remedy)


def columns_of(frame: Any) -> dict[str, Column]:
    """Columns of a DataFrame of pandas, polars, or what else narwhals reads."""
    import narwhals.stable.v2 as nw

    labels = columns_module.labels_of(frame)
    if labels is None:
        remedy = "Pass one of pandas or polars."
        check.fail("frame", "a DataFrame", check.shown(type(frame)), remedy)
    try:
        names = [str(label) for label in labels]
        columns_module.distinct("the table", names)
        table = nw.from_native(frame, eager_only=True)
    except (AttributeError, TypeError) as error:
        remedy = f"Pass one of pandas or polars ({error})."
        check.fail("frame", "a DataFrame", check.shown(type(frame)), remedy)
    made = {}
    for name, series in zip(names, table.iter_columns(), strict=True):
        is_plain = series.dtype.is_numeric() and series.dtype != nw.Decimal
        entries = series.to_numpy() if is_plain else series.to_list()
        if is_plain and entries.dtype.kind not in "iuf":  # of nulls among integers
            entries = series.to_list()
        made[name] = Column(name, entries)
    return made


def is_missing(entry: object) -> bool:
    """Whether an entry is None, NaN, or a missing value of pandas."""
    import pandas as pd

    if isinstance(entry, float | np.floating):
        return math.isnan(entry)
    if isinstance(entry, Decimal):
        return entry.is_nan()
    return entry is None or entry is pd.NA or entry is pd.NaT


def _parsed(text: str, file: TextFormat) -> float | None:
    """Return the number that a text is by the declared marks; None if it is none."""
    if file.thousands and file.thousands in text:
        whole, _, decimals = text.lstrip("+-").partition(file.decimal)
        first, *others = whole.split(file.thousands)
        is_grouped = 0 < len(first) <= 3 and all(len(group) == 3 for group in others)
        is_grouped = is_grouped and all(map(str.isdecimal, (first, *others)))
        if not is_grouped or file.thousands in decimals:
            return None
        text = text.replace(file.thousands, "")
    if file.decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    try:
        return _float(text)
    except ValueError:
        return None


def _float(entry: Any) -> float:
    """Return an entry as a number; ``_`` is no mark of digits, as it is in Python."""
    if isinstance(entry, str) and "_" in entry:
        raise ValueError
    return float(entry)


def number(entry: Any, file: TextFormat) -> float | None:
    """Return an entry as a number: NaN if it is missing, None if it is not one."""
    if isinstance(entry, str):
        text = entry.strip()
        return math.nan if text in MISSING else _parsed(text, file)
    if is_missing(entry):
        return math.nan
    try:
        return float(entry)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def day(entry: object, file: TextFormat) -> float | None:
    """Return an entry as a day counted from year 1: NaN if missing, None if no date."""
    if isinstance(entry, str):
        text = entry.strip()
        if text in MISSING:
            return math.nan
        try:
            if file.date_format:
                entry = datetime.datetime.strptime(text, file.date_format)
            else:
                entry = datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
    if is_missing(entry):
        return math.nan
    if not isinstance(entry, datetime.date):
        return None
    try:
        if isinstance(entry, datetime.datetime) and entry.tzinfo is not None:
            entry = entry.astimezone(datetime.UTC)
        return float(entry.toordinal())
    except (OverflowError, NotImplementedError):  # of a year that is not 1 to 9999
        return None


NUMERIC = (
    "Declare a column of words in [categorical], one of dates in [date]; decimal and "
    "thousands in [file] say how numbers are written."
)
DATES = (
    "Dates are as 2020-12-31 unless date_format in [file] says how they are written; "
    "declare a column of words in [categorical]."
)


def _each(column: Column, function: Callable[[Any], Result]) -> list[Result]:
    """Values of a function of single entries; texts repeat, and are looked at once."""
    known = cache(function)
    return [known(e) if type(e) is str else function(e) for e in column.entries]


def _converted(
    column: Column,
    convert: Callable[[Any, TextFormat], float | None],
    file: TextFormat,
    condition: str,
    remedy: str,
) -> Array:
    """Convert every entry; NaN stands for a missing one."""
    found = _each(column, lambda entry: convert(entry, file))
    values = np.array([math.inf if v is None else v for v in found], dtype=np.float64)
    column.refuse(np.isinf(values), condition, remedy)
    return values


def numbers(column: Column, file: TextFormat) -> Array:
    """Entries as finite numbers, or NaN where one is missing.

    Raises
    ------
    ValueError
        If one is not a number; the message names the record.
    """
    entries, has_marks = column.entries, file.decimal != "." or file.thousands
    if isinstance(entries, np.ndarray) or not has_marks:
        convert = float if isinstance(entries, np.ndarray) else _float
        try:  # the same as one by one: what is missing or odd goes there
            values = np.fromiter(map(convert, entries), np.float64, len(entries))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if not np.isnan(values).any():
                column.refuse(np.isinf(values), "numeric", "Correct such records.")
                return values
    return _converted(column, number, file, "numeric", NUMERIC)


def days(column: Column, file: TextFormat) -> Array:
    """Entries as days, or NaN where one is missing; errors as in `numbers`."""
    return _converted(column, day, file, "of dates", DATES)


def codes(column: Column, levels: Levels | tuple[float], file: TextFormat) -> Ints:
    """Place of each entry among the levels, `UNKNOWN` or `ABSENT`.

    Text is compared without surrounding blanks, numbers by their shortest text, or as
    numbers where the levels are.
    """
    places: dict[Any, int] = {level: j for j, level in enumerate(levels)}
    is_coded = not isinstance(levels[0], str)

    def place(entry: object) -> int:
        if is_coded:
            value = number(entry, file)
            if value is not None and math.isnan(value):
                return ABSENT
            return UNKNOWN if value is None else places.get(value, UNKNOWN)
        for text in texts(entry):
            if text in places:
                return places[text]
        if isinstance(entry, str):
            return ABSENT if entry.strip() in MISSING else UNKNOWN
        return ABSENT if is_missing(entry) else UNKNOWN

    return np.array(_each(column, place), dtype=np.int64)


def texts(entry: object) -> tuple[str, ...]:
    """Texts that an entry is written as: a level is one of them."""
    if isinstance(entry, str):
        return (entry.strip(),)
    if isinstance(entry, bool | np.bool_):
        word = str(bool(entry))
        return word, word.lower(), word.upper(), str(int(entry))
    if isinstance(entry, int | np.integer):
        is_short = abs(int(entry)) < LARGEST
        return (str(int(entry)), repr(float(entry))) if is_short else ()
    if isinstance(entry, Decimal):
        entry = math.nan if entry.is_nan() else float(entry)
    if isinstance(entry, float | np.floating):
        whole = (str(int(entry)),) if float(entry).is_integer() else ()
        # A float32 has fewer digits of its own.
        return *whole, repr(float(entry)), str(entry)
    return (str(entry),) if isinstance(entry, datetime.date) else ()


def signs(column: Column, label: str, file: TextFormat) -> Array:
    """Return 1 where an entry is the label, as text or as a number; -1 elsewhere."""
    text = label.strip()
    places = codes(column, (text,), file)
    if text not in MISSING:
        column.refuse(places == ABSENT, "complete", DROP_REMEDY)
    value = _parsed(text, file)
    if value is not None:
        places = np.maximum(places, codes(column, (value,), file))
    return np.where(places == 0, 1.0, -1.0)


def refuse_words(column: Column, file: TextFormat) -> None:
    """Refuse a response of words, which needs a positive label."""
    texts = (entry for entry in column.entries if isinstance(entry, str))
    words = sorted({text.strip() for text in texts if number(text, file) is None})
    if words:
        got = ", ".join(check.shown(word) for word in words[:3])
        remedy = "Name the positive label (positive_label=..., --positive-label ...)."
        name = f"response {check.shown(column.name)}"
        check.fail(name, "numeric", f"labels such as {got}", remedy)
