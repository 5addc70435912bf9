# mypy: allow-untyped-defs
r"""Exact draws of a Gaussian times a squared l_q norm, in a box and an l_r ball.

With u = x - center, S = sum |u_i|^q and A = sum |u_i|^r, the sums of powers for the
regularizer and for the ball of radius bound^(1/r), the density is

    e^{-(kappa / 2) S^(2/q)} N(u; v, variance I),    A <= bound, lower <= u <= upper.

**Products.** S^(2/q) is convex in S, so a tangent at S0 is below it. With its slope
b = (kappa / q) S0^(2/q - 1) and a constant c >= 0, proposals come from e^{-b S - c A}
times the Gaussian, a product of one-dimensional *factors*. Any S0 > 0 and c are exact.
The best ones solve E S = S0 and, if the constraint A <= bound is active, E A = bound
(otherwise c = 0). The means are computed by a fixed quadrature.

**Pivot.** If the mean v is far outside, draws are within variance / distance of the
boundary, and a product would rarely be accepted. There the coordinate t with the
largest mean, the *pivot*, is drawn last. Let A' be the sum of the others. Then t is at
most e(A') = (bound - A')^(1/r), which is concave in A'. Choose an *edge* q0 with q0^r +
A0 = bound, and let lambda > 0 be the slope of the log factor of t at q0. Then

    log factor(t) <= log factor(q0) + lambda (t - q0),
    e(A') <= q0 - (A' - A0) q0^(1-r) / r.

Proposals are e^{-c A'} times the factors of the others, with c = lambda q0^(1-r) / r,
and an exponential depth e(A') - t of rate lambda. The log acceptance probability is
minus the sum of the two differences. Any q0 is exact. With E A' = A0 the differences
are of the order of the variance of A' at any distance.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import record_dtype
from dpsample.core.jit import kernel
from dpsample.samplers.univariate.log_concave import (
    Envelope,
    draw_from_envelope,
    fill_moments,
    new_envelope,
    power,
)

# Maximum number of steps of Newton's method. A search that ends early gives other
# proposals, and the same distribution.
MAX_NEWTON = 25
# Accuracy of S0 and of the edge, in standard deviations. More digits would hardly raise
# the acceptance rate.
_TOLERANCE = 0.2
# Positive numbers that underflow are replaced by this one.
_FLOOR = 1e-290

# Factor of a coordinate: its envelope, and its arguments reflected so that v >= 0.
Factor = record_dtype(
    **dict.fromkeys(Envelope._fields, float),
    sign=float,
    v=float,
    lower=float,
    upper=float,
)


class MomentPosition(NamedTuple):
    """Positions in an array of means, variances and the covariance of S and A."""

    mean_s: int = 0
    mean_a: int = 1
    var_s: int = 2
    cov: int = 3
    var_a: int = 4


MOMENT = MomentPosition()


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def slope_at(kappa, q, s0):
    """Return b, the derivative of (kappa / 2) S^(2/q) at S0."""
    return kappa / q * s0 ** (2.0 / q - 1.0) if kappa > 0.0 else 0.0


@kernel
def _fill_sums(b, q, c, r, v, variance, lower, upper, out):
    """Fill means, variances and the covariance of S and A under the product."""
    moments = np.empty(5)
    out[:5] = 0.0
    for i in range(v.shape[0]):
        fill_moments(b, q, c, r, v[i], variance, lower[i], upper[i], moments)
        mean_s, mean_a = moments[0], moments[1]
        out[MOMENT.mean_s] += mean_s
        out[MOMENT.mean_a] += mean_a
        out[MOMENT.var_s] += max(moments[2] - mean_s * mean_s, 0.0)
        out[MOMENT.cov] += moments[3] - mean_s * mean_a
        out[MOMENT.var_a] += max(moments[4] - mean_a * mean_a, 0.0)


@kernel(counts_references=False)
def _first_s0(v, variance, kappa, q):
    """Return a first guess of S0, the smaller of two upper bounds of a typical S."""
    dim = v.shape[0]
    square, s0 = 0.0, 0.0
    for i in range(dim):
        square += v[i] * v[i]
        s0 += (v[i] * v[i] + variance) ** (0.5 * q)
    if kappa > 0.0:
        energy = square / variance + dim
        s0 = min(s0, (energy / kappa) ** (0.5 * q))
    return max(s0, _FLOOR)


@kernel(counts_references=False)
def _next_iterate(x, step, low, high):
    """Return x + step if it is inside the bracket, otherwise the bracket's middle.

    A step in a logarithm is at most 3, a factor of 20, and 0 if it is NaN.
    """
    step = max(-3.0, min(3.0, step)) if step == step else 0.0
    if low < x + step < high:
        return x + step
    return 0.5 * (low + high) if high - low < np.inf else x


@kernel(counts_references=False)
def _solve_s0(log_s0, c, v, variance, kappa, q, r, lower, upper, sums):
    """Return log S0 with E S = S0 for a fixed c, and leave the sums of the last b.

    Newton's method is safe, because log E S - log S0 decreases in log S0.
    """
    low, high = -np.inf, np.inf
    for _ in range(MAX_NEWTON):
        s0 = math.exp(log_s0)
        b = slope_at(kappa, q, s0)
        _fill_sums(b, q, c, r, v, variance, lower, upper, sums)
        mean = max(sums[MOMENT.mean_s], _FLOOR)
        error = math.log(mean) - log_s0
        low, high = (log_s0, high) if error > 0.0 else (low, log_s0)
        # The derivative of E S in b is minus the variance.
        slope = 1.0 + b * sums[MOMENT.var_s] / mean * (2.0 / q - 1.0)
        log_s0 = _next_iterate(log_s0, error / slope, low, high)
        if not abs(mean - s0) > _TOLERANCE * math.sqrt(sums[MOMENT.var_s]):
            break
    return log_s0


@kernel(counts_references=False)
def _solve_active(log_s0, v, variance, kappa, q, r, bound, lower, upper, sums):
    """Return (S0, c) with E S = S0 and E A = bound.

    Along E S = S0, E A decreases in c.
    """
    dim = v.shape[0]
    radius = bound ** (1.0 / r)
    largest = 0.0
    for i in range(dim):
        largest = max(largest, abs(v[i]))
    # For v = 0 without a regularizer, e^{-c A} alone has E A = dim / (r c). A mean
    # outside pulls with the force v / variance.
    log_c = math.log((dim + largest * radius / variance) / (r * bound))
    low, high = -np.inf, np.inf
    for _ in range(MAX_NEWTON):
        c = math.exp(log_c)
        log_s0 = _solve_s0(log_s0, c, v, variance, kappa, q, r, lower, upper, sums)
        mean_s, mean_a = (
            max(sums[MOMENT.mean_s], _FLOOR),
            max(sums[MOMENT.mean_a], _FLOOR),
        )
        error = math.log(mean_a) - math.log(bound)
        low, high = (log_c, high) if error > 0.0 else (low, log_c)
        # Minus the derivative of log E A in log c, along E S = S0.
        b = slope_at(kappa, q, math.exp(log_s0)) * (2.0 / q - 1.0)
        change = (
            b * sums[MOMENT.cov] * sums[MOMENT.cov] / (mean_s + b * sums[MOMENT.var_s])
        )
        slope = c / mean_a * (sums[MOMENT.var_a] - change)
        log_c = _next_iterate(log_c, error / max(slope, _FLOOR), low, high)
        if not abs(mean_a - bound) > _TOLERANCE * math.sqrt(sums[MOMENT.var_a]):
            break
    return math.exp(log_s0), math.exp(log_c)


@kernel
def choose_product(v, variance, kappa, q, r, bound, lower, upper):
    """Return (S0, c) of the proposals' product. No random numbers are used."""
    sums = np.empty(len(MOMENT))
    log_s0 = math.log(_first_s0(v, variance, kappa, q))
    log_s0 = _solve_s0(log_s0, 0.0, v, variance, kappa, q, r, lower, upper, sums)
    if sums[MOMENT.mean_a] <= bound + _TOLERANCE * math.sqrt(sums[MOMENT.var_a]):
        return math.exp(log_s0), 0.0
    return _solve_active(log_s0, v, variance, kappa, q, r, bound, lower, upper, sums)


