"""A certificate as lines of text, or as a table for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsample.privacy.certificates.certificate import Certificate
    from dpsample.privacy.certificates.event_certificate import EventCertificate


def rows(certificate: Certificate) -> list[tuple[str, str]]:
    """Name and value of every line of the table."""
    c, facts = certificate, certificate.facts
    sampler = "an exact draw (no sampler yet)" if c.sampler is None else c.sampler
    return [
        ("guarantee", c.statement),
        ("releasable", "yes" if c.releasable else "NO" + _why_not(c)),
        ("density", f"exp(-k (F + mu r)), k = {c.k:.6g}, mu = {c.mu:.6g}"),
        ("privacy", f"gdp = {c.gdp:.6g}, delta_0 = {c.delta_exact:.6g}"),
        ("sampler", f"{sampler}; total variation <= {c.gamma:.6g}"),
        ("risk bound", c.risk_statement),
        ("loss, domain", f"{facts.loss!r} on {facts.domain!r}"),
        ("regularizer", f"{c.regularizer!r}, range {c.range_bound:.6g}"),
        ("records", f"n = {facts.num_records}, d = {facts.dim}, {_row_words(c)}"),
        ("sensitivity", f"G = {c.lipschitz:.6g}, G_Delta = {c.diff_lipschitz:.6g}"),
        ("theorems", "\n".join(c.theorems)),
        ("assumptions", "\n".join(c.assumptions)),
    ]


def event_rows(certificate: EventCertificate) -> list[tuple[str, str]]:
    """Name and value of every line of the table."""
    c = certificate
    inputs = [f"{name} = {value!r}" for name, value in c.inputs]
    return [
        ("guarantee", c.statement),
        ("releasable", "yes" if c.releasable else "NO" + _why_not_event(c)),
        ("mechanism", c.mechanism),
        ("event", "none" if c.event is None else repr(c.event)),
        ("inputs", "\n".join(inputs)),
        ("theorems", "\n".join(c.theorems)),
        ("assumptions", "\n".join(c.assumptions)),
    ]


def certificate_table(certificate: Certificate) -> Any:
    """Return a rich table of a draw's certificate."""
    return _table(rows(certificate))


def event_certificate_table(certificate: EventCertificate) -> Any:
    """Return a rich table of an event's certificate."""
    return _table(event_rows(certificate))


def as_text(lines: list[tuple[str, str]]) -> str:
    """Return plain lines of at most 88 columns, names before values."""
    margin = " " * (2 + max(len(name) for name, _ in lines))
    return "\n".join(
        textwrap.fill(
            part,
            width=88,
            initial_indent=margin if i else name.ljust(len(margin)),
            subsequent_indent=margin,
            break_long_words=False,
        )
        for name, value in lines
        for i, part in enumerate(value.splitlines())
    )


def _table(lines: list[tuple[str, str]]) -> Any:
    """Return a rich table; rich is imported only here."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Certificate of differential privacy", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(name, Text(value))
    return table


def _why_not_event(certificate: EventCertificate) -> str:
    reasons = {
        "the random bits are seeded": certificate.seeded,
        "the printed constants are not proved": certificate.calibration == "paper",
        "no privacy is proved": certificate.event is None,
    }
    return ": " + ", ".join(words for words, holds in reasons.items() if holds)


def _why_not(certificate: Certificate) -> str:
    reasons = {
        "the random bits are seeded": certificate.seeded,
        "the printed constants are not proved": not certificate.is_proved,
        "no sampler is named": certificate.sampler is None,
    }
    return ": " + ", ".join(words for words, holds in reasons.items() if holds)


def _row_words(certificate: Certificate) -> str:
    facts = certificate.facts
    kind = "Schatten" if facts.is_matrix else "l"
    words = f"rows with {kind}-{facts.row_norm:g} norm <= {facts.row_bound:g}"
    if facts.intercept:
        words += " and an intercept"
    if facts.response_bound is not None:
        words += f", |response| <= {facts.response_bound:g}"
    if facts.offset_bound:
        words += f", |offset| <= {facts.offset_bound:g}"
    return words
