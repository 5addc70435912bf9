"""What is public about a table: ranges, levels, dates, how its text is written.

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

    [file]
    separator = ";"
    decimal = ","

Levels found in the records would reveal that somebody has a rare one, so they are
never taken from there. ``log`` columns are passed through sign(x) log(1 + |x|) before
they are scaled; dates are counted in days. ``columns`` names the columns of a file
without a header.
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
LARGEST = 1.0 / check.MIN_SCALE  # of a bound: no formula leaves floating point
Levels = tuple[str, ...] | tuple[int, ...]  # or of booleans, which are integers
LEVELS = "strings, or of integers, or of true and false"
KINDS = ("numeric", "log", "date", "categorical", "ignore")
REMEDY = "See the example in dpsample.tables.schema."
UNFILLED = "Fill in public facts, known without looking at the records."
THOUSANDS = ("", ".", ",", "'", " ", "_", "\u00a0", "\u202f", "\u2019")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Object of JSON, whose names are distinct, as those of TOML have to be."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is repeated")
    return dict(pairs)


def level_key(level: object) -> object:
    """Return what levels and entries are compared by: text in one form, stripped."""
    if not isinstance(level, str):
        return level
    return unicodedata.normalize("NFC", level.strip())


def level_text(level: object) -> str:
    """Text of a level in names of features: booleans as a bounds file has them."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def toml_key(name: str) -> str:
    """Name of a column as a bounds file in TOML has it, in quotes if need be."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(text: str) -> str:
    """Text in quotes, as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def days(name: str, value: object) -> int:
    """Day of a public ISO 8601 date, counted from year 1."""
    try:
        return datetime.date.fromisoformat(str(value)).toordinal()
    except ValueError:
        condition = 'an ISO 8601 date such as "2024-12-31"'
        check.fail(name, condition, check.describe(value), REMEDY)


def log_scale(values: Any) -> Any:
    """Return sign(x) log(1 + |x|) of an array or a number."""
    return np.sign(values) * np.log1p(np.abs(values))


def _label(section: str, name: object) -> str:
    """Name of one declaration, cut: a file may hold names of any length."""
    text = str(name)
    return f"{section}.{text if len(text) <= 60 else text[:57] + '...'}"


def _ends(label: str, value: object, wanted: str) -> tuple[Any, Any]:
    if not (isinstance(value, list | tuple) and len(value) == 2):
        remedy = UNFILLED if isinstance(value, list) and not value else REMEDY
        check.fail(label, f"{wanted} [lower, upper]", check.describe(value), remedy)
    return value[0], value[1]


def _bounds(section: str, name: str, value: object) -> Bounds:
    label = _label(section, name)
    ends = _ends(label, value, "two finite numbers")
    if any(
        isinstance(v, bool) or not isinstance(v, int | float) or not abs(v) <= LARGEST
        for v in ends
    ):
        wanted = "two finite numbers [lower, upper]"
        check.fail(label, wanted, check.describe(value), f"Up to {LARGEST:g}. {REMEDY}")
    lower, upper = float(ends[0]), float(ends[1])
    is_log = section == "log"
    if not (log_scale(lower) < log_scale(upper) if is_log else lower < upper):
        remedy = "A column that cannot vary belongs into ignore."
        check.fail(label, "of lower < upper", check.describe(value), remedy)
    return lower, upper


def _dates(name: str, value: object) -> tuple[str, str]:
    label = _label("date", name)
    first, last = (days(label, end) for end in _ends(label, value, "two dates"))
    if not first < last:
        remedy = "A column that cannot vary belongs into ignore."
        check.fail(label, "of lower < upper", check.describe(value), remedy)
    low, high = (datetime.date.fromordinal(day).isoformat() for day in (first, last))
    return low, high