@kernel(counts_references=False)
def _tangent_gap(delta, exponent):
    """Return (1 + delta)^exponent - 1 - exponent delta for delta >= -1, accurately."""
    if exponent == 1.0:
        return 0.0
    # For small differences the terms would cancel, and the binomial series is used.
    if abs(delta) < 1e-3:
        series = 1.0 + (exponent - 4.0) / 5.0 * delta
        series = 1.0 + (exponent - 3.0) / 4.0 * delta * series
        series = 1.0 + (exponent - 2.0) / 3.0 * delta * series
        return 0.5 * exponent * (exponent - 1.0) * delta * delta * series
    if delta > -1.0:
        return math.expm1(exponent * math.log1p(delta)) - exponent * delta
    return exponent - 1.0


@kernel(counts_references=False)
def lp_log_acceptance(kappa, q, s0, c, bound, s, a):
    """Return the log acceptance probability of a product at S = s, A = a <= bound.

    It is -(kappa / 2) [S^(2/q) - S0^(2/q) - (2/q) S0^(2/q - 1) (S - S0)] minus
    c (bound - A), and not positive because S^(2/q) is convex in S.
    """
    slack = c * (bound - a) if c > 0.0 else 0.0
    if q == 2.0 or kappa == 0.0:
        return -slack
    ratio = 2.0 / q
    return -0.5 * kappa * s0**ratio * _tangent_gap((s - s0) / s0, ratio) - slack


