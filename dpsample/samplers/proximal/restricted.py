# mypy: allow-untyped-defs
r"""Exact draws of Gaussians, also times a squared l_q norm, on convex sets.

`gaussian_in_ball` draws the distance from the axis through the mean first, then the
point on that chord (see below). `gaussian_in_box` is a product of truncated normals.
`draw_lp` is for e^{-(kappa / 2) S^(2/q)} times a Gaussian, on A <= bound, with S = sum
|u_i|^q and A = sum |u_i|^r. It rejects from e^{-b S - c A} times the Gaussian, a
product of one-dimensional densities, with b = (kappa / q) S0^(2/q - 1) the slope of a
tangent: S^(2/q) is convex in S. Any S0 > 0 and c >= 0 are exact; the best ones solve
E S = S0 and, if the constraint is active, E A = bound (otherwise c = 0), found by
fixed quadrature.

A mean far outside leaves draws within variance / distance of the boundary, of which a
product knows nothing: it would be accepted as seldom. There the coordinate of the
largest mean, the pivot t, is drawn last, as a depth below the end e(A') = (bound -
A')^(1/r) that the sum A' of the others leaves. With q0^r + A0 = bound and lambda > 0
the slope of its log factor at q0, log factor(t) <= log factor(q0) + lambda (t - q0)
and, e being concave, e(A') <= q0 - (A' - A0) q0^(1-r) / r. Proposed are e^{-c A'} times
the factors of the others, c = lambda q0^(1-r) / r, and an exponential depth e(A') - t
of rate lambda; the log acceptance is what both tangents lose. Any q0 is exact; with E
A' = A0 these are squares of one sum, of the order of its variance, whatever the
distance is.

**Balls.** Units are the Gaussian's standard deviation, R the radius, A the distance of
the mean from the center, n = dim - 2. Points at distance y from the axis have a
coordinate w along it with |w| <= q = sqrt(R^2 - y^2), and

.. math:: \log p(y) = h(y) = n \log y - y^2 / 2 + \log M(q) + \text{constant},
          \quad M(q) = \int_{-q}^{q} e^{-(w - A)^2 / 2} dw.

Given y, w is a normal about A, truncated to the chord. Nothing cancels, however
concentrated the law is:

- the mean is A - q = y^2 / (R + q) - (R - A) above the end of the chord, and R - A is
  computed from the squares in twice the working precision;
- a mean above the end leaves the depth q - w, a normal's tail, to be drawn relative to
  the end;
- for A > R the factor e^{-(A - q)^2 / 2} is taken out of M, and what it adds to
  -y^2 / 2 is -A (R - q) + constant, by y^2 = (R - q) (R + q);
- h is only used as a difference from its value at the mode, each term by itself:
  rounding moves it by less than 1e-13 (n + 1), measured against 120 digits.

h is concave: M is log-concave in y, as a marginal of a log-concave density, and n >= 0.
With H(q) = M'(q) / M(q), the sum of the hazards at both ends of the chord,

.. math:: h'(y) = n / y - y G(y),  \quad  G = 1 + H(q) / q,

and G increases in y: log M is concave in q, so that H decreases in q, and 1 / q does.

**Rejection constant.** The envelope is a plateau [m - l, m + r] and exponential tails
along the tangents of h at its ends. A plateau must be h(m) + g high, g = max(h'(m) r,
-h'(m) l, 0). Ends are found by bisection with drops h(m) - h = delta in [0.4, 2]. By
concavity the side of a plateau of width r has mass >= r (1 - e^-delta) / delta, and the
slope of the tangent at its end is >= delta / r, so that the acceptance probability is

.. math:: \ge \min_{0.4 \le \delta \le 2} \frac{(1 - e^{-\delta}) / \delta}
          {e^g + e^{-\delta} / \delta}.

For n = 0 the mode is m = 0 and g = 0. Otherwise m satisfies |h'(m)| m <= e sqrt(n), e =
0.1. To its left -h'' >= n / y^2 >= n / m^2. To its right -h'' >= G(y) >= G(m) = n / m^2
- h'(m) / m >= 0.9 n / m^2. With U = sqrt(n) times a side's width over m, therefore,
2 >= delta >= 0.45 U^2 - e U, U < 2.23 and g <= e U < 0.23. The acceptance is above 0.28
for all dim >= 2, R and A.
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import vexp
from dpsample.samplers.univariate.log_concave import (
    ENVELOPE_SIZE,
    draw_from_envelope,
    factor_envelope,
    factor_moments,
    log_mills,
    log_rising_mass,
    normal_between,
    power,
    tail_excess,
    truncated_normal,
)

MAX_NEWTON = 25
MAX_TRIES = 10_000
# Below this relative size of S - S0 the acceptance is computed from a series.
_SERIES_BELOW = 1e-3
_TOLERANCE = 0.2
_FLOOR = 1e-290
# Depths are exponential from so many deviations between the mean and the boundary:
# nearer, products need fewer evaluations.
_STEEP = 5.0
MAX_HALVINGS = 80
MAX_STEPS = 60
# A slope at the mode of this many square roots of n over the mode is none: the proved
# acceptance rests on it.
_SLOPE_ERROR = 0.1
# Deviations between a mean and the end of a chord up to which erfc keeps its digits.
_NEAR = 6.0
# A drop in log density by this leaves less than the rounding errors.
_NEGLIGIBLE = 40.0
_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@kernel(counts_references=False)
def slope_at(kappa, q, s0):
    """b, the derivative of (kappa / 2) S^(2/q) at S0."""
    return kappa / q * s0 ** (2.0 / q - 1.0) if kappa > 0.0 else 0.0


@kernel
def _sums(b, q, c, r, v, variance, lower, upper, out):
    """E S, E A, then the variance of S, the covariance and the variance of A."""
    moments = np.empty(5)
    out[:5] = 0.0
    for i in range(v.shape[0]):
        factor_moments(b, q, c, r, v[i], variance, lower[i], upper[i], moments)
        out[0] += moments[0]
        out[1] += moments[1]
        out[2] += max(moments[2] - moments[0] * moments[0], 0.0)
        out[3] += moments[3] - moments[0] * moments[1]
        out[4] += max(moments[4] - moments[1] * moments[1], 0.0)


@kernel(counts_references=False)
def _start(v, variance, kappa, q):
    """First guess of S0: two upper bounds of a typical S."""
    dim = v.shape[0]
    square, free = 0.0, 0.0
    for i in range(dim):
        square += v[i] * v[i]
        free += (v[i] * v[i] + variance) ** (0.5 * q)
    if kappa > 0.0:
        energy = square / variance + dim
        free = min(free, (energy / kappa) ** (0.5 * q))
    return max(free, _FLOOR)


@kernel(counts_references=False)
def _safe_step(x, step, low, high):
    """Newton's x + step if it stays inside the bracket, else the bracket's middle."""
    step = max(-3.0, min(3.0, step)) if step == step else 0.0
    if low < x + step < high:
        return x + step
    return 0.5 * (low + high) if high - low < np.inf else x


@kernel(counts_references=False)
def _solve_s0(log_s0, c, v, variance, kappa, q, r, lower, upper, sums):
    """Return log S0 with E S = S0 for a fixed c; the sums are those of the last b.

    log E S - log S0 decreases in log S0.
    """
    low, high = -np.inf, np.inf
    for _ in range(MAX_NEWTON):
        s0 = math.exp(log_s0)
        b = slope_at(kappa, q, s0)
        _sums(b, q, c, r, v, variance, lower, upper, sums)
        mean = max(sums[0], _FLOOR)
        error = math.log(mean) - log_s0
        low, high = (log_s0, high) if error > 0.0 else (low, log_s0)
        slope = 1.0 + b * sums[2] / mean * (2.0 / q - 1.0)
        log_s0 = _safe_step(log_s0, error / slope, low, high)
        if not abs(mean - s0) > _TOLERANCE * math.sqrt(sums[2]):
            break
    return log_s0


@kernel(counts_references=False)
def _solve_active(log_s0, v, variance, kappa, q, r, bound, lower, upper, sums):
    """(S0, c) with E S = S0 and E A = bound; E A decreases in c along E S = S0."""
    dim = v.shape[0]
    reach = bound ** (1.0 / r)
    pull = 0.0
    for i in range(dim):
        pull = max(pull, abs(v[i]))
    log_c = math.log((dim + pull * reach / variance) / (r * bound))
    low, high = -np.inf, np.inf
    for _ in range(MAX_NEWTON):
        c = math.exp(log_c)
        log_s0 = _solve_s0(log_s0, c, v, variance, kappa, q, r, lower, upper, sums)
        mean_s, mean_a = max(sums[0], _FLOOR), max(sums[1], _FLOOR)
        error = math.log(mean_a) - math.log(bound)
        low, high = (log_c, high) if error > 0.0 else (low, log_c)
        # Slope of log E A in log c, log S0 following c.
        b = slope_at(kappa, q, math.exp(log_s0)) * (2.0 / q - 1.0)
        follow = b * sums[3] * sums[3] / (mean_s + b * sums[2])
        slope = c / mean_a * (sums[4] - follow)
        log_c = _safe_step(log_c, error / max(slope, _FLOOR), low, high)
        if not abs(mean_a - bound) > _TOLERANCE * math.sqrt(sums[4]):
            break
    return math.exp(log_s0), math.exp(log_c)


@kernel
def tilts(v, variance, kappa, q, r, bound, lower, upper):
    """Return (S0, c), a function of the arguments alone."""
    sums = np.empty(5)
    log_s0 = math.log(_start(v, variance, kappa, q))
    log_s0 = _solve_s0(log_s0, 0.0, v, variance, kappa, q, r, lower, upper, sums)
    if sums[1] <= bound + _TOLERANCE * math.sqrt(sums[4]):
        return math.exp(log_s0), 0.0
    return _solve_active(log_s0, v, variance, kappa, q, r, bound, lower, upper, sums)


@kernel(counts_references=False)
def gaussian_in_box(rng, mean, stddevs, lower, upper, out):
    """Draw independent normals with the given means, each restricted to its interval.

    Returns 1.0, or NaN if an interval is empty or an argument is NaN.
    """
    outcome = 1.0
    for j in range(mean.shape[0]):
        out[j] = normal_between(rng, mean[j], stddevs[j], lower[j], upper[j])
        if out[j] != out[j]:
            outcome = np.nan
    return outcome


@kernel(counts_references=False)
def _length(mean, center):
    """||mean - center||_2, without overflow or underflow of squares."""
    square = 0.0
    for j in range(mean.shape[0]):
        square += (mean[j] - center[j]) ** 2
    if 1e-280 < square < 1e280:
        return math.sqrt(square)
    largest = 0.0
    for j in range(mean.shape[0]):
        size = abs(mean[j] - center[j])
        largest = size if not size <= largest else largest  # NaN stays
    if not 0.0 < largest < np.inf:
        return largest
    square = 0.0
    for j in range(mean.shape[0]):
        square += ((mean[j] - center[j]) / largest) ** 2
    return largest * math.sqrt(square)


@kernel(counts_references=False)
def _scaled_into_ball(center, radius, out):
    """Undo a rounding error that put the draw outside the ball."""
    pull = 1e-15
    norm = _length(out, center)
    while norm > radius:
        shrink = radius / norm * (1.0 - pull)
        for j in range(out.shape[0]):
            out[j] = center[j] + (out[j] - center[j]) * shrink
        pull = min(4.0 * pull, 1.0)  # about a far center the first may be rounded away
        norm = _length(out, center)
    return 1.0 if norm == norm else np.nan


@kernel(counts_references=False)
def _plain(rng, mean, stddev, center, radius, out):
    """Rejection from the untruncated Gaussian."""
    for _ in range(MAX_TRIES):
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
    """x^2 as a sum of two doubles (Veltkamp's splitting, Dekker's product)."""
    big = 134217729.0 * x
    high = big - (big - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2.0 * high * low) + low * low


@kernel(counts_references=False)
def _depth(mean, stddev, center, radius, length):
    """Return radius - ||mean - center||_2; ``length`` is the norm, rounded.

    Next to the sphere the norm's rounding would be all that is left. There the norm's
    square is summed again in pairs of doubles, and the error of the norm taken off.
    """
    depth = radius - length
    is_near = abs(depth) < 1e-3 * radius and radius > 1e3 * stddev
    if not (is_near and 1e-100 < length < 1e100):
        return depth
    square, rest = _exact_square(length)
    total, rest = -square, -rest
    for j in range(mean.shape[0]):
        gap = mean[j] - center[j]
        back = gap - mean[j]
        lost = (mean[j] - (gap - back)) - (center[j] + back)  # of the difference
        square, error = _exact_square(gap)
        after = total + square
        back = after - total
        rest += (total - (after - back)) + (square - back) + error + 2.0 * gap * lost
        total = after
    return depth - (total + rest) / (2.0 * length)


@kernel(counts_references=False)
def gaussian_in_ball(rng, mean, stddev, center, radius, out):
    """Draw N(mean, stddev^2 I) restricted to the ball ||x - center||_2 <= radius.

    Exact for any mean, O(dim). Returns 1.0, or NaN (also in out) if an argument is NaN
    or infinite: all tries fail with probability below 1e-1400.
    """
    dim, square = mean.shape[0], 0.0
    for j in range(dim):
        square += (mean[j] - center[j]) ** 2
    is_usual = 1e-280 < square < 1e280  # a call costs a tenth of a plain draw
    length = math.sqrt(square) if is_usual else _length(mean, center)
    scaled, distance = radius / stddev, length / stddev
    if not (0.0 < scaled < np.inf and distance < np.inf):
        out[:] = np.nan
        return np.nan
    # Mean plus one standard deviation of the squared distance: P(inside) >= 1 / 2.
    spread = math.sqrt(2.0 * dim + 4.0 * distance * distance)
    if dim + spread <= (scaled - distance) * (scaled + distance):
        return _plain(rng, mean, stddev, center, radius, out)
    if dim == 1:
        low, high = center[0] - radius, center[0] + radius
        out[0] = normal_between(rng, mean[0], stddev, low, high)
        return _scaled_into_ball(center, radius, out)
    depth = _depth(mean, stddev, center, radius, length) / stddev
    ball = (scaled, distance, depth)
    across = draw_across(rng, dim - 2.0, ball)
    half, above = half_chord(ball, across)
    if above > 0.0:
        along = half - tail_excess(rng, above, 2.0 * half)
    else:
        along = distance + truncated_normal(rng, -half - distance, -above)
    _place(rng, stddev * along, stddev * across, mean, center, length, out)
    return _scaled_into_ball(center, radius, out)


@kernel(counts_references=False)
def _place(rng, along, across, mean, center, length, out):
    """Fill out with a point so far along the axis and across it, in any direction.

    The direction is that of the reflection of (0, g), g normal, by which the first
    coordinate axis becomes the ball's: it is orthogonal to it without cancellation.
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
def _tangent_gap(delta, exponent):
    """(1 + delta)^exponent - 1 - exponent delta for delta >= -1, to all digits."""
    if exponent == 1.0:
        return 0.0
    if abs(delta) < _SERIES_BELOW:
        series = 1.0 + (exponent - 4.0) / 5.0 * delta
        series = 1.0 + (exponent - 3.0) / 4.0 * delta * series
        series = 1.0 + (exponent - 2.0) / 3.0 * delta * series
        return 0.5 * exponent * (exponent - 1.0) * delta * delta * series
    if delta > -1.0:
        return math.expm1(exponent * math.log1p(delta)) - exponent * delta
    return exponent - 1.0


