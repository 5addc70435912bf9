"""``dpsample release``: from a file of records to one private parameter vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import dpsample as dps
from dpsample.cli import screen
from dpsample.cli.records import RecordOptions, build, read
from dpsample.losses import Loss
from dpsample.results import Release
from dpsample.tables import Dataset


@dataclass(frozen=True, kw_only=True)
class Options(RecordOptions):
    """Options of the command, with its defaults."""

    epsilon: float
    delta: float
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


def evaluation(answer: Release, loss: Loss, files: dict[str, Dataset]) -> object:
    """Table of mean losses, and accuracies, of the private and the best parameters."""
    diagnostics = answer.nonprivate_diagnostics or {}
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
