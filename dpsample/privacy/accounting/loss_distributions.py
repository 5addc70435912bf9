# mypy: allow-untyped-defs
r"""Privacy loss distributions of events, composed by Fourier transforms.

**Parts.** Each order of a part's pair becomes a law on a grid of losses l = j h, whose
curve :math:`\sum_l (1 - e^{\epsilon - l})_+ m_l` is above the part's own at each point
of the grid ("connect the dots", Doroshenko et al. 2022). Both are convex in e^epsilon
and ours is linear in between, so it is above everywhere. From the largest loss down,
delta and :math:`V = \sum_{i \ge j} m_i e^{(j-i) h}` follow from positive terms,
:math:`\delta_{j-1} = \delta_j + (1 - e^{-h}) V_j`, and m_j is what the next point
needs. All masses are raised by a part (4 n + 16) u, u = 2^-53, more than n cells lose.
Laws that dominate part by part dominate the whole (Zhu, Dong and Wang 2022, Theorem
10). They may weigh more than 1: delta of a product is a mean of each factor's.

**Composition.** Masses are tilted to :math:`m_l e^{\theta l - k}`, so that losses near
epsilon are likely, and convolved on a circle of N = 2^b cells: powers of transforms,
multiplied and transformed back. What leaves the circle comes back and only adds mass.
What is above the window of losses is less than Chernoff's bound, which is added.

**Rounding.** A transform by radices 2 and 4 is a sum along paths of b levels, each with
an addition, or two in two levels, and a product with a twiddle factor. Twiddles within
4 u make each output off by less than :math:`\gamma = 8 u b` times the sum of all
inputs' absolute values (0.7 u b was seen). So at each frequency the product of powers
of computed transforms P_i, made of T products within 3 u each, is off by at most

.. math:: E = \prod (|P_i| + \gamma)^{t_i} - (1 - 3 u T) \prod |P_i|^{t_i},

and a mass by (sum E + gamma sum of products) / N, which it is given. When the tilt is
undone that is a small part of delta, however small delta is.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.privacy.accounting.allocation import REACH, epoch_ratio
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.normal_form import blocks_of, step_shift
from dpsample.privacy.accounting.renyi import log_factor
from dpsample.privacy.curves.objective_perturbation import tilt_curve

UNIT = 2.0**-53
# Of the larger of two terms whose difference is a delta: over twice their rounding
# errors, with normal tails at up to 50 deviations and losses of up to 700.
CURVE_ERROR = 1e-12
# Grid of losses: a hundredth of one step's standard deviation, inside these limits.
FINENESS, COARSEST, FINEST = 0.01, 5e-3, 1e-8
# A curve is followed until its delta is this small; the rest counts as infinite loss.
# Negative losses end where the exchanged pair's delta is below the second number.
TAIL, LOW_TAIL = 1e-31, 1e-18
DEVIATIONS = 12.0  # beyond which a normal law has less than that
MAX_GRID = 120_000
MOST_LOSSES = 20_000_000  # of the whole: some gigabytes
LARGEST_CIRCLE = 2**25
MOST_STEPS = 10_000_000
MOST_CELLS = 10_000  # of a ratio whose sums take the square of it
LEAST_RATE = 1e-15  # of sampling; less counts as this, no more than rounding does
LEAST_NOISE = 0.05  # of a sampled step; with less, it tells all of what it takes
LONGEST_LOSS = 700.0  # whose exponential is a float
LEAST_FINITE = 1e-12  # probability of finite losses that convolutions can be made of
# Tilts are powers of sqrt(2) over the standard deviation of the loss, and 0. Beyond the
# last, a law is on one cell.
LEAST_TILT, LAST_TILT = -24, 32.0
OUTSIDE = -30.0  # logarithm of what a tilted law may have beyond each end of a window
MOST_DEVIATIONS = 16.0  # of a further tilt that bounds them
LOST = 1e-300  # more than underflow
# Least part by which finite losses are raised: windows whose errors differ give a curve
# that does not rise.
LEAST_ERROR = 1e-10
MOST_KEPT = 2**22  # masses of a composition, beside the last window
NODES = 500  # of the curve of a block


NESTED = (ParallelEvent, NearEvent)  # parts that are made of parts
SAMPLED = (PoissonGaussianEvent, AllocatedGaussianEvent)


class LossDistribution(NamedTuple):
    """Masses at losses (first + j) h and at infinity; their curve is an upper bound."""

    first: int
    masses: Array
    infinite: float


class Window(NamedTuple):
    """Masses at losses (first + j) h, where the tilted law is."""

    first: int
    masses: Array
    level: float  # logarithm of the tilt's normalizer
    tilt: float
    up: float  # factor for relative rounding errors


@np.errstate(under="ignore")  # masses that are far from the mean are 0
def composed_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Upper bound of delta of the composition of ``parts`` of a normal form."""
    orders = _compose(parts, relation, _interval(parts, relation))
    return max(order.delta(epsilon) for order in orders)


