"""``dpsample release``: from a file of records to one private parameter vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import dpsample as dps
from dpsample import _check as check
from dpsample.cli import screen
from dpsample.losses import Loss
from dpsample.results import Release
from dpsample.tables import Dataset, read_table

LOSSES = {
    "linear": dps.losses.Linear,
    "logistic": dps.losses.Logistic,
    "hinge": dps.losses.Hinge,
    "smoothed_hinge": dps.losses.SmoothedHinge,
    "absolute": dps.losses.Absolute,
    "quantile": dps.losses.Quantile,
    "huber": dps.losses.Huber,
    "squared": dps.losses.Squared,
    "power_four": dps.losses.PowerFour,
}
WITH_PARAMETER = ("smoothed_hinge", "quantile", "huber")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command, with its defaults."""

    file: Path
    radius: float
    epsilon: float
    delta: float
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
    relation: str
    p: float
    risk: str
    sampler_share: float
    output: Path | None
    evaluate: Path | None
    seed: int | None


def run(options: Options) -> None:
    """Release, print answer and certificate, save and evaluate if asked to."""
    if options.output is not None:  # a draw that cannot be saved would be lost
        screen.check_folder(options.output)
    data = read(options, options.file)
    problem = build(options, data)
    budget = dps.Budget(
        epsilon=options.epsilon,
        delta=options.delta,
        relation=options.relation,  # type: ignore[arg-type]
    )
    other = None if options.evaluate is None else read(options, options.evaluate)
    answer = dps.release(
        problem,
        budget,
        p=options.p,
        risk=options.risk,  # type: ignore[arg-type]
        sampler_share=options.sampler_share,
        seed=options.seed,
    )
    console = screen.console()
    console.print(answer.certificate)
    if options.output is None:
        pairs = zip(answer.feature_names, answer.theta, strict=True)
        rows = [(name, f"{value:.6g}") for name, value in pairs]
        console.print(screen.table("Private parameters", ("name", "value"), rows))
    else:
        answer.save(options.output)
        console.print(f"Private parameters and certificate saved: {options.output}")
    if other is not None and options.evaluate is not None:
        files = {options.file.name: data, options.evaluate.name: other}
        console.print(evaluation(answer, problem.loss, files))


def read(options: Options, path: Path) -> Dataset:
    """Read one file as the options say."""
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
    )


def loss_named(text: str) -> Loss:
    """Loss of ``name`` or ``name:parameter``."""
    name, _, parameter = text.replace("-", "_").partition(":")
    check.one_of(sorted(LOSSES), loss=name)
    if not parameter:
        return LOSSES[name]()
    if name not in WITH_PARAMETER:
        check.fail("loss", f"{name} without a parameter", text)
    try:
        number = float(parameter)
    except ValueError:
        check.fail("loss", "of the form name:number", text, "For example huber:0.5.")
    return LOSSES[name](number)  # type: ignore[call-arg]


def build(options: Options, data: Dataset) -> dps.Problem:
    """Problem of the records with declared bounds."""
    row_bound, response_bound = data.row_bound, options.response_bound
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
        response_bound=data.response_bound
        if response_bound is None
        else response_bound,
        intercept=options.intercept,
        clip_rows=options.clip_rows,
        feature_names=data.feature_names,
    )


def evaluation(answer: Release, loss: Loss, files: dict[str, Dataset]) -> object:
    """Table of mean losses, and accuracies, of the private and the best parameters."""
    diagnostics = answer.private_diagnostics or {}
    best = replace(answer, theta=diagnostics["non_private_theta"])
    head = ["records", "parameters", "mean loss"]
    if loss.is_classification:
        head.append("accuracy")
    rows = []
    for name, data in files.items():
        for words, one in (("private", answer), ("not private", best)):
            values = loss.value(one.margin(data.features), data.response)
            row = [name, words, f"{values.mean():.4f}"]
            if loss.is_classification:
                hits = one.predict(data.features) == data.response
                row.append(f"{hits.mean():.4f}")
            rows.append(row)
    return screen.table(screen.NOT_PRIVATE, head, rows)
