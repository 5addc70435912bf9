# mypy: allow-untyped-defs
r"""Gaussian steps on randomly allocated records, each in one step of every epoch.

In an epoch of t steps each record picks one of them, uniformly and independently of
the others. Sums are divided by a constant, never by the size of a batch, and a step
without records gets noise, too. With z the noise over a record's bound C, the pair

.. math:: \frac1t \sum_{i=1}^t N(e_i, z^2 I) \quad \text{and} \quad N(0, z^2 I)

dominates an epoch under "zero_out" (Feldman and Shenfeld, arXiv:2502.08202), however
later steps depend on earlier answers.

*Proof.* Given the other records' picks, step j answers :math:`f_j + 1\{j = i\} v_j + z
C \xi_j`, i the record's pick, :math:`|v_j| \le C`. Both vectors are functions of the
answers before. From a draw x of the pair these answers are made one after the other, as
:math:`f_j + v_j x_j` plus independent noise of covariance :math:`z^2 (C^2 I - v_j
v_j^T)`, which is positive semidefinite. So the answers are a function of x and of
independent noise, and no hockey-stick divergence is larger than the pair's. As it is
jointly convex, the other records' picks may be averaged. Epochs compose (Zhu, Dong and
Wang 2022, Theorem 10).

**The ratio M.** Under N(0) the likelihood ratio M is the mean of t independent
log-normal X_i of mean 1. Both orders of the pair are means of convex functions of it,
of :math:`(M - e^\epsilon)_+` and :math:`(1 - e^\epsilon M)_+`. The distribution of M is
computed on the grid of values e^(j h), j an integer, with the *interval* h. X_i/t is
put on the grid, and binary powers of sums give t of them. A value between two grid
points is *split*, that is, its mass is divided between them such that its mean is kept.
That raises the mean of every convex function, so the results are upper bounds, with
errors of second order in h. Mass above the grid is put on its end, and the mean that it
loses (`lost`) is added to the first order's delta.

**Rounding**, with u = 2^-53. All terms are positive.

- *Masses.* The logarithm of a sum grows by at least h/2 and at most h where the
  logarithm of its larger term grows by h. So a cell of a sum gets at most 6 terms for
  each value of either summand. With m values in all, its mass may be short by a part
  (6 m + 16) u, in addition to the parts of both summands. Cells of X_i are within
  `FIRST_ERROR`. Quadrature with 8 nodes has an error below 1e-15, exponents of up to
  200 have the rest. The t - 1 sums are short by less than t times all that (`short`),
  and the masses are multiplied by as much.
- *Values.* The shares of a split are as exact as the logarithms that they come from. It
  is as if the value that is split had a relative error of 16 u a level, of which 2 log2
  t are below one another, and of 600 u in X_i. e = `VALUE_ERROR` is more. A convex f
  that grows, or falls, is at v (1 + e), or v (1 - e), at most f(v) + s f(v e^h), or
  f(v) + s f(v e^-h), for s = e/(1 - e^-h). So by Jensen's inequality it is enough to
  add a part s of every cell to both its neighbors.

`loss_distributions` composes epochs and includes its own errors. Fewer steps are a
bound, too, since :math:`E[M_s | M_t] = M_t` for s < t. So more than `MAX_STEPS` steps,
which the grid does not resolve, count as `MAX_STEPS`.

`poisson` answers another question: there a record may be in several steps of an epoch,
or in none. For 10 steps that take each record once on average, at epsilon = 1, delta =
1e-6 under "zero_out", allocation needs the noise multiplier 1.640, Poisson sampling
1.952.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.core.jit import kernel

# The grid holds this many standard deviations of a logarithm on either side. A normal
# distribution has less than `ENDS` beyond them.
MAX_DEVIATIONS = 10.0
ENDS = 1.6e-23
MAX_STEPS = 100_000
FIRST_ERROR = 1e-12  # relative error of a mass of X_i
VALUE_ERROR = 2e-13  # relative error e of a value that is split
# Relative error of a sum of up to a million terms that are cut off.
SUMS_ERROR = 1e-9
# Pairs of values whose sums one compiled call adds, in some 20 ms.
CALL_PAIRS = 10**7
# Gauss-Legendre rule on [-1, 1].
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class RatioDistribution(NamedTuple):
    """Distribution of a likelihood ratio, on powers of e^h and on 0.

    Attributes
    ----------
    first : int
        The value of ``masses[j]`` is e^((first + j) h).
    masses : ndarray of shape (num_values,)
        Probabilities.
    at_zero : float
        Probability of the value 0.
    lost : float
        Part of the mean that was cut off.
    short : float
        Relative amount by which rounding may have lowered any mass.
    """

    first: int
    masses: Array
    at_zero: float
    lost: float
    short: float


def epoch_ratio(
    *, noise_multiplier: float, num_steps: int, interval: float
) -> RatioDistribution:
    """Return the distribution of M under N(0), on a grid with this interval h."""
    num_steps = min(num_steps, MAX_STEPS)
    single = total = _split_log_normal(1.0 / noise_multiplier, num_steps, interval)
    # Binary powers: each further digit of num_steps doubles the number of summands, and
    # a digit 1 adds one.
    for digit in f"{num_steps:b}"[1:]:
        total = _add_ratios(total, total, interval)
        if digit == "1":
            total = _add_ratios(total, single, interval)
    return _cover_rounding(total, interval)


def _split_log_normal(
    deviation: float, num_steps: int, interval: float
) -> RatioDistribution:
    """Return the distribution of X_i/t on the grid. The ends count as 0.

    ``deviation`` is the standard deviation of log X_i. Each cell between two grid
    points is integrated by Gauss-Legendre rules on equal pieces.
    """
    center = -0.5 * deviation**2 - math.log(num_steps)
    low = math.floor((center - MAX_DEVIATIONS * deviation) / interval)
    # The mean of X_i comes from logarithms deviation^2 higher.
    high = math.ceil((center + deviation**2 + MAX_DEVIATIONS * deviation) / interval)
    # Eight nodes are enough on a tenth of a standard deviation.
    num_pieces = math.ceil(interval / (0.1 * deviation))
    width = interval / num_pieces
    starts = width * np.arange(num_pieces)
    offsets = (starts[:, None] + 0.5 * width * (1.0 + NODES)).ravel()  # in a cell
    weights = np.tile(0.5 * width * WEIGHTS, num_pieces)
    weights /= math.sqrt(2.0 * math.pi) * deviation
    # Relative to the center, so that a rounding error of `low` moves all nodes alike.
    nodes = (low * interval - center) + (
        interval * np.arange(high - low)[:, None] + offsets
    )
    densities = weights * np.exp(-0.5 * (nodes / deviation) ** 2)
    # The share of the upper grid point keeps the mean of e^x.
    shares = np.expm1(offsets) / math.expm1(interval)
    masses = np.zeros(high - low + 1)
    masses[:-1] += densities @ (1.0 - shares)
    masses[1:] += densities @ shares
    return RatioDistribution(low, masses, ENDS, ENDS / num_steps, FIRST_ERROR)


def _add_ratios(
    left: RatioDistribution, right: RatioDistribution, interval: float
) -> RatioDistribution:
    """Return the distribution of the sum of two independent ratios."""
    # The gap of two values is the difference of their exponents j.
    offset = left.first - right.first
    low = offset - len(right.masses) + 1
    high = offset + len(left.masses) - 1
    # A table over the absolute gaps from `min_gap` on: log(e^x + e^y) is
    # `steps` intervals and a share of one above the larger of x and y.
    min_gap = max(low, -high, 0)
    gaps = interval * np.arange(min_gap, max(abs(low), abs(high)) + 1)
    rises = np.log1p(np.exp(-gaps)) / interval
    steps = np.floor(rises).astype(np.int64)
    shares = np.expm1(interval * (rises - steps)) / math.expm1(interval)
    # Rises fall with the gap.
    first = max(left.first, right.first) + int(steps[-1])
    ends = (left.first + len(left.masses), right.first + len(right.masses))
    last = max(ends) + int(steps[0])
    masses, firsts = np.zeros(last - first + 1), (left.first, right.first, first)
    table = (steps, shares, min_gap)
    num_pairs = min(len(left.masses), len(right.masses))  # largest number for a gap
    gaps_per_call = max(1, CALL_PAIRS // num_pairs)
    for start in range(low, high + 1, gaps_per_call):
        part = start, min(start + gaps_per_call, high + 1)
        _add_sums(left.masses, right.masses, firsts, table, part, masses)
        pauses.notify_listeners()
    num_values = len(left.masses) + len(right.masses)
    short = left.short + right.short + (6.0 * num_values + 16.0) * UNIT_ROUNDOFF
    # Where one value is 0 the other one is split between 0 and the grid's end. That is
    # coarse, and matters little because the probability is tiny.
    at_zero, lost = left.at_zero * right.at_zero, left.lost + right.lost
    for ratio, zero_mass in ((left, right.at_zero), (right, left.at_zero)):
        exponents = ratio.first - last + np.arange(len(ratio.masses))
        mean = float(ratio.masses @ np.exp(interval * exponents))
        masses[-1] += zero_mass * mean * (1.0 + SUMS_ERROR)
        at_zero += zero_mass * float(ratio.masses.sum())
    return _trim(RatioDistribution(first, masses, at_zero, lost, short), interval)


def _cover_rounding(ratio: RatioDistribution, interval: float) -> RatioDistribution:
    """Raise masses by more than all rounding errors, as the module describes."""
    # The second error covers the products with powers of e.
    up = math.exp(ratio.short + FIRST_ERROR)
    share = VALUE_ERROR / -math.expm1(-interval)  # s
    raised = ratio.masses * up
    masses = np.pad(raised, 1)
    masses[:-2] += share * raised
    masses[2:] += share * raised
    at_zero, lost = ratio.at_zero * up, ratio.lost * up
    return RatioDistribution(ratio.first - 1, masses, at_zero, lost, 0.0)


@kernel
def _add_sums(left, right, firsts, table, gap_range, out):
    """Add to ``out`` the masses of sums of two values with a gap in a range.

    ``firsts`` are the exponents of the first values of ``left``, ``right`` and ``out``,
    ``table`` has the rises of `_add_ratios`. Pairs with one gap are split alike, and
    they are neighbors in memory, as their sums are. So the inner loops are vectorized.
    """
    steps, shares, min_gap = table
    offset = firsts[0] - firsts[1]
    for gap in range(gap_range[0], gap_range[1]):
        share = shares[abs(gap) - min_gap]
        # left[i] and right[i + offset - gap] have this gap.
        begin, end = max(gap - offset, 0), min(right.shape[0] + gap - offset, len(left))
        xs, ys = left[begin:end], right[begin + offset - gap : end + offset - gap]
        larger = firsts[0] + max(-gap, 0) + begin  # exponent for i = begin
        cell = larger + steps[abs(gap) - min_gap] - firsts[2]
        lower, upper = out[cell : cell + len(xs)], out[cell + 1 : cell + len(xs) + 1]
        for i in range(len(xs)):
            lower[i] += (1.0 - share) * (xs[i] * ys[i])
        for i in range(len(xs)):
            upper[i] += share * (xs[i] * ys[i])


def _trim(ratio: RatioDistribution, interval: float) -> RatioDistribution:
    """Cut both ends of a distribution.

    Mass below is split between 0 and the new first value. Mass above moves down to the
    new last value, and its mean is lost.
    """
    # Probability at the lower end, and mean at the upper end, that a sum may lose.
    negligible = 1e-26
    first, masses, at_zero, lost, short = ratio
    values = np.exp(interval * (first + np.arange(len(masses))))
    low = int(np.searchsorted(np.cumsum(masses), negligible))
    means = np.cumsum((masses * values)[::-1])[::-1]  # from each value on
    high = int(np.searchsorted(-means, -negligible))
    inner = masses[low:high].copy()
    lifted = float(masses[:low] @ values[:low]) / values[low]
    below = float(masses[:low].sum())
    inner[0] += lifted * (1.0 + SUMS_ERROR)
    inner[-1] += masses[high:].sum() * (1.0 + SUMS_ERROR)
    at_zero += below - lifted + SUMS_ERROR * below
    lost += float(means[high:][:1].sum()) * (1.0 + SUMS_ERROR)
    return RatioDistribution(first + low, inner, at_zero, lost, short)
