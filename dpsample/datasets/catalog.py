"""What `load` knows about a public data set: files, checksums, origin, encoding."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpsample.tables.schema import Schema

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One public data set of `catalog.toml`."""

    files: dict[str, dict[str, str]]  # split -> name and sha256
    origin: str
    target: str = ""
    num_features: int = 0  # of a LIBSVM file
    ones: int = 0  # the largest number of entries 1 in its rows


@cache
def catalog() -> dict[str, Entry]:
    """Return all entries by name."""
    content: dict[str, Any] = tomllib.loads(
        (FOLDER / "catalog.toml").read_text("utf-8")
    )
    return {name: Entry(**facts) for name, facts in content.items()}


def schema(name: str) -> Schema:
    """Return the public facts about the columns of a set that is not LIBSVM's."""
    if name == "blogfeedback":
        return _blogfeedback()
    return Schema.from_file(FOLDER / "bounds" / f"{name}.toml")


def _blogfeedback() -> Schema:
    """Put counts on a logarithmic scale, keep indicators of words and days.

    Columns 12, 32, 37 and 277 are constant by construction.
    """
    constant = (12, 32, 37, 277)
    counts = [j for j in (*range(60), 276, 278, 279) if j not in constant]
    return Schema(
        columns=(*(f"x{j}" for j in range(280)), "comments"),
        ignore=tuple(f"x{j}" for j in constant),
        numeric={"x60": (0.0, 72.0)} | {f"x{j}": (0.0, 1.0) for j in range(62, 276)},
        log={f"x{j}": (-1e4, 1e4) for j in counts} | {"x61": (0.0, 1e5)},
    )