@kernel(counts_references=False)
def tilted_in_ball(rng, strength, lowest, center, radius, out):
    """Draw a density that falls by e^-strength per radius from the lowest point on.

    Without two of its coordinates a uniform point of a sphere is uniform in a ball. So
    the coordinate along the axis is that of a von Mises-Fisher law with two coordinates
    more, drawn by Wood's (1994) rejection, in depths, which keep their digits: 1 - W
    and 1 - x_0 of his formulas. Returns 1.0, or NaN.
    """
    dim, depth, is_drawn = out.shape[0], 0.0, False
    share = (dim + 1.0) / (2.0 * strength + math.hypot(2.0 * strength, dim + 1.0))
    usual = 2.0 * share / (1.0 + share)
    for _ in range(MAX_TRIES):
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
    if dim == 1:  # a matrix of one entry
        out[0] = center[0] + along * ((lowest[0] - center[0]) / length)
        return _scaled_into_ball(center, radius, out)
    across = math.sqrt(depth * (2.0 - depth)) * rng.random() ** (1.0 / (dim - 1.0))
    _place(rng, along, radius * across, lowest, center, length, out)
    return _scaled_into_ball(center, radius, out)


@kernel(counts_references=False)
def lp_log_acceptance(kappa, q, s0, c, bound, s, a):
    """Return log of the acceptance probability of `draw_lp` at S = s, A = a <= bound.

    -(kappa / 2) [S^(2/q) - S0^(2/q) - (2/q) S0^(2/q - 1) (S - S0)] - c (bound - A),
    not positive because S^(2/q) is convex in S.
    """
    slack = c * (bound - a) if c > 0.0 else 0.0
    if q == 2.0 or kappa == 0.0:
        return -slack
    ratio = 2.0 / q
    return -0.5 * kappa * s0**ratio * _tangent_gap((s - s0) / s0, ratio) - slack


