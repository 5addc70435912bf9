"""Cells of a column: the public level or interval of each record, for counts."""

import itertools
from collections.abc import Collection, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.tables.entries import Column, codes
from dpsample.tables.schema import Schema, level_text

Cells = NDArray[np.int64]


def numbers_of(name: str, values: object) -> Array:
    """Return the numbers of a column, one for each record, NaN for missing ones."""
    numbers = check.entries(name, values, finite=False, saturated=True)
    if numbers.ndim != 1 or len(numbers) == 0:
        check.fail(name, "of shape (n,), n >= 1", f"shape {numbers.shape}")
    return numbers


def flags_of(name: str, values: object) -> NDArray[np.bool_]:
    """Return the booleans of a column, one for each record."""
    try:
        flags = np.asarray(values)
    except ValueError:  # lists of different lengths
        flags = np.empty(0)
    is_masked = isinstance(values, np.ma.MaskedArray)
    if flags.dtype != np.bool_ or flags.ndim != 1 or len(flags) == 0 or is_masked:
        check.fail(name, "booleans of shape (n,), n >= 1", check.describe(values))
    return flags


def cells_of_levels(
    name: str, values: object, levels: object
) -> tuple[list[str], Cells]:
    """Return the names of public levels, and the level of each record, or below 0.

    Each entry has the meaning that it would have alone, as in a table.

    Examples
    --------
    >>> names, cells = cells_of_levels("values", ["b", "c", None], ["a", "b"])
    >>> names, (cells >= 0).tolist(), int(cells[0])
    (['a', 'b'], [True, False, False], 1)
    """
    any_levels: Any = levels  # the schema checks them
    declared = Schema(categorical={"levels": any_levels})
    is_other = isinstance(values, str | bytes | Mapping | Set)
    has_axis = getattr(values, "ndim", 1) == 1 and isinstance(values, Collection)
    column: Any = [] if is_other or not has_axis else values
    if len(column) == 0:
        check.fail(name, "of shape (n,), n >= 1", check.describe(values))
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "fc":
        # A missing record may have turned whole numbers into floats. `codes` rejects
        # levels that the type does not tell apart.
        listed: Any = np.asarray(column)
    else:
        listed = column.tolist() if isinstance(column, np.ndarray) else [*column]
    in_order = declared.categorical["levels"]
    cells = codes(Column(name, listed), in_order, declared.file)
    return [level_text(level) for level in in_order], cells


def cells_of_edges(name: str, values: object, edges: object) -> tuple[list[str], Cells]:
    """Return the names of intervals, and the interval of each record, or -1.

    Intervals are [e_0, e_1), [e_1, e_2), ..., and the last one has its end.

    Examples
    --------
    >>> cells_of_edges("values", [0.0, 1.0, 2.0, 2.5], [0.0, 1.0, 2.0])
    (['[0.0, 1.0)', '[1.0, 2.0]'], array([ 0,  1,  1, -1]))
    """
    ends = check.array("edges", edges, shape=(None,))
    if len(ends) < 2 or not (ends[1:] > ends[:-1]).all():
        check.fail("edges", "at least two increasing numbers", check.describe(edges))
    texts = [repr(end) for end in ends.tolist()]
    names = [f"[{a}, {b})" for a, b in itertools.pairwise(texts)]
    names[-1] = names[-1][:-1] + "]"
    numbers = numbers_of(name, values)
    cells = np.searchsorted(ends, numbers, side="right") - 1
    cells[numbers == ends[-1]] = len(names) - 1
    cells[~(numbers <= ends[-1])] = -1  # also if it is missing
    return names, cells
