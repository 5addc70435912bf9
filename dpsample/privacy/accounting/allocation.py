# mypy: allow-untyped-defs
r"""Gaussian steps on randomly allocated records: each joins one step of every epoch.

In an epoch of t steps each record picks one of them, uniformly and independently of
the others; sums are divided by a constant, never by the size of a batch, and a step
without records gets noise, too. With z the noise over a record's bound C, the pair

.. math:: \frac1t \sum_{i=1}^t N(e_i, z^2 I) \quad \text{and} \quad N(0, z^2 I)

dominates an epoch under "zero_out" (Feldman and Shenfeld, arXiv:2502.08202), whatever
later steps make of earlier answers.

Proof. Given what the others picked, step j answers :math:`f_j + 1\{j = i\} v_j + z C
\xi_j`, i the record's pick, :math:`|v_j| \le C`; both vectors are functions of the
answers before. Of a draw x of the pair these answers are made one after the other:
:math:`f_j + v_j x_j` and independent noise of covariance :math:`z^2 (C^2 I - v_j
v_j^T)`, which is positive. So they are a function of x and of independent noise, and no
hockey-stick divergence is larger than the pair's; it is jointly convex, so what the
others picked may be averaged. Epochs compose (Zhu, Dong and Wang 2022, Theorem 10).

**Numbers.** Under N(0) the likelihood ratio M is the mean of t independent log-normal
X_i of mean 1, and both orders of the pair are means of convex functions of it, of
:math:`(M - e^\epsilon)_+` and :math:`(1 - e^\epsilon M)_+`. So they increase when a
value of X_i, or of a partial sum, is split between the two neighbors on a grid that
keep its mean: upper bounds, whose errors are of second order in the grid. What exceeds
the grid is put on its end, and the mean that it loses is added to the first order's
delta.

**Rounding**, with u = 2^-53. All terms are positive. A cell of the law of a sum gets at
most 6 terms for each value of either summand, for the logarithm of a sum grows by half
a cell at least and by one at most where that of its larger term grows by one: of m
values in all it may be short of its mass by a part (6 m + 16) u, beside those that both
summands are short of. Cells of X_i are within `FIRST_ERROR`: quadrature of 8 nodes
leaves less than 1e-15, exponents of up to 200 the rest. So the t - 1 sums are short by
less than t times all that, and the masses are multiplied by as much. Shares of cells
are as exact as the logarithms that they come from: it is as if a value were split that
is off by a part 16 u a level, of which 2 log2 t are below one another, and 600 u of
X_i. A part e = `VALUE_ERROR` is more. A convex f that grows, or that falls, is at v (1
+ e), or v (1 - e), at most f(v) + s f(v e^h), or f(v) + s f(v e^-h), for s = e/(1 -
e^-h): by Jensen's inequality it is enough to add a part s of every cell to both its
neighbors. Epochs are composed by `loss_distributions`, which counts its own errors.

Fewer steps are a bound, too, since :math:`E[M_s | M_t] = M_t` for s < t. Of more than
`MOST_STEPS`, which the grid resolves no longer, as many are counted.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel

REACH = 10.0  # standard deviations of a logarithm that the grid holds
ENDS = 1.6e-23  # more than both ends of a normal law beyond them
MOST_STEPS = 100_000
UNIT = 2.0**-53
FIRST_ERROR, VALUE_ERROR = 1e-12, 2e-13
SUMS_ERROR = 1e-9  # of what is cut off, relatively: more than a million terms
NEGLIGIBLE = 1e-26  # probability, or mean, that a sum loses at either end
CALL_PAIRS = 10**7  # of values whose sums one call adds
FINE = 0.1  # standard deviations of a piece on which eight nodes are enough
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class RatioDistribution(NamedTuple):
    """Law of a likelihood ratio: masses on e^(j h), j = first, ..., and at 0."""

    first: int
    masses: Array
    at_zero: float
    lost: float  # mean that was cut off
    short: float  # part of any mass that rounding may have taken


def epoch_ratio(
    *, noise_multiplier: float, num_steps: int, interval: float
) -> RatioDistribution:
    """Law of M under N(0), on logarithms that are multiples of ``interval``."""
    num_steps = min(num_steps, MOST_STEPS)
    one = total = _split_log_normal(1.0 / noise_multiplier, num_steps, interval)
    for digit in f"{num_steps:b}"[1:]:
        total = _add_ratios(total, total, interval)
        if digit == "1":
            total = _add_ratios(total, one, interval)
    return _cover_rounding(total, interval)


def _split_log_normal(
    spread: float, num_steps: int, interval: float
) -> RatioDistribution:
    """Law of X_i/t; each cell's mass is split as its mean tells, its ends go to 0."""
    center = -0.5 * spread**2 - math.log(num_steps)
    low = math.floor((center - REACH * spread) / interval)
    high = math.ceil((center + spread**2 + REACH * spread) / interval)
    pieces = math.ceil(interval / (FINE * spread))
    width = interval / pieces
    starts = width * np.arange(pieces)
    inside = (starts[:, None] + 0.5 * width * (1.0 + NODES)).ravel()
    rule = np.tile(0.5 * width * WEIGHTS, pieces)
    rule /= math.sqrt(2.0 * math.pi) * spread
    # From the center: the same rounding error of the first place moves all of them.
    places = (low * interval - center) + (
        interval * np.arange(high - low)[:, None] + inside
    )
    heights = rule * np.exp(-0.5 * (places / spread) ** 2)
    shares = np.expm1(inside) / math.expm1(interval)
    masses = np.zeros(high - low + 1)
    masses[:-1] += heights @ (1.0 - shares)
    masses[1:] += heights @ shares
    return RatioDistribution(low, masses, ENDS, ENDS / num_steps, FIRST_ERROR)