@kernel(counts_references=False)
def _propose(rng, b, q, c, r, variance, bound, factors, pivot, out):
    """Fill out with one proposal u; return (S, A), or A = inf once A > bound.

    All but the pivot's entry, if there is one.
    """
    s, a = 0.0, 0.0
    for j in range(out.shape[0]):
        if j == pivot:
            continue
        row = factors[j]
        left, right = (row[2], row[3], row[4]), (row[5], row[6], row[7])
        envelope = (row[0], row[1]) + left + right + (row[8],)
        sign, v, low, high = row[9], row[10], row[11], row[12]
        t = draw_from_envelope(rng, b, q, c, r, v, variance, low, high, envelope)
        out[j] = sign * t
        s += power(abs(t), q)
        a += power(abs(t), r)
        if a > bound:
            return s, np.inf
    return s, a


@kernel(counts_references=False)
def _fill_factors(b, q, c, r, v, variance, lower, upper, factors):
    """Write envelope, sign and reflected arguments of every coordinate into factors."""
    for j in range(v.shape[0]):
        sign = -1.0 if v[j] < 0.0 else 1.0
        low, high = (lower[j], upper[j]) if sign > 0.0 else (-upper[j], -lower[j])
        row = factors[j]
        envelope = factor_envelope(b, q, c, r, abs(v[j]), variance, low, high)
        for k in range(ENVELOPE_SIZE):
            row[k] = envelope[k]
        row[9], row[10], row[11], row[12] = sign, abs(v[j]), low, high