@functools.lru_cache(maxsize=64)
def is_within_reach(parts: tuple[Event, ...], relation: str) -> bool:
    """Whether their composition fits into memory, and their losses into floats."""
    if sum(map(_steps, parts)) > MOST_STEPS:
        return False
    interval = _interval(parts, relation)
    if interval > LONGEST_LOSS:
        return False
    inner = [b for part in parts if isinstance(part, NESTED) for b in blocks_of(part)]
    if not all(is_within_reach(block, relation) for block in inner):
        return False
    laws = [
        law for part in parts for law in _loss_distributions(part, relation, interval)
    ]
    return all(float(law.masses.sum()) > LEAST_FINITE for law in laws)


def is_noiseless(part: Event) -> bool:
    """Return whether noise is so little that the curve is that of none."""
    if not isinstance(part, PoissonGaussianEvent):
        return False
    return part.noise_multiplier < LEAST_NOISE


def _steps(part: Event) -> int:
    if isinstance(part, NESTED):
        return max(sum(map(_steps, block)) for block in blocks_of(part))
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
        times.append(count * (1 if isinstance(part, NESTED) else _steps(part)))
    first, second = zip(*pairs, strict=True)
    orders = [first] if all(a is b for a, b in pairs) else [first, second]
    return tuple(Composition(laws, times, interval) for laws in orders)


