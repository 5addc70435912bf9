# mypy: allow-untyped-defs
r"""Exact draws of round Gaussians in balls and boxes, and of exponentials in balls.

The *axis* of a ball is the line through its center and the Gaussian's mean. The *chord*
at distance y from the axis is the part in the ball of a line parallel to the axis.
`gaussian_in_ball` draws the distance first, and then the point on the chord.

**Notation.** Lengths are in units of the Gaussian's standard deviation. R is the
radius, A the distance of the mean from the center, and n = dim - 2. Points at distance
y from the axis have a coordinate w along it with |w| <= q = sqrt(R^2 - y^2), and

.. math:: \log p(y) = h(y) = n \log y - y^2 / 2 + \log M(q) + \text{constant},
          \quad M(q) = \int_{-q}^{q} e^{-(w - A)^2 / 2} dw.

Given y, w is a normal about A, truncated to the chord. No digits cancel, however
concentrated the distribution is:

- The mean is A - q = y^2 / (R + q) - (R - A) above the end of the chord, and R - A is
  computed from the squares in twice the working precision.
- If the mean is above the end, the depth q - w is the tail of a normal. It is drawn
  relative to the end.
- For A > R the factor e^{-(A - q)^2 / 2} is taken out of M. By y^2 = (R - q) (R + q)
  its log and -y^2 / 2 add up to -A (R - q) + constant.
- Only differences of h from its value at the mode are used, term by term. Rounding
  errors are below 1e-13 (n + 1), measured against 120 digits.

h is concave, because n >= 0 and M is log-concave in y, as a marginal of a log-concave
density. With H(q) = M'(q) / M(q), the sum of the *hazards* at both ends of the chord,

.. math:: h'(y) = n / y - y G(y),  \quad  G = 1 + H(q) / q,

and G increases in y. (log M is concave in q, so that H and 1 / q decrease in q.)

**Acceptance probability.** The envelope is a plateau on [m - l, m + r], where m is
near the mode, and exponential tails along the tangents of h at its ends. The plateau
has the height h(m) + g with g = max(h'(m) r, -h'(m) l, 0). Its ends are searched until
their drops h(m) - h = delta are in [0.4, 2] (see `_side`). By concavity the side of a
plateau of width r has mass >= r (1 - e^-delta) / delta, and the slope of the tangent at
its end is >= delta / r, so that the acceptance probability is

.. math:: \ge \min_{0.4 \le \delta \le 2} \frac{(1 - e^{-\delta}) / \delta}
          {e^g + e^{-\delta} / \delta}.

For n = 0 the mode is m = 0 and g = 0. Otherwise m satisfies |h'(m)| m <= c sqrt(n) with
c = 0.1. To its left -h'' >= n / y^2 >= n / m^2. To its right -h'' >= G(y) >= G(m) =
n / m^2 - h'(m) / m >= 0.9 n / m^2. With U = sqrt(n) times a side's width over m, the
drop is at least c U below half of 0.9 U^2, so that 2 >= delta >= 0.45 U^2 - c U. This
gives U < 2.23 and g <= c U < 0.23. The acceptance is above 0.28 for all dim >= 2, R and
A. The draw is exact even if m is not that near to the mode, because g makes the
envelope valid for every m.

In the code n is ``order``, y ``across``, w ``along`` and q ``half``.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import vexp
from dpsample.samplers.univariate.log_concave import (
    log_mills,
    log_rising_mass,
    normal_between,
    tail_excess,
    truncated_normal,
)

# Maximum numbers of iterations of a search and of proposals of a draw. The probability
# that a draw fails is below 1e-1400.
MAX_STEPS = 60
MAX_PROPOSALS = 10_000
# A part that is smaller than the rest by a factor e^-40 is below its rounding errors.
_NEGLIGIBLE = 40.0
# erfc(x sqrt(1/2)) is twice the normal tail above x. Times sqrt(pi/2) it is the
# integral of e^{-u^2 / 2} from x on.
_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
# Nodes and weights of Gauss-Legendre quadrature on [-1, 1].
_NODES = np.polynomial.legendre.leggauss(8)[0]
_WEIGHTS = np.polynomial.legendre.leggauss(8)[1]


class UnitBall(NamedTuple):
    """Ball in units of the Gaussian's standard deviation."""

    radius: float  # R
    distance: float  # A
    depth: float  # R - A, negative if the mean is outside