@kernel(counts_references=False)
def _slope_of_power(b, q, t):
    """Slope of b t^q at t > 0."""
    return b * q * power(t, q - 1.0) if b > 0.0 else 0.0


@kernel(counts_references=False)
def _pivot(b, q, r, reach, variance, factors):
    """Coordinate of the largest mean, or -1 where products are good enough.

    How steep its law is, is seen where the mean is pulled straight into the ball.
    """
    pivot, total = 0, 0.0
    for j in range(factors.shape[0]):
        if factors[j, 10] > factors[pivot, 10]:
            pivot = j
    v = factors[pivot, 10]
    if not (v > 0.0 and reach <= factors[pivot, 12]):
        return -1
    for j in range(factors.shape[0]):
        total += power(factors[j, 10] / v, r)
    end = reach / total ** (1.0 / r)
    rate = (v - end) / variance - _slope_of_power(b, q, end)
    return pivot if rate * min(math.sqrt(variance), end) > _STEEP else -1


@kernel
def _edge(b, q, r, bound, reach, variance, factors, pivot):
    """Lambda, q0, sign and lower bound of the pivot, and E S; q0^r + E A' is bound.

    The sum increases in q0.
    """
    row = factors[pivot]
    moments, total = np.empty(5), 0.0
    low, high = 0.0, reach
    end = row[0] if 0.0 < row[0] < reach else reach
    for _ in range(MAX_HALVINGS):
        rate = (row[10] - end) / variance - _slope_of_power(b, q, end)
        if not rate > 0.0:  # the regularizer's slope alone keeps it inside
            high, end = end, 0.5 * (low + end)
            continue
        c = rate * end ** (1.0 - r) / r
        total, over = power(end, q), power(end, r) - bound
        for j in range(factors.shape[0]):
            if j != pivot:
                v, lower, upper = factors[j, 10], factors[j, 11], factors[j, 12]
                factor_moments(b, q, c, r, v, variance, lower, upper, moments)
                total += moments[0]
                over += moments[1]
        width = _TOLERANCE * min(math.sqrt(variance), math.sqrt(end / rate))
        if abs(over) <= width * r * end ** (r - 1.0):
            break
        low, high = (low, end) if over > 0.0 else (end, high)
        end = 0.5 * (low + high)
    rate = (row[10] - end) / variance - _slope_of_power(b, q, end)
    return (rate, end, row[9], row[11]), total


