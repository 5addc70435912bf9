"""``dpsample bounds``: a bounds file to fill in, without any value of the records."""

import sys
from pathlib import Path

from dpsample.cli import keeping, screen
from dpsample.core import check, files
from dpsample.tables import read
from dpsample.tables.skeleton import skeleton


def run(file: Path, output: Path | None, format: str | None) -> None:
    """Print the skeleton, or write it to a file that does not exist yet."""
    keeping.check_outputs(file, output=output)
    if output is not None and output.exists():
        check.fail("output", "a new file", str(output), "It may be filled in already.")
    content, kind = read.contents(file, format)
    if kind == "libsvm":
        check.fail("file", "a table with named columns", "a LIBSVM file")
    text = skeleton(content, kind, file.name)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text.encode())
        screen.console().print(f"Bounds to fill in: {output}")
