"""Bregman projection on an l_p ball for the potential kappa/2 |w|_s^2, s > p.

argmin kappa/2 |w|_s^2 - <theta, w> over |w|_p <= R, where the constraint is active:
with multipliers A = kappa |w|_s^(2-s) and nu > 0, A |w_j|^(s-1) + nu |w_j|^(p-1) =
|theta_j|. Scaling w = T u turns both into one scalar g = A T^(s-1) = nu T^(p-1):

    u_j^(s-1) + u_j^(p-1) = |theta_j|/g,  w = R u/|u|_p,
    g = kappa R |u|_s^(2-s)/|u|_p,

whose last equation has one root, because the minimizer is unique. All is done with
logarithms: near p = 1 powers of u leave the range of floating point.
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel

MAX_DOUBLINGS = 60
MAX_ROUNDS = 200
ROUNDING = 4e-16


@kernel(counts_references=False)
def log_root(a, b, c):
    """Log of the u with u^a + u^b = e^c, 0 <= b < a; -inf if there is none.

    Newton's method for the convex log(e^(a x) + e^(b x)) = c, from above.
    """
    if b == 0.0:
        return math.log(math.expm1(c)) / a if c > 0.0 else -np.inf
    if math.isinf(c):
        return c
    x = min(c / a, c / b)
    for _ in range(MAX_ROUNDS):
        share = 1.0 / (1.0 + math.exp((b - a) * x))  # of u^a
        if x > 0.0:
            value = a * x + math.log1p(math.exp((b - a) * x))
        else:
            value = b * x + math.log1p(math.exp((a - b) * x))
        moved = (value - c) / (share * a + (1.0 - share) * b)
        x -= moved
        if moved <= ROUNDING * abs(x):
            break
    return x


@kernel(counts_references=False)
def log_norm(logs, exponent):
    """Log of the norm of a vector of positive numbers, given by their logs."""
    top = -np.inf
    for j in range(len(logs)):
        top = max(top, logs[j])
    if math.isinf(top):
        return top
    total = 0.0
    for j in range(len(logs)):
        total += math.exp(exponent * (logs[j] - top))
    return top + math.log(total) / exponent


@kernel(counts_references=False)
def miss(step, dual, x, logs):
    """Log of the ratio of both sides of the scalar equation at g = e^x.

    Fills ``logs`` with those of u; a dual of zero has u = 0.
    """
    for j in range(len(dual)):
        size = abs(dual[j])
        c = math.log(size) - x if size > 0.0 else -np.inf
        logs[j] = log_root(step.exponent - 1.0, step.ball_exponent - 1.0, c)
    near = log_norm(logs, step.exponent)
    if math.isinf(near):  # g is above all duals
        return np.inf
    scale = math.log(step.kappa * step.radius)
    return scale + (2.0 - step.exponent) * near - log_norm(logs, step.ball_exponent) - x


@kernel(counts_references=False)
def into_lp_ball(step, dual, w, logs):
    """Fill ``w``, whose l_p norm is too large, with the projection.

    False if the constraint's multiplier is below rounding errors: scale it radially.
    """
    top = 0.0
    for j in range(len(dual)):
        top = max(top, abs(dual[j]))
    low = high = math.log(0.5 * top)
    below = above = miss(step, dual, low, logs)
    stride = 1.0
    for _ in range(MAX_DOUBLINGS):
        if below < 0.0 <= above:
            break
        if below >= 0.0:
            high, above = low, below
            low -= stride
            below = miss(step, dual, low, logs)
        else:
            low, below = high, above
            high += stride
            above = miss(step, dual, high, logs)
        stride *= 2.0
    if not below < 0.0 <= above:
        return False
    side = 0  # of the last guess: an end that stays has its miss halved (Illinois)
    for _ in range(MAX_ROUNDS):
        x = 0.5 * (low + high)
        if above < np.inf:
            x = low + (high - low) * below / (below - above)
        found = miss(step, dual, x, logs)
        if found < 0.0:
            low, below = x, found
            above *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, above = x, found
            below *= 0.5 if side > 0 else 1.0
            side = 1
        if abs(found) <= ROUNDING or high - low <= ROUNDING * abs(x):
            break
    size = log_norm(logs, step.ball_exponent)
    for j in range(len(w)):
        w[j] = math.copysign(step.radius * math.exp(logs[j] - size), dual[j])
    return True