class Chord(NamedTuple):
    """Chord of the ball, and the normal distribution on it."""

    half: float  # q
    above: float  # A - q
    log_mass: float  # log M, or log M + (A - q)^2 / 2 if the mean is outside the ball
    near_hazard: float  # hazard at the end next to the mean
    far_hazard: float  # hazard at the other end


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def gaussian_in_box(rng, mean, stddevs, lower, upper, out):
    """Draw independent normals with the given means, each restricted to its interval.

    All arrays are (dim,), and ``out`` is overwritten. Return 1.0, or NaN if an interval
    is empty or an argument is NaN.
    """
    outcome = 1.0
    for j in range(mean.shape[0]):
        out[j] = normal_between(rng, mean[j], stddevs[j], lower[j], upper[j])
        if out[j] != out[j]:
            outcome = np.nan
    return outcome


@kernel(counts_references=False)
def _length(mean, center):
    """Return ||mean - center||_2, without overflow or underflow of squares."""
    square = 0.0
    for j in range(mean.shape[0]):
        square += (mean[j] - center[j]) ** 2
    if 1e-280 < square < 1e280:
        return math.sqrt(square)
    largest = 0.0
    for j in range(mean.shape[0]):
        size = abs(mean[j] - center[j])
        # Written so that NaN becomes the largest size.
        largest = size if not size <= largest else largest
    if not 0.0 < largest < np.inf:
        return largest
    square = 0.0
    for j in range(mean.shape[0]):
        square += ((mean[j] - center[j]) / largest) ** 2
    return largest * math.sqrt(square)


@kernel(counts_references=False)
def _pull_inside(center, radius, out):
    """Pull a point inside the ball that rounding errors put outside.

    Return 1.0, or NaN if the point is NaN.
    """
    pull = 1e-15  # a few rounding errors
    norm = _length(out, center)
    while norm > radius:
        shrink = radius / norm * (1.0 - pull)
        for j in range(out.shape[0]):
            out[j] = center[j] + (out[j] - center[j]) * shrink
        # If the center is large compared with the radius, the first pull may be lost in
        # rounding.
        pull = min(4.0 * pull, 1.0)
        norm = _length(out, center)
    return 1.0 if norm == norm else np.nan


@kernel(counts_references=False)
def _draw_by_plain_rejection(rng, mean, stddev, center, radius, out):
    """Draw from the whole Gaussian until a point is in the ball."""
    for _ in range(MAX_PROPOSALS):
        total = 0.0
        for j in range(mean.shape[0]):
            out[j] = mean[j] + stddev * rng.standard_normal()
            total += (out[j] - center[j]) ** 2
        if total <= radius * radius:
            return 1.0
    out[:] = np.nan
    return np.nan


@kernel(counts_references=False)
def _exact_square(x):
    """Return x^2 as a sum of two floats (Veltkamp's splitting, Dekker's product)."""
    big = 134217729.0 * x  # 2^27 + 1
    high = big - (big - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2.0 * high * low) + low * low


