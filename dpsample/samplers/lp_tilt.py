"""Choice of the separable envelope of `restricted.draw_lp`, by fixed quadrature.

With S = sum |u_i|^q and A = sum |u_i|^r the target is e^{-(kappa / 2) S^(2/q)} times a
Gaussian, on A <= bound. The envelope is e^{-b S - c A} times the Gaussian with
b = (kappa / q) S0^(2/q - 1). Any S0 > 0 and c >= 0 are exact; the best ones solve
E S = S0 and, if the constraint is active, E A = bound (otherwise c = 0).
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel
from dpsample.samplers.univariate import factor_moments

MAX_NEWTON = 25
_TOLERANCE = 0.2
_FLOOR = 1e-290


@kernel
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


@kernel
def _start(v, variance, kappa, q):
    """First guess of S0: two upper bounds of a typical S."""
    dim = v.shape[0]
    square = 0.0
    free = 0.0
    for i in range(dim):
        square += v[i] * v[i]
        free += (v[i] * v[i] + variance) ** (0.5 * q)
    if kappa > 0.0:
        energy = square / variance + dim
        free = min(free, (energy / kappa) ** (0.5 * q))
    return max(free, _FLOOR)


@kernel
def _safe_step(x, step, low, high):
    """Newton's x + step if it stays inside the bracket, else the bracket's middle."""
    step = max(-3.0, min(3.0, step)) if step == step else 0.0
    if low < x + step < high:
        return x + step
    return 0.5 * (low + high) if high - low < np.inf else x


@kernel
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


@kernel
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
