"""Content of table files, and the values of single entries: numbers, days and levels.

An entry is what one record has in one column, a text of a file or any object of a data
frame. Each entry is converted by itself. The type that a library gave to the whole
column does not decide what an entry becomes, because that type depends on other
records. The entries "1", 1 and 1.0 are one number, even if another record has "x" in
this column.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import numpy as np

from dpsample.core import check
from dpsample.core import columns as column_names
from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.sparse import CSR, MAX_SIDE
from dpsample.tables.schema import LARGEST, Levels, TextFormat, level_key

Result = TypeVar("Result")

STDIN = "-"
COMPRESSED = {
    ".bz2": "bz2",
    ".bz": "bz2",
    ".xz": "xz",
    ".lzma": "xz",
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
}
# Number of bytes that are read at once.
BLOCK = 2**20
# Maximum number of bytes of a file after decompression. A file of one kilobyte may
# decompress to gigabytes of zeros.
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
# Texts that stand for a missing entry.
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
CLIP_REMEDY = "Correct the public bounds, or clip (clip=True, --clip-rows)."
DROP_REMEDY = "Drop such records first."
LABEL_REMEDY = (
    "List every possible label in [categorical], spelled as in the records, or drop "
    "such records first."
)
MISSING_REMEDY = (
    "Drop such records, or declare a public rule: a constant in [missing], or the "
    "column in missing_indicator; one of its levels may mean 'unknown', too."
)
# Days are counted from the first day of year 1. NumPy counts them from this one.
EPOCH = datetime.date(1970, 1, 1).toordinal()
BYTES = (bytes, bytearray, memoryview)
# Types that `float` converts although they are not numbers.
NON_NUMBERS = (*BYTES, np.datetime64, np.timedelta64, np.complexfloating)
# Suffix of the text of a moment whose time zone is UTC.
UTC = "+00:00"
# Codes of an entry that is not one of the levels, and of a missing entry.
UNKNOWN = -1
ABSENT = -2


def read_content(path: Path) -> bytes:
    """Return the uncompressed content of a file, a pipe, or of stdin if path is "-".

    Raises
    ------
    ValueError
        If there is no such file, stdin is closed, or the file cannot be decompressed or
        has more than `LARGEST_FILE` bytes then.
    ImportError
        If it is compressed by Zstandard and pyarrow is not installed.
    """
    if str(path) == STDIN:
        if sys.stdin is None or sys.stdin.closed:  # as by <&- in a shell
            check.fail("stdin", "open", "none")
        return sys.stdin.buffer.read()
    require_file(path)
    if path.suffix.lower() not in COMPRESSED:
        return path.read_bytes()
    # The size is counted while the file is read, because its header may state any.
    blocks, size = [], 0
    try:
        for block in _decompress(path):
            blocks.append(block)
            size += len(block)
            if size > LARGEST_FILE:
                break
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        remedy = "Fetch the file again."
        check.fail("path", "an intact file", f"{path.name}: {error}", remedy)
    if size > LARGEST_FILE:
        remedy = "Unpack it first, if it is what it should be."
        check.fail("path", f"of at most {LARGEST_FILE} bytes", path.name, remedy)
    return b"".join(blocks)


def require_file(path: Path) -> None:
    """Raise unless the path is that of a file or pipe, or is "-"."""
    if str(path) != STDIN and (not os.path.exists(path) or path.is_dir()):
        check.fail("path", "an existing file", str(path))


def _decompress(path: Path) -> Iterator[bytes]:
    """Yield blocks of a compressed file, which may consist of several streams.

    Zeros between and after the streams are skipped. The readers of Python's standard
    library for bz2 and xz do not report that a later stream is damaged: they stop as if
    the file ended there.
    """
    kind = COMPRESSED[path.suffix.lower()]
    if kind in ("gzip", "zstd"):
        with gzip.open(path) if kind == "gzip" else _zstd(path) as packed:
            while block := packed.read(BLOCK):
                yield block
        return
    new_stream = bz2.BZ2Decompressor if kind == "bz2" else lzma.LZMADecompressor
    with path.open("rb") as file:
        # Each stream ends with its own mark. What is left of the data after it is the
        # begin of the next one.
        data, stream = file.read(BLOCK), None
        while data:
            data = data.lstrip(b"\0")
            if not data:
                data = file.read(BLOCK)
                continue
            stream = new_stream()
            while not stream.eof:
                yield stream.decompress(data, BLOCK)
                data = b""
                if stream.needs_input and not stream.eof:
                    data = file.read(BLOCK)
                    if not data:
                        raise EOFError("its end is missing")
            data = stream.unused_data or file.read(BLOCK)
        if stream is None:
            raise EOFError("it is empty")


def _zstd(path: Path) -> IO[bytes]:
    """Open a file that is compressed by Zstandard, with the optional pyarrow."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise check.missing_library("A .zst file", "pyarrow", "studies") from error
    if path.stat().st_size == 0:
        raise EOFError("it is empty")
    stream: IO[bytes] = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return stream


