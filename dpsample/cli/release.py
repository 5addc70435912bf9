"""Commands ``dpsample release`` (one private vector) and ``predict`` (from it)."""

import csv
import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.answers.answer import Fit, Release, load_answer
from dpsample.answers.predictions import LOG_ODDS, probabilities
from dpsample.cli import screen
from dpsample.cli.records import RecordOptions, build, describe_rules, read
from dpsample.core import check, files
from dpsample.core.arrays import Array
from dpsample.core.sparse import Rows
from dpsample.numerics import norms
from dpsample.privacy import LedgerFile
from dpsample.privacy.budget import Relation
from dpsample.privacy.certificates.ledger_file import read_ledger, remove_if_unused
from dpsample.privacy.certificates.terms import Risk
from dpsample.tables import Dataset, Encoding
from dpsample.tables.encoding import clip_rows
from dpsample.tables.read import contents, parse_libsvm, to_frame


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Options of commands that spend a budget on a file of records."""

    file: Path
    bounds: Path | None
    epsilon: float
    delta: float
    relation: Relation
    output: Path | None
    overwrite: bool
    evaluate: Path | None = None
    ledger: Path | None
    ledger_epsilon: float | None
    ledger_delta: float | None
    seed: int | None

    @property
    def budget(self) -> dps.Budget:
        """Budget of the release."""
        epsilon, delta = self.epsilon, self.delta
        return dps.Budget(epsilon=epsilon, delta=delta, relation=self.relation)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(RecordOptions, BudgetOptions):
    """Options of commands that make private parameters."""


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(AnswerOptions):
    """Options of the command ``release``."""

    p: float
    risk: Risk
    sampler_share: float


def run(options: ReleaseOptions) -> None:
    """Release, save and show an answer and its certificate, and evaluate it."""
    data = read_checked(options)

    def release(problem: dps.Problem, ledger: LedgerFile | None) -> Release:
        return dps.release(
            problem,
            options.budget,
            p=options.p,
            risk=options.risk,
            sampler_share=options.sampler_share,
            ledger=ledger,
            seed=options.seed,
        )

    publish(options, data, release)


def read_checked(options: AnswerOptions) -> Dataset:
    """Read the records, after a look at the files that will be written."""
    inputs = (options.file, options.evaluate, options.bounds)
    screen.check_outputs(*inputs, output=options.output, overwrite=options.overwrite)
    return read(options, options.file)


def publish(
    options: AnswerOptions,
    data: Dataset,
    make_answer: Callable[[dps.Problem, LedgerFile | None], Release | Fit],
    adapt: Callable[[Dataset], Dataset] = lambda data: data,
) -> None:
    """Make an answer of the records, save and show it, and evaluate it.

    Errors of the user are found before the answer is made. After it, no failure loses
    the answer. ``adapt`` changes records of either file by public rules.
    """
    problem = build(options, adapt(data))
    problems = [(options.file.name, problem)]
    if options.evaluate is not None:
        other = read_evaluation(options, options.evaluate, data, adapt)
        problems.append((options.evaluate.name, other))
    is_new = options.ledger is not None and not options.ledger.exists()
    ledger = open_ledger(options)
    console = screen.console()
    console.print("\n".join(describe_rules(data, problem)))
    # The budget of an answer that is replaced stays spent, which is reported.
    had_answer = options.output is not None and options.output.exists()
    with remove_if_unused(ledger if is_new else None), warnings.catch_warnings():
        # Warnings are shown on stderr even if PYTHONWARNINGS would hide them or turn
        # them into errors.
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: screen.tell(str(message))
        answer = make_answer(problem, ledger)
    with screen.keep_output(
        answer.save,
        options.output,
        ".json",
        answer.to_json,
        overwrite=options.overwrite,
    ) as path:
        certificate: Any = answer.certificate  # there is one, as there is a budget
        console.print(str(certificate))
        if path is not None:
            console.print(f"Private parameters and certificate saved: {path}")
            if had_answer and path == options.output:  # not in a spare file
                console.print(
                    "The answer in that file is replaced. Its budget stays spent."
                )
        elif options.output is not None:  # no file could be written
            console.print(answer.to_json())
        else:
            print_parameters(answer)
        console.print(ledger_words(ledger))
        if options.evaluate is not None:
            print_evaluation(answer, problems)


def print_parameters(answer: Release | Fit) -> None:
    """Print the table of named private parameters."""
    pairs = zip(answer.feature_names, answer.theta, strict=True)
    rows = [(name, f"{value:.6g}") for name, value in pairs]
    screen.print_table("Private parameters", ("name", "value"), rows)


def open_ledger(options: BudgetOptions) -> LedgerFile | None:
    """Open the ledger of a command, or make it with a total if there is none.

    An existing ledger has its own total, which the options may repeat.
    """
    path, relation = options.ledger, options.relation
    epsilon, delta = options.ledger_epsilon, options.ledger_delta
    if path is None:
        if (epsilon, delta) != (None, None):
            remedy = "Name the file with --ledger, or leave its total out."
            check.fail("--ledger", "given with a total", "none", remedy)
        return None
    others = (options.file, options.evaluate, options.bounds, options.output)
    screen.check_outputs(*others, ledger=path)
    if path.exists():
        existing = read_ledger(path, "--ledger")
        if existing.relation != relation:
            remedy = "Pass its own with --relation, or start another."
            condition = f"a ledger under {relation!r}"
            check.fail(
                "--ledger", condition, f"{path} under {existing.relation!r}", remedy
            )
        total = existing.budget
        if total is None:
            remedy = "Start another one, with --ledger-epsilon and --ledger-delta."
            check.fail(str(path), "a ledger with a total", "one without", remedy)
        if epsilon not in (None, total.epsilon) or delta not in (None, total.delta):
            remedy = "Leave --ledger-epsilon and --ledger-delta out, or start another."
            check.fail(
                str(path), "a ledger with the total that is given", total, remedy
            )
        return LedgerFile(path, relation=relation, budget=total)
    if epsilon is None or delta is None:
        remedy = "Add --ledger-epsilon and --ledger-delta, the total for all releases."
        check.fail("a new --ledger", "made with its total", "none", remedy)
    whole = dps.Budget(epsilon=epsilon, delta=delta, relation=relation)
    return LedgerFile(path, relation=relation, budget=whole)


def ledger_words(ledger: LedgerFile | None) -> str:
    """Return a summary of the ledger and its remaining budget."""
    if ledger is None:
        return (
            "Not in a ledger: releases of the same records add up. Keep their total "
            "with --ledger FILE."
        )
    ledger_now = ledger.read()
    head = f"Ledger {ledger.path}: {len(ledger_now.entries)} release(s)."
    return "\n".join([head, *ledger_now.totals()])


def read_evaluation(
    options: AnswerOptions,
    path: Path,
    data: Dataset,
    adapt: Callable[[Dataset], Dataset],
) -> dps.Problem:
    """Read and check the second file as the first was, columns matched by name."""
    try:
        return build(options, adapt(read(options, path, data.columns)))
    except ValueError as error:
        raise ValueError(f"--evaluate {path}: {error}") from error


def print_evaluation(
    answer: Release | Fit, problems: list[tuple[str, dps.Problem]]
) -> None:
    """Print mean losses, and accuracies, of the private and the best parameters.

    A draw knows the best ones. A fit is compared with the coefficients 0.
    """
    is_drawn = isinstance(answer, Release)
    other = np.zeros_like(answer.theta)
    if isinstance(answer, Release):
        other = (answer.nonprivate_diagnostics or {})["non_private_theta"]
    name_of_other = "not private" if is_drawn else "all 0"
    is_classification = problems[0][1].loss.is_classification
    head = ["records", "parameters", "mean loss"]
    if is_classification:
        head.append("accuracy")
    rows = []
    for name, problem in problems:
        for which, theta in (("private", answer.theta), (name_of_other, other)):
            row = [name, which, f"{problem.risk(theta):.4f}"]
            if is_classification:
                labels = np.where(problem.margins(theta) >= 0.0, 1.0, -1.0)
                row.append(f"{(labels == problem.data.response).mean():.4f}")
            rows.append(row)
    screen.print_table(screen.NOT_PRIVATE, head, rows)


def predict(
    answer: Path,
    file: Path,
    output: Path | None,
    format: str | None,
    *,
    overwrite: bool = False,
) -> None:
    """Write the predictions of a saved answer for new records.

    A line on stderr reports clipped values.
    """
    screen.check_outputs(answer, file, output=output, overwrite=overwrite)
    release = load_answer(answer)
    facts = release.public_facts
    if facts.offset_bound > 0.0:
        remedy = "Use predict(features, offset=...) in Python."
        check.fail("the answer", "of a model without an offset", "one with", remedy)
    names = release.feature_names[: facts.dim - int(facts.intercept)]
    # Without an encoding, columns are matched by their names and used as they are.
    encoding = release.encoding or Encoding(schema=None, columns=names)
    with warnings.catch_warnings(record=True) as clipping_warnings:
        warnings.simplefilter("always", RuntimeWarning)
        margins = release.margin(rows_of(file, encoding, format))
    for warning in clipping_warnings:
        screen.tell(str(warning.message))
    text = as_csv(release, encoding, margins)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text.encode(), is_private=True)
        screen.console().print(f"{len(margins)} predictions saved: {output}")


def rows_of(file: Path, encoding: Encoding, format: str | None) -> Rows:
    """Encode a file of new records."""
    content, kind = contents(file, format)
    if kind == "libsvm":
        # LIBSVM files number their columns from 1.
        numbers = tuple(str(j + 1) for j in range(len(encoding.columns)))
        is_named = encoding.target is not None and encoding.columns != numbers
        if encoding.is_scaled or is_named:
            got = "a LIBSVM file, which has no names"
            check.fail("file", "a table, as the answer's records were", got)
        rows, _ = parse_libsvm(content, encoding, source=file.name)
        norm = partial(norms.norm, p=encoding.row_norm)
        return clip_rows(rows, encoding.row_bound, norm)
    frame = to_frame(content, kind, encoding.schema, file.name, encoding.target)
    return encoding.new_features(frame)


def as_csv(release: Release | Fit, encoding: Encoding, margins: Array) -> str:
    """Return predictions and, if margins are log-odds, probabilities, as CSV."""
    loss = release.public_facts.loss
    columns: dict[str, Any] = {
        "prediction": encoding.raw_response(margins, is_label=loss.is_classification)
    }
    if isinstance(loss, LOG_ODDS):
        columns["probability"] = probabilities(margins)[:, 1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))
    return text.getvalue()