@kernel(counts_references=False)
def _depth(mean, stddev, center, radius, length):
    """Return radius - ||mean - center||_2, where ``length`` is the rounded norm.

    Near the sphere the difference would be little more than the norm's rounding error.
    There the square of the norm is summed in pairs of floats. Its difference from the
    square of the rounded norm gives the rounding error. Lengths whose squares overflow
    or underflow keep the plain difference.
    """
    depth = radius - length
    is_near = abs(depth) < 1e-3 * radius and radius > 1e3 * stddev
    if not (is_near and 1e-100 < length < 1e100):
        return depth
    square, error = _exact_square(length)
    total, error_sum = -square, -error
    for j in range(mean.shape[0]):
        # Rounding errors of differences and sums are computed as by Knuth's TwoSum.
        gap = mean[j] - center[j]
        part = gap - mean[j]
        gap_error = (mean[j] - (gap - part)) - (center[j] + part)
        square, error = _exact_square(gap)
        after = total + square
        part = after - total
        sum_error = (total - (after - part)) + (square - part)
        error_sum += sum_error + error + 2.0 * gap * gap_error
        total = after
    return depth - (total + error_sum) / (2.0 * length)


@kernel(counts_references=False)
def gaussian_in_ball(rng, mean, stddev, center, radius, out):
    """Draw N(mean, stddev^2 I) restricted to the ball ||x - center||_2 <= radius.

    The draw is exact for any mean, and takes O(dim) operations. ``mean``, ``center``
    and ``out`` are (dim,), and ``out`` is overwritten. Return 1.0, or NaN (also in out)
    if an argument is NaN or infinite.
    """
    dim, square = mean.shape[0], 0.0
    for j in range(dim):
        square += (mean[j] - center[j]) ** 2
    # Usual lengths are computed here, because a call of `_length` would take a tenth of
    # the time of a draw by plain rejection.
    is_usual = 1e-280 < square < 1e280
    length = math.sqrt(square) if is_usual else _length(mean, center)
    scaled, distance = radius / stddev, length / stddev
    if not (0.0 < scaled < np.inf and distance < np.inf):
        out[:] = np.nan
        return np.nan
    # Consider a Gaussian point's squared distance from the center. If its mean plus its
    # standard deviation is at most R^2, at least half of the proposals are inside.
    spread = math.sqrt(2.0 * dim + 4.0 * distance * distance)
    if dim + spread <= (scaled - distance) * (scaled + distance):
        return _draw_by_plain_rejection(rng, mean, stddev, center, radius, out)
    if dim == 1:
        low, high = center[0] - radius, center[0] + radius
        out[0] = normal_between(rng, mean[0], stddev, low, high)
        return _pull_inside(center, radius, out)
    depth = _depth(mean, stddev, center, radius, length) / stddev
    ball = UnitBall(scaled, distance, depth)
    across = draw_across(rng, dim - 2.0, ball)
    half, above = half_chord(ball, across)
    # The depth below the chord's end, or the normal itself, is truncated to the chord.
    # NaN passes through until `_pull_inside` returns it.
    if above > 0.0:
        along = half - tail_excess(rng, above, 2.0 * half)
    else:
        along = distance + truncated_normal(rng, -half - distance, -above)
    _draw_about_axis(rng, stddev * along, stddev * across, mean, center, length, out)
    return _pull_inside(center, radius, out)


@kernel(counts_references=False)
def _draw_about_axis(rng, along, across, mean, center, length, out):
    """Draw a point with the coordinate ``along`` and at the distance ``across``.

    Both are measured from the center and the axis. A reflection maps the first
    coordinate axis to the ball's axis. It also maps (0, g), with g normal, to a random
    direction that is orthogonal to the axis without cancellation of digits.
    """
    dim, square, inner = mean.shape[0], 0.0, 0.0
    scale = 1.0 / length if length > 0.0 else 0.0
    first = (mean[0] - center[0]) / length if length > 0.0 else 1.0
    while square == 0.0:
        inner = 0.0
        for j in range(1, dim):
            out[j] = rng.standard_normal()
            square += out[j] * out[j]
            inner += out[j] * (mean[j] - center[j]) * scale
    inner /= 1.0 + abs(first)
    across /= math.sqrt(square)
    sign = 1.0 if first >= 0.0 else -1.0
    out[0] = center[0] + (along * first - across * inner * (first + sign))
    for j in range(1, dim):
        axis = (mean[j] - center[j]) * scale
        out[j] = center[j] + (along * axis + across * (out[j] - inner * axis))