def infer_format(path: Path) -> str:
    """Return the format that the suffix means, in front of that of a compression.

    Files published by LIBSVM, such as ``a9a`` and ``a9a.t``, have no suffix or ``.t``.
    The name of a pipe says nothing about its format.
    """
    is_packed = path.suffix.lower() in COMPRESSED
    suffix = (path.with_suffix("") if is_packed else path).suffix.lower()
    is_pipe = os.path.exists(path) and not (path.is_file() or path.is_dir())
    if (is_pipe or str(path) == STDIN) and not (suffix and suffix in FORMATS):
        remedy = "Name it (format=..., --format csv)."
        check.fail("format", "given for a pipe", "None", remedy)
    if suffix not in FORMATS:
        listed = ", ".join(sorted(set(FORMATS.values())))
        remedy = f"Name the format (format=..., --format ...): one of {listed}."
        if suffix in (".xlsx", ".xlsm", ".xls", ".ods"):
            remedy = "Save the sheet as CSV."
        elif suffix in (".zip", ".tar", ".tgz", ".7z"):
            remedy = "Unpack it first."
        check.fail("path", "of a known suffix", path.name, remedy)
    return FORMATS[suffix]


def parse_libsvm(
    lines: Iterable[str], num_features: int, *, source: str = ""
) -> tuple[CSR, Array]:
    """Return features and labels of lines ``label index:value ...``, indices from 1.

    The number of columns is public and must be passed, because the records of a file
    may never use the last features. Text after # is a comment. Features have the shape
    (num_records, num_features), labels (num_records,). The error about a malformed line
    gives its number, and ``source``.

    Examples
    --------
    >>> features, labels = parse_libsvm(["+1 1:0.5 3:2", "-1 2:1"], num_features=4)
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
    location = f" in {source}" if source else ""
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0]
        tokens = text.split()
        if not tokens:
            continue
        try:
            # Python accepts 1_000 as a number, LIBSVM does not.
            if "_" in text:
                raise ValueError
            labels.append(float(tokens[0]))
            for token in tokens[1:]:
                index, _, value = token.partition(":")
                columns.append(int(index) - 1)
                values.append(float(value))
        except ValueError:
            condition = "of the form 'label index:value ...'"
            got = " ".join(tokens[:3])[:80] + location
            check.fail(f"line {number}", condition, got)
        # Indices are checked here, because kernels use them without a check.
        _check_indices(columns[starts[-1] :], num_features, number, location)
        starts.append(len(columns))
    data = (np.array(values), np.array(columns, dtype=np.int64), np.array(starts))
    shape = (len(labels), num_features)
    response = np.array(labels, dtype=np.float64)
    for name, numbers in (("labels", response), ("values", data[0])):
        if not np.isfinite(numbers).all():
            check.fail(
                name,
                "finite",
                f"a NaN or an infinity{location}",
                "Remove such records.",
            )
    return sparse.csr_array(data, shape=shape, dtype=np.float64), response


def _check_indices(
    columns: list[int], num_features: int, number: int, location: str
) -> None:
    """Raise unless indices increase from 1 to at most ``num_features``.

    ``columns`` are indices minus 1.
    """
    if columns and not (columns[0] >= 0 and columns[-1] < num_features):
        worst = columns[0] if columns[0] < 0 else columns[-1]
        check.fail(
            f"line {number}",
            f"of indices between 1 and num_features = {num_features}",
            f"{worst + 1}{location}",
            "Pass the public number of features.",
        )
    if any(a >= b for a, b in pairwise(columns)):
        check.fail(
            f"line {number}", "of increasing indices", "indices out of order" + location
        )


class Column:
    """One column: its name, and its entries as an array of numbers or any objects.

    Entries of a data frame are converted when `entries` is first read, so a column that
    is ignored may hold anything.
    """

    def __init__(self, name: str, entries: Any) -> None:
        self.name, self._source = name, entries

    @cached_property
    def entries(self) -> Array | Sequence[object]:
        """All entries. Each has the meaning that it would have alone."""
        if hasattr(self._source, "to_native"):
            return entries_of(self._source)
        entries: Array | Sequence[object] = self._source
        return entries

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._source)

    def reject(self, is_bad: Bools, condition: str, remedy: str) -> None:
        """Raise an error about the first record with ``is_bad``, if there is one."""
        if is_bad.any():
            first = int(np.flatnonzero(is_bad)[0])
            got = "a missing value"
            if condition != "complete":
                entry: Any = self.entries[first]
                is_time = isinstance(entry, np.datetime64)
                got = str(entry) if is_time else check.describe(entry)
            others = (
                f" ({int(is_bad.sum())} records in all)" if is_bad.sum() > 1 else ""
            )
            got = f"{got} in record {first}{others}"
            check.fail(f"column {check.describe(self.name)}", condition, got, remedy)


def _reject_frame(frame: object, reason: str) -> NoReturn:
    """Raise because an object is not a frame that narwhals reads."""
    remedy = f"Pass one of pandas or polars{reason}."
    check.fail("frame", "a DataFrame", check.describe(type(frame)), remedy)


def columns_of(frame: Any) -> dict[str, Column]:
    """Return the columns of a DataFrame of any library that narwhals reads."""
    import narwhals.stable.v2 as nw

    labels = column_names.labels_of(frame)
    if labels is None:
        _reject_frame(frame, "")
    try:
        names = [str(label) for label in labels]
        column_names.require_distinct("the table", names)
        table = nw.from_native(frame, eager_only=True)
    except (AttributeError, TypeError) as error:
        _reject_frame(frame, f" ({error})")
    series = table.iter_columns()
    return {name: Column(name, s) for name, s in zip(names, series, strict=True)}


def entries_of(series: Any) -> Array | list[object]:
    """Return the entries of a column of narwhals. Missing ones do not change others.

    With a missing entry most libraries convert the whole numbers of a column to floats,
    which do not hold all of those from 2**53, and fail at dates beyond the year 9999.
    """
    import narwhals.stable.v2 as nw
    import pandas as pd

    native, dtype = series.to_native(), series.dtype
    kind = getattr(native, "dtype", None)
    # Columns of pandas that are stored in another form are read in that form.
    if isinstance(kind, pd.ArrowDtype):
        import pyarrow as pa

        array = pa.array(native.array)
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        stored = pa.chunked_array(chunks, array.type)
        return entries_of(nw.from_native(stored, series_only=True))
    if isinstance(kind, pd.SparseDtype):
        return entries_of(nw.from_native(native.sparse.to_dense(), series_only=True))
    if isinstance(kind, pd.CategoricalDtype):
        return _categorical_entries(native)
    if dtype.is_float() or (isinstance(kind, np.dtype) and kind.kind == "c"):
        return np.asarray(series.to_numpy())
    fits_int64 = dtype.is_integer() and dtype not in (nw.Int128, nw.UInt128)
    if fits_int64 and not series.null_count():
        return np.asarray(series.to_numpy())
    if dtype in (nw.Date, nw.Datetime):
        return np.asarray(series.to_numpy())  # moments are those of UTC
    return list(series.to_list())


def _categorical_entries(series: Any) -> Array | list[object]:
    """Return the entries of a categorical column of pandas."""
    import narwhals.stable.v2 as nw
    import pandas as pd

    levels = entries_of(
        nw.from_native(pd.Series(series.cat.categories), series_only=True)
    )
    codes = series.cat.codes.to_numpy()
    # The code of a missing entry is -1, so it reads the NaN at the end.
    if isinstance(levels, np.ndarray) and levels.dtype.kind == "f":
        return np.asarray(np.append(levels, levels.dtype.type(math.nan))[codes])
    values = [*levels, None]
    return [values[code] for code in codes]


def is_missing(entry: object) -> bool:
    """Return whether an entry is None, NaN, NaT, or a missing value of pandas."""
    import pandas as pd

    if isinstance(entry, float | np.floating):
        return math.isnan(entry)
    if isinstance(entry, Decimal):
        return entry.is_nan()
    if isinstance(entry, np.datetime64 | np.timedelta64):
        return bool(np.isnat(entry))
    return entry is None or entry is pd.NA or entry is pd.NaT


def normalize(entry: object) -> object:
    """Return bytes as text if they are valid UTF-8, and complex numbers as real ones.

    The latter only if the imaginary part is 0, as pandas makes all numbers of a column
    complex if one of them is.
    """
    if isinstance(entry, BYTES):
        try:
            return bytes(entry).decode("utf-8")
        except UnicodeDecodeError:
            return bytes(entry)
    if isinstance(entry, complex | np.complexfloating) and not entry.imag:
        return entry.real
    return entry


def _parse_text(text: str, file: TextFormat) -> float | None:
    """Return the number that is written in the declared format, None if it is not."""
    # A separator of thousands must stand before groups of three digits. Otherwise 1.5
    # would be read as 15 in a file with points in that place.
    if file.thousands and file.thousands in text:
        whole, _, decimals = text.lstrip("+-").partition(file.decimal)
        first, *others = whole.split(file.thousands)
        is_grouped = 0 < len(first) <= 3 and all(len(group) == 3 for group in others)
        is_grouped = is_grouped and all(map(str.isdecimal, (first, *others)))
        if not is_grouped or file.thousands in decimals:
            return None
        text = text.replace(file.thousands, "")
    # A point has no meaning in such a file, so it makes the text none of a number.
    if file.decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    try:
        return _float(text)
    except ValueError:
        return None


def _float(entry: Any) -> float:
    """Return an entry as a number. Unlike `float`, raise for 1_000 and for dates."""
    if isinstance(entry, str):
        if "_" in entry:
            raise ValueError
    elif isinstance(entry, NON_NUMBERS):
        raise TypeError
    return float(entry)


def parse_number(entry: Any, file: TextFormat) -> float | None:
    """Return an entry as a number: NaN if it is missing, None if it is not one."""
    entry = normalize(entry)
    if isinstance(entry, str):
        text = entry.strip()
        return math.nan if text in MISSING else _parse_text(text, file)
    if is_missing(entry):
        return math.nan
    try:
        return _float(entry)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def parse_day(entry: object, file: TextFormat) -> float | None:
    """Return an entry as a day from year 1, NaN if missing, None if it is no date."""
    entry = normalize(entry)
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
    if isinstance(entry, np.datetime64):
        value = float(_days_of(np.array([entry]))[0])
        return None if math.isinf(value) else value
    if not isinstance(entry, datetime.date):
        return None
    try:
        if isinstance(entry, datetime.datetime) and entry.tzinfo is not None:
            entry = entry.astimezone(datetime.UTC)
        return float(entry.toordinal())
    except (OverflowError, NotImplementedError):  # the year is not from 1 to 9999
        return None


def is_value(name: str, file: TextFormat) -> bool:
    """Return whether a column's name is a number or a date, as entries are."""
    values = parse_number(name, file), parse_day(name, file)
    return any(value is not None and math.isfinite(value) for value in values)


