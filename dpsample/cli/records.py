"""From a file of records to a problem: what the commands that read one share."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import dpsample as dps
from dpsample.cli import screen
from dpsample.core import check, files
from dpsample.losses import BUILT_IN, Loss
from dpsample.tables import Dataset, read_table
from dpsample.tables.read import contents
from dpsample.tables.skeleton import skeleton


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options that say what the records are, and the problem they define."""

    file: Path
    radius: float
    loss: str
    target: str | None
    positive_label: str | None
    bounds: Path | None
    clip_rows: bool
    intercept: bool
    row_bound: float | None
    row_norm: float
    response_bound: float | None
    scale: float
    format: str | None
    num_features: int | None


def read(
    options: RecordOptions, path: Path, columns: Sequence[str] | None = None
) -> Dataset:
    """Read one file as the options say, with the columns of another if given."""
    return read_table(
        path,
        target=options.target,
        positive_label=options.positive_label,
        bounds=options.bounds,
        clip=options.clip_rows,
        row_norm=options.row_norm,
        row_bound=options.row_bound,
        scale=options.scale,
        format=options.format,
        num_features=options.num_features,
        columns=columns,
    )


def rules(data: Dataset, problem: dps.Problem) -> list[str]:
    """Say what is done to any record before the draw: public rules, never counts."""
    row, limit = problem.facts.row_bound, problem.response_bound
    outside = "scaled down to it" if problem.clip_rows else "an error"
    lines = [*data.rules, f"a row above row_bound = {row:g} is {outside}"]
    if limit is not None and limit < math.inf and not problem.loss.is_classification:
        outside = "moved to it" if problem.clip_rows else "an error"
        lines.append(f"a response beyond response_bound = {limit:g} is {outside}")
    return ["Encoding, by public rules:", *(f"  {line}" for line in lines)]


def loss_named(text: str) -> Loss:
    """Loss of ``name`` or ``name:parameter``."""
    name, _, parameter = text.replace("-", "_").partition(":")
    check.one_of(sorted(BUILT_IN), loss=name)
    if not parameter:
        return BUILT_IN[name]()
    if not fields(BUILT_IN[name]):
        check.fail("loss", f"{name} without a parameter", text)
    try:
        number = float(parameter)
    except ValueError:
        check.fail("loss", "of the form name:number", text, "For example huber:0.5.")
    return BUILT_IN[name](number)  # type: ignore[call-arg]


def build(options: RecordOptions, data: Dataset) -> dps.Problem:
    """Problem of the records with declared bounds."""
    row_bound, response_bound = data.row_bound, options.response_bound
    if response_bound is None:
        response_bound = data.response_bound
    if row_bound is None:
        remedy = "Declare --row-bound, or the ranges of all columns with --bounds."
        check.fail("row_bound", "declared", "None", remedy)
    return dps.Problem(
        data.features,
        data.response,
        loss=loss_named(options.loss),
        domain=dps.domains.Ball(options.radius),
        row_bound=row_bound,
        row_norm=options.row_norm,
        response_bound=response_bound,
        intercept=options.intercept,
        clip_rows=options.clip_rows,
        feature_names=data.feature_names,
        encoding=data.encoding,
    )


def write_skeleton(file: Path, output: Path | None, format: str | None) -> None:
    """Print a bounds file to fill in, without any value of the records, or write it.

    The output is a file that does not exist yet.
    """
    screen.check_outputs(file, output=output)
    if output is not None and output.exists():
        check.fail("output", "a new file", str(output), "It may be filled in already.")
    content, kind = contents(file, format)
    if kind == "libsvm":
        check.fail("file", "a table with named columns", "a LIBSVM file")
    text = skeleton(content, kind, file.name)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text.encode())
        screen.console().print(f"Bounds to fill in: {output}")
