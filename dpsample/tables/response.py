"""The response column: labels become -1 and 1, bounded numbers go to [-1, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.tables import encode
from dpsample.tables.schema import Schema

Array = NDArray[np.float64]


def encoded(
    name: str, column: Any, schema: Schema, *, positive_label: str | None, clip: bool
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
        hits = encode.indicators(name, column, schema, clip=False)
        return 2.0 * hits[:, 1] - 1.0, 1.0
    if kind in ("numeric", "log"):
        return 2.0 * encode.scaled(name, column, schema, clip=clip) - 1.0, 1.0
    return _plain_numbers(name, column), None


def _plain_numbers(name: str, column: Any) -> Array:
    import pandas as pd

    text = column[pd.to_numeric(column, errors="coerce").isna()].astype(str).str.strip()
    words = sorted(set(text) - set(encode.MISSING))
    if words:
        got = ", ".join(repr(word) for word in words[:3])
        remedy = "Name the positive label (positive_label=..., --positive-label ...)."
        check.fail(f"response {name!r}", "numeric", f"labels such as {got}", remedy)
    return encode.numbers(name, column)


def labels(name: str, column: Any, positive_label: str) -> Array:
    """1 where the column has the positive label, -1 elsewhere.

    Labels are compared as text without surrounding blanks, or as numbers if both are.

    Raises
    ------
    ValueError
        If a label is missing, or no record has the positive one.
    """
    import pandas as pd

    text = column.astype(str).str.strip()
    absent = (column.isna() | text.isin(encode.MISSING)).to_numpy(bool)
    if absent.any() and positive_label not in encode.MISSING:
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