@kernel(counts_references=False)
def _propose(rng, b, q, c, r, variance, bound, factors, pivot, out):
    """Fill all entries of a proposal except the pivot's, and return their S and A.

    As soon as A > bound, return A = inf.
    """
    s, a = 0.0, 0.0
    for j in range(out.shape[0]):
        if j == pivot:
            continue
        factor = factors[j]
        t = draw_from_envelope(
            rng,
            b,
            q,
            c,
            r,
            factor.v,
            variance,
            factor.lower,
            factor.upper,
            factor,
        )
        out[j] = factor.sign * t
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
        envelope = new_envelope(b, q, c, r, abs(v[j]), variance, low, high)
        factor = factors[j]
        factor.mode, factor.energy, factor.gap = (
            envelope.mode,
            envelope.energy,
            envelope.gap,
        )
        factor.left, factor.right = envelope.left, envelope.right
        factor.left_rise, factor.right_rise = envelope.left_rise, envelope.right_rise
        factor.left_slope = envelope.left_slope
        factor.right_slope = envelope.right_slope
        factor.sign, factor.v, factor.lower, factor.upper = sign, abs(v[j]), low, high


@kernel(counts_references=False)
def _power_slope(b, q, t):
    """Return the derivative of b t^q at t > 0."""
    return b * q * power(t, q - 1.0) if b > 0.0 else 0.0


@kernel(counts_references=False)
def _find_pivot(b, q, r, radius, variance, factors):
    """Return the coordinate of the largest mean, or -1 if products are good enough.

    The slope of its factor is measured at the multiple of the mean that is on the
    sphere.
    """
    pivot, total = 0, 0.0
    for j in range(factors.shape[0]):
        if factors[j].v > factors[pivot].v:
            pivot = j
    v = factors[pivot].v
    if not (v > 0.0 and radius <= factors[pivot].upper):
        return -1
    for j in range(factors.shape[0]):
        total += power(factors[j].v / v, r)
    edge = radius / total ** (1.0 / r)
    rate = (v - edge) / variance - _power_slope(b, q, edge)
    # A pivot is used if the depth's scale 1 / rate is below a fifth of a standard
    # deviation and of the edge. Otherwise products need fewer evaluations.
    return pivot if rate * min(math.sqrt(variance), edge) > 5.0 else -1


@kernel
def _find_edge(b, q, r, bound, radius, variance, factors, pivot):
    """Return lambda, q0 with q0^r + E A' = bound, and E S.

    The sum increases in q0, so that halving a bracket finds the root.
    """
    v, mode = factors[pivot].v, factors[pivot].mode
    moments, total = np.empty(5), 0.0
    low, high = 0.0, radius
    edge = mode if 0.0 < mode < radius else radius
    # The bracket is halved at most 80 times, until it is far below rounding errors.
    for _ in range(80):
        rate = (v - edge) / variance - _power_slope(b, q, edge)
        # The regularizer alone would keep the pivot inside.
        if not rate > 0.0:
            high, edge = edge, 0.5 * (low + edge)
            continue
        c = rate * edge ** (1.0 - r) / r
        total, excess = power(edge, q), power(edge, r) - bound
        for j in range(factors.shape[0]):
            if j != pivot:
                factor = factors[j]
                fill_moments(
                    b,
                    q,
                    c,
                    r,
                    factor.v,
                    variance,
                    factor.lower,
                    factor.upper,
                    moments,
                )
                total += moments[0]
                excess += moments[1]
        width = _TOLERANCE * min(math.sqrt(variance), math.sqrt(edge / rate))
        if abs(excess) <= width * r * edge ** (r - 1.0):
            break
        low, high = (low, edge) if excess > 0.0 else (edge, high)
        edge = 0.5 * (low + high)
    rate = (v - edge) / variance - _power_slope(b, q, edge)
    return rate, edge, total


@kernel(counts_references=False)
def _solve_edge(s0, kappa, q, r, bound, radius, variance, factors, pivot):
    """Return S0 with E S = S0, and lambda and q0 of the pivot's edge.

    E S - S0 decreases in S0.
    """
    low, high, log_s0 = -np.inf, np.inf, math.log(s0)
    ratio, rate, edge = 2.0 / q, 0.0, 0.0
    for _ in range(MAX_NEWTON):
        s0 = math.exp(log_s0)
        b = slope_at(kappa, q, s0)
        rate, edge, mean = _find_edge(b, q, r, bound, radius, variance, factors, pivot)
        error = math.log(mean) - log_s0
        # A wrong S0 reduces the log acceptance by this, to second order.
        lost = 0.25 * kappa * s0**ratio * ratio * (ratio - 1.0) * error * error
        if not lost > _TOLERANCE * _TOLERANCE:
            break
        low, high = (log_s0, high) if error > 0.0 else (low, log_s0)
        log_s0 = _next_iterate(log_s0, error, low, high)
    return s0, rate, edge


