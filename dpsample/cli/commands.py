"""Commands and their options. The modules of this folder carry them out.

These are imported inside the commands, so that ``--help`` appears at once. Only
`studies` is imported here, because it declares the group of commands ``study``.

A parameter of a command is an option of the same name, with its default. Its type has
the help text. The number that a command returns is the exit code, see `cli.main`.
"""

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dpsample.cli import studies
from dpsample.core.public import __version__

app = typer.Typer(
    help="Differentially private parameters with a certificate.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(studies.app, name="study")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"dpsample {__version__}")
        raise typer.Exit


# Types of arguments and options, which several commands share. Each has a short line of
# help. First those of ``release`` and of commands that read its output.
File = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or LIBSVM records.")]
Target = Annotated[str | None, Option(help="Response column.")]
Loss = Annotated[str, Option(help="logistic, hinge, absolute, quantile:0.9, ...")]
Version = Annotated[
    bool,
    Option("--version", is_eager=True, callback=_print_version, help="Show and exit."),
]
Saved = Annotated[Path, typer.Argument(help="File of dpsample release --output.")]
Predictions = Annotated[Path | None, Option("--output", help="CSV file to write.")]
Skeleton = Annotated[Path | None, Option("--output", help="TOML file to write.")]
Answer = Annotated[
    Path, typer.Argument(help="JSON of a release or a certificate; - is stdin.")
]
Page = Annotated[Path | None, Option(help="HTML page to write, to be published.")]
Publisher = Annotated[
    Path | None,
    Option(help="TOML file of purpose, controller, record, ... for the page."),
]
Details = Annotated[bool, Option("--details", help="Numbers, theorems, assumptions.")]
AsJson = Annotated[bool, Option("--json", help="The certificate, in full precision.")]
Checker = Annotated[str, Option(help="standard, or ball: proof by ball arithmetic.")]
Epsilon = Annotated[float, Option(help="Privacy budget epsilon.")]
Delta = Annotated[float, Option(help="Privacy budget delta.")]
Radius = Annotated[float, Option(help="Radius of the ball of parameters.")]
AnyRadius = Annotated[
    float | None, Option("--radius", help="Radius of the ball, chosen by default.")
]
Method = Annotated[str, Option(help="auto, objective, tail, release, ...")]
WithIntercept = Annotated[bool, Option(help="Append a constant 1.")]
AlwaysClip = Annotated[
    bool, Option("--clip-rows/--no-clip-rows", help="Clip what exceeds its bound.")
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Show the advice, and read no record.")
]
NumRecords = Annotated[int | None, Option(help="Their number, for --dry-run.")]
Relation = Annotated[str, Option(help="Neighbors: replace_one or zero_out.")]
P = Annotated[float, Option("--p", help="Norm of sensitivity and regularizer.")]
Risk = Annotated[str, Option(help="population or empirical.")]
SamplerShare = Annotated[float, Option(help="Part of delta for the sampler.")]
Positive = Annotated[str | None, Option(help="Label that becomes 1, others -1.")]
Bounds = Annotated[Path | None, Option(help="Public ranges and levels (TOML, JSON).")]
ClipRows = Annotated[bool, Option("--clip-rows", help="Clip what exceeds its bound.")]
Intercept = Annotated[bool, Option("--intercept", help="Append a constant 1.")]
RowBound = Annotated[float | None, Option(help="Public bound of a scaled row.")]
RowNorm = Annotated[float, Option(help="Exponent of the rows' norm.")]
ResponseBound = Annotated[float | None, Option(help="Public bound of |response|.")]
Scale = Annotated[float, Option(help="Public factor of all features.")]
Format = Annotated[str | None, Option(help="csv, tsv, parquet or libsvm.")]
NumFeatures = Annotated[int | None, Option(help="Columns of a LIBSVM file.")]
Output = Annotated[Path | None, Option(help="JSON file for answer and certificate.")]
Evaluate = Annotated[Path | None, Option(help="Records to evaluate on: NOT PRIVATE.")]
LedgerPath = Annotated[
    Path | None, Option("--ledger", help="JSON file that adds up all releases.")
]
LedgerEpsilon = Annotated[float | None, Option(help="Its total, when it is made.")]
LedgerDelta = Annotated[float | None, Option(help="Its total delta, likewise.")]
Seed = Annotated[int | None, Option(help="Reproducible, hence not releasable.")]
# ``stat`` has in addition or instead: delta is 0.
Statistic = Annotated[
    str,
    typer.Argument(help="count, histogram, sum, mean, quantile or group-means."),
]
StatColumn = Annotated[str, Option("--column", help="Column of the statistic.")]
By = Annotated[str | None, Option(help="Column of groups, for group-means.")]
Level = Annotated[float, Option(help="Level of the quantile, 0.5 is the median.")]
Value = Annotated[str | None, Option(help="Declared level to be counted.")]
Edges = Annotated[str | None, Option(help="Ends of cells of a histogram, as 0,10,20.")]
StatBounds = Annotated[Path, Option("--bounds", help="Public ranges and levels.")]
StatOutput = Annotated[Path | None, Option("--output", help="JSON file to write.")]
# ``sample`` has in addition or instead: a budget is optional, because k and mu may be
# given, and the seed is not secret, because draws for study are not released.
OwnEpsilon = Annotated[float | None, Option(help="Budget of the release to study.")]
OwnDelta = Annotated[float | None, Option(help="Its delta.")]
K = Annotated[float | None, Option("--k", help="Inverse temperature; with --mu.")]
Mu = Annotated[float | None, Option(help="Weight of the regularizer.")]
Sampler = Annotated[str, Option(help="auto, mala, tilted-gibbs, proximal, ...")]
Draws = Annotated[int, Option(help="Draws per chain.")]
Warmup = Annotated[int | None, Option(help="Draws discarded first.")]
Chains = Annotated[int, Option(help="Number of chains.")]
Threads = Annotated[int | None, Option(help="Number of threads.")]
TargetEss = Annotated[float | None, Option(help="Draw until ESS is this for all.")]
MaxSeconds = Annotated[float | None, Option(help="Keep the draws made until then.")]
Checkpoint = Annotated[Path | None, Option(help="File to go on from.")]
Study = Annotated[Path | None, Option("--output", help="netCDF file: NOT PRIVATE.")]
ChainSeed = Annotated[int, Option(help="Seed of the chains.")]
# The other commands.
DemoPage = Annotated[
    Path | None,
    Option("--output", help="HTML page to write, by default dpsample-demo.html."),
]
Paper = Annotated[
    str | None,
    Option(help="bassily, gopi, su, xie or xu (first authors), by default all five."),
]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace an existing output.")]
Causes = Annotated[bool, Option("--causes", help="Print the causes of the verdicts.")]
Code = Annotated[str | None, typer.Argument(help="GLLST-E1, BFTT-4, gradient-E15...")]
Markdown = Annotated[bool, Option("--markdown", help="Print Markdown.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
Everything = Annotated[bool, Option("--everything", help="Every sampler and piece.")]


@app.callback()
def options(version: Version = False) -> None:
    """Differentially private parameters with a certificate."""
    # The callback of the option has shown it and ended the command.
    del version


@app.command()
def fit(
    file: File,
    epsilon: Epsilon,
    delta: Delta,
    loss: Loss = "logistic",
    target: Target = None,
    positive_label: Positive = None,
    bounds: Bounds = None,
    method: Method = "auto",
    radius: AnyRadius = None,
    intercept: WithIntercept = True,
    clip_rows: AlwaysClip = True,
    row_bound: RowBound = None,
    row_norm: RowNorm = 2.0,
    response_bound: ResponseBound = None,
    format: Format = None,
    num_features: NumFeatures = None,
    relation: Relation = "replace_one",
    output: Output = None,
    overwrite: Overwrite = False,
    evaluate: Evaluate = None,
    ledger: LedgerPath = None,
    ledger_epsilon: LedgerEpsilon = None,
    ledger_delta: LedgerDelta = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    num_records: NumRecords = None,
) -> None:
    """Fit a private model of the records in FILE, by the advised method."""
    # The arguments, before any other name is bound. `FitOptions` has a field for each
    # of them.
    options = locals()
    from dpsample.cli.fit import FitOptions, run

    run(FitOptions(scale=1.0, **options))


@app.command()
def release(
    file: File,
    radius: Radius,
    epsilon: Epsilon,
    delta: Delta,
    loss: Loss = "logistic",
    target: Target = None,
    positive_label: Positive = None,
    bounds: Bounds = None,
    clip_rows: ClipRows = False,
    intercept: Intercept = False,
    row_bound: RowBound = None,
    row_norm: RowNorm = 2.0,
    response_bound: ResponseBound = None,
    scale: Scale = 1.0,
    format: Format = None,
    num_features: NumFeatures = None,
    relation: Relation = "replace_one",
    p: P = 2.0,
    risk: Risk = "population",
    sampler_share: SamplerShare = 0.1,
    output: Output = None,
    overwrite: Overwrite = False,
    evaluate: Evaluate = None,
    ledger: LedgerPath = None,
    ledger_epsilon: LedgerEpsilon = None,
    ledger_delta: LedgerDelta = None,
    seed: Seed = None,
) -> None:
    """Release one private parameter vector of the records in FILE."""
    # The arguments, before any other name is bound. `ReleaseOptions` has a field for
    # each of them.
    options = locals()
    from dpsample.cli.release import ReleaseOptions, run

    run(ReleaseOptions(**options))


@app.command()
def stat(
    file: File,
    statistic: Statistic,
    column: StatColumn,
    bounds: StatBounds,
    epsilon: Epsilon,
    level: Level = 0.5,
    by: By = None,
    value: Value = None,
    edges: Edges = None,
    format: Format = None,
    relation: Relation = "replace_one",
    output: StatOutput = None,
    overwrite: Overwrite = False,
    ledger: LedgerPath = None,
    ledger_epsilon: LedgerEpsilon = None,
    ledger_delta: LedgerDelta = None,
    seed: Seed = None,
) -> None:
    """Release one private STATISTIC of a column of FILE, with delta = 0."""
    # The arguments, before any other name is bound. `StatOptions` has a field for each
    # of them.
    options = locals()
    from dpsample.cli.stat import StatOptions, run

    run(StatOptions(delta=0.0, **options))


@app.command()
def verify(file: Answer, checker: Checker = "standard") -> int:
    """Recompute a certificate. The exit code is 1 if it does not hold."""
    from dpsample.cli.verify import run

    return run(file, checker)


@app.command()
def predict(
    answer: Saved,
    file: File,
    output: Predictions = None,
    format: Format = None,
    overwrite: Overwrite = False,
) -> None:
    """Predict the records in FILE, which need no response, by a saved ANSWER."""
    from dpsample.cli import release

    release.predict(answer, file, output, format, overwrite=overwrite)


@app.command()
def bounds(
    file: File,
    output: Skeleton = None,
    format: Format = None,
    overwrite: Overwrite = False,
) -> None:
    """Write what a bounds file needs: the columns of FILE, and none of its values."""
    from dpsample.cli.records import write_skeleton

    write_skeleton(file, output, format, overwrite=overwrite)


@app.command()
def certificate(
    file: Answer,
    *,
    details: Details = False,
    as_json: AsJson = False,
    html: Page = None,
    publisher: Publisher = None,
    overwrite: Overwrite = False,
) -> int:
    """Print a certificate, or write a page about it. The exit code is as of verify."""
    from dpsample.cli.verify import show

    forms = {"details": details, "json": as_json}
    return show(file, html, forms, publisher=publisher, overwrite=overwrite)


@app.command()
def sample(
    file: File,
    radius: Radius,
    epsilon: OwnEpsilon = None,
    delta: OwnDelta = None,
    k: K = None,
    mu: Mu = None,
    loss: Loss = "logistic",
    target: Target = None,
    positive_label: Positive = None,
    bounds: Bounds = None,
    clip_rows: ClipRows = False,
    intercept: Intercept = False,
    row_bound: RowBound = None,
    row_norm: RowNorm = 2.0,
    response_bound: ResponseBound = None,
    scale: Scale = 1.0,
    format: Format = None,
    num_features: NumFeatures = None,
    relation: Relation = "replace_one",
    p: P = 2.0,
    risk: Risk = "population",
    sampler_share: SamplerShare = 0.1,
    sampler: Sampler = "auto",
    draws: Draws = 1000,
    warmup: Warmup = None,
    chains: Chains = 4,
    threads: Threads = None,
    target_ess: TargetEss = None,
    max_seconds: MaxSeconds = None,
    checkpoint: Checkpoint = None,
    output: Study = None,
    overwrite: Overwrite = False,
    seed: ChainSeed = 0,
) -> int:
    """Draw many times from the density of a release, for study: NOT PRIVATE."""
    # The arguments, before any other name is bound. `SampleOptions` has a field for
    # each of them.
    options = locals()
    from dpsample.cli.sample import SampleOptions, run

    return run(SampleOptions(**options))


@app.command()
def demo(output: DemoPage = None, overwrite: Overwrite = False) -> None:
    """Fit a private model of 10,000 synthetic records, and write its page."""
    from dpsample.cli.demo import run

    run(output, overwrite=overwrite)


@app.command()
def claims(paper: Paper = None, markdown: Markdown = False, json: Json = False) -> None:
    """Compare the published noise formulas of five papers with their true epsilon."""
    from dpsample.cli.claims import run

    run(paper, markdown=markdown, as_json=json)


@app.command()
def errata(code: Code = None, markdown: Markdown = False) -> None:
    """Print the errata of five papers, or one erratum."""
    from dpsample.cli.claims import print_errata

    print_errata(code, markdown=markdown)


@app.command()
def papers(
    paper: Paper = None,
    causes: Causes = False,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """Print verdict and class of every numbered item of five papers."""
    from dpsample.cli.claims import print_items

    print_items(paper, markdown=markdown, as_json=json, causes=causes)


@app.command()
def warm(everything: Everything = False) -> None:
    """Compile ahead what is usually needed, so that later processes start at once."""
    from dpsample.api.warm import warm
    from dpsample.cli import screen
    from dpsample.core.cache import CACHE_DIRECTORY

    console = screen.console()
    # Compilation uses one thread, so each processor compiles in a process of its own.
    count = warm(
        lambda name, left: console.print(f"compiling {name}, {left} parts left"),
        processes=os.cpu_count() or 1,
        is_whole=everything,
    )
    console.print(f"{count} parts are compiled and cached in {CACHE_DIRECTORY}")
