"""The public encoding of a table: how one record becomes one bounded row.

Every used column contributes at most 1 to a row: a number scaled to [-1, 1] or [0, 1],
or the indicator of one level. Rows of m columns therefore have q-norm at most m^(1/q),
whatever the number of indicators; they are divided by that, so the implied public bound
is 1. Of a response, labels become -1 and 1, and bounded numbers go to [-1, 1].
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array, Bools
from dpsample.core.columns import list_names
from dpsample.core.sparse import Rows
from dpsample.core.spec import Json
from dpsample.numerics import norms
from dpsample.tables import entries
from dpsample.tables.entries import (
    ABSENT,
    CLIP_REMEDY,
    DROP_REMEDY,
    LABEL_REMEDY,
    MISSING_REMEDY,
    UNKNOWN,
    Column,
)
from dpsample.tables.rules import in_words
from dpsample.tables.schema import (
    Levels,
    Schema,
    TextFormat,
    column_name,
    days,
    level_key,
    level_text,
    log_scale,
    toml_key,
)

FORMAT = "dpsample encoding 1"
SMALLER = 2.0**-200  # factor of rows whose norms overflow
NORM_TOLERANCE = 1e-12  # relative slack for norms computed in floating point
LABEL_BITS = 1000  # longer integers are no labels, and no doubles
Columns = Mapping[str, Column]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Everything public that turns a raw table into rows and a response.

    Parameters
    ----------
    schema : Schema or None
        Ranges, levels, dates and rules of the columns; None, or one that declares the
        target only: all other columns are numbers and stay as they are.
    columns : sequence of str
        Columns that become features, in this order; by default those of the schema.
    target : str, optional
        Column of the response.
    positive_label : str, optional
        Declared level of the target that becomes 1, all others becoming -1. A number, a
        boolean or bytes that a record of this level may hold become its text.
    clip : bool
        Move values to their public bounds, encode other levels as zeros and scale rows
        down to ``row_bound``, instead of refusing such records.
    symmetric : bool
        Scale numbers to [-1, 1] rather than [0, 1].
    row_norm : float
        Exponent, in [1, inf], of the norm of rows.
    row_bound : float, optional
        Public bound of that norm; by default ``scale`` if there is a schema.
    scale : float
        Public factor of all features.

    Raises
    ------
    ValueError
        If an argument is malformed.

    Guarantee
    ---------
    What a record becomes depends on that record and on these fields only, none of which
    is taken from records.

    Examples
    --------
    >>> import pandas as pd
    >>> schema = Schema(numeric={"age": (0, 100)}, categorical={"ward": ("n", "s")})
    >>> encoding = Encoding(schema=schema)
    >>> encoding.feature_names
    ('age', 'ward=n', 'ward=s')
    >>> encoding.features(pd.DataFrame({"ward": ["s"], "age": [75]})).round(3).tolist()
    [[0.354, 0.0, 0.707]]
    >>> Encoding.from_dict(encoding.to_dict()) == encoding
    True
    """

    schema: Schema | None
    columns: tuple[str, ...] = ()
    target: str | None = None
    positive_label: str | None = None
    clip: bool = False
    symmetric: bool = True
    row_norm: float = 2.0
    row_bound: float | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        check.instance((Schema, type(None)), schema=self.schema)
        check.members(str, columns=self.columns)
        object.__setattr__(self, "target", response_name(self.target))
        label: Any = self.positive_label
        if not isinstance(label, str | None):  # it is kept as text
            label = check_positive_label(self._facts, self.target, label)
            object.__setattr__(self, "positive_label", label)
        check.instance(bool, clip=self.clip, symmetric=self.symmetric)
        check.at_least(1.0, row_norm=self.row_norm)
        check.scale(scale=self.scale)
        for name in ("row_norm", "scale"):
            object.__setattr__(self, name, float(getattr(self, name)))
        columns, schema = tuple(self.columns), self.schema
        if schema is not None and declares_features(schema, self.target):
            own = tuple(name for name in schema.declared if name != self.target)
            columns = columns or own
            for name in columns:
                if name not in own:
                    refuse_undeclared(name)
        if not columns:
            check.fail("columns", "one or more columns to use", "none", "Ignore fewer.")
        columns_module.require_distinct("the encoding", columns)
        object.__setattr__(self, "columns", columns)
        if self.row_bound is not None:
            check.scale(row_bound=self.row_bound)
            object.__setattr__(self, "row_bound", float(self.row_bound))
        elif self.is_scaled:
            object.__setattr__(self, "row_bound", self.scale)
        columns_module.require_distinct("the encoded table", self.feature_names)
        self._check_response()

    def _check_response(self) -> None:
        levels = self.levels
        if levels is not None and self.positive_label is None and len(levels) != 2:
            remedy = "Give two levels, the positive one last, or a positive_label."
            name = f"categorical.{self.target}"
            check.fail(name, "of two levels", check.describe(levels), remedy)
        schema, name = self._facts, self.target or ""
        if name in (*schema.date, *schema.missing, *schema.missing_indicator):
            got = "a date, or a rule for missing entries"
            check.fail(f"response {check.describe(name)}", "numeric or of labels", got)

    @cached_property
    def _blocks(self) -> dict[str, tuple[str, ...]]:
        """Names of the features of each column."""
        schema = self._facts
        blocks: dict[str, tuple[str, ...]] = {}
        for name in self.columns:
            levels = schema.categorical.get(name)
            names: tuple[str, ...] = (name,)
            if levels is not None:
                names = tuple(f"{name}={level_text(level)}" for level in levels)
            is_marked = name in schema.missing_indicator
            blocks[name] = (*names, f"{name}=missing") if is_marked else names
        return blocks

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in their order."""
        return tuple(name for names in self._blocks.values() for name in names)

    def _level_places(self) -> dict[str, list[int]]:
        """Places of the indicators of each column's levels among the features."""
        places, start = {}, 0
        for name, block in self._blocks.items():
            count = len(self._facts.categorical.get(name, ()))
            if count:
                places[name] = list(range(start, start + count))
            start += len(block)
        return places

    @property
    def divisor(self) -> float:
        """Largest norm that a row can have before it is divided by this."""
        if not self.is_scaled:
            return 1.0
        return float(len(self.columns) ** (1.0 / self.row_norm))

    @property
    def response_bound(self) -> float | None:
        """Public bound of the encoded response; None if there is none."""
        is_declared = self.target in self._facts.declared
        return 1.0 if is_declared or self.positive_label is not None else None

    @property
    def is_scaled(self) -> bool:
        """Whether features are scaled by public facts, and not taken as they are."""
        return self.schema is not None and declares_features(self.schema, self.target)

    @property
    def labels(self) -> tuple[Any, Any] | None:
        """Raw labels that -1 and 1 stand for, if both are public."""
        levels = self.levels
        if levels is None or len(levels) != 2:
            return None
        index = find_level(self.positive_label, levels, self._facts.file)
        return None if index < 0 else (levels[1 - index], levels[index])

    @property
    def rules(self) -> tuple[str, ...]:
        """What is done to any record, in words, one rule a line: public facts only."""
        return in_words(self)

    @property
    def _facts(self) -> Schema:
        return self.schema or Schema()

    @property
    def levels(self) -> tuple[Any, ...] | None:
        """Declared labels of the target, in their order; None if there are none."""
        return self._facts.categorical.get(self.target or "")

    def features(self, frame: object) -> Array:
        """Encode private records.

        Parameters
        ----------
        frame : DataFrame
            Raw columns, of pandas, polars or another library that narwhals reads. They
            are matched by name, in any order. The target, and columns that the schema
            ignores, may be there or not.

        Returns
        -------
        array of shape (num_records, num_features)
            Rows of ``row_norm``-norm at most ``row_bound``, unless ``clip`` is False
            and a row is longer: `dpsample.Problem` refuses it.

        Raises
        ------
        ValueError
            If a column is missing, not declared or there twice, a value is missing
            without a public rule, is not what its column holds, or, without ``clip``,
            is outside its public bounds; the message names column and record.
        """
        return self._rows(entries.columns_of(frame), clip=self.clip)[0]

    def new_features(self, frame: object) -> Array:
        """Encode records to predict, which need not be private.

        Parameters
        ----------
        frame : DataFrame
            As in `features`.

        Returns
        -------
        array of shape (num_records, num_features)
            Rows; values outside their bounds are moved there, and a RuntimeWarning
            tells how many there were.

        Raises
        ------
        ValueError
            As in `features`.
        """
        rows, clipped = self._rows(entries.columns_of(frame), clip=True)
        _warn_of(clipped)
        return rows

    def response(self, frame: Any) -> Array:
        """Encode the target column.

        Parameters
        ----------
        frame : DataFrame
            As in `features`, with the target.

        Returns
        -------
        array of shape (num_records,)
            1 for ``positive_label`` and -1 for every other declared level; -1 and 1 for
            the two declared levels; declared numbers scaled to [-1, 1]; others as they
            are.

        Raises
        ------
        ValueError
            If there is no such column, ``positive_label`` is not one of its declared
            levels, or an entry cannot be encoded.
        """
        table, name = entries.columns_of(frame), self.target or ""
        if name not in table:
            remedy = "Pass the response column (target=..., --target ...)."
            condition = f"one of the columns {list_names(table)}"
            check.fail("target", condition, self.target, remedy)
        return self._response(table[name], Counter())

    def _response(self, column: Column, clipped: Counter[str]) -> Array:
        """Encode the target's entries, and count those that are moved to a bound."""
        name, schema, levels = self.target or "", self._facts, self.levels
        check_positive_label(schema, name, self.positive_label)
        if levels is not None:
            codes = entries.codes(column, levels, schema.file)
            self._refuse_missing(column, codes == ABSENT)
            column.refuse(codes == UNKNOWN, "one of its public levels", LABEL_REMEDY)
            positive = find_level(self.positive_label, levels, schema.file)
            return np.where(codes == positive, 1.0, -1.0)
        if self.response_bound is not None:
            return 2.0 * self._unit(column, clipped, clip=self.clip)[0] - 1.0
        return self._complete(column)

    def raw_response(self, margins: Array, *, is_label: bool) -> Any:
        """Turn margins back into what the target column holds.

        Parameters
        ----------
        margins : array
            Linear predictions of encoded rows.
        is_label : bool
            Whether their sign predicts a label.

        Returns
        -------
        array of the same shape
            Labels, as they were where both are public and -1 or 1 otherwise; or numbers
            in the units of the response, by the inverse of its public scaling.
        """
        margins = check.entries("margins", margins)
        check.instance(bool, is_label=is_label)
        if is_label:
            low, high = self.labels or (-1.0, 1.0)
            return np.where(margins >= 0.0, high, low)
        name, schema = self.target or "", self._facts
        is_number = name in schema.numeric or name in schema.log
        if not is_number or self.positive_label is not None:
            return margins
        ends, is_log = self._range(name), name in schema.log
        lower, upper = map(log_scale, ends) if is_log else ends
        values = lower + (margins + 1.0) / 2.0 * (upper - lower)
        return np.sign(values) * np.expm1(np.abs(values)) if is_log else values

    def units(self) -> tuple[Array, Array]:
        """Slope and value at 0 of each feature, as a function of its raw column.

        Returns
        -------
        slopes, offsets : array of shape (num_features,)
            Within its bounds a feature is offset + slope * x: x the number, the day,
            sign(x) log(1 + abs(x)) of a log column, or 1 where an indicator holds.
        """
        schema = self._facts
        slopes, offsets = [], []
        for name, block in self._blocks.items():
            own, start = [1.0] * len(block), [0.0] * len(block)
            if self.is_scaled and name not in schema.categorical:
                lower, upper = self._range(name)
                if name in schema.log:
                    lower, upper = log_scale(lower), log_scale(upper)
                own[0] = (2.0 if self.symmetric else 1.0) / (upper - lower)
                start[0] = -own[0] * lower - float(self.symmetric)
            slopes += own
            offsets += start
        factor = self.scale / self.divisor
        return factor * np.array(slopes), factor * np.array(offsets)

    def to_dict(self) -> Json:
        """Return the fields and the format, ready for ``json.dumps``."""
        content: Json = {"format": FORMAT} | {
            name: getattr(self, name) for name in self.__dataclass_fields__
        }
        content["columns"] = list(self.columns)
        content["schema"] = None if self.schema is None else self.schema.to_dict()
        if math.isinf(self.row_norm):
            content["row_norm"] = "inf"  # standard JSON has no infinity
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Encoding:
        """Build an encoding from what `to_dict` returned.

        Parameters
        ----------
        content : dict
            Exactly that: other fields, or values written otherwise, are refused.

        Raises
        ------
        ValueError
            If it is not what `to_dict` returns for any encoding.
        """
        check.instance(dict, encoding=content)
        remedy = "Make the answer again with this version."
        given = {"encoding.format": content.get("format")}
        check.one_of((FORMAT,), remedy=remedy, **given)
        fields = {name: value for name, value in content.items() if name != "format"}
        if fields.get("schema") is not None:
            fields["schema"] = Schema.from_dict(fields["schema"])
        if fields.get("row_norm") == "inf":
            fields["row_norm"] = math.inf
        encoding = check.build("encoding", cls, fields)
        if encoding.to_dict() != content:
            got = "another form of the same"
            check.fail("encoding", "written as Encoding.to_dict writes it", got)
        return encoding

    def _rows(self, table: Columns, *, clip: bool) -> tuple[Array, Counter[str]]:
        """Return rows, and how many values and rows were moved to their bounds."""
        used = used_columns([*table], self.schema, self.target)
        columns_module.find_positions("the table", used, self.columns)
        num_rows = max((len(column) for column in table.values()), default=0)
        rows = np.zeros((num_rows, len(self.feature_names)))
        clipped: Counter[str] = Counter()
        start = 0
        for name, block in self._blocks.items():
            part = rows[:, start : start + len(block)]
            start += len(block)
            if not self.is_scaled:
                part[:, 0] = self._complete(table[name])
            elif name in self._facts.categorical:
                self._indicate(table[name], part, clipped, clip=clip)
            else:
                self._scale(table[name], part, clipped, clip=clip)
        rows /= self.divisor
        if self.scale != 1.0:
            rows *= self.scale
        if clip:
            norm = partial(norms.norm, p=self.row_norm)
            rows = np.asarray(clip_rows(rows, self.row_bound, norm, clipped))
        return rows, clipped

    def _unit(
        self, column: Column, clipped: Counter[str], *, clip: bool
    ) -> tuple[Array, Bools]:
        """Numbers or dates mapped from their public range to [0, 1]; what is missing.

        Constants are put in first; without one, missing entries are NaN.
        """
        schema, name = self._facts, column.name
        is_date = name in schema.date
        values = (entries.days if is_date else entries.numbers)(column, schema.file)
        is_missing = np.isnan(values)
        if name in schema.missing:
            constant: Any = schema.missing[name]
            values[is_missing] = days(name, constant) if is_date else constant
        elif name not in schema.missing_indicator:
            self._refuse_missing(column, is_missing)
        lower, upper = self._range(name)
        outside = (values < lower) | (values > upper)
        if outside.any():
            shown = schema.date.get(name) or (
                check.describe(lower),
                check.describe(upper),
            )
            bounds = f"[{', '.join(shown)}]"
            if not clip:
                condition = f"within its public bounds {bounds}"
                one = column if is_date else Column(name, values)
                one.refuse(outside, condition, CLIP_REMEDY)
            clipped[f"of {check.describe(name)} outside {bounds}"] += int(outside.sum())
        values = np.clip(values, lower, upper)
        if name in schema.log:
            values, lower, upper = map(log_scale, (values, lower, upper))
        # Rounding may leave the interval, and with it the declared bound.
        return np.clip((values - lower) / (upper - lower), 0.0, 1.0), is_missing

    def _range(self, name: str) -> tuple[float, float]:
        """Return the ends of a column's public range, dates as days."""
        schema = self._facts
        if name in schema.date:
            first, last = (float(days(name, end)) for end in schema.date[name])
            return first, last
        return schema.numeric.get(name) or schema.log[name]

    def _scale(
        self, column: Column, part: Array, clipped: Counter[str], *, clip: bool
    ) -> None:
        """Fill in a column of numbers or dates, and its indicator of missing ones."""
        unit, is_missing = self._unit(column, clipped, clip=clip)
        part[:, 0] = 2.0 * unit - 1.0 if self.symmetric else unit
        if part.shape[1] == 2:
            part[is_missing, 0] = 0.0
            part[is_missing, 1] = 1.0

    def _indicate(
        self, column: Column, part: Array, clipped: Counter[str], *, clip: bool
    ) -> None:
        """Fill in the indicators of a column's levels; all are 0 for another level."""
        schema, name = self._facts, column.name
        levels = schema.categorical[name]
        codes = entries.codes(column, levels, schema.file)
        if name in schema.missing:
            keys = [level_key(level) for level in levels]
            codes[codes == ABSENT] = keys.index(level_key(schema.missing[name]))
        elif name in schema.missing_indicator:
            codes[codes == ABSENT] = len(levels)
        self._refuse_missing(column, codes == ABSENT)
        unknown = codes == UNKNOWN
        if unknown.any():
            if not clip:
                column.refuse(unknown, "one of its public levels", CLIP_REMEDY)
            clipped[f"of {check.describe(name)} at no public level"] += int(
                unknown.sum()
            )
        known = np.flatnonzero(codes >= 0)
        part[known, codes[known]] = 1.0

    def _complete(self, column: Column) -> Array:
        """Return the numbers of a column that stays as it is."""
        values = entries.numbers(column, self._facts.file)
        self._refuse_missing(column, np.isnan(values))
        return values

    def _refuse_missing(self, column: Column, is_missing: Bools) -> None:
        """Refuse missing entries; a response has no rules for them."""
        remedy = DROP_REMEDY if column.name == self.target else MISSING_REMEDY
        column.refuse(is_missing, "complete", remedy)