@kernel(counts_references=False)
def _solve_edge(s0, kappa, q, r, bound, reach, variance, factors, pivot):
    """S0 and the pivot's edge with E S = S0; E S - S0 decreases in S0."""
    low, high, log_s0 = -np.inf, np.inf, math.log(s0)
    ratio, edge = 2.0 / q, (0.0, 0.0, 0.0, 0.0)
    for _ in range(MAX_NEWTON):
        s0 = math.exp(log_s0)
        b = slope_at(kappa, q, s0)
        edge, mean = _edge(b, q, r, bound, reach, variance, factors, pivot)
        error = math.log(mean) - log_s0
        lost = 0.25 * kappa * s0**ratio * ratio * (ratio - 1.0) * error * error
        if not lost > _TOLERANCE * _TOLERANCE:
            break
        low, high = (log_s0, high) if error > 0.0 else (low, log_s0)
        log_s0 = _safe_step(log_s0, error, low, high)
    return s0, edge


@kernel(counts_references=False)
def _draw_pivot(rng, edge, b, q, r, variance, bound, a):
    """Pivot's entry given the others' A', and its log acceptance, or -inf outside."""
    rate, mode, _, low = edge
    whole = power(mode, r)
    delta = (a - (bound - whole)) / whole
    if not delta < 1.0:
        return 0.0, -np.inf
    end = mode * math.expm1(math.log1p(-delta) / r)  # from the mode
    step = end - rng.standard_exponential() / rate
    t = mode + step
    if not max(low, -(mode + end)) <= t:
        return 0.0, -np.inf
    lost = 0.5 * step * step / variance - rate * mode * _tangent_gap(-delta, 1.0 / r)
    if b > 0.0 and t > 0.0:
        lost += b * power(mode, q) * _tangent_gap(step / mode, q)
    elif b > 0.0:
        lost += b * (power(-t, q) - power(mode, q)) - _slope_of_power(b, q, mode) * step
    return t, -lost


