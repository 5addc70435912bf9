"""Command ``dpsample fit``: the advised private model of a file of records."""

from dataclasses import dataclass, replace
from typing import Any

import dpsample as dps
from dpsample.answers.answer import Fit, Release
from dpsample.api.fit import FitPlan, plan_fit
from dpsample.cli import release, screen
from dpsample.cli.records import parse_loss
from dpsample.cli.release import AnswerOptions
from dpsample.core import check
from dpsample.privacy import LedgerFile
from dpsample.tables import Dataset, Encoding
from dpsample.tables.read import schema_of


@dataclass(frozen=True, kw_only=True)
class FitOptions(AnswerOptions):
    """Options of the command ``fit``."""

    method: str
    dry_run: bool
    num_records: int | None


def run(options: FitOptions) -> None:
    """Fit, save and show an answer and its certificate, or show the advice alone."""
    if options.dry_run:
        screen.console().print(repr(_plan(options)))
        return
    if options.num_records is not None:
        remedy = "The records are counted unless you ask for --dry-run."
        check.fail("--num-records", "left out", options.num_records, remedy)
    data = release.read_checked(options)

    def fit(problem: dps.Problem, ledger: LedgerFile | None) -> Fit | Release:
        return dps.fit(
            problem,
            options.budget,
            method=options.method,
            ledger=ledger,
            seed=options.seed,
        )

    release.publish(options, data, fit, _undo_division)


def _undo_division(data: Dataset) -> Dataset:
    """Return the records with columns in [-1, 1], as before their rows were divided.

    An encoding divides rows by the norm of a row of ones, so that no row is longer than
    1. The intercept, a column of ones, is appended later. Next to divided columns it
    would add more to the sensitivity than each of them.
    """
    encoding = data.encoding
    if encoding is None or not encoding.is_scaled or encoding.scale != 1.0:
        return data
    divisor = encoding.divisor
    bound = None if data.row_bound is None else divisor * data.row_bound
    # The factor of the encoding cancels its division, for later records as well.
    scaled = replace(encoding, scale=divisor, row_bound=bound)
    features: Any = data.features * divisor
    return replace(data, features=features, row_bound=bound, encoding=scaled)


def _plan(options: FitOptions) -> FitPlan:
    """Return what a fit would do, from declared facts: no file of records is read."""
    if options.bounds is None or options.target is None or options.num_records is None:
        remedy = "Give --bounds, --target and --num-records: no record is read."
        check.fail("--dry-run", "used with public facts", "some are missing", remedy)
    schema: Any = schema_of(options.bounds)
    columns = [
        name
        for name in schema.declared
        if schema.kind(name) != "ignore" and name != options.target
    ]
    encoding = Encoding(schema=schema, columns=tuple(columns), target=options.target)
    loss = parse_loss(options.loss)
    # Responses with a declared range are scaled to [-1, 1].
    response_bound = None if loss.is_classification else options.response_bound or 1.0
    facts = dps.PublicFacts(
        num_records=options.num_records,
        dim=len(encoding.feature_names) + int(options.intercept),
        loss=loss,
        domain=options.domain,
        # The norm of a row of ones, since `_undo_division` will be applied.
        row_bound=encoding.divisor,
        row_norm=options.row_norm,
        response_bound=response_bound,
        intercept=options.intercept,
    )
    # Rows are not divided, so the radius need not make up for a division.
    return plan_fit(facts, options.budget, row_divisor=1.0)