@kernel(counts_references=False)
def tilted_in_ball(rng, strength, lowest, center, radius, out):
    """Draw from exp(strength <x - center, a> / radius) in the ball.

    The unit vector a points from the center to ``lowest``, a point of lower energy that
    is not the center, and ``strength`` is positive. A uniform point of a sphere,
    without two of its coordinates, is uniform in a ball. So the coordinate along the
    axis has the distribution of the same coordinate of a von Mises-Fisher distribution
    in two more dimensions. It is drawn by the rejection of Wood (1994). The variables
    are depths, the differences 1 - W and 1 - x_0 of his formulas, which keep their
    digits. ``share`` is his b. Return 1.0, or NaN.

    A. T. A. Wood, Simulation of the von Mises Fisher distribution, Communications in
    Statistics - Simulation and Computation 23, 1994.
    """
    dim, depth, is_drawn = out.shape[0], 0.0, False
    share = (dim + 1.0) / (2.0 * strength + math.hypot(2.0 * strength, dim + 1.0))
    usual = 2.0 * share / (1.0 + share)  # 1 - x_0
    # The beta variable of the proposal is a ratio of gamma variables.
    for _ in range(MAX_PROPOSALS):
        low = share * rng.standard_gamma(0.5 * (dim + 1.0))
        depth = 2.0 * low / (low + rng.standard_gamma(0.5 * (dim + 1.0)))
        weight = math.log1p((1.0 - usual) * depth / usual) - math.log1p(1.0 - usual)
        weight = strength * (usual - depth) + (dim + 1.0) * weight
        is_drawn = -rng.standard_exponential() <= weight
        if is_drawn:
            break
    if not is_drawn:
        out[:] = np.nan
        return np.nan
    length, along = _length(lowest, center), radius * (1.0 - depth)
    if dim == 1:
        out[0] = center[0] + along * ((lowest[0] - center[0]) / length)
        return _pull_inside(center, radius, out)
    across = math.sqrt(depth * (2.0 - depth)) * rng.random() ** (1.0 / (dim - 1.0))
    _draw_about_axis(rng, along, radius * across, lowest, center, length, out)
    return _pull_inside(center, radius, out)


@kernel(counts_references=False)
def half_chord(ball, across):
    """Return the half length q of a chord at this distance from the axis, and A - q."""
    radius = ball.radius
    half = math.sqrt(radius - across) * math.sqrt(radius + across)
    return half, across * (across / (radius + half)) - ball.depth


@kernel(counts_references=False)
def _short_chord_mass(distance, half):
    """Return the integral of e^{A u - u^2 / 2} over [-q, q], for A q <= 1/4, q <= A.

    With eight Gauss-Legendre nodes the relative error is below 1e-16.
    """
    total = 0.0
    for k in range(_NODES.shape[0]):
        u = half * _NODES[k]
        total += _WEIGHTS[k] * vexp(u * (distance - 0.5 * u))
    return half * total


