"""Command ``dpsample study``: list, run and report the studies of a folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dpsample.cli import screen
from dpsample.core import check

app = typer.Typer(
    help="Monte Carlo studies: every theorem against what happens.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Names = Annotated[
    list[str] | None, typer.Argument(help="Files of studies, without .py, or: all.")
]
All = Annotated[bool, Option("--all", help="All studies of the folder.")]
Studies = Annotated[Path, Option(help="Folder of the studies.")]
Output = Annotated[
    Path | None, Option(help="Folder of rows and reports, by default STUDIES/results.")
]
Quick = Annotated[bool, Option("--quick", help="Few cells, less than a minute.")]
Jobs = Annotated[int, Option(help="Threads or processes.")]
Threads = Annotated[bool, Option("--threads/--processes", help="Kind of the jobs.")]
Dask = Annotated[str | None, Option(help="Address of a Dask scheduler, to run there.")]
Report = Annotated[bool, Option("--report", help="Then write the reports.")]
Resume = Annotated[
    bool, Option("--resume", help="Keep existing rows and compute the others.")
]

HERE = Path("studies")


@app.command("list")
def show(studies: Studies = HERE) -> None:
    """List the studies."""
    from dpsample.experiments.configuration import bundle, load, study_names

    rows = []
    for name in study_names(studies):
        study = load(bundle(studies, name))
        sizes = []
        for quick in (False, True):
            cells = study.cells(quick=quick)
            number = sum(study.replicates_of(cell, quick=quick) for cell in cells)
            sizes.append(f"{number} in {len(cells)} cells")
        rows.append((name, *sizes, study.title))
    head = ("study", "replicates", "quick", "title")
    screen.print_table(f"Studies in {studies}", head, rows, sentences=("title",))


@app.command()
def run(
    names: Names = None,
    every: All = False,
    jobs: Jobs = 1,
    threads: Threads = True,
    dask: Dask = None,
    quick: Quick = False,
    resume: Resume = False,
    output: Output = None,
    studies: Studies = HERE,
    report: Report = False,
) -> int:
    """Compute the replicates of studies. All backends give the same numbers."""
    from dpsample.experiments import run as rows
    from dpsample.experiments.configuration import bundle
    from dpsample.experiments.tasks import Backend

    # An empty address would start a cluster in this process.
    if dask is not None and not dask:
        check.fail("dask", "the address of a scheduler", repr(dask))
    kind = "threads" if threads else "processes"
    backend = Backend(jobs=jobs, kind=kind, dask=dask)  # type: ignore[arg-type]
    folder, code = output or studies / "results", 0
    for name in _chosen(studies, names, every=every):
        study_bundle = bundle(studies, name)
        path = rows.store_path(name, folder, quick=quick)
        try:
            count = rows.run(
                study_bundle, folder, quick=quick, backend=backend, resume=resume
            )
        except KeyboardInterrupt:
            print(
                f"dpsample: interrupted. Finished replicates are in {path}: "
                "go on with --resume.",
                file=sys.stderr,
            )
            raise
        screen.console().print(f"{count} replicates computed, in {path}")
        if report:
            # The exit code is 1 if any of the studies contradicts its theory.
            code |= _write(studies, name, folder, quick=quick)
    return code


@app.command()
def report(
    names: Names = None,
    every: All = False,
    quick: Quick = False,
    output: Output = None,
    studies: Studies = HERE,
) -> int:
    """Write tables and figures. The exit code is 1 if theory is contradicted."""
    folder = output or studies / "results"
    return max(
        _write(studies, name, folder, quick=quick)
        for name in _chosen(studies, names, every=every)
    )


def _chosen(studies: Path, names: list[str] | None, *, every: bool) -> list[str]:
    """Return the names of the chosen studies, after a check that all exist."""
    from dpsample.experiments.configuration import study_names

    if not (names or every):
        check.fail("names", "names of studies, or --all", "none")
    available = study_names(studies)
    if not available:
        check.fail("studies", "a folder of studies", str(studies))
    if every or names == ["all"]:
        if every and names not in (None, [], ["all"]):
            check.fail("all", "without names of studies", " ".join(names))
        return available
    chosen = names or []
    for name in chosen:
        check.one_of(tuple(available), study=name)
    return chosen


def _write(studies: Path, name: str, folder: Path, *, quick: bool) -> int:
    """Write the report of a study. Return 1 if a measurement contradicts the theory."""
    from dpsample.experiments.configuration import bundle
    from dpsample.experiments.report import write

    result = write(bundle(studies, name), folder, quick=quick)
    console = screen.console()
    for line in result.summary:
        console.print(line)
    for path in result.files:
        console.print(f"wrote {path}")
    return int(result.is_refuted)