@kernel(counts_references=False)
def _draw_pivot(rng, rate, edge, low, b, q, r, variance, bound, a):
    """Return the pivot's entry given A' = a, and its log acceptance.

    The log acceptance is -inf outside the domain. ``low`` is the entry's lower bound.
    """
    edge_power = power(edge, r)
    delta = (a - (bound - edge_power)) / edge_power
    if not delta < 1.0:
        return 0.0, -np.inf
    # e(A') - q0, computed without cancellation, and the same difference for t.
    end = edge * math.expm1(math.log1p(-delta) / r)
    step = end - rng.standard_exponential() / rate
    t = edge + step
    if not max(low, -(edge + end)) <= t:
        return 0.0, -np.inf
    lost = 0.5 * step * step / variance - rate * edge * _tangent_gap(-delta, 1.0 / r)
    if b > 0.0 and t > 0.0:
        lost += b * power(edge, q) * _tangent_gap(step / edge, q)
    elif b > 0.0:
        lost += b * (power(-t, q) - power(edge, q)) - _power_slope(b, q, edge) * step
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
    max_proposals,
    out,
):
    """Draw from e^{-(kappa / 2) ||x - center||_q^2 - ||x - v||_2^2 / (2 variance)}.

    The density is restricted to lower <= x <= upper and, if ball_radius is finite, to
    ||x - center||_{ball_p} <= ball_radius. 1 < q <= 2 and 1 <= ball_p < inf. Variance
    and bounds may be infinite. Return the number of proposals (at least 1), or -1 if
    max_proposals did not suffice, or -2 for NaN or an empty set. Then out is NaN.
    """
    dim = v.shape[0]
    is_valid = kappa >= 0.0 and variance > 0.0 and ball_radius > 0.0
    if not (is_valid and 1.0 < q <= 2.0 and 1.0 <= ball_p < np.inf):
        out[:] = np.nan
        return -2
    shifted, low, high = v - center, lower - center, upper - center
    for j in range(dim):
        # The ball is inside this cube, so no proposal needs to be outside.
        low[j] = max(low[j], -ball_radius)
        high[j] = min(high[j], ball_radius)
    bound = ball_radius**ball_p
    s0, c = choose_product(shifted, variance, kappa, q, ball_p, bound, low, high)
    b = slope_at(kappa, q, s0)
    factors = np.empty(dim, Factor)
    _fill_factors(b, q, c, ball_p, shifted, variance, low, high, factors)
    pivot = _find_pivot(b, q, ball_p, ball_radius, variance, factors)
    rate, edge, pivot_s0 = 0.0, 0.0, s0
    if pivot >= 0:
        pivot_s0, rate, edge = _solve_edge(
            s0, kappa, q, ball_p, bound, ball_radius, variance, factors, pivot
        )
        # The depth must be short compared with the edge.
        pivot = pivot if rate * edge > 1.0 else -1
    # With a pivot, the exponential depth takes the place of the factor
    # e^{-c (A - bound)}, which must not count twice.
    bound_slope = c
    if pivot >= 0:
        s0, b, bound_slope = pivot_s0, slope_at(kappa, q, pivot_s0), 0.0
        c = rate * edge ** (1.0 - ball_p) / ball_p
        _fill_factors(b, q, c, ball_p, shifted, variance, low, high, factors)
    for num_proposals in range(1, max_proposals + 1):
        s, a = _propose(rng, b, q, c, ball_p, variance, bound, factors, pivot, out)
        if s != s:
            out[:] = np.nan
            return -2
        t, log_ratio = 0.0, 0.0
        if pivot >= 0:
            pivot_low = factors[pivot].lower
            t, log_ratio = _draw_pivot(
                rng, rate, edge, pivot_low, b, q, ball_p, variance, bound, a
            )
            out[pivot] = factors[pivot].sign * t
            s += power(abs(t), q)
        if a <= bound and log_ratio > -np.inf:
            log_ratio += lp_log_acceptance(kappa, q, s0, bound_slope, bound, s, a)
            if rng.standard_exponential() >= -log_ratio:
                # The sum may be rounded to a number outside of the box.
                for j in range(dim):
                    out[j] = min(max(center[j] + out[j], lower[j]), upper[j])
                return num_proposals
    out[:] = np.nan
    return -1
