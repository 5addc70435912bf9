"""``dpsample study``: list, run and report the studies of a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from dpsample.cli import screen
from dpsample.core import check
from dpsample.experiments import run as running_module
from dpsample.experiments.backends import Backend
from dpsample.experiments.loading import bundle, load, study_names
from dpsample.experiments.report import write

RESULTS = "results"


def show(studies: Path) -> None:
    """Print every study of the folder and how large it is."""
    rows = []
    for name in study_names(studies):
        study = load(bundle(studies, name))
        sizes = [
            f"{sum(study.replicates_of(cell, quick=quick) for cell in cells)}"
            f" in {len(cells)} cells"
            for quick in (False, True)
            for cells in (study.cells(quick=quick),)
        ]
        rows.append((name, *sizes, study.title))
    head = ("study", "replicates", "quick", "title")
    screen.console().print(screen.table(f"Studies in {studies}", head, rows))


def chosen(studies: Path, names: list[str]) -> list[str]:
    """Return the studies that are meant, each known before the first one runs."""
    known = study_names(studies)
    if names == ["all"]:
        return known
    for name in names:
        check.one_of(tuple(known), study=name)
    return names


def run(
    studies: Path,
    name: str,
    *,
    output: Path | None,
    quick: bool,
    backend: Backend,
    resume: bool,
) -> None:
    """Run a study, and say where its rows are."""
    given, folder = bundle(studies, name), output or studies / RESULTS
    path = running_module.store_path(name, folder, quick=quick)
    try:
        count = running_module.run(
            given, folder, quick=quick, backend=backend, resume=resume
        )
    except KeyboardInterrupt:
        print(
            f"dpsample: interrupted. Finished replicates are in {path}; "
            "go on with --resume.",
            file=sys.stderr,
        )
        raise
    screen.console().print(f"{count} replicates computed, in {path}")


def report(studies: Path, name: str, *, output: Path | None, quick: bool) -> int:
    """Write the tables and figures; 1 if a measurement contradicts the theory."""
    result = write(bundle(studies, name), output or studies / RESULTS, quick=quick)
    console = screen.console()
    for line in result.summary:
        console.print(line)
    for path in result.files:
        console.print(f"wrote {path}")
    return int(result.is_refuted)


def backend_of(*, jobs: int, threads: bool, dask: str | None) -> Backend:
    """Backend from the options."""
    if dask is not None and not dask:
        check.fail("dask", "the address of a scheduler", repr(dask))
    return Backend(jobs=jobs, kind="threads" if threads else "processes", dask=dask)
