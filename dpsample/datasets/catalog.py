"""Well-known public data sets: verified by checksums, encoded by public facts."""

from __future__ import annotations

import hashlib
import math
import os
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpsample.core import check
from dpsample.tables import entries as formats
from dpsample.tables import read
from dpsample.tables.read import Dataset
from dpsample.tables.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent
# Environment variable with the folder of the public files.
VARIABLE = "DPSAMPLE_DATA"


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One public data set of `catalog.toml`."""

    files: dict[str, dict[str, str]]  # name and sha256 of the file of each split
    origin: str
    target: str = ""
    num_features: int = 0  # number of columns of a LIBSVM file; 0 for a table
    ones: int = 0  # the largest number of entries 1 in its rows


@cache
def catalog() -> dict[str, CatalogEntry]:
    """Return all entries by name."""
    content = tomllib.loads((FOLDER / "catalog.toml").read_text("utf-8"))
    return {name: CatalogEntry(**facts) for name, facts in content.items()}


def public_schema(name: str) -> Schema:
    """Return the public facts about the columns of a set that is not LIBSVM's."""
    if name == "blogfeedback":
        return _blogfeedback()
    return Schema.from_file(FOLDER / "bounds" / f"{name}.toml")


def _blogfeedback() -> Schema:
    """Return the schema of BlogFeedback: counts on a logarithmic scale, and indicators.

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


def load(name: str, folder: str | Path | None = None, split: str = "train") -> Dataset:
    r"""Load a well-known public data set.

    Nothing is downloaded: the file, possibly compressed by bz2, gzip or xz, must be
    in the folder or in one of its subfolders, and its content must have the published
    checksum. Columns are encoded by public ranges and levels. Values outside them are
    clipped, and records with a missing number are dropped.

    ============================================= =====================================
    a8a, a9a, w7a                                 labels. Rows of 0 and 1, divided by
                                                  the square root of the number of
                                                  attributes (14; w7a: 300)
    adult, magic04                                labels
    blogfeedback, randhie, cps1988, k401ksubs,    real response in its own unit, most
    bemtpl97, ausprivauto0405, norauto, casp,     with heavy tails and therefore no
    fremtpl2sev (no covariates: a constant 1)     response bound
    ============================================= =====================================

    a8a and its test set are the rows of a9a: never test a model of a9a on a8a. Only 3%
    of the labels of w7a are positive, so quote log-loss or AUC.

    Parameters
    ----------
    name : str
        One of the names above.
    folder : str or Path, optional
        Folder of the files. By default the environment variable DPSAMPLE_DATA.
    split : {"train", "test"}
        a8a, a9a, w7a, adult and blogfeedback have a test set.

    Returns
    -------
    Dataset
        With rows of 2-norm at most ``row_bound`` = 1.

    Raises
    ------
    ValueError
        If the name is unknown, the file is missing (the message says where to get it),
        or its content is not the published one.

    Examples
    --------
    >>> load("a9a", folder="nowhere")
    Traceback (most recent call last):
    ValueError: folder must be an existing folder, got nowhere. ...
    """
    entries = catalog()
    check.one_of(sorted(entries), name=name)
    entry = entries[name]
    check.one_of(sorted(entry.files, reverse=True), split=split)
    content = _read_verified(entry, split, _folder(folder, entry))
    if entry.num_features:
        # No row has more entries 1 than that, so its norm is at most 1.
        scale = 1.0 / math.sqrt(entry.ones)
        rules = read.RowOptions(scale=scale)
        data = read.from_libsvm(content, entry.num_features, rules)
        data = replace(data, response_bound=1.0)
    else:
        data = _encode(name, entry, content)
    return replace(data, row_bound=1.0, source=f"{name} ({split}): {entry.origin}")


def _folder(folder: str | Path | None, entry: CatalogEntry) -> Path:
    listed = ", ".join(f["name"] for f in entry.files.values())
    remedy = f"Put {listed} there; origin: {entry.origin}."
    directory = folder if folder is not None else os.environ.get(VARIABLE)
    if directory is None:
        where = f"Pass folder=... or set {VARIABLE}. {remedy}"
        check.fail("folder", "given", "None", where)
    path = check.path("folder", directory)
    if not path.is_dir():
        check.fail("folder", "an existing folder", str(directory), remedy)
    return path


def _read_verified(entry: CatalogEntry, split: str, folder: Path) -> bytes:
    """Return the uncompressed content of the file with the published checksum."""
    name, checksum = entry.files[split]["name"], entry.files[split]["sha256"]
    names = [name + suffix for suffix in ("", *formats.COMPRESSED)]
    candidates = [
        parent / n for parent in (folder, *sorted(folder.iterdir())) for n in names
    ]
    files = [path for path in candidates if path.is_file()]
    if not files:
        got = f"no {name}, plain or compressed, in {folder}"
        remedy = f"Download it; origin: {entry.origin}."
        check.fail("folder", f"one that has the file {name}", got, remedy)
    content = formats.read_content(files[0])
    digest = hashlib.sha256(content).hexdigest()
    if digest != checksum:
        condition = f"the published file with sha256 {checksum} (uncompressed)"
        remedy = f"Fetch it again; origin: {entry.origin}."
        check.fail(str(files[0]), condition, f"sha256 {digest}", remedy)
    return content


def _encode(name: str, entry: CatalogEntry, content: bytes) -> Dataset:
    """Return the records of a table, encoded by its public schema."""
    schema = public_schema(name)
    if name == "adult":  # drop the remark above the test records, the points at ends
        lines = [line.rstrip(b". \r") for line in content.split(b"\n")]
        records = (line for line in lines if line and not line.startswith(b"|"))
        content = b"\n".join(records)
    frame = read.to_frame(content, "csv", schema)
    frame = _complete(frame, [*schema.numeric, *schema.log, entry.target])
    if not (schema.numeric or schema.log or schema.categorical):
        return Dataset(
            features=np.ones((len(frame), 1)),
            response=frame[entry.target].to_numpy(np.float64),
            row_bound=1.0,
            feature_names=("constant",),
            source=name,
        )
    return read.from_frame(frame, target=entry.target, bounds=schema, clip=True)


def _complete(frame: pd.DataFrame, numbers: list[str]) -> pd.DataFrame:
    """Drop records with a missing number: 4 of RandHIE lack a school grade."""
    for column in numbers:
        frame = frame[~frame[column].isin(["", "NA"])]
    return frame.reset_index(drop=True)
