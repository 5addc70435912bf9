# mypy: allow-untyped-defs
r"""Exact draws from one-dimensional log-concave densities on an interval.

`normal_between` draws from a normal on [lower, upper]. `draw_from_envelope` draws from
e^{-f} on [lower, upper] with the energy

    f(t) = b |t|^q + c |t|^s + (t - v)^2 / (2 h),    b, c >= 0, q, s >= 1, 0 < h <= inf,

by rejection. It is the density of a coordinate under two penalties and a Gaussian of
mean v and variance h. The *envelope* is a plateau around the mode, and two exponential
tails along the tangents of f at the ends of the plateau, where f has risen by about 1.
As f is convex, e^{-f} is nowhere above the envelope, whatever the ends. So an inexact
mode or width affects the number of proposals and not the distribution. If an argument
is NaN, the draw is NaN.

`draw_piecewise` is for a convex piecewise quadratic V,

    V'(t) = g + q t + sum_i h_i 1(t > t_i),    q >= 0, h_i > 0,

with one curvature q and *breakpoints* t_i, at which V' jumps. The hinge, absolute and
quantile losses with a squared Euclidean regularizer give such energies. Between two
breakpoints the density is a normal, whose mass is a difference of Mills ratios. A
segment is drawn by its mass, in log space, and then a truncated normal variable.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import HALF_LOG_2PI, log_ndtr
from dpsample.samplers.errors import DRAW_FAILED, FUNCTION_FAILED, OK

# Maximum numbers of iterations of a search, and of proposals of a draw. A search that
# ends early gives a worse envelope. A draw that fails is NaN.
MAX_STEPS = 60
MAX_PROPOSALS = 10_000
# If a mean is more deviations outside an interval, energies are measured from the end
# of the interval. Squares of distances from the mean would lose their digits.
FAR = 100.0


class Envelope(NamedTuple):
    """Plateau and tails of `draw_from_envelope`. A slope of 0 says that a tail is 0."""

    mode: float
    energy: float  # at the mode
    left: float  # width of the plateau to the left of the mode
    left_rise: float  # rise of the energy from the mode to this end of the plateau
    left_slope: float  # its derivative there, away from the mode
    right: float
    right_rise: float
    right_slope: float
    gap: float  # log of the plateau's height, relative to the density at the mode


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def power(x, exponent):
    """Return x**exponent for x >= 0."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    return x**exponent


@kernel(counts_references=False)
def _power_rise(x, mode, exponent):
    """Return x**exponent - mode**exponent for x >= 0, mode > 0, with its digits."""
    ratio = exponent * math.log1p((x - mode) / mode) if x > 0.0 else -np.inf
    return power(mode, exponent) * math.expm1(ratio)


@kernel(counts_references=False)
def energy(b, q, c, s, v, precision, t, mode):
    """Return f(t) and its derivative in the direction away from 0 (at 0: the right).

    If ``v`` is far from the mode, the rise of f above its value at the mode is
    returned instead of f. Otherwise the terms would be so large that their differences
    had no correct digits.
    """
    r = abs(t)
    first = b * power(r, q) if b > 0.0 else 0.0
    second = c * power(r, s) if c > 0.0 else 0.0
    if precision * (mode - v) * (mode - v) > FAR * FAR:
        # (t - v)^2 - (mode - v)^2 = (t - mode)(t + mode - 2 v), without cancellation.
        value = precision * (t - mode) * (0.5 * (t + mode) - v)
        if mode == 0.0:
            value += first + second
        else:
            value += b * _power_rise(r, abs(mode), q) if b > 0.0 else 0.0
            value += c * _power_rise(r, abs(mode), s) if c > 0.0 else 0.0
    else:
        value = first + second + 0.5 * precision * (t - v) * (t - v)
    if r > 0.0:
        outward = (q * first + s * second) / r
    else:
        outward = (b if q == 1.0 else 0.0) + (c if s == 1.0 else 0.0)
    return value, outward + (precision * (t - v) if t >= 0.0 else precision * (v - t))