def _days_of(moments: Array) -> Array:
    """Return days from year 1 of an array of datetime64, infinity after year 9999."""
    whole = moments.astype("datetime64[D]")
    days = np.where(np.isnat(whole), math.nan, whole.astype(np.int64) + EPOCH)
    return np.where((days < 1) | (days > datetime.date.max.toordinal()), np.inf, days)


DATES = (
    "Dates are as 2020-12-31 unless date_format in [file] says how they are written; "
    "declare a column of words in [categorical]."
)


def _map_entries(column: Column, function: Callable[[Any], Result]) -> list[Result]:
    """Return the values of a function of single entries.

    Equal texts are common in a column, so the function is called once for each text.
    """
    cached = cache(function)
    return [
        cached(entry) if type(entry) is str else function(entry)
        for entry in column.entries
    ]


def _convert(
    column: Column,
    convert: Callable[[Any, TextFormat], float | None],
    file: TextFormat,
    condition: str,
    remedy: str,
) -> Array:
    """Convert every entry. NaN stands for a missing one."""
    converted = _map_entries(column, lambda entry: convert(entry, file))
    values = np.array([math.inf if value is None else value for value in converted])
    column.reject(np.isinf(values), condition, remedy)
    return values


def numbers(column: Column, file: TextFormat) -> Array:
    """Return the entries as finite numbers, and NaN for missing ones.

    Raises
    ------
    ValueError
        If one is not a number. The message gives its record.
    """
    entries, has_marks = column.entries, file.decimal != "." or file.thousands
    values = None
    if isinstance(entries, np.ndarray):
        if entries.dtype.kind in "iuf":
            values = entries.astype(np.float64)
    elif not has_marks:
        # This is faster, and gives the same if all entries are written as numbers.
        try:
            values = np.fromiter(map(_float, entries), np.float64, len(entries))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            values = None if np.isnan(values).any() else values
    if values is None:
        remedy = (
            "Declare a column of words in [categorical], one of dates in [date]; "
            "decimal and thousands in [file] say how numbers are written."
        )
        return _convert(column, parse_number, file, "numeric", remedy)
    column.reject(np.isinf(values), "numeric", "Correct such records.")
    return values


