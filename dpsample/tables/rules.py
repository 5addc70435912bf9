"""What encoding does to any record, in words: public facts, never counts."""

from __future__ import annotations

from collections.abc import Sequence

from dpsample._columns import listed
from dpsample.tables.schema import Schema

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
