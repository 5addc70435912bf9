"""Events: frozen data with one meaning, exact JSON and errors at the door."""

import json
import math

import numpy as np
import pytest

from dpsample.privacy.accounting import events
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    BestOfEvent,
    BoundedRangeEvent,
    ComposedEvent,
    ConcentratedEvent,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)

POISSON = {"sampling_rate": 0.1, "noise_multiplier": 2.0, "num_steps": 7}
ALL = (
    GaussianEvent(1 / 3),
    PoissonGaussianEvent(**POISSON),
    AllocatedGaussianEvent(noise_multiplier=2.0, num_steps=7, num_epochs=2),
    PureEvent(0.1),
    ApproximateEvent(epsilon=0.1, delta=1e-9),
    BoundedRangeEvent(0.3),
    ConcentratedEvent(math.pi),
    TiltEvent(log_determinant=0.1, distance=0.2),
)
NESTED = NearEvent(
    ComposedEvent((*ALL, ParallelEvent((ALL[0], ComposedEvent((ALL[1], ALL[2])))))),
    1e-9,
)
BEST = BestOfEvent(ALL, stop="poisson", mean_tries=3)


@pytest.mark.parametrize("event", [*ALL, NESTED, ComposedEvent(ALL), BEST], ids=repr)
def test_json_round_trip_is_exact(event):
    text = json.dumps(event.to_dict(), allow_nan=False)
    again = events.from_dict(json.loads(text))
    assert again == event and hash(again) == hash(event)
    assert json.dumps(again.to_dict()) == text


def test_events_that_nothing_could_descend_are_refused():
    event = GaussianEvent(0.1)
    for _ in range(events.MAX_DEPTH - 1):
        event = ComposedEvent((event,))
    assert events.from_dict(event.to_dict()) == event
    with pytest.raises(ValueError, match="nested less than 50 deep"):
        events.from_dict(NearEvent(event, 0.1).to_dict())


def test_every_kind_travels():
    assert {type(event) for event in ALL} | {
        ComposedEvent,
        ParallelEvent,
        NearEvent,
        BestOfEvent,
    } == set(events.KINDS)


def test_events_compare_by_content():
    assert GaussianEvent(1) == GaussianEvent(np.float64(1.0))
    assert PureEvent(1.0) != GaussianEvent(1.0)
    assert ComposedEvent([ALL[0]]) == ComposedEvent((ALL[0],))
    assert ComposedEvent((ALL[0],)) != ParallelEvent((ALL[0],))
    assert len({*ALL, *ALL}) == len(ALL)
    with pytest.raises(AttributeError):
        ALL[0].gdp = 2.0


BAD_NUMBERS = (-0.1, math.nan, math.inf, None, "1", True, [1.0])


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("gdp", GaussianEvent),
        ("epsilon", PureEvent),
        ("rho", ConcentratedEvent),
        ("epsilon", lambda x: ApproximateEvent(epsilon=x, delta=0.1)),
        ("delta", lambda x: ApproximateEvent(epsilon=1.0, delta=x)),
        ("total_variation", lambda x: NearEvent(ALL[0], x)),
        (
            "sampling_rate",
            lambda x: PoissonGaussianEvent(**POISSON | {"sampling_rate": x}),
        ),
        (
            "noise_multiplier",
            lambda x: PoissonGaussianEvent(**POISSON | {"noise_multiplier": x}),
        ),
        ("num_steps", lambda x: PoissonGaussianEvent(**POISSON | {"num_steps": x})),
    ],
)
def test_bad_numbers_are_refused(name, make, bad):
    with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
        make(bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ApproximateEvent(epsilon=1.0, delta=1.0), "delta must be < 1, got 1"),
        (lambda: NearEvent(ALL[0], 1.0), "total_variation must be < 1"),
        (lambda: NearEvent(0.5, 0.1), "event must be a Event, got 0.5"),
        (lambda: ComposedEvent(()), "events must be a nonempty tuple"),
        (lambda: ParallelEvent(ALL[0]), "events must be a nonempty tuple"),
        (lambda: ComposedEvent((ALL[0], 3)), r"events\[1\] must be a Event, got 3"),
        (
            lambda: PoissonGaussianEvent(**POISSON | {"sampling_rate": 1.1}),
            "sampling_rate must be <= 1, got 1.1",
        ),
        (lambda: events.from_dict(3), "data must be a dict"),
        (lambda: events.from_dict({"name": "other"}), "name must be one of"),
        (
            lambda: events.from_dict({"name": "pure"}),
            "data must be a description of PureEvent",
        ),
        (
            lambda: events.from_dict({"name": "pure", "epsilon": 1, "x": 1}),
            "data must be a description of PureEvent",
        ),
        (
            lambda: events.from_dict({"name": "composed", "events": []}),
            "events must be a nonempty tuple",
        ),
        (
            lambda: events.from_dict({"name": "near", "event": 3}),
            "data must be a dict, got 3",
        ),
    ],
)
def test_bad_structure_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
