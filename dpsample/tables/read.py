"""Reading of CSV, TSV, Parquet and LIBSVM files, and of data frames.

The content of a file becomes a data frame whose entries are texts, or the typed columns
of Parquet. An `Encoding` of public facts turns it into a `Dataset`: rows, response and
their bounds. A LIBSVM file has encoded rows already.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np

from dpsample.core import check
from dpsample.core import columns as column_names
from dpsample.core.arrays import Array
from dpsample.core.sparse import CSR, Rows
from dpsample.numerics import norms
from dpsample.tables import entries
from dpsample.tables.encoding import (
    Encoding,
    check_positive_label,
    clip_rows,
    declares_features,
    response_name,
    used_columns,
)
from dpsample.tables.rules import describe_libsvm
from dpsample.tables.schema import Schema, TextFormat, level_text

if TYPE_CHECKING:
    import pandas as pd

# Type of a label. Type checkers accept integers and booleans where it says float.
Label = str | float | bytes | None
# Name of the response of a LIBSVM file.
LABEL = "label"
SEPARATORS = ",;\t|"
# First bytes of files that do not hold text, whatever their name is, and the remedy.
BINARY_FORMATS = {
    b"PK\x03\x04": "Save the sheet as CSV, or unpack the archive.",
    b"\xd0\xcf\x11\xe0": "Save the sheet as CSV.",
    b"PAR1": "Name its format (format='parquet', --format parquet).",
    b"\x1f\x8b": "It is compressed: let its name end with .gz.",
    b"BZh": "It is compressed: let its name end with .bz2.",
    b"\xfd7zXZ": "It is compressed: let its name end with .xz.",
    b"\x28\xb5\x2f\xfd": "It is compressed: let its name end with .zst.",
}
# First part of the name that pandas gives to a column without one, such as an index.
UNNAMED = "Unnamed: "


class RowOptions(NamedTuple):
    """Public rules that turn a record into a row and a response, as of `Encoding`."""

    positive_label: str | None = None
    clip: bool = False
    symmetric: bool = True
    row_norm: float = 2.0
    row_bound: float | None = None
    scale: float = 1.0


def read_table(
    path: str | Path,
    *,
    target: str | int | None = None,
    positive_label: Label = None,
    bounds: Schema | str | Path | None = None,
    clip: bool = False,
    symmetric: bool = True,
    row_norm: float = 2.0,
    row_bound: float | None = None,
    scale: float = 1.0,
    format: str | None = None,
    num_features: int | None = None,
    columns: Sequence[str] | None = None,
) -> Dataset:
    r"""Read a file into features with a public bound and a response.

    With ``bounds``, numeric columns are scaled from their public ranges, categorical
    ones become indicators of their public levels, and rows of m columns are divided by
    m^(1/row_norm), so that the implied row bound is 1 (times ``scale``). Without
    bounds, or if they declare the response only, all features must be numbers and are
    taken as they are.

    Parameters
    ----------
    path : str or Path
        File, which may be compressed by bz2, gzip, xz or Zstandard. A pipe, or "-" for
        stdin, needs a ``format``.
    target : str, or int of a file whose columns are numbers, optional
        Name of the response column. A LIBSVM file has its own.
    positive_label : str, int, bool or bytes, optional
        Label that becomes 1, all others becoming -1. It is one of the levels that
        ``bounds`` declare for the response, which are all labels that there can be, in
        any form in which a record may hold it.
    bounds : Schema, str or Path, optional
        Public facts about the columns and the file, or the TOML or JSON file that has
        them, which docs/tables.md describes. For a LIBSVM file they declare the
        response only, under the name "label".
    clip : bool
        Move values and rows to their public bounds, instead of raising an error.
    symmetric : bool
        Scale numbers to [-1, 1] rather than [0, 1].
    row_norm : float
        Exponent, in [1, inf], of the norm of the row bound.
    row_bound : float, optional
        Declared bound of the scaled rows, which is needed without ``bounds``. With
        ``bounds`` it is smaller than ``scale``, and ``clip`` scales longer rows down to
        it.
    scale : float
        Public factor of all features.
    format : {"csv", "tsv", "parquet", "libsvm"}, optional
        By default inferred from the name.
    num_features : int, optional
        Number of columns of a LIBSVM file, which does not contain it.
    columns : sequence of str, optional
        `Dataset.columns` of a related table, such as the training records of test data.
        Columns are matched by name, in any order.

    Returns
    -------
    Dataset
        Records, their public bounds and their encoding, for `Problem.from_table`.

    Raises
    ------
    ValueError
        If the file is missing or malformed, a value is missing or outside its public
        bounds, or a label or a column is not declared, is declared but absent, or is
        not one of ``columns``. The message names record and column. Also if an option
        is not for this format.
    ImportError
        If the file is Parquet, or compressed by Zstandard, and pyarrow is not
        installed.

    Guarantee
    ---------
    The encoding of a record depends on that record and on public facts only.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "small.csv"
    >>> _ = file.write_text("age,color,ill\n20,red,no\n70,blue,yes\n")
    >>> schema = Schema(numeric={"age": (0, 100)},
    ...                 categorical={"color": ("blue", "red"), "ill": ("no", "yes")})
    >>> data = read_table(file, target="ill", positive_label="yes", bounds=schema)
    >>> data.feature_names, data.row_bound, data.response.tolist()
    (('age', 'color=blue', 'color=red'), 1.0, [-1.0, 1.0])
    >>> data.features.round(3).tolist()
    [[-0.424, 0.0, 0.707], [0.283, 0.707, 0.0]]
    >>> folder.cleanup()
    """
    if num_features is not None:
        check.integer(1, num_features=num_features)
    file, schema = check.path("path", path), schema_of(bounds)
    entries.require_file(file)  # before its format is inferred from its name
    kind = kind_of(file, format)
    target = response_name(target)
    name = LABEL if kind == "libsvm" else target
    # The label is checked before records are read, so that the error depends on public
    # facts only.
    rules = RowOptions(
        check_positive_label(schema or Schema(), name, positive_label),
        clip=clip,
        symmetric=symmetric,
        row_norm=row_norm,
        row_bound=row_bound,
        scale=scale,
    )
    content = entries.read_content(file)
    if kind == "libsvm":
        if target is not None:
            check.fail("target", "absent for LIBSVM", target, "Labels begin its lines.")
        if not symmetric:
            check.fail("symmetric", "absent for LIBSVM", symmetric)
        data = from_libsvm(content, num_features, rules, schema, source=file.name)
        if columns is not None:
            column_names.find_positions("the table", data.columns, columns)
        return data
    if num_features is not None:
        check.fail("num_features", "absent except for LIBSVM", num_features)
    frame = to_frame(content, kind, schema, file.name)
    if kind != "parquet":
        _check_names([*frame.columns], schema or Schema(), target)
    for label in column_names.labels_of(frame) or () if schema is None else ():
        if str(label).startswith(UNNAMED):
            remedy = "Is it an index? Name it, or ignore it in bounds."
            check.fail("columns", "named", check.describe(label), remedy)
    data = _encode_frame(frame, target, schema, rules, columns)
    return replace(data, source=file.name)


def contents(file: Path, format: str | None) -> tuple[bytes, str]:
    """Return the uncompressed content of a file, and its format."""
    entries.require_file(file)
    kind = kind_of(file, format)
    return entries.read_content(file), kind


def kind_of(file: Path, format: str | None) -> str:
    """Return the format, which is inferred from the file's name if it is None."""
    if format is None:
        return entries.infer_format(file)
    check.one_of(("csv", "tsv", "parquet", "libsvm"), format=format)
    return format


