# mypy: allow-untyped-defs
r"""Privacy loss distributions of events, and the delta of their composition.

An event is a sequence of *parts* (see `normal_form`). Each part is dominated by a pair
(P, Q) of distributions, in either *order*: P against Q, and Q against P. The privacy
loss is log(P/Q) of a draw from P. This file turns parts into loss distributions on a
grid, whose composition is left to `convolution`. u = 2^-53 is the unit of relative
rounding errors.

**Connecting the dots** (Doroshenko et al. 2022). Each order of a part's pair becomes a
distribution on a grid of losses l = j h with the *interval* h. At each point of the
grid its curve :math:`\sum_l (1 - e^{\epsilon - l})_+ m_l` is above the part's own. Both
are convex in e^epsilon and ours is linear in between, so it is above everywhere. From
the largest loss down, delta and :math:`V_j = \sum_{i \ge j} m_i e^{(j-i) h}` follow
from positive terms, :math:`\delta_{j-1} = \delta_j + (1 - e^{-h}) V_j`, and m_j is the
mass that the next point needs. All masses of n cells are raised by a part (4 n + 16) u,
which is more than rounding loses.

Distributions that dominate part by part dominate the whole (Zhu, Dong and Wang 2022,
Theorem 10). Their masses may add up to more than 1, because delta of a product is a
mean of each factor's delta.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np

from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.core.jit import kernel
from dpsample.privacy.accounting.allocation import MAX_DEVIATIONS, epoch_ratio
from dpsample.privacy.accounting.convolution import (
    MAX_LOSS,
    Composition,
    LossDistribution,
)
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    BoundedRangeEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.normal_form import blocks_of
from dpsample.privacy.accounting.renyi import log_factor
from dpsample.privacy.budget import SHIFTS
from dpsample.privacy.curves.objective_perturbation import tilt_curve

# This covers the errors of two terms whose difference is a delta, relative to the
# larger one. It is twice their rounding errors, for normal tails at up to 50 standard
# deviations and losses of up to 700.
CURVE_ERROR = 1e-12
# A curve is followed until its delta is this small. The rest counts as infinite loss.
TAIL = 1e-31
# Smallest interval of a grid, and largest number of its points for one step.
MIN_INTERVAL = 1e-8
MAX_GRID = 120_000
# A sampled step with a smaller noise multiplier counts as one without noise.
MIN_NOISE = 0.05

NESTED = (ParallelEvent, NearEvent)  # parts that are made of parts
SAMPLED = (PoissonGaussianEvent, AllocatedGaussianEvent)


@np.errstate(under="ignore")  # masses that are far from the mean become 0
def composed_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Return an upper bound of delta of the composed ``parts`` of a normal form."""
    orders = _compose(parts, relation, _interval(parts, relation))
    return max(order.delta(epsilon) for order in orders)


@functools.lru_cache(maxsize=64)
def is_within_reach(parts: tuple[Event, ...], relation: str) -> bool:
    """Return whether a composition fits into memory, and its losses into doubles."""
    if sum(map(_num_steps, parts)) > 10_000_000:
        return False
    interval = _interval(parts, relation)
    if interval > MAX_LOSS:
        return False
    inner = [b for part in parts if isinstance(part, NESTED) for b in blocks_of(part)]
    if not all(is_within_reach(block, relation) for block in inner):
        return False
    # Convolutions need some probability of finite losses.
    return all(
        float(order.masses.sum()) > 1e-12
        for part in parts
        for order in _loss_distributions(part, relation, interval)
    )


def is_noiseless(part: Event) -> bool:
    """Return whether a step has so little noise that it counts as one without."""
    if not isinstance(part, PoissonGaussianEvent):
        return False
    return part.noise_multiplier < MIN_NOISE


def _num_steps(part: Event) -> int:
    """Return the number of equal distributions that a part composes."""
    if isinstance(part, NESTED):
        return max(sum(map(_num_steps, block)) for block in blocks_of(part))
    if isinstance(part, AllocatedGaussianEvent):
        return part.num_epochs
    return part.num_steps if isinstance(part, PoissonGaussianEvent) else 1


@functools.lru_cache(maxsize=8)
def _compose(
    parts: tuple[Event, ...], relation: str, interval: float
) -> tuple[Composition, ...]:
    """Compose the first orders of all pairs, and the second ones if they differ."""
    pairs, times = list[tuple[LossDistribution, LossDistribution]](), list[int]()
    for part, count in Counter(parts).items():
        pairs.append(_loss_distributions(part, relation, interval))
        # The curve of a nested part is of all its steps.
        times.append(count * (1 if isinstance(part, NESTED) else _num_steps(part)))
    first, second = zip(*pairs, strict=True)
    orders = [first] if all(a is b for a, b in pairs) else [first, second]
    return tuple(Composition(factors, times, interval) for factors in orders)


