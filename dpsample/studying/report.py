"""Tables, figures and slopes of a study, from the rows of its store."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsample import _check as check
from dpsample import _files
from dpsample.studying import pages
from dpsample.studying.figures import draw
from dpsample.studying.findings import results
from dpsample.studying.loading import Bundle
from dpsample.studying.running import folder_of


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was written."""

    files: Sequence[Path]
    summary: Sequence[str]
    is_refuted: bool


def write(given: Bundle, output: Path, *, quick: bool = False) -> Report:
    """Write NAME.md, NAME.csv, NAME-slopes.csv and the figures as PNG and SVG.

    Parameters
    ----------
    given : Bundle
        The study, from `loading.bundle`.
    output : Path
        Folder of the store; a quick run's is below it.
    quick : bool
        Report the quick run.

    Returns
    -------
    Report
        Files, a summary in words, and whether a measurement contradicts the theory.

    Raises
    ------
    ValueError
        If no row belongs to a declared cell: an empty report would replace a good one.
    """
    found = results(given, output, quick=quick)
    if found.rows and not found.num_rows:
        remedy = "Set what the run had: data, environment variables, packages."
        check.fail("rows", "of declared cells", "those of others only", remedy)
    name, folder = found.study.name, folder_of(output, quick=quick)
    files = draw(found.study, found.lines, folder)
    tables = {f"{name}.csv": pages.table(found.lines)}
    if found.fits:
        tables[f"{name}-slopes.csv"] = pages.slope_table(found.fits)
    for file, table in tables.items():
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows(table)
        _files.write(folder / file, content.getvalue().encode())
        files.append(folder / file)
    page = folder / f"{name}.md"
    pictures = [path.name for path in files if path.suffix == ".png"]
    text = "\n".join(pages.markdown(found, pictures))
    _files.write(page, f"{text}\n".encode())
    return Report(
        files=[page, *files],
        summary=[*pages.summary(found), *pages.exponents(found)],
        is_refuted=bool(found.refuted),
    )
