# mypy: allow-untyped-defs
"""One record's part in a sum, which is finite and within its bound for any record.

A *slope* is the derivative of a record's loss in its margin. Slope times row is the
record's gradient. A valid record may hold any finite number, so slopes may overflow,
norms may underflow, and a user's own loss may fail. A sum that one record turns into
NaN loses its noise, and an error that one record causes is an output outside the
budget. So everything that reaches a sum goes through this file. Slopes are finite and
within the loss's public slope bound, a slope that is NaN counts as 0, clipping keeps
directions, and all bounds hold for the vectors that are added, after rounding.

With u = 2^-53, N an upper bound of |a| and a slope |s| <= C/N (1 - 8 u), the rounded
products s a_j have norm at most |s| |a| (1 + u) plus subnormal numbers: at most C for
every C >= `LEAST_BOUND`. Norms are computed with a relative error of at most (d + 8) u
and one subnormal unit, d the number of columns, which N includes.

The soft truncation of Catoni and Giulini is psi(t) = t - t^3/6 on |t| <= sqrt(2), and
constant outside. Its smoothed form is psi_bar(a, b) = E psi(a + b Z) for standard
normal Z. The published closed form loses all digits for large |a|. The one here sums
moments of the truncated normal distribution, or integrates when b is large. Estimators
need psi_bar(a, |a|/sqrt(nu)) for one precision nu and many a. Near 0 it is a cubic.
Beyond, polynomials in 1/|a| are fitted once, which is ten times faster.
"""

import functools
import math

import numpy as np
from numpy.polynomial import chebyshev

from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.core.jit import kernel
from dpsample.numerics.norms import HUGE_SQUARE, TINY_SQUARE
from dpsample.optimizers.loop.batches import draw_below

ROOT_2 = math.sqrt(2.0)
# psi(sqrt(2)), the largest value of the soft truncation.
PSI_BOUND = 2.0 * ROOT_2 / 3.0
# Gauss-Legendre rule of 24 points on [-sqrt(2), sqrt(2)].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES = tuple(float(ROOT_2 * x) for x in _NODES)
WEIGHTS = tuple(float(ROOT_2 * w) for w in _WEIGHTS)
# Within 7 standard deviations of the cubic part's ends the rest is below 1e-14.
MARGIN = 7.0
# Polynomials of this degree on intervals of a tenth of a standard deviation have errors
# near the last bit.
DEGREE = 7


@kernel
def psi(t):
    """Return the soft truncation of t."""
    if t > ROOT_2:
        return PSI_BOUND
    if t < -ROOT_2:
        return -PSI_BOUND
    return t - t * t * t / 6.0


@kernel
def _density(x):
    """Return the standard normal density."""
    return 1.0 / math.sqrt(2.0 * math.pi) * math.exp(-0.5 * x * x)


@kernel
def _upper(x):
    """Return 1 - Phi(x)."""
    return 0.5 * math.erfc(x / ROOT_2)


@kernel
def smoothed_psi(a, b):
    """Return E psi(a + b Z) for standard normal Z and b >= 0."""
    if b == 0.0:
        return psi(a)
    # Ends of the cubic part, in standard deviations of Z.
    low, high = (-ROOT_2 - a) / b, (ROOT_2 - a) / b
    # The constant parts, PSI_BOUND times the difference of the probabilities of both
    # ends.
    ends = PSI_BOUND * (_upper(high) - _upper(-low))
    # The density is wide here, so that a fixed rule integrates the cubic part.
    if b >= 1.0:
        total = 0.0
        for i in range(24):
            u = NODES[i]
            total += WEIGHTS[i] * (u - u * u * u / 6.0) * _density((u - a) / b)
        return ends + total / b
    # All mass is at one of the constant ends.
    if low > 40.0 or high < -40.0:
        return ends
    # Probability and moments of Z between low and high. The difference is taken between
    # the two smaller tails, so that it keeps its digits.
    inside = _upper(low) - _upper(high) if low > 0.0 else _upper(-high) - _upper(-low)
    at_low, at_high = _density(low), _density(high)
    first = at_low - at_high
    second = inside + low * at_low - high * at_high
    third = (low * low + 2.0) * at_low - (high * high + 2.0) * at_high
    cubic = a * a * a * inside + 3.0 * a * a * b * first
    cubic += 3.0 * a * b * b * second + b * b * b * third
    return ends + a * inside + b * first - cubic / 6.0


