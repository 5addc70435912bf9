"""Public facts about a table: ranges, levels and dates of columns, format of its text.

A bounds file is TOML or JSON::

    ignore = ["id"]
    missing_indicator = ["income"]

    [numeric]
    age = [0, 100]

    [log]
    income = [0, 1000000]

    [date]
    admitted = ["2010-01-01", "2024-12-31"]

    [categorical]
    color = ["red", "green", "blue"]
    grade = [1, 2, 3]
    smoker = [false, true]

    [missing]
    age = 40
    color = "blue"

    [reference]
    color = "red"

    [file]
    separator = ";"
    decimal = ","

Levels are never taken from the records, because a rare level would reveal that a record
has it. Columns in ``log`` are scaled after sign(x) log(1 + |x|). Dates are counted in
days. ``columns`` are the names of the columns of a file without a header. Confidence
intervals compare the levels of a column with its ``reference``.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.spec import Json

Bounds = tuple[float, float]
# Largest magnitude of a bound, with which products of a few bounds do not overflow.
LARGEST = 1.0 / check.MIN_SCALE
Levels = tuple[str, ...] | tuple[int, ...]  # booleans are integers
# Sections of the bounds, one for each kind of column.
KINDS = ("numeric", "log", "date", "categorical", "ignore")
REMEDY = "See the example in dpsample.tables.schema."
UNFILLED = "Fill in public facts, known without looking at the records."
# Marks that separate thousands, among them blanks of several widths.
THOUSANDS = ("", ".", ",", "'", " ", "_", "\u00a0", "\u202f", "\u2019")


def _distinct_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON. Raise if a name is repeated, as TOML does."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is repeated")
    return dict(pairs)


def level_key(level: object) -> object:
    """Return the form in which levels and entries are compared."""
    if not isinstance(level, str):
        return level
    # NFC, so that equal letters with accents have equal codes.
    return unicodedata.normalize("NFC", level.strip())


def level_text(level: object) -> str:
    """Return the text of a level in names of features. Booleans are as in TOML."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def toml_key(name: str) -> str:
    """Return the name of a column as a key of TOML, in quotes if they are needed."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(text: str) -> str:
    """Return a text as a string of TOML."""
    # JSON and TOML have the same escapes, but TOML does not allow the character DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def days(name: str, value: object) -> int:
    """Return the day of an ISO 8601 date, counted from the first day of year 1."""
    try:
        return datetime.date.fromisoformat(str(value)).toordinal()
    except ValueError:
        condition = 'an ISO 8601 date such as "2024-12-31"'
        check.fail(name, condition, check.describe(value), REMEDY)


def log_scale(values: Any) -> Any:
    """Return sign(x) log(1 + |x|) of an array or a number."""
    return np.sign(values) * np.log1p(np.abs(values))


def _label(section: str, name: object) -> str:
    """Return the name of one declaration, cut to 60 characters of the column."""
    text = str(name)
    return f"{section}.{text if len(text) <= 60 else text[:57] + '...'}"


def _ends(label: str, value: object, condition: str) -> tuple[Any, Any]:
    """Return the two ends of a declared range."""
    if not (isinstance(value, list | tuple) and len(value) == 2):
        remedy = UNFILLED if isinstance(value, list) and not value else REMEDY
        check.fail(label, f"{condition} [lower, upper]", check.describe(value), remedy)
    return value[0], value[1]


def _bounds(section: str, name: str, value: object) -> Bounds:
    """Return the bounds of a numeric or log column, which must differ after scaling."""
    label = _label(section, name)
    ends = _ends(label, value, "two finite numbers")
    if any(
        isinstance(v, bool) or not isinstance(v, int | float) or not abs(v) <= LARGEST
        for v in ends
    ):
        condition = "two finite numbers [lower, upper]"
        check.fail(
            label, condition, check.describe(value), f"Up to {LARGEST:g}. {REMEDY}"
        )
    lower, upper = float(ends[0]), float(ends[1])
    # Two different bounds may be equal after the scaling of a log column.
    is_log = section == "log"
    if not (log_scale(lower) < log_scale(upper) if is_log else lower < upper):
        remedy = "A column that cannot vary belongs into ignore."
        check.fail(label, "of lower < upper", check.describe(value), remedy)
    return lower, upper


def _dates(name: str, value: object) -> tuple[str, str]:
    """Return the first and last day of a column of dates, in ISO 8601."""
    label = _label("date", name)
    first, last = (days(label, end) for end in _ends(label, value, "two dates"))
    if not first < last:
        remedy = "A column that cannot vary belongs into ignore."
        check.fail(label, "of lower < upper", check.describe(value), remedy)
    low, high = (datetime.date.fromordinal(day).isoformat() for day in (first, last))
    return low, high


def _entries(label: str, value: object, kind: str = "strings") -> tuple[Any, ...]:
    """Return a tuple of distinct strings, booleans or integers, as the first one is."""
    if not isinstance(value, list | tuple) or not value:
        remedy = UNFILLED if isinstance(value, list) and not value else REMEDY
        check.fail(label, f"a non-empty list of {kind}", check.describe(value), remedy)
    # The first level decides the type of all. True is an int, so bool is tested first.
    level_type: Any = str
    if kind != "strings" and isinstance(value[0], int | np.integer | np.bool_):
        level_type = bool if isinstance(value[0], bool | np.bool_) else int
    accepted = {str: str, bool: bool | np.bool_, int: int | np.integer}[level_type]
    if any(
        not isinstance(v, accepted) or (level_type is int and isinstance(v, bool))
        for v in value
    ):
        remedy = "Quote every entry."
        check.fail(label, f"a list of {kind}", check.describe(value), remedy)
    levels = [level_type(v) for v in value]
    if any(isinstance(v, int) and abs(v) >= 2**53 for v in levels):
        remedy = "Quote every entry: doubles do not tell larger ones apart."
        check.fail(label, "of integers below 2**53", check.describe(value), remedy)
    # Names of columns are compared as they are, and levels by their key.
    keys = [level_key(v) for v in levels] if kind != "strings" else levels
    for index, key in enumerate(keys):
        if key in keys[:index]:
            got, remedy = check.describe(levels[index]), "Remove one."
            if levels[index] not in levels[:index]:
                remedy = "Levels are compared without blanks around them, in form NFC."
            check.fail(label, "free of repeated entries", got, remedy)
    return tuple(levels)


def _section(content: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a section of the bounds, whose keys are names of columns as text."""
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        check.fail(name, "a table of columns", check.describe(section), REMEDY)
    named = {column_name(key): value for key, value in section.items()}
    check.members(str, **{name: [*named]})
    return {str(key): value for key, value in named.items()}