def schema_of(bounds: Schema | str | Path | None) -> Schema | None:
    """Return a schema, read from its file if it is the path of one."""
    check.instance((Schema, str, Path, type(None)), bounds=bounds)
    return Schema.from_file(bounds) if isinstance(bounds, str | Path) else bounds


def from_libsvm(
    content: bytes,
    num_features: int | None,
    rules: RowOptions,
    bounds: Schema | None = None,
    *,
    source: str = "LIBSVM text",
) -> Dataset:
    """Parse LIBSVM text. The only bound of its rows is a declared one."""
    sections = {"numeric", "log", "categorical"}  # that can declare a response
    if bounds is not None and bounds.to_dict().keys() - sections:
        _reject_libsvm_bounds(bounds)
    if bounds is not None and set(bounds.declared) != {LABEL}:
        _reject_libsvm_bounds(bounds)
    if num_features is None:
        remedy = (
            "Pass the public number of columns (num_features=..., --num-features ...): "
            "the records may never use the last ones."
        )
        check.fail("num_features", "given for a LIBSVM file", "None", remedy)
    encoding = Encoding(
        schema=bounds,
        columns=tuple(str(j + 1) for j in range(num_features)),
        target=LABEL,
        **rules._asdict(),
    )
    rows, labels = parse_libsvm(content, encoding, source=source)
    num_clipped: Counter[str] = Counter()
    if rules.clip:
        norm = partial(norms.norm, p=rules.row_norm)
        rows = cast(CSR, clip_rows(rows, rules.row_bound, norm, num_clipped))
    y = encoding._encode_response(entries.Column(LABEL, labels), num_clipped)
    dataset = _dataset(encoding, rows, y, num_clipped)
    return replace(dataset, source=source, rules=describe_libsvm(encoding))


