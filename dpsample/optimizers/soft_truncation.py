r"""Soft truncation of Catoni and Giulini, smoothed by a Gaussian factor.

psi(t) = t - t^3/6 on |t| <= sqrt(2), constant outside; psi_bar(a, b) = E psi(a + b Z)
for standard normal Z. The published closed form loses all digits for large |a|; this
one sums moments of the truncated normal, or integrates when b is large.
"""

from __future__ import annotations

import math

import numpy as np

from dpsample._jit import kernel

ROOT_2 = math.sqrt(2.0)
TOP = 2.0 * ROOT_2 / 3.0
_INVERSE_ROOT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES = tuple(float(ROOT_2 * x) for x in _NODES)
WEIGHTS = tuple(float(ROOT_2 * w) for w in _WEIGHTS)


@kernel
def psi(t):
    """Soft truncation itself."""
    if t > ROOT_2:
        return TOP
    if t < -ROOT_2:
        return -TOP
    return t - t * t * t / 6.0


@kernel
def _density(x):
    return _INVERSE_ROOT_2PI * math.exp(-0.5 * x * x)


@kernel
def _upper(x):
    """Return 1 - Phi(x)."""
    return 0.5 * math.erfc(x / ROOT_2)


@kernel
def smoothed_psi(a, b):
    """E psi(a + b Z) for standard normal Z and b >= 0."""
    if b == 0.0:
        return psi(a)
    low, high = (-ROOT_2 - a) / b, (ROOT_2 - a) / b
    ends = TOP * (_upper(high) - _upper(-low))
    if b >= 1.0:
        total = 0.0
        for i in range(24):
            u = NODES[i]
            total += WEIGHTS[i] * (u - u * u * u / 6.0) * _density((u - a) / b)
        return ends + total / b
    if low > 40.0 or high < -40.0:
        return ends
    # Moments of the truncated normal; differences of tails keep their digits.
    inside = _upper(low) - _upper(high) if low > 0.0 else _upper(-high) - _upper(-low)
    at_low, at_high = _density(low), _density(high)
    first = at_low - at_high
    second = inside + low * at_low - high * at_high
    third = (low * low + 2.0) * at_low - (high * high + 2.0) * at_high
    cubic = a * a * a * inside + 3.0 * a * a * b * first
    cubic += 3.0 * a * b * b * second + b * b * b * third
    return ends + a * inside + b * first - cubic / 6.0
