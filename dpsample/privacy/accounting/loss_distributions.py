"""Composition: the normal form of an event, and privacy loss distributions of it.

Every part is replaced by a pair of discrete laws on a grid of losses whose curve passes
above the part's own ("connect the dots", Doroshenko et al. 2022), which makes every
delta, and so every epsilon, an upper bound. The pairs are convolved. Convolution by FFT
has rounding errors in both directions: `ROUNDING` and `STEP_ROUNDING`, five times what
comparisons with exact Gaussian curves showed, are added to every delta.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.privacy.accounting.concentrated import compose_gdp
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.renyi import log_factor
from dpsample.privacy.curves.objective_perturbation import tilt_curve

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ROUNDING, STEP_ROUNDING = 2e-14, 2e-16
# Grid of losses: a hundredth of one step's standard deviation, inside these limits.
FINENESS, COARSEST, FINEST = 0.01, 5e-3, 1e-6
# A curve is followed until its delta is this small; the rest counts as infinite loss.
TAIL = 1e-17
MAX_GRID = 100_000


def composed_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Upper bound of delta of the composition of ``parts`` of a normal form."""
    pld = _composed(parts, relation, _interval(parts, relation))
    return float(pld.get_delta_for_epsilon(epsilon)) + _rounding(parts)


def _rounding(parts: tuple[Event, ...]) -> float:
    return ROUNDING + STEP_ROUNDING * sum(_steps(part) for part in parts)


def _steps(part: Event) -> int:
    if isinstance(part, ParallelEvent):
        return max(sum(map(_steps, block)) for block in blocks(part))
    return part.num_steps if isinstance(part, PoissonGaussianEvent) else 1


@functools.lru_cache(maxsize=32)
def _composed(
    parts: tuple[Event, ...], relation: str, interval: float
) -> PrivacyLossDistribution:
    """Compose equal parts with themselves, then the different ones."""
    from dp_accounting.pld import privacy_loss_distribution

    total = privacy_loss_distribution.identity(value_discretization_interval=interval)
    for part, count in Counter(parts).items():
        pld = _single(part, relation, interval)
        steps = part.num_steps if isinstance(part, PoissonGaussianEvent) else 1
        times = count * steps
        total = total.compose(pld.self_compose(times) if times > 1 else pld)
    return total


def _single(part: Event, relation: str, interval: float) -> PrivacyLossDistribution:
    """Loss distribution of one step of one part."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    if isinstance(part, GaussianEvent):
        # One shift of length 1: the distance already belongs to the relation.
        return from_gaussian_mechanism(
            1.0 / part.gdp, value_discretization_interval=interval
        )
    if isinstance(part, PoissonGaussianEvent):
        # Here the library doubles the distance itself: z refers to one record.
        pairs = NeighboringRelation.REPLACE_SPECIAL
        if relation == "replace_one":
            pairs = NeighboringRelation.REPLACE_ONE
        return from_gaussian_mechanism(
            part.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=part.sampling_rate,
            neighboring_relation=pairs,
        )
    return _from_curve(part, relation, interval)


def _from_curve(part: Event, relation: str, interval: float) -> PrivacyLossDistribution:
    """Loss distribution of a part of which only the curve is known.

    The curve bounds both directions, so that it may be continued to epsilon < 0 by
    delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon)).
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    half = math.ceil(_reach(part, relation) / interval)
    losses: Array = interval * np.arange(half + 1, dtype=np.float64)
    upper = np.clip(_curve(part, losses, relation), 0.0, 1.0)
    lower = -np.expm1(-losses) + np.exp(-losses) * upper
    both = np.concatenate([lower[:0:-1], upper])
    deltas = _convex(np.exp(np.concatenate([-losses[:0:-1], losses])), both)
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            interval, -half, half, np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
        )
    )


def _curve(part: Event, losses: Array, relation: str) -> Array:
    """Upper bound of delta at losses >= 0."""
    if isinstance(part, PureEvent | ApproximateEvent):
        delta = part.delta if isinstance(part, ApproximateEvent) else 0.0
        # Randomized response that fails with probability delta dominates.
        excess = -np.expm1(np.minimum(losses - part.epsilon, 0.0))
        response: Array = delta + (1.0 - delta) * excess / (1 + math.exp(-part.epsilon))
        return response
    if isinstance(part, ConcentratedEvent):
        logs = np.zeros_like(losses)
        for t in np.geomspace(1e-6, 1e8, 500):
            order = t * ((1.0 + t) * part.rho - losses) + log_factor(float(t))
            np.minimum(logs, order, out=logs)
        return np.exp(logs)
    if isinstance(part, TiltEvent):
        log, t = part.log_determinant, part.distance
        return tilt_curve(losses, log_determinant=log, distance=t, relation=relation)
    curve = np.zeros_like(losses)
    for block in blocks(part):
        pld = _composed(block, relation, _interval(block, relation))
        deltas = np.asarray(pld.get_delta_for_epsilon(losses)) + _rounding(block)
        np.maximum(curve, deltas, out=curve)
    return curve


def blocks(part: Event) -> list[tuple[Event, ...]]:
    """Parts of each block of a `ParallelEvent` of a normal form."""
    assert isinstance(part, ParallelEvent)
    return [block.events for block in part.events if isinstance(block, ComposedEvent)]


def _reach(part: Event, relation: str) -> float:
    """Loss beyond which the curve is flat or below `TAIL`."""
    if isinstance(part, PureEvent | ApproximateEvent):
        return part.epsilon
    if isinstance(part, ConcentratedEvent):
        return part.rho + 2.0 * math.sqrt(-part.rho * math.log(TAIL))
    if isinstance(part, TiltEvent):
        return part.log_determinant + part.distance * (0.5 * part.distance + 9.0)
    return max(sum(_range(p, relation) for p in block) for block in blocks(part))