class Composition:
    """Powers of laws on one grid, convolved."""

    def __init__(
        self, laws: tuple[LossDistribution, ...], times: list[int], interval: float
    ) -> None:
        self._laws, self._times, self._interval = laws, times, interval
        self._lowest = sum(t * law.first for law, t in zip(laws, times, strict=True))
        self._losses = [interval * (x.first + np.arange(len(x.masses))) for x in laws]
        with np.errstate(divide="ignore"):
            self._logs = [np.log(law.masses) for law in laws]
        sums = [float(law.masses.sum()) for law in laws]
        ratios = [law.infinite / s for law, s in zip(laws, sums, strict=True)]
        more = float(np.dot(times, np.log1p(ratios)))
        finite = float(np.dot(times, np.log(sums)))
        # A sum is off by less than 64 units, a logarithm and a product by one.
        size = more + float(np.dot(times, np.abs(np.log(sums))))
        errors = 64.0 * (sum(times) + len(laws)) + 4.0 * (len(laws) + 2.0) * size
        infinite = math.exp(finite + more) * -math.expm1(-more)
        self._infinite = infinite * math.exp(errors * UNIT)
        self._spread = self._moments(0.0)[2]
        self._means = dict[int, float]()
        self._windows = dict[int, Window]()

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta at epsilon >= 0."""
        most = LAST_TILT * self._spread / self._interval
        low, high = LEAST_TILT - 1, math.floor(2.0 * math.log2(most))
        while high - low > 1:  # for the largest tilt whose mean loss is not above it
            k = (low + high) // 2
            if k not in self._means:
                self._means[k] = self._moments(self._tilt(k))[1]
            low, high = (k, high) if self._means[k] <= epsilon else (low, k)
        window = self._windows.get(low) or self._window(self._tilt(low))
        # A copy: other threads, which share what is composed, add windows meanwhile.
        if sum(len(kept.masses) for kept in [*self._windows.values()]) > MOST_KEPT:
            self._windows.clear()
        self._windows[low] = window
        first, masses, level, tilt, up = window
        # Losses are rounded up, and all that are above epsilon are among them.
        start = min(max(math.floor(epsilon / self._interval) - first, 0), len(masses))
        places = first + np.arange(start, len(masses))
        gains = -np.expm1(epsilon - self._interval * (1.0 + 4.0 * UNIT) * places)
        found = float(np.maximum(gains, 0.0) @ masses[start:])
        end = max(self._interval * (first + len(masses)), epsilon)
        # Twice what is outside, which is more than the bound's own rounding errors.
        found += 2.0 * math.exp(min(level - tilt * end + OUTSIDE, 0.0))
        if tilt == 0.0:  # the window may begin above epsilon
            found += 2.0 * math.exp(level + OUTSIDE)
        # Windows differ in their errors, not in what is infinite: flat curves stay so.
        return min(found * max(up, 1.0 + LEAST_ERROR) + self._infinite, 1.0)

    def curve(self, losses: Array) -> Array:
        """Upper bounds of delta at increasing losses >= 0, by chords in e^loss."""
        nodes = np.append(losses[:-1][:: 1 + len(losses) // NODES], losses[-1:])
        deltas = np.array([self.delta(float(node)) for node in nodes])
        begin = np.searchsorted(nodes[1:], losses)
        end = np.minimum(begin + 1, len(nodes) - 1)
        gaps, ways = nodes[end] - nodes[begin], losses - nodes[begin]  # both exact
        shares = np.expm1(ways) / np.maximum(np.expm1(gaps), check.MIN_NORMAL)
        found: Array = (1.0 - shares) * deltas[begin] + shares * deltas[end]
        return found

    def _tilt(self, k: int) -> float:
        return 0.0 if k < LEAST_TILT else 2.0 ** (0.5 * k) / self._spread

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Log-normalizer, mean and standard deviation of the tilted law's loss."""
        level, mean, variance = 0.0, 0.0, 0.0
        for times, losses, logs in zip(
            self._times, self._losses, self._logs, strict=True
        ):
            exponents = tilt * losses + logs
            top = float(exponents.max())
            weights = np.exp(exponents - top)
            total = float(weights.sum())
            center = float(weights @ losses) / total
            level += times * (top + math.log(total))
            mean += times * center
            variance += times * float(weights @ (losses - center) ** 2) / total
        return level, mean, max(math.sqrt(variance), self._interval)

    def _span(self, tilt: float) -> tuple[int, int]:
        """First place and number of cells that hold all but `OUTSIDE` at either end."""
        level, _, spread = self._moments(tilt)
        ends = []
        for sign in (-1.0, 1.0):
            more, end, previous = MOST_DEVIATIONS / spread, math.inf, math.inf
            while end <= previous:  # of Chernoff's bound, convex in 1/more
                previous = end
                bound = self._moments(tilt + sign * more)[0] - level - OUTSIDE
                end, more = bound / more, 0.5 * more
            ends.append(sign * previous / self._interval)
        first = math.floor(ends[0])
        return first, 1 << max(math.ceil(ends[1]) - first, 8).bit_length()

    def _window(self, tilt: float) -> Window:
        first, size = self._span(tilt)
        if size > LARGEST_CIRCLE:
            return Window(first, np.zeros(0), 99.0, 0.0, 1.0)  # delta is 1
        gamma = 8.0 * UNIT * math.log2(size)
        half, count = size // 2 + 1, sum(self._times) + len(self._times)
        product: Any = np.ones(half, complex)
        growth, above = np.zeros(half), np.zeros(half)
        level, errors = 0.0, 64.0 * count + 2.0 * size
        for times, losses, logs in zip(
            self._times, self._losses, self._logs, strict=True
        ):
            exponents = tilt * losses + logs
            norm = float(np.logaddexp.reduce(exponents))
            tilted = np.exp(exponents - norm)
            around = np.pad(tilted, (0, -len(tilted) % size)).reshape(-1, size)
            transform = np.fft.rfft(around.sum(axis=0))
            product *= _power(transform, times)
            absolute = np.abs(transform)
            with np.errstate(divide="ignore"):
                growth += times * np.log1p(gamma / absolute)
            above += times * np.log(absolute + gamma)
            level += times * norm
            largest = float((np.abs(tilt * losses) + np.abs(logs))[tilted > 0.0].max())
            terms = largest + (1 + len(self._laws)) * abs(norm) + len(around)
            errors += 4.0 * times * terms
        found = np.abs(product)
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.fmin((found + LOST) * np.expm1(growth), np.exp(above))
        off = float((error + (3.0 * UNIT * count + gamma) * found).sum())
        cells = np.fft.irfft(product, size)
        cells = np.roll(cells, (self._lowest - first) % size)
        cells = np.maximum(cells, 0.0) + (2.0 * (1.0 + 1e-6) * off / size + LOST)
        places = self._interval * (first + np.arange(size))
        cells *= np.exp(np.minimum(level - tilt * places, LONGEST_LOSS))
        furthest = max(abs(float(places[0])), abs(float(places[-1])))
        errors += 8.0 * (abs(level) + tilt * furthest)
        return Window(first, cells, level, tilt, math.exp(errors * UNIT))