@kernel(counts_references=False)
def positive_mode(b, q, c, s, v, precision):
    """Return the minimizer of f on the line for v >= 0.

    It solves precision t + b q t^(q-1) + c s t^(s-1) = target. The logarithm of the
    left side is convex and increasing in log t, so Newton's method from the right is
    monotone.
    """
    target = precision * v - (b if q == 1.0 else 0.0) - (c if s == 1.0 else 0.0)
    b = b * q if q > 1.0 else 0.0
    c = c * s if s > 1.0 else 0.0
    if not target > 0.0:
        return 0.0
    # Each term of the sum alone is at most the target at the root, so these are upper
    # bounds.
    t = target / precision
    if b > 0.0:
        t = min(t, (target / b) ** (1.0 / (q - 1.0)))
    if c > 0.0:
        t = min(t, (target / c) ** (1.0 / (s - 1.0)))
    for _ in range(MAX_STEPS):
        # Below 1e-290 the minimizer is taken to be 0. The energy there is above the
        # minimum by less than target * 1e-290.
        if not t > 1e-290:
            return 0.0
        first = b * power(t, q - 1.0) if b > 0.0 else 0.0
        second = c * power(t, s - 1.0) if c > 0.0 else 0.0
        total = precision * t + first + second
        excess = math.log(total / target)
        weighted = precision * t + (q - 1.0) * first + (s - 1.0) * second
        # Newton's step for log(total / target) in log t. Its derivative there is
        # weighted / total.
        t *= math.exp(-excess * total / weighted)
        if not abs(excess) > 1e-9:
            break
    return t


@kernel(counts_references=False)
def _find_side(b, q, c, s, v, precision, mode, base, sign, max_width):
    """Return width, rise and slope at one side of the plateau, and the slope at mode.

    The width is updated as if the rise were a power of it, with the local exponent.
    ``max_width`` is the distance to the end of the interval.
    """
    outward_slope = energy(b, q, c, s, v, precision, mode, mode)[1]
    is_inward = mode != 0.0 and (mode > 0.0) != (sign > 0.0)
    mode_slope = -outward_slope if is_inward else outward_slope
    # At 0 the derivative of the quadratic term has the other sign on the left.
    if mode == 0.0 and sign < 0.0:
        mode_slope = outward_slope + 2.0 * precision * v
    # The smallest width at which one of the terms alone would have risen by 1.
    width = math.sqrt(2.0 / precision) if precision > 0.0 else np.inf
    if mode_slope > 0.0:
        width = min(width, 1.0 / mode_slope)
    if mode == 0.0 and b > 0.0:
        width = min(width, b ** (-1.0 / q))
    if mode == 0.0 and c > 0.0:
        width = min(width, c ** (-1.0 / s))
    end, rise, slope = np.nan, np.nan, np.nan
    for _ in range(MAX_STEPS):
        is_cut = width >= max_width
        end = min(width, max_width)
        t = mode + sign * end
        value, slope = energy(b, q, c, s, v, precision, t, mode)
        slope = -slope if (t < 0.0) != (sign < 0.0) else slope
        rise = value - base
        # The interval ends before the energy has risen much. Then there is no tail.
        if is_cut and rise <= 1.5:
            return end, rise, 0.0, mode_slope
        if 0.5 <= rise <= 1.6 and slope > 0.0:
            break
        # The power of an infinite rise would be 0.
        if rise > 1e200:
            width = 0.01 * end
        elif rise > 0.0:
            exponent = max(slope * end / rise, 1.0)
            width = end * rise ** (-1.0 / exponent)
        else:
            width = 4.0 * end
    return end, rise, slope, mode_slope


@kernel(counts_references=False)
def new_envelope(b, q, c, s, v, h, lower, upper):
    """Return an envelope for v >= 0. For v < 0 the caller reflects the interval."""
    precision = 1.0 / h
    # The mode on the interval, because f is convex.
    mode = min(max(positive_mode(b, q, c, s, v, precision), lower), upper)
    base = energy(b, q, c, s, v, precision, mode, mode)[0]
    left, left_rise, left_slope, slope_to_left = _find_side(
        b, q, c, s, v, precision, mode, base, -1.0, mode - lower
    )
    right, right_rise, right_slope, slope_to_right = _find_side(
        b, q, c, s, v, precision, mode, base, 1.0, upper - mode
    )
    # Beyond an inexact mode f falls by at most its slope times the width.
    gap = 0.0
    if mode != 0.0:
        gap = max(gap, -slope_to_left * left, -slope_to_right * right)
    return Envelope(
        mode,
        base,
        left,
        left_rise,
        left_slope,
        right,
        right_rise,
        right_slope,
        gap,
    )


