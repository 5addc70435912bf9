"""Columns: what comes with names is matched by name, the rest by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check

MAX_SHOWN = 5


def listed(names: Iterable[str]) -> str:
    """First names in quotes, and how many more there are."""
    every = list(names)
    shown = ", ".join(check.shown(name) for name in every[:MAX_SHOWN])
    hidden = len(every) - MAX_SHOWN
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def are_positions(names: Sequence[str]) -> bool:
    """Whether names only count columns, as those of an array do: it has no names."""
    return all(
        name == str(j) or (name == "intercept" and j == len(names) - 1)
        for j, name in enumerate(names)
    )


def names_of(table: Any) -> tuple[str, ...] | None:
    """Names of a DataFrame's columns; None for what has none."""
    columns = getattr(table, "columns", None)
    names = () if columns is None else tuple(str(column) for column in columns)
    return None if are_positions(names) else names


def distinct(name: str, names: Sequence[str]) -> None:
    """Refuse names of which one occurs twice."""
    seen: set[str] = set()
    for column in names:
        if column in seen:
            remedy = "Rename one of the two."
            check.fail(name, "of distinct columns", f"two named {column!r}", remedy)
        seen.add(column)


def order(name: str, given: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Places of the wanted columns among those given, which are no others.

    Raises
    ------
    ValueError
        If a column is missing, is not wanted, or occurs twice; the message names it.
    """
    distinct(name, given)
    places = {column: j for j, column in enumerate(given)}
    missing = [column for column in wanted if column not in places]
    if missing:
        remedy = "Columns are matched by name; an array is matched by position."
        check.fail(
            name, "a table of all columns", f"none named {listed(missing)}", remedy
        )
    others = set(given) - set(wanted)
    if others:
        got = listed(column for column in given if column in others)
        check.fail(name, "a table of known columns", f"also {got}", "Drop them.")
    return np.array([places[column] for column in wanted], dtype=np.intp)


def in_order(name: str, table: Any, wanted: Sequence[str]) -> Any:
    """Numbers of a table with columns as wanted; what has no names stays as it is."""
    given = names_of(table)
    if given is None:
        return table
    places = order(name, given, wanted)
    numbers = check.array(name, table, shape=(None, len(wanted)))
    return np.take(numbers, places, axis=1)


def same(name: str, given: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a problem of other columns than the one that it is compared with.

    A problem of arrays has no names: its columns are matched by position.
    """
    if len(given) != len(wanted):
        condition = f"a problem of {len(wanted)} parameters"
        check.fail(name, condition, f"{len(given)} parameters")
    unnamed = are_positions(given)
    for mine, theirs in zip(given, wanted, strict=True):
        if mine != theirs and not (unnamed and "intercept" not in (mine, theirs)):
            remedy = "Give both the same columns in the same order."
            got = f"{mine!r} in the place of {theirs!r}"
            check.fail(name, "a problem of the same columns", got, remedy)