@kernel
def _fill(precision, sizes, out):
    """Fill out with the smoothed truncation of the sizes."""
    root = math.sqrt(precision)
    for i in range(len(sizes)):
        out[i] = smoothed_psi(sizes[i], sizes[i] / root)


@kernel
def cubic_part(precision):
    """Return the size up to which the truncation is a - c a^3, and c."""
    # The cubic is exact while the argument stays on |t| <= sqrt(2).
    root = math.sqrt(precision)
    return ROOT_2 * root / (root + MARGIN), 1.0 / 6.0 + 0.5 / precision


@functools.lru_cache(maxsize=8)
def truncation_table(precision: float) -> Array:
    """Return polynomials of the truncation in the variable head/|a| on [0, 1].

    Row i, of shape (DEGREE + 1,), has the coefficients on the i-th of equal intervals,
    which is mapped to [-1, 1]. In that variable the truncation changes like a normal
    distribution function of standard deviation 1/(sqrt(nu) + 7). Powers of a low degree
    on short intervals keep all digits.
    """
    head = cubic_part.py_func(precision)[0]
    deviations = math.sqrt(precision) + MARGIN
    num_pieces = math.ceil(10.0 * deviations)
    nodes = chebyshev.chebpts1(DEGREE + 1)
    positions = (np.arange(num_pieces)[:, None] + 0.5 * (nodes + 1.0)) / num_pieces
    values = np.empty(positions.size)
    _fill(float(precision), head / positions.ravel(), values)
    to_chebyshev = np.linalg.inv(chebyshev.chebvander(nodes, DEGREE))
    to_powers = np.zeros((DEGREE + 1, DEGREE + 1))
    for degree, unit in enumerate(np.eye(DEGREE + 1)):
        powers = chebyshev.cheb2poly(unit[: degree + 1])
        to_powers[: len(powers), degree] = powers
    table = values.reshape(positions.shape) @ (to_powers @ to_chebyshev).T
    return np.ascontiguousarray(table)


@kernel
def soft_truncation(table, head, cubic, a):
    """Return psi_bar(a, |a|/sqrt(nu)) for the table of nu, never above its bound."""
    size = abs(a)
    if not size > head:  # also true for NaN
        return a - cubic * (a * a * a)
    position = head / size * len(table)
    piece = min(int(position), len(table) - 1)
    y = 2.0 * (position - piece) - 1.0
    value = 0.0
    for j in range(DEGREE, -1, -1):
        value = value * y + table[piece, j]
    return math.copysign(min(value, PSI_BOUND), a)


# Largest double.
LARGEST = 1.7976931348623157e308
# Sums of bounded parts, and points, stay below this, so that nothing overflows later.
FAR = 1e300
# Bounds above this are far larger than the subnormal numbers by which products are off.
LEAST_BOUND = 1e-290
# Roundings of a limit, in addition to one for each column.
SLACK = 16.0


def slope_limits(norms: Array, threshold: float, width: int) -> Array:
    """Return the largest slopes for which slope times row has norm <= threshold.

    They are rounded down, and between 0 and the largest double. ``norms``
    (num_records,) are the norms of the rows, of ``width`` columns, as computed in
    floating point. A row of norm 0 or an infinite threshold limits nothing. A row whose
    norm overflows has the limit 0.
    """
    if math.isinf(threshold):
        return np.full(norms.shape, LARGEST)
    above = np.nextafter(norms, np.inf)
    with np.errstate(over="ignore", under="ignore"):
        limits = threshold / above * (1.0 - (width + SLACK) * UNIT_ROUNDOFF)
    # Below the normal numbers a quotient and a product are off by half a unit each.
    limits = np.maximum(np.minimum(limits, LARGEST) - 1e-323, 0.0)
    return np.where(norms == 0.0, LARGEST, limits)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def clip_number(x, bound):
    """Return the number of [-bound, bound] nearest to x, and 0 for NaN."""
    x = x if x == x else 0.0
    x = bound if x > bound else x
    return -bound if x < -bound else x


@kernel(counts_references=False)
def saturate(point, bound):
    """Move every coordinate into [-bound, bound]. An infinite bound moves none."""
    if bound < np.inf:
        for j in range(len(point)):
            point[j] = clip_number(point[j], bound)


