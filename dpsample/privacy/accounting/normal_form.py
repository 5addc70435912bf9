"""Normal form of an event: merged parts in sequence.

Events nest: `ComposedEvent` holds events in sequence, `ParallelEvent` events on
disjoint blocks of records, and `NearEvent` one that holds for an ideal mechanism, from
which the actual one has a bounded total variation. The normal form is a flat tuple of
*parts*. Parts that compose exactly are merged, steps that are not amplified by sampling
are Gaussian, and parts that cost nothing are left out. All parts are upper bounds.
"""

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
    BoundedRangeEvent,
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
from dpsample.privacy.budget import SHIFTS

# Largest gdp and rho. More counts as this. At them delta is 1 at every epsilon up to
# 600, and their sums are doubles.
MAX_GDP = 1e150
MAX_RHO = 1e200


class IdealForm(NamedTuple):
    """Parts of an ideal mechanism, and the distance of the actual one from it.

    Attributes
    ----------
    parts : tuple of Event
        Parts in sequence. No part is a `ComposedEvent` or a `NearEvent`. There is at
        most one `GaussianEvent` and one `ConcentratedEvent`, and no part costs nothing.
    total_variation : float
        Bound of the total variation distance on every data set.
    """

    parts: tuple[Event, ...]
    total_variation: float


def ideal_form(event: Event, relation: str) -> IdealForm:
    """Return the ideal parts of ``event`` under ``relation``, and the distance."""
    return idealize(normal_parts(event, relation))


def normal_parts(event: Event, relation: str) -> tuple[Event, ...]:
    """Return the parts of ``event`` in sequence under ``relation``.

    They are as in `IdealForm`, except that approximations of ideal mechanisms remain:
    each is a `NearEvent` of one `ComposedEvent` of ideal parts. Blocks of a
    `ParallelEvent` are `ComposedEvent`.
    """
    if isinstance(event, NearEvent):
        inner = ideal_form(event.event, relation)
        return _near_parts(inner.parts, inner.total_variation + event.total_variation)
    if isinstance(event, ComposedEvent):
        inners = [normal_parts(item, relation) for item in event.events]
        return _merge([part for inner in inners for part in inner])
    if isinstance(event, ParallelEvent):
        return _worst_blocks([normal_parts(item, relation) for item in event.events])
    return _merge([_simplify(event, relation)])


def _near_parts(parts: tuple[Event, ...], distance: float) -> tuple[Event, ...]:
    """Return the parts of a mechanism that is near to one of ideal parts."""
    if distance == 0.0:
        return parts
    whole = ComposedEvent(parts or (PureEvent(0.0),))
    # A `NearEvent` wants a distance below 1. At the largest one delta rounds to 1.
    return (NearEvent(whole, min(distance, 1.0 - 2.0**-53)),)


def idealize(parts: tuple[Event, ...]) -> IdealForm:
    """Replace each part that is near to an ideal one by the ideal one.

    Distances add up in sequence, by induction over the answers. Only one of disjoint
    blocks differs between neighbors, so the largest of their distances counts.
    """
    if not any(map(has_near, parts)):
        return IdealForm(parts, 0.0)
    inners = [_ideal_part(part) for part in parts]
    distance = math.fsum(inner.total_variation for inner in inners)
    return IdealForm(_merge([p for inner in inners for p in inner.parts]), distance)


def _ideal_part(part: Event) -> IdealForm:
    """Return the ideal form of one part of a normal form."""
    if isinstance(part, NearEvent):
        return IdealForm(_merge(list(*blocks_of(part))), part.total_variation)
    if isinstance(part, ParallelEvent):
        blocks = [idealize(block) for block in blocks_of(part)]
        distance = max(block.total_variation for block in blocks)
        return IdealForm(_worst_blocks([block.parts for block in blocks]), distance)
    return IdealForm((part,), 0.0)


def blocks_of(part: Event) -> list[tuple[Event, ...]]:
    """Return the parts of each block of a `ParallelEvent` of a normal form.

    Or the parts of the ideal mechanism of a `NearEvent`, as the only block.
    """
    assert isinstance(part, ParallelEvent | NearEvent)
    events = part.events if isinstance(part, ParallelEvent) else (part.event,)
    return [block.events for block in events if isinstance(block, ComposedEvent)]


def _simplify(event: Event, relation: str) -> Event:
    """Rewrite steps on all records, or on revealed ones, as Gaussian, and delta = 0."""
    # Largest noise multiplier of sampled steps. More noise counts as this, which is
    # enough, and its square is a double.
    max_noise = 1e100
    # Largest sampling rate. More counts as 1, because dp-accounting does not
    # distinguish it from 1.
    if isinstance(event, PoissonGaussianEvent) and event.sampling_rate > (
        1.0 - 2.0**-52
    ):
        return _unsampled_gaussian(event.noise_multiplier, event.num_steps, relation)
    if isinstance(event, PoissonGaussianEvent) and event.noise_multiplier > max_noise:
        return replace(event, noise_multiplier=max_noise)
    if isinstance(event, AllocatedGaussianEvent) and not _is_amplified(event, relation):
        return whole_steps(event, relation)
    if isinstance(event, ApproximateEvent) and event.delta == 0.0:
        return PureEvent(event.epsilon)
    return event


