"""``dpsample release``: from a file of records to one private parameter vector."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import dpsample as dps
from dpsample.cli import screen
from dpsample.cli.records import RecordOptions, build, read, rules
from dpsample.privacy.budget import Relation
from dpsample.privacy.certificates.terms import Risk
from dpsample.tables import Dataset
from dpsample.verbs.results import Release


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(RecordOptions):
    """Options of the command, with its defaults."""

    epsilon: float
    delta: float
    relation: Relation
    p: float
    risk: Risk
    sampler_share: float
    output: Path | None
    evaluate: Path | None
    seed: int | None


def run(options: ReleaseOptions) -> None:
    """Release, save and print answer and certificate, evaluate if asked to.

    Everything that can be wrong is found before the draw; after it, nothing loses it.
    """
    inputs = (options.file, options.evaluate, options.bounds)
    screen.check_outputs(*inputs, output=options.output)
    data = read(options, options.file)
    problem = build(options, data)
    problems = [(options.file.name, problem)]
    if options.evaluate is not None:
        other = evaluated(options, options.evaluate, data)
        problems.append((options.evaluate.name, other))
    budget = dps.Budget(
        epsilon=options.epsilon, delta=options.delta, relation=options.relation
    )
    console = screen.console()
    console.print("\n".join(rules(data, problem)))
    answer = dps.release(
        problem,
        budget,
        p=options.p,
        risk=options.risk,
        sampler_share=options.sampler_share,
        seed=options.seed,
    )
    with screen.kept(answer.save, options.output, ".json", answer.to_json) as place:
        console.print(answer.certificate)
        if place is not None:
            console.print(f"Private parameters and certificate saved: {place}")
        elif options.output is not None:  # there was room for no file at all
            console.print(answer.to_json())
        else:
            pairs = zip(answer.feature_names, answer.theta, strict=True)
            rows = [(name, f"{value:.6g}") for name, value in pairs]
            console.print(screen.table("Private parameters", ("name", "value"), rows))
        if options.evaluate is not None:
            console.print(evaluation(answer, problems))


def evaluated(options: ReleaseOptions, path: Path, data: Dataset) -> dps.Problem:
    """Read and check the second file as the first was, columns matched by name."""
    try:
        return build(options, read(options, path, data.columns))
    except ValueError as error:
        raise ValueError(f"--evaluate {path}: {error}") from error


def evaluation(answer: Release, problems: list[tuple[str, dps.Problem]]) -> object:
    """Table of mean losses, and accuracies, of the private and the best parameters."""
    diagnostics = answer.nonprivate_diagnostics or {}
    best = replace(answer, theta=diagnostics["non_private_theta"])
    is_classification = answer.certificate.facts.loss.is_classification
    head = ["records", "parameters", "mean loss"]
    if is_classification:
        head.append("accuracy")
    rows = []
    for name, problem in problems:
        for which, one in (("private", answer), ("not private", best)):
            row = [name, which, f"{problem.risk(one.theta):.4f}"]
            if is_classification:
                labels = np.where(problem.margins(one.theta) >= 0.0, 1.0, -1.0)
                row.append(f"{(labels == problem.data.response).mean():.4f}")
            rows.append(row)
    return screen.table(screen.NOT_PRIVATE, head, rows)