def _entries(label: str, value: object, kind: str = "strings") -> tuple[Any, ...]:
    """Tuple of distinct strings, or of booleans or integers if the first one is."""
    if not isinstance(value, list | tuple) or not value:
        remedy = UNFILLED if isinstance(value, list) and not value else REMEDY
        check.fail(label, f"a non-empty list of {kind}", check.describe(value), remedy)
    level_type: Any = str
    if kind != "strings" and isinstance(value[0], int | np.integer | np.bool_):
        level_type = bool if isinstance(value[0], bool | np.bool_) else int
    wanted = {str: str, bool: bool | np.bool_, int: int | np.integer}[level_type]
    if any(
        not isinstance(v, wanted) or (level_type is int and isinstance(v, bool))
        for v in value
    ):
        remedy = "Quote every entry."
        check.fail(label, f"a list of {kind}", check.describe(value), remedy)
    given = [level_type(v) for v in value]
    if any(isinstance(v, int) and abs(v) >= 2**53 for v in given):
        remedy = "Quote every entry: doubles do not tell larger ones apart."
        check.fail(label, "of integers below 2**53", check.describe(value), remedy)
    keys = [level_key(v) for v in given] if kind != "strings" else given
    for index, key in enumerate(keys):
        if key in keys[:index]:
            got, remedy = check.describe(given[index]), "Remove one."
            if given[index] not in given[:index]:
                remedy = "Levels are compared without blanks around them, in form NFC."
            check.fail(label, "free of repeated entries", got, remedy)
    return tuple(given)


