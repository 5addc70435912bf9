"""One record's part in a sum: finite and within its bound, whatever the record holds.

A legal record may hold any finite number, so that slopes overflow, norms underflow and
a user's own loss fails. A sum that one record turns into NaN loses its noise, and an
error that one record causes is an output that no budget pays for. So nothing reaches
a sum but through this file: slopes are finite and within the loss's public slope bound,
a slope that is NaN counts as 0, clipping keeps directions, and all bounds hold for the
vectors that are added, after rounding.

With u = 2^-53, N an upper bound of |a| and a slope |s| <= C/N (1 - 8 u), the rounded
products s a_j have norm at most |s| |a| (1 + u) plus subnormal numbers: at most C for
every C >= `LEAST_BOUND`. Norms are computed with a relative error of at most (d + 8) u
and one subnormal unit, d the number of columns, which N includes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.norms import HUGE_SQUARE, TINY_SQUARE
from dpsample.optimizers.soft_truncation import cubic_part, soft_truncation

Array = NDArray[np.float64]

MEAN, CLIP, TRUNCATE, BUCKETS, CATONI = range(5)
LARGEST = 1.7976931348623157e308
# Sums of bounded parts, and points, stay below this: nothing after them overflows.
FAR = 1e300
LEAST_BOUND = 1e-290
UNIT = 2.0**-53
SLACK = 16.0


def slope_limits(norms: Array, threshold: float, width: int) -> Array:
    """Largest slopes whose gradients, slope times row, have norm <= threshold.

    Rounded down. A row of norm 0 limits nothing; one whose norm overflows gets 0.

    Parameters
    ----------
    norms : ndarray of shape (num_records,)
        Of the rows, as computed in floating point.
    threshold : float
        C >= 0; infinite: no limits but the largest double.
    width : int
        Columns of a row.

    Returns
    -------
    ndarray of shape (num_records,)
        Between 0 and the largest double.
    """
    if math.isinf(threshold):
        return np.full(norms.shape, LARGEST)
    above = np.nextafter(norms, np.inf)
    with np.errstate(over="ignore", under="ignore"):
        limits = threshold / above * (1.0 - (width + SLACK) * UNIT)
    # Below the normal numbers a quotient and a product are off by half a unit each.
    limits = np.maximum(np.minimum(limits, LARGEST) - 1e-323, 0.0)
    return np.where(norms == 0.0, LARGEST, limits)


@kernel(forceinline=True, counts_references=False)
def within(x, bound):
    """Return the number of [-bound, bound] nearest to x, and 0 for NaN."""
    x = x if x == x else 0.0
    x = bound if x > bound else x
    return -bound if x < -bound else x


@kernel(forceinline=True, counts_references=False)
def saturate(point, bound):
    """Move every coordinate into [-bound, bound]; an infinite bound moves none."""
    if bound < np.inf:
        for j in range(len(point)):
            point[j] = within(point[j], bound)


@kernel(forceinline=True, counts_references=False)
def are_finite(values, count):
    """Whether the first values are finite."""
    for i in range(count):
        if not abs(values[i]) < np.inf:
            return False
    return True


@kernel(forceinline=True, counts_references=False)
def limit_slopes(estimator, rows, count, slopes):
    """Make slopes finite, then clip or truncate slope * a_i through its limit."""
    bound = estimator.slope_bound
    for i in range(count):
        slopes[i] = within(slopes[i], bound)
    if estimator.kind == CLIP:
        for i in range(count):
            slopes[i] = within(slopes[i], estimator.limits[rows[i]])
    elif estimator.kind == TRUNCATE:
        for i in range(count):
            if abs(slopes[i]) > estimator.limits[rows[i]]:
                slopes[i] = 0.0


@kernel(forceinline=True, counts_references=False)
def add_limited(estimator, g, bucket, out):
    """Add what the estimator takes of one gradient, to ``bucket`` or to ``out``.

    Products of a slope and a row may be infinite here, which is within every limit of a
    coordinate; gradients that are clipped as a whole are finite.
    """
    if estimator.kind == BUCKETS:
        for j in range(len(g)):
            bucket[j] += within(g[j], estimator.threshold)
    elif estimator.kind == CATONI:
        head, cubic = cubic_part(estimator.precision)
        for j in range(len(g)):
            a = g[j] / estimator.scale  # infinite, but not NaN: the slope is finite
            out[j] += estimator.scale * soft_truncation(estimator.table, head, cubic, a)
    else:
        add_clipped(estimator, g, out)


@kernel(fastmath={"reassoc"}, counts_references=False)
def square_of(a):
    """Sum of squares, in any order."""
    s = 0.0
    for j in range(len(a)):
        s += a[j] * a[j]
    return s


@kernel(counts_references=False)
def add_clipped(estimator, g, out):
    """Add a finite gradient, clipped or truncated as a whole in the l2 norm."""
    slack, unit = (len(g) + SLACK) * UNIT, 1.0
    square = square_of(g)
    if not TINY_SQUARE < square < HUGE_SQUARE:
        # Squares overflow or underflow: the largest entry is factored out.
        unit = 0.0
        for j in range(len(g)):
            unit = max(unit, abs(g[j]))
        if unit == 0.0:
            return
        square = 0.0
        for j in range(len(g)):
            square += (g[j] / unit) * (g[j] / unit)
    # Length of g over ``unit`` that may stay, rounded down
    limit = estimator.threshold / math.sqrt(square) * (1.0 - slack)
    limit = max(limit - 1e-323, 0.0)  # subnormal numbers, as in `slope_limits`
    if unit <= limit:
        for j in range(len(g)):
            out[j] += g[j]
    elif estimator.kind == CLIP:
        for j in range(len(g)):
            out[j] += limit * (g[j] / unit)
