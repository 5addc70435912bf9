"""The public encoding of a table, which turns each record into one bounded row.

Every used column contributes at most 1 to a row, either a number scaled to [-1, 1] or
[0, 1], or the indicator of one level. A row of m columns therefore has q-norm at most
m^(1/q), however many indicators it has. Rows are divided by this number, so that 1 is a
public bound of their norm. In the response, labels become -1 and 1, and bounded numbers
are scaled to [-1, 1].
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
from dpsample.core import columns as column_names
from dpsample.core.arrays import Array, Bools
from dpsample.core.renamed import accept_former_names
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
from dpsample.tables.rules import describe_encoding
from dpsample.tables.schema import (
    Levels,
    Schema,
    TextFormat,
    column_name,
    days,
    level_key,
    level_text,
    log_scale,
    reference_position,
    toml_key,
)

# Version of the dictionaries that `Encoding.to_dict` returns.
FORMAT = "dpsample encoding 1"
# Norms are rounded, so rows are accepted up to this share above their bound.
NORM_TOLERANCE = 1e-12
Table = Mapping[str, Column]


@accept_former_names(units="feature_scales")
@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Everything public that turns a raw table into rows and a response.

    Parameters
    ----------
    schema : Schema or None
        Ranges, levels, dates and rules of the columns. With None, or a schema that
        declares the target only, all other columns are numbers and stay as they are.
    columns : sequence of str
        Columns that become features, in this order. The default is all columns that the
        schema declares, except the target.
    target : str, optional
        Column of the response.
    positive_label : str, optional
        Declared level of the target that becomes 1. All other levels become -1. A
        number, a boolean or bytes that a record of this level may hold become its text.
    clip : bool
        Whether to repair records that violate the schema, instead of raising an error.
        Values are moved to their bounds, unknown levels become zeros, and longer rows
        are scaled down to ``row_bound``.
    symmetric : bool
        Scale numbers to [-1, 1] rather than [0, 1].
    row_norm : float
        Exponent, in [1, inf], of the norm of rows.
    row_bound : float, optional
        Public bound of that norm. The default is ``scale`` if the schema declares
        features.
    scale : float
        Public factor of all features.
    contrasts : sequence of str
        Categorical columns whose reference level has no indicator, so that indicators
        do not add up to the 1 of an intercept. The coefficient of another level is then
        its contrast to the reference, and its name has both levels. With ``clip`` an
        unknown level counts as the reference.

    Raises
    ------
    ValueError
        If an argument is malformed.

    Guarantee
    ---------
    The row of a record depends on that record and on these fields only, and none of the
    fields is taken from records.

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
    >>> Encoding(schema=schema, contrasts=("ward",)).feature_names
    ('age', 'ward=s vs n')
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
    contrasts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every field, and fill in the defaults that depend on the schema."""
        check.instance((Schema, type(None)), schema=self.schema)
        check.members(str, columns=self.columns)
        self._set(target=response_name(self.target))
        label: Any = self.positive_label
        if not isinstance(label, str | None):
            label = check_positive_label(self._declarations, self.target, label)
            self._set(positive_label=label)
        check.instance(bool, clip=self.clip, symmetric=self.symmetric)
        check.at_least(1.0, row_norm=self.row_norm)
        check.scale(scale=self.scale)
        self._set(row_norm=float(self.row_norm), scale=float(self.scale))
        columns, schema = tuple(self.columns), self.schema
        if schema is not None and declares_features(schema, self.target):
            declared = [name for name in schema.declared if name != self.target]
            columns = columns or tuple(declared)
            for name in columns:
                if name not in declared:
                    reject_undeclared(name)
        if not columns:
            check.fail("columns", "one or more columns to use", "none", "Ignore fewer.")
        column_names.require_distinct("the encoding", columns)
        self._set(columns=columns)
        self._check_contrasts()
        if self.row_bound is not None:
            check.scale(row_bound=self.row_bound)
            self._set(row_bound=float(self.row_bound))
        elif self.is_scaled:
            self._set(row_bound=self.scale)
        # A column named "ward=n" may collide with the indicator of level "n" of "ward".
        column_names.require_distinct("the encoded table", self.feature_names)
        self._check_response()

    def _set(self, **fields: object) -> None:
        """Set fields of this frozen dataclass, while it is initialized."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _check_contrasts(self) -> None:
        """Check the columns whose reference level has no indicator."""
        check.members(str, contrasts=self.contrasts)
        self._set(contrasts=tuple(self.contrasts))
        column_names.require_distinct("contrasts", self.contrasts)
        for name in self.contrasts:
            levels = self._declarations.categorical.get(name, ())
            if name not in self.columns or len(levels) < 2:
                remedy = "Declare two or more levels in [categorical]."
                condition = f"used columns of two or more levels, as {name!r} is not"
                check.fail("contrasts", condition, list(self.contrasts), remedy)

    def _check_response(self) -> None:
        """Check the declarations of the target, if there are any."""
        levels = self.levels
        if levels is not None and self.positive_label is None and len(levels) != 2:
            remedy = "Give two levels, the positive one last, or a positive_label."
            name = f"categorical.{self.target}"
            check.fail(name, "of two levels", check.describe(levels), remedy)
        schema, name = self._declarations, self.target or ""
        if name in (*schema.date, *schema.missing, *schema.missing_indicator):
            got = "a date, or a rule for missing entries"
            check.fail(f"response {check.describe(name)}", "numeric or of labels", got)

    @property
    def _declarations(self) -> Schema:
        """The schema, or one without declarations."""
        return self.schema or Schema()

    @cached_property
    def _features_by_column(self) -> dict[str, tuple[str, ...]]:
        """Names of the features of each used column."""
        schema, features = self._declarations, {}
        for column in self.columns:
            # Numbers and dates keep the name of their column.
            levels = schema.categorical.get(column)
            names = [column]
            if levels is not None:
                names = [f"{column}={level_text(level)}" for level in levels]
                if column in self.contrasts:
                    position = reference_position(schema, column)
                    reference = level_text(levels[position])
                    names = [f"{name} vs {reference}" for name in names]
                    del names[position]
            if column in schema.missing_indicator:
                names.append(f"{column}=missing")
            features[column] = tuple(names)
        return features

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in their order."""
        blocks = self._features_by_column.values()
        return tuple(name for names in blocks for name in names)

    def _indicator_positions(self) -> dict[str, dict[object, int]]:
        """Return the position of the indicator of each level, by column."""
        positions, first = {}, 0
        for column, names in self._features_by_column.items():
            levels = [*self._declarations.categorical.get(column, ())]
            if column in self.contrasts:
                del levels[reference_position(self._declarations, column)]
            if levels:
                # Indicators follow one another in the order of the levels.
                positions[column] = {v: first + i for i, v in enumerate(levels)}
            first += len(names)
        return positions

    @property
    def divisor(self) -> float:
        """Largest norm of a row before the division, which is by this number."""
        if not self.is_scaled:
            return 1.0
        # Each column adds at most 1 to the sum of p-th powers of a row.
        return float(len(self.columns) ** (1.0 / self.row_norm))

    @property
    def response_bound(self) -> float | None:
        """Public bound of the encoded response; None if there is none."""
        is_declared = self.target in self._declarations.declared
        return 1.0 if is_declared or self.positive_label is not None else None

    @property
    def is_scaled(self) -> bool:
        """Whether features are scaled by the schema, and not taken as they are."""
        return self.schema is not None and declares_features(self.schema, self.target)

    @property
    def labels(self) -> tuple[Any, Any] | None:
        """Raw labels that -1 and 1 stand for, if both are public."""
        levels = self.levels
        if levels is None or len(levels) != 2:
            return None
        index = find_level(self.positive_label, levels, self._declarations.file)
        return None if index < 0 else (levels[1 - index], levels[index])

    @property
    def rules(self) -> tuple[str, ...]:
        """Public sentences that describe how any record is encoded."""
        return describe_encoding(self)

    @property
    def levels(self) -> tuple[Any, ...] | None:
        """Declared labels of the target, in their order; None if there are none."""
        return self._declarations.categorical.get(self.target or "")

    def features(self, frame: object) -> Array:
        """Encode private records.

        Parameters
        ----------
        frame : DataFrame
            Raw columns, of pandas, polars or another library that narwhals reads. They
            are matched by name, in any order. The target, and columns that the schema
            ignores, may be missing.

        Returns
        -------
        array of shape (num_records, num_features)
            Rows of ``row_norm``-norm at most ``row_bound``. Without ``clip`` a row may
            be longer, and `dpsample.Problem` raises an error.

        Raises
        ------
        ValueError
            If a column is missing, not declared or present twice. Also if a value is
            missing without a public rule, has the wrong type or, without ``clip``, is
            outside its public bounds. The message names column and record.
        """
        return self._encode_rows(entries.columns_of(frame), clip=self.clip)[0]

    def new_features(self, frame: object) -> Array:
        """Encode new records for predictions. They need not be private.

        Parameters
        ----------
        frame : DataFrame
            As in `features`.

        Returns
        -------
        array of shape (num_records, num_features)
            Rows. Values outside their bounds are moved to them, and a RuntimeWarning
            reports how many.

        Raises
        ------
        ValueError
            As in `features`.
        """
        rows, num_clipped = self._encode_rows(entries.columns_of(frame), clip=True)
        _warn_about_clipping(num_clipped)
        return rows

    def response(self, frame: object) -> Array:
        """Encode the target column.

        Parameters
        ----------
        frame : DataFrame
            As in `features`, with the target.

        Returns
        -------
        array of shape (num_records,)
            With a ``positive_label``, 1 for it and -1 for every other declared level.
            Two declared levels become -1 and 1. Declared numbers are scaled to [-1, 1],
            and other numbers stay as they are.

        Raises
        ------
        ValueError
            If there is no such column, ``positive_label`` is not one of its declared
            levels, or an entry cannot be encoded.
        """
        table, name = entries.columns_of(frame), self.target or ""
        if name not in table:
            remedy = "Pass the response column (target=..., --target ...)."
            condition = f"one of the columns {column_names.list_names(table)}"
            check.fail("target", condition, self.target, remedy)
        return self._encode_response(table[name], Counter())

    def _encode_response(self, column: Column, num_clipped: Counter[str]) -> Array:
        """Encode the target's entries, and count those that are moved to a bound."""
        name, schema, levels = self.target or "", self._declarations, self.levels
        check_positive_label(schema, name, self.positive_label)
        if levels is not None:
            codes = entries.codes(column, levels, schema.file)
            self._reject_missing(column, codes == ABSENT)
            column.reject(codes == UNKNOWN, "one of its public levels", LABEL_REMEDY)
            positive = find_level(self.positive_label, levels, schema.file)
            return np.where(codes == positive, 1.0, -1.0)
        if self.response_bound is not None:
            unit, _ = self._scale_to_unit(column, num_clipped, clip=self.clip)
            # From [0, 1] to [-1, 1].
            return 2.0 * unit - 1.0
        return self._unscaled_numbers(column)

    def raw_response(self, margins: Array, *, is_label: bool) -> Any:
        """Turn predictions back into values of the target column.

        Parameters
        ----------
        margins : array
            Linear predictions of encoded rows.
        is_label : bool
            Whether their sign predicts a label.

        Returns
        -------
        array of the same shape
            Labels, as they were if both are public and as -1 or 1 otherwise. Numbers
            are in the units of the response, by the inverse of its public scaling.
        """
        margins = check.entries("margins", margins)
        check.instance(bool, is_label=is_label)
        if is_label:
            negative, positive = self.labels or (-1.0, 1.0)
            # A margin of 0 counts as positive.
            return np.where(margins >= 0.0, positive, negative)
        name, schema = self.target or "", self._declarations
        is_scaled = name in schema.numeric or name in schema.log
        if not is_scaled or self.positive_label is not None:
            return margins
        lower, upper = self._range(name)
        if name not in schema.log:
            return lower + (margins + 1.0) / 2.0 * (upper - lower)
        lower, upper = log_scale(lower), log_scale(upper)
        values = lower + (margins + 1.0) / 2.0 * (upper - lower)
        # The inverse of sign(x) log(1 + |x|).
        return np.sign(values) * np.expm1(np.abs(values))

    def feature_scales(self) -> tuple[Array, Array]:
        """Return the slope of each feature in its raw column, and its value at 0.

        Returns
        -------
        slopes, offsets : array of shape (num_features,)
            Within its bounds a feature is offset + slope * x. Here x is the number, the
            day, sign(x) log(1 + abs(x)) of a log column, or 1 if an indicator holds.
        """
        schema = self._declarations
        slopes: list[float] = []
        offsets: list[float] = []
        for column, names in self._features_by_column.items():
            column_slopes, column_offsets = [1.0] * len(names), [0.0] * len(names)
            if self.is_scaled and column not in schema.categorical:
                lower, upper = self._range(column)
                if column in schema.log:
                    lower, upper = log_scale(lower), log_scale(upper)
                width = 2.0 if self.symmetric else 1.0
                column_slopes[0] = width / (upper - lower)
                column_offsets[0] = -column_slopes[0] * lower - float(self.symmetric)
            slopes += column_slopes
            offsets += column_offsets
        factor = self.scale / self.divisor
        return factor * np.array(slopes), factor * np.array(offsets)

    def describe_features(self) -> tuple[str, ...]:
        """Return what each feature is, in the units of its column.

        Examples
        --------
        >>> schema = Schema(numeric={"age": (0, 110)}, categorical={"ward": ("n", "s")})
        >>> Encoding(schema=schema).describe_features()[:2]
        ('0 to 110 becomes -0.707 to 0.707', '0.707 if it holds, otherwise 0')
        """
        schema = self._declarations
        slopes, offsets = self.feature_scales()
        texts: list[str] = []
        for column, names in self._features_by_column.items():
            for index in range(len(names)):
                slope, offset = float(slopes[len(texts)]), float(offsets[len(texts)])
                if not self.is_scaled:
                    texts.append("as in the records")
                elif index or column in schema.categorical:
                    texts.append(f"{slope:.3g} if it holds, otherwise 0")
                else:
                    ends = [*map(float, self._range(column))]
                    words = [f"{end:g}" for end in ends]
                    if column in schema.date:
                        words = [str(end) for end in schema.date[column]]
                    if column in schema.log:
                        ends = [float(log_scale(end)) for end in ends]
                    low, high = (f"{offset + slope * end:.3g}" for end in ends)
                    how = ", on a logarithmic scale" if column in schema.log else ""
                    texts.append(
                        f"{words[0]} to {words[1]} becomes {low} to {high}{how}"
                    )
        return tuple(texts)

    def to_dict(self) -> Json:
        """Return the fields and the format, ready for ``json.dumps``."""
        content: Json = {"format": FORMAT} | {
            name: getattr(self, name) for name in self.__dataclass_fields__
        }
        content["columns"] = list(self.columns)
        # Encodings without contrasts are written as they were before there were any.
        contrasts = content.pop("contrasts")
        if contrasts:
            content["contrasts"] = list(contrasts)
        if self.schema is not None:
            content["schema"] = self.schema.to_dict()
        if math.isinf(self.row_norm):
            content["row_norm"] = "inf"  # standard JSON has no infinity
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Encoding:
        """Build an encoding from what `to_dict` returned.

        Parameters
        ----------
        content : dict
            That dictionary. Other fields or spellings of values raise an error.

        Raises
        ------
        ValueError
            If `to_dict` returns this for no encoding.
        """
        check.instance(dict, encoding=content)
        remedy = "Make the answer again with this version."
        version = {"encoding.format": content.get("format")}
        check.one_of((FORMAT,), remedy=remedy, **version)
        fields = {name: value for name, value in content.items() if name != "format"}
        if fields.get("schema") is not None:
            fields["schema"] = Schema.from_dict(fields["schema"])
        if fields.get("row_norm") == "inf":
            fields["row_norm"] = math.inf
        encoding = check.build("encoding", cls, fields)
        # The digest of a release is computed from `to_dict`, so it would not notice
        # another spelling of the same encoding in a file.
        if encoding.to_dict() != content:
            got = "another form of the same"
            check.fail("encoding", "written as Encoding.to_dict writes it", got)
        return encoding

    def _encode_rows(self, table: Table, *, clip: bool) -> tuple[Array, Counter[str]]:
        """Return the rows, and how many values and rows were moved to their bounds."""
        used = used_columns([*table], self.schema, self.target)
        column_names.find_positions("the table", used, self.columns)
        num_rows = max((len(column) for column in table.values()), default=0)
        rows = np.zeros((num_rows, len(self.feature_names)))
        num_clipped: Counter[str] = Counter()
        first = 0
        for name, features in self._features_by_column.items():
            block = rows[:, first : first + len(features)]
            first += len(features)
            if not self.is_scaled:
                block[:, 0] = self._unscaled_numbers(table[name])
            elif name in self._declarations.categorical:
                self._fill_indicators(table[name], block, num_clipped, clip=clip)
            else:
                self._fill_scaled(table[name], block, num_clipped, clip=clip)
        # Products with 1 are left out, as they would read all rows again.
        rows /= self.divisor
        if self.scale != 1.0:
            rows *= self.scale
        if clip:
            norm = partial(norms.norm, p=self.row_norm)
            rows = np.asarray(clip_rows(rows, self.row_bound, norm, num_clipped))
        return rows, num_clipped

    def _fill_scaled(
        self, column: Column, block: Array, num_clipped: Counter[str], *, clip: bool
    ) -> None:
        """Fill the features of a column of numbers or dates.

        ``block`` has one column, and a second one if missing values have an indicator.
        """
        unit, is_missing = self._scale_to_unit(column, num_clipped, clip=clip)
        block[:, 0] = 2.0 * unit - 1.0 if self.symmetric else unit
        # A missing value contributes its indicator alone, so a column adds at most 1.
        if block.shape[1] == 2:
            block[is_missing, 0] = 0.0
            block[is_missing, 1] = 1.0

    def _scale_to_unit(
        self, column: Column, num_clipped: Counter[str], *, clip: bool
    ) -> tuple[Array, Bools]:
        """Map numbers or dates from their public range to [0, 1].

        Missing entries become the column's public constant, or NaN if it has none. The
        second array says which entries were missing.
        """
        schema, name = self._declarations, column.name
        is_date = name in schema.date
        if is_date:
            values = entries.days(column, schema.file)
        else:
            values = entries.numbers(column, schema.file)
        is_missing = np.isnan(values)
        if name in schema.missing:
            constant: Any = schema.missing[name]
            values[is_missing] = days(name, constant) if is_date else constant
        elif name not in schema.missing_indicator:
            self._reject_missing(column, is_missing)
        lower, upper = self._range(name)
        is_outside = (values < lower) | (values > upper)
        if is_outside.any():
            ends = check.describe(lower), check.describe(upper)
            bounds = f"[{', '.join(schema.date.get(name) or ends)}]"
            if not clip:
                # The message quotes a date as written, and a number as it was parsed.
                quoted = column if is_date else Column(name, values)
                condition = f"within its public bounds {bounds}"
                quoted.reject(is_outside, condition, CLIP_REMEDY)
            reason = f"of {check.describe(name)} outside {bounds}"
            num_clipped[reason] += int(is_outside.sum())
        values = np.clip(values, lower, upper)
        if name in schema.log:
            values, lower, upper = map(log_scale, (values, lower, upper))
        # The quotient is clipped again, because it may be rounded up to 1 + 2^-52. That
        # would break the declared bound, on which the privacy proof rests.
        return np.clip((values - lower) / (upper - lower), 0.0, 1.0), is_missing

    def _range(self, name: str) -> tuple[float, float]:
        """Return the ends of a column's public range, in days if they are dates."""
        schema = self._declarations
        if name in schema.date:
            first, last = schema.date[name]
            return float(days(name, first)), float(days(name, last))
        return schema.numeric.get(name) or schema.log[name]

    def _fill_indicators(
        self, column: Column, block: Array, num_clipped: Counter[str], *, clip: bool
    ) -> None:
        """Fill the indicators of a column's levels, with zeros for an unknown level."""
        schema, name = self._declarations, column.name
        levels = schema.categorical[name]
        codes = entries.codes(column, levels, schema.file)
        if name in schema.missing:
            keys = [level_key(level) for level in levels]
            codes[codes == ABSENT] = keys.index(level_key(schema.missing[name]))
        elif name in schema.missing_indicator:
            codes[codes == ABSENT] = len(levels)  # the last feature of the block
        self._reject_missing(column, codes == ABSENT)
        is_unknown = codes == UNKNOWN
        if is_unknown.any():
            if not clip:
                column.reject(is_unknown, "one of its public levels", CLIP_REMEDY)
            reason = f"of {check.describe(name)} at no public level"
            num_clipped[reason] += int(is_unknown.sum())
        if name in self.contrasts:
            # The reference has no indicator, and the levels after it move up.
            position = reference_position(schema, name)
            is_reference = codes == position
            codes = np.where(codes > position, codes - 1, codes)
            codes[is_reference] = UNKNOWN
        known_records = np.flatnonzero(codes >= 0)
        block[known_records, codes[known_records]] = 1.0

    def _unscaled_numbers(self, column: Column) -> Array:
        """Return the numbers of a column without a public range."""
        values = entries.numbers(column, self._declarations.file)
        self._reject_missing(column, np.isnan(values))
        return values

    def _reject_missing(self, column: Column, is_missing: Bools) -> None:
        """Raise if entries are missing, with the remedy for a feature or a response."""
        remedy = DROP_REMEDY if column.name == self.target else MISSING_REMEDY
        column.reject(is_missing, "complete", remedy)