def _reject_libsvm_bounds(bounds: Schema) -> NoReturn:
    """Raise for bounds that declare features of a LIBSVM file."""
    condition = f"about the response {LABEL!r} only for a LIBSVM file"
    remedy = "Its features are taken as they are: declare row_bound."
    check.fail("bounds", condition, check.describe(bounds.to_dict()), remedy)


def parse_libsvm(
    content: bytes, encoding: Encoding, *, source: str = ""
) -> tuple[CSR, Array]:
    """Return the rows of LIBSVM text times the public factor, and its labels."""
    lines = content.decode("ascii", "replace").splitlines()
    rows, y = entries.parse_libsvm(lines, len(encoding.columns), source=source)
    return (rows if encoding.scale == 1.0 else rows * encoding.scale), y


def to_frame(
    content: bytes,
    kind: str,
    schema: Schema | None,
    source: str = "table",
    optional: str | None = None,
) -> Any:
    """Parse a table. Return a DataFrame of texts, or the Arrow table of a Parquet file.

    Entries of a text file stay texts, so that none depends on others. In a file without
    a header the ``optional`` one of the declared columns may be missing.
    """
    if kind == "parquet":
        try:
            return _arrow_table(content)
        except ImportError as error:
            subject = "A Parquet file"
            raise check.missing_library(subject, "pyarrow", "studies") from error
        except Exception as error:  # Arrow raises many types for damaged files
            _reject(source, "Parquet", error)
    for start, remedy in BINARY_FORMATS.items():
        if content.startswith(start):
            check.fail("path", f"a {kind.upper()} table", f"no text: {source}", remedy)
    schema = schema or Schema()
    separator = schema.file.separator or ("," if kind == "csv" else "\t")
    try:
        return _text_frame(content, separator, schema, optional)
    except ValueError as error:
        _reject(source, kind.upper(), error)


def _arrow_table(content: bytes) -> object:
    """Return the columns of a Parquet file with their declared types.

    The index of pandas is left out. The table does not become a DataFrame of pandas,
    which would convert integers to floats if one of them is missing.
    """
    from pyarrow import parquet

    table = parquet.ParquetFile(io.BytesIO(content)).read()
    indices = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return table.drop_columns([name for name in indices if name in table.column_names])


