"""What is known of a study: rows, means beside theory, fitted exponents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from dpsample.studying.configuration import code_digest
from dpsample.studying.loading import Bundle, load
from dpsample.studying.running import declared, store_path
from dpsample.studying.slopes import Fit, fits
from dpsample.studying.store import Run, opened
from dpsample.studying.study import Study
from dpsample.studying.summaries import Comparison, comparisons, estimates
from dpsample.studying.tasks import Row


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that is known of a study."""

    study: Study
    quick: bool
    rows: Sequence[Row]
    runs: Sequence[Run]
    lines: Sequence[Comparison]
    fits: Sequence[Fit]
    has_changed: bool

    @property
    def counts(self) -> Counter[str]:
        """How often there is each verdict."""
        return Counter(line.verdict for line in self.lines if line.verdict)

    @property
    def num_rows(self) -> int:
        """Declared replicates that there are."""
        return sum(row.replicate < self._wanted.get(row.key, 0) for row in self.rows)

    @property
    def num_others(self) -> int:
        """Replicates of cells that are not declared here, with what is installed."""
        return sum(row.key not in self._wanted for row in self.rows)

    @property
    def num_wanted(self) -> int:
        """Replicates that a complete run has."""
        return sum(self._wanted.values())

    @cached_property
    def _wanted(self) -> dict[str, int]:
        cells = self.study.cells(quick=self.quick)
        number = partial(self.study.replicates_of, quick=self.quick)
        return {cell.key: number(cell) for cell in cells}

    @property
    def refuted(self) -> list[Comparison]:
        """Measurements that contradict the theory."""
        return [line for line in self.lines if line.is_refuted]


def results(given: Bundle, output: Path, *, quick: bool = False) -> Results:
    """Read the rows of a study and compare them with its theory."""
    study = load(given)
    with opened(store_path(study.name, output, quick=quick)) as store:
        rows, runs = store.rows(), store.runs()
    found, digest = estimates(study, rows, quick=quick), code_digest(given)
    return Results(
        study=study,
        quick=quick,
        rows=rows,
        runs=runs,
        lines=comparisons(found, _reasons(study, runs, quick=quick)),
        fits=fits(study, found),
        has_changed=any(run.configuration["code"] != digest for run in runs),
    )


def _reasons(
    study: Study, runs: Sequence[Run], *, quick: bool
) -> dict[str, dict[str, str]]:
    """Reasons by cell and metric; what no run declared beforehand is marked."""
    found = declared(study, quick=quick)
    for key, reasons in found.items():
        for metric, reason in reasons.items():
            if any(_reason(run.declared, key, metric) != reason for run in runs):
                reasons[metric] = f"{reason} (DECLARED AFTER THE RUN)"
    return found


def _reason(
    reasons: Mapping[str, Mapping[str, str]], key: str, metric: str
) -> str | None:
    return reasons.get(key, {}).get(metric)
