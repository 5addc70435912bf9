"""Formats of files: bytes uncompressed, the format told by the name, LIBSVM text."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.sparse import CSR, MAX_SIDE

DECOMPRESS: dict[str, Callable[..., Any]]
DECOMPRESS = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}
# Uncompressed bytes of a compressed file: a kilobyte can hold the zeros of gigabytes.
LARGEST = 2**32
FORMATS = {
    ".csv": "csv",
    ".data": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}


def content(path: Path) -> bytes:
    """Whole uncompressed content.

    Raises
    ------
    ValueError
        If there is no such file, or it does not decompress to at most `LARGEST` bytes.
    """
    if not path.is_file():
        check.fail("path", "an existing file", str(path))
    decompress = DECOMPRESS.get(path.suffix)
    if decompress is None:
        return path.read_bytes()
    try:
        with decompress(path) as file:
            found: bytes = file.read(LARGEST + 1)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        remedy = "Fetch the file again."
        check.fail("path", "an intact file", f"{path.name}: {error}", remedy)
    if len(found) > LARGEST:
        remedy = "Unpack it first, if it is what it should be."
        check.fail("path", f"of at most {LARGEST} bytes", path.name, remedy)
    return found


def format_of(path: Path) -> str:
    """Format by the suffix that remains without that of a compression.

    LIBSVM's own files, such as ``a9a`` and ``a9a.t``, have no suffix or ``.t``.
    """
    name = path.with_suffix("") if path.suffix in DECOMPRESS else path
    if name.suffix not in FORMATS:
        listed = ", ".join(sorted(set(FORMATS.values())))
        remedy = f"Name the format (format=..., --format ...): one of {listed}."
        check.fail("path", "of a known suffix", path.name, remedy)
    return FORMATS[name.suffix]


def parse(
    lines: Iterable[str], num_features: int, *, source: str = ""
) -> tuple[CSR, Array]:
    """Features and labels of lines ``label index:value ...``, indices from 1.

    The number of columns is public and must be given: a file whose records never use
    the last features would otherwise come out narrower. Text after # is a comment.
    Features have shape (num_records, num_features), labels (num_records,). A malformed
    line is a ValueError that names it, and ``source``.

    Examples
    --------
    >>> features, labels = parse(["+1 1:0.5 3:2", "-1 2:1"], num_features=4)
    >>> features.toarray().tolist(), labels.tolist()
    ([[0.5, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0]], [1.0, -1.0])
    """
    from scipy import sparse

    check.integer(1, num_features=num_features, remedy="It is public: pass it.")
    if num_features >= MAX_SIDE:
        check.fail("num_features", "less than 2**32", str(num_features))
    labels: list[float] = []
    values: list[float] = []
    columns: list[int] = []
    starts = [0]
    place = f" in {source}" if source else ""
    for number, line in enumerate(lines, start=1):
        tokens = line.partition("#")[0].split()
        if not tokens:
            continue
        try:
            labels.append(float(tokens[0]))
            for token in tokens[1:]:
                index, _, value = token.partition(":")
                columns.append(int(index) - 1)
                values.append(float(value))
        except ValueError:
            wanted = "of the form 'label index:value ...'"
            check.fail(f"line {number}", wanted, " ".join(tokens[:3])[:80] + place)
        _check_indices(columns[starts[-1] :], num_features, number, place)
        starts.append(len(columns))
    data = (np.array(values), np.array(columns, dtype=np.int64), np.array(starts))
    shape = (len(labels), num_features)
    response = np.array(labels, dtype=np.float64)
    for name, numbers in (("labels", response), ("values", data[0])):
        if not np.isfinite(numbers).all():
            check.fail(
                name, "finite", f"a NaN or an infinity{place}", "Remove such records."
            )
    return sparse.csr_array(data, shape=shape, dtype=np.float64), response


def _check_indices(
    columns: list[int], num_features: int, number: int, place: str
) -> None:
    """Refuse indices that do not increase from 1 to at most ``num_features``."""
    if columns and not (columns[0] >= 0 and columns[-1] < num_features):
        worst = columns[0] if columns[0] < 0 else columns[-1]
        check.fail(
            f"line {number}",
            f"of indices between 1 and num_features = {num_features}",
            f"{worst + 1}{place}",
            "Pass the public number of features.",
        )
    if any(a >= b for a, b in pairwise(columns)):
        check.fail(
            f"line {number}", "of increasing indices", "indices out of order" + place
        )
