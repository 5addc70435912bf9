"""Single entries of a table, to numbers, days and codes of levels: each by itself.

No type that a whole column was given decides what an entry becomes, for that would
depend on other records: the entries "1", 1 and 1.0 are one number, whether or not
another record has "x" in that column.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array, Bools, Ints
from dpsample.tables.schema import LARGEST, Levels, TextFormat

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
CLIP_REMEDY = "Correct the public bounds, or clip (clip=True, --clip-rows)."
MISSING_REMEDY = (
    "Drop such records, or declare a public rule: a constant in [missing], or the "
    "column in missing_indicator; one of its levels may mean 'unknown', too."
)
UNKNOWN, ABSENT = -1, -2  # codes of entries that are no level, or missing


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

    try:
        names = [str(name) for name in frame.columns]
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


def _is_missing(entry: object) -> bool:
    import pandas as pd

    if isinstance(entry, float | np.floating):
        return math.isnan(entry)
    return entry is None or entry is pd.NA or entry is pd.NaT


def _parsed(text: str, file: TextFormat) -> float | None:
    """Return the number that a text is by the declared marks; None if it is none."""
    if file.thousands and file.thousands in text:
        whole, _, decimals = text.lstrip("+-").partition(file.decimal)
        first, *others = whole.split(file.thousands)
        is_grouped = 0 < len(first) <= 3 and all(len(group) == 3 for group in others)
        if not is_grouped or file.thousands in decimals:
            return None
        text = text.replace(file.thousands, "")
    if file.decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def number(entry: Any, file: TextFormat) -> float | None:
    """Return an entry as a number: NaN if it is missing, None if it is not one."""
    if isinstance(entry, str):
        text = entry.strip()
        return math.nan if text in MISSING else _parsed(text, file)
    if _is_missing(entry):
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
    if _is_missing(entry):
        return math.nan
    if isinstance(entry, datetime.datetime) and entry.tzinfo is not None:
        try:
            entry = entry.astimezone(datetime.UTC)
        except OverflowError:
            return None
    return float(entry.toordinal()) if isinstance(entry, datetime.date) else None


def _converted(
    column: Column,
    convert: Callable[[Any, TextFormat], float | None],
    file: TextFormat,
    condition: str,
) -> Array:
    """Convert every entry; NaN stands for a missing one."""
    known: dict[str, float | None] = {}  # texts repeat
    found = []
    for entry in column.entries:
        if type(entry) is not str:
            found.append(convert(entry, file))
            continue
        if entry not in known:
            known[entry] = convert(entry, file)
        found.append(known[entry])
    values = np.array([math.inf if v is None else v for v in found], dtype=np.float64)
    remedy = "Declare the column categorical, with its public levels, in the bounds."
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
        try:  # the same as one by one: what is missing or odd goes there
            values = np.fromiter(map(float, entries), np.float64, len(entries))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if not np.isnan(values).any():
                column.refuse(np.isinf(values), "numeric", "Correct such records.")
                return values
    return _converted(column, number, file, "numeric")


def days(column: Column, file: TextFormat) -> Array:
    """Entries as days, or NaN where one is missing; errors as in `numbers`."""
    return _converted(column, day, file, "of dates")


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
        return ABSENT if _is_missing(entry) else UNKNOWN

    known: dict[str, int] = {}
    found = np.empty(len(column.entries), dtype=np.int64)
    for i, entry in enumerate(column.entries):
        if type(entry) is not str:
            found[i] = place(entry)
            continue
        if entry not in known:
            known[entry] = place(entry)
        found[i] = known[entry]
    return found


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
    if isinstance(entry, float | np.floating):
        whole = (str(int(entry)),) if float(entry).is_integer() else ()
        return *whole, repr(float(entry))
    return (str(entry),) if isinstance(entry, datetime.date) else ()


def signs(column: Column, label: str, file: TextFormat) -> Array:
    """Return 1 where an entry is the label, as text or as a number; -1 elsewhere."""
    text = label.strip()
    places = codes(column, (text,), file)
    if text not in MISSING:
        column.refuse(places == ABSENT, "complete", "Drop such records first.")
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
