# mypy: allow-untyped-defs
r"""Exact draws from e^{-V} on an interval for a convex piecewise quadratic V.

    V'(t) = g + q t + sum_i h_i 1(t > t_i),    q >= 0, h_i > 0:

one curvature and kinks t_i, as for hinge, absolute and quantile losses with a squared
Euclidean regularizer. Pieces between kinks have masses that are differences of Mills
ratios; a piece is drawn by its mass, in log space, then a truncated normal variable.
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import HALF_LOG_2PI, log_ndtr
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.univariate.log_concave import truncated_normal

MAX_TRIES = 10_000


@kernel
def _rising(rng, slope, curvature, width):
    """Draw from exp(-slope s - curvature s^2 / 2) on [0, width], slope > 0 large."""
    drop = slope * width
    for _ in range(MAX_TRIES):
        if drop > 1e-12:
            step = -math.log1p(rng.random() * math.expm1(-drop)) / slope
        else:
            step = width * rng.random()
        if curvature == 0.0:
            return min(step, width)
        if rng.standard_exponential() >= 0.5 * curvature * step * step:
            return min(step, width)
    return np.nan


@kernel
def draw_quadratic(rng, slope, curvature, low, high):
    """Draw from exp(-slope t - curvature t^2 / 2) on [low, high]; NaN if impossible.

    Exact rejection: from the tangent at the lower end of a mode far outside, uniform on
    an interval shorter than a standard deviation, else a truncated normal.
    """
    if low == high:
        return low
    root = math.sqrt(curvature)
    if slope == 0.0 and curvature == 0.0:
        return low + (high - low) * rng.random() if high - low < np.inf else np.nan
    # Rates of increase from the ends into the interval, in units of 1 / sd.
    at_low = slope + curvature * low if low > -np.inf else -np.inf
    if at_low > 0.6 * root:
        return min(low + _rising(rng, at_low, curvature, high - low), high)
    at_high = -slope - curvature * high if high < np.inf else -np.inf
    if at_high > 0.6 * root:
        return max(high - _rising(rng, at_high, curvature, high - low), low)
    if root * (high - low) < 1.0:
        mode = low
        if curvature > 0.0:
            mode = min(max(-slope / curvature, low), high)
        elif slope < 0.0:
            mode = high
        for _ in range(MAX_TRIES):
            t = low + (high - low) * rng.random()
            step = t - mode
            rise = step * (slope + curvature * mode + 0.5 * curvature * step)
            if rng.standard_exponential() >= rise:
                return t
        return np.nan
    mean, scale = -slope / curvature, 1.0 / root
    z = truncated_normal(rng, (low - mean) * root, (high - mean) * root)
    return min(max(mean + scale * z, low), high)


@kernel
def log_mills(x):
    """Log of the Mills ratio (1 - Phi(x)) / phi(x) for x >= 0."""
    if x < 20.0:
        return log_ndtr(-x) + 0.5 * x * x + HALF_LOG_2PI
    z = 1.0 / (x * x)
    term, tail = 1.0, 0.0
    for n in range(1, 10):
        term *= -(2.0 * n - 1.0) * z
        tail += term
    return math.log1p(tail) - math.log(x)


@kernel
def log_rising_mass(slope, curvature, width):
    """Log of the integral of exp(-slope s - curvature s^2 / 2) over [0, width].

    For slope >= 0; the middle slope replaces the curvature on a very short interval,
    with relative error below 1e-9.
    """
    if width == 0.0:
        return -np.inf
    root = math.sqrt(curvature)
    if curvature == 0.0 or root * width < 1e-4:
        middle = slope + (0.5 * curvature * width if curvature > 0.0 else 0.0)
        drop = middle * width if middle > 0.0 else 0.0
        if drop < 1e-9:
            return math.log(width) - 0.5 * drop
        return math.log(-math.expm1(-drop)) - math.log(middle)
    x = slope / root
    whole = log_mills(x)
    if width == np.inf:
        return whole - math.log(root)
    drop = width * (slope + 0.5 * curvature * width)
    lost = log_mills(x + root * width) - whole - drop
    return whole + math.log(-math.expm1(lost)) - math.log(root)


@kernel
def log_mass(slope, curvature, width):
    """Log of the integral of exp(-slope s - curvature s^2 / 2) over [0, width]."""
    if slope >= 0.0:
        return log_rising_mass(slope, curvature, width)
    at_end = slope + curvature * width
    if at_end <= 0.0:
        rise = width * (slope + 0.5 * curvature * width)
        return log_rising_mass(-at_end, curvature, width) - rise
    lowest = -slope / curvature
    left = log_rising_mass(0.0, curvature, lowest)
    right = log_rising_mass(0.0, curvature, width - lowest)
    top = max(left, right)
    both = top + math.log(math.exp(left - top) + math.exp(right - top))
    return both + 0.5 * slope * slope / curvature


@kernel
def sift_down(keys, rises, start, count):
    """Restore the heap below ``start``."""
    root = start
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and keys[child] < keys[child + 1]:
            child += 1
        if keys[root] >= keys[child]:
            return
        keys[root], keys[child] = keys[child], keys[root]
        rises[root], rises[child] = rises[child], rises[root]
        root = child


@kernel
def sort_pairs(keys, rises, count):
    """Sort the first ``count`` kinks and their rises in place, by heaps."""
    for start in range(count // 2 - 1, -1, -1):
        sift_down(keys, rises, start, count)
    for last in range(count - 1, 0, -1):
        keys[0], keys[last] = keys[last], keys[0]
        rises[0], rises[last] = rises[last], rises[0]
        sift_down(keys, rises, 0, last)


@kernel
def draw_piecewise(rng, slope, curvature, low, high, kinks, rises, count, logs):
    """Return a code and a draw on [low, high] that contains 0.

    V' is slope + curvature t up to the first of ``count`` sorted kinks, all inside the
    interval, and rises by ``rises`` at each. ``logs`` has room for count + 1 masses.
    """
    # V is measured from an end of each piece that is finite.
    value, before, rate = 0.0, slope, slope
    top = -np.inf
    for i in range(count + 1):
        left = kinks[i - 1] if i > 0 else low
        right = kinks[i] if i < count else high
        if i > 0:
            rate += rises[i - 1]
        if left == -np.inf and right == np.inf:
            logs[i] = 0.0
        elif left == -np.inf:
            # Reflected: V rises from the first kink to the left, measured from there.
            logs[i] = log_mass(-(rate + curvature * right), curvature, np.inf)
        else:
            width = right - left
            at_left = rate + curvature * left
            logs[i] = log_mass(at_left, curvature, width) - value
            if right < np.inf:
                value += width * (at_left + 0.5 * curvature * width)
        top = max(top, logs[i])
    if not abs(top) < np.inf:
        return PIECE_FAILED, np.nan
    total = 0.0
    for i in range(count + 1):
        total += math.exp(logs[i] - top)
    level = total * rng.random()
    piece, rate, reached = 0, before, math.exp(logs[0] - top)
    while piece < count and reached <= level:
        rate += rises[piece]
        piece += 1
        reached += math.exp(logs[piece] - top)
    left = kinks[piece - 1] if piece > 0 else low
    right = kinks[piece] if piece < count else high
    t = draw_quadratic(rng, rate, curvature, left, right)
    return (OK if t == t else PIECE_FAILED), t
