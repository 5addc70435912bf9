"""Public sentences that describe how an encoding changes any record.

A certificate contains them, so that readers see how a record became a row of numbers.
They follow from the schema and never from records, so they contain no counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dpsample.core.columns import list_names
from dpsample.tables.schema import Schema, level_text, reference_position

# Rule for missing entries of columns for which the schema declares none.
MISSING = "a missing value is an error"


class ColumnFacts(Protocol):
    """Public facts of the columns, which rules are written from (see `Encoding`)."""

    @property
    def schema(self) -> Schema | None:
        """Declared columns."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that are features."""

    @property
    def target(self) -> str | None:
        """Name of the response."""

    @property
    def positive_label(self) -> str | None:
        """Label that becomes 1."""

    @property
    def levels(self) -> Sequence[str] | None:
        """Public labels of the response."""

    @property
    def labels(self) -> Sequence[float] | None:
        """Numbers that become -1 and 1."""

    @property
    def response_bound(self) -> float | None:
        """Bound of an encoded response."""

    @property
    def clip(self) -> bool:
        """Whether numbers outside their range are moved to its nearer end."""

    @property
    def symmetric(self) -> bool:
        """Whether numbers are scaled to [-1, 1]."""

    @property
    def is_scaled(self) -> bool:
        """Whether the schema declares features."""

    @property
    def row_norm(self) -> float:
        """Exponent of the norm of rows."""

    @property
    def scale(self) -> float:
        """Factor of all features."""

    @property
    def contrasts(self) -> Sequence[str]:
        """Categorical columns whose reference level has no indicator."""


def describe_encoding(encoding: ColumnFacts) -> tuple[str, ...]:
    """Return the rules for the features of a table and for its response."""
    schema = encoding.schema
    if schema is None or not encoding.is_scaled:
        lines = ["every other column is a feature, as it is", MISSING]
        return (*lines, *describe_scale(encoding.scale), describe_response(encoding))
    # What "clip" means depends on the kind of a column: numbers are moved to their
    # bound, and an unknown level has no indicator.
    span = "[-1, 1]" if encoding.symmetric else "[0, 1]"
    outside = "is moved to the nearer end" if encoding.clip else "is an error"
    other = "gives zeros in all of them" if encoding.clip else "is an error"
    texts = {
        "numeric": f"from public ranges to {span}; a number outside {outside}",
        "log": "sign(x) log(1 + |x|), then "
        f"from public ranges to {span}; a number outside {outside}",
        "date": f"days from public ranges to {span}; a date outside {outside}",
        "categorical": f"one indicator per public level; another level {other}",
    }
    lines = []
    for kind, text in texts.items():
        names = [name for name in encoding.columns if schema.kind(name) == kind]
        if names:
            lines.append(f"{kind} {list_names(names)}: {text}")
    if encoding.contrasts:
        lines.append(describe_contrasts(schema, encoding.contrasts))
    if schema.ignore:
        lines.append(f"ignored: {list_names(schema.ignore)}")
    # Each of m columns adds at most 1 to the q-th power of the norm of a row.
    norm = f"{encoding.row_norm:g}"
    return (
        *lines,
        *describe_missing(schema),
        f"rows are divided by {len(encoding.columns)}^(1/{norm}), the largest "
        f"{norm}-norm that they can have",
        *describe_scale(encoding.scale),
        describe_response(encoding),
    )


def describe_contrasts(schema: Schema, columns: Sequence[str]) -> str:
    """Return the rule for levels without an indicator."""
    references = []
    for name in columns:
        level = schema.categorical[name][reference_position(schema, name)]
        references.append(f"{name}={level_text(level)}")
    return f"reference levels without an indicator: {list_names(references)}"


def describe_missing(schema: Schema) -> tuple[str, ...]:
    """Return the rules for missing entries."""
    lines = [
        f"a missing {name!r} counts as {value!r}"
        for name, value in schema.missing.items()
    ]
    if schema.missing_indicator:
        names = list_names(schema.missing_indicator)
        lines.append(f"missing entries of {names}: an indicator of their own")
    # Some tables have a level such as "unknown" for missing entries.
    every = f"{MISSING}, unless a public level means it"
    return (*lines, every if schema.categorical else MISSING)


def describe_libsvm(encoding: ColumnFacts) -> tuple[str, ...]:
    """Return the rules for a LIBSVM file."""
    features = "features are taken as they are; one that is not listed is 0"
    return (features, *describe_scale(encoding.scale), describe_response(encoding))


def describe_scale(scale: float) -> tuple[str, ...]:
    """Return the rule of a public factor, or nothing if it is 1."""
    return () if scale == 1.0 else (f"features are multiplied by {scale:g}",)


def describe_response(encoding: ColumnFacts) -> str:
    """Return the rule for the response."""
    # The first rule that applies is used: a positive label, two labels, then a number.
    name, schema = f"response {encoding.target!r}", encoding.schema or Schema()
    if encoding.target is None:
        return "no response"
    if encoding.positive_label is not None:
        others = "every other label -1"
        if encoding.levels is not None:
            others = "every other public level -1; another label is an error"
        return f"{name}: {encoding.positive_label!r} becomes 1, {others}"
    if encoding.labels is not None:
        negative, positive = encoding.labels
        text = f"{name}: {positive!r} becomes 1, {negative!r} -1"
        return f"{text}; another label is an error"
    if encoding.response_bound is not None:
        is_log = encoding.target in schema.log
        log = "sign(y) log(1 + |y|), then " if is_log else ""
        outside = "is moved to the nearer end" if encoding.clip else "is an error"
        return (
            f"{name}: {log}from its public range to [-1, 1]; a number outside {outside}"
        )
    return f"{name}: taken as it is"
