"""Unbiased estimate of a likelihood ratio from values of single records.

    rho = 1 + sum_{i <= a} prod_{m <= i} (l_j(z) - l_j(x)),    l_j = k f(.; s_j),

with a fresh uniform record j for each factor and a random length a, P(a >= i) = 1 / i!,
has the mean sum_i (k F(z) - k F(x))^i / i! = exp(k F(z) - k F(x)).
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel
from dpsample.samplers.chain import RECORDS
from dpsample.samplers.errors import BOUND_VIOLATED, OK, PIECE_FAILED
from dpsample.samplers.single_record import loss, margin

# Rounding of a difference of two values, relative to their size.
ROUNDING = 1e-12


@kernel
def series_length(uniform):
    """Length a with P(a >= i) = 1 / i!, from a uniform number."""
    length, factorial = 0, 1.0
    while uniform * factorial < 1.0:
        length += 1
        factorial *= length + 1.0
    return length


@kernel
def overshoot_of(rho):
    """Return the amount that the cut of rho to [0, 2] takes away."""
    return max(rho - 2.0, 0.0) + max(-rho, 0.0)


@kernel
def change(target, pieces, plan, work, x, z, i):
    """l_i(z) - l_i(x), less the anchor's tangent, and the size of its rounding."""
    u_x, u_z = margin(target.data, x, i), margin(target.data, z, i)
    at_x, at_z = loss(target, pieces, u_x, i, work), loss(target, pieces, u_z, i, work)
    difference, size = at_z - at_x, abs(at_z) + abs(at_x)
    if plan.slopes.shape[0] > 0:
        difference -= plan.slopes[i] * (u_z - u_x)
        size += abs(plan.slopes[i]) * (abs(u_z) + abs(u_x))
    return target.k * difference, ROUNDING * (1.0 + target.k * size)


@kernel
def estimate(target, pieces, plan, state, x, z, rng):
    """Return a code and rho, whose mean is exp(k F(z) - k F(x))."""
    square = 0.0
    for j in range(x.shape[0]):
        square += (z[j] - x[j]) ** 2
    limit = plan.lipschitz * math.sqrt(square)
    rho = 1.0
    for num_factors in range(1, series_length(rng.random()) + 1):
        product = 1.0
        for _ in range(num_factors):
            i = rng.integers(0, target.data.num_records)
            factor, slack = change(target, pieces, plan, state.work, x, z, i)
            state.counts[RECORDS] += 2
            if np.isnan(factor):
                return PIECE_FAILED, np.nan
            if abs(factor) > limit + slack:
                return BOUND_VIOLATED, np.nan
            product *= factor
        rho += product
    return OK, rho