def _text_frame(
    content: bytes, separator: str, schema: Schema, optional: str | None
) -> pd.DataFrame:
    """Parse a text table, in which every record must have an entry for each column.

    Blank lines are not records. In a table of a single column a blank line between
    records is a record whose entry is missing.
    """
    import pandas as pd

    # With declared names the file has no header, and its first line is a record.
    columns, records = list(schema.columns), list[list[str]]()
    num_blank = 0  # number of blank lines at the end so far
    shared: dict[str, str] = {}
    for number, line, row in _lines(content, separator, schema.file.encoding):
        is_blank = not line.strip() and (separator == " " or separator not in line)
        if is_blank and len(columns) != 1:
            continue
        num_blank = num_blank + 1 if is_blank else 0
        if not columns:
            columns = [name or _default_name(j, row) for j, name in enumerate(row)]
            if len(set(columns)) < len(columns):
                reject_record(columns, schema.file)
            column_names.require_distinct("the table", columns)
            _check_separator(columns, schema)
            continue
        if schema.columns and not records and len(row) == len(columns) - 1:
            columns = [name for name in columns if name != optional]
        if len(row) != len(columns):
            condition, remedy = f"of {len(columns)} entries", ""
            others = [x for x in SEPARATORS if line.count(x) == len(columns) - 1]
            if len(row) == 1 < len(columns) and others:
                remedy = _suggest(others[0])
            check.fail(f"line {number}", condition, str(len(row)), remedy)
        # Equal texts share one copy, to save memory. After so many different ones, a
        # column of unique texts is likely, for which copies would only take memory.
        share = shared.setdefault if len(shared) < 100_000 else shared.get
        records.append([share(entry, entry) for entry in row])
    if not columns:
        check.fail("the table", "one with columns", "an empty file")
    # Blank lines at the end belong to no record, in a single column either.
    records = records[: len(records) - num_blank]
    return pd.DataFrame(records, columns=columns, dtype=object)


def _check_separator(columns: list[str], schema: Schema) -> None:
    """Raise if the header is a single name that contains another separator."""
    others = [x for x in SEPARATORS if x in columns[0]]
    if len(columns) == 1 and others and not schema.file.separator:
        got = f"a single one, with {check.describe(others[0])} in it"
        check.fail("header", "of several names", got, _suggest(others[0]))


def _check_names(names: Sequence[str], schema: Schema, target: str | None) -> None:
    """Raise if the names are a record, which errors about names would publish."""
    others = [n for n in names if n != target and schema.kind(n) is None]
    if target not in names or (others and declares_features(schema, target)):
        reject_record(others, schema.file)


def reject_record(names: Iterable[str], file: TextFormat) -> None:
    """Raise if a name is a number or a date, as in a file without a header.

    The message shows none of the names.
    """
    if any(entries.is_value(name, file) for name in names):
        remedy = (
            "If the file has no line of names, list them in columns of the bounds: "
            'columns = ["first", "second"]. Otherwise declare or ignore such columns.'
        )
        check.fail("file", "with a line of names", "numbers or dates there", remedy)


def _suggest(separator: str) -> str:
    """Return the remedy for a table that is written with another separator."""
    line = f"separator = {json.dumps(separator)}"
    return f"If that is how it is written, declare {line} in the bounds' [file]."