def column_name(label: object) -> object:
    """Return the name of a column as text. Data frames may use numbers as names."""
    is_number = isinstance(label, int | np.integer) and not isinstance(label, bool)
    return str(label) if is_number else label


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """Format of the table in a text file.

    Parameters
    ----------
    separator : str
        Character between two entries. If it is empty, the file's name decides.
    decimal : {".", ","}
        Mark before the decimals of a number.
    thousands : str
        Mark between groups of three digits; empty if there is none.
    encoding : str
        Encoding of the characters. A byte-order mark is left out.
    date_format : str
        Format for ``datetime.strptime``, such as "%d.%m.%Y". Empty for ISO 8601.

    Raises
    ------
    ValueError
        If a field is malformed.

    Examples
    --------
    >>> TextFormat(separator=";", decimal=",", thousands=".").encoding
    'utf-8'
    """

    separator: str = ""
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    date_format: str = ""

    def __post_init__(self) -> None:
        """Check every field."""
        check.instance(str, **{f"file.{k}": v for k, v in vars(self).items()})
        separator = self.separator
        # Letters, digits, quotes and line breaks have another meaning in a table.
        if len(separator) > 1 or separator.isalnum() or separator in ('"', "\n", "\r"):
            check.fail("file.separator", "one character", check.describe(separator))
        check.one_of((".", ","), **{"file.decimal": self.decimal})
        check.one_of(THOUSANDS, **{"file.thousands": self.thousands})
        if self.decimal == self.thousands:
            check.fail("file.thousands", "another mark than decimal", self.thousands)
        # Some codecs of Python do not encode text, and fail with other errors.
        try:
            "x".encode(self.encoding)
            is_known = "\0" not in self.encoding
        except (LookupError, ValueError):
            is_known = False
        if not is_known:
            got, remedy = check.describe(self.encoding), "For example latin-1."
            check.fail("file.encoding", "an encoding of text", got, remedy)
        try:
            datetime.datetime.strptime("", self.date_format)
        except re.error:  # a directive is repeated
            got = check.describe(self.date_format)
            check.fail("file.date_format", "a format of dates", got)
        except ValueError:  # the format is valid, but the empty text does not have it
            pass


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public facts about columns, which are numbers, dates, categories, or ignored.

    Parameters
    ----------
    numeric : mapping of str to (lower, upper)
        Columns scaled linearly from these public bounds.
    log : mapping of str to (lower, upper)
        Columns with heavy tails, scaled after sign(x) log(1 + abs(x)).
    date : mapping of str to (first, last)
        Columns of dates, scaled linearly from these days (ISO 8601). Times of day are
        ignored. Moments with a time zone are converted to UTC.
    categorical : mapping of str to sequence of str, of int, or of bool
        Public levels of each column. Each level becomes one indicator. Strings are
        compared as text in Unicode's form NFC without surrounding blanks, integers as
        numbers, so "1", "1.0" and 1 are the level 1. True and False also mean 1 and 0,
        and the words in upper or lower case.
    ignore : sequence of str
        Columns that are not used.
    columns : sequence of str
        Names of all columns of a file without a header.
    missing : mapping of str to number, date or level
        Public constant that replaces missing entries, within the bounds of its column.
        A missing entry of a column without a rule is an error.
    missing_indicator : sequence of str
        Columns with one more feature, which is 1 if the entry is missing. All other
        features of the column are 0 then.
    reference : mapping of str to level
        Level of a categorical column with which confidence intervals compare its other
        levels. The default is the first declared level. Like the levels it must be
        public knowledge, never the most frequent level of the records.
    file : TextFormat or mapping
        Separator, marks and encoding of a text file.

    Raises
    ------
    ValueError
        If a bound or a level is malformed, or a column is declared twice.

    Examples
    --------
    >>> schema = Schema(numeric={"age": (0.0, 100.0)}, missing={"age": 40},
    ...                 categorical={"color": ("red", "green")})
    >>> schema.kind("age"), schema.kind("color"), schema.kind("name")
    ('numeric', 'categorical', None)
    """

    numeric: Mapping[str, Bounds] = field(default_factory=dict)
    log: Mapping[str, Bounds] = field(default_factory=dict)
    date: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    categorical: Mapping[str, Levels] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    missing: Mapping[str, float | str | int] = field(default_factory=dict)
    missing_indicator: tuple[str, ...] = ()
    reference: Mapping[str, str | int] = field(default_factory=dict)
    file: TextFormat = field(default_factory=TextFormat)

    def __post_init__(self) -> None:
        """Check every declaration and that no column has two."""
        fields = vars(self)
        checked: dict[str, Any] = {
            kind: {k: _bounds(kind, k, v) for k, v in _section(fields, kind).items()}
            for kind in ("numeric", "log")
        }
        checked["date"] = {k: _dates(k, v) for k, v in _section(fields, "date").items()}
        kinds = "strings, or of integers, or of true and false"
        checked["categorical"] = {
            k: _entries(_label("categorical", k), v, kinds)
            for k, v in _section(fields, "categorical").items()
        }
        for name in ("ignore", "columns", "missing_indicator"):
            value = fields[name]
            if isinstance(value, tuple | list):
                value = [column_name(label) for label in value]
            is_empty = isinstance(value, list) and not value
            checked[name] = () if is_empty else _entries(name, value)
        if isinstance(self.file, Mapping):
            checked["file"] = check.build("file", TextFormat, dict(self.file))
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check.instance(TextFormat, file=self.file)
        # A column in two sections would have two meanings.
        everything = [name for kind in KINDS for name in getattr(self, kind)]
        if len(set(everything)) < len(everything):
            name = next(n for n in everything if everything.count(n) > 1)
            condition, got = "declared once", "two declarations"
            check.fail(f"column {check.describe(name)}", condition, got)
        rules = {
            k: self._constant(k, v) for k, v in _section(fields, "missing").items()
        }
        object.__setattr__(self, "missing", rules)
        references = {
            k: self._level(_label("reference", k), k, v)
            for k, v in _section(fields, "reference").items()
        }
        object.__setattr__(self, "reference", references)
        for name in self.missing_indicator:
            if name in rules or self.kind(name) in (None, "ignore"):
                condition = "declared, and without a constant in missing"
                check.fail(_label("missing_indicator", name), condition, "another")

    def _constant(self, name: str, value: Any) -> Any:
        """Return the constant of missing entries, if the column can have this value."""
        label, kind = _label("missing", name), self.kind(name)
        if kind == "categorical":
            return self._level(label, name, value)
        if kind in (None, "ignore"):
            check.fail(label, "about a declared column", "no declaration", REMEDY)
        if kind == "date":
            day = days(label, value)
            first, last = (days(label, end) for end in self.date[name])
            if not first <= day <= last:
                check.fail(label, "within the column's range", check.describe(value))
            return datetime.date.fromordinal(day).isoformat()
        lower, upper = self.numeric.get(name) or self.log[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and lower <= value <= upper):
            check.fail(label, "a number in the column's range", check.describe(value))
        return float(value)

    def _level(self, label: str, name: str, value: object) -> object:
        """Return a level of a categorical column, or raise unless it is declared."""
        levels, key = self.categorical.get(name), level_key(value)
        if levels is None:
            condition = "about a column that is declared as categorical"
            check.fail(label, condition, check.describe(self.kind(name)), REMEDY)
        if not any(key == level_key(v) and type(value) is type(v) for v in levels):
            check.fail(label, "one of the column's levels", check.describe(value))
        return value

    @property
    def declared(self) -> tuple[str, ...]:
        """Columns that are used if the table has them, in the order of the sections."""
        return tuple(name for kind in KINDS[:-1] for name in getattr(self, kind))

    def kind(self, column: str) -> str | None:
        """Return the section that declares a column, or None."""
        check.instance(str, column=column)
        for section in KINDS:
            if column in getattr(self, section):
                return section
        return None

    def to_dict(self) -> Json:
        """Return what `from_dict` reads, ready for ``json.dumps``: filled sections."""
        content = {k: v for k, v in vars(self).items() if v and k != "file"}
        # Fields that have their default are left out, as in a file that a user writes.
        defaults = vars(TextFormat())
        file = {k: v for k, v in vars(self.file).items() if v != defaults[k]}
        # JSON has lists for tuples, and so has the result.
        plain: Json = json.loads(json.dumps(content | ({"file": file} if file else {})))
        return plain

    @classmethod
    def from_dict(cls, content: object) -> Schema:
        """Build a schema from the parsed content of a bounds file."""
        if not isinstance(content, Mapping):
            condition = "a table with named sections"
            check.fail("bounds", condition, check.describe(content), REMEDY)
        sections = [entry.name for entry in dataclasses.fields(cls)]
        for name in content:
            if name not in sections:
                listed, got = ", ".join(sections), check.describe(name)
                check.fail("section of the bounds", f"one of {listed}", got, REMEDY)
        return cls(**content)

    @classmethod
    def from_file(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML or JSON file.

        Parameters
        ----------
        path : str or Path
            File whose name ends in .toml or .json.

        Raises
        ------
        ValueError
            If the file is neither, does not parse, or declares something malformed.
        """
        file = check.path("path", path)
        if file.suffix not in (".toml", ".json"):
            check.fail("bounds", "a .toml or .json file", str(path), REMEDY)
        if not os.path.isfile(file):  # it is False for too long names, too
            check.fail("bounds", "an existing file", str(path))
        try:
            text = file.read_text(encoding="utf-8-sig")
            is_toml = file.suffix == ".toml"
            parse = partial(json.loads, object_pairs_hook=_distinct_names)
            content = tomllib.loads(text) if is_toml else parse(text)
        except (ValueError, RecursionError) as error:  # the latter for many brackets
            kind = file.suffix[1:].upper()
            check.fail("bounds", f"valid {kind}", f"{file.name}: {error}")
        return cls.from_dict(content)


def reference_position(schema: Schema, name: str) -> int:
    """Return the position of a categorical column's reference among its levels."""
    keys = [level_key(level) for level in schema.categorical[name]]
    return keys.index(level_key(schema.reference.get(name, keys[0])))