def days(column: Column, file: TextFormat) -> Array:
    """Return the entries as days, NaN for missing ones. Errors are as in `numbers`."""
    entries = column.entries
    if isinstance(entries, np.ndarray) and entries.dtype.kind == "M":
        values = _days_of(entries)
        column.reject(np.isinf(values), "of dates", DATES)
        return values
    return _convert(column, parse_day, file, "of dates", DATES)


def codes(column: Column, levels: Levels, file: TextFormat) -> Ints:
    """Return the index of each entry's level, `UNKNOWN` or `ABSENT`.

    If the levels are text, entries are compared as text in Unicode's form NFC without
    surrounding blanks, and numbers by their shortest text. If the levels are numbers,
    entries are compared as numbers. True and false are 1 and 0.

    Raises
    ------
    ValueError
        If the column is of a floating-point type that cannot hold its levels.
    """
    _reject_short_type(column, levels)
    index_of: dict[Any, int] = {level_key(level): j for j, level in enumerate(levels)}
    is_boolean = isinstance(levels[0], bool)

    def code_of_number(entry: object) -> int:
        if is_boolean and isinstance(entry, str):
            entry = {"true": True, "false": False}.get(entry.strip().lower(), entry)
        value = parse_number(entry, file)
        if value is not None and math.isnan(value):
            return ABSENT
        return UNKNOWN if value is None else index_of.get(value, UNKNOWN)

    def code_of_text(entry: object) -> int:
        for text in spellings(entry):
            if text in index_of:
                return index_of[text]
        if isinstance(entry, str):
            return ABSENT if entry.strip() in MISSING else UNKNOWN
        return ABSENT if is_missing(entry) else UNKNOWN

    code_of = code_of_text if isinstance(levels[0], str) else code_of_number
    result = _map_entries(column, lambda entry: code_of(normalize(entry)))
    return np.array(result, dtype=np.int64)