@kernel
def draw_lp(
    rng,
    v,
    variance,
    kappa,
    q,
    center,
    lower,
    upper,
    ball_radius,
    ball_p,
    max_tries,
    out,
):
    """Draw from e^{-(kappa / 2) ||x - center||_q^2 - ||x - v||_2^2 / (2 variance)}.

    The density is restricted to lower <= x <= upper and, if ball_radius is finite, to
    ||x - center||_{ball_p} <= ball_radius; 1 < q <= 2, 1 <= ball_p < inf, infinite
    variance and bounds allowed. Returns the number of tries (at least 1), or -1 if
    max_tries did not suffice, or -2 on NaN or an empty set; out is NaN then.
    """
    dim = v.shape[0]
    is_valid = kappa >= 0.0 and variance > 0.0 and ball_radius > 0.0
    if not (is_valid and 1.0 < q <= 2.0 and 1.0 <= ball_p < np.inf):
        out[:] = np.nan
        return -2
    shifted, low, high = v - center, lower - center, upper - center
    for j in range(dim):
        # Every l_p ball lies in this cube: proposals lose nothing by staying inside.
        low[j] = max(low[j], -ball_radius)
        high[j] = min(high[j], ball_radius)
    bound = ball_radius**ball_p
    s0, c = tilts(shifted, variance, kappa, q, ball_p, bound, low, high)
    b = slope_at(kappa, q, s0)
    factors = np.empty((dim, ENVELOPE_SIZE + 4))
    _fill_factors(b, q, c, ball_p, shifted, variance, low, high, factors)
    pivot, slack = _pivot(b, q, ball_p, ball_radius, variance, factors), c
    edge, tangent = (0.0, 0.0, 0.0, 0.0), s0
    if pivot >= 0:
        tangent, edge = _solve_edge(
            s0, kappa, q, ball_p, bound, ball_radius, variance, factors, pivot
        )
        pivot = pivot if edge[0] * edge[1] > 1.0 else -1
    if pivot >= 0:
        s0, b, slack = tangent, slope_at(kappa, q, tangent), 0.0
        c = edge[0] * edge[1] ** (1.0 - ball_p) / ball_p
        _fill_factors(b, q, c, ball_p, shifted, variance, low, high, factors)
    for tries in range(1, max_tries + 1):
        s, a = _propose(rng, b, q, c, ball_p, variance, bound, factors, pivot, out)
        if s != s:
            out[:] = np.nan
            return -2
        t, log_ratio = 0.0, 0.0
        if pivot >= 0:
            t, log_ratio = _draw_pivot(rng, edge, b, q, ball_p, variance, bound, a)
            out[pivot] = edge[2] * t
            s += power(abs(t), q)
        if a <= bound and log_ratio > -np.inf:
            log_ratio += lp_log_acceptance(kappa, q, s0, slack, bound, s, a)
            if rng.standard_exponential() >= -log_ratio:
                for j in range(dim):
                    out[j] = min(max(center[j] + out[j], lower[j]), upper[j])
                return tries
    out[:] = np.nan
    return -1