def _lines(
    content: bytes, separator: str, encoding: str
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number and text of each row's last line, and the row's entries.

    A quoted entry may contain line breaks. A blank line is a row with one entry.
    """
    text = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
    if text.read(1) != "\ufeff":  # a byte-order mark
        text.seek(0)
    line, is_blank_separated = "", separator == " "

    def remember(next_line: str) -> str:
        nonlocal line
        line = next_line
        return line

    lines = map(remember, text)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    # An ignored column may hold long notes. All threads share this limit, so it is not
    # set back.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    try:
        for row in reader:
            # Blanks at the end of a line do not begin another entry.
            if is_blank_separated and row and line.rstrip("\r\n").endswith(" "):
                del row[-1]
            yield reader.line_num, line, row or [""]
    except csv.Error as error:
        check.fail(f"line {reader.line_num}", "of entries and separators", str(error))


def _default_name(position: int, others: Sequence[str]) -> str:
    """Return the name that pandas gives to a column without one."""
    name = first = f"{UNNAMED}{position}"
    for number in itertools.count(1):
        if name not in others:
            break
        name = f"{first}.{number}"
    return name


def _dataset(
    encoding: Encoding, rows: Rows, y: Array, num_clipped: Counter[str]
) -> Dataset:
    """Return the records with their bounds. Raise if there are none."""
    if len(y) == 0:
        check.fail("the input", "a table with records", "none")
    return Dataset(
        features=rows,
        response=y,
        row_bound=encoding.row_bound,
        row_norm=encoding.row_norm,
        response_bound=encoding.response_bound,
        feature_names=encoding.feature_names,
        source="table",
        columns=encoding.columns,
        rules=encoding.rules,
        encoding=encoding,
        nonprivate_diagnostics=_diagnostics(encoding, rows, y, num_clipped),
    )


def _diagnostics(
    encoding: Encoding, rows: Rows, y: Array, num_clipped: Counter[str]
) -> tuple[str, ...]:
    """Return sentences about moved values, and about levels that no record has."""
    counts = ", ".join(f"{count} {reason}" for reason, count in num_clipped.items())
    lines = [f"clipped, among {rows.shape[0]} records: {counts}"] if counts else []
    # A level that no record has is often a misspelled one.
    if isinstance(rows, np.ndarray) and encoding.schema is not None:
        is_used = np.any(rows != 0.0, axis=0)
        for name, positions in encoding._indicator_positions().items():
            unused = [level for level, j in positions.items() if not is_used[j]]
            if unused:
                words = column_names.list_names(map(level_text, unused))
                lines.append(
                    f"no record has the levels {words} of {check.describe(name)}"
                )
    if encoding.levels is not None and (y == y[0]).all():
        lines.append(f"the response is {y[0]:g} in every record")
    return tuple(lines)


def _reject(source: str, kind: str, error: Exception) -> NoReturn:
    """Raise the error of pandas or Arrow about a file, in our form."""
    reason = " ".join(str(error).split()).rstrip(".")
    remedy = ""
    if isinstance(error, UnicodeError):
        remedy = "Declare encoding in the bounds' [file]; dpsample bounds FILE has it."
    check.fail("path", f"a {kind} table", f"{source}: {reason}", remedy)


def from_frame(
    frame: object,
    *,
    target: str | int | None = None,
    positive_label: Label = None,
    bounds: Schema | str | Path | None = None,
    clip: bool = False,
    symmetric: bool = True,
    row_norm: float = 2.0,
    row_bound: float | None = None,
    scale: float = 1.0,
    columns: Sequence[str] | None = None,
) -> Dataset:
    """Encode a data frame as `read_table` encodes a file.

    Parameters
    ----------
    frame : DataFrame
        Records, of pandas, polars or another library that narwhals reads.
    target : str, or int for a frame of numbered columns
        Name of the response column.
    positive_label, bounds, clip, symmetric, row_norm, row_bound, scale, columns
        As of `read_table`.

    Returns
    -------
    Dataset
        Records, their public bounds and their encoding.

    Raises
    ------
    ValueError
        As `read_table` does.

    Guarantee
    ---------
    The encoding of a record depends on that record and on public facts only: neither on
    other records nor on the type that a whole column was given.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20, 70], "cost": [1.0, 3.0]})
    >>> schema = Schema(numeric={"age": (0, 100), "cost": (0, 4)})
    >>> data = from_frame(frame, target="cost", bounds=schema)
    >>> data.features.round(3).tolist(), data.response.tolist()
    ([[-0.6], [0.4]], [-0.5, 0.5])
    >>> data.encoding.raw_response(data.response, is_label=False).tolist()
    [1.0, 3.0]
    """
    schema, target = schema_of(bounds), response_name(target)
    rules = RowOptions(
        check_positive_label(schema or Schema(), target, positive_label),
        clip=clip,
        symmetric=symmetric,
        row_norm=row_norm,
        row_bound=row_bound,
        scale=scale,
    )
    return _encode_frame(frame, target, schema, rules, columns)


def _encode_frame(
    frame: object,
    target: str | None,
    schema: Schema | None,
    rules: RowOptions,
    columns: Sequence[str] | None,
) -> Dataset:
    """Encode a data frame by checked rules."""
    table = entries.columns_of(frame)
    if columns is not None:
        check.members(str, columns=columns)
    if target is None or target not in table:
        remedy = "Pass the response column (target=..., --target ...)."
        condition = f"one of the columns {column_names.list_names(table)}"
        check.fail("target", condition, target, remedy)
    used = used_columns([*table], schema, target)
    if schema is not None:
        check_declared(used, schema, target)
    encoding = Encoding(
        schema=schema,
        columns=tuple(used if columns is None else columns),
        target=target,
        **rules._asdict(),
    )
    rows, num_clipped = encoding._encode_rows(table, clip=rules.clip)
    y = encoding._encode_response(table[target], num_clipped)
    return _dataset(encoding, rows, y, num_clipped)


def check_declared(used: Sequence[str], schema: Schema, target: str) -> None:
    """Raise if a declared column is not in the table."""
    for name in schema.declared:
        if name not in (*used, target):
            condition = "in the table, as the bounds declare it"
            remedy = "Correct its name, or remove it from the bounds."
            got = "a table without it"
            check.fail(f"column {check.describe(name)}", condition, got, remedy)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Records with declared bounds, ready for `dpsample.Problem`.

    Attributes
    ----------
    features : ndarray or scipy.sparse.csr_array of shape (num_records, dim)
        Rows, of ``row_norm``-norm at most ``row_bound``.
    response : ndarray of shape (num_records,)
        Labels -1 and 1, or real responses.
    row_bound : float or None
        Public bound of the rows; None if the file came without bounds.
    row_norm : float
        Exponent of the norm that ``row_bound`` bounds.
    response_bound : float or None
        Public bound of abs(response); None if there is none.
    feature_names : tuple of str
        One name per column.
    source : str
        Where the records come from and how they were encoded.
    columns : tuple of str
        Columns of the table that became features, in its order; empty if there is none.
    rules : tuple of str
        Public sentences that describe how any record is encoded.
    encoding : Encoding or None
        Encoding that turned a table into these rows, and can encode new records. None
        for synthetic data.
    theta : ndarray or None
        True coefficients of synthetic data.
    nonprivate_diagnostics : tuple of str
        NOT PRIVATE, only for the holder of the records: numbers of values that were
        moved to public bounds, and public levels that no record has.

    Examples
    --------
    >>> from dpsample import datasets
    >>> data = datasets.logistic(100, 3, seed=1)
    >>> data
    Dataset(100 records, 3 features, rows of 2-norm <= 1)
    >>> data.feature_names
    ('x0', 'x1', 'x2')
    """

    features: Rows
    response: Array
    row_bound: float | None
    row_norm: float = 2.0
    response_bound: float | None = None
    feature_names: tuple[str, ...]
    source: str
    columns: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    encoding: Encoding | None = None
    theta: Array | None = None
    nonprivate_diagnostics: tuple[str, ...] = ()

    @property
    def num_records(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.features.shape[1])

    def __repr__(self) -> str:
        """Return the sizes and the row bound on one line."""
        bound = "" if self.row_bound is None else f" <= {self.row_bound:g}"
        rows = f"rows of {self.row_norm:g}-norm{bound}" if bound else "no row bound"
        return f"Dataset({self.num_records} records, {self.dim} features, {rows})"
