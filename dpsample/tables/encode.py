"""Columns to bounded features: ranges and levels come from a `Schema`, never from data.

Every declared column contributes at most 1 to a row: a number scaled to [-1, 1] or
[0, 1], or the indicator of one level. Rows of m columns therefore have q-norm at most
m^(1/q); they are divided by that, so the implied public bound is 1.
Of a response, labels become -1 and 1, and bounded numbers go to [-1, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Bools
from dpsample.tables.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
CLIP_REMEDY = "Correct the public bounds, or clip (clip=True, --clip-rows)."
MISSING_REMEDY = (
    "Drop such records or fill in a public value first; the level of a categorical "
    "column that means 'unknown' can be declared among its levels."
)


def _place(bad: Bools) -> str:
    count = int(bad.sum())
    others = f" ({count} records in all)" if count > 1 else ""
    return f" in record {int(np.flatnonzero(bad)[0])}{others}"


def numbers(name: str, column: pd.Series) -> Array:
    """Values of a column as finite numbers.

    Raises
    ------
    ValueError
        If one is missing or not a number; the message names the record.
    """
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").to_numpy(
        np.float64, na_value=np.nan
    )
    bad = ~np.isfinite(values)
    if bad.any():
        raw = column.iloc[int(np.flatnonzero(bad)[0])]
        if pd.isna(raw) or str(raw).strip() in MISSING:
            got = "a missing value" + _place(bad)
            check.fail(f"column {name!r}", "complete", got, MISSING_REMEDY)
        remedy = (
            "Declare the column categorical, with its public levels, in the bounds."
        )
        got = check.shown(raw) + _place(bad)
        check.fail(f"column {name!r}", "numeric", got, remedy)
    return np.asarray(values)


def scaled(name: str, column: pd.Series, schema: Schema, *, clip: bool) -> Array:
    """Column mapped from its public bounds to [0, 1]."""
    values = numbers(name, column)
    lower, upper = schema.numeric.get(name) or schema.log[name]
    outside = (values < lower) | (values > upper)
    if outside.any() and not clip:
        worst = values[np.flatnonzero(outside)[0]]
        bounds = f"within its public bounds [{lower:g}, {upper:g}]"
        got = f"{worst:g}" + _place(outside)
        check.fail(f"column {name!r}", bounds, got, CLIP_REMEDY)
    values = np.clip(values, lower, upper)
    if name in schema.log:
        ends = np.array([lower, upper])
        lower, upper = np.sign(ends) * np.log1p(np.abs(ends))
        values = np.sign(values) * np.log1p(np.abs(values))
    # Rounding may leave the interval, and with it the declared bound.
    return np.clip((values - lower) / (upper - lower), 0.0, 1.0)


def indicators(name: str, column: pd.Series, schema: Schema, *, clip: bool) -> Array:
    """One column of 0 and 1 per public level; ``clip`` makes foreign levels all 0."""
    import pandas as pd

    levels = schema.categorical[name]
    codes = pd.Index(levels).get_indexer(pd.Index(column.astype(str).str.strip()))
    absent = column.isna().to_numpy() | column.astype(str).str.strip().isin(MISSING)
    for bad, condition, remedy in (
        ((codes < 0) & absent, "complete", MISSING_REMEDY),
        ((codes < 0) & ~absent & (not clip), "one of its public levels", CLIP_REMEDY),
    ):
        if bad.any():
            raw = column.iloc[int(np.flatnonzero(bad)[0])]
            got = "a missing value" if condition == "complete" else check.shown(raw)
            check.fail(f"column {name!r}", condition, got + _place(bad), remedy)
    result = np.zeros((len(codes), len(levels)))
    known = np.flatnonzero(codes >= 0)
    result[known, codes[known]] = 1.0
    return result


def check_columns(names: list[str], schema: Schema, target: str) -> None:
    """Refuse a table that has an undeclared column, or lacks a declared one."""
    for name in names:
        if name != target and schema.kind(name) is None:
            remedy = "Add it to [numeric], [log], [categorical] or ignore."
            check.fail(f"column {name!r}", "declared in the bounds", "nothing", remedy)
    for name in (*schema.numeric, *schema.log, *schema.categorical):
        if name not in names:
            wanted = "in the table, as the bounds declare it"
            remedy = "Correct its name, or remove it from the bounds."
            check.fail(f"column {name!r}", wanted, "a table without it", remedy)


def features(
    frame: pd.DataFrame, schema: Schema, *, clip: bool, symmetric: bool, row_norm: float
) -> tuple[Array, tuple[str, ...]]:
    """Rows of ``row_norm``-norm at most 1 and the names of their columns.

    All columns of ``frame`` are used, and declared. ``clip`` moves values to their
    bounds and encodes foreign levels as zeros, instead of refusing them; ``symmetric``
    scales numbers to [-1, 1] rather than [0, 1].
    """
    blocks: list[Array] = []
    names: list[str] = []
    for name in frame.columns:
        if schema.kind(name) == "categorical":
            blocks.append(indicators(name, frame[name], schema, clip=clip))
            names += [f"{name}={level}" for level in schema.categorical[name]]
        else:
            unit = scaled(name, frame[name], schema, clip=clip)
            blocks.append((2.0 * unit - 1.0 if symmetric else unit)[:, None])
            names.append(name)
    rows = np.concatenate(blocks, axis=1)
    rows /= len(frame.columns) ** (1.0 / row_norm)
    return rows, tuple(names)


def unbounded_features(frame: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
    """Numeric columns as they are: without public bounds nothing can be scaled."""
    names = tuple(str(name) for name in frame.columns)
    return np.column_stack([numbers(name, frame[name]) for name in names]), names


def encoded(
    name: str,
    column: pd.Series,
    schema: Schema,
    *,
    positive_label: str | None,
    clip: bool,
) -> tuple[Array, float | None]:
    """Response and its public bound, None if it has none.

    A ``positive_label`` gives 1 for that label and -1 for every other. A categorical
    declaration with two levels does the same with the second. A numeric declaration
    scales to [-1, 1]. Without any, numbers are taken as they are.
    """
    if positive_label is not None:
        return labels(name, column, positive_label), 1.0
    kind = schema.kind(name)
    if kind == "categorical":
        levels = schema.categorical[name]
        if len(levels) != 2:
            remedy = "Give two levels, the positive one last, or a positive_label."
            check.fail(f"categorical.{name}", "of two levels", levels, remedy)
        hits = indicators(name, column, schema, clip=False)
        return 2.0 * hits[:, 1] - 1.0, 1.0
    if kind in ("numeric", "log"):
        return 2.0 * scaled(name, column, schema, clip=clip) - 1.0, 1.0
    return _plain_numbers(name, column), None


def _plain_numbers(name: str, column: pd.Series) -> Array:
    import pandas as pd

    text = column[pd.to_numeric(column, errors="coerce").isna()].astype(str).str.strip()
    words = sorted(set(text) - set(MISSING))
    if words:
        got = ", ".join(repr(word) for word in words[:3])
        remedy = "Name the positive label (positive_label=..., --positive-label ...)."
        check.fail(f"response {name!r}", "numeric", f"labels such as {got}", remedy)
    return numbers(name, column)


def labels(name: str, column: pd.Series, positive_label: str) -> Array:
    """1 where the column has the positive label, -1 elsewhere.

    Labels are compared as text without surrounding blanks, or as numbers if both are.

    Raises
    ------
    ValueError
        If a label is missing, or no record has the positive one.
    """
    import pandas as pd

    text = column.astype(str).str.strip()
    absent = (column.isna() | text.isin(MISSING)).to_numpy(bool)
    if absent.any() and positive_label not in MISSING:
        got = f"a missing label in record {int(np.flatnonzero(absent)[0])}"
        check.fail(f"response {name!r}", "complete", got, "Drop such records first.")
    hits = (text == positive_label.strip()).to_numpy(bool)
    try:
        wanted = float(positive_label)
    except ValueError:
        pass
    else:
        hits = hits | (pd.to_numeric(column, errors="coerce") == wanted).to_numpy(bool)
    if not hits.any():
        got = ", ".join(repr(v) for v in sorted(set(text))[:4])
        condition = f"{positive_label!r} in at least one record"
        check.fail(f"response {name!r}", condition, f"labels {got}", "Check spelling.")
    return np.where(hits, 1.0, -1.0)