def _reject_short_type(column: Column, levels: Levels) -> None:
    """Raise if a column's type cannot distinguish a level from the next integer."""
    entries = column.entries
    if not (isinstance(entries, np.ndarray) and entries.dtype.kind in "fc"):
        return
    bits = int(np.finfo(entries.dtype).nmant) + 1
    if any(_is_long(str(level_key(level)), bits) for level in levels):
        condition = f"of integers or text, as it has levels from 2**{bits}"
        remedy = "Read it so, for example as Int64: missing entries make it float."
        name = f"column {check.describe(column.name)}"
        check.fail(name, condition, str(entries.dtype), remedy)


def _is_long(text: str, bits: int) -> bool:
    """Return whether a text is a number from 2^bits, where floats skip integers."""
    try:
        return 2.0**bits <= abs(float(text)) < math.inf
    except ValueError:
        return False


def spellings(entry: Any) -> tuple[str, ...]:
    """Return all texts by which a level may mean this entry."""
    if isinstance(entry, str):
        return (str(level_key(entry)),)
    if isinstance(entry, bool | np.bool_):
        word = str(bool(entry))
        return word, word.lower(), word.upper(), str(int(entry))
    # Libraries read the same level as a text, an integer, a decimal or a float.
    is_whole = isinstance(entry, Decimal) and entry.is_finite()
    if is_whole and abs(entry) < LARGEST and entry == entry.to_integral():
        entry = int(entry)
    if isinstance(entry, int | np.integer):
        value = int(entry)
        if abs(value) >= LARGEST:
            return ()
        is_exact = int(float(value)) == value
        return (str(value), repr(float(value))) if is_exact else (str(value),)
    if isinstance(entry, Decimal):
        entry = math.nan if entry.is_nan() else float(entry)
    if isinstance(entry, float | np.floating):
        return _texts_of_float(float(entry))
    if isinstance(entry, datetime.date):  # NaT is one
        return () if is_missing(entry) else _texts_of_date(entry)
    if isinstance(entry, np.datetime64) and not np.isnat(entry):
        # Python's moments have microseconds. Finer or more distant ones are texts.
        micro = entry.astype("datetime64[us]")
        is_fine = micro == entry and isinstance(micro.item(), datetime.datetime)
        text = str(entry).replace("T", " ")
        return _texts_of_date(micro.item()) if is_fine else (text, text + UTC)
    return ()


def _texts_of_float(value: float) -> tuple[str, ...]:
    """Return the shortest text in each float type that holds the number.

    Libraries convert columns of float32 to float64, where 0.1 reads 0.1000000015.
    """
    if value.is_integer():
        return str(int(value)), repr(value)
    with np.errstate(all="ignore"):
        shorter = [kind(value) for kind in (np.float32, np.float16)]
    return repr(value), *(str(x) for x in shorter if float(x) == value)


def _texts_of_date(moment: datetime.date) -> tuple[str, ...]:
    """Return the texts of a moment in UTC. A day stands for its midnight.

    There are several texts, because a column of one type has a single precision and
    time zone for all entries, and a column of objects may have many.
    """
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime.combine(moment, datetime.time())
    elif moment.tzinfo is not None:
        try:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError:  # the year is not from 1 to 9999
            return ()
    day, text = str(moment.date()), str(moment)
    return (day, text, text + UTC) if text == f"{day} 00:00:00" else (text, text + UTC)