@functools.lru_cache(maxsize=32)
def _loss_distributions(
    part: Event, relation: str, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Return both orders of one step of a part, as one object if they are equal."""
    if isinstance(part, AllocatedGaussianEvent):
        noise = part.noise_multiplier
        if interval < min(1.0, MAX_DEVIATIONS / noise):
            return _distributions_of_epoch(part, interval)
        # The grid is too coarse because of another part. Revealing the steps that
        # records take is a bound.
        part = GaussianEvent(1.0 / noise)
    num_cells = math.ceil(min(_step_range(part, relation) / interval, 1e9))
    num_cells = min(num_cells, math.floor(MAX_LOSS / interval))
    losses = interval * np.arange(num_cells + 1.0)
    # Losses that are rounded up would belong to smaller deltas.
    first, second = _curves(part, losses * (1.0 - 4.0 * UNIT_ROUNDOFF), relation)
    first_order = connect_dots(first, second, interval)
    if first is second:
        return first_order, first_order
    return first_order, connect_dots(second, first, interval)


def _distributions_of_epoch(
    part: AllocatedGaussianEvent, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Return both orders of the pair of `dpsample.privacy.accounting.allocation`."""
    ratio = epoch_ratio(
        noise_multiplier=part.noise_multiplier,
        num_steps=part.num_steps,
        interval=interval,
    )
    last = ratio.first + len(ratio.masses) - 1
    up = 1.0 + CURVE_ERROR
    # The ratio's masses are under Q. Under P they are multiplied by the ratio itself.
    # The other order has the negative logarithms.
    under_p = ratio.masses * np.exp(interval * np.arange(ratio.first, last + 1))
    return (
        LossDistribution(ratio.first, under_p * up, ratio.lost * up),
        LossDistribution(-last, ratio.masses[::-1] * up, ratio.at_zero * up),
    )


def connect_dots(upper: Array, lower: Array, interval: float) -> LossDistribution:
    """Return the distribution of a pair from its deltas at losses 0, h, 2h, ...

    ``upper`` has the deltas of the pair and ``lower`` the deltas of the exchanged pair,
    which give the pair's at negative losses, delta(-l) = 1 - e^-l (1 - lower(l)).
    """
    up = 1.0 + CURVE_ERROR
    upper = _until(np.maximum(upper * up, TAIL), TAIL)
    # Negative losses hardly matter, so they end at a larger delta.
    lower = _until(lower, 1e-18)
    losses = interval * np.arange(len(lower) - 1, 0, -1)
    negative = (-np.expm1(-losses) + np.exp(-losses) * lower[:0:-1]) * up
    curve = np.minimum(np.concatenate([negative, upper]), 1.0)
    masses = np.empty(len(curve))
    _fill_masses(curve, -math.expm1(-interval), masses)
    rounding = 1.0 + (4.0 * len(curve) + 16.0) * UNIT_ROUNDOFF
    return LossDistribution(
        1 - len(lower), masses * rounding, float(curve[-1]) * rounding
    )


def _until(values: Array, limit: float) -> Array:
    """Return the values up to the first one that is at most ``limit``."""
    small = np.flatnonzero(values <= limit)
    return values[: small[0] + 1] if len(small) else values


@kernel
def _fill_masses(curve, drop, masses):
    """Fill in masses whose curve is above the given one, from the largest loss down.

    ``drop`` is 1 - e^-h, ``value`` the V of the module's docstring.
    """
    delta, value = curve[-1], 0.0
    for j in range(len(curve) - 1, -1, -1):
        # V_j that the next point needs. The last line ends where e^epsilon is 0 and
        # delta is 1.
        needed = (curve[j - 1] - delta) / drop if j > 0 else 1.0 - delta
        masses[j] = max(needed - (1.0 - drop) * value, 0.0)
        value = masses[j] + (1.0 - drop) * value
        delta += drop * value


def _curves(part: Event, losses: Array, relation: str) -> tuple[Array, Array]:
    """Return upper bounds of both orders' deltas at losses >= 0.

    They are the same object if the orders agree.
    """
    if isinstance(part, PoissonGaussianEvent):
        return _sampled_curves(part, losses, relation)
    curve = _curve(part, losses, relation)
    return curve, curve


def _sampled_curves(
    part: PoissonGaussianEvent, losses: Array, relation: str
) -> tuple[Array, Array]:
    """Return the deltas of the pairs of normal mixtures that `poisson` names.

    The likelihood ratio is monotone in x. So delta = P(x > cut) - e^loss Q(x > cut),
    where ``cut`` is the point with that privacy loss. It is the largest value over all
    points, so a small error of the cut has an effect of second order.
    """
    from scipy.special import ndtr

    # A rate below this counts as this, a change within rounding errors.
    q, noise = max(part.sampling_rate, 1e-15), part.noise_multiplier
    if noise < MIN_NOISE:  # a step without noise reveals each record that it takes
        curve = np.full(len(losses), q)
        return curve, curve
    shift = 1.0 / noise
    if relation == "replace_one":
        ratio = (1.0 - q) / q * np.sinh(0.5 * losses) * math.exp(0.5 * shift**2)
        cut = (0.5 * losses + np.arcsinh(ratio)) / shift
        gain = q * ndtr(shift - cut)
        loss = (1.0 - q) * np.expm1(losses) * ndtr(-cut)
        loss += q * np.exp(losses) * ndtr(-cut - shift)
        curve = np.maximum(gain - loss, 0.0) + CURVE_ERROR * gain
        return curve, curve
    excess = np.expm1(losses) + q
    cut = np.log(excess / q) / shift + 0.5 * shift
    gain = q * ndtr(shift - cut)
    with_record = np.maximum(gain - excess * ndtr(-cut), 0.0) + CURVE_ERROR * gain
    # In the other order losses are below -log(1 - q). The factor of N(0) is
    # 1 - (1 - q) e^loss, and 0 beyond.
    gap = -np.expm1(np.minimum(losses + math.log1p(-q), 0.0))
    rate = q * np.exp(losses)
    with np.errstate(divide="ignore"):
        cut = np.log(gap / rate) / shift + 0.5 * shift
    gain = gap * ndtr(cut)
    without = np.maximum(gain - rate * ndtr(cut - shift), 0.0) + CURVE_ERROR * gain
    # The gap's error is relative to its two terms, and may be nearly all of the gap.
    has_gap = losses * (1.0 - 8.0 * UNIT_ROUNDOFF) <= -math.log1p(-q)
    return with_record, without + np.where(
        has_gap, 8.0 * UNIT_ROUNDOFF * (losses + rate), 0.0
    )


def _curve(part: Event, losses: Array, relation: str) -> Array:
    """Return an upper bound of delta at losses >= 0, the same for both orders."""
    if isinstance(part, GaussianEvent):
        from scipy.special import ndtr

        cut = 0.5 * part.gdp - losses / part.gdp
        gain = ndtr(cut)
        difference = gain - np.exp(losses) * ndtr(cut - part.gdp)
        return np.maximum(difference, 0.0) + CURVE_ERROR * gain
    if isinstance(part, PureEvent | ApproximateEvent):
        delta = part.delta if isinstance(part, ApproximateEvent) else 0.0
        # Randomized response that fails with probability delta dominates.
        excess = -np.expm1(np.minimum(losses - part.epsilon, 0.0))
        response: Array = delta + (1.0 - delta) * excess / (1 + math.exp(-part.epsilon))
        return response
    if isinstance(part, BoundedRangeEvent):
        share = np.expm1(np.minimum(0.5 * (losses - part.range), 0.0))
        dominating: Array = share * share / -math.expm1(-part.range)
        return dominating
    if isinstance(part, ConcentratedEvent):
        # The best of 500 orders 1 + t in the bound of `renyi`.
        log_deltas = np.zeros_like(losses)
        for t in np.geomspace(1e-6, 1e8, 500):
            bound = t * ((1.0 + t) * part.rho - losses) + log_factor(float(t))
            np.minimum(log_deltas, bound, out=log_deltas)
        return np.exp(log_deltas)
    if isinstance(part, TiltEvent):
        return tilt_curve(
            losses,
            log_determinant=part.log_determinant,
            distance=part.distance,
            relation=relation,
        )
    curves = [_curve_of_block(block, losses, relation) for block in blocks_of(part)]
    highest: Array = np.max(curves, axis=0)
    if isinstance(part, NearEvent):
        distance = part.total_variation * (1.0 + CURVE_ERROR)
        highest += (1.0 + np.exp(losses)) * distance
        # A bound at a smaller loss holds at a larger one, too.
        highest = np.minimum(np.minimum.accumulate(highest), 1.0)
    return highest


def _curve_of_block(block: tuple[Event, ...], losses: Array, relation: str) -> Array:
    """Return an upper bound of delta of parts in sequence, in both orders."""
    if len(block) == 1 and not isinstance(block[0], SAMPLED):
        return _curve(block[0], losses, relation)
    orders = _compose(block, relation, _interval(block, relation))
    curves = [order.curve(losses) for order in orders]
    highest: Array = np.max(curves, axis=0)
    return highest


def _reach(part: Event, relation: str) -> float:
    """Return a loss beyond which the curve is flat or below `TAIL`."""
    # A normal distribution has less than `TAIL` beyond 12 standard deviations.
    deviations = 12.0
    if isinstance(part, GaussianEvent):
        return part.gdp * (0.5 * part.gdp + deviations)
    if isinstance(part, PoissonGaussianEvent):
        size = _relative_shift(part, relation)
        return size * (0.5 * size + deviations)
    if isinstance(part, PureEvent | ApproximateEvent):
        return part.epsilon
    if isinstance(part, BoundedRangeEvent):
        return part.range
    if isinstance(part, ConcentratedEvent):
        return part.rho + 2.0 * math.sqrt(-part.rho * math.log(TAIL))
    if isinstance(part, TiltEvent):
        return part.log_determinant + part.distance * (0.5 * part.distance + deviations)
    return max(sum(_range(p, relation) for p in block) for block in blocks_of(part))


def _relative_shift(part: PoissonGaussianEvent, relation: str) -> float:
    """Return the distance of a step's means, in standard deviations of its noise."""
    return SHIFTS[relation] / max(part.noise_multiplier, MIN_NOISE)


def _range(part: Event, relation: str) -> float:
    """Return a loss that all steps of a part exceed with a tiny probability."""
    if isinstance(part, PoissonGaussianEvent):
        num_steps, size = part.num_steps, _relative_shift(part, relation)
    elif isinstance(part, AllocatedGaussianEvent):
        num_steps, size = part.num_epochs, 1.0 / part.noise_multiplier
    else:
        return _reach(part, relation)
    total = math.sqrt(num_steps) * _deviation(part, relation)
    # The smaller one of two bounds: 20 standard deviations above the mean of a Gaussian
    # loss, or all steps at a loss that one of them rarely exceeds.
    return min(total * (0.5 * total + 20.0), num_steps * size * (9.0 + size))


def _step_range(part: Event, relation: str) -> float:
    """Return the loss of one step that `MAX_GRID` points must hold."""
    if isinstance(part, AllocatedGaussianEvent):
        size = 1.0 / part.noise_multiplier
        # The time of its sums grows with the square of the number of points. So this
        # grid has at most 10,000.
        return size * (2.0 * MAX_DEVIATIONS + size) * MAX_GRID / 10_000
    reach = _reach(part, relation)
    if isinstance(part, PoissonGaussianEvent):  # less where records are taken rarely
        losses = np.linspace(0.0, min(reach, MAX_LOSS), 1001)
        end = max(len(_until(x, TAIL)) for x in _curves(part, losses, relation)) - 1
        return float(losses[end]) if end < 1000 else reach
    return reach


def _deviation(part: Event, relation: str) -> float:
    """Return the rough standard deviation of the loss of one step."""
    if isinstance(part, GaussianEvent):
        return part.gdp
    if isinstance(part, PoissonGaussianEvent):
        size = _relative_shift(part, relation)
        ratio_deviation = math.sqrt(math.expm1(min(size * size, 50.0)))
        return min(part.sampling_rate * ratio_deviation, size)
    if isinstance(part, AllocatedGaussianEvent):
        square = 1.0 / part.noise_multiplier**2
        variance = math.expm1(min(square, 50.0)) / part.num_steps
        return math.sqrt(min(variance, square))
    if isinstance(part, ConcentratedEvent):
        return math.sqrt(2.0 * part.rho)
    if isinstance(part, TiltEvent):
        return max(part.distance, MIN_INTERVAL)
    if isinstance(part, PureEvent | ApproximateEvent):
        return max(part.epsilon, MIN_INTERVAL)
    if isinstance(part, BoundedRangeEvent):  # half of the interval at most
        return max(0.5 * part.range, MIN_INTERVAL)
    return max(_deviation(p, relation) for block in blocks_of(part) for p in block)


@functools.lru_cache(maxsize=64)
def _interval(parts: tuple[Event, ...], relation: str) -> float:
    """Return the grid interval of a composition.

    It is a hundredth of the standard deviation of an average step, so that rounding
    losses to the grid adds little to the variance of the whole loss. Memory and time
    bound it from below.
    """
    counts = [_num_steps(part) for part in parts]
    deviations = [_deviation(part, relation) for part in parts]
    # Products become infinite on overflow, where powers would raise an error.
    variance = sum(c * (s * s) for c, s in zip(counts, deviations, strict=True))
    interval = 0.01 * math.sqrt(variance / sum(counts))
    for_step = max(_step_range(part, relation) for part in parts) / MAX_GRID
    # The whole loss has at most 20 million points, which take some gigabytes.
    for_whole = sum(_range(part, relation) for part in parts) / 20_000_000
    return max(min(interval, 5e-3), MIN_INTERVAL, for_step, for_whole)
