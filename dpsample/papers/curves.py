"""Epsilon of published noise formulas, and attacks on objective perturbation.

The functions return an `EpsilonAt`: epsilon at the claimed delta, as a function of a
factor by which the published noise is multiplied.

**Sampling with replacement** puts a record into a batch several times, so the sum of
clipped gradients moves by a binomial multiple of the bound. The outputs are a pair of
Gaussian mixtures with an increasing likelihood ratio. So delta(epsilon) is a difference
of two tails, and the points of that curve define the distribution of the privacy loss,
which is composed.

**Attacks** on objective perturbation in one dimension. The objective is the sum of n
losses that are L-Lipschitz, plus n lambda theta^2, plus G theta with a normal G. With 2
n lambda = L = 1 the perturbed minimizer solves S(theta) + G = 0, S(theta) = theta +
slope(theta), so that P(theta <= a) = Phi(S(a) / stddev). Around its center, a two-sided
Huber loss of curvature ``ratio`` multiplies the density by 1 + ratio, and a linear loss
does not. Far from 0 this factor and the shift of the slope add up. Probabilities of the
cells of a grid give a lower bound of delta.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpsample.core.arrays import Array
from dpsample.papers.claim import Case, EpsilonAt
from dpsample.privacy.accounting import accounting, convolution, loss_distributions
from dpsample.privacy.accounting.events import PoissonGaussianEvent
from dpsample.privacy.accounting.renyi import log_moment, rdp_epsilon
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gdp_from_budget,
)
from dpsample.privacy.curves.objective_perturbation import PerturbedObjective
from dpsample.privacy.curves.shuffling import (
    delta_factor,
    shuffle_delta,
    shuffle_epsilon,
)

# Privacy losses are rounded to a grid. Its interval is a hundredth of the standard
# deviation of one step's loss, at most MAX_INTERVAL. It is wider if the grid would
# have more points than MAX_GRID.
MAX_INTERVAL = 1e-3
MAX_GRID = 20_000
# Largest epsilon of a single record before shuffling that is considered.
MAX_LOCAL_EPSILON = 500.0
# How often one record counts in a batch, on either side of the pair.
Pair = Literal["(r, 0)", "(+r, -r)", "(2r, 0)"]


def gaussian(gdp: float, delta: float) -> EpsilonAt:
    """Return epsilon of Gaussian noise, which is exact."""
    return lambda factor: gaussian_epsilon(delta, gdp / factor)


def poisson(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
    relation: Relation,
) -> EpsilonAt:
    """Return epsilon of Poisson sampling. Noise is relative to one record's bound.

    It is attained if all other gradients are 0. No other pair of sums is worse
    (`dpsample.privacy.accounting.poisson`).
    """
    return lambda factor: _poisson_epsilon(
        sampling_rate, noise_multiplier * factor, num_steps, delta, relation
    )


@functools.lru_cache(maxsize=1024)
def _poisson_epsilon(
    rate: float, noise: float, steps: int, delta: float, relation: Relation
) -> float:
    """Return epsilon of Gaussian steps on Poisson samples."""
    event = PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=steps
    )
    return accounting.epsilon_of(event, delta=delta, relation=relation)


def poisson_renyi(
    *, sampling_rate: float, noise_multiplier: float, num_steps: int, delta: float
) -> EpsilonAt:
    """Return epsilon of Poisson sampling by Renyi divergences, under "zero_out"."""

    def epsilon_at(factor: float) -> float:
        noise = noise_multiplier * factor

        def curve(order: float) -> float:
            moment = log_moment(order, sampling_rate, noise, "zero_out")
            return num_steps * moment / (order - 1.0)

        return rdp_epsilon(delta, curve)

    return epsilon_at


def with_replacement(
    pair: Pair,
    *,
    batch: int,
    num_records: int,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
) -> EpsilonAt:
    """Return epsilon of sampling with replacement.

    A record is in a batch r ~ Binomial(batch, 1/n) times.
    """
    counts, weights = binomial(batch, 1.0 / num_records)
    scales = {"(r, 0)": (1.0, 0.0), "(+r, -r)": (1.0, -1.0), "(2r, 0)": (2.0, 0.0)}
    first, second = scales[pair]

    def epsilon_at(factor: float) -> float:
        mixtures = MixturePair(
            weights=tuple(weights),
            means=tuple(first * counts),
            others=tuple(second * counts),
            stddev=noise_multiplier * factor,
        )
        return composed_epsilon(mixtures, num_steps=num_steps, delta=delta)

    return epsilon_at


def objective(
    *, ratio: float, noise: float, delta: float, relation: Relation
) -> EpsilonAt:
    """Return epsilon of objective perturbation of a linear model.

    ``ratio`` is beta / (2 n lambda), and ``noise`` the standard deviation over the
    Lipschitz constant.
    """
    tilted = PerturbedObjective(
        lipschitz=1.0, smoothness=ratio, num_records=1, ridge=0.5, relation=relation
    )
    return lambda factor: tilted.epsilon(delta, stddev=noise * factor)


def shuffle(noise: float, *, num_records: int, delta: float) -> EpsilonAt:
    """Return epsilon of Gaussian noise on each clipped record, in random order.

    Records are clipped to 1. Half of delta is for shuffling epsilon_0-DP records, and
    half is for delta_0 of their Gaussian curve (`dpsample.privacy.curves.shuffling`).
    The admissible delta_0 depends on epsilon itself, so epsilon is increased until it
    solves the equation.
    """

    def is_admissible(local_epsilon: float, gdp: float, epsilon: float) -> bool:
        limit = _local_delta(epsilon, local_epsilon, num_records, delta)
        return gaussian_delta(local_epsilon, gdp) <= limit

    def epsilon_at(factor: float) -> float:
        # A replaced record moves its own output by 2, so it has gdp 2 / noise.
        gdp, epsilon = 2.0 / (noise * factor), 0.0
        for _ in range(200):
            too_small, local = 0.0, MAX_LOCAL_EPSILON
            if not is_admissible(local, gdp, epsilon):
                break
            # Bisect the smallest epsilon_0 whose delta_0 is admissible.
            while local - too_small > 1e-9 * local:
                middle = 0.5 * (too_small + local)
                if is_admissible(middle, gdp, epsilon):
                    local = middle
                else:
                    too_small = middle
            shuffled = shuffle_epsilon(
                delta=0.5 * delta, local_epsilon=local, num_records=num_records
            )
            if shuffled <= epsilon:
                return epsilon
            # A margin, so that the iteration ends at the solution.
            epsilon = shuffled * (1.0 + 1e-6)
        return math.inf

    return epsilon_at


def shuffled_noise(epsilon: float, *, num_records: int, delta: float) -> float:
    """Return the noise on each record, in units of its bound, that has an epsilon."""
    low, high = 0.0, MAX_LOCAL_EPSILON
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        spent = shuffle_delta(
            epsilon=epsilon, local_epsilon=middle, num_records=num_records
        )
        low, high = (middle, high) if spent <= 0.5 * delta else (low, middle)
    return 2.0 / gdp_from_budget(low, _local_delta(epsilon, low, num_records, delta))


def _local_delta(epsilon: float, local: float, num_records: int, delta: float) -> float:
    """Return delta_0 of each record for which half of delta is enough."""
    return min(0.5 * delta / delta_factor(epsilon, local, num_records), 0.5)


@dataclass(frozen=True, kw_only=True)
class MixturePair:
    """Two mixtures of normal distributions with an increasing likelihood ratio.

    Component i has the same probability in both and the means ``means[i] >=
    others[i]``. All have one standard deviation.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    others: tuple[float, ...]
    stddev: float

    def swap(self) -> MixturePair:
        """Return the pair in the other order, reflected so that the ratio increases."""
        return MixturePair(
            weights=self.weights,
            means=tuple(-x for x in self.others),
            others=tuple(-x for x in self.means),
            stddev=self.stddev,
        )

    def curve(self, losses: Array) -> Array:
        """Return the hockey-stick divergence of first from second at each loss."""
        from scipy.special import ndtr

        borders = self._borders(losses)[:, None]
        weights = np.array(self.weights)
        first, second = (
            ndtr((np.array(means) - borders) / self.stddev) @ weights
            for means in (self.means, self.others)
        )
        deltas = first - np.exp(losses) * second
        # The event "any output" shows that the divergence is at least 1 - e^loss, which
        # rounding may hide for negative losses.
        clipped: Array = np.clip(np.maximum(deltas, -np.expm1(losses)), 0.0, 1.0)
        return clipped

    def deviation(self) -> float:
        """Return the standard deviation of the loss under the first mixture."""
        # The second term restores the factor exp(-x^2 / (2 stddev^2)) of both
        # densities.
        x, ratio = self._grid
        density = np.exp(self._log_tilt(x, self.means) - 0.5 * (x / self.stddev) ** 2)
        density /= density.sum()
        return float(np.sqrt(density @ (ratio - density @ ratio) ** 2))

    def _log_tilt(self, x: Array, means: tuple[float, ...]) -> Array:
        """Return the log density, without a term that both mixtures share."""
        scaled = np.array(means) / self.stddev
        powers = np.outer(x / self.stddev, scaled) - 0.5 * scaled**2
        # Subtracting the largest power keeps the exponentials from overflowing.
        highest = powers.max(axis=1)
        sums = np.exp(powers - highest[:, None]) @ np.array(self.weights)
        return np.asarray(highest + np.log(sums))

    @functools.cached_property
    def _grid(self) -> tuple[Array, Array]:
        """Points between which both masses are, except for 1e-20, and their losses."""
        reach = 9.5 * self.stddev
        low, high = min(self.others) - reach, max(self.means) + reach
        x = np.linspace(low, high, 10_001)
        ratio = self._log_tilt(x, self.means) - self._log_tilt(x, self.others)
        # The ratio increases in exact arithmetic. Rounding must not undo that.
        return x, np.maximum.accumulate(ratio)

    def _borders(self, losses: Array) -> Array:
        """Return for each loss the point beyond which the loss is larger."""
        x, ratio = self._grid
        # Interpolation needs strictly increasing losses.
        keep = np.concatenate(([True], np.diff(ratio) > 0.0))
        inner = np.interp(losses, ratio[keep], x[keep])
        outside = np.where(losses < ratio[0], -np.inf, np.inf)
        within = (losses >= ratio[0]) & (losses <= ratio[-1])
        return np.where(within, inner, outside)