def _add_ratios(
    one: RatioDistribution, other: RatioDistribution, interval: float
) -> RatioDistribution:
    """Law of a sum of independent ratios."""
    apart = one.first - other.first
    ends = apart - len(other.masses) + 1, apart + len(one.masses) - 1  # of x - y
    least = max(ends[0], -ends[1], 0)
    gaps = interval * np.arange(least, max(map(abs, ends)) + 1)
    above = np.log1p(np.exp(-gaps)) / interval  # log(e^x + e^y) beyond the larger
    steps = np.floor(above).astype(np.int64)
    shares = np.expm1(interval * (above - steps)) / math.expm1(interval)
    first = max(one.first, other.first) + int(steps[-1])
    last = max(law.first + len(law.masses) for law in (one, other)) + int(steps[0])
    masses, places = np.zeros(last - first + 1), (one.first, other.first, first)
    table, pairs = (steps, shares, least), min(len(one.masses), len(other.masses))
    count = max(1, CALL_PAIRS // pairs)  # gaps of a call of some 20 ms
    for start in range(ends[0], ends[1] + 1, count):
        part = start, min(start + count, ends[1] + 1)
        _add_sums(one.masses, other.masses, places, table, part, masses)
        pauses.notify_listeners()
    terms = len(one.masses) + len(other.masses)
    short = one.short + other.short + (6.0 * terms + 16.0) * UNIT
    # Where one is 0 the other is split between 0 and the end: next to nothing.
    at_zero, lost = one.at_zero * other.at_zero, one.lost + other.lost
    for law, chance in ((one, other.at_zero), (other, one.at_zero)):
        values = np.exp(interval * (law.first - last + np.arange(len(law.masses))))
        masses[-1] += chance * float(law.masses @ values) * (1.0 + SUMS_ERROR)
        at_zero += chance * float(law.masses.sum())
    return _trim(RatioDistribution(first, masses, at_zero, lost, short), interval)


def _cover_rounding(law: RatioDistribution, interval: float) -> RatioDistribution:
    """Law with masses that make up for all rounding errors, as the module says."""
    up = math.exp(law.short + FIRST_ERROR)  # the second of powers of e
    part = VALUE_ERROR / -math.expm1(-interval)
    kept = law.masses * up
    masses = np.pad(kept, 1)
    masses[:-2] += part * kept
    masses[2:] += part * kept
    at_zero, lost = law.at_zero * up, law.lost * up
    return RatioDistribution(law.first - 1, masses, at_zero, lost, 0.0)


@kernel
def _add_sums(one, other, places, table, gaps, out):
    """Add the masses of sums of two values with some gaps, each split by its mean.

    Pairs of one gap are split alike, and are neighbors in memory, as their sums are.
    """
    steps, shares, least = table
    apart = places[0] - places[1]
    for gap in range(gaps[0], gaps[1]):
        share = shares[abs(gap) - least]
        begin, end = max(gap - apart, 0), min(other.shape[0] + gap - apart, len(one))
        xs, ys = one[begin:end], other[begin + apart - gap : end + apart - gap]
        place = places[0] + max(-gap, 0) + steps[abs(gap) - least] - places[2] + begin
        here, above = out[place : place + len(xs)], out[place + 1 : place + len(xs) + 1]
        for i in range(len(xs)):
            here[i] += (1.0 - share) * (xs[i] * ys[i])
        for i in range(len(xs)):
            above[i] += share * (xs[i] * ys[i])


def _trim(law: RatioDistribution, interval: float) -> RatioDistribution:
    """Cut both ends: the lower one is split by its mean, the upper one goes down."""
    first, masses, at_zero, lost, short = law
    values = np.exp(interval * (first + np.arange(len(masses))))
    low = int(np.searchsorted(np.cumsum(masses), NEGLIGIBLE))
    means = np.cumsum((masses * values)[::-1])[::-1]
    high = int(np.searchsorted(-means, -NEGLIGIBLE))
    kept = masses[low:high].copy()
    moved = float(masses[:low] @ values[:low]) / values[low]
    below = float(masses[:low].sum())
    kept[0] += moved * (1.0 + SUMS_ERROR)
    kept[-1] += masses[high:].sum() * (1.0 + SUMS_ERROR)
    at_zero += below - moved + SUMS_ERROR * below
    lost += float(means[high:][:1].sum()) * (1.0 + SUMS_ERROR)
    return RatioDistribution(first + low, kept, at_zero, lost, short)