@kernel(counts_references=False)
def tail_excess(rng, lower, width):
    """Draw Z - lower for a standard normal Z on [lower, lower + width], lower >= 0."""
    # There are three methods. If the density falls by less than a factor e^-1.2,
    # proposals are uniform. If the interval begins near 0, they are normal. Otherwise
    # the tangent of t^2 / 2 at the lower end gives exponential proposals.
    if width * (lower + 0.5 * width) <= 1.2:
        for _ in range(MAX_PROPOSALS):
            step = width * rng.random()
            if rng.standard_exponential() >= step * (lower + 0.5 * step):
                return step
        return np.nan
    if lower < 0.6:
        for _ in range(MAX_PROPOSALS):
            step = abs(rng.standard_normal()) - lower
            if 0.0 <= step <= width:
                return step
        return np.nan
    # The tangent at lower gives an exponential variable, truncated at the width.
    mass = -math.expm1(-lower * width)
    for _ in range(MAX_PROPOSALS):
        step = -math.log1p(-mass * rng.random()) / lower
        if step <= width and rng.standard_exponential() >= 0.5 * step * step:
            return step
    return np.nan


@kernel(counts_references=False)
def truncated_normal(rng, lower, upper):
    """Draw a standard normal on [lower, upper], or return NaN if that is empty.

    The draw is exact, by rejection. The acceptance rate is above 0.38 for every
    interval.
    """
    if not lower <= upper or lower == np.inf or upper == -np.inf:
        return np.nan
    if lower == upper:
        return lower
    width = upper - lower
    if lower >= 0.0:
        return min(lower + tail_excess(rng, lower, width), upper)
    if upper <= 0.0:
        return max(upper - tail_excess(rng, -upper, width), lower)
    for _ in range(MAX_PROPOSALS):
        if width > 2.5:
            t = rng.standard_normal()
            if lower <= t <= upper:
                return t
        else:
            t = lower + width * rng.random()
            if rng.standard_exponential() >= 0.5 * t * t:
                return min(t, upper)
    return np.nan


@kernel(counts_references=False)
def normal_between(rng, mean, stddev, lower, upper):
    """Draw N(mean, stddev^2) on [lower, upper], or return NaN if that is empty.

    If the mean is outside, the distance from the nearer end is drawn to full relative
    accuracy, and the sum is rounded once. So the end itself is drawn as often as by
    rounding an exact draw. The sum mean + stddev t would have larger rounding errors.
    """
    width = (upper - lower) / stddev
    if lower < upper and 0.0 < mean - upper < np.inf:
        t = upper - stddev * tail_excess(rng, (mean - upper) / stddev, width)
    elif lower < upper and 0.0 < lower - mean < np.inf:
        t = lower + stddev * tail_excess(rng, (lower - mean) / stddev, width)
    else:
        z = truncated_normal(rng, (lower - mean) / stddev, (upper - mean) / stddev)
        t = mean + stddev * z
    return min(max(t, lower), upper) if t == t else np.nan


@kernel(counts_references=False)
def draw_from_envelope(rng, b, q, c, s, v, h, lower, upper, envelope):
    """Draw by rejection for v >= 0. The envelope may also be a record of its fields."""
    mode, base, gap = envelope.mode, envelope.energy, envelope.gap
    left, left_rise, left_slope = (
        envelope.left,
        envelope.left_rise,
        envelope.left_slope,
    )
    right, right_rise, right_slope = (
        envelope.right,
        envelope.right_rise,
        envelope.right_slope,
    )
    plateau = (left + right) * math.exp(gap)
    # Masses of e^{-rise - slope s} beyond the ends of the plateau.
    left_mass = math.exp(-left_rise) / left_slope if left_slope > 0.0 else 0.0
    right_mass = math.exp(-right_rise) / right_slope if right_slope > 0.0 else 0.0
    total = plateau + left_mass + right_mass
    if not (total > 0.0 and total < np.inf):
        return mode if total == 0.0 else np.nan
    for _ in range(MAX_PROPOSALS):
        u = total * rng.random()
        if u < plateau:
            # In this order the sum of mode and step is rounded once.
            t = mode + ((left + right) * rng.random() - left)
            bound = base - gap
        elif u < plateau + right_mass:
            step = rng.standard_exponential()
            t = mode + (right + step / right_slope)
            bound = base + right_rise + step
        else:
            step = rng.standard_exponential()
            t = mode - (left + step / left_slope)
            bound = base + left_rise + step
        if lower <= t <= upper:
            value = energy(b, q, c, s, v, 1.0 / h, t, mode)[0]
            if rng.standard_exponential() >= value - bound:
                return t
    return np.nan