@kernel(counts_references=False)
def _new_chord(ball, across):
    """Return the chord at this distance from the axis."""
    distance, depth = ball.distance, ball.depth
    half, above = half_chord(ball, across)
    # Between the ends of the chord the log density of w differs by 2 A q.
    drop, square = 2.0 * distance * half, 0.5 * above * above
    # erfc keeps its digits if the mean is at most this far beyond the end of a chord.
    if above > 0.0 and (drop < 0.5 or above > 6.0):
        # The mass is relative to the density at the near end, w = q. It is integrated
        # numerically if the chord is short, and a difference of two normal tails, or
        # one of them, if it is longer.
        if drop < 0.5:
            log_mass = math.log(_short_chord_mass(distance, half))
            # The integrand is relative to the middle of the chord, w = 0.
            log_mass -= half * (distance - 0.5 * half)
        elif drop < _NEGLIGIBLE:
            log_mass = log_rising_mass(above, 1.0, 2.0 * half)
        else:
            log_mass = log_mills(above)
        near_hazard = math.exp(-log_mass)
        log_mass -= square if depth >= 0.0 else 0.0
    else:
        end = _ROOT_HALF * (half + distance)
        if above > 0.0:
            tail = math.erfc(end) if drop < _NEGLIGIBLE else 0.0
            mass = math.erfc(_ROOT_HALF * above) - tail
        else:
            mass = math.erf(-_ROOT_HALF * above) + math.erf(end)
        log_mass = math.log(_ROOT_HALF_PI * mass) + (0.0 if depth >= 0.0 else square)
        near_hazard = math.exp(-square) / (_ROOT_HALF_PI * mass)
    far_hazard = near_hazard * math.exp(-drop) if drop < _NEGLIGIBLE else 0.0
    return Chord(half, above, log_mass, near_hazard, far_hazard)


@kernel(counts_references=False)
def _slopes(order, ball, across, chord):
    """Return h' and h'' at a distance from the axis, with n = ``order``.

    h'' may be inaccurate. It affects searches only, and never whether a point is
    accepted.
    """
    half, hazard = chord.half, chord.near_hazard + chord.far_hazard
    # H' = M'' / M - H^2, which is not positive.
    hazard_slope = (
        chord.above * chord.near_hazard
        - (half + ball.distance) * chord.far_hazard
        - hazard * hazard
    )
    radial = order / across if order > 0.0 else 0.0
    ratio = across / half
    first = radial - across - ratio * hazard
    second = (
        -1.0
        + ratio * ratio * min(hazard_slope, 0.0)
        - hazard / half * (1.0 + ratio * ratio)
    )
    return first, second - radial / across if order > 0.0 else second


@kernel(counts_references=False)
def _drop(order, ball, mode, top, across, chord):
    """Return h(mode) - h without cancellation of digits.

    ``top`` is the chord at the mode.
    """
    step = across - mode
    # If the mean is outside, -y^2 / 2 is replaced by -A (R - q).
    rate = 0.5
    if ball.depth < 0.0:
        rate = ball.distance / (chord.half + top.half)
    rise = rate * step * (across + mode) + (top.log_mass - chord.log_mass)
    return rise - order * math.log1p(step / mode) if order > 0.0 else rise


@kernel(counts_references=False)
def _mode(order, ball):
    """Return the mode of h, its chord, and h' and h'' there."""
    radius, distance = ball.radius, ball.distance
    if order == 0.0:
        chord = _new_chord(ball, 0.0)
        first, second = _slopes(order, ball, 0.0, chord)
        return 0.0, chord, first, second
    root = math.hypot(order, 2.0 * distance * radius)
    # The mode solves n / y^2 = G(y). The parts of G are about A / q, 1 and 1 / q^2. For
    # each alone, (R / y)^2 has one of these values. Their l_4 norm is a good start.
    parts = 0.5 * (1.0 + root / order), radius * radius / order, 1.0 + 1.0 / order
    largest = max(parts[0], parts[1], parts[2])
    power_sum = 0.0
    for part in parts:
        power_sum += (part / largest) ** 4
    across = radius / math.sqrt(largest * math.sqrt(math.sqrt(power_sum)))
    low, high = 0.0, radius
    for _ in range(MAX_STEPS):
        chord = _new_chord(ball, across)
        first, second = _slopes(order, ball, across, chord)
        # |h'(m)| m <= e sqrt(n) with e = 0.1, as in the bound of the acceptance.
        if (first * across) ** 2 <= 0.1**2 * order:
            break
        low, high = (across, high) if first > 0.0 else (low, across)
        # Newton's step for log(order / across^2) = log G, in log across or, if q is
        # shorter, in log q, in which the equation is nearly linear. By y^2 + q^2 = R^2,
        # d log q = -(y / q)^2 d log y.
        slope = order / across
        rate = (slope - first) / across  # G
        rate_rise = max(-second - slope / across - rate, 0.0)  # y G'
        step = math.log(slope / (rate * across)) / (2.0 + rate_rise / rate)
        if chord.half < across:
            half = chord.half * math.exp(-step * (across / chord.half) ** 2)
            proposal = math.sqrt(max(radius - half, 0.0)) * math.sqrt(radius + half)
        else:
            proposal = across * math.exp(step)
        if not low < proposal < high:
            proposal = math.sqrt(low) * math.sqrt(high) if low > 0.0 else 0.5 * high
        across = proposal
    else:
        # The values must belong to the returned point. Otherwise it is not exact.
        chord = _new_chord(ball, across)
        first, second = _slopes(order, ball, across, chord)
    return across, chord, first, second


