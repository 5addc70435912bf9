"""What is public about the columns of a table: ranges, levels, what to ignore.

A bounds file is TOML or JSON::

    ignore = ["id"]

    [numeric]
    age = [0, 100]

    [log]
    income = [0, 1000000]

    [categorical]
    color = ["red", "green", "blue"]

Levels found in the records would reveal that somebody has a rare one, so they are
never taken from there. ``log`` columns are passed through sign(x) log(1 + |x|) before
they are scaled. ``columns`` names the columns of a file without a header. The rules in
words at the end say what encoding does to any record: public facts, never counts.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpsample.core import check
from dpsample.core.columns import listed

Bounds = tuple[float, float]
SECTIONS = ("numeric", "log", "categorical", "ignore", "columns")
REMEDY = "See the example in dpsample.tables.schema."


def _bounds(section: str, name: str, value: object) -> Bounds:
    label = f"{section}.{name}"
    ends = value if isinstance(value, list | tuple) else ()
    if len(ends) != 2 or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v)
        for v in ends
    ):
        check.fail(label, "two finite numbers [lower, upper]", value, REMEDY)
    lower, upper = float(ends[0]), float(ends[1])
    if not lower < upper:
        remedy = "A column that cannot vary belongs into ignore."
        check.fail(label, "of lower < upper", value, remedy)
    return lower, upper


def _strings(label: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        check.fail(label, "a non-empty list of strings", value, REMEDY)
    for entry in value:
        if not isinstance(entry, str):
            check.fail(label, "a list of strings", value, "Quote every entry.")
    repeated = [v for v in value if list(value).count(v) > 1]
    if repeated:
        check.fail(label, "free of repeated entries", repeated[0], "Remove one.")
    return tuple(value)


def _section(content: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        check.fail(name, "a table of columns", section, REMEDY)
    return section


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public facts about columns: each is numeric, log, categorical or ignored.

    Parameters
    ----------
    numeric : mapping of str to (lower, upper)
        Columns scaled linearly from these public bounds.
    log : mapping of str to (lower, upper)
        Columns with heavy tails, scaled after sign(x) log(1 + abs(x)).
    categorical : mapping of str to sequence of str
        Public levels of each column; one indicator per level.
    ignore : sequence of str
        Columns that are not used.
    columns : sequence of str
        Names of all columns of a file without a header.

    Raises
    ------
    ValueError
        If a bound or a level is malformed, or a column is declared twice.

    Examples
    --------
    >>> schema = Schema(numeric={"age": (0.0, 100.0)},
    ...                 categorical={"color": ("red", "green")})
    >>> schema.kind("age"), schema.kind("color"), schema.kind("name")
    ('numeric', 'categorical', None)
    """

    numeric: Mapping[str, Bounds] = field(default_factory=dict)
    log: Mapping[str, Bounds] = field(default_factory=dict)
    categorical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every declaration and that no column has two."""
        for section in ("numeric", "log"):
            declared = _section(vars(self), section)
            checked = {k: _bounds(section, k, v) for k, v in declared.items()}
            object.__setattr__(self, section, checked)
        declared = _section(vars(self), "categorical")
        levels = {k: _strings(f"categorical.{k}", v) for k, v in declared.items()}
        object.__setattr__(self, "categorical", levels)
        for name in ("ignore", "columns"):
            value = getattr(self, name)
            is_empty = isinstance(value, tuple | list) and not value
            names = () if is_empty else _strings(name, value)
            object.__setattr__(self, name, names)
        everything = [*self.numeric, *self.log, *self.categorical, *self.ignore]
        for name in everything:
            if everything.count(name) > 1:
                check.fail(f"column {name!r}", "declared once", "two declarations")

    def kind(self, column: str) -> str | None:
        """Section that declares a column, or None."""
        check.instance(str, column=column)
        for section in ("numeric", "log", "categorical", "ignore"):
            if column in getattr(self, section):
                return section
        return None

    @classmethod
    def from_dict(cls, content: Any) -> Schema:
        """Build a schema from the parsed content of a bounds file."""
        if not isinstance(content, Mapping):
            check.fail("bounds", "a table with named sections", content, REMEDY)
        for name in content:
            if name not in SECTIONS:
                listed = ", ".join(SECTIONS)
                check.fail("section of the bounds", f"one of {listed}", name, REMEDY)
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
            text = file.read_text(encoding="utf-8")
            parse = tomllib.loads if file.suffix == ".toml" else json.loads
            content = parse(text)
        except (ValueError, RecursionError) as error:  # brackets without end
            kind = file.suffix[1:].upper()
            check.fail("bounds", f"valid {kind}", f"{file.name}: {error}")
        return cls.from_dict(content)


MISSING = "a missing value is an error"


def of_table(
    used: Sequence[str],
    schema: Schema | None,
    *,
    target: str,
    positive_label: str | None,
    clip: bool,
    symmetric: bool,
    row_norm: float,
) -> tuple[str, ...]:
    """Rules for the features of a table and for its response, one a line."""
    response = _of_response(schema or Schema(), target, positive_label, clip=clip)
    if schema is None:
        return "every other column is a feature, as it is", MISSING, response
    span = "[-1, 1]" if symmetric else "[0, 1]"
    outside = "is moved to the nearer end" if clip else "is an error"
    other = "gives zeros in all of them" if clip else "is an error"
    texts = {
        "numeric": f"from public ranges to {span}; a number outside {outside}",
        "log": "sign(x) log(1 + |x|), then "
        f"from public ranges to {span}; a number outside {outside}",
        "categorical": f"one indicator per public level; another level {other}",
    }
    lines = []
    for kind, text in texts.items():
        names = [name for name in used if schema.kind(name) == kind]
        if names:
            lines.append(f"{kind} {listed(names)}: {text}")
    if schema.ignore:
        lines.append(f"ignored: {listed(schema.ignore)}")
    levels = f"{MISSING}, unless a public level means it"
    return (
        *lines,
        levels if schema.categorical else MISSING,
        f"rows are divided by {len(used)}^(1/{row_norm:g}), the largest "
        f"{row_norm:g}-norm that they can have",
        response,
    )


def of_libsvm(positive_label: str | None) -> tuple[str, ...]:
    """Rules for a LIBSVM file."""
    features = "features are taken as they are; one that is not listed is 0"
    return features, _of_response(Schema(), "label", positive_label, clip=False)


def of_scale(scale: float) -> tuple[str, ...]:
    """Rule of a public factor; none if it is 1."""
    return () if scale == 1.0 else (f"features are multiplied by {scale:g}",)


def _of_response(
    schema: Schema, target: str, positive_label: str | None, *, clip: bool
) -> str:
    name, kind = f"response {target!r}", schema.kind(target)
    if positive_label is not None:
        return f"{name}: {positive_label!r} becomes 1, every other label -1"
    if kind == "categorical":
        low, high = schema.categorical[target]
        return f"{name}: {high!r} becomes 1, {low!r} -1; another label is an error"
    if kind in ("numeric", "log"):
        log = "sign(y) log(1 + |y|), then " if kind == "log" else ""
        outside = "is moved to the nearer end" if clip else "is an error"
        return (
            f"{name}: {log}from its public range to [-1, 1]; a number outside {outside}"
        )
    return f"{name}: taken as it is"