def composed_epsilon(pair: MixturePair, *, num_steps: int, delta: float) -> float:
    """Return epsilon at ``delta`` of ``num_steps`` steps, for both orders of the pair.

    It is rounded up, up to the error of the points of a curve, which are interpolated.

    >>> pair = MixturePair(weights=(1.0,), means=(1.0,), others=(0.0,), stddev=40.0)
    >>> print(f"{composed_epsilon(pair, num_steps=100, delta=1e-6):.3f}")
    1.061
    """
    swapped, largest_loss = pair.swap(), 1.0
    pairs = [pair] if swapped == pair else [pair, swapped]
    # The grid ends where both curves have reached 1e-18, far below any delta of
    # interest.
    while (
        largest_loss < 1e4
        and max(p.curve(np.array([largest_loss]))[0] for p in pairs) > 1e-18
    ):
        largest_loss *= 1.25
    interval = max(min(0.01 * pair.deviation(), MAX_INTERVAL), largest_loss / MAX_GRID)
    losses = interval * np.arange(math.ceil(largest_loss / interval) + 1.0)
    # Losses of the first order are negative where those of the second are positive, so
    # each order needs the curve of the other one as well.
    curves = [p.curve(losses) for p in pairs]
    composed = [
        convolution.Composition(
            (loss_distributions.connect_dots(upper, lower, interval),),
            [num_steps],
            interval,
        )
        for upper, lower in zip(curves, reversed(curves), strict=True)
    ]
    return accounting.smallest_epsilon(
        lambda epsilon: max(order.delta(epsilon) for order in composed), delta
    )