# Nodes and weights of Gauss-Legendre quadrature on [0, 1].
_UNIT_NODES = 0.5 + 0.5 * np.polynomial.legendre.leggauss(6)[0]
_UNIT_WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(6)[1]
# Nodes on [0, 1.5] and [1.5, 7], in units of the width at which f has risen by about 1.
_NODES = np.concatenate((1.5 * _UNIT_NODES, 1.5 + 5.5 * _UNIT_NODES))
_WEIGHTS = np.concatenate((1.5 * _UNIT_WEIGHTS, 5.5 * _UNIT_WEIGHTS))


@kernel
def fill_moments(b, q, c, s, v, h, lower, upper, out):
    """Write E|t|^q, E|t|^s, then E|t|^2q, E|t|^(q+s), E|t|^2s of e^{-f} into out.

    The quadrature has up to 24 nodes and an error of about 1 percent. It affects the
    choice of envelopes alone.
    """
    sign = -1.0 if v < 0.0 else 1.0
    # For v < 0 the interval is reflected.
    low, high = (lower, upper) if sign > 0.0 else (-upper, -lower)
    envelope = new_envelope(b, q, c, s, sign * v, h, low, high)
    mode, base = envelope.mode, envelope.energy
    mass = 0.0
    out[:5] = 0.0
    for side in range(2):
        width = envelope.right if side == 1 else envelope.left
        slope = envelope.right_slope if side == 1 else envelope.left_slope
        nodes, weights = _NODES, _WEIGHTS
        if slope == 0.0:
            nodes, weights = _UNIT_NODES, _UNIT_WEIGHTS
        for k in range(nodes.shape[0]):
            t = mode + (width if side == 1 else -width) * nodes[k]
            if low <= t <= high:
                value = energy(b, q, c, s, sign * v, 1.0 / h, t, mode)[0]
                weight = width * weights[k] * math.exp(base - value)
                first, second = power(abs(t), q), power(abs(t), s)
                mass += weight
                out[0] += weight * first
                out[1] += weight * second
                out[2] += weight * first * first
                out[3] += weight * first * second
                out[4] += weight * second * second
    if mass > 0.0:
        out[:5] /= mass
    else:
        first, second = power(abs(mode), q), power(abs(mode), s)
        out[0], out[1], out[2] = first, second, first * first
        out[3], out[4] = first * second, second * second


@kernel(counts_references=False)
def _draw_rising(rng, slope, curvature, width):
    """Draw from exp(-slope s - curvature s^2 / 2) on [0, width], for a large slope."""
    drop = slope * width
    for _ in range(MAX_PROPOSALS):
        if drop > 1e-12:
            # By inversion of the truncated exponential distribution.
            step = -math.log1p(rng.random() * math.expm1(-drop)) / slope
        else:
            step = width * rng.random()
        if curvature == 0.0:
            return min(step, width)
        if rng.standard_exponential() >= 0.5 * curvature * step * step:
            return min(step, width)
    return np.nan


