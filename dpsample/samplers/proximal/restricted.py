# mypy: allow-untyped-defs
"""Exact draws of Gaussians, also times a squared l_q norm, on convex sets.

`gaussian_in_ball` draws the coordinate along the axis through the mean first, then the
rest (see `draw_axis`). `gaussian_in_box` is a product of truncated normals. `draw_lp`
is for e^{-(kappa / 2) S^(2/q)} times a Gaussian, on A <= bound, with S = sum |u_i|^q
and A = sum |u_i|^r. It rejects from e^{-b S - c A} times the Gaussian, a product of
one-dimensional densities, with b = (kappa / q) S0^(2/q - 1) the slope of a tangent:
S^(2/q) is convex in S. Any S0 > 0 and c >= 0 are exact; the best ones solve E S = S0
and, if the constraint is active, E A = bound (otherwise c = 0), found by fixed
quadrature.

**Along the axis of a ball** units are the Gaussian's standard deviation, R the radius,
A the distance of the mean from the center, a = (dim - 1) / 2. The coordinate w along
the axis is written as w = R - z, which keeps its distance z from the near pole to full
precision. Its density on [0, 2 R] is log-concave,

    log density = -z^2 / 2 + (R - A) z + log P(a, z (2 R - z) / 2) + constant,

P the regularized incomplete gamma function. Given z, half the squared distance from
the axis is a Gamma(a, 1) variable restricted to [0, z (2 R - z) / 2].
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import log_gamma_factor, log_gammainc
from dpsample.samplers.log_concave import (
    ENVELOPE_SIZE,
    draw_from_envelope,
    factor_envelope,
    factor_moments,
    normal_between,
    power,
)

MAX_NEWTON = 25
MAX_TRIES = 10_000
# Below this relative size of S - S0 the acceptance is computed from a series.
_SERIES_BELOW = 1e-3
_TOLERANCE = 0.2
_FLOOR = 1e-290
MAX_STEPS = 60


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
def _scaled_into_ball(center, radius, out):
    """Undo a rounding error that put the draw outside the ball."""
    total = 0.0
    for j in range(out.shape[0]):
        total += (out[j] - center[j]) ** 2
    norm = math.sqrt(total)
    if norm > radius:
        for j in range(out.shape[0]):
            out[j] = center[j] + (out[j] - center[j]) * (radius / norm * (1.0 - 1e-15))
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
def _axis(mean, center, square, j):
    """Entry j of the unit vector from center to mean; the first axis if they agree."""
    if square > 0.0:
        return (mean[j] - center[j]) / math.sqrt(square)
    return 1.0 if j == 0 else 0.0


@kernel(counts_references=False)
def gaussian_in_ball(rng, mean, stddev, center, radius, out):
    """Draw N(mean, stddev^2 I) restricted to the ball ||x - center||_2 <= radius.

    Exact for any mean, O(dim). Returns 1.0, or NaN on failure (out is then NaN).
    """
    dim = mean.shape[0]
    square = 0.0
    for j in range(dim):
        square += (mean[j] - center[j]) ** 2
    scaled, distance = radius / stddev, math.sqrt(square) / stddev
    if not (scaled > 0.0 and distance < np.inf):
        out[:] = np.nan
        return np.nan
    # Mean plus one standard deviation of the squared distance: P(inside) >= 1 / 2.
    spread = math.sqrt(2.0 * dim + 4.0 * distance * distance)
    if dim + distance * distance + spread <= scaled * scaled:
        return _plain(rng, mean, stddev, center, radius, out)
    if dim == 1:
        low, high = center[0] - radius, center[0] + radius
        out[0] = normal_between(rng, mean[0], stddev, low, high)
        return _scaled_into_ball(center, radius, out)
    half = 0.5 * (dim - 1)
    z = draw_axis(rng, half, scaled, distance)
    across = math.sqrt(2.0 * truncated_gamma(rng, half, 0.5 * z * (2.0 * scaled - z)))
    along, total = 0.0, 0.0
    for j in range(dim):
        out[j] = rng.standard_normal()
        along += _axis(mean, center, square, j) * out[j]
    for j in range(dim):
        out[j] -= along * _axis(mean, center, square, j)
        total += out[j] * out[j]
    for j in range(dim):
        step = (scaled - z) * _axis(mean, center, square, j)
        step += across / math.sqrt(total) * out[j]
        out[j] = center[j] + stddev * step
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
    delta = (s - s0) / s0
    if abs(delta) < _SERIES_BELOW:
        series = 1.0 + (ratio - 4.0) / 5.0 * delta
        series = 1.0 + (ratio - 3.0) / 4.0 * delta * series
        series = 1.0 + (ratio - 2.0) / 3.0 * delta * series
        gap = 0.5 * ratio * (ratio - 1.0) * delta * delta * series
    elif delta > -1.0:
        gap = math.expm1(ratio * math.log1p(delta)) - ratio * delta
    else:
        gap = ratio - 1.0
    return -0.5 * kappa * s0**ratio * gap - slack


@kernel(counts_references=False)
def _propose(rng, b, q, c, r, variance, bound, factors, out):
    """Fill out with one proposal u; return (S, A), or A = inf once A > bound."""
    s, a = 0.0, 0.0
    for j in range(out.shape[0]):
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
    for tries in range(1, max_tries + 1):
        s, a = _propose(rng, b, q, c, ball_p, variance, bound, factors, out)
        if s != s:
            out[:] = np.nan
            return -2
        if a <= bound:
            log_ratio = lp_log_acceptance(kappa, q, s0, c, bound, s, a)
            if rng.standard_exponential() >= -log_ratio:
                for j in range(dim):
                    out[j] = min(max(center[j] + out[j], lower[j]), upper[j])
                return tries
    out[:] = np.nan
    return -1


@kernel(counts_references=False)
def _log_density(a, radius, shift, z):
    """Log density at z and its first two derivatives; shift = R - A."""
    room = 0.5 * z * (2.0 * radius - z)
    log_p = log_gammainc(a, room)
    hazard = math.exp(math.log(a / room) + log_gamma_factor(a, room) - log_p)
    w = radius - z
    value = (shift - 0.5 * z) * z + log_p
    first = shift - z + w * hazard
    second = -1.0 - hazard + w * w * hazard * ((a - 1.0) / room - 1.0 - hazard)
    return value, first, second


@kernel(counts_references=False)
def _mode(a, radius, distance):
    """Approximate mode, by Newton's method inside a bracket.

    The start is the near end of R - A and of the root of w (2 a / (R^2 - w^2)) = A - w
    without the last w, which is the mode when the truncation is strong.
    """
    product = distance * radius
    root = math.sqrt(a * a + product * product)
    z = max(radius - distance, radius * (a + a * a / (root + product)) / (a + root))
    low, high = 0.0, 2.0 * radius
    if not 0.0 < z < high:
        z = radius
    for _ in range(MAX_STEPS):
        _, first, second = _log_density(a, radius, radius - distance, z)
        if first > 0.0:
            low = z
        else:
            high = z
        step = -first / second if second < 0.0 else 0.0
        if not abs(first * step) > 1e-3:
            break
        proposal = z + step
        if not low < proposal < high:
            proposal = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        z = proposal
    return z


@kernel(counts_references=False)
def _side(a, radius, shift, mode, top, start, sign):
    """Width, drop of the log density and slope there; slope 0 means no tail."""
    room = mode if sign < 0.0 else 2.0 * radius - mode
    width = start
    reached, drop, slope = np.nan, np.nan, np.nan
    for _ in range(MAX_STEPS):
        if width >= room:
            width = 0.5 * (room + (width / (1.0 + width / room)))
        reached = width
        value, first, _ = _log_density(a, radius, shift, mode + sign * reached)
        drop, slope = top - value, -sign * first
        if 0.4 <= drop <= 2.0 and slope > 0.0:
            break
        if drop > 0.0:
            width *= drop ** (-1.0 / max(slope * width / drop, 1.0))
        else:
            width *= 4.0
        if room - width < 1e-9 * room:
            return room, 0.0, 0.0
    return reached, drop, slope


@kernel(counts_references=False)
def draw_axis(rng, a, radius, distance):
    """Draw z = R - w by rejection from a plateau and two tangent tails."""
    shift = radius - distance
    mode = _mode(a, radius, distance)
    top, first, second = _log_density(a, radius, shift, mode)
    start = 1.4 / math.sqrt(-second) if second < 0.0 else 0.5 * radius
    left, left_drop, left_slope = _side(a, radius, shift, mode, top, start, -1.0)
    right, right_drop, right_slope = _side(a, radius, shift, mode, top, start, 1.0)
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
            z = mode - left + (left + right) * rng.random()
            bound = top + gap
        elif u < plateau + left_mass:
            step = rng.standard_exponential()
            z = mode - (left + step / left_slope)
            bound = top - left_drop - step
        else:
            step = rng.standard_exponential()
            z = mode + (right + step / right_slope)
            bound = top - right_drop - step
        if 0.0 < z < 2.0 * radius:
            value = _log_density(a, radius, shift, z)[0]
            if rng.standard_exponential() >= bound - value:
                return z
    return np.nan


@kernel(counts_references=False)
def truncated_gamma(rng, a, upper):
    """Draw Gamma(a, 1) restricted to [0, upper], for a >= 0.5.

    If upper is below the bulk, log of the variable has an increasing concave log
    density, and the tangent at the end is an envelope; otherwise plain rejection.
    """
    rate = a - upper
    if rate > 0.5 * math.sqrt(a):
        for _ in range(MAX_TRIES):
            u = -rng.standard_exponential() / rate
            # a u - upper (e^u - 1) - rate u = -upper (e^u - 1 - u)
            if rng.standard_exponential() >= upper * (math.expm1(u) - u):
                return upper * math.exp(u)
        return np.nan
    for _ in range(MAX_TRIES):
        x = rng.standard_gamma(a)
        if x <= upper:
            return x
    return np.nan