def _power(values: Any, times: int) -> Any:
    """Product of ``times`` copies, by that many products' rounding errors at most."""
    result = np.ones_like(values)
    while True:
        if times & 1:
            result = result * values
        times >>= 1
        if not times:
            return result
        values = values * values


@functools.lru_cache(maxsize=32)
def _loss_distributions(
    part: Event, relation: str, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Return the laws of both orders of one step of a part; one if they are equal."""
    if isinstance(part, AllocatedGaussianEvent):
        noise = part.noise_multiplier
        if interval < min(1.0, REACH / noise):
            return _distributions_of_epoch(part, interval)
        # Another part's grid is too coarse: as if the allocation were told.
        part = GaussianEvent(1.0 / noise)
    longest = math.floor(LONGEST_LOSS / interval)
    half = min(math.ceil(min(_step_range(part, relation) / interval, 1e9)), longest)
    losses = interval * np.arange(half + 1.0)
    first, second = _curves(part, losses * (1.0 - 4.0 * UNIT), relation)
    one = connect_dots(first, second, interval)
    return one, one if first is second else connect_dots(second, first, interval)


def _distributions_of_epoch(
    part: AllocatedGaussianEvent, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Both orders of the pair of `dpsample.privacy.accounting.allocation`."""
    law = epoch_ratio(
        noise_multiplier=part.noise_multiplier,
        num_steps=part.num_steps,
        interval=interval,
    )
    last = law.first + len(law.masses) - 1
    up = 1.0 + CURVE_ERROR
    tilted = law.masses * np.exp(interval * np.arange(law.first, last + 1))
    return (
        LossDistribution(law.first, tilted * up, law.lost * up),
        LossDistribution(-last, law.masses[::-1] * up, law.at_zero * up),
    )


def connect_dots(upper: Array, lower: Array, interval: float) -> LossDistribution:
    """Law of a pair from its deltas, and the exchanged pair's, at losses 0, h, 2h, ...

    Negative losses follow: delta(-l) = 1 - e^-l (1 - lower(l)).
    """
    up = 1.0 + CURVE_ERROR
    upper = _until(np.maximum(upper * up, TAIL), TAIL)
    lower = _until(lower, LOW_TAIL)
    losses = interval * np.arange(len(lower) - 1, 0, -1)
    below = (-np.expm1(-losses) + np.exp(-losses) * lower[:0:-1]) * up
    curve = np.minimum(np.concatenate([below, upper]), 1.0)
    masses = np.empty(len(curve))
    _connect(curve, -math.expm1(-interval), masses)
    lost = 1.0 + (4.0 * len(curve) + 16.0) * UNIT
    return LossDistribution(1 - len(lower), masses * lost, float(curve[-1]) * lost)


def _until(values: Array, least: float) -> Array:
    """Values up to the first that is not above the least."""
    small = np.flatnonzero(values <= least)
    return values[: small[0] + 1] if len(small) else values


@kernel
def _connect(curve, drop, masses):
    """Fill in masses whose curve is above the given one, from the largest loss down."""
    delta, value = curve[-1], 0.0
    for j in range(len(curve) - 1, -1, -1):
        # The first line ends where e^epsilon is 0 and delta is 1.
        need = (curve[j - 1] - delta) / drop if j > 0 else 1.0 - delta
        masses[j] = max(need - (1.0 - drop) * value, 0.0)
        value = masses[j] + (1.0 - drop) * value
        delta += drop * value


def _curves(part: Event, losses: Array, relation: str) -> tuple[Array, Array]:
    """Upper bounds of both orders' deltas at losses >= 0; one array if they agree."""
    if isinstance(part, PoissonGaussianEvent):
        return _sampled_curves(part, losses, relation)
    curve = _curve(part, losses, relation)
    return curve, curve


def _sampled_curves(
    part: PoissonGaussianEvent, losses: Array, relation: str
) -> tuple[Array, Array]:
    """Deltas of mixtures of normal laws: divergences at the places where losses are so.

    An error in a place makes a second-order error, since delta is the largest value of
    P(x > place) - e^loss Q(x > place), and places of 0 are exact.
    """
    from scipy.special import ndtr

    q, noise = max(part.sampling_rate, LEAST_RATE), part.noise_multiplier
    if noise < LEAST_NOISE:
        curve = np.full(len(losses), q)
        return curve, curve
    shift = 1.0 / noise
    if relation == "replace_one":
        ratio = (1.0 - q) / q * np.sinh(0.5 * losses) * math.exp(0.5 * shift**2)
        place = (0.5 * losses + np.arcsinh(ratio)) / shift
        most = q * ndtr(shift - place)
        others = (1.0 - q) * np.expm1(losses) * ndtr(-place)
        others += q * np.exp(losses) * ndtr(-place - shift)
        curve = np.maximum(most - others, 0.0) + CURVE_ERROR * most
        return curve, curve
    excess = np.expm1(losses) + q
    place = np.log(excess / q) / shift + 0.5 * shift
    most = q * ndtr(shift - place)
    with_it = np.maximum(most - excess * ndtr(-place), 0.0) + CURVE_ERROR * most
    # Exchanged, losses are below -log(1 - q).
    gap = -np.expm1(np.minimum(losses + math.log1p(-q), 0.0))
    rate = q * np.exp(losses)
    with np.errstate(divide="ignore"):
        place = np.log(gap / rate) / shift + 0.5 * shift
    most = gap * ndtr(place)
    without = np.maximum(most - rate * ndtr(place - shift), 0.0) + CURVE_ERROR * most
    # The gap is off by a part of both, which may be nearly all of a gap.
    is_short = losses * (1.0 - 8.0 * UNIT) <= -math.log1p(-q)
    return with_it, without + np.where(is_short, 8.0 * UNIT * (losses + rate), 0.0)


def _curve(part: Event, losses: Array, relation: str) -> Array:
    """Upper bound of delta at losses >= 0, the same for both orders."""
    if isinstance(part, GaussianEvent):
        from scipy.special import ndtr

        place = 0.5 * part.gdp - losses / part.gdp
        most = ndtr(place)
        normal = most - np.exp(losses) * ndtr(place - part.gdp)
        return np.maximum(normal, 0.0) + CURVE_ERROR * most
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
    curves = [_curve_of_block(block, losses, relation) for block in blocks_of(part)]
    highest: Array = np.max(curves, axis=0)
    if isinstance(part, NearEvent):
        # A bound at a smaller loss holds at a larger one, too.
        highest += (1.0 + np.exp(losses)) * (part.total_variation * (1.0 + CURVE_ERROR))
        highest = np.minimum(np.minimum.accumulate(highest), 1.0)
    return highest


def _curve_of_block(block: tuple[Event, ...], losses: Array, relation: str) -> Array:
    """Upper bound of delta at losses >= 0 of parts in sequence, in both orders."""
    if len(block) == 1 and not isinstance(block[0], SAMPLED):
        return _curve(block[0], losses, relation)
    orders = _compose(block, relation, _interval(block, relation))
    highest: Array = np.max([order.curve(losses) for order in orders], axis=0)
    return highest


def _reach(part: Event, relation: str) -> float:
    """Loss beyond which the curve is flat or below `TAIL`."""
    if isinstance(part, GaussianEvent):
        return part.gdp * (0.5 * part.gdp + DEVIATIONS)
    if isinstance(part, PoissonGaussianEvent):
        size = _size(part, relation)
        return size * (0.5 * size + DEVIATIONS)
    if isinstance(part, PureEvent | ApproximateEvent):
        return part.epsilon
    if isinstance(part, ConcentratedEvent):
        return part.rho + 2.0 * math.sqrt(-part.rho * math.log(TAIL))
    if isinstance(part, TiltEvent):
        return part.log_determinant + part.distance * (0.5 * part.distance + DEVIATIONS)
    return max(sum(_range(p, relation) for p in block) for block in blocks_of(part))


def _size(part: PoissonGaussianEvent, relation: str) -> float:
    """Distance of a step's laws in standard deviations of its noise."""
    return step_shift(relation) / max(part.noise_multiplier, LEAST_NOISE)


def _range(part: Event, relation: str) -> float:
    """Loss that a part exceeds with tiny probability."""
    if isinstance(part, PoissonGaussianEvent):
        size = _size(part, relation)
        total = math.sqrt(part.num_steps) * _deviation(part, relation)
        return min(total * (0.5 * total + 20.0), part.num_steps * size * (9.0 + size))
    if isinstance(part, AllocatedGaussianEvent):
        total = math.sqrt(part.num_epochs) * _deviation(part, relation)
        size = 1.0 / part.noise_multiplier
        return min(total * (0.5 * total + 20.0), part.num_epochs * size * (9.0 + size))
    return _reach(part, relation)


def _step_range(part: Event, relation: str) -> float:
    """Loss of one step that the grid holds, at most `MAX_GRID` points of it."""
    if isinstance(part, AllocatedGaussianEvent):
        size = 1.0 / part.noise_multiplier
        return size * (2.0 * REACH + size) * MAX_GRID / MOST_CELLS
    reach = _reach(part, relation)
    if isinstance(part, PoissonGaussianEvent):  # which is less where few are taken
        losses = np.linspace(0.0, min(reach, LONGEST_LOSS), 1001)
        end = max(len(_until(x, TAIL)) for x in _curves(part, losses, relation)) - 1
        return float(losses[end]) if end < 1000 else reach
    return reach


def _deviation(part: Event, relation: str) -> float:
    """Rough standard deviation of the loss of one step."""
    if isinstance(part, GaussianEvent):
        return part.gdp
    if isinstance(part, PoissonGaussianEvent):
        size = _size(part, relation)
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
    return max(_deviation(p, relation) for block in blocks_of(part) for p in block)


@functools.lru_cache(maxsize=64)
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
