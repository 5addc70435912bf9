"""What mechanisms do to privacy, in so few numbers that an accountant needs no code.

An event is frozen data and names no neighboring relation: its numbers hold under the
relation of the certificate or ledger that carries it. `accounting.epsilon_of` and
`accounting.delta_of` turn events into (epsilon, delta).
"""

from __future__ import annotations

from typing import Any

from dpsample import _check as check
from dpsample import _spec
from dpsample.privacy.compound_events import ComposedEvent, NearEvent, ParallelEvent
from dpsample.privacy.simple_events import (
    ApproximateEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
)

__all__ = [
    "ApproximateEvent",
    "ComposedEvent",
    "ConcentratedEvent",
    "Event",
    "GaussianEvent",
    "NearEvent",
    "ParallelEvent",
    "PoissonGaussianEvent",
    "PureEvent",
    "from_dict",
]

KINDS: tuple[type[Event], ...] = (
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
    ApproximateEvent,
    ConcentratedEvent,
    ComposedEvent,
    ParallelEvent,
    NearEvent,
)


def from_dict(data: dict[str, Any]) -> Event:
    """Rebuild an event from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the event.

    Returns
    -------
    Event
        An event equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown, a field is missing or unknown, or a value is not valid.

    Examples
    --------
    >>> event = NearEvent(ComposedEvent((GaussianEvent(0.3), PureEvent(0.1))), 1e-9)
    >>> from_dict(event.to_dict()) == event
    True
    """
    check.instance(dict, data=data)
    inner: dict[str, Any] = {}
    if isinstance(data.get("events"), list):
        inner["events"] = tuple(from_dict(item) for item in data["events"])
    if "event" in data:
        inner["event"] = from_dict(data["event"])
    try:
        return _spec.from_dict(KINDS, data | inner)
    except TypeError as error:
        check.fail("data", "the complete fields of an event", data, f"({error})")
