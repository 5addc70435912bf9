"""Problems from files of records, for the commands that read one.

``dpsample bounds`` writes a skeleton of a bounds file: names and types of columns, and
no values. Header and separator are public facts about the file. The types of a text
file are guesses. A column gets the type of more than half of its first entries, so one
record decides the type only if they are split evenly. The skeleton says so.
"""

from __future__ import annotations

import codecs
import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import dpsample as dps
from dpsample.cli import screen
from dpsample.core import check, files
from dpsample.core.arrays import Array
from dpsample.losses import BUILT_IN, Loss
from dpsample.tables import Dataset, entries, read_table
from dpsample.tables.entries import Column
from dpsample.tables.read import contents, reject_record, to_frame
from dpsample.tables.schema import Schema, TextFormat, toml_key, toml_text

HINTS = {
    "numeric": "[lower, upper] that every possible record obeys",
    "date": '["first day", "last day"], ISO 8601',
    "categorical": 'all possible levels, ["a", "b"], [1, 2, 3] or [false, true]; of a '
    "response, the positive one last",
}
HEAD = """\
# Columns of {source}: names and types, no values.
# Fill in ranges and levels that are public, known without looking at the records:
# what is taken from records is not protected. {types}
# Move a column to where it belongs: [log] is for numbers with heavy tails; numbers that
# are codes of categories belong into [categorical]; what is not needed, into ignore.
# [missing] with a constant for each column, or missing_indicator = ["column"], say what
# becomes of missing entries; without a rule they are errors.

ignore = []
"""


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options that say what the records are, and the problem they define."""

    file: Path
    radius: float | None
    loss: str
    target: str | None
    positive_label: str | None
    bounds: Path | None
    clip_rows: bool
    intercept: bool
    row_bound: float | None
    row_norm: float
    response_bound: float | None
    scale: float
    format: str | None
    num_features: int | None

    @property
    def domain(self) -> dps.domains.Domain:
        """Ball of the coefficients. Without a radius they are not restricted yet."""
        if self.radius is None:
            return dps.domains.WholeSpace()
        return dps.domains.Ball(self.radius)


def read(
    options: RecordOptions, path: Path, columns: Sequence[str] | None = None
) -> Dataset:
    """Read one file as the options say, with the columns of another if given.

    Lines on stderr report clipped values and levels that no record has. They are NOT
    PRIVATE.
    """
    data = read_table(
        path,
        target=options.target,
        positive_label=options.positive_label,
        bounds=options.bounds,
        clip=options.clip_rows,
        row_norm=options.row_norm,
        row_bound=options.row_bound,
        scale=options.scale,
        format=options.format,
        num_features=options.num_features,
        columns=columns,
    )
    for line in data.nonprivate_diagnostics:
        screen.tell(f"{path.name}: {line} ({screen.NOT_PRIVATE})")
    return data


def describe_rules(data: Dataset, problem: dps.Problem) -> list[str]:
    """Return lines on the rules by which any record is changed before the draw.

    The rules are public. Numbers of records to which they apply would not be.
    """
    row, limit = problem.facts.row_bound, problem.response_bound
    outside = "scaled down to it" if problem.clip_rows else "an error"
    lines = [*data.rules, f"a row above row_bound = {row:g} is {outside}"]
    if limit is not None and limit < math.inf and not problem.loss.is_classification:
        outside = "moved to it" if problem.clip_rows else "an error"
        lines.append(f"a response beyond response_bound = {limit:g} is {outside}")
    return ["Encoding, by public rules:", *(f"  {line}" for line in lines)]


def parse_loss(text: str) -> Loss:
    """Return the loss of a text ``name`` or ``name:parameter``."""
    name, colon, parameter = text.partition(":")
    name = name.replace("-", "_")
    check.one_of(sorted(BUILT_IN), loss=name)
    if not colon:
        return BUILT_IN[name]()
    if not fields(BUILT_IN[name]):
        check.fail("loss", f"{name} without a parameter", text)
    try:
        number = float(parameter)
    except ValueError:
        check.fail("loss", "of the form name:number", text, "For example huber:0.5.")
    return BUILT_IN[name](number)  # type: ignore[call-arg]


def build(options: RecordOptions, data: Dataset) -> dps.Problem:
    """Return the problem of the records with declared bounds."""
    row_bound, response_bound = data.row_bound, options.response_bound
    if response_bound is None:
        response_bound = data.response_bound
    if row_bound is None:
        remedy = "Declare --row-bound, or the ranges of all columns with --bounds."
        check.fail("row_bound", "declared", "None", remedy)
    return dps.Problem(
        data.features,
        data.response,
        loss=parse_loss(options.loss),
        domain=options.domain,
        row_bound=row_bound,
        row_norm=options.row_norm,
        response_bound=response_bound,
        intercept=options.intercept,
        clip_rows=options.clip_rows,
        feature_names=data.feature_names,
        encoding=data.encoding,
    )


def write_skeleton(
    file: Path, output: Path | None, format: str | None, *, overwrite: bool = False
) -> None:
    """Print a bounds file to fill in, without any value of the records, or write it."""
    screen.check_outputs(file, output=output, overwrite=overwrite)
    content, kind = contents(file, format)
    if kind == "libsvm":
        check.fail("file", "a table with named columns", "a LIBSVM file")
    text = skeleton(content, kind, file.name)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text.encode())
        screen.console().print(f"Bounds to fill in: {output}")


def skeleton(content: bytes, kind: str, source: str) -> str:
    """Return the text of a bounds file (TOML) that has to be filled in."""
    file = _guess_format(content, kind) if kind != "parquet" else TextFormat()
    frame = to_frame(content, kind, Schema(file=file), source)
    is_stored = kind == "parquet"
    if is_stored:
        types = {field.name: _stored_type(field.type) for field in frame.schema}
    else:
        columns = entries.columns_of(frame.head(1_000))
        # A record in the header would be shown.
        reject_record(columns, file)
        # Decimal mark and separator of thousands. The first of equal counts wins.
        marks = ((".", ""), (",", ""), (",", "."), (".", ","))
        candidates = [replace(file, decimal=d, thousands=t) for d, t in marks]
        file = max(candidates, key=lambda candidate: _num_numbers(columns, candidate))
        types = {name: _guess_type(c.entries, file) for name, c in columns.items()}
    origin_of_types = (
        "Types and marks are guesses\n# from most of the records: check them."
    )
    if is_stored:
        origin_of_types = "Types are those that the\n# file declares."
    # A line break in the file's name would end the comment of the first line.
    printable = "".join(c if c.isprintable() else "?" for c in source)
    text = HEAD.format(source=printable, types=origin_of_types)
    # Only what differs from the defaults of a text file is written.
    declared = {k: v for k, v in vars(file).items() if v != vars(TextFormat())[k]}
    if declared:
        text += "\n[file]\n"
        text += "".join(f"{k} = {toml_text(v)}\n" for k, v in declared.items())
    for section, hint in HINTS.items():
        names = [name for name, guess in types.items() if guess == section]
        if names:
            text += f"\n[{section}]  # {hint}\n"
            text += "".join(f"{toml_key(name)} = []\n" for name in names)
    return text


def _guess_format(content: bytes, kind: str) -> TextFormat:
    """Return the separator of the header, and an encoding that reads the file."""
    # UTF-16 is recognized by its mark only, because half of all files in latin-1 would
    # be valid UTF-16 as well.
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # In latin-1 every byte is a character.
    encoding = "utf-16" if is_wide else "latin-1"
    with suppress(UnicodeDecodeError):
        content.decode("utf-8")
        encoding = "utf-8"
    text = content.decode(encoding, "replace")
    lines = (x for x in re.split("[\r\n]", text.lstrip("\ufeff")) if x.strip())
    # Separators inside quoted names are not counted.
    header = re.sub('"[^"]*"', "", next(lines, ""))
    usual = "\t" if kind == "tsv" else ","
    separator = max((usual, *",;\t|"), key=header.count)
    return TextFormat(
        separator="" if separator == usual else separator, encoding=encoding
    )


def _num_numbers(columns: Mapping[str, Column], file: TextFormat) -> int:
    """Count entries that are numbers by these marks."""
    numbers = (
        entries.parse_number(e, file) for c in columns.values() for e in c.entries
    )
    return sum(value is not None for value in numbers)


def _stored_type(declared: Any) -> str:
    """Return the section of a bounds file for a column type of Arrow."""
    from pyarrow import types

    if types.is_dictionary(declared):
        declared = declared.value_type
    if types.is_date(declared) or types.is_timestamp(declared):
        return "date"
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    return "numeric" if any(kind(declared) for kind in kinds) else "categorical"


def _guess_type(column: Array | Sequence[Any], file: TextFormat) -> str:
    """Return the type of more than half of the entries that are not missing."""
    for kind, convert in (
        ("numeric", entries.parse_number),
        ("date", entries.parse_day),
    ):
        # An entry that cannot be converted is None, and a missing one is NaN.
        values = [convert(entry, file) for entry in column]
        is_number = [v is not None for v in values if v is None or not math.isnan(v)]
        if 2 * sum(is_number) > len(is_number):
            return kind
    return "categorical"
