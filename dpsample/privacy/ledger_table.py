"""A ledger as a table of plain text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpsample.privacy.accounting import epsilon_of
from dpsample.privacy.words import round_up

if TYPE_CHECKING:
    from dpsample.privacy.entries import Entry
    from dpsample.privacy.ledger import Ledger

HEADER = ("", "release", "epsilon alone", "state")


def ledger_table(ledger: Ledger) -> str:
    """Return the entries, the total, what remains and the warnings."""
    rows = [HEADER] + [
        (str(number), entry.label or entry.what, _alone(entry, ledger), _state(entry))
        for number, entry in enumerate(ledger.entries, 1)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    head = f"Ledger under {ledger.relation}, {len(ledger.entries)} releases"
    words = [f"Warning: {warning}" for warning in ledger.warnings]
    return "\n".join(
        [head, *(line.rstrip() for line in lines), *_total(ledger), *words]
    )


def _total(ledger: Ledger) -> list[str]:
    budget = ledger.budget
    if budget is None:
        return ["No budget: ledger.epsilon(delta) is the total."]
    gdp, epsilon = ledger.remaining()
    spent = f"epsilon = {_shown(ledger.epsilon())} of {budget.epsilon:g}"
    return [
        f"Total: {spent} at delta = {budget.delta:g}",
        f"Remaining: one release of gdp = {gdp:.4g} (epsilon = {epsilon:.4g})",
    ]


def _alone(entry: Entry, ledger: Ledger) -> str:
    if entry.event is None:
        return _shown(math.inf)
    if ledger.budget is None:
        return "-"
    delta = ledger.budget.delta
    return _shown(epsilon_of(entry.event, delta=delta, relation=ledger.relation))


def _state(entry: Entry) -> str:
    if entry.relation is None:
        return "as declared"
    return "NOT a guarantee" if entry.warnings else "proved"


def _shown(epsilon: float) -> str:
    if not math.isfinite(epsilon):
        return "infinite"
    return round_up(epsilon) if epsilon > 0.0 else "0"
