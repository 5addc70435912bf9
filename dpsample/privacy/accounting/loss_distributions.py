"""Privacy loss distributions of events, for composition; by dp-accounting.

Every part is replaced by a pair of discrete laws on a grid of losses whose curve passes
above the part's own ("connect the dots", Doroshenko et al. 2022), which makes every
delta, and so every epsilon, an upper bound. The pairs are convolved. Convolution by FFT
has rounding errors in both directions: `ROUNDING` and `STEP_ROUNDING`, over twice what
comparisons with long doubles showed (4e-16 a step, where records are rarely taken and
noise is little), are added to every delta.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dpsample.core.arrays import Array
from dpsample.privacy.accounting.allocation import REACH, epoch_law
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.normal_form import MOST_NOISE, step_shift
from dpsample.privacy.accounting.renyi import log_factor
from dpsample.privacy.curves.objective_perturbation import tilt_curve

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ROUNDING, STEP_ROUNDING = 2e-14, 1e-15
# Grid of losses: a hundredth of one step's standard deviation, inside these limits.
FINENESS, COARSEST, FINEST = 0.01, 5e-3, 1e-6
# A curve is followed until its delta is this small; the rest counts as infinite loss.
TAIL = 1e-17
MAX_GRID = 100_000
MOST_LOSSES = 20_000_000  # of the whole: some gigabytes
MANY_STEPS, MOST_STEPS = 1_000_000, 10_000_000
MOST_CELLS = 10_000  # of a ratio whose sums take the square of it
LEAST_RATE = 1e-15  # of sampling; less counts as this, no more than rounding does
LONGEST_LOSS = 700.0  # whose exponential is a float
LEAST_FINITE = 1e-12  # probability of finite losses that convolutions can be made of
MADE_BY_LIBRARY = GaussianEvent | PoissonGaussianEvent | AllocatedGaussianEvent


def composed_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Upper bound of delta of the composition of ``parts`` of a normal form."""
    pld = _composed(parts, relation, _interval(parts, relation))
    orders = {pld._pmf_remove, pld._pmf_add}
    return max(_delta(law, epsilon) for law in orders) + _rounding(parts)


def _delta(law: PLDPmf, epsilon: float) -> float:
    """Delta of one order of a pair, whose probabilities do not quite add up to 1."""
    return float(law.get_delta_for_epsilon(epsilon)) + _missing(law)


def _missing(law: PLDPmf) -> float:
    """Probability that rounding took, of any loss."""
    return max(1.0 - float(law.get_delta_for_epsilon(-math.inf)), 0.0)


@functools.lru_cache(maxsize=64)
def is_within_reach(parts: tuple[Event, ...], relation: str) -> bool:
    """Whether their composition fits into memory, and their losses into floats."""
    if sum(map(_steps, parts)) > MOST_STEPS:
        return False
    interval = _interval(parts, relation)
    if interval > LONGEST_LOSS:
        return False
    inner = [
        b for part in parts if isinstance(part, ParallelEvent) for b in blocks(part)
    ]
    if not all(is_within_reach(block, relation) for block in inner):
        return False
    finite = 1.0  # probability, of which something must be left
    for part in parts:
        if not isinstance(part, MADE_BY_LIBRARY):
            end = _grid(part, relation, interval)[-1:]
            finite *= 1.0 - float(_curve(part, end, relation)[0])
    return finite > LEAST_FINITE


def _rounding(parts: tuple[Event, ...]) -> float:
    return ROUNDING + STEP_ROUNDING * sum(_steps(part) for part in parts)


def _steps(part: Event) -> int:
    if isinstance(part, ParallelEvent):
        return max(sum(map(_steps, block)) for block in blocks(part))
    if isinstance(part, AllocatedGaussianEvent):
        return part.num_epochs
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
        times = count * (1 if isinstance(part, ParallelEvent) else _steps(part))
        total = total.compose(_power(pld, times))
    return total


def _power(pld: PrivacyLossDistribution, times: int) -> PrivacyLossDistribution:
    """Compose a law with itself; more than a million times, in two stages.

    The library cuts tails by moments of orders that suit a power of a thousand or so:
    of ten million steps at once it keeps fifty million losses, ten times too many.
    """
    if times <= MANY_STEPS:
        return pld.self_compose(times) if times > 1 else pld
    root = math.isqrt(times)
    whole, rest = divmod(times, root)
    power = pld.self_compose(root).self_compose(whole)
    return power.compose(pld.self_compose(rest)) if rest else power