@kernel(counts_references=False)
def are_finite(values, count):
    """Return whether the first ``count`` values are finite."""
    for i in range(count):
        if not abs(values[i]) < np.inf:
            return False
    return True


@kernel(counts_references=False)
def bound_slopes(records, rows, count, slopes):
    """Make slopes finite, see `LIMIT`."""
    for i in range(count):
        slopes[i] = clip_number(slopes[i], records.slope_bound)


@kernel(counts_references=False)
def clip_slopes(records, rows, count, slopes):
    """Make slopes finite, and clip slope * a_i through its limit, see `LIMIT`."""
    bound_slopes(records, rows, count, slopes)
    for i in range(count):
        slopes[i] = clip_number(slopes[i], records.limits[rows[i]])


@kernel(counts_references=False)
def truncate_slopes(records, rows, count, slopes):
    """Make slopes finite, and truncate slope * a_i by its limit, see `LIMIT`."""
    bound_slopes(records, rows, count, slopes)
    for i in range(count):
        if abs(slopes[i]) > records.limits[rows[i]]:
            slopes[i] = 0.0


@kernel(fastmath={"reassoc"}, counts_references=False)
def square_of(a):
    """Return the sum of squares, added in any order."""
    s = 0.0
    for j in range(len(a)):
        s += a[j] * a[j]
    return s


@kernel(counts_references=False)
def factor_out(g):
    """Return a unit, and the square of the length of a finite g in that unit.

    The unit is 1 unless squares overflow or underflow. Then it is the largest entry, or
    0 if g is 0. ``unit <= length_that_stays(threshold, square, dim)`` then says that
    the length of g is at most the threshold.
    """
    square = square_of(g)
    if TINY_SQUARE < square < HUGE_SQUARE:
        return 1.0, square
    unit, square = 0.0, 0.0
    for j in range(len(g)):
        unit = max(unit, abs(g[j]))
    if unit > 0.0:
        for j in range(len(g)):
            square += (g[j] / unit) * (g[j] / unit)
    return unit, square


@kernel(counts_references=False)
def length_that_stays(threshold, square, dim):
    """Return threshold / sqrt(square), rounded down.

    A vector whose length has this ``square`` may be multiplied by the result.
    """
    slack = (dim + SLACK) * UNIT_ROUNDOFF
    # Subnormal numbers are off by half a unit, as in `slope_limits`.
    return max(threshold / math.sqrt(square) * (1.0 - slack) - 1e-323, 0.0)


@kernel(counts_references=False)
def add_clipped(numbers, data, is_run, count, memory, rng):
    """Add one finite gradient, clipped as a whole in the l2 norm, see `ADD`."""
    g, out = memory.scratch, memory.partial
    unit, square = factor_out(g)
    if unit == 0.0:
        return
    limit = length_that_stays(numbers.threshold, square, len(g))
    if unit <= limit:
        for j in range(len(g)):
            out[j] += g[j]
    else:
        for j in range(len(g)):
            out[j] += limit * (g[j] / unit)


@kernel(counts_references=False)
def add_truncated(numbers, data, is_run, count, memory, rng):
    """Add one finite gradient if its l2 norm is small enough, see `ADD`."""
    g, out = memory.scratch, memory.partial
    unit, square = factor_out(g)
    if unit == 0.0:
        return
    if unit <= length_that_stays(numbers.threshold, square, len(g)):
        for j in range(len(g)):
            out[j] += g[j]


@kernel(counts_references=False)
def add_to_bucket(numbers, data, is_run, count, memory, rng):
    """Add one gradient, clipped by coordinates, to a random bucket, see `ADD`.

    Products of a slope and a row may be infinite here, because clipping a coordinate
    makes them finite.
    """
    g, bucket = memory.scratch, memory.buckets[draw_below(rng, numbers.num_buckets)]
    for j in range(len(g)):
        bucket[j] += clip_number(g[j], numbers.threshold)


@kernel(counts_references=False)
def add_softly(numbers, data, is_run, count, memory, rng):
    """Add one gradient, softly truncated by coordinates, see `ADD`."""
    g, out = memory.scratch, memory.partial
    head, cubic = cubic_part(numbers.precision)
    for j in range(len(g)):
        a = g[j] / numbers.scale  # infinite, but not NaN: the slope is finite
        out[j] += numbers.scale * soft_truncation(numbers.table, head, cubic, a)