def collinear_columns(
    schema: Schema | None, columns: Sequence[str], *, intercept: bool
) -> tuple[str, ...]:
    """Return the categorical columns that need a reference level.

    Indicators of all levels of a column add up to 1. A second column or an intercept
    has the same sum. So all of these columns except one need a reference, and with an
    intercept every one does. Columns of one level are left as they are.
    """
    levels = (schema or Schema()).categorical
    names = [name for name in columns if len(levels.get(name, ())) > 1]
    return tuple(names if intercept else names[1:])


def positions_without_references(
    encoding: Encoding, contrasts: Sequence[str]
) -> list[int]:
    """Return the positions of the features that are left with these contrasts.

    Examples
    --------
    >>> schema = Schema(categorical={"ward": ("n", "s", "w")})
    >>> positions_without_references(Encoding(schema=schema), ["ward"])
    [1, 2]
    """
    schema, left_out = encoding.schema, []
    for name, positions in encoding._indicator_positions().items():
        if schema and name in contrasts and name not in encoding.contrasts:
            level = schema.categorical[name][reference_position(schema, name)]
            left_out.append(positions[level])
    return [j for j in range(len(encoding.feature_names)) if j not in left_out]


def clip_rows(
    rows: Rows,
    bound: float | None,
    norm: Callable[[Rows], ArrayLike],
    num_clipped: Counter[str] | None = None,
) -> Rows:
    """Scale rows whose norm is above ``bound`` down to it.

    Their number is added to ``num_clipped``. Without this counter the rows belong to
    records to predict, and a warning reports the number.
    """
    if bound is None:
        return rows
    with np.errstate(over="ignore"):
        lengths = np.asarray(norm(rows))
    is_long = lengths > bound * (1.0 + NORM_TOLERANCE)
    if not is_long.any():
        return rows
    counts: Counter[str] = Counter() if num_clipped is None else num_clipped
    counts[f"rows above {bound:g}"] += int(is_long.sum())
    if num_clipped is None:
        _warn_about_clipping(counts)
    # Finite entries may have an infinite norm. Such rows are made shorter in two steps.
    overflows = np.isinf(lengths)
    if overflows.any():
        # Factor that brings the norm of any row of finite numbers into the range of
        # floats.
        rows = _multiply_rows(rows, np.where(overflows, 2.0**-200, 1.0))
        lengths = np.where(overflows, np.asarray(norm(rows)), lengths)
    factors = np.where(is_long, bound / np.maximum(lengths, 1e-300), 1.0)
    return _multiply_rows(rows, factors)


