"""The normal form of an event: merged parts in sequence."""

import math
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from dpsample.core import check
from dpsample.privacy.accounting.concentrated import compose_gdp
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    has_near,
)

# Where the choice of steps is counted; it may be left out.
LEAST_ALLOCATED_NOISE, MOST_ALLOCATED_NOISE, MOST_EPOCHS = 0.1, 1e4, 10**6
MOST_NOISE = 1e100  # more counts as this, which is enough: its square is a float
# More counts as this: delta is 1 at every epsilon that may be asked, and sums are
# floats.
MOST_GDP, MOST_RHO = 1e150, 1e200
# Largest total variation that a `NearEvent` may have; at it, delta is 1.
FARTHEST = 1.0 - 2.0**-53
# Of sampling; more counts as 1, for dp-accounting tells it from 1 no longer.
MOST_RATE = 1.0 - 2.0**-52


class IdealForm(NamedTuple):
    """Parts of the ideal law, composed in sequence, and the distance to that law.

    No part is a `ComposedEvent` or a `NearEvent`; there is at most one `GaussianEvent`
    and one `ConcentratedEvent`, and no part costs nothing.
    """

    parts: tuple[Event, ...]
    total_variation: float


def ideal_form(event: Event, relation: str) -> IdealForm:
    """Return the ideal law of ``event`` under ``relation`` and the distance to it."""
    return idealize(normal_parts(event, relation))


def normal_parts(event: Event, relation: str) -> tuple[Event, ...]:
    """Parts of ``event`` in sequence under ``relation``.

    They are as in `IdealForm`, except that approximations of ideal mechanisms remain:
    each is a `NearEvent` of one `ComposedEvent` of ideal parts. Blocks of a
    `ParallelEvent` are `ComposedEvent`.
    """
    if isinstance(event, NearEvent):
        inner = ideal_form(event.event, relation)
        return _near(inner.parts, inner.total_variation + event.total_variation)
    if isinstance(event, ComposedEvent):
        inners = [normal_parts(item, relation) for item in event.events]
        return _merged([part for inner in inners for part in inner])
    if isinstance(event, ParallelEvent):
        return _worst([normal_parts(item, relation) for item in event.events])
    return _merged([_simplified(event, relation)])


def _near(parts: tuple[Event, ...], distance: float) -> tuple[Event, ...]:
    """Return a law near to one of ideal parts."""
    if distance == 0.0:
        return parts
    whole = ComposedEvent(parts or (PureEvent(0.0),))
    return (NearEvent(whole, min(distance, FARTHEST)),)


def idealize(parts: tuple[Event, ...]) -> IdealForm:
    """Replace laws near to others by those; return the distance to them all.

    Distances add up in sequence, by induction over the answers; of disjoint blocks only
    one differs between neighbors, so that the largest distance counts.
    """
    if not any(map(has_near, parts)):
        return IdealForm(parts, 0.0)
    inners = [_ideal_part(part) for part in parts]
    distance = math.fsum(inner.total_variation for inner in inners)
    return IdealForm(_merged([p for inner in inners for p in inner.parts]), distance)


def _ideal_part(part: Event) -> IdealForm:
    if isinstance(part, NearEvent):
        return IdealForm(_merged(list(*blocks_of(part))), part.total_variation)
    if isinstance(part, ParallelEvent):
        blocks = [idealize(block) for block in blocks_of(part)]
        distance = max(block.total_variation for block in blocks)
        return IdealForm(_worst([block.parts for block in blocks]), distance)
    return IdealForm((part,), 0.0)


def blocks_of(part: Event) -> list[tuple[Event, ...]]:
    """Parts of each block of a `ParallelEvent`, or of what a `NearEvent` is near to.

    Both as they are in a normal form.
    """
    assert isinstance(part, ParallelEvent | NearEvent)
    events = part.events if isinstance(part, ParallelEvent) else (part.event,)
    return [block.events for block in events if isinstance(block, ComposedEvent)]


def step_shift(relation: str) -> float:
    """Distance that neighbors move a sum, in units of one record's bound C."""
    return 2.0 if relation == "replace_one" else 1.0