@kernel(counts_references=False)
def half_chord(ball, across):
    """Half length q of the chord at this distance from the axis, and A - q."""
    radius, _, depth = ball
    half = math.sqrt(radius - across) * math.sqrt(radius + across)
    return half, across * (across / (radius + half)) - depth


@kernel(counts_references=False)
def _thin_chord(distance, half):
    """Integrate e^{A u - u^2 / 2} over [-q, q], for A q <= 1 / 4 and q <= A.

    Eight Gauss-Legendre nodes leave a relative error below 1e-16.
    """
    total = 0.0
    for k in range(_NODES.shape[0]):
        u = half * _NODES[k]
        total += _WEIGHTS[k] * vexp(u * (distance - 0.5 * u))
    return half * total


@kernel(counts_references=False)
def _chord(ball, across):
    """q, A - q, log of the normal's mass on the chord, its hazards at both ends.

    If the mean is outside the ball, the mass is that divided by e^{-(A - q)^2 / 2}.
    """
    distance, depth = ball[1], ball[2]
    half, above = half_chord(ball, across)
    drop, square = 2.0 * distance * half, 0.5 * above * above
    if above > 0.0 and (drop < 0.5 or above > _NEAR):
        if drop < 0.5:
            log_mass = math.log(_thin_chord(distance, half))
            log_mass -= half * (distance - 0.5 * half)
        elif drop < _NEGLIGIBLE:
            log_mass = log_rising_mass(above, 1.0, 2.0 * half)
        else:
            log_mass = log_mills(above)
        near = math.exp(-log_mass)
        log_mass -= square if depth >= 0.0 else 0.0
    else:
        end = _ROOT_HALF * (half + distance)
        if above > 0.0:
            rest = math.erfc(end) if drop < _NEGLIGIBLE else 0.0
            mass = math.erfc(_ROOT_HALF * above) - rest
        else:
            mass = math.erf(-_ROOT_HALF * above) + math.erf(end)
        log_mass = math.log(_ROOT_HALF_PI * mass) + (0.0 if depth >= 0.0 else square)
        near = math.exp(-square) / (_ROOT_HALF_PI * mass)
    far = near * math.exp(-drop) if drop < _NEGLIGIBLE else 0.0
    return half, above, log_mass, near, far


@kernel(counts_references=False)
def _slopes(order, ball, across, chord):
    """First and second derivative of the log density; the second may be rounded."""
    half, above, _, near, far = chord
    hazard = near + far
    bend = above * near - (half + ball[1]) * far - hazard * hazard
    lead = order / across if order > 0.0 else 0.0
    ratio = across / half
    first = lead - across - ratio * hazard
    second = (
        -1.0 + ratio * ratio * min(bend, 0.0) - hazard / half * (1.0 + ratio * ratio)
    )
    return first, second - lead / across if order > 0.0 else second


@kernel(counts_references=False)
def _drop(order, ball, mode, top, across, chord):
    """How far h is below its value at the mode, without cancellation."""
    step = across - mode
    rate = 0.5 if ball[2] >= 0.0 else ball[1] / (chord[0] + top[0])
    rise = rate * step * (across + mode) + (top[2] - chord[2])
    return rise - order * math.log1p(step / mode) if order > 0.0 else rise


