"""Options of ``dpsample study``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

app = typer.Typer(
    help="Monte Carlo studies: every theorem against what happens.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Names = Annotated[
    list[str], typer.Argument(help="Files of studies, without .py, or: all.")
]
Studies = Annotated[Path, Option(help="Folder of the studies.")]
Output = Annotated[
    Path | None, Option(help="Folder of rows and reports; by default STUDIES/results.")
]
Quick = Annotated[bool, Option("--quick", help="Few cells, less than a minute.")]
Jobs = Annotated[int, Option(help="Threads or processes.")]
Threads = Annotated[bool, Option("--threads/--processes", help="Kind of the jobs.")]
Dask = Annotated[str | None, Option(help="Address of a Dask scheduler, to run there.")]
Report = Annotated[bool, Option("--report", help="Then write the reports.")]
Resume = Annotated[bool, Option("--resume", help="Go on with the rows that exist.")]

HERE = Path("studies")


@app.command("list")
def show(studies: Studies = HERE) -> None:
    """List the studies."""
    from dpsample.cli import studies as command

    command.show(studies)


@app.command()
def run(
    names: Names,
    jobs: Jobs = 1,
    threads: Threads = True,
    dask: Dask = None,
    quick: Quick = False,
    resume: Resume = False,
    output: Output = None,
    studies: Studies = HERE,
    report: Report = False,
) -> int:
    """Compute the replicates of studies; all backends give the same numbers."""
    from dpsample.cli import studies as command

    backend = command.backend_of(jobs=jobs, threads=threads, dask=dask)
    code = 0
    for name in command.chosen(studies, names):
        command.run(
            studies, name, output=output, quick=quick, backend=backend, resume=resume
        )
        if report:
            code |= command.report(studies, name, output=output, quick=quick)
    return code


@app.command()
def report(
    names: Names, quick: Quick = False, output: Output = None, studies: Studies = HERE
) -> int:
    """Write tables and figures; the exit code is 1 if theory is contradicted."""
    from dpsample.cli import studies as command

    return max(
        command.report(studies, name, output=output, quick=quick)
        for name in command.chosen(studies, names)
    )