def _simplified(event: Event, relation: str) -> Event:
    """Rewrite steps on all records, or on known ones, as Gaussian, and delta = 0."""
    if isinstance(event, PoissonGaussianEvent) and event.sampling_rate > MOST_RATE:
        return _whole(event.noise_multiplier, event.num_steps, relation)
    if isinstance(event, PoissonGaussianEvent) and event.noise_multiplier > MOST_NOISE:
        return replace(event, noise_multiplier=MOST_NOISE)
    if isinstance(event, AllocatedGaussianEvent) and not _is_amplified(event, relation):
        return whole_steps(event, relation)
    if isinstance(event, ApproximateEvent) and event.delta == 0.0:
        return PureEvent(event.epsilon)
    return event


def whole_steps(event: AllocatedGaussianEvent, relation: str) -> GaussianEvent:
    """Bound of epochs whose allocation is told: one step of each reads the record.

    Two neighbors may pick alike, and their divergences are jointly convex.
    """
    return _whole(event.noise_multiplier, event.num_epochs, relation)


def reveal_samples(parts: tuple[Event, ...], relation: str) -> tuple[Event, ...]:
    """Return a bound of parts: their steps as if it were told whom they take.

    A divergence of mixtures is at most that of what is mixed, which is 0 or that of a
    step that takes the record: it is jointly convex.
    """
    revealed: list[Event] = []
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            revealed.append(_whole(part.noise_multiplier, part.num_steps, relation))
        elif isinstance(part, AllocatedGaussianEvent):
            revealed.append(whole_steps(part, relation))
        else:
            revealed.append(part)
    return _merged(revealed)


def _whole(noise: float, times: int, relation: str) -> GaussianEvent:
    """Return steps that all read the record, of a gdp that an event may have."""
    gdp = math.sqrt(times) * (step_shift(relation) / noise)
    return GaussianEvent(min(max(gdp, check.MIN_NORMAL), MOST_GDP))


def _is_amplified(event: AllocatedGaussianEvent, relation: str) -> bool:
    noise = event.noise_multiplier
    is_known = LEAST_ALLOCATED_NOISE <= noise <= MOST_ALLOCATED_NOISE
    is_known &= 1 < event.num_steps and event.num_epochs <= MOST_EPOCHS
    return is_known and relation == "zero_out"


def _merged(parts: list[Event]) -> tuple[Event, ...]:
    """Merge what composes exactly: Gaussian, concentrated and equal sampled parts."""
    gdps = [min(p.gdp, MOST_GDP) for p in parts if isinstance(p, GaussianEvent)]
    rhos = [min(p.rho, MOST_RHO) for p in parts if isinstance(p, ConcentratedEvent)]
    steps: Counter[tuple[float, float]] = Counter()
    epochs: Counter[tuple[float, int]] = Counter()
    rest: list[Event] = []
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            key = (part.sampling_rate, part.noise_multiplier)
            steps[key] += part.num_steps
        elif isinstance(part, AllocatedGaussianEvent):
            epochs[part.noise_multiplier, part.num_steps] += part.num_epochs
        elif not isinstance(part, GaussianEvent | ConcentratedEvent):
            rest += [part] if part != PureEvent(0.0) else []
    merged: list[Event] = []
    if any(gdps):
        merged.append(GaussianEvent(compose_gdp(gdps)))
    if any(rhos):
        merged.append(ConcentratedEvent(math.fsum(rhos)))
    poisson = [
        PoissonGaussianEvent(sampling_rate=q, noise_multiplier=z, num_steps=count)
        for (q, z), total in steps.items()
        for count in _shares(total)
    ]
    allocated = [
        AllocatedGaussianEvent(noise_multiplier=z, num_steps=t, num_epochs=count)
        for (z, t), total in epochs.items()
        for count in _shares(total)
    ]
    return (*merged, *poisson, *allocated, *rest)


def _shares(total: int) -> list[int]:
    """Split a number of steps into numbers that an event may have."""
    whole, rest = divmod(total, check.MAX_LENGTH)
    return [check.MAX_LENGTH] * whole + [rest] * (rest > 0)


def _worst(blocks: list[tuple[Event, ...]]) -> tuple[Event, ...]:
    """Keep the worst block where one dominates the others, else all different ones."""
    different = list(dict.fromkeys(block for block in blocks if block))
    if len(different) <= 1:
        return different[0] if different else ()
    if all(len(block) == 1 for block in different):
        singles = [block[0] for block in different]
        sizes = {GaussianEvent: "gdp", ConcentratedEvent: "rho", PureEvent: "epsilon"}
        for kind, size in sizes.items():
            if all(isinstance(single, kind) for single in singles):
                return (max(singles, key=attrgetter(size)),)
    return (ParallelEvent(tuple(ComposedEvent(block) for block in different)),)
