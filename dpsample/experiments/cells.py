"""From a grid to cells, and from (study, cell, replicate) to seeds.

A cell is known by the canonical JSON of its parameters, so neither its place in the
grid nor the backend that runs it can change its numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
NUM_WORDS = 4


class Cell(NamedTuple):
    """One choice of the parameters, and the text by which the store knows it."""

    params: dict[str, Any]
    key: str


def expand(grid: Grid) -> tuple[Cell, ...]:
    """Return all combinations of each mapping, in the order written."""
    parts = (grid,) if isinstance(grid, Mapping) else grid
    check.members(Mapping, grid=parts)
    cells = tuple(cell for part in parts for cell in _combinations(part))
    if not cells:
        check.fail("grid", "a mapping with at least one cell", grid)
    keys = [cell.key for cell in cells]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        check.fail("grid", "without repeated cells", f"{twice} twice")
    return cells


def _combinations(part: Mapping[str, Any]) -> Iterator[Cell]:
    check.instance(Mapping, grid=part)
    axes = [
        value if isinstance(value, list | tuple | np.ndarray) else (value,)
        for value in part.values()
    ]
    for values in product(*axes):
        params = {n: _plain(n, v) for n, v in zip(part, values, strict=True)}
        yield Cell(params, key_of(params))


def _plain(name: str, value: Any) -> Any:
    """Value as JSON keeps it; NumPy's numbers become Python's."""
    value = value.item() if isinstance(value, np.generic) else value
    is_plain = value is None or isinstance(value, bool | int | float | str)
    if not is_plain or (isinstance(value, float) and math.isnan(value)):
        check.fail(f"parameter {name}", "a number, a word, a bool or None", value)
    return value


def key_of(params: Mapping[str, Any]) -> str:
    """Canonical text of the parameters."""
    return json.dumps(dict(sorted(params.items())))


def seeds_of(
    study: str,
    params: Mapping[str, Any],
    replicates: Sequence[int],
    *,
    root: int = 0,
    paired: Sequence[str] = (),
) -> list[np.random.SeedSequence]:
    """Seeds of replicates: children of the root that only their own names decide.

    That of replicate i is the i-th child that the cell's sequence would spawn.
    """
    own = {name: value for name, value in params.items() if name not in paired}
    digest = hashlib.sha256(f"{study}\n{key_of(own)}".encode()).digest()
    words = np.frombuffer(digest[: 4 * NUM_WORDS], dtype="<u4").tolist()
    return [np.random.SeedSequence(root, spawn_key=(*words, i)) for i in replicates]
