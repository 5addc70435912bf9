"""Events made of events: in sequence, side by side, and approximately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsample import _check as check
from dpsample.privacy.simple_events import Event


def _store_events(event: Event, events: object) -> None:
    """Keep a nonempty list of events as a tuple."""
    if not isinstance(events, tuple | list) or not events:
        check.fail("events", "a nonempty tuple of events", check.shown(events))
    for index, item in enumerate(events):
        check.instance(Event, **{f"events[{index}]": item})
    object.__setattr__(event, "events", tuple(events))


@dataclass(frozen=True, eq=False)
class ComposedEvent(Event):
    """Several events on the same records, all of them released.

    Each may be chosen in view of earlier answers as long as its event is one that was
    fixed beforehand. Budgets that are themselves chosen in view of the answers (fully
    adaptive composition, privacy filters) are not covered.

    Parameters
    ----------
    events : tuple of Event
        At least one.

    Raises
    ------
    ValueError
        If ``events`` is empty or holds something else.

    Examples
    --------
    >>> from dpsample.privacy.simple_events import GaussianEvent
    >>> len(ComposedEvent((GaussianEvent(0.3), GaussianEvent(0.4))).events)
    2
    """

    name: ClassVar[str] = "composed"
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check the parts."""
        _store_events(self, self.events)


@dataclass(frozen=True, eq=False)
class ParallelEvent(Event):
    """Events on disjoint blocks of records: only the worst one counts.

    Delta is the largest of the blocks' deltas at the same epsilon.

    Which record sits in which block must be fixed by public indices, because neighbors
    then differ in one block. A partition that depends on the records' content (by
    label, by cluster) may put the new record into another block than the old one: under
    "replace_one" two blocks change, and the two events have to be composed.

    Parameters
    ----------
    events : tuple of Event
        One for each block, at least one.

    Raises
    ------
    ValueError
        If ``events`` is empty or holds something else.

    Examples
    --------
    >>> from dpsample.privacy.simple_events import GaussianEvent
    >>> len(ParallelEvent((GaussianEvent(0.3), GaussianEvent(0.4))).events)
    2
    """

    name: ClassVar[str] = "parallel"
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check the parts."""
        _store_events(self, self.events)


@dataclass(frozen=True, eq=False)
class NearEvent(Event):
    """A law that is, on every data set, close to one that satisfies ``event``.

    It costs (1 + e^epsilon) times the total variation, not the total variation:
    P'(S) <= P(S) + t <= e^epsilon Q(S) + delta + t <= e^epsilon Q'(S) + delta +
    (1 + e^epsilon) t.

    Parameters
    ----------
    event : Event
        Event of the ideal law.
    total_variation : float
        Largest total variation distance to it over all data sets, >= 0 and < 1.

    Raises
    ------
    ValueError
        If ``event`` is not an event or the distance is out of its range.

    Examples
    --------
    >>> from dpsample.privacy.simple_events import GaussianEvent
    >>> NearEvent(GaussianEvent(0.2), 1e-8)
    NearEvent(event=GaussianEvent(gdp=0.2), total_variation=1e-08)
    """

    name: ClassVar[str] = "near"
    event: Event
    total_variation: float

    def __post_init__(self) -> None:
        """Check the parts."""
        check.instance(Event, event=self.event)
        check.non_negative(total_variation=self.total_variation)
        if self.total_variation >= 1.0:
            check.fail("total_variation", "< 1", self.total_variation)
        if self.total_variation != 0.0:
            check.normal(total_variation=self.total_variation)
        object.__setattr__(self, "total_variation", float(self.total_variation))