def binomial(num_trials: int, probability: float) -> tuple[Array, Array]:
    """Return counts that occur with more than 1e-22 probability, and their masses."""
    from scipy.stats import binom

    masses = binom.pmf(np.arange(num_trials + 1), num_trials, probability)
    counts = np.flatnonzero(masses > 1e-22)
    return counts.astype(np.float64), np.asarray(masses[counts])


def objective_cases(
    shared: dict[str, Any], *, ratio: float, noise: float
) -> Iterator[Case]:
    """Yield the proved bound and the attack on a published noise, for both relations.

    ``ratio`` and ``noise`` are explained in `huber_attack`. ``shared`` has the other
    fields of the cases.
    """
    relations: tuple[Relation, ...] = ("zero_out", "replace_one")
    for relation in relations:
        parameters: dict[str, Any] = {
            "ratio": ratio,
            "noise": noise,
            "delta": shared["delta"],
            "relation": relation,
        }
        yield Case(
            **shared,
            accounting="linear model, exact minimizer",
            relation=relation,
            meaning="upper bound",
            epsilon_at=objective(**parameters),
        )
        rival = "a linear loss" if relation == "replace_one" else "none"
        yield Case(
            **shared,
            accounting=f"d = 1, Huber loss against {rival}",
            relation=relation,
            meaning="attack",
            epsilon_at=huber_attack(**parameters),
        )