@kernel(counts_references=False)
def draw_quadratic(rng, slope, curvature, low, high):
    """Draw from exp(-slope t - curvature t^2 / 2) on [low, high], or return NaN.

    The draw is exact, by rejection. If the energy rises from one end on, the tangent at
    this end is the envelope. On an interval shorter than a standard deviation proposals
    are uniform. Otherwise a truncated normal is drawn.
    """
    if low == high:
        return low
    root = math.sqrt(curvature)
    if slope == 0.0 and curvature == 0.0:
        return low + (high - low) * rng.random() if high - low < np.inf else np.nan
    # Derivatives at the ends, into the interval. ``root`` is 1 / standard deviation.
    at_low = slope + curvature * low if low > -np.inf else -np.inf
    if at_low > 0.6 * root:
        return min(low + _draw_rising(rng, at_low, curvature, high - low), high)
    at_high = -slope - curvature * high if high < np.inf else -np.inf
    if at_high > 0.6 * root:
        return max(high - _draw_rising(rng, at_high, curvature, high - low), low)
    if root * (high - low) < 1.0:
        mode = low
        if curvature > 0.0:
            mode = min(max(-slope / curvature, low), high)
        elif slope < 0.0:
            mode = high
        for _ in range(MAX_PROPOSALS):
            t = low + (high - low) * rng.random()
            step = t - mode
            rise = step * (slope + curvature * mode + 0.5 * curvature * step)
            if rng.standard_exponential() >= rise:
                return t
        return np.nan
    mean, scale = -slope / curvature, 1.0 / root
    z = truncated_normal(rng, (low - mean) * root, (high - mean) * root)
    return min(max(mean + scale * z, low), high)


@kernel(counts_references=False)
def log_mills(x):
    """Return the log of the Mills ratio (1 - Phi(x)) / phi(x) for x >= 0."""
    if x < 20.0:
        return log_ndtr(-x) + 0.5 * x * x + HALF_LOG_2PI
    # The asymptotic series 1/x (1 - 1/x^2 + 3/x^4 - 15/x^6 ...).
    z = 1.0 / (x * x)
    term, tail = 1.0, 0.0
    for n in range(1, 10):
        term *= -(2.0 * n - 1.0) * z
        tail += term
    return math.log1p(tail) - math.log(x)


@kernel(counts_references=False)
def log_rising_mass(slope, curvature, width):
    """Return the log integral of exp(-slope s - curvature s^2 / 2) over [0, width].

    The slope is at least 0. On a very short interval the middle slope replaces the
    curvature, with a relative error below 1e-9.
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


@kernel(counts_references=False)
def log_mass(slope, curvature, width):
    """Return the log integral of exp(-slope s - curvature s^2 / 2) over [0, width]."""
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
    log_total = top + math.log(math.exp(left - top) + math.exp(right - top))
    return log_total + 0.5 * slope * slope / curvature


@kernel(counts_references=False)
def draw_piecewise(rng, slope, curvature, low, high, breakpoints, rises, count, logs):
    """Return a code and a draw on the interval [low, high], which contains 0.

    V' is slope + curvature t up to the first of ``count`` sorted breakpoints, all
    inside the interval, and jumps by ``rises`` at each. ``logs`` is memory for
    count + 1 log masses.
    """
    # The mass of a segment is relative to V at one of its ends that is finite, and
    # ``value`` is V there, relative to the first finite one.
    value, rate = 0.0, slope
    top = -np.inf
    for i in range(count + 1):
        left = breakpoints[i - 1] if i > 0 else low
        right = breakpoints[i] if i < count else high
        if i > 0:
            rate += rises[i - 1]
        if left == -np.inf and right == np.inf:
            logs[i] = 0.0
        elif left == -np.inf:
            # Reflected, V rises from the first breakpoint to the left.
            logs[i] = log_mass(-(rate + curvature * right), curvature, np.inf)
        else:
            width = right - left
            at_left = rate + curvature * left
            logs[i] = log_mass(at_left, curvature, width) - value
            if right < np.inf:
                value += width * (at_left + 0.5 * curvature * width)
        top = max(top, logs[i])
    if not abs(top) < np.inf:
        return FUNCTION_FAILED, np.nan
    total = 0.0
    for i in range(count + 1):
        total += math.exp(logs[i] - top)
    level = total * rng.random()
    segment, rate, cumulative = 0, slope, math.exp(logs[0] - top)
    while segment < count and cumulative <= level:
        rate += rises[segment]
        segment += 1
        cumulative += math.exp(logs[segment] - top)
    left = breakpoints[segment - 1] if segment > 0 else low
    right = breakpoints[segment] if segment < count else high
    t = draw_quadratic(rng, rate, curvature, left, right)
    return (OK if t == t else DRAW_FAILED), t
