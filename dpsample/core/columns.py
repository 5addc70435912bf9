"""Columns: what comes with names is matched by name, the rest by position."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array

Table = TypeVar("Table")
MAX_SHOWN = 5


def list_names(names: Iterable[str]) -> str:
    """First names in quotes, and how many more there are."""
    every = list(names)
    shown = ", ".join(check.describe(name) for name in every[:MAX_SHOWN])
    hidden = len(every) - MAX_SHOWN
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def are_positions(names: Sequence[str]) -> bool:
    """Whether names only count columns, as those of an array do: it has no names."""
    return all(name == str(j) for j, name in enumerate(names))


def labels_of(table: object) -> list[object] | None:
    """Labels of a DataFrame's columns; None for what has none."""
    columns = getattr(table, "columns", None)
    if columns is None:
        return None
    # An index of pandas holds labels of any kind. Others may hold entries, as those of
    # pyarrow do, which as names would be published.
    if hasattr(columns, "nlevels") or all(isinstance(c, str) for c in columns):
        return list(columns)
    return getattr(table, "column_names", None)


def names_of(table: object) -> tuple[str, ...] | None:
    """Names of a DataFrame's columns; None for what has none."""
    labels = labels_of(table)
    names = () if labels is None else tuple(str(label) for label in labels)
    return None if are_positions(names) else names


def require_distinct(name: str, names: Sequence[str]) -> None:
    """Refuse names of which one occurs twice."""
    seen: set[str] = set()
    for column in names:
        if column in seen:
            got, remedy = f"two named {column!r}", "Rename one of the two."
            check.fail(f"columns of {name}", "distinct", got, remedy)
        seen.add(column)


def split_features(
    names: Sequence[str], response: object, offset: object
) -> tuple[list[str], list[str]]:
    """Names of the features among those of all columns, and of the columns taken."""
    require_distinct("features", names)
    given = {"response": response, "offset": offset}
    taken = {key: name for key, name in given.items() if isinstance(name, str)}
    for key, name in taken.items():
        check.one_of(names, **{key: name})
    others = list(taken.values())
    return [name for name in names if name not in others], others


def find_positions(
    name: str, given: Sequence[str], wanted: Sequence[str]
) -> NDArray[np.intp]:
    """Places of the wanted columns among those given; both must be the same set.

    A ValueError names a column that is missing, is not wanted, or occurs twice.
    """
    require_distinct(name, given)
    places = {column: j for j, column in enumerate(given)}
    missing = [column for column in wanted if column not in places]
    if missing:
        remedy = "Columns are matched by name; those of an array, by position."
        got = f"none named {list_names(missing)}"
        check.fail(f"columns of {name}", "complete", got, remedy)
    known = set(wanted)
    others = [column for column in given if column not in known]
    if others:
        got, remedy = f"also {list_names(others)}", "Drop what is not used."
        check.fail(f"columns of {name}", "known", got, remedy)
    return np.array([places[column] for column in wanted], dtype=np.intp)


def reorder_columns(name: str, table: Table, wanted: Sequence[str]) -> Table | Array:
    """Numbers of a table with columns as wanted; what has no names stays as it is."""
    given = names_of(table)
    if given is None:
        return table
    places = find_positions(name, given, wanted)
    numbers = check.array(name, table, shape=(None, len(wanted)))
    return np.take(numbers, places, axis=1)


def require_same(name: str, given: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a problem of other columns than the one that it is compared with.

    A problem of arrays has no names: its columns are matched by position.
    """
    if len(given) != len(wanted):
        condition = f"a problem of {len(wanted)} parameters"
        check.fail(name, condition, f"{len(given)} parameters")
    features = given[:-1] if given[-1] == "intercept" else given
    by_position = are_positions(features)
    for mine, theirs in zip(given, wanted, strict=True):
        if mine != theirs and not (by_position and "intercept" not in (mine, theirs)):
            remedy = "Give both the same columns in the same order."
            got = f"{mine!r} in the place of {theirs!r}"
            check.fail(name, "a problem of the same columns", got, remedy)
