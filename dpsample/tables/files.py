"""Bytes of a file, uncompressed, and what its name says about its format."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path

from dpsample import _check as check

DECOMPRESS = {".bz2": bz2.decompress, ".xz": lzma.decompress, ".gz": gzip.decompress}
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
        If there is no such file, or it does not decompress.
    """
    if not path.is_file():
        check.fail("path", "an existing file", str(path))
    raw = path.read_bytes()
    decompress = DECOMPRESS.get(path.suffix)
    if decompress is None:
        return raw
    try:
        return decompress(raw)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        remedy = "Fetch the file again."
        check.fail("path", "an intact file", f"{path.name}: {error}", remedy)


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