def _range(part: Event, relation: str) -> float:
    """Loss that a part exceeds with tiny probability."""
    if isinstance(part, GaussianEvent):
        return part.gdp * (0.5 * part.gdp + 9.0)
    if isinstance(part, PoissonGaussianEvent):
        size = step_shift(relation) / part.noise_multiplier
        total = math.sqrt(part.num_steps) * _deviation(part, relation)
        return min(total * (0.5 * total + 20.0), part.num_steps * size * (9.0 + size))
    return _reach(part, relation)


def _step_range(part: Event, relation: str) -> float:
    """Loss of one step that dp-accounting still follows, one grid point at a time."""
    if isinstance(part, GaussianEvent):
        return part.gdp * (0.5 * part.gdp + 10.0)
    if isinstance(part, PoissonGaussianEvent):
        size = step_shift(relation) / part.noise_multiplier
        return size * (0.5 * size + 10.0)
    return _reach(part, relation)


def _deviation(part: Event, relation: str) -> float:
    """Rough standard deviation of the loss of one step."""
    if isinstance(part, GaussianEvent):
        return part.gdp
    if isinstance(part, PoissonGaussianEvent):
        size = step_shift(relation) / part.noise_multiplier
        spread = math.sqrt(math.expm1(min(size * size, 50.0)))
        return min(part.sampling_rate * spread, size)
    if isinstance(part, ConcentratedEvent):
        return math.sqrt(2.0 * part.rho)
    if isinstance(part, TiltEvent):
        return max(part.distance, FINEST)
    if isinstance(part, PureEvent | ApproximateEvent):
        return max(part.epsilon, FINEST)
    return max(_deviation(p, relation) for block in blocks(part) for p in block)


def _interval(parts: tuple[Event, ...], relation: str) -> float:
    """Grid interval: discretizing adds little to the variance of the whole loss."""
    counts = [_steps(part) for part in parts]
    squares = [_deviation(part, relation) ** 2 for part in parts]
    variance = sum(c * s for c, s in zip(counts, squares, strict=True))
    interval = FINENESS * math.sqrt(variance / sum(counts))
    longest = max(_step_range(part, relation) for part in parts) / MAX_GRID
    return max(min(interval, COARSEST), FINEST, longest)


def _convex(x: Array, y: Array) -> Array:
    """Largest convex function below the points: true curves are convex in e^epsilon."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.interp(x, x[hull], y[hull])


class Ideal(NamedTuple):
    """Parts of the ideal law, composed in sequence, and the distance to that law.

    No part is a `ComposedEvent` or a `NearEvent`; there is at most one `GaussianEvent`
    and one `ConcentratedEvent`, and no part costs nothing.
    """

    parts: tuple[Event, ...]
    total_variation: float


def ideal(event: Event, relation: str) -> Ideal:
    """Return the normal form of ``event`` under ``relation``.

    Distances add up in sequence, by induction over the answers; of disjoint blocks only
    one differs between neighbors, so that the largest distance counts.
    """
    if isinstance(event, NearEvent):
        inner = ideal(event.event, relation)
        total = inner.total_variation + event.total_variation
        return Ideal(inner.parts, total)
    if isinstance(event, ComposedEvent):
        inners = [ideal(item, relation) for item in event.events]
        parts = [part for inner in inners for part in inner.parts]
        return Ideal(_merged(parts), math.fsum(i.total_variation for i in inners))
    if isinstance(event, ParallelEvent):
        inners = [ideal(item, relation) for item in event.events]
        distance = max(inner.total_variation for inner in inners)
        return Ideal(_worst([inner.parts for inner in inners]), distance)
    return Ideal(_merged([_simplified(event, relation)]), 0.0)


def step_shift(relation: str) -> float:
    """Distance that neighbors move a sum, in units of one record's bound C."""
    return 2.0 if relation == "replace_one" else 1.0


def _simplified(event: Event, relation: str) -> Event:
    """Rewrite sampling of every record as the Gaussian steps it is, and delta = 0."""
    if isinstance(event, PoissonGaussianEvent) and event.sampling_rate == 1.0:
        distance = step_shift(relation) / event.noise_multiplier
        return GaussianEvent(math.sqrt(event.num_steps) * distance)
    if isinstance(event, ApproximateEvent) and event.delta == 0.0:
        return PureEvent(event.epsilon)
    return event


def _merged(parts: list[Event]) -> tuple[Event, ...]:
    """Merge what composes exactly: Gaussian, concentrated and equal Poisson parts."""
    gdps = [part.gdp for part in parts if isinstance(part, GaussianEvent)]
    rhos = [part.rho for part in parts if isinstance(part, ConcentratedEvent)]
    steps: Counter[tuple[float, float]] = Counter()
    rest: list[Event] = []
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            key = (part.sampling_rate, part.noise_multiplier)
            steps[key] += part.num_steps
        elif not isinstance(part, GaussianEvent | ConcentratedEvent):
            rest += [part] if part != PureEvent(0.0) else []
    merged: list[Event] = []
    if any(gdps):
        merged.append(GaussianEvent(compose_gdp(gdps)))
    if any(rhos):
        merged.append(ConcentratedEvent(math.fsum(rhos)))
    poisson = [
        PoissonGaussianEvent(sampling_rate=q, noise_multiplier=z, num_steps=count)
        for (q, z), count in steps.items()
    ]
    return (*merged, *poisson, *rest)


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
