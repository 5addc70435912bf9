"""Names of columns. Data frames are matched by name, arrays by position."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array

Table = TypeVar("Table")


def list_names(names: Iterable[str]) -> str:
    """Return the first names in quotes, and how many more there are."""
    # Number of names that a message lists.
    max_listed = 5
    all_names = list(names)
    text = ", ".join(check.describe(name) for name in all_names[:max_listed])
    num_others = len(all_names) - max_listed
    return f"{text} and {num_others} more" if num_others > 0 else text


def are_positions(names: Sequence[str]) -> bool:
    """Return whether names only count the columns, as those made for an array do."""
    return all(name == str(j) for j, name in enumerate(names))


def labels_of(table: object) -> list[object] | None:
    """Return the labels of a DataFrame's columns, None if the table has none."""
    columns = getattr(table, "columns", None)
    if columns is None:
        return None
    # The `columns` of pandas is an index of labels of any type. That of pyarrow holds
    # the private entries themselves. As names they would be published.
    if hasattr(columns, "nlevels") or all(isinstance(c, str) for c in columns):
        return list(columns)
    return getattr(table, "column_names", None)


def names_of(table: object) -> tuple[str, ...] | None:
    """Return the names of a DataFrame's columns, None if the table has none."""
    labels = labels_of(table)
    names = () if labels is None else tuple(str(label) for label in labels)
    return None if are_positions(names) else names


def require_distinct(name: str, names: Sequence[str]) -> None:
    """Raise if a name occurs twice."""
    seen: set[str] = set()
    for column in names:
        if column in seen:
            got, remedy = f"two named {column!r}", "Rename one of the two."
            check.fail(f"columns of {name}", "distinct", got, remedy)
        seen.add(column)


def split_features(
    names: Sequence[str], response: object, offset: object
) -> tuple[list[str], list[str]]:
    """Return the names of the features, and those of the response and the offset.

    ``response`` and ``offset`` are names among those of all columns, or anything else
    if they are not columns.
    """
    require_distinct("features", names)
    roles = {"response": response, "offset": offset}
    columns = {role: name for role, name in roles.items() if isinstance(name, str)}
    for role, name in columns.items():
        check.one_of(names, **{role: name})
    others = list(columns.values())
    return [name for name in names if name not in others], others


def find_positions(
    name: str, columns: Sequence[str], order: Sequence[str]
) -> NDArray[np.intp]:
    """Return the position in a table of each column in the order that is needed.

    Raise unless both are the same set, without repetitions.
    """
    require_distinct(name, columns)
    positions = {column: j for j, column in enumerate(columns)}
    missing = [column for column in order if column not in positions]
    if missing:
        remedy = "Columns are matched by name; those of an array, by position."
        got = f"none named {list_names(missing)}"
        check.fail(f"columns of {name}", "complete", got, remedy)
    needed = set(order)
    others = [column for column in columns if column not in needed]
    if others:
        got, remedy = f"also {list_names(others)}", "Drop what is not used."
        check.fail(f"columns of {name}", "known", got, remedy)
    return np.array([positions[column] for column in order], dtype=np.intp)


def reorder_columns(name: str, table: Table, order: Sequence[str]) -> Table | Array:
    """Return the numbers of a table in this order of columns.

    A table whose columns have no names is returned as it is.
    """
    columns = names_of(table)
    if columns is None:
        return table
    positions = find_positions(name, columns, order)
    numbers = check.array(name, table, shape=(None, len(order)))
    return np.take(numbers, positions, axis=1)


def require_same(name: str, columns: Sequence[str], expected: Sequence[str]) -> None:
    """Raise if a problem has other columns than the one with which it is compared.

    The columns of a problem of arrays have no names, and are matched by position.
    """
    if len(columns) != len(expected):
        condition = f"a problem of {len(expected)} parameters"
        check.fail(name, condition, f"{len(columns)} parameters")
    # An intercept is the last column, and has a name even if no other one has.
    features = columns[:-1] if columns[-1] == "intercept" else columns
    by_position = are_positions(features)
    for column, other in zip(columns, expected, strict=True):
        if column != other and not (by_position and "intercept" not in (column, other)):
            remedy = "Give both the same columns in the same order."
            got = f"{column!r} in the place of {other!r}"
            check.fail(name, "a problem of the same columns", got, remedy)