def clip_rows(
    rows: Rows,
    bound: float | None,
    norm: Callable[[Rows], ArrayLike],
    clipped: Counter[str] | None = None,
) -> Rows:
    """Scale rows whose norms are above a bound down to it, and count them.

    Without a counter they are records to predict: a warning tells how many there were.
    """
    if bound is None:
        return rows
    with np.errstate(over="ignore"):
        sizes = np.asarray(norm(rows))
    above = sizes > bound * (1.0 + NORM_TOLERANCE)
    if not above.any():
        return rows
    counts: Counter[str] = Counter() if clipped is None else clipped
    counts[f"rows above {bound:g}"] += int(above.sum())
    if clipped is None:
        _warn_of(counts)
    is_huge = np.isinf(sizes)  # entries are finite, their norm is not
    if is_huge.any():
        rows = _times(rows, np.where(is_huge, SMALLER, 1.0))
        sizes = np.where(is_huge, np.asarray(norm(rows)), sizes)
    return _times(rows, np.where(above, bound / np.maximum(sizes, 1e-300), 1.0))


def _times(rows: Rows, factors: NDArray[Any]) -> Rows:
    """Each row times its factor."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows * factors[:, None])
    scaled: Rows = rows.multiply(factors[:, None]).tocsr()
    return scaled


def _warn_of(clipped: Counter[str]) -> None:
    """Tell how many values of records to predict were moved to their bounds."""
    told = ", ".join(f"{count} {what}" for what, count in clipped.items())
    if told:
        warnings.warn(
            f"Clipped: {told}.", RuntimeWarning, stacklevel=check.user_stack_level()
        )


def used_columns(
    names: Sequence[str], schema: Schema | None, target: str | None
) -> list[str]:
    """Columns of a table that become features; a ValueError if one is undeclared."""
    kind = (schema or Schema()).kind
    used = [name for name in names if name != target and kind(name) != "ignore"]
    for name in (
        used if schema is not None and declares_features(schema, target) else ()
    ):
        if kind(name) is None:
            refuse_undeclared(name)
    return used


def declares_features(schema: Schema, target: str | None) -> bool:
    """Return whether a schema declares more than the target: every feature."""
    return any(name != target for name in schema.declared)


def response_name(target: object) -> str | None:
    """Name of the response, which is a number in a frame of numbered columns."""
    name = column_name(target)
    if name is None or isinstance(name, str):
        return name
    remedy = "Columns have names of text, or whole numbers where they are numbered."
    check.fail("target", "a str or NoneType", check.describe(name), remedy)


def find_level(label: object, levels: Levels, file: TextFormat) -> int:
    """Place of the positive label among public levels, negative if it is none.

    Without a label the last level is the positive one.
    """
    if label is None:
        return len(levels) - 1
    return int(entries.codes(Column("", [label]), levels, file)[0])


def check_positive_label(
    schema: Schema, target: str | None, label: object
) -> str | None:
    """Return a positive label as text; refuse one that is not declared.

    No record is looked at.
    """
    remedy = 'Pass one of the declared levels, as "yes", 1 or True.'
    kinds = (str, bool, int, float, bytes, np.generic, type(None))
    is_long = isinstance(label, int) and label.bit_length() > LABEL_BITS
    if is_long or not isinstance(label, kinds):
        check.fail("positive_label", "a label", check.describe(label), remedy)
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or (target is None and isinstance(label, str)):
        return label
    levels = schema.categorical.get(target or "")
    if levels is None:
        wanted = f"a declared level of the response {check.describe(target)}"
        text = label_text(label)
        remedy = (
            "Declare all its labels in the bounds, below [categorical]: "
            f'{toml_key(target or "response")} = ["another label", {json.dumps(text)}].'
        )
        check.fail("positive_label", wanted, check.describe(label), remedy)
    place = find_level(label, levels, schema.file)
    if place < 0:
        wanted = f"{check.describe(label)} among its public levels"
        got = ", ".join(check.describe(level) for level in levels[:4])
        remedy = "Check the spelling of the positive label and of the levels."
        check.fail(f"response {check.describe(target)}", wanted, got, remedy)
    return label if isinstance(label, str) else level_text(levels[place])


def label_text(label: object) -> str:
    """Return the text by which bounds may declare a label."""
    return next(iter(entries.spellings(entries.normalize(label))), str(label))


def refuse_undeclared(name: str) -> NoReturn:
    """Refuse a column that the bounds do not declare."""
    remedy = (
        "Add it to [numeric], [log], [date], [categorical] or ignore. If the file has "
        "no line of names, list them in columns. The bounds of an answer are fixed: "
        "drop it from records to predict."
    )
    wanted = "declared in the bounds"
    check.fail(f"column {check.describe(name)}", wanted, "nothing", remedy)