def _single(part: Event, relation: str, interval: float) -> PrivacyLossDistribution:
    """Loss distribution of one step of one part."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    if isinstance(part, GaussianEvent):
        # One shift of length 1: the distance already belongs to the relation.
        return from_gaussian_mechanism(
            min(1.0 / part.gdp, MOST_NOISE),
            value_discretization_interval=interval,
        )
    if isinstance(part, PoissonGaussianEvent):
        # Here the library doubles the distance itself: z refers to one record.
        pairs = NeighboringRelation.REPLACE_SPECIAL
        if relation == "replace_one":
            pairs = NeighboringRelation.REPLACE_ONE
        return from_gaussian_mechanism(
            part.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=max(part.sampling_rate, LEAST_RATE),
            neighboring_relation=pairs,
        )
    if isinstance(part, AllocatedGaussianEvent):
        noise = part.noise_multiplier
        if interval < min(1.0, REACH / noise):
            return _of_epoch(part, interval)
        # Another part's grid is too coarse: as if the allocation were told.
        return from_gaussian_mechanism(noise, value_discretization_interval=interval)
    return _from_curve(part, relation, interval)


def _of_epoch(part: AllocatedGaussianEvent, interval: float) -> PrivacyLossDistribution:
    """Both orders of the pair of `dpsample.privacy.accounting.allocation`."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    first, masses, at_zero, lost, _ = epoch_law(
        noise_multiplier=part.noise_multiplier,
        num_steps=part.num_steps,
        interval=interval,
    )
    last = first + len(masses) - 1
    tilted = masses * np.exp(interval * np.arange(first, last + 1))
    return PrivacyLossDistribution(
        DensePLDPmf(interval, first, tilted, lost, True),
        DensePLDPmf(interval, -last, masses[::-1].copy(), at_zero, True),
    )


def _from_curve(part: Event, relation: str, interval: float) -> PrivacyLossDistribution:
    """Loss distribution of a part of which only the curve is known.

    The curve bounds both directions, so that it may be continued to epsilon < 0 by
    delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon)).
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    losses = _grid(part, relation, interval)
    half = len(losses) - 1
    upper = np.clip(_curve(part, losses, relation), 0.0, 1.0)
    lower = -np.expm1(-losses) + np.exp(-losses) * upper
    both = np.concatenate([lower[:0:-1], upper])
    deltas = _convex(np.exp(np.concatenate([-losses[:0:-1], losses])), both)
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            interval, -half, half, np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
        )
    )


def _grid(part: Event, relation: str, interval: float) -> Array:
    """Losses >= 0 at which the curve is looked up; longer ones count as infinite."""
    half = min(
        math.ceil(_reach(part, relation) / interval), int(LONGEST_LOSS / interval)
    )
    return interval * np.arange(half + 1, dtype=np.float64)


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
        log, far = part.log_determinant, part.distance
        return tilt_curve(losses, log_determinant=log, distance=far, relation=relation)
    curve = np.zeros_like(losses)
    for block in blocks(part):
        pld = _composed(block, relation, _interval(block, relation))
        for law in {pld._pmf_remove, pld._pmf_add}:
            deltas = np.asarray(law.get_delta_for_epsilon(losses)) + _missing(law)
            np.maximum(curve, deltas + _rounding(block), out=curve)
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
    if isinstance(part, AllocatedGaussianEvent):
        total = math.sqrt(part.num_epochs) * _deviation(part, relation)
        size = 1.0 / part.noise_multiplier
        return min(total * (0.5 * total + 20.0), part.num_epochs * size * (9.0 + size))
    return _reach(part, relation)


def _step_range(part: Event, relation: str) -> float:
    """Loss of one step that dp-accounting still follows, one grid point at a time."""
    if isinstance(part, GaussianEvent):
        return part.gdp * (0.5 * part.gdp + 10.0)
    if isinstance(part, PoissonGaussianEvent):
        size = step_shift(relation) / part.noise_multiplier
        return size * (0.5 * size + 10.0)
    if isinstance(part, AllocatedGaussianEvent):
        size = 1.0 / part.noise_multiplier
        return size * (2.0 * REACH + size) * MAX_GRID / MOST_CELLS
    return _reach(part, relation)


def _deviation(part: Event, relation: str) -> float:
    """Rough standard deviation of the loss of one step."""
    if isinstance(part, GaussianEvent):
        return part.gdp
    if isinstance(part, PoissonGaussianEvent):
        size = step_shift(relation) / part.noise_multiplier
        spread = math.sqrt(math.expm1(min(size * size, 50.0)))
        return min(part.sampling_rate * spread, size)
    if isinstance(part, AllocatedGaussianEvent):
        square = 1.0 / part.noise_multiplier**2
        variance = math.expm1(min(square, 50.0)) / part.num_steps
        return math.sqrt(min(variance, square))
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
    spreads = [_deviation(part, relation) for part in parts]
    # Infinite where powers raise.
    variance = sum(c * (s * s) for c, s in zip(counts, spreads, strict=True))
    interval = FINENESS * math.sqrt(variance / sum(counts))
    longest = max(_step_range(part, relation) for part in parts) / MAX_GRID
    whole = sum(_range(part, relation) for part in parts) / MOST_LOSSES
    return max(min(interval, COARSEST), FINEST, longest, whole)


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