@kernel(counts_references=False)
def _mode(order, ball):
    """Mode of the log density, its chord and both derivatives there."""
    radius, distance, _ = ball
    if order == 0.0:
        chord = _chord(ball, 0.0)
        first, second = _slopes(order, ball, 0.0, chord)
        return 0.0, chord, first, second
    root = math.hypot(order, 2.0 * distance * radius)
    # Where order / across^2 equals A / q, 1 and 1 / q^2, which are parts of G; here
    # (R / across)^2.
    parts = 0.5 * (1.0 + root / order), radius * radius / order, 1.0 + 1.0 / order
    most = max(parts[0], parts[1], parts[2])
    share = 0.0
    for part in parts:
        share += (part / most) ** 4
    across = radius / math.sqrt(most * math.sqrt(math.sqrt(share)))
    low, high = 0.0, radius
    for _ in range(MAX_STEPS):
        chord = _chord(ball, across)
        first, second = _slopes(order, ball, across, chord)
        if (first * across) ** 2 <= _SLOPE_ERROR**2 * order:
            break
        low, high = (across, high) if first > 0.0 else (low, across)
        # Newton's step for log(order / across^2) = log G, in log across or, where q is
        # shorter, in log q: there the equation is nearly linear.
        slope = order / across
        rate = (slope - first) / across  # G
        bend = max(-second - slope / across - rate, 0.0)  # across G'
        step = math.log(slope / (rate * across)) / (2.0 + bend / rate)
        if chord[0] < across:
            half = chord[0] * math.exp(-step * (across / chord[0]) ** 2)
            proposal = math.sqrt(max(radius - half, 0.0)) * math.sqrt(radius + half)
        else:
            proposal = across * math.exp(step)
        if not low < proposal < high:
            proposal = math.sqrt(low) * math.sqrt(high) if low > 0.0 else 0.5 * high
        across = proposal
    return across, chord, first, second


@kernel(counts_references=False)
def _side(order, ball, mode, top, second, sign):
    """Width, drop of the log density and slope there; slope 0 means no tail."""
    room = mode if sign < 0.0 else ball[0] - mode
    low, high = 0.0, room
    width = min(1.3 / math.sqrt(-second), 0.85 * room)
    drop, slope = 0.0, 0.0
    for _ in range(MAX_STEPS):
        if not low < width < high:
            width = 0.5 * (low + high)
        at = mode + sign * width
        chord = _chord(ball, at)
        slope = -sign * _slopes(order, ball, at, chord)[0]
        drop = _drop(order, ball, mode, top, at, chord)
        if 0.4 <= drop <= 2.0 and slope > 0.0:
            return width, drop, slope
        low, high = (low, width) if drop > 1.0 else (width, high)
        width *= drop**-0.5 if drop > 0.0 else 4.0
    return room, 0.0, 0.0


@kernel(counts_references=False)
def draw_across(rng, order, ball):
    """Draw the distance from the axis by rejection from a plateau and two tails."""
    mode, top, first, second = _mode(order, ball)
    left, left_drop, left_slope = 0.0, 0.0, 0.0
    if order > 0.0:
        left, left_drop, left_slope = _side(order, ball, mode, top, second, -1.0)
    right, right_drop, right_slope = _side(order, ball, mode, top, second, 1.0)
    # The density may still rise beyond an inexact mode, by its slope times the width.
    gap = max(first * right, -first * left, 0.0)
    plateau = (left + right) * math.exp(gap)
    left_mass = math.exp(-left_drop) / left_slope if left_slope > 0.0 else 0.0
    right_mass = math.exp(-right_drop) / right_slope if right_slope > 0.0 else 0.0
    total = plateau + left_mass + right_mass
    if not (total > 0.0 and total < np.inf):
        return np.nan
    for _ in range(MAX_TRIES):
        u = total * rng.random()
        if u < plateau:
            across = mode - left + (left + right) * rng.random()
            bound = -gap
        elif u < plateau + left_mass:
            step = rng.standard_exponential()
            across = mode - (left + step / left_slope)
            bound = left_drop + step
        else:
            step = rng.standard_exponential()
            across = mode + (right + step / right_slope)
            bound = right_drop + step
        if 0.0 < across < ball[0]:
            chord = _chord(ball, across)
            drop = _drop(order, ball, mode, top, across, chord)
            if rng.standard_exponential() >= drop - bound:
                return across
    return np.nan
