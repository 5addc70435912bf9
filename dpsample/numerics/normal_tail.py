# mypy: allow-untyped-defs
"""Quantiles of the normal law from logarithms, and its tail drawn to full accuracy."""

import numpy as np

from dpsample.core.jit import kernel
from dpsample.numerics.stable import HALF_LOG_2PI, log_ndtr

# Bound above which a normal's tail is drawn from an exponential.
FAR = 10.0


@kernel
def log_quantile(y):
    """Return x with log Phi(x) = y < 0, by Halley's method."""
    if y > -0.5:  # by the other tail, for its digits
        return -log_lower_quantile(np.log(-np.expm1(y)))
    return log_lower_quantile(y)


@kernel
def log_lower_quantile(y):
    """Return x with log Phi(x) = y <= -1/2."""
    if not y > -np.inf:
        return y
    x = 1.9 + 1.55 * y + 0.13 * y * y if y > -3.0 else 0.0
    if y <= -3.0:  # Phi(x) is nearly phi(x) / -x
        square = -2.0 * y - np.log(-2.0 * y) - 2.0 * HALF_LOG_2PI
        x = -np.sqrt(max(square, 1.0))
    for _ in range(20):
        value = log_ndtr(x)
        hazard = np.exp(-0.5 * x * x - HALF_LOG_2PI - value)
        gap = value - y
        step = gap / (hazard + 0.5 * gap * (x + hazard))
        x -= step
        if not abs(step) > 1e-5 * (1.0 + abs(x)):  # the next one is of its cube
            break
    return x


@kernel
def tail_excess(low, rng, above):
    """Fill above with Z - low for standard normals Z above low, to full accuracy.

    In the order of arrays: what is refused is drawn again after all others.
    """
    left, last, log_mass = 0, np.nan, 0.0
    again = np.empty(above.shape[0], np.int64)
    for i in range(above.shape[0]):
        if low[i] != last:
            last, log_mass = low[i], log_ndtr(-low[i])
        log_tail = log_mass - rng.standard_exponential()
        if low[i] > FAR:
            again[left] = i
            left += 1
        else:
            above[i] = -log_quantile(log_tail) - low[i]
            above[i] = above[i] if above[i] > 0.0 else 0.0
    while left > 0:  # Exp(low), kept with probability exp(-t^2 / 2)
        for j in range(left):
            above[again[j]] = rng.standard_exponential() / low[again[j]]
        count = 0
        for j in range(left):
            t = above[again[j]]
            if rng.standard_exponential() < 0.5 * t * t:
                again[count] = again[j]
                count += 1
        left = count