def huber_attack(
    *, ratio: float, noise: float, delta: float, relation: Relation
) -> EpsilonAt:
    """Return epsilon of the worst Huber loss against a linear one, or against none.

    ``ratio`` is beta / (2 n lambda), > 0, and ``noise`` the standard deviation of G
    over the Lipschitz constant. The Huber loss is replaced by a linear one, or set to
    zero. Epsilon at ``delta`` is attained, hence a lower bound.

    Examples
    --------
    >>> epsilon_at = huber_attack(
    ...     ratio=0.5, noise=13.572, delta=1e-8, relation="replace_one"
    ... )
    >>> epsilon_at(1.0) > 1.0
    True
    """
    other = 1.0 if relation == "replace_one" else 0.0

    def epsilon_at(factor: float) -> float:
        stddev = noise * factor
        # Centers of the Huber loss, in standard deviations of the minimizer.
        centers = np.linspace(0.5, 6.0, 56)
        pairs = [_masses(c * stddev, ratio, other, stddev) for c in centers]
        return attained_epsilon(pairs, delta)

    return epsilon_at


def attained_epsilon(pairs: list[tuple[Array, Array]], delta: float) -> float:
    """Return the largest epsilon at which a divergence of the pairs exceeds delta."""
    low, high = 0.0, 64.0
    while high - low > 1e-5 * high:
        middle = 0.5 * (low + high)
        is_attained = divergence(pairs, middle) > delta
        low, high = (middle, high) if is_attained else (low, middle)
    return low


def chi_square_mass(squares: Array, dim: int) -> Array:
    """Return the probability that ``dim`` standard normals have a smaller square sum.

    Without normals, dim = 0, it is 1.
    """
    from scipy.special import gammainc

    if dim == 0:
        return np.ones_like(squares)
    return np.asarray(gammainc(0.5 * dim, 0.5 * np.maximum(squares, 0.0)))


def divergence(pairs: list[tuple[Array, Array]], epsilon: float) -> float:
    """Return the largest hockey-stick divergence of the pairs, in both orders."""
    factor = np.exp(epsilon)
    return max(
        float(np.maximum(p - factor * q, 0.0).sum())
        for a, b in pairs
        for p, q in ((a, b), (b, a))
    )


def _masses(
    center: float, ratio: float, other: float, stddev: float
) -> tuple[Array, Array]:
    """Return probabilities of cells under the Huber loss and under the other slope."""
    from scipy.special import ndtr

    reach = 9.0 * stddev + 1.0
    bend = np.linspace(center - 1.0 / ratio, center + 1.0 / ratio, 1001)
    grid = np.union1d(np.linspace(-reach, reach, 1001), bend)
    masses = []
    for slope in (np.clip(ratio * (grid - center), -1.0, 1.0), other):
        ends = np.concatenate(([-np.inf], (grid + slope) / stddev, [np.inf]))
        low, high = ends[:-1], ends[1:]
        # Differences are taken of small tails, and not of numbers near 1.
        upper = ndtr(-low) - ndtr(-high)
        masses.append(np.where(low > 0.0, upper, ndtr(high) - ndtr(low)))
    return masses[0], masses[1]
