"""Command ``dpsample stat``: one private statistic of a column of a file."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from dpsample import stats
from dpsample.answers.statistic import Statistic
from dpsample.cli import screen
from dpsample.cli.release import BudgetOptions, ledger_words, open_ledger
from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy import Budget, LedgerFile
from dpsample.privacy.certificates.ledger_file import remove_if_unused
from dpsample.tables import entries
from dpsample.tables.entries import ABSENT, MISSING_REMEDY, Column
from dpsample.tables.read import contents, schema_of, to_frame
from dpsample.tables.schema import Levels, Schema, level_key


@dataclass(frozen=True, kw_only=True)
class StatOptions(BudgetOptions):
    """Options of the command ``stat``."""

    statistic: str
    column: str
    by: str | None
    level: float
    value: str | None
    edges: str | None
    format: str | None


def run(options: StatOptions) -> None:
    """Release, save and show a statistic and its certificate."""
    check.one_of(tuple(STATISTICS), STATISTIC=options.statistic)
    _check_options(options)
    screen.check_outputs(
        options.file,
        options.bounds,
        output=options.output,
        overwrite=options.overwrite,
    )
    source = _Source(options)
    is_new = options.ledger is not None and not options.ledger.exists()
    ledger = open_ledger(options)
    console = screen.console()
    with remove_if_unused(ledger if is_new else None), warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: screen.tell(str(message))
        statistic = STATISTICS[options.statistic](source, ledger)
    with screen.keep_output(
        statistic.save,
        options.output,
        ".json",
        statistic.to_json,
        overwrite=options.overwrite,
    ) as path:
        console.print(str(statistic.certificate))
        if path is not None:
            console.print(f"Private statistic and certificate saved: {path}")
        elif options.output is not None:  # no file could be written
            console.print(statistic.to_json())
        else:
            _print_values(options, statistic)
        console.print(ledger_words(ledger))


def _check_options(options: StatOptions) -> None:
    """Raise for an option that the statistic needs, or does not use."""
    used = {"count": "value", "histogram": "edges", "group-means": "by"}
    for statistic, name in used.items():
        is_given = getattr(options, name) is not None
        is_needed = statistic != "histogram" and options.statistic == statistic
        if is_given and options.statistic != statistic:
            got = f"with {options.statistic}"
            check.fail(f"--{name}", f"used with {statistic}", got)
        if is_needed and not is_given:
            check.fail(f"--{name}", f"given for {statistic}", "none")


def _print_values(options: StatOptions, statistic: Statistic) -> None:
    """Print the private numbers by name."""
    rows = [[name, f"{number:.10g}"] for name, number in statistic.named_values()]
    head = ["name", options.column]
    if statistic.counts is not None:
        head.append("count")
        counts = map(str, statistic.counts.values())
        rows = [[*row, count] for row, count in zip(rows, counts, strict=True)]
    screen.print_table("Private statistic", head, rows)


class _Spending(TypedDict):
    """Arguments that all statistics have."""

    budget: Budget
    ledger: LedgerFile | None
    seed: int | None


class _Source:
    """Columns of the file, by the public rules of the bounds file."""

    def __init__(self, options: StatOptions) -> None:
        self.options = options
        self.schema = schema_of(options.bounds) or Schema()
        content, kind = contents(options.file, options.format)
        if kind == "libsvm":
            check.fail("file", "a table with named columns", "a LIBSVM file")
        frame = to_frame(content, kind, self.schema, options.file.name)
        self.table = entries.columns_of(frame)

    def _column(self, name: str) -> Column:
        """Return a column, which the table must have."""
        if name not in self.table:
            names = ", ".join(map(check.describe, [*self.table][:6]))
            condition = f"one of the file, which has {names}"
            check.fail(f"column {check.describe(name)}", condition, "another name")
        return self.table[name]

    def numbers(self) -> Array:
        """Return the numbers of the column. Its rule replaces missing ones."""
        name, schema = self.options.column, self.schema
        column = self._column(name)
        self.bounds  # noqa: B018 - a column without bounds is rejected first
        values = entries.numbers(column, schema.file)
        is_missing = np.isnan(values)
        if name in schema.missing:
            values[is_missing] = schema.missing[name]
        else:
            column.reject(is_missing, "complete", MISSING_REMEDY)
        return values

    @property
    def bounds(self) -> tuple[float, float]:
        """Public range of the column."""
        name = self.options.column
        ends = self.schema.numeric.get(name) or self.schema.log.get(name)
        if ends is None:
            condition = "declared with its range below [numeric] or [log]"
            check.fail(
                f"column {check.describe(name)}",
                condition,
                "nothing",
                "See dpsample bounds.",
            )
        return ends

    def levels(self, name: str) -> Levels:
        """Return the public levels of a column."""
        levels = self.schema.categorical.get(name)
        if levels is None:
            condition = "declared with its levels below [categorical]"
            check.fail(
                f"column {check.describe(name)}",
                condition,
                "nothing",
                "See dpsample bounds.",
            )
        return levels

    def labels(self, name: str) -> list[object]:
        """Return the level of each record, None where it has no declared one."""
        levels, column = self.levels(name), self._column(name)
        codes = entries.codes(column, levels, self.schema.file)
        if name in self.schema.missing:
            keys = [level_key(level) for level in levels]
            codes[codes == ABSENT] = keys.index(level_key(self.schema.missing[name]))
        else:
            column.reject(codes == ABSENT, "complete", MISSING_REMEDY)
        return [levels[code] if code >= 0 else None for code in codes]

    def spend(self, ledger: LedgerFile | None) -> _Spending:
        """Return the arguments that all statistics have."""
        options = self.options
        return _Spending(budget=options.budget, ledger=ledger, seed=options.seed)


def _count(source: _Source, ledger: LedgerFile | None) -> Statistic:
    column, value = source.options.column, source.options.value
    levels = source.levels(column)
    code = entries.codes(Column("--value", [value]), levels, source.schema.file)[0]
    if code < 0:
        got = ", ".join(map(check.describe, levels[:4]))
        check.fail("--value", f"a public level of {column}, as {got}", value)
    mask = np.array([label == levels[code] for label in source.labels(column)])
    return stats.count(mask, **source.spend(ledger))


def _histogram(source: _Source, ledger: LedgerFile | None) -> Statistic:
    column, edges = source.options.column, source.options.edges
    if edges is None:
        levels = source.levels(column)
        return stats.histogram(
            source.labels(column), levels=levels, **source.spend(ledger)
        )
    try:
        ends = [float(text) for text in edges.split(",")]
    except ValueError:
        check.fail("--edges", "numbers with commas, as 0,10,20", edges)
    return stats.histogram(source.numbers(), edges=ends, **source.spend(ledger))


def _sum(source: _Source, ledger: LedgerFile | None) -> Statistic:
    return stats.sum(source.numbers(), source.bounds, **source.spend(ledger))


def _mean(source: _Source, ledger: LedgerFile | None) -> Statistic:
    return stats.mean(source.numbers(), source.bounds, **source.spend(ledger))


def _quantile(source: _Source, ledger: LedgerFile | None) -> Statistic:
    level = source.options.level
    return stats.quantile(
        source.numbers(), level, source.bounds, **source.spend(ledger)
    )


def _group_means(source: _Source, ledger: LedgerFile | None) -> Statistic:
    by = str(source.options.by)
    return stats.group_means(
        source.numbers(),
        source.labels(by),
        source.bounds,
        levels=source.levels(by),
        **source.spend(ledger),
    )


STATISTICS: dict[str, Callable[[_Source, LedgerFile | None], Statistic]] = {
    "count": _count,
    "histogram": _histogram,
    "sum": _sum,
    "mean": _mean,
    "quantile": _quantile,
    "group-means": _group_means,
}