def _section(content: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        check.fail(name, "a table of columns", check.describe(section), REMEDY)
    named = {column_name(key): value for key, value in section.items()}
    check.members(str, **{name: [*named]})
    return {str(key): value for key, value in named.items()}


def column_name(label: object) -> object:
    """Name of a column, which data frames may number."""
    is_number = isinstance(label, int | np.integer) and not isinstance(label, bool)
    return str(label) if is_number else label


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """How a text file writes its table: facts about the file, not about records.

    Parameters
    ----------
    separator : str
        Character between two entries; empty for the one that the file's name tells.
    decimal : {".", ","}
        Mark before the decimals of a number.
    thousands : str
        Mark between groups of three digits; empty if there is none.
    encoding : str
        Of the characters; a byte-order mark is dropped.
    date_format : str
        As of ``datetime.strptime``, such as "%d.%m.%Y"; empty for ISO 8601.

    Raises
    ------
    ValueError
        If one is not what it is said to be here.

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
        if len(separator) > 1 or separator.isalnum() or separator in ('"', "\n", "\r"):
            check.fail("file.separator", "one character", check.describe(separator))
        check.one_of((".", ","), **{"file.decimal": self.decimal})
        check.one_of(THOUSANDS, **{"file.thousands": self.thousands})
        if self.decimal == self.thousands:
            check.fail("file.thousands", "another mark than decimal", self.thousands)
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
        except re.error:  # of a part that stands twice
            got = check.describe(self.date_format)
            check.fail("file.date_format", "a format of dates", got)
        except ValueError:  # the empty text has another one
            pass


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public facts about columns: each is a number, a date, a category, or ignored.

    Parameters
    ----------
    numeric : mapping of str to (lower, upper)
        Columns scaled linearly from these public bounds.
    log : mapping of str to (lower, upper)
        Columns with heavy tails, scaled after sign(x) log(1 + abs(x)).
    date : mapping of str to (first, last)
        Columns of dates, scaled linearly from these days (ISO 8601). Times of day are
        left out; a date with a time zone is that of UTC.
    categorical : mapping of str to sequence of str, of int, or of bool
        Public levels of each column; one indicator per level. Strings are compared as
        text in Unicode's form NFC without blanks around it, integers as numbers: "1",
        "1.0" and 1 are the same code 1. True and False are also 1 and 0, and the words
        in any case.
    ignore : sequence of str
        Columns that are not used.
    columns : sequence of str
        Names of all columns of a file without a header.
    missing : mapping of str to number, date or level
        Public constant that takes the place of a missing entry, within the bounds of
        its column. A missing entry of a column without a rule is an error.
    missing_indicator : sequence of str
        Columns that get one more feature: 1 where the entry is missing, all others of
        the column being 0 then.
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
    file: TextFormat = field(default_factory=TextFormat)

    def __post_init__(self) -> None:
        """Check every declaration and that no column has two."""
        given = vars(self)
        checked: dict[str, Any] = {
            kind: {k: _bounds(kind, k, v) for k, v in _section(given, kind).items()}
            for kind in ("numeric", "log")
        }
        checked["date"] = {k: _dates(k, v) for k, v in _section(given, "date").items()}
        checked["categorical"] = {
            k: _entries(_label("categorical", k), v, LEVELS)
            for k, v in _section(given, "categorical").items()
        }
        for name in ("ignore", "columns", "missing_indicator"):
            value = given[name]
            if isinstance(value, tuple | list):
                value = [column_name(one) for one in value]
            is_empty = isinstance(value, list) and not value
            checked[name] = () if is_empty else _entries(name, value)
        if isinstance(self.file, Mapping):
            checked["file"] = check.build("file", TextFormat, dict(self.file))
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check.instance(TextFormat, file=self.file)
        everything = [name for kind in KINDS for name in getattr(self, kind)]
        if len(set(everything)) < len(everything):
            name = next(n for n in everything if everything.count(n) > 1)
            wanted, got = "declared once", "two declarations"
            check.fail(f"column {check.describe(name)}", wanted, got)
        rules = {k: self._constant(k, v) for k, v in _section(given, "missing").items()}
        object.__setattr__(self, "missing", rules)
        for name in self.missing_indicator:
            if name in rules or self.kind(name) in (None, "ignore"):
                wanted = "declared, and without a constant in missing"
                check.fail(_label("missing_indicator", name), wanted, "another")

    def _constant(self, name: str, value: Any) -> Any:
        """Public value of missing entries, which the column's declaration allows."""
        label, kind = _label("missing", name), self.kind(name)
        if kind == "categorical":
            levels = self.categorical[name]
            key = level_key(value)
            if not any(key == level_key(v) and type(value) is type(v) for v in levels):
                check.fail(label, "one of the column's levels", check.describe(value))
            return value
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

    @property
    def declared(self) -> tuple[str, ...]:
        """Columns that are used if the table has them, in the order of the sections."""
        return tuple(name for kind in KINDS[:-1] for name in getattr(self, kind))

    def kind(self, column: str) -> str | None:
        """Section that declares a column, or None."""
        check.instance(str, column=column)
        for section in KINDS:
            if column in getattr(self, section):
                return section
        return None

    def to_dict(self) -> Json:
        """Return what `from_dict` reads, ready for ``json.dumps``: filled sections."""
        content = {k: v for k, v in vars(self).items() if v and k != "file"}
        defaults = vars(TextFormat())
        file = {k: v for k, v in vars(self.file).items() if v != defaults[k]}
        plain: Json = json.loads(json.dumps(content | ({"file": file} if file else {})))
        return plain

    @classmethod
    def from_dict(cls, content: object) -> Schema:
        """Build a schema from the parsed content of a bounds file."""
        if not isinstance(content, Mapping):
            wanted = "a table with named sections"
            check.fail("bounds", wanted, check.describe(content), REMEDY)
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
        if not os.path.isfile(file):  # False also of names that are too long
            check.fail("bounds", "an existing file", str(path))
        try:
            text = file.read_text(encoding="utf-8-sig")
            is_toml = file.suffix == ".toml"
            parse = partial(json.loads, object_pairs_hook=_once)
            content = tomllib.loads(text) if is_toml else parse(text)
        except (ValueError, RecursionError) as error:  # brackets without end
            kind = file.suffix[1:].upper()
            check.fail("bounds", f"valid {kind}", f"{file.name}: {error}")
        return cls.from_dict(content)
