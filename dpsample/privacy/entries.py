"""One line of a ledger: a certificate or an event, and what has to be said about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from dpsample import _check as check
from dpsample.privacy import events
from dpsample.privacy.certificate import Certificate
from dpsample.privacy.event_certificate import EventCertificate
from dpsample.privacy.events import Event

Item = Certificate | EventCertificate | Event


class Entry(NamedTuple):
    """Label and item, a certificate or an event."""

    label: str
    item: Item

    @property
    def event(self) -> Event | None:
        """What the entry does to privacy; None if nothing is proved."""
        return self.item if isinstance(self.item, Event) else self.item.event

    @property
    def relation(self) -> str | None:
        """Relation of a certificate; an event has none."""
        return None if isinstance(self.item, Event) else self.item.budget.relation

    @property
    def what(self) -> str:
        """Few words for a table."""
        if isinstance(self.item, EventCertificate):
            return self.item.mechanism
        if isinstance(self.item, Certificate):
            return f"exponential mechanism, {self.item.sampler or 'no sampler yet'}"
        return self.item.name + " event"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What keeps the entry from being a guarantee, in words."""
        item = self.item
        if isinstance(item, Event):
            return ()
        reasons = {
            "seeded: whoever knows the seed knows the noise": item.seeded,
            "not releasable: no sampler is named": (
                isinstance(item, Certificate) and item.sampler is None
            ),
            "not releasable: printed constants, counted at the epsilon they prove": (
                item.event is not None and not item.is_proved
            ),
            "unproved: epsilon is infinite": item.event is None,
        }
        return tuple(words for words, holds in reasons.items() if holds)


def entry_dict(entry: Entry) -> dict[str, Any]:
    """Return the entry as JSON values."""
    kind = "event" if isinstance(entry.item, Event) else "certificate"
    return {"label": entry.label, kind: entry.item.to_dict()}


def entry_from_dict(given: Any) -> Entry:
    """Rebuild what `entry_dict` returned."""
    check.instance(dict, entry=given)
    kinds = set(given) - {"label"}
    if "label" not in given or kinds not in ({"event"}, {"certificate"}):
        condition = "a label with an event or a certificate"
        check.fail("entry", condition, check.shown(given))
    if kinds == {"event"}:
        return Entry(given["label"], events.from_dict(given["event"]))
    content = given["certificate"]
    check.instance(dict, certificate=content)
    known = {kind.FORMAT: kind for kind in (Certificate, EventCertificate)}
    check.one_of(tuple(known), format=content.get("format"))
    return Entry(given["label"], known[content["format"]].from_dict(content))