def whole_steps(event: AllocatedGaussianEvent, relation: str) -> GaussianEvent:
    """Return a bound of epochs whose allocation is revealed.

    One step of each epoch then reads the record. Two neighbors may be coupled to pick
    the same step, because divergences are jointly convex.
    """
    return _unsampled_gaussian(event.noise_multiplier, event.num_epochs, relation)


def reveal_samples(parts: tuple[Event, ...], relation: str) -> tuple[Event, ...]:
    """Return a bound of parts, in which steps reveal which records they take.

    Divergences are jointly convex. So a divergence of mixtures is at most the mean of
    the divergences that are mixed. These are 0, or the one of a step that takes the
    record.
    """
    revealed: list[Event] = []
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            revealed.append(
                _unsampled_gaussian(part.noise_multiplier, part.num_steps, relation)
            )
        elif isinstance(part, AllocatedGaussianEvent):
            revealed.append(whole_steps(part, relation))
        else:
            revealed.append(part)
    return _merge(revealed)


def _unsampled_gaussian(noise: float, times: int, relation: str) -> GaussianEvent:
    """Return the event of steps that all read the record."""
    gdp = math.sqrt(times) * (SHIFTS[relation] / noise)
    return GaussianEvent(min(max(gdp, check.MIN_NORMAL), MAX_GDP))


def _is_amplified(event: AllocatedGaussianEvent, relation: str) -> bool:
    """Return whether the random choice of steps is included in the accounting.

    The proof is for zero_out. The noise and the number of epochs must be within the
    reach of loss distributions.
    """
    is_feasible = 0.1 <= event.noise_multiplier <= 1e4
    is_feasible &= 1 < event.num_steps and event.num_epochs <= 1_000_000
    return is_feasible and relation == "zero_out"


def _merge(parts: list[Event]) -> tuple[Event, ...]:
    """Merge parts that compose exactly, as Gaussian and equal sampled ones do."""
    gdps = [min(p.gdp, MAX_GDP) for p in parts if isinstance(p, GaussianEvent)]
    rhos = [min(p.rho, MAX_RHO) for p in parts if isinstance(p, ConcentratedEvent)]
    steps: Counter[tuple[float, float]] = Counter()
    epochs: Counter[tuple[float, int]] = Counter()
    others: list[Event] = []
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            steps[part.sampling_rate, part.noise_multiplier] += part.num_steps
        elif isinstance(part, AllocatedGaussianEvent):
            epochs[part.noise_multiplier, part.num_steps] += part.num_epochs
        elif not isinstance(part, GaussianEvent | ConcentratedEvent):
            is_free = part in (PureEvent(0.0), BoundedRangeEvent(0.0))
            others += [] if is_free else [part]
    merged: list[Event] = []
    if any(gdps):
        merged.append(GaussianEvent(compose_gdp(gdps)))
    if any(rhos):
        merged.append(ConcentratedEvent(math.fsum(rhos)))
    poisson = [
        PoissonGaussianEvent(sampling_rate=q, noise_multiplier=z, num_steps=count)
        for (q, z), total in steps.items()
        for count in _split_steps(total)
    ]
    allocated = [
        AllocatedGaussianEvent(noise_multiplier=z, num_steps=t, num_epochs=count)
        for (z, t), total in epochs.items()
        for count in _split_steps(total)
    ]
    return (*merged, *poisson, *allocated, *others)


def _split_steps(total: int) -> list[int]:
    """Split a number of steps into numbers that an event may hold."""
    num_full, remainder = divmod(total, check.MAX_LENGTH)
    return [check.MAX_LENGTH] * num_full + [remainder] * (remainder > 0)


def _worst_blocks(blocks: list[tuple[Event, ...]]) -> tuple[Event, ...]:
    """Keep the block that dominates the others, or all different ones if none does."""
    different = list(dict.fromkeys(block for block in blocks if block))
    if len(different) <= 1:
        return different[0] if different else ()
    if all(len(block) == 1 for block in different):
        singles = [block[0] for block in different]
        sizes = {
            GaussianEvent: "gdp",
            ConcentratedEvent: "rho",
            PureEvent: "epsilon",
            BoundedRangeEvent: "range",
        }
        for kind, size in sizes.items():
            if all(isinstance(single, kind) for single in singles):
                return (max(singles, key=attrgetter(size)),)
    return (ParallelEvent(tuple(ComposedEvent(block) for block in different)),)