@kernel(counts_references=False)
def _side(order, ball, mode, top, second, sign):
    """Return width, drop and slope of one side of the plateau.

    The width is multiplied by a factor that makes the drop about 1, or bisected if that
    leads out of the bracket. A slope of 0 means that the plateau ends where the density
    does.
    """
    max_width = mode if sign < 0.0 else ball.radius - mode
    low, high = 0.0, max_width
    width = min(1.3 / math.sqrt(-second), 0.85 * max_width)
    drop, slope = 0.0, 0.0
    for _ in range(MAX_STEPS):
        if not low < width < high:
            width = 0.5 * (low + high)
        across = mode + sign * width
        chord = _new_chord(ball, across)
        slope = -sign * _slopes(order, ball, across, chord)[0]
        drop = _drop(order, ball, mode, top, across, chord)
        # The bound of the acceptance holds for drops in this range.
        if 0.4 <= drop <= 2.0 and slope > 0.0:
            return width, drop, slope
        low, high = (low, width) if drop > 1.0 else (width, high)
        # Near the mode the drop is about quadratic, and this width has a drop of 1.
        width *= drop**-0.5 if drop > 0.0 else 4.0
    return max_width, 0.0, 0.0


@kernel(counts_references=False)
def draw_across(rng, order, ball):
    """Draw the distance from the axis, by rejection from a plateau and two tails."""
    mode, top, first, second = _mode(order, ball)
    left, left_drop, left_slope = 0.0, 0.0, 0.0
    if order > 0.0:
        left, left_drop, left_slope = _side(order, ball, mode, top, second, -1.0)
    right, right_drop, right_slope = _side(order, ball, mode, top, second, 1.0)
    # Beyond an inexact mode the log density rises by at most its slope times the width.
    gap = max(first * right, -first * left, 0.0)
    plateau = (left + right) * math.exp(gap)
    left_mass = math.exp(-left_drop) / left_slope if left_slope > 0.0 else 0.0
    right_mass = math.exp(-right_drop) / right_slope if right_slope > 0.0 else 0.0
    total = plateau + left_mass + right_mass
    if not (total > 0.0 and total < np.inf):
        return np.nan
    for _ in range(MAX_PROPOSALS):
        u = total * rng.random()
        if u < plateau:
            across = mode - left + (left + right) * rng.random()
            envelope_drop = -gap
        elif u < plateau + left_mass:
            step = rng.standard_exponential()
            across = mode - (left + step / left_slope)
            envelope_drop = left_drop + step
        else:
            step = rng.standard_exponential()
            across = mode + (right + step / right_slope)
            envelope_drop = right_drop + step
        if 0.0 < across < ball.radius:
            chord = _new_chord(ball, across)
            drop = _drop(order, ball, mode, top, across, chord)
            if rng.standard_exponential() >= drop - envelope_drop:
                return across
    return np.nan
