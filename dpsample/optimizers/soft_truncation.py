r"""Soft truncation of Catoni and Giulini, smoothed by a Gaussian factor.

psi(t) = t - t^3/6 on |t| <= sqrt(2), constant outside; psi_bar(a, b) = E psi(a + b Z)
for standard normal Z. The published closed form loses all digits for large |a|; this
one sums moments of the truncated normal, or integrates when b is large.

Estimators need psi_bar(a, |a|/sqrt(nu)) for one precision nu and many a: a cubic near 0
and, beyond, polynomials in 1/|a| that are fitted once, ten times faster.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from dpsample._jit import kernel

ROOT_2 = math.sqrt(2.0)
TOP = 2.0 * ROOT_2 / 3.0
_INVERSE_ROOT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES = tuple(float(ROOT_2 * x) for x in _NODES)
WEIGHTS = tuple(float(ROOT_2 * w) for w in _WEIGHTS)
# Within 7 standard deviations of the cubic part's ends the rest is below 1e-14.
MARGIN = 7.0
DEGREE = 7
PIECES_PER_DEVIATION = 10.0


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


@kernel
def _fill(precision, sizes, out):
    """Fill out with the smoothed truncation of the sizes."""
    root = math.sqrt(precision)
    for i in range(len(sizes)):
        out[i] = smoothed_psi(sizes[i], sizes[i] / root)


@kernel(forceinline=True)
def cubic_part(precision):
    """Return the size up to which the truncation is a - c a^3, and c."""
    # The cubic is exact while the argument stays on |t| <= sqrt(2).
    root = math.sqrt(precision)
    return ROOT_2 * root / (root + MARGIN), 1.0 / 6.0 + 0.5 / precision


@functools.lru_cache(maxsize=8)
def truncation_table(precision: float) -> NDArray[np.float64]:
    """Polynomials of the truncation in head/|a|, on pieces of [0, 1].

    In that variable it changes like a normal distribution function of deviation 1 /
    (sqrt(nu) + 7). Powers of a low degree on short pieces keep all digits.
    """
    head = cubic_part.py_func(precision)[0]
    deviations = math.sqrt(precision) + MARGIN
    num_pieces = math.ceil(PIECES_PER_DEVIATION * deviations)
    nodes = chebyshev.chebpts1(DEGREE + 1)
    places = (np.arange(num_pieces)[:, None] + 0.5 * (nodes + 1.0)) / num_pieces
    values = np.empty(places.size)
    _fill(float(precision), head / places.ravel(), values)
    to_chebyshev = np.linalg.inv(chebyshev.chebvander(nodes, DEGREE))
    to_powers = np.zeros((DEGREE + 1, DEGREE + 1))
    for degree, unit in enumerate(np.eye(DEGREE + 1)):
        powers = chebyshev.cheb2poly(unit[: degree + 1])
        to_powers[: len(powers), degree] = powers
    table = values.reshape(places.shape) @ (to_powers @ to_chebyshev).T
    return np.ascontiguousarray(table)


@kernel(forceinline=True)
def soft_truncation(table, head, cubic, a):
    """Return psi_bar(a, |a|/sqrt(nu)) for the table of nu, never above its bound."""
    size = abs(a)
    if not size > head:  # NaN, too
        return a - cubic * (a * a * a)
    place = head / size * len(table)
    piece = min(int(place), len(table) - 1)
    y = 2.0 * (place - piece) - 1.0
    value = 0.0
    for j in range(DEGREE, -1, -1):
        value = value * y + table[piece, j]
    return math.copysign(min(value, TOP), a)
