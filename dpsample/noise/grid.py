# mypy: allow-untyped-defs
"""Grid of noisy values: the exact sum of query and noise, rounded to public multiples.

In doubles q + noise is no additive noise: which doubles it can be depends on q, and its
last bits tell queries apart (Mironov, CCS 2012). Here the step s is the largest power
of two up to 2^-10 times the scale of the noise, a public number, and the answer is the
multiple of s next to q + noise in real arithmetic, ties up. Rounding what a private
mechanism returns is post-processing: no sensitivity grows, whatever the dimension, and
the accounting is that of continuous noise. The rounding adds s^2/12 < 1e-7 scale^2 to
the variance.

**The nearest multiple, certified.** With q/s = b + f, b whole and |f| <= 1/2 (exact: s
is a power of two), and with the digits high + low of the noise over its scale, what is
rounded is f + (scale/s)(high + low), scale/s < 2^11. Product and sum of the high parts
are exact as pairs of doubles, and the pair is compared exactly with the borders of its
cell. The parts below are off by less than 2^-83: they are at most 2^-33, three of their
operations are rounded to 53 bits, and the digits are cut off at 2^-97 of a scale. That
close to a border the sum is with probability below 2^-81. With the little that the
digits' own law is off (`numerics.exact`), each number is that of the ideal rounded law
but with probability `TOTAL_VARIATION`.

**Range.** Queries are cut off at +-2^51 s, which moves no two of them apart in any l_p
norm; NaN, which no declared sensitivity allows, counts as 0. So nothing raises because
of a query's value, and a number of the answer is below 2^52 s: exact in a double.
"""

import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.exact import (
    exact_exponential,
    exact_normal,
    two_product,
    two_sum,
    word,
)

# Bits between the step and the scale of the noise.
FINENESS = 10
REACH = 2.0**51
TOTAL_VARIATION = 2.0**-80
# Of the scale: products with it stay normal numbers, and so does the whole range.
_LEAST, _MOST = 1e-280, 1e280


def grid_step(scale: float) -> float:
    """Largest power of two up to 2^-10 of the scale of the noise.

    Raises
    ------
    ValueError
        If the scale is beyond 1e-280 to 1e280.

    Examples
    --------
    >>> grid_step(1.0) == grid_step(1.9) == 2.0**-10
    True
    """
    if not _LEAST <= scale <= _MOST:
        condition = f"from {_LEAST:g} to {_MOST:g}"
        check.fail("the scale of the noise", condition, scale, "Use other units.")
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - FINENESS)


@kernel
def nearest_multiple(query, ratio, step, high, low):
    """Multiple of ``step`` next to query + ratio step (high + low), ties up."""
    cells = query / step
    if np.isnan(cells):
        cells = 0.0
    cells = min(max(cells, -REACH), REACH)
    base = np.rint(cells)  # to a floor the distance would not always be exact
    product, error = two_product(ratio, high)
    total, rest = two_sum(cells - base, product)
    rest += error + ratio * low
    nearest = np.rint(total)
    gap = total - nearest  # exact, and so are its distances to close borders
    if rest >= 0.5 - gap:
        nearest += 1.0
    elif rest < -0.5 - gap:
        nearest -= 1.0
    return (base + nearest + 0.0) * step  # no sign of a zero


@kernel
def add_gaussian(rng, stddev, step, values):
    """Replace each value by the multiple next to it + N(0, stddev^2)."""
    for i in range(len(values)):
        high, low = exact_normal(rng)
        values[i] = nearest_multiple(values[i], stddev / step, step, high, low)


@kernel
def add_laplace(rng, scale, step, values):
    """Replace each value by the multiple next to it + Laplace noise of this scale."""
    for i in range(len(values)):
        high, low = exact_exponential(rng)
        if word(rng) & np.uint64(1) == np.uint64(1):
            high, low = -high, -low
        values[i] = nearest_multiple(values[i], scale / step, step, high, low)


def rounded_sum(values: Array, noise: Array, step: float) -> Array:
    """Multiples of ``step`` near values + noise, both as they are in doubles."""
    values = np.clip(np.nan_to_num(values, nan=0.0), -REACH * step, REACH * step)
    cells = np.clip(np.round((values + noise) / step), -2.0 * REACH, 2.0 * REACH)
    return np.asarray((cells + 0.0) * step)  # no sign of a zero