def _multiply_rows(rows: Rows, factors: NDArray[Any]) -> Rows:
    """Multiply each row by its factor."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows * factors[:, None])
    scaled: Rows = rows.multiply(factors[:, None]).tocsr()
    return scaled


def _warn_about_clipping(num_clipped: Counter[str]) -> None:
    """Report how many values of records to predict were moved to their bounds."""
    counts = ", ".join(f"{count} {reason}" for reason, count in num_clipped.items())
    if counts:
        warnings.warn(
            f"Clipped: {counts}.",
            RuntimeWarning,
            stacklevel=check.user_stack_level(),
        )


def used_columns(
    names: Sequence[str], schema: Schema | None, target: str | None
) -> list[str]:
    """Return the columns that become features. Raise if one is not declared."""
    kind = (schema or Schema()).kind
    used = [name for name in names if name != target and kind(name) != "ignore"]
    if schema is not None and declares_features(schema, target):
        for name in used:
            if kind(name) is None:
                reject_undeclared(name)
    return used


def declares_features(schema: Schema, target: str | None) -> bool:
    """Return whether a schema declares more columns than the target."""
    return any(name != target for name in schema.declared)


def response_name(target: object) -> str | None:
    """Return the name of the response, which a frame of numbered columns numbers."""
    name = column_name(target)
    if name is None or isinstance(name, str):
        return name
    remedy = "Columns have names of text, or whole numbers where they are numbered."
    check.fail("target", "a str or NoneType", check.describe(name), remedy)


def find_level(label: object, levels: Levels, file: TextFormat) -> int:
    """Return the position of a positive label among the levels, or a negative code.

    Without a label the last level is the positive one.
    """
    if label is None:
        return len(levels) - 1
    return int(entries.codes(Column("", [label]), levels, file)[0])


def check_positive_label(
    schema: Schema, target: str | None, label: object
) -> str | None:
    """Return a positive label as text, or raise unless it is a declared level.

    It is compared with the declared levels only, never with records.
    """
    remedy = 'Pass one of the declared levels, as "yes", 1 or True.'
    label_types = (str, bool, int, float, bytes, np.generic, type(None))
    # Integers of more bits are not accepted as labels, because floats cannot hold them.
    is_long = isinstance(label, int) and label.bit_length() > 1000
    if is_long or not isinstance(label, label_types):
        check.fail("positive_label", "a label", check.describe(label), remedy)
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or (target is None and isinstance(label, str)):
        return label
    levels = schema.categorical.get(target or "")
    if levels is None:
        condition = f"a declared level of the response {check.describe(target)}"
        text = label_text(label)
        remedy = (
            "Declare all its labels in the bounds, below [categorical]: "
            f'{toml_key(target or "response")} = ["another label", {json.dumps(text)}].'
        )
        check.fail("positive_label", condition, check.describe(label), remedy)
    position = find_level(label, levels, schema.file)
    if position < 0:
        condition = f"{check.describe(label)} among its public levels"
        got = ", ".join(check.describe(level) for level in levels[:4])
        remedy = "Check the spelling of the positive label and of the levels."
        check.fail(f"response {check.describe(target)}", condition, got, remedy)
    return label if isinstance(label, str) else level_text(levels[position])


def label_text(label: object) -> str:
    """Return the text by which a schema may declare a label."""
    return next(iter(entries.spellings(entries.normalize(label))), str(label))


def reject_undeclared(name: str) -> NoReturn:
    """Raise the error about a column that the schema does not declare."""
    remedy = (
        "Add it to [numeric], [log], [date], [categorical] or ignore. If the file has "
        "no line of names, list them in columns. The bounds of an answer are fixed: "
        "drop it from records to predict."
    )
    column = f"column {check.describe(name)}"
    check.fail(column, "declared in the bounds", "nothing", remedy)
