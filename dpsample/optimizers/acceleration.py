r"""Hyper-parameters of accelerated clipped gradients: batches, threshold, step.

With fresh batches, :math:`\eta \ge 2\beta` and noise of mean square :math:`\Sigma^2 =
d\varsigma^2 + r_2^2/b` in each gradient, T steps from :math:`|w_0 - w^*| \le D` end at

    E F_C(w^{ag}_T) - F_C(w^*) <= 2 eta D^2/(T(T+1)) + Sigma^2 (2T+1)/(6 eta).

Proof. With :math:`\alpha_t = 2/(t+1)`, :math:`\eta_t = 4\eta/(t(t+1))` the standard
recursion (Ghadimi and Lan 2012) adds :math:`\alpha_t^2 \Sigma^2/(2 (\eta_t - \beta
\alpha_t^2))` in step t; :math:`\eta_t - \beta\alpha_t^2 \ge \eta_t/2`, and weights
proportional to t(t+1) sum to the second term. (Its published constant, for noise alone,
is about four times as large.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.optimizers.batch_schemes import NoiseForecast
from dpsample.optimizers.clipped_losses import clipped_smoothness
from dpsample.optimizers.heavy_tailed import Scales

NUM_CANDIDATES, NUM_THRESHOLDS = 60, 97
# Thresholds tried, in units of the moment.
LOWEST, HIGHEST = 1e-2, 1e6


class Acceleration(NamedTuple):
    """Public numbers of one accelerated run."""

    num_steps: int
    batch_size: int
    clip: float
    smoothness: float
    distance: float

    def eta(self, variance: float) -> float:
        """Step parameter that minimizes the bound."""
        t = self.num_steps
        root = math.sqrt(variance * t * (t + 1) * (2 * t + 1) / 12.0)
        return max(2.0 * self.smoothness, root / self.distance)

    def gap(self, spread: float, *, eta: float, variance: float) -> float:
        """Bound of the mean excess clipped risk from E |w_0 - w*|^2 <= spread."""
        t = self.num_steps
        return 2.0 * eta * spread / (t * (t + 1)) + variance * (2 * t + 1) / (6.0 * eta)


def variance_of(scales: Scales, clip: float, stddev: float, batch_size: int) -> float:
    """Mean square of noise and sampling error of a batch mean."""
    rms = scales.root_mean_square(clip)
    return scales.dim * stddev**2 + rms**2 / batch_size


def acceleration(
    facts: PublicFacts,
    scales: Scales,
    noise: NoiseForecast,
    *,
    distance: float,
    num_steps: int | None,
) -> Acceleration:
    """Return the steps and the threshold that minimize bound plus clipping bias."""
    count = noise.num_records
    if num_steps is not None and num_steps > count:
        check.fail("num_steps", f"<= {count} records of the run", num_steps)
    grid = np.unique(np.geomspace(1, count, NUM_CANDIDATES).astype(int))
    steps = [int(t) for t in grid] if num_steps is None else [num_steps]
    thresholds = [
        (clip, clipped_smoothness(facts, clip)) for clip in _thresholds(scales, noise)
    ]
    choices = [_with_threshold(thresholds, scales, noise, distance, t) for t in steps]
    return min(choices, key=lambda choice: choice[0])[1]


def _with_threshold(
    thresholds: list[tuple[float, float]],
    scales: Scales,
    noise: NoiseForecast,
    distance: float,
    num_steps: int,
) -> tuple[float, Acceleration]:
    """Smallest bound for a number of steps over thresholds and their smoothness."""
    size, relative = noise.num_records // num_steps, noise(num_steps)
    choices = []
    for clip, beta in thresholds:
        run = Acceleration(num_steps, size, clip, beta, distance)
        stddev = relative * clip if relative > 0.0 else 0.0
        variance = variance_of(scales, clip, stddev, size)
        bound = run.gap(distance**2, eta=run.eta(variance), variance=variance)
        choices.append((bound + 2.0 * distance * scales.bias(clip), run))
    return min(choices, key=lambda choice: choice[0])


def _thresholds(scales: Scales, noise: NoiseForecast) -> list[float]:
    """Candidates: the user's, no clipping, or a grid up to the Lipschitz constant."""
    if scales.clip is not None:
        return [scales.clip]
    if math.isinf(noise.gdp):
        return [scales.lipschitz]
    top = min(scales.lipschitz / scales.moment, HIGHEST)
    grid = np.geomspace(min(LOWEST, top), top, NUM_THRESHOLDS)
    return [min(scales.lipschitz, scales.moment * float(c)) for c in grid]
